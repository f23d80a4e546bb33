"""The texts and rows of any file: `CorpusFile` says how one is read, and every reader of texts goes through it.

As many texts come out as there are lines, rows or items: a blank line and a null are the empty text.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as data_field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple, Union

from pellucid.errors import CorpusError, InputError, nearest_name, shown, warn
from pellucid.process import cached_property
from pellucid.text.delimited import DELIMITERS, QUOTINGS, DelimitedFile
from pellucid.text.inputs import describe_item, iterate_texts
from pellucid.text.lines import (
    MAX_TEXT_CHARS,
    PACKED,
    archived_name,
    check_encoding,
    check_file,
    is_stream,
    parse_json_row,
    read_lines,
)

TYPES = ("number", "date", "boolean", "string")
"""What a column of metadata can hold."""

FORMATS = (".txt", ".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
"""How the names of files end that are read; all but the last two may be packed."""

_TABLES = (".csv", ".tsv", ".tab")
_COLUMNAR = (".parquet", ".xlsx")
_SAYS_FORMATS = (
    ".txt (one text a line), .csv, .tsv, .jsonl, .json (each also with .gz, .xz, .bz2 or .zip), .parquet, .xlsx"
)
_INDEX_COLUMN = re.compile(r"__index_level_\d+__")  # of pandas, in parquet
_KINDS = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object", bytes: "bytes"}
_MAX_JSON_CHARS, _MAX_JSON_VALUES = 1 << 28, 20_000_000  # of an array, which is read at once

Corpus = Union[str, "os.PathLike[str]", Iterable[str]]
"""A path, a `CorpusFile`, or an iterable of texts (a list, a generator, a column of a data frame, ...)."""


class FileRow(NamedTuple):
    """A row of a file."""

    number: int  # of its first line, or of the row or item, from 1
    values: Any  # by column or key; a string or None where a row is a text alone


@dataclass(frozen=True)
class CorpusFile:
    """A file of texts and how to read it; an iterable of its texts, which can be read again and again.

    It can be given wherever a corpus is expected: `pellucid.duplicates(CorpusFile("reviews.csv", field="body"))`.

    Attributes:
        path: .txt (a text a line), .csv, .tsv, .jsonl or .json, each also packed (.gz, .xz, .bz2, .zip); .parquet or
            .xlsx; or a pipe, which is read as its name ends and as plain text without an ending.
        field: the column or key that holds the text.
        id_field: of the ids, strings or integers; "_id" is understood where there is no "id".
        title_field: of the titles.
        encoding: of the characters, such as "cp1252"; None is UTF-8, or what a byte order mark says.
        delimiter: between the cells of a table: a character, or comma, semicolon, tab, bar or space; None takes what
            the first lines show. With one, a .txt file is a table, too.
        quoting: "csv" where cells are in quotation marks, doubled inside; "backslash" where backslashes stand before
            them; "none" where they are text. None is "csv", and for tabs what the file shows.
        decimal: the decimal mark of numbers in .csv and .tsv: "." or ",".
        date_format: of dates in .csv and .tsv beside 2024-12-31, such as "%d.%m.%Y".
        columns: of metadata to keep; None keeps all.
        leave_out: columns of metadata to leave out.
        types: what columns of metadata hold, "number", "date", "boolean" or "string", where it is not to be found out.
    """

    path: str | os.PathLike[str]
    field: str = "text"
    id_field: str = "id"
    title_field: str = "title"
    encoding: str | None = None
    delimiter: str | None = None
    quoting: str | None = None
    decimal: str = "."
    date_format: str | None = None
    columns: Sequence[str] | None = None
    leave_out: Sequence[str] = ()
    types: Mapping[str, str] = data_field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: one of them cannot be used.
        """
        changed: dict[str, Any] = {"path": Path(self.path)}
        if self.encoding is not None:
            changed["encoding"] = check_encoding(self.encoding)
        if self.delimiter is not None:
            name = self.delimiter if isinstance(self.delimiter, str) else ""
            mark = DELIMITERS.get(name.lower(), name.replace("\\t", "\t"))
            if len(mark) != 1 or mark in '"\r\n\\':
                names = ", ".join(DELIMITERS)
                raise InputError(f"delimiter is {shown(self.delimiter)}; give one character, or one of {names}")
            changed["delimiter"] = mark
        if self.quoting not in (None, *QUOTINGS):
            raise InputError(f"quoting is {shown(self.quoting)}; it is one of {', '.join(QUOTINGS)}")
        if self.decimal not in (".", ","):
            raise InputError(f"decimal is {shown(self.decimal)}; numbers have '.' or ','")
        for name in ("columns", "leave_out"):
            value = getattr(self, name)
            if value is not None:
                changed[name] = (value,) if isinstance(value, str) else tuple(value)
        if self.columns is not None and self.leave_out:
            raise InputError("columns and leave_out are both given; name the columns to keep, or those to leave out")
        if not isinstance(self.types, Mapping):
            raise InputError(f"types are {shown(self.types)}; give a dict: column -> one of {', '.join(TYPES)}")
        for name, kind in self.types.items():
            if kind not in TYPES:
                raise InputError(f"the type of {shown(name)} is {shown(kind)}; there are {', '.join(TYPES)}")
            if name in self.roles:
                raise InputError(f"{shown(name)} is no metadata and needs no type")
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    @cached_property
    def source(self) -> Path:
        """The path."""
        return Path(self.path)

    @property
    def roles(self) -> tuple[str, str, str]:
        """The columns that are no metadata: of texts, ids and titles."""
        return self.field, self.id_field, self.title_field

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def __iter__(self) -> Iterator[str]:
        """Yield the texts in order; a null is the empty text.

        Raises:
            CorpusError: the file cannot be read, or holds something else than texts.
        """
        if self.is_table:  # as columns: half the time
            yield from (cell or "" for _, (cells,) in self.column_blocks([self.field])[1] for cell in cells)
        else:
            yield from map(self.text_of, self.rows([self.field]))

    def texts_with_ids(self) -> Iterator[tuple[Any, str]]:
        """Yield ids, strings or integers, and texts.

        Raises:
            CorpusError: as for texts; or a row has no id.
        """
        for row in self.rows([self.field, self.id_field]):
            row_id = row.values.get(self.id_field) if isinstance(row.values, dict) else None
            if row_id is None or row_id == "":
                raise CorpusError(
                    f"{self.locate(row)}: no id under {self.id_field!r:.80}; name the field that holds it"
                )
            if type(row_id) not in (str, int):
                raise CorpusError(
                    f"{self.locate(row)}: the id {shown(row_id)} is {type(row_id).__name__}; ids are strings or "
                    "integers"
                )
            yield row_id, self.text_of(row)

    @cached_property
    def kind(self) -> str:
        """How the file is read: one of `FORMATS`.

        Raises:
            CorpusError: the name of the file does not say it.
        """
        path = self.source
        suffixes = [suffix.lower() for suffix in path.suffixes]
        packed = suffixes.pop() if suffixes and suffixes[-1] in PACKED else ""
        kind = suffixes[-1] if suffixes else ""
        if packed == ".zip" and kind not in FORMATS and path.is_file():
            kind = Path(archived_name(path)).suffix.lower()
        if kind not in FORMATS and is_stream(path):
            kind = ".txt"
        if kind in ("", ".txt") and self.delimiter is not None:
            kind = ".csv"
        if kind in FORMATS and not (packed and kind in _COLUMNAR):
            return kind
        check_file(path)
        raise CorpusError(f"cannot tell the format of corpus file {path}; pellucid reads {_SAYS_FORMATS}")

    @property
    def is_table(self) -> bool:
        """Whether its cells are text, so that the types of columns must be found out."""
        return self.kind in _TABLES

    @property
    def has_header(self) -> bool:
        """Whether the names of all columns stand in one place."""
        return self.is_table or self.kind in _COLUMNAR

    def locate(self, row: FileRow | int) -> str:
        """Return what messages say of where a row, or the one of a number, is."""
        number = row if isinstance(row, int) else row.number
        return f"{self.path}, {self.counted} {number}"

    @property
    def counted(self) -> str:
        """What the numbers of rows count: "line" or "row"."""
        return "row" if self.kind in (".json", *_COLUMNAR) else "line"

    def keeps(self, name: str) -> bool:
        """Whether a field of metadata is kept; it may have the dotted name of one in an object."""
        if self.columns is not None and not any(name == c or name.startswith(f"{c}.") for c in self.columns):
            return False
        return not any(name == c or name.startswith(f"{c}.") for c in self.leave_out)

    def text_of(self, row: FileRow) -> str:
        """Return the text of a row: a string, a null for the empty text, or an object that has it in a field."""
        values = row.values
        if isinstance(values, dict) and self.field not in values:
            names = f"; it has {', '.join(map(str, values)):.200}" if values else ""
            raise CorpusError(f"{self.locate(row)}: no field {self.field!r:.80}{names}. Use --field NAME for the text")
        value = values[self.field] if isinstance(values, dict) else values
        if value is not None and not isinstance(value, str):
            under = f"{self.field!r:.80}" if isinstance(values, dict) else "the line"
            kind = _KINDS.get(type(value), type(value).__name__)
            raise CorpusError(
                f"{self.locate(row)}: {under} holds {kind}, {shown(value)}, and no text. Use --field NAME for the text"
            )
        if value is not None and len(value) > MAX_TEXT_CHARS:
            raise CorpusError(f"{self.locate(row)} is longer than {MAX_TEXT_CHARS:,} characters; split it")
        return value or ""

    def rows(
        self, names: Sequence[str] | None = None, *, skip_blank: bool = False, is_quiet: bool = False
    ) -> Iterator[FileRow]:
        """Yield the rows in order.

        Args:
            names: the columns that are needed; None is all that are kept.
            skip_blank: leave out blank lines of text and JSON lines; otherwise they are empty rows.
            is_quiet: give no warnings, as the file is read again.

        Raises:
            CorpusError: the file is absent or broken, has no such column, or one that is needed several times.
        """
        if self.kind in _COLUMNAR:
            return self._columnar_rows(names, is_quiet)
        if self.is_table:
            called, blocks = self.column_blocks(names, is_quiet=is_quiet)
            make_row = partial(tuple.__new__, FileRow)  # without its Python constructor
            return chain.from_iterable(
                map(make_row, zip(first_lines, map(dict, map(zip, repeat(called), zip(*columns)))))
                for first_lines, columns in blocks
            )
        if self.kind == ".json":
            return (FileRow(number, self._renamed(value)) for number, value in enumerate(self._items(), 1))
        return self._line_rows(skip_blank)

    def column_names(self) -> list[str]:
        """Return the names of the columns, "" where one has none; of JSON the keys of all rows.

        Raises:
            CorpusError: the file is absent or broken, or has no columns.
        """
        if self.has_header:
            return list(self._table(is_quiet=True).names)
        rows = (row.values for row in self.rows(is_quiet=True) if isinstance(row.values, dict))
        return list(dict.fromkeys(str(name) for values in rows for name in values))

    def cells(self, names: Sequence[str]) -> Iterator[tuple[FileRow, list[str]]]:
        """Yield the rows that are not empty, each with its cells in some columns as text, "" for none.

        Raises:
            CorpusError: as for `rows`.
        """
        for row in replace(self, field=names[0]).rows(names, skip_blank=True):
            values = row.values if isinstance(row.values, dict) else {}
            cells = ["" if values.get(name) is None else str(values[name]).strip() for name in names]
            if any(cells):
                yield row, cells

    def _line_rows(self, skip_blank: bool) -> Iterator[FileRow]:
        is_text = self.kind == ".txt"
        for number, line in enumerate(read_lines(self.source, encoding=self.encoding), 1):
            if is_text and number == 1:
                self._refuse_table(line)
            is_blank = not line or line.isspace()
            if not (is_blank and skip_blank):
                value = line if is_text else None if is_blank else parse_json_row(line, f"{self.path}, line {number}: ")
                yield FileRow(number, value if is_text else self._renamed(value))

    def _refuse_table(self, line: str) -> None:
        """Check that the first line of plain text does not name the column of the texts among others."""
        mark = "tab" if "\t" in line else "space" if line.startswith('"') else ""
        names = [name.strip('" ').casefold() for name in line.split(DELIMITERS.get(mark))] if mark else []
        if len(names) > 1 and self.field.casefold() in names:
            raise CorpusError(
                f"{self.path} is a table by its first line, {line!r:.80}, and of .txt each line is a text. To read "
                f"it as a table: --delimiter {mark}"
            )

    def _items(self) -> Iterable[Any]:
        """Return the items of a .json file: an array, a row, or JSON lines."""
        lines, n_chars = [], 0
        for line in read_lines(self.source, encoding=self.encoding):
            lines.append(line)
            n_chars += len(line) + 1
            if n_chars > _MAX_JSON_CHARS:
                raise CorpusError(
                    f"{self.path} is longer than {_MAX_JSON_CHARS:,} characters, and JSON is read at once; write JSON "
                    "lines, in pandas: frame.to_json(path, orient='records', lines=True)"
                )
        text = "\n".join(lines)
        if not text.strip():
            return []
        try:
            value = parse_json_row(text, f"{self.path}: ", _MAX_JSON_VALUES)
        except CorpusError:
            if text.lstrip()[:1] == "[" or len(lines) == 1:
                raise
            return (parse_json_row(line, f"{self.path}, line {n}: ") for n, line in enumerate(lines, 1) if line.strip())
        return value if isinstance(value, list) else [value]

    def _renamed(self, value: Any) -> Any:
        """Return a row of JSON whose keys of text, id and title are called so, also where blanks or case differ."""
        if not isinstance(value, dict) or self.field in value:
            return value
        new_names = self._find_roles(list(value))
        return {new_names.get(name, name): cell for name, cell in value.items()} if new_names else value

    def _find_roles(self, names: Sequence[str]) -> dict[str, str]:
        """Return for names of columns that differ in blanks or case from that of a role which one they are."""
        new_names: dict[str, str] = {}
        for role in self.roles:
            if role not in names and not (role == "id" and "_id" in names):
                matches = [n for n in names if isinstance(n, str) and n.strip().casefold() == role.strip().casefold()]
                if len(matches) == 1:
                    new_names[matches[0]] = role
        return new_names

    def _table(self, is_quiet: bool) -> Any:
        """Return the opened table, whose columns have `names`."""
        if self.kind == ".parquet":
            from pellucid.text.parquet import ParquetTable

            return ParquetTable(self.source)
        if self.kind == ".xlsx":
            from pellucid.text.spreadsheet import Sheet

            return Sheet(self.source, is_quiet=is_quiet)
        return DelimitedFile(self.source, self.encoding, self.delimiter, self.quoting, is_quiet=is_quiet)

    def column_blocks(
        self, names: Sequence[str] | None = None, *, is_quiet: bool = False
    ) -> tuple[list[str], Iterator[tuple[Sequence[int], list[Sequence[str | None]]]]]:
        """Return the names of the columns that are read of a table of text, and blocks of rows.

        Each block is the first lines of its rows, and the cells of each column.
        """
        table = self._table(is_quiet)
        chosen = self._choose(table.names, names, is_quiet)
        columns = ((first_lines, list(zip(*rows))) for first_lines, rows in table.blocks())
        blocks = ((lines, list[Any](cells[column] if cells else () for column in chosen)) for lines, cells in columns)
        return list(chosen.values()), blocks

    def _columnar_rows(self, names: Sequence[str] | None, is_quiet: bool) -> Iterator[FileRow]:
        table = self._table(is_quiet)
        chosen = self._choose(table.names, names, is_quiet)
        is_sheet, counts = self.kind == ".xlsx", Counter(table.names)
        chosen = {column: name for column, name in chosen.items() if is_sheet or counts[table.names[column]] == 1}
        for number, cells in table.rows(list(chosen)):
            values = dict(zip(chosen.values(), cells))
            for name in {self.field, self.title_field} & values.keys() if is_sheet else ():
                if type(values[name]) in (int, float):  # a spreadsheet makes a number of a text that looks like one
                    values[name] = f"{values[name]:.15g}"
            yield FileRow(number, values)

    def _choose(self, columns: Sequence[str], names: Sequence[str] | None, is_quiet: bool = False) -> dict[int, str]:
        """Return the columns of a table that are read, and what each is called: for its role, or by its name."""
        roles = self._find_roles(columns)
        called = [roles.get(name, name) for name in columns]
        counts = Counter(called)
        for name in [self.field] if names is None else names:
            if name not in counts:
                raise CorpusError(self._no_column(name, columns))
        for name in self.roles if names is None else names:
            if counts[name] > 1:
                raise CorpusError(f"{self.path} has several columns {name!r:.80}; give each a name of its own")
        needed = self._select_metadata(called, counts, is_quiet) if names is None else set(names)
        first_of: dict[str, int] = {}
        for column, name in enumerate(called):
            if name in needed:
                first_of.setdefault(name, column)
        return {column: name for name, column in first_of.items()}

    def _select_metadata(self, called: Sequence[str], counts: Mapping[str, int], is_quiet: bool) -> set[str]:
        """Return the columns to keep, and tell which others there are."""
        for name in (*(self.columns or ()), *self.leave_out, *self.types):
            if name not in counts and name.split(".")[0] not in counts:
                raise CorpusError(self._no_column(name, called))
        path = self.source.name
        if "" in counts and not is_quiet:
            warn(f"{path}: column {list(called).index('') + 1} has no name and is left out")
        for name, n_columns in counts.items():
            if n_columns > 1 and name and not is_quiet:
                warn(f"{path}: {n_columns} columns are called {name!r:.60}; the first is kept")
        selected = {name for name in counts if name and not _INDEX_COLUMN.fullmatch(name)} - set(self.leave_out)
        if self.columns is not None:
            selected &= {*self.roles, "_id", "metadata", *self.columns, *(name.split(".")[0] for name in self.columns)}
        return selected | {self.field}

    def _no_column(self, name: str, columns: Iterable[str]) -> str:
        names = [str(column) for column in columns if column]
        similar_name = nearest_name(name, names)
        hint = f". Did you mean {similar_name!r:.80}?" if similar_name else ""
        if name == self.field:
            hint += ". The first line names the columns; use --field for that of the texts, --delimiter for other cells"
        return f"{self.path} has no column {name!r:.80}; it has {', '.join(names):.300}{hint}"


