"""Lexicon embeddings (LENS): a coordinate is a cluster of words; how the clusters and the model are made."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.lexicon.clusters import Clusters as Clusters, cluster_vocabulary as cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder as LexiconEmbedder, LexiconSettings as LexiconSettings
    from pellucid.lexicon.static import StaticLexiconEmbedder as StaticLexiconEmbedder
    from pellucid.lexicon.training import TrainingSettings as TrainingSettings, train_lexicon as train_lexicon
    from pellucid.lexicon.training_data import (
        TrainingSet as TrainingSet,
        read_training_sets as read_training_sets,
    )
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.lexicon.clusters": "Clusters cluster_vocabulary",
            "pellucid.lexicon.embedder": "LexiconEmbedder LexiconSettings",
            "pellucid.lexicon.static": "StaticLexiconEmbedder",
            "pellucid.lexicon.training": "TrainingSettings train_lexicon",
            "pellucid.lexicon.training_data": "TrainingSet read_training_sets",
        },
    )
