"""A model on a server: what is asked, what comes back, and all that a server can do wrong on the way."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import pickle
import socket
import threading
import time
import traceback
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_dimension_roles_and_base64(served):
    model = EmbeddingServer(served.url, "m", dimension=2, roles={"query": {"input_type": "query"}})
    assert model.encode_query(["a"]).shape == model.encode_document(["a"]).shape == (1, 2)
    assert [body.get("input_type") for _, body in served.asked] == ["query", None]
    assert served.asked[0][1]["dimensions"] == 2
    packed = base64.b64encode(np.float32([1, 2]).tobytes()).decode()
    served.change = lambda body, answer: {"data": [{"embedding": packed}]}
    assert model(["a"]).tolist() == [[1, 2]]


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
    served.answers = [(429, {"Retry-After": "3"}, "slow down"), (503, {"Retry-After": "1e9"}, "")]
    assert EmbeddingServer(served.url, "m")(["a"]).tolist() == [vector("a")]
    served.answers = [(500, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, ""), (502, {}, "")]
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
    with pytest.raises(EngineError, match="gives 2 dimensions, and 4"):
        model(["a"])
    with pytest.raises(EngineError, match="gives 4 dimensions, and 7"):
        served.change = lambda body, answer: {"data": [{"embedding": [1, 2, 3, 4]}]}
        EmbeddingServer(served.url, "m", dimension=7)(["a"])


def test_a_server_that_is_not_there_is_slow_or_endless(served, monkeypatch):
    with pytest.raises(EngineError, match=r"m at http://127.0.0.1:1/v1 cannot be reached"):
        EmbeddingServer("http://127.0.0.1:1/v1", "m")(["a"])
    monkeypatch.setattr(embedding_server, "MAX_ANSWER_BYTES", 1 << 20)
    served.answers = [(200, {}, " " * (2 << 20))]
    with pytest.raises(EngineError, match="longer than 1 MB"):
        EmbeddingServer(served.url, "m")(["a"])
    real = time.perf_counter
    served.change = lambda body, answer: threading.Event().wait(0.3) or answer
    begun = real()
    with pytest.raises(EngineError, match=r"cannot be reached in time: no complete answer within 0\.05 seconds"):
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
STATUS_LINES = {200: "OK", 204: "No Content", 307: "Temporary Redirect", 400: "No", 429: "Busy", 503: "Away"}


def sent(body, status=200, **headers):
    """Return an HTTP answer as bytes; a list is the items of an answer's "data"."""
    if isinstance(body, list):
        body = json.dumps({"data": body})
    raw = body if isinstance(body, bytes) else body.encode()
    headers = {"Content-Length": len(raw), "Connection": "close"} | {k.replace("_", "-"): v for k, v in headers.items()}
    lines = [f"HTTP/1.1 {status} {STATUS_LINES[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + raw


def embedding(value):
    return sent(f'{{"data": [{{"index": 0, "embedding": {value}}}]}}')


def items_in_chunks(*chunks):
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


def drip(head, forever):
    """Return what sends `head`, and then a piece every 20 ms for ever."""
    return lambda connection: (
        connection.sendall(head) or [connection.sendall(forever) or time.sleep(0.02) for _ in range(500)]
    )


MISBEHAVIOURS = {
    "nothing": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.9\r\n",
    "the head alone": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
    "less than announced": sent([ROW], Content_Length=500),
    "a negative length": sent([ROW], Content_Length=-1),
    "a length of letters": sent([ROW], Content_Length="many"),
    "two lengths": sent([ROW], content_length=3),
    "a chunk of no length": items_in_chunks(b"zz\r\nabc"),
    "a broken chunk": items_in_chunks(b"5\r\nab"),
    "a chunk of 2^64 bytes": items_in_chunks(b"f" * 17 + b"\r\nab"),
    "1,000 headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 300_000,
    "no content": sent("", 204),
    "a header drips": drip(b"HTTP/1.1 200 OK\r\nx: ", b"a"),
    "a body drips": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b" "),
    "a chunk drips": drip(items_in_chunks(b"5;"), b"a"),
    "an error drips": drip(b"HTTP/1.1 400 No\r\nContent-Length: 60000\r\n\r\n", b" "),
    "100 for ever": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a silent connection": lambda connection: time.sleep(2),
    "a redirect without an address": sent("", 307),
    "no gzip": sent(b"\x1f\x8b\x08junk", Content_Encoding="gzip"),
    "half a gzip": sent(gzip.compress(json.dumps({"data": [ROW] * 99}).encode())[:40], Content_Encoding="gzip"),
    "a gzip bomb": sent(gzip.compress(b" " * (40 << 20)), Content_Encoding="gzip"),
    "gzip in gzip": sent(gzip.compress(gzip.compress(b"[" * 9999)), Content_Encoding="gzip, gzip"),
    "too much": sent(b" " * (3 << 20)),
    "Retry-After NaN": sent("", 429, Retry_After="nan"),
    "Retry-After negative": sent("", 503, Retry_After="-inf"),
    "Retry-After huge": sent("", 429, Retry_After="9" * 400),
    "Retry-After a date": sent("", 429, Retry_After="Wed, 21 Oct 2099 07:28:00 GMT"),
    "Retry-After no date": sent("", 429, Retry_After="Wed, 99 Foo 99999 99:99:99 GMT"),
    "a page": sent("<!DOCTYPE html><html><title>Sign in</title>" + "<" * 9999),
    "a page of an error": sent("<html><body><h1>502 Bad Gateway</h1>", 503),
    "an error object": sent('{"error": {"message": "the model is loading"}}'),
    "nested error objects": sent('{"error": ' * 900 + "1" + "}" * 900),
    "an error with 400": sent('{"error": {"message": "no such model"}}', 400),
    "escapes of a terminal": sent("\x1b[2J\x1b]0;owned\x07", 400),
    "deep nesting": sent('{"data":' + "[" * 90_000),
    "no text": sent(b"\xff\xfe"),
    "a list": sent("[]"),
    "no data": sent("{}"),
    "null": sent("null"),
    "data is null": sent('{"data": null}'),
    "data is an object": sent('{"data": {"0": [1, 2]}}'),
    "empty data": sent([]),
    "an item too many": sent([ROW, {**ROW, "index": 1}]),
    "an item is a list": sent([[1.0, 0.5]]),
    "an item without embedding": sent([{"index": 0}]),
    "index false": sent([{**ROW, "index": False}]),
    "index null": sent([{**ROW, "index": None}]),
    "index 0.0": sent([{**ROW, "index": 0.0}]),
    "index '0'": sent([{**ROW, "index": "0"}]),
    "index -1": sent([{**ROW, "index": -1}]),
    "index 1": sent([{**ROW, "index": 1}]),
    "index huge": sent([{**ROW, "index": 10**300}]),
    "index a list": sent([{**ROW, "index": [0]}]),
    "NaN": embedding("[NaN, 1]"),
    "infinity": embedding("[-Infinity, 1]"),
    "beyond float32": embedding("[1e39, 1]"),
    "beyond float64": embedding("[1e999, 1]"),
    "400 digits": embedding(f"[{'9' * 400}, 1]"),
    "5,000 digits": embedding(f"[{'9' * 5000}, 1]"),
    "truth values": embedding("[true, false]"),
    "nulls": embedding("[null, 1]"),
    "strings": embedding('["1", "2"]'),
    "rows in a row": embedding("[[1, 2]]"),
    "ragged rows": embedding("[[1], [1, 2]]"),
    "a number": embedding("3"),
    "no number": embedding("[]"),
    "empty base64": embedding('""'),
    "base64 of 6 bytes": embedding('"AACAPwAA"'),
    "no base64": embedding('"####"'),
    "base64 of NaN": embedding('"AADAfwAAgD8="'),
    "the key in an answer": sent(f'{{"oops": "Bearer {KEY}"}}'),
    "the key in an error": sent(f'{{"error": {{"message": "wrong key {KEY[:14]}"}}}}', 400),
    "the key in a page": sent(f"<html>{KEY}", 503),
    "the key in a chunk": items_in_chunks(KEY.encode() + b"\r\n"),
    "the key as its model": sent(json.dumps({"data": [ROW], "model": KEY})),
}
HARMLESS = {"two lengths", "the key as its model"}  # which may be read all the same


