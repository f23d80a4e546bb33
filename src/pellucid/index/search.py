"""A search: the best passages of a query plan, as hits.

The hits are the best there are. The C function reads dense parts in 8 bits: each product is then known up to a bound,
and only passages that may be among the best are multiplied exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pellucid.errors import InputError
from pellucid.explain.rows import BOOST
from pellucid.index.arrays import Floats, Integers, Mask, corruption_reported
from pellucid.index.hits import Hit, Hits, ScoredPassage, SecondStage, hits_for
from pellucid.index.metadata import Condition, Test, Where, entries, parse_where
from pellucid.index.models import model_labels
from pellucid.index.parts import parse_boosts
from pellucid.index.plan import QueryPlan, Snapshot, plan_query
from pellucid.index.query import SearchQuery
from pellucid.index.segments import Floats64, Segment
from pellucid.index.settings import BM25, validate_steer, validate_synonyms, validate_weights, validate_word_weights
from pellucid.native.scan import BestScores
from pellucid.text.unicode import canonicalize, well_formed

_CALIBRATE = ": index.calibrate(), or pellucid index calibrate"
_ROUNDING = 1e-5  # of a score in float32
_CHUNK_PASSAGES = 1 << 16  # whose vectors are multiplied at once


def run(snapshot: Snapshot, request: SearchQuery) -> Hits:
    """Return what a search finds at one moment of an index, see `Index.search`."""
    lowest_score = -math.inf if request.min_score is None else float(request.min_score)
    state, top_k, offset = snapshot.commit.state, request.top_k, request.offset
    conditions = parse_where(request.where, state.fields)
    if request.rerank is None:
        plan = plan_of(snapshot, request)
        if request.min_probability is not None:
            if plan.calibration is None:
                raise InputError("min_probability needs an index that is calibrated for these weights" + _CALIBRATE)
            lowest_score = max(lowest_score, plan.calibration.min_score(request.min_probability))
        if request.group_by is not None:
            return _best_of_groups(plan, request, conditions, lowest_score)
        return search(plan, top_k, conditions, lowest_score, offset=offset)
    for name in ("min_probability", "group_by"):
        if getattr(request, name) is not None:
            raise InputError(f"{name} is of the index's own scores; leave out rerank")
    stage = SecondStage(request.rerank, request.rerank_top, request.weights, list(state.settings["weights"]))
    n_reranked = max(top_k + offset, request.rerank_top)
    plan = plan_of(snapshot, replace(request, weights=stage.weights))
    return stage.reranked(search(plan, n_reranked, conditions), top_k, offset, n_reranked, lowest_score)


def plan_of(snapshot: Snapshot, request: SearchQuery) -> QueryPlan:
    """Return the plan of a query; what it leaves open is as the settings of the index say."""
    settings = snapshot.commit.state.settings
    shares = validate_weights(request.weights, list(settings["weights"]), settings["weights"])
    word_weights = validate_word_weights(request.word_weights, settings)
    steer, synonyms = validate_steer(request.steer), validate_synonyms(request.synonyms, settings)
    return plan_query(
        well_formed(request.query), shares, snapshot, word_weights, steer=steer, synonyms=synonyms,
        boosts=parse_boosts(request.boosts, snapshot.commit.state.fields),
    )  # fmt: skip


def search(plan: QueryPlan, top_k: int, where: Where = (), min_score: float = -math.inf, *, offset: int = 0) -> Hits:
    """Return the best documents of those with `min_score` or more, without the `offset` best."""
    state, segments = plan.snapshot.commit.state, plan.snapshot.commit.segments if plan.parts else ()
    n_hits, best = min(top_k + offset, max(state.documents, 1)), list[tuple[float, int, ScoredPassage]]()
    lowest = min_score - _ROUNDING * max(abs(min_score), 1.0) if math.isfinite(min_score) else -math.inf
    scores = BestScores(n_hits, lowest)
    scans = [_scan_segment(plan, segment, scores, segment.allowed_passages(where)) for segment in segments]
    for index, (passages, uppers, parts) in enumerate(scans):
        best += _best_documents(plan, index, passages[uppers >= scores.threshold], parts, n_hits)
    best.sort(key=lambda item: (-item[0], item[1]))  # equal scores by the numbers of their documents
    selected = [passage for score, _, passage in best[:n_hits] if score >= min_score][offset:]
    return Hits(
        plan.query, state.documents, dict(plan.shares), tuple(hits_for(plan, selected)), True, plan.unknown,
        plan.ignored, has_known_words=bool(plan.parts), offset=offset, models=model_labels(state.settings), _plan=plan,
        _score_document=partial(score_document, plan),
    )  # fmt: skip


def _best_of_groups(plan: QueryPlan, request: SearchQuery, where: Where, min_score: float) -> Hits:
    """Return the best documents of which no two have a value of a field in common.

    What shares a value with one of them is left out of the next search, which finds another one, or there is none.
    """
    fields, name = plan.snapshot.commit.state.fields, canonicalize(str(request.group_by))
    parse_where({name: {"exists": True}}, fields)  # an unknown field is an error
    first, used_values, n_first = dict[str, Hit](), dict[int, list[Any]](), request.top_k + request.offset
    while True:
        is_taken = Test(tuple(Condition(column, "in", tuple(values)) for column, values in used_values.items()), True)
        hits = search(plan, n_first, tuple((*tests, is_taken) for tests in where or ((),)), min_score)
        for hit in hits:
            values = entries({name: hit.metadata[name]}, fields) if name in hit.metadata else {}
            if not any(value in used_values.get(column, ()) for column in values for value in values[column]):
                first[hit.id] = hit
                for column in values:
                    used_values.setdefault(column, []).extend(values[column])
        if len(hits) < n_first or len(first) >= n_first:
            return replace(hits, hits=tuple(first.values())[request.offset : n_first], offset=request.offset)


def score_document(plan: QueryPlan, segment_index: int, row: int) -> Hit:
    """Return one document as a hit, by its segment and its row there."""
    segment, best, parts = plan.snapshot.commit.segments[segment_index], 0, dict[str, Floats]()
    passages = segment.passages_for(np.array([row]))
    if plan.parts:
        allowed = np.zeros(segment.n_passages, np.bool_)
        allowed[passages] = True
        *_, scores = _scan_segment(plan, segment, BestScores(1, -math.inf), allowed)
        parts, total = _scores_of_passages(plan, segment, passages, scores)
        best = int(np.argmax(total))  # the passage that a search would find, if any
    values = {name: float(parts[name][best]) if name in parts else 0.0 for name in plan.weights}
    return hits_for(plan, [ScoredPassage(segment_index, row, int(passages[best]), values)])[0]


def rank_of(plan: QueryPlan, score: float, number: int, where: Any = None) -> int:
    """Return the rank that a document, by its number, has with a score: from 1, equal scores by number."""
    conditions = parse_where(where, plan.snapshot.commit.state.fields)
    n_documents, rank = max(plan.snapshot.commit.state.documents, 1), 1
    best = BestScores(n_documents, score - _ROUNDING * max(abs(score), 1.0))
    for segment in plan.snapshot.commit.segments if plan.parts else ():
        passages, _, scores = _scan_segment(plan, segment, best, segment.allowed_passages(conditions))
        is_before = np.zeros(len(segment.numbers), np.bool_)
        for block in np.split(passages, range(_CHUNK_PASSAGES, len(passages), _CHUNK_PASSAGES)):
            rows, (_, total) = segment.rows_of_passages(block), _scores_of_passages(plan, segment, block, scores)
            is_before[rows[(total > score) | ((total == score) & (segment.numbers[rows] < number))]] = True
        rank += int(is_before[segment.numbers != number].sum())
    return rank


# --- The scores of a segment ---


def _scores_of_passages(
    plan: QueryPlan, segment: Segment, passages: Integers, scores: Mapping[str, Floats]
) -> tuple[dict[str, Floats], Floats64]:
    """Return the parts of the scores of some passages, and their sums: -inf for what shares nothing with the query.

    `scores` are all parts but dense ones, of all passages.
    """
    parts = {
        name: scores[name][passages]
        if name in scores
        else part_query.row_scores(segment.tensors[f"vectors:{name}"][passages])
        for name, part_query in plan.parts.items()
    }
    values = np.array(list(parts.values()), np.float64)
    is_shared = values[: len(values) - (BOOST in parts)].any(axis=0)
    return parts, np.where(is_shared, values.sum(axis=0), -np.inf)


def _scan_segment(
    plan: QueryPlan, segment: Segment, best: BestScores, allowed: Mask | None
) -> tuple[Integers, Floats64, dict[str, Floats]]:
    """Return the passages of a segment that may be among the best, their highest possible scores, and the parts.

    The parts are those of all passages, but for dense ones.
    """
    (dense, vectors), bm25 = plan.dense, plan.parts.get(BM25)
    with corruption_reported(segment.name):
        scores = {
            name: part_query.segment_scores(segment)
            for name, part_query in plan.parts.items()
            if part_query is not bm25 and name not in dense
        }
        stacked, terms = np.array(list(scores.values())) if scores else None, bm25 and bm25.bm25_terms(segment)
        passages, uppers, bm25_scores = segment.scan(dense).candidates(
            best, terms, vectors, stacked, allowed, n_boosts=int(BOOST in scores)
        )
    return passages, uppers, scores if bm25 is None else {**scores, BM25: bm25_scores}


def _best_documents(
    plan: QueryPlan, segment_index: int, passages: Integers, scores: Mapping[str, Floats], top_k: int
) -> list[tuple[float, int, ScoredPassage]]:
    """Return score, number and best passage of the best documents of some passages, rising, that share anything."""
    segment, best = plan.snapshot.commit.segments[segment_index], dict[int, tuple[float, int, ScoredPassage]]()
    with corruption_reported(segment.name):
        parts, total = _scores_of_passages(plan, segment, passages, scores)
        if np.isnan(total).any():
            raise ValueError("a score is NaN")
        rows, totals, numbers = segment.rows_of_passages(passages).tolist(), total.tolist(), passages.tolist()
        products = [(name, parts[name].tolist() if name in parts else [0.0] * len(rows)) for name in plan.weights]
        for index in (-total).argsort(kind="stable").tolist():  # the best first; of equal ones the earlier
            if len(best) == top_k or totals[index] == -math.inf:
                break
            if (row := rows[index]) not in best:
                values_by_part = {name: values[index] for name, values in products}
                passage = ScoredPassage(segment_index, row, numbers[index], values_by_part)
                best[row] = totals[index], segment.numbers.item(row), passage
    return list(best.values())
