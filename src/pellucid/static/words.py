"""The words of texts as explanations show them, and what pairs of them add to a cosine.

A cosine of two means is a sum over pairs of words, one of each text. `WordQuery` takes one cosine apart in float64, for
`explain`. `WordPairs` takes those of several documents apart at once, from words that an index has found, and counts
the query's words as a search does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pellucid.embeddings import Role
from pellucid.errors import InputError
from pellucid.query import Query, Terms
from pellucid.rows import READ_AS, WORD, PairTable, Row, pair_row
from pellucid.static.folder import not_finite
from pellucid.static.spelling import SpelledRows
from pellucid.text import JOINER, Coverage, Span, Vocabulary, Word, shown_word

Integers = npt.NDArray[np.int64]
Item = TypeVar("Item")

_OTHER = 1 << 40  # beyond all rows: see `TextWords`
_MOST_PAIRS = 250_000  # rows of an explanation: about 2 s and 0.2 GB


def named(text: str, row: int, vocabulary: Vocabulary, spelled: SpelledRows | None) -> tuple[str, str]:
    """Return how a word of a text is shown in an explanation, and which known words its vector is of."""
    shown = shown_word(text)
    if spelled is None or row < len(vocabulary):
        known = vocabulary.words[row]
        return shown if known in (text, text.lower()) else f"{shown}{READ_AS}{shown_word(known)})", known
    known = " + ".join(shown_word(vocabulary.words[part]) for part in spelled.parts(row - len(vocabulary)))
    return f"{shown}{READ_AS}{known})" if known else f"{shown} (unknown)", known or text.lower()


class TextWords:
    """The words of a text: how much of it is known, the distinct words, and a `Row` of each when it is asked for."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        rows: list[int],
        word: Callable[[int], Word],
        others: Iterable[int],
        spelled: SpelledRows | None = None,
    ) -> None:
        """Take the row of each word, -1 for an unknown one, and what turns its number into the word."""
        # `others` are the numbers of words that may have the row of another word, such as of their beginning.
        self._vocabulary, self._word, self.spelled = vocabulary, word, spelled
        self._codes = list(rows)  # a word's row, and beyond the rows a number for each of the others
        self._others: dict[tuple[int, str], int] = {}
        partly, strange = 0, [] if spelled is None else spelled.strange.tolist()
        unknown = [number for number, row in enumerate(rows) if row < 0] if rows.count(-1) else []
        for number in others:
            row, lower = rows[number], word(number).text.lower()
            if row >= len(vocabulary):
                if strange[row - len(vocabulary)]:
                    unknown.append(number)  # with spelling, no row is -1
                else:
                    partly += 1
            elif row >= 0 and lower != vocabulary.words[row].lower():
                code = _OTHER + len(self._others)
                self._codes[number] = self._others.setdefault((row, lower), code)
                partly += 1
        self.unknown = tuple(word(number)[1:] for number in unknown)
        self.coverage = Coverage(len(rows) - len(unknown), len(rows), partly)

    @cached_property
    def _counts(self) -> Counter[int]:
        """How often each distinct known word occurs, by code, in the order of the text."""
        counts = Counter(self._codes)
        counts.pop(-1, None)
        return counts

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        """How often each distinct known word occurs, float64 [words]."""
        return np.array(list(self._counts.values()), np.float64)

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each in the table, or beyond it that of a spelled word, int64 [words]."""
        rows = np.array(list(self._counts), np.int64)
        rows[rows >= _OTHER] = [row for row, _ in self._others]  # both in the order of the text
        return rows

    @cached_property
    def _places(self) -> list[list[int]]:
        """The numbers of the words that are one distinct word, of each."""
        places: dict[int, list[int]] = {code: [] for code in self._counts}
        for number, code in enumerate(self._codes):
            if code >= 0:
                places[code].append(number)
        return list(places.values())

    def row(self, number: int) -> Row:
        """Return a distinct word, named as it is first written, without a contribution."""
        words = list(map(self._word, self._places[number]))
        text, row = words[0].text, int(self.rows[number])
        name, known = named(text, row, self._vocabulary, self.spelled)
        shown = shown_word(text)
        return Row(name, (shown,), 0.0, 0.0, tuple(word[1:] for word in words), key=(known, text.lower()), kind=WORD)


def length_of(total: npt.NDArray[np.float64], text: str) -> float:
    """Return the length of the sum of a text's vectors, which must be a number."""
    length = float(np.linalg.norm(total))
    if not math.isfinite(length):
        raise not_finite(text)
    return length


