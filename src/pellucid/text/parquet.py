"""Parquet files, read in batches that take bounded memory whatever the file claims.

A few hundred bytes of Parquet can stand for gigabytes: a dictionary with one long string to which every row points, or
compressed zeros. So the sizes in the file's metadata and the longest entries of dictionaries decide how many rows are
read at once. A file whose metadata lies is found out when pyarrow reads it, not before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.errors import CorpusError, PellucidError, missing_extra
from pellucid.text.lines import NoValue, batches_by_size, check_file, describe_error, is_stream

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
_MIN_BOMB_BYTES, _MAX_PACKED = 1 << 26, 100  # of a column of a row group; a larger one unpacks to at most so many times
_BY_PREFIX = "DELTA_BYTE_ARRAY"  # each value by what it has in common with the one before, which may be all of it


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
        """Return how many rows of a row group take about `_BATCH_BYTES`, at the longest entries of dictionaries."""
        row_group, names = self._file.metadata.row_group(group), set(columns)
        rows = max(1, self.starts[group + 1] - self.starts[group])
        row_bytes, in_dictionary = 1.0, dict[str, list[Any]]()
        for index, name in enumerate(self._columns_of_leaves(row_group)):
            if name not in names:
                continue
            chunk = row_group.column(index)
            unpacked, packed = chunk.total_uncompressed_size, chunk.total_compressed_size
            if unpacked > max(_MIN_BOMB_BYTES, _MAX_PACKED * packed):
                raise CorpusError(
                    f"{self.path}: {packed:,} bytes of column {name!r:.80} unpack to {unpacked:,}; write the file with "
                    "smaller row groups"
                )
            values = max(1, chunk.num_values)
            longest = unpacked if _BY_PREFIX in chunk.encodings else unpacked / values
            row_bytes += max(longest, self._file.schema.column(index).length) * max(1.0, values / rows)
            if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY":
                in_dictionary.setdefault(name, []).append(chunk)
        for name, longest in self._longest_entries(in_dictionary, group):
            row_bytes += longest * max(chunk.num_values / rows for chunk in in_dictionary[name])
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

    def _longest_entries(self, chunks: Mapping[str, list[Any]], group: int) -> Iterator[tuple[str, int]]:
        """Yield the columns of some chunks with dictionaries, and the bytes of the longest entry of each."""
        sizes = {name: sum(chunk.total_uncompressed_size for chunk in chunks[name]) for name in chunks}
        for names in batches_by_size(chunks, _DICTIONARIES, sizes.__getitem__, _DICTIONARY_BYTES):
            paths = [chunk.path_in_schema for name in names for chunk in chunks[name]]
            with ParquetFile(self.path, metadata=self._file.metadata, read_dictionary=paths) as file:
                first = next(file.iter_batches(1, row_groups=[group], columns=names), None)
            for name in names:
                yield name, (0 if first is None else _longest_entry(first.column(name))) or sizes[name]


def _longest_entry(array: Any) -> int:
    """Return the bytes of the longest entry of the dictionaries in an array, which may be nested; 0 without one."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return pc.max(pc.binary_length(array.dictionary)).as_py() or 0
    if pa.types.is_struct(kind):
        return max(map(_longest_entry, array.flatten()), default=0)
    return _longest_entry(array.values) if pa.types.is_nested(kind) else 0


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
        position = f", after row {rows}," if rows else ""
        raise CorpusError(f"{path}{position} is damaged or not a parquet file: {describe_error(error)}") from error
