"""How far the estimated reasons of an encoder can be trusted on some pairs of texts.

The words of the second text of each pair are ordered by what they add to the score, once by the estimate and once
measured by leaving words out (`measured.py`). As a control, words of other texts are given the vectors of a pair: they
should be credited with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.analysis.comparing import check_pairs
from pellucid.core.arrays import Role
from pellucid.core.query import Floats
from pellucid.dense.measured import MeasuredReasons
from pellucid.dense.reasons import EncoderQuery, Parts
from pellucid.dense.vectors import unit_vectors
from pellucid.dense.words import WordReasons
from pellucid.errors import InputError, require, shown
from pellucid.progress import Progress
from pellucid.text.words import Span

_MIN_PAIRS = 5  # with an order to compare
_MIN_WORDS = 3  # of a text whose order is compared
_PAIRS_TOGETHER = 8  # that are measured in one call
_EPS = 1e-9


class ReasonsCheck(NamedTuple):
    """How far estimated reasons agree with measured ones."""

    n_pairs: int  # whose words were compared; the others have fewer than three words, or no order among them
    n_texts: int  # that the encoder read
    agreement: float  # mean rank correlation (Spearman) of the words with measured values
    low: float  # of the 95 % interval of the agreement
    high: float
    words: float  # what words add over the score less what all texts have in common
    context: float  # mean size of the context over the same
    foreign: float  # what words of other texts are credited with over what the texts' words are; right is 0


def check_reasons(
    model: Any, pairs: Sequence[tuple[str, str]], roles: tuple[Role, Role], show_progress_bar: bool
) -> ReasonsCheck:
    """Compare the reasons of an `EncoderEmbedder` with measured ones; see its method `check_reasons`."""
    require("scipy")
    from scipy import stats

    reasons = model.reasons
    if not isinstance(reasons, WordReasons):
        raise InputError(f'{shown(model)} has no estimated words to check: model.with_reasons("words")')
    pairs = check_pairs(pairs)
    vectors = [
        unit_vectors(model, [pair[side] for pair in pairs], role=roles[side]).astype(np.float64) for side in (0, 1)
    ]

    def parts_of(texts_of: int, vectors_of: int) -> list[Parts]:
        """Return the parts of the vectors of one pair by the words of another."""
        sides = zip(pairs[texts_of], roles, (vectors[0][vectors_of], vectors[1][vectors_of]))
        return [EncoderQuery(model, *side).parts for side in sides]

    parts = [parts_of(n, n) for n in range(len(pairs))]
    measured, n_measured = _measure(model, [second for _, second in pairs], roles[1], vectors[1], show_progress_bar)
    agreements: list[float] = []
    for (first, second), measured_parts, vector in zip(parts, measured, vectors[0]):
        true = measured_parts.vectors @ (vector - reasons.common)
        estimated = _on_measured_words(second, second.vectors @ first.vectors.sum(axis=0), measured_parts)
        if len(true) >= _MIN_WORDS and np.ptp(true) and np.ptp(estimated):
            agreements.append(float(stats.spearmanr(estimated, true).statistic))
    if len(agreements) < _MIN_PAIRS:
        raise InputError(
            f"only {len(agreements)} of {len(pairs)} pairs have a second text with {_MIN_WORDS} words or more in an "
            f"order; give {_MIN_PAIRS} or more"
        )
    specific: Floats = np.einsum("pd,pd->p", *map(reasons.centred, vectors))
    of_words, foreign = np.array([_product(*pair) for pair in parts]), 0.0
    if len(pairs) > 1:
        n, shift = len(pairs), len(pairs) // 2
        foreign = float(np.mean([_product(*parts_of((i + shift) % n, i)) for i in range(n)]))
    mean, error = float(np.mean(agreements)), float(stats.sem(agreements))
    reach = float(stats.t.ppf(0.975, len(agreements) - 1)) * error
    size = max(abs(float(specific.mean())), _EPS)
    return ReasonsCheck(
        len(agreements), 2 * len(pairs) + n_measured, mean, mean - reach, mean + reach, float(of_words.mean()) / size,
        float(np.abs(specific - of_words).mean()) / size, foreign / max(abs(float(of_words.mean())), _EPS),
    )  # fmt: skip


def _measure(
    model: Any, texts: Sequence[str], role: Role, vectors: Floats, show_progress_bar: bool
) -> tuple[list[Parts], int]:
    """Return the measured parts of texts, and how many texts were encoded for them."""
    measured: MeasuredReasons = model.with_reasons(MeasuredReasons.kind).reasons
    parts: list[Parts] = []
    with Progress("measuring", total=len(texts), unit="pairs", enabled=show_progress_bar) as progress:
        for start in range(0, len(texts), _PAIRS_TOGETHER):
            block = slice(start, start + _PAIRS_TOGETHER)
            parts += measured.measure([(text, role, vector) for text, vector in zip(texts[block], vectors[block])])
            progress.advance(len(texts[block]))
    return parts, sum(text_parts.n_texts for text_parts in parts)


def _on_measured_words(parts: Parts, values: Floats, measured: Parts) -> Floats:
    """Return the values of a text's parts added up by the words or phrases that were measured."""
    by_span: dict[Span, float] = {}
    for part, value in enumerate(values.tolist()):
        spans = parts.row(part).spans1
        by_span.update((span, by_span.get(span, 0.0) + value / len(spans)) for span in spans)
    return np.array([
        sum(value for (start, end), value in by_span.items() if any(a <= start and end <= b for a, b in spans))
        for spans in (measured.row(part).spans1 for part in range(len(measured.vectors)))
    ])  # fmt: skip


def _product(first: Parts, second: Parts) -> float:
    """Return what the words of two texts add to their score."""
    return float(first.vectors.sum(axis=0) @ second.vectors.sum(axis=0))
