"""Sentences of a passage as rows of an encoder's score."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.dense import EncoderEmbedder, SentenceReasons
from pellucid.explain.rows import CONTEXT, SENTENCE, SHARED
from pellucid.text.sentences import sentence_spans


def encode(texts):
    """Encode words by their hashes, and the order of words a little."""
    rows = np.zeros((len(texts), 16), np.float32)
    for row, text in zip(rows, texts):
        for number, word in enumerate(text.lower().split()):
            row += np.random.default_rng(zlib.crc32(word.strip(".!?").encode())).normal(size=16) / (1 + 0.05 * number)
        row += 0.5
    return rows


COMMON = np.full(16, 0.05)


def by_sentences():
    model = EncoderEmbedder(encode)
    return model.with_reasons(SentenceReasons(model, COMMON))


QUERY = "loans for homes"
FILLER = "Gardens need water and light in every season of the year, whatever grows there now."
PASSAGE = f"{FILLER} Loans for homes are long. The cat sleeps on homes. {FILLER} Roses are red. {FILLER}"

SENTENCES = st.lists(st.sampled_from(["Red roses.", "Homes are dear!", "Why loans?", "A cat.", "Dr. Who."]), max_size=8)


@given(SENTENCES.map(" ".join), SENTENCES.map(" ".join))
@settings(deadline=None)
def test_sentences_and_context_add_up(text1, text2):
    why = by_sentences().explain(text1, text2)
    for lines in (why.rows, why.groups()):
        assert sum(line.contribution for line in lines) == pytest.approx(why.score, abs=1e-6)
    assert why.exact and {row.kind for row in why.rows} <= {SENTENCE, SHARED, CONTEXT}
    sentences, named = set(sentence_spans(text2)), {span for row in why.rows for span in row.spans2}
    assert named == sentences or (named < sentences and len({text2[slice(*span)] for span in sentences}) == 1)


def test_the_order_is_that_of_the_sentences_alone():
    model = by_sentences()
    why = model.explain(QUERY, PASSAGE)
    rows = [row for row in why.rows if row.kind == SENTENCE]
    assert rows[0].name == "Loans for homes are long." and len(rows) == 4  # the filler is one row, in three places
    assert len(next(row for row in rows if row.name.startswith("Gardens")).spans2) == 3
    single = [row for row in rows if len(row.spans2) == 1]
    alone = model.similarity(model.encode([QUERY]), model.encode([PASSAGE[slice(*row.spans2[0])] for row in single]))[0]
    assert int(np.argmax(alone)) == int(np.argmax([row.contribution for row in single]))
    line = why.groups()[0]
    assert (line.kind, PASSAGE[slice(*line.spans2[0])]) == ("sentence", "Loans for homes are long.")
    assert "Loans for homes are long." in why.summary()


def test_a_text_of_one_sentence_has_one_row_and_no_context():
    why = by_sentences().explain("a cat", "a dog sleeps")
    [row] = [row for row in why.rows if row.kind == SENTENCE]
    assert (row.spans1, row.spans2) == (((0, 5),), ((0, 12),))
    assert sum(row.contribution for row in why.rows if row.kind == CONTEXT) == pytest.approx(0, abs=1e-6)
