"""Ensembles: the embeddings of several models, each at length 1, weighted and joined end to end.

After Wada et al., "Static Word Embeddings for Sentence Semantic Representation", appendix D (equations 6 and 7). With
u_i for the embedding of part i at length 1 and weights w_i >= 0 that add up to 1

    embedding = [sqrt(w_1) u_1, sqrt(w_2) u_2, ...],      sim(a, b) = sum over i of  w_i cos_i(a, b)

so that a similarity is exactly the weighted mean of the parts' cosines, and its explanation the parts' explanations,
each row times its part's weight. The paper writes its scalars a_i; here w_i = a_i^2 / sum of a_j^2.

A part that knows nothing of a text has cosine 0 there, with its full weight: the mean is never taken over fewer parts.

On disk:

    config.json        the family and, for people, the names of the parts
    ensemble.json      the parts in order: name, weight, dimension, how each is opened, its fingerprint
    part_0/ ...        a pellucid model or a SentenceTransformer, as it saves itself; absent for a function

A part that is given and is another model than when it was saved is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.core.arrays import Role, l2_normalize, to_2d_array
from pellucid.core.dimensions import Dimension, Dimensions, Edit, Mixing, selected_columns
from pellucid.core.embedder import Embedder
from pellucid.core.fingerprint import check_same, fingerprint
from pellucid.core.query import EMPTY_TERMS, REMAINDER_ROW, Query, Terms
from pellucid.dense.embedder import FUNCTION, PELLUCID, SENTENCE_TRANSFORMERS, EncoderEmbedder, save_copy
from pellucid.errors import InputError, ModelFolderError, shown
from pellucid.explain.rows import EMBEDDING, Row
from pellucid.loading import load
from pellucid.persistence.store import read_json, write_json
from pellucid.process import cached_property
from pellucid.text.words import Coverage, Span

if TYPE_CHECKING:
    from typing_extensions import Self


BETWEEN = ": "
"""What stands between a part's name and the name of a row or dimension of it."""

_MAX_WEIGHT = 1e100  # their sum stays a number
_MAX_RECORDED_WEIGHT = 1e18  # in a record
_SUM_TOLERANCE = 1e-12  # shares that were scaled before are not scaled again: a saved ensemble has the same ones
_RECORD = "ensemble.json"
_JOINED = " + "  # what `Embedder.merge` puts between names


@dataclass(frozen=True)
class EnsemblePart:
    """One model of an ensemble.

    Attributes:
        name: what stands before its rows and dimensions.
        model: the model; a SentenceTransformer or callable is its `model.model`.
        weight: its share of every score; those of an ensemble add up to 1.
    """

    name: str
    model: Embedder
    weight: float

    @property
    def dimension(self) -> int:
        """The length of its embeddings."""
        return self.model.get_embedding_dimension()

    def units(self, rows: Any) -> Any:
        """Return rows of the part's model at length 1 (or 0); an ensemble's are shorter where it lacks a part."""
        return l2_normalize(rows) if isinstance(self.model, EnsembleEmbedder) else self.model.similarity_rows(rows)


