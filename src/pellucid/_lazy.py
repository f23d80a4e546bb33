"""How a package gives its public names: each is imported when it is first used, so that the package imports at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, the first two as PEP 562 has them.

    Args:
        package: its full name.
        homes: module or room below the package -> the names it gives, separated by spaces. Without names it is
            public itself.
    """
    home_of = {name: home for home, names in homes.items() for name in (names or home).split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{home_of[name]}")
        return getattr(module, name) if homes[home_of[name]] else module

    return get, lambda: sorted(home_of), sorted(home_of)