class WordQuery(Query):
    """A text as a static model reads it."""

    needs_vectors = False

    def __init__(self, model: Any, text: str, role: Role) -> None:
        """Read the words of a checked text."""
        super().__init__(model, text, role)
        self.words: TextWords = model.words_of(text)
        self.known = self.words.coverage, self.words.unknown

    def vectors(self) -> npt.NDArray[np.float64]:
        """Return the vectors of the distinct words, which add up to the embedding, float64 [words, dimension]."""
        words = self.words
        vectors: npt.NDArray[np.float64] = self.model.vectors_of(words.rows, words.spelled).astype(np.float64)
        length = length_of(words.counts @ vectors, self.text)
        vectors *= (words.counts / (length or 1.0))[:, None]
        return vectors

    def terms(self, other: Query | None = None) -> Terms:
        """Return a value for each pair of words, or for each word where there is no other text."""
        vectors = self.vectors()
        if not isinstance(other, WordQuery):
            _check_size(len(vectors), 1)
            pulls = vectors @ vectors.sum(axis=0)
            return Terms(pulls, self.words.row, score=float(pulls.sum()))
        others = other.vectors()
        _check_size(len(vectors), len(others))
        table = vectors @ others.T
        row = PairTable(self.words.row, other.words.row, table.shape)
        return Terms(table.ravel(), row, score=float(table.sum()))


def _check_size(words1: int, words2: int) -> None:
    """Check that there are no more rows than anyone reads and memory holds."""
    if words1 * words2 > _MOST_PAIRS:
        raise InputError(
            f"explaining {words1:,} x {words2:,} distinct words would give more than {_MOST_PAIRS:,} rows; "
            "explain shorter passages"
        )


class WordList(NamedTuple):
    """The words of some texts."""

    values: Integers  # [words] the words' numbers, or what became of them
    spans: Integers  # [words, 2] where each starts and ends in its text, in characters
    ends: Integers  # [texts] where each text's words end

    def of(self, text: int) -> slice:
        """Return where the words of a text are."""
        return part_of(self.ends, text)

    def sizes(self) -> Integers:
        """Return the number of words of each text, int64 [texts]."""
        return np.diff(self.ends, prepend=0)

    def texts(self) -> Integers:
        """Return the text of each word, int64 [words]."""
        return np.repeat(np.arange(len(self.ends)), self.sizes())

    def counts(self, values: int) -> Integers:
        """Return how often each value from 0 to `values` - 1 stands in each text, int64 [texts, values]."""
        texts = len(self.ends)
        return np.bincount(self.texts() * values + self.values, minlength=texts * values).reshape(texts, values)

    def kept(self, which: npt.NDArray[np.bool_]) -> WordList:
        """Return some of the words."""
        places = np.flatnonzero(which)
        return WordList(self.values[places], self.spans[places], np.searchsorted(places, self.ends))


