"""Adapters, each against the real library; the tests of a library that is absent are skipped."""

import asyncio
import json
import os
import pickle
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import pellucid
from pellucid.errors import MissingExtraError
from refusals import refused
from tiny_models import tiny_lexicon

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/integrations.md").read_text(encoding="utf-8"), re.DOTALL)
TEXTS = ["The apple", "a pear and an apple", "the car", "bicycle bicycle", ""]
LIBRARIES = {"langchain": "langchain_core", "mcp": "mcp", "sklearn": "sklearn"}


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
    pytest.importorskip(LIBRARIES[name], reason=f"{LIBRARIES[name]} is not installed")
    return import_module(f"pellucid.integrations.{name}")


@pytest.mark.parametrize("module", LIBRARIES)
def test_an_absent_library_is_named_with_the_line_that_installs_it(module, monkeypatch):
    monkeypatch.setitem(sys.modules, LIBRARIES[module], None)
    for loaded in [name for name in sys.modules if name.startswith(f"{LIBRARIES[module]}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(sys.modules, f"pellucid.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match="is not installed") as raised:
        import_module(f"pellucid.integrations.{module}")
    name, extra = re.match(r'(.+?) is not installed.*"pellucid\[(.+?)\]', str(raised.value)).groups()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(rf'^{extra} = \["{name}>=[\d.]+,<[\d.]+"\]$', project, re.MULTILINE)


@pytest.mark.full
@pytest.mark.parametrize("block", BLOCKS[1:], ids=lambda block: block.partition("\n")[0])
def test_the_code_on_the_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    libraries = set(re.findall(r"^(?:from|import) (\w+)", block, re.MULTILINE)) - {"pellucid"}
    libraries |= {LIBRARIES[name] for name in re.findall(r"integrations\.(\w+)", block)}
    for library in sorted(libraries):
        pytest.importorskip(library, reason=f"{library} is not installed")
    if "my-index" in block:
        exec(BLOCKS[0], {})
    if "my-lexicon" in block:
        tiny_lexicon().save_pretrained("my-lexicon")
    exec(compile(block, "docs/integrations.md", "exec"), {"__name__": "page"})


# LangChain


@pytest.mark.full
def test_langchains_store_finds_what_the_model_finds(fruit):
    langchain = adapter("langchain")
    from langchain_core.vectorstores import InMemoryVectorStore

    embeddings = langchain.PellucidEmbeddings(fruit)
    assert embeddings.embed_documents(TEXTS[:4]) == fruit.encode(TEXTS[:4]).tolist()
    assert asyncio.run(embeddings.aembed_query("pear")) == fruit.encode("pear").tolist()
    unknown = ["今天天气很好", "", "日本語の文章"]  # zero rows, which a store would divide by zero
    texts = [*unknown, "A home loan costs more this year", "The weather in town"]
    store = InMemoryVectorStore.from_texts(texts, langchain.PellucidEmbeddings("static-en"))
    assert store.similarity_search_with_score("mortgage loan", k=1)[0][0].page_content == texts[3]
    for query in unknown:
        scores = [score for _, score in store.similarity_search_with_score(query, k=5)]
        assert np.isfinite(scores).all() and max(scores) < 0.5
    sparse = langchain.PellucidEmbeddings(tiny_lexicon())
    assert len(sparse.embed_documents(["apple"])[0]) == sparse.model.get_embedding_dimension()


@pytest.mark.full
def test_langchains_retriever_gives_the_reasons(index):
    langchain = adapter("langchain")
    retriever, hits = langchain.PellucidRetriever(index=index, k=2), index.search("apple pear", 2)
    for documents in (retriever.invoke("apple pear"), asyncio.run(retriever.ainvoke("apple pear"))):
        assert [(d.id, d.page_content) for d in documents] == [(h.id, h.text) for h in hits]
        for document, hit in zip(documents, hits):
            why = document.metadata["pellucid"]
            assert json.loads(json.dumps(document.metadata)) == {**hit.metadata, "pellucid": why}
            assert [why[name] for name in ("id", "score", "title", "parts", "snippet")] == [
                hit.id, hit.score, hit.title, hit.parts, hit.snippet,
            ]  # fmt: skip
            assert why["reasons"][0]["name"] == hit.reasons.top(1)[0].name and why["summary"] in hit.summary()
            assert sum(group["contribution"] for group in why["groups"]) == pytest.approx(hit.score, abs=1e-6)
            marked = {hit.text[word["start"] : word["end"]].lower() for word in why["marks"]["text"]}
            assert marked and marked <= {"apple", "pear", "apples", "pears"}
    index.close()
    opened = langchain.PellucidRetriever(index=str(index.folder), k=1)
    assert [document.id for document in opened.invoke("car bicycle")] == ["b"]
    opened.index.close()


@pytest.fixture
def retriever(index):
    return adapter("langchain").PellucidRetriever(index=index, k=3, where={"year": {"gte": 2002}})


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, {"b", "c"}),
        ({"k": 1}, {"c"}),
        ({"where": {"year": 2001}}, {"a"}),
        ({"k": 1, "where": {"year": 2001}}, {"a"}),
    ],
)
def test_langchains_retriever_takes_arguments_for_one_call(retriever, options, ids):
    question = "apple pear car"
    answers = [retriever.invoke(question, **options), asyncio.run(retriever.ainvoke(question, **options))]
    answers += [*retriever.batch([question], **options), retriever.bind(**options).invoke(question)]
    assert [{document.id for document in answer} for answer in answers] == [ids] * 4


