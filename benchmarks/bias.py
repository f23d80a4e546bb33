"""Bias of the models at hand, what a removal leaves and what it costs: docs/bias.md and benchmarks/bias.md.

    python -m benchmarks.bias --data DIR --write   # DIR: sts/SICK-R, sts/STS12, retrieval/cranfield

DIR has the evaluation sets in the layout of `pellucid evaluate --data`. STS-B is never used. Rows of each model
are kept in --work, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pellucid

PAGE = Path(__file__).with_suffix(".md")
MODELS = ("static-en", "anchors-en-200", "anchors-minilm-200", "sentence-transformers/all-MiniLM-L6-v2", "lexicon-en")
PAIRS = ("gender", "nationality")
N_DIRECTIONS = (1, 2, 4)
TASKS = ("STS12", "SICK-R", "cranfield")
_HEAD = """# Bias: measured

Swap tests with 40 occupations and {n_templates} templates; [the page about bias](../docs/bias.md) explains the terms.
"Clear" counts occupations that pass Holm's test at 5 %, of those that the model knows. "Size" is the standard deviation
of the leans over occupations, less what chance adds. r is the correlation of the leans with the percent of
women. "After": without the main direction, fitted on pairs other than those tested; "-": nothing can be
removed. Brackets hold 95 % intervals. Made by `benchmarks/bias.py` on {date}, {machine}.
"""

_SECTIONS = {
    "swaps": ("", ["model", "texts", "clear", "size", "r", "clear after", "size after"]),
    "probes": (
        "## What a linear classifier reads\n\nShare of held-out texts for which it gets the group right, before and "
        "after the removal; chance is 50 %.\n\n",
        ["model", "texts", "before", "after"],
    ),
    "directions": (
        "## Number of directions removed (gender)\n\nAfter the removal: the size of the leans; how often the "
        'classifier is right ("read"); of 300 neutral sentences, the share\nwith the same nearest neighbour as before '
        '("same") and the rank correlation of their similarities ("rank r"); Spearman x\n100 on the 4,927 test pairs '
        "of SICK-R, before and after.\n\n",
        [
            "model",
            "removed",
            "size: gender",
            "size: names",
            "read: gender",
            "read: names",
            "same",
            "rank r",
            "SICK-R test",
        ],
    ),
    "quality": (
        "## What it costs\n\nBy `pellucid evaluate`: Spearman's correlation x 100, and nDCG@10 x 100 of Cranfield.\n\n",
        ["model", "directions", *TASKS],
    ),
}


def estimate(value: Any, digits: int = 3) -> str:
    """Return a number and its interval."""
    return "-" if value is None else f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def swap_rows(name: str, result: Any) -> Iterator[list[str]]:
    """Yield the rows of a model's swap tests."""
    for test in result.tests:
        before, after = test.before, test.after
        clear = f"{before.n_clear} of {len(test.leans)}"
        cells = ["-", "-"] if after is None else [str(after.n_clear), estimate(after.spread)]
        yield [name, test.name, clear, estimate(before.spread), estimate(before.correlation, 2), *cells]


def probe_rows(name: str, result: Any) -> Iterator[list[str]]:
    """Yield the rows of a model's probes."""
    for probe in result.probes:
        yield [name, probe.name, *("-" if x is None else f"{100 * x.value:.1f} %" for x in (probe.before, probe.after))]


def direction_rows(name: str, results: dict[int, Any]) -> Iterator[list[str]]:
    """Yield what is left, and what changes in neutral sentences and SICK-R, by the number of directions removed."""
    for n, result in results.items():
        after = [estimate(test.after.spread) for test in result.tests]
        right = [f"{100 * probe.after.value:.1f} %" for probe in result.probes]
        costs = [f"{cost.after:.3f}" for cost in result.costs[:2]]
        sts = [f"{100 * cost.before:.2f} to {100 * cost.after:.2f}" for cost in result.costs[2:]] or ["-"]
        yield [name, str(n), *after, *right, *costs, *sts]


def quality_rows(name: str, model: Any, results: dict[int, Any], data: Path) -> Iterator[list[str]]:
    """Yield the scores of a model on tasks, with and without directions of gender."""
    variants = {"as it is": model} | {f"{n} removed": result.without_direction(model) for n, result in results.items()}
    for variant, changed in variants.items():
        rows = pellucid.evaluate(changed, data=data, tasks=TASKS, show_progress_bar=False).rows
        scores = {row.task: row.score for row in rows}
        yield [name, variant, *(f"{scores[task]:.2f}" for task in TASKS)]


def measure(name: str, data: Path) -> dict[str, Any]:
    """Return the rows of a model in each table."""
    short, model = name.rpartition("/")[2], pellucid.load(name)
    results = [pellucid.bias(model, pairs) for pairs in PAIRS]
    tables: dict[str, Any] = {
        "swaps": [row for result in results for row in swap_rows(short, result)],
        "probes": [row for result in results for row in probe_rows(short, result)],
    }
    if results[0].tests[0].after is not None:
        sts = data / "sts/SICK-R/test.tsv"
        removed = {n: pellucid.bias(model, "gender", n_directions=n, sts=sts if n == 1 else None) for n in N_DIRECTIONS}
        tables["directions"] = list(direction_rows(short, removed))
        is_quick = model.family == "static" or name.startswith("anchors-en")
        tables["quality"] = list(quality_rows(short, model, removed, data)) if is_quick else []
    return tables


def page(tables: Sequence[dict[str, Any]]) -> str:
    """Return the page of the rows of all models."""
    rows = {key: [row for table in tables for row in table.get(key, ())] for key in _SECTIONS}
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    sections = [_HEAD.format(n_templates=8, date=time.strftime("%Y-%m-%d"), machine=machine)]
    for key, (text, head) in _SECTIONS.items():
        sections.append(f"{text}{table(head, rows[key])}")
    return "\n".join(sections)


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="evaluation sets")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--work", type=Path, default=Path("bias.work"), help="where the rows of each model are kept")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    for name in options.models:
        path = options.work / f"{name.rpartition('/')[2]}.json"
        if not path.exists():
            rows = measure(name, options.data)
            path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    paths = [options.work / f"{name.rpartition('/')[2]}.json" for name in MODELS]
    written = page([json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()])
    if options.write:
        PAGE.write_text(written, encoding="utf-8")
    print(written)


if __name__ == "__main__":
    main()
