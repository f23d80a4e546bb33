"""The vectors of an index in a Qdrant cluster: a collection for each generation, its parts as named vectors.

Weights are stored as float32, negative ones too. Products of sparse parts are exact; a dense part is searched through
a graph (HNSW) where a segment is large, unless `exact` is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.engines.points import QdrantClasses, QdrantPoints, RemoteSettings, translate_errors
from pellucid.errors import missing_extra
from pellucid.index.engine import Generation

try:
    from qdrant_client import QdrantClient, models
except ImportError as error:
    raise missing_extra("qdrant-client", "scale") from error

_TIMEOUT_S = 120  # of a request


@dataclass(frozen=True)
class Qdrant(RemoteSettings):
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
    _NAMES: ClassVar[tuple[str, str]] = (r"[\w.-]{1,200}", "letters, digits, '_', '-' and '.'")
    _BETWEEN: ClassVar[str] = "-"

    @property
    def _server(self) -> str:
        return f"Qdrant at {self.url}"

    def _client(self) -> Any:
        key = os.environ.get("QDRANT_API_KEY")
        return QdrantClient(url=self.url, api_key=key, timeout=_TIMEOUT_S, check_compatibility=False)

    def _collection_names(self, client: Any) -> list[str]:
        return [str(collection.name) for collection in client.get_collections().collections]

    def _drop(self, client: Any, name: str) -> None:
        client.delete_collection(name)

    def _create_collection(self, client: Any, name: str, generation: Generation) -> None:
        dot = models.Distance.DOT
        dense = {part: models.VectorParams(size=size, distance=dot) for part, size in generation.dense.items()}
        client.create_collection(
            name,
            vectors_config=dense,
            sparse_vectors_config={part: models.SparseVectorParams() for part in generation.sparse},
            shard_number=self.shards,
            replication_factor=self.replicas,
            write_consistency_factor=self.replicas // 2 + 1,
        )

    def _load_collection(self, client: Any, name: str, generation: Generation) -> QdrantEngine:
        return QdrantEngine(client, self._server, name, generation.dense, exact=self.exact)


def _point(number: int, vectors: dict[str, Any], payload: dict[str, Any]) -> Any:
    return models.PointStruct(id=number, vector=vectors, payload=payload)


def _request(vector: Any, name: str, limit: int, chosen: Any, params: Any) -> Any:
    return models.QueryRequest(query=vector, using=name, limit=limit, filter=chosen, params=params)


class QdrantEngine(QdrantPoints):
    """One open collection."""

    _CLASSES = QdrantClasses(
        models, models.Range, models.DatetimeRange, _point,
        empty=lambda key: models.IsEmptyCondition(is_empty=models.PayloadField(key=key)),
        has_id=lambda numbers: models.HasIdCondition(has_id=numbers), request=_request,
    )  # fmt: skip
    _PAGE = 500  # a server takes requests up to 32 MB

    def __init__(self, client: Any, server: str, name: str, dense: Collection[str], *, exact: bool) -> None:
        """Take a client and the name of an existing collection, with its dense parts."""
        super().__init__(dense, exact=exact)
        self._client, self._server, self._name = client, server, name

    def close(self) -> None:
        self._client.close()

    def index_payload(self, key: str) -> None:
        kind = models.PayloadSchemaType.FLOAT if key[0] == "n" else models.PayloadSchemaType.KEYWORD
        self._ask(self._client.create_payload_index, field_name=key, field_schema=kind, wait=True)

    def _upsert(self, points: list[Any]) -> None:
        self._ask(self._client.upsert, points=points, wait=True)

    def _delete(self, numbers: list[int]) -> None:
        self._ask(self._client.delete, points_selector=models.PointIdsList(points=list(numbers)), wait=True)

    def _scroll(self, at: int) -> tuple[list[Any], Any]:
        options: dict[str, Any] = {"limit": 10 * self._PAGE, "with_payload": False, "with_vectors": False}
        records, following = self._ask(self._client.scroll, offset=at, **options)
        return records, following

    def _retrieve(self, numbers: list[int], names: list[str]) -> list[Any]:
        options: dict[str, Any] = {"ids": numbers, "with_payload": False, "with_vectors": names or False}
        return list(self._ask(self._client.retrieve, **options))

    def _query(self, requests: list[Any]) -> list[Any]:
        return [answer.points for answer in self._ask(self._client.query_batch_points, requests=requests)]

    def _ask(self, call: Callable[..., Any], **arguments: Any) -> Any:
        with translate_errors(self._server):
            return call(self._name, **arguments)
