"""Words: splitting a text into them and finding their rows, the same at every stage of a static model.

The rule is that of the static-word-embeddings paper and its published code: BERT's pre-tokenizer without its normaliser
(split at whitespace, every punctuation mark on its own; case and accents kept), then punctuation dropped. The authors
drop the marks of a list, which differs between their files; here every character that BERT's pre-tokenizer isolates is
dropped. An apostrophe is such a mark ("don't" is "don" and "t"), as in the tables of the authors; a combining mark is
none. The rule is applied to the word form of a text (`unicode.py`), and spans stand in the user's own string.

Beyond the paper, a vocabulary cuts scripts that are written without spaces into the longest words it knows:
`Vocabulary.split` does, `split_words` alone does not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeVar

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.errors import InputError, without_panic
from pellucid.process import cached_property
from pellucid.text.unicode import (
    NormalizedText,
    cluster_ends,
    is_word_form,
    lowercase,
    normalize,
    unspaced_run,
)

Item = TypeVar("Item")

_PRE_TOKENIZER = BertPreTokenizer()
MAX_WORD_CHARS = 100  # as BERT's own tokenizer has it: a longer word is unknown

_BETWEEN_ASCII_MARKS = re.compile(r"[^\t-\r !-/:-@\[-`{-~]+")  # what no ASCII mark or blank divides
_CHUNK_WORDS = 1_000  # of a vocabulary, looked at together: those of ASCII alone take a tenth of the time of others
_MAX_CACHED_CHARS = 20_000  # of a text whose words are remembered: 0.5 MB, of the 32 texts together 16 MB

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""

LOW_COVERAGE = 0.5
"""Share of a text's words; every view warns below it: more than half of the text then counts for nothing."""

SPELLED_WORD_SHARE = 0.5
"""What a word counts in a coverage that is known by its spelling alone.

About the mean cosine of its vector to the word's own, for words held out: 0.56 (`papers/swe/spelling.py --prefixes`,
under the tag `experiments-2026-11`).
"""

PARTIAL_WORD_THRESHOLD = 2 / 3
"""A word is named in notes with what it is read as if this part of it is known, or less.

Above are mostly other forms of a word ("mappings" read as "mapping"), and names that lack their last sign. How many
words of real texts that names: `papers/swe/spelling.py --prefixes`, under the tag `experiments-2026-11`.
"""


class Word(NamedTuple):
    """A word of a text and its place there: `text[start:end]`, in characters."""

    text: str
    start: int
    end: int


@lru_cache(maxsize=4096)  # Unicode 16 has 855 marks of punctuation; the other characters asked about are symbols
def _is_punctuation(mark: str) -> bool:
    """Whether BERT's pre-tokenizer isolates the character `mark` inside a word."""
    return len(_PRE_TOKENIZER.pre_tokenize_str(f"a{mark}a")) == 3


def split_words(text: str) -> list[Word]:
    """Return the words of `text` in order: in word form, with their character spans in `text`."""
    form = normalize(text)
    return _in_original(_split(form.text), form)


def _split(text: str) -> list[Word]:
    """Return the words of a text that is in word form; those of a text that was just read are remembered."""
    return list(_cached_words(text)) if len(text) <= _MAX_CACHED_CHARS else _find_words(text)


def _find_words(text: str) -> list[Word]:
    """Find the words of a text that is in word form."""
    if text.isascii():
        return [Word(match[0], *match.span()) for match in _BETWEEN_ASCII_MARKS.finditer(text)]
    words = []
    for match in _BETWEEN_ASCII_MARKS.finditer(text):
        piece, start = match[0], match.start()
        if piece.isascii() or piece.isalnum():  # letters and digits hold no mark to split at
            words.append(Word(piece, start, match.end()))
        else:
            pieces = _PRE_TOKENIZER.pre_tokenize_str(piece)
            words += [Word(p, start + s, start + e) for p, (s, e) in pieces if e - s > 1 or not _is_punctuation(p)]
    return words


