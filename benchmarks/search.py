r"""How well and how fast `pellucid.Index` finds documents, beside what people would use; prints markdown.

    python -m benchmarks.search --data shared/data --write
    python -m benchmarks.search --data shared/data --vectors work --models static-en MiniLM mpnet --mpnet FOLDER
    python -m benchmarks.search --data shared/data --models static-en WordLlama potion-base-8M --potion FOLDER
    python -m benchmarks.search --data shared/data --vectors work --peers 500 --write
    python -m benchmarks.search --data shared/data --tune
    python -m benchmarks.search --data shared/data --examples
    python -m benchmarks.search --data shared/data --probability
    python -m benchmarks.search --data shared/data --million 1000000

nDCG@10 x 100 by trec_eval on SciFact, NPL, CISI and Cranfield, title and text as MTEB joins them. k1, b and
the weight are the same for every set; how they were chosen is in docs/benchmarks.md. --tune prints what BM25 alone
and then weights give on the training queries of SciFact. Other models have their default weights.

Times are processor time of one process on one thread, medians of five rounds of 60 queries; what is compared runs in
the same rounds, one after the other. A difference is of the same queries, with the 95 % interval of its mean over the
sets (bootstrap over the queries of each). --models chooses what is measured; those with a transformer (all in
bfloat16 but minilm) need --vectors, a folder where their vectors are kept, and all-mpnet-base-v2 also --mpnet, its
folder or name.
potion-base-8M needs --potion, the folder of its table (papers/swe/static_peers.py says where it is to be had).
--peers N indexes the first N abstracts of SciFact with txtai, chromadb and pellucid, all with MiniLM.
--examples prints what docs/search.md shows of the default index of SciFact: its evaluation and tuning.
--probability prints how well `min_probability` tells queries of a set from those of the other sets.
--million N indexes N sentences as documents and measures nothing else.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import datetime
import gc
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pellucid
import pellucid.index.bm25 as bm25
import pellucid.index.search as search_module
from benchmarks import search_peers as peers
from papers.kit import Interval, bootstrap, interval_of, make_parser
from papers.models import minilm_path, open_any
from papers.retrieval_sets import Collection, read_collection
from papers.swe.static_peers import encoding
from papers.vector_cache import CachedEncoder, Vectors, unit_rows
from pellucid.evaluation.tasks import find_tasks
from pellucid.index.plan import QueryPlan, plan_query
from pellucid.index.search import search
from pellucid.text.tables import read_texts

SETS = ("SciFact", "npl", "cisi", "cranfield")
WORDLLAMA, POTION = "WordLlama", "potion-base-8M"
MODELS = ("static-en", "anchors-en-500", "lexicon-en", WORDLLAMA)
TRANSFORMERS = ("MiniLM", "minilm", "lexicon-minilm", "MiniLM as key tokens", "mpnet")
STATIC_PEERS, STATIC_WEIGHT = (WORDLLAMA, POTION), 0.3
"""Models that are opened as functions and get the weight that our static ones have."""

BM25_ALONE, DEFAULT = "BM25 alone", "BM25 + static-en (default)"
MORE_DIFFERENCES = [
    (BM25_ALONE, "bm25s, PyStemmer, `en_plus`"),
    ("BM25 + minilm", DEFAULT),
    ("BM25 + minilm", "BM25 + MiniLM"),
    ("BM25 + mpnet", "BM25 + MiniLM"),
    (f"BM25 + {POTION}", f"BM25 + {WORDLLAMA}"),
]
"""Beside those of the default and every other search."""

_ROUNDS = 5
_TIMED = 60  # queries of a set


def seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of `work`."""
    start = time.process_time()
    work()
    return time.process_time() - start


def rounds(runs: Mapping[str, Callable[[], Any]], queries: int) -> dict[str, float]:
    """Return the median milliseconds a query of some runs, which take turns: a busy machine slows all of them."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(_ROUNDS):
        for name, run in runs.items():
            spent[name].append(seconds(run))
    return {name: 1000 * statistics.median(each) / queries for name, each in spent.items()}


def families(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the models that are measured, by name."""
    kept = arguments.vectors
    openers: dict[str, Callable[[], Any]] = {
        WORDLLAMA: lambda: static_peer("wordllama"),
        POTION: lambda: static_peer(f"model2vec:{arguments.potion}"),
        "MiniLM": lambda: transformer(minilm_path(), "all-MiniLM-L6-v2 in bfloat16", kept),
        "minilm": lambda: keeping(pellucid.load("minilm"), "minilm", kept),
        "lexicon-minilm": lambda: lexicon(kept),
        "MiniLM as key tokens": lambda: key_tokens(kept),
        "mpnet": lambda: transformer(arguments.mpnet, "all-mpnet-base-v2 bfloat16", kept),
    }
    return {name: openers.get(name, lambda name=name: name)() for name in arguments.models}


