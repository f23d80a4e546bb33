"""Attacks on a run that can be resumed: it is stopped at its writes, its text is replaced, its state is damaged."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damage import LOSSES, damages, files_of, flips
from pellucid.errors import InputError, ModelFolderError


class Stopped(BaseException):
    """Stands for the kill of a process."""


def stopped_at_writes(run: Callable[[Path], Any], folder: Path, most: int = 8) -> Iterator[tuple[Path, Any]]:
    """Run in `folder / "0"`, then in others, each stopped at another write and resumed; yield folders and results."""
    whole = list[Any]()
    n_writes = count_writes(lambda: whole.append(run(folder / "0")))
    yield folder / "0", whole[0]
    for number in sorted({*np.linspace(1, n_writes, most).astype(int).tolist()}):
        stop_at_write(lambda number=number: run(folder / f"{number}"), number)
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
    """Resume with each file of the state flipped in some places, cut short, and gone; return how many files."""
    files = [file for file in files_of(folder) if not any(part in unused for part in file.relative_to(folder).parts)]
    ways = {how: LOSSES[how] for how in ("gone", "half", "two bytes less")} | flips(1)
    for file, how in damages(folder, ways, files):
        shutil.rmtree(folder.with_name("damaged"), ignore_errors=True)
        shutil.copytree(folder, folder.with_name("damaged"))
        with pytest.raises((ModelFolderError, InputError)) as error:
            run(folder.with_name("damaged"))
        assert file.name in str(error.value), (file, how, str(error.value))
    return len(files)
