"""Merging two vocabularies: against a world in which the right vectors are known."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.training.vocabulary import fit_space
from pellucid.text.words import Vocabulary
from recipes.merge_vocabularies import merge_vocabularies
from tables import random_table

WIDTH = 6


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def world():
    """Names and vectors of 300 words; what a word is about, its direction, tells how much it weighs."""
    rng = np.random.default_rng(0)
    units = unit(rng.normal(size=(300, WIDTH)))
    return [f"w{n}" for n in range(300)], (units * np.exp(units @ rng.normal(size=(WIDTH, 1)))).astype(np.float32)


def model_of(world, rows=slice(None)):
    return StaticEmbedder(Vocabulary(world[0][rows]), world[1][rows])


def test_a_turned_model_is_turned_back(world):
    names, vectors = world
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(WIDTH, WIDTH)))[0]
    first = model_of(world, slice(0, 200))
    second = StaticEmbedder(Vocabulary(names[100:]), (vectors[100:] @ turn * 5).astype(np.float32))
    made, quality = merge_vocabularies(first, second)
    assert list(made.vocabulary.words) == names and quality.words == 100
    np.testing.assert_array_equal(made.vectors[:100], vectors[:100])
    assert (unit(made.vectors[200:]) * unit(vectors[200:])).sum(axis=1).min() >= 0.99
    assert quality.cosine >= 0.99
    ratios = np.linalg.norm(made.vectors[200:], axis=1) / np.linalg.norm(vectors[200:], axis=1)
    assert np.median(ratios) == pytest.approx(1, abs=0.05)
    assert made.dimensions.names == first.dimensions.names
    kept, _ = merge_vocabularies(first, second, shared="first")
    np.testing.assert_array_equal(kept.vectors[:200], vectors[:200])
    np.testing.assert_array_equal(kept.vectors[200:], made.vectors[200:])


def test_shared_words_get_the_mean(world):
    names, vectors = world
    other = (vectors + np.random.default_rng(8).normal(size=vectors.shape)).astype(np.float32)
    made, _ = merge_vocabularies(model_of(world), StaticEmbedder(Vocabulary(names), other))
    mapping, _ = fit_space(other, vectors)
    np.testing.assert_allclose(made.vectors, (vectors + mapping(other)) / 2, atol=1e-5)


def test_models_of_different_width_merge_into_the_space_of_the_first(world):
    names, vectors = world
    wide = np.random.default_rng(9).normal(size=(WIDTH, 12))
    second = StaticEmbedder(Vocabulary(names[50:]), (vectors[50:] @ wide).astype(np.float32))
    made, _ = merge_vocabularies(model_of(world, slice(200)), second)
    assert made.vectors.shape == (300, WIDTH)
    assert (unit(made.vectors[200:]) * unit(vectors[200:])).sum(axis=1).mean() > 0.97


def test_models_that_cannot_be_merged(world):
    strange = StaticEmbedder(Vocabulary([f"x{n}" for n in range(100)]), np.ones((100, 40), np.float32))
    with pytest.raises(InputError, match=r"share 0 words.* at least 40 .*'w0', 'w1', 'w2'.*'x0'.*an ensemble"):
        merge_vocabularies(model_of(world), strange)
    with pytest.raises(InputError, match="share 10 words"):
        merge_vocabularies(model_of(world, slice(0, 60)), model_of(world, slice(50, 90)))
    with pytest.raises(InputError, match="'second'; it is 'mean' or 'first'"):
        merge_vocabularies(model_of(world), model_of(world), shared="second")
    with pytest.raises(InputError, match="needs a static model"):
        merge_vocabularies(model_of(world), random_table())
