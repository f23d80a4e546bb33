"""The words of a text in a known language, with their places; and texts that a language's rule cannot cut into words.

Used for making models alone: `segmentation.py` cuts, this file says where the words stand, which the reading of a
teacher's states needs, and refuses text that would come out as a handful of endless words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from threading import Lock
from unicodedata import name as character_name

from pellucid.corpus import Corpus, is_path, read_texts
from pellucid.errors import CorpusError
from pellucid.words import Word, split_words, unspaced_run, well_formed

_SAMPLE = 2_000  # texts
_MOSTLY = 0.5  # of the characters of words

_LONGEST = {"CJK": 4, "HIRAGANA": 4, "KATAKANA": 12, "THAI": 10, "LAO": 10, "KHMER": 10, "MYANMAR": 10}
"""By script without spaces: where people have cut words apart, their average length is not above this."""

_JAPANESE = ("CJK", "HIRAGANA", "KATAKANA")
_SEGMENTED = {
    "zh": ("CJK",), "zho": ("CJK",), "chi": ("CJK",), "cmn": ("CJK",),
    "ja": _JAPANESE, "jpn": _JAPANESE,
    "th": ("THAI",), "tha": ("THAI",),
}  # fmt: skip
"""Languages with a segmenter and the scripts it knows."""

_SEGMENTING = Lock()


@lru_cache(maxsize=16)
def word_finder(language: str | None) -> Callable[[str], list[Word]]:
    """Return the function that finds the words of a text in `language`; None cuts at spaces and punctuation.

    Raises:
        InputError: `language` is no code, or of a language that is written without spaces and has no segmenter.
        MissingExtraError: the segmenter of the language is not installed.
    """
    if language is None:
        return split_words
    from pellucid.distillation.segmentation import segmenter

    segment = segmenter(language)
    if not _known_scripts(language):
        return split_words

    def find(text: str) -> list[Word]:
        text = well_formed(text)
        with _SEGMENTING:  # SudachiPy refuses two threads at once
            pieces = segment(text)
        return list(_placed(text, pieces))

    return find


def _known_scripts(language: str) -> tuple[str, ...]:
    return _SEGMENTED.get(language.replace("_", "-").partition("-")[0].lower(), ())


def _placed(text: str, pieces: Iterable[str]) -> Iterator[Word]:
    """Yield the `pieces` of `text`, which come in order, with where they stand in it."""
    end = 0
    for piece in pieces:
        start = text.find(piece, end)
        if start >= 0:  # else the segmenter has rewritten what it cut
            end = start + len(piece)
            yield Word(piece, start, end)


def check_script(language: str, corpus: Corpus) -> None:
    """Refuse a corpus whose script the rule for `language` cannot cut into words, by its first texts.

    Args:
        language: a code.
        corpus: read from its beginning.

    Raises:
        CorpusError: most of it is in a script without spaces between words that the language is not written in, and
            nobody has put spaces there. The message shows a piece.
    """
    find, known = word_finder(language), _known_scripts(language)
    words: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    longest: dict[str, str] = {}
    for text in islice(read_texts(corpus), _SAMPLE):
        for word in find(text):
            script = _script(word.text)
            words[script] += 1
            characters[script] += len(word.text)
            longest[script] = max(longest.get(script, ""), word.text[:40], key=len)
    foreign = [script for script in characters if script and script not in known]
    if not foreign or sum(characters[script] for script in foreign) < _MOSTLY * characters.total():
        return
    script = max(foreign, key=characters.__getitem__)
    length = characters[script] / words[script]
    if known or length > _LONGEST[script]:
        raise CorpusError(_unsegmentable(language, corpus, script, repr(longest[script])))


def _unsegmentable(language: str, corpus: Corpus, script: str, piece: str) -> str:
    where = f" ({corpus})" if is_path(corpus) else ""
    special = {"CJK": "Chinese characters", "HIRAGANA": "kana", "KATAKANA": "kana", "MYANMAR": "Burmese script"}
    name = special.get(script, f"{script.capitalize()} script")
    right = [code for code in ("zh", "ja", "th") if script in _SEGMENTED[code]]
    ways = [f"give its own code ({' or '.join(right)})"] if right else []
    if _known_scripts(language):
        rule = f"which the segmenter of {language!r} does not know"
    else:
        rule = f"without spaces between words, and {language!r} is cut at spaces"
        ways.append("put spaces between its words")
    way = f"; {', or '.join(ways)}" if ways else ""
    return f"the text of {language!r}{where} is mostly in {name}, {rule}: it would have words such as {piece}{way}"


@lru_cache(maxsize=65_536)
def _script(word: str) -> str:
    """Return the script of the first character in `word` that is of one without spaces, else an empty string."""
    found = unspaced_run.search(word)
    first = character_name(found[0][0], "").partition(" ")[0].partition("-")[0] if found else ""
    return first if first in _LONGEST else "CJK" if found else ""
