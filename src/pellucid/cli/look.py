"""The commands that show what a model does, on texts, on pairs and on groups of people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.input import (
    FILE_DEFAULTS,
    FileOptions,
    HtmlOption,
    JsonOption,
    ModelOption,
    ModelsOption,
    PlotOption,
    TableOption,
    TextsHelp,
    corpus_file,
    open_model,
    read,
    reads_texts,
    tabbed_pairs,
)
from pellucid.cli.output import say, show, write_table
from pellucid.errors import InputError

if TYPE_CHECKING:
    from datetime import date as Day

    from pellucid.text.tables import CorpusFile

commands = typer.Typer()

_Texts = Annotated[str, typer.Argument(help=f"{TextsHelp}; - is stdin.")]
_Pairs = Annotated[str, typer.Argument(help="A file with two tab-separated texts a line; - is stdin.")]
_TargetsOption = Annotated[str, typer.Option(help="occupations, adjectives, or a file of texts to compare with.")]
_N_NAMED_DATES = 3  # unreadable dates that a note quotes


@commands.command()
@reads_texts
def audit(
    texts: _Texts = "-",
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
    pairs: _Pairs,
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
    corpus: Annotated[str, typer.Argument(help=f"{TextsHelp}; - is stdin.")],
    n: Annotated[
        int | None,
        typer.Option("-n", "--topics", min=2, help="Number of topics. [default: 4 to 30, by the texts]"),
    ] = None,
    date: Annotated[str | None, typer.Option(help="Column of dates, to show how topics change.")] = None,
    date_format: Annotated[
        str | None, typer.Option(help="A date format of .csv and .tsv besides ISO, e.g. %d.%m.%Y.")
    ] = None,
    output: TableOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    plot: PlotOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Find the topics of many texts, each named by the words that set it apart.

    Texts without a word that the model knows have no topic. --output writes the topic of
    each text, with its date.

    \b
    Examples:
      pellucid topics reviews.csv --field review -n 12
      pellucid topics reviews.csv --field review --date published --plot topics.png
      pellucid topics reviews.csv --field review -o labels.csv
    """
    from pellucid.analysis.clustering import topics as find

    if date is None:
        texts, dates = list(read(corpus, file_options)), None
    else:
        texts, dates = _dated_texts(corpus_file(corpus, file_options), date, date_format)
    result = find(open_model(model), texts, n=n, dates=dates)
    if output is not None:
        names = [result.topics[label].name if label >= 0 else None for label in result.labels]
        labels = (label if label >= 0 else None for label in result.labels)
        dated = [] if dates is None else [None if day is None else str(day) for day in dates]
        columns = ["row", *["date"] * bool(dated), "topic", "name", "text"]
        cells = [range(1, len(texts) + 1), *[dated] * bool(dated), labels, names, texts]
        write_table(output, columns, zip(*cells, strict=True))
    show(result, json, html, plot)


def _dated_texts(file: CorpusFile, column: str, date_format: str | None) -> tuple[list[str], list[Day | None]]:
    """Return the texts of a file and their dates, None where there is none; a note says which cells are no dates."""
    from pellucid.analysis.clustering import parse_day

    rows = [(file.text_of(row), row.values) for row in file.rows([file.field, column])]
    if not any(isinstance(values, dict) and column in values for _, values in rows):
        raise InputError(f"{file} has no column {column!r:.80}; name one with --date, for stdin with --delimiter too")
    days: list[Day | None] = []
    unreadable = []
    for number, (_, values) in enumerate(rows, 1):
        try:
            days.append(parse_day(values.get(column), date_format))
        except ValueError:
            days.append(None)
            unreadable.append(f"row {number:,} ({values.get(column)!r:.40})")
    if unreadable:
        more = ", ..." if len(unreadable) > _N_NAMED_DATES else ""
        say(
            f"note: {column!r:.80} holds no date in {len(unreadable):,} of {len(rows):,}, which have no period: "
            f"{', '.join(unreadable[:_N_NAMED_DATES])}{more}. Dates are as 2024-05-31; --date-format takes others",
            err=True,
        )
    return [text for text, _ in rows], days


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
    texts: Annotated[Path | None, typer.Option(help="Your texts; 1,000 or more audit the dimensions.")] = None,
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

    corpus = None if texts is None else corpus_file(texts, file_options)
    show(measure(open_model(model), corpus, pairs=pairs or "gender", targets=targets, title=title), json, html)
