"""What a hit's score is made of, as arrays; rows are made when somebody reads them.

Each part of the score has a way to take its own number apart: BM25 into terms, a static model into pairs of words, a
model with named dimensions into the products of two stored rows, any other pellucid model by its `explain`, and what
cannot be read into one row. All of them are exact: the values of a part add up to what it adds to the score. Some
passages are read at once, since most of the work is the same for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder
from pellucid.explanation import DIMENSION, EMBEDDING, WORD, WORD_PAIR, Explanation, Row
from pellucid.index.bm25 import impacts
from pellucid.index.engine import Vector
from pellucid.index.models import Model
from pellucid.index.words import Found, Integers, Words, distinct, spans_by, stretch
from pellucid.static.spelling import SpelledRows
from pellucid.static.words import named
from pellucid.text import JOINER, Span

Floats = npt.NDArray[np.float64]

_BETWEEN = ": "  # between the name of a part and of its row, as in an ensemble
_ROUNDING = 1e-6  # of the score, up to which rows are exact
_FAINT = 0.15  # of the strongest word; a weaker one is not highlighted
_NO_SPANS: Integers = np.zeros((0, 2), np.int64)
_NO_MARKS: Floats = np.zeros(0)


class Terms(NamedTuple):
    """A part's contributions to one score.

    Attributes:
        values: float64 [n]; they add up to what the part adds to the score.
        row: number of a value -> its row, with a key that no other of the part has; contribution and share are ignored.
        marks: float64 [m], the contributions of stretches of the passage.
        spans: int64 [m, 2], where each starts and ends.
    """

    values: Floats
    row: Callable[[int], Row]
    marks: Floats = _NO_MARKS
    spans: Integers = _NO_SPANS


class Passages:
    """Some passages whose scores are taken apart together.

    Attributes:
        texts: as they are indexed.
        vectors: of each passage the stored ones that are needed, by part; None for a passage that is gone.
    """

    def __init__(self, texts: list[str], vectors: Sequence[Mapping[str, Vector] | None], words: Words) -> None:
        """Take the passages, and what reads them."""
        self.texts, self.vectors, self._words = texts, vectors, words

    @cached_property
    def _found(self) -> Found:
        return self._words.read(self.texts)

    def terms(self) -> Found:
        """Return BM25's terms by number."""
        return self._words.terms(self.texts, self._found)

    def rows(self, model: str) -> tuple[Found, SpelledRows | None]:
        """Return the words that a static model knows, as rows of its table or, with spelling, beyond it."""
        return self._words.rows(model, self.texts, self._found)


