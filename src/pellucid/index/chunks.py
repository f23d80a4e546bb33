"""The chunks that a text is cut into for BM25, their words, and the names that signs make of them; see `terms.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from pellucid.text.unicode import HANGUL, UNSPACED, lowercase, marks
from pellucid.text.words import Span

MAX_ACRONYM_LETTERS = 6

_PAIRED = UNSPACED + HANGUL
PAIRED_RUN = re.compile(f"[{_PAIRED}]+")
"""Characters that are terms in overlapping pairs."""

_HYPHENS = ("-", "\u2010", "\u2011")
_APOSTROPHES = frozenset("'\u2019")
_INITIALS = re.compile(r"(?:[^\W\d_]\.){2,}")


@cache
def chunk_patterns(is_ascii: bool) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a chunk, and of its words and the signs between them."""
    letters, within = "A-Za-z0-9" if is_ascii else rf"^\W_{_PAIRED}", "" if is_ascii else marks()
    word = f"[{letters}]+" + (f"(?:[{within}]+[{letters}]*)*" if within else "")
    end = rf"(?![\w{within}])"
    unit = (
        rf"(?:(?:[^\W\d_]\.){{2,}}{end}"  # U.S.
        rf"|(?<![\d.])(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?(?!\.\d){end}"  # 1,000 and 3.14
        rf"|{word}(?:\+\+|[+#*]{end}|-(?![-\w{within}]))?)"  # C++, CD4+, F#, A*, AB-
    )
    joiner = rf"(?:[./_&@+#{''.join((*_APOSTROPHES, *_HYPHENS[1:]))}-]|::|(?<=\d)[,:](?=\d)|(?<=\+\+))"
    prefix = r"""(?:(?<![^\s(\["'/,;|])(?:\.|[#@$]|--?))?"""
    run = "" if is_ascii else f"[{_PAIRED}]+|"
    return re.compile(f"({run}{prefix}{unit}(?:{joiner}{unit})*)"), re.compile(f"({prefix})({unit})|({joiner})")


class Unit(NamedTuple):
    """A word of a chunk, with the signs that belong to it."""

    word: str  # "" for a letter that an apostrophe joins to a word: "patient's", "l'amour"
    start: int
    end: int
    prefix: str
    sign: str
    is_initials: bool  # U.S.


def fold_case(word: str) -> str:
    """Return a word in lower case, in which STRASSE is Stra\u00dfe."""
    return word.lower() if word.isascii() else lowercase(word).replace("\u00df", "ss")


def cut_chunk(chunk: str, at: int) -> tuple[list[Unit], list[str]]:
    """Return the words of a chunk, and the signs between them."""
    units: list[Unit] = []
    joiners: list[str] = []
    for match in chunk_patterns(chunk.isascii())[1].finditer(chunk):
        prefix, text, joiner = match.groups()
        if joiner is not None:
            joiners.append(joiner)
            continue
        if len(joiners) < len(units):
            joiners.append("")  # as in C++11
        units.append(_unit(prefix, text, at + match.start(2)))
    if joiners and not _APOSTROPHES.isdisjoint(joiners):
        for index, unit in enumerate(units):
            if len(unit.word) == 1 and unit.word.isalpha():
                before, after = joiners[index - 1 : index], joiners[index : index + 1]
                ends = before and before[0] in _APOSTROPHES
                begins = after and after[0] in _APOSTROPHES and len(units[index + 1].word) > 1
                if ends or begins:
                    units[index] = unit._replace(word="")
    return units, joiners


def _unit(prefix: str, text: str, start: int) -> Unit:
    word, sign, end, is_initials = text, "", start + len(text), False
    if not text.isalnum():
        is_initials = bool(_INITIALS.fullmatch(text))
        if is_initials or text[-1].isdigit():
            word = text.replace("." if is_initials else ",", "")
        else:
            word = text.rstrip("-+#*")
            sign, end = text[len(word) :], start + len(word)
    is_code = word.isalpha() and len(word) == 1
    if (sign == "*" and not is_code) or (
        sign == "-" and not (is_code or (word.isupper() and len(word) < MAX_ACRONYM_LETTERS))
    ):
        sign = ""
    if prefix[:1] == "-" and not (len(word) == 1 or word[0].isdigit()):
        prefix = ""
    return Unit(word, start, end, prefix, sign, is_initials)


def signed_names(units: Iterable[Unit]) -> Iterator[tuple[str, Span]]:
    """Yield the names that signs before and after a word make."""
    for unit in units:
        if unit.sign:
            yield fold_case(unit.word) + unit.sign, (unit.start, unit.end + len(unit.sign))
        if unit.prefix:
            yield unit.prefix + fold_case(unit.word), (unit.start - len(unit.prefix), unit.end)


def is_name(first: str, joiner: str, second: str) -> bool:
    """Whether two words with a sign between them are more than two words."""
    if not first or not second or joiner in _APOSTROPHES:
        return False
    return joiner not in ("/", *_HYPHENS) or any(len(word) == 1 or not word.isalpha() for word in (first, second))


def spelled_name(words: Sequence[str], joiners: Sequence[str]) -> str:
    """Return a name: hyphens are left out unless digits are on both sides, as many do: "IL6" is "IL-6"."""
    name = words[0]
    for joiner, word in zip(joiners, words[1:]):
        if joiner in _HYPHENS:
            joiner = "-" if name[-1].isdigit() and word[0].isdigit() else ""
        name += joiner + word
    return name
