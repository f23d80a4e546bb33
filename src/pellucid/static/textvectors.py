"""Word vectors as text, one word a line: the form of word2vec, GloVe, fastText (.vec) and the SWE authors' files.

A first line of two whole numbers ("count dimension") is optional. Words may hold spaces, as some of GloVe's do: the
last `dimension` fields of a line are the vector. A key of several words (`new▁york`) is kept; no text reaches it.
"""

from __future__ import annotations

import codecs
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.corpus import UNPACKERS, UNREADABLE
from pellucid.errors import InputError, ModelFolderError

_FIRST_NUMBERS = 1 << 22  # room for so many, 16 MB, where the file does not say how many words it has
_MOST_DIMENSIONS = 1 << 16
_LONGEST_LINE = 1 << 22  # bytes; a file without line ends is not read whole before it is refused


class _Shape(NamedTuple):
    """What the first line says: the dimension, the number of words (-1: not said) and whether it is a header."""

    dimension: int
    words: int
    header: bool


def read_text_vectors(
    path: str | os.PathLike[str], *, max_words: int | None = None
) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Read a text file of word vectors, plain or compressed (.gz, .xz), line by line into one array.

    A word that occurs again is skipped with a warning: the first vector counts.

    Args:
        path: the file.
        max_words: stop after so many words; such files are mostly sorted by frequency. None reads all.

    Returns:
        The words, and their vectors as float32 [words, dimension].

    Raises:
        InputError: `max_words` is below 1.
        ModelFolderError: the file is missing, truncated, or a line is not a word and finite numbers; with its number.
    """
    path = Path(path)
    if max_words is not None and max_words < 1:
        raise InputError(f"max_words is {max_words}; it must be at least 1, or None for all")
    lines = _lines(path)
    first = next(lines, b"")
    shape = _shape(first, path)
    rows = _first_capacity(shape, path, max_words)
    table = _Table(path, shape.dimension, rows)
    if not shape.header:
        table.add(1, first)
    number = 1
    for number, line in enumerate(lines, 2):
        if len(table.rows) == max_words:
            break
        table.add(number, line)
    else:
        _check_count(shape, table, path)
    table.warn_of_repeats()
    return list(table.rows), table.vectors[: len(table.rows)]


class _Table:
    """The words and vectors read so far; the array doubles when it is full."""

    def __init__(self, path: Path, dimension: int, rows: int) -> None:
        self.path, self.dimension = path, dimension
        self.rows: dict[str, int] = {}
        self.vectors = np.empty((rows, dimension), np.float32)
        self.repeats = 0
        self.first_repeat = (0, "")  # line and word

    def add(self, number: int, line: bytes) -> None:
        """Take in line `number`."""
        word, numbers = self._parse(number, line)
        row = len(self.rows)
        if self.rows.setdefault(word, row) != row:
            self.repeats += 1
            self.first_repeat = self.first_repeat if self.repeats > 1 else (number, word)
            return
        if row == len(self.vectors):
            grown = np.empty((2 * row, self.dimension), np.float32)
            grown[:row] = self.vectors
            self.vectors = grown
        self.vectors[row] = numbers

    def _parse(self, number: int, line: bytes) -> tuple[str, npt.NDArray[np.float32]]:
        """Return a line's word and vector."""
        fields = line.split()
        if len(fields) != self.dimension + 1:  # a word that holds spaces
            fields = line.strip().rsplit(None, self.dimension)
        vector = _vector(fields[1:])
        if vector is None or len(vector) != self.dimension:
            raise self._broken(number, f"expected a word and {self.dimension} numbers, got {_shown(line)}")
        if not np.isfinite(vector).all():
            raise self._broken(number, f"the vector of {_shown(fields[0])} is not finite in float32")
        try:
            return fields[0].decode("utf-8"), vector
        except UnicodeDecodeError as error:
            raise self._broken(number, f"the word {_shown(fields[0])} is not UTF-8") from error

    def _broken(self, number: int, what: str) -> ModelFolderError:
        hint = " (a binary file? only the text form is read)" if number <= 2 else ""
        return ModelFolderError(f"{self.path}, line {number}: {what}{hint}")

    def warn_of_repeats(self) -> None:
        """Say how many words came again."""
        if self.repeats:
            number, word = self.first_repeat
            warnings.warn(
                f"{self.path}: {self.repeats} lines repeat a word and were skipped, the first is line {number} "
                f"({word!r})",
                stacklevel=4,
            )


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a plain or compressed file."""
    if not path.is_file():
        raise ModelFolderError(f"{path} is not a regular file" if path.exists() else f"file not found: {path}")
    number = 0
    try:
        with UNPACKERS.get(path.suffix.lower(), open)(path, "rb") as file:
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    raise ModelFolderError(f"{path}, line {number}: over {_LONGEST_LINE:,} bytes; not a text file")
                yield line if number > 1 else line.removeprefix(codecs.BOM_UTF8)
    except UNREADABLE as error:
        raise ModelFolderError(f"{path} cannot be read after line {number}: {error}") from error


def _shape(line: bytes, path: Path) -> _Shape:
    """Return the dimension that the first line, a header or a word's vector, tells."""
    if line.startswith(b"PK\x03\x04"):
        raise ModelFolderError(f"{path} is a zip archive; unpack it and give the text file in it")
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ModelFolderError(f"{path} is UTF-16 or UTF-32; save it as UTF-8")
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields):
        shape = _Shape(int(fields[1]), int(fields[0]), header=True)
    else:
        shape = _Shape(len(fields) - 1, -1, header=False)
    if not 1 <= shape.dimension <= _MOST_DIMENSIONS:
        raise ModelFolderError(f"{path}, line 1: expected 'count dimension' or a word and numbers, got {_shown(line)}")
    return shape


def _first_capacity(shape: _Shape, path: Path, max_words: int | None) -> int:
    """Return how many rows to make room for; a header is believed as far as the file's size allows."""
    if shape.words < 1 or path.suffix.lower() in UNPACKERS:
        return max(1, _FIRST_NUMBERS // shape.dimension)
    possible = path.stat().st_size // (2 * shape.dimension) + 1  # a digit and a space for each number at least
    return min(shape.words, possible, max_words or shape.words)


def _check_count(shape: _Shape, table: _Table, path: Path) -> None:
    """Refuse a file that ended early, or holds no word at all."""
    read = len(table.rows) + table.repeats
    if shape.header and read != shape.words:
        raise ModelFolderError(f"{path}: line 1 promises {shape.words} words, the file holds {read}; is it truncated?")
    if not read:
        raise ModelFolderError(f"{path} holds no word vectors")


def _vector(fields: list[bytes]) -> npt.NDArray[np.float32] | None:
    """Return the numbers in `fields`, or None if one is no number."""
    try:
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused as such
            return np.array(list(map(float, fields)), np.float32)
    except ValueError:
        return None


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", errors="replace")) + ("..." if len(text) > 60 else "")
