r"""Make a static model that follows several sentence transformers together.

    python -m recipes.several_teachers --teachers sentence-transformers/all-MiniLM-L6-v2 intfloat/e5-small-v2 \
        --weights 2 1 --corpus corpus.txt --work-dir work --output my-model

Each teacher reads the corpus (step 1 of `pellucid.distill`), and what they leave is put side by side. With u_t for the
sentence vector of teacher t, less the mean over the corpus and at length 1, and weights w_t that add up to 1, a joint
sentence vector is the u_t end to end, each times the square root of w_t. So the cosine of two sentences is the weighted
mean of the teachers' centred cosines. Centring matters where a teacher's cosines all lie close together. The word
vectors are put side by side in the same way. Words out of the vocabulary are cut by the tokenizer of the first teacher.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid import StaticEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.errors import InputError
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.static import ExtractionSettings
from pellucid.static.training.distill import distill_extraction, open_teacher, subwords_of
from pellucid.static.training.extraction import Extraction, extract, spool
from pellucid.static.training.tuning import scale_of
from pellucid.text.tables import Corpus

BLOCK = 16_384  # sentences at a time


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
    """Return the weights of `count` teachers brought to the sum 1; equal ones for None."""
    values = [1.0] * count if weights is None else list(weights)
    if not count or len(values) != count or not all(0 < value < float("inf") for value in values):
        raise InputError(f"weights are {values!r:.80}; {count} teachers need as many numbers above 0")
    return [value / sum(values) for value in values]


def _even(extraction: Extraction) -> npt.NDArray[np.float32]:
    """Return the word vectors less their mean over the text, at a root mean square of 1; zero rows stay zero."""
    known = np.any(extraction.vectors != 0, axis=1)
    mean = np.average(extraction.vectors[known], axis=0, weights=extraction.counts[known])
    vectors = np.zeros_like(extraction.vectors)
    vectors[known] = extraction.vectors[known] - mean.astype(np.float32)
    vectors /= scale_of(vectors[known])
    return vectors


def _centred(vectors: npt.NDArray[np.float16], share: float) -> npt.NDArray[np.float16]:
    """Return sentence vectors less their mean, each of the length that its share of the joint vector has."""
    parts = [slice(start, start + BLOCK) for start in range(0, len(vectors), BLOCK)]
    mean = np.sum([vectors[p].astype(np.float32).sum(axis=0, dtype=np.float64) for p in parts], axis=0) / len(vectors)
    less = (vectors[part].astype(np.float32) - mean.astype(np.float32) for part in parts)
    return np.concatenate([(l2_normalize(block) * np.sqrt(share)).astype(np.float16) for block in less])


def make(
    teachers: Sequence[Any],
    corpus: Corpus,
    work_dir: Path,
    *,
    weights: Sequence[float] | None = None,
    extraction: ExtractionSettings | None = None,
    **steps: Any,
) -> StaticEmbedder:
    """Return the model; the same call resumes an interrupted run, and other weights read no sentence again.

    Args:
        teachers: SentenceTransformers, or folders or hub ids of some.
        corpus: as for `pellucid.distill`.
        work_dir: where the state is kept, a folder for each teacher.
        weights: one a teacher; None takes equal ones.
        extraction: settings of step 1.
        steps: `pca`, `refinement` and `show_progress_bar`, as for `pellucid.distill`.
    """
    shares, settings = shares_of(weights, len(teachers)), extraction or ExtractionSettings()
    opened = [open_teacher(teacher) for teacher in teachers]
    with WorkFolder(work_dir) as work:
        corpus = spool(corpus, work)
        work.commit()
    bar = steps.get("show_progress_bar", True)
    folders = [work_dir / f"teacher-{number}" for number in range(1, len(opened) + 1)]
    read = [extract(one, corpus, at, settings, show_progress_bar=bar) for one, at in zip(opened, folders)]
    return distill_extraction(join_extractions(read, shares), subwords_of(opened[0]), **steps)


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", nargs="+", required=True, help="sentence-transformers models, folders or hub ids")
    parser.add_argument("--weights", nargs="+", type=float, help="one a teacher; equal ones without")
    parser.add_argument("--corpus", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--work-dir", type=Path, required=True, help="where passes and training keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    model = make(arguments.teachers, arguments.corpus, arguments.work_dir, weights=arguments.weights)
    model.save_pretrained(arguments.output, dtype="float16")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
