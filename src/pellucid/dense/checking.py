"""How far the estimated reasons of an encoder agree with measured ones on some pairs of texts.

The words of the second text of each pair are ordered by what they add to the score, once by the estimate and once
measured by leaving words out (`measured.py`).
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
from pellucid.dense.words import WordReasons
from pellucid.errors import InputError, require, shown
from pellucid.progress import Progress

_MIN_PAIRS = 5  # with an order to compare
_MIN_WORDS = 3  # of a text whose order is compared


class ReasonsCheck(NamedTuple):
    """How far estimated reasons agree with measured ones."""

    n_pairs: int  # whose words were compared; the others have fewer than three words, or no order among them
    agreement: float  # mean rank correlation (Spearman) of the words with measured values
    low: float  # of the 95 % interval of the agreement
    high: float


def check_reasons(
    model: Any, pairs: Sequence[tuple[str, str]], roles: tuple[Role, Role], show_progress_bar: bool
) -> ReasonsCheck:
    """Compare the reasons of an `EncoderEmbedder` with measured ones; see its method `check_reasons`."""
    require("scipy")
    from scipy import stats

    if not isinstance(model.reasons, WordReasons):
        raise InputError(f'{shown(model)} has no estimated words to check: model.with_reasons("words")')
    measured: MeasuredReasons = model.with_reasons(MeasuredReasons.kind).reasons
    pairs = check_pairs(pairs)
    agreements: list[float] = []
    with Progress("measuring", total=len(pairs), unit="pairs", enabled=show_progress_bar) as progress:
        for pair in pairs:
            first, second = (EncoderQuery(model, *text) for text in zip(pair, roles))
            parts = measured.parts(second.text, second.role, second.coordinates)
            true = parts.vectors @ first.centred
            estimated = _on_measured_words(second.parts, second.parts.vectors @ first.parts.vectors.sum(axis=0), parts)
            if len(true) >= _MIN_WORDS and np.ptp(true) and np.ptp(estimated):
                agreements.append(float(stats.spearmanr(estimated, true).statistic))
            progress.advance(1)
    if len(agreements) < _MIN_PAIRS:
        raise InputError(
            f"only {len(agreements)} of {len(pairs)} pairs have a second text with {_MIN_WORDS} words or more in an "
            f"order; give {_MIN_PAIRS} or more"
        )
    mean = float(np.mean(agreements))
    reach = float(stats.t.ppf(0.975, len(agreements) - 1) * stats.sem(agreements))
    return ReasonsCheck(len(agreements), mean, mean - reach, mean + reach)


def _on_measured_words(parts: Parts, values: Floats, measured: Parts) -> Floats:
    """Return the values of a text's parts added up by the words or phrases that were measured."""
    by_span = [
        (span, value / len(spans))
        for spans, value in ((parts.row(part).spans1, value) for part, value in enumerate(values.tolist()))
        for span in spans
    ]
    return np.array([
        sum(value for (start, end), value in by_span if any(a <= start and end <= b for a, b in spans))
        for spans in (measured.row(part).spans1 for part in range(len(measured.vectors)))
    ])  # fmt: skip
