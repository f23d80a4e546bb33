"""Tables of WordLlama and model2vec as static models, and several tables in one.

WordLlama and model2vec average the vectors of *tokens*; a `StaticEmbedder` averages the vectors of *words*. A word is
always cut into the same tokens, so the sum of their vectors is its vector, and a sum of words is a sum of tokens. What
is lost in `as_static` is punctuation, which those models count as tokens and this library drops, and words beyond the
given ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pellucid.core.dimensions import Dimensions
from pellucid.core.embedder import Vectors
from pellucid.errors import InputError, shown
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import unspaced_run
from pellucid.text.words import Vocabulary, display_form, is_phrase

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


def merge_static(
    members: Sequence[tuple[str, Any, float]], texts: Iterable[str], dimensions: Dimensions
) -> StaticEmbedder:
    """Return the table of several static models (name, model, weight) side by side; at most 10,000 `texts` count."""
    models = []
    for name, model, _ in members:
        if not isinstance(model, StaticEmbedder):
            raise InputError(f"only static models become one table; {shown(name, 80)} is a {type(model).__name__}")
        models.append(model)
    weighted_models = [model for model, (_, _, weight) in zip(models, members, strict=True) if weight > 0]
    sizes = iter(_typical_lengths(weighted_models, texts))
    factors = [weight**0.5 / next(sizes) if weight > 0 else 0.0 for _, _, weight in members]
    words = list(dict.fromkeys(word for model in models for word in model.vocabulary.words))
    blocks = [_rows(model, words) * np.float32(factor) for model, factor in zip(models, factors, strict=True)]
    cutting = next((model for model in models if model.vocabulary.has_subwords), models[0])
    return StaticEmbedder(cutting.vocabulary.with_words(words), np.hstack(blocks), dimensions=dimensions)


def _rows(model: StaticEmbedder, words: Sequence[str]) -> Vectors:
    """Return the vectors of `words`; one that is several words to `model` has their sum, an unknown one zeros."""
    rows = np.array([model.vocabulary.row(word) for word in words], np.int64)
    vectors = model.word_vectors(np.maximum(rows, 0))
    vectors[rows < 0] = 0
    for index, word in enumerate(words):
        if word not in model.vocabulary and (is_phrase(word) or unspaced_run.search(word)):
            vectors[index] = _sum(model, display_form(word))
    return vectors


def _sum(model: StaticEmbedder, text: str) -> Vectors:
    """Return the sum of the vectors of the words of `text`, float32 [dimension]."""
    rows = [model.vocabulary.row(word.text) for word in model.vocabulary.split(text)]
    total: Vectors = model.word_vectors([row for row in rows if row >= 0]).sum(axis=0)
    return total


def _typical_lengths(models: Sequence[StaticEmbedder], texts: Iterable[str]) -> list[float]:
    """Return for each model the geometric mean of the lengths of the texts' sums, over texts that all of them know."""
    logarithms = []
    for _, text in zip(range(_MAX_SAMPLE_TEXTS), texts):
        lengths = [float(np.linalg.norm(_sum(model, text))) for model in models]
        if all(length > 0 for length in lengths):
            logarithms.append(np.log(lengths))
    if not logarithms:
        raise InputError("none of the texts is known to all parts; give texts such as will be encoded")
    typical: list[float] = np.exp(np.mean(logarithms, axis=0)).tolist()
    return typical
