"""What drives the scores of many queries: shares, intervals and queries that hang on a word, checked by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pellucid
from pellucid import Index
from pellucid.errors import InputError
from tables import HOSTILE, TableEmbedder, check_views

DOCUMENTS = {"a": "apple apple apple tree", "b": "tree", "c": "a pear and a car", "d": "a car in the rain"}


def terms(result):
    return {driver.name: driver for driver in result.drivers}


@pytest.fixture
def index(tmp_path, fruit):
    pytest.importorskip("Stemmer")
    with Index.create(tmp_path / "index", {"fruit": fruit}, weights={"bm25": 1}) as made:
        made.add(DOCUMENTS.values(), ids=DOCUMENTS)
        yield made


def test_the_share_of_a_word_is_what_its_rows_add_over_all_scores(index):
    queries = ["apple tree", "pear car", "car", "rain", "tree", "unheard"]
    result = index.drivers(queries, 3)
    check_views(result)
    sums, total, n_hits = Counter(), 0.0, 0
    for query in queries:
        for hit in index.search(query, 3):
            total, n_hits = total + hit.score, n_hits + 1
            for row in hit.explain().rows:
                sums[query[slice(*row.spans1[0])]] += row.contribution
    assert (result.queries, result.left_out, result.scores) == (5, 1, n_hits)
    assert result.mean_score == pytest.approx(total / n_hits)
    for word, value in sums.items():
        driver = terms(result)[word]
        assert driver.share == pytest.approx(value / total)
        assert driver.queries == sum(word in query.split() for query in queries)
        assert driver.low < driver.share < driver.high
    assert result.to_frame().share.sum() == pytest.approx(1)


def test_queries_may_be_searched_before_and_pairs_are_like_them(index):
    result = index.drivers({"1": "apple tree", "2": "rain"}, 3)
    assert all(driver.low is None for driver in result.drivers)
    assert index.drivers(index.search(query, 3) for query in ("apple tree", "rain")) == result
    assert index.drivers([index.search("apple tree", weights={"fruit": 1})]) != index.drivers(["apple tree"])
    model = TableEmbedder({"a": [3, 1], "b": [1, 1], "c": [1, 3], "d": [0, 0]}, ["first", "second"])
    of_pairs = pellucid.drivers(model, [("a", "a"), ("b", "b"), ("c", "c"), ("d", "a")])
    assert (of_pairs.queries, of_pairs.left_out) == (3, 1)
    assert terms(of_pairs)["first"].share == pytest.approx((0.9 + 0.5 + 0.1) / 3)


def test_the_interval_is_that_of_the_queries_drawn_again():
    model = TableEmbedder({"a": [1, 0], "b": [0, 1]}, ["first", "second"])
    halves = pellucid.drivers(model, [("a", "a"), ("b", "b")] * 200)
    reach = 1.96 * np.sqrt(0.25 / 400)  # of a share of 0.5, as the binomial distribution has it
    assert [terms(halves)["first"].low, terms(halves)["first"].high] == pytest.approx(
        [0.5 - reach, 0.5 + reach], abs=0.008
    )
    same = terms(pellucid.drivers(model, [("a", "a")] * 5))["first"]
    assert (same.low, same.share, same.high) == pytest.approx((1, 1, 1))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.lists(st.sampled_from("apple pear car bicycle the of".split()), min_size=1)] * 2), min_size=1
    )
)
def test_the_shares_add_up_to_1(module_fruit, words):
    pairs = [(" ".join(a), " ".join(b)) for a, b in words]
    try:
        result = pellucid.drivers(module_fruit, pairs)
    except InputError:
        return
    total = sum(driver.share for driver in result.drivers)
    assert total == pytest.approx(float(result.mean_score > 1e-6), abs=1e-6)


def test_scores_that_cancel_have_no_shares():
    model = TableEmbedder({"a": [1, 0], "b": [-1, 0]}, ["first", "second"])
    result = pellucid.drivers(model, [("a", "a"), ("a", "b")])
    assert all(driver.share == 0 for driver in result.drivers)
    assert "no shares" in check_views(result)


def test_names_and_texts_may_hold_anything():
    model = TableEmbedder({text: np.eye(len(HOSTILE))[n] for n, text in enumerate(HOSTILE)}, HOSTILE)
    check_views(pellucid.drivers(model, [(text, text) for text in HOSTILE]))


def test_what_cannot_be_added_up_is_refused(index):
    with pytest.raises(InputError, match="no query of 1 has a score"):
        index.drivers(["unheard"])
    with pytest.raises(InputError, match="list of texts"):
        index.drivers("apple")
    with pytest.raises(InputError, match="no pairs"):
        pellucid.drivers(TableEmbedder({"a": [1.0]}), [])
