"""The commands that make models. Rerun a command to resume a long run."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.input import (
    FILE_DEFAULTS,
    DtypeOption,
    FileOptions,
    ModelOption,
    ModelsOption,
    NewModelOption,
    ParallelHelp,
    TeacherOption,
    TextsHelp,
    WorkDirOption,
    corpus_file,
    corpus_of,
    parallel_files,
    reads_texts,
    work_folder,
)
from pellucid.cli.output import say

if TYPE_CHECKING:
    from pellucid.static.training.parallel import Languages, ParallelFiles
    from pellucid.text.corpus import Corpus

commands = typer.Typer()

_Sentences = Annotated[str | None, typer.Argument(help=f"Sentences: {TextsHelp}; - is stdin.")]
_Lang = Annotated[
    list[str] | None, typer.Option(metavar="CODE=FILE", help="In place of CORPUS: sentences of a language.")
]
_Cased = Annotated[
    bool | None, typer.Option("--cased/--uncased", help="Keep upper and lower case apart. [default: with --lang]")
]
_Steps = Annotated[
    int | None,
    typer.Option(min=0, help="Batches of training at most; 0 leaves it out. [default: 30000, with --lang 10000]"),
]


@commands.command()
@reads_texts
def distill(
    teacher: TeacherOption,
    output: NewModelOption,
    corpus: _Sentences = None,
    lang: _Lang = None,
    parallel: Annotated[list[str] | None, ParallelHelp] = None,
    work_dir: WorkDirOption = None,
    dimensions: Annotated[int, typer.Option(min=1, help="Of an embedding.")] = 256,
    drop: Annotated[int, typer.Option(min=0, help="First principal components left out.")] = 7,
    vocabulary: Annotated[int, typer.Option(min=1, help="Words at most, the most frequent first.")] = 150_000,
    cased: _Cased = None,
    steps: _Steps = None,
    dtype: DtypeOption = "float16",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Make a static model of your own from a teacher and plain sentences.

    Needs pellucid[torch]. Rerun the command to resume. Python has more settings:
    pellucid.distill.

    For several languages, give --lang once a language, --parallel and a multilingual
    teacher; --vocabulary then counts per language. See docs/crosslingual.md.

    \b
    Examples:
      pellucid distill corpus.txt --teacher sentence-transformers/all-MiniLM-L6-v2 -o my-model
      pellucid distill --teacher sentence-transformers/LaBSE -o static-en-de \\
        --lang en=english.txt --lang de=german.txt --parallel en-de=pairs.tsv
    """
    from pellucid.static.precision import DTYPES
    from pellucid.static.training.distill import PcaSettings
    from pellucid.static.training.extraction import ExtractionSettings

    if dtype not in DTYPES:  # now, not after hours of work
        raise typer.BadParameter(f"{dtype!r} is not one of {', '.join(DTYPES)}", param_hint="--dtype")
    texts = _texts_of_languages(corpus, lang or [], parallel or [], file_options)
    work_dir = work_folder(work_dir, output)
    extraction = ExtractionSettings(max_vocabulary=vocabulary, cased=bool(lang) if cased is None else cased)
    pca = PcaSettings(dimensions=dimensions, drop=drop)
    if corpus is not None:
        from pellucid.static.training.distill import distill as make
        from pellucid.static.training.tuning import RefinementSettings

        refinement = RefinementSettings(steps=30_000 if steps is None else steps)
        model = make(
            teacher,
            corpus_of(corpus, file_options),
            work_dir=work_dir,
            extraction=extraction,
            pca=pca,
            refinement=refinement,
        )
    else:
        from pellucid.static.training.languages import distill_languages
        from pellucid.static.training.tuning import TuningSettings

        tuning = TuningSettings(steps=10_000 if steps is None else steps)
        model = distill_languages(teacher, *texts, work_dir=work_dir, extraction=extraction, pca=pca, tuning=tuning)
    model.save_pretrained(output, dtype=dtype)
    say(f"wrote {output}: {len(model.vocabulary):,} words, {model.get_embedding_dimension()} dimensions", err=True)


