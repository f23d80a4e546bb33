"""Finding translations: hand-made embeddings with known neighbours, and MTEB's own numbers."""

from __future__ import annotations

import numpy as np
import pytest

from papers.swe.bitext import MinedPairs, f1_in_all, mine_pairs, mining_f1, translation_scores
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

WORDS = {"cat": (1, 0, 0), "dog": (0, 1, 0), "cow": (0, 0, 1), "katze": (0.9, 0.1, 0), "hund": (0.1, 0.8, 0.1)}
MODEL = StaticEmbedder(Vocabulary(list(WORDS)), np.array(list(WORDS.values()), np.float32))


def test_scores_of_a_hand_made_case():
    assert translation_scores(MODEL, ["cat", "dog"], ["katze", "hund"]) == (1, 1, 1, 1)
    scores = translation_scores(MODEL, ["cat", "dog", "cow"], ["katze", "hund", "katze hund"])
    # "cow" is nearest to "hund"; backwards "katze hund" is nearest to "cat" or "dog", never to "cow"
    assert scores.accuracy == pytest.approx(2 / 3) and scores.accuracy_back == pytest.approx(2 / 3)
    assert scores.f1 == pytest.approx((1 + 2 / 3 + 0) / 3)  # found 0, 1, 1: F1 of number 1 is 2/3, of number 2 is 0


@pytest.mark.full
def test_f1_is_that_of_mteb():
    from mteb.tasks.bitext_mining.multilingual.tatoeba_bitext_mining import TatoebaBitextMining

    generator = np.random.default_rng(0)
    gold = list(range(50))
    found = np.where(generator.random(50) < 0.6, gold, generator.integers(0, 50, 50)).tolist()
    theirs = TatoebaBitextMining()._compute_metrics(
        [{"corpus_id": n, "score": 1.0} for n in found], [(n, n) for n in gold]
    )
    vectors = np.eye(50, dtype=np.float32)
    model = StaticEmbedder(
        Vocabulary([*(f"a{n}" for n in gold), *(f"b{n}" for n in gold)]), np.vstack([vectors[found], vectors])
    )
    ours = f1_in_all(model, [f"a{n}" for n in gold], [f"b{n}" for n in gold], np.array(gold))
    assert ours == pytest.approx(theirs["f1"])


def test_mining_finds_the_translations_among_others():
    generator = np.random.default_rng(1)
    meanings = generator.normal(size=(60, 16))
    noise = 0.3 * generator.normal(size=(60, 16))
    words = [*(f"en{n}" for n in range(60)), *(f"de{n}" for n in range(60))]
    model = StaticEmbedder(Vocabulary(words), np.vstack([meanings, meanings + noise]).astype(np.float32))
    first = [f"en{n}" for n in range(40)]
    second = [f"de{n}" for n in range(59, 19, -1)]  # 20 to 39 have a translation
    gold = {(n, 59 - n) for n in range(20, 40)}
    pairs = mine_pairs(model, first, second)
    assert len(set(pairs.first.tolist())) == len(pairs.first) and len(set(pairs.second.tolist())) == len(pairs.second)
    assert np.all(np.diff(pairs.scores) <= 0)
    assert mining_f1(pairs, gold) > 0.9
    assert set(zip(pairs.first[:15].tolist(), pairs.second[:15].tolist())) <= gold


def test_mining_f1_is_that_of_the_best_threshold():
    pairs = MinedPairs(np.array([0, 1, 2]), np.array([0, 2, 3]), np.array([3, 2, 1], np.float32))
    assert mining_f1(pairs, {(0, 0), (2, 3)}) == pytest.approx(2 * 2 / (3 + 2))
    assert mining_f1(pairs, {(0, 0), (5, 5)}) == pytest.approx(2 * 1 / (1 + 2))
    assert mining_f1(pairs, {(9, 9)}) == 0


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="2 sentences have 1"):
        translation_scores(MODEL, ["cat", "dog"], ["katze"])
    with pytest.raises(InputError, match="1 sentences have 2"):
        f1_in_all(MODEL, ["cat"], ["katze", "hund"], np.array([0, 1]))
    with pytest.raises(InputError, match="no true pair"):
        mining_f1(MinedPairs(np.array([0]), np.array([0]), np.ones(1, np.float32)), [])
