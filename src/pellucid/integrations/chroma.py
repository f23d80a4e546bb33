"""Chroma: embedding functions for its collections, dense and sparse.

Chroma stores the names of a function and of its model with a collection. A program must import this module before it
opens such a collection.
"""

from __future__ import annotations

from typing import Any

from pellucid.core.fingerprint import fingerprint, same_model
from pellucid.errors import InputError, missing_extra
from pellucid.integrations.plain import dense, known_arguments, name_of, open_model, refuse_unknown, sparse

try:
    from chromadb.api.types import (
        Documents,
        EmbeddingFunction,
        Embeddings,
        Space,
        SparseEmbeddingFunction,
        SparseVector,
    )
    from chromadb.utils.embedding_functions import register_embedding_function, register_sparse_embedding_function
except ImportError as error:
    raise missing_extra("chromadb", "chroma") from error


class _StoredByName:
    """A model that is stored by its name and its fingerprint."""

    @known_arguments
    def __init__(self, model: Any) -> None:
        self.model = open_model(model)
        self._stored = {"model": name_of(model), "fingerprint": fingerprint(self.model)}

    def get_config(self) -> dict[str, Any]:
        """Return what Chroma stores."""
        return dict(self._stored)

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Refuse unknown keys; the model is checked when it is opened."""
        refuse_unknown(config, ("model", "fingerprint"))

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Take another name of the same model; another model is an InputError."""
        if not same_model(old_config["fingerprint"], new_config["fingerprint"]):
            raise InputError(
                f"the collection holds vectors of {old_config['model']!r:.80}, and {new_config['model']!r:.80} is "
                "another model. Make another collection for it; after modify, which has stored the new one already, "
                "give this one its own function again"
            )

    @classmethod
    def build_from_config(cls, config: dict[str, Any]) -> Any:
        """Return the function that `get_config` describes, unless its name is now that of another model."""
        cls.validate_config(config)
        function = cls(config["model"])
        function.validate_config_update(config, function.get_config())
        return function


@register_embedding_function
class PellucidEmbeddingFunction(_StoredByName, EmbeddingFunction[Documents]):
    """A model as Chroma's embedding function."""

    @known_arguments
    def __init__(self, model: Any = "static-en") -> None:
        """Take a bundled name, folder or hub id, or a model that was opened from one, whose name is stored."""
        super().__init__(model)

    def __call__(self, input: Documents) -> Embeddings:
        """Return an embedding of each document."""
        return list(dense(self.model.encode_document(input), "document"))

    def embed_query(self, input: Documents) -> Embeddings:
        """Return an embedding of each query."""
        return list(dense(self.model.encode_query(input), "query"))

    @staticmethod
    def name() -> str:
        """Return the name that Chroma stores."""
        return "pellucid"

    def default_space(self) -> Space:
        """Return what collections compare by."""
        return "cosine"

    def supported_spaces(self) -> list[Space]:
        """Return what they can compare by."""
        return ["cosine", "l2", "ip"]


@register_sparse_embedding_function
class PellucidSparseEmbeddingFunction(_StoredByName, SparseEmbeddingFunction[Documents]):
    """A model of a sparse family as Chroma's sparse embedding function; labels are the names of the dimensions."""

    @known_arguments
    def __init__(self, model: Any) -> None:
        """Take a model, as `PellucidEmbeddingFunction` does."""
        super().__init__(model)
        self._names = self.model.dimensions.names

    def __call__(self, input: Documents) -> list[SparseVector]:
        """Return an embedding of each document."""
        return self._vectors(self.model.encode_document(input))

    def embed_query(self, input: Documents) -> list[SparseVector]:
        """Return an embedding of each query."""
        return self._vectors(self.model.encode_query(input))

    @staticmethod
    def name() -> str:
        """Return the name that Chroma stores."""
        return "pellucid-sparse"

    def _vectors(self, rows: Any) -> list[SparseVector]:
        return [
            SparseVector(indices=indices, values=values, labels=[self._names[number] for number in indices])
            for indices, values in sparse(rows)
        ]
