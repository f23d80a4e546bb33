"""Compiled code stays inside its arrays, whatever a file or a caller holds, and says what the readable code says."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pellucid import StaticEmbedder
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.errors import InputError
from pellucid.lexicon.static import StaticLexiconEmbedder, WordClusters
from pellucid.static.bulk import WordNumbers
from pellucid.static.spelling import BUCKETS
from pellucid.text.words import Vocabulary, split_words
from plain_words import plain_rows
from tiny_models import piece_tokenizer

_CHECKED = os.environ.get("PELLUCID_CHECKED") == "1"  # under the sanitizers of tests/native
_CHANGING = "İßŉǰΐﬁﬃẞΣςĲǅÅK\u0130\u0345e\u0301가\u1100\u1161"  # in lower or upper case, folded, or composed
_LETTERS = st.one_of(
    st.sampled_from("abkno" + _CHANGING),
    st.characters(),
    st.characters(categories=["Cs"]),
    st.sampled_from("\0▁東京 #"),
)
_WORD = st.one_of(
    st.text(_LETTERS, max_size=6),
    st.builds(
        lambda stem, letter, count, end: stem + letter * count + end,
        st.sampled_from(["", "token", "bank"]), st.sampled_from(_CHANGING), st.integers(0, 110), st.text("ab"),
    ),
    st.builds(lambda letter, count: letter * count, st.sampled_from("aİß\ud800\0東"), st.integers(90, 400)),
)  # fmt: skip
_WORDS = st.lists(_WORD, unique=True, max_size=60)
_PIECES = [*"abkno", *(f"##{letter}" for letter in "abknoİß"), "token", "bank", "##İ"]
_TEXTS = st.lists(st.lists(_WORD, max_size=12).map(" ".join), max_size=5)
_settings = settings(settings.get_profile("thorough") if _CHECKED else None, suppress_health_check=list(HealthCheck))


def _model(words, dtype, dimension, spells, prefixes):
    rng = np.random.default_rng(len(words))
    vocabulary = Vocabulary(words, piece_tokenizer(_PIECES, lowercase=False) if prefixes else None)
    spelling = rng.integers(0, 256, BUCKETS).astype(np.uint8) if spells else None
    shape = len(words), dimension
    if dtype == "int8":
        scales = rng.uniform(0.001, 0.1, len(words)).astype(np.float32)
        return StaticEmbedder(vocabulary, rng.integers(-127, 128, shape, dtype=np.int8), scales, spelling=spelling)
    return StaticEmbedder(vocabulary, rng.normal(size=shape).astype(dtype), spelling=spelling)


@_settings
@example(["\x1f\ufdfd", "\x1c\ufb01"], [], "float32", 9, False, False)  # blanks to Python alone
@given(
    _WORDS, _TEXTS, st.sampled_from(["float32", "float16", "int8"]), st.sampled_from([9, 64, 70]), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_any_words_and_texts_mean_the_same_to_both(words, texts, dtype, dimension, spells, prefixes):
    model = _model(words, dtype, dimension, spells, prefixes)
    texts = [*texts, " ".join(words[:20]), " ".join(f"{word}a" for word in words[:20])]
    for _ in range(2):  # the second time from what it learnt
        np.testing.assert_allclose(model.encode(texts), plain_rows(model, texts), atol=1e-5)


class Numbered(dict):
    """Words and their numbers, to which unknown ones are added."""

    def __missing__(self, word):
        self[word] = len(self)
        return self[word]


@_settings
@given(_WORDS, _TEXTS)
def test_the_reader_of_an_index_finds_the_words(words, texts):
    numbers = Numbered({word: number for number, word in enumerate(words)})
    reader = WordNumbers(list(words), numbers.__getitem__, np.zeros(256, np.uint8))
    for _ in range(2):
        _, spans, ends, _ = reader.read(texts)
        for text, of_text in zip(texts, np.split(spans, ends), strict=False):
            clean = text.encode("utf-8", "replace").decode().replace("?", "\ufffd") if "?" not in text else text
            assert of_text.tolist() == [[word.start, word.end] for word in split_words(clean)]


@_settings
@given(
    st.lists(st.integers(-3, 8), max_size=4), st.lists(st.integers(-3, 8), max_size=6),
    st.lists(st.integers(-2, 9), max_size=4), st.sampled_from([8, 9, 64]),
)  # fmt: skip
def test_rows_outside_the_table_are_refused(distinct, rows, ends, width):
    model = _model(["a", "b", "c", "d", "e"], "float32", 9, False, None)
    given_rows = np.array(distinct, np.int32), np.array(rows, np.int32), np.array(ends, np.int64)
    asked = np.ones((2, width), np.float32)
    fit = all(0 <= row < 5 for row in [*distinct, *rows]) and width == 9
    if fit and ends == sorted(ends) and all(0 <= end <= len(rows) for end in ends):
        products, _ = model.bulk.table.products(*given_rows, asked)
        np.testing.assert_allclose(products, model.vectors[given_rows[0]] @ asked.T, atol=1e-5)
    else:
        with pytest.raises(InputError):
            model.bulk.table.products(*given_rows, asked)


def test_a_vocabulary_that_grew_is_refused():
    words = ["token", "bank"]
    model = _model(words, "float32", 9, True, None)
    words.extend(["tokens", "banks"])
    with pytest.raises(InputError, match="4 words by now"):
        model.encode("token")
    words[2:] = []
    compiled = model.bulk
    words.extend(["tokens", "banks"])
    with pytest.raises(InputError, match="grown beyond the 2 rows"):
        compiled.encode(["banking"])


_NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 6)


@_settings
@given(
    st.lists(_NUMBERS, min_size=1, max_size=6),
    st.lists(st.integers(-2, 5), max_size=6),
    st.integers(0, 6),
    st.integers(0, 4),
)
def test_a_table_of_clusters_points_inside_itself(starts, clusters, weights, scales):
    words = ["a", "b", "c"]
    table = WordClusters(
        np.array(starts, np.int32),
        np.array(clusters, np.int16),
        np.full(weights, 3, np.uint8),
        np.ones(scales, np.float32),
    )
    names = Dimensions(Dimension(name) for name in "wxyz")
    fits = starts[0] == 0 and starts == sorted(starts) and starts[-1] == len(clusters) == weights
    if not (fits and len(starts) == 4 and scales == 3 and all(0 <= number < 4 for number in clusters)):
        with pytest.raises(InputError, match=r"starts|columns|weights|scales"):
            StaticLexiconEmbedder(Vocabulary(words), table, names)
        return
    model = StaticLexiconEmbedder(Vocabulary(words), table, names)
    single = [model.encode(text).toarray()[0] for text in ("a b c", "c", "d")]
    assert np.array_equal(model.encode(["a b c", "c", "d"]).toarray(), single)
