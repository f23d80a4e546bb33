"""A lexicon model as sentence-transformers trains it: the module, its batches, its losses, and the trainer.

The loop, mixed precision, gradient checkpointing, several GPUs and checkpoints are the trainer's own. Here is what it
cannot know: how a text is read, which texts of a row go into a batch, and what of the model a checkpoint holds.

The losses follow the LENS paper, section 3.3, except where its code differs: a text that belongs to a query is never a
negative of it because another row of the batch holds it too, negatives are not repeated if a row has few, a teacher's
scores count for every type of row, and which types have the batch's texts as negatives is the paper's rule
(`TrainingSet`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.errors import InputError, missing_extra, warn
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.lexicon.training_data import TrainingRow, TrainingSet
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum, translate_os_errors
from pellucid.progress import Progress
from pellucid.static.training.tuning import similarity_loss
from pellucid.transformer.attention import padding_id
from pellucid.transformer.backbone import WEIGHTS, last_pooled, padded, pooled
from pellucid.transformer.reading import Encoding, Reader

try:
    import torch
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers.base.losses.gradcache import CachedLossMixin
    from sentence_transformers.base.modules import InputModule
    from torch.nn import functional
    from transformers import TrainerCallback
except ImportError as error:
    raise missing_extra(error.name or "torch", "torch") from error

_OUT = -1e9  # a logit that is left out; -inf would make 0 * inf of what the teacher leaves out as well
HEAD = "head.safetensors"
"""Where a checkpoint keeps centroids that are trained."""


class TextSet:
    """Texts without labels, and a teacher's vectors of them."""

    def __init__(self, name: str, texts: Sequence[str], vectors: Any) -> None:
        """Take at least two texts and as many vectors, float [n, d]."""
        if len(texts) < 2 or len(vectors) != len(texts):
            raise InputError(f"the set {name!r} has {len(texts)} texts and {len(vectors)} vectors; give one of each")
        self.name, self.texts, self.vectors = name, texts, vectors

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.texts)


