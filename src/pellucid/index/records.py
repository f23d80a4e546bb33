"""Documents from files: tables, JSON, text, and folders of text or Markdown, one at a time.

In a table the columns "id", "title" and "text" are what they say (other names can be given), every other one is
metadata, and an object "metadata" holds more of it. A document without an id is named by its file and line.

The cells of .csv and .tsv are text. A column is of numbers, dates or booleans if all of its cells are, which a first
reading of the file finds out; of a pipe, which can be read once, the first rows decide.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, shown, warn
from pellucid.index.column_types import MISSING_STRINGS, CellFormat, ColumnType, TypeSource, scan_columns
from pellucid.index.documents import Record, validate_id, warn_left_out
from pellucid.index.values import LeftOut, plain_metadata, plain_value
from pellucid.text.corpus import CorpusFile, FileRow
from pellucid.text.lines import MAX_LINE_BYTES, PACKED, batches_by_size, check_file, is_stream, read_lines

_MARKDOWN = (".md", ".markdown")
_DOCUMENT_ENDINGS = (".txt", *_MARKDOWN)  # files of a folder that are a document each
_FIRST_ROWS = 10_000  # of a pipe
_MAX_NAMED_KINDS = 5  # kinds of other files in a note
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\n#|>]*))", re.MULTILINE | re.IGNORECASE)


@dataclass
class _ReadState:
    """The state of reading a file."""

    file: CorpusFile
    index_types: MutableMapping[str, str]  # the types that columns have elsewhere
    note: Callable[[str], object]  # takes what a person should know
    cells: CellFormat
    named: frozenset[str]  # fields that the caller has named
    seen: set[str] = field(default_factory=set)  # those of them that are there
    left_out: dict[str, str] = field(default_factory=dict)  # fields that cannot be kept, and why

    def __post_init__(self) -> None:
        """Ask once what every row needs."""
        self.name = self.file.source.name
        self.is_document = _ending(self.file.source) in _MARKDOWN
        self.is_table = not (self.is_document or self.file.source.is_dir()) and self.file.is_table


def read_documents(
    file: str | os.PathLike[str] | CorpusFile,
    *,
    index_types: MutableMapping[str, str] | None = None,
    note: Callable[[str], object] | None = None,
) -> Iterator[Record]:
    """Yield the documents of a file or folder, in order, in bounded memory; blank lines are left out, a null is empty.

    Args:
        file: what `CorpusFile` reads; a Markdown file, which is one document; or a folder, of which every .txt and .md
            is a document named by its path. Types of columns are found unless they are given: a column of a table of
            text is of a type if all of its cells are, missing ones aside. Numbers are written without leading zeros or
            a plus and dates as 2024-05-31 or 2024-05-31T10:00; booleans are true and false. A column of anything else
            holds strings. With a type that is given 007, 1e5, yes and 1 count, too.
        index_types: types that columns of tables of text have in the index or in other files, and have here as well;
            those that are found are added.
        note: called with a line about the types that were found, and about each column that holds nearly one.

    Raises:
        CorpusError: there is no such file, it is broken at a named line, or holds no document.
    """
    file = file if isinstance(file, CorpusFile) else CorpusFile(file)
    cells = CellFormat(file.decimal, file.date_format)
    named = frozenset({*file.types, *(file.columns or ()), *file.leave_out} - {*file.roles})
    state = _ReadState(file, {} if index_types is None else index_types, note or (lambda line: None), cells, named)
    count = 0
    for record in _read(state):
        count += 1
        yield record
    warn_left_out(state.left_out, file.source.name)
    if not count and not is_stream(file.source):
        raise CorpusError(f"{file} holds no documents")
    if absent := sorted(state.named - state.seen):
        raise CorpusError(f"no document of {file} has {absent[0]!r:.80}, which was named")


def _read(state: _ReadState) -> Iterator[Record]:
    path = state.file.source
    if path.is_dir():
        return _read_folder(path, state)
    check_file(path, "file")
    if state.is_document:
        return iter([_read_document(path, path.name, state.file.encoding)])
    return _read_rows(state)


# --- Files that are a document each ---


def _read_folder(folder: Path, state: _ReadState) -> Iterator[Record]:
    """Yield each text of a folder; hidden ones are left out, and a warning names those that cannot be read."""
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(parent, name) for name in names if not name.startswith(".")]
    texts = sorted(path for path in paths if path.suffix.lower() in _DOCUMENT_ENDINGS and path.is_file())
    if not texts:
        raise CorpusError(f"the folder {folder} holds no file that ends in {', '.join(_DOCUMENT_ENDINGS)}")
    endings = Counter(path.suffix.lower() or "without an ending" for path in paths)
    skipped = Counter({ending: count for ending, count in endings.items() if ending not in _DOCUMENT_ENDINGS})
    if skipped:
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in skipped.most_common(_MAX_NAMED_KINDS))
        state.note(f"{folder.name}: {skipped.total():,} other files are left out ({kinds})")
    empty = 0
    for path in texts:
        name = path.relative_to(folder).as_posix()
        try:
            record = _in_either_encoding(path, name, state.file.encoding)
        except CorpusError as error:
            warn(f"left out: {error}")
            continue
        if record.text or record.title:
            yield record
        else:
            empty += 1
    if empty:
        state.note(f"{folder.name}: {empty:,} files hold no text and are left out")


def _in_either_encoding(path: Path, name: str, encoding: str | None) -> Record:
    """Return a file of a folder, of which some may be in another encoding than UTF-8."""
    try:
        return _read_document(path, name)
    except CorpusError:
        if encoding is None:
            raise
        return _read_document(path, name, encoding)


def _read_document(path: Path, name: str, encoding: str | None = None) -> Record:
    """Return a file as one document; the title of a Markdown file is in its front matter, or its first heading."""
    size, lines = 0, []
    for line in read_lines(path, encoding=encoding):
        lines.append(line)
        size += len(line) + 1
        if size > MAX_LINE_BYTES:
            raise CorpusError(f"{path} is longer than {MAX_LINE_BYTES:,} characters; divide it")
    text, title = "\n".join(lines), ""
    if _ending(path) in _MARKDOWN:
        if front := _FRONT_MATTER.match(text):
            text = text[front.end() :]
            named = _FRONT_TITLE.search(front[1] or "")
            title = next(filter(None, named.groups()), "").strip() if named else ""
        if text.lstrip().startswith("# "):
            heading, _, fields = text.lstrip()[2:].partition("\n")
            title, text = title or heading.strip(), fields if not title or title == heading.strip() else text
    return Record(name, title, text.strip(), {}, (str(path), 0))


def _ending(path: Path) -> str:
    """Return the end of a file's name, without that of its packing."""
    packed = path.suffix.lower() in PACKED
    return Path(path.stem).suffix.lower() if packed else path.suffix.lower()


