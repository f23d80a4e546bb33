"""Measured reasons: Shapley values by hand and by brute force, what they add up to, and how many texts they take."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pellucid
from pellucid.core.removal import (
    EMPTY_PASSAGE,
    MAX_EXACT_PLAYERS,
    MAX_VARIANTS,
    Passage,
    coalitions,
    fewest_removals,
    passage_terms,
    players_of,
    without,
)
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.measured import MeasuredReasons
from pellucid.explain.rows import WORD_PAIR
from pellucid.text.words import split_words
from refusals import refused

D = 12


class Tangled:
    """An encoder in which words act on each other: each vector is turned by the word before it."""

    def __init__(self):
        self.calls = []

    def __call__(self, texts):
        self.calls.append(list(texts))
        return np.array([self.vector(text) for text in texts])

    def vector(self, text):
        total, before = np.full(D, 0.3), 0
        for word in split_words(text):
            number = sum(map(ord, word.text.lower()))
            total = total + np.roll(np.random.default_rng(number).normal(size=D), before % D)
            before = number
        return total


def measured(function=None):
    """A model whose mean of texts is known, so that nothing is encoded for it."""
    model = pellucid.load(function or Tangled())
    return model.with_reasons(MeasuredReasons(EncoderEmbedder(model.model), np.linspace(-0.1, 0.2, D)))


def brute_force(value, n):
    """Shapley values by going through every order."""
    total = np.zeros((n, *np.shape(value(()))))
    for order in itertools.permutations(range(n)):
        for k, player in enumerate(order):
            total[player] += value(tuple(sorted(order[: k + 1]))) - value(tuple(sorted(order[:k])))
    return total / math.factorial(n)


@given(st.integers(0, 9), st.integers(2, 4), st.integers(0, 99))
def test_values_add_up_and_of_few_players_are_those_of_all_orders(n, n_pairs, seed):
    sets = coalitions(n, n_pairs, seed)
    assert not sets.members[0].any() and sets.members[-1 if n == 0 else 1].all()
    assert len({row.tobytes() for row in sets.members}) == len(sets.members) <= max(2**5, 2 * n_pairs * (n - 1) + 2)
    of_sets = np.random.default_rng(seed).normal(size=(len(sets.members), 3))
    values, estimates = sets.values(of_sets)
    assert values.sum(axis=0) == pytest.approx(of_sets[1] - of_sets[0] if n else np.zeros(3))
    assert np.allclose(estimates.sum(axis=1), values.sum(axis=0))
    if n <= MAX_EXACT_PLAYERS:
        known = {tuple(np.flatnonzero(row).tolist()): value for row, value in zip(sets.members, of_sets)}
        assert np.allclose(values, brute_force(known.__getitem__, n))
        assert len(estimates) == 1


@given(st.integers(6, 9), st.integers(0, 99))
def test_what_words_add_by_themselves_is_found_exactly(n, seed):
    own = np.random.default_rng(seed).normal(size=n)
    sets = coalitions(n, 2, seed)
    values, estimates = sets.values(sets.members @ own + 2.0)
    assert np.allclose(values, own) and np.allclose(estimates, own)


def passage(text, score):
    words = [(word.start, word.end) for word in split_words(text)]
    return Passage(text, words, score(text), lambda texts: np.array([score(one) for one in texts]))


def test_a_game_of_two_words_by_hand():
    """Either word alone gives 1, both give 0, none gives 0.25: each gets half of what both lower it by."""
    terms = passage_terms(passage("left right", lambda text: {0: 0.25, 1: 1.0, 2: 0.0}[len(text.split())]))
    rows = [terms.row(n) for n in range(3)]
    assert [(row.name, row.spans2) for row in rows] == [
        ("left", ((0, 4),)), ("right", ((5, 10),)), (EMPTY_PASSAGE, ()),
    ]  # fmt: skip
    assert (terms.values, terms.measurement) == (pytest.approx([-0.125, -0.125, 0.25]), (3, 0.0))


WORDS = ["dog", "bites", "man", "not", "the", "Dog", "house,", "日本", "é", "run."]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


def test_few_words_get_what_all_orders_of_both_texts_give():
    model = measured()
    one, other = "dog bites man", "the man runs home"
    why, common = model.explain(one, other), model.reasons.common

    def shapley(words):
        def value(members):
            vector = model.model.vector(" ".join(words[n] for n in members))
            return vector / np.linalg.norm(vector) if members else common

        return dict(zip(words, brute_force(value, len(words))))

    first, second = shapley(one.split()), shapley(other.split())
    found = {row.parts: row.contribution for row in why.rows if row.kind == WORD_PAIR}
    assert found == pytest.approx({(a, b): first[a] @ second[b] for a in first for b in second}, abs=1e-6)
    assert why.measurement is not None and why.measurement.standard_error == 0


def test_the_standard_error_is_the_spread_of_other_draws():
    one, other = "dog bites man in the house not far", "the man runs home to his old dog again"
    reasons, values, errors = measured().reasons, [], []
    first, second = reasons.encoder.encode([one, other], normalize_embeddings=True).astype(np.float64)
    whole = second - reasons.common
    for n in range(60):  # other blanks, other orders
        parts = reasons.parts(one + " " * n, None, first)
        values.append(parts.vectors @ whole)
        errors.append(reasons.measurement(parts, whole).standard_error)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.sqrt(np.mean(np.var(values, axis=0))), rel=0.25)


def test_the_variants_of_a_text_are_encoded_together_each_once_and_their_number_is_said():
    encoder = Tangled()
    model = measured(encoder)
    one, other = "one two three four five six seven", "other words"
    why = model.explain(one, other)
    calls = [call for call in encoder.calls if len(call) > 1]  # the others encode the texts themselves
    assert [len(call) for call in calls] == [len(set(call)) for call in calls] and len(calls) == 2
    n_texts = sum(map(len, calls))
    assert why.measurement is not None and why.measurement.n_texts == n_texts <= 2 * 3 * 6 + 1 + 3
    for shown in (str(why), why.to_html()):
        assert f"{n_texts} texts read" in " ".join(shown.split())
    assert len(encoder.calls[4]) <= 12 and set(map(len, encoder.calls[5:])) == {60}  # checked, among others; once


def test_a_function_is_asked_for_some_hundred_sentences_at_most():
    encoder = Tangled()
    model = pellucid.load(encoder).with_reasons("measured")
    model.explain("dog bites man", "man bites dog")
    first = sum(map(len, encoder.calls))
    assert first < 1_000
    model.explain("dog bites man", "man bites cat")
    model.with_reasons(None).with_reasons("measured").explain("dog bites man", "man bites cow")
    assert sum(map(len, encoder.calls)) - first <= 4 * 8


@given(st.integers(0, 400), st.sampled_from([". ", ", ", " ", "\n", "。"]), st.integers(1, 30))
def test_long_texts_are_left_out_in_a_bounded_number_of_phrases(n_words, mark, most):
    text = "".join(f"word{n}{mark if n % 7 == 6 else ' '}" for n in range(n_words))
    words = [(word.start, word.end) for word in split_words(text)]
    players = players_of(text, words, most)
    assert len(players) <= most and [span for player in players for span in player] == words


def test_a_long_text_takes_a_bounded_number_of_texts():
    encoder = Tangled()
    why = measured(encoder).explain(" ".join(f"Sentence {n} is about thing {n} here." for n in range(40)), "thing")
    assert len(encoder.calls[0]) <= MAX_VARIANTS + 1
    assert sum(row.contribution for row in why.rows) == pytest.approx(why.score, abs=1e-9)
    assert sum(group.contribution for group in why.groups()) == pytest.approx(why.score, abs=1e-6)


@given(st.lists(st.sampled_from(["ab", "c", "déf", " ", ",", "\n", "."]), max_size=12).map("".join), st.randoms())
def test_a_text_without_words_keeps_the_others(text, random):
    words = [(word.start, word.end) for word in split_words(text)]
    gone = [span for span in words if random.random() < 0.5]
    left = without(text, gone)
    assert without(text, []) == text
    kept = "".join(text[a:b] for a, b in words if (a, b) not in gone)
    assert "".join(word.text for word in split_words(left)) == kept
    assert len(left) <= len(text)


GAMES = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=2, max_size=9)


@given(GAMES, st.floats(0.05, 0.95))
@example([0.0, 0.5, -0.25, 0.125, 0.0, -1.0], 0.875)
@example([-1.0, 0.074, -1.0, 0.144, -0.941, -1.0], 0.94)
def test_the_fewest_words_bring_a_score_below_and_none_is_in_vain(values, share):
    """Words that add up: then the fewest are the largest."""
    words = [f"w{n}" for n in range(len(values))]

    def score(text):
        return 2.0 + sum(values[words.index(word)] for word in text.split())

    whole = score(" ".join(words))
    falls = sorted((value for value in values if value > 0), reverse=True)[: len(values) - 1]
    if not falls:
        return
    below = whole - share * sum(falls)
    needed = next((k for k in range(1, len(falls) + 1) if whole - sum(falls[:k]) < below - 1e-9), None)
    if needed is None:  # the threshold is what all of them leave, but for rounding
        return
    own = passage(" ".join(words), score)
    found = fewest_removals(own, below)
    assert len(found.removed) <= needed + 1 and found.is_fewest == (len(found.removed) <= 2)
    assert found.score_without == pytest.approx(score(found.shortened)) and found.score_without < below
    assert found.shortened.split() == [word for word in words if word not in {part.text for part in found.removed}]
    assert all(own.text[part.start : part.end] == part.text for part in found.removed)
    for part in found.removed:
        others = {one.text for one in found.removed} - {part.text}
        assert score(" ".join(word for word in words if word not in others)) >= below


def locked(text):
    """Score a text: without "key" it falls, unless "lock" is gone too; "extra" adds most by itself."""
    return 1.0 * ("extra" in text) + 0.9 * (("key" in text) or ("lock" not in text)) + 0.01 * len(text.split())


def test_one_word_is_found_although_another_has_the_larger_value():
    found = fewest_removals(passage("key lock extra other words of a text here", locked), 1.06)
    assert [part.text for part in found.removed] == ["extra"] and found.is_fewest


def of_another(model):
    right, wrong = model.encode(["dog bites", "man"])
    model.explain_vectors("dog bites", right * 3, "man", wrong)
    model.explain_vectors("dog bites", wrong, "man", wrong)


test_what_cannot_be_measured_is_refused = refused(
    (lambda: fewest_removals(passage("key lock extra", locked), -5), "no removal brings the score below -5"),
    (lambda: fewest_removals(passage("key lock extra", locked), 7), "below 7 already"),
    (lambda: fewest_removals(passage("key", locked), 0.5), "fewer than two words"),
    (lambda: of_another(measured()), "another model, prompt or role"),
)


def test_the_similarity_of_a_pair_is_brought_below_a_threshold():
    model = pellucid.load(Tangled())
    one, other = "dog bites man", "a dog bites the old man in the house"
    whole = model.similarity(model.encode([one]), model.encode([other]))[0, 0]
    found = model.counterfactual(one, other, below=float(whole) - 0.1)
    left = model.similarity(model.encode([one]), model.encode([found.shortened]))[0, 0]
    assert found.score == pytest.approx(whole, abs=1e-6) and found.score_without == pytest.approx(left, abs=1e-6)
    assert left < whole - 0.1 and found.n_texts == sum(map(len, model.model.calls)) - 6
    static = pellucid.load("static-en")
    assert [part.text for part in static.counterfactual("a cat", "the cat sat", below=0.5).removed] == ["cat"]
