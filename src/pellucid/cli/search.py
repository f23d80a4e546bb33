"""The commands of search indexes: `pellucid index build | add | ...` and `pellucid search`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.hits import show_documents, show_hits, write_documents, write_hits
from pellucid.cli.input import (
    FILE_DEFAULTS,
    FileOptions,
    HtmlOption,
    JsonOption,
    Repeated,
    TableOption,
    TextsHelp,
    corpus_file,
    is_index,
    option,
    read,
    reads_documents,
    values_of,
    with_options,
)
from pellucid.cli.output import Listed, json_line, say, show, shown_json
from pellucid.errors import InputError
from pellucid.index.query import DEFAULTS, OPTIONS

if TYPE_CHECKING:
    from pellucid.index.index import Index
    from pellucid.text.tables import CorpusFile

commands = typer.Typer()
index = typer.Typer(
    cls=Listed,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Keep documents in an index for pellucid search: build, add, sync, delete, list, verify.",
)

commands.add_typer(index, name="index")

_CONDITION = re.compile(r"([^<>=!]+?)\s*([<>=!]+)\s*(.*)", re.DOTALL)
_OPERATORS = {">=": "gte", "<=": "lte", "!=": "ne", "=": "eq", "==": "eq", ">": "gt", "<": "lt"}
_FILES = ("index.json", "commit.json", "segments", "models-*", ".lock")  # of an index
_WHERE_HELP = "Filter, e.g. year>=1990 or lang=en; repeat for more, all must hold. A|B is either value."
_FORMS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "weights": ("PART=NUMBER, such as bm25=1", float),
    "word_weights": ("WORD=NUMBER, such as immune=0.3", float),
    "steer": ("TEXT=NUMBER, such as cars=-0.5", float),
    "boosts": ("CONDITION=NUMBER, such as lang=en=0.2, or DATE~DAYS=NUMBER, such as day~30=0.3", float),
    "synonyms": ("WORD=WORD|WORD, such as car=auto|automobile", partial(str.split, sep="|")),
}
_HELP = {
    "where": _WHERE_HELP,
    **dict.fromkeys(_FORMS, "{} Repeat for more."),
    "boosts": "What a filter adds to the score, e.g. lang=en=0.2; or what recent dates add, day~30=0.3: half of it at "
    "30 days. Repeat for more.",
}
_RECENT = re.compile(r"([^<>=!~]+)~\s*(\d+\.?\d*)")
_PATIENCE = 60.0  # seconds to wait for a running change of an index that is replaced

_Folder = Annotated[Path, typer.Argument(help="The index.")]
_Where = Annotated[Repeated, typer.Option(help=_WHERE_HELP)]
_Files = Annotated[
    list[Path],
    typer.Argument(help=f"{TextsHelp}, or a folder of .txt and .md files."),
]


@index.command()
@reads_documents
def build(
    folder: _Folder,
    files: _Files,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="A bundled name, folder or hub id; repeat for more. [default: static-en]"),
    ] = None,
    bm25: Annotated[bool, typer.Option(help="Count words (BM25) beside the models.")] = True,
    weight: Annotated[
        list[str] | None, typer.Option(help="Weight of a part of the score, PART=NUMBER; parts not listed get 0.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of BM25's stemmer: english, german, ...; none.")] = "english",
    stop_words: Annotated[
        str | None, typer.Option(help="Words that BM25 leaves out, with commas between them. [default: English ones]")
    ] = None,
    passage: Annotated[int, typer.Option(min=100, help="Cut longer texts into passages of so many characters.")] = 4000,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing index, once the new one is complete.")
    ] = False,
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Make an index of the documents in files.

    The folder appears when the index is complete. A build that fails leaves nothing, or
    with --overwrite the old index.

    Columns other than id, title and text become metadata for pellucid search --where;
    what an object holds has a dotted name (meta.lang). --columns and --leave-out choose.
    A column of a .csv or .tsv file holds numbers, dates (2024-05-31) or booleans (true,
    false) if all of its cells do, except empty ones, NA and NaN; otherwise strings, such
    as 007 and 1e5. Notes on stderr show the types, and --type, --decimal and
    --date-format change them. Needs pellucid[search].

    \b
    Examples:
      pellucid index build my-index articles.jsonl
      pellucid index build my-index reviews.csv --type version=string --overwrite
      pellucid index build notes ~/notes --language german
      pellucid index build my-index reviews.csv --field review -m sentence-transformers/all-MiniLM-L6-v2
    """
    from pellucid.index.index import Index

    _check_order("index build", folder, files[0])
    documents = _files(files, file_options)
    with (
        _new_index(folder, overwrite) as index_folder,
        Index.create(
            index_folder,
            model,
            bm25=bm25,
            language=language,
            passage_characters=passage,
            weights=values_of(weight, "--weight", "PART=NUMBER", float) or None,
            stop_words=None if stop_words is None else stop_words.split(","),
        ) as new_index,
    ):
        added = _add(new_index, documents)
    say(f"{added} {folder}", err=True)


