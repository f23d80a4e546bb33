"""What a score loses without some words: Shapley values of words, and the fewest words whose removal brings it down.

The Shapley value of a word is what it adds to the words before it, on average over the orders in which the words can be
put. The values add up to the score of the text less that of a text without words, whatever the score is. With up to
`MAX_EXACT_PLAYERS` words all sets of words are read. Of more words random orders are drawn, the same for the same text,
each followed by its reverse (antithetic sampling, which has smaller errors), and the spread between the pairs gives the
standard error. A text of more than `MAX_PLAYERS` words is divided into phrases, sentences or groups of these, so that
the number of texts that are read is bounded.

A score may be a number, such as that of a reranker, or a vector, see `dense/measured.py`.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise, permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.query import Floats, Integers, Marks, Terms
from pellucid.errors import InputError, check_number
from pellucid.explain.checks import without
from pellucid.explain.groups import phrase_text
from pellucid.explain.phrases import phrase_starts, words_of_text
from pellucid.explain.rows import EMBEDDING, WORD, Measurement, Row
from pellucid.text.sentences import sentence_spans
from pellucid.text.unicode import canonicalize, lowercase
from pellucid.text.words import Span, spans_by

N_ORDER_PAIRS = 3
"""Pairs of a random order and its reverse: on STS-B the values then agree with 8 other pairs by a rank correlation of
.93, and with leaving out single words by .81; 2 pairs give .91 and .78, 8 pairs .94 and .81."""
MAX_EXACT_PLAYERS = 5
"""Words of a text of which all sets are encoded: 2^5 texts, no more than the drawn orders would need."""
MAX_PLAYERS = 24
"""Words, or phrases of a longer text, that are left out one by one."""
MAX_VARIANTS = 2 * N_ORDER_PAIRS * (MAX_PLAYERS - 1) + 1
"""Texts that are encoded at most to measure one text."""

EMPTY_PASSAGE = "the score of an empty passage"
EMPTY_PART = "(no words)"
"""The part of a text that has none."""


class Coalitions(NamedTuple):
    """The sets of players whose values are needed, and how Shapley values follow from them."""

    members: npt.NDArray[np.bool_]  # [sets, players]; first no player, then all
    weights: Floats  # [estimates, players, sets]; each estimate @ values of the sets: Shapley values

    def values(self, of_sets: Floats) -> tuple[Floats, Floats]:
        """Return Shapley values [players, ...] and the estimates that they are the mean of [estimates, players, ...].

        Args:
            of_sets: the values of the sets, numbers [sets] or vectors [sets, dimension].
        """
        estimates = np.tensordot(self.weights, of_sets, axes=1)
        return estimates.mean(axis=0), estimates


def coalitions(n_players: int, n_pairs: int = N_ORDER_PAIRS, seed: int = 0) -> Coalitions:
    """Return the sets of players in all orders of a few, else in `n_pairs` random orders and their reverses."""
    if n_players <= MAX_EXACT_PLAYERS:
        orders = [list(permutations(range(n_players)))]
    else:
        draw = np.random.default_rng(seed)
        drawn = [draw.permutation(n_players).tolist() for _ in range(n_pairs)]
        orders = [[order, order[::-1]] for order in drawn]
    steps = [  # of each estimate: a player, the set before it and the set with it
        (estimate, player, frozenset(order[:index]), frozenset(order[: index + 1]))
        for estimate, group in enumerate(orders)
        for order in group
        for index, player in enumerate(order)
    ]
    sets = dict.fromkeys([frozenset[int](), frozenset(range(n_players)), *(after for *_, after in steps)])
    number_of = {players: number for number, players in enumerate(sets)}
    members = np.zeros((len(sets), n_players), np.bool_)
    for players, number in number_of.items():
        members[number, list(players)] = True
    weights = np.zeros((len(orders), n_players, len(sets)))
    for estimate, player, before, after in steps:
        weights[estimate, player, number_of[after]] += 1 / len(orders[0])
        weights[estimate, player, number_of[before]] -= 1 / len(orders[0])
    return Coalitions(members, weights)


def players_of(text: str, words: Sequence[Span], max_players: int = MAX_PLAYERS) -> list[tuple[Span, ...]]:
    """Return what is left out of a text: its words, or where they are too many phrases, sentences, or runs of these.

    Args:
        text: the text.
        words: where its words stand, in order.
        max_players: how many there may be.
    """
    if len(words) <= max_players:
        return [(word,) for word in words]
    starts = phrase_starts(words_of_text(text, words))
    phrases = [list(range(start, end)) for start, end in zip(starts, [*starts[1:], len(words)])]
    ends = [end for _, end in sentence_spans(text)]
    sentences = [list(group) for _, group in groupby(phrases, lambda phrase: bisect_right(ends, words[phrase[0]][0]))]
    longest = max(map(len, sentences))
    length = next((n for n in range(1, longest) if sum(-(-len(s) // n) for s in sentences) <= max_players), longest)
    units = [unit for sentence in sentences for unit in _joined(sentence, -(-len(sentence) // length))]
    return [tuple(words[n] for n in unit) for unit in _joined(units, min(max_players, len(units)))]


def _joined(runs: list[list[int]], count: int) -> list[list[int]]:
    """Join neighbouring runs to `count` ones of about equally many."""
    cuts = [len(runs) * n // count for n in range(count + 1)]
    return [[word for run in runs[start:end] for word in run] for start, end in pairwise(cuts)]


class Variants:
    """A text without each of the sets of words whose values are needed."""

    def __init__(self, text: str, words: Sequence[Span]) -> None:
        """Take a text and where those of its words stand that can be left out."""
        self.text = text
        self.players = players_of(text, words)
        digest = hashlib.blake2b(canonicalize(text).encode("utf-8", "replace"), digest_size=8).digest()
        seed = int.from_bytes(digest, "big")  # of the text alone, so that its orders are the same everywhere
        self.coalitions = coalitions(len(self.players), seed=seed)

    @property
    def texts(self) -> list[str]:
        """The text without the players outside of each set; of no player, the first, nothing is encoded."""
        return [self.without_players(np.flatnonzero(~inside)) for inside in self.coalitions.members[1:]]

    @property
    def spans(self) -> list[Span]:
        """Where each player stands."""
        return [(words[0][0], words[-1][1]) for words in self.players]

    def without_players(self, players: Sequence[int] | Integers) -> str:
        """Return the text without some players."""
        return without(self.text, [span for player in players for span in self.players[player]])

    def rows(self) -> tuple[list[Row], Floats]:
        """Return a row for each distinct player, and which players it holds [rows, players]."""
        return distinct_rows(self.text, self.spans, WORD)


def distinct_rows(text: str, spans: Sequence[Span], kind: str) -> tuple[list[Row], Floats]:
    """Return a row for each distinct part of a text, whatever its case, and which of the parts it holds [rows, parts].

    An empty part is called `EMPTY_PART` and stands nowhere.
    """
    keys = [lowercase(" ".join(canonicalize(text[slice(*span)]).split())) for span in spans]
    spans_of = spans_by(zip(keys, spans))
    names = [canonicalize(phrase_text(text, spans[0])) or EMPTY_PART for spans in spans_of.values()]
    rows = [
        Row(name, (name,), 0.0, 0.0, spans if key else (), key=(key,), kind=kind)
        for name, (key, spans) in zip(names, spans_of.items())
    ]
    row_of = {key: number for number, key in enumerate(spans_of)}
    holds = np.zeros((len(rows), len(keys)))
    holds[[row_of[key] for key in keys], np.arange(len(keys))] = 1.0
    return rows, holds


def standard_errors(estimates: Floats) -> Floats:
    """Return the standard errors of means of estimates [estimates, values]; 0 where there is one, which is exact."""
    if len(estimates) < 2:
        return np.zeros(estimates.shape[1])
    return np.asarray(estimates.std(axis=0, ddof=1) / math.sqrt(len(estimates)))


def root_mean_square(values: Floats) -> float:
    """Return the root of the mean square of some numbers; 0 for none."""
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0


class Passage(NamedTuple):
    """A text with a score, whose words can be left out.

    Attributes:
        text: the text.
        words: where its words stand, in order.
        own_score: its score.
        score: from texts to their scores.
    """

    text: str
    words: Sequence[Span]
    own_score: float
    score: Callable[[list[str]], Floats]

    def scores(self, texts: Iterable[str]) -> dict[str, float]:
        """Return the scores of texts, each read once, in one call."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, self.score(distinct).tolist())) if distinct else {}


