"""The rows of an explanation as a few lines that a person reads: phrases of text 1 with those that they match.

A line holds all that a phrase of text 1 adds, whatever words of text 2 it meets, and names the phrases that give most
of it. What is in no line stands in lines for other words, for context, for what all texts have in common and for the
remainder, so that the lines add up to the score. A row whose words stand in several places is split evenly.
Of a passage, a long text 2 of several sentences, lines are sentences, and name the phrases of text 1 that they match.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.explain.phrases import (
    Floats,
    Integers,
    Phrases,
    WordsOfText,
    cut_into_phrases,
    match_words,
    words_of_text,
)
from pellucid.explain.rows import (
    CONTEXT,
    REMAINDER,
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
from pellucid.text.sentences import passage_sentences
from pellucid.text.words import Span

PHRASE, COMMON, OTHERS = "phrase", "common", "others"
"""Kinds of groups beside those of rows; OTHERS is a sum of phrases and rows of several kinds."""
OTHER = "other "
"""Before the kind of a sum: "other words", "other dimensions"."""
CONTEXT_NAME = "how the words combine (context)"
COMMON_NAME = "what any two texts have in common"
REMAINDER_NAME = "what the rows leave out"
ELSEWHERE_NAME = "words of other texts"

MIN_PARTNER_SHARE = 0.2
"""Of what the words of the other text add to a line, from which a phrase of it is named."""
MAX_PARTNERS = 3
LINES_BEYOND = 2
"""Lines beside those of phrases; where more are needed, there are fewer phrases."""
_MAX_CELLS = 1_000_000  # pairs of words, 100 bytes each; beyond, phrases are not matched, and none of text 2 is named
_CLOSING_MARKS = {
    "(": ")", "[": "]", "{": "}", "\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u2018": "\u2019",
    "\u201a": "\u2018\u2019", "\u00ab": "\u00bb", "\u2039": "\u203a", "\u300c": "\u300d", "\u300e": "\u300f",
}  # fmt: skip
"""Of brackets and quotation marks, those that close them."""
_CLOSERS = frozenset("\"')]}\u201d\u00bb\u203a\u300d\u300f")  # not \u2019, which is an apostrophe, too
_MAX_NAME_CHARS = 60  # of a phrase in a name
_ROUNDING = 1e-9  # of the sum of the rows' sizes; a line that adds less is left out


class Group(NamedTuple):
    """A line of a readable explanation: several rows of the score together.

    Attributes:
        name: what a person reads ("cancel my subscription → Unsubscribe, end your plan"), or the name of a row.
        contribution: what its rows add to the score.
        share: contribution / score, 0 where the score is 0 (below 1e-6).
        kind: "phrase", or "sentence" of a passage; the kind of the one row that it is ("dimension", "key token",
            "embedding"); "other words" and the like, or "others", for sums of those that have no line; "context",
            "common" or "remainder".
        spans1: where its phrase stands in text 1, in characters; of a sentence, the phrases of text 1 that it matches.
        spans2: where the phrases stand that it names of text 2; of a sentence, its own place.
        spans3: the same of text 3, which only a difference of two explanations has.
    """

    name: str
    contribution: float
    share: float
    kind: str
    spans1: tuple[Span, ...] = ()
    spans2: tuple[Span, ...] = ()
    spans3: tuple[Span, ...] = ()

    @property
    def is_of_text(self) -> bool:
        """Whether its name is made of pieces of the texts: a phrase or a sentence."""
        return self.kind in (PHRASE, SENTENCE)

    @property
    def is_sum(self) -> bool:
        """Whether it sums up what has no line of its own."""
        return self.kind in (OTHERS, CONTEXT, COMMON, REMAINDER) or self.kind.startswith(OTHER)

    def to_dict(self) -> dict[str, Any]:
        """Return plain strings, numbers and lists."""
        spans = {f"spans{n}": [list(span) for span in spans] for n, spans in enumerate(self[4:], 1)}
        return self._asdict() | spans


class WordSum(NamedTuple):
    """What a content word of text 1, or a row that is no word, adds to the score."""

    name: str
    value: float
    partner: str  # the word of text 2 that gives most of it, "" for none
    span: Span | None  # where the word stands in text 1; None for a row that is no word
    kind: str = WORD  # of the row


class _WordPositions(NamedTuple):
    """Where the words of a text stand."""

    spans: list[Span]  # in order, without overlap; overlapping words share one
    of_words: Integers  # [occurrences] the number of the span
    words: Integers  # [occurrences] the number of the word
    shares: Floats  # [occurrences] 1 over how often the word occurs


class _Cells(NamedTuple):
    """The rows as tables of words."""

    words: list[list[tuple[Span, ...]]]  # of each text, where each word stands
    tables: list[Floats]  # [words of text 1, words of text 2], and the same for text 3
    alone: list[Floats]  # of each text, what each word adds that is paired with none
    others: list[Row]


class _Sums(NamedTuple):
    """What the words of text 1 and of another text add together, by segments of the texts."""

    pairs: Floats | None  # [segments, segments]; None where the texts have too many words
    of_first: Floats  # [segments of text 1]
    of_other: Floats  # [segments of the other text]


class GroupedRows:
    """The rows of one explanation by phrases, however many of these are shown."""

    def __init__(
        self,
        rows: Sequence[Row],
        texts: Sequence[str],
        unknown: Sequence[Sequence[Span]],
        score: float,
        *,
        by_sentence: bool = True,
    ) -> None:
        """Take the rows, the texts, of each text the spans without a vector, and what the rows add up to.

        `by_sentence` says whether the sentences of a passage are lines: not where a mean was taken from the rows, as it
        is of phrases of text 1 alone.
        """
        self._texts, self._score = texts, score
        cells = _cells(rows, len(texts))
        self._rows = cells.others
        positions = [_positions(words, spans) for words, spans in zip(cells.words, unknown)]
        self._words = [words.spans for words in positions]
        tables = [_at_places(table, positions[0], words) for table, words in zip(cells.tables, positions[1:])]
        read = [words_of_text(text, words.spans, gaps) for text, words, gaps in zip(texts, positions, unknown)]
        self._cells, self._positions, self._read, self._tables = cells, positions, read, tables
        is_by_sentence = by_sentence and len(texts) == 2
        sentences = _as_sentences(passage_sentences(texts[1]), self._words[1]) if is_by_sentence else None
        self._lead = int(sentences is not None and bool(sentences.starts))  # the text whose segments are lines
        self._phrases = _phrases(read, tables, sentences if self._lead else None)
        of_words = zip(cells.tables, tables, positions[1:], self._phrases[1:])
        self._sums = [self._summed(*table, positions[0]) for table in of_words]
        self._alone = list(map(_by_segment, cells.alone, positions, self._phrases))
        if self._lead:
            self._join_sentences()

    def _join_sentences(self) -> None:
        """Let rows that are sentences of the passage be in the lines of these."""
        numbers = {start: number for number, (start, _) in enumerate(self._phrases[1].spans)}
        rows, self._rows = self._rows, []
        for row in rows:
            if row.kind == SENTENCE and row.spans2 and all(start in numbers for start, _ in row.spans2):
                for start, _ in row.spans2:
                    self._alone[1][numbers[start]] += row.contribution / len(row.spans2)
            else:
                self._rows.append(row)

    def _summed(
        self, table: Floats, at_places: Floats | None, other: _WordPositions, of_other: Phrases, first: _WordPositions
    ) -> _Sums:
        if at_places is None:
            rows, columns = table.sum(axis=1), table.sum(axis=0)
            return _Sums(None, _by_segment(rows, first, self._phrases[0]), _by_segment(columns, other, of_other))
        pairs = np.add.reduceat(np.add.reduceat(at_places, self._phrases[0].starts, axis=0), of_other.starts, axis=1)
        return _Sums(pairs, pairs.sum(axis=1), pairs.sum(axis=0))

    def word_sums(self) -> list[WordSum]:
        """Return what each content word of text 1 adds, wherever it stands, and each row that has a name of its own."""
        table = next(iter(self._tables), None)
        values = sum((table.sum(axis=1) for table in self._cells.tables), self._cells.alone[0])
        sums = _by_place(values, self._positions[0]).tolist()
        words: list[WordSum] = []
        for position in self._read[0].content:
            best = int(table[position].argmax()) if table is not None and table.size else -1
            is_matched = table is not None and best >= 0 and table[position, best] > 0
            partner = phrase_text(self._texts[1], self._words[1][best]) if is_matched else ""
            span = self._words[0][position]
            words.append(WordSum(phrase_text(self._texts[0], span), sums[position], partner, span))
        return words + [WordSum(row.name, row.contribution, "", None, row.kind) for row in self._rows if _is_named(row)]

    def phrase_sums(self, text: int) -> dict[Span, float]:
        """Return what each phrase of a text (from 0) adds to the score, in text order."""
        of_phrases = self._phrases[text]
        sums = zip(of_phrases.spans, self._segment_sums(text).tolist(), of_phrases.is_phrase)
        return {span: value for span, value, is_phrase in sums if is_phrase}

    def _segment_sums(self, text: int) -> Floats:
        paired = [self._sums[text - 1].of_other] if text else [sums.of_first for sums in self._sums]
        return sum(paired, self._alone[text])

    def groups(self, k: int | None, remainder: float) -> list[Group]:
        """Return at most `k` lines, the largest first, then what is in none of them; all add up to the score."""
        lines, loose = self._sorted_lines
        fixed = self._fixed(remainder)
        least = _ROUNDING * math.fsum([1.0, *(abs(line.contribution) for line in (*lines, *fixed))])
        lines = [line for line in lines if abs(line.contribution) > least]
        fixed = [line for line in fixed if abs(line.contribution) > least]
        n_shown = _n_shown(k, len(lines), len(fixed), has_loose=abs(loose) > least)
        others = self._others(lines[n_shown:], loose)
        shown = map(self._named_line, lines[:n_shown])
        return [*shown, *(line for line in (others,) if abs(line.contribution) > least), *fixed]

    @cached_property
    def _sorted_lines(self) -> tuple[list[Group], float]:
        """All lines, the largest first, those of text without a name, and what is in none."""
        lines, loose = self._phrase_lines()
        named = (self._line(row.name, row.contribution, row.kind, _spans(row)) for row in self._rows if _is_named(row))
        lines += [line._replace(name="".join(name_pieces(self._texts, line))) for line in named]
        sizes = [round(abs(line.contribution), 12) for line in lines]
        if self._lead and len(set(sizes)) < len(sizes):  # equal lines stand in the order of their phrases of text 1
            lines = list(map(self._named_line, lines))
        lines.sort(key=lambda line: (-round(abs(line.contribution), 12), line.spans1 or line.spans2 or ((0, 0),)))
        return lines, loose

    def _phrase_lines(self) -> tuple[list[Group], float]:
        """Return a line for each phrase of text 1 or sentence of a passage, and what is in none.

        Phrases of other texts have a line where their words add by themselves. Lines have no name and no partners until
        they are shown.
        """
        lines: list[Group] = []
        in_text = (row for row in self._rows if row.kind in (WORD, WORD_PAIR) and not _is_elsewhere(row))
        loose = math.fsum(row.contribution for row in in_text)
        for text, of_text in enumerate(self._phrases):
            sums = (self._segment_sums(text) if text == self._lead else self._alone[text]).tolist()
            kind = SENTENCE if text == 1 and self._lead else PHRASE
            for number, (value, is_phrase) in enumerate(zip(sums, of_text.is_phrase)):
                if not is_phrase or not value:
                    loose += value
                    continue
                spans: list[tuple[Span, ...]] = [(), (), ()]
                spans[text] = (of_text.spans[number],)
                lines.append(self._line("", value, kind, spans))
        return lines, loose

    def _named_line(self, line: Group) -> Group:
        if line.name or not line.is_of_text:
            return line
        of_lead = (line.spans1, line.spans2)[self._lead]
        if of_lead:
            number = self._phrases[self._lead].spans.index(of_lead[0])
            spans = self._partners(number, line.contribution)
            spans[self._lead] = of_lead
            line = Group(*line[:4], *spans)
        return line._replace(name="".join(name_pieces(self._texts, line)))

    def _partners(self, number: int, value: float) -> list[tuple[Span, ...]]:
        """Return for each text the phrases that give most of a line, none of the text whose line it is.

        In a difference those of text 2 raise the score and those of text 3 lower it. A sentence names no phrase of a
        text 1 that has only one.
        """
        signs = (1.0, -1.0) if len(self._sums) > 1 else (math.copysign(1.0, value),)
        named: list[tuple[Span, ...]] = [(), (), ()]
        for text, (sums, sign) in enumerate(zip(self._sums, signs), 1):
            if sums.pairs is None:
                continue
            other = 0 if self._lead else text
            if self._lead and sum(self._phrases[other].is_phrase) < 2:
                continue
            of_other, pairs = self._phrases[other], sums.pairs[:, number] if self._lead else sums.pairs[number]
            sizes = np.where(of_other.is_phrase, np.maximum(sign * pairs, 0.0), 0.0)
            order = np.argsort(-np.round(sizes, 12), kind="stable")[:MAX_PARTNERS].tolist()
            least = MIN_PARTNER_SHARE * float(sizes.sum())
            chosen = [n for rank, n in enumerate(order) if sizes[n] > 0 and (not rank or sizes[n] >= least)]
            named[other] = tuple(of_other.spans[n] for n in chosen)
        return named

    def _line(self, name: str, value: float, kind: str, spans: Sequence[tuple[Span, ...]] = ()) -> Group:
        return Group(name, value, share_of(value, self._score), kind, *spans)

    def _fixed(self, remainder: float) -> list[Group]:
        """Return the lines for pieces of other texts, context, what all texts have in common and the remainder."""
        named = {
            CONTEXT: (CONTEXT_NAME, CONTEXT),
            SHARED: (COMMON_NAME, COMMON),
            REMAINDER: (REMAINDER_NAME, REMAINDER),
        }
        sums = {kind: math.fsum(row.contribution for row in self._rows if row.kind == kind) for kind in named}
        sums[REMAINDER] += remainder
        lines = self._elsewhere()
        return lines + [self._line(name, sums[kind], line_kind) for kind, (name, line_kind) in named.items()]

    def _elsewhere(self) -> list[Group]:
        """Return a line for rows of pieces of texts that are not shown, or none."""
        rows = [row for row in self._rows if _is_elsewhere(row)]
        if not rows:
            return []
        kinds = {row.kind for row in rows}
        kind = f"{OTHER}{kinds.pop()}s" if len(kinds) == 1 else OTHERS
        name = rows[0].name if len(rows) == 1 else ELSEWHERE_NAME
        return [self._line(name, math.fsum(row.contribution for row in rows), kind)]

    def _others(self, lines: Sequence[Group], loose: float) -> Group:
        """Return one line for those that are not shown, and for small words that are in no phrase."""
        value = math.fsum([loose, *(line.contribution for line in lines)])
        counts = dict.fromkeys((line.kind for line in lines), 0)
        for line in lines:
            counts[line.kind] += 1
        parts = [f"{count:,} other {kind if count == 1 else kind + 's'}" for kind, count in counts.items()]
        parts += ["small words"] * bool(loose)
        kinds = {"word" if kind == PHRASE else kind for kind in counts} | ({"word"} if loose else set())
        return self._line(" and ".join(parts), value, f"{OTHER}{kinds.pop()}s" if len(kinds) == 1 else OTHERS)


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
    """Return a phrase without quotation marks and brackets that have no partner; apostrophes stay."""
    opened, unmatched = list[tuple[int, str]](), set[int]()
    for n, sign in enumerate(phrase):
        before, after = phrase[max(n - 1, 0) : n], phrase[n + 1 : n + 2]
        if sign == "'" and before.isalnum() and after.isalnum():
            continue
        if opened and sign in opened[-1][1]:
            opened.pop()
        elif sign in _CLOSING_MARKS:
            opened.append((n, _CLOSING_MARKS[sign]))
        elif sign in "\"'" and not before.isalnum():
            opened.append((n, sign))
        elif sign in _CLOSERS and not (sign == "'" and before in "sS"):  # the boys' school
            unmatched.add(n)
    unmatched.update(n for n, _ in opened)
    if not unmatched:
        return phrase
    return " ".join("".join(sign for n, sign in enumerate(phrase) if n not in unmatched).split())


def _n_shown(k: int | None, n_lines: int, n_fixed: int, *, has_loose: bool) -> int:
    """Return how many lines have one for themselves: `k`, less where the others take more than `LINES_BEYOND`."""
    if k is None:
        return n_lines
    shown = min(k, n_lines)
    while shown > 1 and shown + n_fixed + (has_loose or shown < n_lines) > k + LINES_BEYOND:
        shown -= 1
    return shown


def _is_named(row: Row) -> bool:
    """Whether a row that is no word has a name of its own to be shown by."""
    return row.kind not in (WORD, WORD_PAIR, CONTEXT, SHARED, REMAINDER) and not _is_elsewhere(row)


def _is_elsewhere(row: Row) -> bool:
    """Whether a row is of pieces of texts that are not shown."""
    return row.kind in (WORD, SENTENCE) and not any(_spans(row))


def _spans(row: Row) -> tuple[tuple[Span, ...], ...]:
    return row.spans1, row.spans2, row.spans3


def _cells(rows: Sequence[Row], n_texts: int) -> _Cells:
    """Return the rows as tables of the words of text 1 and each other text."""
    tables = rows.word_tables() if isinstance(rows, LazyRows) and n_texts == 2 else None
    if tables is None or not all(all(table.spans1) and all(table.spans2) for table in tables):
        return _cells_by_row(rows, n_texts)
    cells = _cells_by_row([row for table in tables for row in table.others], n_texts)
    for table in tables:
        cells = _joined_cells(cells, table)
    return cells


def _joined_cells(cells: _Cells, table: WordTable) -> _Cells:
    """Return cells of two texts with those of one more table; words at the same positions are one."""
    if not table.values.size:
        return cells
    if not any(cells.words):
        alone = [np.zeros(length) for length in table.values.shape]
        return _Cells([list(table.spans1), list(table.spans2)], [table.values], alone, cells.others)
    words, numbers = list[list[tuple[Span, ...]]](), list[list[int]]()
    for previous, more in zip(cells.words, (table.spans1, table.spans2)):
        index = {spans: number for number, spans in enumerate(previous)}
        numbers.append([index.setdefault(spans, len(index)) for spans in more])
        words.append(list(index))
    values = np.zeros((len(words[0]), len(words[1])))
    values[: len(cells.words[0]), : len(cells.words[1])] = cells.tables[0]
    if all(len({*of_text}) == len(of_text) for of_text in numbers):
        values[np.ix_(*numbers)] += table.values
    else:
        np.add.at(values, np.ix_(*numbers), table.values)
    alone = [np.pad(values, (0, len(spans) - len(values))) for values, spans in zip(cells.alone, words)]
    return _Cells(words, [values], alone, cells.others)


def _cells_by_row(rows: Iterable[Row], n_texts: int) -> _Cells:
    """Return the same from any rows: words are told apart by where they stand."""
    numbers: list[dict[tuple[Span, ...], int]] = [{} for _ in range(n_texts)]
    paired: list[list[tuple[int, int, float]]] = [[], []]
    single: list[list[tuple[int, float]]] = [[], [], []]
    others: list[Row] = []
    for row in rows:
        in_texts = [text for text, spans in enumerate(_spans(row)[:n_texts]) if spans]
        if row.kind not in (WORD, WORD_PAIR) or not in_texts:
            others.append(row)
            continue
        words = {text: numbers[text].setdefault(_spans(row)[text], len(numbers[text])) for text in in_texts}
        # of a word in texts 2 and 3, the text is named whose share of the row is the larger
        other = 2 if 2 in words and (row.contribution < 0 or 1 not in words) else 1
        if 0 in words and other in words:
            paired[other - 1].append((words[0], words[other], row.contribution))
        else:
            single[in_texts[0]].append((words[in_texts[0]], row.contribution))
    tables = [np.zeros((len(numbers[0]), len(of_other))) for of_other in numbers[1:]]
    for table, cells in zip(tables, paired):
        for first, second, value in cells:
            table[first, second] += value
    alone = [np.zeros(len(words)) for words in numbers]
    for values, cells1 in zip(alone, single):
        for word, value in cells1:
            values[word] += value
    return _Cells([list(words) for words in numbers], tables, alone, others)


def _positions(words: Sequence[tuple[Span, ...]], unknown: Sequence[Span]) -> _WordPositions:
    """Return where words stand, and words without a vector: they are parts of phrases, too."""
    occurrences = [(start, end, word) for word, spans in enumerate(words) for start, end in spans]
    occurrences += [(start, end, -1) for start, end in unknown]
    occurrences.sort()
    spans: list[Span] = []
    of_words: list[int] = []
    numbers: list[int] = []
    last = 0
    for start, end, word in occurrences:
        if start < last:
            last = max(end, last)
            spans[-1] = spans[-1][0], last
        else:
            spans.append((start, end))
            last = end
        if word >= 0:
            of_words.append(len(spans) - 1)
            numbers.append(word)
    of_occurrences = np.array(numbers, np.int64)
    shares = np.array([1.0 / max(len(of_word), 1) for of_word in words], np.float64)[of_occurrences]
    return _WordPositions(spans, np.array(of_words, np.int64), of_occurrences, shares)


def _at_places(table: Floats, first: _WordPositions, other: _WordPositions) -> Floats | None:
    """Return what each place of text 1 and each of another text add together; None where these are too many."""
    if max(len(first.words), len(first.spans)) * max(len(other.words), len(other.spans)) > _MAX_CELLS:
        return None
    values = table[first.words][:, other.words]
    values *= first.shares[:, None]
    values *= other.shares
    if len(first.spans) == len(first.words) and len(other.spans) == len(other.words):
        return values
    at_places = np.zeros((len(first.spans), len(other.spans)))
    np.add.at(at_places, (first.of_words[:, None], other.of_words), values)
    return at_places


def _phrases(read: Sequence[WordsOfText], tables: Sequence[Floats | None], sentences: Phrases | None) -> list[Phrases]:
    """Return the texts as phrases; those of text 1 by what they match in text 2, those of text 3 by text 1.

    Text 2 is cut into sentences where these are given.
    """
    matches: list[list[int] | None] = [None] * len(read)
    for number, table in enumerate(tables):
        if table is not None and table.size:
            values, of_both = -table if number else table, sentences is None
            first, matches[number + 1] = match_words(values, read[0], read[number + 1], of_both=of_both)
            matches[0] = matches[0] or first
    return [
        cut_into_phrases(words, of_text) if sentences is None or text != 1 else sentences
        for text, (words, of_text) in enumerate(zip(read, matches))
    ]


def _as_sentences(sentences: Sequence[Span], words: Sequence[Span]) -> Phrases:
    """Return a passage cut into those of its sentences that have words."""
    ends = np.searchsorted([start for start, _ in words], [end for _, end in sentences]).tolist()
    with_words = [(start, span) for start, end, span in zip([0, *ends], ends, sentences) if start < end]
    starts, spans = [start for start, _ in with_words], [span for _, span in with_words]
    return Phrases(starts, spans, [True] * len(starts), [-1] * len(starts))


def _by_segment(values: Floats, positions: _WordPositions, phrases: Phrases) -> Floats:
    """Return what each segment of a text adds, given what each of its words does."""
    return np.add.reduceat(_by_place(values, positions), phrases.starts) if phrases.starts else np.zeros(0)


def _by_place(values: Floats, positions: _WordPositions) -> Floats:
    """Return what the words at each span of a text add, given what each word does."""
    sums = np.bincount(positions.of_words, values[positions.words] * positions.shares, len(positions.spans))
    return sums.astype(np.float64, copy=False)
