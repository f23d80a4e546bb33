"""What the server serves: opened models with their queues, an index, and limits.

Texts of different requests that wait at the same moment go through the model in one call; no request waits for others.
A static model encodes a few texts faster than a thread can be woken, so it does that at once, in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
import numpy as np

from pellucid.core.arrays import Role, check_explained, l2_normalize, vstack
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError, PellucidError, check_numbers
from pellucid.loading import load, load_by_name
from pellucid.persistence.store import temporary_folder, translate_os_errors
from pellucid.progress import CancelledWorkError, cancellable, check_cancelled
from pellucid.server.bodies import MAX_ANSWER_BYTES, ApiError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.lines import batches_by_size

if TYPE_CHECKING:
    from pellucid.index.index import Index

Result = TypeVar("Result")

WARM_TEXT = "ready, 3.14 zzqx Ünï 日本語"  # known words and others, in several scripts
_AT_ONCE = 8_000  # characters: a static model takes about a millisecond for them
_PIECE_TEXTS = 64  # texts; a long request is queued piece by piece, so that others get their turns
_PIECE_CHARS = 1 << 20
_MAX_BATCH_TEXTS = 256  # of one call of a model
_MAX_DENSE_NUMBERS = MAX_ANSWER_BYTES // 16  # of a dense answer: a float32 has at most 15 characters and a comma
_SLOW_WAITING = 2  # jobs behind the one that runs
_MAX_MODELS = 16  # that may be served where clients save more of them: each takes memory


class _Job(NamedTuple):
    texts: list[str]
    role: Role
    rows: asyncio.Future[Any]


class Batcher:
    """The queue in front of one model."""

    def __init__(self, model: Embedder, max_waiting: int, *, is_warm: bool = True) -> None:
        """Take a model; more than `max_waiting` requests in its queue are refused."""
        self.model = model
        self.is_warm = is_warm  # until `warm_up` is done, nothing is encoded in the event loop
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
        """Return one row for each text: float32 [texts, dimension], or a CSR matrix."""
        if self._is_quick and self.is_warm and sum(map(len, texts)) <= _AT_ONCE:
            return _encode(self.model, texts, role)
        pieces = list(batches_by_size(texts, _PIECE_TEXTS, len, _PIECE_CHARS))
        rows = [await self._queued(piece, role, may_wait=number > 0) for number, piece in enumerate(pieces)]
        return rows[0] if len(rows) == 1 else vstack(rows)

    async def _queued(self, texts: list[str], role: Role, *, may_wait: bool) -> Any:
        """Put texts into the queue and return their rows; only the first piece of a request may be refused."""
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
            job.rows.cancel()  # if the client is gone, the work is skipped

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
    """Import and index what the first requests would wait for."""
    static = _static(model)
    if static is not None:
        static.start_compiled()
    _call_all(model)


def _call_all(model: Embedder) -> None:
    for work in (model.encode_query, model.encode_document, model.coverage, model.describe, model.explain):
        with suppress(PellucidError, NotImplementedError):
            work(WARM_TEXT)
    with suppress(PellucidError, NotImplementedError):
        model.explain(WARM_TEXT, WARM_TEXT)


def _static(model: Embedder) -> StaticEmbedder | None:
    """Return the static model that `model` is or contains."""
    encoder = getattr(model, "encoder", model)
    return encoder if isinstance(encoder, StaticEmbedder) else None


def _encode(model: Embedder, texts: list[str], role: Role) -> Any:
    try:
        return {None: model.encode, "query": model.encode_query, "document": model.encode_document}[role](texts)
    except CancelledWorkError:
        raise
    except PellucidError as error:
        raise ApiError(422, str(error)) from error
    except Exception as error:  # a transformer may fail in any way; others are still answered
        raise ApiError(424, f"the model failed: {error!s:.200}") from error


def _fail(job: _Job, error: Exception) -> None:
    if not job.rows.done():
        job.rows.set_exception(error)


@dataclass(frozen=True)
class ServerSettings:
    """What is served, and its limits.

    Attributes:
        models: names, folders or hub ids; the first one is used for requests without a model.
        index: folder of an index, or several; the first one is used for requests without an index.
        save_to: folder where clients may save edited models; None forbids it.
        token: what clients must send as `Authorization: Bearer`; None for no token.
        max_texts: of one request.
        max_characters: of one text.
        max_body_bytes: of one request.
        max_waiting: requests in work at a time; more get 429.
        timeout: seconds until a request that is not read or answered is given up.
        read_only: open the index only for reading, as any number of processes may while one writes.
        hosts: names that clients may call the server by; None allows any. A defence against web pages that reach a
            server on loopback by a name of their own (DNS rebinding).
    """

    models: tuple[str, ...] = ("static-en",)
    index: str | tuple[str, ...] | None = None
    save_to: str | None = None
    token: str | None = None
    max_texts: int = 2048
    max_characters: int = 200_000
    max_body_bytes: int = 16 << 20
    max_waiting: int = 512
    timeout: float = 60.0
    read_only: bool = False
    hosts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the limits."""
        check_numbers(self, "max_texts", "max_characters", "max_body_bytes", "max_waiting", "timeout", above=0)
        if not self.models:
            raise InputError("no model is given to serve; name at least one, as static-en")


