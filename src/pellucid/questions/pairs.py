"""Pairs of texts: checked, and scored by a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder
from pellucid.errors import InputError

_BLOCK = 4_096  # pairs

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]


def check_pairs(pairs: Iterable[Any]) -> list[Pair]:
    """Return `pairs` as a list of pairs of strings.

    Raises:
        InputError: there is none, or an item is no pair of strings; the message gives its number.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise InputError(f"pairs must be an iterable of pairs of texts, got {pairs!r:.60}")
    checked: list[Pair] = []
    for number, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(f"pair {number} is {pair!r:.60}; every pair must be two texts")
        for text in pair:
            if not isinstance(text, str):
                raise InputError(f"pair {number} holds {text!r:.40} ({type(text).__name__}); texts are strings")
        checked.append((pair[0], pair[1]))
    if not checked:
        raise InputError("no pairs of texts are given")
    return checked


def pair_scores(model: Embedder, pairs: Sequence[Pair]) -> Floats:
    """Return the cosine of each pair of texts, float64 [pairs]; 0 where the model knows nothing of a text."""
    scores = np.empty(len(pairs))
    for start in range(0, len(pairs), _BLOCK):
        block = pairs[start : start + _BLOCK]
        firsts, seconds = (model.encode([pair[side] for pair in block]) for side in (0, 1))
        scores[start : start + len(block)] = model.similarity_pairwise(firsts, seconds)
    return scores
