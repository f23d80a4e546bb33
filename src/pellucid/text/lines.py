"""Lines of text files in any encoding, packed or not, and of pipes: every reader of text files starts here.

A line feed ends a line, and one carriage return before it goes with it. In a file without a single line feed, as old
Macs wrote them, carriage returns end the lines. A byte order mark at the start is no part of the text; it says how the
file is encoded. Otherwise text is UTF-8 unless the caller names an encoding.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from pellucid.errors import CorpusError
from pellucid.text.encodings import MARKS, check_unmarked, encoding_hint, marked_encoding

UNPACKERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
"""What opens a packed file, by the end of its name; an archive (.zip) of one file is opened by `open_file`."""

PACKED = (*UNPACKERS, ".zip")
"""How the name of a packed file ends."""

MAX_LINE_BYTES = 1 << 26
"""Bytes of a line, unpacked, or of a text of a parquet file; a longer one is refused before memory is filled."""

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, MemoryError)
"""What opening or reading a missing, locked, damaged or hostile file raises, packed or not."""

Item = TypeVar("Item")

_Chunks = tuple[str, Iterator[bytes]]

_CHUNK_BYTES = 1 << 18  # asked for at once
_BATCH_CHARS = 1 << 24  # of the items of a batch
_PEEK_BYTES = 1 << 12  # at the start of a file, which show its encoding


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


class NoValue(NamedTuple):
    """A value of a file that Python cannot represent."""

    reason: str


def check_file(path: Path, what: str = "corpus file") -> None:
    """Check that there is something to read at `path`."""
    if os.path.isdir(path):
        raise CorpusError(f"{path} is a folder; name a file")
    if not os.path.exists(path):
        raise CorpusError(f"{what} not found: {path}")


def is_stream(path: Path) -> bool:
    """Whether there is a pipe or a device, which can be read once."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


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
            return archive.open(_member(archive, path))  # type: ignore[return-value]
        opened: BinaryIO = UNPACKERS.get(ending, open)(path, "rb")
    except (*UNREADABLE, RuntimeError, NotImplementedError) as error:  # the last two of an archive with a password
        raise CorpusError(f"{path} cannot be read: {describe_error(error)}") from error
    return opened


@contextmanager
def create_file(path: Path, packed_as: Path, name: str) -> Iterator[Any]:
    """Open `path` for writing, packed as the name of `packed_as` says; `name` is that of a file in an archive."""
    ending = packed_as.suffix.lower()
    if ending != ".zip":
        with UNPACKERS.get(ending, open)(path, "wb") as file:
            yield file
        return
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w", force_zip64=True) as file,
    ):
        yield file


def archived_name(path: Path) -> str:
    """Return the name of the only file of an archive."""
    with zipfile.ZipFile(path) as archive:
        return _member(archive, path).filename


def _member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """Return the only file of an archive, hidden ones aside, as macOS adds them."""
    files = [
        member
        for member in archive.infolist()
        if not member.is_dir() and not any(part.startswith((".", "__MACOSX")) for part in Path(member.filename).parts)
    ]
    if len(files) != 1:
        names = ", ".join(member.filename for member in files)
        raise CorpusError(f"{path} holds {len(files)} files ({names:.200}); unpack it and name one of them")
    return files[0]


def read_lines(source: Path | BinaryIO, name: str = "corpus file", *, encoding: str | None = None) -> Iterator[str]:
    """Yield the lines of a file or a binary stream.

    Args:
        source: a file, also packed, or an open stream.
        name: for messages: of a stream, or what a file is.
        encoding: None for UTF-8, or what a byte order mark says.
    """
    return chain.from_iterable(block.lines() for block in read_blocks(source, name, encoding=encoding))


