"""Train SmolLM2-135M-Instruct as a lexicon model: clusters of its 49,152 tokens as dimensions.

    python shared/models/make_models.py smollm2 SMOLLM2
    python shared/models/make_models.py me5 E5
    python recipes/lexicon_smollm2.py --data shared/data --model SMOLLM2 --e5 E5 --work-dir WORK --output MODEL

DATA holds raw_english, parallel/tatoeba, retrieval_train/medquad and sts (whose sentences are left out). What is
trained is the first `--layers` layers, in bfloat16. Batches of sentences are trained towards the cosines of two
teachers side by side (MiniLM and multilingual-e5-small), batches of pairs by InfoNCE. With `--clusters 0` a dense model
is trained on the same batches (`--pooling mean` or `last`), with `--tokens` one that has a dimension for each token.
`--short` is a minute's check that everything runs. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lexicon_minilm import cut, medical_questions, pair_sets, shuffled, topic_sets
from pellucid import LexiconEmbedder, TrainingSettings, cluster_vocabulary, train_lexicon
from pellucid.corpus import read_texts
from pellucid.lexicon import TRAINED, Clusters
from pellucid.research import DenseEmbedder
from pellucid.transformer import Backbone, LexiconSettings, open_backbone
from static_en import open_teacher
from tatoeba_pairs import all_paraphrases, test_sentences

LENGTH = 48  # tokens read of a text
FREQUENCIES = 500  # sentences in which clusters are counted before training
ANSWER = 16  # words of a medical answer
TRAINING = TrainingSettings(
    batch_size=64, learning_rate=1e-3, warmup_steps=6, max_steps=64, rank=16, alpha=32, dropout=0.0, bf16=True,
    save_steps=16,
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        attention: "causal" or "bidirectional".
        pooling: "max", "sum" or "last"; of dense models "mean" or "last".
        clusters: how many; None for one dimension a token, 0 for a dense model.
        seed: of the adapter and the order of batches.
        steps: batches trained on; 0 for the model as it is.
        layers: of the language model, from the first.
        paper: read the states one position back and take the centroids as they are.
    """

    attention: str = "bidirectional"
    pooling: str = "max"
    clusters: int | None = 4000
    seed: int = 0
    steps: int = 64
    layers: int = 6
    paper: bool = False

    @property
    def name(self) -> str:
        """What its folder is called by."""
        size = "tokens" if self.clusters is None else self.clusters or "dense"
        end = "-paper" if self.paper else ""
        return f"{size}-{self.pooling}-{self.attention}-{self.layers}-{self.steps}-{self.seed}{end}"


@dataclass(frozen=True)
class Amounts:
    """How many texts and pairs batches are drawn from, and in how many topics the texts are."""

    sentences: int = 19_200
    paraphrases: int = 5_120
    questions: int = 2_560
    topics: int = 24


SHORT = Amounts(sentences=640, paraphrases=256, questions=128, topics=1)


