"""Several models on the same pairs of texts: their scores, how the order changes, and which rows make the change.

The models may be of any families. The first one is what the others are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import Floats, guessed_words, guesses_note, spearman
from pellucid.core.embedder import Embedder
from pellucid.core.query import EncodedPair
from pellucid.errors import InputError, check_integer, shown
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, signed
from pellucid.explain.views.report import Report, frame

if TYPE_CHECKING:
    from pellucid.explain.explanation import Explanation

_RANK_DECIMALS = 6  # of a score that count for its rank; the rest is rounding of float32

Pair = tuple[str, str]


def check_pairs(pairs: Iterable[Any]) -> list[Pair]:
    """Return `pairs` as a list of pairs of strings, at least one."""
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise InputError(f"pairs must be an iterable of pairs of texts, got {shown(pairs)}")
    checked: list[Pair] = []
    for index, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(f"pair {index} is {shown(pair)}; every pair must be two texts")
        for text in pair:
            if not isinstance(text, str):
                raise InputError(f"pair {index} holds {shown(text)} ({type(text).__name__}); texts are strings")
        checked.append((pair[0], pair[1]))
    if not checked:
        raise InputError("no pairs of texts are given")
    return checked


class Change(NamedTuple):
    """How a model's scores differ from the first model's, over all pairs of texts."""

    name: str
    mean_change: float  # mean size of the difference
    largest_change: float  # the largest difference in size, with its sign
    rank_correlation: float | None  # Spearman's; None where a model gives one score to all pairs


class RowChange(NamedTuple):
    """A row of the explanations of one pair: what it adds in the first model and in the other; None where absent."""

    name: str
    before: float | None
    after: float | None


class ChangedPair(NamedTuple):
    """A pair of texts whose score changed much."""

    text1: str
    text2: str
    scores: tuple[float, ...]  # of every model, in order
    gold: float | None  # the score it should have, None where none was given
    model: int  # number of the model whose score is furthest from the first one's
    change: float  # how far, with its sign
    # those that changed most between the first model and that one; of different families the largest of each
    rows: tuple[RowChange, ...]


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """Models side by side on pairs of texts."""

    kind: ClassVar[str] = "comparison"

    names: tuple[str, ...]  # of the models; the first is what the others are compared with
    families: tuple[str, ...]  # of the models
    pairs: tuple[Pair, ...]
    scores: tuple[tuple[float, ...], ...]  # one line a pair, one number a model
    gold: tuple[float, ...]  # the score that each pair should have; empty where none was given
    mean_scores: tuple[float, ...]  # of the models
    gold_correlations: tuple[float | None, ...]  # Spearman's with gold for each model; empty without gold
    changes: tuple[Change, ...]  # one for each model but the first
    changed: tuple[ChangedPair, ...]  # the pairs whose score changed most, with the rows that did
    # for each model the words that it has no vector of their own for, of pairs whose texts differ by them
    guessed: tuple[tuple[str, ...], ...]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Comparison", f"{len(self.names)} models", f"on {counted(len(self.pairs), 'pair')} of texts")
        titles = ["model", "family", "mean score"] + ["gold \u03c1"] * bool(self.gold)
        titles += ["mean change", "largest", "\u03c1 to the first"]
        rows = []
        for index, name in enumerate(self.names):
            row = [name, self.families[index], signed(self.mean_scores[index])]
            row += [_correlation(self.gold_correlations[index])] if self.gold else []
            if index:
                change = self.changes[index - 1]
                row += [f"{change.mean_change:.4f}", signed(change.largest_change, 4)]
                row.append(_correlation(change.rank_correlation))
            rows.append((*row, *[""] * (len(titles) - len(row))))
        yield TablePart.of("", [(titles[0], "name"), titles[1], *numbers(*titles[2:])], rows)
        if len(self.pairs) > 1:
            yield Note("Changes are against the first model; \u03c1 is the rank correlation of the scores.")
        for name, words in zip(self.names, self.guessed, strict=True):
            if words:
                yield Note(guesses_note(words, f"Scores of {name} rest on guesses where texts differ by them"))
        for rank, pair in enumerate(self.changed, 1):
            yield from self._changed(rank, pair)

    def _changed(self, rank: int, pair: ChangedPair) -> Iterator[AnyPart]:
        """Yield a changed pair: its texts and scores, and its rows."""
        scores = ", ".join(f"{name} {signed(score, 4)}" for name, score in zip(self.names, pair.scores, strict=True))
        gold = f", gold {pair.gold:g}" if pair.gold is not None else ""
        title = f"{rank}. {signed(pair.change, 4)} in {self.names[pair.model]}"
        texts = (("text 1", pair.text1), ("text 2", pair.text2), ("scores", scores + gold))
        yield TablePart.of(title, ["", ""], texts)
        if pair.rows:
            differences = [(row.after or 0.0) - (row.before or 0.0) for row in pair.rows]
            rows = (
                (signed(change, 4), change, signed(row.before, 4), signed(row.after, 4), row.name)
                for change, row in zip(differences, pair.rows, strict=True)
            )
            yield TablePart.of(
                "", [("change", "number"), ("", "bar"), *numbers("before", "after"), ("row", "name")], rows
            )

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row a pair: text1, text2, the models' scores, gold where given."""
        columns = ["text1", "text2", *self.names] + ["gold"] * bool(self.gold)
        rows = zip(*zip(*self.pairs), *zip(*self.scores), *[self.gold] * bool(self.gold))
        return frame(rows, columns)


