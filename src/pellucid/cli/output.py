"""Output of the command line: results, JSON lines, facts about models, and embeddings as npy, JSON lines or parquet.

Embeddings are written block by block, in bounded memory, and renamed at the end (`store.writing`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from pellucid.errors import InputError, missing_extra

if TYPE_CHECKING:
    import numpy as np

# characters beside those that JSON escapes itself
_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


_OUTPUT_FOLDERS = ("output",)  # parameters of commands
_OUTPUT_FILES = ("output_file", "html", "markdown", "plot", "keep")
_CHANGED = {"edit": "model", "duplicates": "file"} | dict.fromkeys(
    ("add", "spell", "prune", "retrain", "languages"), "model"
)  # commands that change what a parameter names, where the output has the same name


def overwriting_on_request(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the option --overwrite, without which it replaces no existing file or folder."""
    outputs = [name for name in (*_OUTPUT_FOLDERS, *_OUTPUT_FILES) if name in signature(command).parameters]
    if not outputs or "overwrite" in signature(command).parameters:
        return command

    @wraps(command)
    def run(*, overwrite: bool, **arguments: Any) -> None:
        from pellucid.persistence.store import check_vacant

        changed = arguments.get(_CHANGED.get(command.__name__, ""))
        for name in outputs if not overwrite else ():
            path = arguments[name]
            is_unfit = path is None or (name in _OUTPUT_FILES and path.is_dir())  # of which the command speaks
            if not is_unfit and (changed is None or not _is_same(path, changed)):
                check_vacant(path, "replace it with --overwrite")
        command(**arguments)

    option = Parameter("overwrite", Parameter.KEYWORD_ONLY, default=False, annotation=_Overwrite)
    run.__signature__ = Signature([*signature(command, eval_str=True).parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "overwrite": _Overwrite}
    return run


_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def _is_same(path: Path, name: str) -> bool:
    """Whether an output is what another parameter names: a file, or a model that does not come with us."""
    from pellucid.persistence.folder import bundled_models

    return name not in bundled_models() and os.path.exists(name) and path.exists() and path.samefile(name)


class Listed(TyperGroup):
    """A group whose help lists its commands under headings, each with the whole first sentence of its own help."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the lists."""
        names = self.list_commands(ctx)
        listed = {name for group in self.headings.values() for name in group}
        unlisted = tuple(name for name in names if name not in listed)
        for heading, group in {**self.headings, "Commands": unlisted}.items():
            commands = [(name, self.get_command(ctx, name)) for name in group if name in names]
            rows = [
                (name, " ".join((command.help or "").split("\n\n")[0].split())) for name, command in commands if command
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def say(text: str, *, err: bool = False) -> None:
    """Print a line that may hold a user's text, name or file, with control characters made visible."""
    from pellucid.explain.views.parts import visible

    typer.echo(visible(text), err=err)


def json_line(value: Any) -> str:
    """Return `value` as JSON on one line."""
    return shown_json(json.dumps(value, ensure_ascii=False))


def shown_json(text: str) -> str:
    """Return JSON with the characters that could steer a terminal written as escapes."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def show(
    result: Any,
    json: bool,
    html: Path | None = None,
    plot: Path | None = None,
    *,
    plain: bool = False,
    top_k: int | None = None,
    rows: bool = False,
) -> None:
    """Write an explanation or a report to the files asked for, otherwise to stdout, as JSON or for people.

    An explanation shows its rows in a terminal and a picture if `rows` is set, and `top_k` of them.
    """
    from rich.console import Console

    from pellucid.explain.views.terminal import Lines
    from pellucid.persistence.store import writing

    with_rows: dict[str, Any] = {"rows": True} if rows else {}
    limits = {} if top_k is None else {"top_k": top_k}  # a picture has a limit of its own
    if html is not None:
        with writing(html) as tmp_path:
            tmp_path.write_text(result.to_html(**limits), encoding="utf-8")
        say(f"wrote {html}", err=True)
    if plot is not None:
        figure, kind = result.plot(**with_rows), plot.suffix.lower().removeprefix(".")
        if kind not in (kinds := figure.canvas.get_supported_filetypes()):
            raise InputError(f"cannot draw {plot}; end its name in one of: {', '.join(sorted(kinds))}")
        with writing(plot) as tmp_path:
            figure.savefig(tmp_path, format=kind, bbox_inches="tight")
        say(f"wrote {plot}", err=True)
    if json:
        typer.echo(shown_json(result.to_json()))
    elif html is None and plot is None:
        console = Console(highlight=False, no_color=plain or None, soft_wrap=False)
        if plain or not console.is_terminal:
            typer.echo(result.to_text(width=console.width, **limits, **with_rows))
        else:
            console.print(Lines(result._parts(**limits, **with_rows)))


def model_summary(name: str) -> dict[str, Any]:
    """Return what a bundled model's card and config say of it, with its needs and its size."""
    from pellucid.persistence.folder import bundled_models, locate, read_config

    folder = locate(name)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    patterns = {  # the first paragraph below the title, and lines of the head
        "about": r"^# .*\n\n((?:[^\n#].*\n)+)",
        "licence": r"^license: *(.+)$",
        "languages": r"^language:((?: .+)?(?:\n- .+)*)",
        "quality": r"^quality: *(.+)$",
    }
    matches = {key: re.search(pattern, text, re.MULTILINE) for key, pattern in patterns.items()}
    summary: dict[str, Any] = {
        "name": name,
        **{key: " ".join(match[1].split()) for key, match in matches.items() if match},
    }
    if "languages" in summary:
        summary["languages"] = ", ".join(re.findall(r"[\w-]*\w", summary["languages"]))
    config = read_config(folder)
    source = config.get("encoder") or config.get("backbone")
    fetched = f", and {source} from the Hugging Face hub" if "/" in str(source) else ""
    family_needs = {"static": "nothing more", "static-lexicon": "pellucid[sparse]"}
    needs = "nothing more" if source in bundled_models() else f"pellucid[torch]{fetched}"
    summary["needs"] = family_needs.get(config["family"], needs)
    summary |= {key: value for key, value in config.items() if key not in ("format", "files", "sha256")}
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return summary | {"megabytes": round(size / 1e6, 1), "card": str(card)}


FORMATS = ("npy", "jsonl", "parquet")

Write = Callable[[Sequence[str], Any], None]
"""Takes a block's texts and their embeddings: float32 [texts, dimension], or a CSR matrix of that shape."""


def output_format(path: Path | None, name: str | None) -> str:
    """Return the format called `name`, otherwise the one `path` ends with; JSON lines without both."""
    if name is None and path is None:
        return "jsonl"
    chosen = (name or (path.suffix if path else "")).lower().removeprefix(".")
    if chosen not in FORMATS:
        named = f"format {name!r}" if name else f"the format of {path}"
        raise InputError(f"cannot write {named}; end the file name in .npy, .jsonl or .parquet, or name one of them")
    return chosen


@contextmanager
def open_writer(path: Path | None, kind: str, dimension: int, stdout: IO[str]) -> Iterator[Write]:
    """Yield the function that writes blocks to `path`, whole or not at all; JSON lines may go to `stdout`."""
    if path is None:
        if kind != "jsonl":
            raise InputError(f"{kind} is not text and cannot go to the terminal or a pipe; name a file with --output")
        yield _json_lines(stdout)
        return
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write, or give the folder after FILE for shards")
    from pellucid.persistence.store import writing

    is_device = path.exists() and not path.is_file()  # such as /dev/null, which cannot be replaced
    with nullcontext(path) if is_device else writing(path) as target, _OPENERS[kind](target, dimension) as write:
        yield write


@contextmanager
def _open_jsonl(path: Path, dimension: int) -> Iterator[Write]:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        yield _json_lines(file)


def _json_lines(file: IO[str]) -> Write:
    def write(texts: Sequence[str], embeddings: Any) -> None:
        for text, embedding in zip(texts, _json_arrays(embeddings)):
            file.write(f'{{"text": {json.dumps(text)}, "embedding": {embedding}}}\n')

    return write


def _json_arrays(embeddings: Any) -> Iterator[str]:
    """Yield each row as JSON: a list, or for a sparse one its dimensions and their values."""
    if not hasattr(embeddings, "tocsr"):
        yield from map(_json_floats, embeddings)
        return
    rows = embeddings.tocsr()
    for start, end in zip(rows.indptr[:-1], rows.indptr[1:]):
        yield f'{{"dimensions": {rows.indices[start:end].tolist()}, "values": {_json_floats(rows.data[start:end])}}}'


def _json_floats(row: Iterable[np.float32]) -> str:
    return "[" + ", ".join(map("%.9g".__mod__, row)) + "]"  # nine digits are exact for float32


@contextmanager
def _open_npy(path: Path, dimension: int) -> Iterator[Write]:
    """Write rows one after another; their number is filled in at the end, since numpy's header has room for it."""
    import numpy as np
    from numpy.lib.format import write_array_header_1_0

    count = 0

    def write(texts: Sequence[str], embeddings: Any) -> None:
        nonlocal count
        if hasattr(embeddings, "tocsr"):
            raise InputError("this model's embeddings are sparse, which npy cannot hold; write .jsonl or .parquet")
        file.write(np.ascontiguousarray(embeddings, dtype="<f4").data)
        count += len(embeddings)

    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False}
        write_array_header_1_0(file, {**header, "shape": (0, dimension)})
        yield write
        file.seek(0)
        write_array_header_1_0(file, {**header, "shape": (count, dimension)})


@contextmanager
def _open_parquet(path: Path, dimension: int) -> Iterator[Write]:
    """Write one row group a block: columns `text` and `embedding` (a list, or a struct of two where sparse)."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise missing_extra("pyarrow", "parquet") from error
    import numpy as np

    from pellucid.text.unicode import well_formed

    dense = pa.list_(pa.float32(), dimension)
    writer: Any = None

    def write(texts: Sequence[str], embeddings: Any) -> None:
        nonlocal writer
        if hasattr(embeddings, "tocsr"):
            rows = embeddings.tocsr()
            starts = pa.array(rows.indptr, pa.int32())
            columns = [
                pa.ListArray.from_arrays(starts, pa.array(a)) for a in (rows.indices.astype(np.int32), rows.data)
            ]
            column = pa.StructArray.from_arrays(columns, names=["dimensions", "values"])
        else:
            column = pa.FixedSizeListArray.from_arrays(np.asarray(embeddings, np.float32).ravel(), type=dense)
        table = pa.table({"text": pa.array(map(well_formed, texts), pa.string()), "embedding": column})
        writer = writer or ParquetWriter(path, table.schema)
        writer.write_table(table)

    try:
        yield write
        if writer is None:
            writer = ParquetWriter(path, pa.schema({"text": pa.string(), "embedding": dense}))
    finally:
        if writer is not None:
            writer.close()


_OPENERS = {"npy": _open_npy, "jsonl": _open_jsonl, "parquet": _open_parquet}


TABLE_FORMATS = (".csv", ".tsv", ".jsonl", ".xlsx")

Columns = Mapping[str, str]
"""The columns of a table and what they hold: "date", or anything else."""

Rows = Iterable[Sequence[Any]]
"""Rows of a table: strings, numbers, booleans, None, and lists of these."""

_MAX_CELL_UNITS = 32_767  # of a workbook, in UTF-16
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that no workbook can hold
_FIRST_YEAR = 1901  # of dates in a workbook: Excel knows none before 1900, whose leap day it gets wrong


def check_table(path: Path | None) -> None:
    """Check the name of a table, before what is written takes long."""
    if path is not None and path.suffix.lower() not in TABLE_FORMATS:
        raise InputError(f"cannot write {path}; end its name in one of: {', '.join(TABLE_FORMATS)}")


def write_table(path: Path, columns: Columns, rows: Rows) -> None:
    """Write rows to a table one at a time, whole or not at all, and say so on stderr.

    CSV and TSV have a byte order mark, so that Excel reads their UTF-8; there and in workbooks what a spreadsheet would
    take for a formula gets an apostrophe before it, which our reader takes away again.

    Raises:
        InputError: the name does not end in one of `TABLE_FORMATS`.
        MissingExtraError: openpyxl is not installed.
    """
    from pellucid.persistence.store import writing

    check_table(path)
    writers: dict[str, Callable[[Path, Columns, Rows], None]] = {
        ".csv": partial(_write_delimited, ","), ".tsv": partial(_write_delimited, "\t"), ".jsonl": _write_jsonl,
        ".xlsx": _write_xlsx,
    }  # fmt: skip
    with writing(path) as tmp_path:
        writers[path.suffix.lower()](tmp_path, columns, rows)
    say(f"wrote {path}", err=True)


def cell(value: Any, *, is_workbook: bool = False) -> Any:
    """Return a value as a cell of any table of cells: lists as JSON, no formulas, in a workbook what one can hold."""
    from pellucid.text.delimited import as_cell
    from pellucid.text.unicode import well_formed

    value = json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple)) else value
    if not isinstance(value, str):
        return value
    text = well_formed(value)
    if not is_workbook:
        return as_cell(text)
    text = as_cell(_NOT_XML.sub("", text))
    return text.encode("utf-16-le")[: 2 * _MAX_CELL_UNITS].decode("utf-16-le", "ignore")


def _write_delimited(delimiter: str, path: Path, columns: Columns, rows: Rows) -> None:
    import csv

    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        table = csv.writer(file, delimiter=delimiter)
        table.writerows(list(map(cell, row)) for row in chain([list(columns)], rows))


def _write_jsonl(path: Path, columns: Columns, rows: Rows) -> None:
    from pellucid.text.unicode import well_formed

    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            record = dict(zip(columns, row, strict=True))
            file.write(well_formed(json.dumps(record, ensure_ascii=False)) + "\n")


def _write_xlsx(path: Path, columns: Columns, rows: Rows) -> None:
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError as error:
        raise missing_extra("openpyxl", "xlsx") from error

    from pellucid.text.spreadsheet import WORKBOOK_CREATOR

    workbook = Workbook(write_only=True)
    workbook.properties.creator = WORKBOOK_CREATOR
    sheet = workbook.create_sheet("pellucid")
    n_changed = 0
    for row in chain([list(columns)], rows):
        cells = []
        for kind, value in zip(columns.values(), row, strict=True):
            written = WriteOnlyCell(sheet, _day(value) if kind == "date" else cell(value, is_workbook=True))
            if isinstance(written.value, str):
                written.data_type = "s"  # also what openpyxl would take for an error, such as #N/A
                n_changed += isinstance(value, str) and written.value.removeprefix("'") != value.removeprefix("'")
            cells.append(written)
        sheet.append(cells)
    workbook.save(path)
    if n_changed:
        say(
            f"note: {n_changed:,} cells are cut at {_MAX_CELL_UNITS:,} characters or lack control characters, the "
            "limits of a workbook; .csv, .jsonl and .parquet hold all",
            err=True,
        )


def _day(value: Any) -> Any:
    """Return a date without a time as a workbook's date, any other value as a cell."""
    from datetime import date

    if isinstance(value, str) and len(value) == len("2024-05-31"):
        with suppress(ValueError):
            day = date.fromisoformat(value)
            return day if day.year >= _FIRST_YEAR else value
    return cell(value, is_workbook=True)
