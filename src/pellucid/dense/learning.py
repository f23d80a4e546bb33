"""Concepts learned from a corpus: directions of which few are enough for each text, and names that were tested.

A code is found greedily, each time the direction nearest to what is left, with all weights fitted anew by least squares
and none negative: orthogonal matching pursuit. Directions are learned by turns: codes for the directions, then the
directions that fit the codes best by least squares (method of optimal directions, Engan et al. 1999). This is the
decoder of a sparse autoencoder with at most k features a text; the pursuit takes the place of its encoder.

A name is up to three words or phrases of a static model's table. Candidates are those that are commoner in the texts
that have the concept, and those nearest to the mean of these texts. The static model reads texts and names without the
encoder: a name is good where texts that are near to it, by that model, are those that have the concept. The best name
is chosen on some texts; on others it must reach `MIN_NAME_AUC`, or the concept stays without a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.core.query import Floats, Integers
from pellucid.dense.vectors import at_length_1
from pellucid.progress import Progress
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.function_words import content_words
from pellucid.text.words import display_form

CHUNK_TEXTS = 256  # whose codes are found at once
_CANDIDATES_RATIO = 3  # of directions tried to those selected, the nearest; more fit better, with stranger names
_SWEEPS = 8  # over the weights of a text, each time a direction is added
_ROUNDS = 6  # of learning
_MIN_FIRING_TEXTS = 5  # of a direction; another text takes the place of a rarer one
_RIDGE = 1e-3  # of the least squares, in texts

MIN_NAME_AUC = 0.9
"""How often a text with the concept must be nearer to its name than one without, on texts held out.

