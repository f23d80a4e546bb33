"""An encoder without some directions: vectors and reasons projected on what is at right angles to them.

The projection is linear, so it is one more module of a SentenceTransformer, stock `Dense`: the model is saved, opened
and served as before. A function is wrapped. What other words say of the same subject stays in part; the effect is
measured in docs/results-reasons.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.fingerprint import fingerprint
from pellucid.core.pca import MIN_DIRECTION_LENGTH
from pellucid.core.query import Floats
from pellucid.dense.concepts import ConceptReasons
from pellucid.dense.vectors import checked_vectors
from pellucid.dense.words import WordReasons
from pellucid.errors import InputError


def projected_encoder(model: Any, matrix: Floats, *, is_sentence_transformer: bool) -> Any:
    """Return a SentenceTransformer or function whose vectors are multiplied with a matrix; the weights are shared.

    Raises:
        InputError: the encoder cuts its vectors off.
    """
    if not is_sentence_transformer:
        return ProjectedFunction(model, matrix)
    if getattr(model, "truncate_dim", None):
        raise InputError(f"truncate_dim is {model.truncate_dim}; remove directions first, with truncate_dim=None")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    size = len(matrix)
    weight = torch.tensor(matrix, dtype=next(model.parameters()).dtype)
    dense = Dense(size, size, bias=False, activation_function=torch.nn.Identity(), init_weight=weight)
    modules = list(model)
    last = len(modules) - isinstance(modules[-1], Normalize)
    return SentenceTransformer(
        modules=[*modules[:last], dense, *modules[last:]], device=str(model.device), prompts=dict(model.prompts),
        default_prompt_name=model.default_prompt_name, similarity_fn_name=model.similarity_fn_name,
    )  # fmt: skip


class ProjectedFunction:
    """A function from texts to vectors whose vectors are multiplied with a matrix."""

    def __init__(self, function: Any, matrix: Floats) -> None:
        """Take the function, and a matrix [dimension, dimension]."""
        self._function, self._matrix = function, matrix
        self.__name__ = str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, texts: list[str]) -> Vectors:
        """Return float32 [texts, dimension]."""
        return self._projected(self._function, texts)

    def encode_query(self, texts: list[str]) -> Vectors:
        """Return the same of queries."""
        return self._projected(getattr(self._function, "encode_query", self._function), texts)

    def encode_document(self, texts: list[str]) -> Vectors:
        """Return the same of documents."""
        return self._projected(getattr(self._function, "encode_document", self._function), texts)

    def _projected(self, function: Any, texts: list[str]) -> Vectors:
        rows = checked_vectors(function(texts), texts, self.__name__, len(self._matrix))
        return (rows @ self._matrix).astype(np.float32)


def projected_reasons(reasons: Any, matrix: Floats, encoder: Embedder) -> Any:
    """Return words or concepts in the space of the encoder without a direction; of others the kind, to be made anew.

    A concept that is one of the directions is left out.
    """
    if isinstance(reasons, WordReasons):
        arrays = {name: reasons.arrays[name].astype(np.float64) @ matrix for name in ("map", "common")}
        return WordReasons(reasons.table, arrays, reasons.fit, fingerprint(encoder))
    if not isinstance(reasons, ConceptReasons):
        return None if reasons is None else reasons.kind
    directions = reasons.directions @ matrix
    selected = np.flatnonzero(np.linalg.norm(directions, axis=1) > MIN_DIRECTION_LENGTH).tolist()
    names, fit = [reasons.names[n] for n in selected], reasons.fit
    if fit is not None:
        fit = fit._replace(aucs=tuple(fit.aucs[n] for n in selected))
    return ConceptReasons(names, directions[selected], reasons.common @ matrix, most=reasons.most, fit=fit,
                          fingerprint=fingerprint(encoder))  # fmt: skip
