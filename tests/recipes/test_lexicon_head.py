"""The head fitted to an encoder that was never taught to predict words."""

from dataclasses import replace

import numpy as np
import pytest

from refusals import refused
from tiny_models import WORDS, tiny_model, word_piece

torch = pytest.importorskip("torch")

from pellucid import LexiconEmbedder  # noqa: E402
from pellucid.core.arrays import l2_normalize  # noqa: E402
from pellucid.lexicon.clusters import cluster_vocabulary  # noqa: E402
from pellucid.transformer.backbone import prepare  # noqa: E402
from recipes.lexicon_head import fit_head, fit_rows, load_clusters, save_clusters  # noqa: E402

RANDOM = np.random.default_rng(0)
TEXTS = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(2, 9))) for _ in range(200)]


@pytest.fixture(scope="module")
def backbone():
    tokenizer = word_piece()
    return prepare(
        tiny_model("bert", len(tokenizer), headless=True), tokenizer, attention="bidirectional", head_kind="input"
    )


@pytest.fixture(scope="module")
def clusters(backbone):
    return cluster_vocabulary(backbone.head, backbone.tokenizer, 12)


def states_of(backbone):
    """Return the states of all tokens and which tokens they are, by transformers alone."""
    states, tokens = [], []
    with torch.no_grad():
        for text in TEXTS:
            ids = backbone.tokenizer(text, return_tensors="pt")["input_ids"]
            states.append(backbone.model(ids).last_hidden_state[0, 1:-1].double().numpy())
            tokens.append(ids[0, 1:-1].numpy())
    return np.concatenate(states), np.concatenate(tokens)


def by_least_squares(backbone, clusters):
    """Return the fitted logits of all tokens up to scale and threshold, from the stacked system."""
    states, tokens = states_of(backbone)
    rows = backbone.head.double().numpy()
    targets = l2_normalize(rows - rows.mean(axis=0), np.float64)
    centred = states - states.mean(axis=0)
    ridge = 0.1 * np.sum(centred**2) / centred.shape[1]
    stacked = np.vstack([centred, np.sqrt(ridge) * np.eye(centred.shape[1])])
    wanted = np.vstack([targets[tokens] - targets[tokens].mean(axis=0), np.zeros((centred.shape[1],) * 2)])
    mapping = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    sums = np.zeros((len(clusters), targets.shape[1]))
    for token, cluster in enumerate(clusters.assignment):
        if cluster >= 0:
            sums[cluster] += targets[token]
    return centred @ mapping @ l2_normalize(sums, np.float64).T, states, tokens


def test_the_map_is_least_squares(backbone, clusters):
    fitted = fit_head(backbone, clusters, TEXTS, firing=0.1)
    expected, states, tokens = by_least_squares(backbone, clusters)
    logits = states @ fitted.clusters.centroids.T.astype(np.float64) + fitted.bias
    scaled = 5 * expected / expected[np.arange(len(tokens)), clusters.assignment[tokens]].mean()
    np.testing.assert_allclose(logits - logits.mean(), scaled - scaled.mean(), atol=1e-3)
    assert fitted.own_share == pytest.approx(np.mean(expected.argmax(axis=1) == clusters.assignment[tokens]))


def test_rows_of_single_tokens_are_those_of_clusters_of_one(backbone):
    single = cluster_vocabulary(backbone.head, backbone.tokenizer, None)
    fitted, rows = fit_head(backbone, single, TEXTS), fit_rows(backbone, TEXTS)
    tokens = np.flatnonzero(single.assignment >= 0)
    np.testing.assert_allclose(
        l2_normalize(fitted.clusters.centroids[single.assignment[tokens]]), l2_normalize(rows[tokens]), atol=1e-5
    )


@pytest.mark.parametrize("firing", [0.05, 0.3])
def test_so_many_clusters_fire_as_wanted(backbone, clusters, firing):
    fitted = fit_head(backbone, clusters, TEXTS, firing=firing)
    states, _ = states_of(backbone)
    logits = states @ fitted.clusters.centroids.T + fitted.bias
    assert np.mean(logits > 0) == pytest.approx(firing, abs=0.01)


def test_the_fitted_head_knows_its_own_words_better_than_the_plain_one(backbone, clusters):
    fitted = fit_head(backbone, clusters, TEXTS, firing=0.3)
    states, tokens = states_of(backbone)
    plain = np.mean((states @ clusters.centroids.T).argmax(axis=1) == clusters.assignment[tokens])
    assert fitted.own_share > plain
    assert fitted.clusters.names == clusters.names
    assert LexiconEmbedder(backbone, fitted.clusters, bias=fitted.bias).encode(["the sick boy"]).nnz > 0


test_what_cannot_be_fitted_is_refused = refused(
    (lambda backbone, clusters: fit_head(backbone, clusters, TEXTS, firing=float("nan")), "above 0 and below 1"),
    (lambda backbone, clusters: fit_head(backbone, clusters, []), "Give more texts"),
    (lambda backbone, clusters: fit_head(backbone, replace(clusters, assignment=clusters.assignment[:-1]), TEXTS),
     "cluster the head of this backbone"),
)  # fmt: skip


def test_clusters_are_loaded_as_saved(clusters, tmp_path):
    save_clusters(tmp_path, clusters)
    loaded = load_clusters(tmp_path)
    assert (loaded.names, loaded.words) == (clusters.names, clusters.words)
    for name in ("centroids", "assignment"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(clusters, name))
