"""Boosts of a search: scores are those of a search without them and what the metadata of each document add."""

import math
import random
from datetime import date, timedelta
from typing import Any

import pytest

from pellucid import Index
from pellucid.errors import InputError

WORDS = "apple pear plum river bridge boat dog cat horse loan bank rate garden tree leaf".split()
NOW = date(2026, 11, 30)
RECENT = {"recent": "day", "half_life_days": 30, "now": "2026-11-30", "weight": 0.4}
BOOSTS: dict[str, list[dict[str, Any]]] = {
    "guide": [{"where": {"kind": "guide"}, "weight": 0.3}],
    "below 0": [{"where": [{"kind": "guide"}, {"year": {"gte": 5, "lt": 8}}], "weight": -0.9}],
    "recent": [RECENT],
    "several": [RECENT, {"where": {"kind": {"exists": False}}, "weight": 3}, {"where": {"year": 3}, "weight": 0}],
}


def metadata(draw: random.Random) -> dict[str, Any]:
    """Return the metadata of a document: some lack a field, have several dates, one in the future, or no date there."""
    days = [str(NOW - timedelta(draw.randint(-20, 400))) for _ in range(draw.randint(1, 2))]
    fields = {"kind": draw.choice(["guide", "note"]), "year": draw.randint(0, 9), "day": draw.choice([days, "soon"])}
    return {name: value for name, value in fields.items() if draw.random() < 0.8}


def added(boosts: list[dict[str, Any]], fields: dict[str, Any]) -> float:
    """Return what boosts add to a document, from their definition."""
    total = 0.0
    for boost in boosts:
        if boost is RECENT:
            days = [date.fromisoformat(day) for day in fields.get("day", []) if day[0] == "2"]
            total += 0.4 * 0.5 ** (max(0, (NOW - max(days)).days) / 30) if days else 0
        else:
            total += boost["weight"] * {
                "-0.9": fields.get("kind") == "guide" or 5 <= fields.get("year", 0) < 8,
                "0.3": fields.get("kind") == "guide", "3": "kind" not in fields, "0": False,
            }[str(boost["weight"])]  # fmt: skip
    return total


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Any:
    draw = random.Random(1)
    with Index.create(tmp_path_factory.mktemp("boosts") / "index", passage_characters=100) as made:
        for start in (0, 2100):  # so many that vectors are read in 8 bits, in two segments
            texts = [" ".join(draw.choices(WORDS, k=draw.choice([3, 6, 40]))) for _ in range(2100)]
            made.add(texts, ids=[f"d{start + n}" for n in range(2100)], metadata=[metadata(draw) for _ in texts])
        made.delete([f"d{n}" for n in range(0, 4200, 7)])
        yield made


@pytest.mark.parametrize("name", BOOSTS)
@pytest.mark.parametrize("weights", [None, {"bm25": 1}, {"static-en": 1}])
def test_hits_are_the_best_by_the_sum_and_each_boost_is_a_row(index: Any, name: str, weights: Any) -> None:
    query, boosts = "apple on the bridge", BOOSTS[name]
    scores = {hit.id: hit.score + added(boosts, hit.metadata) for hit in index.search(query, 4200, weights=weights)}
    for options in ({}, {"offset": 3}, {"min_score": 0.7}, {"where": {"year": {"gte": 4}}}):
        hits = index.search(query, 7, weights=weights, boosts=boosts, **options)
        among = {hit.id for hit in index.search(query, 4200, where=options.get("where"), weights=weights)}
        best = sorted((scores[id] for id in among if scores[id] >= options.get("min_score", -9)), reverse=True)
        offset = options.get("offset", 0)
        assert [hit.score for hit in hits] == pytest.approx(best[offset : offset + 7], abs=1e-5)
        for hit in hits:
            assert hit.score == pytest.approx(scores[hit.id], abs=1e-5) and sum(hit.parts.values()) == hit.score
            for why in (hit.explain(), hit.check().explain()):
                rows = sum(row.contribution for row in why.rows if row.kind == "boost")
                assert rows == pytest.approx(added(boosts, hit.metadata), abs=1e-6)
                assert why.exact and sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
            assert index.score(query, hit.id, weights=weights, boosts=boosts).score == pytest.approx(hit.score)


def test_a_boost_finds_no_document_that_shares_nothing(index: Any) -> None:
    with Index.create(index.folder.parent / "words", {}) as words:
        words.add(["apple", *["pear"] * 50], ids=map(str, range(51)), metadata=[{"a": 0}, *[{"a": 1}] * 50])
        assert [hit.id for hit in words.search("apple", 3, boosts=[{"where": {"a": 1}, "weight": 5}])] == ["0"]
        assert not words.search("plum", boosts=[{"where": {"a": 1}, "weight": 5}])
        assert words.why_not("apple", "9", boosts=[{"where": {"a": 1}, "weight": 5}]).rank is None


