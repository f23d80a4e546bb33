"""The command that looks inside a static model: `pellucid inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.input import JsonOption, open_model, read
from pellucid.cli.output import show_report
from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.static.embedder import StaticEmbedder
    from pellucid.views.report import Report

_WHAT = ("components", "ranks", "tags", "languages")


def inspect(
    model: Annotated[str, typer.Argument(help="A static model: a bundled name, a folder, or a hub id.")],
    what: Annotated[str, typer.Argument(help="components, ranks, tags or languages.")] = "components",
    files: Annotated[list[str] | None, typer.Argument(help="What these need; see below.")] = None,
    component: Annotated[list[int] | None, typer.Option(help="To show; repeat for more. [default: 1 2 3]")] = None,
    top: Annotated[int, typer.Option(min=1, help="Words of each end of a component.")] = 5,
    words: Annotated[int, typer.Option(min=3, help="Look at so many of the most frequent words.")] = 10_000,
    tagset: Annotated[str, typer.Option(help="Of tags: brown or penn brings them to classes, as-is.")] = "as-is",
    drop: Annotated[int, typer.Option(min=1, help="Components left out for languages.")] = 7,
    sample: Annotated[int, typer.Option(min=3, help="Items of each language.")] = 1_000,
    metric: Annotated[str, typer.Option(help="Of the silhouette: cosine or euclidean.")] = "cosine",
    tsne: Annotated[bool, typer.Option("--tsne", help="Map languages by t-SNE, not by PCA.")] = False,
    json: JsonOption = False,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained HTML page to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture to this file: .png, .svg, .pdf.")] = None,
) -> None:
    """Look inside a static model: what its components and the lengths of its vectors say.

    \b
    components  words at the ends of principal components; with a file of texts,
                those of its sentence means
    ranks       length of vectors by frequency; with a file of texts, in that
    tags        length of vectors by part of speech, in tagged files: "word/TAG" or
                "word TAG" lines, tabs, CoNLL-U
    languages   how far languages are apart, with and without the first components;
                files as NAME=FILE, a word or sentence a line

    \b
    Examples:
      pellucid inspect static-en
      pellucid inspect static-en components texts.txt --component 1 --component 6
      pellucid inspect static-en ranks --plot ranks.png
      pellucid inspect static-en tags brown/c* --tagset brown
      pellucid inspect my-model languages en=en.txt de=de.txt --tsne --plot maps.svg
    """
    given = files or []
    _check(what, given)
    opened: StaticEmbedder = open_model(model)  # type: ignore[assignment]
    found: Report
    if what == "components":
        from pellucid.inspection.components import principal_components

        texts = read(given[0]) if given else None
        found = principal_components(opened, texts, components=component or None, top_k=top, words=words)
    elif what == "ranks":
        from pellucid.inspection.norms import norms_by_rank

        found = norms_by_rank(opened, read(given[0]) if given else None, words=words)
    elif what == "tags":
        from pellucid.inspection.norms import norms_by_tag
        from pellucid.inspection.tagged import read_tagged

        found = norms_by_tag(opened, read_tagged(*given), words=words, tagset=tagset)
    else:
        from pellucid.inspection.languages import language_separation

        projection = "tsne" if tsne else "pca"
        languages = _languages(given)
        found = language_separation(opened, languages, drop=drop, sample=sample, metric=metric, projection=projection)
    show_report(found, json, html, plot)


def _check(what: str, files: list[str]) -> None:
    if what not in _WHAT:
        raise typer.BadParameter(f"{what!r:.40} is none of {', '.join(_WHAT)}", param_hint="WHAT")
    if what in ("components", "ranks") and len(files) > 1:
        raise typer.BadParameter(f"{what} takes one file of texts, not {len(files)}", param_hint="FILES")
    if what == "tags" and not files:
        raise typer.BadParameter("tags needs at least one tagged file", param_hint="FILES")


def _languages(files: list[str]) -> dict[str, Iterator[str]]:
    """Return the items of each language; each NAME=FILE is one."""
    languages = {name: read(file) for name, file in map(_named, files)}
    if len(languages) < len(files):
        raise InputError("a language is given twice; its words go into one file")
    return languages


def _named(said: str) -> tuple[str, str]:
    name, equals, file = said.partition("=")
    if not equals or not name or not file:
        raise InputError(f"{said!r:.80} is not NAME=FILE, such as de=german.txt")
    return name, file
