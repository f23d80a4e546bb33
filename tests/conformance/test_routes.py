"""Every route: token, hosts and methods; known fields and parameters, plain JSON of a bounded size."""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")

import pellucid
from pellucid.server import ServerSettings, create_app
from pellucid.server.bodies import MAX_TESTS, MAX_WHERE_VALUES
from pellucid.static.embedder import StaticEmbedder
from serving import Slow, ask, indexed, running, send_raw

STRANGE = "zzqx"


@pytest.fixture(scope="module")
def url(static: StaticEmbedder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("Stemmer")
    folder = tmp_path_factory.mktemp("requests")
    texts = ["mortgage rates are rising", "a dog in the park", "a river of gold"]
    metadata = [{"lang": lang, "n": n, "s": "x"} for n, lang in enumerate("xyz")]
    folder = indexed(folder / "index", texts, {"a": static}, ids=["a", "b", "c"], metadata=metadata)
    with running({"static-en": static}, index=folder, max_body_bytes=4 << 20, judge=True) as at:
        yield at


@pytest.fixture(scope="module")
def limited(static):
    """A server without an index that takes small bodies."""
    with running({"static-en": static, "slow": Slow()}, max_body_bytes=50_000) as at:
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


def fields_of(path: str) -> set[str]:
    """Return the fields that a route's body may have."""
    body = SCHEMA["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    (schema,) = [one for one in resolved(body) if "properties" in one]
    assert schema["additionalProperties"] is False
    return set(schema["properties"])


def message_of(answer: Any) -> str:
    error = answer["error"]
    return error if isinstance(error, str) else error["message"]


def test_all_routes_are_asked() -> None:
    assert set(BODIES) == set(bodies())


@pytest.mark.parametrize("path", BODIES)
def test_an_unknown_field_is_refused_and_the_nearest_is_named(url: str, path: str) -> None:
    fields = fields_of(path)
    for name in (STRANGE, *(f"{field}s" for field in fields), *(field.upper() for field in fields)):
        status, answer = ask(url, path, {name: {"lang": "x"}})
        said = message_of(answer)
        assert status == (400 if path.startswith("/v1/") else 422), (name, answer)
        assert f"unknown field {name!r}" in said, (name, said)
        meant = re.findall(r"did you mean '(\w+)'", said)
        assert not meant if name == STRANGE else meant and set(meant) <= fields, said


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_an_unknown_parameter_is_refused_and_the_nearest_is_named(url: str, path: str, method: str) -> None:
    known = [one["name"] for one in SCHEMA["paths"][path][method].get("parameters", ()) if one["in"] == "query"]
    address = re.sub(r"\{\w+(:path)?\}", "static-en", path)
    for name in (STRANGE, "where", *(f"{parameter[:-1]}" for parameter in known)):
        status, answer = ask(url, f"{address}?{name}=1", {} if method == "post" else None)
        assert status in (400, 422) and f"unknown parameter {name!r}" in message_of(answer), (path, answer)
        assert (f"did you mean '{name}" in message_of(answer)) == any(one.startswith(name) for one in known)


SEARCHES = [  # what a search for "river" also has, and what is said of it, if anything
    *(({name: {"lang": "x"}}, "did you mean 'where'?")  # else everybody's documents would come
      for name in ("filter", "filters", "Filter", "wher", "where_", "condition")),
    *(({"where": where}, message) for where, message in (
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
        ([{}] * (MAX_TESTS + 1), "1,001 alternatives"),
        ([{"n": {"gte": 1, "lt": 3}, "lang": "x"}] * 100, None),
        ({"n": {"in": list(range(MAX_WHERE_VALUES))}}, None),
        ({"n": {"in": list(range(MAX_WHERE_VALUES + 1))}}, "10,001 values"),
        ([{"n": {"nin": [1] * 101}}] * 100, "10,100 values"),
        ([{f"{n}": 1 for n in range(MAX_TESTS // 100 + 1)}] * 100, "1,100 comparisons"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "message"), SEARCHES, ids=range(len(SEARCHES)))
def test_conditions_are_known_and_bounded(url: str, condition: dict[str, Any], message: str | None) -> None:
    status, answer = ask(url, "/search", {"query": "river", **condition})
    assert status == (200 if message is None else 422), answer
    assert message is None or (message in answer["error"] and "hits" not in answer)


def test_a_request_without_a_model_gets_the_first(url: str) -> None:
    named = ask(url, "/v1/embeddings", {"input": "a loan", "model": "static-en"})
    for body in ({}, {"model": None}, {"user": "me"}, {"encoding_format": None, "dimensions": None}):
        assert ask(url, "/v1/embeddings", {"input": "a loan", **body}) == named
    for body in ({"normalize": None, "truncate": None}, {"truncate": True}):
        assert ask(url, "/embed", {"inputs": "a loan", **body}) == ask(url, "/embed", {"inputs": "a loan"})
    assert ask(url, "/embed", {"inputs": ["a"] * 2048})[0] == 200
    for inputs, said in (
        ("a" * 200_001, "at most 200000"),
        (["a", "a" * 200_001], "inputs.1: "),
        (["a"] * 2049, "2048"),
    ):
        status, answer = ask(url, "/embed", {"inputs": inputs})
        assert status == 422 and said in answer["error"]


# What a body is


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_other_contents_are_refused(url: str, kind: str) -> None:
    body = json.dumps({"inputs": "a"}).encode()
    status, answer = ask(url, "/embed", body, {"content-type": kind})
    assert status == 415 and "Content-Type: application/json" in answer["error"]
    for right in ("Application/JSON", 'application/json; charset="UTF-8"', "APPLICATION/JSON;charset=utf8;a=b"):
        assert ask(url, "/embed", body, {"content-type": right})[0] == 200


@pytest.mark.parametrize("path", ["/search/", "/serach", "/v1/embedding"])
def test_slashes_at_the_end_and_wrong_routes_are_named(url: str, path: str) -> None:
    for body in (None, {"query": "a"}):
        status, answer = ask(url, path, body)
        assert status == 404 and f"there is no route {path!r}; see /openapi.json" in message_of(answer), answer


@pytest.mark.parametrize("path", ["/search", "/explain", "/why", "/describe", "/documents", "/cite"])
def test_questions_are_smaller_than_corpora(url: str, path: str) -> None:
    status, answer = ask(url, path, {"query": "a" * (2 << 20)})
    assert status == 413 and "1,048,576 bytes" in answer["error"]
    assert ask(url, "/embed", {"inputs": ["a" * 100_000] * 20})[0] == 200


# Hostile values, tokens, hosts, methods


DEEP = 100_000


def bodies() -> dict[str, dict[str, Any]]:
    """Return an honest body for every route that takes one."""
    return {
        "/v1/embeddings": {"model": "static-en", "input": "a", "dimensions": 4},
        "/embed": {"inputs": "a", "dimensions": 4},
        "/rerank": {"query": "a", "texts": ["b"]},
        "/explain": {"text1": "a loan", "text2": "a house"},
        "/describe": {"text": "a loan", "top_k": 3},
        "/cite": {"answer": "a loan", "passages": ["a loan for a house"], "top_k": 3, "min_probability": 0.5},
        "/search": {
            "query": "river", "top_k": 3, "rows": 2, "where": {"n": {"gte": 1}}, "weights": {"bm25": 1},
            "word_weights": {"river": 1},
        },
        "/why": {"query": "river", "id": "b", "weights": {"bm25": 1}},
        "/judge": {"query": "river", "id": "b", "grade": 1},
        "/why_not": {"query": "river", "id": "b", "weights": {"bm25": 1}},
        "/documents": {"where": {"n": {"gte": 1}}, "sort": "n", "limit": 3, "count_by": ["n"]},
    }  # fmt: skip


@pytest.mark.parametrize("path", bodies())
def test_hostile_json_is_refused(url: str, path: str) -> None:
    honest = bodies()[path]
    plain = json.dumps(honest).encode()
    hostile = [
        b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        plain[:-1] + b', "other": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    ]  # fmt: skip
    for name, value in honest.items():
        for deep in (b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"[" * 150 + b"]" * 150):
            hostile.append(json.dumps({**honest, name: "DEEP"}).encode().replace(b'"DEEP"', deep))
        odd = [
            "NaN",
            "Infinity",
            "-Infinity",
            "1e400",
            "-1e400",
            str(2**63),
            str(-(2**63) - 1),
            str(10**400),
            "-1",
            "1.5",
        ]
        inner = [{"x": "ODD"}, ["ODD"], "ODD"] if isinstance(value, (dict, list)) else ["ODD"]
        inner += [{key: "ODD"} for key in value] if isinstance(value, dict) else []
        inner += [{"n": {"gte": "ODD"}}, {"n": {"in": ["ODD", 1]}}, [{"n": "ODD"}]] if name == "where" else []
        for odd_value in inner:
            text = json.dumps({**honest, name: odd_value}).encode()
            hostile += [text.replace(b'"ODD"', number.encode()) for number in odd]
    for body in hostile:
        status, error = ask(url, path, body)
        assert 400 <= status < 500 or _may_be(path, body), (path, status, body[:200], str(error)[:200])
        assert "error" in error or status == 200
    assert ask(url, path, honest)[0] == 200


def _may_be(path: str, body: bytes) -> bool:
    """Whether a body with an odd number is a right one: large numbers and fractions are numbers where any may stand."""
    return bool(re.search(rb'"(where|weights|word_weights)": [\[{]', body)) and not re.search(rb"NaN|Inf|e400", body)


def test_models_by_name(url: str) -> None:
    assert ask(url, "/v1/models/static-en") == (
        200,
        {"id": "static-en", "object": "model", "created": 0, "owned_by": "pellucid"},
    )
    for path in ("/v1/models/gpt", "/v1/models/org/gpt", "/v1/models/org%2Fgpt"):
        status, error = ask(url, path)
        assert status == 404 and error["error"]["code"] == "model_not_found", path
    with running({"org/fruit": pellucid.load("static-en")}) as other:
        assert ask(other, "/v1/models/org/fruit")[0] == ask(other, "/v1/models/org%2Ffruit")[0] == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("bearer secret", 200), ("BEARER secret", 200), ("Bearer  secret", 200),
        ("Basic secret", 401), ("Bearersecret secret", 401), ("secret", 401), ("Bearer", 401),
    ],
)  # fmt: skip
def test_the_scheme_of_the_token(guarded: str, header: str, status: int) -> None:
    assert ask(guarded, "/v1/models", headers={"authorization": header})[0] == status


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/embed", b'{"inputs": ', 400, "not JSON"),
        ("/embed", {"inputs": []}, 422, "inputs: List should have at least 1 item"),
        ("/embed", {}, 422, "inputs: Field required"),
        ("/embed", {"inputs": 3}, 422, "inputs: Input should be a valid"),
        ("/embed", {"inputs": ["a", None]}, 422, "inputs.1: Input should be a valid string"),
        ("/embed", {"inputs": [1, 2]}, 422, "token ids"),
        ("/embed", {"inputs": "a", "dimensions": 1000}, 422, "from 1 to 256"),
        ("/embed", {"inputs": "a", "truncate": 0}, 422, "truncate"),
        ("/embed", b'{"inputs": "\\ud800"}', 400, "hex escape"),
        ("/embed", b"[" * 40_000, 400, "recursion"),
        ("/embed", b'{"inputs": "a", "other": ' + b'{"a":' * 9000, 400, "recursion"),
        ("/embed", b'{"inputs": NaN}', 422, "inputs: Input should be a valid"),
        ("/embed", b'{"inputs": "a", "dimensions": 1' + b"0" * 4000 + b"}", 422, "dimensions"),
        ("/embed", b'{"inputs": "a", "dimensions": 1' + b"0" * 9000 + b"}", 400, "number"),
        ("/embed", b"", 400, "not JSON"),
        ("/embed", b"null", 422, "the body"),
        (
            "/rerank",
            b'{"query": "a", "texts": [' + b"1," * 20_000 + b"1]}",
            422,
            "texts.0: Input should be",
        ),
        ("/why", {"query": "a", "id": "b", "weights": {f"w{n}": "" for n in range(2000)}}, 422, "weights: "),
        ("/search", b'{"query": "a", "weights": {"bm25": NaN}}', 422, "finite"),
        ("/embed", b'{"inputs": "' + b"a" * 60_000 + b'"}', 413, "50,000 bytes"),
        ("/embed", b"\xff\xfe", 400, "not JSON"),
        ("/explain", {"text1": "a", "text2": "b", "model": "none"}, 404, "no model 'none'"),
        ("/explain", {"text1": "a " * 2400, "text2": "a " * 2400, "text3": "a " * 2400}, 422, "at most 10,000"),
        ("/search", {"query": "a"}, 404, "pellucid serve --index"),
        ("/nowhere", {}, 404, "Not Found"),
        ("/../../etc/passwd", None, 404, "Not Found"),
        ("/%2e%2e/%2e%2e/etc/passwd", None, 404, "Not Found"),
        ("/explain", None, 405, "Method Not Allowed"),
    ],
)
def test_bad_requests(limited: str, path: str, body: Any, status: int, message: str) -> None:
    found, error = ask(limited, path, body)
    assert found == status and message in error["error"] and error["error_type"][0].isupper()
    if path == "/embed":
        found, error = ask(limited, "/v1/embeddings", _as_openai(body))
        status = 400 if status == 422 else status  # as OpenAI's clients know it
        assert found in (status, 200 if b"truncate" in json.dumps(str(body)).encode() else status)
        assert found == 200 or set(error["error"]) == {"message", "type", "param", "code"}


def _as_openai(body: Any) -> Any:
    if isinstance(body, bytes):
        return body.replace(b'"inputs"', b'"model": "static-en", "input"')
    return {"model": "static-en", **{name.replace("inputs", "input"): value for name, value in body.items()}}


@pytest.mark.parametrize("token", [b"secret", "secret-ü".encode(), b"not \xff UTF-8", b" spaces around "])
def test_a_token_of_any_bytes(fruit: StaticEmbedder, token: bytes) -> None:
    with running({"fruit": fruit}, token=os.fsdecode(token)) as url:
        assert ask(url, "/health")[0] == 200
        status, error = ask(url, "/embed", {"inputs": "a"})
        assert status == 401 and "Bearer" in error["error"]
        wrong = ask(url, "/v1/models", headers={"authorization": "Bearer wrong"})
        assert wrong[0] == 401 and wrong[1]["error"]["type"] == "authentication_error"
        assert ask(url, "/v1/models", headers={"authorization": f"Bearer {token.decode('latin-1')}"})[0] == 200


def test_other_hosts_are_refused_without_a_token(fruit: StaticEmbedder) -> None:
    """So that no web page reaches the server by a name of its own; who has the token may call it as he likes."""
    hosts, evil = ("localhost", "127.0.0.1", "embed.example"), {"host": "evil.example"}
    with running({"fruit": fruit}, hosts=hosts) as url:
        for host, expected in (("LOCALHOST:99", 200), ("embed.example", 200), ("evil.example", 400)):
            assert ask(url, "/v1/models", headers={"host": host})[0] == expected
        assert ask(url, "/health", headers=evil)[0] == 200
        assert "--allow-host" in ask(url, "/v1/models", headers=evil)[1]["error"]["message"]
    with running({"fruit": fruit}, hosts=hosts, token="secret") as url:
        assert ask(url, "/v1/models", headers=evil)[0] == 401
        assert ask(url, "/v1/models", headers={**evil, "authorization": "Bearer secret"})[0] == 200


CHUNKS = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [b'{"inputs": "', *[b"a" * 10_000] * 5])
RAW = [  # a request, its status, and what stands in the answer
    *((b"%s %s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % (method, path), status, said)
      for path, method, status, said in (
          (b"/health", b"HEAD", 200, b""), (b"*", b"OPTIONS", 404, b""),
          *((b"/health", method, 405, b"allow: GET") for method in (b"OPTIONS", b"DELETE", b"TRACE")),
          *((path, method, 405, b"allow: %s\r\n" % allowed)
            for path, allowed in ((b"/search", b"POST"), (b"/v1/models/x/y", b"GET"), (b"/info", b"GET"))
            for method in (b"OPTIONS", b"DELETE", b"HEAD")))),
    (b"CONNECT evil:80 HTTP/1.1\r\nhost: a\r\n\r\n", 400, b""),
    (b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, b""),
    (b"POST /embed HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n"
     b"transfer-encoding: chunked\r\n\r\n" + CHUNKS, 413, b"50,000 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "status", "said"), RAW, ids=range(len(RAW)))
def test_methods_and_bodies_by_the_byte(limited: str, sent: bytes, status: int, said: bytes) -> None:
    answer = send_raw(limited, sent)
    assert answer.startswith(b"HTTP/1.1 %d" % status) and said in answer, answer
    assert b"access-control-allow-origin" not in answer


GUARDED = create_app(ServerSettings(token="secret"), {"fruit": pellucid.load("static-en")}).openapi()["paths"]


@pytest.fixture(scope="module")
def guarded(static):
    with running({"static-en": static}, token="secret") as at:
        yield at


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_route_asks_for_the_token_unless_the_schema_says_that_it_is_open(guarded, path, method):
    address, body = re.sub(r"\{\w+(:path)?\}", "static-en", path), {} if method == "post" else None
    is_open = GUARDED[path][method]["security"] == []
    for headers in (None, {"authorization": "Bearer wrong"}):
        assert (ask(guarded, address, body, headers)[0] != 401) == is_open
    assert ask(guarded, address, body, {"authorization": "Bearer secret"})[0] != 401
