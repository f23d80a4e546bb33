"""What a changed pair of texts scores: the check of what an explanation says.

A line says that some words carry a score: without them it is lower. What keeps a score from 1 are words that one text
has in the place of others: with the same words it is higher. Both are asked of the model itself, in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, Protocol

from pellucid.explain.groups import read_words
from pellucid.explain.phrases import is_letter
from pellucid.text.function_words import function_words
from pellucid.text.unicode import lowercase
from pellucid.text.words import Span, split_words

MAX_CHECKED_LINES = 4
MAX_CHECKED_TEXTS = 12
"""Of one explanation, that are scored."""
MAX_COMPARED_CHARS, MIN_SAME_WORDS = 500, 0.5
"""Of texts whose words are compared: characters of each, and words that both say, in order, of all words of both."""

_MAX_NAMED_WORDS = 3  # that one text alone says in one place

SpanPair = tuple[tuple[Span, ...], tuple[Span, ...]]
"""Where the words of a line stand in texts 1 and 2."""


class ExplainedPair(Protocol):
    """What scored two texts, and scores others in their place."""

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """Return the scores of pairs of texts."""

    def percentile(self, score: float, texts: tuple[str, str]) -> float | None:
        """Return how many of 100 unrelated pairs of texts of such lengths score less; None where that is not known."""


class TextChange(NamedTuple):
    """A place in which two texts differ.

    Attributes:
        words: of each text, what this one alone says there, "" for nothing.
        exchanged: text 2 with what text 1 says there.
        score: of text 1 and that.
    """

    words: tuple[str, str]
    exchanged: str
    score: float = 0.0


class Checks(NamedTuple):
    """What changed texts score.

    Attributes:
        without: of lines, the largest first, the score without their words.
        without_two: the same without the words of the two largest lines; None where there is only one.
        change: the place where the score is highest if both texts say the same; None where they are not compared.
        percentile: how many of 100 unrelated pairs of texts of such lengths score less; None where that is not known.
    """

    without: Mapping[SpanPair, float]
    without_two: float | None
    change: TextChange | None
    percentile: float | None = None


def check(
    pair: ExplainedPair,
    texts: tuple[str, str],
    lines: Mapping[SpanPair, SpanPair],
    changes: Sequence[TextChange],
    empty: float,
) -> Checks:
    """Return the scores of two texts without the words of lines, and with the words of text 1 in text 2.

    Args:
        pair: what scores them.
        texts: the two texts.
        lines: where the words of each stand -> what is left out, the largest first.
        changes: where the texts differ; those that differ in most letters are tried while texts are left.
        empty: the score of a text without words.
    """
    span_pairs = [*lines.values()]
    if len(span_pairs) > 1:
        span_pairs.append((span_pairs[0][0] + span_pairs[1][0], span_pairs[0][1] + span_pairs[1][1]))
    pairs = [(without(texts[0], spans1), without(texts[1], spans2)) for spans1, spans2 in span_pairs]
    by_size = sorted(changes, key=lambda change: -len("".join(change.words)))[: MAX_CHECKED_TEXTS - 2 * len(pairs)]
    pairs += [(texts[0], change.exchanged) for change in by_size]
    scored = [pair for pair in pairs if all(any(map(str.isalnum, text)) for text in pair)]
    score_of = dict(zip(scored, pair.scores(scored))) if scored else {}
    scores = [score_of.get(changed, empty) for changed in pairs]
    tried = [change._replace(score=score) for change, score in zip(by_size, scores[len(span_pairs) :])]
    return Checks(
        dict(zip(lines, scores)),
        scores[len(lines)] if len(lines) > 1 else None,
        max(tried, key=lambda change: change.score, default=None),
    )


def find_changes(texts: tuple[str, str]) -> list[TextChange]:
    """Return the places in which two texts differ in words that only one of them says, small words aside.

    None of long texts, and of texts in which most words differ: there no word stands in the place of another.
    """
    if max(map(len, texts)) > MAX_COMPARED_CHARS:
        return []
    words = [read_words(text, [(word.start, word.end) for word in split_words(text)])[0] for text in texts]
    written = [[of_text.words[number] for number in of_text.numbers] for of_text in words]
    small, _, negation = function_words(written[0] + written[1])
    matcher, changes = SequenceMatcher(None, written[0], written[1], autojunk=False), list[TextChange]()
    for _, start1, end1, start2, end2 in matcher.get_opcodes() if matcher.ratio() >= MIN_SAME_WORDS else ():
        block1, block2 = words[0].spans[start1:end1], words[1].spans[start2:end2]
        of_one_text = [
            [
                (lowercase(text[slice(*span)]), span)
                for span in block
                if lowercase(text[slice(*span)]) not in words_of_other
            ]
            for text, block, words_of_other in zip(texts, (block1, block2), written[::-1])
        ]
        content_spans = [
            [span for word, span in of_text if word not in small - negation or is_letter(text, span)]
            for text, of_text in zip(texts, of_one_text)
        ]
        # "May" is a small word where no other stands beside it
        named = [
            _named(text, spans or [s for _, s in alone])
            for text, spans, alone in zip(texts, content_spans, of_one_text)
        ]
        piece = texts[0][block1[0][0] : block1[-1][1]] if block1 else ""
        start = next((span[0] for span in words[1].spans[start2:]), len(texts[1]))
        end = block2[-1][1] if block2 else start
        exchanged = f"{texts[1][:start]} {piece} {texts[1][end:]}" if piece else without(texts[1], [(start, end)])
        if any(content_spans):
            changes.append(TextChange((named[0], named[1]), exchanged))
    return changes


def _named(text: str, spans: Sequence[Span]) -> str:
    """Return a few words from the first to the last, or the longest of many; "" for none."""
    spans = spans if len(spans) <= _MAX_NAMED_WORDS else [max(spans, key=lambda span: span[1] - span[0])]
    return " ".join(text[spans[0][0] : spans[-1][1]].split()) if spans else ""


def without(text: str, spans: Iterable[Span]) -> str:
    """Return a text without some places, and without the doubled blanks that they leave."""
    gaps, shortened, end = sorted(spans), "", 0
    if not gaps:
        return text
    for start, stop in [*gaps, (len(text), len(text))]:
        piece = text[end:start]
        is_doubled = end and piece[:1].isspace() and (not shortened or shortened[-1].isspace())
        shortened += piece.lstrip() if is_doubled else piece
        end = max(end, stop)
    return shortened.rstrip()
