"""Our own API: why two texts are similar, what a text is about, an index that is searched with reasons, and edits.

Edited models and settings of the index are saved only if the server was started with a folder to save to.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from pellucid.core.dimensions import Which
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.server.bodies import (
    ApiError,
    Conditions,
    InferenceError,
    Integer,
    RequestBody,
    Route,
    Weights,
    answer,
    described,
)
from pellucid.server.bounds import check_pairs, difference, explained, less_mean, limit_hits, written
from pellucid.server.service import Service
from pellucid.static.embedder import static_model

if TYPE_CHECKING:
    from pellucid.index.documents import Document
    from pellucid.index.index import Index

_Role = Literal["query", "document"]
_EXAMPLES, _EXAMPLE_WORDS = 4, 10
_OVERVIEW_DOCUMENTS = 5_000  # among which examples of queries are chosen
_MAX_CHOICES = 12  # values of a field to choose from; of one with more, the most frequent are suggested
_MAX_SUGGESTED = 200
_MAX_VALUE_CHARS = 200  # of a value that is offered
_MAX_COUNTED_VALUES = 1_000  # of a field, the most frequent
_BM25 = "bm25"  # the part of a score that is not from a model
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$")]


class ExplainRequest(RequestBody):
    """The body of /explain."""

    text1: str
    text2: str
    text3: str | None = Field(None, description="Explain why text2 is closer to text1 than this one is.")
    model: str | None = Field(None, description="A name that /models lists; the first of them without one.")
    role1: _Role | None = None
    role2: _Role | None = Field(None, description="Of text2 and text3.")
    notes: bool = Field(False, description="Add the sentences that the views show: coverage, for and against.")


class ScoreScale(BaseModel):
    """Scores that a model gives to English sentences, each list from the lowest up."""

    model: str
    paraphrases: list[float] = Field(description="Of pairs that say the same in other words.")
    unrelated: list[float] = Field(description="Of pairs of sentences about different things.")


class DescribeRequest(RequestBody):
    """The body of /describe."""

    text: str
    model: str | None = None
    top_k: Integer = Field(5, ge=1, le=100)
    explanation: bool = Field(False, description="Add the rows of its embedding, as /explain gives those of a pair.")


class Description(BaseModel):
    """What a text is mostly about."""

    text: str
    description: str
    coverage: float = Field(description="The share of its words that the model knows.")
    explanation: dict[str, Any] | None = None


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
    top_k: Integer = Field(10, ge=1, le=100)
    offset: Integer = Field(0, ge=0, description="How many of the best hits to leave out: 10 for the second page.")
    where: Conditions = Field(None, description="Conditions on the metadata.")
    weights: Weights | None = Field(None, description="Of the parts of the score, for this search.")
    word_weights: Weights | None = Field(None, description="Of words of the query, for this search.")
    min_score: float | None = Field(None, allow_inf_nan=False, description="Leave out hits with a lower score.")
    index: str | None = Field(None, description="The name of an index, see /info; the first without one.")
    rows: Integer = Field(0, ge=0, le=1000, description="Add so many rows of each hit, the largest.")
    with_vectors: bool = Field(False, description="Add the stored vectors of each hit.")


class DocumentsRequest(RequestBody):
    """The body of /documents: which documents to list, and fields to count by."""

    index: str | None = Field(None, description="The name of an index, see /info; the first without one.")
    where: Conditions = Field(None, description="Conditions on the metadata.")
    sort: str | None = Field(None, description="The field to sort by; without it, the order of adding.")
    descending: bool = Field(False, description="The largest values first.")
    offset: Integer = Field(0, ge=0, description="Documents to skip.")
    after: str | None = Field(
        None, description="Without sort: the next of the page before. Documents added or deleted do not shift pages."
    )
    limit: Integer = Field(10, ge=0, le=1000, description="Documents at most; 0 only counts.")
    count_by: Annotated[list[str], Field(max_length=20, fail_fast=True)] = Field(
        [], description="Fields: count the documents with each of their values."
    )


class WhyRequest(RequestBody):
    """The body of /why: a document of the index, and what puts it above another, or sets it apart from several."""

    query: str
    id: str
    index: str | None = Field(None, description="The name of an index, see /info; the first without one.")
    below: str | None = Field(None, description="The id of another document: explain the difference of the two scores.")
    others: Annotated[list[str], Field(max_length=20, fail_fast=True)] = Field(
        [], description="Ids of other documents: explain the score less the mean of theirs."
    )
    measure: bool = Field(False, description="Measure rows of encoders: up to 139 texts are encoded for each text.")
    weights: Weights | None = None
    word_weights: Weights | None = None


class ModelEdit(RequestBody):
    """The body of POST /models; what is changed is done in this order."""

    name: _Name = Field(description="Of the new model, and of its folder: letters, digits, and . _ - between them.")
    model: str | None = Field(None, description="The model that is edited; the first without one.")
    scale: Weights = Field({}, description="Dimension -> factor of its coordinate.")
    without: Annotated[list[str], Field(max_length=1000, fail_fast=True)] = Field([], description="Dimensions to drop.")
    words: Weights = Field({}, description="Of a static model: word -> factor of its vector.")


class SavedModel(BaseModel):
    """The model that was saved."""

    name: str
    dimension: int


class IndexSettings(RequestBody):
    """The body of POST /index; absent fields stay unchanged."""

    index: str | None = Field(None, description="The name of an index, see /info; the first without one.")
    weights: Weights | None = Field(None, description="Of the parts of the score; brought to the sum 1.")
    word_weights: Weights | None = Field(None, description="Of words of the query; {} lets all count 1.")


class ServedModel(BaseModel):
    """A model that is served."""

    name: str
    family: str
    dimension: int
    sparse: bool
    size: str


def model_routes(service: Service) -> APIRouter:
    """Return the routes that ask models."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 404))

    @router.get("/models", response_model=list[ServedModel])
    async def models() -> Response:
        """List the models, the one that is used by default first."""
        return answer([
            {"name": name, "family": model.family, "dimension": model.get_embedding_dimension(),
             "sparse": service.is_sparse[name], "size": model.size_text()}
            for name, model in service.models.items()
        ])  # fmt: skip

    @router.post("/explain", response_model=dict[str, Any])
    async def explain(body: ExplainRequest) -> Response:
        """Take a similarity apart: rows that add up to it, as docs/schema.json describes them."""
        name = service.model_name(body.model)
        service.check_explained({"text1": body.text1, "text2": body.text2, "text3": body.text3})
        second_texts = [text for text in (body.text2, body.text3) if text is not None]

        def work() -> dict[str, Any]:
            model, roles = service.models[name], {"role1": body.role1, "role2": body.role2}
            explanation = difference([model.explain(body.text1, text, **roles) for text in second_texts])
            return explained(explanation, notes=body.notes)

        return answer(await service.run_in_pool(work))

    scales: dict[str, dict[str, Any]] = {}

    @router.get("/scores", response_model=ScoreScale)
    async def scores(model: str | None = None) -> Response:
        """Say which scores the model gives to paraphrases and to unrelated sentences: what a score of it means."""
        name = service.model_name(model)
        if name not in scales:
            scales[name] = await service.run_in_pool(lambda: {"model": name, **_score_scale(service.models[name])})
        return answer(scales[name])

    @router.post("/describe", response_model=Description)
    async def describe(body: DescribeRequest) -> Response:
        """Say in a line what a text is mostly about."""
        name = service.model_name(body.model)
        service.check_explained({"text": body.text})
        model = service.models[name]

        def work() -> dict[str, Any]:
            description, coverage = model.describe(body.text, top_k=body.top_k), float(model.coverage(body.text))
            fields = {"text": body.text, "description": description, "coverage": round(coverage, 6)}
            return fields | (
                {"explanation": explained(model.explain(body.text), notes=True)} if body.explanation else {}
            )

        return answer(await service.run_in_pool(work))

    _add_dimensions(router, service)
    return router


