"""A model on a server: what is asked, what comes back, and all that a server can do wrong on the way."""

from __future__ import annotations

import json
import pickle
import threading
import time
import traceback
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import pellucid
from pellucid import load
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import EngineError, InputError
from pellucid.index import EmbeddingServer, Index, embedding_server


def vector(text, width=4):
    return [float(text.count("a")), float(text.count("e")), float(len(text)), 1.0][:width]


class Served:
    """A small server of OpenAI's API; `answers` are given once each before it does its work."""

    def __init__(self):
        self.asked, self.headers, self.answers, self.change = [], [], [], lambda body, answer: answer
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, body))
                outer.headers.append(dict(self.headers))
                code, more, text = 200, {}, None
                if outer.answers:
                    code, more, text = outer.answers.pop(0)
                if text is None:
                    width = body.get("dimensions", 4)
                    data = [{"index": n, "embedding": vector(t, width)} for n, t in enumerate(body["input"])]
                    text = json.dumps(outer.change(body, {"data": data}))
                raw = text if isinstance(text, bytes) else text.encode()
                self.send_response(code)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                with suppress(OSError):  # who asked has gone
                    self.wfile.write(raw)

            do_GET = do_POST

            def log_message(self, *said):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def served(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(embedding_server.time, "sleep", lambda seconds: None)
    made = Served()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_texts_go_in_batches_and_come_back_in_order(served):
    model = EmbeddingServer(served.url + "/", "small", batch_size=3)
    assert served.asked == []
    served.change = lambda body, answer: {"data": answer["data"][::-1], "object": "list", "more": None}
    texts = ["a", "ea", "\ud800b", "", "lea", "  \n", "zzz", "\U0001f600"]
    rows = model(texts)
    assert rows.dtype == np.float32 and rows[3].tolist() == rows[5].tolist() == [0, 0, 0, 0]
    assert [rows[n].tolist() for n in (0, 1, 4, 6, 7)] == [vector(texts[n]) for n in (0, 1, 4, 6, 7)]
    assert [len(body["input"]) for _, body in served.asked] == [3, 3] and served.asked[0][0] == "/v1/embeddings"
    assert served.asked[0][1]["model"] == "small" and "dimensions" not in served.asked[0][1]
    assert "Authorization" not in served.headers[0]
    assert np.linalg.norm(unit_vectors(load(model), ["ea"])) == pytest.approx(1)
    assert EmbeddingServer(served.url, "small")([""]).shape == (1, 4)
    assert pickle.loads(pickle.dumps(model)).address == f"small at {served.url}/"


def test_dimension_and_roles(served):
    model = EmbeddingServer(served.url, "m", dimension=2, roles={"query": {"input_type": "query"}})
    assert model.encode_query(["a"]).shape == model.encode_document(["a"]).shape == (1, 2)
    assert [body.get("input_type") for _, body in served.asked] == ["query", None]
    assert served.asked[0][1]["dimensions"] == 2


def test_the_key_is_read_from_the_environment_and_told_nobody_else(served, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", "very-secret\n")
    model = EmbeddingServer(served.url, "m", key="MY_KEY")
    model(["a"])
    assert served.headers[0]["Authorization"] == "Bearer very-secret"
    served.answers = [(401, {}, "wrong key very-secret")]
    with pytest.raises(EngineError, match="environment variable MY_KEY") as refused:
        model(["a"])
    with Index.create(tmp_path / "index", {"far": model}) as index:
        index.add(["a text"], ids=["1"])
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for place in (repr(model), str(refused.value), str(vars(model)), written.decode("latin-1")):
        assert "very-secret" not in place


def test_what_passes_is_tried_again(served):
    pauses = []
    embedding_server.time.sleep = pauses.append
    served.answers = [(429, {"Retry-After": "3"}, "slow down"), (503, {"Retry-After": "1000000"}, "")]
    assert EmbeddingServer(served.url, "m")(["a"]).tolist() == [vector("a")]
    served.answers = [(500, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, ""), (502, {}, "")]  # a date says nothing
    EmbeddingServer(served.url, "m")(["a"])
    assert pauses == [3.0, 20.0, 0.5, 1.0] and len(served.asked) == 6
    served.answers = [(503, {}, "nothing today")] * 4
    with pytest.raises(EngineError, match="answered 503: nothing today"):
        EmbeddingServer(served.url, "m")(["a"])
    assert len(served.answers) == 1
    served.answers = [(400, {}, "no such model")] * 2
    with pytest.raises(EngineError, match=r"m at http.* answered 400: no such model"):
        EmbeddingServer(served.url, "m")(["a"])
    assert len(served.answers) == 1  # a request that is wrong stays wrong


def test_another_width_is_refused(served):
    model = EmbeddingServer(served.url, "m")
    model(["a"])
    served.answers = [(200, {}, '{"data": [{"embedding": [1, 2]}]}')]
    with pytest.raises(EngineError, match=r"of the shape \(1, 2\); 4 dimensions"):
        model(["a"])
    with pytest.raises(EngineError, match=r"of the shape \(1, 4\); 7 dimensions"):
        served.change = lambda body, answer: {"data": [{"embedding": [1, 2, 3, 4]}]}
        EmbeddingServer(served.url, "m", dimension=7)(["a"])


def test_a_server_that_is_not_there_is_slow_or_endless(served, monkeypatch):
    with pytest.raises(EngineError, match=r"m at http://127.0.0.1:1/v1 cannot be reached"):
        EmbeddingServer("http://127.0.0.1:1/v1", "m")(["a"])
    monkeypatch.setattr(embedding_server, "MAX_ANSWER_BYTES", 1 << 20)
    served.answers = [(200, {}, " " * (2 << 20))]
    with pytest.raises(EngineError, match="more than 1 MB"):
        EmbeddingServer(served.url, "m")(["a"])
    real = time.perf_counter
    served.change = lambda body, answer: threading.Event().wait(0.3) or answer
    begun = real()
    with pytest.raises(EngineError, match=r"cannot be reached: .*time"):
        EmbeddingServer(served.url, "m", timeout=0.05)(["a"])
    assert real() - begun < 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "localhost:8000"}, "give one such as"),
        ({"url": "file:///etc/passwd"}, "give one such as"),
        ({"url": None}, "give one such as"),
        ({"url": "http://me:secret@host/v1"}, "environment variable"),
        ({"model": ""}, "its name"),
        ({"dimension": 0}, "dimension is 0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"roles": {"queries": {}}}, "roles name 'queries'"),
        ({"roles": {"query": "input_type"}}, "fields of role 'query'"),
        ({"roles": {"query": {"input": ["b"]}}}, "without 'input' and 'model'"),
        ({"roles": {"query": {"x": object()}}}, "cannot be written as JSON"),
        ({"roles": "query"}, "roles are str"),
        ({"key": "sk-secret"}, "key is no name of an environment variable"),
        ({"url": "http://host/v1?api-key=secret"}, "environment variable"),
        ({"url": "http://host:99999/v1?key=secret"}, "url is invalid"),
        ({"url": "http://[::1/v1"}, "give one such as"),
        ({"url": "http://host\n/v1"}, "give one such as"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said):
    with pytest.raises(InputError, match=said) as refused:
        EmbeddingServer(**{"url": "http://host/v1", "model": "m", **settings})
    assert "secret" not in str(refused.value)


# --- A server that misbehaves ---

KEY = "sk-very-secret-0123456789"
ROW = {"index": 0, "embedding": [1.0, 0.5]}


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\xff", b"null", b"[]", b"7", b"{}", b"[" * 100_000, {"data": None}, {"data": [7]}, {"data": {"a": 1}},
        {"data": []}, {"data": [ROW, ROW]}, {"data": [ROW, {"index": 5, "embedding": [1, 2]}]},
        {"data": [ROW, {"index": True, "embedding": [1, 2]}, ROW]}, {"data": [{"index": 0}, ROW]},
        {"data": [{"index": 1, "embedding": [1]}, ROW]}, {"data": [{"index": 1, "embedding": []}, ROW]},
        {"data": [{"index": 1, "embedding": "AAAA"}, ROW]}, {"data": [{"index": 1, "embedding": [[1, 2]]}, ROW]},
        {"data": [{"index": 1, "embedding": [float("nan"), 1]}, ROW]},
        {"data": [{"index": 1, "embedding": [1e39, 1]}, ROW]},
        {"data": [{"index": 1, "embedding": [10**400, 1]}, ROW]}, {"data": [{"index": "1", "embedding": [1, 2]}, ROW]},
        {"error": {"message": f"no {KEY}"}}, f"<html>{KEY}</html>".encode(),
    ],
    ids=range(25),
)  # fmt: skip
def test_an_answer_that_is_no_vectors_is_an_error_without_the_key(served, monkeypatch, answer):
    monkeypatch.setenv("MY_KEY", KEY)
    served.answers = [(200, {}, answer if isinstance(answer, bytes) else json.dumps(answer))]
    with pytest.raises(EngineError, match=r"m at http.* answered") as refused:
        EmbeddingServer(served.url, "m", key="MY_KEY")(["a", "b"])
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(refused.value.__traceback__)][1:]
    assert KEY not in str(refused.value) and "Bearer" not in repr(frames)


