"""What static models compute, in a form to read: the reference that the C kernels are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.static.embedder import StaticEmbedder


def plain_rows(model: StaticEmbedder, texts: Sequence[str]) -> np.ndarray:
    """Return the embeddings of texts: the sums of their words' vectors, in float64, at length 1."""
    rows = np.zeros((len(texts), model.get_embedding_dimension()))
    for row, text in zip(rows, texts):
        words, spelled = [word.text for word in model.vocabulary.split(text)], model.spelled_rows()
        numbers = np.array(list(map(model.vocabulary.row, words)) if spelled is None else spelled.rows(words), np.int64)
        row[:] = model.vectors_for(numbers[numbers >= 0], spelled).sum(axis=0, dtype=np.float64)
        row /= np.linalg.norm(row) or 1
    return rows
