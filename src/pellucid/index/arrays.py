"""The arrays of a segment: how they are made, merged and checked, and the error for a damaged file.

A segment is a safetensors file of these arrays, in the order of the documents' numbers:

    documents   number, id (with a table of hashes to find one), title, text, metadata, and where passages end
    bm25        for each term the passages with it and how often, and the number of terms of each passage
    vectors     for each dense part a row a passage; of large segments also in 8 bits, with the error of each row
    rows        for each sparse part the coordinates of each passage; of late interaction the vectors of its tokens
    sparse      for each dimension of a sparse part the passages that have it
    columns     for each field and kind of value of the metadata the documents and values, for conditions

A folder may come from anyone, and a disk may fail: nothing is ever read outside of an array, and the error names the
file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.arrays import flattened, vstack
from pellucid.errors import IndexFolderError, ModelFolderError
from pellucid.index.documents import Document
from pellucid.index.metadata import COLUMN_KINDS, COLUMNS_PER_FIELD, Fields, entries, timestamp
from pellucid.native.scan import MAX_CODE, Codes, pack_codes
from pellucid.native.terms import invert
from pellucid.persistence.store import is_sound

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

Tensors = dict[str, npt.NDArray[Any]]
"""The arrays of a segment by name."""

DocumentRows = Any
"""The rows of passages in one part, zeros for a passage without a row: float32 [passages, dimension], a CSR matrix,
`TokenVectors`, or `TermCounts` of BM25."""

STRINGS = ("id", "title", "text", "metadata")
"""What a document has of strings."""

_TYPES = {
    "numbers": "i8", "passages": "i8", "cuts": "i8", "id.hash": "i8", "id.order": "i8", "words.times": "f8",
    "bm25.lengths": "i4", "bm25.values": "i4", "column.values": "f8", "vectors": "f4", "high": "u1", "low": "u1",
    "scales": "f4", "errors": "f4", "sparse.values": "f4", "rows.indices": "i8", "rows.values": "f4",
    "rows.vectors": "f4",
}  # fmt: skip
_ENDINGS = {"data": "u1", "ends": "i8", "keys": "i8", "key_ends": "i8", "rows": "i4"}


REPAIR_HINT = "Restore it, or build the index anew"
"""What a user can do about damage."""

COARSE_ROWS = 2000
"""Passages from which a segment also holds its dense vectors in 8 bits."""

_CACHED_ROWS = 256  # that are rounded together: what that needs fits a core's cache


def corruption_error(name: str, what: object) -> IndexFolderError:
    """Return the error for a file that holds what it cannot."""
    return IndexFolderError(f"{name} is damaged: {what}. {REPAIR_HINT}")


@contextmanager
def corruption_reported(name: str) -> Iterator[None]:
    """Raise errors that damaged arrays cause as IndexFolderError."""
    try:
        yield
    except IndexFolderError:
        raise
    except (
        ModelFolderError, IndexError, KeyError, ValueError, TypeError, OverflowError, AttributeError, RecursionError
    ) as error:  # fmt: skip
        raise corruption_error(name, error) from error


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

    @classmethod
    def of_kind(cls, tensors: Tensors, kind: str) -> Strings:
        """Return those of a kind, one of STRINGS or "words", of the arrays of a segment."""
        return cls(tensors[f"{kind}.data"], tensors[f"{kind}.ends"])

    def at(self, index: int) -> str:
        """Return one of them."""
        start, stop = self.ends.item(index - 1) if index else 0, self.ends.item(index)
        return str(self.data.data[start:stop], "utf-8")


class TermCounts(NamedTuple):
    """How often each term stands in each of some passages.

    Attributes:
        hashes: of distinct terms, which may be more than the passages have, int64 [terms].
        terms: the numbers of the terms of each passage among these, each once, int32 [counts].
        counts: how often each stands in its passage, int32 [counts].
        ends: where each passage's end among `terms`, int64 [passages].
    """

    hashes: Integers
    terms: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    ends: Integers

    @classmethod
    def joined(cls, several: Sequence[TermCounts]) -> TermCounts:
        """Return counts, of one or more groups of passages, that one `TermCounter` made, as those of all passages."""
        ends = np.cumsum([0, *(len(counts.terms) for counts in several)])
        return cls(
            several[-1].hashes,
            np.concatenate([counts.terms for counts in several]),
            np.concatenate([counts.counts for counts in several]),
            np.concatenate([counts.ends + start for counts, start in zip(several, ends.tolist())]),
        )

    def lengths(self) -> Integers:
        """Return the number of terms of each passage, int64 [passages]."""
        return np.diff(np.append(np.zeros(1, np.int64), self.counts.cumsum(dtype=np.int64))[self.ends], prepend=0)

    def signatures(self) -> npt.NDArray[np.uint64]:
        """Return for each passage the sum of the hashes of its terms, each times its count, uint64 [passages]."""
        products = self.hashes[self.terms].view(np.uint64) * self.counts.astype(np.uint64)
        sums = np.append(np.zeros(1, np.uint64), products.cumsum(dtype=np.uint64))
        return np.diff(sums[self.ends], prepend=np.zeros(1, np.uint64))


# --- How they are made ---


def arrays_from_documents(
    numbers: Sequence[int],
    documents: Sequence[Document],
    rows: Mapping[str, DocumentRows],
    fields: Fields,
) -> Tensors:
    """Return the arrays of documents.

    Args:
        numbers: of the documents, which rise.
        documents: at least one.
        rows: by part a row for each passage.
        fields: those of the index, with the fields of these documents.
    """
    texts = ([d.id for d in documents], [d.title for d in documents], [d.text for d in documents])
    tensors: Tensors = {"numbers": np.array(numbers, np.int64)}
    for kind, strings in zip(STRINGS, (*texts, [json.dumps(d.metadata) if d.metadata else "{}" for d in documents])):
        tensors[f"{kind}.data"], tensors[f"{kind}.ends"] = Strings.packed(strings)
    tensors["passages"] = np.cumsum([len(d.ends) for d in documents], dtype=np.int64)
    tensors["cuts"] = np.array(list(chain.from_iterable(d.ends for d in documents)), np.int64)
    tensors |= _hash_table(hash_strings(texts[0]))
    for part, of_part in rows.items():
        tensors |= _row_arrays(part, of_part)
    return tensors | _columns([d.metadata for d in documents], fields)


def joined_rows(blocks: Sequence[DocumentRows]) -> DocumentRows:
    """Return the rows of several blocks of passages, of one part, one after the other."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    return first.joined(blocks) if isinstance(first, TermCounts) else vstack(list(blocks))


