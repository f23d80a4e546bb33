"""The functions of scan.c, called with checked arrays: the passages of a segment that may be among the best."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import byref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.native.kernels import address, checked, integers, pointers, structure
from pellucid.native.library import library

MAX_CODE_DIMENSIONS = 1 << 16
"""Dimensions of a part whose 8 bits are read: products of whole numbers fit into 32 bits."""

MAX_CODE = 119
"""The largest of the 8 bits of a row: with 136 added, it fits into two numbers of 4 bits."""

_PADDED, _WHOLE_BYTES = 64, 128  # numbers that half a vector is padded to, and bytes of a `struct whole`
_OUTSIDE, _NAN = -1, -2  # what is wrong, as in scan.c
_CODE_ZERO = 136  # as in scan.c


_PartStruct = structure(
    *pointers("high low scales errors rows sides"), *integers("dimension"), ("longest", ctypes.c_double)
)


_SegmentStruct = structure(
    *integers("passages documents"), *pointers("ends rows counts lengths parts"), *integers("dense_parts")
)


_QueryStruct = structure(
    *pointers("starts stops weights"),
    *integers("terms"),
    ("k1", ctypes.c_double),
    ("b", ctypes.c_double),
    ("average", ctypes.c_double),
    *pointers("vectors sparse"),
    *integers("other_parts boosts"),
    *pointers("allowed"),
)


_BestStruct = structure(
    *pointers("heap first_values first_passages"), *integers("k count"), ("threshold", ctypes.c_double)
)


class BestScores:
    """The lowest scores that the `k` best documents of the segments seen so far can have; for one search."""

    def __init__(self, k: int, threshold: float) -> None:
        """Take how many are wanted, and the score below which nothing is."""
        self._memory = np.empty((3, k))
        first = address(self._memory)
        self._struct = _BestStruct(first, first + 8 * k, first + 16 * k, k, 0, threshold)
        self.address = ctypes.addressof(self._struct)

    @property
    def threshold(self) -> float:
        """What the `k` best documents have at least; the lowest score of a hit where there are fewer."""
        return float(self._struct.threshold)


class Codes(NamedTuple):
    """Rows in 8 bits: row i is scales[i] times its codes, up to a vector of length errors[i].

    Code j is 16 * high + low - 136, where high and low are numbers of 4 bits: of byte j of a row the lower ones, and
    the higher ones for code `half` + j.
    """

    high: npt.NDArray[np.uint8]  # [passages, half]
    low: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float32]
    errors: npt.NDArray[np.float32]

    def unpacked(self, dimension: int) -> npt.NDArray[np.int8]:
        """Return the codes [passages, dimension]."""
        pairs = [(self.high & 15, self.low & 15), (self.high >> 4, self.low >> 4)]
        halves = [(high << 4 | low).astype(np.int16) - _CODE_ZERO for high, low in pairs]
        return np.concatenate(halves, axis=1)[:, :dimension].astype(np.int8)


def pack_codes(codes: npt.NDArray[np.int8]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the high and the low bits of codes [passages, dimension], which lie from -MAX_CODE to MAX_CODE."""
    half = (codes.shape[1] + 1) // 2
    shifted = np.full((len(codes), 2 * half), _CODE_ZERO, np.uint8)
    np.add(codes, _CODE_ZERO, out=shifted[:, : codes.shape[1]], dtype=np.int16, casting="unsafe")
    first, second = shifted[:, :half], shifted[:, half:]
    high, low = np.empty_like(first, order="C"), np.empty_like(first, order="C")
    np.bitwise_or(first >> 4, second & 0xF0, out=high)
    np.bitwise_or(first & 0x0F, second << 4, out=low)
    return high, low


class DensePart:
    """A dense part of the passages of a segment."""

    def __init__(self, rows: npt.NDArray[np.float32], coarse: Codes | None = None) -> None:
        """Take rows [passages, dimension]; where there are `coarse` ones, these are read."""
        passages, self.dimension = rows.shape
        if not self.dimension:
            raise InputError("the rows of a part have no dimensions")
        self._keepalive: tuple[Any, ...] = (rows,)
        numbers: tuple[int | None, ...] = (*(None,) * 4, checked("rows", rows, np.float32, rows.shape), None)
        if coarse is not None and self.dimension <= MAX_CODE_DIMENSIONS:
            half, sides = (self.dimension + 1) // 2, np.empty((passages, 2), np.float32)
            self._keepalive = coarse, sides
            numbers = (
                checked("high", coarse.high, np.uint8, (passages, half)),
                checked("low", coarse.low, np.uint8, (passages, half)),
                checked("scales", coarse.scales, np.float32, (passages,)),
                checked("errors", coarse.errors, np.float32, (passages,)),
                None,
                address(sides),
            )
        self.struct = _PartStruct(*numbers, self.dimension, 0.0)
        self.struct.longest = library().scan_longest(byref(self.struct), passages)
        self.is_finite = math.isfinite(self.struct.longest)


