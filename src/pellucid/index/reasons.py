"""What a hit's score is made of, as arrays; rows are made when somebody reads them.

Each part of the score has a way to take its own number apart: BM25 into terms, a static model into pairs of words, a
model with named dimensions into the products of two stored rows, any other pellucid model by its `explain`, and what
cannot be read into one row. All of them are exact: the values of a part add up to what it adds to the score.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder
from pellucid.explanation import Explanation, Row
from pellucid.index.bm25 import Analyser, impacts
from pellucid.index.engine import Vector
from pellucid.index.models import Model
from pellucid.static.embedder import StaticEmbedder
from pellucid.text import Span, is_phrase, shown_word

_BETWEEN = ": "  # between the name of a part and of its row, as in an ensemble
_ASCII_WORD = re.compile(r"[^\t-\r !-/:-@\[-`{-~]+")  # the words of `split_words` in an ASCII text
_IN_WORD = np.array([_ASCII_WORD.match(chr(n)) is not None for n in range(128)])
_NOT_ASCII = re.compile(r"[^\t-\r ]*[^\x00-\x7f][^\t-\r ]*")  # what stands between ASCII spaces, if not all ASCII
_MOST_REMEMBERED = 1 << 20  # words whose row is kept


@dataclass(frozen=True)
class Terms:
    """A part's contributions to one score.

    Attributes:
        values: float64 [n]; they add up to what the part adds to the score.
        row: number of a value -> its name, the words it is of and where these stand in query and passage.
        marks: float64 [m], the contributions of stretches of the passage.
        spans: int64 [m, 2], where each starts and ends.
    """

    values: npt.NDArray[np.float64]
    row: Callable[[int], Row]
    marks: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    spans: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))


class Reader(Protocol):
    """Takes one part of the scores of one query apart."""

    needs_vector: bool

    def terms(self, text: str, vector: Vector | None) -> Terms:
        """Return the terms of a passage; `vector` is its stored one, where it is needed."""
        ...


class Bm25Reader:
    """Terms of BM25."""

    needs_vector = False

    def __init__(self, analyser: Analyser, query: str, weights: Mapping[str, float], average: float) -> None:
        """Take the query's half of the score."""
        self._analyser, self._weights, self._average = analyser, weights, average
        self._asked = _grouped(analyser.find(query, weights)[0])
        self._words = {term: query[spans[0][0] : spans[0][1]] for term, spans in self._asked.items()}

    def terms(self, text: str, vector: Vector | None) -> Terms:
        """Return a value for each term that query and passage share."""
        places, length = self._analyser.find(text, self._weights)
        found = _grouped(places)
        counts = {term: len(spans) for term, spans in found.items()}
        value_of = {t: self._weights[t] * impact for t, impact in impacts(counts, length, self._average).items()}
        names = list(found)

        def row(number: int) -> Row:
            term = names[number]
            start, end = found[term][0]
            asked, stands = self._words[term], text[start:end]
            name = asked if asked.lower() == stands.lower() else f"{asked} ~ {stands}"
            return Row(name, (asked,), value_of[term], 0.0, tuple(self._asked[term]), tuple(found[term]))

        marks = np.array([value_of[term] / counts[term] for term, _ in places])
        return Terms(np.array(list(value_of.values())), row, marks, _span_array([span for _, span in places]))


class _Words(NamedTuple):
    """A text's known words; the vectors of the distinct ones, times `factors`, add up to its embedding."""

    spans: npt.NDArray[np.int64]  # of every occurrence [occurrences, 2]
    which: npt.NDArray[np.int64]  # of the distinct words each occurrence is
    counts: npt.NDArray[np.int64]  # of each distinct word
    rows: list[int]  # in the model's table
    vectors: npt.NDArray[np.float32]  # [words, dimension], as in the table
    factors: npt.NDArray[np.float64]

    def where(self, word: int) -> tuple[Span, ...]:
        """Return where a distinct word stands."""
        return tuple((start, end) for start, end in self.spans[self.which == word].tolist())


