"""A question to an index: its vectors, the best passages, and what takes their scores apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pellucid.errors import InputError
from pellucid.index.bm25 import query_weights
from pellucid.index.documents import PASSAGE_BITS, Document, Documents, State
from pellucid.index.engine import Engine, Vector, Where
from pellucid.index.hits import Hit
from pellucid.index.models import BM25, Model
from pellucid.index.reasons import Bm25Reader, PairReader, Passages, Reader, Reasons, Terms, reader_of
from pellucid.index.words import Words, spans_by

_CANDIDATES, _MOST_CANDIDATES = 20, 12_800  # passages that each part brings; more until the result is certain
_TOGETHER = 10  # hits whose reasons are read at once

Products = dict[str, dict[int, float]]
"""Part -> number of a passage -> what the part adds to its score."""


class Parts(NamedTuple):
    """What a question is asked of, at one moment; `current` says which engine is open when its reasons are read."""

    words: Words
    models: Mapping[str, Model]
    documents: Documents
    state: State
    engine: Engine
    current: Callable[[], Engine]


class Question:
    """A query with the weights of the parts."""

    def __init__(
        self, query: str, weights: dict[str, float], parts: Parts, factors: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Encode the query for each part that counts; `factors` are what its words count."""
        self.query, self.shares, self._of, self._factors = query, weights, parts, factors
        self.weights = {part: weight for part, weight in weights.items() if weight > 0}
        self._vectors: dict[str, Vector] = {}  # times their weights, so that products are parts of the score
        self._readers: dict[str, Reader] = {}  # of the same parts
        self._found: list[tuple[int, str]] = []  # the hits: number and text of the passage
        self._read: dict[int, tuple[Passages, dict[str, Callable[[int], Terms]]]] = {}  # hits whose reasons were read
        for name in self.weights:
            if name == BM25:
                self._ask_bm25()
            elif parts.models[name].is_static:
                self._ask_static(name)
            else:
                self._ask(parts.models[name])

    def _ask_bm25(self) -> None:
        words, places = self._of.words, spans_by(self._of.words.analyser.places(self.query))
        known = self._of.documents.passages_with(places)
        counts = {term: len(places[term]) for term in known}
        having = {term: passages for term, (_, passages) in known.items()}
        weights = query_weights(counts, having, self._of.state.passages, self.weights[BM25])
        for word, factor in self._factors.items():
            scaled = weights.keys() & words.analyser.terms(word)
            weights |= {term: factor * weights[term] for term in scaled}
        if weights:
            numbers = np.array([known[term][0] for term in weights])
            self._vectors[BM25] = (numbers, np.array(list(weights.values()), np.float32))
            self._readers[BM25] = Bm25Reader(words, self.query, places, weights, self._of.state.average)

    def _ask_static(self, name: str) -> None:
        reader = PairReader(name, self._of.words, self.query, self.weights[name], self._factors)
        vector = reader.summed()
        if vector.any():
            self._vectors[name], self._readers[name] = vector, reader

    def _ask(self, model: Model) -> None:
        name, vector = model.name, model.vectors([self.query], "query")[0]
        if vector is not None:
            weight = np.float32(self.weights[name])
            self._vectors[name] = (vector[0], vector[1] * weight) if isinstance(vector, tuple) else vector * weight
            self._readers[name] = reader_of(model, self.query, vector, self.weights[name])

    def search(self, top_k: int, where: Where) -> tuple[list[Hit], bool]:
        """Return the best documents, and whether no other can be better.

        Each part brings its best passages; what another part has brought gets its product with this one. What no part
        has brought scores at most the last of each list together. Unless the hits are above that, one part brings more:
        its last becomes smaller, and so does the sum.
        """
        engine, limit = self._of.engine, max(_CANDIDATES, 2 * top_k)
        products: Products = {name: {} for name in self._vectors}
        limits, last, every = dict.fromkeys(self._vectors, limit), dict[str, float](), set[int]()
        asked = list(self._vectors)
        while True:
            lists = engine.search({name: self._vectors[name] for name in asked}, limit, where) if asked else {}
            for name, found in lists.items():
                every.update(point for point, product in found.items() if product)
                products[name] |= found
                last.pop(name, None)
                if len(found) == limit:  # else these are all that have a product
                    last[name] = max(min(found.values()), 0.0)
            missing = {name: every.difference(products[name]) for name in last}
            for name, more in engine.products(self._vectors, missing).items():
                products[name] |= more
            hits = self._known(products, _best_passages(_sums(products, every)), top_k)
            certain = not last or (len(hits) == top_k and hits[-1].score >= sum(last.values()))
            asked = [name for name in last if limits[name] < _MOST_CANDIDATES]
            if certain or not asked:
                return hits, certain
            asked = [max(asked, key=lambda name: (isinstance(self._vectors[name], tuple), last[name]))]  # sparse: quick
            limit = limits[asked[0]] = 4 * limits[asked[0]]

    def score(self, document: Document) -> Hit:
        """Return one document as a hit."""
        wanted = {name: list(document.points()) for name in self._vectors}
        products = self._of.engine.products(self._vectors, wanted)
        best = _best_passages(_sums(products, document.points()))
        return self._hit(products, document, best[0])

    def _known(self, products: Products, best: list[int], top_k: int) -> list[Hit]:
        """Return the first `top_k` passages that are part of a document: others are not committed, or were removed."""
        hits: list[Hit] = []
        self._found = []
        waiting = iter(best)
        with self._of.documents.lock:  # all of it before or after a commit
            while len(hits) < top_k and (block := list(islice(waiting, top_k - len(hits)))):
                found = {d.number: d for d in self._of.documents.by_number([point >> PASSAGE_BITS for point in block])}
                known = [(found[point >> PASSAGE_BITS], point) for point in block if point >> PASSAGE_BITS in found]
                hits += [self._hit(products, document, point) for document, point in known]
        return hits

    def _hit(self, products: Products, document: Document, point: int) -> Hit:
        passage = point & ((1 << PASSAGE_BITS) - 1)
        parts = {name: products[name].get(point, 0.0) if name in products else 0.0 for name in self.weights}
        score = sum(parts.values())
        self._found.append((point, document.indexed(passage)))
        return Hit(
            document.id,
            score,
            document.title,
            document.passage(passage),
            document.metadata,
            parts,
            passage,
            document.ends[passage - 1] if passage else 0,
            partial(self._reasons, len(self._found) - 1, score),
        )

    def _passages(self, block: int) -> tuple[Passages, dict[str, Callable[[int], Terms]]]:
        """Return some neighbouring hits, and what gives the terms of each part of their scores."""
        points, texts = zip(*self._found[block * _TOGETHER : (block + 1) * _TOGETHER])
        names = [name for name, reader in self._readers.items() if reader.needs_vector]
        stored = self._of.current().vectors(points, names) if names else {point: {} for point in points}
        passages = Passages(list(texts), [stored.get(point) for point in points], self._of.words)
        return passages, {name: reader.read(passages) for name, reader in self._readers.items()}

    def _reasons(self, number: int, score: float) -> Reasons:
        """Return why a hit has its score."""
        block, place = divmod(number, _TOGETHER)
        if block not in self._read:  # two threads may both read it
            self._read[block] = self._passages(block)
        passages, readers = self._read[block]
        if passages.vectors[place] is None:
            raise InputError("the document was changed or removed since the search; search again")
        terms = {name: terms_of(place) for name, terms_of in readers.items()}
        return Reasons(self.query, passages.texts[place], score, terms, named=len(self.weights) > 1)


def _sums(products: Products, points: Iterable[int]) -> dict[int, float]:
    """Return the scores of passages."""
    scores = dict.fromkeys(points, 0.0)
    for found in products.values():
        for point, product in found.items():
            if point in scores:
                scores[point] += product
    return scores


def _best_passages(scores: Mapping[int, float]) -> list[int]:
    """Return the best passage of each document, best first; of equal ones the earlier."""
    best: dict[int, int] = {}
    for point in sorted(scores, key=lambda point: (-scores[point], point)):
        best.setdefault(point >> PASSAGE_BITS, point)
    return list(best.values())
