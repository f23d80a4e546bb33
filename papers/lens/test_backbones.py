"""Two backbones of a lexicon model: the same batches, a run on tiny models, and what seeds decide."""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


@pytest.fixture
def script(opened, tmp_path, monkeypatch):
    found = opened("papers.lens.backbones")
    monkeypatch.setattr(found, "RESULTS", tmp_path / "results")
    return found


@pytest.fixture
def data(tmp_path):
    """Sentences, pairs and questions of a tiny vocabulary."""
    from tiny_models import WORDS

    random = np.random.default_rng(0)
    texts = list(dict.fromkeys(" ".join(random.choice(WORDS, 5)) for _ in range(900)))
    write_lines(tmp_path / "data/raw_english/open_licence.txt.xz", texts)
    pairs = [f"{text}\tfremd {n // 2}" for n, text in enumerate(texts[:600])]
    write_lines(tmp_path / "data/parallel/tatoeba/en-de.tsv.xz", ["en\tde", *pairs])
    answers = [json.dumps({"question": text, "answer": text[::-1]}) for text in texts[:200]]
    write_lines(tmp_path / "data/retrieval_train/medquad/qa.jsonl.xz", answers)
    return tmp_path / "data"


@pytest.fixture
def paths(tmp_path):
    """Two sentence transformers of one vocabulary and other weights."""
    from tiny_models import WORDS, tiny_teacher

    found = [tmp_path / "wide", tmp_path / "narrow"]
    for path, dimension in zip(found, (16, 8)):
        tiny_teacher(path, [*WORDS, *"abcdefghijklmnopqrstuvwxyz"], dimension, length=64).save(str(path))
    return found


@pytest.fixture
def recipe(script):
    return script.Recipe(clusters=12, fitted_on=300, sentences=400, paraphrases=128, questions=64, topics=1, steps=2)


def measured(script, score, kinds=("STS", "retrieval")):
    """Scores of a model, of which bootstrap samples differ by chance."""
    from papers.kit import DRAWS
    from papers.lens.language_page import Measured

    noise = np.random.default_rng(0).normal(size=DRAWS + 1)
    names = [name for kind in kinds for name in {"STS": script.STS, "retrieval": script.RETRIEVAL}[kind]]
    return Measured({name: score + noise - noise[0] for name in names}, 100.0)


def models(script, seeds, better=2.0):
    rows = {script.FLOORS[1]: [measured(script, 50.0, ["retrieval"])]}
    for backbone, more in ((script.MINILM, 0.0), (script.MPNET, better)):
        rows[f"{backbone}, dense"] = [measured(script, 70.0 + more)]
        rows[f"{backbone}, lexicon"] = [measured(script, 60.0 + more + 0.1 * seed) for seed in range(seeds)]
        rows[f"{backbone}, untrained"] = [measured(script, 40.0 + more)]
    return rows


def between(script, rows, stage, kind="STS"):
    """Return the seeds and the difference of the two backbones, as the page has them."""
    table, label = dict(script.figures(rows))["differences"], f"{script.MPNET}, {stage} - {script.MINILM}, {stage}"
    return table.cell(label, "seeds"), table.cell(label, kind)


@pytest.mark.parametrize("kind", ["STS", "retrieval"])
def test_a_training_decides_nothing_with_few_seeds_and_models_as_they_are_do(script, kind):
    for seeds, verdict in ((1, "undecided"), (4, "undecided"), (5, "holds")):
        rows = models(script, seeds)
        assert between(script, rows, "lexicon", kind) == (f"{seeds}", f"+2.0 (+2.0 to +2.0), {verdict}")
        assert between(script, rows, "dense", kind) == ("-", "+2.0 (+2.0 to +2.0), holds")
        assert between(script, rows, "untrained", kind) == ("-", "+2.0 (+2.0 to +2.0), holds")
    assert between(script, models(script, 5, better=-2.0), "lexicon", kind)[1].endswith(", does not hold")


def test_seeds_that_one_backbone_lacks_are_left_out(script):
    rows = models(script, 3)
    del rows[f"{script.MPNET}, lexicon"][1:]
    assert between(script, rows, "lexicon") == ("1", "+2.0 (+2.0 to +2.0), undecided")


def test_bm25_is_compared_in_retrieval_alone(script):
    figures = dict(script.figures(models(script, 1)))
    label = f"{script.MPNET}, lexicon - {script.FLOORS[1]}"
    assert figures["differences"].cell(label, "STS") == "-"
    assert figures["differences"].cell(label, "retrieval").startswith("+12.0 ")
    assert figures["scores"].cell(script.FLOORS[1], "STS") == "-"
    assert figures["shares"].cell(script.MINILM, "STS").startswith("85.7 %")


@pytest.mark.full
def test_both_backbones_are_trained_on_the_same_batches(script, data, paths, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "TRAINING", script.replace(script.TRAINING, batch_size=8))
    both = []
    for path in paths:
        work = tmp_path / f"work-{path.name}"
        work.mkdir()
        source = script.Source(data, work, script.open_encoder(path))
        both.append(script.training_sets(source, recipe))
    assert [part.name for part in both[0]] == [part.name for part in both[1]]
    for one, other in zip(*both):
        if isinstance(one, script.TextSet):
            assert one.texts == other.texts and one.vectors.shape[1] == 16 and other.vectors.shape[1] == 8
        else:
            assert one.rows == other.rows
    assert sum(isinstance(part, script.TextSet) for part in both[0]) and len(both[0]) > 2


@pytest.mark.full
def test_a_backbone_is_measured_once_from_its_vectors_to_its_training(script, data, paths, recipe, tmp_path):
    kept = {}

    def keep(folder, name, rows, facts):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text("{}", encoding="utf-8")
        kept[name] = rows.toarray() if hasattr(rows, "toarray") else rows, facts

    texts = script.short_sentences(SimpleNamespace(corpus=data / "raw_english" / "open_licence.txt.xz"), 30)
    bench = SimpleNamespace(source=SimpleNamespace(data=data), embeddings=lambda name, encode: encode(texts), keep=keep)
    arguments = bench, tmp_path / "work", "tiny", paths[0], 3, recipe
    script.keep_backbone(*arguments)
    assert list(kept) == ["tiny-dense", "tiny-lexicon-3", "tiny-untrained"]
    dense, trained, untrained = (kept[name][0] for name in kept)
    assert dense.shape == (30, 16) and untrained.shape == trained.shape == (30, 12)
    assert not np.allclose(untrained, trained, atol=1e-3)
    lengths = np.linalg.norm(trained.astype(np.float32), axis=1)
    assert lengths[lengths > 0] == pytest.approx(1, abs=0.01)
    facts = kept["tiny-lexicon-3"][1]
    assert 0 < facts["own_share"] <= 1 and facts["recipe"] == asdict(recipe)
    kept.clear()
    script.keep_backbone(*arguments)  # nothing is missing
    assert not kept