test_arguments_that_an_adapter_does_not_know_are_refused = pytest.mark.full(refused(
    *((lambda retriever, call=call, wrong=wrong: call(retriever, wrong), next(iter(wrong)), (TypeError, ValueError))
      for wrong in ({"top_k": 2}, {"filter": {"year": 2001}}, {"Where": {"year": 2001}}) for call in (
        lambda retriever, wrong: retriever.invoke("apple", **wrong),
        lambda retriever, wrong: asyncio.run(retriever.ainvoke("apple", **wrong)),
        lambda retriever, wrong: type(retriever)(index=retriever.index, **wrong))),
    (lambda retriever: retriever.invoke("apple", k=0), "top_k is 0"),
    (lambda: adapter("mcp").create_server({}), "no model is given"),
    *((lambda fruit, wrong=wrong, way=way: getattr(adapter("sklearn").PellucidVectorizer(fruit), way)(wrong),
       "give a list, series or array of one dimension")
      for wrong in ("apple", b"apple", {"text": TEXTS}, 3, None, np.array([TEXTS])) for way in ("fit", "transform")),
    (lambda fruit: adapter("sklearn").PellucidVectorizer(fruit).transform(["apple", float("nan")]), "text 1 is float"),
    *((lambda fruit, wrong=wrong: adapter("sklearn").PellucidVectorizer(fruit).transform(
        pytest.importorskip("pandas").DataFrame({"text": TEXTS})[wrong]), "one column of a table")
      for wrong in (slice(None), ["text"])),
))  # fmt: skip


# Model Context Protocol


def ask(server, tool, **arguments):
    """Call a tool of a server in memory."""
    import mcp

    async def call():
        async with mcp.Client(server) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(call())


