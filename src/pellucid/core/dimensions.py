"""The dimensions of a model: their names, the edits of them, and the table a person may change.

An edit is the same arithmetic for every family: the new coordinates of a text are the old ones times a matrix
[dimensions before, dimensions after]. A family only implements what that does to its own weights.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.core.interface import ToolInterface
from pellucid.errors import InputError, ModelFolderError, shown
from pellucid.persistence.store import read_regular, writing
from pellucid.process import cached_property
from pellucid.text.delimited import allow_long_cells, as_cell, from_cell
from pellucid.text.unicode import well_formed

if TYPE_CHECKING:
    from typing_extensions import Self

Which = str | int
"""A dimension, by its name or its number."""

_COLUMNS = ["dimension", "name", "scale", "about"]
_MAX_BYTES = 1 << 30
_BETWEEN = " | "
_MAX_MIXED_FACTOR = 1e18  # what saved models may hold
MAX_SCALE = 1e6
"""The largest factor of a dimension: the squares of what it gives stay far from the end of float32."""


@dataclass(frozen=True)
class Dimension:
    """One coordinate of an embedding.

    Attributes:
        name: what a person calls it; no two dimensions of a model share one.
        about: its meaning: the anchor text (after a merge several), the words of a cluster, the words at the
            end of a direction.
    """

    name: str
    about: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make the texts writable as UTF-8."""
        object.__setattr__(self, "name", well_formed(self.name))
        object.__setattr__(self, "about", tuple(map(well_formed, self.about)))


class Dimensions:
    """The dimensions of a model in order, found by number or by name."""

    def __init__(self, dimensions: Iterable[Dimension]) -> None:
        """Take the dimensions in order, after checking that their names differ."""
        self._items = tuple(dimensions)
        self._numbers: dict[str, int] = {}
        for index, dimension in enumerate(self._items):
            first = self._numbers.setdefault(dimension.name, index)
            if first != index:
                raise InputError(
                    f"dimensions {first} and {index} have the same name {dimension.name!r:.80}; names must differ"
                )
            if not dimension.name.strip():
                raise InputError(f"dimension {index} has an empty name")

    def __len__(self) -> int:
        """Return their number."""
        return len(self._items)

    def __iter__(self) -> Iterator[Dimension]:
        """Yield the dimensions in order."""
        return iter(self._items)

    def __getitem__(self, which: Which) -> Dimension:
        """Return a dimension by number or name."""
        return self._items[self.number(which)]

    @property
    def names(self) -> list[str]:
        """The names in order."""
        return [dimension.name for dimension in self._items]

    def number(self, which: Which) -> int:
        """Return the number of the dimension `which`, counted from 0; negative numbers count from the end."""
        if isinstance(which, str):
            if which in self._numbers:
                return self._numbers[which]
            lower = {name.lower(): name for name in self.names}
            close = get_close_matches(which.lower(), list(lower), n=1, cutoff=0.5)
            close = close or [name for name in lower if which.lower() in name]  # the beginning of a long anchor text
            hint = f"did you mean {lower[close[0]]!r}?" if close else f"the first is {self.names[0]!r:.80}"
            raise InputError(f"no dimension is called {shown(which, 120)}; {hint}")
        if isinstance(which, bool) or not isinstance(which, (int, np.integer)):
            raise InputError(f"a dimension is given by its name or number, got {shown(which)}")
        if not -len(self) <= which < len(self):
            raise InputError(f"no dimension {shown(which)}; there are {len(self)}, counted from 0")
        return int(which) % len(self)

    def numbers(self, which: Iterable[Which | Iterable[Which]]) -> list[int]:
        """Return the numbers of several dimensions, each once, in the order given; lists are flattened."""
        lists = ([item] if isinstance(item, str) or not isinstance(item, Iterable) else item for item in which)
        flat = list(chain.from_iterable(lists))
        if not flat:
            raise InputError("no dimension is given; name at least one")
        return list(dict.fromkeys(map(self.number, flat)))

    def __repr__(self) -> str:
        """Return the number of dimensions and the first names."""
        shown = ", ".join(f"{name!r:.60}" for name in self.names[:3])
        return f"<{len(self)} dimensions: {shown}{', ...' if len(self) > 3 else ''}>"


