"""Our own API: why two texts are similar, what a text is about, and an index that is searched with reasons."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from pellucid.analysis.citing import MIN_PROBABILITY, cite
from pellucid.core.arrays import check_explained
from pellucid.core.embedder import Embedder
from pellucid.errors import VERSION, CorpusError
from pellucid.explain.explanation import Explanation
from pellucid.explain.views.report import json_value
from pellucid.index.query import OPTIONS, SearchQuery, Synonyms, served_reranker
from pellucid.progress import check_cancelled
from pellucid.server.bodies import (
    BODY_RULES,
    TO_INTEGER,
    ApiError,
    Boosts,
    Conditions,
    InferenceError,
    Integer,
    RequestBody,
    Route,
    TextList,
    Weights,
    answer,
    described,
)
from pellucid.server.bounds import check_explained_pairs, explained, limit_hits, subtract, written
from pellucid.server.service import Service

if TYPE_CHECKING:
    from pellucid.index.index import Index

_INDEX = Field(description="The name of an index, see /info; the first without one.")
_Role = Literal["query", "document"]
_EXAMPLES, _EXAMPLE_WORDS = 4, 10
_OVERVIEW_DOCUMENTS = 5_000  # among which examples of queries are chosen
_MAX_CHOICES = 12  # values of a field to choose from; of one with more, the most frequent are suggested
_MAX_SUGGESTED = 200
_MAX_VALUE_CHARS = 200  # of a value that is offered
_MAX_COUNTED_VALUES = 1_000  # of a field, the most frequent


class ExplainRequest(RequestBody):
    """The body of /explain."""

    text1: str
    text2: str
    text3: str | None = Field(None, description="Explain why text2 is closer to text1 than this one is.")
    model: str | None = Field(None, description="A name that /info lists; the first of them without one.")
    role1: _Role | None = None
    role2: _Role | None = Field(None, description="Of text2 and text3.")
    notes: bool = Field(False, description="Add the sentences that the views show: coverage, for and against.")


class DescribeRequest(RequestBody):
    """The body of /describe."""

    text: str
    model: str | None = None
    top_k: Integer = Field(5, ge=1, le=100)
    explanation: bool = Field(False, description="Add the rows of its embedding, as /explain gives those of a pair.")


class CiteRequest(RequestBody):
    """The body of /cite."""

    answer: str
    passages: TextList
    model: str | None = None
    top_k: Integer = Field(3, ge=1, le=100, description="Supports of a sentence, at most.")
    min_probability: float = Field(MIN_PROBABILITY, ge=0, le=1)


@dataclass(frozen=True, kw_only=True)
class IndexQuery(SearchQuery):
    """The options of `Index.search`, some with limits of their own."""

    __pydantic_config__ = BODY_RULES

    top_k: Annotated[int, OPTIONS["top_k"][1], Field(le=100), TO_INTEGER] = 10
    offset: Annotated[int, OPTIONS["offset"][1], Field(le=sys.maxsize), TO_INTEGER] = 0  # the answer's JSON has 64 bits
    where: Annotated[Conditions, OPTIONS["where"][1]] = None
    weights: Annotated[Weights, OPTIONS["weights"][1]] = None
    word_weights: Annotated[Weights, OPTIONS["word_weights"][1]] = None
    steer: Annotated[Weights, OPTIONS["steer"][1]] = None
    boosts: Annotated[Boosts, OPTIONS["boosts"][1]] = None
    rerank: Annotated[bool, Field(description="Score the first hits anew with the server's reranker.")] = False
    rerank_top: Annotated[int, OPTIONS["rerank_top"][1], Field(le=100), TO_INTEGER] = 50
    index: Annotated[str | None, _INDEX] = None


@dataclass(frozen=True, kw_only=True)
class SearchRequest(IndexQuery):
    """The body of /search."""

    rows: Annotated[Integer, Field(ge=0, le=1000, description="Add so many rows of each hit, the largest.")] = 0


@dataclass(frozen=True, kw_only=True)
class WhyNotRequest(IndexQuery):
    """The body of /why_not."""

    id: Annotated[str, Field(description="Of the document that is not found.")]


class DocumentsRequest(RequestBody):
    """The body of /documents: which documents to list, and fields to count by."""

    index: Annotated[str | None, _INDEX] = None
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
    index: Annotated[str | None, _INDEX] = None
    below: str | None = Field(None, description="The id of another document: explain the difference of the two scores.")
    measure: bool = Field(False, description="Measure rows of encoders: up to 139 texts are encoded for each text.")
    check: bool = Field(False, description="Score the document without the words of each line; not with `below`.")
    weights: Weights = None
    word_weights: Weights = None
    steer: Weights = None
    synonyms: Synonyms = None
    boosts: Boosts = None


class JudgeRequest(RequestBody):
    """The body of /judge: a document that a person judged for a query."""

    query: str
    id: str
    index: Annotated[str | None, _INDEX] = None
    grade: Integer | None = Field(1, ge=0, le=1000, description="0 for not relevant; null takes the judgement back.")


def model_routes(service: Service) -> APIRouter:
    """Return the routes that ask models."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 404))

    @router.get("/info", response_model=dict[str, Any])
    async def info() -> Response:
        """List the models and the indexes."""
        models = [
            {"name": name, "family": model.family, "dimension": model.get_embedding_dimension(),
             "size": model.size_text()}
            for name, model in service.models.items()
        ]  # fmt: skip
        return answer({"version": VERSION, "models": models, "indexes": list(service.indexes)})

    @router.post("/explain")
    def explain(body: ExplainRequest) -> dict[str, Any]:
        """Take a similarity apart: rows that add up to it, as docs/schema.json describes them."""
        model = service.models[service.model_name(body.model)]
        check_explained(body.text1, body.text2, body.text3 or "")
        second_texts = [text for text in (body.text2, body.text3) if text is not None]
        explanations = [model.explain(body.text1, text, role1=body.role1, role2=body.role2) for text in second_texts]
        return explained(subtract(*explanations), notes=body.notes)

    @router.post("/describe")
    def describe(body: DescribeRequest) -> dict[str, Any]:
        """Say in a line what a text is mostly about."""
        model = service.models[service.model_name(body.model)]
        check_explained(body.text)
        description, coverage = model.describe(body.text, top_k=body.top_k), float(model.coverage(body.text))
        fields = {"text": body.text, "description": description, "coverage": round(coverage, 6)}
        if body.explanation:
            fields["explanation"] = explained(model.explain(body.text), notes=True)
        return fields

    @router.post("/cite")
    def cite_passages(body: CiteRequest) -> dict[str, Any]:
        """Find the sentences of passages that support each sentence of an answer: docs/schema.json describes them."""
        check_explained(body.answer)
        result = cite(**body.model_dump() | {"model": service.models[service.model_name(body.model)]})
        citations = written(map(json_value, result), "give a shorter answer, or a smaller top_k")
        return replace(result, citations=()).to_dict() | {"citations": citations}

    @router.get("/dimensions", response_model=dict[str, Any])
    async def dimensions(
        model: str | None = None,
        search: str = "",
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=0, le=1000)] = 100,
    ) -> Response:
        """List dimensions of a model; `search` keeps those whose name or words contain it, in any case."""
        name = service.model_name(model)
        entries = await service.run_in_pool(_dimensions, service.models[name], search.casefold())
        return answer({"model": name, "total": len(entries), "dimensions": entries[offset : offset + limit]})

    return router


