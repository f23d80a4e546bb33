"""Models, embeddings and hits as the plain Python values that other libraries take."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from pellucid.errors import InputError, UnknownArgumentError, shown, unknown_name
from pellucid.loading import load
from pellucid.persistence.folder import bundled_models, locate

if TYPE_CHECKING:
    from pellucid.core.arrays import Role
    from pellucid.core.embedder import Embedder, Vectors
    from pellucid.index.hits import Hit, Hits
    from pellucid.index.index import Index

_Call = TypeVar("_Call", bound=Callable[..., Any])

_ZERO_ROW_VALUE = 1e-6

KEY = "pellucid"
"""The key of a hit's facts in the metadata of other libraries, beside the user's own keys."""


def refuse_unknown(names: Iterable[str], accepted: Collection[str]) -> None:
    """Raise the error for the first of `names` that is not `accepted`, and name the nearest."""
    for name in names:
        if name not in accepted:
            shown = [argument for argument in accepted if argument != "run_manager"]  # LangChain's own
            raise UnknownArgumentError(unknown_name("argument", name, shown))


def known_arguments(call: _Call) -> _Call:
    """Return a function that refuses unknown keyword arguments as `refuse_unknown` does; its signature stays."""
    parameters = inspect.signature(call).parameters.values()
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]

    @wraps(call)
    def checked(*arguments: Any, **named: Any) -> Any:
        refuse_unknown(named, accepted)
        return call(*arguments, **named)

    return checked  # type: ignore[return-value]


def open_model(model: Embedder | str | os.PathLike[str]) -> Embedder:
    """Return a model, opened if it is a bundled name, folder or hub id."""
    return load(model) if isinstance(model, (str, os.PathLike)) else model


def open_index(index: Index | str | os.PathLike[str]) -> Index:
    """Return an index, opened if it is a folder."""
    if not isinstance(index, (str, os.PathLike)):
        return index
    from pellucid.index.index import Index

    return Index.open(os.fspath(index))


def name_of(model: Embedder | str | os.PathLike[str]) -> str:
    """Return the name that opens a model again, for the settings of other libraries."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    folder = model.folder
    if folder is None:
        raise InputError(
            f"{shown(model, 80)} was not opened from a folder, so that it has no name to store. Save it with "
            "save_pretrained, and give the folder instead"
        )
    return next((name for name in bundled_models() if locate(name) == folder), os.fspath(folder.absolute()))


def dense(rows: Any, role: Role = None) -> Vectors:
    """Return embeddings as a float32 array [texts, dimension]; sparse rows are filled with zeros.

    Vector stores divide by the length of a row, and zero rows, of texts without a known word, become NaN there, which
    is sorted anywhere. With a role they get a tiny value in the last dimension, where most texts have little: the
    cosine to other texts is near 0, and that of an unknown query to an unknown document -1.
    """
    filled: Vectors = rows.toarray() if hasattr(rows, "toarray") else rows
    if role is None:
        return filled
    is_zero = ~filled.any(axis=1)
    if is_zero.any():
        filled = filled.copy()
        filled[is_zero, -1] = _ZERO_ROW_VALUE if role == "query" else -_ZERO_ROW_VALUE
    return filled


def sparse(rows: Any) -> list[tuple[list[int], list[float]]]:
    """Return the numbers of the non-zero dimensions of each row, ascending, and their values."""
    if not hasattr(rows, "tocsr"):
        raise InputError(
            "the embeddings of this model are dense, and sparse ones are needed; take a lexicon or key-token model, or "
            "the adapter for dense embeddings"
        )
    matrix = rows.tocsr()
    matrix.sum_duplicates()  # also sorts
    ends = matrix.indptr.tolist()
    return [(matrix.indices[start:end].tolist(), matrix.data[start:end].tolist()) for start, end in pairwise(ends)]


def facts_of(hit: Hit) -> dict[str, Any]:
    """Return why a document was found, as plain values: as `Hit.to_dict`, with highlights as spans of the passage.

    Of the groups only names and numbers are kept: names hold the phrases.
    """
    values = hit.to_dict()
    before = len(values["indexed"]) - len(hit.text)  # the title comes before the text
    values["highlights"] = [
        {"start": start - before, "end": end - before, "contribution": value}
        for start, end, value in hit.reasons.highlights()
        if start >= before
    ]
    values["groups"] = [
        {name: group[name] for name in ("name", "contribution", "share", "kind")} for group in values["groups"]
    ]
    for name in ("text", "metadata", "words", "indexed"):  # stored elsewhere, or in the highlights
        del values[name]
    return values


def metadata_of(hit: Hit, hits: Hits) -> dict[str, Any]:
    """Return a document's own metadata, with the facts of the hit and what was not searched under one more key."""
    return {**hit.metadata, KEY: {**facts_of(hit), "unknown": list(hits.unknown), "ignored": list(hits.ignored)}}
