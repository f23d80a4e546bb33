"""The parts of an ensemble: a model with a name and a weight, and what an edit of its dimensions does to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.base import Embedder, unit_rows
from pellucid.dimensions import Dimension, Dimensions, Edit
from pellucid.encoders import Encoder, encode_with, is_sentence_transformer, known_to
from pellucid.errors import InputError
from pellucid.explanation import Explanation, Row

BETWEEN = ": "
"""What stands between a part's name and the name of a row or dimension of it."""

_LARGEST = 1e100  # weight; their sum stays a number
_ROUNDING = 1e-6  # of the squared length of a float32 row
_JOINED = " + "  # what `Embedder.merge` puts between names


@dataclass(frozen=True)
class Part:
    """One model of an ensemble.

    Attributes:
        name: what stands before its rows and dimensions.
        model: a pellucid model, a SentenceTransformer, or a callable: list of texts -> array [texts, dimension].
        weight: its share of every score; those of an ensemble add up to 1.
        dimension: of its embeddings.
        source: the bundled name, hub id or folder it is saved as instead of a copy; None saves a copy.
    """

    name: str
    model: Encoder
    weight: float
    dimension: int
    source: str | None = None

    def rows(self, texts: list[str], role: str = "", *, show_progress_bar: bool = False) -> Any:
        """Return the part's embeddings at length 1 (or 0), float32 [texts, dimension], an array or CSR."""
        if isinstance(self.model, Embedder):
            encode = getattr(self.model, f"encode_{role}" if role else "encode")
            return _units(encode(texts, show_progress_bar=show_progress_bar))
        return encode_with(self.model, texts, role=role, dimension=self.dimension, show_progress_bar=show_progress_bar)

    @property
    def dimensions(self) -> Dimensions:
        """The part's own dimensions; those of a model that names none are numbered."""
        if isinstance(self.model, Embedder):
            return self.model.dimensions
        return Dimensions(Dimension(f"dimension {number}") for number in range(self.dimension))

    def explained(self, text1: str, text2: str | None) -> Explanation:
        """Return the part's own explanation, rows under the part's name; one row where it has none."""
        texts = [text1] if text2 is None else [text1, text2]
        coverage, unknown = zip(*known_to(self.model, texts))
        if isinstance(self.model, Embedder):
            own = self.model.explain(text1, text2)
            rows = [row._replace(name=self.name + BETWEEN + row.name, key=(self.name, *row.key)) for row in own.rows]
            return replace(own, rows=tuple(rows), coverage=own.coverage or coverage)
        rows = self.rows(texts).astype(np.float64)
        cosine = float(rows[0] @ rows[-1])
        terms = [Row(self.name, (self.name,), cosine, 0.0)] if cosine else []
        return Explanation.from_terms("", (text1, text2), cosine, terms, unknown=(*unknown, ())[:2], coverage=coverage)


def edited_parts(parts: Sequence[Part], edit: Edit) -> list[Part]:
    """Hand each part the columns of an edit that are its own; a part without one leaves the ensemble.

    Raises:
        InputError: a dimension would be merged of two parts, or belongs to a model that is not pellucid's.
    """
    owners = _owners(edit, [part.dimension for part in parts])
    mixing = edit.mixing.tocsr()
    start, kept = 0, []
    for number, part in enumerate(parts):
        columns = np.flatnonzero(owners == number)
        block = mixing[start : start + part.dimension].tocsc()[:, columns]
        start += part.dimension
        if len(columns):
            items = [_own_name(edit.dimensions[column], part.name) for column in columns.tolist()]
            kept.append(_edited_part(part, items, block))
    return kept


def _owners(edit: Edit, sizes: list[int]) -> npt.NDArray[np.int64]:
    """Return the number of the part that each column of an edit takes from, int [dimensions after]."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if edit.mixing.shape[0] == edit.mixing.shape[1]:  # scaled or renamed; a column scaled to 0 takes from none
        return owner
    entries = edit.mixing.tocoo()
    found = np.full(edit.mixing.shape[1], -1)
    for row, column in zip(entries.row.tolist(), entries.col.tolist(), strict=True):
        if found[column] not in (-1, owner[row]):
            raise InputError(
                f"{edit.dimensions[column].name!r:.120} would be merged of different parts; "
                "merge dimensions of the same part"
            )
        found[column] = owner[row]
    return found


def _own_name(dimension: Dimension, part: str) -> Dimension:
    """Return the dimension without the part's name in front, also where names were joined by a merge."""
    pieces = dimension.name.split(_JOINED + part + BETWEEN)
    pieces[0] = pieces[0].removeprefix(part + BETWEEN)
    return replace(dimension, name=_JOINED.join(pieces))