@lru_cache(maxsize=32)  # an explanation asks for the words of a text three times: its coverage, tokens and vectors
def _cached_words(text: str) -> tuple[Word, ...]:
    return tuple(_find_words(text))


def _in_original(words: list[Word], form: NormalizedText) -> list[Word]:
    """Return words of a word form with their spans in the original text."""
    return words if form.is_original else [Word(word.text, *form.span(*word[1:])) for word in words]


@dataclass(frozen=True)
class Coverage:
    """How much of a text a model knew: its words with a vector, or, for a transformer, the words that it read.

    A share that is not given is known / total.

    Attributes:
        known: words, each counted as often as it occurs.
        total: all words of the text.
        partly: those of `known` that were only found by their beginning ("tokenisers (read as token)") or spelling.
        share: the known part of the words: what they count together / total. A word of `partly` counts by the share of
            its letters that its beginning has ("chatgpt (read as chat)" 4/7), or half if it is spelled; the other known
            words count 1. 1 for a text without words, of which nothing is unknown.
        read_as: the distinct words of `partly` of which two thirds or less are known, as first written, each with
            what it is read as.
    """

    known: int
    total: int
    partly: int = 0
    share: float = math.nan
    read_as: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Set a share that is not given."""
        if math.isnan(self.share):
            object.__setattr__(self, "share", self.known / self.total if self.total else 1.0)

    @classmethod
    def from_words(cls, n_known: int, n_words: int, partly: Iterable[tuple[str, str, float]]) -> Coverage:
        """Return that of a text; of each partly known word take it, what it is read as, and how much is known."""
        count, parts, read_as = 0, 0.0, dict[str, tuple[str, str]]()
        for word, read_as_word, part in partly:
            count += 1
            parts += part  # one after the other, as `numpy.bincount` adds in the path for many texts
            if part <= PARTIAL_WORD_THRESHOLD:
                read_as.setdefault(lowercase(word), (word, read_as_word))
        return cls(
            n_known, n_words, count, (n_known - count + parts) / n_words if n_words else 1.0, tuple(read_as.values())
        )

    @property
    def is_low(self) -> bool:
        """Whether the share is below `LOW_COVERAGE`."""
        return self.share < LOW_COVERAGE

    @property
    def summary(self) -> str:
        """How much is known, for a sentence: "1 of 3 words", or "17% (1 of 3 words, 1 of them partly)"."""
        words = f"{self.known:,} of {self.total:,} words"
        return f"{self.share:.0%} ({words}, {self.partly:,} of them partly)" if self.partly else words

    @property
    def interpretations(self) -> list[str]:
        """A phrase for each word of `read_as`: '"chatgpt" read as "chat"'."""
        return [f'"{word}" read as "{read_as}"' for word, read_as in self.read_as]


def part_known(word: str, prefix: str) -> float:
    """Return what a word counts in a coverage that is read as `prefix`: the share of its characters, at most 1."""
    return min(1.0, len(prefix) / len(word))


def words_before(text: str, end: int) -> tuple[Coverage, tuple[Span, ...]]:
    """Return the coverage and the unknown spans of a text read up to character `end`."""
    words = split_words(text)
    left_out = tuple((word.start, word.end) for word in words if word.start >= end)
    return Coverage(len(words) - len(left_out), len(words)), left_out


def is_recognizable_prefix(prefix: str, word: str) -> bool:
    """Whether a word read as `prefix` is read as enough of it: of less it is a guess ("asdfghqwerty" read as "as")."""
    return len(prefix) >= 3 and 2 * len(prefix) >= len(word)


class Vocabulary:
    """The words of a static model and the rules that find them in a text and a row for any word.

    Attributes:
        words: in row order, as they were given.
        forms: the same as texts are read: in word form.

    `split` finds the words of a text. `row` finds the row of a word, in order (section 4.1 of the paper and its
    footnote 9): the word itself; its lower-case form; and for a word of several pieces of the teacher's tokenizer, the
    longest prefix that ends between two pieces and is a known word ("tokenisers" -> token ##iser ##s -> "tokeniser",
    else "token"). Otherwise the word is unknown.
    """

    def __init__(
        self,
        words: Sequence[str],
        subwords: Tokenizer | Callable[[], Tokenizer] | None = None,
    ) -> None:
        """Take distinct words in row order, and the teacher's tokenizer or a function called at first use.

        Raises:
            InputError: a word is there twice.
        """
        self.words = words
        self._subwords = subwords
        self._row = {word: row for row, word in enumerate(words)}
        if len(self._row) != len(words):
            twice = next(word for row, word in enumerate(words) if self._row[word] != row)
            raise InputError(f"the vocabulary holds {twice!r} twice")
        self.forms = self._as_in_texts()

    def _as_in_texts(self) -> Sequence[str]:
        """Return the words in their word form, in which texts are read, and find their rows by it.

        A word stays as it is where its word form is another word of the vocabulary, which texts then mean.
        """
        forms: dict[int, str] = {}
        for word in self.words:
            if not (word.isascii() or is_word_form(word)):
                form, row = normalize(word).text.strip(), self._row[word]
                if form and self._row.setdefault(form, row) == row:
                    forms[row] = form
        if not forms:
            return self.words
        in_texts = list(self.words)
        for row, form in forms.items():
            in_texts[row] = form
        return in_texts

    def __getstate__(self) -> dict[str, Any]:
        """Replace the function by its tokenizer: it may not be picklable, or read a file."""
        return {**self.__dict__, "_subwords": self.subwords}

    @property
    def subwords(self) -> Tokenizer | None:
        """The teacher's tokenizer, or None."""
        subwords = self._subwords
        if subwords is not None and not isinstance(subwords, Tokenizer):
            self._subwords = subwords = subwords()
        return subwords

    @property
    def has_subwords(self) -> bool:
        """Whether there is a tokenizer, which need not be made to say so."""
        return self._subwords is not None

    def subwords_file(self) -> dict[str, Any]:
        """Return the tokenizer as its JSON file describes it; {} without a file."""
        described = getattr(self._subwords, "described", None)
        return described() if described is not None else json.loads(self.subwords.to_str()) if self.subwords else {}

    @cached_property
    def cased(self) -> bool:
        """Whether a word is not in lower case: case then tells words apart."""
        chunks = (" ".join(self.forms[first : first + _CHUNK_WORDS]) for first in range(0, len(self), _CHUNK_WORDS))
        return any(chunk != lowercase(chunk) for chunk in chunks)

    @property
    def cuts_scripts(self) -> bool:
        """Whether `split` cuts scripts that are written without spaces."""
        return bool(self._unspaced_lengths)

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        """Whether `word` itself has a row."""
        return word in self._row

    def has_row(self, word: str) -> bool:
        """Whether `word` has a row of its own, as it is or in lower case: not one of its beginning."""
        return self._exact_row(word) >= 0

    def row(self, word: str) -> int:
        """Return the row of `word`, or -1 for an unknown word."""
        row = self._exact_row(word)
        return row if row >= 0 or self._subwords is None else self._prefix_row(word)

    def _exact_row(self, word: str) -> int:
        """Return the row of `word` as it is or in lower case, or -1."""
        row = self._row.get(word, -1)
        if row < 0:
            row = self._row.get(lowercase(word), -1)
        if row < 0 and not word.isascii() and (form := normalize(word).text) != word:
            return self._exact_row(form)
        return row

    def split(self, text: str) -> list[Word]:
        """Return the words of `text` as this vocabulary finds them, with their character spans.

        After `split_words`, what is in a script without spaces is cut off from what is not and, from the left, into the
        longest words of the vocabulary; a character that begins none is a word by itself. A piece that is in the
        vocabulary stays whole.

        Only a vocabulary with a word of two or more characters in such a script does so: a single sign such as "ツ"
        among English words would be found inside words that it has nothing to do with.

        >>> [word.text for word in Vocabulary(["東京", "に"]).split("To、東京都に")]
        ['To', '東京', '都', 'に']
        """
        form = normalize(text)
        words = _split(form.text)
        if self.cuts_scripts and not form.text.isascii():
            words = [part for word in words for part in self._cut(word)]
        return _in_original(words, form)

    def spaced(self, texts: list[str], *, normal: bool = False) -> list[str]:
        """Return texts, in word form, in which `split_words` finds the words that `split` finds in the originals.

        With `normal` they are in word form already.
        """
        forms = texts if normal else [text if text.isascii() else normalize(text).text for text in texts]
        if self.cuts_scripts:
            return [form if form.isascii() else self._spaced(form) for form in forms]
        return forms

    def _spaced(self, text: str) -> str:
        if not self._has_mixed:  # else a piece may stay whole
            return unspaced_run.sub(lambda run: f" {' '.join(self._longest_known(run[0]))} ", text)
        return " ".join([word.text for word in self.split(text)])

    @cached_property
    def _unspaced_lengths(self) -> dict[str, tuple[int, ...]]:
        """The lengths of the known words in unspaced scripts by their first two characters, longest first."""
        lengths: dict[str, set[int]] = {}
        for word in self.forms:
            if len(word) > 1 and not word.isascii() and unspaced_run.fullmatch(word):
                lengths.setdefault(word[:2], set()).add(len(word))
        return {start: tuple(sorted(several, reverse=True)) for start, several in lengths.items()}

    @cached_property
    def _has_mixed(self) -> bool:
        """Whether a known word holds characters of unspaced scripts beside others."""
        words = (word for word in self.forms if not word.isascii())
        return any(unspaced_run.search(word) and not unspaced_run.fullmatch(word) for word in words)

    def _cut(self, word: Word) -> Iterator[Word]:
        """Yield `word`, or where it holds unspaced script its known words and what is left."""
        text, start, _ = word
        if text.isascii() or self.has_row(text):
            yield word
            return
        done = 0
        for run in unspaced_run.finditer(text):
            if run.start() > done:
                yield Word(text[done : run.start()], start + done, start + run.start())
            done = run.start()
            for part in self._longest_known(run[0]):
                yield Word(part, start + done, start + done + len(part))
                done += len(part)
        if done < len(text):
            yield Word(text[done:], start + done, word.end)

    def _longest_known(self, run: str) -> list[str]:
        """Cut a run of unspaced script into known words and single grapheme clusters; no word ends inside one."""
        ends = cluster_ends(run)
        words = []
        position = 0
        while position < len(run):
            for length in self._unspaced_lengths.get(run[position : position + 2], ()):
                part = run[position : position + length]
                if part in self._row and position + length in ends:
                    break
            else:
                part = run[position : next(end for end in count(position + 1) if end in ends)]
            words.append(part)
            position += len(part)
        return words

    def _prefix_row(self, word: str) -> int:
        if len(word) > MAX_WORD_CHARS or self.subwords is None:
            return -1
        with without_panic("subwords.json"):
            encoding = self.subwords.encode(word, add_special_tokens=False)
        real = [token for token, is_real in zip(encoding.tokens, encoding.attention_mask) if is_real]  # no padding
        pieces = [piece.removeprefix("##").lstrip("\u2581") for piece in real]
        for n_pieces in range(len(pieces) - 1, 0, -1):
            row = self._row.get("".join(pieces[:n_pieces]), -1)
            if row >= 0:
                return row
        return -1


def spans_by(items: Iterable[tuple[Item, Span]]) -> dict[Item, tuple[Span, ...]]:
    """Return where each item stands, by items in the order of their first places."""
    spans_by_item: dict[Item, list[Span]] = {}
    for item, span in items:
        spans_by_item.setdefault(item, []).append(span)
    return {item: tuple(spans) for item, spans in spans_by_item.items()}
