"""The measures of benchmarks/faithfulness.py and the ways of its ways, on an encoder of two layers."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid
from pellucid.dense import EncoderEmbedder
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
def test_txtai_leaves_out_what_stands_between_blanks(ways, subject):
    pytest.importorskip("txtai")
    pair = pair_of(ways)
    whole, *without = subject.scores(pair.first, [pair.second, "The the sick boy.", "The doctor, the sick"])
    values = ways.txtai(subject, pair).values
    assert [values[1], values[3]] == pytest.approx([whole - score for score in without], abs=1e-5)


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
    setting, beyond = ways.Jacobians(-1, 200), []
    with torch.no_grad():
        for text in pair[:2]:
            read = ways.tokens_of(subject, text)
            whole, empty = (
                setting._embedding(subject, subject.model[0](dict(features)))[0]
                for features in (read.features, read.empty)
            )
            beyond.append((whole - empty) / whole.norm())
    score = float(subject.scores(pair.first, [pair.second])[0])
    assert score - setting(subject, pair).remainder == pytest.approx(float(beyond[0] @ beyond[1]), abs=2e-2)


@pytest.mark.parametrize("layer, ids, all_modules", [(0, None, True), (-1, None, True), (-1, (0, 1, 2), False)])
def test_forward_derivatives_give_the_matrix_of_backward_passes(ways, subject, layer, ids, all_modules):
    import torch
    from torch.autograd.functional import jacobian

    setting = ways.Jacobians(layer, 2, ids, all_modules)
    layers = subject.model[0].auto_model.encoder.layer[layer:]

    def contributions(text):
        read = ways.tokens_of(subject, text)
        with torch.no_grad():
            (states, *others), named = ways._input_of(layers[0], subject, read.features)
            (base, *_), _ = ways._input_of(layers[0], subject, setting._reference(read))

        def embedding(made):
            for one in layers:
                made = one(made, *others, **named)
                made = made[0] if isinstance(made, tuple) else made
            features = {"token_embeddings": made, "attention_mask": read.features["attention_mask"]}
            return setting._embedding(subject, features)[0]

        points = [base + share * (states - base) for share in (1.0, 0.5)]
        mean = sum(jacobian(embedding, point)[:, 0] for point in points) / 2  # [d, tokens, hidden]
        rows = torch.einsum("dth,th->td", mean, (states - base)[0])
        return rows / embedding(states).norm()

    pair = pair_of(ways)
    first, second = (contributions(text) for text in pair[:2])
    table, *_ = setting.table(subject, *pair[:2])
    assert np.abs(table - (first @ second.T).detach().numpy()).max() < 1e-5


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


@pytest.mark.full
def test_the_page(bench, ways, teacher, tmp_path, monkeypatch):
    write_data(tmp_path / "data")
    monkeypatch.setattr(bench, "sentence_transformer", lambda name, folder, device: teacher)
    monkeypatch.setattr(bench, "TIMED", 2)
    plan = bench.Plan(
        {bench.STS: 4, bench.SICK: 3, bench.PARAPHRASES: 2}, (ways.RANDOM, ways.YARDSTICK, "integrated gradients")
    )
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
        only=[bench.MINILM], data=tmp_path / "data", work_dir=tmp_path / "work", pairs=None, minilm=None, device="cpu"
    )
    ((name, page),) = bench.measured_by_encoder(arguments)
    assert name == bench.MINILM and "| leave one word out | 100 % (100 to 100) | 1.00 | " in page
    assert page.count("| **words** | ") == 2 * page.count(f"| {ways.NOT_WEIGHTED} | ") == 2  # in the first set alone
    assert "words reach 97 % of leave-one-out's fall | all-MiniLM-L6-v2, STS-B" in page
    ((_, tried),) = bench.tried(arguments)
    assert "| all weights 1 | " in tried and "| fitted on 200 sentences | " in tried
    ((_, times),) = bench.timed_ways(arguments)
    assert "| words | " in times and "| leave one word out | " in times
    monkeypatch.setattr(ways.Subject, "read_ahead", None)  # a second run has kept what peers found
    ((_, again),) = bench.measured_by_encoder(arguments)
    assert again.count("\n") == page.count("\n")
    table = (tmp_path / "work" / f"pairs-{bench.MINILM}.tsv").read_text(encoding="utf-8").splitlines()
    assert len({line.count("\t") for line in table}) == 1 and len(table) > 40


def test_paraphrases_share_the_sentence_that_is_explained(bench, tmp_path):
    write_data(tmp_path)
    for one, other in bench.paraphrases(tmp_path, 3):
        assert one.second == other.second and one.first != other.first
