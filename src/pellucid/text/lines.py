"""Lines of text files in any encoding, packed or not, and of pipes; and the JSON on a line.

A line feed, a carriage return, or both end a line. A byte order mark at the start is no part of the text; it says how
the file is encoded. Otherwise text is UTF-8 unless the caller names an encoding.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pellucid.errors import CorpusError, InputError, PellucidError, shown

UNPACKERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
"""What opens a packed file, by the end of its name; an archive (.zip) of one file is opened by `open_file`."""

PACKED = (*UNPACKERS, ".zip")
"""How the name of a packed file ends."""

MAX_TEXT_CHARS = 1 << 26
"""Characters of a line, a cell or a text, unpacked; a longer one is refused before memory is filled."""

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, MemoryError)
"""What opening or reading a missing, locked, damaged or hostile file raises, packed or not."""

Item = TypeVar("Item")

_ENCODING_OF_MARK = {  # that of UTF-32 begins as that of UTF-16 does
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_CHUNK_BYTES = 1 << 18  # read at once
_BATCH_CHARS = 1 << 24  # of the items of a batch
_MAX_LINE_VALUES = 4_000_000  # of JSON: each takes about a hundred bytes
_MIN_BOMB_CHARS, _MAX_RATIO = 1 << 22, 100  # a longer packed file unpacks to at most so many times its bytes


def batches_by_size(
    items: Iterable[Item], max_items: int, size: Callable[[Item], int], batch_size: int = _BATCH_CHARS
) -> Iterator[list[Item]]:
    """Yield items in lists of at most `max_items`, and of about `batch_size` characters or bytes as `size` counts."""
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if len(batch) == max_items or total >= batch_size:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def check_file(path: Path, what: str = "corpus file") -> None:
    """Check that there is something to read at `path`."""
    if os.path.isdir(path):
        is_index = os.path.isfile(os.path.join(path, "index.json"))
        hint = f"; the texts of an index: pellucid index list {path} -o texts.csv" if is_index else ""
        raise CorpusError(f"{path} is a folder; name a file{hint}")
    if not os.path.exists(path):
        raise CorpusError(f"{what} not found: {path}")


def is_stream(path: Path) -> bool:
    """Whether there is a pipe or a device, which can be read once."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def describe_error(error: BaseException) -> str:
    """Return the message of another library's error, or its class, on one short line."""
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(message.split())[:200]


@contextmanager
def translate_errors(problem: str) -> Iterator[None]:
    """Turn whatever a library raises about a file into a CorpusError that begins with `problem`."""
    try:
        yield
    except PellucidError:
        raise
    except Exception as error:
        raise CorpusError(f"{problem}: {describe_error(error)}") from error


def check_encoding(name: str) -> str:
    """Return the name of an encoding of text after checking that there is one."""
    try:
        " ".encode(name)  # of an empty string Python would not look the encoding up
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise InputError(
            f"{shown(name)} is no encoding of text; utf-8, cp1252 and utf-16 are the usual ones"
        ) from error


def open_file(path: Path, what: str = "corpus file") -> BinaryIO:
    """Open a file for reading, unpacked as its name says.

    Raises:
        CorpusError: it is absent, empty though packed, an archive of several files, or cannot be read.
    """
    check_file(path, what)
    ending = path.suffix.lower()
    try:
        if ending in PACKED and path.is_file() and not path.stat().st_size:  # gzip takes it for no text
            raise CorpusError(f"{path} is empty, which no packed file is: it was cut. Copy or download it again")
        if ending == ".zip":
            archive = zipfile.ZipFile(path)  # the open member keeps the file
            return archive.open(archived_name(path))  # type: ignore[return-value]
        opened: BinaryIO = UNPACKERS.get(ending, open)(path, "rb")
    except (*UNREADABLE, RuntimeError, NotImplementedError) as error:  # the last two of an archive with a password
        raise CorpusError(f"{path} cannot be read: {describe_error(error)}") from error
    return opened


