"""From words to their rows in the table of vectors, compiled.

Each word is hashed 8 bytes at a time and looked up in a table of open addressing. The bytes are compared, never the
hash alone, so that no two words are taken for one another. `Vocabulary.row` says what is computed; a word that these
functions cannot tell is left to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pellucid.static.kernels import Scratch, address_of, compiled, inlined, prefetch, trailing_zeros

_WORD64 = ir.IntType(64)


@intrinsic
def _load_8(typing: Any, text: Any, offset: Any) -> Any:
    """Return the 8 bytes from `offset` of `text`, which need not be aligned, as one integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, _WORD64.as_pointer()), align=1)

    return types.int64(text, types.int64), generate


@intrinsic
def _prefetch(typing: Any, slots: Any, slot: Any) -> Any:
    """Ask for the cache line of a slot of 32 bytes ahead of its use."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        offset = builder.mul(arguments[1], ir.Constant(_WORD64, 4))
        prefetch(builder, address_of(context, builder, signature.args[0], arguments[0], offset))
        return context.get_dummy_value()

    return types.void(slots, types.int64), generate


class Table(NamedTuple):
    """Words and their rows: open addressing, never more than half full.

    A slot holds a key of 16 bytes, `length | start in blob << 32`, and the row. Up to 16 bytes the key is the word; for
    a longer word it is a hash, and the bytes in `blob` decide.
    """

    slots: npt.NDArray[np.int64]  # [2 ** n, 4]
    blob: npt.NDArray[np.uint8]
    mixers: npt.NDArray[np.int64]  # [2] odd; drawn anew each time, so that nobody can prepare words that all collide
    used: npt.NDArray[np.int64]  # [2] how many words and bytes it holds; see `learn`


class Pieces(NamedTuple):
    """The pieces into which BERT's tokenizer cuts letters and digits of ASCII: the longest known one each time."""

    first: Table  # those that begin a word
    inside: Table  # those that go on with one, without the mark
    longest: int  # bytes of the longest piece; 0 where the tokenizer is of another kind
    longest_word: int  # bytes; a longer word is not cut
    lower: bool  # it reads a word in lower case


class Lexicon(NamedTuple):
    """All that says which row a word has."""

    words: Table  # the vocabulary
    learnt: Table  # rows of words that are not in it; -1 for unknown ones
    cased: bool  # the vocabulary has words that are not lower-case: try a word as it is first
    complete: bool  # there is no prefix to try: an ASCII word that is not found is unknown
    pieces: Pieces


_BATCH = 32  # words whose slots are asked for together
_LEARNT_BYTES = 128  # a longer word is not remembered
_KEEP = np.array([(1 << 8 * n) - 1 for n in range(8)] + [-1], dtype=np.int64)  # the first n of 8 bytes


@inlined
def _key(text: Any, start: Any, length: Any) -> tuple[int, int]:
    """Return 16 bytes that stand for a word: its bytes, or for more than 16 a hash of them."""
    first = _load_8(text, start) & _KEEP[min(length, 8)]
    second = _load_8(text, start + 8) & _KEEP[min(max(length - 8, 0), 8)]
    if length > 16:
        return _long_key(text, start, length, first, second)
    return first, second


@compiled
def _long_key(text: Any, start: Any, length: Any, first: int, second: int) -> tuple[int, int]:
    for at in range(16, length, 8):
        piece = _load_8(text, start + at) & _KEEP[min(length - at, 8)]
        first = (first ^ piece) * 0x2545F4914F6CDD1D
        first ^= (first >> 29) & 0x7FFFFFFFF
        second = (second + first) * 0x369DEA0F31A53F85
    return first, second


@inlined
def _probe(slots: Any, slot: Any, first: Any, second: Any, length: Any) -> Any:
    """Return the first slot from `slot` on that is empty or has this key and length."""
    while slots[slot, 2] != 0 and not (
        slots[slot, 0] == first and slots[slot, 1] == second and slots[slot, 2] & 0xFFFFFFFF == length
    ):
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@inlined
def _home(slots: Any, mixers: Any, key: Any, length: Any) -> Any:
    """Return the slot where a key belongs: the highest bits, the only ones that depend on every bit of the key."""
    mixed = key[0] * mixers[0] + key[1] * mixers[1] + length
    return (mixed >> (64 - trailing_zeros(len(slots)))) & (len(slots) - 1)


