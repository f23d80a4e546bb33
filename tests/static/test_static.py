"""The static family against hand-made cases and the definition: encoding, and explanations that add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import lowercase, normalize
from pellucid.text.words import Vocabulary
from refusals import refused
from tiny_models import piece_tokenizer

WORDS = ["the", "apple", "Apple", "pear", "straße", "日本", "e\u0301cole", "naïve"]


def unit(*vector):
    return np.array(vector) / np.linalg.norm(vector)


@st.composite
def models(draw):
    """A model with random vectors for a few words, in one of the three table types."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    vectors = rng.normal(size=(len(WORDS), draw(st.integers(1, 6)))).astype(np.float32)
    kind = draw(st.sampled_from(["float32", "float16", "int8"]))
    if kind != "int8":
        return StaticEmbedder(Vocabulary(WORDS), vectors.astype(kind))
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    return StaticEmbedder(Vocabulary(WORDS), np.round(vectors / scales[:, None]).astype(np.int8), scales)


pieces = st.sampled_from([*WORDS, "THE", "PEAR", "zzz", "!", "\n", "\u200f", "שלום", "\x00", "\ud800", "a\tb"])
texts = st.lists(pieces, max_size=12).map(" ".join) | st.text(max_size=20)


def test_encode_is_the_mean_of_word_vectors_at_length_1(fruit):
    np.testing.assert_allclose(fruit.encode("apple pear"), unit(5, 1, 0), atol=1e-7)
    np.testing.assert_allclose(fruit.encode("Apple, apple; CAR!"), unit(6, 0, 2), atol=1e-7)
    assert (
        fruit.encode(["apple", "pear"]).dtype,
        fruit.encode(["apple", "pear"]).shape,
        fruit.encode("apple").shape,
    ) == (np.float32, (2, 3), (3,))


def test_pairs_of_words_by_hand(fruit):
    """Texts (5, 1, 0) and (3, 0, 2): four products over the two lengths."""
    why = fruit.explain("apple pear", "Car, apple")
    lengths = np.sqrt(26) * np.sqrt(13)
    assert {row.parts: row.contribution * lengths for row in why.rows} == pytest.approx(
        {("apple", "apple"): 9, ("pear", "apple"): 6, ("apple", "Car"): 0, ("pear", "Car"): 0}
    )
    assert [row.share for row in why.rows[:2]] == pytest.approx([9 / 15, 6 / 15])
    assert (why.rows[0].name, why.rows[0].spans1, why.rows[0].spans2) == ("apple × apple", ((0, 5),), ((5, 10),))
    assert (why.score, why.exact, why.remainder) == (pytest.approx(15 / lengths), True, pytest.approx(0, abs=1e-15))


def test_one_text_by_hand(fruit):
    """In (3, 0, 2) + (3, 0, 0) the apples pull with 2 * (3, 0, 0) . (6, 0, 2) / 40, the car with 4 / 40."""
    why = fruit.explain("apple car Apple zebra")
    assert [(row.name, row.contribution) for row in why.rows] == [
        ("apple", pytest.approx(0.9)),
        ("car", pytest.approx(0.1)),
    ]
    assert (why.rows[0].spans1, why.unknown_words(), fruit.describe("apple car Apple zebra")) == (
        ((0, 5), (10, 15)),
        ["zebra"],
        "mostly about: apple (90%), car (10%)",
    )


def test_words_that_share_a_prefix_stay_apart_and_name_it():
    subwords = piece_tokenizer(["token", "##iser", "##s", "##ing"])
    model = StaticEmbedder(Vocabulary(["token", "is"], subwords), np.eye(2, dtype=np.float32))
    why = model.explain("tokenisers tokening Token tokenisers")
    assert {row.name: (row.parts, row.contribution) for row in why.rows} == {
        "tokenisers (read as token)": (("tokenisers",), pytest.approx(0.5)),
        "tokening (read as token)": (("tokening",), pytest.approx(0.25)),
        "Token": (("Token",), pytest.approx(0.25)),
    }


