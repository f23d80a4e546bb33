"""What a hit's score is made of, as arrays; rows are made when they are read.

Each part of the score is taken apart by what was asked for its vector: a static model's into pairs of words, any other
model's by its `Query`; BM25 into terms here. All of them are exact: the values of a part add up to what it adds to the
score. Some passages are read at once, since most of the work is the same for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from pellucid.explanation import Explanation
from pellucid.index.bm25 import impacts
from pellucid.index.engine import Vector
from pellucid.index.words import Words
from pellucid.query import NO_MARKS, NO_SPANS, Floats, Integers, Terms
from pellucid.rows import WORD, Row
from pellucid.static.spelling import SpelledRows
from pellucid.static.words import WordList, part_of
from pellucid.text import Span

_BETWEEN = ": "  # between the name of a part and of its row, as in an ensemble
_ROUNDING = 1e-6  # of the score, up to which rows are exact
_FAINT = 0.15  # of the strongest word; a weaker one is not highlighted


class Passages:
    """Some passages whose scores are taken apart together; `texts` are as they are indexed."""

    def __init__(self, texts: list[str], vectors: Sequence[Mapping[str, Vector] | None], words: Words) -> None:
        """Take the passages, of each the stored vectors that are needed, by part, and what finds their words."""
        self.texts, self._vectors, self._words = texts, vectors, words

    def stored(self, model: str) -> list[Vector | None]:
        """Return the vectors of a model; None for a passage that is gone, or that the model knows nothing of."""
        return [(own or {}).get(model) for own in self._vectors]

    @cached_property
    def _found(self) -> WordList:
        return self._words.read(self.texts)

    def terms(self) -> WordList:
        """Return BM25's terms by number."""
        return self._words.terms(self.texts, self._found)

    def rows(self, model: str) -> tuple[WordList, SpelledRows | None]:
        """Return the words that a static model knows, as rows of its table or, with spelling, beyond it."""
        return self._words.rows(model, self.texts, self._found)


class Bm25Query:
    """The terms of BM25 that a query has."""

    def __init__(
        self, words: Words, query: str, places: Mapping[str, tuple[Span, ...]], weights: Mapping[str, float],
        average: float,
    ) -> None:  # fmt: skip
        """Take where the query's terms stand, those that count with their half of the score, and the mean length."""
        self._words, self._query, self._places, self._average = words, query, places, average
        self._terms, self._weights = list(weights), np.array(list(weights.values()))

    def against(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives the terms of each passage: a value for each that the query has, too."""
        numbers = np.array(list(map(self._words.term_number, self._terms)))
        order = np.argsort(numbers)
        every = passages.terms()
        lengths = every.sizes()[:, None]
        near = np.searchsorted(numbers, every.values, sorter=order).clip(max=len(numbers) - 1)
        found = every._replace(values=order[near]).kept(numbers[order[near]] == every.values)
        counts = found.counts(len(numbers))
        every_value = self._weights * impacts(counts, lengths, self._average)
        marks = (every_value / counts.clip(min=1))[found.texts(), found.values]
        texts, present = np.nonzero(counts)
        values, ends = every_value[texts, present], texts.searchsorted(np.arange(len(lengths)), "right")

        def terms(passage: int) -> Terms:
            own, mine = found.of(passage), part_of(ends, passage)

            def row(number: int) -> Row:
                term = int(present[mine][number])
                spans = _spans(found.spans[own][found.values[own] == term])
                return self._row(self._terms[term], passages.texts[passage], spans)

            return Terms(values[mine], row, marks[own], found.spans[own])

        return terms

    def _row(self, term: str, text: str, spans: tuple[Span, ...]) -> Row:
        places = self._places[term]
        asked, stands = self._query[slice(*places[0])], text[slice(*spans[0])]
        name = asked if asked.lower() == stands.lower() else f"{asked} ~ {stands}"
        return Row(name, (asked,), 0.0, 0.0, places, spans, key=(term,), kind=WORD)


class Reasons:
    """Why a passage has its score.

    Attributes:
        query: what was asked.
        text: the passage as it is indexed, with its title; what spans are counted in.
        score: what the rows add up to.
    """

    def __init__(self, query: str, text: str, score: float, terms: Mapping[str, Terms], *, named: bool) -> None:
        """Take the terms of each part; `named` puts the part's name before those of its rows."""
        self.query, self.text, self.score = query, text, score
        self._terms, self._named = dict(terms), named

    @cached_property
    def _values(self) -> Floats:
        return np.concatenate([np.zeros(0), *(terms.values for terms in self._terms.values())])

    def top(self, count: int = 10) -> list[Row]:
        """Return the `count` rows of the largest size, largest first."""
        sizes = np.abs(self._values)
        best = np.arange(len(sizes))
        if count < len(sizes):
            best = np.argpartition(sizes, len(sizes) - count)[len(sizes) - count :] if count > 0 else best[:0]
        best = best[np.argsort(-sizes[best], kind="stable")]
        return [
            self._row(number)._replace(contribution=value, share=value / self.score if self.score else 0.0)
            for number, value in zip(best.tolist(), self._values[best].tolist())
        ]

    def words(self) -> list[tuple[int, int, float]]:
        """Return the stretches of `text` that have a part in the score: start, end, contribution, in text order."""
        return _triples(*self._marked)

    def highlights(self) -> list[tuple[int, int, float]]:
        """Return the stretches of `words` that carry the score: those with a good part of the strongest's."""
        spans, values = self._marked
        strong = (values > 0) & (values >= _FAINT * values.max(initial=0.0))
        return _triples(spans[strong], values[strong])

    @cached_property
    def _marked(self) -> tuple[Integers, Floats]:
        """The stretches [n, 2] and what each adds to the score [n], in text order."""
        every = [terms for terms in self._terms.values() if len(terms.marks)]
        if not every:
            return NO_SPANS, NO_MARKS
        spans = np.concatenate([terms.spans for terms in every])
        keys = spans[:, 0] << 32 | spans[:, 1]
        order = np.argsort(keys, kind="stable")  # each part's are in order already
        keys = keys[order]
        first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        marks = np.concatenate([terms.marks for terms in every])
        return spans[order[first]], np.add.reduceat(marks[order], first)

    def parts(self) -> dict[str, float]:
        """Return the sum of the rows of each part."""
        return {part: float(terms.values.sum()) for part, terms in self._terms.items()}

    def terms(self) -> dict[str, Terms]:
        """Return the terms of each part."""
        return dict(self._terms)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._values)

    def explain(self) -> Explanation:
        """Return every row, with all the views of an explanation.

        Of passages of very many words the stored vector, a sum in float32, misses the sum of its words by a few
        millionths: that is shown as a remainder.
        """
        missed = abs(self.score - float(self._values.sum()))
        exact = missed <= _ROUNDING * max(1.0, float(np.abs(self._values).sum()))
        return Explanation.from_terms(
            "index", (self.query, self.text), self.score, self._values, self._row, exact=exact
        )

    def _row(self, number: int) -> Row:
        parts = iter(self._terms.items())
        part, terms = next(parts)
        while number >= len(terms.values):
            number -= len(terms.values)
            part, terms = next(parts)
        row = terms.row(number)
        if not self._named:
            return row
        return row._replace(name=part + _BETWEEN + row.name, key=(part, *row.key))


def _triples(spans: Integers, values: Floats) -> list[tuple[int, int, float]]:
    return list(zip(spans[:, 0].tolist(), spans[:, 1].tolist(), values.tolist()))


def _spans(places: Integers) -> tuple[Span, ...]:
    return tuple((start, end) for start, end in places.tolist())
