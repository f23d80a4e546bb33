"""A lexicon model as sentence-transformers trains it: the module, its batches, its losses, and the trainer.

The loop, mixed precision, several GPUs and checkpoints are the trainer's own. Here is what it cannot know: how a text
is read, which texts of a row go into a batch, and what of the model a checkpoint holds.

The losses follow the LENS paper, section 3.3, except where its code differs: a text that belongs to a query is never a
negative of it because another row of the batch holds it too, negatives are not repeated if a row has few, a teacher's
scores count for every type of row, and which types have the batch's texts as negatives is the paper's rule
(`TrainingSet`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.errors import InputError, importing
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.lexicon.training_data import TextSet, TrainingRow, TrainingSet
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum
from pellucid.static.training.tuning import similarity_loss
from pellucid.transformer.attention import padding_id
from pellucid.transformer.backbone import WEIGHTS, padded, pooled
from pellucid.transformer.reading import Encoding, Reader

with importing("torch"):
    import torch
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers.base.losses.gradcache import CachedLossMixin
    from sentence_transformers.base.modules import InputModule
    from torch.nn import functional
    from transformers import TrainerCallback

_OUT = -1e9  # a logit that is left out; -inf would make 0 * inf of what the teacher leaves out as well


class LexiconModule(InputModule):  # type: ignore[misc, unused-ignore]
    """The whole lexicon model as one module: readings in, embeddings of length 1 out."""

    def __init__(self, model: LexiconEmbedder, adapted: Any) -> None:
        """Take the model, and its transformer with an adapter of peft in it."""
        super().__init__()
        self.adapted, self.pooling = adapted, model.settings.pooling
        self._states, self.tokenizer = model.backbone.states, model.backbone.tokenizer
        self.head = model.backbone.tensor(model.clusters.centroids)
        self.bias = None if model.bias is None else torch.tensor(model.bias, device=model.backbone.device)

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the embeddings [B, k] of a batch of readings; gradients reach the adapter."""
        hidden = self._states(features["input_ids"], features["attention_mask"])
        values, _ = pooled(hidden, features["own"], features["last"], self.head, self.bias, self.pooling)
        return {"sentence_embedding": functional.normalize(values.float(), dim=1)}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the adapter."""
        self.adapted.save_pretrained(output_path)


class Collator:
    """Makes batches: draws the texts of each row, reads them, and pads."""

    valid_label_columns = ("label",)

    def __init__(
        self, model: LexiconEmbedder, sets: Mapping[str, TrainingSet | TextSet], group_size: int, seed: int
    ) -> None:
        """Take the model that reads, and the sets by name."""
        self.sets, self.seed, self.epoch = sets, seed, 0
        self._groups = {name: s.group_size(group_size) for name, s in sets.items() if isinstance(s, TrainingSet)}
        self._padding = padding_id(model.backbone.model.config)
        self._reader = Reader(model.backbone.tokenizer, model.settings)

    def __call__(self, chosen: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the features of some rows of one set."""
        name = chosen[0]["dataset_name"]
        indices = [item["number"] for item in chosen]
        training_set = self.sets[name]
        if isinstance(training_set, TrainingSet):
            return {"dataset_name": name, **self._candidates(training_set, indices)}
        encodings = self._reader.read([training_set.texts[n] for n in indices], instructed=True)
        vectors = torch.tensor(np.asarray(training_set.vectors[indices], np.float32))
        return {"dataset_name": name, **self._features("text", encodings), "label": vectors}

    def _candidates(self, training_set: TrainingSet, indices: list[int]) -> dict[str, Any]:
        """Return queries [B], candidates [B * group], and as label the teacher's scores [B, group] of own ones."""
        rows, size = [training_set.rows[n] for n in indices], self._groups[training_set.name]
        groups = [self.draw(row, n, size) for row, n in zip(rows, indices, strict=True)]
        prompts = [row.prompt or None for row in rows]
        queries = [
            self._reader.read([row.query], instructed=True, instruction=prompt)[0]
            for row, prompt in zip(rows, prompts, strict=True)
        ]
        candidates: list[Encoding] = []
        labels = torch.full((len(rows), size), math.nan)
        for n, ((texts, scores), prompt) in enumerate(zip(groups, prompts, strict=True)):
            filled = [*texts, *[min(texts, key=len)] * (size - len(texts))]  # what fills a group is not counted
            instructed = training_set.candidates_instructed
            candidates += self._reader.read(filled, instructed=instructed, instruction=prompt if instructed else None)
            labels[n, : len(scores)] = torch.tensor(scores)
        return {
            **self._features("query", queries),
            "query_excluded": torch.tensor(excluded(rows, [texts for texts, _ in groups], size, training_set.in_batch)),
            **self._features("candidate", candidates),
            "label": labels,
        }

    def draw(self, row: TrainingRow, index: int, size: int) -> tuple[list[str], list[float]]:
        """Return one of the row's positives and some negatives, with scores; the same for one seed, epoch and row."""
        random = np.random.default_rng([self.seed, self.epoch, index])
        positive = int(random.integers(len(row.pos)))
        negatives = random.permutation(len(row.neg))[: size - 1].tolist()
        texts = [row.pos[positive], *(row.neg[n] for n in negatives)]
        if row.pos_scores is None or row.neg_scores is None:
            return texts, []
        return texts, [row.pos_scores[positive], *(row.neg_scores[n] for n in negatives)]

    def _features(self, column: str, encodings: Sequence[Encoding]) -> dict[str, torch.Tensor]:
        """Return the encodings as tensors, padded on the right, under names that the trainer takes for one column."""
        ids, mask, text_mask = padded(encodings, self._padding)
        last = torch.tensor([encoding.last for encoding in encodings])
        features = {"input_ids": ids, "attention_mask": mask, "own": text_mask, "last": last}
        return {f"{column}_{name}": part for name, part in features.items()}


