"""Clusters of a language model's vocabulary: the dimensions of a lexicon embedding (LENS paper, section 3.2.1).

A vocabulary has many tokens for one meaning: `review`, `Review`, `reviews`, and the token `Rev`. KMeans over the rows
of the model's output head, or of its input embeddings if these are the head, puts such tokens together. The centroids
take the place of the head, and each cluster is a dimension, named after its best-formed words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core import arrays
from pellucid.core.dimensions import Dimension, Dimensions, as_text, read_dimensions, write_dimensions
from pellucid.errors import InputError, ModelFolderError, check_integer, check_number, check_seed, missing_extra, shown
from pellucid.persistence.store import read_json, read_tensors, write_json, write_tensors
from pellucid.process import cached_property, ignored_warnings
from pellucid.progress import Progress
from pellucid.text.inputs import check_texts
from pellucid.transformer.reading import Reader, ReadingSettings
from pellucid.transformer.tokenwords import Rank, Token, tokens_of_rows, unused_name

if TYPE_CHECKING:
    from pellucid.transformer.backbone import Backbone

_TENSORS, _WORDS, _TABLE = "clusters.safetensors", "clusters.json", "dimensions.tsv"
FILES = (_TENSORS, _WORDS, _TABLE)
"""What `Clusters.save` writes."""

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
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many tokens each cluster has, int64 [k]; 0 for a dead one."""
        return np.bincount(self.assignment[self.assignment >= 0], minlength=len(self)).astype(np.int64)

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

    def save(self, folder: str | Path, *, dtype: str = "float32") -> None:
        """Write `FILES` into a folder; `dimensions.tsv` is the one a person may edit.

        Args:
            folder: an existing folder.
            dtype: of the centroids on disk, "float32" or "float16".

        Raises:
            InputError: `dtype` is another.
            WritingError: no space, no permission, or a read-only disk.
        """
        if dtype not in ("float32", "float16"):
            raise InputError(f"centroids are saved as float32 or float16, not {shown(dtype)}")
        tensors = {"assignment": self.assignment, "centroids": self.centroids.astype(dtype)}
        write_tensors(Path(folder) / _TENSORS, tensors)
        write_json(Path(folder) / _WORDS, {"words": self.words})
        write_dimensions(Path(folder) / _TABLE, self.dimensions)

    @classmethod
    def load(cls, folder: str | Path) -> Clusters:
        """Read what `save` wrote; names are those of `dimensions.tsv`, whose scales are the model's business.

        Raises:
            ModelFolderError: a file is missing or broken.
        """
        folder = Path(folder)
        tensors, _ = read_tensors(folder / _TENSORS)
        read = read_json(folder / _WORDS)
        try:
            words = [tuple(map(str, cluster)) for cluster in read["words"]]
            assignment, centroids = tensors["assignment"], tensors["centroids"].astype(np.float32)
        except (KeyError, TypeError) as error:
            raise ModelFolderError(f"{folder} holds no clusters: {error!r} in {_TENSORS} and {_WORDS}") from error
        names = read_dimensions(folder / _TABLE, len(centroids), words).dimensions.names
        try:
            return cls(assignment, centroids, names, words)
        except InputError as error:
            raise ModelFolderError(f"{folder}: {error}") from error

    @classmethod
    def nameless(cls, centroids: Any) -> Clusters:
        """Return clusters of which only the centroids [k, d] are known; their names are numbers."""
        rows = head_matrix(centroids)
        names = [f"cluster {number}" for number in range(len(rows))]
        return cls(np.zeros(0, np.int64), rows, names, [() for _ in names])

    def __repr__(self) -> str:
        """Return the numbers and the first names."""
        return f"<{len(self)} clusters of {int(self.sizes.sum())} tokens: {as_text(self.names[:3])!r:.80}>"


