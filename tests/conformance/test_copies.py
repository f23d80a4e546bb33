"""A model that was used may be pickled, copied, sent to other processes and shared by threads: always equal vectors."""

import copy
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pellucid
from families import FAMILIES, STATIC, TEXTS, WORDS, dense_rows, static_model
from pellucid.core.fingerprint import fingerprint
from pellucid.text.words import Vocabulary

MANY = [f"{first} {second}." for first in TEXTS for second in TEXTS] * 400  # enough to start the compiled encoder


@pytest.fixture(scope="module")
def models(every_family):
    """A model of every family, each used, and what it gave."""
    return {name: (model, rows(model, texts_of(name))) for name, model in every_family.items()}


def texts_of(name):
    return MANY if name in STATIC else TEXTS


def rows(model, texts):
    return dense_rows(model.encode(texts))


def check(model, name, expected):
    np.testing.assert_allclose(rows(model, texts_of(name)), expected, atol=1e-6)
    np.testing.assert_allclose(rows(model, TEXTS), rows(model, texts_of(name)[:1] + TEXTS)[1:], atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy])
def test_a_copy_of_a_used_model_gives_equal_vectors(models, name, copied):
    model, expected = models[name]
    other = copied(model)
    assert other is not model
    for each in (other, model, copied(other)):
        check(each, name, expected)


def each_encoded(models):
    """What another process gives, and the models' fingerprints there."""
    return {name: (rows(model, texts_of(name)), fingerprint(model)) for name, model in models.items()}


@pytest.mark.full
def test_workers_of_joblib_that_map_the_arrays_give_equal_vectors_and_fingerprints(models):
    joblib = pytest.importorskip("joblib")
    work = [joblib.delayed(each_encoded)({name: model for name, (model, _) in models.items()})]
    (found,) = joblib.Parallel(n_jobs=2, max_nbytes=256)(work)
    for name, (model, expected) in models.items():
        np.testing.assert_allclose(found[name][0], expected, atol=1e-6, err_msg=name)
        assert found[name][1] == fingerprint(model), name


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_threads_that_share_a_model_get_equal_vectors(models, name):
    model, expected = models[name]
    model = copy.deepcopy(model)  # not started: the threads do that too
    texts = texts_of(name)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: rows(model, texts), range(8)):
            np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.full)])
def test_a_model_whose_folder_is_gone_or_another_one_pickles(tmp_path: Path, processes: int):
    """What other processes get is what was opened, not what is at the path by then."""
    joblib = pytest.importorskip("joblib")
    model = static_model()
    expected = rows(model, MANY)
    model.save_pretrained(tmp_path / "m")
    opened = pellucid.load(tmp_path / "m")
    pellucid.StaticEmbedder(Vocabulary(WORDS), -model.vectors).save_pretrained(tmp_path / "m")
    replaced = joblib.Parallel(n_jobs=processes or 1, max_nbytes=256)([joblib.delayed(rows)(opened, MANY)] * processes)
    shutil.rmtree(tmp_path / "m")
    for found in (*replaced, rows(pickle.loads(pickle.dumps(opened)), MANY), rows(opened, MANY)):
        np.testing.assert_allclose(found, expected, atol=1e-6)
