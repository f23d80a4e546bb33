"""The commands for finding documents: `pellucid index build | add | ...` and `pellucid search`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.input import HtmlOption, JsonOption, OpenOption, read
from pellucid.cli.output import json_line, show
from pellucid.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from pellucid.index.hits import Hit, Hits
    from pellucid.index.index import Index
    from pellucid.index.records import Columns, Record

commands = typer.Typer()
index = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Keep documents in an index that pellucid search asks: build one, add, delete, look, check.",
)

commands.add_typer(index, name="index")

_SNIPPET = 260  # characters of a passage that are shown
_TITLE = 80  # of a title
_CONDITION = re.compile(r"([^<>=!]+?)\s*(>=|<=|!=|=|>|<)\s*(.*)", re.DOTALL)
_OPERATORS = {">=": "gte", "<=": "lte", "!=": "ne", "=": "eq", ">": "gt", "<": "lt"}

_Folder = Annotated[Path, typer.Argument(help="The index.")]
_Files = Annotated[
    list[Path],
    typer.Argument(help=".jsonl, .csv, .tsv, .parquet, .txt (a text a line), or a folder of .txt and .md files."),
]
_Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", help="A bundled name, folder or hub id; repeat for more. [default: static-en]"),
]
_Id = Annotated[str, typer.Option("--id", help="The column with the ids; without one, file and line.")]
_Title = Annotated[str, typer.Option("--title", help="The column with the titles.")]
_Text = Annotated[str, typer.Option("--text", help="The column with the texts.")]


@index.command()
def build(
    folder: _Folder,
    files: _Files,
    model: _Models = None,
    bm25: Annotated[bool, typer.Option(help="Count words (BM25) beside what the models say.")] = True,
    language: Annotated[str, typer.Option(help="Of BM25's stemmer: english, german, ...; none.")] = "english",
    passage: Annotated[int, typer.Option(min=100, help="Cut longer texts into passages of so many characters.")] = 4000,
    id: _Id = "id",
    title: _Title = "title",
    text: _Text = "text",
) -> None:
    """Make an index of the documents in files.

    Columns other than id, title and text become metadata, which pellucid search --where
    asks for. Needs pellucid[search].

    \b
    Examples:
      pellucid index build my-index articles.jsonl
      pellucid index build notes ~/notes --language german
      pellucid index build my-index reviews.csv --text review -m sentence-transformers/all-MiniLM-L6-v2
    """
    from pellucid.index.index import Index

    for file in files:
        if not file.exists():
            raise InputError(f"file not found: {file}")
    with Index.create(folder, model, bm25=bm25, language=language, passage_characters=passage) as made:
        _added(made, files, _columns(id, title, text))


@index.command()
def add(folder: _Folder, files: _Files, id: _Id = "id", title: _Title = "title", text: _Text = "text") -> None:
    """Add the documents in files; one whose id is there is replaced.

    \b
    Example:
      pellucid index add my-index more.jsonl
    """
    with _opened(folder) as opened:
        _added(opened, files, _columns(id, title, text))


@index.command()
def delete(
    folder: _Folder,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids; without any, stdin, one a line.")] = None,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="Ids that are not there do not matter.")] = False,
) -> None:
    """Remove documents.

    \b
    Examples:
      pellucid index delete my-index 4983 5836
      pellucid index delete my-index < ids.txt
    """
    wanted = ids or list(read("-"))
    with _opened(folder) as opened:
        count = opened.delete(wanted, missing_ok=missing_ok)
        typer.echo(f"removed {count:,}, {len(opened):,} are left", err=True)


@index.command()
def info(folder: _Folder, json: JsonOption = False) -> None:
    """Say what an index holds, what its scores are made of and what it takes of the disk."""
    with _opened(folder) as opened:
        facts = opened.info()
    typer.echo(json_line(facts) if json else "\n".join(f"{name}: {_shown(value)}" for name, value in facts.items()))


@index.command()
def verify(folder: _Folder) -> None:
    """Compare everything an index stores with its texts; exit code 1 if something is wrong."""
    with _opened(folder) as opened:
        problems = opened.verify()
        typer.echo("\n".join(problems) or f"{len(opened):,} documents: all is well")
    if problems:
        raise typer.Exit(1)


@index.command("eval")
def evaluate(
    folder: _Folder,
    queries: Annotated[Path, typer.Option(help="JSON lines with _id and text.")],
    qrels: Annotated[Path, typer.Option(help="Judgements: a .tsv with query-id, corpus-id and score.")],
    top: Annotated[int, typer.Option("--top", "-k", min=1, help="Hits that count for nDCG.")] = 10,
    recall: Annotated[int, typer.Option(min=1, help="Hits that count for recall and MRR.")] = 100,
    missed: Annotated[int, typer.Option(min=0, help="Queries without a right hit to take apart.")] = 20,
    tune: Annotated[bool, typer.Option("--tune", help="Choose weights, in five folds of the queries.")] = False,
    tune_on: Annotated[Path | None, typer.Option(help="Choose weights on these judgements: other queries.")] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Say how well an index finds what people have judged, part by part, and why it missed what it missed.

    Queries and judgements are as BEIR has them. Weights are never measured on the
    queries they were chosen on. Needs pellucid[eval].

    \b
    Examples:
      pellucid index eval my-index --queries queries.jsonl --qrels qrels/test.tsv
      pellucid index eval my-index --queries queries.jsonl --qrels qrels/test.tsv --tune-on qrels/train.tsv
    """
    from pellucid.index.evaluating import read_qrels, read_queries

    if tune and tune_on is not None:
        raise typer.BadParameter("give one of --tune and --tune-on", param_hint="--tune")
    asked, judged = read_queries(queries), read_qrels(qrels)
    development = tune if tune_on is None else read_qrels(tune_on)
    with _opened(folder) as opened:
        found = opened.evaluate(
            asked, judged, top_k=top, recall_at=recall, examples=missed, tune=development, show_progress_bar=True
        )
    show(found, json, html, None)


