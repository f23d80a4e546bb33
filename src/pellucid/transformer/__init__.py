"""The transformer behind lexicon and key-token models: how it is opened, what it reads and what it computes."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.transformer.attention import set_attention as set_attention
    from pellucid.transformer.backbone import Backbone as Backbone, open_backbone as open_backbone
    from pellucid.transformer.pooled_head import max_pooled as max_pooled
    from pellucid.transformer.reading import ReadingSettings as ReadingSettings
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.transformer.attention": "set_attention",
            "pellucid.transformer.backbone": "Backbone open_backbone",
            "pellucid.transformer.pooled_head": "max_pooled",
            "pellucid.transformer.reading": "ReadingSettings",
        },
    )
