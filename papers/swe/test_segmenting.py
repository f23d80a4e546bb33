"""Cuts of text without spaces: by hand, and what is counted of a text."""

from __future__ import annotations

import numpy as np
import pytest

from papers.swe.segmenting import Pairs, cheapest, cuts, every_known, from_the_right, hits, weights
from pellucid import StaticEmbedder
from pellucid.text.words import Vocabulary

KNOWN = {"研究", "研究生", "生命", "命", "起源", "的"}
RUN = "研究生命的起源"


def test_cuts_by_hand():
    assert from_the_right(KNOWN, RUN) == ["研究", "生命", "的", "起源"]
    assert cheapest(lambda word: 1.0, KNOWN, RUN) in (["研究", "生命", "的", "起源"], ["研究生", "命", "的", "起源"])
    assert cheapest(lambda word: 9.0 if word == "研究生" else 1.0, KNOWN, RUN) == ["研究", "生命", "的", "起源"]
    assert cheapest(lambda word: 1.0, KNOWN, "魚研究") == ["魚", "研究"]
    assert every_known(KNOWN, "研究生命") == ["研究", "研究生", "生命", "命"]


@pytest.fixture
def model():
    words = ["a", *sorted(KNOWN)]
    return StaticEmbedder(Vocabulary(words), np.eye(len(words), dtype=np.float32))


def test_the_first_cut_is_the_models_and_characters_count_besides(model):
    ways = cuts(model, [RUN, "研究"])
    counts = weights(model, [f"a {RUN}"], next(iter(ways.values())))
    assert counts.toarray() == pytest.approx(np.sign(model.encode([f"a {RUN}"])))
    more = weights(model, [RUN], next(iter(ways.values())), 0.3)
    assert more[0, model.vocabulary.row("命")] == pytest.approx(1) and more.nnz == 4  # of 研究生 no character is known
    assert weights(model, ["生命"], ways["the fewest words"], 0.3)[0, model.vocabulary.row("命")] == pytest.approx(0.3)


def test_hits_are_of_both_directions():
    english = np.eye(3, dtype=np.float32)
    pairs = Pairs(["x", "y", "z"], english, np.arange(3), 2, np.arange(0))
    rows = np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0]], np.float32)
    assert hits(pairs, rows).tolist() == [[100, 100], [0, 0]]
