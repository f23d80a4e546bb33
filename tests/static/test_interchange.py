"""Static models in folders: they open here and in other libraries with the same vectors; text vectors; four bits."""

import bz2
import gzip
import json
import lzma
import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tokenizers import Tokenizer

import pellucid
from families import reopened
from files import written
from memory import peak_of
from pellucid.core.fingerprint import fingerprint
from pellucid.errors import InputError, ModelFolderError
from pellucid.persistence.store import read_tensors, write_tensors
from pellucid.static import fit_spelling
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import PackedRows, common_scale, convert, pack, quantize, unpack
from pellucid.text.words import Vocabulary
from refusals import refused
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
    ours = reopened(made, tmp_path / "m", dtype=dtype, extra_words=EXTRA).encode(TEXTS)
    first, second = encoded_by_others(tmp_path / "m", TEXTS)
    assert not ours[2].any() and not ours[3].any() and ours[1].any()
    np.testing.assert_allclose(first, ours, atol=1e-3 if dtype == "float16" else 5e-6)  # which computes in float16 then
    np.testing.assert_allclose(second, ours, atol=5e-6)


def test_the_exported_rule_is_ours_word_for_word(made, tmp_path):
    """Each word, in the spellings of ordinary text, is sent to the row we use."""
    made.save_pretrained(tmp_path / "m", extra_words=EXTRA)
    tokenizer = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
    mapping = read_tensors(tmp_path / "m" / "model.safetensors")[0]["mapping"]
    words = "the apple token tokens tokenisers york new don nobody".split()
    spellings = {spelled for word in words for spelled in (word, word.capitalize(), word.upper())}
    spellings -= {"TOKENS", "TOKENISERS"}  # the teacher's pieces of these are its own affair
    known = [(spelled, row) for spelled in spellings if (row := made.vocabulary.row(spelled)) >= 0]
    for text, row in [*known, *((mark, len(made.vocabulary)) for mark in (",", ".", "[", "nobody"))]:
        assert mapping[tokenizer.encode(text).ids].tolist() == [row], text


@pytest.mark.usefixtures("unchecked")
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
    opened = reopened(model(words), tmp_path / "m", dtype="int8")
    assert not {"tokenizer.json", "modules.json"} & {path.name for path in (tmp_path / "m").iterdir()}
    assert "model_type" not in json.loads((tmp_path / "m" / "config.json").read_text())
    assert opened.vocabulary.words == words
    np.testing.assert_array_equal(reopened(opened, tmp_path / "again").encode(texts), opened.encode(texts))


