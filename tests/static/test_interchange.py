"""The saved folder opens in model2vec and sentence-transformers with our vectors; text vectors are read."""

import bz2
import gzip
import json
import lzma
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import pellucid
from families import reopened
from pellucid.errors import ModelFolderError
from pellucid.persistence.store import read_tensors
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import quantize
from pellucid.text.words import Vocabulary
from refusals import check_refused, refused
from tiny_models import piece_tokenizer

LOWER = ["the", "apple", "token", "café", ",", "new", "don't", "οδος", "don", "t", "2024"]
CASED = ["the", "Apple", "apple", "token", "New", "york", "."]
TEXTS = [
    "The apple, the token.",
    "THE APPLES' tokens; Tokenisers!",
    "",
    "nothing known hier",
    "Don't: CAFÉ 2024\u00a0, ΟΔΟΣ οδος",
    "New, York",
    "the " * 900 + "apple",
]
EXTRA = ["apples", "tokens", "Tokenisers", "unheard"]


def subwords():
    tokenizer = piece_tokenizer(["token", "apple", "##s", "##iser", "the", "york"], lowercase=True)
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(2)
    return tokenizer


def model(words, dimension=24):
    vectors = np.random.default_rng(5).standard_normal((len(words), dimension)).astype(np.float32)
    vectors[0] *= 40  # so that int8 has a scale for each row
    return StaticEmbedder(Vocabulary(words, subwords()), vectors)


@pytest.fixture(params=[LOWER, CASED], ids=["lower", "cased"])
def made(request):
    return model(request.param)


@pytest.fixture
def encoded_by_others():
    """What model2vec and sentence-transformers make of texts with a saved folder."""
    model2vec = pytest.importorskip("model2vec")
    sentence_transformers = pytest.importorskip("sentence_transformers")

    def encode(folder, texts):
        theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        return model2vec.StaticModel.from_pretrained(folder).encode(texts), theirs.encode(texts)

    return encode


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_other_libraries_give_our_vectors(made, dtype, tmp_path, encoded_by_others):
    made.save_pretrained(tmp_path / "m", dtype=dtype, extra_words=EXTRA)
    ours, (first, second) = pellucid.load(tmp_path / "m").encode(TEXTS), encoded_by_others(tmp_path / "m", TEXTS)
    assert not ours[2].any() and not ours[3].any() and ours[1].any()
    np.testing.assert_allclose(first, ours, atol=1e-3 if dtype == "float16" else 5e-6)  # which computes in float16 then
    np.testing.assert_allclose(second, ours, atol=5e-6)


def test_the_exported_rule_is_ours_word_for_word(made, tmp_path):
    """Each word, in the spellings of ordinary text, is sent to the row we use."""
    made.save_pretrained(tmp_path / "m", extra_words=EXTRA)
    tokenizer = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
    mapping = read_tensors(tmp_path / "m" / "model.safetensors")[0]["mapping"]
    nothing = len(made.vocabulary)
    for word in ["the", "apple", "token", "tokens", "tokenisers", "york", "new", "don", "nobody"]:
        for spelling in (word, word.capitalize(), word.upper()):
            row = made.vocabulary.row(spelling)
            if row < 0 or spelling in ("TOKENS", "TOKENISERS"):  # the teacher's pieces of these are its own affair
                continue
            assert mapping[tokenizer.encode(spelling).ids].tolist() == [row], spelling
    for mark in [",", ".", "[", "nobody"]:
        assert mapping[tokenizer.encode(mark).ids].tolist() == [nothing]


def test_the_teachers_tokenizer_is_saved_without_padding_and_truncation_and_read_at_the_first_text(tmp_path):
    opened, subwords = reopened(model(LOWER), tmp_path / "m"), tmp_path / "m" / "subwords.json"
    described = json.loads(subwords.read_text())
    assert described["padding"] is None and described["truncation"] is None
    assert opened.vocabulary.row("tokenisers") == LOWER.index("token")
    subwords.write_text("broken")
    opened = pellucid.load(tmp_path / "m")
    with pytest.raises(ModelFolderError, match=r"subwords\.json is not a tokenizer"):
        opened.encode("the apple")


