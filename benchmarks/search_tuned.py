"""The static part of the default search, trained for retrieval: the difference from the search as it is.

    python -m benchmarks.search_tuned --data shared/data
    python -m benchmarks.search_tuned --data shared/data --abstracts abstracts.jsonl
    python -m benchmarks.search_tuned --data shared/data --abstracts abstracts.jsonl --aside

The loss is that of picking the right document among those of a batch and high hits that are wrong (cross-entropy). The
score is that of the whole search, 0.7 BM25 + 0.3 static-en, so that only what BM25 lacks is learnt. What is learnt: a
factor for each word of queries, of documents or of both, the whole table, or a map of low rank for query vectors.
Pairs are questions and answers of half of MedQuAD; titles and abstracts of --abstracts, a file of lines ["title",
"abstract"]; or a sentence of one of these texts and the rest of it. The abstracts of docs/search-measured.md are not
published; arXiv's metadata have others. The sets, also those of --aside, are those of
`benchmarks/search_tried.py`. Needs torch; takes some 30 minutes.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

import pellucid
from benchmarks.search_tried import (
    Floats,
    Judged,
    Scorer,
    joined,
    judge,
    medquad,
    pairs_collection,
    read_sets,
    tables,
    word_counts,
)
from papers.kit import make_parser
from papers.retrieval_sets import Collection
from pellucid.index.bm25 import K1, B
from pellucid.text.sentences import sentence_spans

WEIGHT = 0.3
TEMPERATURE = 0.03
BATCH_QUERIES, HARD_DOCUMENTS = 128, 4  # of each query, drawn from so many of the highest:
N_HARD = 48
MAX_QUERIES = 8_000  # of a source
RANK = 16
_BLOCK_QUERIES = 256


class Way(NamedTuple):
    """What is learnt, from what pairs, and how."""

    learnt: str
    sources: tuple[str, ...]
    rate: float
    epochs: int
    penalty: float = 0.0  # times the squares of all changes


WAYS = {
    "a factor for each query word: questions": Way("query", ("questions",), 0.02, 2),
    "the same: titles": Way("query", ("titles",), 0.02, 2),
    "the same: sentences": Way("query", ("sentences",), 0.02, 2),
    "a factor for each document word: titles": Way("document", ("titles",), 0.02, 2),
    "a factor for each word on both sides: sentences": Way("both", ("sentences",), 0.02, 2),
    "a map of rank 16 for query vectors: sentences": Way("map", ("sentences",), 0.001, 2),
    "the table: titles and sentences": Way("table", ("titles", "sentences"), 0.03, 1),
    "the same, held near the start": Way("table", ("titles", "sentences"), 0.03, 1, 1e-6),
}


# --- Pairs ---


def read_sources(data: Path, abstracts: Path | None) -> dict[str, list[Collection]]:
    """Return the training pairs of each source as sets."""
    answers = medquad(data, 0, max_queries=None)
    with_rest = [pairs_collection("answers' sentences", sentence_pairs(answers.documents))]
    sources = {"questions": [answers], "sentences": with_rest}
    if abstracts is not None:
        rows = [json.loads(line) for line in abstracts.read_text(encoding="utf-8").splitlines()]
        sources["titles"] = [pairs_collection("titles", ((title, text, True) for title, text in rows))]
        with_rest.append(pairs_collection("abstracts' sentences", sentence_pairs([text for _, text in rows])))
    return sources


def sentence_pairs(documents: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield one sentence of 6 to 40 words of each document of four sentences or more, and what is left of it."""
    draw = np.random.default_rng(0)
    for document in dict.fromkeys(documents):
        spans = sentence_spans(document)
        if len(spans) >= 4:
            start, end = spans[draw.integers(len(spans))]
            if 6 <= len(document[start:end].split()) <= 40:
                yield document[start:end], f"{document[:start]} {document[end:]}", True


class Pairs:
    """A source as arrays, with the documents that the search takes for right ones."""

    def __init__(self, collection: Collection, folder: Path) -> None:
        """Index the documents and search them."""
        judged = Judged(collection, folder)
        self.query_terms, self.impacts = judged.term_weights(), judged.impacts(K1, B)
        self.queries = word_counts(collection.queries, judged.model)
        self.documents = word_counts(collection.documents, judged.model)
        row_by_id = {document_id: row for row, document_id in enumerate(collection.ids)}
        self.relevant = [[row_by_id[name] for name in grades] for grades in collection.relevant.values()]
        draw = np.random.default_rng(0).permutation(len(self.relevant))
        self.drawn = draw[:MAX_QUERIES]
        n_hard = min(N_HARD, len(collection.ids) - max(map(len, self.relevant)))
        self.hard = np.zeros((len(self.relevant), n_hard), np.int64)
        query_vectors = judged.query_vectors()
        for start in range(0, len(self.drawn), _BLOCK_QUERIES):
            rows = self.drawn[start : start + _BLOCK_QUERIES]
            words = (self.query_terms[rows] @ self.impacts.T).toarray()
            scores = (1 - WEIGHT) * words + WEIGHT * query_vectors[rows] @ judged.vectors.T
            for score, row in zip(scores, rows):
                score[self.relevant[row]] = -1
            self.hard[rows] = np.argpartition(-scores, n_hard - 1, axis=1)[:, :n_hard]


# --- Training ---