# --- Rows ---


def _read_rows(state: _ReadState) -> Iterator[Record]:
    file = state.file
    rows, types = file.rows(skip_blank=True), {name: ColumnType(k, TypeSource.CALLER) for name, k in file.types.items()}
    if state.is_table:
        first: Iterable[FileRow] = ()
        if is_stream(file.source):  # of which the first rows decide
            first = next(
                batches_by_size(rows, _FIRST_ROWS, lambda row: sum(len(cell or "") for cell in row.values.values())), []
            )
            rows = chain(first, rows)
        else:
            first = file.rows(is_quiet=True)
        types |= _types_of(first, types, state)
    if file.has_header:
        state.seen.update(state.named)  # they were looked for there
    source = f"{file}, {file.counted}"  # one string for all rows
    for row in rows:
        yield _record(row, types, state, source)


def _types_of(
    rows: Iterable[FileRow], caller_types: Mapping[str, ColumnType], state: _ReadState
) -> dict[str, ColumnType]:
    """Return the types of the columns of a table of text, and note them."""
    file, note, path = state.file, state.note, state.file.source.name
    fixed_types = dict(caller_types)
    roles = {*file.roles, "metadata"}
    for name, kind in state.index_types.items():
        if name not in roles:
            fixed_types.setdefault(name, ColumnType(kind, TypeSource.INDEX))
    cells = ((row.number, {n: c for n, c in row.values.items() if n not in roles and n != "_id"}) for row in rows)
    scans, seen = scan_columns(cells, fixed_types, state.cells, file.source)
    types = {name: fixed_types[name] for name in seen & fixed_types.keys()}
    types |= {name: ColumnType(scan.kind(), TypeSource.ROWS) for name, scan in scans.items()}
    state.index_types.update({n: t.kind for n, t in types.items() if t.source is not TypeSource.CALLER})
    if typed := [f"{name} ({kind})" for name, (kind, _) in types.items() if kind != "string"]:
        note(f"{path}: {', '.join(typed)}; other columns hold strings")
    for name, scan in scans.items():
        if remark := scan.note():
            note(f"{path}: {name!r:.40} holds strings{remark}")
    return types


def _record(row: FileRow, types: Mapping[str, ColumnType], state: _ReadState, source: str) -> Record:
    file, number, where = state.file, row.number, (source, row.number)
    if not isinstance(row.values, dict):
        if row.values is not None and not isinstance(row.values, str):
            raise CorpusError(f"{source} {number} is {type(row.values).__name__}; it must be an object or a string")
        return Record(f"{state.name}:{number}", "", row.values or "", {}, where)
    fields, text = dict(row.values), file.text_of(row)
    if state.named:
        state.seen.update(state.named & fields.keys())
    del fields[file.field]
    title, document_id = fields.pop(file.title_field, None), fields.pop(file.id_field, None)
    if document_id is None and file.id_field == "id":
        document_id = fields.pop("_id", None)
    more = fields.pop("metadata", None)
    if more is not None:
        fields |= more if isinstance(more, dict) else {"metadata": more}
    metadata: dict[str, Any] = {}
    if fields and state.is_table:
        metadata = _typed_cells(fields, types, state.cells, where)
    elif fields:
        metadata = plain_metadata(fields, f"{source} {number}", state.left_out)
        if state.named:
            state.seen.update(state.named & metadata.keys())
            metadata = {name: value for name, value in metadata.items() if file.keeps(name)}
        for name in types.keys() & metadata.keys() if types else ():
            metadata[name] = state.cells.convert(metadata[name], name, types[name], f"{source} {number}")
    if type(document_id) is not str or not document_id.isascii():
        document_id = _id_of(document_id, source, number)
    title = title if type(title) is str else _title_of(title, file, row)
    return Record(document_id or f"{state.name}:{number}", title, text, metadata, where)


def _typed_cells(
    cells: Mapping[str, str | None], types: Mapping[str, ColumnType], formats: CellFormat, where: tuple[str, int]
) -> dict[str, Any]:
    """Return the cells of a row of a table of text that are not missing, as what their columns hold."""
    typed: dict[str, Any] = {}
    for name, cell in cells.items():
        if cell is None or cell in MISSING_STRINGS:
            continue
        column_type = types.get(name)
        if column_type is None or column_type.kind == "string":
            typed[name] = cell
        elif (value := formats.convert(cell, name, column_type, where)) is not None:
            typed[name] = value
    return typed


def _id_of(value: Any, source: str, number: int) -> str:
    """Return the id that a row has, "" for none."""
    where = f"{source} {number}"
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
