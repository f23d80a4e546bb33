"""The folder in which a long run keeps what it has done, so that a killed run can be resumed.

`state.json` holds what the run was asked for, what it read of each corpus, which files hold its results, and a checksum
of each of them and of itself: damaged or missing files are named in an error, never used or silently made again.
`commit` replaces it in one step; what was written since the last commit does not count. One run at a time works in it.

A corpus is known by a hash of its texts, in order, noted at least every 1,024 texts. A resumed run yields texts only
after the hash shows that they are the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError, ReadingError
from pellucid.persistence.store import (
    checksum,
    hashed,
    locked,
    read_json,
    read_tensors,
    translate_os_errors,
    write_json,
    write_tensors,
    writing,
)

_BLOCK_TEXTS, _BLOCK_CHARACTERS = 1_024, 1 << 20  # texts of a corpus that are held back until they are proven, at most
_SAVED = ("*.state.safetensors", "*.state.jsonl", "*.state.bin", "checkpoint-*")  # what a work folder never holds alone


class WorkFolder:
    """A folder for the state of a run, with checksums and hashes of the texts read; use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str], *, alone: bool = True) -> None:
        """Name the folder; `alone=False` is for a further process of the run, which neither locks nor writes."""
        self.path, self.metadata, self._alone = Path(os.path.expanduser(path)).absolute(), dict[str, Any](), alone
        self._state: dict[str, Any] = {}
        self._digests: dict[str, _Digest] = {}
        self._appending: dict[str, Any] = {}
        self._superseded: list[Path] = []

    def __enter__(self) -> WorkFolder:
        """Lock the folder and read its state."""
        with ExitStack() as stack, translate_os_errors(self.path):
            if self._alone:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock_file = stack.enter_context(locked(self.path))
            self._state = self._read()
            self.metadata = self._state["facts"]
            if not (self.path / "state.json").exists():
                self.commit()  # from here on a folder without a state has lost it
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock; what was not committed is lost."""
        self._lock.close()

    def _read(self) -> dict[str, Any]:
        path = self.path / "state.json"
        if not path.exists():
            if any(next(self.path.glob(saved), None) for saved in _SAVED):
                raise self._damaged(path)
            return {"asked": None, "facts": {}, "texts": {}, "files": {}, "arrays": {}}
        try:
            state = read_json(path)
        except ReadingError:
            raise
        except ModelFolderError as error:
            raise self._damaged(path) from error
        try:
            if not isinstance(state, dict) or state.pop("checksum", None) != _digest_of(state):
                raise self._damaged(path)
        except RecursionError as error:  # nested as deeply as could just be read
            raise self._damaged(path) from error
        return state

    def _damaged(self, path: Path) -> ModelFolderError:
        what = "damaged, or was changed" if path.exists() else "missing"
        return ModelFolderError(
            f"{path} is {what}, and the run cannot continue without it. Put it back, or start again: "
            f"delete {self.path}, or give another folder"
        )

    def bind_settings(self, settings: Mapping[str, Any]) -> None:
        """Record the arguments that the outcome depends on, as JSON; from the first commit on they must stay."""
        settings, earlier = json.loads(json.dumps(settings)), self._state["asked"]
        if earlier is not None and earlier != settings:
            differing = sorted(key for key in {**earlier, **settings} if earlier.get(key) != settings.get(key))
            raise InputError(
                f"{self.path} holds the state of another run (different: {', '.join(differing)}); "
                "give the same arguments to resume it, or another folder"
            )
        self._state["asked"] = settings

    def commit(self, metadata: Mapping[str, Any] | None = None) -> None:
        """Make all that was read, saved and appended count, together with `metadata`."""
        self.metadata.update(metadata or {})
        for key, digest in self._digests.items():
            digest.note(self._state["texts"][key]["marks"])
        if self._alone:
            self._check_process()
            write_json(self.path / "state.json", {**self._state, "checksum": _digest_of(self._state)}, indent=None)
            for path in self._superseded:
                path.unlink(missing_ok=True)
            self._superseded.clear()

    def _check_process(self) -> None:
        """Refuse to write in a process that was forked from the one that runs here."""
        if self._alone:
            self._lock_file.check(self.path)

    def texts(self, key: str, source: Iterable[str], name: str) -> Iterator[str]:
        """Yield the texts of `source`, of which those read before must be the same, and note the others."""
        reader, digest = iter(source), _Digest()
        yield from self._proven(key, reader, digest, name)
        record = self._state["texts"].setdefault(key, {"marks": [], "whole": False})
        self._digests[key] = digest
        texts = characters = 0
        for text in () if record["whole"] else reader:
            digest.add(text)
            texts, characters = texts + 1, characters + len(text)
            if texts == _BLOCK_TEXTS or characters >= _BLOCK_CHARACTERS:
                digest.note(record["marks"])
                texts = characters = 0
            yield text
        digest.note(record["marks"])
        record["whole"] = True

    def note_texts(self, key: str, source: Iterable[str], name: str) -> None:
        """Read all of `source`, as `texts` does."""
        for _ in self.texts(key, source, name):
            pass

    def check_texts(self, key: str, source: Iterable[str], name: str) -> None:
        """Read as much of `source` as was read before, and no more."""
        for _ in self._proven(key, iter(source), _Digest(), name):
            pass

    def _proven(self, key: str, reader: Iterator[str], digest: _Digest, name: str) -> Iterator[str]:
        """Yield the texts that were read before, block by block."""
        record = self._state["texts"].get(key, {"marks": [], "whole": False})
        begun = f"the corpus that the run in {self.path} was begun with"
        hint = f"Give that corpus to resume, or start again: delete {self.path}, or give another folder"
        for mark in list(record["marks"]):
            first = digest.count + 1
            block = list(islice(reader, mark[0] - digest.count))
            for text in block:
                digest.add(text)
            if digest.mark() != mark:
                ends = f", and it ends after {digest.count:,}" if digest.count < mark[0] else ""
                raise InputError(
                    f"{name} is not {begun}: texts {first:,} to {mark[0]:,} are not the same{ends}. {hint}"
                )
            yield from block
        if record["whole"] and next(reader, None) is not None:
            raise InputError(f"{name} is not {begun}: that ended after {digest.count:,} texts. {hint}")

    def __contains__(self, name: str) -> bool:
        """Return whether something was saved or appended under `name`."""
        return name in self._state["files"] or name in self._state["arrays"]

    def save(self, name: str, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write tensors under `name`; until the next commit those before are kept as well."""
        earlier = self._state["files"].get(name)
        number = earlier["number"] + 1 if earlier else 1
        if earlier:
            self._superseded.append(self.path / earlier["file"])
        path = self.path / f"{name}.{number}.state.safetensors"
        write_tensors(path, tensors)
        self._state["files"][name] = {"file": path.name, "number": number, "checksum": checksum(path)}

    def load(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return the tensors saved under `name`, mapped and read-only."""
        return read_tensors(self.file(name))[0]

    def save_texts(self, name: str, texts: Iterable[str]) -> None:
        """Write texts under `name`, one JSON string a line."""
        path = self.path / f"{name}.state.jsonl"
        with writing(path) as tmp_path, open(tmp_path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        self._state["files"][name] = {"file": path.name, "number": 1, "checksum": checksum(path)}

    def file(self, name: str) -> Path:
        """Return the path of what was saved under `name`."""
        entry = self._state["files"][name]
        path = Path(self.path, entry["file"])
        self.verify(path, entry["checksum"])
        return path

    def verify(self, path: Path, expected: str) -> None:
        """Check the checksum of a file."""
        if not path.is_file() or checksum(path) != expected:
            raise self._damaged(path)

    def append(self, name: str, rows: npt.NDArray[Any]) -> None:
        """Add rows to an array that grows on disk; the first rows give its dtype and the shape of a row."""
        self._check_process()
        new = {"dtype": rows.dtype.newbyteorder("<").str, "shape": [0, *rows.shape[1:]], "checksum": ""}
        entry = self._state["arrays"].get(name, new)
        path, done = self._array_file(name, entry)
        if name not in self._appending:
            self._appending[name] = self._verified(name) if done else hashlib.sha256()
        digest = self._appending[name]
        data = np.ascontiguousarray(rows, entry["dtype"]).reshape(-1).view(np.uint8).data
        with translate_os_errors(path), open(path, "r+b" if done else "wb") as file:
            file.seek(done)
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        digest.update(data)
        shape = [entry["shape"][0] + len(rows), *entry["shape"][1:]]
        self._state["arrays"][name] = {"dtype": entry["dtype"], "shape": shape, "checksum": digest.hexdigest()}

    def rows(self, name: str) -> int:
        """Return how many rows were appended under `name`."""
        return int(self._state["arrays"][name]["shape"][0]) if name in self._state["arrays"] else 0

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return the rows appended under `name`, mapped copy-on-write."""
        self._verified(name)
        entry = self._state["arrays"][name]
        path, size = self._array_file(name, entry)
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        return np.memmap(path, dtype, "c", shape=shape).view(np.ndarray) if size else np.zeros(shape, dtype)

    def _array_file(self, name: str, entry: Mapping[str, Any]) -> tuple[Path, int]:
        """Return the file of an array and how many of its bytes count."""
        return self.path / f"{name}.state.bin", math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize

    def _verified(self, name: str) -> Any:
        """Return the hash of an array's bytes."""
        entry = self._state["arrays"][name]
        path, size = self._array_file(name, entry)
        digest = hashed(path, size) if path.is_file() else None
        if digest is None or digest.hexdigest() != entry["checksum"]:
            raise self._damaged(path)
        return digest


class _Digest:
    """The hash of the texts of a corpus so far, each with its length before it."""

    def __init__(self) -> None:
        self.count, self._hash = 0, hashlib.blake2b(digest_size=16)

    def add(self, text: str) -> None:
        content = text.encode("utf-8", "surrogatepass")
        self._hash.update(len(content).to_bytes(8, "little") + content)
        self.count += 1

    def mark(self) -> list[Any]:
        """Return how many texts there were, and their hash."""
        return [self.count, self._hash.hexdigest()]

    def note(self, marks: list[list[Any]]) -> None:
        """Add the mark to `marks` if it is further than they are."""
        if self.count > (marks[-1][0] if marks else 0):
            marks.append(self.mark())


def _digest_of(state: Mapping[str, Any]) -> str:
    """Return the checksum of a state."""
    return hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()
