"""Static word embeddings: a text is the mean of its words' vectors; how such models are made and changed."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.static.embedder import StaticEmbedder as StaticEmbedder, fit_spelling as fit_spelling
    from pellucid.static.training.distill import PcaSettings as PcaSettings, distill as distill
    from pellucid.static.training.extraction import ExtractionSettings as ExtractionSettings
    from pellucid.static.training.languages import distill_languages as distill_languages
    from pellucid.static.training.parallel import read_parallel as read_parallel
    from pellucid.static.training.tuning import (
        RefinementSettings as RefinementSettings,
        TuningSettings as TuningSettings,
    )
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.static.embedder": "StaticEmbedder fit_spelling",
            "pellucid.static.training.distill": "PcaSettings distill",
            "pellucid.static.training.extraction": "ExtractionSettings",
            "pellucid.static.training.languages": "distill_languages",
            "pellucid.static.training.parallel": "read_parallel",
            "pellucid.static.training.tuning": "RefinementSettings TuningSettings",
        },
    )
