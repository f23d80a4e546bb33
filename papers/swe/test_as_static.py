"""Tables of other libraries as static models: the same vectors, but for punctuation."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer

from papers.models import open_any
from papers.swe.component_tables import as_static
from pellucid import EnsembleEmbedder
from pellucid.errors import InputError
from pellucid.text.words import split_words


def test_a_model2vec_table_becomes_static_without_loss_but_for_punctuation(tmp_path):
    from model2vec import StaticModel

    pieces = ["[UNK]", "the", "app", "##le", "##les", "pear", ",", "car"]
    tokenizer = Tokenizer(WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    random = np.random.default_rng(0)
    theirs = StaticModel(
        random.normal(size=(5, 6)).astype(np.float32),
        tokenizer,
        weights=np.linspace(0.1, 1, 8),
        token_mapping=np.array([0, 1, 2, 3, 4, 2, 1, 3]),
        normalize=True,
    )
    words = ["the", "apple", "apples", "pear", "car", "unheard"]
    ours = as_static(theirs, words)
    texts = ["the apple", "apples pear pear", "car unheard the"]
    assert ours.encode(texts) == pytest.approx(theirs.encode(texts), abs=1e-6)
    assert not ours.encode("unheard").any()
    assert abs(ours.encode("pear , car") - theirs.encode("pear , car")).max() > 0.01
    with pytest.raises(InputError, match="got StaticEmbedder"):
        as_static(ours, words)
    with pytest.raises(InputError, match="at least one word"):
        as_static(theirs, [])


def test_wordllama_s_table_becomes_static_without_loss_but_for_punctuation():
    theirs = open_any("wordllama:64")
    texts = ["The bank raised the rate on home loans", "mortgages Mortgages got dearer", "a naïve tokeniser"]
    words = list(dict.fromkeys(word.text for text in texts for word in split_words(text)))
    expected = theirs.embed(texts, norm=True)
    ours = as_static(theirs, words)
    assert ours.encode(texts) == pytest.approx(expected, abs=1e-6)
    assert theirs.embed(texts, norm=True) == pytest.approx(expected)  # its tokenizer is as it was
    both = EnsembleEmbedder({"words": ours, "theirs": theirs.embed})
    rows = both.encode(texts)
    assert both.similarity(rows, rows) == pytest.approx(expected @ expected.T, abs=1e-6)
