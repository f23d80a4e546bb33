"""The commands that make a model, or change its dimensions and words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.input import (
    FILE_DEFAULTS,
    DtypeOption,
    FileOptions,
    ModelOption,
    NewModelOption,
    TeacherOption,
    TextsHelp,
    WorkDirOption,
    corpus_of,
    numbers_of,
    open_model,
    reads_texts,
    values_of,
    work_folder,
)
from pellucid.cli.output import say
from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.core.dimensions import Which
    from pellucid.core.embedder import Embedder
    from pellucid.lexicon.static import StaticLexiconEmbedder
    from pellucid.static.embedder import StaticEmbedder

commands = typer.Typer()


@commands.command()
@reads_texts
def distill(
    corpus: Annotated[str, typer.Argument(help=f"Sentences: {TextsHelp}; - is stdin.")],
    teacher: TeacherOption,
    output: NewModelOption,
    work_dir: WorkDirOption = None,
    dimensions: Annotated[int, typer.Option(min=1, help="Of an embedding.")] = 256,
    drop: Annotated[int, typer.Option(min=0, help="First principal components left out.")] = 7,
    vocabulary: Annotated[int, typer.Option(min=1, help="Words at most, the most frequent first.")] = 150_000,
    cased: Annotated[bool, typer.Option("--cased", help="Keep upper and lower case apart.")] = False,
    steps: Annotated[int, typer.Option(min=0, help="Batches of training at most; 0 leaves it out.")] = 30_000,
    dtype: DtypeOption = "float16",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Make a static model of your own from a teacher and plain sentences.

    Needs pellucid[torch]. Rerun the command to resume. Python has more settings, and
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

    if dtype not in DTYPES:  # now, not after hours of work
        raise typer.BadParameter(f"{dtype!r} is not one of {', '.join(DTYPES)}", param_hint="--dtype")
    model = make(
        teacher,
        corpus_of(corpus, file_options),
        work_dir=work_folder(work_dir, output),
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
    word: Annotated[list[str] | None, typer.Option(help="WORD=FACTOR for its vector in a static model.")] = None,
    model: ModelOption = "static-en",
) -> None:
    """Change the dimensions of a model: rename, scale, merge, drop, in this order; or the weights of words.

    A dimension is given by its number or name before the edit.

    \b
    Examples:
      pellucid edit -m anchors-en-200 -o mine --without 9 --without 104
      pellucid edit -m mine -o mine --rename "12=credit cards" --scale "40=0.5"
      pellucid edit -o mine --word "immune=0.3"
    """
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
    if not (dropped or merged or factors or titles or word):
        raise InputError("nothing to edit; give --without, --merge, --scale, --rename or --word")
    edited = edited.rename(titles) if titles else edited
    removed = [edited.dimensions.names[index] for index in dropped]  # a merge changes the numbers
    edited = edited.scale(factors) if factors else edited
    edited = edited.merge(merged) if merged else edited
    edited = edited.without(removed) if removed else edited
    edited.save_pretrained(output)
    say(f"wrote {output}: {len(before):,} dimensions before, {len(edited.dimensions):,} now", err=True)


def _reweighted(model: Embedder, factors: dict[str, float]) -> StaticEmbedder | StaticLexiconEmbedder:
    """Return a static model with the vectors of some words scaled."""
    from pellucid.lexicon.static import StaticLexiconEmbedder
    from pellucid.static.embedder import static_model

    word_model = model if isinstance(model, StaticLexiconEmbedder) else static_model(model, "--word")
    return word_model.reweight(factors)


def _which(name: str) -> Which:
    return int(name) if name.isdecimal() else name
