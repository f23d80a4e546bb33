"""Parquet files, read in batches that take bounded memory whatever the file claims.

A few hundred bytes of Parquet can stand for gigabytes: a dictionary with one long string to which every row points, or
a compressed page of zeros. Only the header of a page tells how large the page is, so these headers are read first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from pellucid.errors import CorpusError, PellucidError, missing_extra

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.parquet import ParquetFile
except ImportError as error:
    raise missing_extra("pyarrow", "parquet") from error

_BATCH_BYTES = 1 << 25  # of the texts of a batch, about
_SMALL_PAGE, _MOST_PACKED = 1 << 26, 100  # bytes of any page; a larger one unpacks to at most so many times its size
_LONGEST_HEADER = 1 << 27  # bytes of a page's header; it may quote the least and the largest text
_PEEK = 1 << 12
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # kinds of pages
_VALUES_IN = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}  # the field of a page's header that says how many values it has
_ENCODING_IN = {_DATA: 2, _DATA_2: 4}  # and the field in that which says how they are written
_BY_PREFIX = 7  # each value by what it has in common with the one before, which may be all of it


class Table:
    """A Parquet file: its Arrow schema, first row of each row group (`starts`), and batches of some columns."""

    def __init__(self, path: Path) -> None:
        """Open the file and check its row counts."""
        self.path = path
        with explained(path):
            self._file = ParquetFile(path, page_checksum_verification=True)
            self.schema, about = self._file.schema_arrow, self._file.metadata
            sizes = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
            self.starts: list[int] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
            if min(sizes, default=0) < 0 or about.num_rows != self.starts[-1]:
                raise CorpusError(f"{path} is damaged: its row groups have {self.starts[-1]} rows of {about.num_rows}")

    def __enter__(self) -> Table:
        """Return the table."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._file.close()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.starts[-1]

    def check_once(self, columns: Sequence[str]) -> None:
        """Check that no column of these occurs twice."""
        twice = next((name for name in columns if self.schema.names.count(name) > 1), None)
        if twice is not None:
            raise CorpusError(f"{self.path} has several columns {twice!r:.80}; give each a name of its own")

    def batches(self, columns: Sequence[str], group: int, most: int) -> Iterator[Any]:
        """Yield record batches of a row group, of at most `most` rows, cut at the same rows each time."""
        self.check_once(columns)
        done = self.starts[group]
        with explained(self.path):
            rows = max(1, min(most, self._rows_at_once(columns, group)))
            read = self._file.iter_batches(rows, row_groups=[group], columns=list(columns))
        while True:
            with explained(self.path, done):
                batch = next(read, None)
            if batch is None:
                return
            yield batch.select(list(columns))
            done += len(batch)

    def _rows_at_once(self, columns: Sequence[str], group: int) -> int:
        """Return how many rows of a row group take about `_BATCH_BYTES`, at the longest of them."""
        about = self._file.metadata.row_group(group)
        longest = 1.0  # bytes of a row
        with open(self.path, "rb") as file:
            for number in range(about.num_columns):
                chunk = about.column(number)
                name = next((name for name in columns if (chunk.path_in_schema + ".").startswith(name + ".")), None)
                if name is not None:
                    longest += self._longest(file, chunk, name, group)
        return int(_BATCH_BYTES / longest)

    def _longest(self, file: BinaryIO, chunk: Any, name: str, group: int) -> float:
        """Return the bytes of a row of a column: the most of a page's mean and of the dictionary; of lists the mean."""
        rows = self.starts[group + 1] - self.starts[group]
        longest = 0.0
        for page in _pages(file, chunk, self.path):
            if page.unpacked > max(_SMALL_PAGE, _MOST_PACKED * page.packed):
                raise CorpusError(
                    f"{self.path}: {page.packed:,} bytes of column {name!r:.80} unpack to {page.unpacked:,}; write the "
                    "file with smaller pages"
                )
            if page.kind != _DICTIONARY:
                longest = max(longest, page.unpacked / (1 if page.by_prefix else max(1, page.values)))
            elif chunk.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
                longest = max(longest, self._longest_entry(name, group, page.unpacked))
        return longest * max(1.0, float(chunk.num_values) / max(1, rows))

    def _longest_entry(self, name: str, group: int, size: int) -> int:
        """Return the bytes of the longest entry of a column's dictionary, which has `size` in all."""
        kind = self.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return size  # pyarrow shows no other dictionaries
        with ParquetFile(self.path, metadata=self._file.metadata, read_dictionary=[name]) as file:
            first = next(file.iter_batches(1, row_groups=[group], columns=[name]), None)
        if first is None or not pa.types.is_dictionary(first.column(0).type):
            return size
        longest: int | None = pc.max(pc.binary_length(first.column(0).dictionary)).as_py()
        return longest or 0


