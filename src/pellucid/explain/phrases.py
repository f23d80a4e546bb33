"""Words of two texts that match, from what each pair of them adds to a score; no parser is needed.

A match is earned by its words. Two content words match if each is the best partner of the other and the pair has a
share of what all pairs add. Matches that are neighbours in both texts, in the same order, are one if both are of
equal words, or neither is. A word without a partner of its own joins the match of its best partner where it adds at
least half of what that has: several words of one text match one of the other. A word that would bring less than
`MIN_WORD_SHARE` of a match is not in it. Words are told apart by how they are written, whatever
their case.

For measured reasons of long texts, `phrase_starts` cuts a text into runs of at most three content words with the small
words before them; punctuation always ends a run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from unicodedata import category

import numpy as np
import numpy.typing as npt

from pellucid.process import cached_property
from pellucid.text.function_words import function_words
from pellucid.text.words import Span

MIN_PAIR_SHARE = 0.04
"""Of what all pairs of words that raise a score add together, from which a pair is a match."""
MIN_WORD_SHARE = 0.08
"""Of a match, which each of its words brings."""
MIN_OF_PARTNER = 0.5
"""Of the strongest pair of its best partner, from which a word joins the match of that."""
MAX_JOINED_WORDS = 3
"""Content words of each text in a match, and of a run that `phrase_starts` cuts."""

_MAX_CACHED_CHARS = 20_000  # of a text whose words are remembered
_BLANKS = ("", " ")  # between words that belong together
TIE_DECIMALS = 9  # of what a pair adds; what differs by less is rounding
_INNER_MARKS = frozenset("'\u2019\"\u201c\u201d\u201e\u00ab\u00bb-\u2010\u2011\u2013/&%#@*_\u00b7\u30fb")
_TYING_MARKS = _INNER_MARKS | frozenset(".")  # without a blank: "don't", "U.S.", "low-dose"

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class WordsOfText:
    """The words of a text in order, and how they hang together.

    What is asked of few words is found when it is asked: of a document, few words match those of a query.

    Attributes:
        spans: where the words stand.
        words: the distinct words, in lower case, in the order of their first places.
        numbers: for each place, the number of its word among the distinct ones.
        matched: numbers of the words that can match: those with a vector that carry content or deny.
    """

    def __init__(self, text: str, spans: Sequence[Span], unknown: Collection[Span]) -> None:
        """Take a text, where its words stand, and where those without a vector do."""
        self._text, self.spans = text, spans
        number_of: dict[str, int] = {}
        self.numbers = [number_of.setdefault(text[start:end].lower(), len(number_of)) for start, end in spans]
        self.words = list(number_of)
        small, self._joining, negation = function_words(self.words)
        small = small.difference(text[start].lower() for start, end in spans if is_letter(text, (start, end)))
        self._content = set(self.words) - small or set(self.words)
        self._carriers = {number_of[word] for word in self._content | (negation & number_of.keys())}
        without_vector = set(unknown)
        numbers_with_vector = (
            {n for n, span in zip(self.numbers, spans) if span not in without_vector} if unknown else self._carriers
        )
        self.matched = sorted(self._carriers & numbers_with_vector)

    @cached_property
    def content(self) -> list[int]:
        """The content words, by their positions among the words."""
        return [position for position, number in enumerate(self.numbers) if self.words[number] in self._content]

    @cached_property
    def is_tied(self) -> list[bool]:
        """For each word but the last, whether a mark without a blank ties it to the next ("don't")."""
        return [self._ties(position) for position in range(len(self.spans) - 1)]

    @cached_property
    def breaks(self) -> list[bool]:
        """For each word but the last, whether punctuation stands after it."""
        return [self._breaks_after(position) for position in range(len(self.spans) - 1)]

    def _gap(self, position: int) -> str:
        return self._text[self.spans[position][1] : self.spans[position + 1][0]]

    def _ties(self, position: int) -> bool:
        gap = self._gap(position)
        if gap not in (",", ":"):
            return gap in _TYING_MARKS
        return all(self.words[number].isdigit() for number in self.numbers[position : position + 2])

    def _breaks_after(self, position: int) -> bool:
        gap = self._gap(position)
        return gap not in _BLANKS and not self._ties(position) and ends_phrase(gap)

    def touch(self, position: int, after: int) -> bool:
        """Whether two words that carry content, by their places, may be one phrase."""
        if after > position + 1 and self.words[self.numbers[position + 1]] not in self._joining:
            return False
        return not any(map(self._breaks_after, range(position, after)))

    def joint_span(self, first: int, second: int) -> Span | None:
        """Return where two words that may be one phrase first stand so, by their numbers; None for nowhere."""
        for position in [position for position, number in enumerate(self.numbers) if number == first]:
            after = next((n for n in range(position + 1, len(self.numbers)) if self.numbers[n] in self._carriers), None)
            if after is not None and self.numbers[after] == second and self.touch(position, after):
                return self.spans[position][0], self.spans[after][1]
        return None

    def everywhere(self, spans: Sequence[Span]) -> tuple[Span, ...]:
        """Return some places, and all others of the words in them that carry content."""
        numbered_spans = list(zip(self.numbers, self.spans))
        inside = {number for number, word in numbered_spans if any(start <= word[0] < end for start, end in spans)}
        words = inside & self._carriers
        return tuple(sorted({*spans, *(span for number, span in numbered_spans if number in words)}))

    def spans_of(self, words: Sequence[int]) -> tuple[Span, ...]:
        """Return where words of a match stand: neighbours together, where they first are so; others everywhere."""
        spans: list[Span] = []
        for number, word in enumerate(words):
            joined = self.joint_span(words[number - 1], word) if number else None
            if joined and spans and spans[-1][0] <= joined[0] <= spans[-1][1]:
                spans[-1] = spans[-1][0], joined[1]
            elif joined and number == 1:
                spans = [joined]
            else:
                spans += [span for span, of_place in zip(self.spans, self.numbers) if of_place == word]
        return tuple(sorted(set(spans)))


def is_letter(text: str, span: Span) -> bool:
    """Whether a letter is a name: that of "vitamin D", not "I", and not the "A" that begins a sentence."""
    return span[1] == span[0] + 1 and re.fullmatch(r"\w [A-HJ-Z]", text[max(span[0] - 2, 0) : span[1]]) is not None


class Match(NamedTuple):
    """Words of two texts that match, by their numbers in `WordsOfText`; neighbours stand in the order of the text."""

    first: tuple[int, ...]
    second: tuple[int, ...]


def words_of_text(text: str, spans: Sequence[Span], unknown: Collection[Span] = ()) -> WordsOfText:
    """Return the words that stand at `spans`, with the function words of their language.

    Args:
        text: the text.
        spans: where the words stand, in order and without overlap.
        unknown: those without a vector.
    """
    find = WordsOfText if len(text) > _MAX_CACHED_CHARS else _cached_words_of_text
    return find(text, tuple(spans), tuple(unknown))


_cached_words_of_text = lru_cache(maxsize=32)(WordsOfText)  # the hits of a search have one text 1, the query


@lru_cache(maxsize=1024)
def ends_phrase(gap: str) -> bool:
    """Whether what stands between two words ends a phrase: a line's end, another word, or marks that are in no word."""
    return any(
        mark == "\n" or mark.isalnum() or (mark not in _INNER_MARKS and category(mark)[0] == "P") for mark in gap
    )


