"""Work that is interrupted: each job writes `out` and keeps its state in `work`, in a folder of its own.

A job is run whole once, which tells how long it takes, how many file operations it makes and what comes out. Then it is
killed, at a moment of the clock or at a file operation, or meets a full or read-only disk, or another process that does
the same; afterwards `out` must be what was there before or what comes out of a whole run, and the next run must give
just that and leave no `.part`.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import damage
from fuzz.processes import Failed, allow, check_ended, in_child, mount
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
from pellucid.static.training.languages import distill_languages
from pellucid.static.training.tuning import RefinementSettings, TuningSettings


@dataclass(frozen=True)
class Job:
    """What is done in a folder, and what stands there before."""

    run: Callable[[Subjects, Path], None]
    before: Callable[[Subjects, Path], None] = lambda subjects, folder: None
    rival: Callable[[Subjects, Path], None] | None = None
    """What the second writer does; None does the same."""


# Jobs

_QUICK = RefinementSettings(steps=12, batch_size=16, neighbours=4, evaluate_every=4)


def prepare() -> None:
    """Let the shards of what the jobs keep be small."""
    for module, name in ((extraction, "_SHARD"), (candidatestore, "_SHARD_TEXTS")):
        assert getattr(module, name) > 1000
        setattr(module, name, 32)


def _corpora(subjects: Subjects, folder: Path) -> None:
    """Write what the jobs read."""
    english, german = ([*sentences(120, seed), "the swift car.", "a rapid horse."] for seed in (0, 1))
    for code, texts in (("en", english), ("de", german)):
        (folder / f"{code}.txt").write_text("".join(f"{text}\n" for text in texts))
    (folder / "en-de.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in zip(english, german)))


def _saving(name: str) -> Job:
    def run(subjects: Subjects, folder: Path) -> None:
        save(name, subjects.models[name][1], folder / "out", subjects.place)

    def rival(subjects: Subjects, folder: Path) -> None:
        """Save a model of other files, so that one of them among the first model's would be seen."""
        names = list(subjects.models)
        other = name if name == "index" else names[names.index(name) - 1]
        save(other, subjects.models[other][0], folder / "out", subjects.place)

    return Job(run, lambda subjects, folder: _standing(subjects, name, folder), rival)


def _standing(subjects: Subjects, name: str, folder: Path) -> None:
    shutil.copytree(subjects.folders[name].path, folder / "out")


def _encoding(model: str, ending: str) -> Job:
    def run(subjects: Subjects, folder: Path) -> None:
        command = ["encode", str(folder / "en.txt"), "-m", str(subjects.folders[model].path), "--overwrite", "-o"]
        if app([*command, str(folder / f"out.{ending}")], standalone_mode=False):
            raise PellucidError("the command has told what is wrong")

    return Job(run, _corpora)


def _distilling(subjects: Subjects, folder: Path) -> None:
    made = distill(
        subjects.teacher, folder / "en.txt", work_dir=folder / "work", extraction=ExtractionSettings(batch_size=16),
        pca=PcaSettings(dimensions=8, drop=1), refinement=_QUICK, show_progress_bar=False,
    )  # fmt: skip
    made.save_pretrained(folder / "out")


def _languages(subjects: Subjects, folder: Path) -> None:
    made = distill_languages(
        subjects.teacher, {"en": folder / "en.txt", "de": folder / "de.txt"}, {("en", "de"): folder / "en-de.tsv"},
        work_dir=folder / "work",
        pca=PcaSettings(dimensions=8, drop=1), tuning=TuningSettings(steps=12, batch_size=16, evaluate_every=4),
        show_progress_bar=False,
    )  # fmt: skip
    made.save_pretrained(folder / "out")


def _choosing(subjects: Subjects, folder: Path) -> None:
    encoder = subjects.models["static"][0]
    off = {"links": True, "mojibake": True, "markup": True, "fragments": True, "content_words": 0}
    settings = CandidateSettings(language=None, words=None, **off)
    texts = choose_anchors(
        encoder, folder / "en.txt", 9, settings=settings, work_dir=folder / "work", show_progress_bar=False
    )
    AnchorEmbedder(encoder, texts).decorrelate(0.5).save_pretrained(folder / "out")


def _training(subjects: Subjects, folder: Path) -> None:
    model = subjects.models["lexicon"][0]
    made = train_lexicon(model, [TrainingSet("pairs", ROWS)], folder / "work", TRAINING, show_progress_bar=False)
    made.save_pretrained(folder / "out")


JOBS: dict[str, Job] = {
    **{f"save-{name}": _saving(name) for name in MODELS},
    **{f"encode-{end}": _encoding("static", end) for end in ("npy", "jsonl", "parquet")},
    "encode-sparse": _encoding("lexicon", "jsonl"),
    "distill": Job(_distilling, _corpora),
    "languages": Job(_languages, _corpora),
    "anchors": Job(_choosing, _corpora),
    "train-lexicon": Job(_training, _corpora),
}
RESUMED = ("distill", "languages", "anchors", "train-lexicon")
"""The jobs that keep a state and go on from it."""

