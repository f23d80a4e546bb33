"""What requests may hold: known fields and parameters, plain JSON of a bounded size, and nothing twice."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import pellucid
from pellucid.errors import nearest_name
from pellucid.index.segments import Segment
from pellucid.progress import CancelledWorkError, Progress, cancellable, check_cancelled
from pellucid.server import ServerSettings, create_app, layout
from pellucid.server.bodies import MAX_TESTS, MAX_WHERE_VALUES, ApiError, BodyCounter
from pellucid.static.embedder import StaticEmbedder
from serving import Slow, ask, connected, running, send_raw

STRANGE = "zzqx"


@pytest.fixture(scope="module")
def static() -> StaticEmbedder:
    return pellucid.load("static-en")


@pytest.fixture(scope="module")
def url(static: StaticEmbedder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("Stemmer")
    folder = tmp_path_factory.mktemp("requests")
    with pellucid.Index.create(folder / "index") as index:
        texts = ["mortgage rates are rising", "a dog in the park", "a river of gold"]
        index.add(texts, ids=["a", "b", "c"], metadata=[{"lang": lang, "n": n} for n, lang in enumerate("xyz")])
    options = {"index": str(folder / "index"), "save_to": str(folder / "models"), "max_body_bytes": 4 << 20}
    with running({"static-en": static}, **options) as at:
        yield at


# Unknown names: every route of the schema, so that a new one is covered as it is made


SCHEMA = create_app(models={"fruit": pellucid.load("static-en")}).openapi()
OPERATIONS = [(path, method) for path, item in SCHEMA["paths"].items() for method in item]
BODIES = [path for path, method in OPERATIONS if "requestBody" in SCHEMA["paths"][path][method]]


def resolved(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that a schema stands for, with the alternatives of unions and the items of lists."""
    if "$ref" in schema:
        return resolved(SCHEMA["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(found for one in inner for found in resolved(one))]


def fields_of(path: str) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield the place of each object in a route's body, and the fields that it may have."""
    body = SCHEMA["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]

    def walk(schema: dict[str, Any], place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], set[str]]]:
        objects = [one for one in resolved(schema) if "properties" in one]
        if objects:
            yield place, {name for one in objects for name in one["properties"]}
        for one in objects:
            assert one["additionalProperties"] is False, (path, place)
            for name, inner in one["properties"].items():
                yield from walk(inner, (*place, name))

    return walk(body, ())


def message_of(answer: Any) -> str:
    error = answer["error"]
    return error if isinstance(error, str) else error["message"]


def test_all_routes_are_asked() -> None:
    assert {"/search", "/embed", "/v1/embeddings", "/similarity", "/", "/map", "/models"} <= set(BODIES)
    assert ("parameters",) in dict(fields_of("/similarity")) and ("inputs",) in dict(fields_of("/"))


@pytest.mark.parametrize("path", BODIES)
def test_an_unknown_field_is_refused_and_the_nearest_is_named(url: str, path: str) -> None:
    for place, fields in fields_of(path):
        for name in (STRANGE, *(f"{field}s" for field in fields), *(field.upper() for field in fields)):
            body: Any = {name: {"lang": "x"}}
            for outer in reversed(place):
                body = {outer: body}
            status, answer = ask(url, path, body)
            said = message_of(answer)
            assert status == (400 if path.startswith("/v1/") else 422), (place, name, answer)
            assert f"unknown field {name!r}" in said, (place, name, said)
            meant = re.findall(r"did you mean '(\w+)'", said)
            assert not meant if name == STRANGE else set(meant) <= fields, said
            if name != STRANGE and path != "/":  # where it depends on `inputs` which fields there are
                assert meant and nearest_name(name, fields) in fields, said
            if path.startswith("/v1/"):
                assert answer["error"]["param"] == ".".join((*place, name))


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_an_unknown_parameter_is_refused_and_the_nearest_is_named(url: str, path: str, method: str) -> None:
    known = [one["name"] for one in SCHEMA["paths"][path][method].get("parameters", ()) if one["in"] == "query"]
    address = re.sub(r"\{\w+(:path)?\}", "static-en", path)
    for name in (STRANGE, "where", *(f"{parameter[:-1]}" for parameter in known)):
        status, answer = ask(url, f"{address}?{name}=1", {} if method == "post" else None)
        assert status in (400, 422) and f"unknown parameter {name!r}" in message_of(answer), (path, answer)
        assert (f"did you mean '{name}" in message_of(answer)) == any(one.startswith(name) for one in known)
    for name in known:
        status, answer = ask(url, f"{address}?{name}=1&{name}=2", {} if method == "post" else None)
        assert status in (400, 422) and f"{name!r} is given twice" in message_of(answer)


@pytest.mark.parametrize("name", ["filter", "filters", "Filter", "wher", "where_", "condition"])
def test_a_filter_by_another_name_does_not_give_everybodys_documents(url: str, name: str) -> None:
    status, answer = ask(url, "/search", {"query": "river", name: {"lang": "x"}})
    assert status == 422 and "did you mean 'where'?" in answer["error"] and "hits" not in answer


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"lagn": "x"}, "did you mean 'lang'"),
        ({"n": {"gt3": 1}}, "unknown operator 'gt3'"),
        ({"n": {"$gte": 1}}, "unknown operator '$gte'; did you mean 'gte'?"),
        ({"n": {">=": 1}}, "unknown operator '>='; did you mean 'gte'?"),
        ({"$or": [{"n": 1}, {"n": 2}]}, "no document of this index has a field '$or'"),
        ([{"n": 1}, {"lagn": "x"}], "did you mean 'lang'"),
        ([], "where is an empty list"),
        ([1], "where: it is [1]"),
        ("lang=x", "where: it is 'lang=x'"),
        (3, "where: it is 3"),
        (False, "where: it is False"),
        ([{"n": 1}] * 101, "101 alternatives; at most 100"),
        ([{"n": {"gte": 1, "lt": 3}, "lang": "x"}] * 100, None),
        ({"n": {"in": list(range(MAX_WHERE_VALUES))}}, None),
        ({"n": {"in": list(range(MAX_WHERE_VALUES + 1))}}, "10,001 values; at most 10,000"),
        ([{"n": {"nin": [1] * 101}}] * 100, "10,100 values; at most 10,000"),
        ([{f"{n}": 1 for n in range(MAX_TESTS // 100 + 1)}] * 100, "1,100 comparisons; at most 1,000"),
    ],
)
def test_conditions_are_known_and_bounded(url: str, where: Any, message: str | None) -> None:
    status, answer = ask(url, "/search", {"query": "river", "where": where})
    assert status == (200 if message is None else 422), answer
    assert message is None or message in answer["error"]


def test_nothing_is_said_twice(url: str) -> None:
    for path, body, name in (
        ("/search", '{"query": "river", "where": {"lang": "x"}, "where": null}', "where"),
        ("/search", '{"query": "river", "wh\\u0065re": {"lang": "x"}, "where": null}', "where"),
        ("/search", '{"query": "river", "where": {"lang": "x", "lang": "y"}}', "lang"),
        ("/search", '{"query": "river", "where": {"n": {"gte": 2, "gte": 0}}}', "gte"),
        ("/search", '{"query": "river", "weights": {"bm25": 1, "bm25": 0}}', "bm25"),
        ("/embed", '{"inputs": "a", "inputs": "b"}', "inputs"),
        ("/embed", '{"inputs": ["%s"], "inputs": "b"}' % (("many words " * 15_000 + '", "') * 8), "inputs"),
    ):
        status, answer = ask(url, path, body.encode())
        assert status in (400, 422), (path, body[:80])
        assert f"the field {name!r} twice" in answer["error"]
    assert ask(url, "/embed", b'{"inputs": "the field \\"inputs\\" twice: \\"inputs\\""}')[0] == 200


def test_a_request_without_a_model_gets_the_first(url: str) -> None:
    named = ask(url, "/v1/embeddings", {"input": "a loan", "model": "static-en"})
    for body in ({}, {"model": None}, {"user": "me"}, {"encoding_format": None, "dimensions": None}):
        assert ask(url, "/v1/embeddings", {"input": "a loan", **body}) == named
    body = {"inputs": "a loan", "truncation_direction": "Right", "normalize": None, "truncate": None}
    assert ask(url, "/embed", body) == ask(url, "/embed", {"inputs": "a loan"})
    assert ask(url, "/embed", {"inputs": "a loan", "truncation_direction": "Left"})[0] == 422


# What a body is


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"content-type": "text/plain"}, "Content-Type: application/json"),
        ({"content-type": "application/x-www-form-urlencoded"}, "Content-Type: application/json"),
        ({"content-type": "multipart/form-data; boundary=x"}, "Content-Type: application/json"),
        ({"content-type": "application/json; charset=latin-1"}, "the charset is 'latin-1'"),
        ({"content-type": 'application/json; charset="utf-16"'}, "the charset is 'utf-16'"),
        ({"content-encoding": "gzip"}, "the Content-Encoding is 'gzip'"),
        ({"content-encoding": "br"}, "the Content-Encoding is 'br'"),
    ],
)
def test_other_contents_are_refused(url: str, headers: dict[str, str], said: str) -> None:
    body = json.dumps({"inputs": "a"}).encode()
    status, answer = ask(url, "/embed", gzip.compress(body) if "gzip" in str(headers) else body, headers)
    assert status == 415 and said in answer["error"]
    for right in ("application/json", 'application/json; charset="UTF-8"', "APPLICATION/JSON;charset=utf8;a=b"):
        assert ask(url, "/embed", body, {"content-type": right})[0] == 200


