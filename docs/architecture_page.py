"""Write the tables of docs/architecture.md, of files and of their size, from the code: `make help-docs`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).with_name("architecture.md")
ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "pellucid"

BUDGET = {
    "index": 3_000, "static": 1_750, "analysis": 1_100, "explain": 1_500, "text": 900, "dense": 950, "server": 950,
    "cli": 850, "integrations": 250, "ensemble": 220, "lexicon": 800, "core": 1_100, "persistence": 700,
    "transformer": 650, "bulk": 420, "anchors": 420, "keytokens": 450, "native": 400, "engines": 350,
    "evaluation and root": 480,
}  # fmt: skip
"""Statements that a package may have; papers 7,000, tests 15,000, all of src 17,500 in 1,900 functions."""

WHOLE = {"src": (17_500, 1_900), "papers": (7_000, None), "tests": (15_000, None)}
"""Folder -> the statements and functions that it may have."""

_SIZE = """## Size

<!-- Written by `make help-docs` from the code. -->

Statements of the syntax tree without docstrings, and functions. `make help-docs` writes what has become smaller. A test
fails when a number grows beyond this table: make room first, or raise it here by hand, and say in the commit message
what goes for it.

| | statements | budget | functions |
|---|---:|---:|---:|
"""

_HEAD = """## The map

<!-- Written by `make help-docs` from the first line of each module's docstring. Do not edit below. -->

Every file of `src/pellucid`, once. The line above a table is that of its package, whose `__init__.py` lists the public
names.
"""


def page() -> str:
    """Return the page as it is, with its tables made anew."""
    packages = sorted(path.parent for path in SOURCE.glob("*/__init__.py"))
    tables = (_table(package) for package in [SOURCE, *packages])
    prose, _, rest = PAGE.read_text(encoding="utf-8").partition("## Size")
    limits = stated_sizes(rest)
    rows = (_size_row(name, *map(min, size, limits.get(name, size))) for name, size in sizes().items())
    return prose + _SIZE + "".join(rows) + "\n" + _HEAD + "".join(tables)


def stated_sizes(text: str) -> dict[str, tuple[int, int]]:
    """Return the statements and functions of each row of the table of sizes."""
    rows = re.findall(r"^\| [`*]*([\w ]+?)[`*]* \| ([\d,]+) \| [\d,]+ \| ([\d,]+)", text, re.MULTILINE)
    return {name: (int(n.replace(",", "")), int(m.replace(",", ""))) for name, n, m in rows}


def sizes() -> dict[str, tuple[int, int]]:
    """Return the statements and functions of each package of src, and of src, papers and tests as a whole."""
    counts = {name: [0, 0] for name in [*BUDGET, *WHOLE]}
    for folder, path in [(name, path) for name in WHOLE for path in (ROOT / name).rglob("*.py")]:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        statements = sum(isinstance(node, ast.stmt) and not _is_docstring(node) for node in nodes)
        functions = sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes)
        package = path.relative_to(SOURCE).parts[0] if folder == "src" else folder
        for name in {folder, package if package in counts else "evaluation and root"}:
            counts[name][0] += statements
            counts[name][1] += functions
    return {name: (statements, functions) for name, (statements, functions) in counts.items()}


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _size_row(name: str, statements: int, functions: int) -> str:
    budget, most_functions = WHOLE[name] if name in WHOLE else (BUDGET[name], None)
    label = f"**{name}**" if name in WHOLE else f"`{name}`" if " " not in name else name
    of = f" of {most_functions:,}" if most_functions else ""
    return f"| {label} | {statements:,} | {budget:,} | {functions:,}{of} |\n"


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
