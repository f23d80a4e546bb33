"""Choosing anchors from a corpus: KMeans, farthest points, uniform (LDIR, section 3).

`choose_anchors` does it all: corpus, quality filter, encoder, picks. The functions below it work on vectors. What
a candidate must be is in `candidates.py`, the search in C behind `farthest_points` in native/farthest.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.anchors.candidates import Candidates, CandidateSettings, prepare_candidates
from pellucid.core.arrays import l2_normalize
from pellucid.errors import InputError, check_choice, check_integer, check_seed, importing
from pellucid.persistence.store import temporary_folder
from pellucid.text.tables import Corpus

Rows = npt.NDArray[np.int64]
"""Positions of the chosen vectors, in the order they were chosen, int64 [n]."""

_DEFAULTS = CandidateSettings()
_MAX_COSINE = 0.9  # of an anchor to another
_BLOCK_ROWS = 16_384  # converted to float32 at a time
_MAX_FIT_ROWS = 131_072  # KMeans learns its centroids from so many candidates
_N_NEAREST = 8  # candidates kept for each centroid, in case another centroid has the same nearest one


def choose_anchors(
    encoder: Any,
    corpus: Corpus,
    n: int,
    *,
    method: str | Callable[..., Rows] = "kmeans",
    seed: int = 0,
    settings: CandidateSettings = _DEFAULTS,
    work_dir: str | os.PathLike[str] | None = None,
    show_progress_bar: bool = True,
) -> list[str]:
    """Choose `n` texts of `corpus` as anchors.

    Args:
        encoder: what `pellucid.load` takes: a name, a SentenceTransformer, a pellucid model, or a callable.
        corpus: a path (.txt, .jsonl, .parquet) or an iterable of texts.
        n: how many anchors.
        method: "kmeans" (nearest text to each centroid), "fps" (farthest point sampling, the paper's) or "uniform";
            or a function of vectors [N, d], `n` and `seed` that returns rows as `farthest_points` does.
        seed: the same seed gives the same anchors.
        settings: which texts may become anchors.
        work_dir: where candidates and vectors are kept, so that an interrupted run resumes, and other methods and
            numbers need not encode again; None takes a temporary folder.
        show_progress_bar: whether long steps show one.

    Returns:
        The anchors' texts, in the order they were chosen.

    Raises:
        InputError: `n` or `method` is wrong, fewer candidates are left than `n`, the encoder's vectors are unusable,
            or `work_dir` is that of another run.
        CorpusError: the corpus cannot be read, or no text of it passes the filter.
        MissingExtraError: a rule or method needs a package that is not installed.
    """
    check_integer("n", n)
    if not callable(method):
        check_choice("method", method, METHODS)
        method = METHODS[method]
    check_seed(seed)
    with (
        nullcontext(Path(work_dir)) if work_dir is not None else temporary_folder(prefix="pellucid-anchors-")
    ) as folder:
        candidates = prepare_candidates(encoder, corpus, settings, folder, show_progress_bar=show_progress_bar)
        rows = _pick(candidates, n, method, seed, _MAX_COSINE if settings.readable else np.inf)
        texts = candidates.texts(rows)
        del candidates  # closes the map before a temporary folder goes
    return texts


def _pick(candidates: Candidates, n: int, method: Callable[..., Rows], seed: int, limit: float) -> Rows:
    """Return `n` rows by `method`, none of them zero or with a cosine above `limit` to another."""
    vectors = candidates.vectors
    if n > candidates.filtered.n_left:
        raise InputError(
            f"{n} anchors asked for, but {candidates.filtered}. Ask for fewer, add texts, or loosen `settings`"
        )
    rows = _distinct(vectors, method(vectors, n, seed=seed), n, limit)
    if 0 < len(rows) < n and method is not farthest_points:
        rows = _distinct(vectors, farthest_points(vectors, n, start=rows), n, limit)
    if len(rows) < n:
        raise InputError(
            f"{n} anchors asked for, but only {len(rows)} of {candidates.filtered.n_left} candidates are no nearer to "
            f"each other than a cosine of {limit}. Ask for fewer, add texts, or take any with CandidateSettings("
            "readable=False)"
        )
    return rows


def _distinct(vectors: npt.NDArray[Any], rows: Rows, n: int, limit: float) -> Rows:
    """Return the first `n` of `rows` that are not zero and no nearer than `limit` to one returned before."""
    distinct_rows: list[int] = []
    units = np.zeros((n, vectors.shape[1]), np.float32)
    for row in rows.tolist():
        if len(distinct_rows) == n:
            break
        unit = l2_normalize(vectors[row : row + 1])[0]
        if unit.any() and not (units[: len(distinct_rows)] @ unit > limit).any():
            units[len(distinct_rows)] = unit
            distinct_rows.append(row)
    return np.array(distinct_rows, np.int64)


def uniform_points(vectors: npt.NDArray[Any], n: int, *, seed: int = 0) -> Rows:
    """Choose `n` rows of [N, d] at random, each once; the first m are those chosen for m.

    Raises:
        InputError: `n` is not between 1 and N.
    """
    _check_enough(n, len(vectors))
    return np.random.default_rng(seed).permutation(len(vectors))[:n].astype(np.int64)


def _check_enough(n: int, count: int) -> None:
    check_integer("n", n)
    if n > count:
        raise InputError(f"{n} points asked for, but there are only {count} vectors to choose from. Ask for fewer")


def kmeans_points(vectors: npt.NDArray[Any], n: int, *, seed: int = 0) -> Rows:
    """Choose the nearest row to each of `n` centroids (scikit-learn's MiniBatchKMeans on rows of length 1).

    The centroids are learnt from at most 131,072 rows, drawn by `seed`; the nearest are looked for among all. Where
    two centroids share their nearest row, the second takes its next one.

    Args:
        vectors: float16 or float32 [N, d], may be mapped from disk.
        n: how many.
        seed: of the draw and of KMeans.

    Raises:
        InputError: `n` is not between 1 and N.
        MissingExtraError: scikit-learn is not installed.
    """
    with importing("anchors", "scikit-learn"):
        from sklearn.cluster import MiniBatchKMeans
    _check_enough(n, len(vectors))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:_MAX_FIT_ROWS])
    sample = l2_normalize(vectors[drawn])
    model = MiniBatchKMeans(n, random_state=seed, n_init=1, batch_size=max(4096, 4 * n))
    centroids = l2_normalize(model.fit(sample).cluster_centers_)
    rows = _nearest_distinct(vectors, centroids)
    return rows if len(rows) == n else farthest_points(vectors, n, start=rows)


def _nearest_distinct(vectors: npt.NDArray[Any], centroids: npt.NDArray[np.float32]) -> Rows:
    """Return for each centroid, in turn, the nearest of its few nearest rows that none before it has taken."""
    count = min(_N_NEAREST, len(vectors))
    values = np.full((len(centroids), 0), 0, np.float32)
    rows = np.zeros((len(centroids), 0), np.int64)
    for first in range(0, len(vectors), _BLOCK_ROWS):
        similarity = centroids @ l2_normalize(vectors[first : first + _BLOCK_ROWS]).T
        best = np.argsort(-similarity, axis=1, kind="stable")[:, :count]
        values = np.concatenate([values, np.take_along_axis(similarity, best, axis=1)], axis=1)
        rows = np.concatenate([rows, best + first], axis=1)
        order = np.argsort(-values, axis=1, kind="stable")[:, :count]
        values, rows = np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1)
    selected: dict[int, None] = {}
    for choices in rows.tolist():
        free = next((row for row in choices if row not in selected), None)
        if free is not None:
            selected[free] = None
    return np.array(list(selected), np.int64)


def farthest_points(
    vectors: npt.NDArray[Any] | Any, n: int, *, seed: int = 0, start: int | Sequence[int] | Rows | None = None
) -> Rows:
    """Choose `n` rows, each the one whose greatest cosine to those before it is the smallest.

    Ties go to the lowest row. Exact and deterministic: the same picks on every machine and with any number of threads.
    The first m picks are those for m. Rows of zeros (shorter than 1e-12) are never picked.

    Where it differs from the method as published (LDIR, section 3; code of 2025-08): rows are compared by cosine, as
    the anchors will be used, where the authors take squared Euclidean distance between vectors as they come (the same
    for vectors of length 1); and the first point is one of the `n`, where their random start is left out of the
    result.

    Args:
        vectors: float16 or float32 [N, d], any lengths; may be mapped from disk and larger than memory (rows are read
            as they are needed, besides N x 12 bytes are kept).
        n: how many.
        seed: draws the first point where `start` is None.
        start: the first point, or several that are all among the picks.

    Raises:
        InputError: `n` or `start` is out of range, a row holds NaN or infinity (the first is named), fewer than `n`
            rows are not zero, or `vectors` is of another type or shape.
    """
    rows = _as_matrix(vectors)
    _check_enough(n, len(rows))
    from pellucid.native.farthest import FarthestPoints  # opens the C library: when there is something to search

    with FarthestPoints(rows, n) as search:
        broken = search.measure()
        if broken is not None:
            raise InputError(
                f"row {broken} of the vectors holds NaN, infinity or numbers beyond 1e12; leave it out or encode it "
                "again"
            )
        for row in _first_points(start, n, search.inverse > 0, seed):
            search.take(row)
        while len(search.picks) < n:
            search.take(search.farthest())
    return np.array(search.picks, np.int64)


def _as_matrix(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array as the search wants it: float32, or the bits of float16; rows one after another."""
    matrix = np.asarray(vectors)
    if matrix.ndim != 2 or matrix.dtype.newbyteorder("=") not in (np.float16, np.float32):
        raise InputError(
            f"vectors are {matrix.dtype} of shape {matrix.shape}; give float16 or float32 [N, d], "
            "for instance vectors.astype(np.float32)"
        )
    matrix = np.require(matrix, matrix.dtype.newbyteorder("="), ["C", "A"])  # a copy only if it must be
    return matrix.view(np.uint16) if matrix.dtype == np.float16 else matrix


def _first_points(start: Any, n: int, usable: npt.NDArray[np.bool_], seed: int) -> list[int]:
    """Return the given or drawn first points, after checking that they can be picked."""
    choices = np.flatnonzero(usable)
    if n > len(choices):
        raise InputError(
            f"{n} points asked for, but only {len(choices)} of {len(usable)} vectors are not zero. Ask for fewer"
        )
    if start is None:
        return [int(choices[np.random.default_rng(seed).integers(len(choices))])]
    rows = [int(row) for row in np.atleast_1d(np.asarray(start))]
    for row in rows:
        if not 0 <= row < len(usable) or not usable[row]:
            raise InputError(f"start is {row}; give a row from 0 to {len(usable) - 1} that is not zero")
    if not rows or len(rows) > n or len(set(rows)) < len(rows):
        raise InputError(f"start has {len(rows)} rows ({len(set(rows))} different); give 1 to {n} different ones")
    return rows


METHODS: dict[str, Callable[..., Rows]] = {
    "kmeans": kmeans_points,
    "fps": farthest_points,
    "uniform": lambda vectors, n, *, seed: uniform_points(vectors, len(vectors), seed=seed),  # all, in random order
}
"""Name -> what picks rows of vectors, at least `n` of them if it can."""
