"""What a search finds and why: the best there is, terms that add up, synonyms, boosts, groups; and why it does not."""

import random
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from index_cases import brute_bm25
from pellucid import Index
from pellucid.index.bm25 import idf
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from tables import HOSTILE

WORDS = "apple pear plum river bridge boat dog cat horse loan bank rate garden tree leaf city street train".split()
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


LONG = """A zebra sleeps under a tree by the river, in a garden of the city near the bridge, beside a boat of a dog.

The piano is in a street, beside a train and a boat, at the old bridge of the city, under a tree by the river."""
QUERY = "a loan from the bank"
KINDS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("absent", QUERY, "BANK3", {}),
    ("condition", QUERY, "bank3", {"where": {"year": {"lt": 50}, "kind": "b"}}),
    ("condition", QUERY, "bank3", {"where": [{"year": {"lt": 5}, "kind": "a"}, {"kind": "a"}]}),
    ("min_score", QUERY, "bank3", {"min_score": 0.99}),
    ("offset", QUERY, "bank3", {"offset": 20}),
    ("copies", QUERY, "target", {}),
    ("copies", QUERY, "target", {"top_k": 2}),  # its rank without them
    ("capitals", "who guidelines number", "who", {}),
    ("spelling", "asprin helps old heart", "aspirin", {}),
    ("word", "clinic helps heart", "who", {"top_k": 5}),
    ("words", "clinic helps old heart", "who", {"top_k": 5}),
    ("passages", "zebra piano", "long", {"top_k": 5}),
    ("weights", "XJ9 manual", "manual9", {"weights": {"static-en": 1}, "top_k": 5}),
]


def made_texts() -> dict[str, str]:
    """Return sentences among which each kind of failure can be had."""
    draw = random.Random(3)
    texts = {f"d{n}": " ".join(draw.choices(WORDS, k=6)) for n in range(120)}
    texts |= {f"bank{n}": f"a loan from the bank {'!' * n}" for n in range(12)}
    texts |= {"target": "a loan from the bank of the river", "who": "WHO guidelines of a clinic"}
    texts |= {"aspirin": "aspirin helps the heart", "long": LONG}
    for name, text in {
        "who": "guidelines number",
        "helps": "it helps the old heart",
        "zebra": "zebra park sea ball game sun hill",
        "piano": "piano park sea ball game sun hill",
    }.items():
        texts |= {f"{name}{n}": f"{text} {n}" for n in range(12)}
    texts |= {f"manual{n}": f"manual of XJ{n}" for n in range(12)}
    return texts


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Any:
    texts = made_texts()
    with Index.create(tmp_path_factory.mktemp("why") / "index", passage_characters=120) as made:
        made.add(texts.values(), ids=texts, metadata=[{"year": n, "kind": "ab"[n % 2]} for n in range(len(texts))])
        yield made


# --- What is found ---


