"""A shard: some rows of a corpus, read from its Parquet file, encoded, written whole or not at all, and read back.

A worker does one shard after the other and needs nothing but `Job` and a number, so that whoever hands out the numbers
(`workers.py`) moves no texts and no embeddings.
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
import numpy.typing as npt

from pellucid.bulk.batches import EMBEDDING, INDICES, VALUES, BatchEncoder
from pellucid.embeddings import Role
from pellucid.encoders import Encoder
from pellucid.errors import CorpusError, InputError, ModelFolderError
from pellucid.store import read_tensors, write_tensors, writing
from pellucid.workfolder import WorkFolder

import pyarrow as pa  # isort: skip  # after batches, which says what to install where it is absent
from pyarrow.parquet import ParquetFile, ParquetWriter  # isort: skip

ENDINGS = {"parquet": ".parquet", "safetensors": ".safetensors"}
"""The formats of shards, and how their files end."""

ROW = "id"
"""The column of row numbers, from 0, where the corpus has no ids."""

_BATCH = 8_192  # texts encoded and written together


class Job(NamedTuple):
    """What every worker of a run is told.

    Attributes:
        model: as `BatchEncoder` takes it.
        source: the Parquet file of texts.
        folder: of the shards.
        column: of the texts.
        id_column: of the ids; None for row numbers.
        role: what the texts are encoded as.
        kind: one of `ENDINGS`.
        size: texts in a shard; the last has fewer.
        texts: of the whole corpus.
        run: a name that no other run has: processes may outlive one, and files change between two.
    """

    model: Encoder
    source: Path
    folder: Path
    column: str
    id_column: str | None
    role: Role
    kind: str
    size: int
    texts: int
    run: str

    @property
    def shards(self) -> int:
        """How many shards the corpus has."""
        return -(-self.texts // self.size)

    def rows(self, number: int) -> int:
        """Return how many texts a shard has."""
        return min(self.size, self.texts - number * self.size)

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"shard-{number:06d}{ENDINGS[self.kind]}"


class Shard(NamedTuple):
    """Some rows of an encoded corpus.

    Attributes:
        ids: one a row; the number of the row in the corpus where it has no ids.
        rows: float32 [texts, dimension], or a CSR matrix of that shape for a sparse model.
    """

    ids: list[Any]
    rows: Any


def write_shard(job: Job, number: int) -> int:
    """Encode and write one shard; return how many texts it has.

    Raises:
        CorpusError: a text is not UTF-8, an id is missing, or the file is damaged.
        WritingError: no space or no permission; nothing is left of the shard.
    """
    encoded = map(opened(job), _read(job, number))
    try:
        (_write_parquet if job.kind == "parquet" else _write_safetensors)(job.path(number), encoded)
    except CorpusError as error:
        raise CorpusError(f"{job.source}: {error}") from error
    return job.rows(number)


@lru_cache(maxsize=1)
def opened(job: Job) -> BatchEncoder:
    """Return the model of a run as a function of batches, opened once a process."""
    return BatchEncoder(job.model, column=job.column, role=job.role)


def _read(job: Job, number: int) -> Iterator[Any]:
    """Yield the record batches of a shard: ids and texts."""
    row = number * job.size
    for batch in _rows_of(job).read(row, job.rows(number)):
        if job.id_column is None:
            numbers = pa.array(np.arange(row, row + len(batch)))
            batch = pa.record_batch([numbers, batch.column(0)], names=[ROW, job.column])
        elif batch.column(0).null_count:
            place = row + int(batch.column(0).is_null().to_numpy(zero_copy_only=False).argmax())
            raise CorpusError(f"row {place:,} has no id under {job.id_column!r}; give it one")
        yield batch
        row += len(batch)


class _Rows:
    """Columns of a Parquet file from any row on; to read on, or further ahead in a row group, nothing is read twice.

    Batches are cut at the same rows wherever reading begins: a transformer's rows depend on their batch, if only in
    their last bits.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._columns = [job.column] if job.id_column is None else [job.id_column, job.column]
        self._file = ParquetFile(job.source, page_checksum_verification=True)
        about = self._file.metadata
        sizes = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
        self._batches: Iterator[tuple[int, Any]] = iter(())
        self._start, self._batch = self._starts[-1], ()  # the batch read last, and its first row; none yet

    def read(self, first: int, count: int) -> Iterator[Any]:
        """Yield `count` rows from row `first` on, as record batches.

        Raises:
            CorpusError: the file is damaged, or has fewer rows than it had.
        """
        group = bisect_right(self._starts, first) - 1
        if first < self._start or self._starts[group] > self._start + len(self._batch):
            self._batches, self._start, self._batch = self._from_group(group), self._starts[group], ()
        while count:
            if first >= self._start + len(self._batch):
                self._start, self._batch = self._next()
                continue
            part = self._batch.slice(first - self._start, count)  # type: ignore[attr-defined]
            first, count = first + len(part), count - len(part)
            yield part

    def _from_group(self, group: int) -> Iterator[tuple[int, Any]]:
        for number in range(group, len(self._starts) - 1):
            start = self._starts[number]
            for batch in self._file.iter_batches(_BATCH, row_groups=[number], columns=self._columns):
                yield start, batch.select(self._columns)
                start += len(batch)

    def _next(self) -> tuple[int, Any]:
        try:
            return next(self._batches)
        except StopIteration:
            raise CorpusError("there are fewer rows than when the run began") from None
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(f"damaged or no Parquet file: {reason(error)}") from error