@dataclass(frozen=True)
class Source:
    """Where everything is.

    Attributes:
        data: the folder of all sets.
        model: the language model.
        e5: multilingual-e5-small.
        work: where what is made is kept.
        amounts: how much is trained on.
    """

    data: Path
    model: Path
    e5: Path
    work: Path
    amounts: Amounts = Amounts()

    @property
    def corpus(self) -> Path:
        """Sentences under open licences, one a line."""
        return self.data / "raw_english" / "open_licence.txt.xz"

    def tokens(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of tokens of each text."""
        return np.array([len(ids) for ids in _tokenizer(self.model)(list(texts), verbose=False)["input_ids"]])

    def backbone(self, row: Row) -> Backbone:
        """Return the first layers in bfloat16; they are kept as a folder that transformers opens."""
        folder = self.work / f"backbone-{row.layers}"
        if not folder.exists():
            first_layers(self.model, row.layers, folder)
        backbone = open_backbone(folder, attention=row.attention, dtype="bfloat16", device="cpu")  # type: ignore[arg-type]
        backbone.model.set_attn_implementation("eager")  # the gradient of the other is slow for short texts on CPUs
        return backbone


def first_layers(model: Path, layers: int, output: Path) -> None:
    """Write the first layers of a language model with its tokenizer, its last normalisation and its head."""
    from transformers import AutoModelForCausalLM

    whole = AutoModelForCausalLM.from_pretrained(model, local_files_only=True)
    whole.model.layers = whole.model.layers[:layers]
    whole.config.num_hidden_layers = len(whole.model.layers)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as aside:
        whole.save_pretrained(Path(aside) / "model")
        _tokenizer(model).save_pretrained(Path(aside) / "model")
        os.rename(Path(aside) / "model", output)


@cache
def _tokenizer(model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, local_files_only=True)


@cache
def training_sets(source: Source) -> list[Any]:
    """Return everything that is trained on, in sets of texts of like length: a batch is of one set."""
    random = np.random.default_rng(TRAINING.seed)
    amounts = source.amounts
    sentences = short_sentences(source, amounts.sentences)
    held_out = test_sentences(source.data / "sts")
    paraphrases = all_paraphrases(source.data / "parallel" / "tatoeba", held_out)[: amounts.paraphrases]
    answers = shuffled(list(medical_questions(source.data)), random)[: amounts.questions]
    questions = [(question, cut(answer, ANSWER)) for question, answer in answers]
    return [
        *topic_sets("sentences", source, sentences, teacher_vectors(source, sentences), random, amounts.topics),
        *pair_sets("paraphrases", source, paraphrases, random),
        *pair_sets("medical questions", source, questions, random),
    ]


def teacher_vectors(source: Source, texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of both teachers side by side, float16 [texts, 768]; they are kept in a file.

    Those of multilingual-e5-small are centred first: all its cosines lie between 0.7 and 1.
    """
    from sentence_transformers import SentenceTransformer

    path = source.work / f"teachers-{len(texts)}.npy"
    if not path.exists():
        first = open_teacher().encode(list(texts), batch_size=64, normalize_embeddings=True)
        e5 = SentenceTransformer(str(source.e5), device="cpu")
        second = e5.encode([f"query: {text}" for text in texts], batch_size=64, normalize_embeddings=True)
        keep_joined(path, first, second)
    return np.asarray(np.load(path))


def keep_joined(path: Path, first: np.ndarray, second: np.ndarray) -> None:
    """Write the rows of both teachers side by side, the second ones centred and at length 1 again."""
    second = second - second.mean(axis=0)
    second = second / np.linalg.norm(second, axis=1, keepdims=True)
    aside = path.with_suffix(".tmp.npy")
    np.save(aside, np.hstack([first, second]).astype(np.float16))
    aside.replace(path)


def weighted_clusters(source: Source, backbone: Backbone, row: Row) -> Clusters:
    """Return the clusters of the head, those that fire in many sentences before training weighted down; made once.

    The centroids are multiplied by log(1 / frequency) / log(sentences), 1 for a cluster that fires in one sentence or
    none: else a short training is spent on unlearning what every text has.
    """
    size = "tokens" if row.clusters is None else row.clusters
    folder = source.work / f"head-{size}-{row.attention}-{row.layers}"
    if not folder.exists():
        made, texts = _clusters(source, backbone, row), short_sentences(source, FREQUENCIES)
        plain = LexiconEmbedder(backbone, made, LexiconSettings(shift=False, max_length=LENGTH)).encode(texts)
        counts = np.bincount(plain.indices, minlength=len(made))
        weights = 1 - np.log(np.maximum(counts, 1)) / np.log(len(texts))
        with tempfile.TemporaryDirectory(dir=source.work) as aside:
            replace(made, centroids=made.centroids * weights[:, None].astype(np.float32)).save(aside)
            shutil.copytree(aside, folder)
    return Clusters.load(folder)


def _clusters(source: Source, backbone: Backbone, row: Row) -> Clusters:
    """Return the clusters of the head's rows, made once."""
    folder = source.work / f"clusters-{row.clusters}"
    if not folder.exists():
        made = cluster_vocabulary(backbone.head, backbone.tokenizer, row.clusters, iterations=10)
        with tempfile.TemporaryDirectory(dir=source.work) as aside:
            made.save(aside)
            shutil.copytree(aside, folder)
    return Clusters.load(folder)


def short_sentences(source: Source, count: int) -> list[str]:
    """Return the first short sentences of the corpus, no one twice."""
    short = (text for text in read_texts(source.corpus) if 3 <= len(text.split()) <= 18)
    return list(dict.fromkeys(islice(short, count)))


def untrained(source: Source, row: Row) -> LexiconEmbedder:
    """Return the model of a row before training; for dense rows the lexicon model that reads its texts."""
    backbone = source.backbone(row)
    if row.clusters == 0:
        head = Clusters.nameless(np.zeros((1, backbone.dimension), np.float32))
        return LexiconEmbedder(backbone, head, LexiconSettings(pooling="last", shift=False, max_length=LENGTH))
    settings = LexiconSettings(pooling=row.pooling, shift=row.paper, max_length=LENGTH)  # type: ignore[arg-type]
    make = _clusters if row.paper else weighted_clusters
    return LexiconEmbedder(backbone, make(source, backbone, row), settings)


def trained(source: Source, row: Row) -> LexiconEmbedder | DenseEmbedder:
    """Return the model of a row; what was trained is kept and not trained again."""
    settings = replace(TRAINING, max_steps=row.steps or 1, warmup_steps=row.steps // 10, seed=row.seed)
    folder = source.work / "runs" / row.name
    if row.clusters != 0:
        model = untrained(source, row)
        return train_lexicon(model, training_sets(source), folder, settings) if row.steps else model
    from dense_minilm import train_dense

    if row.steps:
        train_dense(untrained(source, row), training_sets(source), folder, settings, row.pooling)
    return dense_model(source, row)


def dense_model(source: Source, row: Row) -> DenseEmbedder:
    """Return the dense model of a row, with what was trained of it."""
    adapter = source.work / "runs" / row.name / TRAINED if row.steps else None
    source.backbone(row)
    backbone = open_backbone(
        source.work / f"backbone-{row.layers}", attention=row.attention, adapter=adapter, dtype="bfloat16", device="cpu"
    )  # type: ignore[arg-type]
    return DenseEmbedder(backbone, LexiconSettings(max_length=LENGTH), pooling=row.pooling)  # type: ignore[arg-type]


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where everything is."""
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--model", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--e5", type=Path, required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--work-dir", type=Path, required=True, help="where vectors, clusters and checkpoints are kept")


def source_of(arguments: argparse.Namespace, amounts: Amounts = Amounts()) -> Source:
    """Return what the arguments name."""
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    return Source(arguments.data, arguments.model, arguments.e5, arguments.work_dir, amounts)


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_source(parser)
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--attention", choices=["bidirectional", "causal"], default=Row.attention)
    parser.add_argument("--pooling", choices=["max", "sum", "last", "mean"], default=Row.pooling)
    parser.add_argument("--clusters", type=int, default=Row.clusters, help="0 for a dense model [%(default)s]")
    parser.add_argument("--tokens", action="store_true", help="no clusters: a dimension for each token")
    parser.add_argument("--layers", type=int, default=Row.layers, help="of 30 [%(default)s]")
    parser.add_argument("--steps", type=int, default=Row.steps, help="batches of 64 [%(default)s]")
    parser.add_argument("--seed", type=int, default=Row.seed)
    parser.add_argument("--short", action="store_true", help="train for two batches: a check that everything runs")
    arguments = parser.parse_args()
    names = ("attention", "pooling", "clusters", "seed", "steps", "layers")
    row = Row(**{name: getattr(arguments, name) for name in names})
    row = replace(row, clusters=None) if arguments.tokens else row
    if arguments.short:
        row = replace(row, steps=2, layers=min(row.layers, 2), clusters=row.clusters and min(row.clusters, 100))
    trained(source_of(arguments, SHORT if arguments.short else Amounts()), row).save_pretrained(arguments.output)


if __name__ == "__main__":
    main()
