"""Compiled encoding means what the readable code means on any text, and stays inside its arrays."""

import copy
import os
import pickle
import sys
from collections import Counter
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import BertPreTokenizer

from memory import peak_of
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.errors import InputError
from pellucid.lexicon.static import StaticLexiconEmbedder, WordClusters
from pellucid.native.kernels import PADDING, count_characters, distinct_values, group_words, join_strings, pair_products
from pellucid.static import bulk
from pellucid.static.bulk import BulkEncoder, WordNumbers
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import PackedRows, pack
from pellucid.static.spelling import BUCKETS
from pellucid.static.words import Groups, WordList
from pellucid.text.unicode import normalize, well_formed
from pellucid.text.words import Vocabulary, split_words
from plain_words import plain_rows
from refusals import refused
from tiny_models import piece_tokenizer

_LONG = "pneumonoultramicroscopicsilicovolcanoconiosis"
_UNCASED = [
    *["the", "a", "token", "tokeniser", "don", "t", "3", "14", "é", "école", "straße", "σίσυφος", "i̇stanbul", "привет"],
    *["東京都に行く", "𝒳", "\x01", "x\x00y", "abcdefgh", "abcdefgi", "abcdefghijklmnop", "abcdefghijklmnoq", "k", "�"],
    *[_LONG, _LONG[:-1] + "x", "b" * 17, "b" * 18, "b" * 24, "b" * 25, "b" * 300, "ﬁ", "a\u0301"],
    *["not a word", "\ud800"],
]
_CASED = [*_UNCASED, "The", "École", "éCole", "USA", "Token", "Σίσυφος", "İstanbul", _LONG.upper(), "ABCDEFGHI"]
_PIECES = ["[UNK]", "token", "##is", "##er", "##s", "a", "##b", "é", "##c", "##ole", "the", "##x", "b"]


def _tokenizer(lower=False, **settings):
    return piece_tokenizer(_PIECES, lowercase=lower or None, **settings)


def _model(words, dtype, dimension=77, *, tokenizer=None, spells=False):
    """A model of words; 77 dimensions take every width of columns that is compiled (64, 8 and 1)."""
    rng, most, shape = np.random.default_rng(len(words)), 7 if dtype == "int4" else 127, (len(words), dimension)
    parts = {"spelling": rng.integers(0, 256, BUCKETS).astype(np.uint8) if spells else None}
    if dtype in ("float32", "float16"):
        return StaticEmbedder(Vocabulary(words, tokenizer), rng.normal(size=shape).astype(dtype), **parts)
    scales = np.full(len(words), 0.0625, np.float32) if dtype == "even" else rng.uniform(0.001, 0.1, len(words))
    numbers = rng.integers(-most, most + 1, shape, dtype=np.int8)
    vectors = numbers if dtype != "int4" else PackedRows(pack(numbers), dimension)
    return StaticEmbedder(Vocabulary(words, tokenizer), vectors, scales.astype(np.float32), **parts)


def _bulk(model, threads=1):
    encoder = BulkEncoder(model.vocabulary, model.vectors, model.scales)
    encoder.threads = threads
    return encoder


_MODELS = {
    (cased, subwords, dtype): _model(
        _CASED if cased else _UNCASED, dtype, tokenizer=_tokenizer(lower=dtype == "float32") if subwords else None
    )
    for cased in (False, True)
    for subwords in (False, True)
    for dtype in ("float32", "float16", "int8", "even", "int4")
}


@cache
def _kept_bulk(key):
    return _bulk(_MODELS[key])


def _agree(model, encoder, texts):
    np.testing.assert_allclose(encoder.encode(texts), plain_rows(model, texts), atol=1e-6)


_SPACES = "".join(chr(c) for c in range(0x110000) if chr(c).isspace()) + "\u200b\u2060\ufeff\x00\x1c\x85"
_CHARACTER = st.one_of(
    st.characters(),  # any code point but surrogates
    st.characters(categories=["Cs"]),
    st.sampled_from(_SPACES),
    st.sampled_from("aAbBtTéÉΣσςßİıKﬁ\u0301😀👩🏽\u200d🚀東京ー。、“”’…–—«»¿¡"),
)
_WORD = st.one_of(
    st.sampled_from([*_CASED, "tokenisers", "TOKENISERS", "Tokeniserx", "abb", "ABB", "éco", "ÉCOLE", "thex"]),
    st.text(_CHARACTER, max_size=8),
    st.text("abAB", min_size=1, max_size=40),
)
_TEXT = st.one_of(
    st.lists(st.tuples(_WORD, st.sampled_from([" ", "", ".", "\n", "\u3000", "\x00", "-", "“"])), max_size=20).map(
        lambda pairs: "".join(word + mark for word, mark in pairs)
    ),
    st.text(_CHARACTER, max_size=150),
)


