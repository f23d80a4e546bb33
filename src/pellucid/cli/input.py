"""Input of the command line: models, texts and pairs of texts, from arguments, files and stdin, as streams."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from pellucid.cli.output import check_table, say
from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.core.embedder import Embedder
    from pellucid.text.tables import CorpusFile


_MODEL = "A bundled name, a folder, or a Hugging Face hub id"
ModelOption = Annotated[str, typer.Option("--model", "-m", help=f"{_MODEL}.")]
ModelsOption = Annotated[list[str], typer.Option("--model", "-m", help=f"{_MODEL}; repeat for more.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]
HtmlOption = Annotated[Path | None, typer.Option(help="Write a self-contained HTML page to this file.")]
TableOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write a table: .csv, .tsv, .jsonl or .xlsx.", callback=check_table),
]
TextsHelp = ".txt (one text a line), .csv, .tsv, .jsonl, .json, .parquet or .xlsx"
CorpusHelp = f"{TextsHelp}, or an index; - is stdin."

Repeated = list[str] | None
"""An option that may be given several times."""

FileOptions = Mapping[str, Any]
"""How a file is read: arguments of `CorpusFile`."""


def option(name: str, default: Any, settings: Any, kind: Any = str | None) -> inspect.Parameter:
    """Return an option as a parameter of a command; `settings` are typer's."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, settings]
    )


_TEXT_OPTIONS = (
    option("field", "text", typer.Option(help="The column or key that holds the text."), str),
    option("encoding", None, typer.Option(help="Character encoding, e.g. cp1252. [default: UTF-8]")),
    option("delimiter", None, typer.Option(help="Cell delimiter: a character, or comma, tab, ... [default: detected]")),
    option("quoting", None, typer.Option(help="Quoting of cells: csv, backslash or none. [default: detected]")),
)
_DOCUMENT_OPTIONS = (
    option("id_field", "id", typer.Option(help="The column or key of the ids. Without ids: file and line."), str),
    option("title_field", "title", typer.Option(help="The column or key of the titles."), str),
    option("decimal", ".", typer.Option(help="Decimal mark of numbers in .csv and .tsv: . or ,"), str),
    option("date_format", None, typer.Option(help="A date format of .csv and .tsv besides ISO, e.g. %d.%m.%Y.")),
    option("columns", None, typer.Option(help="Keep only these as metadata: A,B,C."), Repeated),
    option("leave_out", None, typer.Option(help="Leave these out of the metadata: A,B,C."), Repeated),
    option(
        "types",
        None,
        typer.Option(
            "--type", metavar="COLUMN=TYPE", help="number, date, boolean or string; repeat for more. See below."
        ),
        Repeated,
    ),
)

FILE_DEFAULTS: FileOptions = MappingProxyType({})

STDIN = "/dev/stdin"
_FILE_ENDINGS = tuple(
    ".txt .csv .tsv .jsonl .ndjson .json .parquet .xlsx .xz .gz .bz2 .zip".split()
)  # fmt: skip


def open_model(name: str) -> Embedder:
    """Return the model that --model names."""
    from pellucid.loading import load

    return load(name)


