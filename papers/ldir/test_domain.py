"""Anchors resampled for a domain, and how far scores move."""

from __future__ import annotations

import numpy as np
import pytest

from papers.ldir.domain import Anchors, Row, drift, mean_row, resampled_anchors, words_in_common
from papers.ldir.readability import Corpus, paired
from papers.vector_cache import unit_rows

RANDOM = np.random.default_rng


def test_anchors_that_tell_a_domain_nothing_go_and_no_two_are_alike():
    axes = np.eye(6, dtype=np.float32)
    old = Anchors(["a", "b", "c"], axes[:3])
    rows = unit_rows(np.stack([axes[1] + sign * axes[2] for sign in (1, -1, 1, -1)]) + 0.5 * axes[3])
    found = Anchors(["c again", "d", "e"], axes[2:5])
    assert resampled_anchors(old, found, rows, 0.0).texts == ["a", "b", "c"]
    new = resampled_anchors(old, found, rows, 0.67)
    assert new.texts == ["c", "d", "e"]  # "c" alone varies, and comes no second time
    assert new.vectors == pytest.approx(axes[2:5])


def test_of_draws_the_mean_is_told_and_words_where_there_are_any():
    rows = [Row("", None, n, np.full(3, n), np.full((2, 4), 2 * n), None, None, 3 * n) for n in (1.0, 2.0)]
    mean = mean_row("floor", rows)
    assert (mean.name, mean.tried, mean.sts, mean.here) == ("floor", 1.5, 4.5, None)
    assert mean.tested == pytest.approx([1.5] * 3) and mean.words == pytest.approx(np.full((2, 4), 3.0))
    assert mean_row("floor", [row._replace(words=None) for row in rows]).words is None


def test_drift_is_none_between_equal_anchors():
    rows = unit_rows(RANDOM(4).normal(size=(50, 6)).astype(np.float32))
    one, other = (Anchors([], unit_rows(RANDOM(seed).normal(size=(4, 6)).astype(np.float32))) for seed in (0, 1))
    assert drift(one, one, (rows[:25], rows[25:])) == pytest.approx((1, 0), abs=1e-6)
    moved = drift(one, other, (rows[:25], rows[25:]))
    assert moved.correlation < 0.99 and moved.moved > 0.05


def test_a_text_is_paired_with_its_fifth_nearest():
    angles = np.linspace(0, 1, 300)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    found = paired([str(n) for n in range(300)], rows)
    assert found.left[0] == "0" and found.right[0] == "5"


def test_the_first_anchors_are_asked_for_words_of_the_texts():
    axes = np.eye(7, dtype=np.float32)
    texts = ["horses gallop", "rivers flood", "banks lend", "cats sleep", "dogs bark", "trains arrive", "clouds gather"]
    pairs, rows = Corpus(["A horse stood there."], ["It rained."]), [unit_rows(axes[:1] + 0.01)] * 2
    first, every = words_in_common(Anchors(texts, axes), pairs, rows)
    assert first == pytest.approx([20]) and every == pytest.approx([100 / 7])  # one of five, of seven
    assert (words_in_common(Anchors(texts[1:], axes[:6]), pairs, rows) == 0).all()
