"""Translated sentences from `.tsv` files of two columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Union

from pellucid.errors import CorpusError, InputError
from pellucid.text.lines import UNPACKERS, read_lines

Languages = tuple[str, str]
"""The codes of two languages, such as ("en", "de")."""

Parallel = Mapping[Languages, Union[str, "os.PathLike[str]"]]
"""The paths of `.tsv` files by the codes of their two languages: {("en", "de"): "pairs.tsv"}."""

_CODE = re.compile(r"[a-z]{2,3}")


def read_parallel(file: str | os.PathLike[str], languages: Languages) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a `.tsv` file in the order of `languages`, each with its translation.

    A first row that holds the two codes is a header; it may name the columns the other way round. A line that is empty
    in both languages is passed over.

    Raises:
        CorpusError: the file is absent, damaged or of an unknown format, a row has not two columns, or a sentence has
            no translation. The message names the file and the line.
        InputError: `file` is no path.
    """
    if not isinstance(file, (str, os.PathLike)):
        raise InputError(f"parallel text is the path of a .tsv file, got {file!r:.80}")
    path = Path(file)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if next((suffix for suffix in reversed(suffixes) if suffix not in UNPACKERS), "") != ".tsv":
        raise CorpusError(
            f"{path} is not a .tsv file (also .xz, .gz) of two columns with a tab between them; `paste a.txt b.txt > "
            "pairs.tsv` makes one of two files that are aligned line by line"
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
