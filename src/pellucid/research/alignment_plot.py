"""Pictures of what embeddings say in tokens: alignment, variation, contributions, sweeps and comparisons.

matplotlib Figures that the caller shows or saves, for a light or a dark background. Nothing global is touched: no
pyplot, no style, no window. Tokens are drawn as they are; a dollar sign is no formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pellucid.errors import missing_extra
from pellucid.views.render import shorten, visible
from pellucid.views.report import counted, percent, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pellucid.research.alignment import AlignedText, Alignment
    from pellucid.research.comparison import KeyTokenComparison
    from pellucid.research.spectrum import Contribution, Contributions, Variation
    from pellucid.research.sweep import Sweep


_LONGEST, _LONGEST_TOKEN = 34, 16  # characters
_MOST_LINES = 40  # components drawn with bars that can be told apart


class Palette(NamedTuple):
    """Colours of a picture; `series` are told apart by colour-blind eyes."""

    paper: str
    ink: str
    faint: str
    series: tuple[str, ...]


_LIGHT = Palette("#ffffff", "#222222", "#9a9a9a", ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"))
_DARK = Palette("#14171b", "#e6e6e6", "#7d838a", ("#3896dc", "#e6821e", "#1fb88a", "#d98fb6", "#e6b03c", "#7cc8f0"))
_STYLE: dict[str, dict[str, Any]] = {"literal": {"fontweight": "bold"}, "stem": {"fontstyle": "italic"}}


def _canvas(size: tuple[float, float], title: str, below: str, dark: bool) -> tuple[Figure, Palette]:
    """Return an empty picture with its heading.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot") from error
    colours = _DARK if dark else _LIGHT
    drawn = Figure(figsize=size, layout="constrained", facecolor=colours.paper)
    heading = shorten(visible(title), 90) + (f"\n{shorten(visible(below), 120)}" if below else "")
    drawn.suptitle(heading, x=0.01, ha="left", fontsize=10.5, color=colours.ink, parse_math=False)
    return drawn, colours


def _plain(axes: Axes, colours: Palette, title: str = "") -> Axes:
    """Give axes the colours of the picture."""
    axes.set_facecolor(colours.paper)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(colours.faint)
    axes.tick_params(labelsize=8, colors=colours.ink)
    if title:
        axes.set_title(title, loc="left", fontsize=9, color=colours.ink, parse_math=False)
    return axes


def _label(axes: Axes, colours: Palette, across: str = "", down: str = "") -> None:
    axes.set_xlabel(across, fontsize=8.5, color=colours.ink)
    axes.set_ylabel(down, fontsize=8.5, color=colours.ink)


def _legend(axes: Axes, colours: Palette, **where: Any) -> None:
    axes.legend(fontsize=8, frameon=False, labelcolor=colours.ink, **where)


def alignment_bars(alignment: Alignment, *, dark: bool = False) -> Figure:
    """Draw the rates of each model (Figure 2 of the paper) and the classes of its tokens, one line a model."""
    models, first = alignment.models, alignment.models[0]
    title = f"Alignment with {counted(first.texts, 'text')}, in percent"
    drawn, colours = _canvas((10.0, 1.5 + 0.3 * len(models)), title, "", dark)
    panels = drawn.subplots(1, 5, sharey=True, width_ratios=[1, 1, 1, 1, 1.7])
    titles = (f"Hit@{alignment.k}", "LAR", "GAR", "weighted LAR")
    for axes, name, label in zip(panels, ("hit", "lar", "gar", "weighted_lar"), titles):
        _plain(axes, colours, label)
        values = [100 * getattr(model, name) for model in models]
        shown = axes.barh(range(len(models)), values, 0.66, color=colours.series[0])
        axes.bar_label(shown, [f"{value:.1f}" for value in values], fontsize=7.5, color=colours.ink, padding=2)
        axes.margins(x=0.3)
    _classes(_plain(panels[-1], colours, f"the first {alignment.k} tokens"), alignment, colours)
    panels[0].set_yticks(range(len(models)), [_short(model.name) for model in models], fontsize=8.5, parse_math=False)
    panels[0].invert_yaxis()
    for axes in panels:
        axes.tick_params(axis="y", length=0)
    return drawn


