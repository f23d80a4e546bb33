"""The server, asked by the clients that people have, and by those that mean no good."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import uvicorn

import pellucid
from pellucid.analysis import contrast
from pellucid.errors import InputError, ModelFolderError
from pellucid.server import ServerSettings, create_app, serve
from pellucid.server import running as server_running
from pellucid.server.bodies import ApiError
from pellucid.server.running import TimeoutProtocol
from pellucid.server.service import Batcher
from pellucid.static.embedder import StaticEmbedder
from serving import Slow, ask, running, send_raw, started


@pytest.fixture(scope="module")
def url(static: StaticEmbedder) -> Iterator[str]:
    with running(
        {"static-en": static, "slow": Slow()}, max_texts=100, max_characters=5000, max_body_bytes=50_000
    ) as at:
        yield at


@pytest.mark.full
def test_openai_client(url: str, static: StaticEmbedder) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    texts = ["a loan for a house", "mortgage rates"]
    expected = static.encode(texts)
    by_default = client.embeddings.create(model="static-en", input=texts)  # base64 on the wire
    np.testing.assert_array_equal(np.array([row.embedding for row in by_default.data], np.float32), expected)
    floats = client.embeddings.create(model="static-en", input=texts[0], encoding_format="float", dimensions=8)
    assert np.linalg.norm(floats.data[0].embedding) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(floats.data[0].embedding, expected[0, :8] / np.linalg.norm(expected[0, :8]), rtol=1e-5)
    assert floats.usage.prompt_tokens == 5
    assert [model.id for model in client.models.list()] == ["static-en", "slow"]
    with pytest.raises(openai.NotFoundError) as missing:
        client.embeddings.create(model="gpt", input="a")
    assert missing.value.code == "model_not_found" and "static-en, slow" in missing.value.message
    assert client.models.retrieve("slow").id == "slow"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/gpt")
    with pytest.raises(openai.BadRequestError) as ids:
        client.embeddings.create(model="static-en", input=[[1, 2]])
    assert ids.value.param == "input" and "check_embedding_ctx_length=False" in ids.value.message


def test_huggingface_client(url: str, static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # loopback is no hub

    np.testing.assert_array_equal(InferenceClient(model=url).feature_extraction("rates"), static.encode(["rates"]))
    np.testing.assert_array_equal(
        InferenceClient(model=f"{url}/embed").feature_extraction("rates")[0], static.encode("rates")
    )
    scores = InferenceClient(model=f"{url}/similarity").sentence_similarity("loan", other_sentences=["mortgage", "dog"])
    np.testing.assert_allclose(
        scores, static.similarity(static.encode(["loan"]), static.encode(["mortgage", "dog"]))[0]
    )
    assert InferenceClient(model=url).sentence_similarity("loan", other_sentences=["mortgage", "dog"]) == scores


def test_rerank_orders_by_the_cosine_of_search(url: str, static: StaticEmbedder) -> None:
    texts = ["a dog in the park", "mortgage rates", "a loan"]
    status, found = ask(url, "/rerank", {"query": "borrow money", "texts": texts, "return_text": True})
    scores = static.similarity(static.encode_query(["borrow money"]), static.encode_document(texts))[0]
    assert status == 200 and [entry["index"] for entry in found] == np.argsort(-scores).tolist()
    assert [entry["score"] for entry in found] == pytest.approx(sorted(scores.tolist(), reverse=True))
    assert [entry["text"] for entry in found] == [texts[entry["index"]] for entry in found]


def test_explanations_are_those_of_the_library(url: str, static: StaticEmbedder) -> None:
    texts = ("a loan for a house", "mortgage rates", "a house with a garden")
    status, found = ask(url, "/explain", {"text1": texts[0], "text2": texts[1]})
    assert status == 200 and found == json.loads(static.explain(*texts[:2]).to_json())
    assert sum(row["contribution"] for row in found["rows"]) == pytest.approx(found["score"], abs=1e-6)
    _, one = ask(url, "/describe", {"text": texts[0], "explanation": True})
    assert one["explanation"].pop("notes") and one["explanation"] == json.loads(static.explain(texts[0]).to_json())
    for lacking in ({"text1": texts[0]}, {"text1": texts[0], "text2": None}, {"text2": texts[0]}):
        assert ask(url, "/explain", lacking)[0] == 422
    _, difference = ask(url, "/explain", {"text1": texts[0], "text2": texts[1], "text3": texts[2]})
    assert difference == json.loads((static.explain(*texts[:2]) - static.explain(texts[0], texts[2])).to_json())
    _, said = ask(url, "/describe", {"text": texts[0], "top_k": 2})
    assert said["description"] == static.describe(texts[0], top_k=2) and said["coverage"] == 1


def test_dimensions_are_searched_by_name_and_words(url: str, static: StaticEmbedder) -> None:
    _, some = ask(url, "/dimensions?offset=3&limit=2")
    assert some["total"] == 256 and [entry["number"] for entry in some["dimensions"]] == [3, 4]
    word = static.dimensions[10].about[0]
    _, found = ask(url, f"/dimensions?search={quote(word.split(', ')[-1].upper())}")
    assert 10 in [entry["number"] for entry in found["dimensions"]] and found["total"] < 256


def test_info_and_state(url: str) -> None:
    assert ask(url, "/health")[0] == ask(url, "/ready")[0] == 200
    status, info = ask(url, "/info")
    assert status == 200 and info["model_id"] == "static-en" and info["max_client_batch_size"] == 100
    _, models = ask(url, "/models")
    assert [(m["name"], m["dimension"], m["sparse"]) for m in models] == [("static-en", 256, False), ("slow", 2, False)]
    _, metrics = ask(url, "/metrics")
    assert 'pellucid_requests_total{route="/health",status="200"}' in metrics
    ask(url, "/no/such/route")
    assert "such" not in ask(url, "/metrics")[1]  # scanners must not fill the metrics


def test_slow_body_and_slow_model_end_in_time(fruit: StaticEmbedder) -> None:
    with running({"slow": Slow(2.0)}, timeout=0.5) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{")
            assert half.recv(100).startswith(b"HTTP/1.1 408")
        status, error = ask(url, "/embed", {"inputs": "a"})
        assert status == 504 and "0.5 seconds" in error["error"]


@pytest.mark.full
def test_silent_clients_are_closed() -> None:
    health = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
    with running({"slow": Slow(2.5)}, patience=1) as url:
        for sent in (b"", health, health + b"GET /hea", b"GET /health HTTP/1.1\r\nhost:"):
            assert send_raw(url, sent, 10).count(b"200 OK") == sent.count(health)
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200  # longer than a silence may last


@pytest.mark.full
def test_answers_that_nobody_reads_are_let_go(static: StaticEmbedder) -> None:
    body = json.dumps({"inputs": ["a"] * 2000}).encode()
    request = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with running({"static-en": static}, patience=1, timeout=1.0) as url:
        host, port = url.removeprefix("http://").split(":")
        deaf = [socket.create_connection((host, int(port)), timeout=30) for _ in range(4)]
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            connection.sendall((request % len(body) + body) * 5)
        time.sleep(5)
        assert "pellucid_requests_running 1.0" in ask(url, "/metrics")[1]
        whole = len(json.dumps(ask(url, "/embed", body)[1]))
        for connection in deaf:
            assert _rest(connection) < 0.8 * whole  # what the system had taken; the server keeps nothing for it


def test_answers_that_wait_for_their_clients_are_bounded(
    static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.server.guard._MAX_UNREAD_BYTES", 1 << 20)
    body = json.dumps({"inputs": ["a"] * 2000}).encode()
    head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with running({"static-en": static}) as url:
        whole = ask(url, "/embed", body)
        assert whole[0] == 200 and len(whole[1]) == 2000  # in pieces
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            deaf.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            deaf.sendall(head % len(body) + body)
            deaf.recv(1)
            time.sleep(0.5)
            status, error = ask(url, "/embed", body)
            assert status == 429 and "large answers" in error["error"]
            assert ask(url, "/embed", {"inputs": "a"})[0] == 200
        for _ in range(100):
            if ask(url, "/embed", body) == whole:
                return
            time.sleep(0.05)
        raise AssertionError("room is not given back")


def test_a_request_that_arrives_with_the_end_is_answered(fruit: StaticEmbedder) -> None:
    app = create_app(models={"fruit": fruit})
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=TimeoutProtocol, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not (server.started and app.state.service.is_ready):
        time.sleep(0.01)
    with socket.create_connection(server.servers[0].sockets[0].getsockname(), timeout=20) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        stop = server.shutdown

        async def late(sockets: Any = None) -> None:
            connection.sendall(b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n")  # comes before it is read
            await stop(sockets)

        server.shutdown = late
        server.should_exit = True
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
    thread.join(20)


def _rest(connection: socket.socket) -> int:
    """Return how many bytes still come."""
    received = 0
    with contextlib.suppress(ConnectionError), connection:
        while data := connection.recv(1 << 16):
            received += len(data)
    return received


def test_thousands_of_connections(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_running, "_MAX_CONNECTIONS", 50)
    host, port = url.removeprefix("http://").split(":")
    crowd = [socket.create_connection((host, int(port)), timeout=10) for _ in range(100)]
    with contextlib.suppress(ConnectionError):
        assert crowd[-1].recv(1) == b""
    for connection in crowd:
        connection.close()
    for _ in range(50):  # until the server has seen them go
        with contextlib.suppress(OSError):
            assert ask(url, "/embed", {"inputs": "a"})[0] == 200
            return
    raise AssertionError("it takes no requests any more")


def test_too_much_at_a_time_is_refused() -> None:
    with running({"slow": Slow(1.0)}, max_body_bytes=10_000) as url:
        statuses: list[int] = []
        body = {"inputs": "a" * 9000}
        crowd = [threading.Thread(target=lambda: statuses.append(ask(url, "/embed", body)[0])) for _ in range(12)]
        for client in crowd:
            client.start()
        for client in crowd:
            client.join()
        assert set(statuses) == {200, 429} and statuses.count(200) == 8
        assert ask(url, "/embed", body)[0] == 200


def test_who_hangs_up_is_not_worked_for() -> None:
    model = Slow(0.3)
    with running({"slow": model}) as url:
        host, port = url.removeprefix("http://").split(":")
        calls = len(model.calls)
        body = json.dumps({"inputs": [str(number) for number in range(64 * 20)]}).encode()
        with socket.create_connection((host, int(port))) as connection:
            head = "POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: "
            connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.2)
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200
        assert len(model.calls) - calls <= 4  # of 21
        assert 'pellucid_requests_total{route="/embed",status="499"} 1.0' in ask(url, "/metrics")[1]


def test_our_faults_have_the_form_of_the_api(url: str) -> None:
    status, error = ask(url, "/explain", {"text1": "a", "text2": "b", "model": "slow"})  # which cannot explain
    assert status == 500 and error == {"error": "the server failed: NotImplementedError", "error_type": "Backend"}
    assert ask(url, "/embed", {"inputs": "a"})[0] == 200


def test_maps_wait_for_one_another_and_nobody_for_them(static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    running_maps, most = [0], [0]

    def long_map(model: Any, texts: Any, clusters: int) -> Any:
        running_maps[0] += 1
        most[0] = max(most[0], running_maps[0])
        time.sleep(0.8)
        running_maps[0] -= 1
        raise InputError("no map")

    monkeypatch.setattr("pellucid.server.corpus_map.corpus_map", long_map)
    with running({"static-en": static}, timeout=0.5) as url:
        statuses: list[int] = []
        body = {"texts": ["a"] * 10}
        crowd = [threading.Thread(target=lambda: statuses.append(ask(url, "/map", body)[0])) for _ in range(8)]
        for client in crowd:
            client.start()
        time.sleep(0.1)
        assert ask(url, "/explain", {"text1": "a loan", "text2": "a house"})[0] == 200
        for client in crowd:
            client.join()
        assert most == [1] and sorted(statuses) == [429] * 5 + [504] * 3  # one runs on though its request has ended
        assert ask(url, "/map", body)[0] in (422, 504)


def test_index_is_searched_with_reasons(tmp_path: Path, static: StaticEmbedder) -> None:
    pytest.importorskip("Stemmer")
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(
            ["mortgage rates are rising", "a dog in the park"], ids=["a", "b"], metadata=[{"year": 1}, {"year": 2}]
        )
        expected = index.search("rates of a loan").to_dict()
        first, second = (index.score("rates of a loan", id).explain() for id in "ab")
        why, apart = first - second, first.less_mean([second])
        exact = index.score("rates of a loan", "a").measured()
    with running({"static-en": static}, index=str(tmp_path / "index")) as url:
        status, found = ask(url, "/search", {"query": "rates of a loan"})
        assert status == 200 and found == json.loads(json.dumps(expected))
        assert ask(url, "/search", {"query": "park", "where": {"year": {"gte": 2}}})[1]["hits"][0]["id"] == "b"
        named = ask(url, "/search", {"query": "the zzqxw loan", "min_score": 0.9})[1]
        assert (named["unknown"], named["ignored"], named["hits"]) == (["zzqxw", "loan"], ["the"], [])
        assert ask(url, "/search", {"query": "zzqxw"})[1]["has_known_words"] is False
        assert ask(url, "/search", {"query": "park", "min_score": "much"})[0] == 422
        status, error = ask(url, "/search", {"query": "park", "where": {"yaer": 2}})
        assert status == 422 and "year" in error["error"]
        assert ask(url, "/why", {"query": "rates of a loan", "id": "a", "below": "b"})[1] == json.loads(why.to_json())
        assert ask(url, "/why", {"query": "x", "id": "a", "below": "b", "others": ["b"]})[0] == 422
        measured = ask(url, "/why", {"query": "rates of a loan", "id": "a", "measure": True})[1]
        assert measured == json.loads(exact.to_json())  # nothing is estimated here
        asked = {"query": "rates of a loan", "id": "a", "others": ["b"]}
        assert ask(url, "/why", asked)[1] == json.loads(apart.to_json())
        for unknown in ({"id": "none"}, {"id": "a", "below": "none"}):
            status, error = ask(url, "/why", {"query": "x", **unknown})
            assert status == 404 and "no document 'none'" in error["error"]
        assert ask(url, "/index")[1]["documents"] == 2


def test_nothing_is_saved_unless_it_is_allowed(url: str) -> None:
    for path, body in (("/models", {"name": "mine", "words": {"loan": 0}}), ("/index", {"weights": {"bm25": 1}})):
        status, error = ask(url, path, body)
        assert status == 403 and "pellucid serve --save-to FOLDER" in error["error"]
    assert ask(url, "/info")[1]["saves"] is False


def test_an_edited_model_is_saved_and_served_at_once(tmp_path: Path, static: StaticEmbedder) -> None:
    anchors = pellucid.load("anchors-en-200")
    with running({"static-en": static, "anchors": anchors}, save_to=str(tmp_path / "a" / "b")) as url:
        assert ask(url, "/info")[1]["saves"] is True
        edit = {"name": "mine", "words": {"loan": 0.5}, "without": [static.dimensions.names[3]]}
        assert ask(url, "/models", edit) == (200, {"name": "mine", "dimension": 255})
        expected = static.reweight({"loan": 0.5}).without(3)
        found = ask(url, "/v1/embeddings", {"model": "mine", "input": "a loan for a house"})[1]["data"][0]["embedding"]
        np.testing.assert_allclose(found, expected.encode("a loan for a house"), atol=1e-6)
        np.testing.assert_allclose(pellucid.load(tmp_path / "a/b/mine").encode("a loan"), expected.encode("a loan"))
        names = anchors.dimensions.names[:2]
        edit = {"name": "Other.2", "model": "anchors", "scale": {names[0]: 0.5}, "without": names[1:]}
        assert ask(url, "/models", edit)[0] == 200
        why = ask(url, "/explain", {"text1": "a", "text2": "b", "model": "Other.2"})[1]
        assert why == json.loads(anchors.scale({0: 0.5}).without(1).explain("a", "b").to_json())
        assert [entry["name"] for entry in ask(url, "/models")[1]] == ["static-en", "anchors", "mine", "Other.2"]
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == ["Other.2", "mine"]  # nothing is left aside


@pytest.mark.parametrize(
    ("edit", "status", "message"),
    [
        *(
            ({"name": name, "words": {"apple": 2}}, 422, "name: ")
            for name in (
                "",
                ".",
                "..",
                "../x",
                "a/b",
                "/etc/x",
                "a\\b",
                ".hidden",
                "a\0b",
                "a\n",
                "ü",
                "x" * 65,
                "a.",
                3,
            )
        ),
        ({"name": "fruit", "words": {"apple": 2}}, 409, "already"),
        ({"name": "taken", "words": {"apple": 2}}, 409, "already"),
        ({"name": "file", "words": {"apple": 2}}, 409, "already"),
        ({"name": "link", "words": {"apple": 2}}, 409, "already"),
        ({"name": "x"}, 422, "nothing would change"),
        ({"name": "x", "words": {"no-such-word": 2}}, 422, "not in the vocabulary"),
        ({"name": "x", "words": {"apple": -1}}, 422, "words.apple: Input should be greater"),
        ({"name": "x", "words": {"apple": "2"}}, 422, "words.apple"),
        ({"name": "x", "words": {f"w{n}": 1 for n in range(101)}}, 422, "at most 100"),
        ({"name": "x", "scale": {"none": 1}}, 422, "none"),
        ({"name": "x", "without": ["none"]}, 422, "none"),
        ({"name": "x", "without": [1]}, 422, "without"),
        ({"name": "x", "without": ["a"] * 1001}, 422, "1000"),
        ({"name": "x", "model": "none", "words": {"apple": 2}}, 404, "no model"),
        ({"words": {"apple": 2}}, 422, "name"),
    ],
)
def test_what_cannot_be_saved(
    edit: dict[str, Any], status: int, message: str, tmp_path: Path, fruit: StaticEmbedder
) -> None:
    folder = tmp_path / "models"
    (folder / "taken").mkdir(parents=True)
    (folder / "file").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with running({"fruit": fruit}, save_to=str(folder)) as url:
        found, error = ask(url, "/models", edit)
        assert (found, error["error_type"]) == (status, "Validation") and message in error["error"]
        assert len(ask(url, "/models")[1]) == 1
    assert sorted(tmp_path.rglob("*")) == before and (folder / "file").read_text() == "mine"


def test_of_many_that_save_one_name_one_does(
    tmp_path: Path, fruit: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.server.service._MAX_MODELS", 2)
    with running({"fruit": fruit}, save_to=str(tmp_path)) as url:
        found: list[tuple[int, Any]] = []
        edits = [{"name": "mine", "words": {"apple": float(n)}} for n in range(2, 10)]
        crowd = [threading.Thread(target=lambda edit=edit: found.append(ask(url, "/models", edit))) for edit in edits]
        for client in crowd:
            client.start()
        for client in crowd:
            client.join()
        assert sorted(status for status, _ in found) == [200] + [409] * 7
        status, error = ask(url, "/models", {"name": "another", "words": {"apple": 2}})
        assert status == 409 and "2 models are served" in error["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("slow", ["saved", "loaded"])
@pytest.mark.parametrize("ended_by", ["timeout", "client"])
def test_what_got_no_answer_is_not_saved(
    slow: str, ended_by: str, tmp_path: Path, fruit: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, load, done = StaticEmbedder.save_pretrained, pellucid.load, threading.Event()

    def slow_save(self: Any, path: Any) -> None:
        time.sleep(0.6 if slow == "saved" else 0)
        save(self, path)

    def slow_load(path: Any) -> Any:
        time.sleep(0.6 if slow == "loaded" else 0)
        done.set()
        return load(path)

    with running({"fruit": fruit}, save_to=str(tmp_path), timeout=0.3 if ended_by == "timeout" else 30) as url:
        monkeypatch.setattr(StaticEmbedder, "save_pretrained", slow_save)
        monkeypatch.setattr("pellucid.server.service.load", slow_load)
        edit = {"name": "mine", "words": {"apple": 2}}
        if ended_by == "timeout":
            assert ask(url, "/models", edit)[0] == 504
        else:
            body = json.dumps(edit).encode()
            head = b"POST /models HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
                connection.sendall(head % len(body) + body)
                time.sleep(0.2)
        assert ask(url, "/models", edit)[0] == 409  # the name is free once nothing is left
        assert done.wait(10)
        for _ in range(100):
            if not list(tmp_path.iterdir()):
                break
            time.sleep(0.05)
        assert list(tmp_path.iterdir()) == [] and len(ask(url, "/models")[1]) == 1
        monkeypatch.undo()
        assert ask(url, "/models", edit)[0] == 200 and len(ask(url, "/models")[1]) == 2


@pytest.mark.full
def test_settings_that_got_no_answer_are_not_kept(
    tmp_path: Path, static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("Stemmer")
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(["mortgage rates are rising", "a dog in the park"], ids=["a", "b"])
        before = index.weights
    folder = str(tmp_path / "index")
    with running({"static-en": static}, index=folder, save_to=str(tmp_path / "models"), timeout=0.5) as url:
        monkeypatch.setattr(StaticEmbedder, "describe", lambda *_, **__: time.sleep(1) or "")
        crowd = [threading.Thread(target=ask, args=(url, "/describe", {"text": "a"})) for _ in range(2)]
        for client in crowd:
            client.start()
        time.sleep(0.1)
        assert ask(url, "/index", {"weights": {"bm25": 1}})[0] == 504  # both threads are taken for longer
        for client in crowd:
            client.join()
        time.sleep(1)
        assert ask(url, "/index", {}) == (200, {"weights": before, "word weights": {}})
        configure = pellucid.Index.configure
        monkeypatch.setattr(pellucid.Index, "configure", lambda *a, **k: (time.sleep(1), configure(*a, **k)))
        status, found = ask(url, "/index", {"weights": {"bm25": 1}})  # begun in time: it ends, and says so
        assert status == 200 and found["weights"]["bm25"] == 1


def test_of_many_that_save_at_once_no_more_are_served_than_may_be(
    tmp_path: Path, fruit: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.server.service._MAX_MODELS", 5)
    with running({"fruit": fruit}, save_to=str(tmp_path)) as url:
        statuses: list[int] = []
        edits = [{"name": f"m{n}", "words": {"apple": 2}} for n in range(60)]
        crowd = [
            threading.Thread(target=lambda edit=edit: statuses.append(ask(url, "/models", edit)[0])) for edit in edits
        ]
        for client in crowd:
            client.start()
        for client in crowd:
            client.join()
        assert sorted(statuses) == [200] * 4 + [409] * 56
        assert len(ask(url, "/models")[1]) == 5 == len(list(tmp_path.iterdir())) + 1


def test_settings_of_the_index_are_kept(tmp_path: Path, static: StaticEmbedder) -> None:
    pytest.importorskip("Stemmer")
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(["mortgage rates are rising", "a dog in the park"], ids=["a", "b"])
    with running({"static-en": static}, index=str(tmp_path / "index"), save_to=str(tmp_path / "models")) as url:
        wanted = {"weights": {"bm25": 1, "static-en": 3}, "word_weights": {"dog": 0}}
        kept = {"weights": {"bm25": 0.25, "static-en": 0.75}, "word weights": {"dog": 0.0}}
        assert ask(url, "/index", wanted) == (200, kept)
        for wrong in ({"weights": {"x": 1}}, {"word_weights": {"a": -1}}, {"weights": {"bm25": 1e308}}, {"weights": 3}):
            assert ask(url, "/index", wrong)[0] == 422
        assert ask(url, "/index", {}) == (200, kept)
        found = ask(url, "/search", {"query": "the dog"})[1]
        assert found["weights"] == kept["weights"] and found["hits"][0]["score"] < 0.2
        unweighed = ask(url, "/search", {"query": "the dog", "word_weights": {}})[1]
        assert unweighed["hits"][0]["id"] == "b" and unweighed["hits"][0]["score"] > 0.3
    with pellucid.Index.open(tmp_path / "index") as index:
        assert (index.weights, index.word_weights) == (kept["weights"], kept["word weights"])


def test_requests_that_wait_are_encoded_together() -> None:
    model = Slow()
    asyncio.run(_concurrent(model, [[f"text {n}"] for n in range(40)]))
    assert sum(count for count, _ in model.calls) == 40 and len(model.calls) < 10


async def _concurrent(model: Slow, requests: list[list[str]], most: int = 100) -> list[Any]:
    batcher = Batcher(model, most)
    batcher.start()
    found = await asyncio.gather(*(batcher.encode(texts, None) for texts in requests), return_exceptions=True)
    await batcher.stop()
    for texts, rows in zip(requests, found):
        if not isinstance(rows, ApiError):
            assert [row[1] for row in rows.tolist()] == [hash(text) % 1000 for text in texts]
    return found


def test_no_request_fails_for_another_ones_text() -> None:
    requests = [["a"], ["poison"], ["b", "c"]]
    first, second, third = asyncio.run(_concurrent(Slow(), requests))
    assert len(first) == 1 and len(third) == 2
    assert isinstance(second, ApiError) and second.status == 424 and "choked" in str(second)


def test_a_long_request_lets_others_pass_and_a_full_queue_refuses() -> None:
    model = Slow(0.01)
    long, short = asyncio.run(_concurrent(model, [[f"{n}" for n in range(1000)], ["short"]], most=4))
    assert len(long) == 1000 and len(short) == 1
    refused = asyncio.run(_concurrent(Slow(0.05), [[f"{n}"] for n in range(30)], most=4))
    assert {error.status for error in refused if isinstance(error, ApiError)} == {429}


def test_who_hangs_up_costs_nothing() -> None:
    async def hang_up() -> Slow:
        model = Slow(0.05)
        batcher = Batcher(model, 100)
        batcher.start()
        first = asyncio.create_task(batcher.encode(["first"], None))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(batcher.encode([f"{n}"], None)) for n in range(20)]
        await asyncio.sleep(0.01)
        for task in others:
            task.cancel()
        assert (await first).shape == (1, 2)
        rows = await batcher.encode(["after"], None)
        assert rows[0, 0] == 5
        await batcher.stop()
        return model

    model = asyncio.run(hang_up())
    assert sum(count for count, _ in model.calls) < 5


def test_settings_and_addresses_are_checked() -> None:
    with pytest.raises(InputError, match="max_texts is 0"):
        ServerSettings(max_texts=0)
    with pytest.raises(InputError, match="PELLUCID_TOKEN"):
        serve(ServerSettings(), host="0.0.0.0")
    with pytest.raises(ModelFolderError, match="no-such-model"):
        serve(ServerSettings(models=("no-such-model",)), workers=2, port=0)
    with pytest.raises(InputError, match="one worker"):
        serve(ServerSettings(save_to="x"), workers=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1 at port {port}: .*another --port"):
            serve(ServerSettings(models=("no-such-model",)), port=port)
    with pytest.raises(InputError, match="cannot listen on no-such-host"):
        serve(ServerSettings(token="t"), host="no-such-host.invalid")


def test_openapi_is_complete(fruit: StaticEmbedder) -> None:
    schema = create_app(models={"fruit": fruit}).openapi()
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            assert operation["description"] and operation["responses"]["200"], (method, path)
    assert schema["paths"]["/v1/embeddings"]["post"]["responses"]["400"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/OpenAIError"
    }


def test_no_page_refers_to_another_host(url: str) -> None:
    schema = ask(url, "/openapi.json")[1]
    pages = [file.name for file in (Path(server_running.__file__).parent / "page").iterdir()]
    answered = 0
    for path in ["/", "/openapi.json", "/docs", "/redoc", *schema["paths"], *(f"/{name}" for name in pages)]:
        status, found = ask(url, path)
        answered += status == 200
        text = found if isinstance(found, str) else json.dumps(found)
        hosts = set(re.findall(r"""(?:https?:|["'(=])//([^/"'\s)]+)""", text))
        assert hosts <= {"www.w3.org"}, (path, hosts)  # in the names of XML's vocabularies, which nobody asks
    assert answered > len(pages) and ask(url, "/redoc")[0] == 404


PARAPHRASES = Path(server_running.__file__).parent / "paraphrases.tsv"


def test_what_sets_texts_apart_and_what_scores_mean(url: str, static: StaticEmbedder) -> None:
    texts = ["a loan for a house", "the rates of a mortgage", "a dog in the park", "dogs and cats"] * 3
    members = [0, 1, 4, 5]
    sides = {"mine": [texts[n] for n in members], "others": [t for n, t in enumerate(texts) if n not in members]}
    expected = contrast(static, sides)["mine"]
    status, found = ask(url, "/contrast", {"texts": texts, "members": members})
    assert status == 200 and found["separation"] == pytest.approx(expected.separation)
    assert [row["name"] for row in found["rows"]] == [row.name for row in expected.rows]
    assert sum(row["contribution"] for row in found["rows"]) == pytest.approx(found["separation"])
    assert [word["word"] for word in found["words"]] == [word.word for word in expected.words]
    for wrong in ([0, 12], [-1, 2], [3, 3]):
        assert ask(url, "/contrast", {"texts": texts, "members": wrong})[0] == 422
    status, scale = ask(url, "/scores")
    pairs = [line.split("\t") for line in PARAPHRASES.read_text(encoding="utf-8").splitlines()]
    own = sorted(float(static.explain(*pair).score) for pair in pairs)
    assert status == 200 and scale["paraphrases"] == pytest.approx(own, abs=1e-4)
    assert len(scale["unrelated"]) == len(pairs) * (len(pairs) - 1) and ask(url, "/scores?model=none")[0] == 404


@pytest.mark.full
@pytest.mark.parametrize("token", [None, "secret"])
def test_its_own_schema(token: str | None, fruit: StaticEmbedder, tmp_path: Path) -> None:
    """Every check of schemathesis, over an index and with saving."""
    pytest.importorskip("schemathesis")
    pytest.importorskip("Stemmer")
    with pellucid.Index.create(tmp_path / "index", {"fruit": fruit}) as index:
        index.add(["an apple", "a pear and a plum"], ids=["a", "b"], metadata=[{"n": 1, "s": "x"}] * 2)
    (tmp_path / "schemathesis.toml").write_text(
        "[checks]\npositive_data_acceptance.expected-statuses = "
        '["2xx", "400", "403", "404", "409", "413", "422", "424", "429"]\n'  # limits that a schema cannot say
    )
    options = {"index": str(tmp_path / "index"), "save_to": str(tmp_path / "models"), "token": token}
    with running({"fruit": fruit}, **options) as url:
        command = ["schemathesis", "run", f"{url}/openapi.json", "--max-examples", "15", "--seed", "1", "--no-color"]
        command += ["--request-timeout", "60"]  # the machine may be busy
        command += ["-H", f"Authorization: Bearer {token}"] if token else []
        program = Path(sys.executable).parent / command[0]
        found = subprocess.run([program, *command[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert found.returncode == 0, found.stdout[-9000:]
        assert ask(url, "/health")[0] == 200


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 2])
def test_command_answers_and_ends(workers: int, port: int) -> None:
    command = [sys.executable, "-m", "pellucid", "serve", "--port", str(port), "--workers", str(workers)]
    with started(command, port, {"PELLUCID_TOKEN": "t"}) as (process, url):
        assert len(ask(url, "/embed", {"inputs": "a"}, {"authorization": "Bearer t"})[1][0]) == 256
        assert ask(url, "/embed", {"inputs": "a"})[0] == 401
        for _ in range(20):
            ask(url, "/health")
        _, metrics = ask(url, "/metrics")  # of all workers together
        assert int(re.search(r'route="/health",status="200"} (\d+)', metrics)[1]) in (
            19,
            20,
            21,
        )  # the last may yet come, one was asked at the start
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert "Traceback" not in process.stderr.read()


@pytest.mark.full
def test_what_was_accepted_is_answered_after_sigterm(port: int) -> None:
    script = (
        "import serving, pellucid.server as server; "
        f"server.serve(server.ServerSettings(), {{'slow': serving.Slow(1.0)}}, port={port})"
    )
    with started([sys.executable, "-c", script], port, {}) as (process, url):
        answers: list[int] = []
        requests = [
            threading.Thread(target=lambda: answers.append(ask(url, "/embed", {"inputs": ["a"]})[0])) for _ in range(8)
        ]
        for request in requests:
            request.start()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        for request in requests:
            request.join(30)
        assert answers == [200] * 8
        process.wait(30)


def test_base64_is_little_endian_float32(url: str, static: StaticEmbedder) -> None:
    _, found = ask(url, "/v1/embeddings", {"model": "static-en", "input": "rates", "encoding_format": "base64"})
    row = np.frombuffer(base64.b64decode(found["data"][0]["embedding"]), "<f4")
    np.testing.assert_array_equal(row, static.encode("rates"))


@pytest.mark.full
def test_the_wheel_holds_the_page(tmp_path: Path) -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs the package hatchling")
    root = Path(__file__).parents[2]
    (built,) = wheel.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    page = {path.name for path in (root / "src/pellucid/server/page").iterdir()}
    with zipfile.ZipFile(built) as files:
        inside = {Path(name).name for name in files.namelist() if name.startswith("pellucid/server/page/")}
        assert "pellucid/server/paraphrases.tsv" in files.namelist()
    assert inside == page and {"index.html", "explorer.js", "style.css"} <= page


def test_documents_are_listed_counted_and_paged(static, tmp_path):
    pytest.importorskip("Stemmer")
    with pellucid.Index.create(tmp_path / "index", {"a": static}) as index:
        metadata = [{"lang": "en" if n % 3 else "de", "n": n} for n in range(10)]
        index.add([f"a dog {n}" for n in range(10)], ids=[str(n) for n in range(10)], metadata=metadata)
    with running({"static-en": static}, index=str(tmp_path / "index")) as url:
        body = {"where": {"lang": "en"}, "limit": 4, "count_by": ["lang"]}
        status, page = ask(url, "/documents", body)
        assert status == 200 and page["total"] == 6 and [d["id"] for d in page["documents"]] == ["1", "2", "4", "5"]
        assert page["counts"] == {"lang": [{"value": "en", "documents": 6}]}
        assert page["documents"][0] == {"id": "1", "title": "", "text": "a dog 1", "metadata": {"lang": "en", "n": 1}}
        last = ask(url, "/documents", {**body, "after": page["next"]})[1]
        assert [d["id"] for d in last["documents"]] == ["7", "8"] and last["next"] is None
        sorted_page = ask(url, "/documents", {"sort": "n", "descending": True, "offset": 1, "limit": 2})[1]
        assert [d["id"] for d in sorted_page["documents"]] == ["8", "7"]
        assert ask(url, "/documents", {"limit": 0})[1] == {"total": 10, "documents": [], "next": None, "counts": {}}
        for wrong in ({"sort": "m"}, {"after": "x"}, {"after": "1", "sort": "n"}, {"count_by": ["m"]}, {"limit": 1001}):
            assert ask(url, "/documents", wrong)[0] == 422


def test_documented_requests_filter_page_and_give_vectors(tmp_path):
    """Every curl of the manual's part on searching is answered."""
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text("utf-8")
    requests = re.findall(r"curl -s http://127.0.0.1:8080/(search|documents) [^{]*-d '([^']*)'", page)
    assert [route for route, _ in requests] == ["search", "documents", "documents"]
    folder = tmp_path / "index"
    with pellucid.Index.create(folder) as index:
        fields = [{"year": 2000 + n, "lang": "en", "status": "open", "day": f"2024-01-{n + 1:02d}"} for n in range(30)]
        index.add([f"interest rates {n}" for n in range(30)], metadata=fields)
    with running({"static-en": pellucid.load("static-en")}, index=str(folder)) as url:
        found, listed, cursor = [ask(url, f"/{route}", json.loads(body))[1] for route, body in requests]
        assert found["offset"] == 10 and len(found["hits"]) == 5
        assert ask(url, "/search", {"query": "rates", "offset": 10**30})[1]["hits"] == []
        assert len(found["hits"][0]["vectors"]["static-en"]) == 256
        assert [one["metadata"]["day"] for one in listed["documents"]][:2] == ["2024-01-10", "2024-01-09"]
        assert listed["counts"]["status"] == [{"value": "open", "documents": 30}] and cursor["documents"] == []
        pages = [ask(url, "/search", {"query": "rates", "offset": start})[1]["hits"] for start in (0, 10, 20)]
        assert len({hit["id"] for page in pages for hit in page}) == 30
