"""What several engines have in common: generations on a server, and the points, filters and requests of Qdrant.

Qdrant's client and Qdrant Edge are two libraries with the same classes under nearly the same names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from pellucid.errors import EngineError, IndexFolderError, InputError, PellucidError, check_integer, shown
from pellucid.index.engine import Condition, Engine, EngineSettings, Generation, Point, Vector, Where, blocks


@contextmanager
def translate_errors(server: str) -> Iterator[None]:
    """Turn what a server's client raises into our error."""
    try:
        yield
    except PellucidError:
        raise
    except Exception as error:  # clients, their transport and their validation have no common class
        raise EngineError(f"{server}: {error!s:.300}. What was committed before is safe") from error


class RemoteSettings(EngineSettings, Protocol):
    """The settings of an engine on a server, where each generation is a collection of its own."""

    collection: str
    shards: int
    replicas: int
    _NAMES: ClassVar[tuple[str, str]]  # what a collection may be called, as a pattern and in words
    _BETWEEN: ClassVar[str]  # the name of the collection and that of a generation

    def __post_init__(self) -> None:
        """Check what the server would refuse."""
        pattern, allowed = self._NAMES
        if not re.fullmatch(pattern, self.collection, re.ASCII):
            raise InputError(f"the collection is {shown(self.collection)}; use {allowed}")
        check_integer("shards", self.shards)
        check_integer("replicas", self.replicas)

    def create(self, generation: Generation) -> Any:
        with translate_errors(self._server):
            client, name = self._client(), self._name(generation.name)
            existing = self._collections(client)
            if generation.name == "engine-1" and existing:
                raise InputError(f"{self._server} has a collection {existing[0]!r}; give another name, or delete it")
            if name in existing:
                self._drop(client, name)
            self._create_collection(client, name, generation)
            return self._load_collection(client, name, generation)

    def open(self, generation: Generation) -> Any:
        with translate_errors(self._server):
            client, name = self._client(), self._name(generation.name)
            if name not in self._collections(client):
                lost = f"{self._server} has no collection {name!r}"
                raise IndexFolderError(f"{lost}. The texts are safe: pellucid index rebuild")
            return self._load_collection(client, name, generation)

    def sweep(self, folder: Path, used: str) -> None:
        with translate_errors(self._server):
            client = self._client()
            for name in self._collections(client):
                if name != self._name(used):
                    self._drop(client, name)

    def _name(self, generation: str) -> str:
        return self.collection + self._BETWEEN + generation.replace("-", self._BETWEEN)

    def _collections(self, client: Any) -> list[str]:
        """Return the names of this index's collections."""
        pattern = re.escape(self._name("engine-")) + r"\d+"
        return [name for name in self._collection_names(client) if re.fullmatch(pattern, name)]

    @property
    def _server(self) -> str: ...
    def _client(self) -> Any: ...
    def _collection_names(self, client: Any) -> list[str]: ...
    def _drop(self, client: Any, name: str) -> None: ...
    def _create_collection(self, client: Any, name: str, generation: Generation) -> None: ...
    def _load_collection(self, client: Any, name: str, generation: Generation) -> Any: ...


class QdrantClasses(NamedTuple):
    """The classes of one of the two libraries, by what they are for, and functions where their arguments differ."""

    module: Any  # with those of one name in both
    range: Any  # of numbers
    dates: Any  # a range of dates
    point: Any  # of a number, vectors and a payload
    empty: Callable[[str], Any]  # the condition that a key is absent
    has_id: Callable[[list[int]], Any]  # the condition that a point is one of these
    request: Callable[..., Any]  # of a query's vector

    def filter(self, where: Where) -> Any:
        """Return the filter that a search has."""
        if not where:
            return None
        filters = []
        for tests in where:
            must = [self._condition(test) for test in tests if not test.negated]
            must_not = [self._condition(test) for test in tests if test.negated]
            filters.append(self.module.Filter(must=must or None, must_not=must_not or None))
        return filters[0] if len(filters) == 1 else self.module.Filter(should=filters)

    def _condition(self, test: Condition) -> Any:
        either, field = self.module.Filter, self.module.FieldCondition
        if test.operator == "exists":
            return either(should=[either(must_not=[self.empty(key)]) for key in test.key.split(",")])
        if test.operator == "range":
            return field(key=test.key, range=self.range(**test.value))
        if test.operator == "dates":
            return either(should=[field(key=test.key, range=self.dates(**bounds)) for bounds in test.value])
        if test.key[0] == "n":  # the engine matches integers only
            ranges = [self.range(gte=value, lte=value) for value in test.value]
            return either(should=[field(key=test.key, range=value_range) for value_range in ranges])
        return field(key=test.key, match=self.module.MatchAny(any=list(test.value)))