class WordPairs:
    """A query as a static model reads it for a search, whose words may count more or less."""

    def __init__(
        self, model: Any, query: str, words: WordList, spelled: SpelledRows | None, weight: float,
        factors: Mapping[str, float],
    ) -> None:  # fmt: skip
        """Take the query's words that have a row, those beyond the table in `spelled`, and what some words count."""
        # `weight` is what cosines are multiplied by.
        self._model = model
        places = spans_by(zip(words.values.tolist(), map(tuple, words.spans.tolist())))
        self._rows = np.array(list(places), np.int64)
        counts = np.array([len(spans) for spans in places.values()], np.float32)
        vectors = model.vectors_of(self._rows, spelled) * counts[:, None]
        self._vectors = vectors * np.float32(weight / (np.linalg.norm(vectors.sum(axis=0)) or 1.0))
        for word, factor in factors.items():
            self._vectors[self._rows == model.vocabulary.row(JOINER.join(word.split()))] *= np.float32(factor)
        each = list(places.values())
        self._word = cache(lambda word: self._word_row(query, each[word], int(self._rows[word]), spelled))

    @property
    def vector(self) -> npt.NDArray[np.float32]:
        """What a search multiplies, as the words count, float32 [dimension]."""
        vector: npt.NDArray[np.float32] = self._vectors.sum(axis=0)
        return vector

    def against(self, texts: Sequence[str], words: WordList, spelled: SpelledRows | None) -> Callable[[int], Terms]:
        """Return what gives the terms of each of `texts`, whose words are `words`: a value for each pair of words."""
        rows, which = distinct(words.values, len(self._model.vocabulary) + len(spelled or ()))
        found = words._replace(values=which)
        counts = found.counts(len(rows))
        bulk = self._model.compiled(texts)
        if bulk is None or spelled:
            vectors = self._model.vectors_of(rows, spelled)
            products = (vectors @ self._vectors.T).astype(np.float64)
            lengths = np.linalg.norm(counts.astype(np.float32) @ vectors, axis=1).astype(np.float64)
        else:
            products, lengths = bulk.products_and_lengths(rows, words.values, words.ends, self._vectors)
        lengths[lengths == 0] = 1.0
        marks = products.sum(axis=1)[which] / lengths[found.texts()]
        owners, present = np.nonzero(counts)
        values = products[present] * (counts[owners, present] / lengths[owners])[:, None]
        ends, asked = owners.searchsorted(np.arange(len(lengths)), "right"), len(self._rows)

        def terms(text: int) -> Terms:
            own, mine = found.of(text), part_of(ends, text)
            word = cache(partial(other_word, text, own))

            def row(number: int) -> Row:
                column, first = divmod(number, asked)
                return pair_row(self._word(first), word(int(present[mine][column])))

            return Terms(values[mine].ravel(), row, marks[own], found.spans[own])

        def other_word(text: int, own: slice, word: int) -> Row:
            spans = tuple(map(tuple, found.spans[own][which[own] == word].tolist()))
            return self._word_row(texts[text], spans, int(rows[word]), spelled)

        return terms

    def _word_row(self, text: str, spans: tuple[Span, ...], row: int, spelled: SpelledRows | None) -> Row:
        """Return a word as the user wrote it, with the vocabulary's if that is more than another case; its places."""
        stands = text[slice(*spans[0])]
        name, known = named(stands, row, self._model.vocabulary, spelled)
        return Row(name, (name,), 0.0, 0.0, spans, key=(known, *([stands.lower()] if spelled else [])))


def part_of(ends: Integers, number: int) -> slice:
    """Return where the items of one of several things are, which end at `ends`."""
    return slice(int(ends[number - 1]) if number else 0, int(ends[number]))


def spans_by(places: Iterable[tuple[Item, Span]]) -> dict[Item, tuple[Span, ...]]:
    """Return where each item stands, by items in the order of their first places."""
    found: dict[Item, tuple[Span, ...]] = {}
    for item, span in places:
        found[item] = (*found.get(item, ()), span)
    return found


def distinct(values: Integers, limit: int) -> tuple[Integers, Integers]:
    """Return the distinct `values`, which are from 0 to `limit` - 1, and the place of each value among them."""
    # They are in no order that matters; nothing is sorted, since a search would be slower for it.
    numbers = np.arange(len(values))
    last = np.empty(limit, np.int64)  # memory that is not touched costs nothing
    last[values] = numbers
    found = values[last[values] == numbers]
    last[found] = numbers[: len(found)]
    return found, last[values]
