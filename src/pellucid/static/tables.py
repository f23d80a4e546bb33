"""Static tables: their words in texts, tables from elsewhere, and several tables in one.

WordLlama and model2vec average the vectors of *tokens*; a `StaticEmbedder` averages the vectors of *words*. A word is
always cut into the same tokens, so the sum of their vectors is its vector, and a sum of words is a sum of tokens. What
is lost in `as_static` is punctuation, which those models count as tokens and this library drops, and words beyond the
given ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pellucid.base import Vectors, check_texts
from pellucid.dimensions import Dimensions
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text import Vocabulary, is_phrase, shown_word, unspaced_run

_BLOCK = 8_192  # words at a time
_TEXTS = 4_096  # texts at a time
_MOST_TEXTS = 10_000  # texts that the balance of merged tables rests on

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bags:
    """Sentences as rows of the table: sentence i is `rows[offsets[i] : offsets[i + 1]]`."""

    rows: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[str], vocabulary: Vocabulary) -> Bags:
        """Look every word of `sentences` up, by the rule used when encoding; unknown words are left out."""
        row_of: dict[str, int] = {}
        rows: list[int] = []
        offsets = [0]
        for sentence in sentences:
            for word in vocabulary.split(sentence):
                row = row_of.get(word.text)
                if row is None:
                    row = row_of[word.text] = vocabulary.row(word.text)
                if row >= 0:
                    rows.append(row)
            offsets.append(len(rows))
        return cls(np.array(rows, np.int64), np.array(offsets, np.int64))

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.offsets) - 1

    def take(self, sentences: npt.NDArray[np.int64]) -> Bags:
        """Return the bags of the numbered `sentences`."""
        sizes = self.offsets[sentences + 1] - self.offsets[sentences]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        shift = np.repeat(self.offsets[sentences] - offsets[:-1], sizes)
        return Bags(self.rows[shift + np.arange(offsets[-1])], offsets)

    def means(self, vectors: Vectors) -> Vectors:
        """Return the mean vector of each sentence, float32 [sentences, dimension]; zero for an empty one."""
        from scipy.sparse import csr_matrix

        ones = np.ones(len(self.rows), np.float32)
        counts = csr_matrix((ones, self.rows, self.offsets), shape=(len(self), len(vectors)))
        sizes = np.maximum(np.diff(self.offsets), 1)[:, None].astype(np.float32)
        return np.asarray(counts @ vectors, dtype=np.float32) / sizes


class RowCounts(NamedTuple):
    """How often a corpus uses each row of a table.

    Attributes:
        counts: int64 [words], uses of each row, also by words that find it by their prefix.
        texts: how many were read.
        tokens: words in them.
        known: words among them that have a row.
    """

    counts: npt.NDArray[np.int64]
    texts: int
    tokens: int
    known: int


def static_model(model: Any, doing: str) -> StaticEmbedder:
    """Return `model` if it is a static one.

    Raises:
        InputError: it is not.
    """
    if not isinstance(model, StaticEmbedder):
        raise InputError(f"{doing} needs a static model, one with a vector a word; got {type(model).__name__}")
    return model


def all_vectors(model: StaticEmbedder, first: int | None = None) -> Vectors:
    """Return the vectors of the `first` words, float32 [words, d]; None takes all."""
    return model.word_vectors(np.arange(len(model.vocabulary))[:first])


def text_blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Cut texts into lists of bounded length.

    Raises:
        InputError: `texts` is one string, or an item is no string.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InputError(f"give an iterable of texts, got {texts!r:.60}")
    rest, done = iter(texts), 0
    while block := check_texts(islice(rest, _TEXTS), first=done):
        yield block
        done += len(block)


def mean_blocks(model: StaticEmbedder, texts: Iterable[str]) -> Iterator[tuple[list[str], Vectors]]:
    """Yield the texts that the model knows and the means of their words, float32 [texts, d], of any length.

    Raises:
        InputError: an item is no string.
    """
    every = all_vectors(model)
    for block in text_blocks(texts):
        bags = Bags.of(block, model.vocabulary)
        known = np.flatnonzero(np.diff(bags.offsets))
        yield [block[n] for n in known.tolist()], bags.take(known).means(every)


def count_rows(vocabulary: Vocabulary, texts: Iterable[str]) -> RowCounts:
    """Count how often `texts` use each row of a table, by the rule used when encoding.

    Raises:
        InputError: an item is no string.
    """
    counts = np.zeros(len(vocabulary), np.int64)
    row_of: dict[str, int] = {}
    read = tokens = 0
    for block in text_blocks(texts):
        rows = []
        for text in block:
            for word in vocabulary.split(text):
                row = row_of.get(word.text)
                if row is None:
                    row = row_of[word.text] = vocabulary.row(word.text)
                rows.append(row)
        found = np.array(rows, np.int64)
        counts += np.bincount(found[found >= 0], minlength=len(counts))
        read, tokens = read + len(block), tokens + len(rows)
    return RowCounts(counts, read, tokens, int(counts.sum()))


def as_static(model: Any, words: Sequence[str], *, subwords: Tokenizer | None = None) -> StaticEmbedder:
    """Return another library's table as a static model of `words`.

    Args:
        model: an opened `WordLlama` (also `WordLlamaInference`) or model2vec `StaticModel`.
        words: the words to have rows, such as another model's `vocabulary.words`. In lower case alone, they also stand
            for their other spellings.
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
    plain = _without_padding(tokenizer)
    for start in range(0, len(words), _BLOCK):
        block = [shown_word(word) for word in words[start : start + _BLOCK]]
        for row, found in enumerate(plain.encode_batch(block, add_special_tokens=False), start):
            vectors[row] = _token_vectors(model, table, np.array(found.ids, np.int64)).sum(axis=0)
    return StaticEmbedder(Vocabulary(list(words), subwords), vectors)


