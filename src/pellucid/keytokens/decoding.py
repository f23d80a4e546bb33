"""Which tokens a text embedding is nearest to: the vocabulary head in chunks, with a running top k.

The score of token t for embedding h is e_t . h, the head's row times the embedding, as in "A Text is Worth Several
Tokens", Algorithm 1. Texts x vocabulary is never a matrix: of each chunk of the head only what can still be among the
first k is kept. Equal scores go to the lower id, so that the order does not depend on the chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError

Rows = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_CHUNK = 8192  # rows of the head at a time
_TEXTS = 512  # embeddings at a time
_LOW = np.int64(0xFFFFFFFF)


class TopTokens(NamedTuple):
    """The first k tokens of each text: `ids` int64 [n, k] and `scores` float32 [n, k], best first."""

    ids: Ids
    scores: Rows


def top_tokens(embeddings: npt.ArrayLike, head: Any, k: int, *, chunk: int = _CHUNK) -> TopTokens:
    """Return the `k` tokens that score highest for each embedding (Algorithm 1, lines 6 to 11).

    Args:
        embeddings: [n, d] numbers.
        head: [V, d], an array or a tensor of torch in any floating type; it is read in chunks.
        k: from 1 to V.
        chunk: rows of the head at a time.

    Raises:
        InputError: `k` is out of range, the widths differ, or an embedding or the head holds NaN or infinity.
    """
    rows = checked(embeddings, head, k)
    tops = [next(block) for block in _blocks(rows, head, k, np.zeros(1), None, chunk)]
    if not tops:
        return TopTokens(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32))
    return TopTokens(np.concatenate([top.ids for top in tops]), np.concatenate([top.scores for top in tops]))


def shifted_top_tokens(
    embeddings: npt.ArrayLike,
    head: Any,
    k: int,
    direction: npt.ArrayLike,
    amounts: Sequence[float],
    *,
    chunk: int = _CHUNK,
) -> list[TopTokens]:
    """Return the top tokens of h + amount x direction for each amount, with one pass over the head for all of them.

    The scores are E h + amount (E direction), which is E (h + amount direction) up to rounding.

    Args:
        embeddings: [n, d].
        head: [V, d], as in `top_tokens`.
        k: from 1 to V.
        direction: [d].
        amounts: how much of the direction is added; at least one.
        chunk: rows of the head at a time.

    Raises:
        InputError: as in `top_tokens`, or there is no amount.
    """
    if not len(amounts):
        raise InputError("no amount to shift by; give at least one, such as [0.0]")
    rows, along = checked(embeddings, head, k), np.asarray(direction, np.float32)
    if along.shape != rows.shape[1:]:
        raise InputError(f"the direction has shape {along.shape}; the embeddings are {rows.shape[1]} wide")
    by_block = [list(block) for block in _blocks(rows, head, k, np.asarray(amounts, np.float32), along, chunk)]
    if not by_block:
        return [TopTokens(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32))] * len(amounts)
    return [TopTokens(*map(np.concatenate, zip(*tops))) for tops in zip(*by_block)]


def checked(embeddings: npt.ArrayLike, head: Any, k: int) -> Rows:
    """Return the embeddings as float32 [n, d] after checking that they and `k` fit the head.

    Raises:
        InputError: they do not.
    """
    rows = np.asarray(embeddings, np.float32)
    if rows.ndim != 2 or rows.shape[1] != head.shape[1]:
        raise InputError(
            f"embeddings of shape {rows.shape} do not fit a head of shape {tuple(head.shape)}; the second numbers must "
            "be equal. A head belongs to the backbone that the embeddings come from"
        )
    if type(k) is not int or not 1 <= k <= head.shape[0]:
        raise InputError(f"k is {k!r:.40}; it must be a whole number from 1 to the {head.shape[0]:,} rows of the head")
    if not np.isfinite(rows).all():
        broken = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise InputError(f"embedding {broken} holds NaN or infinity; leave its text out")
    return rows


class BiasedHead:
    """A head with its bias as one more column, for embeddings with a 1 behind them; read in slices."""

    def __init__(self, weight: Any, bias: npt.ArrayLike) -> None:
        """Take rows [V, d] and a bias [V]."""
        self._weight, self._bias = weight, np.asarray(bias, np.float32)
        self.shape = (weight.shape[0], weight.shape[1] + 1)

    def __getitem__(self, part: slice) -> Rows:
        """Return rows float32 [n, d + 1]."""
        return np.column_stack([head_rows(self._weight, part.start, part.stop), self._bias[part]])


def head_rows(head: Any, start: int, stop: int) -> Rows:
    """Return rows of a head as float32, whatever holds them."""
    part = head[start:stop]
    if hasattr(part, "detach"):
        part = part.detach().float().cpu().numpy()
    return np.asarray(part, np.float32)


def _blocks(
    rows: Rows, head: Any, k: int, amounts: Any, direction: Rows | None, chunk: int
) -> Iterator[Iterator[TopTokens]]:
    """Yield for each block of texts the top tokens at each amount."""
    for first in range(0, len(rows), _TEXTS):
        block = rows[first : first + _TEXTS]
        kept = [np.zeros((len(block), 0), np.int64) for _ in amounts]
        for start in range(0, head.shape[0], chunk):
            part = head_rows(head, start, start + chunk)
            if not np.isfinite(part).all():
                raise InputError(
                    f"the head holds NaN or infinity among its rows {start:,} to {start + len(part) - 1:,}"
                )
            scores = block @ part.T  # [texts, chunk]
            along = None if direction is None else part @ direction
            for n, amount in enumerate(amounts):
                moved = scores if along is None else scores + amount * along
                kept[n] = _first(np.concatenate([kept[n], _keys(moved, start)], axis=1), k)
        yield (_top(keys) for keys in kept)


def _keys(scores: Rows, start: int) -> Ids:
    """Return one int64 for each score and id, ordered by score, then by the lower id."""
    bits = (scores + np.float32(0)).view(np.int32)  # -0.0 + 0.0 is 0.0: equal scores have equal bits
    ordered = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
    ids = np.arange(start, start + scores.shape[1], dtype=np.int64)
    keys: Ids = (ordered << 32) | (_LOW - ids)
    return keys


def _first(keys: Ids, k: int) -> Ids:
    """Return the `k` largest keys of each row, in no order."""
    return np.partition(keys, keys.shape[1] - k, axis=1)[:, -k:] if keys.shape[1] > k else keys


def _top(keys: Ids) -> TopTokens:
    """Return what the keys stand for, best first."""
    keys = np.sort(keys, axis=1)[:, ::-1]
    ordered = (keys >> 32).astype(np.int32)
    scores = (ordered ^ ((ordered >> 31) & np.int32(0x7FFFFFFF))).view(np.float32)
    return TopTokens(_LOW - (keys & _LOW), scores)