@index.command()
@reads_documents
def add(
    folder: _Folder,
    files: _Files,
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Add the documents in files; they replace those with the same ids.

    Other programs may search and change the index meanwhile. If a document is refused,
    those before it stay. Documents that are no longer in the files stay, too: pellucid
    index sync deletes them. Columns of .csv and .tsv files keep the types of the index.

    \b
    Examples:
      pellucid index add my-index more.jsonl
      pellucid index add my-index more.csv --type version=string
    """
    _check_order("index add", folder, files[0])
    with _open(folder) as opened:
        added = _add(opened, _files(files, file_options))
    say(f"{added} {folder}; what is no longer in the files stays until it is deleted", err=True)


@index.command()
@reads_documents
def sync(
    folder: _Folder,
    files: _Files,
    yes: Annotated[bool, typer.Option("--yes", help="Allow deleting more than 20 % of the documents.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the counts; change nothing.")] = False,
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Make the index hold the documents in files and no others: add, replace and delete.

    All changes are one commit; after an error the index is as it was. Documents that are
    not in FILES are deleted, wherever they came from: name all sources. More than 20 % of
    the documents are deleted only after a question, or with --yes. A folder without
    documents, and a file of it that cannot be read, is an error.

    \b
    Examples:
      pellucid index sync my-index articles.jsonl --dry-run
      pellucid index sync my-index articles.jsonl
    """
    from pellucid.index.sync import DeletionError

    _check_order("index sync", folder, files[0])
    with _open(folder) as opened:
        run = partial(opened.sync, _files(files, file_options), dry_run=dry_run, note=_note, show_progress_bar=True)
        try:
            counts = run(max_deleted=1) if yes else run()
        except DeletionError as error:
            if not sys.stdin.isatty():
                raise
            typer.confirm(f"{error}\nDelete them?", abort=True, err=True)
            counts = run(max_deleted=error.share)
    say(", ".join(f"{name} {count:,}" for name, count in counts._asdict().items()))


@index.command()
def delete(
    folder: _Folder,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids; without any, stdin, one a line.")] = None,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="Ignore missing ids.")] = False,
) -> None:
    """Remove documents; deletes nothing if any id is missing.

    \b
    Examples:
      pellucid index delete my-index 4983 5836
      pellucid index delete my-index < ids.txt
    """
    document_ids = ids or list(read("-"))
    with _open(folder) as opened:
        count = opened.delete(document_ids, missing_ok=missing_ok)
        typer.echo(f"removed {count:,}, {len(opened):,} are left", err=True)


@index.command("list")
def list_(
    folder: _Folder,
    where: _Where = None,
    sort: Annotated[
        str | None, typer.Option(help="Field to sort documents by; without it, the order of adding.")
    ] = None,
    descending: Annotated[bool, typer.Option("--descending", help="Largest values first.")] = False,
    offset: Annotated[int, typer.Option(min=0, help="How many to skip.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Documents to write at most.")] = None,
    output: TableOption = None,
    json: JsonOption = False,
) -> None:
    """Show what an index holds: models, parts of scores, fields, size; with filters or --sort, its documents.

    --output writes documents as a table with id, title, text and a column for each field.
    Memory does not grow with their number. Filters are those of pellucid search.

    \b
    Examples:
      pellucid index list my-index
      pellucid index list my-index --where status=open --sort day --descending --limit 10
      pellucid index list my-index -o all.csv
      pellucid index list my-index -o english.xlsx --where lang=en --sort day --descending
    """
    if descending and sort is None:
        raise typer.BadParameter("needs a field to sort by; give --sort FIELD", param_hint="--descending")
    conditions = _conditions(where or [])
    page = {"sort": sort, "descending": descending, "offset": offset, "limit": limit}
    with _open(folder) as opened:
        if output is not None:
            write_documents(output, opened, conditions, page)
            return
        if where or any(page.values()):
            show_documents(opened, conditions, page, json=json)
            return
        description = opened.info()
    if json:
        typer.echo(json_line(description))
        return
    description["fields"] = [f"{name} ({kinds})" for name, kinds in description["fields"].items()]
    for name, value in description.items():
        if isinstance(value, dict):
            value = [f"{part} {number}" for part, number in value.items()]
        say(f"{name}: {', '.join(value) or 'none' if isinstance(value, list) else value}")


@index.command()
def count(
    folder: _Folder,
    by: Annotated[str | None, typer.Option(help="Count by the values of this field.")] = None,
    where: _Where = None,
    json: JsonOption = False,
) -> None:
    """Count documents, or those with each value of a field.

    \b
    Examples:
      pellucid index count my-index --where "year>=2015"
      pellucid index count my-index --by lang
    """
    from pellucid.explain.views.parts import visible

    with _open(folder) as opened:
        counts = opened.count(_conditions(where or []), by=by)
    if by is None:
        typer.echo(str(counts))
        return
    if json:
        typer.echo(json_line([{"value": value, "documents": n} for value, n in counts]))
    for value, n in () if json else counts:
        typer.echo(f"{n}\t{'(none)' if value is None else visible(str(value))}")


@index.command()
def verify(folder: _Folder) -> None:
    """Compare everything an index stores with its checksums and texts.

    Computes the vectors of 200 documents again. Searches continue; changes wait. The exit
    code is 1 if something is wrong.
    """
    with _open(folder) as opened:
        problems = opened.verify()
        typer.echo("\n".join(problems) or f"{len(opened):,} documents: all is well")
    if problems:
        raise typer.Exit(1)


@index.command()
def evaluate(
    folder: _Folder,
    queries: Annotated[Path | None, typer.Option(help="JSON lines with _id and text.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgements: a .tsv with query-id, corpus-id and score.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Hits that count for nDCG.")] = 10,
    recall: Annotated[int, typer.Option(min=1, help="Hits that count for recall and MRR.")] = 100,
    missed: Annotated[int, typer.Option(min=0, help="Failed queries to explain.")] = 20,
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Measure how well an index finds the documents that people judged right, with reasons for misses.

    Queries and judgements are in BEIR's format; without both, those that the folder
    holds: see pellucid serve --judge. Needs pellucid[eval].

    \b
    Examples:
      pellucid index evaluate my-index
      pellucid index evaluate my-index --queries queries.jsonl --qrels qrels/test.tsv
    """
    from pellucid.evaluation.tasks import read_qrels, read_queries

    if (queries is None) != (qrels is None):
        raise InputError("give --queries and --qrels together, or neither")
    with _open(folder) as opened:
        query_set, judged = (read_queries(queries), read_qrels(qrels)) if queries and qrels else opened.judgements()
        evaluation = opened.evaluate(
            query_set, judged, top_k=top_k, recall_at=recall, examples=missed, show_progress_bar=True
        )
    show(evaluation, json, html)


@index.command()
def compare(
    folder: _Folder,
    queries: Annotated[Path, typer.Option(help="A query a line, or JSON lines with _id and text.")],
    second: Annotated[str, typer.Option(help="Options of a search: a name of settings, JSON, or a file of it.")],
    first: Annotated[str, typer.Option(help="The same; without it the index as it is.")] = "{}",
    qrels: Annotated[Path | None, typer.Option(help="Judgements: a .tsv with query-id, corpus-id and score.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Number of hits to compare.")] = 10,
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Search with two settings; show which queries find other documents, and which terms moved them.

    With judgements, the nDCG of both and the 95 % interval of the difference. Options are
    those of Index.search: weights, word_weights, where, steer and others.

    \b
    Examples:
      pellucid index compare my-index --queries queries.txt --second '{"weights": {"bm25": 1}}'
      pellucid index compare my-index --queries queries.jsonl --qrels qrels/test.tsv --second new.json
      pellucid index compare my-index --queries queries.txt --first live --second guides
    """
    from pellucid.evaluation.tasks import read_qrels, read_queries

    lines = read_queries(queries).items() if ".jsonl" in queries.suffixes else enumerate(read(str(queries)), 1)
    texts = {str(n): text for n, text in lines if text.strip()}
    judged = None if qrels is None else read_qrels(qrels)
    with _open(folder) as opened:
        names = opened.info()["settings"]
        first_settings, second_settings = (_settings(text, names) for text in (first, second))
        comparison = opened.compare(texts, first_settings, second_settings, judged, top_k=top_k)
    show(comparison, json, html)


def _settings(text: str, names: list[str]) -> Any:
    """Return the options that JSON or a file of it gives, or what looks like a name."""
    from pellucid.persistence.store import parse_json, read_json

    if text.lstrip().startswith("{"):
        return parse_json(text.encode(), f"{text:.80} is not JSON")
    is_name = text in names or not (Path(text).suffix or Path(text).is_file())
    return text if is_name else read_json(text)


@index.command()
def check(
    folder: _Folder,
    checks: Annotated[Path, typer.Argument(help="A table with the columns query, id and optionally within.")],
) -> None:
    """Check that queries find the documents they must find; the exit code is 1 if one does not.

    A check is a row of .tsv, .csv, .jsonl or .xlsx: the query, the id of the document, and
    how many first hits it must be among, 10 without `within`. Failed checks are shown with
    the rank that the document has.

    \b
    Examples:
      pellucid index check my-index checks.tsv
    """
    with _open(folder) as opened:
        failed = opened.check(checks)
        for query, id, within, rank in failed:
            rank_text = f"rank {rank:,}" if rank else "not among the first hits" if id in opened else "not in the index"
            say(f"{query}: {id} is {rank_text}; it must be within {within:,}")
    if failed:
        raise typer.Exit(1)
    say("all checks pass", err=True)


@index.command()
def calibrate(
    folder: _Folder,
    queries: Annotated[Path | None, typer.Option(help="Texts that the documents answer, one a line.")] = None,
) -> None:
    """Learn which probability a score has, for pellucid search --min-probability.

    Without --queries, queries are made from the documents. Texts that they do not answer
    are 500 open English sentences.

    \b
    Examples:
      pellucid index calibrate my-index
    """
    with _open(folder) as opened:
        opened.calibrate(None if queries is None else list(read(str(queries))))
    say(f"calibrated {folder}", err=True)


def _flag(name: str) -> str:
    """Return the option that a field of `SearchQuery` is on the command line."""
    return f"--{(name.removesuffix('s') if name in _FORMS else name).replace('_', '-')}"  # they are given one by one


def _search_option(name: str) -> Parameter:
    """Return a field of `SearchQuery` as an option; those that are no plain values are texts."""
    kind, (help_text, least, _) = OPTIONS[name]
    flags = [_flag(name), *(["-k"] if name == "top_k" else [])]
    if name in _HELP:
        return option(name, None, typer.Option(*flags, help=_HELP[name].format(help_text)), Repeated)
    return option(
        name,
        DEFAULTS[name],
        typer.Option(*flags, help=help_text, min=int(least) if kind is int else None),
        str | None if kind is Any else kind,
    )


@commands.command()
@partial(with_options, list(map(_search_option, DEFAULTS)), "search_options")
def search(
    folder: _Folder,
    query: Annotated[
        str | None,
        typer.Argument(help="Query text; without it, stdin, a query a line."),
    ] = None,
    search_options: FileOptions = FILE_DEFAULTS,
    reasons: Annotated[int, typer.Option(min=0, help="Reasons to show for each hit.")] = 3,
    rows: Annotated[bool, typer.Option("--rows", help="Show terms, e.g. pairs of words, not phrases.")] = False,
    why: Annotated[int | None, typer.Option(min=1, help="Explain what sets this hit apart.")] = None,
    why_not: Annotated[str | None, typer.Option(help="Explain why this document, by its id, is not found.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure reasons by leaving out words.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Score hits without the words of each reason.")] = False,
    output: TableOption = None,
    html: HtmlOption = None,
    json: JsonOption = False,
) -> None:
    """Find documents, and see why each was found.

    Below each document is the reason in a sentence, then the words of the query with what
    they match, or with --rows the largest terms. All terms add up to the score.

    An encoder's reasons are estimated from the stored vectors. --measure encodes the query
    and each hit again without some of their words (up to 139 texts each) and shows the
    standard error. --check scores each hit again without the words of each reason, and says
    what they are worth.

    Filters are FIELD>=VALUE, with >=, <=, >, <, = or !=; all must hold. A value has the
    type of its field; quote it to make it a string. Write dates as 2024-05-31. FIELD=
    finds documents without the field. pellucid index list shows the fields, and with
    filters documents without a query.

    \b
    Examples:
      pellucid search my-index "does aspirin prevent a heart attack?"
      pellucid search my-index "interest rates" --where "day>=2024-05-31" --where lang!=de
      pellucid search my-index "interest rates" --where "year>=2015" --weight bm25=1
      pellucid search my-index "interest rates" --steer "stock markets=-0.5"
      pellucid search my-index "interest rates" --boost "lang=en=0.2" --boost "day~30=0.3"
      pellucid search my-index "interest rates" --settings guides
      pellucid search my-index "interest rates" --why 1
      pellucid search my-index "interest rates" --why-not articles.jsonl:7
      pellucid search my-index "interest rates" --top-k 3 --measure
      pellucid search my-index "interest rates" -k 100 -o hits.xlsx
      pellucid search my-index "interest rates" --html hits.html
      pellucid search my-index < queries.txt --json > hits.jsonl
    """
    _check_order("search", folder, query or "-")
    conditions = _conditions(search_options.get("where", []))
    by_name = {
        name: values_of(search_options[name], _flag(name), *form)
        for name, form in _FORMS.items()
        if name in search_options
    }
    boosts = [_boost(text, weight) for text, weight in by_name.get("boosts", {}).items()]
    options = {**search_options, **by_name, "where": conditions, "boosts": boosts or None}
    if "rerank" in options:
        from pellucid.loading import open_sentence_transformer

        options["rerank"] = open_sentence_transformer(options["rerank"], "CrossEncoder")
    with _open(folder) as opened:
        hits_by_query = ((text, opened.search(text, **options)) for text in _queries(query))
        if measure:
            hits_by_query = ((text, hits.measured()) for text, hits in hits_by_query)
        if check:
            hits_by_query = ((text, hits.check()) for text, hits in hits_by_query)
        if output is not None:
            write_hits(output, opened, hits_by_query, options)
        else:
            for text, hits in hits_by_query:
                if query in (None, "-") and not json:
                    say(f"Query: {text}")
                if conditions and not hits and not opened.count(conditions):
                    say("no document meets the filters; see values with pellucid index count --by FIELD", err=True)
                if why is not None:
                    show(hits.why(why), json, html, rows=rows)
                elif why_not is not None:
                    show(opened.why_not(text, why_not, **options), json, html)
                elif html is not None:
                    show(hits, json, html)
                elif json:
                    typer.echo(shown_json(hits.to_json(indent=None)))
                else:
                    show_hits(hits, reasons, rows=rows)


def _check_order(command: str, folder: Path, second: str | Path) -> None:
    """Refuse an index that comes second, and a file where the folder of a new index is expected."""
    is_file_first = command == "index build" and folder.is_file() and not os.path.exists(second)
    if is_file_first or (is_index(second) and not is_index(folder)):
        raise InputError(f"the arguments look swapped; the index comes first: pellucid {command} {second} {folder}")


def _open(folder: Path) -> Index:
    from pellucid.index.index import Index

    return Index.open(folder)


@contextmanager
def _new_index(folder: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a place for a new index, which is moved to `folder` when the block ends without an error."""
    from pellucid.persistence.store import locked, writing_folder

    def replaceable(path: Path) -> set[str]:
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return set()
        if not is_index(path):
            raise InputError(f"{folder} exists, is not empty and is not an index; give a new name")
        if not overwrite:
            raise InputError(
                f"{folder} is an index already, and is not empty; add to it with pellucid index add, replace it with "
                "--overwrite, or give a new name"
            )
        return {entry.name for entry in path.iterdir() if any(fnmatch(entry.name, pattern) for pattern in _FILES)}

    with ExitStack() as stack:
        if overwrite and is_index(folder):
            stack.enter_context(locked(folder, _PATIENCE))  # documents added meanwhile would be lost
        with writing_folder(folder, replaceable) as tmp_path:
            new_folder = tmp_path / "made"  # so that its own temporary files are inside the folder
            yield new_folder
            for entry in new_folder.iterdir():
                os.replace(entry, tmp_path / entry.name)
            new_folder.rmdir()


def _note(line: str) -> None:
    say(f"note: {line}", err=True)


def _add(opened: Index, files: list[CorpusFile]) -> str:
    """Add the documents in files, and return how many there are, in words; notes on stderr show types of columns."""
    fields = opened.snapshot().commit.state.fields
    count = opened.add_files(files, note=_note, show_progress_bar=True)
    new_fields = sorted(opened.snapshot().commit.state.fields.keys() - fields.keys())
    if fields and new_fields:
        _note(f"no document had {', '.join(new_fields)} before; --leave-out leaves columns out")
    return f"added {count:,}, {len(opened):,} documents are in"


def _files(files: list[Path], file_options: FileOptions) -> list[CorpusFile]:
    """Return the files of a command, which must all exist."""
    absent = next((file for file in files if not file.exists()), None)
    if absent is not None:
        raise InputError(f"file not found: {absent}")
    return [corpus_file(file, file_options) for file in files]


def _queries(query: str | None) -> Iterator[str]:
    """Yield the query of a command, else the lines of stdin."""
    if query not in (None, "-"):
        yield query
        return
    if sys.stdin.isatty():
        raise typer.BadParameter(
            "give a query, or pipe queries in; pellucid index list shows documents by filters alone", param_hint="QUERY"
        )
    yield from (line for line in read("-") if line.strip())


def _boost(text: str, weight: float) -> dict[str, Any]:
    """Return the boost of a --boost option: a condition, or a field of dates and their half-life in days."""
    if match := _RECENT.fullmatch(text.strip()):
        return {"recent": match[1].strip(), "half_life_days": float(match[2]), "weight": weight}
    return {"where": _conditions([text], "--boost"), "weight": weight}


def _conditions(options: list[str], flag: str = "--where") -> dict[str, Any] | None:
    """Return the conditions of --where options, or of another flag."""
    from pellucid.index.metadata import AsHeld

    conditions: dict[str, dict[str, Any]] = {}
    for text in options:
        match = _CONDITION.fullmatch(text.strip())
        operator = _OPERATORS.get(match[2]) if match else None
        if match is None or operator is None:
            raise typer.BadParameter(
                f"{text!r} is not FIELD>=VALUE, with >=, <=, >, <, = or !=, such as lang=en", param_hint=flag
            )
        value = match[3]
        if not value and operator in ("eq", "ne"):
            conditions.setdefault(match[1].strip(), {})["exists"] = operator == "ne"
            continue
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        field_conditions, bound = conditions.setdefault(match[1].strip(), {}), value[1:-1] if quoted else AsHeld(value)
        alternatives = [bound] if quoted or operator not in ("eq", "ne") else [AsHeld(v) for v in value.split("|")]
        if len(alternatives) > 1 and operator == "eq":
            operator, bound = "in", alternatives
        if operator == "ne":
            field_conditions.setdefault("nin", []).extend(alternatives)
        elif operator in field_conditions:
            raise typer.BadParameter(f"{text!r} is given twice; conditions are ANDed", param_hint="--where")
        else:
            field_conditions[operator] = bound
    return conditions or None
