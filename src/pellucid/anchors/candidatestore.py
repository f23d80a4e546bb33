"""Candidates for anchors on disk: the texts that passed the filter and their vectors, written as they are encoded.

A killed run goes on after its last 16,384 texts; other methods and numbers of anchors need not encode again.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.anchors.candidates import RULES, CandidateSettings, Filtered, candidate_texts
from pellucid.corpus import Corpus, is_path, read_texts
from pellucid.errors import CorpusError, InputError
from pellucid.progress import Progress
from pellucid.store import check_same_run, read_json, write_json, writing

_SHARD = 16_384  # texts between two checkpoints
_NOTHING_DONE = {"encoded": 0, "zeros": 0, "dimension": None}
_PROBES = 8  # texts encoded again when a run is resumed, to see that it is the same encoder
_ROUNDING = 0.02  # what an encoder's vectors may differ by from run to run, in bfloat16 for instance


class Candidates:
    """The candidates of a corpus and their vectors, in a folder; made by `prepare_candidates`.

    Attributes:
        vectors: float16 [N, d], rows of length 1 (or 0), mapped from disk.
        filtered: what the rules dropped.
    """

    def __init__(self, folder: Path, filtered: Filtered) -> None:
        """Open a finished folder."""
        self.vectors: npt.NDArray[np.float16] = np.load(folder / "vectors.npy", mmap_mode="r")
        self.filtered = filtered
        self._path = folder / "candidates.jsonl"

    def texts(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the texts of some rows, in the order of `rows`; reads the list of candidates once."""
        wanted = set(rows.tolist())
        found = {row: text for row, text in enumerate(read_texts(self._path)) if row in wanted}
        return [found[row] for row in rows.tolist()]


def prepare_candidates(
    encoder: Any, corpus: Corpus, settings: CandidateSettings, folder: Path, *, show_progress_bar: bool = True
) -> Candidates:
    """Filter `corpus` and encode what is left into `folder`; a killed run goes on after its last 16,384 texts.

    Files: `candidates.jsonl` (a text a line), `vectors.npy` (float16 [N, d]), `state.json` (what was asked for, what
    was dropped, how many vectors are done).

    Raises:
        CorpusError: the corpus cannot be read, or no text is left.
        InputError: `folder` holds the candidates of another corpus, encoder or other settings.
        WritingError: no space or no permission.
    """
    folder.mkdir(parents=True, exist_ok=True)
    origin = _origin(corpus, settings)
    state_path = folder / "state.json"
    if not state_path.exists():
        filtered = _spool(corpus, settings, folder / "candidates.jsonl", show_progress_bar)
        write_json(state_path, {"origin": origin, "read": filtered.read, "dropped": filtered.dropped, **_NOTHING_DONE})
    state = read_json(state_path)
    check_same_run(folder, state["origin"], origin, "candidates")
    filtered = Filtered(state["read"], state["dropped"])
    if not filtered.kept:
        raise CorpusError(f"no candidate for an anchor: {filtered}. Add texts, or leave rules out (--unfiltered)")
    filtered.dropped["encoded to zero"] = _encode(encoder, folder, state, filtered.kept, show_progress_bar)
    return Candidates(folder, filtered)


def _origin(corpus: Corpus, settings: CandidateSettings) -> dict[str, Any]:
    """What a resumed run must share with the run it goes on from."""
    values: dict[str, Any] = {**json.loads(json.dumps(asdict(settings))), "rules": RULES}
    if is_path(corpus):
        path = Path(corpus)  # type: ignore[arg-type]
        return {"corpus": [path.name, path.stat().st_size if path.exists() else 0], **values}
    if isinstance(corpus, (list, tuple)):
        digest = hashlib.blake2b("\0".join(map(str, corpus)).encode("utf-8", "replace"), digest_size=16)
        return {"corpus": [digest.hexdigest(), len(corpus)], **values}
    return {"corpus": ["iterator", 0], **values}


def _spool(corpus: Corpus, settings: CandidateSettings, path: Path, show_progress_bar: bool) -> Filtered:
    filtered = Filtered()
    with writing(path) as aside, open(aside, "w", encoding="utf-8") as file:
        with Progress("choosing candidates", enabled=show_progress_bar) as progress:
            for text in candidate_texts(corpus, settings, filtered):
                file.write(json.dumps(text, ensure_ascii=False) + "\n")
                progress.advance()
    return filtered


def _encode(encoder: Any, folder: Path, state: dict[str, Any], count: int, show_progress_bar: bool) -> int:
    """Append to `vectors.npy` until it holds all, and return how many are zero.

    `state.json` says after each shard how far the file is whole; what is beyond is written again.
    """
    from pellucid.encoders import encode_with

    texts = read_texts(folder / "candidates.jsonl")
    done, zeros, dimension = state["encoded"], state["zeros"], state["dimension"]
    if done:
        _check_encoder(encoder, folder, dimension)
    with Progress("encoding candidates", total=count, enabled=show_progress_bar) as progress:
        progress.advance(sum(1 for _ in islice(texts, done)))
        while shard := list(islice(texts, _SHARD)):
            rows = encode_with(encoder, shard, dimension=dimension)
            dimension = rows.shape[1]
            _write_rows(folder / "vectors.npy", rows.astype(np.float16), done, (count, dimension))
            done += len(rows)
            zeros += int((~rows.any(axis=1)).sum())
            write_json(folder / "state.json", {**state, "encoded": done, "zeros": zeros, "dimension": dimension})
            progress.advance(len(rows))
    return int(zeros)


def _write_rows(path: Path, rows: npt.NDArray[np.float16], first: int, shape: tuple[int, int]) -> None:
    """Write rows from `first` on into an .npy file of `shape` that may not be finished yet."""
    header = {"descr": "<f2", "fortran_order": False, "shape": shape}
    with open(path, "r+b" if first else "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.seek(first * shape[1] * 2, os.SEEK_CUR)
        file.write(np.ascontiguousarray(rows, "<f2").data)
        file.flush()
        os.fsync(file.fileno())


def _check_encoder(encoder: Any, folder: Path, dimension: int) -> None:
    """Refuse to go on with another encoder than the one that made the first vectors."""
    from pellucid.encoders import encode_with

    again = encode_with(encoder, list(islice(read_texts(folder / "candidates.jsonl"), _PROBES)))
    with open(folder / "vectors.npy", "rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        stored = np.fromfile(file, "<f2", len(again) * dimension).astype(np.float32)
    if again.shape[1] != dimension or np.abs(stored - again.ravel()).max() > _ROUNDING:
        raise InputError(
            f"{folder} holds vectors of another encoder; give the encoder it was begun with, or another work_dir"
        )
