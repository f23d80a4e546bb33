"""Train SmolLM2-135M-Instruct as a lexicon model: clusters of its 49,152 tokens as dimensions.

    python shared/models/make_models.py smollm2 SMOLLM2
    python shared/models/make_models.py me5 E5
    python -m recipes.lexicon_smollm2 --data shared/data --model SMOLLM2 --e5 E5 --work-dir WORK --output MODEL

DATA holds raw_english, parallel/tatoeba, retrieval_train/medquad and sts (whose sentences are left out). Trained are
the last `--upper` layers, which look both ways; those below them stay as they are, and causal, so that what they make
of a text is computed once for all models. Batches of sentences are trained towards the cosines of two teachers side by
side (MiniLM and multilingual-e5-small), batches of pairs by InfoNCE. With `--clusters 0` a dense model is trained on
the same batches (`--pooling mean` or `last`), with `--tokens` one that has a dimension for each token. `--short` is a
minute's check that everything runs. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pellucid import LexiconEmbedder, cluster_vocabulary, load, train_lexicon
from pellucid.lexicon import Clusters, LexiconSettings, TrainingSet, TrainingSettings
from pellucid.lexicon.training import TRAINED, trained_model
from pellucid.text.tables import read_texts
from pellucid.transformer import Backbone, open_backbone
from pellucid.transformer.backbone import half_dtype
from recipes.dense_minilm import DenseEmbedder, train_dense
from recipes.lexicon_head import load_clusters, save_clusters
from recipes.lexicon_minilm import cut, hard_negatives, medical_questions, pair_sets, shuffled, topic_sets
from recipes.static_en import open_teacher
from recipes.tatoeba_pairs import all_paraphrases, test_sentences
from recipes.upper_layers import LowerStates, UpperLayers, make_causal, upper_layers

START = "<|im_start|>"
LENGTH = 48  # tokens read of a text
FREQUENCIES = 500  # sentences in which clusters are counted before training
ANSWER = 16  # words of a medical answer
NEGATIVES = 2  # hard ones of a pair, where rows are trained on pairs alone
TRAINING = TrainingSettings(
    batch_size=64, group_size=1 + NEGATIVES, rank=16, alpha=32, dropout=0.0, bf16=half_dtype() == "bfloat16",
    save_steps=32,
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        attention: of the trained layers, "causal" or "bidirectional".
        lower: of the layers below them.
        pooling: "max", "sum" or "last"; of dense models "mean" or "last".
        clusters: how many; None for one dimension a token, 0 for a dense model.
        seed: of the adapter and the order of batches.
        steps: batches trained on; 0 for the model as it is.
        shift: take for a token the state one position back, which predicts it.
        head: what is done to the clusters' logits before training: "plain", "centred", "sparse", "relative" or "last".
        learning_rate: the largest.
        upper: how many layers are trained, from the last.
        raw: group the head's rows as they are, as the paper does, not by their direction alone.
        pairs: train on pairs with mined hard negatives alone, without sentences and their teachers.
    """

    attention: str = "bidirectional"
    lower: str = "causal"
    pooling: str = "max"
    clusters: int | None = 4000
    seed: int = 0
    steps: int = 96
    shift: bool = True
    head: str = "relative"
    learning_rate: float = 3e-3
    upper: int = 10
    raw: bool = False
    pairs: bool = False

    @property
    def name(self) -> str:
        """What its folder is called by."""
        size = "tokens" if self.clusters is None else self.clusters or "dense"
        read = f"{self.pooling}-{self.lower}-{self.attention}-{self.upper}"
        end = "dense" if self.clusters == 0 else f"{self.head}{'-shift' * self.shift}"
        end += "-raw" * self.raw + "-pairs" * self.pairs
        return f"{size}-{read}-{self.steps}-{self.learning_rate:g}-{self.seed}-{end}"


@dataclass(frozen=True)
class Amounts:
    """How many texts and pairs batches are drawn from, and in how many topics the texts are."""

    sentences: int = 19_200
    paraphrases: int = 5_120
    questions: int = 1_280
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
        device: where models are trained and read, as torch names it.
    """

    data: Path
    model: Path
    e5: Path
    work: Path
    amounts: Amounts = Amounts()
    device: str = "cpu"

    @property
    def corpus(self) -> Path:
        """Sentences under open licences, one a line."""
        return self.data / "raw_english" / "open_licence.txt.xz"

    def tokens(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of tokens of each text."""
        return np.array([len(ids) for ids in _tokenizer(self.model)(list(texts), verbose=False)["input_ids"]])

    def backbone(self, row: Row) -> UpperLayers:
        """Return the layers that are trained; the states below them are kept."""
        skipped = layers_of(self.model) - row.upper
        lower = lower_states(self, row.lower, skipped)
        return upper_layers(self.model, row.attention, lower, skipped, self.device)