@settings(suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXT, max_size=6), room=st.integers(0, 400))
def test_strings_are_joined_as_in_python_and_stay_as_they_are(texts, room):
    texts = [text + "\xe9" * (index % 2) for index, text in enumerate(map(well_formed, texts))]
    sizes, block = [*map(sys.getsizeof, texts)], np.full(room, 7, np.uint8)
    joined = "".join(f"{text}\0" for text in texts).encode()
    count = join_strings(texts, block)
    assert count == (len(joined) if len(joined) + PADDING <= room else -1)
    if count >= 0:
        assert block.tobytes()[: count + PADDING] == joined + b"\0" * PADDING
    assert [*map(sys.getsizeof, texts)] == sizes  # Python keeps no UTF-8 beside a string
    assert count_characters(texts, 0, len(texts)) == sum(map(len, texts))


_Renamed = type("Renamed", (str,), {
    "encode": lambda *_, **__: b"\xf0\xff token", "isascii": lambda self: not str.isascii(self),
    "__len__": lambda self: 1, "__str__": lambda self: "a",
})  # fmt: skip
"""A string whose methods say what another's would."""


@pytest.mark.parametrize("n_others", [0, 1, 30])
def test_methods_that_a_subclass_of_strings_replaces_do_not_change_its_characters(n_others):
    encoder, others = _kept_bulk((True, True, "int8")), ["the token USA"] * n_others
    for text in ("École the token", "the token"):
        np.testing.assert_array_equal(encoder.encode([_Renamed(text), *others]), encoder.encode([text, *others]))


@pytest.fixture
def pa():
    return pytest.importorskip("pyarrow")


@pytest.fixture
def started():
    """A copy of a model whose compiled encoder runs."""
    model = copy.copy(_MODELS[False, True, "float32"])
    model.bulk = _kept_bulk((False, True, "float32"))
    return model


_BLOCK, _ONES = np.zeros(1000, np.uint8), np.ones(3)


test_what_is_no_text_or_beyond_given_arrays_is_refused = refused(
    (lambda: join_strings(["a", "\ud800"], _BLOCK), "surrogates not allowed", UnicodeEncodeError),
    *((lambda wrong=wrong: join_strings(["a", wrong], _BLOCK), None, TypeError) for wrong in (3, b"b", None)),
    *((lambda wrong=wrong: count_characters(["a", wrong], 0, 2), None, TypeError) for wrong in (3, b"b", None)),
    (lambda: count_characters(["a"], 0, 2), None, IndexError),
    # arrays of Arrow that hold no texts
    (lambda started, pa: started.encode(pa.array([1, 2])), "text 0 is int"),
    (lambda started, pa: started.encode(pa.array([["a"]])), "text 0 is list"),
    (lambda started, pa: started.encode(pa.array(["a", "b", None])[1:]), "text 1 is NoneType.*missing values"),
    (lambda started, pa: started.encode(pa.chunked_array([["a"], ["b", None]])), "text 2 is NoneType"),
    (lambda started, pa: started.encode(pa.nulls(2)), "text 0 is NoneType"),
    (lambda started, pa: started.encode(pa.array(["a", None]).dictionary_encode()), "text 1 is NoneType"),
    (lambda started, pa: started.encode(
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))), "text 1 is NoneType"),
    (lambda started, pa: started.encode(pa.array([b"a\xff"]).view(pa.string())), "not UTF-8"),
    (lambda started, pa: started.encode(pa.table({"text": ["a"]})), r"such as texts\['text'\]"),
    # numbers beyond the memory that is given
    *((lambda first=first: pair_products(np.ones((3, 4), np.float32), _ONES, first), None) for first in (4, -1)),
    (lambda: pair_products(np.ones((3, 4), np.float32), _ONES[:2], 1), None),
    (lambda: pair_products(np.ones((3, 4), np.float32)[:, ::2], _ONES, 1), None),
    *((lambda one=one, ends=ends: group_words(np.array(one), np.array(ends), 3), None)
      for one, ends in [([0, 3], [2]), ([-1], [1]), ([0, 1], [3]), ([0], [1, 0]), ([0], [-1])]),
    (lambda: distinct_values(np.zeros(3, np.int32)), None),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("key", list(_MODELS), ids=lambda key: f"{'un' * (not key[0])}cased-{key[1]}-{key[2]}")
