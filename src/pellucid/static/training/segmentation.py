"""Cutting raw text of any language into words, for making vocabularies.

Encoding does not need this: there, text in a script without spaces is cut into the longest words of the vocabulary
(`Vocabulary.split`). But the words of a vocabulary must be found in running text by a program that knows the language:
jieba for Chinese, SudachiPy with its small dictionary for Japanese, PyThaiNLP's newmm for Thai. They bring their
dictionaries along; nothing is downloaded. The tokens of a teacher's tokenizer are no substitute: they are cut by
frequency, often end inside words, and a reader of an explanation would see them.

A word has characters of unspaced scripts only, or none, so that `Vocabulary.split` finds it again.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from pellucid.errors import InputError, importing
from pellucid.process import ignored_warnings
from pellucid.text.unicode import normalize, unspaced_run
from pellucid.text.words import Word, split_words

_Cut = Callable[[str], list[str]]

_LONGEST_RUN = 10_000  # characters cut at once; SudachiPy refuses 49,149 bytes
_CODE = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*", re.IGNORECASE)
_LONG_CODES = {"zho": "zh", "chi": "zh", "cmn": "zh", "jpn": "ja", "tha": "th"}
_WITHOUT_SEGMENTER = {
    "lo": "Lao", "lao": "Lao", "km": "Khmer", "khm": "Khmer", "my": "Burmese", "mya": "Burmese", "bur": "Burmese",
    "yue": "Cantonese", "wuu": "Wu Chinese", "lzh": "Classical Chinese",
}  # fmt: skip
_SEGMENTING = threading.RLock()


@lru_cache(maxsize=16)
def word_finder(language: str | None) -> Callable[[str], list[Word]]:
    """Return the function that finds the words of a text in `language`, in order, punctuation left out.

    The same text always gives the same words. Where the text holds no unspaced script, they are those of `split_words`.

    Args:
        language: an ISO 639 code, also with more behind it: "de", "zh", "zh-Hant", "jpn". "und" (no language given)
            takes every language as one that puts spaces between its words, and so does None.

    Raises:
        InputError: it is no such code, or the language is written without spaces and nothing here cuts it.
        MissingExtraError: the library for this language is not installed.

    >>> [word.text for word in word_finder("fr")("C'est l'été.")]
    ['C', 'est', 'l', 'été']
    """
    if language is None:
        return split_words
    code = _code(language)
    if not code:
        raise InputError(f"the language is {language!r}; give an ISO 639 code such as 'de', 'zh' or 'jpn'")
    if code in _WITHOUT_SEGMENTER:
        raise InputError(
            f"{_WITHOUT_SEGMENTER[code]} ({language!r}) is written without spaces and nothing here cuts it into words; "
            "put spaces between the words of the texts and give the language as 'und'"
        )
    open_segmenter = {"zh": _chinese, "ja": _japanese, "th": _thai}.get(code)
    if open_segmenter is None:
        return split_words
    cut = open_segmenter()

    def find(text: str) -> list[Word]:
        words: list[Word] = []
        form, end = normalize(text), 0
        with _SEGMENTING:  # SudachiPy refuses two threads at once
            pieces = list(_pieces(form.text, cut))
        for piece in pieces:
            start = form.text.find(piece, end)
            if start >= 0:  # else the segmenter has rewritten what it cut
                end = start + len(piece)
                words.append(Word(piece, *form.span(start, end)))
        return words

    return find


def _pieces(text: str, cut: _Cut) -> Iterator[str]:
    """Yield the words of a text, its runs of unspaced script cut by `cut`."""
    for piece in (word.text for word in split_words(text)):
        done = 0
        for run in unspaced_run.finditer(piece):
            if run.start() > done:
                yield piece[done : run.start()]
            for start in range(run.start(), run.end(), _LONGEST_RUN):
                yield from filter(None, cut(piece[start : min(start + _LONGEST_RUN, run.end())]))
            done = run.end()
        if done < len(piece):
            yield piece[done:]


@lru_cache(maxsize=1)
def _chinese() -> _Cut:
    """Return jieba's exact mode, its dictionary read without the cache file that it writes where all may write."""
    with importing("languages", "jieba"), ignored_warnings(Warning):  # its strings and imports are of older Pythons
        import jieba
    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer.lcut  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _japanese() -> _Cut:
    """Return SudachiPy's short units: a small vocabulary covers more text with them than with compounds."""
    with importing("languages", "sudachipy or its sudachidict_small"):
        import sudachidict_small  # noqa: F401  # what dict="small" opens
        from sudachipy import Dictionary, SplitMode
    dictionary: Any = Dictionary(dict="small")
    make = getattr(dictionary, "tokenizer", None) or dictionary.create  # renamed in 0.7
    tokenizer = make(mode=SplitMode.A)
    return lambda text: [morpheme.surface() for morpheme in tokenizer.tokenize(text)]


@lru_cache(maxsize=1)
def _thai() -> _Cut:
    """Return PyThaiNLP's newmm: longest match within its dictionary and between Thai character clusters."""
    if "PYTHAINLP_READ_MODE" not in os.environ:
        os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # else it makes a folder for downloads in the user's home
    with importing("languages", "pythainlp"):
        from pythainlp.tokenize.newmm import segment
    return segment  # type: ignore[no-any-return]


def _code(language: object) -> str:
    """Return the code of a language without what stands behind it, the short one if it has a segmenter; "" for none."""
    match = _CODE.fullmatch(language) if isinstance(language, str) else None
    code = match[1].lower() if match else ""
    return _LONG_CODES.get(code, code)
