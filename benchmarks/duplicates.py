"""How fast `pellucid.duplicates` goes through a million sentences, what it misses, and which edits it finds; markdown.

    python -m benchmarks.duplicates --data shared/data
    python -m benchmarks.duplicates --data shared/data --texts 100000    # a smaller corpus

The corpus is the first lines of raw_english, in a file; the model static-en; the threshold 0.9. Missed duplicates are
counted on a sample of the kept texts: each is compared with all texts kept before it. semhash (if it is installed) does
the same job with the same embeddings on 100,000 lines. The planted edits are made of 2,000 of 20,000 sentences: those
of one kind are added to the 20,000, and the share that is found to be a duplicate of its own sentence is printed.
"""

from __future__ import annotations

import datetime
import lzma
import os
import random
import re
import resource
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from papers.kit import make_parser
from pellucid.bulk.near_duplicates import Duplicates

THRESHOLDS = (0.85, 0.9, 0.95)
_SAMPLE, _BLOCK = 4_000, 50_000
_BASE, _PLANTED = 20_000, 2_000
_SEMHASH = 100_000

_SYNONYMS = dict(
    pair.split("-")
    for pair in (
        "big-large small-little begin-start buy-purchase quick-fast happy-glad ill-sick shop-store film-movie car-auto "
        "house-home answer-reply error-mistake job-task pretty-beautiful angry-mad help-assist show-display hard-tough "
        "near-close talk-speak child-kid rich-wealthy smart-clever road-street picture-photo woman-lady "
        "doctor-physician nice-good get-obtain want-wish need-require end-finish think-believe tell-inform"
    ).split()
)
_NUMBER = re.compile(r"\b\d+\b")
_VERB = re.compile(r"\b(is|are|was|were|can|will|would|should|could)\b")


def _with_synonym(text: str) -> str:
    return re.sub(r"\b[a-z]+\b", lambda found: _SYNONYMS.get(found[0], found[0]), text)


