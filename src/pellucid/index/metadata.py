"""The metadata of documents, and the conditions on them in a search.

A value is a string, a number, a boolean, or a list of such; None is the same as absent. A date is a string of one form.
The engine's key of a field says how values are compared (n, s, b) and has the field's number, so that a field may have
any name, and hold strings in one document and numbers in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import product
from typing import Any, NamedTuple

from pellucid.errors import InputError, nearest_name, unknown_name
from pellucid.index.engine import Condition, Where
from pellucid.unicode import well_formed

_OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists")
LARGEST = 2**53
"""The largest number of metadata: up to it every integer is a float."""

_RANGES = ("gt", "gte", "lt", "lte")
_DATE = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(:\d{2})?(?:[.](\d{1,6}))?([zZ]|[-+]\d{2}:\d{2})?)?", re.ASCII
)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)

KINDS = {"n": "number", "d": "date", "b": "boolean", "s": "string"}
"""What a value is; dates and other strings are stored alike."""

Fields = dict[str, tuple[int, str]]
"""The fields of an index: name -> (number, the kinds of values it has held)."""


class AsHeld(str):
    """A typed value of a condition: a number where the field holds numbers, a string where it holds strings."""

    __slots__ = ()


def checked_metadata(metadata: Any, place: str) -> dict[str, Any]:
    """Return a document's metadata as plain JSON values, without those that are None."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"the metadata of {place} is {type(metadata).__name__} {metadata!r:.60}; it must be a dict")
    plain = {}
    for name, value in metadata.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"the metadata of {place} has a field {name!r:.40}; names are strings")
        if value is not None:
            plain[well_formed(name)] = _checked_value(value, f"the field {name!r:.40} of {place}")
    return plain


def _checked_value(value: Any, what: str) -> Any:
    if hasattr(value, "tolist") and not isinstance(value, (str, bytes)):  # numpy's numbers and arrays
        value = value.tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_checked_item(item, what) for item in value if item is not None]
    return _checked_item(value, what)


def _checked_item(value: Any, what: str) -> Any:
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a numpy number in a list
        value = value.item()
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, (bool, int, float)) and abs(value) <= LARGEST:
        return value
    raise InputError(
        f"{what} is {value!r:.60} ({type(value).__name__}); metadata are strings, numbers up to 2 ** 53 in size, "
        "booleans, dates, or lists of such"
    )


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
                if len(_keys(number, kinds + kind)) > len(_keys(number, kinds)):
                    new += _keys(number, kind)
    return new


def _keys(number: int, kinds: str) -> list[str]:
    """Return the engine's keys of a field that has held values of these kinds."""
    return [f"{kind}{number}" for kind in dict.fromkeys(kinds.replace("d", "s"))]


def entries(metadata: Mapping[str, Any], fields: Mapping[str, tuple[int, str]]) -> dict[str, list[Any]]:
    """Return a document's metadata as conditions compare them: key -> values."""
    found: dict[str, list[Any]] = {}
    for name, value in metadata.items():
        for item in value if isinstance(value, list) else [value]:
            key, stored = _stored(item, fields[name][0])
            found.setdefault(key, []).append(stored)
    return found


