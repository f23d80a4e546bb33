"""The parts of a score: ways to search, each one class of `Part` with what it makes of a query, an `Asked`.

A part makes rows of passages, which segments store, and reads a query. What that gives scores passages and takes the
scores apart. The C function of a search computes BM25 and the products of dense rows; another part hands it the scores
of all passages of a segment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.core.arrays import flattened, largest_products
from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import PROBES, fingerprint
from pellucid.core.query import Marks, Terms
from pellucid.errors import InputError, check_number, shown
from pellucid.explain.rows import BOOST, DIMENSION, SYNONYM, WORD, Row
from pellucid.index.arrays import DocumentRows, Floats, stored_numbers
from pellucid.index.bm25 import K1, B, impacts, query_weights
from pellucid.index.commits import Commit
from pellucid.index.counting import TermCounter
from pellucid.index.metadata import DAY_S, Fields, Where, condition_text, parse_where
from pellucid.index.query import Boosts
from pellucid.index.reasons import Directions, Passages, TermsOfPassage
from pellucid.index.segments import Segment
from pellucid.index.settings import BM25, STATIC_WEIGHT, TRANSFORMER_WEIGHT
from pellucid.index.terms import SYNONYM_WEIGHT, Analyser, QueryTerms
from pellucid.index.words import CONTENT, IN_VOCABULARY, WordCache
from pellucid.loading import load
from pellucid.native.scan import Bm25Terms
from pellucid.persistence.folder import bundled_models, resolve_name
from pellucid.process import cached_property
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.words import WordPairQuery, as_spans
from pellucid.text.unicode import lowercase, normalize
from pellucid.text.words import Span, is_recognizable_prefix, spans_by, split_words

RowMaker = Callable[[list[str]], DocumentRows]
"""From passages to a row of each, zeros for one of which a part knows no word."""


class Question(NamedTuple):
    """What a search asks of all parts, at one moment of an index.

    Attributes:
        text: the query.
        words: finds the words of texts.
        commit: what is searched.
        word_weights: what words of the query count.
        steer: texts that vectors are moved to, or with a weight below 0 away from.
        synonyms: what words of the query also stand for in BM25.
        rows: by part the row of the query, where it is encoded already.
    """

    text: str
    words: WordCache
    commit: Commit
    word_weights: Mapping[str, float]
    steer: Mapping[str, float]
    synonyms: Mapping[str, Sequence[str]]
    rows: Mapping[str, Any]


class PartQuery(ABC):
    """A query as a part reads it that knows a word of it, times the weight of the part.

    For a search, a dense one has `row_scores`, which gives the scores of passages by their stored rows; another, but
    for BM25's, has `segment_scores`: what it adds to the score of each passage of a segment, float32 [passages].

    Attributes:
        vector: whose products with stored rows are the scores; float32 [dimension] where `is_dense`.
        is_dense: whether the C function computes them.
    """

    vector: Any = None
    is_dense: ClassVar[bool] = False

    @abstractmethod
    def terms(self, passages: Passages, *, is_measured: bool = False) -> TermsOfPassage:
        """Return what gives the terms of passages; `is_measured` lets encoders leave words out."""

    @abstractmethod
    def text_scores(self, texts: list[str]) -> Floats:
        """Return what the part adds to the scores of texts that are not in the index."""


class ParsedQuery(NamedTuple):
    """What a part says of a query.

    Attributes:
        query: the query as it reads it; None where it knows no word of it.
        unknown: where words stand that it does not know; None where it does not say.
        ignored: where words stand that it leaves out.
        directions: that the vector of a query is moved in.
    """

    query: PartQuery | None
    unknown: set[Span] | None
    ignored: set[Span] | None = None
    directions: Directions | None = None


class Part(ABC):
    """A way to search: a part of the score, called `name`."""

    name: str
    weight: ClassVar[float] = TRANSFORMER_WEIGHT
    """Of all models of an index together beside BM25, unless its maker says otherwise; the largest of them counts."""

    @abstractmethod
    def row_maker(self) -> RowMaker:
        """Return what makes the rows of passages during one change of an index; for one thread."""

    @abstractmethod
    def ask(self, question: Question, weight: float) -> ParsedQuery:
        """Read a query."""


# --- BM25 ---


class Bm25(Part):
    """The words of texts, counted."""

    name = BM25

    def __init__(self, analyser: Analyser) -> None:
        """Take what makes terms of texts."""
        self._analyser = analyser

    def row_maker(self) -> RowMaker:
        """Return what counts terms."""
        return TermCounter(self._analyser).count

    def ask(self, question: Question, weight: float) -> ParsedQuery:
        """Find the terms of a query, and the passages that have them."""
        query_terms, commit = self._analyser.query(question.text), question.commit
        synonyms = self._synonyms(question, query_terms) if question.synonyms else {}
        spans = [segment.postings_spans(query_terms.spans) for segment in commit.segments]
        passages_with = {term: sum([of_segment[term].n_passages for of_segment in spans]) for term in query_terms.spans}
        counts = dict(query_terms.weights)
        for term, variant_weight in query_terms.variants.items():
            if passages_with[term]:
                counts[term] = counts.get(term, 0.0) + variant_weight
        weights = query_weights(counts, passages_with, commit.state.passages, weight, synonyms)
        for word, word_weight in question.word_weights.items():
            terms_of_word = weights.keys() & self._analyser.terms(word)
            weights |= {term: word_weight * weights[term] for term in terms_of_word}
        absent_acronyms = {span for span, acronym in query_terms.ignored.items() if not passages_with.get(acronym)}
        bm25_query = Bm25Query(question, query_terms.spans, weights, synonyms.keys()) if weights else None
        return ParsedQuery(bm25_query, _spans_without_passages(query_terms, passages_with), absent_acronyms)

    def _synonyms(self, question: Question, query_terms: QueryTerms) -> dict[str, tuple[float, frozenset[str]]]:
        """Return terms of synonyms that the query lacks, with weights and the terms they replace; add spans."""
        synonyms, searched_terms = dict[str, tuple[float, frozenset[str]]](), frozenset(query_terms.weights)
        for words, texts in question.synonyms.items():
            word_terms = self._analyser.query_terms(words)
            for terms in map(self._analyser.query_terms, texts) if word_terms and word_terms <= searched_terms else ():
                for term in sorted(terms - query_terms.spans.keys()):
                    query_terms.spans[term] = sorted({span for word in word_terms for span in query_terms.spans[word]})
                    synonyms[term] = SYNONYM_WEIGHT / len(terms), word_terms
        return synonyms


class Bm25Query(PartQuery):
    """The terms of BM25 that a query has."""

    def __init__(
        self, question: Question, query_spans: Mapping[str, Sequence[Span]], weights: Mapping[str, float],
        synonyms: Collection[str],
    ) -> None:  # fmt: skip
        """Take where the query's terms stand, those that count, with their half of the score, and the synonyms."""
        self._question, self._query_spans, self.weights, self._synonyms = question, query_spans, weights, synonyms
        self._average = question.commit.state.average
        self._terms, self._values = list(weights), np.array(list(weights.values()))

    def bm25_terms(self, segment: Segment) -> Bm25Terms:
        """Return what the C function asks of a segment."""
        spans = [*segment.postings_spans(self.weights).values()]
        starts_and_stops = np.array([[span.start for span in spans], [span.stop for span in spans]], np.int64)
        return Bm25Terms(starts_and_stops, self._values, K1, B, self._average)

    def text_scores(self, texts: list[str]) -> Floats:
        """Return what terms add to the scores of texts, with the index's statistics as they are."""
        read = self.terms(Passages(texts, self._question.words))
        return np.array([read(number).values.sum() for number in range(len(texts))])

    def terms(self, passages: Passages, *, is_measured: bool = False) -> TermsOfPassage:
        """Return what gives the terms of each passage: a value for each that the query has, too."""
        numbers = {term: number for number, term in enumerate(self._terms)}
        term_list = passages.words.term_positions(passages.texts, passages.word_list, numbers)
        counts = term_list.counts(len(self._terms))
        all_values = self._values * impacts(counts, passages.lengths[:, None], self._average)
        marks = (all_values / counts.clip(min=1))[term_list.texts(), term_list.values]

        def terms(passage: int) -> Terms:
            span, present = term_list.slice_for(passage), counts[passage].nonzero()[0]
            which, spans = term_list.values[span], term_list.spans[span]

            @cache
            def row(number: int) -> Row:
                term = int(present[number])
                return self._row(self._terms[term], passages.texts[passage], as_spans(spans[which == term]))

            return Terms(all_values[passage, present], row, Marks(marks[span], spans))

        return terms

    @cached_property
    def _query_words(self) -> dict[str, tuple[str, tuple[Span, ...]]]:
        """By term, how the query writes it, and where."""
        text, spans = self._question.text, self._query_spans
        written = {
            term: " ".join(text[start:end] for start, end in spans[term][: None if term in self._synonyms else 1])
            for term in self._terms
        }
        return {term: (normalize(written[term]).text, tuple(spans[term])) for term in self._terms}

    def _row(self, term: str, text: str, spans: tuple[Span, ...]) -> Row:
        query_word, query_spans = self._query_words[term]
        text_word = text[slice(*spans[0])]
        text_word = text_word if text_word.isascii() else normalize(text_word).text
        name = query_word if lowercase(query_word) == lowercase(text_word) else f"{query_word} ~ {text_word}"
        if term in self._synonyms:
            return Row(f"{name} (synonym)", (query_word,), 0.0, 0.0, query_spans, spans, (), (term,), SYNONYM)
        return Row(name, (query_word,), 0.0, 0.0, query_spans, spans, (), (term,), WORD)


