"""Several models on the same pairs of texts: what they score, whose order changes, and which rows make the change.

The models may be of any families: a model and its edited version, two families, two sizes. The first one is what the
others are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Floats, spearman
from pellucid.base import Embedder
from pellucid.errors import InputError
from pellucid.views.figure import Canvas, short_name
from pellucid.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.views.report import Report, frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pellucid.explanation import Explanation

_BLOCK = 4_096  # pairs
_MOST_POINTS = 20_000  # of a picture
_PLACES = 6  # decimals of a score that count for its rank; the others are rounding of float32

Pair = tuple[str, str]


def check_pairs(pairs: Iterable[Any]) -> list[Pair]:
    """Return `pairs` as a list of pairs of strings.

    Raises:
        InputError: there is none, or an item is not a pair of strings; the message gives its number.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise InputError(f"pairs must be an iterable of pairs of texts, got {pairs!r:.60}")
    checked: list[Pair] = []
    for number, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(f"pair {number} is {pair!r:.60}; every pair must be two texts")
        for text in pair:
            if not isinstance(text, str):
                raise InputError(f"pair {number} holds {text!r:.40} ({type(text).__name__}); texts are strings")
        checked.append((pair[0], pair[1]))
    if not checked:
        raise InputError("no pairs of texts are given")
    return checked


def pair_scores(model: Embedder, pairs: Sequence[Pair]) -> Floats:
    """Return the cosine of each pair of texts, float64 [pairs]; 0 where the model knows nothing of a text."""
    scores = np.empty(len(pairs))
    for start in range(0, len(pairs), _BLOCK):
        block = pairs[start : start + _BLOCK]
        firsts, seconds = (model.encode([pair[side] for pair in block]) for side in (0, 1))
        scores[start : start + len(block)] = model.similarity_pairwise(firsts, seconds)
    return scores


class Change(NamedTuple):
    """How a model's scores differ from the first model's, over all pairs of texts.

    Attributes:
        name: of the model.
        mean_change: mean size of the difference.
        largest_change: the largest difference in size, with its sign.
        rank_correlation: Spearman's; None where a model gives one score to all pairs.
        flips: how many pairs of text pairs the two models order the other way round.
        flip_rate: flips over all pairs of text pairs.
    """

    name: str
    mean_change: float
    largest_change: float
    rank_correlation: float | None
    flips: int
    flip_rate: float


class RowChange(NamedTuple):
    """A row of the explanations of one pair: what it adds in the first model and in the other; None where absent."""

    name: str
    before: float | None
    after: float | None