def cluster_vocabulary(
    rows: Any,
    tokenizer: Any,
    k: int | None,
    *,
    unit_rows: bool = True,
    iterations: int = 50,
    seed: int = 0,
    words: Collection[str] | None = None,
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
        words: known words in lower case, by which names are chosen; None takes those of the bundled English model.

    Raises:
        InputError: k is not between 1 and the number of different rows, the rows are not finite, or tokenizer and
            head do not belong together.
        MissingExtraError: scikit-learn is not installed.
    """
    from scipy.sparse import csr_array

    check_seed(seed)
    rows = head_matrix(rows)
    _, tokens = tokens_of_rows(len(rows), tokenizer, words)
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
    try:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
    except ImportError as error:
        raise missing_extra("scikit-learn", "torch") from error
    with ignored_warnings(ConvergenceWarning):  # rows at the same direction; `report` lists dead clusters
        fitted = KMeans(k, init="random", n_init=1, max_iter=iterations, random_state=seed).fit(rows)
    labels: npt.NDArray[np.int64] = fitted.labels_.astype(np.int64)
    return labels


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


# A head for a transformer whose states were never trained to predict words.
#
# In a language model a state and the head's row of its word point the same way, so the centroids of the rows can take
# the head's place as they are. A sentence encoder without a head has only its input embeddings, and its last states are
# in another space: the plain products fire thousands of clusters for every text. Here the states are first mapped back
# by the linear map W that is nearest in least squares,
#
#     W = argmin  sum over tokens |W (h - mean h) - e_token|^2 + ridge |W|^2,
#
# with e the token's row, centred and of length 1. W needs no place in the model: centroid . (W h) = (W' centroid) . h,
# so it is folded into the centroids, and the threshold above which a cluster fires into the bias.

_TEXTS = 64  # texts of one forward pass
_SAMPLE = 8_192  # states that the threshold is read from
_RIDGE = 0.1  # of the mean variance of a state's coordinate; 0.01 gives the same own clusters and a noisier rest
_OWN_LOGIT = 5.0  # of a token for its own cluster, before the threshold is taken off

Floats = npt.NDArray[np.float64]


class FittedHead(NamedTuple):
    """What `LexiconEmbedder` takes.

    Attributes:
        clusters: with centroids that states can be multiplied with.
        bias: float32 [k], minus the threshold of each cluster.
        own_share: of the tokens, those whose own cluster is the strongest of all at their state.
    """

    clusters: Clusters
    bias: npt.NDArray[np.float32]
    own_share: float


def fit_head(
    backbone: Backbone,
    clusters: Clusters,
    texts: Iterable[str],
    *,
    firing: float = 0.02,
    show_progress_bar: bool = False,
) -> FittedHead:
    """Map the centroids into the space of the states of a transformer that has no head.

    Args:
        backbone: an encoder, such as a sentence transformer.
        clusters: of its input embeddings, from `cluster_vocabulary`.
        texts: a few thousand sentences like those the model is for.
        firing: the share of pairs of a token and a cluster that fire before any training.
        show_progress_bar: count texts.

    Raises:
        InputError: `firing` is not between 0 and 1, the clusters are not of this backbone, or the texts have too few
            tokens to fit a map.
    """
    check_number("firing", firing, above=0, below=1)
    targets = _targets(backbone)
    if clusters.assignment.shape != (len(targets),):
        raise InputError(
            f"the clusters are of {len(clusters.assignment)} tokens and the backbone's head has {len(targets)} rows; "
            "cluster the head of this backbone"
        )
    statistics = _states_of(backbone, check_texts(texts), len(targets), show_progress_bar)
    sums = np.zeros((len(clusters), targets.shape[1]))
    clustered = clusters.assignment >= 0
    np.add.at(sums, clusters.assignment[clustered], targets[clustered])
    return _scaled(clusters, arrays.l2_normalize(sums, np.float64) @ _mapping(statistics, targets), statistics, firing)


def fit_rows(backbone: Backbone, texts: Iterable[str], *, show_progress_bar: bool = False) -> npt.NDArray[np.float32]:
    """Return a row a token that `fit_head` would give clusters of one token, float32 [vocabulary, d], unscaled."""
    targets = _targets(backbone)
    statistics = _states_of(backbone, check_texts(texts), len(targets), show_progress_bar)
    rows: npt.NDArray[np.float32] = (targets @ _mapping(statistics, targets)).astype(np.float32)
    return rows


def _targets(backbone: Backbone) -> Floats:
    """Return the rows that states are mapped to: those of the tokens, centred and L2-normalised."""
    rows = backbone.head.float().cpu().numpy().astype(np.float64)
    targets: Floats = arrays.l2_normalize(rows - rows.mean(axis=0), np.float64)
    return targets


class _States(NamedTuple):
    """Moments of the states of many tokens, enough for least squares, and a sample of them."""

    counts: Floats  # [vocabulary]
    sums: Floats  # [vocabulary, d], of the states of each token
    moments: Floats  # [d, d]
    sample: Floats  # [at most _SAMPLE, d]
    tokens: npt.NDArray[np.int64]  # of the sample


def _states_of(backbone: Backbone, texts: list[str], vocabulary: int, show_progress_bar: bool) -> _States:
    """Run texts through a transformer."""
    import torch

    width = backbone.dimension
    counts, sums, moments = np.zeros(vocabulary), np.zeros((vocabulary, width)), np.zeros((width, width))
    sample: list[Floats] = []
    tokens: list[npt.NDArray[np.int64]] = []
    stride = max(1, len(texts) * 16 // _SAMPLE)
    reader = Reader(backbone.tokenizer, ReadingSettings().resolved(backbone.tokenizer, False, backbone.max_length))
    with Progress("fitting the head", total=len(texts), enabled=show_progress_bar) as progress, torch.inference_mode():
        for start in range(0, len(texts), _TEXTS):
            encodings = reader.read(texts[start : start + _TEXTS], instructed=False)
            ids, mask, text_mask = backbone.padded(encodings)
            states = backbone.states(ids, mask)[text_mask].double().cpu().numpy()
            token_ids = ids[text_mask].cpu().numpy()
            np.add.at(counts, token_ids, 1)
            np.add.at(sums, token_ids, states)
            moments += states.T @ states
            sample.append(states[::stride])
            tokens.append(token_ids[::stride])
            progress.advance(len(encodings))
    if counts.sum() < 2 * width:
        raise InputError(
            f"the texts have {int(counts.sum())} tokens; a map of {width} dimensions needs thousands. Give more texts"
        )
    return _States(counts, sums, moments, np.concatenate(sample)[:_SAMPLE], np.concatenate(tokens)[:_SAMPLE])


def _mapping(statistics: _States, targets: Floats) -> Floats:
    """Return the ridge regression [d, d] from centred states to the tokens' target rows; a target is `map @ state`."""
    total = statistics.counts.sum()
    mean = statistics.sums.sum(axis=0) / total
    covariance = statistics.moments - total * np.outer(mean, mean)
    mean_target = statistics.counts @ targets / total
    mixed = statistics.sums.T @ targets - total * np.outer(mean, mean_target)
    ridge = _RIDGE * np.trace(covariance) / len(covariance)
    solved: Floats = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), mixed)
    return solved.T


