"""What models do not read: signs in numbers and in names such as C++, by which texts of the same words may differ.

Static models and lexicons read words alone: 2024-01-02 and 2024-02-01 are the same to them, and so are -5 and 5.
"""

from __future__ import annotations

import re
import unicodedata

from pellucid.text.unicode import normalize

_CURRENCY = "$\u00a2-\u00a5\u058f\u060b\u09f2\u09f3\u0e3f\u17db\u20a0-\u20cf\ufdfc"
_GROUPS = "'\u2019\u00a0\u2009\u202f"  # between thousands, beside the comma
_BEFORE_SIGN = rf"""\s(\[{{"'\u2018\u2019\u201c-\u201e\u00ab<>=\u2264\u2265\u2248~\u00b1*/:,;^|{_CURRENCY}"""
_NUMBER = re.compile(
    rf"""
    (?:(?<![=-])([<>]=?|[\u2264\u2265\u2248~\u00b1])\s?)?                          # < 5
    (?:(?<![^{_BEFORE_SIGN}])([+-]))? (?:([{_CURRENCY}])\s?([+-](?=[\d.]))?)?    # -5, $5, $-5
    ((?:(?<![\w.])\.)?\d+                                                        # .5
    (?:(?:[.,:/*+-]|e[+-]?|(?:\^|\*\*)[+-]?|[{_GROUPS}](?=\d{{3}}(?!\d)))\d+)*)  # 1.5, 10:30, 1e-5, 10^-5, 1'000
    (\s?[%\u2030]|\+(?!\w)|\s?[kmb](?!\w))?                                      # 5 %, 18+, 5m
    (?:\s?([{_CURRENCY}])(?!\s?\d))?                                             # 5 €
    """,
    re.VERBOSE,
)
_SPACED_SIGN = re.compile(r"(?<=\d)\s([/+*-])\s(?=\d)")
_THOUSANDS = re.compile(
    rf"[1-9]\d{{0,2}}([,{_GROUPS}])\d{{3}}(?:\1\d{{3}})*(?:\.\d+)?|[1-9]\d?(?:,\d\d)+,\d{{3}}(?:\.\d+)?"
)
_THOUSANDS_BY_POINTS = re.compile(r"[1-9]\d{0,2}(?:(?:\.\d{3}){2,}|(?:\.\d{3})+,\d+)")
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d"), "-")
_RAISED = re.compile("[\u00b2\u00b3\u00b9\u2070-\u207b]+")  # superscripts
_SIGN = re.compile(r"[+#*-]|\.[Nn]|[^\x00-\x7f]")
_SIGNED_NAME = re.compile(
    r"(?<!\w)[^\W_]+[+#]+(?![^\W\d_])"  # C++, F#, CD4+, Na+
    r"|(?<!\w)(?:[A-Z]{1,2}|[A-Z]+\d+)-(?![\w-])"  # A-, AB-, CD4-
    r"|(?<!\w)[A-Z]\*(?!\w)"  # A*
    r"|(?<![\w.])\.(?:NET|Net|net)(?!\w)"
)


def find_numbers(text: str) -> tuple[str, ...]:
    """Return the numbers of a text in order, as they are written, except groups of thousands and other digits.

    >>> find_numbers("1,000 people at \u22125 or +5 \u00b0C on 2024-01-02, < 50 %")
    ('1000', '-5', '+5', '2024-01-02', '<50%')
    """
    if not any(map(str.isnumeric, text)):
        return ()
    plain = _RAISED.sub(lambda run: "^" + unicodedata.normalize("NFKC", run[0]), normalize(text).text.lower())
    if not plain.isascii():
        plain = "".join(map(_plain_digit, plain)).translate(_DASHES)
    return tuple(map(_written, _NUMBER.finditer(_SPACED_SIGN.sub(r"\1", plain))))


def find_signed_names(text: str) -> tuple[str, ...]:
    """Return the names of a text to which a sign belongs, in lower case and sorted.

    >>> find_signed_names("C++, c# and .NET, blood group A-; pre- and post-war, 18+")
    ('.net', 'a-', 'c#', 'c++')
    """
    if not _SIGN.search(text):  # which is much quicker
        return ()
    names = _SIGNED_NAME.findall(text if text.isascii() else normalize(text).text.translate(_DASHES))
    return tuple(sorted(name.lower() for name in names if any(map(str.isalpha, name))))


def _plain_digit(character: str) -> str:
    """Return a digit of any script as ASCII, and fractions and numbers in circles so after "^"."""
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if character.isnumeric() and not character.isalpha():
        return "^" + unicodedata.normalize("NFKC", character).replace("\u2044", "/")
    return character


def _written(match: re.Match[str]) -> str:
    """Return a number as it is compared."""
    comparison, sign, currency, inner_sign, digits, suffix, currency_after = (group or "" for group in match.groups())
    if _THOUSANDS.fullmatch(digits):
        digits = re.sub(f"[,{_GROUPS}]", "", digits)
    elif _THOUSANDS_BY_POINTS.fullmatch(digits):
        digits = digits.replace(".", "").replace(",", ".")
    zero = "0" * digits.startswith(".")
    return f"{comparison}{sign or inner_sign}{currency or currency_after}{zero}{digits}{suffix.strip()}"