def _without_padding(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that neither pads nor cuts; the model goes on with its own."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    return copy


def _token_vectors(model: Any, table: npt.NDArray[Any], ids: npt.NDArray[np.int64]) -> Vectors:
    """Return the vectors of tokens as the model weighs them, float32 [tokens, d]."""
    unknown = getattr(model, "unk_token_id", None)
    if unknown is not None:  # model2vec leaves them out; WordLlama counts what stands for them
        ids = ids[ids != unknown]
    mapping, weights = getattr(model, "token_mapping", None), getattr(model, "weights", None)
    vectors: Vectors = table[ids if mapping is None else mapping[ids]].astype(np.float32)
    return vectors if weights is None else vectors * np.asarray(weights, np.float32)[ids][:, None]


def merge_static(
    parts: Sequence[tuple[str, Any, float]], texts: Iterable[str], dimensions: Dimensions
) -> StaticEmbedder:
    """Return the table of several static models side by side; see `EnsembleEmbedder.merged`.

    Args:
        parts: name, model and weight of each.
        texts: the first 10,000 count.
        dimensions: of all parts together.

    Raises:
        InputError: a part is not static, or no text is known to all parts.
    """
    models = []
    for name, model, _ in parts:
        if not isinstance(model, StaticEmbedder):
            raise InputError(f"only static models become one table; {name!r:.80} is a {type(model).__name__}")
        models.append(model)
    used = [model for model, (_, _, weight) in zip(models, parts, strict=True) if weight > 0]
    sizes = iter(_typical_lengths(used, texts))
    factors = [weight**0.5 / next(sizes) if weight > 0 else 0.0 for _, _, weight in parts]
    words = list(dict.fromkeys(word for model in models for word in model.vocabulary.words))
    blocks = [_rows(model, words) * np.float32(factor) for model, factor in zip(models, factors, strict=True)]
    subwords = next((model.vocabulary.subwords for model in models if model.vocabulary.subwords is not None), None)
    return StaticEmbedder(Vocabulary(words, subwords), np.hstack(blocks), dimensions=dimensions)


def _rows(model: StaticEmbedder, words: Sequence[str]) -> Vectors:
    """Return the vectors of `words`; one that is several words to `model` has their sum, an unknown one zeros."""
    rows = np.array([model.vocabulary.row(word) for word in words], np.int64)
    vectors = model.word_vectors(np.maximum(rows, 0))
    vectors[rows < 0] = 0
    for place, word in enumerate(words):
        if word not in model.vocabulary and (is_phrase(word) or unspaced_run.search(word)):
            vectors[place] = _sum(model, shown_word(word))
    return vectors


def _sum(model: StaticEmbedder, text: str) -> Vectors:
    """Return the sum of the vectors of the words of `text`, float32 [dimension]."""
    rows = [model.vocabulary.row(word.text) for word in model.vocabulary.split(text)]
    total: Vectors = model.word_vectors([row for row in rows if row >= 0]).sum(axis=0)
    return total


def _typical_lengths(models: Sequence[StaticEmbedder], texts: Iterable[str]) -> list[float]:
    """Return for each model the geometric mean of the lengths of the texts' sums, over texts that all of them know."""
    logarithms = []
    for _, text in zip(range(_MOST_TEXTS), texts):
        lengths = [float(np.linalg.norm(_sum(model, text))) for model in models]
        if all(length > 0 for length in lengths):
            logarithms.append(np.log(lengths))
    if not logarithms:
        raise InputError("none of the texts is known to all parts; give texts such as will be encoded")
    typical: list[float] = np.exp(np.mean(logarithms, axis=0)).tolist()
    return typical
