"""Pictures of cards, audits and comparisons: matplotlib Figures that the caller shows or saves.

Nothing global is touched: no pyplot, no style, no window. Names are drawn as they are; a dollar sign is no formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import missing_extra
from pellucid.views.plot import AGAINST, FOR, NEUTRAL
from pellucid.views.render import shorten, visible
from pellucid.views.report import counted, percent, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pellucid.analysis.audit import Audit
    from pellucid.analysis.cards import Card
    from pellucid.analysis.compare import Comparison
    from pellucid.analysis.deletion import DeletionTest
    from pellucid.analysis.groups import Contrast, Contrasts


_GREY = "#8c8c8c"
_SERIES = (FOR, AGAINST, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by colour-blind eyes
_LONGEST = 46  # characters of a name
_MOST_NAMED = 8  # points with their name beside them
_MOST_POINTS = 20_000


def _figure(width: float, height: float, title: str, below: str = "") -> tuple[Figure, Axes]:
    """Return an empty picture with its heading.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot") from error
    drawn = Figure(figsize=(width, height), layout="constrained")
    axes = drawn.add_subplot()
    heading = _name(title, 68) + "\n" * bool(below)
    axes.set_title(heading, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    options: dict[str, Any] = {"fontsize": 9, "color": "#555555", "parse_math": False}
    axes.annotate(below, (0, 1), xycoords="axes fraction", xytext=(0, 7), textcoords="offset points", **options)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return drawn, axes


def _name(text: str, longest: int = _LONGEST) -> str:
    return shorten(visible(text), longest)


def histogram(card: Card) -> Figure:
    """Draw how a coordinate is distributed; where the dimension fires the bars have its colour."""
    below = f"fires on {percent(card.firing_rate)} of {counted(card.texts, 'text')}"
    drawn, axes = _figure(6.4, 3.0, card.name, below)
    edges = np.array(card.edges)
    middle, even = (edges[1:] + edges[:-1]) / 2, card.dimensions**-0.5
    colours = [FOR if value > even else AGAINST if value < -even else "#c8c8c8" for value in middle.tolist()]
    axes.bar(middle, card.counts, width=np.diff(edges) * 0.94, color=colours)
    for line in (-even, even):
        if edges[0] < line < edges[-1]:
            axes.axvline(line, color="#555555", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlabel("coordinate; beyond the dashed lines the dimension fires", fontsize=9)
    axes.set_ylabel("texts", fontsize=9)
    return drawn


def audit_map(audit: Audit) -> Figure:
    """Draw every dimension by how often it fires and the share of the embeddings it carries; name what was found."""
    drawn, axes = _figure(7.2, 4.6, f"{counted(len(audit.measured), 'dimension')}, {audit.texts:,} texts")
    kinds = (
        ("", _GREY, "no finding"),
        ("dead", "#222222", "dead"),
        ("duplicate", AGAINST, "duplicate"),
        ("crowded", FOR, "crowded"),
    )
    for verdict, colour, label in kinds:
        points = [m for m in audit.measured if m.verdict.partition(",")[0] == verdict]
        if points:
            rates, shares = [100 * m.firing_rate for m in points], [100 * m.share for m in points]
            size, alpha = (34, 0.9) if verdict else (16, 0.55)
            label = f"{label} ({len(points):,})"
            axes.scatter(rates, shares, s=size, color=colour, alpha=alpha, linewidths=0, label=label, zorder=2)
    named = sorted((m for m in audit.measured if m.verdict), key=lambda m: -m.share)[:_MOST_NAMED]
    for m in named:
        axes.annotate(_name(m.name, 32), (100 * m.firing_rate, 100 * m.share), xytext=(5, 4),
                      textcoords="offset points", fontsize=7.5, parse_math=False)  # fmt: skip
    axes.axhline(100 / len(audit.measured), color="#555555", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlabel("fires on, % of the texts", fontsize=9)
    axes.set_ylabel("carries, % of an embedding (dashed: even share)", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return drawn


def deletion_curves(test: DeletionTest) -> Figure:
    """Draw the fall of the score without the top rows and without random ones."""
    below = f"mean of {counted(test.pairs, 'pair')} with 95 % intervals; mean score {signed(test.mean_score)}"
    drawn, axes = _figure(6.4, 3.8, f"How the score falls without some {test.units}", below)
    ks = [point.k for point in test.curve]
    lines = (("top", FOR, "those that contribute most"), ("random", _GREY, "as many at random"))
    for name, colour, label in lines:
        values = np.array([getattr(point, name) for point in test.curve])
        axes.fill_between(ks, values[:, 1], values[:, 2], color=colour, alpha=0.22, linewidth=0)
        axes.plot(ks, values[:, 0], color=colour, marker="o", markersize=4, linewidth=1.6)
        axes.annotate(label, (ks[-1], values[-1, 0]), xytext=(-4, 8), textcoords="offset points", ha="right",
                      color=colour, fontsize=9)  # fmt: skip
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.margins(y=0.18)
    if min(min(point.top.low, point.random.low) for point in test.curve) >= 0:
        axes.set_ylim(bottom=0.0)
    axes.set_xlabel(f"{test.units} taken away", fontsize=9)
    axes.set_ylabel("fall of the score", fontsize=9)
    return drawn


def score_map(comparison: Comparison) -> Figure:
    """Draw each pair of texts by its score in the first model and in the others."""
    scores = np.array(comparison.scores)[:: max(len(comparison.scores) // _MOST_POINTS, 1)]
    below = f"{counted(len(comparison.pairs), 'pair')} of texts; on the line nothing changed"
    drawn, axes = _figure(5.2, 4.9, "Scores side by side", below)
    low, high = float(scores.min()), float(scores.max())
    room = 0.04 * ((high - low) or 1.0)
    axes.plot([low - room, high + room], [low - room, high + room], color="#555555", linewidth=0.8, zorder=1)
    size, alpha = (14, 0.6) if len(scores) < 500 else (6, 0.35)
    for number, name in enumerate(comparison.names[1:], 1):
        colour = _SERIES[(number - 1) % len(_SERIES)]
        label = _name(name)
        axes.scatter(scores[:, 0], scores[:, number], s=size, alpha=alpha, color=colour, linewidths=0, label=label)
    if len(comparison.names) > 2:
        axes.legend(fontsize=8, frameon=False)
        axes.set_ylabel("score by the others", fontsize=9)
    else:
        axes.set_ylabel(_name(comparison.names[1]), fontsize=9, parse_math=False)
    axes.set_xlabel(_name(comparison.names[0]), fontsize=9, parse_math=False)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(low - room, high + room)
    axes.set_aspect("equal")
    return drawn


def parts_bars(contrast: Contrast, most: int = 15) -> Figure:
    """Draw the largest parts of the separation, and say what they give of it."""
    shown = contrast.rows[:most]
    values = [row.part for row in shown]
    below = f"these: {signed(sum(values), 4)} of the separation, {signed(contrast.separation, 4)}"
    drawn, axes = _figure(7.4, 1.5 + 0.27 * len(values), f"What sets apart {contrast.group}", below)
    bars = axes.barh(range(len(values)), values, color=[FOR if value > 0 else AGAINST for value in values])
    axes.bar_label(bars, [signed(value, 4) for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(shown)), [_name(row.name) for row in shown], fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("part of the separation", fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return drawn


def effect_map(contrasts: Contrasts, each: int = 3, most: int = 40) -> Figure:
    """Draw the `each` largest dimensions of every group against all groups; the colour is the effect, Cohen's d."""
    names = list(dict.fromkeys(row.name for group in contrasts.groups for row in group.rows[:each]))[:most]
    effects = [{row.name: row.effect for row in group.rows} for group in contrasts.groups]
    values = np.array([[effect[name] for effect in effects] for name in names])
    wide = len(contrasts.groups)
    drawn, axes = _figure(4.2 + 0.42 * wide, 1.9 + 0.24 * len(names), "What sets the groups apart")
    from matplotlib.colors import CenteredNorm, LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("pellucid", [AGAINST, NEUTRAL, FOR])
    reach = float(np.abs(values).max(initial=0.0)) or 1.0
    image = axes.imshow(values, cmap=colours, norm=CenteredNorm(0.0, reach), aspect="auto")
    options: dict[str, Any] = {"fontsize": 8.5, "parse_math": False}
    groups = [_name(group.group, 22) for group in contrasts.groups]
    axes.set_xticks(range(wide), groups, rotation=45, ha="right", rotation_mode="anchor", **options)
    axes.set_yticks(range(len(names)), [_name(name) for name in names], **options)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(1, wide) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(names)) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="minor", length=0)
    bar = drawn.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
    bar.set_label("effect, Cohen's d against all others", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return drawn
