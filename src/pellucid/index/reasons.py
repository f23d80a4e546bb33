"""The terms of a hit's score, as arrays; rows are made when they are read.

All are exact: the terms of a part add up to what it adds to the score. Neighbouring hits are read together, since most
of the work is the same for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.query import Floats, Marks, Terms, with_rows
from pellucid.explain.checks import ExplainedPair
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import JoinedRows, Row, combined_measurement, sums_by_span, take_apart
from pellucid.index.arrays import DocumentRows, joined_rows
from pellucid.index.segments import Segment
from pellucid.index.words import WordCache
from pellucid.process import cached_property
from pellucid.static.words import Integers, WordList

_ROUNDING = 1e-6  # of the score, up to which rows are exact


TermsOfPassage = Callable[[int], Terms]
"""From the number of a passage to the terms of its score."""


class Mark(NamedTuple):
    """A stretch of a text, its start and end in characters, and what it adds to a score."""

    start: int
    end: int
    contribution: float


class Passages:
    """Some passages whose scores are explained together; `texts` are as they are indexed."""

    def __init__(self, texts: list[str], words: WordCache, stored: Sequence[tuple[Segment, int]] = ()) -> None:
        """Take the passages, what finds their words, and where they are stored: none are of texts that are not."""
        self.texts, self.words, self.stored = texts, words, stored

    def rows(self, part: str, dimension: int) -> DocumentRows:
        """Return the stored rows of a model's part."""
        by_segment = groupby(self.stored, itemgetter(0))
        return joined_rows([s.rows(part, dimension, np.array([n for _, n in passages])) for s, passages in by_segment])

    @property
    def lengths(self) -> Integers:
        """The number of BM25's terms of each, int64 [passages]."""
        stored = [segment.lengths.item(passage) for segment, passage in self.stored]
        return np.array(stored or [len(self.words.analyser.terms(text)) for text in self.texts], np.int64)

    @cached_property
    def word_list(self) -> WordList:
        """The words of the texts, which all parts read."""
        return self.words.read(self.texts)


class Directions(NamedTuple):
    """What the vector of a query is moved by, times the weight of its part: [directions, dimension], and their rows."""

    vectors: npt.NDArray[np.float64]
    rows: tuple[Row, ...]

    def added_to(self, read: TermsOfPassage, stored: DocumentRows) -> TermsOfPassage:
        """Return what gives the terms of passages with those of the directions, given the stored rows."""

        def with_directions(passage: int) -> Terms:
            terms, vector = read(passage), stored[passage].astype(np.float64)
            if not vector.any():
                return terms
            values = self.vectors @ vector
            score = None if terms.score is None else terms.score + float(values.sum())
            return with_rows(terms, values, self.rows)._replace(score=score)

        return with_directions


class Reasons:
    """Why a passage has its score.

    Attributes:
        query: what was asked.
        text: the passage as it is indexed, with its title; what the rows' spans are counted in.
        terms: of each part of the score; they add up to what it adds.
        score: what the rows add up to.
    """

    def __init__(self, query: str, text: str, terms: Mapping[str, Terms], score: float, *, named: bool) -> None:
        """Take the passage and the terms of each part of its score; `named` puts a part's name before its rows'."""
        self.query, self.text, self.terms, self.score = query, text, terms, score
        parts = ((name * named, len(of_part.values), of_part.row) for name, of_part in terms.items())
        self._rows = JoinedRows(parts)

    @cached_property
    def _values(self) -> Floats:
        return np.concatenate([np.zeros(0), *(terms.values for terms in self.terms.values())])

    def top(self, count: int = 10) -> list[Row]:
        """Return the `count` rows of the largest size, largest first."""
        values = self._values
        sizes = np.abs(values)
        best = np.arange(len(sizes))
        if count < len(sizes):
            best = np.argpartition(sizes, len(sizes) - count)[len(sizes) - count :] if count > 0 else best[:0]
        largest = sorted(zip((-sizes[best]).tolist(), best.tolist()), key=itemgetter(0))
        rows = []
        for _, number in largest:
            row, value = self._rows(number), float(values[number])
            rows.append(row.with_values(row.name, value, value / self.score if self.score else 0.0, row.key))
        return rows

    def marks(self) -> Marks:
        """Return what places of `text` add to the score, in text order."""
        parts = [
            terms.marks or Marks.from_sums(sums_by_span(*take_apart(terms.row, terms.values))[1])
            for terms in self.terms.values()
        ]
        values, spans = map(np.concatenate, zip(*parts))
        if not len(values):
            return Marks(values, spans)
        order = (spans[:, 0] * (int(spans.max()) + 1) + spans[:, 1]).argsort(kind="stable")
        starts, ends = in_order = spans[order].T
        is_first = np.append(True, (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1]))
        return Marks(np.add.reduceat(values[order], is_first.nonzero()[0]), in_order.T[is_first])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._values)

    def explain(self, pair: ExplainedPair | None = None) -> Explanation:
        """Return every row, with all the views of an explanation; `pair` scores the passage when words are left out.

        Of passages of very many words the stored vector, a sum in float32, misses the sum of its words by a few
        millionths: that is shown as a remainder.
        """
        missed = abs(self.score - float(self._values.sum()))
        exact = missed <= _ROUNDING * max(1.0, float(np.abs(self._values).sum()))
        return Explanation.from_terms(
            "index", (self.query, self.text), self.score, self._values, self._rows, exact=exact,
            measurement=combined_measurement(terms.measurement for terms in self.terms.values()), pair=pair,
        )  # fmt: skip