@commands.command()
@reads_texts
def choose_anchors(
    corpus: Annotated[str, typer.Argument(help=f"Texts: {TextsHelp}; - is stdin.")],
    output: NewModelOption,
    n: Annotated[int, typer.Option("-n", min=1, help="Anchors, which is the dimensions of an embedding.")] = 200,
    method: Annotated[str, typer.Option(help="kmeans, frame, fps or uniform.")] = "kmeans",
    decorrelate: Annotated[float, typer.Option(min=0, max=1, help="Share of the anchors' overlap to remove.")] = 0.75,
    language: Annotated[str, typer.Option(help="Of the anchors: en, de, ...; any takes every one.")] = "en",
    candidates: Annotated[int, typer.Option(min=1, help="Texts to choose from at most, the first usable.")] = 200_000,
    unfiltered: Annotated[bool, typer.Option("--unfiltered", help="Let any text become an anchor.")] = False,
    work_dir: WorkDirOption = None,
    model: ModelOption = "static-en",
    file_options: FileOptions = FILE_DEFAULTS,
) -> None:
    """Make an anchor model: each dimension is named by a sentence.

    Needs pellucid[anchors], and pellucid[torch] with a transformer as encoder. Rerun the
    command to resume; another -n, --method or --decorrelate needs no new encoding.

    --model is the encoder that compares a text with the anchors, and is copied into the
    folder. If it is a sentence-transformers or static model, plain sentence-transformers
    opens the folder, too.

    \b
    Examples:
      pellucid choose-anchors corpus.txt -n 200 -o my-anchors
      pellucid choose-anchors corpus.txt -m sentence-transformers/all-MiniLM-L6-v2 -o my-anchors
      pellucid explain "one text" "another" -m my-anchors
    """
    from pellucid.anchors.candidates import CandidateSettings
    from pellucid.anchors.embedder import AnchorEmbedder
    from pellucid.anchors.sampling import choose_anchors as choose
    from pellucid.loading import load

    texts = corpus_of(corpus, file_options)
    opened = load(model)
    settings = CandidateSettings(language=None if language == "any" else language, max_candidates=candidates)
    if unfiltered:
        settings = CandidateSettings(
            language=None, words=None, links=True, mojibake=True, markup=True, fragments=True,
            max_candidates=candidates, content_words=0,
        )  # fmt: skip
    anchors = choose(opened, texts, n, method=method, settings=settings, work_dir=work_folder(work_dir, output))
    AnchorEmbedder(opened, anchors).decorrelate(decorrelate).save_pretrained(output)
    say(f"wrote {output}: {n:,} anchors over {model}; they can be edited in dimensions.tsv", err=True)


