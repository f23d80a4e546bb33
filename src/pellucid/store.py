"""Files that are whole or absent, and tensors read without copying.

Writing goes to a temporary neighbour that is renamed at the end, so that a crash, a kill or a full disk leaves the old
file or none. Reading maps safetensors into memory after checking the header against the file, because a folder may
come from anyone. Only safetensors, JSON and TSV are read; nothing read can run code.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import ModelFolderError

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
_MAX_HEADER = 100_000_000  # bytes, the limit of the safetensors format


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it becomes `path` when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        _flush_to_disk(aside)
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def writing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it takes the place of `path` when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():
                _flush_to_disk(file)
        os.chmod(aside, 0o777 & ~_umask())
        if path.exists():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".old"))
            os.replace(path, old / "model")
            os.replace(aside, path)
            shutil.rmtree(old)
        else:
            os.replace(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _flush_to_disk(file: Path) -> None:
    with open(file, "rb") as written:
        os.fsync(written.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, whole or not at all."""
    with writing(path) as aside:
        aside.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Raises:
        ModelFolderError: the file is absent or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFolderError(f"file not found: {path}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelFolderError(f"{path} is not valid JSON: {error}") from error


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named arrays as one safetensors file, whole or not at all."""
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    with writing(path) as aside:
        save_file(contiguous, str(aside), metadata=dict(metadata or {}))


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Map the arrays of a safetensors file into memory, read-only, and return them with the file's metadata.

    Raises:
        ModelFolderError: the file is absent, truncated, or its header does not describe its bytes.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            header_size = struct.unpack("<Q", file.read(8))[0] if size >= 8 else -1
            if not 0 < header_size <= min(_MAX_HEADER, size - 8):
                raise ModelFolderError(f"{path} is not a safetensors file, or it is truncated ({size} bytes)")
            header = json.loads(file.read(header_size))
    except FileNotFoundError as error:
        raise ModelFolderError(f"file not found: {path}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelFolderError(f"{path} has a broken safetensors header: {error}") from error
    if not isinstance(header, dict):
        raise ModelFolderError(f"{path} has a broken safetensors header: it is not an object")
    metadata = header.pop("__metadata__", {})
    first = 8 + header_size
    data = np.memmap(path, dtype=np.uint8, mode="r")
    arrays = {name: _view(data[first:], name, entry, path) for name, entry in header.items()}
    return arrays, metadata if isinstance(metadata, dict) else {}


def _view(data: npt.NDArray[np.uint8], name: str, entry: Any, path: Path) -> npt.NDArray[Any]:
    """Return tensor `name` as a view of `data`, refusing an entry that does not fit it."""
    try:
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape = tuple(entry["shape"])
        start, end = entry["data_offsets"]
        integers = all(type(n) is int and n >= 0 for n in (*shape, start, end))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"{path}: tensor {name!r} has a broken header entry {entry!r}") from error
    count = 1
    for side in shape:  # Python integers: an absurd shape cannot overflow
        count *= side
    if not integers or start > end or end > len(data) or end - start != count * dtype.itemsize:
        raise ModelFolderError(
            f"{path}: tensor {name!r} claims shape {list(shape)} at bytes {start}-{end}, "
            f"which the file's {len(data)} data bytes do not hold; it is truncated or was tampered with"
        )
    return data[start:end].view(dtype).reshape(shape)
