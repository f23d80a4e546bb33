"""The rows of an explanation: named terms of a score, made when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.process import cached_property
from pellucid.text.words import Span

WORD_PAIR, WORD, DIMENSION, KEY_TOKEN, EMBEDDING = "word pair", "word", "dimension", "key token", "embedding"
SENTENCE, SYNONYM, BOOST, SHARED, CONTEXT, REMAINDER = (
    "sentence", "synonym", "boost", "shared part", "context", "remainder",
)  # fmt: skip
"""The kinds of rows. EMBEDDING is the one row of a model that cannot say more, SHARED what all texts have in common,
CONTEXT what an encoder makes of the words of a text together."""

Floats = npt.NDArray[np.float64]
SCORE_EPS = 1e-6  # below this, a score is rounding of float32 embeddings, and shares of it mean nothing


BETWEEN = ": "
"""Between the name of a part of a score and of its row."""
READ_AS = " (read as "
"""Between a word of a text and, up to a bracket, the known words that replace it: "covid (read as co)"."""


class Row(NamedTuple):
    """One named term of a score.

    Attributes:
        name: what a person reads ("loan × mortgage", an anchor text, a cluster of words).
        parts: the words or names it consists of: (word of text 1, word of text 2) for the static family.
        contribution: what it adds to the score; negative where it lowers it.
        share: contribution / score, 0 where the score is 0 (below 1e-6). Shares add up to 1 less the remainder's.
        spans1: where it stands in text 1, in characters.
        spans2: where it stands in text 2.
        spans3: where it stands in text 3, which only a difference of two explanations has.
        key: what tells the term from the others, and finds it again in another explanation of the same model, where its
            name may be written another way ("Apple", "apple"). An explanation fills in name and parts where it is ().
        kind: what it is: "word pair", "word", "synonym" (a word that was given for one of the query),
            "sentence", "dimension", "key token", "embedding" (all that a model can say), "boost" (what metadata add),
            "remainder" (the last line of a frame), "shared part" (what an encoder's texts have in common), or "context"
            (what an encoder makes of the words together).
    """

    name: str
    parts: tuple[str, ...]
    contribution: float
    share: float
    spans1: tuple[Span, ...] = ()
    spans2: tuple[Span, ...] = ()
    spans3: tuple[Span, ...] = ()
    key: tuple[str, ...] = ()
    kind: str = DIMENSION

    def with_values(self, name: str, contribution: float, share: float, key: tuple[str, ...]) -> Row:
        """Return the row with another name, contribution, share and key, sooner than `_replace` does."""
        _, parts, _, _, spans1, spans2, spans3, _, kind = self
        return Row(name, parts, contribution, share, spans1, spans2, spans3, key, kind)


class Measurement(NamedTuple):
    """How the rows of a score were measured, where that is by leaving words out.

    Attributes:
        n_texts: how many texts a model read for it.
        standard_error: of what a word adds to the score in all its rows, the root of the mean square over the words; 0
            where nothing was drawn at random.
    """

    n_texts: int
    standard_error: float


def combined_measurement(measurements: Iterable[Measurement | None]) -> Measurement | None:
    """Return the measurement of a sum or difference of scores; None where none of them was measured."""
    measured = [measurement for measurement in measurements if measurement is not None]
    if not measured:
        return None
    return Measurement(
        sum(measurement.n_texts for measurement in measured),
        math.hypot(*(measurement.standard_error for measurement in measured)),
    )


class LazyRows(Sequence[Row]):
    """Rows by falling size of their contribution, made when they are read; otherwise as a tuple of rows."""

    def __init__(self, contributions: npt.NDArray[np.float64], make: Callable[[int], Row], score: float) -> None:
        """Take contributions [terms] in any order, and the function from a term's number to its row."""
        self.values, self._make, self._score = contributions, make, score

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        return np.argsort(-np.abs(self.values), kind="stable")

    @property
    def contributions(self) -> npt.NDArray[np.float64]:
        """What each row adds to the score, float64 [rows]."""
        return self.values[self._order]

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        return tuple(map(self._row, self._order.tolist()))

    def _row(self, number: int) -> Row:
        name, parts, _, _, spans1, spans2, spans3, key, kind = self._make(number)
        value = float(self.values[number])
        share = share_of(value, self._score)
        return Row(name, parts, value, share, spans1, spans2, spans3, key or (name, *parts), kind)

    @cached_property
    def taken_apart(self) -> tuple[list[WordTable], list[Row]]:
        """The tables of pairs of words, and the other rows with their contributions."""
        return take_apart(self._make, self.values)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        """Return a row, or a tuple of some."""
        if isinstance(index, slice):
            return tuple(map(self._row, self._order[index].tolist()))
        return self._row(int(self._order[index]))

    def __iter__(self) -> Iterator[Row]:
        """Go through all rows, which are made once."""
        return iter(self._rows)

    def __eq__(self, value: object) -> bool:
        """Compare with other `LazyRows`, or with a tuple of rows."""
        return self._rows == tuple(value) if isinstance(value, (tuple, LazyRows)) else NotImplemented

    def __hash__(self) -> int:
        """Hash as the tuple of rows does."""
        return hash(self._rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the tuple of rows."""
        return tuple, (self._rows,)

    def __repr__(self) -> str:
        """Return the rows."""
        return repr(self._rows)


class WordTable(NamedTuple):
    """What pairs of words add to a score, and where the words stand."""

    values: npt.NDArray[np.float64]  # [words of text 1, words of text 2]
    spans1: Sequence[tuple[Span, ...]]  # where each word of text 1 stands
    spans2: Sequence[tuple[Span, ...]]
    cosines: npt.NDArray[np.float32] | None = None  # of the words' vectors, [words of text 1, words of text 2]


WordSpans = Callable[[], Sequence[tuple[Span, ...]]]
"""Gives where each word of a text stands."""


class JoinedRows:
    """Makes the rows of several parts of a score, one after the other, from their numbers."""

    def __init__(self, parts: Iterable[tuple[str, int, Callable[[int], Row]]]) -> None:
        """Take of each part its name, "" for none, the number of its rows and what makes them."""
        self._parts = tuple(parts)

    def __call__(self, number: int) -> Row:
        """Return a row, without a contribution; a part's name stands before that of its row."""
        for name, length, make in self._parts:
            if number < length:
                row = make(number)
                return row.with_values(f"{name}{BETWEEN}{row.name}", 0.0, 0.0, (name, *row.key)) if name else row
            number -= length
        raise IndexError(number)

    def take_apart(self, values: Floats) -> tuple[list[WordTable], list[Row]]:
        """Return the tables of all parts, and their other rows."""
        tables, rows, start = list[WordTable](), list[Row](), 0
        for _, length, make in self._parts:
            of_part, other_rows = take_apart(make, values[start : start + length])
            tables, rows, start = tables + of_part, rows + other_rows, start + length
        return tables, rows


class PairTable:
    """Makes the rows of a table [words of text 1, words of text 2] from their numbers, line by line."""

    def __init__(
        self,
        first: Callable[[int], Row],
        second: Callable[[int], Row],
        shape: tuple[int, ...],
        spans: tuple[WordSpans, WordSpans] | None = None,
        cosines: Callable[[], npt.NDArray[np.float32]] | None = None,
    ) -> None:
        """Take what makes the rows of single words, with their places as `spans1`.

        `spans` give where all words of each text stand sooner than their rows do, `cosines` those of their vectors.
        """
        self._words, self._shape, self._spans, self._cosines = (cache(first), cache(second)), shape, spans, cosines

    def __call__(self, number: int) -> Row:
        """Return a row, without a contribution."""
        first, second = (word(n) for word, n in zip(self._words, divmod(number, self._shape[1])))
        name, key = f"{first.name} × {second.name}", first.key + second.key
        return Row(name, first.parts + second.parts, 0.0, 0.0, first.spans1, second.spans1, (), key, WORD_PAIR)

    def table(self, values: npt.NDArray[np.float64]) -> WordTable:
        """Return the values as a table, with the words' places."""
        if self._spans is not None:
            spans = [of_text() for of_text in self._spans]
        else:
            spans = [[word(n).spans1 for n in range(length)] for word, length in zip(self._words, self._shape)]
        return WordTable(values.reshape(self._shape), spans[0], spans[1], self._cosines and self._cosines())


def take_apart(make: Callable[[int], Row], values: npt.NDArray[np.float64]) -> tuple[list[WordTable], list[Row]]:
    """Return the tables of pairs of words that all have a place, and the other rows with their values."""
    if isinstance(make, JoinedRows):
        return make.take_apart(values)
    if isinstance(make, PairTable):
        table = make.table(values)
        if all(table.spans1) and all(table.spans2):
            return [table] * bool(values.size), []
    return [], [make(number)._replace(contribution=value) for number, value in enumerate(values.tolist())]


def sums_by_span(tables: Iterable[WordTable], rows: Iterable[Row]) -> tuple[dict[Span, float], ...]:
    """Return what each place of texts 1, 2 and 3 adds, in text order; a row is split evenly between its places."""
    sums: tuple[dict[Span, float], ...] = ({}, {}, {})
    for values, *spans_of_texts, _ in tables:
        for of_text, spans_of_words, of_words in zip(sums, spans_of_texts, (values.sum(axis=1), values.sum(axis=0))):
            for spans, value in zip(spans_of_words, of_words.tolist()):
                for span in spans:
                    of_text[span] = of_text.get(span, 0.0) + value / len(spans)
    for row in rows:
        for of_text, spans in zip(sums, (row.spans1, row.spans2, row.spans3)):
            for span in spans:
                of_text[span] = of_text.get(span, 0.0) + row.contribution / len(spans)
    return tuple(dict(sorted(of_text.items())) for of_text in sums)


def share_of(value: float, score: float) -> float:
    """Return `value / score`; 0 where the score is rounding alone."""
    return value / score if abs(score) > SCORE_EPS else 0.0


def sorted_with_shares(terms: Iterable[Row], score: float) -> tuple[Row, ...]:
    """Return rows with their shares of `score`, by falling size and then by name."""
    rows = [row._replace(share=share_of(row.contribution, score)) for row in terms]
    return tuple(sorted(rows, key=lambda row: (-abs(row.contribution), row.name)))
