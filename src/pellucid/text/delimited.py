r"""Tables of text: cells divided by commas, semicolons, tabs or others, with or without quotation marks.

What pandas, Polars, R, spreadsheets and databases write is read to the same cells. In tab-separated text quotation
marks are text like any other, unless all of the file is quoted by one rule. A cell `\N` is missing, as is an `NA`
without quotation marks where strings have them. Files of ours (their byte order mark says so) have an apostrophe before
what a spreadsheet takes for a formula; it is no part of the cell.
"""

from __future__ import annotations

import codecs
import csv
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, warn
from pellucid.text.lines import MAX_TEXT_CHARS, is_stream, line_blocks, open_file, read_lines

QUOTINGS = ("csv", "backslash", "none")
r"""How cells are quoted: "csv" in quotation marks, doubled inside; "backslash" with \", \t and \n for what they stand
for, as MySQL, Postgres and Spark write; "none" not at all."""

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "space": " "}
"""Names of characters between cells, some of which are hard to type in a shell."""

_BLOCK_ROWS = 1024
_PEEK_LINES = 30  # that decide about the delimiter and about rows with one cell more than the header
_MAX_ROW_CELLS = 4_000_000
_MAX_BLANK_LINES = 1_000_000  # that follow each other
_MAX_SCAN_CHARS = 1 << 20  # of a row that spans lines, while the quoting is found out
_NULL, _QUOTE, _BACKSLASH = "\ufdd0\ufdd1\ufdd2"  # a missing cell, \\" and \\\\ while a row is cut: in no text
_FORMULA = re.compile("'*[\x00-\x08\x0b\x0c\x0e-\x1f\ufeff\ufffe\uffff]*[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r\n]")
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_SPACED_HEADER = re.compile(r'"[^"]*"( "[^"]*")+')
_TAB_CELL = re.compile(r'("[^"]*(?:""[^"]*)*"|[^"\t]*)(?:\t|\Z)')
_PLAIN_CELL = re.compile(r"[-+\d.,:/ ]*(e[-+]?\d+)?|NA|NaN|nan|NULL|\\N|true|false", re.ASCII | re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "N": _NULL}

Cells = list[str | None]


def as_cell(text: str) -> str:
    """Return a text as a cell of a table of text: behind an apostrophe where a spreadsheet may take it for a formula.

    >>> as_cell("=1+1"), as_cell("'=1+1"), as_cell("one's")
    ("'=1+1", "''=1+1", "one's")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def from_cell(cell: str) -> str:
    """Return the text of a cell that `as_cell` made."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


