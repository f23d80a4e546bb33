"""The check of reasons tells reasons that follow the encoder from others."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid
from pellucid.dense.checking import ReasonsCheck
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.words import WordReasons
from pellucid.errors import InputError
from test_words import Shadow, sentences, table

TEXTS = sentences(50, seed=9)
PAIRS = [(one, " ".join([*one.split()[1:], *other.split()[:2]])) for one, other in zip(TEXTS[::2], TEXTS[1::2])]


@pytest.fixture(scope="module")
def good() -> tuple[EncoderEmbedder, ReasonsCheck]:
    model = pellucid.load(Shadow(noise=0.05))
    model.fit_reasons(sentences(), table=table(), show_progress_bar=False)
    return model, model.check_reasons(PAIRS)


def test_reasons_that_follow_the_encoder_agree_with_measured_ones(good: tuple[EncoderEmbedder, ReasonsCheck]) -> None:
    model, check = good
    assert 0.5 < check.low < check.agreement < check.high <= 1.05
    assert check.n_pairs <= len(PAIRS) and check == model.check_reasons(PAIRS)


def test_reasons_of_another_encoder_do_not(good: tuple[EncoderEmbedder, ReasonsCheck]) -> None:
    model, check = good
    arrays = dict(model.reasons.arrays)  # type: ignore[union-attr]
    arrays["map"] = np.random.default_rng(1).permutation(arrays["map"])
    fit, fingerprint = model.reasons.fit, model.reasons.fingerprint  # type: ignore[union-attr]
    wrong = model.with_reasons(WordReasons(table(), arrays, fit, fingerprint)).check_reasons(PAIRS)
    assert wrong.agreement < check.low


@pytest.mark.parametrize(
    ("pairs", "message"), [([("ba", "be")] * 6, "only 0 of 6 pairs"), ([("ba", "be", "bi")], "two texts")]
)
def test_pairs_that_cannot_be_checked_are_refused(
    good: tuple[EncoderEmbedder, ReasonsCheck], pairs: list, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        good[0].check_reasons(pairs)


@pytest.mark.parametrize("kind", [None, "measured"])
def test_other_kinds_are_refused(good: tuple[EncoderEmbedder, ReasonsCheck], kind: str | None) -> None:
    with pytest.raises(InputError, match="no estimated words to check"):
        good[0].with_reasons(kind).check_reasons(PAIRS)
