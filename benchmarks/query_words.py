"""Exact words over a transformer: documents are vectors of minilm, a query is a sum of word vectors fitted to them.

    python -m benchmarks.query_words --work-dir WORK [--data shared/data] [--write]

Then every word of a query has an exact row, and a query needs no transformer. Prints nDCG@10 x 100 alone and with BM25,
and differences with 95 % intervals (bootstrap over the queries of each set). The weight beside BM25 is the default (0.3
for static-en, 0.4 for others) or the best on training questions. minilm's vectors are kept in WORK; one thread needs
about an hour.

Texts to fit to are open sentences and windows of 2 to 8 of their words, without those of MedQuAD and WikiQA. Settings
were chosen on training claims of SciFact, questions of half of MedQuAD (by topic), and WikiQA's training questions. The
four sets of docs/benchmarks.md, the other half of MedQuAD and the other questions of WikiQA only test.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

import pellucid
from benchmarks.search import SETS, Scores, bm25_scores, mean_of_sets
from papers.kit import Interval, make_parser, markdown_table, print_block
from papers.retrieval_sets import Collection, medquad_halves, read_collection, sentences_outside, top_hits, wikiqa
from papers.vector_cache import CachedEncoder, Vectors, unit_rows
from pellucid.evaluation.tasks import find_tasks

N_SENTENCES, BANK, N_NEAR = 60_000, 10_000, 32  # neighbours of a text are the 32 nearest of 10,000 sentences
STEPS, BATCH, TEMPERATURE, WEIGHTS = 600, 256, 0.07, (0.2, 0.3, 0.4, 0.5, 0.6)
FLOOR, CEILING = "static-en as it is (floor)", "minilm on both sides (ceiling)"
GROUPS = {"training": slice(3), "four sets": slice(3, 7), "kept aside": slice(7, 9)}
"""Group -> which of `collections`."""


def collections(data: Path) -> list[Collection]:
    """Return the collections of all groups, in their order."""
    tasks, (chosen, aside) = {task.name: task for task in find_tasks(data)}, medquad_halves(data)
    training = [read_collection(tasks["SciFact"], "train"), chosen, wikiqa(data, "train")]
    return [*training, *(read_collection(tasks[name]) for name in SETS), aside, wikiqa(data, "dev", "test")]


def fitted_texts(data: Path) -> list[str]:
    """Return open sentences that are in no text of MedQuAD or WikiQA, and then a window of 2 to 8 words of each."""
    left_out = [*medquad_halves(data, 10_000), wikiqa(data, "train", "dev", "test")]
    sentences, draws, windows = [*islice(sentences_outside(left_out, data), N_SENTENCES)], random.Random(7), []
    for words in map(str.split, sentences):
        length = draws.randint(2, 8)
        start = draws.randrange(len(words) - length + 1) if len(words) > length else 0
        windows.append(" ".join(words[start : start + length]).strip(" ,;:()\"'-"))
    return sentences + windows


def word_counts(model: pellucid.StaticEmbedder, texts: Sequence[str]) -> sparse.csr_matrix:
    """Return how often each word of the table stands in each text, float32 [texts, words]."""
    read = [model.text_words(text) for text in texts]
    rows = [words.rows[words.rows >= 0] for words in read]
    counts = np.concatenate([words.counts[words.rows >= 0] for words in read]).astype(np.float32)
    return sparse.csr_matrix(
        (counts, np.concatenate(rows), np.cumsum([0, *map(len, rows)])), shape=(len(texts), len(model.vocabulary))
    )


class Fit:
    """Sentences and windows as words and as vectors of minilm, and the word vectors that are fitted to them."""

    def __init__(self, table: Vectors, words: sparse.csr_matrix, vectors: Vectors) -> None:
        """Take static-en's table, and of each text the words and minilm's vector."""
        self.table, self.words, self.vectors = table, words, vectors

    def ridge(self, features: Vectors) -> Vectors:
        """Return the least-squares map from means of features of words to minilm's space."""
        gram, products = np.eye(features.shape[1]), np.zeros((features.shape[1], self.vectors.shape[1]))
        for start in range(0, len(self.vectors), BANK):
            means = self.words[start : start + BANK] @ features / self.lengths(self.words[start : start + BANK])
            gram, products = gram + means.T @ means, products + means.T @ self.vectors[start : start + BANK]
        return np.linalg.solve(gram, products).astype(np.float32)

    def lengths(self, words: sparse.csr_matrix) -> Vectors:
        """Return the lengths of the sums of static-en's vectors of words, float32 [texts, 1]."""
        return np.asarray(np.linalg.norm(words @ self.table, axis=1, keepdims=True).clip(min=1e-9), np.float32)

    def moved(self, words: Vectors, counts: sparse.csr_matrix, vectors: Vectors) -> Vectors:
        """Return word vectors moved by what vectors of a collection's documents with the word have beyond its words."""
        present, beyond = (counts > 0).astype(np.float32), vectors - counts @ words / self.lengths(counts)
        length = (counts @ np.linalg.norm(self.table, axis=1)).sum() / counts.sum()  # of a document's word
        beyond -= beyond.mean(axis=0)  # what all documents have beyond their words is of no word
        return np.asarray(words + length * (present.T @ beyond) / (1 + present.sum(axis=0).T), np.float32)

    def neighbours(self) -> npt.NDArray[np.int32]:
        """Return the sentences nearest to each text, of 10,000 with its own, int32 [texts, 32]."""
        near = []
        for start in range(0, len(self.vectors), 2000):
            first = start % N_SENTENCES // BANK * BANK
            cosines = self.vectors[start : start + 2000] @ self.vectors[first : first + BANK].T
            near.append(first + np.argpartition(-cosines, N_NEAR, axis=1)[:, :N_NEAR].astype(np.int32))
        return np.concatenate(near)

    def ranked(self, near: npt.NDArray[np.int32], features: Vectors, n_moved: int = 0) -> Vectors:
        """Return word vectors trained to rank sentences as minilm does, near ones in each batch, from least squares.

        Args:
            near: of `neighbours`.
            features: of each word, which are mapped and multiplied by a gain.
            n_moved: how many of the commonest words get a vector of their own, too.
        """
        rng, given, vectors = np.random.default_rng(0), torch.tensor(features), torch.tensor(self.vectors)
        mapped = torch.tensor(self.ridge(features), requires_grad=True)
        gains, scale, moves = (
            torch.zeros(shape, requires_grad=True)
            for shape in ((len(given), 1), (1,), (max(n_moved, 1), len(mapped.T)))
        )
        optimizer = torch.optim.Adam([mapped, scale], lr=2e-4, betas=(0.9, 0.99))
        optimizer.add_param_group({"params": [gains, moves], "lr": 1e-2})
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        for _ in range(STEPS):
            texts = rng.integers(0, len(near), BATCH)
            hard = near[texts[:, None], rng.integers(0, N_NEAR, (BATCH, 7))]
            sentences = vectors[np.union1d(texts % N_SENTENCES, hard)].T / TEMPERATURE
            used = np.unique(self.words[texts].indices)
            own = moves[used.clip(max=len(moves) - 1)] * torch.tensor(used < n_moved)[:, None]
            words, counts = (given[used] @ mapped + own) * gains[used].exp(), self.words[texts][:, used].toarray()
            queries = torch.nn.functional.normalize(torch.tensor(counts) @ words, dim=1)
            scores = torch.stack([queries @ sentences * scale.exp(), vectors[texts] @ sentences])
            optimizer.zero_grad()
            torch.nn.functional.kl_div(*scores.log_softmax(2), log_target=True, reduction="batchmean").backward()
            optimizer.step()
            schedule.step()
        own = torch.nn.functional.pad(moves[:n_moved], (0, 0, 0, len(given) - n_moved))
        return ((given @ mapped + own) * gains.exp()).detach().numpy()  # type: ignore[no-any-return]


