"""Scores of the bundled models as MTEB stores them, in its own files.

    python -m papers.mteb_results --data shared/data --write

writes `papers/mteb/results/<model>/<revision>/<Task>.json`, one file a model and task, with the files that MTEB puts
beside them. `mteb.ResultCache("papers/mteb").load_results(...)` reads them. The tasks are those of MTEB of which the
items are at hand; a set that has another number of items than MTEB's is left out. Files that are there are kept: the
revision of a model is the hash of its content.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import pellucid
from papers.kit import PAPERS, Figure, Table, run_script
from papers.local_tasks import find_tasks
from pellucid.evaluation import MtebEncoder
from pellucid.evaluation.tasks import LocalTask, quiet

FOLDER = PAPERS / "mteb"
MODELS = ("static-en", "static-multi", "lexicon-en", "anchors-en-200", "anchors-en-500")
"""Those that need no transformer."""


class Size(NamedTuple):
    """How much text a test set has: items, and characters of what is encoded."""

    items: int
    characters: int


def size_at_hand(task: LocalTask, mteb_task: Any) -> Size:
    """Return the size of a set as it is read here."""
    if task.kind == "Retrieval":
        split = mteb_task.dataset["default"]["test"]
        texts = [f"{row.get('title') or ''} {row['text']}".strip() for row in split["corpus"]]
        texts += [row["text"] for row in split["queries"] if row["id"] in split["relevant_docs"]]
        return Size(len(texts), sum(map(len, texts)))
    test = mteb_task.dataset["test"]
    columns = [name for name in ("text", "sentence1", "sentence2") if name in test.column_names]
    return Size(len(test), sum(len(text) for name in columns for text in test[name]))


def size_in_mteb(mteb_task: Any) -> Size:
    """Return the size of a set as MTEB describes it, without fetching the set."""
    facts = mteb_task.metadata.descriptive_stats["test"]
    characters = facts.get("number_of_characters") or facts["text_statistics"]["total_text_length"]
    return Size(facts["num_samples"], characters)


def write_scores(name: str, tasks: list[LocalTask]) -> list[float]:
    """Score a bundled model on tasks, write MTEB's files and return the main scores x 100."""
    import mteb

    model = pellucid.load(name)
    with quiet():
        results = mteb.evaluate(
            MtebEncoder(model),
            [task.make() for task in tasks],
            cache=mteb.ResultCache(FOLDER),
            co2_tracker=False,
            encode_kwargs={"show_progress_bar": False, "batch_size": 32},
            show_progress_bar=False,
        )
    found = {result.task_name: 100 * float(result.get_score()) for result in results.task_results}
    return [found[task.name] for task in tasks]


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Compare the sets with MTEB's, score the models, and yield both tables."""
    official = [task for task in find_tasks(options.data) if task.folder.name in task.official_names]
    sizes = {}
    for task in official:
        mteb_task = task.make()
        sizes[task.name] = size_at_hand(task, mteb_task), size_in_mteb(mteb_task)
    yield (
        "sets",
        Table(
            ["task", "items here", "items in MTEB", "characters here", "characters in MTEB"],
            [[name, *(f"{n:,}" for pair in zip(*both) for n in pair)] for name, both in sizes.items()],
        ),
    )
    tasks = [task for task in official if sizes[task.name][0].items == sizes[task.name][1].items]
    rows: list[list[Any]] = [[name, *write_scores(name, tasks)] for name in options.only]
    yield "scores", Table(["x 100", *(task.name.removesuffix("Classification") for task in tasks)], rows)


if __name__ == "__main__":
    run_script(measure, data="sts/, retrieval/ and classification/", only=MODELS)
