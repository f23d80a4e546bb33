"""How a model's coordinates are spread over many texts: the basis of cards, audits, frequencies and contrasts.

Everything is measured on L2-normalised rows, and over the texts with a known word. A dimension *fires* on a text when
it carries more than its even share of the embedding there: coordinate^2 > |embedding|^2 / n for n dimensions. That
needs no threshold for each family, and counts strongly negative coordinates too.

Texts are read a block at a time. Quantiles and correlations, which need whole rows, use a sample of them.

`document_frequencies` counts the texts that each dimension fires on. The LENS paper (section 5.5) proposes to
down-weight or drop frequent dimensions; the weight is the inverse document frequency of information retrieval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder
from pellucid.embeddings import check_texts, iterate_texts, stacked, unit_rows
from pellucid.errors import InputError
from pellucid.progress import Progress
from pellucid.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent
from pellucid.views.report import Report

if TYPE_CHECKING:
    from pellucid.dimensions import Which


_BLOCK = 4_096  # texts
_COLUMNS = 256  # made dense at a time: 8 MB a block
_SAMPLE = 20_000  # rows; the standard error of a correlation of 0.95 is then 0.001
_CELLS = 1 << 25  # of the sample, where rows are wide
_FLAT = 0.01  # a standard deviation below this part of 1 / sqrt(n) is rounding
_SPARE = 3  # candidates for each example: a corpus may repeat texts

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Example(NamedTuple):
    """A text and its coordinate in the L2-normalised embedding."""

    text: str
    coordinate: float


@dataclass(frozen=True)
class Spread:
    """The coordinates of L2-normalised rows over texts; arrays are [n] for n dimensions."""

    texts: int  # how many texts have a known word
    blank: int  # how many have no known word; they count nowhere else
    firing: Floats  # share of the texts that a dimension fires on
    mean: Floats
    deviation: Floats
    low: Floats
    high: Floats
    shares: Floats  # mean share of the embedding (squared coordinate); they add up to 1
    common: Floats  # what a dimension gives to the mean score of two different texts; they add up to that score
    sample: Any  # unit rows [texts of the sample, n] of texts drawn at random, dense float32 or CSR
    # for each dimension asked for, the texts with the largest coordinates, best first
    highest: dict[int, tuple[Example, ...]]
    lowest: dict[int, tuple[Example, ...]]  # the same for the smallest coordinates

    @property
    def even_share(self) -> float:
        """The size of a coordinate at which a dimension fires, 1 / sqrt(n)."""
        return float(len(self.mean) ** -0.5)

    @property
    def quiet(self) -> npt.NDArray[np.bool_]:
        """Which dimensions vary no more than an even share: those that never fire may still separate texts."""
        variance = self.deviation**2
        below: npt.NDArray[np.bool_] = variance <= variance.mean() * (1 + 1e-6)
        return below

    @property
    def flat(self) -> npt.NDArray[np.bool_]:
        """Which dimensions are the same for all texts: their deviation is below 1 % of an even share."""
        below: npt.NDArray[np.bool_] = self.deviation < _FLAT * self.even_share
        return below


def spread(
    model: Embedder, texts: Iterable[str], *, examples: int = 0, of: Iterable[int] = (), seed: int = 0
) -> Spread:
    """Measure the coordinates of `texts`, read once; `examples` are kept of the dimensions with the numbers `of`."""
    tally = _CoordinateTally(model.get_embedding_dimension(), sorted(set(of)), examples, seed)
    for block, rows in unit_blocks(model, texts):
        tally.add(block, rows)
    return tally.result()


def unit_blocks(model: Embedder, texts: Iterable[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield blocks of texts and their embeddings at length 1, float32 or CSR [texts, n]; unknown texts are zero."""
    texts, done = iterate_texts(texts), 0
    with Progress("encoding") as progress:
        while block := check_texts(islice(texts, _BLOCK), first=done):
            rows = model.encode(block)
            if not np.isfinite(rows.data if hasattr(rows, "tocsr") else rows).all():
                raise InputError(
                    f"the model gives a number that is not finite for one of texts {done} to {done + len(block) - 1}"
                )
            yield block, unit_rows(rows)
            done += len(block)
            progress.advance(len(block))


