"""Why a search did not find a document: causes, each with the cheapest change that lets it, which was tried.

A change is tried by searching again. Scores need no other hit, so the rank of a document is one more than the number
of those with a higher score.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple

from pellucid.errors import InputError
from pellucid.explain.rows import BOOST
from pellucid.explain.views.parts import AnyPart, Heading, Lead, Note, TablePart, counted, listed, numbers, signed
from pellucid.explain.views.report import Report
from pellucid.index.documents import validate_id
from pellucid.index.evaluation import TopRow
from pellucid.index.hits import Hit
from pellucid.index.metadata import parse_where
from pellucid.index.plan import SUGGESTED_WORD_CHARS, Snapshot, one_letter_away
from pellucid.index.query import SearchQuery
from pellucid.index.search import plan_of, rank_of, run, score_document
from pellucid.index.settings import precomputed_parts, validate_word_weights
from pellucid.progress import check_cancelled
from pellucid.text.unicode import lowercase
from pellucid.text.words import split_words

MAX_EDITED_WORDS, MAX_WORDS, MAX_COPIES, MAX_ID_CHARS, WEIGHT_STEPS = 24, 6, 100, 64, 20
"""Words of a query that are changed, and words that get other weights or are shown; hits above a document that may be
copies; characters of an id whose neighbours are looked up; mixtures of the weights with one part alone."""
RAISED, LOWERED = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0), (0.7, 0.5, 0.2, 0.0)
"""What a word may count instead of 1, the smallest change first."""


class Cause(NamedTuple):
    """A cause that a document is not among the hits, as a search with the change has confirmed.

    Attributes:
        kind: "absent", "condition", "min_score", "min_probability", "offset", "capitals", "spelling", "word", "copies",
            "passages", "boosts", "weights", "word weights" or "words".
        text: the cause in words.
        change: the cheapest change that was tried and helps.
        options: the options of the search that it sets; {} where documents are to be changed.
        rank: of the document with it, from 1; of a condition or bound without all of them. None for none.
        ids: of other documents that it is about: ids that are nearly written so, or copies.
    """

    kind: str
    text: str
    change: str
    options: Mapping[str, Any]
    rank: int | None
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class WhyNot(Report):
    """Why a document is not among the hits of a search.

    Attributes:
        query: what was asked.
        id: of the document.
        documents: how many the index holds.
        n_first: how many hits were looked at: `top_k` + `offset`.
        rank: of the document among those that meet the conditions, from 1; of a document that fails some, without
            these. None where it is not in the index, or shares nothing with the query.
        score: of the document; None where it has no rank.
        last: the id of the last hit, None for no hits.
        last_score: its score.
        gap: the words of the query and the boosts, and what the last hit gets from each more than the document; they
            add up to the difference of the scores.
        causes: conditions and bounds first, then those in words and texts, weights of parts, and of words, each by the
            rank that the document has without them; () also where it is among the hits.
    """

    kind: ClassVar[str] = "why not"
    table: ClassVar[str] = "causes"

    query: str
    id: str
    documents: int
    n_first: int
    rank: int | None
    score: float | None
    last: str | None
    last_score: float | None
    gap: tuple[TopRow, ...]
    causes: tuple[Cause, ...]

    def summary(self) -> str:
        """Return rank, score and gap in a sentence."""
        if self.rank is None or self.score is None:
            is_absent = any(cause.kind == "absent" for cause in self.causes)
            return "It is not in the index." if is_absent else "It has no rank: it shares nothing with the query."
        return f"Rank {self.rank:,} of {counted(self.documents, 'document')}, score {self.score:.4f}" + (
            "." if self.last_score is None else f"; the last hit, {self.last!r:.80}, has {self.last_score:.4f}."
        )

    def _parts(self) -> Iterator[AnyPart]:
        yield from (Heading("Why not", self.id, self.query), Lead(self.summary()))
        if not any(rank and rank <= self.n_first for rank in (self.rank, *(cause.rank for cause in self.causes))):
            yield Note(f"No change that was tried brings it into the first {self.n_first:,}.", is_warning=True)
        yield from (
            table
            for table in (
                TablePart.of(
                    "Causes",
                    ["cause", "change that was tried", ("rank then", "number")],
                    ((cause.text, cause.change, f"{cause.rank:,}" if cause.rank else "") for cause in self.causes),
                ),
                TablePart.of(
                    "What the last hit has more, the largest",
                    [*numbers("score"), "from"],
                    ((signed(value, 4), name) for name, value in self.gap[:MAX_WORDS]),
                ),
            )
            if table.rows
        )


def why_not(snapshot: Snapshot, request: SearchQuery, id: str | int) -> WhyNot:
    """Return why a search does not find a document, see `Index.why_not`."""
    for name in ("rerank", "group_by"):
        if getattr(request, name) is not None:
            raise InputError(f"why_not explains scores and ranks of the index's own; leave out {name}")
    document_id, hits = validate_id(id, "the id"), run(snapshot, request)
    last, ranks = hits[-1] if hits else None, {hit.id: rank for rank, hit in enumerate(hits, request.offset + 1)}
    location = snapshot.commit.rows_for([document_id]).get(document_id)
    trials = _Trials(snapshot, request, location) if location else None
    hit = trials.hit if trials and trials.rank else None
    return WhyNot(
        request.query,
        document_id,
        snapshot.commit.state.documents,
        request.top_k + request.offset,
        rank=trials.rank if trials else None,
        score=hit.score if hit else None,
        last=last.id if last else None,
        last_score=last.score if last else None,
        gap=_gap(last, hit) if last and hit and document_id not in ranks else (),
        causes=(_absent(snapshot, document_id, ranks),) if trials is None else (*trials.blocks, *trials.causes()),
    )


def _absent(snapshot: Snapshot, id: str, ranks: Mapping[str, int]) -> Cause:
    """Return the cause of an id that is not in the index, with those that are nearly written so, found ones first."""
    ids = sorted(
        snapshot.commit.rows_for(
            sorted(
                {id.strip(), id.lower(), id.upper()}.union(
                    one_letter_away(id, {*id, *"0123456789-_.:/# "}) if len(id) <= MAX_ID_CHARS else set()
                )
                - {""}
            )
        ),
        key=lambda near_id: (near_id not in ranks, ranks.get(near_id, 0)),
    )
    change, rank = (
        (f"an id that is nearly written so: {listed(ids, 3)}", ranks.get(ids[0])) if ids else ("add it", None)
    )
    return Cause("absent", f"no document {id!r:.80} is in the index", change, {}, rank, tuple(ids))


def _gap(last: Hit, hit: Hit) -> tuple[TopRow, ...]:
    """Return what each word of the query, boost, and all else, adds to a hit more than to another one; they add up."""
    more, less = (
        {**why.word_contributions(1), **{row.name: row.contribution for row in why.rows if row.kind == BOOST}}
        for why in (last.explain(), hit.explain())
    )
    gaps = {key: more.get(key, 0.0) - less.get(key, 0.0) for key in more | less}  # words by span, boosts by name
    rows = [
        TopRow(key if isinstance(key, str) else hit.reasons.query[slice(*key)], gaps[key])
        for key in sorted(gaps, key=lambda key: -abs(gaps[key]))
    ]
    return (*rows, TopRow("all else", last.score - hit.score - sum(gaps.values())))


def _failed_conditions(
    snapshot: Snapshot, request: SearchQuery, location: tuple[int, int]
) -> tuple[dict[str, Any], Any]:
    """Return the conditions that a document fails, by field, each tried alone, and all without these; () for none.

    Of alternatives those of the nearest are taken.
    """
    segment, fields = snapshot.commit.segments[location[0]], snapshot.commit.state.fields
    alternatives = [request.where] if isinstance(request.where, Mapping) else request.where or ()
    failed = [
        {
            name: condition
            for name, condition in alternative.items()
            if not segment.matching(parse_where({name: condition}, fields))[location[1]]
        }
        for alternative in alternatives
    ]
    nearest = min(failed, key=len, default={})
    without = [{name: where[name] for name in where if name not in nearest} for where in alternatives]
    # None would leave the conditions of named settings.
    return nearest, (without if len(without) > 1 else without[0]) if without and all(without) else {}


class _Trials:
    """Searches for a document with other options.

    Attributes:
        hit: the document.
        rank: of the document among those that meet the conditions that it meets; None where it shares nothing with the
            query.
        blocks: conditions and bounds that leave it out.
    """

    def __init__(self, snapshot: Snapshot, request: SearchQuery, location: tuple[int, int]) -> None:
        """Find what leaves a document out, by its segment and its row there."""
        self._snapshot, self._request, self._n_first = snapshot, request, request.top_k + request.offset
        self._analyser, self._document = (
            snapshot.words.analyser,
            snapshot.commit.segments[location[0]].document(location[1]),
        )
        failed, where = _failed_conditions(snapshot, request, location)
        self._options: dict[str, Any] = {"where": where} if failed else {}
        self._free = replace(
            request,
            min_score=None,
            min_probability=None,
            offset=0,
            top_k=self._n_first,
            where=where if failed else request.where,
        )
        self._plan = plan_of(snapshot, self._free)
        self.hit = score_document(self._plan, *location)
        self.rank = (
            rank_of(self._plan, self.hit.score, self._document.number, self._free.where)
            if any(value for part, value in self.hit.parts.items() if part != BOOST)
            else None
        )
        blocks = [("condition", f"it fails the condition {name}: {failed[name]!r:.200}") for name in failed]
        bounds = {
            "min_score": self.hit.score,
            "min_probability": self.hit.probability or 0.0,
            "offset": (self.rank or 1) - 1,
        }
        for name, value in bounds.items() if self.rank else ():
            if (bound := getattr(request, name)) is not None and value < bound:
                blocks.append((name, f"{name} is {bound:,}, and it has {value:,.4g}"))
                # Another query has other scores, so a bound that lets this one in need not let that one in.
                self._options[name] = round(value - 5e-5, 4) if bounds["offset"] < self._n_first else None
        self.blocks = [self._cause(kind, text, {}, self.rank) for kind, text in blocks]

    def _rank(self, options: Mapping[str, Any]) -> int:
        """Return the rank of the document in a search with other options, 0 where it is not among the first."""
        check_cancelled()
        return next(
            (
                rank
                for rank, hit in enumerate(run(self._snapshot, replace(self._free, **options)), 1)
                if hit.id == self._document.id
            ),
            0,
        )

    def _cause(self, kind: str, text: str, options: Mapping[str, Any], rank: int | None, *changes: str) -> Cause:
        page = ((rank or 1) - 1) // self._request.top_k * self._request.top_k
        options = {**self._options, **options, **({"offset": page} if rank and rank <= self._request.offset else {})}
        return Cause(
            kind, text, ", ".join([*changes, *(f"{name}={options[name]!r}" for name in options)]), options, rank
        )

    def causes(self) -> list[Cause]:
        """Return what else keeps the document out, by the rank without it; none where the blocks are all."""
        if self.rank and self.rank <= self._n_first:
            return []
        by_text = {cause.text: (cause.rank or 0, cause) for cause in self._other_texts()}
        for kind, text, steps in [*self._word_edits(), *self._weight_edits()]:
            if text not in by_text and not (kind == "words" and by_text) and (last := self._rank(steps[-1])):
                first = bisect_left(steps, True, hi=len(steps) - 1, key=lambda step: self._rank(step) > 0)
                by_text[text] = last, self._cause(kind, text, steps[first], self._rank(steps[first]))
        # Weights come last: with some, most documents are found.
        return [
            cause
            for _, cause in sorted(
                by_text.values(), key=lambda item: ("weights" in item[1].kind, item[1].kind != "weights", item[0])
            )
        ]

    def _word_edits(self) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
        """Yield words of the query that the document lacks: with others that it has in their place, or left out."""
        query, document_text = self._plan.query, "\n\n".join(self._document.passages())
        terms, written = set(self._analyser.terms(document_text)), {word.text for word in split_words(document_text)}
        forms, shortened = set(map(lowercase, written)), query
        lines = [line for line in self.hit.explain().groups(None) if line.spans2 and line.contribution > 0]
        for word in split_words(query)[MAX_EDITED_WORDS - 1 :: -1]:
            form, capitals, (start, end) = lowercase(word.text), word.text.upper(), word[1:]
            replacements = [("capitals", capitals)] if capitals in written and word.text not in written else []
            if form not in self._analyser.function_words and not terms.intersection(self._analyser.terms(form)):
                alike = (
                    one_letter_away(form, set("".join(forms))) & forms if len(form) in SUGGESTED_WORD_CHARS else set()
                )
                replacements += [
                    *(("spelling", replacement) for replacement in sorted(alike)),
                    *(
                        ("word", self.hit.reasons.text[slice(*line.spans2[0])])
                        for line in lines
                        if word[1:] in line.spans1
                    ),
                    ("word", ""),
                ]
                shortened = shortened[:start] + shortened[end:]
            for kind, replacement in replacements:
                yield (
                    kind,
                    f"it lacks {word.text!r:.80}",
                    [{"query": " ".join(f"{query[:start]}{replacement}{query[end:]}".split())}],
                )
        yield "words", "it lacks several words", [{"query": " ".join(shortened.split())}]

    def _weight_edits(self) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
        """Yield parts that may find the document alone, and words that may count too little or too much."""
        shares, settings = self._plan.shares, self._snapshot.commit.state.settings
        targets = {f"{part} counts too little": {part: 1.0} for part in shares}
        for text, target in {"the weights are not the index's": settings["weights"], **targets}.items():
            yield (
                "weights",
                text,
                [
                    {
                        "weights": {
                            name: round(share + (target.get(name, 0.0) - share) * n / WEIGHT_STEPS, 4)
                            for name, share in shares.items()
                        }
                    }
                    for n in range(1, WEIGHT_STEPS)
                ],
            )
        if self._free.boosts:
            yield "boosts", "boosts lift others above it", [{"boosts": []}]
        hits, base = run(self._snapshot, self._free), validate_word_weights(self._free.word_weights, settings)
        for name, gap in _gap(hits[-1], self.hit)[:-1][:MAX_WORDS] if hits and self.rank else ():
            yield (
                "word weights",
                f"{name!r:.80} counts too {'much' if gap > 0 else 'little'}",
                [
                    {"word_weights": {**base, name: factor * base.get(name, 1.0)}}
                    for factor in (LOWERED if gap > 0 else RAISED)
                ],
            )

    def _other_texts(self) -> Iterator[Cause]:
        """Yield copies of texts above the document, and the passages of the document as one."""
        if self.rank is None:
            return
        above = run(self._snapshot, replace(self._free, top_k=min(self.rank, self._n_first + MAX_COPIES)))[
            : self.rank - 1
        ]
        document, best, last = self._document, self.hit.passage, len(self._document.ends)
        terms = {hit.id: frozenset(self._analyser.terms(f"{hit.title}\n\n{hit.text}")) for hit in [self.hit, *above]}
        first_ids = {terms[id]: id for id in reversed(terms)}
        copies = [hit.id for hit in above if first_ids[terms[hit.id]] != hit.id]
        if copies and (rank := self.rank - len(copies)) <= self._n_first:
            yield self._cause(
                "copies",
                f"{counted(len(copies), 'document')} above it repeat others, or itself",
                {},
                rank,
                f"without {listed(copies, 3)}",
            )._replace(ids=tuple(copies))
        stretches = sorted(
            {*product((0, max(best - 1, 0), best), (best + 1, min(best + 2, last), last))} - {(best, best + 1)}
        )
        if stretches and not precomputed_parts(self._snapshot.commit.state.settings):
            joined = [
                document._replace(ends=((0, *document.ends)[start], document.ends[stop - 1])).indexed(1)
                for start, stop in stretches
            ]
            scores = [part.text_scores(joined) for part in self._plan.parts.values()]
            score, text = max(zip(self.hit.parts.get(BOOST, 0.0) + sum(scores), joined))
            words = set(self._analyser.terms(self._free.query)).difference(terms[document.id])
            if (
                words.intersection(self._analyser.terms(text))
                and (rank := rank_of(self._plan, score, self._document.number, self._free.where)) <= self._n_first
            ):
                yield self._cause(
                    "passages", "its passages have different words of the query", {}, rank,
                    f"an index with passage_characters={len(text)}",
                )  # fmt: skip
