"""Adapters, each against the real library; the tests of a library that is absent are skipped."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, MissingExtraError
from pellucid.integrations import plain
from pellucid.persistence.folder import locate
from tiny_models import tiny_lexicon

ROOT = Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/integrations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXTS = ["The apple", "a pear and an apple", "the car", "bicycle bicycle", ""]
MODULES = sorted(path.stem for path in (ROOT / "src/pellucid/integrations").glob("*.py") if path.stem != "__init__")
LIBRARIES = {
    "chroma": "chromadb",
    "haystack": "haystack",
    "langchain": "langchain_core",
    "langchain_qdrant": "langchain_qdrant",
    "llama_index": "llama_index",
    "mcp": "mcp",
    "sklearn": "sklearn",
    "spacy": "spacy",
}


class Letters(Embedder):
    """Counts of letters in CSR rows; a query counts twice, so that roles can be told apart."""

    family = "letters"

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        rows = np.array([[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts], np.float32)
        return scipy.sparse.csr_matrix(rows.reshape(len(texts), 26) * (2 if role == "query" else 1))

    def get_embedding_dimension(self):
        return 26

    @property
    def dimensions(self):
        return Dimensions(Dimension(f"letter {chr(97 + n)}") for n in range(26))

    def explain(self, text1, text2=None, *, role1=None, role2=None):
        raise NotImplementedError

    def save_pretrained(self, path):
        raise NotImplementedError


@pytest.fixture
def saved(fruit, tmp_path):
    """The folder of a small static model."""
    fruit.save_pretrained(tmp_path / "fruit")
    return str(tmp_path / "fruit")


@pytest.fixture
def index(fruit, tmp_path):
    """An index of three documents, one with a title."""
    pytest.importorskip("Stemmer", reason="PyStemmer is not installed")
    texts = ["An apple and a pear stand on the table", "The car follows the bicycle", "Apples and pears, and no car"]
    with pellucid.Index.create(tmp_path / "index", fruit) as made:
        metadata = [{"year": 2001}, {"year": 2002}, {"year": 2003, "pages": [1, 2]}]
        made.add(texts, ids=["a", "b", "c"], titles=["A pear still life", "", ""], metadata=metadata)
        yield made


def adapter(name):
    library = LIBRARIES[name]
    pytest.importorskip(library, reason=f"{library} is not installed")
    return import_module(f"pellucid.integrations.{name}")


def check_facts(metadata, hit):
    """What leaves us with a hit is plain, holds the user's own metadata and the numbers of the index."""
    found = metadata["pellucid"]
    assert json.loads(json.dumps(metadata)) == metadata == {**hit.metadata, "pellucid": found}
    assert (found["id"], found["score"], found["title"]) == (hit.id, hit.score, hit.title)
    assert found["parts"] == hit.parts and sum(found["parts"].values()) == pytest.approx(hit.score)
    rows = hit.reasons.top(5)
    assert found["reasons"] == [{"name": row.name, "contribution": row.contribution} for row in rows] != []
    assert found["summary"] == hit.summary() != ""
    assert sum(group["contribution"] for group in found["groups"]) == pytest.approx(hit.score, abs=1e-6)
    assert [group["name"] for group in found["groups"]] == [group.name for group in hit.groups()]
    marked = {hit.text[word["start"] : word["end"]].lower() for word in found["highlights"]}
    assert marked and marked <= {"apple", "pear", "apples", "pears"}
    assert (found["unknown"], found["ignored"]) == ([], [])


# What all of them share


def test_a_model_is_known_by_the_name_that_opens_it(fruit, saved, monkeypatch):
    monkeypatch.chdir(Path(saved).parent)
    assert plain.name_of("static-en") == "static-en" == plain.name_of(pellucid.load("static-en"))
    assert plain.name_of(pellucid.load("fruit")) == saved
    edited = pellucid.load(saved).keep([0])
    for unsaved in (fruit, edited):
        with pytest.raises(InputError, match="Save it with save_pretrained"):
            plain.name_of(unsaved)
    assert plain.open_model(fruit) is fruit


def test_sparse_rows_are_plain_ascending_numbers():
    rows = scipy.sparse.csr_matrix(
        (np.array([1, 2, 3, 4], np.float32), np.array([5, 2, 2, 0], np.int32), np.array([0, 2, 2, 4])), shape=(3, 6)
    )
    found = plain.sparse(rows)
    assert found == [([2, 5], [2.0, 1.0]), ([], []), ([0, 2], [4.0, 3.0])]
    assert {type(value) for row in found for part in row for value in part} == {int, float}
    with pytest.raises(InputError, match="are dense, and sparse ones are needed"):
        plain.sparse(np.ones((1, 2), np.float32))


def test_highlights_are_counted_in_the_passage_without_its_title(index):
    hits = index.search("apple pear", 2)
    assert {hit.id for hit in hits} == {"a", "c"}
    for hit in hits:
        check_facts(plain.metadata_of(hit, hits), hit)


