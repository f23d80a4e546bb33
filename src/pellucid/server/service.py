"""What the server serves: opened models with their queues, an index, limits and counters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pellucid.base import Embedder, check_explained
from pellucid.embeddings import Role, unit_rows
from pellucid.errors import InputError, PellucidError
from pellucid.pretrained import load, load_by_name
from pellucid.server.batching import Batcher
from pellucid.server.errors import ApiError
from pellucid.static.embedder import StaticEmbedder
from pellucid.store import writing_explained

if TYPE_CHECKING:
    from pellucid.index.index import Index

Result = TypeVar("Result")

_MOST_NUMBERS = 1 << 22  # of a dense answer: 16 MB of float32, about 50 MB of JSON
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
        self.index = _opened_index(settings.index)
        self.is_ready = False
        self.is_sparse: dict[str, bool] = {}
        self._batchers: dict[str, Batcher] = {}
        self._threads = ThreadPoolExecutor(2, "reasons")
        self._slow_thread = ThreadPoolExecutor(1, "slow")
        self._slow_jobs = 0

    def start(self) -> None:
        """Begin to serve; called in the event loop."""
        for name, model in self.models.items():
            self._begin(name, model)
        self.is_ready = True

    def _begin(self, name: str, model: Embedder) -> None:
        """Begin to serve a model; called in the event loop."""
        self._batchers[name] = Batcher(model, self.settings.max_waiting)
        self._batchers[name].start()
        row = model.encode("ready")  # compiles and maps what the first request would wait for
        self.is_sparse[name] = hasattr(row, "tocsr")
        self.models[name] = model

    async def stop(self) -> None:
        """Finish what is running, and close the index."""
        self.is_ready = False
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
                raise ApiError(422, _no_text(text, position, param), param)
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
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except PellucidError as error:
            raise ApiError(422, str(error)) from error

    async def in_slow_thread(self, work: Callable[[], Result]) -> Result:
        """Run what takes many seconds, one at a time; a thread cannot be stopped, so that it runs on past the timeout.

        Raises:
            ApiError: 429, as many wait as are allowed; 422, pellucid refuses it.
        """
        if self._slow_jobs > _SLOW_WAITING:
            raise ApiError(429, "too many maps are being drawn; try again in a moment")
        job = self._slow_thread.submit(work)
        self._slow_jobs += 1
        job.add_done_callback(self._slow_job_ended)
        try:
            return await asyncio.wrap_future(job)
        except PellucidError as error:
            raise ApiError(422, str(error)) from error

    def _slow_job_ended(self, _: Any) -> None:
        self._slow_jobs -= 1

    def saved_to(self) -> Path:
        """Return the folder that clients may save to.

        Raises:
            ApiError: 403, they may not.
        """
        if self.settings.save_to is None:
            raise ApiError(403, "this server saves nothing; start it with: pellucid serve --save-to FOLDER")
        return Path(self.settings.save_to)

    async def save_model(self, name: str, edited: Callable[[], Embedder]) -> None:
        """Save what `edited` returns under a new name, and serve it; goes on where the client hangs up.

        Raises:
            ApiError: 403, nothing may be saved; 409, the name is taken, or enough models are served; 422, pellucid
                refuses it.
        """
        folder = self.saved_to() / name
        if name in self.models or os.path.lexists(folder):
            raise _taken(name)
        if len(self.models) >= _MOST_MODELS:
            raise ApiError(409, f"{len(self.models)} models are served, and no more can be; start the server anew")

        async def save() -> None:
            self._begin(name, await self.in_thread(lambda: _saved(edited(), folder)))

        self._saving = asyncio.create_task(save())
        await asyncio.shield(self._saving)

    def searched(self) -> Index:
        """Return the index.

        Raises:
            ApiError: 404, none is served.
        """
        if self.index is None:
            raise ApiError(404, "no index is served here; start the server with: pellucid serve --index FOLDER")
        return self.index


def _saved(model: Embedder, folder: Path) -> Embedder:
    """Save a model as a new folder, whole or not at all, and open it; what is there already stays."""
    with writing_explained(folder), TemporaryDirectory(prefix=".saving-", dir=folder.parent) as aside:
        model.save_pretrained(Path(aside) / folder.name)
        try:
            os.rename(Path(aside) / folder.name, folder)
        except OSError as error:
            if os.path.lexists(folder):
                raise _taken(folder.name) from error
            raise
    return load(folder)


def _taken(name: str) -> ApiError:
    return ApiError(409, f"there is a model {name!r} already, and nothing is overwritten; give another name", "name")


def _opened_index(folder: str | None) -> Index | None:
    if folder is None:
        return None
    from pellucid.index.index import Index

    return Index.open(folder)


def _no_text(value: Any, position: int, param: str) -> str:
    if isinstance(value, int) or (isinstance(value, list) and value and isinstance(value[0], int)):
        return (
            f"{param} holds token ids, and they are those of another vocabulary; send text. In LangChain: "
            "OpenAIEmbeddings(check_embedding_ctx_length=False)"
        )
    return f"text {position} of {param} is {type(value).__name__}; every text must be a string"
