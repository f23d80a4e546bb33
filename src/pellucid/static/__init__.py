"""Static word embeddings: a text is the mean of its words' vectors; how such models are made and changed."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.static.bags import Bags as Bags
    from pellucid.static.bulk import BulkEncoder as BulkEncoder
    from pellucid.static.embedder import StaticEmbedder as StaticEmbedder
    from pellucid.static.folder import read_text_vectors as read_text_vectors
    from pellucid.static.making.distill import (
        PcaSettings as PcaSettings,
        Retraining as Retraining,
        distill as distill,
        distill_extraction as distill_extraction,
        join_extractions as join_extractions,
        subwords_of as subwords_of,
    )
    from pellucid.static.making.extraction import (
        Extraction as Extraction,
        ExtractionSettings as ExtractionSettings,
        extract as extract,
    )
    from pellucid.static.making.languages import (
        LanguageWords as LanguageWords,
        add_languages as add_languages,
        anchored_words as anchored_words,
        distill_languages as distill_languages,
        join_languages as join_languages,
        pair_bags as pair_bags,
    )
    from pellucid.static.making.merging import Merging as Merging, merge_vocabularies as merge_vocabularies
    from pellucid.static.making.parallel import read_parallel as read_parallel
    from pellucid.static.making.segmentation import segmenter as segmenter
    from pellucid.static.making.training import (
        PairBags as PairBags,
        RefinementSettings as RefinementSettings,
        TuningSettings as TuningSettings,
        refine as refine,
        tune_on_pairs as tune_on_pairs,
    )
    from pellucid.static.making.vocabulary import (
        Addition as Addition,
        Pruning as Pruning,
        add_words as add_words,
        fit_spelling as fit_spelling,
        prune as prune,
    )
    from pellucid.static.spelling import Speller as Speller, ngram_weights as ngram_weights
    from pellucid.static.tables import as_static as as_static, merge_static as merge_static
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