def measured(data: Path, kept: Path) -> Scores:
    """Return nDCG@10 x 100 of each query of each collection, by name of what is searched and its weight beside BM25."""
    static = pellucid.StaticEmbedder.from_pretrained("static-en")
    encode = CachedEncoder("minilm", pellucid.load("minilm").encode, kept)
    texts, table = fitted_texts(data), static.word_vectors(np.arange(len(static.vocabulary)))
    fit = Fit(table, word_counts(static, texts), encode(texts))
    each = unit_rows(encode(list(static.vocabulary.forms)))
    each = (each - each.mean(axis=0)) * np.linalg.norm(table, axis=1, keepdims=True)
    both, near = np.hstack([table, each]).astype(np.float32), fit.neighbours()
    words = {
        "map, least squares": table @ fit.ridge(table),
        "map of both, least squares": both @ fit.ridge(both),
        "map and gains, ranking": fit.ranked(near, table),
        "map, gains, 30,000 vectors, ranking": fit.ranked(near, table, 30_000),
        "map of both and gains, ranking": fit.ranked(near, both),
    }
    scores: Scores = {}
    for collection in collections(data):
        bm25, vectors = bm25_scores(collection), encode(collection.documents)
        counts, queries = (word_counts(static, part) for part in (collection.documents, collection.queries))
        moved = {f"{name}, moved": fit.moved(fitted, counts, vectors) for name, fitted in words.items()}
        dense = {FLOOR: static.encode(collection.queries) @ static.encode(collection.documents).T}
        dense |= {name: unit_rows(queries @ fitted) @ vectors.T for name, fitted in (words | moved).items()}
        for name, cosines in (dense | {CEILING: encode(collection.queries) @ vectors.T}).items():
            for weight in (*WEIGHTS, 1.0):
                ndcg = collection.each_ndcg(top_hits((1 - weight) * bm25 + weight * cosines, collection))
                scores.setdefault(f"{name}|{weight}", []).append(np.array(ndcg))
    return scores


