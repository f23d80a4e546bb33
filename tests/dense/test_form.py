"""Directions of a vector that say the form of a text: they are common, and no word is credited with them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.vectors import form_directions, text_form
from pellucid.explain.rows import SHARED, WORD_PAIR
from test_words import NAMES, Shadow, sentences, table

DIRECTION = np.eye(24)[3]


class LongShadow(Shadow):
    """A shadow whose vectors say, too, how long a text is."""

    def __call__(self, texts):
        lengths = np.log([max(len(text), 1) for text in texts])
        return super().__call__(texts) + 0.6 * np.outer(lengths, DIRECTION)


def fitted(shadow):
    model = pellucid.load(shadow)
    model.fit_reasons(sentences(), table=table())
    return model


@pytest.fixture(scope="module")
def long_shadow():
    return fitted(LongShadow(noise=0.05))


def held_out(count):
    return np.arange(count) % 8 == 0


def test_the_direction_of_length_is_found_and_no_other():
    texts = sentences()
    plain, long = (shadow(texts) for shadow in (Shadow(noise=0.05), LongShadow(noise=0.05)))
    assert len(form_directions(texts, plain - plain.mean(axis=0), held_out(len(texts)))) == 0
    (direction,) = form_directions(texts, long - long.mean(axis=0), held_out(len(texts)))
    assert abs(direction @ DIRECTION) > 0.9 and direction @ direction == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("count", [200, 600])
@pytest.mark.parametrize("seed", range(3))
def test_chance_and_equal_texts_or_vectors_are_no_form(count, seed):
    rows = np.random.default_rng(seed).normal(size=(count, 24))
    for texts, vectors in ((sentences(count), rows), (["ba"] * count, rows), (sentences(count), 0 * rows)):
        assert len(form_directions(texts, vectors - vectors.mean(axis=0), held_out(count))) == 0


@given(st.text())
def test_the_form_of_any_text_is_finite(text):
    features = text_form(text)
    assert len(features) == 6 and np.isfinite(features).all()
    assert all(0 <= share <= 1 for share in features[1:])


def test_words_of_other_texts_are_not_credited_with_the_length(long_shadow):
    """Long texts of other words than those of the vectors: what they share is that they are long."""
    rng = np.random.default_rng(5)
    texts = [" ".join(rng.permutation(NAMES)[:12]) for _ in range(60)]
    vectors, sums = long_shadow.encode(texts), Counter()
    for n in range(0, 60, 2):
        words = texts[(n + 20) % 60], texts[(n + 31) % 60]
        why = long_shadow.explain_vectors(words[0], vectors[n], words[1], vectors[n + 1])
        for row in why.rows:
            sums[row.kind] += row.contribution
    score = sums.total()  # the rows of a pair add up to its score
    assert sums[SHARED] > 0.9 * score and abs(sums[WORD_PAIR]) < 0.03 * score


def test_a_form_is_saved(long_shadow, tmp_path):
    long_shadow.reasons.save_pretrained(tmp_path / "reasons")
    again = EncoderEmbedder(LongShadow(noise=0.05), tmp_path / "reasons")
    assert again.explain("ba be", "bo") == long_shadow.explain("ba be", "bo")
