"""Engines for an index: the same calls, and the vectors elsewhere, on many machines or behind a graph."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.engines.edge import Edge as Edge
    from pellucid.engines.milvus import Milvus as Milvus
    from pellucid.engines.qdrant import Qdrant as Qdrant
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