@contextmanager
def explained(path: Path, rows: int = 0) -> Iterator[None]:
    """Turn whatever pyarrow raises into a CorpusError that names the file and the `rows` read so far."""
    try:
        yield
    except PellucidError:
        raise
    except Exception as error:
        said = " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())[:200]
        place = f", after row {rows}," if rows else ""
        raise CorpusError(f"{path}{place} is damaged or not a parquet file: {said}") from error


class _Page(NamedTuple):
    """A page's header."""

    kind: int
    unpacked: int
    packed: int
    values: int
    by_prefix: bool = False


def _pages(file: BinaryIO, chunk: Any, path: Path) -> Iterator[_Page]:
    """Yield the pages of a column of a row group, as far as a reader would read."""
    place, left = chunk.data_page_offset, chunk.num_values
    before = chunk.dictionary_page_offset
    if before is not None and 0 < before < place:
        place = before
    end = place + chunk.total_compressed_size
    while left > 0 and place < end:
        page, size = _page_at(file, place, path)
        place += size + page.packed
        left -= page.values if page.kind in (_DATA, _DATA_2) else 0
        yield page


def _page_at(file: BinaryIO, place: int, path: Path) -> tuple[_Page, int]:
    """Return the page whose header begins at `place`, and the bytes of the header."""
    size = _PEEK
    while size <= _LONGEST_HEADER:
        file.seek(place)
        content = file.read(size)
        try:
            fields, end = _struct(content, 0)
        except IndexError:
            if len(content) < size:
                break
            size *= 32
            continue
        numbers = [fields.get(number, 0) for number in (1, 2, 3)]
        inner = fields.get(_VALUES_IN.get(numbers[0], 0), {})
        values = inner.get(1, 0) if isinstance(inner, dict) else -1
        if not all(type(number) is int and number >= 0 for number in (*numbers, values)):
            break
        by_prefix = isinstance(inner, dict) and inner.get(_ENCODING_IN.get(numbers[0], 0)) == _BY_PREFIX
        return _Page(numbers[0], numbers[1], numbers[2], values, by_prefix), end
    raise CorpusError(f"{path} is damaged: there is no page of a column at byte {place:,}")


def _struct(content: bytes, place: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return a struct in Thrift's compact form, integers and structs alone, and where it ends."""
    if depth > 8:
        raise CorpusError("a page's header is nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while kind := content[place]:
        place += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, place = _integer(content, place)
        fields[number], place = _value(content, place, kind & 15, depth)
    return fields, place + 1


def _value(content: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value of a struct, None for what is skipped, and where it ends."""
    skipped = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of true, false, a byte and a double
    if kind in skipped:
        return None, place + skipped[kind]
    if kind in (4, 5, 6):
        return _integer(content, place)
    if kind == 8:
        size, place = _varint(content, place)
        if place + size > len(content):
            raise IndexError
        return None, place + size
    if kind == 12:
        return _struct(content, place, depth + 1)
    raise CorpusError(f"a page's header holds a field of kind {kind}")


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            return value, place


def _integer(content: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(content, place)
    return (value >> 1) ^ -(value & 1), place
