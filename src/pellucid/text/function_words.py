"""Function words of ten languages, and which of these a text is written in; the words are in `function_words.tsv`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pellucid.text.words import ENGLISH_STOP_WORDS

MIN_EVIDENCE = 2
"""Distinct function words that another language than the first needs."""


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

    Of several languages that fit equally well the first of the table is taken. English is, too, where only one word
    speaks for another language: "man" is a function word of German alone.
    """
    languages, distinct = _table(), set(words)
    counts = [len(distinct & language.words) for language in languages]
    return languages[counts.index(max(counts)) if max(counts) >= MIN_EVIDENCE else 0]


@cache
def negations() -> frozenset[str]:
    """Return the words that deny in any of the languages, except those that are content words of another.

    They act on other words and have little to say alone; an encoder's reasons leave what they do to the context.
    """
    return frozenset().union(*(language.negation for language in _table())) - _NOT_EVERYWHERE


@cache
def _table() -> list[FunctionWords]:
    """Return the function words of each language, in the order of the file."""
    lines = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    cells = (line.split("\t") for line in lines if not line.startswith("#"))
    lists = {(language, kind): frozenset(words.split()) for language, kind, words in cells}
    lists["english", "words"] |= ENGLISH_STOP_WORDS
    languages: list[FunctionWords] = []
    for language in dict.fromkeys(language for language, _ in lists):
        joining, negation = lists[language, "joining"], lists[language, "negation"]
        languages.append(FunctionWords(lists[language, "words"] | joining | negation, joining, negation))
    return languages
