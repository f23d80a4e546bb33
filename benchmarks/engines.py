r"""The same calls over the index's own files and over other engines: adding, filters, paging, counts and reasons.

    milvus-lite server --data-dir /tmp/milvus --port 19530 &
    python -m benchmarks.engines --data shared/data --milvus http://127.0.0.1:19530

Documents are English sentences (raw_english) with a year and a language, queries 50 other ones, each cut to its first
eight words; BM25 and static-en. Vectors are read exactly, so that the hits can be compared. --qdrant takes the address
of a server. Prints markdown; times are wall time (an engine elsewhere works in a process of its own), of calls the
median of 50.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pellucid
from benchmarks.scale import sentences
from papers.kit import make_parser, markdown_table, written

_QUERIES, _WORDS, _TOP_K = 50, 8, 10
_WHERE = {"year": {"gte": 2015}, "lang": "en"}
_HEADER = ("engine", "to add, s", "search, ms", "slowest", "with a filter", "hits 101 to 110", "with reasons",
           "counts by year, ms", "same hits as folder")  # fmt: skip


def timed(work: Callable[[Any], Any], arguments: list[Any]) -> list[float]:
    """Return the milliseconds of each call."""
    work(arguments[0])
    times = []
    for argument in arguments:
        start = time.perf_counter()
        work(argument)
        times.append(1000 * (time.perf_counter() - start))
    return times


def measure(index: pellucid.Index, texts: list[str], queries: list[str]) -> tuple[list[str], list[list[str]]]:
    """Return the cells of an engine, and the ids of the hits of each query."""
    metadata = [{"year": 1990 + n % 36, "lang": ("en", "de", "fr")[n % 3]} for n in range(len(texts))]
    start = time.perf_counter()
    index.add(texts, metadata=metadata)
    cells = [f"{time.perf_counter() - start:.0f}"]
    plain = timed(lambda query: index.search(query, _TOP_K), queries)
    cells += [f"{statistics.median(plain):.1f}", f"{max(plain):.1f}"]
    calls: tuple[Callable[[str], Any], ...] = (
        lambda query: index.search(query, _TOP_K, where=_WHERE),
        lambda query: index.search(query, _TOP_K, offset=100),
        lambda query: [hit.summary() for hit in index.search(query, _TOP_K)],
        lambda _: index.count(_WHERE, by="year"),
    )
    cells += [f"{statistics.median(timed(call, queries)):.1f}" for call in calls]
    hits = [index.search(query, _TOP_K, where=where, offset=offset) for query in queries
            for where, offset in ((None, 0), (_WHERE, 0), (None, 100))]  # fmt: skip
    return cells, [[hit.id for hit in found] for found in hits]


def engines(qdrant: str | None, milvus: str | None) -> Iterator[tuple[str, Any]]:
    """Yield names and settings of engines; None is the index's own files."""
    from pellucid.engines import Edge

    name = f"bench_{uuid4().hex[:8]}"
    yield "folder", None
    yield "Qdrant Edge, in this process", Edge(exact=True)
    if qdrant:
        yield "Qdrant", pellucid.engines.Qdrant(qdrant, name, exact=True)
    if milvus:
        yield "Milvus", pellucid.engines.Milvus(milvus, name, graph=False)


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__, data="raw_english/")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--qdrant", help="address of a server")
    parser.add_argument("--milvus", help="address of a server, milvus-lite among them")
    options = parser.parse_args()
    texts = list(islice(sentences(options.data), options.documents + _QUERIES))
    queries = [" ".join(text.split()[:_WORDS]) for text in texts[options.documents :]]
    lines, expected = [], None
    for name, engine in engines(options.qdrant, options.milvus):
        settings = {} if engine is None else {"engine": engine}
        with (
            tempfile.TemporaryDirectory() as folder,
            pellucid.Index.create(Path(folder) / "index", "static-en", **settings) as index,
        ):
            cells, ids = measure(index, texts[: options.documents], queries)
        expected = expected or ids
        shared = [len({*hits} & {*wanted}) / max(len(wanted), 1) for hits, wanted in zip(ids, expected)]
        lines.append([name, *cells, f"{100 * statistics.mean(shared):.1f} %"])
        print(lines[-1], flush=True)
    print(f"\n{options.documents:,} documents, {written()}\n\n{markdown_table(_HEADER, lines)}")


if __name__ == "__main__":
    main()
