"""The embedding APIs of others: OpenAI's /v1/embeddings and /v1/models, and text-embeddings-inference's.

The latter are /embed and /rerank, for the first model.
"""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from pellucid.server.bodies import (
    InferenceError,
    OpenAIError,
    RequestBody,
    Route,
    Size,
    Text,
    TextList,
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


def openai_routes(service: Service) -> APIRouter:
    """Return the routes of OpenAI's API."""
    router = APIRouter(prefix="/v1", route_class=Route, tags=["OpenAI"], responses=described(OpenAIError, 404))

    @router.post("/embeddings", response_model=dict[str, Any])
    async def create_embeddings(body: EmbeddingRequest) -> Response:
        """Encode texts; the rows have length 1, so that their product is the cosine."""
        name = service.model_name(body.model)
        texts = [body.input] if isinstance(body.input, str) else body.input
        rows = await service.dense(name, texts, body.input_type, normalize=True, dimensions=body.dimensions)
        rows = [base64.b64encode(row).decode() for row in rows] if body.encoding_format == "base64" else rows
        words = sum(text.count(" ") + 1 for text in texts)
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        return answer({
            "object": "list", "data": data, "model": name, "usage": {"prompt_tokens": words, "total_tokens": words},
        })  # fmt: skip

    @router.get("/models", response_model=dict[str, Any])
    async def list_models() -> Response:
        """List the models that are served."""
        return answer({"object": "list", "data": list(map(_entry, service.models))})

    @router.get("/models/{model:path}", response_model=dict[str, Any])
    async def retrieve_model(model: str) -> Response:
        """Say whether a model is served."""
        return answer(_entry(service.model_name(model)))

    return router


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "pellucid"}


class _Options(RequestBody):
    truncate: Literal[True] | None = Field(None, description="Texts are cut to what the model reads.")
    prompt_name: Literal["query", "document"] | None = Field(None, description="What a search takes the texts for.")


class EmbedRequest(_Options):
    """The body of /embed."""

    inputs: Texts
    normalize: bool | None = Field(None, description="Bring rows to length 1, as without it.")
    dimensions: Size | None = None


class RerankRequest(_Options):
    """The body of /rerank: the score is the cosine of the query and a text."""

    query: Text
    texts: TextList
    raw_scores: bool = False
    return_text: bool = False


def inference_routes(service: Service) -> APIRouter:
    """Return the routes of text-embeddings-inference that take texts."""
    router = APIRouter(tags=["text-embeddings-inference"], route_class=Route, responses=described(InferenceError))
    name = service.default

    @router.post("/embed", response_model=list[list[float]])
    async def embed(body: EmbedRequest) -> Response:
        """Encode texts into dense rows."""
        role, normalize = body.prompt_name, body.normalize is not False
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        return answer(await service.dense(name, texts, role, normalize=normalize, dimensions=body.dimensions))

    @router.post("/rerank", response_model=list[dict[str, Any]])
    async def rerank(body: RerankRequest) -> Response:
        """Order texts by their cosine to a query, best first."""
        query = await service.batchers[name].encode([body.query], "query")
        documents = await service.batchers[name].encode(body.texts, "document")
        scores = service.models[name].similarity(query, documents)[0]
        order = np.argsort(-scores, kind="stable").tolist()
        texts = [{"text": text} if body.return_text else {} for text in body.texts]
        return answer([{"index": number, "score": float(scores[number]), **texts[number]} for number in order])

    return router
