"""Evaluation of an index on judged queries: measures of each part, and why relevant documents were missed.

The measures are trec_eval's. A query that finds nothing counts 0, and so does a relevant document that the index does
not hold. All searches are of one commit, with its word weights; each query is encoded once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import CorpusError, InputError, check_integer, importing, shown
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, signed
from pellucid.explain.views.report import Report
from pellucid.index.documents import validate_id
from pellucid.index.plan import QueryPlan, Snapshot, plan_query
from pellucid.index.query import SearchQuery
from pellucid.index.search import plan_of, score_document, search
from pellucid.index.settings import validate_synonyms, validate_word_weights
from pellucid.text.tables import CorpusFile
from pellucid.text.unicode import canonicalize, well_formed

Queries = Mapping[str, str]
"""Id of a query -> its text."""

Relevant = Mapping[str, Mapping[str, int]]
"""Id of a query -> id of a document -> grade, 0 for one that is not relevant."""

Floats = npt.NDArray[np.float64]

TOGETHER = "together"
"""The name of all parts, as searches weigh them."""

Checks = Iterable[tuple[Any, ...]] | str | os.PathLike[str] | CorpusFile
"""Queries, each with the id of a document and, unless it is 10, how many first hits it must be among; or their file."""

MAX_CHECKED_RANK = 1000
"""Hits that are searched for the rank of a document that a query must find."""

MAX_LACKED_ROWS = 3  # of what a missed document lacked
MAX_GRADE = 1000  # the largest grade; trec_eval counts up to it, and ends the process where it is too large


class TopRow(NamedTuple):
    """One of the rows that add most to a score: its name and what it adds."""

    name: str
    contribution: float


class PartMeasures(NamedTuple):
    """What a part finds alone, or all together; means over the queries, times 100.

    Attributes:
        part: "bm25", the name of a model, or "together".
        weight: of the part in the score.
        ndcg: nDCG of the first `top_k` hits.
        recall: share of the relevant documents among the first `recall_at`.
        mrr: 1 / the rank of the first relevant one among these.
        rescued: how many queries have a relevant document among the part's first `top_k`, but not among those of all
            together.
    """

    part: str
    weight: float
    ndcg: float
    recall: float
    mrr: float
    rescued: int


class MissedQuery(NamedTuple):
    """A query without a relevant document among its first hits.

    Attributes:
        query: its id.
        text: its text.
        document: the id of the relevant document with the highest score.
        rank: its rank; None where it is not among the first `recall_at`.
        score: its score; None where the index does not hold it.
        first: the id of the first hit; "" without hits.
        first_score: its score.
        found_by: the parts that by themselves have a relevant document among their first hits.
        lacked: the largest rows by which the first hit stands above the document.
    """

    query: str
    text: str
    document: str
    rank: int | None
    score: float | None
    first: str
    first_score: float
    found_by: tuple[str, ...]
    lacked: tuple[TopRow, ...]


@dataclass(frozen=True, repr=False)
class IndexEvaluation(Report):
    """How well an index finds the documents that people have judged relevant.

    Attributes:
        documents: how many the index holds.
        queries: how many were asked: those with a relevant document.
        left_out: queries whose text was not given.
        absent: relevant documents that the index does not hold.
        top_k: hits of a query that count for nDCG, and within which a query is not missed.
        recall_at: hits that count for recall and MRR.
        measures: of each part alone, and of all together.
        missed: how many queries have no relevant document among the first `top_k`.
        examples: some of these, in the order of the judgements, with what the relevant document lacked.
    """

    kind: ClassVar[str] = "index evaluation"
    table: ClassVar[str] = "measures"

    documents: int
    queries: int
    left_out: int
    absent: int
    top_k: int
    recall_at: int
    measures: tuple[PartMeasures, ...]
    missed: int
    examples: tuple[MissedQuery, ...]

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Evaluation", counted(self.queries, "query", "queries"), counted(self.documents, "document"))
        if self.left_out:
            yield Note(f"{counted(self.left_out, 'judged query', 'judged queries')} without a text left out.", True)
        if self.absent:
            yield Note(f"{counted(self.absent, 'relevant document')} not in the index; they count as not found.", True)
        heads = numbers("weight", f"nDCG@{self.top_k}", f"recall@{self.recall_at}", "MRR", "finds what all miss")
        rows = [
            (m.part, f"{m.weight:.2g}", f"{m.ndcg:.1f}", f"{m.recall:.1f}", f"{m.mrr:.1f}", f"{m.rescued:,}")
            for m in self.measures
        ]
        yield TablePart.of("", ["part", *heads], rows)
        yield Note(f"{self.missed:,} of {self.queries:,} have no relevant document among the first {self.top_k} hits.")
        if self.examples:
            words, measured = ("relevant", "found by", "what the first had more of"), numbers("rank", "score", "first")
            yield TablePart.of("Missed", ["query", *measured, *words], map(self._missed, self.examples))

    def _missed(self, missed: MissedQuery) -> tuple[str, ...]:
        rank = str(missed.rank) if missed.rank else f"> {self.recall_at}" if missed.score is not None else "absent"
        score = "\u2013" if missed.score is None else f"{missed.score:.3f}"
        lacked = ", ".join(f"{name} {signed(value)}" for name, value in missed.lacked)
        first = f"{missed.first_score:.3f}" if missed.first else "\u2013"
        return f"{missed.query}: {missed.text}", rank, score, first, missed.document, ", ".join(missed.found_by), lacked


class FailedCheck(NamedTuple):
    """A query that does not find the document that it must find.

    Attributes:
        query: the text.
        id: of the document.
        within: how many first hits it must be among.
        rank: the rank that it has; None where it is not among the first 1,000.
    """

    query: str
    id: str
    within: int
    rank: int | None


def check(snapshot: Snapshot, checks: Checks) -> list[FailedCheck]:
    """Search for each document that a query must find; see `Index.check`."""
    rows = _read_checks(checks) if isinstance(checks, (str, os.PathLike, CorpusFile)) else checks
    failed, number = list[FailedCheck](), 0
    for number, row in enumerate(rows if isinstance(rows, Iterable) else (), 1):
        if not isinstance(row, (tuple, list)) or len(row) not in (2, 3):
            raise InputError(f"check {number} is {shown(row)}; give a query, an id and, if need be, a number of hits")
        query, document_id, within = row[0], validate_id(row[1], f"the id of check {number}"), (*row, 10)[2]
        check_integer(f"within of check {number}", within)
        hits = search(plan_of(snapshot, SearchQuery(query)), max(within, MAX_CHECKED_RANK))
        rank = next((rank for rank, hit in enumerate(hits, 1) if hit.id == document_id), None)
        if rank is None or rank > within:
            failed.append(FailedCheck(query, document_id, within, rank))
    if not number:
        raise InputError("there are no checks; give pairs of a query and an id, or a table with these columns")
    return failed


def _read_checks(source: str | os.PathLike[str] | CorpusFile) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table of checks."""
    file = source if isinstance(source, CorpusFile) else CorpusFile(source)
    names = ["query", "id", *(["within"] if "within" in file.column_names() else [])]
    for row, (query, id, *within) in file.cells(names):
        if not query or not id or not all(text.isdecimal() or not text for text in within):
            raise CorpusError(f"{file.locate(row)} has no query, no id, or a value of 'within' that is no number")
        yield (query, id, *(int(text) for text in within if text))


