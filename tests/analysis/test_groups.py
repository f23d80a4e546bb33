"""What sets a group of texts apart: parts that add up, against the same numbers worked out the long way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.analysis import coordinates
from pellucid.analysis.groups import contrast
from pellucid.errors import InputError
from tables import HOSTILE, TableEmbedder, check_views, random_table, units

both = pytest.mark.parametrize("sparse", [False, True])


@both
def test_a_separation_by_hand(sparse):
    rows = {"a": [1, 0, 0], "b": [0.8, 0.6, 0], "c": [0, 1, 0], "d": [0, 0.6, 0.8]}
    model = TableEmbedder(rows, ["x", "y", "z"], sparse=sparse)
    found = contrast(model, {"first": ["a", "b"], "second": ["c", "d"]}, examples=1)["first"]
    assert found.within == pytest.approx(0.8)
    assert found.between == pytest.approx((0 + 0 + 0.6 + 0.36) / 4)
    assert found.separation == pytest.approx(0.8 - 0.24)
    parts = {row.name: row for row in found.rows}
    # means (.9, .3, 0) and (0, .8, .4)
    assert parts["x"].part == pytest.approx(0.8) and parts["y"].part == pytest.approx(0 - 0.3 * 0.8)
    assert parts["x"].mean == pytest.approx(0.9) and parts["y"].mean_others == pytest.approx(0.8)
    assert parts["x"].auc == 1 and parts["y"].auc == pytest.approx(0.125)  # one tie of .6 in four comparisons
    assert parts["x"].effect == pytest.approx(0.9 / np.sqrt((2 * 0.01 + 0) / 2))
    assert [row.name for row in found.rows] == ["x", "y", "z"]
    assert found.typical[0].text == "a" and found.untypical[0].text == "b"
    assert "separation" in check_views(found)


@given(st.integers(0, 10_000), st.integers(2, 11), st.booleans())
def test_the_parts_add_up_to_within_less_between(seed, size, sparse):
    model = random_table(14, 5, seed, sparse=sparse)
    texts = list(model.rows)
    found = contrast(model, {"the group": texts[:size], "others": texts[size:]})["the group"]
    mine, theirs = units(model, texts[:size]), units(model, texts[size:])
    within = np.mean([a @ b for a, b in itertools.combinations(mine, 2)])
    between = np.mean([a @ b for a in mine for b in theirs])
    assert found.within == pytest.approx(within, abs=1e-6) and found.between == pytest.approx(between, abs=1e-6)
    assert sum(row.part for row in found.rows) == pytest.approx(found.separation, abs=1e-9)
    for row in found.rows:
        column = int(row.name[1:])
        above = [
            np.sign(a - b) for a in mine[:, column].astype(np.float32) for b in theirs[:, column].astype(np.float32)
        ]
        assert row.auc == pytest.approx((np.mean(above) + 1) / 2, abs=0.05)


def test_all_groups_at_once_are_each_against_the_rest(monkeypatch):
    model = random_table(30, 6)
    texts = list(model.rows)
    monkeypatch.setattr(coordinates, "_CHUNK_COLUMNS", 4)
    found = contrast(model, {label: texts[label::3] for label in range(3)})
    assert [group.group for group in found] == ["0", "1", "2"] and len(found) == 3
    for label, one in enumerate(found):
        others = [text for number, text in enumerate(texts) if number % 3 != label]
        alone = contrast(model, {"one": texts[label::3], "others": others})["one"]
        assert one.within == pytest.approx(alone.within) and one.between == pytest.approx(alone.between)
        assert [row.name for row in one.rows] == [row.name for row in alone.rows]
        np.testing.assert_allclose([row[1:] for row in one.rows], [row[1:] for row in alone.rows])
        assert one.typical == alone.typical
    assert found[1] is found.groups[1]
    assert found.to_frame()["group"].tolist() == ["0", "1", "2"]
    check_views(found)
    with pytest.raises(InputError, match="no group is called '7'"):
        found[7]


def test_words_of_the_group_point_its_way(fruit):
    group = ["the apple", "pear apple", "a pear", "the zebra"]
    found = contrast(fruit, {"fruit": group, "others": ["the car", "bicycle", "the bicycle", "pear car"]})["fruit"]
    assert {word.word for word in found.words[:2]} == {"apple", "pear"}
    (apple,) = (word for word in found.words if word.word == "apple")
    assert (apple.texts, apple.others) == (2, 0)
    direction = fruit.encode(group).mean(axis=0) - fruit.encode(["the car", "bicycle", "the bicycle", "pear car"]).mean(
        axis=0
    )
    expected = fruit.similarity(fruit.encode(["apple"]), direction[None])[0, 0]
    assert apple.pull == pytest.approx(float(expected), abs=1e-6)
    assert all(word.pull > 0 for word in found.words)
    assert "apple" in check_views(found)


def test_texts_the_model_knows_nothing_of_count_as_unlike_all_others():
    rows = {"a": [1, 0], "b": [1, 0], "c": [0, 1]}
    found = contrast(TableEmbedder(rows), {"the group": ["a", "b", "unknown"], "others": ["c", "c"]})["the group"]
    assert found.blank == 1
    assert found.within == pytest.approx(1 / 3)  # of the three pairs one is alike


@pytest.mark.parametrize(
    ("group", "others", "complaint"),
    [
        ([], ["t0"], "'the group' has 0 texts; at least two"),
        (["t0"], ["t1"], "'the group' has 1 text; at least two"),
        (["t0", "t1"], [], "'others' has 0 texts"),
        ("t0 t1", ["t2"], "iterable"),
        (["t0", None], ["t2"], "text 1 is NoneType"),
        (["?", "!"], ["t2", "t3"], "knows no word of 'the group'"),
        (["t0", "t1"], ["?", "!"], "or none of all other texts"),
    ],
)
def test_groups_that_cannot_be_contrasted_are_refused(group, others, complaint):
    with pytest.raises(InputError, match=complaint):
        contrast(random_table(), {"the group": group, "others": others})


def test_fewer_than_two_groups_and_examples_below_zero_are_refused():
    for groups in ({}, {"one": ["t0", "t1"]}, [["t0", "t1"], ["t2", "t3"]]):
        with pytest.raises(InputError, match="at least two groups are needed"):
            contrast(random_table(), groups)
    with pytest.raises(InputError, match="examples is -1"):
        contrast(random_table(), {"a": ["t0", "t1"], "b": ["t2", "t3"]}, examples=-1)


def test_hostile_names():
    rows = {text: [n + 1.0, 9.0 - n, 2.0] for n, text in enumerate(HOSTILE)}
    model = TableEmbedder(rows, [HOSTILE[0], HOSTILE[4], HOSTILE[2]])
    found = contrast(model, {HOSTILE[0]: list(rows)[::2], HOSTILE[2]: list(rows)[1::2]})
    check_views(found)
    for one in found:
        check_views(one)


def test_two_lists_are_a_group_and_the_others():
    texts, others = ["a", "b"], ["c", "d"]
    model = TableEmbedder({"a": [1, 0], "b": [0.8, 0.6], "c": [0, 1], "d": [0.6, 0.8]}, ["x", "y"])
    by_name = contrast(model, {"group": texts, "others": others})
    assert contrast(model, texts, others).to_json() == by_name.to_json()
    with pytest.raises(InputError, match="put the other texts into the mapping"):
        contrast(model, {"first": texts, "second": texts}, others)
    with pytest.raises(InputError, match="at least two groups"):
        contrast(model, texts)


def test_guessed_words_are_in_no_list_and_are_named():
    model = pellucid.load("static-en")
    found = contrast(model, ["Latisha pays a fee", "Latisha pays a loan"], ["the cat sleeps", "a dog runs"])
    assert found.guessed == ("latisha",) and "latisha" not in {word.word for word in found["group"].words}
    assert "no vector of their own for them: latisha" in " ".join(str(found).split())


def test_a_comparison_names_the_guesses_that_it_rests_on():
    model = pellucid.load("static-en")
    found = pellucid.compare(
        [model, model], [("Latisha signed", "Lakisha signed"), ("Latisha", "a Latisha"), ("a", "b")]
    )
    assert found.guessed == (("lakisha", "latisha"),) * 2 and "rest on guesses" in str(found)
