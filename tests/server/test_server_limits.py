"""What the server answers is bounded, work ends with its request, and no reply tells of the machine."""

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import pellucid
from pellucid.errors import IndexFolderError, InputError, ModelFolderError
from pellucid.progress import check_cancelled
from pellucid.server import ServerSettings, bounds, create_app
from pellucid.static.embedder import StaticEmbedder
from serving import Slow, ask, indexed, running, started


@pytest.fixture(scope="module")
def words(static: StaticEmbedder) -> list[str]:
    """Short words with a vector each."""
    known = (word for word in static.vocabulary.words if word.isascii() and word.isalpha() and 3 <= len(word) <= 5)
    return [word for word, _ in zip(known, range(4000))]


@pytest.fixture(scope="module")
def url(static: StaticEmbedder, words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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
def test_rows_beyond_the_limit_are_one_row(url: str, static: StaticEmbedder, words: list[str]) -> None:
    texts = {"text1": " ".join(words[:300]), "text2": " ".join(words[200:500])}
    status, why = ask(url, "/explain", {**texts, "notes": True})
    whole = static.explain(*texts.values())
    assert status == 200 and len(why["rows"]) == bounds.MAX_ROWS + 1 < len(whole.rows)
    assert [row["name"] for row in why["rows"][:-1]] == [row.name for row in whole.rows[: bounds.MAX_ROWS]]
    last = why["rows"][-1]
    assert last["kind"] == "rest" and last["name"] == f"the sum of {len(whole.rows) - bounds.MAX_ROWS:,} smaller rows"
    assert last["contribution"] == pytest.approx(whole.contributions[bounds.MAX_ROWS :].sum(), abs=1e-9)
    check_sum(why)
    status, why = ask(url, "/why", {"query": " ".join(words[:100]), "id": "1"})
    assert status == 200 and len(why["rows"]) == bounds.MAX_ROWS + 1
    check_sum(why)


def test_differences_of_too_many_rows_are_refused(url: str, words: list[str]) -> None:
    texts = {f"text{number + 1}": " ".join(words[400 * number : 400 * number + 400]) for number in range(3)}
    for path, body in (("/explain", texts), ("/why", {"query": texts["text1"], "id": "1", "below": "2"})):
        status, error = ask(url, path, body)
        assert status == 422 and "at most 100,000 are subtracted" in error["error"], path


def test_pairs_are_counted_before_they_are_made(
    url: str, words: list[str], static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = {"query": " ".join(words[:500])}
    assert ask(url, "/search", {**query, "top_k": 100})[0] == 200
    monkeypatch.setattr(bounds, "_MAX_WORD_PAIRS", 100_000)
    for path, body in (("/search", query), ("/why", {**query, "id": "1"})):
        status, error = ask(url, path, body)
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


def test_bytes_beyond_the_limit(url: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"text1": " ".join(words[:100]), "text2": " ".join(words[:100])}
    for home in ("bounds", "bodies"):
        monkeypatch.setattr(f"pellucid.server.{home}.MAX_ANSWER_BYTES", 20_000)
    status, why = ask(url, "/explain", texts)
    assert status == 200 and 10 < len(why["rows"]) < 100 and why["rows"][-1]["kind"] == "rest"
    check_sum(why)
    for path, body in (
        ("/search", {"query": texts["text1"], "rows": 1000}),
        ("/embed", {"inputs": words[:200]}),
        ("/dimensions?limit=1000", None),
    ):
        status, error = ask(url, path, body)
        assert status == 422 and "20,000" in error["error"], (path, status, error)
    status, error = ask(url, "/v1/embeddings", {"input": words[:200], "model": "static-en"})
    assert status == 400 and "20,000" in error["error"]["message"]


def test_requests_above_the_limit_are_refused_and_health_is_not() -> None:
    with running({"slow": Slow(0.5)}, max_waiting=4) as url:
        statuses: list[int] = []
        crowd = [threading.Thread(target=lambda: statuses.append(ask(url, "/info")[0])) for _ in range(3)]
        crowd += [
            threading.Thread(target=lambda: statuses.append(ask(url, "/embed", {"inputs": "a"})[0])) for _ in range(9)
        ]
        for client in reversed(crowd):
            client.start()
        assert ask(url, "/health")[0] == 200
        for client in crowd:
            client.join()
        assert set(statuses) == {200, 429}
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
    n_texts = [0]

    def encoder(texts: list[str]) -> Any:
        n_texts[0] += len(texts)
        time.sleep(0.03 * len(texts))
        return np.array([[len(text) % 97, text.count("a") + 1, text.count("e"), 1.0] for text in texts])

    words = "loan house bank river horse car tree mortgage rate money interest road train".split()
    texts, ids = [" ".join(words[n % 5 :] * 4) for n in range(12)], [f"d{n}" for n in range(12)]
    folder = indexed(tmp_path / "index", texts, {"encoder": encoder}, ids=ids)
    app = create_app(ServerSettings(timeout=1.0), {"static-en": static})
    app.state.service.indexes["index"] = pellucid.Index.open(folder, models={"encoder": encoder})
    body = {"query": " ".join(words), "id": "d0", "measure": True, "below": "d1"}
    with running({}, app=app) as url:
        crowd = [threading.Thread(target=ask, args=(url, "/why", body)) for _ in range(3)]
        for client in crowd:
            client.start()
        time.sleep(0.3)
        began = time.perf_counter()
        assert ask(url, "/documents", {})[0] == ask(url, "/search", {"query": "loan"})[0] == 200
        assert time.perf_counter() - began < 0.9
        assert ask(url, "/why", body)[0] == 504
        for client in crowd:
            client.join()
        time.sleep(0.7)
        n_before = n_texts[0]
        time.sleep(0.5)
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
        secret = f"{tmp_path}/index/seg-0001 is damaged"
        for error in (IndexFolderError, ModelFolderError, InputError, OSError, ValueError, KeyError):

            def fail(*_: Any, error: Any = error, **__: Any) -> Any:
                raise error(secret)

            with monkeypatch.context() as patch:
                for name in ("search", "score", "snapshot"):
                    patch.setattr(pellucid.Index, name, fail)
                for name in ("explain", "encode"):
                    patch.setattr(StaticEmbedder, name, fail)
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
        answers: list[int] = []
        requests = [
            threading.Thread(target=lambda: answers.append(ask(url, "/embed", {"inputs": ["a"]})[0])) for _ in range(8)
        ]
        for request in requests:
            request.start()
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        for request in requests:
            request.join(30)
        assert answers == [200] * 8
        process.wait(30)
