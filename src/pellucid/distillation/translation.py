"""Drawing translations together: two-way contrastive tuning on sentence pairs (SWE paper, sections 1.1 and 3.3).

For a batch of pairs the cosine of each sentence with its translation is raised above those with the other sentences of
the batch, in both directions; the two losses are summed, as in the paper. All languages share one table, so that a
batch of English and German and one of English and Japanese both move the English words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.distillation.refinement import Bags
from pellucid.distillation.tabletrainer import TableTrainer, scale_of, sums
from pellucid.errors import CorpusError, InputError
from pellucid.progress import Progress
from pellucid.workfolder import WorkFolder

if TYPE_CHECKING:
    import torch

_DEV_SHARE, _MOST_DEV = 0.02, 4_096  # of a language pair's sentences
_DEV_BATCH = 512


@dataclass(frozen=True)
class TranslationSettings:
    """How translations are drawn together.

    Attributes:
        steps: batches at most; 0 leaves the vectors as they are.
        batch_size: sentence pairs in a batch, all of one language pair (the paper: 128).
        temperature: what cosines are divided by before the softmax (the paper: 0.05).
        learning_rate: Adam's, at the first step; it falls linearly to zero. In units of the table's root mean square.
        evaluate_every: steps between two evaluations on held-out pairs.
        patience: stop after this many evaluations without a better one.
        seed: of the held-out pairs and the batches.
    """

    steps: int = 10_000
    batch_size: int = 512
    temperature: float = 0.05
    learning_rate: float = 0.01
    evaluate_every: int = 500
    patience: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: one is of no use; the message names it.
        """
        for name, least in (("steps", 0), ("batch_size", 2), ("evaluate_every", 1), ("patience", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        for name in ("temperature", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0")


class PairBags(NamedTuple):
    """Sentences and their translations as rows of one table.

    Attributes:
        name: of the language pair, such as "en-de".
        first: the sentences in one language.
        second: as many, their translations.
    """

    name: str
    first: Bags
    second: Bags


def tune_on_pairs(
    vectors: Vectors,
    pairs: Sequence[PairBags],
    settings: TranslationSettings,
    *,
    work: WorkFolder | None = None,
    show_progress_bar: bool = True,
) -> Vectors:
    """Return `vectors` [words, d] after two-way contrastive tuning on one or several language pairs.

    A batch is of one language pair, drawn with a probability in proportion to its number of sentences. The best vectors
    by the loss on held-out pairs are returned, at a root mean square of 1.

    Raises:
        InputError: there are no pairs, two have one name, a pair's sides differ in number, or `work` holds the state of
            other vectors, sentences or settings.
        ModelFolderError: the state in `work` is damaged.
        CorpusError: a language pair has too few sentences with a known word on both sides.
    """
    if not settings.steps:
        return vectors
    splits = [_split(pair, number, settings) for number, pair in enumerate(_checked(pairs))]
    table = vectors / scale_of(vectors)

    def loss(words: torch.nn.EmbeddingBag, batch: npt.NDArray[np.int64]) -> torch.Tensor:
        pair, sentences = pairs[int(batch[0])], batch[1:]
        first, second = (sums(words, side, sentences) for side in (pair.first, pair.second))
        return translation_loss(first, second, settings.temperature)

    sentences = {f"{pair.name} {n}": side for pair in pairs for n, side in enumerate((pair.first, pair.second), 1)}
    trainer = TableTrainer(table, loss, settings, work, sentences)
    trained = [train for _, train in splits]
    held_out = [_numbered(n, part) for n, (dev, _) in enumerate(splits) for part in _in_batches(dev)]
    with Progress(
        "drawing translations together", total=settings.steps, unit="steps", enabled=show_progress_bar
    ) as progress:
        return trainer.run(lambda step: _draw(trained, settings, step), held_out, progress)


def translation_loss(first: torch.Tensor, second: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return InfoNCE from the one language to the other plus InfoNCE back.

    Args:
        first: sums of word vectors [B, d].
        second: those of the translations [B, d], in the same order.
        temperature: what cosines are divided by.
    """
    import torch
    import torch.nn.functional as F

    cosines = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / temperature
    own = torch.arange(len(cosines))
    return F.cross_entropy(cosines, own) + F.cross_entropy(cosines.T, own)


def _checked(pairs: Sequence[PairBags]) -> Sequence[PairBags]:
    names = [pair.name for pair in pairs]
    if not pairs or len(set(names)) < len(names):
        raise InputError(f"tuning needs language pairs, each once; got {names}")
    for pair in pairs:
        if len(pair.first) != len(pair.second):
            raise InputError(f"{pair.name}: {len(pair.first)} sentences have {len(pair.second)} translations")
    return pairs


def _split(
    pair: PairBags, number: int, settings: TranslationSettings
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the numbers of the held-out pairs and of those trained on."""
    usable = np.flatnonzero((np.diff(pair.first.offsets) > 0) & (np.diff(pair.second.offsets) > 0))
    if len(usable) < 2 * settings.batch_size:
        raise CorpusError(
            f"{pair.name}: {len(usable)} of {len(pair.first)} sentence pairs have a known word on both sides; tuning "
            f"needs at least {2 * settings.batch_size} (two batches). Give more text, or train with smaller batches"
        )
    order = np.random.default_rng([settings.seed, number]).permutation(usable)
    held_out = max(2, min(int(len(order) * _DEV_SHARE), _MOST_DEV))
    return np.sort(order[:held_out]), np.sort(order[held_out:])


def _in_batches(dev: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    return np.array_split(dev, max(1, len(dev) // _DEV_BATCH))


def _numbered(pair: int, sentences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a batch: the number of the language pair, then those of the sentences."""
    return np.concatenate([[pair], sentences])


def _draw(trained: Sequence[npt.NDArray[np.int64]], settings: TranslationSettings, step: int) -> npt.NDArray[np.int64]:
    """Return the batch of a step, which depends on the seed and the step alone."""
    generator = np.random.default_rng([settings.seed, step])
    sizes = np.array([len(train) for train in trained], np.float64)
    pair = int(generator.choice(len(trained), p=sizes / sizes.sum()))
    return _numbered(pair, generator.choice(trained[pair], settings.batch_size, replace=False))
