"""A head for a transformer whose states were never taught to predict words.

In a language model a state and the head's row of its word point the same way, so the centroids of the rows can
take the head's place as they are (LENS paper, section 3.2.1). A sentence encoder without a head of its own has only its
input embeddings, and its last states live elsewhere: the plain products fire thousands of clusters for every text.
Here the states are first carried back by the linear map W that comes nearest to it in least squares,

    W = argmin  sum over tokens |W (h - mean h) - e_token|^2 + ridge |W|^2,

with e the token's row, centred and of length 1. W needs no place in the model: centroid . (W h) = (W' centroid) . h, so
it is folded into the centroids, and the threshold above which a cluster fires into the bias.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import check_texts, unit_rows
from pellucid.errors import InputError
from pellucid.progress import Progress
from pellucid.transformer.reading import LexiconSettings, Reader

if TYPE_CHECKING:
    from pellucid.lexicon.clusters import Clusters
    from pellucid.transformer.backbone import Backbone

_BATCH = 64
_SAMPLE = 8_192  # states that the threshold is read from
_RIDGE = 0.1  # of the mean variance of a state's coordinate; 0.01 gives the same own clusters and a noisier rest
_OWN_LOGIT = 5.0  # of a token for its own cluster, before the threshold is taken off

Floats = npt.NDArray[np.float64]


class FittedHead(NamedTuple):
    """What `LexiconEmbedder` takes.

    Attributes:
        clusters: with centroids that states can be multiplied with.
        bias: float32 [k], minus the threshold of each cluster.
        own: share of the tokens whose own cluster is the strongest of all at their state.
    """

    clusters: Clusters
    bias: npt.NDArray[np.float32]
    own: float


def fit_head(
    backbone: Backbone,
    clusters: Clusters,
    texts: Iterable[str],
    *,
    firing: float = 0.02,
    show_progress_bar: bool = False,
) -> FittedHead:
    """Turn the centroids towards the states of a transformer that has no head of its own.

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
    if not 0 < firing < 1:
        raise InputError(f"firing is {firing!r:.20}; it must be a share between 0 and 1, such as 0.02")
    targets = _targets(backbone)
    if clusters.assignment.shape != (len(targets),):
        raise InputError(
            f"the clusters are of {len(clusters.assignment)} tokens and the backbone's head has {len(targets)} rows; "
            "cluster the head of this backbone"
        )
    seen = _seen(backbone, check_texts(texts), len(targets), show_progress_bar)
    return _scaled(clusters, _means(targets, clusters) @ _mapping(seen, targets), seen, firing)


def fit_rows(backbone: Backbone, texts: Iterable[str], *, show_progress_bar: bool = False) -> npt.NDArray[np.float32]:
    """Return the same for single tokens: rows to multiply states with, float32 [vocabulary, d], of no scale.

    Args:
        backbone: an encoder, such as a sentence transformer.
        texts: a few thousand sentences like those the model is for.
        show_progress_bar: count texts.

    Raises:
        InputError: the texts have too few tokens to fit a map.
    """
    targets = _targets(backbone)
    seen = _seen(backbone, check_texts(texts), len(targets), show_progress_bar)
    rows: npt.NDArray[np.float32] = (targets @ _mapping(seen, targets)).astype(np.float32)
    return rows


def _targets(backbone: Backbone) -> Floats:
    """Return the rows that states are carried to: those of the tokens, centred and of length 1."""
    rows = backbone.head.float().cpu().numpy().astype(np.float64)
    targets: Floats = unit_rows(rows - rows.mean(axis=0), np.float64)
    return targets


class _Seen(NamedTuple):
    """What is kept of all states: enough for least squares."""

    counts: Floats  # [vocabulary]
    sums: Floats  # [vocabulary, d], of the states of each token
    moments: Floats  # [d, d]
    sample: Floats  # [at most _SAMPLE, d]
    tokens: npt.NDArray[np.int64]  # of the sample


def _seen(backbone: Backbone, texts: list[str], vocabulary: int, show_progress_bar: bool) -> _Seen:
    import torch

    width = backbone.dimension
    counts, sums, moments = np.zeros(vocabulary), np.zeros((vocabulary, width)), np.zeros((width, width))
    sample: list[Floats] = []
    tokens: list[npt.NDArray[np.int64]] = []
    every = max(1, len(texts) * 16 // _SAMPLE)
    reader = Reader(backbone.tokenizer, LexiconSettings().decided(backbone.tokenizer, False, backbone.max_length))
    with Progress("fitting the head", total=len(texts), enabled=show_progress_bar) as progress, torch.inference_mode():
        for start in range(0, len(texts), _BATCH):
            readings = reader.read(texts[start : start + _BATCH], instructed=False)
            ids, mask, own = backbone.padded(readings)
            states = backbone.states(ids, mask)[own].double().cpu().numpy()
            found = ids[own].cpu().numpy()
            np.add.at(counts, found, 1)
            np.add.at(sums, found, states)
            moments += states.T @ states
            sample.append(states[::every])
            tokens.append(found[::every])
            progress.advance(len(readings))
    if counts.sum() < 2 * width:
        raise InputError(
            f"the texts have {int(counts.sum())} tokens; a map of {width} dimensions needs thousands. Give more texts"
        )
    return _Seen(counts, sums, moments, np.concatenate(sample)[:_SAMPLE], np.concatenate(tokens)[:_SAMPLE])


def _mapping(seen: _Seen, targets: Floats) -> Floats:
    """Return the ridge regression [d, d] from centred states to the tokens' target rows; a target is `map @ state`."""
    total = seen.counts.sum()
    mean = seen.sums.sum(axis=0) / total
    covariance = seen.moments - total * np.outer(mean, mean)
    mean_target = seen.counts @ targets / total
    mixed = seen.sums.T @ targets - total * np.outer(mean, mean_target)
    ridge = _RIDGE * np.trace(covariance) / len(covariance)
    solved: Floats = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), mixed)
    return solved.T


def _means(targets: Floats, clusters: Clusters) -> Floats:
    """Return the direction of each cluster among the target rows, [k, d]."""
    sums = np.zeros((len(clusters), targets.shape[1]))
    kept = clusters.assignment >= 0
    np.add.at(sums, clusters.assignment[kept], targets[kept])
    directions: Floats = unit_rows(sums, np.float64)
    return directions


def _scaled(clusters: Clusters, head: Floats, seen: _Seen, firing: float) -> FittedHead:
    """Scale the head so that a token's own cluster has logit `_OWN_LOGIT`, and set the threshold."""
    total, mean = seen.counts.sum(), seen.sums.sum(axis=0) / seen.counts.sum()
    kept = clusters.assignment >= 0
    own_head = head[clusters.assignment[kept]]
    own = np.sum(seen.sums[kept] * own_head) - seen.counts[kept] @ (own_head @ mean)
    scale = _OWN_LOGIT * seen.counts[kept].sum() / own
    if not (np.isfinite(scale) and scale > 0):
        raise InputError(f"the states of {int(total)} tokens say nothing of the tokens; this model cannot be fitted")
    logits = (seen.sample - mean) @ head.T * scale
    threshold = np.quantile(logits, 1 - firing)
    known = clusters.assignment[seen.tokens]
    hit = float(np.mean(logits.argmax(axis=1)[known >= 0] == known[known >= 0])) if (known >= 0).any() else 0.0
    bias = -(threshold + scale * (head @ mean))
    fitted = replace(clusters, centroids=(head * scale).astype(np.float32))
    return FittedHead(fitted, bias.astype(np.float32), hit)
