"""Cards, audits and models side by side, against numbers worked out by hand or the long way."""

import itertools
import json
import runpy
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

import pellucid
from families import letter_pairs
from pellucid.analysis import coordinates
from pellucid.analysis.auditing import Thresholds, audit, support
from pellucid.analysis.comparing import compare
from pellucid.analysis.coordinates import correlations, spearman, spread
from pellucid.analysis.dimension_cards import cards
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.errors import MissingExtraError
from refusals import refused
from tables import HOSTILE, SCHEMA, TableEmbedder, check_views, random_table, units

FOUR = {"one": [2, 0, 0], "two": [3, 4, 0], "three": [0, -5, 0], "four": [4, 3, 0]}  # third dimension: never
FEW = Thresholds(least_texts=2)
both = pytest.mark.parametrize("sparse", [False, True])


@both
def test_spread_by_hand(sparse):
    measured = spread(TableEmbedder(FOUR, sparse=sparse), [*FOUR, "unknown", ""])
    expected = {
        "texts": 4,
        "blank": 2,
        # unit rows: (1, 0), (.6, .8), (0, -1), (.8, .6); an even share of three is a coordinate of 0.577
        "firing": pytest.approx([0.75, 0.75, 0.0]),
        "mean": pytest.approx([0.6, 0.1, 0]),
        "shares": pytest.approx([0.5, 0.5, 0]),
        # first dimension: the products of the six pairs are .6, 0, .8, 0, .48, 0; second: -.8, .48, -.6 and three 0
        "common": pytest.approx([1.88 / 6, -0.92 / 6, 0]),
        "flat": pytest.approx([False, False, True]),
    }
    assert {name: getattr(measured, name) for name in expected} == expected


@given(st.integers(0, 10_000), st.booleans())
def test_what_dimensions_give_to_the_mean_score_adds_up_to_it(seed, sparse):
    model = random_table(12, 5, seed, sparse=sparse)
    pairs = [float(a @ b) for a, b in itertools.combinations(units(model, list(model.rows)), 2)]
    assert spread(model, list(model.rows)).common.sum() == pytest.approx(np.mean(pairs), abs=1e-6)


@both
def test_blocks_and_chunks_change_nothing(monkeypatch, sparse):
    model = random_table(sparse=sparse)
    texts = [*model.rows, "unknown"] * 2
    whole = spread(model, texts)
    monkeypatch.setattr(coordinates, "_BLOCK_TEXTS", 7)
    monkeypatch.setattr(coordinates, "_CHUNK_COLUMNS", 2)
    parts, blocks = spread(model, iter(texts)), [block for _, block in correlations(spread(model, iter(texts)))]
    for name in ("firing", "mean", "deviation", "shares", "common"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), abs=1e-12)
    for sign in (1, -1):
        assert parts.examples(4, 3, sign) == whole.examples(4, 3, sign) and len(parts.examples(4, 3)) == 3
    assert [block.shape for block in blocks] == [(2, 6)] * 3
    expected = np.corrcoef(units(model, list(model.rows) * 2).T) - np.eye(6)
    np.testing.assert_allclose(np.vstack(blocks), expected, atol=1e-6)


def test_the_sample_is_bounded_drawn_evenly_and_repeatable(monkeypatch):
    monkeypatch.setattr(coordinates, "_MAX_SAMPLE_ROWS", 100)
    monkeypatch.setattr(coordinates, "_BLOCK_TEXTS", 64)
    model = TableEmbedder({f"t{n}": [1, n] for n in range(2_000)})
    samples = [spread(model, list(model.rows), seed=seed).sample for seed in (0, 0, 1)]
    assert samples[0].shape == (100, 2) and (samples[0] == samples[1]).all() and not (samples[0] == samples[2]).all()
    drawn = np.array([np.round(samples[k][:, 1] / samples[k][:, 0]) for k in (0, 2)])
    assert 800 < drawn.mean() < 1200 and drawn.min() < 200 and drawn.max() > 1800


