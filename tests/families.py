"""A small model of every family."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from tiny_models import backbone_of, tiny_transformer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "bank", "loan", "river", "token", "doctor", "medicine", "man", "horse"]

TEXTS = ["The Cat sat", "river bank", "", "tokenisers and TOKENISER <query>", "the doctor, a LOAN", "a man on a horse"]

ANCHORS = ["the cat sat", "bank loan", "a mat"]

STATIC = ["static", "anchors", "ensemble"]

TRANSFORMER = ["anchors over a transformer", "ensemble with a transformer", "lexicon", "key tokens", "dense"]


def static_model() -> StaticEmbedder:
    """Words, prefixes and a table large enough that joblib puts it into a file."""
    pieces = ["[UNK]", "token", "##iser", "##s"]
    tokenizer = Tokenizer(WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 64)).astype(np.float16)
    return StaticEmbedder(Vocabulary(WORDS, lambda: tokenizer), vectors)  # a function that no pickle can hold


def first_letters(texts):
    """An encoder that is a function: counts of the first letters."""
    return np.array([[text.count(letter) + 1 for letter in "abcdefgh"] for text in texts], np.float32)


def lexicon_model():
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder

    backbone = backbone_of("mistral", "bidirectional")
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 30)).scale({0: 0.5})


def key_token_model():
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.keytokens.states import KeyTokenSettings

    return KeyTokenEmbedder(backbone_of("llama", "causal"), KeyTokenSettings(top_k=20))


def dense_model():
    from papers.lens.baselines import DenseEmbedder

    return DenseEmbedder(backbone_of("bert", "bidirectional"))


def every_model(folder):
    """Return a model of each family by name; of those that need torch only where it is."""
    found = {
        "static": static_model(),
        "anchors": AnchorEmbedder(static_model(), ANCHORS),
        "ensemble": EnsembleEmbedder([static_model(), AnchorEmbedder(first_letters, ANCHORS), first_letters]),
    }
    try:
        import sentence_transformers  # noqa: F401
    except ImportError:
        return found
    transformer = tiny_transformer(folder, normalize=True)
    return found | {
        "anchors over a transformer": AnchorEmbedder(transformer, ANCHORS),
        "ensemble with a transformer": EnsembleEmbedder([transformer, static_model()]),
        "lexicon": lexicon_model(),
        "key tokens": key_token_model(),
        "dense": dense_model(),
    }
