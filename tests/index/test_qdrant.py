"""An index in Qdrant, in the local mode of its client: it answers as the index of a folder does."""

import json

import numpy as np
import pytest

pytest.importorskip("qdrant_client")

from qdrant_client import QdrantClient

from letters import SparseLetterEmbedder as SparseLetters
from pellucid import Index
from pellucid.errors import IndexFolderError, InputError
from pellucid.index import QdrantIndex

pytestmark = pytest.mark.filterwarnings("ignore:Local mode", "ignore:Payload indexes have no effect")

WORDS = ["apple", "pear", "car", "wheel", "plum", "a", "and", "bicycle", "zebra", "C++"]
CONDITIONS = [
    {"year": {"gte": 2010}}, {"year": {"gt": 2009, "lte": 2012}}, {"year": 2011}, {"year": {"in": [2001, 2.5]}},
    {"lang": "de"}, {"lang": {"ne": "de"}}, {"lang": {"nin": ["de", "fr"]}}, {"day": "2024-03-02"},
    {"day": {"gt": "2024-03-02"}}, {"day": {"lt": "2024-05-01T12:00"}}, {"ok": True}, {"ok": {"ne": True}},
    {"tags": "x"}, {"tags": ["y", "z"]}, {"dotted.name": 1}, {"lang": {"exists": False}}, {"year": {"exists": True}},
    {'a "quoted\\ one': 1}, [{"lang": "fr"}, {"year": {"lt": 2003}, "ok": False}],
]  # fmt: skip


@pytest.fixture
def client():
    return QdrantClient(":memory:")


@pytest.fixture
def documents():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(150)]
    texts[7] = "a zebra on wheels. " * 40 + "An apple at the end."
    metadata = [
        {"year": 2000 + n % 20, "lang": ["en", "de", "fr"][n % 3], "ok": n % 2 == 0, "dotted.name": n % 4,
         'a "quoted\\ one': n % 5, "day": f"2024-0{1 + n % 7}-0{1 + n % 5}", "tags": [["x"], ["x", "y"], ["z"]][n % 3]}
        for n in range(149)
    ]  # fmt: skip
    metadata.append({})
    return {"texts": texts, "ids": range(150), "titles": [f"Title {n}" * (n % 2) for n in range(150)],
            "metadata": metadata}  # fmt: skip


@pytest.fixture
def pair(client, documents, fruit, tmp_path):
    models, options = {"fruit": fruit, "letters": SparseLetters()}, {"passage_characters": 200}
    indexes = Index.create(tmp_path / "index", models, **options), QdrantIndex.create(client, "docs", models, **options)
    assert [index.add(**documents) for index in indexes] == [150, 150] and len(indexes[1]) == 150
    return indexes


def same(local, remote, atol=1e-5, **options):
    """Compare two searches; the hits of the one in Qdrant are returned."""
    found, hits = local.search(**options), remote.search(exact=True, **options)
    assert hits.exact and len(found) == len(hits)
    if options.get("top_k", 10) > len(hits):  # else one of several equal scores may be the last
        assert {hit.id for hit in found} == {hit.id for hit in hits}
    np.testing.assert_allclose([hit.score for hit in found], [hit.score for hit in hits], atol=atol)
    return hits


def test_scores_and_reasons_are_those_of_a_local_index(pair):
    local, remote = pair
    for options in ({}, {"weights": {"bm25": 1}}, {"word_weights": {"apple": 0.1}}, {"steer": {"car": -0.5}},
                    {"synonyms": {"apple": ["car", "green pear"]}},
                    {"offset": 5}, {"min_score": 0.3}, {"weights": {"letters": 1}, "top_k": 3}):  # fmt: skip
        hits = same(local, remote, query="an apple, a pear and zebras", **options)
        for mine, hit in zip(local.search("an apple, a pear and zebras", **options), hits):
            assert hit.explain().remainder == pytest.approx(0, abs=1e-5)
            assert (hit.passage, hit.start, hit.text, hit.metadata) == (
                mine.passage,
                mine.start,
                mine.text,
                mine.metadata,
            )
            assert sum(row.contribution for row in hit.reasons.top(1000)) == pytest.approx(hit.score, abs=1e-5)
    assert not remote.search("apple").exact  # the server may look for near vectors through a graph
    assert remote.search("apple", weights={"bm25": 1}).exact
    assert remote.search("qqq", weights={"bm25": 1}).hits == () and remote.search("qqq").unknown == ("qqq",)
    checked = remote.search("apple pear", 1, weights={"bm25": 0.5, "fruit": 0.5}).check()[0]
    assert "without" in checked.explain().summary()


@pytest.mark.parametrize("where", CONDITIONS, ids=json.dumps)
def test_conditions_choose_the_same_documents(pair, where):
    assert same(*pair, query="an apple and a car", top_k=200, where=where)


def test_documents_are_replaced_and_removed_whole(pair, client, fruit, monkeypatch):
    local, remote = pair
    for index in pair:
        index.add(["a plum, shorter now"], ids=[7])
        index.delete(["3", 4])
    assert len(remote) == len(local) == 148
    other = QdrantIndex(client, "docs", {"fruit": fruit, "letters": SparseLetters()})
    for query in ("zebra wheels", "plum", "apple"):  # the mean length of a passage stays that of the first documents
        hits = same(local, other, atol=0.02, query=query, top_k=200)
        assert {hit.text for hit in hits if hit.id == "7"} <= {"a plum, shorter now"}
    upload = client.upload_points  # and then another client replaces the same document
    monkeypatch.setattr(
        client, "upload_points", lambda *a, **k: (upload(*a, **k), monkeypatch.undo(), other.add(["x"], ids=[7]))
    )
    assert remote.add(["a pear"], ids=[7]) == 1 and len(remote) == 148


def test_what_cannot_be_used_is_named(pair, client, fruit):
    remote = pair[1]
    for call, message in (
        (lambda: QdrantIndex.create(client, "docs", {"fruit": fruit}), "the collection 'docs' exists; open it: Qdrant"),
        (lambda: QdrantIndex(client, "nowhere"), "'nowhere' is not there, or holds no index"),
        (lambda: QdrantIndex(client, "docs"), "is a function, which no folder can hold"),
        (lambda: QdrantIndex(client, "docs", {"fruit": fruit.scale({0: 2.0}), "letters": SparseLetters()}), "fruit"),
        (lambda: remote.search("apple", weights={"wheels": 1}), "no part of the index is called wheels"),
        (lambda: remote.search("apple", where={"year": {"near": 3}}), "operator 'near'"),
        (lambda: remote.search("", where={"year": {"near": 3}}), "operator 'near'"),  # which asks nothing of the server
        (lambda: QdrantIndex.create(client, "other", {"fruit": fruit}, stop_words="the"), "stop_words"),
        (lambda: QdrantIndex.create(client, None), "the collection is called None; give a name"),
        (lambda: QdrantIndex(client, None), "the collection is called None; give a name"),
        (lambda: remote.why_not("apple", "7", top_k=3), "why_not ranks all documents, which Qdrant does not"),
        (lambda: QdrantIndex.create(client, "other", {"fruit": fruit}, passage_characters=0), "passage_characters"),
    ):
        with pytest.raises((InputError, IndexFolderError), match=message):
            call()
    empty = QdrantIndex.create(client, "empty", {"fruit": fruit})
    assert not empty.search("apple") and empty.add([]) == len(empty) == 0
