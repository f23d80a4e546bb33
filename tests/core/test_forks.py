"""A forked child finishes, releases and removes nothing that its parent is about."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forking import HAS_FORK, in_fork
from pellucid.errors import InputError, WritingError
from pellucid.persistence import store
from pellucid.persistence.checkpoints import WorkFolder

pytestmark = [HAS_FORK, pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")]

Writer = Callable[[Path], AbstractContextManager[Any]]


def write_file(path: Path) -> AbstractContextManager[Path]:
    return store.writing(path)


def write_model(path: Path) -> AbstractContextManager[Path]:
    return store.writing_folder(path)


def lock_folder(path: Path) -> AbstractContextManager[Any]:
    path.mkdir(exist_ok=True)
    return store.locked(path)


def run(path: Path) -> AbstractContextManager[Any]:
    return WorkFolder(path)


def use_scratch(path: Path) -> AbstractContextManager[Path]:
    return store.temporary_folder(parent=path.parent)


WRITERS = [write_file, write_model, lock_folder, run, use_scratch]


def others_wait(path: Path, writer: Writer) -> bool:
    """Whether another process meets the lock."""

    def write() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_PATIENCE", 0.05)
            with writer(path):
                pass

    return any(error in in_fork(write) for error in ("has been writing it", "is in use by"))


@pytest.mark.full
@pytest.mark.parametrize("how", ["exit", "end", "exec"])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_child_that_leaves_the_blocks_of_its_parent_takes_nothing_with_it(tmp_path, writer, how):
    """It ends the block without an error, with one, or as another program; the parent has lock and files, and ends."""
    path = tmp_path / "there"
    reader, pipe = os.pipe()
    child = None
    try:
        with writer(path) as tmp:
            if isinstance(tmp, Path) and tmp.is_file():
                tmp.write_text("of the parent")
            elif isinstance(tmp, Path):
                (tmp / "config.json").write_text('{"pellucid": {}}')
            before = sorted(entry.name for entry in tmp_path.rglob("*"))
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                assert sorted(entry.name for entry in tmp_path.rglob("*")) == before
                assert writer is use_scratch or others_wait(path, writer)
            elif how == "exit":
                sys.exit("the child")
            elif how == "exec":
                os.execv(sys.executable, [sys.executable, "-c", "pass"])
    except BaseException as error:
        if child != 0:
            raise
        os.write(pipe, type(error).__name__.encode())
    finally:
        if child == 0:
            os._exit(0)
        os.close(pipe)
    with os.fdopen(reader) as file:
        publishes = writer in (write_file, write_model)
        assert file.read() == {"exit": "SystemExit", "end": "WritingError" * publishes, "exec": ""}[how]
    if writer is write_file:
        assert path.read_text() == "of the parent"
    if writer is write_model:
        assert (path / "config.json").exists()
    left = {entry.name for entry in tmp_path.iterdir()} - {"there"}
    assert not left and (writer is use_scratch or not others_wait(path, writer))


def test_a_child_commits_nothing_to_the_run_of_its_parent(tmp_path):
    with WorkFolder(tmp_path / "work") as work:
        work.commit({"step": 1})
        state = (tmp_path / "work" / "state.json").read_bytes()

        def child() -> None:
            for write in (lambda: work.commit({"step": 9}), lambda: work.append("rows", np.zeros((1, 2)))):
                with pytest.raises(WritingError, match="forked from the one that is writing it"):
                    write()

        assert in_fork(child) == "None"
        assert (tmp_path / "work" / "state.json").read_bytes() == state
        work.commit({"step": 2})
    with WorkFolder(tmp_path / "work") as work:
        assert work.metadata == {"step": 2}


def test_a_child_has_locks_of_its_own(tmp_path):
    """It waits for its parent like any other process, and gets the lock afterwards."""
    (tmp_path / "folder").mkdir()

    def take() -> str:
        try:
            with store.locked(tmp_path / "folder"):
                return "taken"
        except InputError:
            return "in use"

    with store.locked(tmp_path / "folder"):
        assert in_fork(take) == "'in use'"
    assert in_fork(take) == "'taken'"


def test_a_lock_ends_with_the_process_that_took_it_also_where_a_child_lives_on(tmp_path):
    (tmp_path / "folder").mkdir()
    script = """
    import os, sys, time
    from pathlib import Path
    from pellucid.persistence import store
    with store.locked(Path(sys.argv[1])):
        if not os.fork():
            print(os.getpid(), flush=True)  # by the child: only once it runs has it closed its copy of the lock
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "folder")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.kill(child, 0)  # it is there
            with store.locked(tmp_path / "folder"):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.full
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_of_any_kind_take_turns(tmp_path, method):
    path, each = tmp_path / "count.json", 20
    store.write_json(path, 0)
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=_count_up, args=(tmp_path, each)) for _ in range(4)]
    with suppress(KeyboardInterrupt):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(100)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert store.read_json(path) == 4 * each


def _count_up(folder: Path, times: int) -> None:
    for _ in range(times):
        with store.locked(folder, 60):
            store.write_json(folder / "count.json", store.read_json(folder / "count.json") + 1)
            time.sleep(0.001)
