"""The rows of an explanation as a few lines that a person reads: words of text 1 with those that they match.

The number of a line is what its own words add together, and nothing else: all other pairs of words are one line, which
is called no match. Then follow lines for context, for what all texts have in common and for the remainder, so that the
lines add up to the score. Rows that are not of words are lines of their own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from pellucid.explain.phrases import (
    MIN_PAIR_SHARE,
    MIN_WORD_SHARE,
    TIE_DECIMALS,
    Floats,
    WordsOfText,
    join_words,
    match_words,
    words_of_text,
)
from pellucid.explain.rows import (
    CONTEXT,
    REMAINDER,
    SCORE_EPS,
    SENTENCE,
    SHARED,
    WORD,
    WORD_PAIR,
    LazyRows,
    Row,
    WordTable,
    share_of,
)
from pellucid.process import cached_property
from pellucid.text.function_words import MAX_ENDING_CHARS, differ_by_ending
from pellucid.text.words import Span

PHRASE, COMMON, OTHER_LINES = "phrase", "common", "others"
"""Kinds of groups beside those of rows; OTHERS is a sum of rows of several kinds."""
OTHER_KIND = "other "
"""Before the kind of a sum: "other words", "other dimensions"."""
CONTEXT_NAME = "not explained by words (context)"

MIN_CLOSENESS, MAX_FAR = 0.3, 0.2
"""Cosines of the vectors of two words: from the first on they may match; below the second they are nothing to each
other. Of words without vectors what a pair adds decides alone."""
MIN_CLOSE_SHARE = 0.01
"""The same as `MIN_PAIR_SHARE` for words that are close: in long texts no pair adds much."""
LINES_BEYOND = 2
"""Lines beside those of matches; where more are needed, there are fewer matches."""
_MARK = re.compile(
    r"[\"\u201c-\u201e\u00ab\u00bb\u2039\u203a()\[\]{}\u300c-\u300f]|(?<!\w)'(?![^']*[sS]'(?!\w))|(?<=[^\WsS])'(?!\w)"
)
"""A quotation mark or a bracket; not the apostrophe of a word or of "the boys' school"."""
_COMPOUND = re.compile(r"(?<!\w)\w+(?:(?:[-\u2010\u2011]|(?<=\d)[.,:](?=\d))\w+)+")
_MAX_NAME_CHARS = 60  # of a phrase in a name
_ROUNDING = 1e-9  # of the sum of the rows' sizes; a line that adds less is left out


class Group(NamedTuple):
    """A line of a readable explanation: several rows of the score together.

    Attributes:
        name: what a person reads ("home loans → mortgage"), or the name of a row.
        contribution: what the pairs of its own words add to the score.
        share: contribution / score, 0 where the score is 0 (below 1e-6).
        kind: "phrase" for words that match; the kind of the one row that it is ("dimension", "key token",
            "synonym", "sentence", "embedding"); "other words" and the like, or "others", for sums of those that have no
            line; "context", "common" or "remainder".
        spans1: where its words stand in text 1, in characters.
        spans2: where those stand that they match in text 2.
        spans3: the same of text 3, which only a difference of two explanations has.
        without: the score when these words are left out of both texts, or of the document of a hit; None where that
            was not checked.
    """

    name: str
    contribution: float
    share: float
    kind: str
    spans1: tuple[Span, ...] = ()
    spans2: tuple[Span, ...] = ()
    spans3: tuple[Span, ...] = ()
    without: float | None = None

    @property
    def is_of_text(self) -> bool:
        """Whether its name is made of pieces of the texts: a phrase or a sentence."""
        return self.kind in (PHRASE, SENTENCE)

    @property
    def is_sum(self) -> bool:
        """Whether it sums up what has no line of its own."""
        return self.kind in (OTHER_LINES, CONTEXT, COMMON, REMAINDER) or self.kind.startswith(OTHER_KIND)


class _Line(NamedTuple):
    """Words that are one line, and what they add."""

    words: tuple[Sequence[int], ...]  # of each text, their numbers
    value: float


class GroupedRows:
    """The rows of one explanation by words that match, however many of these are shown."""

    def __init__(
        self, rows: Sequence[Row], texts: Sequence[str], unknown: Sequence[Sequence[Span]], score: float
    ) -> None:
        """Take the rows, the texts, of each text the spans without a vector, and what the rows add up to."""
        self._texts, self._score = texts, score
        tables, words, self._rows = _sorted_out(rows, len(texts))
        spans_in = [set(of_text) for of_text in unknown[: len(texts)]]
        for of_table in tables:
            spans_in[0].update(*of_table.spans1)
            spans_in[1].update(*of_table.spans2)
        for row in words:
            for of_text, spans in zip(spans_in, _spans(row)):
                of_text.update(spans)
        read = [read_words(*of_text) for of_text in zip(texts, spans_in, unknown)]
        self._words = [words_of_text for words_of_text, _ in read]
        numbers = [of_text for _, of_text in read]
        self._alone = [np.zeros(len(of_text.words)) for of_text in self._words]
        self._tables = [np.zeros((len(self._alone[0]), len(alone))) for alone in self._alone[1:]]
        self._closeness: Floats | None = None
        for of_table in tables:
            first, second = (
                _shares(spans, number_of, len(alone))
                for spans, number_of, alone in zip((of_table.spans1, of_table.spans2), numbers, self._alone)
            )
            self._tables[0] += first.T @ of_table.values @ second
            if of_table.cosines is not None:
                weights = (shares / np.maximum(shares.sum(axis=0), SCORE_EPS) for shares in (first, second))
                closeness = next(weights).T @ of_table.cosines @ next(weights)
                self._closeness = closeness if self._closeness is None else np.maximum(self._closeness, closeness)
        for row in words:
            spans_of = _spans(row)
            # of a word in texts 2 and 3, the text is named whose share of the row is the larger
            other_text = 2 if spans_of[2] and (row.contribution < 0 or not spans_of[1]) else 1
            if other_text < len(texts) and spans_of[0] and spans_of[other_text]:
                share = row.contribution / (len(spans_of[0]) * len(spans_of[other_text]))
                for span, other_span in product(spans_of[0], spans_of[other_text]):
                    pair = numbers[0][span], numbers[other_text][other_span]
                    self._tables[other_text - 1][pair] += share
                    if self._closeness is not None:  # BM25 counts the two as one word
                        self._closeness[pair] = 1.0
            else:
                text = next(text for text, spans in enumerate(spans_of) if spans)
                for span in spans_of[text]:
                    self._alone[text][numbers[text][span]] += row.contribution / len(spans_of[text])

    @cached_property
    def _lines(self) -> list[_Line]:
        """The lines of words, in any order."""
        lines = list[_Line]()
        if len(self._tables) == 1:
            lines = self._matches(self._tables[0])
        elif self._tables:
            lines = self._matches_of_difference(*self._tables)
        alone = [values.copy() for values in self._alone]
        for number, (words, value) in enumerate(lines if alone[0].any() else ()):
            lines[number] = _Line(words, value + float(alone[0][list(words[0])].sum()))  # where it is paired with none
            alone[0][list(words[0])] = 0.0
        for text, values in enumerate(alone):
            if not values.any():
                continue
            least = MIN_PAIR_SHARE * _larger_side(values)
            for sign in (1, -1):
                for joined in join_words(sign * values, self._words[text], least):
                    in_text = [()] * text + [joined] + [()] * (len(alone) - text - 1)
                    lines.append(_Line(tuple(in_text), float(values[list(joined)].sum())))
        return lines

    def _matches(self, table: Floats) -> list[_Line]:
        """Return the words of two texts that match, first those that raise the score, then those that lower it."""
        free, lines = table.copy(), list[_Line]()
        least, least_close = (share * _larger_side(table) for share in (MIN_PAIR_SHARE, MIN_CLOSE_SHARE))
        largest = table.take(self._words[0].matched, 0).take(self._words[1].matched, 1).max(initial=0.0)
        least_raising = min(least, largest.round(TIE_DECIMALS)) if self._closeness is None else least_close
        for sign, of_sign in ((1, least_raising), (-1, least)):  # of long texts, the largest pair has a line
            values = sign * free
            if self._closeness is not None and sign > 0:
                values[self._closeness < MIN_CLOSENESS] = 0.0
            for match in match_words(values, self._words[0], self._words[1], of_sign):
                pairs = [*product(*match)]
                lines.append(_Line(match, math.fsum(free.item(pair) for pair in pairs)))
                for pair in pairs:  # a pair is in one line
                    free[pair] = 0.0
        return lines

    def _matches_of_difference(self, raising: Floats, lowering: Floats) -> list[_Line]:
        """Return the words of text 1 that match words of text 2, which raise the score, or of text 3."""
        lines: list[list[list[int]]] = []
        for text, table in enumerate((raising, -lowering), 1):
            matches = match_words(table, self._words[0], self._words[text], MIN_PAIR_SHARE * _larger_side(table))
            for match in matches:
                line: list[list[int]] = [list(match.first), [], []]
                line[text] += match.second
                for same in [line for line in lines if {*line[0]} & {*match.first}]:
                    lines.remove(same)
                    line = [[*dict.fromkeys(first + second)] for first, second in zip(same, line)]
                lines.append(line)
        values = [
            sum(t[np.ix_(line[0], of_text)].sum() for t, of_text in zip(self._tables, line[1:])) for line in lines
        ]
        return [_Line(tuple(line), float(value)) for line, value in zip(lines, values)]

    def free_words(self, text: int, far: float) -> list[tuple[str, str]]:
        """Return the words of text 1 or 2 (from 0) that are in no line, each with what is nearest in the other text.

        That is "" where nothing is near: `far` is the cosine below which words are not. A word with another ending is
        in the other text, too: "document" for "documents". Of words without vectors those are named that add little.
        """
        words, other_words = self._words[text], self._words[1 - text]
        table, closeness = self._tables[0], self._closeness
        if text:
            table, closeness = table.T, None if closeness is None else closeness.T
        in_lines = {word for line in self._lines for word in line.words[text]}
        is_far = table.sum(axis=1) + self._alone[text] < MIN_WORD_SHARE * abs(self._score)
        if closeness is not None:
            is_far = closeness.max(axis=1, initial=0.0) < far
        # Most words share no stem, which is soon seen.
        stems = {word[: MAX_ENDING_CHARS + 1] for word in other_words.words}
        least, free = MIN_PAIR_SHARE * _larger_side(table), list[tuple[str, str]]()
        for number in [number for number in words.matched if number not in in_lines]:
            word = words.words[number]
            if is_far[number]:
                may_be_there = word[: MAX_ENDING_CHARS + 1] in stems
                if not may_be_there or not any(word == w or differ_by_ending(word, w) for w in other_words.words):
                    free.append((self._written(text, number), ""))
            elif closeness is not None and other_words.matched:
                partner = max(other_words.matched, key=closeness[number].item)
                if table[number, partner] > least and closeness[number, partner] >= MIN_CLOSENESS:
                    free.append((self._written(text, number), self._written(1 - text, partner)))
        return free

    def _written(self, text: int, number: int) -> str:
        """Return a word as a text first writes it."""
        words = self._words[text]
        return self._texts[text][slice(*words.spans[words.numbers.index(number)])]

    def everywhere(self, line: Group) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Return all places of the words of a line in texts 1 and 2; its own are, of a phrase, the first."""
        return self._words[0].everywhere(line.spans1), self._words[1].everywhere(line.spans2)

    def groups(self, k: int | None, remainder: float) -> list[Group]:
        """Return at most `k` lines, the largest first, then what is in none of them; all add up to the score."""
        lines, loose = self._sorted_lines
        fixed = self._fixed(remainder)
        least = _ROUNDING * math.fsum([1.0, *(abs(line.contribution) for line in (*lines, *fixed))])
        lines = [line for line in lines if abs(line.contribution) > least]
        fixed = [line for line in fixed if abs(line.contribution) > least]
        n_shown = _n_shown(k, len(lines), len(fixed), has_loose=abs(loose) > least)
        other_lines = self._other_lines(lines[n_shown:], loose)
        named = [line._replace(name="".join(name_pieces(self._texts, line))) for line in lines[:n_shown]]
        return [*named, *(line for line in (other_lines,) if abs(line.contribution) > least), *fixed]

    @cached_property
    def _sorted_lines(self) -> tuple[list[Group], float]:
        """All lines, the largest first, and what all other words add."""
        in_text = (row for row in self._rows if row.kind in (WORD, WORD_PAIR) and not _is_elsewhere(row))
        lines = [
            self._line("", v, PHRASE, [w.spans_of(n) for w, n in zip(self._words, words)]) for words, v in self._lines
        ]
        total = math.fsum([*(float(values.sum()) for values in (*self._tables, *self._alone))])
        total += math.fsum(row.contribution for row in in_text)
        loose = total - math.fsum(line.contribution for line in lines)
        lines += [self._line(row.name, row.contribution, row.kind, _spans(row)) for row in self._rows if _is_named(row)]
        lines.sort(key=lambda line: (-round(abs(line.contribution), 12), line.spans1 or line.spans2 or ((0, 0),)))
        return lines, loose

    def _line(self, name: str, value: float, kind: str, spans: Sequence[tuple[Span, ...]] = ()) -> Group:
        first, second, third = (*spans, (), (), ())[:3]
        return Group(name, value, share_of(value, self._score), kind, first, second, third)

    def _fixed(self, remainder: float) -> list[Group]:
        """Return the lines for pieces of other texts, context, what all texts have in common and the remainder."""
        named = {
            CONTEXT: (CONTEXT_NAME, CONTEXT),
            SHARED: ("what any two texts have in common", COMMON),
            REMAINDER: ("what the rows leave out", REMAINDER),
        }
        sums = {kind: math.fsum(row.contribution for row in self._rows if row.kind == kind) for kind in named}
        sums[REMAINDER] += remainder
        return self._elsewhere() + [
            self._line(name, sums[kind], line_kind) for kind, (name, line_kind) in named.items()
        ]

    def _elsewhere(self) -> list[Group]:
        """Return a line for rows of pieces of texts that are not shown, or none."""
        rows = [row for row in self._rows if _is_elsewhere(row)]
        if not rows:
            return []
        kinds = {row.kind for row in rows}
        kind = f"{OTHER_KIND}{kinds.pop()}s" if len(kinds) == 1 else OTHER_LINES
        name = rows[0].name if len(rows) == 1 else "words of other texts"
        return [self._line(name, math.fsum(row.contribution for row in rows), kind)]

    def _other_lines(self, lines: Sequence[Group], loose: float) -> Group:
        """Return one line for those that are not shown, and for pairs of words that are in none."""
        value = math.fsum([loose, *(line.contribution for line in lines)])
        counts = Counter(line.kind for line in lines)
        has_words = bool(counts.pop(PHRASE, 0)) or abs(loose) > 0
        parts = [("all other word pairs" if self._tables else "all other words")] * has_words
        parts += [f"{count:,} other {kind if count == 1 else kind + 's'}" for kind, count in counts.items()]
        kinds = [*counts, *["word"] * has_words]
        return self._line(" and ".join(parts), value, f"{OTHER_KIND}{kinds[0]}s" if len(kinds) == 1 else OTHER_LINES)