@pytest.mark.parametrize("module", sorted(LIBRARIES))
def test_an_absent_library_is_named_with_the_line_that_installs_it(module, monkeypatch):
    monkeypatch.setitem(sys.modules, LIBRARIES[module], None)
    for loaded in [name for name in sys.modules if name.startswith(f"{LIBRARIES[module]}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(sys.modules, f"pellucid.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match="is not installed") as raised:
        import_module(f"pellucid.integrations.{module}")
    name, extra = re.fullmatch(
        r'(.+) is not installed. Run: pip install "pellucid\[(.+)\]"', str(raised.value)
    ).groups()
    assert re.search(rf'^{extra} = \["{name}>=[\d.]+,<[\d.]+"\]$', PROJECT, re.MULTILINE)


def public_calls(module):
    """Yield what people call in an adapter's module: its classes and functions, and the methods of retrievers."""
    for name, call in vars(module).items():
        if getattr(call, "__module__", "") == module.__name__ and callable(call) and not name.startswith("_"):
            is_answer = isinstance(call, type) and not name.startswith("Pellucid")  # of MCP
            if not is_answer and name != "make_component":  # spaCy checks the settings of a component
                yield name, call


@pytest.mark.parametrize("module", ["backends", *sorted(LIBRARIES)])
def test_an_unknown_argument_is_refused_and_the_nearest_is_named(module):
    home = import_module("pellucid.integrations.backends") if module == "backends" else adapter(module)
    asked = 0
    for name, call in public_calls(home):
        known = getattr(call, "model_fields", None) or inspect.signature(inspect.unwrap(call)).parameters
        known = [one for one in known if one not in ("args", "kwargs")]  # Haystack's
        for wrong, near in (("zzqx", None), *((f"{one}_", one) for one in known)):
            with pytest.raises((TypeError, ValueError), match=f"unknown argument '{wrong}'") as raised:
                call(**{wrong: "static-en"})
            assert (f"did you mean {near!r}" in str(raised.value)) == (near is not None), (name, str(raised.value))
            asked += 1
    assert asked > 1


@pytest.mark.parametrize("name", ["filter", "filters", "Where", "conditions"])
def test_a_filter_by_another_name_gives_nobodys_documents(index, name):
    condition = {name: {"year": 2001}}
    calls = []
    if find_spec("langchain_core"):
        langchain = import_module("pellucid.integrations.langchain")
        retriever = langchain.PellucidRetriever(index=index)
        calls += [
            lambda: langchain.PellucidRetriever(index=index, **condition),
            lambda: retriever.invoke("apple", **condition),
            lambda: asyncio.run(retriever.ainvoke("apple", **condition)),
        ]
    if find_spec("llama_index"):
        calls.append(lambda: import_module("pellucid.integrations.llama_index").PellucidRetriever(index, **condition))
    if find_spec("haystack"):
        haystack = import_module("pellucid.integrations.haystack")
        calls.append(lambda: haystack.PellucidRetriever(index, **condition))
        calls.append(lambda: haystack.PellucidRetriever(index).run("apple", **condition))
    for call in calls:
        with pytest.raises((TypeError, ValueError), match="did you mean 'where'"):
            call()


@given(st.lists(st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4), min_size=1, max_size=6), st.data())
def test_no_row_of_a_store_is_zero(rows, data):
    rows = np.array(rows, np.float32)
    rows[data.draw(st.lists(st.integers(0, len(rows) - 1)))] = 0
    for form in (np.array, scipy.sparse.csr_matrix):
        queries, documents = plain.dense(form(rows), "query"), plain.dense(form(rows), "document")
        known = rows.any(axis=1)
        np.testing.assert_array_equal(queries[known], rows[known])
        np.testing.assert_array_equal(documents[known], rows[known])
        np.testing.assert_array_equal(plain.dense(form(rows)), rows)
        lengths = np.linalg.norm(queries[~known], axis=1) * np.linalg.norm(documents[~known], axis=1)
        cosines = (queries[~known] * documents[~known]).sum(axis=1) / lengths
        np.testing.assert_allclose(cosines, -1, rtol=1e-5)


STRANGE_TEXTS = ["今天天气很好", "", "日本語の文章"]


@pytest.mark.parametrize("position", [0, 3, 8])
def test_texts_without_a_known_word_hide_no_document_of_llama_index(position):
    home = adapter("llama_index")
    from llama_index.core import Document, VectorStoreIndex

    towns = [f"The weather in town {number}" for number in range(8)]
    texts = [*towns[:position], *STRANGE_TEXTS, *towns[position:], "A home loan costs more this year"]
    store = VectorStoreIndex.from_documents(
        [Document(text=text) for text in texts if text], embed_model=home.PellucidEmbedding(model="static-en")
    )
    retriever = store.as_retriever(similarity_top_k=3)
    (first, *others) = retriever.retrieve("mortgage loan")
    assert first.text == texts[-1] and all(node.text in towns for node in others)
    scores = [node.score for node in retriever.retrieve("ไม่รู้จัก")]
    assert np.isfinite(scores).all() and max(scores) < 0.5


def test_texts_without_a_known_word_hide_no_document_of_langchain():
    home = adapter("langchain")
    from langchain_core.vectorstores import InMemoryVectorStore

    texts = [*STRANGE_TEXTS, "A home loan costs more this year", "The weather in town"]
    store = InMemoryVectorStore.from_texts(texts, home.PellucidEmbeddings("static-en"))
    assert store.similarity_search_with_score("mortgage loan", k=1)[0][0].page_content == texts[3]
    for query in STRANGE_TEXTS:
        scores = [score for _, score in store.similarity_search_with_score(query, k=5)]
        assert np.isfinite(scores).all() and max(scores) < 0.5
    unknown = InMemoryVectorStore.from_texts(STRANGE_TEXTS, home.PellucidEmbeddings("static-en"))
    assert max(score for _, score in unknown.similarity_search_with_score("ไม่รู้จัก", k=3)) < 0


