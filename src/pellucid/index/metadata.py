"""The metadata of documents, and the conditions on them in a search.

A value is a string, a number, a boolean, or a list of such, see `values.py`. A date is a string of one form, and is
compared as a moment: "2024-05-31" is all of that day, in UTC where a date has no zone.
The engine's key of a field says how values are compared (n, s, b) and has the field's number, so that a field may have
any name, and hold strings in one document and numbers in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import chain, product
from typing import Any, NamedTuple

from pellucid.errors import InputError, nearest_name, shown, unknown_name
from pellucid.index.engine import Condition, Where
from pellucid.index.values import MAX_INTEGER, LeftOut, Plain, plain_value

_OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists")
_RANGES = ("gt", "gte", "lt", "lte")
_SIGNS = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}  # of the command line
_RANGE_VALUES = {"n": "a number, such as 12.5", "d": "a date, such as 2024-05-31"}  # by the kinds of a field
_DATE = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(:\d{2})?(?:[.](\d{1,9}))?([zZ]|[-+]\d{2}(?::?\d{2})?)?)?", re.ASCII
)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)

KINDS = {"n": "number", "d": "date", "b": "boolean", "s": "string"}
"""What a value is; dates and other strings are stored alike."""

Fields = dict[str, tuple[int, str]]
"""The fields of an index: name -> (number, the kinds of values it has held)."""


class AsHeld(str):
    """A typed value of a condition: a number where the field holds numbers, a string where it holds strings."""

    __slots__ = ()


def kind_of(value: Any) -> str:
    """Return the kind of a single value: n, d, b or s."""
    if isinstance(value, str):
        return "s" if timestamp(value) is None else "d"
    return "b" if isinstance(value, bool) else "n"


def register(metadata: Mapping[str, Any], fields: Fields) -> list[str]:
    """Add a document's fields to those of the index; return the engine's keys that are new."""
    new = []
    for name, value in metadata.items():
        for kind in sorted({kind_of(item) for item in (value if isinstance(value, list) else [value])}):
            number, kinds = fields.setdefault(name, (len(fields), ""))
            if kind not in kinds:
                fields[name] = (number, kinds + kind)
                if len(column_keys(number, kinds + kind)) > len(column_keys(number, kinds)):
                    new += column_keys(number, kind)
    return new


def field_types(fields: Fields) -> dict[str, str]:
    """Return the types that fields have, where they have one: a date among strings is a string."""
    kinds_of = {"n": "number", "d": "date", "b": "boolean", "s": "string", "ds": "string", "sd": "string"}
    return {name: kinds_of[kinds] for name, (_, kinds) in fields.items() if kinds in kinds_of}


def column_keys(number: int, kinds: str) -> list[str]:
    """Return the engine's keys of a field that has held values of these kinds."""
    return [f"{kind}{number}" for kind in dict.fromkeys(kinds.replace("d", "s"))]


def entries(metadata: Mapping[str, Any], fields: Mapping[str, tuple[int, str]]) -> dict[str, list[Any]]:
    """Return a document's metadata as conditions compare them: key -> values."""
    values: dict[str, list[Any]] = {}
    for name, value in metadata.items():
        for item in value if isinstance(value, list) else [value]:
            key, stored = _stored(item, fields[name][0])
            values.setdefault(key, []).append(stored)
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


def _stored(item: Any, number: int) -> tuple[str, float | str]:
    """Return the engine's key of a value of a field, and the value as it is compared there."""
    if isinstance(item, bool):  # a string, because an engine takes True for 1
        return f"b{number}", "true" if item else "false"
    return (f"s{number}", item) if isinstance(item, str) else (f"n{number}", float(item))


def parse_where(where: Any, fields: Fields) -> Where:
    """Return the conditions of a search, see `Index.search`, as the engine takes them."""
    if where is None:
        return ()
    alternatives = [where] if isinstance(where, Mapping) else where
    if not isinstance(alternatives, Sequence) or isinstance(alternatives, str):
        raise InputError(
            f'where is {shown(where)}; it is a dict such as {{"year": {{"gte": 1990}}}}, or a list of such'
        )
    if not alternatives:  # a program whose list of allowed conditions is empty must not get every document
        raise InputError("where is an empty list, so no document can meet it; give a condition, or None for all")
    return tuple(tests for alternative in alternatives for tests in _tests(alternative, fields))


def _tests(where: Any, fields: Fields) -> Iterator[tuple[Condition, ...]]:
    """Yield the tests of which all must hold; more than once where a typed value can be read in two ways."""
    if not isinstance(where, Mapping):
        raise InputError(f"a condition is {shown(where)}; it must be a dict of fields")
    per_field: list[list[list[Condition]]] = []
    for name, requested in where.items():
        if name not in fields:
            suggestion = nearest_name(shown(name) if not isinstance(name, str) else name, fields)
            names = ", ".join(sorted(fields)) or "none"
            hint = f"; did you mean {suggestion!r}?" if suggestion else f"; its fields are {names:.200}"
            raise InputError(f"no document of this index has a field {shown(name)}{hint}")
        per_field += _field_tests(_Field(name, *fields[name]), requested)
    for chosen in product(*per_field):
        yield tuple(test for tests in chosen for test in tests)


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


