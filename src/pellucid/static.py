"""Static word embeddings (SWE): a text is the mean of its words' vectors, at length 1.

After Wada et al., "Static Word Embeddings for Sentence Semantic Representation", section 3 and the inference rule of
section 4.1. Because the embedding is a mean, a cosine is exactly a sum over pairs of words, one of each text:

    cos(a, b) = sum over w in a, v in b of  w . v / (n_a n_b |mean a| |mean b|)

This file holds the readable form of encoding; `kernels.py` holds the fast one for many texts, and the tests hold the
two equal. How a model is made is in `extraction.py` and `distill.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder, Vectors
from pellucid.errors import InputError
from pellucid.explanation import Explanation, Row, Span
from pellucid.words import Vocabulary, split_words

_SMALL = 64  # texts; below, the readable path is faster than starting the kernel
_SMALL_CHARACTERS = 100_000
_MOST_WORDS = 2_000  # distinct words in a text that is explained; pairs grow with the square


class _WeightedWords(NamedTuple):
    """A text's distinct words; the rows of `vectors` [words, dimension] add up to its embedding."""

    words: list[str]
    vectors: npt.NDArray[np.float64]
    spans: list[tuple[Span, ...]]
    unknown: tuple[Span, ...]


class StaticEmbedder(Embedder):
    """One vector a word; a text is the mean of its words' vectors, at length 1.

    Attributes:
        vocabulary: the words and the rule that finds a row for any word.
        vectors: float32, float16 or int8 [words, dimension]; may be memory-mapped.
        scales: float32 [words], what an int8 row is multiplied with; None for float tables.
    """

    family: ClassVar[str] = "static"

    def __init__(self, vocabulary: Vocabulary, vectors: npt.NDArray[Any], scales: Vectors | None = None) -> None:
        """Take the table as it is, without copying.

        Raises:
            InputError: the shapes or dtypes do not fit together.
        """
        if vectors.ndim != 2 or vectors.shape[0] != len(vocabulary):
            raise InputError(f"{len(vocabulary)} words need as many vectors, got an array of shape {vectors.shape}")
        if vectors.dtype not in (np.float32, np.float16, np.int8):
            raise InputError(f"vectors are {vectors.dtype}; float32, float16 and int8 tables are known")
        if (vectors.dtype == np.int8) != (scales is not None):
            raise InputError("an int8 table needs scales, one a row, and a float table has none")
        self.vocabulary, self.vectors, self.scales = vocabulary, vectors, scales
        self._bulk: Any = None  # kernels.BulkEncoder, made when first needed

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of an embedding."""
        return int(self.vectors.shape[1])

    def word_vectors(self, rows: npt.NDArray[np.int64] | Sequence[int]) -> Vectors:
        """Return the vectors of table `rows` as float32 [rows, dimension]."""
        rows = np.asarray(rows, dtype=np.int64)
        vectors = self.vectors[rows].astype(np.float32)
        return vectors if self.scales is None else vectors * self.scales[rows][:, None]

    def _encode(self, texts: list[str], *, show_progress_bar: bool) -> Vectors:
        if len(texts) <= _SMALL and sum(map(len, texts)) <= _SMALL_CHARACTERS:
            return self._encode_plainly(texts)
        if self._bulk is None:
            from pellucid.kernels import BulkEncoder  # numba takes a second to import

            self._bulk = BulkEncoder(self.vocabulary, self.vectors, self.scales)
        return self._bulk.encode(texts, show_progress_bar=show_progress_bar)

    def _encode_plainly(self, texts: Sequence[str]) -> Vectors:
        """Encode `texts` as the method is defined; the kernel must agree with this."""
        embeddings = np.zeros((len(texts), self.get_embedding_dimension()), np.float32)
        for embedding, text in zip(embeddings, texts):
            rows = [self.vocabulary.row(word.text) for word in split_words(text)]
            known = [row for row in rows if row >= 0]
            total = self.word_vectors(known).sum(axis=0, dtype=np.float64)  # the length absorbs the mean's 1 / n
            length = np.linalg.norm(total)
            if length > 0:
                embedding[:] = total / length
        return embeddings

    def explain(self, text1: str, text2: str | None = None) -> Explanation:
        """Take apart the cosine of two texts into pairs of words, or one text into its words' pulls.

        For two texts a row is a pair (word of text 1, word of text 2); repeated words are one row. For one text a row
        is a word, and its contribution the part of the embedding's squared length (1) that lies along it.

        Raises:
            InputError: an argument is no string, or a text has more than 2,000 distinct known words.
        """
        first = self._weighted_words(text1)
        if text2 is None:
            pull = first.vectors @ first.vectors.sum(axis=0)
            terms = [
                Row(word, (word,), float(c), 0.0, spans)
                for word, c, spans in zip(first.words, pull, first.spans)
            ]
            return Explanation.from_terms(
                self.family, (text1, None), float(pull.sum()), terms, unknown=(first.unknown, ())
            )
        second = self._weighted_words(text2)
        table = first.vectors @ second.vectors.T  # [words of text 1, words of text 2]
        terms = [
            Row(f"{w} × {v}", (w, v), float(table[i, j]), 0.0, first.spans[i], second.spans[j])
            for i, w in enumerate(first.words)
            for j, v in enumerate(second.words)
        ]
        return Explanation.from_terms(
            self.family, (text1, text2), float(table.sum()), terms, unknown=(first.unknown, second.unknown)
        )

    def _weighted_words(self, text: str) -> _WeightedWords:
        """Return the distinct words of `text` with the vectors that add up to its embedding (float64)."""
        if not isinstance(text, str):
            raise InputError(f"explain takes texts, got {type(text).__name__}")
        spans: dict[int, list[Span]] = {}
        shown: dict[int, str] = {}
        unknown: list[Span] = []
        for word in split_words(text):
            row = self.vocabulary.row(word.text)
            if row < 0:
                unknown.append((word.start, word.end))
            else:
                spans.setdefault(row, []).append((word.start, word.end))
                shown.setdefault(row, word.text)
        if len(spans) > _MOST_WORDS:
            raise InputError(
                f"explain takes texts of at most {_MOST_WORDS} distinct words, this one has {len(spans)}; "
                "explain it in parts"
            )
        rows = list(spans)
        counts = np.array([len(spans[row]) for row in rows], dtype=np.float64)
        vectors = self.word_vectors(rows).astype(np.float64) * counts[:, None]
        length = np.linalg.norm(vectors.sum(axis=0))
        if length > 0:
            vectors /= length
        return _WeightedWords([shown[r] for r in rows], vectors, [tuple(spans[r]) for r in rows], tuple(unknown))

    def nearest_words(self, word_or_text: str, *, top_k: int = 10) -> list[tuple[str, float]]:
        """Return the `top_k` words whose vectors have the highest cosine to a word or text, best first.

        >>> # model.nearest_words("mortgage", top_k=2)  ->  [("mortgage", 1.0), ("mortgages", 0.93)]
        """
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        vectors = self.word_vectors(np.arange(len(self.vocabulary)))
        scores = self.similarity(self.encode(word_or_text), vectors)[0]
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [(self.vocabulary.words[row], float(scores[row])) for row in best]
