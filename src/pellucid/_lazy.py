"""Public names of a package, each imported when it is first used, so that the package imports at once."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
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


def lazy(package: str, source: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from its imports under `if TYPE_CHECKING`."""
    tree = ast.parse(Path(source).read_text(encoding="utf-8"))
    blocks = (node.body for node in tree.body if isinstance(node, ast.If))
    imports = [node for body in blocks for node in body if isinstance(node, ast.ImportFrom)]
    home_of = {alias.name: str(node.module) for node in imports for alias in node.names}

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