def match_words(values: Floats, first: WordsOfText, second: WordsOfText, least: float) -> list[Match]:
    """Return the matches of two texts, in the order of text 1.

    Args:
        values: what each pair of distinct words adds, float64 [words of text 1, words of text 2].
        first: the words of text 1.
        second: the words of text 2.
        least: what a pair must add to be a match.
    """
    table = values.take(first.matched, 0).take(second.matched, 1).round(TIE_DECIMALS)
    largest = table.max(initial=0.0)
    if largest <= 0 or largest < least:
        return []
    partners, of_partners = table.argmax(axis=1), table.argmax(axis=0)
    strongest = table.max(axis=1)
    is_match = (of_partners[partners] == np.arange(len(partners))) & (strongest > 0) & (strongest >= least)
    matches: list[tuple[list[int], list[int]]] = []
    for n in is_match.nonzero()[0].tolist():
        word, partner = first.matched[n], second.matched[partners[n]]
        if matches and len(matches[-1][0]) < MAX_JOINED_WORDS:
            before, partner_before = matches[-1][0][-1], matches[-1][1][-1]
            is_same = first.words[word] == second.words[partner]
            is_alike = is_same == (first.words[before] == second.words[partner_before])  # "100 euros", "900 euros"
            if is_alike and first.joint_span(before, word) and second.joint_span(partner_before, partner):
                matches[-1][0].append(word)
                matches[-1][1].append(partner)
                continue
        matches.append(([word], [partner]))
    earned = [part for match in matches for part in _split_match(values, *match)]
    different = [match for match in earned if first.words[match[0][0]] != second.words[match[1][0]]]
    for side, words in enumerate((first, second) if different else ()):
        # what joined equal words would no longer be what both texts say
        free = set(words.matched).difference(*(match[side] for match in earned))
        _join_words(values.T if side else values, words, free, different, side)
    return [Match(tuple(words), tuple(partners)) for words, partners in earned]


