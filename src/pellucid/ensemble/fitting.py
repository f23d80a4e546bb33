"""Weights of an ensemble, fitted on a development split: on similarities that people gave, or on rankings.

One number a model is fitted, by a search without gradients: from the best of equal weights and each model alone, weight
is moved between two models in ever smaller steps as long as that helps. Use texts for it that nothing else is measured
on; scores on the set that weights were chosen on are too high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.comparing import check_pairs
from pellucid.base import check_texts
from pellucid.encoders import Encoder
from pellucid.ensemble.embedder import Part, make_parts
from pellucid.errors import InputError

_STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)
_GAIN = 1e-9  # less is rounding
_BLOCK = 4_096  # pairs encoded at a time
Floats = npt.NDArray[np.float64]


class FittedWeights(NamedTuple):
    """The weights that do best on a development split.

    Attributes:
        weights: one a model, in order; they add up to 1.
        score: of the ensemble with these weights: Spearman's correlation, or nDCG.
        equal: of the ensemble with equal weights.
        alone: of each model by itself.
    """

    weights: tuple[float, ...]
    score: float
    equal: float
    alone: tuple[float, ...]


def fit_weights(
    models: Sequence[Encoder] | Mapping[str, Encoder], pairs: Iterable[tuple[str, str]], scores: Iterable[float]
) -> FittedWeights:
    """Fit the weights of an ensemble to similarities that people gave.

    Args:
        models: as for `EnsembleEmbedder`.
        pairs: pairs of texts of a development split.
        scores: for each pair how similar it is; the order alone counts. 0 and 1 will do.

    Returns:
        The weights with the highest Spearman correlation that the search finds.

    Raises:
        InputError: pairs or scores that do not fit, or all scores are alike.
    """
    from scipy.stats import rankdata

    checked = check_pairs(pairs)
    gold = np.asarray(list(scores), np.float64)
    if gold.shape != (len(checked),) or not np.isfinite(gold).all():
        raise InputError(f"{len(checked)} pairs need as many finite scores, got {gold.size}")
    if gold.min() == gold.max():
        raise InputError(f"all {gold.size} scores are {gold[0]}; weights cannot be fitted to them")
    ranks = _centred(rankdata(gold))
    cosines = np.stack([_pair_cosines(part, checked) for part in make_parts(models)], axis=1)  # [pairs, models]

    def spearman(weights: Floats) -> float:
        found = _centred(rankdata(np.round(cosines @ weights, 6)))  # decimals beyond are rounding of float32
        return float(found @ ranks)

    return _search(cosines.shape[1], spearman)


def fit_ranking_weights(
    models: Sequence[Encoder] | Mapping[str, Encoder],
    queries: Sequence[str],
    documents: Sequence[str],
    relevant: Sequence[Mapping[int, float]],
    *,
    k: int = 10,
) -> FittedWeights:
    """Fit the weights of an ensemble for search.

    All scores are held at once, 4 bytes a model, query and document.

    Args:
        models: as for `EnsembleEmbedder`; queries and documents are encoded as such.
        queries: of a development split.
        documents: the texts to rank.
        relevant: for each query, number of document (from 0) -> gain; all others have gain 0.
        k: how many of the best count.

    Returns:
        The weights with the highest mean nDCG@k that the search finds.

    Raises:
        InputError: nothing is given, the lengths differ, a query has no relevant document, or one is out of range.
    """
    gains = _gains(len(check_texts(queries)), len(check_texts(documents)), relevant)
    most = min(k, len(documents))
    if k < 1:
        raise InputError(f"k is {k}; it must be at least 1")
    parts = make_parts(models)
    scores = [_product(part.rows(list(queries), "query"), part.rows(list(documents), "document")) for part in parts]
    discounts = 1 / np.log2(np.arange(2, most + 2))
    best = np.sort(gains, axis=1)[:, ::-1][:, :most] @ discounts

    def ndcg(weights: Floats) -> float:
        mixed = sum(np.float32(weight) * score for weight, score in zip(weights, scores, strict=True))
        top = _largest(np.asarray(mixed), most)
        return float((np.take_along_axis(gains, top, axis=1) @ discounts / best).mean())

    return _search(len(parts), ndcg)


def _search(count: int, objective: Callable[[Floats], float]) -> FittedWeights:
    """Return the best weights found from the best start; equal ones where nothing is better."""
    equal = np.full(count, 1 / count)
    alone = tuple(objective(vertex) for vertex in np.eye(count))
    start = objective(equal)
    weights, score = equal, start
    if max(alone) > score + _GAIN:
        weights, score = np.eye(count)[int(np.argmax(alone))], max(alone)
    for step in _STEPS:
        improved = True
        while improved:
            moved = [_moved(weights, step, *pair) for pair in permutations(range(count), 2)]
            values = [objective(candidate) for candidate in moved]
            improved = bool(values) and max(values) > score + _GAIN
            if improved:
                weights, score = moved[int(np.argmax(values))], max(values)
    return FittedWeights(tuple(np.round(weights, 6).tolist()), score, start, alone)


def _moved(weights: Floats, step: float, giver: int, taker: int) -> Floats:
    """Return the weights after `giver` gave `step`, or what it has."""
    moved = weights.copy()
    amount = min(step, moved[giver])
    moved[giver] -= amount
    moved[taker] += amount
    return moved


def _pair_cosines(part: Part, pairs: Sequence[tuple[str, str]]) -> Floats:
    """Return the part's cosine of each pair, float64 [pairs]."""
    found = []
    for start in range(0, len(pairs), _BLOCK):
        block = pairs[start : start + _BLOCK]
        first, second = (part.rows([pair[side] for pair in block]) for side in (0, 1))
        product = first.multiply(second) if hasattr(first, "multiply") else first * second
        found.append(np.asarray(product.sum(axis=1), np.float64).ravel())
    return np.concatenate(found)


def _product(queries: Any, documents: Any) -> npt.NDArray[np.float32]:
    """Return the cosines of unit rows, float32 [queries, documents]."""
    product = queries @ documents.T
    return np.asarray(product.toarray() if hasattr(product, "toarray") else product, np.float32)


def _centred(ranks: Floats) -> Floats:
    """Return ranks with mean 0 at length 1; zeros where all are alike."""
    centred = ranks - ranks.mean()
    scaled: Floats = centred / (np.linalg.norm(centred) or 1.0)
    return scaled


def _largest(scores: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
    """Return the places of the `count` largest of each row, largest first; equal ones in order."""
    top = np.sort(np.argpartition(-scores, count - 1, axis=1)[:, :count], axis=1)
    order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
    return np.take_along_axis(top, order, axis=1)


def _gains(queries: int, documents: int, relevant: Sequence[Mapping[int, float]]) -> npt.NDArray[np.float32]:
    """Return the gain of every document for every query, float32 [queries, documents]."""
    if not queries or not documents or len(relevant) != queries:
        raise InputError(f"{queries} queries over {documents} documents need as many mappings, got {len(relevant)}")
    gains = np.zeros((queries, documents), np.float32)
    for query, of_query in enumerate(relevant):
        for document, gain in of_query.items():
            if not 0 <= document < documents or not 0 <= gain < np.inf:
                raise InputError(f"query {query} has gain {gain!r:.20} for document {document!r:.20} of {documents}")
            gains[query, document] = gain
        if not gains[query].any():
            raise InputError(f"query {query} has no relevant document; leave it out")
    return gains
