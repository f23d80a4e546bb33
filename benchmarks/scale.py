r"""What an index takes a document, and what many documents would take: measured here, extrapolated by a shown formula.

    python -m benchmarks.scale --data shared/data --documents 10000 100000
    nice python -m benchmarks.scale --data shared/data --documents 1000000 --models none
    python -m benchmarks.scale --data shared/data --adding 100000
    python -m benchmarks.scale --data shared/data --searching 40000 200000

Documents are English sentences (raw_english), queries 200 other ones, each cut to its first eight words; the index is
in a temporary folder. Prints markdown: for each number of documents the bytes that one takes, the postings that BM25
reads for a query, and processor time on one thread, to index and to search. Then nodes for --project documents, by the
formula that is printed with them. --adding N measures only how fast N sentences, and SciFact's abstracts, are added to
a new index on disk, beside tantivy (pip install tantivy); all take turns, and medians of their rounds are printed.
--searching N measures a search for ten hits of N sentences, beside tantivy, bm25s and faiss in 8 bits, in turns too,
and beside LanceDB (pip install lancedb) for vectors and words together as it does by default: every product, and ranks
fused. Processor time is that of all threads.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import datetime
import lzma
import math
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pellucid
from papers.kit import make_parser
from papers.retrieval_sets import read_collection
from pellucid.evaluation.tasks import find_tasks
from pellucid.index.terms import Analyser

_QUERIES, _WORDS = 200, 8
_COMMON, _ROUNDS = 64, 9  # terms of the query that the engine's speed is measured with, and how often it is asked
_ADDING_ROUNDS = 5
_FORMULA = """
    GB      = documents * replicas * bytes of a document / 1e9
    seconds = documents * postings of a document and query / postings a second       (BM25, exact, of one core)
    nodes   = the larger of  GB / (GB of a node * fill)  and  queries a second * seconds / (cores of a node * fill)
