"""The paper's training to the letter: which sentences it draws, Adam by hand, and a stopped run that goes on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.persistence.checkpoints import WorkFolder
from pellucid.static.bags import Bags

pytest.importorskip("torch")


def bags_of(sentences):
    rows = np.array([row for sentence in sentences for row in sentence], np.int64)
    return Bags(rows, np.cumsum([0, *map(len, sentences)]).astype(np.int64))


@pytest.fixture(scope="module")
def recipe():
    from papers.swe import paper_recipe

    return paper_recipe


@given(
    st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=30),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_sentences_of_a_word_hold_it_and_are_different(sentences, least, count, seed):
    from papers.swe.paper_recipe import sentences_by_word

    drawn = sentences_by_word(bags_of(sentences), least, count, seed)
    holders = {word: {n for n, row in enumerate(sentences) if word in row} for word in range(9)}
    words = [word for word, held in holders.items() if len(held) >= max(least, count)]
    assert drawn.shape == (len(words), count)
    for word, row in zip(words, drawn.tolist(), strict=True):
        assert len(set(row)) == count and set(row) <= holders[word]


def random_training(recipe, folder, work):
    random = np.random.default_rng(0)
    bags = bags_of([random.integers(0, 40, 6).tolist() for _ in range(400)])
    teacher = random.normal(size=(400, 8))
    teacher = (teacher / np.linalg.norm(teacher, axis=1, keepdims=True)).astype(np.float16)
    return recipe.Training(bags, teacher, random.normal(size=(40, 5)).astype(np.float32), work)


def test_no_held_out_sentence_is_trained_on(recipe, tmp_path):
    with WorkFolder(tmp_path / "work") as work:
        train, held_out = recipe.split(random_training(recipe, tmp_path, work).bags)
    assert len(train) and len(held_out) and not set(train) & set(held_out)


def test_a_stopped_run_goes_on_to_the_same_table(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "CHUNK_STEPS", 3)
    monkeypatch.setattr(recipe, "BATCH_SENTENCES", 8)
    monkeypatch.setattr(recipe, "PATIENCE_CHUNKS", 100)
    with WorkFolder(tmp_path / "whole") as work:
        whole = random_training(recipe, tmp_path, work)
        best = whole.run(12)
    for steps in (6, 12):
        with WorkFolder(tmp_path / "parts") as work:
            part = random_training(recipe, tmp_path, work)
            again = part.run(steps)
    assert (again == best).all()
    assert (part.words.weight.detach() == whole.words.weight.detach()).all() and part.best_loss == whole.best_loss


def test_a_run_without_gain_ends(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "CHUNK_STEPS", 2)
    monkeypatch.setattr(recipe.Training, "loss", lambda self, sentences: self.words.weight.sum() * 0 + 1)
    with WorkFolder(tmp_path / "work") as work:
        training = random_training(recipe, tmp_path, work)
        training.run(1000)
    assert training.chunk == 1 + recipe.PATIENCE_CHUNKS
