"""The vocabulary head and its max pooling in one step: how strongly each cluster fires anywhere in a text.

What is computed (LENS paper, section 3.2): for text b and cluster j

    value[b, j] = max over positions i of  log(1 + relu(h_bi . c_j + bias_j))

Forward. log(1 + relu(x)) never falls as x grows, so the maximum may be taken of the logits, and the bias, the same at
every position, be added after it:

    value[b, j] = log(1 + relu(bias_j + max_i h_bi . c_j))

Then no more than a tile of logits is needed at once: some texts times some clusters, of which only the largest and its
position are kept. The products are the same, B x L x k x d; memory falls from B x L x k numbers to B x k, and the
logarithm is taken L times less often.

Backward. Let p be the position of the maximum. The slope of value[b, j] is 1 / (1 + logit) = exp(-value) at position p,
and 0 at all others. So with s = gradient x slope

    gradient of c_j   = sum over texts b of           s[b, j] h[b, p(b, j)]
    gradient of h_bi  = sum over clusters j, p = i,   s[b, j] c_j

Each is a weighted sum of a few rows, which `embedding_bag` takes without forming a matrix: B x k x d multiplications
each, L times fewer than the product of matrices that automatic differentiation would compute.
"""

from __future__ import annotations

from typing import Any

from pellucid.errors import importing

with importing("torch", "torch"):
    import torch
    from torch.nn.functional import embedding_bag

_MAX_LIVE_LOGITS = 1 << 20  # logits alive at once: 4 MB in float32
_MAX_LIVE_LOGITS_GPU = 1 << 27  # 256 MB in bfloat16: fewer would leave a GPU waiting for its next product
_CLUSTER_RANGE = (64, 1024)  # fewest and most clusters multiplied at once


def max_pooled(hidden: Any, mask: Any, weight: Any, bias: Any = None) -> tuple[Any, Any]:
    """Return log(1 + relu(.)) of each cluster's largest logit over the allowed positions, and its position.

    Gradients reach `hidden`, `weight` and `bias`, each through the position of the maximum (once: not twice
    differentiable). Under autocast the logits are of autocast's type.

    Args:
        hidden: the model's last hidden states, tensor [texts, positions, d].
        mask: which positions count, bool tensor [texts, positions].
        weight: one row for each cluster, tensor [k, d].
        bias: added to the logits, tensor [k], or None.

    Returns:
        values, float32 [texts, k]; argmax, int64 [texts, k]: the first position of the largest logit. Where no
        position is allowed or the largest logit is not above 0, the value is 0 and the position -1. A NaN among the
        logits shows as NaN or infinity.
    """
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    bias = None if bias is None else bias.to(torch.float32)
    values, argmax = _MaxPooled.apply(hidden.to(dtype), mask, weight.to(dtype), bias)
    return values, argmax


class _MaxPooled(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Largest logit over the positions, saturated; the gradient goes through its position."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, mask: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
        with torch.autocast(hidden.device.type, enabled=False):
            largest, argmax = _largest(hidden, mask, weight, bias)
        argmax = torch.where(largest <= 0, -1, argmax)
        values = torch.log1p(torch.relu(largest))
        ctx.save_for_backward(hidden, weight, values, argmax)
        ctx.mark_non_differentiable(argmax)
        return values, argmax

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc, untyped-decorator, unused-ignore]
    def backward(ctx: Any, grad: Any, _: Any) -> tuple[Any, ...]:
        hidden, weight, values, argmax = ctx.saved_tensors
        slope = torch.where(argmax >= 0, grad * torch.exp(-values), 0)  # exp(-log(1 + logit)) = 1 / (1 + logit)
        to_hidden, _, to_weight, to_bias = ctx.needs_input_grad
        with torch.autocast(hidden.device.type, enabled=False):
            return (
                _hidden_gradient(slope, argmax, weight, hidden.shape) if to_hidden else None,
                None,
                _weight_gradient(slope, argmax, hidden) if to_weight else None,
                slope.sum(dim=0) if to_bias else None,
            )


def _largest(hidden: Any, mask: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Return the largest logit over the allowed positions (0 without any), float32 [B, k], and its position, int64."""
    texts, length, width = hidden.shape
    values = hidden.new_zeros((texts, len(weight)), dtype=torch.float32)
    argmax = torch.zeros_like(values, dtype=torch.int64)
    most = _MAX_LIVE_LOGITS if hidden.device.type == "cpu" else _MAX_LIVE_LOGITS_GPU
    together = max(1, min(texts, most // max(1, length * _CLUSTER_RANGE[1])))
    size = max(_CLUSTER_RANGE[0], most // max(1, together * length))
    for first in range(0, texts if length else 0, together):
        part = slice(first, first + together)
        states, ignored = hidden[part].reshape(-1, width), ~mask[part, :, None]
        for start in range(0, len(weight), size):
            rows = slice(start, start + size)
            logits = torch.mm(states, weight[rows].t()).view(-1, length, len(weight[rows]))
            best = logits.masked_fill_(ignored, -torch.inf).max(dim=1)
            values[part, rows], argmax[part, rows] = best.values.float(), best.indices
    if bias is not None:
        values += bias
    return torch.where(mask.any(dim=1, keepdim=True), values, 0), argmax


def _hidden_gradient(slope: Any, argmax: Any, weight: Any, shape: Any) -> Any:
    """Return [B, L, d]: at each position the rows of the clusters with their maximum there, times their slopes."""
    texts, length, _ = shape
    text, cluster = (argmax >= 0).nonzero(as_tuple=True)
    position, order = torch.sort(text * length + argmax[text, cluster], stable=True)
    starts = torch.searchsorted(position, torch.arange(texts * length, device=position.device))
    slopes = slope[text, cluster][order].to(weight.dtype)
    gradient = embedding_bag(cluster[order], weight, starts, mode="sum", per_sample_weights=slopes)
    return gradient.view(shape)


def _weight_gradient(slope: Any, argmax: Any, hidden: Any) -> Any:
    """Return [k, d]: for each cluster the hidden states at its maxima, one a text, times their slopes."""
    texts, length, _ = hidden.shape
    firsts = torch.arange(0, texts * length, length, device=argmax.device)
    positions = argmax.clamp(min=0) + firsts[:, None]
    slopes = slope.t().contiguous().to(hidden.dtype)
    return embedding_bag(
        positions.t().contiguous(), hidden.reshape(texts * length, -1), mode="sum", per_sample_weights=slopes
    )
