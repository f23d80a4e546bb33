"""The commands that change the words of a static model: `pellucid vocabulary ...`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.input import (
    FILE_DEFAULTS,
    DtypeOption,
    FileOptions,
    JsonOption,
    ModelOption,
    NewModelOption,
    ParallelHelp,
    TeacherOption,
    TextsHelp,
    WorkDirOption,
    corpus_of,
    open_model,
    parallel_files,
    read,
    reads_texts,
    work_folder,
)
from pellucid.cli.output import Listed, say, show

if TYPE_CHECKING:
    from pellucid.static.training.parallel import Languages

commands = typer.Typer()
vocabulary = typer.Typer(
    cls=Listed,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Change the words of a static model: add, spell, prune, retrain, languages.",
)

commands.add_typer(vocabulary, name="vocabulary")

_Dtype = Annotated[
    str | None, typer.Option(help="Of the saved table: float32, float16, int8 or int4. [default: the model's]")
]


@vocabulary.command()
@reads_texts
def add(
    teacher: TeacherOption,
    output: NewModelOption,
    words: Annotated[list[str] | None, typer.Argument(help="Words and phrases.")] = None,
    words_file: Annotated[Path | None, typer.Option("--words", help="A file with more, one a line.")] = None,
    sentences: Annotated[str | None, typer.Option(help=f"Sentences that hold them: {TextsHelp}.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Give known words a new vector.")] = False,
    dtype: _Dtype = None,
    json: JsonOption = False,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Add words and phrases to a static model.

    Without --sentences the teacher reads each word alone, which takes seconds. A phrase
    replaces its words where they follow each other. The best teacher is the model's own.
    Needs pellucid[torch].

    \b
    Examples:
      pellucid vocabulary add covid "large language model" \\
        --teacher sentence-transformers/all-MiniLM-L6-v2 -o mine
      pellucid vocabulary add --words terms.txt --sentences texts.txt \\
        --teacher sentence-transformers/all-MiniLM-L6-v2 -o mine
    """
    from pellucid.static.training.vocabulary import add_words

    entries = [*(words or []), *((line for line in read(str(words_file)) if line.strip()) if words_file else [])]
    corpus = corpus_of(sentences, file_options) if sentences else None
    extended = add_words(_model(model), entries, _model(teacher), corpus, replace=replace)
    _save(extended, output, f"{len(entries):,} words added", model, dtype=dtype, json=json)


@vocabulary.command()
def spell(output: NewModelOption, dtype: _Dtype = None, model: ModelOption = "static-en") -> None:
    """Give a static model vectors for unknown words, by their spelling.

    An unknown word gets a vector from known words with a similar spelling; a number or code
    gets one that is similar only to itself. Known words keep theirs. --output may be the
    folder of the model.

    \b
    Examples:
      pellucid vocabulary spell -o static-en-spelled
      pellucid vocabulary spell -m my-model -o my-model
    """
    from pellucid.static.training.vocabulary import fit_spelling

    spelled = fit_spelling(_model(model))
    _save(spelled, output, "spelling for unknown words added", model, dtype=dtype, suffix=", and spelling for others")


