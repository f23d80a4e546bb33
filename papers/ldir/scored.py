"""What anchor models are tested on after every choice: STS and retrieval, with bootstrap samples of their items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.kit import DRAWS, MIN_SEEDS, Cell, Interval, interval_of, resampled
from papers.local_tasks import find_tasks
from papers.retrieval_sets import dense_hits, read_collection
from papers.vector_cache import Vectors, unit_rows
from pellucid.anchors import CandidateSettings, uniform_points
from pellucid.anchors.candidates import candidate_texts
from pellucid.evaluation.tasks import read_sts

GROUPS = {
    "STS": ("STS12", "STS13", "STS14", "STS15", "STSBenchmark", "SICK-R"),
    "retrieval": ("SciFact", "npl", "cisi", "cranfield"),
    "clustering": ("search_snippets", "stackoverflow_titles"),
}
WORDS = 60
"""So many words of a document are read, the same by every model: a transformer takes hours for whole ones."""

FLOOR, RANDOM = "random directions", "random sentences"
N_CANDIDATES = 20_000  # sentences of the corpus that the bundled anchors come from

Map = Callable[[Vectors], Vectors]
"""Unit rows of an encoder [texts, d] -> coordinates [texts, n]."""

Samples = dict[str, Vectors]
"""Set -> a score x 100 of its items, then of each bootstrap sample of them: [1 + DRAWS]."""


class Tests:
    """The test sets as one encoder gives them; every model over it is scored on the same bootstrap samples."""

    __test__ = False  # it is no test of pytest

    def __init__(
        self,
        data: Path,
        encode: Callable[[list[str]], Vectors],
        retrieval: Sequence[str] = GROUPS["retrieval"],
        sts: Sequence[str] = GROUPS["STS"],
        *,
        max_words: int | None = WORDS,
    ) -> None:
        """Encode nothing yet.

        Args:
            data: the folder with sts/ and retrieval/.
            encode: list of texts -> rows, best kept on disk.
            retrieval: the sets to search in, by their tasks' names.
            sts: the sets of pairs.
            max_words: of a document that are read; None reads all.
        """
        self._encode, self._max_words = encode, max_words
        self._tasks = {task.name: task for task in find_tasks(data)}
        self.sets = {"STS": sts, "retrieval": retrieval}

    @cached_property
    def _sts(self) -> dict[str, tuple[Vectors, Vectors, Vectors, Vectors]]:
        found = {}
        for name in self.sets["STS"]:
            pairs = read_sts(self._tasks[name])
            counts = drawn_counts(len(pairs.scores))
            rows = [self._unit(side) for side in (pairs.sentences1, pairs.sentences2)]
            found[name] = (rows[0], rows[1], ranks_of(pairs.scores, counts), counts)
        return found

    @cached_property
    def _retrieval(self) -> dict[str, tuple[Vectors, Vectors]]:
        collections = {name: read_collection(self._tasks[name]) for name in self.sets["retrieval"]}
        return {
            name: (self._unit(c.queries), self._unit(beginnings(c.documents, self._max_words)))
            for name, c in collections.items()
        }

    def _unit(self, texts: list[str]) -> Vectors:
        return unit_rows(self._encode(texts))

    def sts(self, apply: Map) -> Samples:
        """Return Spearman's correlation on each STS set."""
        found = {}
        for name, (left, right, gold, counts) in self._sts.items():
            cosines = (unit_rows(apply(left)) * unit_rows(apply(right))).sum(axis=1)
            found[name] = 100 * spearman(ranks_of(cosines, counts), gold, counts)
        return found

    def retrieval(self, apply: Map) -> Samples:
        """Return nDCG@10 on each retrieval set."""
        found = {}
        for name, (queries, documents) in self._retrieval.items():
            collection = read_collection(self._tasks[name])
            each = np.array(collection.each_ndcg(dense_hits((apply(queries), apply(documents)), collection)))
            found[name] = drawn_counts(len(each)) @ each / len(each)
        return found


def beginnings(texts: list[str], max_words: int | None = WORDS) -> list[str]:
    """Return the first words of texts; None returns them whole."""
    return texts if max_words is None else [" ".join(text.split()[:max_words]) for text in texts]


@cache
def drawn_counts(count: int) -> Vectors:
    """Return how often each item is in each sample, [1 + DRAWS, count]; first all of them once."""
    drawn = [np.bincount(sample, minlength=count) for sample in resampled(count, DRAWS)]
    return np.stack([np.ones(count, np.int64), *drawn]).astype(np.float32)


