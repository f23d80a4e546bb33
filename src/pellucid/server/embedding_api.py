"""The embedding APIs of others: OpenAI's /v1/embeddings and /v1/models, and text-embeddings-inference's.

The latter are /embed, /embed_sparse, /similarity, /rerank and /info, for the first model. `InferenceClient` of
huggingface_hub posts to the address it is given, without a route; so / answers as /embed does, or as /similarity where
`inputs` is an object.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Discriminator, Field, Tag
from starlette.responses import Response

from pellucid.core.arrays import Role
from pellucid.errors import VERSION
from pellucid.server.bodies import (
    ApiError,
    InferenceError,
    OpenAIError,
    RequestBody,
    Route,
    Size,
    TextList,
    Texts,
    answer,
    described,
    written_rows,
)
from pellucid.server.bounds import written
from pellucid.server.service import Service

_FEWER = "send fewer texts in one request"


class EmbeddingRequest(RequestBody):
    """The body of /v1/embeddings."""

    holds_corpus: ClassVar[bool] = True

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
        rows = [base64.b64encode(row).decode() for row in rows] if is_base64 else await written_rows(rows)
        words = await service.run_if_long(texts, lambda: sum(len(text.split()) for text in texts))
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
    holds_corpus: ClassVar[bool] = True

    truncate: bool | None = Field(None, description="False refuses a text that the model would not read to its end.")
    truncation_direction: Literal["Right", "right"] | None = Field(None, description="Texts are cut at their ends.")
    prompt_name: Literal["query", "document"] | None = Field(None, description="What a search takes the texts for.")


class EmbedRequest(_Options):
    """The body of /embed."""

    inputs: Texts
    normalize: bool | None = Field(None, description="Bring rows to length 1, as without it.")
    dimensions: Size | None = None
    encoding_format: Literal["float"] | None = None


class SparseRequest(_Options):
    """The body of /embed_sparse."""

    inputs: Texts


class SparseValue(BaseModel):
    """One coordinate of a sparse row."""

    index: int
    value: float


class SimilarityInputs(RequestBody):
    """A text, and those it is compared with."""

    source_sentence: str
    sentences: TextList


class SimilarityRequest(RequestBody):
    """The body of /similarity."""

    holds_corpus: ClassVar[bool] = True

    inputs: SimilarityInputs
    parameters: _Options | None = None


def _kind_of_request(body: Any) -> str:
    is_similarity = isinstance(body, dict) and (isinstance(body.get("inputs"), dict) or "parameters" in body)
    return "SimilarityRequest" if is_similarity else "EmbedRequest"


_EmbedOrSimilarity = Annotated[  # a plain union would complain about both of them
    Annotated[SimilarityRequest, Tag("SimilarityRequest")] | Annotated[EmbedRequest, Tag("EmbedRequest")],
    Discriminator(_kind_of_request),
]


class RerankRequest(_Options):
    """The body of /rerank: the score is the cosine of the query and a text."""

    query: str
    texts: TextList
    raw_scores: bool = False
    return_text: bool = False


class RerankEntry(BaseModel):
    """A text in its place."""

    index: int
    score: float
    text: str | None = None


class ModelInfo(BaseModel):
    """What is served, and its limits."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    has_index: bool = Field(description="Ours: whether /search answers.")
    indexes: list[str] = Field(description="Ours: the names of the indexes, the default first.")
    saves: bool = Field(description="Ours: whether edited models and settings of the index can be saved.")


def _sparse(rows: Any, row: int) -> list[dict[str, Any]]:
    """Return a row of a CSR matrix; as Python's objects all rows would take fifty times the space."""
    entries = slice(*rows.indptr[row : row + 2].tolist())
    pairs = zip(rows.indices[entries].tolist(), rows.data[entries].tolist())
    return [{"index": index, "value": value} for index, value in pairs]


async def _check_length(service: Service, texts: list[str], truncate: bool | None, role: Role) -> None:
    """Check, where nothing may be cut off, that the first model reads texts to their ends."""
    model = service.models[service.default]
    if truncate is False and model.max_seq_length not in (None, float("inf")):
        read = await service.run_in_pool(lambda: np.asarray(model.coverage(texts, role=role)))
        short = np.flatnonzero(read < 1)
        if len(short):
            raise ApiError(422, f"text {short[0]} is longer than the model reads; cut it, or allow truncate", "inputs")


