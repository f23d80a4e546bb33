"""The commands that show what a model does, and `edit`, which changes its dimensions."""

from __future__ import annotations

from datetime import datetime
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
    TopKOption,
    corpus_file,
    encoder_with_reasons,
    numbers_of,
    open_model,
    read,
    reads_texts,
    roles_of,
    tabbed_pairs,
    values_of,
)
from pellucid.cli.output import check_table, json_line, say, show, write_table
from pellucid.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pellucid.analysis.clustering import Topics
    from pellucid.core.dimensions import Which
    from pellucid.core.embedder import Embedder
    from pellucid.lexicon.static import StaticLexiconEmbedder
    from pellucid.static.embedder import StaticEmbedder


commands = typer.Typer()

_Texts = Annotated[str, typer.Argument(help=f"{TextsHelp}; - is stdin.")]
_Pairs = Annotated[str, typer.Argument(help="A file with two tab-separated texts a line; - is stdin.")]


@commands.command()
def dimensions(json: JsonOption = False, model: ModelOption = "static-en") -> None:
    """List the dimensions of a model: number and name, separated by a tab.

    A name that a spreadsheet would read as a formula gets an apostrophe before it.

    \b
    Examples:
      pellucid dimensions -m anchors-en-200
      pellucid dimensions -m my-anchors --json
    """
    from pellucid.core.dimensions import as_cell
    from pellucid.explain.views.parts import visible

    for number, dimension in enumerate(open_model(model).dimensions):
        line = {"dimension": number, "name": dimension.name, "about": list(dimension.about)}
        typer.echo(json_line(line) if json else f"{number}\t{as_cell(visible(dimension.name))}")


