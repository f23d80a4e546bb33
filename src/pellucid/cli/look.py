"""The commands that show what a model does, on texts, on pairs and on groups of people."""

from __future__ import annotations

from typing import Annotated

import typer

from pellucid.cli.input import (
    FILE_DEFAULTS,
    CorpusHelp,
    FileOptions,
    HtmlOption,
    JsonOption,
    ModelOption,
    ModelsOption,
    TableOption,
    corpus_of,
    open_model,
    read,
    reads_texts,
    tabbed_pairs,
)
from pellucid.cli.output import show, write_table

commands = typer.Typer()

_TargetsOption = Annotated[str, typer.Option(help="occupations, adjectives, or a file of texts to compare with.")]


@commands.command()
@reads_texts
def audit(
    texts: Annotated[str, typer.Argument(help=CorpusHelp)] = "-",
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Find the dimensions of a model that are dead, duplicate or crowded on your texts.

    \b
    Examples:
      pellucid audit texts.txt -m anchors-en-200
      pellucid audit texts.txt -m my-anchors --html audit.html
    """
    from pellucid.analysis.auditing import audit as make

    show(make(open_model(model), read(texts, file_options)), json, html)


@commands.command()
def compare(
    pairs: Annotated[str, typer.Argument(help="A file with two tab-separated texts a line; - is stdin.")],
    models: ModelsOption,
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Score the same pairs of texts with several models; show what differs, and why.

    The first model is compared with each of the others.

    \b
    Examples:
      pellucid compare pairs.tsv -m static-en -m anchors-en-200
      pellucid compare pairs.tsv -m my-anchors -m my-anchors-edited --html compared.html
    """
    from pellucid.analysis.comparing import compare as make

    opened = {name: open_model(name) for name in dict.fromkeys(models)}
    show(make(opened, list(tabbed_pairs(pairs))), json, html)


@commands.command()
@reads_texts
def topics(
    corpus: Annotated[str, typer.Argument(help=CorpusHelp)],
    n: Annotated[
        int | None,
        typer.Option("-n", "--topics", min=2, help="Number of topics. [default: 4 to 30, by the texts]"),
    ] = None,
    output: TableOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Find the topics of many texts, each named by the words that set it apart.

    Texts without a word that the model knows have no topic. --output writes the topic of
    each text.

    \b
    Examples:
      pellucid topics reviews.csv --field review -n 12
      pellucid topics reviews.csv --field review -o labels.csv
    """
    from pellucid.analysis.clustering import topics as find

    texts = list(read(corpus, file_options))
    result = find(open_model(model), texts, n=n)
    if output is not None:
        rows = (
            (row, label, result.topics[label].name, text) if label >= 0 else (row, None, None, text)
            for row, (label, text) in enumerate(zip(result.labels, texts), 1)
        )
        write_table(output, ("row", "topic", "name", "text"), rows)
    show(result, json, html)


@commands.command()
def bias(
    pairs: Annotated[
        str, typer.Option(help="gender, names, nationality, or a table with each group's words in a column.")
    ] = "gender",
    targets: _TargetsOption = "occupations",
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
) -> None:
    """Test whether a model puts occupations or your targets nearer to one of two groups.

    Swaps words such as he and she in neutral sentences. No result proves that a model is
    fair, or that anybody was discriminated against.

    \b
    Examples:
      pellucid bias --pairs gender
      pellucid bias -m my-encoder --pairs my-pairs.csv --targets jobs.txt
      pellucid bias --pairs names --targets adjectives --html bias.html
    """
    from pellucid.analysis.bias_audit import bias as measure

    show(measure(open_model(model), pairs, targets=targets), json, html)


@commands.command()
@reads_texts
def report(
    texts: Annotated[
        str | None, typer.Option(help="Your texts, a file or an index; 1,000 or more audit the dimensions.")
    ] = None,
    pairs: Annotated[list[str] | None, typer.Option(help="As for bias; repeat for more. [default: gender]")] = None,
    targets: _TargetsOption = "occupations",
    title: Annotated[str | None, typer.Option(help="Title of the report. [default: the model's name]")] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Write a report on a model for readers who do not work with it.

    It says what the model is, how it treats groups, and what the tests do not show; all
    statistics are in an appendix. With 1,000 texts or more, dimensions are audited too.

    \b
    Examples:
      pellucid report --html report.html
      pellucid report -m my-encoder --texts letters.csv --field body --title "Letters, 2026"
    """
    from pellucid.analysis.bias_audit import report as measure

    corpus = None if texts is None else corpus_of(texts, file_options)
    show(measure(open_model(model), corpus, pairs=pairs or "gender", targets=targets, title=title), json, html)
