"""The upper layers of a language model, trained alone: the states below them are computed once, for all models.

The lower layers are not trained, so that what they make of a text is the same in every step and for every model that
reads in the same direction there. On the CPU it is kept in files as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils.rnn import pad_sequence

from pellucid.transformer import Backbone, open_backbone
from pellucid.transformer.backbone import half_dtype


class Skipped(torch.nn.Module):
    """Stands where a lower layer was, so that those above keep their names."""

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the states as they are."""
        return hidden_states


class LowerStates:
    """The states behind the lower layers, by the text's token ids; they are kept in files."""

    def __init__(self, model: Path, layers: int, attention: str, folder: Path, device: str = "cpu") -> None:
        """Read what is kept.

        Args:
            model: the language model.
            layers: how many of its layers are below.
            attention: of these, "causal" or "bidirectional".
            folder: where the states are kept.
            device: where they are computed; those of a GPU are not written, because it is faster than reading them.
        """
        self._place, self._layers, self._attention, self._folder = model, layers, attention, folder
        self._device = device
        self._model: Any = None
        self._known: dict[bytes, torch.Tensor] = {}
        self._new: list[bytes] = []
        for path in sorted(folder.glob("*.safetensors")) if device == "cpu" else ():
            shard = load_file(str(path))
            lengths = shard["lengths"].tolist()
            ids, states = shard["ids"].split(lengths), shard["states"].split(lengths)
            self._known.update((_key(row), rows) for row, rows in zip(ids, states, strict=True))

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return states [B, L, d] of ids [B, L], padded on the right, 0 where the mask is 0."""
        lengths = mask.sum(dim=1).tolist()
        rows = [row[:length] for row, length in zip(ids.cpu(), lengths, strict=True)]
        keys = [_key(row) for row in rows]
        missing = [n for n, key in enumerate(keys) if key not in self._known]
        if missing:
            found = self._run(ids[missing], mask[missing])
            for n, states in zip(missing, found, strict=True):
                self._known[keys[n]] = states[: len(rows[n])].clone()
                self._new.append(keys[n])
        states = pad_sequence([self._known[key] for key in keys], batch_first=True)
        return torch.nn.functional.pad(states, (0, 0, 0, ids.shape[1] - states.shape[1]))

    def _run(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.autocast(ids.device.type, enabled=False):  # a training may have called
            if self._model is None:
                self._model = open_backbone(
                    self._place, attention=self._attention, dtype=half_dtype(), device=self._device
                ).model.base_model
                self._model.layers = self._model.layers[: self._layers]
                self._model.norm = torch.nn.Identity()
            return self._model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state

    def save(self) -> None:
        """Write what was computed since the last call."""
        if not self._new or self._device != "cpu":
            return
        keys = list(dict.fromkeys(self._new))
        ids = [torch.frombuffer(bytearray(key), dtype=torch.int64) for key in keys]
        shard = {
            "ids": torch.cat(ids),
            "lengths": torch.tensor([len(row) for row in ids]),
            "states": torch.cat([self._known[key] for key in keys]),
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{len(list(self._folder.glob('*.safetensors'))):03}.safetensors"
        save_file(shard, str(path.with_suffix(".tmp")))
        path.with_suffix(".tmp").replace(path)
        self._new = []


def _key(ids: torch.Tensor) -> bytes:
    return ids.to(torch.int64).numpy().tobytes()


@dataclass
class UpperLayers(Backbone):
    """A language model whose lower layers are not run; adapters of it fit the whole model.

    Attributes:
        lower: gives the states behind the lower layers.
    """

    lower: LowerStates | None = None

    def states(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the states that the head takes, [B, L, d], as `Backbone.states` does."""
        below = self.lower(input_ids, attention_mask)
        return self.model.base_model(
            inputs_embeds=below, attention_mask=attention_mask, use_cache=False
        ).last_hidden_state


def upper_layers(model: Path, attention: str, lower: LowerStates, skipped: int, device: str = "cpu") -> UpperLayers:
    """Return the layers of a language model above the first `skipped`, in bfloat16 where that is fast."""
    whole = open_backbone(model, attention=attention, dtype=half_dtype(), device=device)  # type: ignore[arg-type]
    layers = whole.model.base_model.layers
    for n in range(skipped):
        layers[n] = Skipped()
    whole.model.set_attn_implementation("eager")  # the gradient of the other is slow for short texts on CPUs
    return UpperLayers(**vars(whole), lower=lower)


def make_causal(model: Any, n_layers: int) -> None:
    """Let the first layers see only what comes before, whatever mask they are given; the others keep theirs."""
    for layer in model.base_model.layers[:n_layers]:
        layer.register_forward_pre_hook(_mask_later, with_kwargs=True)


def _mask_later(
    layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Hide later positions in the mask that a layer is given."""
    bound = signature(layer.forward).bind(*arguments, **named)
    hidden, mask = next(iter(bound.arguments.values())), bound.arguments.get("attention_mask")
    length = hidden.shape[1]
    later = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
    if mask is None:
        mask = hidden.new_zeros(1, 1, length, length)
    mask = mask & ~later if mask.dtype == torch.bool else mask.masked_fill(later, torch.finfo(mask.dtype).min)
    bound.arguments["attention_mask"] = mask
    return bound.args, bound.kwargs
