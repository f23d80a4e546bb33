"""Run the attacks and print what came of them."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import sanitized
from fuzz import cases, subjects
from fuzz.cases import Kind, Result


def main() -> None:
    """Parse the arguments, run the cases, print the table; the exit code is 1 where a case failed."""
    asked = _arguments()
    if asked.sanitized and "PELLUCID_CHECKED" not in os.environ:
        sys.exit(_run_sanitized())
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="pellucid-fuzz-", ignore_cleanup_errors=True) as place:
        built = subjects.build(Path(place))
        for one in cases.run_all(plan(cases.all_kinds(built), asked), asked.workers, asked.seed, built):
            results.append(one)
            if asked.only:
                print(f"{one.kind}:{one.number} {one.what or 'pass'} ({one.seconds:.2f} s) {one.how!r}")
    print(*table(results), f"\n{asked.workers} processes, seed {asked.seed}", sep="\n")
    failures = [one for one in results if one.what]
    for one in failures[:30]:
        print(f"{one.what}: --only {one.kind}:{one.number} --seed {asked.seed}    {one.how[:240]!r}")
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
    parser.add_argument("--cases", type=int, default=5000, help="about so many in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--only", action="append", help="KIND:NUMBER, one case; or KIND, its cases alone")
    parser.add_argument("--sanitized", action="store_true", help="C kernels that check every access to memory")
    return parser.parse_args()


PERMILLE = {
    "index-kill": 14, "index-writers": 6, "index-readers": 8, "index-full": 8, "index-readonly": 6,
    "index-damage": 110, "hostile": 365, "damage": 483,
}  # fmt: skip
"""Of a thousand cases, those of each group: the slow ones first."""


def plan(kinds: dict[str, Kind], asked: argparse.Namespace) -> Iterator[tuple[Kind, int]]:
    """Yield the cases to run: of every group its part, shared among its kinds."""
    for name in asked.only or ():
        if ":" in name:
            kind, _, number = name.rpartition(":")
            yield kinds[kind], int(number)
    for kind in kinds.values():
        if not asked.only or kind.name in asked.only:
            shares = sum(other.share for other in kinds.values() if other.group == kind.group)
            for number in range(max(1, asked.cases * PERMILLE[kind.group] * kind.share // (1000 * shares))):
                yield kind, number


def table(results: list[Result]) -> Iterator[str]:
    """Yield the table of the groups as Markdown, by what went wrong."""
    yield "| kind | cases | refused | failures | of them | slowest, s |\n|---|---:|---:|---:|---|---:|"
    for group in (*PERMILLE, ""):
        members = [result for result in results if result.kind.startswith(group)]
        what = Counter(result.what for result in members if result.what)
        causes = ", ".join(f"{count} {cause}" for cause, count in what.most_common())
        refused = sum("refused: " in result.how for result in members if not result.what)
        slowest = max((result.seconds for result in members), default=0)
        yield f"| **{group or 'all'}** | {len(members):,} | {refused:,} | {what.total():,} | {causes} | {slowest:.1f} |"


if __name__ == "__main__":
    main()
