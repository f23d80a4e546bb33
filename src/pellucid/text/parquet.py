"""Parquet files, read in batches that take bounded memory.

A few hundred bytes of Parquet can stand for gigabytes: a dictionary with one long string to which every row points. So
strings are read as dictionaries, and the longest one of a batch decides how many rows are unpacked at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, importing
from pellucid.text.lines import NoValue, check_file, is_stream, translate_errors

with importing("parquet", "pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.parquet import ParquetFile, ParquetWriter

_BATCH_BYTES = 1 << 25  # of the strings of a batch, about
_BATCH_ROWS = 256  # that become Python objects at once, at most
_COPIED_ROWS = 8_192  # at once
_MAX_LIST_ITEMS = 1000  # that become Python objects; metadata has no longer lists
_MIN_BOMB_BYTES, _MAX_RATIO = 1 << 26, 100  # a larger column of a row group unpacks to at most so many times its bytes


class Table:
    """A Parquet file: its Arrow schema, first row of each row group (`starts`), and batches of some columns."""

    def __init__(self, path: Path) -> None:
        """Open the file and check its row counts."""
        check_file(path)
        if is_stream(path):
            raise CorpusError(f"{path} is a pipe or device; a parquet file cannot be read from one")
        self.path = path
        with translate_errors(f"{path} is damaged or not a parquet file"), ParquetFile(path) as file:
            self.schema, self._metadata = file.schema_arrow, file.metadata
            self.names: list[str] = self.schema.names
            sizes = [self._metadata.row_group(group).num_rows for group in range(self._metadata.num_row_groups)]
            self.starts: list[int] = list(accumulate(sizes, initial=0))
            if min(sizes, default=0) < 0 or self._metadata.num_rows != self.starts[-1]:
                raise CorpusError(f"{path} is damaged: its row groups have {self.starts[-1]} rows")
            leaves = map(file.schema.column, range(self._metadata.num_columns))
            self._strings = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]

    def check_once(self, columns: Sequence[str]) -> None:
        """Check that no column of these occurs twice."""
        for name in columns:
            if self.names.count(name) > 1:
                raise CorpusError(f"{self.path} has several columns {name!r:.80}; give each a name of its own")

    def batches(self, columns: Sequence[str], max_rows: int) -> Iterator[Any]:
        """Yield record batches of at most `max_rows` rows, cut at the same rows each time."""
        self.check_once(columns)
        for group, n_rows in enumerate(self.starts[:-1]):
            by_prefix = self._check_chunks(columns, group)
            n_unpacked = max(1, min([max_rows, *(_BATCH_BYTES // max(1, size) for size in by_prefix.values())]))
            strings = [path for path in self._strings if path not in by_prefix]  # which pyarrow reads as strings alone
            with (
                translate_errors(f"{self.path} is damaged or not a parquet file"),
                ParquetFile(
                    self.path, metadata=self._metadata, read_dictionary=strings, page_checksum_verification=True
                ) as file,
            ):
                batches = file.iter_batches(n_unpacked, row_groups=[group], columns=list(columns))
                while True:
                    with translate_errors(f"{self.path}, after row {n_rows}, is damaged or not a parquet file"):
                        batch = next(batches, None)
                    if batch is None:
                        break
                    batch = batch.select(list(columns))
                    longest = max(map(_longest_string, batch.columns), default=0)
                    size = max(1, min(len(batch), _BATCH_BYTES // max(1, longest)))
                    yield from (_plain(batch.slice(start, size), self.schema) for start in range(0, len(batch), size))
                    n_rows += len(batch)

    def rows(self, columns: Sequence[int]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the number of each row, from 1, and its values in some columns."""
        batches = self.batches([self.names[column] for column in columns], _BATCH_ROWS)
        with translate_errors(f"{self.path} is damaged or not a parquet file"):
            yield from enumerate(chain.from_iterable(zip(*map(_values_of, batch.columns)) for batch in batches), 1)

    def _check_chunks(self, columns: Sequence[str], group: int) -> dict[str, int]:
        """Refuse bombs, and return the bytes of columns whose values share what is in the one before: maybe all."""
        row_group, size_by_prefix = self._metadata.row_group(group), dict[str, int]()
        for chunk in map(row_group.column, range(row_group.num_columns)):
            name, packed, unpacked = chunk.path_in_schema, chunk.total_compressed_size, chunk.total_uncompressed_size
            if name.split(".")[0] not in columns:
                continue
            if unpacked > max(_MIN_BOMB_BYTES, _MAX_RATIO * packed):
                raise CorpusError(
                    f"{self.path}: {packed:,} bytes of column {name!r:.80} unpack to {unpacked:,}; write the file "
                    "with smaller row groups"
                )
            if "DELTA_BYTE_ARRAY" in chunk.encodings:
                size_by_prefix[name] = unpacked
        return size_by_prefix


def _longest_string(array: Any) -> int:
    """Return the bytes of the longest string of an array whose strings are dictionaries, which may be nested."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return pc.max(pc.binary_length(array.dictionary)).as_py() or 0
    if pa.types.is_struct(kind):
        return max(map(_longest_string, array.flatten()), default=0)
    return _longest_string(array.values) if pa.types.is_nested(kind) else 0


def _plain(batch: Any, schema: Any) -> Any:
    """Return a batch in which columns of strings are what the file's schema says."""
    columns = [
        column.cast(schema.field(name).type) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def copy_groups(source: Path, target: Path, selected: Sequence[bool]) -> int:
    """Write the selected rows of a parquet file, and return how many rows there were."""
    table, start = Table(source), 0
    if table.starts[-1] == len(selected):
        with ParquetWriter(target, table.schema) as writer:
            for batch in table.batches(table.names, _COPIED_ROWS):
                rows = pa.array(selected[start : start + len(batch)])
                writer.write_table(pa.Table.from_batches([batch.filter(rows)]).cast(table.schema))
                start += len(batch)
    return table.starts[-1]


def text_column_error(schema: Any, column: int) -> str:
    """Return what is wrong with a column of texts; "" for nothing."""
    kind = schema.field(column).type
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if str(inner) in ("string", "large_string", "string_view", "null"):
        return ""
    return f"column {schema.field(column).name!r:.80} holds {kind!s:.80}, not text; name the column of the texts"


def _values_of(column: Any) -> list[Any]:
    """Return the values of a column as Python has them, and long lists as they are."""
    kind = column.type
    with suppress(pa.ArrowException):
        if pa.types.is_timestamp(kind) and kind.unit == "ns":  # without pandas, which would be needed otherwise
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        elif pa.types.is_duration(kind) and kind.unit == "ns":
            column = column.cast(pa.duration("us"), safe=False)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and (pc.max(pc.list_value_length(column)).as_py() or 0) > _MAX_LIST_ITEMS:
        return list(column)
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
