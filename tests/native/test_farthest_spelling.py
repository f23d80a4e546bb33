"""The C of farthest points and spelling: the same bits at every processor level, hostile sizes, refused arrays.

Run as a program, this file prints what the level named by PELLUCID_NATIVE gives.
"""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.anchors.sampling import farthest_points
from pellucid.native.farthest import FarthestPoints
from pellucid.native.spelling import Spelling
from pellucid.static.bulk import BulkRows
from pellucid.static.precision import PackedRows, pack, quantize
from pellucid.static.spelling import BUCKETS, NEIGHBOURS, Speller
from pellucid.text.words import Vocabulary
from plain_words import plain_predictions
from refusals import refused
from tiny_models import piece_tokenizer

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


@settings(max_examples=40, deadline=None)
@given(words=st.lists(st.text("abnßA7 東'\u0301", max_size=12) | st.text("ab", max_size=120), max_size=20))
def test_many_beginnings_are_found_as_one_by_one(words):
    subwords = piece_tokenizer(["ab", "aba", "ban", "a", "##a", "##b", "##n", "##ab", "##7"], lowercase=True)
    vocabulary = Vocabulary(["ab", "aba", "banana", "abban", "東"], subwords)
    assert BulkRows(vocabulary).rows_of(words).tolist() == [vocabulary.row(word) for word in words]


def test_no_words_and_no_known_words():
    compiled = speller_of(5, "float32")
    assert compiled.predict([]).neighbours.shape == (0, NEIGHBOURS)
    none = Speller(Vocabulary(["1", "2"]), np.zeros((2, 3), np.float32), None, compiled.weights).predict(["token", ""])
    assert (none.neighbours == -1).all() and not none.sums.any()


if __name__ == "__main__":
    print(*digests(), sep="\n")
