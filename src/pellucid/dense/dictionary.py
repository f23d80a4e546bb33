"""Sparse codes over directions, and directions learned so that few are enough for each text.

A code is found greedily, each time the direction nearest to what is left, with all weights fitted anew by least squares
and none negative: orthogonal matching pursuit. Directions are learned by turns: codes for the directions, then the
directions that fit the codes best by least squares (method of optimal directions, Engan et al. 1999). This is the
decoder of a sparse autoencoder with at most k features a text; the pursuit takes the place of its encoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.embedder import Vectors
from pellucid.core.query import Integers
from pellucid.dense.vectors import at_length_1
from pellucid.progress import Progress

CHUNK_TEXTS = 256  # whose codes are found at once
_CANDIDATES_RATIO = 3  # of directions tried to those selected, the nearest; more fit better, with stranger names
_SWEEPS = 8  # over the weights of a text, each time a direction is added
_ROUNDS = 6  # of learning; after six the variance explained rises by less than 1 point a round
_MIN_FIRING_TEXTS = 5  # of a direction; another text takes the place of a rarer one
_RIDGE = 1e-3  # of the least squares, in texts


def sparse_codes(centred: Any, directions: Vectors, most: int) -> tuple[Integers, Any]:
    """Return the indices and weights of the directions of texts, both [texts, directions tried]; 0 for those unused.

    Args:
        centred: vectors less the mean of all texts, [texts, dimension].
        directions: float32 [directions, dimension], of length 1.
        most: how many directions a text may have.
    """
    similarities = centred.astype(np.float32) @ directions.T
    n_tried = min(_CANDIDATES_RATIO * most, len(directions))
    numbers = np.argpartition(-similarities, n_tried - 1, axis=1)[:, :n_tried]
    atoms = directions[numbers].astype(centred.dtype)  # [texts, tried, dimension]
    inner, pulls = atoms @ atoms.transpose(0, 2, 1), (atoms @ centred[:, :, None])[:, :, 0]
    weights, is_open = np.zeros_like(pulls), pulls > 0
    lines = np.arange(len(centred))
    chosen = np.zeros((0, len(centred)), np.int64)
    for _ in range(min(most, n_tried)):
        left = np.where(is_open, pulls - (inner @ weights[:, :, None])[:, :, 0], 0.0)
        best = left.argmax(axis=1)  # a text for which none is left gets its first again, with the weight it has
        is_open[lines, best] = False
        chosen = np.vstack([chosen, best])
        _fit_weights(weights, inner, pulls, chosen)
    return numbers, weights


def _fit_weights(weights: Any, inner: Any, pulls: Any, chosen: Integers) -> None:
    """Fit the weights [texts, tried] of those `chosen` [steps, texts] by least squares, none negative, each in turn."""
    lines = np.arange(len(weights))
    for _ in range(_SWEEPS):
        for column in chosen:
            step = pulls[lines, column] - np.einsum("tk,tk->t", inner[lines, column], weights)
            weights[lines, column] = (weights[lines, column] + step).clip(min=0)


def code_matrix(centred: Any, directions: Vectors, most: int) -> Any:
    """Return the codes of many texts as float32 CSR [texts, directions]."""
    from scipy import sparse

    chunks = [sparse.csr_array((0, len(directions)), dtype=np.float32)]
    for start in range(0, len(centred), CHUNK_TEXTS):
        numbers, weights = sparse_codes(centred[start : start + CHUNK_TEXTS], directions, most)
        lines, columns = np.nonzero(weights)
        shape = len(weights), len(directions)
        chunks.append(sparse.csr_array((weights[lines, columns], (lines, numbers[lines, columns])), shape))
    return sparse.vstack(chunks, format="csr")


def learned_directions(centred: Vectors, count: int, most: int, seed: int, *, show: bool = False) -> Vectors:
    """Return directions float32 [count, dimension] of length 1 of which `most` fit each text best, as far as learned.

    Args:
        centred: float32 [texts, dimension], vectors less their mean; at least `count` texts.
        count: how many directions.
        most: how many a text may have.
        seed: of the texts that they begin as.
        show: show a bar once the work has lasted two seconds.
    """
    texts = np.random.default_rng(seed).permutation(len(centred))
    directions = at_length_1(centred[texts[:count]])
    with Progress("learning concepts", unit="rounds", total=_ROUNDS, enabled=show) as progress:
        for _ in range(_ROUNDS):
            codes = code_matrix(centred, directions, most)
            square = (codes.T @ codes).toarray().astype(np.float64) + _RIDGE * np.eye(count)
            fitted = np.linalg.solve(square, np.asarray(codes.T @ centred, np.float64)).astype(np.float32)
            is_rare = np.bincount(codes.indices, minlength=count) < _MIN_FIRING_TEXTS
            errors = np.square(centred - codes @ directions).sum(axis=1)
            worst = np.argsort(-errors, kind="stable")
            fitted[is_rare] = centred[worst[: int(is_rare.sum())]]
            directions = at_length_1(fitted)
            progress.advance(1)
    return directions
