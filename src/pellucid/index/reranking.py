"""A second stage: the first hits of a search scored again by a model that reads query and passage together.

Its score is a part of the hit's, "rerank", with one row, since it cannot be taken apart. With a weight it stands beside
the parts of the search, whose rows all shrink alike. Without one it takes the place of the score, and is all that the
hit's reasons say; what the search had found there, with its reasons, is `hit.before`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pellucid.errors import InputError, check_integer
from pellucid.index.hits import Hit, Hits
from pellucid.index.models import Weights, checked_weights
from pellucid.index.reasons import Reasons
from pellucid.query import Terms
from pellucid.rows import EMBEDDING, Row

RERANK = "rerank"
"""The name of the part that the second stage is."""


class SecondStage:
    """A function that scores texts for a query, and how it counts.

    Attributes:
        weights: of the search before it; None for those that are set.
        top: how many of the first hits it scores.
    """

    def __init__(self, rerank: Any, top: int, weights: Weights, parts: Sequence[str]) -> None:
        """Take what scores, and the weights of a search.

        Args:
            rerank: a CrossEncoder, or `score(query, texts)`.
            top: see above.
            weights: of the parts; with "rerank" among them its score is one of these, else it replaces the score.
            parts: of the index.
        """
        if not (callable(rerank) or hasattr(rerank, "predict")):
            raise InputError(
                f"rerank is {rerank!r:.60}; give a CrossEncoder, or a function of a query and a list of texts"
            )
        check_integer("rerank_top", top)
        if RERANK in parts:
            raise InputError(f"a model of the index is called {RERANK!r}; rebuild it under another name to use rerank")
        self._rerank, self._name = rerank, str(getattr(rerank, "__name__", type(rerank).__name__))
        self.top, self.weights, self._share = top, weights, 1.0
        if isinstance(weights, Mapping) and RERANK in weights:
            every = checked_weights(weights, [*parts, RERANK], {})
            self._share = every.pop(RERANK)
            if not any(every.values()):
                raise InputError(
                    f"weights name {RERANK!r} alone; name the parts, too, that find the documents, or leave weights "
                    "out: then its score replaces theirs"
                )
            self.weights = every

    def reranked(self, hits: Hits, top_k: int, asked: int) -> Hits:
        """Return the `top_k` best of some hits, by their new scores; equal ones in the old order.

        They are all that there are where fewer were found than `asked` for.
        """
        new = [self._hit(hit, score) for hit, score in zip(hits, self._scores(hits))]
        new.sort(key=lambda hit: -hit.score)
        exact = hits.exact and len(hits) < asked
        weights = self._mixed(hits.weights, self._share)
        return replace(hits, weights=weights, found=tuple(new[:top_k]), exact=exact, reranked=len(hits))

    def _mixed(self, parts: Mapping[str, float], own: float) -> dict[str, float]:
        """Return the parts of before, as far as they count, and the one of the second stage."""
        return {part: (1 - self._share) * value for part, value in parts.items() if self._share < 1} | {RERANK: own}

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

    def _hit(self, hit: Hit, score: float) -> Hit:
        parts = self._mixed(hit.parts, self._share * score)
        total = sum(parts.values())
        return replace(
            hit, score=total, parts=parts, before=hit, _why=partial(self._reasons, hit, total, parts[RERANK])
        )

    def _reasons(self, before: Hit, score: float, own: float) -> Reasons:
        """Return why a hit has its new score: the rows of before, as far as they count, and one more."""
        name, rest = f"the score of {self._name}, not taken apart", 1 - self._share
        row = Row(name, (name,), 0.0, 0.0, key=(name,), kind=EMBEDDING)
        terms: dict[str, Terms] = {}
        if rest:
            for part, one in before.reasons.terms().items():
                terms[part] = one._replace(values=one.values * rest, marks=one.marks * rest)
        terms[RERANK] = Terms(np.array([own]), lambda _: row)
        return Reasons(before.reasons.query, before.reasons.text, score, terms, named=True)
