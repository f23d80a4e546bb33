"""One way to ask a model: a text with its vector, how much of it is known, and the terms of its cosine to any other.

`Embedder.analyze_texts` gives a `Query`; `explain`, `rank` and the index use it. For every family a cosine is the sum
of the products of two rows' coordinates; one that can explain more overrides `terms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role, to_2d_array
from pellucid.core.background import background
from pellucid.explain.rows import DIMENSION, EMBEDDING, REMAINDER, JoinedRows, Measurement, Row
from pellucid.process import cached_property
from pellucid.text.words import Coverage, Span

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
SpanFinder = Callable[[int], tuple[Span, ...]]
"""From the number of a dimension to where it stands in a text."""

_WHOLE_VECTOR = "the whole vector (fit_reasons divides it among words)"


class Marks(NamedTuple):
    """What places in a text add to a score."""

    values: Floats  # [marks]
    spans: Integers  # [marks, 2], start and end of each

    @classmethod
    def from_sums(cls, sums: Mapping[Span, float]) -> Marks:
        """Return sums by place as arrays."""
        return cls(np.array([*sums.values()], np.float64), np.array([*sums], np.int64).reshape(-1, 2))


class Terms(NamedTuple):
    """The parts of a score as arrays, and a function that makes the row of a part when it is read."""

    values: Floats  # [n]; they add up to the score; a family that is not exact has a remainder, too
    row: Callable[[int], Row]  # number of a value -> its row, with a unique key; contribution and share are ignored
    marks: Marks | None = None  # of the second text, where they are at hand; else they are the sums of the rows
    score: float | None = None  # None for the sum of the values
    exact: bool = True  # whether these are all terms
    measurement: Measurement | None = None  # how the values were measured, where that is by leaving words out


def scaled_terms(terms: Terms, factor: float) -> Terms:
    """Return terms times a factor: those of a part of a score that counts as much."""
    measured, score = terms.measurement, terms.score
    return terms._replace(
        values=terms.values * factor,
        measurement=measured and measured._replace(standard_error=abs(factor) * measured.standard_error),
        marks=terms.marks and terms.marks._replace(values=terms.marks.values * factor),
        score=None if score is None else score * factor,
    )  # fmt: skip


def with_rows(terms: Terms, values: Sequence[float] | Floats, rows: Sequence[Row]) -> Terms:
    """Return terms with more values, and their rows."""
    row = JoinedRows([("", len(terms.values), terms.row), ("", len(rows), rows.__getitem__)])
    return terms._replace(values=np.append(terms.values, values), row=row)


REMAINDER_ROW = Row(REMAINDER, (REMAINDER,), 0.0, 0.0, key=(REMAINDER,), kind=REMAINDER)
EMPTY_TERMS = Terms(np.zeros(0), lambda number: Row("", (), 0.0, 0.0))


class Query:
    """A text as a model reads it in a role; everything is computed when first needed: a search needs only `vector`."""

    is_reweighted = False  # whether words count more or less in `unit` than in `vector`

    def __init__(self, model: Any, text: str, role: Role) -> None:
        """Take an `Embedder`, and a checked text and role."""
        self.model, self.text, self.role = model, text, role

    def use_vector(self, vector: Any) -> Query:
        """Take the row that `encode` gave for the text, so that it is not encoded again, and return the query."""
        self.vector = vector
        return self

    @cached_property
    def vector(self) -> Any:
        """The row that `encode` gives in this role: float32 [dimension], or CSR [1, dimension]."""
        return self.model._encode_each([self.text], [self.role])[0]

    @cached_property
    def unit(self) -> Any:
        """`vector` at length 1 as an index stores it; the product with another one is their similarity."""
        row = self.model.similarity_rows(self.vector)
        return row if hasattr(row, "tocsr") else row[0]

    @property
    def measured(self) -> Query:
        """The query with reasons that are measured by leaving words out, where the family has such."""
        return self

    def reweighted(self, factors: Mapping[str, float]) -> Query:
        """Return the query in which some words count more or less, where the family can tell what they add."""
        return self

    @cached_property
    def coordinates(self) -> Any:
        """What `terms` multiplies: float64 [dimension] or CSR [1, dimension], of length 1."""
        return self.unit.astype(np.float64)

    @cached_property
    def coverage_and_gaps(self) -> tuple[Coverage, tuple[Span, ...]]:
        """How much of the text the model knows, and the spans that it does not."""
        return self.model.coverage_and_gaps([self.text], self.role)[0]  # type: ignore[no-any-return]

    @cached_property
    def span_finder(self) -> SpanFinder | None:
        """The function that finds a dimension in the text; None where the family has none."""
        return None

    def terms(self, other_query: Query | None = None) -> Terms:
        """Take the cosine to another text of the same model apart; None takes the text's own squared length apart."""
        queries = [self] if other_query is None else [self, other_query]
        is_encoded = type(self).coordinates is not Query.coordinates or any(
            "vector" in vars(query) for query in queries
        )
        if not is_encoded:
            rows = self.model._encode_each([query.text for query in queries], [query.role for query in queries])
            for number, query in enumerate(queries):  # one call for both takes half the time
                query.vector = rows[number]
        first, second = self.coordinates, queries[-1].coordinates
        if not self._is_named(hasattr(first, "tocsr")):
            product = float(first @ second)
            return Terms(np.array([product] * bool(product)), _whole_row, score=product)
        products = first.multiply(second).tocsr() if hasattr(first, "tocsr") else (first * second)[None]
        numbers, values = _coordinates(products, 0)
        dimensions, finders = self.model.dimensions, [query.span_finder for query in queries]

        def row(number: int) -> Row:
            dimension = int(numbers[number])
            name = dimensions[dimension].name
            spans = [find(dimension) if find else () for find in finders]
            return Row(name, (name,), 0.0, 0.0, spans[0], spans[1] if len(spans) > 1 else ())

        return Terms(values, row, score=float(products.sum()))

    def against(self, texts: Sequence[str], rows: Any, *, weight: float = 1.0) -> Callable[[int], Terms]:
        """Return a function from number to terms of each document.

        `rows` are stored, at length 1, float32 [texts, dimension] or CSR; zeros of a text without a known word.
        """
        if not self._is_named(hasattr(rows, "tocsr")):
            weighted_vector = self.unit.astype(np.float64) * weight

            def product(number: int) -> Terms:
                row = rows[number]
                return Terms(np.array([weighted_vector @ row]), _whole_row) if row.any() else EMPTY_TERMS

            return product
        query_dimensions, values = _coordinates(to_2d_array(self.unit), 0)
        weighted, dimensions = values.astype(np.float64) * weight, self.model.dimensions

        def products(number: int) -> Terms:
            numbers, coordinates = _coordinates(rows, number)
            shared, query_positions, document_positions = np.intersect1d(query_dimensions, numbers, return_indices=True)

            def row(term: int) -> Row:
                name = dimensions[int(shared[term])].name
                return Row(name, (name,), 0.0, 0.0, key=(name, str(shared[term])), kind=DIMENSION)

            return Terms(weighted[query_positions] * coordinates[document_positions], row)

        return products

    def _is_named(self, is_sparse: bool) -> bool:
        """Whether dimensions have meaningful names; else the whole vector is one row."""
        return is_sparse or bool(self.model.names_dimensions)


