"""One static model's vectors mapped into another's space, and the merged vocabularies of two models.

The map is fitted on the words that both have: ridge regression or a rotation (Procrustes). Directions and lengths are
fitted apart. A map fitted to whole vectors draws every length towards the mean, and the length of a word is its weight
in a sentence. The fit is measured on held-out words.

The other way to combine static models, tables next to each other so that a score is the weighted mean of theirs, is
`EnsembleEmbedder.merged`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.coordinates import spearman
from pellucid.base import Vectors, unit_rows
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.text import Vocabulary
from pellucid.views.parts import AnyPart, Column, Heading, Note, TablePart, counted, percent, signed
from pellucid.views.report import Report

METHODS = ("least-squares", "procrustes")
SHARED = ("mean", "first")

_LEAST_PAIRS = 20
_POOR = 0.5  # mean cosine
_HELD_OUT, _MOST_HELD_OUT = 0.1, 2_000  # of the pairs, to measure the fit; as many again to choose the penalty
_PENALTIES = tuple(10.0**n for n in range(-6, 2))  # in units of the mean variance of the source
_OUTER = (1, 99)  # percentiles of the lengths seen; predicted ones stay between them

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class FitQuality(NamedTuple):
    """How well a map works on words that it was not fitted on.

    Attributes:
        words: pairs it was fitted on in the end, the held-out ones among them.
        held_out: pairs it was measured on, before that.
        cosine: mean cosine of a mapped vector and the true one.
        first: share of held-out words whose mapped vector is nearest to their own, among all pairs' words.
        length_correlation: Spearman's, of mapped and true lengths; None where one side is constant.
    """

    words: int
    held_out: int
    cosine: float
    first: float
    length_correlation: float | None

    def parts(self) -> Iterator[AnyPart]:
        """Yield the numbers as parts of a report, with a warning where they are bad."""
        heads = tuple(Column(t, "number") for t in ("fitted on", "held out", "cosine", "found first", "lengths"))
        row = (f"{self.words:,}", f"{self.held_out:,}", f"{self.cosine:.3f}", percent(self.first),
               signed(self.length_correlation))  # fmt: skip
        yield TablePart("the map, on words held out", heads, (row,))
        if self.cosine < _POOR:
            yield Note("The map is poor: mapped words are only roughly where they belong. See what is nearest to them.")


@dataclass(frozen=True, repr=False)
class SpaceMap:
    """An affine map of directions, and one of the logarithm of lengths.

    Attributes:
        matrix: float64 [D, d].
        offset: float64 [d].
        length_weights: float64 [D + 1], for the direction and the logarithm of the length.
        length_offset: added to it.
        lengths: smallest and largest length that it gives.
    """

    matrix: Floats = field(repr=False)
    offset: Floats = field(repr=False)
    length_weights: Floats = field(repr=False)
    length_offset: float
    lengths: tuple[float, float]

    def __call__(self, rows: Vectors) -> Vectors:
        """Return vectors [n, D] in the other space, float32 [n, d]; a zero row stays zero."""
        units = unit_rows(rows, np.float64)
        directions = unit_rows(units @ self.matrix + self.offset, np.float64)
        logarithms = _length_features(rows) @ self.length_weights + self.length_offset
        lengths = np.exp(np.clip(logarithms, *np.log(self.lengths)))
        mapped: Vectors = (directions * lengths[:, None] * units.any(axis=1)[:, None]).astype(np.float32)
        return mapped


def fit_space(source: Vectors, target: Vectors, *, method: str = "least-squares") -> tuple[SpaceMap, FitQuality]:
    """Fit the map from `source` [n, D] to `target` [n, d], whose rows belong to the same words.

    Args:
        source: vectors to map from; pairs with a zero row are left out.
        target: vectors to map to.
        method: "least-squares", with a penalty that is chosen on a part of the pairs, or "procrustes", the orthogonal
            map, which changes no cosine of the source.

    Raises:
        InputError: the method is unknown, or there are too few pairs: fewer than 20, or for "procrustes" than D.
    """
    if method not in METHODS:
        raise InputError(f"method {method!r:.40} is unknown; it is {' or '.join(METHODS)}")
    paired = np.flatnonzero(source.any(axis=1) & target.any(axis=1))
    needed = max(_LEAST_PAIRS, source.shape[1] if method == "procrustes" else 0)
    if len(paired) < needed:
        raise InputError(f"{len(paired)} words to fit a map on, and at least {needed} are needed")
    source, target = source[paired], target[paired]
    order = np.random.default_rng(0).permutation(len(source))
    aside = min(max(int(len(order) * _HELD_OUT), 2), _MOST_HELD_OUT)
    test, choosing, rest = order[:aside], order[aside : 2 * aside], order[2 * aside :]
    penalties = _chosen(source, target, rest, choosing) if method == "least-squares" else (0.0, _PENALTIES[2])
    trial = _fitted(source[order[aside:]], target[order[aside:]], method, penalties)
    quality = _quality(trial(source[test]), target, test)
    return _fitted(source, target, method, penalties), quality


def _length_features(rows: Vectors) -> Floats:
    """Return the direction of each row and the logarithm of its length, [n, D + 1]."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    return np.column_stack([unit_rows(rows, np.float64), np.log(np.maximum(lengths, 1e-12))])


