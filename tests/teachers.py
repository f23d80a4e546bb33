"""Teachers of a few thousand weights, sentences of the words that they know, and how far a model follows them."""

import numpy as np

from tiny_models import tiny_teacher

NOUNS = "cat dog bird tree house river token tokens market price bank loan water stone road".split()
VERBS = "sees likes finds leaves crosses sells buys".split()
PIECES = [".", ",", ":", "the", "a", "query", *NOUNS[:-2], *VERBS, "##s", "##ised", "st", "##one", "ro", "##ad"]


def two_teachers(folder):
    """Return BERTs with random weights, of 16 and of 8 dimensions; the second has a default prompt."""
    first, second = (tiny_teacher(folder / f"{seed}", PIECES, size, seed=seed) for seed, size in enumerate((16, 8)))
    second.prompts, second.default_prompt_name = {"query": "query: "}, "query"
    return first, second


def sentences(count, seed=0):
    """Return distinct little sentences, at most so many."""
    generator = np.random.default_rng(seed)
    made = dict.fromkeys(
        "The {} {} a {}, the {}.".format(*(generator.choice(kind) for kind in (NOUNS, VERBS, NOUNS, NOUNS)))
        for _ in range(count)
    )
    return list(made)


def agreement(first, second):
    """Return the correlation of the cosines of two models' rows."""
    upper = np.triu_indices(len(first), 1)
    return float(np.corrcoef((first @ first.T)[upper], (second @ second.T)[upper])[0, 1])
