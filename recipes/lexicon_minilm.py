"""Make the bundled model `lexicon-minilm`: all-MiniLM-L6-v2 with 4,000 clusters of its vocabulary as dimensions.

    python -m recipes.lexicon_minilm --data DATA --work-dir WORK --output src/pellucid/bundled/lexicon-minilm

DATA holds raw_english, parallel/tatoeba, retrieval_train/medquad, retrieval/scifact and classification/banking77.
Training takes some hours of one core and goes on where it stopped. `--dense` trains the comparison instead: the same
transformer with mean pooling, on the same batches, from the same weights.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pellucid import Embedder, LexiconEmbedder, cluster_vocabulary, train_lexicon
from pellucid.anchors import prepare_candidates
from pellucid.lexicon import LexiconSettings, TrainingSet, TrainingSettings
from pellucid.lexicon.training import TRAINED, trained_model
from pellucid.lexicon.training_data import TextSet, TrainingRow
from pellucid.text.tables import read_texts
from pellucid.transformer import open_backbone
from pellucid.transformer.backbone import read_adapter, write_adapter
from recipes.anchors_en import CANDIDATES
from recipes.lexicon_head import fit_head
from recipes.static_en import open_teacher
from recipes.tatoeba_pairs import all_paraphrases, test_sentences

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
CLUSTERS = 4000
FITTED_ON = 6000  # sentences for the head
LENGTHS = (8, 10, 12, 14, 16, 19, 23, 28, 38)  # tokens; texts up to one of these and above the one before share batches
TOPICS = 32
TRAINING = TrainingSettings(
    batch_size=64, group_size=4, learning_rate=1e-3, warmup_steps=100, dropout=0.0, save_steps=250, seed=0
)


@dataclass(frozen=True)
class Amounts:
    """How many rows of each kind a pass draws from, the seed they are drawn with, and how many batches it takes."""

    sentences: int
    by_topic: int
    long_sentences: int
    passages: int
    paraphrases: int
    questions: int
    intents: int
    seed: int
    steps: int | None = None  # None takes all


PASSES = (
    Amounts(38_400, 38_400, 6_400, 1_280, 9_600, 3_200, 1_920, seed=0),
    Amounts(64_000, 76_800, 6_400, 960, 9_600, 1_600, 1_920, seed=1, steps=1_600),
)
"""The second goes on from the adapter of the first; the model has the mean of both."""


@dataclass(frozen=True)
class Source:
    """The data and what is made of it.

    Attributes:
        data: the folder of all sets.
        work: where vectors of the teacher are kept.
        teacher: all-MiniLM-L6-v2.
    """

    data: Path
    work: Path
    teacher: Any

    @property
    def corpus(self) -> Path:
        """Sentences under open licences, one a line."""
        return self.data / "raw_english" / "open_licence.txt.xz"

    def vectors(self, name: str, texts: Sequence[str]) -> np.ndarray:
        """Return the teacher's vectors of some texts, which are kept in a file."""
        path = self.work / f"{name}-{len(texts)}.npy"
        if not path.exists():
            rows = self.teacher.encode(list(texts), batch_size=64, normalize_embeddings=True)
            aside = path.with_suffix(".tmp.npy")
            np.save(aside, rows)
            aside.replace(path)
        return np.asarray(np.load(path))

    def tokens(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of tokens of each text."""
        return np.array([len(ids) for ids in self.teacher.tokenizer(list(texts), verbose=False)["input_ids"]])


def training_sets(source: Source, amounts: Amounts) -> list[TextSet | TrainingSet]:
    """Return everything that is trained on, in sets of texts of like length: a batch is of one set."""
    random = np.random.default_rng(amounts.seed)
    long_ones = shuffled([text for text in read_texts(source.corpus) if 21 <= len(text.split()) <= 60], random)
    long_ones = long_ones[: amounts.long_sentences]
    answers = shuffled(list(medical_questions(source.data)), random)
    passages = [cut(answer, 100) for _, answer in answers if len(answer.split()) >= 50][: amounts.passages]
    pairs = all_paraphrases(source.data / "parallel" / "tatoeba", test_sentences(source.data / "sts"))[
        : amounts.paraphrases
    ]
    questions = [(question, cut(answer, 60)) for question, answer in answers[-amounts.questions :]]
    return [
        *_sentences(source, amounts, random),
        *_text_sets(
            "long sentences", source, long_ones, source.vectors(f"long sentences {amounts.seed}", long_ones), random
        ),
        TextSet("passages", passages, source.vectors(f"passages {amounts.seed}", passages)),
        *pair_sets("paraphrases", source, pairs, random),
        *pair_sets("medical questions", source, questions, random),
        *pair_sets("claims", source, [(claim, cut(text, 100)) for claim, text in _scifact(source.data)], random),
        TrainingSet("intents", _intents(source.data, amounts.intents, random)),
    ]


def _sentences(source: Source, amounts: Amounts, random: np.random.Generator) -> Iterator[TextSet]:
    """Yield sentences, and then again in sets of one topic, where neighbours meet in a batch."""
    candidates = prepare_candidates(source.teacher, source.corpus, CANDIDATES, source.work / "candidates")
    for count, kind in ((amounts.sentences, _text_sets), (amounts.by_topic, topic_sets)):
        rows = np.sort(random.permutation(len(candidates.vectors))[:count])
        texts, vectors = candidates.texts(rows), np.asarray(candidates.vectors[rows], np.float32)
        yield from kind("sentences", source, texts, vectors, random)


def hard_negatives(rows: Sequence[TrainingRow], encoder: Embedder, count: int) -> list[TrainingRow]:
    """Return the rows with the texts nearest to each query among all positives as negatives.

    Texts nearer than the row's positive less a twentieth of its cosine are passed over: they may belong to the query. A
    row for which nothing is found stays as it is.
    """
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    pairs = Dataset.from_list([{"query": row.query, "text": text} for row in rows for text in row.pos])
    mined = mine_hard_negatives(
        pairs, encoder, relative_margin=0.05, num_negatives=count, output_format="triplet", verbose=False
    )
    negatives: dict[str, dict[str, None]] = {}
    for triplet in mined:
        negatives.setdefault(triplet["query"], {})[triplet["negative"]] = None
    return [replace(row, neg=tuple(negatives[row.query])) if row.query in negatives else row for row in rows]


def score_rows(rows: Sequence[TrainingRow], encoder: Embedder, temperature: float = 0.05) -> list[TrainingRow]:
    """Return the rows with the cosines of an encoder over a temperature as scores of all their candidates.

    Cosines as they are would make a softmax nearly even, which teaches nothing.
    """
    scored = []
    for row in rows:
        queries, texts = encoder.encode_query([row.query]), encoder.encode_document([*row.pos, *row.neg])
        scores = (np.asarray(encoder.similarity(queries, texts))[0] / temperature).tolist()
        n_pos = len(row.pos)
        scored.append(replace(row, pos_scores=tuple(scores[:n_pos]), neg_scores=tuple(scores[n_pos:])))
    return scored


def topic_sets(
    name: str,
    source: Any,
    texts: Sequence[str],
    vectors: np.ndarray,
    random: np.random.Generator,
    topics: int = TOPICS,
) -> Iterator[TextSet]:
    """Yield sets of texts whose vectors are near each other and whose lengths are alike."""
    from sklearn.cluster import MiniBatchKMeans

    found = MiniBatchKMeans(topics, random_state=TRAINING.seed, n_init=1).fit_predict(vectors)
    for topic in range(topics):
        chosen = np.flatnonzero(found == topic)
        yield from _text_sets(f"{name} on topic {topic}", source, [texts[n] for n in chosen], vectors[chosen], random)


def _text_sets(
    name: str, source: Any, texts: Sequence[str], vectors: np.ndarray, random: np.random.Generator
) -> Iterator[TextSet]:
    for label, chosen in _by_length(source.tokens(texts), random):
        yield TextSet(f"{name} {label}", [texts[n] for n in chosen], vectors[chosen])


def pair_sets(
    name: str, source: Any, pairs: Sequence[tuple[str, str]], random: np.random.Generator
) -> Iterator[TrainingSet]:
    """Yield sets of pairs whose longer texts are of like length."""
    longest = np.max([source.tokens(side) for side in zip(*pairs, strict=True)], axis=0)
    for label, chosen in _by_length(longest, random):
        rows = [TrainingRow(query=pairs[n][0], pos=(pairs[n][1],)) for n in chosen]
        yield TrainingSet(f"{name} {label}", rows)


def _by_length(tokens: np.ndarray, random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Yield texts of like length in random order, whole batches of them: what is padding is computed for nothing."""
    bounds = (0, *LENGTHS, int(max(tokens.max(initial=0), LENGTHS[-1] + 1)))
    for low, high in pairwise(bounds):
        chosen = random.permutation(np.flatnonzero((tokens > low) & (tokens <= high)))
        whole = chosen[: len(chosen) // TRAINING.batch_size * TRAINING.batch_size]
        if len(whole):
            yield f"up to {high} tokens", whole


def cut(text: str, words: int) -> str:
    """Return the first words of a text."""
    return " ".join(text.split()[:words])


def shuffled(items: list[Any], random: np.random.Generator) -> list[Any]:
    """Return the items in random order."""
    return [items[n] for n in random.permutation(len(items))]


def medical_questions(data: Path) -> Iterator[tuple[str, str]]:
    """Yield medical questions and their answers (CC BY 4.0)."""
    with lzma.open(data / "retrieval_train" / "medquad" / "qa.jsonl.xz", "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            yield row["question"], row["answer"]


def _scifact(data: Path) -> Iterator[tuple[str, str]]:
    """Yield SciFact's training claims (CC BY 4.0) and the abstracts that speak of them (ODC-By)."""
    folder = data / "retrieval" / "scifact"
    with lzma.open(folder / "corpus.jsonl.xz", "rt", encoding="utf-8") as file:
        abstracts = {row["_id"]: f"{row['title']} {row['text']}" for row in map(json.loads, file)}
    with open(folder / "queries.jsonl", encoding="utf-8") as file:
        claims = {row["_id"]: row["text"] for row in map(json.loads, file)}
    lines = (folder / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    for claim, abstract, _ in (line.split("\t") for line in lines):
        yield claims[claim], abstracts[abstract]


def _intents(data: Path, most: int, random: np.random.Generator) -> list[TrainingRow]:
    """Return messages of Banking77's training part (CC BY 4.0) with one of the same intent and three of others."""
    lines = (data / "classification" / "banking77" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    messages, labels = zip(*(line.rsplit("\t", 1) for line in lines), strict=True)
    of = {label: [text for text, other in zip(messages, labels) if other == label] for label in sorted(set(labels))}
    rows = []
    for n in random.permutation(len(messages))[:most]:
        others = [label for label in of if label != labels[n]]
        same = [text for text in of[labels[n]] if text != messages[n]]
        negatives = [str(random.choice(of[label])) for label in random.choice(others, 3, replace=False)]
        row = TrainingRow(messages[n], (str(random.choice(same)),), tuple(negatives), type="symmetric_class")
        rows.append(row)
    return rows


def untrained(source: Source) -> LexiconEmbedder:
    """Return the model before training; it is kept in the work folder."""
    folder = source.work / "untrained"
    if not folder.exists():
        _new_model(source).save_pretrained(folder)
    model = LexiconEmbedder.from_pretrained(folder)
    without_dropout(model.backbone.model)
    return model


def _new_model(source: Source) -> LexiconEmbedder:
    backbone = open_backbone(source.teacher[0].auto_model.name_or_path)
    texts = list(islice(read_texts(source.corpus), FITTED_ON))
    fitted = fit_head(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, CLUSTERS), texts)
    print(f"before training, {fitted.own_share:.1%} of the tokens fire their own cluster most", flush=True)
    settings = LexiconSettings(max_length=256)  # what the sentence transformer reads
    return LexiconEmbedder(backbone, fitted.clusters, settings, bias=fitted.bias)


def _train(source: Source) -> LexiconEmbedder:
    """Return the trained model."""
    for number, folder, settings in _runs(source, "run"):
        train_lexicon(untrained(source), training_sets(source, PASSES[number]), folder, settings)
    return trained_model(untrained(source), _mean_adapter(source, "run"))


def _train_dense(source: Source) -> Any:
    """Return the comparison, a SentenceTransformer."""
    from recipes.dense_minilm import dense_model, train_dense

    for number, folder, settings in _runs(source, "run-dense"):
        train_dense(untrained(source), training_sets(source, PASSES[number]), folder, settings)
    return dense_model(_mean_adapter(source, "run-dense"))


def _mean_adapter(source: Source, name: str) -> Path:
    """Return the folder of the mean of the adapters of all passes, which is better than each of them."""
    folders = [folder / TRAINED for _, folder, _ in _runs(source, name)]
    adapters = [read_adapter(folder) for folder in folders]
    mean = {key: sum(tensors[key] for _, tensors in adapters) / len(adapters) for key in adapters[0][1]}
    folder = source.work / f"{name}-mean"
    shutil.rmtree(folder, ignore_errors=True)
    write_adapter(folder, (adapters[-1][0], mean))
    return folder


def _runs(source: Source, name: str) -> Iterator[tuple[int, Path, TrainingSettings]]:
    """Yield the number, folder and settings of each pass; a pass goes on from the adapter of the one before."""
    adapter = None
    for number in range(len(PASSES)):
        folder = source.work / f"{name}-{number}"
        yield number, folder, replace(TRAINING, adapter=adapter, max_steps=PASSES[number].steps)
        adapter = str(folder / TRAINED)


def without_dropout(transformer: Any) -> None:
    """A student of exact vectors is not helped by noise."""
    import torch

    for module in transformer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--work-dir", type=Path, required=True, help="where vectors and checkpoints are kept")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--dense", action="store_true", help="train the dense comparison instead")
    arguments = parser.parse_args()
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    source = Source(arguments.data, arguments.work_dir, open_teacher())
    if arguments.dense:
        _train_dense(source).save_pretrained(str(arguments.output))
        return
    _train(source).save_pretrained(arguments.output, backbone_name=HUB_ID, dtype="float16")
    shutil.copy(Path(__file__).with_name("lexicon_minilm_card.md"), arguments.output / "README.md")


if __name__ == "__main__":
    main()
