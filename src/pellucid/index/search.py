"""A search: the best passages of a query plan, as hits.

The hits are the best there are. The C function reads dense parts in 8 bits: each product is then known up to a bound,
and only passages that may be among the best are multiplied exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import IndexFolderError, InputError, PellucidError
from pellucid.index.arrays import Floats, Integers, Mask, corruption_error, corruption_reported
from pellucid.index.hits import HITS_READ_TOGETHER, Hit, HitBlock, Hits, ScoredPassage, SecondStage
from pellucid.index.metadata import Where, parse_where
from pellucid.index.models import model_labels
from pellucid.index.plan import QueryPlan, Snapshot, plan_query
from pellucid.index.query import SearchQuery
from pellucid.index.settings import BM25, validate_steer, validate_weights, validate_word_weights
from pellucid.native.scan import BestScores
from pellucid.text.unicode import well_formed

_CALIBRATE = ": index.calibrate(), or pellucid index calibrate"
_ROUNDING = 1e-5  # of a score in float32


def run(snapshot: Snapshot, asked: SearchQuery) -> Hits:
    """Return what a search finds at one moment of an index, see `Index.search`."""
    lowest_score = -math.inf if asked.min_score is None else float(asked.min_score)
    state, top_k, offset = snapshot.commit.state, asked.top_k, asked.offset
    conditions = parse_where(asked.where, state.fields)
    if asked.rerank is None:
        plan = plan_of(snapshot, asked)
        if asked.min_probability is not None:
            if plan.calibration is None:
                raise InputError("min_probability needs an index that is calibrated for these weights" + _CALIBRATE)
            lowest_score = max(lowest_score, plan.calibration.min_score(asked.min_probability))
        return search(plan, top_k, conditions, lowest_score, offset=offset)
    if asked.min_probability is not None:
        raise InputError("min_probability is of the index's own scores; leave out rerank, or give min_score")
    stage = SecondStage(asked.rerank, asked.rerank_top, asked.weights, list(state.settings["weights"]))
    n_reranked = max(top_k + offset, asked.rerank_top)
    plan = plan_of(snapshot, replace(asked, weights=stage.weights))
    return stage.reranked(search(plan, n_reranked, conditions), top_k, offset, n_reranked, lowest_score)


def plan_of(snapshot: Snapshot, asked: SearchQuery) -> QueryPlan:
    """Return the plan of a query; what it leaves open is as the settings of the index say."""
    settings = snapshot.commit.state.settings
    shares = validate_weights(asked.weights, list(settings["weights"]), settings["weights"])
    word_weights = validate_word_weights(asked.word_weights, settings)
    return plan_query(well_formed(asked.query), shares, snapshot, word_weights, steer=validate_steer(asked.steer))


def search(plan: QueryPlan, top_k: int, where: Where = (), min_score: float = -math.inf, *, offset: int = 0) -> Hits:
    """Return the best documents of those with `min_score` or more, without the `offset` best."""
    state, best = plan.snapshot.commit.state, list[tuple[float, int, ScoredPassage]]()
    n_hits = min(top_k + offset, max(state.documents, 1))
    try:
        for index, (passages, scores) in enumerate(_scan(plan, n_hits, where, min_score) if plan.parts else ()):
            best += _best_documents(plan, index, passages, scores, n_hits)
    except PellucidError:
        raise
    except (IndexError, ValueError) as error:
        problem = f"a file of the index is damaged ({error}); find out which: pellucid index verify"
        raise IndexFolderError(problem) from error
    best.sort(key=lambda item: (-item[0], item[1]))  # equal scores by the numbers of their documents
    selected = [passage for score, _, passage in best[:n_hits] if score >= min_score][offset:]
    return Hits(
        plan.query, state.documents, dict(plan.shares), tuple(_hits_for(plan, selected)), True, plan.unknown,
        plan.ignored, has_known_words=bool(plan.parts), offset=offset, models=model_labels(state.settings), _plan=plan,
    )  # fmt: skip


def score_document(plan: QueryPlan, segment_index: int, row: int) -> Hit:
    """Return one document as a hit, by its segment and its row there."""
    segment, best, parts = plan.snapshot.commit.segments[segment_index], 0, dict[str, Floats]()
    passages = segment.passages_for(np.array([row]))
    if plan.parts:
        allowed = np.zeros(segment.n_passages, np.bool_)
        allowed[passages] = True
        *_, scores = _scan_segment(plan, segment_index, BestScores(1, -math.inf), allowed)
        parts = _parts_of_passages(plan, segment_index, passages, scores)
        total, is_shared = _sum_of(parts)
        best = int(np.argmax(np.where(is_shared, total, -np.inf)))  # the passage that a search would find, if any
    values = {name: float(parts[name][best]) if name in parts else 0.0 for name in plan.weights}
    return _hits_for(plan, [ScoredPassage(segment_index, row, int(passages[best]), values)])[0]


# --- The scores of a segment ---


def _parts_of_passages(
    plan: QueryPlan, segment_index: int, passages: Integers, scores: Mapping[str, Floats]
) -> dict[str, Floats]:
    """Return the parts of the scores of some passages; `scores` are all parts but dense ones, of all passages."""
    segment = plan.snapshot.commit.segments[segment_index]
    return {
        name: scores[name][passages]
        if name in scores
        else asked.row_scores(segment.tensors[f"vectors:{name}"][passages])
        for name, asked in plan.parts.items()
    }


def _sum_of(parts: Mapping[str, Floats]) -> tuple[npt.NDArray[np.float64], Mask]:
    """Return the scores that some parts add up to, and which of them share anything with the query."""
    values = np.array(list(parts.values()), np.float64)
    return values.sum(axis=0), np.asarray(values.any(axis=0))


def _scan(plan: QueryPlan, top_k: int, where: Where, min_score: float) -> Iterator[tuple[Integers, dict[str, Floats]]]:
    """Yield of each segment the passages that may be among the best, and the parts of all passages but dense ones."""
    lowest = min_score - _ROUNDING * max(abs(min_score), 1.0) if math.isfinite(min_score) else -math.inf
    best = BestScores(top_k, lowest)
    scans = [
        _scan_segment(plan, index, best, segment.allowed_passages(where))
        for index, segment in enumerate(plan.snapshot.commit.segments)
    ]
    if len(scans) == 1:  # whose passages reach the threshold
        passages, _, scores = scans[0]
        yield passages, scores
        return
    for passages, uppers, scores in scans:
        yield passages[uppers >= best.threshold], scores


def _scan_segment(
    plan: QueryPlan, index: int, best: BestScores, allowed: Mask | None
) -> tuple[Integers, npt.NDArray[np.float64], dict[str, Floats]]:
    """Return the passages of a segment that may be among the best, their highest possible scores, and the parts.

    The parts are those of all passages, but for dense ones.
    """
    segment, (dense, vectors) = plan.snapshot.commit.segments[index], plan.dense
    bm25: Any = plan.parts.get(BM25)
    scores = {
        name: asked.segment_scores(segment)
        for name, asked in plan.parts.items()
        if asked is not bm25 and name not in dense
    }
    stacked, terms = np.array(list(scores.values())) if scores else None, bm25 and bm25.bm25_terms(segment)
    with corruption_reported(segment.name):
        passages, uppers, bm25_scores = segment.scan(dense).candidates(best, terms, vectors, stacked, allowed)
    if bm25 is not None:
        scores[BM25] = bm25_scores
    return passages, uppers, scores


def _best_documents(
    plan: QueryPlan, segment_index: int, passages: Integers, scores: Mapping[str, Floats], top_k: int
) -> list[tuple[float, int, ScoredPassage]]:
    """Return score, number and best passage of the best documents of some passages, rising, that share anything."""
    if not len(passages):
        return []
    segment = plan.snapshot.commit.segments[segment_index]
    parts = _parts_of_passages(plan, segment_index, passages, scores)
    total, is_shared = _sum_of(parts)
    if math.isnan(total.max()):
        raise corruption_error(segment.name, "a score is NaN")
    total[~is_shared] = -np.inf
    rows, totals, numbers = segment.rows_of_passages(passages).tolist(), total.tolist(), passages.tolist()
    best = dict[int, tuple[float, int, ScoredPassage]]()
    products = [(name, parts[name].tolist() if name in parts else [0.0] * len(rows)) for name in plan.weights]
    for index in (-total).argsort(kind="stable").tolist():  # the best first; of equal ones the earlier
        if len(best) == top_k or totals[index] == -math.inf:
            break
        if (row := rows[index]) not in best:
            values_by_part = {name: values[index] for name, values in products}
            passage = ScoredPassage(segment_index, row, numbers[index], values_by_part)
            best[row] = totals[index], segment.numbers.item(row), passage
    return list(best.values())


# --- Hits ---


def _hits_for(plan: QueryPlan, passages: Sequence[ScoredPassage]) -> list[Hit]:
    """Return passages as hits."""
    hits, segments = list[Hit](), plan.snapshot.commit.segments
    for block_start in range(0, len(passages), HITS_READ_TOGETHER):
        in_block = passages[block_start : block_start + HITS_READ_TOGETHER]
        block = HitBlock(plan, in_block)
        for position, (segment_index, row, passage, parts) in enumerate(in_block):
            segment, score = segments[segment_index], sum(parts.values())
            first = segment.first_passage(row)
            start = segment.tensors["cuts"].item(passage - 1) if passage > first else 0
            hits.append(Hit(segment.document_id(row), score, parts, passage - first, start, block, position))
    return hits
