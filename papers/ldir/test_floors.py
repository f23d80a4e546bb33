"""Floors: random directions, and their mean over seeds."""

from __future__ import annotations

import numpy as np
import pytest

from papers.kit import DRAWS
from papers.ldir import floors
from papers.ldir.scored import CHOOSERS, FLOOR, mean_over_seeds, random_directions
from papers.vector_cache import Vectors, unit_rows


@pytest.fixture
def vectors() -> Vectors:
    """Return texts of two topics, each near an axis of its own."""
    noise = 0.3 * np.random.default_rng(0).normal(size=(40, 6))
    return unit_rows(np.eye(6)[np.arange(40) % 2] + noise)


def test_the_mean_over_seeds_varies_with_items_and_seeds():
    rng = np.random.default_rng(0)
    equal = np.tile(rng.normal(size=1 + DRAWS), (5, 1))
    assert mean_over_seeds(equal) == pytest.approx(equal[0])
    by_seed = np.tile(np.arange(5.0)[:, None], (1, 1 + DRAWS))
    samples = mean_over_seeds(by_seed)
    assert samples.shape == (1 + DRAWS,) and samples[0] == 2
    assert samples[1:].std() == pytest.approx(np.sqrt(2 / 5), rel=0.1)  # the standard error of five seeds' mean


def test_random_directions_have_length_one_and_depend_on_the_seed_alone():
    directions = random_directions(7, 3, 1)
    assert np.linalg.norm(directions, axis=1) == pytest.approx(1)
    assert np.array_equal(directions, random_directions(7, 3, 1))
    assert not np.array_equal(directions, random_directions(7, 3, 2))


def test_each_row_of_an_encoder_has_the_floor_of_its_size(vectors, monkeypatch):
    class Tests:
        sets, retrieval = {"STS": ("Tiny",), "retrieval": ()}, None

        def sts(self, apply):
            return {"Tiny": np.full(1 + DRAWS, float(apply(np.eye(6, dtype=np.float32)).shape[1]))}

    monkeypatch.setattr(floors, "SIZES", (2, 4))
    model = floors.Row("a model", 4, 0.5, [np.eye(6, dtype=np.float32)[:4]])
    table = floors.table(Tests(), vectors, [model])
    assert table.cell("the encoder", "STS") == "6.0" and table.cell("4 fps", "STS") == "4.0"
    assert table.cell("2 fps", "STS over random directions") == "+0.0 (+0.0 to +0.0), unchanged"
    assert table.cell("a model", "STS over the encoder") == "-2.0 (-2.0 to -2.0), does not hold"
    dashes = [row[0] for row in table.rows if row[2] is None][1:]
    ends = ("", ", decorrelated at 0.5", ", decorrelated at 0.75")
    assert dashes == [f"{n} {FLOOR}{end}" for n in (2, 4) for end in ends]


def test_decorrelated_anchors_have_a_floor_that_is_decorrelated_as_much(vectors, monkeypatch):
    """The score is the cosine between the first two directions: only what is not decorrelated has one."""

    class Tests:
        sets, retrieval = {"STS": ("Tiny",), "retrieval": ()}, None

        def sts(self, apply):
            rows = apply(np.eye(6, dtype=np.float32)).T
            return {"Tiny": np.full(1 + DRAWS, abs(float(rows[0] @ rows[1])))}

    monkeypatch.setattr(floors, "SIZES", (2,))
    monkeypatch.setattr(floors, "STRENGTH", 1.0)
    table = floors.table(Tests(), vectors, [])
    assert (
        table.cell("2 random directions", "STS") != "0.0" == table.cell("2 random directions, decorrelated at 1", "STS")
    )
    for method in CHOOSERS:
        assert table.cell(f"2 {method}, decorrelated at 1", "STS over random directions")[1:].startswith("0.0 ")
