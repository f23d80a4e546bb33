"""Copies of some rows of a file, in the same format, encoding and quoting as there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pellucid.errors import CorpusError, InputError
from pellucid.text.corpus import CorpusFile
from pellucid.text.json_rows import json_items
from pellucid.text.lines import create_file, exact_lines

Flags = npt.NDArray[np.bool_]

_COPIED_ROWS = 8_192  # of a parquet file at once
_SAME = {".ndjson": ".jsonl", ".tab": ".tsv"}


def check_copy(file: CorpusFile, target: Path) -> None:
    """Check that a copy of some rows of a file can be written under the name of `target`.

    Raises:
        InputError: it has another format, or one that is not written.
    """
    kind = file.kind
    if kind == ".xlsx":
        raise InputError(f"{file} is a workbook, and copies of workbooks cannot be written; save it as .csv first")
    ending = CorpusFile(target, delimiter=file.delimiter)
    try:
        same = _SAME.get(ending.kind, ending.kind) == _SAME.get(kind, kind)
    except CorpusError:
        same = False
    if not same:
        raise InputError(f"{file} is {kind}; end the name of {target} in that, too")


def copy_rows(file: CorpusFile, target: Path, selected: Flags, named: Path) -> None:
    """Write the selected rows of a file to `target`, packed and archived as the name `named` says.

    Args:
        file: whose rows are in the order of `selected`.
        target: the new file.
        selected: for each row of the file whether it is copied.
        named: the path that the new file will have.

    Raises:
        CorpusError: the file cannot be read, or has not as many rows.
    """
    if file.kind == ".parquet":
        count = _copy_parquet(file.source, target, selected)
    else:
        flags = selected.tobytes()  # quicker to look at one by one
        copied = _copied_json(file, flags) if file.kind == ".json" else _copied_lines(file, flags)
        with create_file(target, named, Path(named.stem).name) as output:
            count = 0
            for row, content in copied:
                output.write(content)
                count = row
    if count != len(selected):
        raise CorpusError(f"{file} has {count:,} texts, and {len(selected):,} were expected; do not change it")


def _copied_lines(file: CorpusFile, selected: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of the header and of the selected rows, each with the number of rows up to it."""
    lines = enumerate(exact_lines(file.source, file.encoding), 1)
    if not file.is_table:
        yield from ((n, line if n <= len(selected) and selected[n - 1] else b"") for n, line in lines)
        return
    rows = 0
    number, line = next(lines)
    for rows, row in enumerate(file.table(is_quiet=True), 1):
        is_copied = rows <= len(selected) and selected[rows - 1]
        while number <= row.last:
            yield rows, line if is_copied or (rows == 1 and number < row.first) else b""
            number, line = next(lines, (row.last + 1, b""))


def _copied_json(file: CorpusFile, selected: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield an array of the selected items."""
    mark, rows = "[\n", 0
    for rows, value in json_items(file.source, encoding=file.encoding, is_row=file.is_row):
        if rows <= len(selected) and selected[rows - 1]:
            yield rows, (mark + json.dumps(value, ensure_ascii=False)).encode()
            mark = ",\n"
    yield rows, b"\n]\n" if mark == ",\n" else b"[]\n"


def _copy_parquet(source: Path, target: Path, selected: Flags) -> int:
    """Write the selected rows of a parquet file, and return how many rows there were."""
    from pellucid.text.parquet import Table  # of an extra

    import pyarrow as pa  # isort: skip
    from pyarrow.parquet import ParquetWriter  # isort: skip

    with Table(source) as table:
        if table.rows == len(selected):
            names = list(table.schema.names)
            table.check_once(names)
            with ParquetWriter(target, table.schema) as writer:
                start = 0
                batches = (table.batches(names, group, _COPIED_ROWS) for group in range(len(table.starts) - 1))
                for batch in chain.from_iterable(batches):
                    writer.write_batch(batch.filter(pa.array(selected[start : start + batch.num_rows])))
                    start += batch.num_rows
        return table.rows