class _Entries(NamedTuple):
    sources: npt.NDArray[np.int64]  # [entries] the dimensions before
    columns: npt.NDArray[np.int64]  # [entries] the dimensions after
    factors: npt.NDArray[np.float64]  # [entries]
    shape: tuple[int, int]


class Mixing(_Entries):
    """A sparse matrix [dimensions before, dimensions after] with at most one entry a row, by rows.

    It is what edits did to the dimensions of a model of any family. The families with dense vectors do without SciPy.
    """

    @classmethod
    def from_entries(
        cls, sources: npt.ArrayLike, columns: npt.ArrayLike, factors: npt.ArrayLike, shape: tuple[int, int]
    ) -> Mixing:
        """Take entries in any order.

        Raises:
            ValueError: two of them are in one row.
        """
        before = np.asarray(sources, np.int64)
        order = np.argsort(before)
        if not np.diff(before[order]).all():
            raise ValueError("a dimension before the edits has two entries")
        after, of_entries = np.asarray(columns, np.int64), np.asarray(factors, np.float64)
        return cls(before[order], after[order], of_entries[order], shape)

    def applied(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return coordinates [n, dimensions before] times this matrix, float64 [n, dimensions after]."""
        coordinates = np.zeros((self.shape[1], len(rows)))
        np.add.at(coordinates, self.columns, (rows[:, self.sources] * self.factors).T)
        return np.ascontiguousarray(coordinates.T)

    def then(self, later: Mixing) -> Mixing:
        """Return the product of this matrix and a later one.

        Raises:
            InputError: a factor of it is too large.
        """
        position_of = np.full(later.shape[0], -1)
        position_of[later.sources] = np.arange(len(later.sources))
        positions = position_of[self.columns]
        is_left = positions >= 0
        factors = self.factors[is_left] * later.factors[positions[is_left]]
        largest = float(np.abs(factors).max(initial=0))
        if not largest <= _MAX_MIXED_FACTOR:
            raise InputError(
                f"the edits together multiply a dimension by {largest:g}, and at most {_MAX_MIXED_FACTOR:g} is kept; "
                "scale less, or begin from the model as it was"
            )
        shape = self.shape[0], later.shape[1]
        return Mixing(self.sources[is_left], later.columns[positions[is_left]], factors, shape)

    def without_zeros(self) -> Mixing:
        """Return the same matrix without entries that are 0."""
        is_entry = self.factors != 0
        return Mixing(self.sources[is_entry], self.columns[is_entry], self.factors[is_entry], self.shape)

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing."""
        has_diagonal = self.shape == (len(self.sources), len(self.sources)) and (self.sources == self.columns).all()
        return bool(has_diagonal and (self.factors == 1).all())

    @cached_property
    def matrix(self) -> Any:
        """The matrix as SciPy's CSR array."""
        from scipy import sparse  # slow to import, and the families with dense vectors do not need it

        return sparse.csr_array((self.factors, (self.sources, self.columns)), shape=self.shape)


class Edit(NamedTuple):
    """A change of dimensions: the coordinates of a text become `coordinates @ mixing`."""

    dimensions: Dimensions
    mixing: Mixing

    def after(self, before: Mixing | None) -> Mixing:
        """Return the mixing of earlier edits, None where there were none, and this one."""
        return self.mixing if before is None else before.then(self.mixing)


def scaling(dimensions: Dimensions, factors: Mapping[Which, float]) -> Edit:
    """Return the edit that multiplies coordinates; what it refuses `EditableModel.scale` says."""
    diagonal = np.ones(len(dimensions))
    for index, factor in _by_number(dimensions, factors).items():
        if not isinstance(factor, (int, float, np.number)) or not 0 <= factor <= MAX_SCALE:
            raise InputError(
                f"the factor of {dimensions.names[index]!r:.80} is {shown(factor)}; it must be between 0 and a million"
            )
        diagonal[index] = factor
    indices = np.arange(len(dimensions))
    return Edit(dimensions, Mixing(indices, indices, diagonal, (len(indices), len(indices))))


def selected_columns(edit: Edit) -> list[int] | None:
    """Return the old number of each new dimension where an edit only drops and renames, else None."""
    sources, columns, factors, (_, count) = edit.mixing
    if len(np.unique(columns)) != count or len(columns) != count or (factors != 1).any():
        return None
    return sources[np.argsort(columns)].tolist()  # type: ignore[no-any-return]


def _by_number(dimensions: Dimensions, values: Mapping[Which, Any]) -> dict[int, Any]:
    if not isinstance(values, Mapping):
        raise InputError(f"give a mapping from dimensions to values, got {type(values).__name__}")
    value_by_index: dict[int, Any] = {}
    for which, value in values.items():
        index = dimensions.number(which)
        if index in value_by_index:
            raise InputError(f"{dimensions.names[index]!r:.80} is given twice, by name and by number")
        value_by_index[index] = value
    return value_by_index


class EditableModel(ToolInterface):
    """A model whose dimensions can be looked at and edited; each edit gives a new model."""

    @property
    def names_dimensions(self) -> bool:
        """Whether the family gives its dimensions meaningful names."""
        return type(self).dimensions is not EditableModel.dimensions

    @property
    def dimensions(self) -> Dimensions:
        """The dimensions in order, each with a name and what it is about; found by number or by name."""
        return Dimensions(Dimension(f"dimension {number}") for number in range(self.get_embedding_dimension()))

    def without(self, *dimensions: Which | Iterable[Which]) -> Self:
        """Return a model that lacks some dimensions, given by name or number.

        Raises:
            InputError: a dimension is unknown (the message suggests the nearest name), or all would be removed.
        """
        removed = set(self.dimensions.numbers(dimensions))
        remaining = [index for index in range(len(self.dimensions)) if index not in removed]
        if not remaining:
            raise InputError(f"without these {len(removed)} dimensions none is left")
        return self.keep(remaining)

    def keep(self, *dimensions: Which | Iterable[Which]) -> Self:
        """Return a model of these dimensions alone, in the order of this one.

        Raises:
            InputError: a dimension is unknown, or none is given.
        """
        before = self.dimensions
        selected = sorted(before.numbers(dimensions))
        count = len(selected)
        mixing = Mixing.from_entries(selected, np.arange(count), np.ones(count), (len(before), count))
        return self._edited(Edit(Dimensions(before[index] for index in selected), mixing))

    def scale(self, factors: Mapping[Which, float]) -> Self:
        """Return a model whose coordinates are multiplied: below 1 a dimension counts less, at 0 not at all.

        A dimension's part in the product of two embeddings grows with the square of its factor.

        Raises:
            InputError: a dimension is unknown, or a factor is not between 0 and a million.
        """
        return self._edited(scaling(self.dimensions, factors))

    def rename(self, names: Mapping[Which, str]) -> Self:
        """Return a model in which some dimensions, given by old name or number, have other names.

        Raises:
            InputError: a dimension is unknown, or a new name is empty or taken.
        """
        before = self.dimensions
        items = list(before)
        for index, name in _by_number(before, names).items():
            if not isinstance(name, str):
                raise InputError(f"the new name of {before.names[index]!r:.80} is {shown(name)}; a name is a string")
            items[index] = replace(items[index], name=name)
        return self._edited(Edit(Dimensions(items), scaling(before, {}).mixing))

    def merge(self, *dimensions: Which | Iterable[Which], name: str | None = None) -> Self:
        """Return a model with several dimensions merged into one, at the position of the first.

        Its coordinate is their sum over the square root of their number, so that merging equal ones changes no score.

        Args:
            dimensions: two or more, by name or number.
            name: of the new dimension; None joins the old ones.

        Raises:
            InputError: a dimension is unknown, fewer than two are given, or the name is taken.
        """
        before = self.dimensions
        merged = before.numbers(dimensions)
        if len(merged) < 2:
            raise InputError(f"a merge needs two dimensions or more, got {len(merged)}")
        first = min(merged)
        texts = tuple(dict.fromkeys(text for index in merged for text in before[index].about))
        joined = Dimension(name or " + ".join(before.names[index] for index in merged), texts)
        remaining = [index for index in range(len(before)) if index == first or index not in merged]
        column = {index: column for column, index in enumerate(remaining)}
        columns = [column[first if index in merged else index] for index in range(len(before))]
        factors = np.ones(len(before))
        factors[merged] = 1 / math.sqrt(len(merged))
        mixing = Mixing.from_entries(np.arange(len(before)), columns, factors, (len(before), len(remaining)))
        return self._edited(Edit(Dimensions(joined if n == first else before[n] for n in remaining), mixing))

    def _edited(self, edit: Edit) -> Self:
        """Return this model after `edit`; what a family implements to make its dimensions editable."""
        raise InputError(f"the dimensions of a {self.family} model cannot be edited")


def write_dimensions(path: Path, dimensions: Dimensions) -> None:
    """Write the table a person may edit: number, name, scale and what the dimension is about, tab-separated."""
    with writing(path, max_bytes=_MAX_BYTES) as tmp_path, open(tmp_path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, dialect="excel-tab", lineterminator="\n")
        quoted = csv.writer(file, dialect="excel-tab", lineterminator="\n", quoting=csv.QUOTE_ALL)
        rows.writerow(_COLUMNS)
        for n, item in enumerate(dimensions):
            row = [n, as_cell(item.name), 1, as_cell(as_text(item.about))]
            # Before Python 3.13 a lone carriage return, which ends a row for the reader, is not quoted automatically.
            (quoted if any("\r" in str(cell) for cell in row) else rows).writerow(row)


def as_text(texts: Iterable[str]) -> str:
    """Join texts by bars into one, with a backslash before every bar or backslash within them."""
    return _BETWEEN.join(text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)


def read_dimensions(
    path: Path, count: int, saved: Sequence[tuple[str, ...]] | None = None
) -> tuple[Dimensions, list[float]]:
    """Return the `count` dimensions of a table and their scales; a cell left as saved takes its texts from `saved`."""
    rows: dict[int, tuple[str, float, str]] = {}
    for line, row in _rows(path):
        index, name, scale = _parsed(row, count, f"{path}, line {line}")
        if index in rows:
            raise ModelFolderError(f"{path}, line {line}: dimension {index} has a second row; leave one of them")
        rows[index] = (name, scale, from_cell(row[3]))
    missing = [index for index in range(count) if index not in rows]
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (" ..." if len(missing) > 5 else "")
        raise ModelFolderError(
            f"{path}: {len(missing)} of {count} dimensions have no row ({shown}). "
            "To silence a dimension set its scale to 0; to drop it use model.without"
        )
    names, scales, cells = zip(*(rows[index] for index in range(count)))
    # A backslash before anything but a bar or backslash is itself.
    about = [
        tuple(re.sub(r"\\([\\|])", r"\1", part) for part in cell.split(_BETWEEN)) if cell else () for cell in cells
    ]
    for index, texts in enumerate(saved or ()):
        if cells[index] in (as_text(texts), _BETWEEN.join(texts)):
            about[index] = texts
    try:
        return Dimensions(map(Dimension, names, about)), list(scales)
    except InputError as error:
        raise ModelFolderError(f"{path}: {error}") from error


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return line number and cells of each row after the heading; rows a spreadsheet left empty are skipped."""
    try:
        text = read_regular(path, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{path} is not UTF-8: {error}") from error
    reader = csv.reader(io.StringIO(text, newline=""), dialect="excel-tab", strict=True)
    allow_long_cells()
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise ModelFolderError(f"{path}, line {reader.line_num}: {error}; check its quotation marks") from error
    if not rows or rows[0][1] != _COLUMNS:
        raise ModelFolderError(f"{path} must begin with the heading {' '.join(_COLUMNS)}, separated by tabs")
    return [(line, row) for line, row in rows[1:] if any(row)]


def _parsed(row: list[str], count: int, prefix: str) -> tuple[int, str, float]:
    if len(row) != len(_COLUMNS):
        raise ModelFolderError(f"{prefix} has {len(row)} cells, not {len(_COLUMNS)} separated by tabs")
    if not row[0].isdecimal() or len(row[0]) > len(str(count)) or int(row[0]) >= count:
        raise ModelFolderError(f"{prefix}: {row[0]!r:.40} is not a dimension; they are 0 to {count - 1}")
    try:
        scale = float(row[2])
    except ValueError:
        scale = math.nan
    if not 0 <= scale <= MAX_SCALE:  # nor NaN
        raise ModelFolderError(f"{prefix}: the scale is {row[2]!r:.40}; it must be a number between 0 and a million")
    return int(row[0]), from_cell(row[1]), scale
