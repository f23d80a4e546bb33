"""The direction of a transformer's attention: set, then proved by two forward passes that differ in one token.

transformers has one switch, `config.is_causal`. Most causal language models follow it, some with certain attention
implementations only, and some ignore it silently. So it is set and then tested:

    two rows of 8 tokens, equal except for the last; h and h' are their last hidden states
    causal:         a position sees what comes before it, so h[i] = h'[i] for all i < 7
    bidirectional:  every position sees the last token, so h[i] != h'[i] for all i < 7

Two rows are enough: under a causal mask no path leads from the last token to an earlier state, so the difference is
exactly 0, up to rounding. Without one every layer mixes the last token into every position; that it should cancel out
for a whole vector happens with probability 0. The test is done twice, without padding and with 3 masked tokens after
the text, because masks are built differently then; and padding itself must not change a state, or a text's embedding
would depend on its batch. Cost: two forward passes of two short rows, once when a model is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.errors import InputError

if TYPE_CHECKING:
    import torch

_PROBE_TOKENS, _PROBE_PADDING_TOKENS = 8, 3  # tokens of the test, and padding after them
_ROUNDING_RATIO = 1e-6  # of the largest state: below it a difference is rounding
_PADDING_TOLERANCE = 2e-2  # of the largest state: what half precision may differ by
_MIN_LOGIT_CORRELATION = 0.98  # correlation of logits; some models bend them (soft caps) or scale them
_DEFAULT_CONTEXT_TOKENS = 512  # where nothing names a limit
_MAX_CONTEXT_TOKENS = 1_000_000  # tokenizers that know no limit give an absurd one


def head_module(model: Any, kind: str) -> Any:
    """Return the module whose weight holds one row a token: the language modelling head, or the input embeddings."""
    return model.get_input_embeddings() if kind == "input" else model.get_output_embeddings()


def is_causal_lm(config: Any) -> bool:
    """Whether models of this type predict the next token; a type that fills masks as well (bert) is an encoder."""
    from transformers.models.auto import modeling_auto as known

    kind = config.model_type
    return kind in known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in known.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def states(model: Any, kind: str, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the states that the head takes, [B, L, d]."""
    if is_causal_lm(model.config):
        return base_states(model, input_ids, attention_mask)
    out = model(input_ids=input_ids, attention_mask=attention_mask)  # an opened head's own layers have been applied
    return out.last_hidden_state if kind == "input" else out.logits


