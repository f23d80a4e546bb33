"""A corpus as points in the plane, in topics, and what sets some of its texts apart.

The map of an index is made of its stored vectors, once: it is kept in the index's folder in a file named by the commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field, TypeAdapter
from starlette.responses import Response

from pellucid.analysis.clustering import topics_of_rows
from pellucid.analysis.coordinates import known_rows
from pellucid.core.arrays import l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, ModelFolderError, WritingError
from pellucid.persistence.store import read_tensors, write_tensors
from pellucid.progress import check_cancelled
from pellucid.server.bodies import ApiError, InferenceError, Integer, RequestBody, Route, answer, described
from pellucid.server.layout import project
from pellucid.server.service import Service
from pellucid.text.lines import batches_by_size

if TYPE_CHECKING:
    from pellucid.index.arrays import Integers
    from pellucid.index.index import Index
    from pellucid.index.plan import Snapshot
    from pellucid.index.segments import Segment

_MIN_POINTS, _MAX_POINTS = 10, 5000
_MAX_STORED_POINTS = 50_000  # of an index that holds vectors
_BLOCK_TEXTS = 256  # encoded between two looks at whether the request has ended
_ROWS = 10_000  # dimensions of a contrast
_MAX_CONTRASTED = 2_500  # texts of a side that are read, spread over all of them
_SHOWN_CHARS = 400  # of a text on the map
_SHOWN_CHARS_OF_MANY = 160  # of more than _MAX_POINTS
_MAX_COORDINATE = 1.0001  # of a point, with rounding
_ENCODED_CHARS = 4000  # of a document that are encoded for the map
_Corpus = Annotated[list[str], Field(min_length=_MIN_POINTS, max_length=_MAX_POINTS, fail_fast=True)]


class MapRequest(RequestBody):
    """The body of /map."""

    holds_corpus: ClassVar[bool] = True

    texts: _Corpus | None = Field(None, description="The corpus; without it, documents of the index.")
    limit: Integer = Field(
        30_000, ge=_MIN_POINTS, le=_MAX_STORED_POINTS, description="Documents of the index, spread over all of them."
    )
    clusters: Integer = Field(8, ge=2, le=50, description="Topics at most.")
    index: str | None = Field(None, description="The name of an index, see /info; the first without one.")
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
    """A topic, and the words that set it apart."""

    label: str
    words: list[str]
    texts: int


_CLUSTERS = TypeAdapter(list[MapCluster])


class MapAnswer(BaseModel):
    """The answer of /map."""

    model: str = Field(description="Whose vectors are drawn: a model that is served, or a part of the index.")
    method: str = Field(description="How they become points: t-SNE, PCA or UMAP.")
    documents: int = Field(description="How many there are; the points are spread evenly over them.")
    limit: int = Field(description="Of points; /contrast takes it.")
    points: list[MapPoint]
    clusters: list[MapCluster]


class ContrastRequest(RequestBody):
    """The body of /contrast."""

    holds_corpus: ClassVar[bool] = True

    texts: _Corpus | None = Field(None, description="The corpus; without it, the documents of a map of the index.")
    limit: Integer = Field(30_000, ge=_MIN_POINTS, le=_MAX_STORED_POINTS, description="That of the map.")
    members: Annotated[list[Integer], Field(min_length=2, max_length=_MAX_STORED_POINTS, fail_fast=True)] = Field(
        description="Numbers of the texts of the group, from 0; the others are what it is set apart from."
    )
    index: str | None = Field(None, description="The name of an index, see /info; the first without one.")
    model: str | None = None


class CorpusMap(NamedTuple):
    """Points, float32 [texts, 2] from -1 to 1, the topic of each text, -1 for none, the topics, and the method."""

    points: Any
    members: Any
    clusters: list[MapCluster]
    method: str


def map_routes(service: Service) -> APIRouter:
    """Return the route that draws a corpus."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 404))

    @router.post("/map", response_model=MapAnswer)
    async def corpus_as_map(body: MapRequest) -> Response:
        """Put the texts of a corpus into the plane, in named topics; takes seconds, of an index once a commit."""
        name = service.model_name(body.model)
        model = service.models[name]
        if body.texts is None:
            index = service.searched(body.index)
            return answer(
                await service.run_in_slow_pool(
                    lambda: _map_of_index(index, model, name, body, service.settings.read_only)
                )
            )
        texts = service.texts(body.texts, "texts", _MAX_POINTS)
        sample = _Sample([str(number) for number in range(1, len(texts) + 1)], texts, [{} for _ in texts])
        corpus = await service.run_in_slow_pool(lambda: corpus_map(model, texts, body.clusters))
        return answer(_plain(sample, corpus, name, len(texts), _MAX_POINTS))

    @router.post("/contrast", response_model=dict[str, Any])
    async def what_sets_apart(body: ContrastRequest) -> Response:
        """Say which dimensions and words set some texts apart from the others; of many texts 5,000 are read."""
        name, index = service.model_name(body.model), None if body.texts is not None else service.searched(body.index)

        def work() -> dict[str, Any]:
            texts = list(body.texts or ()) if index is None else _sample(index.snapshot(), body.limit).texts
            members = set(body.members)
            if min(members) < 0 or max(members) >= len(texts):
                raise ApiError(422, f"members are numbers of texts, from 0 to {len(texts) - 1:,}", "members")
            return _contrasted(service.models[name], texts, members)

        if body.texts is not None:
            service.texts(body.texts, "texts", _MAX_POINTS)
        return answer(await service.run_in_slow_pool(work))

    return router


