"""Write docs/architecture.md's picture and table of sizes from the code (`make help-docs`), and a page of files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).with_name("architecture.md")
PICTURE = Path(__file__).with_name("images") / "structure.svg"
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

_HEAD = """# Every file

Every file of `src/pellucid`, with the first line of its docstring. The line above a table is that of its package, whose
`__init__.py` lists the public names.
"""


def page() -> str:
    """Return the page as it is, with the table of sizes made anew."""
    prose, _, rest = PAGE.read_text(encoding="utf-8").partition("## Size")
    limits = stated_sizes(rest)
    rows = (_size_row(name, *map(min, size, limits.get(name, size))) for name, size in sizes().items())
    return prose + _SIZE + "".join(rows)


def file_map() -> str:
    """Return the page with every file, which is made when the site is."""
    packages = sorted(path.parent for path in SOURCE.glob("*/__init__.py"))
    return _HEAD + "".join(map(_table, [SOURCE, *packages]))


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


BASE = {"errors", "process", "progress", "settings", "_lazy"}
"""Modules that all others may import: one box at the bottom."""

WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT = 980, 74, 112, 30


def picture() -> str:
    """Return the packages as an SVG: each stands above those that its files import when they are imported.

    A line is left out where a longer way leads to the same package.
    """
    uses = _uses()
    level: dict[str, int] = {}
    while len(level) < len(uses):  # no package imports itself by a detour: this ends
        ready = [name for name in uses if name not in level and uses[name] <= level.keys()]
        assert ready, f"these packages import each other: {sorted(uses.keys() - level.keys())}"
        level |= {name: 1 + max((level[used] for used in uses[name]), default=0) for name in ready}
    rows = [sorted(name for name in uses if level[name] == height) for height in range(max(level.values()), 0, -1)]
    place = {
        name: (round(WIDTH * (column + 0.5) / len(row)), number * HEIGHT + 24)
        for number, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    lines = [
        f'<path d="M{x1} {y1 + 15} C{x1} {y1 + 45} {x2} {y2 - 45} {x2} {y2 - 15}"/>'
        for (x1, y1), (x2, y2) in ((place[name], place[used]) for name in uses for used in _direct(name, uses))
    ]
    boxes = [
        f'<rect x="{x - BOX_WIDTH // 2}" y="{y - BOX_HEIGHT // 2}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
        f'<text x="{x}" y="{y + 5}">{name}</text>'
        for name, (x, y) in place.items()
    ]
    bottom = len(rows) * HEIGHT
    base = f"under all: {', '.join(sorted(BASE - {'_lazy'}))}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" role="img" '
        'aria-label="The packages of pellucid; each imports those below it that a line leads to">\n'
        f'<rect width="{WIDTH}" height="{bottom + 40}" fill="#fff"/>\n'
        f'<g fill="none" stroke="#90a4ae">{"".join(lines)}</g>\n'
        '<g fill="#eceff1" stroke="#546e7a" font-family="sans-serif" font-size="14" text-anchor="middle">\n'
        f'<rect x="8" y="{bottom}" width="{WIDTH - 16}" height="30" rx="5"/>\n'
        + "\n".join(boxes).replace("<text ", '<text stroke="none" fill="#263238" ')
        + f'\n<text stroke="none" fill="#263238" x="{WIDTH // 2}" y="{bottom + 20}">{base}</text>\n</g>\n</svg>\n'
    )


def _uses() -> dict[str, set[str]]:
    """Return what each package, and each module at the root, imports of the others when it is imported."""
    uses: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = _box(path.relative_to(SOURCE).with_suffix("").parts)
        if name in BASE or path.stem in ("__init__", "__main__"):
            continue
        modules = [
            node.module or "" for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ImportFrom)
        ]
        used = {_box(tuple(module.split(".")[1:])) for module in modules if module.startswith("pellucid.")}
        uses[name] = uses.get(name, set()) | (used - BASE - {name})
    return uses


def _box(parts: tuple[str, ...]) -> str:
    """Return the box that a module belongs to: making static models opens encoders, which explain by static models."""
    return "static/training" if parts[:2] == ("static", "training") else parts[0]


def _direct(name: str, uses: dict[str, set[str]]) -> list[str]:
    """Return what a package imports and none of the others that it imports does."""
    return sorted(used for used in uses[name] if not any(used in _below(other, uses) for other in uses[name]))


def _below(name: str, uses: dict[str, set[str]]) -> set[str]:
    return uses[name].union(*(_below(used, uses) for used in uses[name]))


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
    return f"\n## {name}\n{about}" + ("\n| file | what it is for |\n|---|---|\n" + "".join(rows) if rows else "")


def _line(path: Path) -> str:
    """Return the first line of a module's docstring, as a cell of a table."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