_NEEDED = {"encode-sparse": "lexicon", "train-lexicon": "lexicon"}


def possible(subjects: Subjects, names: Iterable[str]) -> list[str]:
    """Return those of some jobs whose models were built."""
    saved = {f"save-{name}": name for name in MODELS}
    return [name for name in names if {**_NEEDED, **saved}.get(name, "static") in subjects.models]


# What is done to them


@dataclass(frozen=True)
class Whole:
    """What a run that nobody disturbs does."""

    before: str
    after: str
    rival: str
    operations: int
    seconds: float
    bytes: int


@cache
def whole(subjects: Subjects, name: str, place: Path) -> Whole:
    """Run a job to its end, twice: what comes out must not depend on the run."""
    found = []
    job = JOBS[name]
    for work in (job.rival or job.run, job.run, job.run):
        with tempfile.TemporaryDirectory(dir=place) as made:
            folder = _begin(subjects, name, Path(made) / "job")
            before = _out(folder)
            ended = in_child(lambda: work(subjects, folder))()  # noqa: B023
            if ended.how != "done":
                raise Failed("raw error", f"undisturbed: {ended.how} {ended.detail}")
            size = sum(file.stat().st_size for file in folder.rglob("*"))
            found.append((_out(folder), ended, size))
    (rival, _, _), (first, _, _), (after, ended, size) = found
    if first != after:
        raise Failed("another result", "two undisturbed runs differ")
    return Whole(before, after, rival, ended.operations, ended.seconds, size)


def _begin(subjects: Subjects, name: str, folder: Path) -> Path:
    folder.mkdir()
    JOBS[name].before(subjects, folder)
    return folder


def _out(folder: Path) -> str:
    return "".join(digest(path) for path in sorted(folder.glob("out*")))


def kill(rng: random.Random, subjects: Subjects, name: str, place: Path) -> str:
    """Kill a job at any moment, look at what it left, and let it go on; sometimes it is killed once more."""
    expected, folder = whole(subjects, name, place.parent), _begin(subjects, name, place / "job")
    said = []
    for _ in range(1 + (rng.random() < 0.3)):
        if rng.random() < 0.5:
            how: dict[str, Any] = {"kill_at": rng.randint(1, expected.operations)}
        else:
            how = {"kill_after": rng.random() * expected.seconds}
        ended = in_child(lambda: JOBS[name].run(subjects, folder), **how)()
        said.append(f"{how} {ended.how}")
        check_ended(ended, allowed=("done", "killed"))
        _check_whole(folder, expected)
    _check_next(subjects, name, folder, expected)
    return ", ".join(said)


