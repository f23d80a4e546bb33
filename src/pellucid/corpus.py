"""Reading a corpus of any size, one text at a time.

Plain text (`.txt`, one text a line), JSON lines (`.jsonl`, a string or an object with a text field a line), either
of them compressed (`.xz`, `.gz`), `.parquet` (a text column), or any iterable of strings.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Union

from pellucid.errors import CorpusError, missing_extra

Corpus = Union[str, "os.PathLike[str]", Iterable[str]]
"""A path, or an iterable of texts (a list, a generator, ...)."""

UNPACKERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
"""What opens a packed file, by the end of its name."""

DAMAGED = (UnicodeDecodeError, lzma.LZMAError, EOFError, gzip.BadGzipFile)
"""What reading a broken or wrongly encoded file raises."""

_FORMATS = ".txt, .jsonl (each also with .xz or .gz) and .parquet"


def is_path(corpus: Corpus) -> bool:
    """Whether `corpus` names a file rather than holding the texts itself."""
    return isinstance(corpus, (str, os.PathLike))


def read_texts(corpus: Corpus, *, field: str = "text") -> Iterator[str]:
    """Yield the texts of `corpus` in order, in bounded memory; `field` names the JSON key or parquet column.

    Raises:
        CorpusError: the file is absent, of an unknown format, broken at a named line, or lacks `field`.
    """
    if not is_path(corpus):
        yield from _check_strings(corpus)  # type: ignore[arg-type]
        return
    path = Path(corpus)  # type: ignore[arg-type]
    if not path.is_file():
        raise CorpusError(f"corpus file not found: {path}")
    suffixes = [s.lower() for s in path.suffixes]
    packed = suffixes[-1] if suffixes and suffixes[-1] in UNPACKERS else ""
    kind = suffixes[-2 if packed else -1] if len(suffixes) > bool(packed) else ""
    if kind == ".parquet" and not packed:
        yield from _read_parquet(path, field)
        return
    if kind not in (".txt", ".jsonl"):
        raise CorpusError(f"cannot tell the format of corpus file {path}; pellucid reads {_FORMATS}")
    try:
        with UNPACKERS.get(packed, open)(path, "rt", encoding="utf-8") as lines:
            yield from _read_jsonl(lines, path, field) if kind == ".jsonl" else (line.rstrip("\r\n") for line in lines)
    except DAMAGED as error:
        raise CorpusError(f"corpus file {path} is damaged or not UTF-8: {error}") from error


def _check_strings(texts: Iterable[str]) -> Iterator[str]:
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise CorpusError(f"corpus item {position} is {type(text).__name__} {text!r}; every item must be a str")
        yield text


def _read_jsonl(lines: IO[str], path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path}, line {number}: not JSON ({error.msg})") from error
        text = row.get(field) if isinstance(row, dict) else row
        if not isinstance(text, str):
            raise CorpusError(f"{path}, line {number}: no text under {field!r}; name the field that holds it")
        yield text


def _read_parquet(path: Path, field: str) -> Iterator[str]:
    try:
        from pyarrow import lib
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing_extra("pyarrow", "parquet") from error
    try:
        table = ParquetFile(path)
    except lib.ArrowInvalid as error:
        raise CorpusError(f"corpus file {path} is not a parquet file: {error}") from error
    if field not in table.schema_arrow.names:
        raise CorpusError(f"{path} has no column {field!r}; it has {table.schema_arrow.names}")
    for batch in table.iter_batches(columns=[field]):
        yield from (text for text in batch.column(0).to_pylist() if text is not None)
