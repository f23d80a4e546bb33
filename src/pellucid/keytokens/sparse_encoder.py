"""A key-token model in stock modules: plain sentence-transformers opens the folder as a SparseEncoder, too.

The modules are Transformer, Pooling, Dense with ReLU. The logits are one linear layer over the pooled states, whose
weight is the head and whose bias includes the adjustment, E (h + offset) = E h + E offset. What stock modules cannot do
(a template, a head with several layers, pooling over only the text's tokens) is refused with the reason.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.dimensions import Mixing
from pellucid.core.embedder import Vectors
from pellucid.errors import InputError
from pellucid.keytokens.head import TokenHead
from pellucid.keytokens.states import KeyTokenSettings, has_layers
from pellucid.persistence.store import write_json, write_tensors
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.embedder import BACKBONE

_POOLING, _NORMALIZE, _DENSE = "1_Pooling", "2_Normalize", "key_tokens"
_MODES = {"mean": "mean", "weighted_mean": "weightedmean", "last": "lasttoken"}
_MODULES = "sentence_transformers.models"
_RELU = "torch.nn.modules.activation.ReLU"


def check_expressible(
    backbone: Backbone, settings: KeyTokenSettings, mixing: Mixing | None, backbone_name: str | None
) -> None:
    """Check that stock modules can express a model; the message gives every reason why not."""
    tokenizer = backbone.tokenizer
    reasons = {
        "the backbone is kept by name; a SparseEncoder folder holds it": backbone_name is not None,
        "the head has layers of its own before its rows": has_layers(backbone),
        "signs='signed' keeps negative logits, and a SparseEncoder does not": settings.signs != "positive",
        f"pooling is {settings.pooling!r}, with a template": settings.pooling not in _MODES,
        "the text stands in a template or behind an instruction": settings.template != "{text}"
        or bool(settings.query_template or settings.instruction),
        "a start or end token is added that the tokenizer does not add": settings.start_token or settings.end_token,
        "special tokens are not averaged, but the stock module averages them (special_tokens=True does as well)": (
            not settings.special_tokens and not settings.takes_last and bool(tokenizer.num_special_tokens_to_add())
        ),
        "its dimensions were edited while top_k counts tokens before the edits": (
            mixing is not None and settings.top_k is not None
        ),
        "the tokenizer has no token to pad with": not any(_fillers(tokenizer)),
        "its dimensions were merged": mixing is not None and (np.bincount(mixing.columns) > 1).any(),
        "a decoder that reads in both directions may be opened as a causal one": (
            backbone.predicts_next and backbone.attention != "causal"
        ),
    }
    obstacles = [reason for reason, holds in reasons.items() if holds]
    if obstacles:
        raise InputError(f"stock modules of sentence-transformers cannot express this model: {'; '.join(obstacles)}")


def write_modules(
    folder: Path, tokenizer: Any, settings: KeyTokenSettings, weight: Vectors, bias: Vectors | None
) -> None:
    """Write what plain sentence-transformers needs beside the copy of the backbone; weight and bias make the logits."""
    names = [(BACKBONE, "Transformer"), (_POOLING, "Pooling")]
    names += [(_NORMALIZE, "Normalize")] if settings.normalize else []
    names.append((_DENSE, "Dense"))
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"{_MODULES}.{kind}"} for n, (path, kind) in enumerate(names)
    ]
    write_json(folder / "modules.json", modules)
    sparse = {"model_type": "SparseEncoder", "similarity_fn_name": "cosine", "max_active_dims": settings.top_k}
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": None, **sparse})
    length = {"max_seq_length": settings.max_length, "do_lower_case": False}
    write_json(folder / BACKBONE / "sentence_bert_config.json", length)
    padded = copy.deepcopy(tokenizer)
    padded.padding_side = "right"
    if padded.pad_token is None:
        padded.pad_token = next(token for token in _fillers(padded) if token is not None)
    padded.save_pretrained(folder / BACKBONE)
    for name, _ in names[1:]:
        (folder / name).mkdir()
    width = weight.shape[1]
    pooling = {"embedding_dimension": width, "pooling_mode": _MODES[settings.pooling], "include_prompt": True}
    write_json(folder / _POOLING / "config.json", pooling)
    dense = {"in_features": width, "out_features": len(weight), "bias": bias is not None, "activation_function": _RELU}
    write_json(folder / _DENSE / "config.json", dense)
    tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    write_tensors(folder / _DENSE / "model.safetensors", tensors)


def _fillers(tokenizer: Any) -> list[str | None]:
    """Return what may fill up shorter texts; it is masked."""
    return [tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token, tokenizer.unk_token]


def linear_layer(head: TokenHead, offset: Vectors | None, mixing: Mixing | None) -> tuple[Vectors, Vectors | None]:
    """Return the weight [dimensions, d] and bias of a head after an adjustment's offset and a mixing of its tokens."""
    weight = np.zeros((len(head), head.dimension), np.float32)  # 0 for tokens that are never decoded to
    weight[head.shown] = head.rows()[head.shown]
    bias = None
    if head.bias is not None or offset is not None:
        head_bias = np.zeros(len(head), np.float32) if head.bias is None else head.bias
        bias = np.zeros(len(head), np.float32)
        bias[head.shown] = head_bias[head.shown] + (0 if offset is None else weight[head.shown] @ offset)
    if mixing is not None:
        columns = mixing.matrix.T
        weight = np.asarray(columns @ weight, np.float32)
        bias = None if bias is None else np.asarray(columns @ bias, np.float32)
    return np.ascontiguousarray(weight), bias
