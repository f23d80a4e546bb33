"""The fast STS score against scipy and MTEB; models of other libraries opened by a string."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

from papers.models import open_any
from papers.sts import sts_spearman
from papers.vector_cache import CachedEncoder
from pellucid.errors import InputError, ModelFolderError
from pellucid.evaluation import evaluate
from pellucid.static.embedder import StaticEmbedder
from tasks import RISING, Planar, score, write_retrieval, write_sts

# --- the fast STS score ---


def test_sts_spearman_by_hand(tmp_path: Path) -> None:
    # Cosines 1, 0, 0.71, 0.95 where people said 5, 1, 4, 3: two neighbours swapped, 1 - 6 * 2 / (4 * 15) = 0.8.
    rows = [("apple", "apple", 5), ("apple", "car", 1), ("apple car", "car", 4), ("apple apple apple car", "apple", 3)]
    write_sts(tmp_path, "STS13", rows)
    assert sts_spearman(Planar().encode, tmp_path) == {"STS13": pytest.approx(80.0)}


def test_sts_spearman_is_scipy_and_mteb(tmp_path: Path, fruit: StaticEmbedder) -> None:
    unknown = [("zzz", "apple", 2.5), ("zzz", "yyy", 3.5), ("pear", "car", 0.2), ("car pear", "bicycle", 2.2)]
    write_sts(tmp_path, "SICK-R", RISING + unknown)
    (tmp_path / "sts/SICK-R/test.tsv").rename(tmp_path / "sts/SICK-R/all.tsv")
    write_sts(tmp_path, "STS15")
    first, second, gold = zip(*RISING)
    cosines = fruit.similarity_pairwise(fruit.encode(first), fruit.encode(second))
    plain = sts_spearman(fruit.encode, tmp_path)
    assert plain["STS15"] == pytest.approx(100 * spearmanr(gold, cosines)[0])
    assert {row.task: row.score for row in score(fruit, tmp_path)} == pytest.approx(plain)
    assert list(plain) == ["STS15", "SICK-R"]


def test_a_folder_without_sts_sets(tmp_path: Path) -> None:
    write_retrieval(tmp_path)
    with pytest.raises(InputError, match="no STS set under"):
        sts_spearman(Planar().encode, tmp_path)


# --- opening models ---


def test_open_any_tells_our_models_from_others(tmp_path: Path, fruit: StaticEmbedder) -> None:
    fruit.save_pretrained(tmp_path / "ours")
    ours = open_any(str(tmp_path / "ours"))
    assert isinstance(ours, StaticEmbedder)
    fruit.save_pretrained(tmp_path / "stock")
    (tmp_path / "stock/config.json").write_text("{}")
    (tmp_path / "stock/dimensions.tsv").unlink()  # by which a damaged folder of ours is known
    stock = open_any(tmp_path / "stock")
    assert type(stock.model).__name__ == "SentenceTransformer"
    static = open_any(f"model2vec:{tmp_path / 'ours'}")
    assert type(static).__name__ == "StaticModel"
    write_sts(tmp_path)
    assert [score(model, tmp_path)[0].score for model in (stock, static)] == pytest.approx([100, 100])


def test_word_vectors_in_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "words.vec").write_text("2 2\napple 1 0\ncar 0 1\n")
    assert open_any(f"vectors:{tmp_path / 'words.vec'}").encode("apple").tolist() == [1, 0]


@pytest.mark.parametrize("spec", ["no-such-model", "./no/such/folder", "wordllama:many"])
def test_what_cannot_be_opened(spec: str) -> None:
    with pytest.raises((InputError, ModelFolderError), match=spec):
        open_any(spec)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError):
        open_any(str(tmp_path))


@pytest.mark.full
def test_wordllama_has_its_known_scores(shared: Path, tmp_path: Path) -> None:
    handlers = logging.getLogger().handlers[:]
    model = open_any("wordllama")
    assert logging.getLogger().handlers == handlers
    known = {"STS12": 64.61, "STS13": 74.44, "STS14": 69.52, "STS15": 81.07, "STSBenchmark": 75.87, "SICK-R": 67.21}
    plain = sts_spearman(model.embed, shared / "data")
    assert {task: plain[task] for task in known} == pytest.approx(known, abs=0.01)
    row = evaluate(model, data=shared / "data", tasks=["STS13"], cache_dir=tmp_path).rows[0]
    assert row.score == pytest.approx(plain["STS13"], abs=1e-3)


@pytest.mark.parametrize("form", [np.array, sparse.csr_matrix])
def test_a_text_is_encoded_once_whatever_form_rows_have(tmp_path, form):
    asked = []

    def encode(texts):
        asked.extend(texts)
        return form(np.array([[text.count("a"), len(text)] for text in texts], np.float32))

    def rows(texts):
        found = CachedEncoder("counts", encode, tmp_path)(texts)
        return found.toarray().tolist() if sparse.issparse(found) else found.tolist()

    assert rows(["aba", "b", "aba"]) == [[2, 3], [0, 1], [2, 3]] and sorted(asked) == ["aba", "b"]
    assert rows(["b", "ca", "aba"]) == [[0, 1], [1, 2], [2, 3]] and asked[2:] == ["ca"]
