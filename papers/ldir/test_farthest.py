"""Farthest points as LDIR's code finds them, against the definition written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.ldir.farthest import published_farthest_points
from pellucid.anchors import farthest_points
from pellucid.errors import InputError
from points import clusters, small_numbers


def plain_published(vectors: np.ndarray, n: int, start: int) -> list[int]:
    """Squared distances to the start and every pick; the start is not returned."""
    rows = vectors.astype(np.float64)
    picks = [start]
    for _ in range(n):
        nearest = [min(((row - rows[pick]) ** 2).sum() for pick in picks) for row in rows]
        picks.append(int(np.argmax([-1.0 if row in picks else value for row, value in enumerate(nearest)])))
    return picks[1:]


@given(vectors=small_numbers, data=st.data())
def test_the_published_variant_goes_by_distance_and_leaves_its_start_out(vectors, data):
    if len(vectors) < 2:
        return
    n = data.draw(st.integers(1, min(12, len(vectors) - 1)))
    start = data.draw(st.integers(0, len(vectors) - 1))
    picks = published_farthest_points(vectors, n, start=start).tolist()
    assert picks == plain_published(vectors, n, start) and start not in picks
    assert published_farthest_points(vectors.astype(np.float16), n, start=start).tolist() == picks


def test_on_unit_rows_the_published_variant_differs_by_its_start_alone():
    vectors = clusters(400)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    picks = published_farthest_points(vectors, 60, start=7).tolist()
    assert picks == farthest_points(vectors, 61, start=7).tolist()[1:]
    assert {int(published_farthest_points(vectors, 1, seed=seed)[0]) for seed in range(9)} != {picks[0]}


def test_the_published_variant_refuses():
    vectors = clusters(10)
    with pytest.raises(InputError, match="10 points asked for beside the start"):
        published_farthest_points(vectors, 10)
    with pytest.raises(InputError, match="start is 10"):
        published_farthest_points(vectors, 3, start=10)
    vectors[4, 1] = np.nan
    with pytest.raises(InputError, match="row 4 "):
        published_farthest_points(vectors, 3)
