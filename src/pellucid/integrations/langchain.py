"""LangChain: embeddings for its vector stores, and an index as a retriever."""

from __future__ import annotations

from typing import Any

from pellucid.errors import missing_extra
from pellucid.integrations.plain import dense, metadata_of, open_index, open_model

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from pydantic import field_validator
except ImportError as error:
    raise missing_extra("langchain-core", "langchain") from error


class PellucidEmbeddings(Embeddings):
    """A model as LangChain's `Embeddings`."""

    def __init__(self, model: Any = "static-en") -> None:
        """Take a model, or open one.

        Args:
            model: a pellucid model, or its bundled name, folder or hub id. Of a sparse family the rows are filled up
                with zeros; `pellucid.integrations.langchain_qdrant` keeps them sparse.
        """
        self.model = open_model(model)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return an embedding of each document."""
        rows: list[list[float]] = dense(self.model.encode_document(texts)).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """Return the embedding of a query."""
        row: list[float] = dense(self.model.encode_query([text]))[0].tolist()
        return row


class PellucidRetriever(BaseRetriever):
    """An index as a retriever: `PellucidRetriever(index="my-index", k=4)`.

    `metadata["pellucid"]` of a document says why it was found: score, parts, reasons and highlights.

    Attributes:
        index: a `pellucid.Index`, or the folder of one.
        k: the number of documents.
        where: conditions on the metadata, as `Index.search` takes them.
    """

    index: Any
    k: int = 4
    where: Any = None

    _open = field_validator("index")(open_index)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        hits = self.index.search(query, self.k, where=self.where)
        return [Document(hit.text, id=hit.id, metadata=metadata_of(hit)) for hit in hits]