def full(rng: random.Random, subjects: Subjects, name: str, place: Path) -> str:
    """Let the disk be full somewhere on the way: a small file system for root, a limit of file sizes for others."""
    expected, folder = whole(subjects, name, place.parent), place / "job"
    share = rng.random()
    if os.geteuid() == 0:
        folder.mkdir()
        mount(folder, "size=64m")
        JOBS[name].before(subjects, folder)
        held = sum(-(-file.stat().st_size // 4096) * 4096 for file in folder.rglob("*") if file.is_file())
        room = int(share * (2 * expected.bytes + 65536))
        mount(folder, f"size={max(4096, held + room)}", again=True)
        limit = None
    else:
        _begin(subjects, name, folder)
        limit = int(share * expected.bytes)
    ended = in_child(lambda: _with_limit(subjects, name, folder, limit))()
    check_ended(ended, allowed=("done", "refused"))
    _check_whole(folder, expected)
    _check_no_parts(folder)
    if limit is None:
        mount(folder, "size=64m", again=True)
    _check_next(subjects, name, folder, expected)
    return f"{share:.0%} of the room: {ended.how}: {ended.detail}"


def _with_limit(subjects: Subjects, name: str, folder: Path, limit: int | None) -> None:
    if limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    JOBS[name].run(subjects, folder)


def readonly(rng: random.Random, subjects: Subjects, name: str, place: Path) -> str:
    """Let the disk be read-only, from the start or after a first kill."""
    expected, folder = whole(subjects, name, place.parent), place / "job"
    folder.mkdir()
    if os.geteuid() == 0:
        mount(folder, "size=64m")
    JOBS[name].before(subjects, folder)
    begun = rng.random() < 0.5
    if begun:
        in_child(lambda: JOBS[name].run(subjects, folder), kill_at=rng.randint(1, expected.operations))()
    allow(folder, writing=False)
    ended = in_child(lambda: JOBS[name].run(subjects, folder))()
    allow(folder, writing=True)
    check_ended(ended, allowed=("done", "refused") if begun else ("refused",))
    _check_whole(folder, expected)
    _check_next(subjects, name, folder, expected)
    return f"{'begun' if begun else 'new'}: {ended.how}: {ended.detail}"


def writers(rng: random.Random, subjects: Subjects, name: str, place: Path) -> str:
    """Let two processes do it at once, or one a moment later: one whole result, and each is done or is told."""
    expected, folder = whole(subjects, name, place.parent), _begin(subjects, name, place / "job")
    delay = rng.choice((0.0, rng.random() * expected.seconds))
    waiting, start = os.pipe()
    job = JOBS[name]
    ends = [in_child(_several(work, subjects, folder), start=waiting) for work in (job.rival or job.run, job.run)]
    os.write(start, b"1")
    time.sleep(delay)
    os.write(start, b"1")
    how = [end() for end in ends]
    os.close(waiting)
    os.close(start)
    for ended in how:
        check_ended(ended, allowed=("done", "refused"))
    if not any(ended.how == "done" for ended in how):
        raise Failed("none was let in", f"{[ended.detail for ended in how]}")
    if _out(folder) not in (expected.after, expected.rival):
        raise Failed("mixed", f"after {[ended.how for ended in how]} the result is neither one's")
    _check_no_parts(folder)
    _check_next(subjects, name, folder, expected)
    return f"the second after {delay:.2f} s: {[ended.how for ended in how]}"


def _several(work: Callable[[Subjects, Path], None], subjects: Subjects, folder: Path) -> Callable[[], None]:
    """Return what one of two writers does: its work, a few times."""

    def run() -> None:
        for _ in range(3):
            work(subjects, folder)

    return run


def state(rng: random.Random, subjects: Subjects, name: str, place: Path) -> str:
    """Damage what a job keeps for going on: the next run refuses it, or gives what it gave."""
    expected, folder = whole(subjects, name, place.parent), _begin(subjects, name, place / "job")
    at = rng.choice((None, rng.randint(1, expected.operations)))
    in_child(lambda: JOBS[name].run(subjects, folder), kill_at=at)()
    damage.clear(folder / "out")
    if rng.random() < 0.2:
        said, wanted = _other_corpus(rng, subjects, name, folder, place / "fresh")
    elif any(file.is_file() for file in folder.glob("work/**/*")):
        said, wanted = damage.damage_folder(rng, folder / "work", folder / "work"), expected.after
    else:
        return "no state yet"
    ended = in_child(lambda: JOBS[name].run(subjects, folder))()
    try:
        check_ended(ended, allowed=("done", "refused"))
        if ended.how == "done" and _out(folder) != wanted:
            raise Failed("silent change", "the job went on from it to another result")
    except Failed as failed:
        raise Failed(failed.what, f"{said}: {failed}") from failed
    return f"{said}: {ended.how}: {ended.detail}"


def _other_corpus(rng: random.Random, subjects: Subjects, name: str, folder: Path, fresh: Path) -> tuple[str, str]:
    """Put another corpus of the same name and size in place; return what a new run makes of it."""
    for place in (folder, _begin(subjects, name, fresh)):
        lines = (place / "en.txt").read_text().splitlines(keepends=True)
        random.Random(0).shuffle(lines)
        (place / "en.txt").write_text("".join(lines))
    in_child(lambda: JOBS[name].run(subjects, fresh))()
    return "another corpus of equal size", _out(fresh)


def _check_whole(folder: Path, expected: Whole) -> None:
    if _out(folder) not in (expected.before, expected.after):
        raise Failed("not whole", f"neither the old nor the new: {sorted(p.name for p in folder.glob('out*'))}")


def _check_next(subjects: Subjects, name: str, folder: Path, expected: Whole) -> None:
    """Let the job run once more, and see that it gives what an undisturbed run gives and leaves nothing behind."""
    again = in_child(lambda: JOBS[name].run(subjects, folder))()
    if again.how != "done":
        raise Failed("raw error" if again.how == "raw" else f"no next run: {again.how}", again.detail)
    if _out(folder) != expected.after:
        raise Failed("another result", "a run that goes on gives another result than an undisturbed one")
    _check_no_parts(folder)


def _check_no_parts(folder: Path) -> None:
    left = [path for pattern in ("*.part", ".tmp*") for path in folder.rglob(pattern)]  # ours, and of libraries
    parts = [str(path.relative_to(folder)) for path in left]
    if parts:
        raise Failed("left over", f"{parts} after a later run")


TROUBLES: dict[str, Callable[[random.Random, Subjects, str, Path], str]] = {
    "kill": kill,
    "full": full,
    "readonly": readonly,
    "writers": writers,
    "state": state,
}
