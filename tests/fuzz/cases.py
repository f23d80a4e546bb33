"""The kinds of cases, and how one is run: in a forked process of its own, which may crash, hang or fill its memory."""

import os
import random
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from forking import LIMIT, Failed, in_child, note
from fuzz import damage, indexes
from fuzz.damage import copy
from fuzz.processes import own_mounts
from fuzz.subjects import Subjects

MEMORY = 1 << 30  # bytes that a case may take beyond what its process has
_ADDRESSES = 3 << 30  # of address space, where a case ends before it takes the machine's memory
_TOKENIZERS = {"static": "subwords.json", "lexicon": "backbone/tokenizer.json"}
_FORBIDDEN = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class"}


@dataclass(frozen=True)
class Kind:
    """A kind of cases: its group, what it attacks, how, how much of its group it is, and what all its cases share."""

    group: str
    subject: str
    run: Callable[[random.Random, Subjects, Path], str]
    share: int = 1
    seconds: float = 8 * LIMIT  # of several children, each with a limit of its own
    prepare: Callable[[Subjects], object] = lambda subjects: None

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
    shares = {"static": 3, "static-int8": 2, "static-int4": 2, "static-lexicon": 2, "anchors": 2}
    kinds = [
        Kind("hostile" if is_hostile else "damage", name, _damage(name, is_hostile), shares.get(name, 1), 30)
        for is_hostile in (False, True)
        for name in subjects.folders
    ]
    for name in _TOKENIZERS.keys() & subjects.folders:
        kinds.append(Kind("hostile", f"{name}-tokenizer", _damage(name, True, _TOKENIZERS[name]), 3, 30))
    kinds += [Kind(group, "search", run) for group, run in indexes.ATTACKS.items()]
    kinds.append(Kind("index-damage", "search", indexes.damaged, 1, 30, lambda subjects: indexes.whole(subjects.place)))
    return {kind.name: kind for kind in kinds}


def _damage(name: str, is_hostile: bool, tokenizer: str = "") -> Callable[[random.Random, Subjects, Path], str]:
    """By accident, the model must give the same vectors, or our error; on purpose, it may be another model."""

    def run(rng: random.Random, subjects: Subjects, place: Path) -> str:
        subject, path = subjects.folders[name], place / "model"
        copy(subject.path, path)
        if is_hostile:
            damage.unseal(path)
        if tokenizer:
            note(damage.damage_tokenizer(rng, path / tokenizer))
        else:
            note(damage.damage_folder(rng, path, subject.other))
        changed = subject.check(path)
        if changed and not is_hostile:
            for table in subject.path.rglob("dimensions.tsv"):  # which people may edit
                damage.replace(path / table.relative_to(subject.path), table.read_bytes())
            changed = subject.check(path)
            if changed:
                raise Failed("silent change", changed)
        return changed or "the same"

    return run


def run_all(wanted: Iterable[tuple[Kind, int]], workers: int, seed: int, subjects: Subjects) -> Iterator[Result]:
    """Run cases, `workers` of them at once, and yield how they end."""

    def run(case: tuple[Kind, int]) -> Result:
        kind, number = case
        with tempfile.TemporaryDirectory(dir=subjects.place, ignore_cleanup_errors=True) as place:
            rng = random.Random(f"{seed} {kind.name} {number}")
            ended = in_child(lambda: _run_guarded(kind, rng, subjects, Path(place)), limit=kind.seconds)()
        what = "" if ended.how in ("done", "refused") else ended.how
        return Result(kind.name, number, what, f"{ended.how}: {ended.detail}", ended.seconds)

    cases = list(wanted)
    for kind in {kind.name: kind for kind, _ in cases}.values():
        kind.prepare(subjects)
    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(run, cases)


def _run_guarded(kind: Kind, rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Run a case in its process: with little memory, and without a look outside; its output goes nowhere."""
    reached: list[str] = []
    sys.addaudithook(lambda event, arguments: reached.append(event) if event in _FORBIDDEN else None)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    own_mounts()
    warnings.simplefilter("ignore")
    before = _bytes_of("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    resource.setrlimit(resource.RLIMIT_AS, (_bytes_of("VmSize") + _ADDRESSES, resource.RLIM_INFINITY))
    how = kind.run(rng, subjects, place)
    grown = _bytes_of("VmHWM") - before
    if grown > MEMORY:
        raise MemoryError(f"the case took {grown >> 20:,} MB")
    if reached:
        raise Failed("reached out", f"{sorted(set(reached))}")
    return how


def _bytes_of(name: str) -> int:
    """Return what the system says of this process's memory."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10