class EnsembleQuery(Query):
    """A text as the parts of an ensemble read it, each in its own way."""

    def __init__(self, model: Any, text: str, role: Role) -> None:
        """Let each part read a checked text."""
        super().__init__(model, text, role)
        self.members: list[Query] = [part.model.analyze_texts([text], [role])[0] for part in model.parts]

    @cached_property
    def vector(self) -> Any:
        """The row that `encode` gives in this role: float32 [dimension], or CSR [1, dimension]."""
        rows = [to_2d_array(member.vector) for member in self.members]
        return self.model._joined([part.units(row) for part, row in zip(self.model.parts, rows)])[0]

    def use_vector(self, vector: Any) -> Query:
        """Take the row that `encode` gave for the text, and give each part its own."""
        row = to_2d_array(vector)
        for member, part, columns in zip(self.members, self.model.parts, self.model._columns()):
            if part.weight > 0:  # else its columns are 0
                part_row = row[:, columns]
                if hasattr(part_row, "tocsr") and not hasattr(part.model.encode([]), "tocsr"):
                    part_row = part_row.toarray()
                member.use_vector(part_row if hasattr(part_row, "tocsr") else part_row[0])
        return super().use_vector(vector)

    def against(self, texts: Sequence[str], rows: Any, *, weight: float = 1.0) -> Callable[[int], Terms]:
        """Return a function from number to terms of each document; parts read their columns of the stored rows."""

        def products(index: int) -> Terms:
            row = rows[index]
            if not abs(row).sum():
                return EMPTY_TERMS
            document = self.model.analyze_texts([texts[index]], ["document"])[0].use_vector(row)
            why = self.model.explain_queries(self, document)
            remainder = [] if why.exact else [REMAINDER_ROW._replace(contribution=why.remainder)]
            explained = (*why.rows, *remainder)
            return Terms(np.array([row.contribution for row in explained]) * weight, explained.__getitem__)

        return products

    def terms(self, other_query: Query | None = None) -> Terms:
        """Return the rows of every part's own explanation, times its weight."""
        texts = [self] if other_query is None else [self, other_query]
        members = list(zip(self.model.parts, *(text.members for text in texts)))  # type: ignore[attr-defined]
        explained = [(part, part.model.explain_queries(*queries)) for part, *queries in members if part.weight > 0]
        rows = [(part, why, row_number) for part, why in explained for row_number in range(len(why.rows))]

        def row(row_number: int) -> Row:
            part, explanation, row_index = rows[row_number]
            named: Row = explanation.rows[row_index]
            if named.kind == EMBEDDING:  # its one row
                return named._replace(name=part.name, parts=(part.name,), key=())
            return named._replace(name=part.name + BETWEEN + named.name, key=(part.name, *named.key))

        contributions = [part.weight * why.contributions for part, why in explained]
        score = sum(part.weight * why.score for part, why in explained)
        exact = all(why.exact for _, why in explained)
        return Terms(np.concatenate([np.zeros(0), *contributions]), row, score=score, exact=exact)


def make_parts(
    models: Sequence[Any] | Mapping[str, Any], weights: Sequence[float] | None = None
) -> tuple[EnsemblePart, ...]:
    """Return models as parts; see `EnsembleEmbedder`."""
    if isinstance(models, Mapping):
        named = {name: load(model) for name, model in models.items()}
    elif isinstance(models, (str, Embedder)) or not isinstance(models, Sequence):
        raise InputError(f"an ensemble is of a list of models, got {type(models).__name__}; give [model, model]")
    else:
        named = {}
        for model in map(load, models):
            first = model.name if isinstance(model, EncoderEmbedder) else model.family
            numbered = (f"{first} {number}" for number in count(2))
            named[next(name for name in chain([first], numbered) if name not in named)] = model
    if not named:
        raise InputError("an ensemble needs at least one model")
    for name in named:
        if not isinstance(name, str) or not name.strip() or BETWEEN in name or "\n" in name:
            raise InputError(f"a part is called {shown(name)}; a name is one line of text without {BETWEEN!r} in it")
    parts = tuple(map(EnsemblePart, named, named.values(), normalized_weights(weights, len(named))))
    for part in parts:
        if part.model.similarity_fn_name != "cosine" and not isinstance(part.model, EnsembleEmbedder):
            raise InputError(
                f"{part.name} compares texts by {part.model.similarity_fn_name}, and an ensemble's score is a mean of "
                'cosines. Accept that: encoder.similarity_fn_name = "cosine"'
            )
        part.model.get_embedding_dimension()  # a function that gives no rows is refused now
    return parts


