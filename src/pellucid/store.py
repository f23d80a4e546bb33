"""Files that are whole or absent, and tensors read without copying.

Writing goes to a temporary neighbour that is renamed at the end, so that a crash, a kill or a full disk leaves the old
file or none. What a killed process leaves behind is named `.<name>.<random>.part`; nothing reads it, delete it freely.
Reading maps safetensors into memory after checking the header against the file, because a folder may come from
anyone. Only safetensors, JSON and plain text are read, under names the library chose itself; nothing read can run code.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError, WritingError

_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_MAX_HEADER = 16 << 20  # bytes; the format allows 100 MB, a model of ours needs a few hundred bytes
_MAX_JSON = 64 << 20
_MOST_AXES = 8
_MOST_CELLS = 1 << 40  # numpy cannot describe many more, not even where another side is 0
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_BLOCK_TEXTS, _BLOCK_CHARACTERS = 1_024, 1 << 20  # texts of a corpus that are held back until they are proven, at most
_SAVED = ("*.state.safetensors", "*.state.jsonl", "*.state.bin", "checkpoint-*")  # what a work folder never holds alone
_RENAME_EXCHANGE = 2  # linux/fs.h
_AT_FDCWD = -100


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it becomes `path` when the block ends without an error.

    Raises:
        WritingError: no space, no permission, or a read-only disk; what was at `path` is untouched.
    """
    path = Path(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        aside = Path(name)
        try:
            yield aside
            _flush_to_disk(aside)
            os.chmod(aside, 0o666 & ~_umask())
            os.replace(aside, path)
            _flush_to_disk(path.parent)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def writing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it takes the place of `path` when the block ends without an error.

    On Linux an older model at `path` is exchanged in one step, so that at every moment one whole model is there.
    What its owner added to it (notes, `.git`) moves to the new one; the files the older model consisted of do not.

    Raises:
        InputError: `path` is a file, or a folder that holds something else than a model.
        WritingError: no space, no permission, or a read-only disk; what was at `path` is untouched.
    """
    path = Path(path).resolve()  # a link to a folder stays a link
    outdated = _replaceable(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
        try:
            yield aside
            for file in aside.rglob("*"):
                _flush_to_disk(file)
            if path.exists():
                _carry_over(path, aside, outdated)
            os.chmod(aside, 0o777 & ~_umask())
            _flush_to_disk(aside)
            _put_in_place(aside, path)
            _flush_to_disk(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into an error that says what and what now."""
    try:
        yield
    except WritingError:
        raise
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise WritingError(
            error.errno,
            f"cannot write {path}: {error.strerror}. Nothing that was there is changed; "
            "free some space or choose another place",
        ) from error


def _replaceable(path: Path) -> set[str]:
    """Return the names of the files that the model at `path` consists of; refuse anything but a model or nothing."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return set()
    if not path.is_dir():
        raise InputError(f"{path} is a file; a model is saved as a folder. Give a new name")
    try:
        config = read_json(path / "config.json")
        return {"config.json", *config["pellucid"].get("files", ())}
    except (ModelFolderError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} exists and holds no pellucid model; saving there would remove what it holds. Give a new name"
        ) from error


def _carry_over(old: Path, new: Path, outdated: set[str]) -> None:
    """Copy into `new` what lies in `old` beside the model's own files."""
    for entry in old.iterdir():
        target = new / entry.name
        if entry.name in outdated or target.exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True)
        else:
            shutil.copy2(entry, target, follow_symlinks=False)


