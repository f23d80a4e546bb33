"""Removing a direction: no vector has it, reasons follow, and a SentenceTransformer stays one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.core.pca import projection
from pellucid.dense.concepts import ConceptReasons
from pellucid.dense.words import Fit, WordReasons
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

WORDS = ["ba", "bo", "bi", "da", "do"]


def table():
    return StaticEmbedder(Vocabulary(WORDS), np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32))


def by_words(texts):
    """Return vectors of eight dimensions that depend on the words, and on the length."""
    matrix = np.random.default_rng(1).normal(size=(6, 8))
    return table().encode(list(texts)) @ matrix + 0.1 * np.array([[len(text) % 3] * 8 for text in texts]) + 0.05


@pytest.fixture(scope="module")
def model():
    matrix = np.random.default_rng(1).normal(size=(6, 8))
    words = WordReasons(table(), {"map": matrix, "common": np.full(8, 0.05)}, Fit("table", 1, 1.0), {})
    return pellucid.load(by_words).with_reasons(words)


TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


@given(TEXTS, TEXTS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True))
def test_no_vector_has_a_removed_direction_and_reasons_add_up(model, first, second, removed):
    without = model.without_direction(*removed)
    directions = model.similarity_rows(model.encode(removed)) - model.reasons.common
    assert np.abs(without.encode([first, second]) @ directions.T).max() < 1e-5
    why = without.explain(first, second)
    assert why.score == pytest.approx(
        without.similarity(*(without.encode([t]) for t in (first, second))).item(), abs=1e-6
    )
    assert sum(row.contribution for row in why.rows) + why.remainder == pytest.approx(why.score, abs=1e-9)
    parts = [without.analyze(text).parts.vectors for text in (first, second)]
    assert max(np.abs(rows @ directions.T).max(initial=0) for rows in parts) < 1e-5  # no word has it either
    concepts = ConceptReasons.from_texts(model, WORDS, ["ba bo do", "bi da"])
    follow = model.with_reasons(concepts).without_direction(removed[0])
    direction = model.similarity_rows(model.encode(removed[:1]))[0] - concepts.common
    assert np.abs(follow.reasons.directions @ direction).max() < 1e-4 * np.linalg.norm(direction)


def test_a_projection_by_hand():
    np.testing.assert_allclose(
        projection(np.array([[2.0, 0, 0], [1, 1, 0]]), ["a", "b"]), np.diag([0, 0, 1]), atol=1e-9
    )
    np.testing.assert_allclose(projection(np.array([[0, 3.0]]), ["a"]), np.diag([1, 0]), atol=1e-9)


def test_a_concept_that_is_removed_is_gone(model):
    reasons = ConceptReasons.from_texts(model, WORDS, ["ba bo", "do"])
    without = model.with_reasons(reasons).without_direction("bi")
    assert without.reasons.names == ["ba", "bo", "da", "do"]
    assert "bi" in reasons.names


def test_refusals(model):
    with pytest.raises(InputError, match="no text is given"):
        model.without_direction()
    with pytest.raises(InputError, match="'ba' has no direction"):
        model.without_direction("ba", "ba")
    with pytest.raises(InputError, match="2 directions take all 2 dimensions"):
        projection(np.eye(2), ["a", "b"])


def test_roles_of_a_function_are_kept():
    class Roles:
        def __call__(self, texts):
            return by_words(texts)

        def encode_query(self, texts):
            return 2 * by_words(texts) + 1

    model = pellucid.load(Roles(), fit=True).with_reasons(None)
    without = model.without_direction("ba")
    assert without.name == model.name
    np.testing.assert_array_equal(without.encode_document("ba bo"), without.encode("ba bo"))
    assert np.abs(without.encode_query("ba bo") - without.encode("ba bo")).max() > 0.1


@pytest.mark.parametrize("normalize", [False, True])
def test_a_sentence_transformer_stays_one_and_is_saved(tmp_path: Path, normalize):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from tiny_models import tiny_transformer

    model = pellucid.load(tiny_transformer(tmp_path / "bert", normalize=normalize)).with_reasons("tokens")
    before = model.encode(["the cat sat"])
    without = model.without_direction("river bank")
    direction = model.similarity_rows(model.encode(["river bank"])) - model.reasons.common
    for encode in (without.encode, without.encode_query):
        rows = encode(["the cat sat", "a loan of the bank"])
        assert np.abs(rows @ direction[0]).max() < 1e-5 * max(1, np.abs(rows).max())
    np.testing.assert_array_equal(model.encode(["the cat sat"]), before)
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(without.encode(["the cat sat"]), axis=1), 1, atol=1e-5)
    why = without.explain("the cat sat", "the bank")
    assert sum(row.contribution for row in why.rows) == pytest.approx(why.score, abs=1e-6)
    concepts = ConceptReasons.from_texts(without, ["cat", "loan"], ["the mat", "a river"])
    without.with_reasons(concepts).save_pretrained(tmp_path / "saved")
    stock = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(stock.encode(["the cat sat"]), without.encode(["the cat sat"]), atol=1e-6)
    again = pellucid.load(tmp_path / "saved")
    assert again.reasons.names == ["cat", "loan"]
    assert again.explain("the cat", "a loan") == without.with_reasons(concepts).explain("the cat", "a loan")
    without.save_pretrained(tmp_path / "saved")  # without concepts
    assert not (tmp_path / "saved" / "concepts").exists()


@pytest.mark.full
def test_what_sets_pairs_apart_is_removed_from_a_sentence_transformer_and_stays_so(tmp_path: Path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from tiny_models import tiny_transformer

    model = pellucid.load(tiny_transformer(tmp_path / "bert", normalize=True)).with_reasons("tokens")
    pairs = [("the cat", "the dog"), ("a cat sat", "a dog sat"), ("my cat", "my dog")]
    without = model.without_direction(*pairs, n_directions=2)
    without.save_pretrained(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved")
    stock = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    texts = ["the cat sat on the mat", "a dog"]
    np.testing.assert_allclose(stock.encode(texts), without.encode(texts), atol=1e-6)
    rows = [model.similarity_rows(model.encode(list(side))) for side in zip(*pairs)]
    differences = (rows[0] - rows[1]) / np.linalg.norm(rows[0] - rows[1], axis=1, keepdims=True)
    directions = np.linalg.svd(differences)[2][:2]
    assert np.abs(directions @ again.encode(texts).T).max() < 1e-5
    why = without.explain(*texts)
    assert sum(row.contribution for row in why.rows) == pytest.approx(why.score, abs=1e-6)
    with pytest.raises(pellucid.errors.InputError, match="n_directions is 3; it counts the directions of pairs"):
        model.without_direction("cat", n_directions=3)


def test_pairs_do_not_make_reasons_be_fitted(monkeypatch):
    def refuse(*_):
        raise AssertionError("thousands of texts would be encoded")

    monkeypatch.setattr("pellucid.dense.embedder.words_for", refuse)
    without = pellucid.load(by_words, fit=True).without_direction(("ba", "bo"))
    first, second = (np.asarray(by_words([word])[0], np.float64) for word in ("ba", "bo"))
    direction = first / np.linalg.norm(first) - second / np.linalg.norm(second)
    assert abs(without.encode("da do") @ direction) < 1e-5