def passage_terms(passage: Passage, weight: float = 1.0) -> Terms:
    """Take a score apart by the words of a passage: what a reranker, or any function of a text, makes of them.

    Args:
        passage: the passage; what is needed is scored in one call.
        weight: what all values are multiplied by.

    Returns:
        A value for each distinct word, or phrase of a long passage, and the score of an empty passage; they add up to
        the score. Rows have their places as `spans2`.
    """
    variants = Variants(passage.text, passage.words)
    scores = passage.scores(["", *variants.texts[1:]])
    rows = [Row(EMPTY_PASSAGE, (EMPTY_PASSAGE,), 0.0, 0.0, key=(EMPTY_PASSAGE,), kind=EMBEDDING)]
    if not variants.players:
        return Terms(
            np.array([passage.own_score * weight]), rows.__getitem__, measurement=Measurement(len(scores), 0.0)
        )
    of_sets = np.array([scores[""], passage.own_score, *(scores[text] for text in variants.texts[1:])])
    values, estimates = variants.coalitions.values(of_sets)
    words, holds = variants.rows()
    error = root_mean_square(standard_errors(estimates @ holds.T)) * abs(weight)
    rows = [*(row._replace(spans1=(), spans2=row.spans1) for row in words), *rows]
    return Terms(
        np.append(holds @ values, scores[""]) * weight,
        rows.__getitem__,
        Marks(values * weight, np.array(variants.spans, np.int64)),
        measurement=Measurement(len(scores), error),
    )


