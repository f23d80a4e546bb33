"""The server, asked by the clients that people have: its answers are those of the library, and bounded.

Work ends with its request, and no reply tells of the machine.
"""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import pellucid
from pellucid.errors import IndexFolderError, InputError, ModelFolderError
from pellucid.progress import check_cancelled
from pellucid.server import ServerSettings, bounds, create_app, serve
from pellucid.server.bodies import MAX_TESTS, MAX_TEXT_CHARS, MAX_TEXTS, MAX_WHERE_VALUES, ApiError
from pellucid.server.service import Batcher
from pellucid.static.embedder import StaticEmbedder
from refusals import refused
from serving import Slow, ask, indexed, running, started

ROOT = Path(__file__).parents[2]
MANUAL = (ROOT / "docs/server.md").read_text("utf-8")


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


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

    _, difference = ask(url, "/explain", {"text1": texts[0], "text2": texts[1], "text3": texts[2]})
    assert difference == json.loads((static.explain(*texts[:2]) - static.explain(texts[0], texts[2])).to_json())


def test_what_is_served_its_dimensions_and_what_its_scores_mean(url: str, static: StaticEmbedder) -> None:
    assert ask(url, "/health")[0] == 200
    info = ask(url, "/info")[1]
    assert [(model["name"], model["dimension"]) for model in info["models"]] == [("static-en", 256), ("slow", 2)]
    assert info["indexes"] == []
    _, some = ask(url, "/dimensions?offset=3&limit=2")
    assert some["total"] == 256 and [entry["number"] for entry in some["dimensions"]] == [3, 4]
    _, named = ask(url, f"/dimensions?search={quote(static.dimensions[10].about[0].split(', ')[-1].upper())}")
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
        hit = index.score("rates of a loan", "a")
        why = hit.explain() - index.score("rates of a loan", "b").explain()
        exact = {"measure": hit.measured().to_json(), "check": hit.check().explain().to_json()}
    with running({"static-en": static}, index=str(tmp_path / "index")) as url:
        status, page = ask(url, "/search", {"query": "rates of a loan"})
        assert status == 200 and page == json.loads(json.dumps(expected))

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


@pytest.fixture(scope="module")
def words(static: StaticEmbedder) -> list[str]:
    """Short words with a vector each."""
    known = (word for word in static.vocabulary.words if word.isascii() and word.isalpha() and 3 <= len(word) <= 5)
    return [word for word, _ in zip(known, range(4000))]


