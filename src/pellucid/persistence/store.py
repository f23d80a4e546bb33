"""Files that are whole or absent, locks, checksums, and tensors read without copying.

Files and folders are written to a temporary neighbour that replaces the old one at the end, so that a crash, a kill or
a full disk leaves the old one or none. A writer holds a lock, `.<name>.lock`; another writer of the same path waits for
up to five minutes and then fails with an error that names the process. The next writer of a path removes what a killed
one left: the lock file and the folder `.<name>.<random>.part`, with what libraries put into it. A lock belongs to the
process that took it: a forked child finishes, releases and removes nothing.

Tensors of a file of more than 4 MB are mapped into memory after their header is checked against the file, because a
folder may come from anyone. The library's own reader for numpy copies every array: 11 ms and 24 MB for the bundled
English table, where mapping takes 0.04 ms and no memory. A smaller file is read: what happens to it later changes
nothing. Nothing that is read can run code.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import re
import secrets
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from pellucid.errors import InputError, ModelFolderError, PellucidError, ReadingError, WritingError, without_panic

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
_OTHER_DTYPES = {"BF16": "V2", "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "BOOL": np.bool_}
_EXPONENT = {np.dtype(np.float16): 0x7C00, np.dtype("V2"): 0x7F80}  # all ones in NaN and infinity
_BLOCK = 1 << 20  # numbers or bytes looked at together
MAX_READ_BYTES = 4 << 20
"""A file of tensors up to this size is read; a larger one is mapped, and ends the process if it is cut while open."""

_MAX_HEADER = 16 << 20  # bytes; the format allows 100 MB, a model of ours needs a few hundred bytes
_MAX_JSON = 64 << 20
DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
BAD_PATH_ERRNOS = {errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}
UNLOCKABLE_ERRNOS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}  # of a file system without locks
_LIMITS = {
    errno.EMFILE: "close files, or raise the limit of this process (ulimit -n)",
    errno.ENFILE: "close files, or raise the limit of the system",
    errno.ENOMEM: "free some memory, or raise the limit of this process (ulimit -v)",
}  # what the process or the system is short of, and what to do
_PATIENCE = 300  # seconds that a writer waits for another one of the same path
MAX_REPLACE_S = 1.0  # seconds that a rename waits for programs that have the file before open
PREVIOUS_NAME = "model"  # what the model before is called where it cannot be exchanged in one step
_RENAME_EXCHANGE = 2  # linux/fs.h
_AT_FDCWD = -100


@contextmanager
def writing(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Iterator[Path]:
    """Yield a temporary path; what is there replaces `path` when the block ends without an error.

    `max_bytes` is what the file's reader opens: a larger one is an error, and leaves what was there.
    """
    path = Path(os.path.expanduser(path))
    if path.name in ("", "..") or path.is_dir():
        raise WritingError(errno.EISDIR, f"cannot write to {str(path)!r}: it is a folder; give the name of a file")
    path = path.absolute()  # the process may go to another folder meanwhile
    with _part_folder(path) as (part, lock):  # some libraries write to a file of their own beside the one given
        tmp_path = part / path.name
        tmp_path.touch(exist_ok=False)
        mode = stat.S_IMODE(tmp_path.stat().st_mode)  # as the system gives it to a new file here
        yield tmp_path
        lock.check(path)
        size = tmp_path.stat().st_size
        if max_bytes is not None and size > max_bytes:
            raise InputError(
                f"{path} would have {size:,} bytes, and at most {max_bytes:,} can be opened again; it is not "
                "written. Give it less to hold: fewer or shorter names"
            )
        flush_to_disk(tmp_path)
        os.chmod(tmp_path, mode)  # some libraries put a file of their own in its place
        _rename_and_flush(_replace_patiently, tmp_path, path)


@contextmanager
def writing_folder(
    path: str | os.PathLike[str], replaceable: Callable[[Path], set[str]] | None = None
) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it takes the place of `path` when the block ends without an error.

    What its owner added there (notes, `.git`) is kept. `replaceable` checks what is there and names the files of it to
    drop; None is for models.
    """
    path = Path(os.path.realpath(os.path.expanduser(path)))  # a link to a folder stays a link
    with _part_folder(path) as (part, lock):
        outdated = (replaceable or _replaceable)(path)
        readable = stat.S_IMODE(part.stat().st_mode) & 0o666  # bits of a new file here
        yield part
        lock.check(path)
        for file in part.rglob("*"):
            flush_to_disk(file)
            if (mode := file.lstat().st_mode) | readable != mode and stat.S_ISREG(mode):
                os.chmod(file, stat.S_IMODE(mode) | readable)  # some libraries write for the owner alone
        if path.exists():
            _link_foreign_files(path, part, outdated)
        flush_to_disk(part)
        _rename_and_flush(_replace_dir, part, path)


