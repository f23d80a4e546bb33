"""LangChain: embeddings for its vector stores, and an index as a retriever."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from pellucid.errors import importing
from pellucid.index.index import Index
from pellucid.loading import load

with importing("langchain", "langchain-core"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, field_validator

if TYPE_CHECKING:
    from pellucid.index.hits import Hit, Hits

_ZERO_ROW_VALUE = 1e-6


class PellucidEmbeddings(Embeddings):
    """A model as LangChain's `Embeddings`.

    Vector stores divide by the length of a row, and zero rows, of texts without a known word, become NaN there, which
    is sorted anywhere. Such a row gets a tiny value in the last dimension, where most texts have little: its cosine to
    other texts is near 0, and that of an unknown query to an unknown document -1.
    """

    def __init__(self, model: Any = "static-en") -> None:
        """Take a pellucid model, or its bundled name, folder or hub id."""
        self.model = load(model) if isinstance(model, (str, os.PathLike)) else model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return an embedding of each document."""
        return _without_zero_rows(self.model.encode_document(texts), -_ZERO_ROW_VALUE)

    def embed_query(self, text: str) -> list[float]:
        """Return the embedding of a query."""
        return _without_zero_rows(self.model.encode_query([text]), _ZERO_ROW_VALUE)[0]


class PellucidRetriever(BaseRetriever):
    """An index as a retriever: `PellucidRetriever(index="my-index", k=4)`.

    `metadata["pellucid"]` of a document tells why it was found: score, parts, summary, snippet, groups, reasons and
    marks, and which words of the query are unknown or were ignored. `k` and `where`
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

    @field_validator("index")
    @classmethod
    def _open(cls, index: Any) -> Any:
        return Index.open(os.fspath(index)) if isinstance(index, (str, os.PathLike)) else index

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, where: Any = None
    ) -> list[Document]:
        k, where = self.k if k is None else k, self.where if where is None else where
        hits = self.index.search(query, k, where=where)
        return [Document(hit.text, id=hit.id, metadata=_metadata(hit, hits)) for hit in hits]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None, where: Any = None
    ) -> list[Document]:
        manager = run_manager.get_sync()  # LangChain's own way into a thread drops the arguments of the call
        return await asyncio.to_thread(self._get_relevant_documents, query, run_manager=manager, k=k, where=where)


def _without_zero_rows(rows: Any, value: float) -> list[list[float]]:
    """Return embeddings as lists of numbers; zero rows get a `value` in the last dimension."""
    filled = rows.toarray() if hasattr(rows, "toarray") else rows.copy()
    filled[~filled.any(axis=1), -1] = value
    return filled.tolist()  # type: ignore[no-any-return]


def _metadata(hit: Hit, hits: Hits) -> dict[str, Any]:
    """Return a document's own metadata, and under one more key why it was found, as `Hit.to_dict` says it.

    Of the groups only names and numbers are kept: names hold the phrases.
    """
    reasons = hit.to_dict()
    del reasons["text"], reasons["metadata"]  # stored elsewhere
    reasons["groups"] = [
        {name: group[name] for name in ("name", "contribution", "share", "kind")} for group in reasons["groups"]
    ]
    return {**hit.metadata, "pellucid": {**reasons, "unknown": list(hits.unknown), "ignored": list(hits.ignored)}}
