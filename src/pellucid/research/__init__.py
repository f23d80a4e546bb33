"""The papers' analyses, ablations and baselines; nothing else in the package needs them."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.research.alignment import (
        Alignment as Alignment,
        EmbeddedTexts as EmbeddedTexts,
        KeyTokenComparison as KeyTokenComparison,
        Stems as Stems,
        align as align,
        align_embeddings as align_embeddings,
        compare_key_tokens as compare_key_tokens,
        embedded_texts as embedded_texts,
    )
    from pellucid.research.baselines import (
        BASELINES as BASELINES,
        PRESETS as PRESETS,
        DenseEmbedder as DenseEmbedder,
        KeyTokenPreset as KeyTokenPreset,
        echo as echo,
        open_baseline as open_baseline,
        open_preset as open_preset,
        promptreps as promptreps,
        promptreps_dense as promptreps_dense,
        splade as splade,
    )
    from pellucid.research.components import Components as Components, principal_components as principal_components
    from pellucid.research.firing import LexicalFiring as LexicalFiring, lexical_firing as lexical_firing
    from pellucid.research.norms import (
        RankNorms as RankNorms,
        TagNorms as TagNorms,
        norms_by_rank as norms_by_rank,
        norms_by_tag as norms_by_tag,
        read_tagged as read_tagged,
    )
    from pellucid.research.separation import (
        LanguageSeparation as LanguageSeparation,
        language_separation as language_separation,
    )
    from pellucid.research.spectrum import (
        Contributions as Contributions,
        Sweep as Sweep,
        Variation as Variation,
        contributions as contributions,
        sweep as sweep,
        variation as variation,
    )
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
