"""What a search returns: hits with their reasons, as a report too, and the second stage that scores the first anew."""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np

from pellucid.analysis.citing import MIN_PROBABILITY, Citations, cite
from pellucid.core.query import Floats, Terms, scaled_terms
from pellucid.core.removal import Passage, passage_terms
from pellucid.dense.tokenized import text_units
from pellucid.errors import InputError, check_integer, shown
from pellucid.explain.explanation import Explanation
from pellucid.explain.groups import Group
from pellucid.explain.rows import BOOST, CONTEXT, EMBEDDING, SHARED, Row
from pellucid.explain.views.parts import (
    AnyPart,
    Heading,
    Note,
    TablePart,
    counted,
    listed,
    numbers,
    signed,
)
from pellucid.explain.views.report import VERSION, Report, frame, json_value
from pellucid.index.documents import Document
from pellucid.index.plan import QueryPlan, Suggestion
from pellucid.index.query import Weights
from pellucid.index.reasons import Mark, Passages, Reasons, TermsOfPassage
from pellucid.index.settings import BM25, precomputed_parts, validate_weights
from pellucid.process import cached_property
from pellucid.text.function_words import function_words
from pellucid.text.sentences import sentence_spans
from pellucid.text.unicode import UNSPACED, well_formed

RERANK = "rerank"
"""The name of the part that the second stage is."""

HITS_READ_TOGETHER = 10
"""Neighbouring hits, whose reasons are read at once."""

HIT_GROUPS = 3
"""Phrases of the query that are shown for each hit."""
SNIPPET_WORDS = 12
"""Words of a document's sentence that are shown around what matches."""
_FAINT = 0.15  # of the strongest stretch of a text; a weaker one is no mark
_WRITTEN_WORD = re.compile(rf"[{UNSPACED}]{{1,4}}|[^\s{UNSPACED}]{{1,40}}")  # without blanks, some characters are one
WEAK_PROBABILITY = 0.5
"""Of the best hit; below it, notes say that all are weak."""
_NAMED = 5  # rows named in a table and in JSON
_MAX_LISTED_WORDS, _MAX_WORD_CHARS = 20, 80  # in a note


class ScoredPassage(NamedTuple):
    """A passage of a commit: the indices of its segment, of its document there, and of itself there; and its score."""

    segment: int
    row: int
    passage: int
    parts: dict[str, float]  # what each part adds to the score


class HitMarks(NamedTuple):
    """The stretches of a hit that match: of its title and of its passage, in text order."""

    title: tuple[Mark, ...]
    text: tuple[Mark, ...]


