"""Shards of an encoded corpus, checked when they are read back.

The manifest (`state.json`) has a checksum of itself and one of every shard. They show damage, not malice: the contents
of a shard are checked as well, so that no index in it points outside of a matrix.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.bulk.batches import EMBEDDING, INDICES, VALUES
from pellucid.errors import InputError, ModelFolderError, PellucidError, require
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum

from pyarrow.parquet import ParquetFile  # isort: skip  # after batches, which says what to install where it is absent

_MAX_COUNT = 1 << 31  # texts of a shard, dimensions: their numbers are int32


class Shard(NamedTuple):
    """Some rows of an encoded corpus.

    Attributes:
        ids: one a row; the number of the row in the corpus where it has no ids.
        rows: float32 [texts, dimension], or a CSR matrix of that shape for a sparse model.
    """

    ids: list[Any]
    rows: Any


def read_shards(folder: str | os.PathLike[str]) -> Iterator[Shard]:
    """Yield the shards of an encoded corpus, in the order of its texts.

    Each is read twice, the first time for its checksum.

    Args:
        folder: that `encode_corpus` wrote.

    Raises:
        InputError: it holds no encoded corpus, or one that is not complete.
        ModelFolderError: a shard, or the list of them, is missing, damaged or another one.
    """
    folder = Path(folder)
    state = WorkFolder(folder).read()["facts"]
    if "shards" not in state:
        raise InputError(f"{folder} holds no encoded corpus; encode_corpus writes one")
    if not state.get("complete"):
        raise InputError(f"the run in {folder} has not ended; start it again with the same arguments to complete it")
    shards: Any = state["shards"]
    try:
        records = list(shards.values())
        counts = [state.get("dimension"), *(record["texts"] for record in records)]
        is_sound = (
            list(shards) == [f"shard-{number:06d}.parquet" for number in range(len(shards))]
            and all(type(record["sha256"]) is str for record in records)
            and all(type(count) is int and 0 < count < _MAX_COUNT for count in counts)
            and sum(counts[1:]) == state.get("texts")
        )
    except (AttributeError, KeyError, TypeError):
        is_sound = False
    if not is_sound:
        raise ModelFolderError(
            f"{folder / 'state.json'} does not describe an encoded corpus; it is broken. Encode the corpus into "
            "another folder"
        )
    return (_read_shard(folder / name, record, counts[0]) for name, record in shards.items())


def _read_shard(path: Path, record: dict[str, Any], dimension: int) -> Shard:
    """Return a shard after checking that it is the one that was written."""
    hint = "Delete it and encode the corpus again: only it is made anew"
    if not path.is_file():
        raise ModelFolderError(f"{path} is missing. {hint}")
    if checksum(path) != record["sha256"]:
        raise ModelFolderError(f"{path} is damaged: it is not the file that was written. {hint}")
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        ids = table.column(0).to_pylist()
        if len(ids) != record["texts"]:
            raise ValueError(f"it has {len(ids):,} ids for {record['texts']:,} texts")
        return Shard(ids, _rows(table, (len(ids), dimension)))
    except PellucidError:
        raise
    except Exception as error:  # pyarrow has no common class for what a broken file makes it raise
        raise ModelFolderError(f"{path} is damaged: {' '.join(str(error).split())[:200]}. {hint}") from error


def _rows(table: Any, shape: tuple[int, int]) -> Any:
    """Return the rows of a table of ids and embeddings, an array or a CSR matrix, after checking every index."""
    if EMBEDDING in table.column_names:
        column = _complete_column(table, EMBEDDING)
        rows = column.flatten().to_numpy().reshape(len(column), -1)
        if rows.shape != shape or rows.dtype != np.float32:
            raise ValueError(f"it holds {rows.dtype} of shape {rows.shape}, not float32 of {shape}")
        return rows
    require("scipy", "sparse")
    from scipy import sparse

    values, indices = (_complete_column(table, name) for name in (VALUES, INDICES))
    starts = values.offsets.to_numpy()
    if not np.array_equal(starts, indices.offsets.to_numpy()):
        raise ValueError("values and indices are not equally many")
    # Copied: SciPy follows indices, and a mapped file may change.
    values, indices = np.array(values.flatten(), np.float32), np.array(indices.flatten().to_numpy())
    if indices.dtype.kind != "i":
        raise ValueError(f"its indices are {indices.dtype}, not int32")
    matrix = sparse.csr_matrix((values, indices, starts - starts[0]), shape=shape)
    matrix.check_format(full_check=True)  # a wrong index would be read from other memory
    return matrix


def _complete_column(table: Any, name: str) -> Any:
    """Return a column as one array without nulls."""
    column = table.column(name).combine_chunks()
    if column.null_count or column.flatten().null_count:
        raise ValueError(f"column {name!r} has nulls")
    return column
