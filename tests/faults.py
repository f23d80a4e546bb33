"""Attacks on what is written: a system call fails, once or from then on, or the process is killed at one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pellucid.persistence import store

CALLS = [
    (os, "fsync"), (os, "replace"), (os, "unlink"), (os, "utime"), (os, "chmod"), (Path, "unlink"), (Path, "touch"),
    (Path, "mkdir"), (Path, "write_bytes"), (Path, "write_text"), (store, "save_file"), (os, "rmdir"),
]  # fmt: skip


@contextmanager
def failing_call(
    position: int, number: int, *, after: bool = False, lasting: bool = False, is_killed: bool = False
) -> Iterator[list[int]]:
    """Let the system call at a position fail, before or after it is made; yield what counts them.

    Args:
        position: of the call, from 1.
        number: of the system's error.
        after: it fails although it is done.
        lasting: the later ones fail, too.
        is_killed: the process ends there without any more ado.
    """
    count = [0]

    def failing(original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            is_it = count[0] == position or (lasting and 0 < position < count[0])
            if is_it and is_killed:
                os._exit(0)
            if is_it and not after:
                raise OSError(number, os.strerror(number))
            result = original(*arguments, **options)
            if is_it:
                raise OSError(number, os.strerror(number))
            return result

        return call

    with ExitStack() as stack:
        for owner, name in CALLS:
            stack.enter_context(patch.object(owner, name, failing(getattr(owner, name))))
        yield count
