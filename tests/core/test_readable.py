"""Groups and summaries: lines of phrases that add up to the score, and sentences that say no more than they do."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pellucid
from pellucid.errors import InputError
from pellucid.explain.explanation import Explanation
from pellucid.explain.groups import WordSum
from pellucid.explain.phrases import MAX_JOINED_WORDS, cut_into_phrases, match_words, words_of_text
from pellucid.explain.rows import CONTEXT, REMAINDER, SHARED, WORD, WORD_PAIR, Row
from pellucid.explain.summary import HitsSummary, HitWords
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.function_words import function_words, negations
from pellucid.text.words import Vocabulary, split_words
from test_explanation import explanations


def spans_of(text: str) -> list[tuple[int, int]]:
    return [(word.start, word.end) for word in split_words(text)]


def phrases_of(text: str) -> list[str]:
    found = cut_into_phrases(words_of_text(text, spans_of(text)))
    return [text[slice(*span)] for span, is_phrase in zip(found.spans, found.is_phrase) if is_phrase]


WORDS = ["home", "loans", "bank", "rates", "the", "a", "of", "and", "not", "dog", "日本", "語", "شعر", "école"]


@st.composite
def mixed(draw: st.DrawFn) -> Explanation:
    """An explanation with rows of every kind, as an ensemble, an index or an encoder may give them."""
    text = st.lists(st.sampled_from([*WORDS, ".", ",", "\n"]), max_size=12).map(" ".join)
    texts = draw(text), draw(st.none() | text)
    places = [spans_of(one or "") for one in texts]

    def some(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(draw(st.sets(st.sampled_from(spans), max_size=3)))) if spans else ()

    rows = []
    kinds = [WORD_PAIR, WORD, "dimension", "key token", "embedding", SHARED, CONTEXT, REMAINDER]
    for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=14))):
        value = draw(st.floats(-1, 1).map(lambda size: round(size, 6)))
        name = f"{kind} {number}"
        rows.append(Row(name, (name, ""), value, 0.0, some(places[0]), some(places[1]), key=(name,), kind=kind))
    score = sum(row.contribution for row in rows) + draw(st.sampled_from([0.0, 0.25]))
    return Explanation.from_terms("index", texts, score, rows, exact=False)


@given(mixed() | explanations(), st.none() | st.integers(1, 9))
def test_groups_are_a_partition_of_the_score(why: Explanation, k: int | None) -> None:
    groups = why.groups(k)
    assert sum(group.contribution for group in groups) == pytest.approx(why.score, abs=2e-6)
    lines = [group for group in groups if not group.is_sum]
    assert [abs(line.contribution) for line in lines] == sorted((abs(g.contribution) for g in lines), reverse=True) or (
        np.allclose(np.diff([abs(line.contribution) for line in lines]).clip(min=0), 0, atol=1e-9)
    )
    assert all(group.contribution for group in groups) and len({group.name for group in groups if group.is_sum}) < 6
    if k is not None:
        assert len(lines) <= k and len(groups) <= max(k + 2, 6)
    for group in groups:
        for text, spans in zip((*why.texts, "", ""), (group.spans1, group.spans2, group.spans3)):
            assert all(0 <= start < end <= len(text) for start, end in spans)
            if group.kind == "phrase":
                phrases = [" ".join(text[slice(*span)].split())[:50].lower() for span in spans]
                assert all(phrase in group.name.lower() for phrase in phrases)


@given(mixed() | explanations())
def test_what_a_summary_says_that_mostly_raises_or_lowers_a_score_does(why: Explanation) -> None:
    for sign, size in re.findall(r"it \(([+-])[\d.]+, (mostly|such as)", why.summary()):
        values = [abs(g.contribution) for g in why.groups() if g.contribution * (1 if sign == "+" else -1) > 0]
        assert (max(values) >= sum(values) / 2) == (size == "mostly")


@given(mixed() | explanations())
def test_a_summary_says_nothing_that_is_not_in_the_groups(why: Explanation) -> None:
    summary = why.summary()
    assert summary.endswith(".") and "\n\n" not in summary and len(re.findall(r"\. [A-Z]", summary)) <= 3
    shares = {f"{abs(group.share):.0%}" for group in why.groups()} | {"10%"}
    assert set(re.findall(r"(?<![\w.])\d+%", summary)) <= shares


def test_a_phrase_of_text_1_names_those_that_it_matches() -> None:
    words = ["home", "loans", "mortgage", "the", "bank", "lender", "dog"]
    rows = np.array(
        [[1, 0.2, 0], [1, 0, 0], [1, 0.1, 0], [0.1, 0.1, 0.1], [0, 1, 0], [0, 1, 0.1], [0, 0, 1]], np.float32
    )
    why = StaticEmbedder(Vocabulary(words), rows).explain("the bank, home loans", "a mortgage. the lender")
    first, second = why.groups()
    assert (first.name, second.name) == ("home loans \u2192 mortgage", "bank \u2192 lender")
    assert (first.kind, first.spans1, first.spans2) == ("phrase", ((10, 20),), ((2, 10),))
    assert first.contribution + second.contribution == pytest.approx(why.score)
    share1, share2 = (f"{group.share:.0%}" for group in (first, second))
    assert why.summary() == (
        f'Similarity {why.score:.2f}, mainly because "home loans" matches "mortgage" ({share1}) and "bank" matches '
        f'"lender" ({share2}). Unknown words: "a".'
    )
    gap = why - StaticEmbedder(Vocabulary(words), rows).explain("the bank, home loans", "the dog of the lender")
    assert gap.groups()[0].name == "home loans \u2192 mortgage, rather than lender" or gap.groups()[0].spans2
    assert gap.summary().startswith("Text 2 is closer to text 1 than text 3 is, by ")


@pytest.mark.parametrize(
    "repeated", ["Mortgage, mortgage, lender", "mortgage. lender. MORTGAGE", "lender, mortgage, mortgage"]
)
def test_a_phrase_that_a_text_repeats_is_named_once(repeated: str) -> None:
    words = ["home", "loans", "mortgage", "lender"]
    rows = np.array([[1, 0.2], [1, 0], [1, 0.1], [0.9, 0.3]], np.float32)
    why = StaticEmbedder(Vocabulary(words), rows).explain("home loans", repeated)
    (group,) = (group for group in why.groups() if group.kind == "phrase")
    assert len(group.spans2) > 1
    phrases = group.name.partition(" \u2192 ")[2].lower().split(", ")
    assert len(phrases) == len(set(phrases)) and why.summary().lower().count('"mortgage"') == 1


def test_rows_that_are_no_words_are_lines_of_their_own() -> None:
    rows = [Row(f"d{n}", (f"d{n}",), 0.1 * (n - 3), 0.0) for n in range(9)]
    why = Explanation.from_terms("anchors", ("a", "b"), 0.9, rows)
    assert [group.name for group in why.groups(3)] == ["d8", "d7", "d0", "5 other dimensions"]
    assert [group.kind for group in why.groups(3)] == ["dimension"] * 3 + ["other dimensions"]
    assert len(why.groups(None)) == 8  # one adds nothing
    assert (
        why.summary() == 'Similarity 0.90, mainly from "d8" (56%) and "d7" (44%). '
        '"d0" lowers it by 0.30; 22% comes from 3 other dimensions.'
    )
    with pytest.raises(InputError, match="k is 0"):
        why.groups(0)


def test_an_index_joins_the_words_of_its_parts_and_seven_lines_are_enough() -> None:
    query, text = "aspirin, heart attack, dose, risk, daily, stroke", "aspirin and the heart"
    spans = {text[slice(*span)]: span for span in spans_of(text)}
    asked = {query[slice(*span)]: span for span in spans_of(query)}
    rows = [Row("bm25: aspirin", ("aspirin",), 0.2, 0.0, (asked["aspirin"],), (spans["aspirin"],), kind=WORD)]
    rows += [
        Row(
            f"dense: {word} \u00d7 heart",
            (word, "heart"),
            0.1 - 0.01 * n,
            0.0,
            (asked[word],),
            (spans["heart"],),
            kind=WORD_PAIR,
        )
        for n, word in enumerate(asked)
    ]
    rows += [Row(f"dense: {kind}", (kind,), 0.05, 0.0, kind=kind) for kind in (SHARED, CONTEXT, REMAINDER)]
    why = Explanation.from_terms("index", (query, text), sum(row.contribution for row in rows), rows)
    groups = why.groups()
    assert groups[0].name == "aspirin \u2192 aspirin and the heart" and groups[0].contribution == pytest.approx(0.3)
    assert [group.kind for group in groups] == ["phrase"] * 3 + ["other words", "context", "common", "remainder"]
    assert why.summary().startswith("Score 0.")
    assert [group.kind for group in why.groups(None)].count("phrase") == 6


def test_small_scores_and_negative_ones_have_a_summary() -> None:
    def of(values: dict[str, float]) -> str:
        pairs = [
            Row(f"{a} \u00d7 b", (a, "b"), value, 0.0, ((4 * n, 4 * n + 3),), ((0, 1),), kind=WORD_PAIR)
            for n, (a, value) in enumerate(values.items())
        ]
        text = ",".join(values)
        return Explanation.from_terms("static", (text, "b"), sum(values.values()), pairs).summary()

    assert (
        of({"dog": -0.3, "cat": 0.1})
        == 'Similarity -0.20, mainly because "dog" is unlike "b" (-0.30). "cat" with "b" raises it by 0.10.'
    )
    assert of({"dog": 0.3, "cat": -0.299}) == (
        'Similarity 0.00: what raises it (+0.30, mostly "dog" with "b") and what lowers it '
        '(-0.30, mostly "cat" with "b") nearly cancel.'
    )
    rows = [
        Row(f"dog \u00d7 {word}", ("dog", word), value, 0.0, ((0, 3),), (span,), kind=WORD_PAIR)
        for word, value, span in (("b", 0.3, (0, 1)), ("c", -0.297, (2, 3)))
    ]
    why = Explanation.from_terms("static", ("dog", "b c"), 0.003, rows)
    assert why.summary() == 'Similarity 0.00: what raises it is small (+0.003, mostly "dog" with "b c").'
    context = Row(CONTEXT, (CONTEXT,), 0.6, 0.0, kind=CONTEXT)
    why = Explanation.from_terms("dense", ("x", "y"), 0.6, [context])
    assert why.summary() == (
        "Similarity 0.60, of which no single phrase gives 10%. 100% comes from how the words combine (context)."
    )


def paired(text1: str, text2: str, values: dict[tuple[str, str], float], **fields: str) -> Explanation:
    """An explanation of word pairs, given by their words."""
    rows = []
    for (first, second), value in values.items():
        spans = (
            ((text.index(word), text.index(word) + len(word)),) for text, word in ((text1, first), (text2, second))
        )
        rows.append(Row(f"{first} \u00d7 {second}", (first, second), value, 0.0, *spans, kind=WORD_PAIR))
    return Explanation.from_terms(fields.get("family", "static"), (text1, text2), sum(values.values()), rows)


def test_each_phrase_of_a_summary_is_quoted_by_itself_and_said_once() -> None:
    values = {("loan", "credit"): 0.3, ("loan", "rate"): 0.25, ("bank", "bank"): 0.2}
    why = paired("loan, bank", "credit, rate, bank", values)
    assert why.summary() == (
        'Similarity 0.75, mainly because "loan" matches "credit" and "rate" (73%) and both say "bank" (27%).'
    )
    sentences = "The loan is a credit of a bank in the city of London, as people there said for a hundred years. "
    sentences += (
        "A loan, too, is what any person gives to another person who asks for it in the morning or late at night, "
    )
    sentences += "and says so. That is all that there is to say of it."
    passage = paired("loan, dog", sentences, {("loan", "credit"): 0.4, ("loan", "gives"): 0.35, ("dog", "says"): 0.01})
    assert passage.summary().count('"loan" matches') == 1 and "\u2026" in passage.summary()
    assert all(group.name.partition(" \u2192 ")[2].removesuffix("\u2026") in sentences for group in passage.groups())
    assert {group.name.split()[-1] for group in passage.groups()} == {"as\u2026", "who\u2026"}  # no word is cut


def test_a_line_of_a_difference_names_the_text_first_that_it_speaks_for() -> None:
    query = "loan, dog"
    nearer = paired(query, "credit, cat", {("loan", "credit"): 0.5, ("dog", "cat"): 0.1})
    farther = paired(query, "rate, puppy", {("loan", "rate"): 0.1, ("dog", "puppy"): 0.3})
    gap = nearer - farther
    assert [group.name for group in gap.groups()] == [
        "loan \u2192 credit, rather than rate",
        "dog \u2192 puppy, rather than cat",
    ]
    assert gap.summary() == (
        'Text 2 is closer to text 1 than text 3 is, by 0.20, mainly because "loan" is closer to '
        '"credit" than to "rate" (+0.40). Text 3 is closer to "dog" (-0.20).'
    )
    assert (nearer - nearer).summary() == "Text 2 and text 3 are equally close to text 1."
    assert nearer.less_mean([nearer]).summary() == "Text 2 and the other are equally close to text 1."


def test_of_an_index_the_texts_are_query_and_documents() -> None:
    why = paired("loan", "credit", {("loan", "credit"): 0.5}, family="index")
    view = (why - paired("loan", "rate", {("loan", "rate"): 0.1}, family="index")).to_text()
    assert "This document is closer to the query than the other document is, by 0.40" in view
    assert "text 1" not in view + why.to_text(rows=True) and re.search(
        r"\nquery +loan\n\ndocument +credit\n", why.to_text()
    )


def test_less_the_mean_of_others_each_phrase_has_one_line() -> None:
    passage = "The loan is a credit of the bank. " * 9
    why = paired("loan, dog", passage, {("loan", "credit"): 0.5, ("dog", "bank"): 0.1})
    other = paired("loan, dog", "a rate", {("loan", "rate"): 0.2})
    groups = why.less_mean([other, other]).groups()
    assert [(group.kind, round(group.contribution, 6)) for group in groups] == [("phrase", 0.3), ("phrase", 0.1)]
    assert why.groups()[0].kind == "sentence"


@pytest.mark.parametrize("kind", ["sentence", WORD])
def test_pieces_of_the_other_texts_are_one_named_line(kind: str) -> None:
    def of(text: str, words: dict[str, float]) -> Explanation:
        rows = [
            Row(word, (word,), value, 0.0, (), ((text.index(word), text.index(word) + len(word)),), kind=kind)
            for word, value in words.items()
        ]
        return Explanation.from_terms("index", ("q", text), sum(words.values()), rows)

    gap = of("one. two.", {"one": 0.5, "two": 0.1}).less_mean([of("a. b.", {"a": 0.2, "b": 0.1}), of("c.", {"c": 0.1})])
    (line,) = [group for group in gap.groups() if not any((group.spans1, group.spans2))]
    assert line.name == f"{kind}s of the others" and line.contribution == pytest.approx(-0.2)
    assert f"{kind}s of the others" in gap.to_text()


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("How do I cancel my subscription?", ["cancel", "subscription"]),
        ("not effective,the U.S. rate of 3.5 or 1,000", ["not effective", "U.S", "rate", "3.5", "1,000"]),
        ("I don't like their O'Neill", ["don't like", "O'Neill"]),
        ("black and white dogs", ["black and white dogs"]),
        ("Die Bank hat das Haus am See", ["Bank", "Haus", "See"]),
        ("der alte und neue Vertrag", ["alte und neue Vertrag"]),
        ("to be or not to be", ["to be or", "not to be"]),
        ("今日、東京。", ["今日", "東京"]),
        ("بنك، قرض", ["بنك", "قرض"]),
        ("one\ntwo", ["one", "two"]),
        ("Adult tissue-resident cells", ["Adult", "tissue-resident cells"]),
        ("", []),
    ],
)
def test_phrases_end_where_a_person_would_pause(text: str, phrases: list[str]) -> None:
    assert phrases_of(text) == phrases


@given(
    st.lists(st.sampled_from(["home", "1,000", "low-cost", "U.S.", "the", "state-of-the-art", "a/b", ","]), max_size=9),
    st.integers(0, 99),
)
def test_no_phrase_begins_or_ends_inside_a_word_or_a_number(pieces: list[str], seed: int) -> None:
    text, other = " ".join(pieces), "home loans of 1,000 low-cost banks"
    first, second = (words_of_text(either, spans_of(either)) for either in (text, other))
    values = np.random.default_rng(seed).normal(size=(len(first.spans), len(second.spans)))
    for matches in (match_words(values, first, second)[0], None):
        phrases = cut_into_phrases(first, matches)
        assert not any(start and first.is_tied[start - 1] for start in phrases.starts)


@given(st.lists(st.sampled_from([*WORDS, "x1", "x2", ",", ".", "\n"]), max_size=30).map(" ".join), st.integers(0, 99))
@example("home , the , the", 0)
def test_every_content_word_is_in_one_phrase(text: str, seed: int) -> None:
    spans, other = spans_of(text), spans_of("home loans of the bank and rates")
    first, second = words_of_text(text, spans), words_of_text("home loans of the bank and rates", other)
    values = np.random.default_rng(seed).normal(size=(len(spans), len(other)))
    matches1, matches2 = match_words(values, first, second)
    assert set(matches1) - {-1} == set(matches2) - {-1} and len(matches1) == len(first.content)
    for matches in (matches1, None):
        found = cut_into_phrases(first, matches)
        assert found.starts == sorted(set(found.starts)) and found.starts[:1] == [0][: len(spans)]
        ends = [*found.starts[1:], len(spans)]
        for start, end, is_phrase in zip(found.starts, ends, found.is_phrase):
            assert is_phrase or not set(range(start, end)) & set(first.content)
            if is_phrase and matches is None:
                joined = [word for word in range(start, end) if word in first.content]
                assert len(joined) <= MAX_JOINED_WORDS or len(first.content) == len(spans)
            assert not any(first.breaks[word] for word in range(start, end - 1))


def test_the_language_is_the_one_whose_function_words_stand_there() -> None:
    for text, word in (
        ("wo ist der bahnhof", "der"), ("where is the train", "the"), ("le train est en retard", "le"),
        ("il treno per roma", "per"), ("de trein naar amsterdam", "naar"), ("поезд в и из берлина", "в"),
        ("本 は 面白い です", "は"),
    ):  # fmt: skip
        found = function_words(text.split())
        assert word in found.words and ("the" in found.words) == (word == "the")
    assert "the" in function_words("dog bit man".split()).words


def hit_words(score: float, **values: float) -> HitWords:
    """What words of the query "G-CSF role cells" add to a hit."""
    spans = {"G-CSF": (0, 5), "G": (0, 1), "CSF": (2, 5), "role": (6, 10), "cells": (11, 16)}
    names = {name.replace("-", "_"): name for name in spans}
    return HitWords(score, [WordSum(names[name], value, "", spans[names[name]]) for name, value in values.items()])


def test_a_word_of_the_query_has_one_name_in_all_hits() -> None:
    hits = [hit_words(0.4, G_CSF=0.3, cells=0.1), hit_words(0.3, G=0.02, CSF=0.28), hit_words(0.3, G_CSF=0.3)]
    summary = HitsSummary(hits).text()
    assert summary.startswith('All 3 hits match "G-CSF".') and "CSF" not in summary.replace("G-CSF", "")


def test_what_adds_little_to_every_hit_is_not_said_to_match_none() -> None:
    hits = [hit_words(0.8, G_CSF=0.5, cells=0.25, role=0.05), hit_words(0.5, G_CSF=0.45, cells=0.08)]
    summary = HitsSummary(hits).text()
    assert summary.startswith('Both hits match "G-CSF"; little comes from "role".') and "only it" not in summary
    assert 'leads by 0.30, mainly by "cells"' in summary
    only = HitsSummary([hits[0], hit_words(0.5, G_CSF=0.48, cells=0.02)]).text()
    assert 'leads by 0.30: only it matches "cells"' in only


@pytest.mark.parametrize("words", ["not never", "nicht niemand", "ne jamais", "nunca", "non", "не", "不 無", "ない"])
def test_there_is_one_list_of_negations(words: str) -> None:
    assert set(words.split()) <= negations()


def test_a_negation_of_one_language_is_no_content_word_of_another() -> None:
    assert not {"sin", "mai", "sem"} & negations() and "sin" in function_words(["el", "sin", "la"]).negation


def test_fewer_lines_are_the_first_of_all_with_the_same_names() -> None:
    model = pellucid.load("static-en")
    second = "A woman plays the old guitar in a park. " * 5 + "Two dogs run after a ball, and a man sings with her."
    for other in (second, second[:120], "A man plays."):
        why = model.explain("a man is playing an old guitar while two dogs run", other)
        lines = [line for line in why.groups(None) if line.is_of_text]
        for k in (1, 2, 5):
            shown = [line for line in why.groups(k) if line.is_of_text]
            assert shown and shown == lines[: len(shown)]
        assert all(line.name for line in lines) and any(" → " in line.name for line in lines)
