"""A lexicon model on disk: the clusters that are its head, how texts are read, and the transformer or its name.

    config.json            the family, and how the backbone is opened
    lexicon.json           the settings, and the clusters' names and words
    lexicon.safetensors    centroids, assignment of tokens; bias and mixing where there are any; a fingerprint
    dimensions.tsv         the dimensions, for people: names and scales in it are honoured; what `scale` did is here
    backbone/, adapter/    the transformer, as in `transformer/folder.py`

The fingerprint is a mean state of the backbone: a backbone found by name that gives another one is refused.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.dimensions import (
    MOST_SCALE,
    Dimensions,
    DimensionTable,
    read_dimensions,
    scaling,
    write_dimensions,
)
from pellucid.errors import InputError, ModelFolderError
from pellucid.lexicon.clusters import Clusters
from pellucid.lexicon.settings import LexiconSettings
from pellucid.pretrained import check_family, locate, saving
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

_TENSORS, _FACTS, _TABLE = "lexicon.safetensors", "lexicon.json", "dimensions.tsv"

Mixed = tuple[Any, Dimensions]


class Parts(NamedTuple):
    """What a `LexiconEmbedder` consists of, and `LexiconEmbedder.from_parts` takes."""

    backbone: Backbone
    clusters: Clusters
    settings: LexiconSettings
    bias: npt.NDArray[np.float32] | None
    mixed: Mixed | None

    @property
    def dimensions(self) -> Dimensions:
        """What the coordinates are called."""
        return self.mixed[1] if self.mixed else self.clusters.dimensions


def write_folder(path: str | Path, model: Parts, backbone_name: str | None, dtype: str) -> None:
    """Write a model to folder `path`; see `LexiconEmbedder.save_pretrained`."""
    if dtype not in ("float32", "float16"):
        raise InputError(f"centroids and adapter are saved as float32 or float16, not {dtype!r:.40}")
    backbone = model.backbone
    facts = {"dimensions": len(model.dimensions), **backbone_facts(backbone, backbone_name)}
    scales = diagonal_scales(model.mixed and model.mixed[0])
    with saving(path, "lexicon", facts) as folder:
        write_backbone(folder, backbone, backbone_name, dtype)
        write_tensors(folder / _TENSORS, _tensors(model, dtype, mixed=scales is None))
        described = {"settings": asdict(model.settings), "names": model.clusters.names, "words": model.clusters.words}
        about = [item.about for item in model.dimensions]
        same = about == model.clusters.words  # as in every model without merged dimensions
        write_json(folder / _FACTS, described | {"about": None if same else about}, indent=None)
        write_dimensions(folder / _TABLE, model.dimensions, scales)


def diagonal_scales(mixing: Any) -> list[float] | None:
    """Return what each dimension is multiplied by where the mixing does nothing else, and the table takes it."""
    if mixing is None or mixing.shape[0] != mixing.shape[1]:
        return None
    entries = mixing.tocoo()
    if entries.nnz != mixing.shape[0] or (entries.row != entries.col).any():
        return None
    values: list[float] = mixing.diagonal().tolist()
    return values if 0 <= min(values) and max(values) <= MOST_SCALE else None


def _tensors(model: Parts, dtype: str, *, mixed: bool) -> dict[str, npt.NDArray[Any]]:
    tensors: dict[str, npt.NDArray[Any]] = {
        "centroids": model.clusters.centroids.astype(dtype),
        "assignment": model.clusters.assignment.astype(np.int32),
        "fingerprint": model.backbone.fingerprint(),
    }
    if model.bias is not None:
        tensors["bias"] = model.bias
    return tensors | mixing_tensors(model.mixed[0] if model.mixed and mixed else None)


def read_folder(path_or_id: str | Path, backbone: Backbone | str | Path | None) -> Parts:
    """Open what `write_folder` wrote; see `LexiconEmbedder.from_pretrained`."""
    folder = locate(path_or_id)
    check_family(folder, "lexicon")
    tensors = _checked_tensors(folder / _TENSORS)
    settings, clusters, about = _read_facts(folder / _FACTS, tensors)
    opened = backbone if isinstance(backbone, Backbone) else read_backbone(folder, backbone)
    check_fingerprint(opened, tensors["fingerprint"], folder)
    table = read_dimensions(folder / _TABLE, len(about), about)
    mixing = read_mixing(tensors, len(clusters), len(about), folder / _TENSORS)
    try:
        clusters, mixed = _with_edits(clusters, mixing, table)
    except InputError as error:
        raise ModelFolderError(f"{folder / _TABLE}: {error}") from error
    if clusters.centroids.shape[1] != opened.dimension or (
        settings.own_words and len(clusters.assignment) < len(opened.tokenizer)
    ):
        raise ModelFolderError(f"{folder / _TENSORS}: the clusters are of another backbone than {opened.name!r}")
    return Parts(opened, clusters, settings, tensors.get("bias"), mixed)


def _checked_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the tensors and check their shapes against each other."""
    tensors, _ = read_tensors(path)
    found = {name: np.array(tensor) for name, tensor in tensors.items()}  # torch wants arrays it may write to
    needed = ("centroids", "assignment", "fingerprint")
    if not all(name in found for name in needed) or found["assignment"].dtype.kind != "i":
        raise ModelFolderError(f"{path} must hold {', '.join(needed)}; it is of another model or broken")
    found["centroids"] = finite(found["centroids"], (-1, -1), f"{path}: 'centroids'")
    found["assignment"] = found["assignment"].astype(np.int64)
    k, width = found["centroids"].shape
    for name, side in (("fingerprint", width), ("bias", k)):
        if name in found:
            found[name] = finite(found[name], (side,), f"{path}: {name!r}")
    return found


def _read_facts(
    path: Path, tensors: dict[str, npt.NDArray[Any]]
) -> tuple[LexiconSettings, Clusters, list[tuple[str, ...]]]:
    """Return the settings, the clusters of the head, and what each dimension is about."""
    facts = read_json(path)
    try:
        settings = LexiconSettings(**facts["settings"])
        words = _lists(facts["words"])
        about = words if facts["about"] is None else _lists(facts["about"])
        (names,) = _lists([facts["names"]])
        clusters = Clusters(tensors["assignment"], tensors["centroids"], list(names), words)
    except (KeyError, TypeError, InputError) as error:
        raise ModelFolderError(f"{path} does not describe a lexicon model: {error}") from error
    return settings, clusters, about


def _lists(value: Any) -> list[tuple[str, ...]]:
    """Return lists of texts after checking that they are such."""
    if not isinstance(value, list) or not all(isinstance(texts, list) for texts in value):
        raise TypeError(f"there must be lists of texts, not {value!r:.40}")
    if not all(isinstance(text, str) for texts in value for text in texts):
        raise TypeError("a word is no text")
    return [tuple(texts) for texts in value]


def _with_edits(clusters: Clusters, mixing: Any, table: DimensionTable) -> tuple[Clusters, Mixed | None]:
    """Return the clusters and the mixing after what was changed in `dimensions.tsv`."""
    dimensions = table.dimensions
    scaled = set(table.scales) != {1.0}
    if mixing is None and not scaled:
        return replace(clusters, names=dimensions.names, words=[item.about for item in dimensions]), None
    if scaled:
        scales = scaling(dimensions, dict(enumerate(table.scales))).mixing
        mixing = scales if mixing is None else mixing @ scales
    return clusters, (mixing, dimensions)
