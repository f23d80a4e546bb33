"""Bodies of requests and answers, with errors in the form of each API.

Pydantic reads and checks a body. An error under /v1/ is OpenAI's `{"error": {"message", "type", "param", "code"}}`,
elsewhere text-embeddings-inference's `{"error", "error_type"}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_type_hints

import orjson
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from starlette.requests import Request
from starlette.responses import Response

from pellucid.errors import unknown_name

MAX_ANSWER_BYTES = 64 << 20  # of any answer; each route ends before it makes more
MAX_TESTS = 1_000  # comparisons in all conditions; each looks at every document
MAX_WHERE_VALUES = 10_000  # that these compare with
MAX_TEXTS = 2_048  # of one request
MAX_TEXT_CHARS = 200_000
_MAX_WEIGHTS = 100
_TOKEN_IDS_HINT = (
    "; token ids are those of another vocabulary. In LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False)"
)
_TEI_TYPES = {400: "Empty", 424: "Backend", 429: "Overloaded", 503: "Unhealthy", 504: "Overloaded"}
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


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
    return {status: {"model": error} for status in (400, 401, 413, 415, 422, 424, 429, 500, 503, 504, *statuses)}


Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]

TextList = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]


Texts = TextList | Text
"""Several texts or one."""


TO_INTEGER = BeforeValidator(
    lambda number: int(number) if isinstance(number, float) and number.is_integer() else number
)

Integer = Annotated[int, TO_INTEGER]
"""A whole number; for JSON, and OpenAI's clients, 64.0 is one too."""

Size = Annotated[int, Field(ge=1), TO_INTEGER]
"""A whole number from 1 up."""

Weights = Annotated[dict[str, float] | None, Field(max_length=_MAX_WEIGHTS)]
"""Numbers by name, of a hundred things at most; `Index.search` checks them."""


def _check_where(where: Any) -> Any:
    """Check how much the conditions on metadata hold; `Index.search` checks what they say."""
    alternatives = [where] if isinstance(where, dict) else where
    if alternatives is None:
        return None
    if not isinstance(alternatives, list) or not all(isinstance(tests, dict) for tests in alternatives):
        raise ValueError(f"it is {where!r:.60}; give an object of conditions, or a list of such objects")
    tests = [test for fields in alternatives for test in fields.values()]
    compared = [value for test in tests for value in (test.values() if isinstance(test, dict) else [test])]
    n_values = sum(len(value) if isinstance(value, list) else 1 for value in compared)
    if max(len(alternatives), len(compared)) > MAX_TESTS or n_values > MAX_WHERE_VALUES:
        sizes = f"{len(alternatives):,} alternatives, {len(compared):,} comparisons and {n_values:,} values"
        raise ValueError(f"it has {sizes}; at most {MAX_TESTS:,}, {MAX_TESTS:,} and {MAX_WHERE_VALUES:,} are taken")
    return where


def _check_boosts(boosts: Any) -> Any:
    """Check how much the conditions of boosts hold."""
    for boost in boosts or ():
        _check_where(boost.get("where"))
    return boosts


Boosts = Annotated[list[dict[str, Any]] | None, Field(max_length=_MAX_WEIGHTS), AfterValidator(_check_boosts)]
"""What metadata add to a score; `Index.search` checks them."""

_CONDITIONS = {"type": "object", "additionalProperties": True}
Conditions = Annotated[
    Any,
    BeforeValidator(_check_where),
    WithJsonSchema({"anyOf": [_CONDITIONS, {"type": "array", "items": _CONDITIONS, "minItems": 1}, {"type": "null"}]}),
]
"""Conditions on the metadata of documents, as `Index.search` takes them."""


BODY_RULES = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


class RequestBody(BaseModel):
    """The body of a request, without conversion of types, without NaN, and without unknown fields."""

    model_config = BODY_RULES


class Route(APIRoute):
    """A route that reads one JSON body, and refuses unknown parameters and fields.

    A function that is no coroutine gets its body beside the event loop, and returns what is sent as JSON.
    """

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return what answers a request; FastAPI's own for a route without a body."""
        names = [field.alias for field in self.dependant.query_params]
        respond = super().get_route_handler()
        if self.body_field is not None:  # FastAPI's own reading takes longer than encoding a short text
            model = get_type_hints(self.endpoint, include_extras=True)[self.body_field.name]
            parse = partial(_parse, TypeAdapter[Any](model), list(inspect.signature(model).parameters))

            async def respond(request: Request) -> Response:
                body = parse(await request.body())
                if inspect.iscoroutinefunction(self.endpoint):
                    return await self.endpoint(body)  # type: ignore[no-any-return]
                measures = getattr(body, "measure", False)
                return answer(await request.app.state.service.run_in_pool(self.endpoint, body, measures=measures))

        async def handle(request: Request) -> Response:
            for name in request.query_params:
                if name not in names:
                    raise ApiError(422, unknown_name("parameter", name, names), name)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if self.body_field is not None and kind != "application/json":  # web pages of other sites cannot send it
                raise ApiError(415, "the body must be JSON, with the header Content-Type: application/json")
            return await respond(request)

        return handle


def _parse(adapter: TypeAdapter[Any], names: list[str], body: bytes) -> Any:
    """Return the checked body of a request, of a model or a dataclass with fields of some names.

    The error names the first unknown field, otherwise the first wrong one.
    """
    try:
        return adapter.validate_json(body)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=False)
    unknown = [error for error in errors if error["type"] in ("extra_forbidden", "unexpected_keyword_argument")]
    # of a value that may be a text or a list, the error that says most
    error = (unknown or sorted(errors, key=lambda error: (-len(error["loc"]), error["type"] == "list_type")))[0]
    if error["type"] == "json_invalid":
        raise ApiError(400, f"the body is not JSON: {error['ctx']['error']}")
    name = str(error["loc"][0]) if error["loc"] else None
    if unknown:
        raise ApiError(422, unknown_name("field", str(name), names), name)
    positions = [str(position) for position in error["loc"][1:] if isinstance(position, int)]
    path = ".".join([name or "the body", *positions])
    hint = _TOKEN_IDS_HINT if positions and error["type"] == "string_type" else ""
    raise ApiError(422, f"{path}: {error['msg'].removeprefix('Value error, ')}{hint}", name)