@pytest.fixture(scope="module")
def hostile():
    """A server that takes a whole request and does what `act` says; the address, and a list with `act` in it."""
    listener, acts = socket.create_server(("127.0.0.1", 0)), [b""]

    def answer(connection, act):
        with suppress(OSError), connection:
            received = b""
            while not received.endswith(b"}"):
                received += connection.recv(65536)
            connection.sendall(act) if isinstance(act, bytes) else act(connection)

    def accept():
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                threading.Thread(target=answer, args=(connection, acts[0]), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", acts
    listener.close()


def said_with_locals(error):
    """Return all that a crash report would show of an error: messages, causes, and the variables of the frames."""
    found = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert found.__cause__ is found.__context__ is None
    found.stack = traceback.StackSummary.from_list([f for f in found.stack if f.filename == embedding_server.__file__])
    assert found.stack
    return "".join(found.format())


@pytest.mark.filterwarnings("ignore:.*check the name")
@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_whatever_a_server_does_there_are_vectors_or_an_error_in_time(hostile, monkeypatch, caplog, name):
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level("INFO")
    url, acts = hostile
    acts[0] = MISBEHAVIOURS[name]
    model = EmbeddingServer(url, "m", key="MY_KEY", timeout=0.3)
    model._width = 2
    begun, shown = time.perf_counter(), ""
    try:
        try:
            assert model(["hello"]).tolist() == [ROW["embedding"]] and name in HARMLESS
        finally:
            seconds = time.perf_counter() - begun  # of the model: writing the traceback takes longer
    except EngineError as error:
        assert name not in HARMLESS or "length" in name
        assert str(error).startswith(f"m at {url} ") and str(error).isprintable() and len(str(error)) < 800
        shown = said_with_locals(error)
    assert seconds < 5
    for text in (shown, caplog.text, repr(model), str(vars(model))):
        assert not any(KEY[start : start + 8] in text for start in range(len(KEY) - 7))


def test_the_message_says_what_the_server_said(hostile):
    url, acts = hostile
    for name, message in {
        "an error object": "answered with an error: the model is loading",
        "an error with 400": "answered 400: no such model",
        "a page of an error": r"answered 503: \(an HTML page\) 502 Bad Gateway; another try",
        "a page": r"is the url right, without '/embeddings'\?: \(an HTML page\) Sign in",
        "an error drips": "answered 400",
        "a gzip bomb": "longer than 2 MB; take a smaller batch_size",
        "Retry-After a date": "another try in 20 s is beyond the timeout of 0.3 s",
        "index false": "'index' are not the numbers from 0 to 0",
    }.items():
        acts[0] = MISBEHAVIOURS[name]
        with pytest.raises(EngineError, match=message):
            EmbeddingServer(url, "m", timeout=0.3)(["hello"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["index", "embedding", "x"]), inner),
    max_leaves=6,
)
embeddings = st.lists(st.floats(width=32), min_size=2, max_size=2) | json_values
items = st.fixed_dictionaries({"embedding": embeddings}, optional={"index": st.integers(-1, 3) | json_values})


