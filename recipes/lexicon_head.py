"""Clusters kept in a folder, and a head for a transformer whose states were never trained to predict words.

In a language model a state and the head's row of its word point the same way, so the centroids of the rows can take
the head's place as they are. A sentence encoder without a head has only its input embeddings, and its last states are
in another space: the plain products fire thousands of clusters for every text. Here the states are first mapped back
by the linear map W that is nearest in least squares,

    W = argmin  sum over tokens |W (h - mean h) - e_token|^2 + ridge |W|^2,

with e the token's row, centred and of length 1. W needs no place in the model: centroid . (W h) = (W' centroid) . h,
so it is folded into the centroids, and the threshold above which a cluster fires into the bias.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core import arrays
from pellucid.errors import InputError, check_number
from pellucid.lexicon.clusters import Clusters
from pellucid.persistence.store import read_json, read_tensors, write_json, write_tensors
from pellucid.progress import Progress
from pellucid.text.inputs import check_texts
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.reading import Reader, ReadingSettings


def save_clusters(folder: Path, clusters: Clusters) -> None:
    """Write clusters into an existing folder."""
    tensors = {"assignment": clusters.assignment, "centroids": clusters.centroids}
    write_tensors(folder / "clusters.safetensors", tensors)
    write_json(folder / "clusters.json", {"names": clusters.names, "words": clusters.words})


def load_clusters(folder: Path) -> Clusters:
    """Return what `save_clusters` wrote."""
    tensors, _ = read_tensors(folder / "clusters.safetensors")
    described = read_json(folder / "clusters.json")
    words = [tuple(cluster) for cluster in described["words"]]
    return Clusters(np.array(tensors["assignment"]), np.array(tensors["centroids"]), described["names"], words)


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
