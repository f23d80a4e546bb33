"""What is attacked: a model of every family in two versions, all tiny."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

import pellucid
from families import lexicon_model, static_lexicon_model
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.keytokens.adjustments import Adjustment
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.lexicon.clusters import cluster_vocabulary
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.spelling import BUCKETS
from pellucid.text.words import Vocabulary
from pellucid.transformer.backbone import open_backbone
from tiny_models import WORDS, backbone_of, random_adapter, saved_backbone, tiny_teacher, word_piece

_CHANGED = 1e-6  # relative difference of vectors, above what another alignment in memory makes of a sum
ADAPTED = "lexicon-adapter"


def sentences(count: int = 300, seed: int = 0) -> list[str]:
    """Return distinct sentences of the tiny tokenizers' words."""
    rng = random.Random(seed)
    return list(dict.fromkeys(" ".join(rng.choices(WORDS, k=rng.randint(3, 8))) + "." for _ in range(count)))


@dataclass(frozen=True)
class Folder:
    """A saved model, its other version, and what it gave before it was damaged."""

    name: str
    path: Path
    other: Path
    seen: tuple[Any, list[str]]

    def check(self, path: Path) -> str:
        """Open a damaged copy; return what is not as it was, "" for nothing."""
        vectors, names = observe(self.name, path)
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


def observe(name: str, path: Path) -> tuple[Any, list[str]]:
    """Open a model; return what it gives for fixed texts, float64, and the names of its dimensions."""
    opened = pellucid.load(path, allow_outside=name == ADAPTED)
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
    dtypes = {"static": "float32", "static-int8": "int8", "static-int4": "int4"}
    options = {name: {"dtype": dtype, "extra_words": ["medicines"]} for name, dtype in dtypes.items()}
    options[ADAPTED] = {"backbone_name": str(place / "backbone")}
    folders = {}
    for name in names or MODELS:
        path, other = place / "0" / name, place / "1" / name
        for seed, folder in enumerate((path, other)):
            MODELS[name](place, seed).save_pretrained(folder, **options.get(name, {}))
        folders[name] = Folder(name, path, other, observe(name, path))
    return Subjects(place, folders)


def _static(place: Path, seed: int, *, spells: bool = False) -> StaticEmbedder:
    words, chance = [*WORDS, "東京", "京都", "に"], np.random.default_rng(seed)
    vectors = chance.normal(size=(len(words), 8)).astype(np.float32)
    spelling = chance.integers(0, 256, BUCKETS).astype(np.uint8) if spells else None
    return StaticEmbedder(Vocabulary(words, word_piece().backend_tokenizer), vectors, spelling=spelling)


def _adjusted(place: Path, seed: int) -> KeyTokenEmbedder:
    """A key token model with all that its files can hold."""
    mean = Adjustment("mean", np.linspace(-1, 1, 32, dtype=np.float32), 0.0, 5)
    settings = KeyTokenSettings(top_k=30, signs="signed")
    return KeyTokenEmbedder(backbone_of("llama", "causal", seed=seed), settings, adjustment=mean).merge(40, 41)


def _adapted(place: Path, seed: int) -> LexiconEmbedder:
    """A lexicon model that is kept as an adapter of a backbone found by its path."""
    base = saved_backbone(backbone_of("llama", "causal"), place / "backbone")
    backbone = open_backbone(base, adapter=random_adapter(place / f"adapter-{seed}", base, seed), device="cpu")
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 20))


MODELS: dict[str, Callable[[Path, int], Any]] = {
    "static": _static,
    "static-int8": _static,
    "static-int4": _static,
    "static-spelling": lambda *a: _static(*a, spells=True),
    "static-lexicon": lambda place, seed: static_lexicon_model(seed),
    "anchors": lambda *a: AnchorEmbedder(_static(*a), sentences(12, a[-1])),
    "anchors-transformer": lambda place, seed: AnchorEmbedder(
        tiny_teacher(place / "teacher", WORDS, 32), sentences(12, seed)
    ),
    "lexicon": lambda place, seed: lexicon_model(seed),
    ADAPTED: _adapted,
    "keytokens": _adjusted,
    "ensemble": lambda place, seed: EnsembleEmbedder(
        {"clusters": lexicon_model(seed), "stock": tiny_teacher(place / "teacher", WORDS, 32)}, [1, 2]
    ),
    "static-ensemble": lambda *a: EnsembleEmbedder(
        {"anchors": AnchorEmbedder(_static(*a), sentences(2)), "words": _static(*a)}, [1, 2]
    ),
}
"""By name, the function that makes a model: (place, seed) -> model."""
