"""Which encoding a text file is in: named by its byte order mark, and guessed for a message where it is not UTF-8."""

from __future__ import annotations

import codecs
import re
from difflib import get_close_matches
from encodings.aliases import aliases

from pellucid.errors import CorpusError, InputError, shown

MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks and their encodings; that of UTF-32 begins as that of UTF-16 does."""

_SAMPLE_BYTES = 1 << 16
_PUNCTUATION = "\u201c\u201d\u201e\u2018\u2019\u2013\u2014\u2026\u20ac\xa3\xa7\xa9\xb0\xab\xbb\xbf\xa1\xa0"
_WESTERN = "éäöüèàçñáíóúãõßêâôîûëïåøæìòùýÿœÀÁÂÄÅÆÇÈÉÊËÎÏÑÓÔÖØÙÚÛÜŒ" + _PUNCTUATION
_CENTRAL = "áéíóěščžłąężýśćńřůőäöüúűďĺľňôŕťźășțâîßÁČĎÉĚÍŇÓÖŐŘŠŤÚŮÜŰÝŽĄĆĘŁŃŚŹŻ" + _PUNCTUATION
_TURKISH = "ıüşğçöİâîûÇĞÖŞÜ" + _PUNCTUATION
_LATIN = {  # the usual characters of the languages that are written in an encoding; of equal fits the first counts
    "cp1252": _WESTERN,
    "cp1254": _TURKISH,
    "mac-roman": _WESTERN,
    "cp1250": _CENTRAL,
    "cp850": _WESTERN,
}
_OTHER_SCRIPTS = {
    "cp1251": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъёіїєґАБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЭЮЯІЇЄ" + _PUNCTUATION,
    "koi8-r": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъёАБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЭЮЯ",
    "cp1253": "αοιετνσρηκμλπυάίόέήςώύωδγχθφβξζψΑΒΓΔΕΗΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΆΈΉΊΌ" + _PUNCTUATION,
    "cp1255": "יוהלאמרתבנשםדעפקחכצסטגזןךףץ" + _PUNCTUATION,
    "cp1256": "المنيورتبةعدفسهكقحجأشصخطىذضزئءثإغظآؤپچژگ،؟" + _PUNCTUATION,
    "cp874": "านรอกเงทย่มลวดสต้" + "".join(map(chr, range(0xE01, 0xE5C))),
}
_CHINESE = "的一是不了在人有我他中上大和地到以要就出可也你生能而子那得于着下自之年"
_MULTI_BYTE = {  # what much of the text is, beside ASCII, and the least share of it
    "cp932": (re.compile("[\u3040-\u30ff]"), 0.3),
    "euc-jp": (re.compile("[\u3040-\u30ff]"), 0.3),
    "cp949": (re.compile("[이다는을를가에의하고은지도로한기사서리안자어시일아요세]"), 0.15),
    "gb18030": (re.compile(f"[{_CHINESE}这们来为国说时会对过]"), 0.12),
    "big5": (re.compile(f"[{_CHINESE}這們來為國說時會對過]"), 0.12),
}
_FREQUENT, _RARE_WEIGHT = 14, 0.6  # the first so many of the usual characters count 1, the others less
_MARGIN = 0.05
_LONG_RUN = 2.5  # bytes above ASCII side by side: more in scripts that have all their letters there


def check_encoding(name: str) -> str:
    """Return the name of an encoding of text after checking that there is one."""
    try:
        " ".encode(name)  # of an empty string Python would not look the encoding up
        b"".decode(codecs.lookup(name).name)
    except (LookupError, ValueError) as error:
        similar_names = get_close_matches(name.lower().replace("-", "_"), [*aliases, *aliases.values()], 1)
        hint = (
            f"; did you mean {similar_names[0]}?" if similar_names else "; utf-8, cp1252 and utf-16 are the usual ones"
        )
        raise InputError(f"{shown(name)} is no encoding of text{hint}") from error
    return codecs.lookup(name).name


def marked_encoding(start: bytes) -> tuple[str | None, int]:
    """Return the encoding that a file's byte order mark names, None without one, and the bytes of the mark."""
    return next(((encoding, len(mark)) for mark, encoding in MARKS if start.startswith(mark)), (None, 0))


def check_unmarked(start: bytes, name: str) -> None:
    """Check that the start of a file without a mark is not UTF-16 or UTF-32, which have many zero bytes."""
    zeros = start.count(0)
    if 3 * zeros <= len(start):
        return
    wide = "utf-32" if 3 * zeros > 2 * len(start) else "utf-16"
    order = "be" if start[:1] == b"\0" else "le"
    raise CorpusError(
        f"{name} is UTF-16, UTF-32 or not a text; save it as UTF-8, or name its encoding: --encoding {wide}-{order}"
    )


def encoding_hint(content: bytes) -> str:
    """Return what a message about text that is not UTF-8 says of the encoding to name."""
    likely = likely_encoding(content)
    return f"It may be {likely}: --encoding {likely}" if likely else "Name its encoding: --encoding cp1252, for example"


def likely_encoding(content: bytes) -> str | None:
    """Return the encoding that some text which is not UTF-8 is most likely in; None where none fits.

    >>> likely_encoding("Ein Café für Füße".encode("cp1252"))
    'cp1252'
    """
    sample = content[:_SAMPLE_BYTES]
    sample = sample[: sample.rfind(b"\n") + 1] or sample  # no half character at the end
    runs = re.findall(rb"[\x80-\xff]+", sample)
    if not runs:
        return None
    long_runs = sum(map(len, runs)) > _LONG_RUN * len(runs)
    scores: dict[str, float] = {}
    for encoding, (pattern, share) in _MULTI_BYTE.items() if long_runs else ():
        try:
            text = re.sub(r"[\x00-\x7f]", "", sample.decode(encoding))
        except UnicodeDecodeError:
            continue
        scores[encoding] = 1.0 if len(pattern.findall(text)) >= share * len(text) else 0.0
    for encoding, usual in (_OTHER_SCRIPTS if long_runs else _LATIN).items():
        text = "".join(run.decode(encoding, "replace") for run in runs)
        scores[encoding] = sum(_weight(character, usual) for character in text) / len(text)
    if "cp1252" in scores:  # by far the most frequent one
        scores["cp1252"] += _MARGIN
    best = max(scores, key=lambda encoding: scores[encoding])
    return best if scores[best] > 0.5 else None


def _weight(character: str, usual: str) -> float:
    if character not in usual:
        return 0.0
    return 1.0 if character in _PUNCTUATION or usual.index(character) < _FREQUENT else _RARE_WEIGHT
