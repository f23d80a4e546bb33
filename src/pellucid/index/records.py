"""Documents from files: JSON lines, CSV, Parquet, text, and folders of text or Markdown, one at a time.

In a table the columns "id", "title" and "text" are what they say (other names can be given), every other one is
metadata, and an object "metadata" holds more of it. A document without an id is named by its file and line.

The cells of .csv and .tsv are text. A column is of numbers, dates or booleans if all of its cells are, which a first
reading of the file finds out; of a pipe, which can be read once, the first rows decide.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.corpus import LONGEST_LINE, UNPACKERS, check_file, cut, parquet_rows, parse_json, read_lines, table_rows
from pellucid.errors import CorpusError, InputError
from pellucid.index.metadata import LARGEST, checked_metadata, number_in, timestamp

TYPES = ("number", "date", "boolean", "string")
"""What a column can hold."""

_WHOLE = (".txt", ".md", ".markdown")  # files of a folder that are a document each
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:[.]\d+)?(?:e[-+]\d+)?|-?[.]\d+", re.ASCII | re.IGNORECASE)
_LONGEST_CELL = 40  # characters of a number, date or boolean
_ABSENT = ("", "nan", "na", "n/a", "null", "none")  # cells of numbers, dates and booleans that hold none
_BOOLEANS = {"true": True, "yes": True, "t": True, "y": True, "1": True,
             "false": False, "no": False, "f": False, "n": False, "0": False}  # fmt: skip
_GIVEN, _ELSEWHERE, _BEFORE = "as the given type says", "as elsewhere in the index", "as in the rows before"
_FIRST_ROWS = 10_000  # of a pipe


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


class _Reading(NamedTuple):
    """How a file is read."""

    columns: Columns  # what they are called
    given: Mapping[str, str]  # the types of columns that the caller has given
    held: MutableMapping[str, str]  # those that are known from elsewhere
    note: Callable[[str], object]  # takes what a person should know
    seen: set[str]  # columns whose type was given and that are there


def read_documents(
    path: str | os.PathLike[str],
    columns: Columns | None = None,
    *,
    types: Mapping[str, str] | None = None,
    held: MutableMapping[str, str] | None = None,
    note: Callable[[str], object] | None = None,
) -> Iterator[Record]:
    """Yield the documents of a file or folder, in order, in bounded memory; blank lines are left out, a null is empty.

    Args:
        path: .jsonl, .csv, .tsv or .txt (a text a line), each also packed (.gz, .xz); .parquet; .md (one document); or
            a folder, of which every .txt and .md is a document named by its path. A pipe is read as its name ends, and
            as plain text without an ending.
        columns: what the columns are called.
        types: what columns of metadata hold: "number", "date", "boolean" or "string". The others of a .csv or .tsv file
            are found: a column is of a type if all of its cells are, empty ones and NaN, NA, N/A, null and none aside.
            Numbers are written without leading zeros or a plus and dates as 2024-05-31 or 2024-05-31T10:00; booleans
            are true and false. A column of anything else holds strings. With a type that is given 007, 1e5, yes and 1
            count, too.
        held: types that columns of .csv and .tsv files have elsewhere, in other files or the index, and have here as
            well; those that are found are added.
        note: called with a line about the types that were found, and about each column that holds nearly one.
    """
    path, columns = Path(path), columns or Columns()
    for name, kind in (types or {}).items():
        if kind not in TYPES:
            raise InputError(f"the type of {name!r:.40} is {kind!r:.40}; there are {', '.join(TYPES)}")
        if name in columns:
            raise InputError(f"{name!r:.40} is no metadata and needs no type")
    reading = _Reading(columns, types or {}, {} if held is None else held, note or (lambda line: None), set())
    empty = True
    for record in _read(path, reading):
        empty = False
        yield record
    if not empty and (absent := sorted(reading.given.keys() - reading.seen)):
        raise CorpusError(f"no document of {path} has {absent[0]!r:.80}, whose type was given")


def _read(path: Path, reading: _Reading) -> Iterator[Record]:
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
        yield from _READERS[kind](path, reading)
    elif not path.is_file():
        yield from _read_txt(path, reading)
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


def _read_txt(path: Path, _: _Reading) -> Iterator[Record]:
    for number, line in _full_lines(path):
        yield Record(f"{path.name}:{number}", "", line, {})


def _read_jsonl(path: Path, reading: _Reading) -> Iterator[Record]:
    for number, line in _full_lines(path):
        place = f"{path}, line {number}"
        row = parse_json(line, f"{place}: ")
        row = {reading.columns.text: row} if row is None or isinstance(row, str) else row
        if not isinstance(row, dict):
            raise CorpusError(f"{place} is {type(row).__name__}; it must be an object or a string")
        yield _record(row, reading, f"{path.name}:{number}", place)


def _read_parquet(path: Path, reading: _Reading) -> Iterator[Record]:
    for number, row in enumerate(parquet_rows(path, lambda schema: list(schema.names)), 1):
        yield _record(row, reading, f"{path.name}:{number}", f"{path}, row {number}")


def _record(row: Mapping[str, Any], reading: _Reading, default_id: str, place: str) -> Record:
    columns = reading.columns
    rest = dict(row)
    text, title = rest.pop(columns.text, 0), rest.pop(columns.title, None)
    own = rest.pop(columns.id, None)
    if own is None and columns.id == "id":
        own = rest.pop("_id", None)
    if own not in (None, "") and type(own) not in (str, int):
        raise CorpusError(f"{place}: the id {own!r:.40} is {type(own).__name__}; ids are strings or integers")
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
    for name in reading.given.keys() & metadata.keys():
        reading.seen.add(name)
        metadata[name] = _of_type(metadata[name], reading.given[name], name, place, _GIVEN)
    try:
        metadata = checked_metadata(metadata, place)
    except InputError as error:
        raise CorpusError(str(error)) from error
    return Record(default_id if own in (None, "") else str(own), title or "", text, metadata)


# --- Tables of text ---


class _Column:
    """What the cells of a column look like."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.first: dict[str, tuple[int, str]] = {}  # line and cell of the first of each type

    def count(self, line: int, cell: str) -> None:
        """Take a cell that is not empty."""
        kind = _type_of(cell) if len(cell) <= _LONGEST_CELL else "string"
        self.types[kind] += kind != "absent"
        self.first.setdefault(kind, (line, cell[: _LONGEST_CELL + 1]))

    def type(self) -> str:
        """Return the type of all cells."""
        kinds = +self.types
        return next(iter(kinds)) if len(kinds) == 1 else "string"

    def exception(self) -> str:
        """Say which cell of a column is not of the type that most are of; "" for none."""
        kinds = +self.types
        if len(kinds) < 2:
            return ""
        (kind, count), every = kinds.most_common(1)[0], kinds.total()
        if kind == "string" or 2 * count < every:
            return ""
        line, cell = min(self.first[other] for other in kinds if other != kind)
        return f"{count:,} of {every:,} cells are {kind}s, and {cell!r:.40} in line {line:,} is not"


