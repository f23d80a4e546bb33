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
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base import Embedder, Vectors
from pellucid.dimensions import (
    Dimension,
    Dimensions,
    DimensionTable,
    on_one_line,
    read_dimensions,
    scaling,
    write_dimensions,
)
from pellucid.embeddings import unit_rows
from pellucid.encoder import FUNCTION, OURS, STOCK, EncoderEmbedder, opened_with, unit_vectors
from pellucid.errors import InputError, ModelFolderError
from pellucid.fingerprint import check_same
from pellucid.folder import named_place
from pellucid.pretrained import load, open_sentence_transformer
from pellucid.store import is_sound, read_json, read_regular, read_tensors, write_json, write_tensors

if TYPE_CHECKING:
    from pellucid.anchors.embedder import AnchorEmbedder

_DENSE = "anchors"  # the folder of the Dense module
_ENCODER = "encoder"  # the folder of a pellucid model that serves as encoder
_PROMPTS = "config_sentence_transformers.json"  # of a SentenceTransformer, at the top of its folder
_STOCK_FAMILIES = ("static", "anchors")  # whose `modules.json` gives the vectors that `encode` gives
_MAX_LIST = 1 << 28  # bytes
_IDENTITY = "torch.nn.modules.linear.Identity"


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


def anchor_vectors(encoder: Embedder, texts: list[str], *, dimension: int | None = None) -> Vectors:
    """Return the encoded anchors at length 1, float32 [n, d].

    Raises:
        InputError: one is zero.
    """
    vectors = unit_vectors(encoder, texts, dimension=dimension)
    empty = np.flatnonzero(~vectors.any(axis=1))
    if len(empty):
        raise InputError(
            f"the encoder maps anchor {empty[0]} ({texts[empty[0]]!r:.60}) to zero"
            + (f", and {len(empty) - 1} more" if len(empty) > 1 else "")
            + "; leave it out: no text is similar to it"
        )
    return vectors


def write_folder(folder: Path, model: AnchorEmbedder, encoder_name: str | None) -> dict[str, Any]:
    """Write a model's files and return what `config.json` says; see `AnchorEmbedder.save_pretrained`."""
    rows, columns = model.vectors.shape
    modules = [] if encoder_name else _write_encoder(folder, model.encoder)
    if modules:
        if not modules[-1]["type"].endswith("Normalize"):
            modules.append(_module(len(modules), f"{len(modules)}_Normalize", "Normalize"))
        write_json(folder / "modules.json", [*modules, _module(len(modules), _DENSE, "Dense")])
    (folder / _DENSE).mkdir()
    with np.errstate(over="ignore"):
        half = model.vectors.astype(np.float16)
    exact = not modules and np.array_equal(half, model.vectors)  # half the size, where no other library reads it
    dtype = np.float16 if exact else np.float32
    dense = {"in_features": columns, "out_features": rows, "bias": False, "activation_function": _IDENTITY}
    write_json(folder / _DENSE / "config.json", dense)
    write_tensors(folder / _DENSE / "model.safetensors", {"linear.weight": model.vectors.astype(dtype)})
    about = [list(dimension.about) for dimension in model.dimensions]
    first = unit_vectors(model.encoder, about[0][:1], dimension=columns)[0]  # which identifies the encoder
    write_json(folder / "anchors.json", {"anchors": about, "first_vector": [round(x, 6) for x in first.tolist()]})
    write_dimensions(folder / "dimensions.tsv", model.dimensions)
    return {"anchors": rows, "encoder_dimension": columns, "encoder": encoder_name or opened_with(model.encoder)}


def _write_encoder(folder: Path, encoder: Embedder) -> list[dict[str, Any]]:
    """Write a copy of the encoder and return its modules, none where sentence-transformers cannot open it."""
    if isinstance(encoder, EncoderEmbedder):
        if not encoder.is_sentence_transformer:
            return []
        encoder.write_modules(folder)
        return list(read_json(folder / "modules.json"))
    copied = {"encoder_name": ""} if encoder.family == "anchors" else {}
    encoder.save_pretrained(folder / _ENCODER, **copied)
    if encoder.family not in _STOCK_FAMILIES or not (folder / _ENCODER / "modules.json").exists():
        warnings.warn(
            f"plain sentence-transformers will not open this anchor model, pellucid does: the encoder "
            f"({type(encoder).__name__}) has no form in modules of that library",
            stacklevel=6,
        )
        return []
    prompts = folder / _ENCODER / _PROMPTS
    if prompts.exists():
        shutil.copy(prompts, folder)
    modules = read_json(folder / _ENCODER / "modules.json")
    return [{**module, "path": (Path(_ENCODER) / module["path"]).as_posix()} for module in modules]


