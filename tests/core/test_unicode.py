"""The Unicode policy: equivalent strings have one form, spans stand in the user's string; sentences of any script."""

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.text.sentences import sentence_spans
from pellucid.text.unicode import (
    canonicalize,
    canonicalize_with_offsets,
    graphemes,
    lowercase,
    marks,
    may_change,
    normalize,
)
from unicode_cases import MARKED_TEXTS, ODD_TEXTS, equivalent_texts


@given(equivalent_texts())
def test_equivalent_texts_have_one_form(pair):
    first, second = pair
    assert canonicalize(first) == canonicalize(second)
    assert canonicalize_with_offsets(first).text == canonicalize_with_offsets(second).text == canonicalize(first)
    assert normalize(first).text == normalize(second).text


@given(ODD_TEXTS)
def test_a_form_is_its_own_form(text):
    form = normalize(text).text
    assert normalize(form).text == form and unicodedata.is_normalized("NFC", form)
    if not any(map(may_change, text)):
        assert form == canonicalize(text)


@given(MARKED_TEXTS)
def test_spans_are_of_whole_clusters_and_in_order(text):
    edges = {place for span in graphemes(re.sub("[\ud800-\udfff]", "\ufffd", text)) for place in span}
    for form in (normalize(text), canonicalize_with_offsets(text)):
        assert len(form.offsets[0]) == len(form.offsets[1]) == len(form.text)
        before = (0, 0)
        for word in re.finditer(r"\S+", form.text):
            start, end = form.span(*word.span())
            assert 0 <= start < end <= len(text)
            assert form.is_original or start in edges
            assert start >= before[0] and end >= before[1]
            before = start, end
            if form.text == text:
                assert (start, end) == word.span()


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("The ﬁnancial eﬃciency oﬀ", "The financial efficiency off"),
        ("infor\u00admation", "information"),
        ("infor\u00ad\n  mation", "information"),
        ("infor\u200bmation\u2060 \ufeffof\u200e", "information of"),
        ("ＡＰＩ　ｖ２．０", "API　v2.0"),
        ("ｶﾞｷﾞ ﾊﾟﾝ ｱ", "ガギ パン ア"),
        ("¾ 10² № ™ … ´ m² 2º", "¾ 10² № ™ … ´ m² 2º"),
        ("H₂O ㎏ ㎡ ℃ Ⅷ 𝐇𝐞𝐥𝐥𝐨 ⽇本 ſtraße ŉ coŀlecció", "H2O kg m² °C VIII Hello 日本 straße ʼn col·lecció"),
        ("\u212b \u2126 \u212a", "Å Ω K"),
        ("שָׁלוֹם שׁ ﭏ", "שלום ש אל"),
        ("العَرَبِيَّةُ مـحـمـد آ أ", "العربية محمد آ أ"),
        ("ﷺ ﻣﺤﻤﺪ", "صلى الله عليه وسلم محمد"),
        ("हिन्दी क़ நூல் বাংলা", "हिन्दी क़ நூல் বাংলা"),
        ("น้ํา ทํา น้ำ ຫນ", "น้ำ ทำ น้ำ ຫນ"),
        ("من می\u200cخواهم", "من می خواهم"),
        ("क\u094d\u200dष Auf\u200clage", "क्ष Auflage"),
        ("ก\u200bข a\u200bข", "ก ข aข"),
        ("അവന\u0d4d\u200d ത\u09a4\u09cd\u200d", "അവൻ തৎ"),
        ("👩\u200d💻 ❤\ufe0f 🏴\U000e0067\U000e007f", "👩\u200d💻 ❤ 🏴\U000e0067\U000e007f"),
        ("İzmir i\u0307zmir I\u0307zmir", "İzmir izmir İzmir"),
        ("ㅋㅋ ㄱ 한국", "ㅋㅋ ㄱ 한국"),
        ("\ud800a", "\ufffda"),
    ],
)
def test_the_word_form_of_each_kind(text, form):
    assert normalize(text).text == form and normalize(unicodedata.normalize("NFD", text)).text == form


def test_spans_stand_in_the_string_as_it_was_given():
    text = "ﷺ e\ufb03cient infor\u00admation fu\u0308r שָׁלוֹם, ＡＰＩ"
    form = normalize(text)
    words = [text[slice(*form.span(*word.span()))] for word in re.finditer(r"\w+", form.text)]
    assert words == ["ﷺ"] * 4 + ["e\ufb03cient", "infor\u00admation", "fu\u0308r", "שָׁלוֹם", "ＡＰＩ"]


def test_lower_case_leaves_no_dot():
    assert [lowercase(word) for word in ("İSTANBUL", "ẞ", "ΟΔΟΣ", "IT")] == ["istanbul", "ß", "οδος", "it"]


@pytest.mark.full
def test_every_character_follows_the_policy():
    is_mark = re.compile(f"[{marks()}]")
    for code in (code for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000):
        character = chr(code)
        assert bool(is_mark.match(character)) == (unicodedata.category(character)[0] == "M"), hex(code)
        form, decomposed = normalize(f"x {character} y").text, unicodedata.normalize("NFD", character)
        assert form == f"x {character} y" or may_change(character), hex(code)
        if len(decomposed) > 1:
            assert len(graphemes(decomposed)) == 1, hex(code)
        assert normalize(f"x {decomposed} y").text == form, hex(code)


# Sentences of any script, and explanations of passages by sentences.


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith et al. found (Fig. 3) that U.S. patients die.", 'He said "No!"', "Then he left... and stayed."],
        ["1. Take it.", "2. Wait 3.5 hours.", "Was it good?", "Yes"],
        ["日本語です。", "これは「テスト」です！", "はい"],
        ["هل هذا؟", "نعم.", "انتهى."],
        ["यह है।", "वह था।"],
        ["A title", "The text goes\non in lower case.", "- an item", "- élan\n***"],
        ["Das gilt z. B. hier, bzw. dort.", "Ende."],
        ["..."],
        [],
    ],
)
def test_sentences(sentences: list[str]) -> None:
    joint = "" if sentences and sentences[0][-1] in "。।" else " "
    text = "\n".join(sentences) if any("\n" in sentence for sentence in sentences) else joint.join(sentences)
    assert [text[slice(*span)] for span in sentence_spans(text)] == sentences


@given(st.text(st.sampled_from("aA1 \n\t.!?。-\"')é日"), max_size=60) | st.text(max_size=60))
def test_all_but_blanks_is_in_one_sentence(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join("".join(text[slice(*span)].split()) for span in spans) == "".join(text.split())
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(text[start:end].strip() == text[start:end] != "" for start, end in spans)


def test_sentences_of_a_long_text_take_time_in_proportion() -> None:
    assert len(sentence_spans("e.g. a word, " * 20_000)) == 1
    assert len(sentence_spans("1. " * 50_000)) == 1 and len(sentence_spans("。" * 50_000)) == 1
    assert len(sentence_spans("No. " * 50_000 + "\n" * 20_000)) <= 2
