"""The C functions: the same bits at every processor level, hostile arguments, and files and memory that change.

Nothing outside the arrays is read or written. Under the sanitizers of test_library.py a wrong access ends the process;
without them most would pass unseen, but for results that differ. What is refused is an InputError; what was changed
gives what was read, or other numbers. Run as a program, this file prints what farthest points and spelling give at the
level named by PELLUCID_NATIVE.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from itertools import cycle, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families import dense_rows, reopened, static_lexicon_model, static_model
from pellucid.anchors.sampling import farthest_points
from pellucid.errors import InputError, PellucidError
from pellucid.native.farthest import FarthestPoints
from pellucid.native.kernels import (
    PADDING,
    Pieces,
    SparseTable,
    VectorTable,
    WordIndex,
    WordReader,
    distinct_values,
    group_words,
    pair_products,
)
from pellucid.native.spelling import Spelling
from pellucid.persistence import store
from pellucid.static.bulk import BulkEncoder
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import PackedRows, pack, quantize
from pellucid.static.spelling import BUCKETS, NEIGHBOURS, Speller
from pellucid.text.words import Vocabulary, split_words
from plain_words import plain_predictions, plain_rows
from refusals import refused

LETTERS = "aabcnßüд"
HOSTILE = ["", "a", "ж", "aa", "q" * 4, "na" * 50, "a" * 100, "abcn" * 25, "ab\u0301cd", "a\ud800bc", "東京" * 30]


def rows_of(count, dimension, kind, seed=0):
    """Rows with ties, zeros, very small numbers and very different lengths."""
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    rows[::5] = rows[0]
    rows[1::7] *= 3e-7  # subnormal in float16
    rows[2::9] = 0
    rows[3::11] *= 1e3
    return rows.astype(kind)


def speller_of(dimension, kind, *, known=None, most=255):
    """A speller for known words, or made-up ones of few letters, and a table of `kind`."""
    rng = np.random.default_rng(0)
    if known is None:
        made_up = ["".join(rng.choice(list(LETTERS), rng.integers(4, 9))) for _ in range(400)]
        known = sorted({*made_up, "na" * 50, "a" * 100})
    table = rng.standard_normal((len(known), dimension)).astype(np.float32)
    table[0], scales = 0, rng.random(len(known)).astype(np.float32) if kind in ("int8", "int4") else None
    stored = {
        "int8": lambda: np.clip(table * 40, -127, 127).astype(np.int8),
        "int4": lambda: PackedRows(pack(quantize(table, "int4")[0]), dimension),
    }.get(kind, lambda: table.astype(kind))()
    return Speller(Vocabulary(known), stored, scales, rng.integers(0, most + 1, BUCKETS).astype(np.uint8))


def unknown_words(count, seed=1):
    """Words of the same letters, so that ties are common."""
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(LETTERS), rng.integers(1, 13))) for _ in range(count)]


def digests():
    """Name and hash what is computed for many sizes."""
    for kind in ("float16", "float32"):
        for count, dimension in [(1, 1), (2, 33), (15, 7), (16, 8), (17, 31), (100, 32), (300, 100), (1000, 384)]:
            rows = rows_of(count, dimension, kind, count)
            with FarthestPoints(rows.view(np.uint16) if kind == "float16" else rows, 1) as search:
                search.measure()
            found = search.inverse.tobytes() + farthest_points(rows, min(int((search.inverse > 0).sum()), 60)).tobytes()
            yield f"picks {kind} {count} x {dimension}", hashlib.sha256(found).hexdigest()
    for kind in ("float32", "float16", "int8", "int4"):
        for dimension in (1, 7, 8, 70, 256):
            found = speller_of(dimension, kind).predict([*unknown_words(60), *HOSTILE])
            yield f"near {kind} {dimension}", hashlib.sha256(found.neighbours.tobytes()).hexdigest()
            yield f"sums {kind} {dimension}", hashlib.sha256(found.shares.tobytes() + found.sums.tobytes()).hexdigest()


# --- Farthest points --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 5), (0, 0), (3, 0)])
def test_no_rows_and_no_numbers_are_no_trouble(shape):
    with FarthestPoints(np.zeros(shape, np.float32), 0) as search:
        assert search.measure() is None and search.farthest() == -1


def taken(*rows):
    with FarthestPoints(np.eye(4, dtype=np.float32), 2) as search:
        search.measure()
        for row in rows:
            search.take(row)


@pytest.fixture(scope="module")
def few():
    return speller_of(3, "float32")


def spelled(few, *, codes=np.uint32, ends=(0, 9), near=np.int32, shares=NEIGHBOURS, sums=3):
    """Predict words that are given, with memory of some types and widths; return their neighbours."""
    words = max(len(ends) - 1, 0)
    memory = np.full((words, NEIGHBOURS), -1, near), np.zeros((words, shares)), np.zeros((words, sums))
    given_codes = np.full(200, -1).astype(codes)
    Spelling(few.index, few.vectors, few.scales, 10).predict(given_codes, np.array(ends, np.int64), *memory)
    return memory[0]


# --- Spelling ---------------------------------------------------------------------------------------------------------


_ALPHABETS = st.sampled_from(["ab", LETTERS, "12", "東京都", "\U0001f600ab", "".join(map(chr, range(97, 123)))])


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int4"])
@settings(max_examples=15, deadline=None)
@given(
    alphabet=_ALPHABETS, data=st.data(), dimension=st.sampled_from([1, 7, 64, 70]), most=st.sampled_from([0, 1, 255])
)
def test_c_agrees_with_the_readable_speller_and_what_comes_before_a_word_changes_nothing(
    kind, alphabet, data, dimension, most
):
    words = st.text(alphabet, min_size=1, max_size=120)
    known = data.draw(st.none() | st.lists(words, min_size=1, max_size=60, unique=True))
    speller = speller_of(dimension, kind, known=known, most=most)
    asked = [*data.draw(st.lists(words, max_size=20)), *speller.vocabulary.words[:5], *unknown_words(20), *HOSTILE]
    found, alone = speller.predict(asked), [speller.predict([word]) for word in asked]
    plain = plain_predictions(speller, asked)
    for name, tolerance in (("neighbours", 0), ("shares", 1e-9), ("sums", 1e-6)):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=0, atol=tolerance)
        assert np.array_equal(np.concatenate([getattr(one, name) for one in alone]), getattr(found, name))
    assert speller.predict([]).neighbours.shape == (0, NEIGHBOURS)


_CHECKED = os.environ.get("PELLUCID_CHECKED") == "1"  # under the sanitizers
_settings = settings(settings.get_profile("thorough") if _CHECKED else None)
_INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 20) | st.sampled_from([-(2**31), 2**31 - 1, -1, 0])
CLASSES = np.random.default_rng(0).integers(1, 3, 0x110000).astype(np.uint8)


def _int32(numbers):
    return np.array(numbers, np.int32)


def unaligned(array):
    """The same numbers from an odd address on."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    memory[1:] = np.frombuffer(array.tobytes(), np.uint8)
    return memory[1:].view(array.dtype).reshape(array.shape)


