"""The words of texts as explanations show them, and what pairs of them add to a cosine.

A cosine of two means is a sum over pairs of words, one of each text. `WordQuery` takes one cosine apart in float64, for
`explain`. `WordPairs` takes those of several documents apart at once, from words that an index has found, and counts
the query's words as a search does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role, cosines
from pellucid.core.query import Marks, Query, Terms
from pellucid.errors import InputError
from pellucid.explain.rows import READ_AS, WORD, PairTable, Row
from pellucid.native.kernels import distinct_values, group_words, pair_products
from pellucid.process import cached_property
from pellucid.static.folder import not_finite
from pellucid.static.spelling import SpelledRows
from pellucid.text.unicode import lowercase, normalize
from pellucid.text.words import (
    SPELLED_WORD_SHARE,
    Coverage,
    Span,
    Vocabulary,
    Word,
    part_known,
)

Integers = npt.NDArray[np.int64]

_READ_AS_CODE = 1 << 40  # beyond all rows: see `TextWords`
_MAX_PAIRS = 250_000  # rows of an explanation: about 2 s and 0.2 GB


def display_names(text: str, row: int, vocabulary: Vocabulary, spelled: SpelledRows | None) -> tuple[str, str]:
    """Return how a word of a text is shown in an explanation, and which known words its vector is of."""
    if spelled is None or row < len(vocabulary):
        read_as = vocabulary.forms[row]
        return text if read_as in (text, lowercase(text)) else f"{text}{READ_AS}{read_as})", read_as
    read_as = " + ".join(vocabulary.forms[known_row] for known_row in spelled.named_rows(row - len(vocabulary)))
    return f"{text}{READ_AS}{read_as})" if read_as else f"{text} (unknown)", read_as or lowercase(text)


class TextWords:
    """The words of a text: how much of it is known, the distinct words, and a `Row` of each when it is asked for."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        rows: Sequence[int] | npt.NDArray[Any],
        word: Callable[[int], Word],
        unmatched: Iterable[tuple[int, str]],
        spelled: SpelledRows | None = None,
    ) -> None:
        """Take the row of each word, -1 for an unknown one, and what turns its number into the word."""
        # `unmatched` are those that may have no row, or that of another word, such as of their beginning: index and
        # lower case.
        self._vocabulary, self._word, self.spelled = vocabulary, word, spelled
        self._rows = codes = np.array(rows, np.int64)
        limit, is_unknown = len(vocabulary), [] if spelled is None else spelled.unknown.tolist()
        unknown: list[int] = []
        partial: list[tuple[str, str, float]] = []
        read_as: list[tuple[int, tuple[int, str]]] = []
        for index, lower in unmatched:
            row = int(codes[index])
            if row < 0 or (row >= limit and is_unknown[row - limit]):
                unknown.append(index)
            elif row >= limit:
                partial.append((*self._display_pair(index, row), SPELLED_WORD_SHARE))
            elif lower != lowercase(vocabulary.forms[row]):
                partial.append((*self._display_pair(index, row), part_known(lower, vocabulary.forms[row])))
                read_as.append((index, (row, lower)))
        if read_as:  # such a word is another than the row's, and than one of the same row that is written otherwise
            codes, read_as_codes = codes.copy(), dict[tuple[int, str], int]()
            for index, row_and_lower in read_as:
                codes[index] = read_as_codes.setdefault(row_and_lower, _READ_AS_CODE + len(read_as_codes))
        self._first_positions, self.counts, self._distinct_index = distinct_values(codes)
        self.unknown = tuple(word(index)[1:] for index in unknown)
        self.coverage = Coverage.from_words(len(codes) - len(unknown), len(codes), partial)

    def _display_pair(self, index: int, row: int) -> tuple[str, str]:
        """Return a word as it is shown and what it is read as."""
        text = self._word(index).text
        return text, display_names(text, row, self._vocabulary, self.spelled)[1]

    @cached_property
    def rows(self) -> Integers:
        """The row of each distinct word in the table, or beyond it that of a spelled word, int64 [words]."""
        return self._rows[self._first_positions]

    @cached_property
    def _word_positions(self) -> tuple[Integers, Integers]:
        """The numbers of the known words, those of each distinct word together, and where these end."""
        ends = self.counts.cumsum()
        order = np.argsort(self._distinct_index, kind="stable")
        return order[len(order) - int(self.counts.sum()) :], ends

    def spans(self) -> list[tuple[Span, ...]]:
        """Return where each distinct word stands."""
        positions, ends = self._word_positions
        words = tuple(self._word(position)[1:] for position in positions.tolist())
        return [words[start:end] for start, end in pairwise([0, *ends.tolist()])]

    def row(self, index: int) -> Row:
        """Return a distinct word, named as it is first written, without a contribution."""
        positions, ends = self._word_positions
        words = list(map(self._word, positions[slice_for(ends, index)].tolist()))
        text, row = words[0].text, int(self.rows[index])
        name, read_as = display_names(text, row, self._vocabulary, self.spelled)
        return Row(
            name, (text,), 0.0, 0.0, tuple(word[1:] for word in words), key=(read_as, lowercase(text)), kind=WORD
        )


