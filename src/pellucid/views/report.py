"""What cards, audits and comparisons have in common: a result is data, and its views are written once for all.

A result is a frozen dataclass that derives from `Report` and lists its `_parts`: headings, notes, tables. The terminal
and the HTML view show the same parts; the dict form holds the fields. A new kind of result therefore needs no view of
its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from io import StringIO
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_args, get_type_hints

from pellucid.errors import missing_extra
from pellucid.text import well_formed
from pellucid.views.render import shorten, visible

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as RichTable
    from rich.text import Text

VERSION = 1
"""Version of the dict and JSON forms; `docs/schema.json` describes them."""

_FOR, _AGAINST = "color(32)", "color(166)"  # as in the view of an explanation
_BAR = 12  # characters
_NARROW = 64  # characters; a narrower terminal gets no bars
_LONGEST_CELL = 160  # characters of a text or name in a terminal
_LONGEST_WORD = 40  # characters of a word among others
MARKS = {"strong": "*", "faint": "~", "": ""}  # behind a word, where colour alone would not do
_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


class Heading(NamedTuple):
    """The first line: what it is, the number or name it is about, and of which model."""

    title: str
    value: str
    after: str = ""


class Note(NamedTuple):
    """A sentence; a warning stands out."""

    text: str
    is_warning: bool = False


class Word(NamedTuple):
    """A word in a cell of words; mark "strong", "faint" or ""."""

    text: str
    mark: str = ""


class Column(NamedTuple):
    """A column of a table; kind "number", "text", "bar" (cells from -1 to 1), "code" or "words" (tuples of Word)."""

    title: str
    kind: str = "text"


class Table(NamedTuple):
    """A table of strings; the cells of bars are numbers, None for none, those of words are tuples of Word."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    foot: tuple[Any, ...] = ()


class Histogram(NamedTuple):
    """How often a value falls between two `edges`; beyond `fires` in size it is drawn strongly."""

    title: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    fires: float


class Fold(NamedTuple):
    """Parts below a line that opens and closes them where the view can."""

    summary: str
    parts: tuple[Any, ...]
    lead: str = ""
    is_open: bool = False


Part = Heading | Note | Table | Histogram | Fold


@dataclass(frozen=True, repr=False)
class Report:
    """A result with views: `print`, `to_frame`, `to_dict`, `to_json`, `to_html`, and the last value of a cell.

    A subclass declares its data as fields and yields `_parts`, the heading first; everything else follows from these.
    A field with `compare=False` is no part of the data. A report may have `plot(dark=False)`, which returns a
    matplotlib Figure and raises MissingExtraError where matplotlib is not installed.
    """

    kind: ClassVar[str] = "report"
    table: ClassVar[str] = ""
    """The field whose items are the rows of `to_frame`; "" where the report is one row."""

    def _parts(self) -> Iterator[Part]:
        """Yield what the views show."""
        raise NotImplementedError

    def _records(self) -> Sequence[Any]:
        """Return the rows of the table form, named tuples or dataclasses of one type."""
        return getattr(self, self.table) if self.table else [self]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings, numbers and None; `docs/schema.json` describes them by class."""
        content: dict[str, Any] = plain_value(self)
        return content

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text; None as `indent` gives one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame with a column a field.

        A record inside a row is written out as columns, with its name in front where theirs occur twice. Of a list of
        records the cell holds a tuple of their names or texts; `to_dict` has them whole.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        records = self._records()
        kind = type(records[0]) if records else get_args(get_type_hints(type(self))[self.table])[0]
        columns = columns_of(kind)
        rows = ([_cell_value(attrgetter(path)(record)) for path in columns.values()] for record in records)
        return frame(rows, list(columns))

    def to_html(self, *, fragment: bool = False) -> str:
        """Return a self-contained HTML page without scripts, for light and dark.

        Args:
            fragment: leave out the page around it, to be placed inside another page.
        """
        from pellucid.views.report_page import report_page

        return report_page(list(self._parts()), fragment=fragment)

    def to_markdown(self) -> str:
        """Return the parts as Markdown, with tables in the form of GitHub; bars are left out."""
        from pellucid.views.report_markdown import report_markdown

        return report_markdown(list(self._parts()))

    def to_text(self, *, width: int = 100) -> str:
        """Return what `print` shows, `width` characters wide."""
        from rich.console import Console

        console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __repr__(self) -> str:
        """Return one short line: what the heading says."""
        heading: Any = next(self._parts())
        said = ", ".join(filter(None, (heading.value, heading.after)))
        return visible(f"<{type(self).__name__}: {shorten(said, _LONGEST_CELL)}>")

    def __str__(self) -> str:
        """Return the view for terminals as plain text."""
        return self.to_text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the same in colour, for `rich.print`."""
        for part in self._parts():
            yield from _terminal(part, options)

    def _repr_html_(self) -> str:
        return self.to_html(fragment=True)