def archived_name(path: Path) -> str:
    """Return the name of the only file of an archive, hidden ones aside, as macOS adds them."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    visible = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in Path(name).parts)]
    if len(visible) != 1:
        raise CorpusError(f"{path} holds {len(visible)} files ({', '.join(visible):.200}); unpack it and name one")
    return visible[0]


def read_lines(source: Path | BinaryIO, name: str = "corpus file", *, encoding: str | None = None) -> Iterator[str]:
    """Yield the lines of a file or a stream, without their ends; what is ready in a pipe comes at once.

    Args:
        source: a file, also packed, or an open stream.
        name: for messages: of a stream, or what a file is.
        encoding: None for UTF-8, or what a byte order mark says.

    Raises:
        CorpusError: the file is absent or damaged, is not in its encoding, or a line is too long.
    """
    # `pending` are pieces of a line that has not ended yet, of so many characters.
    pending, n_pending, n_lines, n_unpacked, max_unpacked = [""], 0, 0, 0, math.inf
    if isinstance(source, Path) and source.suffix.lower() in PACKED and source.is_file():
        max_unpacked = max(_MIN_BOMB_CHARS, _MAX_RATIO * source.stat().st_size)
    with open_file(source, name) if isinstance(source, Path) else nullcontext(source) as stream:
        name = str(source) if isinstance(source, Path) else name
        codec = "utf-8"
        try:
            start, codec = _begin(stream, name, encoding)
            decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(codec)(), translate=True)
            for chunk in chain([start], iter(partial(_read, stream), b""), [b""]):
                text = decoder.decode(chunk, final=not chunk)
                n_unpacked += len(text)
                if n_unpacked > max_unpacked:
                    hint = "unpack it if you trust it"
                    raise CorpusError(f"{name} unpacks to more than {_MAX_RATIO} times its size; {hint}")
                first = text.find("\n")
                if n_pending + (first if first >= 0 else len(text)) > MAX_TEXT_CHARS:
                    where, hint = f"{name}, line {n_lines + 1}", "split it, or name a text file"
                    raise CorpusError(f"{where} is longer than {MAX_TEXT_CHARS:,} characters; {hint}")
                pending.append(text)
                n_pending += len(text)
                if first >= 0:
                    *lines, last = "".join(pending).split("\n")
                    pending, n_pending, n_lines = [last], len(last), n_lines + len(lines)
                    yield from lines
        except UnicodeDecodeError as error:
            line = n_lines + error.object[: error.start].decode(codec, "replace").count("\n") + 1
            hint = "Name the encoding that the file has: --encoding cp1252 is usual for western languages"
            raise CorpusError(f"{name}, line {line} is not {codec.upper()}: {error.reason}. {hint}") from error
        except UNREADABLE as error:
            reason = describe_error(error)
            raise CorpusError(f"{name} is damaged or cannot be read after line {n_lines}: {reason}") from error
    if last := "".join(pending):
        yield last


def _begin(stream: BinaryIO, name: str, encoding: str | None) -> tuple[bytes, str]:
    """Return the first bytes of a stream, without a byte order mark, and its encoding."""
    start = b""
    while len(start) < 4 and any(mark.startswith(start) for mark in _ENCODING_OF_MARK) and (more := _read(stream)):
        start += more
    mark = next((mark for mark in _ENCODING_OF_MARK if start.startswith(mark)), b"")
    codec = _ENCODING_OF_MARK.get(mark) or encoding or "utf-8"
    if codec == "utf-8" and 3 * (zeros := start.count(0)) > len(start):
        wide, order = "utf-32" if 3 * zeros > 2 * len(start) else "utf-16", "be" if start[:1] == b"\0" else "le"
        raise CorpusError(
            f"{name} is UTF-16, UTF-32 or not a text; save it as UTF-8, or name its encoding: --encoding {wide}-{order}"
        )
    return start.removeprefix(mark), codec


def _read(stream: BinaryIO) -> bytes:
    return stream.read1(_CHUNK_BYTES)  # type: ignore[attr-defined,no-any-return]


def parse_json_row(text: str, prefix: str = "", max_values: int = _MAX_LINE_VALUES) -> Any:
    """Return what a JSON text holds.

    Raises:
        CorpusError: it is none, is nested too deeply, or has too many values; the message begins with `prefix`.
    """
    if len(text) > max_values and sum(map(text.count, ",[{")) > max_values:
        raise CorpusError(f"{prefix}more than {max_values:,} values; divide it")
    try:
        return json.loads(text)
    except (RecursionError, ValueError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        raise CorpusError(f"{prefix}not JSON ({getattr(error, 'msg', problem)})") from error
