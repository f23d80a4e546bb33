"""The server, asked by the clients that people have; its answers are those of the library."""

import asyncio
import base64
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import pellucid
from pellucid.errors import InputError, ModelFolderError
from pellucid.server import ServerSettings, create_app, serve
from pellucid.server.bodies import MAX_TESTS, MAX_TEXT_CHARS, MAX_TEXTS, MAX_WHERE_VALUES, ApiError
from pellucid.server.service import Batcher
from pellucid.static.embedder import StaticEmbedder
from serving import Slow, ask, indexed, running

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src/pellucid/server/page"


@pytest.fixture(scope="module")
def url(static: StaticEmbedder) -> Iterator[str]:
    with running({"static-en": static, "slow": Slow()}) as at:
        yield at


# Models


@pytest.mark.full
def test_openai_client(url: str, static: StaticEmbedder) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    texts = ["a loan for a house", "mortgage rates"]
    expected = static.encode(texts)
    by_default = client.embeddings.create(model="static-en", input=texts)  # base64 on the wire
    np.testing.assert_array_equal(np.array([row.embedding for row in by_default.data], np.float32), expected)
    floats = client.embeddings.create(model="static-en", input=texts[0], encoding_format="float", dimensions=8)
    np.testing.assert_allclose(floats.data[0].embedding, expected[0, :8] / np.linalg.norm(expected[0, :8]), rtol=1e-5)
    assert floats.usage.prompt_tokens == 5
    assert [model.id for model in client.models.list()] == ["static-en", "slow"]
    with pytest.raises(openai.NotFoundError) as missing:
        client.embeddings.create(model="gpt", input="a")
    assert missing.value.code == "model_not_found" and "static-en, slow" in missing.value.message
    with pytest.raises(openai.BadRequestError) as ids:
        client.embeddings.create(model="static-en", input=[[1, 2]])
    assert ids.value.param == "input" and "check_embedding_ctx_length=False" in ids.value.message


