"""Work over a whole corpus: many files' worth of texts, on several workers, resumed after a crash."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.bulk.batches import BatchEncoder as BatchEncoder
    from pellucid.bulk.corpora import CorpusSettings as CorpusSettings, encode_corpus as encode_corpus
    from pellucid.bulk.shards import Shard as Shard, read_shards as read_shards
else:
    _HOMES = {
        "batches": "BatchEncoder",
        "corpora": "CorpusSettings encode_corpus",
        "shards": "Shard read_shards",
    }
    __getattr__, __dir__, __all__ = lazy(__name__, _HOMES)