_OWN = threading.local()


def _rows_of(job: Job) -> _Rows:
    """Return this thread's reader of the corpus."""
    rows: _Rows | None = getattr(_OWN, "rows", None)
    if rows is None or rows.job != job:
        rows = _OWN.rows = _Rows(job)
    return rows


def reason(error: Exception) -> str:
    """Return what an error of another library says, on one short line."""
    return " ".join(str(error).split())[:200]


def _write_parquet(path: Path, batches: Iterator[Any]) -> None:
    """Write record batches as they come."""
    with writing(path) as aside:
        writer: Any = None
        try:
            for batch in batches:
                dense = EMBEDDING in batch.schema.names
                writer = writer or ParquetWriter(
                    aside, batch.schema, compression="none" if dense else "zstd", use_dictionary=False,
                    write_statistics=False, write_page_checksum=True,
                )  # fmt: skip
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()


def _write_safetensors(path: Path, batches: Iterator[Any]) -> None:
    """Write a shard as tensors: ids, or the bytes and offsets of ids that are strings, and the rows."""
    table = pa.Table.from_batches(batches)
    ids = table.column(0).combine_chunks()
    if pa.types.is_integer(ids.type):
        tensors = {"ids": ids.cast(pa.int64()).to_numpy()}
    else:
        spelled = [str(one).encode() for one in ids.to_pylist()]
        tensors = {
            "id_bytes": np.frombuffer(b"".join(spelled), np.uint8),
            "id_ends": np.cumsum([len(one) for one in spelled], dtype=np.int64),
        }
    rows = _rows(table, None)
    if hasattr(rows, "tocsr"):
        tensors |= {"indptr": rows.indptr.astype(np.int64), INDICES: rows.indices, VALUES: rows.data}
    else:
        tensors[EMBEDDING] = rows
    write_tensors(path, tensors)


def read_shards(folder: str | os.PathLike[str]) -> Iterator[Shard]:
    """Yield the shards of an encoded corpus, in the order of its texts.

    Args:
        folder: that `encode_corpus` wrote.

    Raises:
        InputError: it holds no encoded corpus, or one that is not complete.
        ModelFolderError: a shard is missing or damaged.
    """
    with WorkFolder(folder, alone=False) as work:
        facts = work.facts
    if "texts" not in facts:
        raise InputError(f"{folder} holds no encoded corpus; encode_corpus writes one")
    if not facts["complete"]:
        raise InputError(f"the run in {folder} has not ended; start it again with the same arguments to complete it")
    return (_checked_shard(Path(folder), name, facts) for name in facts["shards"])


def _checked_shard(folder: Path, name: str, facts: dict[str, Any]) -> Shard:
    path = folder / name
    try:
        return (_from_parquet if name.endswith(".parquet") else _from_safetensors)(path, facts["dimension"])
    except (pa.ArrowException, OSError, KeyError) as error:
        what = f"damaged: {reason(error)}" if path.exists() else "missing"
        raise ModelFolderError(
            f"{path} is {what}. Delete it and encode the corpus again: only it is made anew"
        ) from error


def _from_parquet(path: Path, dimension: int) -> Shard:
    with ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read()
    return Shard(table.column(0).to_pylist(), _rows(table, dimension))


def _from_safetensors(path: Path, dimension: int) -> Shard:
    tensors, _ = read_tensors(path)
    if "ids" in tensors:
        ids: list[Any] = tensors["ids"].tolist()
    else:
        content, ends = tensors["id_bytes"].tobytes(), tensors["id_ends"].tolist()
        ids = [content[start:end].decode() for start, end in zip([0, *ends], ends)]
    if EMBEDDING in tensors:
        return Shard(ids, tensors[EMBEDDING])
    return Shard(ids, _csr(tensors[VALUES], tensors[INDICES], tensors["indptr"], dimension))


def _rows(table: Any, dimension: int | None) -> Any:
    """Return the embeddings of a table of ids and embeddings."""
    if EMBEDDING in table.column_names:
        column = table.column(EMBEDDING).combine_chunks()
        return column.flatten().to_numpy().reshape(len(column), -1)
    lists = [table.column(name).combine_chunks() for name in (VALUES, INDICES)]
    values, indices = (column.flatten().to_numpy() for column in lists)
    return _csr(values, indices, lists[0].offsets.to_numpy(), dimension)


def _csr(
    values: npt.NDArray[np.float32], indices: npt.NDArray[np.int32], starts: npt.NDArray[Any], dimension: int | None
) -> Any:
    from scipy import sparse

    shape = (len(starts) - 1, int(indices.max(initial=-1)) + 1 if dimension is None else dimension)
    return sparse.csr_matrix((values, indices, starts - starts[0]), shape=shape)


def is_whole(job: Job, number: int) -> bool:
    """Whether a shard was written, as far as its file's own description tells.

    Raises:
        ModelFolderError: a file is in its place that is another or damaged.
    """
    path = job.path(number)
    if not path.exists():
        return False
    try:
        if job.kind == "parquet":
            with ParquetFile(path) as file:
                found = file.metadata.num_rows
        else:
            tensors, _ = read_tensors(path)
            found = len(tensors.get("ids", tensors.get("id_ends", ())))
    except (pa.ArrowException, OSError) as error:
        raise ModelFolderError(f"{path} is damaged; delete it and start the run again") from error
    if found != job.rows(number):
        raise ModelFolderError(
            f"{path} has {found:,} rows, not {job.rows(number):,}; delete it and start the run again"
        )
    return True
