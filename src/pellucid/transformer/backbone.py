"""An opened transformer: hidden states, vocabulary head, low-rank adapters (LoRA) of peft.

Any causal language model or encoder of transformers can be used. Its properties are tested, not assumed: the direction
of attention by two forward passes that differ in one late token, with and without padding; that the head is the
model's by computing logits both ways. Adapters are merged into the weights and also kept, so that a model can be saved
as a name and an adapter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pellucid.errors import InputError, ModelFolderError, check_choice, require, warn
from pellucid.persistence.folder import check_adapter, local_folder, locate, resolve_name
from pellucid.persistence.store import read_json, write_json
from pellucid.persistence.untrusted import (
    check_finite,
    check_folder,
    check_size,
    check_token_ids,
    is_safe_regex,
    one_thread,
    tensor_sizes,
    translate_load_errors,
)
from pellucid.process import ignored_warnings
from pellucid.transformer.attention import (
    context_length,
    head_module,
    is_causal_lm,
    open_head,
    padding_id,
    probe_ids,
    set_attention,
    states,
)
from pellucid.transformer.reading import Encoding

if TYPE_CHECKING:
    import torch


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_UNSUPPORTED_OPTIONS = (
    "megatron_config",
    "layer_replication",
    "loftq_config",
    "eva_config",
    "corda_config",
    "arrow_config",
)

Adapter = tuple[dict[str, Any], dict[str, Any]]
"""What an adapter's two files hold: its configuration, and its tensors by name."""


def read_adapter(folder: Path) -> Adapter:
    """Return what the two files of the adapter in `folder` hold, numbers as float32."""
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
    """Check that it is a low-rank adapter, and takes no more memory or time than tensors of `longest` need."""
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ModelFolderError(f"{path} does not describe a low-rank adapter (LORA)")
    unsupported = [key for key in _UNSUPPORTED_OPTIONS if config.get(key)]
    if unsupported:
        raise ModelFolderError(f"{path}: {unsupported[0]} is set; only plain low-rank adapters are opened")
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    if not isinstance(ranks, dict) or not isinstance(alphas, dict):
        raise ModelFolderError(f"{path}: rank_pattern and alpha_pattern must be objects")
    for rank in (config.get("r"), *ranks.values()):
        if type(rank) is not int or not 1 <= rank <= longest:
            raise ModelFolderError(f"{path}: the rank is {rank!r:.40}; the tensors' longest side is {longest}")
    patterns = [config.get("target_modules"), config.get("exclude_modules"), config.get("layers_pattern")]
    if not all(is_safe_regex(pattern) for pattern in (*patterns, *ranks, *alphas) if isinstance(pattern, str)):
        raise ModelFolderError(f"{path} has a regular expression that may take endless time")


def merge_adapter(model: Any, folder: Path) -> tuple[Any, Adapter]:
    """Return `model` with the adapter in `folder` added to its weights, and what the adapter's files hold."""
    with ignored_warnings(FutureWarning):  # of peft's use of names that transformers will change
        adapted, adapter = open_adapter(model, folder)
        return adapted.merge_and_unload(), adapter


def open_adapter(model: Any, folder: Path, *, is_trainable: bool = False) -> tuple[Any, Adapter]:
    """Return `model` with the adapter in `folder` in it, as peft opens it, and what the adapter's files hold."""
    require("peft")
    from peft import PeftModel, get_peft_model_state_dict

    config, tensors = read_adapter(folder)
    try:
        adapted = PeftModel.from_pretrained(model, str(folder), is_trainable=is_trainable, local_files_only=True)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the adapter in {folder} does not fit {type(model).__name__}: {error}") from error
    lost = sorted({name for name in tensors if "lora_" in name} - get_peft_model_state_dict(adapted).keys())
    if lost:  # peft only warns and leaves the model bare
        raise ModelFolderError(
            f"{folder}: {len(lost)} of {len(tensors)} tensors of the adapter do not reach the model ({lost[0]}); it "
            "was made for another architecture, or another class of the same"
        )
    return adapted, (config, tensors)