def spearman(ones: Vectors, others: Vectors, counts: Vectors) -> Vectors:
    """Return Spearman's correlation of two columns of ranks in each sample, [samples]; 0 where one is constant.

    Args:
        ones: what `ranks_of` returns of the one values.
        others: of the others.
        counts: how often each item is in each sample, [samples, items].
    """
    sides = (ones, others), (ones, ones), (others, others)
    product, first, second = (np.einsum("sn,sn->s", counts * one, other) for one, other in sides)
    lengths = np.sqrt(first * second)
    return np.divide(product, lengths, out=np.zeros(len(product)), where=lengths > 0)


def ranks_of(values: npt.NDArray[Any], counts: Vectors) -> Vectors:
    """Return each item's rank in each sample less the mean rank, ties sharing theirs; [samples, items].

    The values [items] are sorted once for all samples.
    """
    order = np.argsort(values, kind="stable")
    _, starts, sizes = np.unique(values[order], return_index=True, return_counts=True)
    levels = np.add.reduceat(counts[:, order], starts, axis=1)
    ranks = np.cumsum(levels, axis=1) - levels / 2 - levels.sum(axis=1, keepdims=True) / 2
    found: Vectors = np.empty(counts.shape)
    found[:, order] = np.repeat(ranks, sizes, axis=1)
    return found


def reciprocal_rank(queries: Vectors, documents: Vectors, relevant: npt.NDArray[np.bool_]) -> float:
    """Return the mean over queries of 1 / rank of the best relevant document; ties count against it."""
    scores = queries @ documents.T
    best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)
    ranks = 1 + ((scores >= best) & ~relevant).sum(axis=1)
    return float((1 / ranks).mean())


def random_directions(n: int, dimension: int, seed: int) -> Vectors:
    """Return directions drawn evenly from all, at length 1, [n, dimension]: the floor of any choice of anchors."""
    return unit_rows(np.random.default_rng(seed).normal(size=(n, dimension)))


def floor_draws(sentences: Vectors, n: int, n_draws: int = MIN_SEEDS) -> dict[str, list[Vectors]]:
    """Return what any choice of anchors is measured against: random directions and random sentences.

    Args:
        sentences: that anchors may be chosen from, [sentences, d] at length 1.
        n: of the anchors.
        n_draws: how many of each.

    Returns:
        `FLOOR` and `RANDOM` -> the draws, each [n, d].
    """
    seeds = range(n_draws)
    return {
        FLOOR: [random_directions(n, sentences.shape[1], seed) for seed in seeds],
        RANDOM: [sentences[uniform_points(sentences, n, seed=seed)] for seed in seeds],
    }


def corpus_sentences(data: Path, n_candidates: int = N_CANDIDATES) -> list[str]:
    """Return sentences of the corpus that the bundled anchors come from."""
    settings = CandidateSettings(words=(4, 20), max_candidates=n_candidates)
    return list(candidate_texts(data / "raw_english" / "open_licence.txt.xz", settings))


def mean_over_seeds(samples: Vectors) -> Vectors:
    """Return the mean over seeds of scores [seeds, 1 + DRAWS]; each bootstrap sample draws seeds, too."""
    drawn = samples[resampled(len(samples)).T, np.arange(1, DRAWS + 1)].mean(axis=0)
    return np.concatenate([samples[:, :1].mean(axis=0), drawn])


def mean_of_draws(draws: Sequence[Samples]) -> Samples:
    """Return the mean scores of several draws of a model; each bootstrap sample draws draws, too."""
    return {name: mean_over_seeds(np.stack([draw[name] for draw in draws])) for name in draws[0]}


def mean_of(samples: Mapping[str, Vectors]) -> Vectors:
    """Return the mean over the sets, of the items and of each bootstrap sample."""
    return np.asarray(np.mean(list(samples.values()), axis=0))


def difference(ones: Mapping[str, Vectors], others: Mapping[str, Vectors], n_seeds: int | None = None) -> Interval:
    """Return the interval of the difference of two models' means, paired: the samples are of the same items.

    A thousandth counts: below it lie the last digits of scores that are equal by arithmetic.

    Args:
        ones: set -> the score, and that of each bootstrap sample, [1 + draws].
        others: the same of the other model.
        n_seeds: as `Interval` has it.
    """
    return interval_of(np.round(mean_of(ones) - mean_of(others), 3), n_seeds)


def beside(samples: Mapping[str, Vectors], *others: Mapping[str, Vectors], n_seeds: int | None = None) -> list[Cell]:
    """Return the cells of a model's mean and of its difference to each other model, a dash where it is the model."""
    less = [None if samples is other else difference(samples, other, n_seeds).with_verdict() for other in others]
    return [float(mean_of(samples)[0]), *less]
