"""What reasons cost, by rows and by lines of phrases; writes a block of benchmarks/reasons.md.

    python -m benchmarks.reasons_speed --data DATA --write

Milliseconds of processor time on one thread. The vectors are at hand, as an index has them, and nothing is remembered
of the texts: they are met for the first time. Each pair or query is measured five times, in turns with the others. The
first column is the median of its least times, which another program on the machine hardly changes; the second is the
median of all times.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import pellucid
from benchmarks.faithfulness import MINILM, PAGE, STATIC, STS, pairs_of, sentence_transformer
from papers.kit import make_parser, markdown_table, measured, print_block, processor
from papers.retrieval_sets import Collection, read_collection
from pellucid.evaluation.tasks import find_tasks

BLOCK = "benchmarks/reasons_speed.py"
ROUNDS = 5
N_PAIRS, N_QUERIES, N_HITS = 50, 8, 10
LONG_CHARS = 9_000  # of a passage
_CACHES = ("_cached_words", "_cached_words_of_text", "_cached_spans", "_words")  # of texts that were just read


class Task(NamedTuple):
    """Something that is timed for each of some items."""

    name: str
    items: Sequence[Any]
    work: Callable[[Any], Any]
    prepare: Callable[[Any], Any] = lambda item: item  # what is made of an item before the clock runs


def forget_texts() -> None:
    """Empty what remembers the last texts."""
    for name, module in list(sys.modules.items()):
        if name.startswith("pellucid."):
            for cache in _CACHES:
                if hasattr(vars(module).get(cache), "cache_clear"):
                    vars(module)[cache].cache_clear()


def time_task(task: Task) -> list[Any]:
    """Return a row of the table: the median of each item's least time, and that of all its times, in ms."""
    times = np.zeros((ROUNDS + 1, len(task.items)))
    for turn in range(ROUNDS + 1):
        for number, item in enumerate(task.items):
            ready = task.prepare(item)
            forget_texts()
            start = time.process_time()
            task.work(ready)
            times[turn, number] = 1000 * (time.process_time() - start)
    times = times[1:]  # the first is not counted
    return [task.name, len(task.items), *(f"{value:.2f}" for value in (np.median(times.min(axis=0)), np.median(times)))]


def pair_tasks(encoder: Any, data: Path, collection: Collection) -> Iterator[Task]:
    """Yield explanations of two texts by MiniLM's stored vectors and by static-en."""
    texts = dict(zip(collection.ids, collection.documents))
    relevant = (texts[next(iter(ids))] for ids in collection.relevant.values())
    long_text = "\n".join(collection.documents[:20])[:LONG_CHARS]
    sets = {
        "two sentences": [pair[:2] for pair in pairs_of(STS, data, N_PAIRS)],
        "a claim and an abstract": list(zip(collection.queries, relevant))[:N_QUERIES],
        f"a claim and {LONG_CHARS:,} characters": [(query, long_text) for query in collection.queries[:3]],
    }
    static = pellucid.load(STATIC)
    distinct = list({text for pairs in sets.values() for pair in pairs for text in pair})
    vectors = dict(zip(distinct, encoder.encode(distinct)))

    def estimated(pair: tuple[str, str]) -> Any:
        return encoder.explain_vectors(pair[0], vectors[pair[0]], pair[1], vectors[pair[1]])

    for name, explain in ((f"{MINILM}, estimated", estimated), (STATIC, lambda pair: static.explain(*pair))):
        for of_pairs, pairs in sets.items():
            yield Task(f"{name}, {of_pairs}", pairs, explain)
            yield Task("the same with its lines", pairs, lambda pair, explain=explain: explain(pair).groups())


def search_tasks(index: pellucid.Index, name: str, queries: Sequence[str]) -> Iterator[Task]:
    """Yield a search, and what the reasons of its hits cost beside it."""

    def search(query: str) -> Any:
        return index.search(query, N_HITS)

    yield Task(f"{name}: a search", queries, search)
    yield Task(
        f"beside it, {N_HITS} hits: five rows and the words",
        queries,
        lambda hits: [(hit.reasons.top(5), hit.marks) for hit in hits],
        search,
    )
    yield Task("lines of each", queries, lambda hits: [hit.explain().groups() for hit in hits], search)
    yield Task("JSON, all of these", queries, lambda hits: hits.to_dict(), search)


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(__doc__, data="sts/ and retrieval/", write=PAGE)
    arguments = parser.parse_args()
    collection = read_collection(next(task for task in find_tasks(arguments.data) if task.name == "SciFact"))
    encoder = pellucid.load(sentence_transformer())
    rows = [time_task(task) for task in pair_tasks(encoder, arguments.data, collection)]
    for name, model, n_documents in (("default index", STATIC, 5_000), (f"index with {MINILM}", encoder, 40)):
        with TemporaryDirectory() as folder, pellucid.Index.create(Path(folder) / "index", {name: model}) as index:
            index.add(collection.documents[:n_documents])
            rows += [
                time_task(task)
                for task in search_tasks(index, f"{name} of {n_documents:,} abstracts", collection.queries[:N_QUERIES])
            ]
    table = markdown_table(["reasons, ms of processor time", "items", "least", "median"], rows)
    print_block(BLOCK, f"{measured()[:-1]}, {processor()}.\n\n{table}", arguments.write)


if __name__ == "__main__":
    main()
