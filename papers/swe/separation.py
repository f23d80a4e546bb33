"""How far a static model of several languages keeps them apart, after the paper's section 5.2 (Figures 1, 5, 6).

There the first principal components separate the languages, and leaving them out ("all but the top") brings
translations together. Here that is measured: how much of each component is between languages, and the silhouette
score, which is 1 for separate clusters and 0 for mixed ones, as components are left out one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from papers.spectra import project, shares
from papers.swe.components import mean_blocks
from pellucid.analysis.coordinates import Floats, Integers
from pellucid.core.embedder import Vectors
from pellucid.core.pca import spectrum_of
from pellucid.errors import InputError
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, numbers, percent, signed
from pellucid.explain.views.report import Report
from pellucid.static.embedder import StaticEmbedder, static_model

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


@dataclass(frozen=True, repr=False)
class LanguageSeparation(Report):
    """How far a model keeps languages apart.

    Attributes:
        languages: their names.
        counts: items of each that were compared.
        shared: items left out because several languages have them.
        blank: items left out because the model knows none of their words.
        drop: components left out "after".
        metric: of the silhouette.
        components: first the vectors as they are (number 0), then the first components.
    """

    kind: ClassVar[str] = "languages"
    table: ClassVar[str] = "components"

    languages: tuple[str, ...]
    counts: tuple[int, ...]
    shared: int
    blank: int
    drop: int
    metric: str
    components: tuple[LanguageComponent, ...]

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
        seed: of the draw.

    Raises:
        InputError: the model is not static, fewer than two languages, or one with fewer than three known items.
    """
    static_model(model, "comparing languages")
    _check(languages, drop, model.get_embedding_dimension(), metric)
    items, shared = _unshared(languages)
    labels, vectors, blank = _sampled(model, items, sample, seed)
    spectrum = spectrum_of(vectors, centred=True)
    coordinates = project(spectrum, vectors - spectrum.mean)
    rows = [LanguageComponent(0, 1.0, _between(coordinates, labels), _silhouette(vectors, labels, metric))]
    for number in range(1, drop + 1):
        column, rest = coordinates[:, number - 1 : number], coordinates[:, number:]
        rows.append(
            LanguageComponent(number, float(shares(spectrum)[number - 1]), _between(column, labels),
                              _silhouette(rest, labels, metric))
        )  # fmt: skip
    counts = tuple(np.bincount(labels, minlength=len(items)).tolist())
    return LanguageSeparation(tuple(items), counts, shared, blank, drop, metric, tuple(rows))


def _check(languages: Mapping[str, Any], drop: int, width: int, metric: str) -> None:
    if len(languages) < 2:
        raise InputError(f"{len(languages)} language given; at least two are needed")
    if not 1 <= drop <= width - 2:
        raise InputError(f"drop is {drop}; this model allows 1 to {width - 2}")
    if metric not in METRICS:
        raise InputError(f"metric {metric!r:.40} is unknown; known are {' and '.join(METRICS)}")


def _unshared(languages: Mapping[str, Iterable[str]]) -> tuple[dict[str, list[str]], int]:
    """Return the distinct items that only one language has, and how many others there are."""
    items = {name: list(dict.fromkeys(text.strip() for text in texts)) for name, texts in languages.items()}
    lists = Counter(text for texts in items.values() for text in texts)
    own = {name: [text for text in texts if text and lists[text] == 1] for name, texts in items.items()}
    return own, sum(count > 1 for text, count in lists.items() if text)


def _sampled(
    model: StaticEmbedder, items: Mapping[str, list[str]], sample: int, seed: int
) -> tuple[Integers, Vectors, int]:
    """Return the language of each text drawn, its mean, and how many texts the model does not know."""
    generator = np.random.default_rng(seed)
    labels: list[int] = []
    parts: list[Vectors] = []
    blank = 0
    for number, (name, every) in enumerate(items.items()):
        means = np.concatenate([np.zeros((0, model.get_embedding_dimension()), np.float32),
                                *(rows for _, rows in mean_blocks(model, every))])  # fmt: skip
        blank += len(every) - len(means)
        if len(means) < _LEAST:
            raise InputError(
                f"language {name!r} has {len(means)} items of its own that the model knows, of {len(every)}; "
                f"at least {_LEAST} are needed"
            )
        chosen = np.sort(generator.permutation(len(means))[: max(sample, _LEAST)])
        parts.append(means[chosen])
        labels += [number] * len(chosen)
    return np.array(labels, np.int64), np.concatenate(parts), blank


def _between(coordinates: Floats, labels: Integers) -> float:
    """Return the share of the squared length of centred rows that is between the means of the groups."""
    total = float((coordinates**2).sum())
    means = [coordinates[labels == n].mean(axis=0) * np.sqrt((labels == n).sum()) for n in range(labels.max() + 1)]
    return float((np.array(means) ** 2).sum()) / total if total > 0 else 0.0


def _silhouette(rows: Any, labels: Integers, metric: str) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(rows, labels, metric=metric))
