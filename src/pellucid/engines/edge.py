"""The vectors of an index in Qdrant Edge: one process, with a graph over large dense parts.

Products of sparse parts are exact. A dense part of more than about 50,000 passages is searched through a graph (HNSW)
once it was optimised, which is quick and may miss some of the best. What has been `flush`ed outlives a power cut.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pellucid.errors import IndexFolderError, WritingError, missing_extra
from pellucid.index.engine import Generation, Point, Test, Vector, Where, read_vector

try:
    import qdrant_edge as edge
except ImportError as error:
    raise missing_extra("qdrant-edge-py", "scale") from error

_GRAPH_KILOBYTES = 50_000  # of dense vectors; below it every product is computed
_PAGE = 1000  # points read or written at once


@dataclass(frozen=True)
class Edge:
    """Qdrant Edge in this process, with its files in the folder of the index; one process at a time.

    Attributes:
        exact: multiply a query with every dense vector; else large dense parts are searched through a graph (HNSW),
            which may miss some of the best.
    """

    exact: bool = False

    kind: ClassVar[str] = "edge"

    def create(self, generation: Generation) -> Shard:
        """Make an empty generation."""
        shutil.rmtree(generation.folder / generation.name, ignore_errors=True)
        return Shard.create(generation.folder / generation.name, generation.dense, generation.sparse, exact=self.exact)

    def open(self, generation: Generation) -> Shard:
        """Open a generation.

        Raises:
            IndexFolderError: it is missing, broken, or open in another process.
        """
        return Shard.open(generation.folder / generation.name, generation.dense, exact=self.exact)

    def sweep(self, folder: Path, used: str) -> None:
        """Remove all generations but the one used."""
        for other in folder.glob("engine-*"):
            if other.name != used:
                shutil.rmtree(other, ignore_errors=True)


class Shard:
    """One open shard of Qdrant Edge; one process at a time."""

    def __init__(self, shard: Any, dense: Collection[str], exact: bool) -> None:
        """Take an open shard with its dense parts, and whether each product with them is computed."""
        self._shard, self._exact = shard, exact
        self.approximate: Collection[str] = () if exact else tuple(dense)

    @classmethod
    def create(cls, folder: Path, dense: Mapping[str, int], sparse: Collection[str], *, exact: bool = False) -> Shard:
        """Make an empty shard in a folder of its own."""
        folder.mkdir(parents=True)
        config = edge.EdgeConfig(
            vectors={name: edge.EdgeVectorParams(size, edge.Distance.Dot) for name, size in dense.items()} or None,
            sparse_vectors={name: edge.EdgeSparseVectorParams() for name in sparse} or None,
            optimizers=edge.EdgeOptimizersConfig(indexing_threshold=_GRAPH_KILOBYTES),
        )
        return cls(edge.EdgeShard.create(str(folder), config), dense, exact)

    @classmethod
    def open(cls, folder: Path, dense: Collection[str], *, exact: bool = False) -> Shard:
        """Open the shard in `folder`.

        Raises:
            IndexFolderError: it is missing, broken, or open in another process.
        """
        try:
            return cls(edge.EdgeShard.load(str(folder)), dense, exact)
        except Exception as error:  # the engine has no classes of errors
            if "WouldBlock" in str(error):
                raise IndexFolderError(f"{folder} is open in another process; close it there first") from error
            raise IndexFolderError(
                f"the vectors in {folder} cannot be opened: {error}. The texts are safe: pellucid index rebuild"
            ) from error

    def close(self) -> None:
        """Write everything to disk and release the folder."""
        self._shard.close()

    def flush(self) -> None:
        """Return when everything is on disk.

        Raises:
            WritingError: the disk is full, or does not take it.
        """
        with _writing():
            self._shard.flush()

    def optimize(self) -> None:
        """Rearrange what was added for faster searches; drop what was deleted."""
        self._shard.optimize()

    def put(self, points: Iterable[Point]) -> None:
        """Add points, or replace those of the same number.

        Raises:
            WritingError: the disk is full, or does not take it.
        """
        made = [edge.Point(p.number, {n: _given(v) for n, v in p.vectors.items()}, dict(p.payload)) for p in points]
        with _writing():
            for start in range(0, len(made), _PAGE):
                self._shard.update(edge.UpdateOperation.upsert_points(made[start : start + _PAGE]))

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove points; numbers that are not there do not matter."""
        gone: list[Any] = list(numbers)
        for start in range(0, len(gone), _PAGE):
            self._shard.update(edge.UpdateOperation.delete_points(gone[start : start + _PAGE]))

    def index_payload(self, key: str) -> None:
        """Make filters by a key of the payload fast."""
        kind = edge.PayloadSchemaType.Float if key[0] == "n" else edge.PayloadSchemaType.Keyword
        self._shard.update(edge.UpdateOperation.create_field_index(key, kind))

    def count(self) -> int:
        """Return the number of points."""
        return int(self._shard.count(edge.CountRequest(exact=True)))

    def numbers(self, start: int = 0) -> Iterator[int]:
        """Yield the numbers of all points from `start` on, rising."""
        at: Any = start
        while at is not None:
            request = edge.ScrollRequest(offset=at, limit=_PAGE, with_payload=False, with_vector=False)
            records, at = self._shard.scroll(request)
            yield from [record.id for record in records]

    def vectors(self, numbers: Collection[int], names: Collection[str]) -> dict[int, dict[str, Vector]]:
        """Return the stored vectors of points by number and part."""
        records = self._shard.retrieve(list(numbers), with_payload=False, with_vector=list(names))
        return {r.id: {name: read_vector(vector) for name, vector in (r.vector or {}).items()} for r in records}

    def payloads(self, numbers: Collection[int]) -> dict[int, dict[str, Any]]:
        """Return the payload of each point that is there."""
        records = self._shard.retrieve(list(numbers), with_payload=True, with_vector=False)
        return {record.id: record.payload or {} for record in records}

    def keys(self) -> list[str]:
        """Return the keys of the payload that filters are fast by."""
        return list(self._shard.info().payload_schema)

    def search(self, queries: Mapping[str, Vector], limit: int, where: Where = ()) -> dict[str, dict[int, float]]:
        """Return for each part the `limit` points with the largest products: number -> product, best first."""
        chosen = _filter(where)
        requests = [_request(name, vector, limit, chosen, exact=self._exact) for name, vector in queries.items()]
        return self._run(queries, requests)

    def products(
        self, queries: Mapping[str, Vector], wanted: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        """Return the products with the points wanted of each part: number -> product."""
        asked = {name: vector for name, vector in queries.items() if wanted.get(name)}
        requests = [
            _request(
                name,
                vector,
                len(wanted[name]),
                edge.Filter(must=[edge.HasIdCondition(set(wanted[name]))]),
                exact=True,
            )
            for name, vector in asked.items()
        ]
        return self._run(asked, requests)

    def _run(self, names: Iterable[str], requests: list[Any]) -> dict[str, dict[int, float]]:
        found = self._shard.query_batch(edge.QueryBatchRequest(requests)) if requests else []
        return {name: {hit.id: hit.score for hit in hits} for name, hits in zip(names, found)}


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the engine has no classes of errors
        raise WritingError(
            f"the vectors cannot be written: {error}. What was committed before is safe; free some space"
        ) from error


def _given(vector: Vector) -> Any:
    if isinstance(vector, tuple):
        return edge.SparseVector(*(np.asarray(side).tolist() for side in vector))
    return vector.tolist()


def _request(name: str, vector: Vector, limit: int, chosen: Any, *, exact: bool) -> Any:
    params = edge.SearchParams(exact=True) if exact and not isinstance(vector, tuple) else None
    return edge.QueryRequest(limit, query=edge.Query.Nearest(_given(vector), using=name), filter=chosen, params=params)


def _filter(where: Where) -> Any:
    if not where:
        return None
    every: list[Any] = [
        edge.Filter(
            must=[_condition(test) for test in tests if not test.negated] or None,
            must_not=[_condition(test) for test in tests if test.negated] or None,
        )
        for tests in where
    ]
    return every[0] if len(every) == 1 else edge.Filter(should=every)


def _condition(test: Test) -> Any:
    if test.operator == "exists":
        held: list[Any] = [edge.Filter(must_not=[edge.IsEmptyCondition(key)]) for key in test.key.split(",")]
        return edge.Filter(should=held)
    if test.operator == "range":
        return edge.FieldCondition(test.key, range=edge.RangeFloat(**test.value))
    if test.operator == "dates":
        return edge.FieldCondition(test.key, range=edge.RangeDateTime(**test.value))
    if test.key[0] == "n":  # the engine matches integers only
        ranges = [edge.RangeFloat(gte=value, lte=value) for value in test.value]
        return edge.Filter(should=[edge.FieldCondition(test.key, range=one) for one in ranges])
    return edge.FieldCondition(test.key, match=edge.MatchAny(list(test.value)))