def _edited_part(part: Part, dimensions: list[Dimension], mixing: Any) -> Part:
    """Return the part with an edit of its own dimensions, or as it is where nothing of it changes."""
    square = mixing.shape[0] == mixing.shape[1]
    same = square and (mixing.diagonal() == 1).all() and [d.name for d in dimensions] == part.dimensions.names
    if same:
        return part
    if not isinstance(part.model, Embedder):
        raise InputError(
            f"the dimensions of {part.name!r:.80} cannot be edited, it is no pellucid model; leave out all of them, or "
            "change its weight"
        )
    model = part.model._edited(Edit(Dimensions(dimensions), mixing))
    return replace(part, model=model, dimension=mixing.shape[1], source=None)


def _units(rows: Any) -> Any:
    """Return `unit_rows`, without a copy where a dense array's rows have length 1 or 0 already."""
    if isinstance(rows, np.ndarray) and rows.dtype == np.float32:
        squares = np.einsum("nd,nd->n", rows, rows)
        if ((np.abs(squares - 1) < _ROUNDING) | (squares == 0)).all():
            return rows
    return unit_rows(rows)


def make_parts(
    models: Sequence[Encoder] | Mapping[str, Encoder], weights: Sequence[float] | None = None
) -> tuple[Part, ...]:
    """Return models as parts; see `EnsembleEmbedder`.

    Raises:
        InputError: no models, something else among them, weights that do not fit, or a name that cannot be one.
    """
    named = dict(models) if isinstance(models, Mapping) else _named(models)
    if not named:
        raise InputError("an ensemble needs at least one model")
    shares = checked_weights(weights, len(named))
    return tuple(
        Part(_checked_name(name), model, share, _dimension(model))
        for (name, model), share in zip(named.items(), shares, strict=True)
    )


def _named(models: Sequence[Encoder]) -> dict[str, Encoder]:
    """Return the models by family, folder or function; the second of a name is called "name 2"."""
    if isinstance(models, (str, Embedder)) or not isinstance(models, Sequence):
        raise InputError(f"an ensemble is of a list of models, got {type(models).__name__}; give [model, model]")
    named: dict[str, Encoder] = {}
    counts: dict[str, int] = {}
    for model in models:
        name = _name(model)
        counts[name] = counts.get(name, 0) + 1
        named[name if counts[name] == 1 else f"{name} {counts[name]}"] = model
    return named


def _name(model: Encoder) -> str:
    """Return what is known of a model's name."""
    if isinstance(model, Embedder):
        return model.family
    if is_sentence_transformer(model):
        config = getattr(getattr(model[0], "auto_model", None), "config", None)
        return Path(getattr(config, "_name_or_path", "")).name or type(model).__name__
    return str(getattr(model, "__name__", type(model).__name__)).strip("<>")


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or BETWEEN in name or "\n" in name:
        raise InputError(f"a part is called {name!r:.60}; a name is one line of text without {BETWEEN!r} in it")
    return name


def checked_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return weights brought to the sum 1.

    Raises:
        InputError: there are not `count` of them, one is negative or no number, or none is above 0.
    """
    try:
        values = np.ones(count) if weights is None else np.asarray(weights, np.float64)
    except (OverflowError, TypeError, ValueError):  # an integer beyond float64, or no number
        values = np.array(np.nan)
    if values.shape != (count,) or not ((values >= 0) & (values <= _LARGEST)).all() or not values.any():
        raise InputError(
            f"weights are {weights!r:.80}; {count} models need as many numbers, none negative and one above 0"
        )
    shares: list[float] = (values / values.sum()).tolist()
    return shares


def _dimension(model: Encoder) -> int:
    """Return the dimension of a model's embeddings; one that cannot say encodes a text."""
    if isinstance(model, Embedder):
        return model.get_embedding_dimension()
    return int(encode_with(model, ["a text"]).shape[1])
