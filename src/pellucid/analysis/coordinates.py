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

from pellucid.core.arrays import l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_number, check_seed, shown
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent
from pellucid.explain.views.report import Report
from pellucid.progress import Progress
from pellucid.text.inputs import check_texts, iterate_texts

if TYPE_CHECKING:
    from pellucid.core.dimensions import Which


_BLOCK_TEXTS = 4_096
_CHUNK_COLUMNS = 256  # made dense at a time: 8 MB a block
_MAX_SAMPLE_ROWS = 20_000  # the standard error of a correlation of 0.95 is then 0.001
_MAX_SAMPLE_CELLS = 1 << 25  # of the sample, where rows are wide
_FLAT_RATIO = 0.01  # a standard deviation below this part of 1 / sqrt(n) is rounding
_CANDIDATES_PER_EXAMPLE = 3  # a corpus may repeat texts

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
    # for each requested dimension, the texts with the largest coordinates, best first
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
        below: npt.NDArray[np.bool_] = self.deviation < _FLAT_RATIO * self.even_share
        return below


def spread(
    model: Embedder, texts: Iterable[str], *, examples: int = 0, dimensions: Iterable[int] = (), seed: int = 0
) -> Spread:
    """Measure the coordinates of `texts`, read once; with `examples` texts for each of `dimensions` (indices)."""
    check_seed(seed)
    tally = _CoordinateTally(model.get_embedding_dimension(), sorted(set(dimensions)), examples, seed)
    for block, rows in unit_blocks(model, texts):
        tally.add(block, rows)
    return tally.result()


def check_model(model: object) -> None:
    """Check that an argument is a model."""
    if not isinstance(model, Embedder):
        raise InputError(
            f"model is {shown(model)} ({type(model).__name__}); give a model, such as pellucid.load('static-en'). "
            "pellucid.load also takes a SentenceTransformer, or a function that encodes texts"
        )


