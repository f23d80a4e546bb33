"""Spelling in C: for each of many words, the known words that are spelled like it.

`spelling.py` defines what is computed, and the tests hold the two equal. Which known words are most similar is decided
by whole numbers and one division, so that both choose the same ones. The functions are in native/spelling.c, and take
the constants of `spelling.py` as they stand there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.native.library import Spelling, native
from pellucid.process import cached_property
from pellucid.static.spelling import NEIGHBOURS, NgramIndex, Predicted, Speller, marked_codes
from pellucid.text.words import MAX_WORD_CHARS

_MAX_MARKED_CHARS = MAX_WORD_CHARS + 2  # characters of a word that can be spelled, and its marks


class CompiledSpeller(Speller):
    """A speller that predicts in C, or as the one it follows where there is no library; for any number of threads."""

    def __init__(
        self,
        plain: Speller,
        vectors: Any,
        scales: Vectors | None,
        beginnings: Callable[[Sequence[str]], npt.NDArray[np.int64]] | None = None,
    ) -> None:
        """Take the speller to follow, its table, and what finds the rows of many words' beginnings faster."""
        super().__init__(plain.vocabulary, plain.vectors_for, plain.weights, plain.mixing)
        self._plain, self._vectors, self._scales = plain, vectors, scales
        self._idle: list[Spelling] = []
        self._faster = beginnings

    @cached_property
    def index(self) -> NgramIndex:
        """That of the speller it follows."""
        index = self._plain.index
        if index.rows.max(initial=-1) >= len(self._vectors):
            raise InputError(f"the vocabulary has grown beyond the {len(self._vectors):,} rows of its table")
        return index

    def _beginnings(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        faster = self._faster if self.vocabulary.has_subwords else None
        return super()._beginnings(words) if faster is None else faster(words)

    def predict(self, words: Sequence[str]) -> Predicted:
        """Return predictions for words from the known ones; none for an empty one."""
        if native() is None:
            return super().predict(words)
        codes, ends = marked_codes(words)
        neighbours = np.full((len(words), NEIGHBOURS), -1, np.int32)
        shares, sums = np.zeros(neighbours.shape), np.zeros((len(words), self._vectors.shape[1]))
        spelling = self._spelling(int(np.diff(ends).max(initial=0)))
        spelling.predict(codes, ends, neighbours, shares, sums)
        self._idle.append(spelling)
        return Predicted(neighbours, shares, sums)

    def _spelling(self, max_chars: int) -> Spelling:
        """Return memory for words of so many characters that no other thread uses."""
        try:
            spelling = self._idle.pop()
        except IndexError:
            spelling = Spelling(self.index, self._vectors, self._scales, max(max_chars, _MAX_MARKED_CHARS))
        return (
            spelling
            if spelling.max_chars >= max_chars
            else Spelling(self.index, self._vectors, self._scales, max_chars)
        )