def _split_match(values: Floats, words: list[int], partners: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return a match, cut at words that bring too small a share of it."""
    if len(words) == 1:
        return [(words, partners)]
    block = values[np.ix_(words, partners)]
    brought = np.minimum(block.sum(axis=1), block.sum(axis=0))
    least = int(brought.argmin())
    if brought[least] >= MIN_WORD_SHARE * block.sum() > 0:
        return [(words, partners)]
    parts = (slice(least), slice(least, least + 1), slice(least + 1, None))
    return [earned for part in parts if words[part] for earned in _split_match(values, words[part], partners[part])]


def join_words(values: Floats, words: WordsOfText, least: float) -> list[tuple[int, ...]]:
    """Return the words of one text that add at least `least`, neighbours together, given what each word adds."""
    runs: list[list[int]] = []
    for word in words.matched:
        if values[word] < least or values[word] <= 0:
            continue
        run = [*runs[-1], word] if runs and words.joint_span(runs[-1][-1], word) else []
        if run and len(run) <= MAX_JOINED_WORDS and values[run].min() >= MIN_WORD_SHARE * values[run].sum():
            runs[-1] = run
        else:
            runs.append([word])
    return list(map(tuple, runs))


def _join_words(
    values: Floats, words: WordsOfText, free: set[int], matches: list[tuple[list[int], list[int]]], side: int
) -> None:
    """Let free words of one text join the match of their best partner, the strongest first."""
    joining = list[tuple[float, int, int]]()
    for number, match in enumerate(matches):
        partner = match[1 - side][0]
        of_partner = values[:, partner]
        for word in (of_partner >= MIN_OF_PARTNER * of_partner[match[side]].max()).nonzero()[0].tolist():
            if len(match[1 - side]) == 1 and word in free and values[word].argmax() == partner:
                joining.append((-of_partner[word], word, number))
    for _, word, number in sorted(joining):
        match = matches[number]
        block = values[np.ix_([*match[side], word], match[1 - side])].sum(axis=1)
        if len(match[side]) < MAX_JOINED_WORDS and block.min() >= MIN_WORD_SHARE * block.sum():
            is_before = words.joint_span(word, match[side][0])
            match[side].insert(0 if is_before else len(match[side]), word)


def phrase_starts(words: WordsOfText) -> list[int]:
    """Return the first word of each phrase of a text."""
    runs = _joined_runs(words, _runs(words))
    n_words = len(words.spans)
    labels = [-1] * n_words
    for number, (start, end) in enumerate(runs):
        for word in range(words.content[start], words.content[end - 1] + 1):
            labels[word] = number
    # what a mark ties to a word ("1,000", "tissue-resident") is in its phrase; small words join what they stand before,
    # else what they stand behind
    for joins in (words.is_tied, [not is_break for is_break in words.breaks]):
        for word in range(n_words - 2, -1, -1):
            if joins[word] and (labels[word] < 0 or (words.is_tied[word] and labels[word + 1] >= 0)):
                labels[word] = labels[word + 1]
        for word in range(1, n_words):
            if joins[word - 1] and labels[word] < 0:
                labels[word] = labels[word - 1]
    return [
        word
        for word in range(n_words)
        if not word or labels[word] != labels[word - 1] or (labels[word] < 0 and words.breaks[word - 1])
    ]


def _runs(words: WordsOfText) -> list[tuple[int, int]]:
    """Return runs of content words that touch, start and end, at most `MAX_JOINED_WORDS` long."""
    runs: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(words.content) + 1):
        if end < len(words.content) and words.touch(*words.content[end - 1 : end + 1]):
            continue
        n_pieces = -(-(end - start) // MAX_JOINED_WORDS)
        runs += pairwise([start + (end - start) * piece // n_pieces for piece in range(n_pieces + 1)])
        start = end
    return runs


def _joined_runs(words: WordsOfText, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join runs that are direct neighbours while they have at most `MAX_JOINED_WORDS` words; the shortest first."""
    for size in range(2, MAX_JOINED_WORDS + 1):
        joined: list[tuple[int, int]] = []
        for start, end in runs:
            before, first = words.content[start - 1], words.content[start]
            if joined and end - joined[-1][0] == size and first == before + 1 and words.touch(before, first):
                start = joined.pop()[0]
            joined.append((start, end))
        runs = joined
    return runs