def _module(number: int, path: str, kind: str) -> dict[str, Any]:
    return {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}


def read_folder(folder: Path, name: Any, encoder: Any) -> tuple[Embedder, Vectors, Dimensions, str | None]:
    """Return what `write_folder` wrote: encoder, vectors, dimensions and the encoder's name, None where it was copied.

    Args:
        folder: of the model.
        name: what its `config.json` says of the encoder.
        encoder: what to use instead of the folder's, or None.
    """
    vectors = _read_vectors(folder / _DENSE / "model.safetensors")
    about, first = _read_record(folder / "anchors.json", vectors.shape)
    table = read_dimensions(folder / "dimensions.tsv", len(vectors), about)
    opened = _read_encoder(folder, name) if encoder is None else load(encoder)
    try:
        now = unit_vectors(opened, [about[0][0]], dimension=len(first))[0]
    except InputError as error:
        raise ModelFolderError(f"{folder}: the encoder does not fit the anchors: {error}") from error
    way_out = "Give the encoder that the anchors were made with"
    check_same(f"{folder}: the encoder, by its vector for the first anchor,", now, first, way_out)
    try:
        vectors, dimensions = _with_edits(opened, vectors, about, table)
    except InputError as error:
        raise ModelFolderError(f"{folder / 'dimensions.tsv'}: {error}") from error
    return opened, vectors, dimensions, None if name in (STOCK, OURS, FUNCTION) else name


def _read_vectors(path: Path) -> Vectors:
    vectors = read_tensors(path)[0].get("linear.weight")
    if vectors is None or vectors.ndim != 2 or 0 in vectors.shape or vectors.dtype.kind != "f":
        raise ModelFolderError(f"{path} holds no table 'linear.weight' [anchors, dimension] of floats")
    if not is_sound(vectors):
        raise ModelFolderError(f"{path} holds NaN or infinity; make or download the model again")
    return np.asarray(vectors, np.float32)


def _read_record(path: Path, shape: tuple[int, ...]) -> tuple[list[tuple[str, ...]], Vectors]:
    """Return the anchors' texts, and what the encoder gave for the first of them."""
    record = read_json(path)
    about, vector = (record.get("anchors"), record.get("first_vector")) if isinstance(record, dict) else (None, None)
    are_texts = isinstance(about, list) and all(
        isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts) for texts in about
    )
    if not are_texts or about is None or len(about) != shape[0]:
        raise ModelFolderError(f"{path} must hold {shape[0]} lists of texts, one an anchor; it is of another model")
    if not (isinstance(vector, list) and len(vector) == shape[1] and all(isinstance(x, float) for x in vector)):
        raise ModelFolderError(f"{path} must hold a 'first_vector' of {shape[1]} numbers; it is of another model")
    with np.errstate(all="ignore"):  # zeros, NaN and what overflows become NaN, which is like no vector
        first = np.array(vector, np.float64)
        return about, (first / np.linalg.norm(first)).astype(np.float32)


def _read_encoder(folder: Path, name: Any) -> Embedder:
    """Open the encoder that is in the folder, or the one of that name."""
    if name == FUNCTION:
        raise ModelFolderError(
            f"{folder} was made with a function as encoder, which no file can hold; "
            "give it: AnchorEmbedder.from_pretrained(folder, encoder=function)"
        )
    if not isinstance(name, str):
        raise ModelFolderError(f"{folder / 'config.json'} names no encoder: {name!r:.40}")
    if name == OURS:
        return load(folder / _ENCODER)
    if name == STOCK:  # the whole folder, of which the last module is the anchors
        whole = open_sentence_transformer(str(folder))
        if len(whole) < 2 or type(whole[-1]).__name__ != "Dense":
            kinds = ", ".join(type(module).__name__ for module in whole)
            raise ModelFolderError(f"{folder} opens as {kinds or 'nothing'}, not as an encoder and a Dense of anchors")
        del whole[-1]
        return load(whole)
    place = named_place(folder, name)
    try:
        return load(place)
    except (InputError, ModelFolderError) as error:
        raise ModelFolderError(
            f"{folder} has anchors for the encoder {name!r}, which cannot be opened: {error}. "
            "If you have it elsewhere: AnchorEmbedder.from_pretrained(model, encoder=encoder)"
        ) from error


def _with_edits(
    encoder: Embedder, vectors: Vectors, about: list[tuple[str, ...]], table: DimensionTable
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
