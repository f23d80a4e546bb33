"""The texts that a caller passes: any iterable of strings, checked; tables, paths and single strings are refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, shown

_MAX_COLUMNS, _N_NAMED_COLUMNS = 100, 2  # of a table given for texts: looked at, and named with how to give one


def check_texts(texts: Iterable[str], *, first: int = 0) -> list[str]:
    """Return `texts` as a list of checked strings; `first` is the index of the first, for messages."""
    items = iterate_texts(texts)
    try:
        checked = texts.to_pylist() if is_arrow(texts) else list(items)
    except UnicodeDecodeError as error:  # of Arrow
        raise InputError(f"a text is not UTF-8: {error.reason}; decode it in its encoding") from error
    if set(map(type, checked)) - {str}:  # one pass in C; the loop below only runs to find the culprit
        for index, text in enumerate(checked, first):
            if not isinstance(text, str):
                raise InputError(f"text {index} is {describe_item(text)}")
    return checked


def iterate_texts(texts: Any, name: str = "texts") -> Iterator[Any]:
    """Return an iterator over the items of `texts`, after refusing one string, a path, a mapping and a table.

    Args:
        texts: what was given where texts, or as many titles or ids, are expected.
        name: what messages call it.

    Raises:
        InputError: its items are no texts; the message says what to give.
    """
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{name} is one string, {shown(texts)}; give an iterable of strings: [{shown(texts)}]")
    if isinstance(texts, os.PathLike):
        raise InputError(
            f"{name} is the path {os.fspath(texts)!r:.80}, not what is in that file; give "
            f"pellucid.CorpusFile({os.fspath(texts)!r:.80})"
        )
    refuse_tables(texts, name)
    try:
        return iter(texts)
    except TypeError as error:
        raise InputError(
            f"{name} must be an iterable of strings, got {shown(texts)} ({type(texts).__name__})"
        ) from error


def describe_item(item: Any) -> str:
    """Return what messages say of an item of texts that is no string, and what to do about it."""
    if isinstance(item, Mapping):
        keys = [key for key in islice(item, _MAX_COLUMNS) if isinstance(item[key], str)] or list(item)
        hint = f"Give one of its values: [text[{keys[0] if keys else 'key'!r:.40}] for text in texts]"
    elif isinstance(item, (bytes, bytearray)):
        hint = "Decode it: text.decode()"
    else:
        hint = "Replace missing values by '' or leave them out; of rows, give one column"
    return f"{type(item).__name__} ({' '.join(shown(item).split())}); every text must be a str. {hint}"


def is_arrow(texts: Any) -> TypeGuard[Any]:
    """Whether texts are an array of Arrow, or one in chunks."""
    return type(texts).__module__ == "pyarrow.lib" and hasattr(texts, "to_pylist") and hasattr(texts, "type")


def refuse_tables(texts: Any, name: str = "texts") -> None:
    """Check that texts are no data frame, mapping or array of several columns, whose iteration gives no texts."""
    kind = type(texts)
    if isinstance(texts, Mapping):
        columns, what = list(texts), "whose keys are not texts"
    elif hasattr(kind, "columns") or hasattr(kind, "column_names"):  # of pandas, Polars, Arrow or datasets
        columns = list(texts.column_names if hasattr(kind, "column_names") else texts.columns)
        what = f"with {len(columns)} columns"
    elif hasattr(texts, "read_next_batch") or hasattr(texts, "collect_schema"):  # of Arrow or Polars
        raise InputError(f"{name} is a {kind.__name__}, which is a table; give one of its columns")
    elif getattr(texts, "ndim", 1) > 1 and hasattr(texts, "shape"):
        raise InputError(f"{name} has the shape {texts.shape}; give one column, such as {name}[:, 0]")
    else:
        return
    text_columns = [column for column in columns[:_MAX_COLUMNS] if _holds_text(texts, column)]
    hint = " or ".join(f"{name}[{column!r:.60}]" for column in text_columns[:_N_NAMED_COLUMNS]) or "one of its columns"
    if len(text_columns) > _N_NAMED_COLUMNS:
        hint += f" ({', '.join(f'{column!r:.60}' for column in text_columns)} hold text)"
    values = f", or list({name}.values())" if isinstance(texts, Mapping) and len(text_columns) > 1 else ""
    raise InputError(f"{name} is a {kind.__name__} {what}; give texts, such as {hint}{values}")


def _holds_text(table: Any, name: Any) -> bool:
    """Whether the first value of a column, or a mapping's value itself, is a string."""
    try:
        column = table[name]
        first: Any = column if isinstance(column, str) else next(iter(column), None)
        return isinstance(first.as_py() if hasattr(first, "as_py") else first, str)  # Arrow's scalars
    except (AttributeError, KeyError, TypeError, ValueError):  # it is only looked at for a hint
        return False


# --- Texts in memory as Arrow keeps them, of which no string is made ---


class Utf8Texts:
    """Texts as Arrow keeps them: text i is `data[offsets[i]:offsets[i + 1]]`, valid UTF-8."""

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        """Take the bytes of all texts and the int64 offsets, one more than there are texts, without copying."""
        self.data, self.offsets = (
            np.require(data, requirements=["C", "A"]),
            np.require(offsets, requirements=["C", "A"]),
        )
        for array, kind in ((self.data, np.dtype(np.uint8)), (self.offsets, np.dtype(np.int64))):
            if array.dtype != kind or array.ndim != 1:
                raise InputError(f"texts in memory are uint8 with int64 offsets, got {array.dtype} {list(array.shape)}")
        rising = len(self.offsets) > 0 and not (self.offsets[1:] < self.offsets[:-1]).any()
        if not rising or self.offsets[0] < 0 or self.offsets[-1] > len(self.data):
            raise InputError(f"the offsets of texts must rise, from 0 to at most the {len(self.data):,} bytes")

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.offsets) - 1

    def __getitem__(self, selection: slice) -> Utf8Texts:
        """Return some of them, without copying."""
        first, last, _ = selection.indices(len(self))
        return Utf8Texts(self.data, self.offsets[first : last + 1])

    def decoded(self) -> list[str]:
        """Return the texts as strings.

        Raises:
            InputError: a text is not UTF-8.
        """
        start, end = int(self.offsets[0]), int(self.offsets[-1])
        content, edges = self.data[start:end].tobytes(), (self.offsets - start).tolist()
        with named_encoding():
            return [content[first:last].decode() for first, last in pairwise(edges)]


def arrow_texts(texts: Any) -> Utf8Texts:
    """Return the texts of an Arrow array, or of one in chunks, without copying those of one array.

    Raises:
        InputError: it holds something else than texts, or a null.
    """
    import pyarrow as pa

    kind = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
    if str(kind) not in ("string", "large_string", "string_view", "null"):
        raise InputError(f"texts are an Arrow array of {texts.type!s:.80}; give one of strings")
    texts = texts.cast(pa.large_string())  # also of a dictionary, whose values may be null
    if texts.null_count:
        first = texts.is_null().index(True).as_py()
        check_texts(texts[first : first + 1], first=first)
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return Utf8Texts(np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64))
    text_offsets = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return Utf8Texts(np.frombuffer(data, np.uint8), text_offsets)


@contextmanager
def named_encoding() -> Iterator[None]:
    """Say which encoding texts are expected in where they are in another."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(f"a text is not UTF-8: {error.reason}; decode it in its encoding") from error
