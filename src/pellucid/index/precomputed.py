"""Vectors that the user gives with the documents, so that nothing is embedded twice.

A row belongs to a document and is used for each of its passages: it represents the whole, beside what BM25 and other
models find in the passage. The index remembers which parts have such rows (`precomputed_parts`): a rebuild keeps them,
and `verify` does not compare them with the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pellucid.core.fingerprint import same_model
from pellucid.errors import InputError, shown
from pellucid.index.arrays import DocumentRows, joined_rows
from pellucid.index.commits import Commit, IndexState
from pellucid.index.documents import Document
from pellucid.index.parts import ModelPart, SparsePart
from pellucid.index.settings import precomputed_parts

Rows = Mapping[str, DocumentRows]
"""By part the rows of some passages."""

CHUNK_ROWS = 4096  # rows looked at together


class QueryFunction:
    """A model of an index that encodes only queries; the vectors of documents are given to `Index.add`.

    >>> bool(QueryFunction(lambda texts: [[1.0, 0.0]] * len(texts)).encode_query(["a"]))
    True
    """

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        """Take a function from a list of texts to one vector each.

        Raises:
            InputError: it cannot be called.
        """
        if not callable(function):
            raise InputError(f"a function is {shown(function)}; give one that takes a list of texts")
        self.encode_query = self._function = function

    def __call__(self, texts: list[str]) -> Any:
        """Return the vectors of texts as queries."""
        return self._function(texts)

    def encode_document(self, texts: list[str]) -> Any:
        """Raise an error: the vectors of documents are given.

        Raises:
            InputError: always.
        """
        raise InputError(
            "this model encodes only queries, and this text is a document's. Give its vector: "
            "index.add(texts, ids=ids, vectors={part: array}), index.update(id, text=..., vectors={part: row})"
        )


class PrecomputedVectors:
    """Rows that a user gives for documents, checked against `models`."""

    def __init__(self, vectors: Mapping[str, Any] | None, models: Mapping[str, ModelPart]) -> None:
        """Take by part an array [documents, dimension]; of a sparse part also a scipy CSR matrix."""
        self.models = models
        if not isinstance(vectors, (Mapping, type(None))):
            raise InputError(f"vectors are {type(vectors).__name__}; give a dict: name of the part -> array")
        if unknown := [name for name in vectors or {} if name not in models]:
            raise InputError(
                f"vectors are given for {shown(unknown[0])}, and the models of the index are "
                f"{', '.join(models) or 'none'}"
            )
        self.arrays = {name: _validate(name, array, models[name]) for name, array in (vectors or {}).items()}

    def check(self, documents: int, after: str = "") -> None:
        """Check that there are as many rows as documents; a message ends with `after`."""
        for name, array in self.arrays.items():
            if array.shape[0] != documents:
                raise InputError(f"vectors of {name!r} have {array.shape[0]:,} rows for {documents:,} documents{after}")

    def rows_for(self, documents: Sequence[Document], start: int) -> dict[str, DocumentRows]:
        """Return by part a row at length 1 for each passage of documents from number `start` on; zeros stay zeros."""
        end = start + len(documents)
        for name, array in self.arrays.items():
            if array.shape[0] < end:
                raise InputError(f"vectors of {name!r} have {array.shape[0]:,} rows, and more documents came")
        passages = np.repeat(np.arange(len(documents)), [len(document.ends) for document in documents])
        return {name: _stored(array[start:end], self.models[name])[passages] for name, array in self.arrays.items()}


def remaining_precomputed(state: IndexState, models: Mapping[str, ModelPart]) -> list[str]:
    """Return the parts with given rows whose models are the same in `models`."""
    before = {model["name"]: model["fingerprint"] for model in state.settings["models"]}
    parts = [name for name in precomputed_parts(state.settings) if name in models]
    return [name for name in parts if same_model(before[name], models[name].fingerprint)]


def stored_rows(commit: Commit, models: Mapping[str, ModelPart], documents: Sequence[Document]) -> Rows:
    """Return by part, of some models, the rows that an index has of the passages of documents."""
    positions = commit.rows_for([document.id for document in documents])
    located = [(commit.segments[n], np.array([row])) for n, row in (positions[document.id] for document in documents)]
    return {
        name: joined_rows([segment.rows(name, model.dimension, segment.passages_for(row)) for segment, row in located])
        for name, model in models.items()
    }


def _validate(name: str, array: Any, model: ModelPart) -> Any:
    """Return an array or CSR matrix that can be stored for a model."""
    if model.encoder.reads_texts:
        raise InputError(
            f"vectors are given for {name!r}, whose reasons are read from the texts: a vector from elsewhere would not "
            "fit them. Leave it out, and the model encodes the documents"
        )
    if hasattr(array, "tocsr"):
        if not model.is_sparse:
            raise InputError(f"vectors of {name!r} are a sparse matrix, and its model is dense; give array.toarray()")
        array = array.tocsr(copy=True)
        array.sum_duplicates()
    else:
        if model.is_sparse:
            raise InputError(f"vectors of {name!r} are dense, and its model is sparse; give a scipy CSR matrix")
        array = array.detach().float().cpu().numpy() if hasattr(array, "detach") else array  # a tensor
        try:
            array = np.asarray(array)
        except ValueError as error:
            raise InputError(f"vectors of {name!r} are no array: {error}") from error
        if array.dtype.kind not in "fiu":
            raise InputError(f"vectors of {name!r} are {array.dtype}; give an array of numbers, float32 for example")
    if array.ndim != 2 or array.shape[1] != model.dimension:
        raise InputError(
            f"vectors of {name!r} have the shape {array.shape}; its model has {model.dimension} dimensions: "
            f"[documents, {model.dimension}]"
        )
    for start in range(0, array.shape[0], CHUNK_ROWS):
        block = array[start : start + CHUNK_ROWS]
        values = block.data if hasattr(block, "indptr") else block
        if not np.isfinite(values).all():
            raise InputError(
                f"vectors of {name!r} hold NaN or infinity within the rows from {start:,} to "
                f"{start + block.shape[0] - 1:,}; nothing was stored"
            )
        if isinstance(model, SparsePart) and not model.is_signed and (values < 0).any():
            raise InputError(f"vectors of {name!r} have numbers below 0, and its model makes none; nothing was stored")
    return array


def _stored(block: Any, model: ModelPart) -> DocumentRows:
    """Return rows of any numeric type as the model's are stored, zeros as they are."""
    rows = block.astype(np.float64)
    if model.encoder.similarity_fn_name == "cosine":
        largest = abs(rows).max(axis=1)  # is taken out first: its square may be too large
        largest = largest.toarray().ravel() if model.is_sparse else largest
        largest[largest == 0] = 1.0
        if model.is_sparse:
            rows.data /= largest.repeat(np.diff(rows.indptr))
        else:
            rows /= largest[:, None]
    return model.checked_rows(rows.astype(np.float32))
