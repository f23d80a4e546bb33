"""The comparison of an index with the texts of its documents: checksums, then terms, metadata and sampled vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pellucid.index.arrays import stored_numbers
from pellucid.index.commits import counts_of
from pellucid.index.counting import TermCounter
from pellucid.index.documents import Document, batches
from pellucid.index.metadata import entries
from pellucid.index.models import find_copy_mismatch
from pellucid.index.plan import Snapshot
from pellucid.index.segments import Segment
from pellucid.index.settings import precomputed_parts

SAMPLE_DOCUMENTS = 200  # documents that the models encode again
MAX_LISTED = 10  # problems of a kind
_TOLERANCE = 1e-3  # another batch rounds differently


def find_problems(folder: Path, snapshot: Snapshot) -> list[str]:
    """Return what is wrong with the index in a folder at one moment, nothing where all is well."""
    state, segments = snapshot.commit.state, snapshot.commit.segments
    problems = list[str]()
    for file in state.files():
        try:
            problems += filter(None, [file.find_problem(folder)])
        except FileNotFoundError:
            problems.append(f"{file.name} is missing")
    copies = [(model, find_copy_mismatch(folder, model)) for model in state.settings["models"]]
    problems += [f"the model {model['name']!r}: {problem}" for model, problem in copies if problem]
    if problems:
        return problems  # what is computed from damaged files says no more
    step, ids = max(1, state.documents // SAMPLE_DOCUMENTS), Counter[str]()
    for segment in segments:
        passages, counted, lengths = segment.passages_for(segment.live_rows()), list[int](), list[int]()
        counter = TermCounter(snapshot.words.analyser)
        for block in batches(segment.document(row) for row in segment.live_rows().tolist()):
            ids.update(document.id for document in block)
            if state.settings["bm25"]:
                counts = counter.count([text for document in block for text in document.passages()])
                counted += counts.signatures().tolist()
                lengths += counts.lengths().tolist()
            rows = segment.rows_for([document.id for document in block])
            lost = [document.id for document in block if document.id not in rows]
            problems += [f"document {id!r:.60} is not found by its id" for id in lost[:MAX_LISTED]]
            sample = [document for document in block if document.number % step == 0 and document.id in rows]
            problems += _check_vectors(snapshot, segment, sample, rows)
        if segment.has_bm25:
            stored = segment.signatures()[passages]
            differs = (stored != np.array(counted, np.uint64)) | (segment.lengths[passages] != lengths)
            changed = passages[differs][:MAX_LISTED].tolist()
            problems += [f"{segment.name}: the terms of passage {n} are not those of its text" for n in changed]
        problems += _check_columns(segment, state.fields)
    problems += [f"document {id!r:.60} is there {n} times" for id, n in ids.most_common(MAX_LISTED) if n > 1]
    actual, expected = counts_of(segments), [state.documents, state.passages, state.terms]
    if actual != expected:
        problems.append(f"documents, passages and terms are {actual}, and {expected} were counted")
    return problems


def _check_vectors(
    snapshot: Snapshot, segment: Segment, sample: Sequence[Document], rows: Mapping[str, int]
) -> Iterator[str]:
    precomputed = precomputed_parts(snapshot.commit.state.settings)  # of their rows the checksums of the files say all
    passages_of = [(document.id, n) for document in sample for n in range(len(document.ends))]
    texts = [text for document in sample for text in document.passages()]
    passages = segment.passages_for(np.array([rows[document.id] for document in sample], np.int64))
    for name, model in snapshot.models.items():
        if name not in precomputed and texts:
            stored = segment.rows(name, model.dimension, passages)
            for (document_id, number), row, encoded in zip(passages_of, stored, model.document_rows(texts)):
                is_close = row.shape == encoded.shape and abs(stored_numbers(row - encoded)).max(initial=0) < _TOLERANCE
                if not is_close:  # nor NaN
                    yield f"the vector of {name} of passage {number} of {document_id!r:.60} is not that of its text"


def _check_columns(segment: Segment, fields: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    """Say which documents' metadata differ from what conditions see of them."""
    stored: dict[int, Counter[tuple[int, object]]] = {}
    for column in segment.tensors["column.keys"].tolist():
        rows, values = segment.column(column)
        for row, value in zip(rows.tolist(), values.tolist()):
            stored.setdefault(row, Counter())[column, value] += 1
    for row in segment.live_rows().tolist():
        document = segment.document(row)
        try:
            in_metadata = Counter(
                (column, item) for column, items in entries(document.metadata, fields).items() for item in items
            )
        except (KeyError, TypeError, ValueError) as error:  # a field that is not known, a value that cannot be
            yield f"the metadata of document {document.id!r:.60} cannot be: {error!r:.60}"
            continue
        if in_metadata != stored.get(row, Counter()):
            yield f"conditions see other metadata of document {document.id!r:.60} than it has"
