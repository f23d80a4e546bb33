"""Words of scripts without spaces: how a vocabulary finds them, fast and plainly; how texts are cut."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.errors import MissingExtraError
from pellucid.static.bags import Bags
from pellucid.static.bulk import BulkEncoder
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.training import segmentation
from pellucid.static.training.segmentation import word_finder
from pellucid.text.unicode import normalize, unspaced_run
from pellucid.text.words import Vocabulary, _is_punctuation, split_words
from plain_words import plain_rows
from refusals import refused
from tiny_models import piece_tokenizer


def found(words, text):
    """The words that a vocabulary of `words` finds in `text`, each checked to stand where its span says."""
    several = Vocabulary(words).split(text)
    for word in several:
        assert text[word.start : word.end] == word.text
    assert all(first.end <= second.start for first, second in pairwise(several))
    return [word.text for word in several]


JA = ["東京", "京都", "東京都", "に", "行く", "iphone", "を", "買う", "2024", "年"]


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (JA, "東京都に行く。", ["東京都", "に", "行く"]),  # the longest from the left, not 東 京都
        (JA, "東京に、行く", ["東京", "に", "行く"]),
        (JA, "大東京市", ["大", "東京", "市"]),  # a character that begins no word is one
        (JA, "iPhoneを買う", ["iPhone", "を", "買う"]),
        (JA, "2024年", ["2024", "年"]),
        ([*JA, "2024年", "t恤"], "2024年 T恤 買T恤", ["2024年", "T恤", "買", "T", "恤"]),  # a known piece stays whole
        (["東京", "ツ"], "ツアー", ["ツ", "ア", "ー"]),
        (["the", "ツ"], "ツアー the", ["ツアー", "the"]),  # one sign among English words cuts nothing
        (["the", "서울"], "서울에서 the", ["서울에서", "the"]),  # Korean has spaces
        (["รัก", "ไทย"], "ฉันรักไทย๒๔", ["ฉั", "น", "รัก", "ไทย", "๒๔"]),
        (["ລາວ"], "ລາວ໒", ["ລາວ", "໒"]),
        (["ខ្មែរ"], "ខ្មែរខ្មែរ។", ["ខ្មែរ", "ខ្មែរ"]),
        (["မြန်မာ"], "မြန်မာမြန်မာ၂", ["မြန်မာ", "မြန်မာ", "၂"]),
    ],
)
def test_the_words_of_a_text(words, text, expected):
    assert found(words, text) == [w.text for w in split_words(Vocabulary(words).spaced([text])[0])] == expected


def test_a_vocabulary_without_either_splits_as_ever():
    vocabulary = Vocabulary(["the", "cat", "ツ"])
    texts = ["The cat, 東京都に行く", "a▁b new york", "\ud800"]
    assert vocabulary.spaced(texts) == [*texts[:2], "\ufffd"] and not vocabulary.cuts_scripts
    assert [vocabulary.split(text) for text in texts] == [split_words(text) for text in texts]


@pytest.mark.full
def test_no_character_of_an_unspaced_script_separates_words():
    marks = [chr(c) for c in range(0x110000) if unspaced_run.fullmatch(chr(c))]
    assert len(marks) > 100_000
    assert not [mark for mark in marks if mark.isspace() or mark.isdecimal()]
    assert not [mark for mark in marks if ord(mark) < 0x20000 and _is_punctuation(mark)]


_SOME = ["a", "b", "A", "Σ", "ς", "é", "京", "東", "に", "ไ", "ท", "0", "▁", "İ", "\u0301", "한"]
_PIECES = ["a", "b", "##a", "##b", "京", "##京", "東", "0"]
_BETWEEN = [" ", ",", "\n", "\u3000", "・", "\x1c", "\x00", "'", "_", "\u200b", "\ud800"]
_known = st.lists(st.text(st.sampled_from(_SOME), min_size=1, max_size=9), min_size=1, max_size=12, unique=True)
_texts = st.lists(st.text(st.sampled_from([*_SOME, *_BETWEEN, " ", " "]), max_size=20), min_size=1, max_size=4)


@pytest.mark.full
@settings(suppress_health_check=list(HealthCheck))
@given(_known, _texts)
def test_writing_texts_anew_changes_no_word(words, texts):
    vocabulary = Vocabulary(words)
    for text, spaced in zip(texts, vocabulary.spaced(texts), strict=True):
        several = vocabulary.split(text)
        assert [word.text for word in split_words(spaced)] == [word.text for word in several]
        assert all(first.end <= second.start for first, second in pairwise(several))
        assert Vocabulary(words).split(text.replace(" ", "  ")) == [
            type(word)(word.text, *(place + text[:place].count(" ") for place in word[1:])) for word in several
        ]


@settings(suppress_health_check=list(HealthCheck))
@given(_known, _texts, st.booleans())
def test_bulk_equals_plain(words, texts, subwords):
    vectors = np.random.default_rng(len(words)).normal(size=(len(words), 9)).astype(np.float32)
    model = StaticEmbedder(Vocabulary(words, piece_tokenizer(_PIECES) if subwords else None), vectors)
    encoder = BulkEncoder(model.vocabulary, model.vectors, None)
    np.testing.assert_allclose(encoder.encode(texts), plain_rows(model, texts), atol=1e-5)


def _split_by_the_pre_tokenizer(text):
    """The definition of a word form's words: what BERT's pre-tokenizer makes of the whole text, without punctuation."""
    pieces = BertPreTokenizer().pre_tokenize_str(text)
    return [(piece, start, end) for piece, (start, end) in pieces if end - start > 1 or not _is_punctuation(piece)]


@given(st.text(st.one_of(st.characters(), st.characters(max_codepoint=127), st.sampled_from(_SOME + _BETWEEN))))
@example("㋿ ﬁne 1")
def test_words_are_those_of_the_pre_tokenizer(text):
    form = normalize(text)
    assert split_words(text) == [(word, *form.span(*span)) for word, *span in _split_by_the_pre_tokenizer(form.text)]


def test_a_letter_or_digit_of_any_script_never_divides_a_word():
    text = "a".join(chr(point) for point in range(0x110000) if chr(point).isalnum())
    assert len(_split_by_the_pre_tokenizer(text)) == 1


def test_bags_hold_the_words_that_encoding_finds():
    bags = Bags.from_sentences(["york city 東京に", "York new"], Vocabulary(["york", "city", "東京", "に"]))
    assert bags.rows.tolist() == [0, 1, 2, 3, 0] and bags.offsets.tolist() == [0, 4, 5]


@pytest.mark.needs("jieba", "sudachipy", "pythainlp")
@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("zh", "我爱北京天安门，2024年 iPhone！", ["我", "爱", "北京", "天安门", "2024", "年", "iPhone"]),
        ("zh-Hant", "買T恤", ["買", "T", "恤"]),
        ("cmn", "北京", ["北京"]),
        ("ja", "東京都に行く。iPhoneを買った", ["東京", "都", "に", "行く", "iPhone", "を", "買っ", "た"]),
        ("jpn", "国際連合", ["国際", "連合"]),
        pytest.param("th", "ฉันรักภาษาไทย Thai ๒๔", ["ฉัน", "รัก", "ภาษาไทย", "Thai", "๒๔"], marks=pytest.mark.full),
        ("de_AT", "Das Wetter, heute: schön!", ["Das", "Wetter", "heute", "schön"]),
        ("und", "東京都に", ["東京都に"]),
        (None, "東京に行く。 Tom!", ["東京に行く", "Tom"]),
        ("de", "Das ist's, Tom.", ["Das", "ist", "s", "Tom"]),
        ("ja", "TomとTomは東京に行く。", ["Tom", "と", "Tom", "は", "東京", "に", "行く"]),
        ("zh-Hans", "我们今天去北京，Tom！", ["我们", "今天", "去", "北京", "Tom"]),
    ],
)
def test_texts_are_cut_by_language(language, text, expected):
    words = word_finder(language)(text)
    assert [word.text for word in words] == [text[word.start : word.end] for word in words] == expected
    assert word_finder(language)(text) == words


@pytest.mark.full
@pytest.mark.parametrize(("language", "stretch"), [("zh", "北京"), ("ja", "東京"), ("th", "ไทย")])
def test_a_stretch_of_any_length_is_cut_and_loses_nothing(language, stretch):
    pytest.importorskip({"zh": "jieba", "ja": "sudachipy", "th": "pythainlp"}[language])
    words = [word.text for word in word_finder(language)(stretch * 8_000)]
    assert "".join(words) == stretch * 8_000
    assert words.count(stretch) > 7_900


test_what_is_no_language_code_or_a_script_that_nothing_cuts_is_refused = refused(
    *((lambda code=code: word_finder(code), "give an ISO 639 code") for code in (
        "german", "", "d", "de DE", "../x", 7)),
    *((lambda code=code: word_finder(code), f"{name}.*put spaces between.*'und'") for code, name in (
        ("lo", "Lao"), ("khm", "Khmer"), ("my-MM", "Burmese"))),
)  # fmt: skip


@pytest.mark.parametrize(("language", "module"), [("zh", "jieba"), ("ja", "sudachipy"), ("th", "pythainlp")])
def test_a_missing_segmenter_is_named(language, module, monkeypatch):
    for made in (word_finder, segmentation._chinese, segmentation._japanese, segmentation._thai):
        made.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module}.*pellucid\[languages\]"):
        word_finder(language)


@pytest.mark.needs("jieba", "sudachipy", "pythainlp")
@pytest.mark.full
def test_cutting_writes_nothing_and_says_nothing(tmp_path):
    program = (
        "import socket; socket.socket.connect = None\n"
        "from pellucid.static.training.segmentation import word_finder\n"
        "for language, text in (('zh', '我爱北京'), ('ja', '東京都に'), ('th', 'ฉันรักไทย')):\n"
        "    assert len(word_finder(language)(text)) == 3\n"
    )
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env={**os.environ, **places}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.rglob("*")) == []
