"""Which adjustment brings out key tokens best (section 4 of the paper)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from papers.keytokens.rates import decoded_texts, measure
from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.keytokens.adjustments import Adjustment, component_adjustment, mean_adjustment
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.text.inputs import check_texts

_MULTIPLES = (0.5, 0.75, 1.0, 1.25, 1.5)  # of the strength that takes the first component's mean out
_LEAST = 20  # texts to choose by; ten of each half


@dataclass(frozen=True)
class AdjustmentChoice:
    """The adjustments tried on a sample, and the best.

    Attributes:
        adjustment: the best, fitted on the whole sample.
        scores: name -> score, in the order tried; the best is the first of the highest.
        best: its name.
    """

    adjustment: Adjustment
    scores: dict[str, float]
    best: str


def choose_adjustment(
    model: KeyTokenEmbedder, texts: Iterable[str], *, show_progress_bar: bool = False
) -> AdjustmentChoice:
    """Try the adjustments on a sample of texts and take the one with the highest alignment rate.

    The score is the Local Alignment Rate (paper, Eq. 7) with each token weighted by ln(texts / texts that hold it): a
    token that every text has adds nothing, so that being aligned with stop words, as plain embeddings are, scores low,
    and no list of stop words is needed. It is measured on each half of the sample with the adjustment fitted on the
    other half, and averaged. Tried are none, the mean, and the first component with 0.5 to 1.5 times the strength
    that takes its mean out.

    Args:
        model: whose adjustment is chosen; its own does not count.
        texts: at least 20 that the model reads something in, such as it will be used on.
        show_progress_bar: show a bar while they are embedded.

    Raises:
        InputError: there are fewer, or an item is no string.
    """
    sample = check_texts(texts)
    embeddings = model.embed(sample, show_progress_bar=show_progress_bar)
    known = np.flatnonzero(embeddings.any(axis=1))
    if len(known) < _LEAST:
        raise InputError(f"an adjustment is chosen by {_LEAST} texts or more, got {len(known)} that have tokens")
    halves = (known[::2], known[1::2])
    names = ["none", "mean", *(f"component x {multiple:g}" for multiple in _MULTIPLES)]
    scores = dict.fromkeys(names, 0.0)
    for fit, test in (halves, halves[::-1]):
        for name, adjustment in zip(names, _candidates(embeddings[fit]), strict=True):
            scores[name] += _weighted_rate(model, adjustment, [sample[n] for n in test], embeddings[test]) / len(halves)
    best = max(scores, key=lambda name: round(scores[name], 6))
    chosen = dict(zip(names, _candidates(embeddings), strict=True))[best]
    return AdjustmentChoice(chosen, scores, best)


def _candidates(embeddings: Vectors) -> list[Adjustment]:
    whole = component_adjustment(embeddings)
    parts = [component_adjustment(embeddings, multiple * whole.strength) for multiple in _MULTIPLES]
    return [Adjustment(), mean_adjustment(embeddings), *parts]


def _weighted_rate(model: KeyTokenEmbedder, adjustment: Adjustment, texts: list[str], embeddings: Vectors) -> float:
    """Return the weighted local alignment rate of adjusted embeddings."""
    given = decoded_texts(model.backbone, model.head, texts, adjustment.apply(embeddings))
    return measure("", given, 1, stems=None, examples=0).weighted_lar