@index.command()
def rebuild(folder: _Folder, model: _Models = None) -> None:
    """Make all vectors of an index anew from its texts, also with other models.

    \b
    Examples:
      pellucid index rebuild my-index
      pellucid index rebuild my-index -m static-multi
    """
    from pellucid.index.index import Index

    with Index.open(folder, model or None, rebuild=True) as opened:
        typer.echo(f"rebuilt {len(opened):,} documents", err=True)


@commands.command()
def search(
    folder: _Folder,
    query: Annotated[
        str | None, typer.Argument(help="What to look for; without it, you are asked, or stdin is read.")
    ] = None,
    top: Annotated[int, typer.Option("--top", "-k", min=1, help="Documents to show.")] = 10,
    where: Annotated[
        list[str] | None, typer.Option(help="A condition, as year>=1990 or lang=en; repeat for more.")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="A part of the score and its weight, as bm25=1; others then count 0.")
    ] = None,
    reasons: Annotated[int, typer.Option(min=0, help="Rows of each score to show.")] = 4,
    json: JsonOption = False,
    open: OpenOption = False,
) -> None:
    """Find documents, and see why each was found.

    Every score is a sum, and the rows below a document are its largest terms. Words
    that carry it are marked. Without a query, questions are read until an empty line.

    \b
    Examples:
      pellucid search my-index "does aspirin prevent a heart attack?"
      pellucid search my-index "interest rates" --where "year>=2015" --weight bm25=1
      pellucid search my-index < queries.txt --json > hits.jsonl
    """
    if open:
        from pellucid.cli.serving import explore

        explore("search", {"q": query or ""}, index=folder)
        return
    conditions = _conditions(where or [])
    weights = dict(_weight(given) for given in weight) if weight else None
    with _opened(folder) as opened:
        for one in [query] if query is not None else _questions():
            found = opened.search(one, top, where=conditions, weights=weights)
            if json:
                typer.echo(found.to_json(indent=None))
            else:
                _show(found, reasons)


def _opened(folder: Path) -> Index:
    from pellucid.index.index import Index

    return Index.open(folder)


def _columns(id: str, title: str, text: str) -> Columns:
    from pellucid.index.records import Columns

    return Columns(id, title, text)


