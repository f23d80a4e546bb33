"""What anchor models are compared with: their coordinates thresholded to yes and no, bag of words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.local_tasks import NamedEncoder, read_records
from papers.vector_cache import Vectors, unit_rows
from pellucid.evaluation.tasks import LocalTask, read_sts, read_table


@dataclass(frozen=True)
class Coordinates:
    """A map from an encoder's unit rows to coordinates; what `pellucid.evaluate` calls a model.

    Attributes:
        encoder: list of texts -> rows.
        matrix: float32 [n, d]: the anchors, or what a variant makes of them.
        offset: float32 [n], subtracted from the products.
        rule: "" leaves them; "top tenth" gives 1 to the greatest tenth of a row and 0 to the others; "positive" 1 where
            above 0; "cubed" their third power.
    """

    encoder: Callable[[list[str]], Vectors]
    matrix: Vectors
    offset: Vectors | float = 0.0
    rule: str = ""

    def apply(self, rows: Vectors) -> Vectors:
        """Return the coordinates [texts, n] of unit rows [texts, d]."""
        values: Vectors = (rows @ self.matrix.T - self.offset).astype(np.float32)
        if self.rule == "top tenth":
            return top_tenth(values)
        if self.rule == "positive":
            return (values > 0).astype(np.float32)
        return values**3 if self.rule == "cubed" else values

    def encode(self, texts: list[str]) -> Vectors:
        """Return the coordinates of texts, float32 [texts, n]."""
        return self.apply(unit_rows(self.encoder(list(texts))))

    def save_pretrained(self, path: str | Path) -> None:
        """Write all that decides the coordinates, for `evaluate` to tell models apart by."""
        folder = Path(path)
        folder.mkdir(parents=True)
        np.save(folder / "matrix.npy", self.matrix)
        np.save(folder / "offset.npy", np.asarray(self.offset, np.float32))
        name = getattr(self.encoder, "name", "")
        (folder / "settings.json").write_text(json.dumps({"encoder": name, "rule": self.rule}))


def top_tenth(values: Vectors) -> Vectors:
    """Return 1 for the greatest tenth of each row's values (LDIR's cognitive-load variant: 20 of 200, 50 of 500)."""
    count = max(1, values.shape[1] // 10)
    best = np.argpartition(-values, count - 1, axis=1)[:, :count]
    binary = np.zeros(values.shape, np.float32)
    np.put_along_axis(binary, best, 1.0, axis=1)
    return binary


def cognitive_load(model: Coordinates, task: LocalTask) -> float:
    """Return the mean number of dimensions that are 1 in both texts of a pair (QAEmb's and LDIR's cognitive load)."""
    pairs = read_sts(task)
    return float((model.encode(pairs.sentences1) * model.encode(pairs.sentences2)).sum(axis=1).mean())


# --- Words ------------------------------------------------------------------------------------------------------------


def bag_of_words(texts: list[str]) -> NamedEncoder:
    """Return counts of the words of `texts`, lower case, two letters or more; sparse float32 [texts, words]."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(dtype=np.float32).fit(texts)
    return NamedEncoder("\n".join(counter.get_feature_names_out()), counter.transform)


def texts_of(task: LocalTask) -> list[str]:
    """Return all texts of an STS, retrieval or clustering set."""
    if task.kind == "STS":
        pairs = read_sts(task)
        return pairs.sentences1 + pairs.sentences2
    if task.kind == "Clustering":
        return read_table(task.file("test.tsv"), ["text"])["text"]
    records = [r for name in ("corpus.jsonl", "queries.jsonl") for r in read_records(task.file(name), ["_id", "text"])]
    return [f"{record.get('title') or ''} {record['text']}" for record in records]


# --- What may be made of anchors --------------------------------------------------------------------------------------


def decorrelated(anchors: Vectors, strength: float) -> Vectors:
    """Return (A A')^(-strength/2) A; what `AnchorEmbedder.decorrelate` does, up to a factor."""
    left, sizes, right = np.linalg.svd(anchors.astype(np.float64), full_matrices=False)
    known = sizes > sizes.max() * 1e-6
    result: Vectors = ((left[:, known] * sizes[known] ** (1 - strength)) @ right[known]).astype(np.float32)
    return result


Maker = Callable[[Callable[[list[str]], Vectors], Vectors, Vectors], Coordinates]
"""Encoder, anchors [n, d] and a sample of corpus rows [N, d] at length 1 -> coordinates."""


def centred(encoder: Any, anchors: Vectors, sample: Vectors) -> Coordinates:
    """Subtract each coordinate's mean over the corpus."""
    return Coordinates(encoder, anchors, anchors @ sample.mean(axis=0))


def weighted(encoder: Any, anchors: Vectors, sample: Vectors) -> Coordinates:
    """Divide each coordinate by its standard deviation over the corpus."""
    return Coordinates(encoder, anchors / (sample @ anchors.T).std(axis=0)[:, None])


def standardised(encoder: Any, anchors: Vectors, sample: Vectors) -> Coordinates:
    """Both: mean 0 and deviation 1 over the corpus."""
    scaled = weighted(encoder, anchors, sample).matrix
    return Coordinates(encoder, scaled, scaled @ sample.mean(axis=0))


def whitened(encoder: Any, anchors: Vectors, sample: Vectors) -> Coordinates:
    """Make the coordinates uncorrelated over the corpus (ZCA: the nearest such), mean 0."""
    values = sample @ anchors.T
    variances, axes = np.linalg.eigh(np.cov(values.T.astype(np.float64)))
    known = variances > variances.max() * 1e-5
    mixing: npt.NDArray[np.float64] = (axes[:, known] / np.sqrt(variances[known])) @ axes[:, known].T
    matrix = (mixing @ anchors).astype(np.float32)
    return Coordinates(encoder, matrix, matrix @ sample.mean(axis=0))


def binary_by_median(encoder: Any, anchors: Vectors, sample: Vectors) -> Coordinates:
    """1 where a coordinate is above its median over the corpus, else 0."""
    return Coordinates(encoder, anchors, np.median(sample @ anchors.T, axis=0), "positive")


PLAIN = "as they are"
BINARY = ("0/1: greatest tenth", "0/1: above the median")
VARIANTS: dict[str, Maker] = {
    PLAIN: lambda encoder, anchors, sample: Coordinates(encoder, anchors),
    **{
        f"decorrelated, strength {strength:g}": lambda encoder, anchors, _, strength=strength: Coordinates(
            encoder, decorrelated(anchors, strength)
        )
        for strength in (0.25, 0.5, 0.75, 1.0)
    },
    "centred": centred,
    "divided by their deviation": weighted,
    "standardised": standardised,
    "whitened on the corpus": whitened,
    "cubed": lambda encoder, anchors, _: Coordinates(encoder, anchors, rule="cubed"),
    BINARY[0]: lambda encoder, anchors, _: Coordinates(encoder, anchors, rule="top tenth"),
    BINARY[1]: binary_by_median,
}
"""Name -> what it makes of anchors."""
