"""Rows of JSON: lines, arrays of any length read an item at a time, and the forms in which pandas writes a table."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError
from pellucid.text.encodings import encoding_hint
from pellucid.text.lines import MAX_LINE_BYTES, LineReader, open_file, utf8_chunks

_MAX_VALUES = 4_000_000  # of a line or an item: each takes about a hundred bytes
_DECODER = json.JSONDecoder()
_MAY_GO_ON = ("", *"+-.eE0123456789")
_SPACE = re.compile(r"[ \t\r\n]*")
_LINES_HINT = "Write an array of objects or JSON lines, in pandas: frame.to_json(path, orient='records', lines=True)"


def parse_json(text: str, prefix: str = "") -> Any:
    """Return what a JSON text holds, after checking it for depth and number of values."""
    with _errors_at(prefix):
        _check_values(text)
        return json.loads(text)


@contextmanager
def _errors_at(prefix: str) -> Iterator[None]:
    """Turn what the json module raises into a CorpusError; `prefix` begins the message."""
    try:
        yield
    except RecursionError as error:
        raise CorpusError(f"{prefix}JSON that is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise CorpusError(f"{prefix}not JSON ({error.msg})") from error
    except CorpusError as error:
        raise CorpusError(f"{prefix}{error}") from error
    except ValueError as error:
        raise CorpusError(f"{prefix}a number has too many digits") from error


def _check_values(text: str) -> None:
    """Check that a text does not hold more values than memory may hold."""
    if len(text) > _MAX_VALUES and sum(map(text.count, ",[{")) > _MAX_VALUES:
        raise CorpusError(f"more than {_MAX_VALUES:,} values; divide it")


def json_lines(path: Path, *, encoding: str | None, skip_blank: bool) -> Iterator[tuple[int, Any]]:
    """Yield line and value of each line of JSON; a blank line holds None, or with `skip_blank` nothing."""
    lines = LineReader(path, encoding=encoding)
    if skip_blank:
        lines.skip_blank()
    for line in lines:
        is_blank = not line or line.isspace()
        if is_blank and skip_blank:
            lines.skip_blank()
            continue
        yield lines.number, None if is_blank else parse_json(line, f"{path}, line {lines.number}: ")


def json_items(
    path: Path, *, encoding: str | None, is_row: Callable[[Mapping[str, Any]], bool]
) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each row of a .json file: an array, JSON lines, or an object that holds a table.

    Args:
        path: the file.
        encoding: see `read_lines`.
        is_row: whether an object is a row itself, such as one with a text.

    Raises:
        CorpusError: the file is broken, or an object is no table.
    """
    with open_file(path) as stream:
        text = _Text(utf8_chunks(stream, str(path), encoding)[1], path)
        values = _items(text, path) if text.mark() == "[" else _values(text, path)
        first = next(values, None)
        second = next(values, None)
        if first is not None and second is None and isinstance(first[1], dict):
            yield from enumerate(_rows_of(first[1], path, is_row), 1)
        else:
            yield from (item for item in (first, second) if item is not None)
            yield from values


def _items(text: _Text, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each item of an array, in bounded memory."""
    text.start += 1
    number, mark = 0, "]" if text.mark() == "]" else ","
    while mark == ",":
        number += 1
        yield number, text.value(f"{path}, item {number}: ")
        mark = text.mark()
        text.start += 1
        if mark not in ("]", ","):
            raise CorpusError(f"{path}, item {number}: not JSON ({'nothing' if not mark else repr(mark)} after it)")
    text.start += not number
    if text.mark():
        raise CorpusError(f"{path}: there is more after the end of the array, which has {number} items")


def _values(text: _Text, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each of several texts of JSON."""
    number = 0
    while text.mark():
        number += 1
        yield number, text.value(f"{path}, item {number}: ")


class _Text:
    """A text that is read as it is needed."""

    def __init__(self, chunks: Iterator[bytes], path: Path) -> None:
        self.start = 0
        self._content = ""
        self._chunks, self._path = chunks, path
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def mark(self) -> str:
        """Return the next character that is no space, "" at the end."""
        while True:
            self.start = _SPACE.match(self._content, self.start).end()  # type: ignore[union-attr]
            if self.start < len(self._content) or not self._read():
                return self._content[self.start : self.start + 1]

    def value(self, prefix: str) -> Any:
        """Return the next value, after reading as much as it takes."""
        self.mark()
        while True:
            with _errors_at(prefix):
                if len(self._content) - self.start > _MAX_VALUES:
                    _check_values(self._content[self.start :])
                try:
                    value, end = _DECODER.raw_decode(self._content, self.start)
                except json.JSONDecodeError:
                    if len(self._content) - self.start <= MAX_LINE_BYTES and self._read():
                        continue
                    if len(self._content) - self.start <= MAX_LINE_BYTES:
                        raise
                    end = len(self._content)
                if end - self.start > MAX_LINE_BYTES:
                    hint = f"not JSON, or one value of more than {MAX_LINE_BYTES:,} characters. {_LINES_HINT}"
                    raise CorpusError(hint)
            if self._content[end : end + 1] in _MAY_GO_ON and self._read():  # a number, if that was one
                continue
            self.start = end
            return value

    def _read(self) -> bool:
        """Read on, at least as much again as there is; return whether there was more."""
        pieces, n_missing = [self._content[self.start :]], max(1, len(self._content) - self.start)
        self.start = 0
        for chunk in self._chunks:
            try:
                pieces.append(self._decoder.decode(chunk))
            except UnicodeDecodeError as error:
                raise CorpusError(f"{self._path} is not UTF-8: {error.reason}. {encoding_hint(chunk)}") from error
            n_missing -= len(pieces[-1])
            if n_missing <= 0:
                break
        self._content = "".join(pieces)
        return len(pieces) > 1


def _rows_of(value: dict[str, Any], path: Path, is_row: Callable[[Mapping[str, Any]], bool]) -> Iterator[Any]:
    """Yield the rows of an object, in each form in which pandas writes a table, or of the one list in it."""
    if is_row(value):
        yield value
        return
    columns = value.get("columns")
    if isinstance(columns, list) and isinstance(value.get("data"), list):  # orient="split"
        yield from (dict(zip(columns, row)) for row in value["data"])
        return
    lists = [
        member for member in value.values() if isinstance(member, list) and all(isinstance(row, dict) for row in member)
    ]
    if len(lists) == 1 and lists[0]:  # orient="table", or rows under a name
        yield from lists[0]
        return
    values = list(value.values())
    if values and all(isinstance(item, dict) for item in values):
        if all(map(is_row, values)):  # orient="index"
            yield from values
            return
        if all(item.keys() == values[0].keys() for item in values):  # orient="columns"
            yield from ({name: column[key] for name, column in value.items()} for key in values[0])
            return
    if values and all(isinstance(item, list) for item in values) and len({len(item) for item in values}) == 1:
        yield from (dict(zip(value, row)) for row in zip(*values))
        return
    names = ", ".join(map(str, value))
    raise CorpusError(f"{path} is one object ({names:.200}) and no table. {_LINES_HINT}")
