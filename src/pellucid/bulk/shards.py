"""A shard: some rows of a corpus, read from its Parquet file, encoded, written whole or not at all, and read back.

A worker does one shard after the other and needs nothing but `Job` and a number, so that whoever hands out the numbers
(`workers.py`) moves no texts and no embeddings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.bulk.batches import EMBEDDING, INDICES, VALUES, BatchEncoder
from pellucid.encoders import Encoder
from pellucid.encoding import Role
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
    encoded = map(_opened(job.model, job.column, job.role), _read(job, number))
    (_write_parquet if job.kind == "parquet" else _write_safetensors)(job.path(number), encoded)
    return job.rows(number)


@lru_cache(maxsize=1)
def _opened(model: Encoder, column: str, role: Role) -> BatchEncoder:
    """Return the model as a function of batches, opened once a process."""
    return BatchEncoder(model, column=column, role=role)


def _read(job: Job, number: int) -> Iterator[Any]:
    """Yield the record batches of a shard: ids and texts."""
    columns = [job.column] if job.id_column is None else [job.id_column, job.column]
    row = number * job.size
    for batch in read_rows(job.source, columns, row, job.rows(number)):
        if job.id_column is None:
            numbers = pa.array(np.arange(row, row + len(batch)))
            batch = pa.record_batch([numbers, batch.column(0)], names=[ROW, job.column])
        elif batch.column(job.id_column).null_count:
            place = row + batch.column(job.id_column).is_null().to_numpy(zero_copy_only=False).argmax()
            raise CorpusError(f"row {place} of {job.source} has no id under {job.id_column!r}; give it one")
        yield batch
        row += len(batch)


def read_rows(path: Path, columns: list[str], first: int, count: int) -> Iterator[Any]:
    """Yield `count` rows of a Parquet file from row `first` on, as record batches; only their row groups are read.

    Raises:
        CorpusError: the file is damaged.
    """
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            starts = np.concatenate([[0], np.cumsum(sizes)])
            groups = np.flatnonzero((starts[1:] > first) & (starts[:-1] < first + count)).tolist()
            skip = first - int(starts[groups[0]])
            for batch in file.iter_batches(_BATCH, row_groups=groups, columns=columns):
                part = batch.slice(min(skip, len(batch)), count)
                skip, count = max(0, skip - len(batch)), count - len(part)
                if len(part):
                    yield part.select(columns)
                if not count:
                    return
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path} is damaged or no Parquet file: {' '.join(str(error).split())[:200]}") from error
    raise CorpusError(f"{path} has fewer rows than it had when the run began")


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
        what = f"damaged: {' '.join(str(error).split())[:200]}" if path.exists() else "missing"
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
