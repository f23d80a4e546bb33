"""Models side by side, and ranked lists with reasons."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

import pellucid
from pellucid.analysis.comparing import compare
from pellucid.analysis.coordinates import spearman
from pellucid.anchors.embedder import AnchorEmbedder
from refusals import refused
from tables import HOSTILE, TableEmbedder, check_views, random_table

ROWS = {"a": [1, 0, 0], "b": [0.6, 0.8, 0], "c": [0.6, 0, 0.8], "d": [0, 0.6, 0.8]}
PAIRS = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]  # cosines .6, .6, .48, .64


def test_an_edit_side_by_side_by_hand():
    model = TableEmbedder(ROWS, ["x", "y", "z"])
    found = compare({"before": model, "after": model.without("z")}, PAIRS, gold=[3, 4, 2, 1])
    # without z: a (1, 0), b (.6, .8), c (1, 0), d (0, 1)
    before, after = [0.6, 0.6, 0.48, 0.64], [0.6, 1, 0.8, 0]
    assert np.array(found.scores).T == pytest.approx(np.array([before, after]), abs=1e-6)
    (change,) = found.changes
    assert (change.name, change.mean_change, change.largest_change, change.rank_correlation) == (
        "after", pytest.approx((0 + 0.4 + 0.32 + 0.64) / 4), pytest.approx(-0.64),
        pytest.approx(spearmanr(before, after)[0]),
    )  # fmt: skip
    assert found.gold_correlations == pytest.approx([spearmanr([3, 4, 2, 1], [2.5, 2.5, 1, 4])[0], 0.8])
    assert [(pair.text1, pair.text2) for pair in found.changed] == [("c", "d"), ("a", "c"), ("b", "d")]
    top, second, _ = found.changed
    assert (top.change, top.gold, top.model) == (pytest.approx(-0.64), 1, 1)
    assert [(row.name, row.before, row.after) for row in top.rows] == [("z", pytest.approx(0.64), None)]
    row = second.rows[0]  # a-c: x from .6 to 1
    assert (row.name, row.before, row.after) == ("x", pytest.approx(0.6), pytest.approx(1.0))
    said, frame = check_views(found), found.to_frame()
    assert "before" in said and "-0.6400 in after" in said
    assert list(frame.columns) == ["text1", "text2", "before", "after", "gold"]
    assert frame["after"].tolist() == pytest.approx(after, abs=1e-6)


def test_the_rows_that_changed_most_come_first():
    model = TableEmbedder({"a": [1, 2, 2], "b": [1, 1, 3]}, ["x", "y", "z"])
    (pair,) = compare([model, model.scale({"z": 2})], [("a", "b")], rows=2).changed
    lengths = [np.sqrt(9 * 11), np.sqrt((1 + 4 + 16) * (1 + 1 + 36))]
    before, after = np.array([1, 2, 6]) / lengths[0], np.array([1, 2, 24]) / lengths[1]
    assert [row.name for row in pair.rows] == ["z", "y"]
    assert [row.after - row.before for row in pair.rows] == pytest.approx([(after - before)[2], (after - before)[1]])


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=20))
def test_the_rank_correlation_is_that_of_scipy(pairs):
    first, second = zip(*pairs)
    if len(set(first)) > 1 < len(set(second)):
        assert spearman(first, second) == pytest.approx(spearmanr(first, second)[0])


def test_three_models_and_their_names():
    model = random_table()
    pairs = [("t0", "t1"), ("t2", "t3"), ("t4", "t5")]
    found = compare({"all": model, "less": model.without(0), "two": model.keep(0, 1)}, pairs, top_k=1)
    assert [change.name for change in found.changes] == ["less", "two"]
    assert len(found.changed) == 1 and len(found.changed[0].scores) == 3
    sizes = np.abs(np.array(found.scores) - np.array(found.scores)[:, :1])
    assert abs(found.changed[0].change) == pytest.approx(sizes.max())
    assert compare([model, model], pairs).names == ("model 1", "model 2")
    check_views(found)


def test_a_model_and_itself_do_not_differ_and_unknown_texts_score_nothing():
    model = random_table()
    found = compare([model, model], [("t0", "t1"), ("t2", "t3"), ("?", "t1")])
    (change,) = found.changes
    assert (found.changed, change.mean_change, change.rank_correlation) == ((), 0, pytest.approx(1))
    assert found.scores[2] == (0.0, 0.0)
    one = compare([model, model.without(0)], [("t0", "t1")])
    assert one.changes[0].rank_correlation is None
    check_views(one)


def test_models_of_different_families_show_rows_of_both(fruit):
    found = compare([fruit, AnchorEmbedder(fruit, ["apple", "car"])], [("apple car", "pear"), ("car", "the")], rows=4)
    assert found.families == ("static", "anchors")
    sides = {(row.before is None, row.after is None) for row in found.changed[0].rows}
    assert {(True, False), (False, True)} <= sides
    check_views(found)


COMPARED = {"models": [random_table(), random_table(seed=1)], "pairs": [("t0", "t1"), ("t2", "t3")]}
WRONG = [
    ({"models": [random_table()]}, "at least two models"),
    ({"models": random_table()}, "at least two models"),
    ({"gold": [1.0]}, "give 2 finite numbers"),
    ({"gold": [1.0, float("nan")]}, "finite"),
    ({"pairs": []}, "no pairs"),
    ({"pairs": [("t0",)]}, "pair 0"),
    ({"top_k": -1}, "top_k is -1"),
]

test_what_cannot_be_compared_is_refused = refused(
    *((lambda wrong=wrong: compare(**{**COMPARED, **wrong}), message) for wrong, message in WRONG)
)


def test_no_text_or_name_can_steer_a_view():
    rows = {text: [n + 1.0, 9.0 - n, 2.0] for n, text in enumerate(HOSTILE)}
    model = TableEmbedder(rows, [HOSTILE[0], HOSTILE[4], HOSTILE[5]])
    pairs = list(itertools.pairwise(HOSTILE))
    found = compare({HOSTILE[1]: model, HOSTILE[2]: model.without(0)}, pairs)
    assert found.changed
    check_views(found)


def test_a_comparison_names_the_guesses_that_it_rests_on():
    model = pellucid.load("static-en")
    result = pellucid.compare(
        [model, model], [("Latisha signed", "Lakisha signed"), ("Latisha", "a Latisha"), ("a", "b")]
    )
    assert result.guessed == (("lakisha", "latisha"),) * 2 and "rest on guesses" in str(result)
