"""The vectors of an index in Qdrant Edge: one process, with a graph over large dense parts.

Products of sparse parts are exact. A dense part of more than about 50,000 passages is searched through a graph (HNSW)
once it was optimised, which is quick and may miss some of the best. What has been `flush`ed outlives a power cut.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pellucid.engines.points import QdrantClasses, QdrantPoints
from pellucid.errors import IndexFolderError, WritingError, missing_extra
from pellucid.index.engine import EngineSettings, Generation

try:
    import qdrant_edge as edge
except ImportError as error:
    raise missing_extra("qdrant-edge-py", "scale") from error

_GRAPH_THRESHOLD_KB = 50_000  # of dense vectors; below it every product is computed


@dataclass(frozen=True)
class Edge(EngineSettings):
    """Qdrant Edge in this process, with its files in the folder of the index; one process at a time.

    Attributes:
        exact: multiply a query with every dense vector; else large dense parts are searched through a graph (HNSW),
            which may miss some of the best.
    """

    exact: bool = False

    kind: ClassVar[str] = "edge"

    def create(self, generation: Generation) -> EdgeEngine:
        folder, dense = generation.folder / generation.name, generation.dense
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config = edge.EdgeConfig(
            vectors={name: edge.EdgeVectorParams(size, edge.Distance.Dot) for name, size in dense.items()} or None,
            sparse_vectors={name: edge.EdgeSparseVectorParams() for name in generation.sparse} or None,
            optimizers=edge.EdgeOptimizersConfig(indexing_threshold=_GRAPH_THRESHOLD_KB),
        )
        return EdgeEngine(edge.EdgeShard.create(str(folder), config), dense, exact=self.exact)

    def open(self, generation: Generation) -> EdgeEngine:
        folder = generation.folder / generation.name
        try:
            return EdgeEngine(edge.EdgeShard.load(str(folder)), generation.dense, exact=self.exact)
        except Exception as error:  # the engine has no classes of errors
            if "WouldBlock" in str(error):
                raise IndexFolderError(f"{folder} is open in another process; close it there first") from error
            raise IndexFolderError(
                f"the vectors in {folder} cannot be opened: {error}. The texts are safe: pellucid index rebuild"
            ) from error

    def sweep(self, folder: Path, used: str) -> None:
        for generation_folder in folder.glob("engine-*"):
            if generation_folder.name != used:
                shutil.rmtree(generation_folder, ignore_errors=True)


def _request(vector: Any, name: str, limit: int, chosen: Any, params: Any) -> Any:
    return edge.QueryRequest(limit, query=edge.Query.Nearest(vector, using=name), filter=chosen, params=params)


class EdgeEngine(QdrantPoints):
    """One open shard of Qdrant Edge; one process at a time."""

    _CLASSES = QdrantClasses(
        edge, edge.RangeFloat, edge.RangeDateTime, edge.Point, edge.IsEmptyCondition,
        has_id=lambda numbers: edge.HasIdCondition(set(numbers)), request=_request,
    )  # fmt: skip
    _PAGE = 1000  # points written or read at once

    def __init__(self, shard: Any, dense: Collection[str], *, exact: bool) -> None:
        """Take an open shard with its dense parts, and whether each product with them is computed."""
        super().__init__(dense, exact=exact)
        self._shard = shard

    def close(self) -> None:
        self._shard.close()

    def flush(self) -> None:
        with _writing():
            self._shard.flush()

    def optimize(self) -> None:
        self._shard.optimize()

    def index_payload(self, key: str) -> None:
        kind = edge.PayloadSchemaType.Float if key[0] == "n" else edge.PayloadSchemaType.Keyword
        self._shard.update(edge.UpdateOperation.create_field_index(key, kind))

    def _upsert(self, points: list[Any]) -> None:
        with _writing():
            self._shard.update(edge.UpdateOperation.upsert_points(points))

    def _delete(self, numbers: list[Any]) -> None:
        self._shard.update(edge.UpdateOperation.delete_points(numbers))

    def _scroll(self, at: int) -> tuple[list[Any], Any]:
        request = edge.ScrollRequest(offset=at, limit=self._PAGE, with_payload=False, with_vector=False)
        records, following = self._shard.scroll(request)
        return records, following

    def _retrieve(self, numbers: list[int], names: list[str]) -> list[Any]:
        records: list[Any] = self._shard.retrieve(numbers, with_payload=False, with_vector=names)
        return records

    def _query(self, requests: list[Any]) -> list[Any]:
        hit_lists: list[Any] = self._shard.query_batch(edge.QueryBatchRequest(requests))
        return hit_lists


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the engine has no classes of errors
        raise WritingError(
            f"the vectors cannot be written: {error}. What was committed before is safe; free some space"
        ) from error
