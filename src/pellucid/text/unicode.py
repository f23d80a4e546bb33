r"""The Unicode policy: which strings are the same text, and where what a model reads stands in the user's own string.

Every model reads a text in its *canonical form* (NFC), in which an accented letter is the same whether it was typed as
one character or as two. What works with words (static tables, BM25, near-duplicates, names) reads the *word form*:

- Letters and digits that are only drawn in another way become the plain ones: ligatures, full and half width, the
  contextual forms of Arabic, letters of formulas, subscripts, units in one square ("\u338f" is "kg"), Kangxi radicals.
  Superscripts and fractions stay: 10\u00b2 is not 102.
- What cannot be seen is left out: soft hyphens, zero-width characters, byte order marks, marks of direction, selectors
  of variants. A zero-width space between scripts written without spaces divides words, and so does a zero-width
  non-joiner between Arabic letters, as in Persian. Joiners inside an emoji stay.
- Points that readers of Hebrew, Arabic and Syriac do without are left out, and so is the tatweel. Vowel signs of other
  scripts are letters like any other, and stay.

`lowercase` is `str.lower` without the dot that Python leaves above the i of "\u0130stanbul".

The user's string is never changed. A `NormalizedText` knows for each of its characters where it comes from, in whole
grapheme clusters (what a reader takes for one character, by UAX #29), so that no span ends inside one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from functools import cache, lru_cache
from itertools import chain
from unicodedata import category, combining, decomposition, is_normalized

import numpy as np
import numpy.typing as npt
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

Offsets = npt.NDArray[np.int64]
_Piece = tuple[str, tuple[int, ...], tuple[int, ...]]  # the form of a piece; where its characters start and end there

UNSPACED = (
    r"\u2e80-\u2fdf\u3005-\u3007\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    r"\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"  # kana
    r"\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    r"\u0e81-\u0ecf\u0edc-\u0edf"  # Lao
    r"\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    r"\u1000-\u103f\u1050-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
)
"""The characters of scripts written without spaces, as the inside of a regular expression's brackets.

