"""What the pages of results share: tables in Markdown, where they are written, and the name of the processor."""

from __future__ import annotations

import datetime
import platform
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[Any]], left: int = 1) -> str:
    """Return a table whose first `left` columns are text and the others numbers."""
    rule = "|".join(["---"] * left + ["---:"] * (len(header) - left))
    cells = [f"| {' | '.join(map(shown, line))} |" for line in [header, *lines]]
    return "\n".join([cells[0], f"|{rule}|", *cells[1:]]) + "\n"


def shown(value: Any) -> str:
    """Write a cell: a float with one decimal, None as a dash."""
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def processor() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor()


def wrapped(text: str) -> str:
    """Return a page with its paragraphs at lines of at most 120 characters; tables, headings and lists stay."""
    blocks = (block if block[0] in "|#-`" else _filled(block) for block in text.strip("\n").split("\n\n"))
    return "\n\n".join(blocks) + "\n"


def _filled(block: str) -> str:
    return textwrap.fill(" ".join(block.split()), 120, break_long_words=False, break_on_hyphens=False)


def measured() -> str:
    """Say when and on what figures were measured."""
    return f"Measured {datetime.date.today()} on {platform.machine()}, Python {platform.python_version()}."


def print_block(name: str, text: str, page: Path | None) -> None:
    """Print tables with the day, and write them into a page's block `name` where a page is given."""
    text = f"{text}\n{measured()}"
    print(text, flush=True)
    if page:
        write_block(page, name, text)


def write_block(page: Path, name: str, text: str) -> None:
    """Replace what stands in `page` between the comments `name` and "end of" the last part of `name`.

    Raises:
        LookupError: the page has no such comments.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name.rpartition('/')[2]} -->"
    content = page.read_text(encoding="utf-8")
    if begin not in content or end not in content:
        raise LookupError(f"{page} has no lines {begin!r} and {end!r}")
    before, rest = content.split(begin, 1)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
