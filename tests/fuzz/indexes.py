"""Attacks on an index: damaged and crafted folders, kills, readers beside a writer, full and read-only disks.

Documents come and go in pairs that always hold one version (`index_writer.py`), so that half of a commit is seen; what
a writer has acknowledged is in a file, so that a lost change is seen.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import index_folder
from forking import Failed, check_ended, in_child
from fuzz import damage
from fuzz.damage import copy
from fuzz.processes import allow, mount
from index_writer import created, look, opened, pairs, small, text_of
from pellucid.errors import PellucidError, WritingError

if TYPE_CHECKING:
    from fuzz.subjects import Subjects

Documents = dict[str, str]
_CHANGES = 12  # of a writer that may be killed
_OPERATIONS = 500  # file operations that as many changes make, about
_MODEL_FILES = index_folder.EDITED  # an index relies on the models' own checksums


@cache
def whole(place: Path) -> tuple[Path, Path, Any]:
    """Return the folder of an index, that of another, and what the first answers; made once."""
    folders = []
    for number in range(2):
        folder = place / f"search-{number}"
        index_folder.build(folder, number)
        (folder / ".lock").unlink()
        folders.append(folder)
    return folders[0], folders[1], index_folder.answers(folders[0])


def damaged(rng: random.Random, subjects: Subjects, place: Path) -> str:
    """By accident: the right answers or our error; and `verify` finds what is not as it was written."""
    sound, other, good = whole(subjects.place)
    path = place / "index"
    copy(sound, path)
    said = damage.damage_folder(rng, path, other)
    if "as it is" in said or index_folder.contents(path) == index_folder.contents(sound):
        return f"{said}: the same bytes"
    try:
        found = index_folder.answers(path)
        verified = index_folder.verified(path)
    except PellucidError as error:
        return f"{said}: refused: {error}"
    if found != good:
        raise Failed("silent change", f"{said}: other answers; verify says {verified}")
    if not verified and not any(name in said for name in _MODEL_FILES):
        raise Failed("not found", f"{said}: verify finds nothing")
    return f"{said}: the same"


# Writers


def _changing(folder: Path, seed: int, said: Path) -> Callable[[], None]:
    """Return work that makes changes and says each before and after, in a file."""

    def run() -> None:
        small()
        changes = random.Random(seed)
        with opened(folder) as index, open(said, "ab", buffering=0) as file:
            for number in range(_CHANGES):
                for change in pairs(index, changes, version=seed % 10**6 * 100 + number):
                    file.write(json.dumps(change).encode() + b"\n")
                file.write(b"done\n")

    return run


def _applied(documents: Documents, change: dict[str, Any]) -> Documents:
    if change["kind"] == "add":
        return documents | dict.fromkeys(change["ids"], text_of(change["version"], change["size"]))
    if change["kind"] == "delete":
        return {own: text for own, text in documents.items() if own not in change["ids"]}
    return documents


def _allowed(documents: Documents, said: Path) -> list[Documents]:
    """Return what the index may hold: the last change that was said may have been made or not."""
    lines = said.read_text().splitlines() if said.exists() else []
    changes, done = [json.loads(line) for line in lines if line != "done"], lines.count("done")
    for change in changes[:done]:
        documents = _applied(documents, change)
    return [documents, *(_applied(documents, change) for change in changes[done : done + 1])]


def _check(folder: Path, allowed: list[Documents]) -> Documents:
    """Return what the index holds, which must be one of these; all else must be sound."""
    with opened(folder) as index:
        found = {document.id: document.text for document in index}
        if found not in allowed:
            raise Failed("lost", f"{sorted(set(allowed[0]) ^ set(found))[:6]} differ of {len(found)} documents")
        if problem := look(index) or "; ".join(index.verify()):
            raise Failed("not sound", problem)
    return found


def kill(rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Kill writers at any moment, one after the other: what was acknowledged is there, and nothing is half."""
    small()
    folder, documents, how = place / "job", Documents(), []
    created(folder).close()
    for number in range(2):
        said = place / f"said-{number}"
        when: dict[str, Any] = {"kill_at": rng.randint(1, _OPERATIONS)}
        if rng.random() < 0.4:
            when = {"kill_after": rng.random()}
        ended = in_child(_changing(folder, rng.randrange(10**6), said), **when)()
        check_ended(ended, allowed=("done", "killed"))
        documents = _check(folder, _allowed(documents, said))
        how.append(f"{when} {ended.how}")
    with opened(folder) as index:  # the next commit removes all that is left over
        index.add(["abc"], ids=["last"])
        used = {file.name for file in index._snapshot.commit.state.files()}
    left_over = {path.name for path in (folder / "segments").iterdir()} ^ used
    left_over |= {path.name for path in folder.glob(".*")} - {".lock"}
    if left_over:
        raise Failed("left over", f"{sorted(left_over)} after {how}")
    return ", ".join(how)


