"""Making a static model from sentence transformers: the three steps of the SWE paper (section 3).

1. Extraction (`extraction.py`, section 3.1): a vector for each word from one pass of the teacher over a corpus; of
   several teachers side by side (`teachers.py`).
2. PCA (here, section 3.2): principal components of *sentence* vectors, without the first few ("all but the top").
3. Refinement (`training.py`, section 3.3): the student's similarities are trained towards the teacher's.

Extraction takes nearly all the time and is done once: `distill_extraction` makes further models (other sizes, other
ablations) from what it left in `work_dir`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np

from pellucid.base import Vectors
from pellucid.corpus import Corpus
from pellucid.errors import InputError, require
from pellucid.pca import spectrum_of
from pellucid.pretrained import open_sentence_transformer
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.making.extraction import Extraction, ExtractionSettings
from pellucid.static.making.teachers import extract_jointly, shares_of
from pellucid.static.making.training import RefinementSettings, refine, tuning_folder
from pellucid.text import Vocabulary

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer


Teacher = Union[str, "SentenceTransformer"]
"""A sentence transformer, or the folder or hub id of one."""

_PCA_SAMPLE = 100_000  # sentences, as in the paper's code
_PCA_BLOCK = 16_384  # of them at a time


@dataclass(frozen=True)
class PcaSettings:
    """How the extracted vectors are reduced.

    Attributes:
        dimensions: of the model.
        drop: how many first components are left out. 0 turns "all but the top" off.
        level: "sentence" takes the components of sentence means, "word" those of the words themselves, "none" keeps
            the teacher's dimensions as they are (`dimensions` and `drop` then have no effect).
        vocabulary: keep so many words, the most frequent first; None keeps all that were extracted.
    """

    dimensions: int = 256
    drop: int = 7
    level: str = "sentence"
    vocabulary: int | None = None


def distill(
    teacher: Teacher | Sequence[Teacher],
    corpus: Corpus,
    *,
    work_dir: str | Path,
    weights: Sequence[float] | None = None,
    extraction: ExtractionSettings | None = None,
    pca: PcaSettings | None = None,
    refinement: RefinementSettings | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Make a static model of `teacher` from plain sentences.

    Args:
        teacher: a SentenceTransformer, or the folder or hub id of one; its pooling and its default prompt are
            respected. Several are joined: the model follows the weighted mean of their cosines, each less what all
            sentences share. Words out of the vocabulary are cut by the tokenizer of the first.
        corpus: a file (.txt, .jsonl, .parquet; .xz and .gz too) or an iterable, one sentence an item.
        work_dir: where the state is kept; the same call with the same folder resumes an interrupted run. The corpus is
            then read again and must be the same, text for text; of an iterator this cannot be checked, and the run
            uses the copy that it made. Other settings of steps 2 and 3, and other weights, reuse the extraction that
            is there.
        weights: of several teachers, one each, above 0; what counts is their proportion. None takes equal ones.
        extraction: settings of step 1; None for the defaults, as for the others.
        pca: settings of step 2.
        refinement: settings of step 3.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        The model, with a float32 table. `save_pretrained(path, dtype="int8")` makes it small.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        CorpusError: the corpus cannot be read or has no usable sentence.
        InputError: settings or weights that do not fit together, no teacher, or a `work_dir` that belongs to another
            run or corpus, or in which a run is at work.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    work_dir = Path(work_dir)
    pca = pca or PcaSettings()
    given = list(teacher) if isinstance(teacher, (list, tuple)) else [teacher]
    shares = shares_of(weights, len(given))
    teachers = [open_teacher(one) for one in given]
    check_pca(pca, sum(int(one[0].get_embedding_dimension()) for one in teachers))
    extracted = extract_jointly(
        teachers,
        corpus,
        work_dir,
        extraction or ExtractionSettings(),
        weights=shares,
        show_progress_bar=show_progress_bar,
    )
    return distill_extraction(
        extracted,
        subwords_of(teachers[0]),
        pca=pca,
        refinement=refinement,
        work_dir=work_dir
        if len(shares) == 1
        else work_dir / "-".join(["weights", *(f"{share:.6g}" for share in shares)]),
        show_progress_bar=show_progress_bar,
    )


def distill_extraction(
    extraction: Extraction,
    subwords: Tokenizer | None,
    *,
    pca: PcaSettings | None = None,
    refinement: RefinementSettings | None = None,
    work_dir: Path | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Do steps 2 and 3 on what step 1 left; `subwords` is the teacher's tokenizer, for words out of the vocabulary.

    Raises:
        InputError: settings that do not fit the extraction, or the state in `work_dir` is of another one.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    pca, refinement = pca or PcaSettings(), refinement or RefinementSettings()
    check_pca(pca, extraction.vectors.shape[1])
    seen = np.flatnonzero(np.any(extraction.vectors != 0, axis=1))[: pca.vocabulary]
    vocabulary = Vocabulary([extraction.words[row] for row in seen], subwords)
    bags = Bags.of(extraction.sentences, vocabulary)
    vectors = project(extraction.vectors[seen], bags, pca)
    if refinement.steps:
        teacher_vectors = extraction.teacher_vectors
        with tuning_folder(work_dir, refinement, {"pca": asdict(pca)}) as work:
            vectors = refine(vectors, bags, teacher_vectors, refinement, work=work, show_progress_bar=show_progress_bar)
    return StaticEmbedder(vocabulary, vectors)


def project(vectors: Vectors, bags: Bags, settings: PcaSettings) -> Vectors:
    """Return word `vectors` [words, D] on the principal components `settings` asks for, [words, dimensions].

    The mean that is subtracted from every word is that of the sentences (or words) the components come from, so that
    a mean of words is centred too. Lengths are kept: they carry how much a word weighs.
    """
    if settings.level == "none":
        return vectors.astype(np.float32)
    if settings.level == "word":
        sample = vectors
    else:
        filled = np.flatnonzero(np.diff(bags.offsets))
        step = max(1, len(filled) // _PCA_SAMPLE)
        sample = bags.take(filled[::step]).means(vectors)
    return rotate(vectors, sample, settings)


def rotate(vectors: Vectors, sample: Vectors, settings: PcaSettings) -> Vectors:
    """Return `vectors` [words, D] less the mean of `sample` [n, D], on the components of `sample` after the first."""
    blocks = np.array_split(sample, 1 + len(sample) // _PCA_BLOCK)  # float64 of all at once would be large
    spectrum = spectrum_of(blocks, centred=True)
    components = spectrum.components[settings.drop : settings.drop + settings.dimensions]
    projected: Vectors = ((vectors - spectrum.mean) @ components.T).astype(np.float32)
    return projected


def subwords_of(teacher: SentenceTransformer) -> Tokenizer | None:
    """Return a copy of the teacher's fast tokenizer without padding or truncation; None if it has none."""
    from tokenizers import Tokenizer

    fast = getattr(teacher.tokenizer, "backend_tokenizer", None)
    if fast is None:
        return None
    plain = json.loads(fast.to_str())
    plain["padding"] = plain["truncation"] = None
    return Tokenizer.from_str(json.dumps(plain))


def open_teacher(teacher: str | SentenceTransformer) -> SentenceTransformer:
    """Return the teacher, opened if it is the folder or hub id of one.

    Raises:
        ModelFolderError: nothing is there, or it is broken.
        MissingExtraError: sentence-transformers is not installed, or too old.
    """
    require("sentence_transformers")
    return open_sentence_transformer(teacher) if isinstance(teacher, str) else teacher


def check_pca(pca: PcaSettings, width: int) -> None:
    """Refuse settings that a teacher of `width` dimensions cannot serve.

    Raises:
        InputError: an unknown level, or more dimensions than there are.
    """
    if pca.level not in ("sentence", "word", "none"):
        raise InputError(f"PCA level {pca.level!r} is unknown; it is 'sentence', 'word' or 'none'")
    if pca.level != "none" and not 0 < pca.dimensions <= width - pca.drop:
        raise InputError(
            f"{pca.dimensions} dimensions after dropping {pca.drop} components need a teacher of at least "
            f"{pca.dimensions + pca.drop} dimensions, this one has {width}"
        )
