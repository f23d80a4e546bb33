"""The command line. Each command is one function, in this file or in a module whose `commands` are added below.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 an error that pellucid explains in one line,
2 a command that was typed wrongly, 130 interrupted, 141 the reader of a pipe is gone. Imports are inside the commands,
so that `--help` and completion answer at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from copy import copy
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from pellucid.cli import look, make, search, serving
from pellucid.cli.input import (
    FILE_DEFAULTS,
    CorpusHelp,
    FileOptions,
    HtmlOption,
    JsonOption,
    ModelOption,
    TableOption,
    corpus_file,
    corpus_of,
    open_model,
    read,
    reads_texts,
    refuse_files,
)
from pellucid.cli.output import (
    Listed,
    json_line,
    model_summary,
    overwriting_on_request,
    say,
    show,
    write_table,
)
from pellucid.errors import VERSION, InputError, PellucidError

_UsageError: Any = typer.BadParameter.__base__  # typer gives it no public name
_EXTRA_ARGUMENT_HINTS = {
    "search": 'put a query of several words in quotation marks: pellucid search INDEX "several words"',
    "explain": 'put each text in quotation marks: pellucid explain "one text" "another text"',
    "report": "name your texts with --texts FILE",
    "bias": "name a table of pairs with --pairs, and a file of texts with --targets",
    "evaluate": "name a folder of test sets with --data, and a model with --model",
}


class Commands(Listed):
    """The commands, with errors turned into one line and an exit code."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {
        "Embed and explain": ("encode", "explain", "describe", "duplicates"),
        "Search": ("index", "search", "serve", "mcp"),
        "Look into a model": ("compare", "topics", "audit", "bias", "report", "evaluate"),
        "Make and change models": ("distill", "edit"),
        "This installation": ("models", "doctor"),
    }

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # closed by >&-
                sys.stdout.flush()  # here, where a closed pipe can still be dealt with
            return result
        except _UsageError as error:
            if "extra argument" in error.message and error.ctx.info_name in _EXTRA_ARGUMENT_HINTS:
                error.message += f"; {_EXTRA_ARGUMENT_HINTS[error.ctx.info_name]}"
            raise
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except (PellucidError, OSError) as error:
            text = str(error)
            if isinstance(error, OSError) and error.strerror:
                text = error.strerror + (f": {error.filename}" if error.filename else "")
            say(f"error: {' '.join(text.split())}", err=True)
            raise typer.Exit(1) from None
        except ImportError as error:  # of what every installation has; `say` may need it, too
            typer.echo(f"error: {error}; this installation is broken: pip install --force-reinstall pellucid", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: quick, the same in a file as on a screen
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Progress bars go to stderr after two seconds of work; PELLUCID_PROGRESS=0 silences them.",
)

_BLOCK_TEXTS = 16_384  # that are encoded together


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"pellucid {VERSION}")
        raise typer.Exit


