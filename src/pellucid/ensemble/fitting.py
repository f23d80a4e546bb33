"""Weights of an ensemble, fitted on a development split: on similarities that people gave, or on rankings.

One number a model is fitted by a search without gradients: from the best of equal weights and each single model, weight
is moved between two models in ever smaller steps as long as that helps. Fit on texts that nothing else is measured on:
scores on the set that weights were chosen on are too high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.comparing import check_pairs
from pellucid.analysis.coordinates import average_ranks
from pellucid.ensemble.embedder import make_parts
from pellucid.errors import InputError, check_integer, shown
from pellucid.text.inputs import check_texts

_WEIGHT_STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)
_MIN_GAIN = 1e-9  # below it is rounding
_BLOCK_PAIRS = 4_096  # encoded at a time
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
    models: Sequence[Any] | Mapping[str, Any], pairs: Iterable[tuple[str, str]], scores: Iterable[float]
) -> FittedWeights:
    """Fit the weights of an ensemble to similarities that people gave.

    Args:
        models: as for `EnsembleEmbedder`.
        pairs: pairs of texts of a development split.
        scores: for each pair how similar it is; only the order counts. 0 and 1 will do.

    Returns:
        The weights with the highest Spearman correlation that the search finds.

    Raises:
        InputError: pairs or scores that do not fit, or all scores are alike.
    """

    def centred(values: Floats) -> Floats:
        ranks = average_ranks(values)
        ranks -= ranks.mean()
        scaled: Floats = ranks / (np.linalg.norm(ranks) or 1.0)  # zeros where all are alike
        return scaled

    def spearman(weights: Floats) -> float:
        return float(centred(np.round(cosines @ weights, 6)) @ ranks)  # decimals beyond are rounding of float32

    checked = check_pairs(pairs)
    gold = np.asarray(list(scores), np.float64)
    if gold.shape != (len(checked),) or not np.isfinite(gold).all():
        raise InputError(f"{len(checked)} pairs need as many finite scores, got {gold.size}")
    if gold.min() == gold.max():
        raise InputError(f"all {gold.size} scores are {gold[0]}; weights cannot be fitted to them")
    ranks, parts = centred(gold), make_parts(models)
    cosines = np.empty((len(checked), len(parts)))
    for index, part in enumerate(parts):
        for start in range(0, len(checked), _BLOCK_PAIRS):
            block = checked[start : start + _BLOCK_PAIRS]
            first, second = (part.rows([pair[side] for pair in block]) for side in (0, 1))
            product = first.multiply(second) if hasattr(first, "multiply") else first * second
            cosines[start : start + _BLOCK_PAIRS, index] = np.asarray(product.sum(axis=1), np.float64).ravel()
    return _search(len(parts), spearman)


def fit_ranking_weights(
    models: Sequence[Any] | Mapping[str, Any],
    queries: Iterable[str],
    documents: Iterable[str],
    relevant: Iterable[Mapping[int, float]],
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
    check_integer("k", k)
    queries, documents, relevant = check_texts(queries), check_texts(documents), list(relevant)
    count, n_top = len(documents), min(k, len(documents))
    if not queries or not count or len(relevant) != len(queries):
        raise InputError(f"{len(queries)} queries over {count} documents need as many mappings, got {len(relevant)}")
    gains = np.zeros((len(queries), count), np.float32)
    for query, query_gains in enumerate(relevant):
        for document, gain in query_gains.items():
            if not 0 <= document < count or not 0 <= gain < np.inf:
                raise InputError(f"query {query} has gain {shown(gain)} for document {document!r:.20} of {count}")
            gains[query, document] = gain
        if not gains[query].any():
            raise InputError(f"query {query} has no relevant document; leave it out")
    scores = []
    for part in make_parts(models):
        product = part.rows(queries, "query") @ part.rows(documents, "document").T
        scores.append(np.asarray(product.toarray() if hasattr(product, "toarray") else product, np.float32))
    discounts = 1 / np.log2(np.arange(2, n_top + 2))
    best = np.sort(gains, axis=1)[:, ::-1][:, :n_top] @ discounts

    def ndcg(weights: Floats) -> float:
        mixed = np.asarray(sum(np.float32(weight) * score for weight, score in zip(weights, scores, strict=True)))
        top = np.sort(np.argpartition(-mixed, n_top - 1, axis=1)[:, :n_top], axis=1)  # equal ones stay in this order
        order = np.argsort(-np.take_along_axis(mixed, top, axis=1), axis=1, kind="stable")
        ranked = np.take_along_axis(gains, np.take_along_axis(top, order, axis=1), axis=1)
        return float((ranked @ discounts / best).mean())

    return _search(len(scores), ndcg)


def _search(n_models: int, objective: Callable[[Floats], float]) -> FittedWeights:
    """Return the best weights found from the best start; equal ones where nothing is better."""
    equal = np.full(n_models, 1 / n_models)
    alone = tuple(objective(vertex) for vertex in np.eye(n_models))
    start = objective(equal)
    weights, score = equal, start
    if max(alone) > score + _MIN_GAIN:
        weights, score = np.eye(n_models)[int(np.argmax(alone))], max(alone)
    for step in _WEIGHT_STEPS:
        improved = True
        while improved:
            moved = np.repeat(weights[None], n_models * (n_models - 1), axis=0)
            for row, (giver, taker) in zip(moved, permutations(range(n_models), 2)):
                amount = min(step, row[giver])
                row[giver] -= amount
                row[taker] += amount
            values = [objective(candidate) for candidate in moved]
            improved = bool(values) and max(values) > score + _MIN_GAIN
            if improved:
                weights, score = moved[int(np.argmax(values))], max(values)
    return FittedWeights(tuple(np.round(weights, 6).tolist()), score, start, alone)
