"""The pooled head must give what the paper's order gives, forward and backward, without ever making all logits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.transformer import pooled_head
from pellucid.transformer.pooled_head import max_pooled


def _paper(hidden, mask, weight, bias=None):
    """All logits, saturated, then the maximum: the order of the paper's code."""
    logits = torch.nn.functional.linear(hidden, weight, bias)
    weights = torch.log1p(torch.relu(logits)) * mask[..., None]
    return weights.amax(dim=1)


def _case(texts, length, depth, clusters, seed=0):
    make = torch.Generator().manual_seed(seed)
    hidden = torch.randn(texts, length, depth, generator=make)
    weight = torch.randn(clusters, depth, generator=make)
    return hidden, torch.rand(texts, length, generator=make) < 0.6, weight, torch.randn(clusters, generator=make)


def test_by_hand():
    hidden = torch.tensor([[[1.0, 0.0], [3.0, -1.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    values, argmax = max_pooled(hidden, mask, weight)
    # 3 at position 1; at most 0; below 0
    assert (values.tolist(), argmax.tolist()) == ([[pytest.approx(math.log(4)), 0.0, 0.0]], [[1, -1, -1]])
    assert values.dtype == torch.float32 and argmax.dtype == torch.int64


@pytest.mark.parametrize(("mask", "first"), [([True] * 4, 1), ([True, False, True, True], 3)])
def test_the_first_of_equal_positions_is_told(mask, first):
    hidden = torch.tensor([[[0.0], [2.0], [1.0], [2.0]]])
    assert max_pooled(hidden, torch.tensor([mask]), torch.tensor([[1.0]]))[1].tolist() == [[first]]


@given(
    texts=st.integers(0, 5),
    length=st.integers(0, 9),
    depth=st.integers(1, 6),
    clusters=st.integers(1, 70),
    biased=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_values_and_positions_on_any_shape(texts, length, depth, clusters, biased, seed):
    hidden, mask, weight, bias = _case(texts, length, depth, clusters, seed)
    bias = bias if biased else None
    values, argmax = max_pooled(hidden, mask, weight, bias)
    assert values.shape == argmax.shape == (texts, clusters)
    expected = _paper(hidden, mask, weight, bias) if length else torch.zeros(texts, clusters)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)
    assert bool(((argmax >= 0) == (values > 0)).all())
    for text, cluster in (argmax >= 0).nonzero().tolist():
        position = int(argmax[text, cluster])
        logit = weight[cluster] @ hidden[text, position] + (0 if bias is None else bias[cluster])
        assert mask[text, position]
        assert float(values[text, cluster]) == pytest.approx(math.log1p(float(logit)), rel=1e-4, abs=1e-5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Many groups of texts and slices of clusters, as large inputs have."""
    monkeypatch.setattr(pooled_head, "_MAX_LIVE_LOGITS", 50)
    monkeypatch.setattr(pooled_head, "_CLUSTER_RANGE", (3, 5))


@pytest.mark.parametrize("whole", [True, False])
def test_blocks_change_nothing(small_blocks, whole):
    hidden, mask, weight, bias = _case(6, 5, 4, 17)
    mask = torch.ones_like(mask) if whole else mask
    mask[2] = whole  # a text without a position between others
    torch.testing.assert_close(max_pooled(hidden, mask, weight, bias)[0], _paper(hidden, mask, weight, bias))


def test_gradients_are_those_of_the_paper_order(small_blocks):
    hidden, mask, weight, bias = _case(6, 5, 4, 17)
    mask[3], gradients = False, []
    for function in (lambda *x: max_pooled(*x)[0], _paper):
        leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
        function(leaves[0], mask, leaves[1], leaves[2]).pow(2).sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    assert all(gradient.abs().sum() > 0 for gradient in gradients[1])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_a_frozen_head_gets_no_gradient_and_where_nothing_fires_there_is_none():
    hidden, mask, weight, _ = _case(2, 4, 3, 5)
    max_pooled(hidden.requires_grad_(), mask, weight)[0].sum().backward()
    assert hidden.grad is not None and weight.grad is None
    states, head = hidden.detach().abs().requires_grad_(), (-weight.abs()).requires_grad_()
    values, argmax = max_pooled(states, mask, head)
    values.sum().backward()
    assert bool((argmax == -1).all()) and not any(x.any() for x in (values, states.grad, head.grad))


def _similar(ours, theirs):
    return float(torch.nn.functional.cosine_similarity(ours.float().flatten(), theirs.flatten(), dim=0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    hidden, mask, weight, bias = _case(3, 6, 8, 40)
    half = [hidden.to(dtype).requires_grad_(), mask, weight.to(dtype).requires_grad_(), bias]
    full = [half[0].detach().float().requires_grad_(), mask, half[2].detach().float().requires_grad_(), bias]
    values, expected = max_pooled(*half)[0], _paper(*full)
    values.sum().backward(), expected.sum().backward()
    assert values.dtype == torch.float32 and half[0].grad.dtype == dtype
    torch.testing.assert_close(values, expected, rtol=0.02, atol=0.02)
    assert min(_similar(half[n].grad, full[n].grad) for n in (0, 2)) > 0.99


def test_autocast_gives_gradients_of_the_inputs_types():
    hidden, mask, weight, _ = _case(3, 6, 8, 40)
    hidden.requires_grad_(), weight.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values, _ = max_pooled(hidden, mask, weight)
    values.sum().backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
    torch.testing.assert_close(values, _paper(hidden, mask, weight), rtol=0.03, atol=0.03)


def test_nan_is_not_hidden():
    hidden, mask, weight, _ = _case(2, 4, 3, 5)
    hidden[0, 1, 0], mask[0, 1] = math.nan, True
    values, _ = max_pooled(hidden, mask, weight)
    assert bool(values[0].isnan().all()) and bool(values[1].isfinite().all())
    mask[0, 1] = False  # where no one looks it does not matter
    assert bool(max_pooled(hidden, mask, weight)[0].isfinite().all())


@pytest.mark.full
def test_memory_does_not_grow_with_positions_times_clusters():
    """All logits of this batch would take 400 MB; the allocator is asked for far less at any one time."""
    hidden, weight = torch.randn(50, 200, 8), torch.randn(10_000, 8)
    mask = torch.ones(50, 200, dtype=torch.bool)
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        max_pooled(hidden, mask, weight)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest <= 12 << 20  # what comes out takes 6 MB


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_gives_what_the_cpu_gives(dtype):
    hidden, mask, weight, bias = _case(5, 70, 64, 300)
    results = []
    for device in ("cpu", "cuda"):
        leaves = [x.detach().to(device, dtype).requires_grad_() for x in (hidden, weight)]
        values, _ = max_pooled(leaves[0], mask.to(device), leaves[1], bias.to(device))
        values.pow(2).sum().backward()
        results.append([values.detach().cpu(), *(leaf.grad.float().cpu() for leaf in leaves)])
    assert min(map(_similar, *results)) > 0.999
