"""Phrases of two texts that match, from what each pair of their words adds to a score; no parser is needed.

Function words are left aside at first. A content word and one of the other text are a pair if each is nearly the best
partner of the other, and they stand at about the same place of their texts; each word has one partner at most, the best
pairs first. Pairs that are neighbours in both texts are one phrase, a content word without a partner joins the phrase
of a neighbour, and small words join the content word that they stand before. Punctuation always ends a phrase.

What is left is cut into runs of at most three content words, and shorter neighbours are joined up to that length, so
that every content word is in a phrase. How well people agree with the matches is measured in `benchmarks/phrases.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple
from unicodedata import category

import numpy as np
import numpy.typing as npt

from pellucid.text.function_words import function_words
from pellucid.text.words import Span

# Chosen on SemEval-2016 iSTS answers-students: for token-pair F1, and where it hardly differs for the boundaries.
MIN_MATCH = 0.75
"""Of a pair of words, as a share of the root of each one's best value, after the factor for distance."""
DISTANCE_WEIGHT = 0.3
"""What a pair loses whose words stand at opposite ends of their texts."""
MIN_OF_BEST_PAIR = 0.15
"""Of the value of the strongest pair of words; weaker ones are no match."""
MAX_JOINED_WORDS = 3
"""Content words of a phrase that no match holds together."""

MAX_CHAIN = 3
"""Content words without a match that join the match after them."""

_MAX_CACHED_CHARS = 20_000  # of a text whose words are remembered
_BLANKS = ("", " ")  # between words that belong together
_TIE_DECIMALS = 9  # of a match; what differs by less is rounding
_INNER_MARKS = frozenset("'\u2019\"\u201c\u201d\u201e\u00ab\u00bb-\u2010\u2011\u2013/&%#@*_\u00b7\u30fb")
_TYING_MARKS = _INNER_MARKS | frozenset(".")  # without a blank: "don't", "U.S.", "low-dose"

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class WordsOfText:
    """The words of a text in order, and how they hang together.

    Attributes:
        spans: where the words stand.
        content: the content words, by their positions among the words.
        positions: where each content word stands, from 0 to 1.
        named: the words with a vector, and negations: a phrase is shown from the first to the last of them.
        is_tied: for each word but the last, whether a mark without a blank ties it to the next ("don't").
        breaks: for each word but the last, whether punctuation stands after it.
        touches: for each content word but the last, whether it and the next may be one phrase.
    """

    def __init__(self, text: str, spans: Sequence[Span], unknown: Collection[Span]) -> None:
        """Take a text, where its words stand, and where those without a vector do."""
        self.spans = spans
        words = [text[start:end].lower() for start, end in spans]
        gaps = [text[end:start] for (_, end), (start, _) in pairwise(spans)]
        small, joining, negation = function_words(words)
        self.content = [n for n, word in enumerate(words) if word not in small] or list(range(len(spans)))
        self.positions: Floats = (np.array(self.content) + 0.5) / max(len(spans), 1)
        without_vector = set(unknown)
        named = {*self.content, *(n for n, word in enumerate(words) if word in negation)}
        self.named = {n for n in named if spans[n] not in without_vector}
        self.is_tied = [
            gap in _TYING_MARKS or (gap in (",", ":") and words[n].isdigit() and words[n + 1].isdigit())
            for n, gap in enumerate(gaps)
        ]
        self.breaks = [gap not in _BLANKS and not tied and ends_phrase(gap) for gap, tied in zip(gaps, self.is_tied)]
        self.touches = [
            not self.breaks[n] if after == n + 1 else words[n + 1] in joining and True not in self.breaks[n:after]
            for n, after in pairwise(self.content)
        ]


class Phrases(NamedTuple):
    """A text cut into segments, which are phrases or a few small words in no phrase."""

    starts: list[int]  # the first word of each segment
    spans: list[Span]  # in characters, without small words at the ends
    is_phrase: list[bool]
    matches: list[int]  # the number of its match, -1 for none; a match may have several phrases