def _coordinates(rows: Any, number: int) -> tuple[Integers, npt.NDArray[Any]]:
    """Return the numbers and values of the coordinates of a row that are not 0."""
    if hasattr(rows, "tocsr"):
        span = slice(*rows.indptr[number : number + 2])
        return rows.indices[span], rows.data[span]
    numbers = np.flatnonzero(rows[number])
    return numbers, rows[number, numbers]


def _whole_row(_: int) -> Row:
    return Row(_WHOLE_VECTOR, (_WHOLE_VECTOR,), 0.0, 0.0, key=(_WHOLE_VECTOR,), kind=EMBEDDING)


class EncodedPair:
    """What gives the similarity of any two texts as a model reads them in two roles."""

    def __init__(self, model: Any, *roles: Role) -> None:
        """Take an `Embedder` and the roles of the first and of the second text."""
        self._model, self._roles = model, roles

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the similarities of pairs of texts; each text is encoded once, all of a role in one call."""
        sides: list[Any] = [None, None]
        for role in dict.fromkeys(self._roles):
            number_of: dict[str, int] = {}
            of_role = [side for side in (0, 1) if self._roles[side] == role]
            numbers = [[number_of.setdefault(pair[side], len(number_of)) for pair in pairs] for side in of_role]
            rows = self._model._encode_each(list(number_of), [role] * len(number_of))
            for side, numbers_of_side in zip(of_role, numbers):
                sides[side] = rows[numbers_of_side]
        return self._model.similarity_pairwise(*sides).tolist()  # type: ignore[no-any-return]

    def percentile(self, score: float, texts: tuple[str, str]) -> float | None:
        """Return how many of 100 pairs of the model's background score less; None of texts that are not English."""
        scores = background(self._model, texts, self._roles)
        return 100 * float(np.searchsorted(scores, score)) / (len(scores) + 1) if len(scores) else None