def _classes(axes: Axes, alignment: Alignment, colours: Palette) -> None:
    """Draw the shares of literal, same-stem and unrelated tokens of each model as one bar."""
    lines = np.arange(len(alignment.models))
    parts = (("in the text", "literal", 1.0), ("same stem", "stem", 0.5), ("unrelated", "unrelated", 0.0))
    start = np.zeros(len(lines))
    for label, name, alpha in parts:
        shares = np.array([100 * (getattr(model, name) or 0.0) for model in alignment.models])
        colour = colours.series[0] if alpha else colours.faint
        axes.barh(lines, shares, 0.66, left=start, color=colour, alpha=alpha or 0.35, label=label)
        start += shares
    axes.set_xlim(0, 100)
    _legend(
        axes, colours, loc="upper center", bbox_to_anchor=(0.45, -0.06 - 0.4 / len(lines)), ncols=3, columnspacing=1.0
    )


def variation_bars(found: Variation, *, dark: bool = False) -> Figure:
    """Draw v_j over the components (Figure 3 of the paper)."""
    below = f"{found.texts:,} texts; v\u2081 is {percent(found.dominance)} of the squared length of v"
    title = f"{found.base} \u2192 {found.tuned}: variation in each principal component"
    drawn, colours = _canvas((7.0, 3.2), title, below, dark)
    axes = _plain(drawn.add_subplot(), colours)
    values = np.array([shift.variation for shift in found.components])
    numbers = np.arange(1, len(values) + 1)
    signs = [colours.series[0] if value > 0 else colours.series[1] for value in values]
    if len(values) <= _MOST_LINES:
        axes.bar(numbers, values, color=signs)
    else:
        axes.vlines(numbers, 0, values, colors=signs, linewidth=1.4)
    axes.axhline(0.0, color=colours.ink, linewidth=0.8)
    axes.annotate(f"v\u2081 = {signed(values[0])}", (1, values[0]), xytext=(8, 0), textcoords="offset points",
                  fontsize=8.5, color=colours.ink, va="center")  # fmt: skip
    axes.margins(y=0.1)
    _label(axes, colours, "principal component of the backbone's embeddings", "variation v\u2c7c")
    return drawn


