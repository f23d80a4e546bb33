"""What a client is told when something is wrong: the status, and the body that its API prescribes.

Under /v1/ that is OpenAI's `{"error": {"message", "type", "param", "code"}}`, elsewhere text-embeddings-inference's
`{"error", "error_type"}`.
"""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response

MOST_BYTES = 64 << 20  # of any answer; each route ends before it makes more
_TEI_TYPES = {400: "Empty", 424: "Backend", 429: "Overloaded", 503: "Unhealthy", 504: "Overloaded"}
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


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
