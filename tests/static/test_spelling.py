"""Spelling: vectors for words outside the vocabulary, from the known words that are spelled like them."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pellucid
from families import reopened
from pellucid import StaticEmbedder
from pellucid.errors import ModelFolderError
from pellucid.index.terms import Analyser
from pellucid.index.words import WordCache
from pellucid.persistence.store import read_tensors, write_tensors
from pellucid.static import bulk, fit_spelling
from pellucid.text.words import Vocabulary
from plain_words import plain_rows
from refusals import refused
from tiny_models import piece_tokenizer

STEMS = ("token", "bank", "river", "garden", "planet", "signal", "market", "window")
ENDINGS = ("", "s", "ed", "ing", "er", "less", "like")


@pytest.fixture(scope="module")
def spelled():
    """Words whose vectors follow their stems, but for the held-out "tokeners" and the like."""
    rng = np.random.default_rng(0)
    stems = rng.standard_normal((len(STEMS), 16))
    words = [stem + ending for stem in STEMS for ending in ENDINGS]
    vectors = np.repeat(stems, len(ENDINGS), axis=0) + 0.3 * rng.standard_normal((len(words), 16))
    return fit_spelling(StaticEmbedder(Vocabulary(words), 5 * vectors.astype(np.float32)))


def test_a_word_gets_the_vector_of_words_spelled_like_it(spelled):
    similar = spelled.encode([f"{stem}ers" for stem in STEMS]) @ spelled.encode(list(STEMS)).T
    assert similar.argmax(axis=1).tolist() == [*range(len(STEMS))] and similar.max(axis=1).min() > 0.7


def test_known_words_keep_their_vectors(spelled):
    plain = StaticEmbedder(spelled.vocabulary, spelled.vectors)
    known = ["bank river", "token banking", "markets"]
    assert set(" ".join(known).split()) <= set(spelled.vocabulary.words)
    assert np.array_equal(spelled.encode(known), plain.encode(known))


@pytest.mark.parametrize("word", ["token7", "b4nk", "2024", "tok", "xyzzy", "t" * 200, "東京"])
def test_a_stranger_is_like_itself_alone(spelled, word):
    itself, upper, other, known = spelled.encode([word, word.upper(), word[:-1] + "9", "token"])
    assert itself @ upper == pytest.approx(1, abs=1e-6)
    assert max(abs(itself @ other), abs(itself @ known)) < 0.8  # chance, in 16 dimensions
    coverage = spelled.explain(word, "token").coverage[0]
    assert (coverage.known, coverage.total) == (0, 1)


def test_strangers_are_far_from_each_other_in_many_dimensions():
    model = fit_spelling(StaticEmbedder(Vocabulary(["bank", "banks"]), np.ones((2, 256), np.float32)))
    codes = model.encode([f"A{number}" for number in range(300, 340)])
    assert np.abs(codes @ codes.T - np.eye(len(codes))).max() < 0.35


def test_a_poor_fit_weighs_less(spelled):
    poor, good = np.linalg.norm(spelled._speller.predict(["kentosingu", "tokeners"]).sums, axis=1)
    assert 0 < poor < good / 2
    poor, good = np.linalg.norm(spelled._speller.spell(["kentosingu", "tokeners"])[0], axis=1)
    assert poor < good


def test_the_beginning_makes_up_for_a_poor_fit(spelled):
    subwords = piece_tokenizer([*STEMS, *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz7")])
    words = Vocabulary(spelled.vocabulary.words, subwords)
    model, plain = (StaticEmbedder(words, spelled.vectors, spelling=of) for of in (spelled.spelling, None))
    poor, good, code = "bankvoqzuxy", "tokeners", "bank7"

    def moved(word):
        """How much nearer a word is to its beginning than without that."""
        beginning = plain.encode(word)
        return float(model.encode(word) @ beginning - spelled.encode(word) @ beginning)

    assert moved(poor) > moved(good) > -0.05 and moved(poor) > 0.1
    assert model.encode(code) @ plain.encode(code) == pytest.approx(0.7, abs=0.2)  # the rest is its own
    assert model.explain(poor, "bank").rows[0].name.startswith(f"{poor} (read as bank")
    assert model.explain(code, "bank").rows[0].name == f"{code} (read as bank) × bank"
    texts = [poor, good, code, f"{poor} {code} {good} river"]
    assert np.abs(model.encode(texts) - plain_rows(model, texts)).max() < 1e-6


def test_the_memory_for_spelled_words_is_bounded(spelled, monkeypatch):
    monkeypatch.setattr(bulk, "_LEARNT_WORDS", 16)
    words = [f"{stem}{'abcdefgh'[n % 8]}{'xyzw'[n % 4]}{'lmnop'[n % 5]}" for n in range(40) for stem in STEMS]
    encoder = bulk.BulkEncoder(spelled.vocabulary, spelled.vectors, None, spelled._speller)
    for start in range(0, len(words), 10):
        block = words[start : start + 10]
        assert np.abs(encoder.encode(block) - plain_rows(spelled, block)).max() < 1e-5
    assert len(encoder._idle[0].spelled) < 26


def test_explanations_name_the_words_it_is_made_of(spelled):
    found = spelled.explain("tokeners in the bank", "token")
    score = float(spelled.encode("tokeners in the bank") @ spelled.encode("token"))
    assert [found.score, sum(row.contribution for row in found.rows)] == pytest.approx([score] * 2, abs=1e-5)
    assert found.rows[0].name.startswith("tokeners (read as token")
    coverage = found.coverage[0]
    assert (coverage.known, coverage.total, coverage.partly, coverage.share) == (2, 4, 1, 0.375)


def opened_with(spelled, folder, **tensors):
    """A model's folder, opened with other numbers in its file of spelling."""
    spelled.save_pretrained(folder)
    path = folder / "spelling.safetensors"
    write_tensors(path, {**{name: np.array(tensor) for name, tensor in read_tensors(path)[0].items()}, **tensors})
    return StaticEmbedder.from_pretrained(folder)


