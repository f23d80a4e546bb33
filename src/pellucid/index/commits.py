"""The commits of an index: which segments it consists of at one moment, in one file that is replaced as a whole.

    index.json           what the folder is
    commit.json          the last commit: settings, counts, and the files below with their checksums
    segments/            files that never change; one commit adds some, and names those it still needs
    .lock                held while a commit is made

A reader has one commit and the files it names: never half of a change, and no lock. A file that a later commit no
longer names is removed; a process that has it open still reads it, and one that is about to open it takes that commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import VERSION, IndexFolderError, ModelFolderError, ReadingError, WritingError
from pellucid.index.damage import REPAIR_HINT
from pellucid.index.documents import Document
from pellucid.index.engine import LOCAL
from pellucid.index.metadata import KINDS
from pellucid.index.segments import Segment
from pellucid.index.settings import check_types
from pellucid.persistence.store import checksum, parse_json, read_regular, write_tensors, writing
from pellucid.process import current_process

FORMAT = 2
"""The format of an index that this version writes and reads."""

MAX_COMMIT_BYTES = 64 << 20
MAX_VERIFIED_BYTES = 4 << 20  # bytes; a file up to this size is checked against its checksum when it is opened
_FANOUT = 4  # segments of about one size become one
MAX_MERGED_BYTES = 1 << 30  # bytes of a merged segment: merging it takes seconds, and memory of twice that size
MAX_TRIES = 20  # to open files that a merge removes meanwhile
MAX_COUNT = 1 << 62  # documents, passages, terms, bytes
MAX_FORMAT_BYTES = 1 << 16  # bytes of index.json
_COMMIT = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n"state": (.*)\}\n', re.DOTALL)
_KINDS = frozenset(KINDS)  # of values of the metadata


_FORMAT_FILE = b'{"pellucid-index": {"format": %d}}\n' % FORMAT


class File(NamedTuple):
    """A file of a commit: its name in the folder `segments`, checksum and size."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class IndexState:
    """What an index is, and how far it has come."""

    settings: dict[str, Any]  # models with fingerprints, weights, language, stop words, length of a passage
    commit: int = 0  # how many commits were before
    next: int = 1  # the number of the next document; a number is never used twice
    documents: int = 0
    passages: int = 0
    terms: int = 0  # of all passages
    fields: dict[str, tuple[int, str]] = field(default_factory=dict)  # name -> (number, kinds of values)
    segments: tuple[tuple[File, File | None], ...] = ()  # each with the file of the rows that are deleted
    engine: str = "engine-1"  # the generation, where vectors lie elsewhere
    pending_deletes: tuple[
        tuple[int, int], ...
    ] = ()  # number and passages of documents that must still go from the engine

    def files(self) -> list[File]:
        """Return the files of all segments."""
        return [file for pair in self.segments for file in pair if file is not None]

    @property
    def average(self) -> float:
        """Mean number of terms of a passage."""
        return self.terms / self.passages if self.passages else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as `commit.json` holds it."""
        fields = asdict(self)
        fields["garbage"] = fields.pop("pending_deletes")
        return fields

    @classmethod
    def from_json(cls, value: Any) -> IndexState:
        """Return what `to_json` made and JSON has kept."""
        fields = dict(value)
        fields["fields"] = {name: (number, kinds) for name, (number, kinds) in fields["fields"].items()}
        fields["segments"] = tuple(
            (File(*file), rows_file and File(*rows_file)) for file, rows_file in fields["segments"]
        )
        fields["pending_deletes"] = tuple((number, passages) for number, passages in fields.pop("garbage"))
        state = cls(**fields)
        state._check()
        return state

    def _check(self) -> None:
        """Check that values are such as are written: a folder may come from anyone."""
        files = self.files()
        counts = [self.commit, self.next, self.documents, self.passages, self.terms, *(file.bytes for file in files)]
        counts += [number for pair in self.pending_deletes for number in pair]
        if not all(type(count) is int and 0 <= count < MAX_COUNT for count in counts):
            raise ValueError("a count is no number, or negative")
        if not all(isinstance(text, str) and len(text) < 200 for file in files for text in (file.name, file.sha256)):
            raise ValueError("a file has no name or no checksum")
        if len({file.name for file in files}) < len(files):
            raise ValueError("a file is named twice")
        numbers = [number for number, _ in self.fields.values()]
        if any(type(number) is not int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
            raise ValueError("the fields of the metadata are not numbered from 0 on")
        if not all(isinstance(kinds, str) and kinds and set(kinds) <= _KINDS for _, kinds in self.fields.values()):
            raise ValueError("a field of the metadata has values of no kind")
        if not re.fullmatch(r"engine-[0-9]{1,15}", self.engine):
            raise ValueError(f"the generation of the engine is {self.engine!r:.40}")
        check_types(self.settings)


class Commit(NamedTuple):
    """One commit with its segments open; it never changes, and what it has open stays readable."""

    state: IndexState
    segments: tuple[Segment, ...]  # by rising numbers of documents
    stamp: tuple[int, int, int]  # identifies the file of this commit

    def rows_for(self, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the segment and row of each of some ids that is there."""
        rows: dict[str, tuple[int, int]] = {}
        for segment_index, segment in enumerate(self.segments):
            rows |= {document_id: (segment_index, row) for document_id, row in segment.rows_for(ids).items()}
        return rows

    def documents(self, step: int = 1) -> Iterator[Document]:
        """Yield every document, or every `step`-th, in the order of adding."""
        start = 0
        for segment in self.segments:
            rows = segment.live_rows()
            for row in rows[start::step].tolist():
                yield segment.document(row)
            start = (start - len(rows)) % step

    def rows_for_numbers(self, numbers: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return the segment and row of each of some document numbers that is there."""
        requested = np.array(list(numbers), np.int64)
        rows_by_number: dict[int, tuple[int, int]] = {}
        for segment_index, segment in enumerate(self.segments):
            positions, rows = segment.rows_for_numbers(requested)
            rows_by_number |= dict(zip(requested[positions].tolist(), ((segment_index, row) for row in rows.tolist())))
        return rows_by_number


class StoredSegment(NamedTuple):
    """An open segment with its file, and that of the rows that are deleted."""

    segment: Segment
    file: File
    deleted: File | None = None


def read_stamp(folder: Path) -> tuple[int, int, int]:
    """Return by which the present commit is known."""
    try:
        status = os.stat(folder / "commit.json")
    except OSError as error:
        raise IndexFolderError(f"{folder} cannot be read: {error.strerror or error}") from error
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_commit(folder: Path, earlier: Commit | None = None) -> Commit:
    """Return the present commit; files that an earlier one has open are not opened again."""
    previous: dict[str, tuple[File | None, Segment]] = {}
    if earlier is not None:
        previous = {
            file.name: (deleted, segment) for segment, (file, deleted) in zip(earlier.segments, earlier.state.segments)
        }
    for n_left in reversed(range(MAX_TRIES)):
        stamp, state = read_stamp(folder), _read_state(folder)
        try:
            segments = tuple(_open(folder, file, deleted, previous.get(file.name)) for file, deleted in state.segments)
        except FileNotFoundError as error:
            if n_left and read_stamp(folder) != stamp:  # merged meanwhile
                continue
            raise IndexFolderError(f"{folder} lacks a file that its commit names: {error}. {REPAIR_HINT}") from error
        try:
            _check_together(state, segments)
        except (ValueError, KeyError) as error:
            raise IndexFolderError(f"{folder} is damaged: {error}. {REPAIR_HINT}") from error
        return Commit(state, segments, stamp)
    raise AssertionError("the last try returns or raises")


def _read_state(folder: Path) -> IndexState:
    path = folder / "commit.json"
    try:
        match = _COMMIT.fullmatch(read_regular(path, MAX_COMMIT_BYTES))
        if match is None or hashlib.sha256(match[2]).hexdigest().encode() != match[1]:
            raise ValueError("it is not what was written: its checksum differs")
        return IndexState.from_json(parse_json(match[2], f"{path} is not valid JSON"))
    except ReadingError:
        raise
    except (ModelFolderError, KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise IndexFolderError(f"{path} is damaged: {error}. {REPAIR_HINT}") from error


def _open(folder: Path, file: File, deleted: File | None, earlier: tuple[File | None, Segment] | None) -> Segment:
    """Return a segment without the rows that are deleted; `before` is the same in an earlier commit, with its rows."""
    if earlier is None:
        segment = Segment.open(_checked_path(folder, file))
        if file.bytes <= MAX_VERIFIED_BYTES and (problem := segment.find_invalid_numbers()):
            raise IndexFolderError(f"{_path_for(folder, file)} is damaged: {problem}. {REPAIR_HINT}")
    elif earlier[0] == deleted:
        return earlier[1]
    else:
        segment = earlier[1]
    return segment if deleted is None else segment.reduced(_checked_path(folder, deleted))


def _checked_path(folder: Path, file: File) -> Path:
    """Return where a file is; a small one is held against its checksum, of a large one the size is looked at."""
    path = _path_for(folder, file)
    if (file.bytes <= MAX_VERIFIED_BYTES or path.stat().st_size != file.bytes) and (
        problem := find_file_problem(folder, file)
    ):
        raise IndexFolderError(f"{problem}. {REPAIR_HINT}")
    return path


def _check_together(state: IndexState, segments: Sequence[Segment]) -> None:
    """Check that segments are those of a commit: counts, rising numbers, and the parts."""
    counts = (sum(segment.n_documents for segment in segments), sum(segment.n_passages for segment in segments))
    if counts != (state.documents, state.passages):
        raise ValueError(f"it holds {counts[0]:,} documents with {counts[1]:,} passages, and its commit counts others")
    last = 0
    for segment in segments:
        if int(segment.numbers[0]) <= last:
            raise ValueError(f"the documents of {segment.name} are not later than those before")
        last = int(segment.numbers[-1])
        if state.settings["bm25"] != segment.has_bm25():
            raise ValueError(f"{segment.name} was made with BM25, or without it, and the index was not")
        if state.settings["engine"]["kind"] == LOCAL:
            for model in state.settings["models"]:
                dimension = segment.dimension_of(model["name"])
                if dimension not in (None, model["dimension"]):
                    raise ValueError(f"the vectors of {model['name']!r:.60} in {segment.name} have {dimension} numbers")
    if last >= state.next:
        raise ValueError("the number of the next document is taken")


def find_file_problem(folder: Path, file: File) -> str:
    """Return what is wrong with a file's bytes, "" where nothing is."""
    path = _path_for(folder, file)
    size = path.stat().st_size
    if size != file.bytes:
        return f"{path} has {size:,} bytes, and had {file.bytes:,} when it was written"
    try:
        return "" if checksum(path) == file.sha256 else f"{path} is not what was written: its checksum differs"
    except ModelFolderError as error:
        if not path.exists():
            raise FileNotFoundError(path) from error
        if isinstance(error, ReadingError):
            raise
        return str(error)


def _path_for(folder: Path, file: File) -> Path:
    if not re.fullmatch(r"[0-9a-z-]+\.safetensors", file.name):
        raise IndexFolderError(f"{folder} names a file {file.name!r:.60}, which cannot be one of its own")
    path = folder / "segments" / file.name
    if path.parent.is_symlink() or path.is_symlink():
        raise IndexFolderError(f"{path} is a link, and an index consists of its own files; put the file itself there")
    return path


def first_commit(folder: Path, state: IndexState) -> None:
    """Make a folder an index, with a first commit."""
    (folder / "segments").mkdir()
    with writing(folder / "index.json") as tmp_path:
        tmp_path.write_bytes(_FORMAT_FILE)
    _write_state(folder, state)


def check_format(folder: Path) -> None:
    """Check that a folder is an index, and of this version."""
    if not (folder / "index.json").is_file():
        problem = "is no index: there is no index.json in it" if folder.is_dir() else "does not exist"
        problem = "is a file, and an index is a folder" if folder.is_file() else problem
        raise IndexFolderError(f"{folder} {problem}. Make one: pellucid.Index.create, or pellucid index build")
    path = folder / "index.json"
    try:
        content = read_regular(path, MAX_FORMAT_BYTES)
        stored_format = parse_json(content, f"{path} is not valid JSON")["pellucid-index"]["format"]
    except ReadingError:
        raise
    except (ModelFolderError, KeyError, TypeError) as error:
        raise IndexFolderError(f"{folder} is no index: its index.json is of something else ({error})") from error
    if stored_format == FORMAT and content != _FORMAT_FILE:
        raise IndexFolderError(f"{path} is damaged: it holds more than {_FORMAT_FILE.decode().strip()}. Restore it")
    if stored_format != FORMAT or type(stored_format) is not int:
        raise IndexFolderError(
            f"{folder} has format {stored_format!r:.40}; pellucid {VERSION} reads {FORMAT}. Build the index anew, or "
            "update pellucid: pip install -U pellucid"
        )


def _write_state(folder: Path, state: IndexState) -> None:
    """Put a commit in the place of the last one, with a later time than that: readers know it by its time."""
    path, content = folder / "commit.json", json.dumps(state.to_json()).encode()
    previous_mtime_ns = path.stat().st_mtime_ns if path.exists() else 0
    with writing(path) as tmp_path:
        digest = hashlib.sha256(content).hexdigest().encode()
        tmp_path.write_bytes(b'{"sha256": "' + digest + b'",\n"state": ' + content + b"}\n")
        if (
            mtime_ns := tmp_path.stat().st_mtime_ns
        ) <= previous_mtime_ns:  # clocks of files tick in milliseconds, or are set back
            os.utime(tmp_path, ns=(mtime_ns, previous_mtime_ns + 1))


class Writer:
    """Makes commits, one after the other; the lock of the folder must be held."""

    def __init__(self, folder: Path, commit: Commit) -> None:
        """Take the present commit, which may be later than `commit`."""
        late = read_stamp(folder) != commit.stamp
        self.folder, self.commit = folder, read_commit(folder, commit) if late else commit
        self._process = current_process()

    def _check_process(self) -> None:
        """Refuse to go on in a forked child with a change of its parent, which has the lock and goes on, too."""
        if self._process is not current_process():
            raise IndexFolderError(
                f"{self.folder} was being changed when this process was forked; the process that began the change "
                "makes it. Change the index in this process by a new call"
            )

    def stored(self) -> list[StoredSegment]:
        """Return the segments of the present commit."""
        return [
            StoredSegment(segment, *files) for segment, files in zip(self.commit.segments, self.commit.state.segments)
        ]

    def save(self, state: IndexState, stored: Sequence[StoredSegment] | None = None) -> None:
        """Make a commit of these segments, None for those of the last one; on disk when it returns."""
        self._check_process()
        if read_stamp(self.folder) != self.commit.stamp:
            raise IndexFolderError(
                f"{self.folder} was changed by another process that does not see the lock of this one; change an index "
                "on network drives from one machine only"
            )
        stored = self.stored() if stored is None else stored
        files = tuple((file, deleted_file) for _, file, deleted_file in stored)
        state = replace(state, segments=files, commit=self.commit.state.commit + 1)
        _write_state(self.folder, state)
        self.commit = Commit(state, tuple(segment for segment, _, _ in stored), read_stamp(self.folder))
        self._sweep()

    def change(self, state: IndexState, added: Segment | None, deleted: Mapping[int, npt.NDArray[np.int32]]) -> None:
        """Make a commit with one more segment and rows deleted of others (by index), and merge what is due."""
        stored = self.stored()
        for index, rows in deleted.items():
            remaining, path = stored[index].segment.without(rows), self._new_path("-gone")
            write_tensors(path, {"rows": remaining.deleted})
            stored[index] = stored[index]._replace(segment=remaining, deleted=_describe_file(path))
        if added is not None:
            stored.append(self.write(added))
        self.save(state, stored)
        try:
            if self.merge(stored):
                self.save(state, stored)
        except (WritingError, ReadingError):  # the change is made; a later one merges
            self._sweep()

    def compact(self, passages: int) -> None:
        """Merge the last segments after so many passages were added at once; it costs no more than adding them did."""
        stored, n_passages, n_bytes = self.stored(), 0, 0
        first = len(stored)
        while first and n_passages + stored[first - 1].segment.passages <= 2 * passages:
            first -= 1
            n_passages, n_bytes = n_passages + stored[first].segment.passages, n_bytes + stored[first].file.bytes
        if len(stored) - first > 1 and n_bytes <= MAX_MERGED_BYTES:
            try:
                self._merge(stored, slice(first, len(stored)))
                self.save(self.commit.state, stored)
            except (WritingError, ReadingError):  # what was added is there; a later change merges
                self._sweep()

    def merge(self, stored: list[StoredSegment]) -> bool:
        """Merge what is due in a list of segments, which no commit names yet; return whether anything was."""
        merged = False
        while due := _due_merge(stored):
            self._merge(stored, due)
            merged = True
        return merged

    def _merge(self, stored: list[StoredSegment], due: slice) -> None:
        for _, file, _ in stored[due]:  # damage must not go into a new file, with a checksum that is right
            if file.bytes > MAX_VERIFIED_BYTES and (problem := find_file_problem(self.folder, file)):
                raise IndexFolderError(f"{problem}. What was added is safe; restore the file, or build anew")
        merged = Segment.from_segments([segment for segment, _, _ in stored[due]])
        stored[due] = [self.write(merged)] if len(merged.numbers) else []

    def write(self, segment: Segment) -> StoredSegment:
        """Write a segment; it is part of no commit yet."""
        path = self._new_path()
        return StoredSegment(segment.write(path), _describe_file(path))

    def _new_path(self, kind: str = "") -> Path:
        self._check_process()
        name = f"{self.commit.state.commit + 1:06d}-{secrets.token_hex(4)}{kind}.safetensors"
        return self.folder / "segments" / name

    def _sweep(self) -> None:
        """Remove files that the present commit does not name; who has them open still reads them."""
        self._check_process()
        used = {file.name for file in self.commit.state.files()}
        with suppress(OSError):  # the commit is made; the next one tries again
            for path in (self.folder / "segments").iterdir():
                if path.name not in used:
                    with suppress(OSError):  # open elsewhere, on Windows
                        path.unlink()


def _describe_file(path: Path) -> File:
    return File(path.name, checksum(path), path.stat().st_size)


def _due_merge(stored: Sequence[StoredSegment]) -> slice | None:
    """Return neighbouring segments that should be one, None where there are none."""
    for index, (segment, _, _) in enumerate(stored):
        if len(segment.deleted) * 2 > len(segment.numbers):
            return slice(index, index + 1)
    # The last ones, where those after the first of them hold three times as much as it does: a document is written anew
    # about once each time the documents grow four times, and few changes never move many documents.
    due, n_after, n_bytes = None, 0, 0
    for index, (segment, file, _) in reversed(list(enumerate(stored))):
        n_bytes += file.bytes
        if n_after >= (_FANOUT - 1) * segment.passages and n_after and n_bytes <= MAX_MERGED_BYTES:
            due = slice(index, len(stored))
        n_after += segment.passages
    return due
