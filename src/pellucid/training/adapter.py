"""A low-rank adapter put into a model's transformer for training, and the model that comes out of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import InputError, missing_extra
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.transformer.adapters import Adapter, merge_adapter, read_adapter, unchanged_names

if TYPE_CHECKING:
    from pellucid.training.contrastive import TrainingSettings

_PREFIX, _DOWN, _UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


@contextmanager
def adapted_model(model: LexiconEmbedder, settings: TrainingSettings) -> Iterator[Any]:
    """Put an adapter into all linear layers of the model's transformer, and take it out again.

    Raises:
        InputError: the adapter to go on from has another rank, scale or form.
        ModelFolderError: there is none.
        MissingExtraError: torch or peft is not installed.
    """
    try:
        import torch
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise missing_extra(error.name or "peft", "torch") from error
    transformer = model.backbone.model
    trainable = {name: weight.requires_grad for name, weight in transformer.named_parameters()}
    unused = any("pooler" in name.split(".") for name, _ in transformer.named_modules())
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        exclude_modules=r"(.*\.)?pooler\..*" if unused else None,  # no state comes from it
    )
    torch.manual_seed(settings.seed)
    with unchanged_names():
        adapted = get_peft_model(transformer, config)
    _checkpoint_states(transformer, settings.gradient_checkpointing)
    try:
        if settings.adapter is not None:
            _take_over(adapted, Path(settings.adapter), settings)
        yield adapted
    finally:
        _checkpoint_states(transformer, False)
        adapted.unload()
        transformer.eval()
        transformer.__dict__.pop("peft_config", None)
        for name, weight in transformer.named_parameters():
            weight.requires_grad_(trainable[name]).grad = None


def _take_over(adapted: Any, folder: Path, settings: TrainingSettings) -> None:
    """Set the weights of a new adapter to those in `folder`."""
    from peft import set_peft_model_state_dict

    config, tensors = read_adapter(folder)
    wanted, known = {"r": settings.rank, "lora_alpha": settings.alpha}, {n: config.get(n) for n in ("r", "lora_alpha")}
    if known != wanted or not _is_plain((config, tensors)):
        raise InputError(f"the adapter in {folder} has {known}; to go on from it, train with rank and alpha like these")
    loaded = set_peft_model_state_dict(adapted, tensors)
    missing = [name for name in loaded.missing_keys if ".lora_" in name]
    if loaded.unexpected_keys or missing:
        name = [*loaded.unexpected_keys, *missing][0]
        raise InputError(f"the adapter in {folder} is of another transformer: {name} is in one of them alone")


def _checkpoint_states(transformer: Any, wanted: bool) -> None:
    """Keep states for the backward pass, or compute them twice; transformers has a new name for this."""
    kind = "activation" if hasattr(transformer, "activation_checkpointing_enable") else "gradient"
    if wanted:
        enable = getattr(transformer, f"{kind}_checkpointing_enable")
        enable(**{f"{kind}_checkpointing_kwargs": {"use_reentrant": False}})
    else:
        getattr(transformer, f"{kind}_checkpointing_disable")()


def trained_model(model: LexiconEmbedder, folder: Path, head: str | None) -> LexiconEmbedder:
    """Return a copy of the model with what was trained, read back from where it was written.

    Args:
        model: as it was before.
        folder: of the adapter.
        head: the file of trained centroids in it; None keeps the model's.
    """
    from safetensors.torch import load_file

    merged, kept = merge_adapter(copy.deepcopy(model.backbone.model), folder)
    earlier = model.backbone.adapter
    adapter = kept if earlier is None else stacked(earlier, kept)
    backbone = replace(model.backbone, model=merged.eval(), adapter=adapter)
    clusters = model.clusters
    if head is not None:
        clusters = replace(clusters, centroids=load_file(str(folder / head))["head"].float().cpu().numpy())
    return LexiconEmbedder.from_parts(backbone, clusters, model.settings, bias=model.bias)


def stacked(first: Adapter, second: Adapter) -> Adapter | None:
    """Return one adapter that does what two do one after the other: s1 B1 A1 + s2 B2 A2 = [s1 B1, s2 B2] [A1; A2].

    None where one of them is no plain low-rank adapter; the model can then be saved whole and not by name.
    """
    import torch

    if not (_is_plain(first) and _is_plain(second)):
        return None
    parts, tensors = (first, second), {}
    ranks = [int(config["r"]) for config, _ in parts]
    layers = sorted({name.removesuffix(_DOWN) for _, known in parts for name in known if name.endswith(_DOWN)})
    for layer in layers:
        shaped = next(known for _, known in parts if layer + _DOWN in known)
        width, height = shaped[layer + _DOWN].shape[1], shaped[layer + _UP].shape[0]
        downs, ups = [], []
        for (config, known), rank in zip(parts, ranks, strict=True):
            root = math.sqrt(rank) if config.get("use_rslora") else rank
            down, up = known.get(layer + _DOWN), known.get(layer + _UP)
            downs.append(torch.zeros(rank, width) if down is None else down.float())
            ups.append(torch.zeros(height, rank) if up is None else up.float() * (config["lora_alpha"] / root))
        tensors[layer + _DOWN], tensors[layer + _UP] = torch.cat(downs), torch.cat(ups, dim=1).contiguous()
    changes: dict[str, Any] = {"r": sum(ranks), "lora_alpha": sum(ranks), "use_rslora": False, "exclude_modules": None}
    changes["target_modules"] = [layer.removeprefix(_PREFIX) for layer in layers]
    changes["base_model_name_or_path"] = first[0].get("base_model_name_or_path")
    return {**second[0], **changes}, tensors


def _is_plain(adapter: Adapter) -> bool:
    """Whether the adapter is low-rank factors of linear layers, all of one rank and scale, and nothing else."""
    config, tensors = adapter
    odd = ("rank_pattern", "alpha_pattern", "use_dora", "modules_to_save", "fan_in_fan_out", "trainable_token_indices")
    return (
        config.get("peft_type") == "LORA"
        and not any(config.get(name) for name in odd)
        and all(name.endswith((_DOWN, _UP)) and tensor.ndim == 2 for name, tensor in tensors.items())
    )
