"""LangChain: embeddings for its vector stores, and an index as a retriever."""

from __future__ import annotations

import asyncio
from typing import Any

from pellucid.errors import missing_extra
from pellucid.integrations.plain import dense, known_arguments, metadata_of, open_index, open_model, refuse_unknown

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, field_validator, model_validator
except ImportError as error:
    raise missing_extra("langchain-core", "langchain") from error


class PellucidEmbeddings(Embeddings):
    """A model as LangChain's `Embeddings`."""

    @known_arguments
    def __init__(self, model: Any = "static-en") -> None:
        """Take a pellucid model, or its bundled name, folder or hub id; `langchain_qdrant` keeps sparse rows sparse."""
        self.model = open_model(model)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return an embedding of each document."""
        rows: list[list[float]] = dense(self.model.encode_document(texts), "document").tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """Return the embedding of a query."""
        row: list[float] = dense(self.model.encode_query([text]), "query")[0].tolist()
        return row


class PellucidRetriever(BaseRetriever):
    """An index as a retriever: `PellucidRetriever(index="my-index", k=4)`.

    `metadata["pellucid"]` of a document tells why it was found: score, parts, summary, groups, reasons and
    highlights, and which words of the query are unknown or were ignored. `k` and `where`
    can also be given for one call: `retriever.invoke("home loans", k=10, where={"year": 2024})`.

    Attributes:
        index: a `pellucid.Index`, or the folder of one.
        k: the number of documents.
        where: conditions on the metadata, as `Index.search` takes them.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    index: Any
    k: int = 4
    where: Any = None

    _open = field_validator("index")(open_index)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, named: Any) -> Any:
        refuse_unknown(named, cls.model_fields)
        return named

    @known_arguments
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, where: Any = None
    ) -> list[Document]:
        k, where = self.k if k is None else k, self.where if where is None else where
        hits = self.index.search(query, k, where=where)
        return [Document(hit.text, id=hit.id, metadata=metadata_of(hit, hits)) for hit in hits]

    @known_arguments
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None, where: Any = None
    ) -> list[Document]:
        manager = run_manager.get_sync()  # LangChain's own way into a thread drops the arguments of the call
        return await asyncio.to_thread(self._get_relevant_documents, query, run_manager=manager, k=k, where=where)
