"""A lexicon model on disk: the clusters that are its head, how texts are read, and the transformer or its name.

    config.json            the family, and how the backbone is opened
    lexicon.json           the settings, and the clusters' names and words
    lexicon.safetensors    centroids, assignment of tokens; bias and mixing where there are any; a fingerprint
    dimensions.tsv         the dimensions, for people: names and scales in it are honoured; what `scale` did is here
    backbone/, adapter/    the transformer, as in `transformer/folder.py`

The fingerprint is a mean state of the backbone: a backbone found by name that gives another one is refused.

Also read: the LENS authors' published checkpoints (LENS-d4000, LENS-d8000), and what their training code writes.

Both are a Mistral with three added tokens and a head of centroids:

    published    config.json, model*.safetensors, tokenizer; the centroids as `lm_head.weight` among the weights, with
                 another number of rows than the vocabulary, or beside them in `lm_head.pth`
    trained      checkpoint-N/adapter_*, embedding/input_emb.pth, embedding/lm_head.pth, tokenizer; the weights of the
                 model it was trained from are elsewhere

A `.pth` file is a pickle, which could run code. torch opens it with `weights_only`, which reads tensors, linear layers
and embeddings and refuses anything else.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
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
from pellucid.folder import named_place
from pellucid.lexicon.clusters import Clusters, name_clusters
from pellucid.store import read_json, read_tensors, write_json, write_tensors
from pellucid.transformer.backbone import (
    CONFIG,
    Backbone,
    find_adapter,
    merge_adapter,
    open_backbone,
    open_tokenizer,
    prepare,
)
from pellucid.transformer.folder import (
    backbone_facts,
    check_fingerprint,
    finite,
    mixing_tensors,
    read_backbone,
    read_mixing,
    write_backbone,
)
from pellucid.transformer.reading import LexiconSettings
from pellucid.untrusted import loading

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


def write_folder(folder: Path, model: Parts, backbone_name: str | None, dtype: str) -> dict[str, Any]:
    """Write a model into `folder` and return what describes it; see `LexiconEmbedder.save_pretrained`."""
    if dtype not in ("float32", "float16"):
        raise InputError(f"centroids and adapter are saved as float32 or float16, not {dtype!r:.40}")
    scales = diagonal_scales(model.mixed and model.mixed[0])
    write_backbone(folder, model.backbone, backbone_name, dtype)
    write_tensors(folder / _TENSORS, _tensors(model, dtype, mixed=scales is None))
    described = {"settings": asdict(model.settings), "names": model.clusters.names, "words": model.clusters.words}
    about = [item.about for item in model.dimensions]
    same = about == model.clusters.words  # as in every model without merged dimensions
    write_json(folder / _FACTS, described | {"about": None if same else about}, indent=None)
    write_dimensions(folder / _TABLE, model.dimensions, scales)
    return {"dimensions": len(model.dimensions), **backbone_facts(model.backbone, backbone_name)}


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


def read_folder(folder: Path, facts: Mapping[str, Any], backbone: Backbone | str | Path | None) -> Parts:
    """Open what `write_folder` wrote; see `LexiconEmbedder.from_pretrained`."""
    tensors = _checked_tensors(folder / _TENSORS)
    settings, clusters, about = _read_facts(folder / _FACTS, tensors)
    opened = backbone if isinstance(backbone, Backbone) else read_backbone(folder, facts, backbone)
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


_QUERY = "<instruct>{instruction}\n<query>{text}"
SETTINGS = LexiconSettings(instructed_template=_QUERY, shift=True, end_token=True, takes_instruction=True)
"""How the authors read texts: queries behind their instruction, documents alone (their README and eval/model.py)."""

_INPUTS = "embedding/input_emb.pth"
_HEADS = ("lm_head.pth", "embedding/lm_head.pth", "lm_head.npy")
_HEAD_NAME = "lm_head.weight"


def is_published(folder: Path) -> bool:
    """Whether `folder` holds a model in one of the authors' two forms."""
    if _adapter_folder(folder) is not None:
        return True
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    return isinstance(config, dict) and config.get("model_type") == "mistral"


def open_published(folder: Path, source: str | Path, backbone: Backbone | str | Path | None) -> Parts:
    """Open such a model.

    Args:
        folder: where its files are.
        source: what the user gave, a folder or a hub id.
        backbone: the model it was trained from, or its name, from which clusters are named; the trained form names it
            itself.
    """
    if (adapter := _adapter_folder(folder)) is not None:
        opened, rows = _open_trained(folder, source, adapter, backbone)
        centroids = _centroids(folder, source, opened.dimension, len(rows))
        return Parts(opened, name_clusters(centroids, rows, opened.tokenizer), SETTINGS, None, None)
    opened = open_backbone(folder, head="input", dtype=_stored_dtype(folder))
    vocabulary = len(opened.head)
    centroids = _centroids(folder, source, opened.dimension, vocabulary)
    return Parts(opened, _named(centroids, backbone), SETTINGS, None, None)


