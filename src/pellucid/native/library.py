"""The C kernels: opened once, and called with checked arrays.

Nothing else touches ctypes. A call frees the GIL. C gets addresses of arrays whose dtype, shape and order were checked,
and numbers that were compared with their sizes; it keeps no reference, so a class here keeps what it was given. Each
kernel has a twin in Python, which says what it computes; where there is no library, the twin serves.

An array may be a mapped file that another process changes, or memory that another thread changes. So what says where C
reads and writes (offsets, indices, lengths) is either a copy made here before it is checked, or is read once by C and
compared with the sizes there. Numbers that are only added up may change at any time: they make wrong sums, no more.
"""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, warn

LEVELS = ("plain", "avx2", "avx512")
"""What a processor can do, with a file of kernels for each; elsewhere than on x86-64 there is "plain" alone."""

_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p
_STRUCT = ctypes.POINTER
_CHANGED = "it was changed while it was in use: open the model again, and replace its files in place of writing to them"
_NOTHING = ctypes.c_char * 0
_KINDS = {"float32": 0, "float16": 1, "int16": 1, "uint16": 1, "int8": 2}  # int16, uint16: float16 by its bits
_INT8, _INT8_EVEN, _INT4 = 2, 3, 4  # as in rows.h


@cache
def native() -> ctypes.CDLL | None:
    """Return the library for this processor, or None where the twins in Python serve; then a warning says why.

    The environment variable PELLUCID_NATIVE names a level ("plain", "avx2", "avx512"), or "off".

    Raises:
        InputError: PELLUCID_NATIVE is none of these, or the processor lacks what the level needs.
    """
    level = os.environ.get("PELLUCID_NATIVE", "")
    if level not in ("", "off", *LEVELS):
        raise InputError(f"the environment variable PELLUCID_NATIVE is {level!r}; set it to off, {', '.join(LEVELS)}")
    if level == "off":
        warn("PELLUCID_NATIVE is off: falling back to pure Python (slower)")
        return None
    try:
        best = _open("plain").native_level()
        if level and LEVELS.index(level) > best:
            raise InputError(f"PELLUCID_NATIVE is {level!r}, and this processor can do {LEVELS[best]!r} at most")
        return _declared(_open(level or LEVELS[best]))
    except (OSError, AttributeError) as error:
        warn(
            f"the C kernels cannot be loaded, falling back to pure Python (slower): {error}. Install pellucid "
            "again where there is a C compiler, or from a wheel; in a clone: python hatch_build.py"
        )
        return None


def _open(level: str) -> ctypes.CDLL:
    ending = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    folder = Path(__file__).parent
    path = folder / "compiled" / f"kernels-{level}.{ending}"  # in a folder of their own: else they look like modules
    if ending == "so" and _is_cut_short(path):  # the loader would end the process
        raise OSError(f"{path} is cut short")
    library = ctypes.CDLL(str(path))
    sources = b"".join(source.read_bytes() for source in sorted(folder.glob("*.[ch]")))
    sources_checksum = getattr(library, "native_sources", None)
    if sources and (sources_checksum is None or sources_checksum() & 0xFFFFFFFF != zlib.crc32(sources)):
        raise OSError(f"{path} is of another version than the sources beside it")
    library.native_level.restype = _I64
    return library


def _is_cut_short(path: Path) -> bool:
    """Whether a file of 64-bit ELF ends before the table of its sections, which comes last in it."""
    content = path.read_bytes()
    if content[:5] != b"\x7fELF\x02" or len(content) < 64:
        return False  # which the loader refuses, or reads as what it is
    order: Literal["little", "big"] = "little" if content[5] == 1 else "big"
    start, size, count = (int.from_bytes(content[at:end], order) for at, end in ((40, 48), (58, 60), (60, 62)))
    return start + size * count > len(content)


def library() -> ctypes.CDLL:
    """Return the library where there is one."""
    kernels = native()
    if kernels is None:
        raise InputError("there is no C library; its callers ask native() first")
    return kernels


def _address(name: str, array: npt.NDArray[Any], kind: Any, shape: tuple[int, ...], *, writes: bool = False) -> int:
    """Return where an array lies, after checking that it is what a C function expects."""
    flags, fits = array.flags, array.dtype == kind and array.dtype.isnative and array.shape == shape
    if not (fits and flags.c_contiguous and flags.aligned) or writes > flags.writeable:
        raise InputError(
            f"{name} is {array.dtype} {list(array.shape)}; the C function takes {np.dtype(kind)} {list(shape)}, its "
            f"rows one after another, aligned{' and writable' if writes else ''}"
        )
    return _start(array)


