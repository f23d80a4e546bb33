"""Documents by conditions alone: listed in an order, a page at a time, and counted by the values of a field."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from numbers import Integral
from typing import Any

import numpy as np

from pellucid.errors import InputError, check_integer, shown, unknown_name
from pellucid.index.commits import Commit
from pellucid.index.documents import Document
from pellucid.index.metadata import column_keys, field_types, kind_of, parse_where, timestamp
from pellucid.index.segments import Segment
from pellucid.progress import check_cancelled

DOCUMENT_COLUMNS = ("id", "title", "text")
"""Of a table of documents, before those of the fields."""

DocumentRow = tuple[Segment, int]
"""Where a document is stored."""

_KIND_ORDER = "nbds"  # numbers, booleans, dates, other strings


def list_documents(
    commit: Commit,
    where: Any = None,
    *,
    sort: str | None = None,
    descending: bool = False,
    offset: int = 0,
    after: int | str | None = None,
    limit: int | None = None,
) -> Iterator[Document]:
    """Return the documents of a commit as `Index.documents` says; only what sorts them is held in memory."""
    check_integer("offset", offset, 0)
    check_integer("limit", limit, optional=True)
    if after is not None and sort is not None:
        raise InputError("after needs the order of adding; give offset with sort")
    matches = _matches(commit, where, 0 if after is None else document_number(after) + 1)
    document_rows: Iterator[DocumentRow] = ((segment, row) for segment, rows in matches for row in rows.tolist())
    if sort is not None:
        check_field(commit, sort)
        document_rows = _sorted_rows(document_rows, sort, descending)
    end = None if limit is None else min(offset + limit, sys.maxsize)
    return _read(islice(document_rows, min(offset, sys.maxsize), end))


def count_documents(commit: Commit, where: Any) -> int:
    """Return how many documents meet the conditions."""
    return sum(len(rows) for _, rows in _matches(commit, where))


def count_values(commit: Commit, where: Any, field: str) -> list[tuple[Any, int]]:
    """Return the values of a field with the number of documents that have each, the most frequent first."""
    check_field(commit, field)
    counts: Counter[tuple[str, Any]] = Counter()  # by kind too: 1 and True are two values
    for segment, rows in _matches(commit, where):
        check_cancelled()
        is_match = np.zeros(len(segment.numbers), np.bool_)
        is_match[rows] = True
        has_value = np.zeros_like(is_match)
        for key in column_keys(*commit.state.fields[field]):
            owners, values = segment.column(key)
            has_value[owners] = True
            matching = is_match[owners]
            counts.update((key[0], v) for _, v in set(zip(owners[matching].tolist(), values[matching].tolist())))
        counts["", None] += int((is_match & ~has_value).sum())
    pairs = ((_plain(kind, value), n) for (kind, value), n in counts.items() if n)
    return sorted(pairs, key=lambda item: (-item[1], item[0] is None, str(item[0])))


def _plain(kind: str, value: Any) -> Any:
    """Return a value of a column as it was added; a whole number as an integer."""
    if kind == "b":
        return value == "true"
    return int(value) if kind == "n" and value.is_integer() else value


def _matches(commit: Commit, where: Any, first_number: int = 0) -> Iterator[tuple[Segment, Any]]:
    """Return each segment with the rows of its documents that meet the conditions of `Index.search`, read one by one.

    The conditions are checked at once. Only documents from a number on are returned; it rises in the order of adding.
    """
    conditions = parse_where(where, commit.state.fields)

    def matching_rows(segment: Segment) -> Any:
        rows = segment.live_rows()
        rows = rows[segment.numbers[rows] >= first_number] if first_number else rows
        return rows[segment.matching(conditions)[rows]] if conditions else rows

    return ((segment, matching_rows(segment)) for segment in commit.segments)


def _sorted_rows(document_rows: Iterable[DocumentRow], field: str, descending: bool) -> Iterator[DocumentRow]:
    """Yield rows by the values of a field, equal ones in the order of adding; those without a value come last."""
    with_value: list[tuple[Any, DocumentRow]] = []
    without: list[DocumentRow] = []
    for segment, row in document_rows:
        check_cancelled()
        key = _sort_key(segment.document(row).metadata.get(field))
        if key is None:
            without.append((segment, row))
        else:
            with_value.append((key, (segment, row)))
    with_value.sort(key=lambda item: item[0], reverse=descending)
    yield from (document_row for _, document_row in with_value)
    yield from without


def _read(document_rows: Iterable[DocumentRow]) -> Iterator[Document]:
    for segment, row in document_rows:
        check_cancelled()
        yield segment.document(row)


MAX_NUMBER_DIGITS = 18  # of a document's number, which is an int64


def document_number(after: int | str) -> int:
    """Return the number that a cursor holds."""
    number: Any = after
    is_digits = isinstance(after, str) and after.isascii() and after.isdigit() and len(after) <= MAX_NUMBER_DIGITS
    is_integer = isinstance(number, Integral) and not isinstance(number, bool)
    if not (is_digits or (is_integer and 0 <= number < 10**MAX_NUMBER_DIGITS)):
        raise InputError(f"after is {shown(after)}; give the number of a document, or the next of the page before")
    return int(after)


def field_columns(commit: Commit, reserved: Collection[str] = DOCUMENT_COLUMNS) -> dict[str, str]:
    """Return the columns of fields and what they hold; one called like a reserved column is metadata.NAME."""
    columns: dict[str, str] = {}
    types = field_types(commit.state.fields)
    for name, (number, kinds) in commit.state.fields.items():
        column = name
        while column in reserved or column in columns or (column != name and column in types):
            column = f"metadata.{column}"
        owners = (segment.column(key)[0] for segment in commit.segments for key in column_keys(number, kinds))
        has_lists = any((rows[1:] == rows[:-1]).any() for rows in owners)
        columns[column] = "list" if has_lists else types.get(name, "string")
    return columns


def check_field(commit: Commit, name: str) -> None:
    """Check that documents have had a field."""
    if not isinstance(name, str) or name not in commit.state.fields:
        raise InputError(unknown_name("field", name, sorted(commit.state.fields)))


def _sort_key(value: Any) -> tuple[int, Any] | None:
    """Return what a value is sorted by; of a list the first item, of a date its moment; None where there is none."""
    value = value[0] if isinstance(value, list) and value else value
    if value is None or value == []:
        return None
    kind = kind_of(value)
    key = timestamp(value) if kind == "d" else np.float64(value) if kind in "nb" else value
    return _KIND_ORDER.index(kind), key
