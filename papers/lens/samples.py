"""Samples of the test sets, small enough for many models, and what is measured on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.stats import rankdata

from papers.local_tasks import read_records
from papers.retrieval_sets import read_collection
from pellucid.evaluation.tasks import find_tasks, read_sts, read_table

Items = npt.NDArray[np.float64]
"""What is known of items of a sample, pairs, queries, test texts or texts in clusters: [..., items, n]."""

Score = Callable[[Items], npt.NDArray[np.float64]]
"""Items [..., items, n] -> scores x 100."""

PAIRS = 250  # of each STS set
STS = ("STS12", "STS13", "STS14", "STS15", "STSBenchmark", "SICK-R")
RETRIEVAL = {"SciFact": (60, 240), "npl": (40, 600)}  # queries, documents: the right ones of these queries and others
QUESTIONS = 60  # of WikiQA
CLASSES = {"banking77": (4, 4), "emotion": (40, 50)}  # of each class: texts to learn from and to test
TITLES = 500  # of StackOverflow


@dataclass(frozen=True)
class Sample:
    """Some texts of a test set.

    Attributes:
        name: of the set.
        texts: all of them.
        found: what each item comes to by the texts' embeddings of length 1, in their order.
        queries: of retrieval and reranking, the texts that are queries; the others are documents.
        given: of STS and clustering, what people said of each item.
    """

    name: str
    texts: list[str]
    found: Callable[[Any], npt.NDArray[np.float64]]
    queries: tuple[int, ...] = ()
    given: npt.NDArray[np.float64] | None = None


def score_of(name: str) -> Score:
    """Return the score of a set's items: what was found of each, and what people said where they did."""
    return spearman if name in STS else v_measure if name == "StackOverflow" else _mean


def samples(data: Path) -> list[Sample]:
    """Return all samples; the same ones every time."""
    tasks = {task.name: task for task in find_tasks(data)}
    found = [_sts(tasks[name]) for name in STS]
    found += [_retrieval(tasks[name], *sizes) for name, sizes in RETRIEVAL.items()]
    found.append(_reranking(data / "reranking" / "wikiqa" / "test.jsonl"))
    found += [_classification(data / "classification" / name, *sizes) for name, sizes in CLASSES.items()]
    return [*found, _clustering(data / "clustering" / "stackoverflow_titles" / "test.tsv")]


def _drawn(size: int, most: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).permutation(size)[:most]


def _dense(rows: Any) -> npt.NDArray[np.float64]:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


def _products(first: Any, second: Any) -> npt.NDArray[np.float64]:
    """Return the cosines of all rows to all others."""
    return _dense(first @ second.T)


def turned(rows: Any) -> npt.NDArray[np.float64]:
    """Return rows [n, n] with the products of `rows` [n, d]: what is learned of either is the same, and n is small."""
    values, vectors = np.linalg.eigh(_products(rows, rows))
    result: npt.NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0))
    return result


def _sts(task: Any) -> Sample:
    pairs = read_sts(task)
    chosen = _drawn(len(pairs.scores), PAIRS)
    texts = [pairs.sentences1[n] for n in chosen] + [pairs.sentences2[n] for n in chosen]
    people = np.array([pairs.scores[n] for n in chosen], np.float64)

    def found(rows: Any) -> npt.NDArray[np.float64]:
        cosines: npt.NDArray[np.float64] = np.einsum(
            "ij,ij->i", *map(_dense, (rows[: len(chosen)], rows[len(chosen) :]))
        )
        return cosines

    return Sample(task.name, texts, found, given=people)


def spearman(items: Items) -> npt.NDArray[np.float64]:
    """Return Spearman's correlation x 100 of two numbers of each item, [..., items, 2]."""
    ranks = rankdata(items, axis=-2)
    ranks = ranks - ranks.mean(axis=-2, keepdims=True)
    products = (ranks[..., 0] * ranks[..., 1]).sum(axis=-1)
    result: npt.NDArray[np.float64] = 100 * products / np.sqrt((ranks**2).sum(axis=-2).prod(axis=-1))
    return result


def _mean(items: Items) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = 100 * items[..., 0].mean(axis=-1)
    return result


def ndcg(scores: npt.NDArray[np.float64], grades: npt.NDArray[np.float64]) -> float:
    """Return nDCG@10 of one query's documents."""
    discounts = 1 / np.log2(np.arange(2, 12))
    best, found = -np.sort(-grades)[:10], grades[np.argsort(-scores, kind="stable")][:10]
    return float((found * discounts[: len(found)]).sum() / (best * discounts[: len(best)]).sum())


