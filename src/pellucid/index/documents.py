"""The documents of an index, how their texts are cut into passages, and the checks of what a user gives."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice, zip_longest
from numbers import Integral
from typing import Any, NamedTuple

from pellucid.errors import MAX_WRITTEN_BITS, InputError, shown, warn
from pellucid.index.values import plain_metadata
from pellucid.text.inputs import describe_item, iterate_texts
from pellucid.text.lines import batches_by_size
from pellucid.text.tables import CorpusFile
from pellucid.text.unicode import canonicalize, canonicalize_with_offsets, cluster_start, well_formed

MAX_PASSAGES = 1 << 16  # of a document
CONTENT_ID_CHARS = 32  # of an id that is a hash of the content; "-2" and so on may follow

BATCH_DOCUMENTS, BATCH_CHARS = 1000, 4_000_000  # of one commit
_ABSENT = object()
MAX_WARNED_FIELDS = 20  # fields that are left out
_BREAKS = [
    re.compile(p) for p in (r"\n\s*\n", r"\n", r"[.!?\u2026]['\")\]]*\s+|[\u3002\uff01\uff1f]", r"\s+")
]  # of passages, the best first


class Document(NamedTuple):
    """A document of an index."""

    number: int  # never used twice
    id: str  # the user's
    title: str  # "" for none
    text: str
    metadata: dict[str, Any]
    ends: tuple[int, ...]  # where each passage ends in the text, in characters

    def passage(self, index: int) -> str:
        """Return the text of a passage."""
        return self.text[self.ends[index - 1] if index else 0 : self.ends[index]]

    def indexed(self, index: int) -> str:
        """Return what is indexed of a passage: the title, an empty line, which ends a sentence, and the text."""
        return f"{self.title}\n\n{self.passage(index)}" if self.title else self.passage(index)

    def passages(self) -> list[str]:
        """Return what is indexed of each passage."""
        return [self.indexed(passage) for passage in range(len(self.ends))]


def passage_ends(text: str, limit: int) -> tuple[int, ...]:
    """Return where each passage ends, at most `limit` characters long and as equal as the breaks allow.

    >>> passage_ends("One. Two. Three. Four.", 12)
    (10, 22)
    """
    ends: list[int] = []
    start = 0
    while len(text) - start > limit:
        n_left = -(-(len(text) - start) // limit)  # passages that the rest needs
        target = (len(text) - start) // n_left
        start = _break_near(text, start + target, start + target // 2, start + limit)
        ends.append(start)
    return (*ends, len(text))


def _break_near(text: str, target: int, first: int, last: int) -> int:
    """Return the best place for a cut near `target`: after a paragraph, else a line, a sentence, a word or a letter."""
    reach = (last - first) // 4
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, first, last) if abs(match.end() - target) <= reach]
        if ends:
            return min(ends, key=lambda end: abs(end - target))
    return cluster_start(text, target)


class Record(NamedTuple):
    """A document as it was given: its texts and metadata are checked, its id may be missing."""

    id: str | None
    title: str
    text: str
    metadata: dict[str, Any]
    source_position: tuple[str, int]  # where it was: what is counted, and its number


def records_from_columns(
    texts: Any, ids: Any, titles: Any, metadata: Any, left_out: dict[str, str] | None = None
) -> Iterator[Record]:
    """Yield documents from columns; `left_out` gets the fields of the metadata that cannot be kept, and why."""
    columns = {"texts": texts, "ids": ids, "titles": titles, "metadata": metadata}
    iterators = [() if column is None else _iterate(column, name) for name, column in columns.items()]
    lacks_ids, lacks_titles, lacks_metadata = ids is None, titles is None, metadata is None
    for position, (text, document_id, title, fields) in enumerate(zip_longest(*iterators, fillvalue=_ABSENT)):
        if (
            text is _ABSENT
            or (document_id is _ABSENT) > lacks_ids
            or ((title is _ABSENT) > lacks_titles or (fields is _ABSENT) > lacks_metadata)
        ):
            raise InputError(f"texts, ids, titles and metadata must be equally many; one ends at {position}")
        document_id = None if lacks_ids else validate_id(document_id, "id", position)
        title = "" if lacks_titles or title is None else title
        plain: dict[str, Any] = {}
        if type(text) is not str or type(title) is not str or not (lacks_metadata or fields is None):
            what = f"item {position}" if document_id is None else f"document {document_id!r:.80}"
            for name, value in (("text", text), ("title", title)):
                if not isinstance(value, str):
                    raise InputError(f"the {name} of {what} is {describe_item(value)}")
            plain = {} if lacks_metadata else plain_metadata(fields, what, left_out)
        yield Record(document_id, title, text, plain, ("item", position))


def validate_documents(records: Iterable[Record], max_chars: int) -> Iterator[Document]:
    """Yield documents without numbers, one at a time, in passages of at most `max_chars` characters.

    One without an id is called by its content, so that adding it again replaces it.
    """
    positions: dict[str, tuple[str, int]] = {}  # by id
    repeats: Counter[str] = Counter()
    for document_id, title, text, metadata, source_position in records:
        title, is_plain = title and well_formed(title), text.isascii()
        text = text if is_plain else well_formed(text)
        if document_id is None:
            content = json.dumps([title, text, metadata], sort_keys=True).encode()
            document_id = blake2b(content, digest_size=CONTENT_ID_CHARS // 2).hexdigest()
            repeats[document_id] += 1
            document_id += f"-{repeats[document_id]}" * (repeats[document_id] > 1)
        else:
            if document_id in positions:
                twice = " and ".join(f"{source} {n}" for source, n in (positions[document_id], source_position))
                raise InputError(f"id {document_id!r:.80} is given twice: {twice}; give each document an id of its own")
            positions[document_id] = source_position
        if is_plain and len(text) <= max_chars:
            ends: tuple[int, ...] = (len(text),)
        else:
            form = canonicalize_with_offsets(text)
            ends = tuple([form.span(0, end)[1] for end in passage_ends(form.text, max_chars)])
        if len(ends) > MAX_PASSAGES:
            raise InputError(
                f"document {document_id!r:.80} has {len(text):,} characters, which are {len(ends):,} passages; at most "
                f"{MAX_PASSAGES:,} are possible. Divide it, or create the index with longer passages"
            )
        yield Document(0, document_id, title, text, metadata, ends)


def warn_left_out(left_out: Mapping[str, str], where: str) -> None:
    """Warn of fields of metadata that were not kept."""
    for name, reason in islice(left_out.items(), MAX_WARNED_FIELDS):
        warn(f"{where}: the field {name!r:.60} is left out where it {reason}")
    if len(left_out) > MAX_WARNED_FIELDS:
        warn(f"{where}: {len(left_out) - MAX_WARNED_FIELDS:,} more fields are left out")


def _iterate(column: Any, name: str) -> Iterator[Any]:
    """Return an iterator over texts, ids, titles or metadata, after refusing what only looks like a list of them."""
    if name == "metadata":
        if isinstance(column, Mapping):
            raise InputError("metadata is one dict; give a list of as many as texts, such as [metadata] * len(texts)")
        column = _as_rows(column)
    elif isinstance(column, (CorpusFile, os.PathLike)):
        raise InputError(f"{name} is the file {str(column)!r:.80}; add files by index.add_files, or give a list")
    if name == "ids" and isinstance(column, Mapping):  # its keys may well be ids
        return iter(column)
    items = iterate_texts(column, name)
    return iter(column.to_pylist()) if hasattr(column, "to_pylist") else items


def _as_rows(table: Any) -> Any:
    """Return the rows of a table of pandas or Polars as dicts; another column of metadata as it is."""
    if hasattr(table, "itertuples"):
        names = list(table.columns)
        return (dict(zip(names, row)) for row in table.itertuples(index=False, name=None))
    if hasattr(table, "iter_rows"):
        return table.iter_rows(named=True)
    return table.to_pylist() if hasattr(table, "to_pylist") else table


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield the documents of one commit after the other."""
    return batches_by_size(documents, BATCH_DOCUMENTS, lambda document: len(document.text), BATCH_CHARS)


def validate_id(value: Any, what: str, position: int | None = None) -> str:
    """Return an id as it is kept: a string, an integer as its digits; `what` and `position` name it in messages."""
    if type(value) is str and value and value.isascii():
        return value
    what = what if position is None else f"{what} {position}"
    if type(value) is not bool and isinstance(value, Integral):  # numpy's are, too
        if (number := int(value)).bit_length() > MAX_WRITTEN_BITS:
            raise InputError(f"{what} is {shown(number)}; give an id of at most 600 digits")
        return str(number)
    if not isinstance(value, str) or not value:
        kind = type(value).__name__
        raise InputError(f"{what} is {shown(value)} ({kind}); an id is a string that is not empty, or an integer")
    if well_formed(value) != value:
        raise InputError(f"{what} is {shown(value, 80)}, which holds half a character (a lone surrogate)")
    return canonicalize(value)  # spellings that Unicode calls equivalent are one id
