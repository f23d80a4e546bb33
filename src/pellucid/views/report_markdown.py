"""The Markdown view of a report: what its terminal view shows, without bars."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pellucid.views.render import visible
from pellucid.views.report import Column, Fold, Heading, Note, Part, Table, Word

_SPECIAL = re.compile(r"([\\`*\[\]<>|#~$&]|(?<!\w)_|_(?!\w))")  # an underscore inside a word is one
_OPENING = re.compile(r"^(\d*)([-+=.)])")  # of a list, or the line below a heading
_DEEPEST = 6  # level of a heading


def report_markdown(parts: Sequence[Part]) -> str:
    """Return the parts as Markdown."""
    return "\n\n".join(piece for part in parts for piece in _markdown(part, 2)) + "\n"


def _markdown(part: Part, level: int) -> list[str]:
    """Return the blocks of a part, under a heading of `level`."""
    if isinstance(part, Heading):
        words = " ".join(filter(None, (part.title, part.value, part.after and f"({part.after})")))
        return [f"{'#' * level} {markdown_text(words)}"]
    if isinstance(part, Note):
        written = _OPENING.sub(r"\1\\\2", markdown_text(part.text))
        return [f"**{written}**" if part.is_warning else written]
    if isinstance(part, Fold):
        title = " ".join(filter(None, (part.lead, part.summary)))
        inner = [piece for child in part.parts for piece in _markdown(child, min(level + 2, _DEEPEST))]
        return [f"{'#' * min(level + 1, _DEEPEST)} {markdown_text(title)}", *inner]
    if isinstance(part, Table):
        return [*([f"**{markdown_text(part.title)}**"] if part.title else []), _table(part)]
    return [f"{markdown_text(part.title)}: {sum(part.counts):,} between {part.edges[0]:.3f} and {part.edges[-1]:.3f}"]


def _table(table: Table) -> str:
    shown = [n for n, column in enumerate(table.columns) if column.kind != "bar"]
    lines = [[markdown_text(table.columns[n].title) for n in shown]]
    lines.append(["---:" if table.columns[n].kind == "number" else "---" for n in shown])
    lines += [[_cell(table.columns[n], row[n]) for n in shown] for row in table.rows]
    if table.foot:
        lines.append([markdown_text(str(table.foot[n] or "")) for n in shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(column: Column, value: Any) -> str:
    if column.kind == "words":
        return ", ".join(map(_word, value))
    written = markdown_text(value or "")
    return f"<code>{written}</code>" if column.kind == "code" and written else written


def _word(word: Word) -> str:
    around = {"strong": "**", "faint": "*"}.get(word.mark, "")
    return f"{around}{markdown_text(word.text)}{around}"


def markdown_text(text: str) -> str:
    """Return `text` on one line, with what Markdown would read as its own escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))
