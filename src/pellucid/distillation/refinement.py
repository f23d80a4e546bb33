"""Refining word vectors against a teacher: distillation of in-batch similarities (SWE paper, section 3.3, eq. 2-3).

For a batch of sentences the student's cosine matrix is drawn to the teacher's: the cross-entropy of row-wise softmaxes
at a temperature, the diagonal left out. The teacher's vectors come from the extraction pass, so no sentence is encoded
again, and only the rows of the batch's words have a gradient: minutes on two cores.

Beyond the paper, `neighbours` fills a batch with groups of sentences that the teacher finds alike. Among random
sentences almost every similarity is near zero, and what tells near sentences apart is hardly ever seen.

A run that was stopped goes on from its last evaluation: the batches of a step depend on the seed and the step alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.distillation.tabletrainer import TableTrainer, scale_of, sums
from pellucid.errors import CorpusError
from pellucid.progress import Progress
from pellucid.words import Vocabulary
from pellucid.workfolder import WorkFolder

if TYPE_CHECKING:
    import torch

_DEV_BATCH = 512  # sentences in a batch of the loss that is watched
_DEV_SHARE = 0.02


@dataclass(frozen=True)
class RefinementSettings:
    """How the vectors are refined. The defaults are what the bundled model was made with.

    Attributes:
        steps: batches at most (the paper: 30,000); 0 leaves the vectors as they are, its "section 3.2" ablation.
        batch_size: sentences in a batch (the paper: 128).
        temperature: what cosines are divided by before the softmax (the paper: 0.05).
        learning_rate: Adam's, at the first step; it falls linearly to zero. In units of the table's root mean square,
            so that it does not depend on the teacher's scale.
        neighbours: sentences of one neighbourhood put into a batch together; 1 draws at random as the paper does.
        evaluate_every: steps between two evaluations on held-out sentences.
        patience: stop after this many evaluations without a better one.
        seed: of the held-out sentences and the batches.
    """

    steps: int = 12_000
    batch_size: int = 512
    temperature: float = 0.1
    learning_rate: float = 0.01
    neighbours: int = 32
    evaluate_every: int = 1_000
    patience: int = 5
    seed: int = 0


@dataclass(frozen=True)
class Bags:
    """Sentences as rows of the table: sentence i is `rows[offsets[i] : offsets[i + 1]]`."""

    rows: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[str], vocabulary: Vocabulary) -> Bags:
        """Look every word of `sentences` up, by the rule used when encoding; unknown words are left out."""
        row_of: dict[str, int] = {}
        rows: list[int] = []
        offsets = [0]
        for sentence in sentences:
            for word in vocabulary.split(sentence):
                row = row_of.get(word.text)
                if row is None:
                    row = row_of[word.text] = vocabulary.row(word.text)
                if row >= 0:
                    rows.append(row)
            offsets.append(len(rows))
        return cls(np.array(rows, np.int64), np.array(offsets, np.int64))

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.offsets) - 1

    def take(self, sentences: npt.NDArray[np.int64]) -> Bags:
        """Return the bags of the numbered `sentences`."""
        sizes = self.offsets[sentences + 1] - self.offsets[sentences]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        shift = np.repeat(self.offsets[sentences] - offsets[:-1], sizes)
        return Bags(self.rows[shift + np.arange(offsets[-1])], offsets)

    def means(self, vectors: Vectors) -> Vectors:
        """Return the mean vector of each sentence, float32 [sentences, dimension]; zero for an empty one."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(self.rows), np.float32)
        counts = csr_matrix((ones, self.rows, self.offsets), shape=(len(self), len(vectors)))
        sizes = np.maximum(np.diff(self.offsets), 1)[:, None].astype(np.float32)
        return np.asarray(counts @ vectors, dtype=np.float32) / sizes