Their digits, currency signs and punctuation are left out: "2024年" is a number and a word, in any digits.
"""

HANGUL = r"\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
"""The syllables and letters of Korean, whose words have spaces between them and particles at their ends, likewise."""

unspaced_run = re.compile(f"[{UNSPACED}]+")
"""One or more such characters in a row."""

_ARABIC = r"\u0620-\u063f\u0641-\u064a\u066e-\u066f\u0671-\u06d3\u06d5\u06ee\u06ef\u06fa-\u06ff\u0750-\u077f"
_INVISIBLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
)
_INVISIBLE_BEYOND = r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
_POINTS = (
    r"\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew
    r"\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"  # Arabic
    r"\u0897-\u089f\u08ca-\u08e1\u08e3-\u08ff\u0711\u0730-\u074a"  # Arabic, Syriac
)
_DRAWN_DIFFERENTLY = (  # some characters that do not change are among them: `_fold` decides
    r"\u00b5\u0132\u0133\u013f\u0140\u0149\u017f\u01c4-\u01cc\u01f1-\u01f3\u03d0-\u03d6\u03f0-\u03f9\u0587"
    r"\u0675-\u0678\u0edc\u0edd\u0f77\u0f79\u1d62-\u1d6a\u1e9a\u1e9b\u2080-\u209c\u2100-\u2149"
    r"\u2160-\u217f\u2c7c\u2e9f\u2ef3\u2f00-\u2fd5\u3038-\u303a\u309f\u30ff\u3250\u32c0-\u32cf\u32ff-\u33ff"
    r"\ufb00-\ufdff\ufe10-\ufe19\ufe30-\ufeff\uff02-\uff07\uff0a\uff0b\uff0d-\uff19\uff1c-\uff1e\uff20-\uffee"
)
_HIGH_RANGES = r"\U0001bca0-\U0001f251\U0001fbf0-\U000e0fff"  # where some are: a search for few ranges is much faster
_SEQUENCES = r"\u0307\u0e4d\u0ecd"  # characters that `_SPELLINGS` changes together with the one before or after
_DIFFERENT = re.compile(f"[{_INVISIBLE}{_POINTS}{_DRAWN_DIFFERENTLY}{_SEQUENCES}{_HIGH_RANGES}]")  # what may change
_LEFT_OUT = re.compile(f"[{_INVISIBLE}{_INVISIBLE_BEYOND}{_POINTS}]+")
_VARIANTS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")  # selectors, such as of an emoji's colours
_TRAILING = re.compile("[\u00ad\u200b\u2060\ufeff]+$")  # invisible, and no part of the character before

_PIECE = re.compile(r"\S+(?:(?<=\u00ad)\r?\n[ \t]*\S+)*")  # what blanks divide, unless a soft hyphen ends the line
_APART = re.compile(  # some scripts whose characters, without marks, are each a grapheme cluster
    r"[\x20-\x7e\xa0-\xa8\xaa-\xac\xaf-\u02ff\u0370-\u0482\u048a-\u058f"
    r"\u3001-\u3029\u3041-\u3096\u30a0-\u31ff\u3400-\u9fff\uac00-\ud7a3\uff01-\uff9d\U00020000-\U0003ffff]*"
)
_GRAPHEMES = Split(Regex(r"\X"), "isolated")
_DIVIDES = re.compile(f"[{UNSPACED}]\u200b[{UNSPACED}]|[{_ARABIC}]\u200c[{_ARABIC}]")
_MARK_BLOCKS = (  # code points from and up to, between which all marks are
    (0x300, 0x3100), (0xA66F, 0xABF0), (0xFB1E, 0xFE30), (0x101FD, 0x12000), (0x13430, 0x13460), (0x16100, 0x17000),
    (0x1BC9D, 0x1BC9F), (0x1CF00, 0x1E950), (0xE0100, 0xE01F0),
)  # fmt: skip
_LONG_CLUSTER = 64  # characters; what is longer is no writing
_CACHED_LENGTH = 64  # characters of a piece whose form is remembered: a longer one is hardly met again

_SAME_LETTERS = frozenset(
    f"<{tag}>" for tag in "wide narrow font initial medial final isolated square sub vertical".split()
)
_ORDINARY = re.compile(r"[\u0e33\u0eb3\u3131-\u318e\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]")
"""Letters of Thai, Lao and Korean and the punctuation of Chinese that have compatibility decompositions."""
_SPELLINGS = (
    (re.compile("i\u0307"), "i"),  # what lower-casing leaves of a capital I with a dot
    (re.compile("\u0e4d([\u0e48-\u0e4b]?)\u0e32"), "\\1\u0e33"),  # Thai sara am in two characters
    (re.compile("\u0ecd([\u0ec8-\u0ecb]?)\u0eb2"), "\\1\u0eb3"),  # Lao
    (re.compile("\u09a4\u09cd\u200d"), "\u09ce"),  # Bengali khanda ta, as it was written before it had a character
    *((re.compile(f"{letter}\u0d4d\u200d"), chillu) for letter, chillu in zip("ണനരലളക", "ൺൻർൽൾൿ")),  # Malayalam
)


def well_formed(text: str) -> str:
    """Return `text` with lone surrogates as U+FFFD, of the same length, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


