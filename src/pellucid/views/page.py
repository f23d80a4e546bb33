"""Parts as HTML: self-contained, without scripts and addresses, every text escaped.

Backgrounds are transparent or see-through tints and text keeps the colour of the page around it, so that the piece
reads on light and on dark. It follows the reader's system, and where a notebook or documentation theme says otherwise,
that. Blue adds to the score, orange lowers it: colours that are distinct for colour-blind readers; every number has a
sign too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.text import well_formed
from pellucid.views.parts import (
    MARKS,
    WEAK,
    AnyPart,
    Bars,
    Column,
    Fold,
    Heading,
    Histogram,
    MarkedText,
    MarkedTexts,
    MarkedWord,
    Matrix,
    Note,
    Piece,
    TablePart,
    cell_number,
    cut,
    decimals,
    shorten,
)

_LONGEST_TEXT = 20_000  # characters of a text whose words are marked
_LONGEST_CELL = 600  # characters of a text in a table
_LONGEST_WORD = 40  # characters of a word among others
_MATRIX_WORDS = 16  # a side; more do not fit a screen
_DEEPEST = 0.62  # opacity of the strongest tint; text on it keeps a contrast above 4.5 in both schemes
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"} | {
    code: 0xFFFD
    for code in (*range(0x7F, 0xA0), 0x202D, 0x202E)  # the last two turn the order of letters around
}

_LIGHT = "--for: 0 114 178; --against: 213 94 0; --line: rgb(0 0 0 / .22)"
_DARK = "--for: 56 150 220; --against: 230 130 30; --line: rgb(255 255 255 / .28)"
_ON_LIGHT = '[data-jp-theme-light="true"], .vscode-light, [data-theme="light"], [data-md-color-scheme="default"]'
_ON_DARK = (
    '[data-jp-theme-light="false"], .vscode-dark, html[theme=dark], [data-theme="dark"], [data-md-color-scheme="slate"]'
)
_STYLE = """
.pellucid { LIGHT; font: 14px/1.5 system-ui, sans-serif; max-width: 62em; background: transparent; }
@media (prefers-color-scheme: dark) { .pellucid { DARK; } }
:is(ON_LIGHT) .pellucid { LIGHT; }
:is(ON_DARK) .pellucid { DARK; }
.pellucid p { margin: .2em 0; }
.pellucid .warning { font-weight: 600; border-left: 3px solid rgb(var(--against)); padding-left: .6em; }
.pellucid .dim { opacity: .72; font-size: .93em; }
.pellucid .text { margin: .8em 0; padding-left: .8em; border-left: 2px solid var(--line); }
.pellucid .text .own { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 18em; overflow: auto;
  font-size: 1.1em; line-height: 1.8; }
.pellucid mark { color: inherit; border-radius: .2em; padding: .1em 0; background: transparent; }
.pellucid .for { background: rgb(var(--for) / var(--tint)) !important; }
.pellucid .against { background: rgb(var(--against) / var(--tint)) !important; }
.pellucid mark.for { border-bottom: 2px solid rgb(var(--for)); }
.pellucid mark.against { border-bottom: 2px dashed rgb(var(--against)); }
.pellucid .unknown { border-bottom: 2px dotted; opacity: .72; }
.pellucid .legend { font-size: .9em; }
.pellucid .scroll { overflow-x: auto; }
.pellucid table { border-collapse: collapse; margin: 1em 0; border: 0; font-size: 1em; color: inherit; }
.pellucid tr, .pellucid th, .pellucid td { background: transparent !important; color: inherit; border: 0; }
.pellucid th { font-weight: 600; }
.pellucid caption { text-align: start; white-space: nowrap; caption-side: top; color: inherit; padding: 0 0 .3em; }
.pellucid .grid td { width: 3em; min-width: 3em; height: 2em; padding: .1em; text-align: center; font-size: .86em;
  font-variant-numeric: tabular-nums; border: 1px solid var(--line); }
