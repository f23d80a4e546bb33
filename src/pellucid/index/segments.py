"""Segments of an index: documents with all that a search needs of them, in one file that never changes.

The file is mapped, so that any number of processes read the same pages; `arrays.py` says what it holds. It stays as it
is when documents are removed: `deleted` lists their rows, and a merge leaves them out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import ModelFolderError
from pellucid.index.arrays import (
    STRINGS,
    DocumentRows,
    Floats,
    Integers,
    Mask,
    Strings,
    Tensors,
    check_arrays,
    corruption_error,
    corruption_reported,
    hash_strings,
    items_at,
    list_for,
    merge_arrays,
    read_rows,
)
from pellucid.index.documents import Document
from pellucid.index.metadata import Condition, Where, column_kind
from pellucid.native.scan import Bm25Lists, Codes, DensePart, PassageScan
from pellucid.persistence.store import read_tensors
from pellucid.process import cached_property
from pellucid.progress import check_cancelled

Floats64 = npt.NDArray[np.float64]

_DENSE_KINDS = ("vectors", *Codes._fields)
_MAX_CACHED_TERMS = 1 << 16
_EMPTY_ROWS: npt.NDArray[np.int32] = np.zeros(0, np.int32)


class PostingsSpan(NamedTuple):
    """Where the postings of a term are in the lists of a segment, those of documents that are deleted among them.

    Attributes:
        start: of the first.
        stop: after the last.
        n_passages: how many of them are of passages that are there.
    """

    start: int
    stop: int
    n_passages: int


class Segment:
    """An open segment, without the documents that are deleted; it never changes."""

    def __init__(self, tensors: Tensors, name: str = "", deleted: npt.NDArray[np.int32] = _EMPTY_ROWS) -> None:
        """Take the arrays of a file, which are checked, and the rows of documents that were removed, rising."""
        self.name, self.deleted, self.tensors = name, deleted, tensors
        self.numbers: Integers = tensors["numbers"]
        self.has_bm25 = "bm25.lengths" in tensors
        self.ends: Integers = np.array(tensors["passages"])  # copied: sizes of memory follow, and the file may change
        no_terms = np.zeros(self.n_passages, np.int32)
        self.lengths: npt.NDArray[np.int32] = tensors.get("bm25.lengths", no_terms)  # of each passage, in terms
        self._has_short_documents = len(self.ends) == self.n_passages  # of one passage each
        self._strings = {kind: Strings.of_kind(tensors, kind) for kind in (*STRINGS, "words")}
        self._dense_parts: dict[str, DensePart] = {}
        self._scans: dict[tuple[str, ...], PassageScan] = {}
        self._postings_spans: dict[str, PostingsSpan] = {}  # by term
        self._last_match: tuple[Where, Mask] | None = None  # a page counts the same documents by several fields

    @classmethod
    def merged(cls, segments: Sequence[Segment]) -> Segment:
        """Return neighbouring segments as one, in memory, without what is deleted."""
        with corruption_reported(", ".join(segment.name for segment in segments)):
            rows = [segment.live_rows() for segment in segments]
            passages = [segment.passages_for(live) for segment, live in zip(segments, rows)]
            return cls(merge_arrays([segment.tensors for segment in segments], rows, passages))

    # Files

    @classmethod
    def open(cls, path: Path) -> Segment:
        """Map a file."""
        with corruption_reported(str(path)):
            tensors = _read(path)
            check_arrays(tensors)
        return cls(tensors, path.name)

    def reduced(self, path: Path) -> Segment:
        """Return the same segment without the documents whose rows a file lists."""
        with corruption_reported(str(path)):
            deleted = _read(path)["rows"]
            if deleted.dtype != np.int32 or deleted.ndim != 1 or not len(deleted):
                raise ValueError("there are no rows")
            if deleted[0] < 0 or deleted[-1] >= len(self.numbers) or (deleted[1:] <= deleted[:-1]).any():
                raise ValueError("the rows do not rise, or are more than there are")
        return Segment(self.tensors, self.name, deleted)

    def without(self, rows: npt.NDArray[Any]) -> Segment:
        """Return the same segment with more documents deleted."""
        return Segment(self.tensors, self.name, np.union1d(self.deleted, rows).astype(np.int32))

    # Documents

    @property
    def n_passages(self) -> int:
        """Number of passages, those of documents that are deleted too."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of the documents, passages and terms that are not deleted."""
        rows = self.live_rows()
        passages = self.passages_for(rows)
        return len(rows), len(passages), int(self.lengths[passages].clip(0).sum(dtype=np.int64))

    @cached_property
    def live(self) -> Mask | None:
        """Which documents are not deleted, bool [documents]; None for all."""
        if not len(self.deleted):
            return None
        live = np.ones(len(self.numbers), np.bool_)
        live[self.deleted] = False
        return live

    @cached_property
    def live_passages(self) -> Mask | None:
        """Which passages are not deleted, bool [passages]; None for all."""
        return None if self.live is None else np.repeat(self.live, np.diff(self.ends, prepend=0))

    def allowed_passages(self, where: Where) -> Mask | None:
        """Return which passages are not deleted and meet a condition, bool [passages]; None for all."""
        if not where:
            return self.live_passages
        allowed: Mask = np.repeat(self.matching(where), np.diff(self.ends, prepend=0))
        return allowed if self.live_passages is None else allowed & self.live_passages

    def rows_of_passages(self, passages: Integers) -> Integers:
        """Return the row of the document of each of some passages, int64 [passages]."""
        return passages if self._has_short_documents else self.ends.searchsorted(passages, "right")

    def live_rows(self) -> Integers:
        """Return the rows of the documents that are not deleted."""
        return np.arange(len(self.numbers)) if self.live is None else np.flatnonzero(self.live)

    def passages_for(self, rows: Integers) -> Integers:
        """Return the passages of documents, in order."""
        return items_at(self.ends, rows)[0]

    def first_passage(self, row: int) -> int:
        """Return the number of the first passage of a document."""
        return int(self.ends[row - 1]) if row else 0

    def document_id(self, row: int) -> str:
        """Return the id of a document."""
        try:  # sooner than `corruption_reported`, which counts where there are many hits
            return self._strings["id"].at(row)
        except ValueError as error:
            raise corruption_error(self.name, error) from error

    def document(self, row: int) -> Document:
        """Return a document."""
        with corruption_reported(self.name):
            document_id, title, text, metadata = (self._strings[kind].at(row) for kind in STRINGS)
            first, last = self.ends[row - 1] if row else 0, self.ends[row]
            metadata_fields = json.loads(metadata) if metadata != "{}" else {}  # the commonest, ten times a search
            if not isinstance(metadata_fields, dict):
                raise ValueError(f"the metadata of {document_id!r:.60} are {metadata!r:.60}")
            ends = tuple(self.tensors["cuts"][first:last].tolist())
            return Document(int(self.numbers[row]), document_id, title, text, metadata_fields, ends)

    def rows_for(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the rows of the documents with some of the ids."""
        with corruption_reported(self.name):
            hashes, table = hash_strings(ids), self.tensors["id.hash"]
            positions = np.searchsorted(table, hashes)
            rows: dict[str, int] = {}
            for document_id, hash_value, position in zip(ids, hashes.tolist(), positions.tolist()):
                while position < len(table) and table[position] == hash_value:
                    row = int(self.tensors["id.order"][position])
                    if (self.live is None or self.live[row]) and self._strings["id"].at(row) == document_id:
                        rows[document_id] = row
                    position += 1
            return rows

    # What a search reads

    def postings_spans(self, terms: Collection[str]) -> dict[str, PostingsSpan]:
        """Return by term where its postings are; they are remembered."""
        remembered = self._postings_spans  # another may take its place, but nothing is removed from it
        spans = {term: remembered[term] for term in terms if term in remembered}
        if len(spans) < len(terms):
            absent = [term for term in terms if term not in spans]
            new_spans = dict(zip(absent, self._find_postings(absent)))
            if len(remembered) + len(new_spans) > _MAX_CACHED_TERMS:
                remembered = self._postings_spans = {}
            remembered.update(new_spans)
            spans |= new_spans
        return spans

    def _find_postings(self, terms: Iterable[str]) -> Iterator[PostingsSpan]:
        """Yield for each term where its postings are."""
        keys, ends, hashes = self.tensors["bm25.keys"], self.tensors["bm25.key_ends"], hash_strings(terms)
        for term_hash, position in zip(hashes.tolist(), keys.searchsorted(hashes).tolist()):
            here = position < len(keys) and keys[position] == term_hash
            start, stop = (int(ends[position - 1]) if position else 0, int(ends[position])) if here else (0, 0)
            span = PostingsSpan(start, stop, stop - start)
            yield span if self.live is None else span._replace(n_passages=len(self.postings(span)[0]))

    def postings(self, span: PostingsSpan) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
        """Return the undeleted passages with a term, rising, and how often it stands in each."""
        lists = slice(span.start, span.stop)
        passages, counts = self.tensors["bm25.rows"].view(np.uint32)[lists], self.tensors["bm25.values"][lists]
        if self.live_passages is not None and len(passages):
            is_live = self.live_passages[self._check_passages("bm25", passages)]
            passages, counts = passages[is_live], counts[is_live]
        return passages, counts

    def signatures(self) -> npt.NDArray[np.uint64]:
        """Return for each passage the sum of the hashes of its terms, each times its count, uint64 [passages]."""
        sums = np.zeros(self.n_passages, np.uint64)
        sizes = np.diff(self.tensors["bm25.key_ends"], prepend=0)
        keys = np.repeat(self.tensors["bm25.keys"].view(np.uint64), sizes)
        with corruption_reported(self.name):
            np.add.at(sums, self.tensors["bm25.rows"], keys * self.tensors["bm25.values"].astype(np.uint64))
        return sums

    def column(self, column: int) -> tuple[npt.NDArray[np.uint32], Any]:
        """Return the rows of the documents that have values in a column, rising, and the values: numbers, or strings.

        Both are as long as there are values: a row is there for each of its own.
        """
        rows, values = self._column(column)
        if column_kind(column) == "n":
            return rows, values
        codes, positions = np.unique(self._word_codes(values), return_inverse=True)
        with corruption_reported(self.name):
            words = [self._strings["words"].at(code) for code in codes.tolist()]
        return rows, np.array(words, object)[positions]

    def times(self, column: int) -> tuple[npt.NDArray[np.uint32], Floats64]:
        """Return the rows of the strings of a column, and their seconds since 1970; NaN for what is no date."""
        rows, values = self._column(column)
        return rows, self.tensors["words.times"][self._word_codes(values)]

    def _column(self, column: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]:
        rows, values = list_for("column", self.tensors, column)
        if len(rows) and rows.max() >= len(self.numbers):
            raise corruption_error(self.name, "a field points outside the documents")
        return rows, values

    def _word_codes(self, values: npt.NDArray[Any]) -> Integers:
        """Return the numbers of the strings of a column."""
        if len(values) and not (values.min() >= 0 and values.max() < len(self._strings["words"].ends)):  # nor NaN
            raise corruption_error(self.name, "a field points outside its values")
        return values.astype(np.int64)

    def scan(self, parts: tuple[str, ...]) -> PassageScan:
        """Return what finds the best passages by BM25, where it is counted, and some dense parts; it is kept."""
        if parts not in self._scans:  # two threads may both make it
            bm25 = None
            if self.has_bm25:
                lists = (self.tensors[f"bm25.{name}"] for name in ("rows", "values", "lengths"))
                rows, counts, lengths = (np.require(array, requirements=["C", "A"]) for array in lists)
                bm25 = Bm25Lists(rows.view(np.uint32), counts, lengths)
            ends = None if self._has_short_documents else self.ends
            self._scans[parts] = PassageScan(self.n_passages, ends, bm25, [self._dense_part(name) for name in parts])
        return self._scans[parts]

    def _dense_part(self, name: str) -> DensePart:
        """Return a dense part as the C function reads it: its 8 bits where they are stored."""
        if name not in self._dense_parts:
            kinds = [kind for kind in _DENSE_KINDS if f"{kind}:{name}" in self.tensors]
            arrays = [np.require(self.tensors[f"{kind}:{name}"], requirements=["C", "A"]) for kind in kinds]
            part = DensePart(arrays[0], Codes(*arrays[1:]) if len(arrays) > 1 else None)
            if not part.is_finite:
                raise corruption_error(self.name, f"the vectors of {name!r:.60} hold NaN or infinity")
            self._dense_parts[name] = part
        return self._dense_parts[name]

    def sparse(self, part: str, dimension: int) -> tuple[npt.NDArray[np.uint32], Floats]:
        """Return the passages that have a coordinate in a dimension of a sparse part, and the coordinates."""
        rows, values = list_for(f"sparse:{part}", self.tensors, dimension)
        return self._check_passages(f"sparse:{part}", rows), values

    def _check_passages(self, prefix: str, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the passages of a list, which must be here."""
        if len(rows) and rows.max() >= self.n_passages:
            raise corruption_error(self.name, f"{prefix} points outside the passages")
        return rows

    def rows(self, part: str, dimension: int, passages: Integers) -> DocumentRows:
        """Return the stored rows of some passages in a model's part of so many dimensions."""
        with corruption_reported(self.name):
            return read_rows(self.tensors, part, passages, dimension)

    def matching(self, where: Where) -> Mask:
        """Return which documents meet a condition, bool [documents]; the mask is not changed."""
        last = self._last_match
        if last is not None and last[0] == where:
            return last[1]
        meets_any = np.zeros(len(self.numbers), np.bool_)
        for tests in where:
            meets_all = np.ones(len(self.numbers), np.bool_)
            for test in tests:
                matches = np.zeros(len(self.numbers), np.bool_)
                for condition in test.any_of:
                    check_cancelled()
                    matches[self._rows_meeting(condition)] = True
                meets_all &= matches != test.negated
            meets_any |= meets_all
        self._last_match = where, meets_any
        return meets_any

    def _rows_meeting(self, condition: Condition) -> npt.NDArray[np.uint32]:
        """Return the rows of the documents that meet a condition, some more than once."""
        if condition.operator == "dates":
            rows, times = self.times(condition.column)
            return rows[_within(times, condition.values)]
        rows, values = self._column(condition.column)
        if condition.operator == "in":
            with corruption_reported(self.name):
                numbers = [self._codes.get(v, -1) if isinstance(v, str) else v for v in condition.values]
            return rows[np.isin(values, numbers)]
        return rows if condition.operator == "exists" else rows[_within(values, condition.values)]

    @cached_property
    def _codes(self) -> dict[str, int]:
        words = self._strings["words"]
        return {words.at(number): number for number in range(len(words.ends))}


def _within(values: Floats64, intervals: Sequence[tuple[float, float]]) -> Mask:
    """Return which values lie in one of some intervals, which rise and do not overlap; NaN lies in none."""
    starts, ends = np.array(intervals, np.float64).T
    positions = starts.searchsorted(values, "right") - 1
    return (positions >= 0) & (values < ends[positions])  # type: ignore[no-any-return]


def _read(path: Path) -> Tensors:
    try:
        return read_tensors(path)[0]
    except (ModelFolderError, OSError) as error:
        if not path.exists():
            raise FileNotFoundError(path) from error
        raise
