"""The choice of an adjustment."""

from __future__ import annotations

import numpy as np
import pytest

from tiny_models import WORDS, sentence_piece, tiny_model

pytest.importorskip("torch")
pytest.importorskip("transformers")

from papers.keytokens.adjusting import choose_adjustment
from pellucid.errors import InputError
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.transformer.backbone import prepare

TEXTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars quickly, swift cars!"]


def embedder(**changes):
    tokenizer = sentence_piece()
    model = tiny_model("llama", len(tokenizer), **changes)
    return KeyTokenEmbedder(prepare(model, tokenizer, attention="causal", device="cpu"), KeyTokenSettings(top_k=20))


@pytest.fixture(scope="module")
def llama():
    return embedder()


def test_the_best_adjustment_is_the_one_under_which_embeddings_say_their_texts(llama):
    corpus = [f"{a} {b}" for a in WORDS for b in WORDS[:4] if a != b]
    rows, readings = llama.embed(corpus), llama.encodings(corpus)
    mean = rows.mean(axis=0)
    head = np.tile(3 * mean, (len(llama.head), 1))  # plain embeddings are aligned with tokens that no text has
    for token in {n for reading in readings for n in reading.ids}:
        head[token] = (rows - mean)[[token in reading.ids for reading in readings]].mean(axis=0)
    model = KeyTokenEmbedder(llama.backbone, llama.settings, head=head)
    choice = choose_adjustment(model, corpus)
    assert choice.scores["none"] < 0.1 and choice.scores["mean"] > 0.3
    assert choice.best == max(choice.scores, key=choice.scores.get)
    with pytest.raises(InputError, match="20 texts or more, got 3"):
        choose_adjustment(model, TEXTS)
