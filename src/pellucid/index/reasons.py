"""The terms of a hit's score, as arrays; rows are made when they are read.

The part of a static model is divided into pairs of words, that of any other model by its `Query`, and BM25 into terms
here. All are exact: the terms of a part add up to what it adds to the score. Neighbouring hits are read together, since
most of the work is the same for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.query import EMPTY_MARKS, EMPTY_SPANS, Floats, Integers, Marks, Terms, TermsByText
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import WORD, JoinedRows, PairTable, Row, combined_measurement
from pellucid.index.arrays import Vector
from pellucid.index.bm25 import impacts
from pellucid.index.words import WordCache
from pellucid.process import cached_property
from pellucid.static.spelling import SpelledRows
from pellucid.static.words import WordList, as_spans, sizes_from
from pellucid.text.unicode import lowercase, normalize
from pellucid.text.words import Span

_BETWEEN = ": "  # between the name of a part and of its row, as in an ensemble
_ROUNDING = 1e-6  # of the score, up to which rows are exact


class Mark(NamedTuple):
    """A stretch of a text, its start and end in characters, and what it adds to a score."""

    start: int
    end: int
    contribution: float


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

    def rows(self, model: str) -> tuple[WordList, SpelledRows | None]:
        """Return the words that a static model knows, as rows of its table or, with spelling, beyond it."""
        return self._words.rows(model, self.texts, self._word_list)


class Bm25Query:
    """The terms of BM25 that a query has."""

    def __init__(
        self, query: str, query_spans: Mapping[str, Sequence[Span]], weights: Mapping[str, float], average: float
    ) -> None:
        """Take where the query's terms stand, those that count with their half of the score, and the mean length."""
        self._query, self._query_spans, self._average = query, query_spans, average
        self._terms, self._weights = list(weights), np.array(list(weights.values()))
        # By term: how the query writes it, that in lower case, and where.
        self._query_words: dict[str, tuple[str, str, tuple[Span, ...]]] = {}

    def against(self, passages: Passages) -> TermsByText:
        """Return what gives the terms of each passage: a value for each that the query has, too."""
        term_list = passages.terms({term: number for number, term in enumerate(self._terms)})
        counts = term_list.counts(len(self._terms))
        all_values = self._weights * impacts(counts, passages.lengths[:, None], self._average)
        marks = (all_values / counts.clip(min=1))[term_list.texts(), term_list.values]

        def terms(passage: int) -> Terms:
            span, present = term_list.slice_for(passage), counts[passage].nonzero()[0]
            which, spans = term_list.values[span], term_list.spans[span]

            def row(number: int) -> Row:
                term = int(present[number])
                return self._row(self._terms[term], passages.texts[passage], as_spans(spans[which == term]))

            return Terms(all_values[passage, present], row, marks[span], spans)

        return TermsByText(terms, lambda: Marks(marks, term_list.spans, term_list.ends))

    def _row(self, term: str, text: str, spans: tuple[Span, ...]) -> Row:
        if term not in self._query_words:
            query_spans = tuple(self._query_spans[term])
            word = normalize(self._query[slice(*query_spans[0])]).text
            self._query_words[term] = word, lowercase(word), query_spans
        query_word, lowered, query_spans = self._query_words[term]
        text_word = text[slice(*spans[0])]
        text_word = text_word if text_word.isascii() else normalize(text_word).text
        name = query_word if lowered == lowercase(text_word) else f"{query_word} ~ {text_word}"
        return Row(name, (query_word,), 0.0, 0.0, query_spans, spans, (), (term,), WORD)


class Directions(NamedTuple):
    """What the vector of a query is moved by, times the weight of its part: [directions, dimension], and their rows."""

    vectors: npt.NDArray[np.float64]
    rows: tuple[Row, ...]

    def added_to(self, read: Callable[[int], Terms], stored: Sequence[Vector | None]) -> Callable[[int], Terms]:
        """Return what gives the terms of passages with those of the directions, given the stored vectors."""

        def with_directions(passage: int) -> Terms:
            terms, vector = read(passage), stored[passage]
            if vector is None:
                return terms
            values = self.vectors @ np.asarray(vector, np.float64)
            if isinstance(terms.row, PairTable):
                row: Callable[[int], Row] = terms.row.with_terms(*self.rows)
            else:
                row = JoinedRows([(len(terms.values), terms.row), (len(self.rows), self.rows.__getitem__)])
            score = None if terms.score is None else terms.score + float(values.sum())
            return terms._replace(values=np.append(terms.values, values), row=row, score=score)

        return TermsByText(with_directions, read.marks) if isinstance(read, TermsByText) else with_directions


