"""Documents from files: tables, JSON, text, and folders of text or Markdown, one at a time.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, InputError, shown, warn
from pellucid.index.documents import Record, validate_id, warn_left_out
from pellucid.index.metadata import number_in, timestamp
from pellucid.index.values import MAX_INTEGER, LeftOut, plain_metadata, plain_value
from pellucid.text.lines import MAX_TEXT_CHARS, PACKED, check_file, is_stream, read_lines
from pellucid.text.tables import CorpusFile, FileRow

MISSING = frozenset(
    "#n/a|#n/a n/a|#na|-1.#ind|-1.#qnan|-nan|1.#ind|1.#qnan|<na>|n/a|na|null|nan|nat|none|.|-|--|?|\\n|"
    "#div/0!|#name?|#null!|#num!|#ref!|#value!".split("|")
) | {"", '""'}  # fmt: skip
"""Cells of numbers, dates and booleans that hold none, as pandas, R, SAS and spreadsheets write it; in lower case."""

MISSING_STRINGS = frozenset(["", "\\N", "NaN", "NaT", "<NA>", "#N/A"])
"""Cells of strings that hold none; NA, None and null may be words."""

_MARKDOWN = (".md", ".markdown")
_DOCUMENT_ENDINGS = (".txt", *_MARKDOWN)  # files of a folder that are a document each
_FIRST_ROWS = 10_000  # of a pipe
_MAX_NAMED_KINDS = 5  # kinds of other files in a note
_MAX_CELL_CHARS = 40  # of a number, date or boolean
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\n#|>]*))", re.MULTILINE | re.IGNORECASE)
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:[.]\d+)?(?:e[-+]\d+)?|-?[.]\d+", re.ASCII | re.IGNORECASE)
_COMMA_NUMBER = re.compile(
    r"-?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:[.]\d{3})+)(?:,\d+)?(?:e[-+]\d+)?", re.ASCII | re.IGNORECASE
)
_PLAINEST = {  # cells in lines of their own that need no further look
    "number": re.compile(r"(?:-?(?:0|[1-9]\d{0,14})(?:[.]\d{1,17})?\n)+", re.ASCII),
    "date": re.compile(r"(?:[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])\n)+", re.ASCII),
}
_OTHER_DATE = re.compile(r"(\d{1,4})([./-])(\d{1,2})\2(\d{2,4})(?: (\d{1,2}:\d{2})(:\d{2})?)?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "t": True, "y": True, "1": True,
             "false": False, "no": False, "f": False, "n": False, "0": False}  # fmt: skip

Note = Callable[[str], object]


def read_documents(
    file: str | os.PathLike[str] | CorpusFile,
    *,
    index_types: MutableMapping[str, str] | None = None,
    note: Note | None = None,
    is_strict: bool = False,
) -> Iterator[Record]:
    """Yield the documents of a file or folder, in order; blank lines are left out, a null is empty.

    Args:
        file: what `CorpusFile` reads; a Markdown file, which is one document; or a folder, of which every .txt and .md
            is a document named by its path. Types of columns are found unless they are given: a column of a table of
            text is of a type if all of its cells are, missing ones aside. Numbers are written without leading zeros or
            a plus and dates as 2024-05-31 or 2024-05-31T10:00; booleans are true and false. A column of anything else
            holds strings. With a type that is given 007, 1e5, yes and 1 count, too.
        index_types: types that columns of tables of text have in the index or in other files, and have here as well;
            those that are found are added.
        note: called with a line about the types that were found, and about each column that holds nearly one.
        is_strict: raise an error where a file of a folder cannot be read, instead of a warning.

    Raises:
        CorpusError: there is no such file, it is broken at a named line, or holds no document.
    """
    file = file if isinstance(file, CorpusFile) else CorpusFile(file)
    note = note or (lambda line: None)
    path = file.source
    if path.is_dir():
        yield from _read_folder(path, file.encoding, note, is_strict)
        return
    check_file(path, "file")
    if _ending(path) in _MARKDOWN:
        yield _read_document(path, path.name, file.encoding)
        return
    n_documents = n_blank = 0
    for record in _read_rows(file, {} if index_types is None else index_types, note):
        n_documents += 1
        n_blank += not record.text or record.text.isspace()
        yield record
    if n_blank:
        note(f"{path.name}: {n_blank:,} of {n_documents:,} documents have no text")
    if not n_documents and not is_stream(path):
        raise CorpusError(f"{file} holds no documents")


class NamedDocuments:
    """The documents of files, and which of those that are called by their file replace another one in the index."""

    def __init__(self, records: Iterator[Record]) -> None:
        """Take the documents."""
        self._records = records
        self._paths: dict[str, str] = {}  # id -> where it is, of those that are not looked up yet
        self._replaced: dict[str, str] = {}

    def __iter__(self) -> Iterator[Record]:
        """Yield the documents."""
        for record in self._records:
            source, number = record.source_position
            if record.id and (number == 0 or record.id == f"{Path(source.rpartition(', ')[0]).name}:{number}"):
                self._paths[record.id] = f"{source} {number}" if number else source
            yield record

    def note_replaced(self, ids: list[str]) -> None:
        """Take the ids of documents that differ from those of the same id in the index."""
        self._replaced |= {name: self._paths[name] for name in ids if name in self._paths}
        self._paths.clear()

    def warn_replaced(self) -> None:
        """Warn of the documents that were replaced, as another file may have been meant."""
        for name, path in islice(self._replaced.items(), 1):
            warn(
                f"{len(self._replaced):,} documents replaced others of the same id, such as {name!r:.80} by {path}: "
                "without an id a document is called by its file, below the folder that is named. If they are other "
                "files, name the folder above both, or give ids"
            )


# --- Files that are a document each ---


def _read_folder(folder: Path, encoding: str | None, note: Note, is_strict: bool) -> Iterator[Record]:
    """Yield each text of a folder; hidden ones and links are left out, and a warning names what cannot be read."""
    paths: list[Path] = []
    errors: list[OSError] = []
    n_links = 0
    for parent, folders, names in os.walk(folder, onerror=errors.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        visible = [Path(parent, name) for name in (*folders, *names) if not name.startswith(".")]
        n_links += sum(path.is_symlink() for path in visible)
        paths += [path for path in visible if path.is_file() and not path.is_symlink()]
    if errors and is_strict:
        raise CorpusError(f"{errors[0].filename} cannot be read: {errors[0].strerror}")
    if n_links:
        warn(f"{folder.name}: {n_links:,} links are left out; name the files and folders themselves")
    texts = sorted(path for path in paths if path.suffix.lower() in _DOCUMENT_ENDINGS)
    if not texts:
        raise CorpusError(f"the folder {folder} holds no file that ends in {', '.join(_DOCUMENT_ENDINGS)}")
    endings = Counter(path.suffix.lower() or "without an ending" for path in paths)
    skipped = Counter({ending: count for ending, count in endings.items() if ending not in _DOCUMENT_ENDINGS})
    if skipped:
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in skipped.most_common(_MAX_NAMED_KINDS))
        note(f"{folder.name}: {skipped.total():,} other files are left out ({kinds})")
    n_empty = n_documents = 0
    for path in texts:
        name = path.relative_to(folder).as_posix()
        try:
            try:
                record = _read_document(path, name)
            except CorpusError:  # some files may be in another encoding than UTF-8
                if encoding is None:
                    raise
                record = _read_document(path, name, encoding)
        except CorpusError as error:
            if is_strict:
                raise
            warn(f"left out: {error}")
            continue
        if record.text or record.title:
            n_documents += 1
            yield record
        else:
            n_empty += 1
    if n_empty:
        note(f"{folder.name}: {n_empty:,} files hold no text and are left out")
    if not n_documents:
        raise CorpusError(f"{folder} holds no documents")


def _read_document(path: Path, name: str, encoding: str | None = None) -> Record:
    """Return a file as one document; the title of a Markdown file is in its front matter, or its first heading."""
    n_chars, lines = 0, []
    for line in read_lines(path, encoding=encoding):
        lines.append(line)
        n_chars += len(line) + 1
        if n_chars > MAX_TEXT_CHARS:
            raise CorpusError(f"{path} is longer than {MAX_TEXT_CHARS:,} characters; divide it")
    text, title = "\n".join(lines), ""
    if _ending(path) in _MARKDOWN:
        if front := _FRONT_MATTER.match(text):
            text = text[front.end() :]
            named = _FRONT_TITLE.search(front[1] or "")
            title = next(filter(None, named.groups()), "").strip() if named else ""
        if text.lstrip().startswith("# "):
            heading, _, body = text.lstrip()[2:].partition("\n")
            title, text = title or heading.strip(), body if not title or title == heading.strip() else text
    return Record(name, title, text.strip(), {}, (str(path), 0))


def _ending(path: Path) -> str:
    """Return the end of a file's name, without that of its packing."""
    return Path(path.stem if path.suffix.lower() in PACKED else path).suffix.lower()