WRONG = {
    "unaligned": unaligned,
    "the bytes reversed": lambda array: array.astype(array.dtype.newbyteorder()),
    "every other": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "backwards": lambda array: array[::-1] if len(array) > 1 else array.astype(np.complex64),
    "float64": lambda array: array.astype(np.float64),
    "objects": lambda array: array.astype(object),
    "one more": lambda array: np.concatenate([array, array[:1]]),
    "one dimension more": lambda array: array[None],
    "NaN": lambda array: np.full(array.shape, np.nan),
}


# --- Arrays of another form ---


def _table_calls():
    floats, codes = np.ones((5, 9), np.float32), np.ones((5, 9), np.int8)
    halves, scales = np.ones((5, 9), np.float16), np.ones(5, np.float32)
    packed = np.zeros((5, 5), np.uint8)
    rows, ends = np.zeros(20, np.int32), _int32([2, 5])
    spelled, out = np.ones((1, 9), np.float32), np.zeros((2, 9), np.float32)
    table = partial(VectorTable, floats, None)  # made when it is called: no library is needed to collect the tests
    distinct, ends64 = _int32([0, 1, 2, 3]), np.array([1, 3])
    return {
        "vectors": lambda wrong: VectorTable(wrong(floats), None),
        "halves": lambda wrong: VectorTable(wrong(halves), None),
        "scales": lambda wrong: VectorTable(codes, wrong(scales)),
        "packed": lambda wrong: VectorTable(PackedRows(wrong(packed), 9), scales),
        "rows": lambda wrong: table().pool(wrong(rows), ends, spelled, out),
        "ends": lambda wrong: table().pool(rows.copy(), wrong(ends), spelled, out),
        "spelled": lambda wrong: table().pool(rows.copy(), ends, wrong(spelled), out),
        "out": lambda wrong: table().pool(rows.copy(), ends, spelled, wrong(out)),
        "distinct": lambda wrong: table().products(wrong(distinct), rows, ends64, spelled),
        "words": lambda wrong: table().products(distinct, wrong(rows), ends64, spelled),
        "ends of products": lambda wrong: table().products(distinct, rows, wrong(ends64), spelled),
        "asked": lambda wrong: table().products(distinct, rows, ends64, wrong(spelled)),
    }