class RemovedWords(NamedTuple):
    """A word, or phrase or sentence of a long passage, that is removed."""

    text: str
    start: int  # in the passage, in characters
    end: int


class Counterfactual(NamedTuple):
    """The fewest words of a passage whose removal brings its score below a threshold."""

    passage: str  # the passage
    removed: tuple[RemovedWords, ...]  # what is removed from it, in text order
    shortened: str  # the passage without these
    score: float  # of the passage
    score_without: float  # of the shortened passage
    below: float  # the threshold
    is_fewest: bool  # whether no fewer words can do it; else a smaller set may have been missed
    n_texts: int  # how many shortened passages were scored to find it


def fewest_removals(passage: Passage, below: float) -> Counterfactual:
    """Return the fewest words of a passage whose removal brings its score below a threshold.

    Words are removed one by one, each time the one without which the score is lowest, until it is below; then those are
    put back without which it stays below. Of more than `MAX_PLAYERS` words, phrases or sentences are removed.

    Raises:
        InputError: `below` is not finite, or the score is below already, or stays above as long as a word is left.
    """
    check_number("below", below)
    if not passage.own_score >= below:
        raise InputError(f"the score is {passage.own_score:.6g}, which is below {below:.6g} already")
    variants, scores = Variants(passage.text, passage.words), dict[str, float]()
    n_players = len(variants.players)
    if n_players < 2:
        raise InputError("the passage has fewer than two words, so that none can be removed")

    def scored(sets: Sequence[list[int]]) -> list[tuple[float, list[int]]]:
        texts = [variants.without_players(players) for players in sets]
        scores.update(passage.scores(text for text in texts if text not in scores))
        return [(scores[text], players) for text, players in zip(texts, sets)]

    path = [(passage.own_score, list[int]())]
    while path[-1][0] >= below and len(path) < n_players:
        removed = path[-1][1]
        path.append(min(scored([[*removed, player] for player in range(n_players) if player not in removed])))
    score, removed = min(path[1:])
    if score >= below:
        raise InputError(
            f"no removal brings the score below {below:.6g}: without {len(removed)} of the {n_players} words or "
            f"phrases of the passage it is {score:.6g}"
        )
    while len(removed) > 2:
        fewer = min(scored([[player for player in removed if player != back] for back in removed]))
        if fewer[0] >= below:
            break
        score, removed = fewer
    spans = [variants.spans[player] for player in sorted(removed)]
    return Counterfactual(
        passage.text, tuple(RemovedWords(passage.text[slice(*span)], *span) for span in spans),
        variants.without_players(removed), passage.own_score, score, below, len(removed) <= 2, len(scores),
    )  # fmt: skip
