"""Pictures: a canvas, a palette and the few charts that results are drawn with.

A result passes names and numbers, or its parts (`picture`). A picture is a matplotlib Figure that the caller shows or
saves, for a light or a dark background. No global state changes: no pyplot, no style, no window. Names are drawn as
they are; a dollar sign does not start a formula.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import bidirectional, combining, east_asian_width

import numpy as np
import numpy.typing as npt

from pellucid.errors import missing_extra, warn
from pellucid.explain.views.parts import (
    AnyPart,
    Bars,
    Heading,
    Lead,
    Link,
    LinkedTexts,
    Matrix,
    Note,
    cell_number,
    decimals,
    shorten,
    visible,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

_LINE_COLUMNS, _MAX_LINES, _LABEL_COLUMNS = 92, 12, 8  # of a text with links, in characters
_GAP_LINES, _SUMMARY_CHARS = 3.0, 118  # between two such texts, and of a line above them
_MAX_NAME_CHARS = 46  # of a name beside a bar
_MOST_NUMBERS = 300  # cells of a heat map; with more, a number in each is too small to read


class Palette(NamedTuple):
    """Colours of a picture; `series` are distinct for colour-blind readers."""

    paper: str
    ink: str
    faint: str
    neutral: str
    series: tuple[str, ...]

    @property
    def adds(self) -> str:
        """The colour of what adds to a score."""
        return self.series[0]

    @property
    def lowers(self) -> str:
        """The colour of what lowers it."""
        return self.series[1]


_LIGHT = Palette(
    "#ffffff", "#222222", "#8c8c8c", "#f7f7f7", ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
)
_DARK = Palette(
    "#14171b", "#e6e6e6", "#7d838a", "#23282e", ("#3896dc", "#e6821e", "#1fb88a", "#d98fb6", "#e6b03c", "#7cc8f0")
)


class Canvas:
    """A picture with its heading and its colours."""

    def __init__(self, size: tuple[float, float], title: str, below: str = "", *, dark: bool = False) -> None:
        """Open an empty picture of `size` inches, with a title and a second line below it."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise missing_extra("matplotlib", "plot") from error
        self.colours = _DARK if dark else _LIGHT
        self._figure = Figure(figsize=size, layout="constrained", facecolor=self.colours.paper)
        heading = short_name(title, 90) + (f"\n{short_name(below, 120)}" if below else "")
        self._figure.suptitle(heading, x=0.01, ha="left", fontsize=10.5, color=self.colours.ink, parse_math=False)

    @property
    def figure(self) -> Figure:
        """The picture; each text in it is drawn as it is, in fonts that have its letters."""
        from matplotlib.text import Text

        texts = [text for text in self._figure.findobj(Text) if text.get_text()]
        for text in texts:
            if "$" in text.get_text():
                text.set_parse_math(False)
            if not text.get_text().isascii():
                text.set_fontfamily(_families(text.get_fontfamily()[0], text.get_text()))
        _warn_of_order("".join(text.get_text() for text in texts))
        return self._figure

    def panel(self, position: Any = (1, 1, 1), title: str = "", across: str = "", down: str = "") -> Axes:
        """Return axes at `position` (a grid's cell, or rows, columns and number), in the picture's colours."""
        place = position if isinstance(position, tuple) else (position,)
        axes = self._figure.add_subplot(*place)
        return self.styled(axes, title, across, down)

    def styled(self, axes: Axes, title: str = "", across: str = "", down: str = "") -> Axes:
        """Give axes the colours of the picture, a title and labels."""
        ink = self.colours.ink
        axes.set_facecolor(self.colours.paper)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[:].set_color(self.colours.faint)
        axes.tick_params(labelsize=8, colors=ink)
        axes.set_title(title, loc="left", fontsize=9.5, color=ink, parse_math=False)
        axes.set_xlabel(across, fontsize=9, color=ink, parse_math=False)
        axes.set_ylabel(down, fontsize=9, color=ink, parse_math=False)
        return axes

    def legend(self, axes: Axes, loc: Any = "best", at: tuple[float, float] | None = None, columns: int = 1) -> None:
        """Draw the legend of axes without a frame; `loc` is the corner of it that is `at` a place of the axes."""
        axes.legend(fontsize=8, frameon=False, labelcolor=self.colours.ink, loc=loc, bbox_to_anchor=at, ncols=columns)

    def names(self, axes: Axes, names: Sequence[str], longest: int = _MAX_NAME_CHARS) -> None:
        """Name the lines of horizontal bars, the first on top."""
        written = [short_name(text, longest) for text in names]
        axes.set_yticks(range(len(names)), written, fontsize=8.5, parse_math=False)
        axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)

    def bars(
        self, axes: Axes, values: Sequence[float], written: Sequence[str] = (), colours: Sequence[str] = ()
    ) -> BarContainer:
        """Draw horizontal bars from 0, those below it in the other colour, with a number at each end if given."""
        signs = colours or [self.colours.adds if value > 0 else self.colours.lowers for value in values]
        drawn = axes.barh(range(len(values)), values, 0.72, color=signs)
        if written:
            axes.bar_label(drawn, written, padding=3, fontsize=8, color=self.colours.ink)
            low, high = min(values, default=0.0), max(values, default=0.0)
            room = 0.18 * (max(high, 0.0) - min(low, 0.0))  # for the numbers at the ends of the bars
            if room:
                axes.set_xlim(low - room if low < 0 else 0.0, high + room if high > 0 else 0.0)
        axes.axvline(0.0, color=self.colours.ink, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        return drawn

    def heat_map(
        self, axes: Axes, values: npt.NDArray[Any], down: Sequence[str], across: Sequence[str], label: str
    ) -> float:
        """Draw coloured cells, 0 neutral and NaN as paper, and return the largest size among the values."""
        from matplotlib.colors import LinearSegmentedColormap, Normalize

        colours = self.colours
        has_negative = bool((values < 0).any())
        ends = [colours.lowers] if has_negative else []
        shades = LinearSegmentedColormap.from_list("pellucid", [*ends, colours.neutral, colours.adds])
        sizes = np.abs(values[~np.isnan(values)])
        reach = float(sizes.max(initial=0.0)) or 1.0
        image = axes.imshow(
            values,
            cmap=shades.with_extremes(bad=colours.paper),
            norm=Normalize(-reach if has_negative else 0.0, reach),
            aspect="auto",
        )
        options: dict[str, Any] = {"fontsize": 9, "parse_math": False}
        turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(across)), [short_name(text, 22) for text in across], **turned, **options)
        axes.set_yticks(range(len(down)), [short_name(text) for text in down], **options)
        axes.spines[:].set_visible(False)
        axes.set_xticks(np.arange(1, len(across)) - 0.5, minor=True)
        axes.set_yticks(np.arange(1, len(down)) - 0.5, minor=True)
        axes.grid(which="minor", color=colours.paper, linewidth=1)
        axes.tick_params(which="both", length=0)
        bar = self._figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
        bar.set_label(label, fontsize=9, color=colours.ink)
        bar.ax.tick_params(labelsize=8, colors=colours.ink)
        bar.outline.set_visible(False)
        return reach


