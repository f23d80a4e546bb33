"""Training a lexicon model on pairs, hard negatives and a teacher's scores (LENS paper, sections 3.3 and 4.1).

Trained is a low-rank adapter of the transformer; the centroids stay as they are unless wanted otherwise. The loop is
sentence-transformers' trainer, the adapter peft's: mixed precision, gradient checkpointing and several devices
(`accelerate launch`, `torchrun`) work as there. Rows are in `data.py`, the loss in `loss.py`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import InputError
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.progress import Progress
from pellucid.training.adapter import adapted_model, trained_model
from pellucid.training.data import TrainingSet
from pellucid.training.run import claim, last_checkpoint
from pellucid.workfolder import WorkFolder

if TYPE_CHECKING:
    from pellucid.training.trainer import Collator, LexiconModule, LexiconTrainer, TextSet

TRAINED = "trained"
"""Where in the folder of a run the adapter is in the end, and centroids that were trained."""


@dataclass(frozen=True)
class TrainingSettings:
    """How a lexicon model is trained. The defaults are the paper's, but for the batch, which it has 512 of.

    Attributes:
        epochs: passes over the rows.
        max_steps: stop after so many batches; None for whole epochs.
        batch_size: rows in a batch, over all devices.
        group_size: candidates of a row in a batch, one of them positive.
        chunk: embed so many texts at once and cache gradients (GradCache), so that a large batch needs the memory of a
            small one; None embeds a batch at once.
        temperature: what cosines are divided by.
        distillation: weight of the teacher's scores; 0 leaves them aside.
        similarity_temperature: what cosines are divided by where texts without labels are drawn to a teacher's vectors.
        learning_rate: AdamW's, after the warmup; it falls linearly to zero.
        warmup_steps: batches over which it rises.
        rank: of the adapter.
        alpha: its scale, times 1 / rank.
        dropout: before the adapter.
        adapter: folder of an adapter that training goes on from, such as `TRAINED` of an earlier run with this rank and
            alpha; None begins with one that changes nothing.
        train_head: train the centroids as well.
        bf16: compute in bfloat16, as CPUs and GPUs of some years can.
        gradient_checkpointing: compute states twice instead of keeping them.
        save_steps: batches between two checkpoints.
        seed: of the adapter's first weights, the order of rows and the draw of texts.
    """

    epochs: float = 1
    max_steps: int | None = None
    batch_size: int = 64
    group_size: int = 8
    chunk: int | None = None
    temperature: float = 0.02
    distillation: float = 1.0
    similarity_temperature: float = 0.05
    learning_rate: float = 1e-4
    warmup_steps: int = 100
    rank: int = 32
    alpha: int = 64
    dropout: float = 0.1
    adapter: str | None = None
    train_head: bool = False
    bf16: bool = False
    gradient_checkpointing: bool = False
    save_steps: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: one is of no use; the message names it.
        """
        least: dict[str, float] = {"batch_size": 2, "group_size": 1, "rank": 1, "save_steps": 1, "warmup_steps": 0}
        least |= {"max_steps": 1, "chunk": 1, "dropout": 0, "distillation": 0, "seed": 0}
        above = ("epochs", "temperature", "similarity_temperature", "learning_rate", "alpha")
        for name, value in asdict(self).items():
            if value is None or isinstance(value, (bool, str)):
                continue
            low = least.get(name, 0)
            if not math.isfinite(value) or value < low or (name in above and value == 0):
                raise InputError(
                    f"{name} is {value!r:.40}; it must be {'above' if name in above else 'at least'} {low}"
                )


def train_lexicon(
    model: LexiconEmbedder,
    sets: Sequence[TrainingSet | TextSet],
    output_dir: str | Path,
    settings: TrainingSettings | None = None,
    *,
    show_progress_bar: bool = True,
) -> LexiconEmbedder:
    """Return a trained copy of `model`, which itself stays as it is.

    Checkpoints are written to `output_dir`; a run that was stopped goes on from the last one when it is started again
    with the same arguments, as if it had not been stopped. Rows, texts and vectors must then be the same, in their
    order, and the checkpoint undamaged.

    Args:
        model: a lexicon model that was not edited.
        sets: from `read_training_sets`, and `TextSet`s of texts with a teacher's vectors; a batch is of one set.
        output_dir: a folder for this run alone.
        settings: None takes the paper's.
        show_progress_bar: show the steps and the loss.

    Returns:
        The model with the adapter merged into a copy of its weights; saved with `backbone_name`, only the adapter
        and the centroids are written. Where rows have prompts its settings say that it takes instructions.

    Raises:
        InputError: the model was edited, a set is too small, the loss becomes NaN, or `output_dir` is another run's or
            of other rows, or a run is at work in it.
        ModelFolderError: the last checkpoint is damaged.
        MissingExtraError: sentence-transformers, peft, accelerate or datasets is not installed.
    """
    settings = settings or TrainingSettings()
    named = _checked(model, sets, settings)
    with run_folder(output_dir) as work:
        claim(work, model, named, asdict(settings))
        from pellucid.training.trainer import HEAD, Collator, LexiconModule

        collator = Collator(model, named, settings.group_size, settings.seed)
        with (
            adapted_model(model, settings) as adapted,
            Progress("training", unit="steps", enabled=show_progress_bar) as bar,
        ):
            train_module(LexiconModule(model, adapted, train_head=settings.train_head), collator, work, settings, bar)
    collator.warn_of_cut()
    trained = trained_model(model, work.path / TRAINED, HEAD if settings.train_head else None)
    if any(row.prompt for part in sets if isinstance(part, TrainingSet) for row in part.rows):
        return trained.with_settings(replace(trained.settings, takes_instruction=True))
    return trained


