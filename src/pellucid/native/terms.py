"""The functions of terms.c, called with checked arrays; how that is done and why, `kernels.py` says."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.native.kernels import address, are_ends, are_rising, are_within, checked, integers, pointers, structure
from pellucid.native.library import library

LINE_END = -1
"""The number that is a line feed among the numbers of tokens."""

_PADDING = 8  # bytes after a block and after the tokens of a table, which are read in one go
_MAX_NUMBER = (1 << 31) - 1
_MIN_TOKENS = 1 << 12  # that a table has room for
_SLOT = np.dtype([("hash", np.uint32), ("number", np.uint32)])


_TokensStruct = structure(
    *pointers("slots"), *integers("bits"), *pointers("blob starts"), *integers("count"), ("mixers", ctypes.c_uint64 * 2)
)


_ListsStruct = structure(*pointers("flags term_starts terms acronym_starts acronyms"))


class TokenTable:
    """Distinct tokens of texts, numbered from 0 in the order in which they are first met; for one thread."""

    def __init__(self) -> None:
        """Make an empty table, which grows."""
        self._library, self._room, self._size = library(), 0, 0
        self._slots, self._blob, self._starts = np.zeros(1, _SLOT), np.zeros(0, np.uint8), np.zeros(1, np.int64)
        mixers = (ctypes.c_uint64 * 2)(*(int.from_bytes(os.urandom(8), "little") | 1 for _ in range(2)))
        self._struct = _TokensStruct(None, 0, None, None, 0, mixers)
        self._reserve(_MIN_TOKENS, _MIN_TOKENS * _PADDING)

    def __len__(self) -> int:
        """Return the number of tokens."""
        return int(self._struct.count)

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the tokens."""
        return int(self._starts[len(self)])

    def tokens(self, first: int = 0) -> list[str]:
        """Return the tokens from number `first` on."""
        starts = self._starts[first : len(self) + 1]
        blob = self._blob[starts[0] : starts[-1]].tobytes()
        ends = (starts - starts[0]).tolist()
        return [blob[start:end].decode() for start, end in pairwise(ends)]

    def read(self, texts: Sequence[bytes]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Number the tokens of texts, valid UTF-8, that blanks divide as `str.split` does.

        Returns:
            numbers: int32 [tokens and line feeds], `LINE_END` for a line feed.
            ends: where each text's end among them, int64 [texts].
        """
        block = np.frombuffer(b"".join([*texts, bytes(_PADDING)]), np.uint8)
        text_ends, size = np.cumsum([len(text) for text in texts], dtype=np.int64), len(block) - _PADDING
        self._reserve(len(self) + (size + len(texts)) // 2, self.n_bytes + size)
        numbers, ends = np.empty(size, np.int32), np.empty(len(texts), np.int64)
        self._library.terms_read(
            ctypes.addressof(self._struct), address(block), address(text_ends), len(texts), address(numbers),
            address(ends),
        )  # fmt: skip
        return numbers[: ends[-1] if len(ends) else 0], ends

    def _reserve(self, room: int, size: int) -> None:
        """Have room for so many tokens, and bytes of them, in all."""
        if room >= _MAX_NUMBER:
            raise InputError(f"a table of {room:,} tokens is too large; count the terms of fewer texts at once")
        if size > self._size:
            self._size = max(size, 2 * self._size)
            blob = np.zeros(self._size + _PADDING, np.uint8)
            blob[: self.n_bytes] = self._blob[: self.n_bytes]
            self._blob, self._struct.blob = blob, address(blob)
        if room > self._room:
            self._room = max(room, 2 * self._room)
            starts, bits = np.zeros(self._room + 1, np.int64), self._room.bit_length() + 1
            starts[: len(self) + 1] = self._starts[: len(self) + 1]
            self._starts, self._slots = starts, np.zeros(1 << bits, _SLOT)
            self._struct.starts, self._struct.slots = address(starts), address(self._slots)
            self._struct.bits = bits
            self._library.terms_index(ctypes.addressof(self._struct))


class TokenLists(NamedTuple):
    """The terms of numbered tokens, and what these tell of their neighbours."""

    flags: npt.NDArray[np.uint8]  # [tokens], HAS_LOWER_CASE and so on of index/postings.py
    term_starts: npt.NDArray[np.int64]  # [tokens + 1]
    terms: npt.NDArray[np.int32]  # the numbers of the terms that a token has for certain
    acronym_starts: npt.NDArray[np.int64]  # [tokens + 1]
    acronyms: npt.NDArray[np.int32]  # those that its line decides on: 2 * number, + 1 for a single letter


def count_terms(
    token_lists: TokenLists, numbers: npt.NDArray[np.int32], ends: npt.NDArray[np.int64], n_terms: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Count the terms of texts, of which there are `n_terms`, from what `TokenTable.read` returns.

    Returns:
        terms: the numbers of the distinct terms of each text in the order of its tokens, int32 [counts].
        counts: how often each stands in it, int32 [counts].
        ends: where each text's end among these, int64 [texts].
    """
    n_tokens = len(token_lists.flags)
    lists = (token_lists.term_starts, token_lists.terms), (token_lists.acronym_starts, token_lists.acronyms)
    addresses = [checked("flags", token_lists.flags, np.uint8, (n_tokens,))]
    for name, (starts, items) in zip(("terms", "acronyms"), lists):
        addresses.append(checked(f"starts of {name}", starts, np.int64, (n_tokens + 1,)))
        addresses.append(checked(name, items, np.int32, (len(items),)))
        if not are_ends(starts, len(items)) or not are_within(items, n_terms << (name == "acronyms")):
            raise InputError(f"the {name} of {n_tokens:,} tokens are not among {n_terms:,}")
    inputs = checked("numbers", numbers, np.int32, (len(numbers),)), checked("ends", ends, np.int64, (len(ends),))
    if not are_within(numbers, n_tokens, LINE_END) or not are_rising(ends, len(numbers)):
        raise InputError(f"numbers of tokens are not among {n_tokens:,}, or {len(ends):,} texts do not divide them")
    sizes = np.zeros(n_tokens + 1, np.int64)  # the last is that of LINE_END
    sizes[:-1] = np.diff(token_lists.term_starts) + np.diff(token_lists.acronym_starts)
    n_counts = int(sizes[numbers].sum())
    terms, counts = np.empty(n_counts, np.int32), np.empty(n_counts, np.int32)
    count_ends, scratch = np.empty(len(ends), np.int64), np.zeros(n_terms, np.int32)
    size = library().terms_count(
        ctypes.byref(_ListsStruct(*addresses)), *inputs, len(ends), address(scratch), address(terms), address(counts),
        address(count_ends),
    )  # fmt: skip
    return terms[:size], counts[:size], count_ends


def invert(
    terms: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int32],
    ends: npt.NDArray[np.int64],
    lists: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Sort the counts of passages, whose own end at `ends`, by list: term t belongs to list lists[t].

    `starts` are where the lists start, int64 [lists]. Returns passages and counts, both int32 [counts].
    """
    size, positions = len(terms), starts.copy()
    addresses = [checked(*array, (size,)) for array in (("terms", terms, np.int32), ("counts", counts, np.int32))]
    addresses.append(checked("ends", ends, np.int64, (len(ends),)))
    lists_address = checked("lists", lists, np.int32, (len(lists),))
    n_lists, last = len(starts), ends[-1] if len(ends) else 0
    is_divided = are_rising(ends, size) and last == size and len(ends) < _MAX_NUMBER
    lists_of_counts = lists[terms] if are_within(terms, len(lists)) else np.full(1, -1)
    is_listed = are_within(lists_of_counts, n_lists)
    sizes = np.bincount(lists_of_counts, minlength=n_lists) if is_listed else np.zeros(0, np.int64)
    if not (is_divided and is_listed and np.array_equal(np.cumsum(sizes) - sizes, starts)):
        raise InputError(f"{size:,} counts of {len(ends):,} passages do not make {len(starts):,} lists")
    rows, values = np.empty(size, np.int32), np.empty(size, np.int32)
    library().terms_invert(*addresses, len(ends), lists_address, address(positions), address(rows), address(values))
    return rows, values