@inlined
def _find_from(slot: Any, key: Any, slots: Any, blob: Any, text: Any, start: Any, length: Any) -> Any:
    """Return the first slot from `slot` on that is empty or holds the word `text[start : start + length]`."""
    slot = _probe(slots, slot, key[0], key[1], length)
    if length > 16:
        while slots[slot, 2] != 0 and not _same(blob, slots[slot, 2] >> 32, text, start, length):
            slot = _probe(slots, (slot + 1) & (len(slots) - 1), key[0], key[1], length)
    return slot


@compiled
def _find(table: Table, text: Any, start: Any, length: Any) -> Any:
    """Return the slot of the word `text[start : start + length]`, or the empty one where it would go."""
    slots, blob, mixers, _ = table
    key = _key(text, start, length)
    return _find_from(_home(slots, mixers, key, length), key, slots, blob, text, start, length)


@compiled
def _same(blob: Any, at: int, text: Any, start: Any, length: Any) -> bool:
    for byte in range(length):
        if blob[at + byte] != text[start + byte]:
            return False
    return True


@compiled
def insert(table: Table, starts: Any, rows: Any) -> None:
    """Put the words `blob[starts[i]:starts[i + 1]]` with their `rows` into the table, unless they are there."""
    slots, blob = table.slots, table.blob
    for word in range(len(rows)):
        start, length = starts[word], starts[word + 1] - starts[word]
        slot = _find(table, blob, start, length)
        if length > 0 and slots[slot, 2] == 0:
            slots[slot, 0], slots[slot, 1] = _key(blob, start, length)
            slots[slot, 2], slots[slot, 3] = length | (start << 32), rows[word]


@compiled
def learn(table: Table, text: Any, start: Any, end: Any, row: Any) -> None:
    """Put the word `text[start:end]` with its row into a table that forgets everything when it is full."""
    slots, blob, _, used = table
    length = np.int64(end) - start
    if length == 0 or length > _LEARNT_BYTES:
        return
    if 2 * used[0] >= len(slots) or used[1] + length > len(blob) - 16:
        slots[:] = 0
        slots[:, 3] = -1
        used[:] = 0
    slot = _find(table, text, start, length)
    if slots[slot, 2] == 0:
        blob[used[1] : used[1] + length] = text[start:end]
        slots[slot, 0], slots[slot, 1] = _key(text, start, length)
        slots[slot, 2], slots[slot, 3] = length | (used[1] << 32), row
        used[0] += 1
        used[1] += length


@compiled
def _is_ascii(text: Any, start: Any, end: Any) -> bool:
    for at in range(start, end):
        if text[at] >= 0x80:
            return False
    return True


@compiled
def _is_alphanumeric(text: Any, start: Any, end: Any) -> bool:
    """Whether a word, which holds neither blank nor punctuation, has no control character and none beyond ASCII."""
    for at in range(start, end):
        if text[at] < 0x30 or text[at] >= 0x7F:
            return False
    return True


@compiled
def _longest_known(table: Table, text: Any, start: Any, most: Any) -> Any:
    """Return the length, at most `most`, of the longest word of the table that the text goes on with, or 0."""
    slots, blob, mixers, _ = table
    length = most
    while length > 0:
        key = _key(text, start, length)
        slot = _find_from(_home(slots, mixers, key, length), key, slots, blob, text, start, length)
        if slots[slot, 2] != 0:
            break
        length -= 1
    return length


@compiled
def _prefix_row(text: Any, start: Any, end: Any, words: Table, pieces: Pieces) -> int:
    """Return the row of the longest known prefix that ends between two pieces, or -1; see `Vocabulary.row`."""
    row = np.int64(-1)
    if end - start > pieces.longest_word:
        return row
    table = pieces.first
    place = start
    while place < end:
        length = _longest_known(table, text, place, min(end - place, np.int64(pieces.longest)))
        if length == 0:  # the word has no pieces
            return np.int64(-1)
        place += length
        if place < end:
            known = words.slots[_find(words, text, start, place - start), 3]
            row = known if known >= 0 else row
        table = pieces.inside
    return row