class Tuned:
    """A static model with what is learnt beside it."""

    def __init__(self, model: Any, learnt: str) -> None:
        """Begin with what changes nothing."""
        self.table = torch.from_numpy(model.word_vectors(np.arange(len(model.vocabulary))))
        n_words, dimension = self.table.shape
        self.log_factors = torch.zeros(n_words, requires_grad=learnt in ("query", "document", "both"))
        self.change = torch.zeros(n_words if learnt == "table" else 0, dimension, requires_grad=learnt == "table")
        self.left = torch.zeros(dimension, RANK, requires_grad=learnt == "map")
        self.right = (0.05 * torch.randn(dimension, RANK)).requires_grad_(learnt == "map")
        self.learnt = learnt

    def parameters(self) -> list[torch.Tensor]:
        """Return what is trained."""
        return [each for each in (self.log_factors, self.change, self.left, self.right) if each.requires_grad]

    def vectors(self, counts: Any, side: str) -> torch.Tensor:
        """Return the vectors of texts at length 1, float32 [texts, dimension]; side is "query" or "document"."""
        words = torch.from_numpy(counts.indices.astype(np.int64))
        weights = torch.from_numpy(counts.data)
        if self.learnt in (side, "both"):
            weights = weights * self.log_factors[words].exp()
        table = self.table + self.change if self.learnt == "table" else self.table
        starts = torch.from_numpy(counts.indptr[:-1].astype(np.int64))
        sums = F.embedding_bag(words, table, starts, per_sample_weights=weights, mode="sum")
        if self.learnt == "map" and side == "query":
            sums = sums + sums @ self.right @ self.left.T
        return F.normalize(sums, dim=1)

    def penalty(self) -> torch.Tensor:
        """Return the sum of the squares of all changes."""
        return torch.stack([each.square().sum() for each in self.parameters()]).sum()

    def score(self, judged: Judged) -> Floats:
        """Score every document of a set for every query: float32 [queries, documents]."""
        with torch.no_grad():
            queries = self.vectors(word_counts(judged.collection.queries, judged.model), "query").numpy()
            documents = self.vectors(word_counts(judged.collection.documents, judged.model), "document").numpy()
        cosines: Floats = queries @ documents.T
        return (1 - WEIGHT) * judged.bm25(K1, B) + WEIGHT * cosines


def train(way: Way, sources: dict[str, list[Pairs]], model: Any) -> Tuned:
    """Train one way on its sources."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    tuned = Tuned(model, way.learnt)
    optimizer = torch.optim.Adam(tuned.parameters(), lr=way.rate)
    every = [pairs for source in way.sources for pairs in sources[source]]
    batches = [
        (pairs, rows[start : start + BATCH_QUERIES])
        for _ in range(way.epochs)
        for pairs in every
        for rows in [draw.permutation(pairs.drawn)]
        for start in range(0, len(rows), BATCH_QUERIES)
    ]
    for step, index in enumerate(draw.permutation(len(batches))):
        optimizer.param_groups[0]["lr"] = way.rate * (1 - step / len(batches))
        optimizer.zero_grad()
        pairs, rows = batches[index]
        loss = _loss(tuned, pairs, rows, draw)
        (loss + way.penalty * tuned.penalty() if way.penalty else loss).backward()
        optimizer.step()
    return tuned


def _loss(tuned: Tuned, pairs: Pairs, rows: npt.NDArray[np.int64], draw: np.random.Generator) -> torch.Tensor:
    right = np.array([draw.choice(pairs.relevant[row]) for row in rows])
    columns = draw.integers(0, pairs.hard.shape[1], (len(rows), HARD_DOCUMENTS))
    documents = np.unique(np.concatenate([right, pairs.hard[rows[:, None], columns].ravel()]))
    words = torch.from_numpy((pairs.query_terms[rows] @ pairs.impacts[documents].T).toarray())
    queries = tuned.vectors(pairs.queries[rows], "query")
    cosines = queries @ tuned.vectors(pairs.documents[documents], "document").T
    scores = (1 - WEIGHT) * words + WEIGHT * cosines
    for number, row in enumerate(rows):  # other right documents of the query are no wrong ones
        others = np.flatnonzero(np.isin(documents, pairs.relevant[row]) & (documents != right[number]))
        scores[number, others] = -torch.inf
    return F.cross_entropy(scores / TEMPERATURE, torch.from_numpy(np.searchsorted(documents, right)))


def _trained_when_used(way: Way, sources: dict[str, list[Pairs]], model: Any) -> Scorer:
    tuned = cache(lambda: train(way, sources, model))
    return lambda judged: tuned().score(judged)


def main() -> None:
    """Train each way and print the table."""
    parser = make_parser(__doc__, data="retrieval/, retrieval_train/, reranking/ and sts/")
    parser.add_argument("--abstracts", type=Path, help='Lines ["title", "abstract"], for more pairs.')
    parser.add_argument("--aside", action="store_true", help="Measure the sets that nothing was chosen on, too.")
    options: argparse.Namespace = parser.parse_args()
    model = pellucid.load("static-en")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {
            title: [Pairs(each, folder / f"{title} {n}") for n, each in enumerate(group)]
            for title, group in read_sources(options.data, options.abstracts).items()
        }
        ways: dict[str, Scorer] = {"the default": joined(k1=K1)}
        for title, way in WAYS.items():
            if sources.keys() >= set(way.sources):
                ways[title] = _trained_when_used(way, sources, model)
        for text in tables(judge(read_sets(options.data, options.aside), folder), ways):
            print(text, flush=True)


if __name__ == "__main__":
    main()
