"""Tables of text: cells divided by commas, semicolons, tabs or bars, with or without quotation marks.

What pandas, Polars, R, spreadsheets and databases write as CSV is read to the same cells. In tab-separated text
quotation marks are text like any other, unless all of the file is quoted by one rule. Where the names of the columns
are in quotation marks, as R writes them, an `NA` without them is missing. Files of ours (their byte order mark says so)
have an apostrophe before what a spreadsheet takes for a formula; it is no part of the cell.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path

from pellucid.errors import CorpusError, warn
from pellucid.text.lines import MAX_TEXT_CHARS, is_stream, open_file, read_lines

QUOTINGS = ("csv", "backslash", "none")
"""How cells are quoted: "csv" in quotation marks, doubled inside; "backslash" in quotation marks, with a backslash
before those inside, as Spark writes; "none" not at all."""

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "space": " "}
"""Names of characters between cells, some of which are hard to type in a shell."""

_BLOCK_ROWS = 1024
_DELIMITER_LINES = 30  # that decide about the delimiter
_PEEK_LINES = 1024  # of a pipe, that decide about the quotation marks between tabs
_NULL = "\ufdd0"  # a missing cell while a row is cut: in no text
_FORMULA = re.compile("'*[\x00-\x08\x0b\x0c\x0e-\x1f\ufeff\ufffe\uffff]*[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r\n]")
_QUOTED = r'"[^"]*(?:""[^"]*)*"'
_TAB_ROW = re.compile(rf'(?:{_QUOTED}|[^"\t]*)(?:\t(?:{_QUOTED}|[^"\t]*))*')

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


def allow_long_cells() -> None:
    """Raise the csv module's limit of a cell, of which there is one for the whole process."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_TEXT_CHARS))


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
        self.path, self._is_quiet, self._is_ours, self._has_no_quoting = path, is_quiet, False, quoting == "none"
        if not is_stream(path):
            with open_file(path) as file:
                self._is_ours = file.read(3) == codecs.BOM_UTF8
        lines = read_lines(path, encoding=encoding)
        filled = ((n, line) for n, line in enumerate(lines) if line and not line.isspace())
        self._n_skipped, names_line = next(filled, (0, None))  # lines before that of the names
        if match := re.fullmatch(r'"?sep=(.)"?', names_line or "", re.IGNORECASE):  # as Excel reads and writes
            self._n_skipped, names_line, delimiter = self._n_skipped + 1, next(lines, None), delimiter or match[1]
        if names_line is None:
            raise CorpusError(f"{path} is empty; the first line of a table names its columns")
        peeked = [names_line, *islice(lines, _PEEK_LINES)]
        is_tabbed = bool({".tsv", ".tab"} & set(path.suffixes))
        self.delimiter = delimiter or _find_delimiter(peeked[:_DELIMITER_LINES], is_tabbed=is_tabbed)
        if quoting is None and self.delimiter == "\t":
            all_lines = peeked if is_stream(path) else read_lines(path, encoding=encoding)
            quoting = "csv" if self._is_ours else _tab_quoting(all_lines, None if is_quiet else path.name)
        self.quoting = quoting or "csv"
        quoted_names = rf"(?:{_QUOTED}(?:{re.escape(self.delimiter)}|$))+"
        self._has_quoted_names = self.quoting != "none" and bool(re.fullmatch(quoted_names, names_line))
        names = names_line.split(self.delimiter)[1:]
        prepared = (line + "\n" for line in chain(peeked, lines))
        self._reader = csv.reader(
            self._mark_missing(prepared) if self._has_quoted_names else prepared,
            delimiter=self.delimiter, quoting=csv.QUOTE_NONE if self.quoting == "none" else csv.QUOTE_MINIMAL,
            escapechar="\\" if self.quoting == "backslash" else None, doublequote=self.quoting == "csv", strict=True,
            skipinitialspace=self.quoting == "csv" and bool(names) and all(re.match(" [^ ]", name) for name in names),
        )  # fmt: skip
        allow_long_cells()
        _, header = self._read(1)
        self.names = ["" if cell is None else cell.strip() for cell in header[0]]
        """Of the columns; "" where one has none."""

    def blocks(self) -> Iterator[tuple[Sequence[int], list[Cells]]]:
        """Yield some rows at a time: the first line of each, and its cells.

        Raises:
            CorpusError: the file is broken at a named line.
        """
        n_columns, n_rows, spans = len(self.names), 0, list[tuple[int, int]]()
        while True:
            lines, rows = self._read(_BLOCK_ROWS)
            if not rows:
                break
            first_lines = lines[:-1]
            spans += [(first, after - 1) for first, after in pairwise(lines) if after > first + 1]
            if set(map(len, rows)) != {n_columns}:
                first_lines, rows = self._without_blank_rows(first_lines, rows)
            n_rows += len(rows)
            yield first_lines, rows
        if spans and not self._is_quiet:
            warn(
                f"{self.path.name}: {n_rows:,} rows in {lines[0] - 1:,} lines, as cells in quotation marks span lines "
                f"in {len(spans):,}; the first is in lines {spans[0][0]:,} to {spans[0][1]:,}"
            )

    def _read(self, max_rows: int) -> tuple[list[int], list[Cells]]:
        """Return the first lines of some rows and of the one after them, and their cells."""
        reader, start, rows = self._reader, self._n_skipped + 1, list[Cells]()
        lines = [start + reader.line_num]
        try:
            for cells in islice(reader, max_rows):
                rows.append(cells)  # type: ignore[arg-type]
                lines.append(start + reader.line_num)
        except csv.Error as error:
            problem = (
                "a quotation mark within a cell in quotation marks is not doubled"
                if "expected after" in str(error)
                else f"a quotation mark opens a cell, and none closes it within {MAX_TEXT_CHARS:,} characters"
            )
            raise CorpusError(self._broken(lines[-1], f": {problem}")) from error
        if self._is_ours or self._has_quoted_names:
            convert = from_cell if self._is_ours else str
            rows = [[None if cell == _NULL else convert(cell or "") for cell in row] for row in rows]
        return lines, rows

    def _without_blank_rows(self, lines: Sequence[int], rows: list[Cells]) -> tuple[list[int], list[Cells]]:
        """Return the rows that are not blank, after checking how many cells they have; of one column all rows."""
        n_columns, filled = len(self.names), list[tuple[int, Cells]]()
        for line, cells in zip(lines, rows):
            is_blank = not cells or (len(cells) == 1 and not str(cells[0]).strip())
            if len(cells) != n_columns and not is_blank:
                counts = f" has {len(cells)} cells; the header has {n_columns}, which must name each column"
                raise CorpusError(self._broken(line, counts))
            if n_columns == 1 or not is_blank:
                filled.append((line, cells or [""]))
        return [line for line, _ in filled], [cells for _, cells in filled]

    def _mark_missing(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines in which each NA outside of quotation marks is marked."""
        mark = re.escape(self.delimiter)
        bare_na, is_quoted = re.compile(rf"(?<![^{mark}])NA(?![^{mark}\n])"), False
        quotation_mark = re.compile(r'(?<!\\)"' if self.quoting == "backslash" else '"')
        for line in lines:
            pieces = quotation_mark.split(line)
            if "NA" in line:
                pieces[is_quoted::2] = [bare_na.sub(_NULL, piece) for piece in pieces[is_quoted::2]]
                line = '"'.join(pieces)
            is_quoted ^= len(pieces) % 2 == 0
            yield line

    def _broken(self, line: int, problem: str) -> str:
        """Return a message about a line: what is wrong, and the options that may be."""
        hint = (
            f"A cell cannot hold {self.delimiter!r} or a line break"
            if self._has_no_quoting
            else f"A cell with a line break or {self.delimiter!r} in it needs quotation marks, with those inside "
            "doubled (--quoting csv) or behind backslashes (--quoting backslash); if quotation marks are part of the "
            "text: --quoting none; if something else divides the cells: --delimiter"
        )
        return f"{self.path}, line {line}{problem}. {hint}"


def _find_delimiter(lines: Sequence[str], *, is_tabbed: bool) -> str:
    """Return what divides the cells of some first lines; `is_tabbed` says that the file's name promises tabs."""
    header, *bare = [re.sub(_QUOTED, "", line) for line in lines if line and not line.isspace()]
    counts = {mark: header.count(mark) for mark in ",;\t|" if mark in header}
    if not counts or (is_tabbed and "\t" in counts):
        return "\t" if is_tabbed else ","
    fitting = {mark: sum(line.count(mark) == count for line in bare) for mark, count in counts.items()}
    best = max(counts, key=lambda mark: (fitting[mark], counts[mark]))
    return "\t" if is_tabbed and fitting[best] < len(bare) else best


def _tab_quoting(lines: Iterable[str], name: str | None) -> str:
    """Return how the cells of tab-separated lines are quoted: "csv" only where all marks are, else they are text.

    A warning, if there is a `name`, tells where a cell in quotation marks may span lines.
    """
    lines, quoting = iter(lines), "none"
    header = next(lines, "")
    if header.startswith('"'):
        return "csv"
    for line in lines:
        if '"' in line:
            quoting = "csv"
            if not _TAB_ROW.fullmatch(line) or re.sub(_QUOTED, "", line).count("\t") != header.count("\t"):
                if name is not None and line.count('"') % 2:
                    warn(
                        f"{name}: quotation marks are read as text, such as that in {line!r:.60}. If they are around "
                        "cells: --quoting csv"
                    )
                return "none"
    return quoting
