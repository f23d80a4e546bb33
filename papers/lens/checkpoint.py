"""The LENS authors' published checkpoints (LENS-d4000, LENS-d8000), and what their training code writes.

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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError
from pellucid.lexicon import LexiconSettings
from pellucid.lexicon.clusters import Clusters, head_matrix, named_clusters
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.persistence.folder import allow_external, locate, resolve_reference
from pellucid.persistence.store import read_json
from pellucid.persistence.untrusted import translate_load_errors
from pellucid.transformer.backbone import (
    CONFIG,
    Backbone,
    find_adapter,
    merge_adapter,
    open_backbone,
    open_tokenizer,
    prepare,
)
from pellucid.transformer.embedder import finite
from pellucid.transformer.tokenwords import Rank, tokens_of_rows

_QUERY = "<instruct>{instruction}\n<query>{text}"
SETTINGS = LexiconSettings(instructed_template=_QUERY, shift=True, end_token=True, takes_instruction=True)
"""How the authors read texts: queries behind their instruction, documents alone (their README and eval/model.py)."""

_INPUTS = "embedding/input_emb.pth"
_HEADS = ("lm_head.pth", "embedding/lm_head.pth", "lm_head.npy")
_HEAD_NAME = "lm_head.weight"
_BLOCK = 2048  # rows compared with all centroids at once


def open_checkpoint(
    path_or_id: str | Path, *, backbone: Backbone | str | Path | None = None, allow_outside: bool = False
) -> LexiconEmbedder:
    """Open a folder or hub id in one of the authors' two forms.

    Args:
        path_or_id: where it is.
        backbone: the model it was trained from, or its name, from which clusters are named; the trained form names it
            itself.
        allow_outside: open the model that the trained form names also where it is not in the folder; see
            `pellucid.load`.

    Raises:
        ModelFolderError: nothing is there, it is in neither form, or its files are broken.
    """
    folder = locate(path_or_id)
    with allow_external(allow_outside):
        try:
            return _opened(folder, path_or_id, backbone)
        except InputError as error:
            raise ModelFolderError(f"{path_or_id}: {error}") from error


def _opened(folder: Path, source: str | Path, backbone: Backbone | str | Path | None) -> LexiconEmbedder:
    if (adapter := _adapter_folder(folder)) is not None:
        opened, rows = _open_trained(folder, source, adapter, backbone)
        centroids = _centroids(folder, source, opened.dimension, len(rows))
        return LexiconEmbedder(opened, name_clusters(centroids, rows, opened.tokenizer), SETTINGS)
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if not isinstance(config, dict) or config.get("model_type") != "mistral":
        raise ModelFolderError(f"{folder} is no checkpoint of LENS: it has neither an adapter nor a Mistral's config")
    found = str(config.get("dtype", config.get("torch_dtype", "float32"))).removeprefix("torch.")
    dtype = found if found in ("float32", "bfloat16", "float16") else "float32"
    opened = open_backbone(folder, head="input", dtype=dtype)
    centroids = _centroids(folder, source, opened.dimension, len(opened.head))
    return LexiconEmbedder(opened, _named(centroids, backbone), SETTINGS)


def _named(centroids: npt.NDArray[np.float32], origin: Backbone | str | Path | None) -> Clusters:
    """Return the clusters, named by the tokens of the model they were made from where it is given."""
    if origin is None:
        warnings.warn(
            "the checkpoint holds the centroids of its clusters and not the tokens they were made of, so that clusters "
            "are called by numbers; give the model it was trained from: backbone='mistralai/Mistral-7B-v0.1'",
            stacklevel=4,
        )
        return Clusters.nameless(centroids)
    opened = origin if isinstance(origin, Backbone) else open_backbone(origin, attention="causal", head="lm")
    return name_clusters(centroids, opened.head, opened.tokenizer)


def name_clusters(centroids: Any, rows: Any, tokenizer: Any) -> Clusters:
    """Return named clusters for published centroids: each token goes to the centroid nearest to its row.

    Args:
        centroids: [k, d].
        rows: the head the centroids were made from, [vocabulary, d].
        tokenizer: as for `cluster_vocabulary`.

    Raises:
        InputError: centroids and rows are not of one width, or tokenizer and head do not belong together.
    """
    centroids, rows = head_matrix(centroids), head_matrix(rows)
    if centroids.shape[1] != rows.shape[1]:
        raise InputError(
            f"centroids of {centroids.shape[1]} dimensions and rows of {rows.shape[1]} are not of the same model"
        )
    _, tokens = tokens_of_rows(len(rows), tokenizer)
    assignment = np.full(len(rows), -1, np.int64)
    kept = np.array([number for number, token in enumerate(tokens) if token.rank < Rank.NONE], np.int64)
    squares = (centroids**2).sum(axis=1)
    for start in range(0, len(kept), _BLOCK):
        some = kept[start : start + _BLOCK]
        assignment[some] = (squares - 2 * rows[some] @ centroids.T).argmin(axis=1)
    return named_clusters(assignment, centroids, rows, tokens)


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
    origin = backbone or (resolve_reference(folder, base) if isinstance(base, str) else None)
    if not isinstance(origin, (str, Path)):
        raise ModelFolderError(f"{folder} is an adapter; give the name or folder of the model it was trained from")
    base = open_backbone(origin, attention="causal", head="lm", device="cpu")
    rows = base.head.float().numpy().copy()
    with translate_load_errors(str(folder)):
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