@given(st.lists(items | json_values, max_size=3) | json_values, st.integers(1, 3))
def test_an_answer_is_what_it_says_or_refused(data, count):
    """Whatever "data" holds, what comes back are its embeddings in the order of "index", and every number is finite."""
    model = EmbeddingServer("http://127.0.0.1:1/v1", "m")
    model._send = lambda *request: embedding_server._Answer(200, json.dumps({"data": data}).encode())
    try:
        rows = model(["text"] * count)
    except EngineError:
        return
    order = sorted(data, key=lambda item: item.get("index", 0))
    assert rows.dtype == np.float32 and rows.shape[0] == count == len(data) and np.isfinite(rows).all()
    for row, item in zip(rows, order):
        if isinstance(item["embedding"], list):
            np.testing.assert_array_equal(row, np.array(item["embedding"], np.float32))


def test_pauses_and_tries_end_with_the_timeout(served, monkeypatch):
    monkeypatch.undo()
    served.answers = [(503, {"Retry-After": "0.6"}, "")] * 9
    begun = time.perf_counter()
    with pytest.raises(EngineError, match=r"another try in 0\.6 s is beyond the timeout of 1 s"):
        EmbeddingServer(served.url, "m", timeout=1)(["a"])
    assert time.perf_counter() - begun < 3 and len(served.answers) == 7


def test_a_key_goes_to_no_other_address_and_only_as_a_header_can_hold_it(served, monkeypatch):
    other = Served()
    monkeypatch.setenv("MY_KEY", KEY)
    model = EmbeddingServer(served.url, "m", key="MY_KEY")
    for status in (301, 302, 303, 307, 308):
        served.answers = [(status, {"Location": f"{other.url}/embeddings"}, "")]
        with pytest.raises(EngineError, match=f"answered {status}.*redirects are not followed"):
            model(["a"])
    assert other.asked == [] and len(served.asked) == 5
    for key in ("sk\nX-Other: 1", "schl\u00fcssel", "sk\x7f"):
        monkeypatch.setenv("MY_KEY", key)
        with pytest.raises(
            InputError, match="the environment variable MY_KEY holds what no HTTP header can"
        ) as refused:
            model(["a"])
        assert key not in said_with_locals(refused.value)
    monkeypatch.delenv("MY_KEY")
    served.answers = [(401, {}, "who are you?")]
    with pytest.raises(EngineError, match="no key was sent: the environment variable MY_KEY"):
        model(["a"])
    assert "Authorization" not in served.headers[-1] and len(served.asked) == 6


def test_a_server_may_answer_from_a_thread_with_an_event_loop_in_gzip_and_by_another_name(served):
    model = EmbeddingServer(served.url, "m")

    async def ask():
        return model(["a"])

    assert asyncio.run(ask()).tolist() == [vector("a")]
    packed = gzip.compress(json.dumps({"data": [{"embedding": vector("a")}], "model": "m-001"}).encode())
    served.answers = [(200, {"Content-Encoding": "gzip"}, packed)]
    assert model(["a"]).tolist() == [vector("a")]
    served.change = lambda body, answer: {**answer, "model": "m-002"}
    with pytest.raises(EngineError, match="answered as model 'm-002', and before as 'm-001'"):
        model(["a"])
    with pytest.warns(UserWarning, match="answered as model 'm-002'; check the name"):
        EmbeddingServer(served.url, "large")(["a"])


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
