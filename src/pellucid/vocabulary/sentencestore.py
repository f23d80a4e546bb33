"""Sentences as rows of a static table, and a teacher's vectors of them, on disk: training text larger than memory.

Three .npy files that grow shard by shard and are mapped, not read; `state.json` says after each shard how far they are
whole. A killed run goes on from there, and what is beyond is written again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.corpus import Corpus
from pellucid.distillation.extraction import ExtractionSettings, usable_sentences
from pellucid.distillation.refinement import Bags
from pellucid.encoders import encode_with
from pellucid.errors import InputError
from pellucid.progress import Progress
from pellucid.store import check_same_run, read_json, write_json
from pellucid.words import Vocabulary

_SHARD = 8_192  # sentences between two checkpoints
_PROBES = 8  # sentences encoded again when a run is resumed, to see that it is the same teacher
_ROUNDING = 0.02  # what a teacher's vectors may differ by from run to run
_FILES = {"rows": "<i8", "offsets": "<i8", "teacher": "<f2"}


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
        corpus: read once, as a stream; to be resumed it must give the same sentences again.
        settings: which sentences are taken, and the prompt.
        origin: what a resumed run must share with the run it goes on from.
        show_progress_bar: show a bar for what takes longer than two seconds.

    Raises:
        CorpusError: the corpus cannot be read.
        InputError: `folder` is of another run or another teacher.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "state.json"
    nothing_done = {"origin": origin, "read": 0, "rows": 0, "sentences": 0, "done": False}
    state: dict[str, Any] = read_json(path) if path.exists() else nothing_done
    check_same_run(folder, state["origin"], origin)
    sentences = usable_sentences(corpus, settings)
    with Progress("teacher", unit="sentences", enabled=show_progress_bar) as progress:
        if not state["done"]:
            _skip(sentences, state, folder, vocabulary, teacher, settings)
            progress.advance(state["read"])
            while shard := list(islice(sentences, _SHARD)):
                state = _add(shard, state, folder, vocabulary, teacher, settings)
                write_json(path, state)
                progress.advance(len(shard))
            write_json(path, {**state, "done": True})
    return _opened(folder, state["sentences"])


def _skip(
    sentences: Iterator[str], state: dict[str, Any], folder: Path, vocabulary: Vocabulary, teacher: Any,
    settings: ExtractionSettings,
) -> None:  # fmt: skip
    """Pass over the sentences that are done, and refuse to go on with another teacher than the one that did them."""
    if not state["read"]:
        return
    first = list(islice(sentences, min(_SHARD, state["read"])))
    for _ in islice(sentences, state["read"] - len(first)):
        pass
    probes = _trainable(first, vocabulary)[0][:_PROBES]
    if not probes:
        return
    again = _vectors(teacher, probes, settings)
    stored = _opened(folder, state["sentences"]).teacher_vectors[: len(again)].astype(np.float32)
    if again.shape != stored.shape or np.abs(again - stored).max(initial=0) > _ROUNDING:
        raise InputError(
            f"{folder} holds vectors of another teacher; give the one it was begun with, or another work_dir"
        )


def _add(
    shard: list[str], state: dict[str, Any], folder: Path, vocabulary: Vocabulary, teacher: Any,
    settings: ExtractionSettings,
) -> dict[str, Any]:  # fmt: skip
    """Append a shard to the files and return the state after it."""
    texts, bags = _trainable(shard, vocabulary)
    if not state["sentences"]:
        _append(folder / "offsets.npy", np.zeros(1, np.int64), 0)
    if texts:
        _append(folder / "teacher.npy", _vectors(teacher, texts, settings).astype(np.float16), state["sentences"])
        _append(folder / "rows.npy", bags.rows, state["rows"])
        _append(folder / "offsets.npy", bags.offsets[1:] + state["rows"], state["sentences"] + 1)
    return {
        **state,
        "read": state["read"] + len(shard),
        "rows": state["rows"] + len(bags.rows),
        "sentences": state["sentences"] + len(texts),
    }


def _trainable(shard: list[str], vocabulary: Vocabulary) -> tuple[list[str], Bags]:
    """Return the sentences with two known words, and their rows."""
    bags = Bags.of(shard, vocabulary)
    kept = np.flatnonzero(np.diff(bags.offsets) >= 2)
    return [shard[n] for n in kept.tolist()], bags.take(kept)


def _vectors(teacher: Any, texts: list[str], settings: ExtractionSettings) -> Vectors:
    return encode_with(teacher, [settings.prompt + text for text in texts])


def _append(path: Path, values: npt.NDArray[Any], first: int) -> None:
    """Write rows from `first` on into an .npy file, and make it end there; numpy leaves room for the count to grow."""
    dtype = np.dtype(_FILES[path.stem])
    header = {"descr": dtype.str, "fortran_order": False, "shape": (first + len(values), *values.shape[1:])}
    with open(path, "r+b" if first else "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.seek(first * dtype.itemsize * int(np.prod(values.shape[1:])), os.SEEK_CUR)
        file.write(np.ascontiguousarray(values, dtype).data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _opened(folder: Path, sentences: int) -> StoredSentences:
    """Map what is whole; copy-on-write, which torch takes without a warning, and nothing writes to it."""
    if not sentences:
        return StoredSentences(Bags(np.zeros(0, np.int64), np.zeros(1, np.int64)), np.zeros((0, 0), np.float16))
    rows, offsets, teacher = (np.load(folder / f"{name}.npy", mmap_mode="c").view(np.ndarray) for name in _FILES)
    offsets = offsets[: sentences + 1]
    return StoredSentences(Bags(rows[: offsets[-1]], offsets), teacher[:sentences])
