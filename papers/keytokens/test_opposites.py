"""Like and dislike under two tunings: what is compared, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("snowballstemmer")

import papers.keytokens.opposites as module
from papers.keytokens.opposites import AS_IS, RELATEDNESS, SIMILARITY, THINGS, figures, pair_cosines
from pellucid import KeyTokenEmbedder
from pellucid.keytokens import KeyTokenSettings
from pellucid.transformer.backbone import prepare
from tiny_models import sentence_piece, tiny_model


@pytest.fixture
def model():
    tokenizer = sentence_piece()
    backbone = prepare(tiny_model("llama", len(tokenizer)), tokenizer, attention="causal", device="cpu")
    return KeyTokenEmbedder(backbone, KeyTokenSettings(start_token=True, max_length=64, top_k=None))


def test_cosines_are_of_one_thing_liked_and_disliked_and_of_two_things_liked(model):
    opposite, other = pair_cosines(model)
    rows = model.embed([f"I like {THINGS[0]}.", f"I dislike {THINGS[0]}.", f"I like {THINGS[1]}."])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert len(opposite) == len(THINGS) == len(set(THINGS))
    assert opposite[0] == pytest.approx(unit[0] @ unit[1], abs=1e-5)
    assert other[0] == pytest.approx(unit[0] @ unit[2], abs=1e-5)


def test_a_claim_follows_from_the_interval_over_the_things(model, monkeypatch):
    models = {AS_IS: model, SIMILARITY: model, RELATEDNESS: model}
    assert dict(figures(models))["claims"].count("+0.0 (+0.0 to +0.0), undecided") == 2  # the same model: no difference
    near = iter([0.5, 0.2, 0.8])
    noise = np.random.default_rng(0).normal(0, 0.05, len(THINGS))
    monkeypatch.setattr(module, "pair_cosines", lambda _: (next(near) + noise, np.full(len(THINGS), 0.4)))
    assert dict(figures(models))["claims"].count("+60.0 (+60.0 to +60.0), undecided") == 2  # each was tuned once