def check_vacant(path: Path, way_out: str) -> None:
    """Refuse a path where a file or folder holds something; `way_out` says how to replace it."""
    path = Path(os.path.expanduser(path))
    if any(path.iterdir()) if path.is_dir() else path.is_file() and path.stat().st_size:
        raise InputError(f"{path} exists and is not empty; {way_out}, or give a new name")


@contextmanager
def temporary_folder(*, prefix: str = "pellucid-", parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yield an empty folder that is removed at the end; a child that is forked meanwhile leaves it to its parent."""
    process, path = os.getpid(), Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield path
    finally:
        if process == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a WritingError that names the path, the reason and what to do."""
    try:
        yield
    except PellucidError:
        raise
    except Exception as error:
        number = getattr(error, "errno", None) or 0
        if not isinstance(error, OSError):  # not all libraries raise it: torch's archive does not say why, Rust's do
            code = re.search(r"\(os error (\d+)\)", str(error))
            number = errno.EIO if "inline_container" in str(error) else int(code[1]) if code else 0
        if number not in DISK_FULL_ERRNOS | BAD_PATH_ERRNOS | _LIMITS.keys():
            raise
        reason = getattr(error, "strerror", None) or os.strerror(number)
        hint = _LIMITS.get(number, "free some space or choose another place")
        raise WritingError(
            number, f"cannot write {path}: {reason}. Nothing that was there is changed; {hint}"
        ) from error


@contextmanager
def _part_folder(path: Path) -> Iterator[tuple[Path, HeldLock]]:
    """Yield a new folder beside `path`, removed at the end, and the lock that keeps other writers of `path` away."""
    from filelock import Timeout  # here and below: a search writes nothing, and starts without it

    part, name = (path.parent / f".{path.name}.{ending}" for ending in (f"{secrets.token_hex(4)}.part", "lock"))
    try:
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked_file(name, _PATIENCE, is_removed=True) as lock:
                if lock.is_exclusive:
                    _remove_parts(path)  # of writers that were killed
                try:
                    part.mkdir()
                    yield part, lock
                finally:
                    if lock.is_ours:
                        shutil.rmtree(part, ignore_errors=True)
    except Timeout as error:
        raise WritingError(
            errno.EBUSY,
            f"cannot write {path}: {_holder(name)} has been writing it for more than {_PATIENCE} seconds. "
            "Wait for it, stop that process, or choose another place",
        ) from error


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[HeldLock]:
    """Hold the lock of a folder, after waiting up to `patience` seconds for another process or thread."""
    from filelock import Timeout

    before = folder.stat()
    try:
        with _locked_file(folder / ".lock", patience) as lock:
            if not _is_same(folder, before):
                raise InputError(f"{folder} was replaced by another one meanwhile; open it again")
            yield lock
    except FileNotFoundError as error:
        if _is_same(folder, before):
            raise
        raise InputError(f"{folder} was replaced by another one meanwhile; open it again") from error
    except Timeout as error:
        raise InputError(
            f"{folder} is in use by {_holder(folder / '.lock')}; wait until it has ended, or give another folder"
        ) from error


def _is_same(folder: Path, before: os.stat_result) -> bool:
    return folder.exists() and os.path.samestat(before, folder.stat())


class HeldLock(NamedTuple):
    """A lock that a process holds; `is_exclusive` is False where the file system has no locks."""

    process: int
    is_exclusive: bool

    @property
    def is_ours(self) -> bool:
        """Whether this process took the lock, and is no child of the one that did."""
        return self.process == os.getpid()

    def check(self, path: Path) -> None:
        """Refuse to finish in a forked child what its parent is writing."""
        if not self.is_ours:
            raise WritingError(
                errno.EPERM,
                f"cannot write {path}: this process was forked from the one that is writing it, which alone can finish "
                "it. Fork before or after, not meanwhile",
            )


@contextmanager
def _locked_file(path: Path, patience: float, *, is_removed: bool = False) -> Iterator[HeldLock]:
    """Hold the lock of a file, which is removed afterwards if `is_removed`.

    Raises:
        Timeout: another process or thread holds it for longer than `patience` seconds.
    """
    from filelock import FileLock

    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise InputError(f"{path} must be a file, the lock of writers; remove it")
    file_lock = FileLock(path, patience, poll_interval=0.01, thread_local=False, fallback_to_soft=False)
    try:
        file_lock.acquire()
    except OSError as error:
        if error.errno not in UNLOCKABLE_ERRNOS:
            raise
    lock = HeldLock(os.getpid(), file_lock.is_locked)
    try:
        with suppress(OSError):
            path.write_text(f"process {lock.process} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n", encoding="utf-8")
        yield lock
    finally:
        if lock.is_ours:
            if is_removed and os.name == "posix":  # before the next one may have it; elsewhere the library removes it
                with suppress(OSError):  # what was written is in place
                    path.unlink()
            file_lock.release()


def _holder(path: Path) -> str:
    """Return what the process that holds a lock wrote into its file."""
    with suppress(OSError):
        return path.read_bytes()[:200].decode("utf-8", "replace").strip() or "another run"
    return "another run"


def _remove_parts(path: Path) -> None:
    """Remove what killed writers of `path` left; the old model is put back where one was killed between two renames."""
    left_by = re.compile(re.escape(f".{path.name}.") + r"[a-z0-9_]{8}\.part")
    for part in [entry for entry in path.parent.iterdir() if left_by.fullmatch(entry.name)]:
        if (part / PREVIOUS_NAME).is_dir() and not path.exists():
            os.replace(part / PREVIOUS_NAME, path)
        shutil.rmtree(part, ignore_errors=True)  # of a file or link it does nothing
        with suppress(OSError):  # another user's, say
            part.unlink()


def _replaceable(path: Path) -> set[str]:
    """Return the names of the files of the model at `path`, after checking that there is a model or nothing."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return set()
    if not path.is_dir():
        raise InputError(f"{path} is a file; a model is saved as a folder. Give a new name")
    try:
        config = read_json(path / "config.json")
        return {"config.json", *config["pellucid"].get("files", ())}
    except ReadingError:
        raise
    except (ModelFolderError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} exists and holds no pellucid model; saving there would remove what it holds. Give a new name"
        ) from error


def _link_foreign_files(old: Path, new: Path, outdated: set[str]) -> None:
    """Put into `new` what `old` holds besides the model's files: the same files, which take no time and no space."""
    for entry in old.iterdir():
        target = new / entry.name
        if entry.name in outdated or target.exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True, copy_function=_link)
        else:
            _link(entry, target)


