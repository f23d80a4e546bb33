"""The eight embedders of "A Text is Worth Several Tokens" (Table 1).

What the paper leaves open follows its authors' code and the embedders' own: the head (the original language model's
where the embedder has none), templates with their spaces, and LLM2Vec's pooling, which the paper calls a weighted mean
while both codes take the mean. SGPT and the PromptEOL adapters were published as pickles, which are not read: convert
one to safetensors and give the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pellucid.errors import InputError
from pellucid.keytokens.embedder import KeyTokenEmbedder
from pellucid.keytokens.states import KeyTokenSettings
from pellucid.persistence.folder import locate
from pellucid.persistence.store import read_json
from pellucid.persistence.untrusted import translate_load_errors
from pellucid.transformer.backbone import merge_adapter, open_backbone

PRESETS: dict[str, dict[str, Any]] = read_json(Path(__file__).with_suffix(".json"))
"""The paper's embedders by name.

Each has its `backbone`, the hub id of the transformer, and `settings`, and may have the hub ids of the model that its
`head` is from and of `adapters`, merged in this order; a `head_kind`, "input" where it was published without a head;
and its `attention`, causal where nothing is said.
"""


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
    rows = preset.get("head") if head is None else head
    if isinstance(rows, (str, Path)):  # read first, and the rest of that model let go
        rows = open_backbone(rows, attention="causal", head="lm", dtype=dtype, device="cpu").head.float().numpy()
    merged: Sequence[str | Path] = preset.get("adapters", ()) if adapters is None else adapters
    opened = open_backbone(
        preset["backbone"] if backbone is None else backbone,
        attention=preset.get("attention", "causal"),
        head=preset.get("head_kind", "lm"),
        adapter=merged[0] if merged else None,
        dtype=dtype,
        device=device,
    )
    for adapter in merged[1:]:
        with translate_load_errors(str(adapter)):
            model, _ = merge_adapter(opened.model, locate(adapter))
        opened = replace(opened, model=model, adapter=None)  # a name and one adapter no longer describe it
    settings = KeyTokenSettings(**preset["settings"], instruction=instruction)
    if settings.max_length:
        settings = replace(settings, max_length=min(settings.max_length, opened.max_length))
    return KeyTokenEmbedder(opened, settings, head=rows)