class PassageTerms:
    """What the scores of some passages are made of: the terms of each part, and the spans that add to each score.

    Spans are found for all passages at once, terms for one at a time, when they are read.
    """

    def __init__(self, texts: Sequence[str], parts: Mapping[str, Callable[[int], Terms]]) -> None:
        """Take the passages as they are indexed, and what gives the terms of each by each part."""
        self.texts, self._parts = texts, parts
        self.terms = cache(lambda passage: {name: read(passage) for name, read in parts.items()})
        """The terms of a passage by part."""

    def marks(self, passage: int) -> tuple[Floats, Integers]:
        """Return what spans of a passage add to its score [marks], and the spans [marks, 2], in text order."""
        values, spans, ends = self._all_marks
        of_passage = slice(ends.item(passage - 1) if passage else 0, ends.item(passage))
        return values[of_passage], spans[of_passage]

    @cached_property
    def _all_marks(self) -> Marks:
        """The spans and what each adds to its score, in text order."""
        marks = []
        for name, read in self._parts.items():
            if isinstance(read, TermsByText):
                marks.append(read.marks())
            else:
                terms = [self.terms(passage)[name] for passage in range(len(self.texts))]
                ends = np.cumsum([len(of_text.marks) for of_text in terms])
                values, spans = zip(*((of_text.marks, of_text.spans) for of_text in terms))
                marks.append(Marks(np.concatenate(values), np.concatenate(spans), ends))
        return joined_marks(marks, len(self.texts))


class Reasons:
    """Why a passage has its score.

    Attributes:
        query: what was asked.
        text: the passage as it is indexed, with its title; what the rows' spans are counted in.
        score: what the rows add up to.
    """

    def __init__(self, query: str, passages: PassageTerms, passage: int, score: float, *, named: bool) -> None:
        """Take one of some passages by its index; `named` puts the part's name before those of its rows."""
        self.query, self.text, self.score = query, passages.texts[passage], score
        self._passages, self._passage, self._named = passages, passage, named

    @property
    def terms(self) -> dict[str, Terms]:
        """The terms of each part of the score, which add up to what it adds."""
        return self._passages.terms(self._passage)

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

    def _marks(self) -> tuple[Floats, Integers]:
        """Return what spans of `text` add to the score [marks], and the spans [marks, 2], in text order."""
        return self._passages.marks(self._passage)

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
            name, key = f"{parts[part]}{_BETWEEN}{row.name}", (parts[part], *row.key)
            return row.with_values(name, row.contribution, row.share, key)

        rows = ((len(terms.values), terms.row) for terms in self.terms.values())
        return JoinedRows(rows, named) if self._named else JoinedRows(rows)


def joined_marks(parts: Sequence[Marks], n_texts: int) -> Marks:
    """Return the marks of all parts of a score as one: the spans of each text in order, each with its sum."""
    parts = [part for part in parts if len(part.values)]
    if not parts:
        return Marks(EMPTY_MARKS, EMPTY_SPANS, np.zeros(n_texts, np.int64))
    values, spans = (np.concatenate(arrays) for arrays in zip(*(part[:2] for part in parts)))
    texts = np.concatenate([np.arange(n_texts).repeat(sizes_from(part.ends)) for part in parts])
    reach = int(spans.max()) + 1
    keys = (texts * reach + spans[:, 0]) * reach + spans[:, 1]
    order = keys.argsort(kind="stable")  # each part's are in order already
    keys = keys[order]
    first = np.concatenate([[0], (keys[1:] != keys[:-1]).nonzero()[0] + 1])
    sums, indices = np.add.reduceat(values[order], first), order[first]
    return Marks(sums, spans[indices], texts[indices].searchsorted(np.arange(n_texts), "right"))
