"""The terms of BM25: letters, digits, names with signs, acronyms; what a query does not search; and nothing found."""

import json
import unicodedata
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from letters import SparseLetterEmbedder as SparseLetters
from pellucid import Index
from pellucid.errors import InputError
from pellucid.index.settings import stored_calibration
from pellucid.index.terms import Analyser
from pellucid.index.words import WordCache
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import cluster_ends, normalize
from pellucid.text.words import Vocabulary
from tiny_models import word_piece

PIECES = [
    "C++", "C#", ".NET", "node.js", "XJ-900/2", "v1.10.2", "10.0.0.1", "1,000", "1,200-month", "IL-6", "IL6", "U.S.",
    "e.g.", "WHO", "who", "AIDS", "A", "vitamin", "patient's", "l'amour", "東京都", "C言語", "37°C", "état", "\ufb01ne",
    "Tokyo東京", "AB-", "A*", "R&D", "12-month", "12month", "it", "IT", "(WHO),", "\n", "-5", "#1", "@me", "3.14mg",
    "C++11", "std::vector", "__init__", "x_y", "हिन्दी", "\u0130stanbul", "mortgages", "1.2.3.4.5.6.7.8.9.10", "B-12",
    "\u00ad", "\u200b", "\x1f", "😀", "５Ｇ", "a\u0308bc",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=12).flatmap(
    lambda pieces: st.sampled_from([" ".join(pieces), "".join(pieces)])
)
languages = st.sampled_from(["english", "german", "none"])


@given(texts, languages)
def test_terms_and_their_places_agree(text, language):
    analyser = Analyser(language)
    terms, spans = analyser.term_positions(text)
    assert Counter(terms) == Counter(analyser.terms(text))
    assert all(0 <= start < end <= len(text) for start, end in spans)


@pytest.mark.parametrize("context_chars", [1, 40, 256])
@given(st.lists(st.sampled_from(["IT", "it", "WHO", "salt", "A", "(IT)", "AIDS/IT", "état", "x" * 50, "\n", "\u00ad"])))
def test_acronyms_are_told_by_the_tokens_around_as_by_the_whole_line(context_chars, tokens):
    text, analyser = " ".join(tokens), Analyser()
    with patch("pellucid.index.terms._CONTEXT_CHARS", context_chars):
        terms, _ = analyser.term_positions(text)
    assert Counter(terms) == Counter(analyser.terms(text))


@given(texts, languages)
def test_equal_texts_have_equal_terms(text, language):
    analyser = Analyser(language)
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
    assert Counter(analyser.terms(forms[0])) == Counter(analyser.terms(forms[1]))
    assert analyser.query(forms[0]).weights == analyser.query(forms[1]).weights


RUNS = st.text(st.sampled_from("猫東京都我一只がカナー서울은학교에서ㅋ한กำแพงເກົ່າခြင်း"), min_size=1, max_size=8).filter(
    lambda run: unicodedata.category(run[0])[0] != "M"  # a mark belongs to the word before, though it is no cluster's
)


@given(RUNS, st.sampled_from(["", " ", "AI", "5", "."]), RUNS, languages, st.data())
def test_a_stretch_of_a_run_is_found_in_it(before, joint, after, language, data):
    run = normalize(f"{before}{after}").text
    ends = [0, *cluster_ends(run)]
    first = data.draw(st.integers(0, len(ends) - 2))
    stretch = run[ends[first] : ends[data.draw(st.integers(first + 1, len(ends) - 1))]]
    analyser = Analyser(language)
    assert analyser.query(stretch).weights.keys() <= set(analyser.terms(f"{joint}{run}{joint}{after}"))


