"""What else the default search could be: ways that were tried, each as a difference from BM25 + static-en.

    python -m benchmarks.search_tried --data shared/data
    python -m benchmarks.search_tried --data shared/data --aside

All products are computed at once with NumPy from an index's postings and vectors. "As it was" is k1 1.2, b 0.5 and
weight 0.3; a second kind of ways are differences from the default, which has k1 0.8. The sets are the four of
`benchmarks/search.py`, and three to choose on: the training claims of SciFact, the questions of half of MedQuAD
(answers are documents; halves are of the diseases and drugs that questions are about) and of WikiQA's training set
(sentences are documents). --aside adds four that nothing was chosen on: the other half of MedQuAD, the other questions
of WikiQA, and second sentences of paraphrases in MRPC and of test pairs of STS-B from grade 4 on, asked for with the
first ones. Intervals are of the mean over sets (bootstrap over queries), and bold if they decide whether a difference
is above 0. The first table of each kind is in docs/search-measured.md.
"""

from __future__ import annotations

import argparse
import copy
import csv
import hashlib
import json
import lzma
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

import pellucid
from benchmarks.search import SETS, mean_of_sets
from papers.kit import Verdict, make_parser
from papers.retrieval_sets import Collection, read_collection
from pellucid.evaluation.tasks import find_tasks, read_sts
from pellucid.index import bm25
from pellucid.index.bm25 import idf
from pellucid.index.terms import Analyser, QueryTerms
from pellucid.static.bags import Bags
from pellucid.text.sentences import sentence_spans
from pellucid.text.unicode import normalize

Floats = npt.NDArray[np.float32]
Scorer = Callable[["Judged"], Floats]
"""What scores every document of a set for every query: float32 [queries, documents]."""

K1, B, WEIGHT = 1.2, 0.5, 0.3
N_QUERIES = 1000  # of MedQuAD
MIN_GRADE = 4.0  # of STS-B, for a right sentence
_COMMON = 0.25  # share of the documents in which a stop word counts as being
_N_NEIGHBOURS = 40  # words of the table that are looked at for a word's nearest terms
_NEAREST_WEIGHT = 0.3  # of a query word's nearest terms, beside it
_BLOCK_WORDS = 16  # compared with all words of all documents at once
_USUAL_QUERY_WORDS = 8


# --- Sets ---


