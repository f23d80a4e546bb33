"""The comparison of an index with the texts of its documents: checksums, then terms, metadata and sampled vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pellucid.index.commits import File, wrong
from pellucid.index.documents import Document, batches
from pellucid.index.engine import Engine, Vector
from pellucid.index.metadata import entries
from pellucid.index.models import wrong_copy
from pellucid.index.searching import Snapshot
from pellucid.index.segments import Segment, hashed
from pellucid.index.settings import given_parts
from pellucid.index.writer import document_vectors, term_counts

_ENCODED = 200  # documents that the models encode again
_LISTED = 10  # problems of a kind
_TOLERANCE = 1e-3  # another batch rounds differently


def find_problems(folder: Path, now: Snapshot) -> list[str]:
    """Return what is wrong with the index in a folder at one moment, nothing where all is well."""
    state, segments = now.commit.state, now.commit.segments
    problems = [problem for file in state.files() if (problem := _file_problem(folder, file))]
    copies = [(model, wrong_copy(folder, model)) for model in state.settings["models"]]
    problems += [f"the model {model['name']!r}: {problem}" for model, problem in copies if problem]
    if problems:
        return problems  # what is computed from damaged files says no more
    step, terms, ids = max(1, state.documents // _ENCODED), 0, Counter[str]()
    for segment in segments:
        passages, counted, lengths = segment.passages_of(segment.kept_rows()), list[int](), list[int]()
        for block in batches(segment.document(row) for row in segment.kept_rows().tolist()):
            ids.update(document.id for document in block)
            counts = term_counts(now, block)
            known = list(dict.fromkeys(term for passage in counts for term in passage))
            of = dict(zip(known, hashed(known).tolist()))
            counted += [sum(of[term] * n for term, n in passage.items()) % (1 << 64) for passage in counts]
            lengths += [sum(passage.values()) for passage in counts]
            sample = [document for document in block if document.number % step == 0]
            problems += _wrong_vectors(now, segment, sample)
        if segment.has_bm25():
            stored = segment.signatures()[passages]
            differs = (stored != np.array(counted, np.uint64)) | (segment.lengths[passages] != lengths)
            for passage in passages[differs][:_LISTED].tolist():
                problems.append(f"{segment.name}: the terms of passage {passage} are not those of its text")
        terms += sum(lengths)
        problems += _wrong_columns(segment, state.fields)
    problems += [f"document {own!r:.60} is there {n} times" for own, n in ids.most_common(_LISTED) if n > 1]
    held = (sum(ids.values()), sum(len(s.passages_of(s.kept_rows())) for s in segments), terms)
    counted_before = (state.documents, state.passages, state.terms)
    if held != counted_before:
        problems.append(f"documents, passages and terms are {held}, and {counted_before} were counted")
    if now.engine is not None:
        problems += _wrong_points(now.engine, segments, state.garbage)
    return problems


def _file_problem(folder: Path, file: File) -> str:
    try:
        return wrong(folder, file)
    except FileNotFoundError:
        return f"{file.name} is missing"


def _wrong_vectors(now: Snapshot, segment: Segment, sample: Sequence[Document]) -> Iterator[str]:
    rows = segment.rows_of([document.id for document in sample])
    stored: Mapping[int, Mapping[str, Vector]] = {}
    if now.engine is not None:
        stored = now.engine.vectors([point for d in sample for point in d.points()], list(now.models))
    given = given_parts(now.commit.state.settings)  # of their rows the checksums of the files say all
    models = {name: model for name, model in now.models.items() if name not in given}
    for name, computed in document_vectors(models, sample).items():
        waiting = iter(computed)
        for document in sample:
            first = segment.first_passage(rows[document.id])
            for number, point in enumerate(document.points()):
                own = segment.vector(name, first + number) if now.engine is None else stored.get(point, {}).get(name)
                if not _same(own, next(waiting)):
                    yield f"the vector of {name} of passage {number} of {document.id!r:.60} is not that of its text"


def _wrong_columns(segment: Segment, fields: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    """Say which documents' metadata differ from what conditions see of them."""
    stored: dict[int, Counter[tuple[str, object]]] = {}
    for row, key, value in segment.column_items():
        stored.setdefault(row, Counter())[key, value] += 1
    for row in segment.kept_rows().tolist():
        document = segment.document(row)
        try:
            own = Counter((key, item) for key, items in entries(document.metadata, fields).items() for item in items)
        except (KeyError, TypeError, ValueError) as error:  # a field that is not known, a value that cannot be
            yield f"the metadata of document {document.id!r:.60} cannot be: {error!r:.60}"
            continue
        if own != stored.get(row, Counter()):
            yield f"conditions see other metadata of document {document.id!r:.60} than it has"


def _wrong_points(engine: Engine, segments: Sequence[Segment], garbage: Sequence[tuple[int, int]]) -> Iterator[str]:
    expected = {point for one in segments for row in one.kept_rows().tolist() for point in one.document(row).points()}
    going = {number for number, _ in garbage}
    held = set(engine.numbers())
    for point in sorted(expected - held)[:_LISTED]:
        yield f"passage {point} is not in the engine"
    for point in sorted(p for p in held - expected if p >> 16 not in going)[:_LISTED]:
        yield f"the engine holds passage {point} of no document"


def _same(stored: Vector | None, computed: Vector | None) -> bool:
    """Whether a stored vector is the one computed again, to the rounding of another batch."""
    if stored is None or computed is None:
        return stored is computed
    if isinstance(stored, tuple):
        first, second = (dict(zip(*(side.tolist() for side in vector))) for vector in (stored, computed))
        return all(abs(first.get(n, 0.0) - second.get(n, 0.0)) < _TOLERANCE for n in first.keys() | second.keys())
    return bool(np.allclose(stored, computed, atol=_TOLERANCE))
