"""Key tokens: a coordinate is a token that a language model's embedding is aligned with."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.keytokens.adjustments import Adjustment as Adjustment
    from pellucid.keytokens.alignment import TokenAlignment as TokenAlignment
    from pellucid.keytokens.alignment import token_alignment as token_alignment
    from pellucid.keytokens.embedder import KeyTokenEmbedder as KeyTokenEmbedder
    from pellucid.keytokens.head import TopTokens as TopTokens
    from pellucid.keytokens.states import KeyTokenSettings as KeyTokenSettings
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.keytokens.adjustments": "Adjustment",
            "pellucid.keytokens.alignment": "TokenAlignment token_alignment",
            "pellucid.keytokens.embedder": "KeyTokenEmbedder",
            "pellucid.keytokens.head": "TopTokens",
            "pellucid.keytokens.states": "KeyTokenSettings",
        },
    )