class Reader(Protocol):
    """Takes one part of the scores of one query apart."""

    needs_vector: bool

    def read(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives the terms of a passage by its number among some."""
        ...


class Bm25Reader:
    """Terms of BM25."""

    needs_vector = False

    def __init__(
        self,
        words: Words,
        query: str,
        places: Mapping[str, tuple[Span, ...]],
        weights: Mapping[str, float],
        average: float,
    ) -> None:
        """Take where the query's terms stand, those that count with their half of the score, and the mean length."""
        self._words, self._query, self._places, self._average = words, query, places, average
        self._terms, self._weights = list(weights), np.array(list(weights.values()))

    def read(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives a value for each term that query and passage share."""
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
            own, mine = found.of(passage), stretch(ends, passage)

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


class PairReader:
    """Pairs of words of a static model, one of the query and one of the passage."""

    needs_vector = False

    def __init__(self, name: str, words: Words, query: str, weight: float, factors: Mapping[str, float]) -> None:
        """Read the query; `factors` are what its words count."""
        self._name, self._model = name, words.models[name]
        asked, spelled = Passages([query], [], words).rows(name)
        places = spans_by(zip(asked.values.tolist(), map(tuple, asked.spans.tolist())))
        self._rows = np.array(list(places), np.int64)
        counts = np.array([len(spans) for spans in places.values()], np.float32)
        vectors = self._model.vectors_of(self._rows, spelled) * counts[:, None]
        self._vectors = vectors * np.float32(weight / (np.linalg.norm(vectors.sum(axis=0)) or 1.0))
        for word, factor in factors.items():
            self._vectors[self._rows == self._model.vocabulary.row(JOINER.join(word.split()))] *= np.float32(factor)
        each = list(places.values())
        self._word = cache(lambda word: self._named(query, each[word], int(self._rows[word]), spelled))

    def summed(self) -> npt.NDArray[np.float32]:
        """Return the query's vector, as its words count, float32 [dimension]."""
        vector: npt.NDArray[np.float32] = self._vectors.sum(axis=0)
        return vector

    def read(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives a value for each pair of words."""
        every, spelled = passages.rows(self._name)
        rows, which = distinct(every.values, len(self._model.vocabulary) + len(spelled or ()))
        found = every._replace(values=which)
        counts = found.counts(len(rows))
        bulk = self._model._compiled(passages.texts)
        if bulk is None or spelled:
            vectors = self._model.vectors_of(rows, spelled)
            products = (vectors @ self._vectors.T).astype(np.float64)
            lengths = np.linalg.norm(counts.astype(np.float32) @ vectors, axis=1).astype(np.float64)
        else:
            products, lengths = bulk.products_and_lengths(rows, every.values, every.ends, self._vectors)
        lengths[lengths == 0] = 1.0
        marks = products.sum(axis=1)[which] / lengths[found.texts()]
        texts, present = np.nonzero(counts)
        values = products[present] * (counts[texts, present] / lengths[texts])[:, None]
        ends, asked = texts.searchsorted(np.arange(len(lengths)), "right"), len(self._rows)

        def terms(passage: int) -> Terms:
            own, mine = found.of(passage), stretch(ends, passage)
            word = cache(partial(self._word_of, passages.texts[passage], rows, which[own], found.spans[own], spelled))

            def row(number: int) -> Row:
                column, first = divmod(number, asked)
                one, other = self._word(first), word(int(present[mine][column]))
                return Row(
                    f"{one.name} × {other.name}", one.parts + other.parts, 0.0, 0.0, one.spans1, other.spans1,
                    key=one.key + other.key, kind=WORD_PAIR,
                )  # fmt: skip

            return Terms(values[mine].ravel(), row, marks[own], found.spans[own])

        return terms

    def _word_of(
        self, text: str, rows: Integers, which: Integers, spans: Integers, spelled: SpelledRows | None, word: int
    ) -> Row:
        """Return a word of a passage by its number among the distinct ones of several."""
        return self._named(text, _spans(spans[which == word]), int(rows[word]), spelled)

    def _named(self, text: str, spans: tuple[Span, ...], row: int, spelled: SpelledRows | None) -> Row:
        """Return a word as the user wrote it, with the vocabulary's if that is more than another case; its places."""
        stands = text[slice(*spans[0])]
        name, known = named(stands, row, self._model.vocabulary, spelled)
        return Row(name, (name,), 0.0, 0.0, spans, key=(known, *([stands.lower()] if spelled else [])))


class DimensionReader:
    """Products of the coordinates of two rows, by the names of the dimensions."""

    needs_vector = True

    def __init__(self, model: Model, vector: Vector, weight: float) -> None:
        """Take the query's row at length 1."""
        self._name, self._dimensions = model.name, model.encoder.dimensions
        numbers, values = _coordinates(vector)
        self._numbers, self._values = numbers, values.astype(np.float64) * weight

    def read(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives a value for each dimension in which both have a coordinate."""
        return lambda passage: self._of_vector((passages.vectors[passage] or {}).get(self._name))

    def _of_vector(self, vector: Vector | None) -> Terms:
        if vector is None:
            return _NOTHING
        numbers, coordinates = _coordinates(vector)
        shared, mine, other = np.intersect1d(self._numbers, numbers, return_indices=True)

        def row(number: int) -> Row:
            name = self._dimensions[int(shared[number])].name
            return Row(name, (name,), 0.0, 0.0, key=(name, str(shared[number])), kind=DIMENSION)

        return Terms(self._values[mine] * coordinates[other], row)


class ModelReader:
    """The rows of a model's own `explain`, for families that no faster way is known of."""

    needs_vector = False

    def __init__(self, model: Embedder, query: str, weight: float) -> None:
        """Take the model and the query."""
        self._model, self._query, self._weight = model, query, weight

    def read(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives a value for each row of the explanation."""
        return lambda passage: self._explained(passages.texts[passage])

    def _explained(self, text: str) -> Terms:
        own = self._model.explain(self._query, text, role1="query", role2="document")
        rest = [] if own.exact else [Row("remainder", ("remainder",), own.remainder, 0.0, key=("remainder",))]
        rows = (*own.rows, *rest)
        values = np.array([row.contribution for row in rows]) * self._weight
        marks = [(value / len(row.spans2), span) for row, value in zip(rows, values.tolist()) for span in row.spans2]
        spans = np.array([span for _, span in marks], np.int64).reshape(-1, 2)
        return Terms(values, rows.__getitem__, np.array([value for value, _ in marks]), spans)


class WholeReader:
    """One row for a vector that nobody can read."""

    needs_vector = True
    _NAME = "the whole vector (its dimensions have no names)"

    def __init__(self, name: str, vector: Vector, weight: float) -> None:
        """Take the query's row at length 1."""
        self._name, self._vector = name, vector.astype(np.float64) * weight

    def read(self, passages: Passages) -> Callable[[int], Terms]:
        """Return what gives the product."""
        return lambda passage: self._of_vector((passages.vectors[passage] or {}).get(self._name))

    def _of_vector(self, vector: Vector | None) -> Terms:
        if vector is None:
            return _NOTHING
        whole = Row(self._NAME, (self._NAME,), 0.0, 0.0, key=(self._NAME,), kind=EMBEDDING)
        return Terms(np.array([self._vector @ vector]), lambda _: whole)


def reader_of(model: Model, query: str, vector: Vector, weight: float) -> Reader:
    """Return what takes the scores of `model`, which is not static, for a query apart.

    Args:
        model: one of the index.
        query: its text.
        vector: its row at length 1.
        weight: of the model in the score.
    """
    if model.encoder.family == "ensemble":
        return ModelReader(model.encoder, query, weight)
    named = type(model.encoder).dimensions is not Embedder.dimensions
    return DimensionReader(model, vector, weight) if named or model.sparse else WholeReader(model.name, vector, weight)


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
        return [self._row(number, float(self._values[number])) for number in best.tolist()]

    def words(self) -> list[tuple[int, int, float]]:
        """Return the stretches of `text` that have a part in the score: start, end, contribution, in text order."""
        return _stretches(*self._marked)

    def highlights(self) -> list[tuple[int, int, float]]:
        """Return the stretches of `words` that carry the score: those with a good part of the strongest's."""
        spans, values = self._marked
        strong = (values > 0) & (values >= _FAINT * values.max(initial=0.0))
        return _stretches(spans[strong], values[strong])

    @cached_property
    def _marked(self) -> tuple[Integers, Floats]:
        """The stretches [n, 2] and what each adds to the score [n], in text order."""
        every = [terms for terms in self._terms.values() if len(terms.marks)]
        if not every:
            return _NO_SPANS, _NO_MARKS
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

    def _row(self, number: int, contribution: float, share: float | None = None) -> Row:
        parts = iter(self._terms.items())
        part, terms = next(parts)
        while number >= len(terms.values):
            number -= len(terms.values)
            part, terms = next(parts)
        row = terms.row(number)
        share = (contribution / self.score if self.score else 0.0) if share is None else share
        name = part + _BETWEEN + row.name if self._named else row.name
        key = (part, *row.key) if self._named else row.key
        return Row(name, row.parts, contribution, share, row.spans1, row.spans2, row.spans3, key, row.kind)


def _stretches(spans: Integers, values: Floats) -> list[tuple[int, int, float]]:
    return list(zip(spans[:, 0].tolist(), spans[:, 1].tolist(), values.tolist()))


def _spans(places: Integers) -> tuple[Span, ...]:
    return tuple((start, end) for start, end in places.tolist())


def _coordinates(vector: Vector) -> tuple[Integers, npt.NDArray[np.float32]]:
    """Return the numbers and values of the coordinates of a row."""
    if isinstance(vector, tuple):
        return vector
    numbers = np.flatnonzero(vector)
    return numbers, vector[numbers]


_NOTHING = Terms(np.zeros(0), lambda number: Row("", (), 0.0, 0.0))
