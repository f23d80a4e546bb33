"""Heads for a sentence encoder that has none: closed-form fits on unlabelled text, and rows that mean nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pellucid import KeyTokenEmbedder
from pellucid.base import Vectors
from pellucid.embeddings import unit_rows
from pellucid.lexicon.clusters import fit_rows

_STATES = 1_500  # sentences whose states are looked at
_RIDGE = 0.1  # of the mean variance of a coordinate
_LEAST = 5  # sentences that must hold a token for it to get a row

Floats = npt.NDArray[np.float64]


def random_head(model: KeyTokenEmbedder) -> Vectors:
    """Return random rows of the lengths that the model's own rows have: a control without any meaning."""
    rows = model.head.rows()
    drawn = np.random.default_rng(0).standard_normal(rows.shape).astype(np.float32)
    found: Vectors = unit_rows(drawn) * np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def token_head(model: KeyTokenEmbedder, texts: Sequence[str]) -> Vectors:
    """Return the input embeddings moved by least squares to where the last states of their tokens are."""
    return fit_rows(model.backbone, texts[:_STATES])


def text_head(model: KeyTokenEmbedder, texts: Sequence[str], embeddings: Vectors) -> Vectors:
    """Return rows that tell from a text's embedding which tokens it has: ridge regression to a 0/1 bag of tokens.

    Each token's row is divided by the square root of the number of texts that hold it, so that stop words do not win.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(model.backbone.tokenizer.backend_tokenizer.to_str())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    bags = [np.unique(encoded.ids) for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
    ends = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])])
    ids = np.concatenate(bags)
    held = sparse.csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(bags), len(model.head)))
    counts = np.asarray(held.sum(axis=0)).ravel().astype(np.float64)
    mean = embeddings.mean(axis=0, dtype=np.float64)
    centred = (embeddings - mean).astype(np.float32)
    covariance = (centred.T @ centred).astype(np.float64)
    mixed = (held.T @ embeddings).astype(np.float64) - np.outer(counts, mean)
    rows = _solved(covariance, mixed.T).T
    scale = np.where(counts >= _LEAST, 1 / np.sqrt(np.maximum(counts, 1)), 0)
    return (rows * scale[:, None]).astype(np.float32)


def _solved(covariance: Floats, mixed: Floats) -> Floats:
    """Return the ridge regression's coefficients, [d, targets]."""
    ridge = _RIDGE * np.trace(covariance) / len(covariance)
    found: Floats = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), mixed)
    return found
