"""Hits and documents of an index, printed for people or written as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pellucid.cli.output import json_line, say, write_table

if TYPE_CHECKING:
    from rich.text import Text

    from pellucid.index.hits import Hit, Hits
    from pellucid.index.index import Index
    from pellucid.text.words import Span

_SNIPPET = 260  # characters of a passage that are shown
_TITLE = 80  # of a title
_INDENT = 5  # of what stands below the line with rank, score and id


def write_documents(path: Path, opened: Index, where: Any, page: dict[str, Any]) -> None:
    """Write documents as rows: id, title, text, fields."""
    from pellucid.index.listing import DOCUMENT_COLUMNS, field_columns, list_documents

    commit = opened.snapshot().commit
    documents = list_documents(commit, where, **page)
    fields = commit.state.fields
    columns = [*DOCUMENT_COLUMNS, *field_columns(commit)]
    write_table(path, columns, ([d.id, d.title, d.text, *map(d.metadata.get, fields)] for d in documents))


def write_hits(path: Path, opened: Index, hits_by_query: Iterable[tuple[str, Iterable[Hit]]], offset: int) -> None:
    """Write hits as rows: query, rank, document, score and its components, reason, fields."""
    from pellucid.index.listing import field_columns

    commit, components = opened.snapshot().commit, list(opened.weights)
    scores = ["score", *(f"score.{name}" for name in components)]
    columns = ["query", "rank", "id", "title", "text", *scores, "reason"]
    rows = (
        (query, rank, hit.id, hit.title, hit.text, hit.score, *map(hit.parts.get, components), hit.summary(),
         *map(hit.metadata.get, commit.state.fields))
        for query, hits in hits_by_query
        for rank, hit in enumerate(hits, offset + 1)
    )  # fmt: skip
    write_table(path, [*columns, *field_columns(commit, columns)], rows)


def show_documents(opened: Index, where: Any, page: dict[str, Any], *, json: bool) -> None:
    """Print documents: id, title, the beginning of the text, and the fields."""
    from pellucid.explain.views.parts import shorten, visible

    for number, document in enumerate(opened.documents(where, **page), page["offset"] + 1):
        if json:
            record = {"id": document.id, "title": document.title, "text": document.text, "metadata": document.metadata}
            typer.echo(json_line(record))
            continue
        title = f"  {visible(shorten(document.title, _TITLE))}" if document.title else ""
        fields = "; ".join(f"{name}: {value}" for name, value in document.metadata.items())
        text = visible(shorten(" ".join(document.text.split()), _SNIPPET))
        typer.echo("\n     ".join(filter(None, (f"{number:>3}  {visible(document.id)}{title}", text, visible(fields)))))
    say(f"{opened.count(where):,} documents match", err=True)


def show_hits(hits: Hits, reasons: int, *, rows: bool) -> None:
    """Print hits for people: phrases that reasons name are underlined, or in brackets without colour; or words."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from pellucid.explain.views.parts import shorten, visible

    console = Console(highlight=False)
    for note, is_warning in hits.notes():
        console.print(Text(visible(note), style="yellow" if is_warning else "dim"), soft_wrap=not console.is_terminal)
    for rank, hit in enumerate(hits, hits.offset + 1):
        parts = " + ".join(f"{name} {value:.3f}" for name, value in hit.parts.items())
        heading = Text(f"{rank:>3}  {hit.score:.4f}  ").append(visible(hit.id), style="bold")
        if hit.title:
            heading.append("  " + visible(shorten(hit.title, _TITLE)))
        heading.append(f"   {parts}" if len(hit.parts) > 1 else "", style="dim")
        phrases = [] if rows else hit.lines(reasons)
        terms = hit.reasons.top(reasons) if rows else phrases
        spans = (
            [span[:2] for span in hit.reasons.highlights()] if rows else [s for line in phrases for s in line.spans2]
        )
        named = [f"{visible(term.name)} {term.contribution:+.3f}" for term in terms]
        lines = [] if rows else [Text(visible(hit.summary().removeprefix(f"Score {hit.score:.2f}: ")))]
        lines.append(_marked(hit, spans, brackets=not console.is_terminal))
        lines += [Text("; ".join(named), style="dim")] if named else []
        if measured := hit.explain().measurement:
            how = f"measured: {measured.n_texts:,} texts read, standard error of a word {measured.standard_error:.4f}"
            lines.append(Text(how, style="dim"))
        console.print(heading, soft_wrap=not console.is_terminal)
        for line in lines:
            padded = Padding(line, (0, 0, 0, _INDENT), expand=False)  # which would break long lines of a pipe
            below = padded if console.is_terminal else Text(" " * _INDENT).append_text(line)
            console.print(below, soft_wrap=not console.is_terminal)
    if len(hits) and not (hits.exact or hits.reranked):
        console.print("better ones may have been missed", style="dim")


def _marked(hit: Hit, spans: Iterable[Span], brackets: bool) -> Text:
    """Return the part of the passage with the largest contributions, with the phrases or words at `spans` marked."""
    from rich.text import Text

    from pellucid.explain.views.parts import visible

    text, words = re.sub(r"\s", " ", hit.reasons.text), hit.reasons.words()
    start, end = snippet(text, words, _SNIPPET)
    shown = Text("\u2026 " if start else "")
    for begin, stop in sorted(set(spans)):
        if start <= begin and stop <= end:
            word = visible(text[begin:stop])
            shown.append(visible(text[start:begin]))
            shown.append(f"[{word}]" if brackets else word, style="bold underline color(32)")
            start = stop
    return shown.append(visible(text[start:end])).append(" \u2026" if end < len(text) else "")


def snippet(text: str, words: list[tuple[int, int, float]], length: int) -> tuple[int, int]:
    """Return start and end of the part of the text, at most `length` characters, whose words contribute most."""
    best, total, first, middle = 0.0, 0.0, 0, 0
    for _, end, value in words:  # in text order; `first` is the first word of the part that ends here
        total += value
        while words[first][0] < end - length:
            total -= words[first][2]
            first += 1
        if total > best:
            best, middle = total, words[first][0]
    start = max(0, min(middle - length // 8, len(text) - length))
    while 0 < start < len(text) and not text[start - 1].isspace() and start > middle - length // 4:
        start -= 1
    return start, min(len(text), start + length)
