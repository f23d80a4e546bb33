"""The terms of BM25, also counted in C, and words looked up once; what a query does not search; and nothing found."""

import sys
import unicodedata
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from letters import SparseLetterEmbedder as SparseLetters
from pellucid import Index
from pellucid.errors import InputError
from pellucid.index import arrays, counting
from pellucid.index.arrays import TermCounts, hash_strings
from pellucid.index.counting import TermCounter
from pellucid.index.terms import Analyser
from pellucid.index.words import WordCache
from pellucid.native.terms import TokenLists, count_terms, invert
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import cluster_ends, normalize
from pellucid.text.words import Vocabulary, split_words
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
def test_terms_and_their_places_agree_and_equal_texts_have_equal_terms(text, language):
    analyser = Analyser(language)
    terms, spans = analyser.term_positions(text)
    assert Counter(terms) == Counter(analyser.terms(text))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
    assert Counter(analyser.terms(forms[0])) == Counter(analyser.terms(forms[1]))
    assert analyser.query(forms[0]).weights == analyser.query(forms[1]).weights


@pytest.mark.parametrize("context_chars", [1, 40, 256])
@given(st.lists(st.sampled_from(["IT", "it", "WHO", "salt", "A", "(IT)", "AIDS/IT", "état", "x" * 50, "\n", "\u00ad"])))
def test_acronyms_are_told_by_the_tokens_around_as_by_the_whole_line(context_chars, tokens):
    text, analyser = " ".join(tokens), Analyser()
    with patch("pellucid.index.terms._CONTEXT_CHARS", context_chars):
        terms, _ = analyser.term_positions(text)
    assert Counter(terms) == Counter(analyser.terms(text))


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
        ("HLADR- HLADRB-", "hladr hladr- hladrb"),  # a long word is no name with a hyphen behind it
        (
            "C++11 C++/CLI std::vector max_length",
            "11 c++ c++11 cli c++ c++/cli std vector std::vector max length max_length",
        ),
        ("patient's O'Brien l'amour don't", "patient brien amour"),
        ("The WHO and AIDS in the U.S., vitamin A. A study", "WHO aid AIDS US vitamin A studi"),
        ("type I error, I am", "type I error"),
        ('(A) study: "I" am', "studi"),
        ("WHO GUIDELINES AND WHAT IT IS", "guidelin"),
        ("IT", "IT"),
        ("IT\nit is what it is", "IT"),
        ("SALT: WHAT TO DO ABOUT IT, what not", "salt"),
        ("WHO AIDS IT and salt", "WHO aid AIDS IT salt"),
        ("US WHO AIDS IT and salt", "aid salt"),  # more in a row are a heading
        ("1.2.3.4.5.6.7.8", "1 2 3 4 5 6 7 8 1.2 2.3 3.4 4.5 5.6 6.7 7.8 1.2.3.4.5.6.7.8"),
        ("1.2.3.4.5.6.7.8.9", "1 2 3 4 5 6 7 8 9 1.2 2.3 3.4 4.5 5.6 6.7 7.8 8.9"),
        ("東京都 Tokyo", "東京 京都 東 京 都 tokyo"),
        ("서울은 AI를 2호선", "서울 울은 서 울 은 ai 를 2 호선 호 선"),
    ],
)
def test_the_terms_of_a_text(text, terms):
    assert Counter(Analyser().terms(text)) == Counter(terms.split())


def test_stop_words_are_those_of_the_user():
    assert Counter(Analyser(stop_words=[]).terms("the vitamin C, it")) == Counter(["the", "vitamin", "c", "it"])
    assert sorted(Analyser("german").terms("die H\u00e4user und A")) == ["a", "die", "haus", "und"]
    assert sorted(Analyser("german", ["die", "UND"]).terms("die H\u00e4user und UND so DIE")) == [
        "DIE",
        "UND",
        "haus",
        "so",
    ]
    assert sorted(Analyser(stop_words=["team"]).terms("our IT, the team")) == ["IT", "it", "our", "the"]


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
        ("NOT any dogs", "a dog that sleeps in the house", ["NOT"]),
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
def test_what_carries_the_meaning_decides(index_of, query, right, others):
    assert index_of([*others, right]).search(query)[0].text == right


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
        # signs that other engines take for more
        ('"apple pear"', (), ('"',)),
        ("\u201capple pear\u201d", (), ("\u201c", "\u201d")),
        ("apple -pear", (), ("-",)),
        ("pear*", (), ("*",)),
        ("+apple", (), ("+",)),
        ('"+apple"', (), ('"', "+")),
        ("-5 C++ AB- apple-pear IL-6 A*", ("-5", "C++", "AB-", "IL-6", "A*"), ()),
    ],
)
def test_what_is_not_searched_is_named(index_of, query, unknown, ignored):
    hits = index_of(["apple pear", "서울에서 사과"]).search(query)
    assert (hits.unknown, hits.ignored, hits.has_known_words) == (unknown, ignored, True)
    plain = hits.to_dict()
    assert (plain["unknown"], plain["ignored"]) == (list(unknown), list(ignored))
    assert all(word in str(hits) for word in unknown + ignored)


