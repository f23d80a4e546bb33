"""Work that is interrupted: each job writes `out` and keeps its state in `work`, in a folder of its own.

A job is run whole once, which tells how long it takes, how many file operations it makes and what comes out. Then it is
killed, at a moment of the clock or at a file operation, or meets a full disk; afterwards `out` must be what was there
before or what comes out of a whole run, and the next run must give just that and leave no `.part`.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import damage
from fuzz.processes import Ended, Failed, check_ended, in_child, mount, note
from fuzz.subjects import MODELS, ROWS, TRAINING, Subjects, digest, save, sentences
from pellucid.anchors import candidates as candidatestore
from pellucid.anchors.candidates import CandidateSettings
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.anchors.sampling import choose_anchors
from pellucid.cli.app import app
from pellucid.errors import PellucidError
from pellucid.lexicon.training import train_lexicon
from pellucid.lexicon.training_data import TrainingSet
from pellucid.static.training import extraction
from pellucid.static.training.distill import PcaSettings, distill
from pellucid.static.training.extraction import ExtractionSettings
from pellucid.static.training.tuning import RefinementSettings

_QUICK = RefinementSettings(steps=12, batch_size=16, neighbours=4, evaluate_every=4)

Job = Callable[[Subjects, Path], None]


def prepare() -> None:
    """Let the shards of what the jobs keep be small."""
    for module, name in ((extraction, "_SHARD"), (candidatestore, "_SHARD_TEXTS")):
        assert getattr(module, name) > 1000
        setattr(module, name, 32)


def _save(name: str) -> Job:
    return lambda subjects, folder: save(name, subjects.models[name][1], folder / "out", subjects.place)


def _encode(model: str, ending: str) -> Job:
    def run(subjects: Subjects, folder: Path) -> None:
        command = ["encode", str(folder / "en.txt"), "-m", str(subjects.folders[model].path), "--overwrite", "-o"]
        if app([*command, str(folder / f"out.{ending}")], standalone_mode=False):
            raise PellucidError("the command has told what is wrong")

    return run


def _distill(subjects: Subjects, folder: Path) -> None:
    made = distill(
        subjects.teacher, folder / "en.txt", work_dir=folder / "work", extraction=ExtractionSettings(batch_size=16),
        pca=PcaSettings(dimensions=8, drop=1), refinement=_QUICK, show_progress_bar=False,
    )  # fmt: skip
    made.save_pretrained(folder / "out")


def _choose(subjects: Subjects, folder: Path) -> None:
    encoder = subjects.models["static"][0]
    off = {"links": True, "mojibake": True, "markup": True, "fragments": True, "content_words": 0}
    settings = CandidateSettings(language=None, words=None, **off)
    texts = choose_anchors(
        encoder, folder / "en.txt", 9, settings=settings, work_dir=folder / "work", show_progress_bar=False
    )
    AnchorEmbedder(encoder, texts).decorrelate(0.5).save_pretrained(folder / "out")


def _train(subjects: Subjects, folder: Path) -> None:
    model = subjects.models["lexicon"][0]
    made = train_lexicon(model, [TrainingSet("pairs", ROWS)], folder / "work", TRAINING, show_progress_bar=False)
    made.save_pretrained(folder / "out")


RESUMED: dict[str, Job] = {"distill": _distill, "anchors": _choose, "train-lexicon": _train}
"""The jobs that keep a state and go on from it."""

JOBS: dict[str, Job] = {
    **{f"save-{name}": _save(name) for name in MODELS},
    **{f"encode-{end}": _encode("static", end) for end in ("npy", "jsonl", "parquet")},
    "encode-sparse": _encode("lexicon", "jsonl"),
    **RESUMED,
}
_NEEDED = {"encode-sparse": "lexicon", "train-lexicon": "lexicon", **{f"save-{name}": name for name in MODELS}}


def possible(subjects: Subjects, names: Iterable[str]) -> list[str]:
    """Return those of some jobs whose models were built."""
    return [name for name in names if _NEEDED.get(name, "static") in subjects.models]


def _begin(subjects: Subjects, name: str, folder: Path) -> Path:
    """Make the folder of a job: what it reads, or the model that stands where it saves."""
    folder.mkdir(exist_ok=True)
    if name.startswith("save-"):
        shutil.copytree(subjects.folders[name.removeprefix("save-")].path, folder / "out")
    else:
        texts = [*sentences(120), "the swift car.", "a rapid horse."]
        (folder / "en.txt").write_text("".join(f"{text}\n" for text in texts))
    return folder


def _run(subjects: Subjects, name: str, folder: Path, **how: Any) -> Ended:
    return in_child(lambda: JOBS[name](subjects, folder), **how)()


# What is done to them


@dataclass(frozen=True)
class Whole:
    """What a run that nobody disturbs does."""

    before: str
    after: str
    operations: int
    seconds: float
    bytes: int


@cache
def whole(name: str, subjects: Subjects) -> Whole:
    """Run a job to its end, twice: what comes out must not depend on the run."""
    results = set()
    for _ in range(2):
        with tempfile.TemporaryDirectory(dir=subjects.place) as scratch:
            folder = _begin(subjects, name, Path(scratch) / "job")
            before = _out(folder)
            ended = _run(subjects, name, folder)
            check_ended(ended, allowed=("done",))
            size = sum(file.stat().st_size for file in folder.rglob("*"))
            results.add(_out(folder))
    if len(results) > 1:
        raise Failed("another result", "two undisturbed runs differ")
    return Whole(before, results.pop(), ended.operations, ended.seconds, size)


def _out(folder: Path) -> str:
    return "".join(digest(path) for path in sorted(folder.glob("out*")))


def kill(name: str, rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Kill a job at any moment, look at what it left, and let it go on; sometimes it is killed once more."""
    expected, folder = whole(name, subjects), _begin(subjects, name, place / "job")
    for _ in range(1 + (rng.random() < 0.3)):
        how: dict[str, Any] = {"kill_after": rng.random() * expected.seconds}
        if rng.random() < 0.5:
            how = {"kill_at": rng.randint(1, expected.operations)}
        ended = _run(subjects, name, folder, **how)
        note(f"{how} {ended.how}")
        check_ended(ended, allowed=("done", "killed"))
        _check_whole(folder, expected)
    _check_next(subjects, name, folder, expected)
    return ""


