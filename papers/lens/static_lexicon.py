"""What the static lexicon model is worth beside the static one, alone and together, and how fast both encode.

    python -m papers.lens.static_lexicon --data DATA
    python -m papers.lens.static_lexicon --data DATA --backbone MINILM

STS is Spearman's correlation x 100, retrieval nDCG@10 x 100 over all documents of SciFact, CISI, Cranfield and NPL.
Speed is that of both sentences of every pair of STS12 to STS15 on one thread, by processor time, median of five
interleaved rounds after one that is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pellucid
from benchmarks.static_speed import sts_texts
from papers.kit import Figure, Table, processor, run_script
from papers.retrieval_sets import dense_score, read_collection
from papers.sts import sts_spearman
from pellucid.evaluation.tasks import find_tasks
from pellucid.persistence.folder import locate

RETRIEVAL = ("SciFact", "cisi", "cranfield", "npl")


def speeds(models: dict[str, Any], texts: list[str]) -> dict[str, float]:
    """Return the texts a second of each model."""
    taken: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(6):
        for name, model in models.items():
            started = time.process_time()
            model.encode(texts)
            taken[name].append(time.process_time() - started)
    return {name: len(texts) / statistics.median(times[1:]) for name, times in taken.items()}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the table; with --backbone only how fast lexicon-minilm is."""
    if options.backbone:
        model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=options.backbone)
        fast = speeds({"lexicon-minilm": model}, sts_texts(options.data)[::256][:128])
        yield "minilm-speed", f"{fast['lexicon-minilm']:,.0f} texts/s, one thread of {processor()}"
        return
    tasks = {task.name: task for task in find_tasks(options.data)}
    collections = [read_collection(tasks[name]) for name in RETRIEVAL]
    models = {name: pellucid.load(name) for name in ("static-en", "lexicon-en")}
    both = pellucid.EnsembleEmbedder(list(models.values()), [0.5, 0.5])
    fast, sts = speeds(models, sts_texts(options.data)), dict[str, float]()
    lines = []
    for name, model in {**models, "both, half each": both}.items():

        def encode(texts: list[str], model: Any = model) -> Any:
            rows = model.encode(texts)
            return rows.toarray() if hasattr(rows, "toarray") else rows

        sts = sts_spearman(encode, options.data)
        found = [dense_score((encode(c.queries), encode(c.documents)), c) for c in collections]
        folder = locate(name) if name in models else None
        size = sum(file.stat().st_size for file in folder.rglob("*")) / 1e6 if folder else None
        scores = [*sts.values(), statistics.fmean(sts.values()), *found, statistics.fmean(found)]
        lines.append([name, *scores, size, f"{fast[name]:,.0f}" if name in fast else None])
    yield "scores", Table(["", *sts, "STS", *RETRIEVAL, "retrieval", "MB", "texts/s"], lines)
    yield "processor", f"Speed: one thread of {processor()}."


if __name__ == "__main__":
    backbone = {"--backbone": {"help": "all-MiniLM-L6-v2: measure only how fast lexicon-minilm encodes 128 texts"}}
    run_script(measure, backbone, data="sts/ and retrieval/", threads=1)