class _Sample(NamedTuple):
    """Documents of an index, spread over all of them."""

    ids: list[str]
    texts: list[str]
    metadata: list[dict[str, Any]]


def _sample(snapshot: Snapshot, limit: int) -> _Sample:
    sample = _Sample([], [], [])
    for segment, rows in _spread(snapshot, limit):
        for row in rows.tolist():
            check_cancelled()
            document = segment.document(row)
            sample.ids.append(document.id)
            sample.texts.append(document.titled_text[:_ENCODED_CHARS])
            sample.metadata.append(document.metadata)
    return sample


def _spread(snapshot: Snapshot, limit: int) -> Iterator[tuple[Segment, Integers]]:
    """Yield each segment with rows of its documents, `limit` in all, spread evenly in the order of adding."""
    n_documents, first = snapshot.commit.state.documents, 0
    positions = np.arange(min(n_documents, limit)) * n_documents // max(min(n_documents, limit), 1)
    for segment in snapshot.commit.segments:
        rows = segment.live_rows()
        yield segment, rows[positions[(positions >= first) & (positions < first + len(rows))] - first]
        first += len(rows)


def _map_of_index(index: Index, model: Embedder, name: str, body: MapRequest, is_read_only: bool) -> dict[str, Any]:
    """Return the map of an index, made of the first model whose vectors it holds, or with `model` where none does."""
    snapshot = index.snapshot()
    part = next((part for part, m in snapshot.models.items() if not m.sparse), None)
    limit = min(body.limit, _MAX_POINTS) if part is None else body.limit
    sample = _sample(snapshot, limit)
    if part is None:
        corpus = corpus_map(model, sample.texts, body.clusters)
    else:
        name, state = part, snapshot.commit.state
        key = json.dumps([state.segments, part, limit, body.clusters], default=str)
        digest = blake2b(key.encode(), digest_size=8).hexdigest()
        path = index.folder / f"map-{digest}.safetensors"
        with suppress(ModelFolderError, OSError, ValueError, KeyError):
            return _plain(sample, _read(path, digest, len(sample.ids)), name, state.documents, limit)
        rows = _stored_rows(snapshot, part, limit)
        corpus = map_of_rows(snapshot.models[part].encoder, sample.texts, rows, body.clusters)
        if not is_read_only and os.access(index.folder, os.W_OK):
            with suppress(WritingError, OSError):  # the map is drawn all the same
                topics = json.dumps([cluster.model_dump() for cluster in corpus.clusters])
                tensors = {"points": corpus.points, "members": np.asarray(corpus.members, np.int32)}
                write_tensors(path, tensors, {"commit": digest, "topics": topics, "method": corpus.method})
                for outdated in index.folder.glob("map-*.safetensors"):
                    if outdated != path:
                        outdated.unlink(missing_ok=True)
    return _plain(sample, corpus, name, snapshot.commit.state.documents, limit)


