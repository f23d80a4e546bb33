"""Child processes of attacks, which may be killed at a file operation or by the clock, and small disks for them."""

from __future__ import annotations

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

LIMIT = 120  # seconds of one run in a child
_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "mmap.__new__")


class Failed(Exception):
    """A promise was broken; `what` is how the table counts it."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(detail)
        self.what = what


@dataclass(frozen=True)
class Ended:
    """How a child ended: done, refused (our error), raw (another), killed, crashed or hanging."""

    how: str
    detail: str = ""
    operations: int = 0
    seconds: float = 0.0


def in_child(
    work: Callable[[], None], *, kill_at: int | None = None, kill_after: float | None = None, start: int | None = None
) -> Callable[[], Ended]:
    """Start `work` in a forked process and return the function that waits for its end.

    Args:
        work: what is done.
        kill_at: the number of the file operation at which the process kills itself.
        kill_after: seconds after which it is killed.
        start: a pipe whose end tells the process to begin.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        end_with_parent()
        _run(work, writer, kill_at, start)
    os.close(writer)
    return lambda: _ended(child, reader, kill_after)


def _run(work: Callable[[], None], writer: int, kill_at: int | None, start: int | None) -> None:
    """Do the work in the child and report; never returns."""
    if start is not None:
        os.read(start, 1)
    count = 0

    def watch(event: str, arguments: Any) -> None:
        nonlocal count
        if event in _OPERATIONS and not (event == "open" and str(arguments[0]).endswith((".py", ".pyc"))):
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    how, detail, started = "done", "", time.perf_counter()
    try:
        work()
    except PellucidError as error:
        how, detail = "refused", f"{type(error).__name__}: {error}"
    except BaseException as error:
        how, detail = "raw", described(error)
    report = {"how": how, "detail": detail[:2000], "operations": count, "seconds": time.perf_counter() - started}
    os.write(writer, json.dumps(report).encode())
    os._exit(0)


def _ended(child: int, reader: int, kill_after: float | None) -> Ended:
    limit = LIMIT if kill_after is None else kill_after
    ready = select.select([reader], [], [], limit)[0]
    if not ready:
        os.kill(child, signal.SIGKILL)
    said = os.read(reader, 1 << 16)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if said:
        return Ended(**json.loads(said))
    if not ready:
        return Ended("hanging" if kill_after is None else "killed", f"no end after {limit:.1f} s")
    return Ended("killed" if os.WTERMSIG(status) == signal.SIGKILL else "crashed", f"ended by signal {status}")


def described(error: BaseException) -> str:
    """Return an error's type, where in the library it came out, and what it says."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/pellucid/" in frame.filename]
    place = frames[-1] if frames else None
    where = f"{place.filename.partition('/pellucid/')[2]}:{place.name}" if place else "outside the library"
    return f"{type(error).__name__} in {where}: {str(error)[:300]}"


def check_ended(ended: Ended, allowed: tuple[str, ...]) -> None:
    if ended.how not in allowed:
        what = {"raw": "raw error", "hanging": "hang", "done": "not refused"}.get(ended.how, ended.how)
        raise Failed(what, ended.detail)


_LIBC = ctypes.CDLL(None, use_errno=True)
_PARENT_DEATH_SIGNAL = 1
_READ_ONLY, _REMOUNT, _PRIVATE, _RECURSIVE, _NEW_NAMESPACE, _DETACH = 1, 32, 1 << 18, 1 << 14, 0x20000, 2


def end_with_parent() -> None:
    """Let this process be killed when the one that forked it ends."""
    _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def own_mounts() -> None:
    """Let mounts made from now on be seen by this process and its children alone, and end with them."""
    if os.geteuid() == 0 and _LIBC.unshare(_NEW_NAMESPACE) == 0:
        _LIBC.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None)


def mount(folder: Path, options: str, *, again: bool = False, flags: int = 0) -> None:
    flags |= _REMOUNT if again else 0
    if _LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount a small disk: {os.strerror(ctypes.get_errno())}")


def unmount(place: Path) -> None:
    """Let go of the disk of a case."""
    _LIBC.umount2(os.fsencode(place / "job"), _DETACH)


def allow(folder: Path, *, writing: bool) -> None:
    if os.geteuid() == 0:
        mount(folder, "size=64m", again=True, flags=0 if writing else _READ_ONLY)
        return
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755 if writing else 0o555)
