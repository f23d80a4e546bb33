r"""Static models of another teacher or another training beside static-en.

    python -m papers.swe.teachers --data shared/data --model "all-mpnet-base-v2=FOLDER" \
        --model "all-mpnet-base-v2, the paper's training=FOLDER" --write

Each model stands beside the bundled one on six sets of STS and four of retrieval, with the interval of the difference,
paired over pairs and queries; documents are read whole. It is the interval of one training each.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pellucid
from papers.kit import Figure, Table, run_script
from papers.swe.rebuilt import scores
from papers.swe.tables import name_and_model
from pellucid import StaticEmbedder

BUNDLED = "static-en"


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table of each set, and that of the means."""
    bundled = pellucid.load(BUNDLED)
    by_set: dict[str, dict[str, list[Any]]] = {
        name: {row[0]: row for row in scores([bundled, StaticEmbedder.from_pretrained(folder)], options.data)}
        for name, folder in options.model
    }
    names = list(by_set)
    sets = list(by_set[names[0]])
    rows = [[title, by_set[names[0]][title][1], *(by_set[name][title][2] for name in names)] for title in sets]
    yield "teachers-sets", Table(["set", f"{BUNDLED} (all-MiniLM-L6-v2)", *names], rows)
    means = [[name, *set_rows["STS"][2:], *set_rows["retrieval"][2:]] for name, set_rows in by_set.items()]
    columns = [f"{kind}{more}" for kind in ("STS", "retrieval") for more in ("", f", more than {BUNDLED}")]
    yield "teachers", Table(["teacher", *columns], means)


if __name__ == "__main__":
    run_script(
        measure,
        {"--model": {"action": "append", "required": True, "type": name_and_model, "metavar": "NAME=FOLDER"}},
        data="sts/ and retrieval/",
        threads=1,
    )
