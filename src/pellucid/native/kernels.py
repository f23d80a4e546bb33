"""The functions of the C library, called with checked arrays.

Nothing else calls C. A call frees the GIL. C gets addresses of arrays whose dtype, shape and order were checked, and
numbers that were compared with their sizes; it keeps no reference, so a class here keeps what it was given.

An array may be a mapped file that another process changes, or memory that another thread changes. So what says where C
reads and writes (offsets, indices, lengths) is either a copy made here before it is checked, or is read once by C and
compared with the sizes there. Numbers that are only added up may change at any time: they make wrong sums, no more.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.native.library import library

CHANGED = "it was changed while it was in use: open the model again, and replace its files in place of writing to them"
_NOTHING = ctypes.c_char * 0
KINDS = {"float32": 0, "float16": 1, "int16": 1, "uint16": 1, "int8": 2}  # int16, uint16: float16 by its bits
_INT8, _INT8_EVEN, _INT4 = 2, 3, 4  # as in rows.h


def checked(name: str, array: npt.NDArray[Any], kind: Any, shape: tuple[int, ...], *, writes: bool = False) -> int:
    """Return where an array lies, after checking that it is what a C function expects."""
    flags, fits = array.flags, array.dtype == kind and array.dtype.isnative and array.shape == shape
    if not (fits and flags.c_contiguous and flags.aligned) or writes > flags.writeable:
        raise InputError(
            f"{name} is {array.dtype} {list(array.shape)}; the C function takes {np.dtype(kind)} {list(shape)}, its "
            f"rows one after another, aligned{' and writable' if writes else ''}"
        )
    return address(array)


def pointers(names: str) -> list[tuple[str, Any]]:
    """Return the fields of a struct that are addresses."""
    return [(name, ctypes.c_void_p) for name in names.split()]


def integers(names: str) -> list[tuple[str, Any]]:
    """Return the fields of a struct that are whole numbers of 64 bits."""
    return [(name, ctypes.c_int64) for name in names.split()]


def structure(*fields: tuple[str, Any]) -> Any:
    """Return the class of a struct of C with these fields."""
    return type("Struct", (ctypes.Structure,), {"_fields_": list(fields)})


def checked_copy(name: str, array: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """Return a copy of a list of numbers that C follows, so that no other thread changes it after the check."""
    checked(name, array, kind, (len(array),))
    return array.copy()


def address(array: Any) -> int:
    """Return where the numbers of an array lie, for one that was checked or made here."""
    if array.flags.writeable:  # five times as fast, which counts where a text is short
        return ctypes.addressof(_NOTHING.from_buffer(array))
    return int(array.__array_interface__["data"][0])


def check_range(name: str, first: int, last: int, count: int) -> None:
    """Check that `first` to `last` are within `count`."""
    if not 0 <= first <= last <= count:
        raise InputError(f"{name} {first} to {last} are asked for, and there are {count}")


def _check_numbers(name: str, numbers: npt.NDArray[Any], limit: int, minimum: int = 0) -> None:
    """Check that all numbers are from `minimum` to below `limit`."""
    if not are_within(numbers, limit, minimum):
        low, high = numbers.min(), numbers.max()
        raise InputError(f"{name} are {low} to {high}, and must be from {minimum} to {limit - 1}")


def are_within(numbers: npt.NDArray[Any], limit: int, minimum: int = 0) -> bool:
    """Whether all numbers are from `minimum` to below `limit`."""
    return not len(numbers) or bool(numbers.min() >= minimum and numbers.max() < limit)


def _check_ends(ends: npt.NDArray[Any], count: int) -> None:
    """Check that texts end one after the other among `count` words."""
    if not are_rising(ends, count):
        raise InputError(f"the ends of {len(ends)} texts do not divide {count} words")


def are_rising(ends: npt.NDArray[Any], count: int) -> bool:
    """Whether numbers rise from 0 or more to at most `count`; their differences may overflow."""
    return not len(ends) or bool(0 <= ends[0] and (ends[1:] >= ends[:-1]).all() and ends[-1] <= count)


def are_ends(ends: npt.NDArray[Any], count: int) -> bool:
    """Whether numbers rise from 0 to `count`."""
    return bool(ends[0] == 0 and ends[-1] == count) and are_rising(ends, count)


# --- Words ------------------------------------------------------------------------------------------------------------

PADDING = 96  # zeros after a block, so that 64 bytes may be read from any place in it
_KEY = 16  # bytes after the words of an index, which are read in one go
_AHEAD = 12  # rows after those of a block, which are looked at but not used
_MAX_BLOCK_BYTES = 1 << 31  # bytes of a block: positions in it are 32-bit
NUL_IN_TEXT, UNCLASSIFIED = -1, -16  # as in words.c
OTHER_FORM, UNSPACED = 1, 2  # what a block may be left for: texts of class 3, and of class 4
_SLOT = np.dtype([("key", np.uint64, 2), ("length", np.uint32), ("start", np.uint32), ("row", np.int64)])


_IndexStruct = structure(
    *pointers("slots"),
    *integers("bits"),
    *pointers("blob"),
    *integers("size"),
    ("mixers", ctypes.c_uint64 * 2),
    *integers("words used"),
)


_LexiconStruct = structure(
    *pointers("words learnt first inside"), *integers("longest longest_word lower cased exact complete")
)


_ScratchStruct = structure(*pointers("lowered word_bits other_bits edges rows missing"))


_PYTHON_FUNCTIONS = "PyList_GetItem PyUnicode_GetLength PyUnicode_AsUTF8AndSize PyBytes_Size PyBytes_AsString"


_PythonStruct = structure(*pointers(_PYTHON_FUNCTIONS))


_python = _PythonStruct(
    *(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _PYTHON_FUNCTIONS.split())
)


def count_characters(texts: list[str], first: int, last: int) -> int:
    """Return how many characters the texts `first` to `last` have."""
    return int(library().words_count_characters(texts, first, last, byref(_python)))


def join_strings(texts: list[str], block: npt.NDArray[np.uint8]) -> int:
    """Write texts as UTF-8 into `block`, a NUL after each, and `PADDING` zeros; return the bytes before the padding.

    -1: the block is too small.

    Raises:
        UnicodeEncodeError: a text holds a lone surrogate.
    """
    items: list[Any] = texts
    is_ascii = bytes(map(str.isascii, texts))
    index = is_ascii.find(0)
    if index >= 0:
        items = texts.copy()
    while index >= 0:
        items[index] = str.encode(texts[index])  # which a subclass may have replaced
        index = is_ascii.find(0, index + 1)
    n_bytes = library().words_join_list(
        items, len(is_ascii), is_ascii, checked("block", block, np.uint8, (len(block),), writes=True), len(block),
        PADDING, byref(_python),
    )  # fmt: skip
    return max(int(n_bytes), -1)


class WordIndex:
    """Words and their numbers, for the functions of words.c."""

    def __init__(self, words: Sequence[str] = (), *, room: tuple[int, int] = (0, 0)) -> None:
        """Index words by their places; with `room`, make an empty index for so many words and bytes, which may grow."""
        spelled = np.frombuffer("".join(words).encode("utf-8", "surrogatepass"), np.uint8)
        starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, words), np.int64, len(words)), out=starts[1:])
        if len(spelled) > starts[-1]:  # not in ASCII: a character begins with any byte but these
            starts = np.append(np.flatnonzero((spelled & 0xC0) != 0x80), len(spelled))[starts]
        count, size = max(room[0], len(words)), max(room[1], len(spelled))
        if size >= _MAX_BLOCK_BYTES:
            raise InputError(f"the words have {size:,} bytes together; a vocabulary must have less than 2 GB")
        bits = max(count - 1, 1).bit_length() + 1  # at most half of the slots are used
        self._slots, self._blob = np.empty(1 << bits, _SLOT), np.zeros(size + _KEY, np.uint8)
        self._blob[: len(spelled)] = spelled
        mixers = (ctypes.c_uint64 * 2)(*(int.from_bytes(os.urandom(8), "little") | 1 for _ in range(2)))
        self._struct = _IndexStruct(address(self._slots), bits, address(self._blob), size, mixers, 0, 0)
        self.address = ctypes.addressof(self._struct)
        self.forget()
        library().words_insert(self.address, address(starts), len(words))

    def forget(self) -> None:
        """Empty it."""
        library().words_forget(self.address)


class Pieces:
    """The tokens into which BERT's tokenizer cuts ASCII letters and digits: the longest known one each time."""

    def __init__(
        self,
        first: Sequence[str] = (),
        inside: Sequence[str] = (),
        max_word_chars: int = 0,
        *,
        lower: bool = False,
    ) -> None:
        """Take those at the start of a word and inside one, without the mark ##; longer words are not cut."""
        self.first, self.inside = WordIndex(first), WordIndex(inside)
        self.max_token_chars = max(map(len, (*first, *inside)), default=0)
        self.max_word_chars, self.lower = max_word_chars, lower


