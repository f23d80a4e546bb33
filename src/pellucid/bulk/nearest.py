"""The nearest of a growing number of rows: exact while they are few, or sparse; through cells of faiss when many.

Cells (an inverted file) hold float16 rows around centres that KMeans has found. A question looks into the cells whose
centres are nearest to it. The centres are found anew whenever there are four times as many rows, so that rows in any
order, sorted by subject for instance, end up with centres that fit them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import missing_extra

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_EXACT = 32_768  # dense rows that are compared one by one
_GROWTH = 4
_PROBED = 8  # cells that a question looks into
_SAMPLE = 50  # rows a cell that the centres are found from
_STEPS = 8  # of KMeans: later ones move few rows
_CHUNK = 65_536  # rows in float32 at once while the cells are made anew
_FLOAT16 = 2.0**-11  # the most that float16 moves a product of two rows of length 1


class Nearest:
    """Rows that are added a block at a time, and for other rows those of them with the largest products.

    Attributes:
        rounding: how far a score may lie below the product of the float32 rows.
    """

    def __init__(self, exact: int | None = None) -> None:
        """Hold no row; beyond `exact` dense rows cells are used, None takes 32,768."""
        self.rounding = 0.0
        self._most_exact = _EXACT if exact is None else exact
        self._blocks: list[Any] = []
        self._cells: Any = None
        self._rebuilt_at = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._cells.ntotal) if self._cells is not None else sum(block.shape[0] for block in self._blocks)

    def search(self, rows: Any, top_k: int = 1) -> tuple[Numbers, Scores]:
        """Return the numbers of the nearest rows in the order they were added, and the scores.

        Args:
            rows: float32 [n, dimension], an array or CSR as those that were added.
            top_k: how many, best first.

        Returns:
            int64 and float32 [n, top_k]; -1 and minus infinity where there are no more.
        """
        if self._cells is not None:
            scores, numbers = self._cells.search(np.ascontiguousarray(rows, np.float32), top_k)
            return numbers, np.where(numbers < 0, -np.inf, scores).astype(np.float32)
        numbers = np.full((rows.shape[0], top_k), -1, np.int64)
        scores = np.full((rows.shape[0], top_k), -np.inf, np.float32)
        start = 0
        for block in self._blocks:
            found, its_scores = _best(products(rows, block), top_k)
            scores, numbers = np.hstack([scores, its_scores]), np.hstack([numbers, found + start])
            order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
            scores, numbers = (np.take_along_axis(values, order, axis=1) for values in (scores, numbers))
            start += block.shape[0]
        return numbers, scores

    def add(self, rows: Any) -> None:
        """Add rows: float32 [n, dimension], an array or CSR.

        Raises:
            MissingExtraError: they are many and dense, and faiss is not installed.
        """
        if self._cells is not None:
            self._cells.add(np.ascontiguousarray(rows, np.float32))
            if len(self) >= _GROWTH * self._rebuilt_at:
                self._rebuild(self._cells.reconstruct_batch, len(self), int(self._cells.d))
            return
        self._blocks.append(rows)
        if not hasattr(rows, "tocsr") and len(self) > self._most_exact:
            every = np.concatenate(self._blocks)
            self._blocks = []
            self._rebuild(every.__getitem__, *every.shape)

    def _rebuild(self, rows_of: Any, count: int, dimension: int) -> None:
        """Put rows into new cells; `rows_of` returns those of given numbers."""
        try:
            import faiss
        except ImportError as error:
            raise missing_extra("faiss-cpu", "scale") from error
        cells = int(4 * count**0.5)
        sample = np.unique(np.linspace(0, count - 1, min(count, cells * _SAMPLE)).astype(np.int64))
        cells = min(cells, len(sample))
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(dimension), dimension, cells, faiss.ScalarQuantizer.QT_fp16,
            faiss.METRIC_INNER_PRODUCT, False,
        )  # fmt: skip
        index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = _STEPS, _SAMPLE, 1
        index.nprobe = min(_PROBED, cells)
        index.train(rows_of(sample))
        for start in range(0, count, _CHUNK):
            index.add(rows_of(np.arange(start, min(start + _CHUNK, count))))
        index.make_direct_map()  # to read rows by their numbers when the cells are made anew
        self._cells, self._rebuilt_at, self.rounding = index, count, _FLOAT16


def products(rows: Any, others: Any) -> Scores:
    """Return the product of every row with every other one, float32 [rows, others]."""
    found = rows @ others.T
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found, np.float32)


def _best(scores: Scores, most: int) -> tuple[Numbers, Scores]:
    """Return the numbers and values of the largest scores of each row, in any order."""
    if most == 1:
        best = scores.argmax(axis=1)[:, None]
    elif most >= scores.shape[1]:
        best = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    else:
        best = np.argpartition(scores, -most, axis=1)[:, -most:]
    return best.astype(np.int64), np.take_along_axis(scores, best, axis=1)
