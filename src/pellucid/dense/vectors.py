"""What an encoder gave, checked: one finite row for each text."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder, Vectors
from pellucid.errors import InputError

MIN_SAME_COSINE = 1 - 1e-3
"""Of a stored vector and what the encoder gives for its text; rounding to half precision and int8 stays above."""


def unit_vectors(
    model: Embedder,
    texts: list[str],
    *,
    role: Role = None,
    batch_size: int = 32,
    dimension: int | None = None,
    show_progress_bar: bool = False,
) -> Vectors:
    """Return checked embeddings at length 1, dense float32 [texts, d]; `dimension` is what must come out."""
    if not texts:
        return np.zeros((0, dimension or model.get_embedding_dimension()), np.float32)
    encode = getattr(model, f"encode_{role}" if role else "encode")
    rows = encode(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
    return at_length_1(checked_vectors(rows, texts, getattr(model, "name", type(model).__name__), dimension))


def checked_vectors(vectors: Any, texts: list[str], name: str, dimension: int | None) -> Vectors:
    """Return what an encoder gave (array, tensor, lists) as float32 with one finite row for each text."""
    if hasattr(vectors, "toarray"):
        vectors = vectors.toarray()
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().float().cpu().numpy()
    try:
        rows: Vectors = np.ascontiguousarray(vectors, dtype=np.float32)  # in one order of memory, BLAS rounds one way
    except (TypeError, ValueError) as error:
        raise InputError(f"the encoder did not give an array of numbers: {error}") from error
    if rows.ndim != 2 or len(rows) != len(texts):
        raise InputError(f"the encoder ({name}) gave an array of shape {rows.shape} for {len(texts)} texts")
    if dimension is not None and rows.shape[1] != dimension:
        raise InputError(
            f"the encoder ({name}) gives {rows.shape[1]} dimensions, before it gave {dimension}; "
            "give the encoder that was used before"
        )
    broken = ~np.isfinite(rows).all(axis=1)
    if broken.any():
        raise InputError(
            f"the encoder ({name}) gave NaN or infinity for {int(broken.sum())} of {len(texts)} texts, "
            f"the first is {texts[int(broken.argmax())]!r:.60}"
        )
    return rows


def check_vector_of_text(cosine: float, text: str, role: Role) -> None:
    """Check that a stored vector is what the encoder gives for a text, given their cosine."""
    if cosine < MIN_SAME_COSINE:
        raise InputError(
            f"the vector of {text!r:.60}{'' if role is None else f' as a {role}'} has a cosine of {cosine:.3f} to "
            "what the encoder gives: it is of another model, prompt or role. Encode the text again, or explain it "
            "in the role in which it was encoded"
        )


def at_length_1(rows: Vectors) -> Vectors:
    """Return rows at length 1, or zero; their squares, which may leave float32, are summed in float64."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))[:, None]
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)  # type: ignore[no-any-return]
