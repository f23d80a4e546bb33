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
from itertools import chain, islice, pairwise, repeat
from pathlib import Path

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
_TAB_CELL = re.compile(r'(?:\A|\t)("[^"]*(?:""[^"]*)*"|[^"\t]*)')
_TAB_ROW = re.compile(r'(?:"[^"]*(?:""[^"]*)*"|[^"\t]*)(?:\t(?:"[^"]*(?:""[^"]*)*"|[^"\t]*))*')
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
        while not lines and (block := next(blocks, None)) is not None:
            n_blank = next((n for n, line in enumerate(block) if line and not line.isspace()), len(block))
            self._n_skipped += n_blank
            lines = block[n_blank:]
        if lines and (match := re.fullmatch(r'"?sep=(.)"?', lines[0], re.IGNORECASE)):  # as Excel reads and writes
            lines, self._n_skipped, delimiter = lines[1:], self._n_skipped + 1, delimiter or match[1]
        if not lines:
            raise CorpusError(f"{path} is empty; the first line of a table names its columns")
        peeked = lines[:_PEEK_LINES]
        self.delimiter = delimiter or _find_delimiter(peeked, is_tabbed=bool({".tsv", ".tab"} & set(path.suffixes)))
        if quoting is None and self.delimiter == "\t":
            all_lines = lines if is_stream(path) else read_lines(path, encoding=encoding)
            quoting = _tab_quoting(all_lines, None if is_quiet else path.name)
        self.quoting = quoting or "csv"
        quoted_names = rf"(?:{_QUOTED.pattern}(?:{re.escape(self.delimiter)}|$))+"
        self._has_quoted_names = bool(re.fullmatch(quoted_names, lines[0]))
        names = lines[0].split(self.delimiter)[1:]
        skips_blanks = self.quoting == "csv" and bool(names) and all(re.match(" [^ ]", name) for name in names)
        prepared = chain.from_iterable(self._prepare(chain([lines], blocks)))
        has_marks = self.quoting == "csv" or (
            self.quoting == "backslash" and (self.delimiter != "\t" or self._has_quoted_names)
        )  # databases write no quotation marks between tabs
        self._reader = csv.reader(
            prepared, delimiter=self.delimiter, quoting=csv.QUOTE_MINIMAL if has_marks else csv.QUOTE_NONE,
            escapechar="\\" if self.quoting == "backslash" else None, skipinitialspace=skips_blanks, strict=True,
        )  # fmt: skip
        self._converts = self._is_ours or self.quoting == "backslash" or self._has_quoted_names
        self._spanning: list[tuple[int, int]] = []  # first and last lines of rows
        self._blocks = self._read_blocks()
        _, header = next(self._blocks)
        self.names = ["" if cell is None else cell.strip() for cell in header[0]]
        """Of the columns; "" where one has none."""
        self._ahead = next(self._blocks, ((), []))
        self._name_more_columns()

    def blocks(self) -> Iterator[tuple[Sequence[int], list[Cells]]]:
        """Yield some rows at a time: the first line of each, and its cells.

        Raises:
            CorpusError: the file is broken at a named line.
        """
        n_rows = 0
        for first_lines, rows in chain([self._ahead], self._blocks):
            if set(map(len, rows)) - {len(self.names)}:
                wrong_rows = (row for row in zip(first_lines, rows) if len(row[1]) != len(self.names))
                raise CorpusError(self._wrong_count(*next(wrong_rows)))
            n_rows += len(rows)
            yield first_lines, rows
        if self._spanning and not self._is_quiet:
            (first, last), *_ = self._spanning
            warn(
                f"{self.path.name}: {n_rows:,} rows in {self._n_skipped + self._reader.line_num:,} lines, as cells in "
                f"quotation marks span lines in {len(self._spanning):,}; the first is in lines {first:,} to {last:,}"
            )

    def _read_blocks(self) -> Iterator[tuple[Sequence[int], list[Cells]]]:
        """Yield first lines and cells of the header, of a few rows, and of the others, without blank rows."""
        line, n_blank, is_single = self._n_skipped + 1, 0, False  # line: the first of the next row
        for size in chain((1, _PEEK_LINES), repeat(_BLOCK_ROWS)):
            rows: list[Cells] = []
            last_lines, reader = [line - 1 - self._n_skipped], self._reader
            error: CorpusError | None = None
            with long_cells():
                try:
                    for cells in islice(reader, size):
                        rows.append(cells)  # type: ignore[arg-type]
                        last_lines.append(reader.line_num)
                except csv.Error as problem:
                    error = CorpusError(self._broken(last_lines[-1] + 1 + self._n_skipped, problem))
                except CorpusError as problem:
                    error = problem
            is_end, n_lines = len(rows) < size, last_lines[-1] - last_lines[0]
            first_lines: Sequence[int] = range(line, line + n_lines)
            is_single = is_single or (size == 1 and len(rows[0]) == 1 if rows else False)
            widths = set(map(len, rows))
            if len(rows) != n_lines or widths & {0, 1}:
                filled = [
                    (before + 1 + self._n_skipped, last + self._n_skipped, cells or [""])
                    for (before, last), cells in zip(pairwise(last_lines), rows)
                    if len(cells) > 1 or is_single or "".join(map(str, cells)).strip()
                ]
                self._spanning += [(first, last) for first, last, _ in filled if last > first]
                first_lines, rows = [first for first, _, _ in filled], [cells for _, _, cells in filled]
            n_blank = 0 if rows else n_blank + n_lines
            if n_blank > _MAX_BLANK_LINES:
                raise CorpusError(f"{self.path}, line {line}: more than {_MAX_BLANK_LINES:,} blank lines; remove them")
            if max(widths, default=0) > _MAX_ROW_CELLS:
                raise CorpusError(f"{self.path}, line {line}: more than {_MAX_ROW_CELLS:,} cells in a row; divide it")
            if self._converts:
                rows = [list(map(self._convert, row)) for row in rows]
            line += n_lines
            if rows:
                yield first_lines, rows
            if error is not None:
                raise error
            if is_end:
                return

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
            has_backslash = any("\\" in line for line in block)
            self._converts = self._converts or (has_backslash and any("\\N" in line for line in block))
            if self.quoting == "backslash":
                block = [_ESCAPED.sub(lambda match: "\\" + _ESCAPES.get(match[1], match[1]), line) for line in block]
            elif has_backslash and self.quoting == "csv":
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