def test_every_module_is_named_on_the_page():
    assert [name for name in MODULES if f"pellucid.integrations.{name}" not in PAGE] == ["plain"]


@pytest.mark.full
@pytest.mark.parametrize("block", BLOCKS[1:], ids=lambda block: block.partition("\n")[0])
def test_the_code_on_the_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    libraries = set(re.findall(r"^(?:from|import) (\w+)", block, re.MULTILINE)) - {"pellucid"}
    libraries |= {LIBRARIES[name] for name in re.findall(r"integrations\.(\w+)", block) if name in LIBRARIES}
    for library in sorted(libraries):
        pytest.importorskip(library, reason=f"{library} is not installed")
    if "my-index" in block:
        exec(BLOCKS[0], {})
    if "my-lexicon" in block:
        tiny_lexicon().save_pretrained("my-lexicon")
    if "spacy" in libraries:
        adapter("spacy")  # in place of the entry point of an installed package
    exec(compile(block, "docs/integrations.md", "exec"), {"__name__": "page"})


# LangChain


@pytest.mark.full
def test_langchains_store_finds_what_the_model_finds(fruit):
    made = adapter("langchain").PellucidEmbeddings(fruit)
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore.from_texts(TEXTS[:4], made)
    (document, score), *_ = store.similarity_search_with_score("a bicycle", k=1)
    assert document.page_content == TEXTS[3] and score == pytest.approx(1.0)
    assert made.embed_documents(TEXTS[:4]) == fruit.encode(TEXTS[:4]).tolist()
    assert asyncio.run(made.aembed_query("pear")) == fruit.encode("pear").tolist()
    assert adapter("langchain").PellucidEmbeddings(Letters()).embed_query("abba")[:3] == [4.0, 4.0, 0.0]


@pytest.mark.full
def test_langchains_retriever_gives_the_reasons(index):
    retriever = adapter("langchain").PellucidRetriever(index=index, k=2)
    hits = index.search("apple pear", 2)
    for documents in (retriever.invoke("apple pear"), asyncio.run(retriever.ainvoke("apple pear"))):
        assert [(d.id, d.page_content) for d in documents] == [(h.id, h.text) for h in hits]
        for document, hit in zip(documents, hits):
            check_facts(document.metadata, hit)
    filtered = adapter("langchain").PellucidRetriever(index=index, where={"year": {"gte": 2003}})
    assert [d.id for d in filtered.invoke("apple pear")] == ["c"]


@pytest.mark.full
def test_langchains_retriever_takes_arguments_for_one_call(index):
    """Both ways into it, sync and async, and batches; what it does not know is refused, not dropped."""
    retriever = adapter("langchain").PellucidRetriever(index=index, k=3, where={"year": {"gte": 2002}})
    wanted = {"k": 1, "where": {"year": 2001}}
    for options, ids in (({}, {"b", "c"}), ({"k": 1}, {"c"}), ({"where": {"year": 2001}}, {"a"}), (wanted, {"a"})):
        question = "apple pear car"
        answers = [retriever.invoke(question, **options), asyncio.run(retriever.ainvoke(question, **options))]
        answers += [*retriever.batch([question], **options), *asyncio.run(retriever.abatch([question], **options))]
        answers += [retriever.bind(**options).invoke(question)]
        assert [{document.id for document in answer} for answer in answers] == [ids] * 5, options
    for wrong in ({"top_k": 2}, {"filter": {"year": 2001}}):
        for call in (retriever.invoke, lambda *a, **o: asyncio.run(retriever.ainvoke(*a, **o))):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                call("apple", **wrong)
        with pytest.raises(ValueError, match=next(iter(wrong))):
            adapter("langchain").PellucidRetriever(index=index, **wrong)
    with pytest.raises(InputError, match="top_k is 0"):
        retriever.invoke("apple", k=0)


@pytest.mark.full
def test_langchains_retriever_opens_a_folder(index):
    index.close()
    retriever = adapter("langchain").PellucidRetriever(index=str(index.folder), k=1)
    assert [d.id for d in retriever.invoke("car bicycle")] == ["b"]
    retriever.index.close()


@pytest.mark.full
def test_langchain_qdrant_searches_sparse_rows():
    made = adapter("langchain_qdrant").PellucidSparseEmbeddings(Letters())
    from langchain_qdrant import QdrantVectorStore, RetrievalMode

    store = QdrantVectorStore.from_texts(
        ["abc", "bcd", "xyz"], sparse_embedding=made, location=":memory:", retrieval_mode=RetrievalMode.SPARSE
    )
    (first, score), (second, _) = store.similarity_search_with_score("aab", k=2)
    assert (first.page_content, second.page_content) == ("abc", "bcd")
    assert score == pytest.approx(2 * 2 + 2 * 1)
    assert asyncio.run(made.aembed_query("aab")).model_dump() == {"indices": [0, 1], "values": [4.0, 2.0]}
    assert made.embed_documents([""])[0].indices == []


