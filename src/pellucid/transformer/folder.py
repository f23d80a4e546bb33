"""The transformer of a saved model: a copy in its folder, or its name and the adapter that belongs to it.

    backbone/              the transformer and its tokenizer, as transformers writes them; absent where it is named
    adapter/               the adapter that is merged into a named backbone, as peft writes it

A model's `config.json` says which, and how it is opened. A fingerprint, a mean state of the backbone, is kept with the
model: a backbone found by name that gives another one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError
from pellucid.fingerprint import check_same
from pellucid.folder import named_place
from pellucid.mixing import LARGEST
from pellucid.transformer.backbone import Backbone, open_backbone, write_adapter
from pellucid.untrusted import without_bars

BACKBONE, ADAPTER = "backbone", "adapter"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")  # of a copy, beside its weights


def backbone_facts(backbone: Backbone, name: str | None) -> dict[str, Any]:
    """Return what `config.json` says about a backbone that is kept by `name`, or, where that is None, as a copy."""
    return {
        "backbone": name or BACKBONE,
        "attention": backbone.attention,
        "head": backbone.head_kind,
        "dtype": str(backbone.model.dtype).removeprefix("torch."),
        "adapter": name is not None and backbone.adapter is not None,
    }


def write_backbone(folder: Path, backbone: Backbone, name: str | None, dtype: str = "float32") -> None:
    """Write a copy of the backbone into `folder`, or where it is kept by name its adapter alone, as `dtype`."""
    if name is None:
        with without_bars():
            backbone.model.save_pretrained(folder / BACKBONE)
            backbone.tokenizer.save_pretrained(folder / BACKBONE)
    elif backbone.adapter is not None:
        config, tensors = backbone.adapter
        write_adapter(folder / ADAPTER, ({**config, "base_model_name_or_path": name}, tensors), dtype)


def read_backbone(
    folder: Path, facts: Mapping[str, Any], instead: Backbone | str | Path | None, fingerprint: npt.NDArray[np.float32]
) -> Backbone:
    """Return the transformer that is in the folder, named in its config, or given in its place.

    Args:
        folder: of the model.
        facts: what its `config.json` says.
        instead: the transformer to use, opened, or a folder or hub id; None for the model's own.
        fingerprint: of the backbone that the model was made with.

    Raises:
        ModelFolderError: nothing is there, it is broken, or it gives other states than the model was made with.
    """
    opened = instead if isinstance(instead, Backbone) else _open_backbone(folder, facts, instead)
    _check_fingerprint(opened, fingerprint, folder)
    return opened


def _open_backbone(folder: Path, facts: Mapping[str, Any], instead: str | Path | None) -> Backbone:
    name, attention, head = (facts.get(key) for key in ("backbone", "attention", "head"))
    if not all(isinstance(value, str) for value in (name, head)) or type(attention) not in (str, int):
        raise ModelFolderError(f"{folder / 'config.json'} must name the backbone, its attention and its head")
    inside = name == BACKBONE and instead is None
    where = folder / BACKBONE if inside else (instead or named_place(folder, str(name)))
    missing = [file for file in _FILES if inside and not (folder / BACKBONE / file).is_file()]
    if missing:
        raise ModelFolderError(f"file not found: {folder / BACKBONE / missing[0]}")
    adapter = folder / ADAPTER if not inside and (folder / ADAPTER).exists() else None
    if adapter is None and facts.get("adapter", False) and instead is None:
        raise ModelFolderError(f"{folder} was saved with an adapter, and there is no {folder / ADAPTER}")
    dtype = facts.get("dtype", "float32")
    try:
        opened = open_backbone(where, attention=attention, head=head, adapter=adapter, dtype=dtype)  # type: ignore[arg-type]
    except InputError as error:
        raise ModelFolderError(f"{folder}: its backbone {str(where)!r} cannot be used: {error}") from error
    except ModelFolderError as error:
        if inside or instead is not None:
            raise
        hint = f"If you have it in a folder, give it: from_pretrained({str(folder)!r}, backbone='the/folder')"
        raise ModelFolderError(f"{folder} needs the transformer {name!r}. {hint}. {error}") from error
    return replace(opened, name=str(instead or where if inside or instead else name))


def _check_fingerprint(backbone: Backbone, expected: npt.NDArray[np.float32], folder: Path) -> None:
    """Check that a backbone gives the states of the one that the model in `folder` was made with."""
    way_out = "An adapter may be missing, or the attention be another"
    check_same(f"{folder}: the backbone {backbone.name!r}", backbone.fingerprint(), expected, way_out)


def finite(array: npt.NDArray[Any], shape: tuple[int, ...], what: str) -> npt.NDArray[np.float32]:
    """Return numbers of a file as a float32 array that may be written to.

    Args:
        array: as it was read.
        shape: what it must be; -1 for a side of any length above 0.
        what: the file and the field, for the error.

    Raises:
        ModelFolderError: it is of another shape or type, or holds NaN, infinity or what has no square in float32.
    """
    fits = array.ndim == len(shape) and all(side in (-1, found) for side, found in zip(shape, array.shape))
    if array.dtype.kind != "f" or not fits or 0 in array.shape:
        wanted = " x ".join("any" if side < 0 else str(side) for side in shape)
        raise ModelFolderError(f"{what} must be {wanted} numbers, got {array.dtype} {list(array.shape)}")
    with np.errstate(over="ignore"):
        numbers = np.array(array, np.float32)
    if not (np.abs(numbers) <= LARGEST).all():  # nor NaN
        raise ModelFolderError(f"{what} holds NaN, infinity or a number beyond {LARGEST:g}")
    return numbers