def _scaled(clusters: Clusters, head: Floats, statistics: _States, firing: float) -> FittedHead:
    """Scale the head so that a token's own cluster has logit `_OWN_LOGIT`, and set the threshold."""
    total, mean = statistics.counts.sum(), statistics.sums.sum(axis=0) / statistics.counts.sum()
    clustered = clusters.assignment >= 0
    own_head = head[clusters.assignment[clustered]]
    own_logits = np.sum(statistics.sums[clustered] * own_head) - statistics.counts[clustered] @ (own_head @ mean)
    scale = _OWN_LOGIT * statistics.counts[clustered].sum() / own_logits
    if not (np.isfinite(scale) and scale > 0):
        raise InputError(f"the states of {int(total)} tokens do not predict the tokens; this model cannot be fitted")
    logits = (statistics.sample - mean) @ head.T * scale
    threshold = np.quantile(logits, 1 - firing)
    sample_clusters = clusters.assignment[statistics.tokens]
    is_clustered = sample_clusters >= 0
    hits = logits.argmax(axis=1)[is_clustered] == sample_clusters[is_clustered]
    own_share = float(np.mean(hits)) if len(hits) else 0.0
    bias = -(threshold + scale * (head @ mean))
    fitted = replace(clusters, centroids=(head * scale).astype(np.float32))
    return FittedHead(fitted, bias.astype(np.float32), own_share)
