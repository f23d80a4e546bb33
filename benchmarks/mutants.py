"""How many small changes of the code make a test fail: a sample of mutants of core/, explain/ and index/.

    make mutants
    make mutants MUTANTS="--count 400 --seed 1 --checkout ../another"

A mutant is one expression or statement of a function that is made another: a number, a text, an operator, a comparison,
an argument, what is assigned. Each is tried in a copy of the checkout, one for each commit, with the tests that run its
lines, until one fails; where a line runs while a test is set up, with all tests of that file. What was found is kept, a
line of JSON each, and a run that was stopped goes on. The survivors are listed: some mean the same as the code. A
sample of more mutants begins with those of the smaller one.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from papers.kit import Kept

PACKAGES = ("core", "explain", "index")
OTHERS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
          ast.Mod: ast.Div, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or,
          ast.Or: ast.And, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
          ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
          ast.GtE: ast.Gt}  # fmt: skip
NOT_RUN = ("annotation", "returns", "decorator_list")
TESTS = tuple(f"tests/{name}" for name in (*PACKAGES[::2], "conformance", "static", "dense", "text", "analysis",
              "evaluation", "ensemble", "cli", "server", "golden", "released", "contributing"))  # fmt: skip
MAX_SECONDS, MAX_WAIT = 300, 20  # of processor time for the tests of a mutant, and how many times as long they may wait
OUTCOMES = {0: "survived", 1: "killed", 2: "killed"}  # pytest's exit codes; 2: its files cannot be imported


class Mutant(NamedTuple):
    """A change of the code, and the lines whose tests may see it."""

    file: str
    start: tuple[int, int]  # line from 1, byte
    end: tuple[int, int]
    text: str
    lines: range


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node is made."""
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str(value)):
            yield ast.Constant(f"XX{value}XX")
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in OTHERS:
            yield type(node)(**vars(node) | {"op": OTHERS[type(op)]()})
        case ast.Compare(left, [op], others):
            yield ast.Compare(left, [OTHERS[type(op)]()], others)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Break() | ast.Continue():
            yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()
        case ast.Assign(targets, value) if not isinstance(value, ast.Constant):
            yield ast.Assign(targets, ast.Constant(None), lineno=0)
        case ast.Call(func, args, keywords):
            none = ast.Constant(None)
            positions = [n for n, argument in enumerate(args) if ast.unparse(argument) != "None"]
            yield from (ast.Call(func, [*args[:n], none, *args[n + 1 :]], keywords) for n in positions)
            yield from (ast.Call(func, args, keywords[:n] + keywords[n + 1 :]) for n in range(len(keywords)))


def mutants_in(node: ast.AST, file: str, lines: range | None = None) -> Iterator[Mutant]:
    """Yield the mutants of what stands in a node of a file; `lines`: those of its statement, None outside functions."""
    within = [(name, value if isinstance(value, list) else [value]) for name, value in ast.iter_fields(node)]
    for child in (child for name, values in within if name not in NOT_RUN for child in values):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if is_docstring or isinstance(child, ast.JoinedStr) or not isinstance(child, ast.AST):
            continue
        own = lines
        if isinstance(child, ast.FunctionDef):
            own = range(child.body[0].lineno, child.end_lineno + 1)
        elif isinstance(child, ast.stmt) and lines is not None:
            body = getattr(child, "body", None)
            own = range(child.lineno, max(body[0].lineno, child.lineno + 1) if body else child.end_lineno + 1)
        for text in map(ast.unparse, changes(child) if own else ()):
            made = f"({text})" if isinstance(child, ast.expr) else text
            place = (child.lineno, child.col_offset), (child.end_lineno, child.end_col_offset)
            yield Mutant(file, *place, made, own)
        yield from mutants_in(child, file, own)


