"""Parts in a terminal: no colour where NO_COLOR is set, no styles where the output is not a terminal.

Signs are written as well as coloured, and bars are of # where blocks cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pellucid.errors import check_integer
from pellucid.explain.views.parts import (
    STRONG,
    WEAK,
    AnyPart,
    Bars,
    Fold,
    Heading,
    Lead,
    MarkedTexts,
    Note,
    Piece,
    TablePart,
    cut,
    shorten,
    visible,
)

_FOR, _AGAINST = "color(32)", "color(166)"  # a blue and an orange that read on black and on white
_BAR = 12  # characters
_INDENT = 2  # of parts below a line that opens them
MIN_BAR_WIDTH = 64
"""Characters; a narrower terminal gets no bars."""
MIN_TEXT_WIDTH, MAX_WORD_WIDTH = 12, 16
"""Characters that a column of text has at least, and to which a word in it may widen it."""
MIN_NAME_WIDTH = 20
"""Characters that are left of a name at least, which is cut rather than wrapped."""
COLUMN_GAP, MIN_COLUMN_GAP = 3, 2
"""Characters between two columns, and where a table would not fit otherwise."""
_LONGEST_TEXT = 1_500  # characters of a text whose words are marked
_LONGEST_CELL = 160  # characters of a text or name in a table


class Lines:
    """Parts as something that rich prints."""

    def __init__(self, parts: Iterable[AnyPart]) -> None:
        """Keep the parts."""
        self.parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield what rich prints for each part."""
        for part in self.parts:
            yield from _drawn(part, options)


