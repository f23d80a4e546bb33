"""Encoding many texts: blocks of texts go through the C kernels (native/words.c, pooling.c) on several threads.

Texts are joined into blocks of UTF-8, and threads take blocks in turn. Python is asked only about the few words that
the index of the vocabulary does not hold, and about texts in scripts without spaces: these are first
rewritten with spaces between their words. benchmarks/static_speed.md has what each idea gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from string import punctuation
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.native.kernels import (
    NUL_IN_TEXT,
    OTHER_FORM,
    PADDING,
    UNCLASSIFIED,
    UNSPACED,
    Pieces,
    VectorTable,
    WordIndex,
    WordReader,
    count_characters,
    join_strings,
)
from pellucid.process import default_threads
from pellucid.progress import Progress
from pellucid.static.folder import not_finite
from pellucid.static.precision import kernel_table
from pellucid.static.spelling import SpelledRows, Speller
from pellucid.static.words import WordList, sizes_from, slice_for
from pellucid.text.unicode import may_change, normalize, unspaced_run, well_formed
from pellucid.text.words import MAX_WORD_CHARS, Vocabulary

_BLOCK_TEXTS = 4096  # few, so that what a block needs fits a core's cache; many, so that Python does little
_MIN_BLOCK_TEXTS = 1024  # where there are several threads and not enough texts for each
_BLOCK_CHARACTERS = 1 << 18  # a longer text is a block of its own
_BLOCK_BYTES = 4 * _BLOCK_CHARACTERS  # of which the memory is used that the texts need
_MAX_BLOCK_BYTES = 1 << 31  # bytes; positions are 32-bit
_PADDING = "\0" * PADDING
_PAGE = 1024  # code points classified at once
_WORDS: WeakKeyDictionary[Vocabulary, WordIndex] = WeakKeyDictionary()
_PIECES: WeakKeyDictionary[Vocabulary, Pieces] = WeakKeyDictionary()
"""What is made once of a vocabulary, which models that differ in their dimensions share."""

_LEARNT_WORDS = 1 << 15  # also the most that Python is asked at once: a text may have millions of unknown words


_Cached = TypeVar("_Cached")


class BulkRows:
    """Finds the rows of the words of many texts, in threads that work through blocks of texts.

    `threads` blocks are worked on at once: the environment variable PELLUCID_THREADS, otherwise the cores in use.
    """

    def __init__(self, vocabulary: Vocabulary, *, spells: bool = False) -> None:
        """Index the vocabulary; with `spells`, words that it does not have are never left to their beginning."""
        self.threads = default_threads()
        self._vocabulary, complete = vocabulary, not (vocabulary.has_subwords or spells)
        words = _cached_for(_WORDS, vocabulary, lambda: WordIndex(vocabulary.forms))
        pieces = Pieces() if spells else _cached_for(_PIECES, vocabulary, lambda: _pieces(vocabulary))
        self._make_reader = partial(WordReader, words, pieces=pieces, cased=vocabulary.cased, complete=complete)
        self._idle: list[_Reader] = []

    def each_block(self, texts: list[str], use: Callable[[Any, int, int], None], show_progress_bar: bool) -> None:
        """Call `use` with a worker and the ends of a range of `texts`, for all of them, in threads and any order."""

        def work(block: tuple[int, int]) -> int:
            try:
                worker = self._idle.pop()  # which no other thread uses; it keeps its memory and what it learnt
            except IndexError:
                worker = _Reader(self._make_reader, partial(map, self._vocabulary.row), self._vocabulary)
            use(worker, *block)
            self._idle.append(worker)
            return block[1] - block[0]

        threads = min(self.threads, -(-len(texts) // _MIN_BLOCK_TEXTS))
        with Progress("encoding", total=len(texts), enabled=show_progress_bar) as progress:
            if threads < 2:
                for done in map(work, _blocks(texts)):
                    progress.advance(done)
                return
            from concurrent.futures import ThreadPoolExecutor  # it takes longer to import than a hundred texts take

            block_texts = min(max(-(-len(texts) // (4 * threads)), _MIN_BLOCK_TEXTS), _BLOCK_TEXTS)
            with ThreadPoolExecutor(threads) as pool:
                try:
                    for done in pool.map(work, _blocks(texts, block_texts)):
                        progress.advance(done)
                finally:  # after an error or an interrupt the threads end with the block they have
                    pool.shutdown(wait=False, cancel_futures=True)


class BulkEncoder(BulkRows):
    """Encodes lists of texts with a static model's table."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        vectors: Any,
        scales: Vectors | None,
        speller: Speller | None = None,
    ) -> None:
        """Take the table of a `StaticEmbedder` without copying it, and index the vocabulary."""
        if len(vocabulary) != len(vectors):
            raise InputError(f"the vocabulary has {len(vocabulary):,} words by now and the table {len(vectors):,} rows")
        super().__init__(vocabulary, spells=speller is not None)
        *table, self._sound = kernel_table(vectors, scales)
        self.table, self.speller = VectorTable(*table), speller
        self._no_vectors = np.empty((0, self.table.dimension), np.float32)

    def encode(self, texts: list[str], *, show_progress_bar: bool = False) -> Vectors:
        """Return the embeddings of checked `texts`, float32 [texts, dimension]."""
        embeddings = np.empty((len(texts), self.table.dimension), np.float32)

        def encode(worker: _Reader, first: int, last: int) -> None:
            if self.speller is not None and (worker.spelled is None or len(worker.spelled) >= _LEARNT_WORDS):
                worker.learn_from(SpelledRows(self.speller, self.table.dimension))  # each word keeps a vector
            block, (_, words, ends) = embeddings[first:last], worker.find(texts[first:last])
            spelled = self._no_vectors if worker.spelled is None else worker.spelled.vectors
            self.table.pool(words.rows, ends, np.ascontiguousarray(spelled), block)
            if not (self._sound or np.isfinite(block.sum())):  # rows of length 1 add up to a number
                raise not_finite(texts[first + int((~np.isfinite(block)).any(axis=1).argmax())])

        self.each_block(texts, encode, show_progress_bar)
        return embeddings


