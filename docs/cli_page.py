"""Write docs/cli.md from the commands' own --help: `make help-docs`. A test compares the two."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from itertools import chain
from pathlib import Path
from textwrap import fill

from typer.main import get_command
from typer.testing import CliRunner

from pellucid.cli.app import app

PAGE = Path(__file__).with_name("cli.md")

_TEXT_TYPES = re.compile(r" <(?:list\[)?(?:str|path|Path)\]?>")  # no news: an option without a type is a text or a path
_SHARED_BY = 2  # commands with an argument or option of the same help; from here on the page describes it once

_HEAD = """<!-- Written by `make help-docs` from the commands' --help. Do not edit. -->

# Command line

`pellucid COMMAND --help` shows a command with all its options; here, [arguments and options of many
commands](#arguments-and-options-of-many-commands) are described once; bounds of numbers, types of text and further
examples are left out. Results go to stdout, everything else to stderr. See also [exit
codes](errors.md#exit-codes-of-the-command-line).
"""


def page() -> str:
    """Return the page: the help of `pellucid`, the options of many commands, and the help of each command."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    nested = ([name, *(f"{name} {inner}" for inner in getattr(c, "commands", ()))] for name, c in commands.items())
    texts = {command: _shortened(help_text(command)) for command in chain.from_iterable(nested)}
    counts = Counter(chain.from_iterable(set(option_blocks(text).values()) for text in texts.values()))
    commonest = {_by_name(option): option for option in sorted(counts, key=lambda option: (counts[option], option))}
    shared = {option for option in commonest.values() if counts[option] >= _SHARED_BY}
    rows = "".join(
        f"| `{_TEXT_TYPES.sub('', flags)}` | {description} |\n" for flags, description in sorted(shared, key=_by_name)
    )
    table = f"\n## Arguments and options of many commands\n\n| | |\n|---|---|\n{rows}"
    sections = "".join(_section(f"pellucid {command}", _without(text, shared)) for command, text in texts.items())
    return _HEAD + _overview(help_text("")) + table + _TEXT_TYPES.sub(lambda match: " " * len(match[0]), sections)


def _overview(text: str) -> str:
    """Return the help of `pellucid`: its groups of commands as links, then the rest of it."""
    links = []
    for block, title, lines in re.findall(r"(?m)(^([A-Z][\w ]+):\n((?:  .*\n)+)\n)", text):
        if title != "Options":
            names = re.findall(r"(?m)^  (\w+)  ", lines)
            links.append(f"- {title}: {', '.join(f'[{name}](#pellucid-{name})' for name in names)}\n")
            text = text.replace(block, "", 1)
    return f"\n{''.join(links)}" + _section("pellucid", text)


def help_text(command: str) -> str:
    """Return what `pellucid COMMAND --help` prints, 80 characters wide."""
    result = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="pellucid", env={"COLUMNS": "80"})
    return result.stdout.rstrip()


def option_blocks(text: str) -> dict[str, tuple[str, str]]:
    """Return the arguments and options of a help text: the lines of each, and its flags and description."""
    blocks = re.findall(r"(?m)^  (?:-|[\w.]+ <).*\n?(?:^ {10,}.*\n?)*", text)
    parts = ((block, re.split(r" {2,}", block.strip(), maxsplit=1)) for block in blocks)
    return {block: (part[0], re.sub(r"\s+", " ", "".join(part[1:])).replace("|", "\\|")) for block, part in parts}


def _shortened(text: str) -> str:
    """Return a help text without the bounds of numbers, words that repeat its usage, and all but three examples."""
    text = re.sub(r"^Usage: (pellucid(?: \w+)*)(?: \[OPTIONS\])?", r"\1", text).replace(" range>", ">      ")
    text = re.sub(r"(  Examples:\n(?:    .*\n){3})(?:    .*\n)+", r"\1", text)
    text = re.sub(r";\s+(?:\d+<=)?x[<>]=?\d+\]", "]", text)
    return re.sub(r"\s+\[(?:required|(?:\d+<=)?x[<>]=?\d+)\]", "", text)


def _by_name(option: tuple[str, str]) -> str:
    """Return the long name of an option."""
    return re.sub(r"^-\w, ", "", option[0]).split(" ")[0]


def _without(text: str, shared: Set[tuple[str, str]]) -> str:
    """Return a help text without the descriptions of shared options, which it names in one line."""
    names = []
    for block, option in option_blocks(text).items():
        if option in shared:
            text = text.replace(block, "", 1)
            names += [name for name in (_by_name(option),) if name != "--help"]
    text = re.sub(r"\n(?:Arguments|Options):\s*(?=\n\n|$)", "\n", text.rstrip() + "\n")
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"\nCommands:\n(?:  .*\n)+", "", text)).rstrip()  # each has a section
    also = fill(f"Also: {', '.join(names)}", 80, subsequent_indent="  ", break_on_hyphens=False)
    return f"{text}\n\n{also}" if names else text


def _section(title: str, text: str) -> str:
    return f"\n## {title}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