def _tab_quoting(lines: Iterable[str], name: str | None) -> str:
    """Return how the cells of tab-separated lines are quoted: "csv" only where all marks are, else they are text.

    A warning, if there is a `name`, tells where a quotation over whole lines may be one cell.
    """
    lines = (line for line in lines if line and not line.isspace())
    header = next(lines, "")
    width, has_quoted_names = header.count("\t") + 1, header.startswith('"')
    is_marked, otherwise = has_quoted_names, "backslash" if has_quoted_names else "none"
    for line in chain([header], lines):
        if '"' not in line:
            continue
        is_marked, rows, n_marks, n_chars = True, [line], line.count('"'), len(line)
        while n_marks % 2 and n_chars < _MAX_SCAN_CHARS and (more := next(lines, None)) is not None:
            rows.append(more)
            n_marks += more.count('"')
            n_chars += len(more)
        row = "\n".join(rows)
        n_cells = len(_TAB_CELL.findall(row)) if _TAB_ROW.fullmatch(row) else 0
        if n_cells not in (width, width + 1):  # R names rows, and not their column
            return otherwise
        if len(rows) > 1 and not has_quoted_names and all(row.count("\t") + 1 == width for row in rows):
            if name is not None:
                warn(
                    f"{name}: the quotation marks in {line!r:.60} and the lines after it are read as text, as each "
                    "line has all cells. If they are around one cell: --quoting csv"
                )
            return otherwise
    return "csv" if is_marked else otherwise
