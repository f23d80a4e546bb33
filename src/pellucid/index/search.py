"""A search: the best passages of a query plan, and the reasons of their scores.

The hits are the best there are. The C function reads dense parts in 8 bits: each product is then known up to a bound,
and only passages that may be among the best are multiplied exactly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.dense.reasons import EncoderQuery
from pellucid.errors import IndexFolderError, InputError, PellucidError, shown
from pellucid.index.arrays import Floats, Integers, Mask, Vector, corruption_error, corruption_reported
from pellucid.index.bm25 import K1, B, impacts
from pellucid.index.documents import Document
from pellucid.index.hits import Hit, Hits
from pellucid.index.metadata import Where
from pellucid.index.models import model_source
from pellucid.index.plan import QueryPlan
from pellucid.index.reasons import Passages, PassageTerms, Reasons
from pellucid.index.settings import BM25
from pellucid.native.scan import BestScores, Bm25Terms

HITS_READ_TOGETHER = 10
"""Neighbouring hits whose reasons are read at once."""

_ROUNDING = 1e-5  # of a score in float32


class PassageRef(NamedTuple):
    """A passage of a commit: the indices of its segment, of its document there, and of itself there."""

    segment: int
    row: int
    passage: int


class ScoredPassage(NamedTuple):
    """The best passage of a document, and what its score is made of."""

    score: float
    document: int  # its number, by which equal scores are ordered
    ref: PassageRef
    parts: dict[str, float]


PassageParts = tuple[PassageRef, dict[str, float]]
"""A passage and what the parts add to its score."""


class RankedPassages(NamedTuple):
    """The best passages of documents, best first."""

    plan: QueryPlan
    passages: list[PassageParts]

    def hits(self, offset: int = 0) -> Hits:
        """Return the hits from a rank on."""
        plan, state = self.plan, self.plan.snapshot.commit.state
        models = {
            model["name"]: f"{model_source(model)} ({model['fingerprint']['stored'][:12]})"
            for model in state.settings["models"]
        }
        return Hits(
            plan.query, state.documents, dict(plan.shares), tuple(hits_for(plan, self.passages[offset:])),
            True, plan.unknown, plan.ignored, has_known_words=bool(plan.parts), offset=offset, models=models,
        )  # fmt: skip

    def stream(self, offset: int = 0) -> Iterator[Hit]:
        """Yield the hits from a rank on, those whose reasons are read together at a time."""
        for start in range(offset, len(self.passages), HITS_READ_TOGETHER):
            yield from hits_for(self.plan, self.passages[start : start + HITS_READ_TOGETHER])


def search(plan: QueryPlan, top_k: int, where: Where = (), min_score: float = -math.inf) -> RankedPassages:
    """Return the best documents of those with `min_score` or more."""
    top_k = min(top_k, max(plan.snapshot.commit.state.documents, 1))
    if not plan.parts:
        return RankedPassages(plan, [])
    best: list[ScoredPassage] = []
    try:
        for index, (passages, scores) in enumerate(_scan(plan, top_k, where, min_score)):
            best += _best_documents(plan, index, passages, scores, top_k)
    except PellucidError:
        raise
    except (IndexError, ValueError) as error:
        problem = f"a file of the index is damaged ({error}); find out which: pellucid index verify"
        raise IndexFolderError(problem) from error
    best.sort(key=lambda passage: (-passage.score, passage.document))
    return RankedPassages(plan, [(p.ref, p.parts) for p in best[:top_k] if p.score >= min_score])


def score_document(plan: QueryPlan, segment_index: int, row: int) -> Hit:
    """Return one document as a hit, by its segment and its row there."""
    passages, best = plan.snapshot.commit.segments[segment_index].passages_for(np.array([row])), 0
    parts = _parts_of_passages(plan, segment_index, passages)
    if parts:
        total, is_shared = _sum_of(parts)
        best = int(np.argmax(np.where(is_shared, total, -np.inf)))  # the passage that a search would find, if any
    ref = PassageRef(segment_index, row, int(passages[best]))
    return hits_for(plan, [(ref, {n: float(parts[n][best]) if n in parts else 0.0 for n in plan.weights})])[0]


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
            parts[name] = _multiplied(segment.dense(name)[passages], part.vector)
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


# --- Hits and their reasons ---


def hits_for(plan: QueryPlan, passages: Sequence[PassageParts]) -> list[Hit]:
    """Return passages as hits, each with what the parts add to its score."""
    reader, hits = HitReader(plan, [ref for ref, _ in passages]), []
    segments = plan.snapshot.commit.segments
    for index, ((segment_index, row, passage), parts) in enumerate(passages):
        segment, total = segments[segment_index], sum(parts.values())
        first = segment.first_passage(row)
        start = segment.passage_end(passage - 1) if passage > first else 0
        source = _FoundHit(reader, index, total)
        hits.append(Hit(segment.document_id(row), total, parts, passage - first, start, source))
    return hits


class _FoundHit(NamedTuple):
    """A hit of a search as the source of its document and reasons."""

    reader: HitReader
    position: int
    total: float

    def document(self) -> Document:
        return self.reader.document(self.position)

    def reasons(self) -> Reasons:
        return self.reader.reasons(self.position, self.total)

    def measured(self) -> Reasons:
        return self.reader.measured(self.position, self.total)

    def scores(self, texts: list[str]) -> npt.NDArray[np.float64]:
        return self.reader.scores(texts)

    def vectors(self) -> dict[str, Vector]:
        return self.reader.vectors(self.position)


class HitReader:
    """Reads documents and reasons of the hits of one search, when they are asked for; reasons of neighbours together.

    It holds the commit of the search, whose files stay readable as long as a hit of it lives.
    """

    def __init__(self, plan: QueryPlan, refs: Sequence[PassageRef]) -> None:
        """Take the plan of the search, and its passages."""
        self.plan, self.refs, self._process = plan, refs, os.getpid()
        self._documents: dict[int, Document] = {}  # by hit
        self._blocks: dict[int, PassageTerms] = {}  # by block of hits
        self._measured_queries: dict[str, EncoderQuery] = {}

    def document(self, index: int) -> Document:
        """Return the document of a hit."""
        if index not in self._documents:  # two threads may both read it
            ref = self.refs[index]
            self._documents[index] = self.plan.snapshot.commit.segments[ref.segment].document(ref.row)
        return self._documents[index]

    def reasons(self, index: int, score: float) -> Reasons:
        """Return why a hit has its score."""
        block, position = divmod(index, HITS_READ_TOGETHER)
        if block not in self._blocks:  # two threads may both read it
            hits = range(len(self.refs))[block * HITS_READ_TOGETHER : (block + 1) * HITS_READ_TOGETHER]
            passages = self._passages(hits)
            parts = {name: part.read_terms(passages) for name, part in self.plan.parts.items()}
            self._blocks[block] = PassageTerms(passages.texts, parts)
        return Reasons(self.plan.query, self._blocks[block], position, score, named=len(self.plan.weights) > 1)

    def measured(self, index: int, score: float) -> Reasons:
        """Return why a hit has its score, the part of each encoder measured by leaving words out."""
        passages = self._passages([index])
        terms = {}
        for name, part in self.plan.parts.items():
            if part.encoder_query is not None:
                query, weight, stored = self._measured_query(name), self.plan.shares[name], passages.stored(name)
                terms[name] = query.against(passages.texts, stored, weight=weight)(0)
                if part.directions is not None:
                    terms[name] = part.directions.after(terms[name], stored[0])
            else:
                terms[name] = part.read_terms(passages)(0)
        passage = PassageTerms.from_terms(passages.texts[0], terms)
        return Reasons(self.plan.query, passage, 0, score, named=len(self.plan.weights) > 1)

    def scores(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """Return the scores that passages of these texts would have in the index as it is, float64 [texts]."""
        snapshot = self.plan.snapshot
        lengths = [len(snapshot.words.analyser.terms(text)) for text in texts]
        passages, total = Passages(texts, snapshot.words, (), lengths), np.zeros(len(texts))
        for name, part in self.plan.parts.items():
            if part.needs_vectors:
                rows = snapshot.models[name].vectors(texts, "document")
                total += [_product(part.vector, row) for row in rows]
            else:
                read = part.read_terms(passages)
                total += [float(read(index).values.sum()) for index in range(len(texts))]
        return total

    def vectors(self, index: int) -> dict[str, Vector]:
        """Return the stored vectors of a hit, by model."""
        return self._stored_vectors([index], list(self.plan.snapshot.models))[0]

    def _passages(self, hits: Sequence[int]) -> Passages:
        """Return the passages of some hits, with what is stored of them."""
        if self._process != os.getpid():  # a lock that a thread of the parent held is never released here
            raise InputError("these hits are of the process that forked this one; open the index and search here")
        segments, words = self.plan.snapshot.commit.segments, self.plan.snapshot.words
        refs = [self.refs[index] for index in hits]
        firsts = [segments[ref.segment].first_passage(ref.row) for ref in refs]
        texts = [self.document(index).indexed(ref.passage - first) for index, ref, first in zip(hits, refs, firsts)]
        lengths = [segments[ref.segment].lengths[ref.passage] for ref in refs] if BM25 in self.plan.parts else []
        names = [name for name, part in self.plan.parts.items() if part.needs_vectors]
        return Passages(texts, words, self._stored_vectors(hits, names), lengths)

    def _stored_vectors(self, hits: Sequence[int], names: Sequence[str]) -> list[dict[str, Vector]]:
        """Return the stored vectors of some hits by model, as they were when the search was made."""
        segments, refs = self.plan.snapshot.commit.segments, [self.refs[index] for index in hits]
        rows = [{name: segments[ref.segment].vector(name, ref.passage) for name in names} for ref in refs]
        return [{name: row for name, row in by_name.items() if row is not None} for by_name in rows]

    def _measured_query(self, name: str) -> EncoderQuery:
        """Return the query as an encoder with measured reasons reads it; its words are left out once."""
        part = self.plan.parts[name]
        if part.is_reweighted:
            raise InputError(
                f"words of the query are weighted in the part {shown(name)}, so that its score is of no text whose "
                "words could be left out; search with word_weights={}"
            )
        if name not in self._measured_queries:
            query = part.encoder_query
            assert query is not None
            model = query.model.with_reasons("measured")
            self._measured_queries[name] = EncoderQuery(model, self.plan.query, "query", query.unit)
        return self._measured_queries[name]


def _product(query: Any, row: Vector | None) -> float:
    """Return the product of a query's vector with a row as it is stored; 0 for none."""
    if row is None:
        return 0.0
    if not isinstance(query, tuple):
        return float(np.asarray(query, np.float64) @ np.asarray(row, np.float64))
    _, query_indices, row_indices = np.intersect1d(query[0], row[0], return_indices=True)
    return float(np.asarray(query[1], np.float64)[query_indices] @ np.asarray(row[1], np.float64)[row_indices])
