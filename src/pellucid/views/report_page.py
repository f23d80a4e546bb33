"""The HTML view of cards, audits and comparisons, in the style of an explanation's page and under its rules.

No script, no address, every text escaped; colours follow the reader's system or the theme around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pellucid.views.page import PAGE, STYLE, safe
from pellucid.views.render import shorten
from pellucid.views.report import MARKS, Column, Fold, Heading, Histogram, Note, Part, Table, Word

_LONGEST_CELL = 600  # characters of a text in a table
_LONGEST_WORD = 40  # characters of a word among others

_MORE = """
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
.pellucid .report tfoot td { border-top: 1px solid var(--line); font-weight: 600; }
.pellucid .report .text { margin: 0; padding-left: 0; border-left: 0; max-width: 40em; overflow-wrap: anywhere; }
.pellucid .report td.bar { width: 9em; min-width: 5em; padding-right: 1.2em; }
.pellucid .report .bar div { position: relative; height: .8em; margin-top: .35em; }
.pellucid .report .bar i { top: 0; bottom: 0; min-width: 1px; }
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


def report_page(parts: Sequence[Part], *, fragment: bool) -> str:
    """Return the parts as a page, or as a piece of one."""
    body = f'<div class="pellucid"><style>{STYLE}\n{_MORE}</style>\n' + "\n".join(map(_html, parts)) + "\n</div>"
    if fragment:
        return body
    headings = [part for part in parts if isinstance(part, Heading)]
    title = f"{headings[0].title} {headings[0].value}" if headings else "pellucid"
    return PAGE.format(title=safe(shorten(title, 120)), body=f'<main style="padding: 1em 1.4em">\n{body}\n</main>')


def _html(part: Part) -> str:
    if isinstance(part, Heading):
        after = f' <span class="dim">{safe(part.after)}</span>' if part.after else ""
        return f"<h2><span>{safe(part.title)}</span> <bdi>{safe(part.value)}</bdi>{after}</h2>"
    if isinstance(part, Note):
        return f'<p class="{"warning" if part.is_warning else "dim"}" dir="auto">{safe(part.text)}</p>'
    if isinstance(part, Histogram):
        return _histogram(part)
    if isinstance(part, Fold):
        inner = "\n".join(map(_html, part.parts))
        state = " open" if part.is_open else ""
        lead = f'<span class="dim">{safe(part.lead)}</span> ' if part.lead else ""
        summary = f"<summary>{lead}<bdi>{safe(part.summary)}</bdi></summary>"
        return f"<details{state}>{summary}<div>{inner}</div></details>"
    return _table(part)


def _table(table: Table) -> str:
    """Return a table that scrolls sideways where it is wider than the page."""
    title = f"<h3>{safe(table.title)}</h3>" if table.title else ""
    spans = [_span([row[n] for row in table.rows]) for n in range(len(table.columns))]
    head = "".join(f'<th class="{column.kind}">{safe(column.title)}</th>' for column in table.columns)
    head = f"<thead><tr>{head}</tr></thead>" if any(column.title for column in table.columns) else ""
    rows = "".join(
        "<tr>" + "".join(map(_cell, table.columns, row, spans)) + "</tr>" for row in table.rows
    )  # fmt: skip
    foot = "".join(map(_cell, table.columns, table.foot, spans)) if table.foot else ""
    foot = f"<tfoot><tr>{foot}</tr></tfoot>" if foot else ""
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


def _word(word: Word) -> str:
    """Return a word as a mark, tinted by how strong it is."""
    written = f"<bdi>{safe(shorten(word.text, _LONGEST_WORD))}</bdi>{MARKS[word.mark]}"
    if not word.mark:
        return f"<span>{written}</span>"
    tint = {"strong": ".42", "faint": ".14"}[word.mark]
    return f'<mark class="for {word.mark}" style="--tint:{tint}">{written}</mark>'


def _bar(value: float, low: float, high: float) -> str:
    extent = (high - low) or 1.0
    left = (min(value, 0.0) - low) / extent
    sign = "for" if value > 0 else "against" if value < 0 else ""
    place = f"left:{left:.1%};width:{abs(value) / extent:.1%}"
    return f'<div><i class="{sign}" style="{place}"></i></div>' if sign else ""


def _histogram(histogram: Histogram) -> str:
    """Return the counts as columns; those where the dimension fires have its colour."""
    most = max(histogram.counts, default=0) or 1
    columns = []
    for count, low, high in zip(histogram.counts, histogram.edges, histogram.edges[1:]):
        middle = (low + high) / 2
        sign = "for" if middle > histogram.fires else "against" if middle < -histogram.fires else ""
        said = f"{low:.3f} to {high:.3f}: {count:,}"
        columns.append(f'<i class="{sign}" style="height:{count / most:.1%}" title="{said}"></i>')
    ends = f"<span>{histogram.edges[0]:.3f}</span><span>{histogram.edges[-1]:.3f}</span>"
    return (
        f'<h3>{safe(histogram.title)}</h3><div class="histogram">{"".join(columns)}</div><p class="ends dim">{ends}</p>'
    )