def words_of_text(text: str, spans: Sequence[Span], unknown: Collection[Span] = ()) -> WordsOfText:
    """Return the words that stand at `spans`, with the function words of their language.

    Args:
        text: the text.
        spans: where the words stand, in order and without overlap.
        unknown: those without a vector; they are in phrases, but not at their ends.
    """
    find = WordsOfText if len(text) > _MAX_CACHED_CHARS else _cached_words_of_text
    return find(text, tuple(spans), tuple(unknown))


_cached_words_of_text = lru_cache(maxsize=32)(WordsOfText)  # the hits of a search have one text 1, the query


@lru_cache(maxsize=1024)
def ends_phrase(gap: str) -> bool:
    """Whether what stands between two words ends a phrase: a line's end, or punctuation that is not inside a word."""
    return any(mark == "\n" or (mark not in _INNER_MARKS and category(mark)[0] == "P") for mark in gap)


def match_words(
    values: Floats, first: WordsOfText, second: WordsOfText, *, of_both: bool = True
) -> tuple[list[int], list[int]]:
    """Return the match of each content word of two texts, -1 for none; words of one number match.

    Args:
        values: what each pair of words adds to the score, float64 [words of text 1, words of text 2].
        first: the words of text 1.
        second: the words of text 2.
        of_both: whether words of text 2 join their neighbours, too; not where nobody asks for its phrases.
    """
    table = np.maximum(values[np.ix_(first.content, second.content)], 0.0)
    largest = float(table.max(initial=0.0))
    if not largest:
        return [-1] * len(first.content), [-1] * len(second.content)
    best = np.sqrt(table.max(axis=1)), np.sqrt(table.max(axis=0))
    strength = table / (np.multiply.outer(*best) + np.finfo(np.float64).tiny)
    nearness = strength * (1.0 - DISTANCE_WEIGHT * np.abs(np.subtract.outer(first.positions, second.positions)))
    nearness[table < MIN_OF_BEST_PAIR * largest] = 0.0
    pairs = _best_pairs(nearness)
    matches1, matches2 = [-1] * len(first.content), [-1] * len(second.content)
    _join_neighbours(pairs, first, second, matches1, matches2)
    return (
        _with_neighbours(matches1, matches2, strength, first.touches),
        _with_neighbours(matches2, matches1, strength.T, second.touches) if of_both else matches2,
    )


def _best_pairs(nearness: Floats) -> dict[int, int]:
    """Return pairs of a row and a column of `nearness`, each in one pair at most, the best first, by rows."""
    rows, columns = np.nonzero(nearness >= MIN_MATCH)
    order = np.argsort(-np.round(nearness[rows, columns], _TIE_DECIMALS), kind="stable")
    pairs: dict[int, int] = {}
    used_columns: set[int] = set()
    for row, column in zip(rows[order].tolist(), columns[order].tolist()):
        if row not in pairs and column not in used_columns:
            pairs[row] = column
            used_columns.add(column)
    return pairs


def _join_neighbours(
    pairs: dict[int, int], first: WordsOfText, second: WordsOfText, matches1: list[int], matches2: list[int]
) -> None:
    """Number the matches: a pair belongs to the one before it if the two are neighbours in both texts."""
    number = -1
    for word in sorted(pairs):
        partner, before = pairs[word], pairs.get(word - 1)
        is_joined = before is not None and abs(partner - before) == 1 and first.touches[word - 1]
        if not (is_joined and before is not None and second.touches[min(partner, before)]):
            number += 1
        matches1[word] = matches2[partner] = number


def _with_neighbours(matches: list[int], others: list[int], strength: Floats, touches: list[bool]) -> list[int]:
    """Let each content word without a match join that of a neighbour which it touches: where it fits best.

    A chain of at most `MAX_CHAIN` such words joins the match after it. `strength` is how well each word fits those of
    the other text.
    """
    of_others = np.array(others)
    joined, chains = matches[:], [0] * len(matches)

    @cache
    def fits(match: int) -> list[float]:
        return np.round(strength[:, of_others == match].max(axis=1, initial=0.0), _TIE_DECIMALS).tolist()  # type: ignore[no-any-return]

    for word in range(len(matches) - 1, -1, -1):
        if joined[word] >= 0:
            continue
        is_near = word + 1 < len(joined) and touches[word] and chains[word + 1] < MAX_CHAIN
        after = joined[word + 1] if is_near else -1
        before = matches[word - 1] if word and touches[word - 1] else -1
        if after >= 0 and before >= 0:
            joined[word] = max((after, before), key=lambda match: (fits(match)[word], match))
        else:
            joined[word] = max(after, before)
        chains[word] = chains[word + 1] + 1 if after >= 0 else 1
    return joined


