"""Child processes of attacks, which may be killed at a file operation or by the clock, and small disks for them."""

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.errors import PellucidError

LIMIT = 120.0  # seconds of one run in a child
_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "mmap.__new__")
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
        _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
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


_LIBC = ctypes.CDLL(None, use_errno=True)
_PARENT_DEATH_SIGNAL = 1
_READ_ONLY, _REMOUNT, _PRIVATE, _RECURSIVE, _NEW_NAMESPACE = 1, 32, 1 << 18, 1 << 14, 0x20000


def own_mounts() -> None:
    """Let mounts made from now on be seen by this process and its children alone, and end with them."""
    if os.geteuid() == 0 and _LIBC.unshare(_NEW_NAMESPACE) == 0:
        _LIBC.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None)


def mount(folder: Path, options: str, *, again: bool = False, flags: int = 0) -> None:
    flags |= _REMOUNT if again else 0
    if _LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount a small disk: {os.strerror(ctypes.get_errno())}")


def allow(folder: Path, *, writing: bool) -> None:
    if os.geteuid() == 0:
        mount(folder, "size=64m", again=True, flags=0 if writing else _READ_ONLY)
        return
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755 if writing else 0o555)