@given(st.lists(texts, min_size=1, max_size=4), texts, languages, st.booleans())
def test_some_terms_are_found_at_the_same_places_as_all(passages, query, language, has_read_before):
    analyser = Analyser(language)
    words = WordCache(analyser, {})
    every = [analyser.term_positions(text) for text in passages]
    requested = [*analyser.query(query).spans, *(term for terms, _ in every for term in terms[::2])]
    numbers = {term: n for n, term in enumerate(dict.fromkeys(requested))}
    if has_read_before:  # words in lower case, and then as they are
        words.read([text.lower() for text in passages])
    positions = words.term_positions(passages, words.read(passages), numbers)
    for index, (terms, spans) in enumerate(every):
        part = positions.slice_for(index)
        expected = [(numbers[term], *span) for term, span in zip(terms, spans) if term in numbers]
        pairs = zip(positions.values[part].tolist(), positions.spans[part].tolist())
        assert [(number, *span) for number, span in pairs] == expected


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The mortgages, a vitamin C and 3.14!", "mortgag vitamin c 3.14"),
        ("C++ and C# in C, F# too", "c++ c# c f#"),
        ("A .NET node.js R&D well-known", "net .net node js node.js r d r&d well known"),
        ("XJ-900/2", "xj 900 2 xj900 900/2 xj900/2"),
        ("v1.10.2 and 1,000.5", "v1 10 2 v1.10 10.2 v1.10.2 1000.5"),
        ("IL-6/IL6", "il 6 il6 il6 6/il6 il6/il6"),
        ("CD4+ AB- A* pre- -5 -v --force #1", "cd4 cd4+ ab ab- a* pre 5 -5 v -v forc 1 #1"),
        (
            "C++11 C++/CLI std::vector max_length",
            "11 c++ c++11 cli c++ c++/cli std vector std::vector max length max_length",
        ),
        ("patient's O'Brien l'amour don't", "patient brien amour"),
        ("The WHO and AIDS in the U.S., vitamin A. A study", "WHO aid AIDS US vitamin A studi"),
        ("type I error, I am", "type I error"),
        ("WHO GUIDELINES AND WHAT IT IS", "guidelin"),
        ("IT", "IT"),
        ("IT\nit is what it is", "IT"),
        ("SALT: WHAT TO DO ABOUT IT, what not", "salt"),
        ("東京都 Tokyo", "東京 京都 東 京 都 tokyo"),
        ("서울은 AI를 2호선", "서울 울은 서 울 은 ai 를 2 호선 호 선"),
    ],
)
def test_the_terms_of_a_text(text, terms):
    assert Counter(Analyser().terms(text)) == Counter(terms.split())


def test_stop_words_are_those_of_the_user():
    assert Counter(Analyser(stop_words=[]).terms("the vitamin C, it")) == Counter(["the", "vitamin", "c", "it"])
    assert sorted(Analyser("german").terms("die H\u00e4user und A")) == ["a", "die", "haus", "und"]
    words = Analyser("german", ["die", "UND"]).terms("die H\u00e4user und UND so DIE")
    assert sorted(words) == ["DIE", "UND", "haus", "so"]


def ranking(tmp_path, query, documents, **settings):
    with Index.create(tmp_path / "index", {}, **settings) as index:
        index.add(documents, ids=[str(n) for n in range(len(documents))])
        return [hit.id for hit in index.search(query)]


