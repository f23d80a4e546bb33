"""Fitting a static model's spelling: from then on it has a vector for most words outside its vocabulary."""

from __future__ import annotations

import numpy as np

from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.static.spelling import ngram_weights


def fit_spelling(model: StaticEmbedder) -> StaticEmbedder:
    """Return `model` with spelling: an unknown word gets a vector.

    A word of letters gets it from the known words spelled like it and, where they say little, from its beginning; a
    number or code from its beginning. Each also has a part that is similar to itself alone. Known words keep their
    vectors. Some seconds for 100,000 words; 256 KB more in the folder. Edits of dimensions keep the spelling. Functions
    that change the words or train their vectors return a model without: fit it again.

    Saving it writes out only the `extra_words` given there, not those of the folder that `model` was opened from.

    Args:
        model: a static model; it is not changed.

    Raises:
        InputError: it is not static, or fewer than two of its words are letters alone.

    >>> # fit_spelling(pellucid.load("static-en")).save_pretrained("static-en-spelled")
    """
    static_model(model, "spelling")
    vectors = model.word_vectors(np.arange(len(model.vocabulary)))
    weights = ngram_weights(model.vocabulary.words, vectors)
    dimensions, dtype = model.dimensions, model.dtype
    return StaticEmbedder(
        model.vocabulary, model.vectors, model.scales, dimensions=dimensions, spelling=weights, dtype=dtype
    )