@commands.command()
def train_lexicon(
    model: Annotated[
        str, typer.Option("--model", "-m", help="A lexicon model, or a transformer to make one of: folder or hub id.")
    ],
    data: Annotated[list[Path], typer.Argument(help="Rows with query, pos, neg, ...: .jsonl or .parquet.")],
    output: NewModelOption,
    clusters: Annotated[int, typer.Option(min=1, help="Dimensions, where --model is a transformer.")] = 4000,
    epochs: Annotated[float, typer.Option(help="Passes over the rows.")] = 1.0,
    batch_size: Annotated[int, typer.Option(min=2, help="Rows in a batch.")] = 64,
    chunk: Annotated[int | None, typer.Option(min=1, help="Texts at a time, where a batch is too large.")] = None,
    bf16: Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16.")] = False,
    by_name: Annotated[bool, typer.Option("--by-name", help="Save only the adapter and the name of --model.")] = False,
    work_dir: WorkDirOption = None,
) -> None:
    """Train a lexicon model: each dimension is a cluster of words.

    Needs pellucid[torch]. docs/lexicon.md describes the rows. Rerun the command to resume.

    \b
    Examples:
      pellucid train-lexicon pairs.jsonl -m sentence-transformers/all-MiniLM-L6-v2 -o my-lexicon
      pellucid explain "one text" "another" -m my-lexicon
    """
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder
    from pellucid.lexicon.training import TrainingSettings
    from pellucid.lexicon.training import train_lexicon as train
    from pellucid.lexicon.training_data import read_training_sets
    from pellucid.persistence.folder import identify
    from pellucid.transformer.backbone import open_backbone

    settings = TrainingSettings(epochs=epochs, batch_size=batch_size, chunk=chunk, bf16=bf16)
    sets = read_training_sets(data)  # before the model, so that an error shows at once
    if identify(model) == "pellucid":
        start = LexiconEmbedder.from_pretrained(model)
    else:
        backbone = open_backbone(model)
        start = LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, clusters))
    trained = train(start, sets, work_folder(work_dir, output), settings)
    trained.save_pretrained(output, backbone_name=model if by_name else None)
    say(f"wrote {output}: {trained.get_embedding_dimension():,} dimensions", err=True)


@commands.command()
def ensemble(
    models: ModelsOption,
    output: NewModelOption,
    weight: Annotated[list[float] | None, typer.Option(help="Of a model, in order. [default: equal]")] = None,
    by_name: Annotated[bool, typer.Option("--by-name", help="Save the models' names, no copies of them.")] = False,
) -> None:
    """Put models side by side: scores are the weighted mean of theirs.

    Pellucid and sentence-transformers models can be mixed. pellucid.ensemble in Python
    finds good weights.

    \b
    Examples:
      pellucid ensemble -m static-en -m anchors-en-200 -o both
      pellucid ensemble -m static-en -m my-lexicon --weight 0.3 --weight 0.7 -o hybrid
    """
    from pellucid.ensemble.embedder import EnsembleEmbedder
    from pellucid.loading import load

    names = [Path(model).name for model in models]
    names = names if len(set(names)) == len(names) else models
    if len(set(names)) < len(names):
        raise typer.BadParameter("a model is given twice", param_hint="--model")
    joined = EnsembleEmbedder(dict(zip(names, map(load, models))), weight)
    joined.save_pretrained(output, sources=dict(zip(names, models)) if by_name else None)
    shares = ", ".join(f"{part.name} {part.weight:.2f}" for part in joined.parts)
    say(f"wrote {output}: {joined.get_embedding_dimension():,} dimensions ({shares})", err=True)


def _texts_of_languages(
    corpus: str | None, lang: list[str], parallel: list[str], file_options: FileOptions
) -> tuple[dict[str, Corpus], dict[Languages, ParallelFiles]]:
    """Return the corpora and parallel files of --lang and --parallel; empty if CORPUS is given instead."""
    if not lang and corpus is None:
        raise typer.BadParameter("give sentences: a file, or --lang for each language", param_hint="CORPUS")
    if not lang and parallel:
        raise typer.BadParameter("needs --lang CODE=FILE for each language", param_hint="--parallel")
    if lang and corpus is not None:
        raise typer.BadParameter(f"takes the place of CORPUS, which is {corpus!r}", param_hint="--lang")
    corpora: dict[str, Corpus] = {}
    for option in lang:
        code, _, file = option.partition("=")
        if not (code and file):
            raise typer.BadParameter(f"{option!r} is not CODE=FILE, such as en=english.txt", param_hint="--lang")
        if code in corpora:
            raise typer.BadParameter(f"{code!r} is given twice; put its sentences into one file", param_hint="--lang")
        corpora[code] = corpus_file(file, file_options)
    codes = {f"{first}-{second}": (first, second) for first, second in permutations(corpora, 2)}
    return corpora, parallel_files(parallel, codes)
