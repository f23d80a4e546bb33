"""Spelling: vectors for words outside the vocabulary, from the known words that are spelled like them."""

import copy
import pickle

import numpy as np
import pytest

import pellucid
from pellucid import StaticEmbedder
from pellucid.errors import InputError, ModelFolderError
from pellucid.static import fit_spelling
from pellucid.text import Vocabulary

STEMS = ("token", "bank", "river", "garden", "planet", "signal", "market", "window")
ENDINGS = ("", "s", "ed", "ing", "er", "less", "like")


@pytest.fixture(scope="module")
def spelled() -> StaticEmbedder:
    """Words whose vectors follow their stems, but for the held-out "tokeners" and the like."""
    rng = np.random.default_rng(0)
    stems = rng.standard_normal((len(STEMS), 16))
    words = [stem + ending for stem in STEMS for ending in ENDINGS]
    vectors = np.repeat(stems, len(ENDINGS), axis=0) + 0.3 * rng.standard_normal((len(words), 16))
    return fit_spelling(StaticEmbedder(Vocabulary(words), 5 * vectors.astype(np.float32)))


def test_a_word_gets_the_vector_of_words_spelled_like_it(spelled: StaticEmbedder) -> None:
    for stem in STEMS:
        unknown, others = spelled.encode([f"{stem}ers", *STEMS])[0], spelled.encode(list(STEMS))
        assert STEMS[int((others @ unknown).argmax())] == stem
        assert (others @ unknown).max() > 0.7


def test_known_words_keep_their_vectors(spelled: StaticEmbedder) -> None:
    plain = StaticEmbedder(spelled.vocabulary, spelled.vectors)
    texts = ["the bank, the river", "Token banking", "markets"]
    known = [
        " ".join(w.text for w in spelled.vocabulary.split(t) if spelled.vocabulary.row(w.text) >= 0) for t in texts
    ]
    assert np.array_equal(spelled.encode(known), plain.encode(known))


def test_numbers_codes_and_strangers_say_nothing(spelled: StaticEmbedder) -> None:
    for word in ("token7", "b4nk", "2024", "tok", "xyzzy", "t" * 200, "東京"):
        assert not spelled.encode([word]).any(), word


def test_a_poor_fit_weighs_less(spelled: StaticEmbedder) -> None:
    good, poor = (np.linalg.norm(spelled._speller.spell(word).vector) for word in ("tokeners", "kentosingu"))
    assert 0 < poor < good / 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_compiled_path_agrees_with_the_readable_one(spelled: StaticEmbedder, tmp_path, dtype: str) -> None:
    spelled.save_pretrained(tmp_path / "model", dtype=dtype)
    model = StaticEmbedder.from_pretrained(tmp_path / "model")
    rng = np.random.default_rng(1)
    parts = [*STEMS, *ENDINGS, "zeitung", "7", "Ö", "東京", " ", " ", ", "]
    texts = ["".join(rng.choice(parts, 12)) for _ in range(300)] + ["", "tokeners " * 600]
    plainly, bulk = model._encode_plainly(texts), model._started()
    assert np.abs(bulk.encode(texts) - plainly).max() < 1e-5
    assert np.abs(bulk.encode(texts) - plainly).max() < 1e-5  # from what it learnt
    shares = [coverage.share for coverage, _ in model._known(texts)]
    assert np.allclose(bulk.coverage(texts), shares)


def test_the_memory_for_spelled_words_is_bounded(spelled: StaticEmbedder, monkeypatch) -> None:
    from pellucid.static import bulk

    monkeypatch.setattr(bulk, "_LEARNT_WORDS", 16)
    model = copy.copy(spelled)
    model._bulk = None
    words = [f"{stem}{'abcdefgh'[n % 8]}{'xyzw'[n % 4]}{'lmnop'[n % 5]}" for n in range(40) for stem in STEMS]
    encoder = bulk.BulkEncoder(model.vocabulary, model.vectors, None, model._speller)
    for start in range(0, len(words), 10):
        block = words[start : start + 10]
        assert np.abs(encoder.encode(block) - model._encode_plainly(block)).max() < 1e-5
    assert len(encoder._idle[0]._spelled) < 26