class WordQuery(Query):
    """A text as a static model reads it."""

    def __init__(self, model: Any, text: str, role: Role) -> None:
        """Read the words of a checked text."""
        super().__init__(model, text, role)
        self.words: TextWords = model.text_words(text)
        self.coverage_and_gaps = self.words.coverage, self.words.unknown

    def vectors(self) -> npt.NDArray[np.float64]:
        """Return the vectors of the distinct words, which add up to the embedding, float64 [words, dimension]."""
        words = self.words
        vectors: npt.NDArray[np.float64] = self.model.vectors_for(words.rows, words.spelled).astype(np.float64)
        length = float(np.linalg.norm(words.counts @ vectors))
        if not math.isfinite(length):
            raise not_finite(self.text)
        vectors *= (words.counts / (length or 1.0))[:, None]
        return vectors

    def terms(self, other_query: Query | None = None) -> Terms:
        """Return a value for each pair of words, or for each word where there is no second text."""
        if not isinstance(other_query, WordQuery):
            vectors = self.vectors()
            check_pair_count(len(vectors), 1)
            pulls = vectors @ vectors.sum(axis=0)
            return Terms(pulls, self.words.row, score=float(pulls.sum()))
        table = self._pairs(other_query)
        words, other_words = self.words, other_query.words
        rows = PairTable(
            words.row, other_words.row, table.shape, (words.spans, other_words.spans),
            lambda: cosines(self.vectors(), other_query.vectors()),
        )  # fmt: skip
        return Terms(table.ravel(), rows, score=float(table.sum()))

    def _pairs(self, other_query: WordQuery) -> npt.NDArray[np.float64]:
        """Return what each pair of words of two texts adds to their cosine, float64 [words, words]."""
        words, other_words = self.words, other_query.words
        first, second = len(words.rows), len(other_words.rows)
        check_pair_count(first, second)
        if first > second:  # the shorter text is the one that is kept at hand
            return other_query._pairs(self).T
        vectors = _stacked(self.model.vectors_for, words, other_words)
        counts = np.concatenate([words.counts, other_words.counts]).astype(np.float64)
        table, lengths = pair_products(vectors, counts, first)
        for text, length in zip((self.text, other_query.text), lengths.tolist()):
            if not math.isfinite(length):
                raise not_finite(text)
        return table


def _stacked(vectors_for: Callable[..., npt.NDArray[np.float32]], words1: TextWords, words2: TextWords) -> Any:
    """Return the vectors of the distinct words of two texts, float32 [words, dimension]."""
    if words1.spelled is None and words2.spelled is None:
        return vectors_for(np.concatenate([words1.rows, words2.rows]), None)
    return np.concatenate([vectors_for(words.rows, words.spelled) for words in (words1, words2)])


def check_pair_count(words1: int, words2: int) -> None:
    """Check that there are no more rows than anyone reads and memory holds."""
    if words1 * words2 > _MAX_PAIRS:
        raise InputError(
            f"explaining {words1:,} x {words2:,} distinct words would give more than {_MAX_PAIRS:,} rows; "
            "explain shorter passages"
        )


class WordList(NamedTuple):
    """The words of some texts."""

    values: Integers  # [words] the words' numbers, or what became of them
    spans: Integers  # [words, 2] where each starts and ends in its text, in characters
    ends: Integers  # [texts] where each text's words end
    is_token: npt.NDArray[np.bool_] | None = None
    """[words] whether each stands between blanks, with at most a mark before and after it; None if unknown."""

    def slice_for(self, text: int) -> slice:
        """Return where the words of a text are."""
        return slice_for(self.ends, text)

    def sizes(self) -> Integers:
        """Return the number of words of each text, int64 [texts]."""
        return sizes_from(self.ends)

    def texts(self) -> Integers:
        """Return the text of each word, int64 [words]."""
        return np.arange(len(self.ends)).repeat(self.sizes())

    def counts(self, values: int) -> Integers:
        """Return how often each value from 0 to `values` - 1 stands in each text, int64 [texts, values]."""
        texts = len(self.ends)
        return np.bincount(self.texts() * values + self.values, minlength=texts * values).reshape(texts, values)

    def select(self, mask: npt.NDArray[np.bool_]) -> WordList:
        """Return some of the words."""
        positions = mask.nonzero()[0]
        is_token = None if self.is_token is None else self.is_token[positions]
        return WordList(self.values[positions], self.spans[positions], positions.searchsorted(self.ends), is_token)


class Groups(NamedTuple):
    """The words of some texts, equal ones of a text together."""

    values: Integers  # [groups] the value of each
    counts: Integers  # [groups] how many words it has
    order: Integers  # [words] the places of the words, group by group
    ends: Integers  # [texts] where each text's groups end

    @classmethod
    def from_words(cls, words: WordList, limit: int) -> Groups:
        """Group words whose values are from 0 to `limit` - 1, in the order of their first places."""
        return cls(*group_words(words.values, words.ends, limit))


