"""What inspecting a static model and changing its vocabulary share: its vectors, its words in texts, means of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors, check_texts
from pellucid.errors import InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.making.training import Bags
from pellucid.text import Vocabulary

_BLOCK = 4_096  # texts at a time


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
    while block := check_texts(islice(rest, _BLOCK), first=done):
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
