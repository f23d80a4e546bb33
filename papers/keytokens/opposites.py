r"""Table 5 of the key-tokens paper on a language model: like and dislike under two tunings, on enough pairs to decide.

    python -m papers.keytokens.tuning --data shared/data --output WORK --model FOLDER --layers 10
    python -m papers.keytokens.opposites FOLDER --similarity WORK/simcse --relatedness WORK/question-answer \
        --data shared/data --write

The paper shows one pair: tuned for similarity, "I like apples." and "I dislike apples." are far from each other, tuned
for relatedness they are near. Here are as many pairs as there are things to like, and pairs of the same kind of
sentence about different things as a scale. Weights are read in float32, embeddings less the mean of sentences that no
tuning has read.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1, unless_set=True)

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import numpy as np

from papers.keytokens.alignment import compare_key_tokens
from papers.keytokens.tables import PAPER_5, TABLE_5, cosines, tokens_table
from papers.keytokens.tuning import BATCH, NOTE, STEPS
from papers.kit import Interval, bootstrap, interval_of, make_parser, markdown_table, measured, print_block
from papers.vector_cache import Vectors, unit_rows
from pellucid import KeyTokenEmbedder
from pellucid.keytokens import KeyTokenSettings
from pellucid.text.corpus import read_texts
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
PAGE = Path(__file__).with_name("analysis.md")


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


def interval(values: Vectors) -> Interval:
    """Return the interval of a mean over the things."""
    return interval_of(bootstrap(values, lambda drawn: drawn.mean(axis=1)))


def section(models: Mapping[str, KeyTokenEmbedder], notes: list[str]) -> str:
    """Return the part of the page."""
    five = compare_key_tokens(models, TABLE_5)
    found = {name: pair_cosines(model) for name, model in models.items()}
    lines = []
    for name, (opposite, other) in found.items():
        three = (interval(100 * values) for values in (opposite, other, opposite - other))
        lines.append([name, *(f"{one.value:.1f} ({one.low:.1f} to {one.high:.1f})" for one in three)])
    gains = {
        f"like and dislike nearer when {RELATEDNESS} than when {SIMILARITY}": found[RELATEDNESS][0]
        - found[SIMILARITY][0],
        "the same, beside two things liked": (found[RELATEDNESS][0] - found[RELATEDNESS][1])
        - (found[SIMILARITY][0] - found[SIMILARITY][1]),
    }
    said = [f"- {claim}: {interval(100 * gain).with_verdict()}." for claim, gain in gains.items()]
    header = ["", "like and dislike", "two things liked", "the first less the second"]
    parts = [tokens_table(five), "", cosines(five), f"- {PAPER_5}", "", f"Cosines x 100 over {len(THINGS)} things:", ""]
    return "\n".join([*parts, markdown_table(header, lines), *said, "", *notes, "", measured()])


def main() -> None:
    """Measure and write the part of the page."""
    parser = make_parser(__doc__, data="raw_english/", write=PAGE)
    parser.add_argument("model", type=Path, help="folder of the language model")
    parser.add_argument("--similarity", type=Path, required=True, help="its tuning on sentences")
    parser.add_argument("--relatedness", type=Path, required=True, help="its tuning on questions and answers")
    options = parser.parse_args()
    given = read_texts(options.data / "raw_english/open_licence.txt.xz")
    texts = list(islice(given, STEPS * BATCH, STEPS * BATCH + SENTENCES))
    models = {AS_IS: opened(options.model, None, texts)}
    head = models[AS_IS].backbone.head.float().numpy()
    for name, folder in ((SIMILARITY, options.similarity), (RELATEDNESS, options.relatedness)):
        models[name] = opened(folder, head, texts)
    notes = [
        f"- {(folder / NOTE).read_text(encoding='utf-8')}." for folder in (options.similarity, options.relatedness)
    ]
    print_block("papers/keytokens/opposites.py", section(models, notes), options.write)


if __name__ == "__main__":
    main()
