"""The principal components of an embedding space, and how fine-tuning changes them.

"A Text is Worth Several Tokens", section 4: the singular vectors u_1, u_2, ... of a backbone's text embeddings, the
variation v_j of its fine-tuned version along each, and the logits split into what the first component gives and what
the rest gives. As there, the embeddings are not centred unless that is asked for, so that u_1 is close to their mean.

Only the second moment of the embeddings is kept, d x d numbers, so that there is no limit to the number of texts. The
sign of a singular vector is arbitrary; here a vector points to the side of the mean embedding, and where the mean has
no part in it, its largest entry is positive. A negative v_1 then says that tuning made the first component smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError

Array = npt.NDArray[np.float64]

_NO_PART = 1e-9  # of the mean's length: below it a projection is rounding


class Moments:
    """Count, mean and second moment of rows that come in blocks."""

    def __init__(self) -> None:
        """Start without rows; the first block decides the width."""
        self.count = 0
        self._sum: Array = np.zeros(0)
        self._products: Array = np.zeros((0, 0))

    @property
    def width(self) -> int:
        """Numbers in a row; 0 before the first block."""
        return len(self._sum)

    def add(self, rows: npt.ArrayLike) -> None:
        """Take rows [n, d] in, any number of them.

        Raises:
            InputError: they are of another width than those before, or hold NaN or infinity.
        """
        block = np.asarray(rows, np.float64)
        if block.ndim != 2 or (self.count and block.shape[1] != self.width):
            wanted = f"[n, {self.width}]" if self.count else "[n, d]"
            raise InputError(f"embeddings of shape {block.shape}; {wanted} is needed")
        if not np.isfinite(block).all():
            broken = self.count + int(np.argmin(np.isfinite(block).all(axis=1)))
            raise InputError(f"embedding {broken} holds NaN or infinity; leave its text out")
        if not self.count:
            self._sum, self._products = np.zeros(block.shape[1]), np.zeros((block.shape[1], block.shape[1]))
        self.count += len(block)
        self._sum += block.sum(axis=0)
        self._products += block.T @ block

    @property
    def mean(self) -> Array:
        """The mean row, [d]."""
        return self._sum / max(self.count, 1)

    def second(self, *, centred: bool) -> Array:
        """Return the mean of row' row, [d, d]; `centred` takes the mean row out first."""
        moment: Array = self._products / max(self.count, 1)
        return moment - np.outer(self.mean, self.mean) if centred else moment

    def spectrum(self, *, centred: bool = False) -> Spectrum:
        """Return the principal components of the rows taken in so far.

        Raises:
            InputError: there are fewer than two, or all are zero (equal, if centred).
        """
        if self.count < 2:
            raise InputError(f"{self.count} text has no principal components to speak of; give at least 2 texts")
        values, vectors = np.linalg.eigh(self.second(centred=centred))
        values, components = values[::-1], vectors.T[::-1]
        if values[0] <= 0:
            raise InputError(f"all {self.count} embeddings are {'equal' if centred else 'zero'}; there is no component")
        found = components * _signs(components, self.mean)[:, None]
        return Spectrum(self.count, self.mean, found, np.sqrt(np.maximum(values, 0.0) * self.count), centred)


@dataclass(frozen=True, repr=False)
class Spectrum:
    """The components of an embedding space.

    Attributes:
        texts: how many embeddings it rests on.
        mean: float64 [d], their mean.
        components: float64 [d, d], u_1, u_2, ... as rows, orthonormal, by descending singular value.
        singular_values: float64 [d], those of the [texts, d] matrix of embeddings (of the centred ones, if centred).
        centred: whether the mean was taken out before.
    """

    texts: int
    mean: Array
    components: Array
    singular_values: Array
    centred: bool

    @property
    def first(self) -> Array:
        """u_1, float64 [d]."""
        component: Array = self.components[0]
        return component

    @property
    def shares(self) -> Array:
        """The share of each component in the embeddings' squared length (variance, if centred), [d]; sums to 1."""
        energy = self.singular_values**2
        total = float(energy.sum())
        return energy / total if total > 0 else energy

    @property
    def level(self) -> float:
        """The mean embedding's part along u_1; adding -level x u_1 to each embedding takes it out."""
        return float(self.mean @ self.first)

    def project(self, embeddings: npt.ArrayLike) -> Array:
        """Return the part of each embedding along each component, float64 [n, d] (h . u_j, never centred).

        Raises:
            InputError: the embeddings are of another width.
        """
        coordinates: Array = self._checked(embeddings) @ self.components.T
        return coordinates

    def split(self, embeddings: npt.ArrayLike) -> tuple[Array, Array]:
        """Return u_1 u_1' h and the rest, which add up to h (Eq. 11), each float64 [n, d].

        Raises:
            InputError: the embeddings are of another width.
        """
        rows = self._checked(embeddings)
        first = np.outer(rows @ self.first, self.first)
        return first, rows - first

    def adjusted(self, embeddings: npt.ArrayLike, amount: float) -> Array:
        """Return h + amount x u_1 (Eq. 14), float64 [n, d].

        Raises:
            InputError: the embeddings are of another width.
        """
        return self._checked(embeddings) + amount * self.first

    def __repr__(self) -> str:
        """Return one short line."""
        kind = "centred" if self.centred else "not centred"
        width = len(self.singular_values)
        return f"<Spectrum of {self.texts:,} texts, {width} wide, {kind}, first component {self.shares[0]:.1%}>"

    def _checked(self, embeddings: npt.ArrayLike) -> Array:
        rows = np.asarray(embeddings, np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.mean):
            raise InputError(f"embeddings of shape {rows.shape}; this spectrum is of embeddings [n, {len(self.mean)}]")
        return rows


def spectrum_of(embeddings: Any, *, centred: bool = False) -> Spectrum:
    """Find the principal components of text embeddings (Eq. 9).

    Args:
        embeddings: [n, d] numbers, or an iterable of such blocks for a corpus that does not fit memory.
        centred: take the mean out first, as PCA does; the paper does not.

    Raises:
        InputError: there are fewer than two texts or all embeddings are zero, blocks differ in width, or a number is
            NaN or infinity.
    """
    moments = Moments()
    for block in blocks(embeddings):
        moments.add(block)
    return moments.spectrum(centred=centred)


def _signs(components: Array, mean: Array) -> Array:
    """Return the sign of each component: to the side of the mean, else that of its largest entry."""
    along = components @ mean
    largest = components[np.arange(len(components)), np.abs(components).argmax(axis=1)]
    signs: Array = np.where(np.abs(along) > _NO_PART * np.linalg.norm(mean), np.sign(along), np.sign(largest))
    return signs


def blocks(embeddings: Any) -> Iterable[npt.NDArray[Any]]:
    """Return an array as its only block, and an iterable of blocks as it is."""
    return [np.asarray(embeddings)] if hasattr(embeddings, "shape") else embeddings