.pellucid .grid th { font-weight: 400; padding: .2em .5em; text-align: right; white-space: nowrap; }
.pellucid .grid thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }
.pellucid .grid thead td { border: 0; }
.pellucid .grid .sum { border: 0; font-weight: 600; opacity: .85; }
.pellucid h2 { font-size: 1.35em; font-weight: 600; margin: .2em 0 .4em; line-height: 1.3; color: inherit; }
.pellucid h2 span { font-weight: 400; opacity: .72; }
.pellucid h2 bdi { margin: 0 .2em; }
.pellucid h2 .dim { font-size: .7em; }
.pellucid h3 { font-size: 1em; font-weight: 600; margin: 1.4em 0 .3em; color: inherit; }
.pellucid table.report { margin: .3em 0 1em; }
.pellucid .report td, .pellucid .report th { padding: .22em 1.2em .22em 0; text-align: start; vertical-align: top; }
.pellucid .report .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.pellucid .report thead th { border-bottom: 1px solid var(--line); font-weight: 600; white-space: nowrap; }
.pellucid .report tbody tr + tr td { border-top: 1px solid var(--rule); }
.pellucid .report tr.rest { opacity: .72; }
.pellucid .report tfoot td { border-top: 1px solid var(--line); font-weight: 600; }
.pellucid .report .text { margin: 0; padding-left: 0; border-left: 0; max-width: 40em; overflow-wrap: anywhere; }
.pellucid .report td.bar { width: 9em; min-width: 5em; padding-right: 1.2em; }
.pellucid .report .bar div { position: relative; height: .8em; margin-top: .35em; }
.pellucid .report .bar i { position: absolute; top: 0; bottom: 0; min-width: 1px; border-radius: 2px; --tint: 1; }
.pellucid .report code { font: .88em ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  background: transparent; color: inherit; padding: 0; }
.pellucid .histogram { display: flex; align-items: flex-end; height: 4.5em; gap: 1px; max-width: 30em;
  border-bottom: 1px solid var(--line); }
.pellucid .histogram i { flex: 1; border-radius: 1px 1px 0 0; background: var(--line); }
.pellucid .histogram i.for, .pellucid .histogram i.against { --tint: 1; }
.pellucid .ends { display: flex; justify-content: space-between; max-width: 30em; }
.pellucid details { border-top: 1px solid var(--line); padding: .45em 0; }
.pellucid details > summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
.pellucid summary .dim { font-weight: 400; font-variant-numeric: tabular-nums; display: inline-block; min-width: 4.5em;
  margin-right: .6em; }
.pellucid details > div { padding: .3em 0 .8em 1.1em; }
.pellucid .report td.words { line-height: 1.9; overflow-wrap: anywhere; }
.pellucid .report .words span, .pellucid .report .words mark { display: inline-block; margin-right: .7em;
  padding: 0 .25em; line-height: 1.5; }
