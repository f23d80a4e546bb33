"""The script of the lexicon ablation: its split, its sets, its runs and its page."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from papers.kit import Verdict

pytest.importorskip("sentence_transformers")


@pytest.fixture
def script(opened):
    return opened("papers.lens.ablation")


def test_development_pairs_share_no_sentence_with_training(script):
    pairs = [
        ("A cat", "One cat"),
        ("a CAT!", "The cat"),
        ("A dog", "One dog"),
        ("Two", "2 of them"),
        ("2 of them", "b"),
    ]
    chosen, others = script.divided(pairs, 2)
    assert chosen == [("A cat", "One cat"), ("A dog", "One dog")]
    assert others == [("Two", "2 of them"), ("2 of them", "b")]


def test_a_query_has_all_its_paraphrases(script):
    rows = script.queries_of([("a", "b"), ("c", "d"), ("a", "e")])
    assert [(row.query, row.pos) for row in rows] == [("a", ("b", "e")), ("c", ("d",))]


def test_sets_are_parts_of_the_test_files(script, shared):
    sizes = {name: len(script.scored_pairs(shared / "data", name)[2]) for name in script.SETS}
    assert list(sizes.values()) == [750, 750, 750, 450, 375, 375]
    firsts, seconds, scores = script.scored_pairs(shared / "data", "STS12 MSRvid")
    assert not {"A man with a hard hat is dancing."} - {*firsts, *seconds}
    assert scores.min() >= 0 and scores.max() <= 5


def test_every_model_is_planned_once_and_the_first_seed_first(script):
    runs = script.planned(2)
    assert len({*runs}) == len(runs) == 10 + 2 * 15
    assert [run.seed for run in runs] == sorted(run.seed for run in runs) and not runs[0].seed
    first, plain = script.Run("uni", "last", 8000), script.Run("bi", "max", None, taught=False)
    assert {first, replace(first, seed=1), replace(first, taught=False, trained=False), plain} <= {*runs}


def result(script, run, score):
    return {**asdict(run), "scores": dict.fromkeys(script.SETS, score), "development": 50.0, "seconds": 60.0}


def paper_like(script, scale, seeds=2):
    """Results in the paper's order, the differences times `scale`."""
    found = []
    for run in script.planned(seeds):
        score = 60 + scale * (script.PAPER[run.attention, run.pooling][0] - 60)
        better = {None: 0, 1000: 1, 2000: 2, 4000: 3, 8000: 4}[run.k]
        taught = (0.5 if run.k else -0.5) if run.taught else 0
        found.append(result(script, run, score + scale * (better + taught) / 100 + run.seed))
    return found


def test_a_paper_like_outcome_holds_with_seeds_enough(script):
    figures = dict(script.figures(paper_like(script, 1, 5)))
    written = "\n".join(map(str, figures.values()))
    assert figures["counts"] == "Table 5: 9 of 9 holds; Figure 3: 9 of 9 holds"
    assert "| both ways | max | 69.07 (1) | 88.92 (3) |" in written
    assert "+0.42 / -0.54 | +0.4 (+0.4 to +0.4)" in written
    assert "71.1 ± 1.6 (1)" in written


def test_few_seeds_decide_nothing(script):
    figures = dict(script.figures(paper_like(script, 1)))
    assert "Table 5: 9 of 9 undecided" in figures["counts"]
    assert "undecided, 2 of 2 above" in str(figures["findings"])


def test_the_opposite_outcome_is_not(script):
    figures = dict(script.figures(paper_like(script, -1, 5)))
    assert "Table 5: 9 of 9 does not hold" in figures["counts"]


def test_seeds_that_disagree_leave_a_finding_open(script):
    assert script.judge([0.1] * 4) is script.judge([0.1] * 4 + [-0.1]) is Verdict.UNDECIDED
    assert script.judge([0.1] * 5) is Verdict.HOLDS
    assert script.judge([-0.1] * 4 + [0.0]) is Verdict.DOES_NOT_HOLD


def test_a_run_is_kept(script, tmp_path, monkeypatch):
    run = script.Run("bi", "max", 8000)
    bench = script.Bench.__new__(script.Bench)
    bench.sets = {"STS12 MSRvid": (["a", "b", "c"], ["a", "b", "d"], np.array([2.0, 1.0, 0.0]))}
    bench.development = [("a", "b"), ("c", "d")]
    axes = {"a": [1, 0, 0], "b": [0.8, 0.6, 0], "c": [0, 0, 1], "d": [0.1, 0, 0.9]}

    def encode(texts):
        return sparse.csr_array([axes[text] for text in texts])

    monkeypatch.setattr(bench, "_model", lambda run: SimpleNamespace(encode=encode), raising=False)
    runs = script.Experiment(script.Bench.result, [asdict(run)])
    (first,) = runs.rows(script.Kept(tmp_path / "run-0.jsonl"), bench)
    assert first["scores"]["STS12 MSRvid"] == pytest.approx(86.6, abs=0.1)  # the first two are alike: one tie of three
    assert first["development"] == 100 and script.Run(**asdict(run)) == run
    monkeypatch.setattr(bench, "_model", None, raising=False)
    assert runs.rows(script.Kept(tmp_path / "run-1.jsonl"), bench) == [first]