_FALLBACK_FONT = "DejaVu Sans"  # which comes with matplotlib
_PLACEHOLDER_FONT = "Last Resort"  # of boxes


def _families(family: str, text: str) -> list[str]:
    """Return the fonts to draw a text in: its own, then those that have the letters which are missing there."""
    families = [family, _FALLBACK_FONT]
    missing = {ord(letter) for letter in text if letter.isprintable() and not letter.isspace()}
    for name in families:
        missing -= _letters(name)
    for name in _installed_fonts() if missing else ():
        if missing & _letters(name):
            families.append(name)
            missing -= _letters(name)
        if not missing:
            break
    if missing:
        letters = "".join(map(chr, sorted(missing)[:10]))
        warn(
            f"no installed font has the letters {letters}, which a picture shows as boxes; install a font of the script"
        )
    return families


@lru_cache(maxsize=1)
def _installed_fonts() -> list[str]:
    """Return the names of the fonts that matplotlib finds."""
    from matplotlib.font_manager import fontManager

    return sorted({font.name for font in fontManager.ttflist if not font.name.startswith(_PLACEHOLDER_FONT)})


@lru_cache(maxsize=256)
def _letters(family: str) -> frozenset[int]:
    """Return the code points that a font has."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties(family=[family]))).get_charmap())


def _is_right_to_left(text: str) -> bool | None:
    """Whether the first letter of a text with a direction is of a script from right to left; None without one."""
    strong = (kind for kind in map(bidirectional, text) if kind in ("L", "R", "AL"))
    kind = next(strong, None)
    return None if kind is None else kind != "L"


def _warn_of_order(text: str) -> None:
    """Warn where matplotlib draws letters from left to right that run from right to left, before version 3.11."""
    import matplotlib

    if matplotlib.__version_info__ < (3, 11) and any(bidirectional(letter) in ("R", "AL") for letter in text):
        warn(
            f"matplotlib {matplotlib.__version__} draws words that run from right to left in the wrong order; "
            "install matplotlib 3.11 or newer"
        )


def _word_columns(line: str, is_rtl: bool) -> list[tuple[int, int, int]]:
    """Return the first and last character and the first column of each word of a line, in text order.

    Words of scripts from right to left, and the numbers between them, follow each other from right to left.
    """
    words = [(word.start(), word.end()) for word in re.finditer(r"\S+", line)]
    directions = [_is_right_to_left(line[start:end]) for start, end in words]
    for n, direction in enumerate(directions):  # a word without letters runs as those on both sides, or as the text
        if direction is None:
            after = next((d for d in directions[n + 1 :] if d is not None), is_rtl)
            directions[n] = after if n and directions[n - 1] == after else is_rtl
    if True not in directions:
        return [(start, end, _width(line[:start])) for start, end in words]
    levels = [1 if direction else 2 * is_rtl for direction in directions]  # as the bidirectional algorithm of Unicode
    order = list(range(len(words)))
    for level in (2, 1):
        is_high = [word_level >= level for word_level in levels]
        runs = [(is_run, list(run)) for is_run, run in groupby(order, is_high.__getitem__)]
        order = [n for is_run, run in runs for n in (run[::-1] if is_run else run)]
    column, columns = 0, dict[int, int]()
    for n in order:
        columns[n] = column
        column += _width(line[slice(*words[n])]) + 1
    return [(*word, columns[n]) for n, word in enumerate(words)]


def short_name(text: str, longest: int = _MAX_NAME_CHARS) -> str:
    """Return a text as a picture can hold it: cut, and without control characters."""
    return shorten(visible(text), longest)


def picture(parts: Iterable[AnyPart], *, most: int, dark: bool = False) -> Figure:
    """Draw the parts: texts with their links first, else a matrix as a heat map of `most` words a side, else bars."""
    parts = list(parts)
    linked = next((part for part in parts if isinstance(part, LinkedTexts)), None)
    if linked is not None:
        return _linked_picture(parts, linked, dark=dark)
    matrix = next((part.folded(most) for part in parts if isinstance(part, Matrix)), None)
    bars = next((part for part in parts if isinstance(part, Bars)), None)
    size = (7.0, 1.4 + 0.28 * (2 if bars is None else len(bars.bars) + len(bars.sums)))
    if matrix is not None:
        size = max(2.6 + 0.5 * len(matrix.across), 5.0), 2.0 + 0.36 * len(matrix.down)
    heading = next(part for part in parts if isinstance(part, Heading))
    canvas = Canvas(size, f"{heading.title} {heading.value}", dark=dark)
    notes = [part for part in parts if isinstance(part, Note)]
    axes = canvas.panel(title="\n".join(note.text.partition(":")[0] for note in notes if note.is_warning))
    if matrix is not None:
        _draw_matrix(canvas, axes, matrix)
    elif bars is not None:
        _draw_bars(canvas, axes, bars)
    else:
        reason = next(note.text for note in notes if not note.is_warning)
        axes.text(
            0, 0.5, short_name(reason, 120), va="center", transform=axes.transAxes, parse_math=False,
            color=canvas.colours.ink, fontsize=9,
        )  # fmt: skip
        axes.set_axis_off()
    return canvas.figure


def _draw_matrix(canvas: Canvas, axes: Axes, matrix: Matrix) -> None:
    """Draw the pairs in text order with their numbers where these fit; sums have a number but no colour."""
    pairs = matrix.pairs()
    reach = canvas.heat_map(axes, pairs, matrix.down, matrix.across, "contribution to the score")
    axes.set_xlabel(matrix.of_across)
    axes.set_ylabel(matrix.of_down)
    for (line, column), value in np.ndenumerate(matrix.values):
        is_sum = np.isnan(pairs[line, column])
        written = cell_number(value, decimals(reach)) if is_sum or pairs.size <= _MOST_NUMBERS else ""
        colour = "white" if not is_sum and abs(value) > 0.6 * reach else canvas.colours.ink
        if written:
            axes.text(column, line, written, ha="center", va="center", fontsize=8, color=colour)


def _draw_bars(canvas: Canvas, axes: Axes, bars: Bars) -> None:
    written, values = zip(*bars.bars, *bars.sums)
    names = ["".join(name) for name in written]
    drawn = canvas.bars(axes, values, [f"{value:+.3f}" for value in values])
    for index in range(len(bars.bars), len(values)):
        drawn[index].set_alpha(0.45)
    canvas.names(axes, names)
    axes.set_xlabel("contribution to the score")


class _Lines(NamedTuple):
    """A text laid out in lines of equally wide characters."""

    lines: list[str]
    starts: list[int]  # where each line starts in the text
    words: list[list[tuple[int, int, int]]]  # of each line, see `_word_columns`

    @classmethod
    def from_text(cls, text: str) -> _Lines:
        """Lay out the start of a text, blanks as they are."""
        lines, starts, start = list[str](), list[int](), 0
        while start < len(text) and len(lines) < _MAX_LINES:
            end = start + _fitting(text[start : start + _LINE_COLUMNS], _LINE_COLUMNS)
            if end < len(text) and (blank := max(text.rfind(mark, start, end + 1) for mark in " \n")) > start:
                end = blank + 1
            lines.append(visible(text[start:end]).replace("\u23ce", " "))
            starts.append(start)
            start = end
        if start < len(text):
            lines[-1] = lines[-1][: _LINE_COLUMNS - 2].rstrip() + "\u2026"
        is_rtl = bool(_is_right_to_left(text))
        return cls(lines, starts, [_word_columns(line, is_rtl) for line in lines])

    def boxes(self, span: tuple[int, int]) -> list[tuple[int, int, int]]:
        """Return where a span stands: line, first and last column of each line that has a part of it."""
        boxes = []
        for line, (written, line_start) in enumerate(zip(self.lines, self.starts)):
            columns: list[int] = []
            for start, end, column in self.words[line]:
                first, last = max(span[0] - line_start, start), min(span[1] - line_start, end)
                if first < last:
                    is_rtl = _is_right_to_left(written[start:end])
                    before = written[last:end] if is_rtl else written[start:first]
                    columns += [column + _width(before), column + _width(before + written[first:last])]
            if columns:
                boxes.append((line, min(columns), max(columns)))
        return boxes


def _width(text: str) -> int:
    """Return the columns that a text takes: signs of East Asian scripts take two, accents none."""
    return sum(0 if combining(sign) else 1 + (east_asian_width(sign) in "WF") for sign in text)


def _fitting(text: str, columns: int) -> int:
    """Return how many characters of a text fit some columns, at least one."""
    width = 0
    for number, sign in enumerate(text):
        width += _width(sign)
        if width > columns:
            return max(number, 1)
    return len(text)


def _linked_picture(parts: Sequence[AnyPart], linked: LinkedTexts, *, dark: bool) -> Figure:
    """Draw texts one below the other; phrases of a link have one colour, and lines join them."""
    laid_out = [_Lines.from_text(text) for text in linked.texts]
    tops, height = [], 0.0
    for text in laid_out:
        tops.append(height)
        height += len(text.lines) + _GAP_LINES
    height -= _GAP_LINES - 1
    heading, lead = (next((p for p in parts if isinstance(p, kind)), None) for kind in (Heading, Lead))
    title = f"{heading.title} {heading.value}" if isinstance(heading, Heading) else ""
    lead_lines = [part.text.partition(":")[0] for part in parts if isinstance(part, Note) and part.is_warning]
    lead_lines += textwrap.wrap(visible(lead.text), _SUMMARY_CHARS) if isinstance(lead, Lead) else []
    above, tall = 0.45 + 0.16 * len(lead_lines), 0.27 * (height + 0.5)  # inches
    canvas = Canvas((9.0, above + tall), title, dark=dark)
    canvas._figure.set_layout_engine("none")
    axes = canvas.styled(canvas._figure.add_axes((0.01, 0.0, 0.98, tall / (above + tall))), "\n".join(lead_lines))
    axes.set_xlim(-_LABEL_COLUMNS, _LINE_COLUMNS)
    axes.set_ylim(height - 0.5, -1.0)
    axes.set_axis_off()
    axes.title.set_fontsize(8.5)
    font: dict[str, Any] = {"va": "center", "parse_math": False, "color": canvas.colours.ink}
    for label, text, top in zip(linked.labels, laid_out, tops):
        axes.text(-_LABEL_COLUMNS, top, label, fontsize=8, alpha=0.7, **font)
        for number, (line, words) in enumerate(zip(text.lines, text.words)):
            for start, end, column in words:  # each where its columns are, so that boxes fit whatever the font
                middle = column + _width(line[start:end]) / 2
                axes.text(middle, top + number, line[start:end], fontsize=8.5, family="monospace", ha="center", **font)
    largest = max((abs(link.value) for link in linked.links), default=0.0) or 1.0
    owners = _owners(linked.links)
    for number, link in enumerate(linked.links):
        colour = canvas.colours.series[number % len(canvas.colours.series)]
        coloured = {phrase for phrase in link.phrases if owners[phrase] == number}
        _draw_link(axes, link, laid_out, tops, colour, abs(link.value) / largest, coloured)
    return canvas.figure


def _owners(links: Sequence[Link]) -> dict[tuple[int, tuple[int, int]], int]:
    """Return for each phrase the link whose colour it has: the one to which it gives most, as far as its rank says."""
    best: dict[tuple[int, tuple[int, int]], tuple[float, int]] = {}
    for number, link in enumerate(links):
        counts = [0, 0, 0]
        for phrase in link.phrases:  # of a text, the strongest first
            weight = abs(link.value) / 2 ** counts[phrase[0]]
            counts[phrase[0]] += 1
            best[phrase] = max(best.get(phrase, (-1.0, 0)), (weight, -number))
    return {phrase: -number for phrase, (_, number) in best.items()}


def _draw_link(
    axes: Axes, link: Link, texts: Sequence[_Lines], tops: Sequence[float], colour: str, strength: float,
    coloured: set[tuple[int, tuple[int, int]]],
) -> None:  # fmt: skip
    """Draw lines from the first phrase of a link to the others, and those that are `coloured` in its colour."""
    from matplotlib.patches import FancyBboxPatch

    ends: list[tuple[float, float]] = []
    for text, span in link.phrases:
        boxes = texts[text].boxes(span)
        for line, first, last in boxes if (text, span) in coloured else ():
            corner_and_size = (first - 0.2, tops[text] + line - 0.42), last - first + 0.4, 0.84
            box = FancyBboxPatch(
                *corner_and_size, boxstyle="round,pad=0,rounding_size=0.25", facecolor=colour, alpha=0.3
            )
            axes.add_patch(box)
        if boxes:  # lines leave text 1 below its last part, and reach the others above their first
            line, first, last = boxes[0] if text else boxes[-1]
            ends.append(((first + last) / 2, tops[text] + line + (-0.42 if text else 0.42)))
    for across, down in ends[1:]:
        style = "-" if link.value > 0 else (0, (2, 2))
        axes.plot(
            [ends[0][0], across], [ends[0][1], down], color=colour, linewidth=0.8 + 2.2 * strength, linestyle=style
        )
