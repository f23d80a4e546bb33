"""Clusters of a language model's vocabulary: the dimensions of a lexicon embedding (LENS paper, section 3.2.1).

A vocabulary has many tokens for one meaning: `review`, `Review`, `reviews`, and the token `Rev`. KMeans over the rows
of the model's output head, or of its input embeddings if these are the head, puts such tokens together. The centroids
take the place of the head, and each cluster is a dimension, named after its best-formed words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.core import arrays
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.errors import InputError, check_integer, check_seed, importing
from pellucid.process import cached_property, ignored_warnings
from pellucid.transformer.tokenwords import Rank, Token, tokens_of_rows, unused_name

_NAMED_BY = 3  # words


@dataclass(frozen=True, eq=False)
class Clusters:
    """Groups of tokens, each with a centroid, a name and its words.

    Attributes:
        assignment: int64 [vocabulary], the cluster of each token; -1 where it has none (special tokens, placeholders,
            lone bytes, spare rows of the head).
        centroids: float32 [k, d], the rows of the new head.
        names: k different names, each up to three of the cluster's best-formed words.
        words: for each cluster its tokens as a reader sees them, best-formed first, then nearest to the centroid;
            what occurs inside words comes last, with an ellipsis (`…bed`).
    """

    assignment: npt.NDArray[np.int64]
    centroids: npt.NDArray[np.float32]
    names: list[str]
    words: list[tuple[str, ...]]

    def __post_init__(self) -> None:
        """Check that the parts fit together.

        Raises:
            InputError: they do not.
        """
        k = len(self.centroids)
        if self.centroids.ndim != 2 or not len(self.names) == len(self.words) == k:
            raise InputError(
                f"{len(self.names)} names and {len(self.words)} lists of words for "
                f"centroids {list(self.centroids.shape)}; each cluster has one of each"
            )
        used = self.assignment
        if used.ndim != 1 or used.dtype != np.int64 or (used.size and not -1 <= used.min() <= used.max() < k):
            raise InputError(f"the assignment must be int64 [vocabulary] of clusters -1 to {k - 1}")
        _ = self.dimensions  # checks that names are neither empty nor used twice

    def __len__(self) -> int:
        """Return the number of clusters, k."""
        return len(self.centroids)

    @cached_property
    def dimensions(self) -> Dimensions:
        """The clusters as dimensions: name and words."""
        return Dimensions(Dimension(name, words) for name, words in zip(self.names, self.words))

    def take(self, chosen: npt.NDArray[np.int64]) -> Clusters:
        """Return some of the clusters, in that order; tokens of the others have none."""
        number = np.full(len(self) + 1, -1, np.int64)  # the last cell is for tokens in no cluster, -1
        number[chosen] = np.arange(len(chosen))
        return replace(
            self,
            assignment=number[self.assignment],
            centroids=self.centroids[chosen],
            names=[self.names[n] for n in chosen],
            words=[self.words[n] for n in chosen],
        )


def cluster_vocabulary(
    rows: Any,
    tokenizer: Any,
    k: int | None,
    *,
    unit_rows: bool = True,
    iterations: int = 50,
    seed: int = 0,
) -> Clusters:
    """Group the tokens of a vocabulary by KMeans over their rows.

    Special tokens, placeholders (`[unused7]`), lone bytes and spare rows are left out; the paper's code gives them to
    the nearest cluster.

    Args:
        rows: the output head's weight, or the input embeddings where they are tied, [vocabulary, d]; array or tensor.
        tokenizer: of transformers or tokenizers, or the list of token strings in order of the rows.
        k: how many clusters (the paper: 4,000 and 8,000 of 32,000 tokens); None makes each token a cluster.
        unit_rows: group by direction only. False groups the rows as they are, as the paper does: rare tokens, whose
            rows are short, then fall together into one large cluster. Centroids are means of the rows as they are
            in both cases.
        iterations: of KMeans at most.
        seed: of the first centroids, rows drawn at random.

    Raises:
        InputError: k is not between 1 and the number of different rows, the rows are not finite, or tokenizer and
            head do not belong together.
        MissingExtraError: scikit-learn is not installed.
    """
    from scipy.sparse import csr_array

    check_seed(seed)
    rows = head_matrix(rows)
    _, tokens = tokens_of_rows(len(rows), tokenizer)
    clustered = np.array([row for row, token in enumerate(tokens) if token.rank < Rank.NONE], np.int64)
    assignment = np.full(len(rows), -1, np.int64)
    if k is None:
        assignment[clustered] = np.arange(len(clustered))
        return named_clusters(assignment, rows[clustered], rows, tokens)
    chosen = rows[clustered]
    check_integer("k", k, optional=True)
    different = len({row.tobytes() for row in chosen}) if k <= len(chosen) else len(chosen)
    if k > different:
        raise InputError(
            f"{k:,} clusters cannot be made of {different:,} different tokens with text; "
            "take fewer, or None for no clustering"
        )
    assignment[clustered] = labels = _kmeans(arrays.l2_normalize(chosen) if unit_rows else chosen, k, iterations, seed)
    counts = np.bincount(labels, minlength=k)
    members = csr_array((np.ones(len(chosen), np.float32), (labels, np.arange(len(chosen)))), shape=(k, len(chosen)))
    means: npt.NDArray[np.float32] = (members @ chosen / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return named_clusters(assignment, means, rows, tokens)


def head_matrix(rows: Any) -> npt.NDArray[np.float32]:
    """Return the rows of a head as float32 [vocabulary, d], after checking that they are finite."""
    if hasattr(rows, "detach"):
        rows = rows.detach().float().cpu().numpy()
    array = np.asarray(rows, np.float32)
    if array.ndim != 2 or not array.size:
        raise InputError(f"a head is a matrix [vocabulary, d], got shape {list(array.shape)}")
    broken = ~np.isfinite(array).all(axis=1)
    if broken.any():
        raise InputError(f"{int(broken.sum())} rows hold NaN or infinity, the first is row {int(broken.argmax())}")
    return array


def _kmeans(rows: npt.NDArray[np.float32], k: int, iterations: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the cluster of each row. First centroids are random rows: with thousands, kmeans++ costs far more."""
    with importing("torch", "scikit-learn"):
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
    with ignored_warnings(ConvergenceWarning):  # rows at the same direction; `report` lists dead clusters
        fitted = KMeans(k, init="random", n_init=1, max_iter=iterations, random_state=seed).fit(rows)
    return np.asarray(fitted.labels_, np.int64)


