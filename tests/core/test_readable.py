"""Groups, summaries, what a score means: lines that their words earn, and sentences that say no more."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pellucid
from pellucid.core.background import MAX_WORDS, N_TEXTS, _texts
from pellucid.explain.checks import Checks
from pellucid.explain.explanation import Explanation
from pellucid.explain.groups import Group
from pellucid.explain.phrases import MAX_JOINED_WORDS, MIN_WORD_SHARE, match_words, phrase_starts, words_of_text
from pellucid.explain.rows import CONTEXT, REMAINDER, SHARED, WORD, WORD_PAIR, Row
from pellucid.explain.summary import Summary, differences
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.function_words import function_words, negations
from pellucid.text.words import Vocabulary, split_words
from test_explanation import explanations


def spans_of(text: str) -> list[tuple[int, int]]:
    return [(word.start, word.end) for word in split_words(text)]


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
    lines = [group for group in replace(why, is_checked=False).groups(k) if not group.is_sum]  # by contribution
    assert [abs(line.contribution) for line in lines] == sorted((abs(g.contribution) for g in lines), reverse=True) or (
        np.allclose(np.diff([abs(line.contribution) for line in lines]).clip(min=0), 0, atol=1e-9)
    )
    assert all(group.contribution for group in groups) and len({group.name for group in groups if group.is_sum}) < 6
    if k is not None:
        assert len(lines) <= k and len(groups) <= max(k + 2, 6)
    assert not any(line.kind == "phrase" and not (line.spans1 or line.spans2 or line.spans3) for line in lines)
    for group in groups:
        for text, spans in zip((*why.texts, "", ""), (group.spans1, group.spans2, group.spans3)):
            assert all(0 <= start < end <= len(text) for start, end in spans)
            if group.kind == "phrase":
                phrases = [" ".join(text[slice(*span)].split())[:50].lower() for span in spans]
                assert all(phrase in group.name.lower() for phrase in phrases)


@given(mixed() | explanations())
def test_a_summary_says_nothing_that_is_not_in_the_groups(why: Explanation) -> None:
    summary = why.summary()
    assert summary.endswith(".") and "\n\n" not in summary and len(re.findall(r"\. [A-Z]", summary)) <= 5
    said = set(re.findall(r"\(([+-]\d\.\d+)\)", summary))
    assert said <= {f"{group.contribution:+.{n}f}" for group in why.groups() for n in (2, 3)} or "cancel" in summary
    assert not any(int(share) > 100 for share in re.findall(r"(\d+)%", summary))


TEXT_WORDS = [
    "gluten",
    "free",
    "bread",
    "contains",
    "cheap",
    "red",
    "shoes",
    "loan",
    "bank",
    "approved",
    "never",
    "car",
]


@given(*[st.lists(st.sampled_from(TEXT_WORDS), min_size=1, max_size=7, unique=True).map(" ".join)] * 2)
def test_each_word_of_a_line_earns_its_place(text1: str, text2: str) -> None:
    """What a line adds is what its own words add, each of them a share of it; no pair is in two lines."""
    why = pellucid.load("static-en").explain(text1, text2)
    values = {(row.spans1[0], row.spans2[0]): row.contribution for row in why.rows}
    counted: list[tuple[object, object]] = []
    raising = [line for line in why.groups(None) if line.kind == "phrase" and line.contribution > 0]
    for line in raising:
        words = [
            [span for span in spans_of(text) if any(start <= span[0] < end for start, end in spans)]
            for text, spans in ((text1, line.spans1), (text2, line.spans2))
        ]
        pairs = [(first, second) for first in words[0] for second in words[1]]
        assert line.contribution == pytest.approx(sum(values[pair] for pair in pairs), abs=1e-6)
        for text, of_text in enumerate(words):
            brought = [sum(values[pair] for pair in pairs if pair[text] == word) for word in of_text]
            assert min(brought) >= (MIN_WORD_SHARE - 1e-6) * line.contribution
        counted += pairs
    assert len(counted) == len(set(counted))


@pytest.mark.parametrize(
    ("text1", "text2", "said", "unsaid"),
    [
        ("gluten free", "contains gluten", ['both say "gluten" (+', 'only text 1 says "free"'], "free gluten"),
        (
            "not recommended",
            "highly recommended",
            ['both say "recommended"', '"highly" where text 1 says "not"'],
            '"highly r',
        ),
        ("python list comprehension", "ball python care", ['both say "python" (', 'for "list"'], 'comprehension" is'),
        (
            "docker image scanner",
            "image scanner based",
            ['both say "image scanner"', 'only text 1 says "docker"'],
            "docker image",
        ),
        ("worth 100 euros", "worth 900 euros", ['"worth" (', "Numbers that only one text has: 100 / 900"], "100 euros"),
        ("love this song", "install the package with pip", ["hardly anything in common"], 'for "love"'),
        ("he plays", "she was playing", ['"plays" is a form of "playing"'], "match"),
        (
            "The shop is open on Sundays",
            "The shop is closed on Sundays",
            ["either would do, without both"],
            "no words alone",
        ),
        ("loan loan credit", "credit loan mortgage", ['Also near: "credit" in both and "loan" to "m'], '"credit" to'),
        ("a haplogroup", "haplogroups of one haplogroup", ['both say "haplogroup"'], 'to "haplogroups"'),
        ("the facilities", "a facility", ['"facilities" is a form of "facility"'], "close to"),
        ("cheap flights to rome", "low-cost airfare", ['is close to "low-cost airfare"'], '"cost'),
        ("a flask of 0.75 litre", "steel bottle, 750 ml", ["Numbers that only one text has: 0.75 / 750"], '"75 '),
        ("aspirin for the heart", "acetylsalicylic acid", ['Hardly known: "acetylsalicylic"'], '2 for "aspirin"'),
        ("a total of 1,249.00 euros", "1249 euros in total", ['both say "euros"'], "umbers"),
        ("at 7:45 pm, from 2010 to 2015", "at 19:45, 2010-2015", ["close to"], "umbers that"),
        ("low-cost flights, 2:1", "low flights that cost, 1:2", ["only one text has: 2:1 / 1:2"], 'say "low'),
        ("acomodation in edinburg", "hotels in Edinburgh", ['"acomodation" (read as "ac")'], "othing in text 1"),
        ("vitamin A deficiency", "vitamin E deficiency", ['text 2 says "E" where text 1 says "A"'], "differ"),
        ("wether in may", "the weather", ['Spelled almost alike: "wether" to "weather"'], "Nothing in text 2 for"),
        ("on 3 May 2024", "on 3 June 2024", ['"June" where text 1 says "May"', "names differ: May / June"], "only"),
    ],
)
def test_a_sentence_says_what_the_words_earn(text1: str, text2: str, said: list[str], unsaid: str) -> None:
    summary = pellucid.load("static-en").explain(text1, text2).summary()
    assert all(part in summary for part in said) and unsaid not in summary
    assert "because" not in summary.replace("Below 1 mainly because", "") and "matches" not in summary


def test_several_words_may_match_one() -> None:
    words = ["home", "loans", "mortgage", "the", "bank", "lender", "dog"]
    rows = np.array(
        [[1, 0.2, 0], [1, 0, 0], [1, 0.1, 0], [0.1, 0.1, 0.1], [0, 1, 0], [0, 1, 0.1], [0, 0, 1]], np.float32
    )
    why = StaticEmbedder(Vocabulary(words), rows).explain("the bank, home loans", "a mortgage. the lender")
    first, second, others = why.groups()
    assert (first.name, first.kind, first.spans1, first.spans2, second.name, others.name) == (
        "home loans \u2192 mortgage", "phrase", ((10, 20),), ((2, 10),), "bank \u2192 lender", "all other word pairs",
    )  # fmt: skip
    assert sum(group.contribution for group in why.groups()) == pytest.approx(why.score)
    assert (
        replace(why, is_checked=False)
        .summary()
        .startswith(
            f'Similarity {why.score:.2f}: "home loans" is close to "mortgage" (+{first.contribution:.2f}), '
            f'"bank" is close to "lender" (+{second.contribution:.2f}).'
        )
    )
    assert why.summary().endswith('Unknown words: "a".')
    assert (
        StaticEmbedder(Vocabulary(words), rows).explain("a bank", "a lender").summary().endswith('"a" (in both texts).')
    )
    gap = why - StaticEmbedder(Vocabulary(words), rows).explain("the bank, home loans", "the dog of the lender")
    assert gap.summary().startswith("Text 2 is closer to text 1 than text 3 is, by ")


@pytest.mark.parametrize(
    "repeated", ["Mortgage, mortgage, lender", "mortgage. lender. MORTGAGE", "lender, mortgage, mortgage"]
)
def test_a_word_that_a_text_repeats_is_named_once(repeated: str) -> None:
    words = ["home", "loans", "mortgage", "lender"]
    rows = np.array([[1, 0.2], [1, 0], [1, 0.1], [0.9, 0.3]], np.float32)
    why = StaticEmbedder(Vocabulary(words), rows).explain("home loans", repeated)
    group = why.groups()[0]
    phrases = group.name.partition(" \u2192 ")[2].lower().split(", ")
    assert len(group.spans2) > 1 and len(phrases) == len(set(phrases))
    assert why.summary().lower().count('"mortgage"') == 1


def test_rows_that_are_no_words_are_lines_of_their_own() -> None:
    why = of_rows(*((f"d{n}", "dimension", 0.1 * (n - 3)) for n in range(9)), family="anchors")
    assert [(group.name, group.kind) for group in why.groups(3)] == [
        ("d8", "dimension"), ("d7", "dimension"), ("d0", "dimension"), ("5 other dimensions", "other dimensions"),
    ]  # fmt: skip
    assert len(why.groups(None)) == 8  # one adds nothing
    assert why.groups(7)[-1].name == "1 other dimension"


def test_an_index_joins_the_words_of_its_parts_and_seven_lines_are_enough() -> None:
    query, text = "aspirin, heart attack, dose, risk, daily, stroke", "aspirin and the heart"
    spans = {text[slice(*span)]: span for span in spans_of(text)}
    asked = {query[slice(*span)]: span for span in spans_of(query)}
    rows = [
        Row("bm25: aspirin", ("aspirin",), 0.2, 0.0, (asked["aspirin"],), (spans["aspirin"],), kind=WORD),
        *(Row(f"dense: {word} \u00d7 heart", (word, "heart"), 0.1 - 0.01 * n, 0.0, (asked[word],), (spans["heart"],),
              kind=WORD_PAIR) for n, word in enumerate(asked)),
        *(Row(f"dense: {kind}", (kind,), 0.05, 0.0, kind=kind) for kind in (SHARED, CONTEXT, REMAINDER)),
    ]  # fmt: skip
    why = Explanation.from_terms("index", (query, text), sum(row.contribution for row in rows), rows)
    groups = why.groups()
    assert groups[0].name == "aspirin \u2192 aspirin" and groups[0].contribution == pytest.approx(0.2)
    assert [group.kind for group in groups] == ["phrase", "other words", "context", "common", "remainder"]
    assert why.summary().startswith("Score 0.")


def paired(text1: str, text2: str, values: dict[tuple[str, str], float], **fields: str) -> Explanation:
    """An explanation of word pairs, given by their words."""
    rows = []
    for (first, second), value in values.items():
        spans = (
            ((text.index(word), text.index(word) + len(word)),) for text, word in ((text1, first), (text2, second))
        )
        rows.append(Row(f"{first} \u00d7 {second}", (first, second), value, 0.0, *spans, kind=WORD_PAIR))
    return Explanation.from_terms(fields.get("family", "static"), (text1, text2), sum(values.values()), rows)


def of_rows(*rows: tuple[str, str, float], family: str = "dense") -> Explanation:
    """An explanation of rows without places, given by their names, kinds and values."""
    made = [Row(name, (name,), value, 0.0, kind=kind) for name, kind, value in rows]
    return Explanation.from_terms(family, ("x", "y"), sum(value for *_, value in rows), made)


NEARER = paired("loan, dog", "credit, cat", {("loan", "credit"): 0.5, ("dog", "cat"): 0.1})
GAP = NEARER - paired("loan, dog", "rate, puppy", {("loan", "rate"): 0.1, ("dog", "puppy"): 0.3})
SUMMARIES = [  # an explanation, and its whole summary, or the beginning of one that goes on
    (paired("dog,cat", "b", {("dog", "b"): -0.3, ("cat", "b"): 0.1}),
     'Similarity -0.20: "dog" is unlike "b" (-0.30); against it, "cat" is close to "b" (+0.10).'),
    (paired("dog,cat", "b", {("dog", "b"): 0.3, ("cat", "b"): -0.299}),
     'Similarity 0.00: "dog" is close to "b" (+0.30); against it, "cat" is unlike "b" (-0.30); the two nearly cancel.'),
    (paired("dog", "b c", {("dog", "b"): 0.3, ("dog", "c"): -0.297}),
     'Similarity 0.00: "dog" is close to "b" (+0.30); against it, "dog" is unlike "c" (-0.30)...'),
    (of_rows((CONTEXT, CONTEXT, 0.6)), "Similarity 0.60, mostly not explained by words (+0.60; "
     'model.with_reasons("measured") measures it). Estimated, not checked.'),
    (of_rows((CONTEXT, CONTEXT, 0.6), (SHARED, SHARED, 3.4)),  # what any two texts have hides no context
     "Similarity 4.00, mostly not explained by words (+0.60; ..."),
    (of_rows(("d" * 80, "dimension", 0.2), ("e" * 81, "dimension", 0.1), family="anchors"),
     f'Similarity 0.30: "{"d" * 80}" (+0.20), "{"e" * 79}\u2026" (+0.10).'),
    (of_rows(*((f"d{n}", "dimension", 0.1 * (n - 3)) for n in range(9)), family="anchors"), 'Similarity 0.90: "d8" '
     '(+0.50), "d7" (+0.40), "d6" (+0.30); against it, "d0" (-0.30). 3 other dimensions +0.20.'),
    (paired("loan, bank, city", "credit, rate, bank, city", {("loan", "credit"): 0.3, ("loan", "rate"): 0.25,
                                                             ("bank", "bank"): 0.2, ("city", "city"): 0.2}),
     'Similarity 0.95: both say "bank" (+0.20) and "city" (+0.20), "loan" is close to "credit" and "rate" (+0.55).'),
    (GAP, 'Text 2 is closer to text 1 than text 3 is, by 0.20: "loan" is closer to "credit" than to "rate" (+0.40); '
     'against it, "dog" is closer to "puppy" than to "cat" (-0.20).'),
    (paired("loan", "rate", {("loan", "rate"): 0.1}) - paired("loan", "credit", {("loan", "credit"): 0.5}),
     "Text 3 is closer to text 1 than text 2 is, by 0.40..."),
    (NEARER - NEARER, "Text 2 and text 3 are equally close to text 1."),
    (NEARER - paired("loan, dog", "puppy", {("dog", "puppy"): 0.1}),
     'Text 2 is closer to text 1 than text 3 is, by 0.50: "loan" is close to "credit" in text 2 (+0.50).'),
    (paired("loan, dog", "puppy", {("dog", "puppy"): 0.1}) - NEARER,
     'Text 3 is closer to text 1 than text 2 is, by 0.50: "loan" is close to "credit" in text 3 (-0.50).'),
    (paired("loan, dog", "loan, cat", {("loan", "loan"): 0.5, ("dog", "cat"): 0.1})
     - paired("loan, dog", "puppy", {("dog", "puppy"): 0.1}),
     'Text 2 is closer to text 1 than text 3 is, by 0.50: text 2 says "loan", too (+0.50).'),
    (paired("loan", "credit", {("loan", "credit"): 0.304}) - paired("loan", "rate", {("loan", "rate"): 0.3}),
     "Text 2 is closer to text 1 than text 3 is, by 0.004."),
    (paired("loan", "credit", {("loan", "credit"): 0.3004}) - paired("loan", "rate", {("loan", "rate"): 0.3}),
     "Text 2 is closer to text 1 than text 3 is, by less than 0.001."),
    (paired("loan", "credit", {("loan", "credit"): -0.002}), "Similarity 0.00: hardly anything in common."),
    (replace(paired("loan ab cd ef gh", "credit", {("loan", "credit"): 0.5}),
             unknown1=((5, 7), (8, 10), (11, 13), (14, 16))),
     'Similarity 0.50: "loan" is close to "credit" (+0.50). Unknown words: "ab", "cd", "ef" and 1 more.'),
    (of_rows(), "Nothing to add up: the model finds nothing that the texts have in common."),
    (Explanation.from_terms("static", ("ab; cd; ef; gh; ij; kl; mn; op", None), 0.8, [
        Row(word, (word,), 0.1, 0.0, ((4 * n, 4 * n + 2),), kind=WORD)
        for n, word in enumerate("ab cd ef gh ij kl mn op".split())]),
     'Partly about "ab" (12%), "cd" (12%) and "ef" (12%). All other words 38%.'),
]  # fmt: skip


@pytest.mark.parametrize(("why", "said"), SUMMARIES, ids=range(len(SUMMARIES)))
def test_the_summary_of_rows_given_by_hand(why: Explanation, said: str) -> None:
    assert why.summary() == said or (said.endswith("...") and why.summary().startswith(said[:-3]))


LOAN = Group("", 0.3, 0.6, "phrase", ((0, 4),), ((0, 6),))
DOG = Group("", 0.2, 0.4, "phrase", ((6, 9),), ((8, 11),))
CITY = Group("", 0.2, 0.4, "phrase", ((11, 15),), ((13, 17),))


@pytest.mark.parametrize(
    ("groups", "checks", "said"),
    [
        ([LOAN], {"percentile": 94.9}, "Similarity 0.50 (weak: 5% of unrelated pairs score as high): "),
        ([LOAN], {"percentile": 95.0}, "Similarity 0.50 (higher than 95% of unrelated pairs): "),
        ([LOAN], {"percentile": 99.89}, "Similarity 0.50 (higher than 99% of unrelated pairs): "),
        ([LOAN], {"percentile": 99.9}, "Similarity 0.50 (higher than 99.9% of unrelated pairs): "),
        ([LOAN._replace(without=0.2)], {}, '"loan" is close to "credit" (+0.30; without it 0.20).'),
        ([LOAN._replace(without=0.6)], {}, '"loan" is close to "credit" (+0.30, yet without it 0.60); no words alone'),
        ([LOAN._replace(without=0.2, spans1=((0, 4), (6, 9)))], {}, "(+0.30; without them 0.20)."),
        ([LOAN._replace(without=0.49), DOG._replace(without=0.48)], {"without_two": 0.1},
         "; either would do, without both 0.10."),
        ([LOAN._replace(without=0.49), DOG._replace(without=0.48), CITY._replace(without=0.47)], {"without_two": 0.1},
         "; either of the first two would do, without both 0.10."),
    ],
)  # fmt: skip
def test_a_summary_says_what_checks_found(groups: list[Group], checks: dict[str, float], said: str) -> None:
    texts, labels = ("loan, dog, city", "credit, cat, town"), ("text 1", "text 2")
    found = Checks(**{"without": {}, "without_two": None, "change": None, **checks})
    assert said in Summary(texts, labels, 0.5, groups, (), {}, [[], []], True, checks=found).text()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("built in 1999", "built in 2001"), ["numbers that only one text has: 1999 / 2001"]),
        (("1,000 euros", "1,000 dollars"), []),
        (("he did not pay", "he paid"), ['only text 1 says "not"']),
        (("er hat gezahlt an die Bank", "er hat nicht an die Bank gezahlt"), ['only text 2 says "nicht"']),
        (("not now", "never"), []),
        (("7 " * 300, "8"), []),
        (("ten cats", "10 dogs and two cats"), []),
        (("a fee of two euros", "a fee of three euros"), ["numbers that only one text has: two / three"]),
        (("no. 7 won the race", "number 7 came first"), []),
        (("he lives in Paris now", "he lives in London now"), ["the names differ: Paris / London"]),
        (("a cave in Mexico was found", "a Mexican cave was found"), []),
        (("Paris is far", "London is far"), []),  # the first word of a sentence may be no name
        (("Der Hund ist nicht im Haus", "Der Hund ist nicht im Garten"), []),
    ],
)
def test_numbers_and_negations_that_differ_are_named(texts: tuple[str, str], said: list[str]) -> None:
    assert [sentence for sentence, _ in differences(texts, ["text 1", "text 2"])] == said


def test_a_line_of_a_difference_names_the_text_first_that_it_speaks_for() -> None:
    assert [group.name for group in GAP.groups()] == [
        "loan \u2192 credit, rather than rate", "dog \u2192 puppy, rather than cat",
    ]  # fmt: skip


def test_of_an_index_the_texts_are_query_and_documents() -> None:
    why = paired("loan", "credit", {("loan", "credit"): 0.5}, family="index")
    view = (why - paired("loan", "rate", {("loan", "rate"): 0.1}, family="index")).to_text()
    assert view.startswith("Score of this document less score of the other document  0.4000   index\n")
    assert "This document is closer to the query than the other document is, by 0.40" in view
    assert "text 1" not in view + why.to_text(rows=True) and re.search(
        r"\nquery +loan\n\ndocument +credit\n", why.to_text()
    )


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("How do I cancel my subscription?", ["How do I cancel", "my subscription"]),
        ("black and white dogs, or not", ["black and white dogs", "or not"]),
        ("I don't like their O'Neill", ["I don't like", "their O'Neill"]),
        ("not effective,the U.S. rate of 3.5 or 1,000", ["not effective", "the U.S", "rate", "of 3.5", "or 1,000"]),
        ("今日、東京。", ["今日", "東京"]),
        ("one\ntwo", ["one", "two"]),
        ("", []),
    ],
)
def test_phrases_end_where_a_person_would_pause(text: str, phrases: list[str]) -> None:
    spans = spans_of(text)
    starts = phrase_starts(words_of_text(text, spans))
    assert [text[spans[a][0] : spans[b - 1][1]] for a, b in zip(starts, [*starts[1:], len(spans)])] == phrases


@given(
    st.lists(
        st.sampled_from([*WORDS, "1,000", "low-cost", "U.S.", "state-of-the-art", "a/b", ",", ".", "\n"]), max_size=30
    )
)
@example(["home", ",", "the", ",", "the"])
def test_every_word_is_in_one_phrase_and_none_is_cut(pieces: list[str]) -> None:
    text = " ".join(pieces)
    words = words_of_text(text, spans_of(text))
    starts = phrase_starts(words)
    assert starts == sorted(set(starts)) and starts[:1] == [0][: len(words.spans)]
    assert not any(start and words.is_tied[start - 1] for start in starts)
    for start, end in zip(starts, [*starts[1:], len(words.spans)]):
        assert not any(words.breaks[word] for word in range(start, end - 1))
        n_content = len({*range(start, end)} & {*words.content}) - sum(words.is_tied[start : end - 1])
        assert n_content <= MAX_JOINED_WORDS or len(words.content) == len(words.spans)


@given(*[st.lists(st.sampled_from([*WORDS, ","]), max_size=12).map(" ".join)] * 2, st.integers(0, 99))
def test_a_word_is_in_one_match_at_most(text1: str, text2: str, seed: int) -> None:
    first, second = (words_of_text(text, spans_of(text)) for text in (text1, text2))
    values = np.random.default_rng(seed).normal(size=(len(first.words), len(second.words)))
    for values_of_sign in (values, -values, np.zeros_like(values)):
        matches = match_words(values_of_sign, first, second, 0.0)
        for words, side in ((first, 0), (second, 1)):
            matched = [word for match in matches for word in match[side]]
            assert len(matched) == len(set(matched)) and set(matched) <= set(words.matched)
        for match in matches:
            assert max(map(len, match)) <= MAX_JOINED_WORDS and values_of_sign[np.ix_(*match)].sum() > 0


def test_the_language_is_the_one_whose_function_words_stand_there() -> None:
    for text, word in (
        ("wo ist der bahnhof", "der"), ("where is the train", "the"), ("le train est en retard", "le"),
        ("il treno per roma", "per"), ("de trein naar amsterdam", "naar"), ("поезд в и из берлина", "в"),
        ("本 は 面白い です", "は"),
    ):  # fmt: skip
        found = function_words(text.split())
        assert word in found.words and ("the" in found.words) == (word == "the")
    assert "the" in function_words("dog bit man".split()).words


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
            assert shown and {*shown} <= {*lines}
        assert all(line.name for line in lines) and any(" → " in line.name for line in lines)


# What a score means: how it is among those of unrelated texts.

LONG = "The committee met on Monday to discuss the budget of the coming year, and no decision was made. " * 3


def test_texts_of_a_class_are_different_and_have_its_lengths():
    limits = [0, *MAX_WORDS, 1_000]
    for number in range(len(MAX_WORDS) + 1):
        lengths = [len(split_words(text)) for text in set(_texts(number))]
        assert len(lengths) == N_TEXTS and limits[number] < min(lengths) and max(lengths) <= limits[number + 1]


def test_a_score_is_placed_among_those_of_unrelated_texts_as_long(static):
    short, long = static.background("a loan", "a house"), static.background(LONG, LONG)
    assert len(short) == N_TEXTS * (N_TEXTS - 1) and (np.diff(short) >= 0).all()
    assert np.median(long) > np.quantile(short, 0.75)  # the means of many words are closer to each other
    related = static.explain("a loan for a house", "mortgage rates are rising")
    assert related.percentile == pytest.approx(
        100 * np.mean(static.background(*related.texts) < related.score), abs=0.1
    )
    assert related.percentile > 99 and "(higher than 99% of unrelated pairs): " in related.summary()
    weak = static.explain("the cat sat on the mat", "a quarterly report of earnings")
    assert weak.percentile < 95 and f"(weak: {100 - weak.percentile:.0f}% of unrelated pairs" in weak.summary()
    copied = pickle.loads(pickle.dumps(weak))
    assert copied.pair is None and copied.summary() == weak.summary() and copied.to_dict() == weak.to_dict()


@pytest.mark.parametrize("text", ["Der Hund schläft nicht auf dem Sofa.", "犬は眠っている"])
def test_nothing_is_said_of_texts_that_are_not_english(static, text):
    why = static.explain(text, "The dog sleeps on the sofa.")
    assert why.percentile is None and "unrelated" not in why.summary() and not len(static.background(*why.texts))


def test_nothing_is_said_of_one_text_of_a_difference_and_of_equal_texts(static):
    why = static.explain("a dog", "a cat")
    assert static.explain("a dog").percentile is None and (why - why).percentile is None
    assert "unrelated" not in static.explain("a dog", "a dog").summary()
