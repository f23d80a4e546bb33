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
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.errors import VERSION, IndexFolderError, InputError, ModelFolderError, ReadingError
from pellucid.index.arrays import REPAIR_HINT, find_invalid_numbers
from pellucid.index.documents import Document, validate_id
from pellucid.index.metadata import KINDS
from pellucid.index.segments import Segment
from pellucid.index.settings import check_stored
from pellucid.persistence.store import checksum, parse_json, read_regular

FORMAT = 4
"""The format of an index that this version writes and reads."""

MAX_COMMIT_BYTES = 64 << 20
MAX_VERIFIED_BYTES = 4 << 20  # bytes; a file up to this size is checked against its checksum when it is opened
MAX_TRIES = 20  # to open files that a merge removes meanwhile
MAX_COUNT = 1 << 62  # documents, passages, terms, bytes
MAX_FORMAT_BYTES = 1 << 16  # bytes of index.json
_COMMIT = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n"state": (.*)\}\n', re.DOTALL)
FORMAT_FILE = b'{"pellucid-index": {"format": %d}}\n' % FORMAT


class File(NamedTuple):
    """A file of a commit: its name in the folder `segments`, checksum and size."""

    name: str
    sha256: str
    bytes: int

    @property
    def is_small(self) -> bool:
        """Whether it is compared with its checksum whenever it is opened."""
        return self.bytes <= MAX_VERIFIED_BYTES

    def path(self, folder: Path) -> Path:
        """Return where it is; a name or a link that leads elsewhere is refused."""
        if not re.fullmatch(r"[0-9a-z-]+\.safetensors", self.name):
            raise IndexFolderError(f"{folder} names a file {self.name!r:.60}, which cannot be one of its own")
        path = folder / "segments" / self.name
        if path.parent.is_symlink() or path.is_symlink():
            raise IndexFolderError(
                f"{path} is a link, and an index consists of its own files; put the file itself there"
            )
        return path

    def checked_path(self, folder: Path) -> Path:
        """Return where it is, after comparing a small file with its checksum, and a large one with its size."""
        path = self.path(folder)
        if (self.is_small or path.stat().st_size != self.bytes) and (problem := self.find_problem(folder)):
            raise IndexFolderError(f"{problem}. {REPAIR_HINT}")
        return path

    def find_problem(self, folder: Path) -> str:
        """Return what is wrong with its bytes, "" where nothing is."""
        path = self.path(folder)
        size = path.stat().st_size
        if size != self.bytes:
            return f"{path} has {size:,} bytes, and had {self.bytes:,} when it was written"
        try:
            return "" if checksum(path) == self.sha256 else f"{path} is not what was written: its checksum differs"
        except ModelFolderError as error:
            if not path.exists():
                raise FileNotFoundError(path) from error
            if isinstance(error, ReadingError):
                raise
            return str(error)


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

    def files(self) -> list[File]:
        """Return the files of all segments."""
        return [file for pair in self.segments for file in pair if file is not None]

    @property
    def average(self) -> float:
        """Mean number of terms of a passage."""
        return self.terms / self.passages if self.passages else 0.0

    @classmethod
    def from_json(cls, value: Any) -> IndexState:
        """Return the state whose `asdict` JSON has kept; values are checked, as a folder may come from anyone."""
        fields = dict(value)
        fields["fields"] = {name: (number, kinds) for name, (number, kinds) in fields["fields"].items()}
        fields["segments"] = tuple((File(*file), rows and File(*rows)) for file, rows in fields["segments"])
        state = cls(**fields)
        files, numbers = state.files(), [number for number, _ in state.fields.values()]
        counts = [state.commit, state.next, state.documents, state.passages, state.terms, *(f.bytes for f in files)]
        if not all(type(count) is int and 0 <= count < MAX_COUNT for count in counts):
            raise ValueError("a count is no number, or negative")
        if not all(isinstance(text, str) and len(text) < 200 for file in files for text in (file.name, file.sha256)):
            raise ValueError("a file has no name or no checksum")
        if len({file.name for file in files}) < len(files):
            raise ValueError("a file is named twice")
        if any(type(number) is not int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
            raise ValueError("the fields of the metadata are not numbered from 0 on")
        if not all(isinstance(kinds, str) and kinds and set(kinds) <= set(KINDS) for _, kinds in state.fields.values()):
            raise ValueError("a field of the metadata has values of no kind")
        check_stored(state.settings)
        return state


class Commit(NamedTuple):
    """One commit with its segments open; it never changes, and what it has open stays readable."""

    state: IndexState
    segments: tuple[Segment, ...]  # by rising numbers of documents
    stamp: tuple[int, int, int]  # identifies the file of this commit

    def stored(self) -> list[StoredSegment]:
        """Return the segments with their files."""
        return [StoredSegment(segment, *files) for segment, files in zip(self.segments, self.state.segments)]

    def rows_for(self, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the segment and row of each of some ids that the index has."""
        rows: dict[str, tuple[int, int]] = {}
        for segment_index, segment in enumerate(self.segments):
            rows |= {document_id: (segment_index, row) for document_id, row in segment.rows_for(ids).items()}
        return rows

    def locate(self, id: str | int) -> tuple[int, int]:
        """Return the segment and row of a document; InputError where no document has the id."""
        document_id = validate_id(id, "the id")
        rows = self.rows_for([document_id])
        if not rows:
            raise InputError(f"no document {document_id!r:.80} is in the index")
        return rows[document_id]

    def documents(self, step: int = 1) -> Iterator[Document]:
        """Yield every document, or every `step`-th, in the order of adding."""
        rows = ((segment, row) for segment in self.segments for row in segment.live_rows().tolist())
        for segment, row in islice(rows, None, None, step):
            yield segment.document(row)


class StoredSegment(NamedTuple):
    """An open segment with its file, and that of the rows that are deleted."""

    segment: Segment
    file: File
    deleted: File | None = None


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
    if stored_format == FORMAT and content != FORMAT_FILE:
        raise IndexFolderError(f"{path} is damaged: it holds more than {FORMAT_FILE.decode().strip()}. Restore it")
    if stored_format != FORMAT or type(stored_format) is not int:
        raise IndexFolderError(
            f"{folder} has format {stored_format!r:.40}; pellucid {VERSION} reads {FORMAT}. Build the index anew, or "
            "update pellucid: pip install -U pellucid"
        )


def read_stamp(folder: Path) -> tuple[int, int, int]:
    """Return by which the present commit is known."""
    path = os.path.join(folder, "commit.json")
    try:
        status = os.stat(path)
    except OSError as error:
        raise IndexFolderError(f"{path} cannot be read: {error.strerror or error}. {REPAIR_HINT}") from error
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_commit(folder: Path, earlier: Commit | None = None) -> Commit:
    """Return the present commit; files that an earlier one has open are not opened again."""
    opened = {} if earlier is None else {s.file.name: s for s in earlier.stored()}
    for n_left in reversed(range(MAX_TRIES)):
        stamp, state = read_stamp(folder), read_state(folder)
        try:
            segments = tuple(_open_segment(folder, *files, opened.get(files[0].name)) for files in state.segments)
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


def _open_segment(folder: Path, file: File, deleted: File | None, earlier: StoredSegment | None) -> Segment:
    """Return a segment without the rows that are deleted; `earlier` is the same in an earlier commit."""
    if earlier is not None:
        if earlier.deleted == deleted:
            return earlier.segment
        segment = earlier.segment
    else:
        segment = Segment.open(file.checked_path(folder))
        if file.is_small and (problem := find_invalid_numbers(segment.tensors)):
            raise IndexFolderError(f"{file.path(folder)} is damaged: {problem}. {REPAIR_HINT}")
    return segment if deleted is None else segment.reduced(deleted.checked_path(folder))


def read_state(folder: Path) -> IndexState:
    """Return what `commit.json` says, as it is written; the files that it names are not looked at."""
    path = folder / "commit.json"
    try:
        match = _COMMIT.fullmatch(read_regular(path, MAX_COMMIT_BYTES))
        if match is None or hashlib.sha256(match[2]).hexdigest().encode() != match[1]:
            raise ValueError("it is not what was written: its checksum differs")
        return IndexState.from_json(parse_json(match[2], f"{path} is not valid JSON"))
    except ReadingError:
        raise
    except (
        ModelFolderError, InputError, KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError
    ) as error:  # fmt: skip
        raise IndexFolderError(f"{path} is damaged: {error}. {REPAIR_HINT}") from error


def counts_of(segments: Iterable[Segment]) -> list[int]:
    """Return the numbers of documents, passages and terms that are in segments."""
    return np.sum([(0, 0, 0), *(segment.counts for segment in segments)], axis=0).tolist()  # type: ignore[no-any-return]


def _check_together(state: IndexState, segments: Sequence[Segment]) -> None:
    """Check that segments are those of a commit: counts, rising numbers, and the parts."""
    documents, passages, _ = counts_of(segments)
    if (documents, passages) != (state.documents, state.passages):
        raise ValueError(f"it holds {documents:,} documents with {passages:,} passages, and its commit counts others")
    last = 0
    for segment in segments:
        if int(segment.numbers[0]) <= last:
            raise ValueError(f"the documents of {segment.name} are not later than those before")
        last = int(segment.numbers[-1])
        if state.settings["bm25"] != segment.has_bm25:
            raise ValueError(f"{segment.name} was made with BM25, or without it, and the index was not")
        for model in state.settings["models"]:
            segment.rows(model["name"], model["dimension"], np.zeros(0, np.int64))  # checks the dimension
    if last >= state.next:
        raise ValueError("the number of the next document is taken")
