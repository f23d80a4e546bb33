"""Any encoder as one function: texts in, float32 rows of length 1 out.

An encoder is a SentenceTransformer, a pellucid model, or any callable that takes a list of texts and returns one vector
each. What it returns is checked here. A name becomes an encoder in `pretrained.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid.base import Embedder, Vectors
from pellucid.embeddings import Role
from pellucid.errors import InputError
from pellucid.text import Coverage, Span, well_formed, words_before

Encoder = Any
"""A SentenceTransformer, an `Embedder`, or a callable: list of texts -> array [texts, d]."""


def encode_with(
    encoder: Encoder,
    texts: list[str],
    *,
    role: Role = None,
    batch_size: int = 32,
    dimension: int | None = None,
    show_progress_bar: bool = False,
) -> Vectors:
    """Return the vectors of `texts` at length 1.

    Args:
        encoder: what makes the vectors; their lengths do not matter.
        texts: any number of texts.
        role: "query" or "document" for the encoder's own way with these, None for neither; a callable has one if it has
            a method `encode_query` or `encode_document`.
        batch_size: texts of one pass, where the encoder has passes.
        dimension: what the encoder gave before; None takes what it gives.
        show_progress_bar: passed on where the encoder has one.

    Returns:
        float32 [texts, d]; a row is zero where the encoder gives zero.

    Raises:
        InputError: the encoder is none, gives another number of rows or dimensions than expected, or a NaN.
    """
    function = _as_function(encoder, role, batch_size, show_progress_bar)
    if not texts:
        return np.zeros((0, dimension or 0), np.float32)
    vectors = _as_rows(function(list(map(well_formed, texts))))
    name = type(encoder).__name__
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise InputError(f"the encoder ({name}) gave an array of shape {vectors.shape} for {len(texts)} texts")
    if dimension is not None and vectors.shape[1] != dimension:
        raise InputError(
            f"the encoder ({name}) gives {vectors.shape[1]} dimensions, before it gave {dimension}; "
            "give the encoder that the anchors were made with"
        )
    broken = ~np.isfinite(vectors).all(axis=1)
    if broken.any():
        raise InputError(
            f"the encoder ({name}) gave NaN or infinity for {int(broken.sum())} of {len(texts)} texts, "
            f"the first is {texts[int(broken.argmax())]!r:.60}"
        )
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]  # squares may leave float32
    units: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def anchor_vectors(encoder: Encoder, texts: list[str], *, dimension: int | None = None) -> Vectors:
    """Return the encoded anchors at length 1, float32 [n, d]."""
    vectors = encode_with(encoder, texts, dimension=dimension)
    empty = np.flatnonzero(~vectors.any(axis=1))
    if len(empty):
        raise InputError(
            f"the encoder maps anchor {empty[0]} ({texts[empty[0]]!r:.60}) to zero"
            + (f", and {len(empty) - 1} more" if len(empty) > 1 else "")
            + "; leave it out: no text is similar to it"
        )
    return vectors


def known_to(encoder: Encoder, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
    """Return for each text how much of it an encoder knows in a role, and the spans it does not.

    A SentenceTransformer reads every word before its maximum length, its prompt first. Of a callable nothing is known:
    it counts as one that knows everything.
    """
    if isinstance(encoder, Embedder):
        return encoder._known(texts, role)
    return [words_before(text, _read_to(encoder, text, role)) for text in map(well_formed, texts)]


def prompted(encoder: Encoder, texts: list[str], prompt: str) -> tuple[list[str], Role]:
    """Return texts with `prompt` before them, and a role in which the encoder puts nothing there itself.

    Raises:
        InputError: it would in any.
    """
    if isinstance(encoder, Embedder):
        return encoder._prompted(texts, prompt)
    default = getattr(encoder, "default_prompt_name", None)
    if is_sentence_transformer(encoder) and default is not None:
        raise InputError(
            f"prompt is {prompt!r:.60}, and the encoder puts its own before every text; set its default_prompt_name, "
            f"{default!r:.40}, to None"
        )
    return [prompt + text for text in texts], None


def _read_to(encoder: Encoder, text: str, role: Role) -> int:
    """Return the character where a SentenceTransformer cuts the text; its end for other encoders."""
    tokenizer: Any = getattr(encoder, "tokenizer", None)
    longest = getattr(encoder, "max_seq_length", None)
    if not is_sentence_transformer(encoder) or not getattr(tokenizer, "is_fast", False) or not isinstance(longest, int):
        return len(text)
    prompt = encoder.prompts.get(role or encoder.default_prompt_name) or ""
    read = tokenizer(
        prompt + text, truncation=True, max_length=longest, return_offsets_mapping=True, return_overflowing_tokens=True
    )
    if len(read["offset_mapping"]) < 2:  # nothing was cut
        return len(text)
    return max(0, int(max(end for _, end in read["offset_mapping"][0])) - len(prompt))


def is_sentence_transformer(encoder: Encoder) -> bool:
    """Whether `encoder` is a SentenceTransformer, found out without importing that library."""
    return any(kind.__module__.startswith("sentence_transformers") for kind in type(encoder).__mro__)


def check_encoder(encoder: Encoder) -> None:
    """Refuse what is no encoder."""
    if not (isinstance(encoder, Embedder) or callable(encoder)):  # as a SentenceTransformer is
        raise InputError(
            f"an encoder is a SentenceTransformer, a pellucid model or a callable, got {type(encoder).__name__}. "
            "Open a name or folder first: SentenceTransformer(name) or pellucid.load(name)"
        )


def _as_function(encoder: Encoder, role: Role, batch_size: int, show_progress_bar: bool) -> Callable[[list[str]], Any]:
    check_encoder(encoder)
    if isinstance(encoder, Embedder) or is_sentence_transformer(encoder):
        method = getattr(encoder, f"encode_{role}" if role else "encode")
        return lambda texts: method(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
    function: Any = getattr(encoder, f"encode_{role}", encoder) if role else encoder
    return function  # type: ignore[no-any-return]


def _as_rows(vectors: Any) -> Vectors:
    """Return what an encoder gave (array, tensor, lists) as a float32 array."""
    if hasattr(vectors, "toarray"):
        vectors = vectors.toarray()
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().float().cpu().numpy()
    try:
        return np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"the encoder gave no array of numbers: {error}") from error
