"""The metadata of documents, and the conditions on them in a search.

A value is a string, a number, a boolean, or a list of such, see `values.py`. A date is a string of one form, and is
compared as a moment. A day in a condition is all of its moments, from its midnight to the next, for every operator;
where a date has no zone, it is in UTC.
Values are compared in columns, of which a field has one for its numbers, strings and booleans each: it may hold strings
in one document and numbers in another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from pellucid.errors import InputError, nearest_name, shown, unknown_name
from pellucid.index.values import MAX_INTEGER, LeftOut, Plain, plain_value
from pellucid.text.unicode import canonicalize

_OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists")
_RANGES = ("gt", "gte", "lt", "lte")
_SIGNS = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_RANGE_VALUES = {"n": "a number, such as 12.5", "d": "a date, such as 2024-05-31"}  # by the kinds of a field
_DATE = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(:\d{2})?(?:[.](\d{1,9}))?([zZ]|[-+]\d{2}(?::?\d{2})?)?)?", re.ASCII
)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)

KINDS = {"n": "number", "d": "date", "b": "boolean", "s": "string"}
"""What a value is; dates and other strings are stored alike."""

COLUMN_KINDS, COLUMNS_PER_FIELD = "nsb", 4
"""Numbers, strings and booleans of a field are columns of their own, with room for one more."""

DAY_S = 86_400.0
DAY_CHARS = len("2024-05-31")

Fields = dict[str, tuple[int, str]]
"""The fields of an index: name -> (number, the kinds of values it has held)."""

Interval = tuple[float, float]
"""Numbers, or moments in seconds since 1970, from the first up to but without the second."""


class Condition(NamedTuple):
    """A condition on a column: that it has one of some values, a number or moment in some intervals, or any value."""

    column: int
    operator: str  # "in", "within" (numbers), "dates" or "exists"
    values: tuple[Any, ...] = ()  # strings or numbers, or intervals that rise and do not overlap


class Test(NamedTuple):
    """That one of some conditions holds, or with `negated` none of them."""

    any_of: tuple[Condition, ...]
    negated: bool = False


Where = tuple[tuple[Test, ...], ...]
"""Any of these must hold, each of which is all of its tests; () holds always."""


class AsHeld(str):
    """A typed value of a condition: a number where the field holds numbers, a string where it holds strings."""

    __slots__ = ()


def kind_of(value: Any) -> str:
    """Return the kind of a single value: n, d, b or s."""
    if isinstance(value, str):
        return "s" if timestamp(value) is None else "d"
    return "b" if isinstance(value, bool) else "n"


def register(metadata: Mapping[str, Any], fields: Fields) -> None:
    """Add a document's fields to those of the index."""
    for name, value in metadata.items():
        for kind in sorted({kind_of(item) for item in (value if isinstance(value, list) else [value])}):
            number, kinds = fields.setdefault(name, (len(fields), ""))
            if kind not in kinds:
                fields[name] = (number, kinds + kind)


def field_types(fields: Fields) -> dict[str, str]:
    """Return the types that fields have, where they have one: a date among strings is a string."""
    kinds_of = {"n": "number", "d": "date", "b": "boolean", "s": "string", "ds": "string", "sd": "string"}
    return {name: kinds_of[kinds] for name, (_, kinds) in fields.items() if kinds in kinds_of}


def column_of(number: int, kind: str) -> int:
    """Return the column of a field's values of a kind, by the field's number; dates are among the strings."""
    return number * COLUMNS_PER_FIELD + COLUMN_KINDS.index(kind.replace("d", "s"))


def column_kind(column: int) -> str:
    """Return the kind of the values of a column: n, s or b."""
    return COLUMN_KINDS[column % COLUMNS_PER_FIELD]


def columns_in(number: int, kinds: str) -> list[int]:
    """Return the columns of a field that has held values of these kinds."""
    return list(dict.fromkeys(column_of(number, kind) for kind in kinds))


def entries(metadata: Mapping[str, Any], fields: Mapping[str, tuple[int, str]]) -> dict[int, list[Any]]:
    """Return a document's metadata as conditions compare them: column -> values."""
    values: dict[int, list[Any]] = {}
    for name, value in metadata.items():
        for item in value if isinstance(value, list) else [value]:
            column, stored = _stored(item, fields[name][0])
            values.setdefault(column, []).append(stored)
    return values


