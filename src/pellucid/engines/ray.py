"""The vectors of an index in Ray actors, each of which owns a shard of Qdrant Edge; lost actors are replaced.

A passage lies in the shard of its document, and each shard on several actors with a folder of their own. A write has
succeeded when all of them have flushed it, with the number of the write: a point of the shard that is no passage. An
actor that is lost is started again. It opens its folder, and answers nothing before it holds what another actor of its
shard holds, or, without one, has the number of the last write. Where no actor has, there is an error and no answer.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pellucid.engines.edge import EdgeEngine, sweep_folders
from pellucid.engines.points import translate_errors
from pellucid.errors import EngineError, IndexFolderError, check_integer, missing_extra
from pellucid.index.documents import PASSAGE_BITS
from pellucid.index.engine import Engine, EngineSettings, Generation, Item, Point, Vector, Where, blocks
from pellucid.process import environment

try:
    import ray as cluster
    from ray.exceptions import RayError, RayTaskError
except ImportError as error:
    raise missing_extra("ray", "scale") from error

_STAMP_POINT_ID = 0  # the number of the point that says which write was the last; the first document has number 1
_PAGE_POINTS = 1000  # that an actor copies from another at once
_ACTOR_THREADS = 4  # calls that an actor handles at the same time
_START_TIMEOUT_S = 120  # of an actor
_RELEASE_TIMEOUT_S = 20  # for the folder of a lost actor, which may stay locked
_MAX_TRIES = 3  # for a change whose actors are lost while it is made


@dataclass(frozen=True)
class Ray(EngineSettings):
    """Actors of a Ray cluster; of this machine, where none is running and no address is given.

    Attributes:
        shards: into how many the documents are divided.
        replicas: how many actors hold each shard. A shard answers as long as one of them is there.
        folder: where the actors keep their shards, the same path on every node; "" is the folder of the index. An actor
            that comes up on another node without it is filled from its replicas; on shared storage it finds it.
        address: of the cluster, such as "auto" or "ray://10.0.0.5:10001".
        exact: multiply a query with every dense vector; else a large shard is searched through a graph, which may miss
            some of the best.
    """

    shards: int = 2
    replicas: int = 2
    folder: str = ""
    address: str = ""
    exact: bool = False

    kind: ClassVar[str] = "ray"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_integer("shards", self.shards)
        check_integer("replicas", self.replicas)

    def create(self, generation: Generation) -> RayEngine:
        shutil.rmtree(self._folder(generation.folder) / generation.name, ignore_errors=True)
        return self._start_engine(generation, new=True)

    def open(self, generation: Generation) -> RayEngine:
        return self._start_engine(generation, new=False)

    def sweep(self, folder: Path, used: str) -> None:
        sweep_folders(self._folder(folder), used)

    def _folder(self, index: Path) -> Path:
        return Path(self.folder or index).absolute()

    def _start_engine(self, generation: Generation, *, new: bool) -> RayEngine:
        if not cluster.is_initialized():
            here = {} if self.address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            nothing_is_sent = environment("RAY_USAGE_STATS_ENABLED", "0", is_default=True)
            with translate_errors(f"Ray at {self.address or 'this machine'}"), nothing_is_sent:
                cluster.init(address=self.address or None, log_to_driver=False, **here)
        dense, sparse = dict(generation.dense), list(generation.sparse)
        folder = self._folder(generation.folder) / generation.name
        folders = [[folder / f"shard-{shard}-{n}" for n in range(self.replicas)] for shard in range(self.shards)]
        shards = [
            [_Replica(replica_folder, dense, sparse, exact=self.exact) for replica_folder in shard] for shard in folders
        ]
        return RayEngine(shards, () if self.exact else tuple(dense), new=new)


class _Owner:
    """What runs in an actor: one shard, in one folder."""

    def __init__(self, folder: Path, dense: Mapping[str, int], sparse: Sequence[str], exact: bool) -> None:
        """Open the shard, or make an empty one where there is none."""
        until = time.monotonic() + _RELEASE_TIMEOUT_S
        while True:
            try:
                if folder.is_dir():
                    self._shard = EdgeEngine.open(folder, dense, exact=exact)
                else:
                    self._shard = EdgeEngine.create(folder, dense, sparse, exact=exact)
                return
            except IndexFolderError as error:
                locked = "open in another process" in str(error)
                if locked and time.monotonic() > until:
                    raise
                if not locked:
                    shutil.rmtree(folder)  # broken: another actor has what it held, or the shard is lost
                time.sleep(0.1)  # the process before is ending

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of the shard."""
        result = getattr(self._shard, method)(*arguments)
        return list(result) if isinstance(result, Iterator) else result

    def stamp(self) -> int:
        """Return the number of the last write that was flushed; -1 for a shard that is new."""
        payloads = self._shard.payloads([_STAMP_POINT_ID])
        return int(payloads[_STAMP_POINT_ID]["write"]) if payloads else -1

    def flush(self, write: int) -> None:
        """Write everything to disk, with the number of this write."""
        self._shard.put([Point(_STAMP_POINT_ID, {}, {"write": write})])
        self._shard.flush()

    def page(self, numbers: Sequence[int], names: Sequence[str]) -> list[Point]:
        """Return points as they can be put into another shard."""
        vectors, payloads = self._shard.vectors(numbers, names), self._shard.payloads(numbers)
        return [Point(number, vectors[number], payloads[number]) for number in payloads]


