r"""Tables of text: cells divided by commas, semicolons, tabs or others, with or without quotation marks.

Python's csv module is not used: its limit on a cell is one for the whole process, it stops at a cell such as
"He said "hi"" without a hint, and it does not say where a row begins and ends, which a copy of a row must know.

What pandas, Polars, R, spreadsheets and databases write is read to the same cells. Quotation marks around a cell are
not part of it, and doubled ones in it stand for one. In tab-separated text they are text like any other, unless all of
the file is quoted by one rule. A cell `\N` is missing, as is an `NA` without quotation marks where strings have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pellucid.errors import CorpusError, warn
from pellucid.text.lines import MAX_LINE_BYTES, LineReader, is_stream, read_lines

QUOTINGS = ("csv", "backslash", "none")
r"""How cells are quoted: "csv" in quotation marks, doubled inside; "backslash" with \", \t and \n for what they stand
for, as MySQL, Postgres and Spark write; "none" not at all."""

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "space": " "}
"""Names of characters between cells, some of which are hard to type in a shell."""

Cells = list[str | None]

_GUESSED = ",;\t|"  # characters that may be between the cells; of equally good ones the first
_MAX_CELLS = 4_000_000  # of a row: each takes about a hundred bytes
_PEEK_LINES = 30  # that decide about the delimiter and about rows with one cell more than the header
_BARE_LINES = 10_000  # without a quotation mark, which show the columns whose cells need none
_MAX_SCAN_CHARS = 1 << 20  # of a row that spans lines, while the quoting is found out
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_ESCAPED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SPACED_HEADER = re.compile(r'"[^"]*"( "[^"]*")+')
_NEEDS_NO_QUOTES = re.compile(r"[-+\d.,:/ ]+(e[-+]?\d+)?|NA|NaN|nan|NULL|\\N|true|false", re.ASCII | re.IGNORECASE)
_IN_QUOTES = re.compile(r'[^"\\]+|\\.|"|\\', re.DOTALL)  # the pieces of a cell with backslashes
_BACKSLASHED = re.compile(r"\\(.)", re.DOTALL)
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


class Row(NamedTuple):
    """A row of a table."""

    first: int  # line
    last: int  # line
    cells: Cells


class Dialect(NamedTuple):
    """How cells are divided and quoted."""

    delimiter: str
    quoting: str = "csv"
    skips_blanks: bool = False  # blanks after a delimiter are no part of a cell
    quoted_names: bool = False  # the header is in quotation marks: strings are, too, and a bare NA is no string


class DelimitedFile:
    """A table of text, whose rows are read once; each has as many cells as there are names of columns."""

    def __init__(
        self,
        path: Path,
        *,
        encoding: str | None = None,
        delimiter: str | None = None,
        quoting: str | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Read the names of the columns.

        Args:
            path: the file, or a pipe.
            encoding: see `read_lines`.
            delimiter: the character between the cells; None takes what the first lines show.
            quoting: one of `QUOTINGS`; None takes "csv", and between tabs what the file shows.
            is_quiet: give no warnings, as the file is read again.

        Raises:
            CorpusError: the file is empty or broken.
        """
        self.path = path
        self._is_quiet = is_quiet
        self._lines = LineReader(path, encoding=encoding)
        self._lines.skip_blank()
        line = re.fullmatch(r'"?sep=(.)"?', "".join(self._lines.peek(1)), re.IGNORECASE)  # as Excel reads and writes
        if line:
            next(self._lines)
            self._lines.skip_blank()
            delimiter = delimiter or line[1]
        peeked = self._lines.peek(_PEEK_LINES)
        if not peeked:
            raise CorpusError(f"{path} is empty; the first line of a table names its columns")
        delimiter = delimiter or _delimiter_of(peeked, tabbed=bool({".tsv", ".tab"} & set(path.suffixes)))
        if quoting is None:
            scan = _TabScan(None if is_quiet else path.name)
            text = iter(self._lines.peek(_BARE_LINES)) if is_stream(path) else read_lines(path, encoding=encoding)
            quoting = scan.quoting(text) if delimiter == "\t" else "csv"
        self.dialect = _dialect_of(peeked[0], delimiter, quoting)
        self._rows = _RowReader(path, self._lines, self.dialect)
        self.names = ["" if cell is None else cell.strip() for cell in next(self._rows).cells]
        """Of the columns; "" where one has none."""
        self._rows.is_single = len(self.names) == 1
        self._ahead = self._first_rows()

    def _first_rows(self) -> list[Row]:
        """Return the first rows, after giving a name to a column that the header lacks."""
        rows = [row for row in [next(self._rows, None)] if row is not None]
        more = len(self.names) + 1
        if rows and len(rows[0].cells) == more > 2:
            rows += [row for row, _ in zip(self._rows, range(_PEEK_LINES))]
            if all(len(row.cells) == more for row in rows) and not self._rows.stray:
                # a delimiter after the last cell, or names of rows, as R writes them
                at_end = not self.dialect.quoted_names and not any(row.cells[-1] for row in rows)
                self.names.insert(len(self.names) if at_end else 0, "")
        return rows

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows.

        Raises:
            CorpusError: the file is broken at a named line.
        """
        rows, spanning = 0, 0
        example: Row | None = None
        for row in chain(self._ahead, self._rows):
            if len(row.cells) != len(self.names):
                raise CorpusError(self._wrong_count(row))
            rows += 1
            if row.last > row.first:
                spanning, example = spanning + 1, example or row
            yield row
        if self._is_quiet:
            return
        if example is not None:
            warn(
                f"{self.path.name}: {rows:,} rows in {self._lines.number:,} lines, as cells in quotation marks span "
                f"lines in {spanning:,}; the first is in lines {example.first:,} to {example.last:,}"
            )
        if self._rows.undoubled is not None:
            count, line = self._rows.undoubled
            warn(
                f"{self.path.name}: {count:,} cells in quotation marks hold others that are not doubled, the first in "
                f"line {line:,}; they are read as pandas reads them. If each has a backslash: --quoting backslash"
            )

    def _wrong_count(self, row: Row) -> str:
        cells, expected = len(row.cells), len(self.names)
        text = self.dialect.delimiter.join(cell or "" for cell in row.cells)
        if self.dialect.quoting == "none":
            hint = "If cells are in quotation marks: --quoting csv"
        elif "\\" in text:
            hint = "If backslashes stand before quotation marks or delimiters: --quoting backslash"
        elif expected == 1:
            hint = "If something else divides the cells: --delimiter"
        else:
            what = f"{self.dialect.delimiter!r}" if cells > expected else "a line break"
            hint = f"A cell with {what} in it needs quotation marks; if they are part of the text: --quoting none"
        return f"{self.path}, line {row.first} has {cells} cells; the header has {expected}. {hint}"


class _RowReader:
    """Cuts lines into rows of cells."""

    def __init__(self, path: Path, lines: LineReader, dialect: Dialect) -> None:
        self.is_single = False  # one column, in which a blank line is an empty cell
        self.undoubled: tuple[int, int] | None = None  # number of cells with such marks, and the first one's line
        self.stray = 0  # cells that are not in quotation marks and hold one
        self._path, self._lines, self._dialect = path, lines, dialect
        self._unescaped = re.compile(r"[^\\D]*(?:\\.[^\\D]*)*".replace("D", re.escape(dialect.delimiter)), re.DOTALL)

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        dialect, line = self._dialect, next(self._lines)
        while not self.is_single and (not line or (line.isspace() and dialect.delimiter not in line)):
            self._lines.skip_blank()
            line = next(self._lines)
        first = self._lines.number
        if len(line) > _MAX_CELLS and line.count(dialect.delimiter) > _MAX_CELLS:
            raise CorpusError(f"{self._path}, line {first}: more than {_MAX_CELLS:,} cells in a row; divide it")
        cells: Cells
        if dialect.quoting == "csv" and '"' in line:
            cells = self._quoted_cells(line)
        elif dialect.quoting == "backslash" and ('"' in line or "\\" in line):
            cells = self._escaped_cells(line)
        else:
            cells = self._bare_cells(line)
        return Row(first, self._lines.number, cells)

    def _bare_cells(self, line: str) -> Cells:
        dialect = self._dialect
        cells: Cells = [*line.removesuffix("\r").split(dialect.delimiter)]
        if dialect.skips_blanks:
            cells = [cell and cell.lstrip(" ") for cell in cells]
        if "\\N" in line or (dialect.quoted_names and "NA" in line):
            cells = list(map(self._bare, cells))
        return cells

    def _bare(self, cell: str | None) -> str | None:
        """Return a cell without quotation marks; None for a missing value."""
        return None if cell == "\\N" or (cell == "NA" and self._dialect.quoted_names) else cell

    def _quoted_cells(self, line: str) -> Cells:
        """Return the cells of a row, some in quotation marks; it may span lines."""
        delimiter, cells, start = self._dialect.delimiter, Cells(), 0
        backslashes, stray = False, self.stray
        while True:
            first = start
            while delimiter != " " and line.startswith(" ", first):
                first += 1
            if self._dialect.skips_blanks or line.startswith('"', first):  # no writer leaves a bare cell that begins so
                start = first
            if line.startswith('"', start):
                cell, line, start = self._quoted_cell(line, start + 1)
                end = line.find(delimiter, start)
                tail = line[start : end if end >= 0 else len(line)].removesuffix("\r")
                if tail and not tail.isspace():
                    count, number = self.undoubled or (0, self._lines.number)
                    self.undoubled = count + 1, number
                    cell += tail
                backslashes = backslashes or '\\"' in cell
                cells.append(cell)
            else:
                end = line.find(delimiter, start)
                bare = line[start:end] if end >= 0 else line[start:].removesuffix("\r")
                self.stray += '"' in bare
                cells.append(self._bare(bare))
            if end < 0:
                if backslashes and self.stray > stray:
                    raise self._backslash_error()
                return cells
            start = end + len(delimiter)

    def _quoted_cell(self, line: str, start: int) -> tuple[str, str, int]:
        """Return a cell after its first quotation mark, the line in which it ends, and where it ends there."""
        pieces: list[str] = []
        first = self._lines.number
        while True:
            end = line.find('"', start)
            if end < 0:
                pieces += [line[start:], "\n"]
                line, start = self._next_marked(first, pieces), 0
                continue
            doubled = line.startswith('"', end + 1)
            at_end = line[end + 1 : end + 2] in ("", "\r", self._dialect.delimiter)
            if end > start and line[end - 1] == "\\" and not doubled and not at_end:
                raise self._backslash_error()
            pieces.append(line[start : end + doubled])
            start = end + 1 + doubled
            if not doubled:
                return "".join(pieces), line, start

    def _backslash_error(self) -> CorpusError:
        return CorpusError(
            f'{self._path}, line {self._lines.number}: a cell in quotation marks holds \\". If a backslash stands '
            "before each of those in cells: --quoting backslash. Otherwise double them"
        )

    def _next_marked(self, first: int, pieces: list[str]) -> str:
        """Return the next line with a quotation mark, and add what is before it to the cell that began in a line."""
        text, line = self._lines.take_until('"', MAX_LINE_BYTES)
        pieces.append(text)
        if line is None or sum(map(len, pieces)) > MAX_LINE_BYTES:
            within = f" within {MAX_LINE_BYTES:,} characters" if line is not None or len(text) > MAX_LINE_BYTES else ""
            hint = "If quotation marks are part of the text: --quoting none"
            if any('\\"' in piece for piece in pieces[:3]):
                hint = "If a backslash stands before those in cells: --quoting backslash"
            raise CorpusError(
                f"{self._path}, line {first}: a quotation mark opens a cell, and none closes it{within}. {hint}"
            )
        return line

    def _next_line(self, first: int, size: int) -> str:
        line = next(self._lines, None)
        if line is None or size > MAX_LINE_BYTES:
            raise CorpusError(
                f"{self._path}, line {first}: a cell does not end before the file does, or is longer than "
                f"{MAX_LINE_BYTES:,} characters. If quotation marks and backslashes are text: --quoting none"
            )
        return line

    def _escaped_cells(self, line: str) -> Cells:
        """Return the cells of a row in which backslashes change what stands after them; it may span lines."""
        delimiter, cells, start = self._dialect.delimiter, Cells(), 0
        has_quotes = delimiter != "\t" or self._dialect.quoted_names  # databases write none between tabs
        while True:
            pieces: list[str] = []
            first, size = self._lines.number, 0
            if has_quotes and line.startswith('"', start):
                start += 1
                while True:
                    match = _IN_QUOTES.match(line, start)
                    piece = match[0] if match else "\n"
                    size, start = size + len(piece), start + len(piece)
                    if piece == '"':
                        if not line.startswith('"', start):
                            break
                        start += 1  # doubled
                    if match is None:
                        line, start = self._next_line(first, size), 0
                    pieces.append(piece)
                cells.append(_unescape("".join(pieces)))
                end = line.find(delimiter, start)
            else:
                while True:
                    match = self._unescaped.match(line, start)
                    piece = match[0] if match else ""
                    pieces.append(piece)
                    end = start + len(piece)
                    if line[end:] != "\\":
                        break
                    size += len(piece)
                    pieces.append("\\\n")  # a line end that belongs to the cell
                    line, start = self._next_line(first, size), 0
                cell = self._bare("".join(pieces).removesuffix("\r"))
                cells.append(None if cell is None else _unescape(cell))
                end = end if end < len(line) else -1
            if end < 0:
                return cells
            start = end + len(delimiter)


def _unescape(cell: str) -> str:
    return _BACKSLASHED.sub(lambda match: _MEANINGS.get(match[1], match[1]), cell)


def _delimiter_of(lines: list[str], *, tabbed: bool) -> str:
    """Return what divides the cells of some first lines; `tabbed` says that the file's name promises tabs."""
    header, *bare = [_QUOTED.sub("", line) for line in lines if line and not line.isspace()]
    if tabbed and "\t" in header:
        return "\t"
    counts = {mark: header.count(mark) for mark in _GUESSED if mark in header}
    if not counts:
        return " " if _SPACED_HEADER.fullmatch(lines[0]) else "\t" if tabbed else ","
    fitting = {mark: sum(line.count(mark) == count for line in bare) for mark, count in counts.items()}
    best = max(counts, key=lambda mark: (fitting[mark], counts[mark]))
    return "\t" if tabbed and fitting[best] < len(bare) else best