def run_folder(path: str | Path) -> WorkFolder:
    """Return the folder of a run; of several devices the first one locks and writes it."""
    return WorkFolder(path, alone=_devices() == 1 or os.environ.get("RANK") == "0")


def train_module(
    module: LexiconModule, collator: Collator, work: WorkFolder, settings: TrainingSettings, progress: Progress
) -> None:
    """Train a module to the end, from the last checkpoint in `work`, and write the result to `work.path / TRAINED`.

    `train_lexicon` does this; a module that pools otherwise can be trained on the same batches by it.
    """
    last = last_checkpoint(work)
    trainer = _trainer(module, collator, work, settings, progress)
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    if trainer.is_world_process_zero():
        module.save(str(work.path / TRAINED))
    trainer.accelerator.wait_for_everyone()


def _checked(
    model: LexiconEmbedder, sets: Sequence[TrainingSet | TextSet], settings: TrainingSettings
) -> dict[str, TrainingSet | TextSet]:
    """Return the sets by name, after checking that all can be trained on."""
    if model.mixing is not None:
        raise InputError("the model's dimensions were scaled or merged; train it first and edit what comes out")
    if not sets:
        raise InputError("there are no training sets")
    named = {part.name: part for part in sets}
    if len(named) < len(sets):
        raise InputError(f"two training sets have one name: {sorted(part.name for part in sets)}")
    small = [name for name, part in named.items() if len(part) < settings.batch_size]
    if small and _devices() > 1:
        raise InputError(
            f"on several devices every batch is full, and the set {small[0]!r} has {len(named[small[0]])} rows for "
            f"batch_size={settings.batch_size}"
        )
    odd = [name for name in named if "." in name or not name]
    if odd:
        raise InputError(f"a training set is called {odd[0]!r}; its name must not be empty or hold a dot")
    return named


def _devices() -> int:
    """Return how many processes train together, as torchrun and accelerate tell."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _trainer(
    module: Any, collator: Collator, work: WorkFolder, settings: TrainingSettings, progress: Progress
) -> LexiconTrainer:
    """Return the trainer, ready to run."""
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer
    from transformers import PrinterCallback, ProgressCallback

    from pellucid.training.trainer import LexiconTrainer, Watch

    sets = collator.sets
    student = SentenceTransformer(modules=[module], device=str(module.head.device))
    trainer = LexiconTrainer(
        model=student,
        args=_arguments(work.path, settings, on_cpu=module.head.device.type == "cpu"),
        train_dataset=DatasetDict({n: Dataset.from_dict({"number": range(len(part))}) for n, part in sets.items()}),
        loss={name: _loss(student, part, settings) for name, part in sets.items()},
        data_collator=collator,
        callbacks=[Watch(collator, progress, work)],
    )
    for noisy in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(noisy)
    return trainer


def _loss(student: Any, part: Any, settings: TrainingSettings) -> Any:
    from pellucid.training.loss import CandidateLoss, SimilarityLoss

    if not isinstance(part, TrainingSet):
        return SimilarityLoss(student, temperature=settings.similarity_temperature, chunk=settings.chunk)
    return CandidateLoss(
        student,
        temperature=settings.temperature,
        in_batch=part.in_batch,
        distillation=settings.distillation,
        chunk=settings.chunk,
    )


def _arguments(folder: Path, settings: TrainingSettings, *, on_cpu: bool) -> Any:
    """Return the trainer's arguments."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    several = _devices() > 1
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
        disable_tqdm=True,
        # One set a batch over all devices: else each would have another set's batch, and negatives of several.
        accelerator_config={"split_batches": True},
        dataloader_drop_last=several,
        dataloader_pin_memory=not on_cpu,
        ddp_find_unused_parameters=False if several else None,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # else one process would split each batch among all GPUs, and in-batch negatives with it
    return arguments
