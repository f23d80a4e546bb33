"""What is known of a document beside its text, and the conditions a search can put on it.

A value is a string, a number, a boolean, or a list of such; None is the same as absent. The engine knows a field by a
key of its own: the kind of value (n, s, b) and the field's number, so that a field may be called anything and hold
strings in one document and numbers in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from difflib import get_close_matches
from typing import Any

from pellucid.errors import InputError
from pellucid.index.engine import Test, Where
from pellucid.text import well_formed

_OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists")
_LARGEST = 2**53  # up to which every integer is a float
_RANGES = ("gt", "gte", "lt", "lte")

Fields = dict[str, tuple[int, str]]
"""The fields of an index: name -> (number, the kinds of values it has held)."""


def checked_metadata(metadata: Any, place: str) -> dict[str, Any]:
    """Return a document's metadata as plain JSON values, without those that are None.

    Raises:
        InputError: it is no mapping, or a value is of another kind; the message says which, and `place`.
    """
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
    if isinstance(value, (bool, int, float)) and abs(value) <= _LARGEST:
        return value
    raise InputError(
        f"{what} is {value!r:.60} ({type(value).__name__}); metadata are strings, numbers up to 2 ** 53 in size, "
        "booleans, dates, or lists of such"
    )


def kind_of(value: Any) -> str:
    """Return the kind of a single value: n, s or b."""
    return "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"


def register(metadata: Mapping[str, Any], fields: Fields) -> list[str]:
    """Add a document's fields to those of the index; return the engine's keys that are new."""
    new = []
    for name, value in metadata.items():
        for kind in sorted({kind_of(item) for item in (value if isinstance(value, list) else [value])}):
            number, kinds = fields.setdefault(name, (len(fields), ""))
            if kind not in kinds:
                fields[name] = (number, kinds + kind)
                new.append(f"{kind}{number}")
    return new


def entries(metadata: Mapping[str, Any], fields: Mapping[str, tuple[int, str]]) -> dict[str, list[Any]]:
    """Return what conditions see of a document's metadata: key -> values."""
    found: dict[str, list[Any]] = {}
    for name, value in metadata.items():
        for item in value if isinstance(value, list) else [value]:
            found.setdefault(f"{kind_of(item)}{fields[name][0]}", []).append(_stored(item))
    return found


def timestamp(text: str) -> float | None:
    """Return a date or time of ISO 8601 as seconds since 1970, without a zone as UTC; None for another string."""
    try:
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("z", "Z")) else text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def _stored(item: Any) -> float | str:
    """Return a value as the engine compares it; a boolean is a string there, because it takes True for 1."""
    if isinstance(item, bool):
        return "true" if item else "false"
    return item if isinstance(item, str) else float(item)


def parse_where(where: Any, fields: Fields) -> Where:
    """Return the conditions of a search as the engine takes them.

    Args:
        where: {"year": {"gte": 1990}, "lang": "en"}: all must hold. A list of such: any of them. A value stands for
            {"eq": value}, a list for {"in": list}; the operators are eq, ne, in, nin, gt, gte, lt, lte and exists.
        fields: of the index.

    Raises:
        InputError: a field or an operator is unknown, or a value cannot be compared so.
    """
    if where is None:
        return ()
    alternatives = [where] if isinstance(where, Mapping) else where
    if not isinstance(alternatives, Sequence) or isinstance(alternatives, str):
        raise InputError(f'where is {where!r:.60}; it is a dict such as {{"year": {{"gte": 1990}}}}, or a list of such')
    return tuple(tuple(_tests(one, fields)) for one in alternatives)


def _tests(where: Any, fields: Fields) -> list[Test]:
    if not isinstance(where, Mapping):
        raise InputError(f"a condition is {where!r:.60}; it must be a dict of fields")
    tests = []
    for name, wanted in where.items():
        if name not in fields:
            near = get_close_matches(str(name), fields, 1)
            known = ", ".join(sorted(fields)) or "none"
            hint = f"; did you mean {near[0]!r}?" if near else f"; its fields are {known:.200}"
            raise InputError(f"no document of this index has a field {name!r:.60}{hint}")
        tests += _field_tests(name, wanted, *fields[name])
    return tests


def _field_tests(name: str, wanted: Any, number: int, kinds: str) -> list[Test]:
    if not isinstance(wanted, Mapping):
        wanted = {"in" if isinstance(wanted, (list, tuple, set)) else "eq": wanted}
    tests = []
    for operator, value in wanted.items():
        if operator not in _OPERATORS:
            raise InputError(f"unknown operator {operator!r:.40} for field {name!r:.40}; use {', '.join(_OPERATORS)}")
        if operator == "exists":
            tests += _exists(name, value, number, kinds)
        elif operator in _RANGES:
            tests.append(_range(name, operator, value, number))
        else:
            tests += _equals(name, operator, value, number)
    return tests


def _exists(name: str, value: Any, number: int, kinds: str) -> list[Test]:
    if not isinstance(value, bool):
        raise InputError(f"exists of field {name!r:.40} is {value!r:.40}; give True or False")
    if not value:
        return [Test(f"{kind}{number}", "exists", None, negated=True) for kind in kinds]
    return [Test(",".join(f"{kind}{number}" for kind in kinds), "exists", None)]


def _equals(name: str, operator: str, value: Any, number: int) -> list[Test]:
    values = list(value) if operator in ("in", "nin") and isinstance(value, (list, tuple, set)) else [value]
    checked = [_checked_value(item, f"the value for field {name!r:.40}") for item in values]
    if any(isinstance(item, list) for item in checked) or (operator in ("in", "nin") and not values):
        raise InputError(f"{operator} of field {name!r:.40} is {value!r:.60}; give a value, or for in and nin a list")
    groups: dict[str, list[Any]] = {}
    for item in checked:
        groups.setdefault(f"{kind_of(item)}{number}", []).append(_stored(item))
    if operator in ("ne", "nin"):
        return [Test(key, "in", tuple(items), negated=True) for key, items in groups.items()]
    if len(groups) > 1:
        raise InputError(f"in of field {name!r:.40} mixes kinds: {value!r:.60}; give a list of conditions instead")
    return [Test(key, "in", tuple(items)) for key, items in groups.items()]


def _range(name: str, operator: str, value: Any, number: int) -> Test:
    checked = _checked_value(value, f"the value for field {name!r:.40}")
    if kind_of(checked) == "n":
        return Test(f"n{number}", "range", {operator: float(checked)})
    if isinstance(checked, str) and timestamp(checked) is not None:
        return Test(f"s{number}", "dates", {operator: checked})
    raise InputError(
        f"{operator} of field {name!r:.40} is {value!r:.40}; numbers and dates (2024-05-31) can be compared so"
    )