@lru_cache(4096)
def _type_of(cell: str) -> str:
    """Return what a cell looks like: one of `TYPES`, or "absent" for a word that stands for none of a type."""
    text = cell.strip()
    if text.lower() in _ABSENT:
        return "absent"
    if text.lower() in ("true", "false"):
        return "boolean"
    if _PLAIN_NUMBER.fullmatch(text) and _number(text) is not None:
        return "number"
    return "date" if timestamp(text) is not None else "string"


def _number(text: str) -> int | float | None:
    """Return the number that a text says, if metadata can hold it."""
    number = number_in(text)
    return number if number is not None and math.isfinite(number) and abs(number) <= LARGEST else None


def _of_type(value: Any, kind: str, name: str, place: str, why: str) -> Any:
    """Return a value of column `name` as one of a type, None where it is absent."""
    if isinstance(value, list):
        return [_of_type(item, kind, name, place, why) for item in value]
    if not isinstance(value, str):
        own = "boolean" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else "date"
        if value is None or own == kind:
            return value
        if kind == "string" and own != "date":
            return json.dumps(value)
    elif kind == "string":
        return value
    elif (text := value.strip()).lower() in _ABSENT:
        return None
    elif kind == "date" and timestamp(text) is not None:
        return text
    elif kind == "number" and (number := _number(text)) is not None:
        return number
    elif kind == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    raise CorpusError(
        f"{place}: {name!r:.40} is {value!r:.40}, and not a {kind}, {why}. Mend it, or say what the column holds: "
        f"--type {name:.40}=string"
    )


