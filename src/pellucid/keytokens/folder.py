"""A key-token model on disk: how texts are read and decoded, the adjustment, and the transformer or its name.

    config.json            the family, and how the backbone is opened
    keytokens.json         the settings, and what the adjustment is
    keytokens.safetensors  a fingerprint; the adjustment's offset, a given head and a mixing where there are any
    dimensions.tsv         the tokens, for people: names and scales in it are honoured
    backbone/, adapter/    the transformer, see `transformer/folder.py`

With `sparse_encoder` the folder is one that plain sentence-transformers opens as a SparseEncoder, too: see
`sparsefolder.py`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.dimensions import Dimensions, Edit, read_dimensions, scaling, write_dimensions
from pellucid.errors import InputError, ModelFolderError
from pellucid.keytokens.adjustments import Adjustment
from pellucid.keytokens.settings import KeyTokenSettings
from pellucid.pretrained import check_family, locate, read_config, saving
from pellucid.store import read_json, read_tensors, write_json, write_tensors
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.folder import (
    backbone_facts,
    check_fingerprint,
    finite,
    mixing_tensors,
    read_backbone,
    read_mixing,
    write_backbone,
)

if TYPE_CHECKING:
    from pellucid.keytokens.embedder import KeyTokenEmbedder

_TENSORS, _FACTS, _TABLE = "keytokens.safetensors", "keytokens.json", "dimensions.tsv"


class Parts(NamedTuple):
    """What a folder holds."""

    folder: Path
    backbone: Backbone
    settings: KeyTokenSettings
    head: npt.NDArray[np.float32] | None
    adjustment: Adjustment
    tensors: dict[str, npt.NDArray[Any]]


def write_folder(
    path: str | Path, model: KeyTokenEmbedder, backbone_name: str | None, dtype: str, sparse_encoder: bool
) -> None:
    """Write `model` to folder `path`; see `KeyTokenEmbedder.save_pretrained`."""
    if dtype not in ("float32", "float16"):
        raise InputError(f"a given head is saved as float32 or float16, not {dtype!r:.40}")
    if sparse_encoder:
        from pellucid.keytokens.sparsefolder import check_expressible, write_modules

        check_expressible(model, backbone_name)
    backbone = model.backbone
    facts = {"dimensions": model.get_embedding_dimension(), **backbone_facts(backbone, backbone_name)}
    with saving(path, model.family, facts) as folder:
        write_backbone(folder, backbone, backbone_name)
        if sparse_encoder:
            write_modules(folder, model)
        write_tensors(folder / _TENSORS, _tensors(model, dtype))
        adjustment = {key: value for key, value in asdict(model.adjustment).items() if key != "offset"}
        write_json(folder / _FACTS, {"settings": asdict(model.settings), "adjustment": adjustment})
        write_dimensions(folder / _TABLE, model.dimensions)


def _tensors(model: KeyTokenEmbedder, dtype: str) -> dict[str, npt.NDArray[Any]]:
    tensors: dict[str, npt.NDArray[Any]] = {"fingerprint": model.backbone.fingerprint()}
    if model.adjustment.offset is not None:
        tensors["offset"] = model.adjustment.offset
    if model.given_head:
        tensors["head"] = model.head.rows().astype(dtype)
    return tensors | mixing_tensors(model.mixing)


def read_folder(path_or_id: str | Path, backbone: Backbone | str | Path | None) -> Parts:
    """Open what `write_folder` wrote; see `KeyTokenEmbedder.from_pretrained`."""
    folder = locate(path_or_id)
    check_family(folder, "keytokens")
    found = {name: np.array(tensor) for name, tensor in read_tensors(folder / _TENSORS)[0].items()}
    if "fingerprint" not in found:
        raise ModelFolderError(f"{folder / _TENSORS} holds no fingerprint; it is of another model or broken")
    found["fingerprint"] = finite(found["fingerprint"], (-1,), f"{folder / _TENSORS}: 'fingerprint'")
    if "offset" in found:
        found["offset"] = finite(found["offset"], (-1,), f"{folder / _TENSORS}: 'offset'")
    settings, adjustment = _read_facts(folder / _FACTS, found.get("offset"))
    opened = backbone if isinstance(backbone, Backbone) else read_backbone(folder, backbone)
    check_fingerprint(opened, found["fingerprint"], folder)
    return Parts(folder, opened, settings, _read_head(found, folder), adjustment, found)


def _read_head(tensors: dict[str, npt.NDArray[Any]], folder: Path) -> npt.NDArray[np.float32] | None:
    head = tensors.get("head")
    return None if head is None else finite(head, (-1, -1), f"{folder / _TENSORS}: 'head'")


def _read_facts(path: Path, offset: npt.NDArray[Any] | None) -> tuple[KeyTokenSettings, Adjustment]:
    facts = read_json(path)
    try:
        return KeyTokenSettings(**facts["settings"]), Adjustment(offset=offset, **facts["adjustment"])
    except (KeyError, TypeError, InputError) as error:
        raise ModelFolderError(f"{path} does not describe a key-token model: {error}") from error


def read_edit(parts: Parts, tokens: Dimensions) -> Edit | None:
    """Return the edits of a model's dimensions: those it was saved with, and what was changed in `dimensions.tsv`.

    Args:
        parts: what its folder holds.
        tokens: the dimensions of its head as it is.

    Raises:
        ModelFolderError: the table or the mixing is broken.
    """
    from scipy import sparse

    folder = parts.folder
    count = read_config(folder).get("dimensions")
    if type(count) is not int or not 1 <= count <= len(tokens):
        raise ModelFolderError(
            f"{folder / 'config.json'} must say how many dimensions the model has, 1 to {len(tokens)}, "
            f"not {count!r:.40}"
        )
    mixing = read_mixing(parts.tensors, len(tokens), count, folder / _TENSORS)
    saved = [token.about for token in tokens] if mixing is None else None
    dimensions, scales = read_dimensions(folder / _TABLE, count, saved)
    scaled = set(scales) != {1.0}
    if mixing is None and not scaled and list(dimensions) == list(tokens):
        return None
    mixing = sparse.eye_array(len(tokens), format="csr") if mixing is None else mixing
    if scaled:
        mixing = mixing @ scaling(dimensions, dict(enumerate(scales))).mixing
    return Edit(dimensions, mixing)
