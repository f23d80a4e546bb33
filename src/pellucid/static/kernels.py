"""The compiled half of bulk encoding, first part: from a block of UTF-8 to words and their rows.

`bulk.py` joins texts into a block (`separate` does where they are UTF-8 already) and calls, in this order:

1. `mark` reads 64 bytes at a time and writes, as bits, which bytes belong to words; ASCII letters are lower-cased on
   the way. It is one pass over the text with no branch for each character.
2. `drop_separators` clears the bits of separators beyond ASCII, by a table read off BERT's own pre-tokenizer.
3. `cut` lists where runs of bits start and end: those are the words, as `split_words` gives them.
4. `look_up` finds the row of each word in a hash table. Words are compared by their bytes, never by a hash
   alone, so the result is exactly that of `Vocabulary.row`; the few words that only Python can answer are left to it.
5. `pool` of `pooling.py` adds up the rows of each text.

Time is spent waiting for memory, not computing: a table of 100,000 words fits no cache. Hence a slot is requested
(prefetched) some words before it is needed.

All functions run without the GIL and make no Python object. numba keeps compiled code until the file of a function
changes and does not check the files that it imports from: after a change to `prefetch` or `row_address`, delete the
`__pycache__` of this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = {"nogil": True, "error_model": "numpy"}


def compiled(function: _F, *, fastmath: bool = True) -> _F:
    """Compile `function` at its first call, keeping the machine code on disk where a folder can be written."""
    try:
        return numba.njit(function, cache=True, fastmath=fastmath, **_OPTIONS)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no folder for its cache, neither beside this file nor in the home folder
        return numba.njit(function, fastmath=fastmath, **_OPTIONS)  # type: ignore[no-any-return]


def inlined(function: _F) -> _F:
    """Compile `function` into the compiled functions that call it: a call with arrays would cost more than the work."""
    return numba.njit(function, forceinline=True, fastmath=True, **_OPTIONS)  # type: ignore[no-any-return]


# --- Machine instructions that numba has no name for ------------------------------------------------------------------

_BYTE, _WORD64 = ir.IntType(8), ir.IntType(64)
_CHUNK = ir.VectorType(_BYTE, 64)


def address_of(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    """Return the address of the element at `offset` of a C-ordered array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [offset])


def row_address(context: Any, builder: Any, kind: Any, table: Any, row: Any, column: Any) -> Any:
    """Return the address of `table[row, column]` of a C-ordered 2-d array."""
    array = context.make_array(kind)(context, builder, table)
    width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
    return builder.gep(array.data, [builder.add(builder.mul(row, width), column)])


@intrinsic
def prefetch(typing: Any, table: Any, row: Any, column: Any) -> Any:
    """Request the cache line of `table[row, column]` ahead of its use; a row outside the table does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, flag = _BYTE.as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place, flag, flag, flag])
        hint = builder.module.declare_intrinsic("llvm.prefetch", (place,), kind)
        address = builder.bitcast(row_address(context, builder, signature.args[0], *arguments), place)
        read, keep, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(hint, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), generate


@intrinsic
def trailing_zeros(typing: Any, bits: Any) -> Any:
    """Return how many low bits of a number other than 0 are 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def _ones(typing: Any, bits: Any) -> Any:
    """Return how many bits are 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@intrinsic
def _load_8(typing: Any, text: Any, offset: Any) -> Any:
    """Return the 8 bytes from `offset` of `text`, which need not be aligned, as one integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, _WORD64.as_pointer()), align=1)

    return types.int64(text, types.int64), generate