def _read_table(delimiter: str | None = None) -> Callable[[Path, _Reading], Iterator[Record]]:
    def read(path: Path, reading: _Reading) -> Iterator[Record]:
        rows = table_rows(path, delimiter)
        first: list[tuple[int, dict[str, str]]] = []
        if not path.is_file():  # a pipe, of which the first rows decide
            first = next(cut(rows, _FIRST_ROWS, lambda row: sum(map(len, row[1].values()))), [])
        types = _types(path, table_rows(path, delimiter) if path.is_file() else first, reading)
        for number, row in chain(first, rows):
            place = f"{path}, line {number}"
            filled: dict[str, Any] = {n: cell for n, cell in row.items() if n in reading.columns or (cell != "" and n)}
            for name in types.keys() & filled.keys():
                kind, why = types[name]
                filled[name] = _of_type(filled[name], kind, name, place, why)
            yield _record(filled, reading, f"{path.name}:{number}", place)

    return read


def _types(path: Path, rows: Iterable[tuple[int, dict[str, str]]], reading: _Reading) -> dict[str, tuple[str, str]]:
    """Return the types of the columns that do not hold strings, each with why it has this type, and note them."""
    columns: dict[str, _Column] = {}
    known: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line, row in rows:
        if not names:
            names = list(row)
            if absent := sorted(reading.given.keys() - set(names)):
                known_names = f"{', '.join(names):.200}"
                raise CorpusError(f"{path} has no column {absent[0]!r:.80}, whose type was given; it has {known_names}")
            reading.seen.update(reading.given)
            free = [n for n in names if n not in (*reading.columns, "metadata", "") and (n != "_id" or "id" in names)]
            for name in names:
                if name in reading.given:
                    known[name] = reading.given[name], _GIVEN
                elif name in reading.held and name not in reading.columns:
                    known[name] = reading.held[name], _ELSEWHERE
                elif name in free:
                    columns[name] = _Column()
        for name, (kind, why) in known.items():
            if row[name]:
                _of_type(row[name], kind, name, f"{path}, line {line}", why)
        for name, column in columns.items():
            if row[name]:
                column.count(line, row[name])
    known |= {name: (column.type(), _BEFORE) for name, column in columns.items() if column.first}
    reading.held.update({name: kind for name, (kind, why) in known.items() if why != _GIVEN})
    if typed := [f"{name} ({kind})" for name, (kind, _) in known.items() if kind != "string"]:
        reading.note(f"{path.name}: {', '.join(typed)}; other columns hold strings")
    for name, column in columns.items():
        if exception := column.exception():
            reading.note(f"{path.name}: {name!r:.40} holds strings: {exception}")
    if "" in names:
        reading.note(f"{path.name}: column {names.index('') + 1} has no name and is left out")
    return {name: typed for name, typed in known.items() if typed[0] != "string"}


_READERS: dict[str, Callable[[Path, _Reading], Iterator[Record]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_table(),
    ".tsv": _read_table("\t"),
    ".txt": _read_txt,
    ".parquet": _read_parquet,
}