@pytest.mark.parametrize(
    ("query", "right", "others"),
    [
        ("vitamin C", "Oranges are a good source of vitamin C for all", ["Vitamin D", "Vitamin K and vitamin E"]),
        ("hepatitis B", "A vaccine against hepatitis B for children", ["Hepatitis A", "Hepatitis C"]),
        ("type 2 diabetes", "Drugs for those who have type 2 diabetes", ["Type 1 diabetes", "Type 3 diabetes"]),
        ("C++", "A developer who knows C++ well is wanted", ["C# developer", "C developer", "Developer"]),
        ("C", "A developer who knows C well is wanted here", ["C++ developer", "C# developer"]),
        ("F#", "How functions are written in F# by its makers", ["F tutorial", "F++ tutorial"]),
        (".NET", "A server that was written for .NET long ago", ["The net", "A net, a net"]),
        ("node.js", "A server that was written for node.js", ["A node", "js", "node: js"]),
        ("XJ-900/2", "Bearing XJ-900/2 of steel, the long one", ["XJ-900/3", "XJ-902/9", "XJ 2, 900"]),
        ("v1.10.2", "Notes of the release v1.10.2 of last year", ["v1.2.10", "v1.10.1", "v2.10.1"]),
        ("10.0.0.1", "The router answers at 10.0.0.1 after a while", ["1.0.0.10", "10.0.1.0", "0.0.0.1"]),
        ("RFC-2616", "It was written down in RFC-2616 by seven", ["RFC-2166", "RFC-6162", "RFC 26, 16"]),
        ("RFC2616", "It was written down in RFC-2616 by seven", ["RFC2166", "2616"]),
        ("IT", "Twelve people work in IT on the second floor", ["It is what it is", "it", "IT IS WHAT IT IS"]),
        ("IT support", "Ask our IT support about it", ["It is support", "support it"]),
        ("it support", "Ask our IT support about it", ["It is support", "support it"]),
        ("who guidelines", "The guidelines of the WHO on salt", ["Who has guidelines?", "guidelines, guidelines"]),
        ("jobs in it", "Twelve jobs that we have in IT", ["It has jobs", "jobs for it"]),
        ("vitamin a", "Carrots have much vitamin A, says a study", ["A vitamin", "Vitamin D, a vitamin"]),
        ("US economy", "The economy of the U.S. grew", ["He told us of the economy", "economy for us"]),
        ("email", "Send an e-mail to the office on the second floor", ["mail", "a letter e"]),
        ("e-mail", "Send an email to us", ["Send a parcel, and mail no letter before", "A mile"]),
        ("xray", "They took an X-ray of the left hand", ["a ray", "x", "x/ray"]),
        ("X-rays", "They took an xray of the left hand", ["the hand", "a gamma"]),
        ("HIV AIDS", "Those with AIDS take three drugs today", ["First aid, aids and aids", "Hearing aids", "It aids"]),
        ("vitamin b 12", "Much vitamin B12 is in liver and in fish", ["Vitamin B6", "Vitamin B1", "Vitamin K"]),
        ("covid 19", "A study of COVID19 in children at school", ["covid", "19 children", "type 19"]),
        ("IL 6", "What IL6 does in the joints of the old", ["il", "IL8", "6"]),
        ("STRASSE", "Die Stra\u00dfe am Rathaus der Stadt", ["Die Trasse", "Der Ort"]),
        ("Stra\u00dfe", "DIE STRASSE AM RATHAUS DER STADT", ["Die Trasse", "Der Ort"]),
        ("AIDS", "Those with AIDS take three drugs today", ["First aid", "Hearing aids", "It aids"]),
        ("is it known who discovered penicillin", "penicillin was discovered by Fleming, who saw it", ["WHO and IT"]),
        ("CATS AND DOGS", "a dog, a cat", ["the AND gate of a chip"]),
        ("cats AND dogs", "a dog, a cat", ["the AND gate of a chip"]),
        ("猫", "我有一只猫", ["今天天气很好"]),
        ("東", "東京都に住む", ["大阪に住む"]),
        ("月", "5月10日", ["2024年"]),
        ("서울", "서울은 대한민국의 수도", ["부산은 항구 도시"]),
        ("서울은", "서울에서 논다", ["부산에서 논다"]),
        ("학교", "학교에서 공부한다", ["집에서 논다"]),
        ("물", "물을 마신다", ["불을 끈다"]),
        ("AI", "AI는 새롭다", ["차는 새롭다"]),
        ("학교", unicodedata.normalize("NFD", "고등학교"), ["도서관"]),
    ],
)
def test_what_carries_the_meaning_decides(tmp_path, query, right, others):
    assert ranking(tmp_path, query, [*others, right])[0] == str(len(others))


# --- What is not searched ---


