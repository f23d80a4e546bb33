"""Training a table of word vectors: batches of sentences as sums of their words' rows, and any loss over these sums.

Only the rows of a batch's words have a gradient, which makes a step take milliseconds; the published code of the SWE
paper moves the whole table at each step. `refinement.py` and `translation.py` say what is trained for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.progress import Progress
from pellucid.store import read_tensors, write_tensors

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
        checkpoint: Path | None,
        about: Mapping[str, Any],
    ) -> None:
        """Take the table as it is at first, or as `checkpoint` has it.

        Args:
            table: float32 [words, d].
            loss: of the trained table and the numbers of a batch's sentences.
            settings: steps, learning rate, and when to evaluate and to stop.
            checkpoint: where the state is written at each evaluation; None keeps none.
            about: what else tells this run from others; a checkpoint of another run is not taken up.
        """
        import torch

        self.loss, self.settings, self.checkpoint = loss, settings, checkpoint
        first = hashlib.blake2b(np.ascontiguousarray(table, np.float32).tobytes(), digest_size=8).hexdigest()
        self._about = {"table": first, **about}
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
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

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
        if self.checkpoint is not None and self.step:
            self._save(self.checkpoint)

    def _save(self, path: Path) -> None:
        state = self.optimiser.state[self.words.weight]
        tensors = {"words": self.words.weight.detach().numpy(), "best": self.best}
        tensors.update({name: state[name].numpy() for name in ("exp_avg", "exp_avg_sq")})
        facts = {"step": self.step, "best_loss": self.best_loss, "without_gain": self.evaluations_without_gain}
        write_tensors(path, tensors, {name: repr(value) for name, value in {**facts, **self._origin()}.items()})

    def _origin(self) -> dict[str, Any]:
        return {**asdict(self.settings), "words": len(self.best), **self._about}

    def _resume(self, path: Path) -> None:
        """Take up the state at `path` if it is of this very run; otherwise start anew."""
        import torch

        tensors, facts = read_tensors(path)
        if any(facts.get(name) != repr(value) for name, value in self._origin().items()):
            return
        with torch.no_grad():
            self.words.weight.copy_(torch.from_numpy(np.array(tensors["words"])))
        moments = {name: torch.from_numpy(np.array(tensors[name])) for name in ("exp_avg", "exp_avg_sq")}
        self.step, self.best_loss = int(facts["step"]), float(facts["best_loss"])
        self.evaluations_without_gain = int(facts["without_gain"])
        self.best = np.array(tensors["best"])
        self.optimiser.state[self.words.weight] = {"step": self.step, **moments}
