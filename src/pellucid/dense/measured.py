"""Measured reasons of any encoder: Shapley values of words as vectors, found by leaving words out.

The value of some words of a text is the vector that the encoder gives for the text without the others; of no words it
is `common`, the mean of all texts. The Shapley values are vectors, too, and are the parts of the text: they add up to
its vector less `common`, whatever the encoder is. So the score of two texts less what all texts have in common is the
sum of the products of their parts, without context: what words do together is divided among them. `removal.py` says
which texts are encoded for it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder
from pellucid.core.query import Floats, Terms
from pellucid.core.removal import EMPTY_PART, MAX_VARIANTS, Variants, root_mean_square, standard_errors
from pellucid.dense.reasons import EncoderReasons, Parts
from pellucid.dense.tokenized import TokenizedText, text_units
from pellucid.dense.vectors import check_vector_of_text, unit_vectors
from pellucid.explain.rows import WORD, Measurement, Row
from pellucid.progress import check_cancelled
from pellucid.text.words import Span

_BATCH_TEXTS = 64


def words_to_leave_out(read: TokenizedText) -> list[Span]:
    """Return where the words stand that the encoder reads of a text."""
    unread = set(read.unread)
    return [span for span in text_units(read.text[: read.end]) if span not in unread]


class MeasuredReasons(EncoderReasons):
    """Shapley values of the words of a text, or of phrases of a long one, as vectors in the space of the encoder.

    Attributes:
        encoder: the model whose vectors are taken apart.
        common: the mean vector of texts at length 1, which a text without words is taken to have.
    """

    kind: ClassVar[str] = "measured"
    reads_all: ClassVar[bool] = True  # what the encoder does not read is left as it is

    def __init__(self, encoder: Embedder, common: Floats) -> None:
        """Take a model and the mean vector of texts, float64 [dimension]."""
        self.encoder, self.common = encoder, np.asarray(common, np.float64)

    def __repr__(self) -> str:
        """Return one line: what it costs."""
        return f"MeasuredReasons(at most {MAX_VARIANTS:,} texts encoded for each text)"

    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return a part for each distinct word, or phrase of a long text; the encoder reads up to `MAX_VARIANTS` texts.

        Raises:
            InputError: `vector` is not what the encoder gives for the text in this role.
        """
        read: TokenizedText = self.encoder.tokenized([text], role)[0]  # type: ignore[attr-defined]
        variants = Variants(text[: read.end], words_to_leave_out(read))
        texts = [text, *variants.texts[1:]]
        vectors = self._encoded(list(dict.fromkeys(texts)), role)
        of_sets = np.stack([self.common, *(vectors[variant] for variant in texts)])
        of_sets[~of_sets.any(axis=1)] = self.common  # of a text without a known word
        if vector.any():
            check_vector_of_text(float(vector @ of_sets[1]), text, role)
            of_sets[1] = vector
        if not variants.players:
            row = Row(EMPTY_PART, (EMPTY_PART,), 0.0, 0.0, key=(EMPTY_PART,), kind=WORD)
            return Parts((of_sets[1] - self.common)[None], [row].__getitem__, n_texts=1)
        values, estimates = variants.coalitions.values(of_sets)
        rows, holds = variants.rows()
        return Parts(holds @ values, rows.__getitem__, estimates=holds @ estimates, n_texts=len(vectors))

    def _encoded(self, texts: list[str], role: Role) -> dict[str, Floats]:
        """Return the vector of each text at length 1, float64."""
        vectors = dict[str, Floats]()
        for start in range(0, len(texts), _BATCH_TEXTS):  # a function reads all it is given, however long that takes
            check_cancelled()
            batch = texts[start : start + _BATCH_TEXTS]
            rows = unit_vectors(self.encoder, batch, role=role, dimension=len(self.common))
            vectors.update(zip(batch, rows.astype(np.float64)))
        return vectors

    def products(self, first: Parts, second: Parts) -> Terms:
        """Return what each pair of parts adds to the product of two texts' vectors."""
        whole1, whole2 = first.vectors.sum(axis=0), second.vectors.sum(axis=0)
        errors = np.concatenate([_errors(first, whole2), _errors(second, whole1)])
        measurement = Measurement(first.n_texts + second.n_texts, root_mean_square(errors))
        return super().products(first, second)._replace(measurement=measurement)

    def measurement(self, parts: Parts, vector: Floats) -> Measurement:
        """Return how the parts of one text were measured, where they are multiplied with a vector."""
        return Measurement(parts.n_texts, root_mean_square(_errors(parts, vector)))


def _errors(parts: Parts, vector: Floats) -> Floats:
    """Return the standard error of the product of each part with a vector, float64 [parts]."""
    return standard_errors(parts.vectors[None] @ vector if parts.estimates is None else parts.estimates @ vector)
