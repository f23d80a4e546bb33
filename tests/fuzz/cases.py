"""The kinds of cases, and how one is run: a pass, or what was broken."""

from __future__ import annotations

import random
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz import damage, indexes, jobs, searches, texts
from fuzz.damage import copy
from fuzz.processes import Failed, described, unmount
from fuzz.subjects import Folder, Subjects, observe
from pellucid.errors import PellucidError
from pellucid.persistence import store

MEMORY = 1 << 30  # bytes that a case may take beyond what its process has
_ADDRESSES = 3 << 30  # of address space, where a case ends before it takes the machine's memory
SLOW = {
    "damage": 30,
    "hostile": 30,
    "live": 30,
    "files": 30,
    "texts": 60,
    "index-damage": 30,
    "index-hostile": 30,
    "search-odd": 30,
}  # seconds of a case; the others run several children
_TOKENIZERS = {"static": "subwords.json", "lexicon": "backbone/tokenizer.json"}
_FORBIDDEN = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class"}


@dataclass(frozen=True)
class Kind:
    """A kind of cases: its group, what it attacks, how, and how much of its group it is."""

    group: str
    subject: str
    run: Callable[[random.Random, Subjects, Path], str]
    share: int = 1

    @property
    def name(self) -> str:
        """As the table and `--only` have it."""
        return f"{self.group}/{self.subject}"


@dataclass(frozen=True)
class Result:
    """How a case ended: `what` is "" for a pass, `how` what the case did."""

    kind: str
    number: int
    what: str
    how: str
    seconds: float = 0.0


def all_kinds(subjects: Subjects) -> dict[str, Kind]:
    """Return every kind by its name."""
    readable = {
        "static": 20,
        "static-int8": 20,
        "static-int4": 20,
        "static-spelling": 20,
        "static-lexicon": 20,
        "anchors": 2,
    }
    shares = {"static": 3, "static-int8": 2, "static-int4": 2, "static-lexicon": 2, "anchors": 2}
    kinds = [Kind("damage", name, _damage(name), shares.get(name, 1)) for name in subjects.folders]
    kinds += [Kind("hostile", name, _hostile(name), shares.get(name, 1)) for name in subjects.folders]
    for name, tokenizer in _TOKENIZERS.items():
        if name in subjects.folders:
            kinds.append(Kind("hostile", f"{name}-tokenizer", _hostile(name, tokenizer), 3))
    mapped = [name for name in subjects.folders if name in readable]  # torch maps weights by itself
    kinds += [Kind("live", name, _live(name)) for name in mapped]
    kinds += [Kind("files", name, _file(name)) for name in subjects.files]
    for trouble, run in jobs.TROUBLES.items():
        for name in jobs.possible(subjects, jobs.RESUMED if trouble == "state" else jobs.JOBS):
            share = 3 if name in jobs.RESUMED or name.startswith("save-static") else 1
            kinds.append(Kind(trouble, name, _job(run, name), share))
    kinds += [Kind("texts", name, _texts(name), readable.get(name, 1)) for name in subjects.models]
    if "static" in subjects.models:
        kinds.append(Kind("texts", "search", _search, 10))
    kinds += [Kind(group, "search", _attack(run)) for group, run in (indexes.ATTACKS | searches.ATTACKS).items()]
    return {kind.name: kind for kind in kinds}


def _damage(name: str) -> Callable[[random.Random, Subjects, Path], str]:
    """By accident: the model must give the same vectors, or our error."""

    def run(rng: random.Random, subjects: Subjects, place: Path) -> str:
        subject, path = subjects.folders[name], place / "model"
        copy(subject.path, path)
        said = damage.damage_folder(rng, path, subject.other)
        with _told(said):
            changed = subject.check(path)
            if changed and not _without_edits(subject, path):
                return f"{said}: read as an edit"
        if changed:
            raise Failed("silent change", f"{said}: {changed}")
        return f"{said}: the same"

    return run


def _without_edits(subject: Folder, path: Path) -> str:
    """Return what is changed in a damaged copy besides the tables that people may edit."""
    for table in subject.path.rglob("dimensions.tsv"):
        damage.replace(path / table.relative_to(subject.path), table.read_bytes())
    return subject.check(path)


def _hostile(name: str, tokenizer: str | None = None) -> Callable[[random.Random, Subjects, Path], str]:
    """On purpose, the checksums taken away: it may be another model, but nothing else may happen."""

    def run(rng: random.Random, subjects: Subjects, place: Path) -> str:
        subject, path = subjects.folders[name], place / "model"
        copy(subject.path, path)
        damage.unseal(path)
        if tokenizer is None:
            said = damage.damage_folder(rng, path, subject.other)
        else:
            said = damage.damage_tokenizer(rng, path / tokenizer)
        with _told(said):
            changed = subject.check(path)
        return f"{said}: {changed or 'the same'}"

    return run