class _LostError(EngineError):
    """An actor is gone."""


class _Replica:
    """One actor of a shard, and what it takes to start it again."""

    def __init__(self, folder: Path, dense: dict[str, int], sparse: list[str], *, exact: bool) -> None:
        self.folder, self._parts, self._exact = folder, (dense, sparse), exact
        self.current = False  # whether it may answer
        self.actor: Any = None

    def start(self) -> None:
        self.kill()
        options = {"num_cpus": 0, "max_concurrency": _ACTOR_THREADS, "scheduling_strategy": "SPREAD"}
        self.actor = cluster.remote(**options)(_Owner).remote(self.folder, *self._parts, self._exact)

    def kill(self) -> None:
        self.current = False
        if self.actor is not None:
            cluster.kill(self.actor)
            self.actor = None

    def ask(self, method: str, *arguments: Any) -> _Call:
        """Begin a call of `_Owner`."""
        actor = self.actor
        try:
            return _Call(self, actor, getattr(actor, method).remote(*arguments))
        except (RayError, AttributeError) as error:  # lost, or not started
            raise self.lost_error(actor, error) from error

    def lost_error(self, actor: Any, error: Exception) -> _LostError:
        """Return the error of a lost actor; the replica answers no more, unless it has another actor already."""
        if self.actor is actor:
            self.current = False
        return _LostError(f"the actor of {self.folder} is lost: {error!s:.200}")

    def copy_from(self, source: _Replica) -> None:
        """Take over what another actor of the shard has; points never change, so that their numbers say all."""
        here, there = (set(replica.ask("do", "numbers", _STAMP_POINT_ID + 1).answer()) for replica in (self, source))
        for key in source.ask("do", "keys").answer():
            self.ask("do", "index_payload", key).answer()
        self.ask("do", "delete", sorted(here - there)).answer()
        for block in blocks(sorted(there - here), _PAGE_POINTS):
            points = source.ask("page", block, [*self._parts[0], *self._parts[1]]).answer()
            self.ask("do", "put", points).answer()
        self.ask("flush", source.ask("stamp").answer()).answer()


class _Call(NamedTuple):
    """A call of an actor that was begun."""

    replica: _Replica
    actor: Any
    reference: Any

    def answer(self, seconds: float | None = None) -> Any:
        """Wait for the answer."""
        try:
            return cluster.get(self.reference, timeout=seconds)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from error
        except RayError as error:
            raise self.replica.lost_error(self.actor, error) from error