def test_a_vocabulary_that_cuts_scripts_is_for_this_library_alone(tmp_path):
    words, texts = ["東京", "東京都", "に", "the", "new"], ["東京都に行く。The", "new york"]
    model(words).save_pretrained(tmp_path / "m", dtype="int8")
    assert not {"tokenizer.json", "modules.json"} & {path.name for path in (tmp_path / "m").iterdir()}
    assert "model_type" not in json.loads((tmp_path / "m" / "config.json").read_text())
    opened = pellucid.load(tmp_path / "m")
    assert opened.vocabulary.words == words
    np.testing.assert_array_equal(reopened(opened, tmp_path / "again").encode(texts), opened.encode(texts))


@pytest.mark.parametrize("more", [[], ["The"]])
def test_equivalent_texts_are_one_to_other_libraries(tmp_path, encoded_by_others, more):
    words, texts = ["caf\u00e9", "na\u0131\u0308ve", "o\ufb03ce", *more], ["café", "cafe\u0301", "office"]
    made = StaticEmbedder(Vocabulary(words), np.eye(len(words), dtype=np.float32))
    ours = reopened(made, tmp_path / "m").encode(texts)
    assert ours.argmax(axis=1).tolist() == [0, 0, 2] and ours.any(axis=1).all()
    np.testing.assert_array_equal(encoded_by_others(tmp_path / "m", texts), [ours, ours])


def test_words_and_scales_survive_saving_twice(tmp_path):
    made, everything = model(LOWER), np.arange(len(LOWER))  # punctuation and multi-word keys too
    made.save_pretrained(tmp_path / "a", dtype="int8")
    twice = reopened(pellucid.load(tmp_path / "a"), tmp_path / "b")
    np.testing.assert_allclose(twice.word_vectors(everything), made.vectors, atol=np.abs(made.vectors).max() / 250)
    twice.save_pretrained(tmp_path / "c", dtype="float32")
    np.testing.assert_array_equal(pellucid.load(tmp_path / "c").vectors, twice.word_vectors(everything))


