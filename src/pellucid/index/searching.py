"""A question to an index: its vectors, the best passages, and what takes their scores apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from pellucid.errors import InputError
from pellucid.index.bm25 import Analyser, query_weights
from pellucid.index.documents import PASSAGE_BITS, Document, Documents, State
from pellucid.index.engine import Engine, Vector, Where
from pellucid.index.hits import Hit
from pellucid.index.models import BM25, Model
from pellucid.index.reasons import Bm25Reader, Reader, Reasons, WordTable, reader_of

_CANDIDATES, _MOST_CANDIDATES = 50, 12_800  # passages that each part brings; more until the result is certain

Products = dict[str, dict[int, float]]
"""Part -> number of a passage -> what the part adds to its score."""


class Parts(NamedTuple):
    """What a question is asked of, at one moment; `current` says which engine is open when its reasons are read."""

    analyser: Analyser
    models: Mapping[str, Model]
    tables: Mapping[str, WordTable]
    documents: Documents
    state: State
    engine: Engine
    current: Callable[[], Engine]


class Question:
    """A query with the weights of the parts."""

    def __init__(self, query: str, weights: dict[str, float], parts: Parts) -> None:
        """Encode the query for each part that counts."""
        self.query, self.weights, self._of = query, weights, parts
        self._average = parts.state.average
        self._vectors: dict[str, Vector] = {}  # times their weights, so that products are parts of the score
        self._units: dict[str, Vector] = {}
        self._term_weights: dict[str, float] = {}
        self._points: list[int] = []  # of the hits
        if weights.get(BM25, 0) > 0:
            self._ask_bm25()
        for name, model in parts.models.items():
            if weights[name] > 0:
                self._ask(name, model.vectors([query], "query")[0])

    def _ask_bm25(self) -> None:
        counts = Counter(self._of.analyser.terms(self.query))
        known = self._of.documents.passages_with(counts)
        having = {term: passages for term, (_, passages) in known.items()}
        self._term_weights = query_weights(counts, having, self._of.state.passages, self.weights[BM25])
        if self._term_weights:
            numbers = np.array([known[term][0] for term in self._term_weights])
            self._vectors[BM25] = (numbers, np.array(list(self._term_weights.values()), np.float32))

    def _ask(self, name: str, vector: Vector | None) -> None:
        if vector is None:
            return
        self._units[name] = vector
        weight = np.float32(self.weights[name])
        self._vectors[name] = (vector[0], vector[1] * weight) if isinstance(vector, tuple) else vector * weight

    def search(self, top_k: int, where: Where) -> tuple[list[Hit], bool]:
        """Return the best documents, and whether no other can be better.

        Each part brings its best passages; what another part has brought gets its product with this one. What no part
        has brought scores at most the last of each list together; more are fetched until the hits are above that.
        """
        engine = self._of.engine
        limit = max(_CANDIDATES, 2 * top_k)
        while True:
            products = engine.search(self._vectors, limit, where) if self._vectors else {}
            full = {name: found for name, found in products.items() if len(found) == limit}
            bound = sum(max(min(found.values()), 0.0) for found in full.values())
            every = {point for found in products.values() for point, product in found.items() if product}
            for name, more in engine.products(self._vectors, {n: every - f.keys() for n, f in full.items()}).items():
                products[name] |= more
            hits = self._hits(products, _best_passages(products, every), top_k)
            certain = not full or (len(hits) == top_k and hits[-1].score >= bound)
            if certain or limit >= _MOST_CANDIDATES:
                return hits, certain
            limit *= 4

    def score(self, document: Document) -> Hit:
        """Return one document as a hit."""
        wanted = {name: list(document.points()) for name in self._vectors}
        products = self._of.engine.products(self._vectors, wanted)
        return self._hit(products, document, max(document.points(), key=lambda point: _sum(products, point)))

    def _hits(self, products: Products, best: list[int], top_k: int) -> list[Hit]:
        """Return the first `top_k` passages that are part of a document: others are not committed, or were removed."""
        hits: list[Hit] = []
        waiting = iter(best)
        with self._of.documents.lock:  # all of it before or after a commit
            while len(hits) < top_k and (block := list(islice(waiting, top_k - len(hits)))):
                found = {d.number: d for d in self._of.documents.by_number([point >> PASSAGE_BITS for point in block])}
                known = [(found[point >> PASSAGE_BITS], point) for point in block if point >> PASSAGE_BITS in found]
                hits += [self._hit(products, document, point) for document, point in known]
        return hits

    def _hit(self, products: Products, document: Document, point: int) -> Hit:
        passage = point & ((1 << PASSAGE_BITS) - 1)
        parts = {name: products.get(name, {}).get(point, 0.0) for name, w in self.weights.items() if w > 0}
        score = sum(parts.values())
        self._points.append(point)
        return Hit(
            document.id,
            score,
            document.title,
            document.passage(passage),
            document.metadata,
            parts,
            passage,
            document.ends[passage - 1] if passage else 0,
            partial(self._reasons, document.indexed(passage), point, score),
        )

    @cached_property
    def _readers(self) -> dict[str, Reader]:
        readers: dict[str, Reader] = {}
        if BM25 in self._vectors:
            readers[BM25] = Bm25Reader(self._of.analyser, self.query, self._term_weights, self._average)
        for name, unit in self._units.items():
            model, table = self._of.models[name], self._of.tables.get(name)
            readers[name] = reader_of(model, table, self.query, unit, self.weights[name])
        return readers

    @cached_property
    def _stored(self) -> dict[int, dict[str, Vector]] | None:
        """The stored vectors of all hits, of the parts that need them; None where none does."""
        names = [name for name, reader in self._readers.items() if reader.needs_vector]
        return self._of.current().vectors(self._points, names) if names else None

    def _reasons(self, text: str, point: int, score: float) -> Reasons:
        """Return why the passage `text` has its score."""
        if self._stored is not None and point not in self._stored:
            raise InputError("the document was changed or removed since the search; search again")
        stored = (self._stored or {}).get(point, {})
        terms = {name: reader.terms(text, stored.get(name)) for name, reader in self._readers.items()}
        several = sum(weight > 0 for weight in self.weights.values()) > 1
        return Reasons(self.query, text, score, terms, named=several)


def _sum(products: Products, point: int) -> float:
    return sum(found.get(point, 0.0) for found in products.values())


def _best_passages(products: Products, points: Iterable[int]) -> list[int]:
    """Return the best passage of each document, best first; of equal ones the earlier."""
    ranked = sorted((-_sum(products, point), point) for point in points)
    best: dict[int, int] = {}
    for _, point in ranked:
        best.setdefault(point >> PASSAGE_BITS, point)
    return list(best.values())
