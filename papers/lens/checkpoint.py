"""The LENS authors' published checkpoints (LENS-d4000, LENS-d8000), and their scores with task instructions.

A checkpoint is a Mistral with three added tokens, whose head is the centroids: `lm_head.weight` among the weights, with
another number of rows than the vocabulary, or beside them in `lm_head.pth`. A `.pth` file is a pickle, which could run
code. torch opens it with `weights_only`, which reads tensors, linear layers and embeddings and refuses anything else.

`instructions.json` has the instruction of each of the 56 tasks of MTEB(eng, v1) and of AIR-Bench (the paper's appendix
A.3), and of each type for other tasks.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.local_tasks import find_tasks
from pellucid.errors import InputError, ModelFolderError
from pellucid.evaluation.evaluating import Results, TaskScore, choose_local, evaluate_tasks
from pellucid.lexicon import LexiconSettings
from pellucid.lexicon.clusters import Clusters, head_matrix, named_clusters
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.persistence.folder import locate
from pellucid.persistence.store import read_json
from pellucid.transformer.backbone import Backbone, open_backbone
from pellucid.transformer.embedder import finite
from pellucid.transformer.tokenwords import Rank, tokens_of_rows

_QUERY = "<instruct>{instruction}\n<query>{text}"
SETTINGS = LexiconSettings(instructed_template=_QUERY, shift=True, end_token=True, takes_instruction=True)
"""How the authors read texts: queries behind their instruction, documents alone (their README and eval/model.py)."""

INSTRUCTIONS: dict[str, dict[str, str]] = read_json(Path(__file__).with_name("instructions.json"))
"""Under "tasks", "types" and "aliases": of each task, of each type of task, and other names of tasks."""

_HEAD_FILE = "lm_head.pth"
_HEAD_NAME = "lm_head.weight"
CHUNK_ROWS = 2048  # compared with all centroids at once


def open_checkpoint(path_or_id: str | Path, *, backbone: Backbone | str | Path | None = None) -> LexiconEmbedder:
    """Open a folder or hub id of a published checkpoint.

    Args:
        path_or_id: where it is.
        backbone: the model it was trained from, or its name, from which clusters are named.

    Raises:
        ModelFolderError: nothing is there, it is no such checkpoint, or its files are broken.
    """
    folder = locate(path_or_id)
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if not isinstance(config, dict) or config.get("model_type") != "mistral":
        raise ModelFolderError(f"{folder} is no checkpoint of LENS: it has no Mistral's config")
    saved_dtype = str(config.get("dtype", config.get("torch_dtype", "float32"))).removeprefix("torch.")
    try:
        dtype = saved_dtype if saved_dtype in ("float32", "bfloat16", "float16") else "float32"
        opened = open_backbone(folder, head="input", dtype=dtype)
        centroids = _centroids(folder, path_or_id, opened.dimension, len(opened.head))
        return LexiconEmbedder(opened, _named(centroids, backbone), SETTINGS)
    except InputError as error:
        raise ModelFolderError(f"{path_or_id}: {error}") from error


def _named(centroids: npt.NDArray[np.float32], origin: Backbone | str | Path | None) -> Clusters:
    """Return the clusters, named by the tokens of the model they were made from where it is given."""
    if origin is None:
        warnings.warn(
            "the checkpoint holds the centroids of its clusters and not the tokens they were made of, so that clusters "
            "are called by numbers; give the model it was trained from: backbone='mistralai/Mistral-7B-v0.1'",
            stacklevel=3,
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
    clustered = np.array([row for row, token in enumerate(tokens) if token.rank < Rank.NONE], np.int64)
    squares = (centroids**2).sum(axis=1)
    for start in range(0, len(clustered), CHUNK_ROWS):
        chunk = clustered[start : start + CHUNK_ROWS]
        assignment[chunk] = (squares - 2 * rows[chunk] @ centroids.T).argmin(axis=1)
    return named_clusters(assignment, centroids, rows, tokens)


def _centroids(folder: Path, source: str | Path, width: int, vocabulary: int) -> npt.NDArray[np.float32]:
    """Return the centroids [k, width], wherever the checkpoint has them."""
    for file in sorted(folder.glob("*.safetensors")):
        head = _head_of(file)
        if head is not None and len(head) != vocabulary and head.shape[1] == width:
            return head
    path = _fetched(folder, source)
    if path is None:
        raise ModelFolderError(
            f"{folder} has no centroids: no {_HEAD_NAME} with another number of rows than the vocabulary "
            f"({vocabulary}) in its safetensors files, and no {_HEAD_FILE}"
        )
    return _read_head(path, width)


def _head_of(file: Path) -> npt.NDArray[np.float32] | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as tensors:
            if _HEAD_NAME in tensors.keys():
                return finite(tensors.get_tensor(_HEAD_NAME).float().numpy(), (-1, -1), f"{file}: {_HEAD_NAME}")
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(f"{file} is broken: {error}") from error
    return None


def _fetched(folder: Path, source: str | Path) -> Path | None:
    """Return the folder's own head; of a hub model it is downloaded now, as such files usually are not."""
    if (folder / _HEAD_FILE).is_file():
        return folder / _HEAD_FILE
    if Path(source).exists():
        return None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(str(source), _HEAD_FILE))
    except (HfHubHTTPError, LocalEntryNotFoundError):
        return None


