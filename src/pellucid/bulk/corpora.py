"""A whole corpus into a folder of shards: read in order, encoded batch by batch, resumed after a crash.

`state.json` of the folder is the manifest (`checkpoints.py`): settings, corpus, model, sizes and shards. A shard's file
appears when it is complete, so that a killed run resumes with the missing ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.bulk.batches import EMBEDDING, BatchEncoder, checked_column
from pellucid.core.arrays import Role
from pellucid.core.fingerprint import record_model
from pellucid.errors import CorpusError, InputError, ModelFolderError, check_integer, shown
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum, writing
from pellucid.progress import Progress
from pellucid.text.lines import batches_by_size, check_file
from pellucid.text.parquet import Table
from pellucid.text.tables import CorpusFile, corpus_file, is_path
from pellucid.text.unicode import well_formed

import pyarrow as pa  # isort: skip  # after batches, which says what to install where it is absent
from pyarrow.parquet import ParquetWriter  # isort: skip

ROW = "id"
"""The column of row numbers, from 0, where the corpus has no ids."""

_BATCH_TEXTS = 8_192  # encoded and written together, at most
_OPTIONS = ("encoding", "delimiter", "quoting")  # of a file, by which its texts may differ


def encode_corpus(
    model: Any,
    corpus: str | os.PathLike[str] | CorpusFile,
    folder: str | os.PathLike[str],
    *,
    field: str = "text",
    id_field: str | None = None,
    role: Role = None,
    shard_size: int = 65_536,
) -> list[Path]:
    """Encode a file of any number of texts into a folder of shards, in bounded memory.

    Repeat the call to resume an interrupted run: finished shards stay. `read_shards` reads the folder back.

    Args:
        model: a bundled name, a folder, a hub id, a pellucid model or a SentenceTransformer.
        corpus: a .parquet file, or .txt, .csv, .tsv, .jsonl, .json (each also packed) or .xlsx; or a `CorpusFile`,
            which says how one is read. A null or a blank line is the empty text, whose row is zero.
        folder: for the shards: new, empty, or that of the run to resume.
        field: the key or column of the texts, in a file named by a path.
        id_field: of the ids, strings or integers; None for the numbers of the rows, from 0.
        role: what the texts are encoded as: "query", "document", or None for what `encode` does.
        shard_size: texts in a shard; a crash loses at most so many.

    Returns:
        the paths of the shards, in the order of the texts.

    Raises:
        CorpusError: the corpus is absent, empty, damaged, or holds something else than texts; what is encoded stays.
        InputError: an argument is out of range; or `folder` holds another run's shards, or other files.
        ModelFolderError: the model or a shard is damaged.
        WritingError: no space or no permission; what is encoded stays.
        MissingExtraError: pyarrow is not installed.
    """
    folder = Path(folder)
    check_integer("shard_size", shard_size)
    file = corpus_file(corpus, field)
    if file is None:
        raise InputError(f"the corpus is {type(corpus).__name__}; give a file, as it is read more than once")
    if id_field is not None:
        file = replace(file, id_field=id_field)
    has_ids = id_field is not None
    _check_paths(file, folder, has_ids)
    encode = BatchEncoder(model, column=file.field, role=role)
    with WorkFolder(folder) as work:
        before = _stamp(file.source)
        options = {name: value for name in _OPTIONS if (value := getattr(file, name)) is not None}
        settings = {"field": file.field, "id_field": id_field, "role": role, "shard_size": shard_size}
        work.bind_settings({**settings, "corpus": checksum(file.source), **options})
        record_model(work.metadata, encode.encoder, folder)
        shards = _finished(folder, work.metadata.get("shards", {}))
        n_texts = 0
        batches = _cut(_batches(file, has_ids), shard_size)
        with Progress("encoding") as progress:
            for number, numbered in groupby(batches, key=itemgetter(0)):
                name = f"shard-{number:06d}.parquet"
                if name not in shards:
                    shards[name] = _write_shard(folder / name, map(encode, map(itemgetter(1), numbered)), file, before)
                    work.commit({"shards": shards, "complete": False})
                n_texts += shards[name]["texts"]
                progress.advance(shards[name]["texts"])
        if not n_texts:
            raise CorpusError(f"{file} holds no texts; nothing was encoded")
        names = sorted(shards)
        summary = {"texts": n_texts, "dimension": encode.encoder.get_embedding_dimension(), "complete": True}
        work.commit({"id": id_field or ROW, "shards": {name: shards[name] for name in names}, **summary})
    return [folder / name for name in names]


def _check_paths(file: CorpusFile, folder: Path, has_ids: bool) -> None:
    """Check that the corpus can be read, and that the folder has no other files, before anything is written."""
    if not is_path(file):
        raise InputError(f"{file} can be read only once, and a corpus is read more than once; give a file")
    check_file(file.source)
    if has_ids and file.id_field == file.field:
        raise InputError(f"field and id_field are both {shown(file.field, 80)}; name the field of the ids")
    if file.kind == ".parquet":
        _check_columns(file, has_ids)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder for the shards")
    has_files = folder.exists() and any(not entry.name.startswith(".") for entry in folder.iterdir())
    if has_files and not (folder / "state.json").exists():
        raise InputError(f"{folder} holds something else than an encoded corpus; name a new or empty folder")


def _check_columns(file: CorpusFile, has_ids: bool) -> None:
    table = Table(file.source)
    table.check_once([file.field, *[file.id_field] * has_ids])
    schema = table.schema
    try:
        checked_column(schema, file.field, other_columns=[file.id_field] * has_ids)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    if not has_ids:
        return
    if file.id_field not in schema.names:
        raise InputError(f"{file}: there is no column {file.id_field!r:.80}; the columns are {', '.join(schema.names)}")
    kind = schema.field(file.id_field).type
    if not (pa.types.is_integer(kind) or str(kind) in ("string", "large_string", "string_view")):
        raise InputError(f"{file}: column {file.id_field!r:.80} holds {kind!s:.80}; ids are strings or integers")


def _batches(file: CorpusFile, has_ids: bool) -> Iterator[Any]:
    """Yield the texts of a corpus and their ids, or the numbers of their rows, as record batches."""
    rows = 0
    for columns in _parquet_columns(file, has_ids) if file.kind == ".parquet" else _columns(file, has_ids):
        *ids, texts = columns
        if ids and ids[0].null_count:
            row = rows + ids[0].is_null().index(True).as_py()
            raise CorpusError(f"{file}: row {row:,} has no id under {file.id_field!r}; give it one")
        ids = ids or [pa.array(np.arange(rows, rows + len(texts)))]
        rows += len(texts)
        yield pa.record_batch([*ids, texts], names=[file.id_field if has_ids else ROW, file.field])


def _parquet_columns(file: CorpusFile, has_ids: bool) -> Iterator[list[Any]]:
    names = [*[file.id_field] * has_ids, file.field]
    yield from (batch.columns for batch in Table(file.source).batches(names, _BATCH_TEXTS))


def _columns(file: CorpusFile, has_ids: bool) -> Iterator[list[Any]]:
    rows = file.texts_with_ids() if has_ids else ((None, text) for text in file)
    kind = None  # of the ids
    for block in batches_by_size(rows, _BATCH_TEXTS, lambda row: len(row[1])):
        ids, texts = zip(*block, strict=True)
        columns = [pa.array(list(map(well_formed, texts)), pa.large_string())]
        if has_ids:
            try:
                columns.insert(0, pa.array(ids, kind))
            except (pa.ArrowException, OverflowError) as error:
                raise CorpusError(f"{file}: ids under {file.id_field!r:.80} are of several types: {error}") from error
            kind = columns[0].type
        yield columns


def _cut(batches: Iterator[Any], size: int) -> Iterator[tuple[int, Any]]:
    """Yield the number of a shard and a batch of its rows, cut at the same rows each time."""
    row = 0
    for batch in batches:
        start = 0
        while start < len(batch):
            part = batch.slice(start, min(len(batch) - start, size - row % size))
            yield row // size, part
            row, start = row + len(part), start + len(part)


def _write_shard(path: Path, batches: Iterator[Any], file: CorpusFile, before: tuple[int, int]) -> dict[str, Any]:
    """Write one shard, whole or not at all, and return its record, by which another file in its place is noticed."""
    n_texts, writer = 0, None
    try:
        with writing(path) as tmp_path:
            try:
                for batch in batches:
                    dense = EMBEDDING in batch.schema.names
                    writer = writer or ParquetWriter(
                        tmp_path, batch.schema, compression="none" if dense else "zstd", use_dictionary=False,
                        write_statistics=False, write_page_checksum=True,
                    )  # fmt: skip
                    writer.write_batch(batch)
                    n_texts += len(batch)
            finally:
                if writer is not None:
                    writer.close()
            if _stamp(file.source) != before:
                raise CorpusError("it was changed while it was read; start again when no other program writes to it")
            return {"texts": n_texts, "size": tmp_path.stat().st_size, "sha256": checksum(tmp_path)}
    except CorpusError as error:
        raise CorpusError(f"{file}: {error}") from error


def _stamp(path: Path) -> tuple[int, int]:
    """Return a file's size and the time of its last change, in nanoseconds."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _finished(folder: Path, records: dict[str, Any]) -> dict[str, Any]:
    """Return the records of the shards that exist, after checking their sizes."""
    finished = {name: record for name, record in records.items() if (folder / name).exists()}
    for name, record in finished.items():
        size = (folder / name).stat().st_size
        if size != record["size"]:
            raise ModelFolderError(
                f"{folder / name} has {size:,} bytes, and {record['size']:,} were written; it is damaged. Delete it "
                "and start the run again: only it is made anew"
            )
    return finished
