"""Training a lexicon model on pairs, hard negatives and a teacher's scores (LENS paper, sections 3.3 and 4.1).

A low-rank adapter of the transformer is trained. The loop is sentence-transformers' trainer, the adapter peft's. Rows
are in `training_data.py`, the losses and batches in `trainer.py`.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from pellucid.errors import InputError, require
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.lexicon.training_data import TextSet, TrainingSet
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.store import checksum, translate_os_errors
from pellucid.process import ignored_warnings, kept_random_states
from pellucid.settings import Limits, Seed, Settings
from pellucid.transformer.backbone import merge_adapter, open_adapter

if TYPE_CHECKING:
    from pellucid.lexicon.trainer import Collator, LexiconModule

_FREE = ("save_steps",)  # settings that may differ when a run is resumed
TRAINED = "trained"
"""Where in the folder of a run the adapter is in the end."""


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """How a lexicon model is trained.

    The defaults are the paper's, warmup and dropout its code's; its batches have 512 rows in retrieval, 256 elsewhere.

    Attributes:
        epochs: passes over the rows.
        max_steps: stop after so many batches; None for whole epochs.
        batch_size: rows in a batch.
        group_size: candidates of a row in a batch, one of them positive.
        chunk: embed so many texts at once and cache gradients (GradCache), so that a large batch needs the memory of a
            small one; None embeds a batch at once.
        temperature: what cosines are divided by.
        distillation: weight of the teacher's scores; 0 ignores them.
        similarity_temperature: the same for texts without labels, trained against a teacher's vectors.
        learning_rate: AdamW's, after the warmup; it falls linearly to zero.
        warmup_steps: batches over which it rises.
        rank: of the adapter.
        alpha: its scale, times 1 / rank.
        dropout: before the adapter.
        adapter: folder of an adapter that training starts from, such as `TRAINED` of an earlier run; it has its own
            rank, alpha and dropout. None begins with one that changes nothing.
        bf16: compute in bfloat16, as CPUs and GPUs of some years can.
        save_steps: batches between two checkpoints.
        seed: of the adapter's first weights, the order of rows and the draw of texts.
    """

    epochs: Annotated[float, Limits(above=0)] = 1
    max_steps: Annotated[int | None, Limits(1)] = None
    batch_size: Annotated[int, Limits(2)] = 64
    group_size: Annotated[int, Limits(1)] = 8
    chunk: Annotated[int | None, Limits(1)] = None
    temperature: Annotated[float, Limits(above=0)] = 0.02
    distillation: Annotated[float, Limits(0)] = 1.0
    similarity_temperature: Annotated[float, Limits(above=0)] = 0.05
    learning_rate: Annotated[float, Limits(above=0)] = 1e-4
    warmup_steps: Annotated[int, Limits(0)] = 100
    rank: Annotated[int, Limits(1)] = 32
    alpha: Annotated[float, Limits(above=0)] = 64
    dropout: Annotated[float, Limits(0)] = 0.1
    adapter: str | None = None
    bf16: bool = False
    save_steps: Annotated[int, Limits(1)] = 500
    seed: Seed = 0


@kept_random_states()
def train_lexicon(
    model: LexiconEmbedder,
    sets: Sequence[TrainingSet | TextSet],
    output_dir: str | Path,
    settings: TrainingSettings | None = None,
    *,
    show_progress_bar: bool = True,
) -> LexiconEmbedder:
    """Return a trained copy of `model`, which itself stays as it is.

    Checkpoints are written to `output_dir`; repeat the call with the same arguments to resume an interrupted run
    from the last one, as if it had not been stopped. Rows, texts and vectors must then be the same, in their
    order, and the checkpoint undamaged.

    Args:
        model: a lexicon model that was not edited.
        sets: from `read_training_sets`, and `TextSet`s of texts with a teacher's vectors; a batch is of one set.
        output_dir: a folder for this run only.
        settings: None takes the paper's.
        show_progress_bar: show the steps and the loss.

    Returns:
        The model with the adapter merged into a copy of its weights; saved with `backbone_name`, only the adapter
        and the centroids are written.

    Raises:
        InputError: the model was edited or has an adapter, a set is too small, the loss becomes NaN, or `output_dir`
            is another run's or of other rows, or a run is at work in it.
        ModelFolderError: the last checkpoint is damaged.
        MissingExtraError: sentence-transformers, peft, accelerate or datasets is not installed.
    """
    settings = settings or TrainingSettings()
    named = _checked(model, sets, settings)
    with WorkFolder(output_dir) as work:
        bind_run(work, model, named, asdict(settings))
        from pellucid.lexicon.trainer import Collator, LexiconModule

        collator = Collator(model, named, settings.group_size, settings.seed)
        module = LexiconModule(*adapted_model(model, settings))
        train_module(module, collator, work, settings, show_progress_bar)
        del module  # its copy of the transformer is as large as the one made next
    return trained_model(model, work.path / TRAINED)


def train_module(
    module: LexiconModule, collator: Collator, work: WorkFolder, settings: TrainingSettings, show_progress_bar: bool
) -> None:
    """Train a module to the end, from the last checkpoint in `work`, and write the result to `work.path / TRAINED`."""
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer
    from transformers import PrinterCallback

    from pellucid.lexicon.trainer import CandidateLoss, LexiconTrainer, SimilarityLoss, Watch, checksums

    checkpoints = work.metadata.get("checkpoints", {})  # without one that was being written when the run stopped
    last = max(checkpoints, key=lambda name: int(name.removeprefix("checkpoint-")), default="")
    done = work.metadata.get(TRAINED) if (work.path / TRAINED).is_dir() else None
    for folder, digests in ((last, checkpoints.get(last)), (TRAINED, done)):
        for name, digest in (digests or {}).items():
            work.verify(work.path / folder / name, digest)
    if done:
        return  # the trainer would take one more step
    sets = collator.sets
    student = SentenceTransformer(modules=[module], device=str(module.head.device))
    trainer = LexiconTrainer(
        model=student,
        args=_arguments(
            work.path, settings, on_cpu=module.head.device.type == "cpu", show_progress_bar=show_progress_bar
        ),
        train_dataset=DatasetDict({n: Dataset.from_dict({"number": range(len(part))}) for n, part in sets.items()}),
        loss={
            name: (CandidateLoss if isinstance(part, TrainingSet) else SimilarityLoss)(student, settings)
            for name, part in sets.items()
        },
        data_collator=collator,
        callbacks=[Watch(collator, work)],
    )
    trainer.remove_callback(PrinterCallback)
    with translate_os_errors(work.path):
        trainer.train(resume_from_checkpoint=str(work.path / last) if last else None)
        module.save(str(work.path / TRAINED))
    work.commit({TRAINED: checksums(work.path / TRAINED)})


def _checked(
    model: LexiconEmbedder, sets: Sequence[TrainingSet | TextSet], settings: TrainingSettings
) -> dict[str, TrainingSet | TextSet]:
    """Return the sets by name, after checking that all can be trained on."""
    if model.mixing is not None:
        raise InputError("the model's dimensions were scaled or merged; train it first and edit what comes out")
    if model.backbone.adapter is not None:
        raise InputError(
            "the model has an adapter already, and a model is saved with one at most. To train on, give the settings "
            "adapter='run/trained' and the model before its training; or save the model without backbone_name, "
            "which merges the adapter, and train what you load"
        )
    if not sets:
        raise InputError("there are no training sets")
    named = {part.name: part for part in sets}
    if len(named) < len(sets):
        raise InputError(f"two training sets have one name: {sorted(part.name for part in sets)}")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("training runs in one process, on one device; start it without torchrun or accelerate launch")
    odd = [name for name in named if "." in name or not name]
    if odd:
        raise InputError(f"a training set is called {odd[0]!r}; its name must not be empty or hold a dot")
    return named


def _arguments(folder: Path, settings: TrainingSettings, *, on_cpu: bool, show_progress_bar: bool) -> Any:
    """Return the trainer's arguments."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        lr_scheduler_type="linear",
        weight_decay=0.0,
        bf16=settings.bf16,
        use_cpu=on_cpu,
        save_strategy="steps",
        save_steps=settings.save_steps,
        save_total_limit=2,
        logging_steps=max(1, min(50, settings.save_steps)),
        logging_nan_inf_filter=False,
        seed=settings.seed,
        report_to="none",
        disable_tqdm=not show_progress_bar,
        dataloader_pin_memory=not on_cpu,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # else one process would split each batch among all GPUs, and in-batch negatives with it
    return arguments


