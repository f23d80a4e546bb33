"""The words of passages as numbers, found once for all parts of a score.

The term of BM25 and the rows of static models are looked up once for each distinct word and kept in an array, so that
reading it again costs no Python call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pellucid.forks import call_after_fork, fork_lock
from pellucid.index.bm25 import Analyser
from pellucid.native.library import native
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.spelling import SpelledRows
from pellucid.static.words import Integers, WordList
from pellucid.text import Span, Word, is_phrase, split_words

if TYPE_CHECKING:
    from pellucid.static.bulk import WordNumbers

_NO_TERM, _SEVERAL_TERMS = -1, -2
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
        self._term_numbers: dict[str, int] = {}
        self._terms = _Column(self._spelled, self._term)
        self._rows = {name: _Column(self._spelled, _row_of(model)) for name, model in models.items()}
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

    def rows(self, name: str, texts: list[str], found: WordList) -> tuple[WordList, SpelledRows | None]:
        """Return the words of `texts`, as `read` found them, that a static model has a row for, also by spelling."""
        vocabulary = self.models[name].vocabulary
        if name in self._whole or (vocabulary.cuts_scripts and not all(map(str.isascii, texts))):
            found = self._numbered([vocabulary.split(text) for text in texts])
        rows = self._rows[name][found.values]
        spelled = self.models[name].spelled_rows()
        if spelled is not None:
            others = rows < 0
            rows[others] = spelled.rows([self._spelled[number] for number in found.values[others].tolist()])
        return found._replace(values=rows).kept(rows >= 0), spelled

    def terms(self, texts: list[str], found: WordList) -> WordList:
        """Return BM25's terms of `texts` by number, of the words as `read` found them."""
        terms = found._replace(values=self._terms[found.values])
        if (terms.values == _SEVERAL_TERMS).any():
            terms = self._divided(texts, terms)
        return terms.kept(terms.values != _NO_TERM)

    def _divided(self, texts: list[str], terms: WordList) -> WordList:
        """Put the terms of words that have several, or one that is a part of the word, in the place of these words."""
        several, owners = terms.values == _SEVERAL_TERMS, terms.texts()
        counts = np.ones(len(several), np.int64)
        numbers: list[int] = []
        spans: list[Span] = []
        for word in np.flatnonzero(several).tolist():
            start, end = terms.spans[word].tolist()
            places = self.analyser.places(texts[owners[word]][start:end])
            counts[word] = len(places)
            numbers += [self.term_number(term) for term, _ in places]
            spans += [(start + first, start + last) for _, (first, last) in places]
        inside = np.repeat(several, counts)
        ends = np.concatenate([[0], np.cumsum(counts)])[terms.ends]
        every = WordList(np.repeat(terms.values, counts), np.repeat(terms.spans, counts, axis=0), ends)
        every.values[inside], every.spans[inside] = numbers, spans
        return every

    def term_number(self, term: str) -> int:
        """Return the number of a term."""
        with self._lock:
            return self._term_numbers.setdefault(term, len(self._term_numbers))

    def _term(self, word: str) -> int:
        terms = self.analyser.places(word)
        if len(terms) == 1 and terms[0][1] == (0, len(word)):
            return self.term_number(terms[0][0])
        return _SEVERAL_TERMS if terms else _NO_TERM


def _row_of(model: StaticEmbedder) -> Callable[[str], int]:
    """Return what gives a word its row; with spelling, -1 for any that is not in the vocabulary."""
    known = model.vocabulary
    if model.spelling is None:
        return known.row
    return lambda word: known.row(word) if known.has_row(word) else -1