Few names that belong to another concept reach it; see docs/results-reasons.md.
"""
MIN_FIRING_TEXTS = 5  # held out, for a name to be tested
_MIN_WORD_TEXTS = 3  # that have a word, for it to be a name
_CANDIDATES = 6  # words of each kind that are tried as names
_MAX_WORDS, _MIN_GAIN = 3, 0.01  # of a name; by how much another word must raise the area
_MAX_SILENT_TEXTS = 1_000  # texts without the concept that a name is chosen on


def sparse_codes(centred: Any, directions: Vectors, most: int) -> tuple[Integers, Any]:
    """Return the indices and weights of the directions of texts, both [texts, directions tried]; 0 for those unused.

    Args:
        centred: vectors less the mean of all texts, [texts, dimension].
        directions: float32 [directions, dimension], of length 1.
        most: how many directions a text may have.
    """
    similarities = centred.astype(np.float32) @ directions.T
    n_tried = min(_CANDIDATES_RATIO * most, len(directions))
    numbers = np.argpartition(-similarities, n_tried - 1, axis=1)[:, :n_tried]
    atoms = directions[numbers].astype(centred.dtype)  # [texts, tried, dimension]
    inner, pulls = atoms @ atoms.transpose(0, 2, 1), (atoms @ centred[:, :, None])[:, :, 0]
    weights, is_open = np.zeros_like(pulls), pulls > 0
    lines = np.arange(len(centred))
    chosen = np.zeros((0, len(centred)), np.int64)
    for _ in range(min(most, n_tried)):
        left = np.where(is_open, pulls - (inner @ weights[:, :, None])[:, :, 0], 0.0)
        best = left.argmax(axis=1)  # a text for which none is left gets its first again, with the weight it has
        is_open[lines, best] = False
        chosen = np.vstack([chosen, best])
        _fit_weights(weights, inner, pulls, chosen)
    return numbers, weights


def _fit_weights(weights: Any, inner: Any, pulls: Any, chosen: Integers) -> None:
    """Fit the weights [texts, tried] of those `chosen` [steps, texts] by least squares, none negative, each in turn."""
    lines = np.arange(len(weights))
    for _ in range(_SWEEPS):
        for column in chosen:
            step = pulls[lines, column] - np.einsum("tk,tk->t", inner[lines, column], weights)
            weights[lines, column] = (weights[lines, column] + step).clip(min=0)


def code_matrix(centred: Any, directions: Vectors, most: int) -> Any:
    """Return the codes of many texts as float32 CSR [texts, directions]."""
    from scipy import sparse

    chunks = [sparse.csr_array((0, len(directions)), dtype=np.float32)]
    for start in range(0, len(centred), CHUNK_TEXTS):
        numbers, weights = sparse_codes(centred[start : start + CHUNK_TEXTS], directions, most)
        lines, columns = np.nonzero(weights)
        shape = len(weights), len(directions)
        chunks.append(sparse.csr_array((weights[lines, columns], (lines, numbers[lines, columns])), shape))
    return sparse.vstack(chunks, format="csr")


def learned_directions(centred: Vectors, count: int, most: int, seed: int, *, show: bool = False) -> Vectors:
    """Return directions float32 [count, dimension] of length 1 of which `most` fit each text best, as far as learned.

    Args:
        centred: float32 [texts, dimension], vectors less their mean; at least `count` texts.
        count: how many directions.
        most: how many a text may have.
        seed: of the texts that they begin as.
        show: show a bar once the work has lasted two seconds.
    """
    texts = np.random.default_rng(seed).permutation(len(centred))
    directions = at_length_1(centred[texts[:count]])
    with Progress("learning concepts", unit="rounds", total=_ROUNDS, enabled=show) as progress:
        for _ in range(_ROUNDS):
            codes = code_matrix(centred, directions, most)
            square = (codes.T @ codes).toarray().astype(np.float64) + _RIDGE * np.eye(count)
            fitted = np.linalg.solve(square, np.asarray(codes.T @ centred, np.float64)).astype(np.float32)
            is_rare = np.bincount(codes.indices, minlength=count) < _MIN_FIRING_TEXTS
            errors = np.square(centred - codes @ directions).sum(axis=1)
            worst = np.argsort(-errors, kind="stable")
            fitted[is_rare] = centred[worst[: int(is_rare.sum())]]
            directions = at_length_1(fitted)
            progress.advance(1)
    return directions


class NamedConcepts(NamedTuple):
    """Names of concepts, and how well they do on texts held out; None where no name passed."""

    names: list[str | None]
    aucs: list[float | None]


def name_concepts(
    table: StaticEmbedder, texts: Sequence[str], weights: Any, held_out: npt.NDArray[np.bool_]
) -> NamedConcepts:
    """Choose a name for each concept on some texts, and test it on those held out.

    Args:
        table: the static model.
        texts: of the corpus.
        weights: of the concepts, CSR [texts, concepts]; a text has a concept where its weight is not 0.
        held_out: [texts], which are for the test alone.
    """
    rows, presence = _words_in(table, texts, ~held_out)
    if not len(rows):
        return NamedConcepts([None] * weights.shape[1], [None] * weights.shape[1])
    vectors = table.encode(list(texts))
    vectors = at_length_1(vectors - vectors[~held_out].mean(axis=0))
    word_vectors = at_length_1(table.word_vectors(rows))
    has = (weights > 0).tocsc()
    train = has[~held_out].tocsc()
    candidates = np.hstack(
        [_commoner(presence, train), _nearest(word_vectors, weights[~held_out].T @ vectors[~held_out])]
    )
    train_vectors, test_vectors = vectors[~held_out], vectors[held_out]
    names: list[str | None] = []
    aucs: list[float | None] = []
    for concept in range(has.shape[1]):
        fires = np.zeros(len(texts), np.bool_)
        fires[has.indices[slice(*has.indptr[concept : concept + 2])]] = True
        chosen = _best_name(train_vectors, fires[~held_out], word_vectors, candidates[concept])
        n_firing = int(fires[held_out].sum())
        auc = None
        if len(chosen) and MIN_FIRING_TEXTS <= n_firing < held_out.sum():
            auc = float(_areas(test_vectors @ word_vectors[chosen].sum(axis=0), fires[held_out]))
        passed = auc is not None and auc >= MIN_NAME_AUC
        names.append(", ".join(display_form(table.vocabulary.forms[rows[n]]) for n in chosen) if passed else None)
        aucs.append(auc)
    return NamedConcepts(names, aucs)


def _words_in(table: StaticEmbedder, texts: Sequence[str], is_train: npt.NDArray[np.bool_]) -> tuple[Integers, Any]:
    """Return the rows of the table that are words with content of enough texts, and which texts have them, CSR."""
    from scipy import sparse

    pairs: list[tuple[int, int]] = []
    for line, position in enumerate(np.flatnonzero(is_train).tolist()):
        word_rows = {table.vocabulary.row(word.text) for word in table.vocabulary.split(texts[position])}
        pairs += [(line, row) for row in word_rows if row >= 0]
    lines, all_rows = np.array(pairs, np.int64).reshape(-1, 2).T
    rows, columns, counts = np.unique(all_rows, return_inverse=True, return_counts=True)
    presence = sparse.csc_array((np.ones(len(lines), np.float32), (lines, columns)), (int(is_train.sum()), len(rows)))
    forms = table.vocabulary.forms
    selected = [
        n for n, row in enumerate(rows.tolist())
        if counts[n] >= _MIN_WORD_TEXTS and content_words(display_form(forms[row]))
    ]  # fmt: skip
    return rows[selected], presence[:, selected].tocsr()


def _commoner(presence: Any, has: Any) -> Integers:
    """Return the words that tell the texts with each concept best from all others, [concepts, candidates]."""
    together = (has.T.astype(np.float32) @ presence).toarray()  # [concepts, words]
    n_texts, n_firing = presence.shape[0], np.asarray(has.sum(axis=0)).reshape(-1, 1)
    counts = np.asarray(presence.sum(axis=0))[None]
    lift = together / n_firing.clip(min=1) - (counts - together) / (n_texts - n_firing).clip(min=1)
    return np.argsort(-lift, axis=1, kind="stable")[:, :_CANDIDATES]


def _nearest(word_vectors: Vectors, means: Any) -> Integers:
    """Return the words nearest to the mean of each concept's texts, [concepts, candidates]."""
    return np.argsort(-(np.asarray(means) @ word_vectors.T), axis=1, kind="stable")[:, :_CANDIDATES]


