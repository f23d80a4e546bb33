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
from pellucid.evaluation.tasks import LocalTask, find_tasks

PLAIN, STEMMED = "BM25", "BM25, stemmed"
SETTINGS = "stemmed: Snowball's English stemmer and bm25s' longer list of stop words (`en_plus`); plain: its short list"
"""What the two names stand for, beside Lucene's form with k1 1.5 and b 0.75, which both have."""


class Bm25:
    """BM25 (bm25s, its defaults: Lucene's form, k1 1.5, b 0.75) as MTEB searches.

    Plain has bm25s' short English list of stop words and no stemming; stemmed has its longer list, "en_plus", and
    Snowball's English stemmer.
    """

    def __init__(self, name: str = PLAIN) -> None:
        """Make an empty index; `name` is `PLAIN` or `STEMMED`."""
        from mteb.models import ModelMeta

        self.mteb_model_meta = ModelMeta.create_empty({"name": f"local/{name}", "revision": "1"})
        self._words = _words(name)
        self._ids: list[str] = []
        self._retriever: Any = None

    def index(self, corpus: Any, **_: Any) -> None:
        """Take in a corpus of MTEB: records with id, title and text."""
        import bm25s

        self._ids = [record["id"] for record in corpus]
        texts = [f"{record.get('title') or ''} {record['text']}" for record in corpus]
        self._retriever = bm25s.BM25()
        self._retriever.index(bm25s.tokenize(texts, **self._words), show_progress=False)

    def search(self, queries: Any, *, top_k: int, **_: Any) -> dict[str, dict[str, float]]:
        """Return for each query the best documents and their scores."""
        import bm25s

        tokens = bm25s.tokenize([query["text"] for query in queries], **self._words)
        found, scores = self._retriever.retrieve(tokens, k=min(top_k, len(self._ids)), show_progress=False)
        rows = zip((query["id"] for query in queries), found, scores)
        return {
            query: {self._ids[place]: float(score) for place, score in zip(places, values)}
            for query, places, values in rows
        }


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


def bm25_score(task: LocalTask, name: str = PLAIN) -> float:
    """Return BM25's nDCG@10 x 100 on a retrieval set, measured by MTEB."""
    import mteb

    from pellucid.evaluation.tasks import quiet

    with quiet():
        done = mteb.evaluate(Bm25(name), task.make(), cache=None, co2_tracker=False, show_progress_bar=False)
    return 100 * float(done.task_results[0].get_score())


def bm25_scores(data: Path) -> dict[str, dict[str, float]]:
    """Return for plain and stemmed BM25 the score on each retrieval set in `data`."""
    tasks = [task for task in find_tasks(data) if task.kind == "Retrieval"]
    return {name: {task.name: bm25_score(task, name) for task in tasks} for name in (PLAIN, STEMMED)}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the scores."""
    scores = bm25_scores(options.data)
    rows = [[name, *row.values(), statistics.fmean(row.values())] for name, row in scores.items()]
    yield "scores", Table([f"nDCG@10 x 100, bm25s {version('bm25s')}; {SETTINGS}", *scores[PLAIN], "mean"], rows)


if __name__ == "__main__":
    run_script(measure, data="retrieval/")
