"""Evaluation of an index on judged queries: measures of each part, why relevant documents were missed, and weights.

The measures are trec_eval's. A query that finds nothing counts 0, and so does a relevant document that the index does
not hold. All searches are of one commit, with its word weights; each query is encoded once. Weights look better on the
queries they were chosen on than on others: each of five folds is measured with those that are best on the other four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.analysis.ranking import TopRow
from pellucid.core.query import Query
from pellucid.errors import CorpusError, InputError, missing_extra
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, signed
from pellucid.explain.views.report import Report
from pellucid.index.hits import Hit
from pellucid.index.models import Model
from pellucid.index.searching import Question, Snapshot
from pellucid.index.settings import checked_word_weights
from pellucid.text.delimited import DelimitedFile
from pellucid.text.json_rows import parse_json
from pellucid.text.lines import read_lines
from pellucid.text.unicode import well_formed

Queries = Mapping[str, str]
"""Id of a query -> its text."""

Relevant = Mapping[str, Mapping[str, int]]
"""Id of a query -> id of a document -> grade, 0 for one that is not relevant."""

Floats = npt.NDArray[np.float64]

TOGETHER = "together"
"""The name of all parts, as searches weigh them."""

_ROWS = 3  # of what a missed document lacked
_BATCH = 256  # queries encoded at once
_FOLDS = 5
_LEAST = 20  # queries that weights are chosen on
_RESAMPLES = 5_000
_STEPS = (10, 5, 4, 2, 1)  # into which a weight is divided; the first that gives few enough
_MOST = 70  # weights that are tried
_GRADES = 1000  # the largest grade; trec_eval counts up to it, and ends the process where it is too large


class PartMeasures(NamedTuple):
    """What a part finds by itself, or all together; means over the queries, times 100.

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
        first: the id of the first hit; "" where there is none.
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


class PartWeight(NamedTuple):
    """A part of the score and its weight."""

    part: str
    weight: float


class TunedWeights(NamedTuple):
    """Weights that were chosen on the queries, and what such a choice brings on others.

    Attributes:
        weights: the best on all queries.
        tried: how many weights were tried.
        before: nDCG with the index's own weights, times 100.
        after: that of each fold of the queries with the weights that are best on the other folds.
        gain: the difference.
        low: the lower end of its 95 % interval, over resampled queries.
        high: the upper end.
    """

    weights: tuple[PartWeight, ...]
    tried: int
    before: float
    after: float
    gain: float
    low: float
    high: float


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
        tuned: weights that were chosen; None where that was not asked for.
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
    tuned: TunedWeights | None

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
        if self.tuned is not None:
            yield from self._tuned(self.tuned)
        yield Note(f"{self.missed:,} of {self.queries:,} have no relevant document among the first {self.top_k} hits.")
        if self.examples:
            words, measured = ("relevant", "found by", "what the first had more of"), numbers("rank", "score", "first")
            yield TablePart.of("Missed", ["query", *measured, *words], map(self._missed, self.examples))

    def _missed(self, one: MissedQuery) -> tuple[str, ...]:
        rank = str(one.rank) if one.rank else f"> {self.recall_at}" if one.score is not None else "absent"
        score = "\u2013" if one.score is None else f"{one.score:.3f}"
        lacked = ", ".join(f"{name} {signed(value)}" for name, value in one.lacked)
        first = f"{one.first_score:.3f}" if one.first else "\u2013"
        return f"{one.query}: {one.text}", rank, score, first, one.document, ", ".join(one.found_by), lacked

    def _tuned(self, tuned: TunedWeights) -> Iterator[AnyPart]:
        yield Note(
            f"Tuned: nDCG@{self.top_k} {tuned.before:.1f} before, {tuned.after:.1f} after, {tuned.gain:+.1f} "
            f"(95 % {tuned.low:+.1f} to {tuned.high:+.1f}) on {self.queries:,} queries, in {_FOLDS} folds, each "
            "measured with the weights that are best on the others."
        )
        best = f"The best of {tuned.tried} on all queries"
        if dict(tuned.weights) == {row.part: row.weight for row in self.measures if row.part != TOGETHER}:
            yield Note(f"{best} are the weights that the index has.")
            return
        if tuned.low <= 0:
            yield Note("The interval holds 0: the gain may be chance, and the weights may as well stay.", True)
        weights = ", ".join(f"{part!r}: {weight:.2g}" for part, weight in tuned.weights)
        yield Note(f"{best}: index.configure(weights={{{weights}}})")