@pytest.mark.parametrize("field", ["kind", "year", "day"])
@pytest.mark.parametrize("options", [{}, {"offset": 2}, {"min_score": 0.3}, {"boosts": BOOSTS["several"]}])
def test_of_each_value_the_best_hit_is_found(index: Any, field: str, options: dict[str, Any]) -> None:
    offset, taken, expected = options.get("offset", 0), set[Any](), []
    for hit in index.search("apple on the bridge", 4200, **{**options, "offset": 0}):
        values = hit.metadata.get(field, [hit.id])  # without the field, it is a group of its own
        values = values if isinstance(values, list) else [values]
        if taken.isdisjoint(values):
            expected.append((hit.id, hit.score))
        taken |= set(values) if taken.isdisjoint(values) else set()
    for where in (None, [{"kind": "guide"}, {"kind": "note"}, {"kind": {"exists": False}}]):
        hits = index.search("apple on the bridge", 9, group_by=field, where=where, **options)
        assert [(hit.id, hit.score) for hit in hits] == expected[offset : offset + 9] and hits.offset == offset
    only = index.search("apple", 9, group_by=field, where={field: {"exists": True}})
    assert only.exact and (field != "kind" or len(only) == 2)


def test_groups_of_no_field_or_of_a_reranker_are_refused(index: Any) -> None:
    with pytest.raises(InputError, match="a field 'knid'; did you mean 'kind'"):
        index.search("apple", group_by="knid")
    with pytest.raises(InputError, match="leave out rerank"):
        index.search("apple", group_by="kind", rerank=lambda query, texts: [0.0] * len(texts))


def test_why_not_names_boosts(index: Any) -> None:
    boosts = [{"where": {"year": 3}, "weight": 2}]
    id = next(hit.id for hit in index.search("apple", 5) if hit.metadata.get("year") != 3)
    why = index.why_not("apple", id, 5, boosts=boosts)
    assert dict(why.gap)["boost: year = 3"] == 2 and "all else" in dict(why.gap)
    assert sum(row.contribution for row in why.gap) == pytest.approx(why.last_score - why.score, abs=1e-6)
    cause = next(cause for cause in why.causes if cause.kind == "boosts")
    assert cause.options == {"boosts": []} and index.search("apple", 5)[cause.rank - 1].id == id
    index.save_settings("kept", {"where": {"year": 3}, "boosts": boosts})
    causes = index.why_not("apple", id, 5, settings="kept").causes
    cause = next(cause for cause in causes if cause.kind == "boosts")  # its change counts instead of what is kept
    assert index.search("apple", 5, settings="kept", **cause.options)[cause.rank - 1].id == id


def test_rows_of_boosts_are_told_apart_by_name(index: Any) -> None:
    first, second = {"where": {"kind": ["guide", "note"]}, "weight": 0.3}, {**RECENT, "half_life_days": 3}
    id = next(hit.id for hit in index.search("apple", 50, where={"kind": "guide", "day": "2026-11-30"}))
    rows = {
        row.name: row.contribution for row in index.score("apple", id, boosts=[RECENT, first, second]).explain().rows
    }
    assert rows["boost: kind = guide or note"] == pytest.approx(0.3)
    assert rows["boost: recent day"] == rows["boost: recent day (2)"] == pytest.approx(0.4)
    settings = {"boosts": [{**first, "weight": -0.9}, RECENT]}, {"boosts": [RECENT, first]}  # in another order
    found = index.compare({"1": "apple"}, *settings, top_k=50)
    assert [row for row in found.changes[0].moved if abs(row[1]) > 1e-6] == [
        ("boost: kind = guide or note", pytest.approx(1.2))
    ]


@pytest.mark.parametrize(
    ("boosts", "message"),
    [
        ({"where": {"kind": "guide"}, "weight": 1}, "give a list of at most 20, such as"),
        ([{"where": {"kind": "guide"}, "weight": 1}] * 21, "give a list of at most 20"),
        (["kind"], "a boost is 'kind'; give a dict such as {"),
        ([{"where": None, "weight": 1}], "a boost is {.*; give a dict"),
        ([{"where": {"kind": "guide"}}], "the weight of the boost .* is None; it must be a number"),
        (
            [{"where": {"kind": "guide"}, "weight": math.nan}],
            "is nan; it must be a number, at least -10 and at most 10",
        ),
        ([{"where": {"kind": "guide"}, "weight": 11}], "is 11; it must be"),
        ([{"where": {"kind": "guide"}, "weight": 1, "recnt": "day"}], "a boost is .*recnt.*; give a dict"),
        ([{"where": {"knd": "guide"}, "weight": 1}], "a field 'knd'; did you mean 'kind'"),
        ([{"where": {"kind": 5}, "weight": 1}], "this can never match"),
        ([{**RECENT, "half_life_days": 0}], "half_life_days of the boost .* is 0; it must be a number, at least 0.001"),
        ([{**RECENT, "recent": "dya"}], "did you mean 'day'"),
        ([{**RECENT, "recent": "year"}], "field 'year' holds numbers"),
        ([{**RECENT, "recent": "year", "now": 7}], "field 'year' is '7'; it needs"),
        ([{**RECENT, "now": 0}], "field 'day' is '0'; it needs"),
        ([{"where": 5, "weight": 1}], "where is 5; it is a dict"),
        ([{**RECENT, "now": "soon"}], "gte .* of field 'day' is 'soon'; it needs"),
    ],
)
def test_what_is_no_boost_is_refused(index: Any, boosts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        index.search("apple", boosts=boosts)
    assert len(index.search("apple", boosts=[{"recent": "day", "half_life_days": 1e6, "weight": 1}])) == 10
