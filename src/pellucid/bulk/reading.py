"""An encoded corpus read back: every shard is compared with its checksum, and then with what it must hold.

The manifest (`state.json`) has a checksum of itself and one of every shard. Both tell damage, not malice: what a shard
holds is checked as well, so that no number of it leads out of the memory of a matrix.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.bulk.batches import EMBEDDING, INDICES, VALUES
from pellucid.bulk.shards import ENDINGS, Shard, rows_of
from pellucid.errors import InputError, ModelFolderError, PellucidError
from pellucid.store import checksum, read_tensors
from pellucid.workfolder import WorkFolder

from pyarrow.parquet import ParquetFile  # isort: skip  # after batches, which says what to install where it is absent

_MOST = 1 << 31  # texts of a shard, dimensions: their numbers are int32
_KINDS = {"embedding": "<f4", "values": "<f4", "indices": "<i4", "indptr": "<i8", "ids": "<i8", "id_ends": "<i8"}


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
    with WorkFolder(folder, alone=False) as work:
        facts = work.facts
    if "texts" not in facts:
        raise InputError(f"{folder} holds no encoded corpus; encode_corpus writes one")
    if not facts.get("complete"):
        raise InputError(f"the run in {folder} has not ended; start it again with the same arguments to complete it")
    dimension, shards = _listed(folder, facts)
    return (_read(folder / name, written, dimension) for name, written in shards.items())


def _listed(folder: Path, facts: dict[str, Any]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the dimension, and by the name of its file what is remembered of each shard."""
    dimension: Any = facts.get("dimension")
    shards: Any = facts.get("shards")
    if (
        not _is_count(dimension)
        or not isinstance(shards, dict)
        or not all(map(_is_listed, shards, shards.values()))
        or sum(written["texts"] for written in shards.values()) != facts["texts"]
    ):
        raise ModelFolderError(
            f"{folder / 'state.json'} does not describe an encoded corpus; it is broken. Encode the corpus into "
            "another folder"
        )
    return dimension, shards


def _is_listed(name: str, written: Any) -> bool:
    return (
        Path(name).name == name
        and name.endswith(tuple(ENDINGS.values()))
        and isinstance(written, dict)
        and _is_count(written.get("texts"))
        and isinstance(written.get("sha256"), str)
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < _MOST


def _read(path: Path, written: dict[str, Any], dimension: int) -> Shard:
    """Return a shard after checking that it is the one that was written."""
    way_out = "Delete it and encode the corpus again: only it is made anew"
    if not path.is_file():
        raise ModelFolderError(f"{path} is missing. {way_out}")
    if checksum(path) != written["sha256"]:
        raise ModelFolderError(f"{path} is damaged: it is not the file that was written. {way_out}")
    try:
        ids, rows = (_from_parquet if path.suffix == ".parquet" else _from_safetensors)(path)
        return Shard(ids, _checked(rows, len(ids), written["texts"], dimension))
    except PellucidError:
        raise
    except Exception as error:  # pyarrow has no common class for what a broken file makes it raise
        said = " ".join(str(error).split())[:200]
        raise ModelFolderError(f"{path} is damaged: {said}. {way_out}") from error


def _from_parquet(path: Path) -> tuple[list[Any], Any]:
    with ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read()
    return table.column(0).to_pylist(), rows_of(table)


def _from_safetensors(path: Path) -> tuple[list[Any], Any]:
    tensors, _ = read_tensors(path)
    for name, tensor in tensors.items():
        if name in _KINDS and tensor.dtype.str != _KINDS[name]:
            raise ValueError(f"{name} is of type {tensor.dtype}")
    if "ids" in tensors:
        ids: list[Any] = tensors["ids"].tolist()
    else:
        content = tensors["id_bytes"].tobytes()
        ends = _ascending(tensors["id_ends"], 0, len(content)).tolist()
        ids = [content[start:end].decode() for start, end in zip([0, *ends], ends)]
    if EMBEDDING in tensors:
        return ids, tensors[EMBEDDING]
    return ids, (tensors[VALUES], tensors[INDICES], tensors["indptr"])


def _ascending(ends: npt.NDArray[Any], first: int, last: int) -> npt.NDArray[Any]:
    """Return places that go up from at least `first` to `last` at the end."""
    if ends.ndim != 1 or not len(ends) or ends[0] < first or ends[-1] != last or (ends[1:] < ends[:-1]).any():
        raise ValueError("its places do not go up to its end")
    return ends


def _checked(rows: Any, ids: int, texts: int, dimension: int) -> Any:
    """Return the rows of a shard, an array or a CSR matrix, after checking all that leads to memory."""
    if ids != texts:
        raise ValueError(f"it has {ids:,} ids for {texts:,} texts")
    if not isinstance(rows, tuple):
        if rows.shape != (texts, dimension) or rows.dtype != np.float32:
            raise ValueError(f"it holds {rows.dtype} of shape {rows.shape}, not float32 of {(texts, dimension)}")
        return rows
    from scipy import sparse

    values, indices, starts = rows
    if len(starts) != texts + 1 or starts[0] != 0 or values.shape != indices.shape or values.ndim != 1:
        raise ValueError("its lists are not one a text")
    _ascending(starts, 0, len(values))
    if values.dtype != np.float32 or indices.dtype.kind != "i":
        raise ValueError(f"it holds {values.dtype} at {indices.dtype}, not float32 at int32")
    if len(indices) and not 0 <= indices.min() <= indices.max() < dimension:
        raise ValueError(f"it holds a coordinate outside of the {dimension:,} dimensions")
    return sparse.csr_matrix((values, indices, starts), shape=(texts, dimension))
