"""A key-token model as modules of plain sentence-transformers: Transformer, Pooling, Dense with ReLU.

The logits of the tokens are one linear layer over the pooled states, whose weight is the head and whose bias takes up
the adjustment, E (h + offset) = E h + E offset, so that a stock SparseEncoder gives the same rows. What it cannot do
(a template, a head with layers of its own, pooling over the text's tokens alone) is refused with the reason.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import InputError
from pellucid.keytokens.states import has_layers
from pellucid.store import write_json, write_tensors
from pellucid.transformer.folder import BACKBONE

if TYPE_CHECKING:
    from pellucid.keytokens.embedder import KeyTokenEmbedder

_POOLING, _NORMALIZE, _DENSE = "1_Pooling", "2_Normalize", "key_tokens"
_MODES = {"mean": "mean", "weighted_mean": "weightedmean", "last": "lasttoken"}
_MODULES = "sentence_transformers.models"
_RELU = "torch.nn.modules.activation.ReLU"


def check_expressible(model: KeyTokenEmbedder, backbone_name: str | None) -> None:
    """Refuse a model that stock modules cannot express.

    Raises:
        InputError: it is one; the message names every reason.
    """
    settings, backbone = model.settings, model.backbone
    reasons = {
        "the backbone is kept by name; a SparseEncoder folder holds it": backbone_name is not None,
        "the head has layers of its own before its rows": has_layers(backbone),
        "signs='signed' keeps negative logits, and a SparseEncoder none": settings.signs != "positive",
        f"pooling is {settings.pooling!r}, with a template": settings.pooling not in _MODES,
        "the text stands in a template or behind an instruction": settings.template != "{text}"
        or bool(settings.instruction),
        "a start or end token is added that the tokenizer does not add": settings.start_token or settings.end_token,
        "special tokens are not averaged, but the stock module averages them (special_tokens=True does as well)": (
            not settings.special_tokens and not settings.takes_last and _adds_tokens(backbone.tokenizer)
        ),
        "its dimensions were edited while top_k counts tokens before the edits": (
            model.mixing is not None and settings.top_k is not None
        ),
        "the tokenizer has no token to pad with": not any(_fillers(backbone.tokenizer)),
        "its dimensions were merged": model.mixing is not None and not _one_to_one(model.mixing),
        "a decoder that reads in both directions may be opened as a causal one": (
            backbone.predicts_next and backbone.attention == "bidirectional"
        ),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise InputError(f"stock modules of sentence-transformers cannot express this model: {'; '.join(found)}")


def _adds_tokens(tokenizer: Any) -> bool:
    return bool(tokenizer.num_special_tokens_to_add())


def _one_to_one(mixing: Any) -> bool:
    """Whether each dimension is one token, scaled or not."""
    return bool((np.diff(mixing.tocsc().indptr) <= 1).all())


def write_modules(folder: Path, model: KeyTokenEmbedder) -> None:
    """Write what plain sentence-transformers needs beside the copy of the backbone in `folder`."""
    settings = model.settings
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
    _write_tokenizer(folder / BACKBONE, model.backbone.tokenizer)
    for name, _ in names[1:]:
        (folder / name).mkdir()
    width = model.head.dimension
    pooling = {"embedding_dimension": width, "pooling_mode": _MODES[settings.pooling], "include_prompt": True}
    write_json(folder / _POOLING / "config.json", pooling)
    weight, bias = _layer(model)
    dense = {"in_features": width, "out_features": len(weight), "bias": bias is not None, "activation_function": _RELU}
    write_json(folder / _DENSE / "config.json", dense)
    tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    write_tensors(folder / _DENSE / "model.safetensors", tensors)


def _write_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Write the tokenizer as sentence-transformers needs it: padding on the right, and with a token to do so."""
    padded = copy.deepcopy(tokenizer)
    padded.padding_side = "right"
    if padded.pad_token is None:
        padded.pad_token = next(token for token in _fillers(padded) if token is not None)
    padded.save_pretrained(folder)


def _fillers(tokenizer: Any) -> list[str | None]:
    """Return what may fill up shorter texts; it is masked."""
    return [tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token, tokenizer.unk_token]


def _layer(model: KeyTokenEmbedder) -> tuple[Any, Any]:
    """Return weight [dimensions, d] and bias, zero for tokens that are never decoded to."""
    head, offset = model.head, model.adjustment.offset
    weight = np.zeros((len(head), head.dimension), np.float32)
    weight[head.shown] = head.rows()[head.shown]
    bias = None
    if head.bias is not None or offset is not None:
        own = np.zeros(len(head), np.float32) if head.bias is None else head.bias
        bias = np.zeros(len(head), np.float32)
        bias[head.shown] = own[head.shown] + (0 if offset is None else weight[head.shown] @ offset)
    if model.mixing is not None:
        weight = np.asarray(model.mixing.T @ weight, np.float32)
        bias = None if bias is None else np.asarray(model.mixing.T @ bias, np.float32)
    return np.ascontiguousarray(weight), bias
