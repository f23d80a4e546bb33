"""Which tokens of a vocabulary are whole words, and which are numbers, signs or parts of words.

Tokenizers mark differently where a word begins: GPT-2's byte-level pieces and SentencePiece mark a piece that begins a
word (`Ġdog`, `▁dog`), WordPiece one that does not (`##bed`). A piece that begins a word may still
be only a part of one (`Ġrecomm`), hence a list of words is asked too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel

from pellucid.errors import InputError

_PLACEHOLDER = re.compile(
    r"[\[<(]?\|?(unused|pad|reserved|extra_id|reserved_special_token|special|madeupword|dummy)_?\d+_?\|?[\])>]?",
    re.IGNORECASE,
)
_LONE_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_INSIDE_WORDS = "'-\u2019"  # beside letters
_MIN_MARK_SHARE = 0.01  # the share of tokens that carries a scheme's mark, at least
_MAX_SPARE_ROWS = 4096  # of a head, beyond the tokens; heads are padded to round numbers (DeepSeek: 2,385 rows)
_WORDS = Path(__file__).parents[1] / "bundled" / "static-en" / "words.txt"


class Rank(IntEnum):
    """How well a token reads on its own, best first."""

    WORD = 0  # a whole word of the list
    WORDLIKE = 1  # begins a word and is made of letters: a name, a foreign word, or the beginning of a word
    NUMBER = 2  # digits, letters among digits, single letters
    INNER = 3  # occurs inside words, and is a word of the vocabulary at the start of one
    SIGN = 4
    SHARD = 5
    NONE = 6  # no text: special tokens, placeholders, lone bytes


class Token(NamedTuple):
    """A token as a reader sees it; shards have an ellipsis where the rest of the word is missing."""

    text: str
    rank: Rank


class _Piece(NamedTuple):
    """A token without its marks."""

    text: str  # "" where it has none
    begins: bool  # a word begins here


def vocabulary_of(tokenizer: Any) -> tuple[list[str], set[int]]:
    """Return the tokens of a tokenizer in order of their ids, "" for an unused id, and the ids of special tokens."""
    backend = tokenizer if isinstance(tokenizer, Tokenizer) else getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(f"a tokenizer of transformers or tokenizers is needed, got {type(tokenizer).__name__}")
    ids = backend.get_vocab(with_added_tokens=True)
    special = {token_id for token_id, added in backend.get_added_tokens_decoder().items() if added.special}
    if not ids:
        raise InputError("the tokenizer has no token")
    special |= set(getattr(tokenizer, "all_special_ids", ()))
    tokens = [""] * (max(ids.values()) + 1)
    for token, token_id in ids.items():
        tokens[token_id] = token
    return tokens, special


def tokens_of_rows(rows: int, tokenizer: Any) -> tuple[list[str], list[Token]]:
    """Return the token of each of a head's rows, "" for none, and how it reads; `tokenizer` may be a list of tokens."""
    is_list = isinstance(tokenizer, Sequence) and not isinstance(tokenizer, str)
    spelled, special = (list(tokenizer), set[int]()) if is_list else vocabulary_of(tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    added = backend.get_added_tokens_decoder() if hasattr(backend, "get_added_tokens_decoder") else {}
    if all(token_id in added for token_id in range(rows, len(spelled))):  # added later, without rows (SGPT's brackets)
        spelled = spelled[:rows]
    spare = rows - len(spelled)
    if not 0 <= spare <= _MAX_SPARE_ROWS:
        raise InputError(
            f"the head has {rows:,} rows and the tokenizer {len(spelled):,} tokens; they are not of the same model"
            + (" (resize the model's embeddings after adding tokens)" if spare < 0 else "")
        )
    spelled += [""] * spare
    return spelled, readable(spelled, special)


def unused_name(name: str, used_names: set[str]) -> str:
    """Return the name, numbered where it is in use, and add it to `used_names`."""
    numbered, count = name, 1
    while numbered in used_names:
        count += 1
        numbered = f"{name} ({count})"
    used_names.add(numbered)
    return numbered


@cache
def common_words() -> frozenset[str]:
    """The words of the bundled English model, in lower case: which tokens are whole words."""
    return frozenset(_WORDS.read_text(encoding="utf-8").split("\n")) - {""}


def readable(tokens: Sequence[str], special: Collection[int] = ()) -> list[Token]:
    r"""Return how each token reads; whole words are those of the bundled English model.

    >>> [t.text for t in readable(["Ġdog", "Ġdogs", "ression", "Ċ"])]
    ['dog', 'dogs', '…ression', '\\n']
    """
    read = _scheme(tokens)
    pieces = [
        _Piece("", False) if token_id in special or not token or _PLACEHOLDER.fullmatch(token) else read(token)
        for token_id, token in enumerate(tokens)
    ]
    beginnings = {piece.text.casefold() for piece in pieces if piece.begins}
    return [_ranked(piece, beginnings) for piece in pieces]


def _scheme(tokens: Sequence[str]) -> Callable[[str], _Piece]:
    """Return the function that takes a token's marks off, by the marks that are common."""
    for mark, read in (("##", _word_piece), ("▁", _sentence_piece), ("Ġ", _byte_level)):
        if sum(token.startswith(mark) for token in tokens) >= max(1.0, _MIN_MARK_SHARE * len(tokens)):
            return read
    return lambda token: _Piece(token, True)


def _word_piece(token: str) -> _Piece:
    inner = token.startswith("##") and len(token) > 2
    return _Piece(token[2:] if inner else token, not inner)


def _sentence_piece(token: str) -> _Piece:
    if _LONE_BYTE.fullmatch(token):
        return _Piece("", False)
    text = token.replace("▁", " ")
    return _Piece(text, text.startswith(" "))


def _byte_level(token: str) -> _Piece:
    text = ByteLevel().decode([token])
    return _Piece("" if "\ufffd" in text else text, text.startswith(" "))  # bytes that are no whole character


def _ranked(piece: _Piece, beginnings: Collection[str]) -> Token:
    """Return a piece as a reader sees it."""
    text = _printable(piece.text.strip())
    if not piece.text:
        return Token("", Rank.NONE)
    if not text:
        return Token(_printable(piece.text.replace(" ", "␣")), Rank.SIGN)
    if not any(map(_is_letter, text)) and not any(map(str.isnumeric, text)):
        return Token(text, Rank.SIGN)
    if piece.begins:
        return Token(text, _word_rank(text))
    twin = f" {text}".casefold() in beginnings
    if twin and text[0].isupper() and len(text) > 1:
        return Token(text, max(Rank.WORDLIKE, _word_rank(text)))  # a word at the start of a text
    if twin and len(text) > 1:
        return Token(text, Rank.INNER)
    return Token(f"…{text}", Rank.SHARD)


def _printable(text: str) -> str:
    """Return `text` with its control characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _word_rank(text: str) -> Rank:
    """Return how well a piece reads that begins a word."""
    if (len(text) == 1 and text.isascii()) or not all(_is_letter(c) or c in _INSIDE_WORDS for c in text):
        return Rank.NUMBER
    return Rank.WORD if text.lower() in common_words() else Rank.WORDLIKE


def _is_letter(character: str) -> bool:
    """Whether a character is a letter or a sign upon one, as vowels are in many scripts."""
    return unicodedata.category(character)[0] in "LM"