_LENGTH_IS_FREE = {"rows", "distinct", "words", "spelled", "asked", "vectors", "halves", "ends of products"}


def call_with(name, wrong):
    call = _table_calls()[name]
    call(lambda array: array)
    call(WRONG[wrong])


def pooled(rows, ends, out=None):
    table = VectorTable(np.ones((5, 9), np.float32), None)
    table.pool(rows, ends, np.ones((1, 9), np.float32), np.zeros((2, 9), np.float32) if out is None else out)


def found(size, block, ends=(), *, room=None, **options):
    reader = _reader([], size)
    reader._size = room or size
    reader.find(block, _int32(ends) if not isinstance(ends, np.ndarray) else ends, **options)


ZEROS, BLOCK = np.zeros(20, np.int32), np.zeros(200 + PADDING, np.uint8)
LOW, HIGH = -(2**31), 2**31 - 1
RISING = _int32([0, HIGH, LOW, -1, 3])  # each difference, in 32 bits, is above 0


test_what_does_not_fit_its_arrays_is_refused = refused(
    *((lambda name=name, wrong=wrong: call_with(name, wrong), None) for name in _table_calls() for wrong in WRONG
      if not (wrong == "one more" and name in _LENGTH_IS_FREE)
      and not (name == "packed" and wrong in ("unaligned", "the bytes reversed"))),  # which single bytes cannot be
    (lambda: pooled(np.broadcast_to(ZEROS, 20), _int32([2, 5])), "writable"),
    (lambda: pooled(ZEROS.copy(), _int32([2, 5]), np.broadcast_to(np.zeros((2, 9), np.float32), (2, 9))), "writable"),
    (lambda: found(10, BLOCK[: 10 + PADDING], np.broadcast_to(_int32([9]), 1)), "writable"),
    # a last end of zero does not hide the ends before it
    (lambda: pooled(ZEROS[:12].copy(), _int32([10**6, 0])), "do not divide"),
    (lambda: SparseTable((RISING, np.zeros(3, np.int16), np.ones(3, np.uint8), np.ones(4, np.float32)), 4),
     "do not divide"),
    (lambda: found(200, BLOCK, [5, LOW, -1, 100], joined=False), "end outside"),
    (lambda: VectorTable(np.broadcast_to(np.int8(1), (2**33, 64)), np.ones(1, np.float32)), "vectors is int8"),
    # sizes near 2^31, before memory is taken: pages that nobody touches, but for the sanitizers
    *((lambda room=room: found(64, np.zeros(2**31 + PADDING, np.uint8), room=room), "2147483648 bytes")
      for room in (64, 2**32) if not _CHECKED),
    *((lambda row=row: taken(row), "there are 4") for row in (-1, 4, 2**40)),
    (lambda: taken(0, 1, 2), "there are 2"),
    (lambda: FarthestPoints(np.eye(4, 5, dtype=np.float32).T, 2), "the C function takes"),
    (lambda few: Spelling(few.index, few.vectors.astype(np.float64), None, 10), None),
    (lambda few: Spelling(few.index, few.vectors.astype(np.int8), None, 10), None),
    (lambda few: Spelling(few.index, few.vectors[::-1], None, 10), None),
    (lambda few: Spelling(few.index, few.vectors, None, 2**22 + 1), "4,194,305 characters"),
    *((lambda few, wrong=wrong: spelled(few, **wrong), None) for wrong in (
        {"ends": []}, {"codes": np.int64}, {"near": np.int64}, {"shares": 9}, {"sums": 4})),
)  # fmt: skip


