"""Public names of a package, each imported when it is first used, so that the package imports at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pellucid.errors import MissingExtraError


class _Absent(type):
    """The type of a name whose extra is not installed: using the name says what to install."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        raise MissingExtraError(cls.__doc__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):  # what tools look for in any object
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise MissingExtraError(cls.__doc__)


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose `names` are given by the module they are in.

    The names of a module are separated by spaces. The package also imports them under `if TYPE_CHECKING`, for type
    checkers; a test compares the two.
    """
    home_of = {name: module for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home_of[name] == package:
            return import_module(f"{package}.{name}")
        try:
            module = import_module(home_of[name])
        except MissingExtraError as error:
            return _Absent(name, (), {"__doc__": str(error), "__module__": package})
        return getattr(module, name)

    return get, lambda: sorted(home_of), sorted(home_of)
