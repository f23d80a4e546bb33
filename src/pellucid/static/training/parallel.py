"""Translated sentences from files: one `.tsv` file of two columns, or two text files aligned line by line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Union

from pellucid.errors import CorpusError, InputError
from pellucid.text.lines import UNPACKERS, read_lines

ParallelFiles = Union[str, "os.PathLike[str]", tuple["str | os.PathLike[str]", "str | os.PathLike[str]"]]
"""The path of a `.tsv` file, or a tuple of the paths of two line-aligned files."""

Languages = tuple[str, str]
"""The codes of two languages, such as ("en", "de")."""

Parallel = Mapping[Languages, ParallelFiles]
"""Parallel files by the codes of their two languages: {("en", "de"): "pairs.tsv"}."""

_NOT_LINES = (".jsonl", ".json", ".parquet", ".tsv", ".csv")
_CODE = re.compile(r"[a-z]{2,3}")


def read_parallel(files: ParallelFiles, languages: Languages) -> Iterator[tuple[str, str]]:
    """Yield the sentences of `files` in the order of `languages`, each with its translation.

    A first row of a `.tsv` file that holds the two codes is a header; it may name the columns the other way round. A
    line that is empty in both languages is passed over.

    Raises:
        CorpusError: a file is absent, damaged or of an unknown format, the two differ in their number of lines, a row
            has not two columns, or a sentence has no translation. The message names the file and the line.
        InputError: `files` is neither a path nor a tuple of two.
    """
    if isinstance(files, (str, os.PathLike)):
        yield from _read_columns(Path(files), languages)
    elif isinstance(files, tuple) and len(files) == 2 and all(isinstance(f, (str, os.PathLike)) for f in files):
        yield from _read_aligned(Path(files[0]), Path(files[1]))
    else:
        raise InputError(f"parallel text is the path of a .tsv file or a tuple of two paths, got {files!r:.80}")


def file_names(files: ParallelFiles) -> str:
    """Return what messages call `files`."""
    return " and ".join(map(str, files)) if isinstance(files, tuple) else str(files)


def _read_columns(path: Path, languages: Languages) -> Iterator[tuple[str, str]]:
    if _kind(path) != ".tsv":
        raise CorpusError(
            f"{path} is not a .tsv file (also .xz, .gz); parallel text is one file of two columns with a tab between "
            "them, or two files aligned line by line"
        )
    first = 0  # column of the first language
    for line_number, line in enumerate(read_lines(path, "parallel file"), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2:
            problem = "no tab" if len(cells) == 1 else f"{len(cells)} columns"
            raise CorpusError(f"{path}, line {line_number}: {problem}; a row is a sentence, a tab and its translation")
        column = _column_of(cells, languages, path) if line_number == 1 else None
        if column is not None:
            first = column
            continue
        if not all(cells):
            raise CorpusError(f"{path}, line {line_number}: a sentence has no translation ({''.join(cells)!r:.60})")
        yield cells[first], cells[1 - first]


def _column_of(cells: list[str], languages: Languages, path: Path) -> int | None:
    """Return the column of the first language if `cells` are a header, else None; refuse one of other languages."""
    named = [[cell.lower() in (code.lower(), code.lower().partition("-")[0]) for code in languages] for cell in cells]
    for column in (0, 1):
        if named[column][0] and named[1 - column][1]:
            return column
    if all(map(_CODE.fullmatch, cells)) and any(map(any, named)):
        raise CorpusError(f"{path} holds {cells[0]} and {cells[1]} by its header, not {' and '.join(languages)}")
    return None


def _read_aligned(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    for path in (first, second):
        if _kind(path) in _NOT_LINES:
            raise CorpusError(f"{path} is not plain text; two aligned files hold one sentence a line")
    both = zip_longest(*(read_lines(path, "parallel file") for path in (first, second)))
    for line_number, (line1, line2) in enumerate(both, 1):
        if line1 is None or line2 is None:
            counts = [sum(1 for _ in read_lines(path)) for path in (first, second)]
            raise CorpusError(
                f"{first} has {counts[0]:,} lines and {second} has {counts[1]:,}; aligned files have the same number, "
                "line n of one being the translation of line n of the other"
            )
        line1, line2 = line1.strip(), line2.strip()
        if line1 and line2:
            yield line1, line2
        elif line1 or line2:
            empty, full = (second, line1) if line1 else (first, line2)
            raise CorpusError(
                f"{empty}, line {line_number} is empty, but its counterpart is {full!r:.60}; remove the line from both "
                "files"
            )


def _kind(path: Path) -> str:
    """Return the last suffix of `path` that does not name a packer."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in UNPACKERS), "")