@settings(suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXT, max_size=6))
def test_bulk_equals_plain_on_any_unicode(key, texts):
    _agree(_MODELS[key], _kept_bulk(key), texts)


@settings(suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXT.map(well_formed), max_size=12), first=st.integers(0, 3), data=st.data())
def test_arrays_of_arrow_give_the_rows_of_their_strings(pa, started, texts, first, data):
    array = pa.array(texts, data.draw(st.sampled_from([pa.string(), pa.large_string()])))[first:]
    assert started.encode(array[:0]).shape == (0, 77)
    wanted, half = started.encode(texts[first:]), len(array) // 2
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(started)).encode(array), wanted)
    for given_texts in (array, array.dictionary_encode(), pa.chunked_array([array[:half], array[half:]], array.type)):
        np.testing.assert_array_equal(started.encode(given_texts), wanted)
        np.testing.assert_allclose(started.encode(given_texts, normalize_embeddings=True), wanted, atol=1e-6)


@pytest.mark.parametrize("key", [(False, False, "float32"), (True, True, "int8")])
@settings(suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXT, min_size=1, max_size=30), repeats=st.integers(1, 120), threads=st.integers(1, 3))
def test_blocks_and_threads_change_nothing(key, texts, repeats, threads):
    many = _bulk(_MODELS[key], threads).encode(texts * repeats)
    np.testing.assert_array_equal(many, np.tile(_kept_bulk(key).encode(texts), (repeats, 1)))


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.full)])
def test_every_code_point_separates_or_joins_as_in_the_pre_tokenizer(step):
    points = [*range(0x3100), *range(0x3100, 0x20000, step), *range(0x20000, 0x110000, 64 * step)]
    points = [c for c in points if not 0xD800 <= c <= 0xDFFF]
    model = StaticEmbedder(Vocabulary(["a", "b"]), np.eye(2, dtype=np.float32))
    found = _bulk(model).encode([f"a{chr(c)}a b" for c in points])[:, 0] > 0  # joined, "a?a" is an unknown word
    cut = [BertPreTokenizer().pre_tokenize_str(normalize(f"a{chr(c)}a").text) for c in points]
    np.testing.assert_array_equal(found, ["a" in [word for word, _ in words] for words in cut])


@pytest.mark.parametrize("width", [1, 7, 8, 63, 64, 65, 72, 127, 128, 129, 200, 255, 256, 300, 512])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "even", "int4"])
def test_every_width(width, dtype):
    model = _model(_CASED, dtype, width, tokenizer=_tokenizer(lower=dtype == "float32"))
    _agree(model, _bulk(model), ["the token", "USA don't 3.14", "", "école", "the token " * 300] * 3)


def test_sums_of_whole_numbers_are_exact_in_any_order_and_at_their_limits():
    """16-bit sums of 256 rows of -128 end at the last number that there is; a text's words may come in any order."""
    words, rng = [f"w{i}" for i in range(40)], np.random.default_rng(0)
    vectors = rng.integers(-128, 128, (40, 128), dtype=np.int8)
    vectors[0], vectors[1] = -128, 127
    encoder = _bulk(StaticEmbedder(Vocabulary(words), vectors, np.full(40, 0.01, np.float32)))
    limits = encoder.encode(["w0 " * 256, "w1 " * 257, "w0 " * 1000 + "w1 " * 1000, "w1 " * 1000 + "w0 " * 1000])
    np.testing.assert_allclose(limits, np.array([[-1], [1], [-1], [-1]]) / np.sqrt(128, dtype=np.float32).repeat(128))
    shuffled = [" ".join(rng.permutation(np.repeat(words, 7))) for _ in range(20)]
    assert len({row.tobytes() for row in encoder.encode(shuffled)}) == 1


