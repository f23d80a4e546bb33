"""Chroma: embedding functions for its collections, dense and sparse.

Chroma stores the name of a function and of its model with a collection. A program that opens one and queries it has to
import this module before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.errors import InputError, missing_extra
from pellucid.fingerprint import fingerprint, same_model
from pellucid.integrations.plain import dense, name_of, open_model, sparse

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

if TYPE_CHECKING:
    from typing_extensions import Self


class _Named:
    """What both functions share: a model, stored by its name."""

    def __init__(self, model: Any) -> None:
        self._given, self.model = model, open_model(model)

    def get_config(self) -> dict[str, Any]:
        """Return what Chroma stores.

        Raises:
            InputError: the model is on no disk.
        """
        return {"model": name_of(self._given), "fingerprint": fingerprint(self.model)}

    @classmethod
    def _opened(cls, config: dict[str, Any]) -> Self:
        """Return the function that `get_config` describes, unless another model is at its place by now."""
        found = cls(config["model"])
        if not same_model(config.get("fingerprint", {}), fingerprint(found.model)):
            raise InputError(
                f"the collection was made with another model than {config['model']!r:.200} is now; put that one back, "
                "or make the collection anew"
            )
        return found

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Take any configuration; what is wrong with it shows when it is opened."""

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Take no other model: its vectors are not comparable with those that are there.

        Raises:
            InputError: it is another model.
        """
        if not same_model(old_config.get("fingerprint", {}), new_config.get("fingerprint", {})):
            raise InputError(
                f"the collection holds vectors of {old_config.get('model')!r:.200}, and "
                f"{new_config.get('model')!r:.200} is another model; make a collection for it"
            )


@register_embedding_function
class PellucidEmbeddingFunction(_Named, EmbeddingFunction[Documents]):
    """A model as Chroma's embedding function. A model given as an object has to be saved somewhere."""

    def __init__(self, model: Any = "static-en") -> None:
        """Take a pellucid model, or the bundled name, folder or hub id of one."""
        super().__init__(model)

    def __call__(self, input: Documents) -> Embeddings:
        """Return an embedding of each document."""
        return list(dense(self.model.encode_document(input)))

    def embed_query(self, input: Documents) -> Embeddings:
        """Return an embedding of each query."""
        return list(dense(self.model.encode_query(input)))

    @staticmethod
    def name() -> str:
        """Return the name that Chroma stores."""
        return "pellucid"

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> PellucidEmbeddingFunction:
        """Return the function that `get_config` describes."""
        return PellucidEmbeddingFunction._opened(config)

    def default_space(self) -> Space:
        """Return what collections compare by."""
        return "cosine"

    def supported_spaces(self) -> list[Space]:
        """Return what they can compare by."""
        return ["cosine", "l2", "ip"]


@register_sparse_embedding_function
class PellucidSparseEmbeddingFunction(_Named, SparseEmbeddingFunction[Documents]):
    """A model of a sparse family as Chroma's sparse embedding function; labels are the names of the dimensions."""

    def __init__(self, model: Any) -> None:
        """Take a pellucid model, or the bundled name, folder or hub id of one."""
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

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> PellucidSparseEmbeddingFunction:
        """Return the function that `get_config` describes."""
        return PellucidSparseEmbeddingFunction._opened(config)

    def _vectors(self, rows: Any) -> list[SparseVector]:
        return [
            SparseVector(indices=indices, values=values, labels=[self._names[number] for number in indices])
            for indices, values in sparse(rows)
        ]