class WordTable:
    """A static model's words in texts, remembered from one text to the next."""

    def __init__(self, model: StaticEmbedder) -> None:
        """Take the model."""
        self.model = model
        self._simple = not any(map(is_phrase, model.vocabulary.words))
        self._rows: dict[str, int] = {}

    def read(self, text: str) -> _Words:
        """Return the known words of a text."""
        words, spans = self._split(text)
        rows = list(map(self._rows.get, words))
        if None in rows:
            rows = [self._row(word) if row is None else row for word, row in zip(words, rows)]
        found = np.array(rows, np.int64)
        known = found != -1
        distinct, which, counts = np.unique(found[known], return_inverse=True, return_counts=True)
        vectors = self.model.word_vectors(distinct)
        length = float(np.linalg.norm(counts.astype(np.float32) @ vectors))
        return _Words(spans[known], which, counts, distinct.tolist(), vectors, counts / (length or 1.0))

    def _split(self, text: str) -> tuple[list[str], npt.NDArray[np.int64]]:
        """Return what `Vocabulary.split` does, in any order; quicker where a text is mostly ASCII."""
        if not self._simple:
            found = self.model.vocabulary.split(text)
            return [word.text for word in found], _span_array([(word.start, word.end) for word in found])
        words: list[str] = []
        spans: list[Span] = []
        for other in () if text.isascii() else _NOT_ASCII.finditer(text):
            for word in self.model.vocabulary.split(other[0]):
                words.append(word.text)
                spans.append((other.start() + word.start, other.start() + word.end))
        plain = text if text.isascii() else _NOT_ASCII.sub(lambda match: " " * len(match[0]), text)
        inside = np.zeros(len(plain) + 2, bool)
        inside[1:-1] = _IN_WORD[np.frombuffer(plain.encode(), np.uint8)]
        edges = np.flatnonzero(inside[1:] != inside[:-1]).reshape(-1, 2)  # start and end of each word, in order
        return words + _ASCII_WORD.findall(plain), np.concatenate([_span_array(spans), edges])

    def _row(self, word: str) -> int:
        if word not in self._rows:
            if len(self._rows) >= _MOST_REMEMBERED:
                self._rows.clear()
            self._rows[word] = self.model.vocabulary.row(word)
        return self._rows[word]

    def named(self, text: str, words: _Words, word: int) -> tuple[str, tuple[Span, ...]]:
        """Return a word as the user wrote it, with the vocabulary's if that is more than another case; its places."""
        spans = words.where(word)
        stands, known = text[slice(*spans[0])], self.model.vocabulary.words[words.rows[word]]
        more = "" if known in (stands, stands.lower()) else f" (as {shown_word(known)})"
        return shown_word(stands) + more, spans


class PairReader:
    """Pairs of words of a static model, one of the query and one of the passage."""

    needs_vector = False

    def __init__(self, table: WordTable, query: str, weight: float) -> None:
        """Read the query."""
        self._table = table
        asked = table.read(query)
        self._vectors = asked.vectors * (asked.factors * weight).astype(np.float32)[:, None]
        self._words = cache(partial(table.named, query, asked))

    def terms(self, text: str, vector: Vector | None) -> Terms:
        """Return a value for each pair of words."""
        words = self._table.read(text)
        products = (self._vectors @ words.vectors.T) * words.factors

        @cache
        def stands(word: int) -> tuple[str, tuple[Span, ...]]:
            return self._table.named(text, words, word)

        def row(number: int) -> Row:
            i, j = divmod(number, len(words.rows))
            (first, spans1), (second, spans2) = self._words(i), stands(j)
            return Row(f"{first} × {second}", (first, second), float(products[i, j]), 0.0, spans1, spans2)

        each = products.sum(axis=0) / words.counts
        return Terms(products.ravel(), row, each[words.which], words.spans)


class DimensionReader:
    """Products of the coordinates of two rows, by the names of the dimensions."""

    needs_vector = True

    def __init__(self, model: Embedder, vector: Vector, weight: float) -> None:
        """Take the query's row at length 1."""
        self._dimensions = model.dimensions
        numbers, values = _coordinates(vector)
        self._numbers, self._values = numbers, values.astype(np.float64) * weight

    def terms(self, text: str, vector: Vector | None) -> Terms:
        """Return a value for each dimension in which both have a coordinate."""
        if vector is None:
            return _NOTHING
        numbers, coordinates = _coordinates(vector)
        shared, mine, other = np.intersect1d(self._numbers, numbers, return_indices=True)
        values = self._values[mine] * coordinates[other]

        def row(number: int) -> Row:
            name = self._dimensions[int(shared[number])].name
            return Row(name, (name,), float(values[number]), 0.0)

        return Terms(values, row)


class ModelReader:
    """The rows of a model's own `explain`, for families that no faster way is known of."""

    needs_vector = False

    def __init__(self, model: Embedder, query: str, weight: float) -> None:
        """Take the model and the query."""
        self._model, self._query, self._weight = model, query, weight

    def terms(self, text: str, vector: Vector | None) -> Terms:
        """Return a value for each row of the explanation."""
        own = self._model.explain(self._query, text)
        rest = [] if own.exact else [Row("remainder", ("remainder",), own.remainder, 0.0)]
        rows = [row._replace(contribution=row.contribution * self._weight, share=0.0) for row in (*own.rows, *rest)]
        values = np.array([row.contribution for row in rows])
        marks = [(row.contribution / len(row.spans2), span) for row in rows for span in row.spans2]
        spans = _span_array([span for _, span in marks])
        return Terms(values, rows.__getitem__, np.array([value for value, _ in marks]), spans)


