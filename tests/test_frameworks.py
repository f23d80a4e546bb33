"""Libraries that take sentence-transformers models, given the bundled static model; each test needs its library."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid

ANIMALS = [f"The {animal} sleeps and eats in the {place}" for animal in ("cat", "dog", "horse") for place in (
    "garden", "stable", "house", "field",
)]  # fmt: skip
MONEY = [f"The bank raised the {rate} on {loan}" for rate in ("interest", "fees", "price", "rate") for loan in (
    "mortgages", "house loans", "savings",
)]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return pellucid.load("static-en")


def test_scikit_learn_takes_encode_as_a_step(model):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    labels = ["animals"] * len(ANIMALS) + ["money"] * len(MONEY)
    step = FunctionTransformer(model.encode, kw_args={"truncate_dim": 64, "normalize_embeddings": True})
    pipeline = make_pipeline(step, LogisticRegression()).fit(np.array(ANIMALS + MONEY), labels)
    assert pipeline.predict(["a cow in the barn", "the credit costs more"]).tolist() == ["animals", "money"]
    assert pipeline[0].transform(["a cow"]).shape == (1, 64)


def test_bertopic_takes_a_pipeline_around_encode(model):
    bertopic = pytest.importorskip("bertopic", reason="bertopic is not installed")
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    encoder = make_pipeline(FunctionTransformer(model.encode))
    clusters = KMeans(2, random_state=0, n_init=3)
    topics = bertopic.BERTopic(embedding_model=encoder, umap_model=PCA(5), hdbscan_model=clusters)
    found, _ = topics.fit_transform(ANIMALS + MONEY)
    first, second = found[: len(ANIMALS)], found[len(ANIMALS) :]
    assert len(set(first)) == len(set(second)) == 1 and first[0] != second[0]
    similar, _ = topics.find_topics("a cow in the barn", top_n=1)
    assert similar == [first[0]]


@pytest.mark.full
def test_mteb_evaluates_the_model_as_it_is(model, tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from pellucid.evaluation.evaluating import evaluate
    from pellucid.evaluation.tasks import find_tasks, make_task, quiet

    folder = tmp_path / "data" / "sts" / "STS12"
    folder.mkdir(parents=True)
    pairs = [(a, b, 5.0 - 4 * (a in MONEY) * (b in ANIMALS)) for a in MONEY[:6] for b in (*MONEY[6:9], *ANIMALS[:3])]
    lines = ["sentence1\tsentence2\tscore", *(f"{a}\t{b}\t{score}" for a, b, score in pairs)]
    (folder / "test.tsv").write_text("\n".join(lines) + "\n")
    (task,) = find_tasks(tmp_path / "data")
    with quiet():
        done = mteb.evaluate(model, make_task(task), cache=None, co2_tracker=False, show_progress_bar=False)
    score = done.task_results[0].get_score()
    assert score > 0.5
    (row,) = evaluate(model, data=tmp_path / "data", cache_dir=tmp_path / "cache", show_progress_bar=False).rows
    assert row.score == pytest.approx(100 * score, abs=1e-6)
    assert done.model_name == "pellucid/static-en"


def test_mteb_tells_models_of_other_weights_apart(model, fruit, tmp_path):
    pytest.importorskip("mteb", reason="mteb is not installed")
    first, again = model.mteb_model_meta, pellucid.load("static-en").mteb_model_meta
    assert (first.name, first.revision) == (again.name, again.revision)
    small = model.keep([0, 1, 2])
    assert small.mteb_model_meta.revision not in (first.revision, small.mteb_model_meta.revision)
    revisions = []
    for changed in (fruit, fruit.rename({0: "renamed"}), fruit.scale({0: 2.0})):
        changed.save_pretrained(tmp_path / "fruit")
        revisions.append(pellucid.load(tmp_path / "fruit").mteb_model_meta.revision)
    assert len(set(revisions)) == 3
