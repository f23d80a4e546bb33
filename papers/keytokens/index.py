"""Search with key tokens: documents are the tokens they are aligned with, in an inverted index; nothing is trained.

After "A Text is Worth Several Tokens", section 5.1. A document keeps the logits of the K tokens its embedding is most
aligned with (Eq. 15). A query is a set: its own tokens, joined with the M it is most aligned with. The score is the sum
of the document's logits over that set (Eq. 16), so a search reads a few lists of the index and adds.

What the paper leaves open is listed in papers/keytokens/retrieval.md. A ranking near the dense one does not show that
key tokens work: random rows in place of the head give one, too. What `expand=0` finds does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role
from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import KEY_TOKEN, Row
from pellucid.keytokens.embedder import WordSpans, word_rows
from pellucid.keytokens.head import TopTokens
from pellucid.keytokens.states import SIGNS, Signs, own_tokens, state_width
from pellucid.progress import Progress
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import well_formed
from pellucid.transformer.tokenwords import Rank

if TYPE_CHECKING:
    from pellucid.keytokens.embedder import KeyTokenEmbedder

_BLOCK = 1_024  # documents decoded together


class Hit(NamedTuple):
    """A document that was found.

    Attributes:
        document: its number in the list the index was built from.
        score: Eq. 16.
        text: the document.
    """

    document: int
    score: float
    text: str


class KeyTokenIndex:
    """Documents as the tokens they are aligned with, found by those of a query.

    Attributes:
        model: what reads, embeds and decodes; the index belongs to it.
        documents: the texts.
        weights: CSR float32 [V, documents]: the logits that were kept, one list of documents a token.
        top_k: tokens kept of a document, the paper's K.
        signs: which of their logits, as in `build`.
    """

    def __init__(
        self, model: KeyTokenEmbedder, documents: Sequence[str], weights: Any, top_k: int, signs: Signs = "signed"
    ) -> None:
        """Put the parts together; `build` and `load` make them.

        Raises:
            InputError: they do not fit together.
        """
        if model.mixing is not None:
            raise InputError("the dimensions of the model were edited; an index is over its tokens. Give it unedited")
        if weights.shape != (len(model.head), len(documents)):
            raise InputError(
                f"weights of shape {weights.shape} do not fit {len(model.head):,} tokens and "
                f"{len(documents):,} documents"
            )
        self.model, self.documents, self.weights = model, list(documents), weights
        self.top_k, self.signs = top_k, signs

    @classmethod
    def build(
        cls,
        model: KeyTokenEmbedder,
        documents: Iterable[str],
        *,
        top_k: int = 1000,
        signs: Signs = "signed",
        embeddings: Vectors | None = None,
        show_progress_bar: bool = False,
    ) -> KeyTokenIndex:
        """Index documents.

        Args:
            model: with an adjustment fitted where its logits are mostly negative; its own `top_k` does not matter.
            documents: the texts, in the order hits number them by.
            top_k: tokens kept of each, the paper's K; from 1 to the number of text tokens.
            signs: "signed" keeps the logits as they are (Eq. 15), "positive" only those above 0.
            embeddings: float32 [documents, d], what `model.embed(documents, role="document")` gives, where it is known.
            show_progress_bar: show bars, counting documents.

        Raises:
            InputError: `top_k` is out of range, an item is no string, or the embeddings are not of the documents.
        """
        texts = check_texts(documents)
        _check_count("top_k", top_k, 1, len(model.head.shown), model)
        if embeddings is None:
            embeddings = model.embed(texts, role="document", show_progress_bar=show_progress_bar)
        if np.shape(embeddings) != (len(texts), state_width(model.backbone)):
            raise InputError(
                f"embeddings of shape {np.shape(embeddings)} are not of {len(texts):,} documents and "
                f"{state_width(model.backbone)} dimensions; give those of model.embed, one row a document"
            )
        parts = []
        with Progress("decoding", total=len(texts), enabled=show_progress_bar) as progress:
            for start in range(0, len(texts), _BLOCK):
                block = np.asarray(embeddings[start : start + _BLOCK], np.float32)
                known: Any = block.any(axis=1)
                parts.append(posted(model.decode(block, top_k), known, len(model.head), signs))
                progress.advance(len(block))
        return cls(model, texts, inverted(parts, len(model.head)), top_k, signs)

    @classmethod
    def from_top_tokens(
        cls, model: KeyTokenEmbedder, documents: Sequence[str], top: TopTokens, *, signs: Signs = "signed"
    ) -> KeyTokenIndex:
        """Index documents whose tokens `model.decode` has given; the first k columns are those of a smaller K.

        Args:
            model: that decoded them.
            documents: the texts; one without tokens must have scores of 0 throughout, and is in no list.
            top: ids and scores [documents, K].
            signs: as in `build`.

        Raises:
            InputError: there are not as many documents as rows.
        """
        if len(documents) != len(top.ids):
            raise InputError(f"{len(documents):,} documents, and tokens of {len(top.ids):,}; give one row a document")
        known: Any = top.scores.any(axis=1)
        weights = inverted([posted(top, known, len(model.head), signs)], len(model.head))
        return cls(model, check_texts(documents), weights, top.ids.shape[1], signs)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.documents)

    def __repr__(self) -> str:
        """Return one line."""
        return f"<KeyTokenIndex: {len(self):,} documents, {self.top_k:,} tokens each>"

    @overload
    def search(  # type: ignore[overload-overlap]
        self, queries: str, *, top_k: int = 10, expand: int = 50, spellings: bool = False
    ) -> list[Hit]: ...
    @overload
    def search(
        self, queries: Iterable[str], *, top_k: int = 10, expand: int = 50, spellings: bool = False
    ) -> list[list[Hit]]: ...
    def search(
        self, queries: str | Iterable[str], *, top_k: int = 10, expand: int = 50, spellings: bool = False
    ) -> Any:
        """Return the documents with the highest scores, best first; equal scores in the order of the documents.

        Args:
            queries: a query, or several.
            top_k: hits of a query at most; fewer where fewer documents share a token with it.
            expand: how many of the tokens a query is aligned with are joined to its own, the paper's M; 0 for none.
            spellings: let the query's own tokens bring those that read the same but for case and the space before.

        Returns:
            hits of the query, or a list of them for each query.

        Raises:
            InputError: a number is out of range, or a query is no string.
        """
        _check_count("top_k", top_k, 1, None, self.model)
        texts = check_texts([queries] if isinstance(queries, str) else queries)
        found = [self.hits(tokens, top_k) for tokens in self.query_tokens(texts, expand=expand, spellings=spellings)]
        return found[0] if isinstance(queries, str) else found

    def query_tokens(
        self, queries: Sequence[str], *, expand: int = 50, spellings: bool = False, embeddings: Vectors | None = None
    ) -> list[npt.NDArray[np.int64]]:
        """Return the set of tokens of each query (section 5.1): ids, its own first, none twice.

        Args:
            queries: the texts.
            expand: the paper's M.
            spellings: as in `search`.
            embeddings: float32 [queries, d], what `model.embed(queries, role="query")` gives, where it is known.

        Raises:
            InputError: `expand` is out of range, or the embeddings are not of the queries.
        """
        _check_count("expand", expand, 0, len(self.model.head.shown), self.model)
        own = [self._own(ids, spellings) for ids in self._literal(queries)]
        if not expand:
            return [np.array(ids, np.int64) for ids in own]
        rows = (
            self.model.embed(list(queries), role="query") if embeddings is None else np.asarray(embeddings, np.float32)
        )
        if len(rows) != len(queries):
            raise InputError(f"{len(rows)} embeddings are not of {len(queries)} queries")
        aligned = self.model.decode(rows, expand).ids.tolist()
        known: Any = rows.any(axis=1)
        joined = [list(dict.fromkeys([*a, *b])) if k else a for a, b, k in zip(own, aligned, known, strict=True)]
        return [np.array(ids, np.int64) for ids in joined]

    def _literal(self, queries: Sequence[str]) -> list[list[int]]:
        """Return the text tokens of each query, each once."""
        tokens = self.model.head.tokens
        read = [own_tokens(reading) for reading in self.model.encodings(list(queries), "query")]
        return [[n for n in dict.fromkeys(ids) if tokens[n].rank < Rank.NONE] for ids in read]

    def _own(self, ids: list[int], spellings: bool) -> list[int]:
        if not spellings:
            return ids
        tokens = self.model.head.tokens
        return list(dict.fromkeys(m for n in ids for m in (n, *self._spellings.get(tokens[n].text.casefold(), ()))))

    @cached_property
    def _spellings(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, token in enumerate(self.model.head.tokens):
            if token.rank <= Rank.INNER:
                found.setdefault(token.text.casefold(), []).append(number)
        return found

    def scores(self, tokens: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the documents that share a token with a query, and Eq. 16 of each.

        Args:
            tokens: ids, as `query_tokens` gives them.

        Returns:
            int64 [n] numbers of documents, ascending, and float64 [n].
        """
        lists = self.weights[np.asarray(tokens, np.int64)]
        sums: Any = np.bincount(lists.indices, lists.data, minlength=len(self))
        shared = np.zeros(len(self), bool)
        shared[lists.indices] = True
        numbers: npt.NDArray[np.int64] = np.flatnonzero(shared)
        return numbers, sums[numbers]

    def hits(self, tokens: npt.ArrayLike, top_k: int) -> list[Hit]:
        """Return the best documents for a query's tokens, as `search` does."""
        numbers, sums = self.scores(tokens)
        if len(sums) > top_k:
            least = np.partition(sums, len(sums) - top_k)[-top_k]
            numbers, sums = numbers[sums >= least], sums[sums >= least]
        order = np.argsort(-sums, kind="stable")[:top_k]
        return [Hit(int(n), float(s), self.documents[n]) for n, s in zip(numbers[order], sums[order])]

    def additions(self, tokens: npt.ArrayLike) -> int:
        """Return how many logits are added up to score all documents: the lengths of the lists read."""
        return int(np.diff(self.weights.indptr)[np.asarray(tokens, np.int64)].sum())

    def explain(self, query: str, document: str | int, *, expand: int = 50, spellings: bool = False) -> Explanation:
        """Say which tokens give a document its score for a query: a row each, and they add up to it.

        A row with a place in the query (`spans1`) is one of its words; one without was joined to it.

        Args:
            query: the query.
            document: its number in the index, or a text; one that is not in the index is embedded now.
            expand: the paper's M, as in `search`.
            spellings: as in `search`.

        Raises:
            InputError: the number is out of range, or an argument is of another kind.
        """
        tokens = self.query_tokens(check_texts([query]), expand=expand, spellings=spellings)[0]
        text, index, number = self._place(document)
        values = index.weights[tokens][:, [number]].tocoo()
        numbers, logits = tokens[values.row].tolist(), values.data.astype(np.float64).tolist()
        places = [self._places(query, "query"), self._places(text, "document")]
        rows = word_rows(self.model, numbers, logits, places)
        shown = {part for row in rows for part in row.parts}
        names = self.model.head.dimensions.names
        rest = [(names[n], value) for n, value in zip(numbers, logits) if names[n] not in shown]
        rows += [Row(name, (name,), value, 0.0, key=("token", name), kind=KEY_TOKEN) for name, value in rest]
        of_query, unknown1 = self.model.analyze(query, "query").coverage_and_gaps
        of_text, unknown2 = self.model.analyze(text, "document").coverage_and_gaps
        return Explanation.from_terms(
            "key-token index", (query, text), math.fsum(logits), rows, unknown=(unknown1, unknown2),
            coverage=(of_query, of_text),
        )  # fmt: skip

    def _place(self, document: str | int) -> tuple[str, KeyTokenIndex, int]:
        """Return a document's text, an index that holds it, and its number there."""
        if isinstance(document, str):
            if document in self._numbers:
                return document, self, self._numbers[document]
            return document, type(self).build(self.model, [document], top_k=self.top_k, signs=self.signs), 0
        if not isinstance(document, (int, np.integer)) or isinstance(document, bool):
            raise InputError(f"a document is given by its number or its text, got {document!r:.40}")
        if not 0 <= document < len(self):
            raise InputError(f"document {document}; the index holds {len(self):,}, from 0 on")
        return self.documents[document], self, int(document)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {text: number for number, text in reversed(list(enumerate(self.documents)))}

    def _places(self, text: str, role: Role) -> WordSpans:
        reading = self.model.encodings([text], role)[0]
        return WordSpans(well_formed(text), own_tokens(reading), reading.spans, self.model.head.tokens)


