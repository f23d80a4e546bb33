"""Search with reasons on one machine: texts in, hits out, and for every hit the terms that its score is made of."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.evaluation.tasks import read_qrels as read_qrels, read_queries as read_queries
    from pellucid.index.hits import Hit as Hit, Hits as Hits
    from pellucid.index.index import Index as Index
    from pellucid.index.precomputed import QueryFunction as QueryFunction
    from pellucid.index.qdrant import QdrantIndex as QdrantIndex
    from pellucid.index.reasons import Reasons as Reasons
    from pellucid.index.why_not import WhyNot as WhyNot
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.evaluation.tasks": "read_qrels read_queries",
            "pellucid.index.hits": "Hit Hits",
            "pellucid.index.index": "Index",
            "pellucid.index.precomputed": "QueryFunction",
            "pellucid.index.qdrant": "QdrantIndex",
            "pellucid.index.reasons": "Reasons",
            "pellucid.index.why_not": "WhyNot",
        },
    )