def layers_of(model: Path) -> int:
    """Return how many layers a language model has."""
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(model, local_files_only=True).num_hidden_layers)


@cache
def lower_states(source: Source, attention: str, layers: int) -> LowerStates:
    """Return the states behind the first layers, the same for all rows that read alike there."""
    folder = source.work / f"lower-{attention}-{layers}"
    return LowerStates(source.model, layers, attention, folder, source.device)


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


@cache
def hard_pairs(source: Source) -> list[Any]:
    """Return the pairs alone, each with two texts of other pairs that static-en finds near the first text."""
    parts = [part for part in training_sets(source) if isinstance(part, TrainingSet)]
    rows = iter(hard_negatives([row for part in parts for row in part.rows], load("static-en"), NEGATIVES))
    return [TrainingSet(part.name, list(islice(rows, len(part.rows)))) for part in parts]


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


def head(source: Source, backbone: Backbone, row: Row) -> tuple[Clusters, np.ndarray | None]:
    """Return the clusters of a row and what is added to their logits.

    The logits of a language model mean something only beside each other; of this one nearly all are above 0, so that
    every cluster fires in every text, which a short training has to unlearn. A head is "plain", as in the paper, or

        centred: less the logit of the mean state
        sparse: less the logit that a cluster passes in one of ten sentences
        relative: the same, after the mean centroid was taken away from all
        last: the same, by the logits at a sentence's last state, which pooling "last" takes
    """
    made = clusters_of(source, row)
    if row.head == "plain":
        return made, None
    if row.head in ("relative", "last"):
        made = replace(made, centroids=made.centroids - made.centroids.mean(axis=0))
    mean, tenth = _logits(source, backbone, made, row)
    return made, -(mean if row.head == "centred" else tenth)