def _read_head(path: Path, width: int) -> npt.NDArray[np.float32]:
    """Return the array [rows, width] of a tensor or layer that `torch.save` wrote."""
    import torch

    try:
        with torch.serialization.safe_globals([torch.nn.Linear, torch.nn.Embedding]):
            saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        weight = getattr(saved, "weight", saved)
        if not isinstance(weight, torch.Tensor) or weight.numel() > path.stat().st_size:  # a view repeats numbers
            raise ValueError(f"it holds {type(saved).__name__}, where one array was expected")
        array = np.asarray(weight.detach().float().numpy())
    except Exception as error:  # torch raises whatever a broken file leads it to
        raise ModelFolderError(f"{path} is no file that torch.save wrote: {error!s:.300}") from error
    return finite(array, (-1, width), str(path))


# --- Task instructions ------------------------------------------------------------------------------------------------


def instruction_for(task: str, kind: str) -> str:
    """Return the instruction of a task; "" if there is none.

    Args:
        task: its name in MTEB, or the name of a folder ("scifact", "trec-covid", "imdb"): case and marks ignored.
        kind: MTEB's name of its type.
    """
    by_name = {_plain(name): instruction for name, instruction in INSTRUCTIONS["tasks"].items()}
    aliases = {_plain(name): _plain(task_name) for name, task_name in INSTRUCTIONS["aliases"].items()}
    name = aliases.get(_plain(task), _plain(task))
    family = "airbench" if name.startswith("airbench") else name
    names = [key for key in (name, name + _plain(kind), family) if key in by_name]
    return by_name[names[0]] if names else INSTRUCTIONS["types"].get(kind, "")


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def evaluate_instructed(
    model: Any, data: str | Path, *, tasks: Sequence[str] | None = None, cache_dir: str | Path | None = None
) -> Results:
    """Score a model that was trained with instructions, on each task with the instruction for it.

    Args:
        model: a lexicon model, of which only queries and texts without a role are told.
        data: a folder of evaluation sets.
        tasks: names of tasks, of folders or of types; None runs all.
        cache_dir: where scores are kept; see `pellucid.evaluate`.

    Raises:
        InputError: the model was trained without: to it an instruction is words that have nothing to do with the text.
    """
    if not getattr(getattr(model, "settings", None), "takes_instruction", False):
        raise InputError(f"{type(model).__name__} was trained without instructions; score it with pellucid.evaluate")
    rows: list[TaskScore] = []
    for task in choose_local(find_tasks(data), tasks):
        instructed = model.with_instruction(instruction_for(task.name, task.kind))
        rows += evaluate_tasks(instructed, [task], cache_dir=cache_dir, show_progress_bar=False).rows
    return Results(type(model).__name__, tuple(rows))