def _named(centroids: npt.NDArray[np.float32], origin: Backbone | str | Path | None) -> Clusters:
    """Return the clusters, named by the tokens of the model they were made from where it is given."""
    if origin is None:
        warnings.warn(
            "the checkpoint holds the centroids of its clusters and not the tokens they were made of, so that clusters "
            "are called by numbers; give the model it was trained from: backbone='mistralai/Mistral-7B-v0.1'",
            stacklevel=6,
        )
        return Clusters.nameless(centroids)
    opened = origin if isinstance(origin, Backbone) else open_backbone(origin, attention="causal", head="lm")
    return name_clusters(centroids, opened.head, opened.tokenizer)


def _stored_dtype(folder: Path) -> str:
    config = read_json(folder / "config.json")
    found = str(config.get("dtype", config.get("torch_dtype", "float32"))).removeprefix("torch.")
    return found if found in ("float32", "bfloat16", "float16") else "float32"


def _adapter_folder(folder: Path) -> Path | None:
    """Return where the adapter is: in the last checkpoint, as the authors take it, or in the folder itself."""
    numbered = [(int(m[1]), p) for p in folder.glob("checkpoint-*") if (m := re.fullmatch(r"checkpoint-(\d+)", p.name))]
    places = [place for _, place in sorted(numbered, reverse=True)] + [folder]
    return next((place for place in places if (place / CONFIG).is_file()), None)


def _open_trained(
    folder: Path, source: str | Path, adapter: Path, backbone: Backbone | str | Path | None
) -> tuple[Backbone, npt.NDArray[np.float32]]:
    """Return the model with the adapter and the added tokens, and the head's rows it was clustered from."""
    import torch

    config = read_json(adapter / CONFIG)
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    origin = backbone or (named_place(folder, base) if isinstance(base, str) else None)
    if not isinstance(origin, (str, Path)):
        raise ModelFolderError(f"{folder} is an adapter; give the name or folder of the model it was trained from")
    base = open_backbone(origin, attention="causal", head="lm", device="cpu")
    rows = base.head.float().numpy().copy()
    with loading(str(folder)):
        tokenizer = open_tokenizer(str(folder))
        path = _fetched(folder, source, _INPUTS)
        if path is None:
            raise ModelFolderError(f"{folder} has no {_INPUTS}, which holds the rows of the added tokens")
        inputs = _read_array(path, base.model.get_input_embeddings().weight.shape[1])
        spare = np.zeros((max(0, len(inputs) - len(rows)), rows.shape[1]), np.float32)
        base.model.resize_token_embeddings(len(inputs), mean_resizing=False)
        with torch.no_grad():
            base.model.get_input_embeddings().weight.copy_(torch.from_numpy(inputs))
        model, kept = merge_adapter(base.model, find_adapter(adapter))
        opened = prepare(model, tokenizer, attention="bidirectional", name=str(folder), adapter=kept)
    return opened, np.vstack([rows, spare])


def _centroids(folder: Path, source: str | Path, width: int, vocabulary: int) -> npt.NDArray[np.float32]:
    """Return the centroids [k, width], wherever the checkpoint has them."""
    for file in sorted(folder.glob("*.safetensors")):
        found = _head_of(file)
        if found is not None and len(found) != vocabulary and found.shape[1] == width:
            return found
    for name in _HEADS:
        path = _fetched(folder, source, name)
        if path is not None:
            return _read_array(path, width)
    raise ModelFolderError(
        f"{folder} has no centroids: no {_HEAD_NAME} with another number of rows than the vocabulary ({vocabulary}) "
        f"in its safetensors files, and none of {', '.join(_HEADS)}"
    )


def _head_of(file: Path) -> npt.NDArray[np.float32] | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as tensors:
            if _HEAD_NAME in tensors.keys():
                return finite(tensors.get_tensor(_HEAD_NAME).float().numpy(), (-1, -1), f"{file}: {_HEAD_NAME}")
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(f"{file} is broken: {error}") from error
    return None


def _fetched(folder: Path, source: str | Path, name: str) -> Path | None:
    """Return file `name` of the folder; of a hub model it is downloaded now, as such files usually are not."""
    if (folder / name).is_file():
        return folder / name
    if Path(source).exists():
        return None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(str(source), name))
    except (HfHubHTTPError, LocalEntryNotFoundError):
        return None


def _read_array(path: Path, width: int) -> npt.NDArray[np.float32]:
    """Return the array [rows, width] of a `.npy` file, or of a tensor or layer that `torch.save` wrote."""
    if not path.is_file():
        raise ModelFolderError(f"file not found: {path}")
    try:
        array = np.load(path, allow_pickle=False) if path.suffix == ".npy" else _saved_weight(path)
    except Exception as error:  # torch and numpy raise whatever a broken file leads them to
        raise ModelFolderError(f"{path} is no file that torch.save or numpy.save wrote: {error!s:.300}") from error
    return finite(array, (-1, width), str(path))


def _saved_weight(path: Path) -> npt.NDArray[np.float32]:
    import torch

    with torch.serialization.safe_globals([torch.nn.Linear, torch.nn.Embedding]):
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    weight = getattr(saved, "weight", saved)
    if not isinstance(weight, torch.Tensor) or weight.numel() > path.stat().st_size:  # a view may repeat its numbers
        raise ValueError(f"it holds {type(saved).__name__}, where one array was expected")
    return np.asarray(weight.detach().float().numpy())