class NormalizedText:
    """A text as models read it, and where each of its characters comes from.

    Attributes:
        text: its normal form.
    """

    __slots__ = ("_form_of", "_offsets", "_original", "text")

    def __init__(
        self, text: str, original: str | None = None, form_of: Callable[[str], _Piece | None] | None = None
    ) -> None:
        """Take the form, and where it is another than the original: that, and what made it of pieces."""
        self.text, self._original, self._form_of = text, original, form_of
        self._offsets: tuple[Offsets, Offsets] | None = None

    @property
    def is_original(self) -> bool:
        """Whether each character stands where it does in the original."""
        return self._form_of is None

    @property
    def offsets(self) -> tuple[Offsets, Offsets]:
        """Where the original of each character starts and ends, both int64 [characters]."""
        if self._offsets is None:
            boundaries = np.arange(len(self.text) + 1)
            self._offsets = (boundaries[:-1], boundaries[1:]) if self._form_of is None else self._compute_offsets()
        return self._offsets

    def _compute_offsets(self) -> tuple[Offsets, Offsets]:
        assert self._original is not None and self._form_of is not None
        starts: list[int] = []
        ends: list[int] = []
        done = 0
        for match in _PIECE.finditer(self._original):
            form = None if match[0].isascii() else self._form_of(match[0])
            if form is not None:
                first = match.start()
                starts += range(done, first)
                ends += range(done + 1, first + 1)
                starts += [first + offset for offset in form[1]]
                ends += [first + offset for offset in form[2]]
                done = match.end()
        starts += range(done, len(self._original))
        ends += range(done + 1, len(self._original) + 1)
        return np.array(starts, np.int64), np.array(ends, np.int64)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original that `text[start:end]` comes from, in whole grapheme clusters."""
        if self._form_of is None:
            return start, end
        starts, ends = self.offsets
        if start < end:
            return int(starts[start]), int(ends[end - 1])
        position = int(starts[start]) if start < len(starts) else int(ends[-1]) if len(ends) else 0
        return position, position

    def spans(self, spans: Offsets) -> Offsets:
        """Return what `span` does of many spans, none of them empty, int64 [spans, 2]."""
        if self._form_of is None or not len(spans):
            return spans
        starts, ends = self.offsets
        return np.stack([starts[spans[:, 0]], ends[spans[:, 1] - 1]], axis=1)


def canonicalize(text: str) -> str:
    """Return the canonical form (NFC) of a text: equal for any two strings that Unicode calls equivalent."""
    return unicodedata.normalize("NFC", well_formed(text))


def canonicalize_with_offsets(text: str) -> NormalizedText:
    """Return the canonical form of a text, and where it comes from."""
    text = well_formed(text)
    if is_normalized("NFC", text):
        return NormalizedText(text)
    return NormalizedText(unicodedata.normalize("NFC", text), text, _canonical_piece)


def normalize(text: str) -> NormalizedText:
    r"""Return the word form of a text: what every search for words reads.

    >>> form = normalize("The e\ufb03cient infor\u00admation")
    >>> form.text, form.span(4, 13)
    ('The efficient information', (4, 11))
    """
    if text.isascii():
        return NormalizedText(text)
    text = well_formed(text)
    form = unicodedata.normalize("NFC", text)
    if _DIFFERENT.search(form):
        form = _PIECE.sub(_word_form_of, form)
    return NormalizedText(form) if form == text else NormalizedText(form, text, _word_piece)


def lowercase(text: str) -> str:
    """Return `text` in lower case; a capital I with a dot becomes an i."""
    return text.lower() if text.isascii() else text.lower().replace("i\u0307", "i")


def graphemes(text: str) -> list[tuple[int, int]]:
    """Return the grapheme clusters of a well-formed `text` in order: what a reader takes for one character.

    They are those of UAX #29, of whichever version; letters joined by a virama stay together, as in its newer ones.
    """
    if _APART.fullmatch(text):
        return [(position, position + 1) for position in range(len(text))]
    clusters: list[tuple[int, int]] = []
    for _, (start, end) in _GRAPHEMES.pre_tokenize_str(text):
        if clusters and _is_joined(text[clusters[-1][0] : start], text[start]):
            clusters[-1] = clusters[-1][0], end
        else:
            clusters.append((start, end))
    return clusters


def cluster_ends(text: str) -> Collection[int]:
    """Return where the grapheme clusters of a well-formed `text` end, in order, to iterate or to look up."""
    return range(1, len(text) + 1) if _APART.fullmatch(text) else dict.fromkeys(end for _, end in graphemes(text))


def cluster_start(text: str, position: int) -> int:
    """Return where the grapheme cluster of a well-formed `text` starts that `text[place]` belongs to."""
    begin = max(0, position - _LONG_CLUSTER)
    starts = [begin + start for start, _ in graphemes(text[begin : position + 1])]
    return starts[-1] if starts else position


@cache
def marks() -> str:
    """Return the combining marks, which belong to the word they stand in, as the inside of brackets."""
    ranges: list[list[int]] = []
    for code in chain.from_iterable(map(range, *zip(*_MARK_BLOCKS))):
        if category(chr(code)) in ("Mn", "Mc", "Me"):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def is_spelled_with_marks(word: str) -> bool:
    """Whether a word is in word form, and made of letters and their combining marks alone."""
    return is_word_form(word) and word[0].isalpha() and all(c.isalpha() or category(c)[0] == "M" for c in word)


def may_change(character: str) -> bool:
    """Whether the word form of a text with `character` may be another; any other text is in word form as it is."""
    return bool(
        combining(character)
        or category(character)[0] == "M"
        or "\u1100" <= character <= "\u11ff"  # parts of Korean syllables
        or not is_normalized("NFC", character)
        or _DIFFERENT.match(character)
    )


def is_word_form(text: str) -> bool:
    """Whether a text is in NFC and without a character that word form may change."""
    return text.isascii() or (is_normalized("NFC", text) and not _DIFFERENT.search(text))


def _canonical_piece(piece: str) -> _Piece | None:
    if is_normalized("NFC", piece):
        return None
    spans = graphemes(piece)
    return _by_cluster(spans, [unicodedata.normalize("NFC", piece[start:end]) for start, end in spans])


def _word_piece(piece: str) -> _Piece | None:
    if is_word_form(piece):
        return None
    return _cached_word_form(piece) if len(piece) <= _CACHED_LENGTH else _word_form(piece)


def _word_form_of(piece: re.Match[str]) -> str:
    form = None if piece[0].isascii() else _word_piece(piece[0])
    return piece[0] if form is None else form[0]


def _word_form(piece: str) -> _Piece | None:
    """Return the word form of what stands between blanks, None if it is the same.

    Where invisible characters go, what they kept apart may join, such as a letter and a mark: it is folded again.
    """
    forms, starts, ends = [], [], []
    first = 0
    for start, end in _divisions(piece):
        form = _stable_form(piece[first:end])
        forms += [form[0], " "] if end < len(piece) else [form[0]]
        starts += [first + offset for offset in form[1]] + [start] * (end < len(piece))
        ends += [first + offset for offset in form[2]] + [end] * (end < len(piece))
        first = end
    text = "".join(forms)
    return None if text == piece else (text, tuple(starts), tuple(ends))


def _divisions(piece: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the clusters that divide words, and the last: their ends cut the piece."""
    clusters = graphemes(piece) if "\u200b" in piece or "\u200c" in piece else ()
    for start, end in clusters:  # what divides words is at the end of a cluster, or is one
        divides = piece[end - 1] in "\u200b\u200c" and end < len(piece) and category(piece[end])[0] != "M"
        letter = next((c for c in reversed(piece[: end - 1]) if category(c)[0] != "M"), "") if divides else ""
        if divides and _DIVIDES.match(letter + piece[end - 1 : end + 1]):
            yield start, end
    yield len(piece), len(piece)


