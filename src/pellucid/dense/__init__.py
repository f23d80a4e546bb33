"""Any encoder, a SentenceTransformer or a function, as an `Embedder`, and the reasons of its scores."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.dense.embedder import EncoderEmbedder as EncoderEmbedder
    from pellucid.dense.measured import MeasuredReasons as MeasuredReasons
    from pellucid.dense.sentences import SentenceReasons as SentenceReasons
    from pellucid.dense.words import WordReasons as WordReasons
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.dense.embedder": "EncoderEmbedder",
            "pellucid.dense.measured": "MeasuredReasons",
            "pellucid.dense.sentences": "SentenceReasons",
            "pellucid.dense.words": "WordReasons",
        },
    )
