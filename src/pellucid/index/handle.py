"""An open index in one process: the last commit with its models and its engine, and the lock for changes.

Each call takes the last commit, which another process may have made. A forked child has the index, too, with locks of
its own; a change that a thread of the parent was making, and the engine, stay with the parent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from pellucid.errors import IndexFolderError, InputError, PellucidError
from pellucid.index.commits import Commit, Writer, read_commit, read_stamp
from pellucid.index.engine import EngineSettings, Generation, resolve_engine
from pellucid.index.models import Model, dimensions_and_signs, open_stored_models
from pellucid.index.plan import Snapshot
from pellucid.index.writer import repair
from pellucid.persistence.folder import allow_external, is_outside_allowed
from pellucid.persistence.store import locked, translate_os_errors
from pellucid.process import call_after_fork, current_process, fork_lock, never_destroy

if TYPE_CHECKING:
    from typing_extensions import Self

LOCK_TIMEOUT_S = 60.0  # seconds that a change waits for another one


class IndexHandle:
    """An open index; any number of threads may use it."""

    def __init__(
        self,
        folder: Path,
        commit: Commit,
        models: dict[str, Model],
        engine_settings: EngineSettings | None,
        *,
        read_only: bool,
    ) -> None:
        """Take what `Index.create` and `Index.open` have opened; they set the engine afterwards."""
        self.folder, self._engine_settings, self._read_only = folder, engine_settings, read_only
        self._closed, self._allow_outside = False, is_outside_allowed() or engine_settings is not None
        self._caller_models: dict[
            str, Any
        ] = {}  # models that the caller gave, for when others of the same names are needed
        self._writer: Writer | None = None  # while a change is made
        self._needs_repair = True  # whether an engine may hold what it should not
        self._process = current_process()
        self._write_lock = fork_lock()  # held during a change, with the lock of the folder
        self._snapshot_lock = fork_lock()  # held while another snapshot takes the place of the last one
        self._snapshot = Snapshot.from_commit(commit, models)
        call_after_fork(self)

    def after_fork(self) -> None:
        """Leave to the parent the change that one of its threads was making, and its engine."""
        if not self._write_lock._is_owned():  # type: ignore[attr-defined]
            self._writer = None
        if self._snapshot.engine is not None:
            never_destroy(self._snapshot.engine)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise InputError(
            f"an open index cannot be copied or pickled; another process opens it by its folder: "
            f"pellucid.Index.open({str(self.folder)!r})"
        )

    def _generation(self) -> Generation:
        state = self._snapshot.commit.state
        return Generation(self.folder, state.engine, *dimensions_and_signs(self._snapshot.models))

    def close(self) -> None:
        """Let the folder and the engine go; what was added is on disk already. Hits can still be explained."""
        with self._write_lock:
            self._closed = True
            with self._snapshot_lock:
                engine, self._snapshot = self._snapshot.engine, self._snapshot._replace(engine=None)
            if engine is not None and self._process is current_process():
                engine.close()

    def __enter__(self) -> Self:
        """Return the index; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def snapshot(self) -> Snapshot:
        """Return the last commit with its models."""
        if self._closed:
            raise InputError(f"the index {self.folder} is closed; open it again: pellucid.Index.open")
        if self._engine_settings is not None and self._process is not current_process():
            raise InputError(
                f"the index {self.folder} was opened by the process that this one was forked from, and its engine "
                "serves only that one; open it again in this process"
            )
        if self._writer is None and read_stamp(self.folder) != self._snapshot.commit.stamp:
            with self._snapshot_lock:
                if self._writer is None and read_stamp(self.folder) != self._snapshot.commit.stamp:
                    self._load_commit(read_commit(self.folder, self._snapshot.commit))
        if self._snapshot.words.full:
            with self._snapshot_lock:
                self._snapshot = Snapshot.from_commit(self._snapshot.commit, self._snapshot.models)._replace(
                    engine=self._snapshot.engine
                )
        return self._snapshot

    def _load_commit(self, commit: Commit) -> None:
        """Take a later commit, with its models and engine where they changed."""
        before, after = self._snapshot.commit.state, commit.state
        if after.settings["models"] == before.settings["models"] and after.engine == before.engine:
            self._snapshot = self._snapshot._replace(commit=commit)
            return
        names = {model["name"] for model in after.settings["models"]}
        caller_models = {name: model for name, model in self._caller_models.items() if name in names}
        try:
            with allow_external(self._allow_outside):
                models = open_stored_models(self.folder, after.settings["models"], caller_models, check=True)
        except PellucidError as error:
            raise IndexFolderError(f"{self.folder} was rebuilt with other models; open it again: {error}") from error
        self._engine_settings = resolve_engine(None, after.settings["engine"], allow_outside=self._allow_outside)
        self._snapshot = Snapshot.from_commit(commit, models)
        if self._engine_settings is not None:
            self._snapshot = self._snapshot._replace(engine=self._engine_settings.open(self._generation()))

    def _is_writable(self) -> bool:
        """Whether this process may take the lock for changes: not on read-only media."""
        lock = self.folder / ".lock"
        return os.access(lock if lock.exists() else self.folder, os.W_OK)

    def _replace_models(self, snapshot: Snapshot, caller_models: dict[str, Any]) -> None:
        """Take a snapshot with other models, within a change."""
        with self._snapshot_lock:
            self._snapshot, self._caller_models = snapshot, caller_models

    @contextmanager
    def _exclusive_writer(self) -> Iterator[Writer]:
        """Hold the lock of the index, with the last commit."""
        self.snapshot()
        if self._read_only:
            raise InputError(f"the index {self.folder} was opened with read_only=True; open it again to change it")
        with self._write_lock, ExitStack() as stack:
            if self._writer is not None:  # within a change of this thread
                yield self._writer
                return
            stack.enter_context(translate_os_errors(self.folder))
            try:
                stack.enter_context(locked(self.folder, LOCK_TIMEOUT_S))
            except InputError as error:
                raise IndexFolderError(f"the index cannot be changed: {error}") from error
            writer = Writer(self.folder, self.snapshot().commit)
            try:
                with self._snapshot_lock:  # a thread that is about to take the last commit has taken it
                    self._writer = writer
                if self._snapshot.engine is not None and self._needs_repair:
                    repair(writer, self._snapshot.engine)
                    self._needs_repair = False
                yield writer
            finally:
                self._writer = None
                with self._snapshot_lock:
                    self._snapshot = self._snapshot._replace(commit=writer.commit)
