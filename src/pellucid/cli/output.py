"""Output of the command line: results, tables, facts about models, and embeddings as npy or JSON lines.

Embeddings are written block by block, in bounded memory, and renamed at the end (`store.writing`).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Annotated, Any, ClassVar, get_args

import typer
from typer.core import TyperGroup

from pellucid.errors import InputError, importing

if TYPE_CHECKING:
    import numpy as np

# characters beside those that JSON escapes itself
_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_OUTPUT_FILES = ("output_file", "html", "keep")  # parameters of commands


def overwriting_on_request(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the option --overwrite, without which it replaces no existing file or folder."""
    outputs = [name for name in ("output", *_OUTPUT_FILES) if name in signature(command).parameters]
    if not outputs or "overwrite" in signature(command).parameters:
        return command

    @wraps(command)
    def run(*, overwrite: bool, **arguments: Any) -> None:
        from pellucid.persistence.store import check_vacant

        for name in outputs:
            path = arguments[name]
            if path is not None and not path.expanduser().parent.is_dir():  # a mistyped one must not be made
                raise InputError(f"cannot write {path}; there is no folder {path.parent}")
            is_unfit = path is None or (name in _OUTPUT_FILES and path.is_dir())  # of which the command speaks
            if not is_unfit and not overwrite:
                check_vacant(path, "replace it with --overwrite")
        command(**arguments)

    option = Parameter("overwrite", Parameter.KEYWORD_ONLY, default=False, annotation=_Overwrite)
    run.__signature__ = Signature([*signature(command, eval_str=True).parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "overwrite": _Overwrite}
    return run


_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def read_plainly(params: list[Any]) -> list[Any]:
    """Return parameters of typer, which read plain values without pydantic: its import takes as long as a search."""
    for param in params:
        kind = param.type_descriptor.annotation
        kind = next(iter(get_args(kind)), kind)  # of a list that of its items
        if kind in (str, int, float, Path) or (kind is bool and not param.envvar):  # other flags are never strings
            settings = param.type_descriptor.parameter_info
            param._runtime_param = SimpleNamespace(coerce=partial(_read_value, kind, settings.min, settings.max))
    return params


def _read_value(
    kind: Callable[[Any], Any], least: float | None, most: float | None, value: Any, param: Any, ctx: Any
) -> Any:
    """Return a value of a parameter as its type, and several as a list; as typer's `RuntimeParam.coerce`."""
    if value is None:
        return () if param.multiple or param.nargs == -1 else None
    if isinstance(value, (list, tuple)):
        return [_read_value(kind, least, most, item, param, ctx) for item in value]
    try:
        converted = kind(value)
    except ValueError:
        raise typer.BadParameter(f"{value!r:.80} is not a {'whole ' * (kind is int)}number", ctx, param) from None
    if least is not None and converted < least:
        raise typer.BadParameter(f"{converted} is too small; give {least} or more", ctx, param)
    if most is not None and converted > most:
        raise typer.BadParameter(f"{converted} is too large; give {most} or less", ctx, param)
    return converted


class Listed(TyperGroup):
    """A group whose help lists its commands under headings, each with the whole first sentence of its own help."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {}

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the group."""
        return read_plainly(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, None for an unknown name."""
        command = super().get_command(ctx, cmd_name)
        read_plainly([] if command is None or ctx is None else command.get_params(ctx))
        return command

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
    *,
    top_k: int | None = None,
    rows: bool = False,
) -> None:
    """Write an explanation or a report to the files asked for, otherwise to stdout, as JSON or for people.

    An explanation shows its rows in a terminal if `rows` is set, and `top_k` of them.
    """
    from rich.console import Console

    from pellucid.explain.views.terminal import Lines
    from pellucid.persistence.store import writing

    with_rows: dict[str, Any] = {"rows": True} if rows else {}
    limits = {} if top_k is None else {"top_k": top_k}  # a page has a limit of its own
    if html is not None:
        with writing(html) as tmp_path:
            tmp_path.write_text(result.to_html(**limits), encoding="utf-8")
        say(f"wrote {html}", err=True)
    if json:
        typer.echo(shown_json(result.to_json()))
    elif html is None:
        console = Console(highlight=False, soft_wrap=False)
        if not console.is_terminal:
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
    family_needs = {"static": "nothing more", "static-lexicon": "pellucid[sparse]", "encoder": "pellucid[onnx]"}
    family = read_config(locate(source))["family"] if source in bundled_models() else config["family"]
    summary["needs"] = family_needs.get(family, f"pellucid[torch]{fetched}")
    summary |= {key: value for key, value in config.items() if key not in ("format", "files", "sha256")}
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return summary | {"megabytes": round(size / 1e6, 1), "card": str(card)}


Write = Callable[[Sequence[str], Any], None]
"""Takes a block's texts and their embeddings: float32 [texts, dimension], or a CSR matrix of that shape."""


@contextmanager
def open_writer(path: Path | None, dimension: int, stdout: IO[str]) -> Iterator[Write]:
    """Yield the function that writes blocks to `path`, whole or not at all, or as JSON lines to `stdout`."""
    if path is None:
        yield partial(_write_json_lines, stdout)
        return
    kind = path.suffix.lower()
    if kind not in (".npy", ".jsonl"):
        raise InputError(
            f"cannot write {path}; end its name in .npy or .jsonl, or give a folder after FILE for shards of parquet"
        )
    from pellucid.persistence.store import writing

    with writing(path) as tmp_path:
        if kind == ".jsonl":
            with open(tmp_path, "w", encoding="utf-8", newline="\n") as file:
                yield partial(_write_json_lines, file)
            return
        from numpy.lib.format import write_array_header_1_0

        header = {"descr": "<f4", "fortran_order": False}
        with open(tmp_path, "wb") as array_file:
            write_array_header_1_0(array_file, {**header, "shape": (0, dimension)})
            start = array_file.tell()
            yield partial(_write_floats, array_file)
            n_rows = (array_file.tell() - start) // (4 * dimension)
            array_file.seek(0)  # the number of rows is filled in at the end, since numpy's header has room for it
            write_array_header_1_0(array_file, {**header, "shape": (n_rows, dimension)})


def _write_json_lines(file: IO[str], texts: Sequence[str], embeddings: Any) -> None:
    arrays: Iterable[str]
    if not hasattr(embeddings, "tocsr"):
        arrays = map(_json_floats, embeddings)
    else:  # the dimensions of each row, and their values
        rows = embeddings.tocsr()
        arrays = (
            f'{{"dimensions": {rows.indices[start:end].tolist()}, "values": {_json_floats(rows.data[start:end])}}}'
            for start, end in zip(rows.indptr[:-1], rows.indptr[1:])
        )
    for text, embedding in zip(texts, arrays):
        file.write(f'{{"text": {json.dumps(text)}, "embedding": {embedding}}}\n')


def _json_floats(row: Iterable[np.float32]) -> str:
    return "[" + ", ".join(map("%.9g".__mod__, row)) + "]"  # nine digits are exact for float32


def _write_floats(file: IO[bytes], texts: Sequence[str], embeddings: Any) -> None:
    import numpy as np

    if hasattr(embeddings, "tocsr"):
        raise InputError("this model's embeddings are sparse, which npy cannot hold; write .jsonl, or shards")
    file.write(np.ascontiguousarray(embeddings, dtype="<f4").data)


TABLE_FORMATS = (".csv", ".tsv", ".jsonl", ".xlsx")

Rows = Iterable[Sequence[Any]]
"""Rows of a table: strings, numbers, booleans, None, and lists of these."""

_MAX_CELL_UNITS = 32_767  # of a workbook, in UTF-16
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that no workbook can hold


def check_table(path: Path | None) -> Path | None:
    """Return the path of a table after checking its name, before what is written takes long."""
    if path is not None and path.suffix.lower() not in TABLE_FORMATS:
        raise InputError(f"cannot write {path}; end its name in one of: {', '.join(TABLE_FORMATS)}")
    return path


def write_table(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """Write rows to a table one at a time, whole or not at all, and say so on stderr.

    CSV and TSV have a byte order mark, so that Excel reads their UTF-8; there and in workbooks what a spreadsheet would
    take for a formula gets an apostrophe before it, which our reader takes away again. A cell of a workbook is cut at
    32,767 characters (a note says so) and lacks control characters.

    Raises:
        MissingExtraError: openpyxl is not installed.
    """
    from pellucid.persistence.store import writing
    from pellucid.text.unicode import well_formed

    kind = path.suffix.lower()
    with writing(path) as tmp_path:
        if kind == ".xlsx":
            _write_xlsx(tmp_path, columns, rows)
        elif kind == ".jsonl":
            with open(tmp_path, "w", encoding="utf-8", newline="\n") as file:
                for row in rows:
                    record = dict(zip(columns, row, strict=True))
                    file.write(well_formed(json.dumps(record, ensure_ascii=False)) + "\n")
        else:
            with open(tmp_path, "w", encoding="utf-8-sig", newline="") as file:
                table = csv.writer(file, delimiter="," if kind == ".csv" else "\t")
                table.writerows(list(map(cell, row)) for row in chain([columns], rows))
    say(f"wrote {path}", err=True)


def cell(value: Any) -> Any:
    """Return a value as a cell of a table of cells: lists as JSON, no formulas."""
    from pellucid.text.delimited import as_cell
    from pellucid.text.unicode import well_formed

    value = json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple)) else value
    return as_cell(well_formed(value)) if isinstance(value, str) else value


def _write_xlsx(path: Path, columns: Sequence[str], rows: Rows) -> None:
    with importing("xlsx", "openpyxl"):
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell

    from pellucid.text.spreadsheet import WORKBOOK_CREATOR

    workbook = Workbook(write_only=True)
    workbook.properties.creator = WORKBOOK_CREATOR
    sheet = workbook.create_sheet("pellucid")
    n_cut = 0
    for row in chain([columns], rows):
        n_cut += sum(isinstance(value, str) and len(value) > _MAX_CELL_UNITS for value in row)
        cells = [WriteOnlyCell(sheet, _workbook_value(value)) for value in row]
        for written in cells:
            if isinstance(written.value, str):
                written.data_type = "s"  # also what openpyxl would take for an error, such as #N/A
        sheet.append(cells)
    workbook.save(path)
    if n_cut:
        say(f"note: {n_cut:,} cells are cut at {_MAX_CELL_UNITS:,} characters; .csv and .jsonl hold all", err=True)


def _workbook_value(value: Any) -> Any:
    """Return a value as a cell of a workbook: without control characters, and cut."""
    content = cell(_NOT_XML.sub("", value) if isinstance(value, str) else value)
    if not isinstance(content, str):
        return content
    return content.encode("utf-16-le")[: 2 * _MAX_CELL_UNITS].decode("utf-16-le", "ignore")