def _add_dimensions(router: APIRouter, service: Service) -> None:
    """Add the route that lists the dimensions of a model."""

    @router.get("/dimensions", response_model=DimensionList)
    async def dimensions(
        model: str | None = None,
        search: str = "",
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=0, le=1000)] = 100,
    ) -> Response:
        """List dimensions of a model; `search` keeps those whose name or words contain it, in any case."""
        name = service.model_name(model)
        part = search.casefold()

        def work() -> dict[str, Any]:
            entries = [
                {"number": number, "name": dimension.name, "about": dimension.about}
                for number, dimension in enumerate(service.models[name].dimensions)
                if part in " ".join((dimension.name, *dimension.about)).casefold()
            ]
            return {"model": name, "total": len(entries), "dimensions": entries[offset : offset + limit]}

        return answer(await service.run_in_pool(work))


def _score_scale(model: Embedder) -> dict[str, list[float]]:
    """Return the scores of the pairs that come with us, and of the first sentence of each with the second of others."""
    lines = (Path(__file__).parent / "paraphrases.tsv").read_text(encoding="utf-8").splitlines()
    first, second = zip(*(line.split("\t") for line in lines))
    scores = np.asarray(model.similarity(model.encode(list(first)), model.encode(list(second))), np.float64).round(4)
    is_pair = np.eye(len(scores), dtype=bool)
    return {"paraphrases": sorted(scores[is_pair].tolist()), "unrelated": sorted(scores[~is_pair].tolist())}