def _copied(name: str, array: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """Return a copy of a list of numbers that C follows, so that no other thread changes it after the check."""
    _address(name, array, kind, (len(array),))
    return array.copy()


def _start(array: Any) -> int:
    """Return where the numbers of an array lie, for one that was checked or made here."""
    if array.flags.writeable:  # five times as fast, which counts where a text is short
        return ctypes.addressof(_NOTHING.from_buffer(array))
    return int(array.__array_interface__["data"][0])


# --- Words ------------------------------------------------------------------------------------------------------------

PADDING = 96  # zeros after a block, so that 64 bytes may be read from any place in it
_KEY = 16  # bytes after the words of an index, which are read in one go
_AHEAD = 12  # rows after those of a block, which are looked at but not used
_MAX_BLOCK_BYTES = 1 << 31  # bytes of a block: positions in it are 32-bit
_SLOT = np.dtype([("key", np.uint64, 2), ("length", np.uint32), ("start", np.uint32), ("row", np.int64)])


class _IndexStruct(ctypes.Structure):
    _fields_ = [
        ("slots", _POINTER), ("bits", _I64), ("blob", _POINTER), ("size", _I64), ("mixers", ctypes.c_uint64 * 2),
        ("words", _I64), ("used", _I64),
    ]  # fmt: skip


class _LexiconStruct(ctypes.Structure):
    _fields_ = [
        *((name, _STRUCT(_IndexStruct)) for name in ("words", "learnt", "first", "inside")),
        *((name, _I64) for name in ("longest", "longest_word", "lower", "cased", "complete", "letters")),
        ("share", ctypes.c_double),
        ("starts", _POINTER),
    ]


class _ScratchStruct(ctypes.Structure):
    _fields_ = [(name, _POINTER) for name in ("lowered", "word_bits", "other_bits", "edges", "rows", "missing")]


class WordIndex:
    """Words and their numbers, for the functions of words.c.

    Attributes:
        starts: where each of the words that it was made of begins among their bytes, int64 [words + 1].
    """

    def __init__(self, words: Sequence[str] = (), *, room: tuple[int, int] = (0, 0)) -> None:
        """Index words by their places; with `room`, make an empty index for so many words and bytes, which may grow."""
        spelled = np.frombuffer("".join(words).encode("utf-8", "surrogatepass"), np.uint8)
        self.starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, words), np.int64, len(words)), out=self.starts[1:])
        if len(spelled) > self.starts[-1]:  # not in ASCII: a character begins with any byte but these
            self.starts = np.append(np.flatnonzero((spelled & 0xC0) != 0x80), len(spelled))[self.starts]
        count, size = max(room[0], len(words)), max(room[1], len(spelled))
        if size >= _MAX_BLOCK_BYTES:
            raise InputError(f"the words have {size:,} bytes together; a vocabulary must have less than 2 GB")
        bits = max(count - 1, 1).bit_length() + 1  # at most half of the slots are used
        self._slots, self._blob = np.empty(1 << bits, _SLOT), np.zeros(size + _KEY, np.uint8)
        self._blob[: len(spelled)] = spelled
        mixers = (ctypes.c_uint64 * 2)(*(int.from_bytes(os.urandom(8), "little") | 1 for _ in range(2)))
        self.struct = _IndexStruct(_start(self._slots), bits, _start(self._blob), size, mixers, 0, 0)
        self.forget()
        library().words_insert(self.struct, _address("starts", self.starts, np.int64, (len(words) + 1,)), len(words))

    def forget(self) -> None:
        """Empty it."""
        library().words_forget(self.struct)


class Pieces:
    """The tokens into which BERT's tokenizer cuts ASCII letters and digits: the longest known one each time."""

    def __init__(
        self,
        first: Sequence[str] = (),
        inside: Sequence[str] = (),
        max_word_chars: int = 0,
        *,
        lower: bool = False,
        prefixes: tuple[int, float] = (1, 0.0),
    ) -> None:
        """Take those at the start of a word and inside one, without the mark ##; longer words are not cut.

        `prefixes`: the fewest characters of a prefix that a word is read as, and the least share of the word's.
        """
        self.first, self.inside = WordIndex(first), WordIndex(inside)
        self.max_token_chars = max(map(len, (*first, *inside)), default=0)
        self.max_word_chars, self.lower, self.prefixes = max_word_chars, lower, prefixes


