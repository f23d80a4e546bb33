"""Lexicon embeddings (LENS): a coordinate is a cluster of words; how the clusters and the model are made."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.lexicon.clusters import (
        Clusters as Clusters,
        FittedHead as FittedHead,
        cluster_vocabulary as cluster_vocabulary,
        fit_head as fit_head,
        fit_rows as fit_rows,
    )
    from pellucid.lexicon.embedder import LexiconEmbedder as LexiconEmbedder
    from pellucid.lexicon.settings import LexiconSettings as LexiconSettings
    from pellucid.lexicon.static import (
        StaticLexiconEmbedder as StaticLexiconEmbedder,
        WordClusters as WordClusters,
    )
    from pellucid.lexicon.training import (
        TRAINED as TRAINED,
        TrainingSettings as TrainingSettings,
        train_lexicon as train_lexicon,
        trained_model as trained_model,
    )
    from pellucid.lexicon.training_data import (
        TrainingRow as TrainingRow,
        TrainingSet as TrainingSet,
        mine_negatives as mine_negatives,
        read_training_sets as read_training_sets,
        score_rows as score_rows,
        write_rows as write_rows,
    )
    from pellucid.lexicon.trainer import TextSet as TextSet
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