@pytest.mark.parametrize("more", [[], ["The"]])
def test_equivalent_texts_are_one_to_other_libraries(tmp_path, encoded_by_others, more):
    words, texts = ["caf\u00e9", "na\u0131\u0308ve", "o\ufb03ce", *more], ["café", "cafe\u0301", "office"]
    made = StaticEmbedder(Vocabulary(words), np.eye(len(words), dtype=np.float32))
    ours = reopened(made, tmp_path / "m").encode(texts)
    assert ours.argmax(axis=1).tolist() == [0, 0, 2] and ours.any(axis=1).all()
    np.testing.assert_array_equal(encoded_by_others(tmp_path / "m", texts), [ours, ours])


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
    wide = written(tmp_path / "wide.txt", b"a" + b" 1" * 65_536)
    again, opened = written(tmp_path / "again.txt.gz", gzip.compress(b"a 1\n" * 300_000)), []
    assert peak_of(lambda: opened.append(StaticEmbedder.from_pretrained(wide))) < 1 << 25
    with pytest.warns(UserWarning, match=r"299999 lines repeat a word or .*, the first is line 2 \('a'\)"):
        assert peak_of(lambda: opened.append(StaticEmbedder.from_pretrained(again))) < 1 << 25
    assert opened[0].vectors.shape == (1, 65_536) and len(opened[1].vocabulary) == 1


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0", "\u3000 ", "cat"])
@pytest.mark.parametrize("header", ["", "3 4\n"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_blank_or_repeated_word_is_left_out_and_no_number_is_taken_for_one(tmp_path, blank, header, position):
    words, numbers = ["the", "cat"], ["0.1 0.2 0.3 0.4", "1 2 3 4", "-1e-3 5 6 7"]
    words.insert(position, blank)
    lines = [f"{word} {row}\n" for word, row in zip(words, numbers)]
    with pytest.warns(UserWarning, match=r"v\.txt: 1 lines repeat a word or have a blank one.*the first is line \d"):
        model = StaticEmbedder.from_pretrained(written(tmp_path / "v.txt", header + "".join(lines)))
    expected = {word: row for word, row in reversed([*zip(words, numbers)]) if word.strip()}  # of a word the first
    assert sorted(model.vocabulary.words) == ["cat", "the"]
    vectors = [[float(number) for number in expected[word].split()] for word in model.vocabulary.words]
    np.testing.assert_allclose(model.vectors, vectors, rtol=1e-6)


test_a_broken_line_and_a_damaged_archive_are_named = refused(
    *((lambda tmp_path, content=content: pellucid.load(written(tmp_path / "v.txt", content)),
       rf"(?s)v\.txt.*{message}", ModelFolderError) for content, message in [
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
       ]),
    *((lambda tmp_path, ending=ending, content=content: StaticEmbedder.from_pretrained(
        written(tmp_path / f"v{ending}", content)), rf"v{ending}.*cannot be read after line", ModelFolderError)
      for ending, compress in [(".gz", gzip.compress), (".xz", lzma.compress)]
      for content in (compress(GLOVE.encode() * 1000)[:100], b"not compressed")),
)  # fmt: skip


# --- Tables of four bits, and the numbers that a table may hold ---

FEW_WORDS = ["the", "apple", "token", "nothing", "new", "東京"]
FEW = ["The apple and the token", "new york, 東京!", "unknown", ""]


def made_of(dimension=255, words=FEW_WORDS):
    vectors = np.random.default_rng(3).standard_normal((len(words), dimension)).astype(np.float32)
    vectors[words.index("nothing")] = 0
    return StaticEmbedder(Vocabulary(words), vectors)


@pytest.fixture(params=[1, 2, 255, 256])
def saved(request, tmp_path):
    made_of(request.param).save_pretrained(tmp_path / "m", dtype="int4")
    return tmp_path / "m"


@given(arrays.arrays(np.int8, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.integers(-7, 7)))
def test_numbers_come_back_and_are_where_the_format_says(numbers):
    packed, dimension = pack(numbers), numbers.shape[1]
    assert packed.shape == (len(numbers), (dimension + 1) // 2) and packed.dtype == np.uint8
    unpacked = unpack(packed, dimension)
    assert np.array_equal(unpacked, numbers) and unpacked.dtype == np.int8 and unpacked.flags.c_contiguous
    assert pack(np.array([[-7, 7, 0]], np.int8)).tolist() == [[1 + 16 * 15, 8 + 16 * 8]]  # 8 is added to each


def largest_becomes_seven(block):
    """The plain way to four bits."""
    scales = np.abs(block).max(axis=1) / 7
    return np.rint(block / np.maximum(scales, 1e-30)[:, None]) * scales[:, None]


@given(st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=9, max_size=9), min_size=1, max_size=5))
def test_eight_bits_are_within_half_a_step_and_four_never_worse_than_the_plain_way_and_zero_rows_stay_zero(rows):
    block = np.array([*rows, [0] * 9], np.float32)
    wide, most = block.astype(np.float64), np.abs(block).max(axis=1, keepdims=True) + 1e-30
    (eight, steps), (numbers, scales) = (quantize(block, dtype) for dtype in ("int8", "int4"))
    assert not any(each[-1].any() for each in (eight, steps, numbers, scales))
    assert (np.abs(eight.astype(np.float64) * steps[:, None] - block) <= 0.5001 * steps[:, None] + 1e-42).all()
    assert np.abs(numbers).max() <= 7 and (scales >= 0).all()
    ours = np.square((numbers * scales[:, None].astype(np.float64) - wide) / most).sum(axis=1)
    plain = np.square((largest_becomes_seven(wide) - wide) / most).sum(axis=1)
    assert (ours <= plain + 1e-5).all()


def test_the_chosen_scale_loses_less_than_the_plain_way():
    block = np.random.default_rng(0).standard_normal((500, 256)).astype(np.float32)
    numbers, scales = quantize(block, "int4")
    ways = numbers * scales[:, None], largest_becomes_seven(block)
    lost, plainly = (np.square(rows - block).mean() for rows in ways)
    assert lost < 0.8 * plainly < 0.8 * 0.02


def test_what_is_opened_is_what_was_saved_in_half_a_byte_each(saved):
    opened = pellucid.load(saved)
    numbers, scales = quantize(made_of(opened.get_embedding_dimension()).vectors, "int4")
    np.testing.assert_array_equal(opened.vectors, numbers)
    np.testing.assert_array_equal(opened.scales, scales)
    assert (opened.dtype, pickle.loads(pickle.dumps(opened)).dtype, opened.vectors.dtype) == ("int4", "int4", np.int8)
    assert isinstance(opened.vectors, PackedRows)
    assert opened.vectors.nbytes == len(FEW_WORDS) * -(-numbers.shape[1] // 2)
    plain = StaticEmbedder(opened.vocabulary, numbers, scales, dimensions=opened.dimensions, dtype="int4")
    assert fingerprint(opened) == fingerprint(plain)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_wider_copy_has_the_same_embeddings_and_stays_what_it_is(saved, tmp_path, dtype):
    opened = pellucid.load(saved)
    wider = reopened(opened, tmp_path / "wider", dtype=dtype)
    np.testing.assert_array_equal(wider.encode(FEW), opened.encode(FEW))
    np.testing.assert_array_equal(wider.word_vectors(range(6)), opened.word_vectors(range(6)))  # lengths, too
    assert wider.dtype == reopened(wider, tmp_path / "again").dtype == dtype
    back = reopened(wider, tmp_path / "back", dtype="int4")
    np.testing.assert_allclose(back.encode(FEW), opened.encode(FEW), atol=1e-6)


def test_rows_of_int8_share_a_scale_where_each_has_steps_enough(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((len(FEW_WORDS), 200)).astype(np.float32)
    vectors[0] *= 20
    vectors[1] = 0
    numbers, scales = convert(vectors, None, "int8")
    assert len(set(scales.tolist())) == 1 and np.abs(numbers).max() == 127 and not numbers[1].any()
    np.testing.assert_allclose(numbers * scales[:, None], vectors, atol=scales[0] / 2 * 1.001)
    vectors[0] *= 20  # the others would have about one step
    numbers, scales = convert(vectors, None, "int8")
    assert len(set(scales.tolist())) == len(FEW_WORDS)
    assert common_scale(np.zeros(3, np.float32)) is None and common_scale(np.zeros(0, np.float32)) is None


def test_models_made_of_one_keep_four_bits_where_its_numbers_stay(tmp_path):
    opened = reopened(made_of(8), tmp_path / "m", dtype="int4")
    for model in (opened.keep(0, 1, 5), fit_spelling(opened)):
        assert model.dtype == "int4" and np.abs(np.asarray(model.vectors)).max() <= 7
        np.testing.assert_array_equal(reopened(model, tmp_path / "copy").encode(FEW), model.encode(FEW))
    assert opened.merge(0, 1).dtype == "float32"


def test_other_libraries_refuse_four_bits_and_open_the_wider_copy(tmp_path, encoded_by_others):
    opened = reopened(made_of(64, FEW_WORDS[:-1]), tmp_path / "m", dtype="int4")
    with pytest.raises(ValueError, match=r"Could not find expected model files|Unrecognized model"):
        encoded_by_others(tmp_path / "m", FEW)
    opened.save_pretrained(tmp_path / "wider", dtype="int8")
    for theirs in encoded_by_others(tmp_path / "wider", FEW[:1]):
        np.testing.assert_allclose(theirs, opened.encode(FEW[:1]), atol=5e-6)


@pytest.mark.parametrize(
    ("changes", "metadata", "message"),
    [
        ({}, {}, "the dimension is ''"),
        ({}, {"dimension": "6"}, r"the dimension is '6', expected one of \(7, 8\)"),
        ({}, {"dimension": "9"}, "the dimension is '9'"),
        ({}, {"dimension": "-8"}, "the dimension is '-8'"),
        ({}, {"dimension": "٨" * 90}, "the dimension is"),
        ({"packed": np.zeros((6, 4), np.int8)}, None, "'packed' is int8"),
        ({"packed": np.zeros(24, np.uint8)}, None, r"'packed' is uint8 \[24\]"),
        ({"packed": np.zeros((6, 0), np.uint8)}, None, "expected uint8"),
        ({"packed": np.zeros((5, 4), np.uint8)}, None, "6 words.*5 rows.*different models"),
        ({"packed": None}, None, "no table 'embeddings'"),
        ({"scales": None}, None, "without 'scales'"),
        ({"scales": np.ones(5, np.float32)}, None, r"'scales' is float32 \[5\], expected float32 \[6\]"),
        ({"scales": np.ones(6)}, None, "expected float32"),
        ({"scales": np.full(6, np.nan, np.float32)}, None, "non-finite"),
        ({"scales": np.full(6, -1, np.float32)}, None, "negative"),
        ({"scales": np.full(6, 3e38, np.float32)}, None, "such beyond"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_damaged_tensors_are_refused(tmp_path, changes, metadata, message):
    path = tmp_path / "m" / "model.safetensors"
    made_of(8).save_pretrained(path.parent, dtype="int4")
    tensors, said = read_tensors(path)
    kept = {name: np.array(tensor) for name, tensor in {**tensors, **changes}.items() if tensor is not None}
    write_tensors(path, kept, said if metadata is None else metadata)
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(tmp_path / "m")


TABLE, SCALES = np.ones((2, 2), np.int8), np.ones(2, np.float32)


test_dtypes_and_scales_that_do_not_fit_are_refused = refused(
    (lambda: StaticEmbedder(Vocabulary(["a", "b"]), TABLE.astype(np.float32), dtype="int4"),
     "a table of float32 cannot be 'int4'"),
    (lambda: StaticEmbedder(Vocabulary(["a", "b"]), TABLE, SCALES, dtype="float32"), "a table of int8 cannot be"),
    (lambda: convert(TABLE, SCALES, "int2"), "dtype is 'int2'; known are float32, float16, int8, int4"),
    *((lambda scale=scale: convert(TABLE, SCALES * np.float32(scale), "int8"), "scales are negative, not finite or bey")
      for scale in (-1.0, np.nan, np.inf, 1e29)),
    *((lambda bad=bad: convert(np.array([[1, bad]], np.float32), None, "int4"), "not finite as int4")
      for bad in (np.nan, np.inf, 3e38)),
    *((lambda scales=scales: StaticEmbedder(Vocabulary(["a", "b"]), TABLE, scales), "scales") for scales in (
        SCALES[:1], np.ones(3, np.float32), SCALES[:, None], np.ones(2))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "vectors", "scales", "dtype", "message"),
    [
        (["a"], np.float32([[70_000]]), None, "float16", "float16"),
        (["a"], np.float32([[1e31]]), None, "float32", "not finite as float32, or beyond 1e\\+30"),
        (["a"], np.float32([[70_000]]), None, "float8", r"'float8'.*float32, float16, int8, int4"),
        *((["a"], np.float32([[bad]]), None, dtype, "not finite") for bad in (np.nan, np.inf) for dtype in (
            "float32", "int8")),
        *((["a", "b"], TABLE, SCALES * np.float32(scale), None, "scales") for scale in (-1.0, np.nan, np.inf, 1e29)),
        *((["a", word], SCALES[:, None], None, None, "word") for word in ("two\nlines", "two\rlines", "lone \ud800")),
    ],
)  # fmt: skip
def test_what_no_folder_can_hold_is_refused_and_nothing_is_saved(tmp_path, words, vectors, scales, dtype, message):
    with pytest.raises(InputError, match=message):
        StaticEmbedder(Vocabulary(words), vectors, scales).save_pretrained(tmp_path / "m", dtype=dtype)
    assert list(tmp_path.iterdir()) == []


FACTORS = st.sampled_from([1e6, 3e3, 1e-6, 0.0, 0.5, 1.0])


@given(
    dtype=st.sampled_from(["float32", "float16", "int8", "int4"]),
    spells=st.booleans(),
    factors=st.lists(FACTORS, max_size=12),
)
def test_any_number_of_changes_is_refused_or_opens_with_the_same_vectors(tmp_path_factory, dtype, spells, factors):
    folder = tmp_path_factory.mktemp("models")
    model = reopened(fit_spelling(made_of(16)) if spells else made_of(16), folder / "m", dtype=dtype)
    for factor in factors:
        with suppress(InputError):
            model = model.scale({3: factor})
        rows, model = model.encode(FEW), reopened(model, folder / "m")
        assert np.abs(rows - model.encode(FEW)).max() < 1e-6 and np.isfinite(rows).all()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("size", [1e28, 5e28, 1e30])
def test_large_vectors_are_refused_or_open(tmp_path, dtype, size):
    model = StaticEmbedder(
        Vocabulary(FEW_WORDS), made_of(16).vectors / np.abs(made_of(16).vectors).max() * np.float32(size)
    )
    with suppress(InputError):
        model.save_pretrained(tmp_path / "m", dtype=dtype)
    assert not any(tmp_path.iterdir()) or pellucid.load(tmp_path / "m").encode(FEW).any()
