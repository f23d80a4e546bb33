"""The plan of a query: what each part of the score makes of it, at one moment of an index; it does not change.

A plan holds the query's vector for each part that counts and knows a word of it, BM25's terms with the passages that
have them, and what later gives the reasons of a hit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.dense.reasons import EncoderQuery
from pellucid.errors import InputError
from pellucid.explain.rows import DIMENSION, Row
from pellucid.index.arrays import Vector
from pellucid.index.bm25 import query_weights
from pellucid.index.commits import Commit
from pellucid.index.models import Model
from pellucid.index.reasons import Bm25Query, Directions, Passages, TermsOfPassage
from pellucid.index.segments import PostingsSpan
from pellucid.index.settings import BM25, Calibration, stored_calibration
from pellucid.index.terms import Analyser, QueryTerms
from pellucid.index.words import CONTENT, IN_VOCABULARY, WordCache
from pellucid.process import cached_property
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.words import WordPairs
from pellucid.text.unicode import lowercase
from pellucid.text.words import Span, is_recognizable_prefix, spans_by, split_words

_SUGGESTED_WORD_CHARS = range(4, 41)  # of a word for which another is suggested: a shorter one has many neighbours
_MAX_SUGGESTED_TERMS, _MAX_READ_PASSAGES = 3, 20  # that are looked for in documents as a word, the most frequent first

TermReader = Callable[[Passages], TermsOfPassage]
"""What takes passages, and returns the terms of each by its index among them."""


class Snapshot(NamedTuple):
    """What a query is asked of, at one moment: a commit with its models."""

    words: WordCache
    models: Mapping[str, Model]
    commit: Commit

    @classmethod
    def from_commit(cls, commit: Commit, models: Mapping[str, Model]) -> Snapshot:
        """Return a commit with models whose words were not looked up yet."""
        analyser = Analyser(commit.state.settings["language"], commit.state.settings["stop_words"])
        static = {name: model.encoder for name, model in models.items() if isinstance(model.encoder, StaticEmbedder)}
        return cls(WordCache(analyser, static), models, commit)


class PlannedPart(NamedTuple):
    """A part of the score that knows a word of the query.

    Attributes:
        vector: of the query, times the part's weight, so that a product is what the part adds to a score; None for
            BM25.
        read_terms: gives the terms of passages.
        needs_vectors: whether that takes the stored vectors of the passages.
        encoder_query: the query as an encoder reads it, where the part is one.
        is_reweighted: whether words of the query count more or less in its vector.
        directions: that its vector was moved in, None for none.
    """

    vector: Any
    read_terms: TermReader
    needs_vectors: bool = False
    encoder_query: EncoderQuery | None = None
    is_reweighted: bool = False
    directions: Directions | None = None


class Suggestion(NamedTuple):
    """What a word of a query that no document has may be meant as.

    Attributes:
        word: of the query.
        instead: a word of the documents, one letter away: left out, put in, replaced, or two of them swapped.
        documents: how many have it, in any of its forms that BM25 counts as one.
    """

    word: str
    instead: str
    documents: int


@dataclass(frozen=True)
class QueryPlan:
    """A query as the parts of an index read it.

    Attributes:
        query: the text.
        shares: the weights of all parts, which add up to 1.
        snapshot: what it is asked of.
        parts: those with a weight that know a word of the query.
        terms: of BM25 that a passage has, each with the query's half of BM25.
        postings_spans: for each segment, by term, where the passages are that have it.
        unknown: words that no passage has; without BM25, that no model knows.
        ignored: words that BM25 leaves out.
        calibration: what a score of this query tells; None where the index is not calibrated for its weights.
    """

    query: str
    shares: Mapping[str, float]
    snapshot: Snapshot
    parts: Mapping[str, PlannedPart]
    terms: Mapping[str, float]
    postings_spans: Sequence[Mapping[str, PostingsSpan]]
    unknown: tuple[str, ...]
    ignored: tuple[str, ...]
    calibration: Calibration | None = None

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weights of the parts that count."""
        return {name: weight for name, weight in self.shares.items() if weight > 0}

    @cached_property
    def arrays(self) -> tuple[tuple[str, ...], npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """The names of the dense parts, their vectors one after the other, and the weights of `terms`."""
        dense = {name: part.vector for name, part in self.parts.items() if isinstance(part.vector, np.ndarray)}
        vectors = np.concatenate([np.zeros(0, np.float32), *dense.values()])
        return tuple(dense), vectors, np.array(list(self.terms.values()))

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """What the `unknown` words may be meant as; none for a word that has no neighbour, or without BM25."""
        words = self.unknown if self.snapshot.commit.state.settings["bm25"] else ()
        return tuple(filter(None, (_suggestion(word, self.snapshot) for word in words)))

    @cached_property
    def partly_known(self) -> dict[str, list[str]]:
        """Of each model that counts, the words of the query that it reads as less: '"chatgpt" read as "chat"'."""
        encoders = {name: self.snapshot.models[name].encoder for name in self.parts if name != BM25}
        words = {name: e.coverage_and_gaps([self.query], "query")[0][0].interpretations for name, e in encoders.items()}
        return {name: read_as for name, read_as in words.items() if read_as}


def plan_query(
    query: str,
    shares: Mapping[str, float],
    snapshot: Snapshot,
    word_weights: Mapping[str, float] = MappingProxyType({}),
    *,
    steer: Mapping[str, float] = MappingProxyType({}),
    rows: Mapping[str, Vector | None] = MappingProxyType({}),
) -> QueryPlan:
    """Encode a query for each part that counts.

    Args:
        query: the text.
        shares: the weights of all parts, which add up to 1.
        snapshot: what it is asked of.
        word_weights: what its words count, by word.
        steer: texts that the vectors of dense models are moved to, or with a weight below 0 away from.
        rows: by model the row of the query, where it is encoded already.
    """
    parts: dict[str, PlannedPart] = {}
    terms: dict[str, float] = {}
    postings_spans: list[dict[str, PostingsSpan]] = []
    unknown_spans: list[set[Span]] = []  # of each model
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    for name, weight in shares.items():
        if weight <= 0:
            continue
        if name == BM25:
            query_terms = snapshot.words.analyser.query(query)
            postings_spans = [segment.postings_spans(query_terms.spans) for segment in snapshot.commit.segments]
            passages_with = {
                term: sum([spans[term].n_passages for spans in postings_spans]) for term in query_terms.spans
            }
            terms = _bm25_weights(query_terms, passages_with, weight, snapshot, word_weights)
            unknown = _words_at(query, _spans_without_passages(query_terms, passages_with))
            absent_acronyms = {span for span, acronym in query_terms.ignored.items() if not passages_with.get(acronym)}
            ignored = _words_at(query, absent_acronyms)
            if terms:
                reader = Bm25Query(query, query_terms.spans, terms, snapshot.commit.state.average).against
                parts[name] = PlannedPart(None, reader)
            continue
        model = snapshot.models[name]
        spans: set[Span] | None
        if isinstance(model.encoder, StaticEmbedder):
            part, spans = _plan_static(query, model.name, model.encoder, weight, snapshot.words, word_weights)
        else:
            part, spans = _plan_model(query, model, weight, snapshot.words.analyser, word_weights, rows.get(name))
        if spans is not None:
            unknown_spans.append(spans)
        if part is not None:
            parts[name] = part
    if steer:
        parts = _steered(parts, steer, shares, snapshot)
    if not shares.get(BM25) and unknown_spans:
        unknown = _words_at(query, set.intersection(*unknown_spans))
    calibration = stored_calibration(snapshot.commit.state.settings)
    if calibration and (steer or (calibration.weights, calibration.word_weights) != (shares, word_weights)):
        calibration = None
    return QueryPlan(query, shares, snapshot, parts, terms, postings_spans, unknown, ignored, calibration)


def _steered(
    parts: Mapping[str, PlannedPart], steer: Mapping[str, float], shares: Mapping[str, float], snapshot: Snapshot
) -> dict[str, PlannedPart]:
    """Return the parts with the vectors of dense models moved in the directions of texts, each a term of every hit."""
    steered, in_vocabulary = dict(parts), set[str]()
    for name, weight in shares.items():
        if weight <= 0 or name == BM25 or snapshot.models[name].sparse:
            continue
        units = dict(zip(steer, snapshot.models[name].vectors(list(steer), "query")))
        moves = {text: weight * steer[text] * unit for text, unit in units.items() if unit is not None}
        in_vocabulary |= moves.keys()
        if not moves or name not in parts:  # a model that knows no word of the query finds nothing
            continue
        names = {text: f"{'more' if steer[text] > 0 else 'less'} of {text!r:.60}" for text in moves}
        rows = tuple(Row(name, (name,), 0.0, 0.0, key=("steer", text), kind=DIMENSION) for text, name in names.items())
        directions = Directions(np.array(list(moves.values()), np.float64), rows)
        steered[name] = parts[name]._replace(
            vector=(parts[name].vector + directions.vectors.sum(axis=0)).astype(np.float32),
            needs_vectors=True,
            directions=directions,
        )
    if oov := [text for text in steer if text not in in_vocabulary]:
        raise InputError(
            f"steer has {', '.join(map(repr, oov)):.120}, and no dense model of this search knows a word of it. "
            "Use other words, or give a dense part a weight above 0"
        )
    return steered


def _bm25_weights(
    query_terms: QueryTerms,
    passages_with: Mapping[str, int],
    weight: float,
    snapshot: Snapshot,
    word_weights: Mapping[str, float],
) -> dict[str, float]:
    """Return the query's half of BM25 for its terms that a passage has, as its words count."""
    counts = dict(query_terms.weights)
    for term, variant_weight in query_terms.variants.items():
        if passages_with[term]:
            counts[term] = counts.get(term, 0.0) + variant_weight
    weights = query_weights(counts, passages_with, snapshot.commit.state.passages, weight)
    for word, word_weight in word_weights.items():
        terms_of_word = weights.keys() & snapshot.words.analyser.terms(word)
        weights |= {term: word_weight * weights[term] for term in terms_of_word}
    return weights


def _spans_without_passages(query_terms: QueryTerms, passages_with: Mapping[str, int]) -> list[Span]:
    """Return where words of the query stand that no passage has; none of them cuts a word that one has."""
    absent = {query_terms.spans[term][0] for term in query_terms.weights if not passages_with[term]}
    if not absent:
        return []
    present = [span for term, spans in query_terms.spans.items() if passages_with[term] for span in spans]
    inside = {position for span in present for position in range(*span)[1:]}
    return [span for span in absent if inside.isdisjoint(span)]


def _suggestion(word: str, snapshot: Snapshot) -> Suggestion | None:
    """Return the most frequent word of the documents that is one letter away, None for none.

    An index has hashes of its terms, so all such words are looked up: some 500, in a few milliseconds for any index.
    """
    form, segments = lowercase(word), snapshot.commit.segments
    if not form.isalpha() or len(form) not in _SUGGESTED_WORD_CHARS:
        return None
    blocks = {ord(letter) >> 8 for letter in form}  # of Unicode, which have the alphabet of a script
    alphabet = [chr(n) for block in blocks for n in range(block << 8, (block + 1) << 8) if chr(n).islower()]
    neighbours = set[str]()
    for start, rest in ((form[:n], form[n:]) for n in range(len(form) + 1)):
        neighbours |= {start + rest[1:], start + rest[1:2] + rest[:1] + rest[2:]}
        neighbours.update(start + letter + tail for letter in alphabet for tail in (rest, rest[1:]))
    words_by_term = dict[str, set[str]]()
    for neighbour in neighbours - {form}:
        if term := snapshot.words.analyser.term_alone(neighbour):
            words_by_term.setdefault(term, set()).add(neighbour)
    spans = [segment.postings_spans(words_by_term) for segment in segments]
    n_passages = {term: sum(of_segment[term].n_passages for of_segment in spans) for term in words_by_term}
    begins_alike = {term for term, words in words_by_term.items() if any(word[0] == form[0] for word in words)}
    present = filter(n_passages.get, words_by_term)
    likely = sorted(present, key=lambda term: (term not in begins_alike, -n_passages[term]))
    for term in likely[:_MAX_SUGGESTED_TERMS]:  # a neighbour may share the stem of a word and be none
        rows = [
            segment.rows_of_passages(segment.postings(of_segment[term])[0].astype(np.int64))
            for segment, of_segment in zip(segments, spans)
        ]
        locations = [(segment, row) for segment, found in zip(segments, rows) for row in np.unique(found).tolist()]
        for segment, row in locations[:_MAX_READ_PASSAGES]:
            document = segment.document(row)
            written = {lowercase(word.text) for word in split_words(f"{document.title}\n{document.text}")}
            if instead := min(words_by_term[term] & written, default=""):
                return Suggestion(word, instead, len(locations))
    return None


def _words_at(query: str, spans: Iterable[Span]) -> tuple[str, ...]:
    """Return the words of the query at some spans, in order; those that overlap as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            start, end = merged[-1][0], max(end, merged.pop()[1])
        merged.append((start, end))
    return tuple(dict.fromkeys(query[start:end] for start, end in merged))


def _plan_static(
    query: str, name: str, model: StaticEmbedder, weight: float, words: WordCache, word_weights: Mapping[str, float]
) -> tuple[PlannedPart | None, set[Span]]:
    """Return what a static model makes of a query, None for nothing, and the spans of the words it does not know."""
    query_words, spelled = words.query_words(name, query)
    statuses = [status for _, status, _ in query_words]
    unknown = {span for _, status, span in query_words if not status & IN_VOCABULARY}
    if not _has_known_word(statuses):
        return None, unknown
    spans_by_row = spans_by((row, span) for row, _, span in query_words if row >= 0)
    pairs = WordPairs(model, query, spans_by_row, spelled, weight, word_weights)
    vector = pairs.vector
    if not vector.any():
        return None, unknown
    return PlannedPart(vector, lambda passages: pairs.against(passages.texts, *passages.rows(name))), unknown


def _plan_model(
    query: str, model: Model, weight: float, analyser: Analyser, word_weights: Mapping[str, float], row: Vector | None
) -> tuple[PlannedPart | None, set[Span] | None]:
    """Return what another model makes of a query, and the spans of the words it does not know; None for nothing."""
    model_query = model.analyze_query(query, row)
    if model_query is None:
        return None, None
    words, (coverage, gaps) = split_words(query), model_query.coverage_and_gaps
    guesses = {  # what the model reads as something that is little of it
        lowercase(word) for word, read_as in coverage.read_as if not is_recognizable_prefix(read_as, word)
    }
    unknown = set(gaps) | {word[1:] for word in words if guesses and lowercase(word.text) in guesses}
    statuses = [
        IN_VOCABULARY * (word[1:] not in unknown) + CONTENT * (lowercase(word.text) not in analyser.function_words)
        for word in words
    ]
    if words and not _has_known_word(statuses):
        return None, unknown
    is_reweighted = False
    if word_weights and isinstance(model_query, EncoderQuery) and model_query.model.reasons_at_hand is not None:
        unweighted_row = model_query.unit
        model_query = model_query.reweighted(word_weights)
        is_reweighted = not np.allclose(unweighted_row, model_query.unit, atol=1e-6)
    query_terms, vector, factor = model_query, model_query.unit, np.float32(weight)

    def read_terms(passages: Passages) -> TermsOfPassage:
        stored = passages.stored(model.name) if query_terms.needs_vectors else None
        return query_terms.against(passages.texts, stored, weight=weight)

    part = PlannedPart(
        (vector[0], vector[1] * factor) if isinstance(vector, tuple) else vector * factor,
        read_terms,
        needs_vectors=model_query.needs_vectors,
        encoder_query=model_query if isinstance(model_query, EncoderQuery) else None,
        is_reweighted=is_reweighted,
    )
    return part, unknown


def _has_known_word(statuses: Sequence[int]) -> bool:
    """Whether a word of a query is known; function words count where there are no others."""
    content = [status for status in statuses if status & CONTENT]
    return any(status & IN_VOCABULARY for status in content or statuses)
