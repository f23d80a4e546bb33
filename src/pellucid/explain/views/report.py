"""The base of cards, audits and comparisons: a result is data, and one set of views shows them all.

A result is a frozen dataclass that derives from `Report` and yields its `_parts`: headings, notes, tables. Every medium
shows the same parts; the dict form holds the fields.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

from pellucid.errors import check_integer, importing
from pellucid.explain.rows import LazyRows
from pellucid.explain.views.parts import AnyPart, shorten, visible
from pellucid.text.unicode import well_formed

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console, ConsoleOptions, RenderResult


class Shown:
    """A result that yields parts; `print`, rich, HTML and a notebook cell follow from them."""

    def _parts(self) -> Iterator[AnyPart]:
        """Yield what every medium shows."""
        raise NotImplementedError

    def to_html(self, *, fragment: bool = False) -> str:
        """Return a self-contained HTML page without scripts, for light and dark.

        Args:
            fragment: leave out the page around it, to be placed inside another page.
        """
        from pellucid.explain.views.page import page

        return page(self._parts(), fragment=fragment)

    def to_text(self, *, width: int = 100) -> str:
        """Return what `print` shows, `width` characters wide."""
        from pellucid.explain.views.terminal import plain

        return plain(self._parts(), width=width)

    def __str__(self) -> str:
        """Return the view for terminals as plain text."""
        return self.to_text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the same in colour, for `rich.print`."""
        from pellucid.explain.views.terminal import Lines

        yield Lines(self._parts())

    def _repr_html_(self) -> str:
        return self.to_html(fragment=True)


_MAX_INDENT = 100  # characters
_LONGEST_LINE = 160  # characters of a repr
VERSION = 1
"""Version of the dict and JSON forms; `docs/schema.json` describes them."""


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """A result with views: `print`, `to_frame`, `to_dict`, `to_json`, `to_html`, and the last value of a cell.

    A subclass declares its data as fields (not those with `compare=False`), yields `_parts`, the heading first.
    """

    kind: ClassVar[str] = "report"
    table: ClassVar[str] = ""
    """The field whose items are the rows of `to_frame`; "" where the report is one row."""

    def _records(self) -> Sequence[Any]:
        """Return the rows of the table form, named tuples or dataclasses of one type."""
        return getattr(self, self.table) if self.table else [self]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings, numbers and None; `docs/schema.json` describes them by class."""
        content: dict[str, Any] = json_value(self)
        return content

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text; None as `indent` gives one line."""
        return json_text(self.to_dict(), indent)

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame with a column a field.

        A record inside a row is written out as columns, with its name in front where theirs occur twice. Of a list of
        records the cell holds a tuple of their names or texts; `to_dict` has them whole.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        records = self._records()
        (kind,) = get_args(get_type_hints(type(self)._records)["return"])
        if kind is Any:
            kind = type(records[0]) if records else get_args(get_type_hints(type(self))[self.table])[0]
        columns = columns_of(kind)
        rows = [[attrgetter(path)(record) for path in columns.values()] for record in records]
        for row in rows:
            for n, value in enumerate(row):
                if isinstance(value, tuple) and value and (names := data_fields(type(value[0]))):  # type: ignore[arg-type]  # a class is hashable
                    row[n] = tuple(getattr(item, names[0]) for item in value)
        return frame(rows, list(columns))

    def __repr__(self) -> str:
        """Return one short line: what the heading says."""
        heading: Any = next(self._parts())
        summary = ", ".join(filter(None, (heading.value, heading.after)))
        return visible(f"<{type(self).__name__}: {shorten(summary, _LONGEST_LINE)}>")


def frame(rows: Iterable[Any], columns: Sequence[str]) -> DataFrame:
    """Return tuples as a pandas DataFrame."""
    with importing("frames", "pandas"):
        import pandas as pd
    return pd.DataFrame(list(rows), columns=list(columns))


@cache
def data_fields(kind: Any) -> list[str] | None:
    """Return the names of a record's fields, None for another type."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind) if field.compare]
    return list(getattr(kind, "_fields", ())) or None


def columns_of(kind: type) -> dict[str, str]:
    """Return the columns of a type of records, and for each the dotted name of the attribute that it shows."""
    hints, names = get_type_hints(kind), data_fields(kind) or []
    inner = {name: columns_of(hints[name]) for name in names if data_fields(hints[name])}
    counts = Counter(
        [name for name in names if name not in inner] + [name for columns in inner.values() for name in columns]
    )
    paths: dict[str, str] = {}
    for name in names:
        prefix = f"{name}_" if any(counts[column] > 1 for column in inner.get(name, ())) else ""
        inner_paths = (
            {prefix + column: f"{name}.{path}" for column, path in inner[name].items()} if name in inner else {}
        )
        paths |= inner_paths or {name: name}
    return paths


def json_value(value: Any) -> Any:
    """Turn records into dicts, tuples into lists, and make strings writable as UTF-8; a report gets its kind."""
    if (names := data_fields(type(value))) is not None:  # type: ignore[arg-type]
        head = {"version": VERSION, "kind": value.kind} if isinstance(value, Report) else {}
        return head | {name: json_value(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list, LazyRows)):
        return [json_value(item) for item in value]
    return well_formed(value) if isinstance(value, str) else value


def json_text(content: object, indent: int | None) -> str:
    """Return plain values as JSON text, NaN and infinity as null; None as `indent` gives one line."""
    if not isinstance(indent, str):  # which the json module also takes
        check_integer("indent", indent, 0, _MAX_INDENT, optional=True)
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent, default=str)
    except ValueError:  # a score that is not defined, such as a correlation of equal numbers
        content = json.loads(json.dumps(content, default=str), parse_constant=lambda _: None)
        return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)