def cut_into_phrases(words: WordsOfText, matches: list[int] | None = None) -> Phrases:
    """Return a text as phrases, given the match of each content word; None where nothing matches."""
    runs = _joined_runs(words, _runs(words, matches if matches is not None else [-1] * len(words.content)))
    n_words = len(words.spans)
    labels = [-1] * n_words
    for number, (start, end, _) in enumerate(runs):
        for word in range(words.content[start], words.content[end - 1] + 1):
            labels[word] = number
    _join_tied(labels, words.is_tied)
    for word in range(n_words - 2, -1, -1):  # small words join what they stand before, else what they stand behind
        if labels[word] < 0 and not words.breaks[word]:
            labels[word] = labels[word + 1]
    for word in range(1, n_words):
        if labels[word] < 0 and not words.breaks[word - 1]:
            labels[word] = labels[word - 1]
    starts = [
        word
        for word in range(n_words)
        if not word or labels[word] != labels[word - 1] or (labels[word] < 0 and words.breaks[word - 1])
    ]
    ends = [*starts[1:], n_words] if starts else []
    spans = [_shown_span(words, start, end) for start, end in zip(starts, ends)]
    numbers = [labels[start] for start in starts]
    return Phrases(starts, spans, [n >= 0 for n in numbers], [runs[n][2] if n >= 0 else -1 for n in numbers])


def _join_tied(labels: list[int], is_tied: list[bool]) -> None:
    """Give words that a mark ties together ("1,000", "tissue-resident") the phrase of the last content word of them."""
    for word in range(len(labels) - 2, -1, -1):
        if is_tied[word] and labels[word + 1] >= 0:
            labels[word] = labels[word + 1]
    for word in range(1, len(labels)):
        if is_tied[word - 1] and labels[word] < 0:
            labels[word] = labels[word - 1]


def _shown_span(words: WordsOfText, start: int, end: int) -> Span:
    """Return where a phrase stands without small and unknown words at its ends: "a heart attack" as "heart attack"."""
    shown = [word for word in range(start, end) if word in words.named] or [start, end - 1]
    first, last = shown[0], shown[-1]
    while first > start and words.is_tied[first - 1]:
        first -= 1
    while last < end - 1 and words.is_tied[last]:
        last += 1
    return words.spans[first][0], words.spans[last][1]


def _runs(words: WordsOfText, matches: list[int]) -> list[tuple[int, int, int]]:
    """Return runs of content words: start, end, match. Those without a match are as long as `MAX_JOINED_WORDS`."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    for end in range(1, len(matches) + 1):
        if end < len(matches) and matches[end] == matches[start] and words.touches[end - 1]:
            continue
        n_pieces = 1 if matches[start] >= 0 else -(-(end - start) // MAX_JOINED_WORDS)
        cuts = [start + (end - start) * piece // n_pieces for piece in range(n_pieces + 1)]
        runs += [(first, last, matches[start]) for first, last in pairwise(cuts)]
        start = end
    return runs


def _joined_runs(words: WordsOfText, runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join runs that are direct neighbours while they have at most `MAX_JOINED_WORDS` words; the shortest first."""
    for size in range(2, MAX_JOINED_WORDS + 1):
        joined: list[tuple[int, int, int]] = []
        for start, end, match in runs:
            if joined and end - joined[-1][0] == size and words.touches[start - 1]:
                if words.content[start] - words.content[start - 1] == 1:
                    before = joined.pop()
                    start, match = before[0], before[2] if before[2] >= 0 else match
            joined.append((start, end, match))
        runs = joined
    return runs
