"""Retrieval sets as lists of texts, and nDCG@10 of what a search finds in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from papers.local_tasks import read_records
from papers.vector_cache import Vectors, unit_rows
from pellucid.evaluation.tasks import LocalTask, read_table

TITLES = {"SciFact": "SciFact", "npl": "NPL", "cisi": "CISI", "cranfield": "Cranfield"}
"""Name of a retrieval set at hand -> what pages call it."""


@dataclass(frozen=True)
class Collection:
    """A retrieval set, or the training queries of one.

    Attributes:
        name: of the set.
        ids: of the documents.
        documents: title and text, as MTEB joins them.
        queries: the texts of the queries that have a relevant document.
        relevant: for each of them, document -> grade.
    """

    name: str
    ids: list[str]
    documents: list[str]
    queries: list[str]
    relevant: dict[str, dict[str, int]]

    def ndcg(self, found: Sequence[dict[str, float]]) -> float:
        """Return nDCG@10 x 100 by trec_eval, which MTEB uses too; a query without hits counts 0.

        Args:
            found: for each query, the ids of its hits and their scores.
        """
        return sum(self.each_ndcg(found)) / len(self.relevant)

    def each_ndcg(self, found: Sequence[dict[str, float]]) -> list[float]:
        """Return nDCG@10 x 100 of each query, as `ndcg`."""
        import pytrec_eval

        runs = {query: run for query, run in zip(self.relevant, found, strict=True) if run}
        scores = pytrec_eval.RelevanceEvaluator(self.relevant, {"ndcg_cut.10"}).evaluate(runs)
        return [100 * scores[query]["ndcg_cut_10"] if query in scores else 0.0 for query in self.relevant]


@cache
def read_collection(task: LocalTask, split: str = "test") -> Collection:
    """Read a set with the judgements of `split`."""
    corpus = list(read_records(task.file("corpus.jsonl"), ["_id", "text"]))
    texts = {str(r["_id"]): str(r["text"]) for r in read_records(task.file("queries.jsonl"), ["_id", "text"])}
    relevant: dict[str, dict[str, int]] = {}
    for query, document, grade in zip(
        *read_table(task.file(f"qrels/{split}.tsv"), ["query-id", "corpus-id", "score"]).values()
    ):
        if int(grade) > 0 and query in texts:
            relevant.setdefault(query, {})[document] = int(grade)
    documents = [f"{r.get('title') or ''} {r['text']}".strip() for r in corpus]
    return Collection(task.name, [str(r["_id"]) for r in corpus], documents, [texts[q] for q in relevant], relevant)


def trained_on(task: LocalTask) -> str:
    """Say how many of the right documents of a set's test queries are right ones of its training queries as well."""
    trained = {document for found in read_collection(task, "train").relevant.values() for document in found}
    tested = read_collection(task).relevant
    right = {document for found in tested.values() for document in found}
    queries = sum(not trained.isdisjoint(found) for found in tested.values())
    return (
        f"{len(right & trained)} of the {len(right)} documents that are right for a test query, of {queries} of the "
        f"{len(tested)} queries"
    )


def dense_score(rows: tuple[Vectors, Vectors], collection: Collection) -> float:
    """Return nDCG@10 of the cosines of queries to documents."""
    return collection.ndcg(dense_hits(rows, collection))


def dense_hits(rows: tuple[Vectors, Vectors], collection: Collection) -> list[dict[str, float]]:
    """Return of each query the ten documents with the highest cosines."""
    queries, documents = (unit_rows(part) for part in rows)
    return top_hits(queries @ documents.T, collection)


def top_hits(scores: Vectors, collection: Collection) -> list[dict[str, float]]:
    """Return of each query the ten documents with the highest scores [queries, documents]."""
    found = []
    for row in scores:
        best = np.argpartition(-row, 10)[:10].tolist()
        found.append({collection.ids[n]: float(row[n]) for n in best})
    return found