def _field_tests(field: _Field, requested: Any) -> Iterator[list[list[Condition]]]:
    """Yield for each condition on a field the tests that it is, in each way in which it can be read."""
    if not isinstance(requested, Mapping):
        requested = {"in" if isinstance(requested, (list, tuple, set)) else "eq": requested}
    for operator, value in requested.items():
        if operator not in _OPERATORS:
            raise InputError(f"{field}: {unknown_name('operator', operator, _OPERATORS)}")
        if operator == "exists":
            if not isinstance(value, bool):
                raise InputError(f"exists of {field} is {shown(value)}; give True or False")
            keys = column_keys(field.number, field.kinds)
            absent = [Condition(key, "exists", None, negated=True) for key in keys]
            yield [[Condition(",".join(keys), "exists", None)] if value else absent]
        elif operator in _RANGES:
            yield [[_range(field, operator, _interpretations(value, field.kinds, ranged=True)[0])]]
        elif operator == "eq":
            meanings = _interpretations(value, field.kinds)
            yield list(chain.from_iterable(_equals(field, operator, [meaning]) for meaning in meanings))
        else:
            items = value if operator != "ne" and isinstance(value, (list, tuple, set)) else [value]
            meanings = [meaning for item in items for meaning in _interpretations(item, field.kinds)]
            yield _equals(field, operator, meanings, mixes=any(isinstance(item, AsHeld) for item in items))


def _interpretations(value: Any, kinds: str, *, ranged: bool = False) -> list[Any]:
    """Return what a typed value can be in a field that holds values of `kinds`; another value is what it is."""
    if not isinstance(value, AsHeld):
        return [value]
    text, number = str(value), number_in(value)
    truth = {"true": True, "false": False}.get(text.lower())
    read: list[Any] = [] if number is None or "n" not in kinds else [number]
    if not ranged:
        read += [truth] if truth is not None and "b" in kinds else []
        read += [text] if "s" in kinds or "d" in kinds else []
    return read or [next(meaning for meaning in (number, truth, text) if meaning is not None)]


def _equals(field: _Field, operator: str, values: list[Any], *, mixes: bool = False) -> list[list[Condition]]:
    """Return the tests that a field has, or has not, one of some values, which `mixes` lets be of several kinds."""
    checked = [_compared(item, f"the value for {field}") for item in values]
    if not values or any(isinstance(item, list) for item in checked):
        value = checked[0] if operator in ("eq", "ne") else checked
        raise InputError(f"{operator} of {field} is {shown(value)}; give a value, or for in and nin a list")
    groups: dict[tuple[str, str], list[Any]] = {}
    for item in checked:
        key, stored = _stored(item, field.number)
        if kind_of(item) == "d":
            groups.setdefault((key, "dates"), []).append(_moments(item))
        else:
            groups.setdefault((key, "in"), []).append(stored)
    tests = [Condition(key, test, tuple(items)) for (key, test), items in groups.items()]
    if operator in ("ne", "nin"):
        return [[test._replace(negated=True) for test in tests]]
    keys = {key for key, _ in groups}
    if len(keys) > 1 and not mixes:
        raise InputError(f"in of {field} mixes kinds: {shown(checked)}; give a list of conditions instead")
    if not keys & set(column_keys(field.number, field.kinds)) or (
        field.kinds == "d" and all(kind_of(item) == "s" for item in checked)
    ):
        raise field.refused(operator, checked[0])
    return [[test] for test in tests]


def _moments(text: str) -> dict[str, str]:
    """Return the bounds of a date: of all of its day, or of the moment where it has a time."""
    if len(text) > len("2024-05-31"):
        return {"gte": text, "lte": text}
    with suppress(OverflowError):  # on the last day that there is
        return {"gte": text, "lt": (date.fromisoformat(text) + timedelta(days=1)).isoformat()}
    return {"gte": text}


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
    if kind == "n":
        return Condition(f"n{field.number}", "range", {operator: float(checked)})
    return Condition(f"s{field.number}", "dates", ({operator: checked},))


def _compared(value: Any, what: str) -> Any:
    """Return a value of a condition as it is stored, or a list of such."""
    with suppress(LeftOut):
        plain: Plain | list[Plain] | None = plain_value(value, what)
        if plain is not None and not isinstance(plain, Mapping):
            return plain
    if value == "":
        raise InputError(f'{what} is "", which no document holds; {{"exists": False}} is for those without the field')
    raise InputError(f"{what} is {shown(value)} ({type(value).__name__}); give a string, a number, a boolean or a date")
