"""Attacks on a run that can be resumed: it is stopped at its writes, its text is replaced, its state is damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.errors import InputError, ModelFolderError


class Stopped(BaseException):
    """Stands for the kill of a process."""


def stopped_at_writes(run: Callable[[Path], Any], folder: Path, most: int = 8) -> Iterator[tuple[Path, Any]]:
    """Run in `folder / "0"`, then in others, each stopped at another write and resumed; yield folders and results."""
    with pytest.MonkeyPatch.context() as patch:
        writes = _count(patch)
        yield folder / "0", run(folder / "0")
    for number in sorted({*np.linspace(1, len(writes), most).astype(int).tolist()}):
        with pytest.MonkeyPatch.context() as patch:
            _count(patch, number)
            with pytest.raises(Stopped):
                run(folder / f"{number}")
        yield folder / f"{number}", run(folder / f"{number}")


def stop_at_write(run: Callable[[], Any], number: int) -> None:
    """Run until a numbered write."""
    with pytest.MonkeyPatch.context() as patch:
        _count(patch, number)
        with pytest.raises(Stopped):
            run()


def count_writes(run: Callable[[], Any]) -> int:
    """Run to the end; return how many writes must reach the disk."""
    with pytest.MonkeyPatch.context() as patch:
        writes = _count(patch)
        run()
    return len(writes)


def _count(patch: pytest.MonkeyPatch, last: int | None = None) -> list[int]:
    """Count the writes that must reach the disk, and stop at the last."""
    writes: list[int] = []
    fsync = os.fsync

    def counting(handle: int) -> None:
        writes.append(handle)
        if len(writes) == last:
            raise Stopped
        fsync(handle)

    patch.setattr(os, "fsync", counting)
    return writes


def reversed_lines(path: Path) -> None:
    """Put another corpus of the same size in the place of one."""
    size = path.stat().st_size
    text = path.read_text()
    lines = text.splitlines()
    path.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n" * text.endswith("\n"))
    assert path.stat().st_size == size and path.read_text() != text


def assert_damage_is_refused(run: Callable[[Path], Any], folder: Path, *, unused: tuple[str, ...] = ()) -> int:
    """Resume with each file of the state flipped in three places, cut short, and gone; return how many files."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != ".lock"]
    files = [file for file in files if not any(part in unused for part in file.relative_to(folder).parts)]
    for file in files:
        content = file.read_bytes()
        broken: list[bytes | None] = [None, content[:-2], content[: len(content) // 2]]
        for place in (0, len(content) // 2, len(content) - 2):
            broken.append(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        for damage in broken:
            copy = folder.with_name("damaged")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            damaged = copy / file.relative_to(folder)
            damaged.unlink()
            if damage is not None:
                damaged.write_bytes(damage)
            with pytest.raises((ModelFolderError, InputError)) as error:
                run(copy)
            assert damaged.name in str(error.value), (file, damage and len(damage), str(error.value))
    return len(files)