def _by_letters(*prefixes):
    """A model of some words, whose tokenizer cuts what is not one of them into them and letters."""
    subwords = piece_tokenizer([*prefixes, *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789")])
    return StaticEmbedder(Vocabulary(list(prefixes), subwords), np.eye(len(prefixes), dtype=np.float32))


def test_a_word_that_is_read_as_its_beginning_counts_by_its_letters():
    """By hand: covid is co and three letters more; a capital is no other word."""
    model = _by_letters("co", "j", "chat", "mortgage", "ecole")
    for text, share, read in (
        ("covid", 2 / 5, {"covid": "co"}), ("covid covid", 2 / 5, {"covid": "co"}), ("json", 1 / 4, {"json": "j"}),
        ("chatgpt", 4 / 7, {"chatgpt": "chat"}), ("mortgages", 8 / 9, {}), ("Mortgage", 1, {}), ("", 1, {}),
        ("chat covid 東京", (1 + 2 / 5) / 3, {"covid": "co"}), ("jo jar", (1 / 2 + 1 / 3) / 2, {"jo": "j", "jar": "j"}),
    ):  # fmt: skip
        known = model.explain(text).coverage[0]
        assert (known.share, known.read_as) == (pytest.approx(share), tuple(read.items())), text
        assert model.coverage(text) == np.float32(known.share)
    why = model.explain("json and mortgages", "j")
    assert 'only partly known: "json" read as "j"\n' in str(why)  # and not the plural


@given(models(), texts, texts)
def test_exchanging_the_texts_transposes_the_rows(model, first, second):
    there = {row.parts: row.contribution for row in model.explain(first, second).rows}
    back = {row.parts[::-1]: row.contribution for row in model.explain(second, first).rows}
    assert there == pytest.approx(back, abs=1e-12)


@given(models(), texts, texts)
def test_spans_hold_the_words_and_cover_each_word_once(model, first, second):
    why = model.explain(first, second)
    for row in why.rows:
        for text, spans, word in zip(why.texts, (row.spans1, row.spans2), row.parts, strict=True):
            assert {lowercase(normalize(text[start:end]).text) for start, end in spans} == {lowercase(word)}
    places = [*why.word_contributions(1), *why.unknown1]
    assert len(places) == len(set(places)) or not why.rows
    sums = [sum(why.word_contributions(text).values()) for text in (1, 2)]
    assert sums == pytest.approx([why.score] * 2, abs=1e-9)


def test_opposite_words_cancel_to_a_score_of_0_without_shares():
    model = StaticEmbedder(Vocabulary(["up", "down", "side"]), np.array([[1, 0], [-1, 0], [0, 1]], np.float32))
    why = model.explain("up", "side up down")
    assert why.score == 0.0 and not any(row.share for row in why.rows)
    assert not model.encode("up down").any() and model.explain("up down").score == 0.0


_MANY = " ".join(f"w{number}" for number in range(600))


def _of_many():
    return StaticEmbedder(Vocabulary(_MANY.split()), np.ones((600, 1), np.float32))


test_what_cannot_be_explained_is_refused = refused(
    (lambda fruit: fruit.explain(None), "got NoneType"),
    (lambda fruit: fruit.explain("apple", 3), r"got int \(3\)"),
    (lambda: _of_many().explain(_MANY, _MANY), "600 x 600 distinct words would give more than 250,000 rows"),
    (lambda fruit: fruit.nearest_words("apple", top_k=0), "top_k is 0"),
)


def test_long_texts_are_explained(fruit):
    assert len(_of_many().explain(_MANY, "w1 w2").rows) == 1200
    why = fruit.explain("apple car pear the " * 2_500, "apple " * 10_000)
    score = fruit.similarity(fruit.encode("apple car pear the"), fruit.encode("apple"))[0, 0]
    assert (len(why.rows), why.score) == (4, pytest.approx(score))


def test_nearest_words(fruit):
    assert fruit.nearest_words("apple", top_k=2) == [("apple", pytest.approx(1)), ("pear", pytest.approx(2 / 5**0.5))]
