"""Parts as HTML: one self-contained piece, no script, no address, every text escaped; its style is in `page.css`.

Backgrounds are transparent or see-through, and text keeps the colour of the page around it. Light or dark follows the
theme of a notebook or documentation, else the reader's system. Blue adds to the score, orange lowers it: distinct for
colour-blind readers; every number has a sign too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pellucid.explain.views.parts import (
    WEAK,
    AnyPart,
    Bars,
    Column,
    Fold,
    Heading,
    Lead,
    MarkedTexts,
    Note,
    Piece,
    TablePart,
    cut,
    shorten,
)
from pellucid.text.unicode import well_formed

_LONGEST_TEXT = 20_000  # characters of a text whose words are marked
_LONGEST_CELL = 600  # characters of a text in a table
_MAX_TINT_OPACITY = 0.62  # text on it keeps a contrast above 4.5 in both schemes
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"} | {
    code: 0xFFFD
    for code in (*range(0x7F, 0xA0), 0x202D, 0x202E)  # the last two turn the order of letters around
}

_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8").strip()

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
</head>
<body>
{body}
</body>
</html>
"""


def page(parts: Iterable[AnyPart], *, fragment: bool) -> str:
    """Return the parts as a page, or as a piece of one."""
    parts = list(parts)
    # The two classes keep MathJax of a notebook from setting what stands between dollar signs as a formula.
    body = (
        f'<div class="pellucid mathjax_ignore tex2jax_ignore"><style>{_STYLE}</style>\n'
        + "\n".join(map(_html, parts))
        + "\n</div>"
    )
    if fragment:
        return body
    headings = [part for part in parts if isinstance(part, Heading)]
    title = f"{headings[0].title} {headings[0].value}" if headings else "pellucid"
    return _PAGE.format(title=safe(shorten(title, 120)), body=f'<main style="padding: 1em 1.4em">\n{body}\n</main>')


def safe(text: str) -> str:
    """Escape `text` for HTML, after making control characters visible."""
    return escape(well_formed(text).translate(_CONTROLS))


def _html(part: AnyPart) -> str:
    if isinstance(part, Heading):
        after = f' <span class="dim">{safe(part.after)}</span>' if part.after else ""
        return f"<h2><span>{safe(part.title)}</span> <bdi>{safe(part.value)}</bdi>{after}</h2>"
    if isinstance(part, Lead):
        return f'<p class="lead" dir="auto">{safe(part.text)}</p>'
    if isinstance(part, Note):
        return f'<p class="{"warning" if part.is_warning else "dim"}" dir="auto">{safe(part.text)}</p>'
    if isinstance(part, Fold):
        inner = "\n".join(map(_html, part.parts))
        state = " open" if part.is_open else ""
        lead = f'<span class="dim">{safe(part.lead)}</span> ' if part.lead else ""
        summary = f"<summary>{lead}<bdi>{safe(part.summary)}</bdi></summary>"
        return f"<details{state}>{summary}<div>{inner}</div></details>"
    if isinstance(part, MarkedTexts):
        return _texts(part)
    return _table(part.table() if isinstance(part, Bars) else part)


def _sign(value: float) -> str:
    return "for" if value > 0 else "against" if value < 0 else ""


def _texts(part: MarkedTexts) -> str:
    """Return texts as the user wrote them, their words tinted by what they add, and what the tints mean."""
    lines = []
    for text in part.texts:
        pieces = "".join(map(_piece, cut(text.pieces, _LONGEST_TEXT)))
        note = f'<p class="dim" dir="auto">{safe(text.note)}</p>' if text.note else ""
        label = f'<p class="dim">{safe(text.label)}</p>'
        lines.append(f'<div class="text">{label}<p class="own" dir="auto">{pieces}</p>{note}</div>')
    is_tinted = any(piece.kind == "word" for text in part.texts for piece in text.pieces)
    legend = (
        '<p class="legend"><mark class="for" style="--tint:.4">adds to the score</mark>&ensp;'
        '<mark class="against" style="--tint:.4">lowers it</mark>&ensp;'
        '<span class="unknown">not in the vocabulary</span></p>'
    )
    return "\n".join([*lines, legend if is_tinted else ""])


def _piece(piece: Piece) -> str:
    if piece.kind == "plain":
        return safe(piece.text)
    if piece.kind == "more":
        return f'<span class="dim">{piece.text}</span>'
    tooltip = f'title="{safe(piece.tooltip)}"'
    if piece.kind == "unknown":
        return f'<span class="unknown" {tooltip}>{safe(piece.text)}</span>'
    if abs(piece.strength) < WEAK:
        return f"<span {tooltip}>{safe(piece.text)}</span>"
    tint = abs(piece.strength) * _MAX_TINT_OPACITY
    return f'<mark class="{_sign(piece.strength)}" style="--tint:{tint:.2f}" {tooltip}>{safe(piece.text)}</mark>'


def _table(table: TablePart) -> str:
    """Return a table that scrolls sideways where it is wider than the page."""
    title = f"<h3>{safe(table.title)}</h3>" if table.title else ""
    spans = [_span([row[n] for row in table.rows]) for n in range(len(table.columns))]

    def line(row: tuple[Any, ...], style: str = "") -> str:
        return f"<tr{style}>{''.join(map(_cell, table.columns, row, spans))}</tr>"

    head = "".join(f'<th class="{column.kind}">{safe(column.title)}</th>' for column in table.columns)
    head = f"<thead><tr>{head}</tr></thead>" if any(column.title for column in table.columns) else ""
    rows = "".join(map(line, table.rows)) + "".join(line(row, ' class="rest"') for row in table.sums)
    foot = f"<tfoot>{line(table.foot)}</tfoot>" if table.foot else ""
    return f'{title}<div class="scroll"><table class="report">{head}<tbody>{rows}</tbody>{foot}</table></div>'


def _span(values: Sequence[Any]) -> tuple[float, float]:
    """Return the ends of the scale of a column's bars: 1 or -1 on the side of the longest, 0 or the longest beyond."""
    numbers = [0.0, *(value for value in values if isinstance(value, float))]
    low, high = min(numbers), max(numbers)
    return (low, 1.0) if high >= -low else (-1.0, high)


def _cell(column: Column, value: Any, span: tuple[float, float]) -> str:
    if column.kind == "bar":
        return f'<td class="bar">{_bar(value, *span) if isinstance(value, float) else ""}</td>'
    if column.kind == "phrases":
        pieces = [safe(shorten(piece, _LONGEST_CELL)) for piece in value]
        return f'<td class="text">{"".join(p if n % 2 else f"<bdi>{p}</bdi>" for n, p in enumerate(pieces))}</td>'
    written = safe(shorten(value or "", _LONGEST_CELL))
    if column.kind == "code":
        return f'<td class="code"><code>{written}</code></td>'
    if column.kind == "number":
        return f'<td class="number">{written}</td>'
    return f'<td class="text"><bdi>{written}</bdi></td>'


def _bar(value: float, low: float, high: float) -> str:
    extent = high - low
    left = (min(value, 0.0) - low) / extent
    sign = _sign(value)
    style = f"left:{left:.1%};width:{abs(value) / extent:.1%}"
    return f'<div><i class="{sign}" style="{style}"></i></div>' if sign else ""