def unit_blocks(model: Embedder, texts: Iterable[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield blocks of texts and their embeddings at length 1, float32 or CSR [texts, n]; unknown texts are zero."""
    texts, done = iterate_texts(texts), 0
    with Progress("encoding") as progress:
        while block := check_texts(islice(texts, _BLOCK_TEXTS), first=done):
            rows = model.encode(block)
            if not np.isfinite(rows.data if hasattr(rows, "tocsr") else rows).all():
                raise InputError(
                    f"the model gives a number that is not finite for one of texts {done} to {done + len(block) - 1}"
                )
            yield block, l2_normalize(rows)
            done += len(block)
            progress.advance(len(block))


def column_chunks(rows: Any) -> Iterator[tuple[slice, Floats]]:
    """Yield the columns of dense or CSR `rows`, some at a time, as dense float64 [rows, columns]."""
    columns = rows.tocsc() if hasattr(rows, "tocsr") else rows
    for start in range(0, rows.shape[1], _CHUNK_COLUMNS):
        part = columns[:, start : start + _CHUNK_COLUMNS]
        dense = part.toarray() if hasattr(part, "toarray") else part
        yield slice(start, start + dense.shape[1]), dense.astype(np.float64)


def known_rows(rows: Any) -> npt.NDArray[np.bool_]:
    """Say which rows are not zero."""
    if hasattr(rows, "tocsr"):
        is_known: npt.NDArray[np.bool_] = np.diff(rows.indptr) > 0
    else:
        is_known = rows.any(axis=1)
    return is_known


def correlations(sample: Any) -> Iterator[tuple[slice, Floats]]:
    """Yield the correlations of a slice of dimensions to all, [slice, n]; 0 of constant ones and of each to itself."""
    count, width = sample.shape
    sparse = hasattr(sample, "tocsr")
    mean, deviation = np.empty(width), np.empty(width)
    for where, part in column_chunks(sample):
        mean[where], deviation[where] = part.mean(axis=0), part.std(axis=0)
    moving = deviation > _FLAT_RATIO * width**-0.5
    scale = np.divide(1.0, deviation, out=np.zeros(width), where=moving)
    centred = sample if sparse else sample - mean.astype(np.float32)
    columns = sample.tocsc() if sparse else centred
    for start in range(0, width, _CHUNK_COLUMNS):
        where = slice(start, min(start + _CHUNK_COLUMNS, width))
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

    def __init__(self, n_dimensions: int, dimensions: list[int], examples: int, seed: int) -> None:
        self.n_dimensions, self.dimensions = n_dimensions, np.array(dimensions, np.int64)
        self.texts = self.blank = 0
        self.fired, self.total, self.squares = (np.zeros(n_dimensions) for _ in range(3))
        self.low, self.high = np.full(n_dimensions, np.inf), np.full(n_dimensions, -np.inf)
        self.sample = _Sample(min(_MAX_SAMPLE_ROWS, max(_MAX_SAMPLE_CELLS // n_dimensions, 1_000)), seed)
        self.highest, self.lowest = (_Extremes(len(dimensions), examples, sign) for sign in (1, -1))

    def add(self, texts: list[str], rows: Any) -> None:
        """Count a block."""
        indices = np.flatnonzero(known_rows(rows))
        self.blank += len(texts) - len(indices)
        if not len(indices):
            return
        rows = rows[indices]
        block = [texts[index] for index in indices.tolist()]
        for where, part in column_chunks(rows):
            self.fired[where] += (part**2 > (1 + 1e-6) / self.n_dimensions).sum(axis=0)  # more than rounding
            self.total[where] += part.sum(axis=0)
            self.squares[where] += (part**2).sum(axis=0)
            self.low[where] = np.minimum(self.low[where], part.min(axis=0))
            self.high[where] = np.maximum(self.high[where], part.max(axis=0))
            chosen = np.flatnonzero((self.dimensions >= where.start) & (self.dimensions < where.stop))
            if len(chosen):
                values = part[:, self.dimensions[chosen] - where.start]
                self.highest.add(chosen, values, self.texts)
                self.lowest.add(chosen, values, self.texts)
        for extremes in (self.highest, self.lowest):
            extremes.keep_texts(block, self.texts)
        self.sample.add(rows)
        self.texts += len(indices)

    def result(self) -> Spread:
        """Return what was counted."""
        if self.texts < 2:
            counts = f"{self.texts + self.blank:,} given, {self.blank:,} without"
            raise InputError(f"at least two texts with a known word are needed ({counts})")
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
            highest=dict(zip(self.dimensions.tolist(), self.highest.examples(), strict=True)),
            lowest=dict(zip(self.dimensions.tolist(), self.lowest.examples(), strict=True)),
        )


class _Sample:
    """Rows drawn at random from a stream of unknown length: those with the smallest random numbers."""

    def __init__(self, max_rows: int, seed: int) -> None:
        self.max_rows, self.random = max_rows, np.random.default_rng(seed)
        self.blocks: list[Any] = []
        self.draws: list[Floats] = []

    def add(self, rows: Any) -> None:
        """Draw a number for each row of a block; drop rows once there are twice too many."""
        self.blocks.append(rows)
        self.draws.append(self.random.random(rows.shape[0]))
        if sum(map(len, self.draws)) > 2 * self.max_rows:
            self.rows()

    def rows(self) -> Any:
        """Return the rows drawn so far."""
        draws, rows = np.concatenate(self.draws), vstack(self.blocks)
        if len(draws) > self.max_rows:
            selected = np.sort(np.argpartition(draws, self.max_rows)[: self.max_rows])
            draws, rows = draws[selected], rows[selected]
        self.draws, self.blocks = [draws], [rows]
        return rows


class _Extremes:
    """The texts with the largest (`sign` 1) or smallest (-1) coordinates in some dimensions."""

    def __init__(self, n_dimensions: int, n_examples: int, sign: int) -> None:
        self.n_examples, self.sign = n_examples, sign
        n_candidates = n_examples * _CANDIDATES_PER_EXAMPLE
        self.values = np.full((n_candidates, n_dimensions), -np.inf)
        self.text_ids: Integers = np.full((n_candidates, n_dimensions), -1)
        self.texts: dict[int, str] = {}

    def add(self, columns: Integers, values: Floats, first_id: int) -> None:
        """Take in coordinates [texts, columns] of texts whose ids begin with `first_id`."""
        n_candidates = len(self.values)
        if not n_candidates:
            return
        text_ids = np.broadcast_to(np.arange(first_id, first_id + len(values))[:, None], values.shape)
        if len(values) > n_candidates:  # a block holds thousands
            best = np.argpartition(np.ascontiguousarray(values.T) * -self.sign, n_candidates, axis=1)[
                :, :n_candidates
            ].T
            values, text_ids = np.take_along_axis(values, best, 0), np.take_along_axis(text_ids, best, 0)
        values = np.concatenate([self.values[:, columns], self.sign * values])
        text_ids = np.concatenate([self.text_ids[:, columns], text_ids])
        order = np.lexsort((text_ids, -values), axis=0)[:n_candidates]
        self.values[:, columns] = np.take_along_axis(values, order, 0)
        self.text_ids[:, columns] = np.take_along_axis(text_ids, order, 0)

    def keep_texts(self, block: list[str], first_id: int) -> None:
        """Keep the texts that are among the extremes."""
        text_ids = np.unique(self.text_ids).tolist()
        self.texts = {n: self.texts[n] if n < first_id else block[n - first_id] for n in text_ids if n >= 0}

    def examples(self) -> Iterator[tuple[Example, ...]]:
        """Yield for each dimension its distinct texts with a coordinate of the right sign, strongest first."""
        for values, text_ids in zip(self.values.T.tolist(), self.text_ids.T.tolist(), strict=True):
            best: dict[str, float] = {}
            for value, text_id in zip(values, text_ids, strict=True):
                if text_id >= 0 and value > 0:
                    best.setdefault(self.texts[text_id], self.sign * value)
            yield tuple(Example(text, value) for text, value in list(best.items())[: self.n_examples])


_N_SHOWN_ROWS = 15  # rows in a view


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
        check_number("strength", strength, least=0)
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
        check_number("above", above, least=0, most=1)
        return [item.name for item in self._by_rate() if item.rate > above]

    def pruned(self, model: Embedder, above: float) -> Embedder:
        """Return `model` without its `common` dimensions; some must be left."""
        common = self.common(above)
        return model.without(*common) if common else model

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
        shown = self._by_rate()[:_N_SHOWN_ROWS]
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
    check_model(model)
    coordinates = spread(model, texts)
    counts = np.rint(coordinates.firing * coordinates.texts).astype(int).tolist()
    rows = (
        Frequency(name, count, count / coordinates.texts, math.log((coordinates.texts + 1) / (count + 1)))
        for name, count in zip(model.dimensions.names, counts, strict=True)
    )
    return Frequencies(model.family, coordinates.texts, coordinates.blank, tuple(rows))