class DelimitedFile:
    """A table of text, whose rows are read once; each has as many cells as there are names of columns."""

    def __init__(
        self,
        path: Path,
        encoding: str | None = None,
        delimiter: str | None = None,
        quoting: str | None = None,
        *,
        is_quiet: bool = False,
    ) -> None:
        """Read the names of the columns.

        Args:
            path: the file, or a pipe.
            encoding: None for UTF-8, or what a byte order mark says.
            delimiter: the character between the cells; None takes what the first lines show.
            quoting: one of `QUOTINGS`; None takes "csv", and between tabs what the file shows.
            is_quiet: give no warnings, as the file is read again.

        Raises:
            CorpusError: the file is empty or broken.
        """
        self.path, self._is_quiet, self._is_ours = path, is_quiet, False
        if not is_stream(path):
            with open_file(path) as file:
                self._is_ours = file.read(3) == codecs.BOM_UTF8
        blocks = line_blocks(path, encoding=encoding, is_table=True)
        lines: list[str] = []
        self._n_skipped = 0  # lines before the header
        for block in blocks:
            lines = block
            while lines and (not lines[0] or lines[0].isspace()):
                lines = lines[next((n for n, line in enumerate(lines) if line and not line.isspace()), len(lines)) :]
            self._n_skipped += len(block) - len(lines)
            if lines:
                break
        if lines and (match := re.fullmatch(r'"?sep=(.)"?', lines[0], re.IGNORECASE)):  # as Excel reads and writes
            lines, self._n_skipped, delimiter = lines[1:], self._n_skipped + 1, delimiter or match[1]
        if not lines:
            raise CorpusError(f"{path} is empty; the first line of a table names its columns")
        peeked = lines[:_PEEK_LINES]
        self.delimiter = delimiter or _find_delimiter(peeked, is_tabbed=bool({".tsv", ".tab"} & set(path.suffixes)))
        if quoting is None and self.delimiter == "\t":
            all_lines = lines if is_stream(path) else read_lines(path, encoding=encoding)
            quoting = _TabScan(all_lines, None if is_quiet else path.name).quoting
        self.quoting = quoting or "csv"
        quoted_names = rf"(?:{_QUOTED.pattern}(?:{re.escape(self.delimiter)}|$))+"
        self._has_quoted_names = bool(re.fullmatch(quoted_names, lines[0]))
        names = lines[0].split(self.delimiter)[1:]
        skips_blanks = self.quoting == "csv" and bool(names) and all(re.match(" [^ ]", name) for name in names)
        prepared = chain.from_iterable(self._prepare(chain([lines], blocks)))
        self._reader = csv.reader(prepared, **self.dialect, skipinitialspace=skips_blanks)
        self._converts = self._is_ours or self.quoting == "backslash" or self._has_quoted_names
        self._next_line, self._is_single, self._is_done = self._n_skipped + 1, False, False
        self._error: CorpusError | None = None
        self._n_blank = 0  # blank lines since the last row
        self._spanning: list[tuple[int, int]] = []  # first and last lines of rows
        _, header = self._read_rows(1)
        if self._error is not None:
            raise self._error
        self.names = ["" if cell is None else cell.strip() for cell in header[0]]
        """Of the columns; "" where one has none."""
        self._is_single = len(self.names) == 1
        self._ahead = self._read_rows(_PEEK_LINES)
        self._name_more_columns()

    @property
    def dialect(self) -> dict[str, Any]:
        """How cells are divided and quoted, as the csv module takes it."""
        if self.quoting == "none" or (
            self.quoting == "backslash" and self.delimiter == "\t" and not self._has_quoted_names
        ):
            quoting = csv.QUOTE_NONE  # databases write no quotation marks between tabs
        else:
            quoting = csv.QUOTE_MINIMAL
        escape = "\\" if self.quoting == "backslash" else None
        return {"delimiter": self.delimiter, "quoting": quoting, "escapechar": escape, "strict": True}

    def blocks(self) -> Iterator[tuple[Sequence[int], list[Cells]]]:
        """Yield some rows at a time: the first line of each, and its cells.

        Raises:
            CorpusError: the file is broken at a named line.
        """
        width, n_rows = len(self.names), 0
        first_lines, rows = self._ahead
        while rows or not self._is_done:
            for first, cells in zip(first_lines, rows) if set(map(len, rows)) - {width} else ():
                if len(cells) != width:
                    raise CorpusError(self._wrong_count(first, cells))
            n_rows += len(rows)
            yield first_lines, rows
            first_lines, rows = ([], []) if self._is_done else self._read_rows(_BLOCK_ROWS)
        if self._spanning and not self._is_quiet:
            warn(
                f"{self.path.name}: {n_rows:,} rows in {self._next_line - 1:,} lines, as cells in quotation marks span "
                f"lines in {len(self._spanning):,}; the first is in lines {self._spanning[0][0]:,} to "
                f"{self._spanning[0][1]:,}"
            )

    def _read_rows(self, size: int) -> tuple[Sequence[int], list[Cells]]:
        """Return first lines and cells of at most `size` next rows, without those that are blank."""
        if self._error is not None:  # after the rows before it have been given
            raise self._error
        last_lines: list[int] = []
        rows: list[Cells] = []
        with long_cells():
            try:
                for cells in islice(self._reader, size):
                    rows.append(cells)  # type: ignore[arg-type]
                    last_lines.append(self._reader.line_num)
            except csv.Error as error:
                self._error = CorpusError(
                    self._broken(self._n_skipped + last_lines[-1] + 1 if rows else self._next_line, error)
                )
            except CorpusError as error:
                self._error = error
        self._is_done = len(rows) < size and self._error is None
        first, last = self._next_line, (self._n_skipped + last_lines[-1] if rows else self._next_line - 1)
        self._next_line = last + 1
        first_lines: Sequence[int] = range(first, last + 1)
        if len(rows) != len(first_lines) or min(map(len, rows), default=2) < 2:
            spans = pairwise([first - 1, *(self._n_skipped + line for line in last_lines)])
            filled = [
                (before + 1, last, cells or [""])
                for (before, last), cells in zip(spans, rows)
                if len(cells) > 1 or self._is_single or "".join(cells).strip()  # type: ignore[arg-type]
            ]
            self._spanning += [(first, last) for first, last, _ in filled if last > first]
            first_lines, rows = [first for first, _, _ in filled], [cells for _, _, cells in filled]
        self._n_blank = 0 if rows else self._n_blank + self._next_line - first
        if self._n_blank > _MAX_BLANK_LINES:
            raise CorpusError(f"{self.path}, line {first}: more than {_MAX_BLANK_LINES:,} blank lines; remove them")
        for first, row in zip(first_lines, rows):
            if self._converts or "\\N" in row:
                row[:] = map(self._convert, row)
            if len(row) > _MAX_ROW_CELLS:
                raise CorpusError(f"{self.path}, line {first}: more than {_MAX_ROW_CELLS:,} cells in a row; divide it")
        return first_lines, rows

    def _convert(self, cell: str | None) -> str | None:
        """Return what a cell holds, None for a missing value."""
        if cell == _NULL or (cell == "\\N" and self.quoting != "backslash"):
            return None
        return from_cell(cell) if self._is_ours and cell else cell

    def _prepare(self, blocks: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yield lines as the csv module takes them, with missing cells marked."""
        mark = re.escape(self.delimiter)
        bare_na = re.compile(rf"(?:(?<={mark})|^)NA(?={mark}|$)")
        after_escape = re.compile(rf'\\"{mark}(?!")[^"]*(?<!{mark})"')
        is_inside, n_lines = False, self._n_skipped  # inside of a cell in quotation marks
        for block in blocks:
            if self.quoting == "backslash":
                block = [_ESCAPED.sub(lambda match: "\\" + _ESCAPES.get(match[1], match[1]), line) for line in block]
            elif self.quoting == "csv" and any('\\"' in line for line in block):
                for number, line in enumerate(block, n_lines + 1):
                    if after_escape.search(line):
                        raise CorpusError(self._broken(number, r"a cell in quotation marks holds \""))
            for number, line in enumerate(block) if self._has_quoted_names else ():
                if self.quoting == "backslash":
                    line = line.replace("\\\\", _BACKSLASH).replace('\\"', _QUOTE)
                pieces = line.split('"')
                if "NA" in line:
                    pieces[is_inside::2] = [bare_na.sub(_NULL, piece) for piece in pieces[is_inside::2]]
                    block[number] = '"'.join(pieces).replace(_QUOTE, '\\"').replace(_BACKSLASH, "\\\\")
                is_inside ^= len(pieces) % 2 == 0
            n_lines += len(block)
            yield [line + "\n" for line in block]

    def _name_more_columns(self) -> None:
        """Give a name to a column that the header lacks: names of rows, as R writes them, or one that is empty."""
        rows, more = self._ahead[1], len(self.names) + 1
        if more > 2 and rows and all(len(cells) == more for cells in rows):
            is_at_end = not self._has_quoted_names and not any(cells[-1] for cells in rows)
            if is_at_end or not any('"' in (cell or "") for cells in rows for cell in cells):
                self.names.insert(len(self.names) if is_at_end else 0, "")

    def _broken(self, line: int, error: object) -> str:
        problem = str(error)
        if "unexpected end" in problem or "field limit" in problem:
            problem = f"a quotation mark opens a cell, and none closes it within {MAX_TEXT_CHARS:,} characters"
        elif "expected after" in problem:
            problem = "a quotation mark within a cell in quotation marks is not doubled"
        return (
            f"{self.path}, line {line}: {problem}. If a backslash stands before those in cells: --quoting backslash. "
            "If quotation marks are part of the text: --quoting none"
        )

    def _wrong_count(self, line: int, cells: Sequence[str | None]) -> str:
        expected = len(self.names)
        if self.quoting == "none":
            hint = "If cells are in quotation marks: --quoting csv"
        elif any("\\" in (cell or "") for cell in cells):
            hint = "If backslashes stand before quotation marks or delimiters: --quoting backslash"
        elif expected == 1:
            hint = "If something else divides the cells: --delimiter"
        else:
            what = f"{self.delimiter!r}" if len(cells) > expected else "a line break"
            hint = f"A cell with {what} in it needs quotation marks; if they are part of the text: --quoting none"
        return f"{self.path}, line {line} has {len(cells)} cells; the header has {expected}. {hint}"


_limits: list[int] = []
_limits_lock = threading.Lock()


@contextmanager
def long_cells() -> Iterator[None]:
    """Allow long cells while a block is read: the csv module has one limit for the whole process."""
    with _limits_lock:
        _limits.append(csv.field_size_limit(MAX_TEXT_CHARS))
    try:
        yield
    finally:
        with _limits_lock:
            limit = _limits.pop()
            if not _limits:
                csv.field_size_limit(limit)


def _find_delimiter(lines: Sequence[str], *, is_tabbed: bool) -> str:
    """Return what divides the cells of some first lines; `is_tabbed` says that the file's name promises tabs."""
    header, *bare = [_QUOTED.sub("", line) for line in lines if line and not line.isspace()]
    if is_tabbed and "\t" in header:
        return "\t"
    counts = {mark: header.count(mark) for mark in ",;\t|" if mark in header}
    if not counts:
        return " " if _SPACED_HEADER.fullmatch(lines[0]) else "\t" if is_tabbed else ","
    fitting = {mark: sum(line.count(mark) == count for line in bare) for mark, count in counts.items()}
    best = max(counts, key=lambda mark: (fitting[mark], counts[mark]))
    return "\t" if is_tabbed and fitting[best] < len(bare) else best


class _TabScan:
    """Finds out whether the cells of tab-separated text are quoted by one rule, so that the marks are no text."""

    def __init__(self, lines: Iterable[str], name: str | None) -> None:
        """Read all lines; `name` is that of the file, for a warning."""
        self._lines = (line for line in lines if line and not line.isspace())
        self._needless: set[int] = set()  # columns with a cell in marks that it does not need
        self._bare: set[int] = set()  # columns with a string without marks
        self._marked, self._split = False, ""  # whether a row has marks; the first line of a cell that may be several
        header = next(self._lines, "")
        self._width, self._has_quoted_names = header.count("\t") + 1, header.startswith('"')
        is_quoted = self._cells(header) is not None and all(map(self._is_quoted, self._lines))
        if is_quoted and (self._has_quoted_names or self._marked):
            self.quoting = "csv"
        else:
            self.quoting = "backslash" if self._has_quoted_names else "none"
        if self._split and name is not None:
            warn(
                f"{name}: the quotation marks in {self._split!r:.60} and the lines after it are read as text, as each "
                "line has all cells. If they are around one cell: --quoting csv"
            )

    def _is_quoted(self, line: str) -> bool:
        """Whether a row is quoted by the rule, after reading the lines that belong to it."""
        if '"' not in line:
            if len(self._bare) < self._width:
                self._look_at(line.split("\t"))
            return not self._needless & self._bare
        self._marked, rows, n_marks, n_chars = True, [line], line.count('"'), len(line)
        while n_marks % 2 and n_chars < _MAX_SCAN_CHARS and (more := next(self._lines, None)) is not None:
            rows.append(more)
            n_marks += more.count('"')
            n_chars += len(more)
        cells = self._cells("\n".join(rows))
        if cells is None or len(cells) not in (self._width, self._width + 1):  # R names rows, and not their column
            return False
        if len(rows) > 1 and not self._has_quoted_names and all(row.count("\t") + 1 == self._width for row in rows):
            self._split = rows[0]
            return False
        self._look_at(cells)
        return not self._needless & self._bare

    @staticmethod
    def _cells(row: str) -> list[str] | None:
        """Return the cells of a row as they stand; None if one has a quotation mark and is not in such."""
        cells, start = [], 0
        while start <= len(row):
            match = _TAB_CELL.match(row, start)
            if match is None:
                return None
            cells.append(match[1])
            start = match.end() + (match.end() == len(row) and not match[0].endswith("\t"))
        return cells

    def _look_at(self, cells: list[str]) -> None:
        for column, cell in enumerate(cells):
            if cell.startswith('"'):
                if len(cell) > 2 and not any(mark in cell[1:-1] for mark in '"\t\n\r'):
                    self._needless.add(column)
            elif column not in self._bare and not _PLAIN_CELL.fullmatch(cell):
                self._bare.add(column)
