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
    pair = bench.Pair.from_texts(SENTENCES[0], "The doctor, the sick boy.")
    assert [pair.second[spans[0][0] : spans[0][1]] for spans in pair.words] == ["The", "doctor", "sick", "boy"]
    assert pair.without([0, 3]) == "  doctor,   sick  ."
    assert pair.by_word({(0, 3): 1.0, (11, 14): 2.0, (15, 23): 4.0, (10, 11): 9.0}).tolist() == [3.0, 0.0, 2.0, 2.0]


@pytest.mark.needs("sentence_transformers")
@pytest.mark.full
def test_methods_are_compared_by_the_fall_of_the_score(bench, tmp_path):
    model = pellucid.load(tiny_teacher(tmp_path / "teacher", [*PIECES, "."], 16, length=32))
    model.fit_reasons([" ".join(np.random.default_rng(n).permutation(PIECES)[:8]) for n in range(200)])
    pair = bench.Pair.from_texts(SENTENCES[0], SENTENCES[2])
    rows = model.encode([pair.first, pair.second, pair.without([1])], normalize_embeddings=True)
    assert bench.leave_one_out(model, pair)[1] == pytest.approx(float(rows[0] @ (rows[1] - rows[2])), abs=1e-5)
    methods = bench.methods_of(model, bench.rarity_of(SENTENCES))
    table = bench.table_of(model, [pair, bench.Pair.from_texts(SENTENCES[1], SENTENCES[3])], methods)
    assert table.count("\n") == 9 and "| floor: shared words by idf |" in table
