"""Farthest point sampling as LDIR's published code does it (2025-08)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError


def published_farthest_points(
    vectors: npt.NDArray[Any], n: int, *, seed: int = 0, start: int | None = None
) -> npt.NDArray[np.int64]:
    """Choose `n` rows as LDIR's published code does: by squared Euclidean distance, the start left out.

    Each pick is the row whose smallest squared Euclidean distance to the start and the picks before it is the greatest,
    so lengths count. The first m picks are those for m; ties go to the lowest row. Unlike there, no row is picked
    twice.

    Args:
        vectors: float16 or float32 [N, d], held in memory as float32.
        n: how many, at most N - 1.
        seed: draws the start where it is None.
        start: the row that the search starts from; it is not among the picks.

    Raises:
        InputError: `n` is below 1 or above N - 1, `start` is no row, or a row holds NaN or infinity.
    """
    if type(n) is not int or n < 1:
        raise InputError(f"n is {n!r:.40}; it must be a whole number of 1 or more")
    rows = np.asarray(vectors, np.float32)
    if n >= len(rows):
        raise InputError(f"{n} points asked for beside the start, but there are only {len(rows)} vectors")
    if start is not None and not 0 <= start < len(rows):
        raise InputError(f"start is {start}; give a row from 0 to {len(rows) - 1}")
    squares = np.einsum("nd,nd->n", rows, rows)
    if not np.isfinite(squares).all():
        broken = int(np.argmin(np.isfinite(squares)))
        raise InputError(f"row {broken} of the vectors holds NaN or infinity; leave it out or encode it again")
    picks = [int(np.random.default_rng(seed).integers(len(rows))) if start is None else start]
    nearest = np.full(len(rows), np.inf, np.float32)
    while len(picks) <= n:
        last = picks[-1]
        np.minimum(nearest, squares - 2 * (rows @ rows[last]) + squares[last], out=nearest)
        nearest[last] = -np.inf
        picks.append(int(nearest.argmax()))
    return np.array(picks[1:], np.int64)