def column_chunks(rows: Any) -> Iterator[tuple[slice, Floats]]:
    """Yield the columns of dense or CSR `rows`, some at a time, as dense float64 [rows, columns]."""
    columns = rows.tocsc() if hasattr(rows, "tocsr") else rows
    for start in range(0, rows.shape[1], _COLUMNS):
        part = columns[:, start : start + _COLUMNS]
        dense = part.toarray() if hasattr(part, "toarray") else part
        yield slice(start, start + dense.shape[1]), dense.astype(np.float64)


def known_rows(rows: Any) -> npt.NDArray[np.bool_]:
    """Say which rows are not zero."""
    if hasattr(rows, "tocsr"):
        known: npt.NDArray[np.bool_] = np.diff(rows.indptr) > 0
        return known
    found: npt.NDArray[np.bool_] = rows.any(axis=1)
    return found


def correlations(sample: Any) -> Iterator[tuple[slice, Floats]]:
    """Yield the correlations of a slice of dimensions to all, [slice, n]; 0 of constant ones and of each to itself."""
    count, width = sample.shape
    sparse = hasattr(sample, "tocsr")
    mean, deviation = np.empty(width), np.empty(width)
    for where, part in column_chunks(sample):
        mean[where], deviation[where] = part.mean(axis=0), part.std(axis=0)
    moving = deviation > _FLAT * width**-0.5
    scale = np.divide(1.0, deviation, out=np.zeros(width), where=moving)
    centred = sample if sparse else sample - mean.astype(np.float32)
    columns = sample.tocsc() if sparse else centred
    for start in range(0, width, _COLUMNS):
        where = slice(start, min(start + _COLUMNS, width))
        product = columns[:, where].T @ centred
        together = np.asarray(product.toarray() if sparse else product, np.float64) / count
        if sparse:
            together -= np.outer(mean[where], mean)
        together *= np.outer(scale[where], scale)
        together[np.arange(where.stop - start), np.arange(start, where.stop)] = 0.0
        yield where, np.clip(together, -1.0, 1.0)


def average_ranks(values: npt.ArrayLike) -> Floats:
    """Return the rank of each number of a list, from 1 up; equal numbers share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last: Integers = np.cumsum(counts)
    ranks: Floats = last[which] - (counts[which] - 1) / 2
    return ranks


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float | None:
    """Return Spearman's rank correlation of two lists of numbers, None where one of them has a single value."""
    ranks = [average_ranks(values) for values in (first, second)]
    if min(np.ptp(rank) for rank in ranks) == 0:
        return None
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