class WordReader:
    """Finds the words of block after block of texts, and their rows; for one thread.

    Attributes:
        block: uint8, memory for a block, which may be another.
        rows: int32, of the words of a block; there are more than words.
        edges: int32 [words, 2] and more, where each begins and ends in the block, in bytes.
        missing: int32, which words were not found, and more.
    """

    def __init__(
        self,
        words: WordIndex,
        learnt: WordIndex,
        pieces: Pieces,
        classes: npt.NDArray[np.uint8],
        size: int,
        *,
        cased: bool,
        complete: bool,
        exact: bool = False,
    ) -> None:
        """Take the words with a row, an index that may grow, a class for each code point, and the bytes of a block.

        Classes, which may change, are 0 for not known yet, 1 for part of a word, 2 for a separator, 3 for part of a
        word that may have another normal form, 4 for one of a script without spaces.

        With `cased` words are first looked up as they are, with `exact`, too, only so; with `complete` no word is read
        as its beginning.
        """
        self._library, self._size = library(), size
        chunks = size // 64 + 1
        self.block = np.zeros(size + PADDING, np.uint8)
        self._lowered = np.zeros(chunks * 64 + PADDING, np.uint8)
        self._bits = np.empty((2, chunks), np.uint64)
        self.edges = np.empty((chunks * 32, 2), np.int32)
        self.rows, self.missing = np.zeros(chunks * 32 + _AHEAD, np.int32), np.empty(chunks * 32, np.int32)
        arrays = (self._lowered, *self._bits, self.edges, self.rows, self.missing)
        self._scratch = byref(_ScratchStruct(*map(address, arrays)))
        self._keepalive = words, learnt, pieces, classes
        self._classes = checked("classes", classes, np.uint8, (0x110000,))
        self._lexicon = byref(_LexiconStruct(
            *(index.address for index in (words, learnt, pieces.first, pieces.inside)),
            pieces.max_token_chars, pieces.max_word_chars, pieces.lower, cased, exact, complete,
        ))  # fmt: skip
        self._block_address = self._words = self._missing = 0

    def find(
        self, block: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32], *, stops: int = 0, joined: bool = True
    ) -> int:
        """Find the words of a block and their rows; return how many are `missing`: only Python can find these.

        With `joined` every NUL ends a text, and `ends` are set. Without they are given, in bytes, and any other NUL is
        part of a word, as it is for BERT. At last they are numbers of words.

        Args:
            block: the valid UTF-8 of some texts, a NUL after each, and `PADDING` zeros.
            ends: an end for each text.
            stops: `OTHER_FORM` and `UNSPACED`, added up: which texts are not to be read.
            joined: whether texts hold no NUL.

        Returns:
            the number; or `NUL_IN_TEXT`; or `UNCLASSIFIED` - c for a code point c whose class is 0; or
            `NUL_IN_TEXT` - those of `stops` that the texts have. Then nothing was found.
        """
        used, texts = len(block) - PADDING, len(ends)
        if not 0 <= used <= self._size or used > _MAX_BLOCK_BYTES - PADDING:
            raise InputError(f"a block has {used} bytes, and there is room for {self._size}")
        block_address = checked("block", block, np.uint8, (len(block),))
        ends_address = checked("ends", ends, np.int32, (texts,), writes=True)
        if not joined and texts and not (0 <= ends[0] and (ends[1:] > ends[:-1]).all() and ends[-1] < used):
            raise InputError(f"texts end outside the {used} bytes of their block")
        words, self._block, self._block_address = ctypes.c_int64(), block, block_address
        n_missing = self._library.words_find(
            self._lexicon, block_address, used, ends_address, texts, joined, self._classes, stops, self._scratch,
            byref(words),
        )  # fmt: skip
        self._words, self._missing = words.value, max(n_missing, 0)
        return int(n_missing)

    def look_again(self, first: int, last: int) -> int:
        """Look up the missing words `first` to `last` once more; those still missing stand from `first` on."""
        check_range("missing words", first, last, self._missing)
        return int(self._library.words_look_again(self._lexicon, self._block_address, self._scratch, first, last))

    def learn(self, word_indices: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]) -> None:
        """Remember the rows of some words of the block, given by their numbers."""
        shape = (len(word_indices),)
        addresses = checked("words", word_indices, np.int32, shape), checked("rows", rows, np.int32, shape)
        _check_numbers("words", word_indices, self._words)
        learnt, edges = self._keepalive[1].address, address(self.edges)
        self._library.words_learn(learnt, self._block_address, edges, *addresses, len(word_indices))

    def list_tokens(self, byte_classes: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Return which words stand between blanks, with at most one mark before and one after them.

        `byte_classes` [256] says what a byte is beside a word: 1 for a blank, + 2 for a mark before, + 4 after it.
        """
        is_token = np.empty(self._words, np.bool_)
        classes = checked("classes", byte_classes, np.uint8, (256,))
        self._library.words_list_tokens(self._block_address, classes, self._scratch, self._words, address(is_token))
        return is_token


def distinct_values(
    values: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first places and counts of the distinct `values`, and the number of each value among these.

    They are numbered in the order of their first places. A negative value is none of them, and has the number -1.
    """
    size = len(values)
    bits, memory = size.bit_length() + 1, np.empty((3, size), np.int64)
    slots = np.empty(1 << bits, np.int32)
    slots.fill(-1)
    first = address(memory)
    addresses = address(slots), bits, first, first + 8 * size, first + 16 * size
    n_distinct = library().words_distinct(checked("values", values, np.int64, (size,)), size, *addresses)
    return memory[0, :n_distinct], memory[1, :n_distinct], memory[2]


def group_words(words: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], limit: int) -> tuple[Any, ...]:
    """Return the words of texts, numbers below `limit`, as groups of equal ones in the order of their first places.

    Text i's words stand before `ends[i]`. What comes back is int64: the number of each group, how many words it has,
    the places of all words, group by group, and where each text's groups end.
    """
    words, ends = checked_copy("words", words, np.int64), checked_copy("ends", ends, np.int64)
    _check_numbers("words", words, limit)
    size, texts = len(words), len(ends)
    _check_ends(ends, size)
    slots, memory, last = np.zeros(limit, np.int64), np.empty((3, size), np.int64), np.empty(texts, np.int64)
    first = address(memory)
    groups = library().words_group(
        address(words),
        address(ends),
        texts,
        address(slots),
        first,
        first + 8 * size,
        first + 16 * size,
        address(last),
    )
    return memory[0, :groups], memory[1, :groups], memory[2, : int(ends[-1]) if texts else 0], last