class _Reader:
    """What one thread needs to find the words of texts and a number for each: memory used for block after block."""

    def __init__(
        self,
        make: Callable[..., WordReader],
        numbers_of: Callable[[list[str]], Iterable[int]],
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """Take what makes readers, what is asked for the words they do not find, and the vocabulary that cuts texts."""
        self._learnt = WordIndex(room=(_LEARNT_WORDS, _LEARNT_WORDS * 16))
        self._make_reader = partial(make, learnt=self._learnt, classes=CLASSES)
        self._numbers_of, self._vocabulary = numbers_of, vocabulary
        self._reader = self._make_reader(size=_BLOCK_BYTES)
        self.spelled: SpelledRows | None = None

    def learn_from(self, spelled: SpelledRows) -> None:
        """Ask `spelled` from now on for the rows of words, and forget those learnt before."""
        self.spelled, self._numbers_of = spelled, spelled.rows
        self._learnt.forget()

    def find(
        self, texts: list[str], *, normal: bool = False
    ) -> tuple[npt.NDArray[np.uint8], WordReader, npt.NDArray[np.int32]]:
        """Return the bytes of a block of texts, all about their words, and where each text's words end among these.

        With `normal`, the texts are as `Vocabulary.spaced` gives them; else they are rewritten so if need be.
        """
        block, vocabulary = self._block(texts), self._vocabulary
        n_bytes = len(block) - PADDING
        reader = self._reader if n_bytes <= _BLOCK_BYTES else self._make_reader(size=n_bytes)
        ends, joined = np.empty(len(texts), np.int32), True
        stops = 0 if normal or vocabulary is None else OTHER_FORM + UNSPACED * vocabulary.cuts_scripts
        while (missing := reader.find(block, ends, stops=stops, joined=joined)) < 0:
            if missing == NUL_IN_TEXT:
                ends[:], joined = np.cumsum([len(well_formed(text).encode()) + 1 for text in texts]) - 1, False
            elif missing <= UNCLASSIFIED:
                _classify_page(UNCLASSIFIED - missing)
            elif vocabulary is not None:
                is_normal = missing == NUL_IN_TEXT - UNSPACED
                return self.find(vocabulary.spaced(texts, normal=is_normal), normal=True)
        for first in range(0, missing, _LEARNT_WORDS):
            last = min(first + _LEARNT_WORDS, missing)
            n_missing = reader.look_again(first, last) if first else last
            self._ask(block, reader, reader.missing[first : first + n_missing])
        return block, reader, ends

    def _block(self, texts: list[str]) -> npt.NDArray[np.uint8]:
        """Return the UTF-8 of texts, a NUL after each text, and the padding."""
        try:
            n_bytes = join_strings(texts, self._reader.block)
        except UnicodeEncodeError:
            texts = list(map(well_formed, texts))
            n_bytes = join_strings(texts, self._reader.block)
        if n_bytes >= 0:
            return self._reader.block[: n_bytes + PADDING]
        utf8 = "\0".join([*texts, _PADDING]).encode()
        if len(utf8) >= _MAX_BLOCK_BYTES:
            raise InputError(f"a text has {len(utf8)} bytes; split texts of 2 GB and more")
        return np.frombuffer(utf8, np.uint8)

    def _ask(self, block: npt.NDArray[np.uint8], reader: WordReader, missing: npt.NDArray[np.int32]) -> None:
        """Set the numbers of the words at `missing`, asking once for each word."""
        utf8 = block.data
        spelled = [bytes(utf8[start:end]) for start, end in reader.edges[missing].tolist()]
        distinct = list(set(spelled))
        number_of = dict(zip(distinct, self._numbers_of([word.decode() for word in distinct])))
        numbers = np.array([number_of[word] for word in spelled], np.int32)
        reader.rows[missing] = numbers
        reader.learn(missing, numbers)


class WordNumbers(_Reader):
    """The words of texts as `split_words` gives them, with their places, and a number for each; for one thread."""

    def __init__(
        self, spelled: Sequence[str], number_of: Callable[[str], int], byte_classes: npt.NDArray[np.uint8]
    ) -> None:
        """Take the list of words, which may grow, and what gives a word its place there and adds it if need be.

        `byte_classes` is what `WordReader.list_tokens` takes.
        """
        self._spelled, self._byte_classes = spelled, byte_classes
        super().__init__(self._indexed(), partial(map, number_of))

    def _indexed(self) -> Callable[..., WordReader]:
        self._indexed_words = len(self._spelled)
        words = WordIndex(self._spelled)
        return partial(WordReader, words, pieces=Pieces(), cased=True, complete=False, exact=True)

    def read(self, texts: list[str]) -> WordList:
        """Return the words, their numbers as values."""
        if len(self._spelled) > 2 * self._indexed_words + _PAGE:  # found faster there than among what was learnt
            super().__init__(self._indexed(), self._numbers_of)
        forms = list(map(normalize, texts))
        texts = [form.text for form in forms]
        block, reader, text_ends = self.find(texts, normal=True)
        ends = text_ends.astype(np.int64)
        words = int(ends[-1]) if len(ends) else 0
        spans = reader.edges[:words].astype(np.int64)
        if not all(map(str.isascii, texts)):  # from bytes to characters: one begins with any byte but 10xxxxxx
            spans = np.concatenate([[0], np.cumsum((block & 0xC0) != 0x80)])[spans]
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
        spans -= starts.repeat(sizes_from(ends))[:, None]
        for index, form in enumerate(forms):
            if not form.is_original:
                text_slice = slice_for(ends, index)
                spans[text_slice] = form.spans(spans[text_slice])
        is_token = reader.list_tokens(self._byte_classes)
        if block.tobytes().count(0) > len(texts) + PADDING:  # one within a text, which is no blank
            is_token[:] = False
        return WordList(reader.rows[:words].astype(np.int64), spans, ends, is_token)


def _blocks(texts: list[str], block_texts: int = _BLOCK_TEXTS) -> Iterator[tuple[int, int]]:
    """Cut `texts` into ranges of at most `block_texts` texts and, except single texts, `_BLOCK_CHARACTERS`."""
    for first in range(0, len(texts), block_texts):
        yield from _small_enough(texts, first, min(first + block_texts, len(texts)))


def _small_enough(texts: list[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    if last - first == 1 or count_characters(texts, first, last) <= _BLOCK_CHARACTERS:
        yield first, last
    else:
        middle = (first + last) // 2
        yield from _small_enough(texts, first, middle)
        yield from _small_enough(texts, middle, last)


def _cached_for(
    cache: WeakKeyDictionary[Vocabulary, _Cached], vocabulary: Vocabulary, make: Callable[[], _Cached]
) -> _Cached:
    """Return what is cached for a vocabulary, made when it is first asked for."""
    value = cache.get(vocabulary)
    if value is None:
        value = cache[vocabulary] = make()
    return value


def _pieces(vocabulary: Vocabulary) -> Pieces:
    """Return the pieces of the teacher's tokenizer if what it makes of ASCII is BERT's rule and nothing else."""
    file = vocabulary.subwords_file()
    model, normalizer = file.get("model", {}), file.get("normalizer") or {}
    tokens, max_word_chars = model.get("vocab"), model.get("max_input_chars_per_word")
    if not (_cuts_like_bert(file) and isinstance(tokens, dict) and model.get("unk_token") in tokens):
        return Pieces()
    if not isinstance(max_word_chars, int) or max_word_chars < 0:
        return Pieces()
    ascii_tokens = [token for token in tokens if token.isascii()]
    beginnings = [token for token in ascii_tokens if token[:2] != "##"]
    inside = [token[2:] for token in ascii_tokens if token[:2] == "##"]
    lower = normalizer.get("lowercase", False)
    return Pieces(beginnings, inside, min(MAX_WORD_CHARS, max_word_chars), lower=lower)


def _cuts_like_bert(file: dict[str, Any]) -> bool:
    """Whether a tokenizer's file describes BERT's; anything else is left to the tokenizer itself."""
    model, added = file.get("model", {}), file.get("added_tokens") or []
    normalizer = file.get("normalizer") or {"type": "BertNormalizer", "lowercase": False}
    return (
        model.get("type", "WordPiece") == "WordPiece"
        and model.get("continuing_subword_prefix") == "##"
        and (
            normalizer is None
            or (normalizer.get("type"), type(normalizer.get("lowercase"))) == ("BertNormalizer", bool)
        )
        and (file.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
        and file.get("truncation") is None
        and all(any(mark in token["content"] for mark in punctuation) for token in added)  # else a word may hold one
    )


CLASSES = np.zeros(0x110000, np.uint8)
"""For each code point what `WordReader` takes: 0 until it is looked at."""


def _classify_page(point: int) -> None:
    """Ask BERT's pre-tokenizer and the Unicode policy about the code points around `point`."""
    first = point // _PAGE * _PAGE
    points = [p for p in range(first, first + _PAGE) if not 0xD800 <= p <= 0xDFFF]
    text = "a" + "".join(f"{chr(p)}a" for p in points)
    joins = np.zeros(len(text), bool)
    for _, (start, end) in BertPreTokenizer().pre_tokenize_str(text):
        joins[start:end] = end - start > 1
    kinds = [3 if may_change(chr(p)) else 4 if unspaced_run.match(chr(p)) else 1 for p in points]
    CLASSES[points] = np.where(joins[1::2], kinds, 2)
