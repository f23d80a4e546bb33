"""Training a table of word vectors on sentences, each a sum of its words' rows.

`refine` trains the student's cosines within a batch towards the teacher's (SWE paper, section 3.3, equations 2 and 3).
The teacher's vectors come from the extraction, so no sentence is encoded again. Beyond the paper, `neighbours` puts
sentences that the teacher finds alike into one batch: among random sentences almost every cosine is near zero, and what
distinguishes similar sentences would hardly ever be seen. With `pairs`, a share of the batches is of them, so that one
table serves both.

`tune_on_pairs` raises the cosine of a sentence with its translation above those with the others of the batch, in both
directions (sections 1.1 and 3.3); a batch is of one language pair, drawn by its number of sentences.

A sentence is the sum of its words' rows, so only the rows of a batch's words have a gradient and a step takes
milliseconds; the published code of the paper updates the whole table at each step. The best table by the loss on
held-out text is returned, at a root mean square of 1, which no cosine sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.errors import CorpusError, InputError
from pellucid.progress import Progress
from pellucid.settings import Limits, Seed, Settings
from pellucid.static.bags import Bags

if TYPE_CHECKING:
    import torch

_CLIP = 5.0  # of the gradient's norm, as in the paper's code
_HELD_OUT = 0.02  # of the sentences
_MAX_HELD_OUT_SENTENCES, _MAX_HELD_OUT_PAIRS = 10_240, 4_096  # held out, of all sentences and of each language pair
_HELD_OUT_BATCH = 512

Batch = npt.NDArray[np.int64]
Loss = Callable[["torch.nn.EmbeddingBag", Batch], "torch.Tensor"]
Pooled = Callable[["torch.nn.EmbeddingBag", "Bags", Batch], "torch.Tensor"]


@dataclass(frozen=True)
class TuningSettings(Settings):
    """How long and how fast a table of word vectors is trained.

    Attributes:
        steps: batches at most; 0 leaves the vectors as they are.
        batch_size: sentences, or sentence pairs, in a batch (the paper: 128).
        temperature: what cosines are divided by before the softmax (the paper: 0.05).
        learning_rate: Adam's, at the first step; it falls linearly to zero. In units of the table's root mean square,
            so that it does not depend on the teacher's scale.
        evaluate_every: steps between two evaluations on held-out text.
        patience: stop after this many evaluations without a better one.
        seed: of the held-out text and the batches.
    """

    steps: Annotated[int, Limits(0)] = 10_000
    batch_size: Annotated[int, Limits(2)] = 512
    temperature: Annotated[float, Limits(above=0)] = 0.05
    learning_rate: Annotated[float, Limits(above=0)] = 0.01
    evaluate_every: Annotated[int, Limits(1)] = 500
    patience: Annotated[int, Limits(1)] = 5
    seed: Seed = 0


@dataclass(frozen=True)
class RefinementSettings(TuningSettings):
    """How vectors are refined against a teacher: `TuningSettings`, and which sentences share a batch.

    The defaults are what the bundled model was made with. The paper takes 30,000 steps at temperature 0.05; 0 steps
    are its "section 3.2" ablation.

    Attributes:
        neighbours: sentences of one neighbourhood put into a batch together; 1 draws at random as the paper does.
        pair_share: the share of batches that are of pairs, where `refine` is given some.
        pair_temperature: what cosines are divided by in these.
    """

    steps: Annotated[int, Limits(0)] = 12_000
    temperature: Annotated[float, Limits(above=0)] = 0.1
    evaluate_every: Annotated[int, Limits(1)] = 1_000
    neighbours: Annotated[int, Limits(1)] = 32
    pair_share: Annotated[float, Limits(above=0, below=1)] = 0.5
    pair_temperature: Annotated[float, Limits(above=0)] = 0.05


class PairBags(NamedTuple):
    """Texts that belong together as rows of one table: sentences and translations, questions and answers."""

    name: str  # of the language pair, such as "en-de", or of the set
    first: Bags
    second: Bags  # the counterparts of `first`


def refine(
    vectors: Vectors,
    bags: Bags,
    teacher_vectors: npt.NDArray[np.float16],
    settings: RefinementSettings,
    *,
    pairs: Sequence[PairBags] = (),
    show_progress_bar: bool = True,
    pooled: Pooled | None = None,
) -> Vectors:
    """Return `vectors` [words, d] refined against a teacher's unit vectors, at a root mean square of 1."""
    import torch

    usable = np.flatnonzero(np.diff(bags.offsets) >= 2)
    summary = f"{len(usable)} sentences hold two known words"
    held_out, train = _split(usable, summary, settings, settings.seed, _MAX_HELD_OUT_SENTENCES)
    splits = _split_pairs(pairs, settings) if pairs else []
    teacher, embedded = torch.from_numpy(np.ascontiguousarray(teacher_vectors)), pooled or sums
    single = len(pairs)  # the number before the sentences of a batch: of its set of pairs, or this
    groups, trained = _neighbourhoods(teacher_vectors, train, settings), [part for _, part in splits]

    def loss(words: torch.nn.EmbeddingBag, batch: Batch) -> torch.Tensor:
        if int(batch[0]) < single:
            return _pair_loss(words, pairs, batch, settings.pair_temperature, embedded)
        chosen = batch[1:]
        return similarity_loss(embedded(words, bags, chosen), teacher[chosen].float(), settings.temperature)

    def draw(step: int) -> Batch:
        if trained and np.random.default_rng([settings.seed, step, 1]).random() < settings.pair_share:
            return _draw_pairs(trained, settings, step, power=0.5)
        return _numbered(single, _draw_sentences(groups, train, settings, step))

    held_out_batches = [
        _numbered(n, part) for n, (dev, _) in enumerate([*splits, (held_out, train)]) for part in _batches(dev)
    ]
    with Progress("refining", total=settings.steps, unit="steps", enabled=show_progress_bar) as progress:
        return train_table(vectors, loss, draw, held_out_batches, settings, progress)