def timestamp(text: str) -> float | None:
    """Return a date, 2024-05-31 or 2024-05-31T10:00:00Z, as seconds since 1970, without a zone as UTC; else None."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    day, minute, second, fraction, zone = match.groups()
    given = f"{day}T{minute or '00:00'}{second or ':00'}.{(fraction or '').ljust(6, '0')}"
    try:
        moment = datetime.fromisoformat(given + ("+00:00" if zone in (None, "z", "Z") else zone))
        return moment.timestamp()
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
        raise InputError(f'where is {where!r:.60}; it is a dict such as {{"year": {{"gte": 1990}}}}, or a list of such')
    if not alternatives:  # a program whose list of allowed conditions is empty must not get every document
        raise InputError("where is an empty list, so no document can meet it; give a condition, or None for all")
    return tuple(tests for one in alternatives for tests in _tests(one, fields))


def _tests(where: Any, fields: Fields) -> Iterator[tuple[Condition, ...]]:
    """Yield the tests of which all must hold; more than once where a typed value can be read in two ways."""
    if not isinstance(where, Mapping):
        raise InputError(f"a condition is {where!r:.60}; it must be a dict of fields")
    every: list[list[list[Condition]]] = []
    for name, wanted in where.items():
        if name not in fields:
            near = nearest_name(str(name), fields)
            known = ", ".join(sorted(fields)) or "none"
            hint = f"; did you mean {near!r}?" if near else f"; its fields are {known:.200}"
            raise InputError(f"no document of this index has a field {name!r:.60}{hint}")
        every += _field_tests(_Field(name, *fields[name]), wanted)
    for chosen in product(*every):
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
        held = " and ".join(f"{name}s" for kind, name in KINDS.items() if kind in self.kinds)
        hint = ""
        if "d" in self.kinds:
            hint = ". Write a date as 2024-05-31"
        elif "s" in self.kinds and kind_of(value) == "n":
            hint = f". Numbers of a table that are read as strings: pellucid index build --type {self.name:.40}=number"
        return InputError(
            f"{self} holds {held}, and {operator} asks for the {KINDS[kind_of(value)]} {value!r:.40}: nothing can meet "
            f"that{hint}"
        )


def _field_tests(field: _Field, wanted: Any) -> Iterator[list[list[Condition]]]:
    """Yield for each condition on a field the tests that it is, in each way in which it can be read."""
    if not isinstance(wanted, Mapping):
        wanted = {"in" if isinstance(wanted, (list, tuple, set)) else "eq": wanted}
    for operator, value in wanted.items():
        if operator not in _OPERATORS:
            raise InputError(f"{field}: {unknown_name('operator', operator, _OPERATORS)}")
        if operator == "exists":
            yield [_exists(field, value)]
        elif operator in _RANGES:
            yield [[_range(field, operator, _readings(value, field.kinds, ranged=True)[0])]]
        elif operator == "eq":
            yield [_equals(field, operator, [reading]) for reading in _readings(value, field.kinds)]
        else:
            several = value if operator != "ne" and isinstance(value, (list, tuple, set)) else [value]
            yield [_equals(field, operator, [reading for one in several for reading in _readings(one, field.kinds)])]


def _readings(value: Any, kinds: str, *, ranged: bool = False) -> list[Any]:
    """Return what a typed value can be in a field that holds values of `kinds`; another value is what it is."""
    if not isinstance(value, AsHeld):
        return [value]
    text, number = str(value), number_in(value)
    truth = {"true": True, "false": False}.get(text.lower())
    read: list[Any] = [] if number is None or "n" not in kinds else [number]
    if not ranged:
        read += [truth] if truth is not None and "b" in kinds else []
        read += [text] if "s" in kinds or "d" in kinds else []
    return read or [next(one for one in (number, truth, text) if one is not None)]


def _exists(field: _Field, value: Any) -> list[Condition]:
    if not isinstance(value, bool):
        raise InputError(f"exists of {field} is {value!r:.40}; give True or False")
    keys = _keys(field.number, field.kinds)
    if value:
        return [Condition(",".join(keys), "exists", None)]
    return [Condition(key, "exists", None, negated=True) for key in keys]


def _equals(field: _Field, operator: str, values: list[Any]) -> list[Condition]:
    checked = [_checked_value(item, f"the value for {field}") for item in values]
    if not values or any(isinstance(item, list) for item in checked):
        given = checked[0] if operator in ("eq", "ne") else checked
        raise InputError(f"{operator} of {field} is {given!r:.60}; give a value, or for in and nin a list")
    groups: dict[str, list[Any]] = {}
    for item in checked:
        key, stored = _stored(item, field.number)
        groups.setdefault(key, []).append(stored)
    if operator in ("ne", "nin"):
        return [Condition(key, "in", tuple(items), negated=True) for key, items in groups.items()]
    if len(groups) > 1:
        raise InputError(f"in of {field} mixes kinds: {checked!r:.60}; give a list of conditions instead")
    if not groups.keys() & set(_keys(field.number, field.kinds)) or (
        field.kinds == "d" and all(kind_of(item) == "s" for item in checked)
    ):
        raise field.refused(operator, checked[0])
    return [Condition(key, "in", tuple(items)) for key, items in groups.items()]


def _range(field: _Field, operator: str, value: Any) -> Condition:
    checked = _checked_value(value, f"the value for {field}")
    kind = "" if isinstance(checked, list) else kind_of(checked)
    if kind not in ("n", "d"):
        what = "numbers and dates, such as 2024-05-31, can be compared so"
        raise InputError(f"{operator} of {field} is {value!r:.40}; {what}")
    if kind not in field.kinds:
        raise field.refused(operator, checked)
    if kind == "n":
        return Condition(f"n{field.number}", "range", {operator: float(checked)})
    return Condition(f"s{field.number}", "dates", {operator: checked})