# LlamaIndex


@pytest.mark.full
def test_llama_index_embeds_and_stores_by_name(fruit, saved):
    home = adapter("llama_index")
    made = home.PellucidEmbedding(model=saved)
    np.testing.assert_allclose(made.get_text_embedding_batch(TEXTS), fruit.encode(TEXTS), atol=2e-6)
    assert made.get_query_embedding("pear") == fruit.encode("pear").tolist()
    assert asyncio.run(made.aget_text_embedding_batch(TEXTS)) == made.get_text_embedding_batch(TEXTS)
    assert asyncio.run(made.aget_query_embedding("pear")) == fruit.encode("pear").tolist()
    assert (made.model_name, made.embed_batch_size) == (saved, 256)
    stored = json.loads(json.dumps(made.to_dict()))
    assert (stored["model"], stored["class_name"]) == (saved, "PellucidEmbedding")
    again = home.PellucidEmbedding.from_dict(stored)
    assert again.get_text_embedding("pear") == made.get_text_embedding("pear")
    assert home.PellucidEmbedding().model.family == "static"
    with pytest.raises(ValueError, match="modle"):  # or static-en would stand in for it
        home.PellucidEmbedding(modle=saved)
    unsaved = home.PellucidEmbedding(model=fruit)
    assert (unsaved.model_name, unsaved.to_dict()["model"]) == ("unknown", repr(fruit))


@pytest.mark.full
def test_llama_index_embeds_sparse():
    made = adapter("llama_index").PellucidSparseEmbedding(model=Letters())
    assert made.get_text_embedding_batch(["abb", ""]) == [{0: 1.0, 1: 2.0}, {}]
    assert made.get_query_embedding("ab") == {0: 2.0, 1: 2.0}
    assert asyncio.run(made.aget_text_embedding_batch(["abb"])) == [{0: 1.0, 1: 2.0}]
    assert asyncio.run(made.aget_query_embedding("ab")) == {0: 2.0, 1: 2.0}


@pytest.mark.full
def test_llama_indexs_retriever_gives_the_reasons_to_people_and_not_to_language_models(index):
    retriever = adapter("llama_index").PellucidRetriever(index, similarity_top_k=2)
    from llama_index.core.schema import MetadataMode

    hits = index.search("apple pear", 2)
    for nodes in (retriever.retrieve("apple pear"), asyncio.run(retriever.aretrieve("apple pear"))):
        assert [(n.node_id, n.text, n.score) for n in nodes] == [(h.id, h.text, h.score) for h in hits]
        for node, hit in zip(nodes, hits):
            check_facts(node.metadata, hit)
            shown = node.get_content(metadata_mode=MetadataMode.LLM)
            assert "year: 200" in shown and "contribution" not in shown


@pytest.mark.full
def test_llama_indexs_own_index_takes_the_embedding(fruit):
    made = adapter("llama_index").PellucidEmbedding(model=fruit)
    from llama_index.core import VectorStoreIndex
    from llama_index.core.schema import TextNode

    store = VectorStoreIndex([TextNode(text=text) for text in TEXTS[:4]], embed_model=made)
    (found,) = store.as_retriever(similarity_top_k=1).retrieve("a bicycle")
    assert found.text == TEXTS[3] and found.score == pytest.approx(1.0)


# Haystack