class LexiconModule(InputModule):  # type: ignore[misc, unused-ignore]
    """The whole lexicon model as one module: readings in, embeddings of length 1 out."""

    def __init__(self, model: LexiconEmbedder, adapted: Any, *, train_head: bool) -> None:
        """Take the model, and its transformer with an adapter of peft in it."""
        super().__init__()
        self.adapted, self.pooling = adapted, model.settings.pooling
        self._states, self.tokenizer = model.backbone.states, model.backbone.tokenizer
        head = torch.tensor(model.clusters.centroids, device=model.backbone.device)
        self.head = torch.nn.Parameter(head if train_head else head.to(model.backbone.model.dtype), train_head)
        self.bias = None if model.bias is None else torch.tensor(model.bias, device=model.backbone.device)

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the embeddings [B, k] of a batch of readings; gradients reach adapter and head."""
        hidden = self._states(features["input_ids"], features["attention_mask"])
        if self.pooling == "last":
            values = last_pooled(hidden, features["last"], self.head, self.bias)
        else:
            values, _ = pooled(hidden, features["own"], self.head, self.bias, self.pooling)
        return {"sentence_embedding": functional.normalize(values.float(), dim=1)}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the adapter, and the head if it is trained."""
        from safetensors.torch import save_file

        self.adapted.save_pretrained(output_path)
        if self.head.requires_grad:
            save_file({"head": self.head.detach().contiguous()}, str(Path(output_path) / HEAD))

    def restore(self, folder: Path) -> None:
        """Load what `save` wrote."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(self.adapted, load_file(str(folder / WEIGHTS)))
        if self.head.requires_grad:
            with torch.no_grad():
                self.head.copy_(load_file(str(folder / HEAD))["head"])


class _Group(NamedTuple):
    """The texts drawn of a row: the first `used` ones count, their positive first."""

    texts: list[str]
    scores: list[float]
    used: int


class Collator:
    """Makes batches: draws the texts of each row, reads them, and pads."""

    valid_label_columns = ("label",)

    def __init__(
        self, model: LexiconEmbedder, sets: Mapping[str, TrainingSet | TextSet], group_size: int, seed: int
    ) -> None:
        """Take the model that reads, and the sets by name."""
        self.sets, self.seed, self.epoch = sets, seed, 0
        self._n_read, self._n_cut = 0, 0
        self._groups = {name: s.group_size(group_size) for name, s in sets.items() if isinstance(s, TrainingSet)}
        self._padding = padding_id(model.backbone.model.config)
        self._reader = Reader(model.backbone.tokenizer, model.settings)

    def __call__(self, chosen: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the features of some rows of one set."""
        name = chosen[0]["dataset_name"]
        indices = [item["number"] for item in chosen]
        training_set = self.sets[name]
        make = self._candidates if isinstance(training_set, TrainingSet) else self._texts
        return {"dataset_name": name, **make(training_set, indices)}

    def _texts(self, texts: Any, indices: list[int]) -> dict[str, Any]:
        vectors = torch.tensor(np.asarray(texts.vectors[indices], np.float32))
        encodings = self._reader.read([texts.texts[n] for n in indices], instructed=True)
        return {**self._features("text", encodings), "label": vectors}

    def _candidates(self, rows: Any, indices: list[int]) -> dict[str, Any]:
        chosen = [rows.rows[n] for n in indices]
        size = self._groups[rows.name]
        groups = [self._draw(row, n, size) for row, n in zip(chosen, indices, strict=True)]
        texts = [text for group in groups for text in group.texts]
        if rows.candidates_instructed:
            candidate_encodings = self._read(texts, [row.prompt for row in chosen for _ in range(size)])
        else:
            candidate_encodings = self._reader.read(texts, instructed=False)
        positives = [torch.tensor([_text_hash(text) for text in row.pos]) for row in chosen]
        max_positives = max(map(len, positives))
        return {
            **self._features("query", self._read([row.query for row in chosen], [row.prompt for row in chosen])),
            "query_positives": torch.stack([torch.cat([p, p[:1].expand(max_positives - len(p))]) for p in positives]),
            **self._features("candidate", candidate_encodings),
            "candidate_number": torch.tensor([_text_hash(text) for text in texts]),
            "candidate_filler": torch.tensor([n >= group.used for group in groups for n in range(size)]),
            "label": torch.tensor([group.scores for group in groups], dtype=torch.float32),
        }

    def _draw(self, row: TrainingRow, index: int, size: int) -> _Group:
        """Return one of the row's positives and some of its negatives, the same for the same seed, epoch and row."""
        random = np.random.default_rng([self.seed, self.epoch, index])
        positive = int(random.integers(len(row.pos)))
        negatives = random.permutation(len(row.neg))[: size - 1].tolist()
        texts = [row.pos[positive], *(row.neg[n] for n in negatives)]
        scores = [math.nan] * size
        if row.pos_scores is not None and row.neg_scores is not None:
            scores[: len(texts)] = row.pos_scores[positive], *(row.neg_scores[n] for n in negatives)
        filler = min(texts, key=len)  # is read and not counted
        return _Group([*texts, *[filler] * (size - len(texts))], scores, len(texts))

    def _read(self, texts: Sequence[str], prompts: Sequence[str]) -> list[Encoding]:
        """Return the encodings of texts with their prompts; without one, with the model's own instruction."""
        encoding_by_index: dict[int, Encoding] = {}
        for prompt in dict.fromkeys(prompts):
            indices = [n for n, text_prompt in enumerate(prompts) if text_prompt == prompt]
            encodings = self._reader.read([texts[n] for n in indices], instructed=True, instruction=prompt or None)
            encoding_by_index.update(zip(indices, encodings, strict=True))
        return [encoding_by_index[n] for n in range(len(texts))]

    def _features(self, column: str, encodings: Sequence[Encoding]) -> dict[str, torch.Tensor]:
        """Return the encodings as tensors, padded on the right, under names that the trainer takes for one column."""
        self._n_read += len(encodings)
        self._n_cut += sum(encoding.cut > 0 for encoding in encodings)
        ids, mask, text_mask = padded(encodings, self._padding)
        last = torch.tensor([encoding.last for encoding in encodings])
        features = {"input_ids": ids, "attention_mask": mask, "own": text_mask, "last": last}
        return {f"{column}_{name}": part for name, part in features.items()}

    def warn_of_cut(self) -> None:
        """Warn of texts that were longer than the model reads."""
        if self._n_cut:
            warn(
                f"{self._n_cut} of {self._n_read} texts read in training are longer than the "
                f"{self._reader.max_length} tokens the model reads; their ends were left out"
            )


