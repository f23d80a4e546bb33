"""A corpus as points in the plane, in labelled clusters.

t-SNE puts similar texts side by side, KMeans makes clusters, and the words that set a cluster apart label it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.base import Embedder
from pellucid.embeddings import unit_rows
from pellucid.errors import InputError, require

LEAST_POINTS, MOST_POINTS = 10, 5000
_COMPONENTS = 50  # that t-SNE sees: as many keep the neighbours, and it is quicker
_PERPLEXITY = 30
_LABEL_WORDS = 4
_SAME = 1e-6  # rows of length 1 that differ by less are the same but for rounding


class Cluster(NamedTuple):
    """A cluster of the map: its label, the words and dimensions that set it apart, and how many texts it has."""

    label: str
    words: tuple[str, ...]
    dimensions: tuple[str, ...]
    texts: int


class CorpusMap(NamedTuple):
    """Points and clusters: float32 [texts, 2] from -1 to 1, and the number of the cluster of each text."""

    points: Any
    clusters: tuple[Cluster, ...]
    members: list[int]


def corpus_map(model: Embedder, texts: Sequence[str], clusters: int = 8) -> CorpusMap:
    """Return texts as points in the plane, in clusters.

    Args:
        model: any family.
        texts: 10 to 5,000.
        clusters: how many, from 2 up; fewer where there are few texts.

    Raises:
        InputError: too few texts or too many.
        MissingExtraError: scikit-learn is not installed.
    """
    if not LEAST_POINTS <= len(texts) <= MOST_POINTS:
        raise InputError(f"a map of {len(texts):,} texts cannot be drawn; give {LEAST_POINTS} to {MOST_POINTS:,}")
    require("scikit-learn", "serve")
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.manifold import TSNE

    rows = unit_rows(model.encode(texts))
    width = min(_COMPONENTS, min(rows.shape) - 1)
    reduced = TruncatedSVD(width, random_state=0).fit_transform(rows) if width < rows.shape[1] else rows
    reduced = np.nan_to_num(reduced)  # of texts that are all the same
    found = KMeans(min(clusters, len(texts) // 2), n_init=1, random_state=0).fit_predict(reduced)
    points = np.zeros((len(texts), 2))
    if reduced.std(axis=0).max() > _SAME:  # else t-SNE divides by 0, and its tree of NaN ends the process
        perplexity = min(_PERPLEXITY, (len(texts) - 1) / 3)
        points = TSNE(2, perplexity=perplexity, init="pca", random_state=0, max_iter=500).fit_transform(reduced)
    points = (points - points.mean(axis=0)) / max(float(np.abs(points - points.mean(axis=0)).max()), 1e-9)
    known = np.asarray(abs(rows).sum(axis=1)).ravel() > 0
    named, members = _named(model, list(texts), found, known)
    return CorpusMap(points.astype(np.float32), named, members)


def _named(model: Embedder, texts: list[str], found: Any, known: Any) -> tuple[tuple[Cluster, ...], list[int]]:
    """Return the clusters, largest first, and the cluster of each text; words need two texts, one of them known."""
    from pellucid.analysis.groups import contrast

    counts = np.bincount(found)
    order = [int(number) for number in np.argsort(-counts, kind="stable") if counts[number]]
    members = [order.index(number) for number in found.tolist()]
    large = [place for place, number in enumerate(order) if counts[number] > 1 and known[found == number].any()]
    contrasts: dict[str, Any] = {}
    if len(large) > 1:
        groups = {str(place): [text for text, own in zip(texts, members) if own == place] for place in large}
        contrasts = {found.group: found for found in contrast(model, groups, examples=3)}
    named = []
    for place, number in enumerate(order):
        apart = contrasts.get(str(place))
        words = () if apart is None else tuple(word.word for word in apart.words[:8])
        names = () if apart is None else tuple(row.name for row in apart.rows[:5])
        label = ", ".join((words or names)[:_LABEL_WORDS]) or f"cluster {place + 1}"
        named.append(Cluster(label, words, names, int(counts[number])))
    return tuple(named), members
