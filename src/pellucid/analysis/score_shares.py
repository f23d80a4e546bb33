"""What drives the scores of many queries or pairs: the words, phrases and dimensions that add most to them.

The share of a word is what it adds in all scores over the sum of these. Its interval is the middle 95 % of that share
when the queries are drawn again with replacement. A query hangs on a word that adds more than half of the score of its
best hit, without what any two texts have in common.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.comparing import Pair, check_pairs
from pellucid.analysis.coordinates import check_model
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.explain.explanation import Explanation
from pellucid.explain.groups import COMMON, OTHERS, PHRASE, phrase_text
from pellucid.explain.rows import CONTEXT, DIMENSION, EMBEDDING, KEY_TOKEN, REMAINDER, SCORE_EPS, WORD, share_of
from pellucid.explain.summary import and_listed, joined_names
from pellucid.explain.views.parts import AnyPart, Heading, Lead, Note, TablePart, counted, numbers, shorten
from pellucid.explain.views.report import Report
from pellucid.progress import check_cancelled
from pellucid.text.words import Span

MIN_QUERIES = 5
"""Queries below which shares have no interval."""

_TERMS = (WORD, DIMENSION, KEY_TOKEN)  # kinds that a query can hang on
_HANGING_SHARE = 0.5  # of the score without what is common, above which a query hangs on a term
_N_DRAWS = 1_000  # of the bootstrap
_SHOWN_DRIVERS, _SHOWN_PHRASES, _SHOWN_QUERIES, _NAMED = 25, 10, 20, 3
_MAX_CHARS = 50  # of a name or text in a table
_ALL_ELSE = "small words and the rest"
_HANGING_SHARES = "Shares leave out what any two texts have in common; above 100% the other words lower the score."
_FIRST_WITHOUT = "First without it: the hit that leads once the word is not counted, empty where it stays the same."
_ONE_WORD = "one word"  # kind of a phrase that is its word

_Key = tuple[str, str]  # kind, and name in lower case
_Values = defaultdict[_Key, float]


class Driver(NamedTuple):
    """A word, phrase or dimension, or what has no line; without phrases, whose words have lines, they add up to 1."""

    name: str  # as it is first written; phrases in lower case
    kind: str  # "word", "phrase" (the sum of its words), "dimension", "key token", or what else a score is made of
    share: float  # of the sum of all scores
    low: float | None  # the lower end of its 95 % interval; None for fewer than 5 queries
    high: float | None  # the upper end
    queries: int  # that have it
    largest: int  # of these, in how many it adds most of all words and dimensions, or of all phrases


class HangingQuery(NamedTuple):
    """A query whose best hit hangs on one word or dimension."""

    query: str  # of a pair, text 1
    name: str  # of the word or dimension
    share: float  # of the best hit's score without what any two texts have in common
    score: float  # of the best hit
    best: str  # id of the best hit; of a pair, text 2
    first_without: str | None  # id of the first hit once what the word adds is taken from all, where it is another


@dataclass(frozen=True, repr=False)
class Drivers(Report):
    """What the scores of many queries or pairs are made of.

    Attributes:
        source: the index, or the family of the model.
        subject: "query" or "pair".
        queries: how many queries or pairs have a score.
        left_out: how many have none: no hit, or no word that the model knows.
        scores: how many scores were taken apart.
        mean_score: their mean.
        drivers: words, phrases and dimensions by falling size of their share, then what has no line.
        hanging: the queries whose best hit hangs on one word or dimension, by falling share.
    """

    kind: ClassVar[str] = "drivers"
    table: ClassVar[str] = "drivers"

    source: str
    subject: str
    queries: int
    left_out: int
    scores: int
    mean_score: float
    drivers: tuple[Driver, ...]
    hanging: tuple[HangingQuery, ...]

    def _parts(self) -> Iterator[AnyPart]:
        n_queries = counted(self.queries, self.subject, _PLURALS[self.subject])
        yield Heading("What drives the scores", n_queries, f"{counted(self.scores, 'score')}, {self.source}")
        terms = [driver for driver in self.drivers if driver.kind in _TERMS]
        kinds = {driver.kind for driver in terms}
        noun = kinds.pop() if len(kinds) == 1 else "word or dimension"
        named = [f'"{shorten(item.name, _MAX_CHARS)}" ({item.share:.1%})' for item in terms[:_NAMED]]
        largest = f"The largest shares: {and_listed(named)}. " if named else ""
        moved = sum(item.first_without is not None for item in self.hanging)
        without = f" ({moved:,} would have another first hit without it)" if moved else ""
        whose = "Queries whose best hit owes most of its" if self.subject == "query" else "Pairs that owe most of their"
        hanging = f"{whose} score to one {noun}"
        yield Lead(f"{largest}{hanging}: {len(self.hanging):,} of {self.queries:,}{without}.")
        if self.left_out:
            yield Note(f"{counted(self.left_out, self.subject, _PLURALS[self.subject])} without a score: left out.")
        if self.mean_score <= SCORE_EPS:
            yield Note("The scores add up to 0 or less, so there are no shares.", is_warning=True)
        elif self.queries < MIN_QUERIES:
            yield Note(f"No intervals: they need at least {MIN_QUERIES} {_PLURALS[self.subject]}.")
        unlisted = [(driver.name, driver.share) for driver in self.drivers if driver.kind not in (*_TERMS, PHRASE)]
        if len(terms) > _SHOWN_DRIVERS:
            share = math.fsum(driver.share for driver in terms[_SHOWN_DRIVERS:])
            unlisted.insert(0, (f"{len(terms) - _SHOWN_DRIVERS:,} more", share))
        sums = tuple((name, f"{share:.1%}", "", None, "", "") for name, share in unlisted)
        yield self._table("", terms[:_SHOWN_DRIVERS])._replace(sums=sums)
        if phrases := [driver for driver in self.drivers if driver.kind == PHRASE]:
            yield self._table("Phrases, each the sum of its words", phrases[:_SHOWN_PHRASES])
        if self.hanging:
            yield self._hanging_table(noun)
            yield Note(f"{_HANGING_SHARES} {_FIRST_WITHOUT}" if self.subject == "query" else _HANGING_SHARES)

    def _table(self, title: str, drivers: Sequence[Driver]) -> TablePart:
        columns = [("", "name"), *numbers("share", "95 %"), ("", "bar" if self.queries < MIN_QUERIES else "interval")]
        rows = []
        for item in drivers:
            is_of_draws = item.low is not None and item.high is not None
            interval = f"{item.low:.1%} to {item.high:.1%}" if is_of_draws else ""
            bar = (
                item.share if self.queries < MIN_QUERIES else (item.share, item.low, item.high) if is_of_draws else None
            )
            counts = (f"{item.queries:,}", f"{item.largest:,}")
            rows.append((item.name, f"{item.share:.1%}", interval, bar, *counts))
        return TablePart.of(title, [*columns, *numbers(_PLURALS[self.subject], "largest in")], rows)

    def _hanging_table(self, noun: str) -> TablePart:
        titles = ("query", "best hit", "first without it") if self.subject == "query" else ("text 1", "text 2")
        rows = [  # a pair has no other hit
            (f"{item.share:.1%}", item.name, *(item.query, item.best, item.first_without or "")[: len(titles)])
            for item in self.hanging[:_SHOWN_QUERIES]
        ]
        columns = [*numbers("share"), (noun, "name"), *((title, "name") for title in titles)]
        n_more = len(self.hanging) - len(rows)
        more = f"; {n_more:,} more are not shown" if n_more else ""
        score = "the best hit's score" if self.subject == "query" else "the score"
        return TablePart.of(f"More than half of {score} comes from one {noun}{more}", columns, rows)


_PLURALS = {"query": "queries", "pair": "pairs"}


def drivers(model: Embedder, pairs: Iterable[Pair]) -> Drivers:
    """Find the words, phrases and dimensions that the similarities of many pairs of texts rest on.

    Words and phrases are those of the first texts. `Index.drivers` does the same for queries and their hits.

    Args:
        model: any family.
        pairs: pairs of texts.

    Raises:
        InputError: an item is not a pair of strings, or no pair has a score.
    """
    check_model(model)
    explained = ((a, [(b, model.explain(a, b))]) for a, b in check_pairs(pairs))
    return collect_drivers(explained, f"{model.family} model", "pair")


def collect_drivers(
    explained: Iterable[tuple[str, Sequence[tuple[str, Explanation]]]], source: str, subject: str
) -> Drivers:
    """Add up explanations: of each query its text, and the name and explanation of each hit, best first.

    Raises:
        InputError: none has a score.
    """
    tally, left_out = _Tally(), 0
    for query, hits in explained:
        check_cancelled()
        scored = [(name, explanation) for name, explanation in hits if len(explanation.rows)]
        left_out += not scored
        if scored:
            tally.add(query, scored)
    if not tally.scores:
        raise InputError(f"no {subject} of {left_out:,} has a score; give texts with words that are known")
    hanging = tuple(sorted(tally.hanging, key=lambda item: -item.share))
    mean = math.fsum(tally.scores) / tally.n_scores
    return Drivers(source, subject, len(tally.scores), left_out, tally.n_scores, mean, tuple(tally.drivers()), hanging)


class _Tally:
    """What each word, phrase and other term adds in each query."""

    def __init__(self) -> None:
        self.scores: list[float] = []  # of each query the sum over its hits
        self.n_scores = 0
        self.hanging: list[HangingQuery] = []
        self._values: defaultdict[_Key, dict[int, float]] = defaultdict(dict)  # by term and query
        self._names: dict[_Key, str] = {}
        self._largest: Counter[_Key] = Counter()

    def add(self, query: str, hits: Sequence[tuple[str, Explanation]]) -> None:
        """Count the hits of a query, best first."""
        sums = [explanation.word_sums() for _, explanation in hits]
        names = joined_names(word for words in sums for word in words)
        phrases = _phrases(hits[0][1], names)
        by_hit, of_phrases, total = list[_Values](), _Values(float), _Values(float)
        for (_, explanation), words in zip(hits, sums):
            values = _Values(float)
            for word in words:
                if word.kind in (*_TERMS, EMBEDDING):
                    name = word.name if word.span is None else names[word.span]
                    key = (word.kind, name.lower())
                    self._names.setdefault(key, name)
                    values[key] += word.value
                if word.span in phrases:
                    of_phrases[phrases[word.span]] += word.value
            values |= _remaining(explanation, values)
            by_hit.append(values)
            for key, value in values.items():
                total[key] += value
        for candidates in ({key: value for key, value in total.items() if key[0] in _TERMS}, of_phrases):
            if candidates and candidates[key := max(candidates, key=candidates.__getitem__)] > 0:
                self._largest[key] += 1
        for key, value in (*total.items(), *of_phrases.items()):
            if key[0] != _ONE_WORD:
                self._names.setdefault(key, key[1])
                self._values[key][len(self.scores)] = value
        self.scores.append(math.fsum(explanation.score for _, explanation in hits))
        self.n_scores += len(hits)
        self._add_hanging(query, hits, by_hit)

    def _add_hanging(self, query: str, hits: Sequence[tuple[str, Explanation]], by_hit: Sequence[_Values]) -> None:
        """Keep the query if its best hit hangs on one term."""
        (name, explanation), values = hits[0], by_hit[0]
        specific = explanation.score - sum(value for key, value in values.items() if key[0] == COMMON)
        key = max((key for key in values if key[0] in _TERMS), key=values.__getitem__, default=(OTHERS, ""))
        if specific <= SCORE_EPS or key[0] == OTHERS or values[key] <= _HANGING_SHARE * specific:
            return
        scores = [hit.score - of_hit.get(key, 0.0) for (_, hit), of_hit in zip(hits, by_hit)]
        first = max(range(len(hits)), key=scores.__getitem__)
        first_without = hits[first][0] if scores[first] > scores[0] + SCORE_EPS else None
        share = values[key] / specific
        self.hanging.append(HangingQuery(query, self._names[key], share, explanation.score, name, first_without))

    def drivers(self) -> Iterator[Driver]:
        """Yield what drives the scores: terms and phrases by falling size, then what has no line."""
        sums = {key: math.fsum(values.values()) for key, values in self._values.items()}
        keys = sorted(sums, key=lambda key: (key[0] not in (*_TERMS, PHRASE), -abs(sums[key]), key))
        scores, draws = np.array(self.scores), self._draws()
        totals = np.array([max(float(draw @ scores), SCORE_EPS) for draw in draws])
        for key in keys:
            values, share = self._values[key], share_of(sums[key], float(scores.sum()))
            low = high = None
            if len(draws) and share:
                drawn = draws[:, list(values)] @ np.array(list(values.values())) / totals
                low, high = np.percentile(drawn, (2.5, 97.5)).tolist()
            yield Driver(self._names[key], key[0], share, low, high, len(values), self._largest[key])

    def _draws(self) -> np.ndarray:
        """Return how often each query is drawn, uint8 [draws, queries]; no draws of too few queries."""
        n_queries, random = len(self.scores), np.random.default_rng(0)
        n_draws = _N_DRAWS if n_queries >= MIN_QUERIES else 0
        draws = np.empty((n_draws, n_queries), np.uint8)
        for draw in draws:
            draw[:] = np.bincount(random.integers(n_queries, size=n_queries), minlength=n_queries)
        return draws


def _phrases(explanation: Explanation, names: Mapping[Span, str]) -> dict[Span | None, _Key]:
    """Return the phrase that each word of text 1 is in; phrases of one word have a kind that is not counted."""
    phrases: dict[Span | None, _Key] = {}
    for start, end in explanation.phrase_spans():
        words = [span for span in names if start <= span[0] and span[1] <= end]
        kind = PHRASE if len({names[span].lower() for span in words}) > 1 else _ONE_WORD
        phrases |= dict.fromkeys(words, (kind, phrase_text(explanation.texts[0], (start, end)).lower()))
    return phrases


def _remaining(explanation: Explanation, values: Mapping[_Key, float]) -> dict[_Key, float]:
    """Return what a score has beside the terms that are named; with these it adds up to the score."""
    kinds = (COMMON, CONTEXT, REMAINDER)
    sums = {(line.kind, line.name): line.contribution for line in explanation.groups(1) if line.kind in kinds}
    sums[OTHERS, _ALL_ELSE] = explanation.score - math.fsum((*values.values(), *sums.values()))
    return sums
