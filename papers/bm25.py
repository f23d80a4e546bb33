"""BM25 on retrieval sets, plain and as people run it; what every retrieval figure of the project stands beside.

python -m papers.bm25 --data shared/data
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from papers.kit import Figure, Table, run_script
from papers.retrieval_sets import Collection, read_collection
from pellucid.evaluation.tasks import find_tasks

PLAIN, STEMMED = "BM25", "BM25, stemmed"
SETTINGS = "stemmed: Snowball's English stemmer and bm25s' longer list of stop words (`en_plus`); plain: its short list"
"""What the two names stand for, beside Lucene's form with k1 1.5 and b 0.75, which both have."""


class Bm25:
    """A collection's documents as BM25 finds them (bm25s, its defaults: Lucene's form, k1 1.5, b 0.75).

    Plain has bm25s' short English list of stop words and no stemming; stemmed has its longer list, "en_plus", and
    Snowball's English stemmer.
    """

    def __init__(self, collection: Collection, name: str = PLAIN) -> None:
        """Index the documents; `name` is `PLAIN` or `STEMMED`."""
        import bm25s

        self._ids, self._words, self._index = collection.ids, _words(name), bm25s.BM25()
        self._index.index(bm25s.tokenize(collection.documents, **self._words), show_progress=False)

    def hits(self, queries: Sequence[str], top_k: int = 10) -> list[dict[str, float]]:
        """Return for each query the best documents and their scores."""
        import bm25s

        tokens = bm25s.tokenize(list(queries), **self._words)
        rows = zip(*self._index.retrieve(tokens, k=min(top_k, len(self._ids)), show_progress=False))
        return [{self._ids[n]: float(score) for n, score in zip(numbers, scores)} for numbers, scores in rows]


def _words(name: str) -> dict[str, Any]:
    """Return how bm25s is to read texts."""
    words: dict[str, Any] = {"stopwords": "en", "show_progress": False}
    if name == STEMMED:
        import snowballstemmer

        words |= {"stopwords": "en_plus", "stemmer": snowballstemmer.stemmer("english").stemWords}
    return words


def bm25_table(queries: Sequence[str], documents: Sequence[str], name: str = PLAIN) -> Any:
    """Return BM25's score of each document for each query, float32 [queries, documents]."""
    import bm25s

    index, words = bm25s.BM25(), _words(name)
    index.index(bm25s.tokenize(list(documents), **words), show_progress=False)
    asked = bm25s.tokenize(list(queries), return_ids=False, **words)
    return np.array([index.get_scores(tokens) if tokens else np.zeros(len(documents)) for tokens in asked], np.float32)


def bm25_scores(data: Path) -> dict[str, dict[str, float]]:
    """Return for plain and stemmed BM25 nDCG@10 x 100 on each retrieval set in `data`."""
    collections = [read_collection(task) for task in find_tasks(data) if task.kind == "Retrieval"]
    return {name: {c.name: c.ndcg(Bm25(c, name).hits(c.queries)) for c in collections} for name in (PLAIN, STEMMED)}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the scores."""
    scores = bm25_scores(options.data)
    rows = [[name, *row.values(), statistics.fmean(row.values())] for name, row in scores.items()]
    yield "scores", Table([f"nDCG@10 x 100, bm25s {version('bm25s')}; {SETTINGS}", *scores[PLAIN], "mean"], rows)


if __name__ == "__main__":
    run_script(measure, data="retrieval/")
