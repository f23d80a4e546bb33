"""The parts that results consist of, which any medium can draw; helpers to write numbers and names.

A result (`Explanation`, every `Report`) yields parts; `terminal.py`, `page.py` and `figure.py` draw
them, so that a new result needs no view of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pellucid.text.unicode import well_formed

STRONG, WEAK = 0.5, 0.05  # of the strongest word of a text; below the second a word is left unmarked

# One character for one, so that spans keep their meaning: what could move the cursor or reorder a line is made visible.
_VISIBLE = (
    {code: chr(0x2400 + code) for code in range(0x20)}
    | dict.fromkeys((*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x61C), 0xFFFD)
    | {ord("\n"): "\u23ce", ord("\r"): " ", ord("\t"): " ", 0x85: "\u23ce", 0x2028: "\u23ce", 0x2029: "\u23ce"}
)


class Heading(NamedTuple):
    """The first line: what it is, the number or name it is about, and of which model."""

    title: str
    value: str
    after: str = ""


class Note(NamedTuple):
    """A sentence; a warning stands out."""

    text: str
    is_warning: bool = False


class Lead(NamedTuple):
    """What the result says, in one or two sentences."""

    text: str


class Piece(NamedTuple):
    """A part of a text; kind "word" (with a strength from -1 to 1), "unknown", "plain" or "more" (of what is cut)."""

    text: str
    kind: str = "plain"
    strength: float = 0.0
    tooltip: str = ""


class MarkedText(NamedTuple):
    """A text whose words are marked; its pieces joined are the text itself."""

    label: str
    pieces: tuple[Piece, ...]
    note: str = ""


class MarkedTexts(NamedTuple):
    """Texts whose marks are on one scale."""

    texts: tuple[MarkedText, ...]


class Column(NamedTuple):
    """A column of a table.

    Its kind is "number", "text", "name" (text that a narrow medium may cut to one line), "bar" (from -1 to 1),
    "code" (which it may leave out), or
    "phrases": texts of a direction each, with what stands between two.
    """

    title: str
    kind: str = "text"


class TablePart(NamedTuple):
    """A table of strings; the cells of bars are numbers, None for none."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    foot: tuple[Any, ...] = ()
    sums: tuple[tuple[Any, ...], ...] = ()
    """Lines below the rows, such as the sum of those left out."""

    @classmethod
    def of(
        cls, title: str, columns: Iterable[Sequence[str]], rows: Iterable[Sequence[Any]], foot: tuple[Any, ...] = ()
    ) -> TablePart:
        """Return a table; a column is a title, or a title and its kind.

        Bars are scaled to the largest number of their column.
        """
        heads = tuple(Column(column) if isinstance(column, str) else Column(*column) for column in columns)
        cells = list(map(list, rows))
        for column in (index for index, head in enumerate(heads) if head.kind == "bar"):
            for row, length in zip(cells, bars([row[column] for row in cells]), strict=True):
                row[column] = length
        return cls(title, heads, tuple(map(tuple, cells)), foot)


class Bars(NamedTuple):
    """Named numbers, the largest first, that add up to `total` with `sums`; `names` is the title of their names.

    A name is a string, or for phrases a tuple of them with what stands between two of them.
    """

    names: str
    bars: tuple[tuple[str | tuple[str, ...], float], ...]
    sums: tuple[tuple[str, float], ...]
    total: float
    has_shares: bool = True

    def table(self) -> TablePart:
        """Return the numbers as a table, the total as its foot."""
        names = Column(self.names, "phrases")
        columns = (Column("contribution", "number"), Column("share", "number"), Column("", "bar"), names)
        lengths = bars([value for _, value in self.bars])
        rows = tuple(self._line(*bar, length) for bar, length in zip(self.bars, lengths, strict=True))
        sums = tuple(self._line(*line) for line in self.sums)
        return TablePart("", columns, rows, self._line("score", self.total), sums)

    def _line(self, name: str | tuple[str, ...], value: float, bar: float | None = None) -> tuple[Any, ...]:
        pieces = (name,) if isinstance(name, str) else name
        return f"{value:+.4f}", f"{value / self.total:.1%}" if self.has_shares else "\u2013", bar, pieces


class Fold(NamedTuple):
    """Parts below a line that opens and closes them where the medium can."""

    summary: str
    parts: tuple[Any, ...]
    lead: str = ""
    is_open: bool = False


AnyPart = Heading | Lead | Note | MarkedTexts | TablePart | Bars | Fold


def marked(
    text: str, values: Mapping[tuple[int, int], float], unknown: Iterable[tuple[int, int]], scale: float
) -> Iterator[Piece]:
    """Yield pieces that joined are `text`, with strength value / scale; where spans overlap, the earlier one wins."""
    marks = [(span, "word", value) for span, value in values.items()] + [(span, "unknown", 0.0) for span in unknown]
    at = 0
    for (start, end), kind, value in sorted(marks):
        start, end = max(start, at), min(end, len(text))
        if start >= end:
            continue
        if start > at:
            yield Piece(text[at:start])
        tooltip = f"{value:+.4f}" if kind == "word" else "not in the vocabulary"
        yield Piece(text[start:end], kind, value / scale, tooltip)
        at = end
    if at < len(text):
        yield Piece(text[at:])


def cut(pieces: Iterable[Piece], length: int) -> Iterator[Piece]:
    """Yield the pieces of the first `length` characters, and one that says how many more there are."""
    for piece in pieces:
        if length > 0:
            yield piece._replace(text=piece.text[:length])
        length -= len(piece.text)
    if length < 0:
        yield Piece(f" \u2026 {-length:,} characters more", "more")


def bars(values: Sequence[float | None]) -> list[float | None]:
    """Return `values` over the largest size among them, as the cells of bars."""
    largest = max((abs(value) for value in values if value is not None), default=0.0) or 1.0
    return [None if value is None else value / largest for value in values]


def numbers(*titles: str) -> list[tuple[str, str]]:
    """Return columns of numbers, for `TablePart.of`."""
    return [(title, "number") for title in titles]


def signed(value: float | None, n_decimals: int = 3) -> str:
    """Write a number with its sign; a dash for None, and no sign on 0."""
    if value is None:
        return "\u2013"
    written = f"{value:+.{n_decimals}f}"
    return written[1:] if float(written) == 0 else written


def percent(value: float) -> str:
    """Write a share; one too small to be seen is not written as 0."""
    return "< 0.1%" if 0 < value < 0.0005 else f"{value:.1%}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write "1 text", "2 texts"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Sequence[str], most: int = 12, length: int = 40) -> str:
    """Write the first words, cut to some characters each, and how many more there are."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(shorten(word, length) for word in words[:most]) + more


def quoted(name: str) -> str:
    """Write a name as a Python string, as proposed edits do; a double quotation mark is the usual one."""
    return json.dumps(well_formed(name), ensure_ascii=False)


def shorten(text: str, length: int) -> str:
    """Cut `text` to `length` characters, the last of them an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "\u2026"


def visible(text: str) -> str:
    """Make control characters visible, one for one, so that a user's text cannot steer a terminal."""
    return well_formed(text).translate(_VISIBLE)