def lm_head_logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return what an opened head over masked tokens makes of some states before its rows, [B, L, d] each."""
    import torch

    def put(module: Any, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = hidden  # on the way to the head, whose layers no two architectures name alike
        return output

    handle = model.base_model.register_forward_hook(put)
    try:
        ids = torch.full(hidden.shape[:2], padding_id(model.config), device=hidden.device)
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    finally:
        handle.remove()


def _let_through(hidden: torch.Tensor) -> torch.Tensor:
    return hidden


def open_head(model: Any, kind: str) -> None:
    """Check that head and states fit together, and for encoders make the head let the states through."""
    import torch

    head = head_module(model, kind)
    if head is None or getattr(head, "weight", None) is None:
        raise InputError(
            f"{type(model).__name__} has no {'input embeddings' if kind == 'input' else 'head'} of one row a token; "
            "the other kind of head may exist: head='lm' or head='input'"
        )
    if vars(head).get("forward") is _let_through:  # opened before
        del head.forward
    ids, mask = probe_ids(model)
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask, **_no_cache(model)).logits if kind == "lm" else None
        if kind == "lm" and not is_causal_lm(model.config):
            head.forward = _let_through  # the rows are not multiplied with all states; clusters of them are
        hidden = states(model, kind, ids, mask)
    if hidden.shape[-1] != head.weight.shape[1]:
        raise InputError(
            f"the states of {type(model).__name__} have {hidden.shape[-1]} dimensions and the rows of its "
            f"{'input embeddings' if kind == 'input' else 'head'} {head.weight.shape[1]}; they cannot be compared"
        )
    if logits is None:
        return
    with torch.inference_mode():
        ours = torch.nn.functional.linear(hidden, head.weight, getattr(head, "bias", None)).float().flatten()
    pair = torch.stack([ours, logits.float().flatten()])
    with torch.autocast(pair.device.type, enabled=False):  # in bfloat16 it ends the process
        alike = float(torch.corrcoef(pair)[0, 1])
    if not alike > _MIN_LOGIT_CORRELATION:
        raise InputError(
            f"{type(model).__name__} computes its logits by more than its states times its head; "
            "give head='input' to use its input embeddings instead"
        )


def set_attention(model: Any, attention: str) -> None:
    """Give a causal language model the attention wanted, and prove that any model has it.

    Args:
        model: of transformers.
        attention: "causal" or "bidirectional".

    Raises:
        InputError: it keeps another one, or padding changes its states.
    """
    if is_causal_lm(model.config):
        _switch(model, attention)
    problem = _problem(model, attention)
    if problem and attention == "bidirectional" and getattr(model.config, "_attn_implementation", "") != "eager":
        model.set_attn_implementation("eager")  # some follow the switch only so
        problem = _problem(model, attention)
    if problem:
        raise InputError(f"{type(model).__name__} ({model.config.model_type}) {problem}")


def _switch(model: Any, attention: str) -> None:
    model.config.is_causal = attention == "causal"
    if attention == "causal":
        return
    if not getattr(model.config, "layer_types", None) and getattr(model.config, "sliding_window", None):
        model.config.sliding_window = None  # would stay, as a window to both sides
    for module in model.modules():  # GPT-Neo has its mask in a buffer of each layer
        for _, buffer in module.named_buffers(recurse=False):
            if str(buffer.dtype) == "torch.bool" and buffer.ndim >= 2 and buffer.shape[-1] == buffer.shape[-2]:
                buffer.fill_(True)


def probe_ids(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids [2, L] of two rows that differ only in the last token, and the mask that goes with them."""
    import torch

    rows = len(model.get_input_embeddings().weight)
    ids = ((torch.arange(_PROBE_TOKENS) * 7 + rows // 3) % rows).repeat(2, 1)
    ids[1, -1] = (ids[0, -1] + max(1, rows // 2)) % rows
    device = next(model.parameters()).device
    return ids.to(device), torch.ones_like(ids).to(device)


def _problem(model: Any, attention: str) -> str | None:
    """Return what is wrong with the model's attention, or None."""
    import torch

    ids, mask = probe_ids(model)
    padding = torch.full((2, _PROBE_PADDING_TOKENS), padding_id(model.config), device=ids.device)
    longer = torch.cat([ids, padding], dim=1), torch.cat([mask, torch.zeros_like(padding)], dim=1)
    try:
        with torch.inference_mode():
            plain = base_states(model, ids, mask).float()
            padded = base_states(model, *longer)[:, :_PROBE_TOKENS].float()
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        return f"cannot run with attention={attention!r}: {error}"
    size = plain.abs().max()
    for hidden, case in ((plain, "without padding"), (padded, "with padding")):
        moved = (hidden[0, :-1] - hidden[1, :-1]).abs().amax(dim=1) > _ROUNDING_RATIO * size
        if attention == "bidirectional" and not moved.all():
            return (
                f"stays causal {case}: changing the last of {_PROBE_TOKENS} tokens moves {int(moved.sum())} of "
                f"{_PROBE_TOKENS - 1} earlier states. Use attention='causal', or another architecture"
            )
        if attention == "causal" and moved.any():
            return f"is not causal: earlier states change with later tokens {case}. Use attention='bidirectional'"
    if (plain - padded).abs().max() > _PADDING_TOLERANCE * size:
        return "changes its states with padding, so that a text's embedding would depend on the texts beside it"
    return None


def base_states(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the last hidden states of the transformer without its head."""
    return model.base_model(input_ids=ids, attention_mask=mask, **_no_cache(model)).last_hidden_state


def _no_cache(model: Any) -> dict[str, bool]:
    """Return the argument that keeps a causal language model from storing what generating text would need."""
    return {"use_cache": False} if is_causal_lm(model.config) else {}


def padding_id(config: Any) -> int:
    """Return the id that fills up shorter texts; it is masked, and only position counting may look at it."""
    pad_id = getattr(config, "pad_token_id", None)
    return pad_id if isinstance(pad_id, int) and 0 <= pad_id < config.vocab_size else 0


def context_length(model: Any, tokenizer: Any) -> int:
    """Return how many tokens the model can read, as its configuration, its positions and its tokenizer say."""
    import torch

    limits = [getattr(model.config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            skipped = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa counts from behind it
            limits.append(module.num_embeddings - skipped)
    valid = [limit for limit in limits if isinstance(limit, int) and 0 < limit < _MAX_CONTEXT_TOKENS]
    return min(valid, default=_DEFAULT_CONTEXT_TOKENS)
