"""The words of passages as numbers, found once for all parts of a score.

The term of BM25 and the rows of static models are looked up once for each distinct word and kept in an array, so that
reading it again costs no Python call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pellucid.index.terms import Analyser
from pellucid.native.library import native
from pellucid.process import call_after_fork, fork_lock
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.spelling import SpelledRows
from pellucid.static.words import Integers, WordList
from pellucid.text.unicode import lowercase
from pellucid.text.words import RECOGNIZABLE_PREFIX, Word, is_phrase, split_words

if TYPE_CHECKING:
    from pellucid.static.bulk import WordNumbers

_SEVERAL_TERMS = -1  # in the place of the number of a key: the word may hold several terms
IN_VOCABULARY, CONTENT = 1, 2
"""What a static model knows, and what is no function word; a sum says both."""

MAX_CACHED_WORDS = 1 << 20  # that are remembered
MIN_KERNEL_CHARS = 300  # characters; such a text is read sooner without the C kernels


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
        self._rows = {name: _Column(self._spelled, _row_of(model)) for name, model in models.items()}
        self._statuses: dict[str, dict[int, int]] = {name: {} for name in models}
        self._phrase_models = {name for name, model in models.items() if any(map(is_phrase, model.vocabulary.words))}
        self._reader: WordNumbers | None = None
        self._lock = fork_lock()
        call_after_fork(self)

    def after_fork(self) -> None:
        """Drop in a child what a thread of the parent may have left half changed."""
        self._reader = None

    @property
    def full(self) -> bool:
        """Whether it has met so many words that another should take its place."""
        return len(self._spelled) > MAX_CACHED_WORDS

    def read(self, texts: list[str]) -> WordList:
        """Return the words of some texts as `split_words` gives them, and their numbers."""
        with self._lock:
            if sum(map(len, texts)) < MIN_KERNEL_CHARS or native() is None:
                return self._numbered([split_words(text) for text in texts])
            if self._reader is None:
                from pellucid.static.bulk import WordNumbers  # tokenizers takes a while to import

                self._reader = WordNumbers(self._spelled, self._number)
            return WordList(*self._reader.read(texts))

    def _numbered(self, texts: list[list[Word]]) -> WordList:
        words = list(chain(*texts))
        numbers = np.array([self._number(word.text) for word in words], np.int64)
        spans = np.array([word[1:] for word in words], np.int64).reshape(-1, 2)
        return WordList(numbers, spans, np.cumsum([len(words) for words in texts], dtype=np.int64))

    def _number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            with self._lock:
                number = self._numbers.get(word, len(self._spelled))
                if number == len(self._spelled):
                    self._spelled.append(word)  # first: a number without a word would become that of another one
                    self._numbers[word] = number
        return number

    def split(self, name: str, texts: list[str], words: WordList) -> WordList:
        """Return the words of `texts` as a static model cuts them; `words` are what `read` returns."""
        vocabulary = self.models[name].vocabulary
        if name in self._phrase_models or (vocabulary.cuts_scripts and not all(map(str.isascii, texts))):
            return self._numbered([vocabulary.split(text) for text in texts])
        return words

    def rows(self, name: str, words: WordList) -> tuple[WordList, SpelledRows | None]:
        """Return the words, as `split` returns them, that a static model has a row for, also by spelling."""
        rows = self._rows[name][words.values]
        spelled = self.models[name].spelled_rows()
        if spelled is not None:
            missing = rows < 0
            rows[missing] = spelled.rows([self._spelled[number] for number in words.values[missing].tolist()])
        return words._replace(values=rows).select(rows >= 0), spelled

    def statuses(self, name: str, words: WordList) -> list[int]:
        """Return what a static model knows of the words of a query, as `split` returns them: KNOWN + CONTENT."""
        statuses_by_number, statuses = self._statuses[name], []
        for number, row in zip(words.values.tolist(), self._rows[name][words.values].tolist()):
            if number not in statuses_by_number:
                word = self._spelled[number]
                is_content = lowercase(word) not in self.analyser.function_words
                statuses_by_number[number] = (
                    IN_VOCABULARY * _recognizes(self.models[name], word, row) + CONTENT * is_content
                )
            statuses.append(statuses_by_number[number])
        return statuses

    def term_positions(self, texts: list[str], words: WordList, numbers: Mapping[str, int]) -> WordList:
        """Return those of BM25's terms of `texts` that have a number, by it; `words` are what `read` returns."""
        keys, key_numbers = self._keys[words.values], self._key_numbers
        keys_of_terms = [key_numbers[key] for term in numbers for key in self.analyser.keys(term) if key in key_numbers]
        words = words.select(np.isin(keys, [*keys_of_terms, _SEVERAL_TERMS]))
        word_spans = words.spans.tolist()
        term_spans = [
            self.analyser.term_positions(text, numbers, word_spans[words.slice_for(n)]) for n, text in enumerate(texts)
        ]
        values = np.array([numbers[term] for terms, _ in term_spans for term in terms], np.int64)
        spans = np.array([span for _, spans in term_spans for span in spans], np.int64).reshape(-1, 2)
        return WordList(values, spans, np.cumsum([len(terms) for terms, _ in term_spans], dtype=np.int64))

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


def _recognizes(model: StaticEmbedder, word: str, row: int) -> bool:
    """Whether a static model knows a word, or most of it by its beginning or spelling; `row` is `_row_of` it."""
    vocabulary = model.vocabulary
    if row >= 0:
        return vocabulary.has_row(word) or RECOGNIZABLE_PREFIX.allows(len(vocabulary.forms[row]), len(word))
    spelled = model.spelled_rows()
    if spelled is None:
        return False
    number = spelled.rows([word])[0] - len(vocabulary)  # which may make a new row
    return not spelled.unknown[number]
