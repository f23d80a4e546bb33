"""How a package gives its public names: each is imported when it is first used, so that the package imports at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pellucid.errors import MissingExtraError


class _Absent(type):
    """Makes the classes that stand for public names whose extra is not installed: using one says what to install.

    A plain error at the name itself would reach everybody who lists a package (`import *`, `inspect.getmembers`,
    pydoc); an AttributeError there would turn `from pellucid import Index` into "cannot import name".
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        raise MissingExtraError(cls.__doc__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):  # what tools look for in any object
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise MissingExtraError(cls.__doc__)


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, the first two as PEP 562 has them.

    Args:
        package: its full name.
        homes: module or room below the package -> the names it gives, separated by spaces. Without names it is
            public itself.

    A name whose extra is not installed is given all the same, and raises MissingExtraError where it is used.
    """
    home_of = {name: home for home, names in homes.items() for name in (names or home).split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"{package}.{home_of[name]}")
        except MissingExtraError as error:
            return _Absent(name, (), {"__doc__": str(error), "__module__": package})
        return getattr(module, name) if homes[home_of[name]] else module

    return get, lambda: sorted(home_of), sorted(home_of)
