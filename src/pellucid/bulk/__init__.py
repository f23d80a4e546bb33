"""Work on whole corpora, a block of texts at a time: near-duplicates."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.bulk.near_duplicates import (
        DuplicateGroup as DuplicateGroup,
        DuplicatePair as DuplicatePair,
        Duplicates as Duplicates,
        duplicates as duplicates,
        write_kept as write_kept,
    )
else:
    _HOMES = {"near_duplicates": "DuplicateGroup DuplicatePair Duplicates duplicates write_kept"}
    __getattr__, __dir__, __all__ = lazy(__name__, _HOMES)
