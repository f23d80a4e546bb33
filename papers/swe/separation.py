"""How far a static model of several languages keeps them apart, after the paper's section 5.2 (Figures 1, 5, 6).

There the first principal components separate the languages, and leaving them out ("all but the top") brings
translations together. Here that is measured: how much of each component is between languages, and the silhouette
score, which is 1 for separate clusters and 0 for mixed ones, as components are left out one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from papers.spectra import project, shares
from papers.swe.components import mean_blocks
from pellucid.analysis.coordinates import Floats, Integers
from pellucid.core.embedder import Vectors
from pellucid.core.pca import spectrum_of
from pellucid.errors import InputError, missing_extra
from pellucid.explain.views.figure import Canvas, short_name
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.static.embedder import StaticEmbedder, static_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


METRICS = ("cosine", "euclidean")
_LEAST = 3  # items of a language


class LanguageComponent(NamedTuple):
    """What one principal component says of the language, and the silhouette without it.

    Attributes:
        number: 1 for the first; 0 for the vectors as they are.
        share: of the variance; for 0 of all components, 1.
        between: share of the component's variance between the languages (eta squared).
        silhouette: once this component and those before it are left out.
    """

    number: int
    share: float
    between: float
    silhouette: float


class PlacedText(NamedTuple):
    """A word or sentence in the pictures.

    Attributes:
        text: the word or sentence.
        language: its language.
        first: its place on the first two components.
        before: its place in the map of the vectors as they are.
        after: its place in the map without the first components.
    """

    text: str
    language: str
    first: tuple[float, float]
    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True, repr=False)
class LanguageSeparation(Report):
    """How far a model keeps languages apart.

    Attributes:
        languages: their names.
        counts: items of each that were compared.
        shared: items left out because several languages have them.
        blank: items left out because the model knows none of their words.
        drop: components left out "after".
        metric: of the silhouette and of t-SNE.
        projection: of the map, "pca" or "tsne".
        components: first the vectors as they are (number 0), then the first components.
        points: every item.
    """

    kind: ClassVar[str] = "languages"
    table: ClassVar[str] = "components"

    languages: tuple[str, ...]
    counts: tuple[int, ...]
    shared: int
    blank: int
    drop: int
    metric: str
    projection: str
    components: tuple[LanguageComponent, ...]
    points: tuple[PlacedText, ...]

    def plot(self, *, dark: bool = False) -> Figure:
        """Draw the items by language: on the first two components, and as a map before and after leaving some out."""
        before, after = (self.components[n].silhouette for n in (0, self.drop))
        mapped = self.projection == "tsne"
        first = "PC1 and PC2" if mapped else f"PC1 and PC2, as it is: silhouette {before:.3f}"
        panels = [(first, "PC1", "PC2", "first")]
        if mapped:
            panels.append((f"t-SNE, as it is: silhouette {before:.3f}", "", "", "before"))
        ends = ("", "") if mapped else (f"PC{self.drop + 1}", f"PC{self.drop + 2}")
        how = "t-SNE" if mapped else "PCA"
        panels.append((f"{how} without PC1 to PC{self.drop}: silhouette {after:.3f}", *ends, "after"))
        items = ", ".join(f"{count:,} {language}" for language, count in zip(self.languages, self.counts, strict=True))
        title = f"Languages apart: {', '.join(self.languages)}"
        canvas = Canvas((4.3 * len(panels), 4.8), title, items, dark=dark)
        for number, (said, across, down, places) in enumerate(panels, 1):
            axes = canvas.panel((1, len(panels), number), said, across, down)
            self._draw_points(canvas, axes, places)
            if not across:
                axes.set(xticks=[], yticks=[])
        handles, labels = canvas.figure.axes[0].get_legend_handles_labels()
        legend = canvas.figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=9, frameon=False,
                                      markerscale=2.5, labelcolor=canvas.colours.ink)  # fmt: skip
        for handle in filter(None, legend.legend_handles):
            handle.set_alpha(1.0)
        return canvas.figure

    def _draw_points(self, canvas: Canvas, axes: Axes, places: str) -> None:
        """Draw the points of each language in its colour; `places` names the coordinates of a point."""
        for number, language in enumerate(self.languages):
            found = np.array([getattr(point, places) for point in self.points if point.language == language])
            colour = canvas.colours.series[number % len(canvas.colours.series)]
            axes.scatter(
                found[:, 0], found[:, 1], s=7, color=colour, alpha=0.5, linewidths=0, label=short_name(language, 20)
            )

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Languages apart", ", ".join(self.languages), "static model")
        items = ", ".join(f"{count:,} {name}" for name, count in zip(self.languages, self.counts, strict=True))
        before, after = (self.components[n].silhouette for n in (0, self.drop))
        yield Note(
            f"{items}; {counted(self.shared, 'item')} of several languages and {self.blank:,} unknown ones left out."
        )
        parts = self.components[0].between
        yield Note(
            f"Silhouette ({self.metric}): {before:.3f} as it is, {after:.3f} without the first {self.drop} components. "
            f"{percent(parts)} of all variance is between the languages."
        )
        heads = [*numbers("without the first", "variance of it", "between languages"), ("", "bar")]
        rows: list[tuple[Any, ...]] = [("0 (as it is)", "", "", None, signed(self.components[0].silhouette))]
        rows += [
            (str(c.number), percent(c.share), percent(c.between), c.between, signed(c.silhouette))
            for c in self.components
            if c.number
        ]
        yield TablePart.of("", [*heads, *numbers("silhouette")], rows)


def language_separation(
    model: StaticEmbedder,
    languages: Mapping[str, Iterable[str]],
    *,
    drop: int = 7,
    sample: int = 1_000,
    metric: str = "cosine",
    projection: str = "pca",
    seed: int = 0,
) -> LanguageSeparation:
    """Measure how far a static model keeps languages apart, and what its first components have to do with it.

    Args:
        model: a static model of several languages; one made with `PcaSettings(level="none")` shows what "all but the
            top" takes away.
        languages: for each its words or sentences. A string in the lists of several is left out, as in the paper.
        drop: first components to leave out, one after the other.
        sample: compare so many of each language at most, drawn at random.
        metric: "cosine" or "euclidean".
        projection: of the map, "pca" (the next two components) or "tsne" (seconds for 2,000 items).
        seed: of the draw and of t-SNE.

    Raises:
        InputError: the model is not static, fewer than two languages, or one with fewer than three known items.
        MissingExtraError: scikit-learn is not installed.
    """
    static_model(model, "comparing languages")
    _check(languages, drop, model.get_embedding_dimension(), metric, projection)
    items, shared = _unshared(languages)
    texts, labels, vectors, blank = _sampled(model, items, sample, seed)
    spectrum = spectrum_of(vectors, centred=True)
    coordinates = project(spectrum, vectors - spectrum.mean)
    rows = [LanguageComponent(0, 1.0, _between(coordinates, labels), _silhouette(vectors, labels, metric))]
    for number in range(1, drop + 1):
        column, rest = coordinates[:, number - 1 : number], coordinates[:, number:]
        rows.append(
            LanguageComponent(number, float(shares(spectrum)[number - 1]), _between(column, labels),
                              _silhouette(rest, labels, metric))
        )  # fmt: skip
    before, after = _maps(vectors, coordinates, drop, metric, projection, seed)
    names = list(items)
    planes = (coordinates[:, :2].tolist(), before.tolist(), after.tolist())
    points = tuple(
        PlacedText(text, names[label], tuple(a), tuple(b), tuple(c))
        for text, label, a, b, c in zip(texts, labels.tolist(), *planes, strict=True)
    )
    counts = tuple(np.bincount(labels, minlength=len(names)).tolist())
    return LanguageSeparation(tuple(names), counts, shared, blank, drop, metric, projection, tuple(rows), points)


def _check(languages: Mapping[str, Any], drop: int, width: int, metric: str, projection: str) -> None:
    if len(languages) < 2:
        raise InputError(f"{len(languages)} language given; at least two are needed")
    if not 1 <= drop <= width - 2:
        raise InputError(f"drop is {drop}; this model allows 1 to {width - 2}")
    if metric not in METRICS or projection not in ("pca", "tsne"):
        raise InputError(f"metric {metric!r:.40} or projection {projection!r:.40} is unknown: "
                         f"{' or '.join(METRICS)}, pca or tsne")  # fmt: skip


def _unshared(languages: Mapping[str, Iterable[str]]) -> tuple[dict[str, list[str]], int]:
    """Return the distinct items that only one language has, and how many others there are."""
    items = {name: list(dict.fromkeys(text.strip() for text in texts)) for name, texts in languages.items()}
    lists = Counter(text for texts in items.values() for text in texts)
    own = {name: [text for text in texts if text and lists[text] == 1] for name, texts in items.items()}
    return own, sum(count > 1 for text, count in lists.items() if text)


def _sampled(
    model: StaticEmbedder, items: Mapping[str, list[str]], sample: int, seed: int
) -> tuple[list[str], Integers, Vectors, int]:
    """Return texts, the number of their language, their means, and how many the model does not know."""
    generator = np.random.default_rng(seed)
    texts: list[str] = []
    labels: list[int] = []
    parts: list[Vectors] = []
    blank = 0
    for number, (name, every) in enumerate(items.items()):
        found = list(mean_blocks(model, every))
        known = [text for block, _ in found for text in block]
        blank += len(every) - len(known)
        if len(known) < _LEAST:
            raise InputError(
                f"language {name!r} has {len(known)} items of its own that the model knows, of {len(every)}; "
                f"at least {_LEAST} are needed"
            )
        chosen = np.sort(generator.permutation(len(known))[: max(sample, _LEAST)])
        texts += [known[n] for n in chosen.tolist()]
        parts.append(np.concatenate([means for _, means in found])[chosen])
        labels += [number] * len(chosen)
    return texts, np.array(labels, np.int64), np.concatenate(parts), blank


def _between(coordinates: Floats, labels: Integers) -> float:
    """Return the share of the squared length of centred rows that is between the means of the groups."""
    total = float((coordinates**2).sum())
    means = [coordinates[labels == n].mean(axis=0) * np.sqrt((labels == n).sum()) for n in range(labels.max() + 1)]
    return float((np.array(means) ** 2).sum()) / total if total > 0 else 0.0


def _silhouette(rows: Any, labels: Integers, metric: str) -> float:
    try:
        from sklearn.metrics import silhouette_score
    except ImportError as error:
        raise missing_extra("scikit-learn", "anchors") from error
    return float(silhouette_score(rows, labels, metric=metric))


def _maps(vectors: Vectors, coordinates: Floats, drop: int, metric: str, projection: str, seed: int) -> tuple[Any, Any]:
    """Return the plane of all items before and after `drop` components are left out, each [n, 2]."""
    rest = coordinates[:, drop:]
    if projection == "pca":
        return coordinates[:, :2], rest[:, :2]
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, metric=metric, init="pca", random_state=seed, n_jobs=1)
    return tsne.fit_transform(np.ascontiguousarray(vectors)), tsne.fit_transform(np.ascontiguousarray(rest))