def _fitted(source: Vectors, target: Vectors, method: str, penalties: tuple[float, float]) -> SpaceMap:
    units, wanted = unit_rows(source, np.float64), unit_rows(target, np.float64)
    lengths = np.linalg.norm(target.astype(np.float64), axis=1)
    low, high = np.percentile(lengths, _OUTER).tolist()
    weights, shift = _ridge(_length_features(source), np.log(lengths)[:, None], [penalties[1]])[0]
    if method == "procrustes":
        left, _, right = np.linalg.svd(units.T @ wanted, full_matrices=False)
        matrix, offset = left @ right, np.zeros(target.shape[1])
    else:
        matrix, offset = _ridge(units, wanted, [penalties[0]])[0]
    return SpaceMap(matrix, offset, weights[:, 0], float(shift[0]), (low, high))


def _ridge(x: Floats, y: Floats, penalties: list[float]) -> list[tuple[Floats, Floats]]:
    """Return weights [D, d] and offset [d] of least squares for each penalty on the weights."""
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    centred = x - mean_x
    values, vectors = np.linalg.eigh(centred.T @ centred)
    values = np.maximum(values, 0.0)
    scale = float(values.mean()) or 1.0
    along = vectors.T @ (centred.T @ (y - mean_y))
    found = []
    for penalty in penalties:
        weights = vectors @ (along / (values + penalty * scale)[:, None])
        found.append((weights, mean_y - mean_x @ weights))
    return found


def _chosen(source: Vectors, target: Vectors, rest: Rows, choosing: Rows) -> tuple[float, float]:
    """Return the penalties for directions and for lengths that do best on the pairs `choosing`."""
    units, wanted = unit_rows(source, np.float64), unit_rows(target, np.float64)
    features = _length_features(source)
    logarithms = np.log(np.linalg.norm(target.astype(np.float64), axis=1))[:, None]
    cosines, misses = [], []
    for weights, offset in _ridge(units[rest], wanted[rest], list(_PENALTIES)):
        mapped = unit_rows(units[choosing] @ weights + offset, np.float64)
        cosines.append(float((mapped * wanted[choosing]).sum(axis=1).mean()))
    for weights, offset in _ridge(features[rest], logarithms[rest], list(_PENALTIES)):
        misses.append(float(np.square(features[choosing] @ weights + offset - logarithms[choosing]).mean()))
    return _PENALTIES[int(np.argmax(cosines))], _PENALTIES[int(np.argmin(misses))]


