"""langchain-qdrant: sparse embeddings for `QdrantVectorStore`."""

from __future__ import annotations

from typing import Any

from pellucid.errors import missing_extra
from pellucid.integrations.plain import known_arguments, open_model, sparse

try:
    from langchain_qdrant.sparse_embeddings import SparseEmbeddings, SparseVector
except ImportError as error:
    raise missing_extra("langchain-qdrant", "langchain-qdrant") from error


class PellucidSparseEmbeddings(SparseEmbeddings):
    """A model of a sparse family as langchain-qdrant's `SparseEmbeddings`."""

    @known_arguments
    def __init__(self, model: Any) -> None:
        """Take a pellucid model, or its bundled name, folder or hub id."""
        self.model = open_model(model)

    def embed_documents(self, texts: list[str]) -> list[SparseVector]:
        """Return an embedding of each document."""
        return _vectors(self.model.encode_document(texts))

    def embed_query(self, text: str) -> SparseVector:
        """Return the embedding of a query."""
        return _vectors(self.model.encode_query([text]))[0]


def _vectors(rows: Any) -> list[SparseVector]:
    return [SparseVector(indices=indices, values=values) for indices, values in sparse(rows)]
