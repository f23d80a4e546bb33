"""Commands of `pellucid` that are run in the process of a test."""

from collections.abc import Iterator
from typing import Any

from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from pellucid.cli.app import app


def run_command(*arguments: object, code: int = 0, stdin: str | bytes | None = None) -> Result:
    """Run a command; it must end with exit code `code`."""
    result: Any = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, prog_name="pellucid")
    assert result.exit_code == code, f"{result.exit_code}: {result.output} {result.exception!r}"
    return result


def all_commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words that call each command, such as ("index", "add"), and the command."""
    command = command or get_command(app)
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command