def _dialect_of(header: str, delimiter: str, quoting: str) -> Dialect:
    names = header.split(delimiter)[1:]
    skips_blanks = quoting == "csv" and bool(names) and all(re.match(" [^ ]", name) for name in names)
    quoted_names = re.fullmatch(rf"(?:{_QUOTED.pattern}(?:{re.escape(delimiter)}|\r?$))+", header)
    return Dialect(delimiter, quoting, skips_blanks, bool(quoted_names))


class _TabScan:
    """Finds out whether the cells of tab-separated text are quoted by one rule, so that the marks are no text."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._needless: set[int] = set()  # columns with a cell in marks that it does not need
        self._bare: set[int] = set()  # columns with a string without marks
        self._number = 0  # of the last line

    def quoting(self, lines: Iterator[str]) -> str:
        """Return the quoting that fits all lines, "none" where no other one does."""
        lines = (line for line in lines if line and not line.isspace())
        header = next(lines, "")
        width, quoted_names = header.count("\t") + 1, header.startswith('"')
        has_marks, bare_lines = quoted_names, 0
        if '"' in header and self._tokens(header, _QUOTED) is None:
            return "none"
        for line in lines:
            if '"' not in line:
                bare_lines += 1
                if bare_lines <= _BARE_LINES:
                    self._count(line.split("\t"))
            else:
                has_marks = True
                row = self._whole_row(line, lines)
                cells = self._tokens(row, _QUOTED)
                if cells is None or len(cells) not in (width, width + 1):  # R names rows, and not their column
                    escaped = quoted_names and self._tokens(line, _ESCAPED) is not None
                    return "backslash" if escaped else "none"
                spans = row.split("\n")
                if len(spans) > 1 and not quoted_names and all(part.count("\t") + 1 == width for part in spans):
                    if self._name is not None:
                        warn(
                            f"{self._name}: the quotation marks in {spans[0]!r:.60} and the lines after it are read as "
                            "text, as each line has all cells. If they are around one cell: --quoting csv"
                        )
                    return "none"
                self._count(cells)
            if self._needless & self._bare:
                return "none"
        return "csv" if has_marks else "none"

    def _whole_row(self, line: str, lines: Iterator[str]) -> str:
        """Return a line, with those after it that belong to it if a quotation mark in it opens a cell."""
        parts, marks, size = [line], line.count('"'), len(line)
        while marks % 2 and size < _MAX_SCAN_CHARS:
            more = next(lines, None)
            if more is None:
                break
            parts.append(more)
            marks += more.count('"')
            size += len(more)
        return "\n".join(parts)

    @staticmethod
    def _tokens(row: str, quoted: re.Pattern[str]) -> list[str] | None:
        """Return the cells of a row as they stand; None if one has a quotation mark and is not in such."""
        cells, start = [], 0
        while True:
            match = quoted.match(row, start) if row.startswith('"', start) else None
            end = match.end() if match else row.find("\t", start)
            end = len(row) if end < 0 else end
            cell = row[start:end]
            if (not match and '"' in cell) or row[end : end + 1] not in ("", "\t"):
                return None
            cells.append(cell)
            if end == len(row):
                return cells
            start = end + 1

    def _count(self, cells: list[str]) -> None:
        """Look at cells: which are in marks that they do not need, and which have none."""
        for column, cell in enumerate(cells):
            if cell.startswith('"'):
                inner = cell[1:-1]
                if inner and not any(mark in inner for mark in '"\t\n\r'):
                    self._needless.add(column)
            elif column not in self._bare and cell and not _NEEDS_NO_QUOTES.fullmatch(cell):
                self._bare.add(column)
