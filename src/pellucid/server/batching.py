"""Requests that arrive at the same moment are encoded together.

Texts of different requests that wait at the same moment go through the model in one call; no request waits for others.
A static model encodes a few texts faster than a thread can be woken, so it does that at once, in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from typing import Any, NamedTuple

from pellucid.base import Embedder
from pellucid.embeddings import Role, stacked
from pellucid.errors import PellucidError
from pellucid.server.bodies import ApiError
from pellucid.static.embedder import StaticEmbedder

WARM_TEXT = "ready, 3.14 zzqx Ünï 日本語"  # known words and others, in several scripts
_AT_ONCE = 8_000  # characters: a static model takes about a millisecond for them
_PIECE = 64  # texts; a long request is queued piece by piece, so that others get their turns
_MOST_TEXTS = 256  # of one call of a model


class _Job(NamedTuple):
    texts: list[str]
    role: Role
    rows: asyncio.Future[Any]


class Batcher:
    """The queue in front of one model.

    Attributes:
        model: the model.
        is_warm: whether `warm_up` is done; until then nothing is encoded in the event loop.
    """

    def __init__(self, model: Embedder, max_waiting: int, *, is_warm: bool = True) -> None:
        """Take a model; more than `max_waiting` requests in its queue are refused."""
        self.model, self.is_warm = model, is_warm
        self._is_quick = _static(model) is not None
        self._queue: asyncio.Queue[_Job] = asyncio.Queue(max_waiting)
        self._thread = ThreadPoolExecutor(1, "encode")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to encode; called in the event loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the call that is running, and refuse what still waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=True)
        while not self._queue.empty():
            _fail(self._queue.get_nowait(), ApiError(503, "the server is shutting down"))

    async def encode(self, texts: list[str], role: Role) -> Any:
        """Return one row for each text: float32 [texts, dimension], or a CSR matrix.

        Raises:
            ApiError: 429 where too many wait, 424 where the model fails.
        """
        if self._is_quick and self.is_warm and sum(map(len, texts)) <= _AT_ONCE:
            return _encode(self.model, texts, role)
        pieces = [texts[start : start + _PIECE] for start in range(0, len(texts), _PIECE)]
        rows = [await self._queued(piece, role, may_wait=number > 0) for number, piece in enumerate(pieces)]
        return rows[0] if len(rows) == 1 else stacked(rows)

    async def _queued(self, texts: list[str], role: Role, *, may_wait: bool) -> Any:
        """Put texts into the queue and return their rows; a full queue refuses the first piece of a request alone."""
        job = _Job(texts, role, asyncio.get_running_loop().create_future())
        try:
            if may_wait:
                await self._queue.put(job)
            else:
                self._queue.put_nowait(job)
            return await job.rows
        except asyncio.QueueFull:
            raise ApiError(429, "too many requests are waiting; try again in a moment") from None
        finally:
            job.rows.cancel()  # of effect where the client is gone: the work is skipped

    async def _run(self) -> None:
        while True:
            jobs = [await self._queue.get()]
            while not self._queue.empty() and sum(len(job.texts) for job in jobs) < _MOST_TEXTS:
                jobs.append(self._queue.get_nowait())
            waiting = [job for job in jobs if not job.rows.done()]
            for role in {job.role for job in waiting}:
                await self._encode_jobs([job for job in waiting if job.role == role])

    async def _encode_jobs(self, jobs: Sequence[_Job]) -> None:
        """Encode jobs of one role together; where that fails, each alone, so that none fails for another's text."""
        texts = [text for job in jobs for text in job.texts]
        loop = asyncio.get_running_loop()
        try:
            rows = await loop.run_in_executor(self._thread, _encode, self.model, texts, jobs[0].role)
        except ApiError as error:
            if len(jobs) == 1:
                _fail(jobs[0], error)
                return
            for job in jobs:
                await self._encode_jobs([job])
            return
        start = 0
        for job in jobs:
            if not job.rows.done():
                job.rows.set_result(rows[start : start + len(job.texts)])
            start += len(job.texts)


def warm_up(model: Embedder) -> None:
    """Import and compile what the first requests to a model would wait for: half a minute where nothing is cached."""
    static = _static(model)
    if static is not None:
        aside = copy(static)  # the model itself answers without compiled code meanwhile
        aside._started()
        _call_all(aside)
        static._started()  # else it would be made in the midst of some request, once there were enough texts
    _call_all(model)


def _call_all(model: Embedder) -> None:
    """Call what requests call."""
    for work in (model.encode_query, model.encode_document, model.coverage, model.describe, model.explain):
        with suppress(PellucidError, NotImplementedError):
            work(WARM_TEXT)
    with suppress(PellucidError, NotImplementedError):
        model.explain(WARM_TEXT, WARM_TEXT)


def _static(model: Embedder) -> StaticEmbedder | None:
    """Return the static model that `model` is or stands on."""
    encoder = getattr(model, "encoder", model)
    return encoder if isinstance(encoder, StaticEmbedder) else None


def _encode(model: Embedder, texts: list[str], role: Role) -> Any:
    try:
        return {None: model.encode, "query": model.encode_query, "document": model.encode_document}[role](texts)
    except PellucidError as error:
        raise ApiError(422, str(error)) from error
    except Exception as error:  # a transformer may fail in any way; the server goes on
        raise ApiError(424, f"the model failed: {error!s:.200}") from error


def _fail(job: _Job, error: Exception) -> None:
    if not job.rows.done():
        job.rows.set_exception(error)