@dataclass(frozen=True, repr=False)
class Hit:
    """A document that was found; its title, text, metadata and reasons are read when they are asked for.

    Attributes:
        id: the user's.
        score: the sum of `parts`.
        parts: what BM25 and each model add to the score; they add up to it.
        passage: number of the passage, from 0.
        before: the hit as the search found it, with its score and reasons, where it was reranked since; else None.
    """

    id: str
    score: float
    parts: dict[str, float]
    passage: int
    _block: HitBlock = field(compare=False)
    _position: int = field(compare=False)  # in the block
    before: Hit | None = None
    _stage: SecondStage | None = field(default=None, compare=False)
    _is_measured: bool = field(default=False, compare=False)
    _is_checked: bool = field(default=False, compare=False)

    @property
    def probability(self) -> float | None:
        """How probable it is that a best hit of this score answers its query, 0 to 1, see `Index.calibrate`.

        None where the index is not calibrated, or the search has other weights or a second stage.
        """
        calibration = None if self.before else self._block.plan.calibration
        return calibration and calibration.probability(self.score)

    @property
    def _document(self) -> Document:
        return self._block.documents[self._position]

    @property
    def title(self) -> str:
        """The title of the document; "" for none."""
        return self._document.title

    @cached_property
    def text(self) -> str:
        """The best passage of the document; all of it, unless it is long."""
        return self._document.passage(self.passage)

    @property
    def start(self) -> int:
        """Where the passage starts in the document's text, in characters."""
        return self._document.ends[self.passage - 1] if self.passage else 0

    @property
    def metadata(self) -> dict[str, Any]:
        """The document's metadata as given."""
        return self._document.metadata

    def __repr__(self) -> str:
        """Return the hit as one line."""
        shown = ("id", "score", "title", "text", "metadata", "parts", "passage", "start")
        return f"Hit({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @cached_property
    def reasons(self) -> Reasons:
        """What the score is made of: rows that add up to it."""
        if self._stage is not None:
            return self._stage.reasons(self, is_measured=self._is_measured)
        return self._block.reasons(self._position, self.score, is_measured=self._is_measured)

    @cached_property
    def _as_measured(self) -> Hit:
        """The same hit, whose reasons are measured when they are read, see `measured`."""
        return replace(self, _is_measured=True)

    @cached_property
    def _explanation(self) -> Explanation:
        explanation = self.reasons.explain(ScoredHit(self._block, self._position, self._stage))
        return explanation.check() if self._is_checked else explanation

    def explain(self) -> Explanation:
        """Return every row of the score as an explanation, with its views; text 2 is the title and the passage."""
        return self._explanation

    def measured(self) -> Explanation:
        """Return the rows of the score as `explain` does, those of encoders and of a reranker measured.

        Words of the query and of the passage are left out, and the texts encoded again, up to 139 variants of each; of
        a reranker only words of the passage. What other parts add is exact and stays as it is. How many texts were
        read, and the standard error, is in its `measurement`.

        Raises:
            InputError: words of the query are weighted, or the stored vector is not what the encoder gives.
        """
        return self._as_measured.explain()

    def check(self) -> Hit:
        """Return the same hit with lines that are checked: the index scores the passage without the words of each.

        Of the four largest lines, and of the two largest together, all words are left out of the passage. The query and
        what BM25 counts stay as they are, and models encode the five texts in one batch, when lines or the summary are
        first read. Of a reranked hit the reranker reads them, too.

        Raises:
            InputError: when lines are read, that a vector was given and is not what the model gives for the passage.
        """
        return replace(self, _is_checked=True)

    @property
    def vectors(self) -> dict[str, Any]:
        """The stored vector of the passage, by model: float32 [dimension], of a sparse model a CSR row.

        A model that knows no word of the passage has none.
        """
        return self._block.vectors(self._position)

    def summary(self) -> str:
        """Return where the score comes from: words of the query, then what the document says around the match.

        Of a hit whose `probability` is below 0.5 it says so.
        """
        why, snippet = self._explanation.summary(), " ".join(self.snippet.split())
        if (probability := self.probability) is not None and probability < WEAK_PROBABILITY:
            why += f" Weak: it answers the query with a probability of {probability:.2f}."
        return f'{why} In the document: "{snippet}"' if snippet else why

    @cached_property
    def marks(self) -> HitMarks:
        """The stretches of title and text to highlight: those that add 15 % or more of what the strongest adds.

        Function words are none, unless there is nothing else. Where words of a sentence match, they are marked, not it.
        """
        values, spans = self.reasons.marks()
        values, (starts, ends) = values[values > 0], spans[values > 0].T
        is_mark = values > 0
        is_mark[:-1] &= ends[:-1] < ends[1:]
        is_mark[1:] &= starts[:-1] < starts[1:]
        is_mark &= values >= _FAINT * values[is_mark].max(initial=0.0)
        marks = list(zip(*(column[is_mark].tolist() for column in (starts, ends, values))))
        words = [self.reasons.text[start:end].lower() for start, end, _ in marks]
        small = function_words(words).words
        marks = [mark for mark, word in zip(marks, words) if word not in small] or marks
        return HitMarks(*(tuple(Mark(*mark) for mark in of_field) for of_field in self._by_field(marks)))

    @cached_property
    def snippet(self) -> str:
        """What the passage says around the marks that add most; the title where only that matches; "" for no marks.

        At most 12 words of one sentence, as they are written, with an ellipsis where it is cut.
        """
        return _snippet(self.text, self.marks.text) or _snippet(self.title, self.marks.title)

    def _by_field(self, spans: Iterable[tuple[Any, ...]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return spans, or marks, of what is indexed as those of the title and those of the text."""
        spans, offset = list(spans), len(self.reasons.text) - len(self.text)
        title = tuple((start, min(end, len(self.title)), *value) for start, end, *value in spans if start < offset)
        return title, tuple((start - offset, end - offset, *value) for start, end, *value in spans if start >= offset)

    def lines(self, k: int = HIT_GROUPS) -> list[Group]:
        """Return the `k` largest groups that are phrases or named rows, which tables show."""
        check_integer("k", k, 0)
        return [group for group in self.explain().groups(max(k, 1)) if not group.is_sum][:k]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: the hit, its strongest reasons and the words to highlight."""
        first, names = self.before, ("id", "score", "title", "text", "metadata", "passage", "start")
        before = first and {"score": first.score, "parts": dict(first.parts), "reasons": first._rows()}
        return {
            **{name: getattr(self, name) for name in names},
            **({"before": before} if before else {}),
            **({} if self.probability is None else {"probability": self.probability}),
            "parts": dict(self.parts),
            "summary": self._explanation.summary(),
            "snippet": self.snippet,
            "groups": [self._plain_group(group) for group in self._explanation.lines],
            "reasons": self._rows(),
            "marks": json_value(self.marks),
        }

    def _plain_group(self, group: Group) -> dict[str, Any]:
        names = ("name", "contribution", "share", "kind", "query_spans", "title_spans", "text_spans")
        plain = dict(zip(names, json_value((*group[:4], group.spans1, *self._by_field(group.spans2)))))
        return plain if group.without is None else plain | {"without": group.without}

    def _rows(self) -> list[dict[str, Any]]:
        """Return the strongest rows; not what all texts of an encoder have in common."""
        strongest = self.reasons.top(_NAMED + 2 * len(self.parts))  # a part has one such row of either kind at most
        rows = [row for row in strongest if row.kind not in (SHARED, CONTEXT)][:_NAMED]
        return [{"name": row.name, "contribution": row.contribution} for row in rows]


@dataclass(frozen=True, repr=False)
class Hits(Report, Sequence[Hit]):
    """The documents found for a query, best first: a sequence of `Hit`, and a report with views.

    Attributes:
        query: what was asked.
        documents: how many the index holds.
        weights: of the parts of the score.
        hits: the documents, best first.
        exact: whether no other document can have a higher score; False where a second stage scored only the first.
        unknown: words of the query that no document has, or without BM25, that no model knows. BM25 counts them in what
            the query could reach, so that they lower its part of the scores.
        ignored: words of the query that BM25 leaves out: stop words, and signs that are no names. Models may read them.
        has_known_words: whether a document has a word of the query, or a model knows one; else there are no hits.
        reranked: how many of the first hits were scored anew, 0 where that was not asked for.
        offset: how many better hits were left out.
        models: name of a part -> source of its model and the first digits of its fingerprint.
    """

    kind: ClassVar[str] = "search"
    table: ClassVar[str] = "hits"

    query: str
    documents: int
    weights: dict[str, float]
    hits: tuple[Hit, ...]
    exact: bool
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    has_known_words: bool = True
    reranked: int = 0
    offset: int = 0
    models: Mapping[str, str] = field(default_factory=dict)
    _plan: QueryPlan | None = field(default=None, compare=False)
    _score_document: Callable[[int, int], Hit] | None = field(default=None, compare=False)  # by segment and row

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """Words of the documents that some of the `unknown` words may be meant as, with how many documents have them.

        They are looked up when they are first read: some 5 ms a word.
        """
        return self._plan.suggestions if self._plan else ()

    @overload
    def __getitem__(self, number: int) -> Hit: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, number: int | slice) -> Hit | tuple[Hit, ...]:
        """Return a hit by its number from 0."""
        return self.hits[number]

    def __len__(self) -> int:
        """Return the number of hits."""
        return len(self.hits)

    def explain(self, rank: int) -> Explanation:
        """Return what the score at a rank is made of; the first rank is 1, or the one after those left out.

        Raises:
            InputError: the rank is not in the list.
        """
        hits = dict(enumerate(self.hits, self.offset + 1))
        if rank not in list(hits):
            first = f", whose first rank is {self.offset + 1}" if self.offset else ""
            raise InputError(f"rank {shown(rank)} is not in this list of {len(hits)}{first}")
        return hits[rank].explain()

    def cite(
        self, answer: str, model: Any = "static-en", *, top_k: int = 3, min_probability: float = MIN_PROBABILITY
    ) -> Citations:
        """Find the sentences of the hits that support each sentence of an answer, see `pellucid.cite`.

        Passage `n` of a support is the text of hit `n`, from 0.
        """
        return cite(answer, [hit.text for hit in self], model, top_k=top_k, min_probability=min_probability)

    def why(self, above: int, below: int | str | None = None) -> Explanation:
        """Return why a hit is above another document: the difference of their explanations.

        Args:
            above: a rank, from 1.
            below: another rank, or the id of any document of the index; None for the next rank.

        Raises:
            InputError: a rank is not in the list, or no document has the id; or an id is given, and the hits were
                reranked, or are of an index that does not score others.
        """
        if not isinstance(below, str):
            return self.explain(above) - self.explain(above + 1 if below is None else below)
        if self._score_document is None or self._plan is None or self.reranked:
            raise InputError("documents that are no hits have no score of a reranker, nor in Qdrant; give two ranks")
        return self.explain(above) - self._score_document(*self._plan.snapshot.commit.locate(below)).explain()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers; `docs/search-schema.json` describes them."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "query": self.query,
            "documents": self.documents,
            "weights": self.weights,
            "exact": self.exact,
            "models": dict(self.models),
            "unknown": list(self.unknown),
            "suggestions": json_value(self.suggestions),
            "ignored": list(self.ignored),
            "has_known_words": self.has_known_words,
            **{name: count for name, count in (("reranked", self.reranked), ("offset", self.offset)) if count},
            "hits": [hit.to_dict() for hit in self.hits],
        }

    def measured(self) -> Hits:
        """Return the same hits with measured reasons in every view, see `Hit.measured`; each is measured when read."""
        return replace(self, hits=tuple(hit._as_measured for hit in self.hits))

    def check(self) -> Hits:
        """Return the same hits with lines that are checked in every view, see `Hit.check`; each when it is read."""
        return replace(self, hits=tuple(hit.check() for hit in self.hits))

    def notes(self) -> list[tuple[str, bool]]:
        """Return what was not searched, and why nothing was found, in sentences; each with whether it is a warning."""
        notes = []
        if not self.has_known_words:
            what = "No word of the query is known" if self.unknown else "The query has no words to search for"
            notes.append((f"{what}, so there are no hits.", True))
        elif not self.hits:
            notes.append(("No hits.", False))
        if self.unknown:
            where = "Not found in any document" if self.weights.get(BM25) else "Unknown to the model"
            notes.append((f"{where}: {_words(self.unknown)}", True))
        probability = self.hits[0].probability if self.hits and not self.offset else None
        if probability is not None and probability < WEAK_PROBABILITY:
            weak = "Weak: queries of other subjects score as high"
            notes.append((f"{weak}; the first hit answers this one with a probability of {probability:.2f}.", True))
        for word, instead, n_documents in self.suggestions:
            notes.append((f'Instead of "{word}", did you mean "{instead}" ({counted(n_documents, "document")})?', True))
        for model, words in (self._plan.partly_known if self._plan else {}).items():
            notes.append((f"Only partly known to {model}: {_words(words)}", True))
        if self.ignored:
            notes.append((f"Not searched (stop words and signs): {_words(self.ignored)}", False))
        return notes

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<Hits for {self.query!r:.60}: {len(self.hits)} of {counted(self.documents, 'document')}>"

    def _parts(self) -> Iterator[AnyPart]:
        how = " + ".join(f"{weight:.2g} {part}" for part, weight in self.weights.items())
        subtitles = [how, counted(self.documents, "document")]
        if self.reranked:
            subtitles.append(f"the first {self.reranked:,} reranked")
        yield Heading("Search", self.query, ", ".join(subtitles))
        for note, is_warning in self.notes():
            yield Note(note, is_warning=is_warning)
        rows = []
        for rank, hit in enumerate(self.hits, self.offset + 1):
            why = "; ".join(
                f"{line.name} {signed(line.contribution)}"
                + (f" (without {line.without:.2f})" if line.without is not None else "")
                for line in hit.lines()
            )
            parts = " ".join(f"{part} {signed(value)}" for part, value in hit.parts.items())
            rows.append((str(rank), f"{hit.score:.4f}", parts, hit.id, well_formed(hit.title or hit.text), why))
        heads = [*numbers("", "score"), "of it", "id", "document", "mostly for"]
        yield TablePart.of("", heads, rows)

    def to_frame(self) -> Any:
        """Return the hits as a pandas DataFrame: rank, id, score, title, text, and the names of `lines` as reasons."""
        return frame(
            (
                (rank, h.id, h.score, h.title, h.text, tuple(group.name for group in h.lines()))
                for rank, h in enumerate(self.hits, self.offset + 1)
            ),
            ("rank", "id", "score", "title", "text", "reasons"),
        )