def _spans_without_passages(query_terms: QueryTerms, passages_with: Mapping[str, int]) -> set[Span]:
    """Return where words of the query stand that no passage has; none of them cuts a word that one has."""
    absent = {query_terms.spans[term][0] for term in query_terms.weights if not passages_with[term]}
    if not absent:
        return absent
    present = [span for term, spans in query_terms.spans.items() if passages_with[term] for span in spans]
    inside = {position for span in present for position in range(*span)[1:]}
    return {span for span in absent if inside.isdisjoint(span)}


# --- Models ---


class ModelQuery(PartQuery):
    """A query as a model with dense rows reads it."""

    is_dense = True

    def __init__(self, part: ModelPart, query: Any, vector: Any, weight: float, directions: Directions | None) -> None:
        """Take the query as the model reads it, and its vector times the weight, which directions move."""
        self._part, self._query, self.vector, self._weight, self._directions = part, query, vector, weight, directions
        if directions is not None:
            self.vector = (vector + directions.vectors.sum(axis=0)).astype(np.float32)

    def row_scores(self, rows: DocumentRows) -> Floats:
        """Return the products of rows with the vector: equal rows have equal ones, which BLAS does not give."""
        if len(rows) == 1:  # which einsum would cut into blocks of 8,192 numbers
            return self.row_scores(np.repeat(rows, 2, axis=0))[:1]
        return np.einsum("ij,j->i", rows, self.vector)  # type: ignore[no-any-return]

    def text_scores(self, texts: list[str]) -> Floats:
        """Return what the model adds to the scores of texts."""
        return self.row_scores(self._part.document_rows(texts)).astype(np.float64)

    def terms(self, passages: Passages, *, is_measured: bool = False) -> TermsOfPassage:
        """Return what gives the terms of passages, and those of the directions."""
        if is_measured and self._query.is_reweighted:
            raise InputError(
                f"words of the query are weighted in the part {shown(self._part.name)}, so that its score is of no "
                "text whose words could be left out; search with word_weights={}"
            )
        query, rows = (
            self._query.measured if is_measured else self._query,
            passages.rows(self._part.name, self._part.dimension),
        )
        read = query.against(passages.texts, rows, weight=self._weight)
        return read if self._directions is None else self._directions.added_to(read, rows)


