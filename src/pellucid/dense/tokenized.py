"""What the tokenizer of an encoder makes of a text: where it is cut, and which words have no token.

The tokenizer is only read. Its methods in transformers switch truncation and padding on and off, which breaks what
another thread tokenizes with it at that moment.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from pellucid.core.arrays import Role
from pellucid.errors import without_panic
from pellucid.text.unicode import canonicalize, canonicalize_with_offsets, graphemes, unspaced_run
from pellucid.text.words import Coverage, Span, split_words

_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
_BLOCK = 256  # texts tokenized together
_WORD_MARKS = "\u2581\u0120 "  # in tokens, before a word: of SentencePiece, of byte-level BPE
_BLANKS = re.compile(r"[\t-\r ]*")  # never part of a word
_UNREAD_MARK = "."  # for a character that no token reads; never part of a word or a phrase


class TokenizedText(NamedTuple):
    """A text as an encoder reads it."""

    text: str
    end: int  # the character where it is cut; its length where it is not
    unread: tuple[Span, ...] = ()  # words before that without a token, or with unknown tokens alone

    @property
    def visible(self) -> str:
        """The text up to its end, with dots for what is not read."""
        if not self.unread:
            return self.text[: self.end]
        characters = list(self.text[: self.end])
        for start, end in self.unread:
            characters[start:end] = _UNREAD_MARK * (end - start)
        return "".join(characters)

    @property
    def coverage(self) -> tuple[Coverage, tuple[Span, ...]]:
        """How many of the words are read, and the spans of those that are not.

        Of a word in a script without spaces a part may be read; it counts by its characters.
        """
        words, unread, unknown = split_words(self.text), set(self.unread), list[Span]()
        if not unread and self.end >= len(self.text):
            return Coverage(len(words), len(words)), ()
        n_known, partly = 0, list[tuple[str, str, float]]()
        for word in words:
            if word.start >= self.end:
                unknown.append((word.start, word.end))
                continue
            units = list(word_units(self.text, word.start, word.end)) if unread else []
            read = [unit for unit in units if unit not in unread]
            unknown += (unit for unit in units if unit in unread)
            n_known += bool(read) or not units
            if 0 < len(read) < len(units):
                read_text = "".join(canonicalize(self.text[slice(*unit)]) for unit in read)
                partly.append(
                    (word.text, read_text, len(read_text) / len(canonicalize(self.text[word.start : word.end])))
                )
        return Coverage.from_words(n_known, len(words), partly), tuple(unknown)


def prompt_of(model: Any, role: Role) -> str:
    """Return what an encoder puts before texts in a role."""
    names = (name for name in _PROMPTS.get(role or "", ()) if name in model.prompts)
    return model.prompts.get(next(names, model.default_prompt_name)) or ""


def tokenize_texts(model: Any, texts: Sequence[str], role: Role) -> list[TokenizedText]:
    """Return texts as a SentenceTransformer or an `OnnxEncoder` reads them; in full without a fast tokenizer."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    longest = getattr(model, "max_seq_length", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    named = model if tokenizer is backend else tokenizer
    if not isinstance(backend, Tokenizer) or not hasattr(named, "unk_token_id"):
        return [TokenizedText(text, len(text)) for text in texts]
    prompt = prompt_of(model, role)
    room = longest - backend.num_special_tokens_to_add(False) if isinstance(longest, int) else sys.maxsize
    lowers = getattr(model if named is model else model[0], "do_lower_case", False)
    unk_token_id = named.unk_token_id
    tokenized: list[TokenizedText] = []
    for start in range(0, len(texts), _BLOCK):
        block = texts[start : start + _BLOCK]
        forms = list(map(canonicalize_with_offsets, block))
        canonical = (form.text for form in forms)
        inputs = [prompt + (text.lower() if lowers and len(text.lower()) == len(text) else text) for text in canonical]
        with without_panic("the tokenizer"):
            encodings = backend.encode_batch(inputs)
        for text, form, encoding in zip(block, forms, encodings):
            tokens = list(islice(_tokens(encoding), room + 1))
            end = len(text)
            if len(tokens) > room:
                last_read = max((span[1] for span, _, _ in tokens[:room]), default=0)
                end = form.span(0, max(0, last_read - len(prompt)))[1]
            spans = [
                (max(first - len(prompt), 0), max(last - len(prompt), 0))
                for (first, last), id, token in tokens[:room]
                if id != unk_token_id and token.strip(_WORD_MARKS)
            ]
            spans = spans if form.is_original else [form.span(*span) for span in spans]
            tokenized.append(TokenizedText(text, end, words_outside(spans, text[:end])))
    return tokenized


def _tokens(encoding: Any) -> Iterator[tuple[Span, int, str]]:
    """Yield span, id and string of the tokens of a text, those included that overflow a tokenizer's own limit."""
    for piece in (encoding, *encoding.overflowing):
        tokens = zip(piece.offsets, piece.ids, piece.tokens, piece.attention_mask, piece.special_tokens_mask)
        yield from ((span, id, token) for span, id, token, is_real, is_special in tokens if is_real and not is_special)


def words_outside(spans: Sequence[Span], text: str) -> tuple[Span, ...]:
    """Return where the words of a text stand, or the characters of scripts without spaces, that no span touches."""
    starts, ends = [*(start for start, _ in spans), len(text)], [0, *(end for _, end in spans)]
    if _BLANKS.fullmatch("".join([text[end:start] for end, start in zip(ends, starts)])):
        return ()  # a character that is in no span stands in one of these gaps
    is_inside = np.zeros(len(text), np.bool_)
    for start, end in spans:
        is_inside[start:end] = True
    return tuple(unit for unit in text_units(text) if not is_inside[slice(*unit)].any())


def text_units(text: str) -> Iterator[Span]:
    """Yield where the words of a text stand; in scripts without spaces each of their characters."""
    for span in dict.fromkeys((word.start, word.end) for word in split_words(text)):
        yield from word_units(text, *span)


def word_units(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield where a word of a text stands; in scripts without spaces each of its grapheme clusters."""
    if unspaced_run.search(text, start, end) is None:
        yield start, end
        return
    unit_start = start
    for first, last in graphemes(text[start:end]):
        if unspaced_run.match(text, start + first):
            if unit_start < start + first:
                yield unit_start, start + first
            yield start + first, start + last
            unit_start = start + last
    if unit_start < end:
        yield unit_start, end
