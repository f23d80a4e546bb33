"""A `MultiVectorEncoder` of sentence-transformers (late interaction, ColBERT) as an `Embedder`: a vector a token.

A score is MaxSim: the sum over the tokens of the first text, a query, of the largest product with a token of the second
one. So it splits exactly over the tokens of the query, and each is shown with what it matches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import Role, TokenVectors, flattened, largest_products, match_container
from pellucid.core.query import EMPTY_TERMS, Query, Terms
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.tokenized import prompt_of
from pellucid.explain.rows import CONTEXT, WORD, Row
from pellucid.process import lock_of
from pellucid.text.unicode import canonicalize_with_offsets
from pellucid.text.words import Span, split_words


class VectorToken(NamedTuple):
    """The word of a vector, and where it stands; for a token of no word, such as [CLS], its own name."""

    name: str
    spans: tuple[Span, ...] = ()


class MultiVectorQuery(Query):
    """A text as a MultiVectorEncoder reads it."""

    def terms(self, other_query: Query | None = None) -> Terms:
        """Take the similarity to another text apart; None takes that to the text itself."""
        other_text_query = other_query or self
        rows = self.model.similarity_rows(other_text_query.vector)
        return self.against(
            [other_text_query.text], rows, weight=self.model.token_share(self.unit), role=other_text_query.role
        )(0)

    def against(
        self, texts: Sequence[str], rows: TokenVectors, *, weight: float = 1.0, role: Role = "document"
    ) -> Callable[[int], Terms]:
        """Return a function from number to terms of each text, of which `rows` are the vectors."""
        tokens = self.model.tokens(self.text, self.role, len(self.unit))
        names = dict.fromkeys(token.name if token.spans else "" for token in tokens)
        numbers = [[n for n, token in enumerate(tokens) if (token.name * bool(token.spans)) == name] for name in names]

        def terms(text: int) -> Terms:
            if not len(rows[text]):
                return EMPTY_TERMS
            products = self.unit.astype(np.float64) @ rows[text].T.astype(np.float64)
            best, values, matched = (
                products.argmax(axis=1),
                products.max(axis=1),
                self.model.tokens(texts[text], role, len(rows[text])),
            )

            def row(term: int) -> Row:
                of_term = sorted(numbers[term], key=lambda n: -values[n])
                return _row([tokens[n] for n in of_term], [matched[best[n]] for n in of_term])

            return Terms(np.array([values[of_term].sum() for of_term in numbers]) * weight, row)

        return terms


class MultiVectorEmbedder(EncoderEmbedder):
    """A MultiVectorEncoder, with the methods of every other model; a row of an explanation is a word of text 1.

    Embeddings are `TokenVectors`: an array of objects [texts], each float32 [tokens, dimension].
    """

    family: ClassVar[str] = "multi-vector"
    query_type: ClassVar[type[Query]] = MultiVectorQuery
    truncates: ClassVar[bool] = False
    reads_texts: ClassVar[bool] = True

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Any:
        method = getattr(self.model, f"encode_{role}" if role else "encode")
        with lock_of(self.model):
            return self.similarity_rows(method(texts, batch_size=batch_size, show_progress_bar=show_progress_bar))

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a token's vector."""
        return int(self.model.get_embedding_dimension())

    @property
    def similarity_fn_name(self) -> str:  # type: ignore[override]
        """The model's: "maxsim", or "meanmaxsim", which is divided by the number of the query's tokens."""
        return str(self.model.similarity_fn_name)

    def similarity_rows(self, embeddings: Any) -> TokenVectors:
        """Return embeddings, of one text or of several, as `TokenVectors`."""
        several = [embeddings] if getattr(embeddings, "ndim", 1) == 2 else embeddings
        rows = (row.float().cpu().numpy() if hasattr(row, "detach") else np.asarray(row, np.float32) for row in several)
        return np.fromiter(rows, np.object_, len(several))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return MaxSim of each query of `embeddings1` and each text of `embeddings2`, float32 [queries, texts]."""
        queries, texts = self.similarity_rows(embeddings1), flattened(self.similarity_rows(embeddings2))
        scores = [self.token_share(query) * largest_products(query, *texts).sum(axis=1) for query in queries]
        return match_container((embeddings1, embeddings2), np.array(scores, np.float32))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return MaxSim of each query of `embeddings1` and the same text of `embeddings2`, float32 [texts]."""
        pairs = zip(self.similarity_rows(embeddings1), self.similarity_rows(embeddings2), strict=True)
        scores = np.array([self.similarity(*pair).item() for pair in pairs], np.float32)
        return match_container((embeddings1, embeddings2), scores)

    def token_share(self, query: npt.NDArray[np.float32]) -> float:
        """Return what the product of a query's token counts in the similarity."""
        return 1 / max(len(query), 1) if self.similarity_fn_name == "meanmaxsim" else 1.0

    def tokens(self, text: str, role: Role, n_vectors: int) -> list[VectorToken]:
        """Return the word of each vector of a text, without a pass; only numbers where the model pools tokens."""
        form, prompt = canonicalize_with_offsets(text), prompt_of(self.model, role)
        with lock_of(self.model):
            features = self.model.preprocess([form.text], prompt=prompt, task=role)
            for module in self.model:
                if type(module).__name__ == "MultiVectorMask":  # says which tokens count
                    features = module(features, task=role)
            backend = getattr(self.tokenizer, "backend_tokenizer", None)
            encoding = backend and backend.encode(prompt + form.text)
        ids, spans, words = features["input_ids"][0].tolist(), {}, split_words(text)
        for number, (id, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets) if encoding else ()):
            if number < len(ids) and id == ids[number] and end > start >= len(prompt):
                span = form.span(start - len(prompt), end - len(prompt))
                in_word = [(word.start, word.end) for word in words if word.start < span[1] and word.end > span[0]]
                spans[number] = in_word[0] if in_word else span
        tokens = [
            VectorToken(text[slice(*spans[number])], (spans[number],)) if number in spans else VectorToken(str(name))
            for number, name in enumerate(self.tokenizer.convert_ids_to_tokens(ids))
        ]
        scored = [token for token, counts in zip(tokens, features["attention_mask"][0].tolist()) if counts]
        return scored if len(scored) == n_vectors else [VectorToken(f"vector {n}") for n in range(n_vectors)]


def _row(tokens: Sequence[VectorToken], matched: Sequence[VectorToken]) -> Row:
    """Return the row of the tokens of a word of the query, or of those of no word, the best match first."""
    spans = [tuple(dict.fromkeys(span for token in side for span in token.spans)) for side in (tokens, matched)]
    if not tokens[0].spans:
        name = f"{', '.join(dict.fromkeys(token.name for token in tokens))} (of no word)"
        return Row(name, (name,), 0.0, 0.0, (), spans[1], (), (CONTEXT,), CONTEXT)
    word, match = tokens[0].name, matched[0].name
    name = word if word.lower() == match.lower() else f"{word} ~ {match}"
    return Row(name, (word,), 0.0, 0.0, spans[0], spans[1], (), (word,), WORD)