def refine(
    vectors: Vectors,
    bags: Bags,
    teacher_vectors: npt.NDArray[np.float16],
    settings: RefinementSettings,
    *,
    work: WorkFolder | None = None,
    show_progress_bar: bool = True,
) -> Vectors:
    """Return `vectors` [words, dimension] refined on sentences `bags`, with unit `teacher_vectors` [sentences, d].

    The best vectors by the loss on held-out sentences are returned. Their scale is changed to a root mean square of 1,
    which no cosine sees.

    Raises:
        CorpusError: fewer than two batches of sentences hold two known words.
        InputError: `work` holds the state of other vectors, sentences or settings.
        ModelFolderError: the state in `work` is damaged.
    """
    import torch

    usable = np.flatnonzero(np.diff(bags.offsets) >= 2)
    if len(usable) < 2 * settings.batch_size:
        raise CorpusError(
            f"{len(usable)} sentences hold two known words; refinement needs at least {2 * settings.batch_size} "
            "(two batches). Give more text, or train with smaller batches"
        )
    table = vectors / scale_of(vectors)
    order = np.random.default_rng(settings.seed).permutation(usable)
    held_out = max(2, min(int(len(order) * _DEV_SHARE), 20 * _DEV_BATCH))
    dev, train = np.sort(order[:held_out]), np.sort(order[held_out:])
    teacher = torch.from_numpy(np.ascontiguousarray(teacher_vectors))

    def loss(words: torch.nn.EmbeddingBag, sentences: npt.NDArray[np.int64]) -> torch.Tensor:
        return similarity_loss(sums(words, bags, sentences), teacher[sentences].float(), settings.temperature)

    trainer = TableTrainer(table, loss, settings, work, {"trained on": bags})
    batches = np.array_split(dev, max(1, len(dev) // _DEV_BATCH))
    groups = _neighbourhoods(teacher_vectors, train, settings)
    with Progress("refining", total=settings.steps, unit="steps", enabled=show_progress_bar) as progress:
        return trainer.run(lambda step: _draw(groups, train, settings, step), batches, progress)


def similarity_loss(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Cross-entropy between the rows of two in-batch cosine matrices (equation 2), diagonal left out.

    Args:
        student: sums of word vectors [B, d]; a sum has the direction of the mean.
        teacher: the teacher's vectors [B, D], each of length 1.
        temperature: what cosines are divided by.
    """
    import torch.nn.functional as F

    unit = F.normalize(student, dim=1)
    cosines, targets = unit @ unit.T / temperature, teacher @ teacher.T / temperature
    # Not -inf: 0 * inf is NaN in the backward pass. exp(-1e4) is exactly 0 in float32.
    cosines, targets = cosines.fill_diagonal_(-1e4), targets.fill_diagonal_(-1e4)
    return F.cross_entropy(cosines, F.softmax(targets, dim=1))


def _neighbourhoods(
    teacher_vectors: npt.NDArray[np.float16], train: npt.NDArray[np.int64], settings: RefinementSettings
) -> list[npt.NDArray[np.int64]]:
    """Split the training sentences into neighbourhoods of about 200 by the teacher's vectors."""
    if settings.neighbours <= 1:
        return []
    from sklearn.cluster import MiniBatchKMeans

    count = max(1, len(train) // 200)
    generator = np.random.default_rng(settings.seed)
    sample = generator.choice(train, min(len(train), 50 * count, 100_000), replace=False)
    means = MiniBatchKMeans(count, batch_size=4096, n_init=1, max_iter=5, random_state=settings.seed)
    means.fit(teacher_vectors[sample].astype(np.float32))
    parts = np.array_split(train, max(1, len(train) // 16_384))
    labels = np.concatenate([means.predict(teacher_vectors[part].astype(np.float32)) for part in parts])
    order = np.argsort(labels, kind="stable")
    groups = np.split(train[order], np.cumsum(np.bincount(labels, minlength=count))[:-1])
    return [group for group in groups if len(group) >= settings.neighbours]


def _draw(
    groups: list[npt.NDArray[np.int64]], train: npt.NDArray[np.int64], settings: RefinementSettings, step: int
) -> npt.NDArray[np.int64]:
    """Return the sentences of batch `step`: random ones, or `neighbours` from each of several neighbourhoods."""
    generator = np.random.default_rng([settings.seed, step])
    wanted = settings.batch_size // max(settings.neighbours, 1)
    if len(groups) < wanted:
        return generator.choice(train, settings.batch_size, replace=False)
    sizes = np.array([len(group) for group in groups], np.float64)
    chosen = generator.choice(len(groups), wanted, replace=False, p=sizes / sizes.sum())
    return np.concatenate([generator.choice(groups[i], settings.neighbours, replace=False) for i in chosen])