def named_clusters(
    assignment: npt.NDArray[np.int64],
    centroids: npt.NDArray[np.float32],
    rows: npt.NDArray[np.float32],
    tokens: Sequence[Token],
) -> Clusters:
    """Return clusters with words and names, of the cluster of each row (-1 for none) and how its token reads."""
    clustered = np.flatnonzero(assignment >= 0)
    distances = np.zeros(len(rows), np.float32)
    distances[clustered] = np.linalg.norm(rows[clustered] - centroids[assignment[clustered]], axis=1)
    members: list[list[Token]] = [[] for _ in centroids]
    for index in sorted(clustered.tolist(), key=lambda index: (tokens[index].rank, distances[index], index)):
        members[assignment[index]].append(tokens[index])
    names, used_names = [""] * len(members), set[str]()
    # Where two clusters would be called the same, the one with the better-formed words is; the other gets a number.
    for index in sorted(range(len(members)), key=lambda n: members[n][0].rank if members[n] else Rank.NONE):
        names[index] = unused_name(_plain_name(members[index]) or f"empty cluster {index}", used_names)
    return Clusters(assignment, centroids, names, [tuple(dict.fromkeys(t.text for t in m)) for m in members])


def _plain_name(members: Sequence[Token]) -> str:
    """Join up to three of the best-formed words; those that differ only in case once, in lower case if there is one."""
    spellings: dict[str, str] = {}
    for token in members:
        if token.rank == members[0].rank:
            folded = token.text.casefold()
            spellings[folded] = token.text if token.text == folded else spellings.get(folded, token.text)
    return ", ".join(list(spellings.values())[:_NAMED_BY])