# --- Pooling ----------------------------------------------------------------------------------------------------------


_TableStruct = structure(*pointers("vectors scales"), *integers("kind words dimension"))


def table_numbers(vectors: Any, scales: npt.NDArray[np.float32] | None) -> tuple[int, int, int]:
    """Return where the numbers of a table and its scales lie (0: none), and the kind that they are."""
    kind, shape, numbers = KINDS.get(vectors.dtype.name), tuple(vectors.shape), vectors
    if kind is None or len(shape) != 2 or (kind == _INT8) != (scales is not None):
        raise InputError(
            f"a table is {vectors.dtype} {list(shape)} with{'out' * (scales is None)} scales; it must be float32 or "
            "float16 [words, dimension], or int8 with scales"
        )
    words, dimension = shape
    if (packed := getattr(vectors, "halves", None)) is not None:
        numbers, kind, shape = packed, _INT4, (words, (dimension + 1) // 2)
    elif scales is not None and words and scales.min() == scales.max():
        kind = _INT8_EVEN
    start = checked("vectors", numbers, np.uint8 if kind == _INT4 else numbers.dtype, shape)
    return start, 0 if scales is None else checked("scales", scales, np.float32, (words,)), kind


class VectorTable:
    """The functions of pooling.c for a static model's table; for any number of threads."""

    def __init__(self, vectors: Any, scales: npt.NDArray[np.float32] | None) -> None:
        """Take vectors [words, dimension], float32, float16, int8 or `PackedRows`, and the scales of int8 [words]."""
        numbers = table_numbers(vectors, scales)
        self.words, self.dimension = vectors.shape
        self._library, self._keepalive = library(), (vectors, scales)
        self._struct = byref(_TableStruct(*numbers, self.words, self.dimension))

    def pool(
        self, rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int32], spelled: npt.NDArray[np.float32],
        embeddings: npt.NDArray[np.float32],
    ) -> None:  # fmt: skip
        """Set `embeddings` [texts, dimension] to the L2-normalised sums of the rows of texts, which end at `ends`.

        `rows` are changed. Rows from `words` on are those of `spelled` [any, dimension]; unknown words have -1.
        """
        texts = len(ends)
        _checked_ends(rows, ends)
        total, exact = self._memory()
        bad_row = self._library.pooling_pool(
            self._struct, checked("rows", rows, np.int32, (len(rows),), writes=True),
            checked("ends", ends, np.int32, (texts,)), texts,
            checked("spelled", spelled, np.float32, (len(spelled), self.dimension)), len(spelled),
            address(total), address(exact), address(exact) + 8 * self.dimension,
            checked("embeddings", embeddings, np.float32, (texts, self.dimension), writes=True),
        )  # fmt: skip
        if bad_row >= 0:
            raise InputError(
                f"a word has row {bad_row}, and the table has {self.words:,}; was the vocabulary changed while texts "
                "were encoded?"
            )

    def products(
        self, distinct: npt.NDArray[np.int32], rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int64],
        query_vectors: npt.NDArray[np.float32],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:  # fmt: skip
        """Return the products of rows `distinct` and `query_vectors`, and the length of each text's sum of `rows`."""
        distinct, rows = checked_copy("rows", distinct, np.int32), checked_copy("rows", rows, np.int32)
        ends = checked_copy("ends", ends, np.int64)
        _check_numbers("rows", distinct, self.words)
        _check_numbers("rows", rows, self.words)
        _check_ends(ends, len(rows))
        products, lengths = np.empty((len(distinct), len(query_vectors))), np.empty(len(ends))
        total, exact = self._memory()
        self._library.pooling_products(
            self._struct, address(distinct), len(distinct), address(rows), address(ends), len(ends),
            checked("vectors", query_vectors, np.float32, (len(query_vectors), self.dimension)), len(query_vectors),
            address(total), address(exact), address(products), address(lengths),
        )  # fmt: skip
        return products, lengths

    def _memory(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        return np.empty(-(-self.dimension // 16) * 16, np.float32), np.empty(2 * self.dimension)


def _checked_ends(rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]) -> int:
    """Check that texts end among `rows`, after which there is room to look ahead; return how many rows they have."""
    checked("ends", ends, np.int32, (len(ends),))
    used = int(ends[-1]) if len(ends) else 0
    if not are_rising(ends, used) or used + _AHEAD > len(rows):
        raise InputError(f"the ends of {len(ends)} texts do not divide {len(rows)} words, {_AHEAD} of them to spare")
    return used


def pair_products(
    vectors: npt.NDArray[np.float32], counts: npt.NDArray[np.float64], first: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return what pairs of words add to the cosine of two texts [words 1, words 2], and the lengths of their sums [2].

    `vectors` [words, dimension] are those of the distinct words of one text, the `first` ones, and of another.
    """
    words, dimension = vectors.shape
    check_range("words", first, words, words)
    padded = -(-dimension // 8) * 8
    products, lengths, memory = np.empty((first, words - first)), np.empty(2), np.zeros((first + 3, padded))
    library().pooling_pairs(
        checked("vectors", vectors, np.float32, vectors.shape), checked("counts", counts, np.float64, (words,)),
        first, words - first, dimension, address(memory), address(products), address(lengths),
    )  # fmt: skip
    return products, lengths


_SparseStruct = structure(*pointers("starts columns weights scales"), *integers("words dimension"))


class SparseTable:
    """The function of pooling.c for a static lexicon model's table; for any number of threads."""

    def __init__(self, table: Any, dimension: int) -> None:
        """Take starts [words + 1] int32, columns int16 and weights uint8 [entries], scales float32 [words]."""
        starts, columns, weights, scales = table
        checked("starts", starts, np.int32, (len(scales) + 1,))
        starts = starts.copy()  # the columns, which are many, are compared with the dimension by C
        self._starts, self._dimension, self._keepalive = starts, dimension, table
        self._struct = byref(_SparseStruct(
            address(starts),
            checked("columns", columns, np.int16, (len(columns),)),
            checked("weights", weights, np.uint8, (len(columns),)),
            checked("scales", scales, np.float32, (len(scales),)),
            len(scales), dimension,
        ))  # fmt: skip
        _check_numbers("columns", columns, dimension)
        if not are_ends(starts, len(columns)):
            raise InputError(f"the starts of {len(scales)} words do not divide {len(columns)} entries")

    def pool(
        self, rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return the L2-normalised log(1 + sum) of the rows of texts as the starts, columns and values of CSR."""
        used, texts = _checked_ends(rows, ends), len(ends)
        _check_numbers("rows", rows[:used], len(self._starts) - 1, minimum=-1)
        known_rows = rows[:used]
        known_rows = known_rows[known_rows >= 0]
        max_entries = min(int((self._starts[known_rows + 1] - self._starts[known_rows]).sum()), texts * self._dimension)
        starts = np.empty(texts + 1, np.int64)
        columns, values = np.empty(max_entries, np.int32), np.empty(max_entries, np.float32)
        sums, bits = np.zeros(self._dimension), np.zeros(-(-self._dimension // 64), np.uint64)
        count = library().pooling_pool_sparse(
            self._struct, checked("rows", rows, np.int32, (len(rows),)), checked("ends", ends, np.int32, (texts,)),
            texts, address(sums), address(bits), max_entries, address(starts), address(columns), address(values),
        )  # fmt: skip
        if count < 0:
            raise InputError(f"the table of words points outside its {self._dimension:,} columns; {CHANGED}")
        return starts, columns[:count], values[:count]
