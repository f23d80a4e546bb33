"""How well a search tells apart what only a letter, a digit, a sign or capitals tell apart; prints markdown.

    python -m benchmarks.terms
    python -m benchmarks.terms --half kept

`terms.jsonl` has 60 queries made by hand ("vitamin C", "XJ-900/2", "IT support"), each with its right documents and
shorter ones that a search could confuse with them. One half served to choose how terms are made, the other was kept for
the end. "own" is an index of the documents of one query, "all" one of the documents of all queries of the half. The
figures are how many queries have a right document first, and the mean reciprocal rank of the first right one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pellucid

_WEIGHTS: dict[str, Mapping[str, float] | None] = {"BM25 alone": {"bm25": 1.0}, "default": None}


def read_cases(half: str | None) -> list[dict[str, Any]]:
    """Return the queries of a half, or all, each with its kind, right and wrong documents."""
    lines = Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()
    return [case for case in map(json.loads, lines) if half in (None, case["half"])]


def reciprocal_rank(index: pellucid.Index, case: Mapping[str, Any], weights: Mapping[str, float] | None) -> float:
    """Return 1 / the rank of the first right document, 0 where it is not among the first ten."""
    hits = index.search(case["query"], 10, weights=weights)
    return next((1 / rank for rank, hit in enumerate(hits, 1) if hit.text in case["right"]), 0.0)


def reciprocal_ranks(cases: Sequence[Mapping[str, Any]], *, together: bool) -> Iterator[tuple[str, str, float]]:
    """Yield weights, kind and reciprocal rank for each query, in one index of all documents or in one of its own."""
    for group in [cases] if together else [[case] for case in cases]:
        with tempfile.TemporaryDirectory() as folder, pellucid.Index.create(Path(folder) / "index") as index:
            index.add(list(dict.fromkeys(text for case in group for text in case["right"] + case["wrong"])))
            for case in group:
                for name, weights in _WEIGHTS.items():
                    yield name, case["kind"], reciprocal_rank(index, case, weights)


def table(cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows of a table: by weights and index, how many queries of each kind have a right document first."""
    kinds = list(dict.fromkeys(case["kind"] for case in cases))
    yield f"| | index | {' | '.join(kinds)} | first is right | MRR |"
    yield "|---|---|" + "---|" * (len(kinds) + 2)
    for together in (False, True):
        found = list(reciprocal_ranks(cases, together=together))
        for name in _WEIGHTS:
            of_kind = {kind: [rank for n, k, rank in found if (n, k) == (name, kind)] for kind in kinds}
            cells = [f"{ranks.count(1.0)} of {len(ranks)}" for ranks in of_kind.values()]
            ranks = [rank for some in of_kind.values() for rank in some]
            cells += [f"{ranks.count(1.0)} of {len(ranks)}", f"{statistics.mean(ranks):.3f}"]
            yield f"| {name} | {'all' if together else 'own'} | {' | '.join(cells)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["choosing", "kept"], help="only these queries")
    print("\n".join(table(read_cases(parser.parse_args().half))))
