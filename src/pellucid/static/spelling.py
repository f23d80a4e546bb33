"""A vector for a word outside the vocabulary, from the known words that are spelled like it, and one of its own.

Words are compared by their character n-grams. Each n-gram has a weight that is fitted to the table: how similar the
vectors of the words are that share it. In "tokenisers", "token" weighs much and "ers" little. The vector is predicted
from the most similar known words by kernel ridge regression: a weighted sum of their vectors at length 1. Where no
known word is similar, the sum is short, and so is the predicted part.

What is missing is made up by the vector of the word's beginning, if that is known: the row that it has without
spelling, and that the table was trained with. A word of fewer than four letters, or with anything but letters in it,
such as a number, a code or an abbreviation, has the whole of that vector and no predicted part.

The rest is the word's own part: a direction that no other word has, made from a hash of it. By it "A320" is similar to
"A320" and to nothing else.

Predictions come from native/spelling.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import shake_128
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.native.spelling import Spelling
from pellucid.process import cached_property
from pellucid.static.precision import floats, kernel_table
from pellucid.text.unicode import is_spelled_with_marks, lowercase
from pellucid.text.words import MAX_WORD_CHARS, Vocabulary

BITS = 18
BUCKETS = 1 << BITS  # of hashed n-grams, one byte each
MIN_NGRAM_CHARS, MAX_NGRAM_CHARS = 3, 6  # characters of an n-gram, the marks of beginning and end among them
NEIGHBOURS = 32  # known words that a prediction rests on
RIDGE = 0.5  # beside similarities to the power 1.5: similar words count more
COMMON = 500  # known words; an n-gram of more is no way to find similar ones, but counts in their similarity
_PRIOR_PAIRS = 4.0  # so many pairs of words of average coherence are added to those that share an n-gram
_LENGTH = 1.4  # of a predicted vector, in typical lengths
_FULL_LENGTH = 0.9  # of a sum; a shorter one's vector is shorter by as much, and its beginning counts for the rest
_MIN_LENGTH = 0.25  # of a sum; a word with a shorter one and no known beginning counts as unknown
_UNIQUE_LENGTH, _UNIQUE_LENGTH_ALONE = 0.5, 1.0  # typical lengths of a word's own part, beside a predicted one or not
_MAX_MARKED_CHARS = MAX_WORD_CHARS + 2  # characters of a word that can be spelled, and its marks
_MAX_NAMED_WORDS = 3  # known words that an explanation names
_CHUNK_WORDS = 4_096  # words spelled at once: 20 MB
_SAMPLE = 2_000  # words whose median length is the typical one
_FACTOR, _MIX, _SHIFT, _BUCKET_SHIFT = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 29, 64 - BITS))

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


class Predicted(NamedTuple):
    """Predictions for some words from the known ones."""

    neighbours: npt.NDArray[np.int32]  # [words, NEIGHBOURS] the most similar rows of the table, -1 after the last
    shares: _Floats  # [words, NEIGHBOURS] what each counts in the prediction
    sums: _Floats  # [words, dimension] the predictions


class Speller:
    """Finds vectors for words by their spelling, for one table of word vectors; for any number of threads."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        vectors: Any,
        scales: Vectors | None,
        weights: npt.NDArray[np.uint8],
    ) -> None:
        """Take the table; the index of its n-grams is made at the first word."""
        self.vocabulary, self.vectors, self.scales, self.weights = vocabulary, vectors, scales, weights
        self._idle: list[Spelling] = []

    def vectors_for(self, rows: _Ints) -> Vectors:
        """Return rows of the table, float32 [rows, dimension]."""
        return floats(self.vectors, self.scales, rows)

    @cached_property
    def index(self) -> NgramIndex:
        """Which known words hold an n-gram."""
        index = NgramIndex.from_words(self.vocabulary.words, self.weights)
        if index.rows.max(initial=-1) >= len(self.vectors):
            raise InputError(f"the vocabulary has grown beyond the {len(self.vectors):,} rows of its table")
        return index

    @cached_property
    def _typical(self) -> float:
        """The median length of known words."""
        rows = self.index.rows[:: max(1, len(self.index.rows) // _SAMPLE)]
        return float(np.median(np.linalg.norm(self.vectors_for(rows), axis=1))) if len(rows) else 1.0

    def spell(self, words: Sequence[str]) -> tuple[Vectors, _Ints]:
        """Return vectors for words in lower case that have no row, float32 [words, dimensions], and like words."""
        # Like words are the rows of the known words that weigh most in each, int64 [words, 3], -1 where there are no
        # more. A word without any counts as unknown, as most words of a language that was not learned do.
        predicted = self.predict([word if can_spell(word) else "" for word in words])
        lengths = np.linalg.norm(predicted.sums, axis=1)
        missing_shares = np.maximum(1 - lengths / _FULL_LENGTH, 0)
        beginnings = np.fromiter(map(self.vocabulary.row, words), np.int64, len(words))
        vectors = predicted.sums * (self._typical * _LENGTH / np.maximum(lengths, _FULL_LENGTH))[:, None]
        begun = beginnings >= 0
        vectors[begun] += self.vectors_for(beginnings[begun]) * missing_shares[begun, None]
        unique_lengths = np.where(lengths > 0, _UNIQUE_LENGTH, _UNIQUE_LENGTH_ALONE)
        unique = _unique_directions(words, vectors.shape[1]) * unique_lengths[:, None]
        named_rows = _weightiest(predicted, beginnings, missing_shares * np.maximum(lengths, _FULL_LENGTH) / _LENGTH)
        named_rows[(lengths < _MIN_LENGTH) & (beginnings < 0)] = -1
        return np.asarray(vectors + unique * self._typical, np.float32), named_rows

    def predict(self, words: Sequence[str]) -> Predicted:
        """Return predictions for words of at most `MAX_WORD_CHARS` from the known ones; none for an empty one."""
        codes, ends = marked_codes(words)
        shape = (len(words), NEIGHBOURS)
        sums = np.zeros((len(words), self.vectors.shape[1]))
        predicted = Predicted(np.full(shape, -1, np.int32), np.zeros(shape), sums)
        try:
            spelling = self._idle.pop()  # memory that no other thread uses
        except IndexError:
            spelling = Spelling(self.index, *kernel_table(self.vectors, self.scales)[:2], _MAX_MARKED_CHARS)
        spelling.predict(codes, ends, *predicted)
        self._idle.append(spelling)
        return predicted


def _weightiest(predicted: Predicted, beginnings: _Ints, weights: _Floats) -> _Ints:
    """Return the rows with the largest shares in each word, its beginning's with this weight, int64 [words, n]."""
    rows = np.column_stack([predicted.neighbours, beginnings])
    shares = np.column_stack([predicted.shares, np.where(beginnings < 0, 0, weights)])
    best = np.argsort(-np.round(shares, 9), axis=1, kind="stable")[:, :_MAX_NAMED_WORDS]
    shares = np.take_along_axis(shares, best, axis=1)
    return np.where(shares > shares[:, :1] / 4, np.take_along_axis(rows, best, axis=1), -1)


def _unique_directions(words: Sequence[str], dimension: int) -> _Floats:
    """Return a direction for each word that has nothing to do with any other's: signs from a hash of it."""
    size = -(-dimension // 8)
    digests = b"".join(shake_128(word.encode("utf-8", "surrogatepass")).digest(size) for word in words)
    bits = np.unpackbits(np.frombuffer(digests, np.uint8).reshape(-1, size), axis=1)[:, :dimension]
    directions: _Floats = (2.0 * bits - 1) / np.sqrt(dimension)
    return directions


class SpelledRows:
    """The rows of a table and, from their number on, one for each other word that was met; for one thread."""

    def __init__(self, speller: Speller, dimension: int) -> None:
        """Take what knows the words that have rows and spells the others."""
        self._speller, self._vocabulary = speller, speller.vocabulary
        self._index_by_word: dict[str, int] = {}
        self._vectors = np.zeros((8, dimension), np.float32)
        self._named_rows = np.zeros((8, _MAX_NAMED_WORDS), np.int64)

    def __len__(self) -> int:
        """Return how many words were spelled."""
        return len(self._index_by_word)

    @property
    def vectors(self) -> Vectors:
        """The vectors of the spelled words, float32 [words, dimension]."""
        return self._vectors[: len(self)]

    @property
    def unknown(self) -> npt.NDArray[np.bool_]:
        """Which of them have no known words to predict them from [words]."""
        return self._named_rows[: len(self), 0] < 0

    def named_rows(self, index: int) -> list[int]:
        """Return the rows of the known words that weigh most in a spelled word's vector; none for an unknown one."""
        rows = dict.fromkeys(self._named_rows[index].tolist())  # a beginning may be among the words spelled like it
        return [row for row in rows if row >= 0]

    def rows(self, words: Sequence[str]) -> list[int]:
        """Return the row of each word: its own, else that of its spelling."""
        vocabulary = self._vocabulary
        lower = list(map(lowercase, words))
        has_row = list(map(vocabulary.has_row, words))
        self._add(sorted({low for low, has in zip(lower, has_row) if not has} - self._index_by_word.keys()))
        return [
            vocabulary.row(word) if has else len(vocabulary) + self._index_by_word[low]
            for word, low, has in zip(words, lower, has_row)
        ]

    def _add(self, words: list[str]) -> None:
        n_extra = len(self) + len(words) - len(self._vectors)
        if n_extra > 0:
            n_extra = max(n_extra, min(len(self._vectors), _CHUNK_WORDS))  # no more than is filled, where that is much
            self._vectors = np.concatenate([self._vectors, np.zeros((n_extra, self._vectors.shape[1]), np.float32)])
            self._named_rows = np.concatenate([self._named_rows, np.zeros((n_extra, _MAX_NAMED_WORDS), np.int64)])
        for start in range(0, len(words), _CHUNK_WORDS):
            chunk = words[start : start + _CHUNK_WORDS]
            first, last = len(self), len(self) + len(chunk)
            self._vectors[first:last], self._named_rows[first:last] = self._speller.spell(chunk)
            self._index_by_word.update(zip(chunk, range(first, last)))


def can_spell(word: str) -> bool:
    """Whether `word` can be predicted from its spelling: only letters, more than most abbreviations have."""
    if not MIN_NGRAM_CHARS < len(word) <= MAX_WORD_CHARS:
        return False
    return word.isalpha() or (not word.isascii() and is_spelled_with_marks(word))


def ngram_weights(words: Sequence[str], vectors: Vectors) -> npt.NDArray[np.uint8]:
    """Fit the weights of hashed n-grams, uint8 [BUCKETS] in 255ths: the mean cosine of the words that share one."""
    # The cosine of any two words is subtracted. An n-gram of few words is drawn towards the mean of such n-grams.
    index = NgramIndex.from_words(words, np.zeros(BUCKETS, np.uint8))
    if len(index.rows) < 2:
        raise InputError("spelling is fitted to words of letters alone, and the vocabulary has fewer than two")
    from scipy.sparse import csr_matrix

    units = l2_normalize(vectors[index.rows])
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


class NgramIndex(NamedTuple):
    """Which known words hold a hashed n-gram, each once."""

    # Those of bucket b are `members[starts[b] : starts[b + 1]]`, as numbers in `rows`. Known word i is spelled
    # `codes[ends[i] : ends[i + 1]]`, its marks among them.

    rows: _Ints  # of the words of letters only
    codes: npt.NDArray[np.uint32]
    ends: _Ints  # [rows + 1]
    starts: npt.NDArray[np.int32]  # [BUCKETS + 1]
    members: npt.NDArray[np.int32]
    weights: npt.NDArray[np.uint8]  # [BUCKETS]
    squares: _Ints  # [rows] the sum of the weights of each word's n-grams

    @classmethod
    def from_words(cls, words: Sequence[str], weights: npt.NDArray[np.uint8]) -> NgramIndex:
        """Index the words of a table."""
        rows = [row for row, word in enumerate(words) if can_spell(word)]
        codes, ends = marked_codes([lowercase(words[row]) for row in rows])
        word_indices, buckets = _ngrams(codes, ends)
        entries = np.sort(buckets << 32 | word_indices)  # both in one number: a sort of these is several times faster
        entries = entries[np.diff(entries, prepend=-1) > 0]  # a word holds an n-gram once
        members = entries.astype(np.int32)  # the lower half
        starts = np.zeros(BUCKETS + 1, np.int32)
        np.cumsum(np.bincount(entries >> 32, minlength=BUCKETS), out=starts[1:])
        squares = np.bincount(members, np.repeat(weights, np.diff(starts)), len(rows)).astype(np.int64)
        return cls(np.array(rows, np.int64), codes, ends, starts, members, weights, squares)


def marked_codes(words: Sequence[str]) -> tuple[npt.NDArray[np.uint32], _Ints]:
    """Return the code points of words with marks of beginning and end, and where each word ends among them."""
    marked = [f"<{word}>" for word in words]
    codes = np.frombuffer("".join(marked).encode("utf-32-le", "surrogatepass"), np.uint32)
    return codes, np.cumsum([0, *map(len, marked)], dtype=np.int64)


def _ngrams(codes: npt.NDArray[np.uint32], ends: _Ints) -> tuple[_Ints, _Ints]:
    """Return the number of a word and the bucket of an n-gram in it, for each n-gram of each word."""
    wide, word_at = codes.astype(np.uint64), np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    hashes = np.zeros(len(wide), np.uint64)
    word_indices, buckets = [], []
    for size in range(1, MAX_NGRAM_CHARS + 1):
        hashes = hashes[: max(len(wide) - size + 1, 0)] * _FACTOR + wide[size - 1 :] + np.uint64(1)
        if size >= MIN_NGRAM_CHARS:
            inside = word_at[: len(hashes)] == word_at[size - 1 :]
            mixed = hashes[inside]
            word_indices.append(word_at[: len(hashes)][inside])
            buckets.append((((mixed ^ (mixed >> _SHIFT)) * _MIX) >> _BUCKET_SHIFT).astype(np.int64))
    return np.concatenate(word_indices), np.concatenate(buckets)


def _squares(vectors: npt.NDArray[Any]) -> _Floats:
    """Return the squared length of each row."""
    squares: _Floats = np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)
    return squares
