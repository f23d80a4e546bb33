"""Sentences of any script, and explanations of passages by sentences."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.text.sentences import sentence_spans


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
