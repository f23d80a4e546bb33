"""The benchmark of yes/no questions: answers are those of the whole prompt, and it runs in small."""

from __future__ import annotations

import lzma
from types import SimpleNamespace

import numpy as np
import pytest

TEXTS = ["A man is riding a horse.", "the doctor gave medicine", "cars on the beach", "a sick boy", "a swift car"]


@pytest.fixture
def script(opened, monkeypatch):
    for name in ("torch", "peft", "simplemma", "mteb"):
        pytest.importorskip(name)
    found = opened("papers.ldir.yes_no_questions")
    few = dict(zip(("Is it about a horse?", "Is it about health?", "Is there a beach?", "Is there a boy?"), TEXTS))
    monkeypatch.setattr(found, "QUESTIONS", few)
    for name, value in {"CANDIDATES": 12, "SAVED": 3}.items():
        monkeypatch.setattr(found, name, value)
    return found


@pytest.fixture
def model(tmp_path):
    """A language model of letters with a chat template."""
    from tiny_models import byte_level, tiny_model

    tokenizer = byte_level()
    tokenizer.add_tokens(["yes", "no", "Yes", "No"])
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
    lengths = {"tie_word_embeddings": True, "max_position_embeddings": 2048}
    tiny_model("llama", len(tokenizer), **lengths).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.full
@pytest.mark.parametrize("wording", ["chat", "plain, four answers shown"])
def test_an_answer_is_that_of_the_whole_prompt(script, model, wording):
    import torch

    asked = script.Answerer(model, wording, list(script.QUESTIONS))
    tokenizer, network = asked.opened
    asked.opened = tokenizer, network.float()
    found, (before, between, behind) = asked.answers(TEXTS), asked.parts
    assert before.count("Answer: ") == (4 if "plain" in wording else 0) and found.shape == (5, 4)
    for text, answers in zip(TEXTS, found):
        for question, answer in zip(script.QUESTIONS, answers):
            ids = [n for part in (before, f" {text}{between}", f" {question}{behind}") for n in asked.ids(part)]
            with torch.inference_mode():
                logits = network(torch.tensor([ids])).logits[0, -1]
            sides = [
                torch.logsumexp(logits[[asked.ids(pair[side])[0] for pair in script.SPELLINGS[:2]]], 0)
                for side in (0, 1)
            ]
            assert answer == pytest.approx(float(sides[0] - sides[1]), abs=1e-4)


def test_the_share_of_other_texts_whose_answer_is_lower(script):
    values = np.array([[3, 0, 1], [2, 5, 1], [1, 6, 1]], np.float32)
    assert script.known_shares(values) == pytest.approx([1, 0.5, 0.5])


@pytest.mark.full
def test_it_runs_and_a_second_run_asks_nothing(script, model, tmp_path, monkeypatch):
    data = tmp_path / "data"
    for name, file in (("STSBenchmark", "test"), ("SICK-R", "all")):
        (data / "sts" / name).mkdir(parents=True)
        lines = [f"{one}\t{other}\t{len(one) % 5}" for one in TEXTS for other in TEXTS[:2]]
        (data / f"sts/{name}/{file}.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    (data / "raw_english").mkdir()
    sentences = "\n".join(f"sentence {n} of {n * n} words" for n in range(20))
    (data / "raw_english/open_licence.txt.xz").write_bytes(lzma.compress(sentences.encode()))

    def letters(texts):
        return np.array([[text.count(letter) for letter in "aeinorst"] for text in texts], np.float32) + 0.1

    others = [SimpleNamespace(name=name, encode=letters) for name in ("MiniLM", "static-en")]
    monkeypatch.setattr(script, "open_encoders", lambda *given: others)
    options = SimpleNamespace(model=model, data=data, work_dir=tmp_path / "work", pairs=6)
    options.only = ["questions", "floors"]
    figures = dict(script.measure(options))
    rows = [row[0] for name in ("wordings", "scores", "floor-scores") for row in figures[name].rows]
    assert {"plain, four answers shown", "questions (4), centred", "bag of words"} <= set(rows)
    assert {"MiniLM: random sentences (4)", "static-en: random directions (4)"} <= set(rows)
    monkeypatch.setattr(script.Answerer, "answers", None)
    again = dict(script.measure(options))
    assert all(again[name] == figures[name] for name in figures if name != "machine")
