"""The vectors of an index in a Qdrant cluster: a collection for each generation, its parts as named vectors.

Weights are stored as float32, negative ones too. Products of sparse parts are exact; a dense part is searched through
a graph (HNSW) where a segment is large, unless `exact` is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pellucid.errors import IndexFolderError, InputError, missing_extra
from pellucid.index.engine import Generation, Point, Test, Vector, Where, asking, blocks, read_vector

try:
    from qdrant_client import QdrantClient, models
except ImportError as error:
    raise missing_extra("qdrant-client", "scale") from error

_PAGE = 500  # points in one request, which a server takes up to 32 MB of
_SECONDS = 120  # that a request may take


@dataclass(frozen=True)
class Qdrant:
    """A Qdrant server or cluster. Its API key is read from the environment, QDRANT_API_KEY.

    Attributes:
        url: such as "http://10.0.0.5:6333".
        collection: what the names of its collections begin with: "articles" makes "articles-engine-1".
        shards: into how many each is divided; take a multiple of the number of nodes.
        replicas: on how many nodes each shard lies. A write is acknowledged by more than half of them.
        exact: multiply a query with every dense vector; else large segments are searched through a graph (HNSW), which
            may miss some of the best.
    """

    url: str
    collection: str
    shards: int = 1
    replicas: int = 1
    exact: bool = False

    kind: ClassVar[str] = "qdrant"

    def __post_init__(self) -> None:
        """Refuse what the server would."""
        if not re.fullmatch(r"[\w.-]{1,200}", self.collection):
            raise InputError(f"the collection is {self.collection!r:.60}; use letters, digits, '_', '-' and '.'")
        if self.shards < 1 or self.replicas < 1:
            raise InputError(f"shards are {self.shards!r} and replicas {self.replicas!r}; both are integers from 1 up")

    def create(self, generation: Generation) -> QdrantEngine:
        """Make an empty generation.

        Raises:
            InputError: another index has collections of this name.
            EngineError: the server cannot be reached.
        """
        client, name = self._client(), f"{self.collection}-{generation.name}"
        with asking(f"Qdrant at {self.url}"):
            others = self._collections(client)
            if generation.name == "engine-1" and others:
                raise InputError(f"{self.url} has a collection {others[0]!r} already; give another name, or delete it")
            if name in others:
                client.delete_collection(name)
            client.create_collection(
                name,
                vectors_config={
                    part: models.VectorParams(size=size, distance=models.Distance.DOT)
                    for part, size in generation.dense.items()
                },
                sparse_vectors_config={part: models.SparseVectorParams() for part in generation.sparse},
                shard_number=self.shards,
                replication_factor=self.replicas,
                write_consistency_factor=self.replicas // 2 + 1,
            )
        return QdrantEngine(client, self.url, name, generation.dense, exact=self.exact)

    def open(self, generation: Generation) -> QdrantEngine:
        """Open a generation.

        Raises:
            IndexFolderError: its collection is not there.
            EngineError: the server cannot be reached.
        """
        client, name = self._client(), f"{self.collection}-{generation.name}"
        with asking(f"Qdrant at {self.url}"):
            if not client.collection_exists(name):
                raise IndexFolderError(
                    f"{self.url} has no collection {name!r}. The texts are safe: pellucid index rebuild"
                )
        return QdrantEngine(client, self.url, name, generation.dense, exact=self.exact)

    def sweep(self, folder: Path, used: str) -> None:
        """Remove the collections of all generations but the one used."""
        client = self._client()
        with asking(f"Qdrant at {self.url}"):
            for name in self._collections(client):
                if name != f"{self.collection}-{used}":
                    client.delete_collection(name)

    def _client(self) -> Any:
        key = os.environ.get("QDRANT_API_KEY")
        return QdrantClient(url=self.url, api_key=key, timeout=_SECONDS, check_compatibility=False)

    def _collections(self, client: Any) -> list[str]:
        """Return the names of this index's collections."""
        names = [str(found.name) for found in client.get_collections().collections]
        return [name for name in names if re.fullmatch(re.escape(self.collection) + r"-engine-\d+", name)]