def _quality(mapped: Vectors, target: Vectors, test: Rows) -> FitQuality:
    directions, wanted = unit_rows(mapped), unit_rows(target)
    cosines = (directions * wanted[test]).sum(axis=1)
    nearest = np.array([int((wanted @ direction).argmax()) for direction in directions])
    lengths, true = (np.linalg.norm(rows, axis=1) for rows in (mapped, target[test]))
    correlation = None if len(test) < 3 else spearman(lengths, true)
    return FitQuality(len(target), len(test), float(cosines.mean()), float((nearest == test).mean()), correlation)


@dataclass(frozen=True, repr=False)
class Merging(Report):
    """How two static models became one.

    Attributes:
        words_first: words of the first.
        words_second: words of the second.
        shared: words of both.
        words: of the merged model.
        method: of the map.
        rule: what shared words got, the "mean" of both vectors or the "first".
        fit: the map on words held out.
    """

    kind: ClassVar[str] = "vocabulary-merging"

    words_first: int
    words_second: int
    shared: int
    words: int
    method: str
    rule: str
    fit: FitQuality

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Merged", counted(self.words, "word"), "static model")
        rule = "the mean of both vectors" if self.rule == "mean" else "the first model's vector"
        yield Note(
            f"{self.words_first:,} words of the first and {self.words_second:,} of the second, {self.shared:,} of them "
            f"shared; these have {rule}. The second is mapped onto the first ({self.method})."
        )
        yield from self.fit.parts()


def merge_vocabularies(
    first: StaticEmbedder,
    second: StaticEmbedder,
    *,
    method: str = "least-squares",
    shared: str = "mean",
) -> StaticEmbedder:
    """Return one static model with the words of two, in the space of the first; its `report` is a `Merging`.

    Args:
        first: whose space, dimensions and teacher's tokenizer stay.
        second: whose vectors are mapped onto the first's; it may have other dimensions.
        method: "least-squares" or "procrustes", a rotation, which leaves the second's cosines among its own words as
            they are (if it has no more dimensions than the first).
        shared: what words of both get: the "mean" of the two vectors, or the "first".

    Returns:
        A float32 model, the first's words in front.

    Raises:
        InputError: a model is not static, a choice is unknown, or too few words are shared to fit a map on.
    """
    for model in (first, second):
        static_model(model, "merging vocabularies")
    if shared not in SHARED or method not in METHODS:
        raise InputError(f"method {method!r:.40} or shared {shared!r:.40} is unknown; method is "
                         f"{' or '.join(METHODS)}, shared {' or '.join(SHARED)}")  # fmt: skip
    common = [word for word in second.vocabulary.words if word in first.vocabulary]
    width = second.get_embedding_dimension()
    if len(common) < max(_LEAST_PAIRS, width):
        starts = [", ".join(map(repr, model.vocabulary.words[:3])) for model in (first, second)]
        raise InputError(
            f"the models share {len(common):,} words, and a map of {width} dimensions needs at least "
            f"{max(_LEAST_PAIRS, width):,} (the first begins with {starts[0]}, the second with {starts[1]}); use "
            "models of one language and spelling, or combine them as an ensemble, which needs no shared word"
        )
    mine, theirs = ([model.vocabulary.row(word) for word in common] for model in (first, second))
    mapping, quality = fit_space(second.word_vectors(theirs), first.word_vectors(mine), method=method)
    mapped = mapping(second.word_vectors(np.arange(len(second.vocabulary))))
    table = first.word_vectors(np.arange(len(first.vocabulary)))
    if shared == "mean":
        table[mine] = (table[mine] + mapped[theirs]) / 2
    new = [row for row, word in enumerate(second.vocabulary.words) if word not in first.vocabulary]
    words = [*first.vocabulary.words, *(second.vocabulary.words[row] for row in new)]
    subwords = first.vocabulary.subwords or second.vocabulary.subwords
    made = StaticEmbedder(Vocabulary(words, subwords), np.vstack([table, mapped[new]]), dimensions=first.dimensions)
    sizes = (len(first.vocabulary), len(second.vocabulary), len(common), len(words))
    made.report = Merging(*sizes, method, shared, quality)
    return made
