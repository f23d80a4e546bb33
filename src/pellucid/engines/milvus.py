"""The vectors of an index in Milvus: a collection for each generation, read with consistency level Strong.

Sparse vectors have float32 weights, none negative, and their products are exact. A field holds a vector of every
passage, so one that a part knows nothing of is zeros, or the single weight of a dimension that no query has. Metadata
are tags, "s0=red", which are equal or not, and numbers, which can be compared; dates are numbers, too.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.engines.points import RemoteSettings, translate_errors
from pellucid.errors import InputError, missing_extra
from pellucid.index.engine import Condition, Engine, Generation, Point, Vector, Where, blocks
from pellucid.index.metadata import timestamp

try:
    from pymilvus import DataType, MilvusClient
except ImportError as error:
    raise missing_extra("pymilvus", "scale") from error

_PAGE_POINTS = 500  # in one request, which a server takes up to 64 MB of
_MAX_ANSWER_POINTS = 16_384  # that Milvus gives in one answer
_MAX_COMPARED_VALUES = 16  # numbers, or dates, that a field of a document can hold: each is a comparison of its own
_MAX_TAGS = 4096  # that a document can have
_PLAIN_TAG = re.compile(r"[\w .:+-]{0,100}", re.ASCII)  # a value that can stand in a tag; any other is hashed
_UNUSED_DIMENSION = 2**32 - 2  # a dimension of sparse vectors that no query has
_HNSW_PARAMS = {"M": 16, "efConstruction": 200}
_MIN_GRAPH_CANDIDATES = 256  # candidates of a search in the graph, where fewer are asked for


@dataclass(frozen=True)
class Milvus(RemoteSettings):
    """A Milvus server or cluster. Its token is read from the environment, MILVUS_TOKEN.

    Attributes:
        uri: such as "http://10.0.0.5:19530".
        collection: what the names of its collections begin with: "articles" makes "articles_engine_1".
        shards: into how many channels writes are divided.
        replicas: how many times a collection is loaded into memory.
        graph: whether dense parts are searched through a graph (HNSW), which may miss some; else every product is
            computed.
    """

    uri: str
    collection: str
    shards: int = 1
    replicas: int = 1
    graph: bool = True

    kind: ClassVar[str] = "milvus"
    _NAMES: ClassVar[tuple[str, str]] = (r"[A-Za-z_]\w{0,200}", "letters, digits and '_'")
    _BETWEEN: ClassVar[str] = "_"

    @property
    def _server(self) -> str:
        return f"Milvus at {self.uri}"

    def _client(self) -> Any:
        return MilvusClient(uri=self.uri, token=os.environ.get("MILVUS_TOKEN", ""))

    def _collection_names(self, client: Any) -> list[str]:
        return list(client.list_collections())

    def _drop(self, client: Any, name: str) -> None:
        client.drop_collection(name)

    def _create_collection(self, client: Any, name: str, generation: Generation) -> None:
        if signed := [name for name, negative in generation.sparse.items() if negative]:
            raise InputError(f"the model {signed[0]!r:.60} gives negative sparse values, which Milvus cannot hold")
        fields = _Fields(generation)
        client.create_collection(name, schema=fields.schema(), num_shards=self.shards, consistency_level="Strong")
        client.create_index(name, fields.indexes(self.graph, lite="lite" in client.get_server_version()))

    def _load_collection(self, client: Any, name: str, generation: Generation) -> MilvusEngine:
        client.load_collection(name, replica_number=self.replicas)
        return MilvusEngine(client, self._server, name, _Fields(generation), graph=self.graph)


class _Fields:
    """The fields of a collection: Milvus does not take every name that a part can have."""

    def __init__(self, generation: Generation) -> None:
        self.dense, self._sizes = {n: f"dense_{i}" for i, n in enumerate(generation.dense)}, generation.dense
        self.sparse = {name: f"sparse_{i}" for i, name in enumerate(generation.sparse)}

    def field_for(self, part: str) -> str:
        return self.dense.get(part) or self.sparse[part]

    def schema(self) -> Any:
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        for name, field in self.dense.items():
            schema.add_field(field, DataType.FLOAT_VECTOR, dim=self._sizes[name])
        for field in self.sparse.values():
            schema.add_field(field, DataType.SPARSE_FLOAT_VECTOR)
        schema.add_field("tags", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=_MAX_TAGS, max_length=200)
        schema.add_field("numbers", DataType.JSON)
        return schema

    def indexes(self, graph: bool, *, lite: bool) -> Any:
        indexes: Any = MilvusClient.prepare_index_params()
        if not lite:  # Milvus Lite has no index of tags, and looks at all
            indexes.add_index("tags", index_type="INVERTED")
        for field in self.dense.values():
            kind = {"index_type": "HNSW", "params": _HNSW_PARAMS} if graph else {"index_type": "FLAT"}
            indexes.add_index(field, metric_type="IP", **kind)
        algorithm = {"inverted_index_algo": "DAAT_MAXSCORE"}
        for field in self.sparse.values():
            indexes.add_index(field, index_type="SPARSE_INVERTED_INDEX", metric_type="IP", params=algorithm)
        return indexes

    def row(self, point: Point) -> dict[str, Any]:
        """Return a point as Milvus keeps it."""
        row: dict[str, Any] = {"id": point.number, "tags": _tags(point), "numbers": _numbers(point)}
        for name, field in self.dense.items():
            vector = point.vectors.get(name)
            row[field] = [0.0] * self._sizes[name] if vector is None else vector.tolist()
        for name, field in self.sparse.items():
            row[field] = _weights(name, point.vectors[name]) if name in point.vectors else {_UNUSED_DIMENSION: 1.0}
        return row

    def read(self, row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Vector]:
        """Return the vectors of a stored point, without those that were left out."""
        vectors: dict[str, Vector] = {}
        for name in names:
            value = row[self.field_for(name)]
            if name in self.dense:
                vector = np.array(value, np.float32)
                if vector.any():
                    vectors[name] = vector
            elif _UNUSED_DIMENSION not in value:
                vectors[name] = (np.array(list(value), np.int64), np.array(list(value.values()), np.float32))
        return vectors


class MilvusEngine(Engine):
    """One open collection; what a write has returned from is in the server's log, and level Strong sees it."""

    def __init__(self, client: Any, server: str, name: str, fields: _Fields, *, graph: bool) -> None:
        """Take a client, and the name and the fields of an existing collection; `graph` searches dense parts so."""
        self._client, self._server, self._name, self._fields = client, server, name, fields
        self.approximate: Collection[str] = tuple(fields.dense) if graph else ()

    def close(self) -> None:
        self._client.close()

    def put(self, points: Iterable[Point]) -> None:
        for block in blocks(points, _PAGE_POINTS):
            self._ask(self._client.upsert, data=[self._fields.row(point) for point in block])

    def delete(self, numbers: Iterable[int]) -> None:
        for block in blocks(numbers, _PAGE_POINTS):
            self._ask(self._client.delete, ids=block)

    def numbers(self, start: int = 0) -> Iterator[int]:
        pages = self._ask(
            self._client.query_iterator, batch_size=10 * _PAGE_POINTS, filter=f"id >= {start}", output_fields=["id"]
        )
        try:
            while True:
                with translate_errors(self._server):
                    page = pages.next()
                if not page:
                    return
                yield from sorted(row["id"] for row in page)
        finally:
            pages.close()

    def vectors(self, numbers: Collection[int], names: Collection[str]) -> dict[int, dict[str, Vector]]:
        fields = ["id", *(self._fields.field_for(name) for name in names)]
        vectors: dict[int, dict[str, Vector]] = {}
        for block in blocks(numbers, _PAGE_POINTS):
            for row in self._ask(self._client.get, ids=block, output_fields=fields):
                vectors[row["id"]] = self._fields.read(row, names)
        return vectors

    def search(self, queries: Mapping[str, Vector], limit: int, where: Where = ()) -> dict[str, dict[int, float]]:
        if limit > _MAX_ANSWER_POINTS:
            what = f"Milvus gives at most {_MAX_ANSWER_POINTS:,} passages, and {limit:,} are needed"
            raise InputError(f"{what}; ask for a top_k of {_MAX_ANSWER_POINTS // 2:,} or less")
        return {name: self._search(name, vector, limit, _filter(where)) for name, vector in queries.items()}

    def products(
        self, queries: Mapping[str, Vector], numbers: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        products: dict[str, dict[int, float]] = {}
        for name, vector in queries.items():
            for block in blocks(numbers.get(name, ()), _MAX_ANSWER_POINTS // 2):
                products.setdefault(name, {}).update(self._search(name, vector, len(block), f"id in {block}"))
        return products

    def _search(self, name: str, vector: Vector, limit: int, chosen: str) -> dict[int, float]:
        dense = name in self._fields.dense
        answer = self._ask(
            self._client.search,
            data=[vector.tolist() if dense else _weights(name, vector)],
            anns_field=self._fields.field_for(name),
            limit=limit,
            filter=chosen,
            output_fields=["id"],
            search_params={"metric_type": "IP", "params": {"ef": max(limit, _MIN_GRAPH_CANDIDATES)} if dense else {}},
        )
        return {hit["id"]: float(hit["distance"]) for hit in answer[0]}

    def _ask(self, call: Callable[..., Any], **arguments: Any) -> Any:
        with translate_errors(self._server):
            return call(self._name, **arguments)


def _weights(name: str, vector: Vector) -> dict[int, float]:
    indices, values = (np.asarray(side).tolist() for side in vector)
    if min(values) < 0:
        raise InputError(f"the part {name!r:.60} has a sparse value of {min(values):.3g}; Milvus takes none below 0")
    return dict(zip(indices, values))


def _tags(point: Point) -> list[str]:
    """Return the keys of a point's payload, and each with its values."""
    tags = {key: None for key in point.payload}
    tags |= {_tag(key, value): None for key, values in point.payload.items() for value in values}
    if len(tags) > _MAX_TAGS:
        raise InputError(f"the metadata of a document have {len(tags):,} values; Milvus holds at most {_MAX_TAGS:,}")
    return list(tags)


def _tag(key: str, value: float | str) -> str:
    text = str(value) if isinstance(value, str) else repr(float(value) + 0.0)  # -0.0 is 0.0
    if not _PLAIN_TAG.fullmatch(text):
        text = "#" + hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
    return f"{key}={text}"


def _numbers(point: Point) -> dict[str, list[float]]:
    """Return the values of a point's payload that can be compared, as seconds where they are dates."""
    numbers: dict[str, list[float]] = {}
    for key, values in point.payload.items():
        converted = [timestamp(value) if isinstance(value, str) else float(value) for value in values]
        comparable = [value for value in converted if value is not None]
        if len(comparable) > _MAX_COMPARED_VALUES:
            counts = f"{len(comparable):,} numbers or dates"
            raise InputError(f"a field of a document holds {counts}; Milvus compares at most {_MAX_COMPARED_VALUES}")
        if comparable:
            numbers[key] = comparable
    return numbers


def _filter(where: Where) -> str:
    return " or ".join(f"({' and '.join(map(_condition, tests)) or 'id >= 0'})" for tests in where)


def _condition(test: Condition) -> str:
    if test.operator in ("range", "dates"):  # of any of the values, by their positions
        signs = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
        values = [f'numbers["{test.key}"][{position}]' for position in range(_MAX_COMPARED_VALUES)]
        within = []
        for bounds in test.value if test.operator == "dates" else [test.value]:
            limits = [(signs[name], timestamp(b) if isinstance(b, str) else float(b)) for name, b in bounds.items()]
            within += [" and ".join(f"{value} {sign} {limit!r}" for sign, limit in limits) for value in values]
        return f"{'not ' if test.negated else ''}({' or '.join(f'({alternative})' for alternative in within)})"
    tags = test.key.split(",") if test.operator == "exists" else [_tag(test.key, value) for value in test.value]
    quoted = ", ".join(f'"{tag}"' for tag in tags)
    return f"{'not ' if test.negated else ''}ARRAY_CONTAINS_ANY(tags, [{quoted}])"
