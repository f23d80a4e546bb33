"""What an engine has to do: the place of an index's vectors when they are not in its own segments.

A point is a passage: a number, a vector for each model of the index (a numpy row, or the pair of indices and values of
a sparse one; a model that knows nothing of the passage has none), and the metadata that can be filtered by. Numbers are
never used for another passage of the same generation. BM25 is always counted in the segments. The engines themselves
are in `engines/`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from pellucid.errors import IndexFolderError, InputError

Item = TypeVar("Item")

Vector = Any
"""A float32 row, or (indices, values) of a sparse one."""


class Point(NamedTuple):
    """A passage as the engine keeps it."""

    number: int
    vectors: Mapping[str, Vector]
    payload: Mapping[str, Any]


class Condition(NamedTuple):
    """A condition on a key of the payload; operator "in", "range" or "dates" (bounds), or "exists" (any of several)."""

    key: str
    operator: str
    value: Any
    negated: bool = False


Where = tuple[tuple[Condition, ...], ...]
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

    Attributes:
        approximate: the dense parts of which a search may miss a passage.
    """

    approximate: Collection[str]

    def close(self) -> None:
        """Release what is open."""

    def flush(self) -> None:
        """Return when every change before is safe, and every search sees it; nothing to do where a write waits."""
        return None

    def optimize(self) -> None:
        """Rearrange what was added for faster searches, where a server does not by itself."""
        return None

    def index_payload(self, key: str) -> None:
        """Make filters by a key of the payload fast, where that has to be asked for."""
        return None

    def put(self, points: Iterable[Point]) -> None:
        """Add points, or replace those of the same number.

        Raises:
            InputError: the engine cannot hold one.
            WritingError: the disk is full, or does not take it.
        """

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove points; numbers that are not there do not matter."""

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
        """Make an empty generation, in the place of what an interrupted rebuild left.

        Raises:
            InputError: another index is there, or the engine cannot hold a part.
            EngineError: it cannot be reached.
        """

    def open(self, generation: Generation) -> Engine:
        """Open a generation.

        Raises:
            IndexFolderError: it is missing, broken, or open in another process.
            EngineError: it cannot be reached, or has lost a part of it.
        """

    def sweep(self, folder: Path, used: str) -> None:
        """Remove all generations of the index in `folder` but the one used."""


LOCAL = "local"
"""No engine: the vectors are in the segments of the index."""

_INSIDE = (LOCAL, "edge")  # which open nothing outside the folder

ENGINES = {
    "edge": "engines.edge.Edge",
    "qdrant": "engines.qdrant.Qdrant",
    "milvus": "engines.milvus.Milvus",
    "ray": "engines.ray.Ray",
}
"""Kind of an engine, and the class of its settings with the file it is in."""


def written_engine(engine: EngineSettings | None) -> dict[str, Any]:
    """Return how an index writes its engine down."""
    if engine is None:
        return {"kind": LOCAL}
    if getattr(type(engine), "kind", None) not in ENGINES:
        raise InputError(f"the engine is {engine!r:.60}; give one of pellucid.engines, such as Qdrant(url=...)")
    return {"kind": engine.kind, **vars(engine)}


def chosen_engine(
    engine: EngineSettings | str | None, written: Mapping[str, Any], *, other: bool = False, allowed: bool = False
) -> Any:
    """Return the settings of the engine to open, the one given or the one written down; None for no engine.

    Args:
        engine: given, "local", or None.
        written: what the index wrote down.
        other: whether another kind than the one written down may be given.
        allowed: whether an engine outside the folder may be asked that the caller has not given.
    """
    if engine is None:
        found = None
        if written["kind"] != LOCAL:
            if written["kind"] not in ENGINES:
                raise IndexFolderError(
                    f"the engine of the index is {written['kind']!r:.40}, which this pellucid does not know; update it"
                )
            module, _, name = ENGINES[written["kind"]].rpartition(".")
            settings = {own: value for own, value in written.items() if own != "kind"}
            found = getattr(import_module(f"pellucid.{module}"), name)(**settings)
        if written["kind"] not in _INSIDE and not allowed:
            raise IndexFolderError(
                f"the index names the engine {found!r:.300}; a folder alone asks no server, nor with your keys. If "
                "you trust it: Index.open(path, allow_outside=True), or pellucid --allow-outside on the command line. "
                "Or give the engine: Index.open(path, engine=...)"
            )
        return found
    given = None if engine == LOCAL else engine
    kind = written_engine(given)["kind"]  # type: ignore[arg-type]  # another string is refused there
    if kind != written["kind"] and not other:
        raise InputError(
            f"the vectors of the index are in {written['kind']}, not in {kind}. Move them there: "
            "Index.open(path, engine=..., rebuild=True)"
        )
    return given


def blocks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `size`."""
    waiting = iter(items)
    while block := list(islice(waiting, size)):
        yield block