def _snippet(text: str, marks: Sequence[Mark]) -> str:
    """Return the words of the main sentence around its main words, which are those that add most in all places."""
    matches = [(mark.start, text[mark.start : mark.end].lower()) for mark in marks]
    n_places = Counter(word for _, word in matches)
    sums = {word: n_places[word] * mark.contribution for (_, word), mark in zip(matches, marks)}
    sentences = {span: [m for m in matches if span[0] <= m[0] < span[1]] for span in sentence_spans(text) if marks}
    main = max(sentences, key=lambda span: _distinct_sum(sums, sentences[span]), default=(0, 0))
    words = [match.span() for match in _WRITTEN_WORD.finditer(text, *main)]
    at_word = [(bisect_right(words, (start, len(text))) - 1, word) for start, word in sentences.get(main, ())]
    nearby = [[(n, word) for n, word in at_word if 0 <= n - first < SNIPPET_WORDS] for first, _ in at_word]
    best = max(nearby, key=lambda of_words: _distinct_sum(sums, of_words), default=[])
    if not best:
        return ""
    left = max(0, min((best[0][0] + best[-1][0] - SNIPPET_WORDS) // 2 + 1, len(words) - SNIPPET_WORDS))
    shown = words[left : left + SNIPPET_WORDS]
    before, after = "\u2026 " * (left > 0), " \u2026" * (shown[-1] != words[-1])
    return f"{before}{text[shown[0][0] : shown[-1][1]]}{after}"


def _distinct_sum(sums: Mapping[str, float], matches: Iterable[tuple[int, str]]) -> float:
    return math.fsum(sums[word] for word in {word for _, word in matches})  # whatever the order of the set


def _words(words: Sequence[str]) -> str:
    return listed(list(map(well_formed, words)), _MAX_LISTED_WORDS, _MAX_WORD_CHARS)


class HitBlock:
    """Neighbouring hits of a search, whose documents are read together, and whose reasons.

    It holds the commit of the search, whose files stay readable as long as a hit of it lives.
    """

    def __init__(self, plan: QueryPlan, passages: Sequence[ScoredPassage]) -> None:
        """Take the plan of the search, and its passages."""
        self.plan, self._passages, self._process = plan, passages, os.getpid()

    @cached_property
    def documents(self) -> list[Document]:
        """The documents of the hits."""
        segments = self.plan.snapshot.commit.segments
        return [segments[passage.segment].document(passage.row) for passage in self._passages]

    @cached_property
    def _estimated(self) -> tuple[list[str], dict[str, TermsOfPassage]]:
        return self._read_terms(range(len(self._passages)), is_measured=False)

    def reasons(self, position: int, score: float, *, is_measured: bool) -> Reasons:
        """Return why a hit has its score, the part of each encoder measured by leaving words out if that is wanted."""
        texts, readers = self._read_terms([position], is_measured=True) if is_measured else self._estimated
        passage = 0 if is_measured else position
        terms = {name: read(passage) for name, read in readers.items()}
        return Reasons(self.plan.query, texts[passage], terms, score, named=len(self.plan.weights) > 1)

    def vectors(self, position: int) -> dict[str, Any]:
        """Return the stored vectors of a hit by model, as they were when the search was made."""
        segment_index, _, passage, _ = self._passages[position]
        segment, models = self.plan.snapshot.commit.segments[segment_index], self.plan.snapshot.models
        rows = {name: segment.rows(name, model.dimension, np.array([passage])) for name, model in models.items()}
        return {name: of_part[0] for name, of_part in rows.items() if abs(of_part[0]).sum()}

    def _read_terms(
        self, positions: Sequence[int], *, is_measured: bool
    ) -> tuple[list[str], dict[str, TermsOfPassage]]:
        """Return the passages of some hits as they are indexed, and by part what gives the terms of each."""
        self._check_process()
        texts, segments = list(map(self._indexed, positions)), self.plan.snapshot.commit.segments
        stored = [
            (segments[self._passages[position].segment], self._passages[position].passage) for position in positions
        ]
        passages = Passages(texts, self.plan.snapshot.words, stored)
        return texts, {
            name: part_query.terms(passages, is_measured=is_measured) for name, part_query in self.plan.parts.items()
        }

    def scores(self, position: int, texts: list[str]) -> Floats:
        """Return the scores of texts instead of a passage, float64 [texts]; the statistics of the index stay."""
        self._check_process()
        for name in self.plan.parts.keys() & set(precomputed_parts(self.plan.snapshot.commit.state.settings)):
            own_score = self.plan.parts[name].text_scores([self._indexed(position)]).item()
            if abs(own_score - self._passages[position].parts[name]) > 1e-3:  # more than rounding
                named = f"the vector of {self.documents[position].id!r:.80} in the part {shown(name)}"
                raise InputError(
                    f"{named} was given, and is not what the model gives for the passage: nothing to check"
                )
        scores = np.sum([part_query.text_scores(texts) for part_query in self.plan.parts.values()], axis=0)
        return scores + self._passages[position].parts.get(BOOST, 0.0)  # type: ignore[no-any-return]  # whatever the text

    def _indexed(self, position: int) -> str:
        """Return the passage of a hit as it is indexed."""
        segment_index, row, passage, _ = self._passages[position]
        segment = self.plan.snapshot.commit.segments[segment_index]
        return self.documents[position].indexed(passage - segment.first_passage(row))

    def _check_process(self) -> None:
        if self._process != os.getpid():  # a lock that a thread of the parent held is never released here
            raise InputError("these hits are of the process that forked this one; open the index and search here")


def hits_for(plan: QueryPlan, passages: Sequence[ScoredPassage]) -> list[Hit]:
    """Return passages as hits."""
    hits, segments = list[Hit](), plan.snapshot.commit.segments
    for block_start in range(0, len(passages), HITS_READ_TOGETHER):
        in_block = passages[block_start : block_start + HITS_READ_TOGETHER]
        block = HitBlock(plan, in_block)
        for position, (segment_index, row, passage, parts) in enumerate(in_block):
            segment, score = segments[segment_index], sum(parts.values())
            number = passage - segment.first_passage(row)
            hits.append(Hit(segment.document_id(row), score, parts, number, block, position))
    return hits


class ScoredHit(NamedTuple):
    """What scores a query with other texts than a hit's passage, as the hit was scored."""

    block: HitBlock
    position: int
    stage: SecondStage | None

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the scores of the second texts of pairs; the first is the query in all of them."""
        texts, stage, scores = [text for _, text in pairs], self.stage, np.zeros(len(pairs))
        if stage is None or stage.share < 1:
            scores += self.block.scores(self.position, texts)
        if stage is not None:
            scores = (1 - stage.share) * scores + stage.share * stage.score(self.block.plan.query, texts)
        return list(map(float, scores))

    def percentile(self, score: float, texts: tuple[str, str]) -> None:
        """Return None: the background of an index is the probability of its hits."""


class SecondStage:
    """What scores the first hits of a search anew, and how it counts; `weights` are left for the search before it.

    Its score is a part of the hit's with one row, until it is measured. With a weight it stands beside the parts of the
    search, whose rows all shrink alike; without one it takes the place of the score.
    """

    def __init__(self, rerank: Any, top: int, weights: Weights, parts: Sequence[str]) -> None:
        """Take a CrossEncoder or `score(query, texts)`, and the weights of a search over the parts of the index."""
        if not (callable(rerank) or hasattr(rerank, "predict")):
            raise InputError(
                f"rerank is {shown(rerank)}; give a CrossEncoder, or a function of a query and a list of texts"
            )
        if RERANK in parts:
            raise InputError(f"a model of the index is called {RERANK!r}; rebuild it under another name to use rerank")
        self._rerank, self.name = rerank, str(getattr(rerank, "__name__", type(rerank).__name__))
        self.weights, self.share = weights, 1.0
        if isinstance(weights, Mapping) and RERANK in weights:
            first_weights = validate_weights(weights, [*parts, RERANK], {})
            self.share = first_weights.pop(RERANK)
            if not any(first_weights.values()):
                raise InputError(
                    f"weights name only {RERANK!r}; name the parts that find the documents, too, or leave weights "
                    "out: then its score replaces theirs"
                )
            self.weights = first_weights

    def reranked(self, hits: Hits, top_k: int, offset: int, n_requested: int, min_score: float) -> Hits:
        """Return the `top_k` best of hits by their new scores from a rank on, equal ones in the old order."""
        texts = [f"{hit.title}\n\n{hit.text}" if hit.title else hit.text for hit in hits]
        names = [f"document {hit.id!r:.80}" for hit in hits]
        scores = self.score(hits.query, texts, names).tolist() if texts else []
        mixed = [(hit, self._mixed(hit.parts, self.share * score)) for hit, score in zip(hits, scores)]
        new = (replace(hit, score=sum(p.values()), parts=p, before=hit, _stage=self) for hit, p in mixed)
        best = sorted((hit for hit in new if hit.score >= min_score), key=lambda hit: -hit.score)
        return replace(
            hits, weights=self._mixed(hits.weights, self.share), hits=tuple(best[offset : offset + top_k]),
            exact=hits.exact and len(hits) < n_requested, reranked=len(hits), offset=offset,
        )  # fmt: skip

    def _mixed(self, parts: Mapping[str, float], value: float) -> dict[str, float]:
        """Return the parts of before, as far as they count, and the value of the second stage."""
        return {part: (1 - self.share) * before for part, before in parts.items() if self.share < 1} | {RERANK: value}

    def reasons(self, hit: Hit, *, is_measured: bool) -> Reasons:
        """Return why a reranked hit has its score: the terms of before, as far as they count, and those of this stage.

        Its score is one term or, measured, is taken apart by leaving words out of the passage.
        """
        assert hit.before is not None
        before, value = hit.before.reasons, hit.parts[RERANK]
        if is_measured:
            score, score_texts = value / (self.share or 1.0), partial(self.score, before.query)
            passage = Passage(before.text, list(text_units(before.text)), score, score_texts)
            terms = {RERANK: passage_terms(passage, weight=self.share)}
            before = before if self.share == 1 else hit.before._as_measured.reasons
        else:
            name = f"the score of {self.name}, not taken apart"
            row = Row(name, (name,), 0.0, 0.0, key=(name,), kind=EMBEDDING)
            terms = {RERANK: Terms(np.array([value]), lambda _: row)}
        if share := 1 - self.share:
            terms = {name: scaled_terms(of_part, share) for name, of_part in before.terms.items()} | terms
        return Reasons(before.query, before.text, terms, hit.score, named=True)

    def score(self, query: str, texts: list[str], names: Sequence[str] = ()) -> Floats:
        """Return the scores of some texts; `names` in messages, else these are passages without some words."""
        if hasattr(self._rerank, "predict"):
            result = self._rerank.predict([(query, text) for text in texts])
        else:
            result = self._rerank(query, texts)
        if hasattr(result, "detach"):  # a tensor
            result = result.detach().float().cpu().numpy()
        try:
            scores = np.asarray(result, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the reranker ({self.name}) gave no array of numbers: {error}") from error
        if scores.shape != (len(texts),):
            raise InputError(
                f"the reranker ({self.name}) gave an array of shape {scores.shape} for {len(texts)} texts; it must "
                "give one score a text"
            )
        if (broken := np.flatnonzero(~np.isfinite(scores))).size:
            number = int(broken[0])
            name = names[number] if names else f"a passage without some words, {texts[number]!r:.80}"
            raise InputError(f"the reranker ({self.name}) gave {scores[number]} for {name}")
        return scores
