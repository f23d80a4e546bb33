"""The rule by which a page says that a claim holds, and the intervals it stands on."""

from __future__ import annotations

import numpy as np
import pytest

from papers.evidence import Interval, bootstrap, interval_of, interval_of_means, resampled


@pytest.mark.parametrize(
    ("low", "high", "bound", "above", "said"),
    [
        (0.1, 0.9, 0, True, "**holds**"),
        (-0.9, -0.1, 0, False, "**does not hold**"),
        (-0.1, 0.1, 0, None, "undecided"),
        (0.0, 0.1, 0, None, "undecided"),  # 0 is not above 0
        (-0.1, 0.0, 0, False, "**does not hold**"),
        (0.0, 0.0, 0, False, "**does not hold**"),
        (70, 79, 80, False, "**does not hold**"),
        (79, 81, 80, None, "undecided"),
        (81, 90, 80, True, "**holds**"),
    ],
)
def test_a_claim_holds_if_all_of_its_interval_is_above_the_bound(low, high, bound, above, said):
    found = Interval((low + high) / 2, low, high)
    assert found.above(bound) is above and found.verdict(bound) == said


def test_what_is_not_a_number_decides_nothing():
    assert Interval(np.nan, np.nan, np.nan).verdict() == "undecided"


def test_samples_are_the_same_items_for_every_model():
    worse = np.random.default_rng(0).uniform(size=60)

    def score(items):
        return 100 * items.mean(axis=-1)

    found = bootstrap(worse, score)
    assert found.shape == (1001,) and found[0] == pytest.approx(100 * worse.mean())
    assert bootstrap(worse + 0.1, score) - found == pytest.approx(10)
    assert found[1:].std() == pytest.approx(100 * worse.std() / np.sqrt(60), rel=0.15)
    assert (resampled(7, 3) == resampled(7, 3)).all() and resampled(7, 3).max() < 7


def test_the_interval_of_a_mean_is_two_standard_errors_to_each_side():
    values = np.random.default_rng(1).normal(3, 1, 400)
    drawn = interval_of(bootstrap(values, lambda items: items.mean(axis=-1)))
    told = interval_of_means(values.mean(), values.std() / 20)
    assert drawn == pytest.approx(told, abs=0.02)
    assert interval_of_means(1.0, 0.3, 0.4) == pytest.approx((1, 0.02, 1.98))  # errors of two means: 0.5
    assert interval_of_means(1.0, 0.3, 0.4).told() == "+1.0 (+0.0 to +2.0), **holds**"
