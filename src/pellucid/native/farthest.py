"""The functions of farthest.c, called with checked arrays; how that is done and why, `kernels.py` says."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.native.kernels import KINDS, check_range, checked, integers, pointers
from pellucid.native.library import library


class _FarthestStruct(ctypes.Structure):
    _fields_ = [*pointers("rows"), *integers("kind count dimension width"),
                *pointers("inverse best met lowest picks scales")]  # fmt: skip


class _SearchResult(ctypes.Structure):
    _fields_ = [*integers("row reads products"), ("similarity", ctypes.c_float)]


class FarthestPoints:
    """The functions of farthest.c for the rows of one array."""

    def __init__(self, rows: npt.NDArray[Any], state: Any) -> None:
        """Take rows [N, d], float32 or uint16 that hold the bits of float16, and a `SearchState` for them."""
        width, picks = state.picks.shape[-1], len(state.scales)
        padded, kind = -(-rows.shape[-1] // 32) * 32, rows.dtype.name
        if kind not in ("float32", "uint16") or rows.ndim != 2 or width != padded:
            raise InputError(f"rows are {kind} and padded to {width}; give float32 or uint16, padded to {padded}")
        self._count, self._width, self._groups, self._picks = len(rows), width, len(state.lowest), picks
        self._library, self._keepalive = library(), (rows, state)
        count = len(rows)
        self._struct = byref(_FarthestStruct(
            checked("rows", rows, rows.dtype, rows.shape), KINDS[kind], count, rows.shape[1], width,
            checked("inverse", state.inverse, np.float32, (count,), writes=True),
            checked("best", state.best, np.float32, (count,), writes=True),
            checked("met", state.met, np.int32, (count,), writes=True),
            checked("lowest", state.lowest, np.float32, (-(-count // 16),), writes=True),
            checked("picks", state.picks, np.float32, (picks, width), writes=True),
            checked("scales", state.scales, np.float32, (picks,), writes=True),
        ))  # fmt: skip

    def measure(self, first: int, last: int, work: npt.NDArray[np.float32]) -> int:
        """Set 1 / length of rows [first, last); return the first that is not finite or longer than 1e12, or -1."""
        check_range("rows", first, last, self._count)
        return int(self._library.farthest_measure(self._struct, first, last, self._work(work)))

    def take(self, row: int, number: int) -> None:
        """Make `row` pick `number`, and never again."""
        check_range("row", row, row + 1, self._count)
        check_range("pick", number, number + 1, self._picks)
        self._library.farthest_take(self._struct, row, number)

    def search(self, first: int, last: int, picks: int, work: npt.NDArray[np.float32]) -> tuple[float, int, int, int]:
        """Return the best next pick of groups [first, last): similarity, row (-1: none), rows read, products made."""
        check_range("groups", first, last, self._groups)
        check_range("picks", 0, picks, self._picks)
        result = _SearchResult()
        self._library.farthest_search(self._struct, first, last, picks, self._work(work), byref(result))
        return result.similarity, result.row, result.reads, result.products

    def _work(self, work: npt.NDArray[np.float32]) -> int:
        return checked("memory", work, np.float32, (self._width,), writes=True)
