"""Floors: random directions, and their mean over seeds."""

from __future__ import annotations

import numpy as np
import pytest

from papers.kit import DRAWS
from papers.ldir.scored import mean_over_seeds, random_directions


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
