"""Changes of an index: documents are added and deleted in one commit, in the segments and in an engine.

The engine is written first and flushed; then one commit makes a batch of documents visible, or nothing of it. A passage
that the engine holds and no commit knows of is no hit. What must go from the engine after a commit is written down in
it (`IndexState.garbage`) and removed by the next change, if a crash came between.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from pellucid.dense.embedder import EncoderEmbedder
from pellucid.errors import EngineError, IndexFolderError, WritingError
from pellucid.index.bm25 import total
from pellucid.index.commits import Commit, IndexState, StoredSegment, Writer, wrong
from pellucid.index.documents import PASSAGE_BITS, Document, batches, points_of
from pellucid.index.engine import Engine, EngineSettings, Generation, Point, Vector, chosen_engine, written_engine
from pellucid.index.given import Rows, still_given, stored_rows
from pellucid.index.metadata import Fields, entries, register
from pellucid.index.models import Model, all_static, kinds, written_models
from pellucid.index.searching import Snapshot
from pellucid.index.segments import Segment
from pellucid.index.settings import given_parts, rebuilt_settings, with_given

LEAST_FREE = 64 << 20
"""Bytes that the disk must have left: files are mapped, and a full disk would end the process."""

_SKIPPED = 1000  # numbers that are not used after a write to an engine that may arrive late

Counts = list[Counter[str]]
"""Of each passage how often each term stands in it; nothing without BM25."""


def term_counts(now: Snapshot, documents: Iterable[Document]) -> Counts:
    """Count the terms of the passages of some documents."""
    if not now.commit.state.settings["bm25"]:
        return []
    analyser = now.words.analyser
    return [Counter(analyser.terms(text)) for document in documents for text in document.passages()]


def document_vectors(
    models: Mapping[str, Model], documents: Sequence[Document], own: Rows = MappingProxyType({})
) -> dict[str, Sequence[Vector | None]]:
    """Return by model the vectors of all passages of some documents; of the parts of `own`, what is there."""
    texts = [text for document in documents for text in document.passages()]
    made = {name: model.vectors(texts, "document") for name, model in models.items() if texts and name not in own}
    return {**made, **own}


def replace_documents(
    writer: Writer,
    now: Snapshot,
    new: Sequence[Document] = (),
    old: Sequence[tuple[int, int]] = (),
    counts: Counts | None = None,
    vectors: Mapping[str, Sequence[Vector | None]] = MappingProxyType({}),
    given: Iterable[str] = (),
) -> None:
    """Make `new` documents visible and the `old` ones (segment and row) gone, both or neither."""
    _check_space(writer.folder, LEAST_FREE)
    commit, engine = writer.commit, now.engine
    state, counts = commit.state, counts or []
    new = [document._replace(number=state.next + n) for n, document in enumerate(new)]
    gone = {n: np.array([row for own, row in old if own == n]) for n in {own for own, _ in old}}
    gone_passages = {n: commit.segments[n].passages_of(rows) for n, rows in gone.items()}
    removed = tuple((int(commit.segments[n].numbers[row]), commit.segments[n].size(row)) for n, row in old)
    settings = state.settings
    if not set(given) <= set(given_parts(settings)):
        settings = with_given(settings, [*given_parts(settings), *given])
    after = replace(
        state,
        settings=settings,
        next=state.next + len(new),
        fields=dict(state.fields),
        documents=state.documents + len(new) - len(old),
        passages=state.passages + sum(len(d.ends) for d in new) - sum(map(len, gone_passages.values())),
        terms=state.terms + total(counts) - sum(commit.segments[n].terms_in(own) for n, own in gone_passages.items()),
        garbage=() if engine is None else removed,
    )
    if engine is None:
        writer.change(after, _segment(new, counts, vectors, now, after.fields) if new else None, gone)
        return
    try:
        _delete(engine, state.garbage)
        added = _segment(new, counts, vectors, now, after.fields) if new else None
        engine.flush()
        writer.change(after, added, gone)
    except BaseException:
        late = tuple((document.number, len(document.ends)) for document in new)
        with suppress(Exception):
            skipped = replace(state, next=after.next + _SKIPPED, garbage=state.garbage + late)
            writer.save(skipped)
            _delete(engine, late)
        raise
    with suppress(EngineError):  # the change is made whether or not the engine answers now; it is tried again
        _delete(engine, after.garbage)
        engine.optimize()


def _segment(
    documents: Sequence[Document],
    counts: Counts,
    vectors: Mapping[str, Sequence[Vector | None]],
    now: Snapshot,
    fields: Fields,
) -> Segment:
    """Return the segment of documents, in memory; their vectors go to the engine where there is one."""
    new_keys = [key for document in documents for key in register(document.metadata, fields)]
    if now.engine is not None:
        for key in new_keys:
            now.engine.index_payload(key)
        points: list[Point] = []
        for document in documents:
            known = entries(document.metadata, fields)
            for number in document.points():
                rows = {name: own[len(points)] for name, own in vectors.items() if own[len(points)] is not None}
                points.append(Point(number, rows, known))
        now.engine.put(points)
        vectors = {}
    return Segment.made(documents, counts, vectors, kinds(now.models)[0], fields)


def _delete(engine: Engine, garbage: Iterable[tuple[int, int]]) -> None:
    if points := [point for number, passages in garbage for point in points_of(number, passages)]:
        engine.delete(points)


def repair(writer: Writer, engine: Engine) -> None:
    """Remove from an engine what a crash has left: passages that were never committed, and those that were to go."""
    state = writer.commit.state
    engine.delete(engine.numbers(state.next << PASSAGE_BITS))
    _delete(engine, state.garbage)
    writer.save(replace(state, next=state.next + _SKIPPED))  # a late write of the process that ended may still arrive


def rebuilt(
    writer: Writer, now: Snapshot, former: Engine | None, engines: EngineSettings | None, allowed: bool
) -> Snapshot:
    """Write all segments anew for the models of `now`, replace the old ones in one commit, and return what is new.

    `former` is the engine that is open, `engines` are the settings of the one that holds the vectors from now on.
    """
    folder, old, models = writer.folder, writer.commit, now.models
    _check_space(folder, LEAST_FREE + 2 * bytes_on_disk(folder))
    for file in old.state.files():
        if problem := wrong(folder, file):
            raise IndexFolderError(f"{problem}. Restore the file, or build the index anew from the documents")
    given = still_given(old.state, models)
    if given and former is None:
        written = old.state.settings["engine"]
        same = engines is not None and engines.kind == written["kind"]
        of_before = engines if same else chosen_engine(None, written, allowed=allowed)
        if of_before is not None:
            known = {name: models[name] for name in given}
            former = of_before.open(Generation(folder, old.state.engine, *kinds(known)))
    settings = with_given(rebuilt_settings(old.state.settings, models, all_static(models)), given)
    settings["engine"] = written_engine(engines)
    settings["models"] = written_models(folder, models, f"models-{old.state.commit + 1}")
    name = f"engine-{int(old.state.engine.rpartition('-')[2]) + 1}"
    engine = None if engines is None else engines.create(Generation(folder, name, *kinds(models)))
    now = now._replace(engine=engine)
    stored, fields = list[StoredSegment](), Fields()
    documents = passages = terms = 0
    for block in batches(old.documents()):
        counts = term_counts(now, block)
        vectors = document_vectors(models, block, stored_rows(old, former, given, block))
        stored.append(writer.write(_segment(block, counts, vectors, now, fields)))
        writer.merge(stored)
        documents += len(block)
        passages += sum(len(document.ends) for document in block)
        terms += total(counts)
    if engine is not None:
        engine.flush()
        engine.optimize()
        engine.flush()
    state = IndexState(settings, old.state.commit, old.state.next, documents, passages, terms, fields, engine=name)
    writer.save(state, stored)
    return now._replace(commit=writer.commit)


def passages_and_vectors(
    commit: Commit, engine: Engine | None, name: str, encoder: EncoderEmbedder, most: int
) -> tuple[list[str], list[Vector]]:
    """Return at most `most` passages, evenly chosen, as far as an encoder reads them, and their stored vectors."""
    step, number = max(1, -(-commit.state.passages // most)), 0
    texts, vectors = list[str](), list[Vector]()
    for block in batches(commit.documents()):
        every = [text for document in block for text in document.passages()]
        for text, row in zip(every, stored_rows(commit, engine, [name], block)[name], strict=True):
            if number % step == 0 and row is not None:
                texts.append(encoder.tokenized([text], "document")[0].visible)
                vectors.append(row)
            number += 1
    return texts, vectors


def sweep(folder: Path, before: IndexState, after: IndexState, engines: EngineSettings | None, allowed: bool) -> None:
    """Remove copies of models and generations of engines that no search asks any more."""
    with suppress(EngineError, IndexFolderError):  # the next rebuild tries again; one that may not be asked stays
        former = chosen_engine(None, before.settings["engine"], allowed=allowed)
        for engine in {written_engine(e)["kind"]: e for e in (former, engines) if e is not None}.values():
            engine.sweep(folder, after.engine)
    sweep_models(folder, after)


def sweep_models(folder: Path, after: IndexState) -> None:
    """Remove copies of models, and reasons, that no search asks any more."""
    models = after.settings["models"]
    places = [model["copy"] for model in models] + [model.get("reasons", {}).get("folder") for model in models]
    used = {str(place).partition("/")[0] for place in places}
    for other in (*folder.glob("models-*"), *folder.glob("reasons-*")):
        if other.name not in used:
            shutil.rmtree(other, ignore_errors=True)


def bytes_on_disk(folder: Path) -> int:
    """Return what the files of a folder take of the disk; those of engines have holes."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # removed meanwhile
            facts = path.stat()
            size += getattr(facts, "st_blocks", -(-facts.st_size // 512)) * 512 if path.is_file() else 0
    return size


def _check_space(folder: Path, least: int) -> None:
    """Check that so many bytes of the disk are free."""
    free = shutil.disk_usage(folder).free
    if free < least:
        raise WritingError(
            f"{folder} is on a disk with {free >> 20:,} MB left, and {least >> 20:,} are needed. What was committed is "
            "safe; free some space"
        )