def _added(opened: Index, files: Iterable[Path], columns: Columns) -> None:
    """Add the documents of files, and say how many there are."""
    ids, texts, titles, metadata = tee(_records(files, columns), 4)
    count = opened.add(
        (record.id for record in ids),
        (record.text for record in texts),
        titles=(record.title for record in titles),
        metadata=(record.metadata for record in metadata),
        show_progress_bar=True,
    )
    typer.echo(f"added {count:,}, {len(opened):,} documents are in {opened.folder}", err=True)


def _records(files: Iterable[Path], columns: Columns) -> Iterator[Record]:
    from pellucid.index.records import read_documents

    for file in files:
        yield from read_documents(file, columns)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items()) or "none"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _questions() -> Iterator[str]:
    """Yield the lines of stdin, or what a person types until an empty line."""
    if not sys.stdin.isatty():
        yield from (line for line in read("-") if line.strip())
        return
    while True:
        try:
            asked = input("? ").strip()
        except EOFError:
            return
        if not asked:
            return
        yield asked


def _conditions(given: list[str]) -> dict[str, Any] | None:
    """Return what --where options ask for."""
    found: dict[str, dict[str, Any]] = {}
    for text in given:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise typer.BadParameter(f"{text!r} is not FIELD>=VALUE, with >=, <=, >, <, = or !=", param_hint="--where")
        found.setdefault(match[1].strip(), {})[_OPERATORS[match[2]]] = _value(match[3])
    return found or None


def _value(text: str) -> Any:
    """Return a number or boolean where `text` is one, unless it stands in quotes."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", text) else text
    except ValueError:
        return text


def _weight(given: str) -> tuple[str, float]:
    name, _, number = given.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not PART=NUMBER, such as bm25=1", param_hint="--weight") from None


def _show(found: Hits, reasons: int) -> None:
    """Print hits for people: the words that carry a score are underlined, or in brackets where there is no colour."""
    from rich.console import Console

    console = Console(highlight=False)
    for rank, hit in enumerate(found, 1):
        for line in _hit_lines(rank, hit, reasons, brackets=not console.is_terminal):
            console.print(line, soft_wrap=not console.is_terminal)
    if not len(found):
        console.print("nothing found")


def _hit_lines(rank: int, hit: Hit, reasons: int, *, brackets: bool) -> Iterator[Text]:
    from rich.text import Text

    from pellucid.views.parts import shorten, visible

    parts = " + ".join(f"{name} {value:.3f}" for name, value in hit.parts.items())
    heading = Text(f"{rank:>3}  {hit.score:.4f}  ").append(visible(hit.id), style="bold")
    if hit.title:
        heading.append("  " + visible(shorten(hit.title, _TITLE)))
    yield heading.append(f"   {parts}" if len(hit.parts) > 1 else "", style="dim")
    yield Text("     ").append_text(_marked(hit, brackets))
    rows = [f"{visible(row.name)} {row.contribution:+.3f}" for row in hit.reasons.top(reasons)]
    if rows:
        yield Text("     " + ", ".join(rows), style="dim")


def _marked(hit: Hit, brackets: bool) -> Text:
    """Return the stretch of the passage with the largest contributions, with its words marked."""
    from rich.text import Text

    from pellucid.views.parts import visible

    text, words = hit.reasons.text, hit.reasons.words()
    start, end = snippet(text, words, _SNIPPET)
    shown = Text("\u2026 " if start else "")
    for begin, stop, _ in hit.reasons.highlights():
        if start <= begin and stop <= end:
            word = visible(text[begin:stop])
            shown.append(visible(text[start:begin]))
            shown.append(f"[{word}]" if brackets else word, style="bold underline color(32)")
            start = stop
    return shown.append(visible(text[start:end])).append(" \u2026" if end < len(text) else "")


def snippet(text: str, words: list[tuple[int, int, float]], length: int) -> tuple[int, int]:
    """Return where the stretch of at most `length` characters starts and ends whose words contribute most."""
    best, total, first = 0.0, 0.0, 0
    middle = 0
    for _, end, value in words:  # in text order; `first` is the first word of the stretch that ends here
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