def test_pauses_and_tries_end_with_the_timeout(served, monkeypatch):
    pauses = []
    monkeypatch.setattr(embedding_server.time, "sleep", pauses.append)
    served.answers = [(503, {}, "away")] * 3
    with pytest.raises(EngineError, match="answered 503: away"):
        EmbeddingServer(served.url, "m", timeout=0.4)(["a"])
    assert pauses == [] and len(served.answers) == 2


def test_a_key_goes_to_no_other_address_and_only_as_a_header_can_hold_it(served, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    other = Served()
    for status in (301, 302, 307, 308):
        served.answers = [(status, {"Location": f"{other.url}/embeddings"}, "")]
        with pytest.raises(EngineError, match=f"answered {status}.*redirects are not followed"):
            EmbeddingServer(served.url, "m", key="MY_KEY")(["a"])
    assert other.asked == []
    other.server.shutdown()
    monkeypatch.setenv("MY_KEY", "s\u00e9cret")
    with pytest.raises(InputError, match="what no HTTP header can") as refused:
        EmbeddingServer(served.url, "m", key="MY_KEY")(["a"])
    assert "cret" not in str(refused.value)
    monkeypatch.delenv("MY_KEY")
    served.answers = [(401, {}, "who are you")]
    with pytest.raises(EngineError, match=r"no key was sent.*MY_KEY"):
        EmbeddingServer(served.url, "m", key="MY_KEY")(["a"])


def test_one_text_alone_and_what_is_no_text_are_refused():
    model = EmbeddingServer("http://127.0.0.1:1/v1", "m")
    for wrong, message in (("hello", "texts is one string"), (["a", None], "text 1 is NoneType"), (3, "iterable")):
        with pytest.raises(InputError, match=message):
            model(wrong)


# --- In an index ---


def test_an_index_asks_it_for_what_is_not_given_and_gets_it_again_at_each_opening(served, tmp_path):
    pytest.importorskip("Stemmer")
    model = EmbeddingServer(served.url, "m")
    with Index.create(tmp_path / "index", {"far": model}) as index:
        served.asked.clear()
        index.add(["a text", "eee"], ids=["1", "2"], vectors={"far": [[0, 0, 1, 0], [0, 1, 0, 0]]})
        assert served.asked == []
        index.add(["another text"], ids=["3"])
        assert [body["input"] for _, body in served.asked] == [["another text"]]
        hits = index.search("another text", weights={"far": 1})
        assert hits[0].id == "3" and hits[0].score == pytest.approx(1, abs=1e-6)
        assert index.info()["models"] == {"far": f"m at {served.url}, with given vectors"}
    served.asked.clear()
    with pytest.raises(InputError, match=r"not asked unless you say so.*EmbeddingServer\(url, model\)"):
        Index.open(tmp_path / "index")
    assert served.asked == []
    with Index.open(tmp_path / "index", {"far": EmbeddingServer(served.url, "m")}) as index:
        assert index.search("another text", weights={"far": 1})[0] == hits[0]
        served.answers = [(503, {}, "gone")] * 3
        with pytest.raises(EngineError, match="gone"):
            index.search("b")
        served.answers = [(503, {}, "gone")] * 3
        with pytest.raises(EngineError, match="gone"):
            index.add(["more"], ids=["4"])
        assert len(index) == 3 and index.verify() == []


@pytest.mark.full
def test_pellucids_own_server_is_one(fruit, tmp_path):
    pytest.importorskip("Stemmer")
    uvicorn = pytest.importorskip("uvicorn")
    from pellucid.server import create_app

    app = create_app(models={"fruit": fruit})
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
        roles = {role: {"input_type": role} for role in ("query", "document")}
        model = EmbeddingServer(url, "fruit", roles=roles, batch_size=2)
        texts = ["apple", "the car", "zzz", "", "pear and apple"]
        assert model.encode_document(texts) == pytest.approx(fruit.encode(texts), abs=1e-6)
        with pytest.raises(EngineError, match="nobody"):
            EmbeddingServer(url, "nobody")(["a"])
        with Index.create(tmp_path / "far", {"m": model}) as far, Index.create(tmp_path / "near", {"m": fruit}) as near:
            for index in (far, near):
                index.add(["an apple", "a car"], ids=["1", "2"])
            scores = [[(hit.id, hit.score) for hit in index.search("pear", weights={"m": 1})] for index in (far, near)]
            assert [own for own, _ in scores[0]] == [own for own, _ in scores[1]]
            assert [s for _, s in scores[0]] == pytest.approx([s for _, s in scores[1]], abs=1e-6)
    finally:
        server.should_exit = True
        thread.join()
    assert pellucid.index.EmbeddingServer is EmbeddingServer
