"""The commits of an index: which segments it consists of at one moment, in one file that is replaced as a whole.

    index.json           what the folder is
    commit.json          the last commit: settings, counts, and the files below with their checksums
    segments/            files that never change; one commit adds some, and names those it still needs
    .lock                held by who makes a commit, and by nobody else

Whoever reads has one commit, and the files it names: never half of a change, and no lock. A file that a later commit
no longer names is removed; who has it open still reads it, and who is about to open it takes the later commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import VERSION, IndexFolderError, ModelFolderError
from pellucid.index.documents import Document
from pellucid.index.segments import Segment
from pellucid.store import checksum, parse_json, read_json, read_tensors, write_json, write_tensors

FORMAT = 2
"""The format of an index that this version writes and reads."""

_MOST_STATE = 64 << 20  # bytes
_SMALL = 4 << 20  # bytes; a file up to this size is checked against its checksum when it is opened
_FANOUT = 4  # segments of about one size become one
_LARGEST = 1 << 30  # bytes of a merged segment: merging it takes seconds, and memory of twice that size
_TRIES = 20  # to open files that a merge removes meanwhile


class File(NamedTuple):
    """A file of a commit.

    Attributes:
        name: in the folder `segments`.
        sha256: of its bytes.
        bytes: its size.
    """

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class State:
    """What an index is, and how far it has come.

    Attributes:
        settings: what it was made with: models with fingerprints, weights, language, stop words, length of a passage.
        commit: how many commits were before.
        next: the number of the next document; a number is never used twice.
        documents: how many there are.
        passages: how many they have.
        terms: how many the passages have in all.
        fields: of the metadata: name -> (number, kinds of values).
        segments: the files, each with that of the rows that are gone, or None.
        engine: the generation of the engine, where vectors lie elsewhere.
        garbage: number and passages of documents that may still be in the engine and have to go.
    """

    settings: dict[str, Any]
    commit: int = 0
    next: int = 1
    documents: int = 0
    passages: int = 0
    terms: int = 0
    fields: dict[str, tuple[int, str]] = field(default_factory=dict)
    segments: tuple[tuple[File, File | None], ...] = ()
    engine: str = "engine-1"
    garbage: tuple[tuple[int, int], ...] = ()

    @property
    def average(self) -> float:
        """Mean number of terms of a passage."""
        return self.terms / self.passages if self.passages else 0.0

    @classmethod
    def read(cls, value: Any) -> State:
        """Return what `asdict` made and JSON has kept."""
        known = dict(value)
        known["fields"] = {name: (number, kinds) for name, (number, kinds) in known["fields"].items()}
        known["segments"] = tuple((File(*one), gone and File(*gone)) for one, gone in known["segments"])
        known["garbage"] = tuple((number, passages) for number, passages in known["garbage"])
        return cls(**known)


class Commit(NamedTuple):
    """One commit with its segments open; it never changes, and what it has open stays readable.

    Attributes:
        state: what was written.
        segments: by rising numbers of documents.
        stamp: by which the file of this commit is known again.
    """

    state: State
    segments: tuple[Segment, ...]
    stamp: tuple[int, int, int]

    def rows_of(self, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the segment and row of each of some ids that is there."""
        found: dict[str, tuple[int, int]] = {}
        for number, segment in enumerate(self.segments):
            found |= {own: (number, row) for own, row in segment.rows_of(ids).items()}
        return found

    def documents(self) -> Iterator[Document]:
        """Yield every document, in the order of adding."""
        for segment in self.segments:
            for row in segment.kept_rows().tolist():
                yield segment.document(row)

    def numbered(self, numbers: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return the segment and row of each of some document numbers that is there."""
        wanted = np.array(list(numbers), np.int64)
        found: dict[int, tuple[int, int]] = {}
        for number, segment in enumerate(self.segments):
            which, rows = segment.rows_numbered(wanted)
            found |= dict(zip(wanted[which].tolist(), ((number, row) for row in rows.tolist())))
        return found


def stamp_of(folder: Path) -> tuple[int, int, int]:
    """Return by which the present commit is known.

    Raises:
        IndexFolderError: there is none.
    """
    try:
        facts = os.stat(folder / "commit.json")
    except OSError as error:
        raise IndexFolderError(f"{folder} cannot be read: {error.strerror or error}") from error
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def read_commit(folder: Path, before: Commit | None = None) -> Commit:
    """Return the present commit; files that an earlier one has open are not opened again.

    Raises:
        IndexFolderError: a file is missing or damaged.
    """
    opened = {} if before is None else {(s.name, g and g.name): one for one, (s, g) in
                                        zip(before.segments, before.state.segments)}  # fmt: skip
    last: Exception | None = None
    for _ in range(_TRIES):
        stamp, state = stamp_of(folder), _read_state(folder)
        try:
            segments = tuple(
                opened.get((file.name, gone and gone.name)) or _open(folder, file, gone)
                for file, gone in state.segments
            )
            return Commit(state, segments, stamp)
        except FileNotFoundError as error:  # merged meanwhile
            last = error
    raise IndexFolderError(f"{folder} lacks a file that its commit names: {last}. Restore it, or build the index anew")


def _read_state(folder: Path) -> State:
    path = folder / "commit.json"
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_STATE)
        value = parse_json(content, f"{path} is not valid JSON")
        if _digest(value["state"]) != value["sha256"]:
            raise ValueError("its checksum is of another content")
        return State.read(value["state"])
    except (OSError, ModelFolderError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise IndexFolderError(f"{path} is damaged: {error}. Restore it, or build the index anew") from error


def _open(folder: Path, file: File, gone: File | None) -> Segment:
    for one in (file, gone):
        if one is not None and one.bytes <= _SMALL and wrong(folder, one):
            raise IndexFolderError(f"{wrong(folder, one)}. Restore it, or build the index anew")
    rows = None if gone is None else read_tensors(_path(folder, gone))[0]["rows"]
    opened = Segment.open(_path(folder, file))
    return opened if rows is None else Segment.open(_path(folder, file), rows)


def wrong(folder: Path, file: File) -> str:
    """Return what is wrong with a file's bytes, "" where nothing is.

    Raises:
        FileNotFoundError: it is not there.
    """
    path = _path(folder, file)
    try:
        size = path.stat().st_size
        if size != file.bytes:
            return f"{path} has {size:,} bytes, and had {file.bytes:,} when it was written"
        return "" if checksum(path) == file.sha256 else f"{path} is not what was written: its checksum differs"
    except ModelFolderError as error:
        return str(error)


def _path(folder: Path, file: File) -> Path:
    if file.name != Path(file.name).name or file.name.startswith("."):
        raise IndexFolderError(f"{folder} names a file {file.name!r:.60}, which cannot be one of its own")
    return folder / "segments" / file.name


def _digest(state: Any) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def first_commit(folder: Path, state: State) -> None:
    """Make a folder an index, with a first commit."""
    (folder / "segments").mkdir()
    write_json(folder / "index.json", {"pellucid-index": {"format": FORMAT, "version": VERSION}})
    _write_state(folder, state)


def check_format(folder: Path) -> None:
    """Refuse a folder that is no index, or one of another version.

    Raises:
        IndexFolderError: the message says which, and the way out.
    """
    if not (folder / "index.json").is_file():
        what = "is no index: there is no index.json in it" if folder.is_dir() else "is not there"
        raise IndexFolderError(f"{folder} {what}. Make one: pellucid.Index.create, or pellucid index build")
    try:
        found = read_json(folder / "index.json")["pellucid-index"]["format"]
    except (ModelFolderError, KeyError, TypeError) as error:
        raise IndexFolderError(f"{folder} is no index: its index.json is of something else ({error})") from error
    if found != FORMAT or type(found) is not int:
        raise IndexFolderError(
            f"{folder} has format {found!r:.40}; pellucid {VERSION} reads {FORMAT}. Build the index anew, or update "
            "pellucid: pip install -U pellucid"
        )


def _write_state(folder: Path, state: State) -> None:
    known = json.loads(json.dumps(asdict(state)))
    write_json(folder / "commit.json", {"state": known, "sha256": _digest(known)}, indent=None)


class Writer:
    """Makes commits; one at a time, for who holds the lock of the folder."""

    def __init__(self, folder: Path, commit: Commit) -> None:
        """Take the present commit."""
        self.folder, self.commit = folder, commit

    def save(self, state: State, segments: Sequence[Segment], records: Sequence[tuple[File, File | None]]) -> Commit:
        """Make a commit of these segments; on disk when it returns."""
        state = replace(state, segments=tuple(records), commit=self.commit.state.commit + 1)
        _write_state(self.folder, state)
        self.commit = Commit(state, tuple(segments), stamp_of(self.folder))
        self._sweep()
        return self.commit

    def change(self, state: State, added: Segment | None, gone: Mapping[int, npt.NDArray[np.int32]]) -> Commit:
        """Make a commit with one more segment and rows gone of others, merge what is due, and return the last commit.

        Args:
            state: the new one; its segments are set here.
            added: in memory, or None.
            gone: number of a segment -> rows.
        """
        segments, records = list(self.commit.segments), list(self.commit.state.segments)
        for number, rows in gone.items():
            segments[number] = segments[number].without(rows)
            records[number] = (records[number][0], self._write_gone(segments[number].gone))
        if added is not None:
            opened, record = self.write(added)
            segments.append(opened)
            records.append((record, None))
        self.save(state, segments, records)
        if self.merge(segments, records):
            self.save(state, segments, records)
        return self.commit

    def compact(self, passages: int) -> None:
        """Merge the last segments after so many passages were added at once; it costs no more than adding them did."""
        segments, records = list(self.commit.segments), list(self.commit.state.segments)
        first, size, held = len(segments), 0, 0
        while first and size + segments[first - 1].passages <= 2 * passages:
            first, size, held = first - 1, size + segments[first - 1].passages, held + records[first - 1][0].bytes
        if len(segments) - first > 1 and held <= _LARGEST:
            self._merge(segments, records, slice(first, len(segments)))
            self.save(self.commit.state, segments, records)

    def _merge(self, segments: list[Segment], records: list[tuple[File, File | None]], due: slice) -> None:
        one = Segment.merged(segments[due])
        opened = [self.write(one)] if len(one.numbers) else []
        segments[due] = [segment for segment, _ in opened]
        records[due] = [(record, None) for _, record in opened]

    def merge(self, segments: list[Segment], records: list[tuple[File, File | None]]) -> bool:
        """Merge what is due in a list of segments, which no commit names yet; return whether anything was."""
        merged = False
        while due := due_merge(segments, records):
            self._merge(segments, records, due)
            merged = True
        return merged

    def write(self, segment: Segment) -> tuple[Segment, File]:
        """Write a segment; it is part of no commit yet."""
        path = self.folder / "segments" / f"{self.commit.state.commit + 1:06d}-{secrets.token_hex(4)}.safetensors"
        opened = segment.write(path)
        return opened, _record(path)

    def _write_gone(self, rows: npt.NDArray[np.int32]) -> File:
        path = self.folder / "segments" / f"{self.commit.state.commit + 1:06d}-{secrets.token_hex(4)}-gone.safetensors"
        write_tensors(path, {"rows": rows})
        return _record(path)

    def _sweep(self) -> None:
        """Remove files that the present commit does not name; who has them open still reads them."""
        used = {file.name for pair in self.commit.state.segments for file in pair if file is not None}
        for path in (self.folder / "segments").iterdir():
            if path.name not in used:
                with suppress(OSError):  # open elsewhere, on Windows; the next commit tries again
                    path.unlink()


def _record(path: Path) -> File:
    return File(path.name, checksum(path), path.stat().st_size)


def due_merge(segments: Sequence[Segment], records: Sequence[tuple[File, File | None]]) -> slice | None:
    """Return neighbouring segments that should be one, None where there are none.

    The last ones, where those after the first of them hold three times as much as it does: a document is written anew
    about once each time the documents grow four times, and few changes never move many documents. A segment of which
    more than half is gone is written anew by itself.
    """
    for number, segment in enumerate(segments):
        if len(segment.gone) * 2 > len(segment.numbers):
            return slice(number, number + 1)
    found, after, held = None, 0, 0
    for number in reversed(range(len(segments))):
        held += records[number][0].bytes
        if after >= (_FANOUT - 1) * segments[number].passages and after and held <= _LARGEST:
            found = slice(number, len(segments))
        after += segments[number].passages
    return found
