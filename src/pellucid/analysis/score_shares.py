"""What drives the scores of many queries or pairs: the words and dimensions that add most to them.

The share of a word is what it adds in all scores over the sum of these. Its interval is the middle 95 % of that share
when the queries are drawn again with replacement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from pellucid.analysis.comparing import Pair, check_pairs
from pellucid.analysis.coordinates import check_model
from pellucid.core.embedder import Embedder
from pellucid.errors import InputError
from pellucid.explain.explanation import Explanation
from pellucid.explain.groups import COMMON, OTHERS
from pellucid.explain.rows import CONTEXT, DIMENSION, EMBEDDING, KEY_TOKEN, REMAINDER, SCORE_EPS, WORD, share_of
from pellucid.explain.summary import joined_names
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers
from pellucid.explain.views.report import Report
from pellucid.progress import check_cancelled

MIN_QUERIES = 5
"""Queries below which shares have no interval."""

_TERMS = (WORD, DIMENSION, KEY_TOKEN)
_N_DRAWS = 1_000  # of the bootstrap
_SHOWN_DRIVERS = 25
_ALL_ELSE = "small words and the rest"
_PLURALS = {"query": "queries", "pair": "pairs"}

_Key = tuple[str, str]  # kind, and name in lower case


class Driver(NamedTuple):
    """A word or dimension, or what has no line; their shares add up to 1."""

    name: str  # as it is first written
    kind: str  # "word", "dimension", "key token", or what else a score is made of
    share: float  # of the sum of all scores
    low: float | None  # the lower end of its 95 % interval; None for fewer than 5 queries
    high: float | None  # the upper end
    queries: int  # that have it


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
        drivers: words and dimensions by falling size of their share, then what has no line.
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

    def _parts(self) -> Iterator[AnyPart]:
        plural = _PLURALS[self.subject]
        n_queries = counted(self.queries, self.subject, plural)
        yield Heading("What drives the scores", n_queries, f"{counted(self.scores, 'score')}, {self.source}")
        if self.left_out:
            yield Note(f"{counted(self.left_out, self.subject, plural)} without a score: left out.")
        if self.mean_score <= SCORE_EPS:
            yield Note("The scores add up to 0 or less, so there are no shares.", is_warning=True)
        elif self.queries < MIN_QUERIES:
            yield Note(f"No intervals: they need at least {MIN_QUERIES} {plural}.")
        terms = [driver for driver in self.drivers if driver.kind in _TERMS]
        sums = [(driver.name, driver.share) for driver in self.drivers if driver.kind not in _TERMS]
        if len(terms) > _SHOWN_DRIVERS:
            sums.insert(
                0, (f"{len(terms) - _SHOWN_DRIVERS:,} more", math.fsum(d.share for d in terms[_SHOWN_DRIVERS:]))
            )
        rows = []
        for item in terms[:_SHOWN_DRIVERS]:
            interval = "" if item.low is None else f"{item.low:.1%} to {item.high:.1%}"
            rows.append((item.name, f"{item.share:.1%}", item.share, interval, f"{item.queries:,}"))
        columns = [("", "name"), *numbers("share"), ("", "bar"), *numbers("95 %", plural)]
        unlisted = tuple((name, f"{share:.1%}", None, "", "") for name, share in sums)
        yield TablePart.of("", columns, rows)._replace(sums=unlisted)


def drivers(model: Embedder, pairs: Iterable[Pair]) -> Drivers:
    """Find the words and dimensions that the similarities of many pairs of texts rest on.

    Words are those of the first texts. `Index.drivers` does the same for queries and their hits.

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
    totals: list[float] = []  # of each query the sum over its hits
    values: defaultdict[_Key, dict[int, float]] = defaultdict(dict)  # by term and query
    names: dict[_Key, str] = {}
    n_scores = left_out = 0
    for _, hits in explained:
        check_cancelled()
        explanations = [explanation for _, explanation in hits if len(explanation.rows)]
        if not explanations:
            left_out += 1
            continue
        for explanation in explanations:
            for (kind, name), value in _terms(explanation):
                key = kind, name.lower()
                names.setdefault(key, name)
                values[key][len(totals)] = values[key].get(len(totals), 0.0) + value
        totals.append(math.fsum(explanation.score for explanation in explanations))
        n_scores += len(explanations)
    if not totals:
        raise InputError(f"no {subject} of {left_out:,} has a score; give texts with words that are known")
    sums = {key: math.fsum(by_query.values()) for key, by_query in values.items()}
    total, draws = math.fsum(totals), _draws(len(totals))
    drawn_totals = np.maximum(draws @ np.array(totals), SCORE_EPS)
    records = []
    for key in sorted(sums, key=lambda key: (key[0] not in _TERMS, -abs(sums[key]), key)):
        share, low, high = share_of(sums[key], total), None, None
        if len(draws) and share:
            drawn = draws[:, list(values[key])] @ np.array(list(values[key].values())) / drawn_totals
            low, high = np.percentile(drawn, (2.5, 97.5)).tolist()
        records.append(Driver(names[key], key[0], share, low, high, len(values[key])))
    return Drivers(source, subject, len(totals), left_out, n_scores, total / n_scores, tuple(records))


def _terms(explanation: Explanation) -> Iterator[tuple[_Key, float]]:
    """Yield kind, name and value of the terms of a score; with what has no line they add up to it."""
    words = explanation.word_sums()
    joined, values = joined_names(words), list[float]()
    for word in words:
        if word.kind in (*_TERMS, EMBEDDING):
            values.append(word.value)
            yield (word.kind, word.name if word.span is None else joined[word.span]), word.value
    for line in explanation.groups(1):
        if line.kind in (COMMON, CONTEXT, REMAINDER):
            values.append(line.contribution)
            yield (line.kind, line.name), line.contribution
    yield (OTHERS, _ALL_ELSE), explanation.score - math.fsum(values)


def _draws(n_queries: int) -> np.ndarray:
    """Return how often each query is drawn [draws, queries]; no draws of too few queries."""
    random, n_draws = np.random.default_rng(0), _N_DRAWS if n_queries >= MIN_QUERIES else 0
    return random.multinomial(n_queries, np.full(n_queries, 1 / n_queries), n_draws)
