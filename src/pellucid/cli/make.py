"""The commands that make a model, or change its dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.input import (
    FILE_DEFAULTS,
    FileOptions,
    ModelOption,
    TextsHelp,
    corpus_file,
    open_model,
    reads_texts,
    values_of,
)
from pellucid.cli.output import say
from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.core.dimensions import Which

commands = typer.Typer()


@commands.command()
@reads_texts
def distill(
    corpus: Annotated[str, typer.Argument(help=f"Sentences: {TextsHelp}.")],
    teacher: Annotated[str, typer.Option(help="A sentence-transformers or pellucid model: folder, name or hub id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the new model.")],
    dimensions: Annotated[int, typer.Option(min=1, help="Dimensions of an embedding.")] = 256,
    drop: Annotated[int, typer.Option(min=0, help="Number of first principal components to drop.")] = 7,
    vocabulary: Annotated[int, typer.Option(min=1, help="Maximum number of words, most frequent first.")] = 150_000,
    cased: Annotated[bool, typer.Option("--cased", help="Distinguish upper and lower case.")] = False,
    steps: Annotated[int, typer.Option(min=0, help="Maximum number of training batches; 0 skips training.")] = 30_000,
    dtype: Annotated[
        str, typer.Option(help="Number format of the saved table: float32, float16, int8 or int4.")
    ] = "float16",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Make a static model of your own from a teacher and plain sentences.

    Needs pellucid[torch]. Rerun the command to resume: OUTPUT.work holds the state. Python has more settings, and
    makes models of several languages: pellucid.distill, docs/crosslingual.md.

    \b
    Example:
      pellucid distill corpus.txt --teacher sentence-transformers/all-MiniLM-L6-v2 -o my-model
    """
    from pellucid.static.precision import DTYPES
    from pellucid.static.training.distill import PcaSettings
    from pellucid.static.training.distill import distill as make
    from pellucid.static.training.extraction import ExtractionSettings
    from pellucid.static.training.tuning import RefinementSettings
    from pellucid.text.lines import check_file

    if dtype not in DTYPES:  # now, not after hours of work
        raise typer.BadParameter(f"{dtype!r} is not one of {', '.join(DTYPES)}", param_hint="--dtype")
    if output.name in ("", ".."):
        raise InputError(f"the output {str(output)!r} has no name of its own; give the name of what is made")
    file = corpus_file(corpus, file_options)
    check_file(file.source)  # also now: a teacher takes long to open
    model = make(
        teacher,
        file,
        work_dir=output.with_name(output.name + ".work"),
        extraction=ExtractionSettings(max_vocabulary=vocabulary, cased=cased),
        pca=PcaSettings(dimensions=dimensions, drop=drop),
        refinement=RefinementSettings(steps=steps),
    )
    model.save_pretrained(output, dtype=dtype)
    say(f"wrote {output}: {len(model.vocabulary):,} words, {model.get_embedding_dimension()} dimensions", err=True)


@commands.command()
def edit(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the edited model.")],
    without: Annotated[list[str] | None, typer.Option(help="A dimension to drop; repeat for more.")] = None,
    merge: Annotated[list[str] | None, typer.Option(help="A dimension to merge with the other --merge ones.")] = None,
    scale: Annotated[list[str] | None, typer.Option(help="DIMENSION=FACTOR; below 1 it counts less.")] = None,
    rename: Annotated[list[str] | None, typer.Option(help="DIMENSION=NEW NAME.")] = None,
    model: ModelOption = "static-en",
) -> None:
    """Change the dimensions of a model: rename, scale, merge, drop, in this order.

    A dimension is given by its number or name before the edit.

    \b
    Examples:
      pellucid edit -m anchors-en-200 -o mine --without 9 --without 104
      pellucid edit -m mine -o mine --overwrite --rename "12=credit cards" --scale "40=0.5"
    """
    edited = open_model(model)
    before = edited.dimensions

    def number(name: str) -> int:
        return before.number(int(name) if name.isdecimal() else name)

    dropped, merged = list(map(number, without or ())), list(map(number, merge or ()))
    scales = values_of(scale, "--scale", "DIMENSION=FACTOR", float)
    factors: dict[Which, float] = {number(name): factor for name, factor in scales.items()}
    renames = values_of(rename, "--rename", "DIMENSION=NAME")
    titles: dict[Which, str] = {number(name): title for name, title in renames.items()}
    if not (dropped or merged or factors or titles):
        raise InputError("nothing to edit; give --without, --merge, --scale or --rename")
    edited = edited.rename(titles) if titles else edited
    removed = [edited.dimensions.names[index] for index in dropped]  # a merge changes the numbers
    edited = edited.scale(factors) if factors else edited
    edited = edited.merge(merged) if merged else edited
    edited = edited.without(removed) if removed else edited
    edited.save_pretrained(output)
    say(f"wrote {output}: {len(before):,} dimensions before, {len(edited.dimensions):,} now", err=True)
