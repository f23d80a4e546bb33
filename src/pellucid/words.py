"""Words: splitting a text into them and finding their rows, the same at every stage of a static model.

The rule is the one of the static-word-embeddings paper and its published code: BERT's pre-tokenizer without its
normaliser (split at whitespace, every punctuation mark on its own; case and accents kept), then punctuation dropped.
Chinese and Japanese text without spaces stays in one piece, as there.

The authors drop the marks of a written list, which differs between their files. Here every character that BERT's
pre-tokenizer isolates is dropped, so that there is one list and no mismatch between making a model and using it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.errors import InputError

_PRE_TOKENIZER = BertPreTokenizer()
_LONGEST_WORD = 100  # characters; BERT's own tokenizer calls a longer word unknown


class Word(NamedTuple):
    """A word of a text and where it stands there: `text[start:end]`, in characters."""

    text: str
    start: int
    end: int


def well_formed(text: str) -> str:
    """Return `text` with each lone surrogate replaced by U+FFFD, so that it can be written as UTF-8.

    The replacement has the same length, hence character spans keep their meaning.
    """
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


@lru_cache(maxsize=4096)
def _is_punctuation(mark: str) -> bool:
    """Whether BERT's pre-tokenizer isolates the character `mark` inside a word."""
    return len(_PRE_TOKENIZER.pre_tokenize_str(f"a{mark}a")) == 3


def split_words(text: str) -> list[Word]:
    """Return the words of `text` in order, with their character spans.

    >>> [w.text for w in split_words("Don't panic: 3.14!")]
    ['Don', 't', 'panic', '3', '14']
    """
    pieces = _PRE_TOKENIZER.pre_tokenize_str(well_formed(text))
    return [Word(p, s, e) for p, (s, e) in pieces if e - s > 1 or not _is_punctuation(p)]


class Vocabulary:
    """The words of a static model and the rule that finds a row for any word.

    In order (section 4.1 of the paper and its footnote 9): the word itself; its lower-case form; and for a word of
    several pieces of the teacher's tokenizer, the longest prefix that ends between two pieces and is a known word
    ("tokenisers" -> token ##iser ##s -> "tokeniser", else "token"). Otherwise the word is unknown.
    """

    def __init__(self, words: Sequence[str], subwords: Tokenizer | Callable[[], Tokenizer] | None = None) -> None:
        """Take the words in row order and the teacher's tokenizer; without one, no prefix is tried.

        A function in place of the tokenizer is called when the first unknown word turns up, so that opening a model
        does not wait for it.

        Raises:
            InputError: a word occurs twice.
        """
        self.words = words
        self._subwords = subwords
        self._row = {word: row for row, word in enumerate(words)}
        if len(self._row) != len(words):
            twice = next(word for row, word in enumerate(words) if self._row[word] != row)
            raise InputError(f"the vocabulary holds {twice!r} twice")

    @property
    def subwords(self) -> Tokenizer | None:
        """The teacher's tokenizer, or None."""
        subwords = self._subwords
        if subwords is not None and not isinstance(subwords, Tokenizer):
            self._subwords = subwords = subwords()
        return subwords

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        """Whether `word` itself has a row."""
        return word in self._row

    def row(self, word: str) -> int:
        """Return the row that stands for `word`, or -1 for an unknown word.

        >>> Vocabulary(["the", "cat"]).row("The")
        0
        """
        row = self._row.get(word, -1)
        if row < 0:
            row = self._row.get(word.lower(), -1)
        return row if row >= 0 or self._subwords is None else self._prefix_row(word)

    def _prefix_row(self, word: str) -> int:
        if len(word) > _LONGEST_WORD or self.subwords is None:
            return -1
        found = self.subwords.encode(word, add_special_tokens=False)
        real = [token for token, is_real in zip(found.tokens, found.attention_mask) if is_real]  # no padding
        pieces = [piece.removeprefix("##").lstrip("\u2581") for piece in real]
        for kept in range(len(pieces) - 1, 0, -1):
            prefix = "".join(pieces[:kept])
            row = self._row.get(prefix, -1)
            if row >= 0:
                return row
        return -1