class SparseQuery(ModelQuery):
    """A query as a model with sparse rows reads it."""

    is_dense = False

    def segment_scores(self, segment: Segment) -> Floats:
        """Return the sums over the dimensions of the query, from the list of each."""
        scores = np.zeros(segment.n_passages, np.float32)
        for dimension, value in zip(self.vector.indices.tolist(), self.vector.data):
            passages, coordinates = segment.sparse(self._part.name, dimension)
            scores[passages] += value * coordinates
        return scores

    def row_scores(self, rows: DocumentRows) -> Floats:
        """Return the products of rows with the query's."""
        return (rows @ self.vector.T).toarray().ravel()  # type: ignore[no-any-return]


class MultiVectorPartQuery(ModelQuery):
    """A query as a model with a vector for each token reads it; its score is MaxSim."""

    is_dense = False

    def segment_scores(self, segment: Segment) -> Floats:
        """Return the sums over the query's tokens of the largest products with tokens of each passage."""
        vectors, ends = (segment.tensors[f"rows:{self._part.name}.{kind}"] for kind in ("vectors", "ends"))
        return largest_products(self.vector, vectors, ends).sum(axis=1)  # type: ignore[no-any-return]

    def row_scores(self, rows: DocumentRows) -> Floats:
        """Return the same of rows."""
        return largest_products(self.vector, *flattened(rows)).sum(axis=1)  # type: ignore[no-any-return]


