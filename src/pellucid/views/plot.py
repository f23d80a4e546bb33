"""The picture of an explanation: a matplotlib Figure that the caller shows or saves.

Nothing global is touched: no pyplot, no style, no window. Words are drawn as they are; a dollar sign is no formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import missing_extra
from pellucid.explanation import Explanation
from pellucid.views.render import (
    WordMatrix,
    decimals,
    leftovers,
    low_coverage,
    notes,
    shorten,
    summarise,
    title,
    visible,
    word_matrix,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOR, AGAINST, NEUTRAL = "#0072b2", "#d55e00", "#f7f7f7"  # as in the HTML view
_MOST_NUMBERS = 300  # cells; with more, a number in each is too small to read
_WARNING_WIDTH = 5.0  # inches
_LONGEST_WORD, _LONGEST_NAME = 18, 48  # characters


def figure(explanation: Explanation, *, max_words: int) -> Figure:
    """Draw the word pairs as a heat map, or the rows as bars where they are not pairs.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot") from error
    matrix = word_matrix(explanation, max_words)
    size = _bars_size(explanation, max_words) if matrix is None else _matrix_size(matrix)
    if low_coverage(explanation):
        size = max(size[0], _WARNING_WIDTH), size[1]
    drawn = Figure(figsize=size, layout="constrained")
    axes = drawn.add_subplot()
    if matrix is None:
        _draw_bars(axes, explanation, max_words)
    else:
        _draw_matrix(axes, matrix, explanation)
    little = [said.partition(":")[0] for said in low_coverage(explanation)]
    heading = "\n".join([f"{title(explanation)} {explanation.score:.4f}", *little])
    axes.set_title(heading, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    return drawn


def _matrix_size(matrix: WordMatrix) -> tuple[float, float]:
    """Return width and height in inches, about half an inch a cell."""
    return 2.6 + 0.5 * len(matrix.words2), 2.0 + 0.36 * len(matrix.words1)


def _draw_matrix(axes: Axes, matrix: WordMatrix, explanation: Explanation) -> None:
    """Draw the pairs in text order; the sums of the words left out have a number but no colour."""
    from matplotlib.colors import CenteredNorm, LinearSegmentedColormap

    pairs = matrix.values.copy()
    if matrix.others1:
        pairs[-1] = np.nan
    if matrix.others2:
        pairs[:, -1] = np.nan
    colours = LinearSegmentedColormap.from_list("pellucid", [AGAINST, NEUTRAL, FOR]).with_extremes(bad="white")
    reach = float(np.nanmax(np.abs(pairs))) or 1.0
    image = axes.imshow(pairs, cmap=colours, norm=CenteredNorm(0.0, reach), aspect="auto")
    _label(axes, matrix, explanation)
    _write_numbers(axes, matrix, reach)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("contribution to the score", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _label(axes: Axes, matrix: WordMatrix, explanation: Explanation) -> None:
    options: dict[str, Any] = {"fontsize": 9, "parse_math": False}
    across = [shorten(visible(word), _LONGEST_WORD) for word in matrix.words2]
    down = [shorten(visible(word), _LONGEST_WORD) for word in matrix.words1]
    axes.set_xticks(range(len(across)), across, rotation=45, ha="right", rotation_mode="anchor", **options)
    axes.set_yticks(range(len(down)), down, **options)
    axes.set_xlabel("text 2" if explanation.text3 is None else "text 2, then text 3", fontsize=9)
    axes.set_ylabel("text 1", fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(1, len(across)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(down)) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="minor", length=0)


def _write_numbers(axes: Axes, matrix: WordMatrix, reach: float) -> None:
    """Write the contribution into each cell that has room, and always into the sums, which have no colour."""
    places = decimals(reach)
    lines, columns = len(matrix.words1) - bool(matrix.others1), len(matrix.words2) - bool(matrix.others2)
    for (line, column), value in np.ndenumerate(matrix.values):
        pair = line < lines and column < columns
        if (pair and matrix.values.size > _MOST_NUMBERS) or abs(value) < 0.5 * 10**-places:
            continue
        colour = "white" if pair and abs(value) > 0.6 * reach else "black"
        axes.text(column, line, f"{value:+.{places}f}", ha="center", va="center", fontsize=8, color=colour)


def _bars_size(explanation: Explanation, most: int) -> tuple[float, float]:
    return 7.0, 1.4 + 0.28 * (min(len(explanation.rows), most) + 2)


def _draw_bars(axes: Axes, explanation: Explanation, most: int) -> None:
    """Draw the largest rows and what is left as signed bars, the largest on top."""
    if not explanation.rows:
        axes.text(0.0, 0.5, notes(explanation)[0], va="center", transform=axes.transAxes, parse_math=False)
        axes.set_axis_off()
        return
    summary = summarise(explanation, most)
    bars = [(row.contribution, shorten(visible(row.name), _LONGEST_NAME)) for row in summary.shown]
    bars += leftovers(explanation, summary)
    values = [value for value, _ in bars]
    places = range(len(bars))
    drawn = axes.barh(places, values, color=[FOR if value > 0 else AGAINST for value in values])
    for rest in range(len(summary.shown), len(bars)):
        drawn[rest].set_alpha(0.45)
    axes.bar_label(drawn, [f"{value:+.3f}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(places, [name for _, name in bars], fontsize=9, parse_math=False)
    axes.invert_yaxis()
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.16 * (max(high, 0.0) - min(low, 0.0))  # for the numbers at the ends of the bars
    axes.set_xlim(low - room if low < 0 else 0.0, high + room if high > 0 else 0.0)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("contribution to the score", fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
