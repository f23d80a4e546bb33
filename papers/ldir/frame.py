"""Anchors of small frame potential, which keep more of the encoder than farthest points do where overlap stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError

_MAX_ROWS = 200_000  # float32 in memory; more gave no better anchors


def frame_points(vectors: npt.NDArray[Any], n: int, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Choose `n` rows of small frame potential, greedily; the first m of them are the choice for m.

    The score of an anchor model is x' M y / (|.| |.|) with M = sum of a a' over the anchors; it is the encoder's own if
    M is a multiple of the identity. For n >= d unit vectors that is so exactly when their frame potential, the sum of
    all squared products (a_i . a_j)^2, is least (Benedetto and Fickus, "Finite normalized tight frames", 2003). Each
    pick adds least to that sum. Farthest point sampling looks at the single nearest anchor instead, which leaves many
    anchors a little alike. Cost: one product with all rows for each pick.

    The mean direction of all rows counts as picked before the first: an anchor near it would be similar to every text
    and distinguish none. Ties go to the lowest number.

    Args:
        vectors: float16 or float32 [N, d], may be memory-mapped; lengths do not matter, zero rows are never picked.
        n: how many.
        seed: of the draw of 200,000 rows, if there are more.

    Returns:
        int64 [n], in order of choice.

    Raises:
        InputError: `n` is below 1 or above the number of rows that are not zero, or a row holds NaN or infinity.
    """
    rows = np.arange(len(vectors))
    if len(rows) > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), _MAX_ROWS, replace=False))
    units = np.array(vectors[rows], dtype=np.float32)
    lengths = np.linalg.norm(units, axis=1)
    if not np.isfinite(lengths).all():
        broken = int(rows[np.argmin(np.isfinite(lengths))])
        raise InputError(f"row {broken} of the vectors holds NaN or infinity; leave it out")
    is_nonzero = lengths > 0
    rows, units = rows[is_nonzero], units[is_nonzero] / lengths[is_nonzero, None]
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