Scores = dict[str, list[npt.NDArray[np.float64]]]
"""Name of a search -> nDCG@10 x 100 of each query of each set."""


def quality(index: pellucid.Index, collection: Collection, weights: dict[str, float] | None) -> Any:
    """Return nDCG@10 x 100 of each query, float64 [queries]."""
    hits = (index.search(query, 10, weights=weights) for query in collection.queries)
    return np.array(collection.each_ndcg([{hit.id: hit.score for hit in each} for each in hits]))


def bm25_scores(collection: Collection) -> Vectors:
    """Return BM25 of every document for each query, as a default index has it, float32 [queries, documents]."""
    columns = {text_id: column for column, text_id in enumerate(collection.ids)}
    scores = np.zeros((len(collection.queries), len(columns)), np.float32)
    with tempfile.TemporaryDirectory() as folder, pellucid.Index.create(Path(folder) / "index") as index:
        index.add(collection.documents, ids=collection.ids)
        for row, query in zip(scores, collection.queries):
            for hit in index.search(query, len(columns), weights={"bm25": 1}):
                row[columns[hit.id]] = hit.score
    return scores


def measure_quality(models: Mapping[str, Any], collections: list[Collection], work: Path) -> Scores:
    """Return what BM25, each model, both together, and others' BM25 find."""
    scores: Scores = {BM25_ALONE: []}
    for name, model in models.items():
        for collection in collections:
            with pellucid.Index.create(work / f"{name}-{collection.name}", {name: model}) as index:
                if name in STATIC_PEERS:
                    index.configure(weights={"bm25": 1 - STATIC_WEIGHT, name: STATIC_WEIGHT})
                index.add(collection.documents, ids=collection.ids)
                if name == next(iter(models)):
                    scores[BM25_ALONE].append(quality(index, collection, {"bm25": 1}))
                scores.setdefault(f"{name} alone", []).append(quality(index, collection, {name: 1}))
                scores.setdefault(DEFAULT if name == "static-en" else f"BM25 + {name}", []).append(
                    quality(index, collection, None)
                )
    made: dict[str, Callable[[Collection, Path], peers.Ask]] = {
        "tantivy, en_stem (no stop words)": peers.tantivy,
        "tantivy, its English stop words and stemmer": peers.tantivy_with_stop_words,
        "bm25s, PyStemmer, `en_plus`": peers.bm25s,
        "Seismic over our BM25": peers.seismic,
    }
    for name, make in made.items():
        asks = [make(collection, work) for collection in collections]
        scores[name] = [np.array(c.each_ndcg([ask(q) for q in c.queries])) for ask, c in zip(asks, collections)]
    return scores


def quality_table(scores: Scores, collections: list[Collection]) -> Iterator[str]:
    """Yield the means of each search."""
    yield heading("nDCG@10 x 100", collections)
    for name, by_set in scores.items():
        yield line(name, [float(each.mean()) for each in by_set], 1, mean=True)


def difference_table(scores: Scores) -> Iterator[str]:
    """Yield how far apart searches are in the mean, and what that says of the claim that the first finds more."""
    yield "| difference | mean (95 %) | the first finds more |\n|---|---|---|"
    for first, second in [(DEFAULT, name) for name in scores if name != DEFAULT] + MORE_DIFFERENCES:
        if first in scores and second in scores:
            interval = mean_of_sets([one - other for one, other in zip(scores[first], scores[second])])
            yield f"| {first} - {second} | {interval.signed()} | {interval.difference_verdict()} |"


def mean_of_sets(differences: Sequence[npt.NDArray[np.float64]]) -> Interval:
    """Return the mean of the means of some sets, and its interval over the queries of each."""
    return interval_of(np.mean([bootstrap(each, lambda drawn: drawn.mean(axis=1)) for each in differences], axis=0))