class _CoordinateTally:
    """Sums over the texts that were read so far."""

    def __init__(self, width: int, of: list[int], examples: int, seed: int) -> None:
        self.width, self.of = width, np.array(of, np.int64)
        self.texts = self.blank = 0
        self.fired, self.total, self.squares = (np.zeros(width) for _ in range(3))
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.sample = _Sample(min(_SAMPLE, max(_CELLS // width, 1_000)), seed)
        self.highest, self.lowest = (_Extremes(len(of), examples, sign) for sign in (1, -1))

    def add(self, texts: list[str], rows: Any) -> None:
        """Count a block."""
        known = np.flatnonzero(known_rows(rows))
        self.blank += len(texts) - len(known)
        if not len(known):
            return
        rows = rows[known]
        block = [texts[number] for number in known.tolist()]
        for where, part in column_chunks(rows):
            self.fired[where] += (part**2 > (1 + 1e-6) / self.width).sum(axis=0)  # rounding aside
            self.total[where] += part.sum(axis=0)
            self.squares[where] += (part**2).sum(axis=0)
            self.low[where] = np.minimum(self.low[where], part.min(axis=0))
            self.high[where] = np.maximum(self.high[where], part.max(axis=0))
            chosen = np.flatnonzero((self.of >= where.start) & (self.of < where.stop))
            if len(chosen):
                values = part[:, self.of[chosen] - where.start]
                self.highest.add(chosen, values, self.texts)
                self.lowest.add(chosen, values, self.texts)
        for extremes in (self.highest, self.lowest):
            extremes.keep_texts(block, self.texts)
        self.sample.add(rows)
        self.texts += len(known)

    def result(self) -> Spread:
        """Return what was counted."""
        if self.texts < 2:
            given = f"{self.texts + self.blank:,} given, {self.blank:,} without"
            raise InputError(f"at least two texts with a known word are needed ({given})")
        count = self.texts
        mean, squares = self.total / count, self.squares / count
        return Spread(
            texts=count,
            blank=self.blank,
            firing=self.fired / count,
            mean=mean,
            deviation=np.sqrt(np.maximum(squares - mean**2, 0.0)),
            low=self.low,
            high=self.high,
            shares=squares,
            common=(self.total**2 - self.squares) / (count * (count - 1)),
            sample=self.sample.rows(),
            highest=dict(zip(self.of.tolist(), self.highest.examples(), strict=True)),
            lowest=dict(zip(self.of.tolist(), self.lowest.examples(), strict=True)),
        )


class _Sample:
    """Rows drawn at random from a stream of unknown length: those with the smallest random numbers."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.random = most, np.random.default_rng(seed)
        self.blocks: list[Any] = []
        self.draws: list[Floats] = []

    def add(self, rows: Any) -> None:
        """Draw a number for each row of a block; drop rows once twice too many are held."""
        self.blocks.append(rows)
        self.draws.append(self.random.random(rows.shape[0]))
        if sum(map(len, self.draws)) > 2 * self.most:
            self.rows()

    def rows(self) -> Any:
        """Return the rows drawn so far."""
        draws, rows = np.concatenate(self.draws), stacked(self.blocks)
        if len(draws) > self.most:
            kept = np.sort(np.argpartition(draws, self.most)[: self.most])
            draws, rows = draws[kept], rows[kept]
        self.draws, self.blocks = [draws], [rows]
        return rows


class _Extremes:
    """The texts with the largest (`sign` 1) or smallest (-1) coordinates in some dimensions."""

    def __init__(self, dimensions: int, most: int, sign: int) -> None:
        self.most, self.sign = most, sign
        kept = most * _SPARE
        self.values = np.full((kept, dimensions), -np.inf)
        self.numbers: Integers = np.full((kept, dimensions), -1)
        self.texts: dict[int, str] = {}

    def add(self, columns: Integers, values: Floats, first: int) -> None:
        """Take in coordinates [texts, columns] of texts whose numbers begin with `first`."""
        kept = len(self.values)
        if not kept:
            return
        numbers = np.broadcast_to(np.arange(first, first + len(values))[:, None], values.shape)
        if len(values) > kept:  # a block holds thousands
            best = np.argpartition(np.ascontiguousarray(values.T) * -self.sign, kept, axis=1)[:, :kept].T
            values, numbers = np.take_along_axis(values, best, 0), np.take_along_axis(numbers, best, 0)
        values = np.concatenate([self.values[:, columns], self.sign * values])
        numbers = np.concatenate([self.numbers[:, columns], numbers])
        order = np.lexsort((numbers, -values), axis=0)[:kept]
        self.values[:, columns] = np.take_along_axis(values, order, 0)
        self.numbers[:, columns] = np.take_along_axis(numbers, order, 0)

    def keep_texts(self, block: list[str], first: int) -> None:
        """Hold the texts that are among the extremes."""
        held = np.unique(self.numbers).tolist()
        self.texts = {n: self.texts[n] if n < first else block[n - first] for n in held if n >= 0}

    def examples(self) -> Iterator[tuple[Example, ...]]:
        """Yield for each dimension its distinct texts with a coordinate of the right sign, strongest first."""
        for values, places in zip(self.values.T.tolist(), self.numbers.T.tolist(), strict=True):
            best: dict[str, float] = {}
            for value, number in zip(values, places, strict=True):
                if number >= 0 and value > 0:
                    best.setdefault(self.texts[number], self.sign * value)
            yield tuple(Example(text, value) for text, value in list(best.items())[: self.most])


_SHOWN = 15  # rows in a view


class Frequency(NamedTuple):
    """How often one dimension fires."""

    name: str
    texts: int  # how many texts it fires on
    rate: float  # the same as a share of all
    idf: float  # log((N + 1) / (texts + 1)) for N texts: 0 where it fires on all of them


@dataclass(frozen=True, repr=False)
class Frequencies(Report):
    """How often the dimensions of a model fire over a corpus."""

    kind: ClassVar[str] = "frequencies"
    table: ClassVar[str] = "measured"

    family: str
    texts: int  # the number of texts, N
    blank: int  # how many more have no known word
    measured: tuple[Frequency, ...]  # every dimension in order

    def factors(self, strength: float = 1.0) -> dict[Which, float]:
        """Return for each dimension idf ** `strength` over the mean of them, so that the factors have mean 1.

        Args:
            strength: 0 gives 1 everywhere, 1 the idf itself. A dimension's part in a score grows with the square of its
                factor: 0.5 multiplies it by the idf once, 1 twice, as a cosine of tf-idf vectors does.

        Raises:
            InputError: `strength` is negative or so large that the factors leave the numbers.
        """
        if not 0 <= strength < math.inf:
            raise InputError(f"strength is {strength!r:.40}; it must be 0 or more")
        with np.errstate(over="ignore"):
            weights = np.array([item.idf for item in self.measured]) ** strength
        mean = float(weights.mean())
        if not 0 < mean < math.inf:
            raise InputError(
                f"idf to the power of {strength} has mean {mean} over the dimensions; take a smaller strength"
            )
        return dict(zip((item.name for item in self.measured), (weights / mean).tolist(), strict=True))

    def weighted(self, model: Embedder, strength: float = 0.5) -> Embedder:
        """Return `model` with each dimension scaled by its factor; one that fires on all texts gets 0."""
        return model.scale(self.factors(strength))

    def common(self, above: float) -> list[str]:
        """Return the dimensions that fire on more than the share `above` of the texts, the commonest first."""
        if not 0 <= above <= 1:
            raise InputError(f"above is {above!r:.40}; it is a share of the texts, between 0 and 1")
        return [item.name for item in self._by_rate() if item.rate > above]

    def pruned(self, model: Embedder, above: float) -> Embedder:
        """Return `model` without its `common` dimensions; some must be left."""
        gone = self.common(above)
        return model.without(*gone) if gone else model

    def _by_rate(self) -> list[Frequency]:
        return sorted(self.measured, key=lambda item: (-item.texts, item.name))

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Frequencies", counted(len(self.measured), "dimension"), f"{self.family} model")
        blank = f" and {self.blank:,} more without a known word" if self.blank else ""
        median = float(np.median([item.rate for item in self.measured]))
        never = sum(not item.texts for item in self.measured)
        yield Note(
            f"Over {counted(self.texts, 'text')}{blank}. Half of them fire on {percent(median)} of the texts or fewer; "
            f"{never:,} on none."
        )
        shown = self._by_rate()[:_SHOWN]
        rows = ((i.name, f"{i.texts:,}", percent(i.rate), i.rate, f"{i.idf:.2f}") for i in shown)
        columns = ["dimension", *numbers("texts", "of all"), ("", "bar"), *numbers("idf")]
        yield TablePart.of("commonest", columns, rows)


def document_frequencies(model: Embedder, texts: Iterable[str]) -> Frequencies:
    """Count on how many of `texts` each dimension of `model` fires.

    Args:
        model: any family; the counts say most about sparse ones.
        texts: a corpus like the texts the model is for, read once and in blocks.

    Raises:
        InputError: the model knows fewer than two of the texts, or an item is not a string.
    """
    found = spread(model, texts)
    counts = np.rint(found.firing * found.texts).astype(int).tolist()
    rows = (
        Frequency(name, count, count / found.texts, math.log((found.texts + 1) / (count + 1)))
        for name, count in zip(model.dimensions.names, counts, strict=True)
    )
    return Frequencies(model.family, found.texts, found.blank, tuple(rows))
