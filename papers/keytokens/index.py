"""Search with key tokens: documents are the tokens they are aligned with, in an inverted index; nothing is trained.

After "A Text is Worth Several Tokens", section 5.1. A document keeps the logits of the K tokens its embedding is most
aligned with (Eq. 15). A query is a set: its own tokens, joined with the M it is most aligned with. The score is the sum
of the document's logits over that set (Eq. 16), so a search reads a few lists of the index and adds.

What the paper leaves open is listed in papers/keytokens/retrieval.md. A ranking near the dense one does not show that
key tokens work: random rows in place of the head give one, too. What a query's own tokens find alone does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.head import TopTokens
from pellucid.keytokens.states import own_tokens
from pellucid.transformer.tokenwords import Rank

OWN, ALIGNED, BOTH = "own", "aligned", "both"


class Cell(NamedTuple):
    """How documents are searched: which tokens of a query count, K tokens of a document, M aligned ones of a query."""

    which: str
    k: int
    m: int


class KeyTokenIndex:
    """Documents as the tokens they are aligned with, found by those of a query.

    Attributes:
        weights: CSR float32 [V, documents]: the logits that were kept, one list of documents a token.
    """

    def __init__(self, top: TopTokens, n_tokens: int) -> None:
        """Take what `KeyTokenEmbedder.decode` gives of each document, [documents, K]; a row of zeros is in no list."""
        from scipy import sparse

        has_tokens = top.scores.any(axis=1)
        ends = np.concatenate([[0], np.cumsum(has_tokens * top.ids.shape[1])])
        parts = (top.scores[has_tokens].ravel(), top.ids[has_tokens].ravel().astype(np.int32), ends)
        self.weights: Any = sparse.csr_matrix(parts, shape=(len(top.ids), n_tokens)).tocsc().T  # rows for columns

    def scores(self, tokens: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the documents that share a token with a set of tokens, int64 [n] ascending, and Eq. 16 of each."""
        lists = self.weights[np.asarray(tokens, np.int64)]
        sums: Any = np.bincount(lists.indices, lists.data, minlength=self.weights.shape[1])
        shared = np.zeros(self.weights.shape[1], bool)
        shared[lists.indices] = True
        documents: npt.NDArray[np.int64] = np.flatnonzero(shared)
        return documents, sums[documents]

    def hits(self, tokens: Sequence[int], top_k: int = 10) -> list[tuple[int, float]]:
        """Return the documents with the highest scores, best first; equal scores in the order of the documents."""
        documents, sums = self.scores(tokens)
        if len(sums) > top_k:
            least = np.partition(sums, len(sums) - top_k)[-top_k]
            documents, sums = documents[sums >= least], sums[sums >= least]
        order = np.argsort(-sums, kind="stable")[:top_k]
        return list(zip(documents[order].tolist(), sums[order].tolist()))

    def additions(self, tokens: Sequence[int]) -> int:
        """Return how many logits are added up to score all documents: the lengths of the lists read."""
        return int(np.diff(self.weights.indptr)[np.asarray(tokens, np.int64)].sum())


def query_tokens(
    model: KeyTokenEmbedder, queries: Sequence[str], embeddings: Vectors, cells: Sequence[Cell]
) -> dict[Cell, list[list[int]]]:
    """Return for each cell the set of text tokens of each query (section 5.1): ids, its own first, none twice.

    Args:
        model: what reads and decodes, adjusted.
        queries: the texts.
        embeddings: float32 [queries, d], what `model.embed(queries, role="query")` gives.
        cells: how to search; an M of 0 is for a query's own tokens.
    """
    read = [own_tokens(encoding) for encoding in model.encodings(list(queries), "query")]
    own = [[n for n in dict.fromkeys(ids) if model.head.tokens[n].rank < Rank.NONE] for ids in read]
    longest = max(cell.m for cell in cells)
    aligned = model.decode(embeddings, longest).ids.tolist() if longest else [[] for _ in own]
    aligned = [ids if row.any() else [] for ids, row in zip(aligned, embeddings, strict=True)]

    def chosen(cell: Cell, own_ids: list[int], aligned_ids: list[int]) -> list[int]:
        parts = {OWN: own_ids, ALIGNED: aligned_ids[: cell.m], BOTH: [*own_ids, *aligned_ids[: cell.m]]}
        return list(dict.fromkeys(parts[cell.which]))

    return {cell: [chosen(cell, *ids) for ids in zip(own, aligned, strict=True)] for cell in cells}


def searches(
    model: KeyTokenEmbedder, queries: Sequence[str], rows: tuple[Vectors, Vectors], cells: Sequence[Cell]
) -> Iterator[tuple[Cell, KeyTokenIndex, list[list[int]]]]:
    """Yield each cell, those of one K together, with the index to search and the tokens of each query.

    Args:
        model: what reads and decodes, adjusted.
        queries: the texts.
        rows: embeddings of the queries and of the documents, not adjusted.
        cells: how to search.
    """
    top = model.decode(rows[1], max(cell.k for cell in cells))
    tokens = query_tokens(model, queries, rows[0], cells)
    for k in dict.fromkeys(cell.k for cell in cells):
        index = KeyTokenIndex(TopTokens(top.ids[:, :k], top.scores[:, :k]), len(model.head))
        yield from ((cell, index, tokens[cell]) for cell in cells if cell.k == k)
