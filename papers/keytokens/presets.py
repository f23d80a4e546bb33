"""The eight embedders of "A Text is Worth Several Tokens" (Table 1).

What the paper leaves open follows its authors' code and the embedders' own: the head (the original language model's
where the embedder has none), templates with their spaces, and LLM2Vec's pooling, which the paper calls a weighted mean
while both codes take the mean. SGPT and the PromptEOL adapters were published as pickles, which are not read: convert
one to safetensors and give the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from papers.keytokens.heads import read_head
from pellucid.errors import InputError
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.persistence.folder import locate
from pellucid.persistence.store import read_json
from pellucid.persistence.untrusted import translate_load_errors
from pellucid.transformer.backbone import Attention, Backbone, HeadKind, merge_adapter, open_backbone


@dataclass(frozen=True)
class KeyTokenPreset:
    """One embedder.

    Attributes:
        name: how it is asked for.
        backbone: hub id of the transformer.
        head: hub id of the model that the head is taken from; None where the backbone has it.
        head_kind: how the backbone is opened: "input" where it was published without a head.
        adapters: hub ids of low-rank adapters, merged in this order.
        attention: "causal" or "bidirectional".
        settings: pooling, template, similarity and the rest.
    """

    name: str
    backbone: str
    head: str | None = None
    head_kind: HeadKind = "lm"
    adapters: tuple[str, ...] = ()
    attention: Attention = "causal"
    settings: KeyTokenSettings = field(default_factory=KeyTokenSettings)


def _read_preset(name: str, values: dict[str, Any]) -> KeyTokenPreset:
    settings = KeyTokenSettings(**values.pop("settings"))
    return KeyTokenPreset(name, adapters=tuple(values.pop("adapters", ())), settings=settings, **values)


PRESETS = {name: _read_preset(name, values) for name, values in read_json(Path(__file__).with_suffix(".json")).items()}
"""The paper's embedders by name."""


def open_preset(
    name: str,
    *,
    backbone: str | Path | None = None,
    head: Any = None,
    adapters: Sequence[str | Path] | None = None,
    instruction: str = "",
    dtype: str = "float32",
    device: str | None = None,
) -> KeyTokenEmbedder:
    """Open one of the paper's embedders.

    Args:
        name: a key of `PRESETS`, such as "sgpt-nli".
        backbone: a folder or hub id instead of the preset's, such as a copy converted to safetensors, or a smaller
            model of the same make.
        head: the same for the head; also rows [V, d].
        adapters: the same for the adapters; () for none.
        instruction: the task, for GritLM and LLM2Vec.
        dtype: of the weights: "float32", "bfloat16" or "float16".
        device: such as "cpu"; None takes a GPU where there is one.

    Raises:
        InputError: there is no such preset, or what was given does not fit together.
        ModelFolderError: a model is not found, or holds no safetensors.
    """
    if name not in PRESETS:
        raise InputError(f"no preset is called {name!r:.60}; there are {', '.join(PRESETS)}")
    preset = PRESETS[name]
    first, *others = [*(preset.adapters if adapters is None else adapters), None]
    opened = open_backbone(
        preset.backbone if backbone is None else backbone,
        attention=preset.attention,
        head=preset.head_kind,
        adapter=first,
        dtype=dtype,
        device=device,
    )
    for adapter in others:
        opened = opened if adapter is None else _with_adapter(opened, adapter)
    settings = replace(preset.settings, instruction=instruction)
    length = settings.max_length
    settings = replace(settings, max_length=None if length is None else min(length, opened.max_length))
    rows = preset.head if head is None else head
    return KeyTokenEmbedder(opened, settings, head=read_head(rows) if isinstance(rows, (str, Path)) else rows)


def _with_adapter(backbone: Backbone, adapter: str | Path) -> Backbone:
    """Return a backbone with one more adapter merged; it is then no longer one that a name and one adapter describe."""
    with translate_load_errors(str(adapter)):
        model, _ = merge_adapter(backbone.model, locate(adapter))
    return replace(backbone, model=model, adapter=None)
