"""The vocabulary head: its rows, their tokens, and the tokens that an embedding is nearest to.

The score of token t for embedding h is e_t . h, the head's row times the embedding ("A Text is Worth Several Tokens",
Algorithm 1). A matrix of texts x vocabulary never exists: the head is read in chunks, and only the best k so far are
kept. Equal scores go to the lower id, so the order does not depend on the chunks.

The rows are the backbone's own, or another model's: an embedder is often published without the head of the language
model it was made from. Special tokens, placeholders, lone bytes and rows beyond the tokenizer's last token are never
decoded to; the others are called text tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.core.embedder import Vectors
from pellucid.errors import InputError, check_integer, shown
from pellucid.process import cached_property
from pellucid.transformer.tokenwords import Rank, tokens_of_rows, unused_name

Rows = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
CHUNK_ROWS = 8192  # of the head at a time
BLOCK_EMBEDDINGS = 512
_LOW_32_BITS = np.int64(0xFFFFFFFF)


class TokenHead:
    """One row a token.

    Attributes:
        weight: [V, d], an array or a tensor of torch in any floating type.
        bias: float32 [V] added to the logits, or None.
        spelled: the tokens as the tokenizer spells them, "" where a row has none.
        tokens: how they read.
        shown: int64, the ids of the text tokens, ascending.
    """

    def __init__(self, weight: Any, tokenizer: Any, bias: Any = None) -> None:
        """Put rows [V, d], their bias [V] and tokens together, after checking that they fit."""
        if getattr(weight, "ndim", 0) != 2 or 0 in weight.shape:
            raise InputError(
                f"a head is a matrix [vocabulary, d], such as open_backbone(name).head; got {shown(weight)}"
                f" of shape {list(getattr(weight, 'shape', ()))}"
            )
        self.spelled, self.tokens = tokens_of_rows(int(weight.shape[0]), tokenizer)
        self.weight = weight
        self.bias = None if bias is None else head_rows(bias, 0, len(bias))
        self.shown = np.array([n for n, token in enumerate(self.tokens) if token.rank < Rank.NONE], np.int64)
        if not len(self.shown):
            raise InputError("the tokenizer has no text token")

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.weight.shape[0])

    @property
    def dimension(self) -> int:
        """The length of a row."""
        return int(self.weight.shape[1])

    @cached_property
    def dimensions(self) -> Dimensions:
        """One dimension a row, named as the token reads; `about` holds its spelling in the tokenizer."""
        used_names: set[str] = set()
        items = []
        for token_id, (token, spelling) in enumerate(zip(self.tokens, self.spelled, strict=True)):
            name = token.text or spelling.strip() or f"unused {token_id}"
            if token.rank == Rank.INNER:  # "man" in "fireman", as distinct from the word
                name = f"…{name}"
            items.append(Dimension(unused_name(name, used_names), (spelling,) if spelling else ()))
        return Dimensions(items)

    def top_logits(self, vectors: Vectors, is_known: npt.NDArray[np.bool_], k: int | None, signs: str) -> Any:
        """Return the `k` largest logits of each of the `is_known` vectors, CSR float32 [n, V]; None keeps all."""
        from scipy import sparse

        count = len(self.shown) if k is None else k
        top = self.top(vectors, count)
        values = np.where(is_known[:, None], top.scores, 0)
        if signs == "positive":
            values = np.maximum(values, 0)
        ends = np.arange(len(vectors) + 1) * count
        logits = sparse.csr_matrix((values.ravel(), top.ids.ravel(), ends), shape=(len(vectors), len(self)))
        logits.eliminate_zeros()
        return logits

    def rows(self) -> Vectors:
        """Return all rows, float32 [V, d]."""
        return head_rows(self.weight, 0, len(self))

    def top(self, vectors: Vectors, k: int) -> TopTokens:
        """Return the `k` text tokens that score highest for each vector [n, d], best first."""
        return top_tokens(vectors, self.weight, k, ids=self.shown, bias=self.bias)


class TopTokens(NamedTuple):
    """The first k tokens of each text: `ids` int64 [n, k] and `scores` float32 [n, k], best first."""

    ids: Ids
    scores: Rows


def top_tokens(
    embeddings: npt.ArrayLike,
    head: Any,
    k: int,
    *,
    ids: Ids | None = None,
    bias: Rows | None = None,
    chunk: int = CHUNK_ROWS,
) -> TopTokens:
    """Return the rows of a head that score highest for each embedding (Algorithm 1, lines 6 to 11).

    Args:
        embeddings: float [n, d].
        head: [V, d], an array or a tensor.
        k: rows of each embedding.
        ids: int64, the rows that may be chosen, ascending; None is all.
        bias: float32 [V], added to the scores.
        chunk: rows of the head at a time.

    Raises:
        InputError: the parts do not fit together, `k` is out of range, or a number is not finite.
    """
    rows, blocks = np.asarray(embeddings, np.float32), []
    if rows.ndim != 2 or rows.shape[1] != head.shape[1]:
        raise InputError(
            f"embeddings of shape {rows.shape} do not fit a head of shape {tuple(head.shape)}; the second numbers must "
            "be equal. A head belongs to the backbone that the embeddings come from"
        )
    ids = np.arange(head.shape[0]) if ids is None else ids
    check_integer("k", k, most=len(ids))
    if not np.isfinite(rows).all():
        broken = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise InputError(f"embedding {broken} holds NaN or infinity; leave its text out")
    for first in range(0, max(1, len(rows)), BLOCK_EMBEDDINGS):
        block = rows[first : first + BLOCK_EMBEDDINGS]
        keys = np.zeros((len(block), 0), np.int64)
        for start in range(0, len(ids), chunk):
            chosen = ids[start : start + chunk]
            part = head_rows(head, chosen[0], chosen[-1] + 1)
            part = part if len(part) == len(chosen) else part[chosen - chosen[0]]
            if not np.isfinite(part).all():
                raise InputError(f"the head holds NaN or infinity among its rows {chosen[0]:,} to {chosen[-1]:,}")
            scores = block @ part.T
            keys = largest_keys(keys, scores if bias is None else scores + bias[chosen], chosen, k)
        keys = np.sort(keys, axis=1)[:, ::-1]
        ordered = (keys >> 32).astype(np.int32)
        scores = (ordered ^ ((ordered >> 31) & np.int32(0x7FFFFFFF))).view(np.float32)
        blocks.append((_LOW_32_BITS - (keys & _LOW_32_BITS), scores))
    return TopTokens(*map(np.concatenate, zip(*blocks)))


def head_rows(head: Any, start: int, stop: int) -> Rows:
    """Return rows of a head as float32, whatever holds them."""
    part = head[start:stop]
    if hasattr(part, "detach"):
        part = part.detach().float().cpu().numpy()
    return np.asarray(part, np.float32)


def largest_keys(keys: Ids, scores: Rows, ids: Ids, k: int) -> Ids:
    """Return the `k` largest keys of each text, unordered, among `keys` so far and scores [n, ids]."""
    # A key is one int64 made of a score and the id of its token: keys are ordered by score, then by the lower id.
    bits = (scores + np.float32(0)).view(np.int32)  # -0.0 + 0.0 is 0.0: equal scores have equal bits
    ordered = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
    all_keys = np.concatenate([keys, (ordered << 32) | (_LOW_32_BITS - ids)], axis=1)
    return np.partition(all_keys, all_keys.shape[1] - k, axis=1)[:, -k:] if all_keys.shape[1] > k else all_keys