def n_bytes(rows: DocumentRows) -> int:
    """Return what rows take of the memory, about."""
    if isinstance(rows, TermCounts):
        return sum(array.nbytes for array in rows[1:])
    if not isinstance(rows, np.ndarray):
        return int(12 * rows.nnz)  # of 4 and 8 bytes
    return sum(map(n_bytes, rows)) if rows.dtype == object else rows.nbytes


def stored_numbers(rows: DocumentRows) -> npt.NDArray[Any]:
    """Return the numbers of the rows of a model, in one array."""
    if isinstance(rows, np.ndarray):
        return flattened(rows)[0] if rows.dtype == object else rows
    return rows.data  # type: ignore[no-any-return]


def _row_arrays(part: str, rows: DocumentRows) -> Tensors:
    """Return the arrays of the rows of a part."""
    if isinstance(rows, TermCounts):
        return _inverted_counts(rows)
    if not isinstance(rows, np.ndarray):
        sizes, indices, values = np.diff(rows.indptr), rows.indices.astype(np.int64), rows.data.astype(np.float32)
        forward: Tensors = {"ends": np.cumsum(sizes, dtype=np.int64), "indices": indices, "values": values}
        lists = _lists(f"sparse:{part}", indices, np.repeat(np.arange(len(sizes)), sizes), values)
        return {f"rows:{part}.{name}": array for name, array in forward.items()} | lists
    if rows.dtype == object:
        vectors, ends = flattened(rows)
        return {f"rows:{part}.vectors": vectors, f"rows:{part}.ends": ends}
    return _dense(part, rows)


