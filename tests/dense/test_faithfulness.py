"""The measures of benchmarks/faithfulness.py on an encoder of two layers."""

import numpy as np
import pytest

import pellucid
from tiny_models import tiny_teacher

SENTENCES = [
    "the quick man is riding a horse on the beach",
    "a swift doctor gave the sick boy a rapid medicine",
    "a man and the boy are on the beach with a vehicle",
    "the doctor is riding the car on a beach",
]
PIECES = sorted({word for sentence in SENTENCES for word in sentence.split()})


@pytest.fixture
def bench(opened):
    return opened("benchmarks.faithfulness")


def test_a_word_is_taken_out_wherever_it_stands(bench):
    text = "The doctor, the sick boy."
    assert list(bench.words_of(text)) == ["the", "doctor", "sick", "boy"]
    places = bench.word_places(text)
    assert bench.emptied(("A car", text), [places[0], places[3]]) == ("A car", "doctor, sick .")
    assert bench.by_word(text, {(0, 3): 1.0, (11, 14): 2.0, (15, 23): 4.0, (10, 11): 9.0}).tolist() == [3, 0, 2, 2]


@pytest.mark.needs("sentence_transformers")
@pytest.mark.full
def test_methods_are_compared_by_the_fall_of_the_score(bench, tmp_path):
    model = pellucid.load(tiny_teacher(tmp_path / "teacher", [*PIECES, "."], 16, length=32))
    model.fit_reasons([" ".join(np.random.default_rng(n).permutation(PIECES)[:8]) for n in range(200)])
    pair, places = (SENTENCES[0], SENTENCES[2]), bench.word_places(SENTENCES[2])
    left = bench.emptied(pair, [places[1]])
    rows = model.encode([*pair, left[1]], normalize_embeddings=True)
    falls = bench.falls_of(model, pair, [[place] for place in places])
    assert left[1].startswith("a and the boy") and falls[1] == pytest.approx(
        float(rows[0] @ (rows[1] - rows[2])), abs=1e-5
    )
    table = bench.word_table(model, [pair, pair, (SENTENCES[1], SENTENCES[3])] * 2, bench.methods_of(model, SENTENCES))
    assert "| floor: shared words by idf |" in table
    assert table.splitlines()[-1].startswith("| ceiling: each word left out | 1.00 (1.00 to 1.00) | 100 (100 to 100) |")


def test_reasons_are_judged_by_what_is_missed_without_them(bench):
    falls, two = np.array([0.3, 0.1, 0.2]), np.array([0.45, 0.5])
    right, wrong = bench.Tried(falls, falls, two[[1, 1]]), bench.Tried(-falls, falls, two)
    assert bench.cells([right], [0.002]) == ["1.00 (1.00 to 1.00)", "100 (100 to 100)", "100 (100 to 100)", "2"]
    assert bench.cells([wrong], [0.002])[:3] == ["-1.00 (-1.00 to -1.00)", "90 (90 to 90)", "0 (0 to 0)"]
    assert bench.cells([bench.Tried(np.ones(3), falls, two)], [0.002])[0].startswith("0.00 ")
