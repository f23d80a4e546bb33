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
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError, shown
from pellucid.index.arrays import Vector
from pellucid.index.commits import Commit, IndexState
from pellucid.index.documents import Document
from pellucid.index.models import Model
from pellucid.index.settings import precomputed_parts

Rows = Mapping[str, Sequence[Vector | None]]
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
            "this model encodes only queries, and a document has no vector yet. Give it: "
            "index.add(texts, ids=ids, vectors={part: array}), index.update(id, text=..., vectors={part: row})"
        )


class PrecomputedVectors:
    """Rows that a user gives for documents, checked against `models`."""

    def __init__(self, vectors: Mapping[str, Any] | None, models: Mapping[str, Model]) -> None:
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

    def rows_for(self, documents: Sequence[Document], start: int) -> dict[str, list[Vector | None]]:
        """Return by part a row at length 1 for each passage of documents from number `start` on; None for zeros."""
        end = start + len(documents)
        for name, array in self.arrays.items():
            if array.shape[0] < end:
                raise InputError(f"vectors of {name!r} have {array.shape[0]:,} rows, and more documents came")
        rows_by_part = {}
        for name, array in self.arrays.items():
            rows = zip(documents, _normalized_rows(array[start:end]))
            rows_by_part[name] = [row for document, row in rows for _ in document.ends]
        return rows_by_part


def remaining_precomputed(state: IndexState, models: Mapping[str, Model]) -> list[str]:
    """Return the parts with given rows whose models are the same in `models`."""
    before = {model["name"]: model["fingerprint"] for model in state.settings["models"]}
    parts = [name for name in precomputed_parts(state.settings) if name in models]
    return [name for name in parts if same_model(before[name], models[name].fingerprint)]


def stored_rows(commit: Commit, names: list[str], documents: Sequence[Document]) -> Rows:
    """Return by part the rows that an index has of the passages of some documents."""
    if not names:
        return {}
    rows: dict[str, list[Vector | None]] = {name: [] for name in names}
    positions = commit.rows_for([document.id for document in documents])
    for document in documents:
        segment_index, row = positions[document.id]
        segment = commit.segments[segment_index]
        first = segment.first_passage(row)
        for name in names:
            rows[name] += [segment.vector(name, first + passage) for passage in range(len(document.ends))]
    return rows


def _validate(name: str, array: Any, model: Model) -> Any:
    """Return an array or CSR matrix that can be stored for a model."""
    if model.is_static or isinstance(model.encoder, EnsembleEmbedder):
        raise InputError(
            f"vectors are given for {name!r}, whose reasons are read from the texts: a vector from elsewhere would not "
            "fit them. Leave it out, and the model encodes the documents"
        )
    if hasattr(array, "tocsr"):
        if not model.sparse:
            raise InputError(f"vectors of {name!r} are a sparse matrix, and its model is dense; give array.toarray()")
        array = array.tocsr(copy=True)
        array.sum_duplicates()
    else:
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
        if model.sparse and not model.signed and (values < 0).any():
            raise InputError(f"vectors of {name!r} have numbers below 0, and its model makes none; nothing was stored")
    return array


def _normalized_rows(block: Any) -> list[Vector | None]:
    """Return rows of any numeric type at length 1; None for a row of zeros."""
    if hasattr(block, "indptr"):
        sides = [
            (block.indices[start:end].astype(np.int64), _normalized_row(np.asarray(block.data[start:end], np.float64)))
            for start, end in zip(block.indptr, block.indptr[1:])
        ]
        return [(indices[row != 0], row[row != 0]) if row is not None else None for indices, row in sides]
    return [_normalized_row(row) for row in np.asarray(block, np.float64)]


def _normalized_row(row: Any) -> Any:
    """Return a float64 row at length 1 in float32; the largest is taken out first, whose square may be too large."""
    largest = np.abs(row).max(initial=0.0)
    if not largest:
        return None
    row = row / largest
    return (row / np.linalg.norm(row)).astype(np.float32)