def corpus_file(corpus: Corpus, field: str = "text") -> CorpusFile | None:
    """Return the file that a corpus names, whose texts are in `field` unless it says so itself; None for texts."""
    if isinstance(corpus, CorpusFile):
        return corpus
    return CorpusFile(corpus, field=field) if isinstance(corpus, (str, os.PathLike)) else None


def is_path(corpus: Corpus) -> bool:
    """Whether `corpus` names a file that can be read again, rather than a pipe or the texts themselves."""
    file = corpus_file(corpus)
    return file is not None and not is_stream(file.source)


def read_texts(corpus: Corpus, *, field: str = "text") -> Iterator[str]:
    """Yield the texts of a corpus in order; `field` is the column or key in a file named by a path.

    Raises:
        CorpusError: the file cannot be read, or something is no text.
        InputError: a table, a mapping or the like stands in place of texts.
    """
    file = corpus_file(corpus, field)
    if file is not None:
        yield from file
        return
    for index, text in enumerate(iterate_texts(corpus)):
        value = text.as_py() if hasattr(text, "as_py") else text  # of Arrow
        if not isinstance(value, str):
            raise CorpusError(f"corpus item {index} is {describe_item(value)}")
        yield value


def check_copy(file: CorpusFile, target: Path) -> None:
    """Check that a copy of some rows of a file can be written under the name of `target`.

    Raises:
        InputError: it has another format, or one that is not written.
    """
    if file.kind in (".xlsx", ".json"):
        raise InputError(f"copies of {file.kind} files cannot be written; save {file} as .csv or .jsonl first")
    if target.suffix.lower() != file.kind:
        raise InputError(f"{file} is {file.kind}; end the name of {target} in that, too")


def copy_rows(file: CorpusFile, target: Path, selected: Any) -> None:
    """Write the selected rows of a file to `target`: the same lines in UTF-8, or the same columns of Parquet.

    Args:
        file: whose rows are in the order of `selected`.
        target: the new file.
        selected: for each row of the file whether it is copied, a list or an array.

    Raises:
        CorpusError: the file cannot be read, or has not as many rows.
    """
    if file.kind == ".parquet":
        from pellucid.text.parquet import copy_groups

        n_rows = copy_groups(file.source, target, selected)
    else:
        first_lines = [row.number for row in file.rows([file.field], is_quiet=True)]
        n_rows = len(first_lines)
        is_copied = dict(zip(first_lines, selected))
        is_selected = True  # what is before the first row is the header
        with open(target, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as output:
            for number, line in enumerate(read_lines(file.source, encoding=file.encoding), 1):
                is_selected = is_copied.get(number, is_selected)
                if is_selected:
                    output.write(line + "\n")
    if n_rows != len(selected):
        raise CorpusError(f"{file} has {n_rows:,} texts, and {len(selected):,} were expected; do not change it")
