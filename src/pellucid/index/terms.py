r"""The terms of BM25: stems of words, single letters and digits, names with signs, and acronyms.

A text is cut into *chunks*: words with nothing but signs between them ("XJ-900/2", "state-of-the-art", "C++"), or a run
of Hangul or of a script without spaces. A chunk has these terms:

- the stem of each of its words in lower case, except stop words;
- of a run the overlapping pairs of characters, and each character, which a query searches only where it stands alone:
  "\u6771\u4eac" and "\u4eac" find "\u6771\u4eac\u90fd", and a Korean noun is found with any particle;
- its *names*: a word with a sign before or after it ("c++", ".net", "-5"), and words that a sign joins, if they are no
  ordinary words: each two neighbours and all of them ("xj900", "900/2" and "xj900/2", "email" of "e-mail", but not
  "well-known");
- the *acronym* of a word in capitals that lower case would confuse: "IT", or "AIDS" beside the stem "aid".

Capitals tell an acronym only if the text around is not in capitals. A query all in capitals may mean acronyms beside
its words ("HIV AIDS"), and one in lower case may mean one where a keyword would stand ("who guidelines", "jobs in it",
but not "is it safe"): they are searched with `VARIANT_WEIGHT`. "b 12" in a query is also searched as the name "b12".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pellucid.errors import InputError, importing, shown
from pellucid.index.chunks import (
    MAX_ACRONYM_LETTERS,
    PAIRED_RUN,
    Unit,
    chunk_patterns,
    cut_chunk,
    fold_case,
    is_name,
    signed_names,
    spelled_name,
)
from pellucid.text.function_words import ENGLISH_STOP_WORDS
from pellucid.text.unicode import NormalizedText, cluster_ends, normalize
from pellucid.text.words import Span

NAME_WEIGHT = 1.0
"""What the names of a chunk of a query weigh together, where one of its words weighs 1."""

DIVIDED_NAME_WEIGHT = 1.5
"""What the name "b12" weighs that a query has as "b 12": it is two words (chosen on SciFact's training)."""

VARIANT_WEIGHT = 0.5
"""What an acronym weighs that a query may mean."""

SYNONYM_WEIGHT = 0.8
"""What a synonym weighs where its word weighs 1: of two documents alike, the one with the word itself comes first."""

MAX_ACRONYMS_IN_A_ROW = 3
"""Words; more in capitals are a heading, or someone shouting."""

SOFT_HYPHEN = "\u00ad"
HAS_LOWER_CASE, IN_CAPITALS, BEFORE_LETTER = 1, 2, 4
"""What a token tells of its neighbours: the line is not all in capitals, or may be; a letter after it is a name."""
PUNCTUATION = "!\"'(),:;?[]{}%=<>~\u2018\u2019\u201c\u201d"
"""Marks beside a word that are no part of it."""

_QUERY_SIGN = re.compile('["\u201c\u201d\u201e\u00ab\u00bb*+-]')
"""Signs around a word that other engines take for phrases, beginnings of words, and what must or must not be there."""

_MAX_NAME_WORDS = 8
_MAX_CACHED_TOKENS = 1 << 17
_CONTEXT_TOKENS = 20  # looked at before and after a word in capitals
_CONTEXT_CHARS = 256  # in which they mostly are
_OPERATORS = frozenset(["AND", "OR", "NOT"])  # of search engines; people write them in capitals between words
_TOKEN = re.compile(r"\S+")
_SYMBOL = re.compile(r"[^\w\s!\"%&'()*,./:;?@\[\\\]_{}\u2000-\u206f\u3000-\u303f-]")  # a sign that is no punctuation
_DIVIDED_NAME = re.compile(  # a letter at the end of a word and a digit at the start of the next, or the reverse
    rf"(?<!\S)[{re.escape(PUNCTUATION)}]*([^\W_]*(?:[^\W\d_](?=[^\S\n]+\d)|\d(?=[^\S\n]+[^\W\d_])))"
    rf"(?=[^\S\n]+([^\W_]+)[{re.escape(PUNCTUATION)}.]*(?!\S))"
)
_RUN = re.compile(r"[^\W_]+")
_DIGIT = re.compile(r"\d")
_DECIMAL = re.compile(r"[0-9]+\.[0-9]+")
_PROBE = (
    "generously raised mortgages horses running häuser schönste nationales corriendo 東京 2024, C++ in XJ-900/2 "
    "v1.10.2 for WHO and AIDS in the U.S., a vitamin A. A .NET node.js 1,000 IL6 서울은"
)  # for fingerprints

# Function words that stand between keywords, too: in lower case they are never acronyms.
_GLUE = frozenset(
    """a an and any as at but by each for from i in into nor of off on or other over own per same some such than that
    the their then these this those to under up with""".split()
)


class ChunkTerm(NamedTuple):
    """A term of a chunk, and where in it."""

    term: str  # "" for a stop word
    start: int
    end: int
    acronym: str = ""  # what the word is if it is meant as an acronym
    in_capitals: bool = False  # whether the text around decides that
    weight: float = 1.0  # in a query; 0 where texts alone have it

    @property
    def is_letter(self) -> bool:
        """Whether it is a single letter or digit."""
        return self.end - self.start == 1


TokenTerms = str | tuple[tuple[str, ...], tuple[ChunkTerm, ...]]
"""The term of a token, "" for none; else its terms, and the parts that the text around decides on."""
# Only strings and plain tuples of strings: the garbage collector passes over them, however many are remembered.


class QueryTerms(NamedTuple):
    """What a query searches.

    Attributes:
        spans: where each term stands.
        weights: of the terms that it says: of a word, how often.
        variants: of the acronyms and names that it may mean, where a document has them.
        ignored: the spans that are left out: stop words, each with the acronym that it may mean or "", and symbols.
    """

    spans: dict[str, list[Span]]
    weights: dict[str, float]
    variants: dict[str, float]
    ignored: dict[Span, str]

    def add(self, term: str, span: Span, weight: float, weights: dict[str, float]) -> None:
        """Add a term at a span to `weights` or `variants`."""
        self.spans.setdefault(term, []).append(span)
        weights[term] = weights.get(term, 0.0) + weight


class Analyser:
    """How a text becomes terms."""

    def __init__(self, language: str = "english", stop_words: Iterable[str] | None = None) -> None:
        """Choose one of Snowball's stemmers, or "none"; None takes the stop words for English, and else no words."""
        self.language = language
        default = ENGLISH_STOP_WORDS if language == "english" else frozenset[str]()
        self.stop_words = default if stop_words is None else frozenset(map(fold_case, stop_words))
        self.function_words = self.stop_words | default
        self._stem = _stemmer(language)
        self._parts = lru_cache(_MAX_CACHED_TOKENS)(self._parts_of_token)
        self.value = lru_cache(_MAX_CACHED_TOKENS)(self._value_of_token)
        # Of a word in lower case its term, "" for a stop word; a token in lower case without punctuation around it.
        self._term = lru_cache(_MAX_CACHED_TOKENS)(lambda word: "" if word in self.stop_words else self._stem(word))
        self.query_terms = lru_cache(_MAX_CACHED_TOKENS)(lambda text: frozenset(self.query(text).weights))
        self._bare_word = lru_cache(_MAX_CACHED_TOKENS)(lambda token: fold_case(token.strip(PUNCTUATION)))

    @property
    def fingerprint(self) -> str:
        """A hash of what terms depend on: the stop words, and what becomes of a text."""
        content = (sorted(self.stop_words), sorted(self.terms(_PROBE)))
        return hashlib.blake2b(repr(content).encode(), digest_size=8).hexdigest()

    def terms(self, text: str) -> list[str]:
        """Return the terms of `text`, in no order."""
        return self.term_positions(text)[0]

    def term_positions(
        self, text: str, requested: Container[str] | None = None, word_spans: Iterable[Sequence[int]] | None = None
    ) -> tuple[list[str], list[Span]]:
        """Return the terms of `text`, token by token, and the span of each.

        Args:
            text: as the user has it.
            requested: the terms to return; None for all.
            word_spans: rising spans of words, of which one is in each token that has a term; None reads all tokens.
        """
        terms: list[str] = []
        spans: list[Span] = []
        is_whole = word_spans is None or SOFT_HYPHEN in text  # which may join what blanks divide
        if word_spans is None or is_whole:
            word_spans = [(0, len(text))] if text else []
        whole_form: NormalizedText | None = None
        for piece, start in _around(text, word_spans):
            form = None if not is_whole and piece.isascii() else normalize(piece)
            for token, at in (
                [(piece, 0)] if form is None else [(match[0], match.start()) for match in _TOKEN.finditer(form.text)]
            ):
                neighbours: tuple[list[str], int] | None = None  # the same for all parts of a token
                for part in self._parts(token):
                    term, first, last, acronym, in_capitals, _ = part
                    is_wanted = term and (requested is None or term in requested)
                    is_acronym = in_capitals and (requested is None or acronym in requested)
                    if not (is_wanted or is_acronym):
                        continue
                    begin, end = (first, last) if form is None else form.span(at + first, at + last)
                    if is_wanted:
                        terms.append(term)
                        spans.append((start + begin, start + end))
                    if is_acronym:
                        whole_form = whole_form or normalize(text)
                        neighbours = neighbours or _neighbours(whole_form, start + begin)
                        if self._is_acronym(*neighbours, part.is_letter):
                            terms.append(acronym)
                            spans.append((start + begin, start + end))
        return terms, spans

    def term_alone(self, word: str) -> str | None:
        """Return the term of a word that is a token, "" for a stop word; None where there may be others."""
        form = normalize(word).text
        parts = self._parts(form)
        if not parts:
            return ""
        part = parts[0]
        is_whole = len(parts) == 1 and (part.start, part.end) == (0, len(form))
        return part.term if is_whole and not part.in_capitals else None

    def key(self, word: str) -> str:
        """Return what a word of a text is found by, "" for one that may hold several terms."""
        form = normalize(word).text
        is_whole = form.isalnum() and (form.isascii() or not PAIRED_RUN.search(form))
        return self._stem(fold_case(form)) if is_whole else ""

    def keys(self, term: str) -> set[str]:
        """Return keys of which each token with a term has a word: of its first word, however that is written."""
        run = match[0] if (match := _RUN.search(term.lower())) else ""
        changes = [end for end in range(1, len(run)) if run[end - 1].isdigit() != run[end].isdigit()]  # il|6
        starts = {run[:end] for end in (*changes, len(run))}
        digits = changes[0] if changes else len(run)
        starts.add(run[: digits % 3 or 3] if run[:1].isdigit() else run[:1])  # 1|000, u|s
        return starts | {self._stem(start) for start in starts}

    def query(self, text: str) -> QueryTerms:
        """Return what a query searches."""
        form = normalize(text)
        keyword = self._keyword(form.text.split())
        query_terms, is_original = QueryTerms({}, {}, {}, {}), form.is_original
        position = 0
        for line in form.text.split("\n"):
            tokens = line.split()
            for index, token in enumerate(tokens):
                start = form.text.find(token, position)
                position = start + len(token)
                parts = self._parts(token)
                if not parts and _SYMBOL.search(token):
                    query_terms.ignored[form.span(start, position)] = ""
                for sign in _QUERY_SIGN.finditer(token):
                    at = sign.start()
                    if parts and not min(part.start for part in parts) <= at < max(part.end for part in parts):
                        query_terms.ignored[form.span(start + at, start + at + 1)] = ""
                for part in parts:
                    term, first, last, acronym, _, weight = part
                    span = (start + first, start + last) if is_original else form.span(start + first, start + last)
                    if term and weight:
                        query_terms.add(term, span, weight, query_terms.weights)
                    if acronym:
                        self._add_acronym(query_terms, part, span, tokens, index, keyword)
                    elif not term:
                        query_terms.ignored[span] = ""
        for match in _DIVIDED_NAME.finditer(form.text) if _DIGIT.search(form.text) else ():  # "b 12" for "b12"
            name, span = self._key(match[1]) + self._key(match[2]), form.span(match.start(1), match.end(2))
            query_terms.add(name, span, DIVIDED_NAME_WEIGHT, query_terms.variants)
        return query_terms

    def _add_acronym(
        self, query_terms: QueryTerms, part: ChunkTerm, span: Span, tokens: Sequence[str], index: int, keyword: str
    ) -> None:
        """Add what a word of a query is if it is meant as an acronym, for certain or perhaps."""
        is_keyword = tokens[index] == keyword
        # Search engines take AND, OR and NOT between words for more than words.
        is_operator = tokens[index] in _OPERATORS and index + 1 < len(tokens) and (index > 0 or tokens[index] == "NOT")
        is_acronym = part.in_capitals and not is_operator
        if is_acronym and self._is_acronym(tokens, index, part.is_letter):
            query_terms.add(part.acronym, span, 1.0, query_terms.weights)
            return
        if is_keyword or (part.in_capitals and part.term):
            query_terms.add(part.acronym, span, VARIANT_WEIGHT, query_terms.variants)
        if not part.term:
            query_terms.ignored[span] = part.acronym if is_keyword else ""

    def _keyword(self, tokens: Sequence[str]) -> str:
        """Return the function word of a query that may be an acronym though it is not written as one; "" for none."""
        # It stands where a keyword would: alone among keywords, and first or after a preposition; "a" after another.
        words = list(map(self._bare_word, tokens))
        function_words = [index for index, word in enumerate(words) if word in self.function_words]
        sentence = [index for index in function_words if words[index] not in _GLUE]
        if len(sentence) == 1 and (sentence[0] == 0 or words[sentence[0] - 1] in _GLUE):
            return tokens[sentence[0]]
        is_letter = len(function_words) == 1 and len(words[function_words[0]]) == 1 and function_words[0] > 0
        return tokens[function_words[0]] if is_letter else ""  # vitamin a

    def context_flags(self, token: str) -> int:
        """Return what a token tells of its neighbours in capitals: HAS_LOWER_CASE + IN_CAPITALS + BEFORE_LETTER."""
        flags = HAS_LOWER_CASE if token != token.upper() else IN_CAPITALS * _is_in_capitals(token)
        return flags + BEFORE_LETTER * (token[-1].isalnum() and fold_case(token) not in self.function_words)

    def _value_of_token(self, token: str) -> TokenTerms:
        """Return the terms of a token in word form."""
        core = token if token.isalnum() else _core(token)
        value = self._sure_term(core) if core.isalnum() and core.isascii() else self._sure_terms(core)
        if value is None:
            parts = self._read(core)
            value = _one_or_several([part.term for part in parts], [part for part in parts if part.in_capitals])
        return value

    def _sure_term(self, word: str) -> str | None:
        """Return the term of an ASCII word, "" for a stop word; None where the text around may decide."""
        lowered = word.lower()
        term = self._term(lowered)
        if word.isupper() and len(word) <= MAX_ACRONYM_LETTERS and (lowered in self.function_words or term != lowered):
            return None
        return term

    def _sure_terms(self, core: str) -> TokenTerms | None:
        """Return the terms of "0.05", "patient's", and two ASCII words with "-" or "/" between; else None."""
        if _DECIMAL.fullmatch(core):
            return core
        if core.endswith("'s") and len(core) > 3 and core.isascii() and core[:-2].isalnum():
            return self._sure_term(core[:-2])
        first, joiner, second = core.partition("-" if "-" in core else "/")
        if not (core.isascii() and first.isalnum() and second.isalnum()):
            return None
        terms = [self._sure_term(first), self._sure_term(second)]
        if None in terms:
            return None
        if is_name(first, joiner, second):
            terms.append(spelled_name([self._key(first), self._key(second)], [joiner]))
        return _one_or_several(terms)

    def _is_acronym(self, tokens: Sequence[str], index: int, is_letter: bool) -> bool:
        """Whether the line says that a word in capitals is an acronym: not an article, or a word of a heading."""
        in_a_row = n_in_capitals = 1
        has_lower_case = False
        for step in (-1, 1):
            in_row = True
            for position in range(index + step, index + step * _CONTEXT_TOKENS, step):
                if not 0 <= position < len(tokens) or (has_lower_case and not in_row):
                    break
                token = tokens[position]
                if token != token.upper():
                    has_lower_case, in_row = True, False
                elif _is_in_capitals(token):
                    n_in_capitals += 1
                    in_a_row += in_row
                    if in_a_row > MAX_ACRONYMS_IN_A_ROW and not is_letter:
                        return False
                else:
                    in_row = False
        if is_letter:  # vitamin A
            return has_lower_case and index > 0 and bool(self.context_flags(tokens[index - 1]) & BEFORE_LETTER)
        return has_lower_case or n_in_capitals == 1

    def _parts_of_token(self, token: str) -> tuple[ChunkTerm, ...]:
        """Return the terms of what stands between blanks, in word form."""
        core = _core(token)
        if not core or core == token:
            return tuple(self._read(token))
        at = token.index(core)  # "(cells)," has the terms of "cells" in another place
        return tuple(part._replace(start=part.start + at, end=part.end + at) for part in self._parts(core))

    def _read(self, core: str) -> list[ChunkTerm]:
        """Return the terms of a token without punctuation around it."""
        if core.isalnum() and (core.isascii() or not PAIRED_RUN.search(core)):
            return self._words(Unit(core, 0, len(core), "", "", False), is_alone=True)
        parts: list[ChunkTerm] = []
        for chunk in chunk_patterns(core.isascii())[0].finditer(core):
            parts += self._parts_of_chunk(chunk[0], chunk.start())
        return parts

    def _parts_of_chunk(self, chunk: str, at: int) -> Iterable[ChunkTerm]:
        if PAIRED_RUN.match(chunk):
            return _parts_of_run(chunk, at)
        if chunk.isalnum():
            return self._words(Unit(chunk, at, at + len(chunk), "", "", False), is_alone=True)
        units, joiners = cut_chunk(chunk, at)
        words = [part for unit in units if unit.word for part in self._words(unit, is_alone=len(units) == 1)]
        names = [*signed_names(units), *self._joined(units, joiners)]
        share = (NAME_WEIGHT if any(part.term for part in words) else 1.0) / max(len(names), 1)
        return words + [ChunkTerm(name, start, end, weight=share) for name, (start, end) in names]

    def _words(self, unit: Unit, *, is_alone: bool) -> list[ChunkTerm]:
        """Return the term of a word, and its acronym where the chunk alone tells it."""
        word, lowered = unit.word, fold_case(unit.word)
        is_letter = len(word) == 1 and word.isalpha()
        if is_letter and unit.sign:  # C++ is not C
            return []
        term = self._term(lowered)
        part = ChunkTerm(term, unit.start, unit.end)
        is_confusable = lowered in self.function_words or term != lowered
        if not (is_confusable and word.isalpha() and len(word) <= MAX_ACRONYM_LETTERS):
            return [part]
        if unit.is_initials or (is_letter and word.isupper() and not is_alone):  # U.S., A/B
            acronym = ChunkTerm(word.upper(), unit.start, unit.end)
            return [part, acronym] if term else [acronym]
        return [part._replace(acronym=word.upper(), in_capitals=word.isupper())]

    def _joined(self, units: Sequence[Unit], joiners: Sequence[str]) -> Iterator[tuple[str, Span]]:
        """Yield the names that signs between words make: of each two neighbours, and of more than two together."""
        if len(units) == 1:
            return
        keys = [self._key(unit.word, unit.sign) for unit in units]
        first = 0  # of the words that a name joins
        for last in range(1, len(units) + 1):
            if last < len(units) and is_name(keys[last - 1], joiners[last - 1], keys[last]):
                yield (
                    spelled_name(keys[last - 1 : last + 1], [joiners[last - 1]]),
                    (units[last - 1].start, units[last].end),
                )
                continue
            if 2 < last - first <= _MAX_NAME_WORDS:
                yield (
                    spelled_name(keys[first:last], joiners[first : last - 1]),
                    (units[first].start, units[last - 1].end),
                )
            first = last

    def _key(self, word: str, sign: str = "") -> str:
        lowered = fold_case(word)
        return self._stem(lowered) if len(lowered) > 1 and lowered.isalpha() and not sign else lowered + sign


def _around(text: str, words: Iterable[Sequence[int]]) -> Iterator[tuple[str, int]]:
    """Yield what stands between blanks around words, whose spans rise, and where it starts."""
    done, size = 0, len(text)
    for start, end in words:
        if end <= done:
            continue
        start = max(start, done)
        while start > done and not text[start - 1].isspace():
            start -= 1
        while end < size and not text[end].isspace():
            end += 1
        yield text[start:end], start
        done = end


def _neighbours(form: NormalizedText, position: int) -> tuple[list[str], int]:
    """Return the tokens of a line around a place of the original text, and the index of its own among them."""
    text = form.text
    position = position if form.is_original else int(np.searchsorted(form.offsets[0], position))
    size = _CONTEXT_CHARS
    while True:  # lines may be very long
        start, end = max(position - size, 0), position + size
        before, after = text[start:position].rpartition("\n"), text[position:end].partition("\n")
        tokens, n_before = (before[2] + after[0]).split(), len(before[2].split())
        is_in_token = bool(before[2]) and not before[2][-1].isspace()
        n_before -= is_in_token
        has_start = before[1] or not start or n_before > _CONTEXT_TOKENS  # the first token may be the end of one
        has_end = after[1] or end >= len(text) or len(tokens) - n_before > _CONTEXT_TOKENS + 1
        if has_start and has_end:
            return tokens, n_before
        size *= 4


def _one_or_several(terms: Iterable[str | None], capitals: Iterable[ChunkTerm] = ()) -> TokenTerms:
    """Return the terms of a token, as a string where they are one or none for certain."""
    distinct_terms, decided = tuple(term for term in terms if term), tuple(capitals)
    return (distinct_terms, decided) if decided or len(distinct_terms) > 1 else "".join(distinct_terms)


def _is_in_capitals(token: str) -> bool:
    """Whether a token is in capitals, and more than one letter."""
    return token.isupper() and sum(map(str.isalpha, token)) > 1


def _core(token: str) -> str:
    """Return a token without the punctuation around it, and the last dot unless it has others."""
    core = token.strip(PUNCTUATION)
    if core[-1:] == "." and (core.find(".") == len(core) - 1 or core[-2] in PUNCTUATION):
        return core[:-1].rstrip(PUNCTUATION)
    return core


def _parts_of_run(run: str, at: int) -> Iterator[ChunkTerm]:
    """Yield the overlapping pairs of characters, each with its marks, and the characters, searched where one is all."""
    ends = [0, *cluster_ends(run)]
    weight = float(len(ends) == 2)
    for start, end in pairwise(ends):
        yield ChunkTerm(run[start:end], at + start, at + end, weight=weight)
    for start, end in zip(ends, ends[2:]):
        yield ChunkTerm(run[start:end], at + start, at + end)


def _stemmer(language: str) -> Any:
    if language == "none":
        return str
    with importing("search", "PyStemmer"):
        import Stemmer
    if language not in Stemmer.algorithms():
        languages = ", ".join(sorted(set(Stemmer.algorithms()) - {"porter", "lovins"}))
        raise InputError(f"language is {shown(language)}; there are stemmers for {languages}; 'none' does not stem")
    stemmer = Stemmer.Stemmer(language)
    stemmer.maxCacheSize = 0  # its cache is slower than stemming, and terms are remembered here
    return stemmer.stemWord
