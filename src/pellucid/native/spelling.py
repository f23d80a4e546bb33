"""The function of spelling.c, called with checked arrays; how that is done and why, `kernels.py` says."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.native.kernels import (
    CHANGED,
    address,
    are_rising,
    checked,
    checked_copy,
    integers,
    pointers,
    structure,
    table_numbers,
)
from pellucid.native.library import library

_NEIGHBOURS, _COMMON = 32, 500  # as in spelling.c and static/spelling.py
_MAX_WORD_CHARS = 1 << 22  # characters of a word: the slots of its n-grams and its neighbours' have numbers of 31 bits
_NGRAM_ARRAYS = "codes ends rows starts members weights"


_NgramStruct = structure(*pointers(_NGRAM_ARRAYS), *integers("codes_size members_size known longest"))


_SpellingStruct = structure(*pointers("candidates touched buckets slots used"))


_RowsStruct = structure(*pointers("vectors scales"), *integers("kind words dimension"), *pointers("row"))


class Spelling:
    """The function of spelling.c for one table; one call at a time."""

    def __init__(self, index: Any, vectors: Any, scales: npt.NDArray[np.float32] | None, max_chars: int) -> None:
        """Take an `NgramIndex` of the table's words, the table as `Table` does, and most characters of a word."""
        numbers = table_numbers(vectors, scales)
        n_words, self._dimension = len(index.rows), vectors.shape[1]
        self.max_chars = max(max_chars, int(np.diff(index.ends).max(initial=0)))
        if self.max_chars > _MAX_WORD_CHARS:
            raise InputError(f"a word has {self.max_chars:,} characters; at most {_MAX_WORD_CHARS:,} can be spelled")
        ngrams = 4 * self.max_chars  # of four sizes
        max_features = (_NEIGHBOURS + 1) * ngrams
        candidates = np.zeros((n_words, 2), np.int32)
        candidates[:, 1] = index.squares
        touched, buckets, used = (np.empty(size, np.int32) for size in (n_words + _COMMON + 1, ngrams, max_features))
        slots = np.zeros((2 << max_features.bit_length(), 2), np.uint64)
        row = np.zeros(-(-self._dimension // 8) * 8, np.float32)
        self._keepalive = index, vectors, scales, candidates, touched, buckets, slots, used, row
        addresses = [address(getattr(index, name)) for name in _NGRAM_ARRAYS.split()]
        sizes = len(index.codes), len(index.members), n_words, self.max_chars
        self._library, self._structs = library(), (
            byref(_NgramStruct(*addresses, *sizes)),
            byref(_SpellingStruct(*map(address, (candidates, touched, buckets, slots, used)))),
            byref(_RowsStruct(*numbers, len(vectors), self._dimension, address(row))),
        )  # fmt: skip

    def predict(
        self,
        codes: npt.NDArray[np.uint32],
        ends: npt.NDArray[np.int64],
        neighbours: npt.NDArray[np.int32],
        shares: npt.NDArray[np.float64],
        sums: npt.NDArray[np.float64],
    ) -> None:
        """Fill `neighbours` (-1 before) and `shares` [words, 32] and `sums` [words, d] (0 before).

        Word i is `codes[ends[i] : ends[i + 1]]`, with its marks of at most `max_chars` characters.
        """
        ends = checked_copy("ends", ends, np.int64)
        words = len(ends) - 1
        if words < 0 or not are_rising(ends, len(codes)) or np.diff(ends).max(initial=0) > self.max_chars:
            raise InputError(
                f"words end outside their {len(codes)} codes or have more than {self.max_chars} characters"
            )
        outside = self._library.spelling_predict(
            *self._structs, checked("codes", codes, np.uint32, (len(codes),)), address(ends), words,
            checked("neighbours", neighbours, np.int32, (words, _NEIGHBOURS), writes=True),
            checked("shares", shares, np.float64, (words, _NEIGHBOURS), writes=True),
            checked("sums", sums, np.float64, (words, self._dimension), writes=True),
        )  # fmt: skip
        if outside:
            raise InputError(f"the index of n-grams points outside itself or its table; {CHANGED}")