@pytest.mark.full
def test_haystacks_pipeline_finds_documents_and_survives_yaml(saved, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    home = adapter("haystack")
    from haystack import Document, Pipeline
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    given = [Document(content=text) for text in TEXTS[:4]] + [Document(content=None)]
    embedded = home.PellucidDocumentEmbedder(saved).run(given)["documents"]
    assert all(document.embedding is None for document in given)
    np.testing.assert_allclose([d.embedding for d in embedded], pellucid.load(saved).encode(TEXTS), atol=2e-6)
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(embedded[:4])
    pipeline = Pipeline()
    pipeline.add_component("embedder", home.PellucidTextEmbedder(saved))
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    (found,) = pipeline.run({"embedder": {"text": "a bicycle"}})["retriever"]["documents"]
    assert found.content == TEXTS[3]
    alone = Pipeline()
    alone.add_component("embedder", home.PellucidTextEmbedder(saved))
    again = Pipeline.loads(alone.dumps(), allowed_modules=["pellucid.integrations.haystack"])
    assert "pellucid.integrations.haystack.PellucidTextEmbedder" in alone.dumps()
    first, second = (p.run({"embedder": {"text": "pear"}})["embedder"]["embedding"] for p in (alone, again))
    assert first == second == pellucid.load(saved).encode("pear").tolist()


@pytest.mark.full
def test_haystack_takes_sparse_rows(fruit):
    home = adapter("haystack")
    from haystack import Document

    row = home.PellucidSparseTextEmbedder(Letters()).run("abb")["sparse_embedding"]
    assert row.to_dict() == {"indices": [0, 1], "values": [2.0, 4.0]}
    (document,) = home.PellucidSparseDocumentEmbedder(Letters()).run([Document(content="abb")])["documents"]
    assert document.sparse_embedding.to_dict() == {"indices": [0, 1], "values": [1.0, 2.0]}
    with pytest.raises(InputError, match="save_pretrained"):
        home.PellucidTextEmbedder(fruit).to_dict()


@pytest.mark.full
def test_haystacks_retriever_gives_the_reasons_and_survives_yaml(index, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    home = adapter("haystack")
    from haystack import Pipeline

    hits = index.search("apple pear", 2)
    component = home.PellucidRetriever(index, top_k=2)
    documents = component.run("apple pear")["documents"]
    assert [(d.id, d.content, d.score) for d in documents] == [(h.id, h.text, h.score) for h in hits]
    for document, hit in zip(documents, hits):
        check_facts(document.meta, hit)
    with pytest.raises(InputError, match="top_k is 0"):
        component.run("apple", top_k=0)
    assert [d.id for d in component.run("apple pear", top_k=3, where={"year": 2003})["documents"]] == ["c"]
    pipeline = Pipeline()
    pipeline.add_component("retriever", component)
    written = pipeline.dumps()
    index.close()
    again = Pipeline.loads(written, allowed_modules=["pellucid.integrations.haystack"])
    found = again.run({"retriever": {"query": "apple pear"}})["retriever"]["documents"]
    assert [d.id for d in found] == [h.id for h in hits]
    again.get_component("retriever").index.close()


# spaCy


@pytest.fixture
def nlp(saved):
    adapter("spacy")
    import spacy

    made = spacy.blank("en")
    made.add_pipe("pellucid", config={"model": saved})
    return made


@pytest.mark.full
@pytest.mark.filterwarnings("error::UserWarning")
def test_spacys_documents_have_the_models_vectors(nlp, fruit):
    docs = list(nlp.pipe(TEXTS))
    np.testing.assert_array_equal([doc.vector for doc in docs], fruit.encode(TEXTS))
    first, second = docs[:2]
    assert first.similarity(second) == pytest.approx(float(fruit.similarity(*map(fruit.encode, TEXTS[:2]))[0, 0]))
    np.testing.assert_array_equal(second[1:2].vector, fruit.encode("pear"))
    np.testing.assert_array_equal(first[1].vector, fruit.encode("apple"))
    assert first[1].similarity(second[4]) == pytest.approx(1.0) and first.vector_norm == pytest.approx(1.0)
    assert second[0:2].vector_norm == pytest.approx(1.0)
    assert first.has_vector and not second[0].has_vector and not docs[4].has_vector
    assert docs[4].similarity(first) == 0.0
    np.testing.assert_array_equal(second[1:2].as_doc().vector, fruit.encode("pear"))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*W109")
def test_spacys_documents_keep_their_vectors_on_disk(nlp, fruit, tmp_path):
    import spacy
    from spacy.tokens import Doc, DocBin

    component = nlp.get_pipe("pellucid")
    doc = nlp("a pear and an apple")
    pear = doc[1].vector
    again = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    binned = next(DocBin(docs=[doc], store_user_data=True).get_docs(nlp.vocab))
    component.embedder.encode = None  # nothing is computed anew
    for kept in map(component.restore, (again, binned)):
        np.testing.assert_array_equal(kept.vector, doc.vector)
        np.testing.assert_array_equal(kept[1].vector, pear)
    del component.embedder.encode
    nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "fruit").rename(tmp_path / "gone")
    moved = spacy.load(tmp_path / "pipeline")
    np.testing.assert_array_equal(moved("apple").vector, fruit.encode("apple"))


@pytest.mark.full
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("ensure_whitespace", [True, False])
def test_spacys_documents_keep_their_vectors_when_they_are_put_together(nlp, fruit, ensure_whitespace):
    from spacy.tokens import Doc

    component, texts = nlp.get_pipe("pellucid"), ["", "a pear", "the car ", "car and apple"]
    docs = list(nlp.pipe(texts))
    parts = [docs[1][1].vector, docs[3][2].vector, docs[3][:2].vector]
    joined = component.restore(Doc.from_docs(docs, ensure_whitespace=ensure_whitespace))
    car = next(n for n, token in enumerate(joined) if token.text == "and") - 1
    computed, encode = [], component.embedder.encode
    component.embedder.encode = lambda given: computed.extend(given) or encode(given)
    kept = [joined[1].vector, joined[car + 2].vector, joined[car : car + 2].vector, joined[:2].vector]
    assert computed == []
    np.testing.assert_array_equal(kept, [*parts, docs[1].vector])
    np.testing.assert_array_equal(joined.vector, fruit.encode(joined.text))
    np.testing.assert_array_equal([token.vector for token in joined], fruit.encode([t.text for t in joined]))
    again = joined[2:].as_doc(copy_user_data=True)
    np.testing.assert_array_equal([token.vector for token in again], fruit.encode([t.text for t in again]))


@pytest.mark.full
def test_spacy_refuses_vectors_of_two_models(nlp, fruit):
    home = adapter("spacy")
    other = home.PellucidComponent(fruit.keep([0, 1]))(nlp.make_doc("apple"))
    with pytest.raises(InputError, match="vector of 3 numbers and 'apple' one of 2; pass both through the same"):
        nlp("pear").similarity(other)


def test_spacy_finds_the_component_by_its_entry_point():
    module, function = re.search(r'spacy_factories\]\npellucid = "(.+):(.+)"', PROJECT).groups()
    assert module == "pellucid.integrations.spacy"
    assert f"def {function}(" in (ROOT / "src/pellucid/integrations/spacy.py").read_text(encoding="utf-8")


# scikit-learn


@pytest.mark.full
def test_scikit_learns_pipeline_clones_searches_and_pickles(fruit, saved):
    vectorizer = adapter("sklearn").PellucidVectorizer
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    texts, labels = ["apple", "pear", "the apple", "car", "bicycle", "the car"] * 2, [0, 0, 0, 1, 1, 1] * 2
    pipeline = make_pipeline(vectorizer(saved), LogisticRegression()).fit(np.array(texts), labels)
    assert pipeline.predict(["pear pear", "a bicycle"]).tolist() == [0, 1]
    assert pipeline[:1].get_feature_names_out().tolist() == fruit.dimensions.names
    written = pickle.dumps(pipeline[0])
    assert len(written) < 1000
    np.testing.assert_array_equal(pickle.loads(written).transform(TEXTS), fruit.encode(TEXTS))
    assert clone(pipeline[0]).get_params() == {"model": saved}
    clone(vectorizer(fruit)).fit(TEXTS)
    search = GridSearchCV(pipeline, {"pellucidvectorizer__model": [saved, fruit.keep([0])]}, cv=2).fit(texts, labels)
    assert search.best_score_ == 1.0
    changed = pipeline[0].set_params(model=fruit.keep([1]))
    assert changed.transform(TEXTS).shape == (5, 1)


@pytest.mark.full
def test_scikit_learns_columns_are_named(fruit):
    vectorizer = adapter("sklearn").PellucidVectorizer
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import ColumnTransformer

    table = pandas.DataFrame({"text": TEXTS, "n": range(5)}, index=list("abcde"))
    rows = vectorizer(fruit).set_output(transform="pandas").transform(table["text"])
    assert list(rows.columns) == fruit.dimensions.names and list(rows.index) == list("abcde")
    columns = ColumnTransformer([("text", vectorizer(fruit), "text")], remainder="passthrough").fit(table)
    assert columns.get_feature_names_out().tolist() == [f"text__{n}" for n in fruit.dimensions.names] + ["remainder__n"]
    assert scipy.sparse.issparse(vectorizer(Letters()).transform(TEXTS))
    for wrong in ("apple", b"apple", {"text": TEXTS}, 3, None, table, table[["text"]], np.array([TEXTS])):
        for call in (vectorizer(fruit).fit, vectorizer(fruit).transform, vectorizer(fruit).fit_transform):
            with pytest.raises(InputError, match="give a list, series or array of one dimension"):
                call(wrong)
    assert vectorizer(fruit).fit_transform(text for text in TEXTS).shape == (5, 3)
    with pytest.raises(InputError, match="text 1 is float"):
        vectorizer(fruit).transform(["apple", float("nan")])


def test_scikit_learns_own_checks_hold(saved):
    """All of `check_estimator`, which stops at estimators of texts, and those behind it that give no numbers."""
    pytest.importorskip("sklearn", minversion="1.7")
    vectorizer = adapter("sklearn").PellucidVectorizer
    from sklearn.exceptions import SkipTestWarning
    from sklearn.utils import estimator_checks

    with pytest.warns(SkipTestWarning, match="requires input"):
        assert {done["status"] for done in estimator_checks.check_estimator(vectorizer())} == {"passed"}
    for name in (
        "estimator_cloneable", "estimator_repr", "estimator_tags_renamed", "valid_tag_types", "mixin_order",
        "no_attributes_set_in_init", "get_params_invariance", "set_params", "parameters_default_constructible",
    ):  # fmt: skip
        for made in (vectorizer(), vectorizer(saved)):
            getattr(estimator_checks, f"check_{name}")("PellucidVectorizer", made)


# KeyBERT, BERTopic, txtai


@pytest.mark.full
def test_keybert_finds_the_keywords_of_its_own_reader():
    """Our backend, and sentence-transformers with the folder of the model, agree."""
    keybert = pytest.importorskip("keybert", reason="keybert is not installed")
    from pellucid.integrations.backends import keybert_backend

    text = "The bank raised the interest on mortgages; loans for a house cost more."
    ours = keybert.KeyBERT(keybert_backend()).extract_keywords(text, top_n=5)
    stock = keybert.KeyBERT(str(locate("static-en"))).extract_keywords(text, top_n=5)
    assert [word for word, _ in ours] == [word for word, _ in stock]
    assert [score for _, score in ours] == pytest.approx([score for _, score in stock], abs=2e-3)
    assert {"mortgages", "loans"} <= {word for word, _ in ours}


@pytest.mark.full
def test_bertopic_parts_topics():
    bertopic = pytest.importorskip("bertopic", reason="bertopic is not installed")
    from bertopic.dimensionality import BaseDimensionalityReduction
    from sklearn.cluster import KMeans

    from pellucid.integrations.backends import bertopic_backend

    animals = [f"The {a} sleeps in the {p}" for a in ("cat", "dog", "horse") for p in ("garden", "stable", "field")]
    money = [f"The bank raised the {r} on {x}" for r in ("interest", "fees", "rate") for x in ("loans", "mortgages")]
    topics = bertopic.BERTopic(
        embedding_model=bertopic_backend(),
        umap_model=BaseDimensionalityReduction(),
        hdbscan_model=KMeans(2, random_state=0, n_init=3),
    )
    found, _ = topics.fit_transform(animals + money)
    first, second = found[: len(animals)], found[len(animals) :]
    assert len(set(first)) == len(set(second)) == 1 and first[0] != second[0]


@pytest.mark.full
@pytest.mark.parametrize("library", ["keybert", "bertopic"])
def test_a_backend_survives_pickle_joblib_and_another_process(library, fruit, saved, tmp_path):
    pytest.importorskip(library, reason=f"{library} is not installed")
    joblib = pytest.importorskip("joblib")
    from pellucid.integrations import backends

    for model in (saved, fruit):  # by name, and as an object
        made = getattr(backends, f"{library}_backend")(model)
        expected = fruit.encode(TEXTS)
        joblib.dump(made, tmp_path / "backend")
        for again in (pickle.loads(pickle.dumps(made)), joblib.load(tmp_path / "backend"), copy.deepcopy(made)):
            np.testing.assert_array_equal(again.embed(TEXTS), expected)
            assert isinstance(again, type(made).__mro__[1])
    (tmp_path / "pickled").write_bytes(pickle.dumps(made))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).embed(['pear']))"
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path / "pickled")], capture_output=True, text=True)
    assert found.stdout.strip() == str(fruit.encode(["pear"])), found.stderr


