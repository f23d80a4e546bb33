"""Texts in which strings that look alike differ, and the same texts in other strings."""

import unicodedata

from hypothesis import strategies as st

from pellucid.text.unicode import graphemes, well_formed

_LATIN = "aieoux ﬁﬃĳſÅΩéệủ\u0301\u0307\u0323\u0308\u0327ǰḍ̇İıßẞςΣ-'.1²₂½ＡＰ１～，ｶﾞﾊﾟーガがㄱ가각힣\u1100\u1161\u11a8"
_SCRIPTS = "שָׁלוֹםﬡעَرَّبِيَّةـلاﷺहिन्दीक़ড়বাংলোதமிழொทํน้ำกี่ຫນໜ豈神ကို္ខ"
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u034f\ufe0f\u200e\n\r\t\u2000\u3000 \ud800"
_EMOJI = "👩💻❤🏴🏽🇩🇪\U000e0067\U000e007f"

_KEPT_APART = (
    "yeiカｶ\u1100가กक\u200b\u00ad\u2060\u034f\u0300\u0307\u0323\u3099\uff9e\u1161\u11a8\u0e4d\u0e32\u094d\u064b"
)

ODD_TEXTS = st.text(st.sampled_from(_LATIN + _SCRIPTS + _INVISIBLE + _EMOJI) | st.characters(), max_size=30) | st.text(
    st.sampled_from(_KEPT_APART), max_size=8
)  # letters and marks that only invisible characters keep apart


def _on_letters(text: str) -> str:
    """Return a text without marks that stand on no letter of their script: what cuts words cuts such clusters."""
    several, script = [], ""
    for character in text:
        kind, own = unicodedata.category(character), _script(character)
        if kind[0] == "M" or character in "\uff9e\uff9f\u0e33\u0eb3":  # letters that end a cluster are like marks
            stands_apart = bool(several) and unicodedata.category(several[-1]) == "Cf"
            if own == script and not (stands_apart and character in "\uff9e\uff9f"):
                several.append(character)
            continue
        several.append(character)
        if kind != "Cf":
            script = own if kind[0] == "L" else ""
    return "".join(several)


def _script(character: str) -> str:
    name = unicodedata.name(character, "none")
    if "HIRAGANA" in name or "KATAKANA" in name:
        return "KANA"
    first = name.split()[0]
    return "COMBINING" if first in ("LATIN", "GREEK", "CYRILLIC") else first


MARKED_TEXTS = ODD_TEXTS.map(_on_letters)

EQUIVALENT = {  # each text in composed form, to be read as its decomposed form is
    "german": "für Häuser und Straßen",
    "vietnamese": "Tiếng Việt rất đẹp và khó đọc",
    "korean": "서울은 대한민국의 수도",
    "japanese": "ガギグの パンと東京",
    "hindi": "हिन्दी में समाचार पढ़ें और क़लम",
    "bengali": "বাংলা ভাষা হয় ড়োনা",
    "tamil": "தமிழ் மொழி கொடு",
    "hebrew": "שָׁלוֹם עולם טוֹב",
    "arabic": "العَرَبِيَّةُ آخر مؤمن",
    "thai": "น้ำที่กี่ปู่",
    "singletons": "\u212bngström \u2126 \u212a 豈\u2126mega",
}

SAME_WORDS = {  # a text, and the plain spelling of its words
    "ligatures": ("the o\ufb03ce and the \ufb01nance", "the office and the finance"),
    "long s": ("a ca\u017ftle", "a castle"),
    "soft hyphens": ("infor\u00adma\u00adtion sy\u00adstems", "information systems"),
    "a soft hyphen at the end of a line": ("infor\u00ad\nmation", "information"),
    "zero-width space": ("infor\u200bmation", "information"),
    "zero-width joiners": ("infor\u200dmation sys\u200ctems", "information systems"),
    "byte order mark": ("\ufeffinformation sys\ufefftems", "information systems"),
    "word joiner": ("infor\u2060mation", "information"),
    "direction marks": ("\u202binformation\u202c sys\u200etems", "information systems"),
    "non-breaking hyphen": ("state\u2011of", "state-of"),
    "non-breaking space": ("information\u00a0systems", "information systems"),
    "full width": ("ＡＰＩ　ｖ２", "API v2"),
    "half width": ("ｶﾀｶﾅ ｶﾞｷﾞ", "カタカナ ガギ"),
    "formula letters": ("𝐢𝐧𝐟𝐨𝐫𝐦𝐚𝐭𝐢𝐨𝐧", "information"),
    "subscripts": ("H₂O and CO₂", "H2O and CO2"),
    "squares": ("5 ㎏", "5 kg"),
    "dotted capital": ("İstanbul İZMİR", "istanbul izmir"),
    "lower-cased dotted capital": ("İstanbul".lower(), "istanbul"),
    "capital sharp s": ("STRAẞE", "straße"),
    "final sigma": ("ΟΔΟΣ", "οδος"),
    "hebrew points": ("שָׁלוֹם", "שלום"),
    "arabic points": ("العَرَبِيَّةُ", "العربية"),
    "tatweel": ("مـحـمـد", "محمد"),
    "arabic forms": ("ﷺ", "صلى الله عليه وسلم"),
    "persian joiner": ("می\u200cخواهم", "می خواهم"),
    "old malayalam": ("അവന\u0d4d\u200d", "അവൻ"),
    "radicals": ("⽇本", "日本"),
}


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@st.composite
def equivalent_texts(draw: st.DrawFn) -> tuple[str, str]:
    """Two strings that Unicode calls equivalent: the second is decomposed in some places, composed in others."""
    text = draw(MARKED_TEXTS | st.sampled_from(list(EQUIVALENT.values())))
    clean = well_formed(text)
    cut = [clean[start:end] for start, end in graphemes(clean)]
    return text, "".join(unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD"])), part) for part in cut)