def writers(rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Let three processes add, replace and remove documents at once: whatever was acknowledged is there."""
    folder = place / "job"
    created(folder).close()

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            small()
            with opened(folder) as index:
                for number in range(8):
                    index.add([f"abc {name} {number}"], ids=[f"{name}{number}"])
                    index.add([f"abc {name} {number} again"], ids=[f"{name}{number}"])
                    if number % 4 == 3:
                        index.delete([f"{name}{number}"])

        return run

    for end in [in_child(work(name)) for name in "xyz"]:
        check_ended(end(), allowed=("done",))
    _check(folder, [{f"{name}{n}": f"abc {name} {n} again" for name in "xyz" for n in range(8) if n % 4 != 3}])
    return "three did 20 changes each"


def readers(rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Let three processes read while one writes; some are killed: nobody sees half of a commit, or waits."""
    small()
    folder, said, seconds = place / "job", place / "said", 1.0
    created(folder).close()

    def reading() -> None:
        end = time.monotonic() + seconds
        with opened(folder, read_only=True) as index:
            while time.monotonic() < end:
                if problem := look(index):
                    raise AssertionError(problem)

    ends = [(in_child(_changing(folder, rng.randrange(10**6), said), kill_after=rng.random() * 2), ("done", "killed"))]
    for number in range(3):
        killed = number == 0 and rng.random() < 0.5
        how = {"kill_after": rng.random() * seconds} if killed else {}
        ends.append((in_child(reading, **how), ("done", "killed") if killed else ("done",)))
    ended = []
    for end, allowed in reversed(ends):
        ended.append(end())
        check_ended(ended[-1], allowed=allowed)
    _check(folder, _allowed({}, said))
    return f"{[one.how for one in ended]}"


# Disks


def full(rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Let the disk be full again and again: our error, and what was there is there and can be searched."""
    folder = place / "job"
    folder.mkdir()
    if os.geteuid() == 0:
        mount(folder, "size=64m")
    seed = rng.randrange(10**6)

    def run() -> None:
        small()
        chance, documents = random.Random(seed), Documents()
        with created(folder / "index") as index:
            for version in range(1, 2 * _CHANGES):
                _room(folder, chance.randrange(0, 30_000) if version > 3 and version % 2 else None)
                try:
                    (change,) = pairs(index, chance, version=version)
                    documents = _applied(documents, change)
                except WritingError as error:
                    if "Nothing that was there is changed" not in str(error):
                        raise
                if {document.id: document.text for document in index} != documents or look(index):
                    raise AssertionError(f"after change {version} the index holds something else; {look(index)}")
            _room(folder, None)
            index.add(["abc"], ids=["last"])
            if problems := index.verify():
                raise AssertionError("; ".join(problems))

    check_ended(in_child(run)(), allowed=("done",))
    return f"seed {seed}"


def _room(folder: Path, more: int | None) -> None:
    """Leave so many bytes on the disk of a folder, None for many; for others than root, in a file."""
    if os.geteuid() == 0:
        held = sum(-(-file.stat().st_size // 4096) * 4096 for file in folder.rglob("*") if file.is_file())
        mount(folder, f"size={64 << 20 if more is None else held + more}", again=True)
    else:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY if more is None else more, hard))


def readonly(rng: random.Random, subjects: Subjects, place: Path) -> str:
    """On a read-only disk, after a whole writer or a killed one: it is searched, and refuses changes."""
    folder, said = place / "job", place / "said"
    folder.mkdir()
    if os.geteuid() == 0:
        mount(folder, "size=64m")
    small()
    created(folder / "index").close()
    at = rng.choice((None, rng.randint(1, _OPERATIONS)))
    in_child(_changing(folder / "index", rng.randrange(10**6), said), kill_at=at)()
    allow(folder, writing=False)
    with opened(folder / "index", read_only=rng.random() < 0.5) as index:
        if problem := look(index) or "; ".join(index.verify()):
            raise Failed("not sound", problem)
        try:
            index.add(["y"], ids=["x"])
            raise Failed("not refused", "an index on a read-only disk was changed")
        except PellucidError as error:
            told = str(error)
    allow(folder, writing=True)
    _check(folder / "index", _allowed({}, said))
    return f"refused: {told}"


ATTACKS: dict[str, Callable[[random.Random, Subjects, Path], str]] = {
    "index-kill": kill,
    "index-writers": writers,
    "index-readers": readers,
    "index-full": full,
    "index-readonly": readonly,
}
"""By group, what is done to an index."""
