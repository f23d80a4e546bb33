"""Tables of four bits: what they lose, that they are saved and opened without loss, and what of them is refused."""

import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import pellucid
from families import reopened
from pellucid.core.fingerprint import fingerprint
from pellucid.errors import InputError, ModelFolderError
from pellucid.persistence.store import read_tensors, write_tensors
from pellucid.static import fit_spelling
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import PackedRows, common_scale, convert, pack, quantize, unpack
from pellucid.text.words import Vocabulary
from refusals import check_refused, refused

WORDS = ["the", "apple", "token", "nothing", "new", "東京"]
TEXTS = ["The apple and the token", "new york, 東京!", "unknown", ""]


def made(dimension=255, words=WORDS):
    vectors = np.random.default_rng(3).standard_normal((len(words), dimension)).astype(np.float32)
    vectors[words.index("nothing")] = 0
    return StaticEmbedder(Vocabulary(words), vectors)


@pytest.fixture(params=[1, 2, 255, 256])
def saved(request, tmp_path):
    made(request.param).save_pretrained(tmp_path / "m", dtype="int4")
    return tmp_path / "m"


def plainly_unpacked(packed, dimension):
    """Bytes to numbers as the format is defined, one by one."""
    halves = [[half for byte in row for half in (byte % 16, byte // 16)] for row in packed.tolist()]
    rows = [[half - 8 for half in row[:dimension]] for row in halves]
    return np.array(rows, np.int8).reshape(len(packed), dimension)


@given(arrays.arrays(np.int8, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.integers(-7, 7)))
def test_numbers_come_back_and_are_where_the_format_says(numbers):
    packed, dimension = pack(numbers), numbers.shape[1]
    assert packed.shape == (len(numbers), (dimension + 1) // 2) and packed.dtype == np.uint8
    np.testing.assert_array_equal(unpack(packed, dimension), numbers)
    np.testing.assert_array_equal(plainly_unpacked(packed, dimension), numbers)


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_any_bytes_are_unpacked_as_the_format_says(packed):
    for dimension in (2 * packed.shape[1] - 1, 2 * packed.shape[1]):
        found = unpack(packed, dimension)
        assert found.dtype == np.int8 and found.flags.c_contiguous
        np.testing.assert_array_equal(found, plainly_unpacked(packed, dimension))


def largest_becomes_seven(block):
    """The plain way to four bits."""
    scales = np.abs(block).max(axis=1) / 7
    return np.rint(block / np.maximum(scales, 1e-30)[:, None]) * scales[:, None]


@given(st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=9, max_size=9), min_size=1, max_size=5))
def test_four_bits_are_never_worse_than_the_plain_way_and_zero_rows_stay_zero(rows):
    block = np.array([*rows, [0] * 9], np.float32)
    numbers, scales = quantize(block, "int4")
    assert np.abs(numbers).max() <= 7 and (scales >= 0).all() and not numbers[-1].any() and scales[-1] == 0
    wide, most = block.astype(np.float64), np.abs(block).max(axis=1, keepdims=True) + 1e-30
    ours = np.square((numbers * scales[:, None].astype(np.float64) - wide) / most).sum(axis=1)
    plain = np.square((largest_becomes_seven(wide) - wide) / most).sum(axis=1)
    assert (ours <= plain + 1e-5).all()


def test_the_chosen_scale_loses_less_than_the_plain_way():
    block = np.random.default_rng(0).standard_normal((500, 256)).astype(np.float32)
    numbers, scales = quantize(block, "int4")
    lost, plainly = (
        np.square(found - block).mean() for found in (numbers * scales[:, None], largest_becomes_seven(block))
    )
    assert lost < 0.8 * plainly < 0.8 * 0.02


def test_what_is_opened_is_what_was_saved_and_is_saved_again_without_loss(saved):
    opened = pellucid.load(saved)
    assert (opened.dtype, opened.vectors.dtype, opened.vocabulary.words) == ("int4", np.int8, WORDS)
    numbers, scales = quantize(made(opened.get_embedding_dimension()).vectors, "int4")
    np.testing.assert_array_equal(opened.vectors, numbers)
    np.testing.assert_array_equal(opened.scales, scales)
    assert isinstance(opened.vectors, PackedRows) and opened.vectors.nbytes == len(WORDS) * -(-numbers.shape[1] // 2)
    plain = StaticEmbedder(opened.vocabulary, numbers, scales, dimensions=opened.dimensions, dtype="int4")
    assert fingerprint(opened) == fingerprint(plain)
    again = reopened(opened, saved.parent / "again")
    assert again.dtype == "int4" and pickle.loads(pickle.dumps(again)).dtype == "int4"
    for name in ("model.safetensors", "words.txt", "dimensions.tsv"):
        assert (saved / name).read_bytes() == (saved.parent / "again" / name).read_bytes()


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_wider_copy_has_the_same_embeddings_and_stays_what_it_is(saved, tmp_path, dtype):
    opened = pellucid.load(saved)
    opened.save_pretrained(tmp_path / "wider", dtype=dtype)
    wider = pellucid.load(tmp_path / "wider")
    np.testing.assert_array_equal(wider.encode(TEXTS), opened.encode(TEXTS))
    assert wider.dtype == reopened(wider, tmp_path / "again").dtype == dtype
    wider.save_pretrained(tmp_path / "back", dtype="int4")
    np.testing.assert_allclose(pellucid.load(tmp_path / "back").encode(TEXTS), opened.encode(TEXTS), atol=1e-6)


def test_rows_of_int8_share_a_scale_where_each_has_steps_enough(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((len(WORDS), 200)).astype(np.float32)
    vectors[0] *= 20
    vectors[1] = 0
    numbers, scales = convert(vectors, None, "int8")
    assert len(set(scales.tolist())) == 1 and np.abs(numbers).max() == 127 and not numbers[1].any()
    np.testing.assert_allclose(numbers * scales[:, None], vectors, atol=scales[0] / 2 * 1.001)
    vectors[0] *= 20  # the others would have about one step
    numbers, scales = convert(vectors, None, "int8")
    assert len(set(scales.tolist())) == len(WORDS)
    assert common_scale(np.zeros(3, np.float32)) is None and common_scale(np.zeros(0, np.float32)) is None


def test_models_made_of_one_keep_four_bits_where_its_numbers_stay(tmp_path):
    made(8).save_pretrained(tmp_path / "m", dtype="int4")
    opened = pellucid.load(tmp_path / "m")
    for model in (opened.keep(0, 1, 5), fit_spelling(opened)):
        assert model.dtype == "int4" and np.abs(np.asarray(model.vectors)).max() <= 7
        np.testing.assert_array_equal(reopened(model, tmp_path / "copy").encode(TEXTS), model.encode(TEXTS))
    assert opened.merge(0, 1).dtype == "float32"


def test_other_libraries_refuse_four_bits_and_open_the_wider_copy(tmp_path):
    model2vec = pytest.importorskip("model2vec")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    made(64, WORDS[:-1]).save_pretrained(tmp_path / "m", dtype="int4")
    with pytest.raises(ValueError, match="Could not find expected model files"):
        model2vec.StaticModel.from_pretrained(tmp_path / "m")
    with pytest.raises(ValueError, match="Unrecognized model"):
        sentence_transformers.SentenceTransformer(str(tmp_path / "m"))
    opened = pellucid.load(tmp_path / "m")
    opened.save_pretrained(tmp_path / "wider", dtype="int8")
    theirs = model2vec.StaticModel.from_pretrained(tmp_path / "wider").encode(TEXTS[:1])
    np.testing.assert_allclose(theirs, opened.encode(TEXTS[:1]), atol=5e-6)


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
def test_damaged_tensors_are_refused(tmp_path, changes, metadata, message):
    path = tmp_path / "m" / "model.safetensors"
    made(8).save_pretrained(path.parent, dtype="int4")
    tensors, said = read_tensors(path)
    kept = {name: np.array(tensor) for name, tensor in {**tensors, **changes}.items() if tensor is not None}
    write_tensors(path, kept, said if metadata is None else metadata)
    with pytest.raises(ModelFolderError, match=message):
        pellucid.load(tmp_path / "m")


TABLE, SCALES = np.ones((2, 2), np.int8), np.ones(2, np.float32)


@refused(
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
def test_dtypes_and_scales_that_do_not_fit_are_refused(call, message, error, request):
    check_refused(request, call, message, error)


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
    (fit_spelling(made(16)) if spells else made(16)).save_pretrained(folder / "m", dtype=dtype)
    model = pellucid.load(folder / "m")
    for factor in factors:
        with suppress(InputError):
            model = model.scale({3: factor})
        rows, model = model.encode(TEXTS), reopened(model, folder / "m")
        assert np.abs(rows - model.encode(TEXTS)).max() < 1e-6 and np.isfinite(rows).all()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("size", [1e28, 5e28, 1e30])
def test_large_vectors_are_refused_or_open(tmp_path, dtype, size):
    model = StaticEmbedder(Vocabulary(WORDS), made(16).vectors / np.abs(made(16).vectors).max() * np.float32(size))
    with suppress(InputError):
        model.save_pretrained(tmp_path / "m", dtype=dtype)
    assert not any(tmp_path.iterdir()) or pellucid.load(tmp_path / "m").encode(TEXTS).any()