def _live(name: str) -> Callable[[random.Random, Subjects, Path], str]:
    """While it is open: a file that was read does not count any more; one that is mapped must not end the process."""

    def run(rng: random.Random, subjects: Subjects, place: Path) -> str:
        subject, path = subjects.folders[name], place / "model"
        shutil.copytree(subject.path, path)  # no links: the files themselves are changed
        limit, is_mapped = store.MAX_READ_BYTES, rng.random() < 0.5
        try:
            store.MAX_READ_BYTES = 0 if is_mapped else limit
            opened = subject.open(path)
        finally:
            store.MAX_READ_BYTES = limit
        observe(opened)
        said = damage.change_in_place(rng, path, cuts=not is_mapped)
        with _told(said):
            changed = subject.compare(opened)
        if changed and not is_mapped:
            raise Failed("silent change", f"{said}: {changed}")
        return f"{said}: {changed or 'the same'}"

    return run


def _file(name: str) -> Callable[[random.Random, Subjects, Path], str]:
    def run(rng: random.Random, subjects: Subjects, place: Path) -> str:
        file = subjects.files[name]
        said, content = damage.broken(rng, file.content, Path(name).suffix)
        (place / name).write_bytes(content)
        with _told(said):
            found = file.read(place / name)
        if file.checked and said != "inside" and found != _pristine(file, place):
            raise Failed("silent change", f"{said}: {len(found)} items, not those that were written")
        return f"{said}: read"

    return run


def _pristine(file: Any, place: Path) -> Any:
    (place / "whole").mkdir()
    (place / "whole" / file.name).write_bytes(file.content)
    return file.read(place / "whole" / file.name)


def _texts(name: str) -> Callable[[random.Random, Subjects, Path], str]:
    return lambda rng, subjects, place: texts.check(rng, subjects.models[name][0])


def _search(rng: random.Random, subjects: Subjects, place: Path) -> str:
    return texts.check_search(rng, subjects.models["static"][0], place)


def _attack(run: Callable[..., str]) -> Callable[[random.Random, Subjects, Path], str]:
    def attack(rng: random.Random, subjects: Subjects, place: Path) -> str:
        try:
            return run(rng, subjects, place)
        finally:
            unmount(place)

    return attack


def _job(trouble: Callable[..., str], name: str) -> Callable[[random.Random, Subjects, Path], str]:
    def run(rng: random.Random, subjects: Subjects, place: Path) -> str:
        try:
            return trouble(rng, subjects, name, place)
        finally:
            unmount(place)

    return run


class _told:
    """Let errors of the library say what the case did, as a note."""

    def __init__(self, said: str) -> None:
        self.said = said

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            error.said = self.said  # type: ignore[attr-defined]


_reached: list[str] = []


def watch() -> None:
    """Note whatever runs a program, opens a connection or unpickles in this process from now on."""
    sys.addaudithook(lambda event, arguments: _reached.append(event) if event in _FORBIDDEN else None)


def run_case(kind: Kind, number: int, seed: int, subjects: Subjects, place: Path) -> Result:
    """Run one case below `place`, which is removed at the end."""
    rng = random.Random(f"{seed} {kind.name} {number}")
    folder = place / "case"
    damage.clear(folder)
    folder.mkdir()
    _reached.clear()
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(), _memory():
            warnings.simplefilter("ignore")
            what, how = "", kind.run(rng, subjects, folder)
    except Failed as failed:
        what, how = failed.what, str(failed)
    except PellucidError as error:
        what, how = "", f"{getattr(error, 'said', '')}: refused: {error}"
    except MemoryError as error:
        what, how = "memory", f"{getattr(error, 'said', '')}: {described(error)}"
    except BaseException as error:
        what, how = "raw error", f"{getattr(error, 'said', '')}: {described(error)}"
    seconds = time.perf_counter() - started
    if _reached and kind.group in SLOW and kind.group != "texts":
        what, how = "reached out", f"{how}: {sorted(set(_reached))}"
    damage.clear(folder)
    return Result(kind.name, number, what, how[:2000], seconds)


class _memory:
    """A limit on how far the memory of the process may grow."""

    def __enter__(self) -> None:
        self.before = _bytes_of("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        limit = _bytes_of("VmSize") + _ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def __exit__(self, *error: Any) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        grown = _bytes_of("VmHWM") - self.before
        if grown > MEMORY:
            raise MemoryError(f"the case took {grown >> 20:,} MB")


def _bytes_of(name: str) -> int:
    """Return what the system says of this process's memory."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10
