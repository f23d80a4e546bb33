"""Parquet files, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pellucid.errors import CorpusError, importing
from pellucid.text.lines import check_file, is_stream, translate_errors

with importing("parquet", "pyarrow"):
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, ParquetWriter

_BATCH_ROWS = 64  # that become Python objects at once, at most
_BATCH_BYTES = 1 << 25  # of them in the file, unpacked, on average
_MIN_BOMB_BYTES, _MAX_RATIO = 1 << 26, 100  # a larger column of a row group unpacks to at most so many times its bytes


class ParquetTable:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        """Open the file and read the names of its columns."""
        check_file(path)
        if is_stream(path):
            raise CorpusError(f"{path} is a pipe or device; a parquet file cannot be read from one")
        self.path = path
        with translate_errors(f"{path} is damaged or not a parquet file"), ParquetFile(path) as file:
            self._metadata = file.metadata
            self.names: list[str] = file.schema_arrow.names

    def rows(self, columns: Sequence[int]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the number of each row, from 1, and its values in some columns, whose names occur once."""
        names, n_rows = [self.names[column] for column in columns], 0
        batches = self._batches(names)
        while True:
            with translate_errors(
                f"{self.path}, after row {n_rows}, is damaged, not UTF-8, or has a date that Python cannot represent"
            ):
                batch = next(batches, None)
                values = [] if batch is None else list(zip(*(_values_of(batch.column(name)) for name in names)))
            if not values:
                return
            yield from enumerate(values, n_rows + 1)
            n_rows += len(values)

    def _batches(self, names: list[str]) -> Iterator[Any]:
        """Yield record batches, small ones where rows are large, after refusing a column that is hardly packed data."""
        for group in range(self._metadata.num_row_groups):
            row_group, n_bytes = self._metadata.row_group(group), 1
            for chunk in map(row_group.column, range(row_group.num_columns)):
                name, packed, unpacked = (
                    chunk.path_in_schema,
                    chunk.total_compressed_size,
                    chunk.total_uncompressed_size,
                )
                if name.split(".")[0] in names:
                    n_bytes += unpacked
                    if unpacked > max(_MIN_BOMB_BYTES, _MAX_RATIO * packed):
                        raise CorpusError(
                            f"{self.path}: {packed:,} bytes of column {name!r:.80} unpack to {unpacked:,}; write the "
                            "file with smaller row groups"
                        )
            n_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * row_group.num_rows // n_bytes))
            with ParquetFile(self.path, metadata=self._metadata, page_checksum_verification=True) as file:
                yield from file.iter_batches(n_rows, row_groups=[group], columns=names)


def copy_groups(source: Path, target: Path, selected: Sequence[bool]) -> int:
    """Write the selected rows of a parquet file, and return how many rows there were."""
    with ParquetFile(source) as file:
        schema, n_rows, start = file.schema_arrow, file.metadata.num_rows, 0
        if n_rows == len(selected):
            with ParquetWriter(target, schema) as writer:
                for batch in file.iter_batches():
                    rows = pa.array(selected[start : start + len(batch)])
                    writer.write_table(pa.Table.from_batches([batch.filter(rows)]).cast(schema))
                    start += len(batch)
        return int(n_rows)


def _values_of(column: Any) -> list[Any]:
    """Return the values of a column as Python has them."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # without pandas, which would be needed otherwise
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_duration(kind) and kind.unit == "ns":
        column = column.cast(pa.duration("us"), safe=False)
    values: list[Any] = column.to_pylist()
    return [value and dict(value) for value in values] if pa.types.is_map(kind) else values