@app.callback()
def _pellucid(
    context: typer.Context,
    allow_outside: Annotated[
        bool,
        typer.Option(
            "--allow-outside",
            envvar="PELLUCID_ALLOW_OUTSIDE",
            help="Open files outside a model's folder that it names, on this machine or the hub.",
        ),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Explainable text embeddings that run on a laptop."""
    if allow_outside:
        from pellucid.persistence.folder import allow_external

        context.with_resource(allow_external(True))


@app.command()
@reads_texts
def encode(
    file: Annotated[str, typer.Argument(help=CorpusHelp)] = "-",
    folder: Annotated[
        Path | None, typer.Argument(help="A folder of shards to write or resume, instead of --output.")
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; .npy or .jsonl. Default: JSON lines to stdout."),
    ] = None,
    role: Annotated[str | None, typer.Option(help="query or document: how a search uses the texts.")] = None,
    model: ModelOption = "static-en",
    id_field: Annotated[str | None, typer.Option(help="Shards: the key or column of the ids.")] = None,
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Turn texts into embeddings.

    Memory use does not grow with the number of texts. The output file appears when it is
    complete.

    With a FOLDER, embeddings and ids are written in .parquet shards of 65,536 texts. Rerun
    the command to resume. Ids are row numbers unless --id-field names a column.

    Some models encode queries differently from documents, e.g. with an instruction;
    without --role a text is neither.

    \b
    Examples:
      pellucid encode texts.txt -o embeddings.npy
      pellucid encode questions.txt --role query -m my-lexicon -o query-vectors.jsonl
      pellucid encode reviews.jsonl --field review -o reviews.npy
      pellucid encode big.parquet shards --id-field key
      cut -f 2 log.tsv | pellucid encode > embeddings.jsonl
    """
    if folder is None:
        if id_field is not None:
            raise typer.BadParameter("needs a folder of shards", param_hint="--id-field")
        from pellucid.cli.output import open_writer
        from pellucid.progress import Progress
        from pellucid.text.lines import batches_by_size

        opened, texts = open_model(model), read(file, file_options)
        shows_bar = output_file is not None or not sys.stdout.isatty()  # not between the lines of the result
        with (
            open_writer(output_file, opened.get_embedding_dimension(), sys.stdout) as write,
            Progress("encoding", enabled=shows_bar) as progress,
        ):
            for block in batches_by_size(texts, _BLOCK_TEXTS, len):
                write(block, opened.encode(block, role))
                progress.advance(len(block))
        return
    if output_file is not None or file == "-":
        raise typer.BadParameter("a folder of shards needs a FILE, and no --output", param_hint="FOLDER")
    from pellucid.bulk import encode_corpus

    shards = encode_corpus(model, corpus_file(file, file_options), folder, id_field=id_field, role=role)  # type: ignore[arg-type]  # which is checked there
    say(f"{folder}: {len(shards):,} {'shards' if len(shards) > 1 else 'shard'}", err=True)


@app.command()
@reads_texts
def duplicates(
    file: Annotated[str, typer.Argument(help=CorpusHelp)] = "-",
    threshold: Annotated[float, typer.Option(help="A cosine above 0 and up to 1.")] = 0.9,
    same_numbers: Annotated[bool, typer.Option("--same-numbers", help="Keep a text whose numbers differ.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Write the corpus without its duplicates to this file.")] = None,
    output: TableOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Find the texts of a corpus that nearly repeat an earlier one.

    A text is a duplicate if its cosine to an earlier text that stays is at least the
    threshold. Each pair is shown with the words that differ.

    --keep writes the remaining lines, or rows of Parquet, with all columns, to a file
    of the same format, --output the pairs.

    \b
    Examples:
      pellucid duplicates corpus.txt --threshold 0.95
      pellucid duplicates corpus.parquet --same-numbers --keep deduplicated.parquet
      pellucid duplicates questions.jsonl --field question -o pairs.csv
    """
    from pellucid.bulk.near_duplicates import duplicates as find
    from pellucid.bulk.near_duplicates import write_kept
    from pellucid.text.tables import check_copy

    source = corpus_of(file, file_options)
    if keep is not None:
        if isinstance(source, list):
            raise typer.BadParameter("needs a file as input, not stdin or an index", param_hint="--keep")
        check_copy(source, keep)  # now: the comparison takes long
    result = find(source, model, threshold=threshold, same_numbers=same_numbers, show_progress_bar=True)
    if keep is not None:
        write_kept(source, result, keep, overwrite=True)  # as was asked before
        say(f"wrote {keep}: {len(result.representative_indices):,} of {result.texts:,} texts", err=True)
    if output is not None:
        pairs = (
            [p.duplicate + 1, p.kept + 1, p.score, p.duplicate_text, p.kept_text, p.difference] for p in result.pairs
        )
        write_table(output, ["row", "kept_row", "score", "text", "kept_text", "difference"], pairs)
    if output is None or json or html is not None:
        show(result, json, html)


@app.command()
def explain(
    a: Annotated[str, typer.Argument(help="The text to explain.")],
    b: Annotated[str | None, typer.Argument(help="A second text: explain the similarity of the two.")] = None,
    roles: Annotated[
        str | None,
        typer.Option(metavar="ROLE[,ROLE]", help="Roles of A and B: query or document, e.g. query,document."),
    ] = None,
    than: Annotated[str | None, typer.Option(help="A third text: explain why B is closer to A.")] = None,
    reasons: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Reasons (encoders only): words, sentences or measured. [default: words]"),
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Show rows below the phrases, e.g. pairs of words.")] = False,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=0, help="How many of them; the rest are totalled.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Write every row as JSON.")] = False,
    html: HtmlOption = None,
    model: ModelOption = "static-en",
) -> None:
    """Show what a similarity is made of.

    Phrases of A and the phrases of B that they match; they, like the rows of --rows, add
    up to the similarity. For one text, each word's contribution to its embedding; they
    add up to 1. --roles query,document explains the score of a search.

    An encoder's rows are estimated from its two vectors. --reasons measured removes words
    and encodes the texts again; it shows how many, and the standard error.

    \b
    Examples:
      pellucid explain "a loan for a house" "mortgage rates are rising"
      pellucid explain "a loan for a house" "mortgage rates" --than "a house with a garden"
      pellucid explain "house loans" "How to borrow for a house" --roles query,document
      pellucid explain "a loan" "mortgage rates" -m sentence-transformers/all-MiniLM-L6-v2 --reasons measured
    """
    refuse_files((a, b, than), f'pellucid explain "$(cat {a})" ...')
    role1, _, role2 = (roles or "").partition(",")
    as_roles: dict[str, Any] = {"role1": role1.strip() or None, "role2": role2.strip() or None}
    opened = open_model(model)
    if reasons is not None:
        from pellucid.dense.embedder import EncoderEmbedder

        if not isinstance(opened, EncoderEmbedder):
            raise InputError(
                f"{model} is a model of the {opened.family} family, whose rows are exact; {reasons!r:.40} is for an "
                "encoder: give one with --model"
            )
        opened = opened.with_reasons(reasons)
    explanation = opened.explain(a, *([] if b is None else [b]), **as_roles)
    if than is not None:
        if b is None:
            raise typer.BadParameter("needs both A and B", param_hint="--than")
        explanation = explanation - opened.explain(a, than, **as_roles)
    show(explanation, json, html, top_k=top_k, rows=rows)


@app.command()
def describe(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without any, stdin, one a line.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Words to name.")] = 5,
    json: JsonOption = False,
    model: ModelOption = "static-en",
) -> None:
    """Describe in one line what each text is mostly about.

    \b
    Examples:
      pellucid describe "The bank raised the interest rate on home loans."
      pellucid describe < texts.txt
    """
    refuse_files(texts or (), f"pellucid describe < {(texts or ['texts.txt'])[0]}")
    inputs = texts or read("-")
    opened = open_model(model)
    for text in inputs:
        description = opened.describe(text, top_k=top_k)
        if json:
            typer.echo(json_line({
                "text": text, "description": description, "coverage": round(float(opened.coverage(text)), 6),
            }))  # fmt: skip
        else:
            say(description)


@app.command()
def evaluate(
    data: Annotated[Path, typer.Option(help="A folder of test sets.")],
    task: Annotated[list[str] | None, typer.Option(help="A task or a type, e.g. STS; repeat for more.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where scores are kept. [default: ~/.cache]")] = None,
    json: JsonOption = False,
    model: ModelOption = "static-en",
) -> None:
    """Score a model with MTEB.

    Scores are cached, so rerun the command to resume. --model also takes a
    sentence-transformers folder or hub id.

    \b
    Examples:
      pellucid evaluate --data shared/data --task STS
      pellucid evaluate --data data -m sentence-transformers/all-MiniLM-L6-v2 --task STSBenchmark --json
    """
    from pellucid.evaluation.evaluating import evaluate as score

    show(score(model, data=data, tasks=task or None, cache_dir=cache), json)


@app.command()
def models(json: JsonOption = False) -> None:
    """List the models that come with the package: what each is, needs and is licensed as.

    Quality: STS is the mean of Spearman's correlations x 100 on STS12 to 15, STS-B
    and SICK-R, retrieval the mean nDCG@10 x 100 of SciFact, NPL, CISI and Cranfield.

    Each model has its own licence; its card lists the texts it was made from. Use the
    names with --model.
    """
    from pellucid.persistence.folder import bundled_models

    for summary in map(model_summary, bundled_models()):
        if json:
            typer.echo(json_line(summary))
        else:
            typer.echo("\n  ".join([summary.pop("name"), *(f"{k.replace('_', ' ')}: {v}" for k, v in summary.items())]))


@app.command()
def doctor(
    json: JsonOption = False,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Also check the files of this model.")] = None,
) -> None:
    """Check this installation: versions, kernels, extras, models, and whether a score adds up.

    The files of models are compared with the checksums in their config.json, and their
    tables searched for NaN and infinity. Downloads nothing. The exit code is 1 if something
    does not work.

    \b
    Examples:
      pellucid doctor
      pellucid doctor -m ./my-model
    """
    from pellucid.cli.doctor import examine

    sound = True
    for finding in examine(model):
        typer.echo(json_line(finding._asdict())) if json else say(
            f"{'' if finding.sound else 'WRONG '}{finding.about}: {finding.found}"
        )
        sound = sound and finding.sound
    if not sound:
        raise typer.Exit(1)


for _part in (look, make, search, serving):  # each registers its own commands
    app.registered_commands += _part.commands.registered_commands
    app.registered_groups += _part.commands.registered_groups
for _commands in (app, *(group.typer_instance for group in app.registered_groups)):
    for _command in _commands.registered_commands if _commands is not None else ():
        if _command.callback is not None:
            _command.callback = overwriting_on_request(_command.callback)


def _app_for(arguments: list[str]) -> typer.Typer:
    """Return the app with the command that `arguments` name alone: typer takes 0.1 s to read the options of all."""
    for item in app.registered_commands:
        name = item.name or getattr(item.callback, "__name__", "").replace("_", "-")
        if arguments[:1] == [name]:
            app_for_command = copy(app)
            app_for_command.registered_commands, app_for_command.registered_groups = [item], []
            return app_for_command
    return app


def main() -> None:
    """Run the command line, for the `pellucid` script."""
    arguments = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an old terminal encoding must not end a long run
    warnings.showwarning = _show_warning
    _app_for(arguments)(arguments, prog_name="pellucid")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {' '.join(str(message).split())}", err=True)
