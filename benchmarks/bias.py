"""Bias of the models at hand, what a removal leaves and what it costs: docs/bias.md and benchmarks/bias.md.

    python -m benchmarks.bias --data DIR --write   # DIR: sts/SICK-R, sts/STS12, retrieval/cranfield

DIR has the evaluation sets in the layout of `pellucid evaluate --data`. STS-B is never used.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pellucid
from pellucid.errors import PellucidError

PAGE = Path(__file__).with_suffix(".md")
MODELS = ("static-en", "anchors-en-200", "anchors-minilm-200", "sentence-transformers/all-MiniLM-L6-v2", "lexicon-en")
PAIRS = ("gender", "nationality")
N_DIRECTIONS = (1, 2, 4)
TASKS = ("STS12", "SICK-R", "cranfield")
_HEAD = """# Bias: measured

Swap tests of the models at hand: 40 occupations, {n_templates} templates; what they are is on the
[page about bias](../docs/bias.md). "Clear" counts targets that pass Holm's test at 5 %; "size" is the standard
deviation of the leans over targets, less what is chance, with its 95 % interval; r is their correlation with the
percent of women. After: without the main direction, fitted on other pairs than are tested. Made by
`benchmarks/bias.py` on {date}, {machine}.
"""


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


def quality_rows(name: str, model: Any, results: dict[int, Any], data: Path) -> Iterator[list[str]]:
    """Yield the scores of a model on tasks, with and without directions of gender."""
    variants = {"as it is": model} | {f"{n} removed": result.without_direction(model) for n, result in results.items()}
    for variant, changed in variants.items():
        rows = pellucid.evaluate(changed, data=data, tasks=TASKS, show_progress_bar=False).rows
        scores = {row.task: row.score for row in rows}
        yield [name, variant, *(f"{scores[task]:.2f}" for task in scores)]


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="evaluation sets")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    swaps: list[list[str]] = []
    probes: list[list[str]] = []
    directions: list[list[str]] = []
    quality: list[list[str]] = []
    for name in options.models:
        short = name.rpartition("/")[2]
        try:
            model = pellucid.load(name)
        except PellucidError as error:
            print(f"{name}: {error}")
            continue
        for pairs in PAIRS:
            result = pellucid.bias(model, pairs)
            swaps += swap_rows(short, result)
            probes += probe_rows(short, result)
        if result.tests[0].after is None:
            continue
        results = {n: pellucid.bias(model, "gender", n_directions=n) for n in N_DIRECTIONS}
        for n, removed in results.items():
            after = [estimate(test.after.spread) for test in removed.tests]
            right = [f"{100 * probe.after.value:.1f} %" for probe in removed.probes]
            directions.append([short, str(n), *after, *right, *(f"{cost.after:.3f}" for cost in removed.costs)])
        if options.data is not None:
            quality += quality_rows(short, model, results, options.data)
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    page = _HEAD.format(n_templates=8, date=time.strftime("%Y-%m-%d"), machine=machine)
    head = ["model", "texts", "clear", "size", "r", "clear after", "size after"]
    page += "\n" + table(head, swaps)
    page += "\n## What a linear classifier reads\n\nShare of held-out texts whose group it tells; chance is 50 %.\n\n"
    page += table(["model", "texts", "before", "after"], probes)
    page += (
        "\n## Number of directions removed (gender)\n\nSize of the leans, classifier, and what happens to 300 neutral "
    )
    page += "sentences: whose nearest neighbour\nis the same, and the rank correlation of their similarities.\n\n"
    head = ["model", "removed", "size: gender", "size: names", "read: gender", "read: names", "neighbours", "rank r"]
    page += table(head, directions)
    if quality:
        page += "\n## What it costs\n\nSpearman's correlation x 100, and nDCG@10 x 100 of Cranfield.\n\n"
        page += table(["model", "directions", *TASKS], quality)
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