class WordPairQuery:
    """A query as a static model reads it for a search, whose words may count more or less."""

    def __init__(
        self, model: Any, query: str, spans_by_row: Mapping[int, tuple[Span, ...]], spelled: SpelledRows | None,
        weight: float, factors: Mapping[str, float],
    ) -> None:  # fmt: skip
        """Take where the query's words with a row stand, rows beyond the table in `spelled`, what some words count."""
        # `weight` is what cosines are multiplied by.
        self._model = model
        self._rows = np.array(list(spans_by_row), np.int64)
        counts, vectors = list(map(len, spans_by_row.values())), model.vectors_for(self._rows, spelled)
        if max(counts, default=1) > 1:
            vectors = vectors * np.array(counts, np.float32)[:, None]
        total = np.add.reduce(vectors)
        self._vectors = vectors * np.float32(weight / (np.sqrt(total.dot(total)) or 1.0))
        for word, factor in factors.items():
            self._vectors[self._rows == model.vocabulary.row(word)] *= np.float32(factor)
        self._query, self._spelled, self._spans = query, spelled, list(spans_by_row.values())
        self._row_cache: dict[int, Row] = {}  # the words of the query that rows were made of

    def _word(self, index: int) -> Row:
        row = self._row_cache.get(index)
        if row is None:
            row = self._word_row(self._query, self._spans[index], int(self._rows[index]), self._spelled)
            self._row_cache[index] = row
        return row

    @property
    def vector(self) -> npt.NDArray[np.float32]:
        """What a search multiplies, as the words count, float32 [dimension]."""
        vector: npt.NDArray[np.float32] = np.add.reduce(self._vectors)
        return vector

    def against(self, texts: Sequence[str], words: WordList, spelled: SpelledRows | None) -> Callable[[int], Terms]:
        """Return what gives the terms of each of `texts`, whose words are `words`: a value for each pair of words."""
        first, _, distinct_index = distinct_values(words.values)
        rows = words.values[first]
        indexed_words = words._replace(values=distinct_index)
        if spelled:
            vectors = self._model.vectors_for(rows, spelled)
            products = (vectors @ self._vectors.T).astype(np.float64)
            counts = indexed_words.counts(len(rows)).astype(np.float32)
            lengths = np.linalg.norm(counts @ vectors, axis=1).astype(np.float64)
        else:
            narrow = rows.astype(np.int32), words.values.astype(np.int32)
            products, lengths = self._model.bulk.table.products(*narrow, words.ends, self._vectors)
        lengths[lengths == 0] = 1.0
        marks = products.sum(axis=1)[distinct_index] / lengths.repeat(words.sizes())
        groups = Groups.from_words(indexed_words, len(rows))
        last, shares = groups.counts.cumsum(), groups.counts / lengths.repeat(sizes_from(groups.ends))
        values = products[groups.values] * shares[:, None]
        word_cosines = cache(lambda: cosines(self._vectors, self._model.vectors_for(rows, spelled)))  # of all texts

        def terms(text: int) -> Terms:
            group_slice = slice_for(groups.ends, text)

            def row(column: int) -> Row:
                spans = as_spans(words.spans[groups.order[slice_for(last, group_slice.start + column)]])
                return self._word_row(texts[text], spans, int(rows[groups.values[group_slice][column]]), spelled)

            def spans() -> list[tuple[Span, ...]]:
                start, ends = last[group_slice.start - 1] if group_slice.start else 0, last[group_slice].tolist()
                word_spans = as_spans(words.spans[groups.order[start : ends[-1]]]) if ends else ()
                return [word_spans[first - start : end - start] for first, end in pairwise([start, *ends])]

            table_values = values[group_slice].T
            pairs = PairTable(
                self._word, row, table_values.shape, (lambda: self._spans, spans),
                lambda: word_cosines()[:, groups.values[group_slice]],
            )  # fmt: skip
            word_slice = words.slice_for(text)
            return Terms(table_values.ravel(), pairs, Marks(marks[word_slice], words.spans[word_slice]))

        return terms

    def _word_row(self, text: str, spans: tuple[Span, ...], row: int, spelled: SpelledRows | None) -> Row:
        """Return a word as the user wrote it, with the vocabulary's if that is more than another case; its places."""
        word = text[slice(*spans[0])]
        word = word if word.isascii() and word.isalnum() else " ".join(normalize(word).text.split())
        if row < len(self._model.vocabulary) and (form := self._model.vocabulary.forms[row]) in word.split():
            word = form  # where one character is normalised to several words, that one
        name, read_as = display_names(word, row, self._model.vocabulary, spelled)
        return Row(name, (name,), 0.0, 0.0, spans, (), (), (read_as, lowercase(word)) if spelled else (read_as,))


def sizes_from(ends: Integers) -> Integers:
    """Return how many items each of several things has, which end at `ends`."""
    sizes = ends.copy()
    sizes[1:] -= ends[:-1]
    return sizes


def slice_for(ends: Integers, index: int) -> slice:
    """Return where the items of one of several things are, which end at `ends`."""
    return slice(int(ends[index - 1]) if index else 0, int(ends[index]))


def as_spans(edges: Integers) -> tuple[Span, ...]:
    """Return starts and ends [n, 2] as spans."""
    return tuple([(start, end) for start, end in edges.tolist()])