def compare(
    models: Sequence[Embedder] | Mapping[str, Embedder],
    pairs: Iterable[Pair],
    *,
    gold: Sequence[float] | None = None,
    top_k: int = 5,
    rows: int = 5,
) -> Comparison:
    """Score the same pairs of texts with several models and say what differs.

    Args:
        models: two or more, of any families, or a mapping from names to them; the first is compared with the others.
            Without a mapping they are called "model 1", "model 2", ...
        pairs: pairs of texts.
        gold: the score each pair should have, on any scale; only its order counts.
        top_k: how many of the pairs that changed most to explain.
        rows: how many explanation rows to show of each.

    Raises:
        InputError: fewer than two models, gold of another length, no pairs, an item that is not a pair of texts, or
            `top_k` or `rows` below 0.
    """
    if isinstance(models, (str, Embedder)) or not isinstance(models, Sized) or len(models) < 2:
        raise InputError("compare needs at least two models, as a list or as a mapping from names to them")
    if not isinstance(models, Mapping):
        models = {f"model {number}": model for number, model in enumerate(models, 1)}
    names, models = tuple(models), list(models.values())
    pairs = check_pairs(pairs)
    try:
        goldens = np.array([] if gold is None else gold, np.float64)
    except (TypeError, ValueError, OverflowError):
        goldens = np.array(math.nan)
    if gold is not None and (goldens.shape != (len(pairs),) or not np.isfinite(goldens).all()):
        raise InputError(f"gold is {shown(gold)}; give {len(pairs)} finite numbers, one a pair")
    check_integer("top_k", top_k, 0)
    check_integer("rows", rows, 0)
    scores = np.stack([EncodedPair(model, None, None).scores(pairs) for model in models], axis=1)  # [pairs, models]
    ranked = np.round(scores, _RANK_DECIMALS)
    columns = range(1, len(models))
    return Comparison(
        names=names,
        families=tuple(model.family for model in models),
        pairs=tuple(pairs),
        scores=tuple(map(tuple, scores.tolist())),
        gold=tuple(goldens.tolist()),
        mean_scores=tuple(scores.mean(axis=0).tolist()),
        gold_correlations=tuple(spearman(goldens, column) for column in ranked.T) if len(goldens) else (),
        changes=tuple(_change(names[n], scores[:, n] - scores[:, 0], ranked[:, [0, n]]) for n in columns),
        changed=tuple(_most_changed(models, pairs, scores, goldens, (top_k, rows))),
        guessed=tuple(tuple(_guessed_differences(model, pairs)) for model in models),
    )


def _change(name: str, difference: Floats, ranked: Floats) -> Change:
    largest = float(difference[np.abs(difference).argmax()])
    return Change(name, float(np.abs(difference).mean()), largest, spearman(*ranked.T))


def _guessed_differences(model: Embedder, pairs: list[Pair]) -> dict[str, None]:
    """Return the words that only one text of a pair holds, and the model has no vector of their own for."""
    first, second = (guessed_words(model, [pair[side] for pair in pairs]) for side in (0, 1))
    return {word: None for words1, words2 in zip(first, second) for word in sorted(set(words1) ^ set(words2))}


def _most_changed(
    models: Sequence[Embedder], pairs: list[Pair], scores: Floats, gold: Floats, most: tuple[int, int]
) -> Iterator[ChangedPair]:
    """Yield the pairs whose score changed most in any model, by more than rounding."""
    difference = scores - scores[:, :1]
    size = np.abs(difference).max(axis=1)
    for index in np.argsort(-size, kind="stable")[: most[0]].tolist():
        if size[index] < 10**-_RANK_DECIMALS:
            return
        model = int(np.abs(difference[index]).argmax())
        texts = list(pairs[index])
        before, after = (models[n].explain_queries(*models[n].analyze_texts(texts, [None, None])) for n in (0, model))
        golden = float(gold[index]) if len(gold) else None
        change, rows = float(difference[index, model]), tuple(_row_changes(before, after, most[1]))
        yield ChangedPair(texts[0], texts[1], tuple(scores[index].tolist()), golden, model, change, rows)


def _row_changes(before: Explanation, after: Explanation, most: int) -> list[RowChange]:
    """Return the rows that differ most, or the largest of each where the families are different."""
    old, new = _by_name(before), _by_name(after)
    if before.family != after.family:
        removed = [RowChange(name, value, None) for name, value in list(old.items())[: most - most // 2]]
        return removed + [RowChange(name, None, value) for name, value in list(new.items())[: most // 2]]
    changes = [RowChange(name, old.get(name), new.get(name)) for name in {**old, **new}]
    return sorted(changes, key=lambda row: -abs((row.after or 0.0) - (row.before or 0.0)))[:most]


def _by_name(explanation: Explanation) -> dict[str, float]:
    """Return what the rows of each name add, and the remainder where there is one."""
    values: dict[str, float] = {}
    for row in explanation.rows:
        values[row.name] = values.get(row.name, 0.0) + row.contribution
    return values if explanation.exact else values | {"(remainder)": explanation.remainder}


def _correlation(value: float | None) -> str:
    return "\u2013" if value is None else f"{value:.4f}"
