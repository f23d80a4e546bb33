"""A ranked list with reasons: which documents are nearest to a query, and what puts each of them there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.base import Embedder, check_texts
from pellucid.errors import InputError
from pellucid.explanation import Coverage, Explanation, little_known
from pellucid.views.parts import AnyPart, Column, Heading, Note, TablePart, bars, counted, signed
from pellucid.views.report import Report


class RankedRow(NamedTuple):
    """A document as a row of a table; `reasons` are the names of its largest rows."""

    rank: int
    document: int
    score: float
    text: str
    reasons: tuple[str, ...]


class Reason(NamedTuple):
    """A row of an explanation: its name and what it adds to the score."""

    name: str
    contribution: float


class Ranked(NamedTuple):
    """A document: its number in the list, its text, its score, the rows that add most to it, what is known of it."""

    document: int
    text: str
    score: float
    reasons: tuple[Reason, ...]
    coverage: Coverage


@dataclass(frozen=True, repr=False)
class Ranking(Report):
    """The documents nearest to a query, best first.

    Attributes:
        family: the family of the model.
        query: what was looked for.
        documents: how many there are in all.
        ranked: the best of them.
        coverage: how much of the query the model knows.
        unknown: the query's words that it does not.
        model: the model, for `why`; not part of the data forms.
    """

    kind: ClassVar[str] = "ranking"

    family: str
    query: str
    documents: int
    ranked: tuple[Ranked, ...]
    coverage: Coverage
    unknown: tuple[str, ...]
    model: Embedder

    @property
    def is_blind(self) -> bool:
        """Whether the model knows no word of the query, so that every score is 0 and the order says nothing."""
        return not self.coverage.known and not any(item.score for item in self.ranked)

    def why(self, above: int, below: int) -> Explanation:
        """Say why one rank stands above another: the difference of the two explanations.

        Args:
            above: a rank, from 1.
            below: another.

        Raises:
            InputError: a rank is not in the list.
        """
        for rank in (above, below):
            if not 1 <= rank <= len(self.ranked):
                raise InputError(f"rank {rank} is not in this list of {len(self.ranked)}")
        texts = (self.ranked[rank - 1].text for rank in (above, below))
        better, worse = (self.model.explain(self.query, text) for text in texts)
        return better - worse

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers; `docs/schema/ranking-v1.json` describes them."""
        from pellucid.views.report import VERSION, plain_value

        content = {f.name: plain_value(getattr(self, f.name)) for f in fields(self) if f.name != "model"}
        return {"version": VERSION, "kind": self.kind} | content

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<Ranking {self.family}: {self.query!r:.60}, {len(self.ranked)} of {self.documents:,} documents>"

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Nearest to", self.query, f"{self.family} model, {counted(self.documents, 'document')}")
        for said in self._warnings():
            yield Note(said, is_warning=True)
        if self.is_blind:
            return
        shares = bars([max(item.score, 0.0) for item in self.ranked])
        rows = []
        for rank, (item, bar) in enumerate(zip(self.ranked, shares, strict=True), 1):
            reasons = ", ".join(f"{reason.name} {signed(reason.contribution)}" for reason in item.reasons)
            rows.append((str(rank), f"{item.score:.4f}", bar, item.text, reasons))
        kinds = (("", "number"), ("score", "number"), ("", "bar"), ("document", "text"), ("mostly for", "text"))
        yield TablePart("", tuple(Column(*kind) for kind in kinds), tuple(rows))

    def _warnings(self) -> Iterator[str]:
        """Say where the model knows too little for the ranking to mean much."""
        if self.is_blind:
            why = "knows none of its words" if self.coverage.total else "finds no word in it"
            named = f" ({', '.join(self.unknown[:12])})" if self.unknown else ""
            yield f"The query is unknown: the model {why}{named}. Every score is 0, and there is nothing to rank by."
            return
        yield from little_known(self.coverage, "the query", self.unknown)
        low = [str(rank) for rank, item in enumerate(self.ranked, 1) if item.coverage.is_low]
        if low:
            yield f"Fewer than half of the words are known of {counted(len(low), 'document')}: rank {', '.join(low)}."

    def _records(self) -> Sequence[RankedRow]:
        return [
            RankedRow(rank, item.document, item.score, item.text, tuple(reason.name for reason in item.reasons))
            for rank, item in enumerate(self.ranked, 1)
        ]

    def _columns(self) -> Sequence[str]:
        return RankedRow._fields


def rank(model: Embedder, query: str, documents: Iterable[str], *, top_k: int = 10, reasons: int = 3) -> Ranking:
    """Return the documents nearest to `query`, each with the rows that add most to its score.

    Scores are cosines of `model.encode`, which is what `explain` takes apart. A family that encodes queries another way
    than documents may rank differently with `encode_query` and `encode_document`.

    Args:
        model: any family.
        query: a text.
        documents: the texts to rank; equal scores keep their order.
        top_k: how many to return.
        reasons: rows named for each.

    Raises:
        InputError: no documents, an item is no string, `top_k` is below 1 or `reasons` below 0.
    """
    if isinstance(documents, str):
        raise InputError(f"documents must be a list of texts, got one string {documents!r:.60}")
    texts = check_texts(documents)
    if not isinstance(query, str):
        raise InputError(f"the query is {query!r:.40} ({type(query).__name__}); it must be a string")
    if not texts:
        raise InputError("no documents are given")
    if top_k < 1 or reasons < 0:
        raise InputError(f"top_k is {top_k} and reasons {reasons}; they must be at least 1 and 0")
    scores = model.similarity(model.encode([query]), model.encode(texts))[0]
    order = np.argsort(-scores, kind="stable")[:top_k].tolist()
    (coverage, gaps), *known = model._known([query, *(texts[number] for number in order)])
    ranked = []
    for number, (of_text, _) in zip(order, known, strict=True):
        rows = model.explain(query, texts[number]).reasons(reasons)
        best = tuple(Reason(row.name, row.contribution) for row in rows)
        ranked.append(Ranked(number, texts[number], float(scores[number]), best, of_text))
    unknown = tuple(dict.fromkeys(query[start:end] for start, end in gaps))
    return Ranking(model.family, query, len(texts), tuple(ranked), coverage, unknown, model)