def test_the_hits_are_those_that_looking_at_every_document_gives_after_any_changes(index_of: Any) -> None:
    chance, words, documents = random.Random(1), [f"w{n}" for n in range(60)], dict[str, str]()
    model = StaticEmbedder(Vocabulary(words), np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    index = index_of([], ids=[], models={"m": model}, weights={"bm25": 0.3, "m": 0.7})
    for turn in range(30):
        new = {f"d{chance.randrange(200)}": " ".join(chance.choices(words, k=4 + turn)) for _ in range(13)}
        documents = {id: text for id, text in documents.items() if id not in new} | new
        index.add(new.values(), ids=new)
        index.delete(gone := chance.choice(sorted(documents)))
        del documents[gone]
        if turn == 20:
            index.rebuild()
        query = " ".join([*chance.choices(words, k=4), "other"])
        counted = dict(zip(documents, brute_bm25(query, documents.values())))
        found = {hit.id: hit.score for hit in index.search(query, 300, weights={"bm25": 1})}
        assert found == pytest.approx({id: score for id, score in counted.items() if score}, abs=1e-6)
        cosines = model.similarity(model.encode([query]), model.encode(list(documents.values())))[0]
        every = np.sort(0.3 * np.array(list(counted.values())) + 0.7 * cosines)[::-1]
        for top_k in (1, 10, 20):
            hits = index.search(query, top_k)
            assert hits.exact and [hit.score for hit in hits] == pytest.approx(every[:top_k].tolist(), abs=2e-6)
    assert index.verify() == []


@pytest.mark.parametrize("query", ["", "zzz qqq", "!!!", "the", *HOSTILE])
def test_any_text_can_be_asked(sentences: Any, query: str) -> None:
    for hit in sentences.search(query):
        assert hit.marks is not None and hit.snippet in hit.summary() and hit.explain()


def test_an_empty_index_and_a_large_top_k(index_of: Any, fruit: Any, sentences: Any) -> None:
    empty = index_of([], ids=[], models={"fruit": fruit})
    assert list(empty.search("apple")) == [] and len(empty) == 0 and empty.verify() == []
    assert "0 documents" in str(empty.search("apple")) and empty.add([], ids=[]) == 0
    assert len(sentences.search("apple car the law", top_k=10_000)) == len(sentences)


# --- Words that count more or less, and synonyms ---


def test_words_of_the_query_count_what_is_said(index_of: Any, fruit: Any) -> None:
    texts = ["An apple and a pear stand on the table", "The car follows", "Apples and pears, and no car", "A bicycle"]
    query, index = "apples, pears and a car", index_of(texts, ids=list("abcd"), models={"fruit": fruit})
    plain = {hit.id: hit for hit in index.search(query)}
    hits = index.search(query, word_weights={"pear": 0.25, "car": 0, "qqq": 3})
    assert hits.exact and len(hits)
    for hit in hits:
        factors = {"pears": 0.25, "car": 0.0}
        rows = plain[hit.id].explain().rows
        expected = sum(row.contribution * factors.get(row.parts[0].split(" ")[0], 1) for row in rows)
        assert hit.score == pytest.approx(expected, abs=1e-6)
        assert hit.explain().score == pytest.approx(sum(row.contribution for row in hit.explain().rows), abs=1e-6)
    assert index.score(query, "d", word_weights={"car": 0, "apple": 0, "pear": 0}).score == 0.0


SYNONYMS = {"car": ["auto", "the", "cars"], "nyc": ["new york"], "big apple": ["nyc"], "the": ["horse"], "pie": ["nyc"]}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("cars", {"cars ~ autos"}), ("auto", set()), ("an auto, a car", set()), ("the horse", set()),  # its own word
        ("nyc", {"nyc ~ New", "nyc ~ york"}), ("apple pie", {"pie ~ NYC"}), ("an apple is big", {"apple big ~ NYC"}),
        ("big apple pie", {"big apple ~ NYC"}),
    ],
)  # fmt: skip
def test_a_synonym_is_a_term_beside_the_word_and_lowers_no_score(
    index_of: Any, fruit: Any, query: str, expected: set[str]
) -> None:
    texts = ["cars", "autos in New Jersey", "of york", "NYC", "a horse", "the big apple pie", "pear"]
    index = index_of(texts, ids=texts, models={"fruit": fruit})
    found, before = index.search(query, synonyms=SYNONYMS), {hit.id: hit for hit in index.search(query)}
    assert {r.name for hit in found for r in hit.reasons.top(99) if r.kind == "synonym"} == {
        f"bm25: {name} (synonym)" for name in expected
    }
    for hit in found:
        assert sum(row.contribution for row in hit.explain().rows) == pytest.approx(hit.score, abs=1e-6)
        assert hit.score >= (before[hit.id].score if hit.id in before else 0.0) - 1e-9
        assert index.score(query, hit.id, synonyms=SYNONYMS).score == pytest.approx(hit.score, abs=1e-6)
    index.configure(synonyms=SYNONYMS)
    index.rebuild()
    assert index.search(query).to_dict() == found.to_dict()
    assert {hit.id: hit for hit in index.search(query, synonyms={})} == before


def test_a_synonym_counts_at_most_as_its_word(index_of: Any) -> None:
    index = index_of(["car a1", "car a2", "auto a3", "van a4", "van a5", "van a6", "no"], ids=list("abcdefg"))
    scores = {hit.id: hit.score for hit in index.search("car", synonyms={"car": ["auto", "van"]})}
    assert scores["c"] == pytest.approx(0.8 * scores["a"], rel=1e-5)  # it is rarer
    assert scores["d"] == pytest.approx(0.8 * scores["a"] * idf(7, 3) / idf(7, 2), rel=1e-5)


# --- Boosts and groups ---


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    draw = random.Random(1)
    with Index.create(tmp_path_factory.mktemp("boosts") / "index", passage_characters=100) as made:
        for start in (0, 2100):  # so many that vectors are read in 8 bits, in two segments
            texts = [" ".join(draw.choices(WORDS, k=draw.choice([3, 6, 40]))) for _ in range(2100)]
            made.add(texts, ids=[f"d{start + n}" for n in range(2100)], metadata=[metadata(draw) for _ in texts])
        made.delete([f"d{n}" for n in range(0, 4200, 7)])
        yield made