def test_explanations_name_the_words_it_is_made_of(spelled: StaticEmbedder) -> None:
    found = spelled.explain("tokeners in the bank", "token")
    assert sum(row.contribution for row in found.rows) == pytest.approx(found.score, abs=1e-6)
    assert found.score == pytest.approx(
        float(spelled.encode("tokeners in the bank") @ spelled.encode("token")), abs=1e-5
    )
    assert found.rows[0].name.startswith("tokeners ~ token")
    coverage = found.coverage[0]
    assert (coverage.known, coverage.total, coverage.partly) == (2, 4, 1)
    spelled._started()
    assert [row.name for row in spelled.explain("tokeners in the bank", "token").rows] == [r.name for r in found.rows]


def test_copies_files_and_edits_keep_the_spelling(spelled: StaticEmbedder, tmp_path) -> None:
    texts = ["tokeners bankish", "riverine"]
    expected = spelled.encode(texts)
    spelled.save_pretrained(tmp_path / "model")
    for other in (copy.deepcopy(spelled), pickle.loads(pickle.dumps(spelled)), pellucid.load(tmp_path / "model")):
        assert np.allclose(other.encode(texts), expected, atol=1e-6)
    names = [dimension.name for dimension in spelled.dimensions]
    assert np.allclose(spelled.rename({names[0]: "first"}).encode(texts), expected, atol=1e-6)
    assert np.allclose(spelled.reweight({spelled.vocabulary.words[0]: 1}).encode(texts), expected, atol=1e-6)
    assert spelled.without([names[0]]).encode(texts).any(axis=1).all()


def test_a_broken_file_is_refused(spelled: StaticEmbedder, tmp_path) -> None:
    from pellucid.store import write_tensors

    with pytest.raises(InputError, match="n-grams"):
        StaticEmbedder(spelled.vocabulary, spelled.vectors, spelling=np.zeros(3, np.uint8))
    spelled.save_pretrained(tmp_path / "model")
    write_tensors(tmp_path / "model" / "spelling.safetensors", {"weights": np.zeros(3, np.uint8)})
    with pytest.raises(ModelFolderError):
        StaticEmbedder.from_pretrained(tmp_path / "model")


def test_a_vocabulary_without_words_of_letters_cannot_be_spelled() -> None:
    with pytest.raises(InputError, match="letters"):
        fit_spelling(StaticEmbedder(Vocabulary(["1", "2"]), np.ones((2, 3), np.float32)))


def test_utf8_texts_are_the_same(spelled: StaticEmbedder) -> None:
    texts = ["tokeners and bankish", "Märkte riverine", ""]
    data = "".join(texts).encode()
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)])
    found = spelled.encode_utf8(np.frombuffer(data, np.uint8), offsets)
    assert np.abs(found - spelled._encode_plainly(texts)).max() < 1e-5


def test_an_index_gives_the_reasons_of_spelled_words(spelled: StaticEmbedder, tmp_path) -> None:
    with pellucid.Index.create(tmp_path / "index", spelled, bm25=False) as index:
        index.add(["1", "2"], ["tokeners", "the garden"])
        hit = index.search("token", top_k=1)[0]
        assert hit.id == "1"
        assert hit.reasons.top(5)[0].name.startswith("token × tokeners ~ token")


def test_the_command_writes_a_model_with_spelling(spelled: StaticEmbedder, tmp_path) -> None:
    from typer.testing import CliRunner

    from pellucid.cli.app import app

    StaticEmbedder(spelled.vocabulary, spelled.vectors).save_pretrained(tmp_path / "plain")
    made = CliRunner().invoke(app, ["vocabulary", "spell", str(tmp_path / "plain"), "-o", str(tmp_path / "made")])
    assert made.exit_code == 0, made.output
    assert np.allclose(pellucid.load(tmp_path / "made").encode("tokeners"), spelled.encode("tokeners"), atol=1e-6)
