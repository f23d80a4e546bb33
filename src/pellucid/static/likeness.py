"""The compiled half of spelling: for each of many words, the known words that are spelled like it.

`spelling.py` defines what is computed, and the tests hold the two equal. Which known words are most similar is decided
by whole numbers and one division, so that both choose the same ones. The compiled functions make no Python object.
numba keeps them until this file changes: after a change to the constants of `spelling.py`, delete the `__pycache__` of
this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.errors import InputError
from pellucid.static import pooling
from pellucid.static.kernels import compiled, trailing_zeros
from pellucid.static.spelling import (
    BITS,
    COMMON,
    LONGEST,
    NEIGHBOURS,
    RIDGE,
    SHORTEST,
    NgramIndex,
    Predicted,
    Speller,
    marked_codes,
)

_SURELY_LESS = 1 - 1e-12  # so that rounding decides nothing
_FACTOR, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def exact(function: Any) -> Any:
    """Compile `function` without fastmath: a tie must stay one."""
    return compiled(function, fastmath=False)


class _Scratch(NamedTuple):
    """Memory for one word after the other."""

    scores: npt.NDArray[np.int32]  # [known words] what each shares with the word; all 0 between two words
    touched: npt.NDArray[np.int32]  # [known words + 1] those that share something
    buckets: npt.NDArray[np.int32]  # of one word's n-grams
    keys: npt.NDArray[np.int32]  # [slots, a power of two] a bucket, -1 where a slot is free
    masks: npt.NDArray[np.int64]  # [slots] which neighbours have it, a bit each; the word itself is the last
    used: npt.NDArray[np.int32]  # the slots that are not free
    best: npt.NDArray[np.float64]  # [neighbours] their squared similarities, times the word's own square
    shared: npt.NDArray[np.int64]  # [neighbours + 1, neighbours + 1] the weight of what two have in common
    inverse: npt.NDArray[np.float64]  # [neighbours + 1] of the square roots of its diagonal
    kernel: npt.NDArray[np.float64]  # [neighbours + 1, neighbours + 1]


class CompiledSpeller(Speller):
    """A speller that predicts with the functions of this file; for any number of threads."""

    def __init__(self, plain: Speller, vectors: npt.NDArray[Any], scales: Vectors) -> None:
        """Take the speller to follow, and its table in the form that `pooling.pool` reads."""
        super().__init__(plain.vocabulary, plain.vectors_of, plain.weights, plain.mixing)
        self._plain, self._vectors, self._scales = plain, vectors, scales

    @cached_property
    def index(self) -> NgramIndex:
        """That of the speller it follows."""
        index = self._plain.index
        if index.rows.max(initial=-1) >= len(self._vectors):
            raise InputError(f"the vocabulary has grown beyond the {len(self._vectors):,} rows of its table")
        return index

    @cached_property
    def _longest(self) -> int:
        """The characters of the longest known word, its marks among them: more than 100 where lower case is longer."""
        return int(np.diff(self.index.ends).max(initial=0))

    def predict(self, words: Sequence[str]) -> Predicted:
        """Return predictions for words from the known ones; none for an empty one."""
        near = np.full((len(words), NEIGHBOURS), -1, np.int32)
        shares, sums = np.zeros(near.shape), np.zeros((len(words), self._vectors.shape[1]))
        index = self.index
        codes, ends = marked_codes(words)
        scratch = _scratch(len(index.rows), max(self._longest, int(np.diff(ends).max(initial=0))))
        counts = _predict(codes, ends, index, scratch, near, shares)
        _add_up(self._vectors, self._scales, near, shares, counts, sums)
        return Predicted(near, shares, sums)


def _scratch(known: int, longest: int) -> _Scratch:
    """Return memory for so many known words, none of them or of the others of more characters than `longest`."""
    size = NEIGHBOURS + 1
    ngrams = (LONGEST - SHORTEST + 1) * longest
    slots = 1 << (2 * size * ngrams).bit_length()  # more than twice what is put there, so that a free one is near
    return _Scratch(
        scores=np.zeros(known, np.int32),
        touched=np.empty(max(known, size) + 1, np.int32),
        buckets=np.empty(ngrams, np.int32),
        keys=np.full(slots, -1, np.int32),
        masks=np.zeros(slots, np.int64),
        used=np.empty(size * ngrams, np.int32),
        best=np.empty(NEIGHBOURS),
        shared=np.zeros((size, size), np.int64),
        inverse=np.empty(size),
        kernel=np.empty((size, size)),
    )


@exact
def _ngrams(codes: Any, start: Any, end: Any, buckets: Any) -> int:
    """List the buckets of the n-grams of a word; return how many."""
    found = 0
    for first in range(start, end):
        mixed = np.uint64(0)
        for place in range(first, min(first + LONGEST, end)):
            mixed = mixed * _FACTOR + np.uint64(codes[place]) + np.uint64(1)
            if place - first + 1 < SHORTEST:
                continue
            buckets[found] = np.int32(((mixed ^ (mixed >> np.uint64(29))) * _MIX) >> np.uint64(64 - BITS))
            found += 1
    return found


@exact
def _once(ngrams: int, buckets: Any) -> int:
    """Leave out what is listed already; return how many buckets there are."""
    found = 0
    for place in range(ngrams):
        new = True
        for earlier in range(found):
            new &= buckets[earlier] != buckets[place]
        buckets[found] = buckets[place]
        found += new
    return found


@exact
def _candidates(ngrams: int, index: NgramIndex, scratch: _Scratch, near: Any) -> int:
    """Set `near` to the known words most similar to a word with these n-grams; return how many there are."""
    scores, touched, best = scratch.scores, scratch.touched, scratch.best
    several = 0
    for number in range(ngrams):
        bucket = scratch.buckets[number]
        first, last, weight = index.starts[bucket], index.starts[bucket + 1], np.int32(index.weights[bucket])
        if weight == 0 or last - first > COMMON:
            continue
        for place in range(first, last):
            word = index.members[place]
            touched[several] = word
            several += scores[word] == 0
            scores[word] += weight
    count = 0
    for place in range(several):
        word = touched[place]
        shared = np.float64(scores[word])
        scores[word] = 0
        square = np.float64(index.squares[word])
        if count == NEIGHBOURS and shared * shared < best[count - 1] * square * _SURELY_LESS:  # without a division
            continue
        similar = shared * shared / square
        if count == NEIGHBOURS and similar < best[count - 1]:
            continue
        slot = min(count, NEIGHBOURS)
        while slot > 0 and (best[slot - 1] < similar or (best[slot - 1] == similar and near[slot - 1] > word)):
            if slot < NEIGHBOURS:
                best[slot], near[slot] = best[slot - 1], near[slot - 1]
            slot -= 1
        if slot < NEIGHBOURS:
            best[slot], near[slot] = similar, word
            count = min(count + 1, NEIGHBOURS)
    return count


@exact
def _mark(ngrams: int, bit: int, used: int, scratch: _Scratch) -> int:
    """Note that a neighbour has these n-grams; return how many slots are in use now."""
    keys, masks = scratch.keys, scratch.masks
    for number in range(ngrams):
        bucket = scratch.buckets[number]
        slot = bucket & (len(keys) - 1)
        while keys[slot] >= 0 and keys[slot] != bucket:
            slot = (slot + 1) & (len(keys) - 1)
        if keys[slot] < 0:
            keys[slot], masks[slot] = bucket, 0
            scratch.used[used] = slot
            used += 1
        masks[slot] |= 1 << bit
    return used


@exact
def _share(count: int, used: int, index: NgramIndex, scratch: _Scratch) -> None:
    """Add up what each two of the word and its `count` neighbours have in common; free the slots."""
    shared, members = scratch.shared, scratch.touched
    shared[: count + 1, : count + 1] = 0
    for number in range(used):
        slot = scratch.used[number]
        weight, mask = np.int64(index.weights[scratch.keys[slot]]), scratch.masks[slot]
        scratch.keys[slot] = -1
        several = 0
        while mask != 0:
            members[several] = trailing_zeros(mask)
            several += 1
            mask &= mask - 1
        for one in range(several):
            row = shared[members[one]]
            for other in range(one, several):
                row[members[other]] += weight


@exact
def _solve(count: int, scratch: _Scratch, shares: Any) -> None:
    """Set `shares` by ridge regression: Cholesky's decomposition, with the right side as one more column."""
    shared, kernel, inverse = scratch.shared, scratch.kernel, scratch.inverse
    for one in range(count + 1):
        inverse[one] = 1 / np.sqrt(np.float64(shared[one, one])) if shared[one, one] > 0 else 0.0
    for one in range(count):
        for other in range(one, count + 1):
            cosine = shared[one, other] * inverse[one] * inverse[other]
            kernel[one, other] = cosine * np.sqrt(cosine)
        kernel[one, one] = (1.0 if shared[one, one] > 0 else 0.0) + RIDGE
    for step in range(count):
        top = kernel[step]
        factor = 1 / np.sqrt(top[step])
        for other in range(step, count + 1):
            top[other] *= factor
        for one in range(step + 1, count):
            below, factor = kernel[one], top[one]
            for other in range(one, count + 1):
                below[other] -= factor * top[other]
    for one in range(count - 1, -1, -1):
        total = kernel[one, count]
        for other in range(one + 1, count):
            total -= kernel[one, other] * shares[other]
        shares[one] = total / kernel[one, one]


