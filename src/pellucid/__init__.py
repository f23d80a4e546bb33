"""pellucid: text embeddings that a person can read and a laptop can afford.

Every name below is imported when it is first used. A package below it, such as `pellucid.anchors`, gives further names;
deeper paths are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid._lazy import lazy
from pellucid.errors import VERSION

__version__ = VERSION  # an import under another name would be private to type checkers

if TYPE_CHECKING:
    from pellucid import errors as errors
    from pellucid.analysis import (
        audit as audit,
        bias as bias,
        cards as cards,
        cite as cite,
        compare as compare,
        report as report,
        topics as topics,
    )
    from pellucid.anchors import AnchorEmbedder as AnchorEmbedder, choose_anchors as choose_anchors
    from pellucid.core.embedder import Embedder as Embedder
    from pellucid.bulk import duplicates as duplicates, encode_corpus as encode_corpus, read_shards as read_shards
    from pellucid.dense.embedder import EncoderEmbedder as EncoderEmbedder
    from pellucid.ensemble import EnsembleEmbedder as EnsembleEmbedder
    from pellucid.evaluation import evaluate as evaluate
    from pellucid.explain.explanation import Explanation as Explanation
    from pellucid.text import CorpusFile as CorpusFile
    from pellucid.index import Index as Index
    from pellucid.keytokens import KeyTokenEmbedder as KeyTokenEmbedder
    from pellucid.lexicon import (
        LexiconEmbedder as LexiconEmbedder,
        StaticLexiconEmbedder as StaticLexiconEmbedder,
        cluster_vocabulary as cluster_vocabulary,
        train_lexicon as train_lexicon,
    )
    from pellucid.persistence.folder import bundled_models as bundled_models, verify as verify
    from pellucid.loading import load as load
    from pellucid.static import StaticEmbedder as StaticEmbedder, distill as distill
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid": "errors",
            "pellucid.analysis": "audit bias cards cite compare report topics",
            "pellucid.anchors": "AnchorEmbedder choose_anchors",
            "pellucid.core.embedder": "Embedder",
            "pellucid.bulk": "duplicates encode_corpus read_shards",
            "pellucid.dense.embedder": "EncoderEmbedder",
            "pellucid.ensemble": "EnsembleEmbedder",
            "pellucid.evaluation": "evaluate",
            "pellucid.explain.explanation": "Explanation",
            "pellucid.text": "CorpusFile",
            "pellucid.index": "Index",
            "pellucid.keytokens": "KeyTokenEmbedder",
            "pellucid.lexicon": "LexiconEmbedder StaticLexiconEmbedder cluster_vocabulary train_lexicon",
            "pellucid.persistence.folder": "bundled_models verify",
            "pellucid.loading": "load",
            "pellucid.static": "StaticEmbedder distill",
        },
    )
