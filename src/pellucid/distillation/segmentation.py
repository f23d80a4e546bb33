"""Cutting raw text of any language into words, for making vocabularies.

Encoding needs none of this: there, text in a script without spaces is cut into the longest words of the vocabulary
(`Vocabulary.split`). But which words a vocabulary is to have must be found in running text, by a program that knows
the language: jieba for Chinese, SudachiPy with its small dictionary for Japanese, PyThaiNLP's newmm for Thai. They
bring their dictionaries along; nothing is downloaded. The teacher's tokenizer was the other choice; its pieces are cut
by frequency and often end inside words, and a reader of an explanation would see them.

Words are such as `Vocabulary.split` can find again: a word holds characters of unspaced scripts alone, or none.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from pellucid.errors import InputError, missing_extra
from pellucid.words import split_words, unspaced_run

_Cut = Callable[[str], list[str]]

_LONGEST_RUN = 10_000  # characters cut at once; SudachiPy refuses 49,149 bytes
_CODE = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*", re.IGNORECASE)
_LONG_CODES = {"zho": "zh", "chi": "zh", "cmn": "zh", "jpn": "ja", "tha": "th"}
_WITHOUT_SEGMENTER = {
    "lo": "Lao", "lao": "Lao", "km": "Khmer", "khm": "Khmer", "my": "Burmese", "mya": "Burmese", "bur": "Burmese",
    "yue": "Cantonese", "wuu": "Wu Chinese", "lzh": "Classical Chinese",
}  # fmt: skip


def segmenter(language: str) -> Callable[[str], list[str]]:
    """Return the function that cuts a text of `language` into its words, in order, punctuation left out.

    The same text always gives the same words. Where the text holds no unspaced script, they are those of `split_words`.

    Args:
        language: an ISO 639 code, also with more behind it: "de", "zh", "zh-Hant", "jpn". "und" (no language given)
            takes every language as one that puts spaces between its words.

    Raises:
        InputError: it is no such code, or the language is written without spaces and nothing here cuts it.
        MissingExtraError: the library for this language is not installed.

    >>> segmenter("fr")("C'est l'été.")
    ['C', 'est', 'l', 'été']
    """
    found = _CODE.fullmatch(language) if isinstance(language, str) else None
    if found is None:
        raise InputError(f"the language is {language!r}; give an ISO 639 code such as 'de', 'zh' or 'jpn'")
    code = found[1].lower()
    if code in _WITHOUT_SEGMENTER:
        raise InputError(
            f"{_WITHOUT_SEGMENTER[code]} ({language!r}) is written without spaces and nothing here cuts it into words; "
            "put spaces between the words of the texts and give the language as 'und'"
        )
    cut = {"zh": _chinese, "ja": _japanese, "th": _thai}.get(_LONG_CODES.get(code, code))
    return _words if cut is None else _unspaced_cut_by(cut())


def _words(text: str) -> list[str]:
    return [word.text for word in split_words(text)]


def _unspaced_cut_by(cut: _Cut) -> _Cut:
    """Return the function that gives stretches of unspaced script to `cut` and leaves other words whole."""

    def words(text: str) -> list[str]:
        return [word for piece in split_words(text) for word in _parts(piece.text, cut)]

    return words


def _parts(piece: str, cut: _Cut) -> Iterator[str]:
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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its strings and imports are of older Pythons
            import jieba
    except ImportError as error:
        raise missing_extra("jieba", "languages") from error
    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    cut: _Cut = tokenizer.lcut
    return cut


@lru_cache(maxsize=1)
def _japanese() -> _Cut:
    """Return SudachiPy's short units: a small vocabulary covers more text with them than with compounds."""
    try:
        import sudachidict_small  # noqa: F401  # what dict="small" opens
        from sudachipy import Dictionary, SplitMode
    except ImportError as error:
        raise missing_extra("sudachipy or its sudachidict_small", "languages") from error
    dictionary: Any = Dictionary(dict="small")
    make = getattr(dictionary, "tokenizer", None) or dictionary.create  # renamed in 0.7
    tokenizer = make(mode=SplitMode.A)
    return lambda text: [found.surface() for found in tokenizer.tokenize(text)]


@lru_cache(maxsize=1)
def _thai() -> _Cut:
    """Return PyThaiNLP's newmm: longest match within its dictionary and between Thai character clusters."""
    try:
        with _no_thai_folder():
            from pythainlp.tokenize.newmm import segment
    except ImportError as error:
        raise missing_extra("pythainlp", "languages") from error
    segment("ไทย")  # reads the dictionary
    cut: _Cut = segment
    return cut


@contextmanager
def _no_thai_folder() -> Iterator[None]:
    """Keep PyThaiNLP from making a folder in the user's home, which only its downloads need."""
    names = ("PYTHAINLP_READ_ONLY", "PYTHAINLP_READ_MODE")  # it refuses both at once
    if any(name in os.environ for name in names):
        yield
        return
    os.environ[names[0]] = "1"
    try:
        yield
    finally:
        del os.environ[names[0]]
