"""Parts as Markdown: what a terminal shows, without bars."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pellucid.explain.views.parts import (
    AnyPart,
    Bars,
    Column,
    Fold,
    Heading,
    Lead,
    MarkedTexts,
    Note,
    TablePart,
    cut,
    visible,
)

_SPECIAL = re.compile(r"([\\`*\[\]<>|#~$&]|(?<!\w)_|_(?!\w))")  # an underscore inside a word is one
_OPENING = re.compile(r"^(\d*)([-+=.)])")  # of a list, or the line below a heading
_MAX_HEADING_LEVEL = 6
_LONGEST_TEXT = 1_500  # characters of an explained text


def markdown(parts: Iterable[AnyPart]) -> str:
    """Return the parts as Markdown."""
    return "\n\n".join(piece for part in parts for piece in _blocks(part, 2)) + "\n"


def _blocks(part: AnyPart, level: int) -> list[str]:
    """Return the blocks of a part, under a heading of `level`."""
    if isinstance(part, Heading):
        words = " ".join(filter(None, (part.title, part.value, part.after and f"({part.after})")))
        return [f"{'#' * level} {markdown_text(words)}"]
    if isinstance(part, Lead):
        return [_paragraph(part.text)]
    if isinstance(part, Note):
        written = _paragraph(part.text)
        return [f"**{written}**" if part.is_warning else written]
    if isinstance(part, Fold):
        title = " ".join(filter(None, (part.lead, part.summary)))
        inner = [piece for child in part.parts for piece in _blocks(child, min(level + 2, _MAX_HEADING_LEVEL))]
        return [f"{'#' * min(level + 1, _MAX_HEADING_LEVEL)} {markdown_text(title)}", *inner]
    if isinstance(part, MarkedTexts):
        return _texts(part)
    table = part.table() if isinstance(part, Bars) else part
    return [*([f"**{markdown_text(table.title)}**"] if table.title else []), _table(table)]


def _texts(part: MarkedTexts) -> list[str]:
    """Return each text, and below it, in words, what other media mark."""
    blocks = []
    for text in part.texts:
        written = "".join(piece.text for piece in cut(text.pieces, _LONGEST_TEXT))
        blocks.append(f"**{markdown_text(text.label)}:** {markdown_text(written)}".rstrip())
        if text.note:
            blocks.append(_paragraph(text.note))
    return blocks


def _table(table: TablePart) -> str:
    shown = [n for n, column in enumerate(table.columns) if column.kind != "bar"]
    lines = [[markdown_text(table.columns[n].title) for n in shown]]
    lines.append(["---:" if table.columns[n].kind == "number" else "---" for n in shown])
    lines += [[_cell(table.columns[n], row[n]) for n in shown] for row in (*table.rows, *table.sums)]
    if table.foot:
        lines.append([_cell(table.columns[n], table.foot[n]) for n in shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(column: Column, value: Any) -> str:
    written = markdown_text("".join(value) if column.kind == "phrases" else value or "")
    return f"<code>{written}</code>" if column.kind == "code" and written else written


def _paragraph(text: str) -> str:
    return _OPENING.sub(r"\1\\\2", markdown_text(text))


def markdown_text(text: str) -> str:
    """Return `text` on one line, with what Markdown would read as its written escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))