class Service:
    """Opened models and an index."""

    def __init__(self, settings: ServerSettings, models: Mapping[str, Embedder] | None = None) -> None:
        """Open what `settings` name; `models`, opened by name, take the place of `settings.models`."""
        self.settings = settings
        self.models = dict(models) if models is not None else load_by_name(settings.models)
        self.default = next(iter(self.models))
        if settings.save_to is not None:
            with translate_os_errors(Path(settings.save_to)):
                Path(settings.save_to).mkdir(parents=True, exist_ok=True)
        self.indexes = _open_indexes(settings)
        self.is_ready = self._is_ending = False
        self.is_sparse: dict[str, bool] = {}
        self._batchers: dict[str, Batcher] = {}
        self._threads = ThreadPoolExecutor(2, "reasons")
        self._slow_thread = ThreadPoolExecutor(1, "slow")
        self._slow_jobs = 0
        self._saving: set[str] = set()  # names of models that are being saved

    def start(self, also: Callable[[], Any] = lambda: None) -> None:
        """Begin to serve, in the event loop; until `is_ready` a thread calls what is slow at first, such as `also`."""
        for name, model in self.models.items():
            self._begin(name, model, is_sparse=hasattr(model.encode("ready"), "tocsr"))
        loop, models = asyncio.get_running_loop(), list(self.models.values())

        def search() -> None:
            for index in self.indexes.values():
                with suppress(PellucidError):
                    index.search(WARM_TEXT, 1).to_dict()

        def warmed() -> None:
            for batcher in self._batchers.values():
                batcher.is_warm = True
            self.is_ready = not self._is_ending

        def warm() -> None:
            for work in (*(lambda model=model: warm_up(model) for model in models), search, also):
                try:
                    work()
                except Exception:  # a request will meet it again, and answer with it
                    logging.getLogger("uvicorn.error").exception("warming up failed")
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(warmed)

        threading.Thread(target=warm, name="warm", daemon=True).start()  # the end need not wait for it

    def _begin(self, name: str, model: Embedder, *, is_sparse: bool) -> None:
        """Begin to serve a model; called in the event loop."""
        self._batchers[name] = Batcher(model, self.settings.max_waiting, is_warm=self.is_ready)
        self._batchers[name].start()
        self.is_sparse[name] = is_sparse
        self.models[name] = model

    async def stop(self) -> None:
        """Finish what is running, and close the index."""
        self.is_ready, self._is_ending = False, True
        for batcher in self._batchers.values():
            await batcher.stop()
        for threads in (self._threads, self._slow_thread):
            threads.shutdown(wait=True, cancel_futures=True)
        for index in self.indexes.values():
            index.close()

    def model_name(self, name: str | None) -> str:
        """Return the name of the model that a request asks for; None is the first."""
        if name is None:
            return self.default
        if name not in self.models:
            message = f"no model {name!r:.80} is served here; there are: {', '.join(self.models)}"
            raise ApiError(404, message, "model", "model_not_found")
        return name

    def texts(self, value: Any, param: str, max_texts: int | None = None) -> list[str]:
        """Return the texts of a request, checked against the limits."""
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list):
            raise ApiError(422, f"{param} is {type(value).__name__}; give a string or a list of strings", param)
        if not texts:
            raise ApiError(400, f"{param} is empty; give at least one text", param)
        max_texts = self.settings.max_texts if max_texts is None else max_texts
        if len(texts) > max_texts:
            raise ApiError(422, f"{param} has {len(texts):,} texts; at most {max_texts:,} go in one request", param)
        for position, text in enumerate(texts):
            if not isinstance(text, str):
                message = f"text {position} of {param} is {type(text).__name__}; every text must be a string"
                if isinstance(text, int) or (isinstance(text, list) and text and isinstance(text[0], int)):
                    message = (
                        f"{param} holds token ids, and they are those of another vocabulary; send text. In LangChain: "
                        "OpenAIEmbeddings(check_embedding_ctx_length=False)"
                    )
                raise ApiError(422, message, param)
            if len(text) > self.settings.max_characters:
                what = f"text {position} of {param} has {len(text):,} characters"
                raise ApiError(422, f"{what}; at most {self.settings.max_characters:,} are taken", param)
        return texts

    async def encode(self, name: str, texts: list[str], role: Role) -> Any:
        """Return the embeddings of checked texts, as the model gives them."""
        return await self._batchers[name].encode(texts, role)

    async def dense(self, name: str, texts: list[str], role: Role, *, normalize: bool, dimensions: int | None) -> Any:
        """Return dense rows, float32 [texts, dimensions]; refused where dimensions cannot be cut, or are too many."""
        model = self.models[name]
        width = model.get_embedding_dimension()
        if dimensions is not None and dimensions != width and not (model.truncates and 1 <= dimensions <= width):
            why = f"from 1 to {width}" if model.truncates else f"{width}, which cannot be cut: they have no order"
            raise ApiError(422, f"dimensions is {dimensions}; {name} has {why}", "dimensions")
        if len(texts) * width > _MAX_DENSE_NUMBERS:
            most = f"at most {_MAX_DENSE_NUMBERS // width:,} texts go in one request, or ask /embed_sparse"
            raise ApiError(422, f"{len(texts):,} rows of {width:,} numbers are too many; {most}", "input")
        rows = await self.encode(name, texts, role)
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        is_cut = dimensions is not None and dimensions < width
        rows = rows[:, :dimensions] if is_cut else rows
        has_unit_rows = isinstance(self.models[name], StaticEmbedder) and not is_cut  # nothing is rounded twice
        return np.ascontiguousarray(l2_normalize(rows) if (normalize or is_cut) and not has_unit_rows else rows, "<f4")

    def check_explained(self, texts: Mapping[str, str | None]) -> None:
        """Check texts to explain, by the names of their fields."""
        present = {param: text for param, text in texts.items() if text is not None}
        for param, text in present.items():
            self.texts(text, param)
        try:
            check_explained(*present.values())
        except InputError as error:
            raise ApiError(422, str(error), next(iter(present))) from error

    async def run_in_pool(self, work: Callable[[], Result]) -> Result:
        """Run `work` beside the event loop; it ends at its next `check_cancelled` if the request ends before."""
        return await self._run(self._threads, work)

    async def run_if_long(self, texts: Sequence[str], work: Callable[[], Result]) -> Result:
        """Run `work` on texts: at once if they are short, otherwise beside the event loop."""
        return work() if sum(map(len, texts)) <= _AT_ONCE else await self.run_in_pool(work)

    async def run_write_shielded(self, work: Callable[[], Result]) -> Result:
        """Run `work` that writes: to its end once it has begun, even if the request ends, otherwise not at all."""
        job = self._threads.submit(work)
        with _refusals():
            try:
                return await asyncio.shield(asyncio.wrap_future(job))
            except asyncio.CancelledError:
                if job.cancel():
                    raise
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([asyncio.wrap_future(job)])
                return job.result()

    async def run_in_slow_pool(self, work: Callable[[], Result]) -> Result:
        """Run `work` that takes many seconds, one at a time, as `run_in_pool` does."""
        if self._slow_jobs > _SLOW_WAITING:
            raise ApiError(429, "too many maps are being drawn; try again in a moment")

        def ended(_: Any) -> None:
            self._slow_jobs -= 1

        self._slow_jobs += 1
        return await self._run(self._slow_thread, work, ended)

    async def _run(
        self, pool: ThreadPoolExecutor, work: Callable[[], Result], ended: Callable[[Any], None] = lambda _: None
    ) -> Result:
        is_over = threading.Event()

        def call() -> Result:
            with cancellable(is_over.is_set):
                return work()

        job = pool.submit(call)
        job.add_done_callback(ended)
        with _refusals():
            try:
                return await asyncio.wrap_future(job)
            finally:
                is_over.set()

    def saved_to(self) -> Path:
        """Return the folder that clients may save to, or refuse."""
        if self.settings.save_to is None:
            raise ApiError(403, "this server saves nothing; start it with: pellucid serve --save-to FOLDER")
        return Path(self.settings.save_to)

    async def save_model(self, name: str, edited: Callable[[], Embedder]) -> None:
        """Save what `edited` returns under a new name, and serve it; undone if the request ends before the answer."""
        folder = self.saved_to() / name
        if name in self.models or name in self._saving or os.path.lexists(folder):
            raise _name_taken(name)
        if len(self.models) + len(self._saving) >= _MAX_MODELS:
            served = f"{len(self.models)} models are served and {len(self._saving)} are being saved"
            raise ApiError(409, f"{served}; there can be {_MAX_MODELS}. Start the server anew")

        def undo(job: Future[Any]) -> None:
            if not job.cancelled() and job.exception() is None:
                shutil.rmtree(folder, ignore_errors=True)
            self._saving.discard(name)

        is_over = threading.Event()

        def save() -> tuple[Embedder, bool]:
            with cancellable(is_over.is_set):
                return _saved(edited(), folder)

        self._saving.add(name)
        job = self._threads.submit(save)
        try:
            with _refusals():
                model, is_sparse = await asyncio.wrap_future(job)
        except BaseException:
            is_over.set()
            job.add_done_callback(undo)  # at once, or when the thread is done with it
            raise
        self._saving.discard(name)
        self._begin(name, model, is_sparse=is_sparse)  # nothing is awaited between here and the answer

    def searched(self, name: str | None = None) -> Index:
        """Return an index by its name, the first without one, or refuse."""
        if not self.indexes:
            raise ApiError(404, "no index is served here; start the server with: pellucid serve --index FOLDER")
        if name is None:
            return next(iter(self.indexes.values()))
        if name not in self.indexes:
            message = f"no index {name!r:.80} is served here; there are: {', '.join(self.indexes)}"
            raise ApiError(404, message, "index")
        return self.indexes[name]