def plain(parts: Iterable[AnyPart], *, width: int) -> str:
    """Return the parts as plain text, `width` characters wide."""
    check_integer("width", width)
    console = Console(  # in a notebook it would show an empty cell beside what it returns
        file=StringIO(), width=width, color_system=None, force_terminal=False, force_jupyter=False, legacy_windows=False
    )
    with console.capture() as captured:
        console.print(Lines(parts))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _drawn(part: AnyPart, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Yield what rich prints for a part."""
    if not isinstance(part, (Heading, Lead, Note)):
        yield ""
    if isinstance(part, Heading):
        line = Text(f"{visible(part.title)}  ").append(visible(part.value), style="bold")
        yield line.append(f"   {visible(part.after)}" if part.after else "", style="not bold dim")
    elif isinstance(part, Lead):
        yield Text(visible(part.text))
    elif isinstance(part, Note):
        yield Text(visible(part.text), style=f"bold {_AGAINST}" if part.is_warning else "dim")
    elif isinstance(part, MarkedTexts):
        yield _texts(part)
    elif isinstance(part, Fold):
        line = Text(f"{visible(part.lead)}  " if part.lead else "", style="dim")
        yield line.append(visible(part.summary), style="not dim bold")
        for inner in part.parts:
            for shown in _drawn(inner, options.update(width=max(options.max_width - _INDENT, 1))):
                yield Padding(shown, (0, 0, 0, _INDENT)) if shown else ""
    elif isinstance(part, (Bars, TablePart)):
        table = part.table() if isinstance(part, Bars) else part
        if table.title:
            yield Text(visible(table.title), style="bold")
        yield _table(table, options)


def _texts(part: MarkedTexts) -> Table:
    """Return the texts with their words marked, and below each its notes."""
    grid = Table.grid("", "", padding=(0, 2, 0, 0))
    grid.columns[1].overflow = "fold"
    for number, text in enumerate(part.texts):
        if number:
            grid.add_row()
        line = Text()
        for piece in cut(text.pieces, _LONGEST_TEXT):
            line.append(visible(piece.text), style=_style(piece))
        grid.add_row(Text(visible(text.label), style="dim"), line)
        if text.note:
            grid.add_row("", Text(visible(text.note), style="dim"))
    return grid


def _style(piece: Piece) -> str:
    """Return the style of a piece: colour for the sign, weight for the strength, none for a word with little effect."""
    if piece.kind in ("unknown", "more"):
        return "dim italic" if piece.kind == "unknown" else "dim"
    if piece.kind == "plain" or abs(piece.strength) < WEAK:
        return ""
    colour = _FOR if piece.strength > 0 else _AGAINST
    return f"{colour} underline" + (" bold" if abs(piece.strength) >= STRONG else "")


def _table(table: TablePart, options: ConsoleOptions) -> RenderableType:
    """Return a table that fits: headers on several lines, less space, names cut, no code or bars, or else stacked."""
    columns = [_TableColumn(table, number, options) for number in range(len(table.columns))]
    shown = [n for n, c in enumerate(columns) if c.kind != "bar" or options.max_width >= MIN_BAR_WIDTH]
    without_code = [n for n in shown if columns[n].kind != "code"]
    without_bars = [n for n in without_code if columns[n].kind != "bar"]
    layouts = [(False, COLUMN_GAP), (True, COLUMN_GAP), (True, MIN_COLUMN_GAP)]
    names, texts = ("name",), ("name", "text", "phrases")
    stages: list[tuple[list[int], tuple[str, ...]]] = [(shown, ()), (without_code, ())]
    stages += [(without_code, names), (without_bars, names), (without_code, texts), (without_bars, texts)]
    for numbers, cut_kinds in stages:
        selected = [columns[number] for number in numbers]
        for is_wrapped, gap in layouts:
            available = options.max_width - gap * (len(selected) - 1)
            widths = _fitting_widths([c.widths(cut_kinds, is_wrapped=is_wrapped) for c in selected], available)
            if widths:
                return _grid(table, selected, widths, gap)
    return _stacked(table, [column for column in columns if column.kind != "bar"])


class _TableColumn:
    """A column of a table as rich draws it: its title, its cells, and how wide it must be."""

    def __init__(self, table: TablePart, number: int, options: ConsoleOptions) -> None:
        self.kind, self.title = table.columns[number].kind, visible(table.columns[number].title)
        lines = (*table.rows, *table.sums)
        self.cells = [_cell(row[number], self.kind, options) for row in lines]
        self.foot = Text(visible("".join(table.foot[number] or "")) if table.foot else "", style="bold")
        contents = [*self.cells, self.foot]
        self.is_rigid = self.kind in ("number", "bar")  # its cells stay whole on one line
        self.is_name = self.kind == "name"  # its cells stay on one line, cut where they are longer
        self.content_width = max((cell.cell_len for cell in contents), default=0)
        words = (word for cell in contents for word in cell.plain.split())
        longest_word = min(max(map(cell_len, words), default=0), MAX_WORD_WIDTH)
        self.title_word_width = max(map(cell_len, self.title.split()), default=0)
        if self.is_rigid:
            self.min_width = self.content_width
        elif self.is_name:
            self.min_width = min(self.content_width, MIN_NAME_WIDTH)
        else:
            self.min_width = max(min(self.content_width, MIN_TEXT_WIDTH), longest_word)

    def widths(self, cut_kinds: tuple[str, ...], *, is_wrapped: bool) -> tuple[int, int]:
        """Return the least and the natural width, where cells of some kinds are cut, and titles wrapped at blanks."""
        title = self.title_word_width if is_wrapped or not self.is_rigid else cell_len(self.title)
        least = self.min_width if self.kind in cut_kinds else self.content_width
        natural = self.content_width if self.is_rigid else max(self.content_width, cell_len(self.title))
        return max(least, title), max(natural, title)


def _fitting_widths(ranges: list[tuple[int, int]], available: int) -> list[int]:
    """Return widths of which the sum is `available` at most, the widest ones cut first; none where that cannot be.

    Args:
        ranges: the least and the natural width of each column.
        available: the sum.
    """
    least, widths = map(list, zip(*ranges, strict=True))
    if sum(least) > available:
        return []
    while sum(widths) > available:
        widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _grid(table: TablePart, columns: list[_TableColumn], widths: list[int], gap: int) -> Table:
    headed = any(column.title for column in columns)
    padding = (0, gap - 2, 0, 1)  # rich draws one more character between two columns
    drawn = Table(
        box=box.SIMPLE,
        pad_edge=False,
        show_edge=False,
        padding=padding,
        show_header=headed,
        show_footer=bool(table.foot),
    )
    for column, width in zip(columns, widths, strict=True):
        drawn.add_column(
            Text(column.title), column.foot, justify="right" if column.kind == "number" else "left", width=width,
            overflow="ellipsis" if column.is_name else "fold",
        )  # fmt: skip
        for cell in column.cells if column.is_name else ():
            cell.no_wrap = True
    for number in range(len(table.rows) + len(table.sums)):
        drawn.add_row(*(column.cells[number] for column in columns), style="dim" if number >= len(table.rows) else "")
    return drawn


def _stacked(table: TablePart, columns: list[_TableColumn]) -> Table:
    """Return a table whose rows are blocks of lines, a title and a cell each."""
    grid = Table.grid("", "", padding=(0, 2, 0, 0))
    grid.columns[0].overflow = grid.columns[1].overflow = "fold"
    blocks = [[column.cells[number] for column in columns] for number in range(len(table.rows) + len(table.sums))]
    for number, cells in enumerate([*blocks, *([[column.foot for column in columns]] if table.foot else [])]):
        if number:
            grid.add_row()
        for column, cell in zip(columns, cells, strict=True):
            if cell.plain:
                grid.add_row(Text(column.title, style="dim"), cell)
    return grid


def _cell(value: Any, kind: str, options: ConsoleOptions) -> Text:
    if kind == "bar":
        return _bar(value or 0.0, blocks=not options.ascii_only)
    if kind == "phrases":
        value = "".join(value)
    written = visible(value)
    return Text(written if kind == "code" else shorten(written, _LONGEST_CELL), style="dim" if kind == "code" else "")


def _bar(part: float, *, blocks: bool) -> Text:
    """Return a bar as long as `part` is large, in the colour of its sign."""
    n_blocks, eighths = divmod(round(min(abs(part), 1.0) * _BAR * 8), 8)
    line = "\u2588" * n_blocks + ("", *"\u258f\u258e\u258d\u258c\u258b\u258a\u2589")[eighths]
    return Text(line if blocks else "#" * (n_blocks + (eighths >= 4)), style=_FOR if part > 0 else _AGAINST)