@intrinsic
def _classify_64(typing: Any, text: Any, offset: Any, lowered: Any) -> Any:
    """Return what the 64 bytes from `offset` are, one bit each: (of a word, NUL, not ASCII); copy them lower-cased."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = address_of(context, builder, signature.args[0], arguments[0], arguments[1])
        target = address_of(context, builder, signature.args[2], arguments[2], arguments[1])
        chunk = builder.load(builder.bitcast(source, _CHUNK.as_pointer()), align=1)

        def every(value: int) -> Any:
            return ir.Constant(_CHUNK, [value] * 64)

        def within(values: Any, first: int, last: int) -> Any:
            return builder.icmp_unsigned("<", builder.sub(values, every(first)), every(last - first + 1))

        case = builder.shl(builder.zext(within(chunk, ord("A"), ord("Z")), _CHUNK), every(5))
        lower = builder.or_(chunk, case)
        builder.store(lower, builder.bitcast(target, _CHUNK.as_pointer()), align=1)
        not_ascii = builder.icmp_signed("<", chunk, every(0))
        word = builder.or_(within(lower, ord("a"), ord("z")), within(lower, ord("0"), ord("9")))
        word = builder.or_(word, builder.or_(within(lower, 0x00, 0x08), within(lower, 0x0E, 0x1F)))
        word = builder.or_(word, builder.or_(not_ascii, builder.icmp_unsigned("==", lower, every(0x7F))))
        nul = builder.icmp_unsigned("==", chunk, every(0))
        bits = [builder.bitcast(mask, _WORD64) for mask in (word, nul, not_ascii)]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.int64, 3)(text, types.int64, lowered), generate


# --- From bytes to words ----------------------------------------------------------------------------------------------


class Scratch(NamedTuple):
    """Memory that one thread uses for block after block."""

    lowered: npt.NDArray[np.uint8]  # [bytes] the block with ASCII letters in lower case
    lowered_view: npt.NDArray[np.uint8]  # the same memory, read-only as the block is: one type, compiled once
    word_bits: npt.NDArray[np.int64]  # [bytes / 64] which bytes belong to words
    other_bits: npt.NDArray[np.int64]  # [bytes / 64] which bytes are not ASCII
    edges: npt.NDArray[np.int32]  # [bytes] where words start and end, in turn
    rows: npt.NDArray[np.int32]  # [words] the row of each word of the block, -1 for an unknown word
    missing: npt.NDArray[np.int32]  # [words] which words were not found


@compiled
def separate(data: Any, offsets: Any, block: Any) -> None:
    """Copy the texts `data[offsets[i]:offsets[i + 1]]` into a block, a NUL after each, and NULs up to its end."""
    place = np.int64(0)
    for text in range(len(offsets) - 1):
        for byte in range(offsets[text], offsets[text + 1]):
            block[place] = data[byte]
            place += 1
        block[place] = 0
        place += 1
    for padding in range(place, len(block)):
        block[padding] = 0


@compiled
def mark(block: Any, used: int, ends: Any, joined: bool, scratch: Scratch) -> tuple[int, int]:
    """Fill the bit masks; return how many texts end (with `joined`) and how many chunks have bytes beyond ASCII.

    With `joined`, every NUL of the `used` bytes ends a text, and `ends` is filled. Without, `ends` is given, and any
    other NUL is part of a word, as it is for BERT.
    """
    lowered, word_bits, other_bits = scratch.lowered, scratch.word_bits, scratch.other_bits
    texts = 0
    beyond = 0
    chunks = (used + 63) // 64
    for chunk in range(chunks):
        word, nul, other = _classify_64(block, chunk * 64, lowered)
        if joined:
            word &= ~nul
            while nul != 0:
                at = chunk * 64 + trailing_zeros(nul)
                if at < used:
                    if texts < len(ends):
                        ends[texts] = at
                    texts += 1
                nul &= nul - 1  # clears the lowest bit that is 1
        word_bits[chunk] = word
        other_bits[chunk] = other
        beyond += other != 0
    if not joined:
        for end in ends:
            word_bits[end >> 6] &= ~(1 << (end & 63))
        for at in range(used, chunks * 64):
            word_bits[at >> 6] &= ~(1 << (at & 63))
    return texts, beyond


@compiled
def drop_separators(block: Any, used: int, classes: Any, scratch: Scratch) -> int:
    """Clear the bits of separators beyond ASCII; return the first code point whose class is not known yet, or -1.

    `classes` holds for each code point 0 for not known, 1 for part of a word, 2 for separator.
    """
    word_bits, other_bits = scratch.word_bits, scratch.other_bits
    for chunk in range((used + 63) // 64):
        other = other_bits[chunk]
        while other != 0:
            at = chunk * 64 + trailing_zeros(other)
            other &= other - 1
            lead = np.int64(block[at])
            if lead < 0xC0:  # the second to fourth byte of a code point
                continue
            size = (
                2 + (lead >= 0xE0) + (lead >= 0xF0)
            )  # UTF-8: 110xxxxx begins two bytes, 1110xxxx three, 11110xxx four
            point = lead & (0x7F >> size)
            for following in range(at + 1, at + size):  # each of the form 10xxxxxx
                point = (point << 6) | (np.int64(block[following]) & 0x3F)
            if classes[point] == 0:
                return point
            if classes[point] == 2:
                for byte in range(at, at + size):
                    word_bits[byte >> 6] &= ~(1 << (byte & 63))
    return -1


@compiled
def cut(used: int, ends: Any, scratch: Scratch) -> int:
    """List the edges of the words, turn `ends` from bytes into words, and return the number of words.

    A byte is an edge where it belongs to a word and the byte before it does not, or the reverse:

        text    . t h e   c a t .
        word    0 1 1 1 0 1 1 1 0
        before  0 0 1 1 1 0 1 1 1     the bits of `word`, each moved to the next byte
        edges   0 1 0 0 1 1 0 0 1     word XOR before: 1 to 4 is "the", 5 to 8 is "cat"
    """
    word_bits, all_edges = scratch.word_bits, scratch.edges
    found = 0
    carry = 0
    text = 0
    for chunk in range((used + 63) // 64):
        word = word_bits[chunk]
        edges = word ^ ((word << 1) | carry)  # the lowest bit is the first byte, so "next" is a shift to the left
        carry = (word >> 63) & 1  # the last byte of this chunk is before the first of the next
        while text < len(ends) and ends[text] < chunk * 64 + 64:
            upto = (2 << (ends[text] & 63)) - 1  # a 1 for each byte of the chunk up to the text's end
            ends[text] = (found + _ones(edges & upto)) >> 1  # two edges a word
            text += 1
        while edges != 0:
            all_edges[found] = chunk * 64 + trailing_zeros(edges)
            edges &= edges - 1
            found += 1
    return found >> 1


# --- From words to rows -----------------------------------------------------------------------------------------------


class WordIndex(NamedTuple):
    """Words and their rows, a hash table with open addressing.

    A word's slot is the first free one from its hash on. The table is never more than half full, so a search meets
    about one slot.

    A slot holds a key of 16 bytes, `length | start in blob << 32`, and the row. Up to 16 bytes the key is the word; for
    a longer word it is a hash, and the bytes in `blob` decide.
    """

    slots: npt.NDArray[np.int64]  # [2 ** n, 4]
    blob: npt.NDArray[np.uint8]
    mixers: npt.NDArray[np.int64]  # [2] odd random factors, new each time: nobody can prepare words that all collide
    used: npt.NDArray[np.int64]  # [2] how many words and bytes it holds; see `learn`


class Pieces(NamedTuple):
    """The tokens into which BERT's tokenizer cuts ASCII letters and digits: the longest known one each time."""

    first: WordIndex  # those at the start of a word
    inside: WordIndex  # those inside a word, without the mark ##
    longest: int  # bytes of the longest piece; 0 where the tokenizer is of another kind
    longest_word: int  # bytes; a longer word is not cut
    lower: bool  # it reads a word in lower case


