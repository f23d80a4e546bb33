"""Pairs of words that stand for two groups, the texts that differ by them alone, and what these are compared with.

The lists that come with pellucid are in `lists/`; docs/bias.md says where each is from. A list is a table whose first
two columns are headed by the names of the groups; a column `phrase` says how a pair stands in a sentence ("the {}"),
and is empty for words that are swapped in texts only, such as "his".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.analysis.comparing import check_pairs
from pellucid.errors import CorpusError, InputError, nearest_name, shown
from pellucid.process import cached_property
from pellucid.text.function_words import function_words
from pellucid.text.inputs import check_texts
from pellucid.text.tables import CorpusFile
from pellucid.text.unicode import canonicalize, lowercase, marks, unspaced_run
from pellucid.text.words import split_words

_LISTS = Path(__file__).parent / "lists"
PAIR_LISTS = {
    "gender": "English words for men and women, chosen by us",
    "names": "the 16 most frequent given names of boys and girls born in the USA in the 1980s (Social Security "
    "Administration), by rank",
    "nationality": "nationalities of 16 large countries of high and of lower income each (World Bank), chosen by us",
}
"""The lists of pairs that come with pellucid, and what they are."""
TARGET_LISTS = {
    "occupations": "40 occupations with the share of women in the USA in 2015/16 (Bureau of Labor Statistics, as "
    "compiled for Winogender by Rudinger et al. 2018)",
    "adjectives": "40 adjectives that describe people, chosen by us",
}
"""The lists of targets that come with pellucid, and what they are."""
TEMPLATES = (
    "{} is here.",
    "{} works with us.",
    "{} applied for the job.",
    "{} told us a story.",
    "{} lives in this town.",
    "{} called yesterday.",
    "{} will be there soon.",
    "{} is a good person.",
)
"""Sentences that say nothing of any target."""
_ADVERBS = frozenset(
    "yesterday today tomorrow tonight soon often always never again alone home personally well".split()
)
_METADATA_NAMES = frozenset("id key title text body content url link date name label score number query answer".split())
_MAX_PHRASE_WORDS = 4  # of what stands for a group
_FORM = (
    "pairs are a table whose first two columns are headed by the groups, such as male and female, with a word of each"
)
_PHRASE = "phrase"  # the column that says how a pair stands in a sentence


class WordPair(NamedTuple):
    """A word of each group, such as "man" and "woman", and how they stand in a sentence: "the {}", "" for not."""

    first: str
    second: str
    phrase: str = "{}"

    def phrases(self) -> tuple[str, str]:
        """Return both words as they stand in a sentence."""
        return self.phrase.replace("{}", self.first), self.phrase.replace("{}", self.second)


class Target(NamedTuple):
    """A text that both groups are compared with."""

    text: str
    expected: float | None = None
    """A number that the effect may go with, such as the share of women in an occupation."""


class Targets(NamedTuple):
    """What both groups are compared with."""

    rows: list[Target]
    source: str  # what they are
    expected: str = ""  # what their numbers are, "" for none


class SwappedText(NamedTuple):
    """A text with all its words of the list turned to the first group, and to the second."""

    first: str
    second: str
    n_words: int  # words of the list
    n_guessed: int  # of these, words with two counterparts, such as "her": "his" or "him"


@dataclass(frozen=True)
class WordPairs:
    """Pairs of words for two groups.

    Attributes:
        name: of the list.
        groups: names of the two groups.
        rows: the pairs.
        source: where they are from.
    """

    name: str
    groups: tuple[str, str]
    rows: tuple[WordPair, ...]
    source: str

    def __post_init__(self) -> None:
        """Check the pairs.

        Raises:
            InputError: there are none, one is blank, or a word stands for both groups.
        """
        if not self.rows:
            raise InputError(f"{self.name} holds no pairs of words; give a word of each group a row")
        if blank := next((row for row in self.rows if not (row.first.strip() and row.second.strip())), None):
            raise InputError(f"{self.name}: {tuple(blank[:2])!r:.60} has a blank word; give a word of each group")
        words = [{lowercase(row[side]) for row in self.rows} for side in (0, 1)]
        if both := sorted(words[0] & words[1]):
            raise InputError(f"{self.name}: {both[0]!r:.60} stands for both groups; leave its rows out")

    @property
    def words(self) -> list[str]:
        """All words of both groups, each once."""
        return list(dict.fromkeys(word for row in self.rows for word in row[:2]))

    def contexts(self, templates: Sequence[str] = TEMPLATES) -> list[list[tuple[str, str]]]:
        """Return for each pair that stands in sentences the pairs of sentences, one a template."""
        rows = [row.phrases() for row in self.rows if row.phrase]
        return [[(_filled(template, a), _filled(template, b)) for template in templates] for a, b in rows]

    def swapped(self, text: str) -> SwappedText:
        """Return a text with its words of the list turned to each group, their case kept.

        A word with two counterparts takes the first where a word follows directly that is no function word ("her new
        book"), else the second ("I met her").
        """
        form = canonicalize(text)
        n_guessed = 0

        def turned(side: int) -> str:
            def counterpart(match: re.Match[str]) -> str:
                nonlocal n_guessed
                choices = self._counterparts[1 - side].get(lowercase(match[0]))
                if not choices or not _fits_case(match[0], choices[0]):
                    return match[0]
                word = choices[0]
                if len(choices) > 1:
                    n_guessed += 1
                    word = choices[0 if _precedes_content(form, match.end()) else 1]
                return _in_case(word.target, match[0])

            return self._pattern.sub(counterpart, form)

        first, second = turned(0), turned(1)
        return SwappedText(first, second, len(self.spans(form)), n_guessed)

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return start, end and group (0 or 1) of each word of the list in a text in NFC."""
        spans: list[tuple[int, int, int]] = []
        for match in self._pattern.finditer(text):
            for side in (0, 1):
                choices = self._counterparts[side].get(lowercase(match[0]))
                if choices and _fits_case(match[0], choices[0]):
                    spans.append((*match.span(), side))
        return spans

    @cached_property
    def _counterparts(self) -> tuple[dict[str, list[_Counterpart]], dict[str, list[_Counterpart]]]:
        """For each group the words of it, in lower case, and what they become in the other one."""
        tables: tuple[dict[str, list[_Counterpart]], dict[str, list[_Counterpart]]] = ({}, {})
        for row in self.rows:
            for side in (0, 1):
                word, target = canonicalize(row[side]), canonicalize(row[1 - side])
                choices = tables[side].setdefault(lowercase(word), [])
                if target not in [choice.target for choice in choices]:
                    choices.append(_Counterpart(word, target))
        return tables

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """What matches any word of the list in any case, the longest first."""
        words = sorted({*self._counterparts[0], *self._counterparts[1]}, key=len, reverse=True)
        unspaced = [re.escape(word) for word in words if unspaced_run.fullmatch(word)]
        spaced = "|".join(re.escape(word) for word in words if not unspaced_run.fullmatch(word))
        inner = rf"[\w\u200c\u200d{marks()}]"  # what continues a word, such as a vowel sign of Devanagari
        between_spaces = [rf"(?<!{inner})(?:{spaced})(?!{inner})"] if spaced else []
        return re.compile("|".join([*between_spaces, *unspaced]), re.IGNORECASE)


class _Counterpart(NamedTuple):
    word: str
    target: str


def _fits_case(written: str, choice: _Counterpart) -> bool:
    """Whether a word of a text may be one of the list: a name such as "Mark" is not the verb "mark"."""
    return not choice.word[:1].isupper() or written[:1].isupper()


def _in_case(word: str, written: str) -> str:
    """Return a word in the case that its counterpart is written in."""
    if len(written) > 1 and written.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if written[:1].isupper() else word


def _precedes_content(text: str, end: int) -> bool:
    """Whether a word follows directly that is no function word: the beginning of what is possessed."""
    following = re.match(r"\s+([^\W\d_]+)", text[end:])
    if not following:
        return False
    word = lowercase(following[1])
    return word == "own" or (
        word not in _ADVERBS and word not in function_words(map(lowercase, (w.text for w in split_words(text)))).words
    )


def _filled(template: str, phrase: str) -> str:
    text = template.replace("{}", phrase)
    return text[:1].upper() + text[1:]


Pairs = Any
"""The name of a list, a file (a path or `CorpusFile`), pairs of words, or `WordPairs`."""


def read_pairs(pairs: Pairs) -> WordPairs:
    """Return pairs of words.

    Args:
        pairs: "gender", "names" or "nationality"; a file of a table, whose first line names the groups; or an iterable
            of pairs of words.

    Raises:
        InputError: there is no such list and no such file, or a word stands for both groups.
        CorpusError: the file is no table of two columns.
    """
    if isinstance(pairs, WordPairs):
        return pairs
    if isinstance(pairs, str) and pairs in PAIR_LISTS:
        return replace(_pairs_of_file(CorpusFile(_LISTS / f"{pairs}.tsv")), name=pairs, source=PAIR_LISTS[pairs])
    if isinstance(pairs, (str, PathLike, CorpusFile)):
        return _pairs_of_file(_file(pairs, PAIR_LISTS, "list of pairs"))
    rows = [WordPair(*pair) for pair in check_pairs(pairs)]
    return WordPairs("pairs", ("first", "second"), tuple(rows), "your pairs")


def read_targets(targets: Any) -> Targets:
    """Return targets.

    Args:
        targets: "occupations" or "adjectives"; a file, a text a line or a table whose first column holds them and whose
            second one may hold a number; or an iterable of texts.

    Raises:
        InputError: there is no such list and no such file, or it is empty.
        CorpusError: the file cannot be read.
    """
    if isinstance(targets, (str, PathLike, CorpusFile)):
        is_list = isinstance(targets, str) and targets in TARGET_LISTS
        file = CorpusFile(_LISTS / f"{targets}.tsv") if is_list else _file(targets, TARGET_LISTS, "list of targets")
        read = _targets_of_file(file)
        source = TARGET_LISTS[str(targets)] if is_list else f"texts of {file.source.name}"
        read = read._replace(source=source)
    else:
        read = Targets([Target(text) for text in check_texts(targets)], "your texts")
    rows = list({target.text: target for target in read.rows if target.text.strip()}.values())
    if not rows:
        raise InputError("there are no targets; give texts that both groups are compared with")
    return read._replace(rows=rows)


def _file(source: Any, lists: Iterable[str], kind: str) -> CorpusFile:
    """Return the file of a name or path; the error names the lists there are."""
    if isinstance(source, str) and not Path(source).exists():
        nearest = nearest_name(source, list(lists))
        hint = f"did you mean {nearest!r}?" if nearest else f"the lists are {', '.join(lists)}"
        raise InputError(f"{shown(source, 80)} is no {kind}, and no such file exists; {hint}")
    return source if isinstance(source, CorpusFile) else CorpusFile(source)


def _pairs_of_file(file: CorpusFile) -> WordPairs:
    if file.kind == ".txt":
        file = replace(file, delimiter="tab")
    columns = _named_columns(file)
    names = [name for name in columns if name != _PHRASE][:2]
    if len(names) < 2:
        raise CorpusError(
            f"{file.path} has {'one column' if names else 'no columns'}; pairs need two, each headed by its group, "
            "such as male and female, with a word of each group a row"
        )
    has_phrases = _PHRASE in columns
    rows: list[WordPair] = []
    _check_groups(file, names)
    for row, (first, second, *phrases) in file.cells([*names, _PHRASE] if has_phrases else names):
        phrase = phrases[0] if has_phrases else "{}"
        if not first or not second or lowercase(first) == lowercase(second):
            raise CorpusError(f"{file.locate(row)}: a pair is a word of each group, got {first!r:.40}, {second!r:.40}")
        for word in (first, second):
            if not any(map(str.isalpha, word)) or len(word.split()) > _MAX_PHRASE_WORDS:
                raise CorpusError(f"{file.locate(row)}: {word!r:.60} is no word for a group; {_FORM}")
        if phrase and "{}" not in phrase:
            raise CorpusError(f"{file.locate(row)}: the phrase {phrase!r:.40} has no {{}} for the word")
        rows.append(WordPair(first, second, phrase))
    return WordPairs(file.source.name, (names[0], names[1]), tuple(rows), f"pairs of {file.source.name}")


def _check_groups(file: CorpusFile, names: list[str]) -> None:
    """Refuse a table of something else, such as ids and titles."""
    for name in names:
        if lowercase(name.strip(" _")) in _METADATA_NAMES:
            raise CorpusError(f"{file.path}: the column {name!r:.40} is no group; {_FORM}")


def _targets_of_file(file: CorpusFile) -> Targets:
    if file.kind == ".txt":
        return Targets(list(map(Target, file)), "")
    names = _named_columns(file)[:2]
    if not names:
        raise CorpusError(f"{file.path} has no columns with a name; the first one holds the targets")
    rows: list[Target] = []
    for row, (text, *numbers) in file.cells(names):
        try:
            rows.append(Target(text, _finite(numbers[0]) if numbers and numbers[0] else None))
        except ValueError:
            raise CorpusError(f"{file.locate(row)}: {numbers[0]!r:.40} in {names[1]!r:.40} is no number") from None
    return Targets(rows, "", names[1] if len(names) > 1 else "")


def _finite(value: Any) -> float:
    """Return a value as a float; ValueError for NaN and infinity."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return number


def _named_columns(file: CorpusFile) -> list[str]:
    """Return the columns that have a name; the row numbers that pandas writes have none."""
    return [name for name in file.column_names() if name and not name.startswith("Unnamed:")]