@pytest.mark.parametrize(
    ("query", "unknown", "ignored"),
    [
        ("the apple and a zzz", ("zzz",), ("the", "and", "a")),
        ("apple XJ-900/2 pear-zz", ("XJ-900/2", "zz"), ()),
        ("who apple", (), ("who",)),
        ("apple ++ \u20ac 😀", (), ("++", "\u20ac", "😀")),
        ("WHO apple", ("WHO",), ()),
        ("apple? (pear) - \u2013", (), ()),
        ("서울특별시는 사과", ("특별시는",), ()),
        ("서울은 부산에", ("부산에",), ()),
    ],
)
def test_what_is_not_searched_is_named(index_of, query, unknown, ignored):
    index = index_of(["apple pear", "서울에서 사과"])
    hits = index.search(query)
    assert (hits.unknown, hits.ignored, hits.has_known_words) == (unknown, ignored, True)
    plain = hits.to_dict()
    assert (plain["unknown"], plain["ignored"]) == (list(unknown), list(ignored))
    shown = str(hits)
    assert all(word in shown for word in unknown + ignored)


@pytest.mark.parametrize(
    ("word", "instead", "documents"),
    [
        ("pasword", "password", 3),
        ("passwrod", "password", 3),
        ("managers", "manager", 2),
        ("Häser", "häuser", 1),
        ("горад", "город", 1),
        ("zzzzzz", "", 0),
    ],
)
def test_a_word_that_no_document_has_gets_a_suggestion(index_of, word, instead, documents):
    texts = ["a password manager", "the Password " * 20, "password of the manager", "alte Häuser", "большой город"]
    index = index_of(texts, language="none", passage_characters=100)
    hits = index.search(f"{word} the")
    assert hits.suggestions == (((word, instead, documents),) if documents else ())
    assert (f'did you mean "{instead}" ({documents} document' in str(hits)) == bool(documents)


def test_an_acronym_in_lower_case_is_not_named_where_it_is_searched(index_of):
    index = index_of(["guidelines of the WHO"])
    hits = index.search("who guidelines")
    assert hits.ignored == () and [row.name for row in hits[0].reasons.top()] == ["guidelines", "who"]


def test_without_bm25_what_no_model_knows_is_named(index_of, fruit):
    index = index_of(["apple pear"], models=fruit, bm25=False)
    hits = index.search("apple zzz the")
    assert hits.unknown == ("zzz",) and hits.ignored == ()
    assert "Unknown to the model: zzz" in str(hits)


# --- Nothing found ---


def test_a_query_without_a_known_word_finds_nothing(index_of):
    vocabulary = Vocabulary(["as", "z", "apple", "the"], word_piece().backend_tokenizer)
    model = StaticEmbedder(vocabulary, np.eye(4, dtype=np.float32) + 0.1)
    index = index_of(["apple as the", "z apple"], models={"m": model})
    for query in ("asdfgh zs", "asdfgh", "the asdfgh"):
        hits = index.search(query)
        assert list(hits) == [] and hits.unknown and not hits.has_known_words
        assert "No word of the query is known" in str(hits) and hits.to_dict()["hits"] == []
    assert index.search("apples").has_known_words and len(index.search("apples")) == 2
    assert len(index.search("the")) == 2
    for query in ("", "?!", "++"):
        hits = index.search(query)
        assert list(hits) == [] and "no words to search for" in str(hits)


def signed(texts):
    """-1, 0 or 1 in the query's direction."""
    kinds = {"minus": [-1.0, 0.0], "zero": [0.0, 1.0]}
    return np.array([kinds.get(text.split()[0], [1.0, 0.0]) for text in texts], np.float32)


@pytest.mark.parametrize("coarse", [False, True])
def test_a_passage_that_shares_nothing_is_no_hit(tmp_path, coarse, monkeypatch):
    if coarse:
        monkeypatch.setattr("pellucid.index.arrays.COARSE_ROWS", 1)
    with Index.create(tmp_path / "index", {"f": signed}, bm25=False, passage_characters=100) as index:
        documents = ["minus " * 16 + "\n\n" + "zero " * 19, "zero " * 5, "minus", *["zero"] * 40, "plus"]
        index.add(documents, ids=[str(n) for n in range(len(documents))])
        hits = index.search("query", 10)
        assert [(hit.id, hit.score) for hit in hits] == [("43", 1.0), ("0", -1.0), ("2", -1.0)]
        assert all(any(hit.parts.values()) for hit in hits)
        assert [index.score("query", hit.id).score for hit in hits] == [hit.score for hit in hits]
        assert index.score("query", "1").score == 0.0


