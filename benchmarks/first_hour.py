"""The first hour of a new user: what README and tutorials say, done from nothing, with time and output of each step.

    python -m benchmarks.first_hour --output benchmarks/first_hour.md

Clones this repository into an empty folder and makes an environment as the README says. Then each page in turn: its
commands line by line, its Python snippets one after the other in one process. A server is started, asked and ended.
Not run, and listed as such: `py` snippets and commands that need torch or a hub, and `make`, which CI runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/quickstart.md", "docs/choose.md", *sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.ipynb")
))  # fmt: skip
OWN_FILES = ("texts.txt", "corpus.txt", "sentences.txt")
"""What pages call the reader's own texts; each is a copy of examples/sentences.txt."""

SNIPPETS = """
import contextlib, io, json, sys, time
names = {"__name__": "page"}
for code in json.load(sys.stdin):
    said, begun = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "snippet", "exec"), names)
    print(json.dumps([time.perf_counter() - begun, said.getvalue()]))
"""


class Step(NamedTuple):
    """One command or snippet of a page.

    Attributes:
        what: its first line.
        seconds: how long it took; None where it was not run.
        said: the last line that it printed, or why it was not run.
    """

    what: str
    seconds: float | None
    said: str


def main() -> None:
    """Walk through the pages; end with status 1 where a step fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "pages", nargs="*", default=PAGES, help="Markdown files and notebooks of the repository, in order"
    )
    parser.add_argument("--output", type=Path, help="where the walk is written as Markdown; without it, printed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        text = walk(given.pages, Path(work))
    given.output.write_text(text, encoding="utf-8") if given.output else print(text)


def walk(pages: Sequence[str], work: Path) -> str:
    """Do what the pages say in a clone below `work`; return what happened as Markdown."""
    begun = time.perf_counter()
    clone, environment = work / "pellucid", work / "environment"
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    place = Place(clone, {**os.environ, "PATH": path, "PELLUCID_PROGRESS": "0", "HF_HUB_OFFLINE": "1"})
    install = re.search(r"^pip install .*?(?=\s+#|$)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert install is not None
    steps = [
        Place(work, place.env).command(f"git clone --quiet {ROOT} {clone}", "git clone"),
        Place(work, place.env).command(f"{sys.executable} -m venv {environment}", "python3 -m venv"),
        place.command(f"{install[0]} --quiet", install[0]),
    ]
    for name in OWN_FILES:
        shutil.copy(clone / "examples/sentences.txt", clone / name)
    parts = ["## Installation", *table(steps)]
    for page in pages:
        parts += [f"## {page}", *table(place.page(page))]
    minutes = (time.perf_counter() - begun) / 60
    intro = (
        f"Written by `benchmarks/first_hour.py` on {date.today()}: {platform.machine()}, "
        f"{os.cpu_count()} cores that other work shares, Python {platform.python_version()}, "
        f"{minutes:.1f} minutes in all. {', '.join(f'`{name}`' for name in OWN_FILES)} are `examples/sentences.txt`."
    )
    return "\n".join(["# The first hour: a walk from nothing", "", intro, "", *parts]) + "\n"


class Place(NamedTuple):
    """Where commands run.

    Attributes:
        folder: the current folder.
        env: the variables.
    """

    folder: Path
    env: dict[str, str]

    def page(self, page: str) -> Iterator[Step]:
        """Do what a page says."""
        if page.endswith(".ipynb"):
            yield from self.notebook(ROOT / page)
            return
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```(python|py|bash|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        said = iter(self.snippets([block for language, block in blocks if language == "python"]))
        for language, block in blocks:
            if language == "python":
                yield next(said)
            elif language == "py":
                yield Step(_first(block), None, "not run: needs torch, a hub or data of yours")
            else:
                for line in filter(None, (re.sub(r"\s+#.*", "", line) for line in block.splitlines())):
                    yield self.line(line)

    def notebook(self, path: Path) -> Iterator[Step]:
        """Install what a notebook needs and run its cells, in its folder."""
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        needed = re.search(r"pellucid(\[[\w,]+\])", "".join("".join(cell["source"]) for cell in cells))
        if needed and "torch" in needed[1]:
            yield Step(path.name, None, "not run: needs torch and a hub")
            return
        if needed:
            yield self.command(f'pip install --quiet ".{needed[1]}"', f'pip install ".{needed[1]}"')
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield from Place(self.folder / "examples", self.env).snippets(codes)

    def line(self, line: str) -> Step:
        """Do one line of a shell."""
        if line.startswith(("pip install", "make")):
            return Step(line, None, "not run: installed above, or run by CI")
        if re.search(r"sentence-transformers/|MODEL|\bmy-model\b", line):
            return Step(line, None, "not run: needs torch and a hub")
        return self.server(line) if line.startswith("pellucid serve") else self.command(line, line)

    def command(self, line: str, called: str) -> Step:
        """Run a command to its end."""
        begun = time.perf_counter()
        done = subprocess.run(line, shell=True, cwd=self.folder, env=self.env, capture_output=True, text=True, input="")
        if done.returncode:
            raise SystemExit(f"{line}\nended with status {done.returncode}\n{done.stderr[-2000:]}")
        return Step(called, time.perf_counter() - begun, _last(done.stdout))

    def server(self, line: str) -> Step:
        """Start a server, wait until it answers, end it."""
        begun = time.perf_counter()
        running = subprocess.Popen(
            ["exec " + line], shell=True, cwd=self.folder, env=self.env, stderr=subprocess.DEVNULL
        )
        try:
            while True:
                if running.poll() is not None or time.perf_counter() - begun > 60:
                    raise SystemExit(f"{line}\ndid not answer")
                try:
                    with urllib.request.urlopen("http://127.0.0.1:8080/health") as answer:
                        return Step(line, time.perf_counter() - begun, f"answers with status {answer.status}")
                except OSError:
                    time.sleep(0.05)
        finally:
            running.terminate()
            running.wait()

    def snippets(self, codes: list[str]) -> list[Step]:
        """Run the Python snippets of a page in one process."""
        program = ["python", "-c", SNIPPETS]
        done = subprocess.run(
            program, cwd=self.folder, env=self.env, capture_output=True, text=True, input=json.dumps(codes)
        )
        if done.returncode:
            raise SystemExit(f"a snippet failed:\n{done.stderr[-3000:]}")
        told = [json.loads(line) for line in done.stdout.splitlines()]
        return [Step(_first(code), seconds, _last(said)) for code, (seconds, said) in zip(codes, told, strict=True)]


def _first(block: str) -> str:
    """The line that says most of a snippet: the first that imports nothing."""
    lines = [line for line in block.splitlines() if line.strip() and not line.startswith(("import ", "from ", "#"))]
    return lines[0] if lines else block.splitlines()[0]


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else "says nothing"


def table(steps: Iterator[Step] | list[Step]) -> list[str]:
    """Return steps as the lines of a Markdown table."""
    rows = ["", "| step | s | the last line it prints |", "|---|---:|---|"]
    for step in steps:
        what, said = (f"`{part[:90].replace('|', '¦').replace('`', chr(39))}`" for part in (step.what, step.said))
        rows.append(f"| {what} | {'' if step.seconds is None else f'{step.seconds:.1f}'} | {said} |")
    return [*rows, ""]


if __name__ == "__main__":
    main()
