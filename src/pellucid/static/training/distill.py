"""Making a static model from a sentence transformer (SWE paper, section 3).

1. Extraction (`extraction.py`, section 3.1): a vector for each word from one pass of the teacher over a corpus.
2. PCA (section 3.2): principal components of *sentence* vectors, without the first few ("all but the top").
3. Refinement (`tuning.py`, section 3.3): the student's similarities are trained towards the teacher's.

Extraction takes nearly all the time and is done once: `distill_extraction` makes further models (other sizes, other
ablations) from what it left in `work_dir`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import numpy as np

from pellucid.core.embedder import Vectors
from pellucid.core.pca import spectrum_of
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.errors import InputError, require
from pellucid.loading import open_sentence_transformer
from pellucid.settings import Limits, Settings
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.training.extraction import Extraction, ExtractionSettings, extract
from pellucid.static.training.tuning import RefinementSettings, refine
from pellucid.text.tables import Corpus
from pellucid.text.words import Vocabulary

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer


Teacher = Union[str, "SentenceTransformer"]
"""A sentence transformer, or the folder or hub id of one."""

_PCA_SAMPLE = 100_000  # sentences, as in the paper's code
_BLOCK = 16_384  # sentences at a time


@dataclass(frozen=True)
class PcaSettings(Settings):
    """How the extracted vectors are reduced.

    Attributes:
        dimensions: of the model.
        drop: how many first components are left out. 0 turns "all but the top" off.
        level: "sentence" takes the components of sentence means, "word" those of the words themselves, "none" keeps
            the teacher's dimensions as they are (`dimensions` and `drop` then have no effect).
        vocabulary: keep so many words, the most frequent first; None keeps all that were extracted.
    """

    dimensions: Annotated[int, Limits(1)] = 256
    drop: Annotated[int, Limits(0)] = 7
    level: Literal["sentence", "word", "none"] = "sentence"
    vocabulary: Annotated[int | None, Limits(1)] = None

    def check(self, width: int) -> None:
        """Check that a teacher of `width` dimensions can serve.

        Raises:
            InputError: more dimensions are asked for than there are.
        """
        if self.level != "none" and self.dimensions > width - self.drop:
            raise InputError(
                f"{self.dimensions} dimensions after dropping {self.drop} components need a teacher of at least "
                f"{self.dimensions + self.drop} dimensions, this one has {width}"
            )


def distill(
    teacher: Any,
    corpus: Corpus,
    *,
    work_dir: str | Path,
    extraction: ExtractionSettings | None = None,
    pca: PcaSettings | None = None,
    refinement: RefinementSettings | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Make a static model of `teacher` from plain sentences.

    Args:
        teacher: a SentenceTransformer, or the folder or hub id of one; its pooling and its default prompt are
            respected.
        corpus: a file (.txt, .jsonl, .parquet; .xz and .gz too) or an iterable, one sentence an item.
        work_dir: where the state is kept; the same call with the same folder resumes an interrupted run. The corpus is
            then read again and must be the same, text for text; of an iterator this cannot be checked, and the run
            uses the copy that it made. Other settings of steps 2 and 3 reuse the extraction that is there.
        extraction: settings of step 1; None for the defaults, as for the others.
        pca: settings of step 2.
        refinement: settings of step 3.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        The model, with a float32 table. `save_pretrained(path, dtype="int8")` makes it small.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        CorpusError: the corpus cannot be read, or has no usable sentence.
        InputError: settings that do not fit together, or a `work_dir` that belongs to another run or corpus, or in
            which a run is at work.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    work_dir, pca, extraction = Path(work_dir), pca or PcaSettings(), extraction or ExtractionSettings()
    teacher = open_teacher(teacher)
    pca.check(int(teacher[0].get_embedding_dimension()))
    extracted = extract(teacher, corpus, work_dir, extraction, show_progress_bar=show_progress_bar)
    return distill_extraction(
        extracted,
        subwords_of(teacher),
        pca=pca,
        refinement=refinement,
        show_progress_bar=show_progress_bar,
    )


def distill_extraction(
    extraction: Extraction,
    subwords: Tokenizer | None,
    *,
    pca: PcaSettings | None = None,
    refinement: RefinementSettings | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Do steps 2 and 3 on what step 1 left; `subwords` is the teacher's tokenizer, for words out of the vocabulary."""
    pca, refinement = pca or PcaSettings(), refinement or RefinementSettings()
    pca.check(extraction.vectors.shape[1])
    rows = np.flatnonzero(np.any(extraction.vectors != 0, axis=1))[: pca.vocabulary]
    vocabulary = Vocabulary([extraction.words[row] for row in rows], subwords)
    bags = Bags.from_sentences(extraction.sentences, vocabulary)
    vectors = project(extraction.vectors[rows], bags, pca)
    if refinement.steps:
        vectors = refine(vectors, bags, extraction.teacher_vectors, refinement, show_progress_bar=show_progress_bar)
    return StaticEmbedder(vocabulary, vectors)


def project(vectors: Vectors, bags: Bags, settings: PcaSettings) -> Vectors:
    """Return word `vectors` [words, D] on the principal components that `settings` ask for, [words, dimensions]."""
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
    # The mean of sentences, so that a mean of words is centred too; lengths stay, since they are how much words weigh.
    blocks = np.array_split(sample, 1 + len(sample) // _BLOCK)  # float64 of all at once would be large
    spectrum = spectrum_of(blocks, centred=True)
    components = spectrum.components[settings.drop : settings.drop + settings.dimensions]
    return ((vectors - spectrum.mean) @ components.T).astype(np.float32)


def subwords_of(teacher: SentenceTransformer) -> Tokenizer | None:
    """Return a copy of the teacher's fast tokenizer without padding or truncation; None if it has none."""
    from tokenizers import Tokenizer

    backend = getattr(teacher.tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    plain = Tokenizer.from_str(backend.to_str())
    plain.no_padding()
    plain.no_truncation()
    return plain


def open_teacher(teacher: Teacher) -> SentenceTransformer:
    """Return the teacher, opened if it is the folder or hub id of one, and as sentence-transformers has it."""
    require("sentence_transformers")
    if isinstance(teacher, str):
        return open_sentence_transformer(teacher)
    if isinstance(teacher, EncoderEmbedder):  # what `pellucid.load` makes of one
        teacher = teacher.model
    if not hasattr(teacher, "default_prompt_name"):
        raise InputError(
            f"the teacher is a {type(teacher).__name__}; words are read from a SentenceTransformer, or its folder or "
            "hub id"
        )
    return teacher