class StaticQuery(ModelQuery):
    """A query as a static model reads it."""

    def terms(self, passages: Passages, *, is_measured: bool = False) -> TermsOfPassage:
        """Return what gives the terms of passages, pairs of words."""
        name = self._part.name
        words = passages.words.rows(name, passages.texts, passages.word_list)
        read = self._query.against(passages.texts, *words)
        return self._directions.added_to(read, passages.rows(name, self._part.dimension)) if self._directions else read


class ModelPart(Part):
    """A model of an index, with dense rows.

    Attributes:
        encoder: the model.
        source: the name or path it was opened by; None for an object.
        is_named: whether that is a name.
        dimension: of its rows.
    """

    is_sparse: ClassVar[bool] = False
    query_type: ClassVar[type[ModelQuery]] = ModelQuery

    def __init__(self, name: str, encoder: Embedder, source: Any) -> None:
        """Take an opened model, and what it was opened by."""
        self.name, self.encoder = name, encoder
        self.source = str(source) if isinstance(source, (str, Path)) else None
        self.is_named = isinstance(source, str) and (source in bundled_models() or not Path(source).exists())
        self.fingerprint = fingerprint(encoder)
        self.dimension = encoder.get_embedding_dimension()

    def row_maker(self) -> RowMaker:
        """Return what encodes documents."""
        return self.document_rows

    def document_rows(self, texts: list[str]) -> DocumentRows:
        """Return the rows of documents, zeros for a text of which the model knows no word."""
        return self.checked_rows(self.encoder.encode_document(texts))

    def query_rows(self, texts: list[str]) -> DocumentRows:
        """Return the rows of queries, as `Question.rows` has them."""
        return self.checked_rows(self.encoder.encode_query(texts))

    def checked_rows(self, rows: Any) -> DocumentRows:
        """Return finite rows so that the product of two is their similarity."""
        if not np.isfinite(stored_numbers(rows)).all():
            raise InputError(f"the model {self.name!r} gave NaN or infinity; the batch was rejected")
        return self._units(rows)

    def _units(self, rows: Any) -> DocumentRows:
        return self.encoder.similarity_rows(rows).astype(np.float32, copy=False)

    def ask(self, question: Question, weight: float) -> ParsedQuery:
        """Read a query, and say which of its words the model does not know."""
        text, function_words = question.text, question.words.analyser.function_words
        query, directions = self.encoder.analyze_texts([text], ["query"])[0], self._directions(question, weight)
        if (row := question.rows.get(self.name)) is None:
            row = self.checked_rows(query.vector)[:1]
        query.unit = row[0]
        if not stored_numbers(query.unit).any():
            return ParsedQuery(None, None, directions=directions)
        words, (coverage, gaps) = split_words(text), query.coverage_and_gaps
        guesses = {  # what the model reads as something that is little of it
            lowercase(word) for word, read_as in coverage.read_as if not is_recognizable_prefix(read_as, word)
        }
        unknown = set(gaps) | {word[1:] for word in words if guesses and lowercase(word.text) in guesses}
        statuses = [
            IN_VOCABULARY * (word[1:] not in unknown) + CONTENT * (lowercase(word.text) not in function_words)
            for word in words
        ]
        if words and not _has_known_word(statuses):
            return ParsedQuery(None, unknown, directions=directions)
        if question.word_weights:
            query = query.reweighted(question.word_weights)
        weight /= self._own_score(query.unit)
        vector = query.unit * np.float32(weight)
        return ParsedQuery(self.query_type(self, query, vector, weight, directions), unknown, directions=directions)

    def _own_score(self, unit: Any) -> float:
        """Return what a query would score with itself, which counts as 1; cosines do as they are."""
        return 1.0

    def _directions(self, question: Question, weight: float) -> Directions | None:
        """Return what texts move the query's vector by, each a term of every hit; None where the model knows none."""
        steer, texts = question.steer, list(question.steer) if self.query_type.is_dense else []
        if not texts:
            return None
        rows = self.query_rows(texts).astype(np.float64)
        moves = {text: weight * steer[text] * row for text, row in zip(texts, rows) if row.any()}
        names = {text: f"{'more' if steer[text] > 0 else 'less'} of {text!r:.60}" for text in moves}
        terms = [Row(name, (name,), 0.0, 0.0, key=("steer", text), kind=DIMENSION) for text, name in names.items()]
        return Directions(np.array(list(moves.values())), tuple(terms)) if moves else None


