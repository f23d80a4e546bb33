"""Make one static model with the words of two, in the space of the first.

    python -m recipes.merge_vocabularies static-en my-terms --output both

The second model's vectors are mapped onto the first's by the words that both have, with the map that adds words to a
model (`fit_space`). It is good for models of the same origin; how well it works is printed, measured on held-out words.
The other way to combine static models, tables next to each other so that a score is the weighted mean of theirs, is
`EnsembleEmbedder.merged`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from pellucid import StaticEmbedder
from pellucid.errors import InputError
from pellucid.static.embedder import static_model
from pellucid.static.training.vocabulary import FitQuality, fit_space

LEAST_SHARED = 20


def merge_vocabularies(first: Any, second: Any, *, shared: str = "mean") -> tuple[StaticEmbedder, FitQuality]:
    """Return one model with the words of two, and how well the map does on held-out words.

    Args:
        first: whose space, dimensions and teacher's tokenizer stay.
        second: whose vectors are mapped onto the first's; it may have other dimensions.
        shared: what words of both get: the "mean" of the two vectors, or the "first".

    Returns:
        A float32 model, the first's words in front, and the quality of the map.

    Raises:
        InputError: a model is not static, `shared` is unknown, or too few words are shared to fit a map on.
    """
    for model in (first, second):
        static_model(model, "merging vocabularies")
    if shared not in ("mean", "first"):
        raise InputError(f"shared is {shared!r:.40}; it is 'mean' or 'first'")
    common = [word for word in second.vocabulary.words if word in first.vocabulary]
    needed = max(LEAST_SHARED, second.get_embedding_dimension())
    if len(common) < needed:
        starts = [", ".join(map(repr, model.vocabulary.words[:3])) for model in (first, second)]
        raise InputError(
            f"the models share {len(common):,} words, and a map needs at least {needed:,} (the first begins with "
            f"{starts[0]}, the second with {starts[1]}); use models of one language and spelling, or combine them as "
            "an ensemble, which needs no shared word"
        )
    mine, theirs = ([model.vocabulary.row(word) for word in common] for model in (first, second))
    mapping, quality = fit_space(second.word_vectors(theirs), first.word_vectors(mine))
    mapped = mapping(second.word_vectors(np.arange(len(second.vocabulary))))
    table = first.word_vectors(np.arange(len(first.vocabulary)))
    if shared == "mean":
        table[mine] = (table[mine] + mapped[theirs]) / 2
    new = [row for row, word in enumerate(second.vocabulary.words) if word not in first.vocabulary]
    words = [*first.vocabulary.words, *(second.vocabulary.words[row] for row in new)]
    cutting = first.vocabulary if first.vocabulary.has_subwords else second.vocabulary
    vocabulary = cutting.with_words(words)
    return StaticEmbedder(vocabulary, np.vstack([table, mapped[new]]), dimensions=first.dimensions), quality


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a static model, whose space and dimensions stay")
    parser.add_argument("second", help="another, whose words are brought into that space")
    parser.add_argument("--shared", choices=("mean", "first"), default="mean", help="what words of both get")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    first, second = pellucid.load(arguments.first), pellucid.load(arguments.second)
    made, quality = merge_vocabularies(first, second, shared=arguments.shared)
    made.save_pretrained(arguments.output, dtype="float16")
    print(f"wrote {arguments.output}: {len(made.vocabulary):,} words; the map: {quality}")


if __name__ == "__main__":
    main()
