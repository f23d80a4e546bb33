"""Low-rank adapters (LoRA) of peft: merged into the weights, and kept aside so that a model can be saved small."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pellucid.errors import InputError, ModelFolderError, require
from pellucid.pretrained import locate
from pellucid.store import read_json, write_json
from pellucid.untrusted import tame, tensor_sizes

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_OTHERS = ("megatron_config", "layer_replication", "loftq_config", "eva_config", "corda_config", "arrow_config")

Adapter = tuple[dict[str, Any], dict[str, Any]]
"""What an adapter's two files hold: its configuration, and its tensors by name."""


def find_adapter(path_or_id: str | Path) -> Path:
    """Return the folder of an adapter, given by that folder or a hub id.

    Raises:
        ModelFolderError: there is none.
    """
    folder = locate(path_or_id)
    if not (folder / CONFIG).is_file():
        raise ModelFolderError(f"{folder} holds no adapter: there is no {CONFIG} in it")
    return folder


def read_adapter(folder: Path) -> Adapter:
    """Return what the two files of the adapter in `folder` hold, numbers as float32.

    Raises:
        ModelFolderError: a file is missing or broken.
    """
    from safetensors.torch import load_file

    config = read_json(folder / CONFIG)
    if not (folder / WEIGHTS).is_file():
        raise ModelFolderError(f"{folder} has no {WEIGHTS}; only adapters in that form are read")
    tensor_sizes(folder)  # refuses a broken file
    tensors = {name: _cast(tensor, "float32") for name, tensor in load_file(str(folder / WEIGHTS)).items()}
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise ModelFolderError(f"{folder / WEIGHTS}: {broken[0]} holds NaN or infinity; download the adapter again")
    longest = max((side for tensor in tensors.values() for side in tensor.shape), default=0)
    _check_config(config, longest, folder / CONFIG)
    return config, tensors


def _check_config(config: Any, longest: int, path: Path) -> None:
    """Refuse what is no low-rank adapter, or would take memory or time that its tensors, of `longest`, do not need."""
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ModelFolderError(f"{path} does not describe a low-rank adapter (LORA)")
    others = [key for key in _OTHERS if config.get(key)]
    if others:
        raise ModelFolderError(f"{path}: {others[0]} is set; only plain low-rank adapters are opened")
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    if not isinstance(ranks, dict) or not isinstance(alphas, dict):
        raise ModelFolderError(f"{path}: rank_pattern and alpha_pattern must be objects")
    for rank in (config.get("r"), *ranks.values()):
        if type(rank) is not int or not 1 <= rank <= longest:
            raise ModelFolderError(f"{path}: the rank is {rank!r:.40}; the tensors' longest side is {longest}")
    patterns = [config.get("target_modules"), config.get("exclude_modules"), config.get("layers_pattern")]
    if not all(tame(one) for one in (*patterns, *ranks, *alphas) if isinstance(one, str)):
        raise ModelFolderError(f"{path} has a regular expression that may take endless time")


def merge_adapter(model: Any, folder: Path) -> tuple[Any, Adapter]:
    """Return `model` with the adapter in `folder` added to its weights, and what the adapter's files hold.

    Raises:
        ModelFolderError: a file is missing or broken, or the adapter changes no layer of this model.
        InputError: the adapter fits another model.
        MissingExtraError: peft is not installed.
    """
    require("peft")
    from peft import PeftModel

    config, tensors = read_adapter(folder)
    with unchanged_names():
        try:
            adapted = PeftModel.from_pretrained(model, str(folder), local_files_only=True)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"the adapter in {folder} does not fit {type(model).__name__}: {error}") from error
        _check_all_used(adapted, tensors, folder)
        return adapted.merge_and_unload(), (config, tensors)


@contextmanager
def unchanged_names() -> Iterator[None]:
    """Keep quiet about names of transformers that will change and that peft uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _cast(tensor: Any, dtype: str) -> Any:
    """Return a tensor of floats in another type, any other as it is."""
    import torch

    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def _check_all_used(adapted: Any, tensors: Mapping[str, Any], folder: Path) -> None:
    """Refuse an adapter whose tensors did not reach the model; peft only warns, and the model would be the bare one."""
    from peft import get_peft_model_state_dict

    loaded = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    tensors = {name: tensor for name, tensor in tensors.items() if "lora_" in name}
    lost = [name for name, tensor in tensors.items() if name not in loaded or loaded[name].shape != tensor.shape]
    different = [name for name in tensors if name not in lost and not _same(loaded[name], tensors[name])]
    if lost or different:
        name = (lost + different)[0]
        raise ModelFolderError(
            f"{folder}: {len(lost) + len(different)} of {len(tensors)} tensors of the adapter do not reach the model "
            f"({name}); it was made for another architecture, or another class of the same"
        )


def _same(found: Any, expected: Any) -> bool:
    """Whether two tensors are equal, as far as half precision tells."""
    found, expected = found.float().cpu(), expected.float()
    return bool((found - expected).norm() <= 0.01 * expected.norm())


def write_adapter(folder: Path, adapter: Adapter, dtype: str = "float32") -> None:
    """Write the adapter's two files into the new folder `folder`, as peft does.

    Args:
        folder: where.
        adapter: what the files hold.
        dtype: of the tensors on disk, "float32" or "float16"; `merge_adapter` gives them back as float32.

    Raises:
        InputError: a number is too large for float16.
    """
    from safetensors.torch import save

    folder.mkdir()
    write_json(folder / CONFIG, adapter[0])
    tensors = {name: _cast(tensor, dtype).contiguous() for name, tensor in adapter[1].items()}
    large = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if large:
        raise InputError(f"the adapter's tensor {large[0]} holds numbers that {dtype} cannot; save it as float32")
    (folder / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))  # save_file lets nobody else read it
