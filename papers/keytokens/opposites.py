r"""Table 5 of the key-tokens paper on a language model: like and dislike under two tunings, on enough pairs to decide.

    python -m papers.keytokens.tuning --data shared/data --output WORK --model FOLDER --layers 10
    python -m papers.keytokens.opposites FOLDER --similarity WORK/simcse --relatedness WORK/question-answer \
        --data shared/data --write

Weights are read in float32, embeddings less the mean of sentences that no tuning has read.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np

from papers.keytokens.alignment import compare_key_tokens, cosine_lines, tokens_table
from papers.keytokens.tables import TABLE_5
from papers.keytokens.tuning import BATCH, NOTE, STEPS
from papers.kit import Figure, Table, mean_interval, run_script
from papers.vector_cache import Vectors, unit_rows
from pellucid import KeyTokenEmbedder
from pellucid.keytokens import KeyTokenSettings
from pellucid.text.tables import read_texts
from pellucid.transformer import open_backbone

THINGS = (
    "apples", "dogs", "winter", "jazz", "football", "coffee", "my job", "this book", "the city", "old films", "math",
    "cooking", "the new phone", "rain", "spiders", "his paintings", "fast cars", "the teacher", "long walks", "cheese",
    "this song", "airports", "the sea", "poetry", "crowds", "chess", "her voice", "the government", "hospitals",
    "video games", "mushrooms", "public transport", "snow", "the hotel", "swimming", "silence", "garlic", "weddings",
    "the museum", "loud music",
)  # fmt: skip
SENTENCES = 1_000  # whose mean embedding is taken away
AS_IS, SIMILARITY, RELATEDNESS = "as it is", "tuned for similarity", "tuned for relatedness"


def opened(folder: Path, head: Vectors | None, texts: list[str]) -> KeyTokenEmbedder:
    """Open a model with the mean of its states, less that of the texts; decoded by its own head or a given one."""
    backbone = open_backbone(folder, attention="causal", device="cpu")
    settings = KeyTokenSettings(start_token=True, max_length=96)
    return KeyTokenEmbedder(backbone, settings, head=head).fitted(texts, "mean")


def pair_cosines(model: KeyTokenEmbedder) -> tuple[Vectors, Vectors]:
    """Return the cosines of liking and disliking each thing, and of liking each thing and the next."""
    sides = [[f"I {verb} {thing}." for thing in THINGS] for verb in ("like", "dislike")]
    liked, disliked = (unit_rows(model.adjustment.apply(model.embed(side))) for side in sides)
    return (liked * disliked).sum(axis=1), (liked * np.roll(liked, -1, axis=0)).sum(axis=1)


def figures(models: Mapping[str, KeyTokenEmbedder]) -> Iterator[tuple[str, Figure]]:
    """Yield the paper's pair, the cosines over all things, and what they say of the claims."""
    five = compare_key_tokens(models, TABLE_5)
    yield "tokens", tokens_table(TABLE_5, five)
    yield "cosines-of-two", cosine_lines(five)
    found = {name: pair_cosines(model) for name, model in models.items()}
    lines = []
    for name, (opposite, other) in found.items():
        three = (mean_interval(100 * values) for values in (opposite, other, opposite - other))
        lines.append([name, *(f"{one.value:.1f} ({one.low:.1f} to {one.high:.1f})" for one in three)])
    yield "cosines", Table(["", "like and dislike", "two things liked", "the first less the second"], lines)
    (near, near_other), (far, far_other) = found[RELATEDNESS], found[SIMILARITY]
    gains = {
        f"like and dislike nearer when {RELATEDNESS} than when {SIMILARITY}": near - far,
        "the same, beside two things liked": (near - near_other) - (far - far_other),
    }
    told = {claim: mean_interval(100 * gain, n_seeds=1).with_verdict() for claim, gain in gains.items()}
    yield "gain", next(iter(told.values()))
    yield "claims", "\n".join(f"- {claim}: {difference}." for claim, difference in told.items())


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows, and how the models were tuned."""
    corpus = read_texts(options.data / "raw_english/open_licence.txt.xz")
    texts = list(islice(corpus, STEPS * BATCH, STEPS * BATCH + SENTENCES))
    models = {AS_IS: opened(options.model, None, texts)}
    head = models[AS_IS].backbone.head.float().numpy()
    folders = {SIMILARITY: options.similarity, RELATEDNESS: options.relatedness}
    models |= {name: opened(folder, head, texts) for name, folder in folders.items()}
    yield from figures(models)
    yield "tunings", "\n".join(f"- {(folder / NOTE).read_text(encoding='utf-8')}." for folder in folders.values())


if __name__ == "__main__":
    run_script(
        measure,
        {
            "model": {"type": Path, "help": "folder of the language model"},
            "--similarity": {"type": Path, "required": True, "help": "its tuning on sentences"},
            "--relatedness": {"type": Path, "required": True, "help": "its tuning on questions and answers"},
        },
        data="raw_english/",
        threads=1,
    )