def _text_hash(text: str) -> int:
    """Return a hash of 63 bits of a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


class InBatchCandidates(NamedTuple):
    """What is known of a batch's candidates, of which row i owns i * G to i * G + G, its positive first."""

    excluded: torch.Tensor  # bool [B, N], candidates that belong to a row or only fill its group: not its negatives
    scores: torch.Tensor  # float32 [B, G], a teacher's of each row's own candidates; NaN without a teacher


def excluded_candidates(
    texts: torch.Tensor, fillers: torch.Tensor, positives: torch.Tensor, own_positive: torch.Tensor
) -> torch.Tensor:
    """Return bool [B, N]: texts [N] of a row (positives [B, P]) or fillers, without its `own_positive` [B]."""
    excluded = torch.stack([torch.isin(texts, row) for row in positives]) | fillers
    return excluded.scatter(1, own_positive[:, None], False)


def candidate_loss(
    queries: torch.Tensor,
    texts: torch.Tensor,
    candidates: InBatchCandidates,
    *,
    temperature: float,
    in_batch: bool,
    distillation: float,
) -> torch.Tensor:
    """Return InfoNCE over cosines of unit queries [B, k] and texts [N, k], plus `distillation` times the divergence.

        contrast      mean_i  -log softmax_n(cos(q_i, c_n) / temperature) at the row's positive
        distillation  mean_i  KL(softmax_j(score_ij) || softmax_j(cos(q_i, c_j) / temperature)) over own candidates

    The published code uses the teacher's cross-entropy, which differs by a constant and has the same gradient. Without
    `in_batch` only own candidates count.
    """
    group = candidates.scores.shape[1]
    cosines = queries @ texts.t() / temperature
    cosines = cosines.masked_fill(candidates.excluded, _OUT)
    rows = torch.arange(len(queries), device=queries.device)
    own_columns = rows[:, None] * group + torch.arange(group, device=queries.device)
    own_cosines = cosines.gather(1, own_columns)
    if in_batch:
        loss = functional.cross_entropy(cosines, own_columns[:, 0])
    else:
        loss = functional.cross_entropy(own_cosines, torch.zeros_like(rows))
    excluded = candidates.excluded.gather(1, own_columns)
    scored = (torch.isfinite(candidates.scores) | excluded).all(dim=1) & ((~excluded).sum(dim=1) > 1)
    if distillation and bool(scored.any()):
        teacher = candidates.scores.masked_fill(excluded, _OUT)[scored].log_softmax(dim=1)
        student = own_cosines[scored].log_softmax(dim=1)
        loss = loss + distillation * functional.kl_div(student, teacher, reduction="sum", log_target=True) / len(
            queries
        )
    return loss


