"""The plan of a query: what each part of the score makes of it, at one moment of an index; it does not change.

A plan holds the query's vector for each part that counts and knows a word of it, BM25's terms with the passages that
have them, and what later gives the reasons of a hit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.explain.rows import BOOST
from pellucid.index.commits import Commit
from pellucid.index.parts import Bm25, Boost, BoostsQuery, ModelPart, Part, PartQuery, Question, StaticPart
from pellucid.index.settings import BM25, Calibration, stored_calibration
from pellucid.index.terms import Analyser
from pellucid.index.words import WordCache
from pellucid.process import cached_property
from pellucid.text.unicode import lowercase
from pellucid.text.words import Span, split_words

SUGGESTED_WORD_CHARS = range(4, 41)
"""Of a word for which another is suggested: a shorter one has many neighbours."""
_MAX_SUGGESTED_TERMS, _MAX_READ_PASSAGES = 3, 20  # that are looked for in documents as a word, the most frequent first


class Snapshot(NamedTuple):
    """What a query is asked of, at one moment: a commit with its models."""

    words: WordCache
    models: Mapping[str, ModelPart]
    commit: Commit

    @classmethod
    def from_commit(cls, commit: Commit, models: Mapping[str, ModelPart]) -> Snapshot:
        """Return a commit with models whose words were not looked up yet."""
        analyser = Analyser(commit.state.settings["language"], commit.state.settings["stop_words"])
        static = {name: model.encoder for name, model in models.items() if isinstance(model, StaticPart)}
        return cls(WordCache(analyser, static), models, commit)

    @property
    def parts(self) -> dict[str, Part]:
        """The parts of the score by name."""
        bm25 = {BM25: Bm25(self.words.analyser)} if self.commit.state.settings["bm25"] else {}
        return {**bm25, **self.models}


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
        parts: the query as those read it that have a weight and know a word of it.
        unknown: words that no passage has; without BM25, that no model knows.
        ignored: words that BM25 leaves out.
        calibration: what a score of this query tells; None where the index is not calibrated for its weights.
    """

    query: str
    shares: Mapping[str, float]
    snapshot: Snapshot
    parts: Mapping[str, Any]  # of PartQuery
    unknown: tuple[str, ...]
    ignored: tuple[str, ...]
    calibration: Calibration | None = None

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weights of the parts that count; boosts have their own."""
        shares = {name: weight for name, weight in self.shares.items() if weight > 0}
        return {**shares, BOOST: 1.0} if BOOST in self.parts else shares

    @cached_property
    def dense(self) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
        """The names of the dense parts, and their vectors one after the other."""
        vectors = {name: part_query.vector for name, part_query in self.parts.items() if part_query.is_dense}
        return tuple(vectors), np.concatenate([np.zeros(0, np.float32), *vectors.values()])

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """What the `unknown` words may be meant as; none for a word that has no neighbour, or without BM25."""
        words = self.unknown if self.snapshot.commit.state.settings["bm25"] else ()
        return tuple(filter(None, (_suggestion(word, self.snapshot) for word in words)))

    @cached_property
    def partly_known(self) -> dict[str, list[str]]:
        """Of each model that counts, the words of the query that it reads as less: '"chatgpt" read as "chat"'."""
        encoders = {name: model.encoder for name, model in self.snapshot.models.items() if name in self.parts}
        words = {name: e.coverage_and_gaps([self.query], "query")[0][0].interpretations for name, e in encoders.items()}
        return {name: read_as for name, read_as in words.items() if read_as}


def plan_query(
    query: str,
    shares: Mapping[str, float],
    snapshot: Snapshot,
    word_weights: Mapping[str, float] = MappingProxyType({}),
    *,
    steer: Mapping[str, float] = MappingProxyType({}),
    synonyms: Mapping[str, Sequence[str]] = MappingProxyType({}),
    boosts: Sequence[Boost] = (),
    rows: Mapping[str, Any] = MappingProxyType({}),
) -> QueryPlan:
    """Encode a query for each part that counts.

    Args:
        query: the text.
        shares: the weights of all parts, which add up to 1.
        snapshot: what it is asked of.
        word_weights: what its words count, by word.
        steer: texts that the vectors of dense models are moved to, or with a weight below 0 away from.
        synonyms: what its words also stand for in BM25.
        boosts: what metadata add to the scores of documents that share anything with it.
        rows: by model the row of the query, where it is encoded already.
    """
    question = Question(query, snapshot.words, snapshot.commit, word_weights, steer, synonyms, rows)
    parts = snapshot.parts
    parsed_queries = {name: parts[name].ask(question, weight) for name, weight in shares.items() if weight > 0}
    known_texts = {
        row.key[1] for parsed in parsed_queries.values() if parsed.directions for row in parsed.directions.rows
    }
    if oov := [text for text in steer if text not in known_texts]:
        raise InputError(
            f"steer has {', '.join(map(repr, oov)):.120}, and no dense model of this search knows a word of it. "
            "Use other words, or give a dense part a weight above 0"
        )
    decisive = [parsed_queries[BM25]] if BM25 in parsed_queries else parsed_queries.values()
    unknown_spans = [parsed.unknown for parsed in decisive if parsed.unknown is not None]
    ignored = [span for parsed in parsed_queries.values() for span in parsed.ignored or ()]
    calibration = stored_calibration(snapshot.commit.state.settings)
    is_other = steer or boosts or synonyms != snapshot.commit.state.settings.get("synonyms", {})
    if calibration and (is_other or (calibration.weights, calibration.word_weights) != (shares, word_weights)):
        calibration = None
    part_queries: dict[str, PartQuery] = {name: parsed.query for name, parsed in parsed_queries.items() if parsed.query}
    if boosts and BOOST in shares:
        raise InputError(f"a model of the index is called {BOOST!r}; rebuild it under another name to use boosts")
    return QueryPlan(
        query, shares, snapshot, part_queries | ({BOOST: BoostsQuery(boosts)} if part_queries and boosts else {}),
        _words_at(query, set.intersection(*unknown_spans) if unknown_spans else ()), _words_at(query, ignored),
        calibration,
    )  # fmt: skip


def one_letter_away(form: str, alphabet: Iterable[str]) -> set[str]:
    """Return a word with a letter left out, put in, replaced, or two of them swapped."""
    neighbours, letters = set[str](), list(alphabet)
    for start, tail_letters in ((form[:n], form[n:]) for n in range(len(form) + 1)):
        neighbours |= {start + tail_letters[1:], start + tail_letters[1:2] + tail_letters[:1] + tail_letters[2:]}
        neighbours.update(start + letter + tail for letter in letters for tail in (tail_letters, tail_letters[1:]))
    return neighbours - {form}


def _suggestion(word: str, snapshot: Snapshot) -> Suggestion | None:
    """Return the most frequent word of the documents that is one letter away, None for none.

    An index has hashes of its terms, so all such words are looked up: some 500, in a few milliseconds for any index.
    """
    form, segments = lowercase(word), snapshot.commit.segments
    if not form.isalpha() or len(form) not in SUGGESTED_WORD_CHARS:
        return None
    blocks = {ord(letter) >> 8 for letter in form}  # of Unicode, which have the alphabet of a script
    alphabet = [chr(n) for block in blocks for n in range(block << 8, (block + 1) << 8) if chr(n).islower()]
    words_by_term = dict[str, set[str]]()
    for neighbour in one_letter_away(form, alphabet):
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
        locations = [
            (segment, row) for segment, of_segment in zip(segments, rows) for row in np.unique(of_segment).tolist()
        ]
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