def contribution_bars(found: Contributions, *, dark: bool = False) -> Figure:
    """Draw what the first component and the rest give to the score of each token (Figure 4a of the paper)."""
    below = "left: the tokens that score highest; right: those that do without the first component"
    drawn, colours = _canvas((9.0, 1.6 + 0.26 * max(len(found.top), 1)), found.text, below, dark)
    for axes, rows in zip(drawn.subplots(1, 2), (found.top, found.by_rest)):
        _parts_of(_plain(axes, colours), rows, colours)
    _legend(drawn.axes[0], colours, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    return drawn


def _parts_of(axes: Axes, rows: Sequence[Contribution], colours: Palette) -> None:
    places = np.arange(len(rows))
    axes.barh(places - 0.19, [r.first for r in rows], 0.36, color=colours.series[1], label="first component")
    axes.barh(places + 0.19, [r.rest for r in rows], 0.36, color=colours.series[0], label="the other components")
    axes.set_yticks(places, [_token(row.token) for row in rows], fontsize=8.5, parse_math=False)
    for label, row in zip(axes.get_yticklabels(), rows):
        label.set(**_STYLE.get(row.relation, {}))
    axes.invert_yaxis()
    axes.axvline(0.0, color=colours.ink, linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    _label(axes, colours, "part of the score")


def sweep_tokens(found: Sweep, *, dark: bool = False) -> Figure:
    """Draw the rates over the amount, and the tokens of the first text at four amounts (Figure 4b of the paper)."""
    first = found.steps[0].alignment
    below = first.examples[0].text if first.examples else f"{first.texts:,} texts"
    drawn, colours = _canvas((9.4, 5.6), "The first principal component, taken away by and by", below, dark)
    grid = drawn.add_gridspec(2, 4, height_ratios=[1, 1.15])
    axes = _plain(drawn.add_subplot(grid[0, :]), colours)
    factors = [step.factor for step in found.steps]
    for name, label, colour in zip(("hit", "lar", "gar", "weighted_lar"), (f"Hit@{found.k}", "LAR", "GAR",
                                   "weighted LAR"), colours.series):  # fmt: skip
        values = [100 * getattr(step.alignment, name) for step in found.steps]
        axes.plot(factors, values, color=colour, marker="o", markersize=3.5, linewidth=1.5, label=label)
    _legend(axes, colours, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _label(axes, colours, f"\u03bb in units of {signed(found.unit)}", "%")
    if first.examples:
        for column, number in enumerate(_four(found)):
            step = found.steps[number]
            below_axes = _plain(drawn.add_subplot(grid[1, column]), colours, f"\u03bb = {signed(step.amount, 2)}")
            _scores(below_axes, step.alignment.examples[0], colours)
    return drawn


def _four(found: Sweep) -> list[int]:
    """Return the numbers of at most four steps: those nearest to factor 0, to the best one, to 0.95 and to 1.05."""
    factors = np.array([step.factor for step in found.steps])
    wanted = (0.0, found.best.factor, 0.95, 1.05)
    return sorted({int(np.abs(factors - factor).argmin()) for factor in wanted})


def _scores(axes: Axes, aligned: AlignedText, colours: Palette) -> None:
    """Draw the scores of a text's tokens as bars."""
    places, values = range(len(aligned.tokens)), [token.score for token in aligned.tokens]
    strong = {"literal": 1.0, "stem": 0.6}
    shown = axes.barh(places, values, color=colours.series[0])
    for bar, token in zip(shown, aligned.tokens):
        bar.set_alpha(strong.get(token.relation, 0.3))
    axes.set_yticks(places, [_token(token.token) for token in aligned.tokens], fontsize=8, parse_math=False)
    for label, token in zip(axes.get_yticklabels(), aligned.tokens):
        label.set(**_STYLE.get(token.relation, {}))
    axes.invert_yaxis()
    axes.axvline(0.0, color=colours.ink, linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    _label(axes, colours, "score")


def comparison_table(found: KeyTokenComparison, *, dark: bool = False) -> Figure:
    """Draw the tokens of each text under each setting as a table of words, and the similarities as heat maps."""
    settings, texts = found.settings, found.texts
    wide, lines = len(settings), max((len(a.tokens) for s in settings for a in s.texts), default=0)
    size = (2.6 + 2.0 * wide, 1.0 + len(texts) * (0.5 + 0.2 * lines) + 2.2)
    drawn, colours = _canvas(size, "What the same texts say", "bold: in the text; italic: of the same stem", dark)
    grid = drawn.add_gridspec(2, wide, height_ratios=[len(texts) * (0.5 + 0.2 * lines), 2.0])
    for column, setting in enumerate(settings):
        axes = _plain(drawn.add_subplot(grid[0, column]), colours, _short(setting.name))
        _words(axes, setting.texts, column == 0, lines, colours)
        below = _plain(drawn.add_subplot(grid[1, column]), colours, "cosine")
        _cosines(below, np.array(setting.cosines), colours)
    return drawn


def _words(axes: Axes, texts: Sequence[AlignedText], lead: bool, lines: int, colours: Palette) -> None:
    """Write the tokens of each text below one another, the text itself above them in the first column."""
    axes.spines[:].set_visible(False)
    axes.set(xlim=(0, 1), ylim=(len(texts) * (lines + 2.5), 0), xticks=[], yticks=[])
    for number, aligned in enumerate(texts):
        top = number * (lines + 2.5) + 1
        if lead:
            said = f"{number + 1}. {shorten(visible(aligned.text), 70)}"
            axes.text(0, top, said, fontsize=8, color=colours.ink, alpha=0.75, parse_math=False, va="center")
        for line, token in enumerate(aligned.tokens, 1):
            style = _STYLE.get(token.relation, {})
            colour = colours.series[0] if style else colours.ink
            axes.text(
                0.04, top + line, _token(token.token), fontsize=9, color=colour, va="center", parse_math=False, **style
            )


def _cosines(axes: Axes, values: Any, colours: Palette) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    names = [str(n) for n in range(1, len(values) + 1)]
    shades = LinearSegmentedColormap.from_list("pellucid", [colours.paper, colours.series[0]])
    axes.imshow(values, cmap=shades, vmin=0, vmax=1.6)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (line, column), value in np.ndenumerate(values):
        axes.text(column, line, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colours.ink)


def _short(text: str, longest: int = _LONGEST) -> str:
    return shorten(visible(text), longest)


def _token(text: str) -> str:
    return shorten(visible(text), _LONGEST_TOKEN)
