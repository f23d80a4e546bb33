"""Tables of WordLlama and model2vec as static models.

WordLlama and model2vec average the vectors of *tokens*; a `StaticEmbedder` averages the vectors of *words*. A word is
always cut into the same tokens, so the sum of their vectors is its vector, and a sum of words is a sum of tokens. What
is lost in `as_static` is punctuation, which those models count as tokens and this library drops, and words beyond the
given ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary, display_form

_CHUNK_WORDS = 8_192  # words at a time
_MAX_SAMPLE_TEXTS = 10_000  # texts that the balance of merged tables rests on

Floats = npt.NDArray[np.float64]


def as_static(model: Any, words: Sequence[str], *, subwords: Tokenizer | None = None) -> StaticEmbedder:
    """Return another library's table as a static model of `words`.

    Args:
        model: an opened `WordLlama` (also `WordLlamaInference`) or model2vec `StaticModel`.
        words: the words to have rows, such as another model's `vocabulary.words`. In lower case alone, they also
            match their other spellings.
        subwords: a tokenizer for finding unknown words by their prefix; None leaves them unknown.

    Returns:
        A float32 model. A word is cut as at the start of a text; one without a known token has a row of zeros.

    Raises:
        InputError: `model` is neither, or `words` holds none or one twice.
    """
    table, tokenizer = getattr(model, "embedding", None), getattr(model, "tokenizer", None)
    if not isinstance(table, np.ndarray) or table.ndim != 2 or not isinstance(tokenizer, Tokenizer):
        raise InputError(f"as_static takes an opened WordLlama or model2vec StaticModel, got {type(model).__name__}")
    if not words:
        raise InputError("as_static needs at least one word; give another model's vocabulary.words")
    vectors = np.zeros((len(words), table.shape[1]), np.float32)
    plain = Tokenizer.from_str(tokenizer.to_str())  # the model keeps its own
    plain.no_padding()
    plain.no_truncation()
    for start in range(0, len(words), _CHUNK_WORDS):
        chunk = [display_form(word) for word in words[start : start + _CHUNK_WORDS]]
        for row, encoding in enumerate(plain.encode_batch(chunk, add_special_tokens=False), start):
            vectors[row] = _token_vectors(model, table, np.array(encoding.ids, np.int64)).sum(axis=0)
    return StaticEmbedder(Vocabulary(list(words), subwords), vectors)


def _token_vectors(model: Any, table: npt.NDArray[Any], ids: npt.NDArray[np.int64]) -> Vectors:
    """Return the vectors of tokens as the model weighs them, float32 [tokens, d]."""
    unknown = getattr(model, "unk_token_id", None)
    if unknown is not None:  # model2vec leaves them out; WordLlama counts its token for them
        ids = ids[ids != unknown]
    mapping, weights = getattr(model, "token_mapping", None), getattr(model, "weights", None)
    vectors: Vectors = table[ids if mapping is None else mapping[ids]].astype(np.float32)
    return vectors if weights is None else vectors * np.asarray(weights, np.float32)[ids][:, None]