def _put_in_place(aside: Path, path: Path) -> None:
    """Move folder `aside` to `path`; an older folder there ends at `aside` or is gone."""
    if not path.exists():
        os.replace(aside, path)
        return
    if _exchange(aside, path):
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    os.replace(path, old / "model")
    try:
        os.replace(aside, path)
    except OSError:
        os.replace(old / "model", path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two paths in one step where the system can (Linux, most file systems); return whether it did."""
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library without it
        return False
    paths = (ctypes.c_int(_AT_FDCWD), os.fsencode(first), ctypes.c_int(_AT_FDCWD), os.fsencode(second))
    return bool(renameat2(*paths, ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def _flush_to_disk(path: Path) -> None:
    if path.is_dir() and os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Return the bytes of a regular file (links are followed) of at most `max_bytes`.

    Raises:
        ModelFolderError: the file is absent, larger, unreadable, or a pipe, device or folder.
    """
    path = Path(path)
    with _opened(path) as file:
        content: bytes = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ModelFolderError(f"{path} is larger than the {max_bytes:,} bytes such a file may have")
    return content


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a regular file for reading; a pipe or device, which could block or never end, is refused."""
    if not path.is_file():
        raise ModelFolderError(f"{path} is not a regular file" if path.exists() else f"file not found: {path}")
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise ModelFolderError(f"cannot read {path}: {error.strerror or error}") from error


def write_json(path: str | os.PathLike[str], value: Any, *, indent: int | None = 2) -> None:
    """Write `value` as UTF-8 JSON, indented or (None) on one line, whole or not at all."""
    with writing(path) as aside:
        aside.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str], *, max_bytes: int = _MAX_JSON) -> Any:
    """Read a JSON file.

    Raises:
        ModelFolderError: the file is absent, too large, or is not JSON.
    """
    return _parse(read_regular(path, max_bytes), f"{path} is not valid JSON")


def _parse(content: bytes, complaint: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, an endless number, or nested too deep
        raise ModelFolderError(f"{complaint}: {error}") from error


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named arrays as one safetensors file, whole or not at all.

    The wide types come first, so that every array starts at a multiple of its item size and can be mapped.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        dtype = _DTYPE_NAMES[tensors[name].dtype]
        header[name] = {"dtype": dtype, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    described = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    described += b" " * (-len(described) % 8)
    with writing(path) as aside, open(aside, "wb") as file:
        file.write(struct.pack("<Q", len(described)) + described)
        for name in order:
            array = tensors[name]
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            file.write(little.reshape(-1).view(np.uint8).data)


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Map the arrays of a safetensors file into memory, read-only, and return them with the file's metadata.

    Opening reads the header alone. Processes that map the same file share its pages.

    Raises:
        ModelFolderError: the file is absent, truncated, or its header does not describe its bytes exactly.
    """
    path = Path(path)
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        header_size = struct.unpack("<Q", file.read(8))[0] if size >= 8 else -1
        if not 0 < header_size <= min(_MAX_HEADER, size - 8):
            raise ModelFolderError(f"{path} is not a safetensors file, or it is truncated ({size} bytes)")
        header = _parse(file.read(header_size), f"{path} has a broken safetensors header")
        data = np.memmap(file, dtype=np.uint8, mode="r").view(np.ndarray)[8 + header_size :]
    if not isinstance(header, dict):
        raise ModelFolderError(f"{path} has a broken safetensors header: it is not an object")
    metadata = header.pop("__metadata__", None)
    entries = {name: _Entry(name, value, len(data), path) for name, value in header.items()}
    _check_no_overlap(entries, len(data), path)
    arrays = {name: entry.view(data) for name, entry in entries.items()}
    return arrays, metadata if isinstance(metadata, dict) else {}


class _Entry:
    """One tensor's place in a safetensors file, checked against the file's size."""

    def __init__(self, name: str, value: Any, size: int, path: Path) -> None:
        try:
            self.dtype = np.dtype(_DTYPES[value["dtype"]])
            self.shape = tuple(value["shape"])
            self.start, self.end = value["data_offsets"]
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFolderError(f"{path}: tensor {name!r} has a broken header entry {value!r:.200}") from error
        if not all(type(n) is int and n >= 0 for n in (*self.shape, self.start, self.end)):
            raise ModelFolderError(f"{path}: tensor {name!r} has a broken header entry {value!r:.200}")
        count = math.prod(self.shape[:_MOST_AXES])  # Python integers: an absurd shape cannot overflow
        absurd = len(self.shape) > _MOST_AXES or math.prod(side or 1 for side in self.shape) > _MOST_CELLS
        fits = self.start <= self.end <= size and self.end - self.start == count * self.dtype.itemsize
        if not fits or absurd:
            raise ModelFolderError(
                f"{path}: tensor {name!r} claims shape {list(self.shape[:_MOST_AXES])} at bytes {self.start}-"
                f"{self.end}, which the file's {size} data bytes do not hold; it is truncated or was tampered with"
            )

    def view(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return the tensor without copying, unless it lies askew in the file."""
        array = data[self.start : self.end].view(self.dtype).reshape(self.shape)
        return array if array.flags.aligned else array.copy()


def _check_no_overlap(entries: Mapping[str, _Entry], size: int, path: Path) -> None:
    """Refuse tensors that share bytes or leave some out, as the format demands."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != end:
            raise ModelFolderError(f"{path}: tensor {name!r} starts at byte {entry.start}, expected {end}")
        end = entry.end
    if end != size:
        raise ModelFolderError(f"{path}: the tensors take {end} bytes, the file has {size}; it was tampered with")


# --- Work folders -----------------------------------------------------------------------------------------------------


class WorkFolder:
    """A folder in which a long run keeps what it has done, so that a killed run goes on where it was.

    `state.json` says what the run was asked for, what it read of each corpus, and which files hold its results. It
    keeps a checksum of each of them and of itself: what is damaged or missing is refused by name, neither used nor
    silently made again. `commit` replaces it in one step; what was written since the last one does not count.

    A corpus is known by a hash of its texts, in order, noted at least every 1,024 texts. On a resume each text is held
    back until the hash proves that it was read before.

    Used as a context manager; one run at a time, where the file system has locks.

    Attributes:
        path: of the folder.
        facts: what else the run wants to remember, as JSON.
    """

    def __init__(self, path: str | os.PathLike[str], *, alone: bool = True) -> None:
        """Name the folder; it is made and read on entering.

        Args:
            path: of the folder.
            alone: False for a further process of the same run, which neither locks nor writes.
        """
        self.path, self.facts, self._alone = Path(path), dict[str, Any](), alone
        self._state: dict[str, Any] = {}
        self._reading: dict[str, _Digest] = {}
        self._appending: dict[str, Any] = {}
        self._superseded: list[Path] = []

    def __enter__(self) -> WorkFolder:
        """Lock the folder and read its state.

        Raises:
            InputError: another run is at work in it.
            ModelFolderError: the state is damaged, or missing beside what was saved.
            WritingError: no permission or no space.
        """
        with ExitStack() as stack, _explained(self.path):
            if self._alone:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(self.path))
            self._state = self._read()
            self.facts = self._state["facts"]
            if not (self.path / "state.json").exists():
                self.commit()  # from here on a folder without a state has lost it
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Let others in; what was not committed is forgotten."""
        self._lock.close()

    def _read(self) -> dict[str, Any]:
        path = self.path / "state.json"
        if not path.exists():
            if any(next(self.path.glob(saved), None) for saved in _SAVED):
                raise self._damaged(path)
            return {"asked": None, "facts": {}, "texts": {}, "files": {}, "arrays": {}}
        try:
            state = read_json(path)
        except ModelFolderError as error:
            raise self._damaged(path) from error
        if not isinstance(state, dict) or state.pop("checksum", None) != _told(state):
            raise self._damaged(path)
        return state

    def _damaged(self, path: Path) -> ModelFolderError:
        what = "damaged, or was changed" if path.exists() else "missing"
        return ModelFolderError(
            f"{path} is {what}, and the run cannot go on without it. Put it back, or start anew: delete {self.path}, "
            "or give another work_dir"
        )

    def claim(self, asked: Mapping[str, Any]) -> None:
        """Say what the run is asked for: as JSON, all that its outcome depends on beside the texts it reads.

        It counts from the next commit on: a run that has nothing to lose may be begun anew with other arguments.

        Raises:
            InputError: the folder holds the state of a run that was asked for something else; the message names what.
        """
        asked, earlier = json.loads(json.dumps(asked)), self._state["asked"]
        if earlier is not None and earlier != asked:
            differing = sorted(key for key in {**earlier, **asked} if earlier.get(key) != asked.get(key))
            raise InputError(
                f"{self.path} holds the state of another run (different: {', '.join(differing)}); "
                "give the same arguments to resume it, or another work_dir"
            )
        self._state["asked"] = asked

    def commit(self, facts: Mapping[str, Any] | None = None) -> None:
        """Make all that was read, saved and appended count, together with `facts`.

        Raises:
            WritingError: no permission or no space.
        """
        self.facts.update(facts or {})
        for key, digest in self._reading.items():
            digest.note(self._state["texts"][key]["marks"])
        if self._alone:
            write_json(self.path / "state.json", {**self._state, "checksum": _told(self._state)}, indent=None)
            for path in self._superseded:
                path.unlink(missing_ok=True)
            self._superseded.clear()

    def texts(self, key: str, source: Iterable[str], name: str) -> Iterator[str]:
        """Yield the texts of `source`, of which those read before must be the same, and note the others.

        Args:
            key: of the corpus in this folder.
            source: its texts, from the first on.
            name: what messages call it.

        Raises:
            InputError: they are not the texts read before; the message says where.
        """
        reader, digest = iter(source), _Digest()
        yield from self._proven(key, reader, digest, name)
        record = self._state["texts"].setdefault(key, {"marks": [], "whole": False})
        self._reading[key] = digest
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
        """Read as much of `source` as was read before, and no more.

        Raises:
            InputError: they are not the texts read before; the message says where.
        """
        for _ in self._proven(key, iter(source), _Digest(), name):
            pass

    def _proven(self, key: str, reader: Iterator[str], digest: _Digest, name: str) -> Iterator[str]:
        """Yield the texts that were read before, block by block."""
        record = self._state["texts"].get(key, {"marks": [], "whole": False})
        begun = f"the corpus that the run in {self.path} was begun with"
        way_out = f"Give that corpus to go on, or start anew: delete {self.path}, or give another work_dir"
        for mark in list(record["marks"]):
            first = digest.count + 1
            block = list(islice(reader, mark[0] - digest.count))
            for text in block:
                digest.add(text)
            if digest.mark() != mark:
                ends = f", and it ends after {digest.count:,}" if digest.count < mark[0] else ""
                raise InputError(
                    f"{name} is not {begun}: texts {first:,} to {mark[0]:,} are not the same{ends}. {way_out}"
                )
            yield from block
        if record["whole"] and next(reader, None) is not None:
            raise InputError(f"{name} is not {begun}: that ended after {digest.count:,} texts. {way_out}")

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
        """Return the tensors saved under `name`, mapped and read-only.

        Raises:
            ModelFolderError: they are damaged or missing.
        """
        return read_tensors(self.file(name))[0]

    def save_texts(self, name: str, texts: Iterable[str]) -> None:
        """Write texts under `name`, one JSON string a line."""
        path = self.path / f"{name}.state.jsonl"
        with writing(path) as aside, open(aside, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        self._state["files"][name] = {"file": path.name, "number": 1, "checksum": checksum(path)}

    def file(self, name: str) -> Path:
        """Return the path of what was saved under `name`.

        Raises:
            ModelFolderError: it is damaged or missing.
        """
        entry = self._state["files"][name]
        path = Path(self.path, entry["file"])
        self.prove(path, entry["checksum"])
        return path

    def prove(self, path: Path, known: str) -> None:
        """Refuse a file that has another checksum.

        Raises:
            ModelFolderError: it is damaged or missing.
        """
        if not path.is_file() or checksum(path) != known:
            raise self._damaged(path)

    def append(self, name: str, rows: npt.NDArray[Any]) -> None:
        """Add rows to an array that grows on disk; the first rows give its dtype and the shape of a row.

        Raises:
            ModelFolderError: what is there is damaged or missing.
            WritingError: no permission or no space.
        """
        new = {"dtype": rows.dtype.newbyteorder("<").str, "shape": [0, *rows.shape[1:]], "checksum": ""}
        entry = self._state["arrays"].get(name, new)
        path, done = self._place(name, entry)
        if name not in self._appending:
            self._appending[name] = self._verified(name) if done else hashlib.blake2b(digest_size=16)
        digest = self._appending[name]
        data = np.ascontiguousarray(rows, entry["dtype"]).reshape(-1).view(np.uint8).data
        with _explained(path), open(path, "r+b" if done else "wb") as file:
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
        """Return the rows appended under `name`, mapped; what is changed in memory is not written to the file.

        Raises:
            ModelFolderError: they are damaged or missing.
        """
        self._verified(name)
        entry = self._state["arrays"][name]
        path, size = self._place(name, entry)
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        return np.memmap(path, dtype, "c", shape=shape).view(np.ndarray) if size else np.zeros(shape, dtype)

    def _place(self, name: str, entry: Mapping[str, Any]) -> tuple[Path, int]:
        """Return the file of an array and how many of its bytes count."""
        return self.path / f"{name}.state.bin", math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize

    def _verified(self, name: str) -> Any:
        """Return the hash of an array's bytes."""
        entry = self._state["arrays"][name]
        path, size = self._place(name, entry)
        digest = _hashed(path, size) if path.is_file() else None
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


def checksum(path: str | os.PathLike[str]) -> str:
    """Return the hash of a file's bytes.

    Raises:
        ModelFolderError: it is absent or unreadable.
    """
    return str(_hashed(Path(path)).hexdigest())


def _hashed(path: Path, size: int | None = None) -> Any:
    """Return the hash of a file, or of its first `size` bytes."""
    digest, left = hashlib.blake2b(digest_size=16), math.inf if size is None else size
    with _opened(path) as file:
        while left and (chunk := file.read(int(min(1 << 20, left)))):
            digest.update(chunk)
            left -= len(chunk)
    return digest


def _told(state: Mapping[str, Any]) -> str:
    """Return the checksum of a state."""
    return hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; one that is held is refused, and its holder named."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(folder / ".lock", "a+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise InputError(
                f"{folder} is in use by {file.read(200).strip() or 'another run'}; wait until it has ended, or give "
                "another work_dir"
            ) from error
        except OSError:  # a file system without locks
            pass
        file.truncate(0)
        file.write(f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        file.flush()
        yield
