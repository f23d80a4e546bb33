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

_SEVERAL = -1  # in the place of the number of a key: the word may hold several terms
KNOWN, CONTENT = 1, 2
"""What a static model knows, and what is no function word; a sum says both."""

_MOST_WORDS = 1 << 20  # that are remembered
_SHORT = 300  # characters; such a text is read sooner without the C kernels


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
        self._whole = {name for name, model in models.items() if any(map(is_phrase, model.vocabulary.words))}
        self._reader: WordNumbers | None = None
        self._lock = fork_lock()
        call_after_fork(self)

    def after_fork(self) -> None:
        """Drop in a child what a thread of the parent may have left half changed."""
        self._reader = None

    @property
    def full(self) -> bool:
        """Whether it has met so many words that another should take its place."""
        return len(self._spelled) > _MOST_WORDS

    def read(self, texts: list[str]) -> WordList:
        """Return the words of some texts as `split_words` gives them, and their numbers."""
        with self._lock:
            if sum(map(len, texts)) < _SHORT or native() is None:
                return self._numbered([split_words(text) for text in texts])
            if self._reader is None:
                from pellucid.static.bulk import WordNumbers  # tokenizers takes a while to import

                self._reader = WordNumbers(self._spelled, self._number)
            return WordList(*self._reader.read(texts))

    def _numbered(self, texts: list[list[Word]]) -> WordList:
        every = list(chain(*texts))
        numbers = np.array([self._number(word.text) for word in every], np.int64)
        spans = np.array([word[1:] for word in every], np.int64).reshape(-1, 2)
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

    def split(self, name: str, texts: list[str], found: WordList) -> WordList:
        """Return the words of `texts` as a static model cuts them; `found` is what `read` returns."""
        vocabulary = self.models[name].vocabulary
        if name in self._whole or (vocabulary.cuts_scripts and not all(map(str.isascii, texts))):
            return self._numbered([vocabulary.split(text) for text in texts])
        return found

    def rows(self, name: str, found: WordList) -> tuple[WordList, SpelledRows | None]:
        """Return the words, as `split` returns them, that a static model has a row for, also by spelling."""
        rows = self._rows[name][found.values]
        spelled = self.models[name].spelled_rows()
        if spelled is not None:
            others = rows < 0
            rows[others] = spelled.rows([self._spelled[number] for number in found.values[others].tolist()])
        return found._replace(values=rows).select(rows >= 0), spelled

    def statuses(self, name: str, found: WordList) -> list[int]:
        """Return what a static model knows of the words of a query, as `split` returns them: KNOWN + CONTENT."""
        known, statuses = self._statuses[name], []
        for number, row in zip(found.values.tolist(), self._rows[name][found.values].tolist()):
            if number not in known:
                word = self._spelled[number]
                is_content = lowercase(word) not in self.analyser.function_words
                known[number] = KNOWN * _recognizes(self.models[name], word, row) + CONTENT * is_content
            statuses.append(known[number])
        return statuses

    def places(self, texts: list[str], found: WordList, numbers: Mapping[str, int]) -> WordList:
        """Return those of BM25's terms of `texts` that have a number, by it; `found` is what `read` returns."""
        keys, known = self._keys[found.values], self._key_numbers
        wanted = [known[key] for term in numbers for key in self.analyser.keys(term) if key in known]
        found = found.select(np.isin(keys, [*wanted, _SEVERAL]))
        near = found.spans.tolist()
        every = [self.analyser.places(text, numbers, near[found.slice_for(n)]) for n, text in enumerate(texts)]
        values = np.array([numbers[term] for terms, _ in every for term in terms], np.int64)
        spans = np.array([span for _, spans in every for span in spans], np.int64).reshape(-1, 2)
        return WordList(values, spans, np.cumsum([len(terms) for terms, _ in every], dtype=np.int64))

    def _key_number(self, word: str) -> int:
        key = self.analyser.key(word)
        with self._lock:
            return self._key_numbers.setdefault(key, len(self._key_numbers)) if key else _SEVERAL


def _row_of(model: StaticEmbedder) -> Callable[[str], int]:
    """Return what gives a word its row; with spelling, -1 for any that is not in the vocabulary."""
    known = model.vocabulary
    if model.spelling is None:
        return known.row
    return lambda word: known.row(word) if known.has_row(word) else -1


def _recognizes(model: StaticEmbedder, word: str, row: int) -> bool:
    """Whether a static model knows a word, or most of it by its beginning or spelling; `row` is `_row_of` it."""
    known = model.vocabulary
    if row >= 0:
        return known.has_row(word) or RECOGNIZABLE_PREFIX.allows(len(known.forms[row]), len(word))
    spelled = model.spelled_rows()
    if spelled is None:
        return False
    number = spelled.rows([word])[0] - len(known)  # which may make a new row
    return not spelled.unknown[number]