def test_float16_values_are_read_exactly():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    words = [f"w{i}" for i in range(len(halves))]
    pairs = np.stack([halves, np.ones_like(halves)], axis=1)  # the ratio of the two survives scaling to length 1
    embeddings = _bulk(StaticEmbedder(Vocabulary(words), pairs)).encode(words)
    np.testing.assert_allclose(embeddings[:, 0] / embeddings[:, 1], halves.astype(np.float32), rtol=1e-6)


def test_unequal_words_with_equal_keys_stay_apart(monkeypatch):
    """Where the random factors are 1, long words collide whose first and third eight letters change places."""
    monkeypatch.setattr(os, "urandom", lambda count: b"\0" * count)
    ones = [f"{'abcdefgh'[i % 8] * 8}{'x' * 8}{'ijklmnopqr'[i // 8] * 8}" for i in range(50)]
    words = [*ones, *(f"{word[16:]}{word[8:16]}{word[:8]}" for word in ones)]
    model = StaticEmbedder(Vocabulary(words), np.eye(100, dtype=np.float32))
    np.testing.assert_array_equal(_bulk(model).encode(words), np.eye(100))


@pytest.mark.full
def test_more_unknown_words_than_are_remembered(monkeypatch):
    monkeypatch.setattr(bulk, "_LEARNT_WORDS", 8)
    model = _MODELS[True, True, "float32"]
    encoder = _bulk(model)
    for start in range(0, 60, 5):  # a few new ones each call, then more in one block than fit
        _agree(model, encoder, [f"abb{i}é the" for i in range(start, start + 5)])
    _agree(model, encoder, [f"é{i} É{i} tokenisers{i}" for i in range(40)])
    _agree(model, encoder, [f"{'é' * 2000}{i} the" for i in range(20)])


def test_an_unknown_word_is_asked_for_once(monkeypatch):
    model, asked = _model(_UNCASED, "float32", tokenizer=_tokenizer(lower=True)), []
    encoder, row = _bulk(model), model.vocabulary.row
    monkeypatch.setattr(model.vocabulary, "row", lambda word: asked.append(word) or row(word))
    for _ in range(3):
        encoder.encode(["Tokenisés zzé ÉCOLE tokenisés zzé"] * 50)
    assert sorted(asked) == ["Tokenisés", "tokenisés", "zzé", "ÉCOLE"]
    monkeypatch.setattr(bulk, "_LEARNT_WORDS", 4)
    encoder.encode(["aéa aéb aéc aéd aée aéf aée zzé aéf"])  # in one text of more unknown words than are asked at once
    assert sorted(asked[4:]) == ["aéa", "aéb", "aéc", "aéd", "aée", "aéf"]


def test_python_is_asked_of_no_word_that_the_compiled_rule_can_cut(monkeypatch):
    model = _model(_CASED, "int8", tokenizer=_tokenizer())
    encoder = _bulk(model)
    texts = [" ".join(f"tokenis{ending}{i}" for ending in ("", "er", "ers", "x") for i in range(1000)), "TOKENisX abbb"]
    plain = plain_rows(model, texts)
    monkeypatch.setattr(model.vocabulary, "row", lambda word: pytest.fail(f"asked for {word!r}"))
    np.testing.assert_allclose(encoder.encode(texts), plain, atol=1e-6)


def _changed(method, *arguments, **settings):
    tokenizer = _tokenizer()
    getattr(tokenizer, method)(*arguments, **settings)
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        _changed("add_tokens", ["sers"]),
        _changed("add_tokens", ["[x]"]),
        _changed("enable_truncation", 2),
        _changed("enable_padding", length=6),
        _tokenizer(max_input_chars_per_word=9),
        _tokenizer(max_input_chars_per_word=300),
        _tokenizer(continuing_subword_prefix="s"),
        _tokenizer(continuing_subword_prefix="@@"),
    ],
)
def test_tokenizers_that_are_not_quite_berts(tokenizer):
    words = ["token", "tokenis", "tokeniser", "a", "ab", "abb", "the", "[UNK]"]
    model = StaticEmbedder(Vocabulary(words, tokenizer), np.eye(len(words), dtype=np.float32))
    texts = [
        "tokenisers",
        "tokeniserss",
        "tokenisx",
        "abbb",
        f"a{'b' * 99}",
        f"a{'b' * 100}",
        "thex",
        "Tokenisers",
        "tq",
    ]
    _agree(model, _bulk(model), texts)