# --- Tables ---


@_settings
@given(
    st.lists(_INT32, max_size=40), st.lists(_INT32, max_size=6), st.integers(0, 3),
    st.sampled_from([0, 1, 9, 64, 65, 70, 128, 131]),
)  # fmt: skip
def test_pooling_stays_inside_for_any_rows_and_ends_and_numbers_that_change(rows, ends, more, width):
    given_rows, given_ends = _int32(rows), _int32(ends)
    spelled, out = np.ones((more, width), np.float32), np.zeros((len(ends), width), np.float32)
    fits = ends == sorted(ends) and (not ends or 0 <= ends[0]) and (ends[-1:] or [0])[0] + 12 <= len(rows)
    is_inside = fits and all(row < 5 + more for row in (rows[: ends[-1]] if ends else []))
    for kind, scales in product(("float32", "float16", "int8", "int4"), (np.ones(5), np.arange(5))):
        packed = PackedRows(np.zeros((5, -(-width // 2)), np.uint8), width)
        vectors = packed if kind == "int4" else np.full((5, width), -128, kind)
        scales = scales.astype(np.float32) if kind.startswith("int") else None
        table = VectorTable(vectors, scales)
        for array in (None, getattr(vectors, "halves", vectors), scales):
            if array is not None:
                array.view(np.uint8)[...] = 255  # it is only added up
            with nullcontext() if is_inside else pytest.raises(InputError):
                table.pool(given_rows.copy(), given_ends, spelled, out)


@_settings
@given(st.lists(_INT32, max_size=30), st.lists(_INT32, max_size=4))
def test_pooling_of_a_sparse_table_stays_inside_for_any_rows_and_ends(rows, ends):
    with suppress(InputError):
        found = _sparse()[1].pool(_int32(rows), _int32(ends))
        assert found[0][-1] == len(found[1]) == len(found[2]) and (found[1] < 4).all()


# --- Words ---


def _reader(words, size, *, cased=False, pieces=False):
    found = Pieces(["a", "ab", "é"], ["b", "c"], 20) if pieces else Pieces()
    return WordReader(WordIndex(words), WordIndex(room=(4, 40)), found, CLASSES, size, cased=cased, complete=not pieces)


_BYTES = st.lists(
    st.binary(max_size=70)
    | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))
    | st.sampled_from(
        [
            b"\xf0\x9f\x98\x80", b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xff\xff\xff\xff", b"\xf7\xbf\xbf\xbf",
            b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\0", b"\0\0", b"a" * 63, b"a" * 64, b"a" * 65, b"ab" * 200,
            b" " * 61,
        ]
    ),
    max_size=6,
).map(b"".join)  # fmt: skip


@_settings
@given(_BYTES, st.integers(0, 130), st.lists(_INT32, max_size=4), st.booleans(), st.booleans(), st.binary(max_size=90))
def test_any_bytes_are_read_inside_their_block(content, gap, ends, joined, cased, beyond):
    content = b" " * gap + content
    block = np.zeros(len(content) + PADDING, np.uint8)
    block[: len(content) + len(beyond)] = np.frombuffer(content + beyond, np.uint8)  # even no zeros after it
    reader = _reader(["a", "ab", "ab" * 200, "é"], len(content), cased=cased, pieces=cased)
    with pytest.raises(InputError):
        reader.find(np.zeros(len(content) + 1 + PADDING, np.uint8), _int32([]))
    given_ends = _int32([0] * content.count(0) if joined else ends)
    with suppress(InputError):
        missing = reader.find(block, given_ends, joined=joined)
        words = reader._words
        edges = reader.edges[:words].ravel()
        assert (np.diff(edges) > 0).all() and edges.min(initial=0) >= 0 and edges.max(initial=0) <= len(content) + 64
        assert (reader.rows[:words] < 4).all() and reader.rows[:words].min(initial=-1) >= -1
        for first, last in ((0, missing), (missing, missing), (0, missing + 1), (-1, 0), (0, len(reader.missing))):
            if 0 <= first <= last <= missing:
                reader.look_again(first, last)
            else:
                with pytest.raises(InputError, match="missing words"):
                    reader.look_again(first, last)
        which = reader.missing[:missing].copy()
        reader.learn(which, np.arange(len(which), dtype=np.int32))
        reader.find(block, given_ends)  # which may find more words than before, where a NUL was part of one
        with pytest.raises(InputError, match="words are"):
            reader.learn(_int32([reader._words]), _int32([0]))


@pytest.mark.parametrize("room", [(0, 0), (1, 1), (3, 20)])
def test_a_word_longer_than_the_room_for_what_is_learnt_is_not_remembered(room):
    texts = np.frombuffer(b"x" * 100 + b" " + b"y" * 21 + b" zz\0" + bytes(PADDING), np.uint8)
    reader = WordReader(WordIndex(["a"]), WordIndex(room=room), Pieces(), CLASSES, 200, cased=True, complete=False)
    assert (reader.find(texts, _int32([0])), reader._words) == (3, 3)
    for _ in range(3):
        reader.learn(_int32([0, 1, 2]), _int32([0, 0, 0]))
    assert reader.look_again(0, 3) == (2 if room[1] == 20 else 3)


@pytest.mark.parametrize("letter", ["a", "é", "東", "😀"])
def test_words_and_texts_at_the_edges_of_chunks(letter):
    texts = [
        " " * gap + letter * count + end
        for gap in (0, 1, 55, *range(58, 66), 127)
        for count in (1, 2, 8, 15, 16, 17, 63, 64, 65)
        for end in ("", ".", "\0", " " + letter)
    ]
    words = sorted({word.text for text in texts for word in split_words(text)})[::2]
    model = StaticEmbedder(Vocabulary(words), np.random.default_rng(0).normal(size=(len(words), 9)).astype(np.float32))
    encoder = BulkEncoder(model.vocabulary, model.vectors, None)
    encoder.threads = 1
    plain = plain_rows(model, texts)
    np.testing.assert_allclose(encoder.encode(texts), plain, atol=1e-5)
    for text, row in zip(texts, plain, strict=True):  # each as a block that ends where its text does
        np.testing.assert_allclose(encoder.encode([text])[0], row, atol=1e-5)


# --- Spelling ---


_ENDS = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 12) | st.integers(100, 202)


@_settings
@given(st.lists(_ENDS, min_size=1, max_size=4))
def test_words_to_spell_lie_inside_their_codes(few, ends):
    """There are 200 codes, and a word has at most 102, as the longest known one with its marks."""
    fits = ends == sorted(ends) and 0 <= ends[0] and ends[-1] <= 200 and max(np.diff(ends), default=0) <= 102
    with nullcontext() if fits else pytest.raises(InputError, match="words end outside"):
        assert spelled(few, ends=ends).max(initial=-1) < len(few.vectors)


# --- Files that are changed or cut while a model is open, and memory that changes between check and use ---

TEXTS = [f"the quick bank {n} jumps over a lazy dog by rivers zzqx{n} unbelievableness" for n in range(300)]
PATTERNS = [b"\xff", b"\xff\x7f", b"\0", b"\0\0\xc0\x7f", np.random.default_rng(0).bytes(4093)]  # the fourth: NaN


def change_in_place(path, pattern):
    """Write other numbers into the tensors of a file, which stays the same file."""
    content = np.memmap(path, np.uint8, "r+")
    start = 8 + int(content[:8].view("<u8")[0])
    content[start:] = np.resize(np.frombuffer(pattern, np.uint8), len(content) - start)


def ask(model):
    """Encode and explain, in C and in Python; return the embeddings."""
    rows = model.encode(TEXTS)
    for use in (lambda: model.explain(*TEXTS[:2]), lambda: model.describe(TEXTS[0]), lambda: model.encode(TEXTS[:1])):
        with suppress(PellucidError), np.errstate(all="ignore"):
            use()
    return dense_rows(rows)


def spelling_model():
    speller = speller_of(70, "float32")
    return StaticEmbedder(speller.vocabulary, speller.vectors, spelling=speller.weights)


DTYPES = ("float32", "float16", "int8", "int4")
SMALL = dict.fromkeys(DTYPES, static_model) | {
    "spelling": spelling_model,
    "spelling, edited": lambda: spelling_model().without([0, 1]),
    "lexicon": lambda: static_lexicon_model().merge(0, 1),
}


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("size", ["read", "mapped"])
def test_a_small_model_is_what_was_read_and_a_mapped_one_lives_on(tmp_path, monkeypatch, kind, size):
    if size == "mapped":
        monkeypatch.setattr(store, "MAX_READ_BYTES", 0)
    model = reopened(SMALL[kind](), tmp_path / "model", **{"dtype": kind} if kind in DTYPES else {})
    before, is_read = ask(model), size == "read" or kind == "lexicon"  # which is read whatever its size
    assert before.any()
    changes = [partial(change_in_place, pattern=pattern) for pattern in PATTERNS]
    for change in [*changes, *[lambda path: os.truncate(path, 0)] * is_read]:
        for path in (tmp_path / "model").rglob("*.safetensors"):
            change(path)
        with suppress(PellucidError), np.errstate(all="ignore"):
            after = ask(model)
            assert after.shape == before.shape
            assert not is_read or np.array_equal(after, before)


# --- What C follows, changed after it was checked ---


def _sparse():
    parts = [
        np.array([0, 2, 5], np.int32), np.array([0, 3, 1, 2, 3], np.int16), np.full(5, 7, np.uint8),
        np.ones(2, np.float32),
    ]  # fmt: skip
    return parts, SparseTable(parts, 4)


def _rows(*rows):
    return np.array([*rows, *[0] * 12], np.int32)


@pytest.mark.parametrize("value", [4, -1, 2**15 - 1, -(2**15)])
def test_columns_of_a_sparse_table_are_compared_when_they_are_read(value):
    parts, table = _sparse()
    ends = np.array([1, 2], np.int32)
    starts, columns, _ = table.pool(_rows(0, 1), ends)
    assert starts.tolist() == [0, 2, 5] and columns.tolist() == [0, 3, 1, 2, 3]
    parts[1][3] = value
    with pytest.raises(InputError, match="points outside its 4 columns"):
        table.pool(_rows(0, 1), ends)
    parts[1][3] = 2
    parts[0][:] = [2**31 - 1, -5, 10**6]  # the starts were copied
    assert table.pool(_rows(0, 1), ends)[1].tolist() == [0, 3, 1, 2, 3]


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize("changed", [
    *({name: value} for name in ("members", "starts", "ends", "rows", "weights", "squares")
      for value in (-(2**31), -1, 2**31 - 1, 255, 0)),
    {"members": 0, "weights": 255},  # which repeats one word
], ids=str)  # fmt: skip
def test_an_index_of_ngrams_that_changes_is_compared_when_it_is_read(kind, changed):
    compiled, words, rng = speller_of(7, kind), unknown_words(200), np.random.default_rng(0)
    compiled.predict(words)
    for share in (0.02, 1.0):
        for name, value in changed.items():
            array = getattr(compiled.index, name)
            array[rng.random(len(array)) < share] = np.array(value).astype(array.dtype)
        with suppress(InputError), np.errstate(all="ignore"):
            assert compiled.predict(words).neighbours.max(initial=-1) < len(compiled.vectors)


def often(call):
    """Call 200 times, whatever is refused."""
    for _ in range(200):
        with suppress(InputError), np.errstate(all="ignore"):
            call()


def _calls():
    """For each function of C an array that it follows, what it becomes, and the call."""
    parts, sparse = _sparse()
    texts = np.array([1, 2], np.int32)
    values, words, ends = np.arange(300) % 40, np.arange(300) % 40, np.array([100, 300])
    table, narrow, asked = (
        VectorTable(np.ones((40, 9), np.float32), None),
        np.zeros(300, np.int32),
        np.ones((2, 9), np.float32),
    )
    compiled = speller_of(7, "float32")
    index, spelled = compiled.index, unknown_words(40)
    codes, cuts = np.full(200, 97, np.uint32), np.array([0, 9, 50])
    memory = np.full((2, NEIGHBOURS), -1, np.int32), np.zeros((2, NEIGHBOURS)), np.zeros((2, 7))
    spelling = Spelling(index, compiled.vectors, None, 60)
    wide, far = [2**62, -(2**62)], [2**31 - 1, -(2**31)]
    return {
        "columns": (parts[1], [[0, 3, 1, 2, 3], 2**15 - 1], lambda: sparse.pool(_rows(0, 1), texts)),
        "starts": (parts[0], [[0, 2, 5], far[0]], lambda: sparse.pool(_rows(0, 1), texts)),
        "values": (values, [np.arange(300) % 40, *wide], lambda: distinct_values(values)),
        "words": (words, [np.arange(300) % 40, *wide], lambda: group_words(words, ends, 40)),
        "ends": (ends, [[100, 300], *wide], lambda: group_words(np.arange(300) % 40, ends, 40)),
        "rows": (narrow, [0, *far], lambda: table.products(narrow, narrow, ends, asked)),
        "members": (index.members, [index.members.copy(), *far], lambda: compiled.predict(spelled)),
        "places": (index.starts, [index.starts.copy(), *far], lambda: compiled.predict(spelled)),
        "weights": (index.weights, [index.weights.copy(), 255, 0], lambda: compiled.predict(spelled)),
        "cuts": (cuts, [[0, 9, 50], *wide], lambda: spelling.predict(codes, cuts, *memory)),
    }


@pytest.mark.parametrize("name", _calls())
def test_what_another_thread_changes_is_read_once(name):
    array, values, call = _calls()[name]
    call()
    with ThreadPoolExecutor(1) as thread:
        calls, others = thread.submit(often, call), cycle(values)
        while not calls.done():
            array[:] = next(others)
        calls.result()


def test_points_of_numbers_that_change_are_found():
    pair_products(np.full((5, 9), np.nan, np.float32), np.full(5, np.inf), 2)
    table = np.ones((5, 9), np.float32)
    with FarthestPoints(table, 2) as points:
        assert points.measure() is None
        table[:] = np.nan
        points.take(0)
        assert points.farthest() < 5


if __name__ == "__main__":
    print(*digests(), sep="\n")