def _best_name(
    vectors: Vectors, fires: npt.NDArray[np.bool_], word_vectors: Vectors, candidates: Integers
) -> list[int]:
    """Return the words whose sum is nearest to the texts with a concept, and not to others."""
    silent = np.flatnonzero(~fires)
    silent = silent[:: max(1, len(silent) // _MAX_SILENT_TEXTS)]
    if not fires.any() or not len(silent):
        return []
    texts = np.concatenate([np.flatnonzero(fires), silent])
    is_firing = np.arange(len(texts)) < fires.sum()
    candidates = np.unique(candidates)
    products = vectors[texts] @ word_vectors[candidates].T  # [texts, candidates]
    chosen: list[int] = []
    best, total = 0.0, np.zeros(len(texts), np.float32)
    while len(chosen) < min(_MAX_WORDS, len(candidates)):
        areas = _areas(total[:, None] + products, is_firing)
        areas[chosen] = 0
        nearest = int(areas.argmax())
        if areas[nearest] < best + _MIN_GAIN:
            break
        chosen.append(nearest)
        best, total = float(areas[nearest]), total + products[:, nearest]
    return [int(candidates[column]) for column in chosen]


def _areas(scores: Vectors, fires: npt.NDArray[np.bool_]) -> Floats:
    """Return of each column how often a text that fires scores above one that does not: the area under the ROC."""
    from scipy.stats import rankdata

    n_firing = int(fires.sum())
    ranks = rankdata(scores, axis=0)[fires].sum(axis=0)
    area: Floats = (ranks - n_firing * (n_firing + 1) / 2) / (n_firing * (len(fires) - n_firing))
    return area
