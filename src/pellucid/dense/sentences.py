"""Sentences of a passage as parts of its vector: each is encoded alone, one more pass of the encoder for a text.

With c the passage's vector less the mean of all texts, and s_1 ... s_n the vectors of its sentences less the same,

    part of i = (k s_i - m) * spread + m

where k, at least 0, is such that k (s_1 + ... + s_n) fits c best, and m is the mean of k s_1 ... k s_n.

What the parts leave of the score is *context*. The order of the parts is that of the sentences' own similarity; their
sizes are near the Shapley values of leaving sentences out. docs/results-reasons.md has the measurements.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder
from pellucid.core.query import Floats, Terms
from pellucid.core.removal import distinct_rows
from pellucid.dense.reasons import EncoderReasons, Parts
from pellucid.dense.vectors import unit_vectors
from pellucid.explain.rows import SENTENCE, Row
from pellucid.text.sentences import sentence_spans

SPREAD = 1.75
"""How much further apart the parts are than the sentences' vectors: chosen for the sizes of Shapley values, on the
MedQuAD answers and SciFact abstracts of `benchmarks/passages.py` (tag `experiments-2026-11`); it does not change their
order."""


class SentenceReasons(EncoderReasons):
    """The sentences of texts, each encoded alone.

    Attributes:
        encoder: the `EncoderEmbedder`.
        common: the mean vector of texts at length 1, float64 [dimension].
    """

    kind: ClassVar[str] = "sentences"
    has_context: ClassVar[bool] = True
    reads_all: ClassVar[bool] = True

    def __init__(self, encoder: Embedder, common: Floats) -> None:
        """Take an encoder and the mean vector of texts, float64 [dimension], such as that of other reasons."""
        self.encoder, self.common = encoder, common

    def __repr__(self) -> str:
        """Return one line."""
        return f"SentenceReasons({self.encoder!r})"

    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return a part for each sentence that the encoder reads, the last one up to where it stops."""
        end: int = self.encoder.tokenized([text], role)[0].end  # type: ignore[attr-defined]  # an `EncoderEmbedder`
        spans = [(start, min(last, end)) for start, last in sentence_spans(text) if start < end] or [(0, 0)]
        centred = vector - self.common
        parts = centred[None]
        if len(spans) > 1:
            vectors = unit_vectors(self.encoder, [text[slice(*span)] for span in spans], role=role)
            parts = _parts(vectors.astype(np.float64) - self.common, centred)
        rows, holds = distinct_rows(text, spans, SENTENCE)  # a sentence that is repeated is one part
        return Parts(holds @ parts, rows.__getitem__, total=centred)

    def products(self, first: Parts, second: Parts) -> Terms:
        """Return what each sentence of text 2 adds, or of text 1 where text 2 has only one."""
        of_second = len(second.vectors) > 1
        lead, partner_parts = (second, first) if of_second else (first, second)
        total = partner_parts.vectors.sum(axis=0) if partner_parts.total is None else partner_parts.total
        values = lead.vectors @ total

        def row(number: int) -> Row:
            sentence = lead.row(number)
            if len(partner_parts.vectors) == 1:
                partner = partner_parts.row(0)
                pair = (partner, sentence) if of_second else (sentence, partner)
                key = tuple(row.key[0] for row in pair)
                return sentence._replace(spans1=pair[0].spans1, spans2=pair[1].spans1, key=key)
            return sentence._replace(spans1=(), spans2=sentence.spans1) if of_second else sentence

        return Terms(values, row)


def _parts(sentences: Floats, centred: Floats) -> Floats:
    """Return the parts of a passage's centred vector for those of its sentences [sentences, dimension]."""
    total = sentences.sum(axis=0)
    scaled = sentences * (max(0.0, float(total @ centred)) / (float(total @ total) or 1.0))
    mean = scaled.mean(axis=0)
    return np.asarray(mean + SPREAD * (scaled - mean))
