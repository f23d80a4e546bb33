"""The models of an index: opened, recorded so that they can be opened again, and recognised.

A model given by name is remembered by that name; one given as an object is saved into the index, so that the folder is
whole; a function can only be given again. A model is recognised by its fingerprint: an index refuses vectors that are
not comparable with those it holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.embeddings import Role, unit_rows
from pellucid.encoder import FUNCTION, EncoderEmbedder, opened_with, unit_vectors
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import IndexFolderError, InputError, ModelFolderError
from pellucid.fingerprint import PROBES, check_same, fingerprint
from pellucid.folder import bundled_models, named_place
from pellucid.index.bm25 import Analyser
from pellucid.index.embedding_server import EmbeddingServer
from pellucid.pretrained import load
from pellucid.query import Query
from pellucid.static.embedder import StaticEmbedder
from pellucid.store import checksum
from pellucid.text import well_formed

if TYPE_CHECKING:
    from pellucid.index.engine import Vector

Weights = Mapping[str, float] | None
"""Of parts or words by name; None for those that are set."""

BM25 = "bm25"
"""The name of the part that is no model."""

_STATIC_WEIGHT, _TRANSFORMER_WEIGHT = 0.3, 0.4  # of all models together, beside BM25
_LARGEST_WEIGHT = 1e6
_SMALL = 4 << 20  # bytes of a file of a copy up to which it is checked when it is opened


class Model:
    """One model of an index.

    Attributes:
        name: of the part of the score.
        encoder: the model; a SentenceTransformer or function is its `encoder.model`.
        source: a bundled name, hub id or folder; None for one that was given as an object.
        dimension: of its rows.
        sparse: whether they are sparse.
        signed: whether they can be negative, as far as a few texts show.
        fingerprint: of the model.
    """

    def __init__(self, name: str, given: Any) -> None:
        """Open the model, if need be, and encode a few texts.

        Args:
            name: of the part of the score.
            given: what `pellucid.load` takes.

        Raises:
            InputError: it is no model, or gives something else than finite rows.
            ModelFolderError: it cannot be opened.
        """
        self.name, self.encoder = name, load(given)
        self.source = str(given) if isinstance(given, (str, Path)) else None
        rows = self._units(list(PROBES), None)
        self.sparse = hasattr(rows, "tocsr")
        self.signed = bool((rows.data < 0).any()) if self.sparse else True
        self.dimension = int(rows.shape[1])
        self.fingerprint = fingerprint(self.encoder)

    @property
    def is_static(self) -> bool:
        """Whether its embeddings are means of word vectors."""
        return isinstance(self.encoder, StaticEmbedder)

    def ask(self, query: str) -> Query:
        """Return a query as the model reads it; `unit` is its row as `vectors` gives it."""
        asked = self.encoder.ask(query, "query")
        asked.unit = self.vectors([query], "query")[0]
        return asked

    def vectors(self, texts: list[str], role: Role) -> list[Vector | None]:
        """Return the row of each text at length 1; None for a text that the model knows nothing of.

        Args:
            texts: any number.
            role: "query" or "document".

        Raises:
            InputError: the model gives NaN or infinity.
        """
        rows = self._units(texts, role)
        if not self.sparse:
            return [row if row.any() else None for row in rows]
        rows = rows.tocsr()
        rows.eliminate_zeros()
        ends = rows.indptr.tolist()
        sides = [(rows.indices[start:end], rows.data[start:end]) for start, end in pairwise(ends)]
        return [side if len(side[0]) else None for side in sides]

    def _units(self, texts: list[str], role: Role) -> Any:
        if isinstance(self.encoder, EncoderEmbedder):
            return unit_vectors(self.encoder, texts, role=role)
        rows = getattr(self.encoder, f"encode_{role}" if role else "encode")(texts)
        if not np.isfinite(rows.data if hasattr(rows, "tocsr") else rows).all():
            raise InputError(f"the model {self.name!r} gave NaN or infinity; nothing of this batch was stored")
        has_length_1 = isinstance(self.encoder, (StaticEmbedder, EnsembleEmbedder))
        return rows if has_length_1 else unit_rows(rows)


def open_models(models: Mapping[str, Any] | Sequence[Any] | str | None) -> dict[str, Model]:
    """Open the models that a user names or gives.

    Args:
        models: name of the part -> model; a bundled name, folder or hub id, or an opened model. One alone, or a list,
            get the names of the models; None is static-en.

    Raises:
        InputError: something else is given, or a name is taken.
    """
    if models is None:
        models = {"static-en": "static-en"}
    if isinstance(models, Mapping):
        named = dict(models)
    else:
        several = models if isinstance(models, (list, tuple)) else [models]
        named = {
            Path(model).name
            if isinstance(model, (str, Path))
            else str(getattr(model, "family", None) or getattr(model, "__name__", None) or type(model).__name__): model
            for model in several
        }
        if len(named) < len(several):
            raise InputError("two models have the same name; give a dict of names: models={'one': ..., 'two': ...}")
    for name in named:
        if not isinstance(name, str) or not name.strip() or name in (BM25, ".", "..") or re.search("/|\0|: ", name):
            raise InputError(f"a part is called {name!r:.60}; give a name without '/' and ': ', other than {BM25!r}")
    return {name: Model(name, model) for name, model in named.items()}


def kinds(models: Mapping[str, Model]) -> tuple[dict[str, int], dict[str, bool]]:
    """Return the dense models with their dimensions, and the sparse ones with whether they can be negative."""
    dense = {name: model.dimension for name, model in models.items() if not model.sparse}
    return dense, {name: model.signed for name, model in models.items() if model.sparse}


def written_models(folder: Path, models: Mapping[str, Model], copies: str) -> list[dict[str, Any]]:
    """Return how the models can be opened again.

    Those given as objects or folders are copied to folder/copies: an index opens nothing elsewhere by itself.
    """
    written = []
    for name, model in models.items():
        elsewhere = model.source is None or (model.source not in bundled_models() and Path(model.source).is_dir())
        copied, files = elsewhere and opened_with(model.encoder) != FUNCTION, {}
        if copied:
            copy = folder / copies / name
            model.encoder.save_pretrained(copy)
            # In an index nobody edits them.
            files = {path.relative_to(copy).as_posix(): checksum(path) for path in copy.rglob("*") if path.is_file()}
        entry = {
            "name": name,
            "source": model.source,
            "copy": f"{copies}/{name}" if copied else None,
            "files": files,
            "dimension": model.dimension,
            "fingerprint": model.fingerprint,
        }
        server = getattr(model.encoder, "model", None)
        if isinstance(server, EmbeddingServer):
            entry["server"] = server.address  # for messages; nobody is asked there
        written.append(entry)
    return written


def wrong_copy(folder: Path, written: Mapping[str, Any], largest: float = math.inf) -> str:
    """Return what is wrong with a copy of a model, "" where nothing is.

    Args:
        folder: of the index.
        written: what the index wrote down of the model.
        largest: bytes of the files that are looked at.
    """
    for name, digest in written["files"].items():
        path = folder / written["copy"] / name
        try:
            if not path.is_file() or (path.stat().st_size <= largest and checksum(path) != digest):
                return f"{path} is missing, or is not what was written"
        except ModelFolderError as error:
            return str(error)
    return ""


def opened_models(
    folder: Path, written: Iterable[Mapping[str, Any]], given: Mapping[str, Any], *, check: bool
) -> dict[str, Model]:
    """Open the models that an index was made with, or those given in their place.

    Raises:
        InputError: one is given for a name that the index does not have, or a function or server has to be given.
        IndexFolderError: one is damaged, elsewhere, or with `check` another one than the index was made with.
    """
    names = [model["name"] for model in written]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InputError(f"the index has no model {unknown[0]!r:.60}; its models are {', '.join(names) or 'none'}")
    opened = {}
    for model in written:
        name = model["name"]
        what = f"the model {name!r} of {folder}"
        try:
            opened[name] = Model(name, given[name] if name in given else _place(folder, model, what))
        except ModelFolderError as error:
            raise IndexFolderError(f"{what} cannot be opened: {error}") from error
        if check:
            way_out = "Open the index with that one (models=...), or make its vectors anew: index.rebuild"
            check_same(what, opened[name].fingerprint, model["fingerprint"], way_out, IndexFolderError)
        if name not in given:
            opened[name].source = model["source"]
    return opened


def _place(folder: Path, model: Mapping[str, Any], what: str) -> Path | str:
    """Return what opens a model of an index: its copy there, or the name that the index has for it."""
    name, source, server = model["name"], model["source"], model.get("server")
    if model["copy"]:
        if problem := wrong_copy(folder, model, _SMALL):
            raise IndexFolderError(f"{what} cannot be opened: {problem}")
        return folder / str(model["copy"])
    if source is None:
        kind = f"on a server ({server!s:.200}), which is not asked unless you say so" if server else "a function"
        example = "pellucid.index.EmbeddingServer(url, model)" if server else "..."
        raise InputError(
            f"{what} is {kind}, which no folder can hold; give it: Index.open(path, models={{{name!r}: {example}}})"
        )
    try:
        return named_place(folder, source)
    except ModelFolderError as error:
        raise IndexFolderError(
            f"the index {folder} names the model {source!r:.200}; a folder opens nothing elsewhere by itself. If you "
            "trust it: Index.open(path, allow_outside=True), or pellucid --allow-outside on the command line. Or give "
            f"the model: Index.open(path, models={{{name!r}: ...}})"
        ) from error


def default_weights(models: Mapping[str, Model], bm25: bool) -> dict[str, float]:
    """Return the weights of the parts: those of models together, in equal shares, and the rest for BM25."""
    together = (
        _STATIC_WEIGHT
        if all(isinstance(model.encoder, StaticEmbedder) for model in models.values())
        else _TRANSFORMER_WEIGHT
    )
    together = (together if bm25 else 1.0) if models else 0.0
    shares = {name: together / len(models) for name in models}
    return {BM25: 1.0 - together, **shares} if bm25 else shares


def checked_weights(
    weights: Mapping[str, float] | None, parts: Sequence[str], default: Mapping[str, float]
) -> dict[str, float]:
    """Return the weights of all parts, brought to the sum 1; parts that are not named count 0."""
    if not parts:
        raise InputError("an index needs a model, or BM25")
    if weights is None:
        return {part: default[part] for part in parts}
    unknown = sorted(set(weights) - set(parts)) if isinstance(weights, Mapping) else [repr(weights)]
    if unknown:
        raise InputError(f"no part of the index is called {unknown[0]!s:.60}; its parts are {', '.join(parts)}")
    given = [weights.get(part, 0.0) for part in parts]
    if not all(isinstance(value, (int, float)) and 0 <= value <= _LARGEST_WEIGHT for value in given) or not any(given):
        raise InputError(
            f"weights are {dict(weights)!s:.200}; they must be numbers up to a million, none negative and one above 0"
        )
    return {part: value / sum(given) for part, value in zip(parts, given)}


def settings_with(settings: Mapping[str, Any], models: Mapping[str, Model]) -> dict[str, Any]:
    """Return the settings of an index for other models, with weights for them unless the parts are the same."""
    parts = [BM25] * settings["bm25"] + list(models)
    usable = not _wrong_weights(settings)
    weights = settings["weights"] if usable and set(settings["weights"]) == set(parts) else None
    return {
        **settings,
        "weights": checked_weights(weights, parts, default_weights(models, settings["bm25"])),
        "word_weights": settings.get("word_weights", {}) if usable else {},
        "analyser": Analyser(settings["language"], settings["stop_words"]).fingerprint,
    }


def check_settings(settings: Mapping[str, Any], file: Path) -> None:
    """Refuse stored weights that could not have been set, and BM25 of another analyser than this version's.

    Raises:
        IndexFolderError: the message names the `file` and the way out.
    """
    if wrong := _wrong_weights(settings):
        raise IndexFolderError(
            f"the settings in {file} cannot be used: {wrong}. Restore the file, or open the index with rebuild=True "
            "(pellucid index rebuild), which takes the default weights"
        )
    own = Analyser(settings["language"], settings["stop_words"]).fingerprint
    if settings["bm25"] and settings.get("analyser", own) != own:
        raise IndexFolderError(
            f"BM25 in {file.parent} was counted with another stemmer, stop words, k1 or b than this pellucid has. "
            "Count anew: open the index with rebuild=True, or pellucid index rebuild"
        )


def _wrong_weights(settings: Mapping[str, Any]) -> str:
    """Return what is wrong with stored weights, "" where nothing is."""
    weights, parts = settings.get("weights"), [BM25] * settings["bm25"] + [m["name"] for m in settings["models"]]
    if not isinstance(weights, dict) or set(weights) != set(parts):
        return f"weights are {weights!s:.200}, and the parts of the index {', '.join(parts)}"
    try:
        checked_weights(weights, parts, weights)
        checked_word_weights(settings.get("word_weights", {}), {})
    except InputError as error:
        return str(error)
    return ""


def checked_word_weights(weights: Mapping[str, float] | None, default: Mapping[str, float]) -> Mapping[str, float]:
    """Return what words of a query count; None takes the default."""
    if weights is None:
        return default
    if not isinstance(weights, Mapping):
        raise InputError(f"word_weights are {weights!r:.60}; give a dict: word -> weight")
    for word, factor in weights.items():
        if not isinstance(word, str) or not isinstance(factor, (int, float)) or not 0 <= factor <= _LARGEST_WEIGHT:
            raise InputError(f"the weight of the word {word!r:.60} is {factor!r:.40}; give one from 0 to a million")
    return {well_formed(word): float(factor) for word, factor in weights.items()}