def _link(source: str | os.PathLike[str], target: str | os.PathLike[str], **_: Any) -> None:
    """Link a file, or a link itself; not a pipe or device, which could block or never end."""
    kind = os.lstat(source).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise InputError(
            f"{os.fspath(source)} is neither a file nor a link, and cannot go with the new model; move it away, or "
            "give a new name"
        )
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):  # no links here: another file system, another user's file
        shutil.copy2(source, target, follow_symlinks=False)


def _replace_dir(new: Path, path: Path) -> None:
    """Move folder `new` to `path`; an older folder there is exchanged or removed."""
    if not path.exists():
        _replace_patiently(new, path)
        return
    if _exchange(new, path):
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    _replace_patiently(path, old / PREVIOUS_NAME)
    try:
        _replace_patiently(new, path)
    except OSError:
        try:
            os.replace(old / PREVIOUS_NAME, path)
        except OSError as error:
            raise WritingError(
                error.errno or errno.EIO,
                f"{path} is at {old / PREVIOUS_NAME} and cannot be moved back ({error.strerror or error}); the next "
                "save to that name puts it back, or move it yourself",
            ) from error
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two paths in one step where the system can (Linux, most file systems); return whether it did."""
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):  # a C library without it, or another system
        return False
    here = ctypes.c_int(_AT_FDCWD)
    return bool(renameat2(here, os.fsencode(first), here, os.fsencode(second), ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def flush_to_disk(path: Path) -> None:
    """Return when a file or folder is on disk."""
    if os.name == "posix" or not path.is_dir():  # elsewhere a folder cannot be opened
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _rename_and_flush(rename: Callable[[Path, Path], None], source: Path, path: Path) -> None:
    """Rename `source` to `path` and flush their folder; an error says if the new one is in place."""
    handle = os.open(path.parent, os.O_RDONLY) if os.name == "posix" else None  # now, so that no limit fails it later
    is_renamed = False
    try:
        rename(source, path)
        is_renamed = True
        if handle is not None:
            os.fsync(handle)
    except OSError as error:
        if not is_renamed and os.path.lexists(source):
            raise
        raise WritingError(
            error.errno or errno.EIO,
            f"{path} is in place, but the disk did not confirm it ({error.strerror or error}): after a power failure "
            "the one before may be there again. Check the disk",
        ) from error
    finally:
        if handle is not None:
            os.close(handle)


def _replace_patiently(source: Path, path: Path) -> None:
    """Rename a file over another, which Windows refuses while somebody has that one open, for up to a second."""
    end = time.monotonic() + MAX_REPLACE_S
    while True:
        try:
            return os.replace(source, path)
        except PermissionError as error:
            if time.monotonic() < end:
                time.sleep(0.01)
                continue
            raise WritingError(
                error.errno,
                f"cannot replace {path}: {error.strerror or error}. Nothing that was there is changed; close the "
                "programs that have it open, or check its permissions",
            ) from error


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Return the bytes of a regular file (links are followed) of at most `max_bytes`."""
    path = Path(path)
    with _opened(path) as file:
        # It allocates as much as is asked for.
        content: bytes = file.read(min(os.fstat(file.fileno()).st_size, max_bytes) + 1)
    if len(content) > max_bytes:
        raise ModelFolderError(f"{path} is larger than the {max_bytes:,} bytes such a file may have")
    return content


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a regular file for reading; not a pipe or device, which could block or never end."""
    try:
        if not path.is_file():
            raise ModelFolderError(f"{path} is not a regular file" if path.exists() else f"file not found: {path}")
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise reading_error(path, error) from error


def reading_error(path: Path, error: OSError | MemoryError) -> ReadingError:
    """Return the error for a file or folder that the system does not let us read, with what to do."""
    number = errno.ENOMEM if isinstance(error, MemoryError) else error.errno or 0
    hint = f"; {_LIMITS[number]}" if number in _LIMITS else ""
    return ReadingError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}{hint}")


def checksum(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a regular file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with _opened(Path(path)) as file:
        while chunk := file.read(_BLOCK):
            digest.update(chunk)
    return digest.hexdigest()


def write_json(path: str | os.PathLike[str], value: Any, *, indent: int | None = 2, max_bytes: int = _MAX_JSON) -> None:
    """Write `value` as UTF-8 JSON of at most `max_bytes`, indented or (None) on one line, whole or not at all."""
    with writing(path, max_bytes=max_bytes) as tmp_path:
        tmp_path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str], *, max_bytes: int = _MAX_JSON) -> Any:
    """Read a JSON file of at most `max_bytes`."""
    return parse_json(read_regular(path, max_bytes), f"{path} is not valid JSON")


def parse_json(content: bytes, complaint: str) -> Any:
    """Return the value of JSON `content`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, an endless number, or nested too deep
        raise ModelFolderError(f"{complaint}: {error}") from error


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named arrays as one safetensors file, whole or not at all; the library aligns them for mapping."""
    contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    with writing(path) as tmp_path:
        save_file(contiguous, tmp_path, dict(metadata) if metadata else None)
        with open(tmp_path, "rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
        if header_size > _MAX_HEADER:
            raise InputError(
                f"{path} would have a header of {header_size:,} bytes, and at most {_MAX_HEADER:,} can be opened "
                "again; it is not written. Give it fewer tensors, or shorter names"
            )


def read_tensors(
    path: str | os.PathLike[str], dtypes: Mapping[str, Any] = _DTYPES
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Return the arrays of a safetensors file, read-only, and the file's metadata; those of a large file are mapped."""
    path = Path(path)
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        header_size = struct.unpack("<Q", file.read(8))[0] if size >= 8 else -1
        if not 0 < header_size <= min(_MAX_HEADER, size - 8):
            raise ModelFolderError(f"{path} is not a safetensors file, or it is truncated ({size} bytes)")
        header = parse_json(file.read(header_size), f"{path} has a broken safetensors header")
        file.seek(0)
        # No np.memmap, which joblib would map once more by its path.
        content = file.read(size) if size <= MAX_READ_BYTES else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = np.frombuffer(content, np.uint8)[8 + header_size :]
    with open_tensors(path):
        pass  # the library checks the header: sizes, gaps, overlaps
    metadata = header.pop("__metadata__", None) or {}
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        try:
            array = data[start:end].view(dtypes[entry["dtype"]]).reshape(entry["shape"])
        except (KeyError, ValueError, OverflowError) as error:  # a type or shape that numpy does not have
            raise ModelFolderError(f"{path}: tensor {name!r} has a broken header entry {entry!r:.200}") from error
        tensors[name] = array if array.flags.aligned else array.copy()
    return tensors, metadata


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file with the library's own reader; every error names the file."""
    try:
        with without_panic(path), safe_open(str(path), framework="np") as tensors:
            yield tensors
    except (OSError, MemoryError) as error:
        with _opened(path):  # the library reports any file that it cannot open as missing
            raise reading_error(path, error) from error
    except SafetensorError as error:
        raise ModelFolderError(f"{path} is broken or truncated, by its safetensors header: {error}") from error


def broken_tensor(path: str | os.PathLike[str]) -> str | None:
    """Return the name of a tensor in a safetensors file with NaN or infinity, None if all are finite."""
    tensors, _ = read_tensors(path, _DTYPES | _OTHER_DTYPES)
    return next((name for name, tensor in tensors.items() if not is_sound(tensor)), None)


def is_sound(array: npt.NDArray[Any], largest: float = math.inf) -> bool:
    """Whether all numbers of `array` are finite and none is larger than `largest`, whatever its sign."""
    numbers = array.reshape(-1)
    for start in range(0, numbers.size, _BLOCK):
        block = numbers[start : start + _BLOCK]
        if array.dtype in _EXPONENT:  # numpy is slow at float16, and knows no bfloat16
            exponent = _EXPONENT[array.dtype]
            if (block.view(np.uint16) & exponent).max() == exponent:
                return False
        elif array.dtype.kind == "f":
            most = min(largest, float(np.finfo(array.dtype).max))
            if not (block.max() <= most and block.min() >= -most):  # nor NaN
                return False
    return True
