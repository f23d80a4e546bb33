"""The first sheet of an Excel workbook (.xlsx), a row at a time."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from itertools import count
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, importing, warn
from pellucid.text.delimited import from_cell
from pellucid.text.lines import check_file, translate_errors

WORKBOOK_CREATOR = "pellucid"
"""Whom a workbook of ours names as its creator: its cells have an apostrophe before what looks like a formula."""

LAST_ROW = 1_048_576
"""Of a sheet, by the file format."""

_HEADER_ROWS = 1_000  # among which one must hold the names of the columns
_MIN_BOMB_BYTES, _MAX_RATIO = 1 << 22, 100  # a larger part of the file unpacks to at most so many times its bytes
_MAX_BYTES = 1 << 30  # of all parts, unpacked


class Sheet:
    """The first sheet: the names in its first row that is not empty, and the rows below it."""

    def __init__(self, path: Path, *, is_quiet: bool = False) -> None:
        """Open the workbook.

        Raises:
            CorpusError: the file is absent, no workbook, or would take more memory than its size allows.
            MissingExtraError: openpyxl is not installed.
        """
        check_file(path)
        self.path, self.names, self._header = path, list[str](), 0
        with translate_errors(f"{path} is damaged or no .xlsx file"):
            _check_parts(path)
            self._sheet, n_sheets = _first_sheet(path, data_only=True)
            self._is_ours = bool(self._sheet) and self._sheet.parent.properties.creator == WORKBOOK_CREATOR
            for row in self._sheet.iter_rows(max_row=_HEADER_ROWS) if self._sheet else ():
                self._header += 1
                self.names = ["" if cell.value is None else str(self._value(cell)).strip() for cell in row]
                if any(self.names):
                    break
        while self.names and not self.names[-1]:
            self.names.pop()
        if not self.names:
            raise CorpusError(f"{path} is empty; the first row of a table names its columns")
        if n_sheets > 1 and not is_quiet:
            warn(f"{path.name}: the first of {n_sheets} sheets is read, {self._sheet.title!r:.60}")

    def rows(self, columns: Sequence[int]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number and the values in some columns of each row that is not empty.

        Raises:
            CorpusError: the file is damaged, or a cell holds a formula without a value.
        """
        bounds = {"min_row": self._header + 1, "max_row": LAST_ROW + 1, "max_col": max(1, len(self.names))}
        with translate_errors(f"{self.path} is damaged"):
            formulas = _first_sheet(self.path, data_only=False)[0].iter_rows(**bounds)
            rows: Iterator[Any] = zip(self._sheet.iter_rows(**bounds), formulas)
        for number in count(self._header + 1):
            with translate_errors(f"{self.path} is damaged in row {number}"):
                cells_and_formulas = next(rows, None)
            if cells_and_formulas is None:
                return
            row, formula_row = cells_and_formulas
            if number > LAST_ROW:
                raise CorpusError(f"{self.path} is damaged: it has a row beyond {LAST_ROW:,}, the last of a sheet")
            for column in columns:
                if row[column].value is None and formula_row[column].data_type == "f":
                    raise CorpusError(
                        f"{self.path}, cell {formula_row[column].coordinate} holds a formula without a value; open the "
                        "file in a spreadsheet program and save it, which computes the values"
                    )
            if any(cell.value is not None for cell in row):
                yield number, [self._value(row[column]) for column in columns]

    def _value(self, cell: Any) -> Any:
        """Return what a cell holds, None for an error; a moment whose format shows no hours is a day."""
        value = cell.value
        if value is None or cell.data_type == "e":
            return None
        if isinstance(value, datetime) and value.time() == time.min and "h" not in cell.number_format.lower():
            return value.date()
        return from_cell(value) if self._is_ours and isinstance(value, str) else value


def _first_sheet(path: Path, *, data_only: bool) -> tuple[Any, int]:
    with importing("xlsx", "openpyxl"):
        from openpyxl import load_workbook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions
        book = load_workbook(path, read_only=True, data_only=data_only, keep_links=False)
    for sheet in book.worksheets[:1]:
        sheet.reset_dimensions()  # what the file says of its size may be wrong
        return sheet, len(book.worksheets)
    return None, 0


def _check_parts(path: Path) -> None:
    """Check that no part of a workbook takes more memory than its size allows."""
    n_bytes = 0
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            n_bytes += part.file_size
            if part.file_size > max(_MIN_BOMB_BYTES, _MAX_RATIO * part.compress_size) or n_bytes > _MAX_BYTES:
                raise CorpusError(f"{path}: its part {part.filename:.80} unpacks to {part.file_size:,} bytes; too many")
