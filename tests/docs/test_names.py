"""A name in the source says what the thing is; the words are CONTRIBUTING's."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "pellucid"

VAGUE_NAMES = frozenset(
    """about aside asked beside beyond every facts found given gone got held kept known made mine near of one other
    others own place places reading readings rest said some stranger strangers taken theirs wanted way ways
    whole""".split()
)
VAGUE_CONSTANT = re.compile(
    r"_?(MOST|LEAST|LITTLE|FEW|FEWEST|SMALL|LARGE|LARGEST|LONGEST|DEEPEST|NEAREST|NEAR\w*|STRANGE\w*|BUSY|OLD|BEYOND"
    r"|NO_\w+|TRIED|GIVEN|BEFORE|ELSEWHERE|SENT|MEND|OURS|STOCK|NOTED|SPARE|PASSING)"
)

DEFENDED = {
    "analysis/clustering.py: others": "a key of `Topics.to_dict`: texts of the other topics",
    "analysis/dimension_cards.py: about": "a key of `Card.to_dict`: the dimension's meaning, as in `Dimension`",
    "bulk/near_duplicates.py: kept": "a key of `Duplicates.to_dict`: the text that stays, the opposite of `duplicate`",
    "cli/doctor.py: about": "a key of `pellucid doctor --json`: what was examined",
    "cli/doctor.py: found": "a key of `pellucid doctor --json`: in which state it is",
    "core/dimensions.py: about": "a field of `Dimension` and a column of dimensions.tsv: the dimension's meaning",
    "text/words.py: known": "a key of a coverage in every JSON form: how many words have a vector",
}
"""Names that stay, and why: most are keys and options that people have in their files and programs."""

UNFINISHED = ("explain/", "index/")
"""Packages in which some vague names are left, below the limit."""

MAX_VAGUE_NAMES = 100  # of the source, those that are defended included


@cache
def vague_names() -> list[str]:
    """Return "path: name" for every variable, argument, attribute, function and class that is called vaguely."""
    names = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = defined_name(node)
            if name.strip("_").lower() in VAGUE_NAMES or VAGUE_CONSTANT.fullmatch(name):
                names.append(f"{path.relative_to(SOURCE).as_posix()}: {name.strip('_')}")
    return names


def defined_name(node: ast.AST) -> str:
    """Return the name that a node of the syntax tree defines, "" if none."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else ""
    if isinstance(node, ast.Attribute):
        return node.attr if isinstance(node.ctx, ast.Store) else ""
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else ""


def test_names_say_what_they_hold():
    counts = Counter(vague_names())
    undefended = sorted(f"{name} (x{count})" for name, count in counts.items() if name not in DEFENDED)
    elsewhere = [name for name in undefended if not name.startswith(UNFINISHED)]
    assert not elsewhere, "say what it holds, as CONTRIBUTING's table does, or defend it here with a reason"
    assert counts.total() <= MAX_VAGUE_NAMES, undefended


def test_a_defended_name_is_used():
    assert not sorted(set(DEFENDED) - set(vague_names()))


def test_every_kind_of_definition_is_looked_at():
    code = "class Place:\n  def found(self, given, *, other=1):\n    self.kept = [one for one in given]\n    _MOST = 3"
    names = {name for node in ast.walk(ast.parse(code)) if (name := defined_name(node))}
    assert {"Place", "found", "given", "other", "kept", "one", "_MOST"} <= names
    assert VAGUE_CONSTANT.fullmatch("_MOST") and not VAGUE_CONSTANT.fullmatch("MAX_PAIRS")