def frame(rows: Iterable[Any], columns: Sequence[str]) -> DataFrame:
    """Return tuples as a pandas DataFrame.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise missing_extra("pandas", "plot") from error
    return pd.DataFrame(list(rows), columns=list(columns))


def data_fields(kind: type) -> list[str] | None:
    """Return the names of a record's fields, None for a type that is no record."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind) if field.compare]
    return list(getattr(kind, "_fields", ())) or None


def columns_of(kind: type) -> dict[str, str]:
    """Return the columns of a type of records, and for each the dotted name of the attribute that it shows."""
    hints, names = get_type_hints(kind), data_fields(kind) or []
    inner = {name: columns_of(hints[name]) for name in names if data_fields(hints[name])}
    counts = Counter([name for name in names if name not in inner] + [name for some in inner.values() for name in some])
    found: dict[str, str] = {}
    for name in names:
        prefix = f"{name}_" if any(counts[column] > 1 for column in inner.get(name, ())) else ""
        some = {prefix + column: f"{name}.{path}" for column, path in inner[name].items()} if name in inner else {}
        found |= some or {name: name}
    return found


def _cell_value(value: Any) -> Any:
    """Return what a cell shows: of a tuple of records their first fields."""
    if isinstance(value, tuple) and value and (names := data_fields(type(value[0]))):
        return tuple(getattr(item, names[0]) for item in value)
    return value


