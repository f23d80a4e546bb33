"""What the static lexicon model is worth beside the static one, alone and together, and how fast both encode.

    python -m papers.lens.static_lexicon --data DATA
    python -m papers.lens.static_lexicon --data DATA --backbone MINILM

STS is Spearman's correlation x 100, retrieval nDCG@10 x 100 over all documents of SciFact, CISI, Cranfield and NPL.
Speed is that of both sentences of every pair of STS12 to STS15 on one thread, by processor time, median of five
interleaved rounds after one that is not counted. Prints Markdown.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from benchmarks.static_speed import sts_texts
from papers.kit import make_parser, markdown_table, processor
from papers.retrieval_sets import read_collection
from papers.sts import sts_spearman
from pellucid.evaluation.tasks import find_tasks
from pellucid.persistence.folder import locate

RETRIEVAL = ("SciFact", "cisi", "cranfield", "npl")
MOST = 10  # documents of a query, as nDCG@10 counts


def retrieval(model: Any, data: Path) -> list[float]:
    """Return nDCG@10 x 100 of each set."""
    tasks = {task.name: task for task in find_tasks(data)}
    return [_ndcg(model, read_collection(tasks[name])) for name in RETRIEVAL]


def _ndcg(model: Any, collection: Any) -> float:
    scores = model.similarity(model.encode_query(collection.queries), model.encode_document(collection.documents))
    best = np.argsort(-scores, axis=1, kind="stable")[:, :MOST]
    found = [{collection.ids[n]: float(row[n]) for n in top} for row, top in zip(scores, best, strict=True)]
    return float(collection.ndcg(found))


def speeds(models: dict[str, Any], texts: list[str]) -> dict[str, float]:
    """Return the texts a second of each model."""
    taken: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(6):
        for name, model in models.items():
            started = time.process_time()
            model.encode(texts)
            taken[name].append(time.process_time() - started)
    return {name: len(texts) / statistics.median(times[1:]) for name, times in taken.items()}


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, data="sts/ and retrieval/")
    parser.add_argument("--model", default="lexicon-en", help="the static lexicon model")
    parser.add_argument("--static", default="static-en", help="the static model")
    parser.add_argument("--backbone", help="all-MiniLM-L6-v2: print only how fast lexicon-minilm encodes 128 texts")
    arguments = parser.parse_args()
    if arguments.backbone:
        model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=arguments.backbone)
        fast = speeds({"lexicon-minilm": model}, sts_texts(arguments.data)[::256][:128])
        print(f"lexicon-minilm: {fast['lexicon-minilm']:,.0f} texts/s, one thread of {processor()}")
        return
    names = (arguments.static, arguments.model)
    models = {name: pellucid.load(name) for name in names}
    both = pellucid.EnsembleEmbedder(list(models.values()), [0.5, 0.5])
    fast = speeds(models, sts_texts(arguments.data))
    lines = []
    for name, model in {**models, "both, half each": both}.items():
        sts = sts_spearman(lambda texts, model=model: _dense(model.encode(texts)), arguments.data)
        found = retrieval(model, arguments.data)
        folder = locate(name) if name in models else None
        size = sum(file.stat().st_size for file in folder.rglob("*")) / 1e6 if folder else None
        scores = [*sts.values(), statistics.fmean(sts.values()), *found, statistics.fmean(found)]
        print(name, [round(score, 2) for score in scores], file=sys.stderr, flush=True)
        lines.append([name, *scores, size, f"{fast[name]:,.0f}" if name in fast else None])
    print(markdown_table(["", *sts, "STS", *RETRIEVAL, "retrieval", "MB", "texts/s"], lines))
    print(f"\nSpeed: one thread of {processor()}.")


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


if __name__ == "__main__":
    main()