def tables(scores: Scores) -> Iterator[str]:
    """Yield the mean of each group, and how far each search is from the floor and the ceiling of the same table.

    Rankings are left out: they have one seed each, and decide nothing.
    """
    names = list(dict.fromkeys(name.split("|")[0] for name in scores if "ranking" not in name))
    reached = {n: {_difference(scores[f"{n}|{w}"], "training").value: w for w in WEIGHTS} for n in names}
    said = {
        "alone": dict.fromkeys(names, 1.0),
        "with BM25, default weights": {name: 0.3 if name == FLOOR else 0.4 for name in names},
        "with BM25, weights chosen": {name: reached[name][max(reached[name])] for name in names},
    }
    pairs = [(other, group) for other in (FLOOR, CEILING) for group in [*GROUPS][1:]]
    for column, weights in said.items():
        read = {name: scores[f"{name}|{weights[name]}"] for name in names}
        header = [f"{column}, weight", *GROUPS, *(f"minus {other.split()[0]}, {group}" for other, group in pairs)]
        lines = [
            [f"{name}, {weights[name]}", *(f"{_difference(read[name], group).value:.1f}" for group in GROUPS),
             *(_difference(read[name], group, read[other]).signed() for other, group in pairs)]
            for name in names
        ]  # fmt: skip
        yield markdown_table(header, lines) + "\n"


def _difference(
    first: Sequence[npt.NDArray[np.float64]], group: str, second: Sequence[npt.NDArray[np.float64]] = (np.zeros(1),) * 9
) -> Interval:
    """Return how much more the first search finds on the collections of a group, or all that it finds."""
    return mean_of_sets([one - other for one, other in zip(first[GROUPS[group]], second[GROUPS[group]])])


def main() -> None:
    """Measure, print and perhaps write."""
    options = make_parser(
        __doc__, data="all data", work_dir="minilm's vectors", write=Path(__file__).with_suffix(".md")
    ).parse_args()
    print_block("tables", "\n".join(tables(measured(options.data, options.work_dir))), options.write)


if __name__ == "__main__":
    main()
