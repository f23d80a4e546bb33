"""A search: the best passages of a query plan, as hits.

The hits are the best there are. The C function reads dense parts in 8 bits: each product is then known up to a bound,
and only passages that may be among the best are multiplied exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import IndexFolderError, PellucidError
from pellucid.index.arrays import Floats, Integers, Mask, corruption_error, corruption_reported
from pellucid.index.bm25 import K1, B, impacts
from pellucid.index.hits import HITS_READ_TOGETHER, Hit, HitBlock, Hits, PassageRef
from pellucid.index.metadata import Where
from pellucid.index.models import model_source
from pellucid.index.plan import QueryPlan
from pellucid.index.settings import BM25
from pellucid.native.scan import BestScores, Bm25Terms

_ROUNDING = 1e-5  # of a score in float32


class ScoredPassage(NamedTuple):
    """The best passage of a document, and what its score is made of."""

    score: float
    document: int  # its number, by which equal scores are ordered
    ref: PassageRef
    parts: dict[str, float]


PassageParts = tuple[PassageRef, dict[str, float]]
"""A passage and what the parts add to its score."""


def search(plan: QueryPlan, top_k: int, where: Where = (), min_score: float = -math.inf, *, offset: int = 0) -> Hits:
    """Return the best documents of those with `min_score` or more, without the `offset` best."""
    state, best = plan.snapshot.commit.state, list[ScoredPassage]()
    n_hits = min(top_k + offset, max(state.documents, 1))
    try:
        for index, (passages, scores) in enumerate(_scan(plan, n_hits, where, min_score) if plan.parts else ()):
            best += _best_documents(plan, index, passages, scores, n_hits)
    except PellucidError:
        raise
    except (IndexError, ValueError) as error:
        problem = f"a file of the index is damaged ({error}); find out which: pellucid index verify"
        raise IndexFolderError(problem) from error
    best.sort(key=lambda passage: (-passage.score, passage.document))
    selected = [(p.ref, p.parts) for p in best[:n_hits] if p.score >= min_score][offset:]
    models = {
        model["name"]: f"{model_source(model)} ({model['fingerprint']['stored'][:12]})"
        for model in state.settings["models"]
    }
    return Hits(
        plan.query, state.documents, dict(plan.shares), tuple(_hits_for(plan, selected)), True, plan.unknown,
        plan.ignored, has_known_words=bool(plan.parts), offset=offset, models=models,
    )  # fmt: skip


def score_document(plan: QueryPlan, segment_index: int, row: int) -> Hit:
    """Return one document as a hit, by its segment and its row there."""
    passages, best = plan.snapshot.commit.segments[segment_index].passages_for(np.array([row])), 0
    parts = _parts_of_passages(plan, segment_index, passages)
    if parts:
        total, is_shared = _sum_of(parts)
        best = int(np.argmax(np.where(is_shared, total, -np.inf)))  # the passage that a search would find, if any
    ref = PassageRef(segment_index, row, int(passages[best]))
    return _hits_for(plan, [(ref, {n: float(parts[n][best]) if n in parts else 0.0 for n in plan.weights})])[0]


# --- The scores of a segment ---


def _parts_of_passages(
    plan: QueryPlan, segment_index: int, passages: Integers, scores: Mapping[str, Floats] = MappingProxyType({})
) -> dict[str, Floats]:
    """Return the parts of the scores of some passages; `scores` are parts of all passages that are there already."""
    segment, parts = plan.snapshot.commit.segments[segment_index], {}
    for name, part in plan.parts.items():
        if name == BM25 or isinstance(part.vector, tuple):
            values = scores[name] if name in scores else _listed_scores(plan, segment_index, name)
            parts[name] = values[passages]
        else:
            parts[name] = _multiplied(segment.tensors[f"vectors:{name}"][passages], part.vector)
    return parts


def _listed_scores(plan: QueryPlan, segment_index: int, name: str) -> Floats:
    """Return BM25 or a sparse part of each passage of a segment, float32 [passages]."""
    if name == BM25:
        return _bm25_scores(plan, segment_index)
    segment = plan.snapshot.commit.segments[segment_index]
    scores = np.zeros(segment.n_passages, np.float32)
    dimensions, values = plan.parts[name].vector
    for dimension, value in zip(dimensions.tolist(), values):
        rows, coordinates = segment.sparse(name, dimension)
        scores[rows] += value * coordinates
    return scores


def _bm25_scores(plan: QueryPlan, segment_index: int) -> Floats:
    """Return BM25 of each passage of a segment, float32 [passages]."""
    segment, spans = plan.snapshot.commit.segments[segment_index], plan.postings_spans[segment_index]
    lists = [segment.postings(spans[term]) for term in plan.terms]
    rows = np.concatenate([passages for passages, _ in lists])
    if not len(rows):
        return np.zeros(segment.n_passages, np.float32)
    if rows.max() >= segment.n_passages:
        raise corruption_error(segment.name, "bm25 points outside the passages")
    counts = np.concatenate([counts for _, counts in lists])
    weights = np.repeat(list(plan.terms.values()), [len(passages) for passages, _ in lists])
    values = weights * impacts(counts, segment.lengths[rows], plan.snapshot.commit.state.average)
    return np.bincount(rows, values, segment.n_passages).astype(np.float32)


def _multiplied(rows: Floats, vector: Floats) -> Floats:
    """Return the products of rows with a vector: equal rows have equal ones, which BLAS gives only in equal places."""
    if len(rows) == 1:  # which einsum would cut into blocks of 8,192 numbers
        return _multiplied(np.repeat(rows, 2, axis=0), vector)[:1]
    products: Floats = np.einsum("ij,j->i", rows, vector)
    return products


def _sum_of(parts: Mapping[str, Floats]) -> tuple[npt.NDArray[np.float64], Mask]:
    """Return the scores that some parts add up to, and which of them share anything with the query."""
    first, *others = parts.values()
    total, is_shared = first.astype(np.float64), first != 0
    for values in others:
        total += values
        is_shared |= values != 0
    return total, is_shared


def _scan(plan: QueryPlan, top_k: int, where: Where, min_score: float) -> Iterator[tuple[Integers, dict[str, Floats]]]:
    """Yield of each segment the passages that may be among the best, and the parts of all passages but dense ones."""
    lowest = min_score - _ROUNDING * max(abs(min_score), 1.0) if math.isfinite(min_score) else -math.inf
    best, scans = BestScores(top_k, lowest), []
    dense = {
        name: part.vector for name, part in plan.parts.items() if name != BM25 and not isinstance(part.vector, tuple)
    }
    vectors = np.concatenate(list(dense.values())) if dense else np.zeros(0, np.float32)
    sparse = [name for name, part in plan.parts.items() if isinstance(part.vector, tuple)]
    weights = np.array(list(plan.terms.values()))
    for index, segment in enumerate(plan.snapshot.commit.segments):
        scores, terms = {name: _listed_scores(plan, index, name) for name in sparse}, None
        if BM25 in plan.parts:
            spans = [plan.postings_spans[index][term] for term in plan.terms]
            starts_and_stops = np.array([[span.start for span in spans], [span.stop for span in spans]], np.int64)
            terms = Bm25Terms(starts_and_stops, weights, K1, B, plan.snapshot.commit.state.average)
        others = np.array(list(scores.values())) if scores else None
        with corruption_reported(segment.name):
            scan = segment.scan(tuple(dense))
            passages, uppers, bm25 = scan.candidates(best, terms, vectors, others, segment.allowed_passages(where))
        if terms is not None:
            scores[BM25] = bm25
        scans.append((passages, uppers, scores))
    if len(scans) == 1:  # whose passages reach the threshold
        passages, _, scores = scans[0]
        yield passages, scores
        return
    for passages, uppers, scores in scans:
        yield passages[uppers >= best.threshold], scores


def _best_documents(
    plan: QueryPlan, segment_index: int, passages: Integers, scores: Mapping[str, Floats], top_k: int
) -> list[ScoredPassage]:
    """Return the best documents of some passages of a segment, rising, that share anything with the query."""
    if not len(passages):
        return []
    segment = plan.snapshot.commit.segments[segment_index]
    parts = _parts_of_passages(plan, segment_index, passages, scores)
    total, is_shared = _sum_of(parts)
    if math.isnan(total.max()):
        raise corruption_error(segment.name, "a score is NaN")
    total[~is_shared] = -np.inf
    rows, totals, best = segment.rows_of_passages(passages).tolist(), total.tolist(), dict[int, ScoredPassage]()
    numbers = passages.tolist()
    products = [(name, parts[name].tolist() if name in parts else [0.0] * len(rows)) for name in plan.weights]
    for index in (-total).argsort(kind="stable").tolist():  # the best first; of equal ones the earlier
        if len(best) == top_k or totals[index] == -math.inf:
            break
        if (row := rows[index]) not in best:
            best[row] = ScoredPassage(
                totals[index], segment.numbers.item(row), PassageRef(segment_index, row, numbers[index]),
                {name: values[index] for name, values in products},
            )  # fmt: skip
    return list(best.values())


# --- Hits ---


def _hits_for(plan: QueryPlan, passages: Sequence[PassageParts]) -> list[Hit]:
    """Return passages as hits, each with what the parts add to its score."""
    hits, segments = list[Hit](), plan.snapshot.commit.segments
    for block_start in range(0, len(passages), HITS_READ_TOGETHER):
        in_block = passages[block_start : block_start + HITS_READ_TOGETHER]
        block = HitBlock(plan, [ref for ref, _ in in_block])
        for position, ((segment_index, row, passage), parts) in enumerate(in_block):
            segment, score = segments[segment_index], sum(parts.values())
            first = segment.first_passage(row)
            start = segment.tensors["cuts"].item(passage - 1) if passage > first else 0
            hits.append(Hit(segment.document_id(row), score, parts, passage - first, start, block, position))
    return hits
