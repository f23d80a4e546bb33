"""Make the bundled model `static-multi`: five languages in two megabytes.

    python recipes/static_languages.py --parallel DATA/parallel/tatoeba --output large
    python recipes/static_small.py --parallel DATA/parallel/tatoeba --model large --output static-multi

Of the model of five languages that the first line makes, the words are kept that occur most in equal amounts of text;
the vectors go onto their first principal components, and are tuned on the translations again. It takes about two
minutes on one core.
"""

from __future__ import annotations

import argparse
import shutil
from itertools import islice
from pathlib import Path

import numpy as np

from pellucid import PcaSettings, StaticEmbedder, TranslationSettings, prune
from pellucid.static import Bags, pair_bags, read_parallel, rotate, tune_on_pairs
from pellucid.text import Vocabulary

LANGUAGES = ("de", "fr", "zh", "ja")
WORDS, DIMENSIONS, STEPS = 13_000, 96, 3_000
_SENTENCES = 20_000  # of a language, which decide what words are kept; of English as many from each of the pairs


def small(
    model: StaticEmbedder, parallel: Path, *, words: int = WORDS, dimensions: int = DIMENSIONS, steps: int = STEPS
) -> StaticEmbedder:
    """Return a small model made of a large one; `parallel` is the folder of the sentence pairs."""
    files = {("en", language): parallel / f"en-{language}.tsv.xz" for language in LANGUAGES}
    texts = _texts(files)
    kept, _ = prune(model, texts, max_words=words)
    vocabulary = Vocabulary(kept.vocabulary.words)
    vectors = kept.word_vectors(np.arange(len(vocabulary)))
    vectors = rotate(vectors, Bags.of(texts, vocabulary).means(vectors), PcaSettings(dimensions, drop=0))
    pairs = [pair_bags(path, codes, vocabulary) for codes, path in files.items()]
    tuning = TranslationSettings(steps=steps, learning_rate=0.02, evaluate_every=250)
    return StaticEmbedder(vocabulary, tune_on_pairs(vectors, pairs, tuning))


def _texts(files: dict[tuple[str, str], Path]) -> list[str]:
    """Return as many texts of each language, spread over its file."""
    texts = []
    for codes, path in files.items():
        pairs = list(read_parallel(path, codes))
        for english, foreign in islice(pairs, 0, None, max(1, len(pairs) // _SENTENCES)):
            texts += [english, foreign]
    return texts


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=Path, required=True, help="folder of en-de.tsv.xz and so on")
    parser.add_argument("--model", type=Path, required=True, help="folder of the large model")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    model = small(StaticEmbedder.from_pretrained(arguments.model), arguments.parallel)
    model.save_pretrained(arguments.output, dtype="int8")
    shutil.copy(Path(__file__).with_name("static_multi_card.md"), arguments.output / "README.md")
    print(f"wrote {arguments.output}: {len(model.vocabulary):,} words")


if __name__ == "__main__":
    main()