def read_rows(tensors: Tensors, part: str, passages: Integers, dimension: int | None = None) -> DocumentRows:
    """Return the stored rows of some passages in a model's part, which must be of a dimension where one is given."""
    if f"vectors:{part}" in tensors:
        return _check_dimension(tensors[f"vectors:{part}"], dimension)[passages]
    positions, sizes = items_at(tensors[f"rows:{part}.ends"], passages)
    if f"rows:{part}.vectors" in tensors:
        vectors = _check_dimension(tensors[f"rows:{part}.vectors"], dimension)[positions]
        return np.fromiter(np.split(vectors, sizes.cumsum()), np.object_, len(passages))
    from scipy.sparse import csr_matrix

    dimension = np.iinfo(np.int32).max if dimension is None else dimension
    indices, values = (tensors[f"rows:{part}.{kind}"][positions] for kind in ("indices", "values"))
    if len(indices) and not 0 <= indices.min() <= indices.max() < dimension:
        raise ValueError(f"a row of {part!r:.60} has a number outside its {dimension:,} dimensions")
    return csr_matrix((values, indices, np.append(0, sizes.cumsum())), (len(passages), dimension))


def _check_dimension(vectors: Floats, dimension: int | None) -> Floats:
    if dimension not in (None, vectors.shape[1]):
        raise ValueError(f"its vectors have {vectors.shape[1]} numbers, and those of the model {dimension}")
    return vectors


