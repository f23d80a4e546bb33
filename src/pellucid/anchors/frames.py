"""Anchors that form a nearly tight frame: a choice of sentences after which little of the encoder is lost.

The score of an anchor model is x' M y / (|.| |.|) with M = sum of a a' over the anchors; it is the encoder's own where
M is a multiple of the identity. For n >= d unit vectors that is the case exactly when their frame potential, the sum of
all squared products (a_i . a_j)^2, is least (Benedetto and Fickus, "Finite normalized tight frames", 2003). The picks
here are greedy in that sum: each adds least to it. Farthest point sampling looks at the single nearest anchor instead,
which leaves many anchors a little alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError

_MOST = 200_000  # candidates looked at, float32 in memory; more gave no better anchors


def frame_points(vectors: npt.NDArray[Any], n: int, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Choose `n` rows of small frame potential, greedily; the first m of them are the choice for m.

    The mean direction of all rows counts as picked before the first: an anchor near it would be similar to every text
    and tell none apart. Ties go to the lowest number.

    Args:
        vectors: float16 or float32 [N, d], may be memory-mapped; lengths do not matter, zero rows are never picked.
        n: how many.
        seed: of the draw of 200,000 rows that are looked at where there are more.

    Returns:
        int64 [n], in order of choice.

    Raises:
        InputError: `n` is below 1 or above the number of rows that are not zero, or a row holds NaN or infinity.
    """
    rows, units = _unit_rows(vectors, seed)
    if not 1 <= n <= len(rows):
        raise InputError(f"n is {n}; it must be between 1 and the {len(rows)} candidates that are not zero")
    mean = units.mean(axis=0)
    length = float(np.linalg.norm(mean))
    potential = np.square(units @ (mean / length if length > 0 else mean))
    picks = np.empty(n, np.int64)
    for k in range(n):
        picks[k] = potential.argmin()
        potential += np.square(units @ units[picks[k]])
        potential[picks[k]] = np.inf
    chosen: npt.NDArray[np.int64] = rows[picks]
    return chosen


def _unit_rows(vectors: npt.NDArray[Any], seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the numbers of the rows looked at and these rows at length 1."""
    rows = np.arange(len(vectors))
    if len(rows) > _MOST:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), _MOST, replace=False))
    units = np.array(vectors[rows], dtype=np.float32)
    lengths = np.linalg.norm(units, axis=1)
    if not np.isfinite(lengths).all():
        broken = rows[int(np.argmin(np.isfinite(lengths)))]
        raise InputError(f"row {broken} of the vectors holds NaN, infinity or huge numbers; leave it out")
    known = lengths > 0
    if not known.all():
        rows, units, lengths = rows[known], units[known], lengths[known]
    units /= lengths[:, None]
    return rows, units
