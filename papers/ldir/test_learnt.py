"""Weights learnt over anchors, and the samples that they are judged by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from papers.kit import resampled
from papers.ldir import learnt as learning
from papers.ldir.learnt import KINDS, Kind, Material, Pairs, rooted
from papers.ldir.scored import beginnings, drawn_counts, ranks_of, spearman
from papers.vector_cache import unit_rows
from pellucid import AnchorEmbedder

RANDOM = np.random.default_rng


def test_correlations_of_samples_are_those_of_the_items_drawn():
    ones = np.round(RANDOM(0).normal(size=80), 1)  # with ties
    others = np.round(ones + RANDOM(1).normal(size=80), 1)
    counts = drawn_counts(80)
    found = spearman(ranks_of(ones, counts), ranks_of(others, counts), counts)
    assert found[0] == pytest.approx(spearmanr(ones, others)[0])
    for sample, drawn in zip(found[1:20], resampled(80)):
        assert sample == pytest.approx(spearmanr(ones[drawn], others[drawn])[0])
    assert not spearman(ranks_of(np.ones(80), counts), ranks_of(others, counts), counts).any()


def test_only_the_beginning_of_a_document_is_read():
    assert beginnings(["a b  c d", "e"], 3) == ["a b c", "e"]


def pairs_told_apart_by_the_first_half(count, seed):
    """Pairs that agree in four columns of eight; the others are noise."""
    random = RANDOM(seed)
    left, right = (random.normal(size=(count, 8)).astype(np.float32) for _ in range(2))
    right[:, :4] = left[:, :4] + 0.3 * random.normal(size=(count, 4))
    return Pairs(unit_rows(left), unit_rows(right), np.eye(count, dtype=bool))


@pytest.fixture
def material():
    return Material([pairs_told_apart_by_the_first_half(300, 0)], [pairs_told_apart_by_the_first_half(200, 1)])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.imitates], ids=lambda kind: kind.name)
def test_weights_learnt_from_pairs_find_what_tells_them_apart(material, kind, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(learning, "STEPS", 60)
    start = np.eye(8, dtype=np.float32)
    matrix, chosen = learning.learnt(start, material, Kind(kind.name, kind.rank and 2, False, 0.03))
    assert chosen > learning.chosen_by(material.choose, start) + 3
    weights = (matrix**2).sum(axis=0)
    assert weights[:4].min() > weights[4:].max()


def test_weights_learnt_from_cosines_undo_those_of_the_start(material, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(learning, "STEPS", 240)
    start = np.diag(np.array([0.2, 0.5, 1, 1, 1, 1, 2, 3], np.float32))
    matrix, _ = learning.learnt(start, material, Kind("", 0, True, 0.02))
    before, after = np.diag(start), np.diag(matrix)
    assert np.log(after).std() < 0.5 * np.log(before).std()


def test_nothing_is_taken_that_is_no_better_on_the_pairs_to_choose_on(material, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(learning, "STEPS", 30)
    start = np.diag(np.array([1, 1, 1, 1, 1e-4, 1e-4, 1e-4, 1e-4], np.float32))
    noise = [part._replace(right=part.right[::-1].copy()) for part in material.learn]
    matrix, _ = learning.learnt(start, Material(noise, material.choose), Kind("", 0, False, 0.3))
    assert (matrix == start).all()


def test_the_root_of_a_metric_gives_its_scores():
    random = RANDOM(3)
    start, logs, columns = (random.normal(size=shape).astype(np.float32) for shape in ((6, 4), 6, (6, 2)))
    rows = random.normal(size=(5, 4)).astype(np.float32)
    metric = np.diag(np.exp(2 * logs)) + columns @ columns.T
    wanted = rows @ start.T @ metric @ start @ rows.T
    coordinates = rows @ rooted(start, logs, columns).T
    assert coordinates @ coordinates.T == pytest.approx(wanted, rel=1e-4)
    assert rooted(start, logs, columns[:, :0]) == pytest.approx(np.exp(logs)[:, None] * start)


def test_weights_are_applied_as_scale_does():
    vectors = {text: RANDOM(n).normal(size=3).astype(np.float32) for n, text in enumerate(["a b", "c d"])}
    model = AnchorEmbedder(lambda texts: np.stack([vectors[text] for text in texts]), list(vectors))
    factors = np.array([0.5, 3], np.float32)
    scaled = model.scale(dict(enumerate(factors.tolist())))
    assert scaled.vectors == pytest.approx(rooted(model.vectors, np.log(factors), np.zeros((2, 0), np.float32)))