@exact
def _predict(codes: Any, ends: Any, index: NgramIndex, scratch: _Scratch, near: Any, shares: Any) -> Any:
    """Fill `near` and `shares` for each word `codes[ends[i] : ends[i + 1]]`; return how many neighbours each has."""
    counts = np.zeros(len(ends) - 1, np.int32)
    for word in range(len(ends) - 1):
        if ends[word + 1] - ends[word] == 2:  # nothing but its marks
            continue
        ngrams = _once(_ngrams(codes, ends[word], ends[word + 1], scratch.buckets), scratch.buckets)
        count = _candidates(ngrams, index, scratch, near[word])
        if count == 0:
            continue
        used = _mark(ngrams, count, 0, scratch)
        for bit in range(count):
            known = near[word, bit]
            ngrams = _ngrams(index.codes, index.ends[known], index.ends[known + 1], scratch.buckets)
            used = _mark(ngrams, bit, used, scratch)
            near[word, bit] = index.rows[known]
        _share(count, used, index, scratch)
        _solve(count, scratch, shares[word])
        counts[word] = count
    return counts


@compiled
def _add_up(vectors: Any, scales: Any, near: Any, shares: Any, counts: Any, sums: Any) -> None:
    """Set `sums` to the sums of the vectors of `near` at length 1, times their `shares`."""
    dimension = sums.shape[1]
    row = np.empty(dimension, np.float32)
    for word in range(len(counts)):
        for neighbour in range(counts[word]):
            pooling.sum_rows(vectors, scales, near[word], neighbour, neighbour + 1, row)
            square = 0.0
            for j in range(dimension):
                square += np.float64(row[j]) * np.float64(row[j])
            factor = shares[word, neighbour] / np.sqrt(square) if square > 0 else 0.0
            for j in range(dimension):
                sums[word, j] += factor * row[j]
