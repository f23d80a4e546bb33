"""Shards of an encoded corpus: each is written whole or not at all, and checked when it is read back.

A worker writes one shard after the other and only needs `Job` and a number, so that `corpora.py` moves no texts and no
embeddings.

The manifest (`state.json`) has a checksum of itself and one of every shard. They show damage, not malice: the contents
of a shard are checked as well, so that no index in it points outside of a matrix.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.bulk.batches import EMBEDDING, INDICES, VALUES, BatchEncoder
from pellucid.core.arrays import Role
from pellucid.errors import CorpusError, InputError, ModelFolderError, PellucidError, require
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.folder import allow_external
from pellucid.persistence.store import checksum, writing
from pellucid.text.parquet import Table

import pyarrow as pa  # isort: skip  # after batches, which says what to install where it is absent
from pyarrow.parquet import ParquetFile, ParquetWriter  # isort: skip

ROW = "id"
"""The column of row numbers, from 0, where the corpus has no ids."""

_BATCH = 8_192  # texts encoded and written together
_MAX_COUNT = 1 << 31  # texts of a shard, dimensions: their numbers are int32


class Job(NamedTuple):
    """What every worker of a run needs to know."""

    model: Any  # as `BatchEncoder` takes it
    source: Path  # the Parquet file of texts
    folder: Path
    field: str
    id_field: str | None  # of the ids; None for row numbers
    role: Role  # what the texts are encoded as
    size: int  # texts in a shard; the last has fewer
    texts: int  # of the whole corpus
    run: str  # a name that no other run has: processes may outlive one, and files change between two
    stamp: tuple[int, ...] = ()  # of the source as it was when the run began, see `stamp`
    allow_outside: bool = False  # as in `pellucid.load`

    @property
    def shards(self) -> int:
        """How many shards the corpus has."""
        return -(-self.texts // self.size)

    def rows(self, number: int) -> int:
        """Return how many texts a shard has."""
        return min(self.size, self.texts - number * self.size)

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"shard-{number:06d}.parquet"


class ShardRecord(NamedTuple):
    """The record of a shard, by which another file in its place is noticed."""

    number: int
    texts: int
    size: int
    sha256: str


class Shard(NamedTuple):
    """Some rows of an encoded corpus.

    Attributes:
        ids: one a row; the number of the row in the corpus where it has no ids.
        rows: float32 [texts, dimension], or a CSR matrix of that shape for a sparse model.
    """

    ids: list[Any]
    rows: Any


def write_shard(job: Job, number: int) -> ShardRecord:
    """Encode and write one shard, whole or not at all; return its record."""
    path, encoded = job.path(number), map(open_encoder(job), _batches(job, number))
    try:
        with writing(path) as tmp_path:
            _write_parquet(tmp_path, encoded)
            record = ShardRecord(number, job.rows(number), tmp_path.stat().st_size, checksum(tmp_path))
            if stamp(job.source) != job.stamp:
                raise CorpusError("it was changed while it was read; start again when no other program writes to it")
    except CorpusError as error:
        raise CorpusError(f"{job.source}: {error}") from error
    return record


def stamp(path: Path) -> tuple[int, ...]:
    """Return a file's size and the time of its last change, in nanoseconds."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=1)
def open_encoder(job: Job) -> BatchEncoder:
    """Return the model of a run as a function of batches, opened once a process."""
    with allow_external(job.allow_outside):
        return BatchEncoder(job.model, column=job.field, role=job.role)


_THREAD_LOCAL = threading.local()


def _batches(job: Job, number: int) -> Iterator[Any]:
    """Yield the record batches of a shard: ids and texts, by this thread's reader of the corpus."""
    rows: _Rows | None = getattr(_THREAD_LOCAL, "rows", None)
    if rows is None or rows.job != job:
        rows = _THREAD_LOCAL.rows = _Rows(job)
    row = number * job.size
    for batch in rows.read(row, job.rows(number)):
        if job.id_field is None:
            numbers = pa.array(np.arange(row, row + len(batch)))
            batch = pa.record_batch([numbers, batch.column(0)], names=[ROW, job.field])
        elif batch.column(0).null_count:
            row_without_id = row + int(batch.column(0).is_null().to_numpy(zero_copy_only=False).argmax())
            raise CorpusError(f"row {row_without_id:,} has no id under {job.id_field!r}; give it one")
        yield batch
        row += len(batch)