@pytest.fixture(scope="module")
def bounded(static: StaticEmbedder, words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("Stemmer")
    texts = [" ".join(words[start : start + 600]) for start in range(0, 3000, 300)]
    documents = {"ids": [str(number) for number in range(10)], "metadata": [{"n": 1, "s": "x"}] * 10}
    folder = indexed(tmp_path_factory.mktemp("bounds") / "index", texts, {"a": static}, **documents)
    with running({"static-en": static}, index=folder, max_body_bytes=1 << 20) as at:
        yield at


# Sizes of answers


def check_sum(why: Any) -> None:
    """The rows of an answer and its remainder add up to its score."""
    total = sum(row["contribution"] for row in why["rows"]) + why["remainder"]
    assert total == pytest.approx(why["score"], abs=1e-6) and abs(why["remainder"]) < 1e-5


@pytest.mark.full
def test_rows_beyond_the_limit_are_one_row(bounded: str, static: StaticEmbedder, words: list[str]) -> None:
    texts = {"text1": " ".join(words[:300]), "text2": " ".join(words[200:500])}
    status, why = ask(bounded, "/explain", {**texts, "notes": True})
    whole = static.explain(*texts.values())
    assert status == 200 and len(why["rows"]) == bounds.MAX_ROWS + 1 < len(whole.rows)
    assert [row["name"] for row in why["rows"][:-1]] == [row.name for row in whole.rows[: bounds.MAX_ROWS]]
    last = why["rows"][-1]
    assert last["kind"] == "rest" and last["name"] == f"the sum of {len(whole.rows) - bounds.MAX_ROWS:,} smaller rows"
    assert last["contribution"] == pytest.approx(whole.contributions[bounds.MAX_ROWS :].sum(), abs=1e-9)
    check_sum(why)
    status, why = ask(bounded, "/why", {"query": " ".join(words[:100]), "id": "1"})
    assert status == 200 and len(why["rows"]) == bounds.MAX_ROWS + 1
    check_sum(why)


def test_differences_of_too_many_rows_are_refused(bounded: str, words: list[str]) -> None:
    texts = {f"text{number + 1}": " ".join(words[400 * number : 400 * number + 400]) for number in range(3)}
    for path, body in (("/explain", texts), ("/why", {"query": texts["text1"], "id": "1", "below": "2"})):
        status, error = ask(bounded, path, body)
        assert status == 422 and "at most 100,000 are subtracted" in error["error"], path


def test_pairs_are_counted_before_they_are_made(
    bounded: str, words: list[str], static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = {"query": " ".join(words[:500])}
    assert ask(bounded, "/search", {**query, "top_k": 100})[0] == 200
    monkeypatch.setattr(bounds, "_MAX_WORD_PAIRS", 100_000)
    for path, body in (("/search", query), ("/why", {**query, "id": "1"})):
        status, error = ask(bounded, path, body)
        assert status == 422 and "at most 100,000 are read" in error["error"], path
    for text in (
        " ".join(words),
        "a",
        "",
        "日本語の文章です。" * 50,
        "Ünï-ködé… “quoted” — dash",
        "ไทย ไทย",
        "naïve x" * 9,
    ):
        assert len(static.text_words(text).rows) <= bounds._max_words(text) or not text


def test_bytes_beyond_the_limit(bounded: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"text1": " ".join(words[:100]), "text2": " ".join(words[:100])}
    for home in ("bounds", "bodies"):
        monkeypatch.setattr(f"pellucid.server.{home}.MAX_ANSWER_BYTES", 20_000)
    status, why = ask(bounded, "/explain", texts)
    assert status == 200 and 10 < len(why["rows"]) < 100 and why["rows"][-1]["kind"] == "rest"
    check_sum(why)
    for path, body, expected in (
        ("/search", {"query": texts["text1"], "rows": 1000}, 422),
        ("/embed", {"inputs": words[:200]}, 422),
        ("/dimensions?limit=1000", None, 422),
        ("/v1/embeddings", {"input": words[:200], "model": "static-en"}, 400),
    ):
        status, error = ask(bounded, path, body)
        assert status == expected and "20,000" in str(error["error"]), (path, status, error)


def test_requests_above_the_limit_are_refused_and_health_is_not() -> None:
    with running({"slow": Slow(0.5)}, max_waiting=4) as url, ThreadPoolExecutor(12) as crowd:
        requests: list[Any] = [("/embed", {"inputs": "a"})] * 9 + [("/info",)] * 3
        answers = crowd.map(lambda request: ask(url, *request)[0], requests)
        assert ask(url, "/health")[0] == 200 and set(answers) == {200, 429}
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200


# Work that nobody waits for


class Patient(Slow):
    """A model that encodes one text in ten milliseconds, and looks whether it is still wanted."""

    def __init__(self) -> None:
        super().__init__(0)
        self.n_texts, self.ended = 0, threading.Event()

    def _encode(self, texts: Any, role: Any, **options: Any) -> Any:
        if "patience" in texts:
            try:
                for _ in range(1000):
                    check_cancelled()
                    time.sleep(0.01)
            finally:
                self.ended.set()
        return super()._encode(texts, role, **options)


@pytest.mark.parametrize("ended_by", ["timeout", "client"])
def test_encoding_ends_with_its_request(ended_by: str) -> None:
    model = Patient()
    with running({"patient": model}, timeout=0.3 if ended_by == "timeout" else 30) as url:
        if ended_by == "timeout":
            status, error = ask(url, "/embed", {"inputs": "patience"})
            assert status == 504 and "0.3 seconds" in error["error"]
        else:
            body = b'{"inputs": "patience"}'
            head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
                connection.sendall(head % len(body) + body)
                time.sleep(0.2)
        assert model.ended.wait(2)
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200


@pytest.mark.needs("Stemmer")
def test_measuring_ends_with_its_request_and_keeps_nobody_out(tmp_path: Path, static: StaticEmbedder) -> None:
    """One small body measures thousands of texts; others search meanwhile, and after its 504 nothing goes on."""
    n_texts, seconds = [0], [0.0]

    def encoder(texts: list[str]) -> Any:
        n_texts[0] += len(texts)
        time.sleep(seconds[0] * len(texts))
        return np.array([[len(text) % 97, text.count("a") + 1, text.count("e"), 1.0] for text in texts])

    words = "loan house bank river horse car tree mortgage rate money interest road train".split()
    texts, ids = [" ".join(words[n % 5 :] * 4) for n in range(12)], [f"d{n}" for n in range(12)]
    folder = indexed(tmp_path / "index", texts, {"encoder": encoder}, ids=ids)
    app = create_app(ServerSettings(timeout=1.0), {"static-en": static})
    app.state.service.indexes["index"] = pellucid.Index.open(folder, models={"encoder": encoder})
    app.state.service.indexes["index"].score("loan", "d0").measured()  # what any two texts share is read once
    seconds[0] = 0.02
    body = {"query": " ".join(words), "id": "d0", "measure": True, "below": "d1"}
    with running({}, app=app) as url, ThreadPoolExecutor(3) as crowd:
        others = [crowd.submit(ask, url, "/why", body) for _ in range(3)]
        time.sleep(0.3)
        began = time.perf_counter()
        assert ask(url, "/documents", {})[0] == ask(url, "/search", {"query": "loan"})[0] == 200
        assert time.perf_counter() - began < 0.9
        assert ask(url, "/why", body)[0] == 504 and {other.result()[0] for other in others} == {504}
        time.sleep(0.7)
        n_before = n_texts[0]
        time.sleep(1.5)  # a block of 64 texts takes 1.3
        assert n_texts[0] == n_before


# What a reply tells


@pytest.mark.needs("Stemmer")
def test_no_error_reply_holds_a_path_of_the_machine(
    tmp_path: Path, static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = indexed(tmp_path / "index", ["a loan", "a house"], static, ids=["a", "b"])
    with running({"static-en": static}, index=folder) as url:
        requests: list[tuple[str, Any]] = [
            ("/search", {"query": "loan"}),
            ("/why", {"query": "loan", "id": "a"}),
            ("/documents", {"limit": 1}),
            ("/index", None),
            ("/explain", {"text1": "a", "text2": "b"}),
            ("/v1/embeddings", {"input": "a"}),
        ]
        for error in (IndexFolderError, ModelFolderError, InputError, OSError, ValueError, KeyError):
            with monkeypatch.context() as patch:
                raises = Mock(side_effect=error(f"{tmp_path}/index/seg-0001 is damaged"))
                for kind, name in (
                    (pellucid.Index, "search"), (pellucid.Index, "score"), (pellucid.Index, "snapshot"),
                    (StaticEmbedder, "explain"), (StaticEmbedder, "encode"),
                ):  # fmt: skip
                    patch.setattr(kind, name, raises)
                for path, body in requests:
                    status, reply = ask(url, path, body)
                    assert str(tmp_path) not in json.dumps(reply), (path, reply)
                    assert status >= 500 or (path == "/v1/embeddings" and status == 424), (path, status, error)
        for path in (tmp_path / "index").rglob("*"):
            if path.is_file():
                path.write_bytes(b"\x00" * path.stat().st_size)
        for path, body in requests:
            status, reply = ask(url, path, body)
            assert str(tmp_path) not in json.dumps(reply) and status in (200, 500), (path, reply)


# Processes


@pytest.mark.full
def test_command_answers_and_ends(port: int) -> None:
    command = [sys.executable, "-m", "pellucid", "serve", "--port", str(port)]
    variables = {"PELLUCID_TOKEN": "t\udcff", "WEB_CONCURRENCY": "3"}  # which hosting services set, and uvicorn reads
    with started(command, port, variables) as (process, url):
        right = {"authorization": "Bearer t\xff", "host": "embed.example.org"}  # as a proxy passes it on
        assert len(ask(url, "/embed", {"inputs": "a"}, right)[1][0]) == 256
        assert ask(url, "/embed", {"inputs": "a"})[0] == 401
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert "Traceback" not in process.stderr.read()


@pytest.mark.full
def test_a_name_that_is_allowed_is_answered_without_a_token(port: int) -> None:
    command = [sys.executable, "-m", "pellucid", "serve", "--port", str(port), "--allow-host", "embed.example.org"]
    with started(command, port, {"WEB_CONCURRENCY": ""}) as (_, url):
        for host, status in (("embed.example.org", 200), ("localhost", 200), ("evil.example", 400)):
            assert ask(url, "/v1/models", headers={"host": host})[0] == status


@pytest.mark.full
def test_what_was_accepted_is_answered_after_sigterm(port: int) -> None:
    script = (
        "import serving, pellucid.server as server; "
        f"server.serve(server.ServerSettings(), {{'slow': serving.Slow(3.0)}}, port={port})"
    )
    with started([sys.executable, "-c", script], port, {}) as (process, url):
        with ThreadPoolExecutor(8) as crowd:
            answers = crowd.map(lambda _: ask(url, "/embed", {"inputs": ["a"]})[0], range(8))
            time.sleep(2)
            process.send_signal(signal.SIGTERM)
        assert list(answers) == [200] * 8
        process.wait(30)


# Settings, schema, page


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


ABSENT = ServerSettings(models=("no-such-model",))

test_settings_and_addresses_are_checked = refused(
    (lambda: ServerSettings(max_waiting=1.5), "max_waiting is 1.5"),
    (lambda: ServerSettings(token=" "), "the token is empty"),
    (lambda: serve(ServerSettings(), host="0.0.0.0"), "PELLUCID_TOKEN"),
    (lambda: serve(ABSENT, port=0), "no-such-model", ModelFolderError),
    (lambda taken: serve(ABSENT, port=taken), r"127.0.0.1 at port \d+: .*another --port"),
    (lambda: serve(ServerSettings(token="t"), host="no-such-host.invalid"), "cannot listen on no-such-host"),
    (lambda: create_app(ServerSettings(index=("a/x", "b/x")), {"slow": Slow()}), "two indexes are called 'x'"),
)


def test_the_schema_says_what_is_checked(fruit: StaticEmbedder) -> None:
    schema = create_app(ServerSettings(token="t"), {"fruit": fruit}).openapi()
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
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
        command = [
            Path(sys.executable).parent / "schemathesis", "run", f"{url}/openapi.json",
            "--max-examples", "15", "--seed", "1", "--no-color",
            "--request-timeout", "60",  # the machine may be busy
            *(["-H", f"Authorization: Bearer {token}"] if token else []),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout[-9000:]


def test_no_page_refers_to_another_host(url: str) -> None:
    pages = [f"/{file.name}" for file in (ROOT / "src/pellucid/server/page").iterdir()]
    n_answered = 0
    for path in ["/", "/openapi.json", "/docs", "/redoc", *ask(url, "/openapi.json")[1]["paths"], *pages]:
        status, answer = ask(url, path)
        n_answered += status == 200
        text = answer if isinstance(answer, str) else json.dumps(answer)
        hosts = set(re.findall(r"""(?:https?:|["'(=])//([^/"'\s)]+)""", text))
        assert hosts <= {"www.w3.org"}, (path, hosts)  # in the names of XML's vocabularies, which nobody asks
    assert n_answered > len(pages) and ask(url, "/redoc")[0] == 404


# The manual


def test_documented_requests_filter_and_page(tmp_path: Path, static: StaticEmbedder) -> None:
    """Every curl of the manual's part on searching is answered."""
    requests = re.findall(r"curl -s http://127.0.0.1:8080/(search|documents) [^{]*-d '([^']*)'", MANUAL)
    assert [route for route, _ in requests] == ["search", "documents", "documents"]
    fields = [{"year": 2000 + n, "lang": "en", "status": "open", "day": f"2024-01-{n + 1:02d}"} for n in range(30)]
    folder = indexed(tmp_path / "index", [f"interest rates {n}" for n in range(30)], metadata=fields)
    with running({"static-en": static}, index=folder) as url:
        hits, listed, cursor = [ask(url, f"/{route}", json.loads(body))[1] for route, body in requests]
        assert hits["offset"] == 10 and len(hits["hits"]) == 5
        assert [one["metadata"]["day"] for one in listed["documents"]][:2] == ["2024-01-10", "2024-01-09"]
        assert listed["counts"]["status"] == [{"value": "open", "documents": 30}] and cursor["documents"] == []


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    for limit in (MAX_TESTS, MAX_WHERE_VALUES, MAX_TEXTS, MAX_TEXT_CHARS, ServerSettings().max_waiting):
        assert f"{limit:,}" in MANUAL