class WordReader:
    """Finds the words of block after block of texts, and their rows; for one thread.

    Attributes:
        rows: int32, of the words of a block; there are more than words.
        edges: int32 [words, 2] and more, where each begins and ends in the block, in bytes.
        missing: int32, which words were not found, and more.
    """

    def __init__(
        self, words: WordIndex, learnt: WordIndex, pieces: Pieces, size: int, *, cased: bool, complete: bool
    ) -> None:
        """Take the words with a row, an index that may grow, and the bytes of a block.

        With `cased` words are first looked up as they are; with `complete` no word is read as its beginning.
        """
        self._library, self._size = library(), size
        chunks = size // 64 + 1
        self._lowered = np.zeros(chunks * 64 + PADDING, np.uint8)
        self._bits = np.empty((2, chunks), np.uint64)
        self.edges = np.empty((chunks * 32, 2), np.int32)
        self.rows, self.missing = np.zeros(chunks * 32 + _AHEAD, np.int32), np.empty(chunks * 32, np.int32)
        arrays = (self._lowered, *self._bits, self.edges, self.rows, self.missing)
        self._scratch = _ScratchStruct(*map(_start, arrays))
        self._keepalive = words, learnt, pieces
        self._lexicon = _LexiconStruct(
            *(ctypes.pointer(index.struct) for index in (words, learnt, pieces.first, pieces.inside)),
            pieces.max_token_chars, pieces.max_word_chars, pieces.lower, cased, complete, *pieces.prefixes,
            _address("starts", words.starts, np.int64, words.starts.shape),
        )  # fmt: skip
        self._block: tuple[Any, ...] = ()
        self._block_address = self._ends = self._used = self._texts = self._words = self._missing = 0

    def begin(self, block: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32]) -> None:
        """Take a block: the valid UTF-8 of some texts, a NUL after each, and `PADDING` zeros; and an end for each."""
        used = len(block) - PADDING
        if not 0 <= used <= self._size or used > _MAX_BLOCK_BYTES - PADDING:
            raise InputError(f"a block has {used} bytes, and there is room for {self._size}")
        self._words = self._missing = 0
        self._block_address = _address("block", block, np.uint8, (len(block),))
        self._ends = _address("ends", ends, np.int32, (len(ends),), writes=True)
        self._used, self._texts, self._block = used, len(ends), (block, ends)

    def find(self) -> int:
        """Mark, cut and look up; return how many words are `missing`, or -1: then these steps are taken one by one.

        That is so where there is more than ASCII, or a NUL within a text.
        """
        words, self._missing = _I64(), 0
        n_missing = self._library.words_find(
            self._lexicon, self._block_address, self._used, self._ends, self._texts, self._scratch, words
        )
        self._words, self._missing = words.value, max(n_missing, 0)
        return int(n_missing)

    def mark(self, *, joined: bool) -> tuple[int, int]:
        """Find which bytes belong to words; return how many NULs there are, and whether there is more than ASCII.

        With `joined` every NUL ends a text, and the ends are set; without they are given, in bytes, and any other NUL
        is part of a word, as it is for BERT.
        """
        ends = self._block[1]
        if not joined and self._texts and not (0 <= ends[0] and (ends[1:] > ends[:-1]).all() and ends[-1] < self._used):
            raise InputError(f"texts end outside the {self._used} bytes of their block")
        has_non_ascii = _I64()
        mark = self._library.words_mark
        n_nuls = mark(self._block_address, self._used, self._ends, self._texts, joined, self._scratch, has_non_ascii)
        return n_nuls, has_non_ascii.value

    def separate(self, classes: npt.NDArray[np.uint8]) -> int:
        """Cut words at separators beyond ASCII; return the first code point whose class is 0, not known yet, or -1.

        In the place of -1 it is -2 where a text may have another normal form (class 3), -3 where one has characters of
        a script without spaces (class 4), and -4 where there is both.
        """
        classes_address = _address("classes", classes, np.uint8, (0x110000,))
        return int(self._library.words_separate(self._block_address, self._used, classes_address, self._scratch))

    def cut(self) -> int:
        """List the words; the ends of texts become numbers of words. Return how many there are."""
        self._words = int(self._library.words_cut(self._used, self._ends, self._texts, self._scratch))
        return self._words

    def look_up(self) -> int:
        """Find the rows of the words, -1 for unknown ones; return how many are `missing`: only Python can find them."""
        self._missing = int(self._library.words_look_up(self._lexicon, self._block_address, self._scratch, self._words))
        return self._missing

    def look_again(self, first: int, last: int) -> int:
        """Look up the missing words `first` to `last` once more; those still missing stand from `first` on."""
        _check_range("missing words", first, last, self._missing)
        return int(self._library.words_look_again(self._lexicon, self._block_address, self._scratch, first, last))

    def learn(self, word_indices: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]) -> None:
        """Remember the rows of some words of the block, given by their numbers."""
        shape = (len(word_indices),)
        addresses = _address("words", word_indices, np.int32, shape), _address("rows", rows, np.int32, shape)
        _check_numbers("words", word_indices, self._words)
        edges = self._scratch.edges
        self._library.words_learn(self._keepalive[1].struct, self._block_address, edges, *addresses, len(word_indices))

    def list_unmatched(self) -> npt.NDArray[np.int32]:
        """Return the indices of the words that have no row, or that of another word, such as of their beginning."""
        limit = len(self._keepalive[0].starts) - 1
        count = self._library.words_list_others(self._lexicon, self._block_address, self._scratch, self._words, limit)
        if count < 0:
            raise InputError(f"a word has row {self.rows[: self._words].max()}, and the vocabulary has {limit:,} words")
        return self.missing[:count]