class _Remembered(Model):
    """A model that has encoded the queries."""

    def __init__(self, model: Model, rows: Mapping[str, Any]) -> None:
        self.__dict__.update(vars(copy(model)))
        self._rows = rows

    def ask(self, query: str) -> Query:
        asked = self.encoder.analyze(query, "query")
        asked.unit = self._rows[query]
        return asked


class JudgedQueries:
    """Queries that have a text and a relevant document, encoded, and asked of one commit with any weights."""

    def __init__(self, now: Snapshot, queries: Queries, relevant: Relevant) -> None:
        """Encode the queries."""
        _trec_eval()  # before anything takes time
        settings = now.commit.state.settings
        self.weights: dict[str, float] = settings["weights"]
        self._factors = checked_word_weights(None, settings)
        self.texts, self.relevant, self.left_out = _checked(queries, relevant)
        texts = list(dict.fromkeys(self.texts.values()))
        models = {}
        for name, model in now.models.items():
            rows: dict[str, Any] = {}
            for start in range(0, 0 if model.is_static else len(texts), _BATCH):
                block = texts[start : start + _BATCH]
                rows |= zip(block, model.vectors(block, "query"))
            models[name] = model if model.is_static else _Remembered(model, rows)
        self.now = now._replace(models=models)

    def question(self, query: str, weights: Mapping[str, float]) -> Question:
        """Return a query, by its id, with weights that add up to 1."""
        return Question(self.texts[query], dict(weights), self.now, self._factors)

    def hits(self, query: str, weights: Mapping[str, float], top_k: int) -> list[Hit]:
        """Return the first hits of a query by its id."""
        return self.question(query, weights).search(min(top_k, max(self.now.commit.state.documents, 1)), ())[0]

    def run(self, weights: Mapping[str, float], top_k: int, advance: Callable[[int], None]) -> dict[str, list[str]]:
        """Return the ids of the first hits of each query, best first."""
        found = {}
        for query in self.texts:
            found[query] = [hit.id for hit in self.hits(query, weights, top_k)]
            advance(1)
        return found

    def measured(self, run: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[Floats]:
        """Return trec_eval's measures of each query of a run, times 100; 0 for a query that has no hits."""
        grades, ranked = {}, {}
        for place, (query, of) in enumerate(self.relevant.items()):
            every = dict.fromkeys([*of, *run[query]])
            number = {own: str(n) for n, own in enumerate(every)}  # ids that C code can read
            grades[str(place)] = {number[own]: grade for own, grade in of.items()}
            if run[query]:  # sorted by score, equal ones in a way of its own: so scores fall by one a rank
                ranked[str(place)] = {number[own]: float(-rank) for rank, own in enumerate(run[query])}
        found = _trec_eval()(grades, set(names)).evaluate(ranked)
        keys = [name.replace(".", "_") for name in names]
        return [np.array([100 * found.get(str(n), {}).get(key, 0.0) for n in range(len(grades))]) for key in keys]


def _trec_eval() -> Any:
    """Return trec_eval's evaluator."""
    try:
        import pytrec_eval
    except ImportError as error:
        raise missing_extra("pytrec_eval-terrier", "eval") from error
    return pytrec_eval.RelevanceEvaluator


def evaluated(
    asked: JudgedQueries, top_k: int, recall_at: int, most: int, tune: bool, advance: Callable[[int], None]
) -> IndexEvaluation:
    """Measure each part alone and all together, and take apart at most `most` of the queries that were missed."""
    tuned = _tuned(asked, top_k, advance) if tune else None
    alone = {part: {other: float(other == part) for other in asked.weights} for part in asked.weights}
    ways = {**(alone if len(alone) > 1 else {}), TOGETHER: asked.weights}
    runs = {name: asked.run(weights, max(top_k, recall_at), advance) for name, weights in ways.items()}
    relevant = {query: {own for own, grade in of.items() if grade > 0} for query, of in asked.relevant.items()}
    found = {name: {q for q, own in relevant.items() if own & set(run[q][:top_k])} for name, run in runs.items()}
    missed = [query for query in asked.texts if query not in found[TOGETHER]]
    rows = []
    for name, run in runs.items():
        cut = {query: ids[:recall_at] for query, ids in run.items()}
        values = asked.measured(run, [f"ndcg_cut.{top_k}"]) + asked.measured(cut, [f"recall.{recall_at}", "recip_rank"])
        ndcg, recall, mrr = (float(of.mean()) for of in values)
        rescued = len(found[name] - found[TOGETHER])
        rows.append(PartMeasures(name, asked.weights.get(name, 1.0), ndcg, recall, mrr, rescued))
    examples = []
    for query in missed[:most]:
        found_by = tuple(name for name, queries in found.items() if query in queries)
        examples.append(_missed(asked, query, runs[TOGETHER][query][:recall_at], found_by))
        advance(1)
    every = set().union(*relevant.values())
    absent = len(every) - len(asked.now.commit.rows_of(sorted(every)))
    return IndexEvaluation(
        asked.now.commit.state.documents, len(asked.texts), asked.left_out, absent, top_k, recall_at, tuple(rows),
        len(missed), tuple(examples), tuned,
    )  # fmt: skip


def _missed(asked: JudgedQueries, query: str, run: Sequence[str], found_by: tuple[str, ...]) -> MissedQuery:
    """Return the relevant document that came nearest to the first hits, and what it lacked."""
    relevant = [own for own, grade in asked.relevant[query].items() if grade > 0]
    first = next(iter(asked.hits(query, asked.weights, 1)), None)
    shown = (first.id, first.score) if first is not None else ("", 0.0)
    places = asked.now.commit.rows_of(relevant)
    scored = [asked.question(query, asked.weights).score(*places[own]) for own in relevant if own in places]
    if not scored:
        return MissedQuery(query, asked.texts[query], relevant[0], None, None, *shown, found_by, ())
    best = max(scored, key=lambda hit: hit.score)
    rank = run.index(best.id) + 1 if best.id in run else None
    lacked: tuple[TopRow, ...] = ()
    if first is not None:
        rows = (first.explain() - best.explain()).rows
        strongest = sorted((row for row in rows if row.contribution > 0), key=lambda row: -row.contribution)
        lacked = tuple(TopRow(row.name, row.contribution) for row in strongest[:_ROWS])
    return MissedQuery(query, asked.texts[query], best.id, rank, best.score, *shown, found_by, lacked)


def _checked(queries: Queries, relevant: Relevant) -> tuple[dict[str, str], dict[str, dict[str, int]], int]:
    """Return the queries that have a text and a relevant document, their judgements, and how many have no text."""
    if not isinstance(queries, Mapping) or not isinstance(relevant, Mapping):
        raise InputError(
            "queries are a dict: id -> text, and relevant is one: id of a query -> {id of a document: grade}; read "
            "files with read_queries and read_qrels"
        )
    texts = {str(query): text for query, text in queries.items()}
    asked: dict[str, str] = {}
    known: dict[str, dict[str, int]] = {}
    left_out = 0
    for query, grades in relevant.items():
        if not isinstance(grades, Mapping) or not all(
            type(grade) is not bool and isinstance(grade, (int, np.integer)) and abs(int(grade)) <= _GRADES
            for grade in grades.values()
        ):
            raise InputError(
                f"the judgements of query {query!r:.60} are {grades!s:.80}; give {{id: grade}}, integers up to "
                f"{_GRADES:,}"
            )
        if not any(grade > 0 for grade in grades.values()):
            continue
        if (text := texts.get(str(query))) is None:
            left_out += 1
            continue
        if not isinstance(text, str):
            raise InputError(f"query {query!r:.60} is {text!r:.40}; it must be a string")
        asked[str(query)] = well_formed(text)
        known[str(query)] = {well_formed(str(own)): int(grade) for own, grade in grades.items()}
    if not known:
        raise InputError(
            f"none of {counted(len(relevant), 'judged query', 'judged queries')} has a text and a relevant document; "
            "are they of the same set?"
        )
    return asked, known, left_out


# --- Weights ---


def _tuned(asked: JudgedQueries, top_k: int, advance: Callable[[int], None]) -> TunedWeights:
    """Choose weights on the queries, and measure such a choice in folds."""
    if len(asked.weights) < 2:
        raise InputError(f"the index has one part, {next(iter(asked.weights))!r:.60}; there are no weights to tune")
    if len(asked.texts) < _LEAST:
        raise InputError(f"{len(asked.texts)} judged queries are too few to choose weights on; give {_LEAST} or more")
    tried = candidates(asked.weights)
    values = np.array(  # [weights, queries]
        [asked.measured(asked.run(weights, top_k, advance), [f"ndcg_cut.{top_k}"])[0] for weights in tried]
    )
    before, after = values[0], np.zeros(values.shape[1])
    folds = np.random.default_rng(0).permutation(len(after)) % _FOLDS
    for fold in range(_FOLDS):
        after[folds == fold] = values[_best(values[:, folds != fold], tried)][folds == fold]
    weights = tuple(PartWeight(*item) for item in tried[_best(values, tried)].items())
    mean1, mean2, gain = (float(of.mean()) for of in (before, after, after - before))
    return TunedWeights(weights, len(tried), mean1, mean2, gain, *interval(after - before))


def candidates(own: Mapping[str, float]) -> list[Mapping[str, float]]:
    """Return weights to try: those of the index first, then all in equal steps."""
    ways = (list(_shares(len(own), steps)) for steps in _STEPS)
    shares = next(way for way in ways if len(way) <= _MOST or len(way) == len(own))  # of one step is one part alone
    every = [{name: part / sum(parts) for name, part in zip(own, parts)} for parts in shares]
    return [own, *(weights for weights in every if _distance(weights, own) > 1e-9)]


def _shares(parts: int, total: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to divide a total among some parts."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        yield from ((first, *rest) for rest in _shares(parts - 1, total - first))


def _best(values: Floats, tried: Sequence[Mapping[str, float]]) -> int:
    """Return which weights have the best mean; of equal ones the nearest to the index's own, which are the first."""
    means = values.mean(axis=1)
    best = np.flatnonzero(means >= means.max() - 1e-9).tolist()
    return int(min(best, key=lambda number: _distance(tried[number], tried[0])))


def _distance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    return sum(abs(first[name] - second[name]) for name in first)


def interval(gains: Floats) -> tuple[float, float]:
    """Return where 95 % of the means of resampled queries lie."""
    draws = np.random.default_rng(0)
    means = [gains[draws.integers(len(gains), size=len(gains))].mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


# --- Files ---


def read_queries(path: str | Path) -> dict[str, str]:
    """Read queries as BEIR has them: JSON lines with "_id" (or "id") and "text".

    Args:
        path: a .jsonl file, may be packed (.gz, .xz).

    Raises:
        CorpusError: it is absent or broken at a named line.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(read_lines(Path(path), "file of queries"), 1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}, line {number}: ")
        own = row.get("_id", row.get("id")) if isinstance(row, dict) else None
        if type(own) not in (str, int) or not isinstance(row.get("text"), str):
            raise CorpusError(f'{path}, line {number} is no query; it must be as {{"_id": "1", "text": "..."}}')
        if str(own) in found:
            raise CorpusError(f"{path}, line {number}: query {own!r:.60} is there twice")
        found[str(own)] = row["text"]
    return found


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements as BEIR has them: a table with tabs and the columns query-id, corpus-id and score.

    Raises:
        CorpusError: it is absent or broken at a named line.
    """
    found: dict[str, dict[str, int]] = {}
    table = DelimitedFile(Path(path), delimiter="\t", quoting="none")
    for number, _, cells in table:
        row = {name: cell or "" for name, cell in zip(table.names, cells)}
        try:
            grade = int(row["score"])
            found.setdefault(row["query-id"], {})[row["corpus-id"]] = grade
        except (KeyError, ValueError) as error:
            raise CorpusError(
                f"{path}, line {number}: {error}. The first line must be query-id, corpus-id, score, with tabs between "
                "them, and a score an integer"
            ) from error
    return found