@pytest.mark.parametrize(
    ("word", "instead", "documents"),
    [
        ("pasword", "password", 3),
        ("passwrod", "password", 3),
        ("managers", "manager", 2),
        ("Häser", "häuser", 1),
        ("горад", "город", 1),
        ("zzzzzz", "", 0),
        ("coat", "coal", 1),  # what begins alike comes before "boat", which more documents have
        ("boad", "boat", 2),  # and "boar" one
        ("coa", "", 0),  # short words have many neighbours
    ],
)
def test_a_word_that_no_document_has_gets_a_suggestion(index_of, word, instead, documents):
    texts = ["a password manager", "the Password " * 20, "password of the manager", "alte Häuser, boar, boat",
             "большой город, boat, coal"]  # fmt: skip
    hits = index_of(texts, language="none", passage_characters=100).search(f"{word} the")
    assert hits.suggestions == (((word, instead, documents),) if documents else ())
    assert (f'did you mean "{instead}" ({documents} document' in str(hits)) == bool(documents)


@pytest.mark.parametrize(
    ("query", "options", "warnings", "others"),
    [
        ("apple the", {}, [], ["Not searched (stop words and signs): the"]),
        ("apple", {"min_score": 9}, [], ["No hits."]),
        ("++", {}, ["The query has no words to search for, so there are no hits."],
         ["Not searched (stop words and signs): ++"]),
        ("qqqzzz", {}, ["No word of the query is known, so there are no hits.",
                        "Not found in any document: qqqzzz"], []),
        ("pera", {}, ["Not found in any document: pera", 'Instead of "pera", did you mean "pear" (1 document)?'], []),
        ("chatgpt", {}, ["Not found in any document: chatgpt",
                         'Only partly known to static-en: "chatgpt" read as "chat"'], []),
    ],
)  # fmt: skip
def test_a_note_is_a_warning_where_something_may_be_wrong(index_of, query, options, warnings, others):
    notes = index_of(["apple pear"], models="static-en").search(query, **options).notes()
    assert notes == [*((note, True) for note in warnings), *((note, False) for note in others)]


def test_an_acronym_in_lower_case_is_not_named_where_it_is_searched(index_of):
    hits = index_of(["guidelines of the WHO"]).search("who guidelines")
    assert hits.ignored == () and [row.name for row in hits[0].reasons.top()] == ["guidelines", "who"]


def test_without_bm25_what_no_model_knows_is_named(index_of, fruit):
    hits = index_of(["apple pear"], models=fruit, bm25=False).search("apple zzz the")
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
def test_a_passage_that_shares_nothing_is_no_hit(index_of, coarse, monkeypatch):
    if coarse:
        monkeypatch.setattr("pellucid.index.arrays.COARSE_ROWS", 1)
    documents = ["minus " * 16 + "\n\n" + "zero " * 19, "zero " * 5, "minus", *["zero"] * 40, "plus"]
    index = index_of(documents, ids=range(len(documents)), models={"f": signed}, bm25=False, passage_characters=100)
    hits = index.search("query", 10)
    assert [(hit.id, hit.score) for hit in hits] == [("43", 1.0), ("0", -1.0), ("2", -1.0)]
    assert all(any(hit.parts.values()) for hit in hits)
    assert [index.score("query", hit.id).score for hit in hits] == [hit.score for hit in hits]
    assert index.score("query", "1").score == 0.0