class Bm25Lists(NamedTuple):
    """The postings of a segment: passages uint32 and counts int32 [postings], and lengths int32 [passages]."""

    passages: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]


class Bm25Terms(NamedTuple):
    """What a query asks of BM25: where the postings of each term are [2, terms], their weights, and the settings."""

    spans: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    k1: float
    b: float
    average: float


class PassageScan:
    """The function of scan.c for the passages of a segment; for any number of threads."""

    def __init__(
        self, passages: int, ends: npt.NDArray[np.int64] | None, bm25: Bm25Lists | None, parts: Sequence[DensePart]
    ) -> None:
        """Take where the passages of each document end, None where each has one; postings; and the dense parts."""
        self._library, self._passages, self._postings = library(), passages, 0 if bm25 is None else len(bm25.counts)
        self._keepalive = ends, bm25, parts
        documents = passages if ends is None else len(ends)
        if ends is not None and (not documents or ends[-1] != passages or ends[0] < 1 or (ends[1:] <= ends[:-1]).any()):
            raise InputError(f"the ends of {documents} documents do not divide {passages} passages")
        lists: tuple[int | None, ...] = (None, None, None)
        if bm25 is not None:
            lists = (
                checked("passages", bm25.passages, np.uint32, (self._postings,)),
                checked("counts", bm25.counts, np.int32, (self._postings,)),
                checked("lengths", bm25.lengths, np.int32, (passages,)),
            )
        self._parts = (_PartStruct * len(parts))(*(part.struct for part in parts))
        ends_address = None if ends is None else checked("ends", ends, np.int64, (documents,))
        self._segment = _SegmentStruct(
            passages, documents, ends_address, *lists, ctypes.addressof(self._parts), len(parts)
        )
        self._address = ctypes.addressof(self._segment)
        self._dimension = sum(part.dimension for part in parts)
        padded = (-(-((part.dimension + 1) // 2) // _PADDED) * _PADDED for part in parts)
        self._memory_bytes = len(parts) * _WHOLE_BYTES + 4 * sum(padded)

    def candidates(
        self, best: BestScores, bm25: Bm25Terms | None, vectors: npt.NDArray[np.float32],
        sparse: npt.NDArray[np.float32] | None, allowed: npt.NDArray[np.bool_] | None, n_boosts: int = 0,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float32]]:  # fmt: skip
        """Return the passages that may be among the best, their highest possible scores, and BM25 of all passages.

        Args:
            best: of the segments before; it is changed.
            bm25: None for a query without terms; then BM25 comes back without a value.
            vectors: of the query in the dense parts, one after the other.
            sparse: what sparse parts add to the score of each passage [parts, passages].
            allowed: which passages may be hits [passages]; None for all.
            n_boosts: of the sparse parts, the last ones that make no passage a hit.
        """
        passages, scores, terms = self._passages, np.empty(0, np.float32), (None, None, None, 0, 0.0, 0.0, 0.0)
        if bm25 is not None:
            spans, n_terms = bm25.spans.copy(), len(bm25.weights)  # they are used up
            start = checked("spans", spans, np.int64, (2, n_terms))
            if not all([0 <= first <= last <= self._postings for first, last in zip(*spans.tolist())]):
                raise InputError(f"the postings of a term lie outside the {self._postings:,} of the segment")
            weights = checked("weights", bm25.weights, np.float64, (n_terms,))
            scores = np.empty(passages, np.float32)
            terms = (start, start + 8 * n_terms, weights, n_terms, bm25.k1, bm25.b, bm25.average)  # type: ignore[assignment]
        n_sparse = 0 if sparse is None else len(sparse)
        query = _QueryStruct(
            *terms, checked("vectors", vectors, np.float32, (self._dimension,)),
            checked("sparse", sparse, np.float32, (n_sparse, passages)) if sparse is not None else None, n_sparse,
            n_boosts,
            checked("allowed", allowed, np.bool_, (passages,)) if allowed is not None else None,
        )  # fmt: skip
        memory, candidates = np.empty(self._memory_bytes, np.uint8), np.empty(passages, np.int64)
        uppers = np.empty(passages)
        count = self._library.scan_segment(
            self._address, ctypes.addressof(query), best.address, address(scores), address(memory),
            address(candidates), address(uppers),
        )  # fmt: skip
        if count == _OUTSIDE:
            raise ValueError("bm25 points outside the passages")
        if count == _NAN:
            raise ValueError("a score is NaN")
        return candidates[:count], uppers[:count], scores