@vocabulary.command()
@reads_texts
def prune(
    output: NewModelOption,
    texts: Annotated[str | None, typer.Argument(help=f"The domain: {TextsHelp}.")] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Keep words that occur so often.")] = 1,
    max_words: Annotated[int | None, typer.Option(min=1, help="Keep so many at most, the most frequent.")] = None,
    dtype: _Dtype = None,
    json: JsonOption = False,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Make a static model smaller: keep the words that a domain uses.

    Shows how many words are known before and after, and how far embeddings move.

    \b
    Examples:
      pellucid vocabulary prune texts.txt -o small
      pellucid vocabulary prune --max-words 20000 -o common
    """
    from pellucid.static.training.vocabulary import prune as make

    corpus = None if texts is None else list(read(texts, file_options))
    pruned = make(_model(model), corpus, min_count=min_count, max_words=max_words)
    _save(pruned, output, f"pruned to {len(pruned.vocabulary):,} words", model, dtype=dtype, json=json)


@vocabulary.command()
@reads_texts
def retrain(
    corpus: Annotated[str, typer.Argument(help=f"Sentences: {TextsHelp}; - is stdin.")],
    teacher: TeacherOption,
    output: NewModelOption,
    work_dir: WorkDirOption = None,
    steps: Annotated[int, typer.Option(min=1, help="Batches of training at most.")] = 12_000,
    max_sentences: Annotated[int | None, typer.Option(min=1, help="Take so many at most. [default: all]")] = None,
    dtype: _Dtype = None,
    json: JsonOption = False,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Train the words of a static model on your own corpus.

    Memory use does not grow with the corpus. Rerun the command to resume. Needs
    pellucid[torch].

    \b
    Example:
      pellucid vocabulary retrain corpus.txt \\
        --teacher sentence-transformers/all-MiniLM-L6-v2 -o mine
    """
    from pellucid.static.training.distill import distill
    from pellucid.static.training.extraction import ExtractionSettings
    from pellucid.static.training.tuning import RefinementSettings

    texts, start = corpus_of(corpus, file_options), _model(model)
    retrained = distill(
        _model(teacher),
        texts,
        work_dir=work_folder(work_dir, output),
        start=start,
        extraction=ExtractionSettings(max_sentences=max_sentences),
        refinement=RefinementSettings(steps=steps),
    )
    _save(retrained, output, "retrained on other sentences", model, dtype=dtype or str(start.dtype), json=json)


@vocabulary.command()
def languages(
    output: NewModelOption,
    parallel: Annotated[list[str], ParallelHelp],
    known: Annotated[str, typer.Option(help="The language that the model knows.")] = "en",
    vocabulary: Annotated[int, typer.Option(min=1, help="Words of each new language at most.")] = 50_000,
    min_count: Annotated[int, typer.Option(min=1, help="Take words that occur so often.")] = 2,
    steps: Annotated[int, typer.Option(min=0, help="Batches of tuning at most; 0 leaves it out.")] = 10_000,
    work_dir: WorkDirOption = None,
    dtype: DtypeOption = "int8",
    model: ModelOption = "static-en",
) -> None:
    """Teach a static model further languages from translated sentences.

    Needs pellucid[torch], and pellucid[languages] for Chinese, Japanese and Thai. Rerun the
    command to resume.

    \b
    Examples:
      pellucid vocabulary languages --parallel en-de=pairs.tsv -o static-en-de
      pellucid vocabulary languages --parallel en-fr=english.txt,french.txt \\
        --parallel en-ja=pairs.tsv.xz -o static-en-fr-ja
    """
    from pellucid.static.training.languages import add_languages
    from pellucid.static.training.tuning import TuningSettings

    multilingual = add_languages(
        _model(model),
        parallel_files(parallel, dict(_codes(parallel, known))),
        known_language=known,
        vocabulary=vocabulary,
        min_count=min_count,
        tuning=TuningSettings(steps=steps),
        work_dir=work_folder(work_dir, output),
    )
    _save(multilingual, output, "languages added", model, dtype=dtype)


def _codes(parallel: list[str], known_language: str) -> Iterator[tuple[str, Languages]]:
    """Yield the pairs that options name and their two codes, of which one is `known_language`."""
    for pair in (option.partition("=")[0] for option in parallel):
        if pair.startswith(f"{known_language}-"):
            yield pair, (known_language, pair[len(known_language) + 1 :])
        elif pair.endswith(f"-{known_language}"):
            yield pair, (pair[: -len(known_language) - 1], known_language)


def _model(name: str) -> Any:
    return open_model(name)  # other families are refused where it is used


def _save(
    changed: Any,
    output: Path,
    change: str,
    model: str,
    *,
    dtype: str | None,
    json: bool | None = None,
    suffix: str = "",
) -> None:
    """Save a changed model with the card of the model before; `json` is how its report is shown, None for none."""
    from pellucid.persistence.folder import carrying_card

    with carrying_card(model, output, change):
        changed.save_pretrained(output, dtype=dtype)
    if json is not None:
        show(changed.report, json)
    say(f"wrote {output}: {len(changed.vocabulary):,} words{suffix}", err=True)