class TextBlock:
    """Some whole lines of a file."""

    __slots__ = ("end", "first", "text")

    def __init__(self, first: int, text: str, end: str) -> None:
        """Take the number of the first line, the text without its last line end, and what ends lines."""
        self.first, self.text, self.end = first, text, end

    def __len__(self) -> int:
        """Return the number of lines."""
        return self.text.count(self.end) + 1

    def lines(self) -> list[str]:
        """Return the lines."""
        if self.end == "\n":
            return self.text.replace("\r\n", "\n").split("\n")
        return [line.removeprefix("\n") for line in self.text.split("\r")]


def read_blocks(
    source: Path | BinaryIO, name: str = "corpus file", *, encoding: str | None = None
) -> Iterator[TextBlock]:
    """Yield the text of a file or stream in blocks of whole lines; what is ready in a pipe comes at once."""
    if isinstance(source, Path):
        with open_file(source, name) as stream:
            yield from read_blocks(stream, str(source), encoding=encoding)
        return
    chosen, chunks = utf8_chunks(source, name, encoding)
    end, chunks = _line_end(chunks)
    first = 1
    for content in _whole_lines(chunks, end, name):
        if first == 1 and chosen == "utf-8":
            check_unmarked(content[:_PEEK_BYTES], name)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            line = first + content.count(end, 0, error.start)
            position = error.start - content.rfind(end, 0, error.start) - 1
            raise CorpusError(
                f"{name}, line {line} is not UTF-8: {error.reason} at byte {position}. {encoding_hint(content)}"
            ) from error
        if text:
            text = text.removesuffix("\n").removesuffix("\r") if end == b"\n" else text.removesuffix("\r")
            block = TextBlock(first, text, end.decode())
            yield block
            first += len(block)


def utf8_chunks(stream: BinaryIO, name: str, encoding: str | None = None, *, keep_mark: bool = False) -> _Chunks:
    """Return the encoding of a stream and its content as UTF-8, in chunks that may cut a character.

    Raises:
        CorpusError: the stream is damaged, or is not in its encoding; bytes of UTF-8 are not looked at.
    """
    chunks, start = _raw_chunks(stream, name), b""
    while not start or (len(start) < 4 and any(mark.startswith(start) for mark, _ in MARKS)):
        chunk = next(chunks, b"")
        start += chunk
        if not chunk:
            break
    marked, size = marked_encoding(start)
    chosen = codecs.lookup(marked or encoding or "utf-8").name.removesuffix("-sig")
    remaining = chain([start if keep_mark else start[size:]], chunks)
    return chosen, remaining if chosen == "utf-8" else _transcoded(remaining, chosen, name)


def _raw_chunks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    lines = 0
    while True:
        try:
            chunk: bytes = stream.read1(_CHUNK_BYTES)  # type: ignore[attr-defined]
        except UNREADABLE as error:
            reason = describe_error(error)
            raise CorpusError(f"{name} is damaged or cannot be read after line {lines}: {reason}") from error
        if not chunk:
            return
        yield chunk
        lines += chunk.count(b"\n")


