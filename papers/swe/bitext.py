"""How well embeddings find translations: the scores of Tatoeba and BUCC, as MTEB and the shared task have them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Embedder, Vectors
from pellucid.errors import InputError

_BLOCK = 2_048  # sentences compared with all others at a time

Ints = npt.NDArray[np.int64]


class TranslationScores(NamedTuple):
    """How often a sentence's translation is its nearest neighbour, each from 0 to 1.

    Attributes:
        f1: from the first language to the second: F1 of the found numbers, averaged over sentences; MTEB's main score.
        f1_back: the other way.
        accuracy: share of sentences whose nearest neighbour is right.
        accuracy_back: the other way.
    """

    f1: float
    f1_back: float
    accuracy: float
    accuracy_back: float


class MinedPairs(NamedTuple):
    """Pairs of sentences that may be translations, best first; no sentence twice.

    Attributes:
        first: int64 [n], numbers of sentences in the first language.
        second: int64 [n], in the second.
        scores: float32 [n], the margins.
    """

    first: Ints
    second: Ints
    scores: Vectors


def translation_scores(model: Embedder, first: Sequence[str], second: Sequence[str]) -> TranslationScores:
    """Return how well `model` finds translations, sentence i of `second` being that of sentence i of `first`.

    Raises:
        InputError: their numbers differ, or there is none.
    """
    if len(first) != len(second) or not len(first):
        raise InputError(f"{len(first)} sentences have {len(second)} translations")
    embeddings1, embeddings2 = _embedded(model, first), _embedded(model, second)
    forward = nearest(embeddings1, embeddings2, 1)[0][:, 0]
    back = nearest(embeddings2, embeddings1, 1)[0][:, 0]
    right = np.arange(len(first))
    return TranslationScores(
        _f1(right, forward), _f1(right, back), float(np.mean(forward == right)), float(np.mean(back == right))
    )


def f1_in_all(model: Embedder, sentences: Sequence[str], others: Sequence[str], gold: Ints) -> float:
    """Return F1 where sentence i has translation `gold[i]` among `others`, most of which translate none (as in BUCC).

    Raises:
        InputError: `gold` has another length.
    """
    if len(sentences) != len(gold):
        raise InputError(f"{len(sentences)} sentences have {len(gold)} translations")
    return _f1(gold, found_first(model, sentences, others))


def found_first(model: Embedder, sentences: Sequence[str], others: Sequence[str]) -> Ints:
    """Return the number of the nearest of the others to each sentence, int64 [sentences]."""
    return nearest(_embedded(model, sentences), _embedded(model, others), 1)[0][:, 0]


def mine_pairs(model: Embedder, first: Sequence[str], second: Sequence[str], *, neighbours: int = 4) -> MinedPairs:
    """Return the pairs of sentences that are likeliest to be translations.

    After Artetxe and Schwenk (2019), with the ratio margin: a pair's cosine over the mean cosine of both sentences with
    their nearest neighbours in the other language. Candidates are the nearest neighbours by margin in both directions;
    from the best on, a pair is taken unless one of its sentences is.

    Args:
        model: embeds both languages.
        first: sentences in one language.
        second: sentences in the other.
        neighbours: how many count for the mean (paper: 4).
    """
    embeddings1, embeddings2 = _embedded(model, first), _embedded(model, second)
    neighbours = min(neighbours, len(first), len(second))
    found1, cosines1 = nearest(embeddings1, embeddings2, neighbours)
    found2, cosines2 = nearest(embeddings2, embeddings1, neighbours)
    mean1, mean2 = cosines1.mean(axis=1), cosines2.mean(axis=1)
    margins1 = cosines1 / np.maximum((mean1[:, None] + mean2[found1]) / 2, 1e-9)
    margins2 = cosines2 / np.maximum((mean2[:, None] + mean1[found2]) / 2, 1e-9)
    best1, best2 = margins1.argmax(axis=1), margins2.argmax(axis=1)
    rows1, rows2 = np.arange(len(first)), np.arange(len(second))
    ones = np.concatenate([rows1, found2[rows2, best2]])
    others = np.concatenate([found1[rows1, best1], rows2])
    margins = np.concatenate([margins1[rows1, best1], margins2[rows2, best2]])
    return _each_once(ones, others, margins)


def mining_f1(pairs: MinedPairs, gold: Collection[tuple[int, int]]) -> float:
    """Return the F1 of mined pairs against the true ones, at the threshold that is best for it.

    Raises:
        InputError: there is no true pair.
    """
    if not gold:
        raise InputError("there is no true pair to compare with")
    true = set(gold)
    hits = np.cumsum([pair in true for pair in zip(pairs.first.tolist(), pairs.second.tolist())])
    taken = np.arange(1, len(hits) + 1)
    return float(np.max(2 * hits / (taken + len(true)), initial=0.0))


def _embedded(model: Embedder, texts: Sequence[str]) -> Vectors:
    embeddings: Vectors = l2_normalize(model.encode(list(texts)))
    return embeddings


def nearest(embeddings: Vectors, others: Vectors, count: int) -> tuple[Ints, Vectors]:
    """Return the `count` nearest of the others, in no order where more than one, and their cosines."""
    found = np.empty((len(embeddings), count), np.int64)
    cosines = np.empty((len(embeddings), count), np.float32)
    for start in range(0, len(embeddings), _BLOCK):
        scores = embeddings[start : start + _BLOCK] @ others.T
        best = np.argpartition(-scores, count - 1, axis=1)[:, :count] if count > 1 else scores.argmax(axis=1)[:, None]
        found[start : start + _BLOCK] = best
        cosines[start : start + _BLOCK] = np.take_along_axis(scores, best, axis=1)
    return found, cosines


def _each_once(first: Ints, second: Ints, margins: Vectors) -> MinedPairs:
    """Return the pairs from the best on, those left out of which a sentence was taken before."""
    order = np.argsort(-margins, kind="stable")
    used1: set[int] = set()
    used2: set[int] = set()
    kept = []
    for pair, one, other in zip(order.tolist(), first[order].tolist(), second[order].tolist(), strict=True):
        if one not in used1 and other not in used2:
            used1.add(one)
            used2.add(other)
            kept.append(pair)
    chosen = np.array(kept, np.int64)
    return MinedPairs(first[chosen], second[chosen], margins[chosen].astype(np.float32))


def _f1(right: Ints, found: Ints) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(right, found, average="weighted", zero_division=0))
