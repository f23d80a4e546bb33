"""Texts as rows of a static model's table: looked up, counted and averaged, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.text.inputs import check_texts, iterate_texts
from pellucid.text.words import Vocabulary

_CHUNK_TEXTS = 4_096  # texts at a time

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


class RowCounts(NamedTuple):
    """How often a corpus uses each row of a table."""

    counts: Rows  # [words] also by words that find the row by their prefix
    texts: int
    tokens: int  # words of all texts
    tokens_in_vocabulary: int  # of these, how many have a row


def count_rows(vocabulary: Vocabulary, texts: Iterable[str]) -> RowCounts:
    """Count how often `texts` use each row of a table, by the rule used when encoding."""
    counts = np.zeros(len(vocabulary), np.int64)
    remaining, n_texts, n_tokens = iterate_texts(texts), 0, 0
    while chunk := check_texts(islice(remaining, _CHUNK_TEXTS), first=n_texts):
        rows, _ = _word_rows(chunk, vocabulary)
        counts += np.bincount(rows[rows >= 0], minlength=len(counts))
        n_texts, n_tokens = n_texts + len(chunk), n_tokens + len(rows)
    return RowCounts(counts, n_texts, n_tokens, int(counts.sum()))


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
