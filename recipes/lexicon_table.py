"""The table of a static lexicon model: which clusters words fire, and how strongly, trained against a teacher.

`fired_clusters` reads a lexicon model's head at the mean state of each word; `refine_clusters` trains the weights.
Which clusters a word may fire stays as it is, so that the clusters keep their meaning. `named_by_words` calls each by
the words that fire it most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.lexicon import Clusters
from pellucid.static import RefinementSettings
from pellucid.static.bags import Bags
from pellucid.static.training.tuning import PairBags, refine
from pellucid.text.words import Vocabulary

if TYPE_CHECKING:
    import torch

_BLOCK = 4_096  # words at a time
_NAMED_BY, _ABOUT = 3, 12  # words of a dimension


def fired_clusters(states: Vectors, clusters: Clusters, bias: Vectors | None = None, *, most: int = 48) -> Any:
    """Return which clusters some hidden states fire.

    Args:
        states: float32 [words, d], for instance the mean state of each word in sentences (`Extraction.vectors`).
        clusters: the head of a lexicon model of the same transformer.
        bias: the head's, [k].
        most: clusters of a word, the strongest.

    Returns:
        log(1 + relu(state · centroid + bias)), float32 CSR [words, k].

    Raises:
        InputError: the states are of another number of dimensions than the centroids, or `most` is below 1.
    """
    from scipy import sparse

    width = clusters.centroids.shape[1]
    if states.ndim != 2 or states.shape[1] != width or most < 1:
        raise InputError(f"states {list(states.shape)} and most={most}; give states [words, {width}] and 1 or more")
    parts = []
    for start in range(0, len(states), _BLOCK):
        logits = states[start : start + _BLOCK] @ clusters.centroids.T + (0 if bias is None else bias)
        kept = np.argpartition(-logits, min(most, len(clusters)) - 1, axis=1)[:, :most]
        fired = np.log1p(np.take_along_axis(logits, kept, axis=1).clip(0)).astype(np.float32)
        starts = np.arange(0, kept.size + 1, kept.shape[1])
        parts.append(sparse.csr_matrix((fired.ravel(), kept.ravel(), starts), shape=(len(logits), len(clusters))))
    rows = sparse.vstack([sparse.csr_matrix((0, len(clusters)), dtype=np.float32), *parts], format="csr")
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def refine_clusters(
    start: Any,
    bags: Bags,
    teacher_vectors: npt.NDArray[np.float16],
    settings: RefinementSettings,
    *,
    pairs: Sequence[PairBags] = (),
    show_progress_bar: bool = True,
) -> Any:
    """Return the weights of words for clusters, trained so that the cosines of sentences are the teacher's.

    A text is encoded as `StaticLexiconEmbedder` does. No word gets a cluster that it does not have in `start`; weights
    that would fall below 0 are left out.

    Args:
        start: SciPy sparse [words, k], weights of 0 or more.
        bags: the sentences as rows of `start`.
        teacher_vectors: [sentences, d], L2-normalised.
        settings: of the training; see `pellucid.static.training.tuning.refine`.
        pairs: texts that belong together, such as questions and answers.
        show_progress_bar: show a bar, counting steps.

    Returns:
        float32 CSR [words, k].

    Raises:
        CorpusError: fewer than two batches of sentences, or of a set of pairs, hold known words.
    """
    from scipy import sparse

    rows = sparse.csr_matrix(start, dtype=np.float32)
    rows.sort_indices()
    sizes = np.diff(rows.indptr)
    entry, slot = np.repeat(np.arange(len(sizes)), sizes), np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], sizes)
    weights = np.zeros((len(sizes), int(sizes.max(initial=1))), np.float32)
    columns = np.zeros(weights.shape, np.int64)
    weights[entry, slot], columns[entry, slot] = rows.data, rows.indices
    used = np.zeros(weights.shape, bool)
    used[entry, slot] = True
    scale = max(float(np.sqrt(np.mean(np.square(weights)))), 1e-12)  # `refine` divides by it
    trained = refine(
        weights, bags, teacher_vectors, settings, pairs=pairs, show_progress_bar=show_progress_bar,
        pooled=_Pool(columns, rows.shape[1], scale, used),
    )  # fmt: skip
    values = (trained[entry, slot] * scale).clip(0)
    kept = sparse.csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)
    kept.eliminate_zeros()
    return kept


def named_by_words(vocabulary: Vocabulary, table: Any, *, among: int = 20_000) -> Dimensions:
    """Return the clusters of a table as dimensions, each called by the three words with the largest weights for it.

    `about` holds up to twelve words. A cluster that no word fires is called "nothing".

    Args:
        vocabulary: of the table.
        table: SciPy sparse [words, k].
        among: only so many of the first words, in most vocabularies the commonest, give names if they can.
    """
    from scipy import sparse

    columns, common = sparse.csc_matrix(table), sparse.csc_matrix(sparse.csr_matrix(table)[:among])
    found: list[Dimension] = []
    taken: dict[str, int] = {}
    for number in range(columns.shape[1]):
        of = common if common.indptr[number] < common.indptr[number + 1] else columns
        part = slice(of.indptr[number], of.indptr[number + 1])
        best = of.indices[part][np.argsort(-of.data[part], kind="stable")[:_ABOUT]]
        words = tuple(vocabulary.words[row] for row in best)
        name = ", ".join(words[:_NAMED_BY]) or "nothing"
        taken[name] = taken.get(name, 0) + 1
        found.append(Dimension(name if taken[name] == 1 else f"{name} ({taken[name]})", words))
    return Dimensions(found)


class _Pool:
    """The weights of the clusters of sentences, from a table of the weights of words for clusters of their own.

    A weight below 0 counts as 0 and has no gradient; so a cluster that a word has lost stays lost.
    """

    def __init__(
        self, columns: npt.NDArray[np.int64], clusters: int, scale: float, used: npt.NDArray[np.bool_]
    ) -> None:
        import torch

        self._columns, self._used = torch.from_numpy(columns), torch.from_numpy(used)
        self._clusters, self._scale = clusters, scale

    def __call__(self, words: torch.nn.EmbeddingBag, bags: Bags, sentences: Any) -> torch.Tensor:
        """Return log(1 + sum) of the weights of some sentences, float32 [sentences, k]."""
        import torch

        chosen = bags.take(sentences)
        rows = torch.from_numpy(chosen.rows)
        weights = torch.nn.functional.embedding(rows, words.weight, sparse=True).relu() * self._used[rows]
        first = np.repeat(np.arange(len(chosen)) * self._clusters, np.diff(chosen.offsets))
        places = self._columns[rows] + torch.from_numpy(first)[:, None]
        sums = torch.zeros(len(chosen) * self._clusters).index_add(0, places.ravel(), weights.ravel() * self._scale)
        return sums.log1p().view(len(chosen), self._clusters)
