r"""all-mpnet-base-v2 beside all-MiniLM-L6-v2 as backbone of a lexicon model: one recipe, the same batches.

    python -m papers.lens.backbones --data shared/data --mpnet MPNET --work-dir WORK --write

The checkpoints of sentence transformers hold no head that predicts words, so `fit_head` maps clusters of the input
embeddings to the states; an adapter is then trained towards the backbone's own dense vectors. What every test item came
to is kept in `results/backbones`, and a run that was stopped goes on. Another `--seed` is another training.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from papers.kit import Figure, Table, interval_of, processor, run_script, written
from papers.lens.kept_results import SEEDS, floor_name, kept_row, over_seeds
from papers.lens.language_model import RESULTS as SMOLLM2_RESULTS
from papers.lens.language_model import Bench
from papers.lens.language_page import Measured
from papers.lens.samples import RETRIEVAL, STS
from papers.models import minilm_path
from pellucid import LexiconEmbedder, cluster_vocabulary, load, train_lexicon
from pellucid.lexicon import Clusters, LexiconSettings, TrainingSet, fit_head
from pellucid.lexicon.trainer import TextSet
from pellucid.persistence.store import read_json, temporary_folder, write_json
from pellucid.transformer import Backbone, open_backbone
from pellucid.transformer.backbone import half_dtype
from recipes.lexicon_minilm import TRAINING, Source, cut, medical_questions, pair_sets, shuffled, topic_sets
from recipes.lexicon_minilm import without_dropout as switch_dropout_off
from recipes.lexicon_smollm2 import ANSWER, LENGTH, short_sentences
from recipes.tatoeba_pairs import all_paraphrases, test_sentences

RESULTS = Path(__file__).with_name("results") / "backbones"
MINILM, MPNET = "all-MiniLM-L6-v2", "all-mpnet-base-v2"
FLOORS = ("BM25", "BM25, stemmed", "static-en", "lexicon-minilm")
"""Measured on the same samples for SmolLM2's page."""

STAGES = ("dense", "lexicon", "untrained")
"""The backbone's own vectors, the lexicon model, and the same before training: its head is fitted all the same."""

KINDS = ("STS", "retrieval")
SETS = (*STS, *RETRIEVAL)


@dataclass(frozen=True)
class Recipe:
    """What both backbones have in common.

    Attributes:
        clusters: of the input embeddings.
        fitted_on: sentences for the head.
        sentences: trained on towards the backbone's own vectors.
        paraphrases: pairs trained on by InfoNCE.
        questions: the same, medical questions with the beginning of an answer.
        topics: of the sentences by static-en, so that both backbones have the same batches.
        steps: batches.
    """

    clusters: int = 4000
    fitted_on: int = 2000
    sentences: int = 7_680
    paraphrases: int = 1_664
    questions: int = 384
    topics: int = 4
    steps: int = 128


RECIPE = Recipe()


def open_encoder(path: str | Path) -> Any:
    """Return the sentence transformer in the processor's fastest type, reading as much of a text as the lexicon."""
    import torch
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(path), device="cpu").to(getattr(torch, half_dtype()))
    encoder.max_seq_length = LENGTH
    return encoder


def training_sets(source: Source, recipe: Recipe) -> list[TextSet | TrainingSet]:
    """Return everything that is trained on; texts and batches are the same for all backbones, vectors the teacher's."""
    random = np.random.default_rng(TRAINING.seed)
    sentences = short_sentences(source, recipe.sentences)
    by_topic = topic_sets("sentences", source, sentences, _topic_vectors(sentences), random, recipe.topics)
    held_out = test_sentences(source.data / "sts")
    paraphrases = all_paraphrases(source.data / "parallel" / "tatoeba", held_out)[: recipe.paraphrases]
    answers = shuffled(list(medical_questions(source.data)), random)[: recipe.questions]
    questions = [(question, cut(answer, ANSWER)) for question, answer in answers]
    row_of = {text: row for row, text in enumerate(sentences)}
    vectors = source.vectors("sentences", sentences)
    return [
        *(TextSet(part.name, part.texts, vectors[[row_of[text] for text in part.texts]]) for part in by_topic),
        *pair_sets("paraphrases", source, paraphrases, random),
        *pair_sets("medical questions", source, questions, random),
    ]


def _topic_vectors(texts: Sequence[str]) -> np.ndarray:
    return np.asarray(load("static-en").encode(list(texts)), np.float32)


