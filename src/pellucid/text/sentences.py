"""Where the sentences of a text stand: by punctuation and line breaks, for any script, without a model."""

from __future__ import annotations

import lzma
import re
from functools import cache
from pathlib import Path

from pellucid.text.words import Span

_STRONG = "\u3002\uff01\uff1f\uff61\ufe12\u0964\u0965"  # of Chinese, Japanese and Indic: no blank needs to follow
_MARKS = _STRONG + ".!?\u2026\u061f\u06d4\u0589\u1362"
_BOUNDARY = re.compile(rf"[\n{_MARKS}](?:(?<!\n)[{_MARKS}]*[\"'\u201d\u2019\u00bb)\]\u300d\u300f\uff09]*)?")
_ITEM = re.compile("(?:[-*\u2022\u2013]|\\d{1,3}[.)])[ \t]")
_ABBREVIATION = re.compile(
    r"[^\W\d_]|(?:[^\W\d_]\.)+[^\W\d_]"  # an initial; "e.g", "U.S"
    r"|[DMS]rs?|Ms|Prof|Gen|Col|Lt|Capt|Rev|Hon|Jr|St|vs|Nos?|Figs?|Eqs?|Refs?|Sec|cf|al|approx|resp|ca|pp|vol|eds?"
    r"|bzw|usw|Nr|Abs|bspw|ggf|inkl|Hr|Fr|[Mm]me|[Mm]lle|[Ss]ra?|[Ss]rta|[Dd]ra?|p\.ej|núm|pág"
)
_OPENING = "([\"'\u201c\u00ab"
_MAX_ABBREVIATION_CHARS = 20  # that are looked at before a full stop
_MAX_BLANKS = 60  # that are looked over after a mark


def sentence_spans(text: str) -> list[Span]:
    """Return where the sentences of a text stand, in order, without blanks around them.

    A piece without a letter or digit, or with a number only, belongs to the sentence after it; the last one to that
    before. All that is not blank is in a sentence.
    """
    spans: list[Span] = []
    start, has_letters, before = 0, False, 0
    for end in [*(match.end() for match in _BOUNDARY.finditer(text) if _ends(text, match)), len(text)]:
        has_letters = has_letters or any(map(str.isalpha, text[before:end]))
        before = end
        if not has_letters and end < len(text):
            continue
        piece = text[start:end]
        if piece.strip():
            spans.append((end - len(piece.lstrip()), start + len(piece.rstrip())))
        start, has_letters = end, False
    if len(spans) > 1 and not any(map(str.isalpha, text[slice(*spans[-1])])):
        (first, _), (_, last) = spans[-2:]
        spans[-2:] = [(first, last)]
    return spans


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a mark ends a sentence: no abbreviation, and what follows does not go on in lower case."""
    mark, gap = match.group(), text[match.end() : match.end() + _MAX_BLANKS]
    after = gap.lstrip()
    if mark == "\n":
        is_empty_line = "\n" in gap[: len(gap) - len(after)]
        return is_empty_line or (after[:1].isalpha() and not after[0].islower()) or _ITEM.match(after) is not None
    if mark[0] in _STRONG:
        return True
    if not gap[:1].isspace() or after[:1].islower():
        return False
    before = text[max(match.start() - _MAX_ABBREVIATION_CHARS, 0) : match.start()].rsplit(maxsplit=1)[-1:]
    return mark != "." or not before or _ABBREVIATION.fullmatch(before[0].lstrip(_OPENING)) is None


@cache
def bundled_sentences() -> tuple[list[str], list[list[str]]]:
    """Return the sentences that come with us: English ones, and pairs with a translation."""
    path = Path(__file__).parent.parent / "bundled" / "reasons" / "sentences.tsv.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        rows = [line.split("\t") for line in file.read().splitlines()]
    return [text for text, translation in rows if not translation], [row for row in rows if row[1]]
