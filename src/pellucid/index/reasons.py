"""The terms of a hit's score, as arrays; rows are made when they are read.

The part of a static model is divided into pairs of words, that of any other model by its `Query`, and BM25 into terms
here. All are exact: the terms of a part add up to what it adds to the score. Neighbouring hits are read together, since
most of the work is the same for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.query import EMPTY_MARKS, EMPTY_SPANS, Floats, Integers, Terms
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import DIMENSION, WORD, JoinedRows, PairTable, Row, combined_measurement
from pellucid.index.bm25 import impacts
from pellucid.index.engine import Vector
from pellucid.index.words import WordCache
from pellucid.process import cached_property
from pellucid.static.spelling import SpelledRows
from pellucid.static.words import WordList, as_spans, slice_for
from pellucid.text.sentences import passage_sentences
from pellucid.text.unicode import lowercase, normalize
from pellucid.text.words import Span

_BETWEEN = ": "  # between the name of a part and of its row, as in an ensemble
_ROUNDING = 1e-6  # of the score, up to which rows are exact
Marked = tuple[Integers, Floats]
_FAINT = 0.15  # of the strongest word; a weaker one is not highlighted
_HIGHLIGHTED_SENTENCES = 3
"""Sentences of a passage with highlights: those whose words add most on average, since sums favour long sentences."""


class Passages:
    """Some passages whose scores are explained together; `texts` are as they are indexed."""

    def __init__(
        self, texts: list[str], words: WordCache, vectors: Sequence[Mapping[str, Vector]] = (),
        lengths: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Take the passages and what finds their words; of each the stored vectors that are needed, and its terms."""
        self.texts, self._words, self._vectors = texts, words, vectors
        self.lengths = np.array(lengths, np.int64)  # [passages], the number of BM25's terms

    def stored(self, model: str) -> list[Vector | None]:
        """Return the vectors of a model; None for a passage that is gone, or that the model knows nothing of."""
        return [vectors.get(model) for vectors in self._vectors]

    @cached_property
    def _word_list(self) -> WordList:
        return self._words.read(self.texts)

    def terms(self, numbers: Mapping[str, int]) -> WordList:
        """Return those of BM25's terms that have a number, by it."""
        return self._words.term_positions(self.texts, self._word_list, numbers)

    def words(self, model: str) -> WordList:
        """Return the words as a static model cuts them, by number."""
        return self._words.split(model, self.texts, self._word_list)

    def rows(self, model: str) -> tuple[WordList, SpelledRows | None]:
        """Return the words that a static model knows, as rows of its table or, with spelling, beyond it."""
        return self._words.rows(model, self.words(model))


