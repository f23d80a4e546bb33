"""The largest logit of each cluster over a text's positions, on a CUDA device, as one Triton kernel.

A matrix product followed by a maximum before anything is written: a program takes one text and some clusters, computes
the logits of the text's positions block by block, keeps the running maximum and its position, and writes one number and
one position for each of its clusters. The logits never leave the chip, so memory traffic is that of reading h and c.
The backward pass is two sums of few rows, needs no kernel, and is in `pooled_head.py`.
"""

# ruff: noqa: ANN001, ANN202 (Triton allows no other annotation than constexpr in a kernel)

from __future__ import annotations

from typing import Any

import torch

try:
    import triton
    import triton.language as tl
    from triton import jit
except ImportError:  # PyPI's torch brings it on Linux; elsewhere the CPU's path is taken on any device

    def jit(function: Any) -> Any:
        """Leave the kernel as it is; nothing will call it."""
        return function

    AVAILABLE = False
else:
    AVAILABLE = True

_TEXTS = 8  # texts that take turns on the same clusters, so that both stay in the cache
_DEPTH = 64  # columns of hidden states multiplied at once


def largest(hidden: Any, mask: Any, weight: Any, bias: Any = None) -> tuple[Any, Any]:
    """Return the largest logit over the allowed positions, 0 without any, infinity for a NaN, and its position."""
    texts, length, depth = hidden.shape
    clusters = len(weight)
    values = torch.zeros((texts, clusters), dtype=torch.float32, device=hidden.device)
    argmax = torch.zeros((texts, clusters), dtype=torch.int64, device=hidden.device)
    if not (texts and length and clusters):
        return values, argmax
    hidden, weight, mask = hidden.contiguous(), weight.contiguous(), mask.contiguous().view(torch.uint8)
    tile = _tile(hidden)
    exact = torch.get_float32_matmul_precision() == "highest"
    with torch.cuda.device_of(hidden):
        _largest[(texts * triton.cdiv(clusters, tile["CLUSTERS"]),)](
            *(hidden, mask, weight, weight if bias is None else bias, values, argmax),
            *(texts, length, clusters, depth),
            BIASED=bias is not None,
            TEXTS=_TEXTS,
            PRECISION="ieee" if exact else "tf32",
            **tile,
        )
    return values, argmax


def _tile(hidden: Any) -> dict[str, int]:
    """Return how much a program multiplies at once, by what the device's multiplier and memory take."""
    _, length, depth = hidden.shape
    single = hidden.dtype == torch.float32
    large = hidden.is_cuda and torch.cuda.get_device_capability(hidden.device)[0] in (9, 10)  # Hopper, Blackwell
    return {
        "POSITIONS": min(64 if single else 128, max(16, triton.next_power_of_2(length))),
        "CLUSTERS": 64 if single else 256 if large else 128,
        "DEPTH": min(_DEPTH, max(16, triton.next_power_of_2(depth))),
        "num_warps": 4 if single else 8,
        "num_stages": 3,
    }


@jit  # type: ignore[untyped-decorator, unused-ignore]
def _largest(  # type: ignore[no-untyped-def]
    hidden,
    mask,
    weight,
    bias,
    values,
    argmax,
    texts,
    length,
    clusters,
    depth,
    BIASED: tl.constexpr,
    TEXTS: tl.constexpr,
    POSITIONS: tl.constexpr,
    CLUSTERS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    # Programs of one group of texts run next to each other, clusters in the outer turn.
    program = tl.program_id(0)
    in_group = TEXTS * tl.cdiv(clusters, CLUSTERS)
    first = program // in_group * TEXTS
    size = min(texts - first, TEXTS)
    text = (first + program % in_group % size).to(tl.int64)
    columns = program % in_group // size * CLUSTERS + tl.arange(0, CLUSTERS)
    here = columns < clusters
    inner = tl.arange(0, DEPTH)
    weights = weight + columns[:, None].to(tl.int64) * depth + inner[None, :]
    best = tl.full((CLUSTERS,), float("-inf"), tl.float32)
    where = tl.zeros((CLUSTERS,), tl.int32)
    for start in range(0, length, POSITIONS):
        rows = start + tl.arange(0, POSITIONS)
        allowed = tl.load(mask + text * length + rows, mask=rows < length, other=0) != 0
        if tl.max(allowed.to(tl.int32), axis=0) > 0:
            states = hidden + (text * length + rows)[:, None] * depth + inner[None, :]
            logits = tl.zeros((POSITIONS, CLUSTERS), tl.float32)
            for column in range(0, depth, DEPTH):
                within = inner[None, :] < depth - column
                left = tl.load(states + column, mask=allowed[:, None] & within, other=0.0)
                right = tl.load(weights + column, mask=here[:, None] & within, other=0.0)
                logits = tl.dot(left, right.T, logits, input_precision=PRECISION)
            logits = tl.where(logits == logits, logits, float("inf"))  # the maximum may pass over a NaN
            logits = tl.where(allowed[:, None], logits, float("-inf"))
            highest, row = tl.max(logits, axis=0, return_indices=True)  # the first of equals
            where = tl.where(highest > best, start + row, where)
            best = tl.maximum(best, highest)
    is_allowed = best > float("-inf")
    if BIASED:
        best += tl.load(bias + columns, mask=here, other=0.0)
    cells = text * clusters + columns
    tl.store(values + cells, tl.where(is_allowed, best, 0.0), mask=here)
    tl.store(argmax + cells, where.to(tl.int64), mask=here)
