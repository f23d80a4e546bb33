"""How the score of an encoder is taken apart: one form for every kind of reasons.

Of a text's vector at length 1, `common` is what all texts have in common, their mean. What is left is divided into
named parts, whose vectors add up to it but for a rest. A cosine is then the sum of

- the products of the parts of both texts, a row each;
- what `common` adds, one row;
- what the rests add: *context* for words and sentences, 0 for measured words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.core.arrays import Role, cosines
from pellucid.core.query import EMPTY_TERMS, Floats, Marks, Query, Terms, scaled_terms, with_rows
from pellucid.dense.tokenized import TokenizedText
from pellucid.explain.groups import CONTEXT_NAME
from pellucid.explain.rows import CONTEXT, SHARED, Measurement, PairTable, Row, WordSpans
from pellucid.process import cached_property
from pellucid.static.words import check_pair_count
from pellucid.text.words import Coverage, Span

_COMMON = "what all texts have in common"


class Parts(NamedTuple):
    """What the vector of a text is made of."""

    vectors: Floats  # [parts, dimension]; they add up to the vector less `common`, and less the rest
    row: Callable[[int], Row]  # from the number of a part to its name, places and key, as `spans1`
    total: Floats | None = None  # the vector less `common`, where the products are asked for more than the parts say
    spans: WordSpans | None = None  # where the parts stand, sooner than their rows are made
    importance: Callable[[Floats], list[tuple[Span, float]]] | None = None
    """From another text's vector to spans and how much the score falls without each, where that is not their sum."""
    estimates: Floats | None = None  # [estimates, parts, dimension]; what the vectors are the mean of, where measured
    n_texts: int = 0  # read to measure them


class EncoderReasons(ABC):
    """A way to take the vectors of one encoder apart.

    Attributes:
        kind: its name: "words", "sentences" or "measured".
        has_context: whether the parts leave something of a score, which is a row.
        reads_all: whether `parts` takes a text as it is, though the encoder does not read all of it.
        common: the mean vector of texts at length 1, float64 [dimension].
    """

    kind: ClassVar[str]
    has_context: ClassVar[bool] = False
    reads_all: ClassVar[bool] = False
    common: Floats

    @abstractmethod
    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return the parts of `text`, or of what the encoder reads of it; `vector` is of length 1."""

    def centred(self, vectors: Floats) -> Floats:
        """Return vectors at length 1 less what all texts have in common, [..., dimension] in and out."""
        return vectors - self.common

    def words_without_part(self, text: str) -> tuple[Span, ...]:
        """Return the words of `text` that cannot have a part."""
        return ()

    def products(self, first: Parts, second: Parts) -> Terms:
        """Return what each pair of parts adds to the product of two texts' vectors."""
        table = first.vectors @ second.vectors.T
        spans = None if first.spans is None or second.spans is None else (first.spans, second.spans)
        rows = PairTable(first.row, second.row, table.shape, spans, lambda: cosines(first.vectors, second.vectors))
        return Terms(table.ravel(), rows)

    def measurement(self, parts: Parts, vector: Floats) -> Measurement | None:
        """Return how the parts of one text were measured, where they are multiplied with a vector; None if not."""
        return None


def nameable(text: TokenizedText, reasons: EncoderReasons | None) -> tuple[Coverage, tuple[Span, ...]]:
    """Return how much of a text the encoder reads and its reasons can name, and the spans of other words."""
    coverage, spans = text.coverage
    unnamed = set(() if reasons is None else reasons.words_without_part(text.visible)) - set(spans)
    if not unnamed:
        return coverage, spans
    return Coverage(max(coverage.known - len(unnamed), 0), coverage.total), tuple(sorted({*spans, *unnamed}))


