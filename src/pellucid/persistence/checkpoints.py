"""The folder in which a long run keeps what it has done, so that a killed run can be resumed.

`state.json` holds what the run was asked for, what it read of each corpus, which files hold its results, and a checksum
of each of them and of itself: damaged or missing files are named in an error, never used or silently made again.
`commit` replaces it in one step; what was written since the last commit does not count. One run at a time works in it.

A corpus is known by a hash of every 1,024 texts, in order. A resumed run yields texts only after their hash shows that
they are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError, ReadingError
from pellucid.persistence.store import (
    checksum,
    locked,
    read_json,
    read_tensors,
    translate_os_errors,
    write_json,
    write_tensors,
    writing,
)
from pellucid.text.lines import batches_by_size

_BLOCK_TEXTS, _BLOCK_CHARACTERS = 1_024, 1 << 20  # texts of a corpus that are held back until they are proven, at most
_TENSOR_FILES = "*.state.safetensors"
_SAVED = (_TENSOR_FILES, "*.state.jsonl", "*.state.bin", "checkpoint-*")  # what a work folder never holds alone


class WorkFolder:
    """A folder for the state of a run, with checksums and hashes of the texts read; use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Name the folder."""
        self.path, self.metadata = Path(os.path.expanduser(path)).absolute(), dict[str, Any]()
        self._state: dict[str, Any] = {}

    def __enter__(self) -> WorkFolder:
        """Lock the folder and read its state."""
        with ExitStack() as stack, translate_os_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock_file = stack.enter_context(locked(self.path))
            self._state = self.read()
            self.metadata = self._state["facts"]
            if not (self.path / "state.json").exists():
                self.commit()  # from here on a folder without a state has lost it
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock; what was not committed is lost."""
        self._lock.close()

    def read(self) -> dict[str, Any]:
        """Return the state that is in the folder, checked; a further process of the run needs no lock for it."""
        path = self.path / "state.json"
        if not path.exists():
            if any(next(self.path.glob(saved), None) for saved in _SAVED):
                raise self._damaged(path)
            return {"asked": None, "facts": {}, "texts": {}, "files": {}, "arrays": {}}
        try:
            state = read_json(path)
            is_whole = isinstance(state, dict) and state.pop("checksum", None) == _digest_of(state)
        except ReadingError:
            raise
        except (ModelFolderError, RecursionError) as error:  # nested as deeply as could just be read
            raise self._damaged(path) from error
        if not is_whole:
            raise self._damaged(path)
        return state  # type: ignore[no-any-return]

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
        self._lock_file.check(self.path)
        write_json(self.path / "state.json", {**self._state, "checksum": _digest_of(self._state)}, indent=None)
        current = {entry["file"] for entry in self._state["files"].values()}
        for path in [path for path in self.path.glob(_TENSOR_FILES) if path.name not in current]:
            with suppress(OSError):  # one that somebody has open, on Windows, goes with a later commit
                path.unlink()

    def texts(self, key: str, source: Iterable[str], name: str) -> Iterator[str]:
        """Yield the texts of `source`, of which those read before must be the same, and note the others."""
        record = self._state["texts"].setdefault(key, {"blocks": [], "texts": 0, "whole": False})
        blocks, n_blocks, n_texts = record["blocks"], 0, 0
        for n_blocks, block in enumerate(batches_by_size(source, _BLOCK_TEXTS, len, _BLOCK_CHARACTERS), 1):
            if n_blocks > len(blocks) and not record["whole"]:
                blocks.append(_digest_of(block))
                record["texts"] += len(block)
            elif n_blocks > len(blocks) or blocks[n_blocks - 1] != _digest_of(block):
                raise self._other_texts(name, f"texts {n_texts + 1:,} to {n_texts + len(block):,} are not the same")
            n_texts += len(block)
            yield from block
        if n_blocks < len(blocks):
            raise self._other_texts(name, f"it ends after {n_texts:,} texts")
        record["whole"] = True

    def _other_texts(self, name: str, difference: str) -> InputError:
        return InputError(
            f"{name} is not the corpus that the run in {self.path} was begun with: {difference}. Give that corpus to "
            f"resume, or start again: delete {self.path}, or give another folder"
        )

    def check_texts(self, key: str, source: Iterable[str], name: str) -> None:
        """Read as much of `source` as was read before, and no more."""
        record = self._state["texts"].get(key, {"texts": 0, "whole": False})
        for _ in islice(self.texts(key, source, name), None if record["whole"] else record["texts"]):
            pass

    def __contains__(self, name: str) -> bool:
        """Return whether something was saved or appended under `name`."""
        return name in self._state["files"] or name in self._state["arrays"]

    def save(self, name: str, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write tensors under `name`; until the next commit those before are kept as well."""
        number = self._state["files"].get(name, {"number": 0})["number"] + 1
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
        self._lock_file.check(self.path)
        new = {"dtype": rows.dtype.newbyteorder("<").str, "row": list(rows.shape[1:]), "blocks": []}
        entry = self._state["arrays"].get(name, new)
        path, end = self.path / f"{name}.state.bin", sum(size for size, _ in entry["blocks"])
        content = np.ascontiguousarray(rows, entry["dtype"]).tobytes()
        with translate_os_errors(path), open(path, "r+b" if end else "wb") as file:
            file.seek(end)
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._state["arrays"].setdefault(name, entry)["blocks"].append(
            [len(content), hashlib.sha256(content).hexdigest()]
        )

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return the rows appended under `name`, mapped copy-on-write."""
        entry, path, start = self._state["arrays"][name], self.path / f"{name}.state.bin", 0
        size = sum(size for size, _ in entry["blocks"])
        if not path.is_file() or path.stat().st_size < size:
            raise self._damaged(path)
        content = np.memmap(path, np.uint8, "c", shape=(size,)).view(np.ndarray) if size else np.zeros(0, np.uint8)
        for length, expected in entry["blocks"]:
            if hashlib.sha256(content[start : start + length].data).hexdigest() != expected:
                raise self._damaged(path)
            start += length
        return content.view(entry["dtype"]).reshape(-1, *entry["row"])  # type: ignore[no-any-return]


def _digest_of(value: Any) -> str:
    """Return the checksum of a state, or of some texts."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
