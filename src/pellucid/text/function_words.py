"""Which words carry content: function words of ten languages, English words that say little, forms of one word.

The lists and their sources are in `function_words.tsv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pellucid.text.unicode import lowercase, marks, normalize, unspaced_run

MIN_EVIDENCE = 2
"""Distinct function words that another language than the first needs, and that the first lacks."""

MAX_ENDING_CHARS = 3
"""Behind what two forms of a word have in common; the longest inflections of English, -ing and -est, have three."""

_MIN_CONTENT_CHARS = 3
"""Letters: most English words of two are function words, the others abbreviations and pieces of contractions."""

_NOT_EVERYWHERE = frozenset({"mai", "n", "sem", "sin"})
"""Negations of one language that are content words or letters of another: "sin", the German "Mai"."""


class FunctionWords(NamedTuple):
    """The function words of a language, in lower case.

    Attributes:
        words: all of them.
        joining: those between two words that are one phrase: "black and white".
        negation: those that deny.
    """

    words: frozenset[str]
    joining: frozenset[str]
    negation: frozenset[str]


def function_words(words: Iterable[str]) -> FunctionWords:
    """Return those of the language that most function words among `words`, in lower case, are of.

    Of several languages that fit equally well the first of the table is taken. English is, too, where fewer than two
    words that it lacks speak for another language: of "Man in Ohio", "in" is one of both.
    """
    languages, distinct = _table(), set(words)
    counts = [len(distinct & language.words) for language in languages]
    best = languages[counts.index(max(counts))]
    return best if len(distinct & best.words - languages[0].words) >= MIN_EVIDENCE else languages[0]


@cache
def negations() -> frozenset[str]:
    """Return the words that deny in any of the languages, except those that are content words of another.

    They act on other words and have little to say alone; an encoder's reasons leave what they do to the context.
    """
    return frozenset().union(*(language.negation for language in _table())) - _NOT_EVERYWHERE


@cache
def _lists() -> dict[tuple[str, str], frozenset[str]]:
    """Return the words of each language and kind, in the order of the file."""
    lines = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    cells = (line.split("\t") for line in lines if not line.startswith("#"))
    return {(language, kind): frozenset(words.split()) for language, kind, words in cells}


@cache
def _table() -> list[FunctionWords]:
    """Return the function words of each language, in the order of the file."""
    lists = _lists()
    languages: list[FunctionWords] = []
    for language in dict.fromkeys(language for language, _ in lists):
        joining, negation = lists[language, "joining"], lists[language, "negation"]
        words = lists[language, "words"].union(lists.get((language, "stop"), ()), joining, negation)
        languages.append(FunctionWords(words, joining, negation))
    return languages


ENGLISH_STOP_WORDS = _lists()["english", "stop"]
"""English function words; other languages rely on idf, or on a list of the user's own."""

GENERIC_WORDS = ENGLISH_STOP_WORDS | _lists()["english", "generic"]
"""With the English words of speech and dates that carry as little content."""


def content_words(text: str) -> set[str]:
    """Return the lower-case words that carry content: no (English) function words, dates, numbers or short words."""
    words = {lowercase(word) for word in _letters().findall(normalize(text).text)}
    return {word for word in words - GENERIC_WORDS if len(word) >= _MIN_CONTENT_CHARS or unspaced_run.match(word)}


@cache
def _letters() -> re.Pattern[str]:
    """Return the pattern of letters in a row, with their combining marks."""
    return re.compile(rf"(?:[^\W\d_]|[{marks()}])+")


def differ_by_ending(first: str, second: str) -> bool:
    """Whether two words begin with the same four letters or more, and at most three are left of the longer one."""
    shorter, longer = sorted((first, second), key=len)
    shared = next((index for index, letter in enumerate(shorter) if letter != longer[index]), len(shorter))
    return shared > MAX_ENDING_CHARS and len(longer) - shared <= MAX_ENDING_CHARS
