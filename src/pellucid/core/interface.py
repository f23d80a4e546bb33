"""What tools for sentence-transformers ask of a model beyond its embeddings: device, tokenizer, prompts, model card."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from pellucid.core.arrays import to_2d_array
from pellucid.errors import InputError, shown

if TYPE_CHECKING:
    from typing_extensions import Self


class ModelCardData(NamedTuple):
    """What sentence-transformers' evaluators and miners read of a model card: a name that no other weights have."""

    base_model: str

    def set_evaluation_metrics(self, evaluator: Any, metrics: Any, epoch: int = 0, step: int = 0) -> None:
        """Take results that an evaluator also returns; they are not kept."""


class ToolInterface(ABC):
    """The names of sentence-transformers' models that its evaluators, trainers and miners use."""

    family: ClassVar[str]
    """The name stored in `config.json`: which class opens the folder."""

    folder: Path | None = None  # that the model was opened from
    _reads_with: ClassVar[str] = ""  # the attribute that holds what reads the texts, where that is another model

    @property
    def _text_reader(self) -> Any:
        """What reads the texts, such as a SentenceTransformer; None where this model does."""
        return getattr(self, self._reads_with) if self._reads_with else None

    @abstractmethod
    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of an embedding."""

    def get_sentence_embedding_dimension(self) -> int:
        """Return `get_embedding_dimension()`; the older name in sentence-transformers."""
        return self.get_embedding_dimension()

    @property
    def device(self) -> str:
        """Where the model computes, as torch names it: "cpu", "cuda:0"."""
        return str(getattr(self._text_reader, "device", "cpu"))

    def to(self, device: Any) -> Self:
        """Move the model to a device, such as "cpu" or "cuda", and return it.

        Raises:
            InputError: the family computes where it was opened.
        """
        if hasattr(self._text_reader, "to"):
            self._text_reader.to(device)
        elif not self._computes_on(device):
            raise InputError(
                f"this {self.family} model computes on {self.device!r} and cannot be moved to {shown(device, 40)}; "
                "leave it there, or open a transformer on the other device"
            )
        return self

    def _computes_on(self, device: Any) -> bool:
        """Whether the model is on a device, which may be named without its number."""
        if isinstance(device, (int, list, tuple, dict)):
            return False
        return str(device) in (self.device, self.device.partition(":")[0])

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the transformer that reads the texts, as transformers gives it.

        Raises:
            AttributeError: the model reads texts in another way.
        """
        if hasattr(self._text_reader, "tokenizer"):
            return self._text_reader.tokenizer
        raise AttributeError(
            f"this {self.family} model has no tokenizer of transformers; explain(text) shows what it reads"
        )

    @property
    def prompts(self) -> dict[str, str]:
        """What the model puts before a text, by the name of the prompt; empty where it puts nothing."""
        return dict(getattr(self._text_reader, "prompts", {}))

    @property
    def max_seq_length(self) -> float | None:
        """How many tokens of a text are read at most; infinity without a limit, None where it is unknown."""
        return getattr(self._text_reader, "max_seq_length", None)

    @property
    def model_card_data(self) -> ModelCardData:
        """What sentence-transformers' evaluators and `mine_hard_negatives` look for in a model."""
        named = self.source or type(self).__name__
        named = named if named.count("/") == 1 else f"pellucid/{Path(named).name}"  # of two parts, as on the hub
        from pellucid.core.fingerprint import fingerprint

        model_fingerprint = fingerprint(self)  # of a function it tells nothing for certain
        return ModelCardData(
            f"{named}@{uuid.uuid4().hex if model_fingerprint['functions'] else model_fingerprint['stored']}"
        )

    @property
    def source(self) -> str:
        """The bundled name, hub id or folder the model was opened from; "" where it was not."""
        if self.folder is None:
            return ""
        if self.folder.parent.name == "snapshots":  # of the hub's cache
            return self.folder.parent.parent.name.removeprefix("models--").replace("--", "/")
        return self.folder.name

    @staticmethod
    def sparsity(embeddings: Any) -> dict[str, float]:
        """Return how sparse embeddings are, as `SparseEncoder.sparsity`, which its evaluators ask for.

        Args:
            embeddings: in any form that `encode` gives.

        Returns:
            "active_dims": the mean number of dimensions of a row that are not zero; "sparsity_ratio": the share of all
            values that are zero.
        """
        rows = to_2d_array(embeddings)
        count = rows.count_nonzero() if hasattr(rows, "tocsr") else np.count_nonzero(rows)
        active = float(count) / max(rows.shape[0], 1)
        return {"active_dims": active, "sparsity_ratio": 1.0 - active / rows.shape[1]}