def tune_on_pairs(
    vectors: Vectors, pairs: Sequence[PairBags], settings: TuningSettings, *, show_progress_bar: bool = True
) -> Vectors:
    """Return `vectors` [words, d] after two-way contrastive tuning on translations, at a root mean square of 1."""
    if not settings.steps:
        return vectors
    splits = _split_pairs(pairs, settings)
    trained = [train for _, train in splits]
    held_out = [_numbered(n, part) for n, (dev, _) in enumerate(splits) for part in _batches(dev)]

    def loss(words: torch.nn.EmbeddingBag, batch: Batch) -> torch.Tensor:
        return _pair_loss(words, pairs, batch, settings.temperature, sums)

    with Progress("aligning translations", total=settings.steps, unit="steps", enabled=show_progress_bar) as progress:
        return train_table(
            vectors, loss, lambda step: _draw_pairs(trained, settings, step), held_out, settings, progress
        )


def train_table(
    vectors: Vectors,
    loss: Loss,
    draw: Callable[[int], Batch],
    held_out: Sequence[Batch],
    settings: TuningSettings,
    progress: Progress,
) -> Vectors:
    """Train a table at a root mean square of 1 on the batches that `draw` returns; return the best on `held_out`."""
    import torch

    def held_out_loss() -> float:
        with torch.no_grad():
            return float(np.mean([loss(words, batch).item() for batch in held_out]))

    best = np.array(vectors / scale_of(vectors), np.float32)
    words = torch.nn.EmbeddingBag.from_pretrained(
        torch.from_numpy(best.copy()), freeze=False, mode="sum", sparse=True, include_last_offset=True
    )
    optimiser = torch.optim.SparseAdam(list(words.parameters()), lr=settings.learning_rate)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / settings.steps)
    best_loss, evaluations_without_gain = held_out_loss(), 0  # the table as it is may be the best
    for step in range(1, settings.steps + 1):
        optimiser.zero_grad()
        loss(words, draw(step - 1)).backward()
        gradient = words.weight.grad.coalesce()
        gradient.values().mul_(min(1.0, _CLIP / max(float(gradient.values().norm()), 1e-12)))
        words.weight.grad = gradient
        optimiser.step()
        rate.step()
        if step % settings.evaluate_every == 0 or step == settings.steps:
            current_loss = held_out_loss()
            evaluations_without_gain += 1
            if current_loss < best_loss:
                best_loss, evaluations_without_gain = current_loss, 0
                best = words.weight.detach().numpy().copy()
        progress.advance(1, note=f"loss {best_loss:.4f}")
        if evaluations_without_gain == settings.patience:
            break
    return best


def _pair_loss(
    words: torch.nn.EmbeddingBag, pairs: Sequence[PairBags], batch: Batch, temperature: float, embedded: Pooled
) -> torch.Tensor:
    """Return the loss of a batch of one set of pairs, whose number it begins with."""
    pair = pairs[int(batch[0])]
    return translation_loss(
        embedded(words, pair.first, batch[1:]), embedded(words, pair.second, batch[1:]), temperature
    )


