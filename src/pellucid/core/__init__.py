"""The contract of all models: encode, explain, describe, edit; roles and arrays, queries, dimensions, fingerprints."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.core.dimensions import Dimension as Dimension, Dimensions as Dimensions
    from pellucid.core.embedder import Embedder as Embedder
    from pellucid.core.pca import spectrum_of as spectrum_of
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.core.dimensions": "Dimension Dimensions",
            "pellucid.core.embedder": "Embedder",
            "pellucid.core.pca": "spectrum_of",
        },
    )