def full(name: str, rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Let the disk be full somewhere on the way: a small file system for root, a limit of file sizes for others."""
    expected, folder, share = whole(name, subjects), place / "job", rng.random()
    limit = resource.RLIM_INFINITY
    folder.mkdir()
    if os.geteuid() == 0:
        mount(folder, "size=64m")
        _begin(subjects, name, folder)
        used = sum(-(-file.stat().st_size // 4096) * 4096 for file in folder.rglob("*") if file.is_file())
        room = int(share * (2 * expected.bytes + 65536))
        mount(folder, f"size={max(4096, used + room)}", again=True)
    else:
        _begin(subjects, name, folder)
        limit = int(share * expected.bytes)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        JOBS[name](subjects, folder)

    ended = in_child(run)()
    note(f"{share:.0%} of the room: {ended.how}: {ended.detail}")
    check_ended(ended, allowed=("done", "refused"))
    _check_whole(folder, expected)
    _check_no_parts(folder)
    if os.geteuid() == 0:
        mount(folder, "size=64m", again=True)
    _check_next(subjects, name, folder, expected)
    return ""


def state(name: str, rng: random.Random, subjects: Subjects, place: Path) -> str:
    """Damage what a job keeps for going on: the next run refuses it, or gives what it gave."""
    expected, folder = whole(name, subjects), _begin(subjects, name, place / "job")
    _run(subjects, name, folder, kill_at=rng.choice((None, rng.randint(1, expected.operations))))
    shutil.rmtree(folder / "out", ignore_errors=True)
    if not any(file.is_file() for file in folder.glob("work/**/*")):
        return "no state yet"
    note(damage.damage_folder(rng, folder / "work", folder / "work"))
    ended = _run(subjects, name, folder)
    check_ended(ended, allowed=("done", "refused"))
    if ended.how == "done" and _out(folder) != expected.after:
        raise Failed("silent change", "the job went on from it to another result")
    return f"{ended.how}: {ended.detail}"


def _check_whole(folder: Path, expected: Whole) -> None:
    if _out(folder) not in (expected.before, expected.after):
        raise Failed("not whole", f"neither the old nor the new: {sorted(p.name for p in folder.glob('out*'))}")


def _check_next(subjects: Subjects, name: str, folder: Path, expected: Whole) -> None:
    """Let the job run once more, and see that it gives what an undisturbed run gives and leaves nothing behind."""
    check_ended(_run(subjects, name, folder), allowed=("done",))
    if _out(folder) != expected.after:
        raise Failed("another result", "a run that goes on gives another result than an undisturbed one")
    _check_no_parts(folder)


def _check_no_parts(folder: Path) -> None:
    left = [path.name for pattern in ("*.part", ".tmp*") for path in folder.rglob(pattern)]  # ours, and of libraries
    if left:
        raise Failed("left over", f"{left} after a later run")


TROUBLES: dict[str, Callable[[str, random.Random, Subjects, Path], str]] = {"kill": kill, "full": full, "state": state}
