"""Pictures: a canvas, a palette and the few charts that results are drawn with.

A result passes names and numbers, or its parts (`picture`). A picture is a matplotlib Figure that the caller shows or
saves, for a light or a dark background. No global state changes: no pyplot, no style, no window. Names are drawn as
they are; a dollar sign does not start a formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import bidirectional

from pellucid.errors import missing_extra, warn
from pellucid.explain.views.parts import (
    AnyPart,
    Bars,
    Heading,
    Note,
    shorten,
    visible,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

_MAX_NAME_CHARS = 46  # of a name beside a bar


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
        from matplotlib import __version__, __version_info__
        from matplotlib.text import Text

        texts = [text for text in self._figure.findobj(Text) if text.get_text()]
        for text in texts:
            if "$" in text.get_text():
                text.set_parse_math(False)
            if not text.get_text().isascii():
                text.set_fontfamily(_families(text.get_fontfamily()[0], text.get_text()))
        letters = {letter for text in texts for letter in text.get_text()}
        if __version_info__ < (3, 11) and {"R", "AL"} & set(map(bidirectional, letters)):
            warn(
                f"matplotlib {__version__} draws words that run from right to left in the wrong order; "
                "install matplotlib 3.11 or newer"
            )
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


_FALLBACK_FONT = "DejaVu Sans"  # which comes with matplotlib
_PLACEHOLDER_FONT = "Last Resort"  # of boxes


def _families(family: str, text: str) -> list[str]:
    """Return the fonts to draw a text in: its own, then those that have the letters which are missing there."""
    from matplotlib.font_manager import fontManager

    families = [family, _FALLBACK_FONT]
    code_points = {ord(letter) for letter in text if letter.isprintable() and not letter.isspace()}
    missing = code_points.difference(*map(_letters, families))
    for name in sorted({font.name for font in fontManager.ttflist}) if missing else ():
        if missing and not name.startswith(_PLACEHOLDER_FONT) and missing & _letters(name):
            families.append(name)
            missing -= _letters(name)
    if missing:
        letters = "".join(map(chr, sorted(missing)[:10]))
        warn(
            f"no installed font has the letters {letters}, which a picture shows as boxes; install a font of the script"
        )
    return families


@lru_cache(maxsize=256)
def _letters(family: str) -> frozenset[int]:
    """Return the code points that a font has."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties(family=[family]))).get_charmap())


def short_name(text: str, longest: int = _MAX_NAME_CHARS) -> str:
    """Return a text as a picture can hold it: cut, and without control characters."""
    return shorten(visible(text), longest)


def picture(parts: Iterable[AnyPart], *, dark: bool = False) -> Figure:
    """Draw the last bars among the parts, below their heading."""
    parts = list(parts)
    bars = next((part for part in reversed(parts) if isinstance(part, Bars)), None)
    size = (7.0, 1.4 + 0.28 * (2 if bars is None else len(bars.bars) + len(bars.sums)))
    heading = next(part for part in parts if isinstance(part, Heading))
    canvas = Canvas(size, f"{heading.title} {heading.value}", dark=dark)
    notes = [part for part in parts if isinstance(part, Note)]
    axes = canvas.panel(title="\n".join(note.text.partition(":")[0] for note in notes if note.is_warning))
    if bars is not None:
        written, values = zip(*bars.bars, *bars.sums)
        drawn = canvas.bars(axes, values, [f"{value:+.3f}" for value in values])
        for index in range(len(bars.bars), len(values)):
            drawn[index].set_alpha(0.45)
        canvas.names(axes, list(map("".join, written)))
        axes.set_xlabel("contribution to the score")
    else:
        reason = next(note.text for note in notes if not note.is_warning)
        axes.text(
            0, 0.5, short_name(reason, 120), va="center", transform=axes.transAxes, parse_math=False,
            color=canvas.colours.ink, fontsize=9,
        )  # fmt: skip
        axes.set_axis_off()
    return canvas.figure
