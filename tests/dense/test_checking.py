"""The check of reasons: it tells reasons that follow the encoder from others, and says so in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid
from pellucid.dense.checking import MIN_AGREEMENT, ReasonsCheck
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.words import WordReasons
from pellucid.errors import InputError
from test_words import NAMES, Shadow, sentences, table


def fitted(noise: float = 0.05) -> EncoderEmbedder:
    model = pellucid.load(Shadow(noise=noise))
    model.fit_reasons(sentences(), table=table(), show_progress_bar=False)
    return model


@pytest.fixture(scope="module")
def good() -> tuple[EncoderEmbedder, ReasonsCheck]:
    model = fitted()
    return model, model.check_reasons(sentences(60, seed=9), n=25)


def test_reasons_that_follow_the_encoder_are_to_be_shown(good: tuple[EncoderEmbedder, ReasonsCheck]) -> None:
    model, check = good
    assert check.is_to_be_shown and check.agreement.low >= MIN_AGREEMENT and "can be shown" in check.verdict
    assert check.foreign is not None and check.foreign.low < 0.25
    assert check.pairs + check.skipped == 25 and 0.5 < check.words < 1.3
    assert check.n_texts > 25 * 2
    for shown in (str(check), check.to_markdown(), check.to_html()):
        assert "can be shown on such texts" in " ".join(shown.split())
    assert check == model.check_reasons(sentences(60, seed=9), n=25)


def test_reasons_of_another_encoder_are_not_to_be_shown(good: tuple[EncoderEmbedder, ReasonsCheck]) -> None:
    model, check = good
    arrays = dict(good[0].reasons.arrays)  # type: ignore[union-attr]
    arrays["map"] = np.random.default_rng(1).permutation(arrays["map"])
    fit, fingerprint = model.reasons.fit, model.reasons.fingerprint  # type: ignore[union-attr]
    wrong = model.with_reasons(WordReasons(table(), arrays, fit, fingerprint))
    found = wrong.check_reasons(sentences(60, seed=9), n=25)
    assert not found.is_to_be_shown and found.agreement.mean < check.agreement.mean
    assert "Do not show" in found.verdict or "do not tell" in found.verdict


def test_pairs_and_negations_are_taken_as_they_are(good: tuple[EncoderEmbedder, ReasonsCheck]) -> None:
    texts = sentences(24, seed=4)
    pairs = [(one, f"{other} not {NAMES[3]}") for one, other in zip(texts[::2], texts[1::2])]
    found = good[0].check_reasons(pairs, n=8)
    assert found.pairs + found.skipped == 8 and found.negated is not None and abs(found.negated) < 0.5
    assert "fall by a negation" in str(found) and found.to_dict()["negated"] == found.negated


def test_the_card_is_saved_beside_fitted_reasons(good: tuple[EncoderEmbedder, ReasonsCheck], tmp_path) -> None:
    model, check = good
    check = model.check_reasons(sentences(60, seed=9), n=10)
    model.reasons.save_pretrained(tmp_path / "reasons")  # type: ignore[union-attr]
    assert (tmp_path / "reasons" / "check.md").read_text("utf-8") == check.to_markdown()
    assert repr(WordReasons.from_pretrained(tmp_path / "reasons", model)) == repr(model.reasons)


@pytest.mark.parametrize(
    ("given", "said"),
    [(["ba be"] * 50, "too few to find pairs"), ([("ba", "be")] * 6, "only 0 of 6 pairs"), ([], "too few"),
     ([("ba", "be", "bi")], "two texts")],
)  # fmt: skip
def test_what_cannot_be_checked_is_refused(good: tuple[EncoderEmbedder, ReasonsCheck], given: list, said: str) -> None:
    with pytest.raises(InputError, match=said):
        good[0].check_reasons(given)


def test_other_kinds_are_refused(good: tuple[EncoderEmbedder, ReasonsCheck]) -> None:
    for kind in (None, "measured"):
        with pytest.raises(InputError, match="check those of words"):
            good[0].with_reasons(kind).check_reasons(sentences(20))
    with pytest.raises(InputError, match="n is 2"):
        good[0].check_reasons(sentences(20), n=2)
