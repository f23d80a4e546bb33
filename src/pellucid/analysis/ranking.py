"""A ranked list with reasons: which documents are nearest to a query, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.coordinates import check_model
from pellucid.core.embedder import Embedder
from pellucid.core.query import Query
from pellucid.errors import InputError, check_integer, shown
from pellucid.explain.explanation import Explanation, coverage_warning
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, signed
from pellucid.explain.views.report import Report
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import canonicalize
from pellucid.text.words import Coverage


class TopRow(NamedTuple):
    """One of the rows or lines of phrases that add most to a score: its name and what it adds."""

    name: str
    contribution: float


class Ranked(NamedTuple):
    """A document in its place."""

    rank: int  # from 1
    document: int  # its number in the list that was ranked, from 0
    text: str
    score: float  # cosine to the query
    reasons: tuple[TopRow, ...]  # the phrases, or rows that are not of words, that add most to the score
    coverage: Coverage  # how much of the document the model knows


class WhyAbove:
    """A ranked list that explains its order; its items are in the field that `table` names."""

    table: ClassVar[str]
    offset: int = 0  # ranks before the list

    def _explained(self, item: Any) -> Explanation:
        """Return the explanation of an item's score."""
        raise NotImplementedError

    def why(self, above: int, below: int | None = None) -> Explanation:
        """Return why one rank is above another: the difference of their explanations.

        Args:
            above: a rank, from 1.
            below: another; None for the next one.

        Raises:
            InputError: a rank is not in the list.
        """
        explanation = self.explain(above)
        return explanation - self.explain(above + 1 if below is None else below)

    def explain(self, rank: int) -> Explanation:
        """Return what the score at a rank is made of; the first rank is 1, or the one after those left out.

        Raises:
            InputError: the rank is not in the list.
        """
        items = dict(enumerate(getattr(self, self.table), self.offset + 1))
        if rank not in list(items):
            first = f", whose first rank is {self.offset + 1}" if self.offset else ""
            raise InputError(f"rank {shown(rank)} is not in this list of {len(items)}{first}")
        return self._explained(items[rank])


@dataclass(frozen=True, repr=False)
class Ranking(WhyAbove, Report):
    """The documents nearest to a query, best first."""

    kind: ClassVar[str] = "ranking"
    table: ClassVar[str] = "ranked"

    family: str
    query: str
    documents: int  # how many there are in all
    ranked: tuple[Ranked, ...]  # the best of them
    coverage: Coverage  # how much of the query the model knows
    unknown: tuple[str, ...]  # the query's words that it does not
    model: Embedder = field(compare=False)  # the model, for `why`; not part of the data forms
    queries: tuple[Query, ...] = field(compare=False)  # the query and the documents as the model read them, for `why`

    def _explained(self, item: Ranked) -> Explanation:
        return self.model.explain_queries(self.queries[0], self.queries[item.rank])

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Nearest to", self.query, f"{self.family} model, {counted(self.documents, 'document')}")
        if not self.coverage.known and not any(item.score for item in self.ranked):
            why = "knows none of its words" if self.coverage.total else "finds no word in it"
            named = f" ({', '.join(self.unknown[:12])})" if self.unknown else ""
            warning = f"The query is unknown: the model {why}{named}. Every score is 0, and the order means nothing."
            yield Note(warning, is_warning=True)
            return
        if warning := coverage_warning(self.coverage, "the query", self.unknown):
            yield Note(warning, is_warning=True)
        if low := [str(item.rank) for item in self.ranked if item.coverage.is_low]:
            documents = f"{counted(len(low), 'document')}: rank {', '.join(low)}"
            yield Note(f"Fewer than half of the words are known of {documents}.", is_warning=True)
        rows = []
        for item in self.ranked:
            reasons = "; ".join(f"{reason.name} {signed(reason.contribution)}" for reason in item.reasons)
            rows.append((str(item.rank), f"{item.score:.4f}", max(item.score, 0.0), item.text, reasons))
        yield TablePart.of("", [*numbers("", "score"), ("", "bar"), "document", "mostly for"], rows)


def rank(model: Embedder, query: str, documents: Iterable[str], *, top_k: int = 10, reasons: int = 3) -> Ranking:
    """Return the documents nearest to `query`, each with the phrases or rows that add most to its score.

    Scores are those of a search: `similarity` of `encode_query` and `encode_document`, taken apart in these roles.

    Args:
        model: any family.
        query: a text.
        documents: the texts to rank; equal scores keep their order.
        top_k: how many to return.
        reasons: phrases named for each, or rows that are not of words.

    Raises:
        InputError: no documents, an item is not a string, `top_k` is below 1 or `reasons` below 0.
    """
    check_model(model)
    texts = check_texts(documents)
    if not isinstance(query, str):
        raise InputError(f"the query is {shown(query)} ({type(query).__name__}); it must be a string")
    if not texts:
        raise InputError("no documents are given")
    check_integer("top_k", top_k)
    check_integer("reasons", reasons, 0)
    analyzed_query, rows = model.analyze_texts([query], ["query"])[0], model.encode_document(texts)
    coverage, gaps = analyzed_query.coverage_and_gaps
    scores = model.similarity(analyzed_query.vector, rows)[0]
    order = np.argsort(-scores, kind="stable")[:top_k].tolist()
    queries, ranked = [analyzed_query], list[Ranked]()
    for position, index in enumerate(order, 1):
        document = model.analyze_texts([texts[index]], ["document"])[0].use_vector(rows[index])
        groups = model.explain_queries(analyzed_query, document).groups(None) if reasons else []
        lines = (line for line in groups if not line.is_sum and line.contribution > 0)
        best = tuple(TopRow(line.name, line.contribution) for line in lines)[:reasons]
        ranked.append(Ranked(position, index, texts[index], float(scores[index]), best, document.coverage_and_gaps[0]))
        queries.append(document)
    unknown = tuple(dict.fromkeys(canonicalize(query[start:end]) for start, end in gaps))
    return Ranking(model.family, query, len(texts), tuple(ranked), coverage, unknown, model, tuple(queries))
