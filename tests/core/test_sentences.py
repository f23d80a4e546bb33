"""Sentences of any script, and explanations of passages by sentences."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import CONTEXT, WORD_PAIR, Row
from pellucid.text.sentences import MIN_PASSAGE_CHARS, passage_sentences, sentence_spans
from pellucid.text.words import split_words


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


def test_what_is_short_or_one_sentence_is_no_passage() -> None:
    assert not passage_sentences("Short. And shorter.") and not passage_sentences("word " * 100)
    assert len(passage_sentences("One sentence of some words. " * 12)) == 12
    assert len(passage_sentences("これは文です。" * 12)) == 12  # wide characters say more


FILLER = "Nothing of what is said here has anything to do with it, and it goes on for a while."
PASSAGE = f"{FILLER} A mortgage is a loan for a house. {FILLER} The lender may raise rates. {FILLER}"


@st.composite
def of_a_passage(draw: st.DrawFn) -> Explanation:
    """An explanation of a query and a passage with any rows."""
    query = "home loans and what the bank takes"
    words1, words2 = ([(w.start, w.end) for w in split_words(text)] for text in (query, PASSAGE))
    rows = []
    for number in range(draw(st.integers(1, 12))):
        spans = [tuple(sorted(draw(st.sets(st.sampled_from(w), min_size=1, max_size=3)))) for w in (words1, words2)]
        value = draw(st.floats(-1, 1).map(lambda size: round(size, 6)))
        rows.append(Row(f"row {number}", ("a", "b"), value, 0.0, *spans, key=(str(number),), kind=WORD_PAIR))
    rows.append(Row("context", ("context",), 0.125, 0.0, key=("context",), kind=CONTEXT))
    return Explanation.from_terms("index", (query, PASSAGE), sum(row.contribution for row in rows), rows)


@given(of_a_passage(), st.none() | st.integers(1, 6))
def test_lines_are_sentences_and_add_up_to_the_score(why: Explanation, k: int | None) -> None:
    groups = why.groups(k)
    assert sum(group.contribution for group in groups) == pytest.approx(why.score, abs=1e-6)
    sentences = passage_sentences(PASSAGE)
    lines = [group for group in groups if not group.is_sum]
    assert {line.kind for line in lines} <= {"sentence"} and all(set(line.spans2) <= set(sentences) for line in lines)
    assert all(PASSAGE[slice(*line.spans2[0])][:50] in line.name for line in lines)
    of_words = why.word_contributions(2)
    for line in lines:
        [(start, end)] = line.spans2
        inside = [value for span, value in of_words.items() if start <= span[0] < end]
        assert line.contribution == pytest.approx(sum(inside), abs=1e-6)


def test_the_best_sentence_is_named() -> None:
    why = pellucid.load("static-en").explain("which loans does a bank give?", PASSAGE)
    first = why.groups()[0]
    assert first.kind == "sentence" and PASSAGE[slice(*first.spans2[0])] == "A mortgage is a loan for a house."
    assert "A mortgage is a loan for a house." in why.summary()
    assert "sentences" in str(why) and "A mortgage is a loan" in why.to_html()
    short = pellucid.load("static-en").explain("which loans does a bank give?", "A mortgage is a loan for a house.")
    assert {group.kind for group in short.groups() if not group.is_sum} == {"phrase"}


def test_sentences_of_a_long_text_take_time_in_proportion() -> None:
    text = "e.g. a word, " * 20_000
    assert len(text) > MIN_PASSAGE_CHARS and len(sentence_spans(text)) == 1
    assert len(sentence_spans("1. " * 50_000)) == 1 and len(sentence_spans("。" * 50_000)) == 1
    assert len(sentence_spans("No. " * 50_000 + "\n" * 20_000)) <= 2
