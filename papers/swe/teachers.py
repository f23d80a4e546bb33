r"""Static models of another teacher or another training beside static-en.

    python -m papers.swe.teachers --data shared/data --model "all-mpnet-base-v2=FOLDER" \
        --model "all-mpnet-base-v2, the paper's training=FOLDER" --teacher "all-mpnet-base-v2 bfloat16=VECTORS" --write

Each model stands beside the bundled one on six sets of STS and four of retrieval, with the interval of the difference,
paired over pairs and queries; documents are read whole. It is the interval of one training each. VECTORS is a folder in
which `papers.vector_cache` keeps a teacher's vectors of all these texts under that name.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pellucid
from papers.kit import Figure, Table, run_script
from papers.swe.rebuilt import scores
from papers.swe.tables import name_and_model
from papers.vector_cache import CachedEncoder
from pellucid import StaticEmbedder

BUNDLED = "static-en"


class Teacher:
    """A teacher of which every text's vector is kept; no other text can be encoded."""

    def __init__(self, name: str, folder: str) -> None:
        """Open its vectors."""
        self.encode = CachedEncoder(name, self._refuse, Path(folder))

    def _refuse(self, texts: list[str]) -> Any:
        raise SystemExit(f"{self.encode.name}: {len(texts)} texts have no vector, {texts[0]!r:.60} among them")


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table of each set, and that of the means."""
    bundled = pellucid.load(BUNDLED)
    models: list[tuple[str, Any]] = [(name, StaticEmbedder.from_pretrained(folder)) for name, folder in options.model]
    models += [(f"{name}, the teacher itself", Teacher(name, folder)) for name, folder in options.teacher]
    by_set: dict[str, dict[str, list[Any]]] = {
        name: {row[0]: row for row in scores([bundled, model], options.data)} for name, model in models
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
        {
            "--model": {"action": "append", "required": True, "type": name_and_model, "metavar": "NAME=FOLDER"},
            "--teacher": {"action": "append", "default": [], "type": name_and_model, "metavar": "NAME=VECTORS"},
        },
        data="sts/ and retrieval/",
        threads=1,
    )