def test_slashes_at_the_end_and_wrong_routes_are_named(url: str) -> None:
    for path, near in (("/search/", "/search"), ("/serach", "/search"), ("/v1/embedding", "/v1/embeddings")):
        for body in (None, {"query": "a"}):
            status, answer = ask(url, path, body)
            assert status == 404 and f"did you mean {near}?" in message_of(answer), answer
    for path, allowed in (("/search", b"POST"), ("/v1/models/x/y", b"GET"), ("/models", b"GET, POST")):
        for method in (b"OPTIONS", b"DELETE", b"HEAD"):
            answer = send_raw(url, b"%s %s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % (method, path.encode()))
            assert answer.startswith(b"HTTP/1.1 405") and b"allow: %s\r\n" % allowed in answer, answer


@given(st.data())
def test_values_are_counted_as_they_arrive(data: st.DataObject) -> None:
    strings = st.text(st.sampled_from('ab"\\,[]{}:\n\u00e4\U0001f600'), max_size=12)
    leaves = st.none() | st.booleans() | st.integers() | strings
    value = data.draw(st.recursive(leaves, lambda v: st.lists(v, max_size=4) | st.dictionaries(strings, v, max_size=4)))
    body = json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode()
    counter, rest = BodyCounter(1 << 20, 1 << 20), body
    while rest:
        size = data.draw(st.integers(0, len(rest)))
        counter.add(rest[:size])
        rest = rest[size:] if size else rest[1:] if counter.add(rest[:1]) is None else b""
    assert (counter.values, counter.keys) == _values_and_keys_in(body) and counter.keys == _keys_of(value)


def _keys_of(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_keys_of, value.values()))
    return sum(map(_keys_of, value)) if isinstance(value, list) else 0