def normalized_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return weights scaled to the sum 1, after checking that they are `count` numbers of 0 or more, one above 0."""
    try:
        values = np.ones(count) if weights is None else np.asarray(weights, np.float64)
    except (OverflowError, TypeError, ValueError):  # an integer beyond float64, or no number
        values = np.array(np.nan)
    if values.shape != (count,) or not ((values >= 0) & (values <= _MAX_WEIGHT)).all() or not values.any():
        raise InputError(
            f"weights are {shown(weights, 80)}; {count} models need as many numbers, none negative and one above 0"
        )
    total = values.sum()
    return [float(share) for share in (values if abs(total - 1) < _SUM_TOLERANCE else values / total)]


def _read_records(path: Path) -> list[dict[str, Any]]:
    record_file = read_json(path)
    records: Any = record_file.get("parts") if isinstance(record_file, dict) else None
    kinds = {"name": (str,), "weight": (int, float), "dimension": (int,), "opened": (str,), "fingerprint": (dict,)}
    are_whole = isinstance(records, list) and all(
        isinstance(record, dict)
        and all(type(record.get(key)) in kind for key, kind in kinds.items())
        and abs(record["weight"]) < _MAX_RECORDED_WEIGHT  # which a float holds; not for NaN
        for record in records
    )
    if not records or not are_whole or len({record["name"] for record in records}) < len(records):
        raise ModelFolderError(
            f"{path} does not describe an ensemble; each part needs a name of its own, weight, dimension, opened and "
            "fingerprint"
        )
    return list(records)


def _read_part(folder: Path, index: int, record: dict[str, Any], model: Any) -> EnsemblePart:
    """Open a part, or take `model` for it, and check that it is the one that was saved."""
    name, kind = record["name"], record["opened"]
    what = f"{folder}: the part {name!r:.80}"
    instead = f"EnsembleEmbedder.from_pretrained(folder, parts={{{name!r:.80}: model}})"
    if model is None and kind == FUNCTION:
        raise ModelFolderError(f"{what} was a function, which no file can hold; give it: {instead}")
    if model is None and kind not in (PELLUCID, SENTENCE_TRANSFORMERS):
        raise ModelFolderError(f"{what} is opened by {kind!r:.40}, which this version does not know")
    try:
        (part,) = make_parts({name: folder / f"part_{index}" if model is None else model})
        now = fingerprint(part.model) if part.dimension == record["dimension"] else {}
    except InputError as error:
        raise ModelFolderError(f"{what} cannot be used: {error}") from error
    check_same(what, now, record["fingerprint"], f"Give that one: {instead}")
    return replace(part, weight=record["weight"])


class EnsembleEmbedder(Embedder):
    """A text is what several models make of it, side by side.

    Embeddings are CSR where a part's are, otherwise a float32 array. A row has length 1, or less for a text in which
    a part knows no word; `similarity` gives the weighted mean of the parts' cosines for these too, and so does the dot
    product in a search engine. The cosine there scores such a text by the parts that know it.

    The rows of an explanation are the rows of every part's own, times its weight: "part: row"; a part that is not a
    pellucid model is one row, named after it. A word is unknown if no part has a vector for it; `coverage` is that of
    the part that knows least of a text.

    Attributes:
        parts: the models with their names and weights.
    """

    family: ClassVar[str] = "ensemble"
    query_type: ClassVar[type[Query]] = EnsembleQuery
    reads_texts: ClassVar[bool] = True
    _normalizes: ClassVar[bool] = True
    similarity_fn_name: ClassVar[str] = "dot"

    def __init__(self, models: Sequence[Any] | Mapping[str, Any], weights: Sequence[float] | None = None) -> None:
        """Put models side by side.

        Args:
            models: what `pellucid.load` takes: names, pellucid models, SentenceTransformers, or callables: list of
                texts -> array [texts, d]. The keys of a mapping name them; otherwise they are called by family, folder
                or function, and numbered where two are alike.
            weights: one a model, not negative; what counts is their proportion. None takes equal ones.

        Raises:
            InputError: no models, something else among them, weights that do not fit, or a name that cannot be one.
        """
        self.parts = make_parts(models, weights)

    @classmethod
    def from_parts(cls, parts: Iterable[EnsemblePart]) -> Self:
        """Return the ensemble of parts that are named and checked; their weights are scaled to the sum 1.

        Raises:
            InputError: no part, or no weight is left.
        """
        chosen = tuple(parts)
        ensemble = cls.__new__(cls)
        shares = normalized_weights([part.weight for part in chosen], len(chosen))
        ensemble.parts = tuple(replace(part, weight=share) for part, share in zip(chosen, shares, strict=True))
        return ensemble

    @classmethod
    def from_pretrained(cls, path_or_id: str | Path, *, parts: Mapping[str, Any] | None = None) -> Self:
        """Open an ensemble: a saved folder or a hub id.

        Args:
            path_or_id: where it is.
            parts: by name, models to use instead of the folder's; needed for those that were callables.

        Raises:
            ModelFolderError: nothing is there, its files are broken, or a part is missing or another model than the one
                that was saved.
        """
        return cls._open(path_or_id, parts=parts)

    @classmethod
    def _read(cls, folder: Path, config: Mapping[str, Any], parts: Mapping[str, Any] | None = None) -> Self:
        models = parts or {}
        records = _read_records(folder / _RECORD)
        names = [record["name"] for record in records]
        unknown = set(models) - set(names)
        if unknown:
            raise InputError(f"there is no part {shown(sorted(unknown)[0], 80)}; there are {', '.join(names)}")
        return cls.from_parts(
            _read_part(folder, n, record, models.get(record["name"])) for n, record in enumerate(records)
        )

    def _write(self, folder: Path) -> dict[str, Any]:
        records = [
            {
                "name": part.name, "weight": part.weight, "dimension": part.dimension,
                "opened": save_copy(part.model, folder / f"part_{index}"), "fingerprint": fingerprint(part.model),
            }
            for index, part in enumerate(self.parts)
        ]  # fmt: skip
        write_json(folder / _RECORD, {"parts": records})
        return {"parts": ", ".join(self.names), "dimension": self.get_embedding_dimension()}

    def identity(self) -> dict[str, Any]:
        """Return all that the vectors depend on, for `fingerprint`."""
        return {"weights": self.weights, "models": [part.model for part in self.parts]}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of all parts together."""
        return sum(part.dimension for part in self.parts)

    @property
    def names(self) -> list[str]:
        """The parts' names in order."""
        return [part.name for part in self.parts]

    @property
    def weights(self) -> list[float]:
        """The parts' weights in order; they add up to 1."""
        return [part.weight for part in self.parts]

    def with_weights(self, weights: Sequence[float]) -> Self:
        """Return an ensemble of the same parts with other weights; see the constructor."""
        shares = normalized_weights(weights, len(self.parts))
        return self.from_parts(replace(part, weight=share) for part, share in zip(self.parts, shares))

    @cached_property
    def dimensions(self) -> Dimensions:
        """The parts' dimensions one after the other, named "part: dimension"."""
        return Dimensions(
            replace(dimension, name=part.name + BETWEEN + dimension.name)
            for part in self.parts
            for dimension in part.model.dimensions
        )

    @property
    def device(self) -> str:
        """Where the parts compute; the CPU, where their rows are joined, if they compute in different places."""
        devices = {part.model.device for part in self.parts}
        return devices.pop() if len(devices) == 1 else "cpu"

    def size_text(self) -> str:
        """Return how large the model is, in the family's own units."""
        return f"{', '.join(self.names)}; {super().size_text()}"

    def _prompted(self, texts: list[str], prompt: str) -> tuple[list[str], Role]:
        prompted = [part.model._prompted(texts, prompt) for part in self.parts]
        return max(prompted, key=lambda read: read[1] is not None)  # the role of a part that tells roles apart

    def _encode(self, texts: list[str], role: Role, *, batch_size: int, show_progress_bar: bool) -> Any:
        """Return the parts' rows side by side, queries and documents by each part in its own way."""
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        return self._joined([
            part.units(part.model._encode(part.model.canonical_texts(texts), role, **options)) for part in self.parts
        ])  # fmt: skip

    def _joined(self, blocks: list[Any]) -> Any:
        """Return the parts' unit rows side by side, each times the root of its weight."""
        scales = [math.sqrt(part.weight) for part in self.parts]
        if not any(hasattr(block, "tocsr") for block in blocks):
            joined = np.empty((len(blocks[0]), self.get_embedding_dimension()), np.float32)
            for block, scale, columns in zip(blocks, scales, self._columns(), strict=True):
                np.multiply(block, scale, out=joined[:, columns], casting="same_kind")
            return joined
        from scipy import sparse

        scaled = [sparse.csr_matrix(block * scale) for block, scale in zip(blocks, scales, strict=True)]
        rows = sparse.hstack(scaled, format="csr", dtype=np.float32)
        rows.eliminate_zeros()  # of a part with weight 0
        return rows

    def similarity_rows(self, embeddings: Any) -> Any:
        """Return embeddings of this model with every part's columns at their length, the root of its weight."""
        rows = to_2d_array(embeddings)
        if rows.shape[1] != self.get_embedding_dimension():
            raise InputError(
                f"the embeddings have {rows.shape[1]} dimensions and this ensemble {self.get_embedding_dimension()}; "
                "encode them with it"
            )
        return self._joined([l2_normalize(rows[:, columns]) for columns in self._columns()])

    def _columns(self) -> list[slice]:
        ends = np.cumsum([part.dimension for part in self.parts]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends)]

    def coverage_and_gaps(self, texts: list[str], role: Role = None) -> list[tuple[Coverage, tuple[Span, ...]]]:
        """Return for each text its coverage and the spans that are not known."""
        coverages = zip(*(part.model.coverage_and_gaps(texts, role) for part in self.parts if part.weight > 0))
        return [
            (  # of the part that knows least; what is unknown to every part
                min((coverage for coverage, _ in by_part), key=attrgetter("share")),
                tuple(sorted(set.intersection(*(set(gaps) for _, gaps in by_part)))),
            )
            for by_part in coverages
        ]

    def _edited(self, edit: Edit) -> Self:
        parts = self.parts
        owner = np.repeat(np.arange(len(parts)), [part.dimension for part in parts])
        sources, taking, factors, (_, width) = edit.mixing
        owners = np.full(width, -1)  # the part that each column takes from
        for source, column in zip(sources.tolist(), taking.tolist(), strict=True):
            if owners[column] not in (-1, owner[source]):
                raise InputError(
                    f"{edit.dimensions[column].name!r:.120} would be merged of different parts; "
                    "merge dimensions of the same part"
                )
            owners[column] = owner[source]
        edited_parts = []  # a part without a column leaves the ensemble
        for index, part in enumerate(parts):
            columns = np.flatnonzero(owners == index)
            if len(columns):
                is_owned = owners[taking] == index
                first = int(np.argmax(owner == index))
                mixing_indices = sources[is_owned] - first, np.searchsorted(columns, taking[is_owned])
                mixing = Mixing.from_entries(*mixing_indices, factors[is_owned], (part.dimension, len(columns)))
                edited_parts.append(
                    _edited_part(part, mixing, [edit.dimensions[column] for column in columns.tolist()])
                )
        return self.from_parts(edited_parts)


def _edited_part(part: EnsemblePart, mixing: Mixing, dimensions: list[Dimension]) -> EnsemblePart:
    items = []
    for dimension in dimensions:
        pieces = dimension.name.split(_JOINED + part.name + BETWEEN)  # also where names were joined by a merge
        pieces[0] = pieces[0].removeprefix(part.name + BETWEEN)
        items.append(replace(dimension, name=_JOINED.join(pieces)))
    edit = Edit(Dimensions(items), mixing)
    all_columns = list(range(part.dimension))
    if selected_columns(edit) == all_columns and edit.dimensions.names == part.model.dimensions.names:
        return part  # nothing changes
    try:
        return replace(part, model=part.model._edited(edit))
    except InputError as error:
        raise InputError(f"{part.name!r:.80}: {error}; leave out all of them, or change its weight") from error
