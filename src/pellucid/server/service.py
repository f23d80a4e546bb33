"""What the server serves: opened models with their queues, an index, limits and counters."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import numpy as np

from pellucid.base import Embedder
from pellucid.embeddings import Role, check_explained, unit_rows
from pellucid.errors import InputError, PellucidError
from pellucid.pretrained import load, load_by_name
from pellucid.server.batching import WARM_TEXT, Batcher, warm_up
from pellucid.server.bodies import MOST_BYTES, ApiError
from pellucid.static.embedder import StaticEmbedder
from pellucid.store import writing_explained

if TYPE_CHECKING:
    from pellucid.index.index import Index

Result = TypeVar("Result")

_MOST_NUMBERS = MOST_BYTES // 16  # of a dense answer: a float32 has at most 15 characters and a comma
_SLOW_WAITING = 2  # jobs behind the one that runs
_MOST_MODELS = 16  # that may be served where clients save more of them: each takes memory


@dataclass(frozen=True)
class ServerSettings:
    """What is served, and its limits.

    Attributes:
        models: names, folders or hub ids; the first serves requests that name none.
        index: folder of an index.
        save_to: folder where clients may save models that they have edited; None lets them save nothing.
        token: what clients must send as `Authorization: Bearer`; None asks for nothing.
        max_texts: of one request.
        max_characters: of one text.
        max_body_bytes: of one request.
        max_waiting: requests in work at a time; more get 429.
        timeout: seconds until a request that is not read or answered is given up.
        read_only: open the index for reading alone, as any number of processes may while one writes.
        hosts: names that a client may call the server by; None allows any. The defence against pages that reach a
            server on loopback by a name of their own (DNS rebinding).
    """

    models: tuple[str, ...] = ("static-en",)
    index: str | None = None
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
        """Check the limits.

        Raises:
            InputError: one is below 1, or no model is given.
        """
        for name in ("max_texts", "max_characters", "max_body_bytes", "max_waiting", "timeout"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)!r:.40}; it must be above 0")
        if not self.models:
            raise InputError("no model is given to serve; name at least one, as static-en")


class Service:
    """Opened models and an index."""

    def __init__(self, settings: ServerSettings, models: Mapping[str, Embedder] | None = None) -> None:
        """Open what `settings` name; `models`, opened by name, take the place of `settings.models`.

        Raises:
            PellucidError: a model or the index cannot be opened.
        """
        self.settings = settings
        self.models = dict(models) if models is not None else load_by_name(settings.models)
        self.default = next(iter(self.models))
        if settings.save_to is not None:
            with writing_explained(Path(settings.save_to)):
                Path(settings.save_to).mkdir(parents=True, exist_ok=True)
        self.index: Index | None = None
        if settings.index is not None:
            from pellucid.index.index import Index

            options: dict[str, Any] = {"read_only": True} if settings.read_only else {}
            self.index = Index.open(settings.index, **options)
        self.is_ready = self._is_ending = False
        self.is_sparse: dict[str, bool] = {}
        self._batchers: dict[str, Batcher] = {}
        self._threads = ThreadPoolExecutor(2, "reasons")
        self._slow_thread = ThreadPoolExecutor(1, "slow")
        self._slow_jobs = 0
        self._saving: set[str] = set()  # names of models that are being saved

    def start(self, also: Callable[[], Any] = lambda: None) -> None:
        """Begin to serve; called in the event loop.

        Beside it everything is imported and compiled that the first requests would block all others for; `is_ready`
        says when that is done. Until then even a short text is encoded in a thread.

        Args:
            also: what else takes a while at its first call.
        """
        for name, model in self.models.items():
            self._begin(name, model, is_sparse=hasattr(model.encode("ready"), "tocsr"))
        loop, models = asyncio.get_running_loop(), list(self.models.values())

        def search() -> None:
            if self.index is not None:
                with suppress(PellucidError):
                    self.index.search(WARM_TEXT, 1).to_dict()

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
        if self.index is not None:
            self.index.close()

    def model_name(self, asked: str | None) -> str:
        """Return the name of the model that a request asks for; None is the first.

        Raises:
            ApiError: 404, there is none of this name.
        """
        if asked is None:
            return self.default
        if asked not in self.models:
            message = f"no model {asked!r:.80} is served here; there are: {', '.join(self.models)}"
            raise ApiError(404, message, "model", "model_not_found")
        return asked

    def texts(self, given: Any, param: str, most: int | None = None) -> list[str]:
        """Return the texts of a request, checked against the limits.

        Raises:
            ApiError: 400 for no text, 422 for something else than texts, or too much of them.
        """
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list):
            raise ApiError(422, f"{param} is {type(given).__name__}; give a string or a list of strings", param)
        if not texts:
            raise ApiError(400, f"{param} is empty; give at least one text", param)
        most = self.settings.max_texts if most is None else most
        if len(texts) > most:
            raise ApiError(422, f"{param} has {len(texts):,} texts; at most {most:,} go in one request", param)
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
        """Return the rows of checked texts, as the model gives them."""
        return await self._batchers[name].encode(texts, role)

    async def dense(self, name: str, texts: list[str], role: Role, *, normalize: bool, dimensions: int | None) -> Any:
        """Return dense rows, float32 [texts, dimensions].

        Raises:
            ApiError: 422 where the model's dimensions cannot be cut short, or the answer would be too large.
        """
        model = self.models[name]
        width = model.get_embedding_dimension()
        if dimensions is not None and dimensions != width and not (model._truncates and 1 <= dimensions <= width):
            why = f"from 1 to {width}" if model._truncates else f"{width}; each has a meaning of its own, none is first"
            raise ApiError(422, f"dimensions is {dimensions}; {name} has {why}", "dimensions")
        if len(texts) * width > _MOST_NUMBERS:
            most = f"at most {_MOST_NUMBERS // width:,} texts go in one request, or ask /embed_sparse"
            raise ApiError(422, f"{len(texts):,} rows of {width:,} numbers are too many; {most}", "input")
        rows = await self.encode(name, texts, role)
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        is_cut = dimensions is not None and dimensions < width
        rows = rows[:, :dimensions] if is_cut else rows
        has_unit_rows = isinstance(self.models[name], StaticEmbedder) and not is_cut  # nothing is rounded twice
        return np.ascontiguousarray(unit_rows(rows) if (normalize or is_cut) and not has_unit_rows else rows, "<f4")

    def check_explained(self, texts: Mapping[str, str | None]) -> None:
        """Check texts, by the name of their field, that are to be explained.

        Raises:
            ApiError: 422, they are too long or no texts.
        """
        given = {param: text for param, text in texts.items() if text is not None}
        for param, text in given.items():
            self.texts(text, param)
        try:
            check_explained(*given.values())
        except InputError as error:
            raise ApiError(422, str(error), next(iter(given))) from error

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Run what takes a while beside the event loop.

        Raises:
            ApiError: 422, pellucid refuses it.
        """
        with _refusals():
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def in_thread_whole(self, work: Callable[[], Result]) -> Result:
        """Run what writes: not at all where the request ends before it has begun, else to its end, and answer then.

        Raises:
            ApiError: 422, pellucid refuses it.
        """
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

    async def in_slow_thread(self, work: Callable[[], Result]) -> Result:
        """Run what takes many seconds, one at a time; a thread cannot be stopped, so that it runs on past the timeout.

        Raises:
            ApiError: 429, as many wait as are allowed; 422, pellucid refuses it.
        """
        if self._slow_jobs > _SLOW_WAITING:
            raise ApiError(429, "too many maps are being drawn; try again in a moment")

        def ended(_: Any) -> None:
            self._slow_jobs -= 1

        job = self._slow_thread.submit(work)
        self._slow_jobs += 1
        job.add_done_callback(ended)
        with _refusals():
            return await asyncio.wrap_future(job)

    def saved_to(self) -> Path:
        """Return the folder that clients may save to.

        Raises:
            ApiError: 403, they may not.
        """
        if self.settings.save_to is None:
            raise ApiError(403, "this server saves nothing; start it with: pellucid serve --save-to FOLDER")
        return Path(self.settings.save_to)

    async def save_model(self, name: str, edited: Callable[[], Embedder]) -> None:
        """Save what `edited` returns under a new name, and serve it; neither where the request ends before the answer.

        Raises:
            ApiError: 403, nothing may be saved; 409, the name is taken, or enough models are served; 422, pellucid
                refuses it.
        """
        folder = self.saved_to() / name
        if name in self.models or name in self._saving or os.path.lexists(folder):
            raise _taken(name)
        if len(self.models) + len(self._saving) >= _MOST_MODELS:  # those to come count: each takes memory
            served = f"{len(self.models)} models are served and {len(self._saving)} are being saved"
            raise ApiError(409, f"{served}; there can be {_MOST_MODELS}. Start the server anew")

        def undo(job: Future[Any]) -> None:
            if not job.cancelled() and job.exception() is None:
                shutil.rmtree(folder, ignore_errors=True)
            self._saving.discard(name)

        self._saving.add(name)
        job = self._threads.submit(lambda: _saved(edited(), folder))
        try:
            with _refusals():
                model, is_sparse = await asyncio.shield(asyncio.wrap_future(job))
        except BaseException:
            job.cancel()
            job.add_done_callback(undo)  # at once, or when the thread is done with it
            raise
        self._saving.discard(name)
        self._begin(name, model, is_sparse=is_sparse)  # nothing is awaited between here and the answer

    def searched(self) -> Index:
        """Return the index.

        Raises:
            ApiError: 404, none is served.
        """
        if self.index is None:
            raise ApiError(404, "no index is served here; start the server with: pellucid serve --index FOLDER")
        return self.index


@contextmanager
def _refusals() -> Iterator[None]:
    """Answer with what pellucid refuses."""
    try:
        yield
    except PellucidError as error:
        raise ApiError(422, str(error)) from error


def _saved(model: Embedder, folder: Path) -> tuple[Embedder, bool]:
    """Save a model as a new folder, whole or not at all, and open it; what is there already stays.

    Returns:
        the model, and whether its rows are sparse.
    """
    with writing_explained(folder), TemporaryDirectory(prefix=".saving-", dir=folder.parent) as aside:
        model.save_pretrained(Path(aside) / folder.name)
        try:
            os.rename(Path(aside) / folder.name, folder)
        except OSError as error:
            if os.path.lexists(folder):
                raise _taken(folder.name) from error
            raise
    try:
        opened = load(folder)
        warm_up(opened)
        return opened, hasattr(opened.encode("ready"), "tocsr")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _taken(name: str) -> ApiError:
    return ApiError(409, f"there is a model {name!r} already, and nothing is overwritten; give another name", "name")
