"""Documents by conditions alone: listed in an order, a page at a time, and counted by the values of a field."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from numbers import Integral
from typing import Any

import numpy as np

from pellucid.errors import InputError, check_integer, shown, unknown_name
from pellucid.index.commits import Commit
from pellucid.index.documents import Document
from pellucid.index.metadata import Where, column_kind, columns_in, kind_of, parse_where, timestamp
from pellucid.index.segments import Segment
from pellucid.progress import check_cancelled
from pellucid.text.unicode import canonicalize

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
    conditions = parse_where(where, commit.state.fields)
    matches = _matches(commit, conditions, 0 if after is None else document_number(after) + 1)
    if sort is None:
        document_rows: Iterable[DocumentRow] = ((segment, row) for segment, rows in matches for row in rows.tolist())
    else:
        name = check_field(commit, sort)
        document_rows = _sorted_rows(list(matches), name, *commit.state.fields[name], descending)
    end = None if limit is None else min(offset + limit, sys.maxsize)
    return (segment.document(row) for segment, row in islice(document_rows, min(offset, sys.maxsize), end))


def count_documents(commit: Commit, where: Any) -> int:
    """Return how many documents meet the conditions."""
    return sum(len(rows) for _, rows in _matches(commit, parse_where(where, commit.state.fields)))


def count_values(commit: Commit, where: Any, field: str) -> list[tuple[Any, int]]:
    """Return the values of a field with the number of documents that have each, the most frequent first."""
    columns = columns_in(*commit.state.fields[check_field(commit, field)])
    counts: Counter[tuple[str, Any]] = Counter()  # by kind too: 1 and True are two values
    for segment, rows in _matches(commit, parse_where(where, commit.state.fields)):
        is_match = np.zeros(len(segment.numbers), np.bool_)
        is_match[rows] = True
        has_value = np.zeros_like(is_match)
        for column in columns:
            owners, values = segment.column(column)
            has_value[owners] = True
            matching, kind = is_match[owners], column_kind(column)
            counts.update((kind, v) for _, v in set(zip(owners[matching].tolist(), values[matching].tolist())))
        counts["", None] += int((is_match & ~has_value).sum())
    pairs = ((_plain(kind, value), n) for (kind, value), n in counts.items() if n)
    return sorted(pairs, key=lambda item: (-item[1], item[0] is None, str(item[0])))


def _plain(kind: str, value: Any) -> Any:
    """Return a value of a column as it was added; a whole number as an integer."""
    if kind == "b":
        return value == "true"
    return int(value) if kind == "n" and value.is_integer() else value


def _matches(commit: Commit, conditions: Where, first_number: int = 0) -> Iterator[tuple[Segment, Any]]:
    """Yield each segment with the rows of its documents, from a number on, that meet conditions."""
    for segment in commit.segments:
        check_cancelled()
        rows = segment.live_rows()
        rows = rows[segment.numbers[rows] >= first_number] if first_number else rows
        yield segment, rows[segment.matching(conditions)[rows]] if conditions else rows


def _sorted_rows(
    matches: Sequence[tuple[Segment, Any]], field: str, number: int, kinds: str, descending: bool
) -> Iterator[DocumentRow]:
    """Yield rows by the values of a field, equal ones in the order of adding; those without a value come last."""
    ranks, values = list[Any](), list[Any]()
    for segment, rows in matches:
        segment_ranks, segment_values = _sort_values(segment, field, number, kinds)
        ranks.append(segment_ranks[rows])
        values += segment_values[rows].tolist()
    all_ranks = np.concatenate([np.zeros(0, np.int8), *ranks])
    sizes = np.cumsum([0, *(len(rows) for _, rows in matches)])
    order = np.flatnonzero(all_ranks < len(_KIND_ORDER)).tolist()
    order.sort(key=lambda position: (all_ranks[position], values[position]), reverse=descending)
    for position in chain(order, np.flatnonzero(all_ranks == len(_KIND_ORDER)).tolist()):
        index = int(sizes.searchsorted(position, "right")) - 1
        yield matches[index][0], int(matches[index][1][position - sizes[index]])


def _sort_values(segment: Segment, field: str, number: int, kinds: str) -> tuple[Any, Any]:
    """Return by document the kind of a field's first value as its rank in _KIND_ORDER, and what it is sorted by."""
    ranks = np.full(len(segment.numbers), len(_KIND_ORDER), np.int8)
    values, n_kinds = np.zeros(len(ranks), object), np.zeros(len(ranks), np.int8)
    for column in columns_in(number, kinds):
        rows, column_values = segment.column(column)
        rows, first = np.unique(rows, return_index=True)  # of a list the first value counts
        keys, kind = column_values[first], column_kind(column)
        values[rows] = keys == "true" if kind == "b" else keys
        ranks[rows] = _KIND_ORDER.index(kind)
        n_kinds[rows] += 1
        if kind == "s":
            times = segment.times(column)[1][first]
            is_date = ~np.isnan(times)
            values[rows[is_date]] = times[is_date]
            ranks[rows[is_date]] = _KIND_ORDER.index("d")
    for row in np.flatnonzero(n_kinds > 1).tolist():  # a list of several kinds, whose order the document alone has
        value = segment.document(row).metadata[field][0]
        kind = kind_of(value)
        ranks[row] = _KIND_ORDER.index(kind)
        values[row] = timestamp(value) if kind == "d" else value
    return ranks, values


MAX_NUMBER_DIGITS = 18  # of a document's number, which is an int64


def document_number(after: int | str) -> int:
    """Return the number that a cursor holds."""
    number: Any = after
    is_digits = isinstance(after, str) and after.isascii() and after.isdigit() and len(after) <= MAX_NUMBER_DIGITS
    is_integer = isinstance(number, Integral) and not isinstance(number, bool)
    if not (is_digits or (is_integer and 0 <= number < 10**MAX_NUMBER_DIGITS)):
        raise InputError(f"after is {shown(after)}; give the number of a document, or the next of the page before")
    return int(after)


def field_columns(commit: Commit, reserved: Collection[str] = DOCUMENT_COLUMNS) -> list[str]:
    """Return the columns of fields; one called like a reserved column is metadata.NAME."""
    columns: list[str] = []
    for name in commit.state.fields:
        column = name
        while column in reserved or column in columns or (column != name and column in commit.state.fields):
            column = f"metadata.{column}"
        columns.append(column)
    return columns


def check_field(commit: Commit, name: str) -> str:
    """Return the name of a field as documents have it, after checking that they have had it."""
    field = canonicalize(name) if isinstance(name, str) else name
    if not isinstance(field, str) or field not in commit.state.fields:
        raise InputError(unknown_name("field", name, sorted(commit.state.fields)))
    return field