class QdrantPoints(Engine, Protocol):
    """The points of a generation in one of Qdrant's two forms."""

    _CLASSES: ClassVar[QdrantClasses]
    _PAGE: ClassVar[int]  # points written or read at once
    _exact: bool
    approximate: Collection[str]

    def __init__(self, dense: Collection[str], *, exact: bool) -> None:
        """Take the dense parts, and whether each product with them is computed."""
        self._exact = exact
        self.approximate = () if exact else tuple(dense)

    def put(self, points: Iterable[Point]) -> None:
        for block in blocks(points, self._PAGE):
            vectors = [{name: self._to_client(vector) for name, vector in point.vectors.items()} for point in block]
            self._upsert([self._CLASSES.point(p.number, v, dict(p.payload)) for p, v in zip(block, vectors)])

    def delete(self, numbers: Iterable[int]) -> None:
        for block in blocks(numbers, self._PAGE):
            self._delete(block)

    def numbers(self, start: int = 0) -> Iterator[int]:
        at: Any = start
        while at is not None:
            records, at = self._scroll(at)
            yield from [record.id for record in records]

    def vectors(self, numbers: Collection[int], names: Collection[str]) -> dict[int, dict[str, Vector]]:
        vectors: dict[int, dict[str, Vector]] = {}
        for block in blocks(numbers, self._PAGE):
            for record in self._retrieve(block, list(names)):
                vectors[record.id] = {name: _read(vector) for name, vector in (record.vector or {}).items()}
        return vectors

    def search(self, queries: Mapping[str, Vector], limit: int, where: Where = ()) -> dict[str, dict[int, float]]:
        chosen = self._CLASSES.filter(where)
        return self._run({name: (vector, limit, chosen, self._exact) for name, vector in queries.items()})

    def products(
        self, queries: Mapping[str, Vector], numbers: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        classes, searches = self._CLASSES, {}
        for name, vector in queries.items():
            if ids := list(numbers.get(name, ())):
                searches[name] = vector, len(ids), classes.module.Filter(must=[classes.has_id(ids)]), True
        return self._run(searches)

    def _run(self, searches: Mapping[str, tuple[Vector, int, Any, bool]]) -> dict[str, dict[int, float]]:
        requests = []
        for name, (vector, limit, chosen, exact) in searches.items():
            params = self._CLASSES.module.SearchParams(exact=True) if exact and not isinstance(vector, tuple) else None
            requests.append(self._CLASSES.request(self._to_client(vector), name, limit, chosen, params))
        hit_lists = self._query(requests) if requests else []
        return {name: {hit.id: hit.score for hit in hits} for name, hits in zip(searches, hit_lists)}

    def _to_client(self, vector: Vector) -> Any:
        if isinstance(vector, tuple):
            indices, values = (np.asarray(side).tolist() for side in vector)
            return self._CLASSES.module.SparseVector(indices=indices, values=values)
        return vector.tolist()

    def _upsert(self, points: list[Any]) -> None: ...
    def _delete(self, numbers: list[int]) -> None: ...
    def _scroll(self, at: int) -> tuple[list[Any], int | None]: ...
    def _retrieve(self, numbers: list[int], names: list[str]) -> list[Any]: ...
    def _query(self, requests: list[Any]) -> list[Any]: ...


def _read(vector: Any) -> Vector:
    if hasattr(vector, "indices"):
        return np.array(vector.indices, np.int64), np.array(vector.values, np.float32)
    return np.array(vector, np.float32)
