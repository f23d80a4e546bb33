"""Texts as rows of a static model's table: looked up and averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.text.words import Vocabulary

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bags:
    """Sentences as rows of the table: sentence i is `rows[offsets[i] : offsets[i + 1]]`."""

    rows: Rows
    offsets: Rows

    @classmethod
    def from_sentences(cls, sentences: Sequence[str], vocabulary: Vocabulary) -> Bags:
        """Look every word of `sentences` up, by the rule used when encoding; unknown words are left out."""
        row_of = cache(vocabulary.row)
        rows, offsets = list[int](), [0]
        for sentence in sentences:
            rows += (row for word in vocabulary.split(sentence) if (row := row_of(word.text)) >= 0)
            offsets.append(len(rows))
        return cls(np.array(rows, np.int64), np.array(offsets, np.int64))

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.offsets) - 1

    def take(self, sentences: Rows) -> Bags:
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