# --- Rows ---


def _read_rows(file: CorpusFile, index_types: MutableMapping[str, str], note: Note) -> Iterator[Record]:
    """Yield a document for each row of a file."""
    columns = Columns(file, index_types)
    if file.is_table:
        names, blocks = file.column_blocks()
        if is_stream(file.source):  # of which the first rows decide
            first, n_rows = [], 0
            while n_rows < _FIRST_ROWS and (block := next(blocks, None)) is not None:
                first.append(block)
                n_rows += len(block[0])
            columns.find_types(names, first)
            blocks = chain(first, blocks)
        else:
            columns.find_types(*file.column_blocks(is_quiet=True))
        index_types.update({name: columns.types[name] for name in columns.types.keys() - file.types.keys()})
        for line in columns.notes():
            note(f"{file.source.name}: {line}")
        for first_lines, cells in blocks:
            yield from columns.records(first_lines, dict(zip(names, cells)))
        return
    expected = {*file.types, *(file.columns or ()), *file.leave_out}
    left_out: dict[str, str] = {}
    for row in file.rows(skip_blank=True):
        record, keys = _record(row, columns, left_out)
        if expected and not file.has_header:
            expected -= keys
        yield record
    warn_left_out(left_out, file.source.name)
    if expected and not file.has_header:
        raise CorpusError(f"no document of {file} has {min(expected)!r:.80}, which was named")