class EncoderQuery(Query):
    """A text as an encoder reads it, with the reasons of its model; without, its whole vector is one row."""

    def __init__(self, model: Any, text: str, role: Role, vector: Any = None) -> None:
        """Take a checked text, and its vector at length 1 where it is known, float32 [dimension]."""
        super().__init__(model, text, role)
        if vector is not None:
            self.vector = self.unit = vector

    @cached_property
    def tokenized(self) -> TokenizedText:
        """The text as the encoder's tokenizer reads it."""
        return self.model.tokenized([self.text], self.role)[0]  # type: ignore[no-any-return]

    @cached_property
    def coverage_and_gaps(self) -> tuple[Coverage, tuple[Span, ...]]:
        """How much of the text the encoder reads and the reasons can name, and the spans of other words."""
        return nameable(self.tokenized, self.model.reasons_at_hand)

    @cached_property
    def centred(self) -> Floats:
        """The vector at length 1 less what all texts have in common, float64 [dimension]."""
        return self.model.reasons.centred(self.coordinates)  # type: ignore[no-any-return]

    @cached_property
    def parts(self) -> Parts:
        """What the reasons make of the text."""
        reasons = self.model.reasons
        text = self.text if reasons.reads_all else self.tokenized.visible
        return reasons.parts(text, self.role, self.coordinates)  # type: ignore[no-any-return]

    def reweighted(self, factors: Mapping[str, float]) -> EncoderQuery:
        """Return the query in which some words count more or less: their parts of its vector are multiplied."""
        if self.model.reasons_at_hand is None:
            return self
        words = [row.key[0] for row in map(self.parts.row, range(len(self.parts.vectors)))]
        times = np.array([factors.get(word, factors.get(word.lower(), 1.0)) for word in words])
        vectors = times[:, None] * self.parts.vectors
        moved = self.coordinates + (vectors - self.parts.vectors).sum(axis=0)
        query = EncoderQuery(self.model, self.text, self.role, moved.astype(np.float32))
        query.parts = Parts(vectors, self.parts.row)
        query.is_reweighted = not np.allclose(self.unit, query.unit, atol=1e-6)
        return query

    @cached_property
    def measured(self) -> EncoderQuery:
        """The query with reasons that are measured by leaving words out."""
        return EncoderQuery(self.model.with_reasons("measured"), self.text, self.role, self.unit)

    def terms(self, other_query: Query | None = None) -> Terms:
        """Return a value for each pair of parts, and for what is shared; of one text for each part."""
        if self.model.reasons_at_hand is None:
            return super().terms(other_query)
        if not self.coordinates.any() or (isinstance(other_query, EncoderQuery) and not other_query.coordinates.any()):
            return Terms(np.zeros(0), EMPTY_TERMS.row, score=0.0)  # a text without a known word
        if isinstance(other_query, EncoderQuery):
            check_pair_count(len(self.parts.vectors), len(other_query.parts.vectors))
            return self._terms(other_query)
        centred, score = self.centred, float(self.coordinates @ self.coordinates)
        measurement = self.model.reasons.measurement(self.parts, centred)
        terms = Terms(self.parts.vectors @ centred, self.parts.row, measurement=measurement)
        return self._completed(terms, score - float(centred @ centred), score)

    def _terms(self, other_query: EncoderQuery) -> Terms:
        """Take the product with another text's vector apart."""
        score = float(self.coordinates @ other_query.coordinates)
        shared = score - float(self.centred @ other_query.centred)
        return self._completed(self.model.reasons.products(self.parts, other_query.parts), shared, score)

    def _completed(self, terms: Terms, shared: float, score: float) -> Terms:
        """Return the terms with rows for what all texts have in common and, where words are named, for context."""
        values, rows = [shared], [_SHARED_ROW]
        if self.model.reasons.has_context:
            values.append(score - shared - float(terms.values.sum()))
            rows.append(_CONTEXT_ROW)
        return with_rows(terms, values, rows)._replace(score=score)

    def against(self, texts: Sequence[str], rows: Any, *, weight: float = 1.0) -> Callable[[int], Terms]:
        """Return a function from number to terms of each document."""
        if self.model.reasons_at_hand is None:
            return super().against(texts, rows, weight=weight)

        def products(number: int) -> Terms:
            if not rows[number].any():
                return EMPTY_TERMS
            document = EncoderQuery(self.model, texts[number], "document", np.asarray(rows[number]))
            terms = self._terms(document)
            if document.parts.importance is not None:
                terms = terms._replace(marks=Marks.from_sums(dict(document.parts.importance(self.coordinates))))
            return scaled_terms(terms._replace(score=None), weight)

        return products


_SHARED_ROW = Row(_COMMON, (_COMMON,), 0.0, 0.0, key=(_COMMON,), kind=SHARED)
_CONTEXT_ROW = Row(CONTEXT_NAME, (CONTEXT_NAME,), 0.0, 0.0, key=(CONTEXT_NAME,), kind=CONTEXT)
