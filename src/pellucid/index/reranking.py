"""A second stage: the first hits of a search scored by what reads query and passage together, as a cross-encoder does.

Its score is a part of the hit's, "rerank", with one row: nobody can take it apart. With a weight it stands beside the
parts of the search, whose rows all shrink alike. Without one it takes the place of the score, and is all that the hit's
reasons say; what the search had found there, with its reasons, is `hit.before`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pellucid.errors import InputError
from pellucid.index.hits import Hit, Hits
from pellucid.index.models import Weights, checked_weights
from pellucid.index.reasons import Reasons
from pellucid.query import Floats, Terms
from pellucid.rows import EMBEDDING, Row

RERANK = "rerank"
"""The name of the part that the second stage is."""


class SecondStage:
    """A function that scores texts for a query, and how it counts.

    Attributes:
        top: how many of the first hits it scores.
        first: the weights of the search before it; None for those that are set.
        share: its own weight, of 1.
    """

    def __init__(self, rerank: Any, top: int, weights: Weights, parts: Sequence[str]) -> None:
        """Take what scores, and the weights of a search.

        Args:
            rerank: a CrossEncoder, or `score(query, texts)`.
            top: see above.
            weights: of the parts; with "rerank" among them its score is one of these, else it replaces the score.
            parts: of the index.

        Raises:
            InputError: one cannot be used.
        """
        if not (callable(rerank) or hasattr(rerank, "predict")):
            raise InputError(
                f"rerank is {rerank!r:.60}; give a CrossEncoder, or a function of a query and a list of texts"
            )
        if not isinstance(top, int) or isinstance(top, bool) or top < 1:
            raise InputError(f"rerank_top is {top!r:.40}; it must be an integer from 1 up")
        if RERANK in parts:
            raise InputError(f"a model of the index is called {RERANK!r}; rebuild it under another name to use rerank")
        self._rerank, self.top, self.first, self.share = rerank, top, weights, 1.0
        if isinstance(weights, Mapping) and RERANK in weights:
            every = checked_weights(weights, [*parts, RERANK], {})
            self.share = every.pop(RERANK)
            if not any(every.values()):
                raise InputError(
                    f"weights name {RERANK!r} alone; name the parts, too, that find the documents, or leave weights "
                    "out: then its score replaces theirs"
                )
            self.first = every

    def reranked(self, hits: Hits, top_k: int, asked: int) -> Hits:
        """Return the best of some hits, by their new scores; equal ones in the old order.

        Args:
            hits: of the search.
            top_k: how many to return.
            asked: how many were asked for; fewer are all that there are.

        Raises:
            InputError: what scores gave no finite number for each text.
        """
        scores = self._scores(hits)
        new = [self._hit(hit, score) for hit, score in zip(hits, scores)]
        new.sort(key=lambda hit: -hit.score)
        weights = {RERANK: 1.0}
        if self.share < 1:
            weights = {part: (1 - self.share) * value for part, value in hits.weights.items()} | {RERANK: self.share}
        return replace(
            hits,
            weights=weights,
            found=tuple(new[:top_k]),
            exact=hits.exact and len(hits) < asked,
            reranked=len(hits),
        )

    def _scores(self, hits: Hits) -> list[float]:
        texts = [f"{hit.title}\n{hit.text}" if hit.title else hit.text for hit in hits]
        if not texts:
            return []
        if hasattr(self._rerank, "predict"):
            given = self._rerank.predict([(hits.query, text) for text in texts])
        else:
            given = self._rerank(hits.query, texts)
        if hasattr(given, "detach"):  # a tensor
            given = given.detach().float().cpu().numpy()
        try:
            scores = np.asarray(given, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the reranker ({self._name}) gave no array of numbers: {error}") from error
        if scores.shape != (len(texts),):
            raise InputError(
                f"the reranker ({self._name}) gave an array of shape {scores.shape} for {len(texts)} texts; it must "
                "give one score a text"
            )
        if (broken := np.flatnonzero(~np.isfinite(scores))).size:
            raise InputError(
                f"the reranker ({self._name}) gave {scores[broken[0]]} for document {hits[int(broken[0])].id!r:.80}"
            )
        return [float(score) for score in scores]

    @property
    def _name(self) -> str:
        return str(getattr(self._rerank, "__name__", type(self._rerank).__name__))

    def _hit(self, hit: Hit, score: float) -> Hit:
        own = {RERANK: self.share * score}
        kept = {part: (1 - self.share) * value for part, value in hit.parts.items()} if self.share < 1 else {}
        parts = kept | own
        total = sum(parts.values())
        why = partial(_reasons, hit, total, self.share, own[RERANK], f"the score of {self._name}, not taken apart")
        return replace(hit, score=total, parts=parts, before=hit, _why=why)


def _reasons(before: Hit, score: float, share: float, own: float, name: str) -> Reasons:
    """Return why a hit has its new score: the rows of before, as far as they count, and one more."""
    row = Row(name, (name,), 0.0, 0.0, key=(name,), kind=EMBEDDING)
    terms = {part: _scaled(terms, 1 - share) for part, terms in before.reasons.terms().items()} if share < 1 else {}
    terms[RERANK] = Terms(np.array([own]), _same(row))
    return Reasons(before.reasons.query, before.reasons.text, score, terms, named=True)


def _scaled(terms: Terms, factor: float) -> Terms:
    values: Floats = terms.values * factor
    return terms._replace(values=values, marks=terms.marks * factor)


def _same(row: Row) -> Callable[[int], Row]:
    return lambda _: row