class RayEngine(Engine):
    """Open shards, each on several actors."""

    def __init__(self, shards: list[list[_Replica]], approximate: Collection[str], *, new: bool) -> None:
        """Start the actors, and find out what those that were there hold."""
        self._shards, self.approximate = shards, approximate
        self._changing = threading.RLock()  # a change and the return of an actor come one after the other
        self._changed: set[int] = set()  # shards with changes that are not flushed
        self._torn = False  # whether such changes may be lost
        self._written = [0] * len(shards)  # the last write of each shard that was acknowledged
        self._turn = 0
        self._background = ThreadPoolExecutor(1, thread_name_prefix="pellucid-ray")
        for replica in self._all():
            replica.start()
        try:
            for shard in range(len(shards)):
                self._begin(shard, new)
        except BaseException:
            self.close()
            raise

    def _begin(self, shard: int, new: bool) -> None:
        """Let the actors answer that have the last write, and bring the others up to it."""
        replicas = self._shards[shard]
        if new:
            for replica in replicas:
                replica.ask("flush", 0).answer(_START_TIMEOUT_S)
        stamps = [replica.ask("stamp").answer(_START_TIMEOUT_S) for replica in replicas]
        self._written[shard] = max(stamps)
        if max(stamps) < 0:
            raise _lost(shard)
        for replica, stamp in zip(replicas, stamps):
            replica.current = stamp == max(stamps)
        self._restore(shard)

    def close(self) -> None:
        self._background.shutdown(cancel_futures=True)
        with self._changing:
            for replica in self._all():
                with suppress(EngineError):  # it is gone, and all that was acknowledged is on disk
                    replica.ask("do", "close").answer(_START_TIMEOUT_S)
                replica.kill()

    def flush(self) -> None:
        with self._changing:
            self._write({shard: ("flush", self._written[shard] + 1) for shard in self._changed})
            for shard in self._changed:
                self._written[shard] += 1
            self._changed.clear()
            torn, self._torn = self._torn, False
        if torn:
            raise EngineError("all actors of a shard were lost during a change; it was not made, try again")

    def optimize(self) -> None:
        self._write({shard: ("do", "optimize") for shard in range(len(self._shards))})

    def put(self, points: Iterable[Point]) -> None:
        self._change("put", points, lambda point: point.number)

    def delete(self, numbers: Iterable[int]) -> None:
        self._change("delete", numbers, int)

    def _change(self, method: str, items: Iterable[Any], number_of: Callable[[Any], int]) -> None:
        divided = self._divided(items, number_of)
        with self._changing:
            self._changed.update(divided)
            self._write({shard: ("do", method, shard_items) for shard, shard_items in divided.items()})

    def index_payload(self, key: str) -> None:
        self._write({shard: ("do", "index_payload", key) for shard in range(len(self._shards))})

    def numbers(self, start: int = 0) -> Iterator[int]:
        return merge(*self._read("do", "numbers", max(start, _STAMP_POINT_ID + 1)))

    def vectors(self, numbers: Collection[int], names: Collection[str]) -> dict[int, dict[str, Vector]]:
        calls = {
            shard: ("do", "vectors", shard_numbers, list(names))
            for shard, shard_numbers in self._divided(numbers, int).items()
        }
        return {number: vector for vectors in self._gather(calls) for number, vector in vectors.items()}

    def search(self, queries: Mapping[str, Vector], limit: int, where: Where = ()) -> dict[str, dict[int, float]]:
        answers = self._read("do", "search", dict(queries), limit, where)
        return {name: dict(islice(_joined(answers, name), limit)) for name in queries}

    def products(
        self, queries: Mapping[str, Vector], numbers: Mapping[str, Collection[int]]
    ) -> dict[str, dict[int, float]]:
        divided: dict[int, dict[str, list[int]]] = {}
        for name in queries:
            for shard, shard_numbers in self._divided(numbers.get(name, ()), int).items():
                divided.setdefault(shard, {})[name] = shard_numbers
        answers = self._gather(
            {shard: ("do", "products", dict(queries), shard_numbers) for shard, shard_numbers in divided.items()}
        )
        return {name: dict(_joined(answers, name)) for name in queries}

    # The actors

    def _all(self) -> list[_Replica]:
        return [replica for replicas in self._shards for replica in replicas]

    def _divided(self, items: Iterable[Item], number_of: Callable[[Item], int]) -> dict[int, list[Item]]:
        """Return the points, or their numbers, of each shard."""
        divided: dict[int, list[Item]] = {}
        for item in items:
            divided.setdefault((number_of(item) >> PASSAGE_BITS) % len(self._shards), []).append(item)
        return divided

    def _read(self, *call: Any) -> list[Any]:
        return self._gather({shard: call for shard in range(len(self._shards))})

    def _gather(self, calls: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Ask one actor of each shard, all at once; where it is lost, another."""
        begun = {shard: self._begin_call(shard, call) for shard, call in calls.items()}
        answers = []
        for shard, call in begun.items():
            for left in reversed(range(_MAX_TRIES * len(self._shards[shard]))):
                try:
                    answers.append(call.answer())
                    break
                except _LostError:
                    if not left:
                        raise
                    self._background.submit(self._restore, shard)
                    call = self._begin_call(shard, calls[shard])
        return answers

    def _begin_call(self, shard: int, call: tuple[Any, ...]) -> _Call:
        """Begin a call of an actor of a shard, of each in turn."""
        self._turn += 1
        current = [replica for replica in self._shards[shard] if replica.current]
        if not current:
            self._restore(shard)
            current = self._shards[shard]
        return current[self._turn % len(current)].ask(*call)

    def _write(self, remaining: Mapping[int, tuple[Any, ...]]) -> None:
        """Do the same on all actors of each shard, all at once; those that are lost are replaced first."""
        with self._changing:
            for _ in range(_MAX_TRIES):
                for shard in remaining:
                    self._restore(shard)
                begun = {
                    shard: [replica.ask(*call) for replica in self._shards[shard]] for shard, call in remaining.items()
                }
                failed = {
                    shard: error for shard, calls in begun.items() for replica in calls if (error := _failure(replica))
                }
                for error in failed.values():
                    if not isinstance(error, _LostError):
                        raise error
                remaining = {shard: remaining[shard] for shard in failed}  # a change can be made twice
                if not remaining:
                    return
        raise next(iter(failed.values()))

    def _restore(self, shard: int) -> None:
        """Start the lost actors of a shard again and bring them up to date, before they answer."""
        with self._changing:
            for left in reversed(range(_MAX_TRIES)):
                try:
                    for replica in self._shards[shard]:
                        if not replica.current:
                            replica.start()
                            self._catch_up(shard, replica)
                            replica.current = True
                    return
                except _LostError:
                    if not left:
                        raise

    def _catch_up(self, shard: int, replica: _Replica) -> None:
        """Bring an actor up to date that has opened its folder, or found none."""
        stamp = replica.ask("stamp").answer(_START_TIMEOUT_S)
        complete = stamp >= self._written[shard]
        if complete and shard not in self._changed:
            return
        source = next((source for source in self._shards[shard] if source.current), None)
        if source is not None:
            replica.copy_from(source)
        elif complete:
            self._torn = True  # changes that were not flushed are not sure to be there
        else:
            raise _lost(shard)


def _failure(call: _Call) -> Exception | None:
    """Return what the answer to a call raises."""
    try:
        call.answer()
    except Exception as error:
        return error
    return None


def _lost(shard: int) -> EngineError:
    return EngineError(
        f"all actors of shard {shard} have lost what was in it, and nothing is answered without it. "
        "The texts are safe: pellucid index rebuild"
    )


def _joined(answers: Iterable[Mapping[str, Mapping[int, float]]], name: str) -> Iterator[tuple[int, float]]:
    """Return what several shards found for a part, best first."""
    return merge(*(answer.get(name, {}).items() for answer in answers), key=lambda item: -item[1])
