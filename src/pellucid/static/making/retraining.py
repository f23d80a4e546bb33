"""Training a static model further on a corpus of one's own, in memory that does not grow with the corpus.

The words stay; their vectors are refined as in `distill` (section 3.3 of the SWE paper) against any encoder as teacher.
The corpus is read as a stream. Its sentences, as rows of the table, and the teacher's vectors are three arrays on disk
that grow shard by shard and are mapped, not read. An interrupted run resumes after its last shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder, Vectors, unit_rows
from pellucid.corpus import Corpus, read_texts
from pellucid.encoder import unit_vectors
from pellucid.errors import CorpusError
from pellucid.fingerprint import claim_model
from pellucid.pretrained import load
from pellucid.progress import Progress
from pellucid.static.bags import Bags
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.static.making.extraction import ExtractionSettings, spool, usable_sentences
from pellucid.static.making.training import RefinementSettings, array_digest, refine, scale_of, tuning_folder
from pellucid.text import Vocabulary
from pellucid.views.parts import AnyPart, Heading, Note, counted, percent, signed
from pellucid.views.report import Report
from pellucid.workfolder import WorkFolder

_SHARD = 8_192  # sentences between two checkpoints
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

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Retrained", counted(self.sentences, "sentence"), "static model")
        yield Note(
            f"{self.trained:,} of {self.words:,} words ({percent(self.trained / self.words)}) occur in them. Agreement "
            f"with the teacher on {self.held_out:,} sentences held out: {signed(self.agreement_before)} before, "
            f"{signed(self.agreement_after)} now."
        )


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
        teacher: what `pellucid.load` takes; its similarities are learnt.
        corpus: a file or an iterable of sentences, of any length.
        work_dir: where the state is kept: 2 bytes a number of the teacher's vectors. The same call with the same folder
            resumes an interrupted run. The corpus is then read again and must be the same, text for text; of an
            iterator this cannot be checked, and the run uses the copy that it made.
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
    vectors, words = model.word_vectors(np.arange(len(model.vocabulary))), "\n".join(model.vocabulary.words)
    stored = store_sentences(
        work_dir / "sentences",
        model.vocabulary,
        teacher,
        corpus,
        chosen,
        {"model": array_digest(vectors, np.frombuffer(words.encode("utf-8", "replace"), np.uint8))},
        show_progress_bar=show_progress_bar,
    )
    if not len(stored.bags):
        raise CorpusError("no sentence of the corpus holds two words that the model knows; is it another language?")
    training, held_out = _apart(stored)
    scale = scale_of(vectors)
    with tuning_folder(work_dir, refinement) as work:
        refined = refine(vectors, *training, refinement, work=work, show_progress_bar=show_progress_bar)
    used = int(np.count_nonzero(np.bincount(training.bags.rows, minlength=len(vectors))))
    agreements = (_agreement(table, held_out) for table in (vectors, refined))
    report = Retraining(len(training.bags), len(held_out.bags), len(vectors), used, *agreements)
    return StaticEmbedder(model.vocabulary, refined * np.float32(scale)), report


class StoredSentences(NamedTuple):
    """What the store holds, mapped from disk: bags of rows, and float16 [sentences, d] of length 1."""

    bags: Bags
    teacher_vectors: npt.NDArray[np.float16]


def store_sentences(
    folder: Path,
    vocabulary: Vocabulary,
    teacher: Any,
    corpus: Corpus,
    settings: ExtractionSettings,
    origin: dict[str, Any],
    *,
    show_progress_bar: bool = True,
) -> StoredSentences:
    """Write the sentences of `corpus` with two known words, and the teacher's vectors of them, into `folder`.

    Args:
        folder: made if it is not there; one that an interrupted run left is resumed.
        vocabulary: of the model to train.
        teacher: any encoder.
        corpus: read as a stream. A resume reads it again and refuses other texts; an iterator is copied and not looked
            at again.
        settings: which sentences are taken, and the prompt.
        origin: what else a resumed run must have in common with the run before, as JSON.
        show_progress_bar: show a bar for what takes longer than two seconds.

    Raises:
        CorpusError: the corpus cannot be read.
        InputError: `folder` is of another run, corpus or teacher, or a run is at work in it.
        ModelFolderError: what is in `folder` is damaged.
    """
    with WorkFolder(folder) as work:
        corpus = spool(corpus, work)
        work.claim({**origin, **asdict(settings)})
        if work.facts.get("done"):
            work.check_texts("corpus", read_texts(corpus), str(corpus))
            return _opened(work)
        teacher = load(teacher)
        claim_model(work.facts, teacher, work.path)
        sentences = usable_sentences(work.texts("corpus", read_texts(corpus), str(corpus)), settings)
        with Progress("teacher", unit="sentences", enabled=show_progress_bar) as progress:
            read = work.facts.get("read", 0)
            for _ in islice(sentences, read):  # are done
                pass
            progress.advance(read)
            while shard := list(islice(sentences, _SHARD)):
                _add(shard, work, vocabulary, teacher, settings)
                read += len(shard)
                work.commit({"read": read})
                progress.advance(len(shard))
            work.commit({"done": True})
        return _opened(work)


def _add(
    shard: list[str], work: WorkFolder, vocabulary: Vocabulary, teacher: Embedder, settings: ExtractionSettings
) -> None:
    """Append a shard to the arrays."""
    texts, bags = _trainable(shard, vocabulary)
    if not texts:
        return
    if "offsets" not in work:
        work.append("offsets", np.zeros(1, np.int64))
    known = work.rows("rows")
    prompted = [settings.prompt + text for text in texts]
    work.append("teacher", unit_vectors(teacher, prompted).astype(np.float16))
    work.append("rows", bags.rows)
    work.append("offsets", bags.offsets[1:] + known)


def _trainable(shard: list[str], vocabulary: Vocabulary) -> tuple[list[str], Bags]:
    """Return the sentences with two known words, and their rows."""
    bags = Bags.of(shard, vocabulary)
    kept = np.flatnonzero(np.diff(bags.offsets) >= 2)
    return [shard[n] for n in kept.tolist()], bags.take(kept)


def _opened(work: WorkFolder) -> StoredSentences:
    """Map what is there."""
    if "teacher" not in work:
        return StoredSentences(Bags(np.zeros(0, np.int64), np.zeros(1, np.int64)), np.zeros((0, 0), np.float16))
    return StoredSentences(Bags(work.array("rows"), work.array("offsets")), work.array("teacher"))


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
