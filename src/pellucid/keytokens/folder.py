"""A key-token model on disk: how texts are read and decoded, the adjustment, and the transformer or its name.

    config.json            the family, and how the backbone is opened
    keytokens.json         the settings, and what the adjustment is
    keytokens.safetensors  a fingerprint; the adjustment's offset, a given head and a mixing where there are any
    dimensions.tsv         the tokens, for people: names and scales in it are honoured
    backbone/, adapter/    the transformer, see `transformer/folder.py`

With `sparse_encoder` plain sentence-transformers opens the folder as a SparseEncoder, too: Transformer, Pooling, Dense
with ReLU. The logits are one linear layer over the pooled states, whose weight is the head and whose bias includes the
adjustment, E (h + offset) = E h + E offset. What stock modules cannot do (a template, a head with several layers,
pooling over the text's tokens alone) is refused with the reason.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pellucid.dimensions import Dimensions, Edit, read_dimensions, scaling, write_dimensions
from pellucid.errors import InputError, ModelFolderError
from pellucid.keytokens.adjustments import Adjustment
from pellucid.keytokens.head import TokenHead
from pellucid.keytokens.states import KeyTokenSettings, has_layers
from pellucid.store import read_json, read_tensors, write_json, write_tensors
from pellucid.transformer.backbone import Backbone
from pellucid.transformer.folder import (
    BACKBONE,
    backbone_facts,
    check_fingerprint,
    finite,
    mixing_tensors,
    read_backbone,
    read_mixing,
    write_backbone,
)

_POOLING, _NORMALIZE, _DENSE = "1_Pooling", "2_Normalize", "key_tokens"
_MODES = {"mean": "mean", "weighted_mean": "weightedmean", "last": "lasttoken"}
_MODULES = "sentence_transformers.models"
_RELU = "torch.nn.modules.activation.ReLU"


class Model(NamedTuple):
    """What of a `KeyTokenEmbedder` is written; see its attributes."""

    backbone: Backbone
    settings: KeyTokenSettings
    head: TokenHead
    given_head: bool
    adjustment: Adjustment
    mixing: Any
    dimensions: Dimensions


def check_expressible(model: Model, backbone_name: str | None) -> None:
    """Refuse a model that stock modules cannot express."""
    settings, backbone = model.settings, model.backbone
    reasons = {
        "the backbone is kept by name; a SparseEncoder folder holds it": backbone_name is not None,
        "the head has layers of its own before its rows": has_layers(backbone),
        "signs='signed' keeps negative logits, and a SparseEncoder none": settings.signs != "positive",
        f"pooling is {settings.pooling!r}, with a template": settings.pooling not in _MODES,
        "the text stands in a template or behind an instruction": settings.template != "{text}"
        or bool(settings.query_template or settings.instruction),
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
            backbone.predicts_next and backbone.attention != "causal"
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


def write_modules(folder: Path, model: Model) -> None:
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


def _layer(model: Model) -> tuple[Any, Any]:
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


_TENSORS, _FACTS, _TABLE = "keytokens.safetensors", "keytokens.json", "dimensions.tsv"


class Parts(NamedTuple):
    """What a folder holds."""

    folder: Path
    backbone: Backbone
    settings: KeyTokenSettings
    head: npt.NDArray[np.float32] | None
    adjustment: Adjustment
    tensors: dict[str, npt.NDArray[Any]]


def write_folder(
    folder: Path, model: Model, backbone_name: str | None, dtype: str, sparse_encoder: bool
) -> dict[str, Any]:
    """Write a model into `folder` and return what describes it; see `KeyTokenEmbedder.save_pretrained`."""
    if dtype not in ("float32", "float16"):
        raise InputError(f"a given head is saved as float32 or float16, not {dtype!r:.40}")
    if sparse_encoder:
        check_expressible(model, backbone_name)
    write_backbone(folder, model.backbone, backbone_name)
    if sparse_encoder:
        write_modules(folder, model)
    write_tensors(folder / _TENSORS, _tensors(model, dtype))
    adjustment = {key: value for key, value in asdict(model.adjustment).items() if key != "offset"}
    write_json(folder / _FACTS, {"settings": asdict(model.settings), "adjustment": adjustment})
    write_dimensions(folder / _TABLE, model.dimensions)
    return {"dimensions": len(model.dimensions), **backbone_facts(model.backbone, backbone_name)}


def _tensors(model: Model, dtype: str) -> dict[str, npt.NDArray[Any]]:
    tensors: dict[str, npt.NDArray[Any]] = {"fingerprint": model.backbone.fingerprint()}
    if model.adjustment.offset is not None:
        tensors["offset"] = model.adjustment.offset
    if model.given_head:
        tensors["head"] = model.head.rows().astype(dtype)
    return tensors | mixing_tensors(model.mixing)


def read_folder(folder: Path, facts: Mapping[str, Any], backbone: Backbone | str | Path | None) -> Parts:
    """Open what `write_folder` wrote; see `KeyTokenEmbedder.from_pretrained`."""
    found = {name: np.array(tensor) for name, tensor in read_tensors(folder / _TENSORS)[0].items()}
    if "fingerprint" not in found:
        raise ModelFolderError(f"{folder / _TENSORS} holds no fingerprint; it is of another model or broken")
    found["fingerprint"] = finite(found["fingerprint"], (-1,), f"{folder / _TENSORS}: 'fingerprint'")
    if "offset" in found:
        found["offset"] = finite(found["offset"], (-1,), f"{folder / _TENSORS}: 'offset'")
    settings, adjustment = _read_facts(folder / _FACTS, found.get("offset"))
    opened = backbone if isinstance(backbone, Backbone) else read_backbone(folder, facts, backbone)
    check_fingerprint(opened, found["fingerprint"], folder)
    return Parts(folder, opened, settings, _read_head(found, folder), adjustment, found)


def _read_head(tensors: dict[str, npt.NDArray[Any]], folder: Path) -> npt.NDArray[np.float32] | None:
    head = tensors.get("head")
    return None if head is None else finite(head, (-1, -1), f"{folder / _TENSORS}: 'head'")


def _read_facts(path: Path, offset: npt.NDArray[Any] | None) -> tuple[KeyTokenSettings, Adjustment]:
    facts = read_json(path)
    try:
        return KeyTokenSettings(**facts["settings"]), Adjustment(offset=offset, **facts["adjustment"])
    except (KeyError, TypeError, InputError) as error:
        raise ModelFolderError(f"{path} does not describe a key-token model: {error}") from error


def read_edit(parts: Parts, facts: Mapping[str, Any], tokens: Dimensions) -> Edit | None:
    """Return the edits of a model's dimensions: those it was saved with, and what was changed in `dimensions.tsv`.

    Args:
        parts: what its folder holds.
        facts: what its `config.json` says.
        tokens: the dimensions of its head as it is.
    """
    from scipy import sparse

    folder = parts.folder
    count = facts.get("dimensions")
    if type(count) is not int or not 1 <= count <= len(tokens):
        raise ModelFolderError(
            f"{folder / 'config.json'} must say how many dimensions the model has, 1 to {len(tokens)}, "
            f"not {count!r:.40}"
        )
    mixing = read_mixing(parts.tensors, len(tokens), count, folder / _TENSORS)
    saved = [token.about for token in tokens] if mixing is None else None
    dimensions, scales = read_dimensions(folder / _TABLE, count, saved)
    scaled = set(scales) != {1.0}
    if mixing is None and not scaled and list(dimensions) == list(tokens):
        return None
    mixing = sparse.eye_array(len(tokens), format="csr") if mixing is None else mixing
    if scaled:
        mixing = mixing @ scaling(dimensions, dict(enumerate(scales))).mixing
    return Edit(dimensions, mixing)