class ChangedPair(NamedTuple):
    """A pair of texts whose score changed much.

    Attributes:
        text1: the first text.
        text2: the second.
        scores: of every model, in order.
        gold: the score it should have, None where none was given.
        model: number of the model whose score is furthest from the first one's.
        change: how far, with its sign.
        rows: the rows that changed most between the first model and that one. Where the two are of different families,
            no row is in both, and these are the largest of each.
    """

    text1: str
    text2: str
    scores: tuple[float, ...]
    gold: float | None
    model: int
    change: float
    rows: tuple[RowChange, ...]


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """Models side by side on pairs of texts.

    Attributes:
        names: of the models; the first is what the others are compared with.
        families: of the models.
        pairs: the pairs of texts.
        scores: for each pair the models' scores.
        gold: for each pair the score it should have; empty where none was given.
        mean_scores: of the models.
        gold_correlations: Spearman's with gold for each model; empty without gold.
        changes: one for each model but the first.
        changed: the pairs whose score changed most, with the rows that did.
    """

    kind: ClassVar[str] = "comparison"

    names: tuple[str, ...]
    families: tuple[str, ...]
    pairs: tuple[Pair, ...]
    scores: tuple[tuple[float, ...], ...]
    gold: tuple[float, ...]
    mean_scores: tuple[float, ...]
    gold_correlations: tuple[float | None, ...]
    changes: tuple[Change, ...]
    changed: tuple[ChangedPair, ...]

    def plot(self, *, dark: bool = False) -> Figure:
        """Return a matplotlib Figure: each pair's score by the first model against the others'."""
        scores = np.array(self.scores)[:: max(len(self.scores) // _MOST_POINTS, 1)]
        below = f"{counted(len(self.pairs), 'pair')} of texts; on the line nothing changed"
        canvas = Canvas((5.4, 5.2), "Scores side by side", below, dark=dark)
        several = len(self.names) > 2
        down = "score by the others" if several else short_name(self.names[1])
        axes, colours = canvas.panel(across=short_name(self.names[0]), down=down), canvas.colours
        low, high = float(scores.min()), float(scores.max())
        room = 0.04 * ((high - low) or 1.0)
        ends = low - room, high + room
        axes.plot(ends, ends, color=colours.ink, linewidth=0.8, zorder=1)
        size, alpha = (14, 0.6) if len(scores) < 500 else (6, 0.35)
        for number, label in enumerate(self.names[1:]):
            colour = colours.series[number % len(colours.series)]
            points = scores[:, 0], scores[:, number + 1]
            axes.scatter(*points, s=size, alpha=alpha, color=colour, linewidths=0, label=short_name(label))
        if several:
            canvas.legend(axes)
        axes.set(xlim=ends, ylim=ends, aspect="equal")
        return canvas.figure

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Comparison", f"{len(self.names)} models", f"on {counted(len(self.pairs), 'pair')} of texts")
        titles = ["model", "family", "mean score"] + ["gold \u03c1"] * bool(self.gold)
        titles += ["mean change", "largest", "\u03c1 to the first", "flips"]
        rows = []
        for number, name in enumerate(self.names):
            row = [name, self.families[number], signed(self.mean_scores[number])]
            row += [_correlation(self.gold_correlations[number])] if self.gold else []
            if number:
                change = self.changes[number - 1]
                row += [f"{change.mean_change:.4f}", signed(change.largest_change, 4)]
                row += [_correlation(change.rank_correlation), f"{change.flips:,} ({percent(change.flip_rate)})"]
            rows.append((*row, *[""] * (len(titles) - len(row))))
        yield TablePart.of("", [*titles[:2], *numbers(*titles[2:])], rows)
        if len(self.pairs) > 1:
            yield Note(
                "Changes are against the first model. Flips: pairs of text pairs that the model orders the other way."
            )
        for number, pair in enumerate(self.changed, 1):
            yield from self._changed(number, pair)

    def _changed(self, number: int, pair: ChangedPair) -> Iterator[AnyPart]:
        """Yield a changed pair: its texts and scores, and its rows."""
        places = _places([pair.change])
        scores = ", ".join(
            f"{name} {signed(score, places)}" for name, score in zip(self.names, pair.scores, strict=True)
        )
        gold = f", gold {pair.gold:g}" if pair.gold is not None else ""
        title = f"{number}. {signed(pair.change, places)} in {self.names[pair.model]}"
        texts = (("text 1", pair.text1), ("text 2", pair.text2), ("scores", scores + gold))
        yield TablePart.of(title, ["", ""], texts)
        if pair.rows:
            differences = [(row.after or 0.0) - (row.before or 0.0) for row in pair.rows]
            places = _places(differences)
            rows = (
                (signed(change, places), change, signed(row.before, places), signed(row.after, places), row.name)
                for change, row in zip(differences, pair.rows, strict=True)
            )
            yield TablePart.of("", [("change", "number"), ("", "bar"), *numbers("before", "after"), "row"], rows)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row a pair: text1, text2, the models' scores, gold where given.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        columns = ["text1", "text2", *self.names] + ["gold"] * bool(self.gold)
        rows = zip(*zip(*self.pairs), *zip(*self.scores), *[self.gold] * bool(self.gold))
        return frame(rows, columns)


def compare(
    models: Sequence[Embedder] | Mapping[str, Embedder],
    pairs: Iterable[Pair],
    *,
    names: Sequence[str] | None = None,
    gold: Sequence[float] | None = None,
    top_k: int = 5,
    rows: int = 5,
) -> Comparison:
    """Score the same pairs of texts with several models and say what differs.

    Args:
        models: two or more, of any families, or a mapping from names to them; the first is compared with the others.
        pairs: pairs of texts.
        names: one for each model; None takes the mapping's, or "model 1", "model 2", ...
        gold: the score each pair should have, on any scale; only its order counts.
        top_k: how many of the pairs that changed most to explain.
        rows: how many explanation rows to show of each.

    Raises:
        InputError: fewer than two models, names or gold of another length or names that are equal, no pairs, an item
            that is not a pair of texts, or `top_k` or `rows` below 0.
    """
    if isinstance(models, Mapping):
        names = list(models) if names is None else names
        models = list(models.values())
    if isinstance(models, Embedder) or len(models) < 2:
        raise InputError("compare needs at least two models, as a list or as a mapping from names to them")
    names = [f"model {n}" for n in range(1, len(models) + 1)] if names is None else list(names)
    if len(names) != len(models) or len(set(names)) != len(names):
        raise InputError(f"{len(models)} models need as many different names, got {names!r:.120}")
    pairs = check_pairs(pairs)
    goldens = np.array([] if gold is None else gold, np.float64)
    if gold is not None and (goldens.shape != (len(pairs),) or not np.isfinite(goldens).all()):
        raise InputError(f"gold must be {len(pairs)} finite numbers, one a pair, got shape {goldens.shape}")
    if top_k < 0 or rows < 0:
        raise InputError(f"top_k is {top_k} and rows {rows}; both must be at least 0")
    scores = np.stack([pair_scores(model, pairs) for model in models], axis=1)  # [pairs, models]
    ranked = np.round(scores, _PLACES)
    columns = range(1, len(models))
    return Comparison(
        names=tuple(names),
        families=tuple(model.family for model in models),
        pairs=tuple(pairs),
        scores=tuple(map(tuple, scores.tolist())),
        gold=tuple(goldens.tolist()),
        mean_scores=tuple(scores.mean(axis=0).tolist()),
        gold_correlations=tuple(spearman(goldens, column) for column in ranked.T) if len(goldens) else (),
        changes=tuple(_change(names[n], scores[:, n] - scores[:, 0], ranked[:, [0, n]]) for n in columns),
        changed=tuple(_most_changed(models, pairs, scores, goldens, (top_k, rows))),
    )


def _change(name: str, difference: Floats, ranked: Floats) -> Change:
    from scipy.stats import kendalltau

    before, after = ranked.T
    pairs = len(before) * (len(before) - 1) // 2
    tied = [_tied_pairs(column) for column in (before, after, ranked)]
    apart = pairs - tied[0] - tied[1] + tied[2]  # ordered by both
    tau = kendalltau(before, after).statistic if apart else 0.0
    agreement = float(np.nan_to_num(tau)) * np.sqrt(float(pairs - tied[0]) * float(pairs - tied[1]))
    flips = round((apart - agreement) / 2)  # tau-b's numerator is the pairs in the same order less those in the other
    largest = float(difference[np.abs(difference).argmax()])
    rate = flips / pairs if pairs else 0.0
    return Change(name, float(np.abs(difference).mean()), largest, spearman(before, after), flips, rate)


def _tied_pairs(values: Floats) -> int:
    """Count the pairs of equal values, or of equal rows."""
    counts = np.unique(values, axis=0, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _most_changed(
    models: Sequence[Embedder], pairs: list[Pair], scores: Floats, gold: Floats, most: tuple[int, int]
) -> Iterator[ChangedPair]:
    """Yield the pairs whose score changed most in any model; a change that is rounding is none."""
    difference = scores - scores[:, :1]
    size = np.abs(difference).max(axis=1)
    for number in np.argsort(-size, kind="stable")[: most[0]].tolist():
        if size[number] < 10**-_PLACES:
            return
        model = int(np.abs(difference[number]).argmax())
        before, after = (models[n].explain(*pairs[number]) for n in (0, model))
        golden = float(gold[number]) if len(gold) else None
        change, rows = float(difference[number, model]), tuple(_row_changes(before, after, most[1]))
        text1, text2 = pairs[number]
        yield ChangedPair(text1, text2, tuple(scores[number].tolist()), golden, model, change, rows)


def _row_changes(before: Explanation, after: Explanation, most: int) -> list[RowChange]:
    """Return the rows that differ most, or the largest of each where the families are different."""
    old, new = _by_name(before), _by_name(after)
    if before.family != after.family:
        gone = [RowChange(name, value, None) for name, value in list(old.items())[: most - most // 2]]
        return gone + [RowChange(name, None, value) for name, value in list(new.items())[: most // 2]]
    changes = [RowChange(name, old.get(name), new.get(name)) for name in {**old, **new}]
    return sorted(changes, key=lambda row: -abs((row.after or 0.0) - (row.before or 0.0)))[:most]


def _by_name(explanation: Explanation) -> dict[str, float]:
    """Return what the rows of each name add, and the remainder where there is one."""
    values: dict[str, float] = {}
    for row in explanation.rows:
        values[row.name] = values.get(row.name, 0.0) + row.contribution
    return values if explanation.exact else values | {"(remainder)": explanation.remainder}


def _places(values: Sequence[float]) -> int:
    """Return how many decimals show the largest of `values`."""
    largest = max(map(abs, values), default=0.0)
    return 3 if largest >= 0.01 else 4 if largest >= 0.001 else 5


def _correlation(value: float | None) -> str:
    return "\u2013" if value is None else f"{value:.4f}"