def run_tests(tree: Path, *arguments: str, seconds: int | None = None) -> int:
    """Run tests of a copy of the checkout and return pytest's exit code, less than 0 if they take too long."""
    paths = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": paths, "COVERAGE_FILE": str(tree.parent / "lines.db")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (seconds, seconds)) if seconds else None
    with open(tree.parent / "log.txt", "w") as log:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log, preexec_fn=limit)
        try:
            return process.wait(seconds and MAX_WAIT * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def tried(tree: Path, mutant: Mutant, by_line: dict[int, list[str]]) -> dict[str, Any]:
    """Return what became of a mutant."""
    path, stem = tree / mutant.file, Path(mutant.file).stem
    found = {"outcome": "no tests", "file": mutant.file, "line": mutant.start[0], "made": mutant.text}
    # All cases of a test, or all tests of a file where set-up runs the line; those named like the mutant's file first.
    ran = [context.rpartition("|") for line in mutant.lines for context in by_line.get(line, ()) if context]
    tests = sorted(
        {name.split("[" if phase == "run" else "::")[0] for name, _, phase in ran}, key=lambda t: stem not in t
    )
    if not tests:
        return found
    code, stat, began = path.read_bytes(), path.stat(), time.time()
    ends = [0, *np.cumsum([len(line) for line in code.splitlines(keepends=True)]).tolist()]
    start, end = (ends[line - 1] + byte for line, byte in (mutant.start, mutant.end))
    try:
        path.write_bytes(code[:start] + mutant.text.encode() + code[end:])
        status = run_tests(tree, "-x", *tests, seconds=MAX_SECONDS)
        found["outcome"] = OUTCOMES.get(status, "time out" if status < 0 else f"pytest ends with {status}")
    finally:
        path.write_bytes(code)
        os.utime(path, (stat.st_atime, stat.st_mtime))  # as what is compiled of it expects
    return found | {"code": code[start:end].decode(), "tests": len(tests), "seconds": round(time.time() - began, 1)}


def main() -> None:
    """Try them, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=Path(), help="whose code and tests are tried [this one]")
    parser.add_argument("--work-dir", type=Path, default=Path(".venv-mutants"), help="what is kept [%(default)s]")
    parser.add_argument("--count", type=int, default=200, help="of the sample [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="of the sample [%(default)s]")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders and files [those of core, index, ...]")
    options = parser.parse_args()
    from coverage import CoverageData  # pytest-cov brings it

    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=options.checkout, text=True).strip()
    tree = options.work_dir.absolute() / commit / "tree"
    if not tree.exists():
        shutil.copytree(
            options.checkout,
            tree,
            symlinks=True,
            ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__"),
        )
    packages = [f"src/pellucid/{name}" for name in PACKAGES]
    done = tree.parent / "lines.done"
    if not done.exists():
        traced = [*(f"--cov={name}" for name in packages), "--cov-context=test", "--cov-report="]
        if run_tests(tree, *options.tests, *traced):
            sys.exit(f"tests fail without a mutant, see {tree.parent / 'log.txt'}")
        done.touch()
    files = [str(file.relative_to(tree)) for name in packages for file in sorted((tree / name).rglob("*.py"))]
    mutants = [mutant for file in files for mutant in mutants_in(ast.parse((tree / file).read_bytes()), file)]
    lines, kept, found = CoverageData(tree.parent / "lines.db"), Kept(tree.parent / f"seed-{options.seed}.jsonl"), []
    lines.read()
    for mutant in random.Random(options.seed).sample(mutants, len(mutants))[: options.count]:
        by_line = lines.contexts_by_lineno(str(tree / mutant.file))
        key = " ".join(map(str, [mutant.file, *mutant.start, *mutant.end, mutant.text]))
        found.append(kept.get(key, partial(tried, tree, mutant, by_line)))
    for one in found:
        if one["outcome"] != "killed":
            print(f"{one['file']}:{one['line']} {one['outcome']}: {one.get('code', '')} -> {one['made']}")
    outcomes = Counter(one["outcome"] for one in found)
    n, killed = len(found), outcomes["killed"]
    centre, half = (killed + 1.92) / (n + 3.84), 1.96 * (killed * (n - killed) / n + 0.96) ** 0.5 / (n + 3.84)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    print(f"{commit}: {n} of {len(mutants):,} mutants: {counts}; killed {killed / n:.0%}, "
          f"95 % interval {max(0, centre - half):.0%} to {centre + half:.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
