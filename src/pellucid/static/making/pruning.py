"""Making a static model smaller by the words that a domain does not use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pellucid.base import unit_rows
from pellucid.errors import InputError
from pellucid.static.bags import RowCounts, count_rows
from pellucid.static.embedder import StaticEmbedder, static_model
from pellucid.text import Vocabulary
from pellucid.views.parts import AnyPart, Column, Heading, Note, TablePart, counted, percent
from pellucid.views.report import Report

_COMPARED = 10_000  # texts whose embeddings are compared before and after


@dataclass(frozen=True, repr=False)
class Pruning(Report):
    """What pruning did to a static model.

    Attributes:
        words_before: size of the vocabulary before.
        words_after: size after.
        bytes_before: size of the table before.
        bytes_after: size after.
        texts: how many the corpus has; 0 without one, and the numbers below are then None.
        coverage_before: share of the corpus's words that had a row.
        coverage_after: share that has one now.
        compared: texts whose embeddings were compared, the first 10,000.
        unchanged: share of them with the same embedding as before.
        mean_cosine: of the embeddings before and after; of texts that both know.
        lost: texts that the model knew and knows no more.
    """

    kind: ClassVar[str] = "vocabulary-pruning"

    words_before: int
    words_after: int
    bytes_before: int
    bytes_after: int
    texts: int
    coverage_before: float | None
    coverage_after: float | None
    compared: int
    unchanged: float | None
    mean_cosine: float | None
    lost: int

    def _parts(self) -> Iterator[AnyPart]:
        yield Heading("Pruned", counted(self.words_after, "word"), "static model")
        heads = (Column(""), Column("before", "number"), Column("after", "number"))
        rows: list[tuple[str, ...]] = [
            ("words", f"{self.words_before:,}", f"{self.words_after:,}"),
            ("table, MB", f"{self.bytes_before / 1e6:.1f}", f"{self.bytes_after / 1e6:.1f}"),
        ]
        if self.coverage_before is not None and self.coverage_after is not None:
            rows.append(
                ("words of the corpus that are known", percent(self.coverage_before), percent(self.coverage_after))
            )
        yield TablePart("", heads, tuple(rows))
        if self.mean_cosine is not None and self.unchanged is not None:
            yield Note(
                f"Of {counted(self.compared, 'text')}, {percent(self.unchanged)} have the embedding they had; the mean "
                f"cosine to it is {self.mean_cosine:.4f}; {self.lost:,} have no known word any more."
            )


def prune(
    model: StaticEmbedder, texts: Sequence[str] | None = None, *, min_count: int = 1, max_words: int | None = None
) -> tuple[StaticEmbedder, Pruning]:
    """Return `model` with only the words that a corpus uses, and a report of what that changes.

    A word that texts find by its prefix counts as used. With `min_count` 1 and no `max_words`, the embeddings of the
    corpus are exactly what they were.

    Args:
        model: a static model; it is not changed.
        texts: the corpus, read more than once; None keeps the first `max_words` of the vocabulary.
        min_count: keep words that the corpus uses so often.
        max_words: keep at most so many, those that the corpus uses most.

    Returns:
        The smaller model, its words in the order they had, and the report.

    Raises:
        InputError: neither a corpus nor `max_words`, a number below 1, or no word is left.
    """
    static_model(model, "pruning")
    if min_count < 1 or (max_words is not None and max_words < 1):
        raise InputError(f"min_count is {min_count} and max_words {max_words}; both are at least 1")
    if texts is None and max_words is None:
        raise InputError("give a corpus, whose words stay, or max_words, or both")
    counted_before = None if texts is None else count_rows(model.vocabulary, texts)
    rows = _kept(len(model.vocabulary), counted_before, min_count, max_words)
    if not len(rows):
        raise InputError(_nothing_left(counted_before, min_count))
    words = [model.vocabulary.words[row] for row in rows.tolist()]
    scales = None if model.scales is None else model.scales[rows]
    vocabulary = Vocabulary(words, model.vocabulary.subwords)
    made = StaticEmbedder(vocabulary, model.vectors[rows], scales, dimensions=model.dimensions, dtype=model.dtype)
    return made, _report(model, made, texts, counted_before)


def _kept(words: int, counts: RowCounts | None, min_count: int, max_words: int | None) -> npt.NDArray[np.int64]:
    """Return the rows that stay, in order."""
    if counts is None:
        return np.arange(words)[:max_words]
    order = np.argsort(-counts.counts, kind="stable")[:max_words]
    return np.sort(order[counts.counts[order] >= min_count])


def _nothing_left(counts: RowCounts | None, min_count: int) -> str:
    if counts is None or not counts.known:
        read, tokens = (counts.texts, counts.tokens) if counts else (0, 0)
        return f"the corpus holds no word that the model knows, in {read:,} texts with {tokens:,} words"
    return f"no word of the model occurs {min_count:,} times in the corpus, the commonest {counts.counts.max():,} times"


def _report(
    before: StaticEmbedder, after: StaticEmbedder, texts: Iterable[str] | None, counts: RowCounts | None
) -> Pruning:
    sizes = (len(before.vocabulary), len(after.vocabulary), _size(before), _size(after))
    if texts is None or counts is None:
        return Pruning(*sizes, 0, None, None, 0, None, None, 0)
    counts_after = count_rows(after.vocabulary, texts)
    sample = list(islice(texts, _COMPARED))
    old, new = (unit_rows(model.encode(sample), np.float64) for model in (before, after))
    cosines = (old * new).sum(axis=1)
    known, still = old.any(axis=1), new.any(axis=1)
    both = known & still
    same = float(np.isclose(old, new, atol=1e-6).all(axis=1).mean())
    mean = float(cosines[both].mean()) if both.any() else None
    shares = (counts.known / max(counts.tokens, 1), counts_after.known / max(counts_after.tokens, 1))
    return Pruning(*sizes, counts.texts, *shares, len(sample), same, mean, int((known & ~still).sum()))


def _size(model: StaticEmbedder) -> int:
    return int(model.vectors.nbytes + (0 if model.scales is None else model.scales.nbytes))