class _Rows:
    """Columns of a Parquet file from any row on; reading ahead in a row group reads nothing twice."""

    # Batches are cut at the same rows wherever reading begins: a transformer's rows depend on their batch, in the last
    # bits.

    def __init__(self, job: Job) -> None:
        self.job = job
        self._columns = [job.field] if job.id_field is None else [job.id_field, job.field]
        self._table = Table(job.source)
        self._starts = self._table.starts
        self._batches: Iterator[tuple[int, Any]] = iter(())
        self._start, self._batch = self._starts[-1], ()  # the batch read last, and its first row; none yet

    def read(self, first: int, count: int) -> Iterator[Any]:
        """Yield `count` rows from row `first` on, as record batches."""
        group = bisect_right(self._starts, first) - 1
        if first < self._start or self._starts[group] > self._start + len(self._batch):
            self._batches, self._start, self._batch = self._from_group(group), self._starts[group], ()
        while count:
            if first >= self._start + len(self._batch):
                try:
                    self._start, self._batch = next(self._batches)
                except StopIteration:
                    raise CorpusError("there are fewer rows than when the run began") from None
                continue
            part = self._batch.slice(first - self._start, count)  # type: ignore[attr-defined]
            first, count = first + len(part), count - len(part)
            yield part

    def _from_group(self, group: int) -> Iterator[tuple[int, Any]]:
        for number in range(group, len(self._starts) - 1):
            start = self._starts[number]
            for batch in self._table.batches(self._columns, number, _BATCH):
                yield start, batch
                start += len(batch)


def _write_parquet(path: Path, batches: Iterator[Any]) -> None:
    writer: Any = None
    try:
        for batch in batches:
            dense = EMBEDDING in batch.schema.names
            writer = writer or ParquetWriter(
                path, batch.schema, compression="none" if dense else "zstd", use_dictionary=False,
                write_statistics=False, write_page_checksum=True,
            )  # fmt: skip
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()


def _embeddings(table: Any) -> Any:
    """Return the embeddings of a table of ids and embeddings, an array or (values, indices, starts) of a sparse one."""
    if EMBEDDING in table.column_names:
        column = _complete_column(table, EMBEDDING)
        rows = column.flatten().to_numpy()
        return rows.reshape(len(column), -1)
    lists = [_complete_column(table, name) for name in (VALUES, INDICES)]
    starts = lists[0].offsets.to_numpy()
    if not np.array_equal(starts - starts[0], lists[1].offsets.to_numpy() - lists[1].offsets[0].as_py()):
        raise ValueError("values and indices are not equally many")
    return (*(column.flatten().to_numpy() for column in lists), starts - starts[0])


def _complete_column(table: Any, name: str) -> Any:
    """Return a column as one array without nulls."""
    column = table.column(name).combine_chunks()
    if column.null_count or column.flatten().null_count:
        raise ValueError(f"column {name!r} has nulls")
    return column


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
    if "texts" not in state:
        raise InputError(f"{folder} holds no encoded corpus; encode_corpus writes one")
    if not state.get("complete"):
        raise InputError(f"the run in {folder} has not ended; start it again with the same arguments to complete it")
    dimension: Any = state.get("dimension")
    shards: Any = state.get("shards")

    def is_count(value: Any) -> bool:
        return type(value) is int and 0 < value < _MAX_COUNT

    def is_listed(name: str, record: Any) -> bool:
        is_file = Path(name).name == name and name.endswith(".parquet")
        has_checksum = isinstance(record, dict) and isinstance(record.get("sha256"), str)
        return is_file and has_checksum and is_count(record.get("texts"))

    is_sound = is_count(dimension) and isinstance(shards, dict) and all(map(is_listed, shards, shards.values()))
    if not is_sound or sum(record["texts"] for record in shards.values()) != state["texts"]:
        raise ModelFolderError(
            f"{folder / 'state.json'} does not describe an encoded corpus; it is broken. Encode the corpus into "
            "another folder"
        )
    return (_read_shard(folder / name, record, dimension) for name, record in shards.items())


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
        return Shard(ids, _checked(_embeddings(table), len(ids), record["texts"], dimension))
    except PellucidError:
        raise
    except Exception as error:  # pyarrow has no common class for what a broken file makes it raise
        raise ModelFolderError(f"{path} is damaged: {' '.join(str(error).split())[:200]}. {hint}") from error


def _checked(rows: Any, ids: int, texts: int, dimension: int) -> Any:
    """Return the rows of a shard, an array or a CSR matrix, after checking every index."""
    if ids != texts:
        raise ValueError(f"it has {ids:,} ids for {texts:,} texts")
    if not isinstance(rows, tuple):
        if rows.shape != (texts, dimension) or rows.dtype != np.float32:
            raise ValueError(f"it holds {rows.dtype} of shape {rows.shape}, not float32 of {(texts, dimension)}")
        return rows
    require("scipy", "sparse")
    from scipy import sparse

    values, indices, starts = map(np.array, rows)  # copied: SciPy follows indices, and a mapped file may change
    if values.dtype != np.float32 or indices.dtype.kind != "i":
        raise ValueError(f"it holds {values.dtype} at {indices.dtype}, not float32 at int32")
    if starts.shape != (texts + 1,) or starts[-1] != len(values):
        raise ValueError("its lists are not one a text")
    matrix = sparse.csr_matrix((values, indices, starts), shape=(texts, dimension))
    matrix.check_format(full_check=True)  # a wrong place or dimension would be read from other memory
    return matrix
