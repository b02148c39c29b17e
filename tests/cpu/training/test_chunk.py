"""The chunk rule of training against the recurrence it stands for, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.tiny.chunk import CHUNK_TOKENS, RESET_GATE, gated_delta, unit_inverse

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Token after token: S <- e^g S, S <- S + k (beta (v - S^T k))^T, o = S^T q."""
    group = v.shape[2] // k.shape[2]
    q, k = (x.repeat_interleave(group, dim=2) for x in (q, k))
    state = v.new_zeros(v.shape[0], v.shape[2], k.shape[-1], v.shape[-1])
    out = []
    for t in range(v.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        known = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        delta = (v[:, t] - known) * beta[:, t, :, None]
        state = state + k[:, t, ..., None] * delta[..., None, :]
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(out, dim=1)


def draw(gates: str, keys: str, dtype: torch.dtype = torch.float64) -> Inputs:
    """Two rows of three chunks, two key heads with two value heads each."""
    torch.manual_seed(0)
    rows, tokens, heads = 2, 3 * CHUNK_TOKENS, 4
    q, k = (F.normalize(torch.randn(rows, tokens, 2, 16, dtype=dtype), dim=-1) for _ in range(2))
    v = torch.randn(rows, tokens, heads, 8, dtype=dtype)
    beta = torch.rand(rows, tokens, heads, dtype=dtype)
    if keys == "identical":
        k = k[:, :1].expand_as(k).clone()
        beta = 1 - 1e-3 * beta
    g = -torch.rand(rows, tokens, heads, dtype=dtype)
    g = g * {"slow": 1e-4, "strong": 20.0, "mixed": 1.0}[gates]
    if gates == "mixed":
        g = g * torch.tensor([1e-4, 0.1, 3.0, 120.0], dtype=dtype)
        g[:, 70] = RESET_GATE
    return q, k, v, g, beta


@pytest.mark.parametrize("keys", ["random", "identical"])
@pytest.mark.parametrize("gates", ["slow", "strong", "mixed"])
def test_equal_to_the_recurrence(gates: str, keys: str) -> None:
    inputs = draw(gates, keys)
    q, k, v, g, beta = inputs
    expected = recurrence(q, k, v, g.clamp(min=RESET_GATE), beta)
    torch.testing.assert_close(gated_delta(*inputs), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("keys", ["random", "identical"])
@pytest.mark.parametrize("gates", ["slow", "strong", "mixed"])
def test_gradients_equal_those_of_the_recurrence(gates: str, keys: str) -> None:
    inputs = tuple(x.requires_grad_() for x in draw(gates, keys))
    q, k, v, g, beta = inputs
    weights = torch.randn_like(v)
    found = torch.autograd.grad((gated_delta(*inputs) * weights).sum(), inputs)
    slow = recurrence(q, k, v, g.clamp(min=RESET_GATE), beta)
    expected = torch.autograd.grad((slow * weights).sum(), inputs)
    for name, one, other in zip(["q", "k", "v", "g", "beta"], found, expected, strict=True):
        scale = float(other.abs().max().clamp(min=1))
        torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=1e-11, msg=name)


@pytest.mark.parametrize("keys", ["random", "identical"])
def test_float32_stays_near_float64(keys: str) -> None:
    inputs = draw("mixed", keys)
    wide = gated_delta(*inputs)
    narrow = gated_delta(*(x.float() for x in inputs))
    assert torch.isfinite(narrow).all()
    assert float((narrow - wide).norm() / wide.norm()) < 1e-5


def test_a_reset_gate_forgets() -> None:
    q, k, v, g, beta = draw("slow", "random")
    g[:, 70] = RESET_GATE
    before = gated_delta(q, k, v, g, beta)[:, 70:]
    v = torch.cat([torch.randn_like(v[:, :70]), v[:, 70:]], dim=1)
    torch.testing.assert_close(gated_delta(q, k, v, g, beta)[:, 70:], before, rtol=0, atol=1e-12)


def test_the_inverse_of_nearly_equal_keys() -> None:
    """All ones below the diagonal: the powers of a Neumann series reach 1e18 before they cancel."""
    lower = torch.ones(64, 64, dtype=torch.float32).tril(-1)[None]
    product = (torch.eye(64) + lower) @ unit_inverse(lower)
    torch.testing.assert_close(product[0], torch.eye(64), rtol=0, atol=1e-6)
