"""Candidates for anchors on disk: the texts that passed the filter and their vectors, written as they are encoded.

A killed run goes on after its last 16,384 texts; other methods and numbers of anchors need not encode again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.anchors.candidates import RULES, CandidateSettings, Filtered, candidate_texts
from pellucid.corpus import Corpus, is_path, read_texts
from pellucid.errors import CorpusError
from pellucid.progress import Progress
from pellucid.workfolder import WorkFolder

_SHARD = 16_384  # texts between two checkpoints


class Candidates:
    """The candidates of a corpus and their vectors, in a folder; made by `prepare_candidates`.

    Attributes:
        vectors: float16 [N, d], rows of length 1 (or 0), mapped from disk.
        filtered: what the rules dropped.
    """

    def __init__(self, work: WorkFolder, filtered: Filtered) -> None:
        """Open what is finished."""
        self.vectors: npt.NDArray[np.float16] = work.array("vectors")
        self.filtered = filtered
        self._path = work.file("candidates")

    def texts(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the texts of some rows, in the order of `rows`; reads the list of candidates once."""
        wanted = set(rows.tolist())
        found = {row: text for row, text in enumerate(read_texts(self._path)) if row in wanted}
        return [found[row] for row in rows.tolist()]


def prepare_candidates(
    encoder: Any, corpus: Corpus, settings: CandidateSettings, folder: Path, *, show_progress_bar: bool = True
) -> Candidates:
    """Filter `corpus` and encode what is left into `folder`; a killed run goes on after its last 16,384 texts.

    A resume reads the corpus again, as far as the run had read it, and refuses other texts; an iterator, which can be
    read but once, is not looked at. The encoder must give the same vectors of the first texts.

    Raises:
        CorpusError: the corpus cannot be read, or no text is left.
        InputError: `folder` is of another corpus, encoder or other settings, or a run is at work in it.
        ModelFolderError: what is in `folder` is damaged.
        WritingError: no space or no permission.
    """
    with WorkFolder(folder) as work:
        work.claim({**asdict(settings), "rules": RULES})
        filtered = _filtered(corpus, settings, work, show_progress_bar)
        if not filtered.kept:
            raise CorpusError(f"no candidate for an anchor: {filtered}. Add texts, or leave rules out (--unfiltered)")
        _encode(encoder, work, filtered.kept, show_progress_bar)
        filtered.dropped["encoded to zero"] = work.facts["zeros"]
        return Candidates(work, filtered)


def _filtered(corpus: Corpus, settings: CandidateSettings, work: WorkFolder, show_progress_bar: bool) -> Filtered:
    """Write down the texts that pass, once, and return what was dropped."""
    name = str(corpus) if is_path(corpus) else "the corpus"
    if "candidates" in work:
        if is_path(corpus) or iter(corpus) is not corpus:  # type: ignore[arg-type]
            work.check_texts("corpus", read_texts(corpus), name)
        return Filtered(work.facts["read"], dict(work.facts["dropped"]))
    filtered = Filtered()
    with Progress("choosing candidates", enabled=show_progress_bar) as progress:

        def passing() -> Iterator[str]:
            for text in candidate_texts(work.texts("corpus", read_texts(corpus), name), settings, filtered):
                progress.advance()
                yield text

        work.save_texts("candidates", passing())
    if filtered.kept:
        work.commit({"read": filtered.read, "dropped": filtered.dropped, "zeros": 0})
    return filtered


def _encode(encoder: Any, work: WorkFolder, count: int, show_progress_bar: bool) -> None:
    """Append to the vectors until there are all."""
    from pellucid.encoders import check_same_encoder, encode_with

    path = work.file("candidates")
    done, dimension = 0, None
    if "vectors" in work:
        vectors = work.array("vectors")
        done, dimension = vectors.shape
        check_same_encoder(encoder, read_texts(path), vectors, work.path)
    texts = islice(read_texts(path), done, None)
    with Progress("encoding candidates", total=count, enabled=show_progress_bar) as progress:
        progress.advance(done)
        while shard := list(islice(texts, _SHARD)):
            rows = encode_with(encoder, shard, dimension=dimension)
            dimension = rows.shape[1]
            work.append("vectors", rows.astype(np.float16))
            work.commit({"zeros": work.facts["zeros"] + int((~rows.any(axis=1)).sum())})
            progress.advance(len(rows))
