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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any
from unicodedata import name as character_name

from pellucid.errors import CorpusError, InputError, missing_extra
from pellucid.process import ignored_warnings
from pellucid.text.tables import Corpus, is_path, read_texts
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
_SAMPLE = 2_000  # texts
_MOSTLY = 0.5  # of the characters of words

_MAX_MEAN_WORD_CHARS = {"CJK": 4, "HIRAGANA": 4, "KATAKANA": 12, "THAI": 10, "LAO": 10, "KHMER": 10, "MYANMAR": 10}
"""By script without spaces: where people have cut words apart, their average length is not above this."""

_SEGMENTED = {"zh": ("CJK",), "ja": ("CJK", "HIRAGANA", "KATAKANA"), "th": ("THAI",)}
"""Languages with a segmenter and the scripts it knows."""

_SEGMENTING = threading.RLock()


@lru_cache(maxsize=16)
def word_finder(language: str | None) -> Callable[[str], list[Word]]:
    """Return the function that finds the words of a text in `language`; None cuts at spaces and punctuation."""
    if language is None:
        return split_words

    segment = segmenter(language)
    if not _known_scripts(language):
        return split_words

    def find(text: str) -> list[Word]:
        words: list[Word] = []
        form, end = normalize(text), 0
        with _SEGMENTING:  # SudachiPy refuses two threads at once
            pieces = segment(form.text)
        for piece in pieces:
            start = form.text.find(piece, end)
            if start >= 0:  # else the segmenter has rewritten what it cut
                end = start + len(piece)
                words.append(Word(piece, *form.span(start, end)))
        return words

    return find


def check_script(language: str, corpus: Corpus) -> None:
    """Check by the first texts of a corpus that the rule for `language` can cut its script into words."""
    # It cannot where most is in a script without spaces that the language is not written in, and the text has none.
    find, segmented_scripts = word_finder(language), _known_scripts(language)
    words: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    longest: dict[str, str] = {}
    for text in islice(read_texts(corpus), _SAMPLE):
        for word in find(text):
            script = _script(word.text)
            words[script] += 1
            characters[script] += len(word.text)
            longest[script] = max(longest.get(script, ""), word.text[:40], key=len)
    foreign = [script for script in characters if script and script not in segmented_scripts]
    if not foreign or sum(characters[script] for script in foreign) < _MOSTLY * characters.total():
        return
    script = max(foreign, key=characters.__getitem__)
    length = characters[script] / words[script]
    if segmented_scripts or length > _MAX_MEAN_WORD_CHARS[script]:
        raise CorpusError(_unsegmentable(language, corpus, script, repr(longest[script])))


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
    code = _code(language)
    if not code:
        raise InputError(f"the language is {language!r}; give an ISO 639 code such as 'de', 'zh' or 'jpn'")
    if code in _WITHOUT_SEGMENTER:
        raise InputError(
            f"{_WITHOUT_SEGMENTER[code]} ({language!r}) is written without spaces and nothing here cuts it into words; "
            "put spaces between the words of the texts and give the language as 'und'"
        )
    cut = {"zh": _chinese, "ja": _japanese, "th": _thai}.get(code)
    opened = cut and cut()
    return lambda text: list(_words(text, opened))


def _words(text: str, cut: _Cut | None) -> Iterator[str]:
    """Yield the words of a text, its runs of unspaced script cut by `cut`."""
    for piece in (word.text for word in split_words(text)):
        if cut is None:
            yield piece
            continue
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
        with ignored_warnings(Warning):  # its strings and imports are of older Pythons
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
    return lambda text: [morpheme.surface() for morpheme in tokenizer.tokenize(text)]


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


def _known_scripts(language: str) -> tuple[str, ...]:
    """Return the scripts without spaces that the segmenter of a language cuts."""
    return _SEGMENTED.get(_code(language), ())


def _code(language: object) -> str:
    """Return the code of a language without what stands behind it, the short one if it has a segmenter; "" for none."""
    match = _CODE.fullmatch(language) if isinstance(language, str) else None
    code = match[1].lower() if match else ""
    return _LONG_CODES.get(code, code)


def _unsegmentable(language: str, corpus: Corpus, script: str, piece: str) -> str:
    """Return the message for text in a script that is not cut into words, such as `piece`."""
    where = f" ({corpus})" if is_path(corpus) else ""
    special = {"CJK": "Chinese characters", "HIRAGANA": "kana", "KATAKANA": "kana", "MYANMAR": "Burmese script"}
    name = special.get(script, f"{script.capitalize()} script")
    right = [code for code in ("zh", "ja", "th") if script in _SEGMENTED[code]]
    hints = [f"give its own code ({' or '.join(right)})"] if right else []
    if _known_scripts(language):
        rule = f"which the segmenter of {language!r} does not know"
    else:
        rule = f"without spaces between words, and {language!r} is cut at spaces"
        hints.append("put spaces between its words")
    hint = f"; {', or '.join(hints)}" if hints else ""
    return f"the text of {language!r}{where} is mostly in {name}, {rule}: it would have words such as {piece}{hint}"


@lru_cache(maxsize=65_536)
def _script(word: str) -> str:
    """Return the script of the first character in `word` that is of one without spaces, else an empty string."""
    run = unspaced_run.search(word)
    first = character_name(run[0][0], "").partition(" ")[0].partition("-")[0] if run else ""
    return first if first in _MAX_MEAN_WORD_CHARS else "CJK" if run else ""
