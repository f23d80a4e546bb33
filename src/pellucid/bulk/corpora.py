"""A whole corpus into a folder of shards: checked, begun or resumed, handed to workers, described at the end.

Workers are threads or processes of this machine. They take the numbers of the shards to write; each reads its own rows
and writes its file (`write_shard`).

`state.json` of the folder is the manifest (`checkpoints.py`): settings, corpus, model, sizes and shards. A shard's file
appears when it is complete, so that a killed run resumes with the missing ones.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pellucid.bulk.batches import checked_column
from pellucid.bulk.shards import ROW, Job, ShardRecord, open_encoder, stamp, write_shard
from pellucid.core.arrays import Role, validate_role
from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import record_model
from pellucid.errors import (
    CorpusError,
    InputError,
    ModelFolderError,
    PellucidError,
    check_integer,
    shown,
)
from pellucid.index.models import Model
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.folder import is_outside_allowed, resolve_name
from pellucid.persistence.store import checksum, writing
from pellucid.progress import Progress
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.lines import batches_by_size, check_file
from pellucid.text.parquet import Table
from pellucid.text.tables import CorpusFile, corpus_file, is_path
from pellucid.text.unicode import well_formed

import pyarrow as pa  # isort: skip  # after batches, which says what to install where it is absent
from pyarrow.parquet import ParquetWriter  # isort: skip

_MAX_SHARDS = 1_000_000
_OPTIONS = ("encoding", "delimiter", "quoting")  # of a file, by which its texts may differ
_GROUP_TEXTS = 8_192  # of a row group of the corpus as Parquet, at most


@dataclass(frozen=True)
class CorpusSettings:
    """How a corpus is encoded and written.

    Attributes:
        role: what the texts are encoded as: "query", "document", or None for what `encode` does.
        shard_size: texts in a shard; each worker loses at most so many in a crash.
    """

    role: Role = None
    shard_size: int = 65_536

    def __post_init__(self) -> None:
        """Check the values."""
        validate_role(self.role)
        check_integer("shard_size", self.shard_size)


def encode_corpus(
    model: Any,
    corpus: str | os.PathLike[str] | CorpusFile,
    folder: str | os.PathLike[str],
    *,
    field: str = "text",
    id_field: str | None = None,
    workers: int = 1,
    settings: CorpusSettings | None = None,
) -> list[Path]:
    """Encode a file of any number of texts into a folder of shards, in bounded memory.

    Repeat the call to resume an interrupted run: finished shards stay. `read_shards` reads the folder back.

    Args:
        model: a bundled name, a folder, a hub id, a pellucid model or a SentenceTransformer.
        corpus: a .parquet file, or .txt, .csv, .tsv, .jsonl, .json (each also packed) or .xlsx, which is turned into
            Parquet in `folder` while the run lasts; or a `CorpusFile`, which says how one is read. A null or a blank
            line is the empty text, whose row is zero.
        folder: for the shards: new, empty, or that of the run to resume.
        field: the key or column of the texts, in a file named by a path.
        id_field: of the ids, strings or integers; None for the numbers of the rows, from 0.
        workers: that encode at the same time, threads for a static model and processes for others.
        settings: how; None for shards of 65,536 texts, encoded as `encode` does.

    Returns:
        the paths of the shards, in the order of the texts.

    Raises:
        CorpusError: the corpus is absent, empty, damaged, or holds something else than texts; what is encoded stays.
        InputError: an argument is out of range; or `folder` holds another run's shards, or other files.
        ModelFolderError: the model or a shard is damaged.
        WritingError: no space or no permission; what is encoded stays.
        MissingExtraError: pyarrow is not installed.
    """
    settings, folder = settings or CorpusSettings(), Path(folder)
    file = _file_of(corpus, field, id_field)
    source, field = file.source, file.field
    check_integer("workers", workers)
    _check_paths(source, folder, field, id_field)
    checked_model = Model("model", model)
    with WorkFolder(folder) as work:
        source_stamp = stamp(source)
        run_settings = {"field": field, "id_field": id_field, "corpus": checksum(source), **asdict(settings)}
        work.bind_settings(
            run_settings | {name: value for name in _OPTIONS if (value := getattr(file, name)) is not None}
        )
        record_model(work.metadata, checked_model.encoder, folder)
        in_process = _in_this_process(checked_model.encoder, workers)
        job = Job(
            checked_model.encoder if in_process else _for_other_processes(model),
            source.absolute(), folder.absolute(), field, id_field, settings.role, settings.shard_size,
            work.metadata.get("texts", 0), uuid.uuid4().hex, source_stamp, is_outside_allowed(),
        )  # fmt: skip
        return _completed(work, job, file, checked_model.dimension, workers)


def _for_other_processes(model: Any) -> Any:
    """Return a model as a worker opens it, which may be in another folder: a path is absolute."""
    if not isinstance(model, (str, os.PathLike)):
        return model
    name = resolve_name(model)
    return os.path.abspath(name) if Path(name).exists() else os.fspath(name)


def _file_of(corpus: Any, field: str, id_field: str | None) -> CorpusFile:
    """Return the file of a corpus with the columns that are encoded."""
    file = corpus_file(corpus, field)
    if file is None:
        raise InputError(f"the corpus is {type(corpus).__name__}; give a file, as every run reads it several times")
    return replace(file, id_field=id_field or file.id_field)


def _completed(work: WorkFolder, job: Job, file: CorpusFile, dimension: int, workers: int) -> list[Path]:
    """Write the missing shards, and describe them all."""
    staged = job.folder / "corpus.parquet"
    if not job.texts:  # of a run that ended before it had counted its texts
        staged.unlink(missing_ok=True)
    records = _finished(job, work.metadata.get("shards", {}))
    if not job.texts or len(records) < job.shards:
        job = _as_parquet(job, file, staged)
    names = [job.path(number).name for number in range(job.shards)]
    pending = [number for number, name in enumerate(names) if name not in records]
    summary = {"texts": job.texts, "id": job.id_field or ROW, "dimension": dimension}
    work.commit({**summary, "shards": records, "complete": False})
    started, done = time.monotonic(), 0
    with Progress("encoding", total=sum(map(job.rows, pending))) as progress:
        for record in _write_shards(job, pending, workers) if pending else ():
            records[names[record.number]] = {"texts": record.texts, "size": record.size, "sha256": record.sha256}
            work.commit()
            done += record.texts
            progress.advance(record.texts, f"{done / (time.monotonic() - started):,.0f} texts/s")
    work.commit({"shards": {name: records[name] for name in names}, "complete": True})
    staged.unlink(missing_ok=True)
    return [job.folder / name for name in names]


def _as_parquet(job: Job, file: CorpusFile, staged: Path) -> Job:
    """Return the job over a Parquet file: its own, or what its corpus was turned into."""
    if job.source.suffix.lower() != ".parquet":
        if not staged.exists():
            _write_as_parquet(job, file, staged)
        job = job._replace(source=staged, stamp=stamp(staged))
    with Table(job.source) as table:
        texts = table.rows
    if not texts:
        raise CorpusError(f"{job.source} holds no texts; nothing was encoded")
    job = job._replace(texts=texts)
    if job.shards > _MAX_SHARDS:
        raise InputError(
            f"{job.source} has {texts:,} texts, which are {job.shards:,} shards of {job.size:,}; at most "
            f"{_MAX_SHARDS:,} are written. Give a larger shard_size"
        )
    return job


def _finished(job: Job, records: dict[str, Any]) -> dict[str, Any]:
    """Return the records of the shards that exist, after checking their sizes."""
    finished = {name: record for name, record in records.items() if (job.folder / name).exists()}
    for name, record in finished.items():
        size = (job.folder / name).stat().st_size
        if size != record["size"]:
            raise ModelFolderError(
                f"{job.folder / name} has {size:,} bytes, and {record['size']:,} were written; it is damaged. Delete "
                "it and start the run again: only it is made anew"
            )
    return finished


def _check_paths(source: Path, folder: Path, field: str, id_field: str | None) -> None:
    """Check that the corpus can be read, and that the folder has no other files, before anything is written."""
    if not is_path(source):
        raise InputError(f"{source} can be read only once, and every run reads its corpus several times; give a file")
    check_file(source)
    if id_field == field:
        raise InputError(f"field and id_field are both {shown(field, 80)}; name the field of the ids")
    if source.suffix.lower() == ".parquet":
        _check_columns(source, field, id_field)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder for the shards")
    has_files = folder.exists() and any(not entry.name.startswith(".") for entry in folder.iterdir())
    if has_files and not (folder / "state.json").exists():
        raise InputError(f"{folder} holds something else than an encoded corpus; name a new or empty folder")


def _check_columns(source: Path, field: str, id_field: str | None) -> None:
    with Table(source) as table:
        schema = table.schema
        table.check_once([field] if id_field is None else [field, id_field])
    try:
        fields = [schema.field(name) for name in (id_field, field) if name in schema.names]
        checked_column(pa.schema(fields) if field in schema.names else schema, field)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    if id_field is None:
        return
    if id_field not in schema.names:
        raise InputError(f"{source}: there is no column {id_field!r:.80}; the columns are {', '.join(schema.names)}")
    kind = schema.field(id_field).type
    if not (pa.types.is_integer(kind) or str(kind) in ("string", "large_string", "string_view")):
        raise InputError(f"{source}: column {id_field!r:.80} holds {kind!s:.80}; ids are strings or integers")


def _write_as_parquet(job: Job, file: CorpusFile, path: Path) -> None:
    """Write a corpus of another format as Parquet, in which workers find their rows."""
    rows: Iterable[tuple[Any, str]] = ((None, text) for text in file)
    if job.id_field is not None:
        rows = file.texts_with_ids()
    names = [name for name in (job.id_field, job.field) if name is not None]
    with writing(path) as tmp_path:
        writer: Any = None
        rows = ((row_id, well_formed(text)) for row_id, text in rows)
        for group in batches_by_size(rows, _GROUP_TEXTS, lambda row: len(row[1])):
            ids, texts = zip(*group, strict=True)
            columns = []
            if job.id_field is not None:
                kind = None if writer is None else writer.schema.field(job.id_field).type  # that of those before
                try:
                    columns = [pa.array(ids, kind)]
                except (pa.ArrowException, OverflowError) as error:
                    mixed = f"ids under {job.id_field!r:.80} are of several types: {error}"
                    raise CorpusError(f"{job.source}: {mixed}") from error
            batch = pa.record_batch([*columns, pa.array(texts, pa.large_string())], names=names)
            writer = writer or ParquetWriter(tmp_path, batch.schema, compression="zstd", use_dictionary=False)
            writer.write_batch(batch)
        if writer is None:
            raise CorpusError(f"{job.source} holds no texts; nothing was encoded")
        writer.close()
        if stamp(job.source) != job.stamp:
            raise CorpusError(
                f"{job.source} was changed while it was read; start again when no other program writes to it"
            )


def _in_this_process(encoder: Embedder, workers: int) -> bool:
    """Whether local workers are threads: compiled functions of static models run side by side, Python does not."""
    return workers == 1 or isinstance(encoder, StaticEmbedder)


def _write_shards(job: Job, pending: list[int], workers: int) -> Iterator[ShardRecord]:
    """Write shards on several workers, and yield the record of each once it is written."""
    workers = min(workers, len(pending))
    pool: Executor = ThreadPoolExecutor(workers)
    if _in_this_process(job.model, workers):
        open_encoder(job)  # once, not in every thread
    else:
        method = multiprocessing.get_context("spawn")  # a copy of a process with threads may hang
        pool = ProcessPoolExecutor(workers, method, _prepare, (max(1, (os.cpu_count() or 1) // workers),))
    try:
        for done in as_completed([pool.submit(write_shard, job, number) for number in pending]):
            yield done.result()
    except BrokenProcessPool as error:
        raise PellucidError(
            "a worker process has ended (killed, or out of memory, or the script that started it lacks "
            'if __name__ == "__main__":). What is encoded stays; rerun to resume, with fewer workers where '
            "memory is short"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
        open_encoder.cache_clear()


def _prepare(threads: int) -> None:
    """Set up a worker process: its share of the cores, and its end when the process that started it is killed."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
