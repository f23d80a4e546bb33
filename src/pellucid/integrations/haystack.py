"""Haystack: embedders of queries and documents, dense and sparse, and an index as a retriever."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pellucid.errors import missing_extra
from pellucid.integrations.plain import dense, known_arguments, metadata_of, name_of, open_index, open_model, sparse
from pellucid.process import cached_property

try:
    from haystack import Document, component, default_to_dict
    from haystack.dataclasses import SparseEmbedding
except ImportError as error:
    raise missing_extra("haystack-ai", "haystack") from error

if TYPE_CHECKING:
    from pellucid.core.embedder import Embedder
    from pellucid.index.index import Index


class _Embedder:
    """A model that is opened at the first use, and stored by its name."""

    @known_arguments
    def __init__(self, model: Any = "static-en") -> None:
        """Take a pellucid model, or the bundled name, folder or hub id of one."""
        self._model_or_name = model

    @cached_property
    def model(self) -> Embedder:
        """The opened model."""
        return open_model(self._model_or_name)

    def warm_up(self) -> None:
        """Open the model before the first run."""
        self.model  # noqa: B018

    def to_dict(self) -> dict[str, Any]:
        """Return class and settings, for a pipeline's YAML; the model must have a name."""
        stored: dict[str, Any] = default_to_dict(self, model=name_of(self._model_or_name))
        return stored


@component
class PellucidTextEmbedder(_Embedder):
    """Embeds a query."""

    @component.output_types(embedding=list[float])
    @known_arguments
    def run(self, text: str) -> dict[str, Any]:
        """Return the embedding of `text`."""
        return {"embedding": dense(self.model.encode_query([text]), "query")[0].tolist()}


@component
class PellucidDocumentEmbedder(_Embedder):
    """Embeds documents."""

    @component.output_types(documents=list[Document])
    @known_arguments
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return copies of the documents, with embeddings; a document without content counts as an empty text."""
        rows = dense(self.model.encode_document(_contents(documents)), "document").tolist()
        return {"documents": [replace(document, embedding=row) for document, row in zip(documents, rows)]}


@component
class PellucidSparseTextEmbedder(_Embedder):
    """Embeds a query with a model of a sparse family."""

    @known_arguments
    def __init__(self, model: Any) -> None:
        """Take a pellucid model, or the bundled name, folder or hub id of one."""
        _Embedder.__init__(self, model)  # super() fails: Haystack copies the class

    @component.output_types(sparse_embedding=SparseEmbedding)
    @known_arguments
    def run(self, text: str) -> dict[str, Any]:
        """Return the sparse embedding of `text`."""
        return {"sparse_embedding": _vectors(self.model.encode_query([text]))[0]}


@component
class PellucidSparseDocumentEmbedder(_Embedder):
    """Embeds documents with a model of a sparse family."""

    @known_arguments
    def __init__(self, model: Any) -> None:
        """Take a pellucid model, or the bundled name, folder or hub id of one."""
        _Embedder.__init__(self, model)  # super() fails: Haystack copies the class

    @component.output_types(documents=list[Document])
    @known_arguments
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return copies of the documents, with sparse embeddings; one without content counts as an empty text."""
        rows = _vectors(self.model.encode_document(_contents(documents)))
        return {"documents": [replace(document, sparse_embedding=row) for document, row in zip(documents, rows)]}


@component
class PellucidRetriever:
    """Finds documents in an index.

    `meta["pellucid"]` of a document tells why it was found: parts, summary, groups, reasons and
    highlights, and which words of the query are unknown or were ignored.
    """

    @known_arguments
    def __init__(self, index: Any, top_k: int = 10, where: Any = None) -> None:
        """Take an index; a folder is opened at the first use.

        Args:
            index: a `pellucid.Index`, or the folder of one.
            top_k: the number of documents.
            where: conditions on the metadata, as `Index.search` takes them.
        """
        self._index_or_folder, self.top_k, self.where = index, top_k, where

    @cached_property
    def index(self) -> Index:
        """The opened index."""
        return open_index(self._index_or_folder)

    def warm_up(self) -> None:
        """Open the index before the first run."""
        self.index  # noqa: B018

    def to_dict(self) -> dict[str, Any]:
        """Return class and settings, for a pipeline's YAML."""
        folder = os.fspath(getattr(self._index_or_folder, "folder", self._index_or_folder))
        stored: dict[str, Any] = default_to_dict(self, index=folder, top_k=self.top_k, where=self.where)
        return stored

    @component.output_types(documents=list[Document])
    @known_arguments
    def run(self, query: str, top_k: int | None = None, where: Any = None) -> dict[str, Any]:
        """Return the documents with the highest scores; `top_k` and `where` take the place of the component's own."""
        top_k = self.top_k if top_k is None else top_k
        where = self.where if where is None else where
        hits = self.index.search(query, top_k, where=where)
        documents = [
            Document(id=hit.id, content=hit.text, meta=metadata_of(hit, hits), score=hit.score) for hit in hits
        ]
        return {"documents": documents}


def _contents(documents: list[Document]) -> list[str]:
    return [document.content or "" for document in documents]


def _vectors(rows: Any) -> list[SparseEmbedding]:
    return [SparseEmbedding(indices=indices, values=values) for indices, values in sparse(rows)]
