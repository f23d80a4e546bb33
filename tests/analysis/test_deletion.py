"""The deletion test against the same numbers worked out the long way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import t

from pellucid.analysis.deletion import deletion_test, student_quantile
from pellucid.errors import InputError
from tables import TableEmbedder, check_views, random_table, units

both = pytest.mark.parametrize("sparse", [False, True])


def cosine(a, b):
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b) / lengths if lengths > 1e-9 else 0.0


@pytest.mark.parametrize("freedom", [1, 2, 3, 10, 100, 10_000])
def test_the_intervals_reach_as_far_as_student_s_distribution(freedom):
    assert student_quantile(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=1e-7)
    assert student_quantile(freedom, 0.999) == pytest.approx(t.ppf(0.9995, freedom), rel=1e-5)


def test_the_fall_without_the_top_dimensions_is_that_of_the_definition():
    model = random_table(30, 8)
    pairs = [(f"t{n}", f"t{n + 1}") for n in range(0, 30, 2)]
    found = deletion_test(model, pairs, top_k=3, draws=400)
    falls, chance = [], []
    for pair in pairs:
        a, b = units(model, pair)
        order = [j for j in np.argsort(-a * b, kind="stable") if a[j] * b[j] > 0]
        if not order:
            continue
        gone = order[:3]
        falls.append(a @ b - cosine(np.delete(a, gone), np.delete(b, gone)))
        subsets = itertools.combinations(np.flatnonzero(a * b), len(gone))
        chance.append(np.mean([a @ b - cosine(np.delete(a, s), np.delete(b, s)) for s in map(list, subsets)]))
    assert found.pairs == len(falls) and found.skipped == len(pairs) - len(falls)
    assert found.result.top.mean == pytest.approx(np.mean(falls), abs=1e-6)
    assert found.result.random.mean == pytest.approx(np.mean(chance), abs=0.03)
    assert found.result.difference.mean == pytest.approx(found.result.top.mean - found.result.random.mean)
    assert found.result.top.low < found.result.top.mean < found.result.top.high
    assert [point.k for point in found.curve] == [1, 2, 3, 5]
    check_views(found)


def test_the_interval_is_students():
    rows = {"a": [1, 0], "b": [0.6, 0.8], "c": [0.8, 0.6], "d": [1, 0]}
    found = deletion_test(TableEmbedder(rows), [("a", "b"), ("a", "c")], top_k=1)
    # without the first dimension nothing is left of a: the scores 0.6 and 0.8 fall to 0
    assert found.result.top.mean == pytest.approx(0.7)
    assert found.result.top.high - found.result.top.mean == pytest.approx(12.706205 * 0.1, rel=1e-5)  # t of one degree
    assert found.result.wins == 0  # the only dimension that contributes is the random one too


@both
def test_sparse_rows_and_the_seed_give_the_same(sparse):
    model = random_table(20, 8, sparse=sparse)
    pairs = [(f"t{n}", f"t{n + 1}") for n in range(19)]
    dense = deletion_test(random_table(20, 8), pairs)
    assert deletion_test(model, pairs).result.top == pytest.approx(dense.result.top)
    assert deletion_test(model, pairs) == deletion_test(model, pairs)
    assert deletion_test(model, pairs, seed=1).result.random != dense.result.random


def test_words_are_deleted_from_one_text_and_the_text_read_anew(fruit):
    pairs = [("apple the", "apple, car!"), ("pear bicycle", "Bicycle pear")]
    found = deletion_test(fruit, pairs, units="words", top_k=1, draws=50)

    def score(a, b):
        return float(fruit.similarity(fruit.encode([a]), fruit.encode([b]))[0, 0])

    # the longest vectors that both texts hold weigh most: apple of the first pair, bicycle of the second
    falls = [
        score(*pairs[0]) - (score("the", "apple, car!") + score("apple the", ", car!")) / 2,
        score(*pairs[1]) - (score("pear", "Bicycle pear") + score("pear bicycle", "pear")) / 2,
    ]
    assert found.result.top.mean == pytest.approx(np.mean(falls), abs=1e-6)
    assert found.result.top.mean > found.result.random.mean
    assert [point.k for point in found.curve] == [1, 2, 5, 10, 20]
    assert found.curve[-1].top.mean == found.curve[2].top.mean  # both texts have two words
    check_views(found)


def test_a_word_goes_wherever_it_stands(fruit):
    found = deletion_test(fruit, [("apple Apple car", "apple"), ("pear PEAR car", "pear")], units="words", top_k=1)
    assert found.result.top.mean == pytest.approx(found.mean_score, abs=0.06)  # apple or pear is gone from either side


@pytest.mark.parametrize(
    ("pairs", "options", "complaint"),
    [
        ([], {}, "no pairs"),
        ("ab", {}, "iterable of pairs"),
        ([("a", "b", "c")], {}, "pair 0"),
        (["ab"], {}, "every pair must be two texts"),
        ([("t0", "t1"), ("t0", 3)], {}, "pair 1 holds 3"),
        ([("t0", "t1")] * 2, {"top_k": 0}, "top_k is 0"),
        ([("t0", "t1")] * 2, {"top_k": 9}, "top_k is 9; it must be an integer, at least 1 and at most 6"),
        ([("t0", "t1")] * 2, {"draws": 0}, "draws is 0"),
        ([("t0", "t1")] * 2, {"units": "letters"}, "units is 'letters'"),
        ([("t0", "t1")] * 2, {"units": "words"}, "have no places in the text"),
        ([("unknown", "t1"), ("t0", "?")], {}, "0 of 2"),
    ],
)
def test_pairs_that_cannot_be_tested_are_refused(pairs, options, complaint):
    with pytest.raises(InputError, match=complaint):
        deletion_test(random_table(), pairs, **options)


def test_the_picture_shows_the_numbers():
    model = random_table()
    test = deletion_test(model, [(f"t{n}", f"t{n + 1}") for n in range(20)])
    lines = test.plot().axes[0].lines
    assert list(lines[0].get_ydata()) == [point.top.mean for point in test.curve]
    assert list(lines[1].get_ydata()) == [point.random.mean for point in test.curve]