@commands.command()
@reads_texts
def cards(
    texts: _Texts = "-",
    dimension: Annotated[list[str] | None, typer.Option(help="Its name or number; repeat for more.")] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", "-k", min=1, help="Top k by contribution. [default: all]")
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    plot: PlotOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Show what dimensions do on a corpus: how often each fires, its strongest texts, correlated dimensions.

    Shows all dimensions without --dimension; --plot needs one.

    \b
    Examples:
      pellucid cards texts.txt --dimension 9 -m anchors-en-200
      pellucid cards texts.txt --dimension "A house is not a home." -m anchors-en-200 --html card.html
      pellucid cards texts.txt -m anchors-en-200 --html cards.html
    """
    from pellucid.analysis.dimension_cards import cards as describe

    if plot is not None and len(dimension or ()) != 1:
        raise typer.BadParameter("shows one dimension; name it with --dimension", param_hint="--plot")
    dimensions = [_which(name) for name in dimension] if dimension else None
    result = describe(open_model(model), read(texts, file_options), dimensions, top_k=top_k)
    show(result[0] if dimension and len(result) == 1 else result, json, html, plot)


@commands.command()
@reads_texts
def audit(
    texts: _Texts = "-",
    json: JsonOption = False,
    html: HtmlOption = None,
    plot: PlotOption = None,
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

    show(make(open_model(model), read(texts, file_options)), json, html, plot)


@commands.command()
def deletion_test(
    pairs: _Pairs = "-",
    units: Annotated[str, typer.Option(help="What is deleted: dimensions, or words of the texts.")] = "dimensions",
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many are removed.")] = 5,
    json: JsonOption = False,
    html: HtmlOption = None,
    plot: PlotOption = None,
    model: ModelOption = "static-en",
) -> None:
    """Test whether the scores of a model depend on the reasons that it gives.

    Removes the dimensions that an explanation puts first, and as many random ones; the
    first should lower the score more.

    \b
    Examples:
      pellucid deletion-test pairs.tsv -m anchors-en-200
      pellucid deletion-test pairs.tsv --units words
    """
    from pellucid.analysis.deletion import deletion_test as test

    show(test(open_model(model), list(tabbed_pairs(pairs)), units=units, top_k=top_k), json, html, plot)


@commands.command()
@reads_texts
def check_reasons(
    texts: _Texts = "-",
    pairs: Annotated[bool, typer.Option("--pairs", help="FILE has two tab-separated texts a line.")] = False,
    n: Annotated[int, typer.Option("--n", "-n", min=5, help="How many pairs are measured at most.")] = 100,
    roles: Annotated[
        str | None, typer.Option(metavar="ROLE[,ROLE]", help="Roles of the texts of a pair, e.g. query,document.")
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "sentence-transformers/all-MiniLM-L6-v2",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Check how far the estimated reasons of an encoder can be trusted on your texts.

    Compares the order of words with the measured one, for which texts are encoded without
    some words. Controls show whether words get credit that is not theirs. Single texts are
    paired with their nearest neighbour.

    \b
    Examples:
      pellucid check-reasons texts.txt -m sentence-transformers/all-MiniLM-L6-v2
      pellucid check-reasons pairs.tsv --pairs --roles query,document -m my-encoder
    """
    role1, role2 = roles_of(roles, 2, "--roles")
    opened = encoder_with_reasons(model, "words")
    texts_or_pairs = list(tabbed_pairs(texts)) if pairs else read(texts, file_options)
    show(opened.check_reasons(texts_or_pairs, n, role1=role1, role2=role2), json, html)


@commands.command()
def token_alignment(
    model: Annotated[
        str, typer.Option("--model", "-m", help="A key-token model or a transformer: a folder, or a hub id.")
    ],
    texts: _Texts = "-",
    pooling: Annotated[str, typer.Option(help="Of a transformer: mean, weighted_mean, last or prompt_eol.")] = "mean",
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Test whether a model's embeddings hold the tokens of their texts, more than chance.

    Against the same head rotated at random, and against the embedding of another text.

    \b
    Examples:
      pellucid token-alignment texts.txt -m sentence-transformers/all-MiniLM-L6-v2
      pellucid token-alignment texts.txt -m my-key-tokens
    """
    from pellucid.keytokens.alignment import open_decoder
    from pellucid.keytokens.alignment import token_alignment as test

    show(test(open_decoder(model, pooling), read(texts)), json, html)


@commands.command()
def drivers(
    pairs: _Pairs = "-", json: JsonOption = False, html: HtmlOption = None, model: ModelOption = "static-en"
) -> None:
    """Find the words, phrases and dimensions that contribute most to the similarities of many pairs.

    Words and phrases are those of the first texts. pellucid search --drivers does the same
    for the queries of an index.

    \b
    Example:
      pellucid drivers pairs.tsv -m my-anchors --html drivers.html
    """
    from pellucid.analysis.score_shares import drivers as find

    show(find(open_model(model), tabbed_pairs(pairs)), json, html)


@commands.command()
def compare(
    pairs: _Pairs,
    models: ModelsOption,
    json: JsonOption = False,
    html: HtmlOption = None,
    plot: PlotOption = None,
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
    show(make(opened, list(tabbed_pairs(pairs))), json, html, plot)


@commands.command()
@reads_texts
def rank(
    query: Annotated[str, typer.Argument(help="Query text.")],
    texts: _Texts = "-",
    top_k: TopKOption = 10,
    output: TableOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """List the texts nearest to a query, each with its reasons.

    \b
    Examples:
      pellucid rank "cheap flights to Rome" offers.txt
      pellucid rank "cheap flights to Rome" offers.csv --field offer -k 100 -o nearest.csv
    """
    from pellucid.analysis.ranking import rank as make

    check_table(output)
    ranking = make(open_model(model), query, read(texts, file_options), top_k=top_k)
    if output is not None:
        columns = {"rank": "integer", "row": "integer", "text": "string", "score": "number", "reason": "string"}
        rows = ([r.rank, r.document + 1, r.text, r.score, ranking.explain(r.rank).summary()] for r in ranking.ranked)
        write_table(output, columns, rows)
    if output is None or json or html is not None:
        show(ranking, json, html)


@commands.command()
@reads_texts
def contrast(
    group: Annotated[str, typer.Argument(help="A file with the texts of the group.")],
    others: Annotated[str, typer.Argument(help="A file with other texts.")],
    json: JsonOption = False,
    html: HtmlOption = None,
    plot: PlotOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Show what sets a group of texts apart from others, dimension by dimension.

    \b
    Example:
      pellucid contrast complaints.txt other-mails.txt -m anchors-en-200
    """
    from pellucid.analysis.groups import contrast as make

    contrasts = make(
        open_model(model), {"the group": read(group, file_options), "the others": read(others, file_options)}
    )
    show(contrasts["the group"], json, html, plot)


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
    dates: list[Any] | None  # where a column or field of dates is named
    ids: list[str] | None  # of documents of an index


def _dated_texts(source: str, date: str | None, date_format: str | None, file_options: FileOptions) -> _DatedTexts:
    """Return the texts of a file or of an index, and their dates where a column or field of dates is named."""
    if not (Path(source) / "index.json").is_file():
        if date is None:
            return _DatedTexts(list(read(source, file_options)), None, None)
        file = corpus_file(source, file_options)
        rows = [(file.text_of(row), row.values) for row in file.rows([file.field, date])]
        if not any(isinstance(values, dict) and date in values for _, values in rows):
            raise InputError(
                f"{source} has no column {date!r:.80}; name one with --date, for stdin with --delimiter too"
            )
        dates = _iso_dates(date, [values.get(date) for _, values in rows], date_format)
        return _DatedTexts([text for text, _ in rows], dates, None)
    from pellucid.index import Index
    from pellucid.index.listing import check_field

    with Index.open(source, read_only=True) as index:
        if date is not None:
            check_field(index.snapshot().commit, date)
        documents = list(index)
    texts = [document.titled_text.strip() for document in documents]
    moments = None if date is None else [document.metadata.get(date) for document in documents]
    return _DatedTexts(texts, moments, [document.id for document in documents])


def _iso_dates(column: str, values: list[Any], date_format: str | None) -> list[Any]:
    """Return the dates of a column: text in ISO's form, None where it is missing, anything else as it is."""
    from pellucid.index.column_types import CellFormat

    cells = CellFormat(date_format=date_format)

    def convert(row: int, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if cells.type_of(value) == "missing":
            return None
        text = value.strip()
        try:
            return cells.date(text) or datetime.fromisoformat(text).isoformat()
        except ValueError as error:
            raise InputError(
                f"{column!r:.80} is {value!r:.40} in row {row:,}, which is no date such as 2024-05-31; if it is one, "
                "say how it is written, such as --date-format %d.%m.%Y"
            ) from error

    return [convert(row, value) for row, value in enumerate(values, 1)]


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
@reads_texts
def edit(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the edited model.")],
    without: Annotated[list[str] | None, typer.Option(help="A dimension to drop; repeat for more.")] = None,
    merge: Annotated[list[str] | None, typer.Option(help="A dimension to merge with the other --merge ones.")] = None,
    scale: Annotated[list[str] | None, typer.Option(help="DIMENSION=FACTOR; below 1 it counts less.")] = None,
    rename: Annotated[list[str] | None, typer.Option(help="DIMENSION=NEW NAME.")] = None,
    idf: Annotated[str | None, typer.Option(help="Texts; dimensions that fire on many count less.")] = None,
    word: Annotated[list[str] | None, typer.Option(help="WORD=FACTOR for its vector in a static model.")] = None,
    strength: Annotated[float, typer.Option(min=0, help="With --idf: 0 leaves all, 1 is tf-idf.")] = 0.5,
    drop_above: Annotated[float | None, typer.Option(min=0, max=1, help="With --idf: drop what fires on more.")] = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Change the dimensions of a model: rename, scale, merge, drop, in this order; or the weights of words.

    A dimension is given by its number or name before the edit. --idf scales too, by
    how rarely a dimension fires.

    \b
    Examples:
      pellucid edit -m anchors-en-200 -o mine --without 9 --without 104
      pellucid edit -m mine -o mine --rename "12=credit cards" --scale "40=0.5"
      pellucid edit -m my-lexicon -o mine --idf texts.txt --drop-above 0.5
      pellucid edit -o mine --word "immune=0.3"
    """
    from pellucid.persistence.folder import carrying_card

    edited = open_model(model)
    if word:
        edited = _reweighted(edited, numbers_of(word, "--word", "WORD=FACTOR"))
    before = edited.dimensions

    def number(name: str) -> int:
        return before.number(_which(name))

    dropped, merged = list(map(number, without or ())), list(map(number, merge or ()))
    scales, renames = numbers_of(scale, "--scale", "DIMENSION=FACTOR"), values_of(rename, "--rename", "DIMENSION=NAME")
    factors: dict[Which, float] = {number(name): factor for name, factor in scales.items()}
    titles: dict[Which, str] = {number(name): title for name, title in renames.items()}
    if idf is None and drop_above is not None:
        raise typer.BadParameter("needs texts; give --idf FILE", param_hint="--drop-above")
    if not (dropped or merged or factors or titles or idf or word):
        raise InputError("nothing to edit; give --without, --merge, --scale, --rename, --word or --idf")
    edited = edited.rename(titles) if titles else edited
    removed = [edited.dimensions.names[index] for index in dropped]  # a merge changes the numbers
    if idf is not None:
        from pellucid.analysis.coordinates import document_frequencies

        counted = document_frequencies(edited, read(idf, file_options))
        removed += counted.common(drop_above) if drop_above is not None else []
        edited = counted.weighted(edited, strength)
    edited = edited.scale(factors) if factors else edited
    edited = edited.merge(merged) if merged else edited
    edited = edited.without(removed) if removed else edited
    change = _typed(idf=[idf] if idf else [], word=word, rename=rename, scale=scale, merge=merge, without=without)
    with carrying_card(model, output, change):
        edited.save_pretrained(output)
    say(f"wrote {output}: {len(before):,} dimensions before, {len(edited.dimensions):,} now", err=True)


def _typed(**texts_by_option: list[str] | None) -> str:
    """Return the options of an edit as they are typed, for the card of the model."""
    return ", ".join(f"--{option} {text}" for option, texts in texts_by_option.items() for text in texts or ())


def _reweighted(model: Embedder, factors: dict[str, float]) -> StaticEmbedder | StaticLexiconEmbedder:
    """Return a static model with the vectors of some words scaled."""
    from pellucid.lexicon.static import StaticLexiconEmbedder
    from pellucid.static.embedder import static_model

    word_model = model if isinstance(model, StaticLexiconEmbedder) else static_model(model, "--word")
    return word_model.reweight(factors)


def _which(name: str) -> Which:
    return int(name) if name.isdecimal() else name
