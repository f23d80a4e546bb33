"""Heads for an encoder without one: of another model, closed-form fits on unlabelled text, and random rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from pellucid import KeyTokenEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Vectors
from pellucid.errors import ModelFolderError
from pellucid.persistence.folder import locate

_RIDGE = 0.1  # of the mean variance of a coordinate
_LEAST = 5  # sentences that must hold a token for it to get a row

_OUTPUT = ("lm_head.weight", "embed_out.weight", "output.weight", "lm_head.decoder.weight")
_INPUT = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight", "tok_embeddings.weight")


def random_head(model: KeyTokenEmbedder, seed: int = 0) -> Vectors:
    """Return random rows of the lengths that the model's own rows have: a control without geometry or meaning."""
    rows = model.head.rows()
    drawn = np.random.default_rng(seed).standard_normal(rows.shape).astype(np.float32)
    found: Vectors = l2_normalize(drawn) * np.linalg.norm(rows, axis=1, keepdims=True)
    return found


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
    ridge = _RIDGE * np.trace(covariance) / len(covariance)
    rows = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), mixed.T).T
    scale = np.where(counts >= _LEAST, 1 / np.sqrt(np.maximum(counts, 1)), 0)
    return (rows * scale[:, None]).astype(np.float32)


def read_head(name_or_path: str | Path) -> Vectors:
    """Read the head of a published language model without the rest of it, float32 [V, d].

    Args:
        name_or_path: a folder or hub id with safetensors files.

    Raises:
        ModelFolderError: there is no head; the message says which tensors were looked for. Or the model is said to use
            its input embeddings as head, and holds another one.
    """
    from safetensors import safe_open

    from pellucid.persistence.untrusted import tensor_sizes
    from pellucid.transformer.backbone import read_transformer_config

    folder = locate(name_or_path)
    # Where its config does not say whether a model's input embeddings are its head, its architecture does.
    tied = bool(getattr(read_transformer_config(folder), "tie_word_embeddings", False))
    tensor_sizes(folder)  # refuses broken files
    where: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="np") as tensors:
            where |= dict.fromkeys(tensors.keys(), file)
    if not where:
        raise ModelFolderError(f"{folder} holds no safetensors file; a head is read from such alone")
    output, inputs = (
        next((name for name in where if any(f".{name}".endswith(f".{key}") for key in keys)), None)
        for keys in (_OUTPUT, _INPUT)
    )
    if output is None and not (tied and inputs):
        raise ModelFolderError(
            f"{folder} holds no head: none of its {len(where)} tensors is called {', '.join(_OUTPUT)}"
            + ("" if tied else f", and its config does not say that the input embeddings ({inputs}) are the head")
        )
    rows = _read(where, output or inputs or "")
    if output and inputs and tied:
        others = _read(where, inputs)
        if others.shape != rows.shape or not np.allclose(others, rows, atol=1e-3):
            raise ModelFolderError(
                f"{folder}: tie_word_embeddings says that {inputs} is the head, and {output} differs from it; one of "
                "the two is wrong. Correct config.json"
            )
    return rows


def _read(where: Mapping[str, Path], name: str) -> Vectors:
    """Return one tensor as float32; bfloat16 needs torch."""
    from safetensors import safe_open

    with safe_open(str(where[name]), framework="pt") as tensors:
        rows: Vectors = tensors.get_tensor(name).float().numpy()
    if rows.ndim != 2:
        raise ModelFolderError(f"{where[name]}: {name} is no matrix, it has shape {list(rows.shape)}")
    return rows
