"""Small and read-only disks for attacks."""

import ctypes
import os
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
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
