"""Sparse rows of weights as embeddings: mixed by the edits of dimensions, pruned, at length 1.

The weights of a text belong to sources: clusters of a lexicon, tokens of a vocabulary. Each source is a dimension until
edits scale, drop or merge some; then weights are multiplied with a `Mixing` [sources, dimensions], else it is None. On
disk it is three tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import largest_coordinates
from pellucid.core.dimensions import Dimensions, Edit, Mixing, read_dimensions, scaling
from pellucid.errors import ModelFolderError
from pellucid.persistence.store import read_tensors

MAX_TABLE_VALUE = 1e18
"""Of a number in a table: its square is one in float32."""


def finite(array: npt.NDArray[Any], shape: tuple[int, ...], what: str) -> npt.NDArray[np.float32]:
    """Return numbers of a file as float32 after checking that they have squares, and their shape: -1 is any length."""
    fits = array.ndim == len(shape) and all(side in (-1, length) for side, length in zip(shape, array.shape))
    if array.dtype.kind != "f" or not fits or 0 in array.shape:
        expected = " x ".join("any" if side < 0 else str(side) for side in shape)
        raise ModelFolderError(f"{what} must be {expected} numbers, got {array.dtype} {list(array.shape)}")
    with np.errstate(over="ignore"):
        numbers = np.array(array, np.float32)
    if not (np.abs(numbers) <= MAX_TABLE_VALUE).all():  # nor NaN
        raise ModelFolderError(f"{what} holds NaN, infinity or a number beyond {MAX_TABLE_VALUE:g}")
    return numbers


def read_arrays(path: Path, shapes: Mapping[str, str]) -> dict[str, npt.NDArray[Any]]:
    """Return copies of the tensors of a file, those that are declared as finite float32.

    Args:
        path: the file.
        shapes: "n d" by name, where a letter is one length; a name that ends in "?" may be absent.
    """
    arrays = {name: np.array(tensor) for name, tensor in read_tensors(path)[0].items()}
    lengths: dict[str, int] = {}
    for key, letters in shapes.items():
        name, sides = key.removesuffix("?"), letters.split()
        if name in arrays:
            arrays[name] = finite(arrays[name], tuple(lengths.get(side, -1) for side in sides), f"{path}: {name!r}")
            lengths.update(zip(sides, arrays[name].shape))
        elif name == key:
            raise ModelFolderError(f"{path} holds no {name!r}; it is of another model or broken")
    return arrays


def mixed_rows(weights: Any, mixing: Mixing | None) -> Any:
    """Return the coordinates that weights of sources, CSR [texts, sources], give: CSR without zeros."""
    from scipy import sparse

    if mixing is None:
        return weights
    rows = sparse.csr_matrix(weights @ mixing.matrix)
    rows.eliminate_zeros()
    return rows


def sparse_units(weights: Any, mixing: Mixing | None, max_active_dims: int | None) -> Any:
    """Return weights of sources as pruned embeddings of length 1, float32 CSR [texts, dimensions]."""
    rows = mixed_rows(weights, mixing)
    if max_active_dims is not None:
        rows = largest_coordinates(rows, max_active_dims)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1), np.float64)).ravel()
    rows.data = (rows.data / np.repeat(lengths, np.diff(rows.indptr))).astype(np.float32)
    rows.sort_indices()
    return rows


def strongest_source(mixing: Mixing | None, weights: npt.NDArray[Any], dimension: int) -> int:
    """Return the source with the largest part in a dimension, of one text's weights."""
    if mixing is None:
        return dimension
    is_part = mixing.columns == dimension
    sources = mixing.sources[is_part]
    return int(sources[np.argmax(weights[sources] * mixing.factors[is_part])])


def after_edit(mixing: Mixing | None, edit: Edit) -> tuple[npt.NDArray[np.int64], Mixing | None]:
    """Return which sources an edit leaves in use, and the mixing of these; None where each is a dimension as it is."""
    sources, columns, factors, (_, count) = edit.after(mixing).without_zeros()
    used, numbers = np.unique(sources, return_inverse=True)
    new_mixing = Mixing(numbers, columns, factors, (len(used), count))
    return used, None if new_mixing.is_identity else new_mixing


def mixing_tensors(mixing: Mixing | None) -> dict[str, npt.NDArray[Any]]:
    """Return a mixing as tensors to write, none for None."""
    if mixing is None:
        return {}
    return {
        "mixing_rows": mixing.sources.astype(np.int32),
        "mixing_columns": mixing.columns.astype(np.int32),
        "mixing_values": mixing.factors.astype(np.float64),
    }


def read_mixing(tensors: Mapping[str, npt.NDArray[Any]], sources: int, columns: int, path: Path) -> Mixing | None:
    """Return the mixing [sources, columns] among the tensors of `path`, or None."""
    parts = [tensors.get(f"mixing_{name}") for name in ("values", "rows", "columns")]
    if all(part is None for part in parts):
        if columns != sources:
            raise ModelFolderError(f"{path.parent}: {columns} dimensions need as many rows of the head, got {sources}")
        return None
    try:
        values, rows, targets = (np.array(part) for part in parts)  # copied: a mapped file may change after the check
        if values.dtype.kind != "f" or any(
            part.dtype.kind != "i" or part.shape != values.shape for part in (rows, targets)
        ):
            raise ValueError("its rows, columns and values are not lists of equal length")
        for part, count in zip((rows, targets), (sources, columns)):
            if part.ndim != 1 or not ((part >= 0) & (part < count)).all():
                raise ValueError("it names rows or columns out of range")
        read = Mixing.from_entries(rows, targets, values, (sources, columns))
        if not (np.abs(read.factors) <= MAX_TABLE_VALUE).all():
            raise ValueError("its values are NaN, infinite or no numbers")
        return read
    except (ValueError, TypeError) as error:
        raise ModelFolderError(f"{path} holds a broken mixing: {error}") from error


def read_mixed(
    tensors: Mapping[str, npt.NDArray[Any]], sources: int, columns: int, path: Path,
    saved: Sequence[tuple[str, ...]] | None = None,
) -> tuple[Mixing | None, Dimensions]:  # fmt: skip
    """Return the mixing and the dimensions of a saved model, with names and scales of its `dimensions.tsv`."""
    mixing = read_mixing(tensors, sources, columns, path)
    dimensions, scales = read_dimensions(path.parent / "dimensions.tsv", columns, saved)
    if set(scales) != {1.0}:
        mixing = scaling(dimensions, dict(enumerate(scales))).after(mixing)
    return mixing, dimensions
