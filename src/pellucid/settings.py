"""Settings that are checked when they are made: the types of their fields say which values they may have."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from pellucid.errors import InputError, check_choice, check_number, shown


class Limits(NamedTuple):
    """What a number may be."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf


Seed = Annotated[int, Limits(0, 2**32 - 1)]
"""What random numbers begin with, of numpy and of scikit-learn."""


class Settings:
    """Base of dataclasses whose fields are checked: numbers, texts, truth values and literals, each also with None.

    The limits of a number are in its type: `epochs: Annotated[float, Limits(above=0)] = 1`.
    """

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a value is not allowed; the message names it.
        """
        for name, (kind, limits, is_optional) in _kinds(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if kind in (int, float):
                check_number(name, value, **limits._asdict(), integer=kind is int, optional=is_optional)
            elif get_origin(kind) is Literal or kind is bool:
                check_choice(name, value, (*(get_args(kind) or (True, False)), *[None] * is_optional))
            elif kind is str and not isinstance(value, str | None if is_optional else str):
                raise InputError(f"{name} is {shown(value)}; it must be a string{', or None' * is_optional}")


@cache
def _kinds(settings: type[Settings]) -> dict[str, tuple[Any, Limits, bool]]:
    """Return the type of each field without None, the limits of a number, and whether it may be None."""
    kinds = {}
    for name, hint in get_type_hints(settings, include_extras=True).items():
        kind, limits = get_args(hint) if get_origin(hint) is Annotated else (hint, Limits())
        is_optional = get_args(kind)[1:] == (type(None),)
        kinds[name] = (get_args(kind)[0] if is_optional else kind, limits, is_optional)
    return kinds
