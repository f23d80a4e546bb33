"""A model that was used may be pickled, copied, sent to other processes and shared by threads: always equal vectors."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.static.embedder import StaticEmbedder
from pellucid.text import Vocabulary

WORDS = ["the", "cat", "sat", "on", "a", "mat", "bank", "loan", "river", "token", "doctor", "medicine", "man", "horse"]
TEXTS = ["The Cat sat", "river bank", "", "tokenisers and TOKENISER <query>", "the doctor, a LOAN", "a man on a horse"]
MANY = [f"{first} {second}." for first in TEXTS for second in TEXTS] * 400  # enough to start the compiled encoder
ANCHORS = ["the cat sat", "bank loan", "a mat"]
STATIC = ["static", "anchors", "ensemble"]
TRANSFORMER = ["anchors over a transformer", "ensemble with a transformer", "lexicon", "key tokens", "dense"]


def static_model() -> StaticEmbedder:
    """Words, prefixes and a table large enough that joblib puts it into a file."""
    pieces = ["[UNK]", "token", "##iser", "##s"]
    tokenizer = Tokenizer(WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 64)).astype(np.float16)
    return StaticEmbedder(Vocabulary(WORDS, lambda: tokenizer), vectors)  # a function that no pickle can hold


def first_letters(texts):
    """An encoder that is a function: counts of the first letters."""
    return np.array([[text.count(letter) + 1 for letter in "abcdefgh"] for text in texts], np.float32)


def backbone_of(kind, attention):
    from pellucid.transformer.backbone import prepare
    from tiny_models import sentence_piece, tiny_model, word_piece

    tokenizer = word_piece() if kind == "bert" else sentence_piece()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<query>"]})
    return prepare(tiny_model(kind, len(tokenizer)), tokenizer, attention=attention, device="cpu")


def lexicon_model():
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder

    backbone = backbone_of("mistral", "bidirectional")
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 30)).scale({0: 0.5})


def key_token_model():
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.keytokens.states import KeyTokenSettings

    return KeyTokenEmbedder(backbone_of("llama", "causal"), KeyTokenSettings(top_k=20))


def dense_model():
    from papers.lens.baselines import DenseEmbedder

    return DenseEmbedder(backbone_of("bert", "bidirectional"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of every family, each used, and what it gave."""
    found = {
        "static": static_model(),
        "anchors": AnchorEmbedder(static_model(), ANCHORS),
        "ensemble": EnsembleEmbedder([static_model(), AnchorEmbedder(first_letters, ANCHORS), first_letters]),
    }
    try:
        import sentence_transformers  # noqa: F401
    except ImportError:
        pass
    else:
        from test_anchors import tiny_transformer

        transformer = tiny_transformer(tmp_path_factory.mktemp("bert"), normalize=True)
        found |= {
            "anchors over a transformer": AnchorEmbedder(transformer, ANCHORS),
            "ensemble with a transformer": EnsembleEmbedder([transformer, static_model()]),
            "lexicon": lexicon_model(),
            "key tokens": key_token_model(),
            "dense": dense_model(),
        }
    return {name: (model, rows(model, texts_of(name))) for name, model in found.items()}


def texts_of(name):
    return MANY if name in STATIC else TEXTS


def rows(model, texts):
    found = model.encode(texts)
    return found.toarray() if hasattr(found, "toarray") else found


def chosen(models, name):
    if name not in models:
        pytest.skip("needs torch")
    return models[name]


def check(model, name, expected):
    np.testing.assert_allclose(rows(model, texts_of(name)), expected, atol=1e-6)
    np.testing.assert_allclose(rows(model, TEXTS), rows(model, texts_of(name)[:1] + TEXTS)[1:], atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", STATIC + TRANSFORMER)
@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy])
def test_a_copy_of_a_used_model_gives_equal_vectors(models, name, copied):
    model, expected = chosen(models, name)
    other = copied(model)
    assert other is not model
    check(other, name, expected)
    check(model, name, expected)
    check(copied(other), name, expected)


def each_encoded(models):
    """What another process gives."""
    return {name: rows(model, texts_of(name)) for name, model in models.items()}


@pytest.mark.full
def test_another_process_gives_equal_vectors(models):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(each_encoded, {name: model for name, (model, _) in models.items()}).result()
    for name, (_, expected) in models.items():
        np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)


@pytest.mark.full
def test_workers_of_joblib_that_map_the_arrays_give_equal_vectors(models):
    joblib = pytest.importorskip("joblib")
    work = [joblib.delayed(each_encoded)({name: model for name, (model, _) in models.items()})]
    (found,) = joblib.Parallel(n_jobs=2, max_nbytes=256)(work)
    for name, (_, expected) in models.items():
        np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("name", STATIC + TRANSFORMER)
def test_threads_that_share_a_model_get_equal_vectors(models, name):
    _, expected = chosen(models, name)
    model = copy.deepcopy(models[name][0])  # not started: the threads do that too
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
    workers = joblib.Parallel(n_jobs=processes or 1, max_nbytes=256)
    replaced = workers([joblib.delayed(rows)(opened, MANY)] * processes)
    shutil.rmtree(tmp_path / "m")
    for found in (*replaced, rows(pickle.loads(pickle.dumps(opened)), MANY), rows(opened, MANY)):
        np.testing.assert_allclose(found, expected, atol=1e-6)
