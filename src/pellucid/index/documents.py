"""The documents of an index, in one SQLite file: the truth about what the index holds, and its one commit point.

The engine is written first and flushed; then one transaction here makes a batch of documents visible, with the counts
of terms that BM25 needs, or nothing of it. A passage that the engine holds and this file does not know of is no hit.
What must go from the engine after a commit is written down in it (`garbage`) and done at the next opening, if a crash
came between. Document numbers are never used twice, and a passage's number in the engine is made of two: the document's
and its own.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.errors import VERSION, IndexFolderError, InputError, ModelFolderError, WritingError
from pellucid.index.metadata import checked_metadata
from pellucid.store import read_json
from pellucid.text import well_formed

FORMAT = 1
"""The format of an index that this version writes; it reads this one and all before."""

PASSAGE_BITS = 16
"""A document has at most 2 ** 16 passages."""

_SCHEMA = """
CREATE TABLE state (value TEXT NOT NULL);
CREATE TABLE documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, text TEXT NOT NULL,
    metadata TEXT NOT NULL, ends TEXT NOT NULL);
CREATE TABLE terms (number INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE, passages INTEGER NOT NULL);
CREATE TABLE garbage (number INTEGER NOT NULL, passages INTEGER NOT NULL);
"""
_BATCH_DOCUMENTS, _BATCH_CHARACTERS = 1000, 4_000_000  # of one commit
_ABSENT = object()
_MOST_VARIABLES = 900  # in one statement
_MOST_ASKED = 100_000  # terms of queries that are remembered
_BREAKS = [
    re.compile(p) for p in (r"\n\s*\n", r"\n", r"[.!?\u2026]['\")\]]*\s+|[\u3002\uff01\uff1f]", r"\s+")
]  # of passages, the best first
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY) if hasattr(sqlite3, "SQLITE_FULL") else ()


class Document(NamedTuple):
    """A document of an index.

    Attributes:
        number: its own, never used twice.
        id: the user's.
        title: "" for none.
        text: as given.
        metadata: as given.
        ends: where each passage ends in the text, in characters.
    """

    number: int
    id: str
    title: str
    text: str
    metadata: dict[str, Any]
    ends: tuple[int, ...]

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


@dataclass
class State:
    """What an index is and how far it has come; written with every commit.

    Attributes:
        settings: what it was made with: models with fingerprints, weights, language, stop words, length of a passage.
        engine: name of the engine's folder.
        average: terms of a passage that the stored impacts were computed with.
        passages: how many there are.
        terms: how many terms they hold in all.
        documents: how many there are.
        fields: name -> (number, kinds of values).
        changed: passages that came or went since the stored impacts were computed.
    """

    settings: dict[str, Any]
    engine: str = "engine-1"
    average: float = 0.0
    passages: int = 0
    terms: int = 0
    documents: int = 0
    fields: dict[str, tuple[int, str]] = field(default_factory=dict)
    changed: int = 0

    @property
    def mean_length(self) -> float:
        """Number of terms of a passage, over all of them."""
        return self.terms / self.passages if self.passages else 0.0

    def to_json(self) -> str:
        """Return it on one line."""
        return json.dumps(vars(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> State:
        """Return what `to_json` wrote."""
        value = json.loads(text)
        value["fields"] = {name: (number, kinds) for name, (number, kinds) in value["fields"].items()}
        return cls(**value)


class Documents:
    """The open file; one process at a time, any number of threads."""

    def __init__(self, path: Path, state: State | None = None) -> None:
        """Open the file, or make it with a first state.

        Raises:
            IndexFolderError: another process has it open, or it is broken.
        """
        self.path = path
        self._asked: dict[str, tuple[int, int] | None] = {}  # terms of queries since the last commit
        self.lock = threading.RLock()  # a reader must not see a transaction that is not finished
        with self._explained():
            self._db = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
                self._db.execute(f"PRAGMA {pragma}")  # exclusive: until it is closed, or its process ends
            with self.transaction():
                if state is not None:
                    for statement in _SCHEMA.strip().split(";")[:-1]:
                        self._db.execute(statement)
                    self._db.execute("INSERT INTO state VALUES (?)", (state.to_json(),))
            row = self._db.execute("SELECT value FROM state").fetchone()
        try:
            self.state = State.from_json(row[0])
        except (TypeError, ValueError, KeyError) as error:
            raise IndexFolderError(f"{path} is broken: {error!r}. Restore it, or build the index anew") from error

    def close(self) -> None:
        """Release the file."""
        with self.lock:
            self._db.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the database's refusals into errors that say what and what now."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise IndexFolderError(
                    f"the index {self.path.parent} is open in another process; close it there first"
                ) from error
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FULL or "full" in str(error):
                raise WritingError(
                    f"cannot write {self.path}: {error}. What was committed before is safe; free some space"
                ) from error
            raise IndexFolderError(f"{self.path} cannot be read: {error}") from error
        except sqlite3.DatabaseError as error:
            raise IndexFolderError(f"{self.path} is broken: {error}. Restore it, or build the index anew") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside visible at once at the end, or none; on disk when it returns."""
        with self.lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk ends it by itself
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def commit(self, state: State) -> Iterator[None]:
        """The same with a new state, which holds from the end of it."""
        with self.lock:
            with self._explained(), self.transaction():
                yield
                self._db.execute("UPDATE state SET value = ?", (state.to_json(),))
            self.state, self._asked = state, {}

    def next_number(self) -> int:
        """Return the number that the next document gets."""
        with self.lock, self._explained():
            found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'documents'").fetchone()
        return int(found[0]) + 1 if found else 1

    def skip(self, failed: Iterable[Document] = ()) -> None:
        """Never use the numbers of the next batch: a write to the engine that failed may still arrive there.

        Args:
            failed: what may have come to the engine of it, and has to go.
        """
        with self._explained(), self.transaction():
            rows = [(document.number, len(document.ends)) for document in failed]
            self._db.executemany("INSERT INTO garbage VALUES (?, ?)", rows)
            last = self.next_number() - 1 + _BATCH_DOCUMENTS
            self._db.execute("DELETE FROM sqlite_sequence WHERE name = 'documents'")
            self._db.execute("INSERT INTO sqlite_sequence VALUES ('documents', ?)", (last,))

    def by_id(self, ids: Collection[str]) -> list[Document]:
        """Return the documents among `ids` that are there, in no order."""
        return self._select("id", [own for own in ids if well_formed(own) == own])  # no file holds half a character

    def by_number(self, numbers: Collection[int]) -> list[Document]:
        """Return the documents among `numbers` that are there, in no order."""
        return self._select("number", list(numbers))

    def _select(self, column: str, wanted: Sequence[Any]) -> list[Document]:
        found: list[Any] = []
        with self.lock, self._explained():
            for start in range(0, len(wanted), _MOST_VARIABLES):
                block = wanted[start : start + _MOST_VARIABLES]
                marks = ",".join("?" * len(block))
                found += self._db.execute(f"SELECT * FROM documents WHERE {column} IN ({marks})", block).fetchall()
        return [_document(row) for row in found]

    def all(self, block: int = 500) -> Iterator[list[Document]]:
        """Yield every document by rising number, in blocks; changes between two blocks are seen."""
        last = 0
        while True:
            with self.lock, self._explained():
                rows = self._db.execute(
                    "SELECT * FROM documents WHERE number > ? ORDER BY number LIMIT ?", (last, block)
                ).fetchall()
            if not rows:
                return
            yield [_document(row) for row in rows]
            last = rows[-1][0]

    def replace(self, new: Iterable[Document], old: Collection[Document], change: Mapping[str, int]) -> None:
        """Within a commit, insert documents and remove others, and change how many passages hold a term.

        The engine has flushed its deletions of the garbage before; what it has to delete now takes its place.
        """
        run = self._db.executemany
        self._db.execute("DELETE FROM garbage")
        run("DELETE FROM documents WHERE number = ?", [(d.number,) for d in old])
        run("INSERT INTO garbage VALUES (?, ?)", [(d.number, len(d.ends)) for d in old])
        run(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)",
            [(d.number, d.id, d.title, d.text, json.dumps(d.metadata), json.dumps(d.ends)) for d in new],
        )
        run("UPDATE terms SET passages = passages + ? WHERE term = ?", [(n, term) for term, n in change.items() if n])

    def start_anew(self, counts: Mapping[str, int] | None) -> None:
        """Within a commit, take up a new engine, which holds no garbage.

        Args:
            counts: how many passages hold each term; None leaves them.
        """
        self._db.execute("DELETE FROM garbage")
        if counts is not None:
            self._db.execute("UPDATE terms SET passages = 0")
            self._db.executemany("UPDATE terms SET passages = ? WHERE term = ?", [(n, t) for t, n in counts.items()])

    def garbage(self) -> list[int]:
        """Return the engine's numbers of passages that are no longer part of a document."""
        with self.lock, self._explained():
            rows = self._db.execute("SELECT number, passages FROM garbage").fetchall()
        return [point for number, passages in rows for point in points_of(number, passages)]

    def term_numbers(self, terms: Iterable[str]) -> dict[str, int]:
        """Return a number for each term; new terms get one, which later crashes may leave unused."""
        wanted = list(terms)
        known = self._terms(wanted)
        new = [term for term in wanted if term not in known]
        if new:
            with self._explained(), self.transaction():
                self._db.executemany("INSERT INTO terms (term, passages) VALUES (?, 0)", [(term,) for term in new])
            known |= self._terms(new)
        return {term: number for term, (number, _) in known.items()}

    def _terms(self, terms: Iterable[str]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        waiting = iter(terms)
        with self.lock, self._explained():
            while block := list(islice(waiting, _MOST_VARIABLES)):
                marks = ",".join("?" * len(block))
                rows = self._db.execute(f"SELECT term, number, passages FROM terms WHERE term IN ({marks})", block)
                found |= {term: (number, passages) for term, number, passages in rows}
        return found

    def passages_with(self, terms: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return for each known term its number and the number of passages that hold it."""
        with self.lock:
            new = [term for term in terms if term not in self._asked]
            if len(self._asked) > _MOST_ASKED:
                self._asked = {}
                new = list(terms)
            if new:
                self._asked |= dict.fromkeys(new) | self._terms(new)
            known = [(term, self._asked[term]) for term in terms]
        return {term: found for term, found in known if found is not None}

    def all_counts(self) -> dict[str, int]:
        """Return for every term that a passage holds the number of those that do."""
        with self.lock, self._explained():
            return dict(self._db.execute("SELECT term, passages FROM terms WHERE passages != 0").fetchall())

    def check(self) -> list[str]:
        """Return what SQLite finds wrong with the file."""
        with self.lock, self._explained():
            found = [row[0] for row in self._db.execute("PRAGMA integrity_check").fetchall()]
        return [] if found == ["ok"] else found


def _document(row: Sequence[Any]) -> Document:
    number, own, title, text, metadata, ends = row
    known = json.loads(metadata) if metadata != "{}" else {}  # the commonest, ten times a search
    return Document(number, own, title, text, known, tuple(map(int, ends[1:-1].split(","))))


def passage_ends(text: str, limit: int) -> tuple[int, ...]:
    """Return where each passage of `text` ends, in characters; passages are as equal as their breaks allow.

    Args:
        text: any text.
        limit: the most characters of a passage.

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
    """Return checked documents without numbers, one at a time, their passages of at most `limit` characters.

    Raises:
        InputError: an item is of the wrong kind, an id occurs twice, there are not equally many, or a document has too
            many passages.
    """
    for name, value in (("ids", ids), ("texts", texts), ("titles", titles)):
        if isinstance(value, str):
            raise InputError(f"{name} is one string, {value!r:.40}; give a list: [{value!r:.20}]")
    untitled, plain = titles is None, metadata is None
    columns = [ids, texts, () if untitled else titles, () if plain else metadata]
    return _drafts(zip_longest(*columns, fillvalue=_ABSENT), untitled, plain, limit)


def _drafts(items: Iterable[tuple[Any, ...]], untitled: bool, plain: bool, limit: int) -> Iterator[Document]:
    seen: dict[str, int] = {}
    for position, (own, text, title, metadata) in enumerate(items):
        if _ABSENT in (own, text) or (title is _ABSENT and not untitled) or (metadata is _ABSENT and not plain):
            raise InputError(f"ids, texts, titles and metadata must be equally many; one ends at {position}")
        title = "" if title in (_ABSENT, None) else title
        _check_strings(position, own, text, title)
        if own in seen:
            raise InputError(f"id {own!r:.80} is given twice, as item {seen[own]} and {position}; give each once")
        seen[own] = position
        known = checked_metadata(None if metadata is _ABSENT else metadata, f"document {own!r:.80}")
        ends = passage_ends(text, limit)
        if len(ends) > 1 << PASSAGE_BITS:
            raise InputError(
                f"document {own!r:.80} has {len(text):,} characters, which are {len(ends):,} passages; at most "
                f"{1 << PASSAGE_BITS:,} are possible. Divide it, or create the index with longer passages"
            )
        yield Document(0, own, well_formed(title), well_formed(text), known, ends)


def batch_of(checked: Iterator[Document]) -> list[Document]:
    """Take the documents of one commit."""
    batch: list[Document] = []
    size = 0
    for draft in checked:
        batch.append(draft)
        size += len(draft.text)
        if len(batch) == _BATCH_DOCUMENTS or size >= _BATCH_CHARACTERS:
            break
    return batch


def _check_strings(position: int, own: Any, text: Any, title: Any) -> None:
    if not isinstance(own, str) or not own:
        raise InputError(f"id {position} is {own!r:.40} ({type(own).__name__}); an id is a string that is not empty")
    if well_formed(own) != own:
        raise InputError(f"id {position} is {own!r:.80}, which holds half a character (a lone surrogate)")
    for name, value in (("text", text), ("title", title)):
        if not isinstance(value, str):
            what = f"{type(value).__name__} {value!r:.40}"
            raise InputError(f"the {name} of document {own!r:.80} is {what}; it must be a string")


def size_on_disk(file: Path) -> int:
    """Return what a file takes of the disk; the engine's have holes."""
    facts = file.stat()
    return getattr(facts, "st_blocks", -(-facts.st_size // 512)) * 512 if file.is_file() else 0


def check_space(folder: Path, least: int) -> None:
    """Refuse to write where the disk has little room left.

    Raises:
        WritingError: fewer bytes than `least` are free.
    """
    free = shutil.disk_usage(folder).free
    if free < least:
        raise WritingError(
            f"{folder} is on a disk with {free >> 20:,} MB left, and {least >> 20:,} are needed. What was committed is "
            "safe; free some space"
        )


def check_format(folder: Path) -> None:
    """Refuse a folder that is no index, or one of a newer version."""
    if not (folder / "index.json").is_file():
        what = "is no index: there is no index.json in it" if folder.is_dir() else "is not there"
        raise IndexFolderError(f"{folder} {what}. Make one: pellucid.Index.create, or pellucid index build")
    try:
        found = read_json(folder / "index.json")["pellucid-index"]["format"]
    except (ModelFolderError, KeyError, TypeError) as error:
        raise IndexFolderError(f"{folder} is no index: its index.json is of something else ({error})") from error
    if type(found) is not int or not 1 <= found <= FORMAT:
        raise IndexFolderError(
            f"{folder} has format {found!r:.40}; pellucid {VERSION} reads up to {FORMAT}. "
            "Update pellucid: pip install -U pellucid"
        )
