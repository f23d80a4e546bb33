"""A vector for a word outside the vocabulary, from the known words that are spelled like it.

Words are compared by their character n-grams. Each n-gram has a weight that is fitted to the table: how similar the
vectors of the words are that share it. In "tokenisers", "token" weighs much and "ers" little. The vector is predicted
from the most similar known words by kernel ridge regression: a weighted sum of their vectors at length 1. Where no
known word is similar, the sum is short, and so is the vector: the word then weighs less in a text.

A word of fewer than four letters, or with anything else in it, is never spelled: abbreviations, codes, numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors, unit_rows
from pellucid.errors import InputError
from pellucid.text import LONGEST_WORD, Vocabulary

BUCKETS = 1 << 18  # of hashed n-grams, one byte each
_SHORTEST, _LONGEST = 3, 6  # characters of an n-gram, the marks of beginning and end among them
_NEIGHBOURS = 32  # known words that a prediction rests on
_RIDGE = 0.5
_POWER = 1.5  # of a similarity: similar words count more
_COMMON = 1_000  # known words; an n-gram of more is no way to find similar ones, but counts in their similarity
_PRIOR_PAIRS = 4.0  # so many pairs of words of average coherence are added to those that share an n-gram
_LENGTH = 1.3  # of a vector, in typical lengths
_POOR = 0.2  # length of a sum; the vector of a shorter one is shorter by as much
_PARTS = 3  # known words that an explanation names
_SAMPLE = 2_000  # words whose median length is the typical one
_FACTOR, _MIX, _SHIFT, _KEPT = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 29, 46))

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


class Spelled(NamedTuple):
    """What the spelling of a word says: its vector, float32 [dimension], and the rows that have most weight in it."""

    vector: Vectors
    parts: tuple[int, ...]


class Speller:
    """Finds vectors for words by their spelling, for one table of word vectors."""

    def __init__(
        self, words: Sequence[str], vectors_of: Callable[[_Ints], Vectors], weights: npt.NDArray[np.uint8]
    ) -> None:
        """Take the table; the index of its n-grams is made at the first word.

        Args:
            words: of the table, in row order.
            vectors_of: from rows to their vectors, float32 [rows, dimension].
            weights: uint8 [BUCKETS], see `ngram_weights`.
        """
        self._words, self._vectors_of = words, vectors_of
        self._weights = weights / np.float64(255)

    @cached_property
    def _index(self) -> _Index:
        return _Index.of(self._words)

    @cached_property
    def _norms(self) -> _Floats:
        """The length of each known word's n-grams."""
        index = self._index
        squares: _Floats = np.zeros(len(index.rows))
        weights = np.repeat(self._weights, np.diff(index.starts))
        np.add.at(squares, index.members, weights)
        return np.asarray(np.sqrt(squares), np.float64)

    @cached_property
    def _typical(self) -> float:
        """The median length of the rarer known words."""
        rows = self._index.rows[len(self._index.rows) // 2 :]
        rows = rows[:: max(1, len(rows) // _SAMPLE)]
        return float(np.median(np.linalg.norm(self._vectors_of(rows), axis=1))) if len(rows) else 0.0

    def spell(self, word: str) -> Spelled | None:
        """Return what the spelling of `word`, in any case, says; None where it says nothing."""
        word = word.lower()
        if not can_spell(word):
            return None
        near = self._candidates(word)
        if not len(near):
            return None
        rows = self._index.rows[near]
        shares = self._shares([*(self._words[row] for row in rows.tolist()), word])
        total = shares @ unit_rows(self._vectors_of(rows), np.float64)
        length = float(np.linalg.norm(total))
        if not length > 0:
            return None
        best = np.argsort(-shares, kind="stable")[:_PARTS]
        parts = tuple(rows[best[shares[best] > shares[best[0]] / 4]].tolist())
        return Spelled((total * (self._typical * _LENGTH / max(length, _POOR))).astype(np.float32), parts)

    def _candidates(self, word: str) -> _Ints:
        """Return the known words, as numbers in the index, that are most similar to `word`."""
        index = self._index
        _, buckets = _ngrams([word])
        lists = [index.members[index.starts[b] : index.starts[b + 1]] for b in buckets.tolist()]
        useful = [n for n, found in enumerate(lists) if 0 < len(found) <= _COMMON]
        if not useful:
            return np.empty(0, np.int64)
        found, place = np.unique(np.concatenate([lists[n] for n in useful]), return_inverse=True)
        weights = np.repeat(self._weights[buckets[useful]], [len(lists[n]) for n in useful])
        similar = np.bincount(place, weights) / np.maximum(self._norms[found], 1e-9)
        return found[np.argsort(-similar, kind="stable")[:_NEIGHBOURS]].astype(np.int64)

    def _shares(self, words: list[str]) -> _Floats:
        """Return the weights of all words but the last in the prediction of the last, float64 [words - 1]."""
        numbers, buckets = _ngrams([word.lower() for word in words])
        distinct, columns = np.unique(buckets, return_inverse=True)
        features = np.zeros((len(words), len(distinct)))
        np.add.at(features, (numbers, columns), np.sqrt(self._weights[buckets]))
        features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-9)
        kernel = (features @ features.T).clip(0) ** _POWER
        known = kernel[:-1, :-1] + _RIDGE * np.eye(len(words) - 1)
        return np.asarray(np.linalg.solve(known, kernel[:-1, -1]), np.float64)


class SpelledRows:
    """The rows of a table and, from their number on, one for each spelled word that was met; for one thread."""

    def __init__(self, vocabulary: Vocabulary, speller: Speller, dimension: int) -> None:
        """Take the words that have rows and what spells the others."""
        self._vocabulary, self._speller = vocabulary, speller
        self._numbers: dict[str, int] = {}
        self._vectors = np.zeros((8, dimension), np.float32)
        self.parts: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        """Return how many words were spelled."""
        return len(self.parts)

    @property
    def vectors(self) -> Vectors:
        """The vectors of the spelled words, float32 [words, dimension]."""
        return self._vectors[: len(self)]

    def row(self, word: str) -> int:
        """Return the row of `word`: its own, else that of its spelling, else by its beginning; -1 if there is none."""
        if word in self._vocabulary or word.lower() in self._vocabulary:
            return self._vocabulary.row(word)
        lower = word.lower()
        number = self._numbers.get(lower, -1)
        if number < 0:
            spelled = self._speller.spell(lower)
            if spelled is None:
                return self._vocabulary.row(word)
            number = self._numbers[lower] = len(self)
            self._add(spelled)
        return len(self._vocabulary) + number

    def _add(self, spelled: Spelled) -> None:
        if len(self) == len(self._vectors):
            self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
        self._vectors[len(self)] = spelled.vector
        self.parts.append(spelled.parts)


def check_weights(weights: npt.NDArray[np.uint8]) -> None:
    """Refuse weights of n-grams of another dtype or shape.

    Raises:
        InputError: they are not uint8 [BUCKETS].
    """
    if weights.dtype != np.uint8 or weights.shape != (BUCKETS,):
        raise InputError(f"the weights of n-grams are {weights.dtype} {list(weights.shape)}, not uint8 [{BUCKETS}]")


def can_spell(word: str) -> bool:
    """Whether the spelling of `word` may say something: letters alone, more than most abbreviations have."""
    return _SHORTEST < len(word) <= LONGEST_WORD and word.isalpha()


def ngram_weights(words: Sequence[str], vectors: Vectors) -> npt.NDArray[np.uint8]:
    """Fit the weights of hashed n-grams to a table: the mean cosine of the words that share one.

    The cosine of any two words is subtracted. An n-gram of few words is drawn towards the mean of such n-grams.

    Args:
        words: in row order.
        vectors: float32 [words, dimension].

    Returns:
        uint8 [BUCKETS], in 255ths.

    Raises:
        InputError: fewer than two words are letters alone.
    """
    index = _Index.of(words)
    if len(index.rows) < 2:
        raise InputError("spelling is fitted to words of letters alone, and the vocabulary has fewer than two")
    from scipy.sparse import csr_matrix  # a tenth of a second to import

    units = unit_rows(vectors[index.rows])
    counts = np.diff(index.starts)
    ones = np.ones(len(index.members), np.float32)
    members = csr_matrix((ones, index.members, index.starts), shape=(BUCKETS, len(units)))
    squares = np.concatenate([_squares(members[first : first + 4096] @ units) for first in range(0, BUCKETS, 4096)])
    pairs = counts * (counts - 1.0)
    cosines = np.maximum(squares - counts, 0)  # summed over all pairs
    few = (counts > 1) & (counts <= 5)
    typical = cosines[few].sum() / max(pairs[few].sum(), 1.0)
    coherence = (cosines + _PRIOR_PAIRS * typical) / (pairs + _PRIOR_PAIRS)
    above = coherence - float(_squares(units.mean(axis=0, dtype=np.float64)[None])[0])
    weights: npt.NDArray[np.uint8] = np.rint(above.clip(0, 1) * 255).astype(np.uint8)
    return weights


class _Index(NamedTuple):
    """Which known words hold a hashed n-gram.

    Those of bucket b are `members[starts[b] : starts[b + 1]]`, as numbers in `rows`.
    """

    rows: _Ints  # of the words that are letters alone
    starts: npt.NDArray[np.int32]  # [BUCKETS + 1]
    members: npt.NDArray[np.int32]

    @classmethod
    def of(cls, words: Sequence[str]) -> _Index:
        from scipy.sparse import csr_matrix

        rows = [row for row, word in enumerate(words) if can_spell(word)]
        numbers, buckets = _ngrams([words[row].lower() for row in rows])
        ones = np.ones(len(numbers), np.int8)
        by_word = csr_matrix((ones, (buckets, numbers)), shape=(BUCKETS, len(rows)))  # scipy adds up what repeats
        by_word.sort_indices()
        return cls(np.array(rows, np.int64), by_word.indptr, by_word.indices)


def _squares(vectors: npt.NDArray[Any]) -> _Floats:
    """Return the squared length of each row."""
    squares: _Floats = np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)
    return squares


def _ngrams(words: Sequence[str]) -> tuple[_Ints, _Ints]:
    """Return the number of a word and the bucket of an n-gram in it, for each n-gram of each word."""
    marked = [f"<{word}>" for word in words]
    codes = np.frombuffer("".join(marked).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    word_at = np.repeat(np.arange(len(words)), [len(word) for word in marked])
    hashes = np.zeros(len(codes), np.uint64)
    numbers, buckets = [], []
    for size in range(1, _LONGEST + 1):
        hashes = hashes[: max(len(codes) - size + 1, 0)] * _FACTOR + codes[size - 1 :] + np.uint64(1)
        if size >= _SHORTEST:
            inside = word_at[: len(hashes)] == word_at[size - 1 :]
            mixed = hashes[inside]
            numbers.append(word_at[: len(hashes)][inside])
            buckets.append((((mixed ^ (mixed >> _SHIFT)) * _MIX) >> _KEPT).astype(np.int64))
    return np.concatenate(numbers), np.concatenate(buckets)
