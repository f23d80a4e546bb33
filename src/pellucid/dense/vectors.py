"""What an encoder gave, checked: one finite row for each text; and what of it says only the form of its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.query import Floats
from pellucid.errors import InputError

MIN_SAME_COSINE = 1 - 1e-3
"""Of a stored vector and what the encoder gives for its text; rounding to half precision and int8 stays above."""
MIN_FORM_R2 = 0.5
"""Of the variance along a direction, explained by the form of texts, for it to be what they have in common."""
_ENDS = (".", "!", "?", "\u3002", "\uff01", "\uff1f")  # of a sentence
_EPS = 1e-9


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


def text_form(text: str) -> list[float]:
    """Return the features of a text's form: its length, the scripts of its letters, and how it begins and ends."""
    letters = [character for character in text if character.isalpha()]
    stripped = text.strip()

    def share(n_letters: int) -> float:
        return n_letters / max(len(letters), 1)

    return [
        float(np.log(max(len(text), 1))),
        share(sum(not letter.isascii() for letter in letters)),
        share(sum(letter.lower() == letter.upper() for letter in letters)),
        share(sum("\u3041" <= letter <= "\u30ff" for letter in letters)),  # hiragana and katakana
        float(stripped.endswith(_ENDS)),
        float(stripped[:1].isupper()),
    ]


def form_directions(texts: Sequence[str], centred: Floats, held_out: npt.NDArray[np.bool_]) -> Floats:
    """Return the directions in which vectors say the form of their texts, which all their words would be credited with.

    They are those along which features that know nothing of the words explain enough of the variance.

    Args:
        texts: with their vectors.
        centred: the vectors less their mean, float64 [texts, dimension].
        held_out: which texts judge the directions, and are not fitted on [texts].

    Returns:
        Orthonormal rows, float64 [directions, dimension]; none where the vectors say little of form.
    """
    features = np.array(list(map(text_form, texts)))
    spread = features[~held_out].std(axis=0)
    features = features[:, spread > _EPS]
    features = (features - features[~held_out].mean(axis=0)) / spread[spread > _EPS]
    slopes = np.linalg.lstsq(features[~held_out], centred[~held_out], rcond=None)[0]
    directions = np.linalg.svd(features[~held_out] @ slopes, full_matrices=False)[2][: features.shape[1]]
    along = centred[held_out] @ directions.T
    wrong = along - features[held_out] @ slopes @ directions.T
    variance = np.square(along).sum(axis=0)
    is_form = (variance > _EPS) & (np.square(wrong).sum(axis=0) <= (1.0 - MIN_FORM_R2) * variance)
    return directions[is_form]  # type: ignore[no-any-return]
