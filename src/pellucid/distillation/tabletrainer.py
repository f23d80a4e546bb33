"""Training a table of word vectors: batches of sentences as sums of their words' rows, and any loss over these sums.

Only the rows of a batch's words have a gradient, which makes a step take milliseconds; the published code of the SWE
paper moves the whole table at each step. `refinement.py` and `translation.py` say what is trained for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.progress import Progress
from pellucid.workfolder import WorkFolder

if TYPE_CHECKING:
    import torch

    from pellucid.distillation.refinement import Bags, RefinementSettings
    from pellucid.distillation.translation import TranslationSettings

_CLIP = 5.0  # of the gradient's norm, as in the paper's code

Batch = npt.NDArray[np.int64]
Loss = Callable[["torch.nn.EmbeddingBag", Batch], "torch.Tensor"]


def sums(words: torch.nn.EmbeddingBag, bags: Bags, sentences: Batch) -> torch.Tensor:
    """Return the sums of the word vectors of some sentences, [sentences, d]; a sum has the direction of the mean."""
    import torch

    chosen = bags.take(sentences)
    total: torch.Tensor = words(torch.from_numpy(chosen.rows), torch.from_numpy(chosen.offsets))
    return total


def scale_of(vectors: npt.NDArray[np.floating[Any]]) -> float:
    """Return the root mean square of some vectors, never 0, so that it can be divided by."""
    return max(float(np.sqrt(np.mean(np.square(vectors)))) if vectors.size else 0.0, 1e-12)


@contextmanager
def tuning_folder(
    work_dir: Path | None, settings: RefinementSettings | TranslationSettings, others: Mapping[str, Any] | None = None
) -> Iterator[WorkFolder | None]:
    """Open the folder in `work_dir` where a table's training keeps its state; other settings have another one."""
    if work_dir is None:
        yield None
        return
    asked = json.dumps({"settings": asdict(settings), **(others or {})}, sort_keys=True, default=str)
    with WorkFolder(work_dir / f"tuning-{hashlib.sha256(asked.encode()).hexdigest()[:12]}") as work:
        yield work


class TableTrainer:
    """The table, its optimiser, and the best table so far.

    Attributes:
        step: batches trained on, those before a resumption included.
        best: float32 [words, d], the table with the lowest loss on held-out sentences so far.
        best_loss: that loss.
        evaluations_without_gain: how many evaluations were not better, in a row.
    """

    def __init__(
        self,
        table: Vectors,
        loss: Loss,
        settings: RefinementSettings | TranslationSettings,
        work: WorkFolder | None,
        sentences: Mapping[str, Bags],
    ) -> None:
        """Take the table as it is at first, or as `work` has it.

        Args:
            table: float32 [words, d].
            loss: of the trained table and the numbers of a batch's sentences.
            settings: steps, learning rate, and when to evaluate and to stop.
            work: where the state is kept from evaluation to evaluation; None keeps none.
            sentences: what is trained on, by name.

        Raises:
            InputError: `work` holds the state of another table, other sentences or settings.
            ModelFolderError: the state in `work` is damaged.
        """
        import torch

        self.loss, self.settings, self.work = loss, settings, work
        self.words = torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(np.array(table, np.float32)),
            freeze=False,
            mode="sum",
            sparse=True,
            include_last_offset=True,
        )
        self.optimiser = torch.optim.SparseAdam(list(self.words.parameters()), lr=settings.learning_rate)
        self.step, self.evaluations_without_gain = 0, 0
        self.best, self.best_loss = np.array(table, np.float32), float("inf")
        if work is not None:
            bags = {f"sentences {name}": _hash(bag.rows, bag.offsets) for name, bag in sentences.items()}
            work.claim({**asdict(settings), "table": _hash(self.best), **bags})
            if "table" in work:
                self._resume(work)

    def run(self, draw: Callable[[int], Batch], held_out: Sequence[Batch], progress: Progress) -> Vectors:
        """Train to the last step, or until evaluations stop getting better, and return the best table.

        Args:
            draw: returns the batch of a numbered step; the same at every call, so that a resumed run sees the same.
            held_out: the batches that tables are compared on.
            progress: counts the steps.
        """
        progress.advance(self.step)
        if not self.step:
            self.evaluate(held_out)  # the table as it is may be the best
        while self.step < self.settings.steps and self.evaluations_without_gain < self.settings.patience:
            self.train_on(draw(self.step))
            if self.step % self.settings.evaluate_every == 0 or self.step == self.settings.steps:
                self.evaluate(held_out)
            progress.advance(1, note=f"loss {self.best_loss:.4f}")
        return self.best

    def train_on(self, batch: Batch) -> None:
        """Take one step; the learning rate falls linearly to zero."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.learning_rate * (1 - self.step / self.settings.steps)
        self.optimiser.zero_grad()
        self.loss(self.words, batch).backward()
        gradient = self.words.weight.grad.coalesce()
        norm = float(gradient.values().norm())
        if norm > _CLIP:
            gradient.values().mul_(_CLIP / norm)
        self.words.weight.grad = gradient
        self.optimiser.step()
        self.step += 1

    def evaluate(self, batches: Sequence[Batch]) -> None:
        """Measure the mean loss of held-out batches, keep the table if it is the best, and write the state down."""
        import torch

        with torch.no_grad():
            loss = float(np.mean([self.loss(self.words, batch).item() for batch in batches]))
        self.evaluations_without_gain += 1
        if loss < self.best_loss:
            self.best_loss, self.evaluations_without_gain = loss, 0
            self.best = self.words.weight.detach().numpy().copy()
        if self.work is not None and self.step:
            self._save(self.work)

    def _save(self, work: WorkFolder) -> None:
        state = self.optimiser.state[self.words.weight]
        tensors = {"words": self.words.weight.detach().numpy(), "best": self.best}
        tensors.update({name: state[name].numpy() for name in ("exp_avg", "exp_avg_sq")})
        work.save("table", tensors)
        facts = {"step": self.step, "best_loss": self.best_loss, "without_gain": self.evaluations_without_gain}
        work.commit(facts)

    def _resume(self, work: WorkFolder) -> None:
        """Take up the state in `work`."""
        import torch

        tensors = {name: torch.from_numpy(np.array(values)) for name, values in work.load("table").items()}
        with torch.no_grad():
            self.words.weight.copy_(tensors["words"])
        self.best = tensors["best"].numpy()
        self.step, self.best_loss = work.facts["step"], work.facts["best_loss"]
        self.evaluations_without_gain = work.facts["without_gain"]
        moments = {name: tensors[name] for name in ("exp_avg", "exp_avg_sq")}
        self.optimiser.state[self.words.weight] = {"step": self.step, **moments}


def _hash(*arrays: npt.NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