def untrained(source: Source, path: str | Path, recipe: Recipe, dtype: str) -> LexiconEmbedder:
    """Return the model before training, its weights in a type; its head is fitted once."""
    backbone = open_backbone(path, head="input", dtype=dtype, device="cpu")
    switch_dropout_off(backbone.model)
    folder = source.work / "head"
    if not folder.exists():
        _fit_head(source, path, recipe, folder)
    return LexiconEmbedder(
        backbone, Clusters.load(folder), LexiconSettings(max_length=LENGTH), bias=np.load(folder / "bias.npy")
    )


def _fit_head(source: Source, path: str | Path, recipe: Recipe, folder: Path) -> None:
    backbone: Backbone = open_backbone(path, head="input", dtype=half_dtype(), device="cpu")
    clusters = cluster_vocabulary(backbone.head, backbone.tokenizer, recipe.clusters, iterations=10)
    texts = short_sentences(source, recipe.sentences)[: recipe.fitted_on]
    fitted = fit_head(backbone, clusters, texts)
    with temporary_folder(parent=source.work) as parent:
        tmp_path = parent / "head"
        tmp_path.mkdir()
        fitted.clusters.save(tmp_path)
        np.save(tmp_path / "bias.npy", fitted.bias)
        write_json(tmp_path / "share.json", {"own_share": fitted.own_share})
        tmp_path.replace(folder)


def trained(source: Source, path: str | Path, recipe: Recipe, seed: int) -> LexiconEmbedder:
    """Return the model after training, its weights in the processor's fastest type; a run that was stopped goes on."""
    import torch

    settings = replace(
        TRAINING,
        max_steps=recipe.steps,
        warmup_steps=recipe.steps // 10,
        save_steps=25,
        bf16=half_dtype() == "bfloat16",
        seed=seed,
    )
    model = untrained(source, path, recipe, "float32")
    model = train_lexicon(model, training_sets(source, recipe), source.work / f"run-{seed}", settings)
    model.backbone.model.to(getattr(torch, half_dtype()))
    return model


def keep_backbone(bench: Bench, work: Path, label: str, path: str | Path, seed: int, recipe: Recipe = RECIPE) -> None:
    """Measure a backbone's dense vectors, its lexicon model before training and after it, where that is not kept."""
    names = {stage: file_name(label, stage, seed) for stage in STAGES}
    names = {stage: name for stage, name in names.items() if not (RESULTS / f"{name}.json").exists()}
    if not names:
        return
    work.mkdir(parents=True, exist_ok=True)
    source = Source(bench.source.data, work, open_encoder(path))
    for stage, name in names.items():
        start, facts = time.process_time(), dict[str, Any]({"dtype": half_dtype()})
        if stage == "dense":
            encode = partial(source.teacher.encode, batch_size=32, normalize_embeddings=True)
        else:
            is_trained = stage == "lexicon"
            model = trained(source, path, recipe, seed) if is_trained else untrained(source, path, recipe, half_dtype())
            facts |= read_json(source.work / "head" / "share.json")
            if is_trained:
                facts |= {"recipe": asdict(recipe), "training_seconds": round(time.process_time() - start)}
            encode = partial(model.encode, batch_size=64, show_progress_bar=False)
        bench.keep(RESULTS, name, bench.embeddings(f"{name} {facts.get('recipe', '')}", encode), facts)
        print(f"{name}: {time.process_time() - start:.0f} s of processor time", flush=True)


def file_name(label: str, stage: str, seed: int) -> str:
    """Return what a model's kept results are called by; only trained models have a seed."""
    return f"{label}-{stage}-{seed}" if stage == "lexicon" else f"{label}-{stage}"


def kept_models() -> dict[str, list[Measured]]:
    """Return label -> what was kept of each training of a model; floors first, which are of one."""
    paths = {label: [(SMOLLM2_RESULTS, floor_name(label))] for label in FLOORS}
    for backbone in (MINILM, MPNET):
        for stage in STAGES:
            names = dict.fromkeys(file_name(backbone, stage, seed) for seed in SEEDS)
            paths[f"{backbone}, {stage}"] = [(RESULTS, name) for name in names]
    models = {label: [kept_row(*path) for path in each] for label, each in paths.items()}
    return {label: seeds for label, rows in models.items() if (seeds := [row for row in rows if row is not None])}


def own_shares() -> str:
    """Say of each backbone how many tokens fire their own cluster most once the head is fitted."""
    facts = {backbone: RESULTS / f"{file_name(backbone, 'untrained', 0)}.json" for backbone in (MPNET, MINILM)}
    return " and ".join(f"{read_json(path)['own_share']:.0%} ({backbone})" for backbone, path in facts.items())