@given(st.floats(-1, 1))
def test_min_score_leaves_out_the_others(index_of_letters, least):
    every = index_of_letters.search("dab ace", 100)
    assert [hit.id for hit in index_of_letters.search("dab ace", 100, min_score=least)] == [
        hit.id for hit in every if hit.score >= least
    ]
    exact = every[2].score
    assert len(index_of_letters.search("dab ace", 2, min_score=exact)) == 2
    assert [hit.score >= exact for hit in index_of_letters.search("dab ace", 100, min_score=exact)] == [True] * sum(
        hit.score >= exact for hit in every
    )


@pytest.fixture(scope="module")
def index_of_letters(tmp_path_factory):
    with Index.create(tmp_path_factory.mktemp("letters") / "index", {"m": SparseLetters()}) as index:
        index.add([f"{a}{b} ace" if n % 3 else f"{b}{a}" for n, (a, b) in enumerate(zip("abcdefgh" * 5, "dcab" * 10))])
        yield index


# --- Long queries and the committed queries ---


@pytest.mark.full
def test_right_documents_come_before_those_they_are_confused_with(tmp_path):
    file = Path(__file__).parents[2] / "benchmarks/terms.jsonl"
    cases = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    first = 0
    for number, case in enumerate(cases):
        documents = case["wrong"] + case["right"]
        first += int(ranking(tmp_path / str(number), case["query"], documents)[0]) >= len(case["wrong"])
    assert len(cases) == 60 and first >= 55


@pytest.mark.parametrize(
    ("query", "ignored"),
    [
        ('"new york"', ('"',)), ("\u201cnew york\u201d", ("\u201c", "\u201d")), ("cars -boats", ("-",)),
        ("comput*", ("*",)), ("+loan", ("+",)), ("-5 C++ AB- well-known IL-6 A*", ()),
    ],
)  # fmt: skip
def test_signs_that_other_engines_take_for_more_are_named(index_of, query, ignored):
    index = index_of(["a new guide to York"])
    assert index.search(query).ignored == ignored


# --- What a score tells ---


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    texts = [f"A lens of glass number {n} bends light of colour {n % 7} in a telescope." for n in range(60)]
    index = Index.create(tmp_path_factory.mktemp("calibrated") / "index", {})
    index.add(texts, ids=map(str, range(60)))
    assert index.search("lens")[0].probability is None
    index.calibrate()
    return index


def test_a_probability_tells_queries_of_other_subjects(calibrated):
    related, other = (
        calibrated.search("glass lens telescope"),
        calibrated.search("in number 3 of this street bread costs more and more"),
    )
    assert related[0].probability > 0.9 and other[0].probability < 0.5 and " Weak: it answers " in other[0].summary()
    assert [hit.probability for hit in related] == sorted((hit.probability for hit in related), reverse=True)
    assert "Weak" in str(other) and "Weak" not in str(related)
    assert calibrated.search(other.query, min_probability=0.5).hits == ()
    assert calibrated.search(related.query, min_probability=0.5)[0].id == related[0].id
    assert related.to_dict()["hits"][0]["probability"] == related[0].probability


def test_a_probability_is_of_the_weights_it_was_fitted_for(calibrated):
    assert calibrated.search("lens", word_weights={"lens": 2})[0].probability is None
    with Index.open(calibrated.folder) as reopened:
        assert reopened.search("lens")[0].probability == calibrated.search("lens")[0].probability
        with pytest.raises(InputError, match="leave out rerank"):
            reopened.search("lens", min_probability=0.5, rerank=lambda query, texts: [0.0] * len(texts))


@pytest.mark.parametrize("stored", [3, {}, {"slope": -1.0, "intercept": 0.0, "weights": {}, "word_weights": {}}])
def test_a_calibration_that_cannot_be_is_refused(stored):
    with pytest.raises(InputError, match="the calibration is"):
        stored_calibration({"calibration": stored})
