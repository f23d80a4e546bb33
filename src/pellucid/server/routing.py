"""How a body becomes a request: pydantic reads it from the bytes, checked on the way, before the event loop goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.errors import ApiError

_MOST_WEIGHTS = 100
_MOST_WEIGHT = 1e6  # the library's own limit

Texts = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One text or several; checked by `Service.texts`, whose messages say more than a union's."""

TextList = Annotated[list[str], Field(min_length=1, fail_fast=True)]
"""Several texts. The first that is none ends the reading: an error for each of millions would fill the memory."""


def _few(given: Any) -> Any:
    """Refuse before each wrong entry of millions makes an error of its own."""
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
