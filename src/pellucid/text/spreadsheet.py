"""The first sheet of an Excel workbook (.xlsx), a row at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import datetime, time
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, missing_extra, warn
from pellucid.text.lines import check_file, describe_error


def sheet_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """Yield number and values of each row of the first sheet that is not empty.

    Raises:
        CorpusError: the file is absent, or no workbook.
        MissingExtraError: openpyxl is not installed.
    """
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise missing_extra("openpyxl", "xlsx") from error
    check_file(path)
    number = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions
            book = load_workbook(path, read_only=True, data_only=True, keep_links=False)
    except Exception as error:  # of zipfile, the XML parser and openpyxl
        raise CorpusError(f"{path} is damaged or no .xlsx file: {describe_error(error)}") from error
    try:
        sheets = book.worksheets
        if len(sheets) > 1:
            warn(f"{path.name}: the first of {len(sheets)} sheets is read, {sheets[0].title!r:.60}")
        if sheets:
            sheets[0].reset_dimensions()  # what the file says of its size may be wrong
        rows = sheets[0].iter_rows() if sheets else iter(())
        while True:
            try:
                cells = next(rows, None)
            except Exception as error:
                raise CorpusError(f"{path}, row {number + 1} is damaged: {describe_error(error)}") from error
            if cells is None:
                return
            number += 1
            values = list(map(_value, cells))
            if any(value is not None for value in values):
                yield number, values
    finally:
        book.close()


def _value(cell: Any) -> Any:
    """Return what a cell holds; a moment whose format shows no hours is a day."""
    value = cell.value
    if isinstance(value, datetime) and value.time() == time.min and "h" not in cell.number_format.lower():
        return value.date()
    return value