def _cast(tensor: Any, dtype: str) -> Any:
    import torch

    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def write_adapter(folder: Path, adapter: Adapter, dtype: str = "float32") -> None:
    """Write the adapter's two files into the new folder `folder`, as peft does, tensors as `dtype`."""
    from safetensors.torch import save

    folder.mkdir()
    write_json(folder / CONFIG, adapter[0])
    tensors = {name: _cast(tensor, dtype).contiguous() for name, tensor in adapter[1].items()}
    large = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if large:
        raise InputError(f"the adapter's tensor {large[0]} holds numbers that {dtype} cannot; save it as float32")
    # The library's save_file makes a file that only its owner may read.
    (folder / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))


Attention = Literal["bidirectional", "causal"]
"""What a token sees: all of the text, or what stands before it."""

HeadKind = Literal["auto", "lm", "input"]

_LOADER_BY_ENDING = {
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForPreTraining": "AutoModelForMaskedLM",
}
_CHUNK_ROWS = 512  # of the head at a time


@dataclass
class Backbone:
    """A transformer, its tokenizer and its vocabulary head.

    Attributes:
        model: the transformers model; adapters of peft may be added to it in place.
        tokenizer: its fast tokenizer.
        attention: "bidirectional" or "causal", as proved by `set_attention`.
        predicts_next: whether a state predicts the next token (causal language models) or its own (encoders).
        head_kind: "lm", or "input" where the input embeddings serve as head.
        max_length: the most tokens the model can read.
        name: the folder or hub id it was opened from.
        adapter: files of the low-rank adapter that was merged into the weights: its configuration and tensors.
    """

    model: Any
    tokenizer: Any
    attention: Attention
    predicts_next: bool
    head_kind: str
    max_length: int
    name: str = ""
    adapter: Adapter | None = field(default=None, repr=False)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def head(self) -> torch.Tensor:
        """The vocabulary head, [vocabulary, d]: the rows that are clustered (LENS paper, section 3.2.1)."""
        return head_module(self.model, self.head_kind).weight.detach()

    @property
    def head_bias(self) -> torch.Tensor | None:
        """What the head adds to each token's logit, [vocabulary]; None where it adds nothing."""
        bias = getattr(head_module(self.model, self.head_kind), "bias", None)
        return None if bias is None else bias.detach()

    @property
    def dimension(self) -> int:
        """The length of a hidden state as the head takes it."""
        return int(head_module(self.model, self.head_kind).weight.shape[1])

    def states(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the states that the head takes, [B, L, d], with gradients where torch keeps them.

        Args:
            input_ids: int64 [B, L], padded on the right.
            attention_mask: int64 [B, L], 0 for padding.
        """
        return states(self.model, self.head_kind, input_ids, attention_mask)

    def padded(self, encodings: Sequence[Encoding]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return ids, attention mask and which states are the texts' own, each [B, L], padded on the right."""
        ids, mask, is_pooled = padded(encodings, padding_id(self.model.config))
        return ids.to(self.device), mask.to(self.device), is_pooled.to(self.device)

    def weights(
        self, encodings: Sequence[Encoding], head: torch.Tensor, bias: torch.Tensor | None, pooling: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return how strongly each row of `head` fires for each text, and where.

        Args:
            encodings: at least one.
            head: [k, d], on the model's device.
            bias: [k], or None.
            pooling: "max", "sum" or "last".

        Returns:
            float32 [B, k] weights of 0 or more, and int64 [B, k] which of the text's own tokens each is from: the one
            with the largest part, -1 where the weight is 0 or the pooling is of no single token.
        """
        import torch

        with torch.inference_mode():
            ids, mask, is_pooled = self.padded(encodings)
            hidden = self.states(ids, mask)
            last = torch.tensor([encoding.last for encoding in encodings], device=hidden.device)
            values, where = pooled(hidden, is_pooled, last, head, bias, pooling)
        first = np.array([encoding.first for encoding in encodings])[:, None]
        position = where.cpu().numpy()
        return values.float().cpu().numpy(), np.where(position >= 0, position - first, -1)

    def tensor(self, array: npt.NDArray[np.float32]) -> torch.Tensor:
        """Return `array` on the model's device, in the type of its weights."""
        import torch

        return torch.tensor(array, device=self.device, dtype=self.model.dtype)

    def fingerprint(self) -> npt.NDArray[np.float32]:
        """Return float32 [d], the mean state over a few fixed tokens: other weights or attention give another one."""
        import torch

        with torch.inference_mode(), one_thread():
            mean = self.states(*probe_ids(self.model))[0].float().mean(dim=0)
        return np.asarray(mean.cpu().numpy())


def padded(encodings: Sequence[Encoding], filler: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, attention mask and which states are the texts' own, each [B, L], padded on the right."""
    import torch

    longest = max(1, *(len(encoding.ids) for encoding in encodings))  # a text may have no token at all
    ids = torch.full((len(encodings), longest), filler)
    mask, is_pooled = (torch.zeros_like(ids) for _ in range(2))
    for n, encoding in enumerate(encodings):
        ids[n, : len(encoding.ids)] = torch.tensor(encoding.ids)
        mask[n, : max(1, len(encoding.ids))] = 1  # to see nothing at all gives NaN in some attentions
        is_pooled[n, encoding.first : encoding.first + len(encoding.spans)] = 1
    return ids, mask, is_pooled.bool()


def pooled(
    hidden: torch.Tensor,
    is_pooled: torch.Tensor,
    last: torch.Tensor,
    head: torch.Tensor,
    bias: torch.Tensor | None,
    pooling: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log(1 + relu(logits)) of some states of each text as one, and the position that the maximum is from.

    Args:
        hidden: [B, L, d].
        is_pooled: bool [B, L], the states that "max" and "sum" take.
        last: int64 [B], the position that "last" takes; -1 for none, whose values are 0.
        head: [k, d].
        bias: [k], or None.
        pooling: "max", "sum" or "last".

    Returns:
        [B, k], and int64 [B, k]: -1 where the value is 0 or the pooling is "last".
    """
    import torch

    if pooling == "last":
        chosen = hidden[torch.arange(len(last), device=hidden.device), last.clamp(min=0)]
        weights = torch.log1p(torch.relu(torch.nn.functional.linear(chosen, head, bias)))
        return weights * (last >= 0)[:, None], torch.full_like(weights, -1, dtype=torch.int64)
    if pooling == "max":
        from pellucid.transformer.pooled_head import max_pooled

        values, position = max_pooled(hidden, is_pooled, head, bias)
        return values, position
    values, positions = [], []
    for start in range(0, len(head), _CHUNK_ROWS):
        part = None if bias is None else bias[start : start + _CHUNK_ROWS]
        logits = torch.nn.functional.linear(hidden, head[start : start + _CHUNK_ROWS], part)
        weights = torch.log1p(torch.relu(logits)) * is_pooled[:, :, None]
        values.append(weights.sum(dim=1))
        positions.append(weights.argmax(dim=1))
    value, position = torch.cat(values, dim=1), torch.cat(positions, dim=1)
    return value, torch.where(value > 0, position, -1)


def half_dtype() -> str:
    """Return "bfloat16" where this processor has instructions for it, else "float32", some 70 times as fast there."""
    import torch

    able = getattr(getattr(torch, "cpu", None), "_is_avx512_bf16_supported", None)
    return "bfloat16" if able is not None and able() else "float32"


def open_backbone(
    name_or_path: str | Path,
    *,
    attention: Attention = "bidirectional",
    head: HeadKind = "auto",
    adapter: str | Path | None = None,
    dtype: str = "float32",
    device: str | None = None,
) -> Backbone:
    """Open a transformer as backbone of a lexicon or key-token model.

    Args:
        name_or_path: a folder or hub id that transformers opens.
        attention: whether a token sees the whole text ("bidirectional") or only what stands before it ("causal").
        head: the matrix with one row a token: "lm" for the language modelling head, "input" for the input
            embeddings, "auto" for the first where the model has one.
        adapter: folder or hub id of a low-rank adapter of peft; it is merged into the weights.
        dtype: of the weights: "float32", "bfloat16" or "float16".
        device: such as "cpu" or "cuda:1"; None takes a GPU where there is one.

    Raises:
        ModelFolderError: nothing is there, or weights of the head are missing in it.
        InputError: the model has no such head or cannot have that attention.
        MissingExtraError: torch, transformers or (for an adapter) peft is not installed.
    """
    name_or_path = resolve_name(name_or_path)
    name = os.fspath(name_or_path)
    check_choice("attention", attention, ("bidirectional", "causal"))
    local_folder(name_or_path)
    with translate_load_errors(name):
        from transformers import AutoTokenizer

        model, head_kind = _open_model(name, head, dtype)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=Path(name).is_dir())
        model, merged_adapter = (model, None) if adapter is None else merge_adapter(model, locate(adapter))
        return prepare(
            model, tokenizer, attention=attention, head_kind=head_kind, name=name, adapter=merged_adapter, device=device
        )


def prepare(
    model: Any,
    tokenizer: Any,
    *,
    attention: Attention,
    head_kind: str = "lm",
    name: str = "",
    adapter: Adapter | None = None,
    device: str | None = None,
) -> Backbone:
    """Return a backbone of a loaded model, after setting and testing its attention and head; call it in `loading`."""
    import torch

    if getattr(model.config, "is_encoder_decoder", False):
        raise InputError(
            f"{type(model).__name__} is an encoder with a decoder; one of the two is needed: "
            "a causal language model or an encoder"
        )
    model = model.eval().to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if model.device.type == "cpu" and model.dtype != torch.float32 and half_dtype() == "float32":
        warn(
            f"{name or 'the model'} has weights in {model.dtype}, for which this processor has no instructions: it "
            'is many times slower than in float32. Open it with dtype="float32", or say model.backbone.model.float()'
        )
    check_token_ids(tokenizer, len(model.get_input_embeddings().weight))
    set_attention(model, attention)
    open_head(model, head_kind)
    length = context_length(model, tokenizer)
    return Backbone(model, tokenizer, attention, is_causal_lm(model.config), head_kind, length, name, adapter)


def read_transformer_config(name_or_path: str | Path) -> Any:
    """Return what transformers reads of a model's `config.json`; a folder's files are checked first."""
    name_or_path = resolve_name(name_or_path)
    name = os.fspath(name_or_path)
    with translate_load_errors(name):
        from transformers import AutoConfig

        folder = local_folder(name_or_path)
        if folder is not None:
            check_folder(folder)
        return AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=folder is not None)


def _open_model(name: str, head: str, dtype: str) -> tuple[Any, str]:
    """Return the model and the kind of its head, after checking that no weight of it is random."""
    check_choice("dtype", dtype, ("float32", "bfloat16", "float16"))
    config = read_transformer_config(name)
    import torch
    import transformers

    loader = _loader(config, head, name)
    opener, local = getattr(transformers, loader), Path(name).is_dir()
    if local:
        check_adapter(Path(name))
        check_size(opener, config, Path(name))
    model, loading_info = opener.from_pretrained(
        name,
        dtype=getattr(torch, dtype),
        use_safetensors=True,
        output_loading_info=True,
        trust_remote_code=False,
        local_files_only=local,
    )
    check_finite(model, name)
    missing = [key for key in loading_info["missing_keys"] if "pooler" not in key]
    if missing:
        raise ModelFolderError(
            f"{name} lacks {len(missing)} of the weights of {type(model).__name__} ({', '.join(sorted(missing)[:3])}"
            f"{', ...' if len(missing) > 3 else ''}), which would be random; with head='input' the head is not needed"
        )
    return model, "input" if loader == "AutoModel" else "lm"


def _loader(config: Any, head: str, name: str) -> str:
    """Return the class of transformers that opens a checkpoint with the head wanted."""
    check_choice("head", head, ("auto", "lm", "input"))
    architecture = (getattr(config, "architectures", None) or ["unknown"])[0]
    matched = next((loader for ending, loader in _LOADER_BY_ENDING.items() if architecture.endswith(ending)), None)
    if head == "input" or (head == "auto" and matched is None and not is_causal_lm(config)):
        return "AutoModel"
    if matched is None and head == "auto" and getattr(config, "tie_word_embeddings", False):
        return "AutoModel"  # the input embeddings are the head
    if matched is None:
        raise InputError(
            f"{name} has no head over its vocabulary: its architecture is {architecture}, and those with one end in "
            f"{', '.join(_LOADER_BY_ENDING)}. Give head='input' to use its input embeddings"
        )
    return matched
