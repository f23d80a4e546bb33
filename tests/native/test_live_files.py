"""Files that are changed or cut in place while a model is open, and memory that changes between check and use.

Nothing outside of the arrays may be read or written: under the sanitizers of test_sanitized.py a wrong access ends the
process. What comes out is what was read, other numbers, or an InputError.
"""

import os
import random
import struct
from contextlib import contextmanager, suppress
from threading import Event, Thread

import numpy as np
import pytest

import pellucid
from pellucid.errors import InputError, PellucidError
from pellucid.native.farthest import FarthestPoints
from pellucid.native.kernels import (
    SparseTable,
    Table,
    distinct_values,
    group_words,
    pair_products,
)
from pellucid.native.spelling import Spelling
from pellucid.persistence import store
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import PackedRows
from pellucid.static.spelling import BUCKETS, NEIGHBOURS
from pellucid.text.words import Vocabulary
from test_farthest_spelling import speller_of, unknown_words

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


def test_numbers_that_are_only_added_up_may_change():
    rows, ends = _rows(*range(5)), np.array([2, 5], np.int32)
    even, rising = np.ones(5, np.float32), np.arange(5, dtype=np.float32)
    for vectors, scales in (
        (np.ones((5, 130), np.float32), None), (np.ones((5, 130), np.float16), None),
        (np.ones((5, 130), np.int8), even), (np.ones((5, 130), np.int8), rising),
        (PackedRows(np.zeros((5, 65), np.uint8), 130), np.ones(5, np.float32)),
    ):  # fmt: skip
        table = Table(vectors, scales)
        for array in (getattr(vectors, "halves", vectors), scales):
            if array is not None:
                array.view(np.uint8)[:] = 255
        table.pool(rows.copy(), ends, np.ones((0, 130), np.float32), np.zeros((2, 130), np.float32))
    pair_products(np.full((5, 9), np.nan, np.float32), np.full(5, np.inf), 2)
    table = np.ones((5, 9), np.float32)
    with FarthestPoints(table, 2) as points:
        assert points.measure() is None
        table[:] = np.nan
        points.take(0)
        assert points.farthest() < 5
