"""What the texts of documents give, and whether an index stores just that.

To verify, all of it is computed again, of the models' vectors a sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pellucid.index.bm25 import each_once, impact_vector, total
from pellucid.index.documents import Document, Documents, State
from pellucid.index.engine import Engine, Point, Vector
from pellucid.index.metadata import payload
from pellucid.index.models import BM25, Model

_ENCODED = 200  # documents that the models encode again
_LISTED = 10  # problems of a kind
_TOLERANCE = 1e-3  # another batch rounds differently

Counts = list[Counter[str]]
"""Of each passage how often each term stands in it; nothing without BM25."""


def document_vectors(models: Mapping[str, Model], documents: Sequence[Document]) -> dict[str, list[Vector | None]]:
    """Return by model the vectors of all passages of some documents."""
    texts = [text for document in documents for text in document.passages()]
    return {name: model.vectors(texts, "document") for name, model in models.items() if texts}


def points(
    documents: Documents,
    new: Iterable[Document],
    counts: Counts,
    state: State,
    vectors: Mapping[str, Sequence[Vector | None]],
) -> list[Point]:
    """Return the passages of documents as the engine keeps them.

    Args:
        documents: the file of documents, which numbers terms.
        new: the documents.
        counts: of their terms.
        state: whose mean length and fields hold.
        vectors: of the passages by model.
    """
    numbers = documents.term_numbers(set().union(*counts)) if counts else {}
    made: list[Point] = []
    for document in new:
        known = payload(document.metadata, state.fields)
        for point in document.points():
            own = {name: rows[len(made)] for name, rows in vectors.items() if rows[len(made)] is not None}
            if counts and counts[len(made)]:
                own[BM25] = impact_vector(counts[len(made)], state.average, numbers)
            made.append(Point(point, own, known))
    return made


def stored_vectors(
    engine: Engine, models: Iterable[str], documents: Iterable[Document]
) -> dict[str, list[Vector | None]]:
    """Return by model the vectors that an engine holds of all passages of some documents."""
    numbers = [point for document in documents for point in document.points()]
    found = engine.vectors(numbers, list(models))
    return {name: [found.get(number, {}).get(name) for number in numbers] for name in models}


def fill(
    engine: Engine,
    state: State,
    documents: Documents,
    count: Callable[[Sequence[Document]], Counts],
    vectors: Callable[[Sequence[Document]], Mapping[str, Sequence[Vector | None]]],
) -> None:
    """Put every document into a new engine, on disk.

    Args:
        engine: an empty one.
        state: whose mean length and fields hold.
        documents: the file of documents.
        count: counts the terms of documents.
        vectors: gives the vectors of their passages.
    """
    for field, of_kinds in state.fields.values():
        for kind in of_kinds:
            engine.index_payload(f"{kind}{field}")
    for block in documents.all():
        engine.put(points(documents, block, count(block), state, vectors(block)))
    engine.flush()
    engine.optimize()
    engine.flush()


def recounted(documents: Documents, count: Callable[[Sequence[Document]], Counts]) -> tuple[State, Counter[str]]:
    """Count everything anew; return the state, and the number of passages with each term."""
    having, passages, terms, all_documents = Counter[str](), 0, 0, 0
    for block in documents.all():
        counts = count(block)
        having.update(each_once(counts))
        terms += total(counts)
        passages += sum(len(document.ends) for document in block)
        all_documents += len(block)
    return replace(documents.state, passages=passages, terms=terms, documents=all_documents), having


def wrong_parts(
    documents: Documents, engine: Engine, models: Mapping[str, Model], count: Callable[[Sequence[Document]], Counts]
) -> list[str]:
    """Return what is wrong, nothing where all is well.

    Args:
        documents: the file of documents.
        engine: what holds the vectors.
        models: of the index.
        count: counts the terms of documents.
    """
    problems = documents.check()
    state = documents.state
    expected: set[int] = set()
    terms: Counter[str] = Counter()
    step = max(1, state.documents // _ENCODED)
    for block in documents.all():
        points = [point for document in block for point in document.points()]
        expected.update(points)
        counts = count(block)
        terms.update(each_once(counts))
        numbers = documents.term_numbers(set().union(*counts)) if counts else {}
        impacts = [impact_vector(passage, state.average, numbers) if passage else None for passage in counts]
        stored = engine.vectors(points, [BM25] * bool(counts) + list(models))
        problems += _differing("BM25's vector", BM25, dict(zip(points, impacts)), stored)
        sample = [document for document in block if document.number % step == 0]
        checked = [point for document in sample for point in document.points()]
        for name, vectors in document_vectors(models, sample).items():
            problems += _differing(f"the vector of {name}", name, dict(zip(checked, vectors)), stored)
    held = set(engine.numbers()) - set(documents.garbage())
    problems += [f"passage {n} is not in the engine" for n in sorted(expected - held)[:_LISTED]]
    problems += [f"the engine holds passage {n} of no document" for n in sorted(held - expected)[:_LISTED]]
    if len(expected) != state.passages:
        problems.append(f"{len(expected)} passages are stored, and {state.passages} were counted")
    if dict(terms) != documents.all_counts():
        problems.append("the counts of terms are not those of the texts")
    return problems


def _differing(
    what: str, part: str, computed: Mapping[int, Vector | None], stored: Mapping[int, Mapping[str, Vector]]
) -> list[str]:
    """Say which stored vectors of a part are not those computed."""
    points = [point for point, vector in computed.items() if not _same(stored.get(point, {}).get(part), vector)]
    return [f"{what} of passage {point} is not that of its text" for point in points[:_LISTED]]


def _same(stored: Vector | None, computed: Vector | None) -> bool:
    """Whether a stored vector is the one computed again, to the rounding of another batch."""
    if stored is None or computed is None:
        return stored is computed
    if isinstance(stored, tuple):
        first, second = (dict(zip(*(side.tolist() for side in vector))) for vector in (stored, computed))
        return all(abs(first.get(n, 0.0) - second.get(n, 0.0)) < _TOLERANCE for n in first.keys() | second.keys())
    return bool(np.allclose(stored, computed, atol=_TOLERANCE))