test_what_cannot_be_spelled_or_is_broken_is_refused = refused(
    (lambda: fit_spelling(StaticEmbedder(Vocabulary(["1", "2"]), np.ones((2, 3), np.float32))), "letters"),
    (lambda spelled: StaticEmbedder(spelled.vocabulary, spelled.vectors, spelling=np.zeros(3, np.uint8)), "n-grams"),
    (lambda spelled, tmp_path: opened_with(spelled, tmp_path / "m", weights=np.zeros(3, np.uint8)), None,
     ModelFolderError),
)  # fmt: skip


def test_an_index_gives_the_reasons_of_spelled_words(spelled, tmp_path):
    with pellucid.Index.create(tmp_path / "index", spelled, bm25=False) as index:
        index.add(["tokeners", "the garden", "the A320 garden", "the A330 garden"], ids=["1", "2", "3", "4"])
        hit = index.search("token", top_k=1)[0]
        assert hit.id == "1" and hit.reasons.top(5)[0].name.startswith("token × tokeners (read as token")
        hit = index.search("a320 garden", top_k=4)[0]
        assert hit.id == "3" and "a320 (unknown) × A320 (unknown)" in [row.name for row in hit.reasons.top(2)]
        assert sum(row.contribution for row in hit.reasons.top(100)) == pytest.approx(hit.score, abs=1e-5)


def test_an_index_spells_the_words_of_a_query_together(spelled, monkeypatch):
    query = "tokeners the tokeners Tokeners bank A320 xyzzy Bankers garden tokeners"
    words, batches, spell = WordCache(Analyser(), {"m": spelled}), [], spelled._speller.spell
    one_by_one = [words.query_words("m", word)[0][0][1] for word in query.split()]
    rows, _ = words.query_words("m", query)  # whose words are remembered
    monkeypatch.setattr(spelled._speller, "spell", lambda chunk: batches.append(chunk) or spell(chunk))
    assert WordCache(Analyser(), {"m": spelled}).query_words("m", query)[0] == rows
    assert [status for _, status, _ in rows] == one_by_one and len(batches) == 1


_WORDS = st.sampled_from(
    [*STEMS, "tokeners", "bankvoqzuxy", "riverine", "A320", "b4nk", "kentosingu", "東京", "qwxzzyv"]
)
_FACTORS = st.dictionaries(st.integers(0, 9), st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=4)
_EDITS = st.one_of(
    st.tuples(st.just("without"), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
    st.tuples(st.just("keep"), st.lists(st.integers(0, 9), min_size=4, max_size=9, unique=True)),
    st.tuples(st.just("scale"), _FACTORS),
    st.tuples(st.just("merge"), st.lists(st.integers(0, 9), min_size=2, max_size=3, unique=True)),
    st.tuples(st.just("rename"), st.just({0: "first"})),
)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int4"])
@settings(suppress_health_check=list(HealthCheck))
@given(edits=st.lists(_EDITS, min_size=1, max_size=3), texts=st.lists(st.lists(_WORDS, max_size=4), max_size=4))
def test_edits_of_dimensions_reach_spelled_words(
    spelled,
    tmp_path_factory,
    dtype,
    edits,
    texts,
):
    texts = [*map(" ".join, texts), "tokeners", "A320", "the river A320"]
    saved = tmp_path_factory.mktemp("models")
    edited = reopened(spelled, saved / "plain", dtype=dtype)
    for kind, about in edits:
        if max(about, default=0) < edited.get_embedding_dimension() - 4:
            edited = getattr(edited, kind)(about if kind in ("scale", "rename") else list(about))
    expected = plain_rows(edited, texts)
    opened = reopened(edited, saved / "edited")
    for model in (edited, opened, copy.deepcopy(opened), pickle.loads(pickle.dumps(edited))):
        assert np.abs(model.encode(texts) - expected).max() < 2e-5
    assert opened.explain(texts[-1], texts[0]).score == pytest.approx(float(expected[-1] @ expected[0]), abs=2e-5)
    half = -(-opened.get_embedding_dimension() // 2)
    cut, kept = opened.encode(STEMS, truncate_dim=half, normalize_embeddings=True), opened.keep(list(range(half)))
    assert np.abs(cut - kept.encode(STEMS)).max() < 2e-5
