"""A whole corpus into a folder of shards: read in order, encoded batch by batch, resumed after a crash.

`state.json` of the folder is the manifest (`checkpoints.py`): settings, corpus, model, sizes and shards. A shard's file
appears when it is complete, so that a killed run resumes with the missing ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from pellucid.bulk.batches import EMBEDDING, BatchEncoder
from pellucid.core.arrays import Role
from pellucid.core.fingerprint import record_model
from pellucid.errors import CorpusError, InputError, check_integer, shown
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum, writing
from pellucid.progress import Progress
from pellucid.text.lines import batches_by_size, check_file
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
    first_id, _ = next(_texts_with_ids(file, has_ids), (None, ""))
    if first_id is None:
        raise CorpusError(f"{file} holds no texts; there is nothing to encode")
    id_column = pa.field(file.id_field if has_ids else ROW, pa.string() if type(first_id) is str else pa.int64())
    encode = BatchEncoder(model, column=file.field, role=role)
    with WorkFolder(folder) as work:
        before = _stamp(file.source)
        options = {name: value for name in _OPTIONS if (value := getattr(file, name)) is not None}
        settings = {"field": file.field, "id_field": id_field, "role": role, "shard_size": shard_size}
        work.bind_settings({**settings, "corpus": checksum(file.source), **options})
        record_model(work.metadata, encode.encoder, folder)
        records = work.metadata.get("shards", {})  # whose checksums `read_shards` compares
        shards = {name: record for name, record in records.items() if (folder / name).exists()}
        numbered = enumerate(_texts_with_ids(file, has_ids))
        with Progress("encoding") as progress:
            for number, group in groupby(numbered, key=lambda item: item[0] // shard_size):
                name = f"shard-{number:06d}.parquet"
                if name not in shards:
                    batches = map(encode, _batches(file, id_column, (row for _, row in group)))
                    shards[name] = _write_shard(folder / name, batches, file, before)
                    work.commit({"shards": shards, "complete": False})
                progress.advance(shards[name]["texts"])
        shards = dict(sorted(shards.items()))
        n_texts, dimension = (
            sum(record["texts"] for record in shards.values()),
            encode.encoder.get_embedding_dimension(),
        )
        work.commit(
            {"id": id_column.name, "shards": shards, "texts": n_texts, "dimension": dimension, "complete": True}
        )
    return [folder / name for name in shards]


def _check_paths(file: CorpusFile, folder: Path, has_ids: bool) -> None:
    """Check that the corpus can be read, and that the folder has no other files, before anything is written."""
    if not is_path(file):
        raise InputError(f"{file} can be read only once, and a corpus is read more than once; give a file")
    check_file(file.source)
    if has_ids and file.id_field == file.field:
        raise InputError(f"field and id_field are both {shown(file.field, 80)}; name the field of the ids")
    has_files = folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir())
    if has_files and not (folder / "state.json").exists():
        raise InputError(f"{folder} holds something else than an encoded corpus; name a new or empty folder")


def _texts_with_ids(file: CorpusFile, has_ids: bool) -> Iterator[tuple[Any, str]]:
    """Yield the texts of a corpus after their ids, or the numbers of their rows."""
    return file.texts_with_ids() if has_ids else iter(enumerate(file))


def _batches(file: CorpusFile, id_column: Any, rows: Iterator[tuple[Any, str]]) -> Iterator[Any]:
    """Yield ids and texts as record batches."""
    schema = pa.schema([id_column, pa.field(file.field, pa.large_string())])
    for block in batches_by_size(rows, _BATCH_TEXTS, lambda row: len(row[1])):
        ids, texts = zip(*block, strict=True)
        try:
            columns = [pa.array(ids, id_column.type), pa.array(list(map(well_formed, texts)), pa.large_string())]
        except (pa.ArrowException, OverflowError) as error:
            raise CorpusError(f"{file}: ids under {file.id_field!r:.80} are of several types: {error}") from error
        yield pa.record_batch(columns, schema=schema)


def _write_shard(path: Path, batches: Iterator[Any], file: CorpusFile, before: tuple[int, int]) -> dict[str, Any]:
    """Write one shard, whole or not at all, and return its record, by which another file in its place is noticed."""
    n_texts, writer = 0, None
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
            raise CorpusError(f"{file} was changed while it was read; start again when no other program writes to it")
        return {"texts": n_texts, "sha256": checksum(tmp_path)}


def _stamp(path: Path) -> tuple[int, int]:
    """Return a file's size and the time of its last change, in nanoseconds."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns
