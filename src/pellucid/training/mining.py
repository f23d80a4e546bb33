"""Hard negatives and a teacher's scores, made with any model: what training rows often lack.

Mining is sentence-transformers' `mine_hard_negatives`, and so are its safeguards: a text that is nearly as near to the
query as its positive may well belong to it, and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.encoders import Encoder, encode_with
from pellucid.errors import InputError, missing_extra
from pellucid.training.data import TrainingRow


class _AsSentenceTransformer:
    """Any encoder with the few methods that mining calls."""

    def __init__(self, encoder: Encoder) -> None:
        import torch

        self.encoder, self.device = encoder, torch.device("cpu")

    def encode_query(self, texts: Sequence[str], **options: Any) -> npt.NDArray[np.float32]:
        return encode_with(self.encoder, list(texts), role="query")

    def encode_document(self, texts: Sequence[str], **options: Any) -> npt.NDArray[np.float32]:
        return encode_with(self.encoder, list(texts), role="document")

    @staticmethod
    def similarity(first: Any, second: Any) -> Any:
        from sentence_transformers.util import dot_score

        return dot_score(first, second)

    @staticmethod
    def similarity_pairwise(first: Any, second: Any) -> Any:
        from sentence_transformers.util import pairwise_dot_score

        return pairwise_dot_score(first, second)


def mine_negatives(
    rows: Sequence[TrainingRow],
    encoder: Encoder,
    *,
    corpus: Iterable[str] = (),
    count: int = 7,
    skip: int = 0,
    margin: float = 0.05,
) -> list[TrainingRow]:
    """Return the rows with the texts nearest to each query, besides those that belong to it, as negatives.

    Args:
        rows: their own `neg` is replaced where anything is found, and kept where not; scores are dropped with it.
        encoder: a SentenceTransformer, a pellucid model, or a callable from texts to an array.
        corpus: texts to look among, besides the rows' positives.
        count: negatives of each row at most.
        skip: pass over so many of the nearest texts, which may belong to the query.
        margin: pass over texts nearer than the row's positive less this part of its cosine.

    Raises:
        InputError: there are no rows, or the encoder gives no vectors.
        MissingExtraError: sentence-transformers or datasets is not installed.
    """
    try:
        from datasets import Dataset
        from sentence_transformers.util import mine_hard_negatives
    except ImportError as error:
        raise missing_extra(error.name or "sentence-transformers", "torch") from error
    if not rows or count < 1:
        raise InputError(f"{len(rows)} rows and {count} negatives of each: there is nothing to mine")
    pairs = Dataset.from_list([{"query": row.query, "text": text} for row in rows for text in row.pos])
    mined = mine_hard_negatives(
        pairs,
        _AsSentenceTransformer(encoder),
        corpus=list(corpus),
        range_min=skip,
        relative_margin=margin,
        num_negatives=count,
        output_format="triplet",
        verbose=False,
    )
    found: dict[str, dict[str, None]] = {}
    for triplet in mined:
        found.setdefault(triplet["query"], {})[triplet["negative"]] = None
    return [
        replace(row, neg=tuple(found[row.query]), pos_scores=None, neg_scores=None) if row.query in found else row
        for row in rows
    ]


def score_rows(
    rows: Sequence[TrainingRow], teacher: Any, *, temperature: float = 0.05, batch_size: int = 32
) -> list[TrainingRow]:
    """Return the rows with a teacher's scores of all their candidates.

    Args:
        rows: any.
        teacher: a CrossEncoder, whose scores are taken as they are, or what `mine_negatives` takes, whose cosines are
            divided by `temperature`: as they are, a softmax over them would be nearly even and teach nothing.
        temperature: of cosines.
        batch_size: pairs that a CrossEncoder reads at once.

    Raises:
        InputError: the teacher gives no numbers, or NaN.
    """
    pairs = [(row.query, text) for row in rows for text in (*row.pos, *row.neg)]
    if callable(getattr(teacher, "predict", None)):
        scores = np.asarray(teacher.predict(pairs, batch_size=batch_size, show_progress_bar=False), np.float64)
        if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
            raise InputError(f"the teacher ({type(teacher).__name__}) gave scores of shape {scores.shape}, or NaN")
    else:
        scores = _cosines(pairs, teacher) / temperature
    scored, start = [], 0
    for row in rows:
        middle, end = start + len(row.pos), start + len(row.pos) + len(row.neg)
        of_pos, of_neg = tuple(scores[start:middle].tolist()), tuple(scores[middle:end].tolist())
        scored.append(replace(row, pos_scores=of_pos, neg_scores=of_neg))
        start = end
    return scored


def _cosines(pairs: Sequence[tuple[str, str]], encoder: Encoder) -> npt.NDArray[np.float64]:
    """Return the cosine of each pair; every text is encoded once."""
    vectors = []
    for role, texts in (("query", [query for query, _ in pairs]), ("document", [text for _, text in pairs])):
        different = list(dict.fromkeys(texts))
        number = {text: n for n, text in enumerate(different)}
        encoded = encode_with(encoder, different, role=role)
        vectors.append(encoded[[number[text] for text in texts]])
    cosines: npt.NDArray[np.float64] = np.einsum("ij,ij->i", vectors[0].astype(np.float64), vectors[1])
    return cosines
