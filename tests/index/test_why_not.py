"""Why a document is not found: every rank is the one that a search gives, and every change is tried again here."""

import json
import random
from typing import Any

import pytest

from pellucid import Index

WORDS = "apple pear plum river bridge boat dog cat horse loan bank rate garden tree leaf city street train".split()
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
def index(tmp_path_factory: pytest.TempPathFactory) -> Any:
    texts = made_texts()
    with Index.create(tmp_path_factory.mktemp("why") / "index", passage_characters=120) as made:
        made.add(texts.values(), ids=texts, metadata=[{"year": n, "kind": "ab"[n % 2]} for n in range(len(texts))])
        yield made


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
    index: Any, kind: str, query: str, id: str, options: dict[str, Any]
) -> None:
    why = index.why_not(query, id, **options)
    assert kind in [cause.kind for cause in why.causes], str(why)
    check(index, why, **options)
    assert json.loads(why.to_json()) == why.to_dict() and why.to_dict()["kind"] == "why not"


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


def test_what_has_no_answer_is_refused_or_said(index: Any) -> None:
    shares = "It has no rank: it shares nothing with the query."
    for query, id, said in (
        ("", "bank1", shares),
        ("zzqxv", "bank1", shares),
        ("zebra", "no", "It is not in the index."),
    ):
        why = index.why_not(query, id)
        assert why.rank is None and why.summary() == said and "No change that was tried" in str(why)
    assert index.why_not(QUERY, "bank1").causes == () == index.why_not(QUERY, "bank1").gap


def test_a_hit_is_compared_with_any_document(index: Any) -> None:
    hits = index.search(QUERY, 3)
    for id in ("d7", "bank1", "target"):
        assert hits.why(1, id).score == pytest.approx(hits[0].score - index.score(QUERY, id).score)
