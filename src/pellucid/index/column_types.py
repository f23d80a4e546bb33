"""What the columns of a table of text hold: numbers, dates or booleans where all cells do, otherwise strings."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from pellucid.errors import CorpusError, InputError, shown
from pellucid.index.metadata import number_in, timestamp
from pellucid.index.values import MAX_INTEGER

MISSING = frozenset(
    "#n/a|#n/a n/a|#na|-1.#ind|-1.#qnan|-nan|1.#ind|1.#qnan|<na>|n/a|na|null|nan|nat|none|.|-|--|?|"
    "#div/0!|#name?|#null!|#num!|#ref!|#value!".split("|")
) | {""}  # fmt: skip
"""Cells of numbers, dates and booleans that hold none, as pandas, R, SAS and spreadsheets write it; in lower case."""

MISSING_STRINGS = frozenset(["", "\\N", "NaN", "NaT", "<NA>", "#N/A"])
"""Cells of strings that hold none; NA, None and null may be words."""

_MAX_CELL_CHARS = 40  # of a number, date or boolean
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:[.]\d+)?(?:e[-+]\d+)?|-?[.]\d+", re.ASCII | re.IGNORECASE)
_COMMA_NUMBER = re.compile(
    r"-?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:[.]\d{3})+)(?:,\d+)?(?:e[-+]\d+)?", re.ASCII | re.IGNORECASE
)
_OTHER_DATE = re.compile(r"(\d{1,4})([./-])(\d{1,2})\2(\d{2,4})(?: (\d{1,2}:\d{2})(:\d{2})?)?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "t": True, "y": True, "1": True,
             "false": False, "no": False, "f": False, "n": False, "0": False}  # fmt: skip
_TOKENS = {"YYYY": "%Y", "YY": "%y", "MM": "%m", "DD": "%d", "HH": "%H", "mm": "%M", "SS": "%S", "ss": "%S"}


class TypeSource(Enum):
    """Why a column has its type."""

    CALLER = "as the given type says"
    INDEX = "as elsewhere in the index"
    ROWS = "as in the rows before"


class ColumnType(NamedTuple):
    """The type of a column, and why it has it."""

    kind: str
    source: TypeSource


class CellFormat:
    """How numbers and dates are written in a table."""

    def __init__(self, decimal: str = ".", date_format: str | None = None) -> None:
        """Take the decimal mark, and a format of dates beside ISO's, see `CorpusFile`.

        Raises:
            InputError: the format names no date.
        """
        self.decimal = decimal
        self._date_format = None if date_format is None else strptime_format(date_format)
        self.type_of = lru_cache(4096)(self._type_of)
        """Return what a cell looks like: a type, "missing", or one that a note names: "comma number", "other date"."""

    def _type_of(self, cell: str) -> str:
        text = cell.strip()
        if text.lower() in MISSING or text == "\\N":
            return "missing"
        if text.lower() in ("true", "false"):
            return "boolean"
        plain = _PLAIN_NUMBER if self.decimal == "." else _COMMA_NUMBER
        if plain.fullmatch(text) and self.number(text) is not None:
            return "number"
        if self.date(text) is not None:
            return "date"
        if self.decimal == "." and "," in text and _COMMA_NUMBER.fullmatch(text):
            return "comma number"
        return "other date" if _OTHER_DATE.fullmatch(text) else "string"

    def number(self, text: str) -> int | float | None:
        """Return the number that a cell says, if metadata can hold it."""
        if self.decimal == ",":
            text = text.replace(".", "").replace(",", ".")
        value = number_in(text)
        if isinstance(value, int):
            return value if abs(value) <= MAX_INTEGER else None
        return value if value is not None and math.isfinite(value) else None

    def date(self, text: str) -> str | None:
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

    def convert(self, value: Any, name: str, column_type: ColumnType, where: Any) -> Any:
        """Return a value of column `name` as one of a type, None where it is missing.

        Args:
            value: of the cell, or of another kind of file.
            name: of the column.
            column_type: its type.
            where: of the row, for messages: a string, or what is counted and its number.

        Raises:
            CorpusError: it is none.
        """
        kind = column_type.kind
        if isinstance(value, list):
            return [self.convert(item, name, column_type, where) for item in value]
        if not isinstance(value, str):
            actual = "boolean" if isinstance(value, bool) else "number"
            if value is None or actual == kind:
                return value
            if kind == "string":
                return json.dumps(value)
        elif kind == "string":
            return value
        elif (text := value.strip()).lower() in MISSING or text == "\\N":
            return None
        elif kind == "date" and (date := self.date(text)) is not None:
            return date
        elif kind == "number" and (number := self.number(text)) is not None:
            return number
        elif kind == "boolean" and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        where = " ".join(map(str, where)) if isinstance(where, tuple) else where
        raise CorpusError(
            f"{where}: {name!r:.40} is {value!r:.40}, and not a {kind}, {column_type.source.value}. Fix it, or say "
            f"what the column holds: --type {name:.40}=string"
        )


class ColumnScan:
    """What the cells of a column look like."""

    def __init__(self, cells: CellFormat) -> None:
        """Take how cells are written."""
        self._cells = cells
        self._counts: Counter[str] = Counter()
        self._first: dict[str, tuple[int, str]] = {}  # line and cell of the first of each type
        self._formats: set[str] | None = None  # of dates that are in no form of ISO

    def count(self, line: int, cell: str) -> None:
        """Take a cell that is not empty."""
        kind = self._cells.type_of(cell) if len(cell) <= _MAX_CELL_CHARS else "string"
        if kind == "other date":
            formats = _formats_of(cell.strip())
            self._formats = formats if self._formats is None else self._formats & formats
        self._counts[kind] += kind != "missing"
        self._first.setdefault(kind, (line, cell[: _MAX_CELL_CHARS + 1]))

    def kind(self) -> str:
        """Return the type of all cells."""
        kinds = +self._counts
        kind = next(iter(kinds)) if len(kinds) == 1 else "string"
        return kind if kind in ("number", "date", "boolean") else "string"

    def note(self) -> str:
        """Say what a column of strings nearly holds: "" for nothing else."""
        kinds = +self._counts
        if kinds and kinds.keys() <= {"number", "comma number"} and kinds["comma number"]:
            return f", such as {self._first['comma number'][1]!r:.40}. If they are numbers: --decimal ,"
        if kinds.keys() == {"other date"} and self._formats:
            formats = " or ".join(sorted(self._formats))
            return f", such as {self._first['other date'][1]!r:.40}. If they are dates: --date-format {formats}"
        if len(kinds) < 2:
            return ""
        (kind, count), total = kinds.most_common(1)[0], kinds.total()
        if kind not in ("number", "date", "boolean") or 2 * count < total:
            return ""
        line, cell = min(self._first[other_kind] for other_kind in kinds if other_kind != kind)
        return f": {count:,} of {total:,} cells are {kind}s, and {cell!r:.40} in line {line:,} is not"


def scan_columns(
    rows: Iterable[tuple[int, Mapping[str, Any]]], column_types: Mapping[str, ColumnType], cells: CellFormat, path: Any
) -> tuple[dict[str, ColumnScan], set[str]]:
    """Look at the cells of some rows, by line and column.

    Returns:
        what the columns hold that are not in `column_types`, and the names of all that have a cell; the cells of those
        in `column_types` are checked.
    """
    scans: dict[str, ColumnScan] = {}
    seen: set[str] = set()
    for line, row in rows:
        for name, cell in row.items():
            if not cell:
                continue
            if name in column_types:
                seen.add(name)
                cells.convert(cell, name, column_types[name], f"{path}, line {line}")
            elif name in scans:
                scans[name].count(line, cell)
            else:
                seen.add(name)
                scans[name] = ColumnScan(cells)
                scans[name].count(line, cell)
    return scans, seen


def strptime_format(date_format: str) -> str:
    """Return a format as `datetime.strptime` reads it; "DD.MM.YYYY" is understood, too.

    >>> strptime_format("DD.MM.YYYY HH:mm")
    '%d.%m.%Y %H:%M'
    """
    pattern = date_format
    if "%" not in pattern:
        pattern = re.sub("|".join(_TOKENS), lambda match: _TOKENS[match[0]], pattern)
    try:
        moment = datetime(2021, 12, 31, 22, 58, 59)
        if datetime.strptime(moment.strftime(pattern), pattern).date() == moment.date():
            return pattern
    except (ValueError, re.error):
        pass
    raise InputError(f"date_format is {shown(date_format)}; it must have day, month and year, such as %d.%m.%Y")


def _formats_of(text: str) -> set[str]:
    """Return the formats that a date in no form of ISO may have."""
    first, mark, second, third, minute, seconds = _OTHER_DATE.fullmatch(text).groups()  # type: ignore[union-attr]
    time = (" %H:%M" + ":%S" * bool(seconds)) if minute else ""
    if len(first) > 2:
        orders = ["%Y{0}%m{0}%d"]
    else:
        year = "%Y" if len(third) == 4 else "%y"
        orders = [f"%d{{0}}%m{{0}}{year}"] if int(second) <= 12 else []
        orders += [f"%m{{0}}%d{{0}}{year}"] if int(first) <= 12 else []
    if mark == "." and len(orders) == 2:
        orders.pop()  # with points the day comes before the month
    return {order.format(mark) + time for order in orders}