class SparsePart(ModelPart):
    """A model with sparse rows, in CSR."""

    is_sparse, query_type = True, SparseQuery

    def _units(self, rows: Any) -> DocumentRows:
        rows = super()._units(rows).tocsr()
        rows.eliminate_zeros()
        return rows

    def _own_score(self, unit: Any) -> float:
        return float(unit.data @ unit.data)

    @cached_property
    def is_signed(self) -> bool:
        """Whether rows may have numbers below 0, as far as a few texts show."""
        return bool((self.encoder.encode(list(PROBES)).data < 0).any())


class MultiVectorPart(ModelPart):
    """A model with a vector for each token: late interaction."""

    query_type = MultiVectorPartQuery

    def _units(self, rows: Any) -> DocumentRows:
        return self.encoder.similarity_rows(rows)

    def _own_score(self, unit: Any) -> float:
        return float((unit @ unit.T).max(axis=1).sum())


class StaticPart(ModelPart):
    """A model whose embeddings are means of word vectors: its words are found once for all parts."""

    weight = STATIC_WEIGHT
    encoder: StaticEmbedder

    def _units(self, rows: Any) -> DocumentRows:
        return rows  # they have length 1

    def ask(self, question: Question, weight: float) -> ParsedQuery:
        """Find the words of a query in the table."""
        query_words, spelled = question.words.query_words(self.name, question.text)
        statuses, directions = [status for _, status, _ in query_words], self._directions(question, weight)
        unknown = {span for _, status, span in query_words if not status & IN_VOCABULARY}
        if _has_known_word(statuses):
            spans_by_row = spans_by((row, span) for row, _, span in query_words if row >= 0)
            pairs = WordPairQuery(self.encoder, question.text, spans_by_row, spelled, weight, question.word_weights)
            if pairs.vector.any():
                return ParsedQuery(
                    StaticQuery(self, pairs, pairs.vector, weight, directions), unknown, directions=directions
                )
        return ParsedQuery(None, unknown, directions=directions)


def _has_known_word(statuses: Sequence[int]) -> bool:
    """Whether a word of a query is known; function words count where there are no others."""
    content = [status for status in statuses if status & CONTENT]
    return any(status & IN_VOCABULARY for status in content or statuses)


# --- Boosts ---

MAX_BOOSTS, MAX_BOOST = 20, 10.0
_BOOST_KEYS = {"where": {"where", "weight"}, "recent": {"recent", "half_life_days", "now", "weight"}}
_BOOST_FORMS = (
    'such as {"where": {"lang": "en"}, "weight": 0.2} or {"recent": "day", "half_life_days": 30, "weight": 0.3}'
)


class Boost(NamedTuple):
    """What a condition on the metadata, or a date, adds to scores.

    Attributes:
        name: of its row.
        weight: what documents get that meet the condition; of a date those of its moment or later.
        where: the condition; for a date that it is of a moment or later.
        half_life_s: the age before that moment that gets half the weight, in seconds; 0 for a condition.
    """

    name: str
    weight: float
    where: Where
    half_life_s: float = 0.0

    def values(self, segment: Segment) -> Floats:
        """Return what each document of a segment gets, float32 [documents]; of several dates the latest counts."""
        if not self.half_life_s:
            return np.float32(self.weight) * segment.matching(self.where)
        moment = self.where[0][0].any_of[0]
        latest, (rows, times) = np.full(len(segment.numbers), -np.inf), segment.times(moment.column)
        np.fmax.at(latest, rows, times)  # NaN is a string that is no date
        shares = 0.5 ** ((moment.values[0][0] - latest).clip(0) / self.half_life_s)
        return (self.weight * shares).astype(np.float32)  # type: ignore[no-any-return]