@given(st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_int8_is_within_half_a_step_and_zero_rows_stay_zero(rows):
    block = np.array([*rows, [0, 0, 0]], np.float32)
    integers, scales = quantize(block)
    error = np.abs(integers.astype(np.float64) * scales[:, None] - block)
    assert (error <= 0.5001 * scales[:, None] + 1e-42).all()
    assert not integers[-1].any() and scales[-1] == 0


def test_odd_words_keep_their_lines(tmp_path):
    words = ["[UNK]", "a\u2028b", "a\x85b", "", " ", "\x00", "[[UNK]]"]
    made = StaticEmbedder(Vocabulary(words), np.eye(7, dtype=np.float32))
    assert reopened(made, tmp_path / "m").vocabulary.words == words


GLOVE = "the 1 2 3\napple 4 -5e-1 6\nat name@domain.com 7 8 9\n"
FORMS = {
    "glove.txt": GLOVE,
    "word2vec.txt": "3 3\n" + GLOVE,
    "fasttext.vec": "3 3\n" + GLOVE.replace("\n", " \n"),
    "dos.txt": GLOVE.replace("\n", "\r\n"),
    "tabs.txt": GLOVE.replace("the ", "the\t").replace("apple ", "apple\t"),
    "no_last_line_end.txt": GLOVE.rstrip("\n"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_text_vectors_are_read_in_every_usual_form(tmp_path, name, ending):
    path = tmp_path / (name + ending)
    {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}[ending](path, "wb").write(FORMS[name].encode())
    for opened in (pellucid.load(path), StaticEmbedder.from_pretrained(path)):
        assert opened.vocabulary.words[:2] == ["the", "apple"] and len(opened.vocabulary) == 3
        np.testing.assert_array_equal(opened.vectors, np.array([[1, 2, 3], [4, -0.5, 6], [7, 8, 9]], np.float32))


@pytest.mark.full
def test_a_text_file_of_vectors_does_not_ask_for_more_memory_than_it_holds(tmp_path):
    """One line of 65,536 numbers made room for 16,384 such; every repeated word was kept for the warning."""
    (tmp_path / "wide.txt").write_bytes(b"a" + b" 1" * 65_536)
    (tmp_path / "again.txt.gz").write_bytes(gzip.compress(b"a 1\n" * 300_000))
    tracemalloc.start()
    assert StaticEmbedder.from_pretrained(tmp_path / "wide.txt").vectors.shape == (1, 65_536)
    with pytest.warns(
        UserWarning,
        match=r"299999 lines repeat a word or .*, the first is line 2 \('a'\)",
    ):
        assert len(StaticEmbedder.from_pretrained(tmp_path / "again.txt.gz").vocabulary) == 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 25


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0", "\u3000 "])
@pytest.mark.parametrize("header", ["", "3 4\n"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_blank_word_is_left_out_and_no_number_is_taken_for_one(tmp_path, blank, header, position):
    numbers = ["0.1 0.2 0.3 0.4", "1 2 3 4", "-1e-3 5 6 7"]
    words = ["the", "cat"]
    words.insert(position, blank)
    lines = [f"{word} {row}\n" for word, row in zip(words, numbers)]
    (tmp_path / "v.txt").write_text(header + "".join(lines), encoding="utf-8")
    with pytest.warns(UserWarning, match="1 lines repeat a word or have a blank one"):
        model = StaticEmbedder.from_pretrained(tmp_path / "v.txt")
    expected = [np.array(row.split(), float) for word, row in zip(words, numbers) if word.strip()]
    assert model.vocabulary.words == ["the", "cat"]
    np.testing.assert_allclose(model.vectors, expected, rtol=1e-6)


def written(path, content):
    path.write_bytes(content)
    return path


def test_a_repeated_word_keeps_its_first_vector_and_is_reported(tmp_path):
    with pytest.warns(UserWarning, match=r"v\.txt: 1 lines repeat.*line 4 \('a'\)"):
        opened = StaticEmbedder.from_pretrained(written(tmp_path / "v.txt", b"3 1\na 1\nb 2\na 3\n"))
    assert opened.vocabulary.words == ["a", "b"] and opened.vectors.ravel().tolist() == [1, 2]


BROKEN = [
    (b"", "line 1"),
    (b"\n", "line 1"),
    (b"word\n", "line 1"),
    (b"0 3\n", "no word vectors"),
    (b"3 0\n", "line 1"),
    (b"1 99999999\n", "line 1"),
    (b"999999999999 2\na 1 2\n", "says 999999999999 words, the file holds 1"),
    (b"1 2\na 1 2\nb 3 4\n", "says 1 words, the file holds 2"),
    (b"a 1 2\nb 3\n", "line 2: expected a word and 2 finite numbers"),
    (b"a 1 2\nb 3 four\n", "line 2: expected a word and 2 finite numbers"),
    (b"a 1 2\nb 3 4 \n\nc 5 6\n", "line 3"),
    (b"a 1 2\nb nan 4\n", "line 2.*2 finite numbers"),
    (b"a 1 2\nb 3 inf\n", "line 2.*2 finite numbers"),
    (b"a 1 2\nb 3 1e39\n", "line 2.*2 finite numbers"),
    (b"a 1 2\n\xff\xfe 3 4\n", "line 2.*not UTF-8"),
    (b"2 2\nthe \x00\x01\x02\x03\x04\n", "line 2: expected a word and 2 finite numbers"),
    (b"x" * (5 << 20), "line 1"),
]
ARCHIVES = [(".gz", gzip.compress(GLOVE.encode() * 1000)), (".xz", lzma.compress(GLOVE.encode() * 1000))]


@refused(
    *((lambda tmp_path, content=content: pellucid.load(written(tmp_path / "v.txt", content)),
       rf"(?s)v\.txt.*{message}", ModelFolderError) for content, message in BROKEN),
    *((lambda tmp_path, ending=ending, content=content: StaticEmbedder.from_pretrained(
        written(tmp_path / f"v{ending}", content)), rf"v{ending}.*cannot be read after line", ModelFolderError)
      for ending, whole in ARCHIVES for content in (whole[: len(whole) // 2], b"not compressed")),
)  # fmt: skip
def test_a_broken_line_and_a_damaged_archive_are_named(call, message, error, request):
    check_refused(request, call, message, error)