def plain_value(value: Any) -> Any:
    """Turn records into dicts, tuples into lists, and make strings writable as UTF-8; a report says what it is."""
    if (names := data_fields(type(value))) is not None:
        head = {"version": VERSION, "kind": value.kind} if isinstance(value, Report) else {}
        return head | {name: plain_value(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [plain_value(item) for item in value]
    return well_formed(value) if isinstance(value, str) else value


def bars(values: Sequence[float | None]) -> list[float | None]:
    """Return `values` over the largest size among them, as the cells of bars."""
    largest = max((abs(value) for value in values if value is not None), default=0.0) or 1.0
    return [None if value is None else value / largest for value in values]


def signed(value: float | None, places: int = 3) -> str:
    """Write a number with its sign; a dash where there is none, and no sign on 0."""
    if value is None:
        return "\u2013"
    written = f"{value:+.{places}f}"
    return written[1:] if float(written) == 0 else written


def percent(value: float) -> str:
    """Write a share; one too small to be seen is not written as 0."""
    return "< 0.1%" if 0 < value < 0.0005 else f"{value:.1%}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write "1 text", "2 texts"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def quoted(name: str) -> str:
    """Write a name as a Python string, as proposed edits do; a double quotation mark is the usual one."""
    return json.dumps(well_formed(name), ensure_ascii=False)


def _terminal(part: Part, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Yield what rich prints for a part."""
    from rich.padding import Padding
    from rich.text import Text

    if isinstance(part, Heading):
        line = Text(f"{visible(part.title)}  ").append(visible(part.value), style="bold")
        yield line.append(f"   {visible(part.after)}" if part.after else "", style="not bold dim")
    elif isinstance(part, Note):
        yield Text(visible(part.text), style=f"bold {_AGAINST}" if part.is_warning else "dim")
    elif isinstance(part, Histogram):
        yield ""
        yield _sparkline(part, blocks=not options.ascii_only)
    elif isinstance(part, Fold):
        yield ""
        line = Text(f"{visible(part.lead)}  " if part.lead else "", style="dim")
        yield line.append(visible(part.summary), style="not dim bold")
        for inner in part.parts:
            for shown in _terminal(inner, options):
                yield Padding(shown, (0, 0, 0, 2)) if shown else ""
    else:
        yield ""
        if part.title:
            yield Text(visible(part.title), style="bold")
        yield _rich_table(part, options)


def _rich_table(table: Table, options: ConsoleOptions) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = [n for n, c in enumerate(table.columns) if c.kind != "bar" or options.max_width >= _NARROW]
    headed = any(table.columns[n].title for n in shown)
    drawn = RichTable(box=box.SIMPLE, pad_edge=False, show_edge=False, show_header=headed, show_footer=bool(table.foot))
    for number in shown:
        column = table.columns[number]
        right = column.kind == "number"
        foot = Text(visible(str(table.foot[number] or "")), style="bold") if table.foot else ""
        drawn.add_column(
            Text(visible(column.title)), foot, justify="right" if right else "left", overflow="fold",
            no_wrap=column.kind in ("number", "bar"),
        )  # fmt: skip
    for row in table.rows:
        drawn.add_row(*(_cell(row[n], table.columns[n].kind, options) for n in shown))
    return drawn


def _cell(value: Any, kind: str, options: ConsoleOptions) -> Text:
    from rich.text import Text

    if kind == "bar":
        return _bar(value or 0.0, blocks=not options.ascii_only)
    if kind == "words":
        return _words(value)
    written = visible(value)
    return Text(written if kind == "code" else shorten(written, _LONGEST_CELL), style="dim" if kind == "code" else "")


def _words(words: Sequence[Word]) -> Text:
    """Return words in the colour of their marks, with the marks behind them."""
    from rich.text import Text

    line = Text()
    for number, word in enumerate(words):
        style = {"strong": f"bold {_FOR}", "faint": _FOR}.get(word.mark, "")
        shown = visible(shorten(word.text, _LONGEST_WORD))
        line.append("  " if number else "").append(shown + MARKS[word.mark], style=style)
    return line


def _bar(part: float, *, blocks: bool) -> Text:
    """Return a bar as long as `part` is large, in the colour of its sign."""
    from rich.text import Text

    whole, left = divmod(round(min(abs(part), 1.0) * _BAR * 8), 8)
    line = "\u2588" * whole + ("", *"\u258f\u258e\u258d\u258c\u258b\u258a\u2589")[left]
    return Text(line if blocks else "#" * (whole + (left >= 4)), style=_FOR if part > 0 else _AGAINST)


def _sparkline(histogram: Histogram, *, blocks: bool) -> Text:
    """Return the counts as a line of blocks, between the smallest and the largest value."""
    from rich.text import Text

    most = max(histogram.counts, default=0) or 1
    marks = _BLOCKS if blocks else " .:-=+*#"
    line = Text(f"{visible(histogram.title)}  ", style="bold").append(f"{histogram.edges[0]:.3f} ", style="not bold")
    for count, low, high in zip(histogram.counts, histogram.edges, histogram.edges[1:]):
        middle = (low + high) / 2
        colour = _FOR if middle > histogram.fires else _AGAINST if middle < -histogram.fires else "dim"
        line.append(marks[round(count / most * 7)] if count else " ", style=f"not bold {colour}")
    return line.append(f" {histogram.edges[-1]:.3f}", style="not bold")