def test_a_hit_whose_score_is_the_least_is_found_and_others_are_left_out(index_of):
    texts = [f"{a}{b} ace" if n % 3 else f"{b}{a}" for n, (a, b) in enumerate(zip("abcdefgh" * 5, "dcab" * 10))]
    index = index_of(texts, models={"m": SparseLetters()})
    hits = index.search("dab ace", 100)
    for least in {hit.score for hit in hits}:
        expected = [hit.id for hit in hits if hit.score >= least]
        assert [hit.id for hit in index.search("dab ace", 100, min_score=least)] == expected


# --- What a score tells ---


def test_a_probability_tells_queries_of_other_subjects_and_is_of_the_weights_it_was_fitted_for(index_of):
    texts = [f"A lens of glass number {n} bends light of colour {n % 7} in a telescope." for n in range(60)]
    index = index_of(texts, ids=range(60), metadata=[{"n": n} for n in range(60)])
    assert index.search("lens")[0].probability is None
    index.calibrate()
    related = index.search("glass lens telescope")
    other = index.search("in number 3 of this street bread costs more and more")
    assert related[0].probability > 0.9 and other[0].probability < 0.5 and " Weak: it answers " in other[0].summary()
    assert [hit.probability for hit in related] == sorted((hit.probability for hit in related), reverse=True)
    assert "Weak" in str(other) and "Weak" not in str(related) + str(index.search(other.query, offset=1))
    assert [is_warning for note, is_warning in other.notes() if "Weak" in note] == [True]
    assert index.search(other.query, min_probability=0.5).hits == ()
    assert index.search(related.query, min_probability=0.5)[0].id == related[0].id
    assert related.to_dict()["hits"][0]["probability"] == related[0].probability

    boosts = [{"where": {"n": 1}, "weight": 1}]
    for option in ({"word_weights": {"lens": 2}}, {"synonyms": {"lens": ["glass"]}}, {"boosts": boosts}):
        assert index.search("lens", **option)[0].probability is None
    with Index.open(index.folder) as reopened:
        assert reopened.search("lens")[0].probability == index.search("lens")[0].probability


# --- Counted in C ---


BLANKS = [" ", "  ", "\n", "\t", "\r\n", "\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u3000"]
CAPITALS = "I A IT AIDS US WHO STRASSE STRA\u00dfE \u00c9TAT vitamin the (IT), OR/AND".split()
words = st.sampled_from(PIECES) | st.sampled_from(CAPITALS) | st.text(max_size=4)
counted_texts = st.lists(st.tuples(words, st.sampled_from([*BLANKS, ""])), max_size=30).map(
    lambda pieces: "".join(word + blank for word, blank in pieces)
)


def plainly(analyser: Analyser, passages: list[str]) -> list[Counter]:
    """What C counts: how often the hash of each term stands in each passage."""
    counts = [Counter(analyser.terms(text)) for text in passages]
    return [Counter(dict(zip(hash_strings(passage).tolist(), passage.values()))) for passage in counts]


def spelled(counts: TermCounts) -> list[Counter]:
    """How often each hash of a term stands in each passage."""
    items, starts = list(zip(counts.hashes[counts.terms].tolist(), counts.counts.tolist())), [0, *counts.ends.tolist()]
    passages = [Counter(dict(items[start:end])) for start, end in pairwise(starts)]
    assert [len(passage) for passage in passages] == [end - start for start, end in pairwise(starts)]  # each term once
    return passages


@given(
    st.lists(counted_texts, max_size=6),
    languages,
    st.lists(st.sampled_from(["it", "IT", "(the", "'tis", "a"])),
    st.booleans(),
)
@example(["IT WHO US IT"], "english", ["it", "who", "us"], False)
@example(["IT WHO US " * 2000, "IT WHO US"], "english", [], False)  # terms that these words could be, and none is
def test_c_counts_what_python_counts(passages, language, stop_words, again):
    counter, analyser = TermCounter(Analyser(language, stop_words or None)), Analyser(language, stop_words or None)
    for _ in range(1 + again):  # the second time every token is remembered
        counts = counter.count(passages)
        expected = plainly(analyser, passages)
        assert spelled(counts) == expected
        assert counts.lengths().tolist() == [passage.total() for passage in expected]
        signatures = [sum(term % 2**64 * n for term, n in passage.items()) % 2**64 for passage in expected]
        assert counts.signatures().tolist() == signatures
        tensors = arrays._inverted_counts(counts)
        assert tensors["bm25.keys"].tolist() == sorted({term for passage in expected for term in passage})
        ends = [0, *tensors["bm25.key_ends"].tolist()]
        for term, start, end in zip(tensors["bm25.keys"].tolist(), ends, ends[1:]):
            items = list(zip(tensors["bm25.rows"][start:end].tolist(), tensors["bm25.values"][start:end].tolist()))
            assert items == [(n, passage[term]) for n, passage in enumerate(expected) if term in passage]


