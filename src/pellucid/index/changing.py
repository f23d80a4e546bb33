"""Changes of an index: documents come and go in one commit, in the segments and in an engine where there is one.

The engine is written first and flushed; then one commit makes a batch of documents visible, or nothing of it. A passage
that the engine holds and no commit knows of is no hit. What must go from the engine after a commit is written down in
it (`State.garbage`) and removed by the next change, if a crash came between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pellucid.errors import EngineError
from pellucid.index.bm25 import total
from pellucid.index.commits import File, State, Writer
from pellucid.index.documents import PASSAGE_BITS, Document, batch_of, check_space, points_of
from pellucid.index.engine import Engine, Point, Vector
from pellucid.index.given import Rows, given_parts, with_given
from pellucid.index.metadata import entries, register
from pellucid.index.models import Model, kinds
from pellucid.index.searching import Parts
from pellucid.index.segments import Added, Segment
from pellucid.index.verifying import Counts, document_vectors

LEAST_FREE = 64 << 20
"""Bytes that the disk must have left: files are mapped, and a full disk would end the process."""

_SKIPPED = 1000  # numbers that are not used after a write to an engine that may arrive late


class Changes(NamedTuple):
    """What one commit changes.

    Attributes:
        new: documents that come, without numbers.
        counts: of each of their passages how often each term stands in it; empty without BM25.
        vectors: of their passages by model.
        old: segment and row of each document that goes.
        given: the parts whose vectors were given.
    """

    new: list[Document]
    counts: Counts
    vectors: Mapping[str, Sequence[Vector | None]]
    old: Sequence[tuple[int, int]]
    given: Sequence[str] = ()


def replace_documents(writer: Writer, parts: Parts, changes: Changes) -> None:
    """Make documents visible and others gone, both or neither.

    Raises:
        WritingError: the disk is full, or does not take it.
        EngineError: the engine does not; nothing is changed then.
    """
    check_space(writer.folder, LEAST_FREE)
    commit, engine, old = writer.commit, parts.engine, changes.old
    state = commit.state
    new = [document._replace(number=state.next + n) for n, document in enumerate(changes.new)]
    fields = dict(state.fields)
    keys = [key for document in new for key in register(document.metadata, fields)]
    gone = {n: np.array([row for own, row in old if own == n]) for n in {own for own, _ in old}}
    gone_passages = {n: commit.segments[n].passages_of(rows) for n, rows in gone.items()}
    gone_terms = sum(commit.segments[n].terms_in(own) for n, own in gone_passages.items())
    removed = tuple((int(commit.segments[n].numbers[row]), commit.segments[n].size(row)) for n, row in old)
    settings = state.settings
    if not set(changes.given) <= set(given_parts(settings)):
        settings = with_given(settings, [*given_parts(settings), *changes.given])
    after = replace(
        state,
        settings=settings,
        next=state.next + len(new),
        fields=fields,
        documents=state.documents + len(new) - len(old),
        passages=state.passages + sum(len(d.ends) for d in new) - sum(map(len, gone_passages.values())),
        terms=state.terms + total(changes.counts) - gone_terms,
        garbage=() if engine is None else removed,
    )
    own = changes.vectors if engine is None else {}
    added = Segment.made(Added(new, changes.counts, own, kinds(parts.models)[0], fields)) if new else None
    if engine is None:
        writer.change(after, added, gone)
        return
    try:
        _delete(engine, state.garbage)
        for key in keys:
            engine.index_payload(key)
        engine.put(_points(new, changes.vectors, fields))
        engine.flush()
        writer.change(after, added, gone)
    except BaseException:
        late = tuple((document.number, len(document.ends)) for document in new)
        with suppress(Exception):
            skipped = replace(state, next=after.next + _SKIPPED, garbage=state.garbage + late)
            writer.save(skipped, commit.segments, state.segments)
            _delete(engine, late)
        raise
    with suppress(EngineError):  # the change is made whether or not the engine answers now; it is tried again
        _delete(engine, after.garbage)
        engine.optimize()


def _delete(engine: Engine, garbage: Iterable[tuple[int, int]]) -> None:
    if points := [point for number, passages in garbage for point in points_of(number, passages)]:
        engine.delete(points)


def _points(
    documents: Sequence[Document],
    vectors: Mapping[str, Sequence[Vector | None]],
    fields: Mapping[str, tuple[int, str]],
) -> list[Point]:
    """Return the passages of documents as an engine keeps them."""
    made: list[Point] = []
    for document in documents:
        known = entries(document.metadata, fields)
        for point in document.points():
            own = {name: rows[len(made)] for name, rows in vectors.items() if rows[len(made)] is not None}
            made.append(Point(point, own, known))
    return made


def repair(writer: Writer, engine: Engine) -> None:
    """Remove from an engine what a crash has left: passages that were never committed, and those that were to go.

    A write of the process that ended may still arrive there, so that its numbers are not used.
    """
    state = writer.commit.state
    engine.delete(engine.numbers(state.next << PASSAGE_BITS))
    _delete(engine, state.garbage)
    writer.save(replace(state, next=state.next + _SKIPPED), writer.commit.segments, state.segments)


def refilled(
    writer: Writer,
    state: State,
    models: Mapping[str, Model],
    engine: Engine | None,
    count: Callable[[Sequence[Document]], Counts],
    stored: Callable[[Sequence[Document]], Rows],
) -> tuple[State, list[Segment], list[tuple[File, File | None]]]:
    """Return new segments with every document, which no commit names yet, and the state that counts them.

    Args:
        writer: holds the lock, and the commit that the documents are of.
        state: with the settings that hold from now on.
        models: that make the vectors.
        engine: empty; holds the vectors, where there is one.
        count: counts the terms of documents.
        stored: returns the vectors of documents that stay as they are.
    """
    segments: list[Segment] = []
    records: list[tuple[File, File | None]] = []
    fields: dict[str, tuple[int, str]] = {}
    documents = passages = terms = 0
    dense = kinds(models)[0]
    every = writer.commit.documents()
    while block := batch_of(every):
        keys = [key for document in block for key in register(document.metadata, fields)]
        counts, vectors = count(block), document_vectors(models, block, stored(block))
        if engine is not None:
            for key in keys:
                engine.index_payload(key)
            engine.put(_points(block, vectors, fields))
            vectors = {}
        opened, record = writer.write(Segment.made(Added(block, counts, vectors, dense, fields)))
        segments.append(opened)
        records.append((record, None))
        writer.merge(segments, records)
        documents += len(block)
        passages += sum(len(document.ends) for document in block)
        terms += total(counts)
    if engine is not None:
        engine.flush()
        engine.optimize()
        engine.flush()
    counted = replace(state, documents=documents, passages=passages, terms=terms, fields=fields)
    return counted, segments, records
