"""Search with key tokens: Eq. 16 by hand and against a dense reference, and the tokens of a query."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_models import byte_level, tiny_model, word_piece

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from papers.keytokens.index import ALIGNED, BOTH, OWN, Cell, KeyTokenIndex, query_tokens, searches
from pellucid.keytokens.adjustments import mean_adjustment
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.head import TopTokens
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.transformer.backbone import prepare

DOCUMENTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars quickly, swift cars!"]
WORDS = ["man", "horse", "car", "boy"]


def embedder(kind):
    tokenizer = {"bert": word_piece, "gpt2": byte_level}[kind]()
    attention = "bidirectional" if kind == "bert" else "causal"
    model = tiny_model(kind, len(tokenizer), headless=kind == "bert")
    backbone = prepare(model, tokenizer, attention=attention, head_kind="input" if kind == "bert" else "lm")
    return KeyTokenEmbedder(backbone, KeyTokenSettings(top_k=20))


MODELS = {kind: embedder(kind) for kind in ("bert", "gpt2")}


def index_of(*documents):
    """An index of documents given as {word: logit}, two each; the tokens are numbers in WORDS."""
    ids = np.array([[WORDS.index(word) for word in words] for words in documents])
    return KeyTokenIndex(TopTokens(ids, np.array([list(words.values()) for words in documents], np.float32)), 4)


def ids_of(*words):
    return [WORDS.index(word) for word in words]


def test_a_score_is_the_sum_of_the_shared_tokens_logits():
    index = index_of({"man": 2.0, "horse": 1.5}, {"horse": 3.0, "boy": 1.0}, {"car": 9.0, "boy": 1.0})
    assert index.hits(ids_of("man", "horse")) == [(0, 3.5), (1, 3.0)]
    assert index.hits(ids_of("man", "horse"), 1) == [(0, 3.5)]
    assert index.hits([]) == []
    assert index.additions(ids_of("man", "horse")) == 3  # lists of 1 and 2 documents


def test_negative_logits_lower_a_score_and_sharing_none_is_no_hit():
    index = index_of({"horse": -1.0, "boy": 5.0}, {"horse": -0.5, "car": 1.0}, {"boy": 5.0, "car": 1.0})
    assert index.hits(ids_of("horse")) == [(1, -0.5), (0, -1.0)]


def test_equal_scores_keep_the_order_of_the_documents_and_one_without_logits_is_in_no_list():
    index = index_of(*({"horse": logit, "man": 0.0} for logit in (1.0, 2.0, 2.0, 2.0)), {"horse": 0.0, "man": 0.0})
    assert [document for document, _ in index.hits(ids_of("horse"), 2)] == [1, 2]
    assert index.additions(ids_of("horse")) == 4


def dense_reference(model, query, k, m, which):
    """Eq. 14 to 16 as the paper writes them, with a matrix of documents x vocabulary."""
    shown = model.head.shown
    logits = {}
    for side, texts in (("document", DOCUMENTS), ("query", [query])):
        rows = model.adjustment.apply(model.embed(texts, role=side))
        logits[side] = np.full((len(texts), len(model.head)), -np.inf, np.float32)
        logits[side][:, shown] = (rows @ model.head.rows().T)[:, shown]
    weights = np.full_like(logits["document"], np.nan)
    for row, found, text in zip(logits["document"], weights, DOCUMENTS, strict=True):
        if text:
            best = np.argsort(-row, kind="stable")[:k]
            found[best] = row[best]
    own = model.backbone.tokenizer(query, add_special_tokens=False)["input_ids"] if which != ALIGNED else []
    aligned = np.argsort(-logits["query"][0], kind="stable")[: m if which != OWN else 0].tolist()
    tokens = sorted({*own, *aligned} & set(shown.tolist()))
    shared = ~np.isnan(weights[:, tokens])
    return np.where(shared.any(axis=1), np.where(shared, weights[:, tokens], 0).sum(axis=1), np.nan)


@given(
    k=st.integers(1, 40),
    m=st.integers(1, 40),
    which=st.sampled_from([OWN, ALIGNED, BOTH]),
    kind=st.sampled_from(list(MODELS)),
    centred=st.booleans(),
)
def test_search_equals_a_plain_dense_reference(k, m, which, kind, centred):
    model, query = MODELS[kind], "the boy is riding"
    if centred:
        model = model.with_adjustment(mean_adjustment(model.embed(DOCUMENTS)))
    rows = model.embed([query, ""], role="query"), model.embed(DOCUMENTS, role="document")
    cells = [Cell(BOTH, 40, 2), Cell(which, k, m)]  # a search is the same beside another
    (_, index, (tokens, nothing)) = list(searches(model, [query, ""], rows, cells))[-1]
    expected = dense_reference(model, query, k, m, which)
    hits = index.hits(tokens)
    assert {document for document, _ in hits} == set(np.flatnonzero(~np.isnan(expected)).tolist())
    assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)
    for document, score in hits:
        assert score == pytest.approx(expected[document], abs=1e-4)
    assert nothing == [] and all(document != 2 for document, _ in hits)  # a text without tokens


def test_a_querys_tokens_are_text_none_twice_and_none_of_the_instruction():
    model = MODELS["bert"]
    special = set(model.backbone.tokenizer.all_special_ids)

    def tokens(embedder, query, m):
        (found,) = query_tokens(embedder, [query], embedder.embed([query], role="query"), [Cell(BOTH, 5, m)]).values()
        return found[0]

    both = tokens(model, "[SEP] man [CLS]", 40)
    assert not special & set(both) and len(both) == len(set(both))
    instructed = model.with_instruction("find the horse")
    assert tokens(instructed, "cars", 0) == tokens(model, "cars", 0) == [model.head.spelled.index("cars")]
    assert tokens(instructed, "cars", 20) != tokens(model, "cars", 20)