def adapted_model(model: LexiconEmbedder, settings: TrainingSettings) -> tuple[LexiconEmbedder, Any]:
    """Return a copy of the model, and its transformer with an adapter in all linear layers."""
    require("peft")
    import torch
    from peft import LoraConfig, get_peft_model

    transformer = copy.deepcopy(model.backbone.model)
    unused = any("pooler" in name.split(".") for name, _ in transformer.named_modules())
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        exclude_modules=r"(.*\.)?pooler\..*" if unused else None,  # no state comes from it
    )
    torch.manual_seed(settings.seed)
    with ignored_warnings(FutureWarning):  # of peft's use of names that transformers will change
        if settings.adapter is None:
            adapted = get_peft_model(transformer, config)
        else:
            adapted = open_adapter(transformer, Path(settings.adapter), is_trainable=True)[0]
    copied = LexiconEmbedder(
        replace(model.backbone, model=transformer), model.clusters, model.settings, bias=model.bias
    )
    return copied, adapted


def trained_model(model: LexiconEmbedder, folder: Path) -> LexiconEmbedder:
    """Return a copy of the model with the adapter in `folder`."""
    merged, adapter = merge_adapter(copy.deepcopy(model.backbone.model), folder)
    backbone = replace(model.backbone, model=merged.eval(), adapter=adapter)
    return LexiconEmbedder(backbone, model.clusters, model.settings, bias=model.bias)


def bind_run(work: WorkFolder, model: LexiconEmbedder, sets: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Record in the folder what the run was asked for, after checking that it is not another run's."""
    start = settings["adapter"]
    files = [] if start is None else sorted(Path(start).glob("adapter_*"))
    work.bind_settings(
        {
            **{name: value for name, value in settings.items() if name not in _FREE},
            "adapter": start and {path.name: checksum(path) for path in files if path.is_file()},
            **{f"the training set {name!r}": _digest(part) for name, part in sets.items()},
            "model": {
                "clusters": model.get_embedding_dimension(),
                "pooling": model.settings.pooling,
                "fingerprint": [round(float(value), 4) for value in model.backbone.fingerprint()[:8]],
            },
        }
    )


def _digest(part: TrainingSet | TextSet) -> str:
    """Return a hash of the rows of a set, or of its texts and their vectors."""
    digest = hashlib.sha256()
    for row in part.rows if isinstance(part, TrainingSet) else part.texts:
        digest.update(repr(row).encode("utf-8", "backslashreplace"))
    if not isinstance(part, TrainingSet):
        digest.update(np.ascontiguousarray(part.vectors, np.float32).tobytes())
    return digest.hexdigest()
