"""Heads trained on labels, and anchors over a third encoder: what is asked, what is learnt, what is compared."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from papers.kit import MIN_SEEDS
from papers.ldir.labelled_questions import KEPT_BACK, Labelled, labelled, models, trained_heads, wording
from papers.ldir.third_encoder import scored
from papers.vector_cache import unit_rows


@pytest.fixture
def given():
    """Two sets of two labels each, and texts of none; a row is its label's axis and some noise."""
    names = [f"{kind}: {label}" for kind in ("A", "B") for label in ("x_y", "z")]
    rows = np.repeat(np.eye(5, dtype=np.float32), 60, axis=0)
    rows += 0.1 * np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    answers = np.repeat(np.eye(5, 4, dtype=bool), 60, axis=0)
    sets = ["A"] * 120 + ["B"] * 120 + [""] * 60
    return Labelled([f"text {n}" for n in range(300)], sets, names, answers), unit_rows(rows)


def test_heads_answer_what_can_be_told_and_are_judged_on_texts_kept_back(given):
    texts, rows = given
    heads = trained_heads(texts, rows)
    assert heads.areas == pytest.approx(1) and (heads.odds(rows) > 0)[texts.answers].mean() > 0.99
    kept = np.random.default_rng(1).permutation(len(rows)) % KEPT_BACK == 0
    wrong = texts._replace(answers=texts.answers.copy())
    wrong.answers[kept] = ~wrong.answers[kept]
    judged = trained_heads(wrong, rows)
    assert np.array_equal(judged.matrix, heads.matrix) and judged.areas == pytest.approx(0)


def test_every_model_gives_one_coordinate_a_question(given):
    texts, rows = given

    def encode(some):
        return np.array([rows[int(text.split()[1]) % 300] if text.startswith("text") else rows[0] for text in some])

    found = dict(models(texts, trained_heads(texts, rows), encode))
    widths = {name: np.shape(apply(rows[:7])) for name, apply in found.items() if name.startswith("4 heads")}
    assert len(widths) == 3 and set(widths.values()) == {(7, 4)}
    middle = found["4 heads: log odds, less the mean"](rows).mean(axis=0)
    assert middle == pytest.approx(0, abs=1e-4)


def test_questions_are_of_the_training_parts_alone(tmp_path, monkeypatch):
    import papers.ldir.labelled_questions as module

    class Task:
        name = "TinyClassification"

        def file(self, name):
            assert name == "train.tsv"
            return tmp_path / name

    (tmp_path / "train.tsv").write_text("text\tlabel\na card\tlost_card\na fee\tfee\n")
    monkeypatch.setattr(module, "SETS", ("TinyClassification",))
    monkeypatch.setattr(module, "find_tasks", lambda data: [Task()])
    monkeypatch.setattr(module, "random_sentences", lambda corpus, count: ["other text"])
    found = labelled(tmp_path)
    assert found.questions == ["Tiny: fee", "Tiny: lost_card"] and found.sets == ["Tiny", "Tiny", ""]
    assert wording(found.questions[1]) == "Is this text about lost card?"
    rows = {text: answers.tolist() for text, answers in zip(found.texts, found.answers)}
    assert rows == {"a card": [False, True], "a fee": [True, False], "other text": [False, False]}


def test_of_draws_with_one_name_the_mean_is_scored():
    class Tests:
        def sts(self, apply):
            return {"set": np.full(1001, float(apply(np.ones((1, 1)))[0, 0]), np.float32)}

    maps = [("floor", lambda rows: 1 * rows), ("anchors", lambda rows: 5 * rows), ("floor", lambda rows: 2 * rows)]
    found = scored(Tests(), maps)
    assert [name for name, _ in found] == ["floor", "anchors"]
    assert [samples["set"][0] for _, samples in found] == [1.5, 5]


def test_anchors_over_a_third_encoder_are_read_with_and_without_the_mean(monkeypatch):
    import papers.ldir.third_encoder as module

    texts = [f"text {n}" for n in range(6)]
    monkeypatch.setattr(module, "SIZES", (2, 4))
    monkeypatch.setattr(module, "bundled_anchors", lambda name: texts[: int(name.split("-")[-1])])
    monkeypatch.setattr(module, "random_sentences", lambda corpus, count: texts[::-1])
    vectors = dict(zip(texts, np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)))
    every = list(module.models(lambda some: np.array([vectors[text] for text in some]), None))
    found = {m.name: m for m in every}
    floors = [m.matrix for m in every if m.name == "4 random directions"]
    assert len(floors) == len({matrix.tobytes() for matrix in floors}) == MIN_SEEDS
    assert len(found) == 2 + 2 * 2 * 3 * 2 + 2 * 2
    plain, less = found["4 anchors"], found["4 anchors, less the mean"]
    sample = unit_rows(np.array(list(vectors.values())))
    assert plain.matrix == pytest.approx(sample[:4]) and plain.faithful == pytest.approx(1) and plain.mean == 0
    assert (sample @ less.matrix.T - less.mean).mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert found["4 anchors, decorrelated at 1"].faithful < 1
