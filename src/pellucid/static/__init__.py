"""Static word embeddings: a text is the mean of its words' vectors; how such models are made and changed."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.static.embedder import StaticEmbedder as StaticEmbedder
    from pellucid.static.training.distill import PcaSettings as PcaSettings, distill as distill
    from pellucid.static.training.extraction import ExtractionSettings as ExtractionSettings
    from pellucid.static.training.languages import (
        add_languages as add_languages,
        distill_languages as distill_languages,
    )
    from pellucid.static.training.parallel import read_parallel as read_parallel
    from pellucid.static.training.segmentation import segmenter as segmenter
    from pellucid.static.training.tuning import (
        RefinementSettings as RefinementSettings,
        TuningSettings as TuningSettings,
    )
    from pellucid.static.training.vocabulary import add_words as add_words, fit_spelling as fit_spelling, prune as prune
    from pellucid.static.tables import as_static as as_static
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
