"""What the papers ask of principal components: shares, the part of the mean, and embeddings split along them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pellucid.core.pca import Array, Spectrum
from pellucid.errors import InputError


def shares(spectrum: Spectrum) -> Array:
    """Return the share of each component in the embeddings' squared length (variance, if centred), [d]; sums to 1."""
    energy = spectrum.singular_values**2
    total = float(energy.sum())
    return energy / total if total > 0 else energy


def level(spectrum: Spectrum) -> float:
    """Return the mean embedding's part along u_1; adding -level x u_1 to each embedding takes it out (Eq. 14)."""
    return float(spectrum.mean @ spectrum.components[0])


def project(spectrum: Spectrum, embeddings: npt.ArrayLike) -> Array:
    """Return the part of each embedding along each component, float64 [n, d] (h . u_j, never centred)."""
    coordinates: Array = _checked(spectrum, embeddings) @ spectrum.components.T
    return coordinates


def split(spectrum: Spectrum, embeddings: npt.ArrayLike) -> tuple[Array, Array]:
    """Return u_1 u_1' h and the rest, which add up to h (Eq. 11), each float64 [n, d]."""
    rows = _checked(spectrum, embeddings)
    first = np.outer(rows @ spectrum.components[0], spectrum.components[0])
    return first, rows - first


def _checked(spectrum: Spectrum, embeddings: npt.ArrayLike) -> Array:
    """Return embeddings as float64, after checking their width."""
    rows = np.asarray(embeddings, np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(spectrum.mean):
        raise InputError(f"embeddings of shape {rows.shape}; this spectrum is of embeddings [n, {len(spectrum.mean)}]")
    return rows