def _check_count(name: str, value: Any, least: int, most: int | None, model: KeyTokenEmbedder) -> None:
    if type(value) is int and value >= least and (most is None or value <= most):
        return
    limit = f"or more, got {value!r:.40}"
    if most is not None:
        limit = f"to {most:,}, the text tokens of this model; got {value!r:.40}"
    raise InputError(f"{name} must be a whole number from {least} {limit}")


def posted(top: TopTokens, known: npt.NDArray[np.bool_], width: int, signs: str) -> Any:
    """Return the logits kept of some documents, CSR float32 [documents, V]; a logit of 0 stays a token shared.

    Args:
        top: the documents' tokens.
        known: bool [documents]; the others keep nothing.
        width: V.
        signs: "signed" keeps all, "positive" only those above 0.
    """
    from scipy import sparse

    if signs not in SIGNS:
        raise InputError(f"signs is {signs!r:.40}; it must be one of {', '.join(SIGNS)}")
    kept = np.broadcast_to(known[:, None], top.scores.shape)
    if signs == "positive":
        kept = kept & (top.scores > 0)
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return sparse.csr_matrix((top.scores[kept], top.ids[kept].astype(np.int32), ends), shape=(len(known), width))


def inverted(parts: list[Any], width: int) -> Any:
    """Return blocks of documents as one list a token, CSR float32 [V, documents], each in the documents' order."""
    from scipy import sparse

    empty = sparse.csr_matrix((0, width), dtype=np.float32)
    joined = sparse.vstack([empty, *parts], format="csr", dtype=np.float32)
    return joined.tocsc().T  # the same memory, rows for columns
