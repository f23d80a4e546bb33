"""What a score means: how it is among those of unrelated texts."""

import pickle

import numpy as np
import pytest

from pellucid.core.background import MAX_WORDS, N_TEXTS, _texts
from pellucid.text.words import split_words

LONG = "The committee met on Monday to discuss the budget of the coming year, and no decision was made. " * 3


def test_texts_of_a_class_are_different_and_have_its_lengths():
    limits = [0, *MAX_WORDS, 1_000]
    for number in range(len(MAX_WORDS) + 1):
        lengths = [len(split_words(text)) for text in set(_texts(number))]
        assert len(lengths) == N_TEXTS and limits[number] < min(lengths) and max(lengths) <= limits[number + 1]


def test_a_score_is_placed_among_those_of_unrelated_texts_as_long(static):
    short, long = static.background("a loan", "a house"), static.background(LONG, LONG)
    assert len(short) == N_TEXTS * (N_TEXTS - 1) and (np.diff(short) >= 0).all()
    assert np.median(long) > np.quantile(short, 0.75)  # the means of many words are closer to each other
    related = static.explain("a loan for a house", "mortgage rates are rising")
    assert related.percentile == pytest.approx(
        100 * np.mean(static.background(*related.texts) < related.score), abs=0.1
    )
    assert related.percentile > 99 and "(higher than 99% of unrelated pairs): " in related.summary()
    weak = static.explain("the cat sat on the mat", "a quarterly report of earnings")
    assert weak.percentile < 95 and f"(weak: {100 - weak.percentile:.0f}% of unrelated pairs" in weak.summary()
    copied = pickle.loads(pickle.dumps(weak))
    assert copied.pair is None and copied.summary() == weak.summary() and copied.to_dict() == weak.to_dict()


@pytest.mark.parametrize("text", ["Der Hund schläft nicht auf dem Sofa.", "犬は眠っている"])
def test_nothing_is_said_of_texts_that_are_not_english(static, text):
    why = static.explain(text, "The dog sleeps on the sofa.")
    assert why.percentile is None and "unrelated" not in why.summary() and not len(static.background(*why.texts))


def test_nothing_is_said_of_one_text_of_a_difference_and_of_equal_texts(static):
    why = static.explain("a dog", "a cat")
    assert static.explain("a dog").percentile is None and (why - why).percentile is None
    assert "unrelated" not in static.explain("a dog", "a dog").summary()
