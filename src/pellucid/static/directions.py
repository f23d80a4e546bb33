"""The dimensions of a static model: directions, each known by the words at its two ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.base import unit_rows
from pellucid.dimensions import Dimension, Dimensions
from pellucid.words import JOINER, shown_word, unspaced_run

if TYPE_CHECKING:
    from pellucid.static.embedder import StaticEmbedder

_WORDS = 10_000  # the first of the vocabulary, in most models the commonest: rare words at an end name nothing
_IN_NAME, _IN_ABOUT = 3, 12  # words of each end
_BLOCK = 8_192  # words at a time


def name_directions(model: StaticEmbedder) -> Dimensions:
    """Return the dimensions of `model`, named "high words / low words" and about a dozen words of each end.

    Words are compared at length 1, so that a word's frequency, which is in its length, does not choose it.
    """
    rows = [row for row, word in enumerate(model.vocabulary.words[: 2 * _WORDS]) if _names(word)]
    rows = rows[:_WORDS] or list(range(min(len(model.vocabulary), _WORDS)))
    high, low = _ends(model, np.array(rows))
    words = model.vocabulary.words
    named: list[Dimension] = []
    taken: set[str] = set()
    for number, ends in enumerate(zip(high, low, strict=True)):
        up, down = ([shown_word(words[row]) for row in end] for end in ends)
        name = f"{', '.join(up[:_IN_NAME])} / {', '.join(down[:_IN_NAME])}"
        name = name if name not in taken else f"{name} ({number})"
        taken.add(name)
        named.append(Dimension(name, (f"high: {', '.join(up)}", f"low: {', '.join(down)}")))
    return Dimensions(named)


def _names(word: str) -> bool:
    """Whether `word` says something: letters alone, and more of them than function words have."""
    letters = word.replace(JOINER, "")
    return letters.isalpha() and len(letters) > (1 if unspaced_run.fullmatch(letters) else 2)


def _ends(model: StaticEmbedder, rows: np.typing.NDArray[np.int64]) -> tuple[list[list[int]], list[list[int]]]:
    """Return for each dimension the `rows` with the highest and those with the lowest coordinates, strongest first."""
    units = np.empty((len(rows), model.get_embedding_dimension()), np.float32)
    for start in range(0, len(rows), _BLOCK):
        block = model.word_vectors(rows[start : start + _BLOCK])
        units[start : start + _BLOCK] = unit_rows(block)
    most = min(_IN_ABOUT, len(rows))
    order = [np.argsort(column, kind="stable") for column in units.T]
    return [rows[o[::-1][:most]].tolist() for o in order], [rows[o[:most]].tolist() for o in order]
