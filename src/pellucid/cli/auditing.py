"""The commands that test a model for bias, and write a report on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.input import (
    FILE_DEFAULTS,
    FileOptions,
    HtmlOption,
    JsonOption,
    ModelOption,
    corpus_file,
    open_model,
    reads_texts,
)
from pellucid.cli.output import say, show
from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.core.embedder import Embedder

commands = typer.Typer()

_PairsOption = Annotated[
    str,
    typer.Option(help="gender, names, nationality, or a table with each group's words in a column."),
]
_TextsOption = Annotated[Path | None, typer.Option(help="Your texts; those with words of the pairs are swapped.")]
_TargetsOption = Annotated[str, typer.Option(help="occupations, adjectives, or a file of texts to compare with.")]
_StsOption = Annotated[Path | None, typer.Option(help="Pairs of texts scored by people: what a removal costs.")]


@commands.command()
@reads_texts
def bias(
    pairs: _PairsOption = "gender",
    texts: _TextsOption = None,
    targets: _TargetsOption = "occupations",
    proxies: Annotated[
        str | None,
        typer.Option(help="Other pairs that may reveal the groups. [default: names, for gender]"),
    ] = None,
    sts: _StsOption = None,
    directions: Annotated[int, typer.Option(min=1, help="How many directions to remove.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the model without these directions to this folder.")
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Test whether a model puts occupations or your targets nearer to one of two groups.

    Swaps words such as he and she in template sentences and in your texts, before and after
    the direction between the groups is removed from the model. No result proves that a
    model is fair, or that anybody was discriminated against.

    \b
    Examples:
      pellucid bias --pairs gender
      pellucid bias -m my-encoder --pairs my-pairs.csv --texts letters.csv --field body
      pellucid bias --pairs names --targets adjectives --html bias.html
      pellucid bias --sts sts.tsv -o static-en-without-gender
    """
    from pellucid.analysis.bias_audit import bias as measure
    from pellucid.explain.views.parts import counted
    from pellucid.persistence.folder import carrying_card

    opened = open_model(model)
    corpus = None if texts is None else corpus_file(texts, file_options)
    result = measure(opened, pairs, texts=corpus, targets=targets, proxies=proxies, sts=sts, n_directions=directions)
    if output is not None:
        removed = f"without {counted(result.n_directions, 'direction')} of {result.pairs}"
        with carrying_card(model, output, removed):
            result.without_direction(opened).save_pretrained(output)
        say(f"wrote {output}, {removed}", err=True)
    show(result, json, html)


@commands.command()
@reads_texts
def report(
    subject: Annotated[str, typer.Argument(help="A model: bundled name, folder or hub id; or the folder of an index.")],
    texts: _TextsOption = None,
    pairs: Annotated[list[str] | None, typer.Option(help="As for bias; repeat for more. [default: gender]")] = None,
    targets: _TargetsOption = "occupations",
    sts: _StsOption = None,
    title: Annotated[str | None, typer.Option(help="Title of the report. [default: with the model's name]")] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown to this file.")] = None,
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Write a report on a model or an index for readers who do not work with it.

    It says what the model is, how it treats groups, and what the tests do not show; all
    statistics are in an appendix. With 1,000 texts or more, dimensions are audited too. For
    an index, its first model is tested on its documents.

    \b
    Examples:
      pellucid report static-en --html report.html --markdown report.md
      pellucid report my-index --pairs gender --pairs nationality --html report.html
      pellucid report my-encoder --texts letters.csv --field body --title "Letters, 2026"
    """
    from pellucid.analysis.model_report import report as measure
    from pellucid.persistence.store import writing

    corpus: Any = None if texts is None else corpus_file(texts, file_options)
    if (Path(subject) / "index.json").is_file():
        opened, documents = _model_and_documents(Path(subject))
        name = f"the index {Path(subject).name}"
        result = measure(opened, corpus or documents, pairs=pairs or "gender", targets=targets, sts=sts,
                         corpus=None if corpus else name, title=title or f"Report on {name}")  # fmt: skip
    else:
        result = measure(open_model(subject), corpus, pairs=pairs or "gender", targets=targets, sts=sts, title=title)
    if markdown is not None:
        with writing(markdown) as tmp_path:
            tmp_path.write_text(result.to_markdown(), encoding="utf-8")
        say(f"wrote {markdown}", err=True)
    if html is not None or markdown is None or json:
        show(result, json, html)


def _model_and_documents(folder: Path) -> tuple[Embedder, list[str]]:
    """Return the first model of an index, and the texts of its documents."""
    from pellucid.index import Index

    with Index.open(folder, read_only=True) as index:
        models = [model.encoder for model in index.snapshot().models.values()]
        if not models:
            raise InputError(f"{folder} has no model, only BM25; name a model, and give the texts with --texts")
        documents = [document.titled_text.strip() for document in index]
        return models[0], documents