@pytest.mark.parametrize("letter", ["a", pytest.param("é", marks=pytest.mark.full)])
def test_a_text_of_unknown_words_alone_needs_little_memory(letter):
    words = np.random.default_rng(0).integers(97, 123, (100_000, 9), dtype=np.uint8)
    words[:, 8] = 32
    text, encoder = words.tobytes().decode().replace("a", letter), _bulk(_MODELS[True, True, "int8"])
    # lists of all its words alone would take 40
    assert peak_of(lambda: encoder.encode([text])) < 30 * len(text)


def test_a_long_text_keeps_its_digits():
    """In float32 alone, a million equal words would stop growing the sum."""
    model = StaticEmbedder(Vocabulary(["big", "small"]), np.array([[1, 0], [0, 1e-4]], np.float32))
    text = "big " * 30_000 + "small " * 3_000_000
    total = np.array([30_000, 300])
    np.testing.assert_allclose(_bulk(model).encode([text])[0], total / np.linalg.norm(total), atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1e18, 1e30])
def test_very_small_and_very_large_vectors(size):
    model = StaticEmbedder(Vocabulary(["a", "b"]), np.array([[size, 0], [0, size]], np.float32))
    np.testing.assert_allclose(_bulk(model).encode(["a b", "b"]), [[0.5**0.5, 0.5**0.5], [0, 1]], atol=1e-6)


def test_an_error_in_one_thread_ends_the_others(monkeypatch):
    model, asked = _model(_UNCASED, "float32", tokenizer=_tokenizer(lower=True)), []
    encoder = _bulk(model, threads=2)

    def row(word):
        asked.append(word)
        if len(asked) == 1:
            raise RuntimeError("no answer")
        return -1

    monkeypatch.setattr(model.vocabulary, "row", row)
    with pytest.raises(RuntimeError, match="no answer"):
        encoder.encode([f"zzé{i}" for i in range(200_000)])
    assert len(asked) < 100_000


@pytest.mark.parametrize("value", ["3", "0", "-1", "many"])
def test_threads_come_from_the_environment(monkeypatch, value):
    monkeypatch.setenv("PELLUCID_THREADS", value)
    with nullcontext() if value == "3" else pytest.raises(InputError, match=f"PELLUCID_THREADS is '{value}'"):
        assert BulkEncoder(Vocabulary(["a"]), np.ones((1, 2), np.float32), None).threads == 3


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from([1, 7, 8, 15, 16, 77]), st.integers(0, 99))
def test_pairs_of_words_add_up_to_a_cosine(first, second, dimension, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(first + second, dimension)) * 10.0 ** rng.integers(-9, 9, (first + second, 1))
    vectors, counts = vectors.astype(np.float32), rng.integers(1, 4, first + second).astype(np.float64)
    table, lengths = pair_products(vectors, counts, first)
    parts = [vectors[part] * counts[part, None] for part in (slice(first), slice(first, None))]
    np.testing.assert_allclose(lengths, [np.linalg.norm(part.sum(axis=0)) for part in parts], rtol=1e-9)
    sizes = [length or 1.0 for length in lengths]
    np.testing.assert_allclose(table, (parts[0] / sizes[0]) @ (parts[1] / sizes[1]).T, rtol=1e-9, atol=1e-12)


@given(st.lists(st.integers(-1, 6), max_size=30))
def test_distinct_values_are_numbered_in_the_order_of_their_first_places(values):
    first, counts, which = distinct_values(np.array(values, np.int64))
    counted = Counter(value for value in values if value >= 0)
    assert [values[position] for position in first.tolist()] == list(counted)
    assert first.tolist() == [values.index(value) for value in counted] and counts.tolist() == [*counted.values()]
    assert which.tolist() == [[*counted].index(value) if value >= 0 else -1 for value in values]


@given(st.lists(st.lists(st.integers(0, 6), max_size=9), max_size=5))
def test_words_are_grouped_as_in_python(texts):
    values = np.array([value for text in texts for value in text], np.int64)
    words = WordList(values, np.zeros((len(values), 2), np.int64), np.cumsum([*map(len, texts)], dtype=np.int64))
    groups = Groups.from_words(words, 7)
    counted = [Counter(text) for text in texts]  # in the order of their first places
    assert groups.values.tolist() == [value for counts in counted for value in counts]
    assert groups.counts.tolist() == [count for counts in counted for count in counts.values()]
    assert groups.ends.tolist() == np.cumsum([len(counts) for counts in counted]).tolist()
    assert np.repeat(groups.values, groups.counts).tolist() == values[groups.order].tolist()


