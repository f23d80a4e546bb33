r"""A static model by the training of the static-word paper's code to the letter, from one pass of a teacher.

    python -m papers.swe.paper_recipe --data shared/data --teacher FOLDER --work-dir WORK --output MODEL

`recipes/static_en.py` departs from the paper where that is better or cheaper: neighbours in a batch, temperature 0.1,
sparse Adam at a rate that falls. Here nothing does: components of one sentence a word, two sentences of each word to
train on and one to stop by, batches of 128 unrelated sentences, temperature 0.05, Adam over the whole table at 0.001,
gradients clipped at 5, chunks of 40 steps, at most 30,000 steps, an end after five chunks without a better loss. The
vectors are trained at the teacher's scale. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.kit import make_parser, set_threads
from pellucid import StaticEmbedder
from pellucid.core.embedder import Vectors
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.static import PcaSettings
from pellucid.static.bags import Bags
from pellucid.static.training.distill import rotate, subwords_of
from pellucid.static.training.extraction import Extraction, extract
from pellucid.static.training.tuning import similarity_loss, sums
from pellucid.text.words import Vocabulary
from recipes.static_en import EXTRACTION

PCA = PcaSettings(dimensions=256, drop=7, vocabulary=95_000)
STEPS, CHUNK_STEPS, PATIENCE_CHUNKS = 30_000, 40, 5
BATCH_SENTENCES, HELD_OUT_BATCH, MAX_HELD_OUT = 128, 256, 10_000
TEMPERATURE, LEARNING_RATE, CLIP = 0.05, 1e-3, 5.0
MIN_SENTENCES_PCA, MAX_WORDS_PCA = 3, 100_000
MIN_SENTENCES_TRAINING, DRAWN_SENTENCES = 5, 3  # of a word; the last one drawn is held out
SAVE_CHUNKS = 25

Ids = npt.NDArray[np.int64]


def sentences_by_word(bags: Bags, least: int, count: int, seed: int) -> Ids:
    """Return `count` different sentences, drawn at random, of each word that `least` sentences hold: [words, count]."""
    sentence = np.repeat(np.arange(len(bags)), np.diff(bags.offsets))
    pairs = np.unique(np.stack([bags.rows, sentence], axis=1), axis=0)
    order = np.lexsort((np.random.default_rng(seed).random(len(pairs)), pairs[:, 0]))
    _, starts, counts = np.unique(pairs[order, 0], return_index=True, return_counts=True)
    first = starts[counts >= max(least, count)]
    drawn: Ids = pairs[order, 1][first[:, None] + np.arange(count)]
    return drawn


def split(bags: Bags) -> tuple[Ids, Ids]:
    """Return the sentences to train on and those held out."""
    drawn = sentences_by_word(bags, MIN_SENTENCES_TRAINING, DRAWN_SENTENCES, seed=1)
    train = np.unique(drawn[:, :-1])
    held_out = np.setdiff1d(drawn[:, -1], train)
    return train, np.random.default_rng(2).permutation(held_out)[:MAX_HELD_OUT]


@dataclass
class Training:
    """The table while it is trained.

    Attributes:
        bags: of all sentences.
        teacher: unit vectors of all sentences, float16 [n, D].
        table: the vectors at first, float32 [words, d].
        work: where the state is kept.
    """

    bags: Bags
    teacher: npt.NDArray[np.float16]
    table: Vectors
    work: WorkFolder

    def __post_init__(self) -> None:
        """Begin, or go on from what is kept."""
        import torch

        self.work.bind_settings(
            {"table": zlib.crc32(self.table.tobytes()), "sentences": zlib.crc32(self.bags.rows.tobytes())}
        )
        self.words = torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(self.table.copy()), freeze=False, mode="sum", include_last_offset=True
        )
        self.optimiser = torch.optim.Adam(self.words.parameters(), lr=LEARNING_RATE, fused=True)
        self.best, self.best_loss, self.chunk, self.chunks_without_gain = self.table.copy(), float("inf"), 0, 0
        if "table" in self.work:
            tensors = {name: torch.from_numpy(np.array(values)) for name, values in self.work.load("table").items()}
            with torch.no_grad():
                self.words.weight.copy_(tensors["words"])
            state = {"step": torch.tensor(float(self.work.metadata["chunk"] * CHUNK_STEPS))}
            moments = {name: tensors[name] for name in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[self.words.weight] = state | moments
            self.best, self.best_loss = tensors["best"].numpy(), self.work.metadata["best_loss"]
            self.chunk, self.chunks_without_gain = (self.work.metadata[name] for name in ("chunk", "without_gain"))

    def loss(self, sentences: Ids) -> Any:
        """Return the loss of a batch."""
        import torch

        teacher = torch.from_numpy(self.teacher[sentences]).float()
        return similarity_loss(sums(self.words, self.bags, sentences), teacher, TEMPERATURE)

    def run(self, steps: int = STEPS) -> Vectors:
        """Train to the end and return the best table."""
        train, held_out = split(self.bags)
        print(f"{len(train):,} sentences to train on, {len(held_out):,} held out", flush=True)
        while self.chunk * CHUNK_STEPS < steps and self.chunks_without_gain < PATIENCE_CHUNKS:
            self._train_chunk(train)
            self._evaluate(held_out)
            if self.chunk % SAVE_CHUNKS == 0:
                self.save()
        self.save()
        return self.best

    def _train_chunk(self, train: Ids) -> None:
        """Take 40 steps on sentences drawn anew."""
        import torch

        size = min(len(train), CHUNK_STEPS * BATCH_SENTENCES)
        drawn = np.random.default_rng([3, self.chunk]).choice(train, size, replace=False)
        for batch in np.array_split(drawn, CHUNK_STEPS):
            self.optimiser.zero_grad()
            self.loss(batch).backward()
            torch.nn.utils.clip_grad_norm_(self.words.parameters(), CLIP)
            self.optimiser.step()
        self.chunk += 1

    def _evaluate(self, held_out: Ids) -> None:
        """Keep the table if its loss on held-out sentences is the smallest."""
        import torch

        batches = np.array_split(held_out, max(1, len(held_out) // HELD_OUT_BATCH))
        with torch.no_grad():
            loss = float(np.mean([self.loss(batch).item() for batch in batches]))
        self.chunks_without_gain += 1
        if loss < self.best_loss:
            self.best_loss, self.chunks_without_gain = loss, 0
            self.best = self.words.weight.detach().numpy().copy()
        print(f"step {self.chunk * CHUNK_STEPS}: loss {loss:.4f}, best {self.best_loss:.4f}", flush=True)

    def save(self) -> None:
        """Keep the state."""
        state = self.optimiser.state[self.words.weight]
        moments = {name: state[name].numpy() for name in ("exp_avg", "exp_avg_sq")}
        self.work.save("table", {"words": self.words.weight.detach().numpy(), "best": self.best, **moments})
        counts = {"chunk": self.chunk, "best_loss": self.best_loss, "without_gain": self.chunks_without_gain}
        self.work.commit(counts)


def make(extraction: Extraction, subwords: Any, work_dir: Path, steps: int = STEPS) -> StaticEmbedder:
    """Return the model of steps 2 and 3 from what step 1 left; `subwords` is the teacher's tokenizer."""
    rows = np.flatnonzero(np.any(extraction.vectors != 0, axis=1))[: PCA.vocabulary]
    vocabulary = Vocabulary([extraction.words[row] for row in rows], subwords)
    bags = Bags.from_sentences(extraction.sentences, vocabulary)
    vectors = extraction.vectors[rows]
    sample = sentences_by_word(bags, MIN_SENTENCES_PCA, 1, seed=0)[:MAX_WORDS_PCA, 0]
    table = rotate(vectors, bags.take(sample).means(vectors), PCA)
    with WorkFolder(work_dir) as work:
        return StaticEmbedder(vocabulary, Training(bags, extraction.teacher_vectors, table, work).run(steps))


def main() -> None:
    """Read the arguments and make the model."""
    set_threads(1, unless_set=True)
    parser: argparse.ArgumentParser = make_parser(__doc__, data="raw_english/", work_dir="state")
    parser.add_argument("--teacher", required=True, help="folder or hub id of a sentence transformer")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    options = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    teacher = SentenceTransformer(options.teacher, device="cpu")
    corpus = options.data / "raw_english" / "open_licence.txt.xz"
    extraction = extract(teacher, corpus, options.work_dir / "pass", EXTRACTION)
    model = make(extraction, subwords_of(teacher), options.work_dir / "training")
    model.save_pretrained(options.output, dtype="int8", extra_words=extraction.words)


if __name__ == "__main__":
    main()