def test_huggingface_client(url: str, static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # loopback is no hub
    rows = InferenceClient(model=f"{url}/embed").feature_extraction("rates")
    np.testing.assert_array_equal(rows, static.encode(["rates"]))


def test_base64_is_little_endian_float32(url: str, static: StaticEmbedder) -> None:
    _, answer = ask(url, "/v1/embeddings", {"model": "static-en", "input": "rates", "encoding_format": "base64"})
    row = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    np.testing.assert_array_equal(row, static.encode("rates"))


def test_rerank_orders_by_the_cosine_of_search(url: str, static: StaticEmbedder) -> None:
    texts = ["a dog in the park", "mortgage rates", "a loan"]
    status, entries = ask(url, "/rerank", {"query": "borrow money", "texts": texts, "return_text": True})
    scores = static.similarity(static.encode_query(["borrow money"]), static.encode_document(texts))[0]
    assert status == 200 and [entry["index"] for entry in entries] == np.argsort(-scores).tolist()
    assert [entry["score"] for entry in entries] == pytest.approx(sorted(scores.tolist(), reverse=True))
    assert [entry["text"] for entry in entries] == [texts[entry["index"]] for entry in entries]


def test_explanations_are_those_of_the_library(url: str, static: StaticEmbedder) -> None:
    texts = ("a loan for a house", "mortgage rates", "a house with a garden")
    status, why = ask(url, "/explain", {"text1": texts[0], "text2": texts[1]})
    assert status == 200 and why == json.loads(static.explain(*texts[:2]).to_json())
    assert sum(row["contribution"] for row in why["rows"]) == pytest.approx(why["score"], abs=1e-6)
    _, about = ask(url, "/describe", {"text": texts[0], "top_k": 2, "explanation": True})
    assert about["description"] == static.describe(texts[0], top_k=2) and about["coverage"] == 1
    assert about["explanation"].pop("notes") and about["explanation"] == json.loads(static.explain(texts[0]).to_json())
    _, cited = ask(url, "/cite", {"answer": texts[0], "passages": texts, "top_k": 2})
    assert cited == json.loads(pellucid.cite(texts[0], texts, static, top_k=2).to_json()) and cited["citations"]
    for lacking in ({"text1": texts[0]}, {"text1": texts[0], "text2": None}, {"text2": texts[0]}):
        assert ask(url, "/explain", lacking)[0] == 422
    _, difference = ask(url, "/explain", {"text1": texts[0], "text2": texts[1], "text3": texts[2]})
    assert difference == json.loads((static.explain(*texts[:2]) - static.explain(texts[0], texts[2])).to_json())


def test_what_is_served_its_dimensions_and_what_its_scores_mean(url: str, static: StaticEmbedder) -> None:
    assert ask(url, "/health")[0] == 200
    info = ask(url, "/info")[1]
    assert [(model["name"], model["dimension"]) for model in info["models"]] == [("static-en", 256), ("slow", 2)]
    assert info["indexes"] == []
    _, some = ask(url, "/dimensions?offset=3&limit=2")
    assert some["total"] == 256 and [entry["number"] for entry in some["dimensions"]] == [3, 4]
    word = static.dimensions[10].about[0]
    _, named = ask(url, f"/dimensions?search={quote(word.split(', ')[-1].upper())}")
    assert 10 in [entry["number"] for entry in named["dimensions"]] and named["total"] < 256
    _, scored = ask(url, "/explain", {"text1": "a loan for a house", "text2": "a house loan"})
    assert 99 < scored["percentile"] < 100


# Indexes


@pytest.mark.needs("Stemmer")
def test_index_is_searched_with_reasons(tmp_path: Path, static: StaticEmbedder) -> None:
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(
            ["mortgage rates are rising", "a dog in the park"], ids=["a", "b"], metadata=[{"year": 1}, {"year": 2}]
        )
        expected = index.search("rates of a loan").to_dict()
        first, second = (index.score("rates of a loan", id).explain() for id in "ab")
        why = first - second
        hit = index.score("rates of a loan", "a")
        exact = {"measure": hit.measured().to_json(), "check": hit.check().explain().to_json()}
    with running({"static-en": static}, index=str(tmp_path / "index")) as url:
        status, page = ask(url, "/search", {"query": "rates of a loan"})
        assert status == 200 and page == json.loads(json.dumps(expected))
        assert ask(url, "/search", {"query": "park", "where": {"year": {"gte": 2}}})[1]["hits"][0]["id"] == "b"
        named = ask(url, "/search", {"query": "the zzqxw loan", "min_score": 0.9})[1]
        assert (named["unknown"], named["ignored"], named["hits"]) == (["zzqxw", "loan"], ["the"], [])
        assert ask(url, "/search", {"query": "park", "offset": 10**15})[1]["hits"] == []
        assert ask(url, "/search", {"query": "park", "offset": 10**30})[0] == 422
        assert ask(url, "/why", {"query": "rates of a loan", "id": "a", "below": "b"})[1] == json.loads(why.to_json())
        for option, why_json in exact.items():  # nothing is estimated here
            assert ask(url, "/why", {"query": "rates of a loan", "id": "a", option: True})[1] == json.loads(why_json)
        assert ask(url, "/why", {"query": "a loan", "id": "a", "below": "b", "check": True})[0] == 422
        for unknown in ({"id": "none"}, {"id": "a", "below": "none"}):
            status, error = ask(url, "/why", {"query": "x", **unknown})
            assert status == 404 and "no document 'none'" in error["error"]
        assert ask(url, "/index")[1]["documents"] == 2


@pytest.mark.needs("Stemmer")
def test_documents_are_listed_counted_and_paged(static: StaticEmbedder, tmp_path: Path) -> None:
    texts, metadata = [f"a dog {n}" for n in range(10)], [{"lang": "en" if n % 3 else "de", "n": n} for n in range(10)]
    folder = indexed(tmp_path / "index", texts, {"a": static}, ids=map(str, range(10)), metadata=metadata)
    with running({"static-en": static}, index=folder) as url:
        body = {"where": {"lang": "en"}, "limit": 4, "count_by": ["lang"]}
        status, page = ask(url, "/documents", body)
        assert status == 200 and page["total"] == 6 and [d["id"] for d in page["documents"]] == ["1", "2", "4", "5"]
        assert (page["counts"], page["documents"][0]) == (
            {"lang": [{"value": "en", "documents": 6}]},
            {"id": "1", "title": "", "text": "a dog 1", "metadata": {"lang": "en", "n": 1}},
        )
        last = ask(url, "/documents", {**body, "after": page["next"]})[1]
        assert [d["id"] for d in last["documents"]] == ["7", "8"] and last["next"] is None
        sorted_page = ask(url, "/documents", {"sort": "n", "descending": True, "offset": 1, "limit": 2})[1]
        assert [d["id"] for d in sorted_page["documents"]] == ["8", "7"]
        assert ask(url, "/documents", {"limit": 0})[1] == {"total": 10, "documents": [], "next": None, "counts": {}}
        for wrong in ({"sort": "m"}, {"after": "x"}, {"after": "1", "sort": "n"}, {"count_by": ["m"]}, {"limit": 1001}):
            assert ask(url, "/documents", wrong)[0] == 422


@pytest.mark.needs("Stemmer")
def test_an_index_says_what_it_holds(static: StaticEmbedder, tmp_path: Path) -> None:
    texts, metadata = [f"document {n}" for n in range(50)], [{"lang": "en", "n": f"{n}"} for n in range(50)]
    with running({"static-en": static}, index=indexed(tmp_path / "index", texts, metadata=metadata)) as url:
        status, first = ask(url, "/index")
        assert status == 200 and first["values"]["lang"] == [{"value": "en", "documents": 50}]
        assert first["all values"] == {"lang": True, "n": False} and len(first["values"]["n"]) == 50
        assert len(first["examples"]) == 4 and "grades" not in first
        assert ask(url, "/judge", {"query": "x", "id": "y"})[0] == 404
        with pellucid.Index.open(tmp_path / "index") as index:
            index.add(["une autre"], metadata=[{"lang": "fr"}])
        assert [one["value"] for one in ask(url, "/index")[1]["values"]["lang"]] == ["en", "fr"]
    with running({"static-en": static}, index=str(tmp_path / "index"), judge=True) as url:
        id = ask(url, "/documents", {"limit": 1})[1]["documents"][0]["id"]
        assert ask(url, "/judge", {"query": "x" * 10_001, "id": id})[0] == 422
        assert ask(url, "/judge", {"query": "x", "id": id}) == (200, {"judged": 1})
        assert list(ask(url, "/index")[1]["grades"]) == ["x"]
        with open(tmp_path / "index/judgements/qrels.tsv", "a") as file:
            file.write("torn")
        assert ask(url, "/index")[1]["grades"] == {} and ask(url, "/judge", {"query": "y", "id": id})[0] == 500


@pytest.mark.needs("Stemmer")
def test_several_indexes_are_told_apart(static: StaticEmbedder, tmp_path: Path) -> None:
    places = ["a/x", "b/y", "c/x-2"]
    folders = tuple(indexed(tmp_path / place, [f"a loan in {place}"]) for place in places)
    with running({"static-en": static}, index=folders) as url:
        names = ask(url, "/info")[1]["indexes"]
        assert names == ["x", "y", "x-2"]
        for name, place in zip([*names, None], [*places, places[0]]):
            hits = ask(url, "/search", {"query": "loan", "index": name})[1]["hits"]
            assert hits[0]["text"].endswith(place)
            assert ask(url, "/documents", {"index": name})[1]["documents"][0]["text"] == hits[0]["text"]
        status, error = ask(url, "/search", {"query": "loan", "index": "third"})
        assert status == 404 and "x, y, x-2" in error["error"]
    with pytest.raises(InputError, match="two indexes are called 'x'"):
        create_app(ServerSettings(index=(folders[0], str(tmp_path / "d/x"))), {"static-en": static})


# The queue of a model


def test_requests_that_wait_are_encoded_together() -> None:
    model = Slow()
    asyncio.run(_concurrent(model, [[f"text {n}"] for n in range(40)]))
    assert sum(count for count, _ in model.calls) == 40 and len(model.calls) < 10


async def _concurrent(model: Slow, requests: list[list[str]]) -> list[Any]:
    batcher = Batcher(model)
    answers = await asyncio.gather(*(batcher.encode(texts, None) for texts in requests), return_exceptions=True)
    await batcher.stop()
    for texts, rows in zip(requests, answers):
        if not isinstance(rows, ApiError):
            assert [row[1] for row in rows.tolist()] == [hash(text) % 1000 for text in texts]
    return answers


def test_no_request_fails_for_another_ones_text() -> None:
    first, second, third = asyncio.run(_concurrent(Slow(), [["a"], ["poison"], ["b", "c"]]))
    assert len(first) == 1 and len(third) == 2
    assert isinstance(second, ApiError) and second.status == 424 and "RuntimeError" in str(second)


def test_a_long_request_lets_others_pass() -> None:
    long, short = asyncio.run(_concurrent(Slow(0.01), [[f"{n}" for n in range(1000)], ["short"]]))
    assert len(long) == 1000 and len(short) == 1


# Settings, schema, page


def test_settings_and_addresses_are_checked() -> None:
    import socket

    for wrong, message in (({"max_waiting": 1.5}, "max_waiting is 1.5"), ({"token": " "}, "the token is empty")):
        with pytest.raises(InputError, match=message):
            ServerSettings(**wrong)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, absent = taken.getsockname()[1], ServerSettings(models=("no-such-model",))
        for settings, options, message in (
            (ServerSettings(), {"host": "0.0.0.0"}, "PELLUCID_TOKEN"),
            (absent, {"port": 0}, "no-such-model"),
            (absent, {"port": port}, f"127.0.0.1 at port {port}: .*another --port"),
            (ServerSettings(token="t"), {"host": "no-such-host.invalid"}, "cannot listen on no-such-host"),
        ):
            with pytest.raises((InputError, ModelFolderError), match=message):
                serve(settings, **options)


def test_the_schema_says_what_is_checked(fruit: StaticEmbedder) -> None:
    schema = create_app(ServerSettings(token="t"), {"fruit": fruit}).openapi()
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    asked = schema["paths"]["/embed"]["post"]["security"], schema["paths"]["/health"]["get"]["security"]
    assert asked == ([{"token": []}], [])
    assert create_app(models={"fruit": fruit}).openapi()["paths"]["/embed"]["post"]["security"] == []
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            assert operation["description"] and operation["responses"]["200"], (method, path)
            assert not path.startswith("/v1/") or "422" not in operation["responses"]
    shapes = schema["components"]["schemas"]
    weights = shapes["WhyRequest"]["properties"]["weights"]["anyOf"][0]
    assert weights["maxProperties"] == 100 and weights["additionalProperties"] == {"type": "number"}
    assert shapes["EmbedRequest"]["properties"]["dimensions"]["anyOf"][0] == {"type": "integer", "minimum": 1}


@pytest.mark.needs("schemathesis", "Stemmer")
@pytest.mark.full
@pytest.mark.parametrize("token", [None, "secret"])
def test_its_own_schema(token: str | None, fruit: StaticEmbedder, tmp_path: Path) -> None:
    """Every check of schemathesis, over an index."""
    documents = {"ids": ["a", "b"], "metadata": [{"n": 1, "s": "x"}] * 2}
    folder = indexed(tmp_path / "index", ["an apple", "a pear and a plum"], {"fruit": fruit}, **documents)
    (tmp_path / "schemathesis.toml").write_text(
        "[checks]\npositive_data_acceptance.expected-statuses = "
        '["2xx", "400", "404", "413", "422", "424", "429"]\n'  # limits that a schema cannot say
    )
    with running({"fruit": fruit}, index=folder, token=token) as url:
        command = ["schemathesis", "run", f"{url}/openapi.json", "--max-examples", "15", "--seed", "1", "--no-color"]
        command += ["--request-timeout", "60"]  # the machine may be busy
        command += ["-H", f"Authorization: Bearer {token}"] if token else []
        program = Path(sys.executable).parent / command[0]
        done = subprocess.run([program, *command[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout[-9000:]


def test_no_page_refers_to_another_host(url: str) -> None:
    schema = ask(url, "/openapi.json")[1]
    pages = [file.name for file in PAGE.iterdir()]
    n_answered = 0
    for path in ["/", "/openapi.json", "/docs", "/redoc", *schema["paths"], *(f"/{name}" for name in pages)]:
        status, answer = ask(url, path)
        n_answered += status == 200
        text = answer if isinstance(answer, str) else json.dumps(answer)
        hosts = set(re.findall(r"""(?:https?:|["'(=])//([^/"'\s)]+)""", text))
        assert hosts <= {"www.w3.org"}, (path, hosts)  # in the names of XML's vocabularies, which nobody asks
    assert n_answered > len(pages) and ask(url, "/redoc")[0] == 404


@pytest.mark.full
def test_the_wheel_holds_the_page(tmp_path: Path) -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs the package hatchling")
    (built,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as files:
        inside = {Path(name).name for name in files.namelist() if name.startswith("pellucid/server/page/")}
    assert inside == {path.name for path in PAGE.iterdir()} >= {"index.html", "explorer.js", "style.css"}


# The manual


def test_documented_requests_filter_and_page(tmp_path: Path, static: StaticEmbedder) -> None:
    """Every curl of the manual's part on searching is answered."""
    page = (ROOT / "docs/server.md").read_text("utf-8")
    requests = re.findall(r"curl -s http://127.0.0.1:8080/(search|documents) [^{]*-d '([^']*)'", page)
    assert [route for route, _ in requests] == ["search", "documents", "documents"]
    fields = [{"year": 2000 + n, "lang": "en", "status": "open", "day": f"2024-01-{n + 1:02d}"} for n in range(30)]
    folder = indexed(tmp_path / "index", [f"interest rates {n}" for n in range(30)], metadata=fields)
    with running({"static-en": static}, index=folder) as url:
        hits, listed, cursor = [ask(url, f"/{route}", json.loads(body))[1] for route, body in requests]
        assert hits["offset"] == 10 and len(hits["hits"]) == 5
        assert [one["metadata"]["day"] for one in listed["documents"]][:2] == ["2024-01-10", "2024-01-09"]
        assert listed["counts"]["status"] == [{"value": "open", "documents": 30}] and cursor["documents"] == []


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs/server.md").read_text(encoding="utf-8")
    for limit in (MAX_TESTS, MAX_WHERE_VALUES, MAX_TEXTS, MAX_TEXT_CHARS, ServerSettings().max_waiting):
        assert f"{limit:,}" in page