@pytest.mark.parametrize("name", BOOSTS)
@pytest.mark.parametrize("weights", [None, {"bm25": 1}, {"static-en": 1}])
def test_hits_are_the_best_by_the_sum_and_each_boost_is_a_row(dated: Any, name: str, weights: Any) -> None:
    query, boosts = "apple on the bridge", BOOSTS[name]
    scores = {hit.id: hit.score + added(boosts, hit.metadata) for hit in dated.search(query, 4200, weights=weights)}
    for options in ({}, {"offset": 3}, {"min_score": 0.7}, {"where": {"year": {"gte": 4}}}):
        hits = dated.search(query, 7, weights=weights, boosts=boosts, **options)
        among = {hit.id for hit in dated.search(query, 4200, where=options.get("where"), weights=weights)}
        best = sorted((scores[id] for id in among if scores[id] >= options.get("min_score", -9)), reverse=True)
        offset = options.get("offset", 0)
        assert [hit.score for hit in hits] == pytest.approx(best[offset : offset + 7], abs=1e-5)
        for hit in hits:
            assert hit.score == pytest.approx(scores[hit.id], abs=1e-5) and sum(hit.parts.values()) == hit.score
            for why in (hit.explain(), hit.check().explain()):
                rows = sum(row.contribution for row in why.rows if row.kind == "boost")
                assert rows == pytest.approx(added(boosts, hit.metadata), abs=1e-6)
                assert why.exact and sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
            assert dated.score(query, hit.id, weights=weights, boosts=boosts).score == pytest.approx(hit.score)


def test_a_boost_finds_no_document_that_shares_nothing(index_of: Any) -> None:
    words = index_of(["apple", *["pear"] * 50], ids=range(51), metadata=[{"a": 0}, *[{"a": 1}] * 50])
    assert [hit.id for hit in words.search("apple", 3, boosts=[{"where": {"a": 1}, "weight": 5}])] == ["0"]
    assert not words.search("plum", boosts=[{"where": {"a": 1}, "weight": 5}])
    assert words.why_not("apple", "9", boosts=[{"where": {"a": 1}, "weight": 5}]).rank is None


@pytest.mark.parametrize("field", ["kind", "year", "day"])
@pytest.mark.parametrize("options", [{}, {"offset": 2}, {"min_score": 0.3}, {"boosts": BOOSTS["several"]}])
def test_of_each_value_the_best_hit_is_found(dated: Any, field: str, options: dict[str, Any]) -> None:
    offset, taken, expected = options.get("offset", 0), set[Any](), []
    for hit in dated.search("apple on the bridge", 4200, **{**options, "offset": 0}):
        values = hit.metadata.get(field, [hit.id])  # without the field, it is a group of its own
        values = values if isinstance(values, list) else [values]
        if taken.isdisjoint(values):
            expected.append((hit.id, hit.score))
        taken |= set(values) if taken.isdisjoint(values) else set()
    for where in (None, [{"kind": "guide"}, {"kind": "note"}, {"kind": {"exists": False}}]):
        hits = dated.search("apple on the bridge", 9, group_by=field, where=where, **options)
        assert [(hit.id, hit.score) for hit in hits] == expected[offset : offset + 9] and hits.offset == offset
    only = dated.search("apple", 9, group_by=field, where={field: {"exists": True}})
    assert only.exact and (field != "kind" or len(only) == 2)


def test_why_not_names_boosts(dated: Any) -> None:
    boosts = [{"where": {"year": 3}, "weight": 2}]
    id = next(hit.id for hit in dated.search("apple", 5) if hit.metadata.get("year") != 3)
    why = dated.why_not("apple", id, 5, boosts=boosts)
    assert dict(why.gap)["boost: year = 3"] == 2 and "all else" in dict(why.gap)
    assert sum(row.contribution for row in why.gap) == pytest.approx(why.last_score - why.score, abs=1e-6)
    cause = next(cause for cause in why.causes if cause.kind == "boosts")
    assert cause.options == {"boosts": []} and dated.search("apple", 5)[cause.rank - 1].id == id
    dated.save_settings("kept", {"where": {"year": 3}, "boosts": boosts})
    causes = dated.why_not("apple", id, 5, settings="kept").causes
    cause = next(cause for cause in causes if cause.kind == "boosts")  # its change counts instead of what is kept
    assert dated.search("apple", 5, settings="kept", **cause.options)[cause.rank - 1].id == id


