"""Joining what several teachers leave of one corpus, on teachers of a few thousand weights."""

import numpy as np
import pytest

from pellucid.static import ExtractionSettings, PcaSettings, RefinementSettings
from pellucid.static.training import extraction as extraction_module
from pellucid.static.training.extraction import extract
from recipes.several_teachers import join_extractions, make
from refusals import refused
from teachers import agreement, sentences, two_teachers

pytest.importorskip("torch")
sentence_transformers = pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    return two_teachers(tmp_path_factory.mktemp("teachers"))


def centred(vectors):
    """Return sentence vectors less their mean, at length 1."""
    less = vectors.astype(np.float64) - vectors.astype(np.float64).mean(axis=0)
    return less / np.linalg.norm(less, axis=1, keepdims=True)


def made(teachers, work_dir, weights=None):
    return make(
        teachers,
        iter(sentences(400)),
        work_dir,
        weights=weights,
        pca=PcaSettings(dimensions=12, drop=1),
        refinement=RefinementSettings(steps=200, batch_size=32, evaluate_every=50, temperature=0.05),
        show_progress_bar=False,
    )


def test_joint_cosines_are_the_weighted_mean_of_the_centred_ones(teachers, tmp_path):
    corpus = sentences(60)
    one, other = (extract(t, corpus, tmp_path / str(n), ExtractionSettings()) for n, t in enumerate(teachers))
    other.vectors[2] = 0  # a word that this teacher saw nowhere whole
    joint = join_extractions([one, other], [3, 1])
    apart = [centred(found.teacher_vectors) for found in (one, other)]
    cosines = 0.75 * apart[0] @ apart[0].T + 0.25 * apart[1] @ apart[1].T
    np.testing.assert_allclose(joint.teacher_vectors.astype(float) @ joint.teacher_vectors.T, cosines, atol=3e-3)
    assert joint.vectors.shape == (len(one.words), 24)
    assert joint.vectors[2, :16].any() and not joint.vectors[2, 16:].any()
    for columns, share, known in ((np.s_[:16], 0.75, np.s_[:]), (np.s_[16:], 0.25, np.arange(len(one.words)) != 2)):
        part = joint.vectors[known, columns]
        np.testing.assert_allclose(np.average(part, axis=0, weights=one.counts[known]), 0, atol=1e-5)
        assert np.sqrt((part**2).mean()) == pytest.approx(np.sqrt(share), rel=1e-5)


def test_a_model_of_two_teachers_follows_them_together(teachers, tmp_path, monkeypatch):
    fresh = sentences(60, seed=9)
    ours = made(teachers, tmp_path).encode(fresh)
    theirs = [centred(t.encode(fresh, normalize_embeddings=True)) for t in teachers]
    assert agreement(ours, np.hstack(theirs)) > 0.6
    monkeypatch.setattr(extraction_module, "forward", None)  # other weights: no sentence is read again
    leaning = made(teachers, tmp_path, [20, 1]).encode(fresh)
    assert agreement(leaning, theirs[0]) > agreement(ours, theirs[0])
    assert agreement(leaning, theirs[1]) < agreement(ours, theirs[1])


def of_other_text(teacher, folder):
    texts = ((n, sentences(20, seed=n)) for n in (0, 1))
    join_extractions([extract(teacher, corpus, folder / str(n), ExtractionSettings()) for n, corpus in texts])


test_what_cannot_be_joined_is_refused = refused(
    *((lambda teachers, tmp_path, weights=weights: made(teachers, tmp_path, weights),
       "2 teachers need as many numbers above 0") for weights in (
        [1.0], [1.0, 0.0], [1.0, float("nan")], [1.0, float("inf")], [1.0, -1.0])),
    (lambda teachers, tmp_path: of_other_text(teachers[0], tmp_path), "read different text"),
)  # fmt: skip
