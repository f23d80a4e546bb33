"""Several models side by side: a score is the weighted mean of theirs, and explanations still add up."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.ensemble.embedder import EnsembleEmbedder as EnsembleEmbedder
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.ensemble.embedder": "EnsembleEmbedder",
        },
    )