@inlined
def _fetch(slots: Any, mixers: Any, text: Any, edges: Any, first: int, last: int, keys: Any) -> None:
    """Compute key and home slot of the words `first` to `last`, and ask for these slots ahead of their use."""
    for word in range(first, last):
        start, end = np.int64(edges[2 * word]), np.int64(edges[2 * word + 1])
        key = _key(text, start, end - start)
        home = _home(slots, mixers, key, end - start)
        _prefetch(slots, home)
        keys[word - first, 0], keys[word - first, 1], keys[word - first, 2] = key[0], key[1], home


@compiled
def look_up(block: Any, words: int, lexicon: Lexicon, scratch: Scratch) -> int:
    """Set the row of each word; return how many words are neither in the vocabulary nor learnt."""
    slots, blob, mixers, _ = lexicon.words
    text = block if lexicon.cased else scratch.lowered_view
    edges, rows = scratch.edges, scratch.rows
    keys = np.empty((_BATCH, 3), np.int64)
    missing = 0
    for batch in range(0, words, _BATCH):
        last = min(batch + _BATCH, words)
        _fetch(slots, mixers, text, edges, batch, last, keys)
        for word in range(batch, last):
            start, length = np.int64(edges[2 * word]), np.int64(edges[2 * word + 1]) - np.int64(edges[2 * word])
            key, home = (keys[word - batch, 0], keys[word - batch, 1]), keys[word - batch, 2]
            slot = _find_from(home, key, slots, blob, text, start, length)
            rows[word] = slots[slot, 3]
            if rows[word] < 0:
                missing += _try_further(block, word, lexicon, scratch, missing)
    return missing


@compiled
def _try_further(block: Any, word: int, lexicon: Lexicon, scratch: Scratch, missing: int) -> int:
    """Set the row of a word that is not in the vocabulary as written; return 1 if only Python can tell it."""
    start, end = np.int64(scratch.edges[2 * word]), np.int64(scratch.edges[2 * word + 1])
    ascii_only = _is_ascii(block, start, end)
    if lexicon.cased and ascii_only:  # lowering ASCII letters alone could meet a half-lowered word of the vocabulary
        row = lexicon.words.slots[_find(lexicon.words, scratch.lowered_view, start, end - start), 3]
        if row >= 0:
            scratch.rows[word] = row
            return 0
    if lexicon.complete and ascii_only:
        return 0
    slot = _find(lexicon.learnt, block, start, end - start)
    scratch.rows[word] = lexicon.learnt.slots[slot, 3]
    if lexicon.learnt.slots[slot, 2] != 0:
        return 0
    if lexicon.pieces.longest > 0 and _is_alphanumeric(block, start, end):
        text = scratch.lowered_view if lexicon.pieces.lower else block
        scratch.rows[word] = _prefix_row(text, start, end, lexicon.words, lexicon.pieces)
        learn(lexicon.learnt, block, start, end, scratch.rows[word])
        return 0
    scratch.missing[missing] = word
    return 1


@compiled
def look_again(block: Any, first: int, last: int, lexicon: Lexicon, scratch: Scratch) -> int:
    """Look up the missing words `first` to `last` once more; list those still missing from `first` on, return how many.

    What was learnt of the words before them may be the answer.
    """
    missing = 0
    for place in range(first, last):
        missing += _try_further(block, scratch.missing[place], lexicon, scratch, first + missing)
    return missing


@compiled
def learn_all(table: Table, text: Any, edges: Any, rows: Any) -> None:
    """Put the words `text[edges[i, 0]:edges[i, 1]]` with their `rows` into a table, see `learn`."""
    for word in range(len(rows)):
        learn(table, text, np.int64(edges[word, 0]), np.int64(edges[word, 1]), rows[word])
