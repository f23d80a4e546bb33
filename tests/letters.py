"""A family that is simple enough to check by eye: a text is the counts of its letters."""

from collections import Counter

import numpy as np
import scipy.sparse

from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.core.embedder import Embedder


class LetterEmbedder(Embedder):
    """A text is the counts of its letters a to z, at length 1: simple enough to check by eye."""

    family = "letters"

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        counts = np.zeros((len(texts), 26), np.float32)
        for row, text in zip(counts, texts):
            for letter, count in Counter(text.lower()).items():
                if "a" <= letter <= "z":
                    row[ord(letter) - ord("a")] = count
        lengths = np.linalg.norm(counts, axis=1, keepdims=True)
        return np.divide(counts, lengths, out=counts, where=lengths > 0)

    def get_embedding_dimension(self):
        return 26

    @property
    def dimensions(self):
        return Dimensions(Dimension(chr(97 + i)) for i in range(26))

    def _write(self, folder):
        (folder / "letters.txt").write_text("a to z")
        return {"dimension": 26}

    @classmethod
    def _read(cls, folder, facts):
        assert facts["dimension"] == 26 and (folder / "letters.txt").read_text() == "a to z"
        return cls()


class SparseLetterEmbedder(LetterEmbedder):
    """The same as CSR rows, as the lexicon and key-token families give them."""

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        return scipy.sparse.csr_matrix(
            super()._encode(texts, role, batch_size=batch_size, show_progress_bar=show_progress_bar)
        )
