"""Documents from files: JSON lines, CSV, Parquet, text, and folders of text or Markdown, one at a time.

In a table the columns "id", "title" and "text" are what they say (other names can be given), every other one is
metadata, and an object "metadata" holds more of it. A document without an id is named by its file and line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.corpus import LONGEST_LINE, UNPACKERS, check_file, parquet_rows, parse_json, read_lines, table_rows
from pellucid.errors import CorpusError

_WHOLE = (".txt", ".md", ".markdown")  # files of a folder that are a document each


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
    """Yield the documents of a file or folder, in order, in bounded memory; a blank line is none, a null text is empty.

    Args:
        path: .jsonl, .csv, .tsv or .txt (a text a line), each also packed (.gz, .xz); .parquet; .md (one document); or
            a folder, of which every .txt and .md is a document named by its path. A pipe is read as its name ends, and
            as plain text without an ending.
        columns: what the columns are called.

    Raises:
        CorpusError: nothing is there, the kind is unknown, the file is broken at a named line, or a line or text is
            longer than 64 MB.
    """
    path, columns = Path(path), columns or Columns()
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _WHOLE and file.is_file())
        if not files:
            raise CorpusError(f"the folder {path} holds no file that ends in {', '.join(_WHOLE)}")
        for file in files:
            yield _whole(file, file.relative_to(path).as_posix())
        return
    check_file(path, "file")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in UNPACKERS else ""
    kind = suffixes[-1] if suffixes else ""
    if kind in (".md", ".markdown"):
        yield _whole(path, path.name)
    elif kind in _READERS and not (packed and kind == ".parquet"):
        yield from _READERS[kind](path, columns)
    elif not path.is_file():
        yield from _read_txt(path, columns)
    else:
        raise CorpusError(f"cannot tell the format of {path}; pellucid reads {', '.join(_READERS)}, .md and folders")


def _whole(path: Path, own: str) -> Record:
    """Return a file as one document; the first heading of a Markdown file is its title."""
    size, lines = 0, []
    for line in read_lines(path):
        lines.append(line)
        size += len(line) + 1
        if size > LONGEST_LINE:
            raise CorpusError(f"{path} is longer than {LONGEST_LINE:,} characters; divide it")
    text, title = "\n".join(lines), ""
    if path.suffix.lower() != ".txt" and text.lstrip().startswith("# "):
        title, _, text = text.lstrip()[2:].partition("\n")
    return Record(own, title.strip(), text.strip(), {})


def _full_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    return ((number, line) for number, line in enumerate(read_lines(path), 1) if line and not line.isspace())


def _read_txt(path: Path, columns: Columns) -> Iterator[Record]:
    for number, line in _full_lines(path):
        yield Record(f"{path.name}:{number}", "", line, {})


def _read_jsonl(path: Path, columns: Columns) -> Iterator[Record]:
    for number, line in _full_lines(path):
        place = f"{path}, line {number}"
        row = parse_json(line, f"{place}: ")
        row = {columns.text: row} if row is None or isinstance(row, str) else row
        if not isinstance(row, dict):
            raise CorpusError(f"{place} is {type(row).__name__}; it must be an object or a string")
        yield _record(row, columns, f"{path.name}:{number}", place)


def _read_table(delimiter: str) -> Callable[[Path, Columns], Iterator[Record]]:
    def read(path: Path, columns: Columns) -> Iterator[Record]:
        for number, row in table_rows(path, delimiter):
            filled = {name: cell for name, cell in row.items() if cell != "" or name in columns}
            yield _record(filled, columns, f"{path.name}:{number}", f"{path}, line {number}")

    return read


def _read_parquet(path: Path, columns: Columns) -> Iterator[Record]:
    for number, row in enumerate(parquet_rows(path, lambda schema: list(schema.names)), 1):
        yield _record(row, columns, f"{path.name}:{number}", f"{path}, row {number}")


_READERS: dict[str, Callable[[Path, Columns], Iterator[Record]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_table(","),
    ".tsv": _read_table("\t"),
    ".txt": _read_txt,
    ".parquet": _read_parquet,
}


def _record(row: Mapping[str, Any], columns: Columns, default_id: str, place: str) -> Record:
    rest = dict(row)
    text, title = rest.pop(columns.text, 0), rest.pop(columns.title, None)
    own = rest.pop(columns.id, None)
    if own is None and columns.id == "id":
        own = rest.pop("_id", None)
    text = "" if text is None else text
    if not isinstance(text, str):
        known = ", ".join(map(str, row))
        raise CorpusError(f"{place}: no text under {columns.text!r}; it has {known:.200}. Name the column")
    if len(text) > LONGEST_LINE:
        raise CorpusError(f"{place}: the text is longer than {LONGEST_LINE:,} characters; divide it")
    if title is not None and not isinstance(title, str):
        raise CorpusError(f"{place}: the title under {columns.title!r} is {type(title).__name__}; it must be a string")
    more = rest.pop("metadata", None)
    metadata = {**rest, **(more if isinstance(more, dict) else {} if more is None else {"metadata": more})}
    return Record(default_id if own in (None, "") else str(own), title or "", text, metadata)