COMPARED = (
    (f"{MPNET}, lexicon", f"{MINILM}, lexicon"),
    (f"{MPNET}, dense", f"{MINILM}, dense"),
    (f"{MPNET}, untrained", f"{MINILM}, untrained"),
    *((f"{backbone}, lexicon", f"{backbone}, dense") for backbone in (MPNET, MINILM)),
    *((f"{backbone}, lexicon", f"{backbone}, untrained") for backbone in (MPNET, MINILM)),
    (f"{MPNET}, lexicon", f"{MINILM}, dense"),
    *((f"{MPNET}, lexicon", floor) for floor in FLOORS[1:]),
    (f"{MINILM}, lexicon", "lexicon-minilm"),
)


def figures(models: Mapping[str, Sequence[Measured]]) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows.

    Args:
        models: label -> scores of each seed, of a model that is not trained here of one.
    """
    means = {label: over_seeds(list(seeds)) for label, seeds in models.items()}
    lines: list[list[Any]] = []
    for label, mean in means.items():
        scores = (*(mean.kind(kind) if mean.has(kind) else None for kind in KINDS), *map(mean.scores.get, SETS))
        numbers = (None if score is None else float(score[0]) for score in scores)
        active = None if mean.active is None else f"{mean.active:,.0f}"
        lines.append([label, _n_seeds(label, models), *numbers, active])
    yield "scores", Table(["", "seeds", *KINDS, *SETS, "coordinates of a text"], lines)
    pairs = [pair for pair in COMPARED if all(label in models for label in pair)]
    differences = [[f"{better} - {worse}", *_compared(models, better, worse)] for better, worse in pairs]
    yield "differences", Table(["difference", "seeds", *KINDS], differences)
    shares = [_share_line(backbone, models) for backbone in (MINILM, MPNET) if f"{backbone}, lexicon" in models]
    yield "shares", Table(["of its own dense vectors", *KINDS], shares)


def _n_seeds(label: str, models: Mapping[str, Sequence[Measured]]) -> int | None:
    """Return how many trainings a figure is of; None for a model as it is."""
    return len(models[label]) if label.endswith(", lexicon") else None


def _compared(models: Mapping[str, Sequence[Measured]], better: str, worse: str) -> list[Any]:
    """Return how many trainings the difference of two models is of, and its interval and verdict for each kind."""
    counts = [count for label in (better, worse) if (count := _n_seeds(label, models)) is not None]
    n_seeds = min(counts, default=None)
    sides = [over_seeds(list(models[label][:n_seeds])) for label in (better, worse)]
    cells: list[Any] = [n_seeds]
    for kind in KINDS:
        if all(side.has(kind) for side in sides):
            cells.append(interval_of(sides[0].kind(kind) - sides[1].kind(kind), n_seeds).with_verdict())
        else:
            cells.append(None)  # BM25 ranks alone
    return cells


def _share_line(backbone: str, models: Mapping[str, Sequence[Measured]]) -> list[str]:
    """Return how much of its dense vectors' scores the trained lexicon model of a backbone has, in per cent."""
    lexicon, dense = over_seeds(list(models[f"{backbone}, lexicon"])), models[f"{backbone}, dense"][0]
    shares = (interval_of(100 * lexicon.kind(kind) / dense.kind(kind)) for kind in KINDS)
    return [backbone, *(f"{share.value:.1f} % ({share.low:.1f} to {share.high:.1f})" for share in shares)]


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Do what is not kept and yield what the page shows."""
    bench = Bench(Source(options.data, options.work_dir, None), KINDS)
    paths = {MINILM: minilm_path(), MPNET: options.mpnet}
    for label in options.backbones:
        keep_backbone(bench, options.work_dir / label, label, paths[label], options.seed)
    yield "written", f"{written('torch')}, one thread of {processor()}"
    yield "own-shares", own_shares()
    yield from figures(kept_models())


if __name__ == "__main__":
    run_script(
        measure,
        {
            "--mpnet": {"type": Path, "required": True, "help": f"folder of {MPNET}"},
            "--backbones": {"nargs": "*", "choices": [MINILM, MPNET], "default": [MINILM, MPNET], "help": "[both]"},
            "--seed": {"type": int, "default": 0, "help": "of the training [0]"},
        },
        data="the test sets and text to train on",
        work_dir="vectors, heads and checkpoints",
        threads=1,
    )
