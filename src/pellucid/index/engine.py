"""The vectors of an index: what an engine has to do, and the one that is used unless another is named.

A point is a passage: a number, a vector for each part of the index (a numpy row, or the pair of indices and values of a
sparse one; a part that knows nothing of the passage has none), and the metadata that can be filtered by. Numbers are
never used for another passage of the same generation.

`Shard` keeps them on disk with Qdrant Edge, in this process. Its products with a query are exact; only a dense part of
more than about 50,000 passages is searched through a graph (HNSW) once it was optimised, and then may miss a few. What
has been `flush`ed outlives a power cut. The engines of many machines are in `engines/`.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from pellucid.errors import EngineError, IndexFolderError, InputError, PellucidError, WritingError, missing_extra

try:
    import qdrant_edge as edge
except ImportError as error:
    raise missing_extra("qdrant-edge-py", "search") from error

Item = TypeVar("Item")

Vector = Any
"""A float32 row, or (indices, values) of a sparse one."""

_GRAPH_KILOBYTES = 50_000  # of dense vectors; below it every product is computed
_PAGE = 1000  # points read or written at once


class Point(NamedTuple):
    """A passage as the engine keeps it."""

    number: int
    vectors: Mapping[str, Vector]
    payload: Mapping[str, Any]


class Test(NamedTuple):
    """A condition on a key of the payload; operator "in", "range" or "dates" (bounds), or "exists" (any of several)."""

    key: str
    operator: str
    value: Any
    negated: bool = False


Where = tuple[tuple[Test, ...], ...]
"""Any of these must hold, each of which is all of its tests; () holds always."""


class Generation(NamedTuple):
    """One set of all vectors of an index; a rebuild makes the next.

    Attributes:
        folder: of the index.
        name: "engine-" and a number.
        dense: the dense parts and their dimensions.
        sparse: the sparse ones, and whether they can hold negative values.
    """

    folder: Path
    name: str
    dense: Mapping[str, int]
    sparse: Mapping[str, bool]


class Engine(Protocol):
    """One open generation. Any number of threads may read it while one writes.

    What cannot be reached or answered in full is an `EngineError`: an answer is never short.
    """

    def close(self) -> None:
        """Release what is open."""

    def flush(self) -> None:
        """Return when every change before is safe, and every search sees it."""

    def optimize(self) -> None:
        """Rearrange what was added for faster searches."""

    def put(self, points: Iterable[Point]) -> None:
        """Add points, or replace those of the same number."""

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove points; numbers that are not there do not matter."""

    def index_payload(self, key: str) -> None:
        """Make filters by a key of the payload fast."""

    def count(self) -> int:
        """Return the number of points."""

    def numbers(self, start: int = 0) -> Iterator[int]:
        """Yield the numbers of all points from `start` on, rising."""

    def vectors(self, numbers: Collection[int], names: Collection[str]) -> dict[int, dict[str, Vector]]:
        """Return the stored vectors of points by number and part."""

    def search(self, queries: Mapping[str, Vector], limit: int, where: Where = ()) -> dict[str, dict[int, float]]:
        """Return for each part the `limit` points with the largest products: number -> product, best first.

        Fewer than `limit` are all that share anything with the query.
        """

    def products(
        self, queries: Mapping[str, Vector], wanted: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        """Return the exact products with the points wanted of each part: number -> product; 0 may be left out."""


class EngineSettings(Protocol):
    """What an index writes down of its engine, to find it again: a frozen dataclass of JSON values, without secrets."""

    kind: ClassVar[str]

    def create(self, generation: Generation) -> Engine:
        """Make an empty generation, in the place of what an interrupted rebuild left."""

    def open(self, generation: Generation) -> Engine:
        """Open a generation."""

    def sweep(self, folder: Path, used: str) -> None:
        """Remove all generations of the index in `folder` but the one used."""


ENGINES = {
    "edge": "index.engine.Edge",
    "qdrant": "engines.qdrant.Qdrant",
    "milvus": "engines.milvus.Milvus",
    "ray": "engines.ray.Ray",
}
"""Kind of an engine, and the class of its settings with the file it is in."""


def written_engine(engine: EngineSettings) -> dict[str, Any]:
    """Return how an index writes its engine down.

    Raises:
        InputError: it is none.
    """
    if getattr(type(engine), "kind", None) not in ENGINES:
        raise InputError(f"the engine is {engine!r:.60}; give one of pellucid.engines, such as Qdrant(url=...)")
    return {"kind": engine.kind, **vars(engine)}


def engine_of(written: Mapping[str, Any]) -> EngineSettings:
    """Return the engine that `written_engine` wrote down.

    Raises:
        IndexFolderError: this version does not know it.
    """
    settings = dict(written)
    kind = settings.pop("kind")
    if kind not in ENGINES:
        raise IndexFolderError(f"the engine of the index is {kind!r:.40}, which this pellucid does not know; update it")
    module, _, name = ENGINES[kind].rpartition(".")
    found: EngineSettings = getattr(import_module(f"pellucid.{module}"), name)(**settings)
    return found


def chosen_engine(engine: EngineSettings | None, settings: Mapping[str, Any], *, other: bool) -> EngineSettings:
    """Return the engine to open: the one given, or the one written down.

    Args:
        engine: given, or None.
        settings: of the index.
        other: whether another kind than the one written down may be given.
    """
    written = settings.get("engine", written_engine(Edge()))
    if engine is None:
        return engine_of(written)
    kind = written_engine(engine)["kind"]
    if kind != written["kind"] and not other:
        raise InputError(
            f"the vectors of the index are in {written['kind']}, not in {kind}. Move them there: "
            "Index.open(path, engine=..., rebuild=True)"
        )
    return engine


@contextmanager
def asking(server: str) -> Iterator[None]:
    """Turn what a server's client raises into our error.

    Raises:
        EngineError: there was one; the message names the `server`.
    """
    try:
        yield
    except PellucidError:
        raise
    except Exception as error:  # clients, their transport and their validation have no common class
        raise EngineError(f"{server}: {error!s:.300}. What was committed before is safe") from error


def blocks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `size`."""
    waiting = iter(items)
    while block := list(islice(waiting, size)):
        yield block


@dataclass(frozen=True)
class Edge:
    """Vectors in the folder of the index, in this process."""

    kind: ClassVar[str] = "edge"

    def create(self, generation: Generation) -> Shard:
        """Make an empty generation."""
        shutil.rmtree(generation.folder / generation.name, ignore_errors=True)
        return Shard.create(generation.folder / generation.name, generation.dense, generation.sparse)

    def open(self, generation: Generation) -> Shard:
        """Open a generation.

        Raises:
            IndexFolderError: it is missing, broken, or open in another process.
        """
        return Shard.open(generation.folder / generation.name)

    def sweep(self, folder: Path, used: str) -> None:
        """Remove all generations but the one used."""
        for other in folder.glob("engine-*"):
            if other.name != used:
                shutil.rmtree(other, ignore_errors=True)


class Shard:
    """One open shard of Qdrant Edge; one process at a time."""

    def __init__(self, shard: Any) -> None:
        """Take an open shard."""
        self._shard = shard

    @classmethod
    def create(cls, folder: Path, dense: Mapping[str, int], sparse: Collection[str]) -> Shard:
        """Make an empty shard in a folder of its own."""
        folder.mkdir(parents=True)
        config = edge.EdgeConfig(
            vectors={name: edge.EdgeVectorParams(size, edge.Distance.Dot) for name, size in dense.items()} or None,
            sparse_vectors={name: edge.EdgeSparseVectorParams() for name in sparse} or None,
            optimizers=edge.EdgeOptimizersConfig(indexing_threshold=_GRAPH_KILOBYTES),
        )
        return cls(edge.EdgeShard.create(str(folder), config))

    @classmethod
    def open(cls, folder: Path) -> Shard:
        """Open the shard in `folder`.

        Raises:
            IndexFolderError: it is missing, broken, or open in another process.
        """
        try:
            return cls(edge.EdgeShard.load(str(folder)))
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
        requests = [_request(name, vector, limit, chosen) for name, vector in queries.items()]
        return self._run(queries, requests)

    def products(
        self, queries: Mapping[str, Vector], wanted: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        """Return the products with the points wanted of each part: number -> product."""
        asked = {name: vector for name, vector in queries.items() if wanted.get(name)}
        requests = [
            _request(name, vector, len(wanted[name]), edge.Filter(must=[edge.HasIdCondition(set(wanted[name]))]))
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


def read_vector(vector: Any) -> Vector:
    """Return a vector of Qdrant's, embedded or of a cluster, as numpy has it."""
    if hasattr(vector, "indices"):
        return np.array(vector.indices, np.int64), np.array(vector.values, np.float32)
    return np.array(vector, np.float32)


def _request(name: str, vector: Vector, limit: int, chosen: Any) -> Any:
    return edge.QueryRequest(limit, query=edge.Query.Nearest(_given(vector), using=name), filter=chosen)


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
