"""How far a static model of several languages keeps them apart, after the paper's section 5.2 (Figures 1, 5, 6).

There the first principal components separate the languages, and leaving them out ("all but the top") brings
translations together. Here that is measured by the silhouette score, which is 1 for separate clusters and 0 for mixed
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from pellucid.errors import InputError
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder

_LEAST = 3  # items of a language


def silhouette(
    model: StaticEmbedder, languages: Mapping[str, Iterable[str]], *, sample: int = 1_000, seed: int = 0
) -> float:
    """Return the silhouette score, by cosine, of the languages of words or sentences.

    Args:
        model: a static model of several languages.
        languages: for each its words or sentences. A string in the lists of several is left out, as in the paper.
        sample: compare so many of each language at most, drawn at random.
        seed: of the draw.

    Raises:
        InputError: a language has fewer than three known items of its own.
    """
    from sklearn.metrics import silhouette_score

    items = {name: list(dict.fromkeys(text.strip() for text in texts)) for name, texts in languages.items()}
    lists = Counter(text for texts in items.values() for text in texts)
    vectors, generator, rows = model.word_vectors(np.arange(len(model.vocabulary))), np.random.default_rng(seed), []
    for name, texts in items.items():
        bags = Bags.from_sentences([text for text in texts if text and lists[text] == 1], model.vocabulary)
        means = bags.take(np.flatnonzero(np.diff(bags.offsets))).means(vectors)
        if len(means) < _LEAST:
            raise InputError(
                f"language {name!r} has {len(means)} items of its own that the model knows, of {len(texts)}"
            )
        rows.append(means[np.sort(generator.permutation(len(means))[:sample])])
    labels = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
    return float(silhouette_score(np.concatenate(rows), labels, metric="cosine"))
