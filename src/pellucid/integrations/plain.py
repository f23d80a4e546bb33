"""Models, embeddings and hits as the plain Python values that other libraries take."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pellucid.errors import InputError
from pellucid.folder import bundled_models, locate
from pellucid.pretrained import load

if TYPE_CHECKING:
    from pellucid.base import Embedder, Vectors
    from pellucid.index.hits import Hit
    from pellucid.index.index import Index

KEY = "pellucid"
"""Under which a hit's facts stand in the metadata of other libraries, so that none of the user's keys is lost."""


def open_model(model: Embedder | str | os.PathLike[str]) -> Embedder:
    """Return a model; a bundled name, folder or hub id is opened."""
    return load(model) if isinstance(model, (str, os.PathLike)) else model


def open_index(index: Index | str | os.PathLike[str]) -> Index:
    """Return an index; a folder is opened."""
    if not isinstance(index, (str, os.PathLike)):
        return index
    from pellucid.index.index import Index

    return Index.open(os.fspath(index))


def name_of(model: Embedder | str | os.PathLike[str]) -> str:
    """Return the name that opens a model again, to be written into the settings of other libraries.

    Raises:
        InputError: the model was not opened from anywhere, so that no name stands for it.
    """
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    folder = model._folder
    if folder is None:
        raise InputError(
            f"{model!r:.80} was not opened from a folder, and only a name can be stored. Save it with "
            "save_pretrained, and give the folder in its place"
        )
    return next((name for name in bundled_models() if locate(name) == folder), os.fspath(folder.absolute()))


def dense(rows: Any) -> Vectors:
    """Return what `encode` gave of several texts as a float32 array [texts, dimension]; sparse rows are filled up."""
    filled: Vectors = rows.toarray() if hasattr(rows, "toarray") else rows
    return filled


def sparse(rows: Any) -> list[tuple[list[int], list[float]]]:
    """Return the numbers of the non-zero dimensions of each row, ascending, and their values.

    Raises:
        InputError: the rows are dense.
    """
    if not hasattr(rows, "tocsr"):
        raise InputError(
            "the embeddings of this model are dense, and sparse ones are asked for; take a model of the lexicon or "
            "key-token family, or the adapter for dense embeddings"
        )
    found = rows.tocsr()
    found.sum_duplicates()  # also sorts
    ends = found.indptr.tolist()
    return [(found.indices[start:end].tolist(), found.data[start:end].tolist()) for start, end in pairwise(ends)]


def facts_of(hit: Hit) -> dict[str, Any]:
    """Return why a document was found, as JSON has it.

    Returns:
        id, score, title; passage and start, the best passage's number and place in the document; parts, what each part
        of the index adds to the score; reasons, its largest terms with name and contribution; highlights, the
        stretches of the passage that carry it, with start and end in characters.
    """
    found = hit.to_dict()
    before = len(found["indexed"]) - len(hit.text)  # the title stands before the text
    found["highlights"] = [
        {"start": start - before, "end": end - before, "contribution": value}
        for start, end, value in hit.reasons.highlights()
        if start >= before
    ]
    for name in ("text", "metadata", "words", "indexed"):  # have places of their own, or are said by the highlights
        del found[name]
    return found


def metadata_of(hit: Hit) -> dict[str, Any]:
    """Return a document's own metadata, with the facts of the hit under one more key."""
    return {**hit.metadata, KEY: facts_of(hit)}
