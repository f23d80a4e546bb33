"""Making a static model from a sentence transformer, or training one further (SWE paper, section 3).

1. Extraction (`extraction.py`, section 3.1): a vector for each word from one pass of the teacher over a corpus.
2. PCA (section 3.2): principal components of *sentence* vectors, without the first few ("all but the top").
3. Refinement (`tuning.py`, section 3.3): the student's similarities are trained towards the teacher's.

Extraction takes nearly all the time and is done once: `distill_extraction` makes further models (other sizes, other
ablations) from what it left in `work_dir`.

A model to start from keeps its words, and takes the place of steps 1 and 2. Memory does not grow with the corpus then:
its sentences, as rows of the table, and the teacher's vectors are three arrays on disk that grow shard by shard and are
mapped, not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Union

import numpy as np
import numpy.typing as npt

from pellucid.analysis.coordinates import spearman
from pellucid.core.arrays import l2_normalize
from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.fingerprint import record_model
from pellucid.core.pca import spectrum_of
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import CorpusError, InputError, require, shown
from pellucid.explain.views.parts import AnyPart, Heading, Note, counted, percent, signed
from pellucid.explain.views.report import Report
from pellucid.loading import load, open_sentence_transformer
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.progress import Progress
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.static.training.extraction import Extraction, ExtractionSettings, extract, shards, spool
from pellucid.static.training.tuning import RefinementSettings, array_digest, refine, scale_of, tuning_folder
from pellucid.text.tables import Corpus
from pellucid.text.words import Vocabulary

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer


Teacher = Union[str, "SentenceTransformer"]
"""A sentence transformer, or the folder or hub id of one."""

_PCA_SAMPLE = 100_000  # sentences, as in the paper's code
_BLOCK = 16_384  # sentences at a time
_SHARD = 8_192  # sentences between two checkpoints of the store
_HELD_OUT, _MAX_HELD_OUT = 50, 500  # one sentence in so many, at most so many


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

    def check(self, width: int) -> None:
        """Check that a teacher of `width` dimensions can serve.

        Raises:
            InputError: an unknown level, or more dimensions than there are.
        """
        if self.level not in ("sentence", "word", "none"):
            raise InputError(f"PCA level {shown(self.level)} is unknown; it is 'sentence', 'word' or 'none'")
        if self.level != "none" and not 0 < self.dimensions <= width - self.drop:
            raise InputError(
                f"{self.dimensions} dimensions after dropping {self.drop} components need a teacher of at least "
                f"{self.dimensions + self.drop} dimensions, this one has {width}"
            )


@dataclass(frozen=True, repr=False)
class Retraining(Report):
    """What training a model further on a corpus did.

    Attributes:
        sentences: trained on.
        held_out: sentences kept aside, the last of the corpus.
        words: in the vocabulary.
        trained: words among them that the corpus has; the others keep their vectors.
        agreement_before: Spearman's correlation of the model's cosines with the teacher's over all pairs of held-out
            sentences; None with fewer than 3, or where all cosines are equal.
        agreement_after: the same afterwards.
    """

    kind: ClassVar[str] = "vocabulary-retraining"

    sentences: int
    held_out: int
    words: int
    trained: int
    agreement_before: float | None
    agreement_after: float | None

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Retrained", counted(self.sentences, "sentence"), "static model")
        yield Note(
            f"{self.trained:,} of {self.words:,} words ({percent(self.trained / self.words)}) occur in them. Agreement "
            f"with the teacher on {self.held_out:,} sentences held out: {signed(self.agreement_before)} before, "
            f"{signed(self.agreement_after)} now."
        )


def distill(
    teacher: Any,
    corpus: Corpus,
    *,
    work_dir: str | Path,
    start: StaticEmbedder | None = None,
    extraction: ExtractionSettings | None = None,
    pca: PcaSettings | None = None,
    refinement: RefinementSettings | None = None,
    show_progress_bar: bool = True,
) -> StaticEmbedder:
    """Make a static model of `teacher` from plain sentences, or train one further.

    Args:
        teacher: a SentenceTransformer, or the folder or hub id of one; its pooling and its default prompt are
            respected. With `start` also a pellucid model or a callable.
        corpus: a file (.txt, .jsonl, .parquet; .xz and .gz too) or an iterable, one sentence an item.
        work_dir: where the state is kept; the same call with the same folder resumes an interrupted run. The corpus is
            then read again and must be the same, text for text; of an iterator this cannot be checked, and the run
            uses the copy that it made. Other settings of steps 2 and 3 reuse the extraction that is there. With
            `start` it takes 2 bytes a number of the teacher's vectors.
        start: a model whose vectors are trained on the corpus; it is not changed. Its words stay: add words before,
            with `add_words`. None extracts words and vectors from the teacher (steps 1 and 2).
        extraction: settings of step 1; None for the defaults, as for the others. With `start` they choose the
            sentences (`sentence_words`, `enough`, `max_sentences`) and the `prompt`.
        pca: settings of step 2; without effect with `start`.
        refinement: settings of step 3.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        The model, with a float32 table. `save_pretrained(path, dtype="int8")` makes it small. With `start` its `report`
        is a `Retraining`; in memory are then the table four to six times, and a few numbers a sentence.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        CorpusError: the corpus cannot be read, has no usable sentence, or with `start` fewer than two batches of
            sentences with two known words.
        InputError: settings that do not fit together, a `start` that is no static model, or a `work_dir` that belongs
            to another run or corpus, or in which a run is at work.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    work_dir, pca, extraction = Path(work_dir), pca or PcaSettings(), extraction or ExtractionSettings()
    if start is not None:
        static_model(start, "training further")
        refinement = refinement or RefinementSettings()
        return _trained_further(start, teacher, corpus, work_dir, extraction, refinement, show_progress_bar)
    teacher = open_teacher(teacher)
    pca.check(int(teacher[0].get_embedding_dimension()))
    extracted = extract(teacher, corpus, work_dir, extraction, show_progress_bar=show_progress_bar)
    return distill_extraction(
        extracted,
        subwords_of(teacher),
        pca=pca,
        refinement=refinement,
        work_dir=work_dir,
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
    """Do steps 2 and 3 on what step 1 left; `subwords` is the teacher's tokenizer, for words out of the vocabulary."""
    pca, refinement = pca or PcaSettings(), refinement or RefinementSettings()
    pca.check(extraction.vectors.shape[1])
    rows = np.flatnonzero(np.any(extraction.vectors != 0, axis=1))[: pca.vocabulary]
    vocabulary = Vocabulary([extraction.words[row] for row in rows], subwords)
    bags = Bags.from_sentences(extraction.sentences, vocabulary)
    vectors = project(extraction.vectors[rows], bags, pca)
    if refinement.steps:
        teacher_vectors = extraction.teacher_vectors
        with tuning_folder(work_dir, refinement, {"pca": asdict(pca)}) as work:
            vectors = refine(vectors, bags, teacher_vectors, refinement, work=work, show_progress_bar=show_progress_bar)
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
    projected: Vectors = ((vectors - spectrum.mean) @ components.T).astype(np.float32)
    return projected


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
            "hub id. Any model can train a static one further: distill(teacher, corpus, start=...)"
        )
    return teacher


