"""BM25: what each term of a query adds to a score.

    BM25(q, d) = sum over terms t of q of  n_t idf(t) f(t, d) (k1 + 1) / (f(t, d) + k1 (1 - b + b |d| / average))
    idf(t) = ln(1 + (N - N_t + 0.5) / (N_t + 0.5))

with n_t the times t stands in the query, f(t, d) in the passage, |d| the number of the passage's terms, N all passages
and N_t those with t. Only f and |d| are stored; the rest is computed for each query, from the documents that are there
then. A passage's half of each product (its *impact*) stays below k1 + 1, so that the highest score a query can reach is
known without looking at any passage. BM25 divided by it lies in [0, 1), unless words of the query have synonyms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

K1, B = 0.8, 0.5
"""Chosen for BM25 and static-en together, on training claims of SciFact and questions of MedQuAD and WikiQA.

A lower k1 counts a repeated word less. What other choices give is in docs/benchmarks.md.
"""


def impacts(counts: npt.NDArray[Any], length: Any, average: float) -> npt.NDArray[np.float64]:
    """Return a passage's half of BM25: `counts` are [terms] or [passages, terms], `length` one or [passages, 1]."""
    damping = K1 * (1 - B + B * length / average) if average else K1
    return np.asarray(counts * (K1 + 1) / (counts + damping), np.float64)


def query_weights(
    weights: Mapping[str, float], passages_with: Mapping[str, int], passages: int, max_score: float,
    synonyms: Mapping[str, tuple[float, Collection[str]]] = MappingProxyType({}),
) -> dict[str, float]:  # fmt: skip
    """Return the query's half of BM25 for each of its terms that a passage has; the greatest score is `max_score`.

    `weights` are how often each term stands in the query, or what it weighs there. `synonyms` are terms beside them,
    each with its weight and the terms that it stands for: it counts no more than these, and what the query could reach
    stays the same, so that no document's score falls.
    """
    # Terms that no passage has count in what the query could reach: a passage with one of five words of a query is no
    # better because the index lacks the other four.
    products = {term: weight * idf(passages, passages_with.get(term, 0)) for term, weight in weights.items()}
    highest = sum(products.values()) * (K1 + 1)
    for term, (weight, words) in synonyms.items():
        products[term] = weight * min(
            idf(passages, passages_with[term]),
            sum(weights[word] * idf(passages, passages_with[word]) for word in words),
        )
    return {term: max_score * product / highest for term, product in products.items() if passages_with.get(term)}


def idf(passages: int, passages_with: int) -> float:
    """Return the inverse document frequency of a term, never negative."""
    return math.log1p(max(passages - passages_with + 0.5, 0.5) / (passages_with + 0.5))
