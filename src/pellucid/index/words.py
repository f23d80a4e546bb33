"""The words of passages as numbers, found once for all parts of a score.

The term of BM25 and the rows of static models are looked up once for each distinct word and kept in an array, so that
reading it again costs no Python call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from pellucid.index.terms import PUNCTUATION, SOFT_HYPHEN, Analyser
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.spelling import SpelledRows
from pellucid.static.words import Integers, WordList
from pellucid.text.unicode import lowercase
from pellucid.text.words import Span, is_recognizable_prefix, split_words

if TYPE_CHECKING:
    from pellucid.static.bulk import WordNumbers

_SEVERAL_TERMS, _NO_TERM, _ABSENT = -1, -2, -3  # instead of the number of a key or term
IN_VOCABULARY, CONTENT = 1, 2
"""What a static model knows, and what is no function word; a sum says both."""

QueryWord = tuple[int, int, Span]
"""A word of a query as a static model reads it: its row, IN_VOCABULARY + CONTENT, and its span.

The row is in the table or, with spelling, beyond it; -1 for none.
"""

MAX_CACHED_WORDS = 1 << 20  # that are remembered
_MAX_CACHED_TERMS = 1 << 14

_BYTE_CLASSES = np.array(
    [
        1 * (code == 0 or (code < 128 and chr(code).isspace()))  # a blank; a NUL ends a text
        + 2 * (chr(code) in PUNCTUATION)
        + 4 * (chr(code) in PUNCTUATION + ".")
        for code in range(256)
    ],
    np.uint8,
)
"""What a byte of UTF-8 is beside a word, for `WordNumbers`: a blank, or a mark beside it that `_core` drops."""


class _Column:
    """An integer for each number of a word."""

    def __init__(self, spelled: Sequence[str], value_of: Callable[[str], int]) -> None:
        self._spelled, self._value_of = spelled, value_of
        self._values: Integers = np.zeros(0, np.int64)

    def __getitem__(self, numbers: Integers) -> Integers:
        values, words = self._values, len(self._spelled)
        if words > len(values):
            new = np.fromiter(map(self._value_of, self._spelled[len(values) : words]), np.int64, words - len(values))
            self._values = values = np.concatenate([values, new])
        return values[numbers]


class WordCache:
    """The words of texts for the parts of an index; for any number of threads."""

    def __init__(self, analyser: Analyser, models: Mapping[str, StaticEmbedder]) -> None:
        """Take what the parts make of words."""
        self.analyser, self.models = analyser, models
        self._spelled: list[str] = []
        self._numbers: dict[str, int] = {}
        self._key_numbers: dict[str, int] = {}
        self._keys = _Column(self._spelled, self._key_number)
        self._terms = _Column(self._spelled, self._term_number)  # those of tokens
        self._keys_for = lru_cache(_MAX_CACHED_TERMS)(analyser.keys)
        self._rows = {name: _Column(self._spelled, _row_of(model)) for name, model in models.items()}
        self._query_word = lru_cache(_MAX_CACHED_TERMS)(self._read_query_word)
        self._reader: WordNumbers | None = None
        self._lock = RLock()

    @property
    def full(self) -> bool:
        """Whether it has met so many words that another should take its place."""
        return len(self._spelled) > MAX_CACHED_WORDS

    def read(self, texts: list[str]) -> WordList:
        """Return the words of some texts as `split_words` gives them, and their numbers."""
        with self._lock:
            if self._reader is None:
                from pellucid.static.bulk import WordNumbers  # tokenizers takes a while to import

                self._reader = WordNumbers(self._spelled, self._number, _BYTE_CLASSES)
            return self._reader.read(texts)

    def _number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            with self._lock:
                number = self._numbers.get(word, len(self._spelled))
                if number == len(self._spelled):
                    self._spelled.append(word)  # first: a number without a word would become that of another one
                    self._numbers[word] = number
        return number

    def _is_cut_by(self, name: str, texts: Iterable[str]) -> bool:
        """Whether a static model cuts texts in its own way: those in scripts without spaces."""
        return self.models[name].vocabulary.cuts_scripts and not all(map(str.isascii, texts))

    def rows(self, name: str, texts: list[str], words: WordList) -> tuple[WordList, SpelledRows | None]:
        """Return the words of `texts` that a static model has a row for, as it cuts them, also by spelling.

        `words` are what `read` returns.
        """
        if self._is_cut_by(name, texts):
            split = list(map(self.models[name].vocabulary.split, texts))
            numbers = np.array([self._number(word.text) for word in chain(*split)], np.int64)
            spans = np.array([word[1:] for word in chain(*split)], np.int64).reshape(-1, 2)
            words = WordList(numbers, spans, np.cumsum(list(map(len, split)), dtype=np.int64))
        rows = self._rows[name][words.values]
        spelled = self.models[name].spelled_rows()
        if spelled is not None:
            missing = rows < 0
            rows[missing] = spelled.rows([self._spelled[number] for number in words.values[missing].tolist()])
        return words._replace(values=rows).select(rows >= 0), spelled

    def query_words(self, name: str, query: str) -> tuple[list[QueryWord], SpelledRows | None]:
        """Return the words of a query as a static model cuts them, and what has the rows beyond the table."""
        model = self.models[name]
        words = model.vocabulary.split(query) if self._is_cut_by(name, [query]) else split_words(query)
        query_words, spelled = [(*self._query_word(name, text), (a, b)) for text, a, b in words], model.spelled_rows()
        if spelled is not None:
            missing = [index for index, (row, _, _) in enumerate(query_words) if row < 0]
            rows = spelled.rows([words[index].text for index in missing])  # all together, before `unknown` is read
            are_unknown = spelled.unknown[np.array(rows, np.int64) - len(model.vocabulary)]
            for index, row, is_unknown in zip(missing, rows, are_unknown):
                _, status, span = query_words[index]
                query_words[index] = (row, status if is_unknown else status | IN_VOCABULARY, span)
        return query_words, spelled

    def _read_query_word(self, name: str, word: str) -> tuple[int, int]:
        """Return the row that a static model's table has for a word, -1 for none, and IN_VOCABULARY + CONTENT."""
        row, vocabulary = _row_of(self.models[name])(word), self.models[name].vocabulary
        # Of a word that is in part in the vocabulary, most must be.
        is_known = row >= 0 and (vocabulary.has_row(word) or is_recognizable_prefix(vocabulary.forms[row], word))
        return row, IN_VOCABULARY * is_known + CONTENT * (lowercase(word) not in self.analyser.function_words)

    def term_positions(self, texts: list[str], words: WordList, numbers: Mapping[str, int]) -> WordList:
        """Return those of BM25's terms of `texts` that have a number, by it; `words` are what `read` returns."""
        # A word that is a token, most are, has one term, looked up here. Of the tokens of others Python is asked.
        terms, key_numbers = self._terms[words.values], self._key_numbers
        known_terms = [(key_numbers[term], number) for term, number in numbers.items() if term in key_numbers]
        requested, values = np.array(sorted([(_ABSENT, 0), *known_terms]), np.int64).T
        joined_texts = {index for index, text in enumerate(texts) if not text.isascii() and SOFT_HYPHEN in text}
        is_sure = (
            np.zeros(len(terms), np.bool_) if words.is_token is None else words.is_token & (terms != _SEVERAL_TERMS)
        )
        for index in joined_texts:
            is_sure[words.slice_for(index)] = False
        slots = requested.searchsorted(terms, "right") - 1
        positions = (is_sure & (requested[slots] == terms)).nonzero()[0]
        sure = WordList(values[slots[positions]], words.spans[positions], positions.searchsorted(words.ends))
        other_terms = self._other_terms(texts, words.select(~is_sure), numbers, joined_texts)
        if not len(other_terms.values):
            return sure
        # Both are in the order of tokens, in which the terms of a token may have any order.
        reach = int(words.spans.max()) + 1
        starts, other_starts = (part.texts() * reach + part.spans[:, 0] for part in (sure, other_terms))
        token_starts = np.minimum.accumulate(other_starts[::-1])[::-1]
        order = np.concatenate([starts, token_starts]).argsort(kind="stable")
        all_texts = np.concatenate([sure.texts(), other_terms.texts()])[order]
        return WordList(
            np.concatenate([sure.values, other_terms.values])[order],
            np.concatenate([sure.spans, other_terms.spans])[order],
            all_texts.searchsorted(np.arange(len(texts)), "right"),
        )

    def _other_terms(
        self, texts: list[str], words: WordList, numbers: Mapping[str, int], joined_texts: set[int]
    ) -> WordList:
        """Return the terms, by number, of the tokens around some words, and all of the `joined_texts`."""
        word_keys, keys = self._keys[words.values].tolist(), {_SEVERAL_TERMS}  # the first numbers new keys
        for term in numbers:
            keys.update(self._key_numbers[key] for key in self._keys_for(term) if key in self._key_numbers)
        words = words.select(np.array([key in keys for key in word_keys], np.bool_))
        word_spans, ends = words.spans.tolist(), [0, *words.ends.tolist()]
        values: list[int] = []
        spans: list[Span] = []
        term_ends: list[int] = []
        for index, (text, start, end) in enumerate(zip(texts, ends, ends[1:])):
            if start < end or index in joined_texts:
                terms, of_text = self.analyser.term_positions(text, numbers, word_spans[start:end])
                values += [numbers[term] for term in terms]
                spans += of_text
            term_ends.append(len(values))
        spans_array = np.array(spans, np.int64).reshape(-1, 2)
        return WordList(np.array(values, np.int64), spans_array, np.array(term_ends, np.int64))

    def _term_number(self, word: str) -> int:
        term = self.analyser.term_alone(word)
        if not term:
            return _SEVERAL_TERMS if term is None else _NO_TERM
        with self._lock:
            return self._key_numbers.setdefault(term, len(self._key_numbers))

    def _key_number(self, word: str) -> int:
        key = self.analyser.key(word)
        with self._lock:
            return self._key_numbers.setdefault(key, len(self._key_numbers)) if key else _SEVERAL_TERMS


def _row_of(model: StaticEmbedder) -> Callable[[str], int]:
    """Return what gives a word its row; with spelling, -1 for any that is not in the vocabulary."""
    vocabulary = model.vocabulary
    if model.spelling is None:
        return vocabulary.row
    return lambda word: vocabulary.row(word) if vocabulary.has_row(word) else -1