def index_routes(service: Service) -> APIRouter:
    """Return the routes that ask the index."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 404))

    @router.post("/search", response_model=dict[str, Any])
    async def search(body: SearchRequest) -> Response:
        """Search the index: hits with their parts, reasons and words, as docs/search-schema.json describes them."""
        index = service.searched(body.index)
        service.check_explained({"query": body.query})

        def work() -> dict[str, Any]:
            weights: dict[str, Any] = {"weights": body.weights, "word_weights": body.word_weights}
            page: dict[str, Any] = {"where": body.where, "min_score": body.min_score}
            offset = min(body.offset, sys.maxsize)  # the answer's JSON has 64 bits
            hits = index.search(body.query, body.top_k, offset=offset, **page, **weights)
            n_models = len(index.weights.keys() - {_BM25})
            return limit_hits(hits, body.rows, n_models, with_vectors=body.with_vectors)

        return answer(await service.run_in_pool(work))

    _add_documents(router, service)

    @router.post("/why", response_model=dict[str, Any])
    async def why(body: WhyRequest) -> Response:
        """Explain the score of one document, or what puts it above another."""
        index = service.searched(body.index)
        service.check_explained({"query": body.query})
        if body.below is not None and body.others:
            raise ApiError(422, "give below or others, not both", "others")
        ids = [body.id, *([] if body.below is None else [body.below]), *body.others]

        def work() -> dict[str, Any]:
            for id in ids:
                if id not in index:
                    raise ApiError(404, f"no document {id!r:.80} is in the index", "id")
            models = len(index.weights.keys() - {_BM25})
            hits = [index.score(body.query, id, weights=body.weights, word_weights=body.word_weights) for id in ids]
            for hit in hits:
                check_pairs(body.query, [hit], models)
            first, *compared = [hit.measured() if body.measure else hit.explain() for hit in hits]
            return explained(less_mean(first, compared) if body.others else difference([first, *compared]))

        return answer(await service.run_in_pool(work))

    _add_index_info(router, service)
    return router


def _add_index_info(router: APIRouter, service: Service) -> None:
    """Add the route that says what an index holds."""
    overviews: dict[str, tuple[Any, dict[str, Any]]] = {}  # by index: the commit it is of, and what it says

    @router.get("/index", response_model=dict[str, Any])
    async def index_info(index: str | None = None) -> Response:
        """Say what the index holds, what one might ask it, and the values of its fields that one can choose from."""
        opened = service.searched(index)

        def work() -> dict[str, Any]:
            commit, key = opened.snapshot().commit, str(opened.folder)
            if key not in overviews or overviews[key][0] is not commit:
                overviews[key] = commit, _overview(opened)
            return {**opened.info(), **overviews[key][1], "name": opened.folder.name}

        info = await service.run_in_pool(work)
        return answer({name: value for name, value in info.items() if name != "folder"})


def _add_documents(router: APIRouter, service: Service) -> None:
    """Add the route that lists and counts documents."""

    @router.post("/documents", response_model=dict[str, Any])
    async def documents(body: DocumentsRequest) -> Response:
        """List the documents that meet conditions, a page at a time, and count them, also by the values of fields."""
        index = service.searched(body.index)
        if body.after is not None and body.sort is not None:
            raise ApiError(422, "after needs the order of adding; give offset with sort", "after")

        def work() -> dict[str, Any]:
            from pellucid.index.listing import count_documents, count_values, list_documents

            commit = index.snapshot().commit  # a change in between would make the total another one's
            page: list[Document] = []
            if body.limit:
                options: dict[str, Any] = {"sort": body.sort, "descending": body.descending, "offset": body.offset}
                page = list(list_documents(commit, body.where, after=body.after, limit=body.limit, **options))
            return {
                "total": count_documents(commit, body.where),
                "documents": written(page, _record, "ask for fewer documents"),
                "next": str(page[-1].number) if len(page) == body.limit and page and body.sort is None else None,
                "counts": {
                    name: [
                        {"value": value, "documents": n}
                        for value, n in count_values(commit, body.where, name)[:_MAX_COUNTED_VALUES]
                    ]
                    for name in body.count_by
                },
            }

        return answer(await service.run_in_pool(work))


def _record(document: Document) -> dict[str, Any]:
    """Return what /documents says of a document."""
    return {"id": document.id, "title": document.title, "text": document.text, "metadata": document.metadata}


def _overview(index: Index) -> dict[str, Any]:
    """Return examples of queries, the most frequent values of each field with their documents, and the stop words.

    Fields of numbers and dates are absent: they have ranges.
    """
    from pellucid.index.listing import count_values

    commit, size = index.snapshot().commit, min(len(index), _OVERVIEW_DOCUMENTS)
    examples = list[str]()
    for document in commit.documents(max(1, size // _EXAMPLES)):
        words = (document.title or document.text).split(None, _EXAMPLE_WORDS)[:_EXAMPLE_WORDS]
        examples.append(" ".join(words))
        if len(examples) == _EXAMPLES:
            break
    values: dict[str, list[dict[str, Any]]] = {}
    has_all: dict[str, bool] = {}
    for name, (_, kinds) in commit.state.fields.items():
        if not set(kinds) & set("sb"):
            continue
        counts = [item for item in count_values(commit, None, name) if item[0] is not None]
        has_all[name] = len(counts) <= _MAX_CHOICES
        most = _MAX_CHOICES if has_all[name] else _MAX_SUGGESTED
        values[name] = [
            {"value": value, "documents": n} for value, n in counts[:most] if len(str(value)) <= _MAX_VALUE_CHARS
        ]
    return {
        "examples": list(dict.fromkeys(filter(None, examples))),
        "values": values,
        "all values": has_all,
        "stop words": sorted(index.snapshot().words.analyser.stop_words),
    }


def saving_routes(service: Service) -> APIRouter:
    """Return the routes that write."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 403, 404, 409))

    @router.post("/models", response_model=SavedModel)
    async def save_model(body: ModelEdit) -> Response:
        """Save an edited model as a new one, and serve it at once."""
        service.saved_to()
        model = service.models[service.model_name(body.model)]

        def edit() -> Embedder:
            if not (body.words or body.scale or body.without):
                raise InputError("nothing would change; give scale, without or words")
            factors: dict[Which, float] = {name: factor for name, factor in body.scale.items()}
            scaled = model.scale(factors) if factors else model
            edited = scaled.without(body.without) if body.without else scaled
            return static_model(edited, "words").reweight(body.words) if body.words else edited

        await service.save_model(body.name, edit)
        return answer({"name": body.name, "dimension": service.models[body.name].get_embedding_dimension()})

    @router.post("/index", response_model=dict[str, Any])
    async def save_index_settings(body: IndexSettings) -> Response:
        """Keep weights as those of the index, for every later search that gives none."""
        service.saved_to()
        index = service.searched(body.index)
        if service.settings.read_only:
            raise ApiError(403, "the index is open only for reading; change it in the process that writes it")
        await service.run_write_shielded(lambda: index.configure(weights=body.weights, word_weights=body.word_weights))
        return answer({"weights": index.weights, "word weights": index.word_weights})

    return router
