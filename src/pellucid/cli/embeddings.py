"""Embeddings written to files of any length in bounded memory: npy, JSON lines, parquet.

A writer takes blocks of texts with their embeddings, one block at a time, and never holds more than one. The file is
written aside and renamed at the end (`store.writing`), so that an interrupted run leaves the old file or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.format import write_array_header_1_0

from pellucid.errors import InputError, missing_extra
from pellucid.store import writing
from pellucid.text import well_formed

FORMATS = ("npy", "jsonl", "parquet")

Write = Callable[[Sequence[str], Any], None]
"""Takes a block's texts and their embeddings: float32 [texts, dimension], or a CSR matrix of that shape."""


def output_format(path: Path | None, name: str | None) -> str:
    """Return the format called `name`, or else the one `path` ends with; JSON lines where neither is given.

    Raises:
        InputError: the name or the ending is none of `FORMATS`.
    """
    if name is None and path is None:
        return "jsonl"
    chosen = (name or (path.suffix if path else "")).lower().removeprefix(".")
    if chosen not in FORMATS:
        told = f"format {name!r}" if name else f"the format of {path}"
        raise InputError(f"cannot write {told}; end the file name in .npy, .jsonl or .parquet, or name one of them")
    return chosen


@contextmanager
def open_writer(path: Path | None, kind: str, dimension: int, stdout: IO[str]) -> Iterator[Write]:
    """Yield the function that writes blocks to `path`, or to `stdout` where `path` is None.

    Args:
        path: the file that appears, whole, when the block ends without an error.
        kind: one of `FORMATS`.
        dimension: numbers in an embedding; the file has that many columns even if it gets no text.
        stdout: where JSON lines go without a path.

    Raises:
        InputError: npy or parquet without a path, or npy for sparse embeddings.
        WritingError: the disk is full or may not be written; what was at `path` is untouched.
    """
    if path is None:
        if kind != "jsonl":
            raise InputError(f"{kind} is no text and cannot go to the terminal or a pipe; name a file with --output")
        yield _json_lines(stdout)
        return
    with _place(path) as place, _OPENERS[kind](place, dimension) as write:
        yield write


@contextmanager
def _place(path: Path) -> Iterator[Path]:
    """Yield where to write: beside `path`, or `path` itself where it is no file that can be replaced (/dev/null)."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write, or give the folder after FILE for shards")
    if path.exists() and not path.is_file():
        yield path
        return
    with writing(path) as aside:
        yield aside


@contextmanager
def _open_jsonl(path: Path, dimension: int) -> Iterator[Write]:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        yield _json_lines(file)


def _json_lines(file: IO[str]) -> Write:
    def write(texts: Sequence[str], embeddings: Any) -> None:
        for text, embedding in zip(texts, _json_arrays(embeddings)):
            file.write(f'{{"text": {json.dumps(text)}, "embedding": {embedding}}}\n')

    return write


def _json_arrays(embeddings: Any) -> Iterator[str]:
    """Yield each row as JSON: a list, or for a sparse one its dimensions and their values."""
    if not hasattr(embeddings, "tocsr"):
        yield from map(_json_floats, embeddings)
        return
    rows = embeddings.tocsr()
    for start, end in zip(rows.indptr[:-1], rows.indptr[1:]):
        yield f'{{"dimensions": {rows.indices[start:end].tolist()}, "values": {_json_floats(rows.data[start:end])}}}'


def _json_floats(row: Iterable[np.float32]) -> str:
    return "[" + ", ".join(map("%.9g".__mod__, row)) + "]"  # nine digits tell every two float32 apart


@contextmanager
def _open_npy(path: Path, dimension: int) -> Iterator[Write]:
    """Write rows as they come; their number is filled in at the end, for which numpy's header has room."""
    count = 0

    def write(texts: Sequence[str], embeddings: Any) -> None:
        nonlocal count
        if hasattr(embeddings, "tocsr"):
            raise InputError("this model's embeddings are sparse, which npy cannot hold; write .jsonl or .parquet")
        file.write(np.ascontiguousarray(embeddings, dtype="<f4").data)
        count += len(embeddings)

    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False}
        write_array_header_1_0(file, {**header, "shape": (0, dimension)})
        yield write
        file.seek(0)
        write_array_header_1_0(file, {**header, "shape": (count, dimension)})


@contextmanager
def _open_parquet(path: Path, dimension: int) -> Iterator[Write]:
    """Write one row group a block: columns `text` and `embedding` (a list, or a struct of two where sparse)."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise missing_extra("pyarrow", "parquet") from error
    dense = pa.list_(pa.float32(), dimension)
    writer: Any = None

    def write(texts: Sequence[str], embeddings: Any) -> None:
        nonlocal writer
        if hasattr(embeddings, "tocsr"):
            column = _sparse_column(embeddings.tocsr())
        else:
            column = pa.FixedSizeListArray.from_arrays(np.asarray(embeddings, np.float32).ravel(), type=dense)
        table = pa.table({"text": pa.array(map(well_formed, texts), pa.string()), "embedding": column})
        writer = writer or ParquetWriter(path, table.schema)
        writer.write_table(table)

    try:
        yield write
        if writer is None:
            writer = ParquetWriter(path, pa.schema({"text": pa.string(), "embedding": dense}))
    finally:
        if writer is not None:
            writer.close()


def _sparse_column(rows: Any) -> Any:
    import pyarrow as pa

    starts = pa.array(rows.indptr, pa.int32())
    lists = [pa.ListArray.from_arrays(starts, pa.array(a)) for a in (rows.indices.astype(np.int32), rows.data)]
    return pa.StructArray.from_arrays(lists, names=["dimensions", "values"])


_OPENERS = {"npy": _open_npy, "jsonl": _open_jsonl, "parquet": _open_parquet}
