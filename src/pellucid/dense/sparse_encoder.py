"""A `SparseEncoder` of sentence-transformers (SPLADE) as an `Embedder`: its dimensions are the tokens of a vocabulary.

Where the model compares by the dot product, so do `similarity` and `explain`: a score is the sum over tokens of what
one text weighs times what the other does.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from pellucid.core.arrays import Role, to_2d_array
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.core.embedder import Embedder
from pellucid.core.query import Query
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.errors import InputError
from pellucid.process import cached_property, lock_of


class SparseEncoderEmbedder(EncoderEmbedder):
    """A SparseEncoder, with the methods of every other model; a row of an explanation is a token of both texts."""

    family: ClassVar[str] = "sparse-encoder"
    query_type: ClassVar[type[Query]] = Query
    truncates: ClassVar[bool] = False

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Any:
        method = getattr(self.model, f"encode_{role}" if role else "encode")
        with lock_of(self.model):
            rows = to_2d_array(method(texts or ["a text"], batch_size=batch_size, show_progress_bar=show_progress_bar))
        return rows[: len(texts)].astype(np.float32)

    @property
    def similarity_fn_name(self) -> str:  # type: ignore[override]
        """The model's: "dot", or "cosine"."""
        return str(self.model.similarity_fn_name)

    def get_embedding_dimension(self) -> int:
        """Return the number of tokens."""
        return len(self.dimensions)

    @cached_property
    def dimensions(self) -> Dimensions:
        """The tokens in the order of their ids, as the tokenizer spells them."""
        tokens = self.tokenizer.convert_ids_to_tokens(range(self.encode([]).shape[1]))
        return Dimensions(Dimension(token or f"token {number}") for number, token in enumerate(tokens))

    def similarity_rows(self, embeddings: Any) -> Any:
        """Return embeddings so that the product of two rows is their similarity: as they are for the dot product."""
        is_cosine = self.similarity_fn_name == "cosine"
        return Embedder.similarity_rows(self, embeddings) if is_cosine else to_2d_array(embeddings)

    def with_reasons(self, reasons: Any) -> EncoderEmbedder:
        """Refuse other reasons: the rows of a score are exact.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.name} is a SparseEncoder, whose rows are exact; other reasons are for dense encoders")
