"""From a block of UTF-8 to its words, compiled; `lookup.py` and `pooling.py` go on from there.

`bulk.py` drives these functions; `split_words` says what they must compute. Step by step:

1. `mark`: 64 bytes at a time, which bytes belong to words, as bits; ASCII letters are lower-cased on the way;
2. `drop_separators`: clear the bits of separators beyond ASCII, by a table that `bulk.py` reads off BERT's own rule;
3. `cut`: list where runs of bits start and end.

All run without the GIL and make no Python object. numba keeps compiled code until the file that holds it changes and
does not look at imported ones: what is compiled into a function is best in the same file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_F = TypeVar("_F", bound=Callable[..., Any])


_OPTIONS = {"nogil": True, "fastmath": True, "error_model": "numpy"}


def compiled(function: _F) -> _F:
    """Compile `function` at its first call, keeping the machine code on disk where a folder can be written."""
    try:
        return numba.njit(function, cache=True, **_OPTIONS)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no folder for its cache, neither beside this file nor in the home folder
        return numba.njit(function, **_OPTIONS)  # type: ignore[no-any-return]


def inlined(function: _F) -> _F:
    """Compile `function` into the compiled functions that call it: a call with arrays would cost more than the work."""
    return numba.njit(function, forceinline=True, **_OPTIONS)  # type: ignore[no-any-return]


# --- Machine instructions that numba has no name for ------------------------------------------------------------------

_BYTE, _WORD64 = ir.IntType(8), ir.IntType(64)
_CHUNK = ir.VectorType(_BYTE, 64)


def address_of(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    """Return the address of the element at `offset` of a C-ordered array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [offset])


def prefetch(builder: Any, address: Any) -> None:
    """Emit the instruction that asks for the cache line at `address`, which may lie outside of all memory."""
    place, flag = _BYTE.as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [place, flag, flag, flag])
    hint = builder.module.declare_intrinsic("llvm.prefetch", (place,), kind)
    read, keep, data = (ir.Constant(flag, value) for value in (0, 3, 1))
    builder.call(hint, [builder.bitcast(address, place), read, keep, data])


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
                nul &= nul - 1
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
            size = 2 + (lead >= 0xE0) + (lead >= 0xF0)
            point = lead & (0x7F >> size)
            for following in range(at + 1, at + size):
                point = (point << 6) | (np.int64(block[following]) & 0x3F)
            if classes[point] == 0:
                return point
            if classes[point] == 2:
                for byte in range(at, at + size):
                    word_bits[byte >> 6] &= ~(1 << (byte & 63))
    return -1


@compiled
def cut(used: int, ends: Any, scratch: Scratch) -> int:
    """List the edges of the words, turn `ends` from bytes into words, and return the number of words."""
    word_bits, all_edges = scratch.word_bits, scratch.edges
    found = 0
    carry = 0
    text = 0
    for chunk in range((used + 63) // 64):
        word = word_bits[chunk]
        edges = word ^ ((word << 1) | carry)
        carry = (word >> 63) & 1
        while text < len(ends) and ends[text] < chunk * 64 + 64:
            ends[text] = (found + _ones(edges & ((2 << (ends[text] & 63)) - 1))) >> 1
            text += 1
        while edges != 0:
            all_edges[found] = chunk * 64 + trailing_zeros(edges)
            edges &= edges - 1
            found += 1
    return found >> 1
