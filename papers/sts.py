"""A fast STS score for use while a model is developed: the numbers of MTEB, without MTEB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError
from pellucid.evaluation.tasks import find_tasks, read_sts


def sts_spearman(encode: Callable[[list[str]], npt.NDArray[Any]], data: str | Path) -> dict[str, float]:
    """Score a model on the STS sets found under `data`, with nothing but scipy; seconds for a static model.

    The numbers are those MTEB reports (`cosine_spearman` x 100, all pairs of a set in one correlation), down to its
    rule that a zero embedding has cosine 0.5 to any other and 1 to another zero one.

    Args:
        encode: gives one row, of any length, for each text; called once a set with all its sentences.
        data: a folder holding `sts/STS12/test.tsv` and so on.

    Returns:
        Set name to Spearman correlation x 100, in the order STS12, STS13, ..., STSBenchmark, SICK-R.

    Raises:
        InputError: no STS set is found, or a file lacks a column.
    """
    from scipy.stats import spearmanr

    found = [task for task in find_tasks(data) if task.kind == "STS"]
    if not found:
        raise InputError(f"no STS set under {data}; expected, for example, {Path(data) / 'sts/STS12/test.tsv'}")
    results = {}
    for task in found:
        pairs = read_sts(task)
        rows = _unit_rows_of_mteb(encode(pairs.sentences1 + pairs.sentences2))
        difference = rows[: len(pairs.scores)] - rows[len(pairs.scores) :]
        # As MTEB computes it, in float32: equal cosines must tie, or not, as there.
        cosines = 1 - 0.5 * np.einsum("ij,ij->i", difference, difference)
        results[task.name] = 100 * float(spearmanr(pairs.scores, cosines)[0])
    return results


def _unit_rows_of_mteb(embeddings: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Divide as MTEB does: `base` rounds otherwise, and a tie there must be a tie here."""
    array = np.asarray(embeddings, dtype=np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", array, array))
    lengths[lengths < 10 * np.finfo(np.float32).eps] = 1
    unit: npt.NDArray[np.float32] = array / lengths[:, None]
    return unit