def excluded(
    rows: Sequence[TrainingRow], groups: Sequence[Sequence[str]], size: int, in_batch: bool
) -> list[list[bool]]:
    """Return for each row which candidates [B * size] are not compared with its query.

    They are texts that belong to it, except the one that was drawn, those that only fill a group, and without
    `in_batch` those of other rows.
    """
    return [
        [
            n >= len(texts) or (owner != row and not in_batch) or ((owner, n) != (row, 0) and texts[n] in rows[row].pos)
            for owner, texts in enumerate(groups)
            for n in range(size)
        ]
        for row in range(len(rows))
    ]


def candidate_loss(
    queries: torch.Tensor,
    texts: torch.Tensor,
    excluded: torch.Tensor,
    scores: torch.Tensor,
    *,
    temperature: float,
    distillation: float,
) -> torch.Tensor:
    """Return InfoNCE over cosines of unit queries [B, k] and texts [N, k], plus `distillation` times the divergence.

        contrast      mean_i  -log softmax_n(cos(q_i, c_n) / temperature) at the row's positive
        distillation  mean_i  KL(softmax_j(score_ij) || softmax_j(cos(q_i, c_j) / temperature)) over own candidates

    The published code uses the teacher's cross-entropy, which differs by a constant and has the same gradient.

    Args:
        queries: one a row.
        texts: the candidates, of which row i owns i * G to i * G + G, its positive first.
        excluded: bool [B, N], candidates that a row is not compared with.
        scores: float32 [B, G], a teacher's of each row's own candidates; NaN without a teacher.
        temperature: what cosines are divided by.
        distillation: weight of the teacher.
    """
    group = scores.shape[1]
    cosines = (queries @ texts.t() / temperature).masked_fill(excluded, _OUT)
    own_columns = torch.arange(len(texts), device=queries.device).view(-1, group)
    loss = functional.cross_entropy(cosines, own_columns[:, 0])
    own_cosines, own_excluded = cosines.gather(1, own_columns), excluded.gather(1, own_columns)
    scored = (torch.isfinite(scores) | own_excluded).all(dim=1) & ((~own_excluded).sum(dim=1) > 1)
    if distillation and bool(scored.any()):
        teacher = scores.masked_fill(own_excluded, _OUT)[scored].log_softmax(dim=1)
        student = own_cosines[scored].log_softmax(dim=1)
        divergence = functional.kl_div(student, teacher, reduction="sum", log_target=True)
        loss = loss + distillation * divergence / len(queries)
    return loss


