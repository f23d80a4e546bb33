"""How many components hold the variance: by a plain PCA, of a pass that is not over."""

from __future__ import annotations

import lzma

import numpy as np
import pytest

from papers.swe import variance
from pellucid.core.pca import Moments
from pellucid.persistence.checkpoints import WorkFolder


def test_components_are_counted_as_a_plain_pca_has_them():
    random = np.random.default_rng(0)
    rows = random.normal(size=(500, 30)) * 2.0 ** -np.arange(30)
    moments = Moments()
    moments.add(rows)
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    held = np.cumsum(values) / values.sum()
    counts = [next(n for n in range(1, 31) if held[n - 1] >= share) for share in variance.VARIANCE]
    assert variance.cells(moments) == [*map(str, counts), f"{held[9]:.1%}", f"{held[19]:.1%}"]


def test_vectors_are_those_of_the_pass_so_far(tmp_path):
    texts = ["the cat sat", "a dog ran far", "the dog sat"]
    corpus = tmp_path / "corpus.txt.xz"
    with lzma.open(corpus, "wt", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in texts)
    words, sums = ["the", "dog", "sat", "cat"], np.arange(12, dtype=np.float32).reshape(4, 3)
    used = np.array([2, 1, 0, 3], np.int32)
    with WorkFolder(tmp_path / "work") as work:
        work.save_texts("words", words)
        work.append("teacher", np.zeros((2, 3), np.float16))
        work.save("sums", {"sums": sums, "used": used})
        work.commit({})
    found, occurrences, vectors, sentences = variance.extracted(tmp_path / "work", corpus)
    assert found == words and occurrences.tolist() == [2, 1, 0, 3] and sentences == texts[:2]
    assert vectors == pytest.approx(sums / np.array([[2], [1], [1], [3]]))
