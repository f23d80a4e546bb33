"""Reading parallel text, sentences with their translations, one pair at a time and in bounded memory.

One `.tsv` file with two columns, or two text files that are aligned line by line; each also packed (`.xz`, `.gz`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Union

from pellucid.corpus import UNPACKERS, read_lines
from pellucid.errors import CorpusError, InputError

ParallelFiles = Union[str, "os.PathLike[str]", tuple["str | os.PathLike[str]", "str | os.PathLike[str]"]]
"""The path of a `.tsv` file, or a tuple of the paths of two line-aligned files."""

Languages = tuple[str, str]
"""The codes of two languages, such as ("en", "de")."""

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


def named(files: ParallelFiles) -> str:
    """Return what messages call `files`."""
    return " and ".join(map(str, files)) if isinstance(files, tuple) else str(files)


def _read_columns(path: Path, languages: Languages) -> Iterator[tuple[str, str]]:
    if _kind(path) != ".tsv":
        raise CorpusError(
            f"{path} is not a .tsv file (also .xz, .gz); parallel text is one file of two columns with a tab between "
            "them, or two files aligned line by line"
        )
    first = 0  # column of the first language
    for number, line in enumerate(read_lines(path, "parallel file"), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2:
            found = "no tab" if len(cells) == 1 else f"{len(cells)} columns"
            raise CorpusError(f"{path}, line {number}: {found}; a row is a sentence, a tab and its translation")
        column = _column_of(cells, languages, path) if number == 1 else None
        if column is not None:
            first = column
            continue
        if not all(cells):
            raise CorpusError(f"{path}, line {number}: a sentence has no translation ({''.join(cells)!r:.60})")
        yield cells[first], cells[1 - first]


def _named_by(cell: str, language: str) -> bool:
    """Whether a header's `cell` is the code of a language, with or without its region."""
    return cell.lower() in (language.lower(), language.lower().partition("-")[0])


def _column_of(cells: list[str], languages: Languages, path: Path) -> int | None:
    """Return the column of the first language if `cells` are a header, else None; refuse one of other languages."""
    for column in (0, 1):
        if _named_by(cells[column], languages[0]) and _named_by(cells[1 - column], languages[1]):
            return column
    if all(map(_CODE.fullmatch, cells)) and any(_named_by(cell, code) for cell in cells for code in languages):
        raise CorpusError(f"{path} holds {cells[0]} and {cells[1]} by its header, not {' and '.join(languages)}")
    return None


def _read_aligned(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    for path in (first, second):
        if _kind(path) in _NOT_LINES:
            raise CorpusError(f"{path} is not plain text; two aligned files hold one sentence a line")
    for number, (one, other) in enumerate(
        zip_longest(*(read_lines(path, "parallel file") for path in (first, second))), 1
    ):
        if one is None or other is None:
            raise _misaligned(first, second)
        one, other = one.strip(), other.strip()
        if one and other:
            yield one, other
        elif one or other:
            empty, full = (second, one) if one else (first, other)
            raise CorpusError(
                f"{empty}, line {number} is empty, but its counterpart is {full!r:.60}; remove the line from both files"
            )


def _misaligned(first: Path, second: Path) -> CorpusError:
    counts = [sum(1 for _ in read_lines(path)) for path in (first, second)]
    return CorpusError(
        f"{first} has {counts[0]:,} lines and {second} has {counts[1]:,}; aligned files have the same number, line n "
        "of one being the translation of line n of the other"
    )


def _kind(path: Path) -> str:
    """Return the last suffix of `path` that does not name a packer."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in UNPACKERS), "")