class BoostsQuery(PartQuery):
    """The boosts of a search as a part of its score: what shares nothing else with the query is no hit."""

    def __init__(self, boosts: Sequence[Boost]) -> None:
        """Take one or more boosts."""
        self._boosts = boosts

    def segment_scores(self, segment: Segment) -> Floats:
        """Return what the boosts add to the score of each passage of a segment."""
        totals = np.sum([boost.values(segment) for boost in self._boosts], axis=0)
        return np.repeat(totals, np.diff(segment.ends, prepend=0))

    def terms(self, passages: Passages, *, is_measured: bool = False) -> TermsOfPassage:
        """Return what gives the terms of passages: a value for each boost, 0 where their document does not get it."""
        matrices = {segment: np.array([boost.values(segment) for boost in self._boosts], np.float64)
                    for segment in {segment for segment, _ in passages.stored}}  # fmt: skip
        values = [matrices[s][:, s.rows_of_passages(np.array([passage])).item()] for s, passage in passages.stored]
        rows = [Row(boost.name, (boost.name,), 0.0, 0.0, key=(BOOST, boost.name), kind=BOOST) for boost in self._boosts]
        return lambda passage: Terms(values[passage], rows.__getitem__)

    def text_scores(self, texts: list[str]) -> Floats:
        """Return zeros: no text has metadata."""
        return np.zeros(len(texts), np.float32)


def parse_boosts(boosts: Boosts, fields: Fields) -> tuple[Boost, ...]:
    """Return the boosts of a search, see `Index.search`."""
    if not isinstance(boosts, (list, tuple, type(None))) or len(boosts or ()) > MAX_BOOSTS:
        raise InputError(f"boosts are {shown(boosts)}; give a list of at most {MAX_BOOSTS}, {_BOOST_FORMS}")
    parsed = [_parse_boost(boost, fields) for boost in boosts or ()]
    names = [boost.name for boost in parsed]  # such as "recent day" of two half-lives
    return tuple(
        boost._replace(name=f"{name} ({names[:n].count(name) + 1})") if name in names[:n] else boost
        for n, (name, boost) in enumerate(zip(names, parsed))
    )


def _parse_boost(boost: Any, fields: Fields) -> Boost:
    kinds = [kind for kind in _BOOST_KEYS if isinstance(boost, Mapping) and boost.get(kind) is not None]
    if len(kinds) != 1 or not _BOOST_KEYS[kinds[0]].issuperset(boost):
        raise InputError(f"a boost is {shown(boost)}; give a dict {_BOOST_FORMS}")
    check_number(f"the weight of the boost {shown(boost)}", boost.get("weight"), least=-MAX_BOOST, most=MAX_BOOST)
    if "where" in kinds:
        where = parse_where(boost["where"], fields)
        return Boost(condition_text(boost["where"]), float(boost["weight"]), where)
    half_life_days, field = boost.get("half_life_days"), str(boost["recent"])
    check_number(f"half_life_days of the boost {shown(boost)}", half_life_days, least=0.001, most=1e6)
    moment = str(datetime.now(timezone.utc).isoformat() if boost.get("now") is None else boost["now"])
    return Boost(
        f"recent {field}", float(boost["weight"]), parse_where({field: {"gte": moment}}, fields), half_life_days * DAY_S
    )


PARTS: dict[str, type[ModelPart]] = {"static": StaticPart, "multi-vector": MultiVectorPart}
"""Family, and its way to search where that is neither of dense nor of sparse rows: a new way is one line here."""


def open_part(name: str, model: Any) -> ModelPart:
    """Return what `pellucid.load` takes as a part of an index."""
    source = resolve_name(model)
    encoder = load(source)
    if encoder.family in PARTS:
        return PARTS[encoder.family](name, encoder, source)
    return (SparsePart if hasattr(encoder.encode([PROBES[0]]), "tocsr") else ModelPart)(name, encoder, source)
