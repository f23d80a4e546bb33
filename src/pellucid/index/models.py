"""The models of an index: how they are opened, stored so that they can be opened again, and recognised.

A model given by name is remembered by that name; one given as an object is saved into the index, so that the folder is
whole; a function can only be given again. A model is recognised by its fingerprint: an index refuses vectors that are
not comparable with those it holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pellucid.core.fingerprint import check_same
from pellucid.dense.embedder import FUNCTION, opened_with
from pellucid.errors import IndexFolderError, InputError, ModelFolderError, ReadingError, shown
from pellucid.index.parts import ModelPart, open_part
from pellucid.index.settings import BM25
from pellucid.persistence.folder import resolve_name, resolve_reference
from pellucid.persistence.store import checksum
from pellucid.text.unicode import well_formed

MAX_VERIFIED_BYTES = 4 << 20  # bytes of a file of a copy up to which it is checked when it is opened


def open_models(models: Mapping[str, Any] | Sequence[Any] | str | None) -> dict[str, ModelPart]:
    """Open the models that a user names or gives, see `Index.create`; those without a name of a part get their own."""
    if models is None:
        models = {"static-en": "static-en"}
    if isinstance(models, Mapping):
        named = dict(models)
    else:
        several = list(map(resolve_name, models if isinstance(models, (list, tuple)) else [models]))
        named = {
            Path(model).name
            if isinstance(model, (str, Path))
            else str(getattr(model, "family", None) or getattr(model, "__name__", None) or type(model).__name__): model
            for model in several
        }
        if len(named) < len(several):
            raise InputError("two models have the same name; give a dict of names: models={'one': ..., 'two': ...}")
    for name in named:
        is_name = isinstance(name, str) and name.strip() and well_formed(name) == name
        if not is_name or name in (BM25, ".", "..") or re.search("/|\0|: ", name):
            raise InputError(f"a part is called {shown(name)}; give a name without '/' and ': ', other than {BM25!r}")
    return {name: open_part(name, model) for name, model in named.items()}


def store_models(folder: Path | None, models: Mapping[str, ModelPart], copies: str = "") -> list[dict[str, Any]]:
    """Return how the models can be opened again; those given as objects or folders are copied to folder/copies.

    Without a folder none is copied: an object has to be given again.
    """
    stored = []
    for name, model in models.items():
        copied, files = folder is not None and not model.is_named and opened_with(model.encoder) != FUNCTION, {}
        if folder is not None and copied:
            copy = folder / copies / name
            model.encoder.save_pretrained(copy)
            files = {file.relative_to(copy).as_posix(): checksum(file) for file in copy.rglob("*") if file.is_file()}
        stored.append({
            "name": name, "source": model.source, "copy": f"{copies}/{name}" if copied else None, "files": files,
            "dimension": model.dimension, "fingerprint": model.fingerprint,
        })  # fmt: skip
    return stored


def model_source(stored: Mapping[str, Any]) -> str:
    """Return where a stored model comes from, in words."""
    return str(stored["source"] or ("a copy" if stored["copy"] else "given"))


def model_labels(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return by part where its model comes from, and the first digits of its fingerprint."""
    return {
        model["name"]: f"{model_source(model)} ({model['fingerprint']['stored'][:12]})" for model in settings["models"]
    }


def find_copy_mismatch(folder: Path, stored: Mapping[str, Any], max_bytes: float = math.inf) -> str:
    """Return what is wrong with files, up to `max_bytes` large, of the copy of a model, or ""."""
    for name, digest in stored["files"].items():
        path = folder / str(stored["copy"]) / name
        try:
            if not path.is_file() or (path.stat().st_size <= max_bytes and checksum(path) != digest):
                return f"{path} is missing, or is not what was written"
        except ReadingError:
            raise
        except ModelFolderError as error:
            return str(error)
    return ""


def open_stored_models(
    folder: Path, stored: Iterable[Mapping[str, Any]], caller_models: Mapping[str, Any], *, check: bool
) -> dict[str, ModelPart]:
    """Open the models that an index was made with, or those given in their place; `check` compares fingerprints."""
    names = [model["name"] for model in stored]
    unknown = sorted(set(caller_models) - set(names))
    if unknown:
        raise InputError(f"the index has no model {shown(unknown[0])}; its models are {', '.join(names) or 'none'}")
    opened = {}
    for model in stored:
        name = model["name"]
        label = f"the model {name!r} of {folder}"
        try:
            opened[name] = open_part(
                name, caller_models[name] if name in caller_models else _locate_stored(folder, model, label)
            )
        except ModelFolderError as error:
            raise IndexFolderError(f"{label} cannot be opened: {error}") from error
        if check:
            hint = "Open the index with that one (models=...), or make its vectors anew: index.rebuild"
            check_same(label, opened[name].fingerprint, model["fingerprint"], hint, IndexFolderError)
        if name not in caller_models:
            opened[name].source, opened[name].is_named = model["source"], not model["copy"]
    return opened


def _locate_stored(folder: Path, model: Mapping[str, Any], label: str) -> Path | str:
    """Return what opens a model of an index: its copy there, or the name that the index has for it."""
    name, source = model["name"], model["source"]
    if model["copy"]:
        if problem := find_copy_mismatch(folder, model, MAX_VERIFIED_BYTES):
            raise IndexFolderError(f"{label} cannot be opened: {problem}")
        return folder / str(model["copy"])
    if source is None:
        raise InputError(
            f"{label} is a function, which no folder can hold; give it: Index.open(path, models={{{name!r}: ...}})"
        )
    try:
        return resolve_reference(folder, source)
    except ModelFolderError as error:
        raise IndexFolderError(
            f"the index {folder} names the model {source!r:.200}; references outside the folder are disabled. If you "
            "trust it: Index.open(path, allow_outside=True), or pellucid --allow-outside on the command line. Or give "
            f"the model: Index.open(path, models={{{name!r}: ...}})"
        ) from error
