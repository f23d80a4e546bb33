"""Parquet files, read in batches that take bounded memory whatever the file claims.

A few hundred bytes of Parquet can stand for gigabytes: a dictionary with one long string to which every row points, or
a compressed page of zeros. Only the header of a page tells how large the page is, so these headers are read first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from pellucid.errors import CorpusError, PellucidError, missing_extra
from pellucid.text.lines import NoValue, batches_by_size, check_file, is_stream

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.parquet import ParquetFile
except ImportError as error:
    raise missing_extra("pyarrow", "parquet") from error

_BATCH_BYTES = 1 << 25  # of the texts of a batch, about
_LONG_LIST = 1000  # values
_BATCH_ROWS = 256  # in memory at once, at most
_DICTIONARIES, _DICTIONARY_BYTES = 4096, 1 << 26  # that are read at once
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
            self.schema, metadata = self._file.schema_arrow, self._file.metadata
            self._names = list(self.schema.names)
            self._counts = Counter(self._names)
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            self.starts: list[int] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
            if min(sizes, default=0) < 0 or metadata.num_rows != self.starts[-1]:
                raise CorpusError(
                    f"{path} is damaged: its row groups have {self.starts[-1]} rows of {metadata.num_rows}"
                )

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
        twice = next((name for name in columns if self._counts[name] > 1), None)
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
        row_group, wanted_names = self._file.metadata.row_group(group), set(columns)
        rows = self.starts[group + 1] - self.starts[group]
        row_bytes, in_dictionaries = 1.0, []
        with open(self.path, "rb") as file:
            for number, name in enumerate(self._columns_of_leaves(row_group)):
                if name not in wanted_names:
                    continue
                chunk = row_group.column(number)
                value_bytes, dictionary_bytes = self._longest(file, chunk, name)
                values_per_row = max(1.0, float(chunk.num_values) / max(1, rows))
                row_bytes += value_bytes * values_per_row
                if dictionary_bytes:
                    in_dictionaries.append((name, dictionary_bytes, value_bytes, values_per_row))
        longest = self._longest_entries({name: size for name, size, _, _ in in_dictionaries}, group)
        for name, _, value_bytes, values_per_row in in_dictionaries:
            row_bytes += max(0.0, longest[name] - value_bytes) * values_per_row
        return int(_BATCH_BYTES / row_bytes)

    def _columns_of_leaves(self, row_group: Any) -> Iterator[str]:
        """Yield the name of the column to which each column chunk of a row group belongs: a struct has several."""
        names = iter(self._names)
        name = next(names, "")
        for index in range(row_group.num_columns):
            path = row_group.column(index).path_in_schema
            while path != name and not path.startswith(name + "."):
                name = next(names)
            yield name

    def _longest(self, file: BinaryIO, chunk: Any, name: str) -> tuple[float, int]:
        """Return the bytes of a value of a column chunk, the most of a page's mean, and those of its dictionary."""
        longest, in_dictionary = 0.0, 0
        for page in _pages(file, chunk, self.path):
            if page.unpacked > max(_SMALL_PAGE, _MOST_PACKED * page.packed):
                raise CorpusError(
                    f"{self.path}: {page.packed:,} bytes of column {name!r:.80} unpack to {page.unpacked:,}; write the "
                    "file with smaller pages"
                )
            if page.kind != _DICTIONARY:
                longest = max(longest, page.unpacked / (1 if page.by_prefix else max(1, page.values)))
            elif chunk.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
                in_dictionary = page.unpacked
        return longest, in_dictionary

    def _longest_entries(self, sizes: Mapping[str, int], group: int) -> dict[str, int]:
        """Return the bytes of the longest entry of the dictionaries of columns, which have `sizes` in all."""
        longest = dict(sizes)  # pyarrow shows no other dictionaries than those of strings
        texts = [n for n in sizes if str(self.schema.field(n).type) in ("string", "large_string")]
        for names in batches_by_size(texts, _DICTIONARIES, lambda name: sizes[name], _DICTIONARY_BYTES):
            with ParquetFile(self.path, metadata=self._file.metadata, read_dictionary=names) as file:
                first = next(file.iter_batches(1, row_groups=[group], columns=names), None)
            if first is None:
                continue
            for name in names:
                column = first.column(name)
                if pa.types.is_dictionary(column.type):
                    longest[name] = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
        return longest