@pytest.mark.full
def test_txtai_searches_with_the_models_vectors(fruit, tmp_path):
    txtai = pytest.importorskip("txtai", reason="txtai is not installed")
    from pellucid.integrations.backends import txtai_transform

    embeddings = txtai.Embeddings(method="external", transform=txtai_transform(fruit))
    embeddings.index(TEXTS[:4])
    embeddings.save(str(tmp_path / "txtai"))
    again = txtai.Embeddings()
    again.load(str(tmp_path / "txtai"), config={"transform": txtai_transform(fruit)})
    for one in (embeddings, again):
        assert one.search("a bicycle", 1) == [(3, pytest.approx(1.0, abs=1e-5))]


# Chroma


@pytest.fixture
def chroma_client(tmp_path):
    chromadb = pytest.importorskip("chromadb", reason="chromadb is not installed")
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    return chromadb.PersistentClient(str(tmp_path / "chroma"), settings=settings)


@pytest.mark.full
def test_chroma_opens_a_collection_with_the_model_it_was_made_with(chroma_client, saved, fruit):
    home = adapter("chroma")
    made = chroma_client.create_collection("fruit", embedding_function=home.PellucidEmbeddingFunction(saved))
    made.add(ids=list("abcd"), documents=TEXTS[:4])
    again = chroma_client.get_collection("fruit")
    found = again.query(query_texts=["a bicycle"], n_results=1)
    assert found["ids"] == [["d"]] and found["distances"][0][0] == pytest.approx(0.0, abs=1e-5)
    stored = again.get(ids=["a"], include=["embeddings"])["embeddings"][0]
    np.testing.assert_allclose(stored, fruit.encode(TEXTS[0]), atol=1e-6)