def _larger_side(values: Floats) -> float:
    """Return the sum of what raises a score, or of what lowers it if that is more."""
    raising = float(values[values > 0].sum())
    return max(raising, raising - float(values.sum()))


def _sorted_out(rows: Sequence[Row], n_texts: int) -> tuple[list[WordTable], list[Row], list[Row]]:
    """Return the tables of pairs of words, other rows of words that stand in the texts, and all other rows."""
    tables, other_rows = rows.taken_apart if isinstance(rows, LazyRows) and n_texts == 2 else ([], list(rows))
    words = [row for row in other_rows if row.kind in (WORD, WORD_PAIR) and any(_spans(row)[:n_texts])]
    are_words = {row.key for row in words}
    return tables, words, [row for row in other_rows if row.key not in are_words]


def read_words(text: str, spans: Iterable[Span], unknown: Sequence[Span] = ()) -> tuple[WordsOfText, dict[Span, int]]:
    """Return the words of a text as they are written, and the number of the word at each of `spans`.

    These are of the words of rows: another case of a word is another of them, and two may overlap. What a hyphen or
    the point of a number ties is one word: "low-cost", "0.75".
    """
    ordered, word_spans, numbers = sorted(spans), list[Span](), list[int]()
    compounds = [*(match.span() for match in _COMPOUND.finditer(text)), (len(text), len(text))][::-1]
    for start, end in ordered:
        while compounds[-1][1] <= start < len(text):
            compounds.pop()
        if compounds[-1][0] < end:  # it is a piece of one
            start, end = min(start, compounds[-1][0]), max(end, compounds[-1][1])
        if word_spans and start < word_spans[-1][1]:
            word_spans[-1] = word_spans[-1][0], max(end, word_spans[-1][1])
        else:
            word_spans.append((start, end))
        numbers.append(len(word_spans) - 1)
    words = words_of_text(text, word_spans, unknown)
    return words, {span: words.numbers[number] for span, number in zip(ordered, numbers)}