def join_texts(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the texts `data[offsets[i]:offsets[i + 1]]` as a block: a NUL after each, and `PADDING` zeros."""
    texts, offsets = len(offsets) - 1, _copied("offsets", offsets, np.int64)
    addresses = _address("data", data, np.uint8, (len(data),)), _start(offsets)
    if texts < 0 or (offsets[1:] < offsets[:-1]).any() or offsets[0] < 0 or offsets[-1] > len(data):
        raise InputError(f"the offsets of {texts} texts leave the {len(data):,} bytes")
    block = np.empty(int(offsets[-1] - offsets[0]) + texts + PADDING, np.uint8)
    library().words_join(*addresses, texts, _start(block), len(block))
    return block


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
    first = _start(memory)
    addresses = _start(slots), bits, first, first + 8 * size, first + 16 * size
    n_distinct = library().words_distinct(_address("values", values, np.int64, (size,)), size, *addresses)
    return memory[0, :n_distinct], memory[1, :n_distinct], memory[2]


def group_words(words: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], limit: int) -> tuple[Any, ...]:
    """Return the words of texts, numbers below `limit`, as groups of equal ones in the order of their first places.

    Text i's words stand before `ends[i]`. What comes back is int64: the number of each group, how many words it has,
    the places of all words, group by group, and where each text's groups end.
    """
    words, ends = _copied("words", words, np.int64), _copied("ends", ends, np.int64)
    _check_numbers("words", words, limit)
    size, texts = len(words), len(ends)
    if texts and not (0 <= ends[0] and (ends[1:] >= ends[:-1]).all() and ends[-1] <= size):
        raise InputError(f"the ends of {texts} texts do not divide {size} words")
    slots, memory, last = np.zeros(limit, np.int64), np.empty((3, size), np.int64), np.empty(texts, np.int64)
    first = _start(memory)
    groups = library().words_group(
        _start(words), _start(ends), texts, _start(slots), first, first + 8 * size, first + 16 * size, _start(last)
    )
    return memory[0, :groups], memory[1, :groups], memory[2, : int(ends[-1]) if texts else 0], last


def _check_range(name: str, first: int, last: int, count: int) -> None:
    if not 0 <= first <= last <= count:
        raise InputError(f"{name} {first} to {last} are asked for, and there are {count}")


def _check_numbers(name: str, numbers: npt.NDArray[Any], limit: int, minimum: int = 0) -> None:
    """Check that all numbers are from `minimum` to below `limit`."""
    if not len(numbers):
        return
    low, high = numbers.min(), numbers.max()
    if low < minimum or high >= limit:
        raise InputError(f"{name} are {low} to {high}, and must be from {minimum} to {limit - 1}")


# --- Pooling ----------------------------------------------------------------------------------------------------------


class _TableStruct(ctypes.Structure):
    _fields_ = [("vectors", _POINTER), ("scales", _POINTER), *((name, _I64) for name in ("kind", "words", "dimension"))]


def _numbers(vectors: Any, scales: npt.NDArray[np.float32] | None) -> tuple[int, int, int]:
    """Return where the numbers of a table and its scales lie (0: none), and the kind that they are."""
    kind, shape, numbers = _KINDS.get(vectors.dtype.name), tuple(vectors.shape), vectors
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
    address = _address("vectors", numbers, np.uint8 if kind == _INT4 else numbers.dtype, shape)
    return address, 0 if scales is None else _address("scales", scales, np.float32, (words,)), kind


class Table:
    """The functions of pooling.c for a static model's table; for any number of threads."""

    def __init__(self, vectors: Any, scales: npt.NDArray[np.float32] | None) -> None:
        """Take vectors [words, dimension], float32, float16, int8 or `PackedRows`, and the scales of int8 [words]."""
        numbers = _numbers(vectors, scales)
        self.words, self.dimension = vectors.shape
        self._library, self._keepalive = library(), (vectors, scales)
        self._struct = _TableStruct(*numbers, self.words, self.dimension)

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
            self._struct, _address("rows", rows, np.int32, (len(rows),), writes=True),
            _address("ends", ends, np.int32, (texts,)), texts,
            _address("spelled", spelled, np.float32, (len(spelled), self.dimension)), len(spelled),
            _start(total), _start(exact), _start(exact) + 8 * self.dimension,
            _address("embeddings", embeddings, np.float32, (texts, self.dimension), writes=True),
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
        distinct, rows = _copied("rows", distinct, np.int32), _copied("rows", rows, np.int32)
        ends = _copied("ends", ends, np.int64)
        _check_numbers("rows", distinct, self.words)
        _check_numbers("rows", rows, self.words)
        if len(ends) and not (0 <= ends[0] and (ends[1:] >= ends[:-1]).all() and ends[-1] <= len(rows)):
            raise InputError(f"the ends of {len(ends)} texts do not divide {len(rows)} words")
        products, lengths = np.empty((len(distinct), len(query_vectors))), np.empty(len(ends))
        total, exact = self._memory()
        self._library.pooling_products(
            self._struct, _start(distinct), len(distinct), _start(rows), _start(ends), len(ends),
            _address("vectors", query_vectors, np.float32, (len(query_vectors), self.dimension)), len(query_vectors),
            _start(total), _start(exact), _start(products), _start(lengths),
        )  # fmt: skip
        return products, lengths

    def _memory(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        return np.empty(-(-self.dimension // 16) * 16, np.float32), np.empty(2 * self.dimension)


def _checked_ends(rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]) -> int:
    """Check that texts end among `rows`, after which there is room to look ahead; return how many rows they have."""
    _address("ends", ends, np.int32, (len(ends),))
    used = int(ends[-1]) if len(ends) else 0
    if (len(ends) and not (0 <= ends[0] and (ends[1:] >= ends[:-1]).all())) or used + _AHEAD > len(rows):
        raise InputError(f"the ends of {len(ends)} texts do not divide {len(rows)} words, {_AHEAD} of them to spare")
    return used


def pair_products(
    vectors: npt.NDArray[np.float32], counts: npt.NDArray[np.float64], first: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return what pairs of words add to the cosine of two texts [words 1, words 2], and the lengths of their sums [2].

    `vectors` [words, dimension] are those of the distinct words of one text, the `first` ones, and of another.
    """
    words, dimension = vectors.shape
    _check_range("words", first, words, words)
    padded = -(-dimension // 8) * 8
    products, lengths, memory = np.empty((first, words - first)), np.empty(2), np.zeros((first + 3, padded))
    library().pooling_pairs(
        _address("vectors", vectors, np.float32, vectors.shape), _address("counts", counts, np.float64, (words,)),
        first, words - first, dimension, _start(memory), _start(products), _start(lengths),
    )  # fmt: skip
    return products, lengths


def multiply(codes: npt.NDArray[np.int8], scales: npt.NDArray[np.float32], vector: npt.NDArray[np.float32]) -> Any:
    """Return the products of rows of 8 bits, times their scales, and a vector, float32 [rows]."""
    count, dimension = len(codes), codes.shape[-1]
    products = np.empty(count, np.float32)
    library().pooling_multiply(
        _address("codes", codes, np.int8, (count, dimension)), _address("scales", scales, np.float32, (count,)), count,
        dimension, _address("vector", vector, np.float32, (dimension,)), _start(products),
    )  # fmt: skip
    return products


class _SparseStruct(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("starts", "columns", "weights", "scales")),
        *((name, _I64) for name in ("words", "dimension")),
    ]


class SparseTable:
    """The function of pooling.c for a static lexicon model's table; for any number of threads."""

    def __init__(self, table: Any, dimension: int) -> None:
        """Take starts [words + 1] int32, columns int16 and weights uint8 [entries], scales float32 [words]."""
        starts, columns, weights, scales = table
        _address("starts", starts, np.int32, (len(scales) + 1,))
        starts = starts.copy()  # the columns, which are many, are compared with the dimension by C
        self._starts, self._dimension, self._keepalive = starts, dimension, table
        self._struct = _SparseStruct(
            _start(starts),
            _address("columns", columns, np.int16, (len(columns),)),
            _address("weights", weights, np.uint8, (len(columns),)),
            _address("scales", scales, np.float32, (len(scales),)),
            len(scales), dimension,
        )  # fmt: skip
        _check_numbers("columns", columns, dimension)
        if not _are_ends(starts, len(columns)):
            raise InputError(f"the starts of {len(scales)} words do not divide {len(columns)} entries")

    def pool(
        self, rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return the L2-normalised log(1 + sum) of the rows of texts as the starts, columns and values of CSR."""
        used, texts = _checked_ends(rows, ends), len(ends)
        _check_numbers("rows", rows[:used], self._struct.words, minimum=-1)
        known_rows = rows[:used]
        known_rows = known_rows[known_rows >= 0]
        max_entries = min(int((self._starts[known_rows + 1] - self._starts[known_rows]).sum()), texts * self._dimension)
        starts, columns, values = (
            np.empty(texts + 1, np.int64),
            np.empty(max_entries, np.int32),
            np.empty(max_entries, np.float32),
        )
        sums, bits = np.zeros(self._dimension), np.zeros(-(-self._dimension // 64), np.uint64)
        count = library().pooling_pool_sparse(
            self._struct, _address("rows", rows, np.int32, (len(rows),)), _address("ends", ends, np.int32, (texts,)),
            texts, _start(sums), _start(bits), max_entries, _start(starts), _start(columns), _start(values),
        )  # fmt: skip
        if count < 0:
            raise InputError(f"the table of words points outside its {self._dimension:,} columns; {_CHANGED}")
        return starts, columns[:count], values[:count]


# --- Farthest points and spelling -------------------------------------------------------------------------------------

_BUCKETS, _NEIGHBOURS, _COMMON = 1 << 18, 32, 500  # as in spelling.c and static/spelling.py
_MAX_WORD_CHARS = 1 << 22  # characters of a word: the slots of its n-grams and its neighbours' have numbers of 31 bits


class _FarthestStruct(ctypes.Structure):
    _fields_ = [
        ("rows", _POINTER),
        *((name, _I64) for name in ("kind", "count", "dimension", "width")),
        *((name, _POINTER) for name in ("inverse", "best", "met", "lowest", "picks", "scales")),
    ]


class _SearchResult(ctypes.Structure):
    _fields_ = [("row", _I64), ("reads", _I64), ("products", _I64), ("similarity", ctypes.c_float)]


class FarthestPoints:
    """The functions of farthest.c for the rows of one array."""

    def __init__(self, rows: npt.NDArray[Any], state: Any) -> None:
        """Take rows [N, d], float32 or uint16 that hold the bits of float16, and a `SearchState` for them."""
        width, picks = state.picks.shape[-1], len(state.scales)
        padded, kind = -(-rows.shape[-1] // 32) * 32, rows.dtype.name
        if kind not in ("float32", "uint16") or rows.ndim != 2 or width != padded:
            raise InputError(f"rows are {kind} and padded to {width}; give float32 or uint16, padded to {padded}")
        count = len(rows)
        self._library, self._keepalive = library(), (rows, state)
        self._struct = _FarthestStruct(
            _address("rows", rows, rows.dtype, rows.shape), _KINDS[kind], count, rows.shape[1], width,
            _address("inverse", state.inverse, np.float32, (count,), writes=True),
            _address("best", state.best, np.float32, (count,), writes=True),
            _address("met", state.met, np.int32, (count,), writes=True),
            _address("lowest", state.lowest, np.float32, (-(-count // 16),), writes=True),
            _address("picks", state.picks, np.float32, (picks, width), writes=True),
            _address("scales", state.scales, np.float32, (picks,), writes=True),
        )  # fmt: skip

    def measure(self, first: int, last: int, work: npt.NDArray[np.float32]) -> int:
        """Set 1 / length of rows [first, last); return the first that is not finite or longer than 1e12, or -1."""
        self._check("rows", first, last, self._struct.count)
        return int(self._library.farthest_measure(self._struct, first, last, self._work(work)))

    def take(self, row: int, number: int) -> None:
        """Make `row` pick `number`, and never again."""
        self._check("row", row, row + 1, self._struct.count)
        self._check("pick", number, number + 1, len(self._keepalive[1].scales))
        self._library.farthest_take(self._struct, row, number)

    def search(self, first: int, last: int, picks: int, work: npt.NDArray[np.float32]) -> tuple[float, int, int, int]:
        """Return the best next pick of groups [first, last): similarity, row (-1: none), rows read, products made."""
        self._check("groups", first, last, len(self._keepalive[1].lowest))
        self._check("picks", 0, picks, len(self._keepalive[1].scales))
        result = _SearchResult()
        self._library.farthest_search(self._struct, first, last, picks, self._work(work), result)
        return result.similarity, result.row, result.reads, result.products

    def _work(self, work: npt.NDArray[np.float32]) -> int:
        return _address("memory", work, np.float32, (self._struct.width,), writes=True)

    def _check(self, name: str, first: int, last: int, count: int) -> None:
        if not 0 <= first <= last <= count:
            raise InputError(f"{name} {first} to {last} are asked for, and there are {count}")


_NGRAM_ARRAYS = ("codes", "ends", "rows", "starts", "members", "weights")


class _NgramStruct(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in _NGRAM_ARRAYS),
        *((name, _I64) for name in ("codes_size", "members_size", "known", "longest")),
    ]


class _SpellingStruct(ctypes.Structure):
    _fields_ = [(name, _POINTER) for name in ("candidates", "touched", "buckets", "slots", "used")]


class _RowsStruct(ctypes.Structure):
    _fields_ = [
        ("vectors", _POINTER), ("scales", _POINTER), *((name, _I64) for name in ("kind", "words", "dimension")),
        ("row", _POINTER),
    ]  # fmt: skip


class Spelling:
    """The function of spelling.c for one table; one call at a time."""

    def __init__(self, index: Any, vectors: Any, scales: npt.NDArray[np.float32] | None, max_chars: int) -> None:
        """Take an `NgramIndex`, the table as `Table` does, and most characters of a word."""
        numbers = _numbers(vectors, scales)
        _check_index(index, len(vectors))
        n_words, self._dimension = len(index.rows), vectors.shape[1]
        self.max_chars = max(max_chars, int(np.diff(index.ends).max(initial=0)))
        if self.max_chars > _MAX_WORD_CHARS:
            raise InputError(f"a word has {self.max_chars:,} characters; at most {_MAX_WORD_CHARS:,} can be spelled")
        ngrams = 4 * self.max_chars  # of four sizes
        max_features = (_NEIGHBOURS + 1) * ngrams
        candidates = np.zeros((n_words, 2), np.int32)
        candidates[:, 1] = index.squares
        touched, buckets, used = (np.empty(size, np.int32) for size in (n_words + _COMMON + 1, ngrams, max_features))
        slots = np.zeros((2 << max_features.bit_length(), 2), np.uint64)
        row = np.zeros(-(-self._dimension // 8) * 8, np.float32)
        self._keepalive = index, vectors, scales, candidates, touched, buckets, slots, used, row
        addresses, sizes = (
            (_start(getattr(index, name)) for name in _NGRAM_ARRAYS),
            map(len, (index.codes, index.members)),
        )
        self._index = _NgramStruct(*addresses, *sizes, n_words, self.max_chars)
        self._scratch = _SpellingStruct(*(_start(array) for array in (candidates, touched, buckets, slots, used)))
        self._table = _RowsStruct(*numbers, len(vectors), self._dimension, _start(row))
        self._library = library()

    def predict(
        self,
        codes: npt.NDArray[np.uint32],
        ends: npt.NDArray[np.int64],
        neighbours: npt.NDArray[np.int32],
        shares: npt.NDArray[np.float64],
        sums: npt.NDArray[np.float64],
    ) -> None:
        """Fill `neighbours` (-1 before) and `shares` [words, 32] and `sums` [words, d] (0 before).

        Word i is `codes[ends[i] : ends[i + 1]]`, with its marks of at most `max_chars` characters.
        """
        ends = _copied("ends", ends, np.int64)
        words, lengths = len(ends) - 1, np.diff(ends)
        inside = words >= 0 and 0 <= ends[0] and ends[-1] <= len(codes) and lengths.min(initial=0) >= 0
        if not inside or lengths.max(initial=0) > self.max_chars:
            raise InputError(
                f"words end outside their {len(codes)} codes or have more than {self.max_chars} characters"
            )
        outside = self._library.spelling_predict(
            self._index, self._scratch, self._table,
            _address("codes", codes, np.uint32, (len(codes),)), _start(ends), words,
            _address("neighbours", neighbours, np.int32, (words, _NEIGHBOURS), writes=True),
            _address("shares", shares, np.float64, (words, _NEIGHBOURS), writes=True),
            _address("sums", sums, np.float64, (words, self._dimension), writes=True),
        )  # fmt: skip
        if outside:
            raise InputError(f"the index of n-grams points outside itself or its table; {_CHANGED}")


def _check_index(index: Any, rows: int) -> None:
    """Check that an `NgramIndex` points inside itself and a table of so many rows."""
    kinds = zip(index, (np.int64, np.uint32, np.int64, np.int32, np.int32, np.uint8, np.int64), strict=True)
    n_words, starts, members = len(index.rows), index.starts.copy(), index.members
    sound = (
        all(_is_plain(array, kind) for array, kind in kinds)
        and len(index.ends) == len(index.squares) + 1 == n_words + 1
        and len(starts) == len(index.weights) + 1 == _BUCKETS + 1
        and _are_ends(index.ends, len(index.codes))
        and _are_ends(starts, len(members))
        and _are_below(index.rows, min(rows, 1 << 31))
        and _are_below(members, n_words)
        and _are_below(index.squares, 1 << 31)
    )
    if sound:  # no word twice in a bucket: the sums of weights stay below 2^31
        rising = np.diff(members, prepend=-1) > 0
        rising[starts[:-1][starts[:-1] < len(members)]] = True
        sound = bool(rising.all())
    if not sound:
        raise InputError(f"the index of n-grams does not fit itself or the {rows:,} rows of its table")


def _is_plain(array: npt.NDArray[Any], kind: Any) -> bool:
    """Whether an array is a list of numbers of a kind, one after another."""
    return array.dtype == kind and array.ndim == 1 and array.flags.c_contiguous and array.flags.aligned


def _are_ends(ends: npt.NDArray[Any], count: int) -> bool:
    return bool(ends[0] == 0 and ends[-1] == count and (ends[1:] >= ends[:-1]).all())  # a difference may overflow


def _are_below(numbers: npt.NDArray[Any], limit: int) -> bool:
    return bool(numbers.min(initial=0) >= 0 and numbers.max(initial=-1) < limit)


# --- The functions ----------------------------------------------------------------------------------------------------


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare what each function takes and returns; an integer where an array's address goes."""
    index, lexicon, scratch, table = map(_STRUCT, (_IndexStruct, _LexiconStruct, _ScratchStruct, _TableStruct))
    spelling = tuple(map(_STRUCT, (_NgramStruct, _SpellingStruct, _RowsStruct)))
    points = _STRUCT(_FarthestStruct)
    pointers = [_POINTER] * 5
    functions: tuple[tuple[Any, ...], ...] = (
        ("words_join", None, _POINTER, _POINTER, _I64, _POINTER, _I64),
        ("words_mark", _I64, _POINTER, _I64, _POINTER, _I64, _I64, scratch, _STRUCT(_I64)),
        ("words_find", _I64, lexicon, _POINTER, _I64, _POINTER, _I64, scratch, _STRUCT(_I64)),
        ("words_separate", _I64, _POINTER, _I64, _POINTER, scratch),
        ("words_cut", _I64, _I64, _POINTER, _I64, scratch),
        ("words_forget", None, index),
        ("words_insert", None, index, _POINTER, _I64),
        ("words_learn", None, index, _POINTER, _POINTER, _POINTER, _POINTER, _I64),
        ("words_look_up", _I64, lexicon, _POINTER, scratch, _I64),
        ("words_look_again", _I64, lexicon, _POINTER, scratch, _I64, _I64),
        ("words_list_others", _I64, lexicon, _POINTER, scratch, _I64, _I64),
        ("words_group", _I64, _POINTER, _POINTER, _I64, *pointers),
        ("words_distinct", _I64, _POINTER, _I64, _POINTER, _I64, *pointers[:3]),
        ("pooling_pool", _I64, table, _POINTER, _POINTER, _I64, _POINTER, _I64, *pointers[:4]),
        ("pooling_products", None, table, _POINTER, _I64, _POINTER, _POINTER, _I64, _POINTER, _I64, *pointers[:4]),
        ("pooling_pairs", None, _POINTER, _POINTER, _I64, _I64, _I64, *pointers[:3]),
        ("pooling_multiply", None, _POINTER, _POINTER, _I64, _I64, _POINTER, _POINTER),
        (
            "pooling_pool_sparse",
            _I64,
            _STRUCT(_SparseStruct),
            _POINTER,
            _POINTER,
            _I64,
            _POINTER,
            _POINTER,
            _I64,
            *pointers[:3],
        ),
        ("farthest_measure", _I64, points, _I64, _I64, _POINTER),
        ("farthest_take", None, points, _I64, _I64),
        ("farthest_search", None, points, _I64, _I64, _I64, _POINTER, _STRUCT(_SearchResult)),
        ("spelling_predict", _I64, *spelling, _POINTER, _POINTER, _I64, _POINTER, _POINTER, _POINTER),
    )
    for name, returned, *arguments in functions:
        function = getattr(library, name)
        function.restype, function.argtypes = returned, tuple(arguments)
    return library
