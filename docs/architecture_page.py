"""Write the tables of files in docs/architecture.md from the modules' docstrings: `make help-docs`."""

from __future__ import annotations

import ast
from pathlib import Path

PAGE = Path(__file__).with_name("architecture.md")
SOURCE = Path(__file__).resolve().parents[1] / "src" / "pellucid"

_HEAD = """## The map

<!-- Written by `make help-docs` from the first line of each module's docstring. Do not edit below. -->

Every file of `src/pellucid`, once. The line above a table is that of its package, whose `__init__.py` lists the public
names.
"""


def page() -> str:
    """Return the page as it is, with its tables made anew."""
    packages = sorted(path.parent for path in SOURCE.glob("*/__init__.py"))
    tables = (_table(package) for package in [SOURCE, *packages])
    return PAGE.read_text(encoding="utf-8").partition("## The map")[0] + _HEAD + "".join(tables)


def _table(package: Path) -> str:
    """Return a package's heading, its line and a row for each of its files; of the whole, those outside packages."""
    files = package.glob("*.py") if package == SOURCE else package.rglob("*.py")
    name = "At the root" if package == SOURCE else f"`{package.name}/`"
    about = "" if package == SOURCE else f"\n{_line(package / '__init__.py')}\n"
    rows = [
        f"| `{path.relative_to(SOURCE).as_posix()}` | {_line(path).removesuffix('.')} |\n"
        for path in sorted(files)
        if path.name != "__init__.py"
    ]
    return f"\n### {name}\n{about}" + ("\n| file | what it is for |\n|---|---|\n" + "".join(rows) if rows else "")


def _line(path: Path) -> str:
    """Return the first line of a module's docstring, as a cell of a table."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
