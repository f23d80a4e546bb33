"""A forked child has free locks, and finishes, releases and removes nothing that its parent is about."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
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
from pellucid.process import call_after_fork, current_process, fork_lock

pytestmark = [HAS_FORK, pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")]

Writer = Callable[[Path], AbstractContextManager[Any]]


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def is_free(lock: Any) -> bool:
    """Whether another thread can take a lock."""
    taken = []

    def take() -> None:
        if lock.acquire(timeout=0.2):
            taken.append(True)
            lock.release()

    in_thread(take).join()
    return bool(taken)


def test_a_lock_that_a_thread_of_the_parent_holds_is_free_in_the_child_and_held_in_the_parent():
    lock, held, done = fork_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock, lock:
            held.set()
            done.wait(30)

    thread = in_thread(hold)
    assert held.wait(10)
    try:
        assert in_fork(lambda: (is_free(lock), in_fork(lambda: is_free(lock)))) == "(True, 'True')"
        assert not is_free(lock)
    finally:
        done.set()
        thread.join()
    assert is_free(lock)


def test_a_lock_that_the_forking_thread_holds_stays_its_own_in_the_child():
    lock = fork_lock()

    def child() -> tuple[bool, bool]:
        inside = is_free(lock)
        lock.release()
        lock.release()
        return inside, is_free(lock)

    with lock, lock:
        assert in_fork(child) == "(False, True)"
    assert is_free(lock)


def test_each_process_is_another_one_whatever_its_number_is():
    class Counter:
        calls = 0

        def after_fork(self) -> None:
            self.calls += 1

    counter, process = Counter(), current_process()
    call_after_fork(counter)

    def child() -> tuple[bool, int, str]:
        own = current_process()
        return own is process, counter.calls, in_fork(lambda: (current_process() is own, counter.calls))

    assert in_fork(child) == "(False, 1, '(False, 2)')"
    assert current_process() is process and counter.calls == 0


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


def test_a_child_keeps_open_what_it_opens_after_the_lock_of_its_parent(tmp_path):
    """The lock's file is closed at once, and its number is not closed again under whatever has it then."""
    (tmp_path / "folder").mkdir()
    reader, writer = os.pipe()
    with store.locked(tmp_path / "folder"):
        child = os.fork()
        handles = [] if child else [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    if not child:  # out of the block
        try:
            for handle in handles:
                os.fstat(handle)
        except OSError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b""
    os.close(reader)


@pytest.mark.full
def test_forks_at_any_moment_of_a_lock_leave_it_to_the_parent(tmp_path):
    """Threads take and free locks and files while the process forks: no child has one, none waits for ever."""
    (tmp_path / "folder").mkdir()
    stop, errors = threading.Event(), list[BaseException]()

    def work(number: int) -> None:
        while not stop.is_set():
            try:
                with store.locked(tmp_path / "folder", 20):
                    store.write_json(tmp_path / f"{number}.json", number)
            except BaseException as error:
                errors.append(error)

    def child() -> list[str]:
        descriptors = Path("/proc/self/fd")
        names = [os.readlink(entry) for entry in descriptors.iterdir() if entry.exists()]
        with store.locked(tmp_path / "folder", 20):  # the parent's threads go on
            store.write_json(tmp_path / "child.json", 1)
        return [name for name in names if name.endswith(".lock") and descriptors.is_dir()]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [in_thread(lambda number=number: work(number)) for number in range(3)]
    try:
        assert [in_fork(child, 50) for _ in range(15)] == ["[]"] * 15
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    names = {entry.name for entry in tmp_path.iterdir()}
    assert names == {"folder", "0.json", "1.json", "2.json", "child.json"}


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
