"""Anchor embeddings (LDIR): a coordinate is named by a sentence, an anchor; how anchors are chosen."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.anchors.candidates import (
        CandidateSettings as CandidateSettings,
        prepare_candidates as prepare_candidates,
    )
    from pellucid.anchors.embedder import AnchorEmbedder as AnchorEmbedder
    from pellucid.anchors.embedder import read_anchors as read_anchors
    from pellucid.anchors.sampling import (
        choose_anchors as choose_anchors,
        farthest_points as farthest_points,
        kmeans_points as kmeans_points,
        uniform_points as uniform_points,
    )
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.anchors.candidates": "CandidateSettings prepare_candidates",
            "pellucid.anchors.embedder": "AnchorEmbedder read_anchors",
            "pellucid.anchors.sampling": "choose_anchors farthest_points kmeans_points uniform_points",
        },
    )
