"""Write docs/cli.md from the commands' own --help: `make help-docs`. The tests hold the two equal."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from pellucid.cli.app import app

PAGE = Path(__file__).with_name("cli.md")

_HEAD = """<!-- Written by `make help-docs` from the commands' --help. Do not edit. -->

# Command line

`pellucid COMMAND --help` shows the same. Results go to stdout, everything else to stderr; exit codes are in
[When something is wrong](errors.md#exit-codes-of-the-command-line).
"""


def page() -> str:
    """Return the page: the help of `pellucid`, then of each command."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    nested = ([name, *(f"{name} {inner}" for inner in getattr(c, "commands", ()))] for name, c in commands.items())
    return _HEAD + "".join(_section(command) for command in ["", *chain.from_iterable(nested)])


def _section(command: str) -> str:
    arguments = [*command.split(), "--help"]
    shown = CliRunner().invoke(app, arguments, prog_name="pellucid", env={"COLUMNS": "80"}).stdout
    return f"\n## pellucid {command}".rstrip() + f"\n\n```text\n{shown.rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