def inference_routes(service: Service) -> APIRouter:
    """Return the routes of text-embeddings-inference that take texts."""
    router = APIRouter(tags=["text-embeddings-inference"], route_class=Route, responses=described(InferenceError))
    name = service.default
    model = service.models[name]

    @router.post("/embed", response_model=list[list[float]])
    async def embed(body: EmbedRequest) -> Response:
        """Encode texts into dense rows."""
        texts = service.texts(body.inputs, "inputs")
        await _check_length(service, texts, body.truncate, body.prompt_name)
        role, normalize = body.prompt_name, body.normalize is not False
        rows = await service.dense(name, texts, role, normalize=normalize, dimensions=body.dimensions)
        return answer(await written_rows(rows))

    @router.post("/embed_sparse", response_model=list[list[SparseValue]])
    async def embed_sparse(body: SparseRequest) -> Response:
        """Encode texts into the coordinates that are not zero."""
        texts = service.texts(body.inputs, "inputs")
        await _check_length(service, texts, body.truncate, body.prompt_name)
        rows = await service.encode(name, texts, body.prompt_name)
        if not hasattr(rows, "tocsr"):
            raise ApiError(424, f"{name} gives dense rows; ask /embed, or serve a lexicon or key-token model")
        return answer(await service.run_in_pool(lambda: written(range(rows.shape[0]), partial(_sparse, rows), _FEWER)))

    @router.post("/similarity", response_model=list[float])
    async def similarity(body: SimilarityRequest) -> Response:
        """Return the cosine of one text to each of some others."""
        sentences = service.texts(body.inputs.sentences, "sentences", service.settings.max_texts - 1)
        texts = [*service.texts(body.inputs.source_sentence, "source_sentence"), *sentences]
        options = body.parameters
        role, truncate = (None, None) if options is None else (options.prompt_name, options.truncate)
        await _check_length(service, texts, truncate, role)
        rows = await service.encode(name, texts, role)
        return answer(model.similarity(rows[:1], rows[1:])[0])

    @router.post("/rerank", response_model=list[RerankEntry])
    async def rerank(body: RerankRequest) -> Response:
        """Order texts by their cosine to a query, best first."""
        service.texts(body.query, "query")
        service.texts(body.texts, "texts")
        await _check_length(service, body.texts, body.truncate, "document")
        query = await service.encode(name, [body.query], "query")
        scores = model.similarity(query, await service.encode(name, body.texts, "document"))[0]
        order = np.argsort(-scores, kind="stable").tolist()
        entries: list[dict[str, Any]] = [{"index": number, "score": float(scores[number])} for number in order]
        if body.return_text:
            entries = [{**entry, "text": body.texts[entry["index"]]} for entry in entries]
        return answer(entries)

    @router.post("/", response_model=list[Any])
    async def by_input(body: _EmbedOrSimilarity) -> Response:
        """Do what /embed does, or, for an object of sentences, /similarity."""
        return await (similarity(body) if isinstance(body, SimilarityRequest) else embed(body))

    return router


def info_routes(service: Service) -> APIRouter:
    """Return the route of text-embeddings-inference that names the model and the limits."""
    router = APIRouter(tags=["text-embeddings-inference"], route_class=Route, responses=described(InferenceError))
    name = service.default
    model = service.models[name]

    @router.get("/info", response_model=ModelInfo)
    async def info() -> Response:
        """Say what is served."""
        limits = service.settings
        most = model.max_seq_length
        return answer({
            "model_id": name, "model_sha": None, "model_dtype": "float32", "served_model_name": name,
            "model_type": {"embedding": {"pooling": "mean"}}, "max_concurrent_requests": limits.max_waiting,
            "max_input_length": int(most) if most not in (None, float("inf")) else limits.max_characters,
            "max_batch_tokens": limits.max_texts * limits.max_characters, "max_batch_requests": None,
            "max_client_batch_size": limits.max_texts, "auto_truncate": True, "tokenization_workers": 1,
            "version": VERSION, "has_index": bool(service.indexes),
            "indexes": list(service.indexes), "saves": limits.save_to is not None,
        })  # fmt: skip

    return router