def test_rows_of_boosts_are_told_apart_by_name(dated: Any) -> None:
    where = [{"kind": {"nin": ["guide"]}, "year": {"gte": 99}}, {"kind": {"in": ["guide", "note"]}}]
    first, second = {"where": where, "weight": 0.3}, {**RECENT, "half_life_days": 3}
    name = "boost: kind != guide and year >= 99 or kind = guide or note"
    id = next(hit.id for hit in dated.search("apple", 50, where={"kind": "guide", "day": "2026-11-30"}))
    rows = {
        row.name: row.contribution for row in dated.score("apple", id, boosts=[RECENT, first, second]).explain().rows
    }
    assert rows[name] == pytest.approx(0.3)
    assert rows["boost: recent day"] == rows["boost: recent day (2)"] == pytest.approx(0.4)
    settings = {"boosts": [{**first, "weight": -0.9}, RECENT]}, {"boosts": [RECENT, first]}  # in another order
    found = dated.compare({"1": "apple"}, *settings, top_k=50)
    assert [row for row in found.changes[0].moved if abs(row[1]) > 1e-6] == [(name, pytest.approx(1.2))]


# --- Why a document is not found ---


def check(index: Any, why: Any, **options: Any) -> None:
    """The rank is that of a search for all, the gap adds up, and each change gives the rank that it names."""
    shared = {name: option for name, option in options.items() if name in ("weights", "steer")}
    if why.rank and "where" not in options:
        assert [hit.id for hit in index.search(why.query, len(index), **shared)].index(why.id) + 1 == why.rank
    if why.gap:
        assert sum(row.contribution for row in why.gap) == pytest.approx(why.last_score - why.score, abs=1e-6)
    for cause in why.causes:
        if cause.options and not cause.ids and cause.kind != "passages" and cause.rank <= why.n_first:
            hits = index.search(**{"query": why.query, **options, **cause.options})
            assert hits[cause.rank - hits.offset - 1].id == why.id, cause


@pytest.mark.parametrize(("kind", "query", "id", "options"), KINDS)
def test_the_cause_is_named_and_its_change_finds_the_document(
    sentences: Any, kind: str, query: str, id: str, options: dict[str, Any]
) -> None:
    why = sentences.why_not(query, id, **options)
    assert kind in [cause.kind for cause in why.causes], str(why)
    check(sentences, why, **options)


@pytest.mark.parametrize("model", ["anchors-en-500", "lexicon-en", "static-multi", {}])
def test_of_any_model_ranks_and_changes_are_those_of_a_search(index_of: Any, model: Any) -> None:
    draw, texts = random.Random(5), made_texts()
    index = index_of(texts.values(), ids=texts, models=model, passage_characters=120)
    index.delete([id for id in texts if id.endswith("7")])
    for options in [
        {},
        {"offset": 2},
        {"min_score": 0.35},
        {"steer": {"money": 0.5}} if "static" in model else {},
    ] * 5:
        query, id = " ".join(draw.sample([*WORDS, "aspirin", "zebra", "asprin"], 3)), draw.choice([*texts])
        why = index.why_not(query, id, 3, **options)
        assert id in index or why.causes[0].kind == "absent"
        check(index, why, top_k=3, **options)


def test_what_has_no_answer_is_refused_or_said(sentences: Any) -> None:
    shares = "It has no rank: it shares nothing with the query."
    for query, id, said in (
        ("", "bank1", shares),
        ("zzqxv", "bank1", shares),
        ("zebra", "no", "It is not in the index."),
    ):
        why = sentences.why_not(query, id)
        assert why.rank is None and why.summary() == said
        assert '<p class="warning" dir="auto">No change that was tried' in why.to_html()
    found = sentences.why_not(QUERY, "bank5", 6)
    assert (found.rank, found.causes, found.gap) == (6, (), ()) and "No change that was tried" not in str(found)
    (absent,) = sentences.why_not(QUERY, "bank", 3, offset=5).causes
    assert (absent.rank, absent.ids[:4]) == (6, ("bank5", "bank6", "bank7", "bank0"))  # found ones first


def test_a_hit_is_compared_with_any_document(sentences: Any) -> None:
    hits = sentences.search(QUERY, 3)
    for id in ("d7", "bank1", "target"):
        assert hits.why(1, id).score == pytest.approx(hits[0].score - sentences.score(QUERY, id).score)
