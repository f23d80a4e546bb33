"""Encoding many texts with a static model: blocks of texts go through the compiled functions of `kernels.py`.

`StaticEmbedder._encode_plainly` says what is computed. Texts are joined into blocks of UTF-8, and threads take blocks
in turn. Python is only asked about the few words that the index of the vocabulary does not hold, and about texts with
phrases or in scripts without spaces: these are first rewritten with spaces between their words. numba is imported with
this file, so this file is imported only when there is work for it. docs/notes-static-speed.md says what each idea gave.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from string import punctuation
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.base import Vectors
from pellucid.errors import InputError
from pellucid.progress import Progress
from pellucid.static import kernels
from pellucid.static.folder import is_known_sound, not_finite
from pellucid.text import LONGEST_WORD, Vocabulary, well_formed

_BLOCK_TEXTS = 1024
_BLOCK_CHARACTERS = 1 << 18  # what a block needs stays in a core's own cache; a longer text is a block by itself
_LARGEST_BLOCK = 1 << 31  # bytes; positions are 32-bit
_PADDING = "\0" * 96  # so that 64 bytes may be read from any place in a text
_PAGE = 1024  # code points classified at once
_LEARNT_WORDS = 1 << 15  # also the most that Python is asked at once: a text may have millions that nobody knows


class BulkEncoder:
    """Encodes lists of texts with a static model's table.

    Attributes:
        threads: how many blocks are worked on at once; the environment variable PELLUCID_THREADS sets it, otherwise
            it is the number of cores this process may use.
    """

    def __init__(self, vocabulary: Vocabulary, vectors: npt.NDArray[Any], scales: Vectors | None) -> None:
        """Take the table of a `StaticEmbedder` without copying it, and index the vocabulary.

        Raises:
            InputError: PELLUCID_THREADS is no positive number.
        """
        self.threads = default_threads()
        self._vocabulary = vocabulary
        self._sound = is_known_sound(vectors, scales)
        if not self._sound and vectors.dtype == np.float16:  # whose infinity and NaN the kernels take for numbers
            vectors = vectors.astype(np.float32)
        self._vectors = _as_kernel_array(vectors.view(np.int16) if vectors.dtype == np.float16 else vectors)
        self._scales = _as_kernel_array(np.ones(1, np.float32) if scales is None else scales)
        self._words = _word_index(vocabulary.words)
        self._pieces = _pieces(vocabulary)
        self._cased = vocabulary.cased
        self._idle: list[_Worker] = []

    def encode(self, texts: list[str], *, show_progress_bar: bool = False) -> Vectors:
        """Return the embeddings of well-typed `texts`, float32 [texts, dimension].

        Raises:
            InputError: a text has 2 GB or more.
        """
        embeddings = np.empty((len(texts), self._vectors.shape[1]), np.float32)
        blocks = _Shared(_blocks(texts))
        with Progress("encoding", total=len(texts), enabled=show_progress_bar) as progress:

            def work() -> None:
                worker = self._worker()
                try:
                    for first, last in blocks:
                        worker.encode(texts[first:last], embeddings[first:last])
                        with blocks.lock:
                            progress.advance(last - first)
                finally:
                    blocks.stop()
                self._idle.append(worker)

            threads = min(self.threads, -(-len(texts) // _BLOCK_TEXTS))
            if threads < 2:
                work()
            else:
                with ThreadPoolExecutor(threads) as pool:
                    try:
                        for done in [pool.submit(work) for _ in range(threads)]:
                            done.result()
                    finally:
                        blocks.stop()
        return embeddings

    def coverage(self, texts: list[str]) -> Vectors:
        """Return how much of each text has a row, float32 [texts].

        Raises:
            InputError: a text has 2 GB or more.
        """
        shares = np.empty(len(texts), np.float32)
        worker = self._worker()
        for first, last in _blocks(texts):
            worker.coverage(texts[first:last], shares[first:last])
        self._idle.append(worker)
        return shares

    def _worker(self) -> _Worker:
        """Return a worker that no other thread uses; those of earlier calls keep their memory and what they learnt."""
        try:
            return self._idle.pop()
        except IndexError:
            learnt = _empty_index(_LEARNT_WORDS, _LEARNT_WORDS * 16)
            complete = self._vocabulary.subwords is None
            lexicon = kernels.Lexicon(self._words, learnt, self._cased, complete, self._pieces)
            return _Worker(self._vocabulary, lexicon, self._vectors, self._scales, self._sound)


class _Reader:
    """What one thread needs to find the words of texts and a number for each: memory used for block after block."""

    def __init__(self, lexicon: kernels.Lexicon, number_of: Callable[[str], int]) -> None:
        """Take where numbers are looked up, and what is asked for a word that is neither there nor learnt."""
        self._lexicon, self._number_of = lexicon, number_of
        self._scratch = _scratch(_BLOCK_CHARACTERS)

    def _read(self, texts: list[str]) -> tuple[kernels.Scratch, npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """Find the words of a block of texts.

        Returns:
            the memory that holds edges and numbers of the words; where each text's words end among them; the block's
            bytes, or none if all are ASCII.
        """
        utf8 = _join(texts)
        used = len(utf8) - len(_PADDING)
        scratch = self._scratch if used <= _BLOCK_CHARACTERS else _scratch(used)
        block = np.frombuffer(utf8, np.uint8)
        ends = np.empty(len(texts), np.int32)
        found, beyond = kernels.mark(block, used, ends, True, scratch)
        if found != len(texts):  # a text holds a NUL
            sizes = [len(well_formed(text).encode()) + 1 for text in texts]
            ends[:] = np.cumsum(sizes) - 1
            _, beyond = kernels.mark(block, used, ends, False, scratch)
        if beyond:
            while (point := kernels.drop_separators(block, used, CLASSES, scratch)) >= 0:
                _classify_page(point)
        words = kernels.cut(used, ends, scratch)
        missing = kernels.look_up(block, words, self._lexicon, scratch)
        for first in range(0, missing, _LEARNT_WORDS):
            last = min(first + _LEARNT_WORDS, missing)
            still = kernels.look_again(block, first, last, self._lexicon, scratch) if first else last
            self._ask(utf8, block, scratch, scratch.missing[first : first + still])
        return scratch, ends, block[: used if beyond else 0]

    def _ask(
        self, utf8: bytes, block: npt.NDArray[np.uint8], scratch: kernels.Scratch, missing: npt.NDArray[np.int32]
    ) -> None:
        """Set the numbers of the words at `missing`, asking once for each word."""
        edges = scratch.edges.reshape(-1, 2)[missing]
        spelled = [utf8[start:end] for start, end in edges.tolist()]
        number_of = {word: self._number_of(word.decode()) for word in set(spelled)}
        numbers = np.array([number_of[word] for word in spelled], np.int32)
        scratch.rows[missing] = numbers
        kernels.learn_all(self._lexicon.learnt, block, edges, numbers)


class _Worker(_Reader):
    """A reader that knows the rows of a table; in `lexicon.learnt` are the answers so far."""

    def __init__(
        self, vocabulary: Vocabulary, lexicon: kernels.Lexicon, vectors: npt.NDArray[Any], scales: Vectors, sound: bool
    ) -> None:
        super().__init__(lexicon, vocabulary.row)
        self._vocabulary = vocabulary
        self._vectors, self._scales, self._sound = vectors, scales, sound

    def encode(self, texts: list[str], embeddings: Vectors) -> None:
        """Set `embeddings` to those of one block of texts."""
        rows, ends = self._rows(texts)
        kernels.pool(self._vectors, self._scales, rows, ends, embeddings)
        if not (self._sound or np.isfinite(embeddings.sum())):  # rows of length 1 add up to a number
            raise not_finite(texts[int((~np.isfinite(embeddings)).any(axis=1).argmax())])

    def coverage(self, texts: list[str], shares: Vectors) -> None:
        """Set `shares` to how much of each text of a block has a row; 1 for one without words."""
        rows, ends = self._rows(texts)
        known = np.concatenate([[0], np.cumsum(rows[: ends[-1]] >= 0)])
        starts = np.concatenate([[0], ends[:-1]])
        words = ends - starts
        shares[:] = np.where(words > 0, (known[ends] - known[starts]) / np.maximum(words, 1), 1)

    def _rows(self, texts: list[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the rows of all words of a block of texts, and where each text's words end among them."""
        scratch, ends, _ = self._read(self._vocabulary.spaced(texts))
        return scratch.rows, ends


