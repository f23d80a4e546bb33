"""Documents from files: JSON lines, CSV, Parquet, text, and folders of text or Markdown, one at a time.

In a table the columns "id", "title" and "text" are what they say (other names can be given), every other one is
metadata, and an object "metadata" holds more of it. A document without an id is named by its file and line.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.corpus import DAMAGED, UNPACKERS
from pellucid.errors import CorpusError, missing_extra

_WHOLE = (".txt", ".md", ".markdown")  # files of a folder that are a document each
_LONGEST_CELL = 1 << 30  # of a CSV file


class Record(NamedTuple):
    """A document as a file holds it."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class Columns(NamedTuple):
    """What the columns of a table are called; "_id" is understood where there is no "id"."""

    id: str = "id"
    title: str = "title"
    text: str = "text"


def read_documents(path: str | os.PathLike[str], columns: Columns | None = None) -> Iterator[Record]:
    """Yield the documents of a file or folder, in order, in bounded memory.

    Args:
        path: .jsonl, .csv, .tsv or .txt (a text a line), each also packed (.gz, .xz); .parquet; .md (one document); or
            a folder, of which every .txt and .md is a document named by its path.
        columns: what the columns are called.

    Raises:
        CorpusError: nothing is there, the kind is unknown, or the file is broken at a named line.
    """
    path, columns = Path(path), columns or Columns()
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _WHOLE and file.is_file())
        if not files:
            raise CorpusError(f"the folder {path} holds no file that ends in {', '.join(_WHOLE)}")
        for file in files:
            yield _whole(file, file.relative_to(path).as_posix())
        return
    if not path.is_file():
        raise CorpusError(f"file not found: {path}")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in UNPACKERS else ""
    kind = suffixes[-1] if suffixes else ""
    if kind in (".md", ".markdown"):
        yield _whole(path, path.name)
        return
    if kind not in _READERS:
        raise CorpusError(f"cannot tell the format of {path}; pellucid reads {', '.join(_READERS)}, .md and folders")
    try:
        with UNPACKERS.get(packed, open)(path, "rb") as file:
            yield from _READERS[kind](path, file, columns)
    except DAMAGED as error:
        raise CorpusError(f"{path} is damaged: {error}") from error


def _whole(path: Path, own: str) -> Record:
    """Return a file as one document; the first heading of a Markdown file is its title."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CorpusError(f"{path}, line {line} is not UTF-8: {error.reason}") from error
    title = ""
    if path.suffix.lower() != ".txt" and text.lstrip().startswith("# "):
        title, _, text = text.lstrip()[2:].partition("\n")
    return Record(own, title.strip(), text.strip(), {})


def _lines(path: Path, file: Any) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}, line {number} is not UTF-8: {error.reason} at byte {error.start}") from error


def _read_txt(path: Path, file: Any, columns: Columns) -> Iterator[Record]:
    for number, line in enumerate(_lines(path, file), 1):
        if line.strip():
            yield Record(f"{path.name}:{number}", "", line.rstrip("\r\n"), {})


def _read_jsonl(path: Path, file: Any, columns: Columns) -> Iterator[Record]:
    for number, line in enumerate(_lines(path, file), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{path}, line {number}: not JSON ({error})") from error
        row = {columns.text: row} if isinstance(row, str) else row
        if not isinstance(row, dict):
            raise CorpusError(f"{path}, line {number} is {type(row).__name__}; it must be an object or a string")
        yield _record(row, columns, f"{path.name}:{number}", f"{path}, line {number}")


def _read_table(delimiter: str) -> Callable[[Path, Any, Columns], Iterator[Record]]:
    def read(path: Path, file: Any, columns: Columns) -> Iterator[Record]:
        csv.field_size_limit(_LONGEST_CELL)
        rows = csv.DictReader(_lines(path, file), delimiter=delimiter, strict=True)
        try:
            for row in rows:
                place = f"{path}, line {rows.line_num}"
                if None in row or None in row.values():
                    raise CorpusError(f"{place} has not as many cells as the first line has names")
                filled = {name: cell for name, cell in row.items() if cell != "" or name in columns}
                yield _record(filled, columns, f"{path.name}:{rows.line_num}", place)
        except csv.Error as error:
            raise CorpusError(f"{path}, line {rows.line_num}: {error}") from error

    return read


def _read_parquet(path: Path, file: Any, columns: Columns) -> Iterator[Record]:
    try:
        from pyarrow import lib
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing_extra("pyarrow", "parquet") from error
    try:
        table = ParquetFile(file)
    except lib.ArrowInvalid as error:
        raise CorpusError(f"{path} is not a parquet file: {error}") from error
    number = 0
    for batch in table.iter_batches(batch_size=1000):
        for row in batch.to_pylist():
            number += 1
            yield _record(row, columns, f"{path.name}:{number}", f"{path}, row {number}")


_READERS: dict[str, Any] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_table(","),
    ".tsv": _read_table("\t"),
    ".txt": _read_txt,
    ".parquet": _read_parquet,
}


def _record(row: Mapping[str, Any], columns: Columns, default_id: str, place: str) -> Record:
    rest = dict(row)
    text, title = rest.pop(columns.text, None), rest.pop(columns.title, None)
    own = rest.pop(columns.id, None)
    if own is None and columns.id == "id":
        own = rest.pop("_id", None)
    if not isinstance(text, str):
        known = ", ".join(map(str, row))
        raise CorpusError(f"{place}: no text under {columns.text!r}; it has {known:.200}. Name the column")
    if title is not None and not isinstance(title, str):
        raise CorpusError(f"{place}: the title under {columns.title!r} is {type(title).__name__}; it must be a string")
    more = rest.pop("metadata", None)
    metadata = {**rest, **(more if isinstance(more, dict) else {} if more is None else {"metadata": more})}
    return Record(default_id if own in (None, "") else str(own), title or "", text, metadata)
