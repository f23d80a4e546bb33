"""The papers' analyses, ablations and baselines; nothing else in the package needs them."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.research.alignment import (
        Alignment as Alignment,
        EmbeddedTexts as EmbeddedTexts,
        Stems as Stems,
        align as align,
        align_embeddings as align_embeddings,
        embedded_texts as embedded_texts,
    )
    from pellucid.research.baselines import (
        BASELINES as BASELINES,
        DenseEmbedder as DenseEmbedder,
        echo as echo,
        open_baseline as open_baseline,
        promptreps as promptreps,
        promptreps_dense as promptreps_dense,
        splade as splade,
    )
    from pellucid.research.comparison import (
        KeyTokenComparison as KeyTokenComparison,
        compare_key_tokens as compare_key_tokens,
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
    from pellucid.research.presets import (
        PRESETS as PRESETS,
        KeyTokenPreset as KeyTokenPreset,
        open_preset as open_preset,
    )
    from pellucid.research.separation import (
        LanguageSeparation as LanguageSeparation,
        language_separation as language_separation,
    )
    from pellucid.research.spectrum import (
        Contributions as Contributions,
        Variation as Variation,
        contributions as contributions,
        variation as variation,
    )
    from pellucid.research.sweeping import Sweep as Sweep, sweep as sweep
else:
    _HOMES = {
        "alignment": "Alignment EmbeddedTexts Stems align align_embeddings embedded_texts",
        "baselines": "BASELINES DenseEmbedder echo open_baseline promptreps promptreps_dense splade",
        "comparison": "KeyTokenComparison compare_key_tokens",
        "components": "Components principal_components",
        "firing": "LexicalFiring lexical_firing",
        "norms": "RankNorms TagNorms norms_by_rank norms_by_tag read_tagged",
        "presets": "PRESETS KeyTokenPreset open_preset",
        "separation": "LanguageSeparation language_separation",
        "spectrum": "Contributions Variation contributions variation",
        "sweeping": "Sweep sweep",
    }
    __getattr__, __dir__, __all__ = lazy(__name__, _HOMES)
