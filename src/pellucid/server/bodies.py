"""Bodies of requests and answers, with errors in the form of each API.

A body is counted while it arrives: bytes, and values of its JSON, so that none can fill the memory or hold up the event
loop. Pydantic then reads and checks it. An error under /v1/ is OpenAI's `{"error": {"message", "type", "param",
"code"}}`, elsewhere text-embeddings-inference's `{"error", "error_type"}`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from pellucid.errors import unknown_name

MAX_ANSWER_BYTES = 64 << 20  # of any answer; each route ends before it makes more
SMALL_BODY_BYTES = 64 << 10  # a body up to this size is not refused for what it holds, or for other bodies' sake
MAX_QUESTION_BYTES = 1 << 20  # of a body that holds no corpus; those that do may have ServerSettings.max_body_bytes
MAX_BODY_VALUES = 20_000  # strings, numbers, lists and objects of one body, or five a text that may be sent
MAX_ALTERNATIVES = 100  # conditions of which one must hold
MAX_TESTS = 1_000  # comparisons in all of them; each looks at every document
MAX_WHERE_VALUES = 10_000  # that these compare with
_BLOCK_NUMBERS = 1 << 16  # numbers that are written before others get their turn, about 5 ms
_TEI_TYPES = {400: "Empty", 424: "Backend", 429: "Overloaded", 503: "Unhealthy", 504: "Overloaded"}
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_MAX_WEIGHTS = 100
_MAX_WEIGHT = 1e6  # the library's own limit


class ApiError(Exception):
    """An answer that is an error: HTTP's status, the wrong field of the request, and OpenAI's code."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        """Take what the client reads."""
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


class OpenAIErrorDetail(BaseModel):
    """What went wrong, in OpenAI's words."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An error under /v1/."""

    error: OpenAIErrorDetail


class InferenceError(BaseModel):
    """An error anywhere else."""

    error: str
    error_type: str


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON of plain values and C-contiguous numpy arrays, unless it is too large."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    if len(body) > MAX_ANSWER_BYTES:
        raise ApiError(
            422, f"the answer has {len(body):,} bytes; at most {MAX_ANSWER_BYTES:,} are sent. Ask for less at once"
        )
    return Response(body, status, headers=headers, media_type="application/json")


def error_answer(path: str, error: ApiError) -> Response:
    """Return an error in the form of the API that `path` belongs to; OpenAI's clients expect 400 for wrong requests."""
    message = str(error).encode("utf-8", "replace").decode()  # it may quote a lone surrogate of the client's
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
    if error.status in (429, 503):
        headers["retry-after"] = "1"
    if path.startswith("/v1/"):
        status = 400 if error.status == 422 else error.status
        kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        detail = {"message": message, "type": kind, "param": error.param, "code": error.code}
        return answer({"error": detail}, status, headers)
    kind = _TEI_TYPES.get(error.status, "Validation" if error.status < 500 else "Backend")
    return answer({"error": message, "error_type": kind}, error.status, headers)


