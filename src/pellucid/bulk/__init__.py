"""Work over a whole corpus: encode it into shards, resumed after a crash; find its near-duplicates."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.bulk.batches import BatchEncoder as BatchEncoder
    from pellucid.bulk.corpora import encode_corpus as encode_corpus
    from pellucid.bulk.shards import Shard as Shard, read_shards as read_shards
    from pellucid.bulk.near_duplicates import duplicates as duplicates, write_kept as write_kept
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.bulk.batches": "BatchEncoder",
            "pellucid.bulk.corpora": "encode_corpus",
            "pellucid.bulk.shards": "Shard read_shards",
            "pellucid.bulk.near_duplicates": "duplicates write_kept",
        },
    )
