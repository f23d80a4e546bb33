"""The commands that show what a model does, on texts, on pairs and on groups of people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    from collections.abc import Iterable
    from datetime import date as Day

    from pellucid.analysis.clustering import Topics
    from pellucid.core.embedder import Embedder

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
    corpus: Annotated[str, typer.Argument(help=f"{TextsHelp}; - is stdin; or the folder of an index.")],
    n: Annotated[
        int | None,
        typer.Option("-n", "--topics", min=2, help="Number of topics. [default: 4 to 30, by the texts]"),
    ] = None,
    date: Annotated[str | None, typer.Option(help="Column or field of dates, to show how topics change.")] = None,
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
    each text, with its date and, for an index, its id.

    \b
    Examples:
      pellucid topics reviews.csv --field review -n 12
      pellucid topics reviews.csv --field review --date published --plot topics.png
      pellucid topics my-index -o labels.csv
    """
    from pellucid.analysis.clustering import topics as find

    corpus_texts = _dated_texts(corpus, date, date_format, file_options)
    result = find(open_model(model), corpus_texts.texts, n=n, dates=corpus_texts.dates)
    if output is not None:
        _write_labels(output, result, corpus_texts)
    show(result, json, html, plot)


class _DatedTexts(NamedTuple):
    """The texts of a file or of an index."""

    texts: list[str]
    dates: list[Day | None] | None  # where a column or field of dates is named
    ids: list[str] | None  # of documents of an index


def _dated_texts(source: str, date: str | None, date_format: str | None, file_options: FileOptions) -> _DatedTexts:
    """Return the texts of a file or of an index, and their dates where a column or field of dates is named."""
    if (Path(source) / "index.json").is_file():
        from pellucid.index import Index
        from pellucid.index.listing import check_field

        with Index.open(source, read_only=True) as index:
            if date is not None:
                date = check_field(index.snapshot().commit, date)
            documents = list(index)
        texts, ids = [document.titled_text.strip() for document in documents], [document.id for document in documents]
        dates = [] if date is None else [document.metadata.get(date) for document in documents]
        return _DatedTexts(texts, None if date is None else _days(date, dates, date_format, ids), ids)
    if date is None:
        return _DatedTexts(list(read(source, file_options)), None, None)
    file = corpus_file(source, file_options)
    rows = [(file.text_of(row), row.values) for row in file.rows([file.field, date])]
    if not any(isinstance(values, dict) and date in values for _, values in rows):
        raise InputError(f"{source} has no column {date!r:.80}; name one with --date, for stdin with --delimiter too")
    names = [f"row {row:,}" for row in range(1, len(rows) + 1)]
    days = _days(date, [values.get(date) for _, values in rows], date_format, names)
    return _DatedTexts([text for text, _ in rows], days, None)


def _days(column: str, values: list[Any], date_format: str | None, names: list[str]) -> list[Day | None]:
    """Return the dates of a column, None where there is none; a note says which cells are no dates."""
    from pellucid.analysis.clustering import parse_day

    days: list[Day | None] = []
    unreadable = []
    for name, value in zip(names, values, strict=True):
        try:
            days.append(parse_day(value, date_format))
        except ValueError:
            days.append(None)
            unreadable.append(f"{name} ({value!r:.40})")
    if unreadable:
        more = ", ..." if len(unreadable) > _N_NAMED_DATES else ""
        say(
            f"note: {column!r:.80} holds no date in {len(unreadable):,} of {len(values):,}, which have no period: "
            f"{', '.join(unreadable[:_N_NAMED_DATES])}{more}. Dates are as 2024-05-31; --date-format takes others",
            err=True,
        )
    return days


def _write_labels(path: Path, result: Topics, corpus: _DatedTexts) -> None:
    """Write a table: row from 1, id in an index, date, index of its topic (none for no topic), name, text."""
    columns = {"row": "integer"}
    cells: list[Iterable[Any]] = [range(1, len(corpus.texts) + 1)]
    if corpus.ids is not None:
        columns["id"] = "string"
        cells.append(corpus.ids)
    if corpus.dates is not None:
        columns["date"] = "date"
        cells.append(None if value is None else str(value) for value in corpus.dates)
    columns |= {"topic": "integer", "name": "string", "text": "string"}
    topics = [result.topics[label].name if label >= 0 else None for label in result.labels]
    cells += [(label if label >= 0 else None for label in result.labels), topics, corpus.texts]
    write_table(path, columns, zip(*cells, strict=True))


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
    subject: Annotated[str, typer.Argument(help="A model: bundled name, folder or hub id; or the folder of an index.")],
    texts: Annotated[Path | None, typer.Option(help="Your texts; 1,000 or more audit the dimensions.")] = None,
    pairs: Annotated[list[str] | None, typer.Option(help="As for bias; repeat for more. [default: gender]")] = None,
    targets: _TargetsOption = "occupations",
    title: Annotated[str | None, typer.Option(help="Title of the report. [default: the model's name]")] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown to this file.")] = None,
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Write a report on a model or an index for readers who do not work with it.

    It says what the model is, how it treats groups, and what the tests do not show; all
    statistics are in an appendix. With 1,000 texts or more, dimensions are audited too. Of
    an index, the first model is tested, and its documents are the texts.

    \b
    Examples:
      pellucid report static-en --html report.html --markdown report.md
      pellucid report my-index --pairs gender --pairs nationality --html report.html
      pellucid report my-encoder --texts letters.csv --field body --title "Letters, 2026"
    """
    from pellucid.analysis.bias_audit import report as measure
    from pellucid.persistence.store import writing

    corpus: Any = None if texts is None else corpus_file(texts, file_options)
    source = None
    if (Path(subject) / "index.json").is_file():
        opened, documents = _model_and_documents(Path(subject))
        source = f"the index {Path(subject).name}"
        title, source, corpus = title or source, None if corpus else source, corpus or documents
    else:
        opened = open_model(subject)
    result = measure(opened, corpus, pairs=pairs or "gender", targets=targets, corpus=source, title=title)
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
