"""Farthest point sampling in C: exact, and it computes only the similarities that it needs.

What is computed. The next pick is the candidate whose greatest similarity to the picks so far is the smallest. The
plain algorithm keeps that greatest similarity, `best`, for every candidate, and after each pick compares all N
candidates with it: N products a pick, N x n in all, and the whole matrix is read n times.

Why most of that can be skipped. `best` is a maximum over the picks, so it only grows when a pick is added. A value from
some picks ago is therefore a lower bound of the true one. A candidate is out of the race for this pick as soon as its
lower bound is above the best candidate found so far. `_search` walks over the candidates and compares each with the
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

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.native.farthest import FarthestPoints
from pellucid.process import default_threads

LANES = 32  # vectors are padded with zeros to a multiple of it
GROUP = 16  # candidates that share one entry of `SearchState.lowest`

_THREAD_ROWS = 1 << 16  # fewer rows are not worth a second thread


class SearchState(NamedTuple):
    """What is known of each candidate, and the picks so far."""

    inverse: npt.NDArray[np.float32]  # [N] 1 / length, 0 for a row of zeros
    best: npt.NDArray[np.float32]  # [N] greatest similarity to the picks met so far; infinite for what is never picked
    met: npt.NDArray[np.int32]  # [N] how many picks it has been compared with
    lowest: npt.NDArray[np.float32]  # [N / 16] the smallest `best` of each 16 candidates
    picks: npt.NDArray[np.float32]  # [n, padded d] the picked rows as they are
    scales: npt.NDArray[np.float32]  # [n] 1 / length of each pick


class Search:
    """Drives the search: memory, threads and the picks so far."""

    def __init__(self, rows: npt.NDArray[Any], n: int) -> None:
        """Take rows [N, d], float32 or uint16 that hold the bits of float16, to pick `n` of."""
        self._rows = rows
        count, width = len(rows), -(-rows.shape[1] // LANES) * LANES
        groups = -(-count // GROUP)
        threads = min(default_threads(), max(1, count // _THREAD_ROWS))
        edges = np.linspace(0, groups, threads + 1).astype(int).tolist()
        self._parts = [(part, np.zeros(width, np.float32)) for part in pairwise(edges)]  # groups; memory of a thread
        self._threads = ThreadPoolExecutor(threads)
        self.state = SearchState(
            inverse=np.zeros(count, np.float32),
            best=np.full(count, -np.inf, np.float32),
            met=np.zeros(count, np.int32),
            lowest=np.full(groups, -np.inf, np.float32),
            picks=np.zeros((n, width), np.float32),
            scales=np.zeros(n, np.float32),
        )
        self._points = FarthestPoints(rows, self.state)
        self.picks: list[int] = []
        self.reads = self.products = 0  # rows read and similarities computed by `farthest`, for the benchmark

    def __enter__(self) -> Search:
        """Return it; the threads end with the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the threads."""
        self._threads.shutdown()

    def measure(self) -> int | None:
        """Find the rows' lengths, which must come first; return the first row that has none, or None."""

        def lengths(part: tuple[int, int], work: npt.NDArray[np.float32]) -> int:
            first, last = (min(group * GROUP, len(self._rows)) for group in part)
            return self._points.measure(first, last, work)

        broken = [row for row in self._each(lengths) if row >= 0]
        self.state.best[self.state.inverse == 0] = np.inf
        return min(broken, default=None)

    def take(self, row: int) -> None:
        """Make `row` the next pick."""
        self._points.take(row, len(self.picks))
        self.picks.append(row)

    def farthest(self) -> int:
        """Return the row whose greatest similarity to the picks is the smallest."""

        def search(part: tuple[int, int], work: npt.NDArray[np.float32]) -> tuple[float, int, int, int]:
            return self._points.search(*part, len(self.picks), work)

        best_of_chunks = self._each(search)
        self.reads += sum(reads for _, _, reads, _ in best_of_chunks)
        self.products += sum(products for *_, products in best_of_chunks)
        return int(min(best_of_chunks)[1])

    def _each(self, function: Any) -> list[Any]:
        """Return what `function` gives for each part, found at the same time."""
        if len(self._parts) == 1:  # handing work to a thread takes as long as many a search
            return [function(*self._parts[0])]
        return list(self._threads.map(function, *zip(*self._parts)))