def questions(index: pellucid.Index, queries: list[str]) -> list[QueryPlan]:
    """Return queries that are encoded already."""
    snapshot = index.snapshot()
    return [plan_query(query, index.weights, snapshot) for query in queries]


def search_times(index: pellucid.Index, collection: Collection, work: Path) -> dict[str, float]:
    """Return milliseconds a query of ours, of the bare engine and of others."""
    queries = collection.queries[:_TIMED]
    encoded = questions(index, queries)
    model = pellucid.load("static-en")

    def with_reasons() -> None:
        for query in queries:
            for hit in index.search(query, 10):
                hit.reasons.top(5), hit.marks  # read when they are asked for

    runs: dict[str, Callable[[], Any]] = {
        "the scores of all passages, query given": lambda: [search(plan, 10) for plan in encoded],
        "a search": lambda: [index.search(query, 10) for query in queries],
        "a search with the reasons of its 10 hits": with_reasons,
        "a search with BM25 alone": lambda: [index.search(query, 10, weights={"bm25": 1}) for query in queries],
    }
    made = {
        "tantivy, en_stem": peers.tantivy,
        "bm25s": peers.bm25s,
        "Seismic, our BM25 as sparse vectors": peers.seismic,
        "faiss FlatIP, static-en": peers.faiss(model.encode),
        "faiss IVF 64, 8 searched, static-en": peers.faiss(model.encode, 64),
    }
    for name, make in made.items():
        ask = make(collection, work)
        runs[name] = lambda ask=ask: [ask(query) for query in queries]
    for run in runs.values():
        run()
    return rounds(runs, len(queries))


def speed_table(collections: list[Collection], work: Path) -> Iterator[str]:
    """Yield times, sizes and recall of the default index and of others."""
    pellucid.load("static-en").encode(collections[0].documents[:1000])  # compiles, once in a process
    columns: list[dict[str, float]] = []
    for collection in collections:
        folder = work / f"speed-{collection.name}"
        with pellucid.Index.create(folder) as index:
            spent = seconds(lambda i=index, c=collection: i.add(c.documents, ids=c.ids))
            proven = [index.search(query, 10).exact for query in collection.queries]
            times = search_times(index, collection, work)
            columns.append({
                "documents": len(collection.ids),
                "documents indexed a second": len(collection.ids) / spent,
                "on disk, MB": index.info()["bytes"] / 1e6,
                "searches proven exact, %": 100 * statistics.mean(proven),
                **{f"{name}, ms": value for name, value in times.items()},
                "searches a second over faiss FlatIP's alone": times["faiss FlatIP, static-en"] / times["a search"],
                "the same with reasons": times["faiss FlatIP, static-en"]
                / times["a search with the reasons of its 10 hits"],
            })  # fmt: skip
        gc.collect()
    names = " | ".join(collection.name for collection in collections)
    yield f"| processor time of one thread | {names} |\n|---|" + "---|" * len(collections)
    for name in columns[0]:
        digits = 0 if columns[0][name] >= 100 else 2
        yield line(name, [column[name] for column in columns], digits)


def memory() -> float:
    """Return the memory that this process has now, in MB; 0 where that is not told."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * resource.getpagesize() / 1e6 if told.exists() else 0.0


def static_peer(spec: str) -> Callable[[list[str]], Vectors]:
    """Return another program's static table as a function to rows at length 1; a text without words has zeros."""
    encode = encoding(open_any(spec))
    return lambda texts: unit_rows(encode(texts))


def transformer(path: str, name: str, kept: Path) -> CachedEncoder:
    """Return a sentence transformer in bfloat16, whose vectors are kept in a folder; it is opened for new texts."""
    opened: list[Any] = []

    def encode(texts: list[str]) -> Vectors:
        from sentence_transformers import SentenceTransformer

        if not opened:
            opened.append(SentenceTransformer(path, device="cpu", model_kwargs={"dtype": "bfloat16"}))
        return np.asarray(opened[0].encode(texts, batch_size=32, show_progress_bar=False), np.float32)

    return CachedEncoder(name, encode, kept)


def lexicon(kept: Path) -> pellucid.LexiconEmbedder:
    """Return lexicon-minilm in bfloat16, its vectors kept in a folder."""
    import torch

    model = pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm_path())
    model.backbone.model.to(torch.bfloat16)
    return keeping(model, "lexicon-minilm in bfloat16", kept)


