"""The rows of an explanation: named terms of a score, made when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.process import cached_property
from pellucid.text.words import Span

WORD_PAIR, WORD, DIMENSION, KEY_TOKEN, EMBEDDING = "word pair", "word", "dimension", "key token", "embedding"
SENTENCE, SHARED, CONTEXT, REMAINDER = "sentence", "shared part", "context", "remainder"
"""The kinds of rows. EMBEDDING is the one row of a model that cannot say more, SHARED what all texts have in common,
CONTEXT what an encoder makes of the words of a text together."""

SCORE_EPS = 1e-6  # below this, a score is rounding of float32 embeddings, and shares of it mean nothing


READ_AS = " (read as "
"""Between a word of a text and, up to a bracket, the known words that stand for it: "covid (read as co)"."""


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
        kind: what it is: "word pair", "word", "sentence", "dimension", "key token", "embedding" (all that a model can
            say), or "remainder" (the last line of a frame), "shared part" (what an encoder's texts have in common), or
            "context" (what an encoder makes of the words together).
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

    def sums_by_span(self) -> tuple[dict[Span, float], dict[Span, float]] | None:
        """Return what each place in texts 1 and 2 adds, in text order; None unless the rows are pairs of words."""
        if not isinstance(self._make, PairTable):
            return None
        table, *spans_of_text, _ = self._make.words(self.values)
        sums_of_text: list[dict[Span, float]] = []
        for spans_of_word, sums in zip(spans_of_text, (table.sum(axis=1), table.sum(axis=0))):
            by_span: dict[Span, float] = {}
            for spans, value in zip(spans_of_word, sums.tolist() if table.size else []):
                by_span.update((span, by_span.get(span, 0.0) + value / len(spans)) for span in spans)
            sums_of_text.append(dict(sorted(by_span.items())))
        return sums_of_text[0], sums_of_text[1]

    def word_tables(self) -> list[WordTable] | None:
        """Return the pairs of words as tables, each with other rows; None where rows are something else."""
        if isinstance(self._make, PairTable):
            return [self._make.words(self.values)]
        return self._make.tables(self.values) if isinstance(self._make, JoinedRows) else None

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
    others: tuple[Row, ...]  # rows that are no pair of words, with their contributions


WordSpans = Callable[[], Sequence[tuple[Span, ...]]]
"""Gives where each word of a text stands."""


class JoinedRows:
    """Makes the rows of several parts of a score, one after the other, from their numbers."""

    def __init__(
        self, parts: Iterable[tuple[int, Callable[[int], Row]]], named: Callable[[int, Row], Row] = lambda _, row: row
    ) -> None:
        """Take of each part the number of its rows and what makes them; `named` is given a part's number and a row."""
        self._parts, self._named = tuple(parts), named

    def __call__(self, number: int) -> Row:
        """Return a row, without a contribution."""
        for part, (length, make) in enumerate(self._parts):
            if number < length:
                return self._named(part, make(number))
            number -= length
        raise IndexError(number)

    def tables(self, values: npt.NDArray[np.float64]) -> list[WordTable]:
        """Return the pairs of words of each part as a table, and its other rows."""
        tables, start = list[WordTable](), 0
        for part, (length, make) in enumerate(self._parts):
            of_part = values[start : start + length]
            start += length
            if isinstance(make, PairTable):
                table = make.words(of_part)
                more = table.others
            else:
                table = WordTable(np.zeros((0, 0)), (), (), ())
                more = tuple(make(n)._replace(contribution=v) for n, v in enumerate(of_part.tolist()))
            tables.append(table._replace(others=tuple(self._named(part, row) for row in more)))
        return tables


class PairTable:
    """Makes the rows of a table [words of text 1, words of text 2] from their numbers, line by line; then `more`."""

    def __init__(
        self,
        first: Callable[[int], Row],
        second: Callable[[int], Row],
        shape: tuple[int, ...],
        more: tuple[Row, ...] = (),
        spans: tuple[WordSpans, WordSpans] | None = None,
    ) -> None:
        """Take what makes the rows of single words, with their places as `spans1`, and rows without a place.

        `spans` give where all words of each text stand sooner than their rows do.
        """
        self._first, self._second, self._shape, self._more, self._spans = first, second, shape, more, spans
        self._word_rows: tuple[dict[int, Row], dict[int, Row]] = {}, {}  # of single words, as far as they were needed

    def _word(self, text: int, number: int) -> Row:
        row = self._word_rows[text].get(number)
        if row is None:
            row = self._word_rows[text][number] = (self._first, self._second)[text](number)
        return row

    def __call__(self, number: int) -> Row:
        """Return a row, without a contribution."""
        pairs = self._shape[0] * self._shape[1]
        if number >= pairs:
            return self._more[number - pairs]
        first, second = map(self._word, (0, 1), divmod(number, self._shape[1]))
        name, key = f"{first.name} × {second.name}", first.key + second.key
        return Row(name, first.parts + second.parts, 0.0, 0.0, first.spans1, second.spans1, (), key, WORD_PAIR)

    def with_terms(self, *rows: Row) -> PairTable:
        """Return the same with more rows after the table."""
        return PairTable(self._first, self._second, self._shape, (*self._more, *rows), self._spans)

    def words(self, values: npt.NDArray[np.float64]) -> WordTable:
        """Return the table with the words' places, and the rows after it."""
        pairs = self._shape[0] * self._shape[1]
        if self._spans is not None:
            spans1, spans2 = (spans() for spans in self._spans)
        else:
            spans1, spans2 = (
                [self._word(text, number).spans1 for number in range(length)] for text, length in enumerate(self._shape)
            )
        more = zip(self._more, values[pairs:].tolist())
        more_rows = tuple(row._replace(contribution=value) for row, value in more)
        return WordTable(values[:pairs].reshape(self._shape), spans1, spans2, more_rows)


def share_of(value: float, score: float) -> float:
    """Return `value / score`; 0 where the score is rounding alone."""
    return value / score if abs(score) > SCORE_EPS else 0.0


def sorted_with_shares(terms: Iterable[Row], score: float) -> tuple[Row, ...]:
    """Return rows with their shares of `score`, by falling size and then by name."""
    rows = [row._replace(share=share_of(row.contribution, score)) for row in terms]
    return tuple(sorted(rows, key=lambda row: (-abs(row.contribution), row.name)))
