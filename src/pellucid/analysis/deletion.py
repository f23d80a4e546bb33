"""Deletion test: how the score falls without the rows that an explanation puts first, and without random ones.

It shows that the score falls faster without the top rows than without as many chosen at random, and by how much. On
embeddings (`units="dimensions"`) it checks the arithmetic with the lengths recomputed, and how concentrated a score is.
On texts (`units="words"`) the model reads the shortened texts anew, so that the explanation is checked against the
model's behaviour.

It does not show that a dimension means what its name says, that a person would have given the same reasons, or that the
score was right. Random rows are a weak opponent: a passed test only rules out explanations that are no better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.comparing import Pair, check_pairs
from pellucid.analysis.coordinates import Floats, Integers, check_model
from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, check_choice, check_draws, check_integer, check_seed
from pellucid.explain.views.figure import Canvas
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.progress import Progress
from pellucid.text.unicode import lowercase, normalize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pellucid.explain.explanation import Explanation


UNITS = ("dimensions", "words")
_CURVE_KS = (1, 2, 5, 10, 20)
_BLOCK_PAIRS = 1_024
_MIN_SQUARED_LENGTH = 1e-6  # of an embedding's squared length; less counts as nothing left


class Interval(NamedTuple):
    """A mean over pairs of texts and its 95 % confidence interval (Student's t)."""

    mean: float
    low: float
    high: float


class Deletion(NamedTuple):
    """How far the score falls without `k` rows."""

    k: int  # how many, at most: a pair with fewer rows for its score loses those
    top: Interval  # fall of the score without the rows that contribute most
    random: Interval  # fall without as many at random
    difference: Interval  # the first less the second, pair by pair
    wins: float  # share of the pairs whose score falls more without the top rows


@dataclass(frozen=True, repr=False)
class DeletionTest(Report):
    """How the score falls without the rows that an explanation puts first, and without others."""

    kind: ClassVar[str] = "deletion"
    table: ClassVar[str] = "curve"

    family: str
    units: str  # "dimensions" or "words"
    pairs: int  # the number of pairs of texts
    skipped: int  # how many more had no row that raises the score
    top_k: int  # the k that `result` is about
    draws: int  # random deletions a pair and k
    seed: int  # of the random deletions
    mean_score: float  # mean score of the pairs with nothing taken away
    curve: tuple[Deletion, ...]  # the result for several k, in order

    @property
    def result(self) -> Deletion:
        """The point of the curve for `top_k`."""
        return next(point for point in self.curve if point.k == self.top_k)

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: the fall of the score over k, with 95 % intervals."""
        below = f"mean of {counted(self.pairs, 'pair')} with 95 % intervals; mean score {signed(self.mean_score)}"
        canvas = Canvas((6.4, 4.0), f"How the score falls without some {self.units}", below, dark=dark)
        axes, colours = canvas.panel(across=f"{self.units} taken away", down="fall of the score"), canvas.colours
        ks = [point.k for point in self.curve]
        lines = (("top", colours.adds, "those that contribute most"), ("random", colours.faint, "as many at random"))
        for kind, colour, label in lines:
            values = np.array([getattr(point, kind) for point in self.curve])
            axes.fill_between(ks, values[:, 1], values[:, 2], color=colour, alpha=0.22, linewidth=0)
            axes.plot(ks, values[:, 0], color=colour, marker="o", markersize=4, linewidth=1.6)
            axes.annotate(label, (ks[-1], values[-1, 0]), xytext=(-4, 8), textcoords="offset points", ha="right",
                          color=colour, fontsize=9)  # fmt: skip
        axes.axhline(0.0, color=colours.ink, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        axes.margins(y=0.18)
        if min(min(point.top.low, point.random.low) for point in self.curve) >= 0:
            axes.set_ylim(bottom=0.0)
        return canvas.figure

    def _parts(self) -> Iterator[AnyPart]:
        point = self.result
        yield Heading("Deletion test", f"top {point.k} {self.units}", f"{self.family} model")
        yield Note(
            f"{counted(self.pairs, 'pair')} with a mean score of {signed(self.mean_score)}. Without the {self.units} "
            f"that contribute most it falls by {_unsigned(point.top.mean)}, without as many at random by "
            f"{_unsigned(point.random.mean)}, and more without the former in {percent(point.wins)} of the pairs."
        )
        yield Note("Brackets hold 95 % confidence intervals of the mean fall.")
        if self.skipped:
            yield Note(f"{counted(self.skipped, 'pair')} left out: nothing raises the score.")
        rows = (
            (str(p.k), _interval(p.top), _interval(p.random), _interval(p.difference), percent(p.wins))
            for p in self.curve
        )
        yield TablePart.of("", numbers("k", "fall, top", "fall, random", "difference", "top falls more"), rows)


def deletion_test(
    model: Embedder,
    pairs: Iterable[Pair],
    *,
    units: str = "dimensions",
    top_k: int = 5,
    draws: int = 20,
    seed: int = 0,
) -> DeletionTest:
    """Compare the score of text pairs without their top rows to the score without random ones.

    Dimensions: the `top_k` with the largest positive contribution are set to 0 in both embeddings, what is left is
    L2-normalised and the cosine recomputed; against as many random dimensions that contribute anything, whatever their
    sign. Words, for families whose explanations have spans in the text: the `top_k` words of one text that contribute
    most are deleted at every occurrence, and the rest is encoded anew and compared with the other text as it was; then
    the same with the sides exchanged, and the mean of both. (Without its best words in both texts, a pair may stay as
    similar as before.) That encodes 2 x k's x `draws` texts a pair: a few hundred pairs are enough for a slow model.

    Args:
        model: any family.
        pairs: pairs of texts that are similar in varying degree, an STS set for instance.
        units: "dimensions" or "words".
        top_k: rows taken away in the result that is reported first; the curve adds 1, 2, 5, 10 and 20.
        draws: random deletions a pair and k.
        seed: of the random deletions.

    Raises:
        InputError: fewer than two pairs that have a row raising the score, an item is not a pair of strings, `draws`
            is not from 1 to 10,000, `top_k` is below 1 or above the number of dimensions, or the explanations have no
            words.
    """
    check_model(model)
    pairs = check_pairs(pairs)
    check_choice("units", units, UNITS)
    most = model.get_embedding_dimension() if units == "dimensions" else math.inf
    check_integer("top_k", top_k, most=most)
    check_draws(draws)
    check_seed(seed)
    ks = sorted({k for k in (*_CURVE_KS, top_k) if k < most or k == top_k})
    fall = _fall_of_embeddings if units == "dimensions" else _fall_of_texts
    random = np.random.default_rng(seed)
    done = [item for item in fall(model, pairs, ks, draws, random) if item is not None]
    if len(done) < 2:
        raise InputError(
            f"at least two pairs with {units} that raise the score are needed; {len(done)} of {len(pairs)}"
        )
    scores, tops, randoms = (np.array(column) for column in zip(*done, strict=True))
    curve = tuple(
        Deletion(
            k,
            confidence_interval(top),
            confidence_interval(chance),
            confidence_interval(top - chance),
            float((top > chance).mean()),
        )
        for k, top, chance in zip(ks, tops.T, randoms.T)
    )
    return DeletionTest(
        model.family, units, len(done), len(pairs) - len(done), top_k, draws, seed, float(scores.mean()), curve
    )


Falls = tuple[float, list[float], list[float]]
"""A pair's score, and for each k how much it falls without the top rows and, on average, without random ones."""


def _fall_of_embeddings(
    model: Embedder, pairs: list[Pair], ks: list[int], draws: int, random: np.random.Generator
) -> Iterator[Falls | None]:
    """Yield the falls of each pair, None where no dimension raises its score."""
    for start in range(0, len(pairs), _BLOCK_PAIRS):
        block = pairs[start : start + _BLOCK_PAIRS]
        rows = [l2_normalize(model.encode([pair[side] for pair in block])) for side in (0, 1)]
        for index in range(len(block)):
            pair = (side[[index]] for side in rows)
            first, second = (
                (row.toarray() if hasattr(row, "toarray") else row).ravel().astype(np.float64) for row in pair
            )
            yield _fall_of_rows(first, second, ks, draws, random)


def _fall_of_rows(
    first: Floats, second: Floats, ks: list[int], draws: int, random: np.random.Generator
) -> Falls | None:
    """Return the falls of one pair; an order of dimensions gives the result for every k by running sums."""
    components = first * second
    contributing = np.flatnonzero(components)
    order = contributing[np.argsort(-components[contributing], kind="stable")]
    raising = int((components > 0).sum())
    if not raising:
        return None
    counts = np.minimum(ks, raising)
    by_chance = random.permuted(np.broadcast_to(contributing, (draws, len(contributing))), axis=1)[:, : max(counts)]
    scores = _scores_without(np.vstack([order[: max(counts)], by_chance]), counts, first, second)
    score = float(components.sum())
    return score, (score - scores[0]).tolist(), (score - scores[1:].mean(axis=0)).tolist()


def _scores_without(orders: Integers, counts: Integers, first: Floats, second: Floats) -> Floats:
    """Return the cosine without the first `counts` dimensions of each order, [orders, counts]."""
    components, squares1, squares2 = (
        total.sum() - np.cumsum(total[orders], axis=1)[:, counts - 1]
        for total in (first * second, first * first, second * second)
    )
    left = (squares1 > _MIN_SQUARED_LENGTH) & (squares2 > _MIN_SQUARED_LENGTH)
    scores: Floats = np.divide(
        components, np.sqrt(np.where(left, squares1 * squares2, 1.0)), out=np.zeros_like(components), where=left
    )
    return scores


def _fall_of_texts(
    model: Embedder, pairs: list[Pair], ks: list[int], draws: int, random: np.random.Generator
) -> Iterator[Falls | None]:
    """Yield the falls of each pair, None where no word raises its score."""
    with Progress("deleting words", total=len(pairs), unit="pairs") as progress:
        for index, pair in enumerate(pairs):
            explanation = model.explain(*pair)
            if explanation.rows and not any(row.spans1 for row in explanation.rows):
                raise InputError(
                    f"the rows of the {model.family} family's explanations have no places in the text (pair {index}); "
                    'use units="dimensions"'
                )
            sides = []
            for side in (1, 2):
                words = _words(explanation, side)
                raising = sum(value > 0 for _, value in words)
                if not raising:
                    continue
                chances = [random.permutation(len(words)).tolist() for _ in range(draws)]
                shortened = [
                    _without(explanation.texts[side - 1], [words[n][0] for n in order[: min(k, raising)]])
                    for order in (list(range(len(words))), *chances)
                    for k in ks
                ]
                rows = model.encode([*shortened, explanation.texts[2 - side]])
                scores = model.similarity(rows[:-1], rows[[-1]]).astype(np.float64).reshape(-1, len(ks))
                falls = explanation.score - scores
                sides.append((falls[0], falls[1:].mean(axis=0)))
            progress.advance()
            if not sides:
                yield None
                continue
            tops, randoms = (np.mean(column, axis=0).tolist() for column in zip(*sides, strict=True))
            yield explanation.score, tops, randoms


def _words(explanation: Explanation, side: int) -> list[tuple[list[tuple[int, int]], float]]:
    """Return the spans and the contribution of each distinct word of a text that adds anything, the largest first."""
    occurrences: dict[str, list[tuple[tuple[int, int], float]]] = {}
    text = explanation.texts[side - 1]
    for (start, end), value in explanation.word_contributions(side).items():
        occurrences.setdefault(lowercase(normalize(text[start:end]).text), []).append(((start, end), value))
    words = [([span for span, _ in same], sum(value for _, value in same)) for same in occurrences.values()]
    return sorted((word for word in words if word[1]), key=lambda word: -word[1])


def _without(text: str, words: list[list[tuple[int, int]]]) -> str:
    """Return the text with a space instead of each of the words, given by their spans."""
    left = list(text)
    for start, end in (span for spans in words for span in spans):
        left[start:end] = [" "] + [""] * (end - start - 1)
    return "".join(left)


def confidence_interval(values: Floats) -> Interval:
    """Return the mean over pairs and its 95 % interval."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    reach = student_quantile(len(values) - 1) * error
    return Interval(mean, mean - reach, mean + reach)


def student_quantile(freedom: int, coverage: float = 0.95) -> float:
    """Return how far a share `coverage` of Student's t distribution reaches to either side."""
    angles, inside = _student(freedom)
    return float(np.sqrt(freedom) * np.tan(np.interp(coverage * inside[-1], inside, angles)))


@cache
def _student(freedom: int) -> tuple[Floats, Floats]:
    """Return angles, with t = sqrt(freedom) tan(angle), and the density added up to each."""
    angles = np.linspace(0, np.pi / 2, 1_000_001)
    density = np.cos(angles) ** (freedom - 1)
    return angles[1:], np.cumsum(density[1:] + density[:-1])


def _interval(interval: Interval) -> str:
    return f"{_unsigned(interval.mean)} [{_unsigned(interval.low)}, {_unsigned(interval.high)}]"


def _unsigned(value: float) -> str:
    """Write a number with a sign only where it is negative."""
    return signed(value).lstrip("+")
