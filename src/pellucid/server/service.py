"""What the server serves: opened models with their queues, indexes, and limits.

Texts of different requests that wait at the same moment go through the model in one call; no request waits for others.
A static model encodes a few texts faster than a thread can be woken, so it does that at once, in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import numpy as np

from pellucid.core.arrays import Role, l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, PellucidError
from pellucid.loading import load_by_name, open_sentence_transformer
from pellucid.progress import CancelledWorkError, cancellable
from pellucid.server.bodies import MAX_ANSWER_BYTES, ApiError
from pellucid.settings import Limits, Settings
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.lines import batches_by_size

if TYPE_CHECKING:
    from pellucid.index.index import Index

Result = TypeVar("Result")

_AT_ONCE_CHARS = 8_000  # a static model takes about a millisecond for them
_PIECE_TEXTS = 64  # a long request is queued piece by piece, so that others get their turns
_PIECE_CHARS = 1 << 20
_MAX_BATCH_TEXTS = 256  # of one call of a model
_MAX_DENSE_NUMBERS = MAX_ANSWER_BYTES // 16  # of a dense answer: a float32 has at most 15 characters and a comma
_log = logging.getLogger("uvicorn.error")


class _Job(NamedTuple):
    texts: list[str]
    role: Role
    rows: asyncio.Future[Any]


class Batcher:
    """The queue in front of one model."""

    def __init__(self, model: Embedder) -> None:
        """Begin to encode, in the event loop; `Guard` bounds how many requests wait."""
        self.model = model
        self._is_quick = isinstance(getattr(model, "encoder", model), StaticEmbedder)
        self._queue: asyncio.Queue[_Job] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "encode")
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the call that is running; requests have been answered by then."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=True)

    async def encode(self, texts: list[str], role: Role) -> Any:
        """Return one row for each text: float32 [texts, dimension], or a CSR matrix."""
        if self._is_quick and sum(map(len, texts)) <= _AT_ONCE_CHARS:
            return _encode(self.model, texts, role)
        rows = []
        for piece in batches_by_size(texts, _PIECE_TEXTS, len, _PIECE_CHARS):
            job = _Job(piece, role, asyncio.get_running_loop().create_future())
            self._queue.put_nowait(job)
            try:
                rows.append(await job.rows)
            finally:
                job.rows.cancel()  # if the client is gone, the work is skipped
        return rows[0] if len(rows) == 1 else vstack(rows)

    async def _run(self) -> None:
        while True:
            jobs = [await self._queue.get()]
            while not self._queue.empty() and sum(len(job.texts) for job in jobs) < _MAX_BATCH_TEXTS:
                if sum(len(text) for job in jobs for text in job.texts) >= _PIECE_CHARS:
                    break
                jobs.append(self._queue.get_nowait())
            waiting = [job for job in jobs if not job.rows.done()]
            for role in {job.role for job in waiting}:
                await self._encode_jobs([job for job in waiting if job.role == role])

    async def _encode_jobs(self, jobs: Sequence[_Job]) -> None:
        """Encode jobs of one role together; where that fails, one by one, so that none fails for another's text."""
        texts = [text for job in jobs for text in job.texts]

        def encode() -> Any:
            with cancellable(lambda: all(job.rows.done() for job in jobs)):
                return _encode(self.model, texts, jobs[0].role)

        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, encode)
        except CancelledWorkError:
            return
        except ApiError as error:
            if len(jobs) > 1:
                for job in jobs:
                    await self._encode_jobs([job])
            elif not jobs[0].rows.done():
                jobs[0].rows.set_exception(error)
            return
        start = 0
        for job in jobs:
            if not job.rows.done():
                job.rows.set_result(rows[start : start + len(job.texts)])
            start += len(job.texts)


def _encode(model: Embedder, texts: list[str], role: Role) -> Any:
    encode: Any = {"query": model.encode_query, "document": model.encode_document}.get(str(role), model.encode)
    try:
        return encode(texts)
    except CancelledWorkError:
        raise
    except InputError as error:
        raise ApiError(422, str(error)) from error
    except Exception as error:  # whatever a model raises, the queue continues
        _log.exception("the model failed")
        raise ApiError(424, f"the model failed: {type(error).__name__}") from error


@dataclass(frozen=True)
class ServerSettings(Settings):
    """What is served, and the limits.

    Attributes:
        models: bundled names, folders or hub ids; the first is used by requests that name none.
        index: folders of indexes; the first is used by requests that name none.
        token: what clients send as `Authorization: Bearer`; None lets everybody in.
        hosts: names by which requests without a token may ask, without ports; None for any. `serve` adds those of
            loopback.
        max_body_bytes: bytes of a body.
        max_waiting: requests that are in work at a time.
        timeout: seconds until a request is given up.
        rerank: a CrossEncoder, folder or hub id, for searches that ask for it.
        judge: let clients judge documents; judgements are written into the folder of the index.
    """

    models: tuple[str, ...] = ("static-en",)
    index: str | tuple[str, ...] | None = None
    token: str | None = None
    hosts: tuple[str, ...] | None = None
    max_body_bytes: Annotated[int, Limits(1)] = 16 << 20
    max_waiting: Annotated[int, Limits(1)] = 512
    timeout: Annotated[float, Limits(above=0)] = 60.0
    rerank: str | None = None
    judge: bool = False

    def __post_init__(self) -> None:
        """Check the limits."""
        super().__post_init__()
        if not self.models:
            raise InputError("no model is given to serve; name at least one, as static-en")
        if self.token is not None and not self.token.strip():
            raise InputError("the token is empty; set PELLUCID_TOKEN to a secret, or unset it")