def _record(row: FileRow, columns: Columns, left_out: dict[str, str]) -> tuple[Record, set[str]]:
    """Return the document of a row, and the names of the fields that the row has."""
    file, number, source = columns.file, row.number, columns.source
    if not isinstance(row.values, dict):
        if row.values is not None and not isinstance(row.values, str):
            raise CorpusError(f"{source} {number} is {type(row.values).__name__}; it must be an object or a string")
        return Record(f"{file.source.name}:{number}", "", row.values or "", {}, (source, number)), set()
    fields, text = dict(row.values), file.text_of(row)
    del fields[file.field]
    title, document_id = fields.pop(file.title_field, None), fields.pop(file.id_field, None)
    if document_id is None and file.id_field == "id":
        document_id = fields.pop("_id", None)
    more = fields.pop("metadata", None)
    if more is not None:
        fields |= more if isinstance(more, dict) else {"metadata": more}
    names = set(fields)
    if fields:
        fields = plain_metadata(fields, f"{source} {number}", left_out)
        names |= fields.keys()
        if file.columns or file.leave_out:
            fields = {name: value for name, value in fields.items() if file.keeps(name)}
        for name in columns.types.keys() & fields.keys():
            fields[name] = columns.convert(name, fields[name], number)
    if type(document_id) is not str or not document_id.isascii():
        document_id = _id_of(document_id, f"{source} {number}")
    if type(title) is not str:
        title = _title_of(title, file, row)
    return Record(document_id or f"{file.source.name}:{number}", title, text, fields, (source, number)), names


def _id_of(value: Any, where: str) -> str:
    """Return the id that a row has, "" for none."""
    if isinstance(value, str):
        return value and validate_id(value, f"the id of {where}")
    with suppress(LeftOut):
        plain = plain_value(value, f"the id of {where}")
        if isinstance(plain, float) and plain.is_integer():  # of a column of integers with missing ones
            plain = int(plain)
        if plain is None or (isinstance(plain, (str, int)) and not isinstance(plain, bool)):
            return "" if plain is None else validate_id(plain, f"the id of {where}")
    raise CorpusError(f"{where}: the id {shown(value)} is {type(value).__name__}; ids are strings or integers")


def _title_of(value: Any, file: CorpusFile, row: FileRow) -> str:
    with suppress(LeftOut):
        plain = plain_value(value, f"the title of {file.locate(row)}")
        if plain is None or isinstance(plain, (str, int, float)):
            return "" if plain is None else str(plain)
    kind = type(value).__name__
    raise CorpusError(f"{file.locate(row)}: the title under {file.title_field!r} is {kind}; it must be a string")


# --- What the columns of a table of text hold ---


