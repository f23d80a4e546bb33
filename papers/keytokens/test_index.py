"""Search with key tokens: Eq. 16 by hand and against a dense reference, explanations, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_models import byte_level, tiny_model, word_piece

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from papers.keytokens.index import Hit, KeyTokenIndex
from pellucid.errors import InputError
from pellucid.explain.explanation import Explanation
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.head import TopTokens
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.transformer.backbone import prepare

DOCUMENTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars quickly, swift cars!"]


def embedder(kind="bert", **values):
    tokenizer = {"bert": word_piece, "gpt2": byte_level}[kind]()
    attention = "bidirectional" if kind == "bert" else "causal"
    model = tiny_model(kind, len(tokenizer), headless=kind == "bert")
    backbone = prepare(model, tokenizer, attention=attention, head_kind="input" if kind == "bert" else "lm")
    return KeyTokenEmbedder(backbone, KeyTokenSettings(**{"top_k": 20, **values}))


@pytest.fixture(scope="module")
def model():
    return embedder()


@pytest.fixture(scope="module")
def index(model):
    return KeyTokenIndex.build(model, DOCUMENTS, top_k=30)


def ids_of(model, *words):
    return [model.head.spelled.index(word) for word in words]


def by_hand(model, lists, names=None):
    """An index of documents given as {word: logit}; the shorter ones have "beach" with 0."""
    width = max(map(len, lists))
    ids = np.array([ids_of(model, *words) + ids_of(model, "beach") * (width - len(words)) for words in lists])
    scores = np.array([list(words.values()) + [0.0] * (width - len(words)) for words in lists], np.float32)
    return KeyTokenIndex.from_top_tokens(
        model, names or [f"document {n}" for n in range(len(lists))], TopTokens(ids, scores)
    )


def dense_reference(model, query, documents, k, m):
    """Eq. 14 to 16 as the paper writes them, with a matrix of documents x vocabulary."""
    shown = model.head.shown
    logits = {}
    for side, texts, document in (("d", documents, True), ("q", [query], False)):
        rows = model.adjustment.apply(model.embed(texts, role="document" if document else None))
        logits[side] = np.full((len(texts), len(model.head)), -np.inf, np.float32)
        logits[side][:, shown] = (rows @ model.head.rows().T)[:, shown]
    weights = np.full_like(logits["d"], np.nan)
    for row, found, text in zip(logits["d"], weights, documents, strict=True):
        if text:
            best = np.argsort(-row, kind="stable")[:k]
            found[best] = row[best]
    own = model.backbone.tokenizer(query, add_special_tokens=False)["input_ids"]
    asked = sorted({*own, *np.argsort(-logits["q"][0], kind="stable")[:m].tolist()} & set(shown.tolist()))
    shared = ~np.isnan(weights[:, asked])
    return np.where(shared.any(axis=1), np.where(shared, weights[:, asked], 0).sum(axis=1), np.nan)


# --- scores -----------------------------------------------------------------------------------------------------------


def test_a_score_is_the_sum_of_the_shared_tokens_logits(model):
    index = by_hand(
        model, [{"man": 2.0, "horse": 1.5, "car": 4.0}, {"horse": 3.0, "boy": 1.0}, {"car": 9.0, "boy": 1.0}]
    )
    assert index.search("man horse", expand=0) == [Hit(0, 3.5, "document 0"), Hit(1, 3.0, "document 1")]
    assert index.search("horse man horse", expand=0) == index.search("man horse", expand=0)  # a set
    assert index.search("man horse", expand=0, top_k=1) == [Hit(0, 3.5, "document 0")]
    assert index.additions(ids_of(model, "man", "horse")) == 3  # lists of 1 and 2 documents


def test_negative_logits_lower_a_score_and_sharing_none_is_no_hit(model):
    index = by_hand(model, [{"horse": -1.0, "boy": 5.0}, {"horse": -0.5, "car": 1.0}, {"boy": 5.0, "car": 1.0}])
    assert [(hit.document, hit.score) for hit in index.search("horse", expand=0)] == [(1, -0.5), (0, -1.0)]
    top = TopTokens(np.array([ids_of(model, "horse", "boy")]), np.array([[-1.0, 5.0]], np.float32))
    positive = KeyTokenIndex.from_top_tokens(model, ["a"], top, signs="positive")
    assert positive.search("horse", expand=0) == []
    assert positive.search("horse boy", expand=0) == [Hit(0, 5.0, "a")]


def test_equal_scores_keep_the_order_of_the_documents(model):
    index = by_hand(model, [{"horse": 1.0}, {"horse": 2.0}, {"horse": 2.0}, {"horse": 2.0}])
    assert [hit.document for hit in index.search("horse", expand=0, top_k=2)] == [1, 2]


@given(k=st.integers(1, 40), m=st.integers(0, 40), kind=st.sampled_from(["bert", "gpt2"]), centred=st.booleans())
def test_search_equals_a_plain_dense_reference(k, m, kind, centred):
    model = MODELS[kind]
    if centred:
        model = model.with_adjustment(mean_adjustment(model.embed(DOCUMENTS)))
    query = "the boy is riding"
    expected = dense_reference(model, query, DOCUMENTS, k, m)
    hits = KeyTokenIndex.build(model, DOCUMENTS, top_k=k).search(query, expand=m)
    assert {hit.document for hit in hits} == set(np.flatnonzero(~np.isnan(expected)).tolist())
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.document], abs=1e-4)


MODELS = {kind: embedder(kind) for kind in ("bert", "gpt2")}


def test_known_embeddings_and_several_queries_give_the_same(model, index):
    rows = model.embed(DOCUMENTS, role="document")
    again = KeyTokenIndex.build(model, iter(DOCUMENTS), top_k=30, embeddings=rows)
    queries = ["a man", "swift cars", ""]
    assert again.search(queries) == [index.search(query) for query in queries]
    assert again.search("") == []
    assert all(hit.document != 2 for hit in index.search("a man", expand=40))  # a text without tokens


def test_the_instruction_is_told_to_queries_alone_and_is_none_of_their_tokens(model, index):
    told = model.with_instruction("find the horse")
    asked = KeyTokenIndex.build(told, DOCUMENTS, top_k=30)
    assert (asked.weights != index.weights).nnz == 0
    assert [t.tolist() for t in asked.query_tokens(["cars"], expand=0)] == [ids_of(model, "cars")]
    assert asked.query_tokens(["cars"], expand=20)[0].tolist() != index.query_tokens(["cars"], expand=20)[0].tolist()


def test_special_tokens_are_never_matched(model, index):
    special = set(model.backbone.tokenizer.all_special_ids)
    tokens = index.query_tokens(["[SEP] man [CLS]"], expand=40)[0].tolist()
    assert not special & set(tokens) and len(tokens) == len(set(tokens))
    assert not index.weights[sorted(special)].nnz


def test_spellings_bring_what_reads_the_same():
    model = MODELS["gpt2"]
    index = KeyTokenIndex.build(model, DOCUMENTS, top_k=5)
    plain, more = (index.query_tokens(["a horse"], expand=0, spellings=s)[0].tolist() for s in (False, True))
    assert set(plain) <= set(more)
    horse = {n for n, token in enumerate(model.head.tokens) if token.text.casefold() == "horse"}
    assert horse <= set(more)


# --- explanations -----------------------------------------------------------------------------------------------------


def test_rows_add_up_to_the_score_of_the_hit(index):
    for hit in index.search("the sick man", expand=20):
        for document in (hit.document, hit.text):
            explanation = index.explain("the sick man", document, expand=20)
            assert explanation.exact and explanation.remainder == 0
            assert sum(row.contribution for row in explanation.rows) == pytest.approx(explanation.score, abs=1e-12)
            assert explanation.score == pytest.approx(hit.score, abs=1e-9)
            assert Explanation.from_dict(explanation.to_dict()) == explanation


def test_an_explanation_names_the_tokens_and_where_they_stand(model):
    index = by_hand(model, [{"man": 2.0, "horse": -1.5, "car": 4.0}], ["a horse, a man"])
    found = index.explain("man horse", 0, expand=0)
    assert [(row.name, row.contribution) for row in found.rows] == [("man", 2.0), ("horse", -1.5)]
    assert found.score == 0.5
    assert found.rows[0].spans1 == ((0, 3),) and found.rows[0].spans2 == ((11, 14),)
    assert not index.explain("boy", 0, expand=0).rows
    joined = index.explain("boy", 0, expand=len(model.head.shown))
    assert {(row.name, row.spans1) for row in joined.rows} == {("man", ()), ("horse", ()), ("car", ())}


def test_an_index_of_nothing_finds_nothing(model, index):
    assert KeyTokenIndex.build(model, [], top_k=3).search("a man") == []
    assert repr(index) == "<KeyTokenIndex: 4 documents, 30 tokens each>"


def test_every_shard_has_its_row(model):
    shards = [n for n, token in enumerate(model.head.tokens) if token.text.startswith("…")]
    assert shards
    top = TopTokens(np.array([shards]), np.ones((1, len(shards)), np.float32))
    index = KeyTokenIndex.from_top_tokens(model, ["a man"], top)
    assert index.explain("a man", 0, expand=len(model.head.shown)).score == len(shards)


def test_a_document_outside_the_index_is_explained_as_the_index_would_hold_it(model, index):
    text = "a swift horse"
    own = KeyTokenIndex.build(model, [text], top_k=30).search("a horse", expand=10)[0]
    assert index.explain("a horse", text, expand=10).score == pytest.approx(own.score, abs=1e-6)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 10_000, 2.0, True, None])
def test_a_k_out_of_range_is_refused(model, k):
    with pytest.raises(InputError, match="top_k must be a whole number from 1 to"):
        KeyTokenIndex.build(model, DOCUMENTS, top_k=k)


@pytest.mark.parametrize("m", [-1, 10_000, 2.0, None])
def test_an_m_out_of_range_is_refused(index, m):
    with pytest.raises(InputError, match="expand must be a whole number from 0 to"):
        index.search("a man", expand=m)


def test_other_bad_input_is_refused(model, index):
    for call, message in (
        (lambda: index.search("a man", top_k=0), "top_k must be a whole number from 1 or more"),
        (lambda: index.search(["a", 3]), "text 1 is int"),
        (lambda: index.explain("a man", 4), "document 4; the index holds 4"),
        (lambda: index.explain("a man", True), "by its number or its text"),
        (lambda: index.explain(None, 1), "text 0 is NoneType"),
        (lambda: index.query_tokens(["a", "b"], embeddings=np.zeros((1, 8))), "1 embeddings are not of 2 queries"),
        (lambda: KeyTokenIndex.build(model, ["a"], top_k=5, signs="both"), "signs is 'both'"),
        (lambda: KeyTokenIndex.build(model, ["a"], top_k=5, embeddings=np.zeros((2, 8))), "not of 1 documents"),
        (lambda: KeyTokenIndex.build(model.without(9), ["a"], top_k=5), "were edited"),
        (lambda: KeyTokenIndex(model, ["a"], index.weights, 5), "do not fit"),
        (lambda: KeyTokenIndex.from_top_tokens(model, ["a"], TopTokens(np.zeros((2, 1)), np.zeros((2, 1)))), "one row"),
    ):
        with pytest.raises(InputError, match=message):
            call()