def similarity_loss(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Cross-entropy between the rows of two in-batch cosine matrices (equation 2), diagonal left out."""
    # Sums of word vectors [B, d], since a sum has the direction of the mean; the teacher's unit vectors [B, D].
    import torch.nn.functional as F

    unit = F.normalize(student, dim=1)
    cosines, targets = unit @ unit.T / temperature, teacher @ teacher.T / temperature
    # Not -inf: 0 * inf is NaN in the backward pass. exp(-1e4) is exactly 0 in float32.
    cosines, targets = cosines.fill_diagonal_(-1e4), targets.fill_diagonal_(-1e4)
    return F.cross_entropy(cosines, F.softmax(targets, dim=1))


def translation_loss(first: torch.Tensor, second: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return InfoNCE from the one language to the other plus InfoNCE back, of sums of word vectors [B, d]."""
    import torch
    import torch.nn.functional as F

    cosines = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / temperature
    targets = torch.arange(len(cosines))
    return F.cross_entropy(cosines, targets) + F.cross_entropy(cosines.T, targets)


def sums(words: torch.nn.EmbeddingBag, bags: Bags, sentences: Batch) -> torch.Tensor:
    """Return the sums of the word vectors of some sentences, [sentences, d]; a sum has the direction of the mean."""
    import torch

    chosen = bags.take(sentences)
    return words(torch.from_numpy(chosen.rows), torch.from_numpy(chosen.offsets))


def scale_of(vectors: npt.NDArray[np.floating[Any]]) -> float:
    """Return the root mean square of some vectors, never 0, so that it can be divided by."""
    return max(float(np.sqrt(np.mean(np.square(vectors)))) if vectors.size else 0.0, 1e-12)


def _neighbourhoods(
    teacher_vectors: npt.NDArray[np.float16], train: Batch, settings: RefinementSettings
) -> list[Batch]:
    """Split the training sentences into neighbourhoods of about 200 by the teacher's vectors."""
    if settings.neighbours <= 1:
        return []
    from sklearn.cluster import MiniBatchKMeans

    count = max(1, len(train) // 200)
    generator = np.random.default_rng(settings.seed)
    sample = generator.choice(train, min(len(train), 50 * count, 100_000), replace=False)
    means = MiniBatchKMeans(count, batch_size=4096, n_init=1, max_iter=5, random_state=settings.seed)
    means.fit(teacher_vectors[sample].astype(np.float32))
    chunks = np.array_split(train, max(1, len(train) // 16_384))
    labels = np.concatenate([means.predict(teacher_vectors[chunk].astype(np.float32)) for chunk in chunks])
    order = np.argsort(labels, kind="stable")
    groups = np.split(train[order], np.cumsum(np.bincount(labels, minlength=count))[:-1])
    return [group for group in groups if len(group) >= settings.neighbours]


def _draw_sentences(groups: list[Batch], train: Batch, settings: RefinementSettings, step: int) -> Batch:
    """Return the sentences of batch `step`: random ones, or `neighbours` from each of several neighbourhoods."""
    generator = np.random.default_rng([settings.seed, step])
    n_groups = settings.batch_size // max(settings.neighbours, 1)
    if len(groups) < n_groups:
        return generator.choice(train, settings.batch_size, replace=False)
    chosen = generator.choice(len(groups), n_groups, replace=False, p=_shares(groups))
    return np.concatenate([generator.choice(groups[i], settings.neighbours, replace=False) for i in chosen])


def _draw_pairs(trained: Sequence[Batch], settings: TuningSettings, step: int, power: float = 1.0) -> Batch:
    """Return batch `step`: pairs of one set, drawn by its size to some power."""
    generator = np.random.default_rng([settings.seed, step])
    pair = int(generator.choice(len(trained), p=_shares(trained, power)))
    return _numbered(pair, generator.choice(trained[pair], settings.batch_size, replace=False))


def _split_pairs(pairs: Sequence[PairBags], settings: TuningSettings) -> list[tuple[Batch, Batch]]:
    """Return for each set the numbers of the held-out pairs and of those trained on, after checking them."""
    names = [pair.name for pair in pairs]
    if not pairs or len(set(names)) < len(names):
        raise InputError(f"tuning needs language pairs, each once; got {names}")
    splits = []
    for index, pair in enumerate(pairs):
        if len(pair.first) != len(pair.second):
            raise InputError(f"{pair.name}: {len(pair.first)} sentences have {len(pair.second)} translations")
        usable = np.flatnonzero((np.diff(pair.first.offsets) > 0) & (np.diff(pair.second.offsets) > 0))
        summary = f"{pair.name}: {len(usable)} of {len(pair.first)} sentence pairs have a known word on both sides"
        splits.append(_split(usable, summary, settings, [settings.seed, index], _MAX_HELD_OUT_PAIRS))
    return splits


def _split(
    usable: Batch, summary: str, settings: TuningSettings, seed: int | list[int], max_held_out: int
) -> tuple[Batch, Batch]:
    """Return the numbers of `usable` items held out, at most `max_held_out`, and of those trained on."""
    if len(usable) < 2 * settings.batch_size:
        raise CorpusError(
            f"{summary}; training needs at least {2 * settings.batch_size} (two batches). Give more text, or train "
            "with smaller batches"
        )
    order = np.random.default_rng(seed).permutation(usable)
    held_out = max(2, min(int(len(order) * _HELD_OUT), max_held_out))
    return np.sort(order[:held_out]), np.sort(order[held_out:])


def _batches(held_out: Batch) -> list[Batch]:
    return np.array_split(held_out, max(1, len(held_out) // _HELD_OUT_BATCH))


def _shares(groups: Sequence[Batch], power: float = 1.0) -> npt.NDArray[np.float64]:
    """Return the share of each group in all items, or by its size to some power."""
    sizes = np.array([len(group) for group in groups], np.float64) ** power
    return np.asarray(sizes / sizes.sum())


def _numbered(pair: int, sentences: Batch) -> Batch:
    """Return a batch: the number of the language pair, then those of the sentences."""
    return np.concatenate([[pair], sentences])