class Columns:
    """What the columns of a file hold."""

    def __init__(self, file: CorpusFile, index_types: Mapping[str, str]) -> None:
        """Take the file, and the types that columns have elsewhere in the index.

        Raises:
            InputError: its format of dates names no date.
        """
        self.file, self.source = file, f"{file}, {file.counted}"  # one string for all rows
        self._date_format = None if file.date_format is None else strptime_format(file.date_format)
        self._numbers = _PLAIN_NUMBER if file.decimal == "." else _COMMA_NUMBER
        self._look_of = lru_cache(4096)(self._look)
        self.types = dict(file.types)
        """name -> type, of the columns that have one"""
        self._reasons = dict.fromkeys(file.types, "as the given type says")
        self._counts: dict[str, Counter[str]] = {}  # name -> what its cells look like
        self._first: dict[tuple[str, str], tuple[int, str]] = {}  # (name, look) -> line and cell
        self._index_types = index_types if file.is_table else {}

    def find_types(
        self, names: Sequence[str], blocks: Iterable[tuple[Sequence[int], list[Sequence[str | None]]]]
    ) -> None:
        """Look at the cells of a table of text: a column has a type if all of its cells have, missing ones aside."""
        roles = {*self.file.roles, "metadata", "_id"}
        for first_lines, columns in blocks:
            for name, column in zip(names, columns):
                cells = [cell for cell in column if cell]
                if not cells or name in roles:
                    continue
                lines = first_lines if len(cells) == len(column) else [n for n, c in zip(first_lines, column) if c]
                if name not in self._counts:
                    self._counts[name] = Counter()
                    if name in self._index_types and name not in self.types:
                        self.types[name], self._reasons[name] = self._index_types[name], "as elsewhere in the index"
                if name not in self.types:
                    self._count(name, cells, lines)
                elif self.types[name] != "string":
                    for cell, line in zip(cells, lines):
                        self.convert(name, cell, line)
        for name, counts in self._counts.items():
            if name not in self.types:
                kind = next(iter(counts)) if len(counts) == 1 else "string"
                self.types[name] = kind if kind in ("number", "date", "boolean") else "string"
                self._reasons[name] = "as in the rows before"
        self.types = {name: kind for name, kind in self.types.items() if name in self._counts}

    def _count(self, name: str, cells: list[str], lines: Sequence[int]) -> None:
        """Count what the cells of a column look like."""
        looks: list[str] = []
        if (kind := self._plain_type(cells)) is not None:
            self._counts[name][kind] += len(cells)
            looks = [kind]
        else:
            looks = [self._look_of(cell) if len(cell) <= _MAX_CELL_CHARS else "string" for cell in cells]
            self._counts[name].update(look for look in looks if look != "missing")
        for look in {*looks} - {"missing"}:
            index = looks.index(look)
            self._first.setdefault((name, look), (lines[index], cells[index][: _MAX_CELL_CHARS + 1]))

    def records(self, lines: Sequence[int], columns: dict[str, Sequence[str | None]]) -> Iterator[Record]:
        """Yield the documents of some rows of a table of text, given as columns."""
        file, blank = self.file, [None] * len(lines)
        texts = columns.pop(file.field, blank)
        titles, ids = columns.pop(file.title_field, blank), columns.pop(file.id_field, None)
        if ids is None:
            ids = columns.pop("_id", blank) if file.id_field == "id" else blank
        fields = [self._converted(name, column, lines) for name, column in columns.items()]
        rows = zip(*fields) if fields else repeat(())
        for line, document_id, title, text, values in zip(lines, ids, titles, texts, rows):
            metadata = {name: value for name, value in zip(columns, values) if value is not None}
            if document_id and not document_id.isascii():
                document_id = validate_id(document_id, f"the id of {self.source} {line}")
            document_id = document_id or f"{file.source.name}:{line}"
            yield Record(document_id, title or "", text or "", metadata, (self.source, line))

    def _converted(self, name: str, column: Sequence[str | None], lines: Sequence[int]) -> Sequence[Any]:
        """Return the cells of a column as what it holds, None where they are missing."""
        kind = self.types.get(name, "string")
        if kind in ("number", "date") and self._plain_type(column) == kind:
            if kind == "date":
                return column
            return [float(cell) if "." in cell else int(cell) for cell in column]  # type: ignore[operator,arg-type]
        if kind == "string":
            return [None if not cell or cell in MISSING_STRINGS or cell.isspace() else cell for cell in column]
        return [
            None if cell is None or cell in MISSING_STRINGS else self.convert(name, cell, line)
            for cell, line in zip(column, lines)
        ]

    def notes(self) -> Iterator[str]:
        """Yield what a person should know: the types, and what a column of strings nearly holds."""
        if typed := [f"{name} ({kind})" for name, kind in self.types.items() if kind != "string"]:
            yield f"{', '.join(typed)}; other columns hold strings"
        for name, counts in self._counts.items():
            n_cells = counts.total()
            if not counts or (len(counts) == 1 and "other date" not in counts and "comma number" not in counts):
                continue
            start = f"{name!r:.40} holds strings"
            if counts.keys() <= {"number", "comma number"} and counts["comma number"]:
                yield f"{start}, such as {self._first[name, 'comma number'][1]!r:.40}. If they are numbers: --decimal ,"
            elif counts.keys() == {"other date"}:
                example = self._first[name, "other date"][1]
                yield f"{start}, such as {example!r:.40}. If they are dates: --date-format, such as %d.%m.%Y"
            else:
                (kind, count) = counts.most_common(1)[0]
                if kind in ("number", "date", "boolean") and 2 * count >= n_cells:
                    line, cell = min(self._first[name, other_kind] for other_kind in counts if other_kind != kind)
                    most = f"{count:,} of {n_cells:,} cells are {kind}s"
                    yield f"{start}: {most}, and {cell!r:.40} in line {line:,} is not"

    def convert(self, name: str, value: Any, line: int) -> Any:
        """Return a value of a column as what it holds.

        Raises:
            CorpusError: it is nothing of that type; the message names the line.
        """
        if isinstance(value, list):
            return [self.convert(name, item, line) for item in value]
        kind = self.types[name]
        try:
            return self._typed(value, kind)
        except ValueError:
            raise CorpusError(
                f"{self.source} {line}: {name!r:.40} is {value!r:.40}, and not a {kind}, {self._reasons[name]}. Fix "
                f"it, or say what the column holds: --type {name:.40}=string"
            ) from None

    # Cells

    def _look(self, cell: str) -> str:
        """Return what a cell looks like: a type, "missing", or what a note names: "comma number", "other date"."""
        text = cell.strip()
        lower = text.lower()
        if lower in MISSING:
            return "missing"
        if len(text) > _MAX_CELL_CHARS:
            return "string"
        if lower in ("true", "false"):
            return "boolean"
        if self._numbers.fullmatch(text) and self._number(text) is not None:
            return "number"
        if self._date(text) is not None:
            return "date"
        if self.file.decimal == "." and "," in text and _COMMA_NUMBER.fullmatch(text):
            return "comma number"
        return "other date" if _OTHER_DATE.fullmatch(text) else "string"

    def _plain_type(self, cells: Sequence[str | None]) -> str | None:
        """Return "number" or "date" if all of some cells are such in the plainest form, otherwise None; it is quick."""
        if not cells or None in cells or self.file.decimal != ".":
            return None
        text = "\n".join([*cells, ""])  # type: ignore[list-item]
        if text.count("\n") != len(cells):
            return None
        return next((kind for kind, pattern in _PLAINEST.items() if pattern.fullmatch(text)), None)

    def _number(self, text: str) -> int | float | None:
        """Return the number that a cell says, if metadata can hold it."""
        if self.file.decimal == ",":
            text = text.replace(".", "").replace(",", ".")
        value = number_in(text)
        if value is None or isinstance(value, int):
            return value if value is None or abs(value) <= MAX_INTEGER else None
        return value if math.isfinite(value) else None

    def _date(self, text: str) -> str | None:
        """Return the date that a cell says, in ISO's form."""
        if timestamp(text) is not None:
            return text
        if self._date_format is None:
            return None
        try:
            moment = datetime.strptime(text, self._date_format)
        except ValueError:
            return None
        return moment.isoformat() if "%H" in self._date_format else moment.date().isoformat()

    def _typed(self, value: Any, kind: str) -> Any:
        """Return a value as one of a type, None where it is missing; ValueError for a value of another type.

        Args:
            value: of a cell, or of another kind of file.
            kind: one of `TYPES`.
        """
        if not isinstance(value, str):
            actual = "boolean" if isinstance(value, bool) else "number"
            if value is None or actual == kind:
                return value
            if kind == "string":
                return json.dumps(value)
            raise ValueError
        if kind == "string":
            return value
        text = value.strip()
        if text.lower() in MISSING:
            return None
        if kind == "boolean":
            converted: Any = _BOOLEANS.get(text.lower())
        else:
            converted = self._number(text) if kind == "number" else self._date(text)
        if converted is None:
            raise ValueError
        return converted


def strptime_format(date_format: str) -> str:
    """Return a format of `datetime.strptime` after checking that it names a day."""
    with suppress(ValueError, re.error):
        moment = datetime(2021, 12, 31, 22, 58, 59)
        if datetime.strptime(moment.strftime(date_format), date_format).date() == moment.date():
            return date_format
    raise InputError(f"date_format is {shown(date_format)}; it must have day, month and year, such as %d.%m.%Y")