def timestamp(text: str) -> float | None:
    """Return a date, 2024-05-31 or 2024-05-31T10:00:00Z, as seconds since 1970, without a zone as UTC; else None."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    day, minute, second, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "z", "Z") else f"{zone[:3]}:{zone[3:].strip(':') or '00'}"
    iso = f"{day}T{minute or '00:00'}{second or ':00'}.{(fraction or '')[:6].ljust(6, '0')}{zone}"
    try:
        return datetime.fromisoformat(iso).timestamp()
    except (ValueError, OverflowError):
        return None


def number_in(text: str) -> int | float | None:
    """Return the number that a text says, such as 7, -0.5 or 1e-05; None for another text."""
    if len(text) > 400 or not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("-+").isdigit() else float(text)


def _stored(item: Any, number: int) -> tuple[int, float | str]:
    """Return the column of a value of a field, and the value as it is compared there."""
    if isinstance(item, bool):
        return column_of(number, "b"), "true" if item else "false"
    return (column_of(number, "s"), item) if isinstance(item, str) else (column_of(number, "n"), float(item))


def parse_where(where: Any, fields: Fields) -> Where:
    """Return the conditions of a search, see `Index.search`, by columns."""
    if where is None:
        return ()
    alternatives = [where] if isinstance(where, Mapping) else where
    if not isinstance(alternatives, Sequence) or isinstance(alternatives, str):
        raise InputError(
            f'where is {shown(where)}; it is a dict such as {{"year": {{"gte": 1990}}}}, or a list of such'
        )
    if not alternatives:  # a program whose list of allowed conditions is empty must not get every document
        raise InputError("where is an empty list, so no document can meet it; give a condition, or None for all")
    return tuple(tuple(_tests(alternative, fields)) for alternative in alternatives)


def condition_text(where: Any) -> str:
    """Return parsed conditions as a person reads them: "year >= 1990 and lang = en"."""
    alternatives, signs = [where] if isinstance(where, Mapping) else where, {**_SIGNS, "in": "=", "nin": "!="}
    return " or ".join(
        " and ".join(
            f"{name} {signs.get(operator, operator)} " + " or ".join(map(str, values))
            for name, test in alternative.items()
            for operator, value in (test if isinstance(test, Mapping) else {"eq": test}).items()
            for values in [value if isinstance(value, (list, tuple, set)) else [value]]
        )
        for alternative in alternatives
    )


def _tests(where: Any, fields: Fields) -> Iterator[Test]:
    """Yield the tests of which all must hold."""
    if not isinstance(where, Mapping):
        raise InputError(f"a condition is {shown(where)}; it must be a dict of fields")
    for key, requested in where.items():
        name = canonicalize(key) if isinstance(key, str) else key
        if name not in fields:
            suggestion = nearest_name(shown(name) if not isinstance(name, str) else name, fields)
            names = ", ".join(sorted(fields)) or "none"
            hint = f"; did you mean {suggestion!r}?" if suggestion else f"; its fields are {names:.200}"
            raise InputError(f"no document of this index has a field {shown(name)}{hint}")
        yield from _field_tests(_Field(name, *fields[name]), requested)


class _Field(NamedTuple):
    """A field that a condition names, and the kinds of values it has held."""

    name: str
    number: int
    kinds: str

    def __str__(self) -> str:
        return f"field {self.name!r:.40}"

    def refused(self, operator: str, value: Any) -> InputError:
        """Return the error for a comparison that no value of the field could meet."""
        kinds = " and ".join(f"{name}s" for kind, name in KINDS.items() if kind in self.kinds)
        hint = ""
        if "d" in self.kinds:
            hint = ". Write a date as 2024-05-31"
        elif "s" in self.kinds and kind_of(value) == "n":
            hint = f". Numbers of a table that are read as strings: pellucid index build --type {self.name:.40}=number"
        asked_for = f"{KINDS[kind_of(value)]} {value!r:.40}"
        return InputError(
            f"{self} holds {kinds}, and {_shown(operator)} asks for the {asked_for}: this can never match{hint}"
        )


def _shown(operator: str) -> str:
    """Return an operator as conditions in Python and requests name it, with its sign on the command line."""
    return f"{operator} ({_SIGNS[operator]})" if operator in _SIGNS else operator


def _field_tests(field: _Field, requested: Any) -> Iterator[Test]:
    """Yield a test for each condition on a field."""
    if not isinstance(requested, Mapping):
        requested = {"in" if isinstance(requested, (list, tuple, set)) else "eq": requested}
    for operator, value in requested.items():
        if operator not in _OPERATORS:
            raise InputError(f"{field}: {unknown_name('operator', operator, _OPERATORS)}")
        if operator == "exists":
            if not isinstance(value, bool):
                raise InputError(f"exists of {field} is {shown(value)}; give True or False")
            columns = columns_in(field.number, field.kinds)
            yield Test(tuple(Condition(column, "exists") for column in columns), negated=not value)
        elif operator in _RANGES:
            yield Test((_range(field, operator, _interpretations(value, field.kinds, ranged=True)[0]),))
        else:
            items = value if operator in ("in", "nin") and isinstance(value, (list, tuple, set)) else [value]
            yield _equals(field, operator, list(items))


def _interpretations(value: Any, kinds: str, *, ranged: bool = False) -> list[Any]:
    """Return what a typed value can be in a field that holds values of `kinds`; another value is what it is."""
    if not isinstance(value, AsHeld):
        return [value]
    text, number = str(value), number_in(value)
    truth = {"true": True, "yes": True, "false": False, "no": False}.get(text.lower())
    read: list[Any] = [] if number is None or "n" not in kinds else [number]
    if not ranged:
        read += [truth] if truth is not None and "b" in kinds else []
        read += [text] if "s" in kinds or "d" in kinds else []
    return read or [next(meaning for meaning in (number, truth, text) if meaning is not None)]


def _equals(field: _Field, operator: str, items: list[Any]) -> Test:
    """Return the test that a field has, or has not, one of some values."""
    values = list(chain.from_iterable(_interpretations(item, field.kinds) for item in items))
    checked = [_compared(item, f"the value for {field}") for item in values]
    if any(isinstance(item, list) for item in checked):
        value = checked if operator in ("in", "nin") else checked[0]
        raise InputError(f"{operator} of {field} is {shown(value)}; give a value, or for in and nin a list")
    groups: dict[tuple[int, str], list[Any]] = {}
    for item in checked:
        column, stored = _stored(item, field.number)
        if kind_of(item) == "d":
            groups.setdefault((column, "dates"), []).append(_moments(item))
        else:
            groups.setdefault((column, "in"), []).append(stored)
    conditions = tuple(
        Condition(column, test, _merged(group) if test == "dates" else tuple(group))
        for (column, test), group in groups.items()
    )
    if operator in ("ne", "nin"):
        return Test(conditions, negated=True)
    columns = {column for column, _ in groups}
    if len(columns) > 1 and not any(isinstance(item, AsHeld) for item in items):
        raise InputError(f"in of {field} mixes kinds: {shown(checked)}; give a list of conditions instead")
    if checked and (
        not columns & set(columns_in(field.number, field.kinds))
        or (field.kinds == "d" and all(kind_of(item) == "s" for item in checked))
    ):
        raise field.refused(operator, checked[0])
    return Test(conditions)


def _moments(text: str) -> Interval:
    """Return the moments of a date: all of its day, or the one where it has a time."""
    start = timestamp(text)
    assert start is not None
    return start, start + DAY_S if len(text) == DAY_CHARS else math.nextafter(start, math.inf)


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Return the numbers of some intervals as intervals that rise and do not overlap."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _range(field: _Field, operator: str, value: Any) -> Condition:
    what = f"the value for {field}"
    if isinstance(value, int) and abs(value) > MAX_INTEGER:  # the nearest float is compared as well
        try:
            value = float(value)
        except OverflowError as error:
            bits = value.bit_length()
            raise InputError(f"{what} is an integer of {bits:,} bits; give a number up to 1e308") from error
    checked = _compared(value, what)
    kind = "" if isinstance(checked, list) else kind_of(checked)
    if kind not in ("n", "d"):
        values = _RANGE_VALUES.get(field.kinds, "a number or a date, such as 2024-05-31")
        raise InputError(f"{_shown(operator)} of {field} is {shown(value)}; it needs {values}")
    if kind not in field.kinds:
        raise field.refused(operator, checked)
    start, end = _moments(checked) if kind == "d" else (float(checked), math.nextafter(checked, math.inf))
    interval = {
        "gt": (end, math.inf), "gte": (start, math.inf), "lt": (-math.inf, start), "lte": (-math.inf, end)
    }[operator]  # fmt: skip
    return Condition(column_of(field.number, kind), "dates" if kind == "d" else "within", (interval,))


def _compared(value: Any, what: str) -> Any:
    """Return a value of a condition as it is stored, or a list of such."""
    with suppress(LeftOut):
        plain: Plain | list[Plain] | None = plain_value(value, what)
        if plain is not None and not isinstance(plain, Mapping):
            return plain
    if value == "":
        raise InputError(f'{what} is "", which no document holds; {{"exists": False}} is for those without the field')
    raise InputError(f"{what} is {shown(value)} ({type(value).__name__}); give a string, a number, a boolean or a date")