def _shares(words: Sequence[tuple[Span, ...]], number_of: Mapping[Span, int], n_written: int) -> Floats:
    """Return what each of the rows' words gives to each word as it is written: as much to each of its places."""
    shares = np.zeros((len(words), n_written))
    for number, spans in enumerate(words):
        for span in spans:
            shares[number, number_of[span]] += 1.0 / len(spans)
    return shares


def name_pieces(texts: Sequence[str], group: Group) -> tuple[str, ...]:
    """Return the name of a group in pieces: its phrases, and between two of them what joins them.

    Of texts 2 and 3 the one comes first that the group speaks for.
    """
    spans_of = list(zip(texts, (group.spans1, group.spans2, group.spans3)))
    if not group.is_of_text or not any(spans for _, spans in spans_of):
        return (group.name,)
    if len(texts) > 2 and group.contribution < 0:
        spans_of = [spans_of[0], *spans_of[:0:-1]]
    pieces: list[str] = []
    for between, (text, spans) in zip(("", " \u2192 ", ", rather than "), spans_of):
        for number, phrase in enumerate(distinct_phrases(text, spans)):
            joint = ", " if number else between
            pieces += [*[joint] * bool(pieces), phrase]
    return tuple(pieces)


def distinct_phrases(text: str, spans: Iterable[Span]) -> list[str]:
    """Return the phrases at `spans` as they are written first; one that a text repeats is named once."""
    phrases: dict[str, str] = {}
    for phrase in (phrase_text(text, span) for span in spans):
        phrases.setdefault(phrase.lower(), phrase)
    return list(phrases.values())


