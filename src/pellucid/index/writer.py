"""Changes of an index: commits are made one after the other, each adds and deletes documents.

Segments are written first and flushed; then one commit makes a batch of documents visible, or nothing of it. After an
error the commit on disk says what there is.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.fingerprint import same_model
from pellucid.errors import IndexFolderError, InputError, PellucidError, ReadingError, WritingError
from pellucid.index.arrays import (
    arrays_from_documents,
    joined_rows,
    n_bytes,
)
from pellucid.index.commits import (
    FORMAT_FILE,
    MAX_COMMIT_BYTES,
    Commit,
    File,
    IndexState,
    StoredSegment,
    counts_of,
    read_commit,
    read_stamp,
    read_state,
)
from pellucid.index.documents import Document, batches
from pellucid.index.metadata import Fields, register
from pellucid.index.models import store_models
from pellucid.index.parts import ModelPart
from pellucid.index.plan import Snapshot
from pellucid.index.precomputed import Rows, remaining_precomputed, stored_rows
from pellucid.index.segments import Segment
from pellucid.index.settings import BM25, precomputed_parts, rebuilt_settings, with_precomputed
from pellucid.persistence.store import checksum, flush_to_disk, write_tensors, writing

FANOUT = 4
"""Segments of about one size become one."""

MAX_MERGED_BYTES = 1 << 30
"""Bytes of a merged segment: merging it takes seconds, and memory of twice that size."""

MIN_FREE_BYTES = 64 << 20
"""Bytes that the disk must have left: files are mapped, and a full disk would end the process."""

MAX_PENDING_BYTES = 192 << 20
"""Bytes of texts, vectors and counts of the documents of a commit."""

MAX_COMMIT_OVERHEAD = 1000  # bytes of commit.json around the state

MAX_PENDING_TERMS = 1 << 20
MAX_PENDING_S = 30.0
"""Seconds after which a block of documents is committed with those before it, however few they are."""


# --- Commits ---


def first_commit(folder: Path, state: IndexState) -> None:
    """Make a folder an index, with a first commit."""
    (folder / "segments").mkdir()
    with writing(folder / "index.json") as tmp_path:
        tmp_path.write_bytes(FORMAT_FILE)
    _write_state(folder, state)


def _write_state(folder: Path, state: IndexState) -> None:
    """Replace the last commit, with a later time: readers know it by its time."""
    path, content = folder / "commit.json", json.dumps(asdict(state)).encode()
    if len(content) + MAX_COMMIT_OVERHEAD > MAX_COMMIT_BYTES:  # no reader would open it
        raise InputError(
            f"the settings and the {len(state.fields):,} field names of {folder} would take {len(content) >> 20:,} MB, "
            f"and at most {MAX_COMMIT_BYTES >> 20} are possible. What was committed is safe; put what differs from "
            "document to document, such as users or dates, into values, not into names"
        )
    previous_mtime_ns = path.stat().st_mtime_ns if path.exists() else 0
    with writing(path) as tmp_path:
        digest = hashlib.sha256(content).hexdigest().encode()
        tmp_path.write_bytes(b'{"sha256": "' + digest + b'",\n"state": ' + content + b"}\n")
        mtime_ns = tmp_path.stat().st_mtime_ns
        if mtime_ns <= previous_mtime_ns:  # clocks of files tick in milliseconds, or are set back
            os.utime(tmp_path, ns=(mtime_ns, previous_mtime_ns + 1))


class Writer:
    """Makes commits, one after the other; the lock of the folder must be held."""

    def __init__(self, folder: Path, commit: Commit) -> None:
        """Take the present commit, which may be later than `commit`."""
        late = read_stamp(folder) != commit.stamp
        self.folder, self.commit = folder, read_commit(folder, commit) if late else commit
        self._process = os.getpid()

    def _check_process(self) -> None:
        """Refuse to go on in a forked child with a change of its parent, which has the lock and continues, too."""
        if self._process != os.getpid():
            raise IndexFolderError(
                f"{self.folder} was being changed when this process was forked; the process that began the change "
                "makes it. Change the index in this process by a new call"
            )

    def save(self, state: IndexState, stored: Sequence[StoredSegment] | None = None) -> None:
        """Make a commit of these segments, None for those of the last one; on disk when it returns."""
        self._check_process()
        if read_stamp(self.folder) != self.commit.stamp:
            raise IndexFolderError(
                f"{self.folder} was changed by another process that does not see the lock of this one; change an index "
                "on network drives from one machine only"
            )
        stored = self.commit.stored() if stored is None else stored
        segments, files = tuple(s.segment for s in stored), tuple((s.file, s.deleted) for s in stored)
        documents, passages, terms = counts_of(segments)
        state = replace(
            state, segments=files, commit=self.commit.state.commit + 1,
            documents=documents, passages=passages, terms=terms,
        )  # fmt: skip
        try:
            _write_state(self.folder, state)
        except BaseException:  # the new commit may be in place
            self.recover()
            raise
        self.commit = Commit(state, segments, read_stamp(self.folder))
        self._sweep()

    def change(
        self, state: IndexState, added: Sequence[StoredSegment], deleted: Mapping[int, npt.NDArray[np.int32]]
    ) -> None:
        """Make a commit with more segments and rows deleted of others (by index), and merge what is due."""
        stored = self.commit.stored()
        for index, rows in deleted.items():
            remaining, path = stored[index].segment.without(rows), self._new_path("-gone")
            write_tensors(path, {"rows": remaining.deleted})
            stored[index] = stored[index]._replace(segment=remaining, deleted=_describe_file(path))
        stored += added
        self.save(state, stored)
        try:
            if self.merge(stored):
                self.save(state, stored)
        except (WritingError, ReadingError):  # the change is made; a later one merges
            self.recover()

    def merge(self, stored: list[StoredSegment]) -> bool:
        """Merge what is due in a list of segments, which no commit names yet; return whether anything was."""
        merged = False
        while due := _due_merge(stored):
            for _, file, _ in stored[due]:  # damage must not go into a new file, with a checksum that is right
                if not file.is_small and (problem := file.find_problem(self.folder)):
                    raise IndexFolderError(f"{problem}. What was added is safe; restore the file, or build anew")
            segment = Segment.merged([segment for segment, _, _ in stored[due]])
            stored[due] = [self.write(segment)] if len(segment.numbers) else []
            merged = True
        return merged

    def write(self, segment: Segment) -> StoredSegment:
        """Write a segment; it is part of no commit yet."""
        path = self._new_path()
        write_tensors(path, segment.tensors)
        return StoredSegment(Segment.open(path), _describe_file(path))

    def _new_path(self, kind: str = "") -> Path:
        self._check_process()
        name = f"{self.commit.state.commit + 1:06d}-{secrets.token_hex(4)}{kind}.safetensors"
        return self.folder / "segments" / name

    def recover(self) -> None:
        """Take the commit that is on disk after an error, and remove files that it does not name."""
        with suppress(PellucidError, OSError):
            self.commit = read_commit(self.folder, self.commit)
            flush_to_disk(self.folder)  # else a power failure could bring back the commit before, which has other files
            self._sweep()

    def _sweep(self) -> None:
        """Remove files that the commit on disk does not name; who has them open still reads them."""
        self._check_process()
        with suppress(OSError, IndexFolderError):  # the commit is made; the next one tries again
            used = {file.name for file in read_state(self.folder).files()}
            for path in (self.folder / "segments").iterdir():
                if path.name in used:
                    continue
                if path.is_dir() and not path.is_symlink():  # what a killed writer left
                    shutil.rmtree(path, ignore_errors=True)
                    continue
                with suppress(OSError):  # open elsewhere, on Windows
                    path.unlink()


def _describe_file(path: Path) -> File:
    return File(path.name, checksum(path), path.stat().st_size)


def _due_merge(stored: Sequence[StoredSegment]) -> slice | None:
    """Return neighbouring segments that should be one, None if all may stay."""
    for index, (segment, _, _) in enumerate(stored):
        if len(segment.deleted) * 2 > len(segment.numbers):
            return slice(index, index + 1)
    # The last ones, where those after the first of them hold three times as much as it does: a document is written anew
    # about once each time the documents grow four times, and few changes never move many documents.
    due, n_after, n_bytes = None, 0, 0
    for index, (segment, file, _) in reversed(list(enumerate(stored))):
        n_bytes += file.bytes
        if n_after >= (FANOUT - 1) * segment.n_passages and n_after and n_bytes <= MAX_MERGED_BYTES:
            due = slice(index, len(stored))
        n_after += segment.n_passages
    return due


# --- Documents come and go ---


class _Block(NamedTuple):
    """Some documents with what is computed of their passages."""

    documents: Sequence[Document]
    rows: Rows  # by part
    given: Rows  # those that were there before


class Additions:
    """Documents to make visible in one commit, with what is computed of them before: others may write meanwhile."""

    def __init__(self, snapshot: Snapshot, precomputed: Iterable[str] = ()) -> None:
        """Take what they are added to, and the parts of which a user gives rows."""
        self.snapshot, self.precomputed, self._started = snapshot, frozenset(precomputed), time.monotonic()
        self._makers = {name: part.row_maker() for name, part in snapshot.parts.items()}
        self._blocks: list[_Block] = []
        self._bytes = 0

    def add(self, documents: Sequence[Document], precomputed: Rows = MappingProxyType({})) -> None:
        """Take a block of documents, with the rows of their passages that need not be computed; all or nothing."""
        texts = [text for document in documents for text in document.passages()]
        rows = {name: precomputed[name] if name in precomputed else make(texts) for name, make in self._makers.items()}
        self._blocks.append(_Block(documents, rows, precomputed))
        self._bytes += sum(len(document.title) + len(document.text) for document in documents)
        self._bytes += sum(map(n_bytes, rows.values()))

    @property
    def is_due(self) -> bool:
        """Whether they should be committed before more come: they are many, or took long."""
        counts = self._blocks[-1].rows.get(BM25) if self._blocks else None
        is_large = self._bytes >= MAX_PENDING_BYTES or (counts is not None and len(counts.hashes) >= MAX_PENDING_TERMS)
        return bool(self._blocks) and (is_large or time.monotonic() - self._started >= MAX_PENDING_S)

    @property
    def documents(self) -> list[Document]:
        """All of them, without numbers."""
        return list(chain.from_iterable(block.documents for block in self._blocks))

    def segment(self, numbers: Sequence[int], fields: Fields) -> Segment:
        """Return the segment of the documents, which get these numbers; their fields are added to `fields`."""
        documents = self.documents
        for document in documents:
            register(document.metadata, fields)
        rows = {name: joined_rows([block.rows[name] for block in self._blocks]) for name in self._makers}
        return Segment(arrays_from_documents(numbers, documents, rows, fields))

    def moved_to(self, snapshot: Snapshot, models_before: Mapping[str, ModelPart]) -> Additions:
        """Return the same documents for a later snapshot: computed anew if a rebuild changed the models."""
        for name in {name for block in self._blocks for name in block.given}:
            model = snapshot.models.get(name)
            if model is None or not same_model(models_before[name].fingerprint, model.fingerprint):
                raise IndexFolderError(
                    f"the index was rebuilt with another model {name!r} meanwhile; vectors do not fit it"
                )
        if snapshot.models is self.snapshot.models:
            return self
        moved = Additions(snapshot, self.precomputed)
        for block in self._blocks:
            moved.add(block.documents, block.given)
        return moved


def encoded(
    snapshot: Snapshot, blocks: Iterable[Sequence[Document]], advance: Callable[[int], None]
) -> Iterator[Additions]:
    """Yield documents with what is computed of them, in pieces that fit into memory."""
    additions = Additions(snapshot)
    for documents in blocks:
        if additions.is_due:
            yield additions
            additions = Additions(snapshot)
        additions.add(documents)
        advance(len(documents))
    yield additions


def replace_documents(
    writer: Writer,
    snapshot: Snapshot,
    additions: Iterable[Additions] = (),
    replaced: Sequence[tuple[int, int]] = (),
) -> None:
    """Make documents visible and delete others (segment and row), all or nothing; one of `additions` is in memory."""
    _check_space(writer.folder, MIN_FREE_BYTES)
    state, added = writer.commit.state, list[StoredSegment]()
    number, fields, precomputed = state.next, dict(state.fields), {*precomputed_parts(state.settings)}
    try:
        for block in additions:
            if block.documents:
                added.append(writer.write(block.segment(range(number, number + len(block.documents)), fields)))
                number += len(block.documents)
                precomputed |= block.precomputed
        if not added and not replaced:
            return
        deleted = {index: np.array([row for i, row in replaced if i == index]) for index in {i for i, _ in replaced}}
        writer.change(
            replace(state, settings=with_precomputed(state.settings, precomputed), next=number, fields=fields),
            added,
            deleted,
        )
    except BaseException:  # some files may be written
        writer.recover()
        raise


# --- All vectors anew ---


def write_rebuilt(writer: Writer, snapshot: Snapshot) -> Snapshot:
    """Write all segments anew for the models of `snapshot`, in one commit, and return that with the models."""
    folder, previous, models = writer.folder, writer.commit, snapshot.models
    _check_space(folder, MIN_FREE_BYTES + 2 * bytes_on_disk(folder))
    for file in previous.state.files():
        if problem := file.find_problem(folder):
            raise IndexFolderError(f"{problem}. Restore the file, or build the index anew from the documents")
    precomputed = remaining_precomputed(previous.state, models)
    settings = with_precomputed(rebuilt_settings(previous.state.settings, models), precomputed)
    settings["models"] = store_models(folder, models, f"models-{previous.state.commit + 1}")
    stored, fields = list[StoredSegment](), Fields()
    blocks = batches(previous.documents())
    block = next(blocks, None)
    while block is not None:
        additions = Additions(snapshot)
        while block is not None and not additions.is_due:
            additions.add(block, stored_rows(previous, {name: models[name] for name in precomputed}, block))
            block = next(blocks, None)
        numbers = [document.number for document in additions.documents]
        stored.append(writer.write(additions.segment(numbers, fields)))
        writer.merge(stored)
    state = IndexState(settings, previous.state.commit, previous.state.next, fields=fields)
    writer.save(state, stored)
    return snapshot._replace(commit=writer.commit)


def sweep_models(folder: Path, after: IndexState) -> None:
    """Remove copies of models that no search asks any more."""
    used = {str(model["copy"]).partition("/")[0] for model in after.settings["models"]}
    for path in folder.glob("models-*"):
        if path.name not in used:
            shutil.rmtree(path, ignore_errors=True)


def bytes_on_disk(folder: Path) -> int:
    """Return what the files of a folder take of the disk."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # removed meanwhile
            status = path.stat()
            size += getattr(status, "st_blocks", -(-status.st_size // 512)) * 512 if path.is_file() else 0
    return size


def _check_space(folder: Path, min_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < min_bytes:
        raise WritingError(
            f"{folder} is on a disk with {free >> 20:,} MB left, and {min_bytes >> 20:,} are needed. What was "
            "committed is safe; free some space"
        )