@pytest.mark.full
def test_chroma_is_refused_a_model_on_no_disk_and_another_one_for_a_collection(chroma_client, saved, fruit, tmp_path):
    function = adapter("chroma").PellucidEmbeddingFunction
    for unsaved in (fruit, pellucid.load(saved).keep([0])):
        with pytest.raises(InputError, match="save_pretrained"):
            function(unsaved)
    fruit.scale({0: 2.0}).save_pretrained(tmp_path / "other")
    fruit.save_pretrained(tmp_path / "moved")
    made = chroma_client.create_collection("fruit", embedding_function=function(saved))
    made.add(ids=list("abcd"), documents=TEXTS[:4])
    with pytest.raises(InputError, match="is another model"):
        made.modify(configuration={"embedding_function": function(str(tmp_path / "other"))})
    made.modify(configuration={"embedding_function": function(saved)})  # Chroma stored the other one before it asked
    kept = chroma_client.get_collection("fruit").configuration["embedding_function"].get_config()
    assert kept == function(saved).get_config()
    made.modify(configuration={"embedding_function": function(str(tmp_path / "moved"))})
    fruit.scale({0: 2.0}).save_pretrained(saved)  # another model where the first was
    with pytest.raises(InputError, match="is another model"):
        function.build_from_config(kept)


@pytest.mark.full
def test_chroma_does_not_open_another_model_at_the_same_place(chroma_client, saved, fruit):
    home = adapter("chroma")
    config = home.PellucidEmbeddingFunction(saved).get_config()
    chroma_client.create_collection("fruit", embedding_function=home.PellucidEmbeddingFunction(saved))
    fruit.scale({0: 2.0}).save_pretrained(saved)
    with pytest.raises(InputError, match="is another model"):
        home.PellucidEmbeddingFunction.build_from_config(config)
    with pytest.raises(ValueError, match="another model"):  # Chroma's own
        chroma_client.get_collection("fruit").query(query_texts=["a bicycle"])
    changed = home.PellucidEmbeddingFunction(saved)
    with pytest.raises(InputError, match="is another model; make a collection"):
        changed.validate_config_update(config, changed.get_config())