class CandidateLoss(CachedLossMixin, torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """`candidate_loss` over embeddings that are made at once, or `settings.chunk` at a time with cached gradients."""

    def __init__(self, model: Any, settings: Any) -> None:
        """Take the model and `TrainingSettings`."""
        super().__init__()
        self.model, self.settings, self.mini_batch_size = model, settings, settings.chunk or 0

    def forward(self, sentence_features: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch as the collator makes it."""
        columns = list(sentence_features)
        targets = labels, columns[0].get("excluded")
        if self.settings.chunk:
            return self.forward_cached(columns, targets)
        return self.calculate_loss([[self.model(column)["sentence_embedding"]] for column in columns], targets)

    def calculate_loss(
        self, reps: list[list[torch.Tensor]], labels: Any = None, *, with_backward: bool = False
    ) -> torch.Tensor:
        """Return the loss of embeddings, in float32 whatever autocast wants; a cosine over 0.02 needs it."""
        with torch.autocast(reps[0][0].device.type, enabled=False):
            loss = self.value([torch.cat(parts).float() for parts in reps], *labels)
        if with_backward:
            loss.backward()
            loss = loss.detach()
        return loss

    def value(self, embeddings: list[torch.Tensor], labels: torch.Tensor, excluded: Any) -> torch.Tensor:
        """Return `candidate_loss` of query and candidate embeddings."""
        (queries, texts), settings = embeddings, self.settings
        temperature, distillation = settings.temperature, settings.distillation
        return candidate_loss(queries, texts, excluded, labels, temperature=temperature, distillation=distillation)


class SimilarityLoss(CandidateLoss):
    """Trains the cosines among a batch of texts towards those of a teacher's vectors, which are the labels [B, d]."""

    def value(self, embeddings: list[torch.Tensor], labels: torch.Tensor, excluded: Any) -> torch.Tensor:
        """Return the cross-entropy between rows of the two cosine matrices, diagonals left out."""
        teacher = functional.normalize(labels.float(), dim=1)
        return similarity_loss(embeddings[0], teacher, self.settings.similarity_temperature)


class LexiconTrainer(SentenceTransformerTrainer):  # type: ignore[misc, unused-ignore]
    """The trainer of sentence-transformers, with checkpoints of what is trained and a stop at a broken loss."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Write no model card: it would describe a model that sentence-transformers can open."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the loss of a batch after checking that it is finite; no weight was changed by it yet."""
        name = inputs.get("dataset_name")
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        value = loss[0] if isinstance(loss, tuple) else loss
        if not bool(torch.isfinite(value)):
            raise InputError(
                f"the loss is {value.item()} at step {self.state.global_step + 1}, on a batch of {name!r}. "
                "Lower the learning rate, or train in float32 (bf16=False); checkpoints up to here are whole, and "
                "training resumes from the last one"
            )
        return loss

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        self.model[0].save(str(output_dir or self.args.output_dir))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(self.model[0].adapted, load_file(str(Path(checkpoint_path) / WEIGHTS)))


class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Passes the epoch to the collator, and checkpoints to the folder of the run."""

    def __init__(self, collator: Collator, work: WorkFolder) -> None:
        """Take what is kept up to date."""
        self.collator, self.work = collator, work

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let every epoch draw other texts of each row."""
        self.collator.epoch = int((state.epoch or 0) + 1e-6)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note that a checkpoint is whole, and which ones are deleted."""
        stored, new = self.work.metadata.get("checkpoints", {}), f"checkpoint-{state.global_step}"
        checkpoints = {name: digests for name, digests in stored.items() if (self.work.path / name).is_dir()}
        self.work.commit({"checkpoints": checkpoints | {new: checksums(self.work.path / new)}})


def checksums(folder: Path) -> dict[str, str]:
    """Return the checksums of the files of a folder, by name."""
    return {path.name: checksum(path) for path in sorted(folder.iterdir()) if path.is_file()}