class Lexicon(NamedTuple):
    """Everything that decides which row a word has."""

    words: WordIndex  # the vocabulary
    learnt: WordIndex  # rows found for words that are not in it; -1 for unknown ones
    cased: bool  # the vocabulary has words that are not lower-case: try a word as it is first
    complete: bool  # there is no prefix to try: an ASCII word that is not found is unknown
    pieces: Pieces
    starts: npt.NDArray[np.int64]  # [rows + 1] where the word of each row begins in the blob of `words`


_BATCH = 32  # words whose slots are prefetched together: each waits while the others' keys are computed
_LEARNT_BYTES = 128  # a longer word is not remembered
_KEEP = np.array([(1 << 8 * n) - 1 for n in range(8)] + [-1], dtype=np.int64)  # the first n of 8 bytes


@inlined
def _key(text: Any, start: Any, length: Any) -> tuple[int, int]:
    """Return a key of 16 bytes for a word: its bytes, or for more than 16 a hash of them."""
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
    """Return the first slot to try for a key: the highest bits of the products, which depend on every bit of it."""
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
def _find(index: WordIndex, text: Any, start: Any, length: Any) -> Any:
    """Return the slot of the word `text[start : start + length]`, or the empty one where it would go."""
    slots, blob, mixers, _ = index
    key = _key(text, start, length)
    return _find_from(_home(slots, mixers, key, length), key, slots, blob, text, start, length)


