"""KeyBERT, BERTopic and txtai: a model as the embedding model of each.

The first two import torch, so that their classes are made on demand. They can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pellucid.core.embedder import Vectors
from pellucid.errors import MissingExtraError
from pellucid.integrations.plain import dense, known_arguments, open_model


@known_arguments
def keybert_backend(model: Any = "static-en") -> Any:
    """Return a model, or that of a name, folder or hub id, as KeyBERT's backend: `KeyBERT(keybert_backend())`."""
    return _backend("keybert", model)


@known_arguments
def bertopic_backend(model: Any = "static-en") -> Any:
    """Return a model as BERTopic's backend: `BERTopic(embedding_model=bertopic_backend())`."""
    return _backend("bertopic", model)


@known_arguments
def txtai_transform(model: Any = "static-en") -> Callable[[list[str]], Vectors]:
    """Return a model as txtai's function: `Embeddings(method="external", transform=txtai_transform())`."""
    opened = open_model(model)

    def transform(texts: list[str]) -> Vectors:  # txtai takes nothing but a plain function
        return dense(opened.encode(texts), "document")  # it divides rows by their lengths

    return transform


def _backend(library: str, model: Any) -> Any:
    try:
        base: Any = import_module(f"{library}.backend").BaseEmbedder
    except ImportError as error:
        raise MissingExtraError(f"{library} is not installed. Run: pip install {library}") from error

    class PellucidBackend(base):
        def embed(self, documents: list[str], verbose: bool = False) -> Vectors:
            return dense(self.embedding_model.encode(list(documents), show_progress_bar=verbose))

        def __reduce__(self) -> Any:  # the class is in no module; a model given by name stays a name
            return _backend, (library, model)

    return PellucidBackend(embedding_model=open_model(model))
