"""Texts as rows of a static model's table: looked up and averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        rows, offsets = _word_rows(sentences, vocabulary)
        in_vocabulary = rows >= 0
        return cls(rows[in_vocabulary], np.concatenate([[0], np.cumsum(in_vocabulary)])[offsets])

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


def _word_rows(texts: Sequence[str], vocabulary: Vocabulary) -> tuple[Rows, Rows]:
    """Return the row of every word of `texts`, -1 for an unknown one, and where each text begins and the last ends."""
    row_by_word: dict[str, int] = {}
    rows: list[int] = []
    offsets = [0]
    for text in texts:
        for word in vocabulary.split(text):
            row = row_by_word.get(word.text)
            if row is None:
                row = row_by_word[word.text] = vocabulary.row(word.text)
            rows.append(row)
        offsets.append(len(rows))
    return np.array(rows, np.int64), np.array(offsets, np.int64)
