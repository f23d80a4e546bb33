"""The documents of an index, how their texts are cut into passages, and the checks of what a user gives."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from numbers import Integral
from typing import Any, NamedTuple

from pellucid.corpus import cut
from pellucid.errors import InputError
from pellucid.index.metadata import checked_metadata
from pellucid.unicode import well_formed

PASSAGE_BITS = 16
"""A document has at most 2 ** 16 passages."""

_BATCH_DOCUMENTS, _BATCH_CHARACTERS = 1000, 4_000_000  # of one commit
_ABSENT = object()
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

    def passage(self, passage: int) -> str:
        """Return the text of a passage."""
        return self.text[self.ends[passage - 1] if passage else 0 : self.ends[passage]]

    def indexed(self, passage: int) -> str:
        """Return what is indexed of a passage: the title, a line break and the text."""
        return f"{self.title}\n{self.passage(passage)}" if self.title else self.passage(passage)

    def passages(self) -> list[str]:
        """Return what is indexed of each passage."""
        return [self.indexed(passage) for passage in range(len(self.ends))]

    def points(self) -> range:
        """Return the numbers of the passages in the engine."""
        return points_of(self.number, len(self.ends))


def points_of(number: int, passages: int) -> range:
    """Return the engine's numbers of the passages of a document."""
    return range(number << PASSAGE_BITS, (number << PASSAGE_BITS) + passages)


def passage_ends(text: str, limit: int) -> tuple[int, ...]:
    """Return where each passage ends, at most `limit` characters long and as equal as the breaks allow.

    >>> passage_ends("One. Two. Three. Four.", 12)
    (10, 22)
    """
    ends: list[int] = []
    start = 0
    while len(text) - start > limit:
        left = -(-(len(text) - start) // limit)  # passages that the rest needs
        wish = (len(text) - start) // left
        start = _break_near(text, start + wish, start + wish // 2, start + limit)
        ends.append(start)
    return (*ends, len(text))


def _break_near(text: str, wish: int, first: int, last: int) -> int:
    """Return the best place for a cut near `wish`: after a paragraph, else after a line, a sentence or a word."""
    reach = (last - first) // 4
    for pattern in _BREAKS:
        found = [match.end() for match in pattern.finditer(text, first, last) if abs(match.end() - wish) <= reach]
        if found:
            return min(found, key=lambda end: abs(end - wish))
    return wish


def drafts(ids: Any, texts: Any, titles: Any, metadata: Any, limit: int) -> Iterator[Document]:
    """Return checked documents without numbers, one at a time; without ids each gets a random one."""
    for name, value in (("ids", ids), ("texts", texts), ("titles", titles)):
        if isinstance(value, str):
            raise InputError(f"{name} is one string, {value!r:.40}; give a list: [{value!r:.20}]")
    columns = {"id": ids, "text": texts, "title": titles, "metadata": metadata}
    given = {name: column for name, column in columns.items() if column is not None}
    seen: dict[str, int] = {}
    for position, items in enumerate(zip_longest(*given.values(), fillvalue=_ABSENT)):
        if any(item is _ABSENT for item in items):
            raise InputError(f"ids, texts, titles and metadata must be equally many; one ends at {position}")
        row = dict(zip(given, items))
        own = uuid.uuid4().hex if ids is None else checked_id(row["id"], f"id {position}")
        text, title = row["text"], "" if row.get("title") is None else row["title"]
        for name, value in (("text", text), ("title", title)):
            if not isinstance(value, str):
                what = f"{type(value).__name__} {value!r:.40}"
                raise InputError(f"the {name} of document {own!r:.80} is {what}; it must be a string")
        if own in seen:
            raise InputError(f"id {own!r:.80} is given twice, as item {seen[own]} and {position}; give each once")
        seen[own] = position
        known = checked_metadata(row.get("metadata"), f"document {own!r:.80}")
        ends = passage_ends(text, limit)
        if len(ends) > 1 << PASSAGE_BITS:
            raise InputError(
                f"document {own!r:.80} has {len(text):,} characters, which are {len(ends):,} passages; at most "
                f"{1 << PASSAGE_BITS:,} are possible. Divide it, or create the index with longer passages"
            )
        yield Document(0, own, well_formed(title), well_formed(text), known, ends)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield the documents of one commit after the other."""
    return cut(documents, _BATCH_DOCUMENTS, lambda document: len(document.text), _BATCH_CHARACTERS)


def checked_id(own: Any, what: str) -> str:
    """Return an id as it is kept: a string, an integer as its digits."""
    if type(own) is not bool and isinstance(own, Integral):  # numpy's are, too
        return str(int(own))
    if not isinstance(own, str) or not own:
        kind = type(own).__name__
        raise InputError(f"{what} is {own!r:.40} ({kind}); an id is a string that is not empty, or an integer")
    if well_formed(own) != own:
        raise InputError(f"{what} is {own!r:.80}, which holds half a character (a lone surrogate)")
    return own
