"""The arithmetic of `groups.py`: how alike the texts of a group are, how alike to others, dimension by dimension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder, unit_rows
from pellucid.errors import InputError
from pellucid.questions.coordinates import Floats, column_chunks, stacked, unit_blocks
from pellucid.words import split_words

_MOST_WORDS = 2_000  # of the group's texts, the commonest; each is encoded
_SMALL_GROUP = 10  # texts
_NO_SPREAD = 1e-9  # a standard deviation below this is rounding


Mask = npt.NDArray[np.bool_]


class Encoded(NamedTuple):
    """Texts with their unit rows, dense float32 or CSR; unknown texts are zero rows."""

    texts: list[str]
    rows: Any


class Separation(NamedTuple):
    """Arrays over the dimensions: the parts of within and between, the means, Cohen's d and the AUC."""

    within: Floats
    between: Floats
    mean: Floats
    mean_others: Floats
    effect: Floats
    auc: Floats


def encoded(model: Embedder, texts: Iterable[str], least: int, what: str) -> Encoded:
    """Encode the texts of one side.

    Raises:
        InputError: fewer than `least` texts, or an item is no string.
    """
    blocks, every = [], []
    for block, rows in unit_blocks(model, texts):
        blocks.append(rows)
        every += block
    if len(every) < least:
        raise InputError(f"{what} has {len(every)} texts; at least {least} are needed")
    return Encoded(every, stacked(blocks))


def separate(rows: Any, members: Sequence[Mask]) -> list[Separation]:
    """Take the separation of each group from all other rows apart; memory is bounded by the rows themselves."""
    from scipy.stats import rankdata

    width = rows.shape[1]
    found = [Separation(*(np.zeros(width) for _ in Separation._fields)) for _ in members]
    for where, part in column_chunks(rows):
        ranks = rankdata(part, axis=0)
        for member, separation in zip(members, found, strict=True):
            values = _columns_apart(part[member], part[~member], ranks[member])
            for whole, value in zip(separation, values, strict=True):
                whole[where] = value
    return found


def _columns_apart(mine: Floats, theirs: Floats, ranks: Floats) -> Separation:
    """Return the separation in some columns; `ranks` are those of `mine` among all rows."""
    n, m = len(mine), len(theirs)
    total, mean, mean_others = mine.sum(axis=0), mine.mean(axis=0), theirs.mean(axis=0)
    within = (total**2 - (mine**2).sum(axis=0)) / (n * (n - 1))
    pooled = np.sqrt((n * mine.var(axis=0) + m * theirs.var(axis=0)) / (n + m - 2))
    gap = mean - mean_others
    effect = np.divide(gap, pooled, out=np.zeros_like(gap), where=pooled > _NO_SPREAD)
    auc = (ranks.sum(axis=0) - n * (n + 1) / 2) / (n * m)  # the Mann-Whitney statistic over n m
    return Separation(within, mean * mean_others, mean, mean_others, effect, auc)


def along(rows: Any, direction: Floats) -> Floats:
    """Return the cosine of each unit row to `direction`; 0 where that is nothing."""
    length = float(np.linalg.norm(direction))
    if length <= _NO_SPREAD:
        return np.zeros(rows.shape[0])
    cosines: Floats = np.asarray(rows @ (direction / length), np.float64).ravel()
    return cosines


class Words:
    """Which words the texts hold, and what the model makes of each alone; read once for all groups."""

    def __init__(self, model: Embedder, texts: Sequence[str]) -> None:
        """Split the texts."""
        self._model, self._texts = model, [{word.text.lower() for word in split_words(text)} for text in texts]
        self._rows: dict[str, Any] = {}

    def along(self, member: Mask, direction: Floats, most: int) -> list[tuple[str, float, int, int]]:
        """Return the words of a group's texts that point along `direction`, and the texts of each side that hold them.

        Only words of at least 1 % of the texts, and of two unless the group is small, so that no slip stands for it.
        """
        here: Counter[str] = Counter()
        there: Counter[str] = Counter()
        for words, inside in zip(self._texts, member.tolist(), strict=True):
            (here if inside else there).update(words)
        size = int(member.sum())
        least = max(size / 100, 2 if size >= _SMALL_GROUP else 1)
        chosen = [word for word, count in here.most_common(_MOST_WORDS) if count >= least]
        if not chosen or most < 1:
            return []
        pulls = along(self._encoded(chosen), direction)
        best = [n for n in np.argsort(-pulls, kind="stable")[:most].tolist() if pulls[n] > 0]
        return [(chosen[n], float(pulls[n]), here[chosen[n]], there[chosen[n]]) for n in best]

    def _encoded(self, words: list[str]) -> Any:
        """Return the unit rows of `words`, encoding those that no group had before."""
        new = [word for word in words if word not in self._rows]
        if new:
            rows = unit_rows(self._model.encode(new))
            self._rows.update((word, rows[[number]]) for number, word in enumerate(new))
        return stacked([self._rows[word] for word in words])
