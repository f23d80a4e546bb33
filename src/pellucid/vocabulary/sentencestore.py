"""Sentences as rows of a static table, and a teacher's vectors of them, on disk: training text larger than memory.

Three arrays that grow shard by shard (`WorkFolder`) and are mapped, not read. A killed run goes on after its last
shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.corpus import Corpus, read_texts
from pellucid.distillation.extraction import ExtractionSettings, spool, usable_sentences
from pellucid.distillation.refinement import Bags
from pellucid.encoders import check_same_encoder, encode_with
from pellucid.progress import Progress
from pellucid.words import Vocabulary
from pellucid.workfolder import WorkFolder

_SHARD = 8_192  # sentences between two checkpoints


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
        folder: made where it is not there; one that an interrupted run left is gone on with.
        vocabulary: of the model to train.
        teacher: any encoder.
        corpus: read as a stream. A resume reads it again and refuses other texts; an iterator is copied and not looked
            at again.
        settings: which sentences are taken, and the prompt.
        origin: what else a resumed run must share with the run it goes on from, as JSON.
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
        sentences = usable_sentences(work.texts("corpus", read_texts(corpus), str(corpus)), settings)
        with Progress("teacher", unit="sentences", enabled=show_progress_bar) as progress:
            read = work.facts.get("read", 0)
            _skip(sentences, read, work, vocabulary, teacher, settings)
            progress.advance(read)
            while shard := list(islice(sentences, _SHARD)):
                _add(shard, work, vocabulary, teacher, settings)
                read += len(shard)
                work.commit({"read": read})
                progress.advance(len(shard))
            work.commit({"done": True})
        return _opened(work)


def _skip(
    sentences: Iterator[str], read: int, work: WorkFolder, vocabulary: Vocabulary, teacher: Any,
    settings: ExtractionSettings,
) -> None:  # fmt: skip
    """Pass over the sentences that are done, and refuse to go on with another teacher than the one that did them."""
    first = list(islice(sentences, min(_SHARD, read)))
    for _ in islice(sentences, read - len(first)):
        pass
    if "teacher" in work:
        prompted = [settings.prompt + text for text in _trainable(first, vocabulary)[0]]
        check_same_encoder(teacher, prompted, work.array("teacher"), work.path)


def _add(
    shard: list[str], work: WorkFolder, vocabulary: Vocabulary, teacher: Any, settings: ExtractionSettings
) -> None:
    """Append a shard to the arrays."""
    texts, bags = _trainable(shard, vocabulary)
    if not texts:
        return
    if "offsets" not in work:
        work.append("offsets", np.zeros(1, np.int64))
    known = work.rows("rows")
    work.append("teacher", _vectors(teacher, texts, settings).astype(np.float16))
    work.append("rows", bags.rows)
    work.append("offsets", bags.offsets[1:] + known)


def _trainable(shard: list[str], vocabulary: Vocabulary) -> tuple[list[str], Bags]:
    """Return the sentences with two known words, and their rows."""
    bags = Bags.of(shard, vocabulary)
    kept = np.flatnonzero(np.diff(bags.offsets) >= 2)
    return [shard[n] for n in kept.tolist()], bags.take(kept)


def _vectors(teacher: Any, texts: list[str], settings: ExtractionSettings) -> Vectors:
    return encode_with(teacher, [settings.prompt + text for text in texts])


def _opened(work: WorkFolder) -> StoredSentences:
    """Map what is there."""
    if "teacher" not in work:
        return StoredSentences(Bags(np.zeros(0, np.int64), np.zeros(1, np.int64)), np.zeros((0, 0), np.float16))
    return StoredSentences(Bags(work.array("rows"), work.array("offsets")), work.array("teacher"))
