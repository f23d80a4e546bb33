"""The C functions: the same bits at every processor level, hostile arguments, and files and memory that change.

Nothing outside the arrays is read or written. Under the sanitizers of test_library.py a wrong access ends the process;
without them most would pass unseen, but for results that differ. What is refused is an InputError; what was changed
gives what was read, or other numbers. Run as a program, this file prints what farthest points and spelling give at the
level named by PELLUCID_NATIVE.
"""

import copy
import hashlib
import os
import random
import struct
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pellucid
from pellucid.anchors.sampling import farthest_points
from pellucid.errors import InputError, PellucidError
from pellucid.native.farthest import FarthestPoints
from pellucid.native.kernels import (
    PADDING,
    Pieces,
    SparseTable,
    Table,
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


def speller_of(dimension, kind, seed=0, words=400):
    """A speller for made-up words of few letters, and a table of `kind`."""
    rng = np.random.default_rng(seed)
    letters = np.array(list(LETTERS))
    known = sorted({"".join(rng.choice(letters, rng.integers(4, 9))) for _ in range(words)} | {"na" * 50, "a" * 100})
    table = rng.standard_normal((len(known), dimension)).astype(np.float32)
    table[0] = 0
    scales = None
    if kind in ("int8", "int4"):
        scales = rng.random(len(known)).astype(np.float32)
        numbers = np.clip(table * 40, -127, 127).astype(np.int8) if kind == "int8" else quantize(table, "int4")[0]
        stored = numbers if kind == "int8" else PackedRows(pack(numbers), dimension)
    else:
        stored = table.astype(kind)
    return Speller(Vocabulary(known), stored, scales, rng.integers(0, 256, BUCKETS).astype(np.uint8))


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


@pytest.fixture
def few():
    return speller_of(3, "float32")


def spelled(few, *, codes=np.uint32, ends=(0, 9), near=np.int32, shares=NEIGHBOURS, sums=3):
    """Predict words that are given, with memory of some types and widths."""
    memory = np.full((1, NEIGHBOURS), -1, near), np.zeros((1, shares)), np.zeros((1, sums))
    Spelling(few.index, few.vectors, few.scales, 10).predict(np.zeros(200, codes), np.array(ends, np.int64), *memory)


def test_words_that_fit_the_memory_are_predicted(few):
    spelled(few)


test_what_does_not_fit_its_arrays_is_refused = refused(
    *((lambda row=row: taken(row), "there are 4") for row in (-1, 4, 2**40)),
    (lambda: taken(0, 1, 2), "there are 2"),
    (lambda: FarthestPoints(np.eye(4, 5, dtype=np.float32).T, 2), "the C function takes"),
    (lambda few: Spelling(few.index, few.vectors.astype(np.float64), None, 10), None),
    (lambda few: Spelling(few.index, few.vectors.astype(np.int8), None, 10), None),
    (lambda few: Spelling(few.index, few.vectors[::-1], None, 10), None),
    (lambda few: Spelling(few.index, few.vectors, None, 2**22 + 1), "4,194,305 characters"),
    *((lambda few, ends=ends: spelled(few, ends=ends), None) for ends in ([0, 103], [0, 201], [-1, 5], [9, 5], [])),
    (lambda few: spelled(few, codes=np.int64), None),
    (lambda few: spelled(few, near=np.int64), None),
    (lambda few: spelled(few, shares=9), None),
    (lambda few: spelled(few, sums=4), None),
)


# --- Spelling ---------------------------------------------------------------------------------------------------------


def assert_agree(one, other):
    """Check that two predictions are of the same words, and the same but for the last digits."""
    assert np.array_equal(one.neighbours, other.neighbours) and np.abs(one.shares - other.shares).max(initial=0) < 1e-9
    assert np.abs(one.sums - other.sums).max(initial=0) < 1e-6


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("dimension", [1, 7, 64, 70])
def test_c_agrees_with_the_readable_speller(kind, dimension):
    compiled = speller_of(dimension, kind)
    words = [*unknown_words(100), *HOSTILE]
    found = compiled.predict(words)
    assert_agree(found, plain_predictions(compiled, words))
    alone = [compiled.predict([word]) for word in words]
    for name in ("neighbours", "shares", "sums"):  # what comes before a word changes nothing
        assert np.array_equal(np.concatenate([getattr(one, name) for one in alone]), getattr(found, name))


_ALPHABETS = st.sampled_from(["ab", LETTERS, "東京都", "\U0001f600ab", "".join(map(chr, range(97, 123)))])


@settings(max_examples=40, deadline=None)
@given(alphabet=_ALPHABETS, data=st.data(), weight=st.sampled_from([0, 1, 255]))
def test_c_agrees_for_any_words(alphabet, data, weight):
    words = st.text(alphabet, min_size=1, max_size=120)
    known = sorted(set(data.draw(st.lists(words, min_size=1, max_size=60))))
    weights = np.random.default_rng(len(known)).integers(0, weight + 1, BUCKETS).astype(np.uint8)
    table = np.random.default_rng(0).standard_normal((len(known), 9)).astype(np.float32)
    speller = Speller(Vocabulary(known), table, None, weights)
    asked = data.draw(st.lists(words, max_size=20)) + known[:5]
    assert_agree(speller.predict(asked), plain_predictions(speller, asked))


def test_no_words_and_no_known_words():
    compiled = speller_of(5, "float32")
    assert compiled.predict([]).neighbours.shape == (0, NEIGHBOURS)
    none = Speller(Vocabulary(["1", "2"]), np.zeros((2, 3), np.float32), None, compiled.weights).predict(["token", ""])
    assert (none.neighbours == -1).all() and not none.sums.any()


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


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


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
    table = partial(Table, floats, None)  # made when it is called: no library is needed to collect the tests
    distinct, ends64 = _int32([0, 1, 2, 3]), np.array([1, 3])
    return {
        "vectors": lambda wrong: Table(wrong(floats), None),
        "halves": lambda wrong: Table(wrong(halves), None),
        "scales": lambda wrong: Table(codes, wrong(scales)),
        "packed": lambda wrong: Table(PackedRows(wrong(packed), 9), scales),
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


_OF_MANY_BYTES = {("packed", "unaligned"), ("packed", "the bytes reversed")}  # which single bytes cannot be


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", _table_calls())
def test_arrays_of_another_form_are_refused(name, wrong):
    if (wrong == "one more" and name in _LENGTH_IS_FREE) or (name, wrong) in _OF_MANY_BYTES:
        return
    call = _table_calls()[name]
    call(lambda array: array)
    with pytest.raises(InputError):
        call(WRONG[wrong])


def pooled(rows, ends, out=None):
    table = Table(np.ones((5, 9), np.float32), None)
    table.pool(rows, ends, np.ones((1, 9), np.float32), np.zeros((2, 9), np.float32) if out is None else out)


def found(size, block, ends=(), *, room=None, **options):
    reader = _reader([], size)
    reader._size = room or size
    reader.find(block, _int32(ends) if not isinstance(ends, np.ndarray) else ends, **options)


ZEROS, BLOCK = np.zeros(20, np.int32), np.zeros(200 + PADDING, np.uint8)
LOW, HIGH = -(2**31), 2**31 - 1
RISING = _int32([0, HIGH, LOW, -1, 3])  # each difference, in 32 bits, is above 0


test_arrays_that_cannot_be_written_and_ends_that_divide_nothing_are_refused = refused(
    (lambda: pooled(read_only(ZEROS), _int32([2, 5])), "writable"),
    (lambda: pooled(ZEROS.copy(), _int32([2, 5]), read_only(np.zeros((2, 9), np.float32))), "writable"),
    (lambda: found(10, BLOCK[: 10 + PADDING], read_only(_int32([9]))), "writable"),
    # a last end of zero does not hide the ends before it
    (lambda: pooled(ZEROS[:12].copy(), _int32([10**6, 0])), "do not divide"),
    (lambda: SparseTable((RISING, np.zeros(3, np.int16), np.ones(3, np.uint8), np.ones(4, np.float32)), 4),
     "do not divide"),
    (lambda: found(200, BLOCK, [5, LOW, -1, 100], joined=False), "end outside"),
    (lambda: Table(np.broadcast_to(np.int8(1), (2**33, 64)), np.ones(1, np.float32)), "vectors is int8"),
)  # fmt: skip


@pytest.mark.skipif(_CHECKED, reason="would fill the memory")
@pytest.mark.parametrize("room", [64, 2**32])
def test_sizes_near_2_31_are_refused_before_memory_is_taken(room):
    with pytest.raises(InputError, match="2147483648 bytes"):
        found(64, np.zeros(2**31 + PADDING, np.uint8), room=room)  # pages that nobody touches


# --- Tables ---


@_settings
@given(
    st.lists(_INT32, max_size=40), st.lists(_INT32, max_size=6), st.integers(0, 3),
    st.sampled_from([0, 1, 9, 64, 65, 70, 128, 131]),
)  # fmt: skip
def test_pooling_stays_inside_for_any_rows_and_ends(rows, ends, more, width):
    given_rows, given_ends = _int32(rows), _int32(ends)
    out = np.zeros((len(ends), width), np.float32)
    even, scales = np.ones(5, np.float32), np.arange(5, dtype=np.float32)
    codes = np.full((5, width), -128, np.int8)
    packed = PackedRows(np.zeros((5, -(-width // 2)), np.uint8), width)
    for vectors, times in (
        (np.ones((5, width), np.float32), None), (np.ones((5, width), np.float16), None), (codes, even),
        (codes, scales), (packed, scales), (packed, even),
    ):  # fmt: skip
        table = Table(vectors, times)
        fits = ends == sorted(ends) and (not ends or 0 <= ends[0]) and (ends[-1:] or [0])[0] + 12 <= len(rows)
        used = rows[: ends[-1]] if ends and fits else []
        if fits and all(row < 5 + more for row in used):
            table.pool(given_rows.copy(), given_ends, np.ones((more, width), np.float32), out)
        else:
            with pytest.raises(InputError):
                table.pool(given_rows.copy(), given_ends, np.ones((more, width), np.float32), out)


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


@_settings
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 12), min_size=1, max_size=4))
def test_words_to_spell_lie_inside_their_codes(ends):
    compiled = speller_of(3, "float32")
    spelling = Spelling(compiled.index, compiled.vectors, None, 10)
    words = len(ends) - 1
    memory = np.full((words, NEIGHBOURS), -1, np.int32), np.zeros((words, NEIGHBOURS)), np.zeros((words, 3))
    given_codes = np.full(12, 2**32 - 1, np.uint32), np.array(ends, np.int64)
    if ends == sorted(ends) and 0 <= ends[0] and ends[-1] <= 12:
        spelling.predict(*given_codes, *memory)
        assert memory[0].max(initial=-1) < len(compiled.vectors)
    else:
        with pytest.raises(InputError, match="words end outside"):
            spelling.predict(*given_codes, *memory)


# --- Files that are changed or cut while a model is open, and memory that changes between check and use ---

TEXTS = [f"the quick brown fox {n} jumps over lazy dogs by rivers zzqx{n} unbelievableness" for n in range(300)]


def fill(pattern):
    return lambda content: (pattern * (len(content) // len(pattern) + 1))[: len(content)]


def noise(content):
    return random.Random(0).randbytes(len(content))


CHANGES = {"ones": fill(b"\xff"), "largest": fill(b"\xff\x7f"), "zeros": fill(b"\0"), "NaN": fill(b"\0\0\xc0\x7f"),
           "noise": noise}  # fmt: skip


def change_in_place(path, change):
    """Write other numbers into the tensors of a file, which stays the same file."""
    with open(path, "r+b", buffering=0) as file:
        start = 8 + struct.unpack("<Q", file.read(8))[0]
        file.seek(start)
        content = change(file.read())
        file.seek(start)
        file.write(content)


def ask(model):
    """Encode and explain, in C and in Python; return the embeddings."""
    rows = model.encode(TEXTS)
    for use in (lambda: model.explain(*TEXTS[:2]), lambda: model.describe(TEXTS[0]), lambda: model.encode(TEXTS[:1])):
        with suppress(PellucidError), np.errstate(all="ignore"):
            use()
    return rows.toarray() if hasattr(rows, "toarray") else rows


def _small(folder, kind):
    """Save a small model of a kind and open it."""
    words = [f"{first}{last}" for first in "abcdef" for last in ("a", "ba", "nana", "coda")]
    rng = np.random.default_rng(0)
    table = rng.normal(size=(len(words), 70)).astype(np.float32)
    weights = rng.integers(0, 256, BUCKETS).astype(np.uint8)
    if kind == "lexicon":
        from pellucid.core.dimensions import Dimension, Dimensions
        from pellucid.lexicon.static import StaticLexiconEmbedder

        names = Dimensions([Dimension(f"cluster {number}", ("a",)) for number in range(70)])
        model = StaticLexiconEmbedder(Vocabulary(words), np.maximum(table, 0).astype(np.float64), names)
        model = model.merge(0, 1)
    else:
        model = StaticEmbedder(Vocabulary(words), table, spelling=weights if kind.startswith("spelling") else None)
        if kind == "spelling, edited":
            model = model.without([0, 1])
    model.save_pretrained(folder, **({"dtype": kind} if kind in ("float16", "int8", "int4") else {}))
    return pellucid.load(folder)


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int4", "spelling", "spelling, edited", "lexicon"])
@pytest.mark.parametrize("size", ["read", "mapped"])
def test_a_small_model_is_what_was_read_and_a_mapped_one_lives_on(tmp_path, monkeypatch, kind, size):
    if size == "mapped":
        monkeypatch.setattr(store, "MAX_READ_BYTES", 0)
    model = _small(tmp_path / "model", kind)
    before = ask(model)
    for change in CHANGES.values():
        for path in (tmp_path / "model").rglob("*.safetensors"):
            change_in_place(path, change)
        with suppress(PellucidError), np.errstate(all="ignore"):
            after = ask(model)
            assert after.shape == before.shape
            if size == "read" or kind == "lexicon":  # which is read whatever its size
                np.testing.assert_array_equal(after, before)
    if size == "read" or kind == "lexicon":
        for path in (tmp_path / "model").rglob("*.safetensors"):
            os.truncate(path, 0)
        np.testing.assert_array_equal(ask(model), before)


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


@pytest.mark.parametrize("name", ["members", "starts", "ends", "rows", "weights", "squares"])
@pytest.mark.parametrize("value", [-(2**31), -1, 2**31 - 1, 255, 0])
def test_an_index_of_ngrams_that_changes_is_compared_when_it_is_read(name, value):
    compiled = speller_of(7, "float16")
    words = unknown_words(60)
    compiled.predict(words)
    array = getattr(compiled.index, name)
    rng = np.random.default_rng(0)
    for share in (0.02, 1.0):
        array[rng.random(len(array)) < share] = np.array(value).astype(array.dtype)
        with suppress(InputError), np.errstate(all="ignore"):
            assert compiled.predict(words).neighbours.max(initial=-1) < len(compiled.vectors)


def test_members_that_are_repeated_leave_room():
    compiled = speller_of(7, "float32")
    compiled.index.members[:] = 0
    compiled.index.weights[:] = 255
    with suppress(InputError):
        compiled.predict(unknown_words(200))


@contextmanager
def changing(array, values):
    """Let another thread put one value after the other into an array, for as long as the block runs."""
    done = Event()

    def change():
        while not done.is_set():
            for value in values:
                array[:] = value

    thread = Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _calls():
    """For each function of C an array that it follows, what it becomes, and the call."""
    parts, sparse = _sparse()
    texts = np.array([1, 2], np.int32)
    values, words, ends = np.arange(300) % 40, np.arange(300) % 40, np.array([100, 300])
    table, narrow, asked = (
        Table(np.ones((40, 9), np.float32), None),
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


@pytest.mark.parametrize("name", _calls() if not os.environ.get("PELLUCID_NATIVE") == "off" else [])
def test_what_another_thread_changes_is_read_once(name):
    array, values, call = _calls()[name]
    call()
    with changing(array, values), np.errstate(all="ignore"):
        for _ in range(200):
            with suppress(InputError):
                call()


EVEN, ONES = np.ones(5, np.float32), np.ones((5, 130), np.int8)


@pytest.mark.parametrize(
    ("vectors", "scales"),
    [
        (ONES.astype(np.float32), None), (ONES.astype(np.float16), None), (ONES, EVEN),
        (ONES, np.arange(5, dtype=np.float32)), (PackedRows(np.zeros((5, 65), np.uint8), 130), EVEN),
    ],
)  # fmt: skip
def test_numbers_that_are_only_added_up_may_change(vectors, scales):
    vectors, scales = copy.deepcopy((vectors, scales))
    table = Table(vectors, scales)
    for array in (getattr(vectors, "halves", vectors), *([] if scales is None else [scales])):
        array.view(np.uint8)[:] = 255
    table.pool(_rows(*range(5)), _int32([2, 5]), np.ones((0, 130), np.float32), np.zeros((2, 130), np.float32))


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
