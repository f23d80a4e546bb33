"""Segments of an index: documents with all that a search needs of them, in one file that never changes.

A segment is a safetensors file that is mapped, so that any number of processes read the same pages. It holds, in the
order of the documents' numbers,

    documents   number, id (with a table of hashes to find one), title, text, metadata, and where passages end
    bm25        for each term the passages with it and how often, and the number of terms of each passage
    vectors     for each dense part a row a passage; of large segments also in 8 bits, with the error of each row
    sparse      for each sparse part the coordinates of each passage, and for each dimension the passages that have it
    columns     for each field and kind of value of the metadata the documents and values, for conditions

What was removed is not in the file: `deleted` lists the rows of such documents, and a merge leaves them out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.errors import ModelFolderError
from pellucid.index.damage import (
    STRINGS,
    Tensors,
    check_tensors,
    corruption_error,
    corruption_reported,
    find_invalid_numbers,
)
from pellucid.index.documents import Document
from pellucid.index.engine import Vector, Where
from pellucid.index.metadata import Fields, entries, timestamp
from pellucid.persistence.store import read_tensors, write_tensors
from pellucid.process import cached_property
from pellucid.progress import check_cancelled

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

COARSE_ROWS = 4000
"""Passages from which a segment also holds its dense vectors in 8 bits."""

_EMPTY_ROWS: npt.NDArray[np.int32] = np.zeros(0, np.int32)


def hash_strings(strings: Iterable[str]) -> Integers:
    """Return a 64-bit hash of each string, int64 [n]."""
    digests = b"".join(hashlib.blake2b(s.encode("utf-8"), digest_size=8).digest() for s in strings)
    return np.frombuffer(digests, "<i8").astype(np.int64)


class Strings(NamedTuple):
    """Many strings, as one array of bytes."""

    data: npt.NDArray[np.uint8]  # UTF-8
    ends: Integers  # [n], where each ends

    @classmethod
    def packed(cls, strings: Iterable[str]) -> Strings:
        """Return strings as bytes."""
        encoded = [string.encode("utf-8") for string in strings]
        ends = np.cumsum([len(string) for string in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    def at(self, index: int) -> str:
        """Return one of them."""
        return str(self.data.data[self.ends[index - 1] if index else 0 : self.ends[index]], "utf-8")


class Segment:
    """An open segment, without the documents that are deleted; it never changes."""

    def __init__(self, tensors: Tensors, name: str = "", deleted: npt.NDArray[np.int32] = _EMPTY_ROWS) -> None:
        """Take the arrays of a file, which are checked, and the rows of documents that were removed, rising."""
        self.name, self.deleted, self._tensors = name, deleted, tensors
        self.numbers: Integers = tensors["numbers"]
        self.ends: Integers = np.array(tensors["passages"])  # copied: sizes of memory follow, and the file may change
        kinds = (*STRINGS, "words")
        self._strings = {kind: Strings(tensors[f"{kind}.data"], tensors[f"{kind}.ends"]) for kind in kinds}

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Document],
        counts: Sequence[Counter[str]],
        vectors: Mapping[str, Sequence[Vector | None]],
        dense: Mapping[str, int],
        fields: Fields,
    ) -> Segment:
        """Return the segment of documents with rising numbers, in memory; `dense` has the dimensions of dense parts."""
        texts = ([d.id for d in documents], [d.title for d in documents], [d.text for d in documents])
        tensors: Tensors = {"numbers": np.array([d.number for d in documents], np.int64)}
        for kind, strings in zip(STRINGS, (*texts, [json.dumps(d.metadata) for d in documents])):
            tensors[f"{kind}.data"], tensors[f"{kind}.ends"] = Strings.packed(strings)
        tensors["passages"] = np.cumsum([len(d.ends) for d in documents], dtype=np.int64)
        tensors["cuts"] = np.array(list(chain.from_iterable(d.ends for d in documents)), np.int64)
        tensors |= _hash_table(hash_strings(texts[0]))
        if counts:
            tensors |= _inverted_counts(counts)
        for part, rows in vectors.items():
            if part in dense:
                stacked = np.zeros((len(tensors["cuts"]), dense[part]), np.float32)
                for position, row in enumerate(rows):
                    if row is not None:
                        stacked[position] = row
                tensors |= _dense(part, stacked)
            else:
                tensors |= _sparse(part, rows)
        return cls(tensors | _columns([d.metadata for d in documents], fields))

    @classmethod
    def from_segments(cls, segments: Sequence[Segment]) -> Segment:
        """Return neighbouring segments as one, in memory, without what is deleted."""
        with corruption_reported(", ".join(segment.name for segment in segments)):
            live_rows = [segment.live_rows() for segment in segments]
            live_passages = [segment.passages_for(rows) for segment, rows in zip(segments, live_rows)]
            tensors_list = [segment._tensors for segment in segments]
            tensors: Tensors = {
                "numbers": np.concatenate([t["numbers"][rows] for t, rows in zip(tensors_list, live_rows)])
            }
            for kind in STRINGS:
                strings = [(segment._strings[kind], rows) for segment, rows in zip(segments, live_rows)]
                tensors[f"{kind}.data"], tensors[f"{kind}.ends"] = _joined(strings)
            sizes = [np.diff(t["passages"], prepend=0)[rows] for t, rows in zip(tensors_list, live_rows)]
            tensors["passages"] = np.cumsum(np.concatenate(sizes), dtype=np.int64)
            tensors["cuts"] = np.concatenate([t["cuts"][p] for t, p in zip(tensors_list, live_passages)])
            hashes = [t["id.hash"][np.argsort(t["id.order"])][rows] for t, rows in zip(tensors_list, live_rows)]
            tensors |= _hash_table(np.concatenate(hashes))
            positions = [_new_positions(rows, len(segment.numbers)) for segment, rows in zip(segments, live_rows)]
            passage_positions = [_new_positions(p, segment.passages) for segment, p in zip(segments, live_passages)]
            tensors |= _merged_lists("column", tensors_list, positions)
            if "bm25.lengths" in tensors_list[0]:
                tensors |= _merged_lists("bm25", tensors_list, passage_positions)
                lengths = [t["bm25.lengths"][p] for t, p in zip(tensors_list, live_passages)]
                tensors["bm25.lengths"] = np.concatenate(lengths)
            for name in tensors_list[0]:
                kind, _, part = name.partition(":")
                if kind == "vectors":
                    tensors |= _dense(part, np.concatenate([t[name][p] for t, p in zip(tensors_list, live_passages)]))
                elif kind == "rows" and name.endswith(".ends"):
                    tensors |= _merged_rows(part.removesuffix(".ends"), tensors_list, live_passages)
            return cls(tensors | _merged_dictionary([segment._strings["words"] for segment in segments], tensors))

    # Files

    def write(self, path: Path) -> Segment:
        """Write the segment as a file; return it as it is read from there."""
        write_tensors(path, self._tensors)
        return Segment.open(path)

    @classmethod
    def open(cls, path: Path) -> Segment:
        """Map a file."""
        with corruption_reported(str(path)):
            tensors = _read(path)
            check_tensors(tensors)
        return cls(tensors, path.name)

    def reduced(self, path: Path) -> Segment:
        """Return the same segment without the documents whose rows a file lists."""
        with corruption_reported(str(path)):
            deleted = _read(path)["rows"]
            if deleted.dtype != np.int32 or deleted.ndim != 1 or not len(deleted):
                raise ValueError("there are no rows")
            if deleted[0] < 0 or deleted[-1] >= len(self.numbers) or (np.diff(deleted) <= 0).any():
                raise ValueError("the rows do not rise, or are more than there are")
        return Segment(self._tensors, self.name, deleted)

    def without(self, rows: npt.NDArray[Any]) -> Segment:
        """Return the same segment with more documents deleted."""
        return Segment(self._tensors, self.name, np.union1d(self.deleted, rows).astype(np.int32))

    # Documents

    @property
    def passages(self) -> int:
        """Number of passages, those of documents that are deleted too."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def n_documents(self) -> int:
        """Number of documents that are there."""
        return len(self.numbers) - len(self.deleted)

    @property
    def n_passages(self) -> int:
        """Number of passages that are there."""
        before = np.where(self.deleted > 0, self.ends[self.deleted - 1], 0)
        return self.passages - int((self.ends[self.deleted] - before).sum())

    @cached_property
    def live(self) -> Mask | None:
        """Which documents are there, bool [documents]; None for all."""
        if not len(self.deleted):
            return None
        live = np.ones(len(self.numbers), np.bool_)
        live[self.deleted] = False
        return live

    @cached_property
    def live_passages(self) -> Mask | None:
        """Which passages are there, bool [passages]; None for all."""
        return None if self.live is None else np.repeat(self.live, np.diff(self.ends, prepend=0))

    def live_rows(self) -> Integers:
        """Return the rows of the documents that are there."""
        return np.arange(len(self.numbers)) if self.live is None else np.flatnonzero(self.live)

    def sizes(self, rows: Integers) -> Integers:
        """Return the number of passages of each of some documents, int64 [rows]."""
        ends = self.ends
        sizes: Integers = ends[rows] - np.where(rows > 0, ends[rows - 1], 0)
        return sizes

    def passages_for(self, rows: Integers) -> Integers:
        """Return the passages of documents, in order."""
        sizes = self.sizes(rows)
        ends = np.cumsum(sizes)
        return np.repeat(self.ends[rows] - ends, sizes) + np.arange(ends[-1] if len(ends) else 0)

    def first_passage(self, row: int) -> int:
        """Return the number of the first passage of a document."""
        return int(self.ends[row - 1]) if row else 0

    def size(self, row: int) -> int:
        """Return the number of passages of a document."""
        return int(self.ends[row]) - self.first_passage(row)

    def terms_in(self, passages: Integers) -> int:
        """Return the number of terms of some passages; 0 without BM25."""
        return int(self.lengths[passages].sum()) if self.has_bm25() else 0

    def document(self, row: int) -> Document:
        """Return a document."""
        with corruption_reported(self.name):
            document_id, title, text, metadata = (self._strings[kind].at(row) for kind in STRINGS)
            first, last = self.ends[row - 1] if row else 0, self.ends[row]
            metadata_fields = json.loads(metadata) if metadata != "{}" else {}  # the commonest, ten times a search
            if not isinstance(metadata_fields, dict):
                raise ValueError(f"the metadata of {document_id!r:.60} are {metadata!r:.60}")
            ends = tuple(self._tensors["cuts"][first:last].tolist())
            return Document(int(self.numbers[row]), document_id, title, text, metadata_fields, ends)

    def rows_for(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the rows of the documents with some of the ids."""
        with corruption_reported(self.name):
            hashes, table = hash_strings(ids), self._tensors["id.hash"]
            positions = np.searchsorted(table, hashes)
            rows: dict[str, int] = {}
            for document_id, hash_value, position in zip(ids, hashes.tolist(), positions.tolist()):
                while position < len(table) and table[position] == hash_value:
                    row = int(self._tensors["id.order"][position])
                    if (self.live is None or self.live[row]) and self._strings["id"].at(row) == document_id:
                        rows[document_id] = row
                    position += 1
            return rows

    def rows_for_numbers(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Return which of some document numbers are here and live, and their rows."""
        rows = np.searchsorted(self.numbers, numbers).clip(max=len(self.numbers) - 1)
        here = self.numbers[rows] == numbers
        if self.live is not None:
            here &= self.live[rows]
        return np.flatnonzero(here), rows[here]

    # What a search reads

    def find_invalid_numbers(self) -> str:
        """Look at all numbers; return what cannot be so, "" where nothing is wrong. It reads the whole file."""
        return find_invalid_numbers(self._tensors)

    def dimension_of(self, part: str) -> int | None:
        """Return the number of dimensions of a dense part, None for a sparse one."""
        if f"rows:{part}.ends" in self._tensors:
            return None
        return int(self._tensors[f"vectors:{part}"].shape[1])

    def has_bm25(self) -> bool:
        """Whether terms were counted."""
        return "bm25.lengths" in self._tensors

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Number of terms of each passage, int32 [passages]."""
        return self._tensors["bm25.lengths"]

    def terms(self, term_hashes: Integers) -> list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]]:
        """Return for each term, by its hash, the passages with it that are there, and how often it stands in each."""
        keys, ends = self._tensors["bm25.keys"], self._tensors["bm25.key_ends"]
        rows, all_counts = self._tensors["bm25.rows"].view(np.uint32), self._tensors["bm25.values"]
        positions, live, postings = keys.searchsorted(term_hashes).tolist(), self.live_passages, []
        for term_hash, position in zip(term_hashes.tolist(), positions):
            here = position < len(keys) and keys[position] == term_hash
            span = slice(int(ends[position - 1]) if position else 0, int(ends[position])) if here else slice(0)
            passages, frequencies = rows[span], all_counts[span]
            if live is not None and len(passages):
                is_live = live[self._check_passages("bm25", passages)]
                passages, frequencies = passages[is_live], frequencies[is_live]
            postings.append((passages, frequencies))
        return postings

    def signatures(self) -> npt.NDArray[np.uint64]:
        """Return for each passage the sum of the hashes of its terms, each times its count, uint64 [passages]."""
        sums = np.zeros(self.passages, np.uint64)
        sizes = np.diff(self._tensors["bm25.key_ends"], prepend=0)
        keys = np.repeat(self._tensors["bm25.keys"].view(np.uint64), sizes)
        with corruption_reported(self.name):
            np.add.at(sums, self._tensors["bm25.rows"], keys * self._tensors["bm25.values"].astype(np.uint64))
        return sums

    def column_items(self) -> Iterator[tuple[int, str, Any]]:
        """Yield row, key and value of every entry of the metadata that conditions see."""
        sizes = np.diff(self._tensors["column.key_ends"], prepend=0)
        columns = np.repeat(self._tensors["column.keys"], sizes).tolist()
        rows, values = self._tensors["column.rows"].tolist(), self._tensors["column.values"].tolist()
        for column, row, value in zip(columns, rows, values):
            with corruption_reported(self.name):
                kind = "nsb"[column % 4]
                item = value if kind == "n" else self._strings["words"].at(int(value))
            yield row, f"{kind}{column // 4}", item

    def dense(self, part: str) -> Floats:
        """Return the rows of a dense part, float32 [passages, dimension]."""
        return self._tensors[f"vectors:{part}"]

    def coarse(self, part: str) -> tuple[npt.NDArray[np.int8], Floats, Floats] | None:
        """Return the rows of a dense part in 8 bits, their scales and a bound of their errors; None for small ones."""
        codes = self._tensors.get(f"codes:{part}")
        return None if codes is None else (codes, self._tensors[f"scales:{part}"], self._tensors[f"errors:{part}"])

    def sparse(self, part: str, dimension: int) -> tuple[npt.NDArray[np.uint32], Floats]:
        """Return the passages that have a coordinate in a dimension of a sparse part, and the coordinates."""
        return self._postings(f"sparse:{part}", dimension)

    def _postings(self, prefix: str, key: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]:
        """Return the passages of one key of a list, and their values."""
        rows, values = _list_for(prefix, self._tensors, key)
        return self._check_passages(prefix, rows), values

    def _check_passages(self, prefix: str, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the passages of a list, which must be here."""
        if len(rows) and rows.max() >= self.passages:
            raise corruption_error(self.name, f"{prefix} points outside the passages")
        return rows

    def vector(self, part: str, passage: int) -> Vector | None:
        """Return the stored row of a passage; None where the part knows nothing of it."""
        if f"vectors:{part}" in self._tensors:
            row = self._tensors[f"vectors:{part}"][passage]
            return row if row.any() else None
        ends = self._tensors[f"rows:{part}.ends"]
        span = slice(int(ends[passage - 1]) if passage else 0, int(ends[passage]))
        indices, values = self._tensors[f"rows:{part}.indices"][span], self._tensors[f"rows:{part}.values"][span]
        return (indices, values) if len(indices) else None

    def matching(self, where: Where) -> Mask:
        """Return which documents meet a condition, bool [documents]."""
        meets_any = np.zeros(len(self.numbers), np.bool_)
        for tests in where:
            meets_all = np.ones(len(self.numbers), np.bool_)
            for test in tests:
                check_cancelled()
                with corruption_reported(self.name):
                    matches = self._matches(test.key, test.operator, test.value)
                meets_all &= ~matches if test.negated else matches
            meets_any |= meets_all
        return meets_any

    def _matches(self, keys: str, operator: str, value: Any) -> Mask:
        matches = np.zeros(len(self.numbers), np.bool_)
        for key in keys.split(","):
            rows, values = _list_for("column", self._tensors, _column(key))
            if operator == "in":
                numbers = [self._codes.get(item, -1) if isinstance(item, str) else item for item in value]
                rows = rows[np.isin(values, numbers)]
            elif operator == "range":
                rows = rows[_within(values, value)]
            elif operator == "dates":
                times = self._tensors["words.times"][values.astype(np.int64)]
                rows = rows[np.logical_or.reduce([_within(times, bounds, timestamp) for bounds in value])]
            matches[rows] = True
        return matches

    @cached_property
    def _codes(self) -> dict[str, int]:
        words = self._strings["words"]
        return {words.at(number): number for number in range(len(words.ends))}


def _within(values: Floats, bounds: Mapping[str, Any], number: Callable[[Any], Any] = float) -> Mask:
    """Return which values lie within all of some bounds, which `number` makes comparable."""
    within: Mask = np.logical_and.reduce([_COMPARED[name](values, number(bound)) for name, bound in bounds.items()])
    return within


_COMPARED = {"gt": np.greater, "gte": np.greater_equal, "lt": np.less, "lte": np.less_equal}


def _read(path: Path) -> Tensors:
    """Return the arrays of a file."""
    try:
        return read_tensors(path)[0]
    except (ModelFolderError, OSError) as error:
        if not path.exists():
            raise FileNotFoundError(path) from error
        raise


# --- Lists: for each key (the hash of a term, a dimension, a column) rows, rising, and a value of each ---


def _lists(prefix: str, keys: npt.NDArray[Any], rows: npt.NDArray[Any], values: npt.NDArray[Any]) -> Tensors:
    """Return lists for the distinct `keys` of items in the order of their rows."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    ends = np.append(starts[1:], len(keys)).astype(np.int64) if len(distinct) else np.zeros(0, np.int64)
    return {
        f"{prefix}.keys": distinct.astype(np.int64),
        f"{prefix}.key_ends": ends,
        f"{prefix}.rows": rows[order].astype(np.int32),
        f"{prefix}.values": values[order],
    }


def _list_for(prefix: str, tensors: Tensors, key: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]:
    """Return the rows and values of one key; rows are unsigned, since a damaged one must not count from the end."""
    keys, ends = tensors[f"{prefix}.keys"], tensors[f"{prefix}.key_ends"]
    position = int(keys.searchsorted(key))
    if position == len(keys) or keys[position] != key:
        return tensors[f"{prefix}.rows"][:0].view(np.uint32), tensors[f"{prefix}.values"][:0]
    span = slice(int(ends[position - 1]) if position else 0, int(ends[position]))
    return tensors[f"{prefix}.rows"][span].view(np.uint32), tensors[f"{prefix}.values"][span]


def _merged_lists(prefix: str, tensors_list: Sequence[Tensors], positions_list: Sequence[Integers]) -> Tensors:
    """Return the lists of several segments as one."""
    keys, rows, values = [], [], []
    before = words = 0
    for tensors, new_positions in zip(tensors_list, positions_list):
        sizes = np.diff(tensors[f"{prefix}.key_ends"], prepend=0)
        new_rows = new_positions[tensors[f"{prefix}.rows"]]
        is_selected = new_rows >= 0
        key, value = np.repeat(tensors[f"{prefix}.keys"], sizes)[is_selected], tensors[f"{prefix}.values"][is_selected]
        if prefix == "column":  # the words of each segment come one after the other until they are made one
            value = np.where(key % 4 != _KINDS["n"], value + words, value)
            words += len(tensors["words.ends"])
        keys.append(key)
        rows.append(new_rows[is_selected] + before)
        values.append(value)
        before += int((new_positions >= 0).sum())
    return _lists(prefix, np.concatenate(keys), np.concatenate(rows), np.concatenate(values))


def _new_positions(selected: Integers, size: int) -> Integers:
    """Return where each of `size` rows comes to when only `kept` are; -1 for those that are left out."""
    positions = np.full(size, -1, np.int64)
    positions[selected] = np.arange(len(selected))
    return positions


# --- What the arrays are made from ---


def _hash_table(hashes: Integers) -> Tensors:
    order = np.argsort(hashes, kind="stable")
    return {"id.hash": hashes[order], "id.order": order.astype(np.int64)}


def _inverted_counts(counts: Sequence[Counter[str]]) -> Tensors:
    terms = list(dict.fromkeys(chain.from_iterable(counts)))
    hash_by_term = dict(zip(terms, hash_strings(terms).tolist()))
    keys = np.array([hash_by_term[term] for passage in counts for term in passage], np.int64)
    rows = np.repeat(np.arange(len(counts)), [len(passage) for passage in counts])
    values = np.array([n for passage in counts for n in passage.values()], np.int32)
    lengths = np.array([sum(passage.values()) for passage in counts], np.int32)
    return {"bm25.lengths": lengths, **_lists("bm25", keys, rows, values)}


def _dense(part: str, rows: Floats) -> Tensors:
    """Return the rows of a dense part, and for many of them 8 bits of each number with a bound of the error."""
    tensors: Tensors = {f"vectors:{part}": rows}
    if len(rows) >= COARSE_ROWS:
        # A row x is scale * codes, and errors[i] >= |x - scale * codes|: with a query q of any length the product
        # differs by at most |q| errors[i].
        scales = np.abs(rows).max(axis=1) / np.float32(127)
        scales[scales == 0] = 1
        codes = np.rint(rows / scales[:, None]).astype(np.int8)
        errors = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), COARSE_ROWS):  # in double precision, which takes memory
            chunk = slice(start, start + COARSE_ROWS)
            lost = rows[chunk].astype(np.float64) - codes[chunk] * scales[chunk, None].astype(np.float64)
            errors[chunk] = np.nextafter(np.linalg.norm(lost, axis=1).astype(np.float32), np.float32(np.inf))
        tensors |= {f"codes:{part}": codes, f"scales:{part}": scales.astype(np.float32), f"errors:{part}": errors}
    return tensors


def _sparse(part: str, rows: Sequence[Vector | None]) -> Tensors:
    sides = [(np.zeros(0, np.int64), np.zeros(0, np.float32)) if row is None else row for row in rows]
    sizes = [len(indices) for indices, _ in sides]
    indices = np.concatenate([np.zeros(0, np.int64), *(np.asarray(indices, np.int64) for indices, _ in sides)])
    values = np.concatenate([np.zeros(0, np.float32), *(np.asarray(values, np.float32) for _, values in sides)])
    return _coordinates(part, np.array(sizes, np.int64), indices, values)


def _coordinates(part: str, sizes: Integers, indices: Integers, values: Floats) -> Tensors:
    """Return the coordinates of a sparse part, by passage and by dimension."""
    forward: Tensors = {"ends": np.cumsum(sizes, dtype=np.int64), "indices": indices, "values": values}
    lists = _lists(f"sparse:{part}", indices, np.repeat(np.arange(len(sizes)), sizes), values)
    return {f"rows:{part}.{name}": array for name, array in forward.items()} | lists


def _merged_rows(part: str, tensors_list: Sequence[Tensors], selected: Sequence[Integers]) -> Tensors:
    sizes_list, indices, values = [], [], []
    for tensors, passages in zip(tensors_list, selected):
        sizes = np.diff(tensors[f"rows:{part}.ends"], prepend=0)
        is_selected = np.repeat(_new_positions(passages, len(sizes)) >= 0, sizes)
        sizes_list.append(sizes[passages])
        indices.append(tensors[f"rows:{part}.indices"][is_selected])
        values.append(tensors[f"rows:{part}.values"][is_selected])
    return _coordinates(part, np.concatenate(sizes_list), np.concatenate(indices), np.concatenate(values))


def _joined(several: Sequence[tuple[Strings, Integers]]) -> Strings:
    """Return some strings of each of several arrays, one after the other."""
    data, sizes = [], []
    for strings, rows in several:
        lengths = np.diff(strings.ends, prepend=0)
        sizes.append(lengths[rows])
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1  # neighbours are copied together
        for first, last in pairwise([0, *breaks.tolist(), len(rows)]):
            if last > first:
                start = strings.ends[rows[first]] - lengths[rows[first]]
                data.append(strings.data[start : strings.ends[rows[last - 1]]])
    none = np.zeros(0, np.uint8)
    return Strings(np.concatenate([none, *data]), np.cumsum(np.concatenate(sizes), dtype=np.int64))


_KINDS = {"n": 0, "s": 1, "b": 2}


def _column(key: str) -> int:
    """Return the number of a column, from the kind of its values and the number of the field."""
    return int(key[1:]) * 4 + _KINDS[key[0]]


def _columns(metadata: Sequence[Mapping[str, Any]], fields: Fields) -> Tensors:
    keys, rows, values = [], [], []
    words: dict[str, int] = {}
    for row, document_metadata in enumerate(metadata):
        for key, items in entries(document_metadata, fields).items():
            for item in items:
                keys.append(_column(key))
                rows.append(row)
                values.append(words.setdefault(item, len(words)) if isinstance(item, str) else item)
    tensors = _lists("column", np.array(keys, np.int64), np.array(rows, np.int64), np.array(values, np.float64))
    return tensors | _dictionary(words)


def _dictionary(words: Iterable[str]) -> Tensors:
    """Return the distinct strings of the metadata, and for dates their seconds since 1970; NaN for other strings."""
    distinct = list(words)
    times = np.array([np.nan if (seconds := timestamp(word)) is None else seconds for word in distinct], np.float64)
    data, ends = Strings.packed(distinct)
    return {"words.data": data, "words.ends": ends, "words.times": times}


def _merged_dictionary(spelled: Sequence[Strings], tensors: Tensors) -> Tensors:
    """Return the words that merged columns use, each once, and the columns with the numbers of these."""
    number_by_word: dict[str, int] = {}
    all_words = [strings.at(n) for strings in spelled for n in range(len(strings.ends))]
    keys = np.repeat(tensors["column.keys"], np.diff(tensors["column.key_ends"], prepend=0))
    values, strings_at = tensors["column.values"].copy(), np.flatnonzero(keys % 4 != _KINDS["n"])
    used = values[strings_at].astype(np.int64)
    values[strings_at] = [number_by_word.setdefault(all_words[n], len(number_by_word)) for n in used.tolist()]
    return {"column.values": values} | _dictionary(number_by_word)
