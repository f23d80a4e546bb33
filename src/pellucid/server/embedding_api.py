"""The embedding APIs of others: OpenAI's /v1/embeddings and /v1/models, and text-embeddings-inference's.

The latter are /embed and /rerank, for the first model.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from pellucid.core.arrays import Role
from pellucid.server.bodies import (
    ApiError,
    InferenceError,
    OpenAIError,
    RequestBody,
    Route,
    Size,
    Texts,
    answer,
    described,
)
from pellucid.server.service import Service


class EmbeddingRequest(RequestBody):
    """The body of /v1/embeddings."""

    input: Texts
    model: str | None = Field(None, description="A name that /v1/models lists; the first of them without one.")
    encoding_format: Literal["float", "base64"] | None = Field(None, description="Numbers without one.")
    dimensions: Size | None = Field(None, description="Of a static model: so many of the first dimensions.")
    input_type: Literal["query", "document"] | None = Field(
        None, description="What a search takes the texts for; some models encode queries in another way."
    )
    user: str | None = Field(None, description="Of OpenAI's API; not used.")


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


def openai_routes(service: Service) -> APIRouter:
    """Return the routes of OpenAI's API."""
    router = APIRouter(prefix="/v1", route_class=Route, tags=["OpenAI"], responses=described(OpenAIError, 404))

    @router.post("/embeddings", response_model=EmbeddingList)
    async def create_embeddings(body: EmbeddingRequest) -> Response:
        """Encode texts; the rows have length 1, so that their product is the cosine."""
        name = service.model_name(body.model)
        texts = service.texts(body.input, "input")
        rows = await service.dense(name, texts, body.input_type, normalize=True, dimensions=body.dimensions)
        is_base64 = body.encoding_format == "base64"
        rows = [base64.b64encode(row).decode() for row in rows] if is_base64 else rows
        words = sum(text.count(" ") + 1 for text in texts)
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


class _Options(RequestBody):
    truncate: bool | None = Field(None, description="False refuses a text that the model would not read to its end.")
    truncation_direction: Literal["Right", "right"] | None = Field(None, description="Texts are cut at their ends.")
    prompt_name: Literal["query", "document"] | None = Field(None, description="What a search takes the texts for.")


class EmbedRequest(_Options):
    """The body of /embed."""

    inputs: Texts
    normalize: bool | None = Field(None, description="Bring rows to length 1, as without it.")
    dimensions: Size | None = None
    encoding_format: Literal["float"] | None = None


class RerankRequest(_Options):
    """The body of /rerank: the score is the cosine of the query and a text."""

    query: str
    texts: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    raw_scores: bool = False
    return_text: bool = False


class RerankEntry(BaseModel):
    """A text in its place."""

    index: int
    score: float
    text: str | None = None


async def _check_length(service: Service, texts: list[str], truncate: bool | None, role: Role) -> None:
    """Check, where nothing may be cut off, that the first model reads texts to their ends."""
    model = service.models[service.default]
    if truncate is False and model.max_seq_length not in (None, float("inf")):
        coverage = await service.run_in_pool(partial(model.coverage, texts, role=role))
        short = np.flatnonzero(np.asarray(coverage) < 1)
        if len(short):
            raise ApiError(422, f"text {short[0]} is longer than the model reads; cut it, or allow truncate", "inputs")


def inference_routes(service: Service) -> APIRouter:
    """Return the routes of text-embeddings-inference that take texts."""
    router = APIRouter(tags=["text-embeddings-inference"], route_class=Route, responses=described(InferenceError))
    name = service.default

    @router.post("/embed", response_model=list[list[float]])
    async def embed(body: EmbedRequest) -> Response:
        """Encode texts into dense rows."""
        texts = service.texts(body.inputs, "inputs")
        await _check_length(service, texts, body.truncate, body.prompt_name)
        role, normalize = body.prompt_name, body.normalize is not False
        return answer(await service.dense(name, texts, role, normalize=normalize, dimensions=body.dimensions))

    @router.post("/rerank", response_model=list[RerankEntry])
    async def rerank(body: RerankRequest) -> Response:
        """Order texts by their cosine to a query, best first."""
        service.texts(body.query, "query")
        service.texts(body.texts, "texts")
        await _check_length(service, body.texts, body.truncate, "document")
        query = await service.encode(name, [body.query], "query")
        documents = await service.encode(name, body.texts, "document")
        scores = service.models[name].similarity(query, documents)[0]
        order = np.argsort(-scores, kind="stable").tolist()
        entries: list[dict[str, Any]] = [{"index": number, "score": float(scores[number])} for number in order]
        if body.return_text:
            entries = [{**entry, "text": body.texts[entry["index"]]} for entry in entries]
        return answer(entries)

    return router
