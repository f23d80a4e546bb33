"""Anchors of small frame potential are those of the definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from papers.ldir.frame import frame_points
from pellucid.errors import InputError


def naive_frame(vectors: np.ndarray, n: int) -> list[int]:
    """The definition: each pick adds least to the sum of squares, where the mean direction was picked before all."""
    known = np.flatnonzero(vectors.any(axis=1))
    units = {row: vectors[row].astype(np.float64) / np.linalg.norm(vectors[row].astype(np.float64)) for row in known}
    mean = np.mean(list(units.values()), axis=0)
    taken = [mean / np.linalg.norm(mean)]
    picks: list[int] = []
    while len(picks) < n:
        rest = [row for row in known if row not in picks]
        picks.append(min(rest, key=lambda row: sum((units[row] @ other) ** 2 for other in taken)))
        taken.append(units[picks[-1]])
    return picks


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_frame_points_are_the_naive_ones_and_prefixes_of_each_other(dtype, tmp_path: Path) -> None:
    vectors = (np.random.default_rng(1).normal(size=(60, 5)) * np.geomspace(0.01, 100, 60)[:, None]).astype(dtype)
    vectors[[7, 30]] = 0
    expected = naive_frame(vectors, 58)
    assert frame_points(vectors, 58).tolist() == expected
    assert frame_points(vectors, 9).tolist() == expected[:9] and frame_points(vectors, 9).dtype == np.int64
    np.save(tmp_path / "vectors.npy", vectors)
    assert frame_points(np.load(tmp_path / "vectors.npy", mmap_mode="r"), 20).tolist() == expected[:20]
    with pytest.raises(InputError, match="n is 59; it must be between 1 and the 58 candidates that are not zero"):
        frame_points(vectors, 59)
    with pytest.raises(InputError, match="n is 0"):
        frame_points(vectors, 0)


def test_a_tight_frame_is_found_and_duplicates_come_last() -> None:
    vectors = np.repeat(np.eye(4, dtype=np.float32), 3, axis=0)
    picks = frame_points(vectors, 12)
    assert sorted(picks.tolist()) == list(range(12))
    assert sorted((picks[:4] // 3).tolist()) == [0, 1, 2, 3] and sorted((picks[4:8] // 3).tolist()) == [0, 1, 2, 3]
    assert picks[0] == 0 and picks[1] == 3  # ties go to the lowest number


def test_frame_points_of_many_rows_look_at_a_seeded_draw(monkeypatch) -> None:
    monkeypatch.setattr("papers.ldir.frame._MAX_ROWS", 50)
    vectors = np.random.default_rng(2).normal(size=(300, 4)).astype(np.float32)
    first = frame_points(vectors, 20, seed=3)
    np.testing.assert_array_equal(first, frame_points(vectors, 20, seed=3))
    assert len(set(first.tolist())) == 20 and first.max() < 300
    assert first.tolist() != frame_points(vectors, 20, seed=4).tolist()
    seen = np.sort(np.random.default_rng(3).choice(300, 50, replace=False))
    assert set(first.tolist()) <= set(seen.tolist())
    assert first.tolist() == seen[naive_frame(vectors[seen], 20)].tolist()


def test_frame_points_refuse_rows_that_are_not_finite() -> None:
    for value in (np.nan, np.inf):
        vectors = np.eye(3, dtype=np.float32)
        vectors[1, 2] = value
        with pytest.raises(InputError, match="row 1 of the vectors holds NaN"):
            frame_points(vectors, 2)
