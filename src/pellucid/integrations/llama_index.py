"""LlamaIndex: dense and sparse embeddings for its vector stores, and an index as a retriever."""

from __future__ import annotations

import asyncio
from typing import Any

from pellucid.errors import missing_extra
from pellucid.integrations.plain import (
    KEY,
    dense,
    known_arguments,
    metadata_of,
    name_of,
    open_index,
    open_model,
    refuse_unknown,
    sparse,
)

try:
    from llama_index.core.base.embeddings.base_sparse import BaseSparseEmbedding
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator, model_validator
except ImportError as error:
    raise missing_extra("llama-index-core", "llama-index") from error


class _StoredByName(BaseModel):
    """A model in a field that is stored by its name, and the single and async calls of both kinds of embedding."""

    model_config = ConfigDict(extra="forbid")  # otherwise a mistyped `model` would give the default

    model: Any = Field(description="A pellucid model, or its bundled name, folder or hub id.")
    model_name: str = "unknown"
    embed_batch_size: int = Field(default=256, description="Texts that are encoded at once.", gt=0, le=2048)

    _open = field_validator("model")(open_model)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, named: Any) -> Any:
        refuse_unknown(named, cls.model_fields)
        return named

    @field_serializer("model")
    def _stored(self, model: Any) -> str:
        """Return the model's name; without one its repr, since LlamaIndex writes it in events."""
        return repr(model) if model.folder is None else name_of(model)

    def model_post_init(self, context: Any) -> None:
        """Set `model_name`, if the model has a name."""
        super().model_post_init(context)
        if self.model_name == "unknown" and self.model.folder is not None:
            self.model_name = name_of(self.model)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that it is stored under."""
        return cls.__name__

    def _get_text_embedding(self: Any, text: str) -> Any:
        return self._get_text_embeddings([text])[0]

    async def _aget_query_embedding(self: Any, query: str) -> Any:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self: Any, text: str) -> Any:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self: Any, texts: list[str]) -> Any:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


class PellucidEmbedding(_StoredByName, BaseEmbedding):
    """A model as LlamaIndex's embedding: `PellucidEmbedding(model="static-en")`.

    Sparse rows are filled with zeros; `PellucidSparseEmbedding` keeps them sparse.
    """

    model: Any = Field("static-en", validate_default=True)

    def _get_query_embedding(self, query: str) -> list[float]:
        row: list[float] = dense(self.model.encode_query([query]), "query")[0].tolist()
        return row

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = dense(self.model.encode_document(texts), "document").tolist()
        return rows


class PellucidSparseEmbedding(_StoredByName, BaseSparseEmbedding):
    """A model of a sparse family as LlamaIndex's sparse embedding: number of the dimension -> value."""

    def _get_query_embedding(self, query: str) -> dict[int, float]:
        return _entries(self.model.encode_query([query]))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[dict[int, float]]:
        return _entries(self.model.encode_document(texts))


class PellucidRetriever(BaseRetriever):
    """An index as a retriever.

    `metadata["pellucid"]` of a node tells why it was found: parts, summary, groups, reasons and
    highlights, and which words of the query are unknown or were ignored. It is hidden from language
    models and embeddings, which get all other metadata from LlamaIndex.
    """

    @known_arguments
    def __init__(self, index: Any, similarity_top_k: int = 10, where: Any = None) -> None:
        """Take an index or the folder of one, the number of nodes, and conditions as of `Index.search`."""
        super().__init__()
        self.index, self.similarity_top_k, self.where = open_index(index), similarity_top_k, where

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self.index.search(query_bundle.query_str, self.similarity_top_k, where=self.where)
        hidden = {"excluded_embed_metadata_keys": [KEY], "excluded_llm_metadata_keys": [KEY]}
        return [
            NodeWithScore(
                node=TextNode(id_=hit.id, text=hit.text, metadata=metadata_of(hit, hits), **hidden), score=hit.score
            )
            for hit in hits
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _entries(rows: Any) -> list[dict[int, float]]:
    return [dict(zip(indices, values)) for indices, values in sparse(rows)]