def average_precision(scores: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> float:
    """Return the mean precision at each right candidate of one query."""
    places = np.flatnonzero(right[np.argsort(-scores, kind="stable")])
    return float(np.mean(np.arange(1, len(places) + 1) / (places + 1)))


def _retrieval(task: Any, queries: int, documents: int) -> Sample:
    collection = read_collection(task)
    names = list(collection.relevant)
    chosen = _drawn(len(names), queries)
    right = {document for n in chosen for document in collection.relevant[names[n]]}
    others = [n for n in _drawn(len(collection.ids), len(collection.ids)) if collection.ids[n] not in right]
    kept = [n for n, name in enumerate(collection.ids) if name in right] + others[: max(0, documents - len(right))]
    kept = [kept[n] for n in _drawn(len(kept), len(kept))]  # of equal scores the right one must not come first
    grades = np.array(
        [[collection.relevant[names[n]].get(collection.ids[d], 0) for d in kept] for n in chosen], np.float64
    )

    def found(rows: Any) -> npt.NDArray[np.float64]:
        return np.array([ndcg(*pair) for pair in zip(_products(rows[: len(chosen)], rows[len(chosen) :]), grades)])

    texts = [collection.queries[n] for n in chosen] + [collection.documents[n] for n in kept]
    return Sample(task.name, texts, found, tuple(range(len(chosen))))


def _reranking(path: Path) -> Sample:
    records = [r for r in read_records(path, ["query", "positive", "negative"]) if r["positive"] and r["negative"]]
    chosen = [records[n] for n in _drawn(len(records), QUESTIONS)]
    texts, parts = [], []
    for record in chosen:
        start, candidates = len(texts), [*record["positive"], *record["negative"]]
        order = _drawn(len(candidates), len(candidates))  # of equal scores the right one must not come first
        texts += [record["query"], *(candidates[n] for n in order)]
        parts.append((start, (order < len(record["positive"])).astype(float), len(texts)))

    def found(rows: Any) -> npt.NDArray[np.float64]:
        scores = (_products(rows[start : start + 1], rows[start + 1 : end])[0] for start, _, end in parts)
        return np.array([average_precision(of, right) for of, (_, right, _) in zip(scores, parts)])

    return Sample("WikiQA", texts, found, tuple(start for start, _, _ in parts))


def _per_class(path: Path, most: int) -> tuple[list[str], list[str]]:
    """Return up to `most` texts of each class and their classes."""
    table = read_table(path, ["text", "label"])
    kept: dict[str, list[str]] = {}
    for n in _drawn(len(table["text"]), len(table["text"])):
        texts = kept.setdefault(table["label"][n], [])
        if len(texts) < most:
            texts.append(table["text"][n])
    pairs = [(text, label) for label in sorted(kept) for text in kept[label]]
    texts, labels = zip(*pairs)
    return list(texts), list(labels)


def _classification(folder: Path, learned: int, tested: int) -> Sample:
    texts, labels = _per_class(folder / "train.tsv", learned)
    test_texts, test_labels = _per_class(folder / "test.tsv", tested)

    def found(rows: Any) -> npt.NDArray[np.float64]:
        from sklearn.linear_model import LogisticRegression

        points = turned(rows)
        model = LogisticRegression(max_iter=200).fit(points[: len(texts)], labels)
        return np.asarray(model.predict(points[len(texts) :]) == np.array(test_labels), np.float64)

    return Sample(folder.name, texts + test_texts, found)


def _clustering(path: Path) -> Sample:
    table = read_table(path, ["text", "label"])
    chosen = _drawn(len(table["text"]), TITLES)
    labels = np.unique([table["label"][n] for n in chosen], return_inverse=True)[1].astype(np.float64)

    def found(rows: Any) -> npt.NDArray[np.float64]:
        from sklearn.cluster import KMeans

        model = KMeans(len(np.unique(labels)), n_init=5, random_state=0)
        return np.asarray(model.fit_predict(turned(rows)), np.float64)

    return Sample("StackOverflow", [table["text"][n] for n in chosen], found, given=labels)


def v_measure(items: Items) -> npt.NDArray[np.float64]:
    """Return the v-measure x 100 of found and right clusters, [..., items, 2]."""
    from sklearn.metrics import v_measure_score

    flat = items.reshape(-1, *items.shape[-2:])
    found = [100 * v_measure_score(part[:, 1], part[:, 0]) for part in flat]
    return np.array(found).reshape(items.shape[:-2])
