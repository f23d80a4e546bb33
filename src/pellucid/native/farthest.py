"""Farthest point sampling in C: exact, and it computes only the similarities that it needs.

What is computed. The next pick is the candidate whose greatest similarity to the picks so far is the smallest. The
plain algorithm keeps that greatest similarity, `best`, for every candidate, and after each pick compares all N
candidates with it: N products a pick, N x n in all, and the whole matrix is read n times.

Why most of that can be skipped. `best` is a maximum over the picks, so it only grows when a pick is added. A value from
some picks ago is therefore a lower bound of the true one. A candidate is out of the race for this pick as soon as its
lower bound is above the best candidate found so far. The search walks over the candidates and compares each with the
picks it has not met yet, oldest first, only until it is out of the race; `met` remembers how far it came. The winner
has met all picks, so its value is exact, and every loser has a lower bound above it: the result is that of the plain
algorithm, not an approximation.

What it costs. A candidate near an early pick is out at once, every time, without being read. `lowest` holds the
smallest bound of each group of 16 candidates, so that most groups are passed over with one comparison. Figures are in
papers/ldir/sampling.md.

Sums are taken over 32 lanes in a fixed order, without fused or reordered operations: every machine and every number
of threads gives the same picks. Ties go to the lowest row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.native.kernels import KINDS, address, check_range, checked, integers, pointers, structure
from pellucid.native.library import library
from pellucid.process import default_threads

LANES = 32  # vectors are padded with zeros to a multiple of it
_GROUP = 16  # candidates that share one entry of `lowest`
_THREAD_ROWS = 1 << 16  # fewer rows are not worth a second thread


_FarthestStruct = structure(
    *pointers("rows"), *integers("kind count dimension width"), *pointers("inverse best met lowest picks scales")
)


_SearchResult = structure(*integers("row reads products"), ("similarity", ctypes.c_float))


class FarthestPoints:
    """Picks rows of a matrix, each the one whose greatest cosine to those before it is the smallest.

    Attributes:
        picks: the rows picked so far.
        inverse: float32 [N], 1 / length of each row, 0 for a row of zeros; set by `measure`.
        n_reads: rows that `farthest` read.
        n_products: similarities that it computed.
    """

    def __init__(self, rows: npt.NDArray[Any], n: int) -> None:
        """Take rows [N, d], float32 or uint16 that hold the bits of float16, to pick `n` of."""
        self.picks: list[int] = []
        self.n_reads = self.n_products = 0
        self._count, width = len(rows), -(-rows.shape[1] // LANES) * LANES
        groups = -(-self._count // _GROUP)
        threads = min(default_threads(), max(1, self._count // _THREAD_ROWS))
        edges = np.linspace(0, groups, threads + 1).astype(int).tolist()
        self._parts = [(part, np.zeros(width, np.float32)) for part in pairwise(edges)]  # groups; memory of a thread
        self._threads = ThreadPoolExecutor(threads)
        self.inverse = np.zeros(self._count, np.float32)
        self._best = np.full(self._count, -np.inf, np.float32)  # greatest similarity to the picks met so far
        self._vectors = np.zeros((n, width), np.float32)  # of the picks
        met, lowest = np.zeros(self._count, np.int32), np.full(groups, -np.inf, np.float32)
        arrays = self.inverse, self._best, met, lowest, self._vectors, np.zeros(n, np.float32)
        self._library, self._keepalive = library(), (rows, *arrays)
        start = checked("rows", rows, rows.dtype, rows.shape)
        sizes = KINDS[rows.dtype.name], *rows.shape, width
        self._struct = byref(_FarthestStruct(start, *sizes, *map(address, arrays)))

    def __enter__(self) -> FarthestPoints:
        """Return it; the threads end with the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the threads."""
        self._threads.shutdown()

    def measure(self) -> int | None:
        """Find the rows' lengths, which must come first; return the first that is not finite or too long, or None."""

        def lengths(part: tuple[int, int], work: npt.NDArray[np.float32]) -> int:
            first, last = (min(group * _GROUP, self._count) for group in part)
            return int(self._library.farthest_measure(self._struct, first, last, address(work)))

        broken = [row for row in self._each(lengths) if row >= 0]
        self._best[self.inverse == 0] = np.inf  # never picked
        return min(broken, default=None)

    def take(self, row: int) -> None:
        """Make `row` the next pick."""
        check_range("row", row, row + 1, self._count)
        check_range("pick", len(self.picks), len(self.picks) + 1, len(self._vectors))
        self._library.farthest_take(self._struct, row, len(self.picks))
        self.picks.append(row)

    def farthest(self) -> int:
        """Return the row whose greatest similarity to the picks is the smallest; -1 where none is left."""

        def search(part: tuple[int, int], work: npt.NDArray[np.float32]) -> Any:
            result = _SearchResult()
            self._library.farthest_search(self._struct, *part, len(self.picks), address(work), byref(result))
            return result

        results = self._each(search)
        self.n_reads += sum(result.reads for result in results)
        self.n_products += sum(result.products for result in results)
        return int(min(results, key=lambda result: (result.similarity, result.row)).row)

    def _each(self, function: Callable[..., Any]) -> list[Any]:
        """Return what `function` gives for each part, found at the same time."""
        if len(self._parts) == 1:  # handing work to a thread takes as long as many a search
            return [function(*self._parts[0])]
        return list(self._threads.map(function, *zip(*self._parts)))
