"""Pictures of what is inside a static model: matplotlib Figures that the caller shows or saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import missing_extra
from pellucid.views.plot import AGAINST, FOR
from pellucid.views.render import shorten, visible
from pellucid.views.report import counted, percent, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pellucid.research.components import Component, Components
    from pellucid.research.language_separation import LanguageSeparation
    from pellucid.research.norms import RankNorms, TagNorms


_GREY = "#8c8c8c"
_SERIES = (FOR, AGAINST, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by colour-blind eyes
_MOST_COMPONENTS = 6  # drawn with their words
_SCREE = 30  # components in the picture of the variance
_NAMED = 12  # words with their name beside them


def _canvas(size: tuple[float, float], title: str, below: str) -> Figure:
    """Return an empty picture with its heading.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot") from error
    drawn = Figure(figsize=size, layout="constrained")
    heading = f"{shorten(visible(title), 90)}\n{shorten(visible(below), 120)}"
    drawn.suptitle(heading, x=0.01, ha="left", fontsize=10.5, parse_math=False)
    return drawn


def _tidy(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return axes


def component_words(found: Components) -> Figure:
    """Draw the explained variance on the left, and for each component the words at its ends as bars."""
    shown = found.components[:_MOST_COMPONENTS]
    ends = max((len(c.largest) for c in shown), default=1)
    size = (3.4 + 2.6 * len(shown), max(3.2, 1.4 + 0.44 * ends))
    drawn = _canvas(size, f"Principal components of {found.of}", f"{found.vectors:,} vectors")
    panels = drawn.subplots(1, 1 + len(shown), squeeze=False)[0]
    shares = 100 * np.array(found.shares[:_SCREE])
    axes = _tidy(panels[0])
    axes.bar(range(1, len(shares) + 1), shares, color=_GREY)
    for component in shown:
        if component.number <= len(shares):
            axes.bar(component.number, shares[component.number - 1], color=FOR)
    axes.set_xlabel("component", fontsize=9)
    axes.set_ylabel("% of the variance", fontsize=9)
    for axes, component in zip(panels[1:], shown, strict=True):
        _draw_ends(_tidy(axes), component)
    return drawn


def _draw_ends(axes: Axes, component: Component) -> None:
    words = [*component.largest, *reversed(component.smallest)]
    values = [word.value for word in words]
    axes.barh(
        range(len(words)), values, color=[FOR if n < len(component.largest) else AGAINST for n in range(len(words))]
    )
    names = [shorten(visible(word.word), 18) for word in words]
    axes.set_yticks(range(len(words)), names, fontsize=8.5, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.axhline(len(component.largest) - 0.5, color=_GREY, linewidth=0.6, linestyle=(0, (4, 3)))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"PC{component.number}, {percent(component.share)}", fontsize=9.5, loc="left")


def tag_bars(found: TagNorms) -> Figure:
    """Draw the mean length of each part of speech relative to the largest, with its words."""
    below = f"{counted(found.words, 'word')}; mean length, relative to the largest; the number of words behind the bar"
    drawn = _canvas((6.8, 1.3 + 0.3 * len(found.tags)), "Vector length by part of speech", below)
    axes = _tidy(drawn.add_subplot())
    places = range(len(found.tags))
    bars = axes.barh(places, [tag.relative for tag in found.tags], color=FOR)
    axes.bar_label(bars, [f"{tag.relative:.2f}  ({tag.words:,})" for tag in found.tags], padding=4, fontsize=8)
    names = [shorten(visible(tag.tag), 28) for tag in found.tags]
    axes.set_yticks(places, names, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18)
    axes.set_xlabel("mean length of a vector / that of the longest part of speech", fontsize=9)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return drawn


def rank_scatter(found: RankNorms) -> Figure:
    """Draw length against rank, the ranks on a logarithmic axis, with the mean of each band as a step."""
    below = f"{counted(found.words, 'word')}; Spearman's correlation with the rank {signed(found.correlation)}"
    drawn = _canvas((7.2, 4.0), "Vector length by frequency rank", below)
    axes = _tidy(drawn.add_subplot())
    ranks = [point.rank for point in found.points]
    axes.scatter(ranks, [point.norm for point in found.points], s=9, color=FOR, alpha=0.45, linewidths=0)
    for number, band in enumerate(found.bands):
        label = "mean of the band" if number == 0 else None
        axes.plot([band.first, band.last], [band.mean] * 2, color=AGAINST, linewidth=2.2, label=label)
    halo = {"boxstyle": "round,pad=0.1", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
    for point in _spread_out(found):
        axes.scatter([point.rank], [point.norm], s=14, color="black", zorder=3)
        axes.annotate(shorten(visible(point.word), 16), (point.rank, point.norm), xytext=(5, 4), bbox=halo,
                      textcoords="offset points", fontsize=8, parse_math=False, zorder=3)  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("frequency rank, 1 is the most frequent", fontsize=9)
    axes.set_ylabel("length of the vector", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return drawn


def _spread_out(found: RankNorms) -> list[Any]:
    """Return a few words evenly apart on the logarithmic axis."""
    marks = np.geomspace(1, max(found.words, 1), _NAMED)
    ranks = np.array([point.rank for point in found.points])
    chosen = dict.fromkeys(int(np.abs(ranks - mark).argmin()) for mark in marks)
    return [found.points[n] for n in chosen]


def language_maps(found: LanguageSeparation) -> Figure:
    """Draw the first two components, then the map of all items before and after some components are left out."""
    before, after = (found.components[n].silhouette for n in (0, found.drop))
    how = "t-SNE" if found.projection == "tsne" else "PCA"
    panels: list[tuple[str, str, str, str]] = [("PC1 and PC2", "PC1", "PC2", "first")]
    if found.projection == "tsne":
        panels.append((f"t-SNE, as it is: silhouette {before:.3f}", "", "", "before"))
    else:
        panels[0] = (f"PC1 and PC2, as it is: silhouette {before:.3f}", "PC1", "PC2", "first")
    ends = ("", "") if found.projection == "tsne" else (f"PC{found.drop + 1}", f"PC{found.drop + 2}")
    panels.append((f"{how} without PC1 to PC{found.drop}: silhouette {after:.3f}", *ends, "after"))
    items = ", ".join(f"{count:,} {name}" for name, count in zip(found.languages, found.counts, strict=True))
    drawn = _canvas((4.3 * len(panels), 4.6), f"Languages apart: {', '.join(found.languages)}", items)
    for axes, (title, across, up, name) in zip(drawn.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for number, language in enumerate(found.languages):
            places = np.array([getattr(point, name) for point in found.points if point.language == language])
            colour = _SERIES[number % len(_SERIES)]
            axes.scatter(*places.T, s=7, color=colour, alpha=0.5, linewidths=0, label=shorten(visible(language), 20))
        _tidy(axes).set_title(title, fontsize=9.5, loc="left")
        axes.set_xlabel(across, fontsize=9)
        axes.set_ylabel(up, fontsize=9)
        if not across:
            axes.set_xticks([])
            axes.set_yticks([])
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    legend = drawn.legend(
        handles, labels, loc="outside lower center", ncols=6, fontsize=9, frameon=False, markerscale=2.5
    )
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)
    return drawn