def with_options(options: Iterable[inspect.Parameter], name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `name` of a command by options, which it gets as a dict of those that are given."""
    signature = inspect.signature(command, eval_str=True)
    parameters = list(signature.parameters.values())
    index = list(signature.parameters).index(name)
    parameters[index : index + 1] = options
    names = [option.name for option in options]

    @wraps(command)
    def wrapped(**values: Any) -> None:
        file_options = {option: value for option in names if (value := values.pop(option)) is not None}
        command(**values, **{name: file_options})

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    wrapped.__signature__ = signature.replace(parameters=keywords)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return wrapped


reads_texts, reads_documents = (
    partial(with_options, _TEXT_OPTIONS, "file_options"),
    partial(with_options, _TEXT_OPTIONS + _DOCUMENT_OPTIONS, "file_options"),
)


def corpus_file(source: str | Path, file_options: FileOptions) -> CorpusFile:
    """Return the file of a command; "-" is stdin as a table."""
    from pellucid.text.tables import CorpusFile

    options = dict(file_options)
    for name in ("columns", "leave_out"):
        if name in options:
            options[name] = [column.strip() for value in options[name] for column in value.split(",")]
    if "types" in options:
        options["types"] = values_of(options["types"], "--type", "COLUMN=TYPE, such as stars=number")
    return CorpusFile(STDIN if source == "-" else source, **options)


def is_index(path: str | Path) -> bool:
    """Whether a folder is an index, of any version, whole or damaged."""
    file_path = os.path.join(path, "index.json")
    if not os.path.isfile(file_path):
        return False
    with open(file_path, "rb") as file:
        return b'"pellucid-index"' in file.read(1000)


def corpus_of(source: str, file_options: FileOptions) -> Any:
    """Return a file of texts, or the texts of stdin or an index as a list."""
    return list(read(source, file_options)) if source == "-" or is_index(source) else corpus_file(source, file_options)


def read(source: str, file_options: FileOptions = FILE_DEFAULTS) -> Iterator[str]:
    """Yield the texts of a file or an index, or of stdin where `source` is "-": each line is one.

    Raises:
        CorpusError: the file holds no texts; of stdin a note says so.
    """
    from pellucid.errors import CorpusError
    from pellucid.text.lines import check_file, is_stream

    if source == "-" and "delimiter" not in file_options:
        texts = _stdin(file_options.get("encoding"))
    elif is_index(source):
        from pellucid.index.commits import check_format, read_commit

        check_format(Path(source))
        texts = (document.text for document in read_commit(Path(source)).documents())
    else:
        file = corpus_file(source, file_options)
        check_file(file.source)
        texts = iter(file)
    first = next(texts, None)
    if first is not None:
        yield first
        yield from texts
    elif source == "-" or is_stream(Path(source)):
        say(f"note: {'stdin' if source == '-' else source} holds no texts", err=True)
    else:
        raise CorpusError(f"{source} holds no texts")


def refuse_files(texts: Iterable[str | None], instead: str) -> None:
    """Refuse names of files where texts are expected, and texts that end like one; `instead` is what reads a file."""
    for text in texts:
        if text is None or "\0" in text:
            continue
        if os.path.exists(text) and not os.path.isdir(text):  # a pipe, as of <(command), is read like a file
            raise InputError(
                f"{text} is a file; for what is in it: {instead}. If this is the text itself, put a blank behind it"
            )
        if text.lower().endswith(_FILE_ENDINGS) and not any(map(str.isspace, text)):
            raise InputError(f"file not found: {text}. Put a blank behind it if it is the text")


def values_of(
    options: Iterable[str] | None, option: str, form: str, kind: Callable[[str], Any] = str
) -> dict[str, Any]:
    """Return the values by name that `option` gives in a form such as "NAME=TITLE"; a name may hold "=" itself."""
    value_by_name: dict[str, Any] = {}
    for text in options or ():
        name, _, value = text.rpartition("=")
        if name in value_by_name:
            raise typer.BadParameter(f"{name!r:.80} is given twice", param_hint=option)
        with suppress(ValueError):
            if name and value:
                value_by_name[name] = kind(value)
        if name not in value_by_name:
            raise typer.BadParameter(f"{text!r:.80} is not {form}", param_hint=option)
    return value_by_name


def tabbed_pairs(source: str) -> Iterator[tuple[str, str]]:
    """Yield the two columns of a file with a tab between them, or of stdin where `source` is "-"."""
    from pellucid.text.lines import read_lines

    name = "stdin" if source == "-" else source
    lines = _stdin() if source == "-" else read_lines(Path(source), "file of pairs")
    for number, line in enumerate(lines, 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise InputError(f"{name}, line {number} has {len(columns)} columns; two texts and a tab are needed")
        yield columns[0], columns[1]


def _stdin(encoding: str | None = None) -> Iterator[str]:
    from pellucid.text.lines import check_encoding, read_lines

    if sys.stdin.isatty():
        raise typer.BadParameter("name a file, or pipe texts in", param_hint="FILE")
    name = None if encoding is None else check_encoding(encoding)
    return read_lines(cast("BinaryIO", sys.stdin.buffer), "stdin", encoding=name)