@pytest.mark.full
def test_an_assistant_asks_and_searches(fruit, index):
    server = adapter("mcp").create_server({"fruit": fruit}, index)

    def said(tool, **arguments):
        return ask(server, tool, **arguments).structured_content

    why = fruit.explain("the apple", "pear and apple")
    answer = said("explain", text1="the apple", text2="pear and apple")
    assert (answer["score"], answer["summary"]) == (pytest.approx(why.score), why.summary())
    assert [(group["name"], group["contribution"]) for group in answer["groups"]] == [
        (group.name, pytest.approx(group.contribution)) for group in why.lines
    ]
    about = {"description": fruit.describe("an apple"), "coverage": pytest.approx(0.5)}
    assert said("describe", text="an apple", model="fruit") == about
    cited = pellucid.cite("an apple", ["a pear", "an apple"], fruit)
    assert said("cite", answer="an apple", passages=["a pear", "an apple"]) == json.loads(cited.to_json())
    asked = {"queries": ["apple pear", "car"], "second": {"weights": {"bm25": 1}}, "top_k": 1}
    compared = index.compare(dict(enumerate(asked["queries"])), {}, asked["second"], top_k=1)
    assert said("compare", **asked) == compared.to_dict()
    documents, hits = said("search", query="apple pear", top_k=2)["documents"], index.search("apple pear", 2)
    assert [g["name"] for g in documents[0]["groups"]] == [group.name for group in hits[0].explain().groups()]
    assert [[d[name] for name in ("id", "score", "metadata", "marks", "summary")] for d in documents] == [
        [h.id, h.score, h.metadata, h.to_dict()["marks"], h.summary()] for h in hits
    ]
    (only,) = said("search", query="apple", where={"year": 2003}, check=True)["documents"]
    assert only["id"] == "c" and only["groups"][0]["without"] == 0 and documents[0]["groups"][0]["without"] is None
    empty = {"documents": [], "unknown": ["zzz"], "suggestions": {}, "ignored": ["the"]}
    assert said("search", query="the zzz apple", min_score=5) == empty


@pytest.mark.full
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("explain", {"text1": "a", "text2": "b", "model": "x"}, "no model 'x' is served here; there are: fruit"),
        ("explain", {"text1": "a" * 9999, "text2": "bb"}, "10,001 characters; at most 10,000"),
        ("explain", {"text1": "a"}, "text2"),
        ("search", {"query": "a" * 10_001}, "at most 10,000"),
        ("describe", {"text": "a", "top_k": 0}, "greater than or equal to 1"),
        ("search", {"query": "a", "where": {"jear": 1}}, "year"),
        ("search", {"query": "a", "filter": {"year": 1}}, "filter"),
        ("describe", {"text": "a", "zzqx": 1}, "zzqx"),
    ],
)
def test_an_assistant_is_told_what_is_wrong(fruit, index, tool, arguments, message):
    result = ask(adapter("mcp").create_server({"fruit": fruit}, index), tool, **arguments)
    assert result.is_error and message in result.content[0].text, result


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
    assert set(listed) == {"explain", "describe", "cite", "search", "why_not", "compare"}
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in listed.values())
    assert "apple" in about.structured_content["description"]
    assert f"The models are: {Path(saved).name}." in instructions and "3 documents" in instructions
    assert subprocess.run([sys.executable, *command], input="", capture_output=True, text=True, check=True).stdout == ""


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
    search = GridSearchCV(pipeline, {"pellucidvectorizer__model": [saved, fruit.keep([0])]}, cv=2).fit(texts, labels)
    assert search.best_score_ == 1.0
    assert pipeline[0].set_params(model=fruit.keep([1])).transform(TEXTS).shape == (5, 1)


@pytest.mark.full
def test_scikit_learns_columns_are_named(fruit):
    vectorizer = adapter("sklearn").PellucidVectorizer
    table = pytest.importorskip("pandas").DataFrame({"text": TEXTS, "n": range(5)}, index=list("abcde"))
    rows = vectorizer(fruit).set_output(transform="pandas").transform(table["text"])
    assert list(rows.columns) == fruit.dimensions.names and list(rows.index) == list("abcde")
    assert scipy.sparse.issparse(vectorizer(tiny_lexicon()).transform(TEXTS))


def test_scikit_learns_own_checks_hold(saved):
    """All of `check_estimator`, which stops at estimators of texts, and those behind it that give no numbers."""
    pytest.importorskip("sklearn", minversion="1.7")
    vectorizer = adapter("sklearn").PellucidVectorizer
    from sklearn.exceptions import SkipTestWarning
    from sklearn.utils import estimator_checks

    with pytest.warns(SkipTestWarning, match="requires input"):
        assert {done["status"] for done in estimator_checks.check_estimator(vectorizer())} == {"passed"}
