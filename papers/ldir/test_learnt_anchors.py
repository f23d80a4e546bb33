"""Learnt anchors: what they are moved to, the sentences that stand in for them, and the table."""

from __future__ import annotations

import numpy as np
import pytest

from papers.kit import DRAWS
from papers.ldir import learnt_anchors as script
from papers.vector_cache import unit_rows


def test_moved_anchors_keep_more_of_the_cosines_than_those_they_start_from(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(script, "STEPS", 200)
    sentences = unit_rows(np.random.default_rng(0).normal(size=(300, 12)) * np.geomspace(1, 8, 12)).astype(np.float32)
    start = sentences[:8]
    learnt = script.moved(start, sentences, 0)
    kept = [unit_rows(sentences @ anchors.T) for anchors in (start, learnt)]
    wrong = [abs(rows @ rows.T - sentences @ sentences.T).mean() for rows in kept]
    assert wrong[1] < wrong[0] / 2 and np.linalg.norm(learnt, axis=1) == pytest.approx(1)
    assert np.array_equal(learnt, script.moved(start, sentences, 0))


def test_each_vector_has_a_sentence_of_its_own():
    sentences = np.eye(4, dtype=np.float32)
    vectors = np.array([[0.9, 0.4, 0, 0], [0.9, 0.3, 0.1, 0], [0.5, 0.4, 0.3, 0.2]], np.float32)
    assert script.nearest(vectors, sentences) == [0, 1, 2]


def test_a_row_is_the_mean_of_seeds_beside_others_of_its_number():
    def scores(value):
        return {"retrieval": {"npl": np.full(1 + DRAWS, value)}}

    rows = [
        {"n": n, "seed": seed, "scores": {script.FLOOR: scores(n / 100 + seed), script.FPS: scores(n / 50 + seed)}}
        for n in (250, 500)
        for seed in script.SEEDS
    ]
    table = script.scores_table(rows, scores(20.0))
    row = [table.cell("500 farthest points", f"retrieval{less}") for less in ("", ", more than half as many")]
    assert row == ["12.0", "+5.0 (+5.0 to +5.0), holds"]
    assert table.cell("500 farthest points", f"retrieval, more than {script.FLOOR}").startswith("+5.0")
    assert table.cell("500 farthest points", f"retrieval, more than {script.ENCODER}").endswith("does not hold")
    assert table.cell("250 farthest points", "retrieval, more than half as many") == "-"
    assert table.cell(script.ENCODER, "retrieval") == "20.0"