@both
def test_a_card_says_what_a_dimension_is(sparse):
    found = cards(TableEmbedder(FOUR, ["x", "y", "z"], sparse=sparse), [*FOUR, "two", "unknown"], "y", examples=2)[0]
    assert (found.name, found.dimension, found.about, found.texts, found.blank, found.firing_rate) == (
        "y", 1, ("about y",), 5, 1, 0.8,
    )  # fmt: skip
    assert [(example.text, example.coordinate) for example in (*found.strongest, *found.weakest)] == [
        ("two", pytest.approx(0.8)), ("four", pytest.approx(0.6)),  # "two" is there twice, and once here
        ("three", -1.0),
    ]  # fmt: skip
    assert len(found.strongest) == 2
    assert [relative.name for relative in found.relatives] == ["x"]  # z is the same everywhere
    said = check_views(found)
    assert "two" in said and "Fires on 80.0% of 5 texts" in said
    assert found.to_frame().loc[0, "strongest"] == ("two", "four")


@pytest.mark.parametrize(
    ("options", "names"),
    [({"top_k": 2}, ["y", "z"]), ({}, ["x", "y", "z"]), ({"dimensions": ["z", 0]}, ["x", "z"])],
)
def test_cards_keep_the_weightiest_in_order(options, names):
    model = TableEmbedder({"a": [1, 5, 3], "b": [0, 5, 4]}, ["x", "y", "z"])
    found = cards(model, ["a", "b"], **options)
    assert [one.name for one in found] == found.to_frame()["name"].tolist() == names
    assert f"{len(names)} of 3" in check_views(found) or len(names) == 3


@both
def test_an_audit_finds_what_was_planted(sparse):
    base = np.random.default_rng(0).normal(size=(300, 8))
    base[:, 1] = base[:, 0]  # the same
    base[:, 2] = -base[:, 0]  # the mirror image
    base[:, 3] = 6.0 + 0.1 * base[:, 3]  # always large
    base[:, 4] = 0.0  # never
    base[:, 5] = np.where(np.arange(300) < 1, 9.0, 0.0)  # on one text
    names = ["first", "second", "mirror", "loud", "silent", "rare", "six", "seven"]
    model = TableEmbedder({f"t{n}": row for n, row in enumerate(base)}, names, sparse=sparse)
    found = audit(model, list(model.rows), thresholds=Thresholds(least_texts=2, dead_rate=0.004))
    assert [(f.dimensions, f.measure) for f in found.findings_for("dead")] == [
        (("silent",), "deviation"), (("rare",), "firing rate"),
    ]  # fmt: skip
    (twins,) = found.findings_for("duplicate")
    assert (twins.dimensions, twins.mirrored, twins.edit, abs(twins.value)) == (
        ("first", "second", "mirror"), ("mirror",),
        'model.merge("first", "second").without("mirror")', pytest.approx(1),
    )  # fmt: skip
    (loud,) = found.findings_for("crowded")
    assert loud.dimensions == ("loud",) and loud.value == pytest.approx(1, abs=0.05)
    assert {m.name: m.verdict for m in found.measured if m.verdict} == {
        "first": "duplicate", "second": "duplicate", "mirror": "duplicate",
        "silent": "dead", "rare": "dead", "loud": "crowded",
    }  # fmt: skip
    assert np.sum([(m.share, m.common) for m in found.measured], axis=0) == pytest.approx([1, found.mean_score])
    assert found.cleaned(model).dimensions.names == ["first + second", "loud", "six", "seven"]
    assert found.cleaned(model, ["crowded"]).dimensions.names == [name for name in names if name != "loud"]
    assert eval(loud.edit).dimensions.names == found.cleaned(model, ["crowded"]).dimensions.names
    assert eval(twins.edit).dimensions.names == ["first + second", *names[3:]]
    assert "gives" in check_views(found)
    assert len(found.to_frame()) == 8


