"""How a model's coordinates are spread over many texts, and what else several analyses share.

Everything is measured on L2-normalised rows, and over the texts with a known word; of many texts, on 20,000 drawn at
random. A dimension *fires* on a text when it carries more than its even share of the embedding there: coordinate^2 >
|embedding|^2 / n for n dimensions. That needs no threshold for each family, and counts strongly negative coordinates.

Words that a model only guesses have no vector of their own: a static model may read "Latisha" and "Lakisha" alike, as
"la". No analysis counts what such a word seems to say, and each names them: `guessed_words` and `guesses_note`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_seed, shown
from pellucid.explain.views.parts import listed
from pellucid.progress import Progress
from pellucid.text.inputs import check_texts, iterate_texts
from pellucid.text.unicode import canonicalize, lowercase

_BLOCK_TEXTS = 4_096
_CHUNK_COLUMNS = 256  # made dense at a time: 8 MB a block
_MAX_SAMPLE_ROWS = 20_000  # the standard error of a correlation of 0.95 is then 0.001
_MAX_SAMPLE_CELLS = 1 << 25  # of the sample, where rows are wide
_FLAT_RATIO = 0.01  # a standard deviation below this part of 1 / sqrt(n) is rounding
_EPS = 1e-9  # a length below this is rounding

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Example(NamedTuple):
    """A text and its coordinate in the L2-normalised embedding."""

    text: str
    coordinate: float


@dataclass(frozen=True)
class Spread:
    """The coordinates of L2-normalised rows over texts; arrays are [n] for n dimensions."""

    texts: int  # how many texts have a known word, of those that were measured
    blank: int  # how many have no known word; they count nowhere else
    firing: Floats  # share of the texts that a dimension fires on
    mean: Floats
    deviation: Floats
    shares: Floats  # mean share of the embedding (squared coordinate); they add up to 1
    common: Floats  # what a dimension gives to the mean score of two different texts; they add up to that score
    sample: Any  # unit rows [texts, n], dense float32 or CSC
    sample_texts: Sequence[str]

    @property
    def quiet(self) -> npt.NDArray[np.bool_]:
        """Which dimensions vary no more than an even share: those that never fire may still separate texts."""
        variance = self.deviation**2
        return np.asarray(variance <= variance.mean() * (1 + 1e-6))

    @property
    def flat(self) -> npt.NDArray[np.bool_]:
        """Which dimensions are the same for all texts: their deviation is below 1 % of an even share, 1 / sqrt(n)."""
        return np.asarray(self.deviation < _FLAT_RATIO * len(self.mean) ** -0.5)

    def examples(self, dimension: int, count: int, sign: int = 1) -> tuple[Example, ...]:
        """Return the distinct texts with the largest coordinates above 0; of sign -1 the smallest below 0."""
        column = self.sample[:, [dimension]]
        values = sign * np.asarray(column.toarray() if hasattr(column, "toarray") else column, np.float64).ravel()
        strongest: dict[str, float] = {}
        for index in np.argsort(-values, kind="stable").tolist():
            if values[index] <= 0 or len(strongest) == count:
                break
            strongest.setdefault(self.sample_texts[index], float(sign * values[index]))
        return tuple(Example(text, value) for text, value in strongest.items())


def spread(model: Embedder, texts: Iterable[str], seed: int = 0) -> Spread:
    """Measure the coordinates of texts, read once; of more than the sample holds, those drawn at random.

    Raises:
        InputError: the model knows fewer than two of the texts.
    """
    check_seed(seed)
    n = model.get_embedding_dimension()
    max_rows = min(_MAX_SAMPLE_ROWS, max(_MAX_SAMPLE_CELLS // n, 1_000))
    random, n_blank = np.random.default_rng(seed), 0
    draws, sample_texts, blocks = np.zeros(0), list[str](), list[Any]()
    for block, rows in unit_blocks(model, texts):
        indices = np.flatnonzero(known_rows(rows))
        n_blank += len(block) - len(indices)
        draws = np.append(draws, random.random(len(indices)))
        sample_texts += [block[index] for index in indices.tolist()]
        blocks.append(rows[indices])
        if len(draws) > max_rows:
            selected = np.sort(np.argpartition(draws, max_rows)[:max_rows])
            draws, blocks = draws[selected], [vstack(blocks)[selected]]
            sample_texts = [sample_texts[index] for index in selected.tolist()]
    n_texts = len(draws)
    if n_texts < 2:
        counts = f"{n_texts + n_blank:,} given, {n_blank:,} without"
        raise InputError(f"at least two texts with a known word are needed ({counts})")
    sample = vstack(blocks)
    sample = sample.tocsc() if hasattr(sample, "tocsc") else sample
    firing, mean, deviation, shares = (np.zeros(n) for _ in range(4))
    for where, part in column_chunks(sample):
        squares = part**2
        firing[where] = (squares > (1 + 1e-6) / n).mean(axis=0)  # more than rounding
        mean[where], deviation[where], shares[where] = part.mean(axis=0), part.std(axis=0), squares.mean(axis=0)
    common = (n_texts * mean**2 - shares) / (n_texts - 1)
    return Spread(n_texts, n_blank, firing, mean, deviation, shares, common, sample, sample_texts)


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


def guessed_words(model: Embedder, texts: Sequence[str]) -> list[list[str]]:
    """Return for each text its distinct words without a vector of their own, in lower case.

    These are words that the model does not know, and those that it reads as something else, such as their first
    letters. Numbers are none of them: analyses compare these as they are written.
    """
    guesses: list[list[str]] = [[] for _ in texts]
    uncertain = np.flatnonzero(np.atleast_1d(model.coverage(list(texts))) < 1.0).tolist() if texts else []
    for index, (coverage, gaps) in zip(uncertain, model.coverage_and_gaps([texts[index] for index in uncertain])):
        words = [*(texts[index][start:end] for start, end in gaps), *(word for word, _ in coverage.read_as)]
        normalized = dict.fromkeys(lowercase(canonicalize(word)) for word in words)
        guesses[index] = [word for word in normalized if any(map(str.isalpha, word))]
    return guesses


def guesses_note(words: Sequence[str], effect: str) -> str:
    """Return the sentence by which a result names guessed words, and what follows for it."""
    return f"Words without a vector of their own, which the model only guesses: {listed(words)}. {effect}."


def column_chunks(rows: Any) -> Iterator[tuple[slice, Floats]]:
    """Yield the columns of dense or CSR `rows`, some at a time, as dense float64 [rows, columns]."""
    columns = rows.tocsc() if hasattr(rows, "tocsr") else rows
    for start in range(0, rows.shape[1], _CHUNK_COLUMNS):
        part = columns[:, start : start + _CHUNK_COLUMNS]
        dense = part.toarray() if hasattr(part, "toarray") else part
        yield slice(start, start + dense.shape[1]), dense.astype(np.float64)


def known_rows(rows: Any) -> npt.NDArray[np.bool_]:
    """Say which rows are not zero."""
    return np.asarray(np.diff(rows.indptr) > 0 if hasattr(rows, "tocsr") else rows.any(axis=1))


def correlations(measured: Spread) -> Iterator[tuple[slice, Floats]]:
    """Yield the correlations of a slice of dimensions to all, [slice, n]; 0 of constant ones and of each to itself."""
    sample, width = measured.sample, len(measured.mean)
    is_sparse = hasattr(sample, "tocsr")
    scale = np.divide(1.0, measured.deviation, out=np.zeros(width), where=~measured.flat)
    centred = sample if is_sparse else sample - measured.mean.astype(np.float32)
    for start in range(0, width, _CHUNK_COLUMNS):
        where = slice(start, min(start + _CHUNK_COLUMNS, width))
        product = centred[:, where].T @ centred
        together = np.asarray(product.toarray() if is_sparse else product, np.float64) / measured.texts
        if is_sparse:
            together -= np.outer(measured.mean[where], measured.mean)
        together *= np.outer(scale[where], scale)
        together[np.arange(where.stop - start), np.arange(start, where.stop)] = 0.0
        yield where, np.clip(together, -1.0, 1.0)


def cosines_along(rows: Any, direction: Floats) -> Floats:
    """Return the cosine of each unit row to `direction`; 0 where its length is rounding."""
    length = float(np.linalg.norm(direction))
    if length <= _EPS:
        return np.zeros(rows.shape[0])
    return np.asarray(rows @ (direction / length), np.float64).ravel()


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float | None:
    """Return Spearman's rank correlation of two lists of numbers, None where one of them has a single value."""
    ranks = []
    for values in (first, second):
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append(np.cumsum(counts)[which] - (counts[which] - 1) / 2)  # equal numbers share the mean of their ranks
    if min(np.ptp(rank) for rank in ranks) == 0:
        return None
    return float(np.asarray(np.corrcoef(ranks))[0, 1])
