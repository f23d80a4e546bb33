"""An open index in one process: the last commit with its models and its engine, and the lock for changes.

Each call takes the last commit, which another process may have made; after a fork the locks are new.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pellucid.errors import IndexFolderError, InputError, PellucidError
from pellucid.folder import is_outside_allowed, outside
from pellucid.index.changing import repair
from pellucid.index.commits import Commit, Writer, read_commit, stamp_of
from pellucid.index.engine import EngineSettings, Generation, chosen_engine
from pellucid.index.models import Model, kinds, opened_models
from pellucid.index.searching import Snapshot
from pellucid.store import locked, writing_explained

if TYPE_CHECKING:
    from typing_extensions import Self

_PATIENCE = 60.0  # seconds that a change waits for another one


class IndexHandle:
    """An open index; any number of threads may use it."""

    def __init__(
        self, folder: Path, commit: Commit, models: dict[str, Model], engines: EngineSettings | None, *, read_only: bool
    ) -> None:
        """Take what `Index.create` and `Index.open` have opened; they set the engine afterwards."""
        self.folder, self._engines, self._read_only = folder, engines, read_only
        self._closed, self._outside = False, is_outside_allowed() or engines is not None
        self._given: dict[str, Any] = {}  # models that the caller gave, for when others of the same names are needed
        self._writer: Writer | None = None  # while a change is made
        self._behind = True  # whether an engine may hold what it should not
        self._set_locks()
        self._at = Snapshot.of(commit, models)

    def _set_locks(self) -> None:
        self._process, self._writing, self._reading = os.getpid(), threading.RLock(), threading.RLock()

    def _generation(self) -> Generation:
        state = self._at.commit.state
        return Generation(self.folder, state.engine, *kinds(self._at.models))

    def close(self) -> None:
        """Let the folder and the engine go; what was added is on disk already. Hits can still be explained."""
        with self._writing:
            self._closed, engine = True, self._at.engine
            self._at = self._at._replace(engine=None)
            if engine is not None and self._process == os.getpid():
                engine.close()

    def __enter__(self) -> Self:
        """Return the index; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _now(self) -> Snapshot:
        """Return the last commit with its models."""
        if self._closed:
            raise InputError(f"the index {self.folder} is closed; open it again: pellucid.Index.open")
        if self._process != os.getpid():  # forked: locks may be held by threads that are not here
            if self._engines is not None:
                raise InputError(
                    f"the index {self.folder} was opened in process {self._process}, and its engine serves only "
                    "that one; open it again in this process"
                )
            self._set_locks()
            self._writer = None
            self._at = Snapshot.of(self._at.commit, self._at.models)
        if self._writer is None and stamp_of(self.folder) != self._at.commit.stamp:
            with self._reading:
                self._take(read_commit(self.folder, self._at.commit))
        if self._at.words.full:
            with self._reading:
                self._at = Snapshot.of(self._at.commit, self._at.models)._replace(engine=self._at.engine)
        return self._at

    def _take(self, commit: Commit) -> None:
        """Take a later commit, with its models and engine where they changed."""
        before, after = self._at.commit.state, commit.state
        if after.settings["models"] == before.settings["models"] and after.engine == before.engine:
            self._at = self._at._replace(commit=commit)
            return
        names = {model["name"] for model in after.settings["models"]}
        given = {name: model for name, model in self._given.items() if name in names}
        try:
            with outside(self._outside):
                models = opened_models(self.folder, after.settings["models"], given, check=True)
        except PellucidError as error:
            raise IndexFolderError(f"{self.folder} was rebuilt with other models; open it again: {error}") from error
        self._engines = chosen_engine(None, after.settings["engine"], allowed=self._outside)
        self._at = Snapshot.of(commit, models)
        if self._engines is not None:
            self._at = self._at._replace(engine=self._engines.open(self._generation()))

    @contextmanager
    def _changing(self) -> Iterator[Writer]:
        """Hold the lock of the index, with the last commit."""
        self._now()
        if self._read_only:
            raise InputError(f"the index {self.folder} was opened with read_only=True; open it again to change it")
        with self._writing, ExitStack() as stack:
            if self._writer is not None:  # within a change of this thread
                yield self._writer
                return
            stack.enter_context(writing_explained(self.folder))
            try:
                stack.enter_context(locked(self.folder, _PATIENCE))
            except InputError as error:
                raise IndexFolderError(f"the index cannot be changed: {error}") from error
            self._writer = Writer(self.folder, self._now().commit)
            try:
                if self._at.engine is not None and self._behind:
                    repair(self._writer, self._at.engine)
                    self._behind = False
                yield self._writer
            finally:
                with self._reading:  # another thread may be about to set what it has read before
                    self._at = self._at._replace(commit=self._writer.commit)
                    self._writer = None
