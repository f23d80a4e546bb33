"""What a search returns: hits with their reasons, and the same as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, overload

from pellucid.analysis.ranking import WhyAbove
from pellucid.explanation import Explanation
from pellucid.index.reasons import Reasons
from pellucid.text import well_formed
from pellucid.views.parts import AnyPart, Column, Heading, Note, TablePart, counted, signed
from pellucid.views.report import VERSION, Report

_NAMED = 5  # rows named in a table and in JSON


@dataclass(frozen=True)
class Hit:
    """A document that was found.

    Attributes:
        id: the user's.
        score: the sum of `parts`.
        title: of the document; "" for none.
        text: the best passage of the document; all of it, unless it is long.
        metadata: as given.
        parts: what BM25 and each model add to the score; they add up to it.
        passage: number of the passage, from 0.
        start: where it starts in the document's text, in characters.
        before: the hit as the search found it, with its score and reasons, where it was reranked since; else None.
    """

    id: str
    score: float
    title: str
    text: str
    metadata: dict[str, Any]
    parts: dict[str, float]
    passage: int
    start: int
    _why: Callable[[], Reasons] = field(repr=False, compare=False)
    before: Hit | None = field(default=None, repr=False)

    @cached_property
    def reasons(self) -> Reasons:
        """What the score is made of: words to highlight, and rows that add up to it.

        Raises:
            InputError: the stored vectors are needed, they lie in an engine, and the index was closed or the document
                changed.
        """
        return self._why()

    def explain(self) -> Explanation:
        """Return every row of the score as an explanation, with its views; text 2 is the title and the passage."""
        return self.reasons.explain()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: the hit, its strongest reasons and the words to highlight."""
        rows = self._rows()
        words = [{"start": start, "end": end, "contribution": value} for start, end, value in self.reasons.words()]
        plain = {name: getattr(self, name) for name in ("id", "score", "title", "text", "metadata", "passage", "start")}
        if self.before is not None:
            known = {"score": self.before.score, "parts": dict(self.before.parts), "reasons": self.before._rows()}
            plain["before"] = known
        return {**plain, "parts": dict(self.parts), "reasons": rows, "indexed": self.reasons.text, "words": words}

    def _rows(self) -> list[dict[str, Any]]:
        return [{"name": row.name, "contribution": row.contribution} for row in self.reasons.top(_NAMED)]


class HitRow(NamedTuple):
    """A hit as a row of a table."""

    rank: int
    id: str
    score: float
    title: str
    text: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Hits(WhyAbove, Report, Sequence[Hit]):
    """The documents found for a query, best first: a sequence of `Hit`, and a report with views.

    Attributes:
        query: what was asked.
        documents: how many the index holds.
        weights: of the parts of the score.
        found: the hits.
        exact: whether no other document can have a higher score; False where an engine searches a graph, or a search
            had to stop earlier.
        unknown: words of the query that no document has; BM25 counts them in what the query could reach, so that they
            lower its part of the scores.
        reranked: how many of the first hits were scored anew, 0 where that was not asked for.
    """

    kind: ClassVar[str] = "search"
    table: ClassVar[str] = "found"

    query: str
    documents: int
    weights: dict[str, float]
    found: tuple[Hit, ...]
    exact: bool
    unknown: tuple[str, ...] = ()
    reranked: int = 0

    @overload
    def __getitem__(self, number: int) -> Hit: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, number: int | slice) -> Hit | tuple[Hit, ...]:
        """Return a hit by its number from 0."""
        return self.found[number]

    def __len__(self) -> int:
        """Return the number of hits."""
        return len(self.found)

    def _explained(self, item: Hit) -> Explanation:
        return item.explain()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers; `docs/search-schema.json` describes them."""
        facts = {"query": self.query, "documents": self.documents, "weights": self.weights, "exact": self.exact}
        facts["unknown"] = list(self.unknown)
        if self.reranked:
            facts["reranked"] = self.reranked
        return {"version": VERSION, "kind": self.kind, **facts, "hits": [hit.to_dict() for hit in self.found]}

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<Hits for {self.query!r:.60}: {len(self.found)} of {counted(self.documents, 'document')}>"

    def _parts(self) -> Iterator[AnyPart]:
        how = " + ".join(f"{weight:.2g} {part}" for part, weight in self.weights.items())
        facts = [how, counted(self.documents, "document")]
        if self.reranked:
            facts.append(f"the first {self.reranked:,} reranked")
        if not self.exact and not self.reranked:
            facts.append("better ones may have been missed")
        yield Heading("Search", self.query, ", ".join(facts))
        if self.unknown:
            yield Note(f"in no document: {', '.join(map(well_formed, self.unknown))}", is_warning=True)
        rows = []
        for rank, hit in enumerate(self.found, 1):
            why = ", ".join(f"{row.name} {signed(row.contribution)}" for row in hit.reasons.top(_NAMED))
            parts = " ".join(f"{part} {signed(value)}" for part, value in hit.parts.items())
            rows.append((str(rank), f"{hit.score:.4f}", parts, hit.id, well_formed(hit.title or hit.text), why))
        kinds = (("", "number"), ("score", "number"), ("of it", "text"), ("id", "text"), ("document", "text"))
        yield TablePart("", tuple(Column(*kind) for kind in (*kinds, ("mostly for", "text"))), tuple(rows))

    def _records(self) -> Sequence[HitRow]:
        return [
            HitRow(rank, h.id, h.score, h.title, h.text, tuple(row.name for row in h.reasons.top(_NAMED)))
            for rank, h in enumerate(self.found, 1)
        ]