def _dimensions(model: Embedder, search: str) -> list[dict[str, Any]]:
    return [
        {"number": number, "name": dimension.name, "about": dimension.about}
        for number, dimension in enumerate(model.dimensions)
        if search in " ".join((dimension.name, *dimension.about)).casefold()
    ]


def index_routes(service: Service) -> APIRouter:
    """Return the routes that ask the index."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 404))

    @router.post("/search")
    def search(body: SearchRequest) -> dict[str, Any]:
        """Search the index: hits with their parts, reasons and words, as docs/search-schema.json describes them."""
        from pellucid.index.comparison import with_settings
        from pellucid.index.search import run

        index = service.searched(body.index)
        check_explained(body.query)
        request = replace(body, rerank=served_reranker(service.reranker, is_wanted=body.rerank))
        hits = run(index.snapshot(), with_settings(request, index.folder))
        return limit_hits(hits, body.rows, _n_models(index))

    @router.post("/documents")
    def documents(body: DocumentsRequest) -> dict[str, Any]:
        """List the documents that meet conditions, a page at a time, and count them, also by the values of fields."""
        from pellucid.index.listing import count_documents, count_values, list_documents

        index = service.searched(body.index)
        commit = index.snapshot().commit  # a change in between would make the total another one's
        page = [] if not body.limit else list(list_documents(
            commit, body.where, sort=body.sort, descending=body.descending, offset=body.offset, after=body.after,
            limit=body.limit,
        ))  # fmt: skip
        return {
            "total": count_documents(commit, body.where),
            "documents": written(
                ({name: getattr(document, name) for name in ("id", "title", "text", "metadata")} for document in page),
                "ask for fewer documents",
            ),
            "next": str(page[-1].number) if len(page) == body.limit and page and body.sort is None else None,
            "counts": {
                name: [
                    {"value": value, "documents": n}
                    for value, n in count_values(commit, body.where, name)[:_MAX_COUNTED_VALUES]
                ]
                for name in body.count_by
            },
        }

    @router.post("/why")
    def why(body: WhyRequest) -> dict[str, Any]:
        """Explain the score of one document, or what puts it above another."""
        index = service.searched(body.index)
        check_explained(body.query)
        explanations = list[Explanation]()
        weights: Any = {
            name: getattr(body, name) for name in ("weights", "word_weights", "steer", "synonyms", "boosts")
        }
        for id in [body.id, *([] if body.below is None else [body.below])]:
            check_cancelled()
            if id not in index:
                raise ApiError(404, f"no document {id!r:.80} is in the index", "id")
            hit = index.score(body.query, id, **weights)
            check_explained_pairs(body.query, [hit], _n_models(index))
            explanations.append(hit.measured() if body.measure else hit.explain())
        explanation = subtract(*explanations)
        return explained(explanation.check() if body.check else explanation)

    @router.post("/judge")
    def judge(body: JudgeRequest) -> dict[str, Any]:
        """Note that a person judged a document for a query; the server must be started with --judge."""
        index = service.searched(body.index)
        if not service.settings.judge:
            raise ApiError(404, "this server takes no judgements; start it with: pellucid serve --judge")
        check_explained(body.query)
        return {"judged": index.judge(body.query, body.id, body.grade)}

    @router.post("/why_not")
    def why_not(body: WhyNotRequest) -> dict[str, Any]:
        """Say why a search does not find a document: rank, gap, and causes with changes that were tried."""
        from pellucid.index.comparison import with_settings
        from pellucid.index.why_not import why_not

        check_explained(body.query)
        index, rerank = service.searched(body.index), served_reranker(service.reranker, is_wanted=body.rerank)
        if body.id in index:
            check_explained_pairs(body.query, [index.score(body.query, body.id)], _n_models(index))
        request = with_settings(replace(body, rerank=rerank), index.folder)
        return why_not(index.snapshot(), request, body.id).to_dict()

    @router.get("/index", response_model=dict[str, Any])
    async def index_info(index: str | None = None) -> Response:
        """Say what the index holds, what one might ask it, and the values of its fields that one can choose from."""
        return answer(await service.run_in_pool(_index_info, service.searched(index), service.settings.judge))

    return router


def _grades(index: Index) -> dict[str, dict[str, int]]:
    """Return the judged queries, by text, with the grade of each document."""
    try:
        queries, grades = index.judgements()
    except CorpusError:  # the files may be edited by hand; all but judging works, and that says so
        return {}
    return {queries[query]: judged for query, judged in grades.items() if query in queries}


def _n_models(index: Index) -> int:
    return len(index.weights.keys() - {"bm25"})


def _index_info(index: Index, is_judged: bool) -> dict[str, Any]:
    """Return `Index.info`, examples of queries, the most frequent values of fields, and what else the page asks.

    Fields of numbers and dates are absent: they have ranges.
    """
    from pellucid.index.listing import count_values
    from pellucid.index.settings import stored_calibration

    commit, size = index.snapshot().commit, min(len(index), _OVERVIEW_DOCUMENTS)
    calibration = stored_calibration(commit.state.settings)
    documents = islice(commit.documents(max(1, size // _EXAMPLES)), _EXAMPLES)
    examples = (" ".join((d.title or d.text).split(None, _EXAMPLE_WORDS)[:_EXAMPLE_WORDS]) for d in documents)
    counts = {
        name: [(value, n) for value, n in count_values(commit, None, name) if value is not None]
        for name, (_, kinds) in commit.state.fields.items()
        if set(kinds) & set("sb")
    }
    return {
        **{name: value for name, value in index.info().items() if name not in ("folder", "models")},  # which are paths
        "name": index.folder.name,
        "examples": list(dict.fromkeys(filter(None, examples))),
        "values": {
            name: [
                {"value": value, "documents": n}
                for value, n in of_field[:_MAX_SUGGESTED]
                if len(str(value)) <= _MAX_VALUE_CHARS
            ]
            for name, of_field in counts.items()
        },
        "all values": {name: len(of_field) <= _MAX_CHOICES for name, of_field in counts.items()},
        "stop words": sorted(index.snapshot().words.analyser.stop_words),
        **({"grades": _grades(index)} if is_judged else {}),
        "calibrated": calibration is not None
        and (calibration.weights, calibration.word_weights) == (index.weights, {}),
    }