def _logits(source: Source, backbone: Backbone, made: Clusters, row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Return of each cluster the mean logit before training, and the one that it passes in one of ten sentences."""
    import torch

    model = LexiconEmbedder(backbone, made, reading(row))
    texts, largest, total, tokens = short_sentences(source, FREQUENCIES), [], 0, 0
    with torch.inference_mode():
        for start in range(0, len(texts), 50):
            ids, mask, _ = backbone.padded(model.encodings(texts[start : start + 50]))
            hidden, place = backbone.states(ids, mask), torch.arange(ids.shape[1], device=ids.device)
            first = 0 if row.shift else 1  # behind the start token; the end token's state is not the text's
            own = (place >= first) & (place < mask.sum(dim=1, keepdim=True) - 2 + first)
            if row.head == "last":
                own = place == mask.sum(dim=1, keepdim=True) - 1
            total, tokens = total + hidden[own].float().sum(dim=0), tokens + int(own.sum())
            logits = hidden @ backbone.tensor(made.centroids).t()
            largest.append(logits.masked_fill(~own[..., None], -np.inf).amax(dim=1).float().cpu().numpy())
    tenth = np.quantile(np.concatenate(largest), 0.9, axis=0).astype(np.float32)
    return made.centroids @ (total / tokens).cpu().numpy(), tenth


def reading(row: Row) -> LexiconSettings:
    """Return how a row reads texts: behind a start token, whose own state is like no other."""
    if row.clusters == 0:
        return LexiconSettings(template=START + "{text}", pooling="last", shift=False, max_length=LENGTH)
    template = "{text}" if row.shift else START + "{text}"  # with a shift the start token is put there anyway
    return LexiconSettings(template=template, pooling=row.pooling, shift=row.shift, max_length=LENGTH)  # type: ignore[arg-type]


def clusters_of(source: Source, row: Row) -> Clusters:
    """Return the clusters of the head's rows, made once."""
    folder = source.work / f"clusters-{row.clusters}{'-raw' * row.raw}"
    if not folder.exists():
        backbone = source.backbone(row)
        made = cluster_vocabulary(backbone.head, backbone.tokenizer, row.clusters, iterations=10, unit_rows=not row.raw)
        with tempfile.TemporaryDirectory(dir=source.work) as aside:
            save_clusters(Path(aside), made)
            shutil.copytree(aside, folder)
    return load_clusters(folder)


def short_sentences(source: Source, count: int) -> list[str]:
    """Return the first short sentences of the corpus, no one twice."""
    short = (text for text in read_texts(source.corpus) if 3 <= len(text.split()) <= 18)
    return list(dict.fromkeys(islice(short, count)))


def untrained(source: Source, row: Row) -> LexiconEmbedder:
    """Return the model of a row before training; for dense rows the lexicon model that reads its texts."""
    backbone = source.backbone(row)
    if row.clusters == 0:
        none = Clusters(np.zeros(0, np.int64), np.zeros((1, backbone.dimension), np.float32), ["none"], [()])
        return LexiconEmbedder(backbone, none, reading(row))
    clusters, bias = head(source, backbone, row)
    return LexiconEmbedder(backbone, clusters, reading(row), bias=bias)


def trained(source: Source, row: Row) -> LexiconEmbedder | DenseEmbedder:
    """Return the model of a row; what was trained is kept and not trained again."""
    model, folder = untrained(source, row), source.work / "runs" / row.name
    if row.steps:
        settings = replace(
            TRAINING, max_steps=row.steps, warmup_steps=row.steps // 10, seed=row.seed, learning_rate=row.learning_rate
        )
        sets = hard_pairs(source) if row.pairs else training_sets(source)
        if row.clusters != 0:
            model = train_lexicon(model, sets, folder, settings)
        else:
            train_dense(model, sets, folder, settings, row.pooling)
            model = trained_model(model, folder / TRAINED)
        model.backbone.lower.save()
    if row.clusters != 0:
        return model
    return DenseEmbedder(model.backbone, model.settings, row.pooling)


def whole(source: Source, row: Row) -> LexiconEmbedder | DenseEmbedder:
    """Return the model of a row with all layers.

    One whose lower layers look another way is opened again with `from_pretrained(folder, backbone=...)`, given a
    backbone that went through `make_causal`.
    """
    model = trained(source, row)
    skipped = layers_of(source.model) - row.upper
    adapter = source.work / "runs" / row.name / TRAINED if row.steps else None
    attention: Any = row.attention
    backbone = open_backbone(source.model, attention=attention, adapter=adapter, dtype=half_dtype(), device="cpu")
    if row.attention != row.lower:
        make_causal(backbone.model, skipped)
    if isinstance(model, DenseEmbedder):
        return DenseEmbedder(backbone, model.settings, model.pooling)
    return LexiconEmbedder(backbone, model.clusters, model.settings, bias=model.bias)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where everything is."""
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--model", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--e5", type=Path, required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--work-dir", type=Path, required=True, help="where vectors, clusters and checkpoints are kept")
    parser.add_argument("--device", default="cpu", help="where models are trained and read: cpu, cuda [%(default)s]")


def source_of(arguments: argparse.Namespace, amounts: Amounts = Amounts()) -> Source:
    """Return what the arguments name."""
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    return Source(arguments.data, arguments.model, arguments.e5, arguments.work_dir, amounts, arguments.device)


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_source(parser)
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--attention", choices=["bidirectional", "causal"], default=Row.attention)
    parser.add_argument("--pooling", choices=["max", "sum", "last", "mean"], default=Row.pooling)
    parser.add_argument("--clusters", type=int, default=Row.clusters, help="0 for a dense model [%(default)s]")
    parser.add_argument("--tokens", action="store_true", help="no clusters: a dimension for each token")
    parser.add_argument("--upper", type=int, default=Row.upper, help="layers that are trained, of 30 [%(default)s]")
    parser.add_argument("--steps", type=int, default=Row.steps, help="batches of 64 [%(default)s]")
    parser.add_argument("--seed", type=int, default=Row.seed)
    parser.add_argument("--short", action="store_true", help="train for two batches: a check that everything runs")
    arguments = parser.parse_args()
    names = ("attention", "pooling", "clusters", "seed", "steps", "upper")
    row = Row(**{name: getattr(arguments, name) for name in names})
    row = replace(row, clusters=None) if arguments.tokens else row
    if arguments.short:
        row = replace(row, steps=2, upper=2, clusters=row.clusters and min(row.clusters, 100))
    whole(source_of(arguments, SHORT if arguments.short else Amounts()), row).save_pretrained(arguments.output)


if __name__ == "__main__":
    main()