def _values_and_keys_in(body: bytes) -> tuple[int, int]:
    """Count commas and opening brackets outside strings, and colons, one by one."""
    count, keys, in_string, is_escaped = 1, 0, False, False
    for byte in body.decode():
        if is_escaped:
            is_escaped = False
        elif in_string:
            in_string, is_escaped = byte != '"', byte == "\\"
        else:
            in_string, count, keys = byte == '"', count + (byte in ",[{"), keys + (byte == ":")
    return count, keys


@pytest.mark.parametrize("item", [b"[],", b"{},", b"1,", b'"",', b"[[],[]],", b'{"a":1},'])
def test_a_body_of_too_many_values_is_refused_before_it_is_there(item: bytes) -> None:
    counter, chunk = BodyCounter(16 << 20, 20_000), item * ((64 << 10) // len(item))
    with pytest.raises(ApiError, match="more than 20,000 values"):
        for sent in range(256):
            counter.add((b"[" if sent == 0 else b"") + chunk)
    assert sent <= 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", b'{"inputs":[%s1]}'),
        ("/v1/embeddings", b'{"input":[%s1]}'),
        ("/rerank", b'{"query":"a","texts":[%s1]}'),
        ("/search", b'{"query":"a","where":{"n":{"nin":[%s1]}}}'),
        ("/contrast", b'{"texts":["a"],"members":[%s1]}'),
        ("/models", b'{"name":"a","without":[%s1]}'),
    ],
)
def test_nobody_waits_for_a_body_of_millions_of_values(url: str, path: str, body: bytes) -> None:
    statuses, waits = list[int](), list[float]()
    heavy = [body % (item * (3_900_000 // len(item))) for item in (b"[],", b"1,", b'"a",')]
    crowd = [threading.Thread(target=lambda one=one: statuses.append(_status(url, path, one))) for one in heavy]
    for client in crowd:
        client.start()
    while any(client.is_alive() for client in crowd):
        began = time.perf_counter()
        assert ask(url, "/v1/embeddings", {"input": "a"})[0] == 200
        waits.append(time.perf_counter() - began)
    assert set(statuses) <= {400, 413, 422} and max(waits) < 2, (statuses, max(waits))


def _status(url: str, path: str, body: bytes) -> int:
    try:
        return ask(url, path, body)[0]
    except (ConnectionError, OSError):  # it closed the connection before it had read everything
        return 413


def test_questions_are_smaller_than_corpora(url: str) -> None:
    long = "a" * (2 << 20)
    for path, body in (
        ("/search", {"query": long}),
        ("/explain", {"text1": long}),
        ("/why", {"query": "a", "id": long}),
        ("/describe", {"text": long}),
        ("/index", {"weights": {long: 1}}),
        ("/models", {"name": long}),
    ):
        status, answer = ask(url, path, body)
        assert status == 413 and "1,048,576 bytes" in answer["error"], path
    assert ask(url, "/embed", {"inputs": ["a" * 100_000] * 20})[0] == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999999999999", "0x10", ""])
def test_odd_lengths_are_refused(url: str, length: str) -> None:
    head = "POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n"
    answer = send_raw(url, f'{head}content-length: {length}\r\n\r\n{{"inputs": "a"}}'.encode())
    assert re.match(rb"HTTP/1.1 4\d\d", answer), answer


# Clients that send slowly, or without end


def test_heads_have_64_kilobytes_however_they_arrive(url: str) -> None:
    limit, start = 64 << 10, b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
    for size, status in ((limit - 2000, b"200"), (limit + 200, b"431"), (2 * limit, b"431"), (5 * limit, b"431")):
        for head in (
            start + b"x: %s\r\n\r\n" % (b"a" * (size - len(start))),
            start + b"x: y\r\n" * (size // 6) + b"\r\n",
        ):
            with suppress(ConnectionError) if size > 2 * limit else nullcontext():  # it does not read to the end
                assert send_raw(url, head)[9:12] == status, size
    post = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b'{"inputs": ["%s"]}' % b'", "'.join([b"a" * 100_000] * 8)
    for trailer in (b"x: y\r\n" * 20_000, b"x: " + b"y" * 100_000 + b"\r\n"):
        with suppress(ConnectionError):
            assert not send_raw(url, post + b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, trailer)).startswith(
                b"HTTP/1.1 200"
            )


def test_what_came_before_a_head_that_is_too_large_is_answered(url: str) -> None:
    body = json.dumps({"inputs": ["a loan " * 2000] * 50}).encode()
    first = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    answer = send_raw(url, first % (len(body), body) + b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 12_000)
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1 431") == 1


def test_half_sent_bodies_do_not_keep_others_out(static: StaticEmbedder) -> None:
    head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with running({"static-en": static}, max_waiting=8, max_body_bytes=1 << 20, timeout=20) as url, ExitStack() as held:
        for _ in range(30):
            held.enter_context(connected(url)).sendall(head % 100 + b"{")
        large = b'{"inputs": "' + b"a" * ((1 << 20) - 100)
        for _ in range(8):
            held.enter_context(connected(url)).sendall(head % (1 << 20) + large)
        time.sleep(0.3)
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200
        assert ask(url, "/models")[0] == 200


def test_a_body_that_does_not_go_on_is_given_up(static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.guard._STALL_S", 0.2)
    head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    with running({"static-en": static}) as url:
        for rest in (b"content-length: 10\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n5\r\n{"):
            with connected(url) as half:
                half.sendall(head + rest)
                began = time.perf_counter()
                assert half.recv(100).startswith(b"HTTP/1.1 408") and time.perf_counter() - began < 5


# What nobody waits for any more


def test_work_ends_with_its_request(static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def describe(self: Any, text: str, **_: Any) -> str:
        try:
            with Progress("thinking", enabled=False) as progress:
                for _ in range(1000):
                    time.sleep(0.01)
                    progress.advance()
        finally:
            ended.set()
        return "done"

    with running({"static-en": static}, timeout=0.3) as url:
        monkeypatch.setattr(StaticEmbedder, "describe", describe)
        assert ask(url, "/describe", {"text": "a"})[0] == 504
        assert ended.wait(1)


def test_encoding_ends_with_its_request(static: StaticEmbedder) -> None:
    class Patient(Slow):
        steps, ended = 0, threading.Event()

        def _encode(self, texts: Any, role: Any, **options: Any) -> Any:
            if "patience" in texts:
                try:
                    for _ in range(1000):
                        check_cancelled()
                        time.sleep(0.01)
                finally:
                    self.ended.set()
            return super()._encode(texts, role, **options)

    model = Patient(0)
    with running({"patient": model}, timeout=0.3) as url:
        assert ask(url, "/embed", {"inputs": "patience"})[0] == 504
        assert model.ended.wait(1)
        assert ask(url, "/embed", {"inputs": "a"})[0] == 200


@pytest.mark.full
@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
def test_a_layout_is_the_same_from_a_process(
    form: Any, static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    rows = form(static.encode([f"{word} {n}" for n in range(5) for word in ("dog", "loan", "river", "cat")]))
    points, members = layout.layout(rows, 3)
    monkeypatch.setattr(layout, "_MIN_PROCESS_ROWS", 1)
    points_there, members_there = layout.cancellable_layout(rows, 3)
    np.testing.assert_allclose(points, points_there, atol=1e-6)
    np.testing.assert_array_equal(members, members_there)


def test_the_process_of_a_layout_ends_with_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(layout, "_MIN_PROCESS_ROWS", 1)
    monkeypatch.setattr(layout, "_PROGRAM", "import time; time.sleep(60)")
    began = time.perf_counter()
    with pytest.raises(CancelledWorkError), cancellable(lambda: time.perf_counter() - began > 0.3):
        layout.cancellable_layout(np.eye(20), 3)
    assert time.perf_counter() - began < 10
    monkeypatch.setattr(layout, "_PROGRAM", "raise SystemExit('no room')")
    with pytest.raises(RuntimeError, match="no room"):
        layout.cancellable_layout(np.eye(20), 3)


def test_the_index_is_looked_through_once_a_commit(
    static: StaticEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("Stemmer")
    read, iterate = [0], pellucid.Index.__iter__

    def counted(self: Any) -> Iterator[Any]:
        for document in iterate(self):
            read[0] += 1
            yield document

    with pellucid.Index.create(tmp_path / "index") as index:
        index.add([f"document {n}" for n in range(50)], metadata=[{"lang": "en", "n": f"{n}"} for n in range(50)])
    monkeypatch.setattr(pellucid.Index, "__iter__", counted)
    with running({"static-en": static}, index=str(tmp_path / "index"), read_only=True) as url:
        first = ask(url, "/index")
        assert first[0] == 200 and first[1]["values"] == {"lang": ["en"]} and first[1]["values are all"] is True
        assert len(first[1]["examples"]) == 4 and read[0] == 50
        assert all(ask(url, "/index") == first for _ in range(5)) and read[0] == 50
        with pellucid.Index.open(tmp_path / "index") as index:
            index.add(["une autre"], metadata=[{"lang": "fr"}])
        assert ask(url, "/index")[1]["values"] == {"lang": ["en", "fr"]} and read[0] == 101


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/server.md").read_text(encoding="utf-8")
    settings = ServerSettings()
    for limit in (MAX_TESTS, MAX_WHERE_VALUES, settings.max_texts, settings.max_characters, settings.max_waiting):
        assert f"{limit:,}" in page


def test_a_map_reads_only_the_documents_that_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("Stemmer")
    read, document = list[str](), Segment.document

    def counted(self: Segment, row: int) -> Any:
        read.append(document(self, row).id)
        return document(self, row)

    with pellucid.Index.create(tmp_path / "index") as index:
        for start in (0, 7, 9, 40):
            index.add([f"document {n}" for n in range(start, start + 11)], ids=range(start, start + 11))
        index.delete(["3", "41"])
        ids = [document.id for document in index]
        monkeypatch.setattr(Segment, "document", counted)
        for step in range(1, len(ids) + 2):
            assert [document.id for document in index.snapshot().commit.documents(step)] == ids[::step] == read
            read.clear()