def _open_indexes(settings: ServerSettings) -> dict[str, Index]:
    """Return the indexes by the names of their folders; a second one of a name gets a number."""
    folders = (settings.index,) if isinstance(settings.index, str) else settings.index or ()
    indexes: dict[str, Index] = {}
    if folders:
        from pellucid.index.index import Index
    for folder in folders:
        options: dict[str, Any] = {"read_only": True} if settings.read_only else {}
        index = Index.open(folder, **options)
        base = Path(index.folder).resolve().name or "index"
        names = (base, *(f"{base}-{number}" for number in range(2, len(folders) + 1)))
        indexes[next(name for name in names if name not in indexes)] = index
    return indexes


@contextmanager
def _refusals() -> Iterator[None]:
    """Answer with pellucid's own errors."""
    try:
        yield
    except PellucidError as error:
        raise ApiError(422, str(error)) from error


def _saved(model: Embedder, folder: Path) -> tuple[Embedder, bool]:
    """Save a model as a new folder, whole or not at all; return it as opened from there, and whether it is sparse."""
    with translate_os_errors(folder), temporary_folder(prefix=".saving-", parent=folder.parent) as scratch:
        model.save_pretrained(scratch / folder.name)
        try:
            os.rename(scratch / folder.name, folder)
        except OSError as error:
            if os.path.lexists(folder):
                raise _name_taken(folder.name) from error
            raise
    try:
        opened = load(folder)
        check_cancelled()
        warm_up(opened)
        return opened, hasattr(opened.encode("ready"), "tocsr")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _name_taken(name: str) -> ApiError:
    return ApiError(409, f"there is a model {name!r} already, and nothing is overwritten; give another name", "name")
