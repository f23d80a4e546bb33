"""An open index in one process: its last commit with models, its documents, and the lock for changes.

Each call takes the last commit, which another process may have made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn

from pellucid.errors import IndexFolderError, InputError, PellucidError, check_number, shown
from pellucid.explain.views.report import frame
from pellucid.index.commits import Commit, read_commit, read_stamp
from pellucid.index.documents import (
    CONTENT_ID_CHARS,
    Document,
    batches,
    records_from_columns,
    validate_documents,
    validate_id,
    warn_left_out,
)
from pellucid.index.listing import DOCUMENT_COLUMNS, count_documents, count_values, field_columns, list_documents
from pellucid.index.metadata import field_types
from pellucid.index.models import open_stored_models
from pellucid.index.parts import ModelPart
from pellucid.index.plan import Snapshot
from pellucid.index.precomputed import PrecomputedVectors, stored_rows
from pellucid.index.records import NamedDocuments, read_documents
from pellucid.index.settings import precomputed_parts
from pellucid.index.sync import MAX_DELETED_SHARE, SyncCounts, compare
from pellucid.index.writer import Additions, Writer, encoded, replace_documents
from pellucid.persistence.folder import allow_external, is_outside_allowed
from pellucid.persistence.store import locked, translate_os_errors
from pellucid.progress import Progress
from pellucid.text.tables import CorpusFile

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Self

LOCK_TIMEOUT_S = 60.0  # that a change waits for another one


class DocumentCollection:
    """An open index and its documents; any number of threads may use it."""

    def __init__(self, folder: Path, commit: Commit, models: dict[str, ModelPart], *, read_only: bool) -> None:
        """Take what `Index.create` and `Index.open` have opened."""
        self.folder, self._read_only, self._closed = folder, read_only, False
        self._allow_outside = is_outside_allowed()
        self._caller_models: dict[str, Any] = {}  # for when a rebuild asks for models of the same names
        self._writer: Writer | None = None  # while a change is made
        self._process = os.getpid()
        self._write_lock = RLock()  # held during a change, with the lock of the folder
        self._snapshot_lock = RLock()  # held while another snapshot takes the place of the last one
        self._snapshot = Snapshot.from_commit(commit, models)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise InputError(
            f"an open index cannot be copied or pickled; another process opens it by its folder: "
            f"pellucid.Index.open({str(self.folder)!r})"
        )

    def close(self) -> None:
        """Refuse further calls; what was added is on disk already. Hits can still be explained."""
        self._closed = True

    def __enter__(self) -> Self:
        """Return the index; leaving the block closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    def snapshot(self) -> Snapshot:
        """Return the last commit with its models."""
        if self._closed:
            raise InputError(f"the index {self.folder} is closed; open it again: pellucid.Index.open")
        if self._process != os.getpid():
            raise InputError(
                f"the index {self.folder} was opened by the process that this one was forked from; open it in this "
                f"process: pellucid.Index.open({str(self.folder)!r})"
            )
        if self._writer is None and read_stamp(self.folder) != self._snapshot.commit.stamp:
            with self._snapshot_lock:
                if self._writer is None and read_stamp(self.folder) != self._snapshot.commit.stamp:
                    self._load_commit(read_commit(self.folder, self._snapshot.commit))
        if self._snapshot.words.full:
            with self._snapshot_lock:
                self._snapshot = Snapshot.from_commit(self._snapshot.commit, self._snapshot.models)
        return self._snapshot

    def _load_commit(self, commit: Commit) -> None:
        """Take a later commit, with its models where they changed."""
        before, after = self._snapshot.commit.state, commit.state
        if after.settings["models"] == before.settings["models"]:
            self._snapshot = self._snapshot._replace(commit=commit)
            return
        names = {model["name"] for model in after.settings["models"]}
        caller_models = {name: model for name, model in self._caller_models.items() if name in names}
        try:
            with allow_external(self._allow_outside):
                models = open_stored_models(self.folder, after.settings["models"], caller_models, check=True)
        except PellucidError as error:
            raise IndexFolderError(f"{self.folder} was rebuilt with other models; open it again: {error}") from error
        self._snapshot = Snapshot.from_commit(commit, models)

    @contextmanager
    def _exclusive_writer(self) -> Iterator[Writer]:
        """Hold the lock of the index, with the last commit."""
        self.snapshot()
        if self._read_only:
            raise InputError(f"the index {self.folder} was opened with read_only=True; open it again to change it")
        with self._write_lock, ExitStack() as stack:
            if self._writer is not None:  # within a change of this thread
                yield self._writer
                return
            stack.enter_context(translate_os_errors(self.folder))
            try:
                stack.enter_context(locked(self.folder, LOCK_TIMEOUT_S))
            except InputError as error:
                raise IndexFolderError(f"the index cannot be changed: {error}") from error
            writer = Writer(self.folder, self.snapshot().commit)
            try:
                with self._snapshot_lock:  # a thread that is about to take the last commit has taken it
                    self._writer = writer
                yield writer
                with self._snapshot_lock:  # after an error the next call takes what is on disk, with its models
                    self._snapshot = self._snapshot._replace(commit=writer.commit)
            finally:
                self._writer = None

    # Documents

    def __len__(self) -> int:
        """Return the number of documents."""
        return self.snapshot().commit.state.documents

    def __contains__(self, id: object) -> bool:
        """Whether there is a document of this id."""
        commit = self.snapshot().commit
        with suppress(InputError):
            return bool(commit.rows_for([validate_id(id, "the id")]))
        return False

    def __getitem__(self, id: str | int) -> Document:
        """Return a document by its id."""
        commit = self.snapshot().commit
        segment, row = commit.locate(id)
        return commit.segments[segment].document(row)

    def __iter__(self) -> Iterator[Document]:
        """Yield every document, in the order of adding, as they were when the iteration began."""
        return self.snapshot().commit.documents()

    def documents(
        self,
        where: Any = None,
        *,
        sort: str | None = None,
        descending: bool = False,
        offset: int = 0,
        after: int | str | None = None,
        limit: int | None = None,
    ) -> Iterator[Document]:
        """Yield the documents that meet conditions, without a query.

        Args:
            where: as in `search`; None for all documents.
            sort: a field; numbers, then dates, then other strings, and last the documents without the field. None for
                the order of adding. Of a list the first value counts.
            descending: the largest values first; documents without the field stay last.
            offset: how many to leave out at the beginning.
            after: the `number` of the last document of the page before, a cursor that documents added or deleted since
                do not shift; only in the order of adding.
            limit: how many at most; None for all.

        Raises:
            InputError: an unknown field, a condition that nothing can meet, or a number out of range.
        """
        return list_documents(
            self.snapshot().commit,
            where,
            sort=sort,
            descending=descending,
            offset=offset,
            after=after,
            limit=limit,
        )

    def count(self, where: Any = None, *, by: str | None = None) -> Any:
        """Return how many documents meet conditions, or pairs: each value of a field, and how many have it.

        Args:
            where: as in `search`; None for all documents.
            by: a field; the most frequent value first, None for documents without the field. A document with a list
                counts once for each of its values.

        Raises:
            InputError: an unknown field, or a condition that nothing can meet.
        """
        commit = self.snapshot().commit
        return count_documents(commit, where) if by is None else count_values(commit, where, by)

    def to_frame(self, where: Any = None) -> DataFrame:
        """Return the documents that meet conditions as a pandas DataFrame: id, title, text, and a column a field.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        commit = self.snapshot().commit
        fields = commit.state.fields
        rows = ([d.id, d.title, d.text, *map(d.metadata.get, fields)] for d in list_documents(commit, where))
        return frame(rows, [*DOCUMENT_COLUMNS, *field_columns(commit)])

    def add(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[str | int] | None = None,
        titles: Iterable[str | None] | None = None,
        metadata: Iterable[Mapping[str, Any] | None] | None = None,
        vectors: Mapping[str, Any] | None = None,
        show_progress_bar: bool = False,
    ) -> int:
        """Add documents; one whose id is there is replaced.

        Blocks of 1,000 are committed together, at least every 192 MB or half a minute: after a crash a commit is there
        whole or not at all, and all are there when this returns. A list that cannot be added is refused before anything
        is stored; of an iterator, the blocks before an error or an interrupt stay. Other processes may add between two
        commits.

        Args:
            texts: any strings. Long ones are cut into passages, at the ends of paragraphs or sentences where possible.
            ids: as many strings, each once; an integer is kept as its digits. None calls each document by a hash of its
                title, text and metadata, so that those which are there already are passed over; one that was updated
                since is another document, and stays.
            titles: as many, or None for none. A title is part of each passage.
            metadata: as many dicts of strings, numbers, booleans, dates, or lists of such, or a data frame; for
                `where`.
            vectors: name of a model -> array [documents, dimension] that this model has made of the documents
                elsewhere, instead of encoding them here; rows of any length and numeric type, of a sparse model a scipy
                CSR matrix. A row belongs to the whole document, and is used for each of its passages.
            show_progress_bar: show a bar, counting documents, once the work has lasted two seconds.

        Returns:
            how many were added or replaced.

        Raises:
            InputError: an item is of the wrong kind or there are not equally many, an id occurs twice, a document is
                too long, a model gives NaN, or `vectors` name no model, have another dimension or are not finite.
            IndexFolderError: another process keeps changing the index for more than a minute.
            WritingError: the disk is full or read-only; what was committed is safe.
        """
        columns = (texts, ids, titles, metadata)
        left_out: dict[str, str] = {}
        snapshot = self.snapshot()
        precomputed = PrecomputedVectors(vectors, snapshot.models)
        documents = validate_documents(
            records_from_columns(*columns, left_out), snapshot.commit.state.settings["passage_characters"]
        )
        if all(column is None or isinstance(column, Sized) for column in columns):
            all_documents = list(documents)  # all of it is checked before any is stored
            precomputed.check(len(all_documents))
            documents = iter(all_documents)
        count = self._add_batches(
            documents, precomputed, skip_stored=ids is None, by_content=ids is None, show_progress_bar=show_progress_bar
        )
        warn_left_out(left_out, "metadata")
        return count

    def add_files(
        self,
        files: str | os.PathLike[str] | CorpusFile | Iterable[str | os.PathLike[str] | CorpusFile],
        *,
        note: Callable[[str], object] | None = None,
        show_progress_bar: bool = False,
    ) -> int:
        """Add the documents in files, with ids, titles and metadata; one whose id is there is replaced.

        A document without an id is called by its file and line. In a table of text, a column has the type that it has
        in the index, and else the one that all of its cells have. What is there already as it is in the file is passed
        over, so that a run twice adds nothing. If a document is refused, those of blocks before it stay, see `add`.

        Args:
            files: .csv, .tsv, .jsonl, .json, .parquet, .xlsx or .txt (a text a line), a folder of .txt and .md, or a
                `CorpusFile`, which says how a file is read; or several.
            note: called with a line about the types of columns that were found.
            show_progress_bar: show a bar, counting documents, once the work has lasted two seconds.

        Returns:
            how many were added or replaced.

        Raises:
            CorpusError: a file is absent, or broken at a named line.
            InputError, IndexFolderError, WritingError: as for `add`.
        """
        snapshot = self.snapshot()
        named, documents = _read_files(files, snapshot, note)
        precomputed = PrecomputedVectors(None, snapshot.models)
        try:
            return self._add_batches(
                documents,
                precomputed,
                skip_stored=True,
                by_content=False,
                show_progress_bar=show_progress_bar,
                named=named,
            )
        finally:
            named.warn_replaced()

    def sync(
        self,
        files: str | os.PathLike[str] | CorpusFile | Iterable[str | os.PathLike[str] | CorpusFile],
        *,
        max_deleted: float = MAX_DELETED_SHARE,
        dry_run: bool = False,
        note: Callable[[str], object] | None = None,
        show_progress_bar: bool = False,
    ) -> SyncCounts:
        """Make the index hold the documents in files, and no others: add, replace and delete what differs.

        All of it is one commit: after an error or a crash the index is as it was. Documents that were added from
        elsewhere are deleted, too: name all sources. Other changes of the index wait meanwhile. Documents are compared
        by id, title, text and metadata; vectors that were given stay where these are the same. All new texts must fit
        into memory; `add_files` needs none for them.

        Args:
            files: as in `add_files`; a file of a folder that cannot be read is an error, and so is an empty folder.
            max_deleted: the largest share of the documents that may be deleted, 0 to 1.
            dry_run: only count; nothing is changed, and `max_deleted` does not matter.
            note: called with a line about the types of columns that were found.
            show_progress_bar: show a bar, counting documents, once the work has lasted two seconds.

        Returns:
            how many documents were added, changed, unchanged and deleted.

        Raises:
            CorpusError: a file is absent, or broken at a named line; nothing is changed.
            InputError: more than `max_deleted` would be deleted, or as for `add`; nothing is changed.
            IndexFolderError, WritingError: as for `add`.
        """
        check_number("max_deleted", max_deleted, least=0, most=1)
        with (
            nullcontext() if dry_run else self._exclusive_writer() as writer,
            Progress("syncing", unit="documents", enabled=show_progress_bar) as progress,
        ):
            snapshot = self.snapshot() if writer is None else self._snapshot._replace(commit=writer.commit)
            _, documents = _read_files(files, snapshot, note, is_strict=True)
            counts, unstored, replaced = compare(snapshot.commit, documents, progress.advance)
            if writer is not None:
                counts.check(max_deleted)
                replace_documents(writer, snapshot, encoded(snapshot, unstored, progress.advance), replaced)
        return counts

    def _add_batches(
        self,
        documents: Iterator[Document],
        precomputed: PrecomputedVectors,
        *,
        skip_stored: bool,
        by_content: bool,
        show_progress_bar: bool,
        named: NamedDocuments | None = None,
    ) -> int:
        count = n_added = 0
        new_ids = set[str]()  # that replace ids by content
        additions = Additions(self.snapshot(), precomputed.arrays)
        with Progress("indexing", unit="documents", enabled=show_progress_bar) as progress:
            try:
                for batch in batches(documents):
                    batch = self._with_free_ids(batch, new_ids) if by_content else batch
                    rows = precomputed.rows_for(batch, count)
                    if unstored := self._unstored(batch, named) if skip_stored and not rows else batch:
                        additions.add(unstored, rows)
                    count += len(batch)
                    progress.advance(len(batch))
                    if additions.is_due:  # what a disk refuses is not tried again
                        due, additions = additions, Additions(self.snapshot(), precomputed.arrays)
                        n_added += self._store(due, precomputed.models)
            finally:  # after an error or an interrupt, too: the blocks before it are whole
                if additions.documents:
                    n_added += self._store(additions, precomputed.models)
            precomputed.check(count, "; these were stored")
        return n_added

    def _unstored(self, batch: list[Document], named: NamedDocuments | None) -> list[Document]:
        """Return the documents of a batch that are not in the index as they are, with vectors of its models."""
        if precomputed_parts(self.snapshot().commit.state.settings):
            return batch
        stored = self._stored_documents([document.id for document in batch])
        if named is not None:
            named.note_replaced([d.id for d in batch if d.id in stored and stored[d.id][1:] != d[1:]])
        return [d for d in batch if d.id not in stored or stored[d.id][1:] != d[1:]]

    def _with_free_ids(self, batch: list[Document], new_ids: set[str]) -> list[Document]:
        """Return documents whose ids by content are not those of documents that were updated since."""
        stored, renamed = self._stored_documents([document.id for document in batch]), list[Document]()
        for document in batch:
            free_id, number = document.id, 1
            while free_id in new_ids or (free_id in stored and stored[free_id][2:5] != document[2:5]):
                number += 1
                free_id = f"{document.id[:CONTENT_ID_CHARS]}-{number}"
                stored |= self._stored_documents([free_id])
            if free_id != document.id:
                new_ids.add(free_id)
            renamed.append(document._replace(id=free_id))
        return renamed

    def _stored_documents(self, ids: list[str]) -> dict[str, Document]:
        commit = self.snapshot().commit
        return {id: commit.segments[segment].document(row) for id, (segment, row) in commit.rows_for(ids).items()}

    def _store(self, additions: Additions, models_before: Mapping[str, ModelPart]) -> int:
        """Make documents visible, which replace those of the same ids, all or none; return how many."""
        with self._exclusive_writer() as writer:
            additions = additions.moved_to(self._snapshot, models_before)
            replaced = list(writer.commit.rows_for([document.id for document in additions.documents]).values())
            replace_documents(writer, self._snapshot, [additions], replaced)
        return len(additions.documents)

    def update(
        self,
        id: str | int,
        *,
        text: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        vectors: Mapping[str, Any] | None = None,
    ) -> None:
        """Change a document; what is not given stays as it is.

        Args:
            id: its own.
            text: a new one, which every model encodes for which no new vector is given.
            title: a new one, "" for none; the text is then encoded again with it.
            metadata: all of it, in the place of the old.
            vectors: name of a model -> the row of the document, as in `add`.

        Raises:
            InputError: there is no such document, or a value is of the wrong kind.
        """
        vectors_by_name = {
            name: row if hasattr(row, "tocsr") else row[None] if hasattr(row, "ndim") else [row]
            for name, row in (vectors or {}).items()
        }
        with self._exclusive_writer() as writer:
            segment, row = writer.commit.locate(id)
            document = writer.commit.segments[segment].document(row)
            text, title = document.text if text is None else text, document.title if title is None else title
            metadata = document.metadata if metadata is None else metadata
            records = records_from_columns([text], [document.id], [title], [metadata])
            changed = list(validate_documents(records, writer.commit.state.settings["passage_characters"]))
            is_same = (changed[0].text, changed[0].title) == (document.text, document.title)
            stored = stored_rows(writer.commit, self._snapshot.models if is_same else {}, [document])
            rows = PrecomputedVectors(vectors_by_name, self._snapshot.models)
            rows.check(1)
            precomputed = rows.rows_for(changed, 0)
            additions = Additions(self._snapshot, precomputed)
            additions.add(changed, {**stored, **precomputed})
            self._store(additions, self._snapshot.models)

    def delete(self, ids: str | int | Iterable[str | int], *, missing_ok: bool = False) -> int:
        """Remove documents by their ids, all in one commit; return how many.

        Raises:
            InputError: one is not there, and `missing_ok` is off; nothing is removed then.
        """
        items = [ids] if isinstance(ids, (str, bytes, int)) or not isinstance(ids, Iterable) else ids
        document_ids = list(dict.fromkeys(validate_id(document_id, "an id") for document_id in items))
        with self._exclusive_writer() as writer:
            rows = writer.commit.rows_for(document_ids)
            absent = set(document_ids) - rows.keys()
            if absent and not missing_ok:
                raise InputError(f"no document {min(absent)!r:.80} is in the index; nothing was removed")
            if rows:
                replace_documents(writer, self._snapshot, replaced=list(rows.values()))
        return len(rows)


def _read_files(
    files: Any, snapshot: Snapshot, note: Callable[[str], object] | None, *, is_strict: bool = False
) -> tuple[NamedDocuments, Iterator[Document]]:
    """Return the documents of one or several files, before and after they are checked."""
    several = [files] if isinstance(files, (str, os.PathLike, CorpusFile)) else files
    if not isinstance(several, Iterable):
        raise InputError(f"files is {shown(files)}; give a path, or a list of paths")
    state = snapshot.commit.state
    options: dict[str, Any] = {"index_types": field_types(state.fields), "note": note, "is_strict": is_strict}
    named = NamedDocuments(chain.from_iterable(read_documents(file, **options) for file in list(several)))
    return named, validate_documents(named, state.settings["passage_characters"])
