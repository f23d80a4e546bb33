"""Several teachers as one: each reads the corpus, and what they leave is put side by side.

With u_t for the sentence vector of teacher t, less the mean over the corpus and at length 1, and weights w_t that add
up to 1, a joint sentence vector is the u_t end to end, each times the square root of w_t. So the cosine of two
sentences is the weighted mean of the teachers' centred cosines. Word vectors are put side by side in the same way, each
teacher's at the same root mean square. Centring matters where a teacher's cosines all lie close together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors, unit_rows
from pellucid.corpus import Corpus
from pellucid.errors import InputError
from pellucid.static.making.extraction import Extraction, ExtractionSettings, extract, spool
from pellucid.static.making.training import scale_of
from pellucid.workfolder import WorkFolder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BLOCK = 16_384  # sentences at a time


def extract_jointly(
    teachers: Sequence[SentenceTransformer],
    corpus: Corpus,
    work_dir: Path,
    settings: ExtractionSettings,
    *,
    weights: Sequence[float] | None = None,
    show_progress_bar: bool = True,
) -> Extraction:
    """Run or resume the pass of each of `teachers` over `corpus` and join what they leave.

    The state of several teachers is in the folders teacher-1, teacher-2, ... of `work_dir`, that of one in `work_dir`.

    Raises:
        CorpusError: the corpus cannot be read, or no sentence of it is usable.
        InputError: no teacher, weights that do not fit, or `work_dir` holds the state of another corpus, teacher or
            setting, or another run is at work in it.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    shares = shares_of(weights, len(teachers))
    if len(teachers) == 1:
        return extract(teachers[0], corpus, work_dir, settings, show_progress_bar=show_progress_bar)
    with WorkFolder(work_dir) as work:
        corpus = spool(corpus, work)
        work.commit()
    found = [
        extract(teacher, corpus, work_dir / f"teacher-{number}", settings, show_progress_bar=show_progress_bar)
        for number, teacher in enumerate(teachers, 1)
    ]
    return join_extractions(found, shares)


def join_extractions(extractions: Sequence[Extraction], weights: Sequence[float] | None = None) -> Extraction:
    """Return what several teachers left of one corpus as if one teacher had: their vectors side by side.

    Where a teacher saw a word nowhere whole, its part of the word's vector is zero.

    Args:
        extractions: with the same settings, so with the same words and sentences.
        weights: one an extraction, above 0; what counts is their proportion. None takes equal ones.

    Raises:
        InputError: weights that do not fit, or extractions of different text.
    """
    shares = shares_of(weights, len(extractions))
    first, *others = extractions
    if any(other.words != first.words or other.sentences != first.sentences for other in others):
        raise InputError("the teachers read different text; extract with the same corpus and settings for each")
    words = [np.sqrt(share) * _even(one) for one, share in zip(extractions, shares)]
    sentences = [_centred(one.teacher_vectors, share) for one, share in zip(extractions, shares)]
    return replace(first, vectors=np.hstack(words), teacher_vectors=np.hstack(sentences))


def shares_of(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return the weights of `count` teachers brought to the sum 1; equal ones for None.

    Raises:
        InputError: no teacher, another number of weights, or one that is not a number above 0.
    """
    if not count:
        raise InputError("distillation needs a teacher; the list of them is empty")
    values = [1.0] * count if weights is None else list(weights)
    if len(values) != count or not all(0 < value < float("inf") for value in values):
        raise InputError(f"weights are {values!r:.80}; {count} teachers need as many numbers above 0")
    return [value / sum(values) for value in values]


def _even(extraction: Extraction) -> Vectors:
    """Return the word vectors less their mean over the text, at a root mean square of 1; zero rows stay zero."""
    known = np.any(extraction.vectors != 0, axis=1)
    mean = np.average(extraction.vectors[known], axis=0, weights=extraction.counts[known])
    vectors = np.zeros_like(extraction.vectors)
    vectors[known] = extraction.vectors[known] - mean.astype(np.float32)
    vectors /= scale_of(vectors[known])
    return vectors


def _centred(vectors: npt.NDArray[np.float16], share: float) -> npt.NDArray[np.float16]:
    """Return sentence vectors less their mean, each of the length that its share of the joint vector has."""
    mean = np.sum([block.sum(axis=0, dtype=np.float64) for block in _blocks(vectors)], axis=0) / len(vectors)
    made = [unit_rows(block - mean.astype(np.float32)) * np.sqrt(share) for block in _blocks(vectors)]
    return np.concatenate([block.astype(np.float16) for block in made])


def _blocks(vectors: npt.NDArray[np.float16]) -> Iterator[Vectors]:
    for start in range(0, len(vectors), _BLOCK):
        yield vectors[start : start + _BLOCK].astype(np.float32)
