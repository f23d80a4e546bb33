"""The measures of benchmarks/faithfulness.py and the ways of its ways, on an encoder of two layers."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid
from pellucid.encoder import EncoderEmbedder
from tiny_models import tiny_teacher

SENTENCES = [
    "the quick man is riding a horse on the beach",
    "a swift doctor gave the sick boy a rapid medicine",
    "a man and the boy are on the beach with a vehicle",
    "the doctor is riding the car on a beach",
]
PIECES = sorted({word for sentence in SENTENCES for word in sentence.split()})


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    return tiny_teacher(tmp_path_factory.mktemp("teacher"), [*PIECES, "."], 16, length=32)


@pytest.fixture
def bench(opened):
    return opened("benchmarks.faithfulness")


@pytest.fixture
def ways(opened):
    return opened("benchmarks.faithfulness_ways")


@pytest.fixture
def subject(ways, teacher):
    return ways.Subject(lambda texts: teacher.encode(texts, show_progress_bar=False), teacher)


def pair_of(ways):
    return ways.Pair.of(SENTENCES[0], "The doctor, the sick boy.")


def test_a_word_is_taken_out_wherever_it_stands(ways):
    pair = pair_of(ways)
    assert [pair.second[places[0][0] : places[0][1]] for places in pair.words] == ["The", "doctor", "sick", "boy"]
    assert pair.without([0, 3]) == "  doctor,   sick  ."
    assert pair.by_word({(0, 3): 1.0, (11, 14): 2.0, (15, 23): 4.0, (10, 11): 9.0}) == [3.0, 0.0, 2.0, 2.0]


def test_leaving_one_out_is_the_fall_of_the_score(ways, subject, teacher):
    pair = pair_of(ways)
    rows = teacher.encode([pair.first, pair.second, "The  , the sick boy."], normalize_embeddings=True)
    assert ways.leave_one_out(subject, pair).values[1] == pytest.approx(float(rows[0] @ (rows[1] - rows[2])), abs=1e-5)


@pytest.mark.full
def test_txtai_is_its_own_rule(ways, subject):
    txtai = pytest.importorskip("txtai")
    pair = pair_of(ways)
    theirs = txtai.Embeddings(method="external", transform=lambda texts: subject([str(t) for t in texts]))
    tokens = dict(theirs.explain(pair.first, [pair.second])[0]["tokens"])
    values = ways.txtai(subject, pair).values
    assert values[1:] == pytest.approx([tokens[name] for name in ("doctor,", "sick", "boy.")], abs=1e-5)


@pytest.mark.full
def test_shapley_values_add_up_to_the_score_but_for_that_of_no_word(ways, subject):
    pytest.importorskip("shap")
    found = ways.shapley(subject, pair_of(ways))
    nothing = subject.scores(SENTENCES[0], [pair_of(ways).without(range(4))])[0]
    assert found.remainder == pytest.approx(nothing, abs=1e-5) and found.passes > 4


def test_gradients_add_up_to_the_score_but_for_that_of_padding(ways, subject):
    import torch

    pair = pair_of(ways)
    found = ways.integrated_gradients(subject, pair)
    with torch.no_grad():
        first = ways.pooled(subject, ways.tokens_of(subject, pair.first).features)[0]
        empty = ways.pooled(subject, ways.tokens_of(subject, pair.second).empty)[0]
    assert found.remainder == pytest.approx(float(first @ empty), abs=2e-3)


def test_jacobians_add_up_to_what_both_texts_are_beyond_padding(ways, subject):
    import torch

    pair = pair_of(ways)
    found = ways.integrated_jacobians(subject, pair)
    with torch.no_grad():
        beyond = []
        for text in pair[:2]:
            read = ways.tokens_of(subject, text)
            beyond.append((ways.pooled(subject, read.features) - ways.pooled(subject, read.empty))[0])
    score = float(subject.scores(pair.first, [pair.second])[0])
    assert score - found.remainder == pytest.approx(float(beyond[0] @ beyond[1]), abs=5e-3)


def test_texts_are_read_in_one_go(ways, subject):
    asked = []
    encode = subject._encode
    subject._encode = lambda texts: asked.append(len(texts)) or encode(texts)
    pairs = [pair_of(ways), ways.Pair.of(SENTENCES[1], SENTENCES[2])]
    subject.read_ahead(lambda: [ways.leave_one_out(subject, pair) for pair in pairs])
    assert len(asked) == 1
    assert np.isfinite([ways.leave_one_out(subject, pair).values[0] for pair in pairs]).all() and len(asked) == 1


def write_data(folder):
    lines = ["sentence1\tsentence2\tscore"]
    lines += [f"{a}\t{b}\t{4.8 if n % 2 else 3}" for n, a in enumerate(SENTENCES) for b in SENTENCES if a != b]
    for name in ("STSBenchmark", "SICK-R"):
        (folder / "sts" / name).mkdir(parents=True)
        (folder / "sts" / name / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("STS12", "STS13", "STS14"):  # whose pairs are tried where STS-B has neither text
        (folder / "sts" / name).mkdir()
        others = [line.replace("the ", "that ").replace("a ", "one ") for line in lines]
        (folder / "sts" / name / "test.tsv").write_text("\n".join(others) + "\n", encoding="utf-8")


def test_the_page(bench, ways, teacher, tmp_path, monkeypatch):
    write_data(tmp_path / "data")
    monkeypatch.setattr(bench, "sentence_transformer", lambda name, folder: teacher)
    monkeypatch.setattr(bench, "TIMED", 2)
    plan = bench.Plan({bench.STS: 4, bench.SICK: 3, bench.PARAPHRASES: 2}, (*bench.CHEAP, "integrated gradients"))
    monkeypatch.setattr(bench, "PLANS", {bench.MINILM: plan})
    texts = [" ".join(np.random.default_rng(n).choice(PIECES, 6)) for n in range(200)]

    def with_words(embedder, *_, **__):
        fitted = EncoderEmbedder(teacher)
        fitted.fit_reasons(texts, table=pellucid.load("static-en"), show_progress_bar=False)
        return fitted

    monkeypatch.setattr(bench, "with_words", with_words)
    monkeypatch.setattr(bench, "open_texts", lambda embedder: (2 * texts, "static-en"))
    monkeypatch.setattr(bench, "FEWER", (2,))
    monkeypatch.setattr(bench, "TRIALS", dict(list(bench.TRIALS.items())[:2]))
    arguments = bench.argparse.Namespace(
        only=[bench.MINILM], data=tmp_path / "data", work_dir=tmp_path / "work", pairs=None, minilm=None
    )
    page = [bench.page(*of) for of in bench.measured_so_far(arguments)][-1]
    assert "| leave one word out | " in page and " 100 (100 to 100)" in page
    assert "| all weights 1 | " in page and "| fitted on 200 sentences | " in page
    assert "words reach 97 % of leave-one-out's fall | all-MiniLM-L6-v2, STS-B" in page
    monkeypatch.setattr(ways.Subject, "read_ahead", None)  # a second run has kept what peers found
    again = list(bench.measured_so_far(arguments))[-1]
    assert bench.page(*again).count("\n") == page.count("\n")
    bench.write_pairs(again[0], tmp_path / "pairs.tsv")
    table = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert len({line.count("\t") for line in table}) == 1 and len(table) > 40


def test_paraphrases_share_the_sentence_that_is_explained(bench, tmp_path):
    write_data(tmp_path)
    for one, other in bench.paraphrases(tmp_path, 3):
        assert one.second == other.second and one.first != other.first