def test_what_rests_on_few_texts_is_no_duplicate():
    rows = {f"t{n}": [1.0, n == 0, n == 0, n % 3, n % 5] for n in range(200)}
    model, thresholds = TableEmbedder(rows), Thresholds(least_texts=2, dead_rate=0)
    assert support(np.array([[1.0, 0], [0, 0], [0, 1], [0, 0], [0, 1], [0, 0]])) == pytest.approx([10 / 7, 4])
    assert not audit(model, list(rows), thresholds=thresholds).findings_for("duplicate")
    found = audit(model, [*rows, *["t0"] * 20], thresholds=replace(thresholds, duplicate=0.9))
    assert [finding.dimensions for finding in found.findings_for("duplicate")] == [("d1", "d2")]


def test_what_one_loud_dimension_drowns_is_not_dead():
    rows = {f"t{n}": [9.0, np.sin(n), np.cos(n), 0.01 * np.sin(3 * n)] for n in range(200)}
    found = audit(TableEmbedder(rows), list(rows), thresholds=FEW)
    assert max(m.firing_rate for m in found.measured[1:]) == 0
    assert [f.dimensions for f in found.findings] == [("d0",), ("d3",), ("d0",)][1:]


def test_anchors_that_say_nothing_are_found():
    clear = ["A bank raises the interest rate.", "Owners pay for a home."]
    model = AnchorEmbedder(
        letter_pairs, [*clear, "They may rebel.", "Accessed December 10, 2011.", "Be gentle, but firm."]
    )
    news = [
        sentence.format(city)
        for sentence in (
            "The central bank in {} raised its interest rate again.",
            "Home owners in {} pay more for a mortgage this year.",
        )
        for city in ("Rome", "Paris", "Madrid", "Prague")
    ]
    found = audit(model, news, thresholds=FEW)
    unclear = {finding.dimensions[0]: finding for finding in found.findings_for("unclear")}
    assert {anchor: finding.reason for anchor, finding in unclear.items()} == {
        "They may rebel.": "has 1 content word",
        "Accessed December 10, 2011.": "has 0 content words",
        "Be gentle, but firm.": "none of its words occurs in its 8 strongest texts",
    }
    assert found.cleaned(model, ["unclear"]).dimensions.names == clear
    assert eval(unclear["They may rebel."].edit).get_embedding_dimension() == 4
    assert "They may rebel." in check_views(found)
    spoken = audit(
        model, [*news, "A rebel with a gentle voice."], thresholds=Thresholds(least_texts=2, unclear_words=1)
    )
    assert [finding.dimensions for finding in spoken.findings_for("unclear")] == [("Accessed December 10, 2011.",)]


@pytest.fixture
def fruits():
    return TableEmbedder(FOUR, ["apple", "pear", "plum"])


test_what_cannot_be_measured_is_refused = refused(
    *((lambda settings=settings: Thresholds(**settings), message) for settings, message in (
        ({"dead_rate": -0.1}, "dead_rate"), ({"duplicate": 0.2}, "at least 0.5 and at most 1"),
        ({"crowded_share": float("nan")}, "nan"), ({"duplicate_texts": 1}, "at least 2"))),
    *((lambda fruits, call=call, texts=texts: call(fruits, texts), message) for texts, message in (
        ([], "at least two texts"), (["one"], "1 given"), (["one", "?", ""], "2 without"), ("one two", "iterable"),
        (["one", None], "text 1 is NoneType")) for call in (audit, cards, lambda model, texts: cards(model, texts, 0))),
    (lambda fruits: cards(fruits, list(FOUR), "aple"), "did you mean 'apple'"),
    (lambda fruits: cards(fruits, list(FOUR), top_k=0), "top_k is 0"),
    (lambda fruits: cards(fruits, list(FOUR), 0, examples=0), "examples is 0"),
    (lambda fruits: audit(fruits, list(FOUR)).findings_for("dull"), "verdict is 'dull'; it must be one of dead"),
    (lambda: audit(TableEmbedder({"a": [np.nan, 1], "b": [1, 1]}), ["a", "b"]),
     "not finite for one of texts 0 to 1"),
    (lambda monkeypatch, fruits: (monkeypatch.setitem(sys.modules, "pandas", None),
                                  audit(fruits, list(FOUR)).to_frame()),
     r'pip install "pellucid\[frames\]"', MissingExtraError),
)  # fmt: skip