"""


class Measured(NamedTuple):
    """What one index showed."""

    documents: int
    taken: float  # bytes of a document
    terms: float  # of a document, different ones
    postings: float  # that BM25 reads for a query
    indexing: float  # ms of a document
    bm25: float  # ms of a search with BM25 alone
    search: float  # ms of a search with all parts
    rate: float  # postings of the commonest terms, asked for together, that are read in a second


def sentences(data: Path) -> Iterator[str]:
    """Yield English sentences."""
    with lzma.open(data / "raw_english/open_licence.txt.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield line.strip()


def measure(data: Path, documents: int, models: dict[str, str]) -> Measured:
    """Index so many sentences, and ask for others."""
    texts = sentences(data)
    queries = [" ".join(text.split()[:_WORDS]) for text in islice(texts, _QUERIES)]
    with tempfile.TemporaryDirectory() as place:
        start = time.process_time()
        with pellucid.Index.create(Path(place) / "index", models) as index:
            count = index.add(islice(texts, documents), ids=(str(number) for number in range(documents)))
            indexing = time.process_time() - start
            bm25 = [_milliseconds(index, query, {"bm25": 1.0}) for query in queries]
            every = [_milliseconds(index, query, None) for query in queries]
            analyser, lengths, word_of = Analyser(), Counter[str](), dict[str, str]()
            for document in index:
                found = zip(*analyser.term_positions(document.text))
                places = {term: document.text[slice(*span)] for term, span in found}
                lengths.update(places.keys())
                word_of |= places
            common = lengths.most_common(_COMMON)
            asked = " ".join(word_of[term] for term, _ in common)
            seconds = [_milliseconds(index, asked, {"bm25": 1.0}) / 1000 for _ in range(_ROUNDS)]
        taken = _bytes(Path(place) / "index")
    postings = statistics.mean(sum(lengths[term] for term in set(analyser.terms(query))) for query in queries)
    return Measured(
        count, taken / count, lengths.total() / count, postings, 1000 * indexing / count,
        statistics.median(bm25), statistics.median(every),
        sum(length for _, length in common) / statistics.median(seconds),
    )  # fmt: skip


def _milliseconds(index: pellucid.Index, query: str, weights: dict[str, float] | None) -> float:
    start = time.process_time()
    index.search(query, weights=weights)
    return 1000 * (time.process_time() - start)


def _bytes(path: Path) -> int:
    """Return what all files below a folder take of the disk."""
    return sum(512 * file.stat().st_blocks for file in path.rglob("*") if file.is_file())


def adding(data: Path, documents: int) -> Iterator[str]:
    """Yield how fast sentences and abstracts are added to a new index, beside tantivy."""
    abstracts = read_collection(next(task for task in find_tasks(data) if task.name == "SciFact")).documents
    sets = {f"{documents:,} sentences": list(islice(sentences(data), documents)), "SciFact's abstracts": abstracts}
    ways: dict[str, Callable[[list[str], Path], None]] = {
        "tantivy, en_stem, in memory": lambda texts, folder: add_to_tantivy(texts, None),
        "tantivy, en_stem, on disk": add_to_tantivy,
        "pellucid, BM25 alone": lambda texts, folder: add_to_index(texts, folder, {}),
        "pellucid, BM25 + static-en": lambda texts, folder: add_to_index(texts, folder, {"static-en": "static-en"}),
    }
    for name, texts in sets.items():
        yield f"| {name} | processor time, s | documents a second | of tantivy's on disk | wall clock, s |"
        yield "|---|---|---|---|---|"
        spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(_ADDING_ROUNDS):
            for way, add in ways.items():
                with tempfile.TemporaryDirectory() as folder:
                    start = time.process_time(), time.perf_counter()
                    add(texts, Path(folder))
                    spent[way].append((time.process_time() - start[0], time.perf_counter() - start[1]))
        medians = {way: [statistics.median(column) for column in zip(*each)] for way, each in spent.items()}
        for way, (seconds, wall) in medians.items():
            share = medians["tantivy, en_stem, on disk"][0] / seconds
            yield f"| {way} | {seconds:.2f} | {len(texts) / seconds:,.0f} | {share:.2f} | {wall:.1f} |"
        yield ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1 << 20)
    yield f"Peak memory of the process with all of these: {peak:,.0f} MB."


def add_to_index(texts: list[str], folder: Path, models: dict[str, str]) -> None:
    """Add texts to a new index of pellucid."""
    with pellucid.Index.create(folder / "index", models) as index:
        index.add(texts, ids=map(str, range(len(texts))))


def add_to_tantivy(texts: list[str], folder: Path | None) -> None:
    """Add texts to a new index of tantivy, in memory where there is no folder."""
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", stored=True, tokenizer_name="en_stem")
    schema.add_text_field("id", stored=True, tokenizer_name="raw")
    index = tantivy.Index(schema.build(), path=None if folder is None else str(folder))
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    for number, text in enumerate(texts):
        writer.add_document(tantivy.Document(text=text, id=str(number)))
    writer.commit()
    writer.wait_merging_threads()


def searching(data: Path, documents: int) -> Iterator[str]:
    """Yield what a search for ten sentences takes, beside engines that do one half of it; all take turns."""
    import bm25s
    import faiss

    texts = sentences(data)
    queries = [" ".join(text.split()[:_WORDS]) for text in islice(texts, _QUERIES)]
    texts = list(islice(texts, documents))
    model = pellucid.load("static-en")
    vectors = model.encode(texts)
    table = faiss.IndexScalarQuantizer(vectors.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    table.train(vectors)
    table.add(vectors)
    lists = bm25s.BM25()
    lists.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    with tempfile.TemporaryDirectory() as place:
        add_to_index(texts, Path(place), {"static-en": "static-en"})
        with pellucid.Index.open(Path(place) / "index", read_only=True) as index:
            ways: dict[str, Callable[[str], object]] = {
                "pellucid, BM25 + static-en": lambda query: [(hit.id, hit.score) for hit in index.search(query)],
                "pellucid, with texts": lambda query: [hit.text for hit in index.search(query)],
                "pellucid, with reasons": lambda query: [hit.marks for hit in index.search(query)],
                "faiss in 8 bits, with encoding": lambda query: table.search(model.encode([query]), 10),
                "bm25s, with tokenizing": lambda query: lists.retrieve(
                    bm25s.tokenize([query], show_progress=False), k=10, show_progress=False
                ),
            }
            if find_spec("tantivy"):
                ways["tantivy, en_stem"] = _tantivy_search(texts, Path(place))
            if find_spec("lancedb"):
                ways["LanceDB, hybrid, with encoding"] = _lancedb_search(texts, vectors, model, Path(place))
            spent: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(1 + _ADDING_ROUNDS):
                for way, search in ways.items():
                    for query in queries:
                        start = time.process_time()
                        search(query)
                        spent[way].append(1000 * (time.process_time() - start))
    medians = {way: statistics.median(times[_QUERIES:]) for way, times in spent.items()}  # the first round warms up
    first = medians["pellucid, BM25 + static-en"]
    yield f"| {documents:,} sentences | processor time, ms | of pellucid's |"
    yield "|---|---|---|"
    for way, median in medians.items():
        yield f"| {way} | {median:.2f} | {median / first:.2f} |"
    yield ""


def _tantivy_search(texts: list[str], folder: Path) -> Callable[[str], object]:
    """Return what searches texts by tantivy for ten of them."""
    import tantivy

    (folder / "tantivy").mkdir()
    add_to_tantivy(texts, folder / "tantivy")
    index = tantivy.Index.open(str(folder / "tantivy"))
    searcher = index.searcher()

    def search(query: str) -> object:
        words = " ".join(word for word in query.split() if word.isalnum()) or "a"
        hits = searcher.search(index.parse_query(words.lower(), ["text"]), 10).hits
        return [(searcher.doc(address)["id"], score) for score, address in hits]

    return search


def _lancedb_search(texts: list[str], vectors: Any, model: Any, folder: Path) -> Callable[[str], object]:
    """Return what searches texts and their vectors by LanceDB for ten of them."""
    import lancedb
    import pyarrow
    from lancedb.index import FTS

    flat = pyarrow.array(vectors.ravel())
    rows = {
        "id": pyarrow.array(list(map(str, range(len(texts))))), "text": pyarrow.array(texts),
        "vector": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
    }  # fmt: skip
    table = lancedb.connect(folder / "lancedb").create_table("sentences", pyarrow.table(rows))
    table.create_index("text", config=FTS())
    table.wait_for_index(["text_idx"])

    def search(query: str) -> object:
        both = table.search(query_type="hybrid").vector(model.encode([query])[0]).text(query)
        return both.limit(10).to_arrow()  # it warns where columns are selected, in each search

    return search


def nodes(documents: float, last: Measured, settings: argparse.Namespace) -> tuple[float, float, int]:
    """Return GB, seconds of a query on one core, and nodes."""
    gigabytes = documents * settings.replicas * last.taken / 1e9
    seconds = documents * last.postings / last.documents / last.rate
    memory = gigabytes / (settings.memory * settings.fill)
    work = settings.queries * seconds / (settings.cores * settings.fill)
    return gigabytes, seconds, max(math.ceil(memory), math.ceil(work), 1)


def main() -> None:
    """Print what was measured, the formula, and what follows."""
    parser = make_parser(__doc__, data="raw_english/")
    parser.add_argument("--adding", type=int, metavar="N", help="Measure only how fast so many sentences are added.")
    parser.add_argument("--searching", type=int, nargs="+", metavar="N", help="Measure only searches of N sentences.")
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--models", default="static-en", help="a model, or none for BM25 alone")
    parser.add_argument("--project", type=float, nargs="+", default=[1e8, 1e9])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--memory", type=float, default=64, help="GB of a node")
    parser.add_argument("--cores", type=int, default=16, help="of a node")
    parser.add_argument("--queries", type=float, default=50, help="a second, of all users")
    parser.add_argument("--fill", type=float, default=0.7, help="of a node that may be in use")
    settings = parser.parse_args()
    models = {} if settings.models == "none" else {settings.models: settings.models}
    load = os.getloadavg()[0]
    if settings.searching:
        print(f"{datetime.date.today()}, {platform.machine()}, load {load:.0f}, one thread\n")
        for documents in settings.searching:
            for line in searching(settings.data, documents):
                print(line, flush=True)
        return
    if settings.adding:
        print(f"{datetime.date.today()}, {platform.machine()}, load {load:.0f}, tantivy {version('tantivy')}\n")
        for line in adding(settings.data, settings.adding):
            print(line, flush=True)
        return
    print(f"{datetime.date.today()}, {platform.machine()}, load {load:.0f}, parts: {', '.join(['bm25', *models])}\n")
    print("| documents | terms each | bytes each | postings a query | of a document "
          "| to index, ms each | a search with BM25 alone, ms | with all, ms |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for documents in settings.documents:
        run = measure(settings.data, documents, models)
        print(f"| {run.documents:,} | {run.terms:.1f} | {run.taken:,.0f} | {run.postings:,.0f} "
              f"| {run.postings / run.documents:.4f} | {run.indexing:.3f} | {run.bm25:.2f} | {run.search:.2f} |",
              flush=True)  # fmt: skip
    print(f"\n{run.rate:,.0f} postings a second and core\n{_FORMULA}")
    print(f"with {settings.replicas} replicas, nodes of {settings.memory:.0f} GB and {settings.cores} cores, "
          f"{settings.queries:.0f} queries a second, fill {settings.fill}:\n")  # fmt: skip
    print("| documents | GB in all | core seconds a query | nodes |\n|---|---|---|---|")
    for documents in settings.project:
        gigabytes, seconds, count = nodes(documents, run, settings)
        print(f"| {documents:,.0f} | {gigabytes:,.0f} | {seconds:.2f} | {count:,} |")


if __name__ == "__main__":
    main()
