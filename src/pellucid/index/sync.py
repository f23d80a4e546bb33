"""What a sync changes: the documents of files are compared with those of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from pellucid.errors import InputError
from pellucid.index.commits import Commit
from pellucid.index.documents import Document, batches

MAX_DELETED_SHARE = 0.2
"""Of the documents, which a sync deletes without being told: more is likely a wrong folder, or half of one."""


class DeletionError(InputError):
    """A sync would delete a larger share of the documents, `share`, than it may; nothing is changed."""

    share = 1.0


class SyncCounts(NamedTuple):
    """How many documents a sync added, changed, left as they are, and deleted."""

    added: int
    changed: int
    unchanged: int
    deleted: int

    def check(self, max_deleted: float) -> None:
        """Check that at most a share of the documents is deleted."""
        n_stored = sum(self[1:])
        if self.deleted > max_deleted * n_stored:
            error = DeletionError(
                f"{self.deleted:,} of {n_stored:,} documents of the index are not in the files and would be deleted, "
                f"more than {100 * max_deleted:.3g} %; nothing was changed. If the files are all there, allow it: "
                "--yes, in Python max_deleted=1"
            )
            error.share = self.deleted / n_stored
            raise error


def compare(
    commit: Commit, documents: Iterable[Document], advance: Callable[[int], None]
) -> tuple[SyncCounts, list[list[Document]], list[tuple[int, int]]]:
    """Return how files differ from an index: counts, what is new or changed, and where what changed or vanished is.

    `advance` is told how many documents are as they were. What is new comes in batches; the rest as segment and row.
    """
    is_vanished = [np.isin(np.arange(len(segment.numbers)), segment.live_rows()) for segment in commit.segments]
    unstored, replaced = list[list[Document]](), list[tuple[int, int]]()
    for batch in batches(documents):
        rows = commit.rows_for([document.id for document in batch])
        stored = {id: commit.segments[segment].document(row) for id, (segment, row) in rows.items()}
        for segment, row in rows.values():
            is_vanished[segment][row] = False
        unstored.append([d for d in batch if d.id not in stored or stored[d.id][1:] != d[1:]])
        replaced += [rows[document.id] for document in unstored[-1] if document.id in rows]
        advance(len(batch) - len(unstored[-1]))
    vanished = [(index, row) for index, mask in enumerate(is_vanished) for row in mask.nonzero()[0].tolist()]
    n_new, n_same = sum(map(len, unstored)) - len(replaced), commit.state.documents - len(replaced) - len(vanished)
    return SyncCounts(n_new, len(replaced), n_same, len(vanished)), unstored, replaced + vanished
