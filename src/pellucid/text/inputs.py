"""The texts that a caller passes: any iterable of strings, checked; tables, paths and single strings are refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pellucid.errors import InputError, shown


def check_texts(texts: Iterable[str], *, first: int = 0) -> list[str]:
    """Return `texts` as a list of checked strings; `first` is the index of the first, for messages."""
    items = iterate_texts(texts)
    try:
        checked = texts.to_pylist() if hasattr(texts, "to_pylist") else list(items)  # of Arrow
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
        hint = "Give one of its values: [text['text'] for text in texts]"
    elif isinstance(item, (bytes, bytearray)):
        hint = "Decode it: text.decode()"
    else:
        hint = "Replace missing values by '' or leave them out; of rows, give one column"
    return f"{type(item).__name__} ({' '.join(shown(item).split())}); every text must be a str. {hint}"


def refuse_tables(texts: Any, name: str = "texts") -> None:
    """Check that texts are no data frame, mapping or array of several columns, whose iteration gives no texts."""
    kind = type(texts)
    named_columns = (
        "columns",
        "column_names",
        "read_next_batch",
        "collect_schema",
    )  # of frames
    if isinstance(texts, Mapping) or any(hasattr(kind, column) for column in named_columns):
        hint = f"such as {name}['text'], or of a mapping with texts as values list({name}.values())"
        raise InputError(f"{name} is a {kind.__name__}, which is a table; give texts, {hint}")
    if getattr(texts, "ndim", 1) > 1 and hasattr(texts, "shape"):
        raise InputError(f"{name} has the shape {texts.shape}; give one column, such as {name}[:, 0]")
