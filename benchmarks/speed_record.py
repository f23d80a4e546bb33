"""Speed of this checkout beside another one, in turns: search, reasons, adding, encoding, explaining.

    python -m benchmarks.speed_record --data ../shared/data --base ../other-checkout [--rounds 5]

Prints markdown: medians over the rounds of the fastest of five passes (adding: one pass), in milliseconds of processor
time of one thread, and the ratio base / this (above 1: this one is faster). Documents are sentences of raw_english,
queries are sentences of STSBenchmark.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

SIZES = (5_000, 40_000)  # documents
N_QUERIES, N_EXPLAINED, N_ENCODED = 200, 30, 20_000
ROOT = Path(__file__).resolve().parents[1]


def milliseconds(work: Callable[[], Any], passes: int = 5) -> float:
    """Return the processor time of the fastest of some passes: what else runs only makes a pass slower."""
    times = []
    for _ in range(passes):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def measure(data: Path) -> dict[str, float]:
    """Return the times of the pellucid that is imported, each by what it is of."""
    import pellucid

    with lzma.open(data / "raw_english" / "open_licence.txt.xz", "rt", encoding="utf-8") as file:
        sentences = [line.strip() for line in islice(file, max(SIZES))]
    lines = (data / "sts" / "STSBenchmark" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    pairs = [tuple(line.split("\t")[:2]) for line in lines][:N_QUERIES]
    times = {}
    with tempfile.TemporaryDirectory() as scratch:
        for size in SIZES:
            index = pellucid.Index.create(Path(scratch) / str(size))
            times |= index_times(index, sentences[:size], [query for query, _ in pairs])
            index.close()
    for name in ("static-en", "anchors-en-500", "lexicon-en"):
        times |= model_times(name, pellucid.load(name), sentences, pairs)
    return times


def index_times(index: Any, sentences: list[str], queries: list[str]) -> dict[str, float]:
    """Return the times of adding all sentences, of a search, and of the reasons of its ten hits."""
    ids = [str(number) for number in range(len(sentences))]
    added = milliseconds(lambda: index.add(sentences, ids=ids), passes=1)
    for query in queries[:20]:
        index.search(query)
    searched = milliseconds(lambda: [index.search(query) for query in queries]) / len(queries)

    def explain_hits() -> float:
        searches = [index.search(query) for query in queries[:N_EXPLAINED]]
        return milliseconds(lambda: [hit.reasons.top(5) for hits in searches for hit in hits], passes=1)

    explained = min(explain_hits() for _ in range(5)) / N_EXPLAINED  # a hit keeps its reasons: each pass searches anew
    documents = f"{len(sentences):,} documents"
    return {f"add {documents}": added, f"search {documents}": searched, f"reasons of ten hits, {documents}": explained}


def model_times(name: str, model: Any, sentences: list[str], pairs: list[tuple[str, ...]]) -> dict[str, float]:
    """Return the times of encoding and of explaining a pair."""
    model.encode(sentences[:100])
    model.explain(*pairs[0]).reasons(5)
    encoded = milliseconds(lambda: model.encode(sentences[:N_ENCODED]))
    explained = milliseconds(lambda: [model.explain(*pair).reasons(5) for pair in pairs])
    return {f"encode {N_ENCODED:,} texts, {name}": encoded, f"explain a pair, {name}": explained / len(pairs)}


def measured_by(checkout: Path, data: Path) -> dict[str, float]:
    """Return the times of a checkout, measured by this script in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "PELLUCID_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--data", str(data), "--child"]
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    times: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return times


def main() -> None:
    """Measure both checkouts in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--base", type=Path, default=ROOT, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.data)))
        return
    rounds = [
        [measured_by(checkout, arguments.data) for checkout in (arguments.base, ROOT)] for _ in range(arguments.rounds)
    ]
    print("| | base, ms | this, ms | base / this |\n|---|---|---|---|")
    for name in rounds[0][0]:
        base, this = (statistics.median(pair[side][name] for pair in rounds) for side in (0, 1))
        ratio = statistics.median(pair[0][name] / pair[1][name] for pair in rounds)
        print(f"| {name} | {base:.3g} | {this:.3g} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
