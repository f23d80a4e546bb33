"""The principal components of an embedding space (section 4 of "A Text is Worth Several Tokens").

As there, embeddings are not centred unless that is asked for, so that u_1 is close to their mean. Only their second
moment is kept, d x d numbers, so that there is no limit to the number of texts. The sign of a singular vector is
arbitrary: here it points to the side of the mean embedding, and where the mean has no part in it, its largest entry is
positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError

Array = npt.NDArray[np.float64]

_PROJECTION_EPS = 1e-9  # of the mean's length: below it a projection is rounding


class Moments:
    """Count, mean and second moment of rows that come in blocks."""

    def __init__(self) -> None:
        """Start without rows; the first block decides the width."""
        self.count = 0
        self._sum: Any = 0.0
        self._products: Any = 0.0

    def add(self, rows: npt.ArrayLike) -> None:
        """Add rows [n, d]."""
        block = np.asarray(rows, np.float64)
        if block.ndim != 2 or (self.count and block.shape[1] != len(self._sum)):
            expected = f"[n, {len(self._sum)}]" if self.count else "[n, d]"
            raise InputError(f"embeddings of shape {block.shape}; {expected} is needed")
        if not np.isfinite(block).all():
            broken = self.count + int(np.argmin(np.isfinite(block).all(axis=1)))
            raise InputError(f"embedding {broken} holds NaN or infinity; leave its text out")
        self.count += len(block)
        self._sum += block.sum(axis=0)
        self._products += block.T @ block

    @property
    def mean(self) -> Array:
        """The mean row, [d]."""
        return np.asarray(self._sum / max(self.count, 1))

    def spectrum(self, *, centred: bool = False) -> Spectrum:
        """Return the principal components of the rows added so far."""
        if self.count < 2:
            raise InputError(f"{self.count} text has no principal components to speak of; give at least 2 texts")
        moment = self._products / self.count
        if centred:
            moment = moment - np.outer(self.mean, self.mean)
        values, vectors = np.linalg.eigh(moment)
        values, components = values[::-1], vectors.T[::-1]
        if values[0] <= 0:
            raise InputError(f"all {self.count} embeddings are {'equal' if centred else 'zero'}; there is no component")
        along = components @ self.mean
        largest = components[np.arange(len(components)), np.abs(components).argmax(axis=1)]
        is_along = np.abs(along) > _PROJECTION_EPS * np.linalg.norm(self.mean)
        signed_components = components * np.sign(np.where(is_along, along, largest))[:, None]
        return Spectrum(
            self.count, self.mean, signed_components, np.sqrt(np.maximum(values, 0.0) * self.count), centred
        )


@dataclass(frozen=True, repr=False)
class Spectrum:
    """The components u_1, u_2, ... of an embedding space: orthonormal rows, by falling singular value; all float64."""

    texts: int
    mean: Array
    components: Array
    singular_values: Array
    centred: bool


def spectrum_of(embeddings: Any, *, centred: bool = False) -> Spectrum:
    """Return the principal components (Eq. 9) of [n, d] embeddings or of blocks of them; the paper does not centre."""
    moments = Moments()
    for block in [embeddings] if hasattr(embeddings, "shape") else embeddings:
        moments.add(block)
    return moments.spectrum(centred=centred)
