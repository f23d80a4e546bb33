"""What is attacked: a model of every family in two versions, all tiny."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers.utils.logging import disable_progress_bar

import pellucid
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.lexicon.clusters import cluster_vocabulary
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.lexicon.static import StaticLexiconEmbedder
from pellucid.lexicon.training import TrainingSettings, train_lexicon
from pellucid.lexicon.training_data import TrainingRow, TrainingSet
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.spelling import BUCKETS
from pellucid.text.words import Vocabulary
from pellucid.transformer.backbone import open_backbone, prepare
from tiny_models import WORDS, sentence_piece, tiny_model, word_piece

TRAINING = TrainingSettings(max_steps=6, batch_size=4, group_size=2, learning_rate=1e-2, warmup_steps=0, rank=2,
                            alpha=4, save_steps=2)  # fmt: skip
ROWS = [TrainingRow(query, (pos,), ("beach", "horse")) for query, pos in zip(WORDS[:12], WORDS[6:])]
_CHANGED = 1e-6  # relative difference of vectors, above what another alignment in memory makes of a sum
_SENTENCES = 300


def sentences(count: int = _SENTENCES, seed: int = 0) -> list[str]:
    """Return distinct sentences of the tiny tokenizers' words."""
    rng = random.Random(seed)
    return list(dict.fromkeys(" ".join(rng.choices(WORDS, k=rng.randint(3, 8))) + "." for _ in range(count)))


@dataclass(frozen=True)
class Folder:
    """A saved model or index, its other version, how it is opened, and what it gave before it was damaged."""

    name: str
    path: Path
    other: Path
    open: Callable[[Path], Any]
    seen: tuple[Any, list[str]]

    def check(self, path: Path) -> str:
        """Open a damaged copy; return what is not as it was, "" for nothing."""
        vectors, names = observe(self.open(path))
        if vectors.shape != self.seen[0].shape or not np.isfinite(vectors).all():
            return f"embeddings of shape {vectors.shape}, finite: {np.isfinite(vectors).all()}"
        gap = np.abs(vectors - self.seen[0]).max() / np.abs(self.seen[0]).max()
        if gap > _CHANGED:
            return f"vectors differ by {gap:.2g} of the largest number"
        return "" if names == self.seen[1] else "the names of dimensions differ"


@dataclass(frozen=True, eq=False)
class Subjects:
    """All that is attacked, in one place on disk."""

    place: Path
    folders: dict[str, Folder]


TEXTS = [*WORDS, " ".join(WORDS), "sick boy", "東京 京都に", "Medicines!", "a" * 40, "", *sentences(20, 1)]


def observe(opened: Any) -> tuple[Any, list[str]]:
    """Return what a model gives for fixed texts, float64, and the names of its dimensions."""
    for model in (opened, getattr(opened, "encoder", None)):
        if hasattr(model, "_characters"):
            model._characters = 10**9  # so that the C kernels read the tables of static models
    rows = [opened.encode(TEXTS), opened.encode_query(TEXTS[:4])]
    dense = [row.toarray() if hasattr(row, "toarray") else row for row in rows]
    return np.concatenate(dense).astype(np.float64), opened.dimensions.names


def build(place: Path, names: Collection[str] = ()) -> Subjects:
    """Make the models of these names, or all, below `place`."""
    torch.set_num_threads(1)
    disable_progress_bar()
    teacher = _teacher(place / "teacher")
    folders = {}
    for name in names or MODELS:
        path, other = place / "0" / name, place / "1" / name
        for number, folder in enumerate((path, other)):
            save(name, MODELS[name](place, teacher, number), folder, place)
        opener = pellucid.load
        if name == "lexicon-adapter":
            opener = partial(pellucid.load, allow_outside=True)
        folders[name] = Folder(name, path, other, opener, observe(opener(path)))
    return Subjects(place, folders)


def save(name: str, model: Any, path: Path, place: Path) -> None:
    """Save a model of `MODELS` as its name says; `place` is where all was built."""
    if name in ("static-int8", "static-int4"):
        model.save_pretrained(path, dtype=name.removeprefix("static-"), extra_words=["medicines"])
    elif name == "lexicon-adapter":
        model.save_pretrained(path, backbone_name=str(place / "backbone"))
    else:
        model.save_pretrained(path)


def _static(place: Path, teacher: Any, seed: int, *, spells: bool = False) -> StaticEmbedder:
    words = [*WORDS, "東京", "京都", "に"]
    vectors = np.random.default_rng(seed).normal(size=(len(words), 8)).astype(np.float32)
    spelling = np.random.default_rng(seed).integers(0, 256, BUCKETS).astype(np.uint8) if spells else None
    return StaticEmbedder(Vocabulary(words, word_piece().backend_tokenizer), vectors, spelling=spelling)


def _static_lexicon(seed: int) -> StaticLexiconEmbedder:
    weights = np.random.default_rng(seed).exponential(size=(len(WORDS), 12))
    names = Dimensions(Dimension(f"cluster {number}") for number in range(12))
    return StaticLexiconEmbedder(Vocabulary(WORDS), sparse.csr_matrix(weights * (weights > 1)), names)


def _backbone(kind: str, seed: int, *, headless: bool = False) -> Any:
    tokenizer = word_piece() if kind == "bert" else sentence_piece()
    model = tiny_model(kind, len(tokenizer), seed=seed, headless=headless)
    attention = "bidirectional" if kind == "bert" else "causal"
    return prepare(model, tokenizer, attention=attention, head_kind="input" if headless else "lm", device="cpu")


def _lexicon(place: Path, teacher: Any, seed: int) -> LexiconEmbedder:
    backbone = _backbone("bert", seed)
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 20))


def _adapted(place: Path, teacher: Any, seed: int) -> LexiconEmbedder:
    """A lexicon model that is kept as an adapter of a backbone found by its path."""
    if not (place / "backbone").exists():
        made = _backbone("bert", 0)
        made.model.save_pretrained(place / "backbone")
        made.tokenizer.save_pretrained(place / "backbone")
    backbone = open_backbone(place / "backbone")
    model = LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 20))
    return train_lexicon(
        model, [TrainingSet("pairs", ROWS[seed:])], place / f"training-{seed}", TRAINING, show_progress_bar=False
    )


def _keytokens(place: Path, teacher: Any, seed: int) -> KeyTokenEmbedder:
    return KeyTokenEmbedder(_backbone("llama", seed), KeyTokenSettings(top_k=20))


MODELS: dict[str, Callable[[Path, Any, int], Any]] = {
    "static": _static,
    "static-int8": _static,
    "static-int4": _static,
    "static-spelling": lambda *a: _static(*a, spells=True),
    "static-lexicon": lambda place, teacher, seed: _static_lexicon(seed),
    "anchors": lambda *a: AnchorEmbedder(_static(*a), sentences(12, a[-1])),
    "anchors-transformer": lambda place, teacher, seed: AnchorEmbedder(teacher, sentences(12, seed)),
    "lexicon": _lexicon,
    "lexicon-adapter": _adapted,
    "keytokens": _keytokens,
    "ensemble": lambda *a: EnsembleEmbedder({"words": _static(*a), "clusters": _lexicon(*a)}, [1, 2]),
}
"""By name, the function that makes a model: (place, teacher, seed) -> model."""


def _teacher(folder: Path) -> SentenceTransformer:
    backbone = _backbone("bert", 0, headless=True)
    backbone.model.save_pretrained(folder)
    backbone.tokenizer.save_pretrained(folder)
    words = modules.Transformer(str(folder))
    words.max_seq_length = 24
    return SentenceTransformer(modules=[words, modules.Pooling(32)], device="cpu")