# --- The families, and the views --------------------------------------------------------------------------------------


def test_no_text_or_name_can_steer_a_terminal_or_a_page():
    rows = {text: [n + 1.0, 9.0 - n, 2.0] for n, text in enumerate(HOSTILE)}
    model = TableEmbedder(rows, [HOSTILE[0], HOSTILE[4], HOSTILE[2]])
    found = audit(model, list(rows), thresholds=Thresholds(least_texts=2, duplicate=0.5, duplicate_texts=2))
    assert found.findings and eval(found.findings[0].edit) is not None
    compared = compare({HOSTILE[1]: model, HOSTILE[2]: model.without(0)}, list(itertools.pairwise(HOSTILE)))
    assert compared.changed
    for report in (found, cards(model, list(rows), 0)[0], cards(model, list(rows)), compared):
        assert "<script>alert(1)</script>" in check_views(report)  # as words


def test_a_frame_follows_from_the_records():
    model = random_table()
    one = cards(model, list(model.rows), dimensions=[0])
    names = [field.name for field in fields(one.cards[0])]
    assert list(one.to_frame().columns) == list(replace(one, cards=()).to_frame().columns) == names
    assert one.to_dict()["cards"] == [cards(model, list(model.rows), 0)[0].to_dict()]  # a card among cards is a card
    assert repr(cards(model, list(model.rows), top_k=2)) == "<Cards: 2 of 6, tables model, 60 texts>"


def test_the_published_schema_is_a_schema_and_follows_from_the_types():
    generated = runpy.run_path(str(SCHEMA.parent / "schemas.py"))
    assert SCHEMA.read_text("utf-8") == generated["text"](), "run: make help-docs"
    schema = json.loads(SCHEMA.read_text("utf-8"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    pytest.importorskip("jsonschema").Draft202012Validator.check_schema(schema)
    kinds = [schema["$defs"][report.__name__]["properties"]["kind"]["const"] for report in generated["reports"]()]
    assert "card" in kinds and len(kinds) == len(set(kinds)) == len(schema["anyOf"]) - 1


def test_few_texts_show_no_dead_crowded_or_unfitting_dimension():
    texts = list((model := random_table()).rows)
    few, clean = audit(model, texts), audit(model, texts, thresholds=FEW)
    assert not clean.findings and clean.cleaned(model) is model
    assert "None dead" in str(clean) and "0 findings" in check_views(clean)
    enough = audit(model, texts, thresholds=Thresholds(least_texts=len(texts), dead_rate=1))
    assert {finding.verdict for finding in few.findings} <= {"duplicate"}
    assert {finding.verdict for finding in enough.findings} & {"dead", "crowded"}
    assert f"{few.texts:,} texts" in str(few) and "use 1,000 or more" in str(few) and "None dead" not in str(few)


# --- Models side by side ----------------------------------------------------------------------------------------------

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
test_what_cannot_be_compared_is_refused = refused(
    *((lambda wrong=wrong: compare(**{**COMPARED, **wrong}), message) for wrong, message in (
        ({"models": [random_table()]}, "at least two models"), ({"models": random_table()}, "at least two models"),
        ({"gold": [1.0]}, "give 2 finite numbers"), ({"gold": [1.0, float("nan")]}, "finite"),
        ({"pairs": []}, "no pairs"), ({"pairs": [("t0",)]}, "pair 0"), ({"top_k": -1}, "top_k is -1"))),
)  # fmt: skip


def test_a_comparison_names_the_guesses_that_it_rests_on():
    model = pellucid.load("static-en")
    result = pellucid.compare(
        [model, model], [("Latisha signed", "Lakisha signed"), ("Latisha", "a Latisha"), ("a", "b")]
    )
    assert result.guessed == (("lakisha", "latisha"),) * 2 and "rest on guesses" in str(result)