.pellucid .words mark.faint { border-bottom-style: dashed; }
.pellucid { --rule: rgb(128 128 128 / .18); }
""".strip()
_STYLE = _STYLE.replace("ON_LIGHT", _ON_LIGHT).replace("ON_DARK", _ON_DARK)
_STYLE = _STYLE.replace("LIGHT;", f"{_LIGHT};").replace("DARK;", f"{_DARK};")

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
    body = f'<div class="pellucid"><style>{_STYLE}</style>\n' + "\n".join(map(_html, parts)) + "\n</div>"
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
    if isinstance(part, Note):
        return f'<p class="{"warning" if part.is_warning else "dim"}" dir="auto">{safe(part.text)}</p>'
    if isinstance(part, Fold):
        inner = "\n".join(map(_html, part.parts))
        state = " open" if part.is_open else ""
        lead = f'<span class="dim">{safe(part.lead)}</span> ' if part.lead else ""
        summary = f"<summary>{lead}<bdi>{safe(part.summary)}</bdi></summary>"
        return f"<details{state}>{summary}<div>{inner}</div></details>"
    if isinstance(part, MarkedTexts):
        return "\n".join([*map(_text, part.texts), _legend(part)])
    if isinstance(part, Histogram):
        return _histogram(part)
    if isinstance(part, Matrix):
        return _grid(part.folded(_MATRIX_WORDS))
    return _table(part.table() if isinstance(part, Bars) else part)


def _sign(value: float) -> str:
    return "for" if value > 0 else "against" if value < 0 else ""


def _tint(strength: float) -> str:
    """Return the class and tint of a strength from -1 to 1, as attributes."""
    return f'class="{_sign(strength)}" style="--tint:{min(abs(strength), 1.0) * _DEEPEST:.2f}"'


def _text(text: MarkedText) -> str:
    """Return a text as the user wrote it, its words tinted by what they add."""
    own = "".join(map(_piece, cut(text.pieces, _LONGEST_TEXT)))
    note = f'<p class="dim" dir="auto">{safe(text.note)}</p>' if text.note else ""
    return f'<div class="text"><p class="dim">{safe(text.label)}</p><p class="own" dir="auto">{own}</p>{note}</div>'


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
    return f"<mark {_tint(piece.strength)} {tooltip}>{safe(piece.text)}</mark>"


def _legend(part: MarkedTexts) -> str:
    """Say what the tints mean, where words are tinted."""
    if not any(piece.kind == "word" for text in part.texts for piece in text.pieces):
        return ""
    return (
        '<p class="legend"><mark class="for" style="--tint:.4">adds to the score</mark>&ensp;'
        '<mark class="against" style="--tint:.4">lowers it</mark>&ensp;'
        '<span class="unknown">not in the vocabulary</span></p>'
    )


def _table(table: TablePart) -> str:
    """Return a table that scrolls sideways where it is wider than the page."""
    title = f"<h3>{safe(table.title)}</h3>" if table.title else ""
    spans = [_span([row[n] for row in table.rows]) for n in range(len(table.columns))]

    def line(row: tuple[Any, ...], style: str = "") -> str:
        return f"<tr{style}>{''.join(map(_cell, table.columns, row, spans))}</tr>"

    head = "".join(f'<th class="{column.kind}">{safe(column.title)}</th>' for column in table.columns)
    head = f"<thead><tr>{head}</tr></thead>" if any(column.title for column in table.columns) else ""
    rows = "".join(map(line, table.rows)) + "".join(line(row, ' class="rest"') for row in table.rest)
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
    if column.kind == "words":
        return f'<td class="words" dir="auto">{" ".join(map(_word, value))}</td>'
    written = safe(shorten(value or "", _LONGEST_CELL))
    if column.kind == "code":
        return f'<td class="code"><code>{written}</code></td>'
    if column.kind == "number":
        return f'<td class="number">{written}</td>'
    return f'<td class="text"><bdi>{written}</bdi></td>'


def _word(word: MarkedWord) -> str:
    """Return a word as a mark, tinted by how strong it is."""
    written = f"<bdi>{safe(shorten(word.text, _LONGEST_WORD))}</bdi>{MARKS[word.mark]}"
    if not word.mark:
        return f"<span>{written}</span>"
    tint = {"strong": ".42", "faint": ".14"}[word.mark]
    return f'<mark class="for {word.mark}" style="--tint:{tint}">{written}</mark>'


def _bar(value: float, low: float, high: float) -> str:
    extent = (high - low) or 1.0
    left = (min(value, 0.0) - low) / extent
    sign = _sign(value)
    place = f"left:{left:.1%};width:{abs(value) / extent:.1%}"
    return f'<div><i class="{sign}" style="{place}"></i></div>' if sign else ""


def _histogram(histogram: Histogram) -> str:
    """Return the counts as columns; those where the dimension fires have its colour."""
    most = max(histogram.counts, default=0) or 1
    columns = [
        f'<i class="{_sign(sign)}" style="height:{count / most:.1%}" title="{low:.3f} to {high:.3f}: {count:,}"></i>'
        for count, sign, low, high in zip(histogram.counts, histogram.signs(), histogram.edges, histogram.edges[1:])
    ]
    ends = f"<span>{histogram.edges[0]:.3f}</span><span>{histogram.edges[-1]:.3f}</span>"
    return (
        f'<h3>{safe(histogram.title)}</h3><div class="histogram">{"".join(columns)}</div><p class="ends dim">{ends}</p>'
    )


def _grid(matrix: Matrix) -> str:
    """Return a matrix as a heat map, with sums at the ends; a sum of many words has its number, but no tint."""
    pairs = matrix.pairs()
    scale = float(np.nanmax(np.abs(pairs), initial=0.0)) or 1.0
    places = decimals(scale)

    def total(values: npt.NDArray[Any]) -> str:
        return f'<td class="sum">{cell_number(float(values.sum()), places) or "0"}</td>'

    across = "".join(f'<th scope="col">{_name(word)}</th>' for word in matrix.across)
    body = []
    for word, values, tints in zip(matrix.down, matrix.values, (pairs / scale).tolist(), strict=True):
        cells = "".join(
            f"<td {'' if math.isnan(tint) else _tint(tint)}>{cell_number(value, places)}</td>"
            for value, tint in zip(values.tolist(), tints, strict=True)
        )
        body.append(f'<tr><th scope="row">{_name(word)}</th>{cells}{total(values)}</tr>')
    sums = "".join(map(total, matrix.values.T))
    foot = f'<tr><th scope="row">sum</th>{sums}{total(matrix.values)}</tr>'
    return (
        f'<div class="scroll"><table class="grid"><caption class="dim">words of {matrix.of_down} down, '
        f"of {matrix.of_across} across</caption>"
        f'<thead><tr><td></td>{across}<th scope="col">sum</th></tr></thead><tbody>{"".join(body)}{foot}</tbody>'
        "</table></div>"
    )


def _name(word: str) -> str:
    return f"<bdi>{safe(shorten(word, 24))}</bdi>"