class QdrantEngine:
    """One open collection."""

    def __init__(self, client: Any, url: str, name: str, dense: Collection[str], *, exact: bool) -> None:
        """Take a client and the name of a collection that is there, with its dense parts."""
        self._client, self._url, self._name, self._exact = client, url, name, exact
        self.approximate: Collection[str] = () if exact else tuple(dense)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def flush(self) -> None:
        """Do nothing: each write has waited until it was applied, and is in the server's log."""

    def optimize(self) -> None:
        """Do nothing: the server does it by itself."""

    def put(self, points: Iterable[Point]) -> None:
        """Add points, or replace those of the same number."""
        for block in blocks(points, _PAGE):
            made = [
                models.PointStruct(
                    id=point.number,
                    vector={name: _given(vector) for name, vector in point.vectors.items()},
                    payload=dict(point.payload),
                )
                for point in block
            ]
            self._ask(self._client.upsert, points=made, wait=True)

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove points; numbers that are not there do not matter."""
        for block in blocks(numbers, _PAGE):
            self._ask(self._client.delete, points_selector=models.PointIdsList(points=block), wait=True)

    def index_payload(self, key: str) -> None:
        """Make filters by a key of the payload fast."""
        kind = models.PayloadSchemaType.FLOAT if key[0] == "n" else models.PayloadSchemaType.KEYWORD
        self._ask(self._client.create_payload_index, field_name=key, field_schema=kind, wait=True)

    def count(self) -> int:
        """Return the number of points."""
        return int(self._ask(self._client.count, exact=True).count)

    def numbers(self, start: int = 0) -> Iterator[int]:
        """Yield the numbers of all points from `start` on, rising."""
        at: Any = start
        while at is not None:
            records, at = self._ask(
                self._client.scroll, offset=at, limit=10 * _PAGE, with_payload=False, with_vectors=False
            )
            yield from [record.id for record in records]

    def vectors(self, numbers: Collection[int], names: Collection[str]) -> dict[int, dict[str, Vector]]:
        """Return the stored vectors of points by number and part."""
        found: dict[int, dict[str, Vector]] = {}
        for block in blocks(numbers, _PAGE):
            for record in self._ask(
                self._client.retrieve, ids=block, with_payload=False, with_vectors=list(names) or False
            ):
                found[record.id] = {name: read_vector(vector) for name, vector in (record.vector or {}).items()}
        return found

    def search(self, queries: Mapping[str, Vector], limit: int, where: Where = ()) -> dict[str, dict[int, float]]:
        """Return for each part the `limit` points with the largest products: number -> product, best first."""
        chosen = _filter(where)
        requests = [
            models.QueryRequest(
                query=_given(vector),
                using=name,
                limit=limit,
                filter=chosen,
                params=models.SearchParams(exact=True) if self._exact else None,
            )
            for name, vector in queries.items()
        ]
        return self._run(queries, requests)

    def products(
        self, queries: Mapping[str, Vector], wanted: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        """Return the exact products with the points wanted of each part: number -> product."""
        asked = {name: vector for name, vector in queries.items() if wanted.get(name)}
        requests = [
            models.QueryRequest(
                query=_given(vector),
                using=name,
                limit=len(wanted[name]),
                filter=models.Filter(must=[models.HasIdCondition(has_id=list(wanted[name]))]),
                params=models.SearchParams(exact=True),
            )
            for name, vector in asked.items()
        ]
        return self._run(asked, requests)

    def _run(self, names: Iterable[str], requests: list[Any]) -> dict[str, dict[int, float]]:
        answers = self._ask(self._client.query_batch_points, requests=requests) if requests else []
        return {name: {hit.id: hit.score for hit in answer.points} for name, answer in zip(names, answers)}

    def _ask(self, call: Callable[..., Any], **arguments: Any) -> Any:
        with asking(f"Qdrant at {self._url}"):
            return call(self._name, **arguments)


def _given(vector: Vector) -> Any:
    if isinstance(vector, tuple):
        indices, values = (np.asarray(side).tolist() for side in vector)
        return models.SparseVector(indices=indices, values=values)
    return vector.tolist()


def _filter(where: Where) -> Any:
    if not where:
        return None
    every: list[Any] = [
        models.Filter(
            must=[_condition(test) for test in tests if not test.negated] or None,
            must_not=[_condition(test) for test in tests if test.negated] or None,
        )
        for tests in where
    ]
    return every[0] if len(every) == 1 else models.Filter(should=every)


def _condition(test: Test) -> Any:
    if test.operator == "exists":
        empty = [models.IsEmptyCondition(is_empty=models.PayloadField(key=key)) for key in test.key.split(",")]
        return models.Filter(should=[models.Filter(must_not=[one]) for one in empty])
    if test.operator == "range":
        return models.FieldCondition(key=test.key, range=models.Range(**test.value))
    if test.operator == "dates":
        return models.FieldCondition(key=test.key, range=models.DatetimeRange(**test.value))
    if test.key[0] == "n":  # the engine matches integers only
        ranges = [models.Range(gte=value, lte=value) for value in test.value]
        return models.Filter(should=[models.FieldCondition(key=test.key, range=one) for one in ranges])
    return models.FieldCondition(key=test.key, match=models.MatchAny(any=list(test.value)))
