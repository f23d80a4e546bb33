"""A query to an index: its vectors, the best passages, and the reasons of their scores.

Every passage in the segments gets its score, so that the hits are the best there are. A large dense part is read in 8
bits first: each product is then known up to a bound, and only passages that may be among the best are multiplied
exactly. Where an engine holds the vectors, each part brings its best passages instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.query import Query, Terms
from pellucid.dense.reasons import EncoderQuery
from pellucid.errors import EngineError, IndexFolderError, InputError, PellucidError
from pellucid.index.bm25 import impacts, query_weights
from pellucid.index.commits import Commit
from pellucid.index.damage import damaged
from pellucid.index.documents import PASSAGE_BITS
from pellucid.index.engine import Engine, Vector, Where
from pellucid.index.hits import Hit
from pellucid.index.models import Model
from pellucid.index.reasons import Bm25Query, Marked, Passages, Reasons, marked_spans
from pellucid.index.segments import Floats, Integers, Mask, Segment, hashed
from pellucid.index.settings import BM25
from pellucid.index.terms import Analyser
from pellucid.index.words import CONTENT, KNOWN, WordCache
from pellucid.native.library import multiply, native
from pellucid.process import cached_property
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.words import WordPairs
from pellucid.text.unicode import lowercase
from pellucid.text.words import RECOGNIZABLE_PREFIX, Coverage, Span, Word, split_words

_CANDIDATES, _MOST_CANDIDATES = 20, 12_800  # passages that each part brings; more until the result is certain
_TOGETHER = 10  # hits whose reasons are read at once
_COARSE = 50_000  # passages of an index from which 8 bits of each number are read first
_BLOCK = 1024  # scores whose largest is taken together
_ROUNDING = 1e-5  # of a product of two rows of length 1 in float32, in any order of adding

Products = dict[str, dict[int, float]]
"""Part -> number of a passage -> what the part adds to its score."""


class Snapshot(NamedTuple):
    """What a question is asked of, at one moment: a commit with its models, and the engine where there is one."""

    words: WordCache
    models: Mapping[str, Model]
    commit: Commit
    engine: Engine | None = None

    @classmethod
    def of(cls, commit: Commit, models: Mapping[str, Model]) -> Snapshot:
        """Return a commit with models whose words were not looked up yet."""
        analyser = Analyser(commit.state.settings["language"], commit.state.settings["stop_words"])
        static = {name: model.encoder for name, model in models.items() if isinstance(model.encoder, StaticEmbedder)}
        return cls(WordCache(analyser, static), models, commit)


class Place(NamedTuple):
    """A passage: numbers of its segment, of its document there and of itself there."""

    segment: int
    row: int
    passage: int


_Scored = tuple[float, int, Place, dict[str, float]]
"""Score and number of a document, its best passage, and the parts of the score."""


class Scores:
    """The parts of the score of each passage of one segment."""

    def __init__(self, segment: Segment, question: Question, *, coarse: bool, only: str | None = None) -> None:
        """Compute all parts, or `only` one; `coarse` reads dense parts in 8 bits where the segment has them."""
        self.segment, self._question = segment, question
        self._rounded: dict[str, Floats] = {}  # bounds of the errors of such parts
        self._nonzero: dict[str, Mask] = {}  # the passages that have a vector there
        self.parts: dict[str, Floats] = {}
        for name, vector in question.vectors.items():
            if only not in (None, name):
                continue
            if name == BM25:
                self.parts[name] = self._bm25()
            elif isinstance(vector, tuple):
                self.parts[name] = self._sparse(name, *vector)
            elif coarse and (rounded := segment.coarse(name)) is not None:
                self.parts[name] = self._coarse(name, rounded, vector)
            else:
                self.parts[name] = _multiplied(segment.dense(name), vector)

    def _bm25(self) -> Floats:
        every = self._question.passages_with(self.segment)
        lists = [every[term] for term in self._question.terms]
        rows = np.concatenate([rows for rows, _ in lists])
        if not len(rows):
            return np.zeros(self.segment.passages, np.float32)
        if rows.max() >= self.segment.passages:
            raise damaged(self.segment.name, "bm25 points outside the passages")
        counts = np.concatenate([counts for _, counts in lists])
        weights = np.repeat(list(self._question.terms.values()), [len(rows) for rows, _ in lists])
        values = weights * impacts(counts, self.segment.lengths[rows], self._question.average)
        return np.bincount(rows, values, self.segment.passages).astype(np.float32)

    def _sparse(self, name: str, dimensions: Integers, values: Floats) -> Floats:
        scores = np.zeros(self.segment.passages, np.float32)
        for dimension, value in zip(dimensions.tolist(), values):
            rows, own = self.segment.sparse(name, dimension)
            scores[rows] += value * own
        return scores

    def _coarse(self, name: str, rounded: tuple[Any, Floats, Floats], vector: Floats) -> Floats:
        codes, scales, errors = (np.require(part, requirements=["C", "A"]) for part in rounded)
        vector = np.ascontiguousarray(vector, np.float32)
        products: Floats = codes @ vector * scales if native() is None else multiply(codes, scales, vector)
        length = np.linalg.norm(vector.astype(np.float64))
        self._nonzero[name] = scales > 0
        self._rounded[name] = (length * (errors + _ROUNDING)).astype(np.float32)
        return products

    def totals(self, allowed: Mask | None) -> tuple[Floats, Floats | None]:
        """Return a lower and an upper bound (None: the first is exact) of each document's score; -inf for no hit."""
        total = np.zeros(self.segment.passages, np.float32)
        touched = np.zeros(self.segment.passages, np.bool_)
        for name, part in self.parts.items():
            total += part
            touched |= self._nonzero[name] if name in self._rounded else part != 0
        if allowed is not None:
            touched &= np.repeat(allowed, np.diff(self.segment.ends, prepend=0))
        if self.segment.live_passages is not None:
            touched &= self.segment.live_passages
        if np.isnan(total).any():
            raise damaged(self.segment.name, "a score is NaN")
        total[~touched] = -np.inf
        if not self._rounded and len(self.parts) < 3:  # a sum of two is rounded once, which keeps the order
            return self._of_documents(total), None
        error = np.sum([np.full(len(total), _ROUNDING, np.float32), *self._rounded.values()], axis=0)
        return self._of_documents(total - error), self._of_documents(total + error)

    def _of_documents(self, values: Floats) -> Floats:
        if len(self.segment.ends) == self.segment.passages or not len(values):
            return values
        best: Floats = np.maximum.reduceat(values, np.concatenate([[0], self.segment.ends[:-1]]))
        return best

    def exact(self, passages: Integers) -> dict[str, Floats]:
        """Return the parts of the scores of some passages, the coarse ones multiplied exactly."""
        vectors = self._question.vectors
        return {
            name: _multiplied(self.segment.dense(name)[passages], vectors[name])
            if name in self._rounded
            else part[passages]
            for name, part in self.parts.items()
        }


