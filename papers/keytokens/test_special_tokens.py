"""Rates with special tokens as the paper's code has them: which sentences are SNLI's, and how they are read."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


@pytest.fixture
def script(opened):
    pytest.importorskip("simplemma")
    return opened("papers.keytokens.special_tokens")


def test_sentences_are_the_same_however_marks_and_spaces_are_written(script, tmp_path):
    corpus, snli = tmp_path / "corpus.txt", tmp_path / "snli.txt"
    corpus.write_text("A man's dog, asleep.\nAnother one.\nTwo (2) Cafés!\n", encoding="utf-8")
    snli.write_text("Two ( 2 ) cafe\u0301s !\nA man 's dog , asleep .\n", encoding="utf-8")
    assert list(script.shared_sentences(corpus, [snli])) == ["A man's dog, asleep.", "Two (2) Cafés!"]


def test_the_papers_reading_puts_nothing_before_a_text_and_pools_all_states(script, tmp_path):
    from tiny_models import byte_level, tiny_model

    tokenizer = byte_level()
    tiny_model("gpt_neo", len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    model = script.Model("tiny", script.PLAIN, tmp_path / "model", tmp_path / "work")
    texts = ["the man", "a horse"]
    embeddings = {
        reading: {pooling: (embedder, rows) for pooling, embedder, rows in model.embeddings(reading, texts)}
        for reading in script.READINGS
    }
    n_tokens = {
        reading: [len(encoding.ids) for encoding in found["mean"][0].encodings(texts)]
        for reading, found in embeddings.items()
    }
    assert [own - 1 for own in n_tokens[script.OURS]] == n_tokens[script.PAPERS]
    for pooling in script.POOLINGS:
        ours, papers = (embeddings[reading][pooling][1] for reading in script.READINGS)
        assert abs(ours - papers).max() > 1e-3
        embedder, rows = embeddings[script.PAPERS][pooling]
        assert rows == pytest.approx(embedder.embed(texts), abs=2e-2)