def phrase_text(text: str, span: Span) -> str:
    """Return a phrase of a text on one line; a long one is cut, behind a word where one ends soon before.

    Quotation marks and brackets whose partner is not in the phrase are left out.
    """
    words = " ".join(text[slice(*span)].split())
    if len(words) <= _MAX_NAME_CHARS:
        return _balanced(words)
    start, blank, _ = words[:_MAX_NAME_CHARS].rpartition(" ")
    cut = start if blank and 2 * len(start) > _MAX_NAME_CHARS else words[: _MAX_NAME_CHARS - 1].rstrip()
    return _balanced(cut) + "\u2026"


def _balanced(phrase: str) -> str:
    """Return a phrase without its quotation marks and brackets if one of them has no partner."""
    return phrase if len(_MARK.findall(phrase)) % 2 == 0 else " ".join(_MARK.sub("", phrase).split())


def _n_shown(k: int | None, n_lines: int, n_fixed: int, *, has_loose: bool) -> int:
    """Return how many lines have one for themselves: `k`, less where the others take more than `LINES_BEYOND`."""
    if k is None:
        return n_lines
    shown = max(1, min(k, n_lines, k + LINES_BEYOND - n_fixed - has_loose))
    return shown if shown == n_lines or has_loose else max(1, min(shown, k + LINES_BEYOND - n_fixed - 1))


def _is_named(row: Row) -> bool:
    """Whether a row that is no word has a name of its own to be shown by."""
    return row.kind not in (WORD, WORD_PAIR, CONTEXT, SHARED, REMAINDER) and not _is_elsewhere(row)


def _is_elsewhere(row: Row) -> bool:
    """Whether a row is of pieces of texts that are not shown."""
    return row.kind in (WORD, SENTENCE) and not any(_spans(row))


def _spans(row: Row) -> tuple[tuple[Span, ...], ...]:
    return row.spans1, row.spans2, row.spans3