def _multiplied(rows: Floats, vector: Floats) -> Floats:
    """Return the products of rows with a vector: equal rows have equal ones, which BLAS gives only in equal places."""
    if len(rows) == 1:  # which einsum would cut into blocks of 8,192 numbers
        return _multiplied(np.repeat(rows, 2, axis=0), vector)[:1]
    products: Floats = np.einsum("ij,j->i", rows, vector)
    return products


class Question:
    """A query with the weights of the parts."""

    def __init__(
        self, query: str, weights: dict[str, float], now: Snapshot, factors: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Encode the query for each part that counts; `factors` are what its words count."""
        self.query, self.shares, self._now, self._factors = query, weights, now, factors
        self.weights = {part: weight for part, weight in weights.items() if weight > 0}
        self.average = now.commit.state.average
        self.vectors: dict[str, Any] = {}  # by part, times its weight: products are parts of the score; BM25's is None
        self.terms: dict[str, float] = {}  # that a passage has, each with its half of BM25
        self._lists: dict[int, dict[str, tuple[Any, Any]]] = {}  # by segment and term; asked for twice
        self.unknown: tuple[str, ...] = ()  # words that no passage has; without BM25, that no model knows
        self.ignored: tuple[str, ...] = ()  # words that BM25 leaves out
        self._terms_of: dict[str, Callable[[Passages], Callable[[int], Terms]]] = {}  # of the same parts
        self._unknown_spans: list[list[Span]] = []  # of the words of the query, of each model
        self._wanted: list[str] = []  # the parts whose stored vectors are read for that
        self._encoders: dict[str, EncoderQuery] = {}  # the query as an encoder reads it, of each that is one
        self._measured_queries: dict[str, EncoderQuery] = {}  # the same with measured reasons, when they are needed
        self._reweighted: set[str] = set()  # the encoders in whose vector of the query words count more or less
        self._found: list[tuple[int, Place, str]] = []  # the hits: number, place and text of the passage
        # The hits whose reasons were read, the first of ten: their terms by part, and the spans they mark.
        self._read: dict[int, tuple[Passages, list[dict[str, Terms]], Callable[[], list[Marked]]]] = {}
        for name in self.weights:
            if name == BM25:
                self._ask_bm25()
            else:
                self._ask(now.models[name], self.weights[name])
        if BM25 not in self.weights and self._unknown_spans:
            self.unknown = self._named(set(self._unknown_spans[0]).intersection(*self._unknown_spans))

    def _ask_bm25(self) -> None:
        words, terms = self._now.words, self._now.words.analyser.query(self.query)
        self._hashes: dict[str, int] = dict(zip(terms.spans, hashed(terms.spans).tolist()))
        segments = self._now.commit.segments
        having = {term: sum(len(self.passages_with(one)[term][0]) for one in segments) for term in terms.spans}
        counts = dict(terms.weights)
        for term, weight in terms.variants.items():
            if having[term]:
                counts[term] = counts.get(term, 0.0) + weight
        weights = query_weights(counts, having, self._now.commit.state.passages, self.weights[BM25])
        if unknown := {terms.spans[term][0] for term in terms.weights if not having[term]}:
            known = [span for term in terms.spans if having[term] for span in terms.spans[term]]
            inside = {at for span in known for at in range(*span)[1:]}
            self.unknown = self._named(span for span in unknown if inside.isdisjoint(span))  # none cuts a known one
        self.ignored = self._named({span for span, acronym in terms.ignored.items() if not having.get(acronym)})
        for word, factor in self._factors.items():
            scaled = weights.keys() & words.analyser.terms(word)
            weights |= {term: factor * weights[term] for term in scaled}
        if weights:
            self.vectors[BM25] = None
            self.terms = weights
            self._terms_of[BM25] = Bm25Query(self.query, terms.spans, weights, self.average).against

    def _named(self, spans: Iterable[Span]) -> tuple[str, ...]:
        """Return the words of the query at some spans, in order; those that overlap as one."""
        found: list[Span] = []
        for start, end in sorted(spans):
            if found and start < found[-1][1]:
                start, end = found[-1][0], max(end, found.pop()[1])
            found.append((start, end))
        return tuple(dict.fromkeys(self.query[start:end] for start, end in found))

    def passages_with(self, segment: Segment) -> dict[str, tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]]:
        """Return for each term of the query the passages of a segment that have it, and how often."""
        if id(segment) not in self._lists:
            self._lists[id(segment)] = dict(zip(self._hashes, segment.terms(np.array(list(self._hashes.values())))))
        return self._lists[id(segment)]

    def _ask(self, model: Model, weight: float) -> None:
        name, words = model.name, self._now.words
        if isinstance(model.encoder, StaticEmbedder):
            passages = Passages([self.query], words)
            found = passages.words(name)
            statuses = words.statuses(name, found)
            spans = zip(statuses, found.spans.tolist())
            self._unknown_spans.append([(start, end) for status, (start, end) in spans if not status & KNOWN])
            if not _is_known(statuses):
                return
            pairs = WordPairs(model.encoder, self.query, *words.rows(name, found), weight, self._factors)
            if pairs.vector.any():
                self.vectors[name] = pairs.vector
                self._terms_of[name] = lambda passages: pairs.against(passages.texts, *passages.rows(name))
            return
        asked = model.ask(self.query)
        if asked.unit is None or not self._is_known_to(asked):
            return
        if self._factors and isinstance(asked, EncoderQuery) and asked.model.reasons_at_hand is not None:
            given, asked = asked, asked.reweighted(self._factors)
            self._reweighted |= set() if np.allclose(given.unit, asked.unit, atol=1e-6) else {name}
        if isinstance(asked, EncoderQuery):
            self._encoders[name] = asked
        vector, factor = asked.unit, np.float32(weight)
        self.vectors[name] = (vector[0], vector[1] * factor) if isinstance(vector, tuple) else vector * factor
        if asked.needs_vectors:
            self._wanted.append(name)
        self._terms_of[name] = lambda passages: asked.against(
            passages.texts, passages.stored(name) if asked.needs_vectors else None, weight=weight
        )

    def _is_known_to(self, asked: Query) -> bool:
        """Whether a model knows a word of the query, or there are none."""
        words, function_words = split_words(self.query), self._now.words.analyser.function_words
        unknown = _unrecognized(words, *asked.coverage_and_gaps)
        self._unknown_spans.append(list(unknown))
        content = [lowercase(word.text) not in function_words for word in words]
        statuses = [KNOWN * (word[1:] not in unknown) + CONTENT * own for word, own in zip(words, content)]
        return not words or _is_known(statuses)

    def search(self, top_k: int, where: Where, min_score: float = -math.inf) -> tuple[list[Hit], bool]:
        """Return the best documents of those with `min_score` or more, and whether no other can be better."""
        self._found = []
        if not self.vectors:
            return [], True
        try:
            if self._now.engine is None:
                return self._from_segments(top_k, where, min_score), True
            return self._from_engine(self._now.engine, top_k, where, min_score)
        except PellucidError:
            raise
        except (IndexError, ValueError) as error:
            problem = f"a file of the index is damaged ({error}); find out which: pellucid index verify"
            raise IndexFolderError(problem) from error

    # The vectors are here

    def _from_segments(self, top_k: int, where: Where, min_score: float) -> list[Hit]:
        """Return the best documents of all."""
        coarse = sum(segment.passages for segment in self._now.commit.segments) >= _COARSE
        best = self._best(top_k, where, min_score, coarse=coarse)
        if best is None:
            best = self._best(top_k, where, min_score, coarse=False) or []
        hits = [self._hit(parts, place) for _, _, place, parts in best]
        return [hit for hit in hits if hit.score >= min_score]

    def _best(self, top_k: int, where: Where, min_score: float, *, coarse: bool) -> list[_Scored] | None:
        """Return the `top_k` best documents of all, best first; None where `coarse` may have missed some."""
        scores = [Scores(segment, self, coarse=coarse) for segment in self._now.commit.segments]
        bounds = [one.totals(one.segment.matching(where) if where else None) for one in scores]
        least = kth = _kth([lower for lower, _ in bounds], top_k)  # whatever may reach it is multiplied exactly
        if math.isfinite(min_score):
            least = max(kth, min_score - _ROUNDING * max(abs(min_score), 1.0))
        best: list[_Scored] = []
        for number, (one, (lower, upper)) in enumerate(zip(scores, bounds)):
            highest = lower if upper is None else upper
            best += self._exact(number, one, np.flatnonzero((highest >= least) & (highest > -np.inf)), top_k)
        if coarse and len(best) < top_k and least == kth > -np.inf:  # what seemed to be the best has products of 0
            return None
        return sorted(best, key=lambda item: (-item[0], item[1]))[:top_k]

    def _exact(self, number: int, scores: Scores, rows: Integers, top_k: int) -> list[_Scored]:
        """Return the best of some documents of a segment that share anything with the query."""
        segment = scores.segment
        passages = segment.passages_of(rows)
        if not len(passages):
            return []
        parts = scores.exact(passages)
        total = np.sum([part.astype(np.float64) for part in parts.values()], axis=0)
        total[~np.any([part != 0 for part in parts.values()], axis=0)] = -np.inf
        owners = np.repeat(np.arange(len(rows)), segment.sizes(rows)).tolist()
        found: dict[int, _Scored] = {}
        for at in np.lexsort((passages, -total)).tolist():  # the best first; of equal ones the earlier
            if total[at] == -np.inf:
                break
            if owners[at] not in found:
                row, own = int(rows[owners[at]]), {name: float(part[at]) for name, part in parts.items()}
                place = Place(number, row, int(passages[at]))
                found[owners[at]] = float(total[at]), int(segment.numbers[row]), place, own
                if len(found) == top_k:
                    break
        return list(found.values())

    # An engine has the vectors

    def _from_engine(self, engine: Engine, top_k: int, where: Where, min_score: float) -> tuple[list[Hit], bool]:
        """Return the best documents that an engine and BM25 bring, and whether no other can be better."""
        # Each part brings its best passages; what another part has brought gets its product with this one. What no part
        # has brought scores at most the last of each list together. Unless the hits are above that, one part brings
        # more: its last becomes smaller, and so does the sum.
        limit, own = max(_CANDIDATES, 2 * top_k), _Bm25Products(self, where)
        products: Products = {name: {} for name in self.vectors}
        limits, last, every = dict.fromkeys(self.vectors, limit), dict[str, float](), set[int]()
        others = {name: vector for name, vector in self.vectors.items() if name != BM25}
        asked = list(self.vectors)
        while True:
            wanted = {name: others[name] for name in asked if name != BM25}
            lists = engine.search(wanted, limit, where) if wanted else {}
            if BM25 in asked:
                lists[BM25] = own.search(limit)
            for name, found in lists.items():
                every.update(point for point, product in found.items() if product)
                products[name] |= found
                last.pop(name, None)
                if len(found) == limit:  # else these are all that have a product
                    last[name] = max(min(found.values()), 0.0)
            missing = {name: every.difference(products[name]) for name in last}
            for name, more in engine.products(others, {n: p for n, p in missing.items() if n != BM25}).items():
                products[name] |= more
            if missing.get(BM25):
                products[BM25] |= own.products(missing[BM25])
            hits = self._known(products, _best_passages(products, every), top_k)
            least = hits[-1].score if len(hits) == top_k else -math.inf
            certain = not last or max(least, min_score) >= sum(last.values())
            asked = [name for name in last if limits[name] < _MOST_CANDIDATES]
            if certain or not asked:
                is_exact = certain and not any(name in engine.approximate for name in others)
                return [hit for hit in hits if hit.score >= min_score], is_exact
            asked = [max(asked, key=lambda name: (name == BM25 or isinstance(others[name], tuple), last[name]))]
            limit = limits[asked[0]] = 4 * limits[asked[0]]

    def _known(self, products: Products, best: list[int], top_k: int) -> list[Hit]:
        """Return the first `top_k` passages that are part of a document: others are not committed, or were removed."""
        hits: list[Hit] = []
        self._found = []
        waiting = iter(best)
        while len(hits) < top_k and (block := list(islice(waiting, top_k - len(hits)))):
            rows = self._now.commit.numbered([point >> PASSAGE_BITS for point in block])
            for point in block:
                if point >> PASSAGE_BITS in rows:
                    segment, row = rows[point >> PASSAGE_BITS]
                    first = self._now.commit.segments[segment].first_passage(row)
                    place = Place(segment, row, first + (point & ((1 << PASSAGE_BITS) - 1)))
                    hits.append(self._hit({name: own.get(point, 0.0) for name, own in products.items()}, place))
        return hits

    def score(self, segment: int, row: int) -> Hit:
        """Return one document as a hit."""
        self._found = []
        here = self._now.commit.segments[segment]
        passages = here.passages_of(np.array([row]))
        if self._now.engine is None:
            parts = Scores(here, self, coarse=False).exact(passages)
        else:
            points = here.document(row).points()
            others = {name: vector for name, vector in self.vectors.items() if name != BM25}
            found = self._now.engine.products(others, {name: list(points) for name in others})
            parts = {name: np.array([found.get(name, {}).get(p, 0.0) for p in points], np.float32) for name in others}
            if BM25 in self.vectors:
                parts[BM25] = Scores(here, self, coarse=False, only=BM25).parts[BM25][passages]
        if not parts:
            return self._hit({}, Place(segment, row, int(passages[0])))
        total = np.sum([part.astype(np.float64) for part in parts.values()], axis=0)
        shared = np.any([part != 0 for part in parts.values()], axis=0)
        best = int(np.argmax(np.where(shared, total, -np.inf)))  # the passage that a search would find, if any
        own = {name: float(part[best]) for name, part in parts.items()}
        return self._hit(own, Place(segment, row, int(passages[best])))

    # Hits and their reasons

    def _hit(self, products: Mapping[str, float], place: Place) -> Hit:
        segment = self._now.commit.segments[place.segment]
        document = segment.document(place.row)
        passage = place.passage - segment.first_passage(place.row)
        parts = {name: products.get(name, 0.0) for name in self.weights}
        score, start = sum(parts.values()), document.ends[passage - 1] if passage else 0
        why, measure = (partial(reasons, len(self._found), score) for reasons in (self._reasons, self._measured))
        self._found.append(((document.number << PASSAGE_BITS) + passage, place, document.indexed(passage)))
        text, known = document.passage(passage), document.metadata
        return Hit(document.id, score, document.title, text, known, parts, passage, start, why, measure, self.scores)

    def _stored(self, hits: Iterable[tuple[int, Place, str]]) -> list[dict[str, Vector]]:
        """Return the stored vectors of some hits by part, as they were when the search was made."""
        names = self._wanted
        if self._now.engine is None or not names:
            segments = self._now.commit.segments
            every = [{n: segments[place.segment].vector(n, place.passage) for n in names} for _, place, _ in hits]
            return [{name: vector for name, vector in own.items() if vector is not None} for own in every]
        try:
            found = self._now.engine.vectors([point for point, _, _ in hits], names)
        except (EngineError, InputError) as error:
            raise InputError(f"the vectors of this search cannot be read any more: {error}. Search again") from error
        if any(point not in found for point, _, _ in hits):
            raise InputError("a document was changed or removed since the search; search again")
        return [found[point] for point, _, _ in hits]

    def _reasons(self, number: int, score: float) -> Reasons:
        """Return why a hit has its score; the reasons of neighbouring hits are read together."""
        block, place = divmod(number, _TOGETHER)
        if block not in self._read:  # two threads may both read it
            hits = self._found[block * _TOGETHER : (block + 1) * _TOGETHER]
            passages = self._passages(hits)
            parts = {name: terms_of(passages) for name, terms_of in self._terms_of.items()}
            every = [{name: terms(number) for name, terms in parts.items()} for number in range(len(hits))]
            self._read[block] = passages, every, cache(partial(marked_spans, every))
        passages, every, marked = self._read[block]
        return Reasons(
            self.query, passages.texts[place], score, every[place], named=len(self.weights) > 1,
            marked=lambda: marked()[place],
        )  # fmt: skip

    def _passages(self, hits: Sequence[tuple[int, Place, str]]) -> Passages:
        """Return the passages of some hits, with what is stored of them."""
        texts, places = [text for _, _, text in hits], [place for _, place, _ in hits]
        lengths = [self._now.commit.segments[p.segment].lengths[p.passage] for p in places if BM25 in self.vectors]
        return Passages(texts, self._now.words, self._stored(hits), lengths)

    def scores(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """Return the scores that passages of these texts would have in the index as it is, float64 [texts]."""
        lengths = [len(self._now.words.analyser.terms(text)) for text in texts]
        passages, total = Passages(texts, self._now.words, (), lengths), np.zeros(len(texts))
        for name, terms_of in self._terms_of.items():
            if name in self._wanted:
                rows = self._now.models[name].vectors(texts, "document")
                total += [_product(self.vectors[name], row) for row in rows]
            else:
                terms = terms_of(passages)
                total += [float(terms(number).values.sum()) for number in range(len(texts))]
        return total

    def _measured(self, number: int, score: float) -> Reasons:
        """Return why a hit has its score, the part of each encoder measured by leaving words out."""
        passages = self._passages([self._found[number]])
        terms = {}
        for name, terms_of in self._terms_of.items():
            if name in self._encoders:
                query = self._measured_query(name)
                terms[name] = query.against(passages.texts, passages.stored(name), weight=self.weights[name])(0)
            else:
                terms[name] = terms_of(passages)(0)
        return Reasons(self.query, passages.texts[0], score, terms, named=len(self.weights) > 1)

    def _measured_query(self, name: str) -> EncoderQuery:
        """Return the query as an encoder with measured reasons reads it; its words are left out once."""
        if name in self._reweighted:
            raise InputError(
                f"words of the query are weighted in the part {name!r:.60}, so that its score is of no text whose "
                "words could be left out; search with word_weights={}"
            )
        if name not in self._measured_queries:
            query = self._encoders[name]
            model = query.model.with_reasons("measured")
            self._measured_queries[name] = EncoderQuery(model, self.query, "query", query.unit)
        return self._measured_queries[name]


def _product(query: Any, row: Vector | None) -> float:
    """Return the product of a query's vector with a row as it is stored; 0 for none."""
    if row is None:
        return 0.0
    if not isinstance(query, tuple):
        return float(np.asarray(query, np.float64) @ np.asarray(row, np.float64))
    _, mine, other = np.intersect1d(query[0], row[0], return_indices=True)
    return float(np.asarray(query[1], np.float64)[mine] @ np.asarray(row[1], np.float64)[other])


def _is_known(statuses: Sequence[int]) -> bool:
    """Whether a word of a query is known; function words count where there are no others."""
    content = [status for status in statuses if status & CONTENT]
    return any(status & KNOWN for status in content or statuses)


def _unrecognized(words: Sequence[Word], coverage: Coverage, unknown: Iterable[Span]) -> set[Span]:
    """Return which words of a query a model does not know, or reads as something that is little of them."""
    guesses = {
        lowercase(word) for word, other in coverage.read_as if not RECOGNIZABLE_PREFIX.allows(len(other), len(word))
    }
    return set(unknown) | {word[1:] for word in words if guesses and lowercase(word.text) in guesses}


class _Bm25Products:
    """BM25 of all passages, by their numbers in an engine."""

    def __init__(self, question: Question, where: Where) -> None:
        self._question, self._where = question, where

    @cached_property
    def _every(self) -> tuple[Integers, Floats, Mask]:
        """The numbers of all passages, rising, their products, and whether a condition holds."""
        points, values, allowed = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)], [np.zeros(0, np.bool_)]
        for segment in self._question._now.commit.segments:
            sizes = np.diff(segment.ends, prepend=0)
            starts = np.repeat((segment.numbers << PASSAGE_BITS) - segment.ends + sizes, sizes)
            points.append(starts + np.arange(segment.passages))
            values.append(Scores(segment, self._question, coarse=False, only=BM25).parts[BM25])
            meets = segment.matching(self._where) if self._where else np.ones(len(sizes), np.bool_)
            allowed.append(np.repeat(meets, sizes))
        return np.concatenate(points), np.concatenate(values), np.concatenate(allowed)

    def search(self, limit: int) -> dict[int, float]:
        points, values, allowed = self._every
        held = np.flatnonzero((values > 0) & allowed)
        if len(held) > limit:
            held = held[np.argpartition(-values[held], limit - 1)[:limit]]
        held = held[np.argsort(-values[held], kind="stable")]
        return dict(zip(points[held].tolist(), values[held].tolist()))

    def products(self, wanted: Iterable[int]) -> dict[int, float]:
        points, values, _ = self._every
        asked = np.array(list(wanted), np.int64)
        at = np.searchsorted(points, asked).clip(max=max(len(points) - 1, 0))
        here = points[at] == asked if len(points) else np.zeros(len(asked), np.bool_)
        return dict(zip(asked[here].tolist(), values[at[here]].tolist()))


def _kth(every: list[Floats], count: int) -> float:
    """Return a lower bound of the `count`-th largest of all values; -inf where there are not so many."""
    # At least `count` values reach the `count`-th largest of the maxima of blocks, where there are enough of these.
    values = [np.maximum.reduceat(one, np.arange(0, len(one), _BLOCK)) for one in every if len(one)]
    if sum(map(len, values)) < 4 * count:
        values = every
    all_values = np.concatenate([np.zeros(0, np.float32), *values])
    all_values = all_values[all_values > -np.inf]  # else equal values make the next step slow
    if len(all_values) < count:
        return -np.inf
    return float(np.partition(all_values, len(all_values) - count)[len(all_values) - count])


def _best_passages(products: Products, points: Iterable[int]) -> list[int]:
    """Return the best of some passages of each document, best first; of equal ones the earlier."""
    scores = dict.fromkeys(points, 0.0)
    for found in products.values():
        for point, product in found.items():
            if point in scores:
                scores[point] += product
    best: dict[int, int] = {}
    for point in sorted(scores, key=lambda point: (-scores[point], point)):
        best.setdefault(point >> PASSAGE_BITS, point)
    return list(best.values())
