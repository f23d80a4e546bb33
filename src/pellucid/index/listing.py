"""Documents by conditions alone: listed in an order, a page at a time, and counted by the values of a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from pellucid.errors import InputError, check_integer, unknown_name
from pellucid.index.commits import Commit
from pellucid.index.documents import Document
from pellucid.index.metadata import kind_of, parse_where, timestamp
from pellucid.progress import check_cancelled

DOCUMENT_COLUMNS = ("id", "title", "text")
"""Of a table of documents, before those of the fields."""

_KIND_ORDER = "nbds"  # numbers, booleans, dates, other strings


def documents_where(commit: Commit, where: Any, first_number: int = 0) -> Iterator[tuple[int, int]]:
    """Yield segment and row of the documents, from a number on, that meet the conditions of `Index.search`.

    Numbers rise in the order of adding.
    """
    conditions = parse_where(where, commit.state.fields)
    for segment_index, segment in enumerate(commit.segments):
        rows = segment.live_rows()
        if conditions:
            rows = rows[segment.matching(conditions)[rows]]
        if first_number:
            rows = rows[segment.numbers[rows] >= first_number]
        yield from ((segment_index, row) for row in rows.tolist())


def list_documents(
    commit: Commit,
    where: Any,
    sort: str | None,
    descending: bool,
    offset: int,
    limit: int | None,
    first_number: int = 0,
) -> Iterator[Document]:
    """Yield documents as `Index.documents` says; only the values of the field that sorts them are held in memory."""
    check_integer("offset", offset, 0)
    if limit is not None:
        check_integer("limit", limit)
    document_rows = documents_where(commit, where, first_number)
    if sort is not None:
        check_field(commit, sort)
        keyed = ((_sort_key(commit.segments[s].document(row).metadata.get(sort)), s, row) for s, row in document_rows)
        with_value: list[Any] = []
        without: list[Any] = []
        for key, segment_index, row in keyed:
            check_cancelled()
            (without if key is None else with_value).append((key, segment_index, row))
        with_value.sort(key=lambda item: item[0], reverse=descending)  # equal values stay in the order of adding
        document_rows = ((segment_index, row) for _, segment_index, row in [*with_value, *without])
    for segment_index, row in islice(document_rows, offset, None if limit is None else offset + limit):
        check_cancelled()
        yield commit.segments[segment_index].document(row)


def count_documents(commit: Commit, where: Any, by: str | None) -> int | dict[Any, int]:
    """Return how many documents meet the conditions, or how many of them have each value of a field."""
    document_rows = documents_where(commit, where)
    if by is None:
        return sum(1 for _ in document_rows)
    check_field(commit, by)
    counts: Counter[Any] = Counter()
    for segment_index, row in document_rows:
        check_cancelled()
        value = commit.segments[segment_index].document(row).metadata.get(by)
        counts.update(set(value) if isinstance(value, list) else [value])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0] is None, str(item[0]))))


def document_number(after: int | str) -> int:
    """Return the number that a cursor holds."""
    if isinstance(after, bool) or not str(after).isascii() or not str(after).isdigit() or len(str(after)) > 18:
        raise InputError(f"after is {after!r:.40}; give the number of a document, or the next of the page before")
    return int(after)


def field_columns(names: Iterable[str]) -> list[str]:
    """Return the columns of fields; one that is called like a column of every document is metadata.NAME."""
    return [f"metadata.{name}" if name in DOCUMENT_COLUMNS else name for name in names]


def check_field(commit: Commit, name: str) -> None:
    """Check that documents have had a field."""
    if name not in commit.state.fields:
        raise InputError(unknown_name("field", name, sorted(commit.state.fields)))


def _sort_key(value: Any) -> tuple[int, Any] | None:
    """Return what a value is sorted by; of a list the first item, of a date its moment; None where there is none."""
    value = value[0] if isinstance(value, list) and value else value
    if value is None or value == []:
        return None
    kind = kind_of(value)
    key = timestamp(value) if kind == "d" else np.float64(value) if kind in "nb" else value
    return _KIND_ORDER.index(kind), key