def items_at(ends: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """Return the positions of the items of some rows, whose items end at `ends`, and how many each row has."""
    sizes = ends[rows] - np.where(rows > 0, ends[rows - 1], 0)
    new_ends = sizes.cumsum()
    return np.repeat(ends[rows] - new_ends, sizes) + np.arange(sizes.sum()), sizes


def merge_arrays(
    tensors_list: Sequence[Tensors], live_rows: Sequence[Integers], live_passages: Sequence[Integers]
) -> Tensors:
    """Return the arrays of neighbouring segments as one, of the documents and passages of each that are live."""
    documents, passages = list(zip(tensors_list, live_rows)), list(zip(tensors_list, live_passages))
    tensors: Tensors = {"numbers": np.concatenate([t["numbers"][rows] for t, rows in documents])}
    for kind in STRINGS:
        strings = _joined([(Strings.of_kind(t, kind), rows) for t, rows in documents])
        tensors[f"{kind}.data"], tensors[f"{kind}.ends"] = strings
    sizes = [np.diff(t["passages"], prepend=0)[rows] for t, rows in documents]
    tensors["passages"] = np.cumsum(np.concatenate(sizes), dtype=np.int64)
    tensors["cuts"] = np.concatenate([t["cuts"][rows] for t, rows in passages])
    tensors |= _hash_table(np.concatenate([t["id.hash"][np.argsort(t["id.order"])][rows] for t, rows in documents]))
    tensors |= _merged_lists("column", tensors_list, [_new_positions(r, len(t["numbers"])) for t, r in documents])
    if "bm25.lengths" in tensors_list[0]:
        tensors |= _merged_lists("bm25", tensors_list, [_new_positions(r, len(t["cuts"])) for t, r in passages])
        tensors["bm25.lengths"] = np.concatenate([t["bm25.lengths"][rows] for t, rows in passages])
    for name in tensors_list[0]:
        kind, _, part = name.partition(":")
        if kind == "vectors" or (kind == "rows" and name.endswith(".ends")):
            part = part.removesuffix(".ends") if kind == "rows" else part
            tensors |= _row_arrays(part, joined_rows([read_rows(t, part, rows) for t, rows in passages]))
    return tensors | _merged_dictionary([Strings.of_kind(t, "words") for t in tensors_list], tensors)


def _hash_table(hashes: Integers) -> Tensors:
    order = np.argsort(hashes, kind="stable")
    return {"id.hash": hashes[order], "id.order": order.astype(np.int64)}


def _inverted_counts(counts: TermCounts) -> Tensors:
    """Return the list of each term that some passage has, and the number of terms of each passage."""
    lengths = {"bm25.lengths": counts.lengths().astype(np.int32)}
    sizes = np.bincount(counts.terms, minlength=len(counts.hashes))
    used = np.flatnonzero(sizes)
    keys, which = np.unique(counts.hashes[used], return_inverse=True)  # terms of one hash, if any, are one list
    lists = np.zeros(len(sizes), np.int32)
    lists[used] = which
    key_ends = np.cumsum(np.bincount(which, sizes[used], len(keys)), dtype=np.int64)
    starts = np.append(np.zeros(1, np.int64), key_ends)[:-1]
    rows, values = invert(counts.terms, counts.counts, counts.ends, lists, starts)
    return {**lengths, "bm25.keys": keys, "bm25.key_ends": key_ends, "bm25.rows": rows, "bm25.values": values}


def _dense(part: str, rows: Floats) -> Tensors:
    """Return the rows of a dense part, and for many of them 8 bits of each number with a bound of the error."""
    tensors: Tensors = {f"vectors:{part}": rows}
    if len(rows) >= COARSE_ROWS:
        # A row x is scale * codes, and errors[i] >= |x - scale * codes|: with a query q of any length the product
        # differs by at most |q| errors[i].
        high = np.empty((len(rows), (rows.shape[1] + 1) // 2), np.uint8)
        coarse = Codes(high, np.empty_like(high), *np.empty((2, len(rows)), np.float32))
        for start in range(0, len(rows), _CACHED_ROWS):
            chunk = slice(start, start + _CACHED_ROWS)
            scale = np.maximum(rows[chunk].max(axis=1), -rows[chunk].min(axis=1)) / np.float32(MAX_CODE)
            scale[scale == 0] = 1
            codes = np.rint(rows[chunk] / scale[:, None])
            lost = rows[chunk].astype(np.float64) - codes.astype(np.float64) * scale[:, None].astype(np.float64)
            coarse.high[chunk], coarse.low[chunk] = pack_codes(codes.astype(np.int8))
            coarse.scales[chunk] = scale
            coarse.errors[chunk] = np.nextafter(np.linalg.norm(lost, axis=1).astype(np.float32), np.float32(np.inf))
        tensors |= {f"{kind}:{part}": array for kind, array in coarse._asdict().items()}
    return tensors


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


def _columns(metadata: Sequence[Mapping[str, Any]], fields: Fields) -> Tensors:
    words: dict[str, int] = {}
    values = [
        (column, row, words.setdefault(item, len(words)) if isinstance(item, str) else item)
        for row, document_metadata in enumerate(metadata)
        for column, items in entries(document_metadata, fields).items()
        for item in items
    ]
    keys, rows, numbers = np.array(values, np.float64).reshape(-1, 3).T
    return _lists("column", keys.astype(np.int64), rows.astype(np.int64), numbers) | _dictionary(words)


def _are_words(columns: Integers) -> Mask:
    """Return which columns hold the numbers of words."""
    return columns % COLUMNS_PER_FIELD != COLUMN_KINDS.index("n")  # type: ignore[no-any-return]


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
    values, strings_at = tensors["column.values"].copy(), np.flatnonzero(_are_words(keys))
    used = values[strings_at].astype(np.int64)
    values[strings_at] = [number_by_word.setdefault(all_words[n], len(number_by_word)) for n in used.tolist()]
    return {"column.values": values} | _dictionary(number_by_word)


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


def list_for(prefix: str, tensors: Tensors, key: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]:
    """Return the rows and values of one key; rows are unsigned, since a damaged one must not count from the end."""
    keys, ends = tensors[f"{prefix}.keys"], tensors[f"{prefix}.key_ends"]
    position = int(keys.searchsorted(key))
    if position == len(keys) or keys[position] != key:
        return tensors[f"{prefix}.rows"][:0].view(np.uint32), tensors[f"{prefix}.values"][:0]
    span = slice(int(ends[position - 1]) if position else 0, int(ends[position]))
    return tensors[f"{prefix}.rows"][span].view(np.uint32), tensors[f"{prefix}.values"][span]


def _merged_lists(prefix: str, tensors_list: Sequence[Tensors], positions_list: Sequence[Integers]) -> Tensors:
    keys, rows, values = [], [], []
    before = words = 0
    for tensors, new_positions in zip(tensors_list, positions_list):
        sizes = np.diff(tensors[f"{prefix}.key_ends"], prepend=0)
        new_rows = new_positions[tensors[f"{prefix}.rows"]]
        is_selected = new_rows >= 0
        key, value = np.repeat(tensors[f"{prefix}.keys"], sizes)[is_selected], tensors[f"{prefix}.values"][is_selected]
        if prefix == "column":  # the words of each segment come one after the other until they are made one
            value = np.where(_are_words(key), value + words, value)
            words += len(tensors["words.ends"])
        keys.append(key)
        rows.append(new_rows[is_selected] + before)
        values.append(value)
        before += int((new_positions >= 0).sum())
    return _lists(prefix, np.concatenate(keys), np.concatenate(rows), np.concatenate(values))


def _new_positions(selected: Integers, size: int) -> Integers:
    """Return where each of `size` rows comes to when only the `selected` ones are; -1 for those that are left out."""
    positions = np.full(size, -1, np.int64)
    positions[selected] = np.arange(len(selected))
    return positions


# --- How they are checked ---


def _is_list_key(name: str) -> bool:
    """Whether an array holds the keys of lists; a part of the score may be called "x.keys" too."""
    return name.endswith(".keys") and (":" not in name or name.startswith("sparse:"))


def _type_of(name: str) -> str:
    kind, part, array_name = name.partition(":")
    if kind in ("sparse", "rows"):
        kind = f"{kind}.{array_name.rpartition('.')[2]}"
    elif part and kind not in ("vectors", *Codes._fields):
        raise ValueError(f"nothing is called {name!r:.60}")
    type_name = _TYPES.get(kind) or _ENDINGS.get(kind.rpartition(".")[2])
    if type_name is None:
        raise ValueError(f"nothing is called {name!r:.60}")
    return type_name


def check_arrays(tensors: Tensors) -> None:
    """Check that arrays fit together, so that nothing is read at a wrong place; numbers are not looked at."""
    for name, tensor in tensors.items():
        is_matrix = name.startswith(("vectors:", "high:", "low:"))
        dimensions = 2 if is_matrix or (name.startswith("rows:") and name.endswith(".vectors")) else 1
        if tensor.dtype != np.dtype(_type_of(name)) or tensor.ndim != dimensions:
            raise ValueError(f"{name} is of type {tensor.dtype} {tensor.shape}")
    documents, passages = len(tensors["numbers"]), _check_ends("passages", tensors["passages"], None)
    for kind in (*STRINGS, "words"):
        _check_ends(f"{kind}.ends", tensors[f"{kind}.ends"], len(tensors[f"{kind}.data"]))
    sizes = {"passages": documents, "id.hash": documents, "id.order": documents, "cuts": passages}
    sizes |= {f"{kind}.ends": documents for kind in STRINGS} | {"words.times": len(tensors["words.ends"])}
    for name in sorted({"column.keys", *filter(_is_list_key, tensors)}):
        prefix = name.removesuffix(".keys")
        keys, ends, rows = (tensors[f"{prefix}.{array}"] for array in ("keys", "key_ends", "rows"))
        _check_ends(name, ends, len(rows))
        _check_rising(name, keys)
        sizes |= {f"{prefix}.key_ends": len(keys), f"{prefix}.values": len(rows)}
    for name in tensors:
        kind, _, part = name.partition(":")
        if kind in ("vectors", *Codes._fields, "bm25.lengths"):
            sizes[name] = passages
        if kind in Codes._fields:
            sizes |= {f"{field}:{part}": passages for field in Codes._fields}
        if kind in ("high", "low") and tensors[name].shape[1] != (tensors[f"vectors:{part}"].shape[1] + 1) // 2:
            raise ValueError(f"{name} has another number of dimensions than the vectors")
        if kind == "rows" and name.endswith(".ends"):
            array, sizes[name] = name.removesuffix("ends"), passages
            has_vectors = f"{array}vectors" in tensors
            items = tensors[f"{array}vectors" if has_vectors else f"{array}indices"]
            n_items = _check_ends(name, tensors[name], len(items))
            if not has_vectors:
                sizes |= {f"{array}values": n_items, f"sparse:{part.removesuffix('ends')}rows": n_items}
    for name, size in sizes.items():
        if len(tensors[name]) != size:
            raise ValueError(f"{name} has {len(tensors[name])} items, and {size} belong there")
    if "bm25.lengths" in tensors and "bm25.keys" not in tensors:
        raise ValueError("there are counts of terms, and no terms")
    if not documents or tensors["numbers"][0] < 1 or tensors["passages"][0] < 1:
        raise ValueError("there is no document, or one without passages")
    for name in ("numbers", "passages"):  # a document has a passage, be it an empty one
        _check_rising(name, tensors[name])
    if not 0 <= tensors["id.order"].min() <= tensors["id.order"].max() < documents:
        raise ValueError("id.order points outside the documents")


def find_invalid_numbers(tensors: Tensors) -> str:
    """Return which numbers cannot be right, "" where all can be; every number is read."""
    documents, passages = len(tensors["numbers"]), len(tensors["cuts"])
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and name != "words.times" and not is_sound(tensor):
            return f"{name} holds NaN or infinity"
        if _is_list_key(name):
            prefix, size = name.removesuffix(".keys"), documents if name == "column.keys" else passages
            rows = tensors[f"{prefix}.rows"]
            if len(rows) and not 0 <= rows.min() <= rows.max() < size:
                return f"{prefix} points outside the documents"
    first = np.zeros(passages, np.bool_)
    first[0] = first[tensors["passages"][:-1]] = True
    cuts, sizes = tensors["cuts"], np.diff(tensors["text.ends"], prepend=0)
    falls = (cuts[first] < 0).any() or (cuts[1:] < cuts[:-1])[~first[1:]].any()
    if falls or (cuts[tensors["passages"] - 1] > sizes).any():
        return "cuts are not within the texts"
    for name in ("bm25.lengths", "bm25.values"):
        if name in tensors and len(tensors[name]) and tensors[name].min() < 0:
            return f"{name} holds a number below 0"
    return ""


def _check_rising(name: str, numbers: npt.NDArray[np.int64]) -> None:
    if (numbers[1:] <= numbers[:-1]).any():
        raise ValueError(f"{name} do not rise")


def _check_ends(name: str, ends: npt.NDArray[np.int64], last: int | None) -> int:
    """Return the last of some ends; check that they rise, and end at `last`."""
    if len(ends) and (ends[0] < 0 or (ends[1:] < ends[:-1]).any()):
        raise ValueError(f"{name} does not rise")
    end = int(ends[-1]) if len(ends) else 0
    if last is not None and end != last:
        raise ValueError(f"{name} ends at {end}, and {last} are there")
    return end