def _read(path: Path, digest: str, n_points: int) -> CorpusMap:
    """Return a stored map.

    Raises:
        ModelFolderError, OSError, ValueError, KeyError: there is none, or it is damaged or of other documents.
    """
    tensors, metadata = read_tensors(path)
    clusters, points, members = _CLUSTERS.validate_json(metadata["topics"]), tensors["points"], tensors["members"]
    is_whole = (
        metadata["commit"] == digest
        and points.shape == (n_points, 2)
        and points.dtype == np.float32
        and members.shape == (n_points,)
        and members.dtype == np.int32
        and bool(
            (np.abs(points) <= _MAX_COORDINATE).all() and (members >= -1).all() and (members < len(clusters)).all()
        )
    )
    if not is_whole:
        raise ValueError(f"{path} is no map of this index")
    return CorpusMap(points, members.tolist(), clusters, metadata["method"])


def _stored_rows(snapshot: Snapshot, part: str, limit: int) -> Any:
    """Return the vectors of the first passage of each document of a sample, float32 [documents, dimension]."""
    blocks = (
        segment.dense(part)[segment.ends[rows] - segment.sizes(rows)] for segment, rows in _spread(snapshot, limit)
    )
    return np.concatenate(list(blocks))


def _plain(sample: _Sample, corpus: CorpusMap, name: str, documents: int, limit: int) -> dict[str, Any]:
    """Return the answer of /map."""
    most = _SHOWN_CHARS if len(sample.ids) <= _MAX_POINTS else _SHOWN_CHARS_OF_MANY
    points = zip(*sample, corpus.points.round(5).tolist(), corpus.members, strict=True)
    return {
        "model": name,
        "method": corpus.method,
        "documents": documents,
        "limit": limit,
        "points": [
            {"id": id, "text": text[:most], "metadata": fields, "x": x, "y": y, "cluster": cluster}
            for id, text, fields, (x, y), cluster in points
        ],
        "clusters": [cluster.model_dump() for cluster in corpus.clusters],
    }


def _contrasted(model: Embedder, texts: list[str], members: set[int]) -> dict[str, Any]:
    """Return words and the largest dimensions that set a group of texts apart; rows are those of an explanation."""
    from pellucid.analysis.groups import contrast

    sides: dict[str, list[str]] = {"selected": [], "others": []}
    for position, text in enumerate(texts):
        sides["selected" if position in members else "others"].append(text)
    sides = {name: side[:: len(side) // _MAX_CONTRASTED + 1] for name, side in sides.items()}
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
    """Return 10 to 5,000 texts as points in the plane, in at most so many topics."""
    if not _MIN_POINTS <= len(texts) <= _MAX_POINTS:
        raise InputError(f"a map of {len(texts):,} texts cannot be drawn; give {_MIN_POINTS} to {_MAX_POINTS:,}")
    blocks = []
    for block in batches_by_size(texts, _BLOCK_TEXTS, len):
        check_cancelled()
        blocks.append(l2_normalize(model.encode(block)))
    return map_of_rows(model, list(texts), vstack(blocks), clusters)


def map_of_rows(model: Embedder, texts: list[str], rows: Any, clusters: int) -> CorpusMap:
    """Return texts whose L2-normalised embeddings are `rows` as points; the model encodes words of labels."""
    if len(texts) < _MIN_POINTS:
        raise InputError(f"a map of {len(texts):,} texts cannot be drawn; add documents, {_MIN_POINTS} or more")
    points, method = project(rows)
    n = min(clusters, int(known_rows(rows[:: len(texts) // _MAX_POINTS + 1]).sum()) // 2)
    if n < 2:
        only = MapCluster(label="topic 1", words=[], texts=len(texts))
        return CorpusMap(points, [0] * len(texts), [only], method)
    step = len(texts) // _MAX_POINTS + 1
    topics = topics_of_rows(model, texts[::step], rows[::step], n=n, examples=0)
    labels = np.array(topics.labels)
    if step > 1:  # the others get the topic with the nearest mean
        read = rows[::step]
        means = vstack([np.atleast_2d(np.asarray(read[labels == topic].mean(axis=0))) for topic in range(len(topics))])
        labels = np.where(known_rows(rows), np.asarray(rows @ means.T).argmax(axis=1), -1)
    counts = np.bincount(labels[labels >= 0], minlength=len(topics)).tolist()
    named = [
        MapCluster(label=topic.name, words=[word.word for word in topic.words], texts=count)
        for topic, count in zip(topics, counts, strict=True)
    ]
    return CorpusMap(points, labels.tolist(), named, method)