class JudgedQueries:
    """Queries that have a text and a relevant document, encoded, and asked of one commit with any weights."""

    def __init__(self, snapshot: Snapshot, queries: Queries, relevant: Relevant) -> None:
        """Check the queries and judgements, and encode the queries, each once."""
        with importing("eval", "pytrec_eval-terrier"):
            import pytrec_eval
        self._evaluator: Any = pytrec_eval.RelevanceEvaluator
        settings = snapshot.commit.state.settings
        self.snapshot, self.weights = snapshot, dict[str, float](settings["weights"])
        self._word_weights, self._synonyms = validate_word_weights(None, settings), validate_synonyms(None, settings)
        self.texts, self.relevant, self.left_out = _checked(queries, relevant)
        texts = list(dict.fromkeys(self.texts.values()))
        rows = {name: model.query_rows(texts) for name, model in snapshot.models.items()}
        self._rows = {text: {name: rows[name][[n]] for name in rows} for n, text in enumerate(texts)}

    def plan(self, query: str, weights: Mapping[str, float]) -> QueryPlan:
        """Return the plan of a query, by its id, with weights that add up to 1."""
        text = self.texts[query]
        rows = self._rows[text]
        return plan_query(text, weights, self.snapshot, self._word_weights, synonyms=self._synonyms, rows=rows)

    def measured(self, run: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[Floats]:
        """Return trec_eval's measures of each query of a run, times 100; 0 for a query that has no hits."""
        judged, ranked = {}, {}
        for index, (query, grades) in enumerate(self.relevant.items()):
            short_ids = {id: str(n) for n, id in enumerate(dict.fromkeys([*grades, *run[query]]))}  # C code reads them
            judged[str(index)] = {short_ids[id]: grade for id, grade in grades.items()}
            if run[query]:  # sorted by score, equal ones in a way of its own: so scores fall by one a rank
                ranked[str(index)] = {short_ids[id]: float(-rank) for rank, id in enumerate(run[query])}
        measures = self._evaluator(judged, set(names)).evaluate(ranked)
        by_query = [measures.get(str(index), {}) for index in range(len(judged))]
        return [np.array([100 * query.get(name.replace(".", "_"), 0.0) for query in by_query]) for name in names]


def evaluate(
    judged: JudgedQueries, top_k: int, recall_at: int, max_examples: int, advance: Callable[[int], None]
) -> IndexEvaluation:
    """Measure each part alone and all together, and take apart up to `max_examples` of the queries that were missed."""
    weights_of = {TOGETHER: judged.weights}
    if len(judged.weights) > 1:
        alone = {part: {name: float(name == part) for name in judged.weights} for part in judged.weights}
        weights_of = alone | weights_of
    runs = dict[str, dict[str, list[str]]]()  # by part and query the ids of the first hits, best first
    for name, weights in weights_of.items():
        runs[name] = {}
        for query in judged.texts:
            runs[name][query] = [hit.id for hit in search(judged.plan(query, weights), max(top_k, recall_at))]
            advance(1)
    relevant = {query: {id for id, grade in grades.items() if grade > 0} for query, grades in judged.relevant.items()}
    answered = {name: {q for q, ids in relevant.items() if ids & set(run[q][:top_k])} for name, run in runs.items()}
    missed = [query for query in judged.texts if query not in answered[TOGETHER]]
    rows = []
    for name, run in runs.items():
        first_ids = {query: ids[:recall_at] for query, ids in run.items()}
        values = judged.measured(run, [f"ndcg_cut.{top_k}"])
        values += judged.measured(first_ids, [f"recall.{recall_at}", "recip_rank"])
        ndcg, recall, mrr = (float(measure.mean()) for measure in values)
        rescued = len(answered[name] - answered[TOGETHER])
        rows.append(PartMeasures(name, judged.weights.get(name, 1.0), ndcg, recall, mrr, rescued))
    examples = []
    for query in missed[:max_examples]:
        found_by = tuple(name for name, queries in answered.items() if query in queries)
        examples.append(_missed(judged, query, runs[TOGETHER][query][:recall_at], found_by))
        advance(1)
    commit, relevant_ids = judged.snapshot.commit, set().union(*relevant.values())
    return IndexEvaluation(
        commit.state.documents, len(judged.texts), judged.left_out,
        len(relevant_ids) - len(commit.rows_for(sorted(relevant_ids))), top_k, recall_at,
        tuple(rows), len(missed), tuple(examples),
    )  # fmt: skip


def _missed(judged: JudgedQueries, query: str, run: Sequence[str], found_by: tuple[str, ...]) -> MissedQuery:
    """Return the relevant document that came nearest to the first hits, and what it lacked."""
    relevant = [id for id, grade in judged.relevant[query].items() if grade > 0]
    plan, locations = judged.plan(query, judged.weights), judged.snapshot.commit.rows_for(relevant)
    first = next(iter(search(plan, 1)), None)
    first_hit = ("", 0.0) if first is None else (first.id, first.score)
    hits = [score_document(plan, *locations[id]) for id in relevant if id in locations]
    if not hits:
        return MissedQuery(query, judged.texts[query], relevant[0], None, None, *first_hit, found_by, ())
    best = max(hits, key=lambda hit: hit.score)
    rank = run.index(best.id) + 1 if best.id in run else None
    gaps = [] if first is None else [r for r in (first.explain() - best.explain()).rows if r.contribution > 0]
    strongest = sorted(gaps, key=lambda row: -row.contribution)[:MAX_LACKED_ROWS]
    lacked = tuple(TopRow(row.name, row.contribution) for row in strongest)
    return MissedQuery(query, judged.texts[query], best.id, rank, best.score, *first_hit, found_by, lacked)


def _checked(queries: Queries, relevant: Relevant) -> tuple[dict[str, str], dict[str, dict[str, int]], int]:
    """Return the queries that have a text and a relevant document, their judgements, and how many have no text."""
    if not isinstance(queries, Mapping) or not isinstance(relevant, Mapping):
        raise InputError(
            "queries are a dict: id -> text, and relevant is one: id of a query -> {id of a document: grade}; read "
            "files with read_queries and read_qrels"
        )
    texts, judgements = by_id(queries, "query"), by_id(relevant, "the judged query")
    selected: dict[str, dict[str, int]] = {}
    left_out = 0
    for query, grades in judgements.items():
        if not isinstance(grades, Mapping) or not all(
            type(grade) is not bool and isinstance(grade, (int, np.integer)) and abs(int(grade)) <= MAX_GRADE
            for grade in grades.values()
        ):
            raise InputError(
                f"the judgements of query {query!r:.60} are {shown(grades, 80)}; give {{id: grade}}, integers up to "
                f"{MAX_GRADE:,}"
            )
        by_document = by_id(grades, f"in the judgements of query {query!r:.60}, document")
        if not any(grade > 0 for grade in by_document.values()):
            continue
        if query not in texts:
            left_out += 1
        elif not isinstance(texts[query], str):
            raise InputError(f"query {query!r:.60} is {shown(texts[query])}; it must be a string")
        else:
            selected[query] = {document_id: int(grade) for document_id, grade in by_document.items()}
    if not selected:
        raise InputError(
            f"none of {counted(len(relevant), 'judged query', 'judged queries')} has a text and a relevant document; "
            "are they of the same set?"
        )
    return {query: well_formed(texts[query]) for query in selected}, selected, left_out


def by_id(items: Mapping[Any, Any], what: str) -> dict[str, Any]:
    """Return items by their ids as an index has them; `what` names one that is there twice."""
    by_id: dict[str, Any] = {}
    for key, item in items.items():
        item_id = canonicalize(shown(key) if type(key) is int else str(key))
        if item_id in by_id:
            raise InputError(f"{what} {item_id!r:.60} is there twice")
        by_id[item_id] = item
    return by_id
