"""How a request's body is read and an answer is written, with errors in the form of each API.

A request is read by pydantic from the bytes, checked on the way, before the event loop goes on. An error under /v1/ is
OpenAI's `{"error": {"message", "type", "param", "code"}}`, elsewhere text-embeddings-inference's
`{"error", "error_type"}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast

import orjson
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

MOST_BYTES = 64 << 20  # of any answer; each route ends before it makes more
_TEI_TYPES = {400: "Empty", 424: "Backend", 429: "Overloaded", 503: "Unhealthy", 504: "Overloaded"}
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_MOST_WEIGHTS = 100
_MOST_WEIGHT = 1e6  # the library's own limit


class ApiError(Exception):
    """An answer that is an error.

    Attributes:
        status: of HTTP.
        param: the field of the request that is wrong, if one is.
        code: OpenAI's code, as "model_not_found".
    """

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
    """Return JSON of plain values and C-contiguous numpy arrays.

    Raises:
        ApiError: 422, it is too large.
    """
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    if len(body) > MOST_BYTES:
        raise ApiError(
            422, f"the answer has {len(body):,} bytes; at most {MOST_BYTES:,} are sent. Ask for less at once"
        )
    return Response(body, status, headers=headers, media_type="application/json")


def error_answer(path: str, error: ApiError) -> Response:
    """Return an error in the form of the API that `path` belongs to; OpenAI's clients know a wrong request as 400."""
    message = str(error).encode("utf-8", "replace").decode()  # it may quote a lone surrogate of the client's
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
    if error.status == 429:
        headers["retry-after"] = "1"
    if path.startswith("/v1/"):
        status = 400 if error.status == 422 else error.status
        kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        detail = {"message": message, "type": kind, "param": error.param, "code": error.code}
        return answer({"error": detail}, status, headers)
    kind = _TEI_TYPES.get(error.status, "Validation" if error.status < 500 else "Backend")
    return answer({"error": message, "error_type": kind}, error.status, headers)


def described(error: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of the errors that a route may answer with, `error` their body."""
    return {status: {"model": error} for status in (400, 401, 408, 413, 415, 422, 424, 429, 500, 503, 504, *statuses)}


Texts = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One text or several; checked by `Service.texts`, whose messages say more than a union's."""

TextList = Annotated[list[str], Field(min_length=1, fail_fast=True)]
"""Several texts. The first that is none ends the reading: an error for each of millions would fill the memory."""


def _few(given: Any) -> Any:
    """Check the number first: each wrong entry of millions would make an error of its own."""
    if isinstance(given, dict) and len(given) > _MOST_WEIGHTS:
        raise ValueError(f"at most {_MOST_WEIGHTS} weights")
    return given


def _whole(given: Any) -> Any:
    return int(given) if isinstance(given, float) and given.is_integer() else given


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number; for JSON, and OpenAI's clients, 64.0 is one too."""

Size = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
"""A whole number from 1 up."""

Weights = Annotated[
    dict[str, Annotated[float, Field(ge=0, le=_MOST_WEIGHT)]], Field(max_length=_MOST_WEIGHTS), BeforeValidator(_few)
]
"""Numbers from 0 to a million by name, of a hundred things at most."""


class RequestBody(BaseModel):
    """The body of a request: types are not converted, and there is no NaN."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Route(APIRoute):
    """A route whose handler takes one JSON body, read without FastAPI's way through forms, files and dependencies.

    That way costs more than encoding a short text.
    """

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return what answers a request; FastAPI's own for a route without a body."""
        if self.body_field is None:
            return super().get_route_handler()
        read = TypeAdapter[Any](self.body_field.field_info.annotation or Any).validate_json
        endpoint = cast("Callable[[Any], Awaitable[Response]]", self.endpoint)

        async def handle(request: Request) -> Response:
            body = await request.body()
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":  # what a web page of another site may send without asking is not it
                raise ApiError(415, "the body must be JSON, with the header Content-Type: application/json")
            try:
                given = read(body)
            except ValidationError as error:
                raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None
            return await endpoint(given)

        return handle