def test_c_divides_texts_at_the_blanks_of_python():
    every = "".join(f"a{chr(code)}b " for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    cut = [every, "\xe1", "\u3000"[:1], "\u2003a", "a\u2003", "\x85", "\u1680\u1680", "", "\n"]  # also at the ends
    table = counting.TokenTable()
    numbers, ends = table.read([text.encode() for text in cut])
    tokens = table.tokens()
    for text, start, end in zip(cut, [0, *ends.tolist()], ends.tolist()):
        assert [tokens[number] for number in numbers[start:end].tolist() if number >= 0] == text.split()
    assert (numbers < 0).sum() == 2 and ends[-1] == len(numbers)  # ends of lines


def test_what_is_forgotten_is_counted_again(monkeypatch):
    monkeypatch.setattr(counting, "MAX_CACHED_TOKENS", 3)
    monkeypatch.setattr(counting, "_BLOCK_CHARS", 20)
    counter, analyser = TermCounter(Analyser()), Analyser()
    passages = [f"word{n % 7} and IT {n}" for n in range(100)]
    assert spelled(counter.count(passages)) == plainly(analyser, passages)


@given(st.data())
def test_hostile_numbers_are_refused(data):
    lists = st.lists(st.integers(-3, 6), max_size=5)
    int32, int64 = (lambda items, kind=kind: np.array(items, kind) for kind in (np.int32, np.int64))
    known = TokenLists(
        np.zeros(data.draw(st.integers(0, 3)), np.uint8), int64(data.draw(lists)), int32(data.draw(lists)),
        int64(data.draw(lists)), int32(data.draw(lists)),
    )  # fmt: skip
    with suppress(InputError):
        terms, counts, ends = count_terms(
            known, int32(data.draw(lists)), int64(data.draw(lists)), data.draw(st.integers(0, 4))
        )
        assert len(terms) == len(counts) and (not len(ends) or ends[-1] == len(terms))
    arguments = data.draw(lists), data.draw(lists), data.draw(lists), data.draw(lists), data.draw(lists)
    with suppress(InputError):
        rows, _ = invert(*(kind(items) for kind, items in zip((int32, int32, int64, int32, int64), arguments)))
        assert len(rows) == len(arguments[0])


# --- Words, looked up once ---


@given(texts=st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=40), max_size=4))
@example(["US, us, AIDS and Us"])
def test_words_are_read_as_they_are_split(texts):
    words = WordCache(Analyser(), {})
    words.read([text.lower() for text in texts])  # a word is not taken for its lower case
    found = words.read(texts)
    spelled = [words._spelled[number] for number in found.values.tolist()]
    read = [(text, word, *span) for text, word, span in zip(found.texts().tolist(), spelled, found.spans.tolist())]
    assert read == [(n, *word) for n, text in enumerate(texts) for word in split_words(text)]


def test_the_rows_of_texts_are_those_of_the_vocabulary():
    texts = ["New York, new hats in \u6771\u4eac\u90fd", "", "\u00fcber new York and caf\u00e9"] * 2
    for spelled in (["new\u2581york", "new", "caf\u00e9"], ["\u6771\u4eac", "new", "york", "\u90fd"], ["hats", "New"]):
        model = StaticEmbedder(Vocabulary(spelled), np.eye(len(spelled), 5, dtype=np.float32))
        words = WordCache(Analyser(), {"m": model})
        rows, _ = words.rows("m", texts, words.read(texts))
        for number, text in enumerate(texts):
            known = [(model.vocabulary.row(word.text), *word[1:]) for word in model.vocabulary.split(text)]
            part = rows.slice_for(number)
            read = [(row, *span) for row, span in zip(rows.values[part].tolist(), rows.spans[part].tolist())]
            assert read == [word for word in known if word[0] >= 0]


def test_the_first_word_that_is_read_by_its_spelling_may_be_of_a_query(index_of):
    assert len(index_of(["a boat on the river"], models="static-multi").search("supersonik")) == 1
