"""Hits and documents of an index, printed for people or written as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pellucid.cli.output import json_line, say, write_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from pellucid.index.hits import Hits
    from pellucid.index.index import Index
    from pellucid.index.reasons import Mark

_SNIPPET = 260  # characters of a passage that are shown
_TITLE = 80  # of a title
_INDENT = 5  # of what stands below the line with rank, score and id


def write_documents(path: Path, opened: Index, where: Any, page: dict[str, Any]) -> None:
    """Write documents as rows: id, title, text, fields."""
    from pellucid.index.listing import DOCUMENT_COLUMNS, field_columns

    commit, documents = opened.snapshot().commit, opened.documents(where, **page)
    fields = commit.state.fields
    columns = [*DOCUMENT_COLUMNS, *field_columns(commit)]
    write_table(path, columns, ([d.id, d.title, d.text, *map(d.metadata.get, fields)] for d in documents))


def write_hits(path: Path, opened: Index, hits_by_query: Iterable[tuple[str, Hits]], options: dict[str, Any]) -> None:
    """Write hits, found with `options`, as rows: query, rank, document, score and its components, reason, fields."""
    from pellucid.index.listing import field_columns

    extra = {"boost": options["boosts"] or options.get("settings"), "rerank": options.get("rerank")}
    commit, components = opened.snapshot().commit, [*opened.weights, *filter(extra.get, extra)]
    scores = ["score", *(f"score.{name}" for name in components)]
    columns = ["query", "rank", "id", "title", "text", *scores, "reason"]
    rows = (
        (query, rank, hit.id, hit.title, hit.text, hit.score, *map(hit.parts.get, components), hit.summary(),
         *map(hit.metadata.get, commit.state.fields))
        for query, hits in hits_by_query
        for rank, hit in enumerate(hits, hits.offset + 1)
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
    """Print hits for people: words that match are underlined, or in brackets without colour."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from pellucid.explain.views.parts import visible

    console = Console(highlight=False)
    for note, is_warning in hits.notes():
        console.print(Text(visible(note), style="yellow" if is_warning else "dim"), soft_wrap=not console.is_terminal)
    for rank, hit in enumerate(hits, hits.offset + 1):
        parts = " + ".join(f"{name} {value:.3f}" for name, value in hit.parts.items())
        heading = Text(f"{rank:>3}  {hit.score:.4f}  ").append(visible(hit.id), style="bold")
        if hit.title:
            heading.append("  ").append(_marked(hit.title, hit.marks.title, 0, _TITLE, console))
        heading.append("" if hit.probability is None else f"   probability {hit.probability:.2f}", style="dim")
        heading.append(f"   {parts}" if len(hit.parts) > 1 else "", style="dim")
        terms = hit.reasons.top(reasons) if rows else hit.lines(reasons)
        named = [f"{visible(term.name)} {term.contribution:+.3f}" for term in terms]
        lines = [] if rows else [Text(visible(hit.explain().summary().removeprefix(f"Score {hit.score:.2f}: ")))]
        lines.append(_marked(hit.text, hit.marks.text, hit.text.find(hit.snippet.strip("\u2026 ")), _SNIPPET, console))
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


def _marked(text: str, marks: Iterable[Mark], begin: int, length: int, console: Console) -> Text:
    """Return at most `length` characters of a text, those from a little before `begin` on, with its marks."""
    from rich.text import Text

    from pellucid.explain.views.parts import visible

    text = re.sub(r"\s", " ", text)
    start = max(0, min(begin - length // 8, len(text) - length))
    start = text.find(" ", start, begin) + 1 if start else 0
    end = min(start + length, len(text))
    if end < len(text) and (blank := text.rfind(" ", end - length // 8, end)) > 0:
        end = blank
    shown = Text("\u2026 " if start else "")
    for mark in marks:
        if start <= mark.start and mark.end <= end:
            word = visible(text[mark.start : mark.end])
            shown.append(visible(text[start : mark.start]))
            shown.append(word if console.is_terminal else f"[{word}]", style="bold underline color(32)")
            start = mark.end
    return shown.append(visible(text[start:end])).append(" \u2026" if end < len(text) else "")