def key_tokens(kept: Path) -> pellucid.KeyTokenEmbedder:
    """Return all-MiniLM-L6-v2 in bfloat16, decoded with its input embeddings; its vectors are kept in a folder."""
    from pellucid.keytokens import KeyTokenSettings
    from pellucid.transformer import open_backbone

    settings = KeyTokenSettings(normalize=True, max_length=256)
    model = pellucid.KeyTokenEmbedder(open_backbone(minilm_path(), dtype="bfloat16", device="cpu"), settings)
    return keeping(model, "key tokens of all-MiniLM-L6-v2 in bfloat16", kept)


def keeping(model: Any, name: str, kept: Path) -> Any:
    """Return a model of one way to read queries and documents that encodes each text once."""
    encode = model._encode
    rows = CachedEncoder(name, lambda texts: encode(texts, None, batch_size=32, show_progress_bar=False), kept)
    model._encode = lambda texts, role, *, batch_size, show_progress_bar: rows(texts)
    return model


def peers_table(collection: Collection, documents: int, work: Path) -> Iterator[str]:
    """Yield what indexing and asking with MiniLM costs here, with txtai and with chromadb."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    some = Collection(collection.name, collection.ids[:documents], collection.documents[:documents], [], {})
    model = SentenceTransformer(minilm_path(), device="cpu")

    def ours(collection: Collection, folder: Path) -> peers.Ask:
        index = pellucid.Index.create(folder / "ours", {"minilm": model})
        index.add(collection.documents, ids=collection.ids)
        return lambda query: {hit.id: hit.score for hit in index.search(query, 10)}

    made = {
        "pellucid, BM25 + MiniLM": ours,
        "txtai, its hybrid": peers.txtai(minilm_path()),
        "chromadb": peers.chromadb(model),
    }
    yield (
        f"| MiniLM in float32, the first {documents} abstracts of {collection.name} | to index, s "
        "| all of them, scaled up, s | a query, ms |\n|---|---|---|---|"
    )
    for name, make in made.items():
        asks: list[peers.Ask] = []
        spent = seconds(lambda m=make, a=asks: a.append(m(some, work)))
        asks[0](collection.queries[0])
        each = rounds({name: lambda a=asks: [a[0](query) for query in collection.queries[:10]]}, 10)[name]
        yield line(name, [spent, spent * len(collection.ids) / documents, each], 1)


def million(data: Path, folder: Path, documents: int) -> Iterator[str]:
    """Yield what many documents cost: sentences, asked for with the first eight words of a hundred of them."""
    texts = list(islice(read_texts(data / "raw_english" / "open_licence.txt.xz"), documents))
    queries = [" ".join(text.split()[:8]) for text in texts[:: len(texts) // 100][:100]]
    collection = Collection("sentences", list(map(str, range(len(texts)))), texts, queries, {})
    yield f"| {len(texts):,} sentences | to index, s | documents a second | on disk, MB | a search, ms |"
    yield "|---|---|---|---|---|"
    with pellucid.Index.create(folder / "index") as index:
        spent = seconds(lambda: index.add(texts, ids=collection.ids, show_progress_bar=True))
        encoded = questions(index, queries)
        asks: dict[str, Callable[[], Any]] = {
            "the scores of all passages, query given": lambda: [search(plan, 10) for plan in encoded],
            "pellucid, BM25 + static-en": lambda: [index.search(query) for query in queries],
            "the same, with the reasons of 10 hits": lambda: [
                [hit.reasons.top() for hit in index.search(query)] for query in queries
            ],
            "pellucid, BM25 alone": lambda: [index.search(query, weights={"bm25": 1}) for query in queries],
        }
        each = rounds(asks, len(queries))
        disk = index.info()["bytes"] / 1e6
        exact = 100 * statistics.mean(index.search(query).exact for query in queries)
        for name, value in each.items():
            made = (f"{spent:,.0f}", f"{len(texts) / spent:,.0f}", f"{disk:,.0f}") if "+" in name else ("", "", "")
            yield f"| {name} | {' | '.join(made)} | {value:.2f} |"
    for name, make in (("tantivy, en_stem", peers.tantivy), ("bm25s, PyStemmer, `en_plus`", peers.bm25s)):
        made_by: list[peers.Ask] = []
        spent = seconds(lambda make=make, made_by=made_by: made_by.append(make(collection, folder)))  # type: ignore[misc]
        value = rounds({name: lambda ask=made_by[0]: [ask(query) for query in queries]}, len(queries))[name]  # type: ignore[misc]
        yield f"| {name} | {spent:,.0f} | {len(texts) / spent:,.0f} | in memory | {value:.2f} |"
    yield f"\nSearches proven exact: {exact:.0f} %. Memory of the process with all of these: {memory():,.0f} MB."


def heading(name: str, collections: list[Collection]) -> str:
    """Return the head of a table with a column for each set and one for the mean."""
    return f"| {name} | {' | '.join(c.name for c in collections)} | mean |\n|---|" + "---|" * (len(collections) + 1)


def tune(collection: Collection, folder: Path) -> None:
    """Print nDCG@10 of the training queries: BM25 alone for some k1 and b, then its best with weights of a model."""
    every_b = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    print("| k1, BM25 alone | " + " | ".join(f"b {b}" for b in every_b) + " |\n|---|" + "---|" * len(every_b))
    scores = {}
    for k1 in (0.9, 1.2, 1.5, 1.8):
        for b in every_b:
            scores[k1, b] = _tried(collection, folder / f"{k1}-{b}", k1, b, {}, [None])[0]
        print(line(f"{k1}", [scores[k1, b] for b in every_b], 2), flush=True)
    k1, b = max(scores, key=lambda pair: scores[pair])
    weights = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
    print(f"\n| k1 {k1}, b {b} | " + " | ".join(f"w {w}" for w in weights) + " |\n|---|" + "---|" * len(weights))
    for name in ("static-en", "lexicon-en", "anchors-en-500"):
        tried = [{"bm25": 1 - w, name: w} for w in weights]
        models = {name: pellucid.load(name)}
        print(line(f"with {name}", _tried(collection, folder / name, k1, b, models, tried), 2), flush=True)


def print_examples(data: Path, folder: Path) -> None:
    """Print what the default index of SciFact finds, and weights tuned on the training queries."""
    task = next(task for task in find_tasks(data) if task.name == "SciFact")
    test, train = read_collection(task), read_collection(task, "train")
    with pellucid.Index.create(folder / "examples") as index:
        index.add(test.documents, ids=test.ids)
        print(index.evaluate(dict(zip(test.relevant, test.queries)), test.relevant, examples=1), flush=True)
        print(index.evaluate(dict(zip(train.relevant, train.queries)), train.relevant, examples=0, tune=True))


def probability_table(collections: list[Collection], folder: Path) -> Iterator[str]:
    """Yield what an index calibrated from its documents alone tells of its own queries and those of the other sets.

    Own and foreign queries count equally in the calibration error (10 bins). Hard ones are own queries whose judged
    documents are not in the results: the subject is the same, and no answer is there.
    """
    yield "| index | threshold | foreign, % (of the worst set) | own, % | hard, % | calibration error |"
    yield "|---|---|---|---|---|---|"
    for collection in collections:
        with pellucid.Index.create(folder / f"probability-{collection.name}") as index:
            index.add(collection.documents, ids=collection.ids)
            index.calibrate()
            best: dict[str, npt.NDArray[np.float64]] = {}
            for other in collections:
                hits = [index.search(query, 1) for query in other.queries]
                best[other.name] = np.array([each[0].probability if each else 0.0 for each in hits])
            judged = zip(collection.queries, collection.relevant.values())
            left = [
                [hit.probability or 0.0 for hit in index.search(query, len(relevant) + 1) if hit.id not in relevant]
                for query, relevant in judged
            ]
        own, hard = best.pop(collection.name), np.array([max(each, default=0.0) for each in left])
        foreign = np.concatenate(list(best.values()))
        error = calibration_error(own, foreign)
        floor = max(float(np.quantile(own, 0.05)), 1e-12)
        for name, threshold in (("95 % retained", floor), ("0.5", 0.5), ("0.9", 0.9)):
            passed = [100 * float((each >= threshold).mean()) for each in (foreign, own, hard)]
            worst = max(100 * float((each >= threshold).mean()) for each in best.values())
            yield (
                f"| {collection.name} | {name} | {passed[0]:.1f} ({worst:.1f}) | {passed[1]:.1f} | {passed[2]:.1f} "
                f"| {error:.3f} |"
            )


def calibration_error(answered: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> float:
    """Return the expected calibration error in 10 bins, where both kinds of queries count equally."""
    bins = [np.minimum((each * 10).astype(int), 9) for each in (answered, others)]
    error = 0.0
    for number in range(10):
        inside = [each[of_bin == number].sum() / len(each) / 2 for each, of_bin in zip((answered, others), bins)]
        share = (bins[0] == number).mean() / 2
        error += abs(sum(inside) - share)
    return error


def _tried(
    collection: Collection, folder: Path, k1: float, b: float, models: Any, weights: Sequence[dict[str, float] | None]
) -> list[float]:
    """Return nDCG@10 for each of some weights."""
    modules: tuple[Any, ...] = (bm25, search_module)
    for module in modules:  # the constants are imported by name
        module.K1, module.B = k1, b
    with pellucid.Index.create(folder, models) as index:
        index.add(collection.documents, ids=collection.ids)
        return [float(quality(index, collection, each).mean()) for each in weights]


def line(name: str, values: list[float], digits: int, mean: bool = False) -> str:
    """Return a row of a table."""
    shown = [*values, statistics.mean(values)] if mean else values
    return f"| {name} | " + " | ".join(f"{value:.{digits}f}" for value in shown) + " |"


def page(arguments: argparse.Namespace, work: Path) -> Iterator[str]:
    """Yield the lines of the page of results."""
    tasks = {task.name: task for task in find_tasks(arguments.data)}
    collections = [read_collection(tasks[name]) for name in arguments.sets]
    machine = platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("tantivy", "bm25s", "faiss-cpu"))
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "load unknown"
    yield f"# Search: results\n\nWritten by `benchmarks/search.py` on {datetime.date.today()}, {machine}, {load}, one"
    yield f"thread; {packages}. A busy machine makes all times longer: read them against each other.\n"
    scores = measure_quality(families(arguments), collections, work)
    yield from quality_table(scores, collections)
    yield ""
    yield from difference_table(scores)
    yield ""
    yield from speed_table(collections, work)
    if arguments.peers:
        yield ""
        yield from peers_table(collections[0], arguments.peers, work)


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(__doc__, data="retrieval/ and raw_english/", write=Path(__file__).with_suffix(".md"))
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, help="The sets to measure.")
    parser.add_argument("--tune", action="store_true", help="Print the scores of training queries instead.")
    parser.add_argument("--million", type=int, metavar="N", help="Index so many sentences instead, as 1000000.")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=[*MODELS, POTION, *TRANSFORMERS],
                        help="What is measured.")  # fmt: skip
    parser.add_argument("--potion", type=Path, metavar="FOLDER", help="The table of potion-base-8M.")
    parser.add_argument("--vectors", type=Path, metavar="FOLDER", help="Where vectors of transformers are kept.")
    parser.add_argument("--mpnet", default="sentence-transformers/all-mpnet-base-v2", help="Folder or name of it.")
    parser.add_argument("--examples", action="store_true", help="Print what docs/search.md shows instead.")
    parser.add_argument("--probability", action="store_true", help="Measure min_probability instead.")
    parser.add_argument("--peers", type=int, metavar="N", help="Index N abstracts with txtai and chromadb.")
    arguments = parser.parse_args()
    if arguments.vectors is None and (slow := [name for name in arguments.models if name in TRANSFORMERS]):
        parser.error(f"--models {' '.join(slow)} needs --vectors FOLDER")
    if POTION in arguments.models and arguments.potion is None:
        parser.error(f"--models {POTION} needs --potion FOLDER")
    with tempfile.TemporaryDirectory() as work:
        if arguments.tune:
            task = next(task for task in find_tasks(arguments.data) if task.name == "SciFact")
            tune(read_collection(task, "train"), Path(work))
            return
        if arguments.probability:
            tasks = {task.name: task for task in find_tasks(arguments.data)}
            collections = [read_collection(tasks[name]) for name in arguments.sets]
            print("\n".join(probability_table(collections, Path(work))))
            return
        if arguments.examples:
            print_examples(arguments.data, Path(work))
            return
        lines = []
        made = page(arguments, Path(work))
        if arguments.million:
            made = million(arguments.data, Path(work), arguments.million)
        for text in made:
            print(text, flush=True)
            lines.append(text)
        if arguments.write:
            arguments.write.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
