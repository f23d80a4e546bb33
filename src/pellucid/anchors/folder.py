"""An anchor model on disk: the encoder, a stock Dense module whose rows are the anchors, and `dimensions.tsv`.

With an encoder that sentence-transformers can open (one of its own, a static model, anchors over these), the folder is
one it opens too: the encoder's modules, Normalize and Dense. The encoder can also be kept by name alone, or, where it
is a callable, not at all.

`dimensions.tsv` is for people. What they changed is found by comparing it with the anchor texts in
`anchors.json`: a changed text is encoded again when the model is opened.
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.base import Embedder, Vectors, unit_rows
from pellucid.dimensions import (
    Dimension,
    Dimensions,
    DimensionTable,
    on_one_line,
    read_dimensions,
    scaling,
    write_dimensions,
)
from pellucid.encoders import Encoder, anchor_vectors, encode_with, is_sentence_transformer
from pellucid.errors import InputError, ModelFolderError
from pellucid.folder import check_family, locate, named_place, read_config, saving
from pellucid.pretrained import load, open_encoder, open_sentence_transformer
from pellucid.store import is_sound, read_json, read_regular, read_tensors, write_json, write_tensors
from pellucid.untrusted import without_bars


class Parts(NamedTuple):
    """What an `AnchorEmbedder` consists of; see its attributes."""

    encoder: Encoder
    vectors: Vectors
    dimensions: Dimensions
    encoder_name: str | None = None


_DENSE = "anchors"  # the folder of the Dense module
_ENCODER = "encoder"  # the folder of a pellucid model that serves as encoder
_PROMPTS = "config_sentence_transformers.json"  # of a SentenceTransformer, at the top of its folder
_STOCK_FAMILIES = ("static", "anchors")  # whose `modules.json` gives the vectors that `encode` gives
_MAX_LIST = 1 << 28  # bytes
_IDENTITY = "torch.nn.modules.linear.Identity"
_STOCK, _OURS, _CALLABLE = "sentence-transformers", "pellucid", "function"  # what config.json says without a name
_SAME = 0.98  # cosine of an anchor's vector to what the encoder gives for it now; float16 and other machines stay above


def read_anchors(path: str | Path) -> list[str]:
    """Read anchor texts: a JSON list, a JSON object of them in order (the authors' published form), or a line each.

    Raises:
        ModelFolderError: the file is missing, no UTF-8, no JSON of that form, or holds no text.
    """
    try:
        if Path(path).suffix.lower() == ".json":
            found = read_json(path, max_bytes=_MAX_LIST)
        else:
            content = read_regular(path, _MAX_LIST).decode("utf-8-sig")
            found = [line.rstrip("\r") for line in content.split("\n")]  # splitlines() also cuts at U+2028 and others
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{path} is not UTF-8: {error}") from error
    texts = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ModelFolderError(f"{path} must hold a list of texts, or an object whose values are texts")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ModelFolderError(f"{path} holds no text")
    return texts


def write_folder(path: str | Path, parts: Parts) -> None:
    """Write a model to folder `path`; see `AnchorEmbedder.save_pretrained`."""
    rows, columns = parts.vectors.shape
    facts = {"anchors": rows, "encoder_dimension": columns, "encoder": parts.encoder_name or _kind(parts.encoder)}
    with saving(path, "anchors", facts) as folder:
        modules = [] if parts.encoder_name else _write_encoder(folder, parts.encoder)
        if modules:
            if not modules[-1]["type"].endswith("Normalize"):
                modules.append(_module(len(modules), f"{len(modules)}_Normalize", "Normalize"))
            write_json(folder / "modules.json", [*modules, _module(len(modules), _DENSE, "Dense")])
        (folder / _DENSE).mkdir()
        with np.errstate(over="ignore"):
            half = parts.vectors.astype(np.float16)
        exact = not modules and np.array_equal(half, parts.vectors)  # half the size, where no other library reads it
        dtype = np.float16 if exact else np.float32
        dense = {"in_features": columns, "out_features": rows, "bias": False, "activation_function": _IDENTITY}
        write_json(folder / _DENSE / "config.json", dense)
        write_tensors(folder / _DENSE / "model.safetensors", {"linear.weight": parts.vectors.astype(dtype)})
        write_json(folder / "anchors.json", _record(parts))
        write_dimensions(folder / "dimensions.tsv", parts.dimensions)


def _record(parts: Parts) -> dict[str, Any]:
    """Return the anchor texts, and what the encoder gives for one of them, which identifies it."""
    about = [list(dimension.about) for dimension in parts.dimensions]
    vector = encode_with(parts.encoder, about[0][:1], dimension=parts.vectors.shape[1])[0]
    return {"anchors": about, "first_vector": [round(x, 6) for x in vector.tolist()]}


def _kind(encoder: Encoder) -> str:
    return _STOCK if is_sentence_transformer(encoder) else _OURS if isinstance(encoder, Embedder) else _CALLABLE


def _write_encoder(folder: Path, encoder: Encoder) -> list[dict[str, Any]]:
    """Write a copy of the encoder and return its modules, none where sentence-transformers cannot open it."""
    if is_sentence_transformer(encoder):
        with without_bars():
            encoder.save_pretrained(str(folder), create_model_card=False)
        return list(read_json(folder / "modules.json"))
    if not isinstance(encoder, Embedder):
        return []
    copied = {"encoder_name": ""} if encoder.family == "anchors" else {}
    encoder.save_pretrained(folder / _ENCODER, **copied)
    if encoder.family not in _STOCK_FAMILIES or not (folder / _ENCODER / "modules.json").exists():
        warnings.warn(
            f"plain sentence-transformers will not open this anchor model, pellucid does: the encoder "
            f"({type(encoder).__name__}) has no form in modules of that library",
            stacklevel=4,
        )
        return []
    prompts = folder / _ENCODER / _PROMPTS
    if prompts.exists():
        shutil.copy(prompts, folder)
    modules = read_json(folder / _ENCODER / "modules.json")
    return [{**module, "path": (Path(_ENCODER) / module["path"]).as_posix()} for module in modules]


def _module(number: int, path: str, kind: str) -> dict[str, Any]:
    return {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}


def read_folder(path_or_id: str | Path, encoder: Encoder | None) -> Parts:
    """Open the folder that `write_folder` wrote; see `AnchorEmbedder.from_pretrained`."""
    folder = locate(path_or_id)
    check_family(folder, "anchors")
    vectors = _read_vectors(folder / _DENSE / "model.safetensors")
    about, first = _read_record(folder / "anchors.json", vectors.shape)
    table = read_dimensions(folder / "dimensions.tsv", len(vectors), about)
    name = read_config(folder).get("encoder")
    opened = _read_encoder(folder, name) if encoder is None else encoder
    _check_encoder(opened, about[0][0], first, folder)
    try:
        vectors, dimensions = _with_edits(opened, vectors, about, table)
    except InputError as error:
        raise ModelFolderError(f"{folder / 'dimensions.tsv'}: {error}") from error
    return Parts(opened, vectors, dimensions, None if name in (_STOCK, _OURS, _CALLABLE) else name)


def _read_vectors(path: Path) -> Vectors:
    vectors = read_tensors(path)[0].get("linear.weight")
    if vectors is None or vectors.ndim != 2 or 0 in vectors.shape or vectors.dtype.kind != "f":
        raise ModelFolderError(f"{path} holds no table 'linear.weight' [anchors, dimension] of floats")
    if not is_sound(vectors):
        raise ModelFolderError(f"{path} holds NaN or infinity; make or download the model again")
    return np.asarray(vectors, np.float32)


def _read_record(path: Path, shape: tuple[int, ...]) -> tuple[list[tuple[str, ...]], Vectors]:
    """Return what `_record` gave: the texts, and the vector of the first."""
    record = read_json(path)
    about, vector = (record.get("anchors"), record.get("first_vector")) if isinstance(record, dict) else (None, None)
    if not (isinstance(about, list) and len(about) == shape[0] and all(map(_is_texts, about))):
        raise ModelFolderError(f"{path} must hold {shape[0]} lists of texts, one an anchor; it is of another model")
    if not (isinstance(vector, list) and len(vector) == shape[1] and all(isinstance(x, float) for x in vector)):
        raise ModelFolderError(f"{path} must hold a 'first_vector' of {shape[1]} numbers; it is of another model")
    with np.errstate(all="ignore"):  # zeros, NaN and what overflows become NaN, which `_check_encoder` refuses
        first = np.array(vector, np.float64)
        return about, (first / np.linalg.norm(first)).astype(np.float32)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _read_encoder(folder: Path, name: Any) -> Encoder:
    """Open the encoder that is in the folder, or the one of that name."""
    if name == _CALLABLE:
        raise ModelFolderError(
            f"{folder} was made with a function as encoder, which no file can hold; "
            "give it: AnchorEmbedder.from_pretrained(folder, encoder=function)"
        )
    if not isinstance(name, str):
        raise ModelFolderError(f"{folder / 'config.json'} names no encoder: {name!r:.40}")
    if name == _OURS:
        return load(folder / _ENCODER)
    if name == _STOCK:
        return _open_stock(folder)
    try:
        return open_encoder(named_place(folder, name))
    except InputError as error:
        raise ModelFolderError(
            f"{folder} has anchors for the encoder {name!r}, which cannot be opened: {error}. "
            "If you have it elsewhere: AnchorEmbedder.from_pretrained(model, encoder=encoder)"
        ) from error


def _open_stock(folder: Path) -> Encoder:
    """Open the whole folder with sentence-transformers and leave its last module, the anchors, off."""
    whole = open_sentence_transformer(str(folder))
    if len(whole) < 2 or type(whole[-1]).__name__ != "Dense":
        kinds = ", ".join(type(module).__name__ for module in whole)
        raise ModelFolderError(f"{folder} opens as {kinds or 'nothing'}, not as an encoder and a Dense of anchors")
    del whole[-1]
    return whole


def _check_encoder(encoder: Encoder, text: str, expected: Vectors, folder: Path) -> None:
    """Refuse an encoder that gives something else for `text` than it gave when the model was saved."""
    try:
        vector = encode_with(encoder, [text], dimension=len(expected))[0]
    except InputError as error:
        raise ModelFolderError(f"{folder}: the encoder does not fit the anchors: {error}") from error
    length = float(np.linalg.norm(expected))
    cosine = float(expected @ vector) / length if 0 < length < np.inf else 0.0
    if not cosine >= _SAME:  # nor NaN
        raise ModelFolderError(
            f"{folder}: the encoder gives another vector for the first anchor than when the model was saved (cosine "
            f"{cosine:.3f}); give the encoder that the anchors were made with"
        )


def _with_edits(
    encoder: Encoder, vectors: Vectors, about: list[tuple[str, ...]], table: DimensionTable
) -> tuple[Vectors, Dimensions]:
    """Return the vectors and dimensions after what was changed in `dimensions.tsv`."""
    items = [_with_text(item, texts) for item, texts in zip(table.dimensions, about, strict=True)]
    dimensions = Dimensions(items)
    changed = [n for n, texts in enumerate(about) if items[n].about != Dimension("", texts).about]
    if changed:
        texts = [text for n in changed for text in items[n].about]
        starts = np.cumsum([0] + [len(items[n].about) for n in changed])[:-1]
        sums = np.add.reduceat(anchor_vectors(encoder, texts, dimension=vectors.shape[1]), starts, axis=0)
        lengths = np.linalg.norm(vectors[changed], axis=1, keepdims=True)
        vectors = vectors.copy()
        vectors[changed] = unit_rows(sums) * lengths
    if set(table.scales) != {1.0}:
        vectors = (scaling(dimensions, dict(enumerate(table.scales))).mixing @ vectors).astype(np.float32)
    return vectors, dimensions


def _with_text(item: Dimension, before: tuple[str, ...]) -> Dimension:
    """Return the dimension as the table has it; a name that was the anchor text follows it."""
    if not item.about or not all(map(str.strip, item.about)):
        raise InputError(f"the anchor text of {item.name!r:.80} is empty; to drop a dimension use model.without")
    named_by_text = len(before) == 1 and item.name == on_one_line(before[0])
    return replace(item, name=on_one_line(" | ".join(item.about)) if named_by_text else item.name)