class Service:
    """Opened models and indexes."""

    def __init__(self, settings: ServerSettings, models: Mapping[str, Embedder] | None = None) -> None:
        """Open what `settings` name; `models`, opened by name, take the place of `settings.models`."""
        self.settings = settings
        self.models = dict(models) if models is not None else load_by_name(settings.models)
        self.default = next(iter(self.models))
        self.indexes = _open_indexes(settings)
        self.reranker = None if settings.rerank is None else open_sentence_transformer(settings.rerank, "CrossEncoder")
        folders = [Path(index.folder) for index in self.indexes.values()]
        folders += [model.folder for model in self.models.values() if model.folder is not None]
        self.folders = {
            str(path) for folder in folders for path in (folder.absolute(), folder.resolve())
        }  # named by no reply
        self.batchers: dict[str, Batcher] = {}
        self._threads = ThreadPoolExecutor(2, "reasons")
        self._measuring_thread = ThreadPoolExecutor(1, "measuring")  # which takes seconds, and blocks no other request

    def start(self) -> None:
        """Begin to serve, in the event loop, once nothing is left to import that the first requests would wait for."""
        for name, model in self.models.items():
            self.batchers[name] = Batcher(model)
            with suppress(Exception):  # a request will meet it again, and answer with it
                model.explain("ready, 3.14 zzqx", "ready").to_dict()

    async def stop(self) -> None:
        """Finish what is running, and close the indexes."""
        for batcher in self.batchers.values():
            await batcher.stop()
        for threads in (self._threads, self._measuring_thread):
            threads.shutdown(wait=True, cancel_futures=True)
        for index in self.indexes.values():
            index.close()

    def model_name(self, name: str | None) -> str:
        """Return the name of the model that a request asks for; None is the first."""
        return _served("model", name, self.models)

    def searched(self, name: str | None = None) -> Index:
        """Return an index by its name, the first without one, or refuse."""
        if not self.indexes:
            raise ApiError(404, "no index is served here; start the server with: pellucid serve --index FOLDER")
        return self.indexes[_served("index", name, self.indexes)]

    async def dense(self, name: str, texts: list[str], role: Role, *, normalize: bool, dimensions: int | None) -> Any:
        """Return dense rows, float32 [texts, dimensions]; refused where dimensions cannot be cut, or are too many."""
        model = self.models[name]
        width = model.get_embedding_dimension()
        if dimensions is not None and dimensions != width and not (model.truncates and 1 <= dimensions <= width):
            why = f"from 1 to {width}" if model.truncates else f"{width}, which cannot be cut: they have no order"
            raise ApiError(422, f"dimensions is {dimensions}; {name} has {why}", "dimensions")
        if len(texts) * width > _MAX_DENSE_NUMBERS:
            most = f"at most {_MAX_DENSE_NUMBERS // width:,} texts go in one request"
            raise ApiError(422, f"{len(texts):,} rows of {width:,} numbers are too many; {most}", "input")
        rows = await self.batchers[name].encode(texts, role)
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        is_cut = dimensions is not None and dimensions < width
        rows = rows[:, :dimensions] if is_cut else rows
        has_unit_rows = isinstance(model, StaticEmbedder) and not is_cut  # nothing is rounded twice
        return np.ascontiguousarray(l2_normalize(rows) if (normalize or is_cut) and not has_unit_rows else rows, "<f4")

    async def run_in_pool(self, work: Callable[..., Result], *arguments: Any, measures: bool = False) -> Result:
        """Run `work` beside the event loop; it ends at its next `check_cancelled` if the request ends before."""
        is_over = threading.Event()

        def call() -> Result:
            with cancellable(is_over.is_set):
                return work(*arguments)

        job = (self._measuring_thread if measures else self._threads).submit(call)
        try:
            return await asyncio.wrap_future(job)
        except InputError as error:
            raise ApiError(422, str(error)) from error
        except PellucidError as error:  # what is wrong with the server's files is no business of the client
            _log.exception("a request failed")
            raise ApiError(500, f"the server failed: {type(error).__name__}; its log says why") from error
        finally:
            is_over.set()


def _served(kind: str, name: str | None, served: Mapping[str, Any]) -> str:
    """Return the name that a request asks for, the first without one."""
    if name is not None and name not in served:
        message = f"no {kind} {name!r:.80} is served here; there are: {', '.join(served)}"
        raise ApiError(404, message, kind, f"{kind}_not_found")
    return next(iter(served)) if name is None else name


def _open_indexes(settings: ServerSettings) -> dict[str, Index]:
    """Return the indexes by the names of their folders."""
    folders = (settings.index,) if isinstance(settings.index, str) else settings.index or ()
    names = [Path(folder).resolve().name for folder in folders]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two indexes are called {min(twice)!r:.80}; rename the folder of one")
    if not folders:
        return {}
    from pellucid.index.index import Index

    return {name: Index.open(folder) for name, folder in zip(names, folders)}