class WordNumbers(_Reader):
    """The words of texts as `split_words` gives them, with their places, and a number for each; for one thread."""

    def __init__(self, spelled: Sequence[str], number_of: Callable[[str], int]) -> None:
        """Take the list of words, which may grow, and what gives a word its place there and adds it if need be."""
        self._spelled = spelled
        super().__init__(self._indexed(), number_of)

    def _indexed(self) -> kernels.Lexicon:
        self._known = len(self._spelled)
        nothing, learnt = _word_index([]), _empty_index(_LEARNT_WORDS, _LEARNT_WORDS * 16)
        pieces = kernels.Pieces(nothing, nothing, 0, 0, False)
        return kernels.Lexicon(_word_index(self._spelled), learnt, True, False, pieces)

    def read(self, texts: list[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the words of some texts.

        Returns:
            the number of each word, int64 [words]; where it starts and ends in its text, in characters, int64
            [words, 2]; and where each text's words end among them, int64 [texts].
        """
        if len(self._spelled) > 2 * self._known + _PAGE:  # found faster there than among what was learnt
            self._lexicon = self._indexed()
        scratch, ends, block = self._read(texts)
        words = int(ends[-1]) if len(ends) else 0
        spans = scratch.edges[: 2 * words].astype(np.int64)
        if len(block):  # from bytes to characters: all but the second to fourth byte of one are counted
            spans = np.concatenate([[0], np.cumsum((block & 0xC0) != 0x80)])[spans]
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
        spans -= np.repeat(starts, 2 * np.diff(ends, prepend=0))
        return scratch.rows[:words].astype(np.int64), spans.reshape(-1, 2), ends.astype(np.int64)


class _Shared:
    """An iterator that several threads may take from."""

    def __init__(self, items: Iterator[tuple[int, int]]) -> None:
        self._items = items
        self.lock = threading.Lock()

    def stop(self) -> None:
        """Give out nothing more: after an error or an interrupt the other threads end with the block they have."""
        with self.lock:
            self._items = iter(())

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> tuple[int, int]:
        with self.lock:
            return next(self._items)


def default_threads() -> int:
    """Return the number of threads asked for by PELLUCID_THREADS, otherwise of cores this process may use."""
    wanted = os.environ.get("PELLUCID_THREADS", "")
    if not wanted:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not wanted.isdigit() or int(wanted) < 1:
        raise InputError(f"the environment variable PELLUCID_THREADS is {wanted!r}; set it to a number from 1 up")
    return int(wanted)


def _blocks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Cut `texts` into ranges of at most `_BLOCK_TEXTS` texts and, but for single texts, `_BLOCK_CHARACTERS`."""
    for first in range(0, len(texts), _BLOCK_TEXTS):
        yield from _small_enough(texts, first, min(first + _BLOCK_TEXTS, len(texts)))


def _small_enough(texts: Sequence[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    if last - first == 1 or sum(map(len, texts[first:last])) <= _BLOCK_CHARACTERS:
        yield first, last
    else:
        middle = (first + last) // 2
        yield from _small_enough(texts, first, middle)
        yield from _small_enough(texts, middle, last)


def _join(texts: list[str]) -> bytes:
    """Return the UTF-8 of `texts`, a NUL after each, and the padding."""
    try:
        utf8 = "\0".join([*texts, _PADDING]).encode()
    except UnicodeEncodeError:
        utf8 = "\0".join([*map(well_formed, texts), _PADDING]).encode()
    if len(utf8) >= _LARGEST_BLOCK:
        raise InputError(f"a text has {len(utf8)} bytes; split texts of 2 GB and more")
    return utf8


def _scratch(size: int) -> kernels.Scratch:
    """Return the memory for blocks of up to `size` bytes before the padding."""
    chunks = size // 64 + 1
    lowered = np.empty(chunks * 64 + 64, np.uint8)
    return kernels.Scratch(
        lowered=lowered,
        lowered_view=_as_kernel_array(lowered),
        word_bits=np.empty(chunks, np.int64),
        other_bits=np.empty(chunks, np.int64),
        edges=np.empty(chunks * 64, np.int32),
        rows=np.zeros(chunks * 32 + kernels.AHEAD, np.int32),
        missing=np.empty(chunks * 32, np.int32),
    )


def _as_kernel_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a C-ordered, read-only view, so that one compiled version serves arrays in memory and mapped files."""
    view = np.require(np.asarray(array), requirements=["C", "A"]).view(np.ndarray)[:]
    view.flags.writeable = False
    return view


def _word_index(words: Sequence[str]) -> kernels.WordIndex:
    """Index `words`, each at its own number."""
    spelled = [word.encode("utf-8", "surrogatepass") for word in words]
    starts = np.cumsum([0, *map(len, spelled)])
    index = _empty_index(len(spelled), int(starts[-1]))
    index.blob[: starts[-1]] = np.frombuffer(b"".join(spelled), np.uint8)
    kernels.insert(index, starts, np.arange(len(spelled)))
    return index


def _empty_index(words: int, size: int) -> kernels.WordIndex:
    slots = np.empty((2 << max(words, 1).bit_length(), 4), np.int64)
    mixers = np.random.default_rng().integers(-(2**63), 2**63, size=2, dtype=np.int64) | 1
    slots[:] = 0
    slots[:, 3] = -1
    return kernels.WordIndex(slots, np.zeros(size + 16, np.uint8), mixers, np.zeros(2, np.int64))


def _pieces(vocabulary: Vocabulary) -> kernels.Pieces:
    """Return the pieces of the teacher's tokenizer if what it makes of ASCII is BERT's rule and nothing else."""
    tokenizer = vocabulary.subwords
    if tokenizer is None or not _cuts_like_bert(tokenizer):
        return kernels.Pieces(_word_index([]), _word_index([]), 0, 0, False)
    model, tokens = tokenizer.model, tokenizer.get_vocab(with_added_tokens=False)
    first = [token for token in tokens if token.isascii() and not token.startswith("##")]
    inside = [token[2:] for token in tokens if token.isascii() and token.startswith("##")]
    longest = max(map(len, first + inside), default=0)
    longest_word = min(LONGEST_WORD, model.max_input_chars_per_word)
    lower = tokenizer.normalizer is not None and tokenizer.normalizer.lowercase
    return kernels.Pieces(_word_index(first), _word_index(inside), longest, longest_word, lower)


def _cuts_like_bert(tokenizer: Tokenizer) -> bool:
    model, normalizer = tokenizer.model, tokenizer.normalizer
    added = (token.content for token in tokenizer.get_added_tokens_decoder().values())
    return (
        isinstance(model, WordPiece)
        and model.continuing_subword_prefix == "##"
        and (normalizer is None or isinstance(normalizer, BertNormalizer))
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and tokenizer.truncation is None
        and all(any(mark in token for mark in punctuation) for token in added)  # else a word may hold one
    )


CLASSES = np.zeros(0x110000, np.uint8)
"""For each code point: 0 not looked at yet, 1 part of a word, 2 separator (whitespace or punctuation)."""


def _classify_page(point: int) -> None:
    """Ask BERT's pre-tokenizer about the code points around `point`."""
    first = point // _PAGE * _PAGE
    points = [p for p in range(first, first + _PAGE) if not 0xD800 <= p <= 0xDFFF]
    text = "a" + "".join(f"{chr(p)}a" for p in points)
    joins = np.zeros(len(text), bool)
    for _, (start, end) in BertPreTokenizer().pre_tokenize_str(text):
        joins[start:end] = end - start > 1
    CLASSES[points] = np.where(joins[1::2], 1, 2)
