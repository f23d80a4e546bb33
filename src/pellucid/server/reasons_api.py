"""Our own API: why two texts are similar, what a text is about, and an index that is searched with reasons."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from pellucid.server.bounds import difference, explained, explained_hit, searched
from pellucid.server.corpus_map import LEAST_POINTS, MOST_POINTS, corpus_map
from pellucid.server.errors import ApiError, InferenceError, answer, described
from pellucid.server.routing import RequestBody, Route, Weights, Whole
from pellucid.server.service import Service

if TYPE_CHECKING:
    from pellucid.index.documents import Document

_Role = Literal["query", "document"]
_EXAMPLE_WORDS = 6
_BM25 = "bm25"  # the part of a score that is no model
_SHOWN = 400  # characters of a text on the map
_ENCODED = 4000  # characters of a document that count for its place on the map
_Corpus = Annotated[list[str], Field(min_length=LEAST_POINTS, max_length=MOST_POINTS, fail_fast=True)]
_Alternatives = Annotated[list[dict[str, Any]], Field(max_length=100, fail_fast=True)]


class ExplainRequest(RequestBody):
    """The body of /explain."""

    text1: str
    text2: str | None = None
    text3: str | None = Field(None, description="Explain why text2 is closer to text1 than this one is.")
    model: str | None = Field(None, description="A name that /models lists; the first of them without one.")
    role1: _Role | None = None
    role2: _Role | None = Field(None, description="Of text2 and text3.")
    notes: bool = Field(False, description="Add the sentences that the views show: coverage, for and against.")


class DescribeRequest(RequestBody):
    """The body of /describe."""

    text: str
    model: str | None = None
    top_k: Whole = Field(5, ge=1, le=100)


class Description(BaseModel):
    """What a text is mostly about."""

    text: str
    description: str
    coverage: float = Field(description="The share of its words that the model knows.")


class DimensionEntry(BaseModel):
    """A dimension of a model."""

    number: int
    name: str
    about: list[str]


class DimensionList(BaseModel):
    """Some dimensions of a model, in order."""

    model: str
    total: int = Field(description="How many there are, or match the search.")
    dimensions: list[DimensionEntry]


class SearchRequest(RequestBody):
    """The body of /search."""

    query: str
    top_k: Whole = Field(10, ge=1, le=100)
    where: dict[str, Any] | _Alternatives | None = Field(None, description="Conditions on the metadata.")
    weights: Weights | None = Field(None, description="Of the parts of the score, for this search.")
    word_weights: Weights | None = Field(None, description="Of words of the query, for this search.")
    rows: Whole = Field(0, ge=0, le=1000, description="Add so many rows of each hit, the largest.")


class WhyRequest(RequestBody):
    """The body of /why: a document of the index, and what puts it above another."""

    query: str
    id: str
    below: str | None = Field(None, description="The id of another document: explain the difference of the two scores.")
    weights: Weights | None = None


class MapRequest(RequestBody):
    """The body of /map."""

    texts: _Corpus | None = Field(None, description="The corpus; without it, documents of the index.")
    limit: Whole = Field(
        1000, ge=LEAST_POINTS, le=MOST_POINTS, description="Documents of the index, spread over all of them."
    )
    clusters: Whole = Field(8, ge=2, le=50)
    model: str | None = None


class MapPoint(BaseModel):
    """A text in the plane."""

    id: str
    text: str
    x: float
    y: float
    cluster: int


class MapCluster(BaseModel):
    """A cluster, and what sets it apart."""

    label: str
    words: list[str]
    dimensions: list[str]
    texts: int


class MapAnswer(BaseModel):
    """The answer of /map."""

    model: str
    points: list[MapPoint]
    clusters: list[MapCluster]


class ServedModel(BaseModel):
    """A model that is served."""

    name: str
    family: str
    dimension: int
    sparse: bool
    size: str


def _shown(document: Document) -> str:
    """Return a document as its point shows it: the title first."""
    return "\n".join(filter(None, (document.title, document.text)))[:_ENCODED]


def routes(service: Service) -> APIRouter:
    """Return our own routes."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 404))

    @router.get("/models", response_model=list[ServedModel])
    async def models() -> Response:
        """List the models, the one that is used by default first."""
        return answer([
            {"name": name, "family": model.family, "dimension": model.get_embedding_dimension(),
             "sparse": service.is_sparse[name], "size": model._size()}
            for name, model in service.models.items()
        ])  # fmt: skip

    @router.post("/explain", response_model=dict[str, Any])
    async def explain(body: ExplainRequest) -> Response:
        """Take a similarity apart: rows that add up to it, as docs/schema.json describes them."""
        name = service.model_name(body.model)
        service.check_explained({"text1": body.text1, "text2": body.text2, "text3": body.text3})
        others: list[str | None] = [text for text in (body.text2, body.text3) if text is not None]
        roles = {"role1": body.role1, "role2": body.role2 if others else None}

        def work() -> dict[str, Any]:
            model = service.models[name]
            explanation = difference([model.explain(body.text1, other, **roles) for other in others or [None]])
            return explained(explanation, notes=body.notes)

        return answer(await service.in_thread(work))

    @router.post("/describe", response_model=Description)
    async def describe(body: DescribeRequest) -> Response:
        """Say in a line what a text is mostly about."""
        name = service.model_name(body.model)
        service.check_explained({"text": body.text})
        model = service.models[name]
        said = await service.in_thread(lambda: (model.describe(body.text, top_k=body.top_k), model.coverage(body.text)))
        return answer({"text": body.text, "description": said[0], "coverage": round(float(said[1]), 6)})

    @router.get("/dimensions", response_model=DimensionList)
    async def dimensions(
        model: str | None = None,
        search: str = "",
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=0, le=1000)] = 100,
    ) -> Response:
        """List dimensions of a model; `search` keeps those whose name or words hold it, in any case."""
        name = service.model_name(model)
        wanted = search.casefold()

        def work() -> dict[str, Any]:
            found = [
                {"number": number, "name": dimension.name, "about": dimension.about}
                for number, dimension in enumerate(service.models[name].dimensions)
                if wanted in " ".join((dimension.name, *dimension.about)).casefold()
            ]
            return {"model": name, "total": len(found), "dimensions": found[offset : offset + limit]}

        return answer(await service.in_thread(work))

    @router.post("/search", response_model=dict[str, Any])
    async def search(body: SearchRequest) -> Response:
        """Search the index: hits with their parts, reasons and words, as docs/search-schema.json describes them."""
        index = service.searched()
        service.check_explained({"query": body.query})

        def work() -> dict[str, Any]:
            weights: dict[str, Any] = {"weights": body.weights, "word_weights": body.word_weights}
            hits = index.search(body.query, body.top_k, where=body.where, **weights)
            return searched(hits, body.rows, len(index.weights.keys() - {_BM25}))

        return answer(await service.in_thread(work))

    @router.post("/why", response_model=dict[str, Any])
    async def why(body: WhyRequest) -> Response:
        """Explain the score of one document, or what puts it above another."""
        index = service.searched()
        service.check_explained({"query": body.query})
        ids = [id for id in (body.id, body.below) if id is not None]

        def work() -> dict[str, Any]:
            for id in ids:
                if id not in index:
                    raise ApiError(404, f"no document {id!r:.80} is in the index", "id")
            models = len(index.weights.keys() - {_BM25})
            hits = [index.score(body.query, id, weights=body.weights) for id in ids]
            return explained(difference([explained_hit(body.query, hit, models) for hit in hits]))

        return answer(await service.in_thread(work))

    @router.post("/map", response_model=MapAnswer)
    async def corpus_as_map(body: MapRequest) -> Response:
        """Put the texts of a corpus into the plane, in labelled clusters; takes seconds for a thousand."""
        name = service.model_name(body.model)
        if body.texts is not None:
            texts = service.texts(body.texts, "texts", MOST_POINTS)
            ids = [str(number) for number in range(1, len(texts) + 1)]
        else:
            index = service.searched()
            every = max(1, -(-len(index) // body.limit))
            chosen = await service.in_thread(lambda: [(d.id, _shown(d)) for d in islice(index, 0, None, every)])
            ids, texts = [id for id, _ in chosen], [text for _, text in chosen]

        found = await service.in_slow_thread(lambda: corpus_map(service.models[name], texts, body.clusters))
        places = zip(ids, texts, found.points.tolist(), found.members)
        return answer({
            "model": name,
            "points": [{"id": id, "text": t[:_SHOWN], "x": x, "y": y, "cluster": c} for id, t, (x, y), c in places],
            "clusters": [cluster._asdict() for cluster in found.clusters],
        })  # fmt: skip

    @router.get("/index", response_model=dict[str, Any])
    async def index_info() -> Response:
        """Say what the index holds, and an example of what one might ask: the first words of a document."""
        index = service.searched()

        def work() -> dict[str, Any]:
            first = next((document.title or document.text for document in index), "")
            return {**index.info(), "example": " ".join(first.split()[:_EXAMPLE_WORDS])}

        facts = await service.in_thread(work)
        return answer({name: value for name, value in facts.items() if name != "folder"})

    return router