@pytest.mark.full
def test_chromas_sparse_vectors_name_their_dimensions():
    opened = pellucid.load("lexicon-en")
    made = adapter("chroma").PellucidSparseEmbeddingFunction("lexicon-en")
    (row, empty) = made(["mortgages", ""])
    assert list(zip(row.indices, row.values)) == list(zip(*plain.sparse(opened.encode(["mortgages"]))[0]))
    assert row.labels == [opened.dimensions.names[number] for number in row.indices] != []
    assert empty.indices == [] and made.embed_query(["mortgages"])[0].indices == row.indices
    assert made.build_from_config(made.get_config())(["mortgages"])[0].values == row.values


# Model Context Protocol


def ask(server, tool, **arguments):
    """Call a tool of a server in memory."""
    import mcp

    async def call():
        async with mcp.Client(server) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(call())


@pytest.mark.full
def test_an_assistant_asks_why(fruit):
    server = adapter("mcp").create_server({"fruit": fruit})
    found = ask(server, "explain", text1="the apple", text2="pear and apple", top_k=1).structured_content
    why = fruit.explain("the apple", "pear and apple")
    assert found["score"] == pytest.approx(why.score)
    assert found["reasons"] == [{"name": why.rows[0].name, "contribution": pytest.approx(why.rows[0].contribution)}]
    assert found["reasons"][0]["contribution"] + found["others"] == pytest.approx(found["score"])
    about = ask(server, "describe", text="an apple", model="fruit").structured_content
    assert about == {"description": fruit.describe("an apple"), "coverage": pytest.approx(0.5)}


@pytest.mark.full
def test_an_assistant_searches(fruit, index):
    server = adapter("mcp").create_server({"fruit": fruit}, index)
    page, hits = ask(server, "search", query="apple pear", top_k=2).structured_content, index.search("apple pear", 2)
    found = page["documents"]
    assert page["summary"] == hits.summary() and [d["summary"] for d in found] == [hit.summary() for hit in hits]
    assert [g["name"] for g in found[0]["groups"]] == [group.name for group in hits[0].groups()]
    assert [(d["id"], d["score"], d["metadata"]) for d in found] == [(h.id, h.score, h.metadata) for h in hits]
    assert found[0]["reasons"][0]["name"] == hits[0].reasons.top(1)[0].name
    assert {word.lower() for d in found for word in d["highlights"]} <= {"apple", "pear", "apples", "pears"}
    (only,) = ask(server, "search", query="apple", where={"year": 2003}).structured_content["documents"]
    assert only["id"] == "c"
    named = ask(server, "search", query="the zzz apple", min_score=5).structured_content
    assert named == {"summary": "", "documents": [], "unknown": ["zzz"], "ignored": ["the"], "has_known_words": True}
    assert ask(server, "search", query="zzz").structured_content["has_known_words"] is False


@pytest.mark.full
def test_an_assistant_is_told_what_is_wrong(fruit, index):
    home = adapter("mcp")
    server = home.create_server({"fruit": fruit}, index)
    wrong = [
        ("explain", {"text1": "a", "text2": "b", "model": "x"}, "no model 'x' is served here; there are: fruit"),
        ("explain", {"text1": "a" * 9999, "text2": "bb"}, "10,001 characters; at most 10,000"),
        ("explain", {"text1": "a"}, "text2"),
        ("describe", {"text": "a" * 10_001}, "at most 10,000"),
        ("search", {"query": "a" * 10_001}, "at most 10,000"),
        ("describe", {"text": "a", "top_k": 0}, "greater than or equal to 1"),
        ("search", {"query": "a", "where": {"jear": 1}}, "year"),
        ("search", {"query": "a", "filter": {"year": 1}}, "unknown argument 'filter'; did you mean 'where'?"),
        ("search", {"query": "a", "where": {"year": {"$gte": 1}}}, "unknown operator '$gte'; did you mean 'gte'?"),
        ("explain", {"text1": "a", "text2": "b", "modle": "x"}, "did you mean 'model'?"),
        ("describe", {"text": "a", "zzqx": 1}, "unknown argument 'zzqx'"),
    ]
    for tool, arguments, message in wrong:
        result = ask(server, tool, **arguments)
        assert result.is_error and message in result.content[0].text, result
    with pytest.raises(InputError, match="no model is given"):
        home.create_server({})


@pytest.mark.full
def test_the_command_speaks_the_protocol_alone(saved, index):
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    index.close()
    command = ["-m", "pellucid", "mcp", "-m", saved, "--index", str(index.folder)]

    async def tools():
        server = mcp.StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        async with mcp.Client(mcp.stdio_client(server)) as client:
            about = await client.call_tool("describe", {"text": "apple"})
            return {tool.name: tool for tool in (await client.list_tools()).tools}, about, client.instructions

    listed, about, instructions = asyncio.run(tools())
    assert set(listed) == {"explain", "describe", "search"}
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in listed.values())
    assert "apple" in about.structured_content["description"]
    assert f"The models are: {Path(saved).name}." in instructions and "3 documents" in instructions
    silent = subprocess.run([sys.executable, *command], input="", capture_output=True, text=True, check=True)
    assert silent.stdout == ""
