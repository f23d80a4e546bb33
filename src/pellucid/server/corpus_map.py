"""A corpus as points in the plane, in clusters labelled by their words, and what sets some of its texts apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from pellucid.base import Embedder
from pellucid.embeddings import stacked, unit_rows
from pellucid.errors import InputError
from pellucid.files.lines import batches_by_size
from pellucid.progress import check_cancelled
from pellucid.server.bodies import ApiError, InferenceError, RequestBody, Route, Whole, answer, described
from pellucid.server.layout import cancellable_layout
from pellucid.server.service import Service

_LEAST_POINTS, _MOST_POINTS = 10, 5000
_BLOCK_TEXTS = 256  # encoded between two looks at whether the request has ended
_LABEL_WORDS = 4
_ROWS = 10_000  # dimensions of a contrast
_SHOWN = 400  # characters of a text on the map
_ENCODED = 4000  # characters of a document that are encoded for the map
_Corpus = Annotated[list[str], Field(min_length=_LEAST_POINTS, max_length=_MOST_POINTS, fail_fast=True)]


class MapRequest(RequestBody):
    """The body of /map."""

    holds_corpus: ClassVar[bool] = True

    texts: _Corpus | None = Field(None, description="The corpus; without it, documents of the index.")
    limit: Whole = Field(
        1000, ge=_LEAST_POINTS, le=_MOST_POINTS, description="Documents of the index, spread over all of them."
    )
    clusters: Whole = Field(8, ge=2, le=50)
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
    members: Annotated[list[Whole], Field(min_length=2, max_length=_MOST_POINTS, fail_fast=True)] = Field(
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
            texts = service.texts(body.texts, "texts", _MOST_POINTS)
            ids = [str(number) for number in range(1, len(texts) + 1)]
            metadata: list[dict[str, Any]] = [{} for _ in texts]
        else:
            index = service.searched()
            every = max(1, -(-len(index) // body.limit))
            chosen = await service.run_in_pool(lambda: list(islice(index, 0, None, every)))
            ids, metadata = [document.id for document in chosen], [document.metadata for document in chosen]
            texts = ["\n".join(filter(None, (document.title, document.text)))[:_ENCODED] for document in chosen]

        found = await service.run_in_slow_pool(lambda: corpus_map(service.models[name], texts, body.clusters))
        places = zip(ids, texts, metadata, found.points.tolist(), found.members)
        return answer({
            "model": name,
            "points": [
                {"id": id, "text": text[:_SHOWN], "metadata": facts, "x": x, "y": y, "cluster": cluster}
                for id, text, facts, (x, y), cluster in places
            ],
            "clusters": [cluster.model_dump() for cluster in found.clusters],
        })  # fmt: skip

    @router.post("/contrast", response_model=dict[str, Any])
    async def what_sets_apart(body: ContrastRequest) -> Response:
        """Say which dimensions and words set some texts apart from the others."""
        name = service.model_name(body.model)
        texts, members = service.texts(body.texts, "texts", _MOST_POINTS), set(body.members)
        if min(members) < 0 or max(members) >= len(texts):
            raise ApiError(422, f"members are numbers of texts, from 0 to {len(texts) - 1:,}", "members")
        return answer(await service.run_in_slow_pool(lambda: _contrasted(service.models[name], texts, members)))

    return router


def _contrasted(model: Embedder, texts: list[str], members: set[int]) -> dict[str, Any]:
    """Return words and the largest dimensions that set a group of texts apart; rows are those of an explanation."""
    from pellucid.analysis.groups import contrast

    sides: dict[str, list[str]] = {"selected": [], "others": []}
    for number, text in enumerate(texts):
        sides["selected" if number in members else "others"].append(text)
    found = contrast(model, sides)["selected"]
    return {
        "texts": found.texts,
        "others": found.others,
        "within": found.within,
        "between": found.between,
        "separation": found.separation,
        "words": [word._asdict() for word in found.words],
        "typical": [example.text for example in found.typical],
        "rows": [{"name": row.name, "contribution": row.part} for row in found.rows[:_ROWS]],
    }


def corpus_map(model: Embedder, texts: Sequence[str], clusters: int = 8) -> CorpusMap:
    """Return 10 to 5,000 texts as points in the plane, in at most so many clusters."""
    if not _LEAST_POINTS <= len(texts) <= _MOST_POINTS:
        raise InputError(f"a map of {len(texts):,} texts cannot be drawn; give {_LEAST_POINTS} to {_MOST_POINTS:,}")
    blocks = []
    for block in batches_by_size(texts, _BLOCK_TEXTS, len):
        check_cancelled()
        blocks.append(unit_rows(model.encode(block)))
    rows = stacked(blocks)
    points, members = cancellable_layout(rows, clusters)
    in_vocabulary = np.asarray(abs(rows).sum(axis=1)).ravel() > 0
    return CorpusMap(points.astype(np.float32), *_label_clusters(model, list(texts), members, in_vocabulary))


def _label_clusters(model: Embedder, texts: list[str], found: Any, known: Any) -> tuple[list[MapCluster], list[int]]:
    """Return the clusters, largest first, and the cluster of each text; labels need two texts, one of them known."""
    from pellucid.analysis.groups import contrast

    counts = np.bincount(found)
    order = [int(number) for number in np.argsort(-counts, kind="stable") if counts[number]]
    members = [order.index(number) for number in found.tolist()]
    large = [place for place, number in enumerate(order) if counts[number] > 1 and known[found == number].any()]
    contrasts: dict[str, Any] = {}
    if len(large) > 1:
        groups = {str(place): [text for text, own in zip(texts, members) if own == place] for place in large}
        contrasts = {found.group: found for found in contrast(model, groups, examples=3)}
    clusters = []
    for place, number in enumerate(order):
        apart = contrasts.get(str(place))
        words = [] if apart is None else [word.word for word in apart.words[:8]]
        names = [] if apart is None else [row.name for row in apart.rows[:5]]
        label = ", ".join((words or names)[:_LABEL_WORDS]) or f"cluster {place + 1}"
        clusters.append(MapCluster(label=label, words=words, dimensions=names, texts=int(counts[number])))
    return clusters, members
