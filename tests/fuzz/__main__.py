"""Run the attacks and print what came of them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import sanitized
from fuzz import cases, jobs, subjects
from fuzz.cases import Kind, Result
from fuzz.pool import run_all

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- written by make fuzz: begin -->\n", "<!-- end -->"
_SHOWN = 3  # cases named of each cause


def main() -> None:
    """Parse the arguments, run the cases, print the table; the exit code is 1 where a case failed."""
    asked = _arguments()
    if asked.sanitized and "PELLUCID_CHECKED" not in os.environ:
        sys.exit(_run_sanitized())
    with tempfile.TemporaryDirectory(prefix="pellucid-fuzz-", ignore_cleanup_errors=True) as place:
        built = subjects.build(Path(place))
        jobs.prepare()
        kinds = cases.all_kinds(built)
        planned = {(kind.name, number): (kind, number) for kind, number in plan(kinds, asked)}
        results = [result for result in _read(asked.log, asked.seed) if planned.pop((result.kind, result.number), None)]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for result in run_all(planned.values(), asked.workers, asked.seed, built, kinds):
                results.append(result)
                _note(asked.log, asked.seed, result)
                if asked.only or asked.verbose:
                    how = f"{result.what or 'pass'} ({result.seconds:.2f} s) {result.how!r}"
                    print(f"{result.kind}:{result.number} {how}", flush=True)
                elif sys.stderr.isatty():
                    print(f"\r{len(results)} cases", end="", file=sys.stderr)
        except KeyboardInterrupt:
            print("stopped; what was found so far:")
    told = "\n".join(table(results, asked))
    failures = [result for result in results if result.what]
    print(f"\n{told}\n")
    print("\n".join(causes(failures, asked.seed)))
    if asked.write_docs:
        _write_page(told)
    sys.exit(1 if failures else 0)


def _run_sanitized() -> int:
    """Run all this with kernels that check every access to memory."""
    with tempfile.TemporaryDirectory(prefix="pellucid-sanitized-") as place:
        added = sanitized.build(Path(place))
        if added is None:
            sys.exit("--sanitized needs a gcc with AddressSanitizer")
        command = [sys.executable, "-m", "fuzz", *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, **added}, check=False).returncode


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="damaged folders and files")
    parser.add_argument("--kills", type=int, default=300, help="killed jobs")
    parser.add_argument("--disks", type=int, default=120, help="full and read-only disks, each")
    parser.add_argument("--writers", type=int, default=60, help="two writers of one path")
    parser.add_argument("--states", type=int, default=150, help="damaged states of work to go on from")
    parser.add_argument("--texts", type=int, default=1000, help="batches of 100 odd texts")
    parser.add_argument("--index", type=int, default=2000, help="attacks on an index and its search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", action="append", help="KIND:NUMBER, one case; or KIND, its cases alone")
    parser.add_argument("--log", type=Path, help="a file of results; a run that was stopped goes on from it")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    parser.add_argument("--sanitized", action="store_true", help="C kernels that check every access to memory")
    parser.add_argument("--write-docs", action="store_true", help=f"put the table into {PAGE.name}")
    return parser.parse_args()


def plan(kinds: dict[str, Kind], asked: argparse.Namespace) -> list[tuple[Kind, int]]:
    """Return the cases to run: of every group as many as asked, shared among its kinds, the slow ones first."""
    share = asked.index // 100
    numbers = {
        "index-kill": 5 * share, "index-writers": 2 * share, "index-readers": 3 * share, "index-forks": 3 * share,
        "index-full": 3 * share, "index-readonly": 2 * share, "index-damage": 42 * share, "index-hostile": 28 * share,
        "search-odd": 10 * share, "search-threads": 2 * share,
        "kill": asked.kills, "writers": asked.writers, "full": asked.disks, "readonly": asked.disks,
        "state": asked.states, "texts": asked.texts, "live": asked.cases // 20, "files": asked.cases * 3 // 10,
        "hostile": asked.cases * 3 // 10, "damage": asked.cases * 4 // 10,
    }  # fmt: skip
    if asked.only and all(":" in name for name in asked.only):
        pairs = [name.rsplit(":", 1) for name in asked.only]
        return [(kinds[name], int(number)) for name, number in pairs]
    planned = []
    for group, number in numbers.items():
        members = [kind for kind in kinds.values() if kind.group == group]
        ring = [kind for turn in range(max(kind.share for kind in members)) for kind in members if turn < kind.share]
        seen: Counter[str] = Counter()
        for place in range(number):
            kind = ring[place % len(ring)]
            if not asked.only or kind.name in asked.only:
                planned.append((kind, seen[kind.name]))
            seen[kind.name] += 1
    return planned


def _read(log: Path | None, seed: int) -> Iterator[Result]:
    """Yield the results of this seed that a log holds."""
    lines = log.read_text("utf-8").splitlines() if log and log.exists() else []
    for entry in map(json.loads, lines):
        if entry.pop("seed") == seed:
            yield Result(**entry)


def _note(log: Path | None, seed: int, result: Result) -> None:
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": seed, **asdict(result)}) + "\n")


def table(results: list[Result], asked: argparse.Namespace) -> Iterator[str]:
    """Yield the table as Markdown: the cases of each group and of each kind with failures, by what went wrong."""
    seen: dict[str, list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda one: one.kind):
        seen[f"**{result.kind.partition('/')[0]}**"].append(result)
        seen[result.kind].append(result)
    processes = f"{asked.workers} process{'es' if asked.workers > 1 else ''}"
    yield f"Tiny models built on the spot; {platform.system()} {platform.machine()}, {processes}, Python "
    seconds = sum(result.seconds for result in results)
    day = time.strftime("%Y-%m-%d")
    yield f"{platform.python_version()}, {day}, seed {asked.seed}; the cases took {seconds:,.0f} s.\n"
    yield "| kind | cases | refused | failures | of them | slowest, s |"
    yield "|---|---:|---:|---:|---|---:|"
    for name, found in [*seen.items(), ("**all**", results)]:
        what = Counter(result.what for result in found if result.what)
        if what or name.startswith("**"):
            said = ", ".join(f"{count} {kind}" for kind, count in what.most_common())
            refused = sum("refused: " in result.how for result in found if not result.what)
            slowest = max((result.seconds for result in found), default=0)
            yield f"| {name} | {len(found):,} | {refused:,} | {sum(what.values()):,} | {said} | {slowest:.1f} |"


def causes(failures: list[Result], seed: int) -> Iterator[str]:
    """Yield the failures grouped by where they came out, the commonest first, with cases that show them."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for failure in failures:
        groups[failure.what, _signature(failure)].append(failure)
    for (what, signature), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield f"{len(members)} x {what}: {signature}"
        for failure in members[:_SHOWN]:
            yield f"    --only {failure.kind}:{failure.number} --seed {seed}    {failure.how[:240]!r}"


def _signature(failure: Result) -> str:
    """Return what failures of one cause share: the error and where it came out, or the kind of attack."""
    found = re.search(r"\w+ in (outside the library|[\w/]+\.py:\S+?)(?=: )", failure.how)
    return found[0] if found else failure.kind.partition("/")[0]


def _write_page(told: str) -> None:
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{told}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
