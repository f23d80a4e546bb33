"""A corpus as points in the plane, in clusters labelled by their words, and what sets some of its texts apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from pellucid.core.arrays import l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.progress import check_cancelled
from pellucid.server.bodies import ApiError, InferenceError, Integer, RequestBody, Route, answer, described
from pellucid.server.layout import cancellable_layout
from pellucid.server.service import Service
from pellucid.text.lines import batches_by_size

if TYPE_CHECKING:
    from pellucid.index.index import Index

_MIN_POINTS, _MAX_POINTS = 10, 5000
_BLOCK_TEXTS = 256  # encoded between two looks at whether the request has ended
_LABEL_WORDS = 4
_ROWS = 10_000  # dimensions of a contrast
_SHOWN_CHARS = 400  # of a text on the map
_ENCODED_CHARS = 4000  # of a document that are encoded for the map
_Corpus = Annotated[list[str], Field(min_length=_MIN_POINTS, max_length=_MAX_POINTS, fail_fast=True)]


class MapRequest(RequestBody):
    """The body of /map."""

    holds_corpus: ClassVar[bool] = True

    texts: _Corpus | None = Field(None, description="The corpus; without it, documents of the index.")
    limit: Integer = Field(
        1000, ge=_MIN_POINTS, le=_MAX_POINTS, description="Documents of the index, spread over all of them."
    )
    clusters: Integer = Field(8, ge=2, le=50)
    model: str | None = None


class MapPoint(BaseModel):
    """A text in the plane; the metadata are those of a document of the index."""

    id: str
    text: str
    metadata: dict[str, Any]
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


class ContrastRequest(RequestBody):
    """The body of /contrast."""

    holds_corpus: ClassVar[bool] = True

    texts: _Corpus
    members: Annotated[list[Integer], Field(min_length=2, max_length=_MAX_POINTS, fail_fast=True)] = Field(
        description="Numbers of the texts of the group, from 0; the others are what it is set apart from."
    )
    model: str | None = None


class CorpusMap(NamedTuple):
    """Points, float32 [texts, 2] from -1 to 1, clusters, and the number of the cluster of each text."""

    points: Any
    clusters: list[MapCluster]
    members: list[int]


def map_routes(service: Service) -> APIRouter:
    """Return the route that draws a corpus."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 404))

    @router.post("/map", response_model=MapAnswer)
    async def corpus_as_map(body: MapRequest) -> Response:
        """Put the texts of a corpus into the plane, in labelled clusters; takes seconds for a thousand."""
        name = service.model_name(body.model)
        if body.texts is not None:
            texts = service.texts(body.texts, "texts", _MAX_POINTS)
            ids = [str(number) for number in range(1, len(texts) + 1)]
            metadata: list[dict[str, Any]] = [{} for _ in texts]
        else:
            index = service.searched()
            step = max(1, -(-len(index) // body.limit))
            ids, texts, metadata = await service.run_in_pool(lambda: _sample(index, step))

        result = await service.run_in_slow_pool(lambda: corpus_map(service.models[name], texts, body.clusters))
        points = zip(ids, texts, metadata, result.points.tolist(), result.members)
        return answer({
            "model": name,
            "points": [
                {"id": id, "text": text[:_SHOWN_CHARS], "metadata": fields, "x": x, "y": y, "cluster": cluster}
                for id, text, fields, (x, y), cluster in points
            ],
            "clusters": [cluster.model_dump() for cluster in result.clusters],
        })  # fmt: skip

    @router.post("/contrast", response_model=dict[str, Any])
    async def what_sets_apart(body: ContrastRequest) -> Response:
        """Say which dimensions and words set some texts apart from the others."""
        name = service.model_name(body.model)
        texts, members = service.texts(body.texts, "texts", _MAX_POINTS), set(body.members)
        if min(members) < 0 or max(members) >= len(texts):
            raise ApiError(422, f"members are numbers of texts, from 0 to {len(texts) - 1:,}", "members")
        return answer(await service.run_in_slow_pool(lambda: _contrasted(service.models[name], texts, members)))

    return router


def _sample(index: Index, step: int) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Return ids, starts of texts, and metadata of every `step`-th document."""
    ids, texts, metadata = list[str](), list[str](), list[dict[str, Any]]()
    for document in index.snapshot().commit.documents(step):
        check_cancelled()
        ids.append(document.id)
        texts.append("\n".join(filter(None, (document.title, document.text)))[:_ENCODED_CHARS])
        metadata.append(document.metadata)
    return ids, texts, metadata


def _contrasted(model: Embedder, texts: list[str], members: set[int]) -> dict[str, Any]:
    """Return words and the largest dimensions that set a group of texts apart; rows are those of an explanation."""
    from pellucid.analysis.groups import contrast

    sides: dict[str, list[str]] = {"selected": [], "others": []}
    for position, text in enumerate(texts):
        sides["selected" if position in members else "others"].append(text)
    result = contrast(model, sides)["selected"]
    return {
        "texts": result.texts,
        "others": result.others,
        "within": result.within,
        "between": result.between,
        "separation": result.separation,
        "words": [word._asdict() for word in result.words],
        "typical": [example.text for example in result.typical],
        "rows": [{"name": row.name, "contribution": row.part} for row in result.rows[:_ROWS]],
    }


def corpus_map(model: Embedder, texts: Sequence[str], clusters: int = 8) -> CorpusMap:
    """Return 10 to 5,000 texts as points in the plane, in at most so many clusters."""
    if not _MIN_POINTS <= len(texts) <= _MAX_POINTS:
        raise InputError(f"a map of {len(texts):,} texts cannot be drawn; give {_MIN_POINTS} to {_MAX_POINTS:,}")
    blocks = []
    for block in batches_by_size(texts, _BLOCK_TEXTS, len):
        check_cancelled()
        blocks.append(l2_normalize(model.encode(block)))
    rows = vstack(blocks)
    points, members = cancellable_layout(rows, clusters)
    in_vocabulary = np.asarray(abs(rows).sum(axis=1)).ravel() > 0
    return CorpusMap(points.astype(np.float32), *_label_clusters(model, list(texts), members, in_vocabulary))


def _label_clusters(
    model: Embedder, texts: list[str], assigned: Any, in_vocabulary: Any
) -> tuple[list[MapCluster], list[int]]:
    """Return the clusters, largest first, and the cluster of each text.

    A label needs two texts, and a known word in one of them.
    """
    from pellucid.analysis.groups import contrast

    sizes = np.bincount(assigned)
    order = [int(cluster) for cluster in np.argsort(-sizes, kind="stable") if sizes[cluster]]
    ranks = {cluster: rank for rank, cluster in enumerate(order)}
    members = [ranks[cluster] for cluster in assigned.tolist()]
    labelled = [ranks[c] for c in order if sizes[c] > 1 and in_vocabulary[assigned == c].any()]
    contrasts: dict[str, Any] = {}
    if len(labelled) > 1:
        groups = {str(rank): [text for text, member in zip(texts, members) if member == rank] for rank in labelled}
        contrasts = {result.group: result for result in contrast(model, groups, examples=3)}
    clusters = []
    for rank, cluster in enumerate(order):
        result = contrasts.get(str(rank))
        words = [] if result is None else [word.word for word in result.words[:8]]
        names = [] if result is None else [row.name for row in result.rows[:5]]
        label = ", ".join((words or names)[:_LABEL_WORDS]) or f"cluster {rank + 1}"
        clusters.append(MapCluster(label=label, words=words, dimensions=names, texts=int(sizes[cluster])))
    return clusters, members
