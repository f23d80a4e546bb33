"""The comparison for lexicon models: the same transformer, batches and steps, but the states themselves are pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from sentence_transformers import SentenceTransformer

from pellucid import LexiconEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.lexicon import LexiconSettings
from pellucid.lexicon.trainer import Collator, LexiconModule
from pellucid.lexicon.training import TrainingSettings, adapted_model, bind_run, train_module
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.transformer import Backbone
from pellucid.transformer.embedder import TransformerEmbedder
from recipes.static_en import open_teacher


class DenseEmbedder(TransformerEmbedder):
    """A language model of which a text is one state, or the mean of several.

    Attributes:
        backbone: the transformer.
        settings: how texts are read; their `pooling` is ignored, and states are not shifted unless it is said.
        pooling: "last" takes the state at the last position; "mean" the mean over the text's own tokens.
    """

    family = "dense"
    settings: LexiconSettings
    truncates = True  # as far as the transformer was trained for it

    def __init__(self, backbone: Backbone, settings: LexiconSettings, pooling: str) -> None:
        """Take the states of a backbone as they are."""
        self._read_with(backbone, replace(settings, shift=bool(settings.shift)))
        self.pooling = pooling

    def get_embedding_dimension(self) -> int:
        """Return the length of a state."""
        return self.backbone.dimension

    def with_settings(self, settings: LexiconSettings) -> DenseEmbedder:
        """Return the same model with other settings."""
        return DenseEmbedder(self.backbone, settings, self.pooling)

    def _encode(self, texts: list[str], role: Any, *, batch_size: int, show_progress_bar: bool) -> Any:
        """Return float32 [texts, d], rows of length 1, and 0 for a text without tokens."""
        rows = np.zeros((len(texts), self.get_embedding_dimension()), np.float32)
        for batch, readings in self._batches(texts, role, batch_size, show_progress_bar):
            with torch.inference_mode():
                ids, mask, own = self.backbone.padded(readings)
                hidden = self.backbone.states(ids, mask).float()
                if self.pooling == "mean":
                    pooled = (hidden * own[:, :, None]).sum(dim=1) / own.sum(dim=1, keepdim=True).clamp(min=1)
                else:
                    last = torch.tensor([reading.last for reading in readings], device=hidden.device)
                    pooled = hidden[torch.arange(len(last)), last.clamp(min=0)] * (last >= 0)[:, None]
                rows[batch] = pooled.cpu().numpy()
        return l2_normalize(rows)


class OwnModule(LexiconModule):
    """The mean of the text's own states, or the last state, as `DenseEmbedder` pools them."""

    def __init__(self, model: LexiconEmbedder, adapted: Any, pooling: str) -> None:
        """Take the model that reads, its transformer with an adapter, and "mean" or "last"."""
        super().__init__(model, adapted)
        self.pooling = pooling

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the embeddings [B, d] of a batch of readings."""
        hidden = self._states(features["input_ids"], features["attention_mask"]).float()
        if self.pooling == "last":
            rows = hidden[torch.arange(len(hidden), device=hidden.device), features["last"]]
        else:
            own = features["own"][..., None]
            rows = (hidden * own).sum(dim=1) / own.sum(dim=1).clamp(min=1)
        return {"sentence_embedding": torch.nn.functional.normalize(rows, dim=1)}


class MeanModule(LexiconModule):
    """Mean pooling, as the sentence transformer does it: readings in, embeddings of length 1 out."""

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the embeddings [B, d] of a batch of readings."""
        mask = features["attention_mask"]
        hidden = self._states(features["input_ids"], mask)
        mean = (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return {"sentence_embedding": torch.nn.functional.normalize(mean.float(), dim=1)}


def train_dense(
    model: LexiconEmbedder, sets: Sequence[Any], folder: Path, settings: TrainingSettings, pooling: str = "all"
) -> None:
    """Train the transformer of a lexicon model as a dense model; the adapter is written to `folder`.

    Args:
        model: the lexicon model before its training; its transformer and its way to read texts are used.
        sets: what the lexicon model is trained on.
        folder: of the run; one that was stopped goes on.
        settings: the lexicon model's.
        pooling: "all" takes the mean of all states, "mean" of the text's own, "last" the last one.
    """
    named = {part.name: part for part in sets}
    collator = Collator(model, named, settings.group_size, settings.seed)
    with WorkFolder(folder) as work:
        model, adapted = adapted_model(model, settings)
        bind_run(work, model, named, asdict(settings))
        module = MeanModule(model, adapted) if pooling == "all" else OwnModule(model, adapted, pooling)
        train_module(module, collator, work, settings, show_progress_bar=True)


def dense_model(folder: Path) -> SentenceTransformer:
    """Return all-MiniLM-L6-v2 with the adapter in `folder`."""
    teacher = open_teacher()
    teacher[0].auto_model = PeftModel.from_pretrained(teacher[0].auto_model, str(folder)).merge_and_unload()
    return teacher