_CHECKED = os.environ.get("PELLUCID_CHECKED") == "1"  # under the sanitizers of tests/native
_CHANGING = "İßŉǰΐﬁﬃẞΣςĲǅÅK\u0130\u0345e\u0301가\u1100\u1161"  # in lower or upper case, folded, or composed
_LETTERS = st.one_of(
    st.sampled_from("abkno" + _CHANGING),
    st.characters(),
    st.characters(categories=["Cs"]),
    st.sampled_from("\0▁東京 #"),
)
_ODD_WORD = st.one_of(
    st.text(_LETTERS, max_size=6),
    st.builds(
        lambda stem, letter, count, end: stem + letter * count + end,
        st.sampled_from(["", "token", "bank"]), st.sampled_from(_CHANGING), st.integers(0, 110), st.text("ab"),
    ),
    st.builds(lambda letter, count: letter * count, st.sampled_from("aİß\ud800\0東"), st.integers(90, 400)),
    st.text(st.sampled_from("ab京東にไท0한"), min_size=1, max_size=9),
)  # fmt: skip
_ODD_WORDS = st.lists(_ODD_WORD, unique=True, max_size=60)
_ODD_PIECES = [*"abkno", *(f"##{letter}" for letter in "abknoİß"), "token", "bank", "##İ"]
_ODD_TEXTS = st.lists(st.lists(_ODD_WORD, max_size=12).map(" ".join), max_size=5)
_settings = settings(settings.get_profile("thorough") if _CHECKED else None, suppress_health_check=list(HealthCheck))


@_settings
@example(["\x1f\ufdfd", "\x1c\ufb01"], [], "float32", 9, False, False)  # blanks to Python alone
@given(
    _ODD_WORDS, _ODD_TEXTS, st.sampled_from(["float32", "float16", "int8"]), st.sampled_from([9, 64, 70]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_words_and_texts_mean_the_same_to_both(words, texts, dtype, dimension, spells, prefixes):
    tokenizer = piece_tokenizer(_ODD_PIECES, lowercase=False) if prefixes else None
    model = _model(words, dtype, dimension, tokenizer=tokenizer, spells=spells)
    texts = [*texts, " ".join(words[:20]), " ".join(f"{word}a" for word in words[:20])]
    for _ in range(2):  # the second time from what it learnt
        np.testing.assert_allclose(model.encode(texts), plain_rows(model, texts), atol=1e-5)


class Numbered(dict):
    """Words and their numbers, to which unknown ones are added."""

    def __missing__(self, word):
        self[word] = len(self)
        return self[word]


@_settings
@given(_ODD_WORDS, _ODD_TEXTS)
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
    model = _model([*"abcde"], "float32", 9)
    given_rows = np.array(distinct, np.int32), np.array(rows, np.int32), np.array(ends, np.int64)
    asked = np.ones((2, width), np.float32)
    fit = all(0 <= row < 5 for row in [*distinct, *rows]) and width == 9
    is_inside = fit and ends == sorted(ends) and all(0 <= end <= len(rows) for end in ends)
    with nullcontext() if is_inside else pytest.raises(InputError):
        products, _ = model.bulk.table.products(*given_rows, asked)
        np.testing.assert_allclose(products, model.vectors[given_rows[0]] @ asked.T, atol=1e-5)


def test_a_vocabulary_that_grew_is_refused():
    words = ["token", "bank"]
    model = _model(words, "float32", 9, spells=True)
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
    table = WordClusters(
        np.array(starts, np.int32), np.array(clusters, np.int16), np.full(weights, 3, np.uint8),
        np.ones(scales, np.float32),
    )  # fmt: skip
    names = Dimensions(Dimension(name) for name in "wxyz")
    fits = starts[0] == 0 and starts == sorted(starts) and starts[-1] == len(clusters) == weights
    is_whole = fits and len(starts) == 4 and scales == 3 and all(0 <= number < 4 for number in clusters)
    with nullcontext() if is_whole else pytest.raises(InputError, match=r"starts|columns|weights|scales"):
        model = StaticLexiconEmbedder(Vocabulary([*"abc"]), table, names)
        single = [model.encode(text).toarray()[0] for text in ("a b c", "c", "d")]
        assert np.array_equal(model.encode(["a b c", "c", "d"]).toarray(), single)