def _digest(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def pairs_collection(name: str, pairs: Iterable[tuple[str, str, bool]], max_queries: int | None = None) -> Collection:
    """Return a set of pairs: a query, a document, and whether it is right."""
    ids: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for query, document, is_right in pairs:
        document_id = ids.setdefault(document, f"d{len(ids)}")
        if is_right:
            relevant.setdefault(query, {})[document_id] = 1
    queries = list(relevant) if max_queries is None else sorted(relevant, key=_digest)[:max_queries]
    grades = {f"q{number}": relevant[query] for number, query in enumerate(queries)}
    return Collection(name, list(ids.values()), list(ids), queries, grades)


def medquad(data: Path, half: int, max_queries: int | None = N_QUERIES) -> Collection:
    """Return the questions and answers of half of the diseases and drugs."""
    with lzma.open(data / "retrieval_train" / "medquad" / "qa.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["answer"] and _digest(row["focus"].lower()) % 2 == half]
    return pairs_collection("MedQuAD", ((row["question"], row["answer"], True) for row in rows), max_queries)


def _wikiqa(data: Path, files: Sequence[str]) -> Collection:
    paths = [data / "reranking" / "wikiqa" / f"{name}.jsonl" for name in files]
    rows = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return pairs_collection(
        "WikiQA",
        ((r["query"], text, kind == "positive") for r in rows for kind in ("positive", "negative") for text in r[kind]),
    )


def training_sets(data: Path) -> list[Collection]:
    """Return the sets to choose on."""
    scifact = next(task for task in find_tasks(data) if task.name == "SciFact")
    return [read_collection(scifact, "train"), medquad(data, 0), _wikiqa(data, ["train"])]


def sets_aside(data: Path) -> list[Collection]:
    """Return sets that nothing was chosen on."""
    with open(data / "pair_classification" / "MRPC" / "test.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    sts = read_sts(next(task for task in find_tasks(data) if task.name == "STSBenchmark"))
    grades = [grade >= MIN_GRADE for grade in sts.scores.tolist()]
    return [
        _wikiqa(data, ["test", "dev"]),
        medquad(data, 1),
        pairs_collection("MRPC", ((row["sentence1"], row["sentence2"], row["label"] == "1") for row in rows)),
        pairs_collection("STS-B", zip(sts.sentences1, sts.sentences2, grades)),
    ]


def read_sets(data: Path, aside: bool) -> dict[str, list[Collection]]:
    """Return the four sets of `benchmarks/search.py`, those to choose on and, if wanted, those kept aside."""
    tasks = {task.name: task for task in find_tasks(data)}
    sets = {"four sets": [read_collection(tasks[name]) for name in SETS], "for training": training_sets(data)}
    return {**sets, "kept aside": sets_aside(data)} if aside else sets


# --- What is computed of a set once ---


def _unit_rows(rows: Floats) -> Floats:
    units: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-9)
    return units


def _sparse_rows(rows: Iterable[Mapping[Any, float]], n_rows: int, columns: Mapping[Any, int]) -> Any:
    """Return rows of values by key as CSR [rows, columns], without the keys that have no column."""
    entries = [
        (n, columns[name], value) for n, row in enumerate(rows) for name, value in row.items() if name in columns
    ]
    lines, places, values = zip(*entries) if entries else ((), (), ())
    return sparse.csr_matrix((np.array(values, np.float32), (lines, places)), (n_rows, len(columns)))


def word_counts(texts: Sequence[str], model: Any) -> Any:
    """Return how often each text has each row of the table, CSR [texts, words]."""
    bags = Bags.from_sentences(texts, model.vocabulary)
    ones = np.ones(len(bags.rows), np.float32)
    counts = sparse.csr_matrix((ones, bags.rows, bags.offsets), shape=(len(bags), len(model.vocabulary)))
    counts.sum_duplicates()
    return counts


class Judged:
    """A set as arrays: how often each document has each term, documents' vectors, and queries' terms and words."""

    def __init__(self, collection: Collection, folder: Path) -> None:
        """Index the documents; each is one passage."""
        self.collection = collection
        with pellucid.Index.create(folder, passage_characters=1_000_000) as index:
            snapshot = index.snapshot()
            self.model: Any = snapshot.models["static-en"].encoder
        self.vectors: Floats = self.model.encode_document(collection.documents)
        self._count_terms(snapshot.words.analyser)

    def _count_terms(self, analyser: Analyser) -> None:
        self.analyser = analyser
        counts = [Counter(analyser.terms(text)) for text in self.collection.documents]
        self.columns = {term: n for n, term in enumerate(dict.fromkeys(term for each in counts for term in each))}
        self.counts = self._matrix(({t: float(n) for t, n in each.items()} for each in counts), len(counts))
        self.lengths = np.asarray(self.counts.sum(axis=1), np.float32).ravel()
        self.passages_with = np.bincount(self.counts.indices, minlength=len(self.columns))
        self.queries = [analyser.query(query) for query in self.collection.queries]

    def with_terms_of(self, analyser: Analyser) -> Judged:
        """Return the set with other terms of its documents and queries."""
        other = copy.copy(self)
        other._count_terms(analyser)
        return other

    def with_queries_of(self, analyser: Analyser) -> Judged:
        """Return the set with other terms of its queries."""
        other = copy.copy(self)
        other.queries = [analyser.query(query) for query in self.collection.queries]
        return other

    def _matrix(self, rows: Iterable[dict[str, float]], n_rows: int) -> Any:
        return _sparse_rows(rows, n_rows, self.columns)

    def idfs(self) -> Floats:
        """Return the idf of each term, float32 [terms]."""
        return np.array([idf(len(self.lengths), int(count)) for count in self.passages_with], np.float32)

    def impacts(self, k1: float = K1, b: float = B) -> Any:
        """Return the documents' half of BM25 over its highest value, CSR [documents, terms]."""
        return self._damped(self.counts, k1, b)

    def _damped(self, counts: Any, k1: float, b: float) -> Any:
        matrix = counts.copy()
        lengths = np.repeat(self.lengths, np.diff(matrix.indptr))
        matrix.data /= matrix.data + k1 * (1 - b + b * lengths / self.lengths.mean())
        return matrix

    def bm25(self, k1: float = K1, b: float = B, power: float = 1.0) -> Floats:
        """Return BM25 over the highest that each query can reach; `power` is of idf."""
        return np.asarray((self.term_weights(power) @ self.impacts(k1, b).T).toarray(), np.float32)

    def term_weights(self, power: float = 1.0) -> Any:
        """Return the queries' half of BM25 over the highest that each can reach, CSR [queries, terms]."""
        rows = [self._query_counts(terms) for terms in self.queries]
        return self._matrix(
            (
                {t: n * self._idf(t) ** power / top for t, n in row.items()}
                for row, top in zip(rows, self._highest(power))
            ),
            len(rows),
        )

    def _highest(self, power: float = 1.0) -> list[float]:
        """Return the highest BM25 that each query can reach."""
        rows = [self._query_counts(terms) for terms in self.queries]
        return [sum(n * self._idf(term) ** power for term, n in row.items()) or 1.0 for row in rows]

    def pairs_bm25(self, k1: float, b: float) -> Floats:
        """Return BM25 of two words of the query in a row, over the highest that its words can reach.

        Stop words between them do not count. A pair weighs what its idf is above that of its rarer word, so that both
        together weigh as much as the pair alone would.
        """
        queries = [self._pairs(query) for query in self.collection.queries]
        columns = {pair: n for n, pair in enumerate(dict.fromkeys(pair for each in queries for pair in each))}
        counts = _sparse_rows(map(self._pairs, self.collection.documents), len(self.lengths), columns)
        passages_with = np.bincount(counts.indices, minlength=len(columns)).tolist()
        gains = {
            pair: max(idf(len(self.lengths), passages_with[n]) - max(map(self._idf, pair)), 0.0)
            for pair, n in columns.items()
        }
        weights = (
            {pair: n * gains[pair] / top for pair, n in each.items()} for each, top in zip(queries, self._highest())
        )
        matrix = _sparse_rows(weights, len(queries), columns)
        return np.asarray((matrix @ self._damped(counts, k1, b).T).toarray(), np.float32)

    def _pairs(self, text: str) -> Counter[tuple[str, str]]:
        """Count the terms of two words in a row; words that have several terms are in no pair."""
        values = self.analyser.values(normalize(text).text.split())
        neighbours = pairwise(value for value in values if value)
        return Counter((a, b) for a, b in neighbours if isinstance(a, str) and isinstance(b, str))

    def _query_counts(self, terms: QueryTerms) -> Counter[str]:
        """Return how often each term counts in a query: variants only if a document has them."""
        present = {term: weight for term, weight in terms.variants.items() if term in self.columns}
        return Counter(terms.weights) + Counter(present)

    def _idf(self, term: str) -> float:
        column = self.columns.get(term)
        return idf(len(self.lengths), 0 if column is None else int(self.passages_with[column]))

    def query_vectors(self, power: float = 0.0) -> Floats:
        """Return the vectors of the queries, words weighed by a power of their idf."""
        rows = np.zeros((len(self.queries), self.vectors.shape[1]), np.float32)
        common = idf(len(self.lengths), int(_COMMON * len(self.lengths)))
        for number, query in enumerate(self.collection.queries):
            words = [word.text for word in self.model.vocabulary.split(query)]
            table_rows = np.array([self.model.vocabulary.row(word) for word in words], np.int64)
            idfs = [max(map(self._idf, self.analyser.terms(word.lower())), default=common) for word in words]
            known = table_rows >= 0
            if known.any():
                rows[number] = np.array(idfs)[known] ** power @ self.model.word_vectors(table_rows[known])
        return _unit_rows(rows)

    def cosines(self, power: float = 0.0) -> Floats:
        """Return the cosine of each query and document."""
        return self.query_vectors(power) @ self.vectors.T

    def pairs_size(self) -> str:
        """Say how many more postings and terms an index of such pairs has."""
        counts = [self._pairs(text) for text in self.collection.documents]
        n_pairs, n_postings = len({pair for each in counts for pair in each}), sum(map(len, counts))
        return (
            f"{self.collection.name}: {len(self.columns):,} terms, {self.counts.nnz:,} postings; "
            f"two words in a row: {n_pairs:,} more terms, {n_postings:,} more postings"
        )

    def sentence_cosines(self, n_sentences: int | None = None) -> Floats:
        """Return the cosine of each query and the sentence of each document that is nearest to it, among the first."""
        spans = [sentence_spans(text)[:n_sentences] or [(0, len(text))] for text in self.collection.documents]
        sentences = [text[a:b] for text, each in zip(self.collection.documents, spans) for a, b in each]
        starts = np.cumsum([0, *map(len, spans[:-1])])
        vectors = self.model.encode_document(sentences)
        rows = [np.maximum.reduceat(vectors @ query, starts) for query in self.query_vectors()]
        return np.array(rows, np.float32)

    def word_cosines(self, min_cosine: float) -> Floats:
        """Return how near the nearest word of each document is to each word of a query: late interaction.

        It is the mean over the words of the query, which weigh as much as their vectors are long, of the cosine over
        `min_cosine`, from 0 to 1.
        """
        queries, documents = (
            word_counts(texts, self.model) for texts in (self.collection.queries, self.collection.documents)
        )
        table = self.model.word_vectors(np.arange(len(self.model.vocabulary)))
        lengths = np.linalg.norm(table, axis=1)
        queries = queries @ sparse.diags(lengths)
        queries = (sparse.diags(1 / np.asarray(queries.sum(axis=1)).ravel().clip(1e-9)) @ queries).tocsc()
        words, columns = np.unique(documents.indices, return_inverse=True)
        unit = _unit_rows(table)
        document_words = unit[words].T
        has_words = np.diff(documents.indptr) > 0
        scores = np.zeros((queries.shape[0], documents.shape[0]), np.float32)
        query_words = np.flatnonzero(np.diff(queries.indptr))
        for start in range(0, len(query_words), _BLOCK_WORDS):
            block = query_words[start : start + _BLOCK_WORDS]
            cosines = (unit[block] @ document_words)[:, columns]
            nearest = np.maximum.reduceat(cosines, documents.indptr[:-1][has_words], axis=1)
            scores[:, has_words] += queries[:, block] @ ((nearest - min_cosine).clip(min=0) / (1 - min_cosine))
        return scores

    def cosines_by(self, name: str) -> Floats:
        """Return the cosine of each query and document by another bundled model."""
        model: Any = pellucid.load(name)
        queries, documents = (
            sparse.csr_matrix(rows)
            for rows in (
                model.encode_query(self.collection.queries),
                model.encode_document(self.collection.documents),
            )
        )
        return np.asarray((queries @ documents.T).toarray(), np.float32)

    def nearest_terms(self, n_terms: int, min_cosine: float) -> Any:
        """Return the terms of the words nearest to each query's words, CSR [queries, terms].

        A term has its word's squared cosine times the lesser idf of both, over the highest BM25 of the query.
        """
        split = [[word.text.lower() for word in self.model.vocabulary.split(q)] for q in self.collection.queries]
        nearest = self._nearest(sorted({word for words in split for word in words}), n_terms, min_cosine)
        rows: list[dict[str, float]] = []
        for words, terms in zip(split, self.queries):
            row: dict[str, float] = {}
            for word in words:
                word_idf = max(map(self._idf, self.analyser.terms(word)), default=0.0)
                for term, cosine in nearest.get(word, {}).items():
                    if term not in terms.spans:
                        row[term] = max(row.get(term, 0.0), cosine**2 * min(word_idf, self._idf(term)))
            highest = sum(n * self._idf(term) for term, n in self._query_counts(terms).items()) or 1.0
            rows.append({term: value / highest for term, value in row.items()})
        return self._matrix(rows, len(rows))

    def _nearest(self, words: list[str], n_terms: int, min_cosine: float) -> dict[str, dict[str, float]]:
        """Return for each word of the table the terms of other words that are nearest to it, and their cosines."""
        vocabulary = self.model.vocabulary
        words = [word for word in words if vocabulary.row(word) >= 0 and self.analyser.terms(word)]
        table = _unit_rows(self.model.word_vectors(np.arange(len(vocabulary))))
        nearest: dict[str, dict[str, float]] = {}
        for start in range(0, len(words), 64):
            batch = words[start : start + 64]
            cosines = table[[vocabulary.row(word) for word in batch]] @ table.T
            top = np.argpartition(-cosines, _N_NEIGHBOURS, axis=1)[:, :_N_NEIGHBOURS]
            for word, columns, values in zip(batch, top.tolist(), np.take_along_axis(cosines, top, axis=1)):
                terms: dict[str, float] = {}
                for value, column in sorted(zip(values.tolist(), columns), reverse=True):
                    other = self.analyser.terms(vocabulary.words[column])
                    if value >= min_cosine and len(other) == 1 and other[0] not in self.analyser.terms(word):
                        terms.setdefault(other[0], value)
                nearest[word] = dict(islice(terms.items(), n_terms))
        return nearest

    def ndcg(self, scores: Floats) -> npt.NDArray[np.float64]:
        """Return nDCG@10 x 100 of each query."""
        best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        ids = self.collection.ids
        hits = [{ids[n]: float(row[n]) for n in top.tolist() if row[n] > 0} for row, top in zip(scores, best)]
        return np.array(self.collection.each_ndcg(hits))


# --- What was tried ---


def joined(
    weight: float = WEIGHT, k1: float = K1, b: float = B, query_power: float = 0.0, power: float = 1.0
) -> Scorer:
    """Return BM25 and the static model with a weight between them."""
    return lambda judged: (1 - weight) * judged.bm25(k1, b, power) + weight * judged.cosines(query_power)


def _centred(judged: Judged) -> Floats:
    """The mean of all documents is taken from both sides."""
    mean = judged.vectors.mean(axis=0)
    queries, documents = _unit_rows(judged.query_vectors() - mean), _unit_rows(judged.vectors - mean)
    return (1 - WEIGHT) * judged.bm25() + WEIGHT * (queries @ documents.T)


def _over_best_hit(judged: Judged) -> Floats:
    """BM25 is divided by that of the best hit."""
    scores = judged.bm25()
    shares: Floats = scores / scores.max(axis=1, keepdims=True).clip(min=1e-9)
    return 0.5 * shares + 0.5 * judged.cosines()


def _feedback(weight: float, n_hits: int, vector_weight: float, term_weight: float, n_terms: int = 20) -> Scorer:
    """The first hits' mean vector and strongest terms are searched, too (a second pass over all documents)."""

    def score(judged: Judged) -> Floats:
        scores = (1 - weight) * judged.bm25() + weight * judged.cosines()
        top = np.argsort(-scores, axis=1, kind="stable")[:, :n_hits]
        best = np.take_along_axis(scores, top, axis=1)
        shares = np.exp((best - best[:, :1]) / 0.05)
        shares /= shares.sum(axis=1, keepdims=True)
        means = np.einsum("qk,qkd->qd", shares, judged.vectors[top])
        result = scores + vector_weight * _unit_rows(means) @ judged.vectors.T
        if term_weight:
            impacts = judged.impacts()
            rows = np.repeat(np.arange(len(top)), n_hits)
            of_hits = sparse.csr_matrix((shares.ravel(), (rows, top.ravel())), scores.shape)
            terms = (of_hits @ impacts).multiply(judged.idfs()[None]).tocsr()
            for start, end in zip(terms.indptr, terms.indptr[1:]):
                values = terms.data[start:end]
                values[np.argsort(-values, kind="stable")[n_terms:]] = 0
                values /= values.sum() or 1.0
            result += term_weight * (terms @ impacts.T).toarray()
        return np.asarray(result, np.float32)

    return score


def _third(name: str) -> Scorer:
    """Another bundled model has half of the weight of the vectors."""
    return lambda judged: (1 - WEIGHT) * judged.bm25() + WEIGHT / 2 * (judged.cosines() + judged.cosines_by(name))


def _with_nearest(judged: Judged) -> Floats:
    """BM25 also searches the terms of the nearest words of each word."""
    near = _NEAREST_WEIGHT * (judged.nearest_terms(3, 0.6) @ judged.impacts().T).toarray()
    return np.asarray(0.75 * (judged.bm25() + near) + 0.25 * judged.cosines(), np.float32)


def _default(judged: Judged) -> Floats:
    return joined(k1=bm25.K1, b=bm25.B)(judged)


def _with_pairs(weight: float) -> Scorer:
    """Two words in a row count, too."""
    return lambda judged: _default(judged) + (1 - WEIGHT) * weight * judged.pairs_bm25(bm25.K1, bm25.B)


def _with_sentence(
    weight: float, whole_weight: float, pair_weight: float = 0.0, n_sentences: int | None = None
) -> Scorer:
    """The nearest sentence of a document counts beside all of it."""

    def score(judged: Judged) -> Floats:
        words = judged.bm25(bm25.K1, bm25.B)
        if pair_weight:
            words = words + pair_weight * judged.pairs_bm25(bm25.K1, bm25.B)
        cosines = whole_weight * judged.cosines() + weight * judged.sentence_cosines(n_sentences)
        return (1 - weight - whole_weight) * words + cosines

    return score


def _with_words(weight: float, min_cosine: float) -> Scorer:
    """The nearest word of a document to each word of the query counts beside all of both."""
    return lambda judged: (
        (1 - WEIGHT - weight) * judged.bm25(bm25.K1, bm25.B)
        + WEIGHT * judged.cosines()
        + weight * judged.word_cosines(min_cosine)
    )


def _without_more_stop_words(judged: Judged) -> Floats:
    """Queries leave out the 318 stop words of scikit-learn, too."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return _default(judged.with_queries_of(Analyser("english", judged.analyser.stop_words | ENGLISH_STOP_WORDS)))


class _LemmaAnalyser(Analyser):
    """Terms are stems of lemmas."""

    def __init__(self) -> None:
        """Put simplemma before the stemmer."""
        from simplemma import lemmatize

        super().__init__()
        stem = self._stem
        self._stem = lambda word: stem(lemmatize(word, lang="en"))


def _by_query_length(power: float) -> Scorer:
    """BM25 counts by a power of the number of a query's words."""

    def score(judged: Judged) -> Floats:
        n_words = np.array([[max(sum(terms.weights.values()), 1)] for terms in judged.queries], np.float32)
        words = judged.bm25(bm25.K1, bm25.B) * (n_words / _USUAL_QUERY_WORDS) ** power
        return (1 - WEIGHT) * words + WEIGHT * judged.cosines()

    return score


def _in_passages(n_characters: int) -> Scorer:
    """Documents are cut into passages; a document scores as its best one."""

    def score(judged: Judged) -> Floats:
        collection = judged.collection
        rows = {id: row for row, id in enumerate(collection.ids)}
        scores = np.zeros((len(collection.queries), len(rows)), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            with pellucid.Index.create(Path(folder) / "index", passage_characters=n_characters) as index:
                index.add(collection.documents, ids=collection.ids)
                for number, query in enumerate(collection.queries):
                    for hit in index.search(query):
                        scores[number, rows[hit.id]] = hit.score
        return scores

    return score


TRIED: dict[str, Scorer] = {
    "as it was": joined(),
    "w 0.25": joined(0.25),
    "w 0.35": joined(0.35),
    "k1 0.8, b 0.5 (the default now)": joined(k1=0.8),
    "k1 0.9, b 0.6": joined(k1=0.9, b=0.6),
    "k1 0.8, b 0.7": joined(k1=0.8, b=0.7),
    "k1 1.6, b 0.5": joined(k1=1.6),
    "k1 2, b 0.75": joined(k1=2.0, b=0.75),
    "BM25's idf to the power of 1.25": joined(power=1.25),
    "BM25 over that of the best hit, w 0.5": _over_best_hit,
    "query words of static-en by the square root of their idf": joined(query_power=0.5),
    "the same, w 0.25": joined(0.25, query_power=0.5),
    "by the fourth root": joined(query_power=0.25),
    "by idf itself": joined(query_power=1.0),
    "vectors less the mean of all documents": _centred,
    "lexicon-en as a third part, 0.15 each": _third("lexicon-en"),
    "anchors-en-500 as a third part, 0.15 each": _third("anchors-en-500"),
    "BM25 also searches each word's 3 nearest words of static-en, w 0.25": _with_nearest,
    "feedback: the vector of the first 3 hits": _feedback(0.25, 3, 0.15, 0.0),
    "feedback: that and their 20 strongest terms": _feedback(0.25, 3, 0.15, 0.2),
    "static-en alone": Judged.cosines,
    "static-en alone, query words by the square root of their idf": lambda judged: judged.cosines(0.5),
}


TRIED_SINCE: dict[str, Scorer] = {
    "the default": _default,
    "two words in a row, 0.2": _with_pairs(0.2),
    "two words in a row, 0.4": _with_pairs(0.4),
    "the nearest sentence 0.1, the whole 0.25": _with_sentence(0.1, 0.25),
    "the same, and two words in a row, 0.2": _with_sentence(0.1, 0.25, 0.2),
    "the first sentence 0.1, the whole 0.25": _with_sentence(0.1, 0.25, n_sentences=1),
    "each query word's nearest word 0.1, the whole 0.3": _with_words(0.1, 0.0),
    "the same, cosines above 0.3": _with_words(0.1, 0.3),
    "passages of 1,000 characters": _in_passages(1000),
    "queries without scikit-learn's stop words": _without_more_stop_words,
    "stems of lemmas (simplemma)": lambda judged: _default(judged.with_terms_of(_LemmaAnalyser())),
    "BM25 by the fourth root of the number of query words": _by_query_length(0.25),
    "BM25 by one over it": _by_query_length(-0.25),
    "BM25 alone": lambda judged: judged.bm25(bm25.K1, bm25.B),
    "BM25 alone, k1 1.5, b 0.75": lambda judged: judged.bm25(1.5, 0.75),
}


def judge(sets: Mapping[str, Sequence[Collection]], folder: Path) -> list[tuple[str, Judged]]:
    """Return each set as arrays, with the title of its group."""
    return [
        (title, Judged(each, folder / f"{title}-{n}")) for title, group in sets.items() for n, each in enumerate(group)
    ]


def tables(judged: Sequence[tuple[str, Judged]], ways: Mapping[str, Scorer]) -> Iterator[str]:
    """Yield how each way differs from the first one: in the mean of each group of sets, then in each set."""
    values = {name: [each.ndcg(scorer(each)) for _, each in judged] for name, scorer in ways.items()}
    titles = [title for title, _ in judged]
    groups = list(dict.fromkeys(titles))
    first, before = next(iter(values.items()))
    means = (
        f"{statistics.mean(v.mean() for v, t in zip(before, titles) if t == title):.1f} ({title})" for title in groups
    )
    yield f"Differences in nDCG@10 x 100; {first}: {', '.join(means)}.\n"
    yield f"| | {' | '.join(groups)} |\n|---|" + "---|" * len(groups)
    differences = {name: [now - then for now, then in zip(by_set, before)] for name, by_set in values.items()}
    for name, by_set in differences.items():
        cells = (_signed([each for each, of in zip(by_set, titles) if of == title]) for title in groups)
        yield f"| {name} | {' | '.join(cells)} |"
    yield f"\n| | {' | '.join(each.collection.name for _, each in judged)} |\n|---|" + "---|" * len(judged)
    for name, by_set in values.items():
        cells = (f"{now.mean():.1f}, {_signed([each])}" for now, each in zip(by_set, differences[name]))
        yield f"| {name} | {' | '.join(cells)} |"


def _signed(differences: Sequence[npt.NDArray[np.float64]]) -> str:
    """Write the mean difference of some sets, bold if its interval decides whether it is above 0."""
    interval = mean_of_sets(differences)
    is_decided = interval.difference_verdict() in (Verdict.HOLDS, Verdict.DOES_NOT_HOLD)
    return f"**{interval.signed()}**" if is_decided else interval.signed()


def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__, data="retrieval/, retrieval_train/, reranking/ and sts/")
    parser.add_argument("--aside", action="store_true", help="Add the sets that nothing was chosen on.")
    options: argparse.Namespace = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        judged = judge(read_sets(options.data, options.aside), Path(folder))
        for ways in (TRIED, TRIED_SINCE):
            for text in tables(judged, ways):
                print(text, flush=True)
        print(f"\n{judged[0][1].pairs_size()}")


if __name__ == "__main__":
    main()
