"""Values of metadata from any library as plain ones: strings, numbers, booleans, and lists of such.

What pandas, numpy, Arrow and databases call missing is left out: None, NaN, NaT, NA, and the empty string. A nested
object becomes fields with dotted names. A value that is none of these is kept as text where it has a plain one: dates,
times and identifiers, integers beyond 2 ** 53 and infinity. What has none, such as an image, is left out and told.
Names and strings are kept in the canonical form (NFC): spellings that Unicode calls equivalent are one value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sized
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from os import PathLike
from typing import Any
from uuid import UUID

import numpy as np

from pellucid.errors import MAX_WRITTEN_BITS, InputError, shown
from pellucid.text.unicode import canonicalize

MAX_INTEGER = 2**53
"""Up to it every integer is a float, as which numbers are compared; larger ones are kept as text."""

_MAX_VALUES = 1000  # of a field of a document; a vector or a picture has more
_MAX_DEPTH = 20  # of objects in objects

_PLAIN_TYPES = frozenset([str, int, float, bool, type(None)])

Plain = str | int | float | bool
"""A value as it is stored."""


class LeftOut(Exception):
    """A value cannot be kept; the message says why."""


def plain_metadata(metadata: Any, what: str, left_out: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a document's metadata as plain values by dotted name, without those that are missing.

    Args:
        metadata: a mapping, or None.
        what: the document, for messages.
        left_out: gets the fields that cannot be kept, and why.

    Raises:
        InputError: it is no mapping, or a value is of a class of which nothing is known.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"the metadata of {what} is {type(metadata).__name__} {shown(metadata)}; it must be a dict")
    plain: dict[str, Any] = {}
    for key, value in metadata.items():
        name = field_name(key)
        try:
            if name and name not in plain and type(value) in _PLAIN_TYPES:  # nearly all: quick
                if (simple := plain_value(value, "")) is not None:
                    plain[name] = simple
                continue
            if not name:
                raise LeftOut("has no name")
            fields = dict(_fields(name, value, f"the field {name!r:.40} of {what}"))
            if plain.keys() & fields.keys():
                raise LeftOut("is there twice, such as by a name with a dot and in an object")
        except LeftOut as reason:
            if left_out is not None:
                left_out.setdefault(name, str(reason))
        else:
            plain.update(fields)
    return plain


def field_name(key: Any) -> str:
    """Return the name of a field: a string, an integer as its digits; "" for what can be none."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return str(int(key))
    return _canonical_name(key) if isinstance(key, str) else ""


_canonical_name = lru_cache(4096)(canonicalize)


def _fields(name: str, value: Any, what: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the fields that a value makes: one, none where it is missing, or those of a nested object."""
    if depth > _MAX_DEPTH:
        raise LeftOut(f"is nested more than {_MAX_DEPTH} deep")
    value = plain_value(value, what)
    if isinstance(value, list):
        nested = [item for item in value if isinstance(item, Mapping)]
        _check_length(value)
        if not nested:
            if value:
                yield name, value
            return
        if len(nested) < len(value):
            raise LeftOut("has objects and other values in one list")
        lists: dict[str, list[Any]] = {}
        for item in nested:
            for inner, items in _fields(name, item, what, depth + 1):
                lists.setdefault(inner, []).extend(items if isinstance(items, list) else [items])
        yield from lists.items()
    elif isinstance(value, Mapping):
        if len(value) > _MAX_VALUES:
            raise LeftOut(f"has {len(value):,} keys; at most {_MAX_VALUES:,} are kept")
        for key, items in value.items():
            yield from _fields(f"{name}.{field_name(key)}", items, what, depth + 1)
    elif value is not None:
        yield name, value


def plain_value(value: Any, what: str) -> Any:
    """Return a value as a plain one, a list of such without missing ones, or a mapping; None where it is missing.

    Raises:
        LeftOut: it cannot be kept.
        InputError: nothing is known of its class.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, str):
        return None if value.isspace() else canonicalize(value) or None
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return _items(value, what)
    if kind.__name__ in ("NAType", "NaTType"):  # of pandas
        return None
    return _converted(value, what)


def _items(values: Collection[Any], what: str) -> list[Any]:
    """Return a list of plain values, those of lists in it among them."""
    _check_length(values)
    plain: list[Any] = []
    for value in values:
        item = plain_value(value, what)
        if isinstance(item, list):
            plain += item
        elif item is not None:
            plain.append(item)
    return plain


def _check_length(values: Sized) -> None:
    if len(values) > _MAX_VALUES:
        raise LeftOut(f"has {len(values):,} values; at most {_MAX_VALUES:,} of a document are kept")


def _number(value: int | float) -> Plain | None:
    if isinstance(value, int):
        if abs(value) <= MAX_INTEGER:
            return int(value)
        if value.bit_length() > MAX_WRITTEN_BITS:
            raise LeftOut("has a number of more than 600 digits")
        return str(int(value))
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else str(float(value))


def _converted(value: Any, what: str) -> Any:
    if isinstance(value, np.generic):
        item = value.item()
        if isinstance(item, int) and isinstance(value, (np.datetime64, np.timedelta64)):  # of nanoseconds
            item = value.astype(f"{type(value).__name__}[us]").item()
        return plain_value(item, what)
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None if value.is_nan() else str(value)
        return _number(int(value)) if value == value.to_integral_value() else float(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return int(seconds) if seconds == int(seconds) else seconds
    if isinstance(value, (bytes, bytearray, memoryview)):
        content = bytes(value)
        text = content.decode("utf-8", "replace")
        if any(char == "\ufffd" or not (char.isprintable() or char.isspace()) for char in text[:_MAX_VALUES]):
            raise LeftOut(f"holds bytes that are no text, {content[:12]!r}")
        return plain_value(text, what)
    if isinstance(value, Enum):
        return plain_value(value.value, what)
    for method in ("tolist", "to_pylist", "to_list", "as_py"):  # of arrays, tensors, series, and Arrow's values
        if hasattr(value, method):
            if isinstance(value, Sized):
                _check_length(value)
            return plain_value(getattr(value, method)(), what)
    if isinstance(value, (UUID, PathLike)) or type(value).__module__.partition(".")[0] in ("pandas", "ipaddress"):
        return str(value)
    raise InputError(
        f"{what} is {shown(value)} ({type(value).__name__}); metadata are strings, numbers, booleans, dates, or lists "
        "of such"
    )
