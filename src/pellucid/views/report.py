"""What cards, audits and comparisons have in common: a result is data, and its views are written once for all.

A result is a frozen dataclass that derives from `Report` and lists its `_parts`: headings, notes, tables. The terminal
and the HTML view show the same parts; the dict form holds the fields. A new kind of result therefore needs no view of
its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pellucid.errors import missing_extra
from pellucid.text import well_formed
from pellucid.views.shown import Shown

if TYPE_CHECKING:
    from pandas import DataFrame

VERSION = 1
"""Version of the dict and JSON forms; `docs/schema` has one file for each kind."""


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """A result with views: `print`, `to_frame`, `to_dict`, `to_json`, `to_html`, and the last value of a cell."""

    kind: ClassVar[str] = "report"

    def _records(self) -> Sequence[Any]:
        """Return the rows of the table form, named tuples of one type."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings, numbers and None; `docs/schema/KIND-v1.json` describes them."""
        content: dict[str, Any] = plain_value(self)
        return {"version": VERSION, "kind": self.kind} | content

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text; None as `indent` gives one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return frame(self._records(), self._columns())

    def _columns(self) -> Sequence[str]:
        """Return the columns of the table form, also where it has no rows."""
        records = self._records()
        return records[0]._fields if records else ()


def frame(rows: Sequence[Any], columns: Sequence[str]) -> DataFrame:
    """Return tuples as a pandas DataFrame.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise missing_extra("pandas", "plot") from error
    return pd.DataFrame(list(rows), columns=list(columns))


def plain_value(value: Any) -> Any:
    """Turn dataclasses and named tuples into dicts, tuples into lists, and make strings writable as UTF-8."""
    if is_dataclass(value):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain_value(item) for name, item in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [plain_value(item) for item in value]
    return well_formed(value) if isinstance(value, str) else value