@compiled
def _same(blob: Any, at: int, text: Any, start: Any, length: Any) -> bool:
    for byte in range(length):
        if blob[at + byte] != text[start + byte]:
            return False
    return True


@compiled
def insert(index: WordIndex, starts: Any, rows: Any) -> None:
    """Put the words `blob[starts[i]:starts[i + 1]]` with their `rows` into the index, unless they are there."""
    slots, blob = index.slots, index.blob
    for word in range(len(rows)):
        start, length = starts[word], starts[word + 1] - starts[word]
        slot = _find(index, blob, start, length)
        if length > 0 and slots[slot, 2] == 0:
            slots[slot, 0], slots[slot, 1] = _key(blob, start, length)
            slots[slot, 2], slots[slot, 3] = length | (start << 32), rows[word]


@compiled
def forget(index: WordIndex) -> None:
    """Empty an index."""
    index.slots[:] = 0
    index.slots[:, 3] = -1
    index.used[:] = 0


@compiled
def learn(index: WordIndex, text: Any, start: Any, end: Any, row: Any) -> None:
    """Put the word `text[start:end]` with its row into an index that is emptied when it is full."""
    slots, blob, _, used = index
    length = np.int64(end) - start
    if length == 0 or length > _LEARNT_BYTES:
        return
    if 2 * used[0] >= len(slots) or used[1] + length > len(blob) - 16:
        forget(index)
    slot = _find(index, text, start, length)
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
def _longest_known(index: WordIndex, text: Any, start: Any, most: Any) -> Any:
    """Return the length, at most `most`, of the longest indexed word that the text has at `start`, or 0."""
    length = most
    while length > 0 and index.slots[_find(index, text, start, length), 2] == 0:
        length -= 1
    return length


@compiled
def _prefix_row(text: Any, start: Any, end: Any, words: WordIndex, pieces: Pieces) -> int:
    """Return the row of the longest known prefix that ends between two pieces, or -1; see `Vocabulary.row`."""
    row = np.int64(-1)
    if end - start > pieces.longest_word:
        return row
    index = pieces.first
    place = start
    while place < end:
        length = _longest_known(index, text, place, min(end - place, np.int64(pieces.longest)))
        if length == 0:  # the word has no pieces
            return np.int64(-1)
        place += length
        if place < end:
            known = words.slots[_find(words, text, start, place - start), 3]
            row = known if known >= 0 else row
        index = pieces.inside
    return row


@inlined
def _fetch(slots: Any, mixers: Any, text: Any, edges: Any, first: int, last: int, keys: Any) -> None:
    """Compute key and first slot of the words `first` to `last`, and prefetch these slots."""
    for word in range(first, last):
        start, end = np.int64(edges[2 * word]), np.int64(edges[2 * word + 1])
        key = _key(text, start, end - start)
        home = _home(slots, mixers, key, end - start)
        prefetch(slots, np.int64(home), np.int64(0))
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
    """Set the row of a word that is not in the vocabulary as written; return 1 if only Python can find it."""
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
def learn_all(index: WordIndex, text: Any, edges: Any, rows: Any) -> None:
    """Put the words `text[edges[i, 0]:edges[i, 1]]` with their `rows` into an index, see `learn`."""
    for word in range(len(rows)):
        learn(index, text, np.int64(edges[word, 0]), np.int64(edges[word, 1]), rows[word])


@compiled
def list_others(block: Any, words: int, lexicon: Lexicon, scratch: Scratch) -> int:
    """List in `missing` the words that have the row of another word, such as of their beginning; return how many.

    A word that differs from the row's in the case of ASCII letters alone is not another. Beyond ASCII, any case is.
    """
    blob, starts = lexicon.words.blob, lexicon.starts
    others = 0
    for word in range(words):
        row = scratch.rows[word]
        if row < 0:
            continue
        start, end = np.int64(scratch.edges[2 * word]), np.int64(scratch.edges[2 * word + 1])
        at, length = starts[row], starts[row + 1] - starts[row]
        if end - start == length and (
            _same(blob, at, scratch.lowered_view, start, length) or _same(blob, at, block, start, length)
        ):
            continue
        scratch.missing[others] = word
        others += 1
    return others