def _without_word(text: str) -> str:
    words = text.split()
    return " ".join(words[: len(words) // 2] + words[len(words) // 2 + 1 :])


def _with_typo(text: str) -> str:
    longest = max(text.split(), key=len)
    return text.replace(longest, longest[:2] + longest[3:4] + longest[2:3] + longest[4:], 1)


EDITS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "punctuation": lambda text: "- " + re.sub(r"[.,;:!?]", "", text) + " ...",
    "a typing error in the longest word": _with_typo,
    "synonyms for some words": _with_synonym,
    "the middle word is missing": _without_word,
    "*another number*": lambda text: _NUMBER.sub(lambda found: str(int(found[0][:9]) + 2), text),
    "*not* put in": lambda text: _VERB.sub(r"\1 not", text, count=1),
}
"""The last two change what a text says: to find them is an error."""


def lines_of(data: Path, count: int) -> list[str]:
    """Return the first sentences of raw_english."""
    with lzma.open(data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf8") as file:
        return [line.rstrip("\n") for line in islice(file, count)]


def peak() -> float:
    """Return the largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what `work` does, and its wall and processor seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - processor


def recall(report: Duplicates, lines: list[str]) -> float:
    """Return the estimated share of duplicates that is found: a sample of the kept texts is compared exactly."""
    kept = np.array(report.representative_indices)
    chosen = np.sort(np.random.default_rng(0).choice(kept, min(_SAMPLE, len(kept)), replace=False))
    rows = report.model.encode([lines[n] for n in chosen])
    best = np.full(len(chosen), -1.0, np.float32)
    for block in np.array_split(kept, -(-len(kept) // _BLOCK)):
        scores = rows @ report.model.encode([lines[n] for n in block]).T
        scores[block[None, :] >= chosen[:, None]] = -1
        best = np.maximum(best, scores.max(axis=1))
    missed = float((best >= report.threshold).mean()) * len(kept)
    return len(report.pairs) / (len(report.pairs) + missed)


def large(lines: list[str], folder: Path) -> None:
    """Print time, memory and recall for a corpus in a file."""
    corpus = folder / f"{len(lines)}.txt"
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report, wall, processor = timed(lambda: pellucid.duplicates(corpus))
    memory = peak()
    numbers = sum(pair.numbers_differ for pair in report.pairs)
    print("| texts | duplicates | of them with other numbers | wall, s | processor, s | peak memory, GB | recall |")
    print("|---|---|---|---|---|---|---|")
    found = f"| {len(lines):,} | {len(report.pairs):,} | {numbers:,} | {wall:.0f} | {processor:.0f} | {memory:.2f} "
    print(f"{found}| {recall(report, lines):.3f} |\n", flush=True)


def semhash(lines: list[str]) -> None:
    """Print the same job by semhash and by us, with the same embeddings."""
    try:
        name = f"semhash {version('semhash')}"
    except PackageNotFoundError:
        print("semhash is not installed\n")
        return
    from semhash import SemHash  # type: ignore[import-not-found]

    model: Any = pellucid.load("static-en")
    theirs, *times1 = timed(lambda: SemHash.from_records(lines, model=model).self_deduplicate(threshold=0.9))
    ours, *times2 = timed(lambda: pellucid.duplicates(lines, model))
    kept = {lines[n] for n in ours.representative_indices}
    same = len(kept.intersection(theirs.selected)) / len(kept)
    print(f"| {len(lines):,} texts | kept | wall, s | processor, s |\n|---|---|---|---|")
    print(f"| {name} | {len(theirs.selected):,} | {times1[0]:.1f} | {times1[1]:.1f} |")
    print(f"| pellucid | {len(ours.representative_indices):,} | {times2[0]:.1f} | {times2[1]:.1f} |")
    print(f"\n{same:.1%} of the texts that pellucid keeps are kept by semhash, too.\n", flush=True)


def planted(lines: list[str]) -> None:
    """Print the share of planted edits that are found, for some thresholds and with `same_numbers`."""
    base = list(dict.fromkeys(lines))[:_BASE]
    model = pellucid.load("static-en")
    heads = [f"{threshold}" for threshold in THRESHOLDS] + ["0.9, same numbers"]
    print(f"| edit, share found | edits | {' | '.join(heads)} |\n|---|---|" + "---|" * len(heads))
    for name, edit in EDITS.items():
        changed = [(number, edit(text)) for number, text in enumerate(base) if edit(text) != text]
        chosen = sorted(random.Random(0).sample(changed, min(_PLANTED, len(changed))))
        shares = [_found(model, base, chosen, threshold, False) for threshold in THRESHOLDS]
        shares.append(_found(model, base, chosen, 0.9, True))
        print(f"| {name} | {len(chosen):,} | {' | '.join(f'{share:.3f}' for share in shares)} |", flush=True)


def _found(model: Any, base: list[str], edits: list[tuple[int, str]], threshold: float, same_numbers: bool) -> float:
    """Return the share of edits that end up in the group of the sentence they were made of."""
    texts = base + [text for _, text in edits]
    report = pellucid.duplicates(texts, model, threshold=threshold, same_numbers=same_numbers)
    home = {pair.duplicate: pair.kept for pair in report.pairs}
    hits = [
        home.get(number, number) == home.get(place)
        for place, (number, _) in enumerate(edits, len(base))
    ]  # fmt: skip
    return sum(hits) / len(hits)


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, data="raw_english/", only=("large", "semhash", "planted"))
    parser.add_argument("--texts", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print(f"{datetime.date.today()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.0f}\n")
    lines = lines_of(arguments.data, arguments.texts)
    pellucid.load("static-en").encode(lines[:3_000])  # compiles, once in a process
    with tempfile.TemporaryDirectory() as folder:
        if "large" in arguments.only:
            large(lines, Path(folder))
        if "semhash" in arguments.only:
            semhash(lines[:_SEMHASH])
        if "planted" in arguments.only:
            planted(lines)


if __name__ == "__main__":
    main()