def parquet_rows(path: Path, choose: Callable[[Any], list[str]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file as dicts, with the columns that `choose` takes of its Arrow schema."""
    check_file(path)
    if is_stream(path):
        raise CorpusError(f"{path} is a pipe or device; a parquet file cannot be read from one")
    with Table(path) as table:
        columns = choose(table.schema)
        for group in range(len(table.starts) - 1):
            for batch in table.batches(columns, group, _BATCH_ROWS):
                with explained(path):
                    values = list(map(_values_of, batch.columns))
                yield from (dict(zip(columns, row)) for row in zip(*values))


def text_column_error(schema: Any, column: int) -> str:
    """Return what is wrong with a column of texts; "" for nothing."""
    kind = schema.field(column).type
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if str(inner) in ("string", "large_string", "string_view", "null"):
        return ""
    return f"column {schema.field(column).name!r:.80} holds {kind!s:.80}, not text; name the column of the texts"


def _values_of(column: Any) -> list[Any]:
    """Return the values of a column; those that Python cannot hold as text, and as None where that fails."""
    kind = column.type
    with suppress(pa.ArrowException):
        if pa.types.is_timestamp(kind) and kind.unit == "ns":  # without pandas, which would be needed otherwise
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        elif pa.types.is_duration(kind) and kind.unit == "ns":
            column = column.cast(pa.duration("us"), safe=False)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if (pc.max(pc.list_value_length(column)).as_py() or 0) > _LONG_LIST:
            return list(column)  # not as lists of Python, which take far more
    try:
        values: list[Any] = column.to_pylist()
        return [value and dict(value) for value in values] if pa.types.is_map(kind) else values
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError, pa.ArrowException):
        return [_value_of(value) for value in column]


def _value_of(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        return NoValue(f"holds {value.type!s:.40} that Python cannot: {error!s:.60}")


@contextmanager
def explained(path: Path, rows: int = 0) -> Iterator[None]:
    """Turn whatever pyarrow raises into a CorpusError that names the file and the `rows` read so far."""
    try:
        yield
    except PellucidError:
        raise
    except Exception as error:
        reason = " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())[:200]
        position = f", after row {rows}," if rows else ""
        raise CorpusError(f"{path}{position} is damaged or not a parquet file: {reason}") from error


class _Page(NamedTuple):
    """A page's header."""

    kind: int
    unpacked: int
    packed: int
    values: int
    by_prefix: bool = False


def _pages(file: BinaryIO, chunk: Any, path: Path) -> Iterator[_Page]:
    """Yield the pages of a column of a row group, as far as a reader would read."""
    offset, n_left = chunk.data_page_offset, chunk.num_values
    before = chunk.dictionary_page_offset
    if before is not None and 0 < before < offset:
        offset = before
    end = offset + chunk.total_compressed_size
    while n_left > 0 and offset < end:
        page, size = _page_at(file, offset, path)
        offset += size + page.packed
        n_left -= page.values if page.kind in (_DATA, _DATA_2) else 0
        yield page


def _page_at(file: BinaryIO, offset: int, path: Path) -> tuple[_Page, int]:
    """Return the page whose header begins at `offset`, and the bytes of the header."""
    size = _PEEK
    while size <= _LONGEST_HEADER:
        file.seek(offset)
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
    raise CorpusError(f"{path} is damaged: there is no page of a column at byte {offset:,}")


def _struct(content: bytes, offset: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return a struct in Thrift's compact form, integers and structs alone, and where it ends."""
    if depth > 8:
        raise CorpusError("a page's header is nested too deeply")
    fields: dict[int, Any] = {}
    field_id = 0
    while kind := content[offset]:
        offset += 1
        if kind >> 4:
            field_id += kind >> 4
        else:
            field_id, offset = _integer(content, offset)
        fields[field_id], offset = _value(content, offset, kind & 15, depth)
    return fields, offset + 1


def _value(content: bytes, offset: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value of a struct, None for what is skipped, and where it ends."""
    skipped = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of true, false, a byte and a double
    if kind in skipped:
        return None, offset + skipped[kind]
    if kind in (4, 5, 6):
        return _integer(content, offset)
    if kind == 8:
        size, offset = _varint(content, offset)
        if offset + size > len(content):
            raise IndexError
        return None, offset + size
    if kind == 12:
        return _struct(content, offset, depth + 1)
    raise CorpusError(f"a page's header holds a field of kind {kind}")


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[offset]
        offset += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            return value, offset


def _integer(content: bytes, offset: int) -> tuple[int, int]:
    value, offset = _varint(content, offset)
    return (value >> 1) ^ -(value & 1), offset
