"""Training a static model that exists on a corpus of one's own, in memory that does not grow with the corpus.

The words stay; their vectors are refined as in `distill` (section 3.3 of the paper) against any encoder as teacher. The
corpus is read as a stream, and sentences and the teacher's vectors lie on disk (`sentencestore.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pellucid.base import Vectors, unit_rows
from pellucid.corpus import Corpus
from pellucid.distillation.extraction import ExtractionSettings
from pellucid.distillation.refinement import Bags, RefinementSettings, refine
from pellucid.distillation.tabletrainer import scale_of, tuning_folder
from pellucid.errors import CorpusError
from pellucid.inspection.tableviews import all_vectors, static_model
from pellucid.static.embedder import StaticEmbedder
from pellucid.views.report import Heading, Note, Part, Report, counted, percent, signed
from pellucid.vocabulary.sentencestore import StoredSentences, store_sentences

_HELD_OUT, _MOST_HELD_OUT = 50, 500  # one sentence in so many, at most so many


@dataclass(frozen=True, repr=False)
class Retraining(Report):
    """What training on a corpus did.

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

    def __repr__(self) -> str:
        """Return one short line."""
        return f"<Retraining on {self.sentences:,} sentences>"

    def _parts(self) -> Iterator[Part]:
        yield Heading("Retrained", counted(self.sentences, "sentence"), "static model")
        yield Note(
            f"{self.trained:,} of {self.words:,} words ({percent(self.trained / self.words)}) occur in them. Agreement "
            f"with the teacher on {self.held_out:,} sentences held out: {signed(self.agreement_before)} before, "
            f"{signed(self.agreement_after)} now."
        )

    def _records(self) -> Sequence[tuple[Any, ...]]:
        return [tuple(getattr(self, name) for name in self._columns())]

    def _columns(self) -> Sequence[str]:
        return tuple(item.name for item in fields(self))


def retrain(
    model: StaticEmbedder,
    teacher: Any,
    corpus: Corpus,
    *,
    work_dir: str | Path,
    sentences: ExtractionSettings | None = None,
    refinement: RefinementSettings | None = None,
    show_progress_bar: bool = True,
) -> tuple[StaticEmbedder, Retraining]:
    """Return `model` with vectors trained on a corpus, and a report.

    Args:
        model: a static model; it is not changed, and its words stay. Add words before, with `add_words`.
        teacher: a SentenceTransformer, a pellucid model or a callable; its similarities are learnt.
        corpus: a file or an iterable of sentences, of any length.
        work_dir: where the state is kept: 2 bytes a number of the teacher's vectors. The same call with the same folder
            goes on after an interruption. The corpus is then read again and must be the same, text for text; of an
            iterator this cannot be checked, the run goes on with the copy that it made.
        sentences: which sentences are taken (`sentence_words`, `enough`, `max_sentences`), and the `prompt`; the other
            settings have no effect.
        refinement: settings of the training.
        show_progress_bar: show bars for what takes longer than two seconds.

    Returns:
        A float32 model and the report. In memory are the table four to six times, a few numbers a sentence, and parts
        of the files that the system may drop.

    Raises:
        CorpusError: the corpus cannot be read, or fewer than two batches of sentences hold two known words.
        InputError: the model is not static, `work_dir` belongs to another run or corpus, or a run is at work in it.
        ModelFolderError: the state in `work_dir` is damaged.
    """
    static_model(model, "retraining")
    work_dir, chosen, refinement = Path(work_dir), sentences or ExtractionSettings(), refinement or RefinementSettings()
    vectors = all_vectors(model)
    stored = store_sentences(
        work_dir / "sentences",
        model.vocabulary,
        teacher,
        corpus,
        chosen,
        {"model": _digest(model, vectors)},
        show_progress_bar=show_progress_bar,
    )
    if not len(stored.bags):
        raise CorpusError("no sentence of the corpus holds two words that the model knows; is it another language?")
    training, held_out = _apart(stored)
    scale = scale_of(vectors)
    with tuning_folder(work_dir, refinement) as work:
        refined = refine(
            vectors,
            training.bags,
            training.teacher_vectors,
            refinement,
            work=work,
            show_progress_bar=show_progress_bar,
        )
    used = int(np.count_nonzero(np.bincount(training.bags.rows, minlength=len(vectors))))
    agreements = (_agreement(table, held_out) for table in (vectors, refined))
    report = Retraining(len(training.bags), len(held_out.bags), len(vectors), used, *agreements)
    return StaticEmbedder(model.vocabulary, refined * np.float32(scale)), report


def _digest(model: StaticEmbedder, vectors: Vectors) -> str:
    """Return what tells a model from others."""
    digest = hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=16)
    digest.update("\n".join(model.vocabulary.words).encode("utf-8", "replace"))
    return digest.hexdigest()


def _apart(stored: StoredSentences) -> tuple[StoredSentences, StoredSentences]:
    """Return the sentences to train on and the last ones, which are held out; neither is copied."""
    bags, teacher = stored
    count = len(bags) - min(len(bags) // _HELD_OUT, _MOST_HELD_OUT)
    middle = bags.offsets[count]
    training = Bags(bags.rows[:middle], bags.offsets[: count + 1])
    held_out = Bags(bags.rows[middle:], bags.offsets[count:] - middle)
    return StoredSentences(training, teacher[:count]), StoredSentences(held_out, teacher[count:])


def _agreement(vectors: Vectors, held_out: StoredSentences) -> float | None:
    """Return Spearman's correlation of the two models' cosines over all pairs of sentences."""
    from scipy.stats import spearmanr

    if len(held_out.bags) < 3:
        return None
    units, teacher = unit_rows(held_out.bags.means(vectors)), held_out.teacher_vectors.astype(np.float32)
    upper = np.triu_indices(len(units), 1)
    ours, theirs = (units @ units.T)[upper], (teacher @ teacher.T)[upper]
    return float(spearmanr(ours, theirs).statistic) if np.ptp(ours) and np.ptp(theirs) else None