def _transcoded(chunks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """Yield chunks of another encoding as UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)()
    lines = 0
    for chunk in chain(chunks, [None]):
        try:
            text = decoder.decode(b"", final=True) if chunk is None else decoder.decode(chunk)
        except UnicodeDecodeError as error:
            line = lines + error.object[: error.start].decode(encoding, "replace").count("\n") + 1
            raise CorpusError(
                f"{name}, line {line} is not {encoding}: {error.reason}; name the encoding that the file has"
            ) from error
        lines += text.count("\n")
        yield text.encode("utf-8", "replace")


def _line_end(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    r"""Return what ends the lines, b"\n" or b"\r", and all chunks: only where there is no line feed it is the other."""
    head: list[bytes] = []
    size = 0
    for chunk in chunks:
        head.append(chunk)
        size += len(chunk)
        if b"\n" in chunk or size >= _CHUNK_BYTES:
            break
    start = b"".join(head)
    is_old = b"\n" not in start and b"\r" in start[:-1]
    return b"\r" if is_old else b"\n", chain([start], chunks)


def _whole_lines(chunks: Iterator[bytes], end: bytes, name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines."""
    pieces: list[bytes] = []  # of a line that has not ended yet
    size = lines = 0
    for chunk in chunks:
        first, last = chunk.find(end), chunk.rfind(end) + 1
        if size + (len(chunk) if first < 0 else first) > MAX_LINE_BYTES:
            raise CorpusError(
                f"{name}, line {lines + 1} is longer than {MAX_LINE_BYTES:,} bytes; split it, or name a text file"
            )
        pieces.append(chunk[:last] if last else chunk)
        size += len(chunk)
        if last:
            yield b"".join(pieces)
            lines += chunk.count(end)
            pieces, size = [chunk[last:]], len(chunk) - last
    yield b"".join(pieces)


class LineReader:
    """The lines of a file one after the other, with their numbers, and a look at those that come next."""

    def __init__(self, source: Path | BinaryIO, name: str = "corpus file", *, encoding: str | None = None) -> None:
        """Open the source, see `read_lines`."""
        self.number = 0
        """Of the last line that was given, from 1."""
        self._blocks = read_blocks(source, name, encoding=encoding)
        self._lines: list[str] = []
        self._next = 0

    def __iter__(self) -> Iterator[str]:
        """Return the reader."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        if self._next == len(self._lines):
            self._lines, self._next = next(self._blocks).lines(), 0
        line = self._lines[self._next]
        self._next += 1
        self.number += 1
        return line

    def peek(self, count: int) -> list[str]:
        """Return at most `count` of the next lines, as far as they can be had without waiting for more."""
        if self._next == len(self._lines):
            block = next(self._blocks, None)
            self._lines, self._next = ([], 0) if block is None else (block.lines(), 0)
        return self._lines[self._next : self._next + count]

    def skip_blank(self) -> None:
        """Pass over blank lines, very many of them quickly."""
        while True:
            while self._next < len(self._lines):
                line = self._lines[self._next]
                if line and not line.isspace():
                    return
                self._next += 1
                self.number += 1
            block = next(self._blocks, None)
            while block is not None and (not block.text or block.text.isspace()):
                self.number += len(block)
                block = next(self._blocks, None)
            if block is None:
                return
            self._lines, self._next = block.lines(), 0

    def take_until(self, mark: str, max_chars: int) -> tuple[str, str | None]:
        """Return the text of the lines before the next one that has `mark`, each with a line feed, and that line.

        The line is None where there is none, within `max_chars` characters.
        """
        pieces: list[str] = []
        size = 0
        while size <= max_chars:
            for index, line in enumerate(self._lines[self._next :]):
                if mark in line:
                    pieces += [before + "\n" for before in self._lines[self._next : self._next + index]]
                    self._next += index + 1
                    self.number += index + 1
                    return "".join(pieces), line
            remaining = self._lines[self._next :]
            pieces += [line + "\n" for line in remaining]
            size += sum(map(len, remaining)) + len(remaining)
            self.number += len(remaining)
            block = next(self._blocks, None)
            while block is not None and mark not in block.text and size <= max_chars:
                text = "\n".join(block.lines())
                pieces.append(text + "\n")
                size += len(text) + 1
                self.number += len(block)
                block = next(self._blocks, None)
            self._lines, self._next = [] if block is None else block.lines(), 0
            if block is None:
                break
        return "".join(pieces), None


def exact_lines(path: Path, encoding: str | None = None) -> Iterator[bytes]:
    """Yield the lines of a file as they are stored, unpacked, each with its line end; the first with a mark."""
    with open_file(path) as stream:
        chosen, chunks = utf8_chunks(stream, str(path), encoding, keep_mark=True)
        stored_as = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(chosen, chosen)  # these would add a mark a line
        end, chunks = _line_end(chunks)
        for block in _whole_lines(chunks, end, str(path)):
            *lines, last = block.split(end)
            for line in chain((line + end for line in lines), [last] if last else []):
                yield line if chosen == "utf-8" else line.decode("utf-8").encode(stored_as)


def describe_error(error: BaseException) -> str:
    """Return the message of another library's error, or its class, on one short line."""
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(message.split())[:200]