def _trained_further(
    model: StaticEmbedder,
    teacher: Any,
    corpus: Corpus,
    work_dir: Path,
    extraction: ExtractionSettings,
    refinement: RefinementSettings,
    show_progress_bar: bool,
) -> StaticEmbedder:
    """Return `model` with vectors refined on a corpus, and a report of it."""
    vectors, words = model.word_vectors(np.arange(len(model.vocabulary))), "\n".join(model.vocabulary.words)
    origin = {"model": array_digest(vectors, np.frombuffer(words.encode("utf-8", "replace"), np.uint8))}
    with WorkFolder(work_dir / "sentences") as work:
        bags, teacher_vectors = store_sentences(
            work, model.vocabulary, teacher, corpus, extraction, origin, show_progress_bar
        )
    if not len(bags):
        raise CorpusError("no sentence of the corpus holds two words that the model knows; is it another language?")
    count = len(bags) - min(len(bags) // _HELD_OUT, _MAX_HELD_OUT)  # the last ones are held out; nothing is copied
    middle = bags.offsets[count]
    training = Bags(bags.rows[:middle], bags.offsets[: count + 1])
    held_out = Bags(bags.rows[middle:], bags.offsets[count:] - middle)
    with tuning_folder(work_dir, refinement) as work:
        refined = refine(
            vectors, training, teacher_vectors[:count], refinement, work=work, show_progress_bar=show_progress_bar
        )
    n_trained = int(np.count_nonzero(np.bincount(training.rows, minlength=len(vectors))))
    agreements = (_agreement(table, held_out, teacher_vectors[count:]) for table in (vectors, refined))
    retrained = StaticEmbedder(model.vocabulary, refined * np.float32(scale_of(vectors)))
    retrained.report = Retraining(len(training), len(held_out), len(vectors), n_trained, *agreements)
    return retrained


def store_sentences(
    work: WorkFolder,
    vocabulary: Vocabulary,
    teacher: Any,
    corpus: Corpus,
    settings: ExtractionSettings,
    origin: dict[str, Any],
    show_progress_bar: bool = True,
) -> tuple[Bags, npt.NDArray[np.float16]]:
    """Return the sentences with two known words, and the teacher's unit vectors of them, both mapped from `work`."""
    corpus = spool(corpus, work)
    work.bind_settings({**origin, **asdict(settings)})
    opened: Embedder | None = None
    with Progress("teacher", unit="sentences", enabled=show_progress_bar) as progress:
        for shard, done in shards(corpus, work, settings, _SHARD):
            if not done:
                if opened is None:
                    opened = load(teacher)
                    record_model(work.metadata, opened, work.path)
                bags = Bags.from_sentences(shard, vocabulary)
                usable = np.flatnonzero(np.diff(bags.offsets) >= 2)
                if len(usable):
                    if "offsets" not in work:
                        work.append("offsets", np.zeros(1, np.int64))
                    n_stored_rows, bags = work.rows("rows"), bags.take(usable)
                    vectors = unit_vectors(opened, [settings.prompt + shard[n] for n in usable.tolist()])
                    work.append("teacher", vectors.astype(np.float16))
                    work.append("rows", bags.rows)
                    work.append("offsets", bags.offsets[1:] + n_stored_rows)
            progress.advance(len(shard))
    if "teacher" not in work:
        return Bags(np.zeros(0, np.int64), np.zeros(1, np.int64)), np.zeros((0, 0), np.float16)
    return Bags(work.array("rows"), work.array("offsets")), work.array("teacher")


def _agreement(vectors: Vectors, bags: Bags, teacher_vectors: npt.NDArray[np.float16]) -> float | None:
    """Return Spearman's correlation of the two models' cosines over all pairs of sentences."""
    if len(bags) < 3:
        return None
    units, teacher = l2_normalize(bags.means(vectors)), teacher_vectors.astype(np.float32)
    upper = np.triu_indices(len(units), 1)
    student_cosines, teacher_cosines = (units @ units.T)[upper], (teacher @ teacher.T)[upper]
    return spearman(student_cosines, teacher_cosines)