class Bm25Query:
    """The terms of BM25 that a query has."""

    def __init__(
        self, query: str, query_spans: Mapping[str, Sequence[Span]], weights: Mapping[str, float], average: float
    ) -> None:
        """Take where the query's terms stand, those that count with their half of the score, and the mean length."""
        self._query, self._query_spans, self._average = query, query_spans, average
        self._terms, self._weights = list(weights), np.array(list(weights.values()))

    def against(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives the terms of each passage: a value for each that the query has, too."""
        term_list = passages.terms({term: number for number, term in enumerate(self._terms)})
        lengths = passages.lengths[:, None]
        counts = term_list.counts(len(self._terms))
        all_values = self._weights * impacts(counts, lengths, self._average)
        marks = (all_values / counts.clip(min=1))[term_list.texts(), term_list.values]
        texts, present = np.nonzero(counts)
        values, ends = all_values[texts, present], texts.searchsorted(np.arange(len(lengths)), "right")

        def terms(passage: int) -> Terms:
            span, value_span = term_list.slice_for(passage), slice_for(ends, passage)
            shown, which, spans = present[value_span], term_list.values[span], term_list.spans[span]

            def row(number: int) -> Row:
                term = int(shown[number])
                return self._row(self._terms[term], passages.texts[passage], as_spans(spans[which == term]))

            return Terms(values[value_span], row, marks[span], spans)

        return terms

    def _row(self, term: str, text: str, spans: tuple[Span, ...]) -> Row:
        query_spans = tuple(self._query_spans[term])
        query_word = normalize(self._query[slice(*query_spans[0])]).text
        text_word = normalize(text[slice(*spans[0])]).text
        name = query_word if lowercase(query_word) == lowercase(text_word) else f"{query_word} ~ {text_word}"
        return Row(name, (query_word,), 0.0, 0.0, query_spans, spans, (), (term,), WORD)


class Directions(NamedTuple):
    """What the vector of a query is moved by, times the weight of its part: [directions, dimension], and their rows."""

    vectors: npt.NDArray[np.float64]
    rows: tuple[Row, ...]

    def after(self, terms: Terms, stored: Any) -> Terms:
        """Return the terms of a passage and what each direction adds, given its stored vector."""
        if stored is None:
            return terms
        values = self.vectors @ np.asarray(stored, np.float64)
        if isinstance(terms.row, PairTable):
            row: Callable[[int], Row] = terms.row.with_terms(*self.rows)
        else:
            row = JoinedRows([(len(terms.values), terms.row), (len(self.rows), self.rows.__getitem__)])
        score = None if terms.score is None else terms.score + float(values.sum())
        return terms._replace(values=np.append(terms.values, values), row=row, score=score)

    def added_to(
        self, terms_of: Callable[[Passages], Callable[[int], Terms]], name: str
    ) -> Callable[[Passages], Callable[[int], Terms]]:
        """Return what gives the terms of passages by a part, with those of the directions."""

        def with_directions(passages: Passages) -> Callable[[int], Terms]:
            terms, stored = terms_of(passages), passages.stored(name)
            return lambda number: self.after(terms(number), stored[number])

        return with_directions


def steering_row(text: str, weight: float) -> Row:
    """Return the row of a text that a query is moved to or away from."""
    name = f"{'more' if weight > 0 else 'less'} of {text!r:.60}"
    return Row(name, (name,), 0.0, 0.0, key=("steer", text), kind=DIMENSION)


class Reasons:
    """Why a passage has its score.

    Attributes:
        query: what was asked.
        text: the passage as it is indexed, with its title; what spans are counted in.
        score: what the rows add up to.
        terms: of each part of the score, which add up to what it adds.
    """

    def __init__(
        self, query: str, text: str, score: float, terms: Mapping[str, Terms], *, named: bool,
        marked: Callable[[], Marked] | None = None,
    ) -> None:  # fmt: skip
        """Take the terms of each part; `named` puts the part's name before those of its rows."""
        # `marked` returns what `marked_spans` does, where it was found for several passages at once.
        self.query, self.text, self.score = query, text, score
        self.terms, self._named, self._marked_spans = dict(terms), named, marked

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
        return [self._row(number, float(values[number])) for _, number in largest]

    def words(self) -> list[tuple[int, int, float]]:
        """Return the spans of `text` that contribute to the score: start, end, contribution, in text order."""
        return _triples(*self._marked)

    def highlights(self) -> list[tuple[int, int, float]]:
        """Return the strongest of `words`: those with at least 15 % of the largest contribution.

        Of a passage these are in its best sentences, or are the strongest word.
        """
        spans, values = self._marked
        strong = (values > 0) & (values >= _FAINT * values.max(initial=0.0))
        strong &= self._is_in_best_sentences(spans, values) | (values == values.max(initial=0.0))
        return _triples(spans[strong], values[strong])

    def _is_in_best_sentences(self, spans: Integers, values: Floats) -> npt.NDArray[np.bool_]:
        """Return which spans are in the sentences of a passage that have highlights; all of other texts."""
        sentences = passage_sentences(self.text)
        if len(sentences) <= _HIGHLIGHTED_SENTENCES:
            return np.ones(len(spans), np.bool_)
        ends = np.array([end for _, end in sentences])
        of_spans = np.minimum(ends.searchsorted(spans[:, 0], "right"), len(ends) - 1)
        counts = np.bincount(of_spans, minlength=len(ends))
        means = np.bincount(of_spans, values, len(ends)) / counts.clip(min=1)
        is_best = np.zeros(len(ends), np.bool_)
        is_best[np.argsort(-means, kind="stable")[:_HIGHLIGHTED_SENTENCES]] = True
        return is_best[of_spans]

    @cached_property
    def _marked(self) -> Marked:
        """The spans and what each adds to the score, in text order."""
        return self._marked_spans() if self._marked_spans is not None else marked_spans([self.terms])[0]

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
            "index", (self.query, self.text), self.score, self._values, self._rows, exact=exact,
            measurement=combined_measurement(terms.measurement for terms in self.terms.values()),
        )  # fmt: skip

    @cached_property
    def _rows(self) -> JoinedRows:
        parts = list(self.terms)

        def named(part: int, row: Row) -> Row:
            return row._replace(name=parts[part] + _BETWEEN + row.name, key=(parts[part], *row.key))

        rows = ((len(terms.values), terms.row) for terms in self.terms.values())
        return JoinedRows(rows, named) if self._named else JoinedRows(rows)

    def _row(self, number: int, value: float) -> Row:
        return self._rows(number)._replace(contribution=value, share=value / self.score if self.score else 0.0)


def marked_spans(terms_of_hits: Sequence[Mapping[str, Terms]]) -> list[Marked]:
    """Return for each hit the spans [n, 2] of its passage and what each adds to its score [n], in text order."""
    by_part = zip(*(terms_by_part.values() for terms_by_part in terms_of_hits))
    several = [item for terms in by_part for item in enumerate(terms) if len(item[1].marks)]
    if not several:
        return [(EMPTY_SPANS, EMPTY_MARKS)] * len(terms_of_hits)
    spans, marks = (np.concatenate(arrays) for arrays in zip(*((terms.spans, terms.marks) for _, terms in several)))
    hits = np.repeat([hit for hit, _ in several], [len(terms.marks) for _, terms in several])
    reach = int(spans.max()) + 1
    keys = (hits * reach + spans[:, 0]) * reach + spans[:, 1]
    order = np.argsort(keys, kind="stable")  # each part's are in order already
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    sums, span_indices = np.add.reduceat(marks[order], first), order[first]
    spans, ends = spans[span_indices], hits[span_indices].searchsorted(np.arange(len(terms_of_hits)), "right")
    return [(spans[slice_for(ends, hit)], sums[slice_for(ends, hit)]) for hit in range(len(terms_of_hits))]


def _triples(spans: Integers, values: Floats) -> list[tuple[int, int, float]]:
    return list(zip(spans[:, 0].tolist(), spans[:, 1].tolist(), values.tolist()))
