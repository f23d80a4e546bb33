"""OpenAI's embeddings API: /v1/embeddings and /v1/models."""

from __future__ import annotations

import base64
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from pellucid.server.errors import OpenAIError, answer, described
from pellucid.server.routing import RequestBody, Route, Size, Texts
from pellucid.server.service import Service


class EmbeddingRequest(RequestBody):
    """The body of /v1/embeddings; what else a client sends is ignored."""

    input: Texts
    model: str = Field(description="A name that /v1/models lists.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Size | None = Field(None, description="Of a static model: so many of the first dimensions.")
    input_type: Literal["query", "document"] | None = Field(
        None, description="What a search takes the texts for; some models encode queries in another way."
    )


class EmbeddingRow(BaseModel):
    """One text's embedding."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Numbers, or base64 of little-endian float32.")


class Usage(BaseModel):
    """What was read: words between spaces."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The answer of /v1/embeddings: rows of length 1, in the order of the texts."""

    object: Literal["list"]
    data: list[EmbeddingRow]
    model: str
    usage: Usage


class ModelEntry(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """The answer of /v1/models."""

    object: Literal["list"]
    data: list[ModelEntry]


def routes(service: Service) -> APIRouter:
    """Return the routes of OpenAI's API."""
    router = APIRouter(prefix="/v1", route_class=Route, tags=["OpenAI"], responses=described(OpenAIError, 404))

    @router.post("/embeddings", response_model=EmbeddingList)
    async def create_embeddings(body: EmbeddingRequest) -> Response:
        """Encode texts; the rows have length 1, so that their product is the cosine."""
        name = service.model_name(body.model)
        texts = service.texts(body.input, "input")
        rows = await service.dense(name, texts, body.input_type, normalize=True, dimensions=body.dimensions)
        if body.encoding_format == "base64":
            rows = [base64.b64encode(row).decode() for row in rows]
        words = sum(len(text.split()) for text in texts)
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        usage = {"prompt_tokens": words, "total_tokens": words}
        return answer({"object": "list", "data": data, "model": name, "usage": usage})

    @router.get("/models", response_model=ModelList)
    async def list_models() -> Response:
        """List the models that are served."""
        return answer({"object": "list", "data": list(map(_entry, service.models))})

    @router.get("/models/{model:path}", response_model=ModelEntry)
    async def retrieve_model(model: str) -> Response:
        """Say whether a model is served."""
        return answer(_entry(service.model_name(model)))

    return router


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "pellucid"}
