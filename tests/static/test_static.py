"""Static models: the words of a text in any script, their vectors by hand and by definition, what they are made of."""

import gzip
import lzma
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import BertPreTokenizer

from files import written
from pellucid.errors import CorpusError, MissingExtraError
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.training import segmentation
from pellucid.static.training.parallel import read_parallel
from pellucid.static.training.segmentation import word_finder
from pellucid.text.unicode import lowercase, normalize, unspaced_run
from pellucid.text.words import Vocabulary, _is_punctuation, split_words
from plain_words import plain_rows
from refusals import refused
from tiny_models import piece_tokenizer

SOME_WORDS = ["the", "apple", "Apple", "pear", "straße", "日本", "e\u0301cole", "naïve"]


def unit(*vector):
    return np.array(vector) / np.linalg.norm(vector)


@st.composite
def models(draw):
    """A model with random vectors for a few words, in one of the three table types."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    vectors = rng.normal(size=(len(SOME_WORDS), draw(st.integers(1, 6)))).astype(np.float32)
    kind = draw(st.sampled_from(["float32", "float16", "int8"]))
    if kind != "int8":
        return StaticEmbedder(Vocabulary(SOME_WORDS), vectors.astype(kind))
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    return StaticEmbedder(Vocabulary(SOME_WORDS), np.round(vectors / scales[:, None]).astype(np.int8), scales)


some_pieces = st.sampled_from(
    [*SOME_WORDS, "THE", "PEAR", "zzz", "!", "\n", "\u200f", "שלום", "\x00", "\ud800", "a\tb"]
)
some_texts = st.lists(some_pieces, max_size=12).map(" ".join) | st.text(max_size=20)


def test_encode_is_the_mean_of_word_vectors_at_length_1(fruit):
    np.testing.assert_allclose(fruit.encode("apple pear"), unit(5, 1, 0), atol=1e-7)
    np.testing.assert_allclose(fruit.encode("Apple, apple; CAR!"), unit(6, 0, 2), atol=1e-7)
    assert fruit.encode(["apple", "pear"]).shape == (2, 3) and fruit.encode("apple").shape == (3,)


def test_pairs_of_words_by_hand(fruit):
    """Texts (5, 1, 0) and (3, 0, 2): four products over the two lengths."""
    why = fruit.explain("apple pear", "Car, apple")
    lengths = np.sqrt(26) * np.sqrt(13)
    assert {row.parts: row.contribution * lengths for row in why.rows} == pytest.approx(
        {("apple", "apple"): 9, ("pear", "apple"): 6, ("apple", "Car"): 0, ("pear", "Car"): 0}
    )
    assert [row.share for row in why.rows[:2]] == pytest.approx([9 / 15, 6 / 15])
    assert (why.rows[0].name, why.rows[0].spans1, why.rows[0].spans2) == ("apple × apple", ((0, 5),), ((5, 10),))
    assert (why.score, why.exact, why.remainder) == (pytest.approx(15 / lengths), True, pytest.approx(0, abs=1e-15))


def test_one_text_by_hand(fruit):
    """In (3, 0, 2) + (3, 0, 0) the apples pull with 2 * (3, 0, 0) . (6, 0, 2) / 40, the car with 4 / 40."""
    why = fruit.explain("apple car Apple zebra")
    assert [(row.name, row.contribution) for row in why.rows] == [
        ("apple", pytest.approx(0.9)),
        ("car", pytest.approx(0.1)),
    ]
    assert (why.rows[0].spans1, why.unknown_words(), fruit.describe("apple car Apple zebra")) == (
        ((0, 5), (10, 15)),
        ["zebra"],
        "mostly about: apple (90%), car (10%)",
    )


def test_words_that_share_a_prefix_stay_apart_and_name_it():
    subwords = piece_tokenizer(["token", "##iser", "##s", "##ing"])
    model = StaticEmbedder(Vocabulary(["token", "is"], subwords), np.eye(2, dtype=np.float32))
    why = model.explain("tokenisers tokening Token tokenisers")
    assert {row.name: (row.parts, row.contribution) for row in why.rows} == {
        "tokenisers (read as token)": (("tokenisers",), pytest.approx(0.5)),
        "tokening (read as token)": (("tokening",), pytest.approx(0.25)),
        "Token": (("Token",), pytest.approx(0.25)),
    }


def _by_letters(*prefixes):
    """A model of some words, whose tokenizer cuts what is not one of them into them and letters."""
    subwords = piece_tokenizer([*prefixes, *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789")])
    return StaticEmbedder(Vocabulary(list(prefixes), subwords), np.eye(len(prefixes), dtype=np.float32))


def test_a_word_that_is_read_as_its_beginning_counts_by_its_letters():
    """By hand: covid is co and three letters more; a capital is no other word."""
    model = _by_letters("co", "j", "chat", "mortgage", "ecole")
    for text, share, read in (
        ("covid", 2 / 5, {"covid": "co"}), ("covid covid", 2 / 5, {"covid": "co"}), ("json", 1 / 4, {"json": "j"}),
        ("chatgpt", 4 / 7, {"chatgpt": "chat"}), ("mortgages", 8 / 9, {}), ("Mortgage", 1, {}), ("", 1, {}),
        ("chat covid 東京", (1 + 2 / 5) / 3, {"covid": "co"}), ("jo jar", (1 / 2 + 1 / 3) / 2, {"jo": "j", "jar": "j"}),
    ):  # fmt: skip
        known = model.explain(text).coverage[0]
        assert (known.share, known.read_as) == (pytest.approx(share), tuple(read.items())), text
        assert model.coverage(text) == np.float32(known.share)
    why = model.explain("json and mortgages", "j")
    assert 'only partly known: "json" read as "j"\n' in str(why)  # and not the plural


@given(models(), some_texts, some_texts)
def test_spans_hold_the_words_and_cover_each_word_once(model, first, second):
    why = model.explain(first, second)
    for row in why.rows:
        for text, spans, word in zip(why.texts, (row.spans1, row.spans2), row.parts, strict=True):
            assert {lowercase(normalize(text[start:end]).text) for start, end in spans} == {lowercase(word)}
    places = [*why.word_contributions(1), *why.unknown1]
    assert len(places) == len(set(places)) or not why.rows
    sums = [sum(why.word_contributions(text).values()) for text in (1, 2)]
    assert sums == pytest.approx([why.score] * 2, abs=1e-9)


def test_opposite_words_cancel_to_a_score_of_0_without_shares():
    model = StaticEmbedder(Vocabulary(["up", "down", "side"]), np.array([[1, 0], [-1, 0], [0, 1]], np.float32))
    why = model.explain("up", "side up down")
    assert why.score == 0.0 and not any(row.share for row in why.rows)
    assert not model.encode("up down").any() and model.explain("up down").score == 0.0


_MANY = " ".join(f"w{number}" for number in range(600))


def _of_many():
    return StaticEmbedder(Vocabulary(_MANY.split()), np.ones((600, 1), np.float32))


test_what_cannot_be_explained_is_refused = refused(
    (lambda fruit: fruit.explain(None), "got NoneType"),
    (lambda fruit: fruit.explain("apple", 3), r"got int \(3\)"),
    (lambda: _of_many().explain(_MANY, _MANY), "600 x 600 distinct words would give more than 250,000 rows"),
    (lambda fruit: fruit.nearest_words("apple", top_k=0), "top_k is 0"),
)


def test_long_texts_are_explained(fruit):
    assert len(_of_many().explain(_MANY, "w1 w2").rows) == 1200
    why = fruit.explain("apple car pear the " * 2_500, "apple " * 10_000)
    score = fruit.similarity(fruit.encode("apple car pear the"), fruit.encode("apple"))[0, 0]
    assert (len(why.rows), why.score) == (4, pytest.approx(score))


def test_nearest_words(fruit):
    assert fruit.nearest_words("apple", top_k=2) == [("apple", pytest.approx(1)), ("pear", pytest.approx(2 / 5**0.5))]


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
        (["กน"], "กนี", ["ก", "นี"]),  # no word ends inside what a reader takes for one character
        (["ລາວ"], "ລາວ໒", ["ລາວ", "໒"]),
        (["ខ្មែរ"], "ខ្មែរខ្មែរ។", ["ខ្មែរ", "ខ្មែរ"]),
        (["မြန်မာ"], "မြန်မာမြန်မာ၂", ["မြန်မာ", "မြန်မာ", "၂"]),
    ],
)
def test_the_words_of_a_text(words, text, expected):
    found, spaced = Vocabulary(words).split(text), split_words(Vocabulary(words).spaced([text])[0])
    assert [text[word.start : word.end] for word in found] == [word.text for word in found] == expected
    assert [word.text for word in spaced] == expected
    assert all(first.end <= second.start for first, second in pairwise(found))
    model = StaticEmbedder(Vocabulary(words), np.eye(len(words), dtype=np.float32))
    for texts in ([text], [text, *["the"] * 20]):  # many or few texts beyond ASCII
        np.testing.assert_allclose(model.encode(texts), plain_rows(model, texts), atol=1e-6)


def test_a_vocabulary_without_either_splits_as_ever():
    vocabulary = Vocabulary(["the", "cat", "ツ"])
    texts = ["The cat, 東京都に行く", "a▁b new york", "\ud800"]
    assert vocabulary.spaced(texts) == [*texts[:2], "\ufffd"] and not vocabulary.cuts_scripts
    assert [vocabulary.split(text) for text in texts] == [split_words(text) for text in texts]


@pytest.mark.full
def test_no_character_of_an_unspaced_script_separates_words():
    marks = [chr(c) for c in range(0x110000) if unspaced_run.fullmatch(chr(c))]
    assert len(marks) > 100_000 and not [mark for mark in marks if mark.isspace() or mark.isdecimal()]
    assert not [mark for mark in marks if ord(mark) < 0x20000 and _is_punctuation(mark)]


_SOME = ["a", "b", "A", "Σ", "ς", "é", "京", "東", "に", "ไ", "ท", "0", "▁", "İ", "\u0301", "한"]
_BETWEEN = [" ", ",", "\n", "\u3000", "・", "\x1c", "\x00", "'", "_", "\u200b", "\ud800"]
_known = st.lists(st.text(st.sampled_from(_SOME), min_size=1, max_size=9), min_size=1, max_size=12, unique=True)
_some_texts = st.lists(st.text(st.sampled_from([*_SOME, *_BETWEEN, " ", " "]), max_size=20), min_size=1, max_size=4)


@pytest.mark.full
@settings(suppress_health_check=list(HealthCheck))
@given(_known, _some_texts)
def test_writing_texts_anew_changes_no_word(words, texts):
    vocabulary = Vocabulary(words)
    for text, spaced in zip(texts, vocabulary.spaced(texts), strict=True):
        several = vocabulary.split(text)
        assert [word.text for word in split_words(spaced)] == [word.text for word in several]
        assert all(first.end <= second.start for first, second in pairwise(several))
        assert Vocabulary(words).split(text.replace(" ", "  ")) == [
            type(word)(word.text, *(place + text[:place].count(" ") for place in word[1:])) for word in several
        ]


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
    assert "".join(words) == stretch * 8_000 and words.count(stretch) > 7_900


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
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and list(tmp_path.rglob("*")) == []


EN_DE = ("en", "de")
PAIRS = [("Go.", "Geh."), ("Run!", "Lauf!")]


def read(file, languages=EN_DE):
    return list(read_parallel(file, languages))


_LINES = "Go.\tGeh.\r\n\nRun!\t Lauf! \n"


@pytest.mark.parametrize(("name", "pack"), [("p.tsv", bytes), ("p.tsv.xz", lzma.compress), ("p.tsv.gz", gzip.compress)])
@pytest.mark.parametrize(
    ("text", "languages", "pairs"),
    [
        *((header + _LINES, EN_DE, PAIRS) for header in (
            "", "en\tde\n", "EN\tDE\n", "\ufeffen\tde\r\n", "\ufeff")),
        ("de\ten\nGeh.\tGo.\nLauf!\tRun!\n", EN_DE, PAIRS),
        ("zh\ten\n去\tgo\n", ("en", "zh-Hans"), [("go", "去")]),
    ],
)  # fmt: skip
def test_two_columns_which_a_header_may_name_the_other_way_round_and_without_a_region(
    tmp_path, name, pack, text, languages, pairs
):
    assert read(written(tmp_path / name, pack(text.encode())), languages) == pairs


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\n\r\t\0", exclude_categories=["Cs"]))] * 2)))
def test_only_a_line_end_of_a_text_file_shifts_a_line(tmp_path_factory, pairs):
    """U+2028 or a form feed end a line elsewhere; here they must not."""
    pairs = [(f"x{one}x", f"y{other}y") for one, other in pairs]
    path = tmp_path_factory.mktemp("pairs") / "p.tsv"
    path.write_bytes("".join(f"{one}\t{other}\n" for one, other in pairs).encode())
    assert read(path) == pairs


test_what_cannot_be_read = refused(
    *((lambda tmp_path, name=name, content=content: read(written(tmp_path / name, content)), message, CorpusError)
      for name, content, message in [
        ("p.tsv", b"en\tfr\nGo.\tVa.\n", r"p\.tsv holds en and fr by its header, not en and de"),
        ("p.tsv", b"en\tde\nGo.\tGeh.\nRun! Lauf!\n", r"p\.tsv, line 3: no tab"),
        ("p.tsv", b"Go.\tGeh.\tCC-BY\n", r"p\.tsv, line 1: 3 columns"),
        ("p.tsv", b"Go.\tGeh.\nRun!\t \n", r"p\.tsv, line 2: a sentence has no translation \('Run!'\)"),
        ("p.tsv", b"\tGeh.\n", r"p\.tsv, line 1: a sentence has no translation \('Geh\.'\)"),
        ("p.tsv", b"Go.\tGeh\xff.\n", r"p\.tsv, line 1 is not UTF-8"),
        ("q.tsv.xz", b"no xz", "damaged"),
        ("p.txt", b"Go.\tGeh.\n", r"p\.txt is not a \.tsv file"),
    ]),
    (lambda tmp_path: read(tmp_path / "none.tsv"), r"parallel file not found: .*none\.tsv", CorpusError),
    *((lambda wrong=wrong: read(wrong), r"the path of a \.tsv file") for wrong in (["a", "b"], ("a", "b"), None)),
)  # fmt: skip


def test_real_pairs(shared):
    pairs = read(shared / "data/parallel/tatoeba/en-ja.tsv.xz", ("ja", "en"))
    assert len(pairs) == 43_128 and pairs[0] == ("行け。", "Go.")


@pytest.mark.needs("threadpoolctl")
def test_a_race_times_every_encoder_in_every_round_in_turns(opened):
    speed, calls = opened("benchmarks.static_speed"), Counter()
    encoders = {name: lambda texts, name=name: calls.update({name: len(texts)}) for name in ("pellucid", "peer")}
    results = speed.race(encoders, ["text"] * 3000, 4, 0)
    assert calls == dict.fromkeys(encoders, 2000 + 4 * 3000) and speed.race_markdown(results).count("\n") == 3
    assert all(times["best_texts_per_cpu_s"] >= times["texts_per_cpu_s"] > 0 for times in results.values())
    orders = [tuple(order) for order in speed.shuffled_rounds(["a", "b", "c"], 40, 0)]
    assert set(Counter(order[0] for order in orders).values()) == {13, 14} and len(set(orders)) > 3
