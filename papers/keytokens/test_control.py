"""The control of key-token search, in small: its heads, what is measured, chosen and drawn, and its tables."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tiny_models import tiny_model, word_piece

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")

from papers.keytokens import control
from papers.keytokens.control import BOTH, HEAD, OWN, RANDOM, ROTATED
from papers.keytokens.heads import random_head, rotated_head
from papers.keytokens.index import Cell, searches
from pellucid import KeyTokenEmbedder
from pellucid.evaluation.tasks import find_tasks
from pellucid.keytokens import KeyTokenSettings
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.transformer.backbone import prepare


@pytest.fixture(scope="module")
def model():
    tokenizer = word_piece()
    headless = tiny_model("bert", len(tokenizer), headless=True)
    backbone = prepare(headless, tokenizer, attention="bidirectional", head_kind="input")
    return KeyTokenEmbedder(backbone, KeyTokenSettings(normalize=True, top_k=20))


def test_a_turned_head_has_the_lengths_and_angles_of_its_own_and_each_draw_another_direction(model):
    rows, first, second = model.head.rows(), rotated_head(model, 0), rotated_head(model, 1)
    assert first @ first.T == pytest.approx(rows @ rows.T, abs=1e-4)
    cosines = [(one * other).sum() / (rows**2).sum() for one, other in ((rows, first), (first, second))]
    assert np.abs(cosines).max() < 0.6
    drawn = random_head(model, 1)
    assert np.linalg.norm(drawn, axis=1) == pytest.approx(np.linalg.norm(rows, axis=1), rel=1e-5)
    assert not np.allclose(drawn, random_head(model, 0))


def test_a_sample_of_documents_has_all_right_ones():
    ids = [f"d{n}" for n in range(50)]
    chosen = control.sampled(ids, {"d3", "d40"}, 10)
    assert chosen == sorted(chosen) and len(set(chosen)) == 10 and {3, 40} <= set(chosen)
    assert control.sampled(ids, set(), 99) == list(range(50))


def test_a_grid_holds_each_querys_ndcg_of_each_cell_and_is_measured_once(model, tmp_path, monkeypatch):
    documents = ["the man is riding a horse", "a doctor gave the sick boy medicine", "swift cars"]
    folder = tmp_path / "retrieval/little"
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", ["horse", "boy medicine"])):
        lines = (json.dumps({"_id": f"{name}{n}", "title": "", "text": text}) for n, text in enumerate(texts))
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nqueries0\tcorpus0\t1\nqueries1\tcorpus1\t1\n")
    encoder = control.Encoder("tiny", "nowhere", model.settings, tmp_path / "work")
    encoder.__dict__["model"] = model
    cells = [Cell(OWN, 40, 0), Cell(BOTH, 40, 3)]
    monkeypatch.setattr(control, "CELLS", cells)
    monkeypatch.setattr(control, "_TOLD", cells)
    monkeypatch.setattr(control, "dense_hits", lambda rows, part: [{part.ids[0]: 1.0} for _ in rows[0]])
    little = control.Set(encoder, *find_tasks(tmp_path))
    found = little.grid(HEAD, 0, control.MEAN)
    rows = model.embed(["horse", "boy medicine"], role="query"), model.embed(documents, role="document")
    moved = model.with_adjustment(mean_adjustment(rows[1]))
    for line, (_, index, tokens) in zip(found, searches(moved, ["horse", "boy medicine"], rows, cells), strict=True):
        ranked = [[number for number, _ in index.hits(ids)] for ids in tokens]
        expected = [100 / np.log2(row.index(n) + 2) if n in row else 0 for n, row in enumerate(ranked)]
        assert line == pytest.approx(expected, abs=1e-3)
    monkeypatch.setattr(control, "searches", None)
    assert (little.grid(HEAD, 0, control.MEAN) == found).all()
    assert little.dense(control.NONE).tolist() == [100, 0] and little.tested == 2


class Two:
    """A set of two test queries and two of the training, whose scores are known."""

    tested = 2

    def dense(self, adjustment):
        return np.array([90, 90, 10, 10] if adjustment == control.NONE else [0, 0, 20, 20], np.float32)

    def bm25(self, name):
        return np.array([50, 50], np.float32)

    def grid(self, kind, draw, adjustment):
        found = np.zeros((len(control.CELLS), 4), np.float32)
        found[0, :2], found[7, 2:] = 80, 30 if adjustment == control.MEAN else 20  # cell 7 is K 1000 of "both"
        return found + (10 * draw)


def test_training_queries_alone_choose():
    chosen = control.choose(Two())
    assert chosen["dense"] == control.MEAN and control.CELLS[7].which == BOTH
    assert chosen[f"{HEAD} | {BOTH}"] == (control.MEAN, 7)
    two = Two()
    two.parts = [type("Part", (), {"ids": ["a"] * 9})]
    kept = control.measured(two, chosen, 2)
    assert kept["dense"] == [0, 0] and kept[f"{control.OURS} | {RANDOM} | {BOTH}"] == [[0, 0], [100, 100]]
    assert kept[f"{control.PAPERS} | {HEAD} | {OWN}"] == [[800, 800]]  # the best cell on the test queries


def test_an_interval_is_over_queries_and_draws():
    same = [[0, 1000] * 20]
    assert control.difference(same, same)[:3] == (0, 0, 0)
    apart = control.difference([[500] * 40], [[0] * 40, [1000] * 40])  # all of it is between the draws
    assert apart.value == 0 and apart.low == pytest.approx(-50) and apart.high == pytest.approx(50)


def test_the_part_of_the_page_is_drawn_from_what_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "KEPT", tmp_path)
    line = {HEAD: [[800] * 30], ROTATED: [[100] * 30] * 2, RANDOM: [[800] * 30] * 2}
    lines = [(kind, which) for kind in control.KINDS for which in control.WHICH]
    found = {
        f"{name} | {kind} | {which}": line[kind] for name in (control.OURS, control.PAPERS) for kind, which in lines
    }
    found |= {
        "documents": 9,
        "queries": 30,
        "dense": [900] * 30,
        control.PLAIN: [700] * 30,
        control.STEMMED: [710] * 30,
    }
    chosen = {key: "K 1,000, none" for key in ("dense", *(f"{a} | {b}" for a in control.KINDS for b in control.WHICH))}
    gained = [{"name": "one", "rate": 0.1, "gain": gain, "low": gain, "high": gain} for gain in (0.2, -0.1)]
    aligned = {"English | none": {"rate": 0.3, "controls": gained}}
    kept = {"words": 50, "chosen": chosen, "alignment": aligned, "sets": {"SciFact": found}}
    (tmp_path / "MiniLM.json").write_text(json.dumps(kept))
    figures = dict(control.figures())
    text = "\n".join(map(str, figures.values()))
    gains = "+70.0 (+70.0 to +70.0), **holds** | +0.0 (+0.0 to +0.0), unchanged |"
    assert f"| SciFact, own | 80.0 | 10.0 | 80.0 | {gains}" in text
    beside = "+10.0 (+10.0 to +10.0), **holds** | -10.0 (-10.0 to -10.0), **does not hold** |"
    assert f"| MiniLM on SciFact: both | 80.0 | {beside}" in text
    assert "| MiniLM, English | none | 30.0 | +20.0 (+20.0 to +20.0), **holds** | -10.0 (-10.0 to -10.0)," in text
    assert "than over random rows: unchanged in 2 of 2" in " ".join(text.split())
