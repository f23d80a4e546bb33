"""A forked child finishes, releases and removes nothing that its parent is about."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forking import HAS_FORK, in_fork
from pellucid.errors import WritingError
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


@pytest.mark.parametrize("error", [None, SystemExit("the child")])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_child_that_leaves_the_blocks_of_its_parent_takes_nothing_with_it(tmp_path, writer, error):
    """It ends the block without an error or with one; the parent has lock and files, and ends."""
    path = tmp_path / "there"
    with ExitStack() as stack:
        tmp = stack.enter_context(writer(path))
        if isinstance(tmp, Path) and tmp.is_file():
            tmp.write_text("of the parent")
        elif isinstance(tmp, Path):
            (tmp / "config.json").write_text('{"pellucid": {}}')
        before = sorted(entry.name for entry in tmp_path.rglob("*"))
        ended = in_fork(lambda: stack.__exit__(type(error) if error else None, error, None))
        assert ended.startswith("WritingError") == (writer in (write_file, write_model) and error is None)
        assert sorted(entry.name for entry in tmp_path.rglob("*")) == before
        assert writer is use_scratch or others_wait(path, writer)
    if writer in (write_file, write_model):
        assert (path if writer is write_file else path / "config.json").read_text()
    assert not {entry.name for entry in tmp_path.iterdir()} - {"there"}
    assert writer is use_scratch or not others_wait(path, writer)


def test_a_child_commits_nothing_to_the_run_of_its_parent(tmp_path):
    with WorkFolder(tmp_path / "work") as work:
        work.commit({"step": 1})
        state = (tmp_path / "work" / "state.json").read_bytes()

        def child() -> None:
            for write in (lambda: work.commit({"step": 9}), lambda: work.append("rows", np.zeros((1, 2)))):
                with pytest.raises(WritingError, match="forked from the one that is writing it"):
                    write()

        assert (in_fork(child), (tmp_path / "work" / "state.json").read_bytes()) == ("None", state)
        work.commit({"step": 2})
    with WorkFolder(tmp_path / "work") as work:
        assert work.metadata == {"step": 2}


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