def described(error: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of a route's errors, whose body is `error`."""
    return {status: {"model": error} for status in (400, 401, 408, 413, 415, 422, 424, 429, 500, 503, 504, *statuses)}


async def written_rows(rows: Any) -> Any:
    """Return rows for `answer`; many of them as JSON already, written block by block between other requests."""
    if rows.size <= _BLOCK_NUMBERS:
        return rows
    fragments, step = list[orjson.Fragment](), max(1, _BLOCK_NUMBERS // rows.shape[1])
    for start in range(0, len(rows), step):
        texts = [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in rows[start : start + step]]
        fragments += map(orjson.Fragment, texts)
        await asyncio.sleep(0)
    return fragments


Texts = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One text or several; checked by `Service.texts`, with better messages than a union's."""

TextList = Annotated[list[str], Field(min_length=1, fail_fast=True)]
"""Several texts. Reading ends at the first wrong one: an error for each of millions would fill the memory."""


def _check_count(weights: Any) -> Any:
    """Check the number first: each wrong entry would make an error of its own."""
    if isinstance(weights, dict) and len(weights) > _MAX_WEIGHTS:
        raise ValueError(f"at most {_MAX_WEIGHTS} weights")
    return weights


def _to_integer(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() else number


Integer = Annotated[int, BeforeValidator(_to_integer)]
"""A whole number; for JSON, and OpenAI's clients, 64.0 is one too."""

Size = Annotated[int, Field(ge=1), BeforeValidator(_to_integer)]
"""A whole number from 1 up."""

_Weight = Annotated[float, Field(ge=0, le=_MAX_WEIGHT)]
Weights = Annotated[dict[str, _Weight], Field(max_length=_MAX_WEIGHTS), BeforeValidator(_check_count)]
"""Numbers from 0 to a million by name, of a hundred things at most."""


def _check_where(where: Any) -> Any:
    """Check how much the conditions on metadata hold; `Index.search` checks what they say."""
    alternatives = [where] if isinstance(where, dict) else where
    if alternatives is None:
        return None
    if not isinstance(alternatives, list) or not all(isinstance(tests, dict) for tests in alternatives):
        raise ValueError(f"it is {where!r:.60}; give an object of conditions, or a list of such objects")
    if len(alternatives) > MAX_ALTERNATIVES:
        raise ValueError(f"it has {len(alternatives):,} alternatives; at most {MAX_ALTERNATIVES} are compared")
    tests = [test for fields in alternatives for test in fields.values()]
    compared = [value for test in tests for value in (test.values() if isinstance(test, dict) else [test])]
    if len(compared) > MAX_TESTS:
        raise ValueError(f"it has {len(compared):,} comparisons; at most {MAX_TESTS:,} are made")
    values = sum(len(value) if isinstance(value, list) else 1 for value in compared)
    if values > MAX_WHERE_VALUES:
        raise ValueError(f"it compares with {values:,} values; at most {MAX_WHERE_VALUES:,} are taken")
    return where


_CONDITIONS = {"type": "object", "additionalProperties": True}
Conditions = Annotated[
    Any,
    BeforeValidator(_check_where),
    WithJsonSchema({
        "anyOf": [
            _CONDITIONS, {"type": "array", "items": _CONDITIONS, "minItems": 1, "maxItems": MAX_ALTERNATIVES},
            {"type": "null"},
        ]
    }),
]  # fmt: skip
"""Conditions on the metadata of documents, as `Index.search` takes them."""


class RequestBody(BaseModel):
    """The body of a request, without conversion of types, without NaN, and without unknown fields."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
    holds_corpus: ClassVar[bool] = False  # whether it may be as large as the server allows


def _models_in(annotation: Any) -> list[type[RequestBody]]:
    """Return the models that a value of a type may be, lists of them and unions among it."""
    if isinstance(annotation, type) and issubclass(annotation, RequestBody):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _fields_of(models: Iterable[type[RequestBody]]) -> dict[str, Any]:
    return {name: field.annotation for model in models for name, field in model.model_fields.items()}


def _validation_error(annotation: Any, errors: list[Any]) -> ApiError:
    """Return the error for a body of a type: its first unknown field, otherwise the first wrong one."""
    error = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    if error["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {error['ctx']['error']}")
    models, path = _models_in(annotation), list[str]()
    for name in error["loc"]:
        fields = _fields_of(models)
        tagged = [model for model in models if model.__name__ == name]
        if tagged:  # of a union
            models = tagged
        elif error["type"] != "extra_forbidden" or name in fields:
            path.append(str(name))
            models = _models_in(fields.get(name))
    if error["type"] == "extra_forbidden":
        prefix = f"in {'.'.join(path)}: " if path else ""
        name = str(error["loc"][-1])
        return ApiError(422, prefix + unknown_name("field", name, list(_fields_of(models))), ".".join([*path, name]))
    param = ".".join(path)
    return ApiError(422, f"{param or 'the body'}: {error['msg'].removeprefix('Value error, ')}", param or None)


class BodyCounter:
    """Counts bytes, values and keys of the JSON of a body as it arrives."""

    _STRUCTURE = b'",:[{'
    _DROPPED = bytes(set(range(256)) - set(_STRUCTURE))

    def __init__(self, max_bytes: int, max_values: int) -> None:
        """Take the limits."""
        self._max_bytes, self._max_values = max_bytes, max_values
        self._bytes, self.values, self.keys = 0, 1, 0
        self._in_string = self._is_escaped = False

    def check_bytes(self, count: int) -> None:
        """Refuse a body of so many bytes if they are too many."""
        if count > self._max_bytes:
            raise ApiError(413, f"the body is larger than {self._max_bytes:,} bytes; send less in one request")

    def add(self, chunk: bytes) -> None:
        """Count a chunk; refuse the body if it has too much.

        A comma or an opening bracket begins a value, a colon ends a key, where they are outside strings.
        """
        if not chunk:
            return
        self._bytes += len(chunk)
        self.check_bytes(self._bytes)
        chunk = chunk[self._is_escaped :].replace(b"\\\\", b"")  # pairs first: what is left escapes a character
        self._is_escaped = chunk.endswith(b"\\")
        stretches = chunk.replace(b'\\"', b"").translate(None, self._DROPPED).split(b'"')
        outside = b"".join(stretches[self._in_string :: 2])
        keys = outside.count(b":")
        self.keys += keys
        self.values += len(outside) - keys
        self._in_string ^= len(stretches) % 2 == 0
        if self.values > self._max_values and self._bytes > SMALL_BODY_BYTES:
            raise ApiError(422, f"the body has more than {self._max_values:,} values; send less in one request")


def _count_keys(value: Any) -> int:
    """Return how many keys the objects of parsed JSON have."""
    if isinstance(value, BaseModel):
        fields = value.model_fields_set
        return len(fields) + sum(_count_keys(getattr(value, name)) for name in fields)
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    return sum(_count_keys(item) for item in value if not isinstance(item, str)) if isinstance(value, list) else 0


def _check_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object of JSON with a key twice: readers differ in which of the two values counts."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ApiError(422, f"the body has the field {twice!r:.80} twice in one object", twice)


def _check_parameters(request: Request, names: Iterable[str]) -> None:
    """Refuse parameters of the query string that are unknown or given twice."""
    names, seen = list(names), set[str]()
    for name, _ in request.query_params.multi_items():
        if name not in names:
            raise ApiError(422, unknown_name("parameter", name, names), name)
        if name in seen:
            raise ApiError(422, f"the parameter {name!r:.80} is given twice", name)
        seen.add(name)


def _content_refusal(headers: Mapping[str, str]) -> ApiError | None:
    """Return the error for what is not plain JSON in UTF-8."""
    kind, *parameters = (part.strip().lower() for part in headers.get("content-type", "").split(";"))
    if kind != "application/json":  # web pages of other sites cannot send it without asking
        return ApiError(415, "the body must be JSON, with the header Content-Type: application/json")
    settings = dict(parameter.partition("=")[::2] for parameter in parameters)
    charset = settings.get("charset", "").strip("\"' ")
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        return ApiError(415, f"the charset is {charset!r:.40}; send JSON in UTF-8")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return ApiError(415, f"the Content-Encoding is {headers['content-encoding']!r:.40}; send the body as it is")
    return None


class Route(APIRoute):
    """A route that refuses unknown parameters and fields, and reads one JSON body in bounded memory."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return what answers a request; FastAPI's own for a route without a body."""
        names = [field.alias for field in self.dependant.query_params]
        respond = super().get_route_handler()
        if self.body_field is not None:  # FastAPI's own reading takes longer than encoding a short text
            hints = get_type_hints(self.endpoint, include_extras=True)  # FastAPI's own lack the discriminator
            respond = _body_handler(hints[self.body_field.name], self.endpoint)

        async def handle(request: Request) -> Response:
            if request.scope["query_string"]:
                _check_parameters(request, names)
            response: Response = await respond(request)
            return response

        return handle


def _body_handler(body_type: Any, endpoint: Callable[[Any], Awaitable[Response]]) -> Callable[[Request], Any]:
    """Return what reads the body of a request, checks it, and answers."""
    parse = TypeAdapter[Any](body_type).validate_json
    holds_corpus = any(model.holds_corpus for model in _models_in(body_type))

    async def respond(request: Request) -> Response:
        refusal, limits = _content_refusal(request.headers), request.app.state.service.settings
        max_bytes = limits.max_body_bytes if holds_corpus else min(limits.max_body_bytes, MAX_QUESTION_BYTES)
        max_values = max(MAX_BODY_VALUES, 5 * limits.max_texts) if refusal is None else max_bytes
        counter = BodyCounter(max_bytes, max_values)
        body = await _read_body(request, counter)
        if refusal is not None:
            raise refusal
        try:
            parsed = parse(body)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            raise _validation_error(body_type, errors) from None
        if counter.keys > _count_keys(parsed):
            json.loads(body, object_pairs_hook=_check_duplicates)
        del body  # the answer may take long
        return await endpoint(parsed)

    return respond


async def _read_body(request: Request, counter: BodyCounter) -> bytearray:
    """Return the body of a request; `counter` refuses it as soon as it has too much."""
    length = request.headers.get("content-length", "0")
    counter.check_bytes(int(length) if length.isdigit() else 0)
    body = bytearray()  # grows in place; joining chunks at the end would take 10 ms at once
    async for chunk in request.stream():
        counter.add(chunk)
        body += chunk
    return body