class _Cached(CachedLossMixin, torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A loss over embeddings that are made at once, or `settings.chunk` texts at a time with cached gradients."""

    def __init__(self, model: Any, settings: Any, *, in_batch: bool = True) -> None:
        """Take the model, `TrainingSettings`, and whether other rows' texts are negatives."""
        super().__init__()
        self.model, self.settings, self.in_batch = model, settings, in_batch
        self.uses_gradient_cache = settings.chunk is not None
        self.mini_batch_size = settings.chunk or 0

    def forward(self, sentence_features: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch as the collator makes it."""
        columns = list(sentence_features)
        targets = self.targets(columns, labels)
        if self.uses_gradient_cache:
            loss: torch.Tensor = self.forward_cached(columns, targets)
            return loss
        return self.calculate_loss([[self.model(column)["sentence_embedding"]] for column in columns], targets)

    def targets(self, columns: list[dict[str, Any]], labels: torch.Tensor) -> Any:
        """Return what the loss depends on besides the embeddings."""
        return labels

    def calculate_loss(
        self, reps: list[list[torch.Tensor]], labels: Any = None, *, with_backward: bool = False
    ) -> torch.Tensor:
        """Return the loss of embeddings, in float32 whatever autocast wants; a cosine over 0.02 needs it."""
        with torch.autocast(reps[0][0].device.type, enabled=False):
            loss = self.value([torch.cat(parts).float() for parts in reps], labels)
        if with_backward:
            loss.backward()
            loss = loss.detach()
        return loss

    def value(self, embeddings: list[torch.Tensor], targets: Any) -> torch.Tensor:
        """Return the loss of whole columns of embeddings."""
        raise NotImplementedError


class CandidateLoss(_Cached):
    """`candidate_loss` for the trainer of sentence-transformers."""

    def targets(self, columns: list[dict[str, Any]], labels: torch.Tensor) -> Any:
        """Return the teacher's scores, and what tells which candidates are negatives."""
        queries, texts = columns
        return labels, queries["positives"], texts["number"], texts["filler"]

    def value(self, embeddings: list[torch.Tensor], targets: Any) -> torch.Tensor:
        """Return `candidate_loss` of query and candidate embeddings."""
        (queries, texts), (scores, positives, numbers, fillers) = embeddings, targets
        own_positive = torch.arange(len(queries), device=queries.device) * scores.shape[1]
        return candidate_loss(
            queries,
            texts,
            InBatchCandidates(excluded_candidates(numbers, fillers, positives, own_positive), scores),
            temperature=self.settings.temperature,
            in_batch=self.in_batch,
            distillation=self.settings.distillation,
        )


class SimilarityLoss(_Cached):
    """Trains the cosines among a batch of texts towards those of a teacher's vectors, which are the labels [B, d]."""

    def value(self, embeddings: list[torch.Tensor], targets: Any) -> torch.Tensor:
        """Return the cross-entropy between rows of the two cosine matrices, diagonals left out."""
        teacher = functional.normalize(targets.float(), dim=1)
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
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self.model[0].save(str(folder))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Write a checkpoint; an error says where there was no space for it."""
        with translate_os_errors(Path(self.args.output_dir)):
            super()._save_checkpoint(*args, **kwargs)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        self.model[0].restore(Path(checkpoint_path))


class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Passes the epoch to the collator, the loss to the progress bar, and checkpoints to the folder of the run."""

    def __init__(self, collator: Collator, progress: Progress, work: WorkFolder) -> None:
        """Take what is kept up to date."""
        self.collator, self.progress, self.work, self.note = collator, progress, work, ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the steps of an earlier run as done."""
        self.progress.total = state.max_steps
        self.progress.advance(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let every epoch draw other texts of each row."""
        self.collator.epoch = int((state.epoch or 0) + 1e-6)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the step."""
        self.progress.advance(1, note=self.note)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note that a checkpoint is whole, and which ones are deleted."""
        stored, new = self.work.metadata.get("checkpoints", {}), f"checkpoint-{state.global_step}"
        checkpoints = {name: digests for name, digests in stored.items() if (self.work.path / name).is_dir()}
        self.work.commit({"checkpoints": checkpoints | {new: checksums(self.work.path / new)}})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Keep the loss to show."""
        if logs and "loss" in logs:
            self.note = f"loss {float(logs['loss']):.4f}"


def checksums(folder: Path) -> dict[str, str]:
    """Return the checksums of the files of a folder, by name."""
    return {path.name: checksum(path) for path in sorted(folder.iterdir()) if path.is_file()}
