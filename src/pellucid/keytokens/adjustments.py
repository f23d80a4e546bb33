"""Offsets of an embedding space that bring out key tokens.

The embeddings of a language model have one large component in common, which points to function words ("and", ",").
"A Text is Worth Several Tokens", section 4, finds that tuning a model for embedding mainly takes from the first
principal component, and adds a multiple of it by hand: h + lambda u_1. Here that and the subtraction of the mean
embedding are both an offset, h + offset, which can be saved, and folded into a linear layer's bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from pellucid.core.embedder import Vectors
from pellucid.core.pca import spectrum_of
from pellucid.errors import InputError, check_number, shown
from pellucid.settings import Limits, Settings


@dataclass(frozen=True, eq=False)
class Adjustment(Settings):
    """What is added to every embedding before it is decoded.

    Attributes:
        kind: "none", "mean" (the corpus mean is subtracted) or "component" (a multiple of u_1 is added).
        offset: float32 [d]; None for "none".
        strength: for "component" its lambda: how much of the unit vector u_1, which points to the side of the mean
            embedding, is added. Negative where the component is made smaller.
        texts: how many texts it was fitted on.
    """

    kind: Literal["none", "mean", "component"] = "none"
    offset: Vectors | None = None
    strength: Annotated[float, Limits(above=-1e18, below=1e18)] = 0.0
    texts: Annotated[int, Limits(0)] = 0

    def __post_init__(self) -> None:
        """Check that kind and offset go together.

        Raises:
            InputError: they do not, or the offset is not a row of finite numbers.
        """
        super().__post_init__()
        if (self.offset is None) != (self.kind == "none"):
            wants = "has no" if self.kind == "none" else "needs an"
            raise InputError(f"an adjustment of kind {shown(self.kind)} {wants} offset")
        if self.offset is not None:
            offset = np.asarray(self.offset, np.float32)
            if offset.ndim != 1 or not np.isfinite(offset).all():
                raise InputError(f"an adjustment's offset must be [d] finite numbers, got shape {offset.shape}")
            object.__setattr__(self, "offset", offset)

    def apply(self, embeddings: Vectors) -> Vectors:
        """Return the embeddings [n, d] with the offset added; zero rows, texts without tokens, stay zero."""
        if self.offset is None:
            return embeddings
        is_known = embeddings.any(axis=1, keepdims=True)
        return np.where(is_known, embeddings + self.offset, np.float32(0)).astype(np.float32)


def mean_adjustment(embeddings: Vectors) -> Adjustment:
    """Return the subtraction of the mean of some embeddings [n, d]; zero rows do not count."""
    rows = _nonzero_rows(embeddings)
    return Adjustment("mean", -rows.mean(axis=0, dtype=np.float64).astype(np.float32), 0.0, len(rows))


def component_adjustment(embeddings: Vectors, strength: float | None = None) -> Adjustment:
    """Return the addition of `strength` times the first principal component of some embeddings (paper, section 4.3)."""
    rows = _nonzero_rows(embeddings)
    first = spectrum_of(rows).components[0]  # points to the side of the mean
    if strength is None:  # brings the mean embedding's part along it to 0
        strength = -float(rows.mean(axis=0) @ first)
    check_number("strength", strength)
    return Adjustment("component", (strength * first).astype(np.float32), float(strength), len(rows))


def _nonzero_rows(embeddings: Vectors) -> Vectors:
    """Return the rows that are not zero, at least two: minus its mean, nothing would be left of one."""
    rows = embeddings[embeddings.any(axis=1)]
    if len(rows) < 2:
        raise InputError(
            f"an adjustment is fitted on texts, at least two that the model reads something in; got {len(rows)} of "
            f"{len(embeddings)}"
        )
    return rows