def _stable_form(piece: str) -> _Piece:
    """Return the word form of a piece that nothing divides, folded until it is its own form."""
    before, (text, starts, ends) = piece, _fold_clusters(piece, blank="")
    while text != before and (_DIFFERENT.search(text) or not is_normalized("NFC", text)):  # else it does not change
        before, (text, first, last) = text, _fold_clusters(text, blank=" ")
        starts, ends = tuple(starts[offset] for offset in first), tuple(ends[offset - 1] for offset in last)
    return text, starts, ends


def _fold_clusters(text: str, *, blank: str) -> _Piece:
    """Return the word forms of the grapheme clusters of `text`, with `blank` for those that begin with one."""
    spans = graphemes(text)
    forms = [blank if text[start].isspace() else _fold(text[start:end]) for start, end in spans]
    return _by_cluster([(s, s + len(_TRAILING.sub("", text[s:e])) or e) for s, e in spans], forms)


_cached_word_form = lru_cache(maxsize=1 << 14)(_word_form)


def _by_cluster(spans: list[tuple[int, int]], forms: list[str]) -> _Piece:
    """Return the forms of clusters as one, each character with the span of its cluster."""
    starts = [start for (start, _), form in zip(spans, forms) for _ in form]
    ends = [end for (_, end), form in zip(spans, forms) for _ in form]
    return "".join(forms), tuple(starts), tuple(ends)


@lru_cache(maxsize=1 << 14)
def _fold(cluster: str) -> str:
    """Return the word form of a grapheme cluster."""
    form = unicodedata.normalize("NFD", "".join(map(_same_letters, unicodedata.normalize("NFD", cluster))))
    if category(cluster[0]) == "So":  # an emoji, whose joiners and tags tell it from others
        return unicodedata.normalize("NFC", _VARIANTS.sub("", form).rstrip("\u200c\u200d"))
    for pattern, spelling in _SPELLINGS:
        form = pattern.sub(spelling, form)
    return unicodedata.normalize("NFC", _LEFT_OUT.sub("", form))


@lru_cache(maxsize=1 << 14)
def _same_letters(character: str) -> str:
    """Return the plain letters or digits that a character is only another drawing of; any other as it is."""
    tag, *points = decomposition(character).split() or [""]
    if tag[:1] != "<" or _ORDINARY.match(character):
        return character
    plain = "".join(chr(int(point, 16)) for point in points)
    if tag == "<compat>":  # also the tag of accents alone, dots, numbers in brackets, and signs that are more than
        is_sign = category(character)[0] == "S" and plain.isascii()  # their letters, such as that of numero
        is_same = not is_sign and all(c in "\u00b0\u00b7" or category(c)[0] in "LMN" for c in plain)
    else:
        is_same = tag in _SAME_LETTERS and (tag != "<sub>" or plain.isalnum())
    return "".join(map(_same_letters, plain.lstrip(" "))) if is_same else character


def _is_joined(before: str, first: str) -> bool:
    """Whether the cluster that begins with `first` belongs to the one before."""
    if combining(before.rstrip("\u200d")[-1:] or " ") == 9:  # a virama
        return first.isalpha()
    if first in "\u0e32\u0eb2":
        return "\u0e4d" in before[-2:] or "\u0ecd" in before[-2:]
    return first in "\uff9e\uff9f"
