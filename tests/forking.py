"""Work in a forked process, which may be killed at a file operation or by the clock, and in several threads at once."""

import ctypes
import faulthandler
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pellucid.errors import PellucidError

HAS_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
LIMIT = 120.0  # seconds of one run in a child
_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "mmap.__new__")
_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h
_notes: list[str] = []


class Failed(Exception):
    """A promise was broken; `what` is how the table counts it."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(detail)
        self.what = what


@dataclass(frozen=True)
class Ended:
    """How a child ended: done, refused (our error), killed, crash, hang, memory, raw error, or what was broken."""

    how: str
    detail: str = ""
    seconds: float = 0.0


def note(done: str) -> None:
    """Let the report of this process say what was done."""
    _notes.append(done)


def in_child(
    work: Callable[[], object], *, kill_at: int | None = None, kill_after: float | None = None, limit: float = LIMIT
) -> Callable[[], Ended]:
    """Start `work` in a forked process and return the function that waits for its end.

    Args:
        work: what is done.
        kill_at: the number of the file operation at which the process kills itself.
        kill_after: seconds after which it is killed.
        limit: seconds after which it hangs.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        _run(work, writer, kill_at)
    os.close(writer)
    return lambda: _ended(child, reader, kill_after, limit)


def _run(work: Callable[[], object], writer: int, kill_at: int | None) -> None:
    """Do the work in the child and report; never returns."""
    count = 0

    def watch(event: str, arguments: Any) -> None:
        nonlocal count
        if event in _OPERATIONS and not (event == "open" and str(arguments[0]).endswith((".py", ".pyc"))):
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    faulthandler.register(signal.SIGUSR1, file=2)
    sys.addaudithook(watch)
    _notes.clear()
    started = time.perf_counter()
    try:
        how, detail = "done", str(work() or "")
    except Failed as failed:
        how, detail = failed.what, str(failed)
    except PellucidError as error:
        how, detail = "refused", f"{type(error).__name__}: {error}"
    except BaseException as error:
        how, detail = "memory" if isinstance(error, MemoryError) else "raw error", _described(error)
    report = {"how": how, "detail": ": ".join([*_notes, detail])[:2000]}
    os.write(writer, json.dumps({**report, "seconds": time.perf_counter() - started}).encode())
    os._exit(0)


def _ended(child: int, reader: int, kill_after: float | None, limit: float) -> Ended:
    ready = select.select([reader], [], [], limit if kill_after is None else kill_after)[0]
    if not ready and kill_after is None:  # it tells on stderr where it hangs
        os.kill(child, signal.SIGUSR1)
        time.sleep(0.5)
    if not ready:
        os.kill(child, signal.SIGKILL)
    report = os.read(reader, 1 << 16)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if report:
        return Ended(**json.loads(report))
    if not ready:
        return Ended("hang" if kill_after is None else "killed", "no end")
    return Ended("killed" if os.WTERMSIG(status) == signal.SIGKILL else "crash", f"ended with status {status}")


def _described(error: BaseException) -> str:
    """Return an error's type, where in the library it came out, and what it says."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/pellucid/" in frame.filename]
    where = [f"{frame.filename.partition('/pellucid/')[2]}:{frame.name}" for frame in frames[-1:]]
    return f"{type(error).__name__} in {where or 'other code'}: {str(error)[:300]}"


def check_ended(ended: Ended, allowed: tuple[str, ...]) -> None:
    if ended.how not in allowed:
        raise Failed("not refused" if ended.how == "done" else ended.how, ended.detail)


def in_fork(work: Callable[[], Any], seconds: float = 60) -> str:
    """Run `work` in a forked process; return what it returned, or how it failed."""
    ended = in_child(lambda: repr(work()), limit=seconds)()
    return ended.detail or ended.how


def at_once(*work: Callable[[], Any]) -> list[str]:
    """Do several things in threads of their own, which begin together; return the errors."""
    begin, errors = threading.Barrier(len(work)), list[str]()

    def run(one: Callable[[], Any]) -> None:
        begin.wait(30)
        try:
            one()
        except BaseException as error:
            errors.append(f"{type(error).__name__}: {error}"[:400])

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    return errors + ["a thread hangs"] * sum(thread.is_alive() for thread in threads)