class WholeReader:
    """One row for a vector that nobody can read."""

    needs_vector = True
    _NAME = "the whole vector (its dimensions have no names)"

    def __init__(self, vector: Vector, weight: float) -> None:
        """Take the query's row at length 1."""
        self._vector = vector.astype(np.float64) * weight

    def terms(self, text: str, vector: Vector | None) -> Terms:
        """Return the product."""
        if vector is None:
            return _NOTHING
        value = float(self._vector @ vector)
        return Terms(np.array([value]), lambda _: Row(self._NAME, (self._NAME,), value, 0.0))


def reader_of(model: Model, table: WordTable | None, query: str, vector: Vector, weight: float) -> Reader:
    """Return what takes the scores of `model` for a query apart.

    Args:
        model: one of the index.
        table: of a static model.
        query: its text.
        vector: its row at length 1.
        weight: of the model in the score.
    """
    if table is not None:
        return PairReader(table, query, weight)
    if not isinstance(model.encoder, Embedder):
        return WholeReader(vector, weight)
    if model.encoder.family == "ensemble":
        return ModelReader(model.encoder, query, weight)
    if type(model.encoder).dimensions is Embedder.dimensions:  # no names
        return WholeReader(vector, weight) if not model.sparse else DimensionReader(model.encoder, vector, weight)
    return DimensionReader(model.encoder, vector, weight)


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

    def top(self, count: int = 10) -> list[Row]:
        """Return the `count` rows of the largest size, largest first."""
        values = self._values()
        if count < len(values):
            best = np.argpartition(-np.abs(values), count)[:count] if count > 0 else np.zeros(0, int)
        else:
            best = np.arange(len(values))
        best = best[np.argsort(-np.abs(values[best]), kind="stable")]
        return [self._row(number) for number in best.tolist()]

    def words(self) -> list[tuple[int, int, float]]:
        """Return the stretches of `text` that have a part in the score: start, end, contribution, in text order."""
        every = list(self._terms.values())
        spans = np.concatenate([_span_array([]), *(terms.spans for terms in every)])
        keys, which = np.unique(spans[:, 0] << 32 | spans[:, 1], return_inverse=True)
        sums = np.bincount(which, np.concatenate([np.zeros(0), *(terms.marks for terms in every)]), len(keys))
        return list(zip((keys >> 32).tolist(), (keys & 0xFFFFFFFF).tolist(), sums.tolist()))

    def parts(self) -> dict[str, float]:
        """Return the sum of the rows of each part."""
        return {part: float(terms.values.sum()) for part, terms in self._terms.items()}

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(len(terms.values) for terms in self._terms.values())

    def explain(self) -> Explanation:
        """Return every row, with all the views of an explanation."""
        rows = [self._row(number) for number in range(len(self))]
        return Explanation.from_terms("index", (self.query, self.text), self.score, _distinct(rows))

    def _values(self) -> npt.NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *(terms.values for terms in self._terms.values())])

    def _row(self, number: int) -> Row:
        for part, terms in self._terms.items():
            if number < len(terms.values):
                row = terms.row(number)
                row = row._replace(name=part + _BETWEEN + row.name) if self._named else row
                share = row.contribution / self.score if self.score else 0.0
                return row._replace(share=share)
            number -= len(terms.values)
        raise IndexError(number)


def _distinct(rows: list[Row]) -> list[Row]:
    """Add up rows of the same name and parts, such as of words that differ in nothing but a mark."""
    found: dict[tuple[str, tuple[str, ...]], Row] = {}
    for row in rows:
        same = found.get((row.name, row.parts))
        if same is not None:
            spans = [tuple(sorted({*a, *b})) for a, b in ((same.spans1, row.spans1), (same.spans2, row.spans2))]
            row = row._replace(contribution=same.contribution + row.contribution, spans1=spans[0], spans2=spans[1])
        found[row.name, row.parts] = row
    return list(found.values())


def _span_array(spans: Sequence[Span]) -> npt.NDArray[np.int64]:
    return np.array(spans, np.int64).reshape(-1, 2)


def _grouped(places: Iterable[tuple[str, Span]]) -> dict[str, list[Span]]:
    spans: dict[str, list[Span]] = {}
    for term, span in places:
        spans.setdefault(term, []).append(span)
    return spans


def _coordinates(vector: Vector) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the numbers and values of the coordinates of a row."""
    if isinstance(vector, tuple):
        return vector
    numbers = np.flatnonzero(vector)
    return numbers, vector[numbers]


_NOTHING = Terms(np.zeros(0), lambda number: Row("", (), 0.0, 0.0))
