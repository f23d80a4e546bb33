"""Reading a corpus of any size, one text at a time: txt, jsonl, csv, tsv and parquet.

Plain text (`.txt`, one text a line), JSON lines (`.jsonl`, a string or an object with a text field a line), tables
(`.csv`, `.tsv`, names of columns in the first line), any of them compressed (`.xz`, `.gz`), `.parquet` (a text column),
or any iterable of strings. Every line, row or item is a text: a blank line and a null are the empty text.

Every reader of text files uses `read_lines`. Only a line feed ends a line. One carriage return before it is part of the
line end, and a byte order mark at the start of the file is dropped.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from reprlib import repr as shown  # of what may be nested deeper than Python can show
from typing import Any, BinaryIO, TypeVar, Union

from pellucid.errors import CorpusError

Corpus = Union[str, "os.PathLike[str]", Iterable[str]]
"""A path, or an iterable of texts (a list, a generator, ...)."""

Item = TypeVar("Item")

UNPACKERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
"""What opens a packed file, by the end of its name."""

LONGEST_LINE = 1 << 26
"""Bytes in a line, unpacked, or in a text of a parquet file; a longer one is refused before memory is filled."""

_MOST_VALUES = 4_000_000
"""Commas and brackets in a line of JSON or a table: each may stand for a value that takes a hundred bytes."""

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, MemoryError)
"""What opening or reading a missing, locked, damaged or hostile file raises, packed or not."""

_WITH_FIELDS = (".jsonl", ".csv", ".tsv")
_DELIMITERS = ",;\t|"  # of the cells of a table; the first of those that are equally many
_FORMATS = ".txt (one text a line), .jsonl, .csv, .tsv (each also with .xz or .gz) and .parquet"
_BLOCK_CHARACTERS = 1 << 24  # of the items of a list that `cut` makes
_CHUNK = 1 << 18  # bytes asked for at once
_BATCH = 256  # rows of a parquet file in memory at once
_TEXT_COLUMN = re.compile(r"(large_)?string(_view)?|null|dictionary<values=(large_)?string,.*")
_PEEK = 4096  # bytes at the start of a file that show whether it is UTF-16


def cut(
    items: Iterable[Item], most: int, size: Callable[[Item], int], characters_each: int = _BLOCK_CHARACTERS
) -> Iterator[list[Item]]:
    """Cut items into lists of at most `most` of them, and of about so many characters, as `size` counts them."""
    block: list[Item] = []
    characters = 0
    for item in items:
        block.append(item)
        characters += size(item)
        if len(block) == most or characters >= characters_each:
            yield block
            block, characters = [], 0
    if block:
        yield block


def is_path(corpus: Corpus) -> bool:
    """Whether `corpus` names a file that can be read again, rather than a pipe or the texts themselves."""
    return isinstance(corpus, (str, os.PathLike)) and not _is_stream(Path(corpus))


def read_texts(corpus: Corpus, *, field: str = "text") -> Iterator[str]:
    """Yield the texts of a path or iterable in order, in bounded memory; `field` is the JSON key or the column."""
    if not isinstance(corpus, (str, os.PathLike)):
        for position, text in enumerate(corpus):
            if not isinstance(text, str):
                raise CorpusError(
                    f"corpus item {position} is {type(text).__name__} {text!r:.80}; every item must be a str"
                )
            yield text
        return
    path = Path(corpus)
    kind = _kind(path)
    if kind == ".parquet":
        yield from _read_parquet(path, field)
    elif kind == ".txt":
        yield from read_lines(path)
    else:
        yield from (_text_of(row, field, place) for place, row in _rows(path, kind))


def read_with_ids(path: Path, id_field: str, *, field: str = "text") -> Iterator[tuple[Any, str]]:
    """Yield ids and texts of a .jsonl, .csv or .tsv file, in bounded memory; an id is a string or an integer."""
    kind = _kind(path)
    if kind not in _WITH_FIELDS:
        raise CorpusError(f"{path} has no ids under {id_field!r:.80}: only .jsonl, .csv, .tsv and .parquet have fields")
    for place, row in _rows(path, kind):
        own = row.get(id_field) if isinstance(row, dict) else None
        if own is None or own == "":
            raise CorpusError(f"{place}no id under {id_field!r:.80}; name the field that holds it")
        if type(own) not in (str, int):
            raise CorpusError(f"{place}the id {shown(own):.40} is {type(own).__name__}; ids are strings or integers")
        yield own, _text_of(row, field, place)


def _kind(path: Path) -> str:
    """Return the ending of a file's name without that of its compression; .txt for a pipe without one."""
    suffixes = [s.lower() for s in path.suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in UNPACKERS else ""
    kind = suffixes[-1] if suffixes else ""
    if kind in (".txt", *_WITH_FIELDS) or (kind == ".parquet" and not packed):
        return kind
    if _is_stream(path):
        return ".txt"
    check_file(path)
    raise CorpusError(f"cannot tell the format of corpus file {path}; pellucid reads {_FORMATS}")


def check_file(path: Path, what: str = "corpus file") -> None:
    """Check that there is something to read at `path`."""
    if os.path.isdir(path):
        raise CorpusError(f"{path} is a folder; name a file")
    if not os.path.exists(path):
        raise CorpusError(f"{what} not found: {path}")


def read_lines(source: Path | BinaryIO, name: str = "corpus file") -> Iterator[str]:
    """Yield the lines of a UTF-8 file (also `.xz`, `.gz`) or binary stream; `name` is for messages."""
    return chain.from_iterable(_lines(source, name) if not isinstance(source, Path) else _file_lines(source, name))


def parse_json(line: str, place: str = "") -> Any:
    """Return what a line of JSON holds, after checking it for depth and number of values."""
    _check_values(line, ",[{", place)
    try:
        return json.loads(line)
    except RecursionError as error:
        raise CorpusError(f"{place}JSON that is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise CorpusError(f"{place}not JSON ({error.msg})") from error
    except ValueError as error:
        raise CorpusError(f"{place}a number has too many digits") from error


def _check_values(line: str, marks: str, place: str) -> None:
    """Check that a line does not hold more values than memory may hold."""
    if len(line) > _MOST_VALUES and sum(map(line.count, marks)) > _MOST_VALUES:
        raise CorpusError(f"{place}more than {_MOST_VALUES:,} values in a line; divide it")


def table_rows(path: Path, delimiter: str | None = None) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a .csv or .tsv file as dicts, each with the number of its last line.

    Without a `delimiter` cells are divided by commas, or by what the first line has more of: semicolons, tabs or bars.
    """
    read = read_lines(path)
    first = list(islice(read, 1))
    if delimiter is None:
        header = re.sub(r'"[^"]*"', "", "".join(first))
        delimiter = max(_DELIMITERS, key=header.count)
    divider = delimiter

    def lines() -> Iterator[str]:
        for number, line in enumerate(chain(first, read), 1):
            _check_values(line, divider, f"{path}, line {number}: ")
            yield line + "\n"

    limit = csv.field_size_limit(LONGEST_LINE)
    rows = csv.DictReader(lines(), delimiter=delimiter, strict=True)
    try:
        names = [name for name in rows.fieldnames or () if name]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise CorpusError(f"{path} has several columns {twice!r:.80}; give each a name of its own")
        for row in rows:
            if None in row or None in row.values():
                raise CorpusError(f"{path}, line {rows.line_num} has not as many cells as the first line has names")
            yield rows.line_num, row
    except csv.Error as error:
        raise CorpusError(f"{path}, line {rows.reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(limit)


def parquet_rows(path: Path, choose: Callable[[Any], list[str]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file as dicts, with the columns that `choose` takes of its Arrow schema."""
    from pellucid.parquet import Table, explained  # of an extra

    check_file(path)
    if _is_stream(path):
        raise CorpusError(f"{path} is a pipe or device; a parquet file cannot be read from one")
    with Table(path) as table:
        columns = choose(table.schema)
        for group in range(len(table.starts) - 1):
            for batch in table.batches(columns, group, _BATCH):
                with explained(path):
                    rows = batch.to_pylist()
                yield from rows


def _is_stream(path: Path) -> bool:
    """Whether there is a pipe or a device, which can be read once."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _file_lines(path: Path, name: str) -> Iterator[list[str]]:
    check_file(path, name)
    if path.suffix.lower() in UNPACKERS and path.is_file() and not path.stat().st_size:  # gzip takes it for no text
        raise CorpusError(f"{path} is empty, which no packed file is: it was cut. Copy or download it again")
    try:
        stream = UNPACKERS.get(path.suffix.lower(), open)(path, "rb")
    except UNREADABLE as error:
        raise CorpusError(f"{path} cannot be read: {_reason(error)}") from error
    with stream:
        yield from _lines(stream, str(path))


def _lines(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """Yield the lines of a stream, many at a time."""
    number = 0  # of lines so far
    for block in _blocks(stream, name):
        if number == 0:
            start = block[:_PEEK]  # in UTF-16 and UTF-32 half of the bytes of Latin letters are zero, valid in UTF-8
            if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 3 * start.count(0) > len(start):
                raise CorpusError(f"{name} is UTF-16, UTF-32 or not a text; save it as UTF-8")
            block = block.removeprefix(codecs.BOM_UTF8)
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as error:
            line = number + 1 + block.count(b"\n", 0, error.start)
            place = error.start - block.rfind(b"\n", 0, error.start) - 1
            raise CorpusError(f"{name}, line {line} is not UTF-8: {error.reason} at byte {place}") from error
        if text:
            lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
            lines[-1] = lines[-1] if block.endswith(b"\n") else lines[-1].removesuffix("\r")
            yield lines
            number += len(lines)


def _blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines; what is ready in a pipe comes at once."""
    pieces: list[bytes] = []  # of a line that has not ended yet
    size = number = 0
    while True:
        try:
            chunk: bytes = stream.read1(_CHUNK)  # type: ignore[attr-defined]
        except UNREADABLE as error:
            raise CorpusError(f"{name} is damaged or cannot be read after line {number}: {_reason(error)}") from error
        if not chunk:
            break
        end, last = chunk.find(b"\n"), chunk.rfind(b"\n") + 1
        if size + (len(chunk) if end < 0 else end) > LONGEST_LINE:
            raise CorpusError(
                f"{name}, line {number + 1} is longer than {LONGEST_LINE:,} bytes; split it, or name a text file"
            )
        pieces.append(chunk[:last] if last else chunk)
        size += len(chunk)
        if last:
            yield b"".join(pieces)
            number += chunk.count(b"\n")
            pieces, size = [chunk[last:]], len(chunk) - last
    yield b"".join(pieces)


def _reason(error: BaseException) -> str:
    """Return the message of another library's error, or its class, on one short line."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(said.split())[:200]


def _rows(path: Path, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file with fields, each with its place, for messages."""
    if kind == ".jsonl":
        for number, line in enumerate(read_lines(path), 1):
            place = f"{path}, line {number}: "
            yield place, parse_json(line, place) if line and not line.isspace() else None
    else:
        for number, row in table_rows(path, None if kind == ".csv" else "\t"):
            yield f"{path}, line {number}: ", row


def _text_of(row: Any, field: str, place: str) -> str:
    """Return the text of a row: a string, a null for the empty text, or an object that has it in a field."""
    if isinstance(row, dict) and field not in row:
        raise CorpusError(f"{place}no field {field!r:.80}; name the field that holds the text")
    value = row[field] if isinstance(row, dict) else row
    if value is not None and not isinstance(value, str):
        raise CorpusError(
            f"{place}no text under {field!r:.80} but {shown(value):.40}; name the field that holds the text"
        )
    return value or ""


def _read_parquet(path: Path, field: str) -> Iterator[str]:
    def choose(schema: Any) -> list[str]:
        if field not in schema.names:
            raise CorpusError(f"{path} has no column {field!r:.80}; it has {schema.names!s:.300}")
        kind = str(schema.field(schema.names.index(field)).type)
        if not _TEXT_COLUMN.fullmatch(kind):
            raise CorpusError(f"{path}: column {field!r:.80} holds {kind:.80}, not text; name the column of the texts")
        return [field]

    for number, row in enumerate(parquet_rows(path, choose), 1):
        text = _text_of(row, field, f"{path}, row {number}: ")
        if len(text) > LONGEST_LINE:
            raise CorpusError(f"{path}, row {number} is longer than {LONGEST_LINE:,} characters; split it")
        yield text
