"""The interface of engines, which hold the vectors of an index outside of its segments; they are in `engines/`.

A point is a passage: a number, a vector for each model of the index (a numpy row, or the pair of indices and values of
a sparse one; a model that knows nothing of the passage has none), and the metadata that can be filtered by. A number
never stands for another passage of the same generation. BM25 is always computed from the segments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from pellucid.errors import IndexFolderError, InputError, shown

Item = TypeVar("Item")

Vector = Any
"""A float32 row, or (indices, values) of a sparse one."""


class Point(NamedTuple):
    """A passage as the engine keeps it."""

    number: int
    vectors: Mapping[str, Vector]
    payload: Mapping[str, Any]


class Condition(NamedTuple):
    """A condition on a key of the payload.

    Its operator is "in" (any of some values), "range" (bounds of numbers), "dates" (any of some bounds of dates), or
    "exists" (any of several keys).
    """

    key: str
    operator: str
    value: Any
    negated: bool = False


Where = tuple[tuple[Condition, ...], ...]
"""Any of these must hold, each of which is all of its tests; () holds always."""


class Generation(NamedTuple):
    """One set of all vectors of an index; a rebuild makes the next."""

    folder: Path  # of the index
    name: str  # "engine-" and a number
    dense: Mapping[str, int]  # the dense parts and their dimensions
    sparse: Mapping[str, bool]  # the sparse ones, and whether they can hold negative values


class Engine(Protocol):
    """One open generation, read by any number of threads while one writes; an answer is full, or an `EngineError`."""

    approximate: Collection[str]  # the dense parts of which a search may miss a passage

    def close(self) -> None:
        """Release what is open."""

    def flush(self) -> None:
        """Return when every earlier change is safe and seen by every search; by default a write has waited for that."""
        return None

    def optimize(self) -> None:
        """Rearrange added points for faster searches, if the engine does not do so by itself."""
        return None

    def index_payload(self, key: str) -> None:
        """Make filters by a key of the payload fast, if the engine does not do so by itself."""
        return None

    def put(self, points: Iterable[Point]) -> None:
        """Add points, or replace those of the same number; one that the engine cannot hold is an InputError."""

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove points; numbers that are not there do not matter."""

    def numbers(self, start: int = 0) -> Iterator[int]:
        """Yield the numbers of all points from `start` on, rising."""

    def vectors(self, numbers: Collection[int], names: Collection[str]) -> dict[int, dict[str, Vector]]:
        """Return the stored vectors of points by number and part."""

    def search(self, queries: Mapping[str, Vector], limit: int, where: Where = ()) -> dict[str, dict[int, float]]:
        """Return by part the `limit` points with the largest products, best first; fewer are all that have one."""

    def products(
        self, queries: Mapping[str, Vector], points: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        """Return the exact products with the points wanted of each part: number -> product; 0 may be left out."""


class EngineSettings(Protocol):
    """The stored settings of an engine, by which an index finds it again: a frozen dataclass of JSON, no secrets."""

    kind: ClassVar[str]

    def create(self, generation: Generation) -> Engine:
        """Make an empty generation, in the place of what an interrupted rebuild left."""

    def open(self, generation: Generation) -> Engine:
        """Open a generation; one that is missing, broken or open in another process is an IndexFolderError."""

    def sweep(self, folder: Path, used: str) -> None:
        """Remove all generations of the index in `folder` but the one used."""


LOCAL = "local"
"""No engine: the vectors are in the segments of the index."""

_INSIDE = (LOCAL, "edge")  # which open nothing outside the folder

ENGINES = {"edge": "engines.edge.Edge", "qdrant": "engines.qdrant.Qdrant", "milvus": "engines.milvus.Milvus"}
"""Kind of an engine, and the class of its settings with the file it is in."""


def store_engine(engine: EngineSettings | None) -> dict[str, Any]:
    """Return the stored form of an engine's settings."""
    if engine is None:
        return {"kind": LOCAL}
    if getattr(type(engine), "kind", None) not in ENGINES:
        raise InputError(f"the engine is {shown(engine)}; give one of pellucid.engines, such as Qdrant(url=...)")
    return {"kind": engine.kind, **vars(engine)}


def resolve_engine(
    engine: EngineSettings | str | None,
    stored: Mapping[str, Any],
    *,
    any_kind: bool = False,
    allow_outside: bool = False,
) -> Any:
    """Return the settings of the engine to open: the one given (with `any_kind` of any kind) or the stored one."""
    if engine is None:
        stored_engine = None
        if stored["kind"] != LOCAL:
            if stored["kind"] not in ENGINES:
                raise IndexFolderError(
                    f"the engine of the index is {stored['kind']!r:.40}, which this pellucid does not know; update it"
                )
            module, _, name = ENGINES[stored["kind"]].rpartition(".")
            settings = {setting: value for setting, value in stored.items() if setting != "kind"}
            stored_engine = getattr(import_module(f"pellucid.{module}"), name)(**settings)
        if stored["kind"] not in _INSIDE and not allow_outside:
            raise IndexFolderError(
                f"the index names the engine {stored_engine!r:.300}; no server is contacted only because a folder "
                "names it. If you trust it: Index.open(path, allow_outside=True), or pellucid --allow-outside on the "
                "command line. Or give the engine: Index.open(path, engine=...)"
            )
        return stored_engine
    requested = None if engine == LOCAL else engine
    kind = store_engine(requested)["kind"]  # type: ignore[arg-type]  # another string is refused there
    if kind != stored["kind"] and not any_kind:
        raise InputError(
            f"the vectors of the index are in {stored['kind']}, not in {kind}. Move them there: "
            "Index.open(path, engine=..., rebuild=True)"
        )
    return requested


def blocks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `size`."""
    waiting = iter(items)
    while block := list(islice(waiting, size)):
        yield block
